-- stress/report_text.lua - the printed report.
--
-- The first part is in the format of wrk 4, column for column, because programs parse wrk's output: the same titles,
-- widths, units and rounding. Additional lines follow wrk's last line.

local figures = require "luaserve.stress.figures"
local text = require "luaserve.stress.text"

local report = {}

-- wrk changes to the next unit at 0.85 of it. It never shows microseconds as seconds or seconds as hours: from one second
-- it counts in seconds, which become minutes at most.
local microseconds = { step = 1000, "us", "ms" }
local seconds = { step = 60, "s", "m" }
local binary = { step = 1024, "", "K", "M", "G", "T" }
local metric = { step = 1000, "", "k", "M", "G", "T" }

local function show(number, units, decimals)
  local unit = 1
  while units[unit + 1] and number >= units.step * 0.85 do
    number, unit = number / units.step, unit + 1
  end
  return text.fixed(number, decimals or 2) .. units[unit]
end

local function show_time(ns)
  local us = ns / 1000
  return us >= 1e6 and show(us / 1e6, seconds) or show(us, microseconds)
end

local function show_metric(number) return show(number, metric) end

-- Right-aligned by the numbers, not by the units: a unit of two letters ends at the end of the column, a shorter one is
-- followed by blanks.
local function aligned(shown, width)
  local blanks = 2 - #shown:sub(-2):match("%a*$")
  return string.format("%" .. width - blanks .. "s", shown:sub(1, width - blanks)) .. (" "):rep(blanks)
end

-- head(plan) -> the two lines before the run: the first lines of wrk
function report.head(plan)
  local s = plan.duration_ns / 1e9
  local what = plan.duration_ns == 0 and plan.requests .. " requests"
    or s < 1 and plan.duration_ns // 1000000 .. "ms test" or show(s, seconds, 0) .. " test"
  return string.format("Running %s @ %s\n  %d threads and %d connections%s\n", what, plan.target, plan.threads,
    plan.connections, plan.http2 and ", " .. text.counted(plan.streams, "stream") .. " on each" or "")
end

local function stats_line(name, h, show_as)
  return string.format("    %-10s%s%s%s%8s%%\n", name, aligned(show_as(h.mean), 8), aligned(show_as(h.stdev), 10),
    aligned(show_as(h.max), 9), text.fixed(h:within(1), 2))
end

local function wrk_lines(put, f)
  local r, e = f.result, f.result.errors
  put("  Thread Stats%6s%11s%8s%12s\n", "Avg", "Stdev", "Max", "+/- Stdev")
  put("%s", stats_line("Latency", f.latency, show_time))
  put("%s", stats_line("Req/Sec", r.rates, show_metric))
  if f.plan.latency then
    put("  Latency Distribution\n")
    for _, percent in ipairs { 50, 75, 90, 99 } do
      put("%7s%%%s\n", percent, aligned(show_time(f.latency:percentile(percent)), 10))
    end
  end
  put("  %d requests in %s, %sB read\n", r.requests, show_time(r.duration_ns), show(r.bytes_in, binary))
  if e.connect + e.read + e.write + e.timeout > 0 then
    put("  Socket errors: connect %d, read %d, write %d, timeout %d\n", e.connect, e.read, e.write, e.timeout)
  end
  local failed = f.statuses(400, 599)
  if failed > 0 then put("  Non-2xx or 3xx responses: %d\n", failed) end
  put("Requests/sec: %9s\n", text.fixed(f.rate, 2))
  put("Transfer/sec: %10sB\n", show(f.bytes_in_rate, binary))
end

-- ---- additional lines ----------------------------------------------------------------------------------------------

-- "; mean 1.20ms, ..." if there is a value
local function spread(h)
  if h.count == 0 then return "" end
  return string.format("; mean %s, p50 %s, p99 %s, max %s", text.time(h.mean), text.time(h:percentile(50)),
    text.time(h:percentile(99)), text.time(h.max))
end

