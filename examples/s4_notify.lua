-- s4_notify.lua - an echo server for many clients on one-shot level-triggered notifications.
--
--   luaserve examples/s4_notify.lua 7004 100     ends after 100 clients have come and gone
--
-- One-shot: whoever was told about a socket has it to himself until he arms it again. Here each socket has a task. On
-- HANGUP the registration is removed, and only when it is gone is the socket closed. A timer's ticks come through the
-- same port.
--
-- There are as many tasks as sockets, but one Lua state, so one of them runs at a time, on whichever of the server's
-- threads took the notification. That is not for want of threads: a socket is on the port once, a listener too, and the
-- registration belongs to the state that made it. c/s4_threads.c is the program with 16 threads at one listener;
-- connections that may be served in any state, in parallel, are what ls.tcp gives (echo.lua).

local ls = require "luaserve"
local port, clients = ...
port, clients = tonumber(port) or 7004, tonumber(clients) or 100

local ticks, gone = 0, 0
local once = { oneshot = true }

-- Send all of it; a peer that does not read is waited for.
local function send(conn, n, data)
  while #data > 0 do
    local sent, message, code = conn:send(data)
    if sent then
      data = data:sub(sent + 1)
    elseif code ~= "EAGAIN" then
      return nil, message
    else
      assert(n:rearm("out|hangup"))
      local events = assert(n:wait())
      if events.hangup and not events.out then return nil, "hung up" end
    end
  end
  return true
end

local function serve(conn, n)
  while true do
    local events = n:wait()
    if not events then break end
    local data, message, code
    repeat
      data, message, code = conn:receive()
      if data and data ~= "" and not send(conn, n, data) then data = nil end
    until not data or data == "" or not events.hangup
    if events.err then ls.log.info("error: " .. tostring(message)) end
    if events.hangup or data == "" or not data and code ~= "EAGAIN" then break end
    if not n:rearm("in|hangup") then break end
  end
  n:remove()
  conn:close()
  gone = gone + 1
  if gone == clients then ls.stop() end
end

local listener_notice

ls.once(function()
  local listener = assert(ls.socket("tcp"))
  assert(listener:bind("127.0.0.1", port))
  assert(listener:listen())
  listener_notice = assert(ls.notify(listener, "in", once))
  ls.log.info("accepting on " .. listener.local_addr)
  while true do
    local events = listener_notice:wait()
    if not events then break end -- removed: the server stops
    local conn = listener:accept()
    while conn do
      local n, message = ls.notify(conn, "in|hangup", once)
      if n then
        ls.spawn(serve, conn, n)
      else -- it was never registered: there will be no REMOVE, it just goes
        ls.log.error("registration: " .. message)
        conn:close()
      end
      conn = listener:accept()
    end
    if not listener_notice:rearm("in") then break end
  end
  listener:close()
  ls.log.info(("served %d clients, %s ticks"):format(gone, ticks > 0 and "some" or "no"))
end)

ls.every(0.05, function()
  ticks = ticks + 1
  if ticks == 1 then ls.log.info("the first tick") end
end)
ls.on("drain", function()
  if listener_notice then listener_notice:remove() end
end)
