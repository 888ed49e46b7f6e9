-- The lines of the live view of luaserve stress in windows of every width. tests/e2e/test_stress_view.py shows them on a
-- terminal.

local check = require "check"
local view = require "luaserve.stress.view"

local tests = {}

local SECOND = 1000000000

local function plan(more)
  local p = { duration_ns = 10 * SECOND, requests = 0, rate = 0, stages = {} }
  for name, value in pairs(more or {}) do p[name] = value end
  return p
end

local function live(more)
  local figures = { elapsed_ns = 0, requests = 0, errors = 0, failed_status = 0, checks_failed = 0, ended = 0,
    connections = 0, rate = 0 }
  for name, value in pairs(more) do figures[name] = value end
  return figures
end

local function point(to_s, ns, requests)
  return { from_ns = (to_s - 1) * SECOND, to_ns = to_s * SECOND, requests = requests or 1000, errors = 0, failed_status = 0,
    p50_ns = ns, p99_ns = ns, max_ns = ns }
end

-- A view that draws nowhere, after these intervals.
local function view_after(p, terminal, points)
  terminal.write = function() end
  local v = view.open(p, terminal)
  for _, one in ipairs(points or {}) do v:draw(live {}, one) end
  return v
end

-- The columns of a line on a terminal: without color sequences; a character of several bytes is one column.
local function columns_of(line) return utf8.len((line:gsub("\27[^m]*m", ""))) end

function tests.never_wider_than_the_window()
  local points = {}
  for i = 1, 9 do points[i] = point(i, 200000 * i) end
  for variant = 0, 3 do
    local utf8_on, color = variant & 1 ~= 0, variant & 2 ~= 0
    local v = view_after(plan { rate = 4000 }, { utf8 = utf8_on, color = color }, points)
    local figures = live { elapsed_ns = 9 * SECOND, requests = 123456, errors = 123456, connections = 64, rate = 3999.6,
      failed_status = 12, checks_failed = 3 }
    for columns = 1, 250 do
      local lines = v:screen(figures, columns)
      check.equal(#lines, 3)
      local all = table.concat(lines)
      for _, line in ipairs(lines) do
        if columns_of(line) > columns then error(columns .. " columns: " .. line) end
      end
      check.equal(all:find("\27[0m", 1, true) ~= nil, color)
      if not color then check.equal(all:find("\27"), nil) end
      if not utf8_on then check.equal(all:find("[\x80-\xff]"), nil) end
    end
  end
end

function tests.the_view_shows_the_live_figures()
  local v = view_after(plan(), {}, { point(1, 250000), point(2, 250000) })
  local figures = live { elapsed_ns = 2500000000, requests = 2500, failed_status = 100, rate = 1000.0 }
  check.equal(v:screen(figures, 90), {
    "[============>                                       ]  25%  2.5s of 10.0s, 7.5s left",
    "1000/s  0 errors, 100 with status 400+  2500 requests  0 connections", "p50 250us  p99 250us  max 250us  p99 ##",
  })
  check.equal(view.point_line(point(2, 250000)), "    2s  1000 requests/s  p50 250us  p99 250us  max 250us  errors 0\n")
  local idle = point(3, 0, 0)
  idle.failed_status = 2
  check.equal(view.point_line(idle), "    3s  0 requests/s  p50 -  p99 -  max -  errors 0  status 400+ 2\n")
end

function tests.the_first_second_has_no_latency()
  local v = view_after(plan { duration_ns = 0, requests = 300 }, {})
  check.equal(v:screen(live { elapsed_ns = SECOND // 10, requests = 100, ended = 100, rate = 1000.0 }, 30),
    { " 33%  0.1s", "1000/s  0 errors  100 requests", "latency: shown after 1 s" })
end

-- 100 deliveries of each message: its progress is that of the messages.
function tests.the_progress_of_a_fan_out_run()
  local v = view_after(plan { duration_ns = 0, requests = 40, rate = 10, fanout = true }, {})
  local lines = v:screen(live { elapsed_ns = SECOND, requests = 1000, ended = 10, rate = 1000.0 }, 90)
  check.equal({ lines[1]:match("%].*"), lines[2] }, { "]  25%  1.0s", "1000/s  0 errors  1000 requests  0 connections" })
end

-- Without a terminal there is one line for each interval; on one the lines are drawn over the last ones.
function tests.drawing()
  local out = {}
  local terminal = { write = function(text) out[#out + 1] = text end, columns = function() return 81 end }
  local v = view.open(plan(), terminal)
  v:draw(live {})
  v:draw(live {}, point(1, 250000))
  v:close()
  check.equal(out, { view.point_line(point(1, 250000)) })
  out, terminal.is = {}, true
  v = view.open(plan(), terminal)
  v:draw(live {})
  v:draw(live {})
  terminal.columns = function() return 20 end -- narrower: the first line takes four, the second two, the third two
  v:draw(live {})
  v:close()
  v:close()
  check.equal({ #out, out[1]:find("\27[3A", 1, true), out[2]:sub(1, 5), out[3]:sub(1, 7), out[4] },
    { 4, nil, "\27[3A\r", "\27[8A\r\27[", "\27[3A\r\27[J" })
end

return tests
