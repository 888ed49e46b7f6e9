-- cron.lua and zone.lua: lines, the times that follow, the jumps of time zones, rules of TZ.
local check = require "check"
local cron = require "luaserve.cron"
local date = require "luaserve.date"
local zone = require "luaserve.zone"

local utc, berlin = zone.find "UTC", zone.rule_of "CET-1CEST,M3.5.0,M10.5.0/3"

-- The next times of a line after this one, as texts.
local function times(line, offset_at, after, count)
  local fields, at, list = assert(cron.parse(line)), assert(date.parse(after)), {}
  for i = 1, count do
    at = cron.next(fields, offset_at, at)
    list[i] = at and date.iso(at):sub(1, 16) or "never"
  end
  return table.concat(list, " ")
end

return {
  lines = function()
    for _, case in ipairs {
      { "* * * * *", "2026-01-01T00:00 2026-01-01T00:01" }, { "*/20 3 * * *", "2026-01-01T03:00 2026-01-01T03:20" },
      { "5-9/2 0 * * *", "2026-01-01T00:05 2026-01-01T00:07" }, { "0 0 29 2 *", "2028-02-29T00:00 2032-02-29T00:00" },
      { "0 0 13 * fri", "2026-01-02T00:00 2026-01-09T00:00" }, { "0 0 * * 7", "2026-01-04T00:00 2026-01-11T00:00" },
      { "0 0 * * 5-7", "2026-01-02T00:00 2026-01-03T00:00" }, { "0 0 1 JAN,jul *", "2026-01-01T00:00 2026-07-01T00:00" },
      { "30 4/8 * * *", "2026-01-01T04:30 2026-01-01T12:30" }, { "@daily", "2026-01-01T00:00 2026-01-02T00:00" },
      { "@Yearly", "2026-01-01T00:00 2027-01-01T00:00" }, { "@weekly", "2026-01-04T00:00 2026-01-11T00:00" },
      { " 0  12\t* * mon-fri ", "2026-01-01T12:00 2026-01-02T12:00" }, { "59 23 31 12 *", "2026-12-31T23:59 2027-12-31T23:59" },
      { "0 0 30 2 *", "never" },
    } do
      check.equal({ case[1], times(case[1], utc, "2025-12-31T23:59:59Z", case[2] == "never" and 1 or 2) }, case)
    end
  end,

  wrong_lines = function()
    for line, message in pairs {
      [""] = "a line has five fields: minute, hour", ["0 3 * *"] = "got 4", ["0 3 * * * *"] = "got 6", ["@dayly"] = "the names are @yearly",
      ["60 * * * *"] = "the minute must be *, or numbers from 0 to 59", ["* 24 * * *"] = "the hour must be", ["* * 0 * *"] = "the day of the month must be",
      ["* * * 13 *"] = "the month must be *, or numbers from 1 to 12 or names such as jan", ["* * * * 8"] = "or names such as mon, as in 1, 1-5",
      ["5-1 * * * *"] = "the minute must", ["*/0 * * * *"] = "the minute must", ["*/90 * * * *"] = "the step of the minute is at most 59",
      ["0 */24 * * *"] = "the step of the hour is at most 23", ["0 0 */60 * *"] = "the step of the day of the month is at most 30", ["1, * * * *"] = "the minute must", ["1/ * * * *"] = "the minute must",
      ["-1 * * * *"] = "the minute must", ["a * * * *"] = "the minute must", ["* * L * *"] = "the day of the month must", ["* * * * mon#1"] = "the day of the week must",
    } do
      local fields, wrong = cron.parse(line)
      check.equal({ line, fields, wrong:find(message, 1, true) ~= nil }, { line, nil, true })
    end
  end,

  a_time_that_a_jump_leaves_out_is_its_end = function()
    check.equal(times("30 2 * * *", berlin, "2026-03-28T12:00:00Z", 2), "2026-03-29T01:00 2026-03-30T00:30")
    check.equal(times("*/15 2 29 3 *", berlin, "2026-03-28T12:00:00Z", 2), "2026-03-29T01:00 2027-03-29T00:00")
    check.equal(times("0 * * * *", berlin, "2026-03-28T23:59:00Z", 3), "2026-03-29T00:00 2026-03-29T01:00 2026-03-29T02:00")
  end,

  a_time_that_comes_twice_is_the_first = function()
    check.equal(times("30 2 * * *", berlin, "2026-10-24T12:00:00Z", 2), "2026-10-25T00:30 2026-10-26T01:30")
    check.equal(times("30 * * * *", berlin, "2026-10-24T23:59:00Z", 3), "2026-10-25T00:30 2026-10-25T01:30 2026-10-25T02:30")
  end,

  rules_of_tz = function()
    local function offsets(rule, ...)
      local offset_at, list = zone.rule_of(rule), {}
      for i, text in ipairs { ... } do list[i] = offset_at(date.parse(text)) end
      return list
    end
    check.equal(offsets("EST5EDT,M3.2.0,M11.1.0", "2026-03-08T06:59:59Z", "2026-03-08T07:00:00Z", "2026-11-01T05:59:59Z", "2026-11-01T06:00:00Z"),
      { -18000, -14400, -14400, -18000 })
    check.equal(offsets("<+1030>-10:30<+11>-11,M10.1.0,M4.1.0", "2026-01-01T00:00:00Z", "2026-07-01T00:00:00Z"), { 39600, 37800 }) -- south
    check.equal(offsets("JST-9", "2026-01-01T00:00:00Z"), { 32400 })
    check.equal(offsets("AAA3BBB,J60/0,300", "2026-02-28T00:00:00Z", "2026-03-01T03:00:00Z", "2028-03-01T02:59:59Z", "2026-12-01T00:00:00Z"),
      { -10800, -7200, -10800, -10800 })
    for _, wrong in ipairs { "", "A", "1", "CET", "CET-1CEST", "CET-1CEST,M3.5.0", "CET-1CEST,x,y" } do check.equal(zone.rule_of(wrong), nil) end
  end,

  zone_files = function()
    local function file(version, width, transitions, footer)
      local form = width == 8 and ">i8" or ">i4"
      local parts = { "TZif", version, ("\0"):rep(15), (">I4I4I4I4I4I4"):pack(0, 0, 0, #transitions, 2, 4) }
      for _, at in ipairs(transitions) do parts[#parts + 1] = form:pack(at) end
      for i in ipairs(transitions) do parts[#parts + 1] = string.char(i % 2) end
      parts[#parts + 1] = (">i4BB"):pack(3600, 0, 0) .. (">i4BB"):pack(7200, 1, 0) .. "CET\0"
      return table.concat(parts) .. (footer and "\n" .. footer .. "\n" or "")
    end
    local old = file("\0", 4, { 100, 200 })
    local both = file("2", 4, {}) .. file("2", 8, { 100, 200 }, "XXX-5")
    for _, case in ipairs { { old, { 3600, 7200, 7200, 3600 } }, { both, { 3600, 7200, 7200, 18000 } } } do
      local offset_at = zone.parse(case[1])
      check.equal({ offset_at(99), offset_at(100), offset_at(199), offset_at(200) }, case[2])
    end
    for n = 0, #old - 1 do check.equal(zone.parse(old:sub(1, n)), nil) end
    check.equal(zone.parse(("x"):rep(100)), nil)
    for _, name in ipairs { "../../etc/passwd", "/etc/passwd", "No/Such", "" } do check.equal(zone.find(name), nil) end
  end,
}
