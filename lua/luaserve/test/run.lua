-- test/run.lua - the command `luaserve test`: its options, the test files, one process for each, and the reports.

local ls = require "luaserve"
local child = require "luaserve.test.child"
local command = require "luaserve.command"
local report = require "luaserve.test.report"
local system = require "luaserve.test.system"
local core = require "luaserve.core"
local options = require "luaserve.test.options"
local usage = require "luaserve.usage"

local run = {}

local STATUS_PASSED, STATUS_FAILED, STATUS_USAGE = 0, 1, 2
local LOAD_SECONDS_MAX = 60 -- from the start of a process to its first test
local GRACE_SECONDS = 15    -- after the timeout of a test, for the report of the process itself
local DEPTH_MAX = 32        -- of nested folders

local function fail_usage(format, ...)
  io.stderr:write("luaserve test: ", string.format(format, ...), "\n")
  return system.finish(STATUS_USAGE)
end

-- parse(arguments) -> settings, or nil and a message
function run.parse(arguments) return options.parse(arguments, core.backend) end

-- ---- test files ----------------------------------------------------------------------------------------------------

function run.is_test_file(name) return name:find("_test%.lua$") ~= nil or name:find("^test_.*%.lua$") ~= nil end

local function join(folder, name) return folder == "." and name or (folder:gsub("[/\\]$", "")) .. "/" .. name end

