-- redis_dict.lua - a dict whose entries are in Redis: ls.dict(name, { redis = true }). The methods are those of other
-- dicts, but each waits for Redis.
--
-- An entry is a key of its own, "luaserve:<name>:<key>", or "luaserve:<name>#<key>" for a key that is an integer. A number
-- is its text, which INCRBY and INCRBYFLOAT add to; a string follows "'", each other value "=" and its code
-- (core.value_encode). A list is a list of Redis.

local core = require "luaserve.core"
local dict = require "luaserve.dict"
local json = require "luaserve.json"
local redis = require "luaserve.redis"
local usage = require "luaserve.usage"

-- A site may replace the globals.
local ceil, floor, format, math_type = math.ceil, math.floor, string.format, math.type
local find, gsub, sub, upper = string.find, string.gsub, string.sub, string.upper
local getmetatable, ipairs, pairs, select, setmetatable = getmetatable, ipairs, pairs, select, setmetatable
local tonumber, type, unpack = tonumber, type, table.unpack

local redis_dict = {}
local ask, number_text, unexpected = redis.ask, core.number_text, require("luaserve.redis_node").unexpected

local scan_count = 500 -- entries that Redis looks at in a step of SCAN
local key_bytes_max = 65535

-- ---- keys and values ---------------------------------------------------------------------------------------------

-- is_no_key(key) -> whether reading it gives nil, as in a table.
local function is_no_key(key) return key == nil or math_type(key) == "float" and key % 1 ~= 0 end

