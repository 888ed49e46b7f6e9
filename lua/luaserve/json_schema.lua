-- json_schema.lua - JSON Schema (draft 2020-12), as OpenAPI 3.1 has it, of the nodes of check.lua.
--
-- What a check accepts, its schema accepts. The schema accepts more where JSON Schema cannot say it: a pattern of Lua that has no
-- regular expression, integers of more than 64 bits, and what a check with `convert` makes of other JSON.

local json = require "luaserve.json"

local concat, ipairs, type = table.concat, ipairs, type
local byte, char, find, format = string.byte, string.char, string.find, string.format
local match, sub = string.match, string.sub

local json_schema = {}

-- What JSON Schema calls the kinds of nodes, and their limits. "file" is a part of a form that has a file.
local kinds = {
  string = { type = "string", min = "minLength", max = "maxLength" },
  integer = { type = "integer", format = "int64", min = "minimum", max = "maximum" },
  number = { type = "number", min = "minimum", max = "maximum" },
  boolean = { type = "boolean" },
  table = { type = { "object", "array" } },
  any = {},
  object = { type = "object" },
  list = { type = "array", min = "minItems", max = "maxItems" },
  file = { type = "string", contentMediaType = "application/octet-stream" },
}

-- ---- patterns ------------------------------------------------------------------------------------------------------

local function code(number)
  local c = char(number)
  return find(c, "^%w$") and c or format("\\x%02x", number)
end

