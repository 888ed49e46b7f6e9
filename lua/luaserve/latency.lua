-- latency.lua - begins to count the requests of a site by route: for the status page and metrics, which read
-- core.latencies().

local core = require "luaserve.core"

local latency = {}
local wanted = false

-- want(): all listeners of the site count. Only while the site loads; further calls have no effect.
function latency.want()
  if wanted then return end
  wanted = true
  core.count_latency()
  require("luaserve.records").want()
end

return latency
