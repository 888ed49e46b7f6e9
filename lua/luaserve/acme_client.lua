-- acme_client.lua - the client of an authority for tls.acme: requests that are signed (RFC 8555 section 6), the account,
-- orders, and when the authority wants a certificate to be renewed (RFC 9773).
--
-- All functions wait, and raise a table { text =, kind =, retry_after = } when something fails: kind is the type of the
-- authority's error (section 6.7), retry_after are the seconds that it asks for.

local core = require "luaserve.core"
local json = require "luaserve.json"
local options = require "luaserve.options"
local date = require "luaserve.date"

-- A site may replace the globals.
local concat, format, max, min = table.concat, string.format, math.max, math.min
local error, ipairs, pairs, pcall, setmetatable = error, ipairs, pairs, pcall, setmetatable
local time, tonumber, tostring, type = os.time, tonumber, tostring, type

local client = {}
client.__index = client

local SHA256 <const>, BASE64URL <const> = 2, 3
local NONCES_MAX <const> = 50 -- attempts of a request that the authority refuses for its nonce
local TIME_S <const> = 30 -- for a request
local ORDER_S <const> = 600 -- for an order; it is continued by the next attempt
local POLL_S <const>, POLL_S_MAX <const>, PAUSE_S_MAX <const> = 0.25, 5, 60
local ACCOUNT <const> = "account.json"

local function fail(text, ...) error({ text = format(text, ...) }, 0) end
local function base64url(bytes) return core.crypto_encode(BASE64URL, bytes) end

local function object(answer, url)
  local value = answer:json()
  if type(value) ~= "table" then fail("%s answers with status %d and no JSON object", url, answer.status) end
  return value
end

-- Retry-After: seconds or a date (RFC 9110 section 10.2.3) -> seconds | nil
local function retry_after(answer)
  local text = answer.headers["retry-after"]
  local at = text and not tonumber(text) and core.http_date_parse(text)
  return at and max(at - time(), 0) or tonumber(text)
end

-- new(options, store, pause) -> client. options: directory, email, ca, eab, profile. pause(seconds): waits, or raises when
-- the work has to end.
function client.new(given, store, pause)
  return setmetatable({ given = given, store = store, pause = pause }, client)
end

-- ---- requests ----------------------------------------------------------------------------------------------------------

local function send(self, url, given)
  if self.pause then self.pause(0) end -- it keeps the lease, also in an order of many names
  given.timeout, given.redirects, given.max_body = TIME_S, given.method == "GET" and 3 or 0, "1m"
  given.tls = self.given.ca and url:find("^https:") and { ca = self.given.ca } or nil
  local answer, message = require("luaserve.fetch").fetch(url, given)
  if not answer then fail("%s", message) end
  self.nonce = answer.headers["replay-nonce"]
  return answer
end

local function get(self, url)
  local answer = send(self, url, { method = "GET" })
  if not answer.ok then
    error({ text = format("%s answers with status %d", url, answer.status), retry_after = retry_after(answer) }, 0)
  end
  return object(answer, url), answer
end

local function jws(head, payload, sign)
  local text = base64url(json.encode(head)) .. "." .. base64url(payload)
  local protected, body = text:match("^(.*)%.(.*)$")
  return { protected = protected, payload = body, signature = base64url(sign(text)) }
end

