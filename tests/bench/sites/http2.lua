-- http2.lua - the site of the sections of HTTP/2, over TLS.   luaserve http2.lua PORT CERTIFICATE KEY
local ls = require "luaserve"

local port, cert, key = ...
local app = ls.app()
local big = ("0123456789abcdef"):rep(6400) -- 100 KiB
local huge = big:rep(102) -- about 10 MiB

app:get("/", function() return "hello, world\n" end)
app:get("/100k", function() return big end)
app:get("/10m", function() return huge end)
app:post("/hold", function(req) for _ in req:chunks() do end end)
app:ws("/ws", function(ws) for data in ws:messages() do ws:send(data) end end)
app:get("/stats", function() return ls.stats() end)
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
app:get("/sse", function(_, res)
  local sse = res:sse()
  sse:subscribe("bench")
  sse:wait()
end)
app:get("/subscribers", function() return tostring(ls.topics().bench or 0) end)
app:post("/pub", function(req)
  ls.publish("bench", req:body())
  return 204
end)

ls.listen("127.0.0.1:" .. port, app, { tls = { cert = cert, key = key } })
