-- stress/sampler.lua - reads the counters of all threads during a run: makes the time series, the live figures, and at the
-- end the result.
--
-- An interval is the difference between two reads of the counters, its latencies the difference between two merged
-- histograms, so the threads hand nothing over. Ticks may be late or missing: rates are computed from the time that has
-- passed. src/stress/measure/counters_object.h describes the counters; times are nanoseconds.

local sampler = {}
sampler.__index = sampler

sampler.TICK_NS = 100000000 -- the interval of wrk's Req/Sec samples
sampler.POINTS_MAX = 86400  -- one day; later intervals are in the totals only
local SECOND = 1000000000
local RECENT = 10           -- ticks of the live rate
local CHECKS_MAX, OTHERS = 256, "(others)" -- as in checks.h

-- The sums that an interval has a share of, since the start.
local function sums_of(self, c)
  local errors = 0
  for _, count in pairs(c.errors) do errors = errors + count end
  return { requests = c.requests, errors = errors, failed_status = c.failed, bytes_in = c.bytes_in - self.before_in,
    bytes_out = c.bytes_out - self.before_out }
end

-- open(plan, counters, start_ns) -> the sampler of a run that begins at start_ns. The bytes that the counters have now are
-- those of handshakes, and of the probes of a fan-out run.
function sampler.open(plan, counters, start_ns)
  local before = counters:read()
  return setmetatable({ plan = plan, counters = counters, start_ns = start_ns, before_in = before.bytes_in,
    before_out = before.bytes_out, points = {}, rates = counters:histogram(), sampled_ns = start_ns,
    sampled = {}, interval_ns = start_ns, most_open = 0, recent = { { at_ns = start_ns, requests = 0 } },
    closed = { requests = 0, errors = 0, failed_status = 0, bytes_in = 0, bytes_out = 0 } }, sampler)
end

-- Sample the rate of each thread. A tick too close to the last sample is skipped, as its rate would be noise.
local function sample_rates(self, c, now_ns, least_ns)
  local passed = now_ns - self.sampled_ns
  if passed < least_ns then return end
  for thread, requests in ipairs(c.requests_of) do
    self.rates:record(math.floor((requests - (self.sampled[thread] or 0)) * SECOND / passed + 0.5))
  end
  self.sampled, self.sampled_ns = c.requests_of, now_ns
end

local function measure_latency(self, point)
  local all = self.counters:merge(self.plan.open_loop and "due" or "sent")
  local new = self.merged and all:between(self.merged) or all
  -- The end of a slot may exceed the exact maximum of the run, which is known.
  point.p50_ns = math.min(new:percentile(50), all.max)
  point.p99_ns = math.min(new:percentile(99), all.max)
  point.max_ns = math.min(new.max, all.max)
  self.merged = all
end

