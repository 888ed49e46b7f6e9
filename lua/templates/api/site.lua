-- site.lua - serves the API of app.lua: luaserve site.lua [PORT]

local ls = require "luaserve"
local new_app = require "app"

-- Each Lua state runs this file and has its own variables. The items of app.lua are such a variable, so one state runs.
ls.config { threads_max = 1 }

ls.listen(... or 8080, new_app())
