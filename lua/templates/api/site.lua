-- site.lua - serves the API of app.lua: API_TOKEN=... luaserve site.lua [PORT]

local ls = require "luaserve"

ls.listen(... or 8080, require "app", { max_body = "64k" })
