-- stress/report_files.lua - the reports for programs and browsers: JSON, CSV and HTML. src/stress/REPORTS.md specifies the
-- formats. In JSON names may be added; a change of a name's meaning increases FORMAT.

local figures = require "luaserve.stress.figures"
local report_text = require "luaserve.stress.report_text"
local text = require "luaserve.stress.text"

local report = {}

local FORMAT = 2

-- ---- JSON: a value is text that is JSON already; the order of the members is that of the lists --------------------

local NULL = "null"

local function number(value, decimals)
  local shown = value and text.number(value, decimals or 3)
  return shown and shown ~= "-" and shown or NULL
end

local function us(ns) return number(ns and ns / 1e3) end
local function seconds(ns) return number(ns and ns / 1e9, 9) end -- to the nanosecond
local function string_or_null(value) return value and text.json(value) or NULL end
local function positive(value) return value > 0 and number(value) or NULL end

-- object { "name", value, ... }; a value that is a boolean or a whole number is written as it is
local function object(members)
  local parts = {}
  for i = 1, #members, 2 do parts[#parts + 1] = '"' .. members[i] .. '":' .. tostring(members[i + 1]) end
  return "{" .. table.concat(parts, ",") .. "}"
end

local function array(list, write)
  local parts = {}
  for i, one in ipairs(list) do parts[i] = write(one) end
  return "[" .. table.concat(parts, ",") .. "]"
end

local function config(p)
  return object {
    "target", text.json(p.target), "script", string_or_null(p.script), "mode", p.open_loop and '"open"' or '"closed"',
    "threads", p.threads, "connections", p.connections, "duration_s", p.duration_ns > 0 and seconds(p.duration_ns) or NULL,
    "requests", positive(p.requests), "rate_per_s", number(p.open_loop and p.rate), "pipeline", p.pipeline,
    "streams", p.http2 and p.streams or NULL,
    "message_bytes", positive(p.message_bytes), "keepalive", p.keepalive,
    "tls_resume", p.tls and tostring(p.tls_resume) or NULL,
    "timeout_s", p.timeout_ns > 0 and seconds(p.timeout_ns) or NULL, "backend", text.json(p.backend),
    "stages", array(p.stages, function(stage)
      return object { "duration_s", seconds(stage.duration_ns), "rate_per_s", number(p.open_loop and stage.rate),
        "connections", positive(stage.connections) }
    end),
  }
end

