-- samples.lua - simulated runs: real counters of two threads (`sample`, of sample_object.h), which the test fills, and a
-- sampler whose clock the test sets; for tests of the sampler and of the reports.
--
-- Kinds: "closed", "tls", "fanout", "open", "ramp", "short", "empty", "hostile", "long".

local options = require "luaserve.stress.options"
local plan = require "luaserve.stress.plan"

local sampler = require "luaserve.stress.sampler"

local samples = {}

local run = {}
run.__index = run

-- open(sample, plan) -> the run, with the methods of a sample and the two below
function samples.open(sample, p)
  local s = setmetatable({ sample = sample(p.open_loop, p.tls, p.websocket), now_ns = 12345000000000 }, run)
  s.start_ns, s.sampler = s.now_ns, sampler.open(p, s.sample:counters(), s.now_ns)
  return s
end

for _, name in ipairs { "response", "add", "error", "record", "check" } do
  run[name] = function(s, ...) return s.sample[name](s.sample, ...) end
end

-- s:tick(ns) -> live, point: the time moves on
function run:tick(ns)
  self.now_ns = self.now_ns + math.floor(ns)
  return self.sampler:tick(self.now_ns)
end

-- s:finish([interrupted]) -> the result
function run:finish(interrupted)
  local r = self.sampler:finish(self.now_ns)
  r.started_us, r.interrupted, r.version = os.time() * 1000000, interrupted or false, "0.0.0"
  r.first_failure, r.sample = "", self.sample -- whose histograms live as long as the result
  return r
end

local SECOND = 1000000000
local OPEN_URL = "http://127.0.0.1:8080/hello/ada?lang=fr"

-- plan(word...) -> the plan of this command line
function samples.plan(...)
  local given = assert(options.parse { "-t", "2", "-c", "64", "--timeout", "2s", "--latency", ... })
  return assert(plan.make(given, { processors = 2, backend = "epoll", frame = function(_, _, text) return text end }))
end

local state = 88172645463325252

local function uniform() -- (0, 1); xorshift64, the same sequence in each run
  state = state ~ (state << 13)
  state = state ~ (state >> 7)
  state = state ~ (state << 17)
  return ((state >> 11) + 0.5) / 9007199254740992.0
end

local connected = setmetatable({}, { __mode = "k" })

-- work(s, rate [, late_ns [, bad_of_1000]]): one tenth of a second of a server that responds in 200 us, with a tail; `rate`
-- is per second and thread. Of requests that are late the first one waited longest.
function samples.work(s, rate, late_ns, bad_of_1000)
  local count = rate // 10
  for thread = 1, 2 do
    for i = 0, count - 1 do
      local u = uniform()
      local ns = 150e3 + 60e3 * -math.log(u) + (u < 0.004 and 3e6 * uniform() or 0)
      local bad = uniform() * 1000 < (bad_of_1000 or 0)
      s:response(thread, bad and 503 or 200, ns, (late_ns or 0) * (1 - i / count), 20e3 * uniform())
    end
    if not connected[s] then
      s:add(thread, "connections", 32)
      s:add(thread, "connects", 32)
    end
  end
  connected[s] = true
end

local kinds = {}

local function run_for(tenths, s, each)
  for i = 0, tenths - 1 do
    each(i)
    s:tick(SECOND / 10)
  end
end

local loose = { "--threshold", "p99 < 50ms", "--threshold", "errors < 1%" }

