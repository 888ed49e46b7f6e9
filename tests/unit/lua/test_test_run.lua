-- The command line of luaserve test, and which files and folders are those of tests.

local check = require "check"
package.loaded["luaserve.test.system"] = package.loaded["luaserve.test.system"] or {}
local run = require "luaserve.test.run"

local tests = {}

function tests.parse()
  check.equal(run.parse {}, { timeout = 5, log_level = "warn", files = {} })
  check.equal(run.parse { "--tap", "a.lua", "--timeout=0.5", "--junit", "x.xml", "--", "--b.lua" },
    { timeout = 0.5, log_level = "warn", tap = true, junit = "x.xml", files = { "a.lua", "--b.lua" } })
  check.equal(run.parse({ "--timeout", "86400" }).timeout, 86400)
  for _, name in ipairs { "auto", "epoll" } do check.equal(run.parse({ "--backend", name }).backend, name) end
end

function tests.parse_refuses()
  local function message(...) return select(2, run.parse { ... }) end
  check.equal(message("--bial"), "unknown option --bial; did you mean --bail?\nluaserve test --help lists the options")
  check.equal(message("--bail=1"), "--bail takes no value")
  check.equal(message("--junit"), "missing value of --junit: a file name")
  check.equal(message("--timeout", "86401"),
    '--timeout: invalid value "86401": must be seconds, above 0 and at most 86400')
  for _, text in ipairs { "0", "0x10", " 5", "5s", "." } do
    check.equal(message("--timeout", text),
      '--timeout: invalid value "' .. text .. '": must be seconds, above 0 and at most 86400')
  end
  check.equal(message("--log-level", ""),
    '--log-level: invalid value "": must be one of debug, info, warn, error, off')
  check.equal(message("--filter", "["):match("^[^:]*:[^:]*:"), '--filter: "[" is no Lua pattern:')
  check.equal(message("--backend", "iocp"), '--backend: invalid value "iocp": must be one of auto, epoll')
end

function tests.files()
  for _, name in ipairs { "a_test.lua", "test_a.lua", "_test.lua", "test_.lua" } do
    check.equal(run.is_test_file(name), true)
  end
  for _, name in ipairs { "test.lua", "atest.lua", "a_test.luac", "test_a.txt", "a_test_lua" } do
    check.equal(run.is_test_file(name), false)
  end
end

function tests.roots()
  for file, root in pairs {
    ["a_test.lua"] = ".", ["tests/a_test.lua"] = ".", ["test/sub/a_test.lua"] = ".", ["p/tests/a_test.lua"] = "p",
    ["p/a_test.lua"] = "p", ["/a_test.lua"] = "/", ["/tests/a_test.lua"] = "/", ["/p/tests/x/a_test.lua"] = "/p",
    ["tests/p/tests/a_test.lua"] = "tests/p", ["p\\tests\\a_test.lua"] = "p", ["mytests/a_test.lua"] = "mytests",
  } do
    check.equal({ file, run.root_of(file) }, { file, root })
  end
end

return tests
