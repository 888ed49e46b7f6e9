-- chat.lua - a room: its last messages, the people in it, and the app with the WebSocket and the page in public/.
--
-- A page connects to /live?name=NAME&after=NUMBER: the number of the last message that it has. It sends the text of its
-- messages, and receives JSON objects: { messages = { { number =, name =, text = } } }, { people = { NAME }, version = }.

local ls = require "luaserve"

local chat = {
  NAME_BYTES_MAX = 30,
  TEXT_BYTES_MAX = 1000,
  MESSAGES_MAX = 200, -- that the room keeps
}

local TOPIC = "chat" -- all connections subscribe to it
local INVALID = 4000 -- the code of a close: the page does not try again with this name

-- The room is a dict, so that all Lua states share it and it survives a reload.
local order = ls.semaphore("chat", 1) -- messages leave in the order of their numbers: a page asks for what follows its last
local room = ls.dict("chat") -- "messages": a list; "last": the number of the last message; "present": see enter

-- check(name, text) -> nil, or what is wrong
function chat.check(name, text)
  if type(name) ~= "string" or not name:find("^[%w_-]+$") or #name > chat.NAME_BYTES_MAX then
    return "a name has 1 to " .. chat.NAME_BYTES_MAX .. " letters, digits, _ or -"
  elseif type(text) ~= "string" or not text:find("%S") or text:find("%c") or #text > chat.TEXT_BYTES_MAX then
    return "a message is one line of 1 to " .. chat.TEXT_BYTES_MAX .. " bytes"
  end
end

-- Add a message, and send it to every connection.
function chat.say(name, text)
  order:with(function()
    -- Numbers begin with the time, so that those of a server that was started again are higher than all before.
    local message = { number = room:incr("last", 1, os.time() * 1000), name = name, text = text }
    if room:rpush("messages", message) > chat.MESSAGES_MAX then room:lpop("messages") end
    ls.publish(TOPIC, { messages = { message } })
  end)
end

-- The messages behind `number`, the oldest first.
function chat.after(number)
  local found = ls.json.array {}
  for _, message in ipairs(room:range("messages")) do
    if message.number > number then found[#found + 1] = message end
  end
  return found
end

-- Count a connection of a person (by = 1 or -1), and send the list of people to every connection. Each list has a higher
-- version than the one before: lists of two Lua states may arrive in the other order.
local function enter(name, by)
  local present = room:update("present", function(old)
    local new = old or { version = 0, connections = {} }
    local count = (new.connections[name] or 0) + by
    new.version, new.connections[name] = new.version + 1, count > 0 and count or nil
    return new
  end)
  local people = ls.json.array {}
  for one in pairs(present.connections) do people[#people + 1] = one end
  table.sort(people)
  ls.publish(TOPIC, { people = people, version = present.version })
end

-- Serve a connection until it ends.
local function talk(ws, req)
  local name, after = req.query.name, tonumber(req.query.after) or 0
  local wrong = chat.check(name, "x")
  if wrong then return ws:close(INVALID, wrong) end
  local missed = order:with(function() -- no message is published between the two, and none arrives before the older ones
    ws:subscribe(TOPIC)
    return chat.after(after)
  end)
  ws:send(ls.json.encode { messages = missed })
  enter(name, 1)
  local _ <close> = setmetatable({}, { __close = function() enter(name, -1) end })
  for text in ws:messages() do
    if not chat.check(name, text) then chat.say(name, text) end
  end
end

chat.app = ls.app()
chat.app:ws("/live", { max_message = chat.TEXT_BYTES_MAX, compress = true }, talk)
chat.app:static("/", "public")

return chat
