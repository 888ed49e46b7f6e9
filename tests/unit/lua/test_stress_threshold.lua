-- Valid and invalid thresholds of luaserve stress, error messages, and the evaluation.

local check = require "check"
local figures = require "luaserve.stress.figures"
local histogram = require "histogram"
local threshold = require "luaserve.stress.threshold"

local tests = {}

function tests.valid_thresholds_are_parsed()
  for _, case in ipairs {
    { "p99 < 5ms", "latency", "<", 5e6, false }, { "p50<250us", "latency", "<", 250e3, false },
    { "  p99.99\t<=  1.5 s  ", "latency", "<=", 1.5e9, false }, { "p99.999 < 5s", "latency", "<", 5e9, false },
    { "mean < 1ms", "latency", "<", 1e6, false }, { "min > 0us", "latency", ">", 0, false },
    { "max <= 0.25s", "latency", "<=", 250e6, false }, { "stdev < 100us", "latency", "<", 100e3, false },
    { "rate >= 10000/s", "rate", ">=", 10000, false }, { "rate > 99.5", "rate", ">", 99.5, false },
    { "errors == 0", "count", "==", 0, false }, { "errors < 0.1%", "count", "<", 0.1, true },
    { "error_rate < 100%", "percent", "<", 100, true }, { "checks == 0", "count", "==", 0, false },
    { "checks_failed < 1 %", "count", "<", 1, true }, { "5xx == 0", "count", "==", 0, false },
    { "404 < 3%", "count", "<", 3, true }, { "lost == 0", "count", "==", 0, false },
  } do
    local t = assert(threshold.parse(case[1]))
    check.equal({ t.kind, t.op, t.percent, t.limit == case[4] }, { case[2], case[3], case[5], true })
  end
  check.equal(threshold.parse(" \t p99 < 5ms ").text, "p99 < 5ms")
  check.equal(threshold.parse("p99.9<5ms").metric, "p99.9")
end

-- Each message names the invalid part and the valid form.
function tests.invalid_thresholds_are_refused()
  for text, reason in pairs {
    [""] = "empty", ["   "] = "empty", ["< 5ms"] = "missing metric", ["p99"] = "missing operator",
    ["p99 <"] = "missing number", ["p99 < ms"] = '"ms": expected a number', ["p99 < -5ms"] = "expected a number",
    ["p99 < +5ms"] = "expected a number", ["p99 < .5ms"] = "expected a number",
    ["p99 < 0x5ms"] = '"x5ms": the unit of a latency is us, ms or s', ["p99 < 1e3ms"] = '"e3ms"',
    ["p99 < 1.2.3ms"] = "expected a number", ["p99 < nan"] = "expected a number", ["p99 < inf"] = "expected a number",
    ["p99 < 5"] = "needs a unit: us, ms or s", ["p99 < 5m"] = "the unit of a latency is us, ms or s",
    ["p99 < 5MS"] = "the unit of a latency is us, ms or s", ["p99 < 5ms 6"] = "the unit of a latency",
    ["p99 = 5ms"] = '"= 5ms": expected <, <=, >, >= or ==', ["p99 != 5ms"] = "expected <",
    ["p99 =< 5ms"] = "expected <", ["p99 5ms"] = "expected <", ["p99 => 5ms"] = "expected <",
    ["p0 < 5ms"] = "above p0 and below p100", ["p100 < 5ms"] = "above p0 and below p100",
    ["p < 5ms"] = '"p": unknown metric', ["p99x < 5ms"] = '"p99x": unknown metric', ["P99 < 5ms"] = "unknown metric",
    ["latency < 5ms"] = '"latency": unknown metric', ["6xx == 0"] = "unknown metric", ["0xx == 0"] = "unknown metric",
    ["5XX == 0"] = "unknown metric", ["99 == 0"] = "unknown metric", ["rate > 5ms"] = "the unit of a rate is /s",
    ["rate > 5%"] = "the unit of a rate is /s", ["errors < 5ms"] = "a count has no unit",
    ["errors < 0.5"] = "a count is a whole number", ["errors < 100.1%"] = "at most 100%",
    ["error_rate < 5"] = "the unit of error_rate is %",
    ["p99 < 11111111111111111111111111111111111111ms"] = "expected a number",
  } do
    local t, why = threshold.parse(text)
    if t or not why:find(reason, 1, true) or why:find("\n") then error(text .. ": " .. tostring(why)) end
  end
end

-- "checks > 99%" is the form of k6, where checks are those that have passed: here all may fail.
function tests.a_count_of_failures_has_no_lower_limit()
  for text, right in pairs {
    ["checks > 99%"] = '"checks": counts failed checks: a threshold is the most of them, such as "checks < 1%"',
    ["checks_failed >= 99.5 %"] = '"checks_failed <= 0.5%"', ["checks == 100%"] = '"checks == 0%"', ["checks > 100%"] = '"checks == 0%"',
    ["error_rate >= 95%"] = 'counts failed requests: a threshold is the most of them, such as "error_rate <= 5%"',
    ["errors > 0"] = '"errors == 0"', ["lost >= 3"] = 'counts failed deliveries: a threshold is the most of them, such as "lost == 0"',
  } do
    local t, why = threshold.parse(text)
    if t or not why:find(right, 1, true) then error(text .. ": " .. tostring(why)) end
  end
  assert(threshold.parse "checks == 10%" and threshold.parse "5xx > 0")
