-- stress/main.lua - `luaserve stress` from the command line to the exit status.
--
-- The functions of `engine`, which engine.c defines, do what needs C:
--   load(plan)      loads the script; returns a copy of a native script's table, with functions as they are in types
--   tls(plan)       opens TLS for the target
--   resolve(plan)   finds the address of the target
--   open(plan)      opens the scripts of the threads and the threads
--   start()         starts them, which connect; returns the counters, the time, the wall clock, whether the run can begin
--   go(start_ns)    begins the run
--   wait(until_ns)  returns the time, not before this one; nothing when all threads have finished
--   join(start_ns)  stops the threads; returns the time of the end, interrupted, the first failure and the first error
--   done(summary, latency, rates)  calls the hook done() of the script
-- They raise their messages. Its fields: processors, backend, version, page, compresses, http2, frame, deflate,
-- descriptors, terminal.

local figures = require "luaserve.stress.figures"
local options = require "luaserve.stress.options"
local sampler = require "luaserve.stress.sampler"
local text = require "luaserve.stress.text"

local DESCRIPTORS_SPARE, DESCRIPTORS_PER_THREAD = 64, 4

-- A message of a script may contain text of the server.
local function print_error(what, message) io.stderr:write("luaserve stress: ", what, text.escaped(message), "\n") end

local function fail(message, status)
  if message then error({ message = message, status = status }, 0) end
end

-- The plan of these options; with the options of a native script's table.
local function plan_of(given, engine)
  if given.native then
    local good, why = options.read_table(given, engine.load { script = given.script, native = true,
      arguments = given.arguments })
    if not good then fail(why, figures.EXIT_FAILED) end
  end
  local plan, why, status = require("luaserve.stress.plan").make(given, engine)
  if not plan then fail(why, given.native and figures.EXIT_FAILED or status) end
  if plan.tls then
    local good
    good, why = pcall(engine.tls, plan)
    if not good then fail(why, given.native and figures.EXIT_FAILED or figures.EXIT_USAGE) end
  end
  return plan
end

local function check_descriptors(plan, engine)
  local wanted = plan.connections + plan.publishers + plan.threads * DESCRIPTORS_PER_THREAD + DESCRIPTORS_SPARE
  local have = engine.descriptors(wanted)
  if have < wanted then
    fail(string.format("%d connections need %d file descriptors; the limit is %d (ulimit -n)", plan.connections, wanted,
      have))
  end
end

local function run(engine, plan)
  local counters, start_ns, started_us, connected = engine.start()
  local samples = sampler.open(plan, counters, start_ns)
  local view, draw = nil, not plan.quiet
  if connected then
    engine.go(start_ns)
    local due_ns = start_ns + sampler.TICK_NS
    for now_ns in function() return engine.wait(due_ns) end do
      local live, point = samples:tick(now_ns)
      due_ns = due_ns + sampler.TICK_NS
      view = view or draw and require("luaserve.stress.view").open(plan, engine.terminal()) or nil
      draw = draw and pcall(view.draw, view, live, point) -- an error ends the view, not the run
    end
  end
  local end_ns, interrupted, first_failure, first_error = engine.join(start_ns)
  local r = samples:finish(end_ns)
  if view then view:close() end
  r.started_us, r.interrupted, r.version = started_us, interrupted, engine.version
  r.first_failure, r.first_error = first_failure, first_error
  return r
end

-- Why there are no responses.
local function no_response(plan, r)
  if r.first_failure ~= "" then return plan.target .. ": no valid response; first error: " .. r.first_failure end
  if r.first_error then return r.first_error end
  if r.requests > 0 then
    return "the scenario has sent and received nothing: there is nothing to measure; it sends with sock:send or vu:ws"
  end
  return plan.target .. ": " .. (r.interrupted and "interrupted before the first response"
    or r.errors.timeout > 0 and "no complete response within the time limit"
    or r.errors.read > 0 and "the server closed every connection without a response"
    or "no response before the end of the run")
end

-- The first argument of done().
local function summary_of(f)
  local r = f.result
  local summary = { duration = r.duration_ns // 1000, requests = r.requests, bytes = r.bytes_in,
    errors = { status = f.statuses(400, 599) } }
  for kind, count in pairs(r.errors) do summary.errors[kind] = count end
  return summary
end

-- Print and write the reports; returns the exit status.
local function report(engine, plan, r)
  local files = require "luaserve.stress.report_files"
  local printed = require "luaserve.stress.report_text"
  local silent = plan.mode == "scenario" and r.bytes_in + r.bytes_out == 0
  local empty = plan.hold and r.connects == 0 or not plan.hold and (r.requests == 0 or silent)
  if empty then r.failure = no_response(plan, r) end -- no figures to print; the files have the reason and the counts
  local f = figures.make(plan, r)
  local status = f.exit
  local function problem(message)
    print_error("", message)
    status = figures.EXIT_FAILED
  end
  if empty then
    problem(r.failure)
  else
    local good, why = io.stdout:write(printed.report(f))
    if good then good, why = io.stdout:flush() end
    if not good then problem("cannot write the report to standard output: " .. tostring(why)) end
    if r.first_failure ~= "" then print_error("first error: ", r.first_failure) end
  end
  local good, why = pcall(engine.done, summary_of(f), f.latency, r.rates)
  if not good then problem(why) end
  good, why = files.save(f, engine.page)
  if not good then problem(why) end
  if f.failure and not empty then print_error("", f.failure) end
  return status
end

local function main(engine, arguments)
  local given, why = options.parse(arguments)
  if not given then fail(why, figures.EXIT_USAGE) end
  if given.help then
    io.stdout:write(require("luaserve.command.help")(options.line))
    return 0
  end
  local plan = plan_of(given, engine)
  local good
  good, why = require("luaserve.stress.report_files").probe(plan)
  if not good then fail(why) end
  if plan.wrk then engine.load(plan) end
  check_descriptors(plan, engine)
  engine.resolve(plan)
  engine.open(plan)
  io.stdout:write(require("luaserve.stress.report_text").head(plan))
  io.stdout:flush()
  return report(engine, plan, run(engine, plan))
end

-- main(engine, arguments) -> the exit status
return function(engine, arguments)
  local good, result = pcall(main, engine, arguments)
  if good then return result end
  print_error("", type(result) == "table" and result.message or tostring(result))
  return type(result) == "table" and result.status or figures.EXIT_FAILED
end
