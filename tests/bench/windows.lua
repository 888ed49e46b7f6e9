-- windows.lua: what scripts/bench --windows measures.   luaserve.exe windows.lua iocp|http.sys PORT
local ls = require "luaserve"

local engine, port = ...
local app = ls.app()
app:get("/", function() return "hello, world\n" end)

if engine == "http.sys" then
  ls.listen { engine = "http.sys", url = "http://127.0.0.1:" .. port .. "/", handler = app }
else
  ls.listen { host = "127.0.0.1", port = tonumber(port), handler = app }
end
