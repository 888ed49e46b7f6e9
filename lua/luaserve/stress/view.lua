-- stress/view.lua - the progress of a run, on standard error; standard output has the same lines as wrk.
--
-- On a terminal the live view, three lines that are drawn again in place:
--
--     [=============>                 ]  44%  4.4s of 10.0s, 5.6s left
--     19987/s  0 errors  88321 requests  64 connections
--     p50 210us  p99 1.43ms  max 3.20ms  p99 ..:..||..
--
-- The lines are truncated to the window, which may be resized at any time. Elsewhere one line per second.
--
-- One write per drawing: cursor up, then each line with "erase to the end of the line", so that nothing flickers (ECMA-48
-- CUU, EL, ED). In a window that has become narrower the old lines are folded; then everything from the first of them is
-- erased before the drawing.

local text = require "luaserve.stress.text"

local view = {}
view.__index = view

local COLUMNS_MAX, SPARKS_MAX = 120, 40 -- a wider bar shows no more
local BAR_TEXT, BAR_MIN = 36, 8

-- open(plan, terminal) -> the view. terminal: is (whether it is one), utf8, color, columns(), write(text).
function view.open(plan, terminal)
  return setmetatable({ plan = plan, terminal = terminal, widths = {}, p99 = {} }, view)
end

-- ---- one line of the screen: its text and its columns --------------------------------------------------------------

local line = {}
line.__index = line

local function new_line(of, columns) return setmetatable({ view = of, left = columns }, line) end