-- The percentages of the curve: ten steps for each halving of the remaining percentage, so that they are evenly spaced on
-- an axis of 1/(1 - q). The curve ends where less than one value remains.
local function curve(h)
  local points, left = {}, 100
  local function point(percent)
    points[#points + 1] = "[" .. text.fixed(percent, 9) .. "," .. us(h:percentile(percent)) .. "]"
  end
  while left / 100 * h.count >= 1 do
    for i = 0, 9 do point(100 - left + left / 2 * i / 10) end
    left = left / 2
  end
  if h.count > 0 then point(100) end
  return "[" .. table.concat(points, ",") .. "]"
end

-- All figures are null when nothing was measured.
local function latency(h, with_curve)
  if not h then return NULL end
  local any = h.count > 0
  local percentiles = {}
  for _, percent in ipairs(figures.PERCENTS) do
    percentiles[#percentiles + 1] = text.percent(percent)
    percentiles[#percentiles + 1] = us(any and h:percentile(percent))
  end
  local members = { "count", h.count, "min", us(any and h.min), "mean", us(any and h.mean), "stdev", us(any and h.stdev),
    "max", us(any and h.max), "within_stdev_percent", number(any and h:within(1)), "over_an_hour", h.clipped,
    "percentiles", object(percentiles) }
  if with_curve then table.move({ "curve", curve(h) }, 1, 2, #members + 1, members) end
  return object(members)
end

-- The members of a table of counts by code, in ascending order.
local function by_code(counts, format)
  local codes, members = {}, {}
  for code, count in pairs(counts) do if code > 0 and count > 0 then codes[#codes + 1] = code end end
  table.sort(codes)
  for _, code in ipairs(codes) do
    members[#members + 1] = string.format(format, code)
    members[#members + 1] = counts[code]
  end
  return object(members)
end

local function totals(f)
  local r = f.result
  return object { "duration_s", seconds(r.duration_ns), "requests", r.requests, "requests_per_s", number(f.rate),
    "asked_per_s", number(f.plan.open_loop and f.target_rate), "unsent", r.unsent, "in_flight", number(r.in_flight),
    "behind_s", seconds(f.plan.open_loop and r.late_ns), "connects", r.connects, "bytes_in", r.bytes_in,
    "bytes_out", r.bytes_out, "bytes_in_per_s", number(f.bytes_in_rate), "bytes_out_per_s", number(f.bytes_out_rate) }
end

local function fanout(f)
  local r, p = f.result, f.plan
  return object { "publishers", p.publishers, "subscribers", p.connections, "topics", p.topics, "stalled", p.stalled,
    "sse", p.sse, "published", r.published, "published_per_s", number(f.made_rate), "expected", r.expected,
    "delivered", r.requests, "lost", r.lost, "reordered", r.reordered, "duplicated", r.duplicated, "ignored", r.foreign }
end

local function status_classes(f)
  local members = {}
  for class = 1, 5 do
    members[#members + 1] = class .. "xx"
    members[#members + 1] = f.statuses(class * 100, class * 100 + 99)
  end
  return object(members)
end

local function errors(f)
  local members = { "total", f.errors }
  for _, kind in ipairs(f.result.error_kinds) do
    table.move({ kind, f.result.errors[kind] }, 1, 2, #members + 1, members)
  end
  return object(members)
end

local function a_threshold(t)
  local is_latency = t.kind == "latency"
  local unit = is_latency and "us" or t.percent and "%" or t.kind == "rate" and "/s" or ""
  return object { "text", text.json(t.text), "metric", text.json(t.metric), "met", t.met,
    "limit", is_latency and us(t.limit) or number(t.limit), "actual", is_latency and us(t.actual) or number(t.actual),
    "unit", text.json(unit), "actual_text", text.json(figures.actual(t)) }
end

local function rate_of(p) return p.requests * 1e9 / (p.to_ns - p.from_ns) end

local function a_point(p)
  local any = p.max_ns > 0
  return "\n" .. object { "from_s", seconds(p.from_ns), "to_s", seconds(p.to_ns), "requests", p.requests,
    "requests_per_s", number(rate_of(p)), "errors", p.errors, "failed_status", p.failed_status, "bytes_in", p.bytes_in,
    "bytes_out", p.bytes_out, "connections", p.connections, "p50_us", us(any and p.p50_ns), "p99_us", us(any and p.p99_ns),
    "max_us", us(any and p.max_ns) }
end

-- RFC 3339
local function started(at_us)
  return string.format('"%s.%03dZ"', os.date("!%Y-%m-%dT%H:%M:%S", at_us // 1000000), at_us // 1000 % 1000)
end

-- json(figures) -> one JSON object (RFC 8259) and a newline
function report.json(f)
  local r, rates = f.result, f.result.rates
  return object {
    "format", '"luaserve-stress"', "version", FORMAT, "luaserve", text.json(r.version), "started", started(r.started_us),
    "interrupted", r.interrupted, "exit_status", f.exit, "failure", string_or_null(f.failure),
    "short_of", string_or_null(f.short), "config", config(f.plan), "totals", totals(f),
    "latency_us", object { "corrected", latency(r.due, true), "uncorrected", latency(r.sent, true) },
    "tls", r.handshake and object { "full", r.handshakes_full, "resumed", r.handshakes_resumed,
      "failed", r.handshakes_failed, "handshake_us", latency(r.handshake) } or NULL,
    "websocket", r.upgrade and object { "handshakes", r.upgrades, "failed", r.upgrades_failed, "deflate", r.deflated,
      "handshake_us", latency(r.upgrade), "close_codes", by_code(r.codes, "%d") } or NULL,
    "fanout", f.plan.fanout and fanout(f) or NULL,
    "engine_lag_us", latency(r.lag), "engine_late", f.engine_late,
    "thread_rate_per_s", object { "samples", rates.count, "mean", number(rates.mean), "stdev", number(rates.stdev),
      "max", number(rates.max), "within_stdev_percent", number(rates:within(1)) },
    "status", by_code(r.status, "%03d"), "status_classes", status_classes(f), "errors", errors(f),
    "checks", array(r.checks, function(check)
      return object { "name", text.json(check.name), "passed", check.passed, "failed", check.failed }
    end),
    "thresholds", array(f.thresholds, a_threshold), "series", array(r.points, a_point), "series_cut", r.points_truncated,
  } .. "\n"
end

-- ---- CSV -----------------------------------------------------------------------------------------------------------

-- csv(figures) -> tables, separated by empty lines, each with a line of names: the time series, the percentiles, and what
-- belongs to the run. All fields are numbers or empty, so no field needs quotes (RFC 4180 section 2).
function report.csv(f)
  local r, lines = f.result, {}
  local function row(...) lines[#lines + 1] = table.concat({ ... }, ",") end
  local function in_us(ns) return ns and text.fixed(ns / 1e3, 3) or "" end
  local function spread(h)
    if h.count == 0 then return "", "", "", "" end
    return in_us(h.mean // 1), in_us(h:percentile(50)), in_us(h:percentile(99)), in_us(h.max)
  end
  row("from_s,to_s,requests,requests_per_s,errors,failed_status,bytes_in,bytes_out,connections,p50_us,p99_us,max_us")
  for _, p in ipairs(r.points) do
    local any = p.max_ns > 0
    row(text.fixed(p.from_ns / 1e9, 3), text.fixed(p.to_ns / 1e9, 3), p.requests, text.fixed(rate_of(p), 3), p.errors,
      p.failed_status, p.bytes_in, p.bytes_out, p.connections, in_us(any and p.p50_ns), in_us(any and p.p99_ns),
      in_us(any and p.max_ns))
  end
  row("\r\npercent,corrected_us,uncorrected_us")
  local function percentile(name, percent)
    local function at(h) return in_us(h and h.count > 0 and h:percentile(percent)) end
    row(name, at(r.due), at(r.sent))
  end
  for _, percent in ipairs(figures.PERCENTS) do percentile(text.number(percent, 6), percent) end
  percentile("100", 100)
  if r.handshake then
    row("\r\nfull_handshakes,resumed_handshakes,failed_handshakes,mean_us,p50_us,p99_us,max_us")
    row(r.handshakes_full, r.handshakes_resumed, r.handshakes_failed, spread(r.handshake))
  end
  if r.upgrade then
    row("\r\nwebsocket_handshakes,failed_handshakes,deflate_handshakes,mean_us,p50_us,p99_us,max_us")
    row(r.upgrades, r.upgrades_failed, r.deflated, spread(r.upgrade))
  end
  if f.plan.fanout then
    row("\r\npublished,expected,delivered,lost,reordered,duplicated,ignored")
    row(r.published, r.expected, r.requests, r.lost, r.reordered, r.duplicated, r.foreign)
  end
  return table.concat(lines, "\r\n") .. "\r\n"
end

-- ---- HTML ----------------------------------------------------------------------------------------------------------

-- html(figures, page) -> the page with the run inside: the title, the printed report for browsers without scripts, and the
-- JSON for its script. page: the text with three marks, @TITLE@, @TEXT@ and @RUN@.
function report.html(f, page)
  local parts = {
    TITLE = text.html(f.plan.target),
    TEXT = text.html(report_text.head(f.plan) .. report_text.report(f)),
    RUN = report.json(f),
  }
  return (page:gsub("@(%u+)@", parts))
end

-- ---- files ---------------------------------------------------------------------------------------------------------

local kinds = { "json", "csv", "html" }
local ENOENT = 2

-- probe(plan) -> true, or nil and a message. Before the run: whether each file can be written. Existing files stay
-- unchanged, and new ones are removed.
function report.probe(plan)
  for _, kind in ipairs(kinds) do
    local path = plan[kind]
    if path then
      local file, why, code = io.open(path, "r+b") -- in this mode the open of a pipe does not block
      if not file then file, why = io.open(path, "ab") end
      if not file then return nil, "cannot write " .. why end
      file:close()
      if code == ENOENT then os.remove(path) end -- a failed run leaves no empty report
    end
  end
  return true
end

-- save(figures, page) -> true, or nil and the first error. Writes all files, also after a failure.
function report.save(f, page)
  local first
  for _, kind in ipairs(kinds) do
    local path = f.plan[kind]
    if path then
      local whole = report[kind](f, page)
      local file, why = io.open(path, "wb")
      local good
      if file then
        good, why = file:write(whole)
        if good then good, why = file:flush() end -- a full disk may be reported only here, or by close
        local closed, reason = file:close()
        if good and not closed then good, why = nil, reason end
        why = why and path .. ": " .. why
      end
      if not good then first = first or "cannot write " .. why end
    end
  end
  return first == nil, first
end

return report