local function name_of(self, call, key)
  local kind = type(key)
  if kind == "string" then
    if #key > key_bytes_max then
      usage.error("%s: key must have at most %d bytes; got %d", call, key_bytes_max, #key)
    end
    return self.prefix .. ":" .. key
  elseif kind == "number" and not is_no_key(key) then
    return self.prefix .. format("#%d", key)
  end
  usage.error("%s: key must be a string or an integer; got %s", call, usage.quote(key))
end

local function encode(call, value)
  local kind = math_type(value)
  if kind == "integer" then return number_text(value) end
  if kind and value - value == 0 then
    local text = number_text(value)
    return find(text, "[.e]") and text or text .. ".0"
  end
  if type(value) == "string" then return "'" .. value end
  local code, reason = core.value_encode(value)
  if not code then usage.error("%s: %s", call, reason) end
  return "=" .. code
end

local function decode(text, read_only)
  local first = type(text) == "string" and sub(text, 1, 1)
  if first == "'" then return sub(text, 2) end
  if first == "=" then
    local value = core.value_decode(sub(text, 2), read_only)
    if value ~= nil then return value end
  elseif first and tonumber(text) then
    return tonumber(text)
  end
  usage.error("dict: Redis has a value that no dict has written: %s", usage.quote(text))
end

local function decode_list(texts, read_only)
  local list = json.array {}
  for i = 1, #texts do list[i] = decode(texts[i], read_only) end
  return list
end

local function ms_of(call, ...)
  local ttl = ...
  if select("#", ...) == 0 or ttl == false then return nil end
  if ttl == nil then usage.error("%s: ttl is nil, as of a field that is missing; false is an entry that does not expire", call) end
  if type(ttl) ~= "number" or ttl <= 0 or ttl ~= ttl then
    usage.error("%s: ttl must be more than 0 seconds; leave it out for an entry that does not expire", call)
  end
  if ttl > core.seconds_max then usage.error("%s: ttl is in seconds from now; for a time write at - os.time(), and leave it out for no end", call) end
  return floor(ceil(ttl * 1000))
end

-- ---- failures ----------------------------------------------------------------------------------------------------

local function is_other_type(message) return message and find(message, "^WRONGTYPE") ~= nil end

-- sure(self, ...) -> the reply of Redis; raises a failure.
local function sure(self, value, message, ...)
  if message == nil then return value end
  return redis.sure(self.client, format('dict "%s"', self.name), value, message, ...)
end

-- sure_of(self, key, wanted, ...) -> the same; nil, message, code for a value of another type.
local function sure_of(self, key, wanted, value, message, ...)
  if message and (is_other_type(message) or find(message, "not an integer", 1, true) or find(message, "not a valid float", 1, true)) then
    return nil, format("the value of %s is %s", usage.quote(key), wanted), "EINVAL"
  end
  return sure(self, value, message, ...)
end

local methods = {}

local function check(self, name)
  local meta = type(self) == "table" and getmetatable(self)
  local record = meta and meta.dict
  if not record then
    usage.error("'%s' is a method of a dict: call it with a colon, such as todos:%s(...); got %s for the dict", name, name,
      usage.quote(self))
  end
  return record, "dict:" .. name
end

-- ---- one entry ---------------------------------------------------------------------------------------------------

local function get(self, call, key, read_only)
  if is_no_key(key) then return nil end
  local name = name_of(self, call, key)
  local text, message, code, unsent = ask(self.client, "string", "GET", name)
  if is_other_type(message) then return decode_list(sure(self, ask(self.client, "table", "LRANGE", name, 0, -1)), read_only) end
  sure(self, text, message, code, unsent)
  if text then return decode(text, read_only) end
end

function methods.get(self, key, ...)
  local record, call = check(self, "get")
  usage.no_more("dict:get(key)", key, ...)
  return get(record, call, key, true)
end

-- set(self, call, key, value, how [, ttl]) -> true | nil, message, code. how: "NX", "XX" or nil.
local function set(self, call, key, value, how, ...)
  local name, ms = name_of(self, call, key), ms_of(call, ...)
  local command, reply = { name }, nil
  if value == nil then
    reply = sure(self, ask(self.client, "number", "DEL", name))
  else
    command[2], command[3] = encode(call, value), how
    if ms then command[#command + 1], command[#command + 2] = "PX", ms end
    reply = sure(self, ask(self.client, "string", "SET", unpack(command)))
  end
  if reply then return true end
  if how == "NX" then return nil, format('the key %s exists in the dict "%s"', usage.quote(key), self.name), "EEXIST" end
  return nil, format('the key %s is not in the dict "%s"', usage.quote(key), self.name), "ENOENT"
end

for name, how in pairs { set = false, add = "NX", replace = "XX" } do
  methods[name] = function(self, key, value, ...)
    local record, call = check(self, name)
    usage.no_more(call .. "(key, value, ttl)", ...)
    if value == nil then usage.error("%s: the value is nil; dict:delete(key) removes an entry", call) end
    return set(record, call, key, value, how or nil, ...)
  end
end

function methods.delete(self, key, ...)
  local record, call = check(self, "delete")
  usage.no_more("dict:delete(key)", key, ...)
  if is_no_key(key) then return false end
  return sure(record, ask(record.client, "number", "DEL", name_of(record, call, key))) == 1
end

-- A key that is new begins with ARGV[2], and with the time to live ARGV[3].
local incr_script = [[
local key, by = KEYS[1], ARGV[1]
local new = redis.call('EXISTS', key) == 0
if new then redis.call('SET', key, ARGV[2]) end
local old = not new and redis.call('GET', key) or ARGV[2]
local fraction = string.find(by, '[%.e]') or string.find(old, '^%-?[%d]*[%.e]')
local sum = redis.pcall(fraction and 'INCRBYFLOAT' or 'INCRBY', key, by)
if new and type(sum) == 'table' and sum.err then redis.call('DEL', key)
elseif new and ARGV[3] ~= '' then redis.call('PEXPIRE', key, ARGV[3]) end
return type(sum) == 'number' and redis.call('GET', key) or sum]]

local function number(call, what, value, default)
  if value == nil then return format("%d", default) end
  if type(value) ~= "number" or value - value ~= 0 then usage.error("%s: %s must be a finite number; got %s", call, what, usage.quote(value)) end
  return encode(call, value)
end

function methods.incr(self, key, ...)
  local record, call = check(self, "incr")
  local by, init, ttl = ...
  if select("#", ...) > 3 then usage.no_more("dict:incr(key, by, init, ttl)", ttl, select(4, ...)) end
  if select("#", ...) > 0 and by == nil then
    usage.error("dict:incr: number expected, got nil; leave it out for 1")
  end
  local ms = ms_of(call, select(3, ...))
  local sum, message, code, unsent = redis.eval(record.client, nil, incr_script, { name_of(record, call, key) },
    { number(call, "by", by, 1), number(call, "init", init, 0), ms and format("%d", ms) or "" })
  if message then
    if find(message, "overflow", 1, true) then
      return nil, format("the value of %s would exceed the range of an integer", usage.quote(key)), "EINVAL"
    end
    local old = not unsent and get(record, call, key, true)
    if type(old) == "string" and tonumber(old) then
      usage.error("dict:incr: the value of %s is a string, %s; store a number: tonumber(value)", usage.quote(key), usage.quote(old))
    end
    return sure_of(record, key, "not a number", nil, message, code, unsent)
  end
  return tonumber(sum) or sure(record, unexpected(sum)) -- of a float it is the text
end

function methods.ttl(self, key, ...)
  local record, call = check(self, "ttl")
  usage.no_more("dict:ttl(key)", key, ...)
  if is_no_key(key) then return nil end
  local ms = sure(record, ask(record.client, "number", "PTTL", name_of(record, call, key)))
  if ms == -2 then return nil end
  return ms >= 0 and ms / 1000
end

local persist_script = "redis.call('PERSIST', KEYS[1]) return redis.call('EXISTS', KEYS[1])"

function methods.expire(self, key, ...)
  local record, call = check(self, "expire")
  usage.no_more("dict:expire(key, seconds)", ...)
  local name, ms = name_of(record, call, key), ms_of(call, ...)
  if ms then return sure(record, ask(record.client, "number", "PEXPIRE", name, ms)) == 1 end
  return sure(record, redis.eval(record.client, "number", persist_script, { name })) == 1
end

-- ARGV: the text of the old value, the new one, "" for none; the time to live in milliseconds, "" to keep it.
local swap_script = [[
local old = redis.pcall('GET', KEYS[1])
if type(old) == 'table' then return old end
if (old or '') ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1])
elseif ARGV[3] == '' then redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1]]

