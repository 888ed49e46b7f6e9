-- echo.lua - an echo server on completions: what a client sends is shown and sent back.
--
--   luaserve examples/echo.lua 7000            then, in another terminal:  nc 127.0.0.1 7000
--   luaserve examples/echo.lua 7000 quiet      shows nothing, only echoes
--   luaserve --threads 4 examples/echo.lua 7000
--
-- Any thread takes any packet: two threads for each processor wait at the same port. Every message is shown as
-- "Thread 2: The following message was received: ..."; lines of several threads never mix, because each is written in
-- one piece. What the system does not take at once of an answer, the core sends later. It stops at Ctrl-C, at SIGTERM,
-- and, when a terminal or a pipe is its standard input, at the Enter key or a "q": nobody is accepted any more, clients
-- that are connected see the end, and it ends when the last of them is done with.

local ls = require "luaserve"

local address, mode = ...
local quiet = mode == "quiet"
if not address or mode and not quiet then
  io.stderr:write("usage: luaserve ", arg[0], " PORT|HOST:PORT [quiet]\n")
  os.exit(1)
end

-- Two spares: a console that does not take its lines at once holds up no more than the threads that write to it.
ls.config { threads = 2 * ls.processors(), threads_max = 2 * ls.processors() + 2, drain_timeout = 15 }
io.stdout:setvbuf("line")

-- One write for the whole line: that is all it takes for lines not to interleave.
local function say(text) io.stdout:write(text .. "\n") end

local function shown(data)
  return (tostring(data):gsub("[\r\n]+$", ""):gsub("%c", "."))
end

ls.tcp(tonumber(address) or address, function(sock)
  for data in sock:chunks() do
    if not quiet then
      say("Thread " .. ls.thread() .. ": The following message was received: " .. shown(data))
    end
    if not sock:send(data) then break end
  end
end)

-- Waits for a key without a thread that waits: the terminal is one more socket to be notified of.
local keys

local function watch_keys()
  io.stdin:setvbuf("no") -- read no more than was asked for: what is left is told again
  while keys:wait() do
    local key = io.stdin:read(1)
    if not key then break end -- closed: nobody can press a key any more
    if key == "q" or key == "\n" or key == "\r" then
      say("Shutting down")
      ls.stop()
      break
    end
  end
  keys:remove()
end

ls.once(function()
  keys = ls.notify(0, "in|hangup") -- nil where it is a file, or nothing: only a signal stops it
  say("Processors: " .. ls.processors() .. ", threads: " .. ls.stats().threads)
  if keys then watch_keys() end
end)

ls.on("drain", function()
  if keys then keys:remove() end -- or it would be waited for
end)
