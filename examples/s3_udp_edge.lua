-- s3_udp_edge.lua - a UDP server on edge-triggered notifications, registered before it is bound.
--
--   luaserve examples/s3_udp_edge.lua 7003 100     ends after 100 datagrams
--
-- An edge tells that something came, once. So every telling is followed by receives until one would block, and a
-- registration that comes before the bind misses nothing. A UDP socket never hangs up.

local ls = require "luaserve"
local port, expected = ...
port, expected = tonumber(port) or 7003, tonumber(expected) or 100

ls.once(function()
  local sock = assert(ls.socket("udp"))
  local n = assert(ls.notify(sock, "in", { trigger = "edge" }))
  assert(sock:bind("127.0.0.1", port))
  ls.log.info("bound to " .. sock.local_addr)

  local count, bytes, told = 0, 0, 0
  while count < expected do
    assert(n:wait())
    told = told + 1
    while true do
      local data, message, code = sock:receivefrom()
      if data then
        count, bytes = count + 1, bytes + #data
      elseif code == "EAGAIN" then
        break
      else -- the receive has fetched the error; what came behind it is still there
        ls.log.warn("receive: " .. message)
      end
    end
  end
  n:remove()
  sock:close()
  ls.log.info(("received %d datagrams, %d bytes, told %d times"):format(count, bytes, told))
  ls.stop()
end)
