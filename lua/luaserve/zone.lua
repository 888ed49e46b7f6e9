-- zone.lua - time zones: the offset from UTC at a time, from the system's zone files (TZif, RFC 8536). Pure but for the files.

local floor, open, unpack = math.floor, io.open, string.unpack
local days_of = require("luaserve.date").days_of

local zone = {}

local DAY <const> = 86400
local FOLDERS <const> = { "/usr/share/zoneinfo/", "/usr/lib/zoneinfo/", "/usr/share/lib/zoneinfo/" }

-- ---- the rule after the last transition: a TZ string of POSIX, such as CET-1CEST,M3.5.0,M10.5.0/3 ----------------------

-- "2", "-3:30", "+02:00:00" -> seconds, the rest of the text
local function seconds_of(text)
  local sign, hours, minutes, seconds, rest = text:match("^([+-]?)(%d+):?(%d*):?(%d*)(.*)$")
  if not hours then return nil, text end
  return (hours * 3600 + (tonumber(minutes) or 0) * 60 + (tonumber(seconds) or 0)) * (sign == "-" and -1 or 1), rest
end

local function name_of(text) return text:match("^<[^>]+>(.*)$") or text:match("^%a%a%a+(.*)$") end

-- A function: the seconds of a year at which the change is, from its beginning, in local time.
local function change_of(text)
  local day, time = text:match("^([^/]+)/?(.*)$")
  local at = time and time ~= "" and seconds_of(time) or 7200
  local month, week, weekday = (day or ""):match("^M(%d+)%.(%d+)%.(%d+)$")
  if month then
    month, week, weekday = month // 1 | 0, week // 1 | 0, weekday // 1 | 0
    return function(year)
      local first = days_of(year, month, 1)
      local last = (month == 12 and days_of(year + 1, 1, 1) or days_of(year, month + 1, 1)) - 1
      local found = first + (weekday - (first + 4)) % 7 + (week - 1) * 7 -- 1970-01-01 was a Thursday
      if found > last then found = found - 7 end
      return found * DAY + at
    end
  end
  local julian, number = (day or ""):match("^(J?)(%d+)$")
  if not number then return nil end
  return function(year)
    local start, n = days_of(year, 1, 1), number // 1 | 0
    local leap = days_of(year, 2, 29) ~= nil
    if julian == "J" then n = n - 1 + (leap and n >= 60 and 1 or 0) end
    return (start + n) * DAY + at
  end
end

-- rule_of(text) -> offset_at(time), or nil for a text that is no rule
function zone.rule_of(text)
  local rest = name_of(text)
  local standard, summer
  if not rest then return nil end
  standard, rest = seconds_of(rest)
  if not standard then return nil end
  standard = -standard
  if rest == "" then return function() return standard end end
  rest = name_of(rest)
  if not rest then return nil end
  summer, rest = seconds_of(rest)
  summer = summer and -summer or standard + 3600
  local from, to = rest:match("^,([^,]+),([^,]+)$")
  local begins, ends = change_of(from or ""), change_of(to or "")
  if not begins or not ends then return nil end
  return function(time)
    local year = 1970 + floor((time + standard) / (365.2425 * DAY)) -- or one off near its ends, where none changes
    for y = year - 1, year + 1 do
      if days_of(y, 1, 1) * DAY <= time + standard and time + standard < days_of(y + 1, 1, 1) * DAY then year = y end
    end
    local first, last = begins(year) - standard, ends(year) - summer
    local is_summer
    if first < last then is_summer = time >= first and time < last else is_summer = time >= first or time < last end
    return is_summer and summer or standard
  end
end

-- ---- the file ----------------------------------------------------------------------------------------------------------

-- The counts of a header, and the place after it.
local function header(data, at)
  local counts = { unpack(">I4I4I4I4I4I4", data, at + 20) } -- ut, std, leap, time, type, char
  return counts, at + 44
end

local function body_bytes(counts, width)
  return counts[4] * (width + 1) + counts[5] * 6 + counts[6] + counts[3] * (width + 4) + counts[2] + counts[1]
end

-- parse(data) -> offset_at(time) | nil, for data that are no zone file
function zone.parse(data)
  if data:sub(1, 4) ~= "TZif" or #data < 44 then return nil end
  local counts, at = header(data, 1)
  local width, form = 4, ">i4"
  if data:byte(5) >= 50 then -- version 2 and later: the same with 64 bits follows
    local next_at = at + body_bytes(counts, 4)
    if data:sub(next_at, next_at + 3) ~= "TZif" then return nil end
    counts, at = header(data, next_at)
    width, form = 8, ">i8"
  end
  if #data < at + body_bytes(counts, width) - 1 then return nil end
  local times, offsets, count = {}, {}, counts[4]
  local types_at = at + count * width
  local kinds_at = types_at + count
  local function offset_of(kind) return (unpack(">i4", data, kinds_at + kind * 6)) end
  for i = 1, count do
    times[i] = unpack(form, data, at + (i - 1) * width)
    offsets[i] = offset_of(data:byte(types_at + i - 1))
  end
  local first = counts[5] > 0 and offset_of(0) or 0
  local footer = width == 8 and data:sub(at + body_bytes(counts, width)):match("^\n([^\n]*)\n")
  local rule = footer and footer ~= "" and zone.rule_of(footer)
  return function(time)
    if count == 0 or time < times[1] then return count == 0 and rule and rule(time) or first end
    if time >= times[count] then return rule and rule(time) or offsets[count] end
    local low, high = 1, count
    while high - low > 1 do
      local middle = (low + high) // 2
      if times[middle] <= time then low = middle else high = middle end
    end
    return offsets[low]
  end
end

local function read(path)
  local file = open(path, "rb")
  local data = file and file:read("a")
  if file then file:close() end
  return data and zone.parse(data)
end

-- By the C library, for systems without zone files.
local function of_system(time)
  local there, here = os.date("!*t", time), os.date("*t", time)
  here.isdst = false
  return os.time(here) - os.time(there)
end

local known = { UTC = function() return 0 end }

-- find(name) -> offset_at(time) -> seconds to add to UTC | nil: there is no such zone. name: "UTC", "local" or such as
-- "Europe/Berlin".
function zone.find(name)
  if known[name] then return known[name] end
  local found
  if name == "local" then
    local given = os.getenv "TZ"
    local file = given and given:match("^:?(.*)$")
    if file == "" then return known.UTC end
    found = file and (file:sub(1, 1) == "/" and read(file) or zone.find(file) or zone.rule_of(file))
      or read "/etc/localtime" or of_system
  elseif name:find("^%a[%w_+/-]*$") then
    for _, folder in ipairs(FOLDERS) do found = found or read(folder .. name) end
  end
  known[name] = found
  return found
end

return zone
