-- check.lua - ls.check: values that must have a given form, such as the JSON or the form of a request.
--
-- A schema is read once, when the site loads, into nodes { kind, optional, default, min, max, pattern, one_of, ... }; the
-- node of a list has `item`, the node of an object `fields`, a list of { name, node } in the order of the names, and the
-- set `known` of these names; one that another check has made has `origin`, the node of that check, and its
-- `unknown`. A value is checked with a state { errors = by path, count, unknown, convert, null }.

local core = require "luaserve.core"
local json = require "luaserve.json"
local options = require "luaserve.options"
local usage = require "luaserve.usage"
local trim = require("luaserve.text").trim

-- A site may replace the globals.
local concat, move, sort, find, format = table.concat, table.move, table.sort, string.find, string.format
local utf8_offset = utf8.offset
local getmetatable, ipairs, next, pairs, pcall, rawget = getmetatable, ipairs, next, pairs, pcall, rawget
local setmetatable, tonumber, tostring, type = setmetatable, tonumber, tostring, type
local math_type, tointeger, utf8_len, content = math.type, math.tointeger, utf8.len, core.dict_content

local check = {}

local check_options = {
  unknown = { "unknown", "choice", "drop", "refuse", "drop" }, -- fields that the schema does not have
  convert = { "convert", "flag" }, -- strings become numbers and booleans, as of a form
}
local body_options = {
  refuse = { "refuse", "flag", nil, nil, true }, -- a wrong body raises, and gives a 422; else the errors are returned
  unknown = { "unknown", "choice", "drop", "refuse", "drop" }, -- fields that the schema does not have
  null = { "null", "flag" }, -- true: an optional field that is null is ls.json.null; false: absent, in a PATCH as well
}
check.calls = {
  ["ls.check"] = { check_options, listed = true }, -- CheckOptions
  ["req:json"] = { body_options, listed = true }, -- CheckBodyOptions
}

-- The limits of schemas, of the errors of a value, and of the JSON text of a 422. Tests read them.
check.limits = { levels = 16, errors = 20, answer_bytes = 2000 }

-- What a value of each kind must be. The last two are no names of types.
local expected = {
  string = "a string", integer = "a whole number", number = "a number", boolean = "true or false",
  table = "an object or list", any = "any value", object = "an object", list = "a list",
}
local types = {}
for name in pairs(expected) do types[name] = name ~= "object" and name ~= "list" or nil end
local rules = { is = true, optional = true, default = true, min = true, max = true, pattern = true, one_of = true,
  message = true, description = true }
local sized = { string = " characters", list = " items", integer = "", number = "" }
local example = '{ is = "string", max = 80 }'

-- ---- schemas ---------------------------------------------------------------------------------------------------------

-- fail(path, format, ...): raises with the path of the field.
local function raiser(call)
  return function(path, ...)
    usage.error("%s: %s%s", call, path == "" and "" or path .. ": ", format(...))
  end
end

-- What to write for types and rules of other programs.
local other_types = { int = '"integer"', long = '"integer"', float = '"number"', double = '"number"', bool = '"boolean"', str = '"string"', text = '"string"',
  array = 'the list { "string" }', list = 'the list { "string" }', object = "the table of its fields, or \"table\"", map = '"table"', dict = '"table"',
  null = '"string?" for what may be absent', file = "parts = { name = \"file\" } at the route", date = '{ is = "string", pattern = "^%d%d%d%d%-%d%d%-%d%d$" }',
  email = '{ is = "string", pattern = "^[^@%s]+@[^@%s]+$" }', uuid = '{ is = "string", min = 36, max = 36 }', url = '{ is = "string", pattern = "^https?://" }' }
local optional_form <const> = 'a field is required unless it is optional: "string?", or optional = true'
local other_rules = { required = optional_form, nullable = optional_form, type = 'write is = "string"', minlength = "write min", maxlength = "write max",
  minimum = "write min", maximum = "write max", length = "write min and max", enum = "write one_of", values = "write one_of", choices = "write one_of",
  regex = "write pattern, one of Lua", match = "write pattern, one of Lua", format = "write pattern, one of Lua", items = 'write is = { "string" }',
  minitems = "write min", maxitems = "write max", properties = "write the table of the fields", fields = "write the table of the fields",
  additionalproperties = 'write ls.check(schema, { unknown = "refuse" })' }

local read

