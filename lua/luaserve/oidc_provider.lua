-- oidc_provider.lua - what a site knows of an OpenID provider: its discovery document (OpenID Connect Discovery 1.0), its
-- keys (RFC 7517), and whether it has signed a token. For luaserve.oidc and luaserve.bearer_auth.
--
-- Nothing is fetched before a request needs it. Then one task of the server fetches a document, and a dict has it for all
-- Lua states. A document older than LIFETIME_S is fetched again beside the requests, which use the old one meanwhile, and
-- as long as the provider cannot be reached. A token that names an unknown key causes one fetch in REFETCH_S, however many
-- there are: a provider that changes its keys publishes the new one before it uses it.
--
--     known[name]   a document as this state has read it: { at = core.now(), value =, tried = of the last fetch after it }
--     the dict      by name, issuer and TLS options { at =, again = of the last fetch because of an unknown key, text = };
--                   by "failed " and the same, for FAILURE_S: why it was not fetched

local core = require "luaserve.core"
local dicts = require "luaserve.dict"
local json = require "luaserve.json"
local rules = require "luaserve.fetch_rules"
local signature = require "luaserve.signature"
local usage = require "luaserve.usage"

local find, format, gsub, match, max = string.find, string.format, string.gsub, string.match, math.max
local ipairs, pairs, pcall, setmetatable, type = ipairs, pairs, pcall, setmetatable, type
local now = core.now

local provider = {}

local LIFETIME_S <const>, REFETCH_S <const>, FAILURE_S <const> = 3600, 10, 2
local BODY_BYTES_MAX <const>, KEYS_MAX <const>, TOKEN_BYTES_MAX <const> = 256 * 1024, 100, 64 * 1024
local sha256, hex = 2, 1

local methods = {}
methods.__index = methods

