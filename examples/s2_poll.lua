-- s2_poll.lua - where one would have called poll(): one connection, a persistent level-triggered notification.
--
--   luaserve examples/s2_poll.lua 7002     accepts one client, reports what it sends, ends when it hangs up
--
-- The sockets are ls.socket's: nothing reads or writes them but this script. A server for many clients is shorter with
-- ls.tcp; this is for sockets that belong to something else.

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
  local left = false
  while not left do
    local events = assert(n:wait())
    if events.err then
      local _, message = conn:receive() -- the receive fetches the error
      ls.log.info("error: " .. tostring(message))
      left = true
    elseif events["in"] then
      local data = conn:receive() -- one receive; what is left is told again
      if data and data ~= "" then ls.log.info("received " .. #data .. " bytes: " .. data) end
    end
    if events.hangup then left = true end
  end
  n:remove() -- returns when nothing more can come
  conn:close()
  ls.log.info("left")
end

ls.once(function()
  local ok, message = pcall(function() serve(accept_one()) end)
  if not ok then ls.log.error(message) end
  ls.stop()
end)
