-- chat.lua - a room: its last messages, the people with a connection, and an app for the page in public/.
--
-- A connection is line-based. Its first line is the name; each further line is a message; /quit ends it. The page sends
-- its messages with POST /messages, and asks for new ones with GET /messages?after=NUMBER once a second.

local ls = require "luaserve"

local chat = {
  NAME_BYTES_MAX = 30,
  TEXT_BYTES_MAX = 1000,
  MESSAGES_MAX = 200, -- that the room keeps
}

local QUEUED_BYTES_MAX = 256 * 1024 -- for a client that does not read; it is disconnected then

-- The messages are in a dict, so that they survive a reload.
local history = ls.dict("chat") -- "messages": a list; "last": the number of the last message

local Room = {}
Room.__index = Room

-- new() -> a room without people
function chat.new()
  return setmetatable({ people = {} }, Room)
end

-- check(name, text) -> nil, or what is wrong
function chat.check(name, text)
  if type(name) ~= "string" or not name:find("^[%w_-]+$") or #name > chat.NAME_BYTES_MAX then
    return "a name has 1 to " .. chat.NAME_BYTES_MAX .. " letters, digits, _ or -"
  elseif type(text) ~= "string" or not text:find("%S") or text:find("%c") or #text > chat.TEXT_BYTES_MAX then
    return "a message is one line of 1 to " .. chat.TEXT_BYTES_MAX .. " bytes"
  end
end

-- Add a message, and send it to every connection.
function Room:say(name, text)
  local number = history:incr("last")
  local count = history:rpush("messages", { number = number, name = name, text = text })
  if count > chat.MESSAGES_MAX then history:lpop("messages") end
  local line = ls.buffer(name, ": ", text, "\n") -- one buffer for all connections
  for sock in pairs(self.people) do
    if sock.queued > QUEUED_BYTES_MAX or not sock:send(line) then sock:abort() end
  end
end

-- last() -> the number of the last message
function Room.last() return history:get("last") or 0 end

-- The messages behind `number`, the oldest first.
function Room:after(number)
  local missing = self.last() - number
  return ls.json.array(missing > 0 and history:range("messages", -missing) or {})
end

-- Serve a connection until it ends.
function Room:talk(sock)
  sock:send("Your name? ")
  local name = sock:receive("*l")
  while name and chat.check(name, "x") do
    sock:send(chat.check(name, "x"), ". Your name? ")
    name = sock:receive("*l")
  end
  if not name then return end
  self.people[sock] = name
  self:say(name, "joins")
  for line in sock:lines() do
    if line == "/quit" then break end
    local wrong = chat.check(name, line)
    if wrong then sock:send("* ", wrong, "\n") else self:say(name, line) end
  end
  self.people[sock] = nil
  self:say(name, "leaves")
end

-- app() -> the app of the page
function Room:app()
  local app = ls.app()

  app:get("/messages", function(req)
    local after = math.tointeger(tonumber(req.query.after or 0))
    if not after or after < 0 then return 400, { error = "after must be the number of a message" } end
    return { last = self.last(), messages = self:after(after) }
  end)

  app:post("/messages", function(req)
    local given = req:json { object = true }
    local wrong = chat.check(given.name, given.text)
    if wrong then return 400, { error = wrong } end
    self:say(given.name, given.text)
    return 204
  end)

  app:static("/", "public")
  return app
end

return chat
