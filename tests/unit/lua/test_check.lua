-- ls.check: schemas, values, the errors by path, the limits.
local check = require "check"
local ls = require "luaserve"
local checks = require "luaserve.check"

local tests = {}

-- Runs rows of { schema, value, result } or { schema, value, nil, errors }.
local function table_of(rows, given)
  for _, row in ipairs(rows) do
    local value, errors = ls.check(row[1], given)(row[2])
    check.equal({ value, errors }, { row[3], row[4] })
  end
end

function tests.each_type_takes_its_values_only()
  table_of {
    { "string", "a", "a" }, { "string", "", "" }, { "string", 5, nil, { [""] = "must be a string; got 5" } },
    { "integer", 5, 5 }, { "integer", 5.0, 5 }, { "integer", 5.5, nil, { [""] = "must be a whole number; got 5.5" } },
    { "integer", "5", nil, { [""] = "must be a whole number; got a string" } },
    { "integer", 2.0 ^ 63, nil, { [""] = "is too large" } }, { "integer", -2.0 ^ 64, nil, { [""] = "is too small" } },
    { "number", 5, 5 }, { "number", 0.5, 0.5 }, { "number", 1 / 0, nil, { [""] = "is too large" } },
    { "number", 0 / 0, nil, { [""] = "must be a number; got a number" } },
    { "boolean", true, true }, { "boolean", 1, nil, { [""] = "must be true or false; got 1" } },
    { "table", { 1, a = 2 }, { 1, a = 2 } }, { "table", "a", nil, { [""] = "must be an object or list; got a string" } },
    { "any", "a", "a" }, { "any", { 1 }, { 1 } }, { "any?", nil, nil }, { "any", nil, nil, { [""] = "is missing" } },
  }
end

function tests.fields_are_checked_and_others_are_dropped()
  local item = { name = "string", age = "integer?", tags = { "string" } }
  table_of {
    { item, { name = "a", age = 5, tags = { "x", "y" }, admin = true }, { name = "a", age = 5, tags = { "x", "y" } } },
    { item, { name = "a", tags = {} }, { name = "a", tags = {} } },
    { item, { age = "x" }, nil,
      { name = "is missing", tags = "is missing", age = "must be a whole number; got a string" } },
    { item, { name = "a", tags = { "x", 1 } }, nil, { ["tags[2]"] = "must be a string; got 1" } },
    { item, { name = "a", tags = { a = 1 } }, nil, { tags = "must be a list; got an object" } },
    { item, { "a" }, nil, { [""] = "must be an object; got a list" } },
    { item, "a", nil, { [""] = "must be an object; got a string" } },
    { { a = { b = { { c = "integer" } } } }, { a = { b = { { c = 1 }, { c = "x" } } } }, nil,
      { ["a.b[2].c"] = "must be a whole number; got a string" } },
  }
end

function tests.unknown_fields_are_refused_on_demand()
  table_of({
    { { name = "string", at = { x = "integer?" } }, { name = "a", nane = 1, at = { z = 1 } }, nil,
      { nane = "is unknown", ["at.z"] = "is unknown" } },
    { { name = "string" }, { name = "a" }, { name = "a" } },
  }, { unknown = "refuse" })
end

function tests.limits_hold_at_the_limit_and_one_past_it()
  local name = { is = "string", min = 2, max = 3 }
  table_of {
    { name, "ab", "ab" }, { name, "äöü", "äöü" }, { name, "a", nil, { [""] = "must have 2 to 3 characters" } },
    { name, "abcd", nil, { [""] = "must have 2 to 3 characters" } },
    { { is = "string", max = 1 }, "ab", nil, { [""] = "must have at most 1 characters" } },
    { { is = "integer", min = 0 }, 0, 0 }, { { is = "integer", min = 0 }, -1, nil, { [""] = "must be at least 0" } },
    { { is = "number", min = 0, max = 1.5 }, 1.5, 1.5 },
    { { is = "number", min = 0, max = 1.5 }, 1.6, nil, { [""] = "must be 0 to 1.5" } },
    { { is = { "string" }, min = 1, max = 2 }, { "a", "b" }, { "a", "b" } },
    { { is = { "string" }, min = 1, max = 2 }, {}, nil, { [""] = "must have 1 to 2 items" } },
    { { is = { "string" }, max = 2 }, { "a", "b", "c" }, nil, { [""] = "must have at most 2 items" } },
    { { is = "string", pattern = "^%d+$" }, "12", "12" },
    { { is = "string", pattern = "/api/" }, "/api/x", "/api/x" }, { { is = "string", pattern = "/[%w]+/x" }, "/a/x", "/a/x" },
    { { is = "string", pattern = "^%d+$" }, "1x", nil, { [""] = "has an invalid form" } },
    { { is = "string", pattern = "^%d+$", message = "must be digits" }, "1x", nil, { [""] = "must be digits" } },
    { { is = "string", message = "must be text" }, 5, nil, { [""] = "must be text" } },
    { { is = "string", one_of = { "a", "b" } }, "b", "b" },
    { { is = "string", one_of = { "a", "b" } }, "c", nil, { [""] = "must be one of a, b" } },
    { { is = "integer", one_of = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 } }, 12, nil,
      { [""] = "must be one of 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..." } },
    { { is = "string", optional = true, max = 3 }, nil, nil }, { { is = { "string" }, optional = true }, nil, nil },
    { { is = "integer", default = 7 }, nil, 7 }, { { is = "integer", default = 7 }, 3, 3 },
  }
