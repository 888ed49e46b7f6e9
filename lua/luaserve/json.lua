-- json.lua - JSON over lua-cjson 2.1.0, with a way to write an empty array.
--
-- A Lua table says by its contents whether it is an array or an object, and an empty one says neither: lua-cjson
-- writes {}. Its version 2.1.0 has no marker for empty arrays, and looks at no metatable. So `empty_array` is a table
-- that holds one text that nobody else has (random bytes that are no valid UTF-8), and encode writes [] where it finds
-- that text. The search is for a byte (FF) which does not occur in UTF-8, so it costs a memchr of the result.

local cjson = require "cjson"
local usage = require "luaserve.usage"
usage.ours()

local find, gsub, next, pcall, type = string.find, string.gsub, next, pcall, type -- whatever a site makes of the globals

local json = {}

-- Hexadecimal, NaN, Infinity and leading zeros are not JSON. A table whose whole-number keys have large gaps is an
-- object: { [1001] = "x" } is {"1001":"x"}, where cjson would refuse.
cjson.decode_invalid_numbers(false)
cjson.encode_sparse_array(true)

local marker = string.format("\xFF%016x%016x\xFF", math.random(0), math.random(0))
local marker_written = '%["' .. marker .. '"%]'

local cjson_encode, cjson_decode = cjson.encode, cjson.decode

-- null in JSON, both ways: decode gives it, encode writes it. It is not nil: compare with ls.json.null.
json.null = cjson.null

-- Written as []. One shared table: it cannot be filled.
json.empty_array = setmetatable({ marker }, {
  __newindex = function()
    usage.raise("ls.json.empty_array cannot be filled; call ls.json.array(t) on a table when it is complete")
  end,
  __name = "ls.json.empty_array",
})

-- array(t) -> t, or empty_array when t is empty. For the moment of answering: { items = ls.json.array(items) }.
function json.array(t)
  if type(t) ~= "table" then usage.raise("ls.json.array takes a table; got %s", usage.show(t)) end
  if next(t) == nil then return json.empty_array end
  return t
end

-- encode(value) -> text. Raises for what JSON cannot say: functions, NaN, infinity, keys that are neither text nor
-- number, more than 1,000 levels (a table within itself).
function json.encode(value)
  local ok, text = pcall(cjson_encode, value)
  if not ok then usage.raise("ls.json.encode: %s", text) end
  if find(text, "\xFF", 1, true) then text = gsub(text, marker_written, "[]") end
  return text
end

-- decode(text) -> value, or nil, message. Numbers come as floats (use math.tointeger for an index or an id).
function json.decode(text)
  if type(text) ~= "string" then
    usage.raise("ls.json.decode takes a text; got %s", usage.show(text))
  end
  local ok, value = pcall(cjson_decode, text)
  if not ok then return nil, value end
  return value
end

return json
