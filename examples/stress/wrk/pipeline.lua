-- pipeline.lua - three requests in one string: sent in one packet, followed by three responses.
-- luacheck: std luajit, no unused args, globals wrk init request
local all

function init(args)
  local parts = {}
  for i, path in ipairs { "/", "/hello/a", "/hello/b" } do parts[i] = wrk.format("GET", path) end
  all = table.concat(parts)
end

function request() return all end