end

function tests.strings_of_a_form_are_converted()
  local form = { n = "integer?", x = "number?", yes = "boolean?", text = "string?", list = { "integer" } }
  local function is(given, expected, errors)
    if expected then expected.list = expected.list or {} end
    local value, found = ls.check(form, { convert = true })(given)
    check.equal({ value, found }, { expected, errors })
  end
  is({ n = " -12 ", x = "1.5e3", yes = "on", text = "" }, { n = -12, x = 1500.0, yes = true })
  is({ n = "+3", x = "-.5", yes = "0", text = " a " }, { n = 3, x = -0.5, yes = false, text = " a " })
  is({ n = { "1", "2" }, list = { "3", "", "4" } }, { n = 1, list = { 3, 4 } })
  is({ list = "5", n = "" }, { list = { 5 } })
  for _, text in ipairs { "0x10", "1.0", "1e2", "--1", "9223372036854775808", "a" } do
    is({ n = text }, nil, { n = text == "9223372036854775808" and "is too large" or ("must be a whole number; got %q"):format(text) })
  end
  for _, text in ipairs { "0x10", "inf", "nan", "1e", ".", "1,5" } do
    is({ x = text }, nil, { x = ("must be a number; got %q"):format(text) })
  end
  is({ x = "1e999" }, nil, { x = "is too large" })
  local long = "1" .. (" "):rep(1000000) .. "a" -- with a reading in quadratic time this does not end
  is({ n = long }, nil, { n = 'must be a whole number; got a string' })
  is({ yes = "maybe" }, nil, { yes = 'must be true or false; got "maybe"' })
  table_of({
    { { a = "boolean" }, {}, { a = false } }, -- a box that is not ticked is not sent
    { { a = { is = "boolean", default = true } }, {}, { a = true } },
    { { a = "string" }, { a = "" }, nil, { a = "is missing" } },
    { { a = { is = { "string" }, optional = true } }, { a = "" }, {} },
  }, { convert = true })
end

function tests.a_check_is_a_schema_and_stays_as_it_is()
  local point = ls.check { x = "integer" }
  local line = ls.check { from = point, to = { is = point, optional = true } }
  check.equal({ line { from = { x = 1 } } }, { { from = { x = 1 } } })
  check.equal({ point(nil) }, { nil, { [""] = "is missing" } })
  local strict = ls.check({ x = "integer", at = { is = { y = "integer?" }, optional = true } }, { unknown = "refuse" })
  local both = ls.check { a = { is = strict }, list = { strict }, b = "any?", c = { d = "string?" } }
  check.equal({ both { a = { x = 1 }, list = {}, z = 1, c = { z = 1 } } }, { { a = { x = 1 }, list = {}, c = {} } })
  check.equal({ both { a = { x = 1, z = 1, at = { z = 1 } }, list = { { x = 1, z = 1 } }, z = 1, c = { z = 1 } } },
    { nil, { ["a.z"] = "is unknown", ["list[1].z"] = "is unknown", ["a.at.z"] = "is unknown" } })
  check.raises("a check takes one value; options belong to ls.check(schema, { convert = true })", ls.check "integer", "5", { convert = true })
  check.equal(ls.check "integer?"(nil, "a message"), nil)
  check.raises("a: a check within a schema has no option convert", ls.check, { a = ls.check("integer", { convert = true }) })
end

function tests.errors_are_limited()
  local count = checks.limits.errors
  local list, exact = {}, {}
  for i = 1, count + 1 do list[i] = i end
  for i = 1, count do exact[i] = i end
  local function number_of(value)
    local n = 0
    for _ in pairs(select(2, ls.check({ "string" })(value))) do n = n + 1 end
    return n
  end
  check.equal(number_of(exact), count)
  check.equal(number_of(list), count)
end

