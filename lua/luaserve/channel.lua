-- channel.lua - ls.channel and ls.semaphore: checks names, options and numbers for the core.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
usage.mark_internal()

local channel = {}

local channel_options = {
  capacity = { "capacity", "count", 1, 10000000, 1000 }, -- number of values that it holds
}
channel.calls = {
  ["ls.channel"] = { channel_options }, -- ChannelOptions
}
local name_bytes_max = 100 -- LS_SHARED_NAME_BYTES_MAX
local permits_max = 1000000

local function check_name(fname, name)
  if type(name) ~= "string" or name == "" or #name > name_bytes_max or name:find("%c") then
    usage.error("%s: name must be a string of 1 to %d bytes without control characters; got %s", fname, name_bytes_max,
      usage.quote(name))
  end
end

-- Raise: the call at this line and the one at `before` give different numbers.
local function conflict(fname, name, what, before)
  usage.error("%s: %s is defined with another %s at %s; give the same in both places", fname, usage.quote(name), what,
    before)
end

-- ls.channel(name [, options: ChannelOptions]) -> channel
-- Finds the channel of this name, or makes it: a queue of values between tasks of all Lua states. Raises when another call
-- of the site gives another capacity.
function channel.channel(name, given, ...)
  usage.no_more("ls.channel(name, options)", given, ...)
  check_name("ls.channel", name)
  if given ~= nil and type(given) ~= "table" then
    usage.error("ls.channel: options must be a table such as { capacity = 100 }; got %s", usage.quote(given))
  end
  local out = options.take("ls.channel", given or {}, channel.calls["ls.channel"], {})
  local found, before = core.channel(name, given and given.capacity and out.capacity, usage.where())
  if not found then conflict("ls.channel", name, "capacity", before) end
  return found
end

-- ls.semaphore(name, permits: integer) -> semaphore
-- Finds the semaphore of this name, or makes it: permits that tasks of all Lua states share. Raises when another call of
-- the site gives another number.
function channel.semaphore(name, permits, ...)
  usage.no_more("ls.semaphore(name, permits)", permits, ...)
  check_name("ls.semaphore", name)
  local number = type(permits) == "number" and math.tointeger(permits)
  if not number or number < 1 or number > permits_max then
    usage.error("ls.semaphore: the number of permits must be a whole number from 1 to %d; got %s", permits_max,
      usage.quote(permits))
  end
  local found, before = core.semaphore(name, number, usage.where())
  if not found then conflict("ls.semaphore", name, "number of permits", before) end
  if core.dev then require("luaserve.dev_state").watch_semaphore(found) end
  return found
end

return channel