-- The keys of a JWK set that check signatures of a known algorithm, for signature.lua. That of a key follows from its kind.
local function keys_of(set)
  local list = {}
  for i, jwk in ipairs(set.keys) do
    if i > KEYS_MAX then break end
    local key = type(jwk) == "table" and jwk.use ~= "enc" and signature.key_of_jwk(jwk)
    if key and (type(jwk.alg) ~= "string" or jwk.alg == key.algorithm) then list[#list + 1] = key end
  end
  return list
end

-- ---- documents ---------------------------------------------------------------------------------------------------------

local required = { "authorization_endpoint", "token_endpoint", "jwks_uri" }
local optional = { "userinfo_endpoint", "end_session_endpoint", "revocation_endpoint" }

-- Why the discovery document is not one of this issuer, or nil.
local function fault_of(self, doc)
  if doc.issuer ~= self.issuer then
    if type(doc.issuer) ~= "string" then return "its discovery document names no issuer" end
    return format("its discovery document is of the issuer %q, and the option is %q: write issuer = %q if that is your provider",
      doc.issuer, self.issuer, doc.issuer)
  end
  for _, names in ipairs { required, optional } do
    for _, name in ipairs(names) do
      local url = type(doc[name]) == "string" and doc[name] or nil
      local at = url and rules.parse(url)
      if (url or names == required) and not (rules.is_safe(at) and (at.secure or not self.at.secure)) then
        return format("%s must be a URL that begins with https://; %s", name, url and "got " .. usage.quote(url) or "it is missing")
      end
      doc[name] = url -- which may have been null
    end
  end
end

-- The two documents: how the text is read -> value | nil, why not; and the URL of each.
local documents = {
  metadata = {
    url = function(self) return gsub(self.issuer, "/$", "") .. "/.well-known/openid-configuration" end,
    read = function(self, doc)
      local fault = fault_of(self, doc)
      return not fault and doc or nil, fault
    end,
  },
  keys = {
    url = function(self)
      local doc, message, code = self:metadata()
      return doc and doc.jwks_uri, message, code
    end,
    read = function(_, set)
      if type(set.keys) ~= "table" then return nil, "the document of its keys has no list `keys`" end
      return keys_of(set)
    end,
  },
}

-- read(self, name, stored) -> the document, also of self.known | nil, message
local function read(self, name, stored)
  local raw = json.decode(stored.text)
  if type(raw) ~= "table" then return nil, "its answer is not a JSON object: is the issuer the URL of the provider?" end
  local value, message = documents[name].read(self, raw)
  if not value then return nil, message end
  self.known[name] = { at = stored.at, value = value, tried = stored.at }
  return self.known[name]
end

-- provider:ask(url [, options]) -> answer | nil, message, code
-- A request to the provider: one answer of bounded size and time, without redirects, which a site would not expect.
function methods:ask(url, given)
  given = given or {}
  given.timeout, given.tls, given.max_body, given.redirects = self.timeout, self.tls, BODY_BYTES_MAX, 0
  return require("luaserve.fetch").fetch(url, given)
end

-- Fetch a document and store it for all states. -> document | nil, message, code
local function fetch(self, name, again)
  local url, message, code = documents[name].url(self)
  local answer
  if url then answer, message, code = self:ask(url) end
  if not answer then return nil, message, code end
  if answer.status ~= 200 then
    local target = answer.headers and answer.headers.location
    return nil, format("%s: its status is %d%s", url, answer.status, target and ", to " .. usage.quote(target)
      .. ": redirects are not followed; the issuer is the URL of the provider itself" or ""),
      answer.status >= 500 and "EAGAIN" or "EPROTO"
  end
  local stored = { at = now(), again = again and now() or nil, text = answer:body() }
  local document
  document, message = read(self, name, stored)
  if not document then return nil, format("%s: %s", url, message), "EPROTO" end
  self.dict:set(name .. self.id, stored)
  return document
end

-- load(self, name, after, again) -> the document, got after this time | nil, message, code. `again`: for an unknown key.
-- One task of the server at a time.
local function load(self, name, after, again)
  local key = name .. self.id
  return core.semaphore_within(self.gates[name], 2 * self.timeout, function()
    local stored, failed = self.dict:get(key), self.dict:get("failed " .. key)
    if stored and stored.at > max(after, now() - LIFETIME_S) then return read(self, name, stored) end
    if again and stored and now() - (stored.again or -REFETCH_S) < REFETCH_S then return read(self, name, stored) end
    if failed then return nil, failed.message, failed.code end
    local document, message, code = fetch(self, name, again)
    if not document then
      self.dict:set("failed " .. key, { message = message, code = code }, FAILURE_S)
      core.log("warn", format("oidc: the provider %s: %s", self.issuer, message))
    end
    return document, message, code
  end)
end

-- get(self, name) -> document | nil, message, code
local function get(self, name)
  local known, at = self.known[name], now()
  if not known then return load(self, name, at - LIFETIME_S) end
  if known.at <= at - LIFETIME_S and known.tried <= at - REFETCH_S then
    known.tried = at
    pcall(core.spawn, load, self, name, at - LIFETIME_S) -- at the limit of jobs, a later request does it
  end
  return known
end

-- provider:metadata() -> the discovery document | nil, message, code
function methods:metadata()
  local document, message, code = get(self, "metadata")
  return document and document.value, message, code
end

local accepted = { RS256 = true, ES256 = true, EdDSA = true }

-- find_keys(self, header) -> the keys that may have signed a token with this header | nil, message, code
local function find_keys(self, header)
  if not accepted[header.alg] then
    return nil, format("its algorithm is %s; RS256, ES256 and EdDSA are accepted", usage.quote(header.alg)), "EINVAL"
  end
  local function fitting(document)
    local list = {}
    for _, key in ipairs(document.value) do
      if key.algorithm == header.alg and (header.kid == nil or key.kid == header.kid) then list[#list + 1] = key end
    end
    return list[1] and list
  end
  local document, message, code = get(self, "keys")
  if not document then return nil, message, code end
  local list = fitting(document)
  if not list then
    document, message, code = load(self, "keys", document.at, true)
    if not document then return nil, message, code end
    list = fitting(document)
  end
  if list then return list end
  return nil, format("the provider has no key %s for %s", usage.quote(header.kid), header.alg), "EINVAL"
end

-- provider:verifier(call, audience, leeway) -> a function from a token with an end to its claims | nil, message, code:
-- EINVAL and ELIMIT say that the token is not valid, others why that is not known. Waits.
function methods:verifier(call, audience, leeway)
  local given = { issuer = self.issuer, audience = audience, leeway = leeway }
  local verify = signature.verifier(call, nil, given, function(header) return find_keys(self, header) end, TOKEN_BYTES_MAX)
  return function(token)
    local claims, message, code = verify(token)
    if claims and not claims.exp then return nil, "the token has no time of its end (exp)", "EINVAL" end
    return claims, message, code
  end
end

-- new(call, issuer, timeout, tls) -> a provider. Raises.
function provider.new(call, issuer, timeout, tls)
  local at = type(issuer) == "string" and rules.parse(issuer)
  if not at or find(issuer, "[?#]") then
    usage.error('%s must be the URL of a provider, such as "https://id.example"; got %s', call, usage.quote(issuer))
  elseif not rules.is_safe(at) then
    usage.error('%s must begin with "https://"; "http://" is for a provider on this machine, http://127.0.0.1:9000; got %s',
      call, usage.quote(issuer))
  end
  local base = match(issuer, "^(.-)/%.well%-known/openid%-configuration/?$")
  if base then
    usage.error('%s must be the URL before "/.well-known/openid-configuration", which is added: write %q', call, base)
  end
  if tls ~= nil then require("luaserve.tls").client(call, tls) end
  local id = " " .. issuer .. " " .. require("luaserve.url").query(type(tls) == "table" and tls or {})
  local self = { issuer = issuer, id = id, at = at, timeout = timeout, tls = tls, known = {}, gates = {},
    dict = dicts.open("luaserve.oidc", { size = "16m", evict = true }) }
  for name in pairs(documents) do
    self.gates[name] = core.semaphore("luaserve.oidc " .. core.crypto_hash(sha256, name .. id, nil, hex), 1, "luaserve")
  end
  return setmetatable(self, methods)
end

return provider
