-- env.lua - ls.env: variables of the environment.

local usage = require "luaserve.usage"

local getenv, select, type = os.getenv, select, type -- a site may replace the globals

local env = {}

-- Variables that have a value when they are not set.
local usual = { LUASERVE_ENV = "production" }

-- ls.env(name [, default: any]) -> value: any
-- The variable of the environment, a string, or the default. Raises when the variable is not set and there is no default.
-- `LUASERVE_ENV` is "development" for `luaserve dev`, "test" for `luaserve test`, else "production" unless it is set.
function env.read(...)
  local name, default = ...
  usage.refuse(type(name) ~= "string" or name == "" or name:find("[=\0]"), name,
    'ls.env takes the name of a variable, such as "DATABASE_URL"')
  usage.no_more("ls.env(name, default)", default, select(3, ...))
  local value = getenv(name) or usual[name]
  if value == nil and select("#", ...) < 2 then
    usage.error("ls.env: the environment variable %s is not set; set it, or give a default: ls.env(%q, default)", name,
      name)
  end
  if value == nil then return default end
  return value
end

return env
