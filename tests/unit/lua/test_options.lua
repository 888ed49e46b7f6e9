local check = require "check"
local options = require "luaserve.options"

local tests = {}

local users, groups = { ["www-data"] = 33, root = 0 }, { ["www-data"] = 33, adm = 4 }
local function look_up(ids)
  return function(name)
    if name == "broken" then return nil, "I/O error", "EIO" end
    return ids[name], "not found", "ENOENT"
  end
end
local core = { user_id = look_up(users), group_id = look_up(groups) }

local function listen(at, app) return options.listen({}, at, app, core) end

function tests.sizes_are_numbers_or_strings_with_units()
  check.equal(options.bytes(10), 10)
  check.equal(options.bytes(10.0), 10)
  check.equal(options.bytes("10"), 10)
  check.equal(options.bytes("64k"), 65536)
  check.equal(options.bytes("64 KiB"), 65536)
  check.equal(options.bytes("1.5m"), 1572864)
  check.equal(options.bytes("10G"), 10 * 1024 ^ 3 | 0)
  for _, bad in ipairs { "5i", "5 ib", "5ki", "", "k", "-1", "1x", "0x10", "1 2", -1, 0 / 0, 1 / 0, 2 ^ 62, true } do
    check.equal(options.bytes(bad), nil)
  end
end

function tests.fields_are_sorted_and_lists_give_several()
  check.equal(options.fields {}, {})
  check.equal(options.fields { b = 1, A = { "x", 2 }, a = {}, c = false },
    { { "A", "x" }, { "A", 2 }, { "b", 1 }, { "c", false } })
  local seen = {}
  options.fields({ b = 1, a = {} }, function(name) seen[name] = true end)
  check.equal(seen, { a = true, b = true })
end

function tests.valid_addresses()
  for _, case in ipairs {
    { 8080, "", 8080 }, { 0, "", 0 }, { "8080", "", 8080 }, { "127.0.0.1:80", "127.0.0.1", 80 }, { "*:80", "*", 80 },
    { "[::1]:80", "::1", 80 }, { "localhost:0", "", 0 }, { "unix:/run/a.sock", "unix:/run/a.sock", 0 },
    { { port = 1 }, "", 1 }, { { port = "8113" }, "", 8113 }, { { port = "0" }, "", 0 }, { { port = "65535" }, "", 65535 },
    { { port = 1.0, host = "*" }, "*", 1 }, { { port = 1, host = "[::1]" }, "::1", 1 },
    { { path = "/a" }, "unix:/a", 0 }, { { host = "unix:/a" }, "unix:/a", 0 },
  } do
    local out = listen(case[1])
    check.equal({ out.host, out.port }, { case[2], case[3] })
  end
end

function tests.invalid_addresses_raise_with_the_valid_forms()
  for _, case in ipairs {
    { nil, "ls.listen(8080, app)" }, { true, "got true" }, { 65536, "65535" }, { -1, "got -1" }, { 1.5, "got 1.5" },
    { "example.org:80", "names are not looked up" }, { { port = 1, host = "example.org" }, "names are not looked up" },
    { "80x", "invalid address \"80x\"; write 8080" }, { ":80", '"*:80" for all interfaces' },
    { "127.0.0.1:70000", "got 70000" }, { "::1:80", "[::1]:8080" },
    { {}, "port is missing" }, { { port = "80x" }, 'got "80x"' }, { { port = "65536" }, '65535; got "65536"' },
    { { port = "-1" }, 'got "-1"' }, { { port = "" }, 'got ""' }, { { port = 1, host = 5 }, "host must be a string" },
    { { path = "" }, "path must be the file name" }, { { path = "/a", port = 1 }, "cannot be combined with host" },
    { { path = "/a", host = "unix:/b" }, "both name" }, { { path = ("x"):rep(120) }, "too long" },
  } do
    check.raises({ "ls.listen: ", case[2] }, listen, case[1])
  end
end