end

function tests.the_length_is_limited_to_80_bytes()
  local text = "p99" .. (" "):rep(73) .. "<5ms"
  check.equal(#text, 80)
  assert(threshold.parse(text))
  local t, why = threshold.parse("p99 " .. (" "):rep(73) .. "<5ms")
  check.equal({ t, why:find("longer than 80 bytes") ~= nil, #why < 120 }, { nil, true, true })
  assert(threshold.grammar:find("OPERATOR  <  <=  >  >=  ==", 1, true))
end

-- ---- the evaluation ------------------------------------------------------------------------------------------------

-- A result; `more` overrides fields.
local function result(more)
  local r = { duration_ns = 1000000000, requests = 0, published = 0, bytes_in = 0, bytes_out = 0, unsent = 0, late_ns = 0,
    wanted = 0, errors = { read = 0, answer = 0, check = 0 }, status = {}, checks = {}, sent = histogram {} }
  for name, value in pairs(more or {}) do r[name] = value end
  return r
end

local function met(r, text, plan)
  plan = plan or { open_loop = false, stages = {}, rate = 0, requests = 0, connections = 64 }
  plan.thresholds = { assert(threshold.parse(text)) }
  return figures.make(plan, r).thresholds[1].met
end

-- 1000 responses of exactly 1 ms in one second: 990 with status 200, 8 with 404, 2 with 503; 10 errors; 4 checks, of which
-- one failed.
function tests.thresholds_compare_with_the_measured_values()
  local r = result { requests = 1000, sent = histogram { { 1000000, 1000 } }, errors = { read = 4, answer = 6, check = 0 },
    status = { [200] = 990, [404] = 8, [503] = 2 }, checks = { { name = "c", passed = 3, failed = 1 } } }
  for text, expected in pairs {
    -- each operator below, at and above the limit
    ["p99 < 1.001ms"] = true, ["p99 < 1ms"] = false, ["p99 < 999us"] = false, ["p50 <= 1ms"] = true,
    ["p50 <= 999us"] = false, ["p50 > 999us"] = true, ["p50 > 1ms"] = false, ["p50 >= 1ms"] = true,
    ["p50 >= 1001us"] = false, ["p50 == 1ms"] = true, ["p50 == 2ms"] = false, ["mean == 1ms"] = true,
    ["min == 1ms"] = true, ["max == 1ms"] = true, ["stdev == 0us"] = true, ["rate == 1000/s"] = true,
    ["rate > 1000"] = false, ["errors == 10"] = true, ["errors < 10"] = false, ["errors < 11"] = true,
    ["errors < 1%"] = true, ["error_rate < 0.99%"] = false, -- 10 of 1010
    ["4xx == 8"] = true, ["5xx == 2"] = true, ["404 == 8"] = true, ["503 <= 0.2%"] = true, ["2xx >= 99%"] = true,
    ["2xx > 99%"] = false, ["3xx == 0"] = true, ["checks == 1"] = true, ["checks <= 25%"] = true,
    ["checks < 25%"] = false,
  } do
    if met(r, text) ~= expected then error(text) end
  end
end

-- Of a fan-out run with server-sent events, whose deliveries have no status.
function tests.a_percentage_of_a_status_is_of_all_responses()
  local r = result { requests = 90, status = { [0] = 90, [204] = 9, [503] = 1 } }
  check.equal({ met(r, "2xx == 90%"), met(r, "503 == 10%"), met(r, "204 == 9") }, { true, true, true })
end

function tests.deliveries_are_measured_in_fan_out_runs_only()
  local r = result { lost = 3, reordered = 0, duplicated = 1, expected = 300 }
  local plan = { fanout = true, open_loop = false, stages = {}, rate = 0, requests = 0, connections = 64 }
  check.equal({ met(r, "lost == 3", plan), met(r, "lost <= 1%", plan), met(r, "reordered == 0", plan),
    met(r, "duplicated == 1", plan), met(r, "lost == 0") }, { true, true, true, true, false })
end

function tests.open_loops_use_corrected_latency()
  local r = result { requests = 100, sent = histogram { { 1000000, 100 } }, due = histogram { { 401000000, 100 } },
    lag = histogram { { 0, 100 } } }
  check.equal({ met(r, "p50 < 400ms"), met(r, "p50 < 402ms") }, { false, true })
end

-- Without measurements a condition on latency is missed with any operator; a count is 0.
function tests.a_threshold_without_measurements_is_missed()
  local r = result()
  for _, text in ipairs { "p99 < 5ms", "p99 >= 0us", "mean < 1s", "errors < 1%", "rate > 0", "checks < 1%" } do
    check.equal(met(r, text), false)
  end
  check.equal({ met(r, "errors == 0"), met(r, "5xx == 0") }, { true, true })
end

return tests
