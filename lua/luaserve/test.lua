-- test.lua - the module of test files: describe, it, hooks, assertions and servers. `luaserve test` runs the files;
-- test/file.lua runs the blocks that this module collects.

local clock = require "luaserve.test.clock"
local diff = require "luaserve.test.diff"
local options = require "luaserve.options"
local usage = require "luaserve.usage"

-- test is a Test: the table that `require "luaserve.test"` returns in a test file.
-- test.describe: TestDescribe - defines a block of tests
-- test.it: TestIt - defines a test
-- test.clock: TestClock - the time of the site under test
local test = {
  clock = usage.strict("test.clock", { advance = clock.advance }),
  running = false,        -- whether the tests of the file run; test/file.lua sets it
  describe_error = false, -- the message handler of the file
  threads = setmetatable({}, { __mode = "k" }), -- of the functions of tests and hooks, which may catch an assertion
}
local first_failure -- of an assertion in another task, or of an answer of test.fetch; it may be caught

-- ---- blocks --------------------------------------------------------------------------------------------------------

-- A block: { name =, parent =, items = { tests and blocks in their order }, before = {}, after = {}, before_each = {},
-- after_each = {}, line =, timeout =, skip =, only = }. A test:
-- { name =, block =, fn =, line =, timeout =, skip =, only = }.
local function new_block(name, parent)
  return { name = name, parent = parent, items = {}, before = {}, after = {}, before_each = {}, after_each = {} }
end

local collecting      -- the block whose function runs; nil outside of the loading of a test file
local block_options = { timeout = true }

local function check_collecting(call)
  if collecting then return end
  if test.running then
    usage.error("%s: call it in the file or in describe, not while a test runs", call)
  end
  usage.error("%s: this is a test file: run it with luaserve test %s", call, arg and arg[0] or "FILE")
end

-- The arguments (name, fn), (name, options, fn) or (name, fn, options), checked.
local function named(call, name, a, b)
  local given, fn = a, b
  if type(a) == "function" then given, fn = b, a end
  usage.refuse(type(name) ~= "string" or name == "", name,
    '%s: the name is missing: %s("name", function() ... end)', call, call)
  usage.check(fn, "function", '%s: the function is missing: %s("name", function() ... end)', call, call)
  usage.check(given, "table?", "%s: the options must be a table such as { timeout = 30 }", call)
  options.check_names(call, given or {}, block_options)
  for _, value in pairs(given or {}) do
    usage.refuse(type(value) ~= "number" or value ~= value or value <= 0, value,
      "%s: timeout must be a number of seconds above 0", call)
  end
  return fn, given and given.timeout
end

local function line_of_call()
  local info = debug.getinfo(4, "l")
  return info and info.currentline or 0
end

