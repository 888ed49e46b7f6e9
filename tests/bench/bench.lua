-- bench.lua: the site that scripts/bench measures.   luaserve bench.lua PORT
local ls = require "luaserve"

local port = assert(tonumber((...)), "usage: luaserve bench.lua PORT")
local app = ls.app()
local big = ("0123456789abcdef"):rep(65536) -- 1 MiB

local function hello() return "hello, world\n" end

app:get("/", hello)
app:get("/fast", hello)

-- Route, query and JSON; tests/bench/nginx.lua does the same.
app:get("/api/items/:id", function(req)
  local query = req.query
  return { id = req.params.id, lang = query.lang or "en", page = tonumber(query.page) or 1 }
end)

-- Data that all states share; tests/bench/nginx.lua does the same with ngx.shared, and JSON for the table.
if rawget(ls, "dict") then -- the program of --before may be older
  local shared = ls.dict("shared", { size = "16m" })
  shared:set("user", { id = 1042, name = "Ada Lovelace", mail = "ada@example.org", city = "London", country = "GB",
    visits = 310, score = 12.5, admin = true, plan = "team", since = "1842-07-10" })
  app:get("/dict/incr", function() return tostring(shared:incr("hits")) end)
  app:get("/dict/get", function()
    local user = shared.user
    return user.name .. ", " .. user.city .. ", " .. user.visits
  end)
end

-- A handler that computes for one second, and one that blocks in a C call for as long.
app:get("/busy", function()
  local stop, sum = ls.now() + 1, 0
  repeat
    for i = 1, 1000 do sum = sum + i end
  until ls.now() >= stop
  return "busy\n"
end)
app:get("/block", function()
  os.execute("sleep 1")
  return "blocked\n"
end)

app:get("/big", function() return big end)
app:post("/echo", function(req) return req:buffer() end)
app:get("/stats", function() return ls.stats() end)

ls.listen("127.0.0.1:" .. port, app) -- also with programs of before