-- "200 139860, 404 140" of a table of counts by code; "" without any
local function counts(by_code, from)
  local codes = {}
  for code, count in pairs(by_code) do if code >= from and count > 0 then codes[#codes + 1] = code end end
  table.sort(codes)
  for i, code in ipairs(codes) do codes[i] = code .. " " .. by_code[code] end
  return table.concat(codes, ", ")
end

local function handshakes(put, r)
  if r.handshake then
    put("TLS handshakes: full %d, resumed %d, failed %d%s\n", r.handshakes_full, r.handshakes_resumed, r.handshakes_failed,
      spread(r.handshake))
  end
  if not r.upgrade or r.upgrades + r.upgrades_failed == 0 then return end
  put("WebSocket handshakes: %d, failed %d%s%s\n", r.upgrades, r.upgrades_failed,
    r.deflated > 0 and ", permessage-deflate " .. r.deflated or "", spread(r.upgrade))
  local codes = counts(r.codes, 0)
  if codes ~= "" then put("Closed by the server: %s\n", codes) end
end

local function fanout(put, f)
  local r, p = f.result, f.plan
  if not p.fanout then return end
  put("Published: %d messages of %d bytes, %s/s, by %s to %s%s%s\n", r.published, p.message_bytes,
    text.fixed(f.made_rate, 2), text.counted(p.publishers, "publisher"), text.counted(p.connections, "subscriber"),
    p.topics > 1 and " of " .. p.topics .. " topics" or "", p.stalled > 0 and ", " .. p.stalled .. " of them stalled" or "")
  put("Delivered: %d of %d, lost %d, reordered %d, duplicated %d\n", r.requests, r.expected, r.lost, r.reordered,
    r.duplicated)
  if r.foreign > 0 then put("Ignored: %d messages of another run or topic\n", r.foreign) end
end

local function errors(put, f)
  local r = f.result
  for _, kind in ipairs { "tls", "handshake", "subscribe", "answer", "script", "body", "check" } do
    if r.errors[kind] > 0 then put("Errors: %s %d (%s)\n", kind, r.errors[kind], r.error_texts[kind]) end
  end
  if r.errors.unanswered > 0 then
    put("%s got no response (waiting for up to %s when the run ended)\n", text.counted(r.errors.unanswered, "request"),
      text.time(r.waiting.max))
  end
  if f.statuses(400, 599) > 0 then put("Status: %s\n", counts(r.status, 100)) end
end

local function warnings(put, f)
  local r, target = f.result, f.target_rate
  if r.interrupted then put("Ended early, after %s\n", text.time(r.duration_ns)) end
  -- Requests that are outstanding at the end, at most one per connection or stream, are not a shortfall.
  local allowed = target * 0.01 * f.seconds + f.plan.connections * f.plan.streams
  if f.failure then
    put("Failed: %s\n", f.failure)
  elseif target > 0 and target * f.seconds - f.made > allowed then
    put("Warning: target rate %s requests/s, reached %s (%s%%)\n", text.fixed(target, 1), text.fixed(f.made_rate, 1),
      text.fixed(100 * f.made_rate / target, 1))
  end
  if f.engine_late and f.short ~= "time" then
    put("Warning: the load generator itself was behind its schedule, by %s or more for 1%% of the requests and by %s at "
      .. "most;\n  the corrected latencies contain this delay. Use more threads, another machine, or a lower rate\n",
      text.time(r.lag:percentile(99)), text.time(r.lag.max))
  end
  if f.latency.clipped > 0 then put("Warning: %d latencies above one hour count as one hour\n", f.latency.clipped) end
  if f.statuses(100, 599) > 0 and f.statuses(200, 399) == 0 then
    put("WARNING: NO RESPONSE HAD A STATUS OF 2xx OR 3xx\n")
  end
  if f.statuses(300, 399) > 0 and f.statuses(200, 299) == 0 then
    put("Warning: all responses without an error are redirects (3xx), such as one to a login, or to https\n")
  end
  if f.statuses_ignored then
    put("Warning: no threshold is about statuses, which are no errors: for responses with 4xx and 5xx add\n"
      .. "  --threshold '4xx == 0' --threshold '5xx == 0'\n")
  end
  if f.errors_ignored > 0 then
    put("Warning: no threshold is about errors: for failed requests (here %d) add\n  --threshold 'errors == 0'\n",
      f.errors_ignored)
  end
  if r.unreceived > 0 and #r.checks == 0 then
    put("Warning: the first receive of %s failed, because the server closed the connection. That is no error; to\n"
      .. "  count it as one write assert(sock:receive(...)), or vu:check(sock:receive(...), name)\n",
      text.counted(r.unreceived, "iteration"))
  end
  if r.points_truncated then put("Warning: the time series ends before the run does; the totals are complete\n") end
end

local function both_latencies(put, r)
  local function line(name, percent)
    local function at(h) return h.count > 0 and text.time(h:percentile(percent)) or "-" end
    put("  %-8s %12s %12s\n", name, at(r.due), at(r.sent))
  end
  put("\nLatency from the due time of each request (corrected) and from its send (uncorrected)\n")
  put("  %-8s %12s %12s\n", "", "corrected", "uncorrected")
  for _, percent in ipairs(figures.PERCENTS) do line(text.percent(percent), percent) end
  line("max", 100)
end

local function checks(put, f)
  if #f.result.checks == 0 then return end
  put("\nChecks\n")
  for _, check in ipairs(f.result.checks) do
    put("  %s  %s: %s\n", check.failed > 0 and "FAILED" or "passed", text.printable(check.name),
      check.failed > 0 and check.failed .. " of " .. check.passed + check.failed or check.passed)
  end
  if f.checks_missed then
    put("The run has failed: %d failed checks, and no threshold on errors or checks\n", f.checks_failed)
  end
end

-- report(figures) -> everything after the run: wrk's lines in wrk's format, then additional lines
function report.report(f)
  local out = {}
  local function put(format, ...) out[#out + 1] = string.format(format, ...) end
  wrk_lines(put, f)
  handshakes(put, f.result)
  fanout(put, f)
  errors(put, f)
  warnings(put, f)
  if f.result.due then both_latencies(put, f.result) end
  checks(put, f)
  local ignored = not f.missed and (f.statuses_ignored or f.errors_ignored > 0)
  if #f.thresholds > 0 then put("\nThresholds%s\n", ignored and ": none is about the responses that failed" or "") end
  for _, t in ipairs(f.thresholds) do
    put("  %s  %s (measured: %s)\n", t.met and "met   " or "MISSED", t.text, figures.actual(t))
  end
  return table.concat(out)
end

return report
