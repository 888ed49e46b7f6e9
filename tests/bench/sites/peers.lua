-- peers.lua - the work of client.lua, pages.lua and data.lua in nginx with its Lua module. Each answer tells its length.
local ngx = ngx -- luacheck: globals ngx

local function answer(body)
  ngx.header.content_length = #body
  ngx.print(body)
end

local handlers, page = {}, nil

-- Before the workers start.
function handlers.open() page = require("values").page() end

-- A subrequest to the upstream of the location /up/.
function handlers.fetch() answer(ngx.location.capture("/up/").body) end

-- views/page.html by lua-resty-template, which keeps the compiled template.
function handlers.page()
  answer(require("resty.template").compile("page.html")(page))
end

-- nginx writes the body to a file, and removes it behind the response.
function handlers.upload()
  ngx.req.read_body()
  answer(ngx.req.get_body_file() and "saved" or "in memory")
end

-- A value of Redis, by lua-nginx-redis and its pool.
function handlers.redis()
  local client = require("nginx.redis"):new()
  assert(client:connect("127.0.0.1", tonumber(ngx.var.redis_port)))
  local value = assert(client:get("user:42"))
  client:set_keepalive(60000, 64)
  answer(value)
end

return handlers