local function read_name(text, path, fail)
  local name, mark = text:match("^(.-)(%??)$")
  if not types[name] then
    local other = other_types[name:lower()]
    local hint = other and "; write " .. other or usage.suggest(name, types)
    fail(path, "unknown type %s%s", usage.quote(text), hint ~= "" and hint
      or '; the types are "string", "integer", "number", "boolean", "table" and "any", with "?" after the name of an '
        .. "optional one; limits are written as " .. example)
  end
  return { kind = name, optional = mark == "?" or nil }
end

local function read_limit(node, name, value, path, fail)
  local unit = sized[node.kind]
  if not unit then fail(path, "%s is for strings, numbers and lists", name) end
  local counts = node.kind == "string" or node.kind == "list"
  if counts and not (math_type(value) == "integer" and value >= 0) or type(value) ~= "number" or value ~= value then
    fail(path, "%s must be %s; got %s", name, counts and "a number of" .. unit or "a number", usage.quote(value))
  end
  node[name] = value
end

local function read_one_of(node, list, path, fail)
  if type(list) ~= "table" or #list == 0 then
    fail(path, 'one_of must be a list of values, such as { "a", "b" }; got %s', usage.quote(list))
  end
  local set, shown = {}, {}
  for i, value in ipairs(list) do
    if type(value) ~= "string" and type(value) ~= "number" then
      fail(path, "one_of must have strings or numbers; got %s", usage.quote(value))
    end
    set[value] = true
    if i <= 10 then shown[i] = tostring(value) end
  end
  if #list > 10 then shown[11] = "..." end
  node.one_of, node.choices, node.values = set, concat(shown, ", "), move(list, 1, #list, 1, {})
end

local run, fits, limit_fault

-- The schema in the form { is = schema, max = ... }.
local function read_rule(given, path, level, fail)
  local node = read(given.is, path, level, fail)
  for name in pairs(given) do
    if not rules[name] then
      local other = other_rules[tostring(name):lower():gsub("_", "")]
      fail(path, "unknown name %s beside `is`%s", usage.quote(name), other and "; " .. other or usage.suggest(name, rules))
    end
  end
  for _, name in ipairs { "min", "max" } do
    if given[name] ~= nil then read_limit(node, name, given[name], path, fail) end
  end
  if node.min and node.max and node.min > node.max then
    fail(path, "min (%s) must not be above max (%s)", node.min, node.max)
  end
  if given.pattern ~= nil then
    if node.kind ~= "string" then fail(path, "pattern is for strings") end
    if type(given.pattern) ~= "string" or not pcall(find, "", given.pattern) then
      fail(path, 'pattern must be a pattern of Lua, such as "^%%d+$"; got %s', usage.quote(given.pattern))
    end
    local regular = given.pattern:match("\\[dwsDWS]%f[%W]") or given.pattern:match("[%w%])]({%d+,?%d*})")
      or given.pattern:match("^/%^.*/%l*$") or given.pattern:match("^/.*%$/%l*$") or given.pattern:match("%(%?[:=!]")
    if regular then
      fail(path, 'the pattern is a regular expression, by %s; it must be one of Lua: %%d, %%l, %%w and %%s are classes, an item that '
        .. 'is repeated n times is written n times, with min and max for the length, or given as one_of; got %s',
        usage.quote(regular), usage.quote(given.pattern))
    end
    node.pattern = given.pattern
  end
  if given.one_of ~= nil then read_one_of(node, given.one_of, path, fail) end
  for _, value in ipairs(node.values or {}) do
    local wrong = not fits(node.kind, value) and "is no " .. node.kind or limit_fault(node, value)
    if wrong then fail(path, "one_of has the value %s, which %s", usage.quote(value), wrong) end
  end
  for _, name in ipairs { "message", "description" } do
    if given[name] ~= nil and type(given[name]) ~= "string" then
      fail(path, "%s must be a string; got %s", name, usage.quote(given[name]))
    end
    node[name] = given[name] or node[name]
  end
  if given.optional ~= nil then
    if type(given.optional) ~= "boolean" then
      fail(path, "optional must be true or false; got %s", usage.quote(given.optional))
    end
    node.optional = given.optional or nil
  end
  if given.default ~= nil then
    if type(given.default) == "table" then fail(path, "default must be a string, a number or a boolean; got a table") end
    local state = { errors = {}, count = 0 }
    run(node, given.default, "", state)
    if state.count > 0 then fail(path, "default %s", state.errors[""]) end
    node.default = given.default
  end
  return node
end

local function is_type(value)
  return type(value) == "table" or type(value) == "string" and types[value:match("^(.-)%??$")] ~= nil
end

-- Whether a schema is one of another program, such as JSON Schema: { type = "string", minLength = 3 }. As a field also { type =
-- "string" } alone; an object with a field `type` has { is = "string" } there.
local function is_of_others(given, level)
  local name = type(given.type) == "string" and given.type:match("^(.-)%??$")
  if not name or not types[name] and not other_types[name:lower()] then return false end
  if not types[name] and given.properties or level > 1 and next(given, next(given)) == nil then return true end
  for other, value in pairs(given) do
    if other ~= "type" and (rules[other] or other_rules[tostring(other):lower()]) and not is_type(value) then return true end
  end
  return false
end

local function read_fields(given, path, level, fail)
  if is_of_others(given, level) then
    local name = given.type:match("^(.-)%??$")
    fail(path, "with `type`, as in other programs, this is an object that has a field of this name: write %s, with limits { is = %s, max = 80 }, "
      .. "and an object as the table of its fields; for a field that is named type write type = { is = %s }", types[name] and usage.quote(name)
      or other_types[name:lower()], usage.quote(types[name] and name or "string"), '"string"')
  end
  local node = { kind = "object", fields = {}, known = {} }
  for name in pairs(given) do
    if type(name) ~= "string" then fail(path, "the names of fields are strings; got %s", usage.quote(name)) end
    node.fields[#node.fields + 1] = name
  end
  sort(node.fields)
  for i, name in ipairs(node.fields) do
    local at = path == "" and name or path .. "." .. name
    local schema = given[name]
    if type(schema) ~= "string" and type(schema) ~= "table" then
      fail(at, 'a type is a string such as "integer?" or a table; got %s; limits are written as %s', usage.quote(schema),
        example)
    end
    node.fields[i] = { name, read(schema, at, level + 1, fail) }
    node.known[name] = true
  end
  return node
end

-- read(schema, path, level, fail) -> its node. Raises by fail.
function read(schema, path, level, fail)
  if level > check.limits.levels then fail(path, "more than %d levels", check.limits.levels) end
  if check.is(schema) then
    if schema.convert then
      fail(path, "a check within a schema has no option convert; give it to the whole: ls.check(schema, { convert = true })")
    end
    local node = { origin = schema.node, unknown = schema.unknown == "refuse" and "refuse" or nil }
    for name, value in pairs(schema.node) do node[name] = node[name] or value end
    return node
  end
  if type(schema) == "string" then return read_name(schema, path, fail) end
  if type(schema) ~= "table" then
    fail(path, 'a schema is a table such as { name = "string", age = "integer?" }; got %s', usage.quote(schema))
  end
  if schema.is ~= nil then return read_rule(schema, path, level, fail) end
  if schema[1] == nil then return read_fields(schema, path, level, fail) end
  for name in pairs(schema) do
    if name ~= 1 then
      fail(path, "the schema of a list has one entry, the schema of its items: { \"string\" }; got %s as well; "
        .. 'limits are written as { is = { "string" }, max = 10 }, choices as { is = "string", one_of = { "a", "b" } }',
        usage.quote(name))
    end
  end
  return { kind = "list", item = read(schema[1], path .. "[]", level + 1, fail) }
end

-- ---- values ----------------------------------------------------------------------------------------------------------

local booleans = { ["true"] = true, on = true, yes = true, ["1"] = true,
  ["false"] = false, off = false, no = false, ["0"] = false }

-- The value of a form, a string or a list of strings, as one of the kind of the node; nil: it is absent.
local function converted(node, value, path)
  if node.kind == "list" then
    local list = {}
    for _, one in ipairs(type(value) == "table" and value or { value }) do
      if one ~= "" then list[#list + 1] = one end
    end
    if #list > 0 or not node.optional then return list end
    return nil
  end
  if type(value) == "table" and node.kind ~= "object" and node.kind ~= "table" then
    if core.dev and value[2] ~= nil then require("luaserve.dev_state").watch_values(path) end
    value = value[1]
  end
  if value == "" then value = nil end
  if node.kind == "boolean" and value == nil and not node.optional and node.default == nil then return false end
  if type(value) ~= "string" then return value end
  local text = trim(value)
  if node.kind == "integer" and find(text, "^[+-]?%d+$") then return tonumber(text) end
  if node.kind == "number" and find(text, "^[+-]?%.?%d[%d.eE+-]*$") then return tonumber(text) or value end
  if node.kind == "boolean" then
    local known = booleans[text:lower()]
    if known ~= nil then return known end
  end
  return value
end

local function a_file() end -- in place of the value of a field that is a file

local function kind_of(value)
  if type(value) == "table" then return rawget(value, 1) ~= nil and "a list" or "an object" end
  return "a " .. type(value)
end

-- A value in an error: a number itself, and a text of a form, of which all values are texts.
local function got(value, convert)
  return (type(value) == "number" and value == value or convert and type(value) == "string" and #value <= 40) and usage.quote(value) or kind_of(value)
end

local function add(state, path, text)
  if state.count >= check.limits.errors or state.errors[path] then return end
  state.count = state.count + 1
  state.errors[path] = text
end

-- What is wrong with the limits of a value of the right kind, or nil.
function limit_fault(node, value)
  local min, max, size, verb = node.min, node.max, value, "be"
  if (min or max) and node.kind == "string" then
    size, verb = utf8_len(value) or #value, "have"
  elseif node.kind == "list" then
    size, verb = #value, "have"
  end
  if min and size < min or max and size > max then
    local unit = sized[node.kind]
    if min and max then return format("must %s %s to %s%s", verb, min, max, unit) end
    return format("must %s at %s %s%s", verb, min and "least" or "most", min or max, unit)
  end
  if node.one_of and not node.one_of[value] then return "must be one of " .. node.choices end
  if node.pattern and not find(value, node.pattern) then return "has an invalid form" end
end

function fits(kind, value)
  if kind == "any" then return true end
  if kind == "integer" then return math_type(value) == "integer" end
  if kind == "number" then return type(value) == "number" and value - value == 0 end -- neither NaN nor infinite
  if kind == "object" then return type(value) == "table" and rawget(value, 1) == nil end
  if kind == "list" then return type(value) == "table" and (rawget(value, 1) ~= nil or next(value) == nil) end
  return type(value) == kind
end

-- What is wrong with the size of a number, or nil: it has not the kind because of that.
local function out_of_range(kind, value)
  if type(value) ~= "number" or kind ~= "integer" and kind ~= "number" then return nil end
  if value >= 2.0 ^ 63 then return "is too large" elseif value < -2.0 ^ 63 then return "is too small" end
end

-- run(node, value, path, state) -> the checked copy of the value; what is wrong goes into state.errors.
function run(node, value, path, state)
  if value == json.null and state.null and node.optional then return value end
  if value == json.null then value = nil end
  if state.convert then value = converted(node, value, path) end
  if value == nil then
    if node.default ~= nil then return node.default end
    if not node.optional then add(state, path, "is missing") end
    return nil
  end
  local kind = node.kind
  if kind == "integer" and type(value) == "number" then value = tointeger(value) or value end
  if kind == "object" or kind == "list" then value = content(value) end -- of a read-only copy of a dict
  if value == a_file or not fits(kind, value) then
    add(state, path, node.message or value == a_file and "must be a text; got a file" or out_of_range(kind, value)
      or "must be " .. expected[kind] .. "; got " .. got(value, state.convert))
    return nil
  end
  local fault = limit_fault(node, value)
  if fault then
    add(state, path, node.message or fault)
    return nil
  end
  local unknown = state.unknown
  state.unknown = node.unknown or unknown
  if kind == "list" then
    local list = {}
    for i = 1, #value do
      if state.count >= check.limits.errors then break end
      list[i] = run(node.item, value[i], path .. "[" .. i .. "]", state)
    end
    value = json.array(list)
  elseif kind == "object" then
    local fields, prefix = {}, path == "" and "" or path .. "."
    for _, field in ipairs(node.fields) do
      if state.count >= check.limits.errors then break end
      fields[field[1]] = run(field[2], rawget(value, field[1]), prefix .. field[1], state)
    end
    if state.unknown == "refuse" then
      for name in next, value do
        if not node.known[name] then
          local shown = tostring(name)
          if #shown > 60 then shown = shown:sub(1, (utf8_offset(shown, 0, 61) or 61) - 1) end
          add(state, prefix .. shown, "is unknown")
        end
      end
    end
    value = fields
  end
  state.unknown = unknown
  return value
end

-- ---- the calls -------------------------------------------------------------------------------------------------------

local metatable = { __name = "check" }
local patched = setmetatable({}, { __mode = "k" }) -- the checks that for_patch has seen

-- is(value) -> whether value is a check of ls.check.
function check.is(value) return type(value) == "table" and getmetatable(value) == metatable end

local function run_all(self, value, unknown, convert, null)
  local state = { errors = {}, count = 0, unknown = unknown or self.unknown, convert = convert or self.convert, null = null }
  local checked = run(self.node, value, "", state)
  if state.count > 0 then return nil, state.errors end
  return checked
end

-- check is a Check: a function that checks values, of ls.check.
-- check(value: any) -> value: any | nil, errors: table<string, string>
-- The checked copy of the value, or what is wrong by the path of the field, such as `tags[2]`.
function metatable.__call(self, value, given) -- further results of a call in its place, such as a message, have no effect
  if type(given) == "table" then usage.error("a check takes one value; options belong to ls.check(schema, { convert = true })") end
  return run_all(self, value)
end

local function new(call, schema, unknown, convert)
  return setmetatable({ node = read(schema, "", 1, raiser(call)), unknown = unknown, convert = convert }, metatable)
end

-- ls.check(schema: Schema [, options: CheckOptions]) -> check: Check
-- Makes a function that checks values. Raises for a wrong schema, with the path of the field.
-- type Schema: string|table - such as `"integer?"`, `{ name = "string" }`, `{ "string" }`, `{ is = "string", max = 80 }`
function check.new(schema, given, ...)
  usage.no_more("ls.check(schema, options)", given, ...)
  usage.check(given, "table?", 'ls.check: the second argument is a table of options, such as { unknown = "refuse" }')
  local settings = options.take("ls.check", given or {}, check.calls["ls.check"], {})
  return new("ls.check", schema, settings.unknown, settings.convert)
end

-- make(call, schema [, convert]) -> a check; its errors begin with the name of the call. Raises.
function check.make(call, schema, convert) return new(call, schema, nil, convert) end

-- copy(made [, convert]) -> the check, which converts strings if `convert`.
function check.copy(made, convert)
  return setmetatable({ node = made.node, unknown = made.unknown, convert = convert or made.convert }, metatable)
end

-- The JSON text of the answer 422, of at most limits.answer_bytes; fields without room are left out.
local function answer(errors)
  local paths, shown, bytes = {}, {}, 40
  for path in pairs(errors) do paths[#paths + 1] = path end
  sort(paths)
  for _, path in ipairs(paths) do
    local text = json.encode(path) .. ":" .. json.encode(errors[path])
    bytes = bytes + #text + 1
    if bytes <= check.limits.answer_bytes then shown[#shown + 1] = text end
  end
  return '{"error":"invalid fields","fields":{' .. concat(shown, ",") .. "}}"
end

-- refuse(req, errors): raises; the response is 422 with the errors, unless the site catches that.
function check.refuse(req, errors) core.refuse(req, 422, answer(errors)) end

-- The fields of a form, with `a_file` for those that are files.
local function with_files(form)
  local files = require("luaserve.multipart").files[form]
  if not files then return form end
  local all = {}
  for name, list in next, form do all[name] = list end
  for name in pairs(files) do all[name] = { a_file } end
  return all
end

local function no_default(call, node, path)
  if node.default ~= nil then
    usage.error("%s: %s: in a PATCH the default would replace the value of a field that is not sent; write optional = true "
      .. "in place of default", call, path)
  end
  for _, field in ipairs(node.fields or {}) do no_default(call, field[2], (path ~= "" and path .. "." or "") .. field[1]) end
end

-- for_patch(call, self): raises if a field of the check has a default, which has no place in a PATCH.
function check.for_patch(call, self)
  if not patched[self] then no_default(call, self.node, "") end
  patched[self] = true
end

-- read_body("json"|"form", req, schema [, options]) -> value | given, errors: for req:json and req:form with a schema.
function check.read_body(kind, req, schema, given)
  local call = "req:" .. kind
  usage.check(given, "table?", "%s: the second argument is a table of options, such as { refuse = false }", call)
  local settings = options.take(call, given or {}, check.calls["req:json"], {})
  if type(schema) == "string" then
    usage.error('%s takes a schema such as { %s = "string" }; one field is %s().%s', call, schema:match("^[%a_][%w_]*$") or "name", call,
      schema:match("^[%a_][%w_]*$") or "name")
  end
  local self = check.is(schema) and schema or new(call, schema)
  local body = self.node.kind
  local values
  if req.method == "PATCH" then check.for_patch(call, self) end
  if kind == "form" then
    if body ~= "object" then usage.error("%s: the schema of a form is a table of fields", call) end
    for _, field in ipairs(self.node.fields) do
      if field[2].fields or field[2].item and (field[2].item.fields or field[2].item.item) then
        usage.error("%s: %s: a form has no fields within fields", call, field[1])
      end
    end
    values = with_files(req:form_all())
  else
    if body ~= "object" and body ~= "list" then
      usage.error('%s: the schema must be a table of fields, or of a list: { "string" }', call)
    end
    values = req:json { [body == "list" and "array" or "object"] = true, null = settings.null }
  end
  local value, errors = run_all(self, values, given and given.unknown, kind == "form", settings.null)
  if not errors then return value end
  if not settings.refuse then return kind == "form" and req:form() or values, errors end
  check.refuse(req, errors)
end

return check
