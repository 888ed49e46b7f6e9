-- command/top.lua - `luaserve top`: what a running server does now, over its control socket. Each refresh is a session of its own,
-- which begins in a Lua state that is free, so that it also responds while others compute. The data is that of the status page
-- (luaserve.status).

local command = require "luaserve.command"

local top = {}

local REFRESH_MS = 1000
local COLUMNS_MIN, THREADS_MAX, WAITING_MAX, ROUTES_MAX = 40, 6, 5, 6 -- 24 lines in all
local ONCE_MAX = 1000 -- rows of each table of a plain listing

-- Runs in the server. The answers of the states to the first look come soon after it.
local CODE = 'local status, ls = require "luaserve.status", require "luaserve" status.snapshot() ls.sleep(0.2) '
  .. 'print(require("luaserve.command.top").pack(ls.json.decode(status.snapshot())))'

top.spec = {
  name = "top",
  title = "what a running server does now",
  usage = { "--control PATH" },
  about = [[
Shows rates, latency, what each thread runs and for how long, the tasks that wait, and the routes, each second until q is
pressed. Not to a terminal, it prints one listing, whose figures are those since the start of the server.]],
  options = {
    { "--control PATH", command.matching(".", "the path of a Unix socket"),
      "the control socket of the server, of luaserve --control PATH" },
    command.help_option,
  },
  notes = "Latency by route is counted by sites with app:status.",
}

-- ---- figures -------------------------------------------------------------------------------------------------------

