-- test/diff.lua - values as text, deep comparison, and what differs between two values.

local content = require "luaserve.core".dict_content -- the fields of a table; a value of a dict hides them from next

local null = require("luaserve.json").null
local key_before = require("luaserve.inspect").key_before

local diff = {}

diff.differences_max = 10 -- lines of a comparison of tables
diff.string_max = 200     -- bytes of a string that a line shows
local DEPTH_MAX = 6       -- nested tables that a value shows

local function is_name(key) return type(key) == "string" and key:find("^[%a_][%w_]*$") ~= nil end

local function is_nan(value) return value ~= value end

-- The keys of t: numbers in their order, then strings in theirs, then the others by type and text.
local function sorted_keys(t)
  local keys = {}
  for key in next, t do keys[#keys + 1] = key end
  table.sort(keys, key_before)
  return keys
end

local escapes = { ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\\"] = "\\\\", ['"'] = '\\"' }

-- The string in quotes, without control characters.
local function quoted(text)
  local rest = #text - diff.string_max
  if rest > 0 then text = text:sub(1, diff.string_max) end
  text = text:gsub('[%c\\"]', function(c) return escapes[c] or string.format("\\x%02X", c:byte()) end)
  return '"' .. text .. '"' .. (rest > 0 and string.format("... (%d more bytes)", rest) or "")
end

local function show(value, depth, seen)
  if type(value) == "string" then return quoted(value) end
  if value == null then return "ls.json.null" end
  if type(value) ~= "table" then return tostring(value) end
  local meta = getmetatable(value)
  if type(meta) == "table" and rawget(meta, "__tostring") then return tostring(value) end
  value = content(value)
  if seen[value] then return "{cycle}" end
  if next(value) == nil then return "{}" end
  if depth == 0 then return "{...}" end
  seen[value] = true
  local parts, size = {}, rawlen(value)
  for _, key in ipairs(sorted_keys(value)) do
    local text = show(rawget(value, key), depth - 1, seen)
    if math.type(key) == "integer" and key >= 1 and key <= size then
      parts[#parts + 1] = text
    else
      parts[#parts + 1] = (is_name(key) and key or "[" .. show(key, 1, seen) .. "]") .. " = " .. text
    end
  end
  seen[value] = nil
  return "{ " .. table.concat(parts, ", ") .. " }"
end

-- show(value) -> its text: strings in quotes, tables with their fields in a fixed order.
function diff.show(value) return show(value, DEPTH_MAX, {}) end

local function same(a, b, pairs_seen)
  if a == b or is_nan(a) and is_nan(b) then return true end
  if type(a) ~= "table" or type(b) ~= "table" then return false end
  a, b = content(a), content(b)
  local before = pairs_seen[a]
  if before and before[b] then return true end -- a cycle that both have
  if not before then
    before = {}
    pairs_seen[a] = before
  end
  before[b] = true
  for key, value in next, a do
    if not same(value, rawget(b, key), pairs_seen) then return false end
  end
  for key in next, b do
    if rawget(a, key) == nil then return false end
  end
  return true
end

-- same(a, b) -> whether both are equal: as == compares them, or both NaN, or tables with equal fields, without metatables.
function diff.same(a, b) return same(a, b, {}) end

local function path_of(path, key)
  if is_name(key) then return path .. "." .. key end
  return path .. "[" .. show(key, 1, {}) .. "]"
end

local function lines_of(text)
  local lines = {}
  for line in (text .. "\n"):gmatch("(.-)\n") do lines[#lines + 1] = line end
  return lines
end

-- The first byte in which two strings differ, and for a text of several lines the first line.
local function compare_strings(got, expected, add)
  local at = 1
  while got:byte(at) == expected:byte(at) do at = at + 1 end
  if got:find("\n", 1, true) or expected:find("\n", 1, true) then
    local got_lines, expected_lines, line = lines_of(got), lines_of(expected), 1
    while got_lines[line] == expected_lines[line] do line = line + 1 end
    add(string.format("line %d differs:", line))
    add("  expected " .. (expected_lines[line] and quoted(expected_lines[line]) or "no such line"))
    add("  got      " .. (got_lines[line] and quoted(got_lines[line]) or "no such line"))
  elseif #got > 40 or #expected > 40 then
    local from = math.max(1, at - 20)
    local function part(text) return (from > 1 and "..." or "") .. quoted(text:sub(from, from + 60)) end
    add(string.format("byte %d differs:", at))
    add("  expected " .. part(expected))
    add("  got      " .. part(got))
  end
end

local function compare_tables(got, expected, path, seen, add)
  got, expected = content(got), content(expected)
  if seen[got] == expected then return end
  seen[got] = expected
  local keys = sorted_keys(expected)
  for _, key in ipairs(sorted_keys(got)) do
    if rawget(expected, key) == nil then keys[#keys + 1] = key end
  end
  for _, key in ipairs(keys) do
    local a, b, at = rawget(got, key), rawget(expected, key), path_of(path, key)
    if diff.same(a, b) then -- nothing to say
      goto continue
    elseif type(a) == "table" and type(b) == "table" then
      compare_tables(a, b, at, seen, add)
    elseif b == nil then
      add(string.format("%s: not expected, got %s", at, diff.show(a)))
    elseif a == nil then
      add(string.format("%s: expected %s, got nil", at, diff.show(b)))
    elseif type(a) ~= type(b) then
      add(string.format("%s: expected %s (a %s), got %s (a %s)", at, diff.show(b), type(b), diff.show(a), type(a)))
    else
      add(string.format("%s: expected %s, got %s", at, diff.show(b), diff.show(a)))
    end
    ::continue::
  end
end

-- compare(got, expected) -> nil when both are equal; else a message, and a list of lines that say where they differ.
function diff.compare(got, expected)
  if diff.same(got, expected) then return nil end
  local lines, left_out = {}, 0
  local function add(line)
    if #lines < diff.differences_max then lines[#lines + 1] = line else left_out = left_out + 1 end
  end
  if type(got) == "table" and type(expected) == "table" then
    compare_tables(got, expected, "", {}, add)
    if left_out > 0 then lines[#lines + 1] = string.format("and %d more differences", left_out) end
    lines[#lines + 1] = "expected " .. diff.show(expected)
    lines[#lines + 1] = "got      " .. diff.show(got)
    return "the tables differ", lines
  end
  if type(got) == "string" and type(expected) == "string" then
    compare_strings(got, expected, add)
    if #lines > 0 then return "the strings differ", lines end
  end
  local a, b = diff.show(got), diff.show(expected)
  if type(got) ~= type(expected) and got ~= nil and expected ~= nil then
    a, b = a .. " (a " .. type(got) .. ")", b .. " (a " .. type(expected) .. ")"
  end
  return "expected " .. b .. ", got " .. a, lines
end

return diff
