-- test_stress_sampler.lua - intervals and samples from counters, with a simulated clock. ../stress/test_report.c runs it,
-- because the counters and histograms are those of C.
-- luacheck: globals sample

local check = require "check"
local sampler = require "luaserve.stress.sampler"
local samples = require "samples"

local tests = {}

local SECOND = 1000000000

local function open(more)
  local plan = { threads = 2, connections = 64, publishers = 0 }
  for name, value in pairs(more or {}) do plan[name] = value end
  return samples.open(sample, plan)
end

local function has(point, fields) for name, value in pairs(fields) do check.equal(point[name], value) end end

function tests.intervals_end_at_whole_seconds()
  local s = open()
  s:response(1, 200, 1000)
  s:response(2, 500, 3000)
  s:error(2, "write", 5)
  check.equal(select("#", s:tick(SECOND - 1)), 1)
  local _, point = s:tick(1) -- exactly one second
  has(point, { from_ns = 0, to_ns = SECOND, requests = 2, errors = 5, failed_status = 1, bytes_in = 480, bytes_out = 120,
    p50_ns = 1000, p99_ns = 3000, max_ns = 3000 })

  -- A late tick closes one interval of three and a half seconds, not several.
  s:response(1, 200, 9000000)
  _, point = s:tick(7 * SECOND / 2)
  has(point, { from_ns = SECOND, to_ns = 9 * SECOND // 2, requests = 1, p50_ns = 9000000, max_ns = 9000000 }) -- of its own
  check.equal(select("#", s:tick(SECOND / 2 - 1)), 1)
  _, point = s:tick(1)
  has(point, { requests = 0, p50_ns = 0, max_ns = 0 })

  -- The rest of a second is an interval.
  s:response(2, 200, 2000)
  s.now_ns = s.now_ns + SECOND // 4
  local r = s:finish(true)
  check.equal(#r.points, 4)
  has(r.points[4], { from_ns = 5 * SECOND, to_ns = 21 * SECOND // 4, requests = 1 })
  has(r, { interrupted = true, duration_ns = 21 * SECOND // 4, requests = 4, points_truncated = false })
  check.equal(r.status, { [200] = 3, [500] = 1 })
  check.equal(r.errors.write, 5)
  check.equal({ r.sent.count, r.due, r.lag }, { 4 })
end

-- Handshakes and the probes of a fan-out run come before the run.
function tests.bytes_before_the_run_do_not_count()
  local before = sample(false, false, false)
  before:response(1, 200, 1000)
  local s = samples.open(function() return before end, { connections = 1, publishers = 0 })
  s:response(2, 200, 1000)
  s:tick(SECOND)
  local r = s:finish()
  has(r, { bytes_in = 240, bytes_out = 60 })
  check.equal(#r.points, 1)
  has(r.points[1], { bytes_in = 240, bytes_out = 60 })
end

-- The threads end at two seconds, the last tick is at 2.05 s, and one response arrives after it.
function tests.the_series_ends_with_the_run()
  for _, case in ipairs {
    { 41 * SECOND // 20, 2 * SECOND, 2 },              -- the tick is late
    { 2 * SECOND, 2 * SECOND, 2 },                     -- to the nanosecond
    { 2 * SECOND, 2 * SECOND + SECOND // 10 - 1, 2 },  -- the rest is too short
    { 2 * SECOND, 2 * SECOND + SECOND // 10, 3 },      -- the rest is an interval
    { 3 * SECOND + SECOND // 20, 2 * SECOND, 2 },      -- a tick after the end of the run
  } do
    local last_tick_ns, end_ns, count = table.unpack(case)
    local s = open()
    s:response(1, 200, 1000)
    s:tick(SECOND)
    s:response(2, 200, 2000)
    if last_tick_ns > 3 * SECOND then s:tick(SECOND) end
    s:tick(s.start_ns + last_tick_ns - s.now_ns)
    s:response(2, 503, 7000000)
    s.now_ns = s.start_ns + end_ns
    local r = s:finish()
    check.equal(#r.points, count)
    local at, requests, max = 0, 0, 0
    for _, point in ipairs(r.points) do
      check.equal(point.from_ns, at)
      assert(point.to_ns > at)
      at, requests, max = point.to_ns, requests + point.requests, math.max(max, point.max_ns)
    end
    check.equal({ at, r.duration_ns, requests, r.requests, max }, { end_ns, end_ns, 3, 3, 7000000 })
    check.equal(r.points[count].failed_status, 1)
    assert(r.rates.max < 100) -- no sample of a time in the future
  end
end

-- The threads have closed their connections before the end.
function tests.connections_of_the_last_interval()
  local s = open()
  s:add(1, "connections", 40)
  s:tick(SECOND / 2)
  s:add(1, "connections", -10)
  s:tick(SECOND / 2)
  s:add(1, "connections", -10)
  s:tick(SECOND / 2)
  s:add(1, "connections", -20)
  s.now_ns = s.now_ns + SECOND // 4
  local r = s:finish()
  check.equal({ #r.points, r.points[1].connections, r.points[2].connections }, { 2, 40, 20 })

  s = open() -- ended before the first tick; 7 connections were made
  s:add(1, "connects", 7)
  s.now_ns = s.now_ns + SECOND // 20
  r = s:finish()
  check.equal({ #r.points, r.points[1].connections }, { 1, 7 })
end

function tests.each_thread_is_a_sample_of_the_rate()
  local s = open()
  for _ = 1, 10 do
    for _ = 1, 20 do s:response(1, 200, 1000) end
    for _ = 1, 40 do s:response(2, 200, 1000) end
    s:tick(SECOND / 10)
    s:tick(1000) -- too close to the last one to be a sample
  end
  local r = s:finish()
  check.equal(r.rates.count, 20)
  assert(r.rates.min >= 199 and r.rates.min <= 200)
  assert(r.rates.max >= 399 and r.rates.max <= 401)
end

function tests.a_run_shorter_than_a_tick_has_a_sample()
  local s = open()
  s:response(1, 200, 1000)
  s.now_ns = s.now_ns + 1000000
  local r = s:finish()
  check.equal({ r.rates.count, r.rates.max, #r.points }, { 2, 1000, 1 })
  check.equal(#open():finish().points, 0)
end

function tests.the_live_rate_covers_the_last_second()
  local s, live = open()
  s:add(1, "connections", 30)
  s:add(2, "connections", 34)
  for tick = 0, 29 do
    for _ = 1, tick < 15 and 10 or 50 do s:response(1, 200, 1000) end
    live = s:tick(SECOND / 10)
    if tick == 0 or tick == 14 then check.equal(live.rate, 100.0) end
  end
  has(live, { rate = 500.0, requests = 15 * 10 + 15 * 50, elapsed_ns = 3 * SECOND, connections = 64 })
end

-- Requests of the schedule that have ended: a failed check is one of a complete response.
function tests.live_requests_that_have_ended()
  local s = open()
  s:response(1, 200, 1000)
  s:response(2, 200, 1000)
  s:error(1, "check", 1)
  s:error(2, "timeout", 3)
  s:add(2, "checks_failed", 4)
  has(s:tick(SECOND / 10), { ended = 5, errors = 4, checks_failed = 4 })
  s = open { fanout = true }
  s:response(1, 200, 1000)
  s:add(1, "published", 7)
  check.equal(s:tick(SECOND / 10).ended, 7)
end

function tests.the_number_of_intervals_is_limited()
  local most = sampler.POINTS_MAX
  check.equal(most, 24 * 3600)
  sampler.POINTS_MAX = 20
  local s = open()
  for _ = 1, 20 do assert(select(2, s:tick(SECOND))) end
  local r = s:finish()
  check.equal({ #r.points, r.points_truncated }, { 20, false })

  s = open()
  for _ = 1, 20 do s:tick(SECOND) end
  s:response(1, 200, 1000)
  s:tick(SECOND)
  r = s:finish()
  check.equal({ #r.points, r.points_truncated }, { 20, true })
  check.equal({ r.requests, r.duration_ns }, { 1, 21 * SECOND }) -- the totals are complete
  sampler.POINTS_MAX = most
end

-- The maximum of all threads: of the time behind, and of the processor time.
function tests.the_result_has_the_maximum_of_all_threads()
  local s = open { open_loop = true }
  s:add(1, "late_ns", 7)
  s:add(2, "late_ns", 5)
  s:add(1, "wanted_ns", SECOND // 4)
  s:add(2, "wanted_ns", SECOND // 2)
  s.now_ns = s.now_ns + SECOND
  has(s:finish(), { late_ns = 7, wanted = 0.5 })
end

-- At the end of a run of 4 s, and of 1 s: longer than any response took, and than a second or half of the run.
function tests.long_outstanding_requests_are_unanswered()
  local function outstanding(seconds, response_ms, ages_ms, wait_ms)
    local s = open { mode = wait_ms and "scenario" }
    s:response(1, 200, response_ms * 1000000)
    s:add(2, "longest_wait_ns", (wait_ms or 0) * 1000000)
    s:tick(seconds * SECOND)
    for _, ms in ipairs(ages_ms) do s:record("waiting", ms * 1000000) end
    local r = s:finish()
    check.equal(r.points[#r.points].errors, r.errors.unanswered)
    return { r.errors.unanswered, r.in_flight }
  end
  check.equal(outstanding(4, 1, { 1, 999, 1000, 1002, 4000 }), { 2, 3 })
  check.equal(outstanding(4, 2000, { 1, 1002, 2000, 2004, 4000 }), { 2, 3 })
  check.equal(outstanding(1, 1, { 1, 500, 502 }), { 1, 2 })
  check.equal(outstanding(1, 1, {}), { 0, 0 })
  check.equal(outstanding(4, 3000, { 0, 1000, 1002, 4000 }, 1), { 2, 2 }) -- iterations may be long, their waits are not
  check.equal(outstanding(4, 3000, { 0, 1002, 2000, 2004 }, 2000), { 1, 3 })
  check.equal(outstanding(1, 900, { 500, 502 }, 0), { 1, 1 })
  local s = open { open_loop = true }
  s:tick(SECOND)
  check.equal(s:finish().in_flight, nil) -- an open loop waits for them
end

function tests.checks_of_all_threads()
  local function object(...)
    local lists = { ... }
    return { read = function()
        return { errors = {}, requests_of = {}, bytes_in = 0, bytes_out = 0, requests = 0, failed = 0, connects = 0,
          wanted_ns = 0 }
      end,
      histogram = function() return { count = 0, record = function() end } end, merge = function() end,
      checks = function() return lists end }
  end
  local function merged(...)
    return sampler.open({ connections = 1, publishers = 0 }, object(...), 0):finish(0).checks
  end
  check.equal(merged({ { name = "status", passed = 10, failed = 0 }, { name = "body", passed = 7, failed = 3 } },
    { { name = "body", passed = 0, failed = 1 }, { name = "new", passed = 1, failed = 0 } }),
    { { name = "status", passed = 10, failed = 0 }, { name = "body", passed = 7, failed = 4 },
      { name = "new", passed = 1, failed = 0 } })
  local first, second = {}, {}
  for i = 1, 256 do first[i] = { name = "check " .. i, passed = 1, failed = 0 } end
  for i = 1, 3 do second[i] = { name = "more " .. i, passed = 1, failed = 1 } end
  second[4] = { name = "(others)", passed = 0, failed = 1 }
  local all = merged(first, second)
  check.equal(#all, 257)
  check.equal(all[257], { name = "(others)", passed = 3, failed = 4 })
end

return tests
