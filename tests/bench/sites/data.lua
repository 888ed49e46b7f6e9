-- data.lua - a row of SQLite, of Redis and of PostgreSQL per request: the site of the sections data-*. bun.js, node.js and
-- peers.lua do the same.
--
--   luaserve data.lua PORT sqlite FILE | redis URL | postgres URL
--
-- Without that module the program ends with status 3.
local ls = require "luaserve"

local port, kind, where = ...
assert(where, "usage: luaserve data.lua PORT sqlite FILE | redis URL | postgres URL")
local app = ls.app()
local has, open = pcall(function() return ls[kind] end)
if not has or not open then
  io.stderr:write("there is no ls." .. kind .. "\n")
  os.exit(3)
end

app:get("/", function() return "hello, world\n" end)
app:get("/fast", function() return "hello, world\n" end)
if kind == "sqlite" then
  local db = open(where, { readers = 1, sync = false }) -- sync = false: pragma synchronous = normal
  db:migrate { [[create table item (id integer primary key, name text not null);
    create table event (id integer primary key, text text not null);
    insert into item(name) with recursive c(n) as (select 1 union all select n + 1 from c where n < 1000)
      select 'item ' || n from c]] }
  app:get("/rows/:id", function(req)
    return db:one("select name from item where id = ?", tonumber(req.params.id)).name
  end)
  app:get("/insert", function()
    return tostring(db:exec("insert into event(text) values (?)", "a request").changes)
  end)
  app:get("/events", function() return tostring(db:one("select count(*) as n from event").n) end)
  app:get("/busy", function() -- the reader, for a second
    local sql = "with recursive c(n) as (select 1 union all select n + 1 from c where n < ?) select max(n) as n from c"
    local numbers, stop = 400000, ls.now() + 1
    repeat assert(db:one(sql, numbers).n == numbers) until ls.now() >= stop
    return "busy\n"
  end)
elseif kind == "redis" then
  local redis = open(where)
  app:get("/get", function() return redis:get("user:42") end)
else
  local pg = open(where)
  app:get("/rows/:id", function(req)
    return pg:one("select name from item where id = $1", tonumber(req.params.id)).name
  end)
end

ls.listen("127.0.0.1:" .. port, app)
