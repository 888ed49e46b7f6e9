-- ls.process: the arguments and options as the core gets them.
local check = require "check"
local core = require "luaserve.core"
local ls = require "luaserve"

local tests = {}

local function passed(...)
  core.calls = {}
  ls.process(...)
  local call = core.calls[1]
  check.equal(call[1], "process")
  return { argv = call[2], env = call[3], cwd = call[4], input = call[5], out = call[6], err = call[7], seconds = call[8] }
end

function tests.the_defaults()
  check.equal(passed { "sort", 5, -1.5 }, { argv = { "sort", "5", "-1.5" }, cwd = "/site", out = 1048576, err = 1048576,
    seconds = 60.0 })
end

function tests.the_options()
  local options = { stdin = "x", cwd = "/b", max_out = "2k", max_err = 0, timeout = 0.5, env = { LANG = false } }
  check.equal(passed({ "a" }, options),
    { argv = { "a" }, input = "x", cwd = "/b", out = 2048, err = 0, seconds = 0.5, env = { "EMPTY=", "HOME=/root" } })
  check.equal(passed({ "a" }, { timeout = false }).seconds, nil)
  check.equal(passed({ "a" }, { env = { HOME = "/", A = 1 } }).env, { "A=1", "EMPTY=", "HOME=/", "LANG=C" })
  check.equal(passed({ "a" }, { env = { A = "1" }, clear_env = true }).env, { "A=1" })
  check.equal(passed({ "a" }, { clear_env = true }).env, {})
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
    { "env must be a table", { "a" }, { env = "A=1" } },
    { 'env has the invalid name "A=B"', { "a" }, { env = { ["A=B"] = "" } } },
    { "env has the invalid name 1", { "a" }, { env = { "A=1" } } },
    { "env.A must be a string without NUL, or false; got true", { "a" }, { env = { A = true } } },
    { "env.A must be a string without NUL, or false", { "a" }, { env = { A = "a\0" } } },
  } do
    check.raises({ check.line(1), row[1] }, function()
      ls.process(row[2], row[3], row[4])
    end)
  end
end

return tests
