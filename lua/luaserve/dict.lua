-- dict.lua - ls.dict: checks the name and the options, and the methods that need no C: keys, update, pairs.

local core = require "luaserve.core"
local json = require "luaserve.json"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

-- A site may replace the globals.
local find, getenv, math_type, pcall, tostring, type = string.find, os.getenv, math.type, pcall, tostring, type
local scan, core_swap = core.dict_scan, core.dict_swap

local dict = {}

local name_bytes_max = 100 -- LS_SHARED_NAME_BYTES_MAX

local dict_options = {
  size = { "bytes_max", "size", 4096, 1 << 40, "16m" }, -- memory of the dict
  file = { "file", "text", "the path of a file" }, -- keeps the dict over restarts
  sync = { "sync", "flag", nil, nil, false }, -- with file, a write waits until the device has it
  redis = true, -- boolean|Redis - keep the entries in Redis: that of ls.config, or this client
  evict = { "evict", "flag", nil, nil, false }, -- remove the entries used least recently when it is full
}
dict.calls = { ["ls.dict"] = { dict_options } } -- DictOptions

local update_calls_max = 1000
local key_bytes_max = 65535 -- LS_DICT_KEY_BYTES_MAX

-- check_key(call, key): raises unless it is a string or an integer.
local function check_key(call, key)
  if type(key) ~= "string" and not (type(key) == "number" and (math_type(key) == "integer" or key % 1 == 0)) then
    usage.error("%s: key must be a string or an integer; got %s", call, usage.quote(key))
  elseif type(key) == "string" and #key > key_bytes_max then
    usage.error("%s: key must have at most %d bytes; got %d", call, key_bytes_max, #key)
  end
end

-- check_self(self, name): raises for a call with a dot, such as dict.keys("pattern").
local function check_self(self, name)
  if type(self) == "userdata" or type(self) == "table" then return end
  usage.error("'%s' is a method of a dict: call it with a colon, such as todos:%s(...); got %s for the dict", name, name,
    usage.quote(self))
end

local methods = {}

local function malformed(pattern, reason)
  usage.error("dict:keys: the pattern %s is malformed (%s)", usage.quote(pattern),
    (reason:gsub("^malformed pattern %((.*)%)$", "%1")))
end

-- keys_method(batches) -> the method keys of a dict; batches(self): an iterator over lists of keys and their lengths.
function dict.keys_method(batches)
  return function(self, pattern, max, ...)
    check_self(self, "keys")
    if pattern ~= nil and type(pattern) ~= "string" then
      usage.error("dict:keys: pattern must be a string; got %s", usage.quote(pattern))
    elseif max ~= nil and (math_type(max) ~= "integer" or max < 0) then
      usage.error("dict:keys: max must be a whole number; got %s", usage.quote(max))
    end
    usage.no_more("dict:keys(pattern, max)", max, ...)
    local ok, reason = pcall(find, "", pattern or "")
    if not ok then malformed(pattern, reason) end
    if pattern and (pattern == "*" or find(pattern, "^[^%%%[%]().*+?-]*[^%%%]().*+?-]%*$")) then
      usage.error("dict:keys: %s seems to be a pattern of a shell or of Redis; in one of Lua write %s", usage.quote(pattern),
        pattern == "*" and "keys()" or usage.quote("^" .. pattern:sub(1, -2)))
    end
    if core.dev then require("luaserve.dev_state").watch_pairs(self) end
    local found, count = json.array {}, 0
    if max == 0 then return found end
    for batch, length in batches(self) do
      for i = 1, length do
        local key = batch[i]
        local matches = pattern == nil
        if not matches then
          ok, matches = pcall(find, tostring(key), pattern)
          if not ok then malformed(pattern, matches) end
        end
        if matches then
          count = count + 1
          found[count] = key
          if count == max then return found end
        end
      end
    end
    return found
  end
end

-- update_method(read, swap) -> the method update of a dict, by functions as core.dict_read and core.dict_swap. A failure of
-- `read` follows its two results.
function dict.update_method(read, swap)
  return function(self, key, fn, ...)
    check_self(self, "update")
    check_key("dict:update", key)
    usage.check(fn, "function", "dict:update: the second argument must be a function that returns the new value")
    usage.no_more("dict:update(key, fn)", fn, ...)
    if core.dev then fn = require("luaserve.dev_state").watch_update(fn) end
    for _ = 1, update_calls_max do
      local old, version, message, code = read(self, key)
      if message then return nil, message, code end
      local results = table.pack(fn(old))
      local new, result = results[1], results[2]
      if results.n == 0 then
        usage.error "dict:update: the function has returned no value: return the new one, or nil to remove the entry"
      end
      local ok
      ok, message, code = swap(self, key, new, version)
      if ok and result == nil then return new end
      if ok then return new, result end
      if code == "EINVAL" and swap == core_swap then usage.error("dict:update: %s", message) end
      if code ~= "EAGAIN" then return nil, message, code end
    end
    usage.error("dict:update: %s was written during each of %d calls of the function; the function must not write this "
      .. "key itself, nor wait for long", usage.quote(key), update_calls_max)
  end
end

-- dict:keys([pattern [, max]]) -> keys: (string|integer)[]
-- The keys that string.find finds the pattern in, at most `max`.
methods.keys = dict.keys_method(function(self)
  local cursor = 0
  return function()
    if not cursor then return nil end
    local batch, length, rest = scan(self, cursor, false)
    cursor = rest ~= 0 and rest
    return batch, length
  end
end)

-- dict:update(key, fn: fun(old: any): any) -> value, result: any | nil, message, code
-- Replaces a value by the result of a function, nil to remove it; without any result it raises. `old` is a copy that the function may change. The
-- function runs again if the entry was written in the meantime; it may wait. `result` is its second result.
--
-- Raises after update_calls_max calls: one that writes the entry itself would run without an end.
methods.update = dict.update_method(core.dict_read, core_swap)

-- for key, value in pairs(dict)
function methods.pairs(self)
  local cursor, batch, at, length = 0, nil, 0, 0
  local last, watch = false, core.dev and require("luaserve.dev_state").watch_pairs
  if watch then watch(self) end
  return function()
    while at >= length do
      if last then return nil end
      batch, length, cursor = scan(self, cursor, true)
      at, last = 0, cursor == 0
    end
    at = at + 2
    if watch then watch(self, batch[at - 1]) end
    return batch[at - 1], batch[at]
  end
end

-- write_failed(dict, message, code): raises what a database raises.
function dict.write_failed(name, message, code)
  message = "the dict is changed, but not its file, which is tried again: " .. message
  require("luaserve.failure").raise(name, { message = message, code = code, retry = false })
end

-- refused(message, code): raises for a value that has no room.
function dict.refused(message, code)
  require("luaserve.failure").raise("dict", { message = message, code = code, retry = false })
end

local opened = {} -- by name; the objects of this state
local evicting = setmetatable({}, { __mode = "k" }) -- the objects of dicts that were opened with evict = true

-- evicts(dict) -> whether it was opened with evict = true in this state.
function dict.evicts(object) return evicting[object] == true end

-- in_redis(dict) -> the functions of a dict in Redis that are core.dict_read and core.dict_swap of another one | nil
function dict.in_redis(object)
  local redis_dict = package.loaded["luaserve.redis_dict"]
  if redis_dict and redis_dict.client_of(object) then return redis_dict.read, redis_dict.swap end
end

-- The dict that is in Redis.
local function open_in_redis(name, given)
  for _, option in ipairs { "size", "file", "sync", "evict" } do
    if given[option] ~= nil then
      usage.error("ls.dict: %s has no meaning with redis: the settings of Redis apply (maxmemory, appendonly)", option)
    end
  end
  local client = require("luaserve.redis_topics").client_of("ls.dict", given.redis)
  local redis_dict = require "luaserve.redis_dict"
  local before = opened[name]
  if not before then
    opened[name] = redis_dict.new(name, client)
  elseif redis_dict.client_of(before) ~= client then
    usage.error('ls.dict: "%s" is defined %s elsewhere; give the same in both places', name,
      redis_dict.client_of(before) and "with another redis" or "without redis")
  end
  return opened[name]
end

-- ls.dict(name [, options: DictOptions]) -> dict
-- Finds the dict of this name, or makes it: a table that all Lua states share, and that survives a reload. Raises for
-- options other than those of an earlier call.
function dict.open(name, given, ...)
  if given == nil and opened[name] and select("#", ...) == 0 then return opened[name] end
  if type(name) ~= "string" or #name < 1 or #name > name_bytes_max or name:find("%c") then
    usage.error("ls.dict: the name must be a string of 1 to %d bytes without control characters; got %s",
      name_bytes_max, usage.quote(name))
  elseif given ~= nil and type(given) ~= "table" then
    usage.error('ls.dict: options must be a table, such as { size = "16m", evict = true }; got %s', usage.quote(given))
  end
  usage.no_more("ls.dict(name, options)", given, ...)
  if given and given.redis then
    options.check_names("ls.dict", given, dict_options)
    return open_in_redis(name, given)
  elseif opened[name] and dict.in_redis(opened[name]) then
    usage.error('ls.dict: "%s" is defined with redis elsewhere; give the same in both places', name)
  end
  local out = given and options.take("ls.dict", given, dict.calls["ls.dict"], {}) or {}
  if out.sync and not out.file then usage.error("ls.dict: sync = true needs the option file") end
  local found, where, size, other_evict, file, sync = core.dict(name, usage.where(), methods, out.bytes_max, out.evict,
    out.file, out.sync)
  if found == nil then
    local in_test = find(where, "in use by another process", 1, true) and getenv "LUASERVE_ENV" == "test"
    usage.error("ls.dict: %s%s", where, in_test and "; the other one is a server that runs, or that of a test.serve "
      .. "beside a test file that loads this module: put these tests into two test files" or "")
  elseif not found then
    local fixed = out.sync == true ~= sync or file:sub(-#(out.file or "none")) ~= (out.file or "none")
    usage.error('ls.dict: "%s" has other options at %s: size %s, evict = %s%s%s', name, where, size, tostring(other_evict),
      file == "none" and not out.file and "" or (", file %s, sync = %s"):format(file, tostring(sync)),
      fixed and "; a change of file or sync needs a restart" or where == usage.where()
        and "; this line must give the same each time that the file runs" or "")
  end
  if out.file then require("luaserve.private").store(out.file, "the file of a dict, " .. out.file) end
  opened[name] = found
  if out.evict then evicting[found] = true end
  if core.dev then require("luaserve.dev_state").watch_dict(name, found, out.evict, out.file) end
  return found
end

return dict
