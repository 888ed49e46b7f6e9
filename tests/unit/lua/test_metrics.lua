-- The page of the metrics has the tables of series that the modules have.
local check = require "check"
local metrics = require "luaserve.metrics"

local here = debug.getinfo(1, "S").source:match("^@(.*)/[^/]*$") or "."
local tests = {}

local function rows_of_page()
  local rows = {}
  for line in io.lines(here .. "/../../../lua/docs/reference/metrics.md") do
    local name, kind, rest = line:match("^| `([%w_]+)` | (%l+) | (.*) |$")
    if name and (kind == "counter" or kind == "gauge" or kind == "histogram") then
      rows[name] = { kind, rest:match("([^|]*)$"):gsub("^ ", ""), rest:match("^`([%w_]+)` |") }
    end
  end
  return rows
end

function tests.the_page_has_each_series_once()
  local page, count = rows_of_page(), 0
  local function compare(name, kind, help, stat)
    count = count + 1
    check.equal({ name, page[name] and page[name][1], page[name] and page[name][2] }, { name, kind, help })
    if stat then check.equal({ name, page[name][3] }, { name, stat }) end
    page[name] = nil
  end
  for _, row in ipairs(require "luaserve.metric_table") do compare("luaserve_" .. row[2], row[3], row[4], row[1]) end
  for _, family in ipairs(metrics.families) do compare(family[1], family[2], family[3]) end
  check.equal({ count > 60, next(page) }, { true, nil })
end

function tests.no_two_families_have_one_name_in_openmetrics()
  local seen = {}
  for name in pairs(rows_of_page()) do
    local base = name:gsub("_total$", "")
    check.equal({ base, seen[base] }, { base, nil })
    seen[base] = name
  end
end

function tests.labels_are_a_list()
  for _, labels in ipairs { { a = "b" }, { "a", b = "c" }, "a" } do
    check.raises('labels must be a list of names such as { "status" }', metrics.counter, { name = "n", help = "h", labels = labels })
  end
end

-- The status page and `luaserve top` get the numbers that are marked, and no others.
function tests.marked_numbers_are_those_that_are_shown()
  local used = {}
  for _, path in ipairs { "lua/page/status.js", "lua/luaserve/command/top.lua" } do
    for line in io.lines(here .. "/../../../" .. path) do
      for name in line:gmatch "%f[%w]s[tas]*%.([%l_%d]+)" do used[name] = true end
    end
  end
  for _, kind in ipairs { "sqlite", "postgres", "redis" } do used[kind .. "_connections"], used[kind .. "_waiting"] = true, true end
  used.running = true
  for _, row in ipairs(require "luaserve.metric_table") do check.equal({ row[1], row[5] }, { row[1], used[row[1]] }) end
end

return tests