-- Append the test files below a folder, in the order of their names. Returns nil and a message if it cannot be read.
local function search(folder, found, depth)
  local entries, why = system.list(folder)
  if not entries then return nil, why end
  table.sort(entries, function(a, b) return a.name < b.name end)
  for _, entry in ipairs(entries) do
    if entry.folder then
      if entry.name:sub(1, 1) ~= "." and depth < DEPTH_MAX then search(join(folder, entry.name), found, depth + 1) end
    elseif run.is_test_file(entry.name) then
      found[#found + 1] = join(folder, entry.name)
    end
  end
  return true
end

-- find(names) -> the test files, or nil and a message
local function find(names)
  local found, looked = {}, {}
  if #names == 0 then
    for _, folder in ipairs { "tests", "test" } do
      if system.kind(folder) == "folder" then names[#names + 1] = folder end
    end
    if #names == 0 then names[1] = "." end
  end
  for _, name in ipairs(names) do
    local kind = system.kind(name)
    if not kind then return nil, name .. ": no such file or folder" end
    if kind ~= "folder" then
      found[#found + 1] = name
    else
      looked[#looked + 1] = name == "." and "the current folder" or name
      local ok, why = search(name, found, 1)
      if not ok then return nil, name .. ": " .. why end
    end
  end
  if #found == 0 then
    return nil, "no tests found: no file *_test.lua or test_*.lua below " .. table.concat(looked, " and ")
  end
  return found
end

-- root_of(file) -> the folder of the project: the one above tests/ or test/, else that of the file.
function run.root_of(file)
  local path = file:gsub("\\", "/")
  local folder = path:match("^(.*)/[^/]*$")
  if folder == nil then return "." end
  local above = ("/" .. folder .. "/"):match("^(.*)/tests?/")
  local root = above and above:sub(2) or folder
  if root ~= "" then return root end
  return path:sub(1, 1) == "/" and "/" or "."
end

-- ---- one file ------------------------------------------------------------------------------------------------------

local notes = {} -- set of the texts that were printed

-- Run a test file; calls result(event) for each test. Returns whether it may continue (not so after a crash with --bail).
local function run_file(settings, name, result)
  local root = run.root_of(name)
  local settings_text = require("cjson").encode { file = name, root = root, timeout = settings.timeout,
    filter = settings.filter, bail = settings.bail, log_level = settings.log_level }
  local words = { "test", "--file-process", "--log-level", settings.log_level }
  local base = name:match("[^/\\]*$")
  table.move({ root == "/" and "/" .. base or join(root, base), settings_text }, 1, 2, #words + 1, words)
  local process, why = child.start(words)
  local current, limit = { "loading the file" }, LOAD_SECONDS_MAX
  local function broken(message)
    result { names = current, status = "error", seconds = 0, message = message }
  end
  if not process then return broken("cannot start a process: " .. why) end
  while true do
    local line, reason = process:receive(limit)
    if not line then
      if reason == "timeout" then
        process:kill()
        broken(string.format("the process was ended: it did not report for %g s; a C function blocks, or a loop never "
          .. "ends", limit))
      else
        broken("the process of this file " .. select(2, process:ending()) .. " during this test")
      end
      return
    end
    local _, event = pcall(require("cjson").decode, line) -- names and messages may have any bytes
    if type(event) ~= "table" then
      process:kill()
      return broken("the process sent a line that is no report: " .. usage.quote(line))
    end
    if event.event == "end" then
      process:receive(GRACE_SECONDS)
      return process:kill()
    elseif event.event == "begin" then
      current, limit = event.names, event.timeout + GRACE_SECONDS
    elseif event.event == "note" then
      if not notes[event.text] then io.stderr:write("luaserve test: note: ", event.text, "\n") end
      notes[event.text] = true
    else
      result(event)
    end
  end
end

-- ---- the command ---------------------------------------------------------------------------------------------------

local function run_all(settings)
  local files, why = find(settings.files)
  if not files then return fail_usage("%s", why) end
  local reporters, junit = {}, nil
  if settings.junit then
    junit, why = io.open(settings.junit, "w")
    if not junit then return fail_usage("--junit: %s", why) end
    reporters[1] = report.junit(function(text) junit:write(text) end)
  end
  local function write(text)
    io.stdout:write(text)
    io.stdout:flush()
  end
  reporters[#reporters + 1] = settings.tap and report.tap(write)
    or report.human(write, system.terminal() and (os.getenv("NO_COLOR") or "") == "")
  local empty = {} -- files without a test
  local ci = os.getenv("CI")
  local totals, begun = { pass = 0, fail = 0, skip = 0, pending = 0, seconds = 0, only = {},
    ci = ci ~= nil and ci ~= "" and ci ~= "0" and ci ~= "false" }, ls.now()
  for _, name in ipairs(files) do
    local open = false -- a file without a test that the filter chooses is not shown
    run_file(settings, name, function(event)
      for _, reporter in ipairs(reporters) do
        if not open then reporter.begin(name) end
        reporter.result(name, event)
      end
      open = true
      local kind = event.status == "error" and "fail" or event.status
      totals[kind] = totals[kind] + 1
      if event.only then
        local last = totals.only[#totals.only]
        if not last or last.text ~= event.only then
          last = { text = event.only, count = 0 }
          totals.only[#totals.only + 1] = last
        end
        last.count = last.count + 1
      end
    end)
    if not open and not settings.filter then empty[#empty + 1] = name end
    if settings.bail and totals.fail > 0 then break end
  end
  totals.seconds = ls.now() - begun
  for _, reporter in ipairs(reporters) do reporter.finish(totals) end
  if junit and not junit:close() then return fail_usage("--junit: cannot write %s", settings.junit) end
  if #empty < #files then
    for _, name in ipairs(empty) do io.stderr:write("luaserve test: no tests found in ", name, ": no call of it()\n") end
  end
  if totals.fail > 0 or totals.ci and #totals.only > 0 then return system.finish(STATUS_FAILED) end
  if totals.pass + totals.skip + totals.pending == 0 then
    return fail_usage("no tests found%s in %s", settings.filter and
      string.format(" whose name matches %q", settings.filter) or ": no call of it()", table.concat(files, ", "))
  end
  return system.finish(STATUS_PASSED)
end

-- main(...): the arguments of the command. Ends the server with system.finish(status).
function run.main(...)
  local settings, why = run.parse { ... }
  ls.config { threads = 1, threads_max = 1, max_cpu = 86400 } -- one task does everything
  ls.init(function()
    if not settings then return fail_usage("%s", why) end
    if settings.help then return system.finish(command.help(options.spec(core.backend))) end
    return run_all(settings)
  end)
end

return run
