local check = require "check"
local core = require "luaserve.core"
local tcp = require "luaserve.tcp"

local tests = {}

local function serve() end

local defaults = { receive_ms_max = 60000, send_ms_max = 60000, write_bytes_high = 262144, queue_bytes_max = 1 << 20,
  line_bytes_max = 65536, message_bytes_max = 8 << 20, keepalive_s = 0 }

-- The options that ls.tcp(...) passed to core.tcp.
local function listened(...)
  core.take_calls()
  tcp.listen(...)
  local call = core.take_calls()[1]
  check.equal(call[1], "tcp")
  return call[2]
end

-- The host, port and limits that ls.connect(...) passed to core.connect; without the limits that have their default.
local function connected(...)
  core.take_calls()
  tcp.connect(...)
  local call = core.take_calls()[1]
  check.equal(call[1], "connect")
  local limits = {}
  for name, value in pairs(call[4]) do
    if value ~= defaults[name] and not (name == "connect_ms_max" and value == 60000) then limits[name] = value end
  end
  for name in pairs(defaults) do check.equal(call[4][name] ~= nil, true) end
  return { call[2], call[3], limits }
end

function tests.listen_accepts_every_form_of_address()
  for _, case in ipairs {
    { 7000, "", 7000 }, { 0, "", 0 }, { "127.0.0.1:7000", "127.0.0.1", 7000 }, { "*:7000", "*", 7000 },
    { "[::1]:7000", "::1", 7000 }, { "unix:/run/s", "unix:/run/s", 0 }, { { port = 7000 }, "", 7000 },
    { { host = "*", port = 7000 }, "*", 7000 }, { { path = "/run/s" }, "unix:/run/s", 0 },
  } do
    local got = listened(case[1], serve)
    check.equal({ got.host, got.port, got.serve == serve }, { case[2], case[3], true })
  end
  check.equal(listened({ port = 1, handler = serve }).serve == serve, true)
end

function tests.listen_takes_options_beside_an_address()
  local got = listened(7000, serve, { read_timeout = 2, backlog = 5 })
  check.equal({ got.port, got.receive_ms_max, got.backlog, got.serve == serve }, { 7000, 2000, 5, true })
  check.raises("did you mean 'read_timeout'?", tcp.listen, 7000, serve, { read_timout = 1 })
  check.raises("handler is given by the arguments before", tcp.listen, 7000, serve, { handler = serve })
  check.raises("two tables of options", tcp.listen, { port = 7000 }, serve, {})
  check.raises("ls.tcp(7000, fn, options): got true", tcp.listen, 7000, serve, {}, true)
end

function tests.limits_are_converted_to_the_units_of_the_core()
  local got = listened({ port = 1, read_timeout = 2.5, send_timeout = false, write_ahead = "64k", max_line = 100,
    max_message = "1m", keepalive = 30, backlog = 5 }, serve)
  check.fields(got, { receive_ms_max = 2500, send_ms_max = 0, write_bytes_high = 65536, line_bytes_max = 100,
    message_bytes_max = 1 << 20, keepalive_s = 30, backlog = 5 })
  check.fields(listened(7000, serve), defaults)
end

function tests.listen_passes_the_line_of_the_caller()
  core.take_calls()
  local line = check.line(1)
  tcp.listen(7000, serve)
  check.equal(core.take_calls()[1][2].where:match("[^/]*$"), line)
end

function tests.connect_carries_the_options_of_tls()
  check.equal(connected("a", 1, { tls = true })[3].tls, { min = "1.2" })
  check.equal(connected("a", 1, { tls = false })[3], {})
  check.equal(connected("a", 1, { tls = { ca = "ca.pem", cert = "c.pem", key = "k.pem", key_password = "x",
    server_name = "example.org", alpn = { "a", "b" }, insecure = true, min = "1.3", ciphers = "HIGH" } })[3].tls,
    { ca = "ca.pem", cert = "c.pem", key = "k.pem", password = "x", server_name = "example.org", alpn = "a,b",
      insecure = true, min = "1.3", ciphers = "HIGH" })
  for _, case in ipairs {
    { "tls must be true or a table such as { ca = \"ca.pem\" }; got \"on\"", "on" },
    { "unknown option \"cipher\"", { cipher = "x" } },
    { "tls.insecure must be true or false; got 1", { insecure = 1 } }, { "tls.cert is missing", { key = "k.pem" } },
    { "tls.ca must be the file name", { ca = "" } }, { "tls.server_name must be", { server_name = "a\0b" } },
    { 'tls.min must be "1.2" or "1.3"; got "1.1"', { min = "1.1" } }, { "tls.alpn must be a list", { alpn = "h2" } },
  } do
    check.raises(case[1], tcp.connect, "a", 1, { tls = case[2] })
  end
end

