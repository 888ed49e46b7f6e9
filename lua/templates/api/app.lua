-- app.lua - the items of the API. The module returns a function, so that each test has an app without items.
--
--   GET    /items          all items                          200
--   POST   /items          { title [, done] }                 201, Location
--   GET    /items/:id                                         200, 404
--   PATCH  /items/:id      { title or done or both }          200, 404
--   DELETE /items/:id                                         204, 404
--
-- A request that is not valid is answered with 400 and { error, fields }.

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

return function()
  local app = ls.app()
  local items, last_id = {}, 0

  -- The item that the path names, or nil.
  local function item_of(req) return items[math.tointeger(tonumber(req.params.id))] end

  app:get("/items", function()
    local list = ls.json.array {}
    for id = 1, last_id do list[#list + 1] = items[id] end
    return list
  end)

  app:post("/items", function(req)
    local given = req:json { object = true } -- any other body is answered with 400
    local wrong = check(given, true)
    if wrong then return 400, { error = "the item is not valid", fields = wrong } end
    last_id = last_id + 1
    items[last_id] = { id = last_id, title = given.title, done = given.done or false }
    return 201, items[last_id], { Location = "/items/" .. last_id }
  end)

  app:get("/items/:id", function(req)
    return item_of(req) or 404
  end)

  app:patch("/items/:id", function(req)
    local item = item_of(req)
    if not item then return 404 end
    local given = req:json { object = true }
    local wrong = check(given, false)
    if wrong then return 400, { error = "the item is not valid", fields = wrong } end
    if given.title ~= nil then item.title = given.title end
    if given.done ~= nil then item.done = given.done end
    return item
  end)

  app:delete("/items/:id", function(req)
    local item = item_of(req)
    if not item then return 404 end
    items[item.id] = nil
    return 204
  end)

  return app
end
