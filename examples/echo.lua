-- echo.lua - an echo server on completions: prints each message and sends it back.
--
--   luaserve examples/echo.lua 7000            then, in another terminal:  nc 127.0.0.1 7000
--   luaserve examples/echo.lua 7000 quiet      echoes without printing
--   luaserve --threads 4 examples/echo.lua 7000
--
-- Any thread takes any packet: two threads per processor wait at the same port. Every message is printed as
-- "Thread 2: The following message was received: ...". Lines of several threads do not mix, because each is one write.
-- The core sends later what the system does not accept at once. The server stops at Ctrl-C, at SIGTERM, and, if
-- standard input is a terminal or a pipe, at the Enter key or a "q": it stops accepting, connected clients see the end
-- of the stream, and it exits when the last of them has finished.

local ls = require "luaserve"

local address, mode = ...
local quiet = mode == "quiet"
if not address or mode and not quiet then
  io.stderr:write("usage: luaserve ", arg[0], " PORT|HOST:PORT [quiet]\n")
  os.exit(1)
end

-- Two standby threads: a slow console delays only the threads that write to it.
ls.config { threads = 2 * ls.processors(), threads_max = 2 * ls.processors() + 2, drain_timeout = 15 }
io.stdout:setvbuf("line")

-- One write per line keeps lines whole.
local function print_line(text) io.stdout:write(text .. "\n") end

local function printable(data)
  return (tostring(data):gsub("[\r\n]+$", ""):gsub("%c", "."))
end

ls.tcp(tonumber(address) or address, function(sock)
  for data in sock:chunks() do
    if not quiet then
      print_line("Thread " .. ls.thread() .. ": The following message was received: " .. printable(data))
    end
    if not sock:send(data) then break end
  end
end)

-- Waits for a key without blocking a thread: standard input is registered for notifications.
local keys

local function watch_keys()
  io.stdin:setvbuf("no") -- unbuffered: the next notification reports the input that is left
  while keys:wait() do
    local key = io.stdin:read(1)
    if not key then break end -- the end of the input
    if key == "q" or key == "\n" or key == "\r" then
      print_line("Shutting down")
      ls.stop()
      break
    end
  end
  keys:remove()
end

ls.init(function()
  keys = ls.notify(0, "in|hangup") -- nil for a file or a closed input: only a signal stops the server then
  print_line("Processors: " .. ls.processors() .. ", threads: " .. ls.stats().threads)
  if keys then ls.spawn(watch_keys) end -- it continues: connections are accepted when ls.init ends
end)

ls.on("drain", function()
  if keys then keys:remove() end -- else the drain would wait for it
end)
