-- sse.lua - the options of res:sse. lua/docs/reference/sse.md documents them.

local usage = require "luaserve.usage"
local options = require "luaserve.options"
usage.mark_internal()

local sse = {}

local uint32_max = 2 ^ 32 - 1
local limits = {
  retry = { "retry_ms", "seconds", 0, uint32_max },
  keepalive = { "keepalive_ms", "seconds", 1, uint32_max, none = 0 },
  max_queue = { "queue_bytes_max", "size", 1, uint32_max },
}
local known = options.merged(limits, { headers = true, overflow = true })

-- The tables of options, for the tests.
sse.known, sse.specs = { ["res:sse"] = known }, { ["res:sse"] = limits }

-- options(given) -> the table for the core. Raises.
function sse.options(given)
  local where = "res:sse"
  if type(given) ~= "table" then
    usage.error("%s takes a table of options, such as { retry = 2 }; got %s", where, usage.quote(given))
  end
  options.check_names(where, given, known)
  local out = options.read_all(where, given, limits, {})
  if given.headers ~= nil and type(given.headers) ~= "table" then
    usage.error('%s: headers must be a table such as { ["X-A"] = "b" }; got %s', where, usage.quote(given.headers))
  end
  out.skip, out.headers = options.skips(where, given.overflow), given.headers
  return out
end

return sse
