-- stress/figures.lua - figures computed from the plan and the result of a run, for the reports and the thresholds.
--
-- The result (sampler.lua) has the names of ls_stress_counters (counters.h) and their sums over all threads; errors and
-- status by kind and code (error_kinds and error_texts name and explain the kinds); the histograms sent (from the
-- send), due (from the due time; nil in a closed loop), lag (how late due requests were noticed), handshake, upgrade
-- and rates; points, the intervals of the run; checks, a list of { name =, passed =, failed = }. A histogram has the
-- fields count, min, max, mean, stdev and clipped, and the methods percentile, within and below.

local text = require "luaserve.stress.text"
local threshold = require "luaserve.stress.threshold"

local figures = {}

figures.PERCENTS = { 50, 75, 90, 95, 99, 99.9, 99.99, 99.999 }
figures.EXIT_FAILED, figures.EXIT_USAGE, figures.EXIT_MISSED = 1, 2, 99

local LATE_NS = 1000000                                   -- the limit of the 99th percentile of the lag
local SHORT_PERCENT, SHORT_NS = 1.0, 100000000            -- see short_of
local SHORT_LAG_NS, SHORT_WANTED = 10000000, 0.9

-- The average rate of the schedule, stages included; 0 in a closed loop.
local function target_rate(plan, r)
  if not plan.open_loop then return 0 end
  if #plan.stages == 0 then return plan.rate end
  local requests, rate, left, all = 0, plan.rate, r.duration_ns / 1e9, 0 -- the area under the ramps up to the end
  for _, stage in ipairs(plan.stages) do
    if left <= 0 then break end
    local whole = stage.duration_ns / 1e9
    local part = math.min(whole, left)
    local last = whole > 0 and rate + (stage.rate - rate) * part / whole or stage.rate
    requests = requests + (rate + last) / 2 * part
    all, left, rate = all + part, left - part, stage.rate
  end
  return all > 0 and requests / all or 0
end

