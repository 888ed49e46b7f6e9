-- ls.date: dates of RFC 3339 in Lua; those of HTTP are the core's. ls.env.
local check = require "check"
local date = require "luaserve.date"
local ls = require "luaserve"

local tests = {}

function tests.iso_is_the_reverse_of_parse()
  for seconds, text in pairs {
    [0] = "1970-01-01T00:00:00Z", [784111777] = "1994-11-06T08:49:37Z", [-1] = "1969-12-31T23:59:59Z",
    [951782400] = "2000-02-29T00:00:00Z", [951868800] = "2000-03-01T00:00:00Z", [4107542400] = "2100-03-01T00:00:00Z",
    [-62135596800] = "0001-01-01T00:00:00Z", [253402300799] = "9999-12-31T23:59:59Z", [0.5] = "1970-01-01T00:00:00.500Z",
    [-0.25] = "1969-12-31T23:59:59.750Z", [1.9996] = "1970-01-01T00:00:01.999Z",
  } do
    check.equal({ seconds, date.iso(seconds) }, { seconds, text })
    local parsed = date.parse(text)
    check.equal({ text, date.iso(parsed), math.type(parsed) == "integer" }, { text, text, seconds % 1 == 0 })
  end
end

function tests.every_day_of_four_centuries()
  local days, lengths = -135140, { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 } -- 1600-01-01
  for year = 1600, 1999 do
    local leap = year % 4 == 0 and (year % 100 ~= 0 or year % 400 == 0)
    for month = 1, 12 do
      for day = 1, lengths[month] + (leap and month == 2 and 1 or 0) do
        local text = ("%04d-%02d-%02d"):format(year, month, day)
        check.equal(date.parse(text), days * 86400)
        check.equal(date.iso(days * 86400), text .. "T00:00:00Z")
        days = days + 1
      end
    end
  end
  check.equal(days, 10957)
end

function tests.parse_takes_what_rfc_3339_has()
  for text, seconds in pairs {
    ["1994-11-06T09:49:37+01:00"] = 784111777, ["1994-11-06t03:19:37-05:30"] = 784111777,
    ["1994-11-06 09:49:37.5+01"] = 784111777.5,
    ["1994-11-06 08:49:37z"] = 784111777, ["1994-11-06T08:49:37.0Z"] = 784111777,
    ["1994-11-06T08:49:37.25Z"] = 784111777.25,
    ["1994-11-06"] = 784080000, ["1990-12-31T23:59:60Z"] = 662688000, ["http 5"] = 5,
  } do
    check.equal({ text, date.parse(text) }, { text, seconds })
  end
  for _, text in ipairs {
    "", "1994", "1994-11", "1994-13-01", "1994-00-01", "1994-11-00", "1994-11-31", "1995-02-29", "1900-02-29", "0000-01-01",
    "1994-11-06T", "1994-11-06T08:49Z", "1994-11-06T08:49:37", "1994-11-06T24:00:00Z", "1994-11-06T08:60:37Z",
    "1994-11-06T08:49:61Z", "1994-11-06T08:49:37.Z", "1994-11-06T08:49:37+1:00", "1994-11-06T08:49:37+24:00",
    "1994-11-06T08:49:37+0100", "1994-11-06T08:49:37+01:60", "1994-11-06T08:49:37Z ", " 1994-11-06", "94-11-06",
  } do
    check.equal({ date.parse(text) }, { nil, ("invalid date %q"):format(text), "EINVAL" })
  end
end

function tests.wrong_arguments_raise()
  check.equal(date.http(5.9), "http 5")
  check.raises({ check.line(), "ls.date.iso takes seconds since 1970" }, function() date.iso("5") end)
  check.raises("of the years 1 to 9999", date.iso, 253402300800)
  check.raises("of the years 1 to 9999", date.iso, -62135596801)
  check.raises("of the years 1 to 9999", date.http, 0 / 0)
  check.raises("too many arguments for ls.date.http(seconds)", date.http, 1, 2)
  check.raises({ check.line(), "ls.date.parse takes a string; got 5" }, function() date.parse(5) end)
  check.equal(date.iso():match("^%d%d%d%d%-"), os.date("!%Y-"))
end

function tests.env_has_a_default_or_raises()
  check.equal(ls.env "PATH", os.getenv "PATH")
  check.equal(ls.env("LUASERVE_NO_SUCH", 5), 5)
  check.equal(ls.env("LUASERVE_NO_SUCH", false), false)
  check.equal(ls.env("LUASERVE_NO_SUCH", nil), nil)
  check.equal(ls.env("LUASERVE_ENV"), os.getenv "LUASERVE_ENV" or "production")
  check.raises({ check.line(1), "ls.env: the environment variable LUASERVE_NO_SUCH is not set; set it, or give a default: "
    .. 'ls.env("LUASERVE_NO_SUCH", default)' }, function() ls.env "LUASERVE_NO_SUCH" end)
  check.raises('ls.env takes the name of a variable, such as "DATABASE_URL"; got ""', ls.env, "")
  check.raises("got 5", ls.env, 5)
  check.raises("too many arguments", ls.env, "PATH", 1, 2)
end

return tests