function tests.a_unix_socket_has_a_mode_and_an_owner()
  for _, case in ipairs {
    { {} }, { { mode = "0660" }, 432 }, { { mode = "660" }, 432 }, { { mode = 432 }, 432 }, { { mode = "0" }, 0 },
    { { mode = "0777" }, 511 }, { { mode = 511.0 }, 511 },
    { { owner = "www-data" }, nil, 33 }, { { owner = "root:adm" }, nil, 0, 4 }, { { owner = ":adm" }, nil, nil, 4 },
    { { owner = "1000" }, nil, 1000 }, { { owner = "1000:4294967294" }, nil, 1000, 4294967294 },
    { { owner = "www-data:www-data", mode = "0600" }, 384, 33, 33 },
  } do
    case[1].path = "/run/s"
    local out = listen(case[1])
    check.equal({ out.mode, out.user, out.group }, { case[2], case[3], case[4] })
  end
  check.equal(listen({ host = "unix:/a", mode = "0600" }).mode, 384)
end

function tests.an_invalid_mode_or_owner_raises()
  for _, case in ipairs {
    { { mode = "0660", port = 1 }, 'mode belongs to the file of a Unix socket; give path = "/run/site.sock" with it' },
    { { owner = "root", port = 1 }, "owner belongs to the file of a Unix socket" },
    { { owner = "root", path = "@name" }, "owner belongs to the file of a Unix socket" },
    { { path = "/a", mode = 660 },
      'mode must be octal digits in a string, from "0000" to "0777", such as "0660"; got 660' },
    { { path = "/a", mode = 512 }, "got 512" }, { { path = "/a", mode = "1000" }, 'got "1000"' },
    { { path = "/a", mode = "2000000000000000000777" }, "got \"2000000000000000000777\"" },
    { { path = "/a", mode = -1 }, "got -1" }, { { path = "/a", mode = "0680" }, 'got "0680"' },
    { { path = "/a", mode = "" }, 'got ""' }, { { path = "/a", mode = "rw" }, 'got "rw"' },
    { { path = "/a", mode = true }, "got true" }, { { path = "/a", mode = 1.5 }, "got 1.5" },
    { { path = "/a", owner = 33 }, 'owner must be "user", "user:group" or ":group"; got 33' },
    { { path = "/a", owner = "" }, 'got ""' }, { { path = "/a", owner = ":" }, 'got ":"' },
    { { path = "/a", owner = "a:" }, 'got "a:"' }, { { path = "/a", owner = "a:b:c" }, 'got "a:b:c"' },
    { { path = "/a", owner = "nobody-here" }, 'owner: unknown user "nobody-here"' },
    { { path = "/a", owner = "root:wheels" }, 'owner: unknown group "wheels"' },
    { { path = "/a", owner = "4294967295" }, 'owner: unknown user "4294967295"' },
    { { path = "/a", owner = "broken" }, 'owner: cannot look up the user "broken": I/O error' },
    { { path = "/a", ownr = "root" }, "did you mean 'owner'?" },
  } do
    check.raises({ "ls.listen: ", case[2] }, listen, case[1])
  end
end

local function on_windows(at) return options.listen({}, at, nil, { http_sys = true }) end

function tests.valid_engines_and_urls()
  local app = {}
  for _, case in ipairs {
    { "http://+:80/", "http://+:80/" }, { { "http://*:1/", "https://a.example:65535/x/y" },
      "http://*:1/\nhttps://a.example:65535/x/y" }, { "http://[::1]:80/", "http://[::1]:80/" },
  } do
    local out, got = on_windows { engine = "http.sys", url = case[1], handler = app, max_body = 5 }
    check.equal({ out.urls, out.body_bytes_max, out.port, got == app }, { case[2], 5, nil, true })
  end
  check.equal(listen({ engine = "luaserve", port = 1 }).port, 1)
  check.equal(on_windows({ engine = "luaserve", port = 1 }).urls, nil)
end

