-- drawing.lua - a drawing board that everybody shares, and its page drawing.html.
--
--   luaserve examples/live/drawing.lua [address]      default: port 8080; open http://127.0.0.1:8080/ in two windows
--
-- A page sends its strokes at most 30 times a second. The site publishes all strokes that have arrived within a thirtieth
-- of a second as one message: with many people who draw, a page receives 30 messages a second from each Lua state, not 30
-- from each of them.
--
-- The server sends JSON:
--   { "hello": 3, "hue": 52, "picture": 1 }             for this page: its number, its colour
--   { "picture": 1, "strokes": [{ "hue": 52, "width": 4, "points": [10, 20, 30, 40] }] }
--   { "picture": 2, "strokes": [] }                     a new number: the board was cleared
-- A page sends { "strokes": [{ "width": 4, "points": [...] }] } or { "clear": true }. A stroke is a line through points,
-- x and y in turn, on a board of 1000 by 625.

local ls = require "luaserve"

local WIDTH, HEIGHT = 1000, 625
local POINTS_MAX, STROKES_MAX = 400, 50 -- numbers of a stroke, strokes of a message
local KEPT_MAX = 5000                   -- messages of the picture
local BATCH = 1 / 30

local app = ls.app()
local board = ls.dict("board", { size = "64m" }) -- "people": a count; "picture": its number; "strokes": a list of messages

local waiting -- of this state: the strokes that are not published yet, or nil

local function picture() return board:get("picture") or 1 end

local function publish()
  local message = { picture = picture(), strokes = waiting }
  waiting = nil
  if board:rpush("strokes", message) > KEPT_MAX then board:lpop("strokes") end
  ls.publish("board", message)
end

local function is_number(value, min, max) return math.type(value) and value >= min and value <= max end

-- The stroke that others get; nil if it is not valid.
local function checked(stroke, hue)
  if type(stroke) ~= "table" or type(stroke.points) ~= "table" or not is_number(stroke.width, 1, 40) then return end
  local count = #stroke.points
  if count < 2 or count % 2 == 1 or count > POINTS_MAX then return end
  for i, value in ipairs(stroke.points) do
    if not is_number(value, 0, i % 2 == 1 and WIDTH or HEIGHT) then return end
  end
  return { hue = hue, width = stroke.width, points = stroke.points }
end

local function draw(strokes, hue)
  if type(strokes) ~= "table" or #strokes > STROKES_MAX then return end
  for _, stroke in ipairs(strokes) do
    stroke = checked(stroke, hue)
    if stroke then
      if not waiting then
        waiting = ls.json.array {}
        ls.after(BATCH, publish)
      end
      waiting[#waiting + 1] = stroke
    end
  end
end

local function clear()
  waiting = waiting and ls.json.array {}
  board:delete("strokes")
  ls.publish("board", { picture = board:incr("picture", 1, 1), strokes = ls.json.array {} })
end

app:get("/", function(_, res) return res:file("drawing.html") end)

-- The event form: an idle connection has no coroutine.
app:ws("/board", {
  max_message = "64k",
  compress = true,

  open = function(ws)
    local number = board:incr("people")
    ws.hue = number * 137 % 360 -- neighbours on the list get distant colours
    ws:send(ls.json.encode { hello = number, hue = ws.hue, picture = picture() })
    -- First subscribe, then send the picture: nothing is missed. A stroke that arrives twice is drawn at the same place.
    ws:subscribe("board")
    for _, message in ipairs(board:range("strokes")) do ws:send(ls.json.encode(message)) end
  end,

  message = function(ws, data)
    local message = ls.json.decode(data)
    if type(message) ~= "table" then return ws:close(1007, "JSON is expected") end
    if message.clear then clear() else draw(message.strokes, ws.hue) end
  end,
})

ls.listen(... or 8080, app)