local function add_block(call, mark, name, a, b)
  check_collecting(call)
  local fn, timeout = named(call, name, a, b)
  local parent, block = collecting, new_block(name, collecting)
  block.timeout, block.line = timeout, line_of_call()
  if mark then block[mark] = true end
  parent.items[#parent.items + 1] = block
  collecting = block
  local ok, err = xpcall(fn, test.describe_error or debug.traceback)
  collecting = parent
  if not ok then error(err, 0) end
end

local function add_test(call, mark, name, a, b)
  check_collecting(call)
  local fn, timeout = named(call, name, a, b)
  local one = { name = name, block = collecting, fn = fn, timeout = timeout, line = line_of_call() }
  if mark then one[mark] = true end
  collecting.items[#collecting.items + 1] = one
end

local function callable(name, add)
  local function counted(call, mark, title, a, b, ...)
    usage.no_more(call .. "(name, options, fn)", b, ...)
    return add(call, mark, title, a, b)
  end
  return setmetatable({
    skip = function(...) counted(name .. ".skip", "skip", ...) end,
    only = function(...) counted(name .. ".only", "only", ...) end,
  }, { __call = function(_, ...) counted(name, nil, ...) end })
end

-- describe is a TestDescribe: defines a block of tests.
-- describe(name, fn: fun() [, options: TestOptions])
-- describe(name, options: TestOptions, fn: fun())
-- The function runs at once and defines the tests.
-- describe.skip(name, fn: fun() [, options: TestOptions])
-- The tests of the block are reported as skipped.
-- describe.only(name, fn: fun() [, options: TestOptions])
-- Only blocks and tests with `only` run in this file.
-- options is a TestOptions: options of a block or a test.
-- options.timeout: number - the limit of each test, in seconds; default 5
test.describe = callable("describe", add_block)

-- it is a TestIt: defines a test.
-- it(name, fn: fun() [, options: TestOptions])
-- it(name, options: TestOptions, fn: fun())
-- The function runs later, in a task, and may wait. The test passes when it returns.
-- it.skip(name, fn: fun() [, options: TestOptions])
-- The test is reported as skipped.
-- it.only(name, fn: fun() [, options: TestOptions])
-- Only blocks and tests with `only` run in this file.
test.it = callable("it", add_test)

-- test.pending(name [, fn: fun()])
-- A test that is still to be written.
function test.pending(name, fn)
  check_collecting("pending")
  named("pending", name, fn or function() end)
  collecting.items[#collecting.items + 1] =
    { name = name, block = collecting, pending = true, line = debug.getinfo(2, "l").currentline }
end

-- test.before|after(fn: fun())
-- Runs a function once, before the first test or after the last test of the block, in a task.
-- test.before_each|after_each(fn: fun())
-- Runs a function before or after each test of the block and of the blocks in it, in a task.
for _, hook in ipairs { "before", "after", "before_each", "after_each" } do
  test[hook] = function(fn)
    check_collecting(hook)
    usage.check(fn, "function", "%s: the function is missing: %s(function() ... end)", hook, hook)
    table.insert(collecting[hook], fn)
  end
end

-- collect(fn) -> the block of everything that fn() defines, or nil and the error that fn raised. For test/file.lua.
function test.collect(fn, handler)
  local root = new_block(nil, nil)
  collecting, test.describe_error = root, handler
  local ok, err = xpcall(fn, handler)
  collecting = nil
  if not ok then return nil, err end
  return root
end

-- ---- assertions ----------------------------------------------------------------------------------------------------

-- The error value of a failed assertion. `lines`: the differences.
local failure_meta = {
  __name = "test failure",
  __tostring = function(failure)
    return table.concat({ failure.message, table.unpack(failure.lines) }, "\n  ")
  end,
}

-- is_failure(value) -> whether an assertion raised it.
function test.is_failure(value) return getmetatable(value) == failure_meta end

-- record(err) -> err, which fails the test that runs even if it is caught: a message handler.
function test.record(err)
  first_failure = first_failure or test.describe_error(err)
  return err
end

-- take_recorded() -> the first one since the last call, as the message handler describes it, or nil
function test.take_recorded()
  local found = first_failure
  first_failure = nil
  return found
end

local function fail(note, message, lines)
  if note ~= nil then message = tostring(note) .. ": " .. message end
  local failure = setmetatable({ message = message, lines = lines or {} }, failure_meta)
  if test.running and not test.threads[coroutine.running()] then test.record(failure) end
  error(failure, 0)
end

-- test.fail([message])
-- Fails the test.
function test.fail(message) fail(nil, message == nil and "test.fail was called" or tostring(message)) end

-- both(call, ...) -> its arguments after `call`. Raises for less than two: an omitted value is not nil.
local function both(call, ...)
  if select("#", ...) < 2 then
    usage.error("%s: the second value is missing: %s(got, expected); for nil write %s(got, nil)", call, call, call)
  end
  return ...
end

-- test.equal(got, expected [, note])
-- Fails unless `got == expected`, or both are tables with equal fields. `note` begins the message of a failure.
function test.equal(...)
  local got, expected, note = both("test.equal", ...)
  local message, lines = diff.compare(got, expected)
  if message then fail(note, message, lines) end
end

-- test.not_equal(got, unexpected: any [, note])
-- Fails if the values are equal, as test.equal compares them.
function test.not_equal(...)
  local got, unexpected, note = both("test.not_equal", ...)
  if diff.same(got, unexpected) then fail(note, "expected another value than " .. diff.show(got)) end
end

-- test.same(got, expected [, note])
-- Fails unless both are the same object, as rawequal compares them.
function test.same(...)
  local got, expected, note = both("test.same", ...)
  if rawequal(got, expected) then return end
  if diff.same(got, expected) then
    fail(note, "expected the same object, got another one that is equal; test.equal compares the contents")
  end
  fail(note, "expected the object " .. diff.show(expected) .. ", got " .. diff.show(got))
end

-- test.truthy(value: T? [, note]) -> value: T
-- Fails if the value is nil or false. Returns it.
function test.truthy(value, note)
  if not value then fail(note, "expected a true value, got " .. diff.show(value)) end
  return value
end

-- test.falsy(value [, note])
-- Fails unless the value is nil or false.
function test.falsy(value, note)
  if value then fail(note, "expected nil or false, got " .. diff.show(value)) end
end

-- test.near(got: number, expected: number, tolerance: number [, note])
-- Fails unless two numbers differ by `tolerance` at most.
function test.near(got, expected, tolerance, note)
  if type(expected) ~= "number" or type(tolerance) ~= "number" then
    usage.error("test.near: give three numbers: test.near(got, 3.14, 0.01)")
  end
  local off = type(got) == "number" and math.abs(got - expected)
  if not off or off ~= off or off > tolerance then
    fail(note, string.format("expected %s within %s, got %s", expected, tolerance, diff.show(got)))
  end
end

-- test.match(text, pattern [, note]) -> ...: string|integer
-- Fails unless the string has a part that matches the Lua pattern. Returns the captures.
function test.match(text, pattern, note)
  usage.check(pattern, "string", "test.match: the pattern must be a string")
  if type(text) ~= "string" then
    fail(note, "expected a string that matches " .. diff.show(pattern) .. ", got " .. diff.show(text))
  end
  local found = table.pack(text:match(pattern))
  if found[1] == nil then
    fail(note, "expected a string that matches " .. diff.show(pattern), { "got " .. diff.show(text) })
  end
  return table.unpack(found, 1, found.n)
end

-- test.contains(whole: string|any[], part: any [, note])
-- Fails unless a string contains the text, or a list the value.
function test.contains(...)
  local whole, part, note = both("test.contains", ...)
  if type(whole) == "string" and type(part) == "string" then
    if whole:find(part, 1, true) then return end
  elseif type(whole) == "table" then
    for _, value in ipairs(whole) do if diff.same(value, part) then return end end
  end
  fail(note, "expected a value that contains " .. diff.show(part), { "got " .. diff.show(whole) })
end

-- test.raises(fn: fun() [, pattern [, note]]) -> err: any
-- Fails unless the function raises an error, whose text matches the Lua pattern. Returns the error.
function test.raises(fn, pattern, note)
  usage.check(fn, "function", "test.raises: give a function: test.raises(function() ... end, \"pattern\")")
  usage.check(pattern, "string?", "test.raises: the pattern must be a string")
  local ok, err = pcall(fn)
  if ok then fail(note, "expected an error, got none") end
  if pattern ~= nil and not tostring(err):match(pattern) then
    fail(note, "expected an error that matches " .. diff.show(pattern), { "got " .. diff.show(err) })
  end
  return err
end

function test.fetch(...)
  if not test.running then usage.error("test.fetch: call it in a test or in before_each") end
  return require("luaserve.test.fetch").answers(...)
end

function test.serve(...)
  return require("luaserve.test.server").start(...)
end

-- Not test.truthy and test.falsy: test.falsy(ls.crypto.jwt.verify(token, key)) has three arguments.
for name, form in pairs {
  pending = "name, fn", before = "fn", after = "fn", before_each = "fn", after_each = "fn", fail = "message",
  equal = "got, expected, note", not_equal = "got, unexpected, note", same = "got, expected, note", near = "got, expected, tolerance, note", match = "text, pattern, note",
  contains = "whole, part, note", raises = "fn, pattern, note",
} do
  local fn, most, noted = test[name], select(2, form:gsub("%a+", "")), form:find "note$"
  test[name] = function(...)
    local note = noted and select(most, ...)
    usage.refuse(note and type(note) ~= "string" and type(note) ~= "number", note, "test.%s: the note must be a string", name)
    if select("#", ...) > most then usage.no_more(("test.%s(%s)"):format(name, form), select(most, ...)) end
    return fn(...)
  end
end

return usage.strict("luaserve.test", test)
