-- site.lua - one of several servers of a chat with a counter: the messages are in PostgreSQL, and Redis carries them to
-- the pages of all servers. examples/cluster/start starts three of them behind HAProxy.
--
--   PUT /messages/ID      stores a message, once: a client, or HAProxy, may send it again when a server was lost
--   GET /messages         the latest ones
--   GET /count            the number of all
--   GET /live             a WebSocket that gets each new one, some of them twice
--   GET /up               for HAProxy: the name of the server

local ls = require "luaserve"

local NAME = ls.env "SERVER_NAME"
local SHOWN, TEXT_MAX = 50, 1000 -- messages of a page, bytes of one

ls.config{ redis = ls.env "REDIS_URL" }
local pg = ls.postgres(ls.env "DATABASE_URL")
local app = ls.app()

ls.init(function()
  pg:migrate {
    "create table messages (number bigserial primary key, id text unique not null, text text not null, server text not null)",
  }
end)

app:use(function(_, res, next)
  res:header("X-Server", NAME) -- before next(): a WebSocket begins inside it
  next()
end)

app:put("/messages/:id", function(req)
  local text = req:body()
  if #text == 0 or #text > TEXT_MAX or not utf8.len(text) then
    return 400, "a message has 1 to " .. TEXT_MAX .. " bytes of UTF-8\n"
  end
  local id = req.params.id
  local row = pg:one("insert into messages (id, text, server) values ($1, $2, $3) on conflict (id) do nothing "
    .. "returning number, text, server", id, text, NAME)
  local stored = row ~= nil
  row = row or pg:one("select number, text, server from messages where id = $1", id)
  -- Also when it was stored before: the server that stored it may have been lost before it published it.
  ls.publish("messages", { number = row.number, id = id, text = row.text, server = row.server })
  return stored and 201 or 200, stored and "stored\n" or "stored before\n"
end)

app:get("/messages", function()
  return pg:query("select number, id, text, server from messages order by number desc limit $1", SHOWN)
end)

app:get("/count", function() return pg:one("select count(*) as count from messages") end)
app:ws("/live", { open = function(ws) ws:subscribe("messages") end })
app:get("/up", function() return NAME .. "\n" end)
app:get("/", function(_, res) return res:file("page.html") end)

ls.listen("unix:" .. ls.env "SOCKET", app)
