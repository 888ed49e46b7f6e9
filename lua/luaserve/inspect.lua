-- inspect.lua - the text of any value, for people: ls.inspect, ls.log and the prompt.

local core = require "luaserve.core"
local null = require("luaserve.json").null
local usage = require "luaserve.usage"

local inspect = {}

-- The limits of the text of a value. Tests read them.
inspect.limits = { depth = 4, items = 100, bytes = 16384, string_bytes = 4096 }

local escapes = { ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ['"'] = '\\"', ["\\"] = "\\\\" }

-- Control characters and bytes that are no UTF-8 as escapes, so that a value cannot control the terminal. `pattern`: the
-- ASCII characters that are escaped.
local function escape(text, pattern)
  text = text:gsub(pattern, function(c) return escapes[c] or string.format("\\x%02X", c:byte()) end)
  if not utf8.len(text) then
    text = text:gsub("[\x80-\xff]", function(c) return string.format("\\x%02X", c:byte()) end)
  end
  return (text:gsub("\xc2[\x80-\x9f]", function(c) return string.format("\\u{%X}", utf8.codepoint(c)) end))
end

local function quoted(text) return '"' .. escape(text, '[%c"\\]') .. '"' end
local function plain(text) return escape(text, "[\0-\8\11-\31\127]") end -- keeps \t and \n

local function show_string(text)
  local most = inspect.limits.string_bytes
  if #text <= most then return quoted(text) end
  local stop = most
  while stop > most - 4 and text:byte(stop + 1) & 0xC0 == 0x80 do stop = stop - 1 end -- not inside of a character
  return string.format("%s... (%d bytes)", quoted(text:sub(1, stop)), #text)
end

local keywords = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat return then true until "
  .. "while"):gmatch("%a+") do
  keywords[word] = true
end

local function show_key(key)
  if type(key) == "string" then
    if key:match("^[%a_][%w_]*$") and not keywords[key] then return key end
    return "[" .. show_string(key) .. "]"
  end
  return "[" .. (math.type(key) and string.format("%.14g", key) or tostring(key)) .. "]"
end

local ranks = { number = 1, string = 2, boolean = 3 }

-- Numbers in their order, then strings, then the other keys.
local function key_before(a, b)
  local rank_a, rank_b = ranks[type(a)] or 4, ranks[type(b)] or 4
  if rank_a ~= rank_b then return rank_a < rank_b end
  if rank_a <= 2 then return a < b end
  return tostring(a) < tostring(b)
end

-- The text of a value with tostring, which may call __tostring of the site.
local function describe(value)
  local ok, text = pcall(tostring, value)
  if not ok then return string.format("<%s: __tostring failed>", type(value)) end
  return plain(text)
end

local show_value

-- One entry for each key of the table: { text of "key = " or "", value }; the number of entries left out.
local function entries_of(t)
  local list, keys = {}, {}
  local length = rawlen(t)
  for i = 1, math.min(length, inspect.limits.items) do list[i] = { "", rawget(t, i) } end
  for key in next, t do
    if not (math.type(key) == "integer" and key >= 1 and key <= length) then keys[#keys + 1] = key end
  end
  table.sort(keys, key_before)
  local left = math.max(0, length - #list)
  for _, key in ipairs(keys) do
    if #list < inspect.limits.items then
      list[#list + 1] = { show_key(key) .. " = ", rawget(t, key) }
    else
      left = left + 1
    end
  end
  return list, left
end

local function show_table(t, out)
  local meta = debug.getmetatable(t)
  local name = type(meta) == "table" and rawget(meta, "__name")
  if type(meta) == "table" and rawget(meta, "__tostring") ~= nil then return describe(t) end
  local title = type(name) == "string" and plain(name) .. " " or ""
  t = core.dict_content(t)
  if out.path[t] then return title .. "{ <cycle> }" end
  if next(t) == nil then return title .. "{}" end
  if out.depth >= inspect.limits.depth then return title .. "{ ... }" end
  out.path[t], out.depth = true, out.depth + 1
  local list, left = entries_of(t)
  local parts, width, lines = {}, 0, false
  for _, entry in ipairs(list) do
    if out.bytes > inspect.limits.bytes then
      left = left + 1
    else
      local text = entry[1] .. show_value(entry[2], out)
      parts[#parts + 1] = text
      out.bytes = out.bytes + #text
      width = width + #text + 2
      lines = lines or text:find("\n", 1, true) ~= nil
    end
  end
  if left > 0 then parts[#parts + 1] = string.format("... (%d more)", left) end
  out.path[t], out.depth = nil, out.depth - 1
  if not lines and width <= 76 then return title .. "{ " .. table.concat(parts, ", ") .. " }" end
  for i, text in ipairs(parts) do parts[i] = "  " .. text:gsub("\n", "\n  ") end
  return title .. "{\n" .. table.concat(parts, ",\n") .. "\n}"
end

function show_value(value, out)
  if type(value) == "string" then return show_string(value) end
  if value == null then return "ls.json.null" end
  if type(value) == "table" then return show_table(value, out) end
  return describe(value)
end

-- ls.inspect(value) -> text: string
-- The text of a value: strings in quotes, tables with sorted keys, and the marks of a cycle. Fields are read without
-- metamethods; __tostring and __name are used. What is past the limits is left out and counted.
function inspect.show(value, ...)
  usage.no_more("ls.inspect(value)", value, ...)
  return show_value(value, { path = {}, depth = 0, bytes = 0 })
end

-- show_all(n, ...) -> the text of n values, separated by tabs.
function inspect.show_all(n, ...)
  local parts = { ... }
  for i = 1, n do parts[i] = inspect.show(parts[i]) end
  return table.concat(parts, "\t", 1, n)
end

inspect.describe, inspect.keywords, inspect.key_before = describe, keywords, key_before

return inspect
