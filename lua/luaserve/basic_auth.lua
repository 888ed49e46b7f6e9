-- basic_auth.lua - middleware for the login of HTTP itself (RFC 7617): the browser asks for a name and a password, and
-- sends them with each request.

local core = require "luaserve.core"
local options = require "luaserve.options"
local usage = require "luaserve.usage"
local guard = require("luaserve.router").guard

local error, find, format, match, pcall, type = error, string.find, string.format, string.match, pcall, type

-- basic_auth is a BasicAuth: middleware for the login of browsers themselves, `require "luaserve.basic_auth"`.
local basic_auth = {}

local basic_options = {
  -- table<string, string> - the password of each user, or its hash of ls.crypto.password.hash
  users = { "users", "is", "table", "a table from names to passwords" },
  -- fun(name: string, password: string, req: Request): any - in place of users: what becomes req.user, or nil
  check = { "check", "is", "function", "a function" },
  realm = true, -- string - what the browser shows; default "site"
}
basic_auth.calls = { ["basic_auth"] = { basic_options, listed = true } } -- BasicAuthOptions

local base64, sha256 = 2, 2
local verified_max = 1000

-- Whether the text is a hash that cannot be checked: of another program, such as $2y$, $argon2id$, $apr1$ and {SHA}, or a
-- damaged one of ls.crypto.password.hash. As a password it would let in who has read it.
local function is_unknown_hash(text)
  if find(text, "^%$scrypt%$") then return not pcall(require("luaserve.crypto").password.verify, "", text) end
  return find(text, "^%$[%w_-]+%$") ~= nil or find(text, "^{[%w.-]+}") ~= nil
end

-- realm_of(call, realm) -> the realm as a quoted string. Raises.
function basic_auth.realm_of(call, realm)
  if realm == nil then return '"site"' end
  usage.refuse(type(realm) ~= "string" or find(realm, '[%c"\\\128-\255]'), realm,
    '%s: realm must be a string without \'"\', \'\\\' and control characters', call)
  return '"' .. realm .. '"'
end

-- The name and the password of a request; nil: it has none that can be read.
local function credentials(req)
  local text = match(req.headers.authorization or "", "^[Bb][Aa][Ss][Ii][Cc] +([^ ]+) *$")
  text = text and core.crypto_decode(base64, text)
  if not text or find(text, "%c") then return nil end
  return match(text, "^([^:]*):(.*)$")
end

local busy = {} -- the second result of a checker: too many passwords are being checked

-- verify(running, digest, given, expected) -> whether the password is right | nil: busy. Requests of the same name and password,
-- as a browser sends them for a page, share the check that runs: in `running`, by digest.
local function verify(running, digest, given, expected)
  local check, try, job = require("luaserve.crypto").password.verify, require("luaserve.failure").try, running[digest]
  if not job then
    local fine
    fine, job = pcall(core.spawn, function()
      local checked, right = pcall(try, check, given, expected)
      running[digest] = nil
      if not checked then error(right, 0) end
      return right
    end)
    if not fine then return (try(check, given, expected)) end -- the site loads, or it has as many jobs as it may
    running[digest] = job
  end
  return (job:wait())
end

-- checker(users) -> a function from a name and a password to the name, or nil. A hash takes 0.2 s, and browsers send the
-- password with each request: a digest of those that were right is kept, with a key that only this state has.
local function checker(users)
  local key, verified, running, count = core.crypto_random(32), {}, {}, 0
  local hashed = false
  for _, expected in pairs(users) do hashed = hashed or find(expected, "^%$scrypt%$") ~= nil end
  return function(name, given)
    local expected = users[name]
    if not hashed or expected and not find(expected, "^%$scrypt%$") then
      local right = core.crypto_hash(sha256, expected or "", key)
      return core.crypto_equal(core.crypto_hash(sha256, given, key), right) and expected and name or nil
    end
    local digest = core.crypto_hash(sha256, name .. ":" .. given, key)
    if expected and verified[digest] then return name end
    local right = verify(running, digest, given, expected)
    if not right then return nil, right == nil and busy or nil end
    if count == verified_max then verified, count = {}, 0 end
    verified[digest], count = true, count + 1
    return name
  end
end

-- basic_auth(options: BasicAuthOptions) -> middleware: Middleware
-- Makes middleware that answers 401 to requests without the name and password of a user; `req.user` is the name.
local function new(...)
  local _, given = options.only("basic_auth", basic_auth.calls.basic_auth, "{ users = { ada = hash } }", ...)
  local check, users = given.check, given.users
  if (check == nil) == (users == nil) then usage.error("basic_auth: give one of users and check") end
  if users and not core.crypto_built() then
    usage.error("basic_auth: users needs OpenSSL, without which this luaserve was built; use check")
  end
  for name, password in pairs(users or {}) do
    if type(name) ~= "string" or find(name, "[%c:]") or type(password) ~= "string" or password == "" then
      usage.error("basic_auth: users: %s must be a name without ':', with a password or its hash", usage.quote(name))
    elseif is_unknown_hash(password) then
      usage.error("basic_auth: users: the password of %s is a hash that is damaged or of another program: make one with "
        .. "ls.crypto.password.hash", usage.quote(name))
    end
  end
  local ask = format('Basic realm=%s, charset="UTF-8"', basic_auth.realm_of("basic_auth", given.realm))
  check = usage.decider("basic_auth: check", check) or checker(users)
  return guard(function(req, _, next)
    local name, password = credentials(req)
    local user, why
    if name then user, why = check(name, password, req) end
    if not user and why == busy then return 503, "try again later\n", { ["Retry-After"] = "1" } end
    if not user then return 401, "a name and a password are needed\n", { ["WWW-Authenticate"] = ask } end
    req.user = user
    return next()
  end, { name = "basicAuth", type = "http", scheme = "basic" })
end

return setmetatable(basic_auth, { __call = function(_, ...) return new(...) end })
