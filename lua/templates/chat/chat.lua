-- chat.lua - rooms: their last messages, the people in them, and the app with the WebSocket and the page in public/.
--
-- A page connects to /live?room=ROOM&name=NAME&after=NUMBER: the number of the last message of the room that it has. It
-- sends the text of its messages, and receives JSON objects: { messages = { { number =, name =, text = } } }, and
-- { people = { NAME } }.

local ls = require "luaserve"
local rate_limit = require "luaserve.rate_limit"

local chat = {
  ROOMS = { "lobby", "music", "weather" },
  NAME_BYTES_MAX = 30,
  TEXT_BYTES_MAX = 1000,
  MESSAGES_MAX = 200, -- that a room keeps
  RATE_MAX = 20, RATE_SECONDS = 10, -- messages of a connection in a time
}

local INVALID = 4000 -- the code of a close: the page does not try again with this name

-- Rooms are in dicts, so that all Lua states share them and they survive a reload. The keys are the rooms.
local messages = ls.dict("messages") -- a list of each room
local last = ls.dict("last") -- the number of the last message
local order = {} -- messages of a room leave in the order of their numbers: a page asks for what follows its last
for _, room in ipairs(chat.ROOMS) do order[room] = ls.semaphore("chat " .. room, 1) end

-- check(room, name, text) -> nil, or what is wrong
function chat.check(room, name, text)
  if not order[room or ""] then
    return "there is no such room"
  elseif type(name) ~= "string" or not name:find("^[%w_-]+$") or #name > chat.NAME_BYTES_MAX then
    return "a name has 1 to " .. chat.NAME_BYTES_MAX .. " letters, digits, _ or -"
  elseif type(text) ~= "string" or not text:find("%S") or text:find("%c") or #text > chat.TEXT_BYTES_MAX then
    return "a message is one line of 1 to " .. chat.TEXT_BYTES_MAX .. " bytes"
  end
end

-- Add a message, and send it to every connection of the room: each subscribes to the topic of its name.
function chat.say(room, name, text)
  order[room]:with(function()
    -- Numbers begin with the time, so that those of a server that was started again are higher than all before.
    local message = { number = last:incr(room, 1, os.time() * 1000), name = name, text = text }
    if messages:rpush(room, message) > chat.MESSAGES_MAX then messages:lpop(room) end
    ls.publish(room, { messages = { message } })
  end)
end

-- The messages of a room after `number`, the oldest first.
function chat.after(room, number)
  local found = ls.json.array {}
  for _, message in ipairs(messages:range(room)) do
    if message.number > number then found[#found + 1] = message end
  end
  return found
end

-- Send the list of the people in a room to all of them: each connection subscribes to a topic of its person as well.
local function announce(room)
  order[room]:with(function() -- one after the other, so that the newest list is the last
    local people = ls.json.array {}
    for topic in pairs(ls.topics(room .. "/")) do people[#people + 1] = topic:sub(#room + 2) end
    table.sort(people)
    ls.publish(room, { people = people })
  end)
end

-- A function that says whether one more message is within the rate.
local function meter()
  local begun, count = ls.now(), 0
  return function()
    if ls.now() - begun >= chat.RATE_SECONDS then begun, count = ls.now(), 0 end
    count = count + 1
    return count <= chat.RATE_MAX
  end
end

-- Serve a connection until it ends.
local function talk(ws, req)
  local room, name, after = req.query.room, req.query.name, tonumber(req.query.after) or 0
  local wrong = chat.check(room, name, "x")
  if wrong then return ws:close(INVALID, wrong) end
  local missed = order[room]:with(function() -- no message is published between the two: none arrives before older ones
    ws:subscribe(room)
    return chat.after(room, after)
  end)
  ws:send(ls.json.encode { messages = missed })
  local person = room .. "/" .. name
  local _ <close> = setmetatable({}, { __close = function() -- whatever ends the connection
    ws:unsubscribe(person)
    announce(room)
  end })
  ws:subscribe(person)
  announce(room)
  local within_rate = meter()
  for text in ws:messages() do
    if not within_rate() then return ws:close(INVALID, "too many messages in a short time") end
    if not chat.check(room, name, text) then chat.say(room, name, text) end
  end
end

local app = ls.app()
app:use("/live", rate_limit { limit = 60, per = 60 }) -- connections of an address
app:get("/rooms", function() return ls.json.array(chat.ROOMS) end)
app:ws("/live", { max_message = chat.TEXT_BYTES_MAX, compress = true }, talk)
app:static("/", "public")
chat.app = app

return chat
