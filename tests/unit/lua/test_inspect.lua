-- luacheck: ignore 631
-- luaserve.inspect: the text of values.
local check = require "check"
local inspect = require "luaserve.inspect"

local tests = {}

function tests.values()
  for _, case in ipairs { { nil, "nil" }, { true, "true" }, { 1, "1" }, { 1.5, "1.5" }, { 2^53, "9.007199254741e+15" },
    { "a", '"a"' }, { "", '""' }, { 'a"b\\c', '"a\\"b\\\\c"' }, { "a\nb\tc\r", '"a\\nb\\tc\\r"' }, { "\0\27[31m\127", '"\\x00\\x1B[31m\\x7F"' },
    { "h\u{e4}\u{1f600}", '"h\u{e4}\u{1f600}"' }, { "\xff\xe4", '"\\xFF\\xE4"' }, { "\u{9b}31m", '"\\u{9B}31m"' }, { {}, "{}" },
    { { 1, 2, 3 }, "{ 1, 2, 3 }" }, { { b = 1, a = 2 }, "{ a = 2, b = 1 }" }, { { 1, nil, 3, x = true }, nil },
    { { [2] = "b", [10] = "j", [1.5] = 0, z = 1 }, '{ [1.5] = 0, [2] = "b", [10] = "j", z = 1 }' },
    { { ["a b"] = 1, ["end"] = 2, [true] = 3 }, '{ ["a b"] = 1, ["end"] = 2, [true] = 3 }' },
    { { { { { { 1 } } } } }, "{ { { { { ... } } } } }" }, { { { { {} } } }, "{ { { {} } } }" } } do
    if case[2] then check.equal(inspect.show(case[1]), case[2]) end
  end
  check.equal(inspect.show(print):match("^function: "), "function: ")
  check.equal(inspect.show_all(3, 1, nil, "a"), '1\tnil\t"a"')
  check.equal(inspect.show_all(0), "")
end

function tests.long_tables_have_a_line_for_each_entry()
  check.equal(inspect.show { name = ("x"):rep(40), other = ("y"):rep(40), t = { 1, 2 } },
    '{\n  name = "' .. ("x"):rep(40) .. '",\n  other = "' .. ("y"):rep(40) .. '",\n  t = { 1, 2 }\n}')
  check.equal(inspect.show { { a = ("x"):rep(80) } }, '{\n  {\n    a = "' .. ("x"):rep(80) .. '"\n  }\n}')
end

function tests.cycles_and_repetitions()
  local t = { 1 }
  t.self = t
  check.equal(inspect.show(t), "{ 1, self = { <cycle> } }")
  local shared = { 2 }
  check.equal(inspect.show { shared, shared }, "{ { 2 }, { 2 } }")
end

function tests.limits()
  local limits = inspect.limits
  local function list(n) local t = {} for i = 1, n do t[i] = 1 end return t end
  check.equal(inspect.show(list(limits.items)):find("more", 1, true), nil)
  check.equal(inspect.show(list(limits.items + 1)):match("%.%.%. %((%d+) more%)"), "1")
  local map = {}
  for i = 1, limits.items + 5 do map["k" .. i] = i end
  check.equal(inspect.show(map):match("%((%d+) more%)"), "5")
  check.equal(inspect.show(("x"):rep(limits.string_bytes)), '"' .. ("x"):rep(limits.string_bytes) .. '"')
  check.equal(inspect.show(("x"):rep(limits.string_bytes + 1)), '"' .. ("x"):rep(limits.string_bytes) .. '"... (' .. limits.string_bytes + 1 .. " bytes)")
  check.equal(inspect.show(("\u{e4}"):rep(limits.string_bytes)):sub(-19), '\u{e4}"... (' .. 2 * limits.string_bytes .. " bytes)")
  local cut = inspect.show("x" .. ("\u{e4}"):rep(limits.string_bytes))
  check.equal(utf8.len(cut) ~= nil and not cut:find("\\x", 1, true), true)
  local large = {}
  for i = 1, limits.items do large[i] = ("x"):rep(limits.string_bytes) end
  check.equal(#inspect.show(large) < limits.bytes + 2 * limits.string_bytes, true)
  check.equal(inspect.show(large):match("%((%d+) more%)") ~= nil, true)
end

function tests.metatables()
  check.equal(inspect.show(setmetatable({}, { __tostring = function() return "an object" end })), "an object")
  check.equal(inspect.show(setmetatable({}, { __tostring = function() return "\27[2J" end })), "\\x1B[2J")
  check.equal(inspect.show(setmetatable({}, { __tostring = function() error("no") end })), "<table: __tostring failed>")
  check.equal(inspect.show(setmetatable({ 1 }, { __name = "thing" })), "thing { 1 }")
  check.equal(inspect.show(setmetatable({ 1 }, { __index = error, __len = error, __pairs = error })), "{ 1 }")
  check.equal(inspect.show(setmetatable({ 1 }, { __metatable = "hidden" })), "{ 1 }")
end

function tests.one_value()
  check.raises("too many arguments for ls.inspect(value): got 2 as well", function() inspect.show(1, 2) end)
end

function tests.null_of_json_has_its_name()
  check.equal(inspect.show({ a = require("luaserve.json").null }), "{ a = ls.json.null }")
end

return tests