function tests.invalid_engines_and_urls_raise_with_the_valid_forms()
  local long = {}
  for i = 1, 17 do long[i] = "http://+:" .. i .. "/" end
  for _, case in ipairs {
    { { engine = "nginx", port = 1 }, 'engine must be "luaserve" or, on Windows, "http.sys"; got "nginx"' },
    { { engine = "http_sys", port = 1 }, "did you mean 'http.sys'?" }, { { engine = 5, port = 1 }, "got 5" },
    { { engine = "http.sys" }, 'needs url = "http://+:8080/"' },
    { { engine = "http.sys", url = 80 }, "url must be a string such as" },
    { { engine = "http.sys", url = {} }, "a table" },
    { { engine = "http.sys", url = { "http://+:80/", false } }, "got false" },
    { { engine = "http.sys", url = "http://+/" }, "invalid URL" },
    { { engine = "http.sys", url = "http://+:80" }, "invalid URL" },
    { { engine = "http.sys", url = "ftp://+:80/" }, "invalid URL" },
    { { engine = "http.sys", url = "http://+:0/" }, "port from 1 to 65535" },
    { { engine = "http.sys", url = "http://+:65536/" }, "port from 1 to 65535" },
    { { engine = "http.sys", url = "http://+:80/?a" }, "invalid URL" },
    { { engine = "http.sys", url = "http://+:80/\n" }, "invalid URL" },
    { { engine = "http.sys", url = long }, "at most 16 URLs" },
    { { engine = "http.sys", url = "http://+:80/" .. ("x"):rep(2046) }, "of 2046 bytes in total" },
    { { engine = "http.sys", url = "http://+:80/", port = 80 }, "port cannot be combined with" },
    { { engine = "http.sys", url = "http://+:80/", host = "*" }, "host cannot be combined with" },
    { { engine = "http.sys", url = "http://+:80/", path = "/a" }, "path cannot be combined with" },
    { { port = 80, url = "http://+:80/" }, 'url needs engine = "http.sys"' },
  } do
    check.raises({ "ls.listen: ", case[2] }, on_windows, case[1])
  end
  check.raises({ check.line(1), 'engine "http.sys" is available on Windows only', '"luaserve"' }, function()
    listen { engine = "http.sys", url = "http://+:80/" }
  end)
end

function tests.limits_are_converted_to_the_units_of_the_core()
  local app = {}
  local out, got = listen { port = 1, handler = app, max_head = "32k", max_body = "1g", head_timeout = 2.5,
    idle_timeout = 75, min_body_rate = 0, min_send_rate = 1000, max_fields = 50 }
  check.equal(got == app, true)
  check.fields(out, { head_bytes_max = 32768, body_bytes_max = 1 << 30, head_ms_max = 2500, idle_ms_max = 75000,
    body_rate_min = 0, send_rate_min = 1000, fields_max = 50 })
  check.equal(listen { port = 1, max_body = false }.body_bytes_max, -1)
  check.equal(listen { port = 1, timeout = 0.25 }.time_ms_max, 250)
  check.equal(listen { port = 1, timeout = false }.time_ms_max, 0)
end

function tests.what_is_not_given_has_its_default()
  local out = listen(80)
  check.equal(out.where ~= nil, true)
  out.where = nil
  check.equal(out, { host = "", port = 80, head_bytes_max = 16384, target_bytes_max = 8192, fields_max = 100,
    body_bytes_max = 8 << 20, head_ms_max = 10000, body_grace_ms = 10000, body_rate_min = 256, idle_ms_max = 75000,
    send_stall_ms_max = 30000, send_rate_min = 256, unread_bytes_max = 65536, linger_ms_max = 2000,
    write_bytes_high = 65536, handshake_ms_max = 10000, time_ms_max = 60000, slow_ms = 0, http2_streams_max = 128,
    http2_resets_max = 128, http2_window_bytes_max = 8 << 20,
    per_ip_max = 0, streams_per_ip_max = 0, requests_max = 0, conn_ms_max = 0 })
end

function tests.limits_of_config_apply_unless_overridden_and_are_not_changed()
  local defaults = { body_bytes_max = 1, idle_ms_max = 2 }
  local out = options.listen(defaults, { port = 1, max_body = 5 }, nil, core)
  check.fields(out, { body_bytes_max = 5, idle_ms_max = 2, head_ms_max = 10000 })
  check.fields(options.listen(defaults, 80, nil, core), { body_bytes_max = 1, idle_ms_max = 2 })
  check.equal(defaults, { body_bytes_max = 1, idle_ms_max = 2 })
