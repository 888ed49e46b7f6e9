-- test/file.lua - runs the tests of one file. The process has this file only, so a site that crashes or calls os.exit
-- ends no other file; test/run.lua starts it and prints what it reports, one JSON object per line.

local ls = require "luaserve"
local test = require "luaserve.test"
local server = require "luaserve.test.server"
local system = require "luaserve.test.system"
local core = require "luaserve.core"
local usage = require "luaserve.usage"
local clock = require "luaserve.test.clock"

local file = {}

local EXCERPT_LINES = 2      -- before and after the line of a failure
local CPU_SECONDS_MIN = 0.25 -- the least limit of processor time: a report needs some as well
local GLOBALS = { "describe", "it", "pending", "before", "after", "before_each", "after_each" }

local function now() return core.now() - core.clock_moved() end -- of the limits of tests: not that of test.clock

local function report(event) system.report(require("cjson").encode(event)) end -- names and messages may have any bytes

-- ---- errors --------------------------------------------------------------------------------------------------------

-- The text of a source file, or nil.
local function lines_of(path)
  local handle = io.open(path, "r")
  if not handle then return nil end
  local lines = {}
  for line in handle:lines() do lines[#lines + 1] = line end
  handle:close()
  return lines
end

-- The lines around `line`, that one marked.
local function excerpt(path, line)
  local lines, out = lines_of(path), {}
  if not lines or not lines[line] then return nil end
  for n = math.max(1, line - EXCERPT_LINES), math.min(#lines, line + EXCERPT_LINES) do
    out[#out + 1] = string.format("%s %4d | %s", n == line and ">" or " ", n, (lines[n]:gsub("[%c\127]", " ")))
  end
  return out
end

-- The place of an error: the innermost function of the test file, else of any file of the user. Levels begin above the
-- message handler.
local function place(test_file)
  local level, other, other_line = 3, nil, nil
  while true do
    local info = debug.getinfo(level, "Sl")
    if not info then break end
    if info.what ~= "C" and info.currentline > 0 and info.source:sub(1, 1) == "@" then
      local path = info.source:sub(2)
      if path == test_file then return path, info.currentline end
      if not other and not usage.is_internal(info.source) then other, other_line = path, info.currentline end
    end
    level = level + 1
  end
  return other, other_line
end

local runner_line = arg and arg[0] .. ":1: in main chunk" -- the text that cli/test.c runs

-- The traceback without the functions of luaserve and of this runner.
local function clean_traceback(text)
  local out = {}
  for line in text:gmatch("[^\n]+") do
    local source = line:match("^%s+(.-):%d+: in ") or line:match("^%s+(.-): in ")
    if not (source and (source == "[C]" or usage.is_internal("@" .. source))) and line ~= "stack traceback:"
      and not line:find("(...tail calls...)", 1, true) and line:match("^%s+(.*)$") ~= runner_line then
      out[#out + 1] = (line:gsub("^%s+", ""))
    end
  end
  return out
end

-- A message handler: turns an error into { status, message, lines, where, line, excerpt, traceback }.
local function handler_of(test_file)
  return function(err)
    if type(err) == "table" and err.status and err.message then return err end -- of a nested describe
    local found = { status = "error", lines = {} }
    if test.is_failure(err) then
      found.status, found.message, found.lines = "fail", err.message, err.lines
    elseif type(err) == "string" then
      found.message = err
    else
      found.message = type(err) == "table" and not (getmetatable(err) or {}).__tostring
        and require("luaserve.test.diff").show(err) or tostring(err)
    end
    found.where, found.line = place(test_file)
    -- A syntax error, or one that another file raised, names its own place.
    local path, line = found.message:match("^([^\n]-%.lua):(%d+): ")
    if path and not found.where then found.where, found.line = path, tonumber(line) end
    if found.where then
      found.excerpt = excerpt(found.where, found.line)
      local prefix = found.where .. ":" .. found.line .. ": " -- of `error`: the place is printed anyway
      if found.message:sub(1, #prefix) == prefix then found.message = found.message:sub(#prefix + 1) end
    end
    if found.status == "error" then found.traceback = clean_traceback(debug.traceback(nil, 2)) end
    return found
  end
end

-- ---- running -------------------------------------------------------------------------------------------------------

-- Run fn in a task, for `seconds` at most. Returns nil when it has returned, else the table of handler_of.
local function run_alone(run, seconds, fn)
  local thread
  local limit = core.interrupt()
  limit:within(seconds)
  local begun = now()
  local job = ls.spawn(core.interruptible, limit, function()
    thread = coroutine.running()
    test.threads[thread] = true
    local ok, err = xpcall(fn, run.handler)
    return { err = not ok and err or nil, seconds = now() - begun }
  end)
  -- Both limits end a function that computes in spite of xpcall, and wait raises the error; a loop also keeps the timer of
  -- the wait from running until it is stopped, so the second wait may be the one that raises.
  local ok, ended = pcall(job.wait, job, seconds)
  if ok and ended then
    if ended.err or ended.seconds <= seconds then return ended.err end
    local message = "timed out after %g s; it has returned after %.3g s: a C function, such as os.execute or string.rep, "
      .. "is not ended"
    return { status = "error", lines = {}, message = message:format(seconds, ended.seconds) }
  end
  if ok then ok, ended = pcall(job.wait, job, 0) end
  limit:within(0) -- one that waits continues
  local traceback = clean_traceback(debug.traceback(thread, nil, 0))
  local found = { status = "error", lines = {}, traceback = traceback,
    message = ok and string.format("timed out after %g s", seconds) or tostring(ended) }
  local at = found.message:match("^(.*:%d+: )interrupted$")
  if at then
    found.message = string.format("timed out after %g s; it computed, without waiting", seconds)
    traceback[1], found.traceback = at, nil
  end
  for _, line in ipairs(traceback) do
    local path, number = line:match("^(.-%.lua):(%d+): ")
    if path == run.short_name then
      found.where, found.line = run.name, tonumber(number)
      found.excerpt = excerpt(run.name, found.line)
      break
    end
  end
  return found
end

-- The same, or what has failed in another task meanwhile.
local function run_within(run, seconds, fn)
  local found = run_alone(run, seconds, fn)
  return test.take_recorded() or found
end

local function path_of(block, name)
  local names = { name }
  while block and block.name do
    table.insert(names, 1, block.name)
    block = block.parent
  end
  return names
end

local function inherited(one, field)
  while one do
    if one[field] then return one[field] end
    one = one.block or one.parent
  end
end

-- Report a result; sets run.failed, which ends a run with `bail`.
local function result(run, names, status, seconds, line, found)
  local event = { event = "result", names = names, status = status, seconds = seconds, line = line }
  for name, value in pairs(found or {}) do if name ~= "status" then event[name] = value end end
  if event.lines and #event.lines == 0 then event.lines = nil end
  if event.traceback and #event.traceback == 0 then event.traceback = nil end
  if event.line == nil or found and found.line then event.line = found and found.line or line end
  if status == "fail" or status == "error" then run.failed = true end
  report(event)
end

-- Run the hooks of a kind; `outwards`: the innermost block first. Returns the first error.
local function run_hooks(run, block, kind, seconds)
  for _, fn in ipairs(block[kind]) do
    report { event = "begin", names = path_of(block, kind), timeout = seconds }
    local found = run_within(run, seconds, fn)
    if found then
      found.message = "in " .. kind .. ": " .. found.message
      return found
    end
  end
end

local function run_test(run, one)
  local seconds = inherited(one, "timeout") or run.timeout
  local names = path_of(one.block, one.name)
  report { event = "begin", names = names, timeout = seconds }
  local begun = now()
  local blocks, found = {}, nil
  local block = one.block
  while block do
    table.insert(blocks, 1, block)
    block = block.parent
  end
  local entered = 0
  for n = 1, #blocks do
    entered = n
    found = run_hooks(run, blocks[n], "before_each", seconds)
    if found then break end
  end
  report { event = "begin", names = names, timeout = seconds }
  found = found or run_within(run, seconds, one.fn)
  local ended = run_within(run, seconds, clock.run_due)
  found = found or ended
  for n = entered, 1, -1 do
    local after = run_hooks(run, blocks[n], "after_each", seconds)
    found = found or after
  end
  local fake = package.loaded["luaserve.test.fetch"]
  if fake then fake.finish() end
  result(run, names, found and found.status or "pass", now() - begun, one.line, found)
end

-- Whether a test runs: "run", or "skip", "pending", "only"; false when the filter leaves it out.
local function state_of(run, one)
  local full = table.concat(path_of(one.block, one.name), " ")
  if run.filter and not full:find(run.filter) then return false end
  if run.only and not inherited(one, "only") then return "only" end
  if one.pending then return "pending" end
  if inherited(one, "skip") then return "skip" end
  return "run"
end

local function has_runnable(run, block)
  for _, one in ipairs(block.items) do
    if one.items and has_runnable(run, one) or not one.items and state_of(run, one) == "run" then return true end
  end
  return false
end

-- Report every test of the block that would run as failed, because a hook of it failed.
local function fail_all(run, block, found)
  for _, one in ipairs(block.items) do
    if one.items then
      fail_all(run, one, found)
    elseif state_of(run, one) == "run" then
      result(run, path_of(one.block, one.name), "error", 0, one.line, found)
    end
  end
end

local function run_block(run, block)
  local seconds = inherited(block, "timeout") or run.timeout
  local runnable = has_runnable(run, block)
  local found = runnable and run_hooks(run, block, "before", seconds)
  if found then
    fail_all(run, block, found)
  else
    for _, one in ipairs(block.items) do
      if run.bail and run.failed then break end
      if one.items then
        run_block(run, one)
      else
        local state = state_of(run, one)
        if state == "run" then
          run_test(run, one)
        elseif state == "only" then
          result(run, path_of(one.block, one.name), "skip", 0, one.line, { only = run.only })
        elseif state then
          result(run, path_of(one.block, one.name), state, 0, one.line)
        end
      end
    end
  end
  found = runnable and run_hooks(run, block, "after", seconds)
  if found then result(run, path_of(block, "after"), "error", 0, nil, found) end
end

-- first_only(name, block) -> "it.only at FILE:LINE" of the first one in the block, or nil
local function first_only(name, block)
  for _, one in ipairs(block.items) do
    if one.only then return string.format("%s.only at %s:%d", one.items and "describe" or "it", name, one.line) end
    local found = one.items and first_only(name, one)
    if found then return found end
  end
end

-- The longest timeout of the tests: twice that bounds the processor time of one task, such as the handler of an inject.
local function longest(block, most)
  most = math.max(most, block.timeout or 0)
  for _, one in ipairs(block.items) do
    most = one.items and longest(one, most) or math.max(most, one.timeout or 0)
  end
  return most
end

local function run_all(run, root)
  test.running = true
  run.only = first_only(run.name, root)
  run_block(run, root)
  report { event = "begin", names = { "end of the file" }, timeout = 60 }
  local found = test.take_recorded()
  if found then result(run, { "after the last test" }, found.status, 0, nil, found) end
  for _, message in ipairs(server.stop_all()) do
    result(run, { "servers" }, "error", 0, nil, { message = message })
  end
  report { event = "end" }
  system.finish(0)
end

-- ---- calls of the site that do nothing here --------------------------------------------------------------------------

-- Report the first call, while the file loads, of a function whose effect begins with the serving of a site, as which
-- this process does not serve. Returns the function that ends this.
local function watch_top()
  local loading = true
  for _, name in ipairs { "after", "cron", "every", "on" } do
    local original = ls[name]
    ls[name] = function(first, ...)
      if loading and (name ~= "on" or first == "start") then
        loading = false
        report { event = "note", text = string.format("%s: ls.%s at the top of a file has no effect in the process of a "
          .. "test file, unlike ls.init: test the whole site with test.serve", usage.caller() or "?", name) }
      end
      local results = table.pack(pcall(original, first, ...))
      if results[1] then return table.unpack(results, 2, results.n) end
      usage.error("%s", (tostring(results[2]):gsub("'luaserve%.core%.", "'")))
    end
  end
  return function() loading = false end
end

-- main(settings): loads the test file and runs its tests when the server has started. settings: file, root (the folder
-- of the project), timeout, filter, bail, log_level.
function file.main(settings)
  local run = { name = settings.file, short_name = settings.file, timeout = settings.timeout, filter = settings.filter,
    bail = settings.bail, handler = handler_of(settings.file) }
  clock.install()
  server.root, server.log_level = settings.root, settings.log_level
  local folder = settings.file:match("^(.*)[/\\][^/\\]*$") or "."
  if folder ~= settings.root then package.path = folder .. "/?.lua;" .. folder .. "/?/init.lua;" .. package.path end
  for _, name in ipairs(GLOBALS) do _G[name] = test[name] end

  local root, err
  local handle, why = io.open(settings.file, "r")
  if not handle then
    err = { message = why, lines = {} }
  else
    local text = handle:read("a")
    handle:close()
    local chunk
    chunk, why = load(text:gsub("^\xef\xbb\xbf", ""):gsub("^#[^\n]*", "--"), "@" .. settings.file, "t")
    if chunk then run.short_name = debug.getinfo(chunk, "S").short_src end
    local loaded = watch_top()
    root, err = test.collect(chunk or function() error(why, 0) end, run.handler)
    loaded()
  end
  if not root then
    result(run, { "loading the file" }, "error", 0, nil, err)
    report { event = "end" }
    return system.finish(0)
  end
  ls.config { threads_max = 1, max_cpu = 2 * math.max(longest(root, run.timeout), CPU_SECONDS_MIN) }
  ls.init(function()
    core.clock_real()
    core.subscribers_start()
    local ok, message = xpcall(run_all, debug.traceback, run, root)
    if not ok then
      result(run, { "running the file" }, "error", 0, nil, { message = message })
      report { event = "end" }
      system.finish(0)
    end
  end)
end

return file
