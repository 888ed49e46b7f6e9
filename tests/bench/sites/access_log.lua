-- access_log.lua - hello with and without an access log and metrics: the site of the section access-log.
-- luaserve access_log.lua PORT [FILE]
local ls = require "luaserve"
local port, file = ...
local app = ls.app()
app:get("/", function() return "hello, world\n" end)
if file then app:metrics("/metrics") end
ls.listen("127.0.0.1:" .. port, app, { access_log = file })
