-- metrics.lua - ls.metrics and app:metrics: counters, gauges and histograms of the site, and all that the server counts, in
-- the text formats of Prometheus (0.0.4) and OpenMetrics (1.0.0).
--
-- A metric has a number of cells of src/script/bind/operating/metrics.c for each of its label sets. Which ones is in a dict that
-- all Lua states share, so a state asks it once for each label set: afterwards a call adds to a cell of its thread. The
-- definitions are registered by their first use and by a scrape, not while a site loads, which may fail to.

local core = require "luaserve.core"
local dicts = require "luaserve.dict"
local latency = require "luaserve.latency"
local options = require "luaserve.options"
local usage = require "luaserve.usage"

-- A site may replace the globals.
local concat, find, format, gsub, sort = table.concat, string.find, string.format, string.gsub, table.sort
local floor, huge, max, min, tointeger = math.floor, math.huge, math.max, math.min, math.tointeger
local getmetatable, ipairs, open, pairs, processor_time = getmetatable, ipairs, io.open, pairs, os.clock
local tostring, type, utf8_len = tostring, type, utf8.len
local metric_add, metric_cells, metric_read = core.metric_add, core.metric_cells, core.metric_read

-- ls.metrics is a Metrics: numbers of the site for Prometheus, and the handler of a listener that shows them.
local metrics = {}

