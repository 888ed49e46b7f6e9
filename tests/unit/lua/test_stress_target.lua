-- The parts of the URLs of luaserve stress, and invalid URLs.

local check = require "check"
local target = require "luaserve.stress.target"

local tests = {}

function tests.valid_urls_are_split()
  for _, case in ipairs {
    { "http://example.org", "http", "example.org", 80, "/", false, "example.org" },
    { "http://127.0.0.1:8080/a/b?c=d:e@f", "http", "127.0.0.1", 8080, "/a/b?c=d:e@f", false, "127.0.0.1:8080" },
    { "http://[::1]:81/", "http", "::1", 81, "/", false, "[::1]:81" },
    { "http://[fe80::1]/", "http", "fe80::1", 80, "/", false, "[fe80::1]" },
    { "https://example.org", "http", "example.org", 443, "/", true, "example.org" },
    { "https://[::1]:8443/a", "http", "::1", 8443, "/a", true, "[::1]:8443" },
    { "ws://h/chat?a=b", "ws", "h", 80, "/chat?a=b", false, "h" },
    { "wss://[::1]", "ws", "::1", 443, "/", true, "[::1]" },
    { "tcp://h:65535", "tcp", "h", 65535, "/", false, "h:65535" }, { "udp://h:1/", "udp", "h", 1, "/", false, "h:1" },
    { "unix:/run/a.sock", "tcp", "unix:/run/a.sock", 0, "/", false, "localhost" },
    { "http+unix:/run/a.sock", "http", "unix:/run/a.sock", 0, "/", false, "localhost" },
  } do
    local t = assert(target.parse(case[1]))
    check.equal({ case[1], t.kind, t.host, t.port, t.path, t.tls, target.authority(t) }, case)
  end
end

function tests.invalid_urls_are_refused()
  for url, reason in pairs {
    ["example.org"] = "invalid URL", ["ftp://h/"] = "invalid URL", ["https+unix:/run/a.sock"] = "invalid URL",
    ["https://"] = "missing host", ["wss://"] = "missing host", ["http://"] = "missing host",
    ["http://:80/"] = "missing host", ["ws://h/#a"] = "fragment", ["http://h/#f"] = "fragment",
    ["http://h:/"] = "1 to 65535", ["http://h:0/"] = "1 to 65535", ["http://h:65536/"] = "1 to 65535",
    ["http://h:99999999999999999999/"] = "1 to 65535", ["http://h:8x/"] = "1 to 65535", ["http://[::1/"] = "missing ]",
    ["http://[::1]8/"] = "between ] and the port", ["http://a@h/"] = "user names", ["http://h/a b"] = "white space",
    ["http://h/\0"] = "white space", ["http://h?q"] = "missing path before the query", ["tcp://h"] = "missing port",
    ["tcp://h:1/path"] = "have no path", ["unix:"] = "missing path of the Unix socket",
    ["unix:/" .. ("a"):rep(107)] = "too long",
  } do
    local t, why = target.parse(url)
    if t or not why:find(reason, 1, true) or not why:find(url, 1, true) then error(url .. ": " .. tostring(why)) end
  end
  assert(target.parse("unix:/" .. ("a"):rep(106)))
end

function tests.host_names_are_limited_in_length()
  assert(target.parse("http://" .. ("a"):rep(255)))
  check.equal((target.parse("http://" .. ("a"):rep(256))), nil)
end

return tests
