-- The figures of a run of luaserve stress: rates, the reason of a missed rate, the exit status; and texts of numbers.

local check = require "check"
local figures = require "luaserve.stress.figures"
local histogram = require "histogram"
local printed = require "luaserve.stress.report_text"
local text = require "luaserve.stress.text"

local tests = {}

local SECOND = 1000000000

local function plan(more)
  local p = { open_loop = true, stages = {}, rate = 4000, requests = 0, connections = 64, threads = 2, thresholds = {},
    target = "u", duration_ns = SECOND }
  for name, value in pairs(more or {}) do p[name] = value end
  return p
end

local function result(more)
  local r = { duration_ns = SECOND, requests = 0, bytes_in = 0, bytes_out = 0, unsent = 0, late_ns = 0, wanted = 0,
    errors = { check = 0, unanswered = 0 }, status = {}, checks = {}, sent = histogram {} }
  for name, value in pairs(more or {}) do r[name] = value end
  return r
end

-- The average of the schedule: the area under its ramps divided by the time.
function tests.the_target_rate_is_the_average_of_the_stages()
  local r = result { duration_ns = 20 * SECOND }
  check.equal(figures.make(plan(), r).target_rate, 4000)
  local stages = { { duration_ns = 10 * SECOND, rate = 100 }, { duration_ns = 10 * SECOND, rate = 100 } }
  local ramp = plan { rate = 0, stages = stages }
  check.equal(figures.make(ramp, r).target_rate, 75.0) -- 500 in the ramp, 1000 after it
  r.duration_ns = 5 * SECOND
  check.equal(figures.make(ramp, r).target_rate, 25.0) -- ended in the middle of the ramp
  check.equal(figures.make(plan { rate = 0, stages = stages, open_loop = false }, r).target_rate, 0)
end

function tests.a_run_of_no_time_has_no_rate()
  local f = figures.make(plan(), result { duration_ns = 0, requests = 5, bytes_in = 7 })
  check.equal({ f.rate, f.made_rate, f.bytes_in_rate, f.target_rate }, { 0.0, 0.0, 0.0, 4000 })
end

function tests.a_late_load_generator_is_detected()
  local function late(...) return figures.make(plan(), result { lag = histogram { ... } }).engine_late end
  check.equal(late(), false)
  check.equal(late({ 1000, 99 }, { 50000000, 1 }), false) -- one in a hundred is the maximum, not the 99th percentile
  check.equal(late({ 1000, 99 }, { 50000000, 2 }), true)
  check.equal(figures.make(plan(), result()).engine_late, false)
end

-- 1000 requests were due; `late` of them were noticed late_ms late. Responses took response_ms; 0: no responses.
local function short_with(response_ms, requests, unsent, behind_ms, late, late_ms, wanted)
  local sent = response_ms > 0 and histogram { { response_ms * 1000000, 50 }, { SECOND, 49 } } or histogram {}
  return figures.make(plan { requests = requests }, result { unsent = unsent, late_ns = behind_ms * 1000000,
    wanted = wanted, sent = sent, lag = histogram { { late_ms * 1000000, late }, { 1000, 1000 - late } } }).short
end

-- Late by 20 ms, with responses in 1 ms.
local function short(requests, unsent, behind_ms, late, wanted)
  return short_with(1, requests, unsent, behind_ms, late, 20, wanted)
end