local series_max, buckets_max = 1000, 64
local usual_buckets = { 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10 }
local request_bounds = {} -- of the time of requests
for i = 1, 18 do request_bounds[i] = 0.0001 * 2 ^ (i - 1) end
local methods = { "other", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE" } -- ls_http_method

local shared_options = {
  name = { "name", "text", 'a text such as "orders_total"' }, -- letters, digits and "_"; required
  help = { "help", "text", "a text: what it counts" }, -- what it counts; required
  labels = true, -- string[] - the names of the labels of each call
  max_series = { "series_max", "count", 1, 100000, series_max }, -- label sets; further ones are not counted
}
local histogram_options = { buckets = true } -- number[] - upper bounds; default: 0.005 to 10, for seconds
metrics.calls = {
  ["ls.metrics.counter"] = { shared_options, listed = true }, -- MetricOptions
  ["ls.metrics.histogram"] = { shared_options, histogram_options, listed = true }, -- HistogramOptions
}

-- ---- the metrics of the site -----------------------------------------------------------------------------------------

local defined = {} -- by name, of this Lua state
local shared -- of all states: "d NAME" a definition, "n NAME" its label sets, "s NAME\0FORM\0LABELS" a cell, "names"

-- Opens it, while the site loads, so that it stays over a reload.
local function open_shared() shared = shared or dicts.open("luaserve.process.metrics", { size = "64m" }) end

-- form(one) -> what two definitions of a name must have in common, as text.
local function form(one)
  return concat({ one.kind, concat(one.labels, ","), concat(one.buckets or {}, ","), one.help }, ";")
end

-- register(one) -> whether the definition is the one of its name. It replaces that of a previous site.
local function register(one)
  local key = "d " .. one.name
  local known = shared:get(key)
  if known == nil then
    if shared:add(key, one.form) then shared:rpush("names", one.name) end
    known = shared:get(key)
  end
  if known == one.form then return true end
  if core.retired() then return false end
  shared:set(key, one.form)
  shared:delete("n " .. one.name)
  return true
end

-- text_of(value) -> the value of a label.
local function text_of(value)
  local text = tostring(value)
  return utf8_len(text) and text or gsub(text, "[\128-\255]", "?")
end

local escapes = { ["\\"] = "\\\\", ["\n"] = "\\n", ['"'] = '\\"' }

-- labels_text({ name, value, ... }) -> 'name="value",...'; empty values are none.
local function labels_text(list)
  local parts = {}
  for i = 1, #list, 2 do
    if list[i + 1] ~= "" then parts[#parts + 1] = list[i] .. '="' .. gsub(list[i + 1], '[\\\n"]', escapes) .. '"' end
  end
  return concat(parts, ",")
end

-- new_cell(one, labels) -> the first cell of the label set, a text; nil: there are too many.
local function new_cell(one, labels)
  if not register(one) then return nil end
  local key = "s " .. one.name .. "\0" .. one.form .. "\0" .. labels
  local cell = shared:get(key)
  if cell then return cell end
  if (shared:incr("n " .. one.name) or huge) <= one.series_max then
    cell = metric_cells(one.cells)
    if cell and one.kind ~= "gauge" then core.metric_set(cell + one.cells - 1, core.wall_time()) end
    if cell and shared:add(key, cell) then return cell end
  end
  shared:incr("n " .. one.name, -1)
  cell = shared:get(key)
  if cell then return cell end -- another state was first
  shared:incr("dropped")
  if shared:add("full " .. one.name .. one.form, true) then
    core.log("warn", format("ls.metrics: %s (%s) has max_series = %d label sets: {%s} and further ones are not counted; take values of "
      .. "which there are few, or raise max_series", one.name, one.where, one.series_max, labels))
  end
  return nil
end

local function check_labels(call, one, labels)
  usage.check(labels, "table?", "%s: the labels must be a table such as { %s = ... }", call, one.labels[1] or "status")
  for name in pairs(labels or {}) do
    if not one.known[name] then
      usage.error("%s: %s has no label %s%s", call, one.name, usage.quote(name), usage.suggest(name, one.known))
    end
  end
  for _, name in ipairs(one.labels) do
    local kind = type(labels and labels[name])
    usage.refuse(kind ~= "string" and kind ~= "number" and kind ~= "boolean", labels and labels[name],
      "%s: the label %s of %s must be a string, a number or a boolean", call, name, one.name)
  end
end

-- find_cell(call, one, labels) -> the first cell of the label set; nil: there are too many.
local function find_cell(call, one, labels)
  local names = one.labels
  local count, given, at = #names, 0, one.cache
  if type(labels) == "table" then
    for _ in pairs(labels) do given = given + 1 end
    if given == count then
      for i = 1, count do at = at and at[labels[names[i]]] end
      if type(at) == "number" then return at end
    end
  elseif labels == nil and count == 0 and one.cell then
    return one.cell
  end
  check_labels(call, one, labels)
  local list = {}
  for i, name in ipairs(names) do list[2 * i - 1], list[2 * i] = name, text_of(labels[name]) end
  local cell = new_cell(one, labels_text(list))
  if count == 0 then one.cell = cell end
  at = one.cache
  for i = 1, cell and count or 0 do
    local value = labels[names[i]]
    if i == count then
      at[value] = cell
    else
      at[value] = at[value] or {}
      at = at[value]
    end
  end
  return cell
end

-- counter is a MetricCounter: a number that only grows.
-- gauge is a MetricGauge: a number that goes up and down.
-- histogram is a MetricHistogram: how many values were up to each bound.
local classes = { counter = {}, gauge = {}, histogram = {} }
local usual_calls = { counter = "counter:add(n)", gauge = "gauge:set(n) and gauge:add(n)", histogram = "histogram:observe(n)" }
for title, class in pairs(classes) do
  class.__index, class.__name = class, "luaserve." .. title
  setmetatable(class, { __index = function(_, name)
    usage.error("a %s has no %s: call %s", title, usage.quote(name), usual_calls[title])
  end })
end

-- method(call, least, put) -> a method of a metric: put(self, cell, n) for a number that is at least `least`.
local function method(call, least, put)
  local kind = call:match("^%a+")
  local class = classes[kind]
  return function(self, n, labels, ...)
    if getmetatable(self) ~= class then
      usage.error("'%s' is a method of a %s: call it with a colon, %s(...); got %s for the %s", call:match("%a+$"), kind, call,
        usage.quote(self), kind)
    end
    if n == nil and least == 0 then n = 1 end
    usage.refuse(type(n) ~= "number" or n ~= n or n < least or n == huge, n, "%s takes a number%s", call,
      least == 0 and " from 0 on" or "")
    usage.no_more(call .. "(n, labels)", labels, ...)
    local cell = find_cell(call, self, labels)
    if cell then put(self, cell, n) end
  end
end

-- counter:add([n: number [, labels: table<string, string|number|boolean>]])
-- Adds n, 1 by default, to the counter of this label set.
classes.counter.add = method("counter:add", 0, function(_, cell, n) metric_add(cell, n) end)

-- gauge:set(n: number [, labels: table<string, string|number|boolean>])
-- Sets the gauge of this label set, for all Lua states.
classes.gauge.set = method("gauge:set", -huge, function(_, cell, n) core.metric_set(cell, n) end)

-- gauge:add(n: number [, labels: table<string, string|number|boolean>])
-- Adds n, which may be negative, to the gauge of this label set.
classes.gauge.add = method("gauge:add", -huge, function(_, cell, n) core.metric_change(cell, n) end)

-- histogram:observe(n: number [, labels: table<string, string|number|boolean>])
-- Counts the value n in the histogram of this label set.
classes.histogram.observe = method("histogram:observe", -huge, function(self, cell, n)
  local bounds, i = self.buckets, 1
  while bounds[i] and n > bounds[i] do i = i + 1 end
  metric_add(cell + i - 1, 1, cell + #bounds + 1, n)
end)

local endings = { _total = true, _created = true, _bucket = true, _sum = true, _count = true, _info = true }

local function check_name(call, kind, name)
  local base = kind == "counter" and gsub(name, "_total$", "") or name
  local reserved = find(base, "^luaserve_") or find(base, "^process_")
  local ending = base:match("_%l+$")
  ending = endings[ending] and ending
  if not find(base, "^[%a_:][%w_:]*$") or reserved or ending then
    usage.error("%s: name must have letters, digits and _, and not begin with luaserve_ or process_%s; got %s", call,
      ending and ", nor end in " .. ending or "", usage.quote(name))
  end
  return base
end

local function check_names(call, kind, labels)
  usage.refuse(type(labels) ~= "table" or not usage.is_list(labels), labels, '%s: labels must be a list of names such as { "status" }', call)
  local known = {}
  for i, name in ipairs(labels) do
    usage.refuse(type(name) ~= "string" or not find(name, "^[%a_][%w_]*$"), name, "%s: labels[%d] must have letters, digits and _", call, i)
    if known[name] then usage.error("%s: labels has %s twice", call, usage.quote(name)) end
    if find(name, "^__") or kind == "histogram" and name == "le" then
      usage.error("%s: labels[%d]: the name %s is reserved%s", call, i, usage.quote(name),
        name == "le" and ": the bounds of the buckets have it" or " for Prometheus")
    end
    known[name] = true
  end
  return known
end

local function check_buckets(call, buckets)
  local fine = type(buckets) == "table" and #buckets > 0 and #buckets <= buckets_max
  for i = 1, fine and #buckets or 0 do
    local bound = buckets[i]
    fine = fine and type(bound) == "number" and bound < huge and (i == 1 or bound > buckets[i - 1])
  end
  if not fine then usage.error("%s: buckets must be 1 to %d numbers that grow, such as { 0.1, 1, 10 }", call, buckets_max) end
end

local function define(kind, ...)
  local call = "ls.metrics." .. kind
  local out, given = options.only(call, metrics.calls[call] or metrics.calls["ls.metrics.counter"],
    '{ name = "orders", help = "orders of customers", labels = { "country" } }', ...)
  for _, name in ipairs { "name", "help" } do
    if not out[name] then usage.error("%s: %s is missing", call, name) end
  end
  local labels, buckets = given.labels or {}, given.buckets
  local one = { kind = kind, name = check_name(call, kind, out.name), help = out.help, labels = labels, cache = {}, cell = false, buckets = false,
    known = check_names(call, kind, labels), series_max = out.series_max, where = usage.caller() or "?" }
  if kind == "histogram" then
    one.buckets = buckets or usual_buckets
    check_buckets(call, one.buckets)
  end
  one.cells = one.buckets and #one.buckets + 3 or kind == "counter" and 2 or 1 -- the last one: when it was made
  one.form = form(one)
  local before = defined[one.name]
  if before and before.form ~= one.form then
    usage.error("%s: %s is already a %s with other options, at %s; give one of them another name", call, one.name, before.kind, before.where)
  end
  defined[one.name] = before or one
  open_shared()
  return setmetatable(before or one, classes[kind])
end

-- ls.metrics.counter(options: MetricOptions) -> counter
-- Defines a counter, or finds the one of the same definition. All Lua states add to the same one.
function metrics.counter(...) return define("counter", ...) end

-- ls.metrics.gauge(options: MetricOptions) -> gauge
-- The same for a gauge.
function metrics.gauge(...) return define("gauge", ...) end

-- ls.metrics.histogram(options: HistogramOptions) -> histogram
-- The same for a histogram.
function metrics.histogram(...) return define("histogram", ...) end

-- ---- what is shown: a list of { name, kind, help, { labels, value, suffix, created }, ... }, by their names as well ------

local function add_stats(families)
  local stats = require("luaserve").stats()
  for _, row in ipairs(require "luaserve.metric_table") do
    local value = stats[row[1]]
    local family = { "luaserve_" .. row[2], row[3], row[4] }
    for scope, count in pairs(type(value) == "table" and value or { [""] = value }) do
      family[#family + 1] = { labels_text { "scope", scope }, count }
    end
    families[#families + 1] = family
  end
  return stats
end

-- add_histogram(family, labels, bounds, counts, sum, show, created): the samples of a histogram. counts[i]: values up to bounds[i]
-- and not to the bound before; the next one has the greater ones.
local function add_histogram(family, labels, bounds, counts, sum, show, created)
  local total, before = 0, labels == "" and "" or labels .. ","
  for i = 1, #bounds + 1 do
    total = total + counts[i]
    family[#family + 1] = { format('%sle="%s"', before, bounds[i] and show(bounds[i], true) or "+Inf"), total, "_bucket" }
  end
  family[#family + 1] = { labels, sum, "_sum" }
  family[#family + 1] = { labels, total, "_count", created }
end

-- Besides those of ls.stats: { name, kind, help [, kind of the object, which is a label, and its figure] }
metrics.families = {
  { "luaserve_http_requests_total", "counter", "HTTP requests that have ended, by route, method and class of the status" },
  { "luaserve_http_request_duration_seconds", "histogram", "time from the head of a request to the end of its response" },
  { "luaserve_http_request_bytes_total", "counter", "bytes of requests: heads and bodies" },
  { "luaserve_http_response_bytes_total", "counter", "bytes of the bodies of responses" },
  { "luaserve_http_requests_incomplete_total", "counter", "HTTP requests whose response has no end, by outcome: left, by the client, or aborted" },
  { "luaserve_dict_entries", "gauge", "entries of a dict", "dict", "entries" },
  { "luaserve_dict_bytes", "gauge", "memory of the entries of a dict", "dict", "bytes" },
  { "luaserve_channel_values", "gauge", "values that wait in a channel", "channel", "values" },
  { "luaserve_cache_bytes", "gauge", "memory of the responses that a cache of app:proxy has", "cache", "bytes" },
  { "luaserve_cache_hits_total", "counter", "requests for which a cache had a response, fresh or stale", "cache", "hits" },
  { "luaserve_cache_stored_total", "counter", "responses that a cache has stored", "cache", "stored" },
  { "luaserve_upstream_requests", "gauge", "requests that an upstream server of app:proxy has now", "upstream", "requests" },
  { "luaserve_upstream_down", "gauge", "1: it gets no requests, because it failed or its checks do", "upstream", "down" },
  { "luaserve_queue_jobs", "gauge", "jobs in the store of a queue, by state" },
  { "process_cpu_seconds_total", "counter", "processor time of the process" },
  { "process_resident_memory_bytes", "gauge", "memory of the process" },
  { "process_virtual_memory_bytes", "gauge", "address space of the process" },
  { "process_open_fds", "gauge", "descriptors of the process" },
  { "process_max_fds", "gauge", "the most that it may have" },
  { "process_start_time_seconds", "gauge", "time of the start of the server, since 1970" },
  { "luaserve_certificate_expires_seconds", "gauge", "end of the certificate of tls.acme, since 1970", "certificate", "expires" },
  { "luaserve_certificate_renewal_seconds", "gauge", "time from which on it is renewed, since 1970", "certificate", "renews" },
  { "luaserve_certificate_failures", "gauge", "attempts to get it that have failed since the last success; at least 1 while its store fails", "certificate", "failures" },
  { "luaserve_certificate_attempts_failed_total", "counter", "attempts to get certificates that have failed" },
  { "luaserve_metrics_dropped_total", "counter", "calls of metrics of the site past max_series" },
}

-- merged(buckets) -> the counts by fewer bounds, 0.1 ms, 0.2 ms, ... to 13 s: each has two of the buckets, the first one three
local function merged(buckets)
  local out = {}
  for i = 1, #request_bounds + 1 do out[i] = 0 end
  for i, count in ipairs(buckets) do
    local at = min(max(i // 2, 1), #out)
    out[at] = out[at] + count
  end
  return out
end

local function add_requests(families, show)
  local counts, times = families.luaserve_http_requests_total, families.luaserve_http_request_duration_seconds
  local received, sent = families.luaserve_http_request_bytes_total, families.luaserve_http_response_bytes_total
  local incomplete = families.luaserve_http_requests_incomplete_total
  for _, route in ipairs(core.latencies()) do
    local own = { "route", route.route ~= "" and route.route or "none", "host", route.host or "" }
    local labels, sums = labels_text(own), latency.sums(route.cells)
    for i, outcome in ipairs { "left", "aborted" } do
      own[5], own[6] = "outcome", outcome
      if sums[4 + i] > 0 then incomplete[#incomplete + 1] = { labels_text(own), sums[4 + i] } end
    end
    for class = 1, 5 do
      for m, count in ipairs(latency.statuses(route.cells, class)) do
        own[5], own[6], own[7], own[8] = "method", methods[m], "status", class .. "xx"
        if count > 0 then counts[#counts + 1] = { labels_text(own), count } end
      end
    end
    add_histogram(times, labels, request_bounds, merged(latency.buckets(route.cells)), sums[1] / 1e6, show)
    received[#received + 1] = { labels, sums[2] }
    sent[#sent + 1] = { labels, sums[3] }
  end
end

-- Objects whose names begin with "luaserve" are of modules, not of the site.
local function add_objects(families)
  local all, queue, acme = core.shared(), package.loaded["luaserve.queue"], package.loaded["luaserve.acme"]
  local certificates, failed = {}, nil
  if acme then certificates, failed = acme.certificates() end
  for name, one in pairs(certificates) do all[#all + 1] = { kind = "certificate", name = name, figures = one } end
  sort(all, function(a, b) return a.name < b.name end)
  for _, row in ipairs(metrics.families) do
    for _, one in ipairs(row[4] and all or {}) do
      local value = (one.figures or one)[row[5]]
      if one.kind == row[4] and value and not find(one.name, "^luaserve[.:]") then
        local family, label = families[row[1]], one.figures and "name" or one.kind
        family[#family + 1] = { labels_text { label, one.name }, value }
      end
    end
  end
  if failed then families.luaserve_certificate_attempts_failed_total[4] = { "", failed } end
  local jobs = {}
  if queue then
    queue.each_count(function(name, state, count) jobs[#jobs + 1] = { labels_text { "queue", name, "state", state }, count } end)
  end
  sort(jobs, function(a, b) return a[1] < b[1] end)
  table.move(jobs, 1, #jobs, 4, families.luaserve_queue_jobs)
end

local function read(path)
  local file <close> = open(path)
  return file and file:read("a") or ""
end

-- Of /proc; elsewhere only the start.
local function add_process(families, started)
  local status = read("/proc/self/status")
  local names = status ~= "" and core.can_wait() and require("luaserve.file").list("/proc/self/fd")
  local function bytes(name) return tointeger(status:match(name .. ":%s*(%d+)") or 0) * 1024 end
  local values = { cpu_seconds_total = status ~= "" and processor_time() or 0, resident_memory_bytes = bytes "VmRSS",
    virtual_memory_bytes = bytes "VmSize", open_fds = names and #names or 0, start_time_seconds = started,
    max_fds = tointeger(read("/proc/self/limits"):match("Max open files%s+(%d+)") or 0) }
  for name, value in pairs(values) do
    if value ~= 0 then families["process_" .. name][4] = { "", value } end
  end
end

local function add_own(families, show)
  for _, one in pairs(defined) do
    if register(one) and #one.labels == 0 then one.cell = one.cell or new_cell(one, "") end
  end
  local series, names = {}, shared:range("names") or {}
  for _, key in ipairs(shared:keys("^s ")) do
    local name, of, labels = key:match("^s ([^\0]*)\0([^\0]*)\0(.*)$")
    series[name] = series[name] or {}
    table.insert(series[name], { of, labels, shared:get(key) })
  end
  sort(names)
  for _, name in ipairs(names) do
    local of = shared:get("d " .. name)
    local kind, _, bounds_text, help = of:match("^([^;]*);([^;]*);([^;]*);(.*)$")
    local family, bounds = { kind == "counter" and name .. "_total" or name, kind, help }, {}
    for bound in bounds_text:gmatch("[^,]+") do bounds[#bounds + 1] = tonumber(bound) end
    sort(series[name] or {}, function(a, b) return a[2] < b[2] end)
    for _, one in ipairs(series[name] or {}) do
      if one[1] == of and kind == "histogram" then
        local values = metric_read(one[3], #bounds + 3)
        add_histogram(family, one[2], bounds, values, values[#bounds + 2], show, values[#bounds + 3])
      elseif one[1] == of then
        local values = metric_read(one[3], kind == "counter" and 2 or 1)
        family[#family + 1] = { one[2], values[1], nil, values[2] }
      end
    end
    families[#families + 1] = family
  end
  families.luaserve_metrics_dropped_total[4] = { "", shared:get("dropped") or 0 }
end

-- shower(open_metrics) -> show(number, bound) -> its text
local function shower(open_metrics)
  return function(number, bound)
    local whole = tointeger(number)
    if whole then return bound and open_metrics and whole .. ".0" or format("%d", whole) end
    if number == huge or number == -huge then return number > 0 and "+Inf" or "-Inf" end
    local text = format("%.15g", number)
    return tonumber(text) == number and text or format("%.17g", number)
  end
end

-- text(open_metrics) -> all metrics in the format of OpenMetrics, else in that of Prometheus
function metrics.text(open_metrics)
  local families, out, show = {}, {}, shower(open_metrics)
  local stats = add_stats(families)
  for _, row in ipairs(metrics.families) do
    local family = { row[1], row[2], row[3] }
    families[#families + 1], families[row[1]] = family, family
  end
  shared:add("started", floor(core.wall_time() - stats.uptime)) -- once: the wall clock may be set
  local started = shared:get("started")
  add_requests(families, show)
  add_objects(families)
  add_process(families, started)
  add_own(families, show)
  for _, family in ipairs(families) do
    local name, kind, help = family[1], family[2], gsub(family[3], open_metrics and '[\\\n"]' or "[\\\n]", escapes)
    local base = open_metrics and kind == "counter" and gsub(name, "_total$", "") or name
    if family[4] then out[#out + 1] = format("# HELP %s %s\n# TYPE %s %s\n", base, help, base, kind) end
    for i = 4, #family do
      local labels, value, suffix = family[i][1], family[i][2], family[i][3] or ""
      labels = labels == "" and " " or "{" .. labels .. "} "
      out[#out + 1] = name .. suffix .. labels .. show(value) .. "\n"
      if open_metrics and (kind == "counter" or suffix == "_count") then
        out[#out + 1] = base .. "_created" .. labels .. show(family[i][4] or started) .. "\n"
      end
    end
  end
  if open_metrics then out[#out + 1] = "# EOF\n" end
  return concat(out)
end

-- handler(req, res): the function of app:metrics.
function metrics.handler(req, res)
  local open_metrics = find(req.headers.accept or "", "application/openmetrics-text", 1, true) ~= nil
  res:header("Cache-Control", "no-store")
  res:header("Content-Type", open_metrics and "application/openmetrics-text; version=1.0.0; charset=utf-8"
    or "text/plain; version=0.0.4; charset=utf-8")
  return metrics.text(open_metrics)
end

local wanted = false

-- want(): count the requests of all listeners of the site. Only while it loads.
function metrics.want()
  if wanted then return end
  open_shared()
  latency.want()
  wanted = true
end

-- app() -> an app that shows the metrics at /metrics and /, for a listener of its own
function metrics.app()
  local app = require("luaserve.app").new()
  return app:metrics("/metrics"):metrics("/")
end

return metrics
