-- json_fault.lua - why a value cannot be encoded as JSON, for the encoder when it has failed, and what JSON would change in one.

local core = require "luaserve.core"
local null = require("luaserve.json").null

-- A site may replace the globals.
local getmetatable, math_type, next, pcall, rawget = debug.getmetatable, math.type, next, pcall, rawget
local tostring, type = tostring, type
local find, format, utf8_len, content = string.find, string.format, utf8.len, core.dict_content

local json_fault = {}

-- fault(value, path, above) -> what has no JSON form in the value, or nil. `above`: set of the tables around it.
local function fault(value, path, above)
  local kind = type(value)
  if kind == "string" then
    return not utf8_len(value) and path .. " is not valid UTF-8; encode bytes, for instance in base64" or nil
  elseif kind == "number" and (value ~= value or value == 1 / 0 or value == -1 / 0) then
    return format("%s is %s, which JSON does not have", path, value ~= value and "NaN" or "infinite")
  elseif kind == "function" or kind == "thread" or kind == "userdata" and value ~= null and content(value) == value then
    return format("%s is a %s, which JSON does not have", path, kind)
  end
  local t = content(value)
  if type(t) ~= "table" then return nil end
  local meta = t == value and getmetatable(t)
  if meta and rawget(meta, "__metatable") ~= nil then
    return format("%s is %s", path, meta.__json or "an object, which JSON does not have")
  end
  if above[t] then return path .. " is a table that contains itself" end
  above[t] = true
  for key, inner in next, t do
    local at = math_type(key) and "[" .. key .. "]" or type(key) == "string" and find(key, "^[%a_][%w_]*$") and "." .. key
      or type(key) == "string" and format("[%q]", key)
    if not at then return format("a key of %s is a %s; JSON has strings", path, type(key)) end
    if not utf8_len(tostring(key)) then return format("a key of %s is not valid UTF-8", path) end
    local found = fault(inner, path .. at, above)
    if found then return found end
  end
  above[t] = nil
end

-- changed(value, path) -> the path of a table in the value that has other keys after JSON, and such a key as text: its keys are
-- neither all strings nor 1 to n | nil
function json_fault.changed(value, path)
  local t, strings, others = content(value), 0, 0
  if type(t) ~= "table" then return nil end
  for key in next, t do
    if type(key) == "string" then strings = strings + 1 else others = others + 1 end
  end
  for key, inner in next, t do
    local is_index = strings == 0 and math_type(key) == "integer" and key >= 1 and key <= others
    if type(key) ~= "string" and not is_index then return path, tostring(key) end
    local at, wrong = json_fault.changed(inner, path .. (type(key) == "string" and "." .. key or "[" .. key .. "]"))
    if at then return at, wrong end
  end
end

-- explain(value) -> why the core cannot encode it, with the path.
function json_fault.explain(value)
  local ok, why = pcall(fault, value, "value", {})
  return ok and why or "value has more than 1000 levels"
end

return json_fault
