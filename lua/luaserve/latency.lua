-- latency.lua - the requests of a site by route: for the status page and metrics. src/http/access/latency.h has their cells.

local core = require "luaserve.core"

local latency = {}
local wanted = false

local BUCKETS, METHODS = 43, 10
local US, STATUSES = BUCKETS, BUCKETS + 7

latency.FIRST_US = 50 -- bucket n from 1 on has the times up to FIRST_US * 2^((n - 1) / 2), the last one all longer ones

-- want(): all listeners of the site count. Only while the site loads; further calls have no effect.
function latency.want()
  if wanted then return end
  wanted = true
  core.count_latency()
  require("luaserve.records").want()
end

-- buckets(cells) -> the counts of the buckets up to the last one that has any, and their sum. `cells`: of core.latencies().
function latency.buckets(cells) return core.metric_read(cells, BUCKETS, true) end

-- sums(cells) -> { microseconds, bytes received, bytes sent, complete, left, aborted, refused }
function latency.sums(cells) return (core.metric_read(cells + US, STATUSES - US)) end

-- statuses(cells, class) -> the counts of the class of status, 1 to 5, by method as of ls_http_method, and their sum
function latency.statuses(cells, class) return core.metric_read(cells + STATUSES + (class - 1) * METHODS, METHODS) end

return latency
