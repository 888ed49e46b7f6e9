-- test_stress_report.lua - the printed report: wrk's lines, column for column, the additional lines, and the report of
-- each kind of run. ../stress/test_report.c runs it, because its figures come from counters and histograms in C.
-- tests/e2e/test_stress_report.py tests the files with parsers of their formats.
-- luacheck: globals sample

local check = require "check"
local figures = require "luaserve.stress.figures"
local files = require "luaserve.stress.report_files"
local printed = require "luaserve.stress.report_text"
local samples = require "samples"

local tests = {}

local SECOND = 1000000000

-- The complete printed report of a kind of run.
local function report_of(kind)
  local plan, result = samples.run(sample, kind)
  return printed.head(plan) .. printed.report(figures.make(plan, result))
end

local function has(text, part) if not text:find(part, 1, true) then error("missing: " .. part .. "\n" .. text, 2) end end
local function has_not(text, part) if text:find(part, 1, true) then error("unexpected: " .. part .. "\n" .. text, 2) end end

-- A run with known numbers, so every character of wrk's part is known: of four responses three take 100 us (a slot that
-- ends at 100.03) and one 1.1 ms; each thread completes 40,000 and 30,000 requests per second, in turn.
function tests.wrk_lines_have_wrk_columns()
  local plan = samples.plan("-d", "2s", "http://127.0.0.1:8080/")
  local s = samples.open(sample, plan)
  for tick = 0, 19 do
    for i = 0, (tick % 2 == 1 and 3000 or 4000) - 1 do
      for thread = 1, 2 do s:response(thread, i % 1000 == 0 and 404 or 200, i % 4 == 3 and 1100000 or 100000) end
    end
    s:tick(SECOND / 10)
  end
  s:error(1, "read", 3)
  s:error(2, "timeout", 12)
  check.equal(printed.head(plan) .. printed.report(figures.make(plan, s:finish())), [[
Running 2s test @ http://127.0.0.1:8080/
  2 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   350.00us  433.01us   1.10ms   75.00%
    Req/Sec    35.00k     5.00k   40.00k   100.00%
  Latency Distribution
     50%  100.03us
     75%  100.03us
     90%    1.10ms
     99%    1.10ms
  140000 requests in 2.00s, 32.04MB read
  Socket errors: connect 0, read 3, write 0, timeout 12
  Non-2xx or 3xx responses: 140
Requests/sec:  70000.00
Transfer/sec:     16.02MB
Status: 200 139860, 404 140
]])
end

function tests.a_closed_loop_without_errors_prints_no_warnings()
  local text = report_of("closed")
  for _, part in ipairs { "errors:", "Non-2xx", "Status:", "Warning", "corrected", "Checks" } do has_not(text, part) end
  has(text, "\nThresholds\n  met     p99 < 50ms (measured: ")
end

function tests.an_open_loop_prints_both_latencies()
  local text = report_of("open")
  has(text, "\n              corrected  uncorrected\n  p50             193us        191us\n")
  local due, sent = text:match("\n  p99  +(%d+)ms +(%d+)us")
  due, sent = tonumber(due), tonumber(sent)
  assert(due >= 240 and due <= 260, due) -- the stall of half a second delayed 2000 of 120,000 requests, evenly
  assert(sent >= 350 and sent <= 500, sent)
  has(text, "Socket errors: connect 0, read 3, write 0, timeout 12\n")
  has(text, "\nChecks\n  passed  status: 1000\n  FAILED  body has the name: 20 of 1000\n")
  has(text, "  MISSED  p99 < 5ms (measured: ")
  has(text, "  met     rate >= 3900/s (measured: 4000.0/s)\n")
  has(text, "  met     errors < 0.1% (measured: 0.01%)\n")
  has(text, "  MISSED  5xx == 0 (measured: ")
  has_not(text, "Warning")
end

function tests.statuses_that_no_threshold_and_no_check_looks_at()
  local function run(status, ...)
    local s = samples.open(sample, samples.plan("-n", "2", ...))
    s:response(1, 200, 100000)
    s:response(1, status, 100000)
    s:tick(SECOND)
    return printed.report(figures.make(samples.plan("-n", "2", ...), s:finish()))
  end
  local warning = "\nWarning: no threshold is about statuses, which are no errors: for responses with 4xx and 5xx add\n"
    .. "  --threshold '4xx == 0' --threshold '5xx == 0'\n"
  local url = "http://127.0.0.1:8080/"
  for _, status in ipairs { 400, 599 } do
    has(run(status, "--threshold", "errors == 0", "--threshold", "p99 < 1s", url), warning)
    has_not(run(status, "--threshold", "errors == 0", "--threshold", "5xx == 0", url), warning)
    has_not(run(status, "--threshold", "200 >= 1", url), warning)
    has_not(run(status, url), warning)
  end
  has_not(run(399, "--threshold", "errors == 0", url), warning)
  local unjudged = "Thresholds: none is about the responses that failed\n"
  has(run(400, "--threshold", "p99 < 1s", url), unjudged)
  has_not(run(400, "--threshold", "4xx == 1", url), unjudged)
