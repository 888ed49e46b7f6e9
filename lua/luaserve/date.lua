-- date.lua - ls.date: dates of HTTP (RFC 9110 section 5.6.7) and of RFC 3339, as seconds since 1970 in UTC.

local core = require "luaserve.core"
local usage = require "luaserve.usage"

local format, match = string.format, string.match
local floor, select, time, tonumber, type = math.floor, select, os.time, tonumber, type -- a site may replace the globals

-- ls.date is a Date: dates as text, and back.
local date = {}

local first, last = -62135596800, 253402300799 -- 0001-01-01 00:00:00 and 9999-12-31 23:59:59

local function check_seconds(call, seconds, ...)
  usage.no_more(call .. "(seconds)", seconds, ...)
  if seconds == nil then return time() end
  usage.refuse(type(seconds) ~= "number" or not (seconds >= first and seconds < last + 1), seconds,
    "%s takes seconds since 1970, as of os.time, of the years 1 to 9999", call)
  return seconds
end

-- ls.date.http([seconds: number]) -> text
-- The date of a header field: `"Sun, 06 Nov 1994 08:49:37 GMT"`; without an argument that of now. Fractions are cut off.
function date.http(seconds, ...)
  return core.http_date(floor(check_seconds("ls.date.http", seconds, ...)))
end

-- The calculation counts days from 0000-03-01, so that the leap day is the last one of a year. An era is the period of the
-- calendar: 400 years, 146,097 days; 719,468 days are those from 0000-03-01 to 1970-01-01.
local function date_of(days)
  days = days + 719468
  local era = days // 146097
  local day_of_era = days - era * 146097
  local year = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
  local day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
  local month = (5 * day_of_year + 2) // 153 -- from March; 153 days: five months of 31, 30, 31, 30, 31 days
  local day = day_of_year - (153 * month + 2) // 5 + 1
  month = month < 10 and month + 3 or month - 9
  return year + era * 400 + (month <= 2 and 1 or 0), month, day
end

-- The days from 1970-01-01 to a date; nil: the month has no such day. month: 1 to 12.
function date.days_of(year, month, day)
  local y, m = year, month
  if m <= 2 then y, m = y - 1, m + 12 end
  local days = 365 * y + y // 4 - y // 100 + y // 400 + (153 * (m - 3) + 2) // 5 + day - 1 - 719468
  return select(2, date_of(days)) == month and days or nil
end

-- ls.date.iso([seconds: number]) -> text
-- The date of RFC 3339, which is one of ISO 8601: `"1994-11-06T08:49:37Z"`, with milliseconds if there is a fraction;
-- without an argument that of now.
function date.iso(seconds, ...)
  seconds = check_seconds("ls.date.iso", seconds, ...)
  local ms = floor((seconds - floor(seconds)) * 1000)
  seconds = floor(seconds)
  local year, month, day = date_of(seconds // 86400)
  local rest = seconds % 86400
  return format("%04d-%02d-%02dT%02d:%02d:%02d%sZ", year, month, day, rest // 3600, rest // 60 % 60, rest % 60,
    ms > 0 and format(".%03d", ms) or "")
end

-- The seconds of a date of RFC 3339 (section 5.6), or of its part full-date; nil for another text.
local function parse_iso(text)
  local year, month, day, rest = match(text, "^(%d%d%d%d)%-(%d%d)%-(%d%d)(.*)$")
  if not year then return nil end
  year, month, day = tonumber(year), tonumber(month), tonumber(day)
  local days = year > 0 and month > 0 and month <= 12 and date.days_of(year, month, day)
  if not days then return nil end
  if rest == "" then return days * 86400 end
  local hour, minute, second, fraction, zone = match(rest, "^[Tt ](%d%d):(%d%d):(%d%d)(%.?%d*)(.+)$")
  if not hour or fraction == "." then return nil end
  hour, minute, second = tonumber(hour), tonumber(minute), tonumber(second)
  if hour > 23 or minute > 59 or second > 60 then return nil end
  local seconds = days * 86400 + hour * 3600 + minute * 60 + second
  if zone ~= "Z" and zone ~= "z" then
    if #zone == 3 then zone = zone .. ":00" end -- of PostgreSQL: +02
    local sign, hours, minutes = match(zone, "^([+-])(%d%d):(%d%d)$")
    hours, minutes = tonumber(hours), tonumber(minutes)
    if not sign or hours > 23 or minutes > 59 then return nil end
    seconds = seconds - (sign == "+" and 1 or -1) * (hours * 3600 + minutes * 60)
  end
  local part = fraction ~= "" and tonumber("0" .. fraction) or 0
  return part > 0 and seconds + part or seconds
end

-- ls.date.parse(text) -> seconds: number | nil, message, code
-- The seconds since 1970 of a date of HTTP, in each of its three formats, or of RFC 3339, such as
-- `"1994-11-06T09:49:37+01:00"` or `"1994-11-06"`, or of a timestamptz of PostgreSQL. EINVAL: another text.
function date.parse(text, ...)
  if type(text) ~= "string" then usage.error("ls.date.parse takes a string; got %s", usage.quote(text)) end
  usage.no_more("ls.date.parse(text)", text, ...)
  local seconds = core.http_date_parse(text) or parse_iso(text)
  if seconds then return seconds end
  return nil, "invalid date " .. usage.quote(text), "EINVAL"
end

return date
