-- luaserve.rate_limit with a clock of the test and a dict in Redis, which is plain Lua here. What the core does with a dict
-- of the server is tested in tests/unit/script/store/test_dict.c.
local check = require "check"
local core = require "luaserve.core"

local tests = {}
local dicts = require "luaserve.dict"
local now = 1000
local conflicts = 0 -- of the next swaps: another state was faster
local in_task = nil
local taken -- the arguments of the last core.dict_take

local function read(dict, key)
  if dict.down then error("the dict is down", 0) end
  return dict[key], dict.version or 0
end

local function swap(dict, key, value, version)
  if dict.full then error("the dict is full", 0) end
  if conflicts > 0 then conflicts = conflicts - 1 return nil, "another version", "EAGAIN" end
  check.equal(version, dict.version or 0)
  dict[key], dict.version = value, version + 1
  return true
end

-- luaserve.rate_limit with these functions of the core.
local function load_module()
  local before = { core.now, core.wall_time, core.dict_read }
  dicts.evicts = function(dict) return not dict.keeps end
  dicts.in_redis = function(dict) if type(dict) == "table" and not dict.here then return read, swap end end
  core.now, core.wall_time = function() return now end, function() return now end
  core.dict_read = read
  core.client = function(req) return req.ip end
  core.task, core.limiter = function() return in_task end, function() end
  core.dict_take = function(dict, ...)
    taken = { ... }
    return table.unpack(dict.answer, 1, 3)
  end
  package.loaded["luaserve.rate_limit"] = nil
  local module = require "luaserve.rate_limit"
  package.loaded["luaserve.rate_limit"] = nil
  core.now, core.wall_time, core.dict_read = table.unpack(before, 1, 3)
  return module
end
local rate_limit = load_module()

-- client(options) -> a function of an address: nil if its request passes, else the seconds of Retry-After.
local function client(options)
  options.dict = options.dict or {}
  local middleware = rate_limit(options)
  return function(ip, query)
    local passed = false
    local status, _, headers = middleware({ ip = ip or "192.0.2.1", query = query or {} }, {}, function() passed = true end)
    check.equal({ passed, status }, passed and { true } or { false, 429 })
    return headers and math.tointeger(tonumber(headers["Retry-After"]))
  end
end

function tests.a_bucket_is_emptied_and_fills_again()
  local ask = client { limit = 3, per = 60 }
  for _ = 1, 3 do check.equal(ask(), nil) end
  check.equal({ ask(), ask() }, { 20, 20 }) -- a refused request takes no token
  now = now + 19.5
  check.equal(ask(), 1)
  now = now + 0.5
  check.equal(ask(), nil)
  check.equal(ask(), 20)
  now = now + 1000 -- full, not more
  for _ = 1, 3 do check.equal(ask(), nil) end
  check.equal(ask(), 20)
end

function tests.the_rate_holds_over_a_long_time()
  local ask, passed = client { limit = 10, per = 1, burst = 1 }, 0
  for _ = 1, 10000 do -- 100 requests a second
    now = now + 0.01
    if not ask() then passed = passed + 1 end
  end
  check.equal(passed >= 999 and passed <= 1001, true)
end

function tests.a_burst()
  local ask = client { limit = 60, per = 60, burst = 5 }
  for _ = 1, 5 do check.equal(ask(), nil) end
  check.equal(ask(), 1)
  now = now + 2
  check.equal({ ask(), ask(), ask() }, { nil, nil, 1 })
end

function tests.each_client_has_a_bucket()
  local ask = client { limit = 1 }
  check.equal({ ask "192.0.2.1", ask "192.0.2.2", ask "192.0.2.1" }, { [3] = 60 })
end

function tests.a_key_of_the_site()
  local ask = client { limit = 1, key = function(req) return req.query.user end }
  check.equal({ ask(nil, { user = "a" }), ask(nil, { user = "b" }), ask(nil, { user = 5 }), ask() }, {})
  check.equal({ ask(), ask(nil, { user = false }), ask(nil, { user = false }) }, { 60 }) -- nil: the address; false: no limit
  check.equal({ ask(nil, { user = "a" }), ask(nil, { user = 5 }) }, { 60, 60 })
  local long = ("x"):rep(70000)
  check.equal({ ask(nil, { user = long }), ask(nil, { user = long }) }, { nil, 60 })
  check.raises("must return a string", ask, nil, { user = {} })