-- read(dict, key) -> value, version: as core.dict_read.
function redis_dict.read(self, key)
  local record = check(self, "get")
  local text = sure(record, ask(record.client, "string", "GET", name_of(record, "dict:get", key)))
  return text and decode(text, false), text or ""
end

-- swap(dict, key, value, version, ttl) -> true | nil, message, code: as core.dict_swap, with a time to live in seconds for
-- the new value; nil keeps that of the entry.
function redis_dict.swap(self, key, value, version, ttl)
  local record = check(self, "update")
  local ms = ms_of("dict:update", ttl or false)
  local done = sure(record, redis.eval(record.client, "number", swap_script, { name_of(record, "dict:update", key) },
    { version, value == nil and "" or encode("dict:update", value), ms and format("%d", ms) or "" }))
  if done == 1 then return true end
  return nil, "the entry was written meanwhile", "EAGAIN"
end

methods.update = dict.update_method(function(self, key)
  local record, call = check(self, "update")
  local text, message, code = sure_of(record, key, "a list; use its methods",
    ask(record.client, "string", "GET", name_of(record, call, key)))
  if message then return nil, nil, message, code end
  return text and decode(text, false), text or ""
end, redis_dict.swap)

-- ---- lists -------------------------------------------------------------------------------------------------------

for _, name in ipairs { "lpush", "rpush" } do
  methods[name] = function(self, key, ...)
    local record, call = check(self, name)
    local values, count = { ... }, select("#", ...)
    if count == 0 then usage.error("%s: the value is missing", call) end
    for i = 1, count do
      if values[i] == nil then usage.error("%s: a list has no nil", call) end
      values[i] = encode(call, values[i])
    end
    return sure_of(record, key, "not a list",
      ask(record.client, "number", upper(name), name_of(record, call, key), unpack(values, 1, count)))
  end
end

for _, name in ipairs { "lpop", "rpop", "llen" } do
  methods[name] = function(self, key, ...)
    local record, call = check(self, name)
    usage.no_more(call .. "(key)", key, ...)
    local reply, message, code = sure_of(record, key, "not a list", ask(record.client, name == "llen" and "number" or "string",
      upper(name), name_of(record, call, key)))
    if message then return nil, message, code end
    if name == "llen" or reply == nil then return reply end
    return decode(reply, false)
  end
end

function methods.range(self, key, first, last, ...)
  local record, call = check(self, "range")
  usage.no_more("dict:range(key, first, last)", last, ...)
  for name, at in pairs { first = first or 1, last = last or -1 } do
    if math_type(at) ~= "integer" then usage.error("%s: %s must be a whole number; got %s", call, name, usage.quote(at)) end
  end
  first, last = first or 1, last or -1
  if first == 0 then usage.error("%s: first is 0: positions count from 1", call) end
  if last == 0 then return json.array {} end
  local texts, message, code = sure_of(record, key, "not a list", ask(record.client, "table", "LRANGE", name_of(record, call, key),
    first > 0 and first - 1 or first, last > 0 and last - 1 or last))
  if not texts then return nil, message, code end
  return decode_list(texts, false)
end

-- ---- all entries -------------------------------------------------------------------------------------------------

