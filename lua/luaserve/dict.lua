-- dict.lua - ls.dict: checks the name and the options, and the methods that need no C: keys, update, pairs.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
usage.mark_internal()

-- A site may replace the globals.
local find, math_type, pcall, tostring, type = string.find, math.type, pcall, tostring, type
local read, scan, swap = core.dict_read, core.dict_scan, core.dict_swap

local dict = {}

local name_bytes_max = 100 -- LS_SHARED_NAME_BYTES_MAX

local specs = {
  size = { "bytes_max", "size", 4096, 1 << 40 },
  evict = { "evict", "flag" },
}
local known = { size = true, evict = true }
local size_default = 16 * 1024 * 1024 -- LS_DICT_BYTES_DEFAULT

dict.known = { ["ls.dict"] = known } -- for the tests
dict.specs = { ["ls.dict"] = specs }

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

local methods = {}

-- dict:keys([pattern [, max]]) -> list of the keys that string.find finds the pattern in; at most max.
function methods.keys(self, pattern, max, ...)
  if pattern ~= nil and type(pattern) ~= "string" then
    usage.error("dict:keys: pattern must be a string; got %s", usage.quote(pattern))
  elseif max ~= nil and (math_type(max) ~= "integer" or max < 0) then
    usage.error("dict:keys: max must be a whole number; got %s", usage.quote(max))
  end
  usage.no_more("dict:keys(pattern, max)", max, ...)
  local ok, reason = pcall(find, "", pattern or "")
  if not ok then
    usage.error("dict:keys: the pattern %s is malformed (%s)", usage.quote(pattern),
      reason:gsub("^malformed pattern %((.*)%)$", "%1"))
  end
  local found, count, cursor = {}, 0, 0
  if max == 0 then return found end
  repeat
    local batch, length
    batch, length, cursor = scan(self, cursor, false)
    for i = 1, length do
      local key = batch[i]
      if pattern == nil or find(tostring(key), pattern) then
        count = count + 1
        found[count] = key
        if count == max then return found end
      end
    end
  until cursor == 0
  return found
end

-- dict:update(key, fn) -> the new value | nil, message, code. fn(old) returns the new value, nil to remove the entry.
-- `old` is a copy that fn may change. fn runs again if the entry was written in the meantime; it may wait. Raises after
-- update_calls_max calls: one that writes the entry itself would run without an end.
function methods.update(self, key, fn, ...)
  check_key("dict:update", key)
  if type(fn) ~= "function" then
    usage.error("dict:update: the second argument must be a function that returns the new value; got %s",
      usage.quote(fn))
  end
  usage.no_more("dict:update(key, fn)", fn, ...)
  for _ = 1, update_calls_max do
    local old, version = read(self, key)
    local new = fn(old)
    local ok, message, code = swap(self, key, new, version)
    if ok then return new end
    if code == "EINVAL" then usage.error("dict:update: %s", message) end
    if code ~= "EAGAIN" then return nil, message, code end
  end
  usage.error("dict:update: %s was written during each of %d calls of the function; the function must not write this "
    .. "key itself, nor wait for long", usage.quote(key), update_calls_max)
end

-- for key, value in pairs(dict)
function methods.pairs(self)
  local cursor, batch, at, length = 0, nil, 0, 0
  local last = false
  return function()
    while at >= length do
      if last then return nil end
      batch, length, cursor = scan(self, cursor, true)
      at, last = 0, cursor == 0
    end
    at = at + 2
    return batch[at - 1], batch[at]
  end
end

local opened = {} -- by name; the objects of this state

-- ls.dict(name [, { size = "16m", evict = true }]) -> dict. Finds the dict of this name, or makes it. Raises on unknown
-- options, on wrong types, and for options other than those of an earlier call.
function dict.open(name, given, ...)
  if given == nil and opened[name] and select("#", ...) == 0 then return opened[name] end
  if type(name) ~= "string" or #name < 1 or #name > name_bytes_max or name:find("%c") then
    usage.error("ls.dict: the name must be a string of 1 to %d bytes without control characters; got %s",
      name_bytes_max, usage.quote(name))
  elseif given ~= nil and type(given) ~= "table" then
    usage.error('ls.dict: options must be a table, such as { size = "16m", evict = true }; got %s', usage.quote(given))
  end
  usage.no_more("ls.dict(name, options)", given, ...)
  local bytes_max, evict
  if given then
    options.check_names("ls.dict", given, known)
    local read_options = options.read_all("ls.dict", given, specs, { bytes_max = size_default, evict = true })
    bytes_max, evict = read_options.bytes_max, read_options.evict
  end
  local found, where, size, other_evict = core.dict(name, usage.caller() or "?", methods, bytes_max, evict)
  if not found then
    usage.error('ls.dict: "%s" has other options at %s: size %s, evict = %s', name, where, size, tostring(other_evict))
  end
  opened[name] = found
  return found
end

return dict
