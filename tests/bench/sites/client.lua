-- client.lua - a reverse proxy, its cache, and a handler that fetches: the site of the sections client-*.
--
--   luaserve client.lua ADDRESS UPSTREAM ECHO HANG [CERTIFICATE KEY | cache]
--
-- UPSTREAM, ECHO and HANG are ports of 127.0.0.1: of files, of a WebSocket echo, and of a server that never answers.
-- With `cache`, /cached is answered out of the cache of app:proxy.
local ls = require "luaserve"

local address, upstream, echo, hang, cert, key = ...
assert(hang, "usage: luaserve client.lua ADDRESS UPSTREAM ECHO HANG [CERTIFICATE KEY | cache]")
local function at(port) return "http://127.0.0.1:" .. port end
local app = ls.app()
local url = at(upstream) .. "/"

app:get("/fetch", function() return ls.fetch(url):body() end)
app:get("/stats", function() return ls.stats() end)
app:proxy("/echo", at(echo))
app:proxy("/hang", at(hang), { timeout = 600 })
if cert == "cache" then
  app:proxy("/cached", at(upstream), { cache = { dict = ls.dict("responses", { size = "16m", evict = true }) } })
end
app:proxy("/", at(upstream))

ls.listen("127.0.0.1:" .. address, app, { timeout = 600, tls = key and { cert = cert, key = key } or nil })
