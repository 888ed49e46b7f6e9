-- luaserve.fetch_rules: URLs, references to them, redirects. tests/e2e/test_fetch.py has the rest of ls.fetch.
local check = require "check"
local rules = require "luaserve.fetch_rules"

local tests = {}

local function has(message, pattern) check.equal(message:find(pattern) and pattern, pattern) end

function tests.urls()
  for _, case in ipairs {
    { "http://example.org", false, "example.org", 80, "example.org", "/" },
    { "https://example.org", true, "example.org", 443, "example.org", "/" },
    { "HTTP://EXAMPLE.org:80/A?b=c#d", false, "example.org", 80, "example.org", "/A?b=c" },
    { "https://example.org:/", true, "example.org", 443, "example.org", "/" },
    { "http://example.org:443?q", false, "example.org", 443, "example.org:443", "/?q" },
    { "https://[::1]/x", true, "::1", 443, "[::1]", "/x" },
    { "http://[fe80::1%eth0]:8080/", false, "fe80::1%eth0", 8080, "[fe80::1%eth0]:8080", "/" },
    { "http://127.0.0.1:08080#x", false, "127.0.0.1", 8080, "127.0.0.1:8080", "/" },
  } do
    local at = rules.parse(case[1])
    check.equal({ at.secure, at.host, at.port, at.authority, at.target }, { table.unpack(case, 2) }, case[1])
    check.equal(at.origin, (case[2] and "https://" or "http://") .. case[5])
  end
end

function tests.invalid_urls()
  for url, why in pairs {
    [""] = "begin with", ["example.org"] = "begin with", ["/path"] = "begin with", ["ftp://a/"] = "begin with",
    ["ws://a"] = "begin with", ["http:/a"] = "begin with", ["javascript:alert(1)"] = "begin with",
    ["http://"] = "the host", ["http:///path"] = "the host", ["http://:80/"] = "the host", ["http://a b/"] = "the host",
    ["http://\u{e4}/"] = "the host", ["http://a\r\nX: y/"] = "the host", ["http://a\0b/"] = "the host",
    ["http://u@h/"] = "user name", ["http://u:p@h/"] = "user name", ["http://a:0/"] = "the port",
    ["http://a:65536/"] = "the port", ["http://a:x/"] = "the port", ["http://a:-1/"] = "the port",
    ["http://[::1/"] = "the host", ["http://::1/"] = "the host", ["http://[::1]x/"] = "the port",
    ["http://a/b c"] = "percent%-encode", ["http://a/\u{e4}"] = "percent%-encode",
    ["http://a/\r\nX: y"] = "percent%-encode", ["http://a/?\t"] = "percent%-encode",
    ["http://a/\0"] = "percent%-encode",
  } do
    local at, message = rules.parse(url)
    check.equal(at, nil, url)
    has(message, why)
  end
end

-- The examples of RFC 3986 section 5.4 that concern http, with http://a/b/c/d;p?q as the base.
function tests.hosts_of_this_machine()
  for host, here in pairs { ["127.0.0.1"] = true, ["127.9.8.7"] = true, ["::1"] = true, localhost = true, ["10.0.0.1"] = false,
    ["127.a.example"] = false, ["127."] = false, ["localhost.example"] = false } do
    check.equal(rules.is_here(host), here, host)
  end
end

function tests.references()
  local at = rules.parse("http://a/b/c/d;p?q")
  for location, url in pairs {
    ["g:h"] = "g:h", ["g"] = "http://a/b/c/g", ["./g"] = "http://a/b/c/g", ["g/"] = "http://a/b/c/g/",
    ["/g"] = "http://a/g", ["//g"] = "http://g/", ["?y"] = "http://a/b/c/d;p?y", ["g?y"] = "http://a/b/c/g?y",
    ["#s"] = "http://a/b/c/d;p?q", ["g#s"] = "http://a/b/c/g",
    ["g?y#s"] = "http://a/b/c/g?y", [";x"] = "http://a/b/c/;x", ["g;x"] = "http://a/b/c/g;x",
    [""] = "http://a/b/c/d;p?q", ["."] = "http://a/b/c/", ["./"] = "http://a/b/c/", [".."] = "http://a/b/",
    ["../"] = "http://a/b/", ["../g"] = "http://a/b/g", ["../.."] = "http://a/", ["../../"] = "http://a/",
    ["../../g"] = "http://a/g", ["../../../g"] = "http://a/g", ["/./g"] = "http://a/g", ["/../g"] = "http://a/g",
    ["g."] = "http://a/b/c/g.", [".g"] = "http://a/b/c/.g", ["g.."] = "http://a/b/c/g..", ["..g"] = "http://a/b/c/..g",
    ["./../g"] = "http://a/b/g", ["./g/."] = "http://a/b/c/g/", ["g/./h"] = "http://a/b/c/g/h",
    ["g/../h"] = "http://a/b/c/h", ["g?y/../x"] = "http://a/b/c/g?y/../x", ["http://x/y"] = "http://x/y",
    -- as browsers read them
    ["/wiki/caf\u{e9}"] = "http://a/wiki/caf%C3%A9", ["/a b?c d"] = "http://a/a%20b?c%20d", ["/a%20b"] = "http://a/a%20b",
    ["/%2e%2E/g"] = "http://a/g", ["g/%2e"] = "http://a/b/c/g/", ["\\x\\y?\\"] = "http://a/x/y?\\", ["\\\\h\\x"] = "http://h/x",
    ["/a\tb"] = "http://a/ab", ["http://x/a/../\u{e9}?'<"] = "http://x/%C3%A9?%27%3C", ["http://x?y z"] = "http://x/?y%20z",
    ['/{a}"<b>`^|'] = "http://a/%7Ba%7D%22%3Cb%3E%60%5E|", ["http://x"] = "http://x/", ["/100%"] = "http://a/100%",
  } do
    check.equal(rules.join(at, location), url, location)
  end
  check.equal(rules.join(rules.parse("https://a:8443"), "//b/c"), "https://b/c")
  check.equal(rules.join(rules.parse("https://a:8443"), "x"), "https://a:8443/x")
