-- chat.lua - a chat with rooms over WebSocket, and its page chat.html.
--
--   luaserve examples/live/chat.lua [address]       default: port 8080; open http://127.0.0.1:8080/lobby in two windows
--
-- The path names the room. A connection is GET /lobby/live?name=ada&id=x7&after=12: `id` is a secret of the window, so
-- that it keeps its name when it connects again; `after` is the number of the last message that it has.
--
-- The server sends one JSON object per message:
--   { "messages": [{ "number": 13, "name": "ada", "text": "hello", "at": 1700000000 }] }    in the order of the numbers
--   { "people": ["ada", "bob"], "version": 7 }                                              the newest version counts
-- A page sends the text of a message.

local ls = require "luaserve"

local NAME_MAX, TEXT_MAX, MESSAGES_MAX = 30, 1000, 50 -- bytes, bytes, messages that a room keeps
local TAKEN, INVALID = 4000, 4001                     -- codes of a close that the page does not answer by another try

local app = ls.app()
local rooms = ls.dict("rooms")   -- "messages ROOM": a list; "last ROOM": the number of the last message
local order = ls.semaphore("chat", 1) -- messages leave in the order of their numbers: a page asks for what follows its last
local people = ls.dict("people") -- ROOM -> { version =, ids = { [name] = id }, windows = { [name] = connections } }

local function topic(room) return "room " .. room end

-- A name or a room: letters, digits, and what is not ASCII.
local function valid(name) return name and #name <= NAME_MAX and name:find("^[%w_\x80-\xff-]+$") and utf8.len(name) end

local function list_of_people(present)
  local names = ls.json.array {}
  for name in pairs(present.ids) do names[#names + 1] = name end
  table.sort(names)
  return { people = names, version = present.version }
end

-- Change who is in a room, in one step for all Lua states, and tell the room. change(present, name) may return false.
local function update(room, change, ...)
  local allowed
  local args = table.pack(...)
  local present = people:update(room, function(old)
    local new = old or { version = 0, ids = {}, windows = {} }
    allowed = change(new, table.unpack(args, 1, args.n)) ~= false
    if allowed then new.version = new.version + 1 end
    return new
  end)
  if allowed then ls.publish(topic(room), list_of_people(present)) end
  return allowed
end

local function join(present, name, id)
  if present.ids[name] and present.ids[name] ~= id then return false end
  present.ids[name], present.windows[name] = id, (present.windows[name] or 0) + 1
end

local function leave(present, name)
  local windows = (present.windows[name] or 1) - 1
  present.windows[name] = windows > 0 and windows or nil
  if windows == 0 then present.ids[name] = nil end
end

-- Only under `order`.
local function say(room, name, text)
  local number = rooms:incr("last " .. room, 1, os.time() * 1000) -- also after a new start higher than all before
  local message = { number = number, name = name, text = text, at = os.time() }
  if rooms:rpush("messages " .. room, message) > MESSAGES_MAX then rooms:lpop("messages " .. room) end
  ls.publish(topic(room), { messages = { message } })
end

-- The messages that a room keeps, from after a number.
local function messages_after(room, number)
  local found = ls.json.array {}
  for _, message in ipairs(rooms:range("messages " .. room)) do
    if message.number > number then found[#found + 1] = message end
  end
  return found
end

app:get("/", function(_, res) return res:redirect("/lobby") end)
app:get("/:room", function(req, res)
  if not valid(req.params.room) then return 404 end
  return res:file("chat.html")
end)

app:ws("/:room/live", { max_message = TEXT_MAX, compress = true }, function(ws, req)
  local room, name, id = req.params.room, req.query.name, req.query.id
  if not valid(room) or not valid(name) or not id then
    return ws:close(INVALID, "a name has at most " .. NAME_MAX .. " letters and digits")
  end
  if not update(room, join, name, id) then return ws:close(TAKEN, "this name is in use") end
  local _ <close> = setmetatable({}, { __close = function() update(room, leave, name) end })
  -- No message is published between the two, and none arrives before the older ones.
  local missed = order:with(function()
    ws:subscribe(topic(room))
    return messages_after(room, tonumber(req.query.after) or 0)
  end)
  ws:send(ls.json.encode { messages = missed })
  ws:send(ls.json.encode(list_of_people(people:get(room))))
  for text, kind in ws:messages() do
    if kind == "text" and text:find("%S") then order:with(say, room, name, text) end
  end
end)

ls.listen(... or 8080, app)
