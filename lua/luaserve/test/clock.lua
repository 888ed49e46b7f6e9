-- clock.lua - test.clock: the time of the site under test, moved forward.
--
-- ls.now, ls.sleep, timers, times to live and waits follow the clock of the core. What Lua calls the time of day follows
-- it by the functions here. The limits of the tests, and connections, take their real time.

local core = require "luaserve.core"
local usage = require "luaserve.usage"

local date, floor, ipairs, real_time, type = os.date, math.floor, ipairs, os.time, type

local seconds_max = 1e9

-- test.clock is a TestClock: the time of the site under test.
local clock = {}

local function now() return real_time() + floor(core.clock_moved()) end

-- install(): os.time and os.date follow the clock. Before the modules that keep these functions are loaded.
function clock.install()
  function os.time(given) return given and real_time(given) or now() end -- luacheck: ignore 122
  function os.date(form, seconds) return date(form or "%c", seconds or now()) end -- luacheck: ignore 122
end

-- Whether a thread runs a statement of SQLite. Before it is free it has woken its task.
local function databases_run()
  for _, one in ipairs(core.shared()) do
    if one.kind == "database" and one.running > 0 then return true end
  end
  return false
end

-- Let the others run until they wait: timers that are due, tasks that have been started. Statements and work with files, on
-- other threads, take their real time. At most `rounds` times, if given.
local function wait_until_idle(rounds)
  local ran
  rounds = rounds or math.huge
  repeat
    ran, rounds = databases_run(), rounds - 1
    core.sleep(0)
  until rounds <= 0 or not ran and not databases_run() and core.clock_idle()
end

-- run_due(): at the end of a test, lets the jobs and timers run that are due; one that always is due does not keep it.
function clock.run_due() wait_until_idle(100) end

-- test.clock.advance(seconds: number)
-- Moves the time forward. What becomes due meanwhile runs in its order, each at its time: timers, ends of `ls.sleep` and
-- other waits. Waits until these have run to their next wait.
function clock.advance(seconds, ...)
  usage.refuse(type(seconds) ~= "number" or not (seconds >= 0 and seconds <= seconds_max), seconds,
    "test.clock.advance takes seconds, from 0 to 1e9")
  usage.no_more("test.clock.advance(seconds)", seconds, ...)
  if not core.can_wait() then usage.error("test.clock.advance: call it in a test or a hook") end
  local target, due
  wait_until_idle()
  repeat
    target, due = core.clock_step(target, seconds)
    wait_until_idle()
  until not due
end

return clock
