-- app.lua - the items of the API.
--
--   GET    /items          all items                          200
--   POST   /items          { title [, done] }                 201, Location
--   GET    /items/:id                                         200, 404
--   PATCH  /items/:id      { title or done or both }          200, 404
--   DELETE /items/:id                                         204, 404
--
-- An item that is not valid is answered with 400 and { error, fields }; a body that is no JSON object with 400 and a text.

local ls = require "luaserve"

local TITLE_BYTES_MAX = 200

local app = ls.app()

-- Dicts are shared by all Lua states, and survive a reload; they end with the server.
local items = ls.dict("items") -- the items by their id; when it is full, it refuses further ones
local numbers = ls.dict("numbers")                -- "item": the id that was given last

-- The id in the path; 0, which no item has, if it has other characters than digits.
local function id_of(req) return math.tointeger(req.params.id:match "^%d+$") or 0 end

-- check(given, required) -> nil, or a table from the name of a field to what is wrong with it
local function check(given, required)
  local wrong = {}
  local title, done = given.title, given.done
  if title == nil then
    if required then wrong.title = "is missing" end
  elseif type(title) ~= "string" or not title:find("%S") then
    wrong.title = "must be a text that is not empty"
  elseif #title > TITLE_BYTES_MAX then
    wrong.title = "must have at most " .. TITLE_BYTES_MAX .. " bytes"
  end
  if done ~= nil and type(done) ~= "boolean" then wrong.done = "must be true or false" end
  for name in pairs(given) do
    if name ~= "title" and name ~= "done" then wrong[name] = "is unknown" end
  end
  return next(wrong) and wrong
end

app:get("/items", function()
  local ids, list = items:keys(), ls.json.array {}
  table.sort(ids)
  for _, id in ipairs(ids) do list[#list + 1] = items[id] end
  return list
end)

app:post("/items", function(req)
  local given = req:json { object = true } -- any other body is answered with 400
  local wrong = check(given, true)
  if wrong then return 400, { error = "the item is not valid", fields = wrong } end
  local id = numbers:incr("item")
  local item = { id = id, title = given.title, done = given.done or false }
  local stored, message = items:set(id, item)
  if not stored then return 507, { error = message } end -- the dict is full
  return 201, item, { Location = "/items/" .. id }
end)

app:get("/items/:id", function(req)
  return items[id_of(req)] or 404
end)

app:patch("/items/:id", function(req)
  local given = req:json { object = true }
  local wrong = check(given, false)
  if wrong then return 400, { error = "the item is not valid", fields = wrong } end
  local item, message = items:update(id_of(req), function(item)
    if not item then return nil end
    if given.title ~= nil then item.title = given.title end
    if given.done ~= nil then item.done = given.done end
    return item
  end)
  if message then return 507, { error = message } end
  return item or 404
end)

app:delete("/items/:id", function(req)
  return items:delete(id_of(req)) and 204 or 404
end)

return app