-- each_batch(self) -> an iterator over lists of names in Redis; a name comes once.
local function each_batch(self)
  local clients, at, cursor, seen = redis.masters(self.client), 1, "0", {}
  local pattern = gsub(self.prefix, "[*?%[%]\\^-]", "\\%0") .. "[:#]*"
  return function()
    while clients[at] do
      local reply = sure(self, ask(clients[at], "table", "SCAN", cursor, "MATCH", pattern, "COUNT", scan_count))
      if type(reply[1]) ~= "string" or type(reply[2]) ~= "table" then sure(self, unexpected(reply)) end
      cursor = reply[1]
      if cursor == "0" then at = at + 1 end
      local batch = {}
      for i = 1, #reply[2] do
        local name = reply[2][i]
        if type(name) == "string" and not seen[name] then
          seen[name] = true
          batch[#batch + 1] = name
        end
      end
      if batch[1] then return batch end
    end
  end
end

local function key_of(self, name)
  local rest = sub(name, #self.prefix + 2)
  return sub(name, #self.prefix + 1, #self.prefix + 1) == "#" and math.tointeger(rest) or rest
end

methods.keys = dict.keys_method(function(self)
  local record = check(self, "keys")
  local batches = each_batch(record)
  return function()
    local names, keys = batches(), {}
    if not names then return nil end
    for i = 1, #names do keys[i] = key_of(record, names[i]) end
    return keys, #keys
  end
end)

function methods.len(self, ...)
  local record = check(self, "len")
  usage.no_more("dict:len()", nil, ...)
  local count = 0
  for batch in each_batch(record) do count = count + #batch end
  return count
end

function methods.clear(self, ...)
  local record = check(self, "clear")
  usage.no_more("dict:clear()", nil, ...)
  for batch in each_batch(record) do
    local replies = sure(record, redis.pipeline(record.client, function(p) -- in a cluster, of several servers
      for i = 1, #batch do p:del(batch[i]) end
    end))
    for i = 1, #batch do
      local reply = replies[i]
      if type(reply) ~= "number" then sure(record, unexpected(type(reply) == "table" and reply.err or reply)) end
    end
  end
end

-- The entries of a batch as a list: key, value, key, value. One that was removed meanwhile is left out.
local function read_batch(self, batch)
  local out = {}
  local replies = sure(self, redis.pipeline(self.client, function(p)
    for i = 1, #batch do p:get(batch[i]) end
  end))
  for i = 1, #batch do
    local reply, value = replies[i], nil
    if type(reply) == "table" then -- a list
      value = decode_list(sure(self, ask(self.client, "table", "LRANGE", batch[i], 0, -1)), true)
      if value[1] == nil then value = nil end
    elseif reply then
      value = decode(reply, true)
    end
    if value ~= nil then out[#out + 1], out[#out + 2] = key_of(self, batch[i]), value end
  end
  return out
end

function methods.pairs(self)
  local record = check(self, "pairs")
  local batches, batch, at = each_batch(record), {}, 0
  local watch = core.dev and require("luaserve.dev_state").watch_pairs
  if watch then watch(self) end
  return function()
    while not batch[at + 1] do
      local names = batches()
      if not names then return nil end
      batch, at = read_batch(record, names), 0
    end
    at = at + 2
    if watch then watch(self, batch[at - 1]) end
    return batch[at - 1], batch[at]
  end
end

-- ---- the object --------------------------------------------------------------------------------------------------

-- client_of(value) -> the client of such a dict | nil
function redis_dict.client_of(value)
  local meta = type(value) == "table" and getmetatable(value)
  local record = type(meta) == "table" and meta.dict
  return record and record.client or nil
end

local observed = { get = "get", set = "set", add = "add", replace = "add", delete = "delete", incr = "incr", clear = "clear", lpush = "lpush",
  rpush = "rpush", llen = "llen", range = "range", update = "update" } -- as by dict_object.c

-- watched(observe) -> the methods in dev mode: observe(call, dict, ...) sees each call.
local function watched(observe)
  local own = {}
  for name, method in pairs(methods) do
    local call = observed[name]
    own[name] = call and function(self, ...)
      check(self, name)
      observe(call, self, ...)
      return method(self, ...)
    end or method
  end
  return own
end

-- new(name, client) -> a dict
function redis_dict.new(name, client)
  local record = {
    name = name,
    client = client,
    prefix = "luaserve:" .. gsub(name, "[%%:#]", function(c) return format("%%%02X", c:byte()) end),
  }
  local object, own, observe = {}, methods, core.dev and require("luaserve.dev_state").watch_dict
  observe = observe and observe(name, object)
  if observe then own = watched(observe) end
  return setmetatable(object, {
    dict = record,
    __index = function(self, key)
      if own[key] then return own[key] end
      if observe then observe("[key]", self, key) end
      return get(record, "dict", key, true)
    end,
    __newindex = function(self, key, value)
      if methods[key] then
        usage.error("dict: %s is the name of a method; use dict:set(%s, value)", usage.quote(key), usage.quote(key))
      end
      if observe then observe("[key] = value", self, key, value) end
      local ok, message = set(record, "dict", key, value)
      if not ok then usage.error("dict: %s", message) end
    end,
    __len = function(self)
      local count = methods.len(self)
      if observe then observe("#", self, count) end
      return count
    end,
    __pairs = methods.pairs,
    __tostring = function() return "dict '" .. name .. "'" end,
  })
end

return redis_dict