function tests.a_missed_rate_has_a_reason()
  check.equal(short(0, 10, 900, 0, 0.1), nil) -- 1 %
  check.equal(short(0, 11, 99, 0, 0.1), nil)
  check.equal(short(0, 11, 100, 0, 0.1), "connections")
  check.equal(short(0, 100, 900, 49, 0.1), "connections")
  check.equal(short(0, 100, 900, 50, 0.1), "time")
  check.equal(short(0, 100, 900, 0, 0.89), "connections")
  check.equal(short(0, 100, 900, 0, 0.9), "time")
  check.equal(short(0, 0, 900, 1000, 1), nil) -- late, and all requests are sent
  check.equal(short(1000, 0, 99, 0, 0.1), nil)
  check.equal(short(1000, 0, 100, 0, 0.1), "connections")
  check.equal(short(1000, 0, 100, 1, 0.1), "connections") -- 20 ms of 100
  check.equal(short(1000, 0, 100, 0, 1), "time")
  -- A delay of less than half of the median response time counts for the server.
  check.equal(short_with(38, 0, 100, 900, 50, 20, 0.1), "time")
  check.equal(short_with(44, 0, 100, 900, 1000, 20, 0.1), "connections")
  check.equal(short_with(0, 0, 100, 900, 1000, 20, 0.1), "connections")
  check.equal(short_with(1, 0, 100, 900, 1000, 9, 0.1), "connections")
  -- One delay of half of the time behind counts for the load generator, whatever the response time.
  check.equal(short_with(1000, 0, 100, 900, 1, 440, 0.1), "connections")
  check.equal(short_with(1000, 0, 100, 900, 1, 460, 0.1), "time")
  check.equal(short_with(1000, 1000, 0, 900, 1, 440, 0.1), "connections")
  check.equal(short_with(1000, 1000, 0, 900, 1, 460, 0.1), "time")
  check.equal(figures.make(plan { open_loop = false }, result { unsent = 100 }).short, nil)
  check.equal(figures.make(plan(), result { lag = histogram {}, late_ns = 0 }).short, nil) -- no request was due
end

-- A late load generator makes its thresholds meaningless; with a slow server a missed threshold counts.
function tests.a_missed_rate_decides_the_exit_status()
  local missed = { { text = "x", metric = "rate", kind = "rate", op = "<", limit = 0, measure = function() return 1 end } }
  local met = { { text = "x", metric = "rate", kind = "rate", op = ">", limit = 0, measure = function() return 1 end } }
  for _, row in ipairs {
    { nil, 0, 0, met, 0, nil },
    { nil, 0, 0, missed, 99, nil },
    { nil, 50, 0, met, 1, "target rate 4000.0 requests/s, reached 100.0: 50 of 100 due requests were never sent, because "
      .. "no connection was free; the server is too slow for this rate with 64 connections (-c)" },
    { nil, 50, 0, missed, 99, "no connection was free" },
    { nil, 50, 0.97, met, 1, "the load generator itself was late by up to 1.00us, and its busiest thread used or waited "
      .. "for 97% of a processor" },
    { nil, 50, 0.97, missed, 1, "the load generator itself was late" },
    { "no server", 0, 0, missed, 1, "no server" },
  } do
    local f = figures.make(plan { thresholds = row[4] }, result { requests = 100, failure = row[1], unsent = row[2],
      late_ns = SECOND, wanted = row[3], lag = histogram { { 1000, 100 } } })
    check.equal(f.exit, row[5])
    if row[6] == nil then check.equal(f.failure, nil) else assert(f.failure:find(row[6], 1, true), f.failure) end
  end
end

function tests.failed_connects_are_the_reason_why_no_connection_was_free()
  for count, what in pairs { "1 connect", "2 connects" } do
    local f = figures.make(plan(), result { requests = 100, errors = { check = 0, connect = count }, unsent = 50,
      late_ns = SECOND, lag = histogram { { 1000, 100 } } })
    check.equal({ f.exit, f.failure:match("because.*") }, { 1, "because no connection was free; " .. what .. " failed" })
  end
end

function tests.failed_checks_are_an_error_without_a_threshold_on_them()
  local checks = { { name = "a", passed = 1, failed = 2 } }
  local f = figures.make(plan(), result { checks = checks })
  check.equal({ f.checks_failed, f.checks_made, f.checks_missed, f.exit }, { 2, 3, true, 99 })
  local threshold = require("luaserve.stress.threshold").parse
  for text_of, missed in pairs { ["errors < 3"] = false, ["checks < 3"] = false, ["p50 < 1s"] = true } do
    f = figures.make(plan { thresholds = { threshold(text_of) } }, result { checks = checks })
    check.equal(f.checks_missed, missed)
  end
end