end

function tests.redirects_alone()
  local url = "http://127.0.0.1:8080/"
  local function run(status)
    local s = samples.open(sample, samples.plan("-n", "2", url))
    s:response(1, 303, 100000)
    s:response(1, status, 100000)
    s:tick(SECOND)
    return printed.report(figures.make(samples.plan("-n", "2", url), s:finish()))
  end
  local warning = "\nWarning: all responses without an error are redirects (3xx)"
  has(run(301), warning)
  has_not(run(200), warning)
end

local function warning_of(add, ...)
  local plan = samples.plan("-n", "2", ...)
  local s = samples.open(sample, plan)
  s:response(1, 200, 100000)
  add(s)
  s:tick(SECOND)
  return printed.report(figures.make(plan, s:finish())):match("\nWarning: [^\n]*\n[^\n]*")
end

function tests.errors_that_no_threshold_looks_at()
  local function run(...) return warning_of(function(s) s:error(1, "connect", 1) end, ...) end
  local url, p99 = "http://127.0.0.1:8080/", "p99 < 1s"
  local expected = "\nWarning: no threshold is about errors: for failed requests (here 1) add\n  --threshold 'errors == 0'"
  check.equal({ run("--threshold", p99, url), run("--threshold", "5xx == 0", url) }, { expected, expected })
  check.equal({ run("--threshold", p99, "--threshold", "errors == 1", url), run("--threshold", "error_rate < 1%", url),
    run(url), warning_of(function() end, "--threshold", p99, url) }, {})
end

function tests.rounds_that_have_received_nothing()
  local function run(count) return warning_of(function(s) s:add(1, "unreceived", count) end, "tcp://127.0.0.1:8080") end
  check.equal(run(1), "\nWarning: the first receive of 1 iteration failed, because the server closed the connection. "
    .. "That is no error; to\n  count it as one write assert(sock:receive(...)), or vu:check(sock:receive(...), name)")
  check.equal(run(0), nil)
end

function tests.a_late_load_generator_is_reported()
  local text = report_of("ramp")
  has(text, "Warning: the load generator itself was behind its schedule, by 3.30ms or more for 1% of the requests and by "
    .. "3.45ms at most;")
  has_not(text, "target rate") -- 46 fewer than 60,000
end

function tests.a_run_without_responses_is_reported()
  local text = report_of("empty")
  has(text, "    Latency     0.00us    0.00us   0.00us    0.00%\n")
  has(text, "  0 requests in 50.00ms, 0.00B read\n")
  has(text, "  Socket errors: connect 64, read 0, write 0, timeout 0\n")
  has(text, "Requests/sec:      0.00\nTransfer/sec:       0.00B\n")
  has(text, "Warning: target rate 4000.0 requests/s, reached 0.0 (0.0%)\n")
  has(text, "  p50                 -            -\n")
  has(text, "  MISSED  p99 < 5ms (measured: -)\n")
end

function tests.check_names_cannot_control_the_terminal()
  local text = report_of("hostile")
  has(text, "Ended early, after 1.00s\n")
  has(text, "  FAILED  </pre><script>??[31m")
  has_not(text, "\x1b")
end

-- A run may last less than a millisecond.
function tests.seconds_are_exact_in_json()
  local plan, result = samples.run(sample, "empty")
  result.duration_ns = 400001
  has(files.json(figures.make(plan, result)), '"totals":{"duration_s":0.000400001,')
end

function tests.exit_status_of_each_kind()
  for kind, status in pairs { closed = 0, open = 99, short = 1, empty = 99 } do
    check.equal(figures.make(samples.run(sample, kind)).exit, status)
  end
end

function tests.unwritable_files_are_reported()
  local plan, result = samples.run(sample, "closed")
  check.equal({ files.probe(plan) }, { true })
  check.equal({ files.save(figures.make(plan, result)) }, { true })
  plan.csv = "/no/such/folder/a.csv"
  local message = "cannot write /no/such/folder/a.csv: No such file or directory"
  check.equal(select(2, files.probe(plan)), message)
  check.equal(select(2, files.save(figures.make(plan, result))), message)
end

return tests