-- characters(item) -> the regular expression of the characters that a single item of a pattern matches, such as "[^%s@]"; and
-- whether they are all that are not in ASCII, or none of these. nil: only some of them.
local function characters(item)
  local wide = find("\x80", item) ~= nil
  for n = 0x81, 0xFF do
    if (find(char(n), item) ~= nil) ~= wide then return nil end
  end
  local ranges, from, count = {}, nil, 0
  for n = 0, 128 do
    local listed = n < 128 and (find(char(n), item) ~= nil) ~= wide
    if listed then
      from, count = from or n, count + 1
    elseif from then
      ranges[#ranges + 1] = code(from) .. (n - 1 > from and "-" .. code(n - 1) or "")
      from = nil
    end
  end
  if wide then return count == 0 and "[\\s\\S]" or "[^" .. concat(ranges) .. "]", true end
  return count == 1 and ranges[1] or "[" .. concat(ranges) .. "]", false
end

-- item_at(pattern, at) -> the item, the place after it. nil: it is no set of characters.
local function item_at(pattern, at)
  local c = sub(pattern, at, at)
  if c == "%" then
    return match(pattern, "^%%[^bf%d]", at), at + 2
  elseif c == "[" then
    local stop = at + (sub(pattern, at + 1, at + 1) == "^" and 2 or 1)
    repeat
      stop = stop + (sub(pattern, stop, stop) == "%" and 2 or 1)
      if stop > #pattern then return nil end
    until sub(pattern, stop, stop) == "]"
    return sub(pattern, at, stop), stop + 1
  end
  return find(c, "^[%w.]$") and c or "%" .. c, at + 1
end

-- regex(pattern) -> the regular expression (ECMA-262, with and without the flag u) that matches what the pattern of Lua does. nil
-- for %b, %f, back references, and what counts bytes of characters that are not in ASCII.
function json_schema.regex(pattern)
  local out, at, wide_before = {}, 1, false
  if sub(pattern, 1, 1) == "^" then out[1], at = "^", 2 end
  while at <= #pattern do
    local c = sub(pattern, at, at)
    if c == "$" and at == #pattern then
      out[#out + 1], at = "$", at + 1
    elseif c == "(" or c == ")" then -- captures have no effect
      at = at + 1
    elseif byte(c) >= 0x80 then
      local text = match(pattern, "^[\xC2-\xF4][\x80-\xBF]+", at)
      at = at + #(text or "")
      if not text or find(pattern, "^[*+?-]", at) then return nil end
      out[#out + 1], wide_before = text, false
    else
      local item, after = item_at(pattern, at)
      if not item then return nil end
      local text, wide = characters(item)
      local suffix = match(pattern, "^[*+?-]", after)
      if not text or wide and (suffix == nil or suffix == "?" or suffix == "+" and wide_before) then return nil end
      out[#out + 1] = text .. (suffix == "-" and "*?" or suffix or "")
      at, wide_before = after + (suffix and 1 or 0), wide
    end
  end
  return concat(out)
end

-- ---- nodes ---------------------------------------------------------------------------------------------------------

local of

-- Whether a field may be absent. In a form, a list is empty then, and a boolean is false.
local function may_be_absent(node, context)
  return node.optional or node.default ~= nil or context.converts and (node.kind == "list" or node.kind == "boolean")
end

-- The keywords of the limits by which a node differs from the one that has a name.
local function add_limits(out, node, named)
  local kind = kinds[node.kind]
  for _, name in ipairs { "min", "max" } do
    if node[name] and node[name] ~= named[name] then out[kind[name]] = node[name] end
  end
  if node.pattern and node.pattern ~= named.pattern then
    out.pattern = json_schema.regex(node.pattern)
    if not out.pattern then out.description = "Matches the pattern of Lua " .. node.pattern end
  end
  if node.values and node.values ~= named.values then
    local values = {}
    for i, value in ipairs(node.values) do values[i] = value end
    out.enum = json.array(values)
  end
  if node.default ~= named.default then out.default = node.default end
  if node.description ~= named.description then out.description = node.description end
end

-- The schema of a value of JSON that the check converts: also a string, the first item of a list, or nothing at all.
local function loose(node)
  local kind, out = kinds[node.kind], {}
  add_limits(out, node, {})
  out.enum, out.pattern = nil, nil
  if kind.min ~= "minimum" then out.minLength, out.maxLength, out.minItems, out.maxItems = nil, nil, nil, nil end
  if node.kind == "list" or node.kind == "table" or node.kind == "any" then return out end
  out.format, out.type = kind.format, json.array { kind.type, "array", "null" }
  if kind.type ~= "string" then out.type[4] = "string" end
  return out
end

-- whole(node, context) -> the schema of a node, without its name, and without null.
local function whole(node, context)
  if context.loose and node.kind ~= "object" then return loose(node) end
  if node.unknown and not context.unknown then
    context = { names = context.names, converts = context.converts, loose = context.loose, unknown = node.unknown }
  end
  local kind, out = kinds[node.kind], {}
  for _, name in ipairs { "type", "format", "contentMediaType" } do out[name] = kind[name] end
  if node.kind == "table" then out.type = json.array { "object", "array" } end
  if node.kind == "any" and not context.converts then out["not"] = { type = "null" } end
  add_limits(out, node, {})
  if node.kind == "list" then
    out.items = of(node.item, context)
  elseif node.kind == "object" then
    local required = json.array {}
    out.properties = {}
    for _, field in ipairs(node.fields) do
      local one = of(field[2], context)
      out.properties[field[1]] = one
      local inner = field[2]
      if context.converts and inner.kind == "boolean" and not inner.optional and inner.default == nil then one.default = false end
      if not may_be_absent(field[2], context) then
        required[#required + 1] = field[1]
        if context.converts and one.type == "string" and not one.contentMediaType then
          one.minLength = math.max(one.minLength or 1, 1) -- an empty field is absent
        end
      end
    end
    if required[1] then out.required = required end
    if context.unknown == "refuse" then out.additionalProperties = false end
  end
  return out
end
json_schema.whole = whole

-- The name of the node, or of the check that it is made of, and the node that has it.
local function name_of(node, names)
  while node do
    if names[node] then return names[node], node end
    node = node.origin
  end
end

-- of(node, context) -> the schema of a node. context: { names = names of nodes, which are in #/components/schemas; converts = the
-- values are those of a form or a query, or `loose` = of JSON, and converted; unknown = "refuse" | nil }.
function of(node, context)
  local name, named = name_of(node, context.names)
  local out
  if name then
    out = { ["$ref"] = "#/components/schemas/" .. name }
    add_limits(out, node, named)
  else
    out = whole(node, context)
  end
  if not (node.optional or node.default ~= nil) or context.converts then return out end
  if node.kind == "any" and not name then
    out["not"] = nil
  elseif name or type(out.type) == "table" then
    local description, default = out.description, out.default
    out.description, out.default = nil, nil
    return { anyOf = json.array { out, { type = "null" } }, description = description, default = default }
  else
    out.type = json.array { out.type, "null" }
    if out.enum then out.enum[#out.enum + 1] = json.null end
  end
  return out
end
json_schema.of = of

return json_schema
