-- json.lua - JSON over lua-cjson 2.1.0, with a way to write an empty array.
--
-- The contents of a Lua table decide whether it is an array or an object; for an empty table lua-cjson writes {}.
-- Version 2.1.0 has no marker for empty arrays and ignores metatables. So `empty_array` is a table with one unique
-- string, the marker (random digits between two bytes FF), and encode replaces the marker by []. The byte FF does not
-- occur in UTF-8, so the search costs one memchr of the result.

local cjson = require "cjson"
local usage = require "luaserve.usage"
usage.mark_internal()

local find, gsub, next, pcall, type = string.find, string.gsub, next, pcall, type -- a site may replace the globals

local json = {}

-- Hexadecimal numbers, NaN, Infinity and leading zeros are invalid in JSON. A table with large gaps between its
-- integer keys is an object: { [1001] = "x" } is {"1001":"x"}; by default cjson raises.
cjson.decode_invalid_numbers(false)
cjson.encode_sparse_array(true)

local marker = string.format("\xFF%016x%016x\xFF", math.random(0), math.random(0))
local marker_written = '%["' .. marker .. '"%]'

local cjson_encode, cjson_decode = cjson.encode, cjson.decode

-- The value of JSON null: decode returns it, encode writes it. It is not nil: compare with ls.json.null.
json.null = cjson.null

-- Encoded as []. One shared, read-only table.
json.empty_array = setmetatable({ marker }, {
  __newindex = function()
    usage.error("ls.json.empty_array is read-only; call ls.json.array(t) on a table once it is filled")
  end,
  __name = "ls.json.empty_array",
})

-- array(t) -> t, or empty_array when t is empty. Call it when the response is built: { items = ls.json.array(items) }.
function json.array(t)
  if type(t) ~= "table" then usage.error("ls.json.array takes a table; got %s", usage.quote(t)) end
  if next(t) == nil then return json.empty_array end
  return t
end

-- encode(value) -> string. Raises for a value without a JSON form: a function, NaN, infinity, a key that is neither a
-- string nor a number, more than 1,000 levels (a table within itself).
function json.encode(value)
  local ok, text = pcall(cjson_encode, value)
  if not ok then usage.error("ls.json.encode: %s", text) end
  if find(text, "\xFF", 1, true) then text = gsub(text, marker_written, "[]") end
  return text
end

-- decode(text) -> value | nil, message. Numbers are floats (use math.tointeger for an index or an id).
function json.decode(text)
  if type(text) ~= "string" then
    usage.error("ls.json.decode takes a string; got %s", usage.quote(text))
  end
  local ok, value = pcall(cjson_decode, text)
  if not ok then return nil, value end
  return value
end

return json
