-- store.lua - the items, { id, title, done }, in a dict. They survive a reload and end with the server, because the
-- luaserve that made this site has no SQLite. The functions raise when the dict is full.

local ls = require "luaserve"

local items, ids = ls.dict("items"), ls.dict("ids") -- the items by their id; "item": the id that was given last

local store = {}

-- The first `limit` items after the id `after`, by their ids. done: nil for all, or those with this value.
function store.items(after, limit, done)
  local found, last = ls.json.array {}, ids:get("item") or 0
  for id = after + 1, last do
    local item = items:get(id)
    if item and (done == nil or item.done == done) then found[#found + 1] = item end
    if #found == limit then break end
  end
  return found
end

function store.item(id) return items:get(id) end

-- add(item) -> the item with its id
function store.add(item)
  item.id = ids:incr("item")
  items:set(item.id, item)
  return item
end

-- change(id, fields) -> the new item | nil
function store.change(id, fields)
  local item, message = items:update(id, function(item)
    if not item then return nil end
    if fields.title ~= nil then item.title = fields.title end
    if fields.done ~= nil then item.done = fields.done end
    return item
  end)
  assert(not message, message)
  return item
end

function store.delete(id) return items:delete(id) end

function store.clear() items:clear() end

return store
