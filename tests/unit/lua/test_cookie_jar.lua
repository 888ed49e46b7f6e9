-- luaserve.cookie_jar: which cookies a jar takes, keeps and sends (RFC 6265). tests/e2e/test_fetch.py has it with requests.
local check = require "check"
local core = require "luaserve.core"
local cookie_jar = require "luaserve.cookie_jar"
local rules = require "luaserve.fetch_rules"

local tests = {}

local function new()
  core.can_wait = function() return true end
  return cookie_jar.new()
end

-- The value of the field Cookie for `to` after a response of `from` has set the lines.
local function sent(from, lines, to)
  local jar = new()
  local n = 0
  jar:keep(rules.parse(from), function()
    n = n + 1
    return lines[n]
  end)
  return jar:field(rules.parse(to or from))
end

function tests.long_lines_take_linear_time() -- else this does not end
  local blanks = (" "):rep(4000000)
  check.equal(sent("http://a.example/", { "a" .. blanks .. "b", blanks .. "a" .. blanks .. "=1" .. blanks .. "; Path" .. blanks .. "=/" .. blanks }), "a=1")
end

function tests.what_is_sent()
  for _, case in ipairs {
    { "http://a.example/", { "a=1" }, nil, "a=1" }, { "http://a.example/", { " a = 1 ; Path = / " }, nil, "a=1" },
    { "http://a.example/", { "a=b=c" }, nil, "a=b=c" }, { "http://a.example/", { "a=" }, nil, "a=" },
    { "http://a.example/", { 'a="1 2"' }, nil, 'a="1 2"' }, { "http://a.example/", { "a=1", "b=2" }, nil, "a=1; b=2" },
    { "http://a.example/", { "a=1", "a=2" }, nil, "a=2" },
    { "http://a.example/", { "a=1", "a=; Max-Age=0" }, nil, nil },
    { "http://a.example/", { "a=1", "a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT" }, nil, nil },
    { "http://a.example/", { "a" } }, { "http://a.example/", { "=1" } }, { "http://a.example/", { "" } },
    { "http://a.example/", { "a=1\0" } }, { "http://a.example/", { "a=1\127" } },
    { "http://a.example/", { "a=" .. ("x"):rep(4095) }, nil, "a=" .. ("x"):rep(4095) },
    { "http://a.example/", { "a=" .. ("x"):rep(4096) } },
    -- domains
    { "http://a.example/", { "a=1" }, "http://b.a.example/" },
    { "http://a.example/", { "a=1; Domain=a.example" }, "http://b.a.example/", "a=1" },
    { "http://a.example/", { "a=1; domain=.A.Example" }, "http://b.a.example/", "a=1" },
    { "http://b.a.example/", { "a=1; Domain=a.example" }, "http://a.example/", "a=1" },
    { "http://a.example/", { "a=1; Domain=b.a.example" } }, { "http://a.example/", { "a=1; Domain=ba.example" } },
    { "http://ba.example/", { "a=1; Domain=a.example" } }, { "http://a.example/", { "a=1; Domain=example" } },
    { "http://localhost/", { "a=1; Domain=localhost" }, nil, "a=1" },
    { "http://127.0.0.1/", { "a=1; Domain=127.0.0.1" }, nil, "a=1" }, { "http://127.0.0.1/", { "a=1; Domain=0.0.1" } },
    { "http://127.0.0.1:8000/", { "a=1" }, "http://127.0.0.1:9000/", "a=1" },
    { "http://[::1]/", { "a=1" }, nil, "a=1" },
    -- paths
    { "http://a.example/x/y", { "a=1" }, "http://a.example/x/z", "a=1" },
    { "http://a.example/x/y", { "a=1" }, "http://a.example/x", "a=1" },
    { "http://a.example/x/y", { "a=1" }, "http://a.example/xx" },
    { "http://a.example/x/y", { "a=1" }, "http://a.example/" },
    { "http://a.example/x?y=/z/", { "a=1" }, "http://a.example/", "a=1" },
    { "http://a.example/", { "a=1; Path=/x/" }, "http://a.example/x/y", "a=1" },
    { "http://a.example/", { "a=1; Path=/x/" }, "http://a.example/x" },
    { "http://a.example/", { "a=1; Path=x" }, "http://a.example/y", "a=1" },
    { "http://a.example/", { "a=1; Path=/", "b=2; Path=/x", "c=3" }, "http://a.example/x", "b=2; a=1; c=3" },
    -- secure
    { "https://a.example/", { "a=1; Secure" }, nil, "a=1" },
    { "https://a.example/", { "a=1; Secure" }, "http://a.example/" }, { "http://a.example/", { "a=1; Secure" } },
    { "https://a.example/", { "__Secure-a=1" } },
    { "https://a.example/", { "__Secure-a=1; Secure" }, nil, "__Secure-a=1" },
    { "https://a.example/", { "__Host-a=1; Secure; Path=/" }, nil, "__Host-a=1" },
    { "https://a.example/", { "__Host-a=1; Secure" } },
    { "https://a.example/", { "__Host-a=1; Secure; Path=/; Domain=a.example" } },
    -- times
    { "http://a.example/", { "a=1; Max-Age=100; Expires=Thu, 01 Jan 1970 00:00:00 GMT" }, nil, "a=1" },
    { "http://a.example/", { "a=1; Max-Age=x" }, nil, "a=1" }, { "http://a.example/", { "a=1; Max-Age=-1" } },
    { "http://a.example/", { "a=1; Expires=never" }, nil, "a=1" },
    { "http://a.example/", { "a=1; Expires=Sun, 06 Nov 2094 08:49:37 GMT" }, nil, "a=1" },
    { "http://a.example/", { "a=1; Expires=Sunday, 06-Nov-94 08:49:37 GMT" } },
    { "http://a.example/", { "a=1; Expires=Sun Nov  6 08:49:37 1994" } },
    { "http://a.example/", { "a=1; expires=6th-november_1994 8:49:37GMT" } },
    { "http://a.example/", { "a=1; Expires=08:49:37 06 Nov 094AD" } },
    { "http://a.example/", { "a=1; Expires=Sun, 06 Nov 1994 25:49:37 GMT" }, nil, "a=1" },
    { "http://a.example/", { "a=1; Expires=Mon, 28 Feb 1994 08:49:37 GMT" } },
    { "http://a.example/", { "a=1; Expires=Tue, 29 Feb 1994 08:49:37 GMT" }, nil, "a=1" }, -- no such date
    { "http://a.example/", { "a=1; Expires=Tue, 00 Feb 1994 08:49:37 GMT" }, nil, "a=1" },
    { "http://a.example/", { "a=1; Expires=Tue, 99 Feb 1994 08:49:37 GMT" }, nil, "a=1" },
  } do
    local name = case[1] .. " " .. table.concat(case[2], " | ")
    check.equal({ name, sent(case[1], case[2], case[3]) }, { name, case[4] })
  end
