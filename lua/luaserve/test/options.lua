-- test/options.lua - the command line of `luaserve test`.

local command = require "luaserve.command"
local server = require "luaserve.command.server"

local options = {}

local TIMEOUT_SECONDS = 5

local pattern = {
  expected = "a Lua pattern",
  read = function(text)
    local good, why = pcall(string.find, "", text)
    if good then return text end
    return nil, string.format("--filter: %q is no Lua pattern: %s", text, why)
  end,
}

local seconds = {
  expected = "seconds, above 0 and at most 86400",
  read = function(text)
    local number = text:find("^[%d.]+$") and tonumber(text)
    return number and number > 0 and number <= 86400 and number or nil
  end,
}

-- spec(backend) -> the table of the options. backend: that of the system.
function options.spec(backend)
  return {
    name = "test",
    usage = { "[options] [FILES or folders]" },
    about = [[
Runs test files, each in a process of its own. Without FILES: all *_test.lua and test_*.lua below tests/ and test/, or if
there is no such folder, below the current one. Folders whose names begin with a dot are not searched.]],
    options = {
      { "--filter PATTERN", pattern, [[run only the tests whose full name ("block name test name") matches the Lua
      pattern]] },
      { "--bail", nil, "stop after the first failure" },
      { "--timeout SECONDS", seconds, "time limit of a test that sets none (default: 5)" },
      { "--tap", nil, "print TAP version 14 to standard output" },
      { "--junit FILE", command.file, "write JUnit XML to FILE as well" },
      { "--backend NAME", server.backend_kind(backend), "as of luaserve itself" },
      { "--log-level LEVEL", server.log_level_kind, [[log of the test processes and their servers on standard error
      (default: warn)]] },
      command.help_option,
    },
    notes = [[
Exit status: 0 all tests passed, 1 a test failed (or CI is set and it.only left out a test), 2 the command line is wrong or
no test was found. The variable NO_COLOR turns colours off. The page lua/docs/testing.md describes test files.]],
  }
end

-- parse(arguments, backend) -> settings, or nil and a message
function options.parse(arguments, backend)
  local settings, files, at = command.parse(options.spec(backend), arguments)
  if not settings then return nil, files end
  if settings.backend == "uring" then
    io.stderr:write("luaserve test: --backend uring: Linux has one back end, epoll, which is used\n")
    settings.backend = nil
  end
  settings.timeout, settings.log_level = settings.timeout or TIMEOUT_SECONDS, settings.log_level or "warn"
  settings.files = table.move(arguments, at, #arguments, #files + 1, files)
  return settings
end

return options
