local check = require "check"
local report = require "luaserve.test.report"

local tests = {}

local TOTALS = { only = {}, pass = 1, fail = 1, skip = 1, pending = 1, seconds = 1.5 }

local EVENTS = {
  { names = { "block", "passes" }, status = "pass", seconds = 0.001, line = 3 },
  { names = { "block", "fails" }, status = "fail", seconds = 0.75, line = 9, message = "expected 1, got 2",
    lines = { ".a: expected 1, got 2" }, where = "help.lua", excerpt = { ">    9 | x" } },
  { names = { "errs" }, status = "error", seconds = 0, line = 12, message = "a\nb\27", traceback = { "t.lua:12: in f" } },
  { names = { "skips" }, status = "skip", seconds = 0, line = 15 },
  { names = { "waits" }, status = "pending", seconds = 0, line = 18 },
}

-- What a reporter writes about the events in the file t.lua.
local function written(make, ...)
  local parts = {}
  local reporter = make(function(text) parts[#parts + 1] = text end, ...)
  reporter.begin("t.lua")
  for _, event in ipairs(EVENTS) do reporter.result("t.lua", event) end
  reporter.finish(TOTALS)
  return table.concat(parts)
end

function tests.human()
  check.equal(written(report.human, false), [[
t.lua
  block
    ok      passes
    FAIL    fails (0.8 s)
  FAIL    errs
  skip    skips
  pending waits

1) help.lua:9: block > fails
   expected 1, got 2
   .a: expected 1, got 2

   >    9 | x

2) t.lua:12: errs
   a
   b\x1B

   called from:
     t.lua:12: in f

1 passed, 1 failed, 1 skipped, 1 pending in 1.50 s
]])
end

function tests.human_with_colours()
  local text = written(report.human, true)
  check.equal(text:find("\27[32mok     \27[0m passes", 1, true) ~= nil, true)
  check.equal(text:find("\27[31mFAIL   \27[0m fails", 1, true) ~= nil, true)
end

function tests.tap()
  check.equal(written(report.tap), [[
TAP version 14
# t.lua
ok 1 - t.lua: block > passes
not ok 2 - t.lua: block > fails
  ---
  message: "expected 1, got 2"
  severity: fail
  at: "help.lua:9"
  details:
    - ".a: expected 1, got 2"
    - ""
    - ">    9 | x"
  ...
not ok 3 - t.lua: errs
  ---
  message: "a\nb\x1B"
  severity: error
  at: "t.lua:12"
  details:
    - ""
    - "called from:"
    - "  t.lua:12: in f"
  ...
ok 4 - t.lua: skips # SKIP
not ok 5 - t.lua: waits # TODO
1..5
# 1 passed, 1 failed, 1 skipped, 1 pending
]])
end

function tests.tap_names_begin_no_directive()
  local parts = {}
  local tap = report.tap(function(text) parts[#parts + 1] = text end)
  tap.result("t.lua", { names = { "a # SKIP \\ b\nok 9" }, status = "pass", seconds = 0 })
  check.equal(parts[2], "ok 1 - t.lua: a \\# SKIP \\\\ b ok 9\n")
end

function tests.junit()
  check.equal(written(report.junit), [[
<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="5" failures="1" errors="1" skipped="2" time="1.500">
  <testsuite name="t.lua" tests="5" failures="1" errors="1" skipped="2" time="0.751">
    <testcase name="passes" classname="t.lua &gt; block" file="t.lua" line="3" time="0.001"/>
    <testcase name="fails" classname="t.lua &gt; block" file="t.lua" line="9" time="0.750">
      <failure message="expected 1, got 2" type="failure">help.lua:9
expected 1, got 2
.a: expected 1, got 2

&gt;    9 | x</failure>
    </testcase>
    <testcase name="errs" classname="t.lua" file="t.lua" line="12" time="0.000">
      <error message="a&#10;b\x1B" type="error">t.lua:12
a
b\x1B

called from:
  t.lua:12: in f</error>
    </testcase>
    <testcase name="skips" classname="t.lua" file="t.lua" line="15" time="0.000">
      <skipped message="skip"/>
    </testcase>
    <testcase name="waits" classname="t.lua" file="t.lua" line="18" time="0.000">
      <skipped message="pending"/>
    </testcase>
  </testsuite>
</testsuites>
]])
end

function tests.xml_escapes()
  check.equal(report.xml([[<a b="c">&'x'</a>]]), "&lt;a b=&quot;c&quot;&gt;&amp;&apos;x&apos;&lt;/a&gt;")
  check.equal(report.xml("\0\1\127\r"), "\\x00\\x01\\x7F\\x0D")
  check.equal(report.xml("\xc3\xa9 \xff\xfe \xed\xa0\x80 \xc3"), "\xc3\xa9 \\xFF\\xFE \\xED\\xA0\\x80 \\xC3")
  check.equal(report.xml("\xef\xbf\xbe\xef\xbf\xbf\xef\xbf\xbd"), "\\uFFFE\\uFFFE\xef\xbf\xbd")
end

return tests
