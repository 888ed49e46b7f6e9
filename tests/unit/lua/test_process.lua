-- ls.process: the arguments and options as the core gets them.
local check = require "check"
local core = require "luaserve.core"
local ls = require "luaserve"

local tests = {}

-- A child whose outputs are lists of texts; it exits when they are read. `calls` collects the calls of its methods.
local function fake_child(outputs, status, signal)
  local child = setmetatable({ calls = {}, waited = {} }, { __close = function(self) self.closed = true end })
  function child:wait(seconds) self.waited[#self.waited + 1] = seconds or false end
  function child:read(stream) return table.remove(outputs[stream] or {}, 1) end
  function child:close(stream) self.calls[#self.calls + 1] = "close " .. stream end
  function child:stop() self.calls[#self.calls + 1] = "stop" end
  function child:status()
    if not next(outputs[1] or {}) and not next(outputs[2] or {}) then return status or 0, signal end
  end
  return child
end

local function run(child, ...)
  local call
  function core.child(...)
    call = { ... }
    return child
  end
  local result, message, code, rest = ls.process(...)
  check.equal(child.closed, true)
  return { result = result, message = message, code = code, rest = rest }, call
end

local function passed(...)
  local child = fake_child {}
  local _, call = run(child, ...)
  return { argv = call[1], env = call[2], cwd = call[3], input = call[4], bound = call[5], seconds = child.waited[1] }
end

function tests.the_defaults()
  check.equal(passed { "sort", 5, -1.5 }, { argv = { "sort", "5", "-1.5" }, cwd = "/site", bound = true, seconds = 60.0 })
end

function tests.the_options()
  local options = { stdin = "x", cwd = "/b", timeout = 0.5, env = { LANG = false } }
  check.equal(passed({ "a" }, options),
    { argv = { "a" }, input = "x", cwd = "/b", bound = true, seconds = 0.5, env = { "EMPTY=", "HOME=/root" } })
  check.equal(passed({ "a" }, { timeout = false }).seconds, false)
  check.equal(passed({ "a" }, { env = { HOME = "/", A = 1 } }).env, { "A=1", "EMPTY=", "HOME=/", "LANG=C" })
  check.equal(passed({ "a" }, { env = { A = "1" }, clear_env = true }).env, { "A=1" })
  check.equal(passed({ "a" }, { clear_env = true }).env, {})
end

function tests.results_and_limits()
  local long = ("x"):rep(5000)
  check.equal(run(fake_child({ { "a", "", long, "b" }, { "c" } }, 130, 2), { "a" }).result,
    { out = "a" .. long .. "b", err = "c", code = 130, signal = 2 })
  local child = fake_child { { "ab", "cd" }, { "e" } }
  check.equal(run(child, { "a" }, { max_out = 3 }), { message = "the process was ended: it has written more than max_out",
    code = "EMSGSIZE", rest = { out = "abc", err = "e", code = 0 } })
  check.equal(child.calls, { "close 1", "stop" })
  check.equal(run(fake_child { { "ab" } }, { "a" }, { max_out = 2 }).result.out, "ab")
  core.results.now = (function() local time = 0 return function() time = time + 1 return time end end)()
  check.equal(run(fake_child({ { "ab", "c", "d" } }, 143, 15), { "a" }, { timeout = 1.5 }), {
    message = "timeout: the process was ended", code = "ETIMEDOUT", rest = { out = "abcd", err = "", code = 143, signal = 15 } })
  core.results.now = { 0 }
end

function tests.a_function_gets_the_lines()
  local lines
  local function given(texts, max_out)
    lines = {}
    return run(fake_child { texts }, { "a" }, { output = function(line) lines[#lines + 1] = line end, max_out = max_out })
  end
  check.equal(given({ "a", "", "b\n\nc\nd", "\ne" }).result, { out = "", err = "", code = 0 })
  check.equal(lines, { "ab", "", "c", "d", "e" })
  check.equal(given({ "abc\nabc\n", "abc" }, 3).code, nil)
  check.equal(lines, { "abc", "abc", "abc" })
  for _, texts in ipairs { { "ab\nabcd\nx\n" }, { "ab\nab", "cd" } } do
    check.equal(given(texts, 3).code, "EMSGSIZE")
    check.equal(lines, { "ab" })
  end
  local child = fake_child { { "a\n" } }
  check.raises("no", function() run(child, { "a" }, { output = function() error("no") end }) end)
  check.equal(child.closed, true)
end

function tests.wrong_arguments_raise_at_the_line_of_the_site()
  for _, row in ipairs {
    { "ls.process takes a list of the program and its arguments", "git log" },
    { "the name of the program is missing", {} }, { "the name of the program is missing", { "" } },
    { "argument 2 must be a string without NUL; got a table", { "a", {} } },
    { 'argument 2 must be a string without NUL; got "a\\0b"', { "a", "a\0b" } },
    { "options are the second argument: ls.process({ ... }, { timeout = ... })", { "a", timeout = 5 } },
    { "the second argument is a table of options", { "a" }, "b" },
    { "too many arguments for ls.process(argv, options)", { "a" }, {}, 5 },
    { "stdin must be a string or a buffer; got 5", { "a" }, { stdin = 5 } },
    { "output must be a function, which gets each line; got true", { "a" }, { output = true } },
    { "env must be a table", { "a" }, { env = "A=1" } },
    { 'env has the invalid name "A=B"', { "a" }, { env = { ["A=B"] = "" } } },
    { "env has the invalid name 1", { "a" }, { env = { "A=1" } } },
    { "env.A must be a string without NUL, or false; got true", { "a" }, { env = { A = true } } },
    { "env.A must be a string without NUL, or false", { "a" }, { env = { A = "a\0" } } },
  } do
    check.raises({ check.line(), row[1] }, function() ls.process(row[2], row[3], row[4]) end)
  end
end

return tests
