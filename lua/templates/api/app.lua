-- app.lua - the items of the API. They are in a dict: all Lua states share it, and it survives a reload of the site.
--
--   GET    /items          all items                          200
--   POST   /items          { title [, done] }                 201, Location
--   GET    /items/:id                                         200, 404
--   PATCH  /items/:id      { title or done or both }          200, 404
--   DELETE /items/:id                                         204, 404
--
-- A request that is not valid is answered with 400 and { error, fields }; 507: there is no memory for another item.

local ls = require "luaserve"

local TITLE_BYTES_MAX = 200

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

local app = ls.app()
local items = ls.dict("items", { size = "16m", evict = false }) -- by id; and "last id"

-- The id that the path names, or nil if there is no such item.
local function id_of(req)
  local id = math.tointeger(tonumber(req.params.id))
  return id and items[id] and id
end

app:get("/items", function()
  local list = ls.json.array {}
  for id = 1, items["last id"] or 0 do list[#list + 1] = items[id] end
  return list
end)

app:post("/items", function(req)
  local given = req:json { object = true } -- any other body is answered with 400
  local wrong = check(given, true)
  if wrong then return 400, { error = "the item is not valid", fields = wrong } end
  local id, message = items:incr("last id")
  if not id then return 507, { error = message } end
  local item = { id = id, title = given.title, done = given.done or false }
  local stored
  stored, message = items:set(id, item)
  if not stored then return 507, { error = message } end
  return 201, item, { Location = "/items/" .. id }
end)

app:get("/items/:id", function(req)
  return items[id_of(req) or 0] or 404
end)

app:patch("/items/:id", function(req)
  local id = id_of(req)
  if not id then return 404 end
  local given = req:json { object = true }
  local wrong = check(given, false)
  if wrong then return 400, { error = "the item is not valid", fields = wrong } end
  local item, message = items:update(id, function(old) -- the old item, which another request may just have deleted
    if not old then return nil end
    if given.title ~= nil then old.title = given.title end
    if given.done ~= nil then old.done = given.done end
    return old
  end)
  if message then return 507, { error = message } end
  return item or 404
end)

app:delete("/items/:id", function(req)
  local id = id_of(req)
  return id and items:delete(id) and 204 or 404
end)

return app
