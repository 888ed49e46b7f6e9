local check = require "check"
local core = require "luaserve.core"
local udp = require "luaserve.udp"

local tests = {}

local function handler() end

local function bound(...)
  core.take_calls()
  udp.listen(...)
  local call = core.take_calls()[1]
  check.equal({ call[1], call[3] == handler }, { "udp", true })
  return call[2]
end

local function connected(...)
  core.take_calls()
  udp.connect(...)
  local call = core.take_calls()[1]
  check.equal(call[1], "udp_connect")
  return { call[2], call[3], call[4] }
end

function tests.listen_accepts_every_form_of_address()
  for _, case in ipairs {
    { 7000, "", 7000 }, { 0, "", 0 }, { 7000.0, "", 7000 }, { "7000", "", 7000 }, { "127.0.0.1:7000", "127.0.0.1", 7000 },
    { "[::1]:7000", "::1", 7000 }, { "*:7000", "*", 7000 }, { "localhost:7000", "", 7000 }, { { port = 7000 }, "", 7000 },
    { { host = "[::1]", port = 0 }, "::1", 0 }, { { host = "*", port = 7000 }, "*", 7000 },
  } do
    local got = bound(case[1], handler)
    check.equal({ got.host, got.port }, { case[2], case[3] })
  end
  check.equal(bound({ port = 1, handler = handler }).port, 1)
end

function tests.listen_takes_options_beside_an_address()
  local got = bound(7000, handler, { batch = 1, reuse = true })
  check.equal({ got.host, got.port, got.batch, got.reuse_port }, { "", 7000, 1, true })
  check.equal(bound(5353, handler, { multicast = "239.1.2.3" }).host, "239.1.2.3")
  check.equal(bound("*:5353", handler, { multicast = "239.1.2.3" }).host, "*")
  check.raises("did you mean 'batch'?", udp.listen, 7000, handler, { bacth = 1 })
  check.raises("port is given by the arguments before", udp.listen, 7000, handler, { port = 1 })
  check.raises("two tables of options", udp.listen, { port = 7000 }, handler, {})
  check.raises("ls.udp(7000, fn, options): got 1", udp.listen, 7000, handler, {}, 1)
end

function tests.options_are_converted_to_the_units_of_the_core()
  local got = bound({ port = 1, batch = 32, max_datagram = "9k", receive_buffer = "1m", send_buffer = 1000, reuse = true,
    broadcast = false, multicast = { group = "239.1.2.3", interface = "lo", ttl = 255, loop = false } }, handler)
  got.where = nil
  check.equal(got, { host = "239.1.2.3", port = 1, batch = 32, datagram_bytes_max = 9216, recv_buffer_bytes = 1 << 20,
    send_buffer_bytes = 1000, reuse_port = true, gather = true, broadcast = false, groups = { "239.1.2.3" },
    interface = "lo", ttl = 255, loop = false, loop_set = true })
  check.fields(bound(7000, handler), { batch = 32, datagram_bytes_max = 2048, gather = true })
  check.equal(bound({ port = 1, multicast = "ff02::1:3" }, handler).host, "ff02::1:3")
  check.equal(bound({ host = "*", port = 1, multicast = "239.1.2.3" }, handler).host, "*")
  check.equal(bound({ port = 1, max_datagram = 65507 }, handler).datagram_bytes_max, 65507)
end

function tests.listen_passes_the_line_of_the_caller()
  core.take_calls()
  local line = check.line(1)
  udp.listen(7000, handler)
  check.equal(core.take_calls()[1][2].where:match("[^/]*$"), line)
end

