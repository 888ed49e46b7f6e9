-- rate_limit.lua - middleware that limits the requests of a client: a token bucket for each key, in a dict, so that all Lua
-- states count together.
--
-- A bucket is one number, the time at which it will be full again (the generic cell rate algorithm). A request moves it by
-- the time that one token takes; when it is further ahead than a whole bucket takes, the request is refused. The core does
-- that (core.dict_take), but in Redis.

local core = require "luaserve.core"
local options = require "luaserve.options"
local usage = require "luaserve.usage"
local dicts = require "luaserve.dict"
local guard = require("luaserve.router").guard

local ceil, format, match, sub = math.ceil, string.format, string.match, string.sub
local error, pcall, type = error, pcall, type
local client, dict_read, dict_take, now, wall_time =
  core.client, core.dict_read, core.dict_take, core.now, core.wall_time

-- rate_limit is a RateLimit: middleware that limits the requests of a client, `require "luaserve.rate_limit"`.
local rate_limit = {}

local rate_options = {
  limit = { "limit", "count", 1, 1000000000 }, -- requests in the time `per`; required
  per = { "per_ms", "seconds", 1, 86400000, 60 }, -- seconds
  burst = { "burst", "count", 1, 1000000000 }, -- requests that may come at once; default: limit
  -- fun(req: Request): any - whose requests are counted together, false: no limit; nil, default: the address
  key = { "key", "is", "function", "a function of the request" },
  dict = true, -- Dict - where the buckets are, with evict = true; default: a dict of 16 MiB that removes the oldest
  -- string - tells limits apart that are made on the same line with the same options
  name = { "name", "is", "string", "a string" },
}
rate_limit.calls = { ["rate_limit"] = { rate_options, listed = true } } -- RateLimitOptions

local tries_max, key_bytes_max = 100, 1024
local warning_pause = 60 -- seconds
local made = {} -- numbers of limits of the same line with the same options, so that each Lua state finds the same ones
local by_address = setmetatable({}, { __mode = "k" }) -- in dev mode, requests that were counted by their address

-- take_in_redis(...): as core.dict_take, for a dict in which other machines count, too.
local function take_in_redis(dict, place, key, token, full)
  local read, swap = dicts.in_redis(dict)
  key = place .. key
  for _ = 1, tries_max do
    local at = wall_time()
    local fine, old, version = pcall(read, dict, key)
    if not fine then return nil, old end
    local new_time = (old and old > at and old or at) + token
    if new_time > at + full + 1e-9 then return new_time - at - full end
    local swapped, ok = pcall(swap, dict, key, new_time, version, new_time - at)
    if not swapped then return nil, ok end
    if ok then return 0 end
  end
  return token -- many requests of this key at the same moment
end

-- rate_limit(options: RateLimitOptions) -> middleware: Middleware
-- Makes middleware that answers 429 with Retry-After to requests that come too fast.
local function new(...)
  local out, given = options.only("rate_limit", rate_limit.calls.rate_limit, "{ limit = 100, per = 60 }", ...)
  if not out.limit then usage.error("rate_limit: limit is missing: rate_limit{ limit = 100, per = 60 }") end
  local dict = given.dict
  if dict == nil then
    dict = dicts.open("luaserve.rate_limit", { size = "16m", evict = true })
  end
  local in_redis = dicts.in_redis(dict) ~= nil
  if not in_redis and (type(dict) == "function" or not pcall(dict_read, dict, "")) then
    usage.error('rate_limit: dict must be a dict: dict = ls.dict("limits", { evict = true }); got %s', usage.quote(dict))
  elseif not in_redis and not dicts.evicts(dict) then
    usage.error("rate_limit: dict must be made with evict = true: a full one limits no new client")
  end
  local token = out.per_ms / 1000 / out.limit -- seconds until the next one
  local full = token * (out.burst or out.limit) -- seconds that an empty bucket needs
  local caller = usage.caller() or "?"
  if in_redis then caller = given.name and "" or match(caller, "[^/\\]*$") end -- the same on each machine
  local place = format("%s %s %s %s|", caller, given.name or "", token, full) -- not shared with others
  if given.name == nil then
    if core.task() then
      usage.error("rate_limit: a limit in a handler begins with each request: make it while the site loads, or give it a name")
    end
    made[place] = (made[place] or 0) + 1
    place = made[place] .. " " .. place
  end
  local warned = -warning_pause

  local take, key_of, of_site = in_redis and take_in_redis or dict_take, client, given.key
  if of_site then
    key_of = function(req)
      local key = of_site(req)
      if key and type(key) ~= "string" and type(key) ~= "number" then
        error("rate_limit: the function key must return a string, a number, false or nil; got " .. usage.quote(key), 0)
      end
      if core.dev and key and not req.user and not by_address[req] then
        require("luaserve.dev_state").watch_key(of_site, req, tostring(key))
      end
      return key and sub(key, 1, key_bytes_max) or key == nil and client(req)
    end
  end

  local function limit(req, _, next)
    local key = key_of(req)
    if core.dev and not of_site then by_address[req] = true end
    if not key then return next() end
    local wait, message = take(dict, place, key, token, full)
    if wait == 0 then return next() end
    if wait then return 429, "too many requests\n", { ["Retry-After"] = format("%d", ceil(wait)) } end
    if now() - warned >= warning_pause then
      warned = now()
      core.log("warn", "rate_limit: a bucket cannot be read or stored, and requests are not limited: " .. message)
    end
    return next()
  end
  return guard(limit, nil, not (in_redis or of_site or core.dev) and function(...) return core.limiter(dict, place, token, full, ...) end)
end

return setmetatable(rate_limit, { __call = function(_, ...) return new(...) end })
