-- The assertions and the blocks of luaserve.test.

local check = require "check"
local test = require "luaserve.test"

local tests = {}

-- The message and the lines of the failed assertion that fn raises.
local function failure(fn, ...)
  local ok, err = pcall(fn, ...)
  check.equal(ok, false)
  check.equal(test.is_failure(err), true)
  return { err.message, table.unpack(err.lines) }
end

function tests.equal()
  test.equal({ 1 }, { 1 })
  check.equal(failure(test.equal, 1, 2), { "expected 2, got 1" })
  check.equal(failure(test.equal, 1, 2, "the count"), { "the count: expected 2, got 1" })
  check.raises("test.equal: the note must be a string; got a table", test.equal, 1, 1, {})
  check.raises("test.raises: the note must be a string; got true", test.raises, error, nil, true)
  test.not_equal({ 1 }, { 2 })
  check.equal(failure(test.not_equal, { 1 }, { 1 }), { "expected another value than { 1 }" })
end

function tests.same()
  local t = {}
  test.same(t, t)
  check.equal(failure(test.same, {}, {}), { "expected the same object, got another one that is equal; test.equal compares "
    .. "the contents" })
  check.equal(failure(test.same, 1, 2), { "expected the object 2, got 1" })
end

function tests.truthy_and_falsy()
  check.equal(test.truthy(0), 0)
  test.falsy(nil, "a message", "EINVAL") -- the results of a call that failed
  check.equal(failure(test.truthy, false), { "expected a true value, got false" })
  check.equal(failure(test.falsy, 0), { "expected nil or false, got 0" })
end

function tests.near()
  test.near(1.5, 1, 0.5)
  check.equal(failure(test.near, 1.6, 1, 0.5), { "expected 1 within 0.5, got 1.6" })
  check.equal(failure(test.near, 0 / 0, 1, 0.5)[1]:match("^expected 1 within 0.5"), "expected 1 within 0.5")
  check.equal(failure(test.near, "x", 1, 0.5), { 'expected 1 within 0.5, got "x"' })
  check.raises("give three numbers", test.near, 1, 1)
end

function tests.match_and_contains()
  check.equal({ test.match("port 80", "port (%d+)") }, { "80" })
  check.equal(failure(test.match, "x", "%d"), { 'expected a string that matches "%d"', 'got "x"' })
  check.equal(failure(test.match, nil, "%d"), { 'expected a string that matches "%d", got nil' })
  test.contains("a.b", ".")
  test.contains({ { 1 }, { 2 } }, { 2 })
  check.equal(failure(test.contains, "ab", "c"), { 'expected a value that contains "c"', 'got "ab"' })
  check.equal(failure(test.contains, { 1 }, 2), { "expected a value that contains 2", "got { 1 }" })
  check.equal(failure(test.contains, nil, 2), { "expected a value that contains 2", "got nil" })
end

function tests.raises()
  check.equal(test.raises(function() error({ 1 }, 0) end), { 1 })
  check.equal(test.raises(function() error("no luck", 0) end, "luck$"), "no luck")
  check.equal(failure(test.raises, function() end), { "expected an error, got none" })
  check.equal(failure(test.raises, function() error("x", 0) end, "y"), { 'expected an error that matches "y"', 'got "x"' })
  check.raises("give a function", test.raises, 1)
  check.raises("test.raises: the pattern must be a string; got a table", test.raises, error, {})
end

function tests.a_failure_as_text()
  local _, err = pcall(test.equal, "a\nb", "a\nc")
  check.equal(tostring(err), "the strings differ\n  line 2 differs:\n    expected \"c\"\n    got      \"b\"")
end

function tests.collect_builds_the_blocks()
  local root = test.collect(function()
    test.before(print)
    test.it("one", { timeout = 2 }, print)
    test.describe("block", function() test.it.skip("two", print) end)
    test.pending("three")
  end, tostring)
  check.equal(#root.before, 1)
  check.equal({ root.items[1].name, root.items[1].timeout }, { "one", 2 })
  check.equal({ root.items[2].name, root.items[2].items[1].name, root.items[2].items[1].skip }, { "block", "two", true })
  check.equal({ root.items[3].name, root.items[3].pending }, { "three", true })
end

function tests.blocks_belong_into_files()
  check.raises("this is a test file: run it with luaserve test", test.it, "one", print)
  check.raises("before: this is a test file", test.before, print)
end

function tests.unknown_names()
  check.raises("luaserve.test has no \"eqal\"; did you mean 'equal'?", function() return test.eqal end)
end

return tests
