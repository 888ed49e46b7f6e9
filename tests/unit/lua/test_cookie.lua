-- res:cookie: the line, and the messages for wrong arguments.
local check = require "check"
local cookie = require "luaserve.cookie"
local core = require "luaserve.core"

local tests = {}

function core.http_date(seconds) return os.date("!%a, %d %b %Y %H:%M:%S GMT", seconds) end

function tests.lines()
  local usual = "; Path=/; HttpOnly; SameSite=Lax"
  for _, case in ipairs {
    { "a=b" .. usual, "a", "b" }, { "a=" .. usual, "a", "" }, { "a=5" .. usual, "a", 5 },
    { "n!=b=c/d" .. usual, "n!", "b=c/d", {} },
    { "a=b; Path=/x; Domain=example.org; Max-Age=60; Secure; HttpOnly; SameSite=None", "a", "b",
      { same_site = "NONE", http_only = true, secure = true, max_age = 60, domain = "example.org", path = "/x" } },
    { "a=b; Path=/; Max-Age=0; Expires=Thu, 01 Jan 1970 00:00:00 GMT; SameSite=Lax", "a", "b",
      { max_age = 0, expires = -5, http_only = false } },
    { "a=b; Max-Age=2; Expires=Sun, 06 Nov 1994 08:49:37 GMT", "a", "b",
      { max_age = 1.9, expires = 784111777.5, path = false, http_only = false, same_site = false } },
    { "a=b; HttpOnly", "a", "b", { path = false, secure = false, same_site = false, max_age = false } },
    { "a=; Path=/; Max-Age=0; Expires=Thu, 01 Jan 1970 00:00:00 GMT; HttpOnly; SameSite=Lax", "a", nil },
    { "a=; Path=/x; Domain=b.c; Max-Age=0; Expires=Thu, 01 Jan 1970 00:00:00 GMT; HttpOnly; SameSite=Lax", "a", nil,
      { path = "/x", domain = "b.c", max_age = 60, expires = 784111777 } },
  } do
    check.equal(cookie.line(table.unpack(case, 2, 4)), case[1])
  end
end

function tests.wrong_arguments()
  for _, case in ipairs {
    { "invalid cookie name", "a b", "c" }, { "invalid cookie name", nil, "c" },
    { "must be a string; got false", "a", false }, { "got a table", "a", {} },
    { "options must be a table", "a", "b", "x" }, { "path must be a string", "a", "b", { path = 5 } },
    { "domain must be a string without", "a", "b", { domain = "a;b" } },
    { "path must be", "a", "b", { path = "a\nb" } }, { 'path must begin with "/"; got "x"', "a", "b", { path = "x" } },
    { 'domain must be a name such as "example.org"; got "http://x/"', "a", "b", { domain = "http://x/" } },
    { "expires must be a time in seconds since 1970, such as os.time() + 3600", "a", "b", { expires = 5000.5 } },
    { 'same_site = "none" needs secure = true', "a", "b", { same_site = "None" } },
    { "max_age must be a number of seconds", "a", "b", { max_age = "5" } },
    { "max_age must be", "a", "b", { max_age = 0 / 0 } },
    { "expires must be a number", "a", "b", { expires = 1e300 } },
    { 'must be "lax", "strict" or "none"; got "x"', "a", "b", { same_site = "x" } },
    { "got 5", "a", "b", { same_site = 5 } }, { "secure must be true or false; got 1", "a", "b", { secure = 1 } },
    { "did you mean 'max_age'?", "a", "b", { maxage = 5 } },
    { "max_age is in seconds: this is more than 10 years", "a", "b", { max_age = 1e9 } },
    { "the options are domain, expires, http_only, max_age, path, same_site, secure", "a", "b", { elephant = 5 } },
  } do
    check.raises(case[1], cookie.line, table.unpack(case, 2, 4))
  end
  for byte = 0, 255 do
    local char = string.char(byte)
    local ok = pcall(cookie.line, "a", "x" .. char .. "y")
    check.equal({ byte, ok }, { byte, byte > 32 and byte < 127 and not char:find('[",;\\]') })
  end
end

return tests