function tests.the_head_shows_the_duration()
  for _, case in ipairs {
    { 10 * SECOND, 0, "Running 10s test @ u\n" }, { 50 * SECOND, 0, "Running 50s test @ u\n" },
    { 51 * SECOND, 0, "Running 1m test @ u\n" }, -- as in wrk, from 0.85 of a minute
    { 120 * SECOND, 0, "Running 2m test @ u\n" }, { SECOND // 2, 0, "Running 500ms test @ u\n" },
    { 0, 1000, "Running 1000 requests @ u\n" },
  } do
    local head = printed.head(plan { duration_ns = case[1], requests = case[2] })
    check.equal(head, case[3] .. "  2 threads and 64 connections\n")
  end
end

-- ---- texts ---------------------------------------------------------------------------------------------------------

function tests.fixed_numbers()
  for _, case in ipairs {
    { 0, 2, "0.00" }, { 1.005e3, 0, "1005" }, { 0.996, 2, "1.00" }, { 99.994, 2, "99.99" }, { -1.5, 1, "-1.5" },
    { -0.001, 2, "0.00" }, -- no "-0.00"
    { 0.000001, 6, "0.000001" }, { 9.1e18, 0, "9100000000000000000" }, { 9.3e18, 0, "-" }, { 9.3e15, 3, "-" },
    { 0 / 0, 2, "-" }, { math.huge, 2, "-" }, { -math.huge, 2, "-" }, { 123456789, 0, "123456789" },
  } do
    check.equal(text.fixed(case[1], case[2]), case[3])
  end
  for _, case in ipairs {
    { 0, 3, "0" }, { 100, 3, "100" }, { 1.25, 3, "1.25" }, { 1.2504, 3, "1.25" }, { -3.1, 3, "-3.1" }, { 120.4, 0, "120" },
    { 0.000400001, 9, "0.000400001" }, { 1e9, 9, "1000000000" },
  } do
    check.equal(text.number(case[1], case[2]), case[3])
  end
end

-- A script may set the locale of the process.
function tests.numbers_ignore_the_locale()
  for _, name in ipairs { "de_DE.UTF-8", "de_DE", "fr_FR.UTF-8", "fr_FR" } do
    if os.setlocale(name) then break end
  end
  check.equal(text.fixed(1.5, 1), "1.5") -- also without these locales
  check.equal(text.number(1.5, 3), "1.5")
  os.setlocale("C")
end

function tests.json_strings()
  local none = "\\ufffd"
  for given, expected in pairs {
    [""] = "", ['a"b\\c/d'] = 'a\\"b\\\\c/d', ["\0\x01\n\x1f\x7f"] = "\\u0000\\u0001\\u000a\\u001f\\u007f",
    ["</script>"] = "\\u003c/script>", ["\u{e9} \u{20ac} \u{1f389}"] = "\u{e9} \u{20ac} \u{1f389}",
    ["\u{10ffff}"] = "\u{10ffff}", ["\xf4\x90\x80\x80"] = none:rep(4),
    ["\xc0\x80"] = none:rep(2), -- above U+10FFFF; overlong
    ["\xe0\x9f\xbf"] = none:rep(3), ["\xf0\x8f\xbf\xbf"] = none:rep(4), ["\xed\xa0\x80"] = none:rep(3), -- a surrogate
    ["\xff\xfe"] = none:rep(2), ["\x80g"] = none .. "g", ["\xe2\x82"] = none:rep(2),
    ["\xe2\x82g"] = none:rep(2) .. "g", -- ends inside a character
  } do
    check.equal(text.json(given), '"' .. expected .. '"')
  end
end

function tests.html_text()
  check.equal(text.html('<a href="x">&\x01\t\n\xff\u{e9}'), "&lt;a href=&quot;x&quot;&gt;&amp;?\t\n?\u{e9}")
end

function tests.texts_for_a_terminal()
  local given = "a\n\t\x1b[1m\x9b\u{9b}\u{202e}\u{61c}\u{e9}\u{2020}\xff"
  check.equal(text.printable(given), "a???[1m????\u{e9}\u{2020}?")
  check.equal(text.escaped(given),
    "a\n\t\\x1b[1m\\x9b\\xc2\\x9b\\xe2\\x80\\xae\\xd8\\x9c\u{e9}\u{2020}\\xff")
end

function tests.times_have_three_digits()
  for _, case in ipairs {
    { 0, "0ns" }, { 999, "999ns" }, { 999.6, "1.00us" }, { 1234, "1.23us" }, { 9994, "9.99us" }, { 9996, "10.0us" },
    { 99940, "99.9us" }, { 99960, "100us" }, { 999499, "999us" }, { 999500, "1.00ms" }, { 4.56e6, "4.56ms" },
    { 1.2e9, "1.20s" }, { 3.6e12, "3600s" }, { 0 / 0, "-" },
  } do
    check.equal(text.time(case[1]), case[2])
  end
end

function tests.percent_names()
  check.equal({ text.percent(50), text.percent(99.999) }, { "p50", "p99.999" })
end

return tests