end

function tests.the_time_of_a_cookie()
  local jar, at = new(), rules.parse("http://a.example/")
  local time = os.time
  jar:set("http://a.example/", "a=1; Max-Age=60")
  jar:set("http://a.example/", "b=2; Expires=" .. os.date("!%a, %d %b %Y %H:%M:%S GMT", time() + 60))
  check.equal(jar:cookies("http://a.example/"), { a = "1", b = "2" })
  for _, cookie in ipairs(jar:for_url(at)) do check.equal(math.abs(cookie.ends - time() - 60) <= 1, true) end
end

function tests.limits()
  local jar = new()
  for n = 1, 51 do jar:set("http://a.example/", "c" .. n .. "=1") end
  local cookies = jar:cookies("http://a.example/")
  check.equal({ cookies.c1, cookies.c2, cookies.c51 }, { nil, "1", "1" })
  jar = new()
  for n = 1, 1001 do jar:set("http://a" .. n .. ".example/", "a=1") end
  check.equal(jar:cookies("http://a1000.example/"), { a = "1" })
  check.equal(jar:cookies("http://a1001.example/"), {})
  check.equal(core.calls[#core.calls], { "log", "warn",
    "ls.fetch: a cookie of a1001.example is not stored: the jar has cookies of 1000 domains" })
  jar:set("http://a1.example/", "a=1; Max-Age=0") -- its entry is empty
  jar:set("http://a1001.example/", "a=1")
  check.equal(jar:cookies("http://a1001.example/"), { a = "1" })
  jar:clear()
  check.equal(jar:cookies("http://a1001.example/"), {})
end

-- What a plain response may not replace: { who sets it by TLS, the line, the plain URL, its line, the cookies of https://b.a.example/x/ }.
function tests.a_plain_response_replaces_no_secure_cookie()
  for _, case in ipairs {
    { "https://b.a.example/", "a=1; Secure", "http://b.a.example/", "a=2", "a=1" },
    { "https://b.a.example/", "a=1; Secure", "http://b.a.example/", "a=2; Max-Age=0", "a=1" },
    { "https://b.a.example/", "a=1; Secure", "http://b.a.example/", "a=2; Domain=a.example", "a=1" },
    { "https://b.a.example/", "a=1; Secure; Domain=a.example", "http://b.a.example/", "a=2", "a=1" },
    { "https://b.a.example/", "a=1; Secure", "http://b.a.example/", "a=2; Path=/x", "a=1" }, -- it would be sent first
    { "https://b.a.example/", "a=1; Secure; Path=/x", "http://b.a.example/", "a=2; Path=/", "a=1; a=2" },
    { "https://b.a.example/", "a=1; Secure", "http://b.a.example/", "b=2", "a=1; b=2" },
    { "https://b.a.example/", "a=1", "http://b.a.example/", "a=2", "a=2" },
    { "https://b.a.example/", "a=1; Secure", "https://b.a.example/", "a=2", "a=2" },
    { "https://b.a.example/", "a=1; Secure; Max-Age=0", "http://b.a.example/", "a=2", "a=2" },
  } do
    local jar = new()
    jar:set(case[1], case[2])
    jar:set(case[3], case[4])
    check.equal({ case, jar:field(rules.parse("https://b.a.example/x/")) }, { case, case[5] })
  end
end

function tests.usage()
  local jar = new()
  check.raises("the cookie must be a value of Set-Cookie for this URL", jar.set, jar, "http://a.example/", "a=1; Domain=b")
  check.raises("the cookie must be", jar.set, jar, "http://a.example/", "a=1; Domain=b")
  core.can_wait = function() return false end
  check.raises("each Lua state would have a jar of its own", cookie_jar.new)
end

return tests