local function time(s)
  if not s then return "-" end
  if s < 0.001 then return ("%.0fus"):format(s * 1e6) end
  if s < 1 then return ("%.3gms"):format(s * 1e3) end
  if s < 100 then return ("%.3gs"):format(s) end
  return s < 7200 and ("%d:%02d"):format(s // 60, s % 60) or ("%dh%02d"):format(s // 3600, s // 60 % 60)
end

local function bytes(n)
  for _, unit in ipairs { "B", "K", "M", "G" } do
    if n < 1024 or unit == "G" then return ("%.4g%s"):format(n < 100 and unit ~= "B" and n or math.floor(n), unit) end
    n = n / 1024
  end
end

-- The counts of a route, or of all, less those of a snapshot before; `before` may be nil.
local function less(one, before)
  local out = { route = one.route, buckets = {} }
  for i, n in ipairs(one.buckets) do out.buckets[i] = n - (before and before.buckets[i] or 0) end
  for _, name in ipairs { "count", "failed", "sum_us" } do out[name] = one[name] - (before and before[name] or 0) end
  return out
end

-- In seconds: the upper limit of the bucket that has it.
local function quantile(one, q, first_us)
  local rank = q * one.count
  for i, n in ipairs(one.buckets) do
    if n > 0 and rank <= n then return first_us / 1e6 * 2 ^ ((i - 1) / 2) end
    rank = rank - n
  end
end

local function routes_of(now, before)
  local known, list, all = {}, {}, { count = 0, failed = 0, buckets = {} }
  for _, one in ipairs(before and before.routes or {}) do known[one.route] = one end
  for _, one in ipairs(now.routes) do
    one = less(one, known[one.route])
    if one.count > 0 then list[#list + 1] = one end
    for i, n in ipairs(one.buckets) do all.buckets[i] = (all.buckets[i] or 0) + n end
    all.count, all.failed = all.count + one.count, all.failed + one.failed
  end
  table.sort(list, function(a, b) return a.sum_us > b.sum_us end)
  return list, all
end

local function name(task) return ((task.what or task.scope or ""):gsub("^request %S+ ", "")) end

-- lines(now, before, most) -> the listing: `before` is the snapshot of the last refresh, or nil; `most`: whether it is one of
-- a terminal, with few rows.
function top.lines(now, before, most)
  local s, out = now.stats, {}
  local list, all = routes_of(now, before)
  local seconds = before and now.now - before.now or s.uptime
  local function add(format, ...) out[#out + 1] = format:format(...) end
  local function rows(title, values, limit, row)
    add("%s", title)
    for i, value in ipairs(values) do
      if i > limit then return add("  and %d more", #values - limit) end
      row(value)
    end
  end
  add("%s  up %s  process %s  luaserve %s", now.site, time(s.uptime), now.pid or "?", now.version)
  add("%.4g responses/s  p50 %s  p99 %s  %d errors  %d connections  %d WebSockets", (s.responses - (before and before.stats.responses or 0))
    / math.max(seconds, 0.001), time(quantile(all, 0.5, now.first_us)), time(quantile(all, 0.99, now.first_us)), all.failed,
    s.connections_open, s.websockets)
  add("memory %s  Lua %s in %d states  buffers %s  %d jobs  %d timers", bytes(now.resident_bytes or 0), bytes(s.lua_bytes), s.lua_states,
    bytes(s.bytes_live), s.running.jobs, s.running.timers)
  local busy = {}
  for _, thread in ipairs(now.threads) do if not thread.idle then busy[#busy + 1] = thread end end
  rows(("THREAD  STATE      FOR  RUNS                  (%d of %d wait for work)"):format(#now.threads - #busy, #now.threads), busy,
    most and THREADS_MAX or ONCE_MAX, function(t)
      add("%6d  %5s %8s  %s", t.thread, t.state or "", t.for_s > 0 and time(t.for_s) or "", t.what and name(t) .. (t.line ~= "" and ", at "
        .. t.line or "") or t.lua and "Lua" or "")
    end)
  rows(("WAITS FOR  TASK                                (%d)"):format(#now.waiting), now.waiting, most and WAITING_MAX or ONCE_MAX,
    function(w) add("%9s  %s%s%s", time(w.for_s), name(w), w.client and " of " .. w.client or "", w.line ~= "" and ", at " .. w.line or "") end)
  rows("REQUESTS    /s    P50     P99   ERRORS  ROUTE", list, most and ROUTES_MAX or ONCE_MAX, function(r)
    add("%8d %5.4g %6s %7s %8d  %s", r.count, r.count / math.max(seconds, 0.001), time(quantile(r, 0.5, now.first_us)),
      time(quantile(r, 0.99, now.first_us)), r.failed, r.route)
  end)
  for i, line in ipairs(out) do out[i] = command.printable((line:gsub("[\n\t]", " "))) end
  return out
end

-- ---- the screen ----------------------------------------------------------------------------------------------------

-- Whole characters of the line in so many columns.
local function truncate(line, columns)
  local at = utf8.len(line) and utf8.offset(line, columns + 1)
  return at and line:sub(1, at - 1) or line:sub(1, columns)
end

local function draw(lines, columns)
  local parts = { "\27[H" }
  for i, line in ipairs(lines) do
    local title = line:find("^[A-Z][A-Z]+")
    parts[#parts + 1] = (i == 1 and "\27[1m" or title and "\27[7m" or "") .. truncate(line, columns)
      .. ((i == 1 or title) and "\27[0m" or "") .. "\27[K\n"
  end
  io.stdout:write(table.concat(parts), "\27[J")
  io.stdout:flush()
end

-- pack(value) -> the value as an expression: the program has no JSON outside of a server.
function top.pack(value)
  if type(value) ~= "table" then return ("%q"):format(value) end
  local parts = {}
  for key, one in pairs(value) do parts[#parts + 1] = ("[%q]=%s"):format(key, top.pack(one)) end
  return "{" .. table.concat(parts, ",") .. "}"
end

local function snapshot(program, path)
  local text, why = require("luaserve.command.prompt").ask(program, path, CODE)
  local value = text and load("return " .. text, "=status", "t", {})
  if value then return value() end
  return nil, why or "the response of the server is no status; is it of this version?"
end

-- run(program, arguments) -> the exit status
function top.run(program, arguments)
  local values, words = command.parse(top.spec, arguments)
  if not values then return command.fail(top.spec, words) end
  if values.help then return command.help(top.spec) end
  if words[1] then return command.fail(top.spec, command.unexpected(top.spec, words[1])) end
  local path = values.control
  if not path then return command.fail(top.spec, "--control PATH is missing, the control socket of the server: luaserve --control PATH") end
  local now, why = snapshot(program, path)
  if not now then return command.fail(top.spec, command.printable(why), 1) end
  if not program.repl.terminal() then
    io.stdout:write(table.concat(top.lines(now), "\n"), "\n")
    return 0
  end
  local before
  io.stdout:write("\27[?1049h\27[?25l")
  while now do
    draw(top.lines(now, before, true), math.max(program.repl.columns(), COLUMNS_MIN))
    local key = program.repl.key(REFRESH_MS)
    if key == nil or key == "q" or key == "Q" or key == "\27" then break end
    before, now, why = now, snapshot(program, path)
  end
  io.stdout:write("\27[?25h\27[?1049l")
  if now then return 0 end
  return command.fail(top.spec, command.printable(why), 1)
end

return top
