-- sse.lua - the options of res:sse. lua/docs/reference/sse.md documents them.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

local sse = {}

local uint32_max = 2 ^ 32 - 1
local stream_options = {
  retry = { "retry_ms", "seconds", 0, core.sse_retry_ms_max }, -- seconds that a client waits before it connects again
  keepalive = { "keepalive_ms", "seconds", 1, uint32_max, 15, none = 0 }, -- seconds without an event before a comment
  max_queue = { "queue_bytes_max", "size", 1, uint32_max, "1m" }, -- above it a message of a topic is not sent
  overflow = { "overflow", "choice", "close", "skip", "close" }, -- the response ends, or the message is dropped
  headers = true, -- Headers - header fields of the response
}
sse.calls = { ["res:sse"] = { stream_options } } -- SseOptions

local default_options

-- options(given) -> the table for the core. Raises.
function sse.options(given)
  local where = "res:sse"
  if given == nil then
    default_options = default_options or options.take(where, {}, sse.calls[where], {})
    return default_options
  end
  usage.check(given, "table", "%s takes a table of options, such as { retry = 2 }", where)
  local out = options.take(where, given, sse.calls[where], {})
  usage.check(given.headers, "table?", '%s: headers must be a table such as { ["X-A"] = "b" }', where)
  out.skip, out.headers = out.overflow == "skip", given.headers
  return out
end

return sse
