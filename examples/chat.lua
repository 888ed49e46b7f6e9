-- chat.lua - a chat: the server sends every line of a client to all other clients.
--
--   luaserve examples/chat.lua 7001            then, in two other terminals:  nc 127.0.0.1 7001
--
-- A client first enters its name. /who lists the names, /quit leaves. A connection belongs to the Lua state that serves it.
-- A chat needs all connections in one table, so it runs in one state.

local ls = require "luaserve"

ls.config { states = 1 }

local QUEUED_MAX = 1024 * 1024
local room = {} -- name -> sock

local function send_to_others(me, text)
  for name, sock in pairs(room) do
    -- The text is one buffer, shared by all sends. A client that does not read is disconnected before its queue is
    -- long enough to make send wait.
    if name ~= me and (sock.queued > QUEUED_MAX or not sock:send(text)) then sock:abort() end
  end
end

local function free_name(sock)
  sock:send("Your name? ")
  local name = sock:receive("*l")
  while name and (not name:match("^%w+$") or room[name]) do
    sock:send("A name has only letters and digits and is not in use. Your name? ")
    name = sock:receive("*l")
  end
  return name
end

local options = { port = (...) or 7001, read_timeout = false, write_ahead = 2 * QUEUED_MAX, max_line = "4k" }

ls.tcp(options, function(sock)
  local name = free_name(sock)
  if not name then return end
  room[name] = sock
  send_to_others(name, ls.buffer("* ", name, " is here\n"))
  for line in sock:lines() do
    if line == "/quit" then
      break
    elseif line == "/who" then
      local names = {}
      for other in pairs(room) do names[#names + 1] = other end
      table.sort(names)
      sock:send("* ", table.concat(names, " "), "\n")
    else
      send_to_others(name, ls.buffer(name, ": ", line, "\n"))
    end
  end
  room[name] = nil
  send_to_others(name, ls.buffer("* ", name, " has left\n"))
end)