local function planned(words, ...)
  local line = table.move(words, 1, #words, 1, {})
  return samples.plan(table.unpack(table.move({ ... }, 1, select("#", ...), #line + 1, line)))
end

function kinds.closed(sample)
  local p = planned(loose, "-d", "10s", "http://127.0.0.1:8080/")
  local s = samples.open(sample, p)
  run_for(100, s, function() samples.work(s, 6000) end)
  return p, s
end

function kinds.tls(sample)
  local p = planned(loose, "-d", "10s", "https://127.0.0.1:8443/")
  local s = samples.open(sample, p)
  samples.work(s, 6000)
  for i = 0, 63 do s:record("handshake", 900000 + 10000 * i) end
  s:add(1, "handshakes_full", 2)
  s:add(2, "handshakes_resumed", 62)
  s:add(2, "handshakes_failed", 3)
  s:error(2, "tls", 3)
  s:tick(SECOND / 10)
  return p, s
end

function kinds.fanout(sample)
  local p = planned(loose, "-d", "10s", "--fanout", "--topics", "2", "--stalled", "1", "ws://127.0.0.1:8080/news")
  local s = samples.open(sample, p)
  samples.work(s, 6000)
  for i = 0, 65 do s:record("upgrade", 300000 + 10000 * i) end
  s:add(1, "upgrades", 66)
  s:add(2, "upgrades_failed", 2)
  s:add(2, "deflated", 60)
  s:add(2, "codes", 4, 1013 - 1000)
  s:add(1, "published", 40)
  s:add(1, "expected", 1203)
  s:add(1, "lost", 3)
  s:add(2, "reordered", 5)
  s:add(2, "duplicated", 7)
  s:add(2, "foreign", 9)
  s:tick(SECOND / 10)
  return p, s
end

function kinds.open(sample)
  local p = samples.plan("-d", "30s", "-R", "4000", "--threshold", "p99 < 5ms", "--threshold", "rate >= 3900/s",
    "--threshold", "errors < 0.1%", "--threshold", "5xx == 0", "--threshold", "checks == 0", OPEN_URL)
  p.script = "checkout.lua"
  local s = samples.open(sample, p)
  run_for(300, s, function(i)
    -- A stall of half a second: no request is sent, and the due ones are late.
    local stalled = i >= 120 and i < 125
    if not stalled then
      samples.work(s, i == 125 and 2000 * 6 or 2000, i == 125 and SECOND / 2 or 0, i >= 200 and i < 230 and 20 or 0)
    end
    if i == 210 then s:error(1, "timeout", 12) end
    if i == 215 then s:error(2, "read", 3) end
    if i % 10 == 0 then s:record("lag", 3000000) end
  end)
  for _ = 1, 1000 do s:check("status", true) end
  for i = 0, 999 do s:check("body has the name", i % 50 ~= 0) end
  return p, s
end

function kinds.ramp(sample)
  local p = planned(loose, "--stages", "5s:2000,10s:6000,5s:0", OPEN_URL)
  local s = samples.open(sample, p)
  run_for(200, s, function(i)
    local at = i / 10
    local rate = at < 5 and 400 * at or at < 15 and 2000 + 400 * (at - 5) or 6000 - 1200 * (at - 15)
    samples.work(s, rate / 2)
    for k = 0, 29 do s:record("lag", 2000000 + 50000 * k) end
  end)
  s:add(1, "unsent", 250)
  return p, s
end

function kinds.short(sample) -- half of the due requests are never sent
  local p = samples.plan("-d", "10s", "-R", "4000", OPEN_URL)
  local s = samples.open(sample, p)
  run_for(100, s, function()
    samples.work(s, 1000)
    for _ = 1, 200 do s:record("lag", 20000) end
  end)
  s:add(1, "unsent", 20000)
  s:add(1, "late_ns", 5 * SECOND)
  return p, s
end

function kinds.empty(sample)
  local p = samples.plan("-d", "10s", "-R", "4000", "--threshold", "p99 < 5ms", OPEN_URL)
  local s = samples.open(sample, p)
  s:error(1, "connect", 64)
  s:tick(SECOND / 20)
  return p, s
end

function kinds.hostile(sample)
  local p = samples.plan("-d", "10s", "--threshold", "p99 < 5ms", "http://127.0.0.1/")
  p.target = 'http://127.0.0.1/</script><img src=x onerror="alert(1)">&amp;\x01\xff\xc0\x80 \u{1f389}'
  p.script = "<!--\"\\\n'.lua"
  local s = samples.open(sample, p)
  samples.work(s, 500)
  s:tick(SECOND + 1)
  s:check("</pre><script>\0\x1b[31m\xed\xa0\x80", false)
  return p, s
end

function kinds.long(sample)
  local p = planned(loose, "-d", "1800s", "http://127.0.0.1:8080/")
  local s = samples.open(sample, p)
  for i = 0, 1799 do
    samples.work(s, 100 + 40 * math.sin(i / 200))
    s:tick(SECOND)
  end
  return p, s
end

-- run(sample, kind) -> plan, result; nil: there is no such kind
function samples.run(sample, kind)
  if not kinds[kind] then return nil end
  state = 88172645463325252
  local p, s = kinds[kind](sample)
  return p, s:finish(kind == "hostile")
end

return samples
