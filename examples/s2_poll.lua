-- s2_poll.lua - replaces poll(): one connection, a persistent level-triggered notification.
--
--   luaserve examples/s2_poll.lua 7002     accepts one client, reports what it sends, ends when it hangs up
--
-- The sockets come from ls.socket: only this script reads and writes them. A server for many clients is shorter with
-- ls.tcp; this example is for sockets that another library owns.

local ls = require "luaserve"
local port = tonumber((...)) or 7002

local function accept_one()
  local listener = assert(ls.socket("tcp"))
  assert(listener:bind("127.0.0.1", port))
  assert(listener:listen(1))
  ls.log.info("accepting on " .. listener.local_addr)
  local incoming = assert(ls.notify(listener, "in"))
  local conn
  repeat
    assert(incoming:wait())
    conn = listener:accept()
  until conn
  incoming:remove()
  listener:close()
  return conn
end

local function serve(conn)
  local n = assert(ls.notify(conn, "in|hangup"))
  local closed = false
  while not closed do
    local events = assert(n:wait())
    if events.err then
      local _, message = conn:receive() -- the receive fetches the error
      ls.log.info("error: " .. tostring(message))
      closed = true
    elseif events["in"] then
      local data = conn:receive() -- one receive; if data is left, the notification repeats
      if data and data ~= "" then ls.log.info("received " .. #data .. " bytes: " .. data) end
    end
    if events.hangup then closed = true end
  end
  n:remove() -- returns when no further event can follow
  conn:close()
  ls.log.info("closed")
end

ls.init(function()
  local ok, message = pcall(function() serve(accept_one()) end)
  if not ok then ls.log.error(message) end
  ls.stop()
end)
