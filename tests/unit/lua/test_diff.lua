local check = require "check"
local diff = require "luaserve.test.diff"

local tests = {}

-- The message and the lines of a comparison as one list.
local function compare(got, expected)
  local message, lines = diff.compare(got, expected)
  return message and { message, table.unpack(lines) }
end

function tests.show_has_a_fixed_order()
  check.equal(diff.show({ 1, "two", b = true, a = { c = 1.5 }, [10] = "x", ["a b"] = 1 }),
    '{ 1, "two", [10] = "x", a = { c = 1.5 }, ["a b"] = 1, b = true }')
  check.equal(diff.show({}), "{}")
  check.equal(diff.show({ a = require("luaserve.json").null }), "{ a = ls.json.null }")
  check.equal(diff.show(nil), "nil")
  check.equal(diff.show({ { { { { { { 1 } } } } } } }), "{ { { { { { {...} } } } } } }")
end

function tests.show_escapes_and_cuts_strings()
  check.equal(diff.show('a"\n\t\\\0\27'), '"a\\"\\n\\t\\\\\\x00\\x1B"')
  check.equal(diff.show(("x"):rep(200)), '"' .. ("x"):rep(200) .. '"')
  check.equal(diff.show(("x"):rep(201)), '"' .. ("x"):rep(200) .. '"... (1 more bytes)')
end

function tests.show_ends_with_a_cycle()
  local t = { name = "t" }
  t.self = t
  check.equal(diff.show(t), '{ name = "t", self = {cycle} }')
  local shared = {1}
  check.equal(diff.show({ shared, shared }), "{ { 1 }, { 1 } }")
end

function tests.show_uses_tostring()
  check.equal(diff.show(setmetatable({}, { __tostring = function() return "an object" end })), "an object")
end

function tests.same_compares_contents()
  check.equal(diff.same({ 1, { a = "x" } }, { 1, { a = "x" } }), true)
  check.equal(diff.same(1, 1.0), true)
  check.equal(diff.same(0 / 0, 0 / 0), true)
  check.equal(diff.same({ 1 }, { 1, 2 }), false)
  check.equal(diff.same({ 1, 2 }, { 1 }), false)
  check.equal(diff.same({ a = false }, {}), false)
  check.equal(diff.same("1", 1), false)
  local eq = { __eq = function() return true end }
  check.equal(diff.same(setmetatable({ 1 }, eq), setmetatable({ 2 }, eq)), true)
end

function tests.same_ends_with_cycles()
  local function ring(value)
    local t = { value = value }
    t.next = { next = t }
    return t
  end
  check.equal(diff.same(ring(1), ring(1)), true)
  check.equal(diff.same(ring(1), ring(2)), false)
  check.equal(#compare(ring(1), ring(2)) > 1, true)
end

function tests.compare_names_the_paths()
  check.equal(compare({ 1 }, { 1 }), nil)
  check.equal(compare({ a = { { b = 1 } }, x = 1, ["k k"] = 1 }, { a = { { b = "1" } }, y = 2, ["k k"] = 2 }), {
    "the tables differ", '.a[1].b: expected "1" (a string), got 1 (a number)', '["k k"]: expected 2, got 1',
    ".y: expected 2, got nil", ".x: not expected, got 1", 'expected { a = { { b = "1" } }, ["k k"] = 2, y = 2 }',
    'got      { a = { { b = 1 } }, ["k k"] = 1, x = 1 }',
  })
end

function tests.compare_leaves_out_what_is_more_than_ten_differences()
  local function list(n)
    local t = {}
    for i = 1, n do t[i] = i end
    return t
  end
  check.equal(#compare(list(10), {}), 1 + 10 + 2)
  local lines = compare(list(11), {})
  check.equal(#lines, 1 + 10 + 1 + 2)
  check.equal(lines[12], "and 1 more differences")
end

function tests.compare_shows_where_strings_differ()
  check.equal(compare("a", "b"), { 'expected "b", got "a"' })
  check.equal(compare("a\nb\nc", "a\nB\nc"), { "the strings differ", "line 2 differs:", '  expected "B"',
    '  got      "b"' })
  check.equal(compare("a", "a\n"), { "the strings differ", "line 2 differs:", '  expected ""', "  got      no such line" })
  local text = ("x"):rep(100)
  check.equal(compare(text .. "a", text .. "b"), { "the strings differ", "byte 101 differs:",
    '  expected ..."' .. ("x"):rep(20) .. 'b"', '  got      ..."' .. ("x"):rep(20) .. 'a"' })
end

function tests.compare_names_types_that_differ()
  check.equal(compare(1, "1"), { 'expected "1" (a string), got 1 (a number)' })
  check.equal(compare(nil, 1), { "expected 1, got nil" })
  check.equal(compare({}, 1), { "expected 1 (a number), got {} (a table)" })
end

return tests
