-- site.lua - serves the API of app.lua: luaserve site.lua [PORT]

local ls = require "luaserve"

ls.listen(... or 8080, require "app")
