-- stress/threshold.lua - conditions on the result of a run: "p99 < 5ms", "errors < 0.1%".
--
-- "errors" is the sum of all kinds of errors; "error_rate" is the same with the unit %. "checks" (or "checks_failed") is
-- the number of failed checks, not of those that have passed as in k6; its % is of all checks. Latencies of an open loop are corrected.

local threshold = {}

local BYTES_MAX, SHOWN = 80, 60

threshold.grammar = [[
a threshold is METRIC OPERATOR NUMBER[UNIT], for example "p99 < 5ms", "rate >= 10000/s", "errors < 0.1%":
  METRIC    p50 ... p99.999, mean, min, max, stdev    latency; UNIT us, ms or s
            rate                                      requests per second; UNIT /s or none
            errors                                    failed requests and failed checks; UNIT % (of all) or none
            1xx ... 5xx, 100 ... 599                  responses with that status; UNIT % or none
            lost, reordered, duplicated               of the deliveries of --fanout; UNIT % (of the expected) or none
            checks                                    failed checks; UNIT % (of all checks) or none
            error_rate                                errors; UNIT %
  OPERATOR  <  <=  >  >=  ==
]]

-- ---- the metrics: kind of the limit; measure(figures) -> value, whole of a percentage ------------------------------

local function latency(name) return { kind = "latency", measure = function(figures) return figures.latency[name] end } end

local function errors(figures)
  local r = figures.result
  return figures.errors, r.requests + figures.errors - r.errors.check -- those are complete requests as well
end

local function delivery(name)
  return { kind = "count", failures = "failed deliveries", measure = function(figures)
    local r = figures.result
    if figures.plan.fanout then return r[name], r.expected end
  end }
end

local checks = { kind = "count", failures = "failed checks", measure = function(figures)
  if figures.checks_made > 0 then return figures.checks_failed, figures.checks_made end -- else nothing was measured
end }

local metrics = {
  mean = latency "mean", min = latency "min", max = latency "max", stdev = latency "stdev",
  rate = { kind = "rate", measure = function(figures) return figures.rate end },
  errors = { kind = "count", failures = "failed requests", measure = errors },
  error_rate = { kind = "percent", failures = "failed requests", measure = errors },
  lost = delivery "lost", reordered = delivery "reordered", duplicated = delivery "duplicated",
  checks = checks, checks_failed = checks,
}

local function percentile(percent)
  return { kind = "latency", measure = function(figures) return figures.latency:percentile(percent) end }
end

local function status(from, to)
  return { kind = "count", measure = function(figures) return figures.statuses(from, to), figures.statuses(100, 599) end }
end

-- The metric of that name; nil and a message.
local function metric_of(word)
  if word == "" then return nil, "missing metric" end
  if metrics[word] then return metrics[word] end
  local class = tonumber(word:match("^([1-5])xx$"))
  if class then return status(class * 100, class * 100 + 99) end
  local code = tonumber(word:match("^[1-5]%d%d$"))
  if code then return status(code, code) end
  local percent = tonumber(word:match("^p(%d+%.?%d*)$"))
  if not percent then return nil, "unknown metric" end
  if percent <= 0 or percent >= 100 then
    return nil, "a percentile must be above p0 and below p100 (use max for p100)"
  end
  return percentile(percent)
end

-- ---- the parser ----------------------------------------------------------------------------------------------------

local scale = { us = 1e3, ms = 1e6, s = 1e9 }

-- The limit in the unit of the metric, and whether it is a percentage; nil and a message.
local function limit_of(kind, number, unit)
  if kind == "latency" then
    if unit == "" then return nil, "a latency needs a unit: us, ms or s" end
    if not scale[unit] then return nil, "the unit of a latency is us, ms or s" end
    return number * scale[unit], false
  elseif kind == "rate" then
    if unit ~= "" and unit ~= "/s" then return nil, "the unit of a rate is /s or none" end
    return number, false
  elseif unit == "%" then
    if number > 100 then return nil, "a percentage is at most 100%" end
    return number, true
  end
  if kind == "percent" then return nil, "the unit of error_rate is %" end
  if unit ~= "" then return nil, "a count has no unit (use % for a percentage)" end
  if number ~= math.floor(number) then return nil, "a count is a whole number; use % for a percentage" end
  return number, false
end

-- parse(text) -> { text =, metric = its name, kind =, measure =, op =, limit =, percent = } | nil, message. The limit is
-- in nanoseconds, requests per second, a count, or percent. The message is one line that names the invalid part; print
-- threshold.grammar below it.
function threshold.parse(text)
  text = text:match("^[ \t]*(.-)[ \t]*$")
  local function refuse(part, what)
    return nil, string.format('threshold "%s%s": %s%s', text:sub(1, SHOWN), #text > SHOWN and "..." or "",
      part ~= "" and '"' .. part:sub(1, SHOWN) .. '": ' or "", what)
  end
  if text == "" then return refuse("", "empty") end
  if #text > BYTES_MAX then return refuse("", "longer than 80 bytes") end
  local word, rest = text:match("^([%w._]*)[ \t]*(.*)$")
  local metric, why = metric_of(word)
  if not metric then return refuse(word, why) end
  local op, number = rest:match("^([<>]=?)[ \t]*(.*)$")
  if not op then op, number = rest:match("^(==)[ \t]*(.*)$") end
  if not op then return refuse(rest, rest == "" and "missing operator" or "expected <, <=, >, >= or ==") end
  local digits, after = number:match("^(%d+%.?%d*)(.*)$")
  if not digits or #digits > 31 or after:find("^%.") then
    return refuse(number, number == "" and "missing number" or "expected a number such as 5 or 0.25")
  end
  local unit = after:match("^[ \t]*(.*)$")
  local limit, percent = limit_of(metric.kind, tonumber(digits), unit)
  if not limit then return refuse(unit, percent) end
  if metric.failures and (op:find("^>") or percent and op == "==" and limit == 100) then
    return refuse(word, string.format('counts %s: a threshold is the most of them, such as "%s %s%g%s"', metric.failures, word,
      percent and limit < 100 and (op == ">" and "< " or "<= ") or "== ", percent and 100 - limit or 0, unit))
  end
  return { text = text, metric = word, kind = metric.kind, measure = metric.measure, op = op, limit = limit,
    percent = percent }
end

-- ---- the evaluation ------------------------------------------------------------------------------------------------

local compare = {
  ["<"] = function(a, b) return a < b end,
  ["<="] = function(a, b) return a <= b end,
  [">"] = function(a, b) return a > b end,
  [">="] = function(a, b) return a >= b end,
  ["=="] = function(a, b) return a == b end,
}

-- evaluate(t, figures) -> met, actual: actual is in the unit of the limit, nil: not measured. A latency or percentage
-- without any measurement is missed, whatever the operator. `figures`: of stress/figures.lua.
function threshold.evaluate(t, figures)
  local actual, whole
  if t.kind ~= "latency" or figures.latency.count > 0 then actual, whole = t.measure(figures) end
  if t.percent then actual = actual and whole > 0 and 100 * actual / whole or nil end
  return actual ~= nil and compare[t.op](actual, t.limit), actual
end

return threshold