function tests.levels_are_limited()
  local schema = "string"
  for _ = 2, checks.limits.levels do schema = { schema } end
  ls.check(schema)
  check.raises({ check.line(), "more than 16 levels" }, function() ls.check { schema } end)
  local loop = {}
  loop.me = loop
  check.raises("more than 16 levels", ls.check, loop)
end

function tests.a_field_may_be_named_type()
  for _, schema in ipairs { { type = "string" }, { type = "string", name = "string?" }, { a = { type = { is = "string" } } },
    { a = { type = "string", format = "string?" } }, { type = "string", max = "integer?" }, { { type = "string", id = "integer?" } } } do
    ls.check(schema)
  end
end

function tests.a_wrong_schema_raises_with_its_path()
  for _, row in ipairs {
    { { "strin" }, "ls.check: []: unknown type \"strin\"; did you mean 'string'?" },
    { { a = { b = "xyzzy" } }, 'a.b: unknown type "xyzzy"; the types are "string"' },
    { { a = 5 }, 'a: a type is a string such as "integer?" or a table; got 5; limits are written as { is = "string"' },
    { { type = "string", max = 80 }, 'ls.check: with `type`, as in other programs, this is an object that has a field of this name: write "string", with limits { is =' },
    { { a = { type = "string" } }, 'a: with `type`, as in other programs' }, { { a = { { type = "int", required = true } } }, 'a[]: with `type`' },
    { { type = "object", properties = { a = { type = "string" } } }, "write the table of its fields" },
    { { type = "object" }, 'type: unknown type "object"; write the table of its fields' }, { { a = "int?" }, 'unknown type "int?"; write "integer"' },
    { { a = { is = "string", required = true } }, "unknown name \"required\" beside `is`; a field is required unless it is optional" },
    { { a = { is = "string", maxLength = 3 } }, "beside `is`; write max" },
    { { { is = "string", man = 1 } }, "[]: unknown name \"man\" beside `is`; did you mean 'max'?" },
    { { "string", max = 5 }, 'got "max" as well; limits are written as { is = { "string" }, max = 10 }' },
    { { "string", "integer" }, "the schema of a list has one entry" },
    { { [2] = "string" }, "the names of fields are strings; got 2" },
    { { a = { is = "boolean", min = 1 } }, "a: min is for strings, numbers and lists" },
    { { a = { is = "string", max = -1 } }, "a: max must be a number of characters; got -1" },
    { { a = { is = "string", max = 1.5 } }, "a: max must be a number of characters; got 1.5" },
    { { a = { is = { "any" }, max = "3" } }, 'a: max must be a number of items; got "3"' },
    { { a = { is = "number", max = "3" } }, 'a: max must be a number; got "3"' },
    { { a = { is = "integer", min = 2, max = 1 } }, "a: min (2) must not be above max (1)" },
    { { a = { is = "string", pattern = "%" } }, 'a: pattern must be a pattern of Lua, such as "^%d+$"; got "%"' },
    { { a = { is = "integer", pattern = "%d" } }, "a: pattern is for strings" },
    { { a = { is = "string", pattern = "^[a-z]{3}$" } }, 'a: the pattern is a regular expression, by "{3}"; it must be one of Lua' },
    { { a = { is = "string", pattern = "\\d+" } }, [[is a regular expression, by "\\d"]] },
    { { a = { is = "string", pattern = "/^a$/i" } }, 'is a regular expression, by "/^a$/i"' },
    { { a = { is = "string", pattern = "/a$/" } }, 'is a regular expression, by "/a$/"' },
    { { a = { is = "string", one_of = {} } }, "a: one_of must be a list of values" },
    { { a = { is = "string", one_of = { "a", 1 } } }, "a: one_of has the value 1, which is no string" },
    { { a = { is = "integer", one_of = { 1, 9 }, min = 5 } }, "a: one_of has the value 1, which must be at least 5" },
    { { a = { is = "string", one_of = { true } } }, "a: one_of must have strings or numbers; got true" },
    { { a = { is = "string", message = 5 } }, "a: message must be a string; got 5" },
    { { a = { is = "string", optional = "yes" } }, 'a: optional must be true or false; got "yes"' },
    { { a = { is = "string", max = 1, default = "ab" } }, "a: default must have at most 1 characters" },
    { { a = { is = { "string" }, default = {} } }, "a: default must be a string, a number or a boolean; got a table" },
    { 5, 'ls.check: a schema is a table such as { name = "string", age = "integer?" }; got 5' },
  } do
    check.raises({ check.line(), row[2] }, function() ls.check(row[1]) end)
  end
  check.raises("too many arguments", ls.check, "string", {}, 5)
  check.raises("the second argument is a table of options", ls.check, "string", 5)
end

return tests
