-- luaserve.ws_client: what ls.websocket passes to the core. tests/e2e/test_websocket_client.py has the rest.
local check = require "check"
local core = require "luaserve.core"
local client = require "luaserve.ws_client"

local tests = {}

-- The connection is refused: the core has got everything by then. -> host, port, options of the handshake, limits
local function connected(...)
  core.take_calls()
  client.connect(...)
  local of = {}
  for _, call in ipairs(core.take_calls()) do of[call[1]] = call end
  return of.connect[2], of.connect[3], of.ws_opening[2], of.connect[4]
end

function tests.urls()
  for _, case in ipairs {
    { "ws://example.org", "example.org", 80, "example.org", "/" },
    { "wss://example.org", "example.org", 443, "example.org", "/" },
    { "WS://example.org:80/a?b=c", "example.org", 80, "example.org", "/a?b=c" },
    { "wss://example.org:/", "example.org", 443, "example.org", "/" },
    { "ws://example.org:443?q", "example.org", 443, "example.org:443", "/?q" },
    { "wss://[::1]/x", "::1", 443, "[::1]", "/x" },
    { "ws://[fe80::1%eth0]:8080/", "fe80::1%eth0", 8080, "[fe80::1%eth0]:8080", "/" },
    { "ws://127.0.0.1:08080", "127.0.0.1", 8080, "127.0.0.1:8080", "/" },
  } do
    local host, port, out = connected(case[1])
    check.equal({ host, port, out.host, out.target }, { case[2], case[3], case[4], case[5] })
    check.equal(out.tls ~= nil, case[1]:lower():find("^wss") ~= nil)
  end
end

function tests.defaults_and_options()
  local _, _, out = connected("ws://a")
  check.equal(out, { host = "a", target = "/", fields = "", connect_ms_max = 10000, compress = true,
    compress_takeover = false, compress_bits = 15, compress_bytes_min = 256, message_bytes_max = 1 << 20,
    write_bytes_high = 262144, ping_ms = 30000, pong_ms = 30000, message_ms_max = 60000, close_ms_max = 5000,
    send_stall_ms_max = 60000 })
  local limits
  _, _, out, limits = connected("wss://a", {
    timeout = false, compress = { context = true, window = 9, min_size = "1k" }, protocols = { "x" }, max_message = "2m",
    ping = false, origin = "http://b", headers = { B = { 1, "2" }, A = "3" }, tls = { insecure = true },
  })
  check.fields(out, {
    host = "a", target = "/", fields = "Origin: http://b\r\nA: 3\r\nB: 1\r\nB: 2\r\n", connect_ms_max = 0,
    compress = true, compress_takeover = true, compress_bits = 9, compress_bytes_min = 1024, protocols = { "x" },
    message_bytes_max = 2 * 1024 ^ 2 // 1 | 0, ping_ms = 0, tls = { insecure = true, min = "1.2" },
  })
  check.fields(limits, { connect_ms_max = 0, tls = out.tls, receive_ms_max = 60000 })
  _, _, out, limits = connected("ws://a", { compress = false, timeout = 2 })
  check.fields(limits, { connect_ms_max = 2000 })
  check.equal(out.compress, false)
end

return tests
