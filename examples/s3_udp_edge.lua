-- s3_udp_edge.lua - a UDP server on edge-triggered notifications, registered before it is bound.
--
--   luaserve examples/s3_udp_edge.lua 7003 100     ends after 100 datagrams
--
-- An edge-triggered notification reports an arrival once. So each one is followed by receives until EAGAIN, and a
-- registration before the bind misses nothing. A UDP socket never reports hangup.

local ls = require "luaserve"
local port, expected = ...
port, expected = tonumber(port) or 7003, tonumber(expected) or 100

ls.init(function()
  local sock = assert(ls.socket("udp"))
  local n = assert(ls.notify(sock, "in", { trigger = "edge" }))
  assert(sock:bind("127.0.0.1", port))
  ls.log.info("bound to " .. sock.local_addr)

  local count, bytes, wakeups = 0, 0, 0
  while count < expected do
    assert(n:wait())
    wakeups = wakeups + 1
    while true do
      local data, message, code = sock:receivefrom()
      if data then
        count, bytes = count + 1, bytes + #data
      elseif code == "EAGAIN" then
        break
      else -- receivefrom has cleared the error; later datagrams are still queued
        ls.log.warn("receive: " .. message)
      end
    end
  end
  n:remove()
  sock:close()
  ls.log.info(("received %d datagrams, %d bytes, %d notifications"):format(count, bytes, wakeups))
  ls.stop()
end)
