-- ws.lua - the WebSocket site that scripts/bench measures, and the profile of scripts/build is made with; bun.js and
-- node.js do the same.
--
--   luaserve ws.lua ADDRESS [deflate | redis://...]
--
--   /echo       sends each message back: event form       /sub   subscribes to the topic
--   /coroutine  the same, coroutine form                  /pub   publishes each message to the topic
--   /sse        the topic as server-sent events           /slow  subscribes with a short queue and skips messages
local ls = require "luaserve"

local address, mode = ...
local deflate = mode == "deflate"
if mode and not deflate then ls.config { redis = mode } end
local TOPIC = "bench"
local app = ls.app()

local function subscribe(ws) ws:subscribe(TOPIC) end

app:get("/", function() return "hello, world\n" end)
app:get("/subscribers", function() return tostring(ls.topics()[TOPIC] or 0) end)
app:get("/stats", function() return ls.stats() end)
app:get("/sse", function(_, res)
  local sse = res:sse()
  sse:subscribe(TOPIC)
  sse:wait()
end)

app:ws("/echo", { compress = deflate, message = function(ws, data, kind) ws:send(data, kind) end })
app:ws("/coroutine", { compress = deflate }, function(ws)
  for data, kind in ws:messages() do ws:send(data, kind) end
end)
app:ws("/sub", { compress = deflate, open = subscribe })
app:ws("/slow", { compress = deflate, open = subscribe, max_queue = "64k", overflow = "skip" })
app:ws("/pub", { compress = deflate, message = function(_, data, kind) ls.publish(TOPIC, data, kind) end })
app:post("/pub", function(req) -- the same for a client without WebSocket
  ls.publish(TOPIC, req:body())
  return 204
end)

ls.listen(assert(address, "usage: luaserve ws.lua ADDRESS [deflate | redis://...]"), app)
