-- nginx.lua: what bench.lua does, for the Lua module of nginx (LuaJIT). Each answer tells its length, as those of
-- luaserve do, so that nginx does not chunk it.
local cjson = require "cjson"
local ngx = ngx -- luacheck: globals ngx

local function answer(body)
  ngx.header.content_length = #body
  ngx.print(body)
end

local handlers = {}

function handlers.hello() answer("hello, world\n") end

function handlers.item()
  local query = ngx.req.get_uri_args()
  answer(cjson.encode { id = ngx.var[1], lang = query.lang or "en", page = tonumber(query.page) or 1 })
end

function handlers.open() -- the dict
  ngx.shared.shared:set("user", cjson.encode { id = 1042, name = "Ada Lovelace", mail = "ada@example.org",
    city = "London", country = "GB", visits = 310, score = 12.5, admin = true, plan = "team", since = "1842-07-10" })
end

function handlers.dict_incr() answer(tostring(ngx.shared.shared:incr("hits", 1, 0))) end

function handlers.dict_get()
  local user = cjson.decode(ngx.shared.shared:get("user"))
  answer(user.name .. ", " .. user.city .. ", " .. user.visits)
end

function handlers.busy()
  ngx.update_time()
  local stop, sum = ngx.now() + 1, 0
  repeat
    for i = 1, 1000 do sum = sum + i end
    ngx.update_time()
  until ngx.now() >= stop
  answer("busy\n")
end

function handlers.block()
  os.execute("sleep 1")
  answer("blocked\n")
end

return handlers
