-- bearer_auth.lua - middleware for tokens in `Authorization: Bearer` (RFC 6750): API keys, JSON Web Tokens, or what a
-- function of the site knows.

local core = require "luaserve.core"
local options = require "luaserve.options"
local usage = require "luaserve.usage"
local guard = require("luaserve.router").guard

local find, match, type = string.find, string.match, type
local concat, sort = table.concat, table.sort

-- bearer_auth is a BearerAuth: middleware for tokens of programs, `require "luaserve.bearer_auth"`.
local bearer_auth = {}

local bearer_options = {
  jwt = true, -- string|string[] - the key of JSON Web Tokens, as of ls.crypto.jwt.verify; req.user are the claims
  provider = true, -- string - URL of an OpenID provider, whose JSON Web Tokens for `audience` are valid
  issuer = true, -- string - with jwt: the claim iss must be this
  audience = true, -- string - with jwt, provider: the claim aud must be this, or a list with it; without it, aud is refused
  leeway = { "leeway_ms", "seconds", 0, 600000, 60 }, -- seconds, with jwt and provider: by which the clocks may differ
  tokens = true, -- table<string, any> - API keys of at least 16 bytes, with what becomes req.user
  -- fun(token: string, req: Request): any - what becomes req.user, or nil
  check = { "check", "is", "function", "a function" },
  realm = true, -- string - in the answer 401; default "site"
}
bearer_auth.calls = { ["bearer_auth"] = { bearer_options, listed = true } } -- BearerAuthOptions

local sha256, token_bytes_min = 2, 16
local characters = "[%w._~+/=-]+" -- of a token, RFC 6750 section 2.1

-- check_same(name, texts): raises unless the other Lua states, which run the same file, have the same keys or tokens.
local function check_same(name, texts)
  local digests = {}
  for i, text in ipairs(texts) do digests[i] = core.crypto_hash(sha256, text) end
  if core.crypto_same(core.crypto_hash(sha256, concat(digests))) then return end
  usage.error("bearer_auth: %s differs between the Lua states, which all run this file: take it from the environment or "
    .. "from a file; one that is made here is another one in each state", name)
end

-- checker(tokens) -> a function from a token to its user, or nil. The tokens are found by a digest with a key that only
-- this state has, so that the time of the search does not tell how much of a guess is right.
local function checker(tokens)
  local key, users, list = core.crypto_random(32), {}, {}
  usage.refuse(type(tokens) ~= "table" or next(tokens) == nil, tokens,
    "bearer_auth: tokens must be a table from tokens to users")
  for token, user in pairs(tokens) do
    if type(token) ~= "string" or #token < token_bytes_min or not user then
      usage.error("bearer_auth: tokens: a token has at least %d bytes and a user: ls.crypto.token() makes one",
        token_bytes_min)
    elseif not find(token, "^" .. characters .. "$") then
      usage.error("bearer_auth: tokens: a token has only letters, digits and -._~+/=, as the header can hold; got %s",
        usage.quote(token))
    end
    list[#list + 1] = token
    users[core.crypto_hash(sha256, token, key)] = user
  end
  sort(list)
  check_same("tokens", list)
  return function(token) return users[core.crypto_hash(sha256, token, key)], "it is not one of tokens" end
end

local ways <const> = { "jwt", "provider", "tokens", "check" }

-- bearer_auth(options: BearerAuthOptions) -> middleware: Middleware
-- Makes middleware that answers 401 to requests without a valid token; `req.user` says whose it is.
local function new(...)
  local _, given = options.only("bearer_auth", bearer_auth.calls.bearer_auth, "{ jwt = key }", ...)
  if not options.one_of("bearer_auth", given, ways) then usage.error("bearer_auth: give one of jwt, provider, tokens and check") end
  for _, name in ipairs(given.jwt == nil and { "issuer", given.provider == nil and "audience", "leeway" } or {}) do
    if name and given[name] ~= nil and not (name == "leeway" and given.provider) then
      usage.error("bearer_auth: %s belongs to jwt", name)
    end
  end
  local check = usage.decider("bearer_auth: check", given.check)
  if not check and not core.crypto_built() then
    usage.error("bearer_auth: %s needs OpenSSL, without which this luaserve was built", given.jwt and "jwt"
      or given.provider and "provider" or "tokens")
  end
  if given.jwt ~= nil then
    check = require("luaserve.signature").verifier("bearer_auth: jwt", given.jwt,
      { issuer = given.issuer, audience = given.audience, leeway = given.leeway })
    check_same("jwt", type(given.jwt) == "table" and given.jwt or { given.jwt })
  end
  if given.provider ~= nil then
    usage.refuse(type(given.audience) ~= "string", given.audience,
      "bearer_auth: provider needs audience, the name of this API: else tokens for other APIs would be valid")
    check = require("luaserve.oidc_provider").new("bearer_auth: provider", given.provider, 10)
      :verifier("bearer_auth", given.audience, given.leeway)
  end
  check = check or checker(given.tokens)
  local ask = "Bearer realm=" .. require("luaserve.basic_auth").realm_of("bearer_auth", given.realm)
  local pattern = "^[Bb][Ee][Aa][Rr][Ee][Rr] +(" .. characters .. ") *$"
  return guard(function(req, _, next)
    local token = match(req.headers.authorization or "", pattern)
    local user, reason, code
    if token then user, reason, code = check(token, req) end
    if not user and given.provider and code and code ~= "EINVAL" and code ~= "ELIMIT" then
      return 503, "the token cannot be checked now, because its provider cannot be reached: try again later\n"
    end
    if not user then
      if type(reason) == "string" then
        core.log("debug", "bearer_auth: the token of " .. req.ip .. " is refused: " .. reason)
      end
      return 401, token and "the token is not valid\n" or "a token is needed\n",
        { ["WWW-Authenticate"] = token and ask .. ', error="invalid_token"' or ask }
    end
    req.user = user
    return next()
  end, { name = "bearerAuth", type = "http", scheme = "bearer", bearerFormat = (given.jwt or given.provider) and "JWT" })
end

return setmetatable(bearer_auth, { __call = function(_, ...) return new(...) end })