end

local function request(url, method, more)
  local one = { at = rules.parse(url), method = method or "GET", fields = {}, kept = 7 }
  for name, value in pairs(more or {}) do one[name] = value end
  return one
end

function tests.methods_of_redirects()
  for _, case in ipairs {
    { 301, "GET", "GET" }, { 301, "HEAD", "HEAD" }, { 301, "POST", "GET" }, { 301, "PUT", "PUT" }, { 302, "POST", "GET" },
    { 302, "DELETE", "DELETE" }, { 303, "POST", "GET" }, { 303, "PUT", "GET" }, { 303, "HEAD", "HEAD" },
    { 303, "GET", "GET" }, { 307, "POST", "POST" }, { 308, "POST", "POST" }, { 308, "GET", "GET" },
  } do
    local before = request("http://a/", case[2], { body = "x",
      fields = { { "Content-Type", "text/plain" }, { "content-encoding", "gzip" }, { "X-A", "1" } } })
    local after = rules.redirect(before, case[1], "/b")
    check.equal(after.method, case[3], case[1] .. " " .. case[2])
    check.equal(after.at.target, "/b")
    check.equal(after.kept, 7)
    local changed = case[2] ~= case[3]
    check.equal(after.body, not changed and "x" or nil)
    check.equal(#after.fields, changed and 1 or 3)
    check.equal(before.at.target, "/")
  end
  for status, is in pairs { [300] = false, [301] = true, [304] = false, [305] = false, [306] = false, [308] = true } do
    check.equal(rules.is_redirect(status), is)
  end
end

function tests.credentials_stay_within_the_origin()
  local fields = { { "Authorization", "Bearer 1" }, { "Cookie", "a=1" }, { "proxy-authorization", "x" }, { "Host", "h" },
    { "Accept", "text/html" } }
  for location, count in pairs {
    ["/b"] = 5, ["http://a/c"] = 5, ["HTTP://A:80/c"] = 5, ["http://b/"] = 1, ["http://a:81/"] = 1, ["https://a/"] = 1,
    ["//a.b/"] = 1,
  } do
    local after = rules.redirect(request("http://a/", "GET", { fields = fields }), 302, location)
    check.equal(#after.fields, count, location)
    check.equal(after.fields[#after.fields], { "Accept", "text/html" })
  end
end

function tests.refused_redirects()
  for _, case in ipairs {
    { request("https://a/"), "http://a/", "not encrypted", "EACCES" },
    { request("http://a/"), "ftp://a/", "invalid URL", "EPROTO" },
    { request("http://a/"), "file:///etc/passwd", "invalid URL", "EPROTO" },
    { request("http://a/"), "http://u:p@b/", "user name", "EPROTO" },
    { request("http://a/", "GET", { unix = "/run/a" }), "http://b/", "not behind the Unix socket", "EACCES" },
    { request("http://a/", "POST", { body = function() end }), "/b", "cannot be sent again", "ENOTSUP", 307 },
  } do
    local after, why, code = rules.redirect(case[1], case[5] or 302, case[2])
    check.equal(after, nil, case[2])
    has(why, case[3])
    check.equal(code, case[4])
  end
  check.equal(rules.redirect(request("http://a/", "GET", { unix = "/run/a" }), 302, "/b").at.target, "/b")
end

function tests.fields_of_the_client()
  for name, own in pairs { ["Content-Length"] = true, ["transfer-encoding"] = true, Connection = true, Host = false,
    Accept = false } do
    check.equal(rules.is_own(name), own)
  end
end

function tests.what_a_message_names()
  for url, shown in pairs {
    ["http://a/b?token=1#c"] = "http://a/b", ["ftp://ada:secret@a/b"] = "ftp://a/b", ["nonsense"] = "nonsense", ["?x"] = "",
  } do
    check.equal(rules.shown(url), shown)
  end
end

function tests.tls_of_another_origin()
  local function next_tls(location)
    return rules.redirect({ method = "GET", at = rules.parse("https://a/"), fields = {},
      tls = { ca = "ca.pem", cert = "c", key = "k", server_name = "a", insecure = true } }, 302, location).tls
  end
  check.equal(next_tls("/b").cert, "c")
  check.equal(next_tls("https://b/"), { ca = "ca.pem" })
end

return tests
