-- rate_limit.lua - middleware that limits the requests of a client: a token bucket for each key, in a dict, so that all Lua
-- states count together.
--
-- A bucket is one number, the time at which it will be full again (the generic cell rate algorithm). A request moves it by
-- the time that one token takes; when it is further ahead than a whole bucket takes, the request is refused.

local core = require "luaserve.core"
local options = require "luaserve.options"
local usage = require "luaserve.usage"
usage.mark_internal()

local ceil, find, format, match, rep, sub = math.ceil, string.find, string.format, string.match, string.rep, string.sub
local error, pcall, select, type = error, pcall, select, type
local core_now, core_read, core_swap = core.now, core.dict_read, core.dict_swap
local dicts = require "luaserve.dict"

-- rate_limit is a RateLimit: middleware that limits the requests of a client, `require "luaserve.rate_limit"`.
local rate_limit = {}

local rate_options = {
  limit = { "limit", "count", 1, 1000000000 }, -- requests in the time `per`; required
  per = { "per_ms", "seconds", 1, 86400000, 60 }, -- seconds
  burst = { "burst", "count", 1, 1000000000 }, -- requests that may come at once; default: limit
  key = true, -- fun(req: Request): any - whose requests are counted together, nil: no limit; default: the address
  dict = true, -- Dict - where the buckets are, with evict = true; default: a dict of 16 MiB that removes the oldest
  name = true, -- string - tells limits apart that are made on the same line with the same options
}
rate_limit.calls = {
  ["rate_limit"] = { rate_options, listed = true }, -- RateLimitOptions
}

local tries_max, key_bytes_max = 100, 1024

-- network_of(ip) -> the first four groups of an IPv6 address: a /64, which one client may have as a whole.
local function network_of(ip)
  local head, tail = match(ip, "^([%x:]-)::([%x:.]*)")
  if not head then return match(ip, "^%x+:%x+:%x+:%x+") or ip end
  local before, behind = select(2, head:gsub("%x+", "")), select(2, tail:gsub("[^:]+", ""))
  if find(tail, ".", 1, true) then behind = behind + 1 end
  local groups = head .. (head ~= "" and ":" or "") .. rep("0:", 8 - before - behind) .. tail
  return match(groups, "^%x+:%x+:%x+:%x+")
end

-- address_of(req) -> the address of the client; of IPv6, and not IPv4 in IPv6 (::ffff:192.0.2.1), its network.
function rate_limit.address_of(req)
  local ip = req.ip
  if not find(ip, ":", 1, true) or find(ip, "^::ffff:%d") or find(ip, "^unix:") then return ip end
  return network_of(ip)
end

-- rate_limit(options: RateLimitOptions) -> middleware: Middleware
-- Makes middleware that answers 429 with Retry-After to requests that come too fast.
local function new(given, ...)
  if type(given) ~= "table" then
    usage.error("rate_limit takes a table of options: rate_limit{ limit = 100, per = 60 }; got %s", usage.quote(given))
  end
  usage.no_more("rate_limit(options)", given, ...)
  local out = options.take("rate_limit", given, rate_limit.calls.rate_limit, {})
  if not out.limit then usage.error("rate_limit: limit is missing: rate_limit{ limit = 100, per = 60 }") end
  if given.key ~= nil and type(given.key) ~= "function" then
    usage.error("rate_limit: key must be a function of the request; got %s", usage.quote(given.key))
  end
  if given.name ~= nil and type(given.name) ~= "string" then
    usage.error("rate_limit: name must be a string; got %s", usage.quote(given.name))
  end
  local dict = given.dict
  if dict == nil then
    dict = dicts.open("luaserve.rate_limit", { size = "16m", evict = true })
  end
  local now, read, swap = core_now, core_read, core_swap
  local in_redis = dicts.in_redis(dict) ~= nil
  if in_redis then
    now, read, swap = core.wall_time, dicts.in_redis(dict) -- other machines count in the same dict
  elseif type(dict) == "function" or not pcall(read, dict, "") then
    usage.error('rate_limit: dict must be a dict: dict = ls.dict("limits", { evict = true }); got %s', usage.quote(dict))
  elseif not dicts.evicts(dict) then
    usage.error("rate_limit: dict must be made with evict = true: a full one limits no new client")
  end
  local key_of = given.key or rate_limit.address_of
  local token = out.per_ms / 1000 / out.limit -- seconds until the next one
  local full = token * (out.burst or out.limit) -- seconds that an empty bucket needs
  local caller = usage.caller() or "?"
  if in_redis then caller = given.name and "" or match(caller, "[^/\\]*$") end -- the same on each machine
  local place = format("%s %s %s %s|", caller, given.name or "", token, full) -- not shared with others
  local warned = false

  -- take(key) -> seconds to wait, 0 if the request may pass.
  local function take(key)
    if type(key) ~= "string" and type(key) ~= "number" then
      error("rate_limit: the function key must return a string, a number or nil; got " .. usage.quote(key), 0)
    end
    key = place .. sub(key, 1, key_bytes_max)
    for _ = 1, tries_max do
      local at = now()
      local old, version = read(dict, key)
      local new_time = (old and old > at and old or at) + token
      if new_time > at + full + 1e-9 then return new_time - at - full end
      local ok, message, code = swap(dict, key, new_time, version, new_time - at)
      if not ok and code ~= "EAGAIN" and not warned then -- the site goes on
        warned = true
        core.log("warn", "rate_limit: a bucket cannot be stored, and the request is not limited: " .. message)
      end
      if ok or code ~= "EAGAIN" then return 0 end
    end
    return token -- many requests of this key at the same moment
  end

  return function(req, _, next)
    local key = key_of(req)
    local wait = key ~= nil and take(key) or 0
    if wait == 0 then return next() end
    return 429, "too many requests\n", { ["Retry-After"] = format("%d", ceil(wait)) }
  end
end

return setmetatable(rate_limit, { __call = function(_, ...) return new(...) end })
