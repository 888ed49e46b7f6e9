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
