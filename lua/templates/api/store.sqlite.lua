-- store.lua - the items, { id, title, done }, in the database data/site.db. The functions raise when it cannot be used.

local ls = require "luaserve"

-- Tests have a database of their own, in memory.
local path = ":memory:"
if ls.env "LUASERVE_ENV" ~= "test" then
  assert(ls.file.mkdir(ls.data .. "/data", { parents = true }))
  path = ls.data .. "/data/site.db"
end

local db = ls.sqlite(path)
db:migrate { -- add further ones at the end: each runs once
  "create table item (id integer primary key autoincrement, title text not null, done boolean not null)",
}

local store = {}

-- The first `limit` items after the id `after`, by their ids. done: nil for all, or those with this value.
function store.items(after, limit, done)
  return db:query([[select * from item where id > :after and (:done is null or done = :done)
    order by id limit :limit]], { after = after, limit = limit, done = done })
end

function store.item(id) return db:one("select * from item where id = ?", id) end

-- add(item) -> the item with its id
function store.add(item) return db:one("insert into item(title, done) values(:title, :done) returning *", item) end

-- change(id, fields) -> the new item | nil
function store.change(id, fields)
  return db:one("update item set title = coalesce(:title, title), done = coalesce(:done, done) where id = :id returning *",
    { id = id, title = fields.title, done = fields.done })
end

function store.delete(id) return db:exec("delete from item where id = ?", id).changes == 1 end

function store.clear() db:exec("delete from item") end

return store
