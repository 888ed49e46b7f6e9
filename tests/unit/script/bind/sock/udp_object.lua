-- udp_object.lua - the sites of test_udp_object.c.
local t = ... -- the helpers of site_fixture.lua
local core, body, is, show = t.core, t.body, t.is, t.show
local cases = {}

local function port(socket) return tonumber(socket.local_addr:match("%d+$")) end

-- Two connected sockets: `peer`, an ls.socket, and `client`; connect(setup) -> one more client; say(text [, client]): the
-- peer sends a datagram, which is available at once.
local function pair()
  local peer = assert(core.socket("udp"))
  assert(peer:bind("127.0.0.1", 0))
  local function connect(setup)
    local options = { batch = 8, datagram_bytes_max = 2048 }
    for name, value in pairs(setup or {}) do options[name] = value end
    return assert(core.udp_connect("127.0.0.1", port(peer), options))
  end
  local client = connect()
  local function say(text, to) assert(peer:sendto(text, "127.0.0.1", port(to or client))) end
  return peer, client, connect, say
end

function cases.a_batch_is_returned_datagram_by_datagram()
  body(function()
    local peer, client, connect, say = pair()
    for i = 1, 20 do say("n" .. i) end
    say("")
    for i = 1, 20 do is(client:receive(5), "n" .. i) end
    is(client:receive(5), "") is(show(client:receive(0)), "nil|timeout|ETIMEDOUT")
    is(show(client:receive(0.01)), "nil|timeout|ETIMEDOUT")
    local small = connect{ datagram_bytes_max = 5 }
    say("12345", small)
    say("123456", small)
    say("1", small)
    is(show(small:receive(5)), "12345")
    local data, info = small:receive(5)
    is(data, "12345") is(info.truncated, true) is(show(small:receive(5)), "1")
  end)
end

-- A NUL byte does not end a host name: none of these calls may reach 127.0.0.1.
function cases.a_host_with_an_embedded_nul_is_rejected()
  body(function()
    local peer, client, connect, say = pair()
    local bad = "127.0.0.1\0.example.org"
    is(select(3, core.udp_connect(bad, 7, {})), "EINVAL")
    is(select(3, peer:sendto("x", bad, 7)), "EINVAL")
    is(select(3, assert(core.socket("tcp")):connect(bad, 7)), "EINVAL")
    is(select(3, assert(core.socket("udp")):bind(bad, 0)), "EINVAL")
    local s, message = core.udp_connect(bad, 7, {})
    is(message:find("invalid address", 1, true) ~= nil, true)
  end)
end

function cases.close_during_a_receive()
  body(function()
    local peer, client, connect, say = pair()
    local job = core.spawn(function() return show(client:receive()) end)
    core.sleep(0)
    is(pcall(client.receive, client), false)
    client:close()
    client:close()
    is(job:wait(), "nil|closed|ECLOSED") is(show(client:receive(1)), "nil|closed|ECLOSED")
    is(show(client:send("x")), "nil|closed|ECLOSED")
    for i = 1, 3 do say("late") end
  end)
end

-- Lua may collect garbage at every allocation, also between reading a datagram and dropping it.
function cases.finalizers_that_close_or_receive()
  body(function()
    local peer, client, connect, say = pair()
    collectgarbage("incremental", 10, 1000, 6)
    local big = ("x"):rep(1000):rep(60)
    for round = 1, 40 do
      local c = connect{ batch = 1 + round % 8, datagram_bytes_max = 60000 }
      for i = 1, 9 do say(big, c) end
      for i = 1, 9 do
        setmetatable({}, { __gc = function()
          if round % 2 == 0 then c:receive(0) elseif i > 3 then c:close() end
        end })
        local data = c:receive(0.01)
        if data then is(#data, 60000) end
      end
    end
  end)
end

function cases.out_of_memory_while_receiving()
  core.config{ lua_bytes_max = 1500000 }
  body(function()
    local peer, client, connect, say = pair()
    local c, held, lost = connect{ batch = 8, datagram_bytes_max = 65507 }, {}, 0
    local big = ("x"):rep(1000):rep(60)
    for round = 1, 60 do
      say(big, c)
      local ok, data = pcall(function() return (c:receive(5)) .. round end)
      if ok then
        held[#held + 1] = data
      else
        lost, held = lost + 1, {}
        collectgarbage()
      end
    end
    if lost == 0 then error("memory did not run out") end
    held = nil
    collectgarbage()
    say("after it", c)
    is(c:receive(5), "after it")
    core.log("info", "went on")
  end)
end

-- A descriptor is closed while a watcher exists for it; then its number is used by another socket.
function cases.a_closed_descriptor_is_reported()
  body(function()
    local peer, client, connect, say = pair()
    local bad = { pcall(core.notify, 1000000, 1, false, false) }
    is(show(table.unpack(bad)), "true|nil|invalid descriptor|EINVAL")
    is(show(core.notify(-1, 1, false, false)), "nil|invalid descriptor|EINVAL")
    is(pcall(core.notify, {}, 1, false, false), false)
    local s = assert(core.socket("udp"))
    local fd = s.fd
    local n = assert(core.notify(s, 1, false, false))
    is(show(core.notify(fd, 1, false, false)),
      "nil|the descriptor is already registered, or is a socket of the server|EEXIST")
    local job = core.spawn(function() return show(n:wait()) end)
    core.sleep(0)
    s:close()
    is(job:wait(), "nil|the descriptor was closed|ENOENT")
    is(show(n:wait(0)), "nil|the descriptor was closed|ENOENT")
    n:remove()
    is(pcall(n.wait, n), false) is(pcall(n.remove, n), false)
    local again = assert(core.socket("udp"))
    is(again.fd, fd)
    assert(again:bind("127.0.0.1", 0))
    local m = assert(core.notify(again, 1, false, false))
    say("x", again)
    is(m:wait(5)["in"], true)
    m:remove()
    again:close()
  end)
end

return cases
