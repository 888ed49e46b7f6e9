-- s4_notify.lua - an echo server for many clients on one-shot level-triggered notifications.
--
--   luaserve examples/s4_notify.lua 7004 100     exits after 100 clients have disconnected
--
-- One-shot: the task that gets a socket's event owns the socket until it re-arms the notification. Here each socket
-- has a task. On HANGUP it removes the registration, and closes the socket after the removal. A timer's ticks arrive
-- at the same port.
--
-- There are as many tasks as sockets, but one Lua state, so one task runs at a time, on the thread that took its
-- notification. More threads would not change that: a socket is registered once, a listener as well, and the
-- registration belongs to the state that made it. c/s4_threads.c is the same program with 16 threads at one listener;
-- ls.tcp (echo.lua) serves connections in any state, in parallel.

local ls = require "luaserve"
local port, clients = ...
port, clients = tonumber(port) or 7004, tonumber(clients) or 100

local ticks, closed = 0, 0
local once = { oneshot = true }

-- Sends all data; waits for a peer that does not read.
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
  closed = closed + 1
  if closed == clients then ls.stop() end
end

local listener_watcher

local function accept_all()
  local listener = assert(ls.socket("tcp"))
  assert(listener:bind("127.0.0.1", port))
  assert(listener:listen())
  listener_watcher = assert(ls.notify(listener, "in", once))
  ls.log.info("accepting on " .. listener.local_addr)
  while true do
    local events = listener_watcher:wait()
    if not events then break end -- removed: the server stops
    local conn = listener:accept()
    while conn do
      local n, message = ls.notify(conn, "in|hangup", once)
      if n then
        ls.spawn(serve, conn, n)
      else -- registration failed, so no removal is needed
        ls.log.error("registration: " .. message)
        conn:close()
      end
      conn = listener:accept()
    end
    if not listener_watcher:rearm("in") then break end
  end
  listener:close()
  ls.log.info(("served %d clients, %s ticks"):format(closed, ticks > 0 and "some" or "no"))
end

ls.init(function() ls.spawn(accept_all) end) -- the timer below starts when ls.init ends

ls.every(0.05, function()
  ticks = ticks + 1
  if ticks == 1 then ls.log.info("the first tick") end
end)
ls.on("drain", function()
  if listener_watcher then listener_watcher:remove() end
end)
