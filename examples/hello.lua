-- hello.lua - the smallest site: two routes.
--
--   luaserve examples/hello.lua                        serves http://127.0.0.1:8080/ and http://[::1]:8080/
--   luaserve examples/hello.lua '*:80'                 serves all addresses of this machine, on port 80
--   curl http://127.0.0.1:8080/
--   curl http://127.0.0.1:8080/hello/world

local ls = require "luaserve"
local at = ... or 8080 -- the first argument after the name of this file

local app = ls.app()
app:get("/", function() return "hello\n" end)
app:get("/hello/:name", function(req) return "hello, " .. req.params.name .. "\n" end)

ls.listen(at, app)
