-- json.lua - JSON over lua-cjson with the patches of luaserve (third_party/README.md).
--
-- The contents of a Lua table decide whether it is an array or an object. An empty table is an object, except with the
-- metatable that cjson.decode gives to the empty arrays of a text.

local cjson = require "cjson"
local core = require "luaserve.core"
local usage = require "luaserve.usage"

local error, getmetatable, next, pcall, setmetatable, type =
  error, getmetatable, next, pcall, setmetatable, type -- a site may replace the globals

-- ls.json is a Json: encodes and decodes JSON.
-- ls.json.null: lightuserdata - the value of JSON null: decode returns it, encode writes it
-- ls.json.empty_array: table - encoded as `[]`; read-only
local json = {}

-- Hexadecimal numbers, NaN, Infinity and leading zeros are invalid in JSON. A table with large gaps between its
-- integer keys is an object: { [1001] = "x" } is {"1001":"x"}; by default cjson raises.
cjson.decode_invalid_numbers(false)
cjson.encode_sparse_array(true)

local cjson_decode = cjson.decode_utf8
local array = getmetatable(cjson_decode("[]"))

-- The value of JSON null: decode returns it, encode writes it. It is not nil: compare with ls.json.null.
json.null = cjson.null

-- Encoded as []. One shared, read-only table.
local read_only = {
  __newindex = function()
    usage.error("ls.json.empty_array is read-only; make a table of your own with ls.json.array {}")
  end,
  __name = "ls.json.empty_array",
}
for key, value in next, array do read_only[key] = value end
json.empty_array = setmetatable({}, read_only)

-- ls.json.array(list: T) -> list: T
-- Marks a table as an array, so that it is encoded as `[]` while it is empty.
--
-- The mark is a metatable. A table that has another metatable keeps it; if it is empty, array returns empty_array.
function json.array(t, extra)
  if extra ~= nil then usage.no_more("ls.json.array(list)", t, extra) end
  if type(t) ~= "table" then usage.error("ls.json.array takes a table; got %s", usage.quote(t)) end
  local metatable = getmetatable(t)
  if metatable == nil then return setmetatable(t, array) end
  if metatable ~= array and next(t) == nil then return json.empty_array end
  return t
end

local function encoder(name, encode)
  return function(value, extra)
    if extra ~= nil then usage.no_more(name .. "(value)", value, extra) end
    local ok, text = pcall(encode, value)
    if not ok then usage.error("%s: %s", name, text) end
    return text
  end
end

-- ls.json.encode(value) -> text
-- To JSON. Raises for a value without a JSON form, with its path: a function, NaN, infinity, text that is not UTF-8, a key
-- that is neither a string nor a number, more than 1,000 levels (a table within itself).
json.encode = encoder("ls.json.encode", cjson.encode_utf8)

-- ls.json.encode_sorted(value) -> text
-- As ls.json.encode, with the members of objects in the order of their names: equal values have one text, which a digest needs.
json.encode_sorted = encoder("ls.json.encode_sorted", cjson.encode_sorted)

-- ls.json.decode(text) -> value | nil, message
-- From JSON. A number without fraction and exponent is an integer if it is within 64 bits; all other numbers are floats.
function json.decode(text, extra)
  if extra ~= nil then usage.no_more("ls.json.decode(text)", text, extra) end
  if type(text) ~= "string" then usage.error("ls.json.decode takes a string; got %s", usage.quote(text)) end
  local ok, value = pcall(cjson_decode, text)
  if ok then return value end
  if value == "not enough memory" then error(value, 0) end
  if core.failed then return core.failed(nil, value) end -- a stress script has no tasks
  return nil, value
end

return json
