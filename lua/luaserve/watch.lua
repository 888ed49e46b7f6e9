-- watch.lua - ls.watch: further files whose change loads the site of `luaserve dev` again.

local core = require "luaserve.core"
local file = require "luaserve.file"
local usage = require "luaserve.usage"

local ipairs, max, select, type = ipairs, math.max, select, type -- a site may replace the globals

local watch = {}

local levels_max = 16

local function add(path, level)
  local entries = level <= levels_max and file.list(path, { details = true })
  if not entries then return core.dev.file(core.site_path(path), "data") end
  for _, entry in ipairs(entries) do
    if entry.type ~= "other" and entry.name:sub(1, 1) ~= "." then add(path .. "/" .. entry.name, level + 1) end
  end
end

-- ls.watch(what: string|Views, ...: string|Views)
-- For `luaserve dev`: a change of these files, or of those that are below these folders now, loads the site again. What
-- `ls.templates` returns may be given, too; its files are watched anyway. Without dev mode it does nothing.
function watch.add(...)
  for i = 1, max(1, select("#", ...)) do
    local what = select(i, ...)
    local is_views = type(what) == "table" and require("luaserve.template").is(what)
    usage.refuse(not is_views and (type(what) ~= "string" or what == "" or what:find("\0", 1, true)), what,
      'ls.watch takes files and folders, such as "data/menu.csv"')
    if core.dev and not is_views then add(what, 1) end
  end
end

return watch
