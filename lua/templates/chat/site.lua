-- site.lua - a chat: luaserve site.lua [PORT], then open http://127.0.0.1:8080/ in two windows

local ls = require "luaserve"

ls.listen(... or 8080, require("chat").app)