function tests.usage_errors_of_tcp_name_the_line_and_the_valid_arguments()
  core.take_calls()
  for _, case in ipairs {
    { "the first argument must be an address", nil, serve },
    { "the function is missing", 7000 }, { "got a table", 7000, {} },
    { "two functions given", { port = 1, handler = serve }, serve },
    { "unknown option \"bakclog\"; did you mean 'backlog'?", { port = 1, bakclog = 3 }, serve },
    { "unknown option \"connect_timeout\"", { port = 1, connect_timeout = 3 }, serve },
    { "read_timeout must be a number of seconds, such as 10 or 0.5, or false for no limit; got \"1s\"",
      { port = 1, read_timeout = "1s" }, serve },
    { "read_timeout must be from 0.001 to 4294967.295 s", { port = 1, read_timeout = 0 }, serve },
    { "max_line must be from 1 to 4294967295 bytes; got 0", { port = 1, max_line = 0 }, serve },
    { "max_message must be a number of bytes", { port = 1, max_message = false }, serve },
    { "keepalive must be from 1 to 32767; got 32768", { port = 1, keepalive = 32768 }, serve },
    { "backlog must be from 1 to 65535; got 65536", { port = 1, backlog = 65536 }, serve },
    { "port is missing", {}, serve }, { "from 0", 65536, serve }, { "invalid address", "7000x", serve },
    { "names are not looked up", "example.org:7000", serve },
  } do
    check.raises({ check.line() .. ": ls.tcp: ", case[1] }, function() tcp.listen(case[2], case[3]) end)
  end
  check.equal(#core.take_calls(), 0)
end

function tests.errors_of_the_core_are_raised_at_the_caller()
  core.results.tcp = function() error("more than 64 listeners", 0) end
  check.raises(check.line() .. ": ls.tcp: more than 64 listeners", function() tcp.listen(7000, serve) end)
  core.results.tcp = nil
end

function tests.connect_accepts_every_form_of_address()
  for _, case in ipairs {
    { { "example.org", 7000 }, "example.org", 7000 }, { { "::1", 7000 }, "::1", 7000 }, { { "[::1]", 7000 }, "::1", 7000 },
    { { "example.org:7000" }, "example.org", 7000 }, { { "[::1]:7000" }, "::1", 7000 }, { { "a", 7000.0 }, "a", 7000 },
    { { "unix:/run/s" }, "unix:/run/s", 0 }, { { { host = "a", port = 1 } }, "a", 1 }, { { { host = "a:1" } }, "a", 1 },
    { { { path = "/run/s" } }, "unix:/run/s", 0 }, { { "a", "7000" }, "a", 7000 },
    { { { host = "a", port = "1" } }, "a", 1 },
  } do
    check.equal(connected(table.unpack(case[1])), { case[2], case[3], {} })
  end
  local limits = { connect_ms_max = 500, receive_ms_max = 0 }
  check.equal(connected("a", 1, { connect_timeout = 0.5, read_timeout = false })[3], limits)
  check.equal(connected("a:1", { connect_timeout = 0.5, read_timeout = false })[3], limits)
  check.equal(connected { host = "a", port = 1, connect_timeout = 0.5, read_timeout = false }[3], limits)
  check.equal(connected("a", 1, { connect_timeout = false })[3], { connect_ms_max = 0 })
end

function tests.connect_returns_the_results_of_the_core()
  core.results.connect = { nil, "connection refused", "EREFUSED", n = 3 }
  check.equal(table.pack(tcp.connect("a", 1)), { n = 3, [2] = "connection refused", [3] = "EREFUSED" })
  core.results.connect = nil
end

function tests.usage_errors_of_connect_name_the_line_and_the_valid_arguments()
  core.take_calls()
  for _, case in ipairs {
    { "the first argument must be a host" }, { "the first argument must be a host", "" }, { "got 5", 5, 1 },
    { "has no port; write ls.connect(\"a\", 7000)", "a" }, { "has no port", "::1" }, { "has no port", "unix:" },
    { "from 1 to 65535; got 0", "a", 0 }, { "from 1 to 65535; got 65536", "a", 65536 }, { "got 1.5", "a", 1.5 },
    { "got \"x\"", "a", "x", {} }, { "got \"0\"", "a", "0" },
    { "got 70000", "a:70000" }, { "options must be a table", "a", 1, 5 },
    { "options must be a table", "a:1", "x" }, { "pass host and port in it", {}, 1 },
    { "unknown option \"read_timout\"; did you mean 'read_timeout'?", "a", 1, { read_timout = 1 } },
    { "unknown option \"backlog\"", "a", 1, { backlog = 1 } },
    { "connect_timeout must be from 0.001 to 4294967.295 s; got 0", "a", 1, { connect_timeout = 0 } },
  } do
    check.raises({ check.line() .. ": ls.connect: ", case[1] }, function() tcp.connect(case[2], case[3], case[4]) end)
  end
  core.waits = false
  check.raises({ check.line(), "cannot wait while the site loads" }, function() tcp.connect("a", 1) end)
  core.waits = true
  check.equal(#core.take_calls(), 0)
end

function tests.connect_refuses_what_it_would_ignore()
  check.raises("path names a Unix socket and cannot be combined with host or port", tcp.connect,
    { host = "127.0.0.1", path = "/run/s" })
  check.raises("path names a Unix socket and cannot be combined with host or port", tcp.connect,
    { path = "/run/s", port = 7000 })
  check.raises("path must be the file name of a Unix socket", tcp.connect, { path = "" })
  check.raises("ls.connect: port is given by the arguments before; leave it out of the options", tcp.connect,
    "127.0.0.1:7000", { port = 7001 })
  check.raises("ls.connect: path is given by the arguments before", tcp.connect, "127.0.0.1", 7000, { path = "/run/s" })
  check.raises("too many arguments for ls.connect(host, port, options)", tcp.connect, "127.0.0.1", 7000, {}, true)
  check.raises("too many arguments for ls.connect(host, port, options)", tcp.connect, { host = "::1", port = 1 }, nil,
    {})
end

return tests
