-- dev_state.lua - what dev mode warns of: programs that work with one request by hand and fail under load, after a reload or with
-- several Lua states. The rules are in dev/, by what they look at; luaserve calls the functions of this table.

local site = require "luaserve.dev.site"
local tasks = require "luaserve.dev.tasks"
local top = require "luaserve.dev.top"
local variables = require "luaserve.dev.variables"

local state = { warn_here = site.here }
for _, name in ipairs { "variables", "top", "tasks", "dicts", "sql", "topics", "requests", "handlers" } do
  for key, fn in pairs(require("luaserve.dev." .. name)) do state[key] = fn end
end

local write_line = print

-- print of the site.
local function print_values(...)
  for n = 1, select("#", ...) do
    local value = select(n, ...)
    local meta = type(value) == "table" and debug.getmetatable(value)
    if type(value) == "table" and not (meta and rawget(meta, "__tostring")) then
      site.here("print shows the address of a table: write print(ls.inspect(t))")
    end
  end
  return write_line(...)
end

-- state.begin(): before the site is loaded.
function state.begin()
  print = print_values -- luacheck: ignore 121
  for _, part in ipairs { site, variables, top, tasks, require "luaserve.dev.dicts" } do part.begin() end
end

-- state.arm(): the site is loaded.
function state.arm()
  top.finish(tasks.open)
  variables.arm()
  site.loaded = true
end

-- state.check(): a task waits or has ended; reports what has changed since the last call.
function state.check()
  if not site.loaded then return end
  tasks.runs = tasks.runs + 1
  top.check()
  variables.check()
end

return state
