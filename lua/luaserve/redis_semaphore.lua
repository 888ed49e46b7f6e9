-- redis_semaphore.lua - a semaphore whose permits are in Redis: ls.semaphore(name, permits, { redis = true }). The methods
-- are those of other semaphores, but each waits for Redis.
--
-- Each permit, and each task that waits for one, is an id with a lease in Redis, which its server renews; those of a server
-- that is killed expire. A task that waits is in a list; the script that returns a permit gives it to the first one there,
-- and publishes its id. A job of each permit renews the lease, and gives it back when the task has ended without doing so.

local core = require "luaserve.core"
local redis = require "luaserve.redis"
local usage = require "luaserve.usage"

-- A site may replace the globals.
local gsub, format, min, max, remove = string.gsub, string.format, math.min, math.max, table.remove
local getmetatable, ipairs, next, pairs, pcall, setmetatable = getmetatable, ipairs, next, pairs, pcall, setmetatable
local tostring, type = tostring, type
local now = core.now

local redis_semaphore = {}

local LEASE_S <const>, RENEW_S <const> = 10, 3
local PREFIX <const> = "luaserve:%semaphore:" -- not that of a dict: in its name % is encoded

-- KEYS: the ids that have a permit, those that wait, both by the ends of their leases; the list of those that wait.
-- ARGV: what, id, permits, milliseconds of a lease, channel. Returns 1: it has a permit; 0: it has none.
--   wait      take a permit, or queue for it; renew the lease of either
--   try       take a permit if no other id queues; renew its lease, also one that Redis has lost
--   release   return it, or leave the queue
--   count     return the number of permits that are held
local script <const> = [[
local held, waiting, queue = KEYS[1], KEYS[2], KEYS[3]
local what, id, lease = ARGV[1], ARGV[2], tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', held, '-inf', now)
redis.call('ZREMRANGEBYSCORE', waiting, '-inf', now)
if what == 'count' then return redis.call('ZCARD', held) end
local function leave()
  if redis.call('ZREM', waiting, id) == 1 then redis.call('LREM', queue, 1, id) end
end
if what == 'release' then
  redis.call('ZREM', held, id)
  leave()
elseif redis.call('ZSCORE', held, id) then
  redis.call('ZADD', held, now + lease, id)
else
  if redis.call('ZADD', waiting, now + lease, id) == 1 then redis.call('RPUSH', queue, id) end
end
while redis.call('ZCARD', held) < tonumber(ARGV[3]) do
  local first = redis.call('LPOP', queue)
  if not first then break end
  if redis.call('ZREM', waiting, first) == 1 then
    redis.call('ZADD', held, now + lease, first)
    if first ~= id then redis.call('PUBLISH', ARGV[5], first) end
  end
end
local has = redis.call('ZSCORE', held, id) and 1 or 0
if what == 'try' and has == 0 then leave() end
for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], 2 * lease) end
return has]]

local origin, count = nil, 0 -- the beginning of the ids of this state, their number

local function run(self, what, id)
  return redis.eval(self.client, "number", script, self.keys, { what, id, self.permits, LEASE_S * 1000, self.channel })
end

local function unlist(self, permit)
  for at, one in ipairs(self.list) do
    if one == permit then return remove(self.list, at) end
  end
end

-- The job of a permit, from before it is there until it is given back.
local function keep(self, permit)
  local warned
  while not permit.over and not permit.gate:wait(RENEW_S, "idle") do
    if permit.granted then
      local has, message = run(self, "try", permit.id)
      if has == 0 then message = "its lease has ended, and others have all permits" end
      if message and not warned then
        core.log("warn", format("semaphore '%s': the permit of %s is not renewed: %s", self.name, permit.line, message))
      end
      warned = message
    end
  end
  if permit.line and permit.granted and not permit.over and not permit.within then
    core.log("warn", format("semaphore '%s': the task that called acquire at %s has ended without release; its permit is "
      .. "returned", self.name, permit.line))
  end
  unlist(self, permit)
  if not permit.returned then run(self, "release", permit.id) end
end

local function give_back(permit)
  if permit.over then return end
  local self = permit.semaphore
  permit.over = true
  unlist(self, permit)
  if permit.granted and core.can_wait() then permit.returned = run(self, "release", permit.id) end
  permit.gate:wake()
end
local permit_meta = { __close = give_back }

-- Be subscribed to the ids that get a permit, until none has waited for a while. Those that got one before look again.
local function listen(self)
  local ok, subscription = pcall(self.client.subscribe, self.client, self.channel, function(id)
    local permit = self.waiting[id]
    if not permit then return end
    permit.granted = true
    permit.turn:wake()
  end)
  self.subscription = ok and subscription
  for _, permit in pairs(self.waiting) do permit.turn:wake() end
  local gate = core.redis_connection()
  repeat gate:wait(LEASE_S, "idle") until not next(self.waiting)
  if self.subscription then self.subscription:remove() end
  self.listening = false
end