-- The number of requests that the load generator noticed late, relative to the median response time.
local function seen_late(r)
  local response_ns = r.sent.count > 0 and r.sent:percentile(50) or r.late_ns
  return r.lag.count * (100 - r.lag:below(math.max(response_ns // 2, SHORT_LAG_NS))) / 100
end

-- Why an open loop missed its rate: "time": the load generator was late; "connections": the server was too slow; nil: it
-- did not. It did if the schedule was late by SHORT_NS or more at the end, and more than SHORT_PERCENT of the due
-- requests had not been sent or, in a run with a number of requests, the last one was sent late by more than that share of
-- the run.
--
-- The reason is the load generator if its busiest thread used or waited for a processor for 90 % of the run; if one delay
-- was at least half as long as the time by which the run was late; or if it noticed at least half as many requests late
-- as were not sent, where late is 10 ms and half of the median response time, or more. Otherwise no connection was free:
-- the server kept all of them busy.
local function short_of(plan, r)
  local share = SHORT_PERCENT / 100
  if not r.lag or r.late_ns < SHORT_NS then return nil end
  local unsent = r.unsent > share * r.lag.count
  local late = plan.requests > 0 and r.late_ns > share * r.duration_ns
  if not unsent and not late then return nil end
  if r.wanted >= SHORT_WANTED or 2 * r.lag.max >= r.late_ns then return "time" end
  return unsent and 2 * seen_late(r) >= r.unsent and "time" or "connections"
end

-- One line: why the run or its rate failed; nil: it did not.
local function failure(f)
  local plan, r = f.plan, f.result
  if r.failure or not f.short then return r.failure end
  local what = r.unsent > 0 and string.format("%d of %d due requests were never sent", r.unsent, r.lag.count)
    or string.format("the last request was sent %s late", text.time(r.late_ns))
  local failed = r.errors.connect or 0
  local why
  if f.short == "connections" and failed > 0 then
    why = string.format("no connection was free; %s failed", text.counted(failed, "connect"))
  elseif f.short == "connections" then
    why = string.format("no connection was free; the server is too slow for this rate with %s (-c)",
      text.counted(plan.connections, "connection"))
  else
    why = string.format("the load generator itself was late by up to %s, and its busiest thread used or waited for %s%% of "
      .. "a processor; use more threads (-t), another machine, or a lower rate", text.time(r.lag.max),
      text.fixed(r.wanted * 100, 0))
  end
  return string.format("target rate %s requests/s, reached %s: %s, because %s", text.fixed(f.target_rate, 1),
    text.fixed(f.made_rate, 1), what, why)
end

-- In this order: the run failed, or the load generator was late, so that its figures do not describe the server; a
-- threshold was missed; the server was too slow for the rate.
local function exit_status(f)
  if f.result.failure or f.short == "time" then return figures.EXIT_FAILED end
  if f.missed or f.checks_missed then return figures.EXIT_MISSED end
  return f.short and figures.EXIT_FAILED or 0
end

-- actual(t) -> the measured value of a threshold in the unit of its limit: "4.56ms", "19987.3/s", "0.02%", "3"; "-": not
-- measured
function figures.actual(t)
  if not t.actual then return "-" end
  if t.kind == "latency" then return text.time(t.actual) end
  if t.kind == "rate" then return text.fixed(t.actual, 1) .. "/s" end
  if not t.percent then return text.fixed(t.actual, 0) end
  return text.fixed(t.actual, t.actual > 0 and t.actual < 0.01 and 6 or 2) .. "%" -- a share above 0 is never 0.00%
end

-- make(plan, result) -> the figures; thresholds of the plan are evaluated.
function figures.make(plan, r)
  local f = { plan = plan, result = r, latency = r.due or r.sent, errors = 0, checks_made = 0, checks_failed = 0,
    thresholds = {}, missed = false }
  local seconds = r.duration_ns / 1e9
  local function per_second(count) return seconds > 0 and count / seconds or 0.0 end
  f.seconds, f.rate = seconds, per_second(r.requests)
  f.made = plan.fanout and r.published or r.requests -- the requests of the schedule
  f.made_rate = per_second(f.made)
  f.bytes_in_rate, f.bytes_out_rate = per_second(r.bytes_in), per_second(r.bytes_out)
  for _, count in pairs(r.errors) do f.errors = f.errors + count end
  for _, check in ipairs(r.checks) do
    f.checks_made = f.checks_made + check.passed + check.failed
    f.checks_failed = f.checks_failed + check.failed
  end
  function f.statuses(from, to)
    local sum = 0
    for code, count in pairs(r.status) do if code >= from and code <= to then sum = sum + count end end
    return sum
  end
  f.target_rate = target_rate(plan, r)
  f.short = short_of(plan, r)
  -- The load generator noticed 1 % of the requests 1 ms late or more: its figures also describe this machine.
  f.engine_late = r.lag ~= nil and r.lag:percentile(99) >= LATE_NS
  f.checks_missed = f.checks_failed > 0 -- such a run fails as with a missed threshold
  f.statuses_ignored = #plan.thresholds > 0 and #r.checks == 0 and f.statuses(400, 599) > 0 -- whatever they are, it passes
  f.errors_ignored = #plan.thresholds > 0 and f.errors - r.errors.check or 0
  for i, t in ipairs(plan.thresholds) do
    local met, actual = threshold.evaluate(t, f)
    f.thresholds[i] = { text = t.text, metric = t.metric, kind = t.kind, percent = t.percent, limit = t.limit, met = met,
      actual = actual }
    f.missed = f.missed or not met
    if t.metric:find("^%d") then f.statuses_ignored = false end
    if t.metric:find("^error") then f.errors_ignored = 0 end
    if t.metric:find("^error") or t.metric:find("^check") then f.checks_missed = false end
  end
  f.failure = failure(f)
  f.exit = exit_status(f)
  return f
end

return figures
