-- site.lua - serves the pages of app.lua: luaserve site.lua [PORT]

local ls = require "luaserve"

ls.listen(... or 8080, require "app")
