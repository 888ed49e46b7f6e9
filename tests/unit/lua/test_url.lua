local check = require "check"
local url = require "luaserve.url"

local tests = {}

function tests.query_sorts_names_and_repeats_lists()
  check.equal(url.query{}, "")
  check.equal(url.query{ b = { "x y", 2, true }, a = "1&2", c = false, d = {} }, "a=1%262&b=x%20y&b=2&b=true&c=false")
  check.equal(url.query{ ["a b"] = "" }, "a%20b=")
end

function tests.query_raises_for_other_values()
  check.raises({ check.line(1), "ls.url.query takes a table such as { page = 2 }; got nil" }, function()
    url.query(nil)
  end)
  check.raises("got the key 1", url.query, { "a" })
  check.raises('"a" must be a string, a number, a boolean or a list of them; got a function', url.query, { a = print })
  check.raises("got a table", url.query, { a = { {} } })
  check.raises('ls.url.query: "filter" must be a value or a list of values; got a table with the field "status"', url.query,
    { filter = { status = "open" }, page = 2 })
  check.raises('a table with the field "b"', url.query, { a = { "x", b = "y" } })
  check.raises("a table with the field 3", url.query, { a = { [1] = "x", [3] = "y" } })
  local app = require("luaserve").app()
  check.raises({ check.line(1), 'app:inject: form: "user" must be a value or a list of values; got a table with the field "name"' },
    function() app:inject { form = { user = { name = "ada" }, id = 5 } } end)
  check.raises('"a" must be a value or a list of values', app.inject, app, { query = { a = { b = "c" } } })
  check.raises('"X-A" must be a value or a list of values; got a table with the field "b"', app.inject, app, { headers = { ["X-A"] = { b = "c" } } })
end

function tests.decode_keeps_plus_and_refuses_invalid_escapes()
  check.equal(url.decode("a%20b+c%2f"), "a b+c/")
  check.equal({ url.decode("%zz") }, { nil, 'invalid escape in "%zz"', "EINVAL" })
  check.equal(select(3, url.decode("%00")), "EINVAL")
  check.raises({ check.line(), "ls.url.decode takes a string; got 5" }, function() url.decode(5) end)
end

function tests.parse_gives_the_parts()
  local function is(text, expected)
    local parts = url.parse(text)
    parts.query_all = nil
    parts.query = next(parts.query) and parts.query or nil
    check.equal({ text, parts }, { text, expected })
  end
  is("https://example.org/a/b?x=1&y=2&x=3#top",
    { scheme = "https", host = "example.org", port = 443, path = "/a/b", query = { x = "1", y = "2" }, fragment = "top" })
  is("HTTP://Ada:p%40ss@Example.ORG:8080", { scheme = "http", user = "Ada", password = "p@ss", host = "example.org",
    port = 8080, path = "" })
  is("ws://[2001:DB8::7]:/", { scheme = "ws", host = "2001:db8::7", port = 80, path = "/" })
  is("redis://h/0", { scheme = "redis", host = "h", path = "/0" })
  is("postgres:///site", { scheme = "postgres", host = "", path = "/site" })
  is("mailto:ada@example.org", { scheme = "mailto", path = "ada@example.org" })
  is("//h:0/x", { host = "h", port = 0, path = "/x" })
  is("/a%2Fb?c", { path = "/a%2Fb", query = { c = "" } })
  is("?a=b?c", { path = "", query = { a = "b?c" } })
  is("", { path = "" })
  is("#a?b%20c", { path = "", fragment = "a?b c" })
  is("a/b:c", { path = "a/b:c" })
  check.equal(url.parse("/?x=1&x=2").query_all, { x = { "1", "2" } })
end

function tests.parse_refuses_what_is_no_url()
  for text, why in pairs {
    ["http://a b/"] = 'it has the character " ", which must be percent-encoded',
    ["http://a\\@b/"] = "which must be percent-encoded", ["http://a/\r\nX: y"] = "which must be percent-encoded",
    ["http://ä/"] = "which must be percent-encoded",
    ["http:///x"] = "the host is missing", ["x://a@/"] = "the host is missing", ["http://a:65536/"] = "host or the port",
    ["http://a:b/"] = "host or the port", ["http://[::1/"] = "host or the port",
    ["http://[a:80]/"] = "host or the port", ["http://[a]/"] = "host or the port",
    ["http://::1/"] = "host or the port", ["http://a:1:2/"] = "host or the port", ["/%"] = "the path has an invalid escape",
    ["/a%4"] = "the path has an invalid escape", ["/%zz"] = "the path has an invalid escape",
    ["//%zz@h/"] = "the user has an invalid escape", ["//a:%zz@h/"] = "the user has an invalid escape",
    ["#%zz"] = "the fragment has an invalid escape",
  } do
    local parts, message, code = url.parse(text)
    check.equal({ text, parts, code }, { text, nil, "EINVAL" })
    check.equal({ text, message:find(why, 1, true) ~= nil }, { text, true })
  end
  check.equal(url.parse("http://a:65535/").port, 65535)
  check.raises({ check.line(), "ls.url.parse takes a string; got 5" }, function() url.parse(5) end)
end

function tests.build_is_the_reverse_of_parse()
  for _, text in ipairs {
    "https://example.org/a/b?x=1#top", "http://Ada:p%40ss@example.org:8080", "ws://[2001:db8::7]/", "redis://h:6379/0",
    "postgres:///site", "mailto:ada@example.org", "//h/x", "/a%2Fb?c=", "?a=1&b=2", "", "#a%20b", "http://a:81/",
  } do
    check.equal(url.build(url.parse(text)), text)
  end
  check.equal(url.build { scheme = "https", host = "a", port = 443, path = { "a b", 5, "c/d" } }, "https://a/a%20b/5/c%2Fd")
  check.equal(url.build { path = "/x", query = "a=b&c[]=%20" }, "/x?a=b&c[]=%20")
  check.equal(url.build { path = "/x", query = {}, fragment = "y" }, "/x#y")
  check.equal(url.build {}, "")
end

function tests.build_raises_for_parts_that_are_no_url()
  for _, row in ipairs {
    { { hots = "a" }, "unknown part \"hots\"; did you mean 'host'?" }, { { scheme = "a b" }, "scheme must be a name" },
    { { scheme = 5 }, "scheme must be a string; got 5" }, { { host = "a/b" }, "host must be a name or an address" },
    { { host = "a:80" }, "host must be a name or an address, without the port" }, { { host = "a@b" }, "host must be" },
    { { host = "a", port = 65536 }, "port must be a whole number from 0 to 65535; got 65536" },
    { { host = "a", port = "80" }, 'port must be a whole number from 0 to 65535; got "80"' },
    { { port = 1 }, "port needs host" }, { { user = "a" }, "user needs host" },
    { { host = "a", password = "b" }, "password needs user" }, { { host = "a", path = "b" }, 'begins with "/"' },
    { { path = "//b" }, 'does not begin with "//"' }, { { path = "a:b" }, "without a colon in its first segment" },
    { { path = "/a b" }, "path must be a string of characters of a path" }, { { path = "/a?b" }, "path must be" },
    { { path = "/%zz" }, "path must be" }, { { path = { {} } }, "path must be a string or a list of segments" },
    { { query = "a b" }, "query must be a table, or a string" }, { { query = "#" }, "query must be" },
    { 5, "ls.url.build takes a table such as" },
  } do
    check.raises({ check.line(), row[2] }, function() url.build(row[1]) end)
  end
end

return tests
