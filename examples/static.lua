-- static.lua - serves a folder of files.
--
--   luaserve examples/static.lua                   the folder c beside it: then open http://127.0.0.1:8080/
--   luaserve examples/static.lua DIR               another one, in which this file does not lie
--   luaserve examples/static.lua DIR '*:80'        on all addresses of this machine, port 80
--
-- A folder without index.html is listed. Files get ranges, conditional requests and cached validators:
--   curl -r 0-99 http://127.0.0.1:8080/some/file
--   curl -C - -O http://127.0.0.1:8080/some/large/file

local ls = require "luaserve"
local app = ls.app()

local folder, address = ...
folder = folder or ls.dir .. "/c"
if not folder:find("^%a?:?[/\\]") then folder = (os.getenv("PWD") or ".") .. "/" .. folder end -- not that of this file

app:static("/", folder, { list = true, precompressed = true, max_age = 0 })

ls.listen(address or 8080, app)