local function refusal(answer, url)
  local problem = answer:json()
  problem = type(problem) == "table" and problem or {}
  local kind = tostring(problem.type or ""):match("[^:]*$")
  local parts = { format("%s: %s (%s, status %d)", url:match("^%a+://([^/]+)") or url, problem.detail or "no reason given", kind,
    answer.status) }
  for _, one in ipairs(type(problem.subproblems) == "table" and problem.subproblems or {}) do
    parts[#parts + 1] = format("%s: %s", one.identifier and one.identifier.value or "?", one.detail or "?")
  end
  return { text = concat(parts, "; "):gsub("%c", " "), kind = kind, status = answer.status, retry_after = retry_after(answer) }
end

-- post(url, payload [, accept]) -> answer. payload: JSON, or "" to read the resource (RFC 8555 section 6.3).
function client:post(url, payload, accept)
  local failure
  for _ = 1, NONCES_MAX do
    if not self.nonce then send(self, self.urls.newNonce, { method = "HEAD" }) end
    local nonce = self.nonce or fail("%s gives no nonce", self.urls.newNonce)
    local head = { alg = "ES256", nonce = nonce, url = url, kid = self.kid, jwk = not self.kid and self.jwk or nil }
    local answer = send(self, url, { method = "POST", headers = { ["Content-Type"] = "application/jose+json", Accept = accept },
      body = json.encode(jws(head, payload, function(text) return core.crypto_sign(self.key, text) end)) })
    if answer.ok then return answer end
    failure = refusal(answer, url)
    if failure.kind == "accountDoesNotExist" and self.kid then
      local lost = self.kid
      self:register()
      if url == lost then url = self.kid end
    elseif failure.kind ~= "badNonce" then
      break
    end
  end
  error(failure, 0)
end

local function read(self, url)
  local answer = self:post(url, "")
  return object(answer, url), answer
end

-- ---- the account -------------------------------------------------------------------------------------------------------

-- Makes the account, or finds that of the key.
function client:register()
  local given, meta = self.given, type(self.urls.meta) == "table" and self.urls.meta or {}
  local payload = { termsOfServiceAgreed = true, contact = given.email and { "mailto:" .. given.email } }
  if given.eab then
    local key = core.crypto_decode(BASE64URL, given.eab.key)
    local head = { alg = "HS256", kid = given.eab.kid, url = self.urls.newAccount }
    payload.externalAccountBinding = jws(head, json.encode(self.jwk), function(text) return core.crypto_hash(SHA256, text, key) end)
  elseif meta.externalAccountRequired then
    fail("the authority needs an account that it knows: eab = { kid = ..., key = ... }, which it gives you")
  end
  self.kid = nil
  self.kid = self:post(self.urls.newAccount, json.encode(payload)).headers.location or fail("the authority gives the account no URL")
  self.store:write(ACCOUNT, json.encode { key = self.pem, kid = self.kid, email = given.email })
end

-- Reads the directory and the account, and makes one where the store has none.
function client:open()
  self.urls = get(self, self.given.directory)
  for _, name in ipairs { "newNonce", "newAccount", "newOrder" } do
    if type(self.urls[name]) ~= "string" then fail("%s is not the directory of an authority: it has no %s", self.given.directory, name) end
  end
  local text = self.store:read(ACCOUNT)
  local fine, known = pcall(json.decode, text or "{}")
  if not fine or type(known) ~= "table" then fail("%s in the store is damaged; remove it, and a new account is made", ACCOUNT) end
  self.pem = known.key or core.acme_key()
  if not known.key then self.store:write(ACCOUNT, json.encode { key = self.pem }) end
  local x, y = core.acme_point(self.pem)
  if not x then fail("the key in %s in the store is not one of P-256; remove the file, and a new account is made", ACCOUNT) end
  self.key, self.kid, self.jwk = core.crypto_key(self.pem), known.kid, { kty = "EC", crv = "P-256", x = base64url(x), y = base64url(y) }
  local thumb = format('{"crv":"P-256","kty":"EC","x":"%s","y":"%s"}', self.jwk.x, self.jwk.y) -- RFC 7638
  self.thumbprint = base64url(core.crypto_hash(SHA256, thumb))
  if not self.kid then
    self:register()
  elseif self.given.email and self.given.email ~= known.email then
    self:post(self.kid, json.encode { contact = { "mailto:" .. self.given.email } })
    self.store:write(ACCOUNT, json.encode { key = self.pem, kid = self.kid, email = self.given.email })
  end
end

-- ---- orders ------------------------------------------------------------------------------------------------------------

-- poll(url, pending) -> the resource when its status is not in the set `pending`. Raises at the end of the time for the order.
local function poll(self, url, pending)
  local pause = POLL_S
  while true do
    local value, answer = read(self, url)
    if not pending[value.status] then return value end
    if time() >= self.deadline then fail("%s has not ended in %d seconds; the next attempt continues", url, ORDER_S) end
    self.pause(min(retry_after(answer) or pause, PAUSE_S_MAX))
    pause = min(2 * pause, POLL_S_MAX)
  end
end

local function new_order(self, names, replaces)
  local identifiers, meta = {}, type(self.urls.meta) == "table" and self.urls.meta or {}
  for i, name in ipairs(names) do identifiers[i] = { type = "dns", value = name } end
  local profile = self.given.profile
  if profile and not (type(meta.profiles) == "table" and meta.profiles[profile]) then
    local known = options.sorted(type(meta.profiles) == "table" and meta.profiles or {})
    fail('the authority has no profile "%s"; it has %s', profile, known[1] and concat(known, ", ") or "none")
  end
  local payload = { identifiers = identifiers, profile = profile, replaces = self.urls.renewalInfo and replaces or nil }
  local ok, answer = pcall(self.post, self, self.urls.newOrder, json.encode(payload))
  if not ok and payload.replaces and type(answer) == "table" and (answer.status or 0) // 100 == 4 and answer.status ~= 429 then
    payload.replaces = nil -- RFC 9773 section 5: another order has replaced it, or the authority does not know it
    ok, answer = pcall(self.post, self, self.urls.newOrder, json.encode(payload))
  end
  if not ok then error(answer, 0) end
  return object(answer, self.urls.newOrder), answer.headers.location or fail("the authority gives the order no URL")
end

local other <const> = { ["http-01"] = "tls-alpn-01", ["tls-alpn-01"] = "http-01" }

local function choose(authorization, name, kind)
  for _, wanted in ipairs { kind, other[kind] } do
    for _, one in ipairs(authorization.challenges or {}) do
      if one.type == wanted then return one end
    end
  end
  fail("%s: the authority offers neither http-01 nor tls-alpn-01", name)
end

-- Proves the names of an order. publish(proofs): the servers give these, a list of { kind =, name =, token =, auth = }.
local function prove(self, order, state, publish)
  local open, proofs = {}, {}
  for _, url in ipairs(order.authorizations) do
    local one = read(self, url)
    local name = one.identifier.value
    if one.status == "pending" then
      local challenge = choose(one, name, state.kind or "http-01")
      open[#open + 1] = { url = url, challenge = challenge, name = name }
      proofs[#proofs + 1] = { kind = challenge.type, name = name, token = challenge.token,
        auth = challenge.token .. "." .. self.thumbprint }
    elseif one.status ~= "valid" then
      state.order = nil
      fail("%s: the authorization is %s", name, one.status)
    end
  end
  publish(proofs)
  for _, one in ipairs(open) do
    if one.challenge.status == "pending" then self:post(one.challenge.url, "{}") end
  end
  for _, one in ipairs(open) do
    local ended = poll(self, one.url, { pending = true })
    if ended.status ~= "valid" then
      local reason = ended.status
      for _, challenge in ipairs(ended.challenges or {}) do
        reason = challenge.error and challenge.error.detail or reason
      end
      state.order, state.kind = nil, other[one.challenge.type]
      fail("%s: %s has failed: %s", one.name, one.challenge.type, (tostring(reason):gsub("%c", " ")))
    end
    state.kind = one.challenge.type
  end
  publish {}
end

-- obtain(names, state, save, publish, replaces) -> the certificate with its chain and key, PEM. `state` has the order and
-- the key of an attempt that did not end; save() keeps it. replaces: that of client.id, or nil.
function client:obtain(names, state, save, publish, replaces)
  self.deadline = time() + ORDER_S
  self:open()
  local known, order = pcall(read, self, state.order)
  if not state.order or not state.key or not known or order.status == "invalid" then
    order, state.order = new_order(self, names, replaces)
    state.key = core.acme_key()
    save()
  end
  if order.status == "pending" then
    prove(self, order, state, publish)
    order = poll(self, state.order, { pending = true })
  end
  if order.status == "ready" then
    local list = {}
    for i, name in ipairs(names) do list[i] = "DNS:" .. name end
    local request = core.acme_request(state.key, concat(list, ","))
    self:post(order.finalize, json.encode { csr = base64url(request) })
  end
  order = poll(self, state.order, { ready = true, processing = true })
  if order.status ~= "valid" then
    state.order = nil
    fail("the order is %s%s", order.status, order.error and ": " .. tostring(order.error.detail) or "")
  end
  local url = order.certificate
  state.order = nil -- the next attempt begins again if this certificate cannot be used
  return self:post(url, "", "application/pem-certificate-chain"):body() .. "\n" .. state.key
end

-- ---- renewal -----------------------------------------------------------------------------------------------------------

-- id(certificate) -> its name for the authority (RFC 9773 section 4.1) | nil: it names no issuer. certificate: of core.acme_read.
function client.id(certificate)
  if certificate.key_id == "" then return nil end
  return base64url(certificate.key_id) .. "." .. base64url(certificate.serial)
end

-- window(certificate) -> { start =, stop =, url = }, after which seconds to ask again | nil: the authority has none
function client:window(certificate)
  if not self.urls then self.urls = get(self, self.given.directory) end
  local id = client.id(certificate)
  if type(self.urls.renewalInfo) ~= "string" or not id then return nil end
  local info, answer = get(self, self.urls.renewalInfo:gsub("/$", "") .. "/" .. id)
  local given = type(info.suggestedWindow) == "table" and info.suggestedWindow or {}
  local start, stop = date.parse(given.start or ""), date.parse(given["end"] or "")
  if not start or not stop or stop < start then fail("%s gives no window of times for the renewal", self.urls.renewalInfo) end
  return { start = start, stop = stop, url = info.explanationURL }, retry_after(answer)
end

return client