local function close_interval(self, now_ns, sums)
  local point = { from_ns = self.interval_ns - self.start_ns, to_ns = now_ns - self.start_ns,
    connections = self.most_open, p50_ns = 0, p99_ns = 0, max_ns = 0 }
  for name, sum in pairs(sums) do point[name] = sum - self.closed[name] end
  if point.requests > 0 then measure_latency(self, point) end
  if #self.points < sampler.POINTS_MAX then
    self.points[#self.points + 1] = point
  else
    self.truncated = true -- the totals are complete, and the reports contain a warning
  end
  self.last, self.interval_ns, self.most_open, self.closed = point, now_ns, 0, sums
  return point
end

-- s:tick(now_ns) -> the live figures, and the interval if this tick has closed one: at the first tick after each whole
-- second since the start
function sampler:tick(now_ns)
  local c = self.counters:read()
  local sums = sums_of(self, c)
  sample_rates(self, c, now_ns, sampler.TICK_NS // 2)
  local recent = self.recent
  local oldest = recent[1]
  recent[#recent + 1] = { at_ns = now_ns, requests = sums.requests }
  if #recent > RECENT then table.remove(recent, 1) end
  local span = now_ns - oldest.at_ns
  -- Requests that are complete or have failed (a failed check is a complete one); of a fan-out run the publications.
  local ended = self.plan.fanout and c.published or sums.requests + sums.errors - c.errors.check
  local live = { elapsed_ns = now_ns - self.start_ns, requests = sums.requests, errors = sums.errors,
    failed_status = sums.failed_status, checks_failed = c.checks_failed, connections = c.connections, ended = ended,
    rate = span > 0 and (sums.requests - oldest.requests) * SECOND / span or 0 }
  self.ticked = true
  self.most_open = math.max(self.most_open, live.connections)
  if (now_ns - self.start_ns) // SECOND == (self.interval_ns - self.start_ns) // SECOND then return live end
  return live, close_interval(self, now_ns, sums)
end

-- ---- the result --------------------------------------------------------------------------------------------------------

-- Add the interval `rest` to `point`.
local function merge_points(point, rest)
  for _, name in ipairs { "requests", "errors", "failed_status", "bytes_in", "bytes_out" } do
    point[name] = point[name] + rest[name]
  end
  for _, name in ipairs { "connections", "p50_ns", "p99_ns", "max_ns" } do
    point[name] = math.max(point[name], rest[name])
  end
  point.to_ns = rest.to_ns
end

local function differ(a, b)
  for name, value in pairs(a) do if b[name] ~= value then return true end end
  return false
end

-- The series ends at the end of the run. The last tick may be later, and the rest after the last whole interval may be too
-- short for a rate: such a rest becomes part of the previous interval.
local function close_series(self, c, end_ns)
  local points, duration = self.points, end_ns - self.start_ns
  local seen_ns, sums = math.max(end_ns, self.interval_ns), sums_of(self, c)
  -- The threads have closed their connections by now.
  if self.most_open == 0 then self.most_open = self.last and self.last.connections or 0 end
  if not self.ticked then self.most_open = math.min(c.connects, self.plan.connections + self.plan.publishers) end
  if seen_ns > self.interval_ns or differ(sums, self.closed) then close_interval(self, seen_ns, sums) end
  if self.truncated then return end
  while #points > 1 and points[#points].from_ns + sampler.TICK_NS > duration do
    merge_points(points[#points - 1], table.remove(points))
  end
  if #points > 0 then points[#points].to_ns = duration end
end

-- The checks of all threads by their names, in the order of the first use.
local function merge_checks(lists)
  local all, named = {}, {}
  for _, list in ipairs(lists) do
    for _, check in ipairs(list) do
      local name = check.name
      if not named[name] and #all >= CHECKS_MAX then name = OTHERS end
      local sum = named[name]
      if not sum then
        sum = { name = name, passed = 0, failed = 0 }
        all[#all + 1], named[name] = sum, sum
      end
      sum.passed, sum.failed = sum.passed + check.passed, sum.failed + check.failed
    end
  end
  return all
end

-- Set errors.unanswered and in_flight: the requests that were outstanding at the end of a closed loop. Unanswered are those
-- that had waited longer than any response took, and longer than a second (half of the run, if that is less). An iteration
-- of a scenario is as long as its script wants: its waits for the server count.
local function count_outstanding(self, r)
  r.waiting = self.counters:merge "waiting"
  if not r.waiting then return end
  local longest_ns = self.plan.mode == "scenario" and r.longest_wait_ns or r.sent.max
  local usual = r.waiting:below(math.max(longest_ns, math.min(SECOND, r.duration_ns // 2)))
  r.in_flight = math.floor(r.waiting.count * usual / 100 + 0.5)
  r.errors.unanswered = r.waiting.count - r.in_flight
end

-- s:finish(end_ns) -> the result (figures.lua), after the threads have ended
function sampler:finish(end_ns)
  local counters, r = self.counters, self.counters:read(true)
  -- A run shorter than one tick has a rate as well.
  sample_rates(self, r, end_ns, self.rates.count > 0 and sampler.TICK_NS // 2 or 1)
  for _, name in ipairs { "sent", "due", "lag", "handshake", "upgrade" } do r[name] = counters:merge(name) end
  r.duration_ns = end_ns - self.start_ns
  count_outstanding(self, r)
  close_series(self, r, end_ns)
  r.bytes_in, r.bytes_out = r.bytes_in - self.before_in, r.bytes_out - self.before_out
  -- The share of the run for which the busiest thread used or waited for a processor: 1 is all of it.
  r.wanted = r.duration_ns > 0 and r.wanted_ns / r.duration_ns or 0.0
  r.error_kinds, r.error_texts = counters.error_kinds, counters.error_texts
  r.checks, r.rates = merge_checks(counters:checks()), self.rates
  r.points, r.points_truncated = self.points, self.truncated or false
  return r
end

return sampler