end

function tests.limits_do_not_share_their_buckets()
  local dict = {}
  local one = client { limit = 1, dict = dict }
  local two = client { limit = 2, dict = dict }
  check.equal({ one(), two(), two() }, {})
  check.equal({ one(), two() }, { 60, 30 })
end

function tests.another_state_that_was_faster()
  local ask = client { limit = 2 }
  conflicts = 99
  check.equal(ask(), nil)
  conflicts = 100 -- the most that it tries
  check.equal(ask(), 30)
  conflicts = 0
end

function tests.a_name_tells_limits_of_the_same_line_apart()
  local dict, asks = {}, {}
  for i, name in ipairs { "a", "b", "a", false, false } do
    asks[i] = client { limit = 1, dict = dict, name = name or nil }
  end
  check.equal({ asks[1](), asks[2](), asks[3](), asks[4](), asks[5](), asks[5]() }, { nil, nil, 60, nil, nil, 60 })
  in_task = true
  check.raises({ check.line(), "a limit in a handler", "give it a name" }, function() rate_limit { limit = 1, dict = dict } end)
  rate_limit { limit = 1, dict = dict, name = "a" }
  in_task = nil
end

function tests.the_core_takes_from_a_dict_of_the_server()
  local dict = { here = true, answer = { 0 } }
  local ask = client { limit = 2, per = 60, burst = 3, dict = dict, name = "n",
    key = function(req) return req.query.user end }
  check.equal(ask(nil, { user = ("u"):rep(1025) }), nil)
  check.equal({ taken[2], taken[3], taken[4] }, { ("u"):rep(1024), 30.0, 90.0 })
  check.equal(taken[1]:find(" n 30.0 90.0|", 1, true) ~= nil, true)
  dict.answer = { 0.2 }
  check.equal(ask(nil, { user = "u" }), 1)
  check.equal(client { limit = 2, dict = dict } "192.0.2.7", 1)
  check.equal(taken[2], "192.0.2.7")
  taken = nil
  check.equal({ ask(), taken[2] }, { 1, "192.0.2.1" })
end

-- A dict that cannot be read and one that cannot be written are the same to a request: it passes.
function tests.a_dict_that_fails_does_not_stop_the_site()
  for reason, dict in pairs { ["the dict is full"] = { full = true }, ["the dict is down"] = { down = true },
    ["the dict is too small"] = { here = true, answer = { nil, "the dict is too small", "EMSGSIZE" } } } do
    local ask = client { limit = 1, dict = dict }
    core.take_calls()
    for _, seconds in ipairs { 0, 0, 59, 1 } do -- a line a minute, not one for each request
      now = now + seconds
      check.equal({ ask() }, {})
    end
    local calls = core.take_calls()
    check.equal({ #calls, calls[1][1], calls[1][2] }, { 2, "log", "warn" })
    check.equal({ calls[1][3]:find("not limited: " .. reason, 1, true) ~= nil, calls[2][3] }, { true, calls[1][3] })
  end
end

function tests.wrong_options()
  for _, case in ipairs {
    { {}, "limit is missing" }, { { limit = 0 }, "limit must be from 1" },
    { { limit = 1, per = 0 }, "per must be from 0.001" }, { { limit = 1, key = "ip" }, "key must be a function" },
    { { limit = 1, rate = 1 }, 'unknown option "rate"' }, { 100, "takes a table" },
    { { limit = 1, dict = { here = true, down = true } }, "dict must be a dict" },
    { { limit = 1, dict = { here = true, keeps = true } }, "evict = true" },
    { { limit = 1, dict = {}, name = 1 }, "name must be a string" },
  } do
    check.raises({ check.line(), case[2] }, function() rate_limit(case[1]) end)
  end
end

return tests