-- Wait until the permit is granted, at most `timeout` seconds -> true | nil, message, code, unsent
local function wait(self, permit, timeout)
  local limit = timeout and now() + timeout
  while not permit.granted do
    core.lease_wait() -- the drain wakes those that wait already
    if not self.listening then self.listening = pcall(core.spawn, listen, self) end
    permit.turn:wait(limit and max(min(limit - now(), RENEW_S), 0) or RENEW_S)
    if permit.granted then break end
    core.lease_wait()
    if limit and now() >= limit then return nil, "timeout", "ETIMEDOUT" end
    local has, message, code, unsent = run(self, "wait", permit.id)
    if message then return nil, message, code, unsent end
    permit.granted = permit.granted or has == 1
  end
  return true
end

-- The permits that the current task has, the last one at the end.
local function own(self)
  local found = {}
  for _, permit in ipairs(self.list) do
    if permit.gate:follows() then found[#found + 1] = permit end
  end
  return found
end

-- acquire(self, call, timeout, within) -> permit | nil, message, code, unsent
local function acquire(self, call, timeout, within)
  usage.check_waits(call)
  local before = own(self)
  if not timeout and #before >= self.permits then
    usage.error("semaphore '%s': this task holds all its permits since %s, and would wait for itself without end; take the "
      .. "permit once, around all that needs it, and call a function inside that takes none", self.name,
      before[#before].line)
  end
  origin = origin or core.crypto_random(12)
  count = count + 1
  local permit = setmetatable({
    id = origin .. format("%x", count), semaphore = self, line = usage.where(), within = within,
    gate = core.redis_connection(), turn = core.redis_connection(),
  }, permit_meta)
  permit.gate:follow()
  local spawned, why = pcall(core.spawn, keep, self, permit)
  if not spawned then return nil, why, "ELIMIT" end
  self.list[#self.list + 1] = permit
  self.waiting[permit.id] = permit
  local _ <close> = setmetatable({}, { __close = function()
    self.waiting[permit.id] = nil
    if not permit.granted then give_back(permit) end
  end })
  local ok, message, code, unsent = run(self, timeout == 0 and "try" or "wait", permit.id)
  permit.granted = permit.granted or ok == 1
  if ok == 0 and timeout == 0 then
    permit.returned = true
    return nil, "timeout", "ETIMEDOUT"
  elseif ok == 0 then
    ok, message, code, unsent = wait(self, permit, timeout)
  end
  if not ok then return nil, message, code, unsent end
  return permit
end

local function sure(self, ...) return redis.sure(self.client, format("semaphore '%s'", self.name), ...) end

local methods = {}

local function check(self, name)
  local meta = type(self) == "table" and getmetatable(self)
  local record = type(meta) == "table" and meta.semaphore
  if not record then
    usage.error("'%s' is a method of a semaphore: call it with a colon, such as gpu:%s(...); got %s for the semaphore",
      name, name, usage.quote(self))
  end
  return record
end

function methods.acquire(self, timeout, ...)
  local record = check(self, "acquire")
  usage.no_more("semaphore:acquire([timeout])", timeout, ...)
  usage.refuse(timeout ~= nil and (type(timeout) ~= "number" or timeout ~= timeout or timeout < 0), timeout,
    "semaphore:acquire: the timeout must be seconds, at least 0")
  local permit, message, code = acquire(record, "semaphore:acquire", timeout, false)
  if not permit then return nil, message, code end
  return true
end

function methods.release(self, ...)
  local record = check(self, "release")
  usage.no_more("semaphore:release()", nil, ...)
  local list = own(record)
  while list[1] and list[#list].within do list[#list] = nil end
  if not list[1] then
    usage.error("semaphore:release: this task holds no permit of '%s'; only the task that called acquire can release",
      record.name)
  end
  give_back(list[#list])
end

function methods.with(self, fn, ...)
  local record = check(self, "with")
  usage.check(fn, "function", "semaphore:with: the first argument must be a function")
  local permit <close> = sure(record, acquire(record, "semaphore:with", nil, true))
  return fn(...)
end

-- parts_of(semaphore) -> the number of its permits, its client
function redis_semaphore.parts_of(semaphore)
  local record = getmetatable(semaphore).semaphore
  return record.permits, record.client
end

-- new(name, permits, client) -> a semaphore
function redis_semaphore.new(name, permits, client)
  local key = PREFIX .. "{" .. gsub(name, "[%%{}]", function(c) return format("%%%02X", c:byte()) end) .. "}"
  local record = {
    name = name, permits = permits, client = client, list = {}, waiting = {}, subscription = false, listening = false,
    keys = { key .. ":held", key .. ":waiting", key .. ":queue" }, channel = key,
  }
  core.on_drain(function() -- tasks that the next site starts again end
    for _, permit in pairs(record.waiting) do permit.turn:wake() end
  end)
  if core.dev then
    require("luaserve.dev_state").watch_semaphore(setmetatable({ permits = permits }, {
      __index = function() return #record.list end,
    }))
  end
  return setmetatable({}, {
    __name = "luaserve.semaphore", -- luaserve dev leaves such tables out
    semaphore = record,
    __index = function(_, field)
      if field == "name" or field == "permits" then return record[field] end
      if field == "held" then return sure(record, run(record, "count", "")) end
      if methods[field] then return methods[field] end
      usage.error("a semaphore has no %s", tostring(field))
    end,
    __newindex = function(_, field) usage.error("a semaphore has no field %s to set", tostring(field)) end,
    __tostring = function() return "semaphore '" .. name .. "'" end,
  })
end

return redis_semaphore
