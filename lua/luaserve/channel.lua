-- channel.lua - ls.channel and ls.semaphore: checks names, options and numbers for the core.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

local channel = {}

local channel_options = {
  capacity = { "capacity", "count", 1, 10000000, 1000 }, -- number of values that it holds
}
local semaphore_options = {
  redis = true, -- boolean|Redis - keep the permits in Redis, for several servers: that of ls.config, or this client
}
channel.calls = {
  ["ls.channel"] = { channel_options }, -- ChannelOptions
  ["ls.semaphore"] = { semaphore_options }, -- SemaphoreOptions
}
local name_bytes_max = 100 -- LS_SHARED_NAME_BYTES_MAX
local permits_max = 1000000

local function check_name(fname, name)
  usage.refuse(type(name) ~= "string" or name == "" or #name > name_bytes_max or name:find("%c"), name,
    "%s: name must be a string of 1 to %d bytes without control characters", fname, name_bytes_max)
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
  usage.check(given, "table?", "ls.channel: options must be a table such as { capacity = 100 }")
  local out = options.take("ls.channel", given or {}, channel.calls["ls.channel"], {})
  local found, before = core.channel(name, given and given.capacity and out.capacity, usage.where())
  if not found then conflict("ls.channel", name, "capacity", before) end
  if core.dev then require("luaserve.dev_state").watch_channel(found) end
  return found
end

local in_redis = {} -- by name; the semaphores of this state whose permits are in Redis

local function semaphore_in_redis(name, permits, redis)
  local client = require("luaserve.redis_topics").client_of("ls.semaphore", redis)
  local redis_semaphore = require "luaserve.redis_semaphore"
  in_redis[name] = in_redis[name] or redis_semaphore.new(name, permits, client)
  local number, other = redis_semaphore.parts_of(in_redis[name])
  if number ~= permits then conflict("ls.semaphore", name, "number of permits", "another line") end
  if other ~= client then conflict("ls.semaphore", name, "redis", "another line") end
  return in_redis[name]
end

-- ls.semaphore(name, permits: integer [, options: SemaphoreOptions]) -> semaphore
-- Finds the semaphore of this name, or makes it: permits that tasks of all Lua states share. Raises when another call of
-- the site gives another number.
function channel.semaphore(name, permits, given, ...)
  usage.no_more("ls.semaphore(name, permits, options)", given, ...)
  check_name("ls.semaphore", name)
  local number = type(permits) == "number" and math.tointeger(permits)
  usage.refuse(not number or number < 1 or number > permits_max, permits,
    "ls.semaphore: the number of permits must be a whole number from 1 to %d", permits_max)
  usage.check(given, "table?", "ls.semaphore: options must be a table such as { redis = true }")
  options.check_names("ls.semaphore", given or {}, semaphore_options)
  if given and given.redis then return semaphore_in_redis(name, number, given.redis) end
  if in_redis[name] then conflict("ls.semaphore", name, "redis", "another line") end
  local found, before = core.semaphore(name, number, usage.where())
  if not found then conflict("ls.semaphore", name, "number of permits", before) end
  if core.dev then require("luaserve.dev_state").watch_semaphore(found) end
  return found
end

return channel
