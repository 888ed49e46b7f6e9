-- stress/script.lua - what scripts have of luaserve: `require "luaserve"` gives pure functions of the module of sites.

local HAS = 'ls.json, ls.url.encode, decode, query and build, and ls.crypto.base64, base64url and hex of '
  .. 'require "luaserve" (see "Functions for scripts" in the manual of luaserve stress)'

-- A table of such functions. A name that only sites have raises.
local function strict(title, t)
  local usage = require "luaserve.usage"
  return setmetatable(t, { __index = function(_, name)
    usage.error("scripts of luaserve stress do not have %s.%s; they have %s", title, name, HAS)
  end })
end

local function open()
  local url = require "luaserve.url"
  return strict("ls", {
    json = require("luaserve.usage").strict("ls.json", require "luaserve.json"),
    url = strict("ls.url", {
      encode = require("luaserve.core").url_encode, decode = url.decode, query = url.query, build = url.build,
    }),
    crypto = strict("ls.crypto", require "luaserve.text_code"),
  })
end

-- define(native): before the script is loaded. A script for wrk looks up absent globals for each request: they stay plain.
return function(native)
  package.preload.luaserve = open
  table.insert(package.searchers, 2, function(name) return name == "json" and "scripts have " .. HAS or nil end)
  if not native then return end
  setmetatable(_G, { __index = function(_, name)
    if name == "ls" or name == "json" then error(name .. " is no global; scripts have " .. HAS, 2) end
  end })
end