end

function tests.unknown_options_raise_with_a_suggestion()
  check.raises({ check.line(1), "unknown option \"max_bdoy\"; did you mean 'max_body'?" }, function()
    listen { port = 1, max_bdoy = 5 }
  end)
  check.raises("did you mean 'threads_max'", options.config, { max_threads = 2 })
  check.raises("unknown option \"port\"", options.config, { port = 2 })
  check.raises("there is no option user: a server that dropped its rights could not open", options.config, { user = "www-data" })
  check.raises("unknown option 1", options.config, { 5 })
  for call, text in pairs { ["ls.queue workers"] = "; it is an option of queue:run", ["ls.queue delay"] = "; it is an option of queue:push",
    ["queue:push timeout"] = "; it is an option of ls.queue", ["ls.cron tz"] = "; the name is zone",
    ["ls.dict ttl"] = "; it is an argument of dict:set(key, value, ttl)" } do
    local name, option = call:match("(%S+) (%S+)")
    check.raises(("%s: unknown option %q%s"):format(name, option, text), options.check_names, name, { [option] = 1 }, { file = true })
  end
end

function tests.wrong_types_and_ranges_raise_with_the_unit()
  check.raises({ "idle_timeout must be a number of seconds", 'got "75s"' }, listen, { port = 1, idle_timeout = "75s" })
  check.raises({ "max_body must be a number of bytes", "or false" }, listen, { port = 1, max_body = "much" })
  check.raises({ "max_fields must be from 1 to 100; got 101" }, listen, { port = 1, max_fields = 101 })
  check.raises({ "max_head must be from 256 to 65536 bytes; got 10" }, listen, { port = 1, max_head = 10 })
  check.raises({ "head_timeout must be from 0.001 to 4294967.295 s; got 0" }, listen, { port = 1, head_timeout = 0 })
  check.raises({ "idle_timeout must be a number of seconds", "got false" }, listen, { port = 1, idle_timeout = false })
  check.raises({ "threads must be a whole number; got 1.5" }, options.config, { threads = 1.5 })
  check.raises({ "drain_timeout must be from 0.001 to 4294967.295 s; got 0" }, options.config, { drain_timeout = 0 })
  check.equal(options.config({ drain_timeout = 0.001 }), { drain_ms_max = 1 })
  check.raises({ "threads_max (1) must not be below threads (2)" }, options.config, { threads = 2, threads_max = 1 })
  check.raises({ "ls.config takes a table" }, options.config, nil)
end

function tests.name_servers_are_addresses_with_ports()
  local function given(value) return (options.config { nameservers = value }).nameservers end
  check.equal(given "127.0.0.1", "127.0.0.1:53")
  check.equal(given { "127.0.0.1:53", "[::1]:5353", "[fe80::1]" }, "127.0.0.1:53,[::1]:5353,[fe80::1]:53")
  for _, bad in ipairs { "", "localhost", "127.0.0", "256.0.0.1", "1.2.3.4.5", "127.0.0.1:", "127.0.0.1:0",
    "127.0.0.1:65536", "127.0.0.1:53:53", "::1", "::1:53", "[::1", "[]", "[]:53", "[:]", "[::1]:99999", "[127.0.0.1:53]",
    5, false, { "127.0.0.1", 53 }, { {} } } do
    check.raises("ls.config: nameservers must be addresses such as \"127.0.0.1:53\"", given, bad)
  end
  check.raises("nameservers must be 1 to 10 addresses", given, {})
  local many = {}
  for i = 1, 11 do many[i] = "127.0.0." .. i end
  check.raises("nameservers must be 1 to 10 addresses", given, many)
  many[11] = nil
  check.equal(#given(many), 10 * 12 + 9 + 1)
end

function tests.config_separates_process_settings_from_listener_defaults()
  local settings, http = options.config { threads = 2, max_memory = "64m", max_cpu = 0.5, idle_timeout = 1 }
  check.equal(settings, { threads = 2, lua_bytes_max = 64 << 20, handler_cpu_ms_max = 500 })
  check.equal(http, { idle_ms_max = 1000 })
end

return tests