function tests.usage_errors_of_udp_name_the_line_and_the_valid_arguments()
  core.take_calls()
  local seventeen = {}
  for i = 1, 17 do seventeen[i] = "239.1.2." .. i end
  for _, case in ipairs {
    { "the first argument must be an address", nil, handler }, { "the handler is missing", 7000 },
    { "two functions given", { port = 1, handler = handler }, handler },
    { "got a table", 7000, {} }, { "port is missing", {}, handler },
    { "port must be a whole number from 0 (pick a free one) to 65535; got 65536", 65536, handler },
    { "got 1.5", 1.5, handler }, { "got -1", -1, handler },
    { "got 70000", "127.0.0.1:70000", handler }, { "invalid address", "7000x", handler },
    { "invalid address", "::1:7000", handler }, { "names are not looked up", "example.org:7000", handler },
    { "host must be a string", { host = 5, port = 1 }, handler },
    { "unknown option \"bacth\"; did you mean 'batch'?", { port = 1, bacth = 3 }, handler },
    { "batch must be from 1 to 32; got 0", { port = 1, batch = 0 }, handler },
    { "batch must be from 1 to 32; got 33", { port = 1, batch = 33 }, handler },
    { "max_datagram must be from 1 to 65507 bytes; got 65508", { port = 1, max_datagram = 65508 }, handler },
    { "max_datagram must be a number of bytes", { port = 1, max_datagram = "much" }, handler },
    { "receive_buffer must be from 1 to 1073741823 bytes; got 0", { port = 1, receive_buffer = 0 }, handler },
    { "reuse must be true or false; got 1", { port = 1, reuse = 1 }, handler },
    { "broadcast must be true or false", { port = 1, broadcast = "yes" }, handler },
    { "multicast must be a group such as", { port = 1, multicast = 5 }, handler },
    { "a multicast group must be an address", { port = 1, multicast = "127.0.0.1" }, handler },
    { "a multicast group must be an address", { port = 1, multicast = { group = { "239.1.2.3", 5 } } }, handler },
    { "a list of at most 16", { port = 1, multicast = { group = seventeen } }, handler },
    { "multicast: unknown option \"groups\"; did you mean 'group'?", { port = 1, multicast = { groups = {} } },
      handler },
    { "multicast.ttl must be from 1 to 255; got 256", { port = 1, multicast = { ttl = 256 } }, handler },
    { "multicast.loop must be true or false", { port = 1, multicast = { loop = 1 } }, handler },
    { "multicast.interface must be the name", { port = 1, multicast = { interface = ("x"):rep(64) } }, handler },
  } do
    check.raises({ check.line() .. ": ls.udp: ", case[1] }, function() udp.listen(case[2], case[3]) end)
  end
  check.equal(#core.take_calls(), 0)
end

function tests.errors_of_the_core_are_raised_at_the_caller()
  local function refuse() error("cannot be called while the site loads", 0) end
  core.results.udp, core.results.udp_connect = refuse, refuse
  check.raises(check.line() .. ": ls.udp: cannot be called", function() udp.listen(7000, handler) end)
  check.raises(check.line() .. ": ls.udp_connect: cannot be called", function() udp.connect("127.0.0.1", 1) end)
  core.results.udp, core.results.udp_connect = nil, nil
end

function tests.connect_passes_its_arguments_to_the_core()
  local defaults = { batch = 8, datagram_bytes_max = 2048, gather = true }
  check.equal(connected("127.0.0.1", 7000), { "127.0.0.1", 7000, defaults })
  check.equal(connected("[::1]", 7000.0), { "::1", 7000, defaults })
  check.equal(connected("::1", "7000"), { "::1", 7000, defaults })
  check.equal(connected("::1", 1, { batch = 1, max_datagram = "64000" }),
    { "::1", 1, { datagram_bytes_max = 64000, batch = 1, gather = true } })
  core.results.udp_connect = { nil, "no such name", "EINVAL", n = 3 }
  check.equal(table.pack(udp.connect("x", 1)), { n = 3, [2] = "no such name", [3] = "EINVAL" })
  core.results.udp_connect = nil
  core.take_calls()
end

function tests.usage_errors_of_connect_name_the_line_and_the_valid_arguments()
  core.take_calls()
  for _, case in ipairs {
    { "host must be an address", nil, 1 }, { "got 5", 5, 1 },
    { "port must be a whole number from 1 to 65535; got nil", "::1" },
    { "got 0", "::1", 0 }, { "got \"x\"", "::1", "x" },
    { "got 65536", "::1", 65536 }, { "options must be a table; got 5", "::1", 1, 5 },
    { "unknown option \"reuse\"", "::1", 1, { reuse = true } }, { "unknown option \"host\"", "::1", 1, { host = "x" } },
    { "multicast.group is an option of ls.udp only", "::1", 1, { multicast = "239.1.2.3" } },
    { "batch must be from 1 to 32; got 64", "::1", 1, { batch = 64 } },
  } do
    check.raises({ check.line(1) .. ": ls.udp_connect: ", case[1] }, function()
      udp.connect(case[2], case[3], case[4])
    end)
  end
  check.equal(#core.take_calls(), 0)
end

return tests