function line:put(bytes)
  bytes = bytes:sub(1, self.left)
  self[#self + 1] = bytes
  self.left = self.left - #bytes
end

function line:put_whole(bytes) -- completely or not at all
  if #bytes <= self.left then self:put(bytes) end
end

function line:put_glyph(glyph) -- one column
  if self.left == 0 then return end
  self[#self + 1] = glyph
  self.left = self.left - 1
end

function line:color(code) -- an SGR sequence, which takes no column
  if self.view.terminal.color then self[#self + 1] = "\27[" .. code .. "m" end
end

-- ---- figures -------------------------------------------------------------------------------------------------------

local function clock(ns)
  local s = ns // 1000000000
  if s < 60 then return string.format("%d.%ds", s, ns // 100000000 % 10) end
  if s < 3600 then return string.format("%d:%02d", s // 60, s % 60) end
  return string.format("%d:%02d:%02d", s // 3600, s // 60 % 60, s % 60)
end

-- 0 to 1: of the duration or of the requests, the larger one
local function progress(plan, live)
  local part = plan.duration_ns > 0 and live.elapsed_ns / plan.duration_ns or 0
  if plan.requests > 0 then part = math.max(part, live.ended / plan.requests) end
  return math.min(part, 1)
end

local function bar(l, utf8, part, width)
  local full = math.floor(part * width + 0.5)
  l:put("[")
  l:color "36"
  for i = 1, full do l:put_glyph(utf8 and "\u{2501}" or i == full and full < width and ">" or "=") end
  l:color "0"
  l:put((" "):rep(width - full) .. "]")
end

local function progress_line(self, l, live)
  local plan, columns = self.plan, l.left
  local part = progress(plan, live)
  local words = string.format(" %3d%%  %s", math.floor(100 * part), clock(live.elapsed_ns))
  if plan.duration_ns > 0 then
    words = string.format("%s of %s, %s left", words, clock(plan.duration_ns),
      clock(math.max(plan.duration_ns - live.elapsed_ns, 0)))
  end
  local has_bar = columns >= BAR_TEXT + BAR_MIN + 2
  if has_bar then bar(l, self.terminal.utf8, part, columns - BAR_TEXT - 2) end
  l:put(has_bar and words or words:sub(2))
end

local function counts_line(self, l, live)
  local plan = self.plan
  l:color "1"
  l:put(text.fixed(live.rate, 0) .. "/s")
  l:color "0"
  if plan.rate > 0 and #plan.stages == 0 and not plan.fanout then -- fan-out: the rate is of messages
    l:put_whole(" of " .. text.fixed(plan.rate, 0))
  end
  local bad = live.errors + live.failed_status + live.checks_failed > 0
  if bad then l:color "31" end
  l:put_whole("  " .. live.errors .. " errors")
  if live.failed_status > 0 then l:put_whole(", " .. live.failed_status .. " with status 400+") end
  if live.checks_failed > 0 then l:put_whole(", " .. live.checks_failed .. " failed checks") end
  if bad then l:color "0" end
  l:put_whole("  " .. live.requests .. " requests")
  l:put_whole("  " .. live.connections .. " connections")
end

local blocks = { "\u{2581}", "\u{2582}", "\u{2583}", "\u{2584}", "\u{2585}", "\u{2586}", "\u{2587}", "\u{2588}" }
local ascii = { "_", ".", ".", ":", ":", "|", "|", "#" }

-- The p99 of the last seconds, relative to their maximum.
local function sparks(self, l)
  local from = math.max(#self.p99 - math.min(l.left, SPARKS_MAX), 0) + 1
  local most = math.max(1, table.unpack(self.p99, from))
  l:color "36"
  for i = from, #self.p99 do
    l:put_glyph((self.terminal.utf8 and blocks or ascii)[math.floor(self.p99[i] / most * 7.999) + 1])
  end
  l:color "0"
end

local function latency_line(self, l)
  local last = self.last
  if not last then return l:put("latency: shown after 1 s") end
  l:put(string.format("p50 %s  p99 %s", text.time(last.p50_ns), text.time(last.p99_ns)))
  l:put_whole("  max " .. text.time(last.max_ns))
  if l.left < 12 then return end
  l:put("  p99 ")
  sparks(self, l)
end

-- screen(live, columns) -> the lines of the live view
function view:screen(live, columns)
  local lines = {}
  for i, draw in ipairs { progress_line, counts_line, latency_line } do
    local l = new_line(self, math.min(columns, COLUMNS_MAX))
    draw(self, l, live)
    lines[i] = table.concat(l)
  end
  return lines
end

-- point_line(point) -> the line of an interval of the run, where there is no terminal
function view.point_line(p)
  local function time(ns) return p.max_ns > 0 and text.time(ns) or "-" end
  return string.format("%5ss  %s requests/s  p50 %s  p99 %s  max %s  errors %d%s\n", text.fixed(p.to_ns / 1e9, 0),
    text.fixed(p.requests * 1e9 / (p.to_ns - p.from_ns), 0), time(p.p50_ns), time(p.p99_ns), time(p.max_ns), p.errors,
    p.failed_status > 0 and "  status 400+ " .. p.failed_status or "")
end

-- ---- drawing -------------------------------------------------------------------------------------------------------

-- The columns of a line: its characters without the color sequences.
local function width_of(bytes) return select(2, bytes:gsub("\27[^m]*m", ""):gsub("[^\x80-\xbf]", "")) end

local function to_first_line(self, columns)
  local up, folded = 0, false
  for _, width in ipairs(self.widths) do
    local folds = math.max((width + columns - 1) // columns, 1) -- a line that is too wide takes several lines
    folded = folded or folds > 1
    up = up + folds
  end
  return up == 0 and "" or "\27[" .. up .. "A\r" .. (folded and "\27[J" or "")
end

-- draw(live, point): after each sample; `point` is the interval that it has closed, or nil.
function view:draw(live, point)
  local terminal = self.terminal
  if point then
    self.last = point
    self.p99[#self.p99 + 1] = point.p99_ns
  end
  if not terminal.is then
    if point then terminal.write(view.point_line(point)) end
    return
  end
  local columns = terminal.columns()
  -- The last column stays empty: a terminal may fold a line that fills it.
  local lines, parts = self:screen(live, math.max(columns - 1, 1)), { to_first_line(self, columns) }
  for i, bytes in ipairs(lines) do
    parts[i + 1] = bytes .. "\27[K\r\n"
    self.widths[i] = width_of(bytes)
  end
  terminal.write(table.concat(parts))
end

-- close(): remove the view from the terminal, so that the report replaces it. May be called twice.
function view:close()
  if #self.widths > 0 then self.terminal.write(to_first_line(self, self.terminal.columns()) .. "\27[J") end
  self.widths = {}
end

return view
