-- cron.lua - ls.cron: functions at times of a calendar, once for the server, or once for all servers with Redis or PostgreSQL.
--
-- A timer of the first state looks at the clock each second. Each time is claimed in a dict, which has the last one of each
-- line: of the server, so that a reload runs none twice and misses none; of a file with `catch_up`, so that a restart does
-- not; in the Redis of ls.config. With the option `postgres` a row of the table luaserve_cron is that entry.
--
-- The times are those of a clock on the wall. One that a jump of the zone leaves out is the end of the jump; one that comes
-- twice is the first. A line for each hour follows the hours that pass: it runs in both.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
local zones = require "luaserve.zone"
local date = require "luaserve.date"

local floor, min, max = math.floor, math.min, math.max
local ipairs, pairs, pcall, tonumber, tostring, type = ipairs, pairs, pcall, tonumber, tostring, type
local time = os.time -- that of test.clock in tests

local cron = {}

local DAY <const> = 86400
local DAYS_MAX <const> = 9 * 366 -- to the next 29 February, over a year such as 2100
local LATE_S <const> = 60 -- a time that begins later is missed
local COUNT_MAX <const> = 10000 -- of missed times that are counted

local cron_options = {
  zone = { "zone", "text", 'a time zone, such as "Europe/Berlin", "UTC" or "local"' }, -- default "local"
  catch_up = { "catch_up", "flag", nil, nil, false }, -- run once if times were missed, also while the server did not run
  postgres = true, -- string|PostgresPool - a URL or a pool: once for all servers that use this database
}
cron.calls = { ["ls.cron"] = { cron_options } } -- CronOptions

-- ---- the line ----------------------------------------------------------------------------------------------------------

local names <const> = {
  { "minute", 0, 59 }, { "hour", 0, 23 }, { "day of the month", 1, 31 },
  { "month", 1, 12, { jan = 1, feb = 2, mar = 3, apr = 4, may = 5, jun = 6, jul = 7, aug = 8, sep = 9, oct = 10, nov = 11, dec = 12 } },
  { "day of the week", 0, 7, { sun = 0, mon = 1, tue = 2, wed = 3, thu = 4, fri = 5, sat = 6 } },
}
local nicknames <const> = {
  ["@yearly"] = "0 0 1 1 *", ["@annually"] = "0 0 1 1 *", ["@monthly"] = "0 0 1 * *", ["@weekly"] = "0 0 * * 0",
  ["@daily"] = "0 0 * * *", ["@midnight"] = "0 0 * * *", ["@hourly"] = "0 * * * *",
}

-- The values of a field as a set, and whether it is restricted; nil and what is wrong.
local function field_of(text, field)
  local what, least, most, words = table.unpack(field, 1, 4)
  local set = {}
  local function number(word)
    local value = words and words[word:lower()] or word:find("^%d+$") and tonumber(word)
    return value and value >= least and value <= most and value
  end
  for part in (text .. ","):gmatch("([^,]*),") do
    local range, step = part:match("^([^/]*)/?(.*)$")
    local from, to = range:match("^([^-]+)-([^-]+)$")
    if range == "*" then
      from, to = least, what == "day of the week" and 6 or most
    elseif from then
      from, to = number(from), number(to)
    else
      from = number(range)
      to = from and (step ~= "" and most or from)
    end
    local by = step == "" and 1 or step:find("^%d+$") and tonumber(step)
    if by and step ~= "" and by > most - least then
      return nil, ("the step of the %s is at most %d; got %q: a longer time is a line of its own, or ls.every(seconds, fn)"):format(what,
        most - least, text)
    elseif not from or not to or from > to or not by or by < 1 or part:find("/$") then
      return nil, ("the %s must be *, or numbers from %d to %d%s, as in 1, 1-5, */2 or 1,3; got %q"):format(what, least, most,
        words and (" or names such as " .. (what == "month" and "jan" or "mon")) or "", text)
    end
    for value = from, to, by do set[what == "day of the week" and value % 7 or value] = true end
  end
  return set, text:sub(1, 1) ~= "*"
end

local function all(set, from, to)
  for value = from, to do if not set[value] then return false end end
  return true
end

-- parse(line) -> the fields of a line as sets | nil, what is wrong
function cron.parse(line)
  local list = {}
  for field in (nicknames[line:lower()] or line):gmatch("%S+") do list[#list + 1] = field end
  if line:find("^%s*@") and not nicknames[line:lower()] then
    return nil, "the names are @yearly, @monthly, @weekly, @daily and @hourly; ls.every(seconds, fn) repeats, ls.init(fn) is for the start; got "
      .. usage.quote(line)
  elseif #list ~= 5 then
    return nil, ('a line has five fields: minute, hour, day of the month, month, day of the week, as in "0 3 * * *"; got %d in %s')
      :format(#list, usage.quote(line))
  end
  local sets, restricted = {}, {}
  for i, field in ipairs(names) do
    local set, is_restricted = field_of(list[i], field)
    if not set then return nil, is_restricted end
    sets[i], restricted[i] = set, is_restricted
  end
  return { minutes = sets[1], hours = sets[2], days = sets[3], months = sets[4], weekdays = sets[5],
    either = restricted[3] and restricted[5], -- of both days one suffices
    each_hour = all(sets[2], 0, 23) }
end

local function day_matches(fields, day) -- days since 1970
  local at = os.date("!*t", day * DAY)
  if not fields.months[at.month] then return false end
  local by_day, by_weekday = fields.days[at.day] or false, fields.weekdays[at.wday - 1] or false
  if fields.either then return by_day or by_weekday end
  return by_day and by_weekday
end

-- The time of this local one: the first of two; the end of the jump that leaves it out.
local function utc_of(offset_at, here)
  local before, after = offset_at(here - DAY), offset_at(here + DAY)
  local early, late = here - max(before, after), here - min(before, after)
  if offset_at(early) == here - early then return early end
  if offset_at(late) == here - late then return late end
  local low, high, first = early, late, offset_at(early)
  while high - low > 1 do
    local middle = (low + high) // 2
    if offset_at(middle) == first then low = middle else high = middle end
  end
  return high
end

-- next(fields, offset_at, after) -> the first time after this one, in seconds since 1970 | nil: no day matches
function cron.next(fields, offset_at, after)
  local first = (after + offset_at(after)) // DAY
  for day = first - 1, first + DAYS_MAX do -- a jump may lead to the day before
    if day_matches(fields, day) then
      if fields.each_hour then
        local begins = day * DAY - offset_at(day * DAY - offset_at(day * DAY))
        local at = max(after // 60 * 60 + 60, (begins - 3 * 3600) // 60 * 60)
        while at < begins + DAY + 3 * 3600 do
          local here = at + offset_at(at)
          if here // DAY == day and fields.minutes[here // 60 % 60] then return at end
          at = at + 60
        end
      else
        for hour = 0, 23 do
          for minute = 0, fields.hours[hour] and 59 or -1 do
            local at = fields.minutes[minute] and utc_of(offset_at, day * DAY + hour * 3600 + minute * 60)
            if at and at > after then return at end
          end
        end
      end
    end
  end
  return nil
end

-- ---- the timer ---------------------------------------------------------------------------------------------------------

local entries = {} -- of this site
local places = {} -- how often a file has a line

local function log(entry, level, text) core.log(level, ("cron %q at %s: %s"):format(entry.line, entry.place, text)) end

-- The last time of the line in PostgreSQL, or nil.
local function last_row(entry)
  if not entry.made then
    entry.pool:transaction(function(tx)
      tx:one("select pg_advisory_xact_lock(5001, 5434)") -- two servers at once would both make the table
      tx:exec("create table if not exists luaserve_cron (line text primary key, last bigint not null)")
    end)
    entry.made = true
  end
  local row = entry.pool:one("select last from luaserve_cron where line = $1", entry.key)
  return row and row.last
end

-- claim(entry, at) -> whether this site is to run it at this time
local function claim(entry, at)
  local won
  if entry.pool then
    return entry.pool:one([[insert into luaserve_cron as known (line, last) values ($1, $2) on conflict (line) do update
      set last = excluded.last where known.last < excluded.last returning last]], entry.key, at) ~= nil
  end
  entry.dict:update(entry.key, function(last)
    won = (last or 0) < at
    return won and at or last
  end)
  return won
end

local function run(entry)
  if not entry.gate:acquire(0) then
    log(entry, "warn", "this time is left out, because the run before has not ended")
    return
  end
  local _ <close> = setmetatable({}, { __close = function() entry.gate:release() end })
  local result, message, code = entry.fn()
  if result == nil and code then log(entry, "warn", "it has returned nil, which nothing looks at: " .. tostring(message)) end
end

local function open_dict(entry)
  local topics = package.loaded["luaserve.redis_topics"]
  local shared, client = pcall(topics and topics.client_of or error, "ls.cron", true)
  local given = shared and { redis = client } or entry.catch_up and { file = require("luaserve").data .. "/cron.dict", sync = true } or nil
  entry.dict = require("luaserve.dict").open(shared and "luaserve.cron.redis" or given and "luaserve.cron.file" or "luaserve.cron", given)
end

local function begin(entry, now)
  if not entry.pool and not entry.dict then open_dict(entry) end
  local last
  if entry.pool then last = last_row(entry) else last = entry.dict:get(entry.key) end
  if not last then claim(entry, now) end
  entry.at = cron.next(entry.fields, entry.offset_at, min(last or now, now))
end

-- Whether a time that was missed is to be made up for.
local function missed(entry, now)
  local count, at = 0, entry.at
  while at and at <= now and count < COUNT_MAX do
    count, entry.last = count + 1, at
    at = cron.next(entry.fields, entry.offset_at, at)
  end
  local more = count == COUNT_MAX and "more than " or ""
  if more ~= "" then entry.last = now end
  if now - entry.last <= LATE_S then count = count - 1 end -- the last one is not late
  if count == 0 then return true end
  local runs = entry.catch_up or now - entry.last <= LATE_S
  log(entry, "warn", ("%s%d time%s missed since %s: %s"):format(more, count, count == 1 and " was" or "s were", date.iso(entry.at),
    runs and "it runs once now" or "to run it once for these, give catch_up = true"))
  return runs
end

local function look(entry)
  local now = time()
  if not entry.at then begin(entry, now) end
  if not entry.at or entry.at > now then return end
  entry.last = entry.at
  local runs = missed(entry, now)
  if claim(entry, entry.last) and runs then core.spawn_limited(0, run, entry) end
  entry.at = cron.next(entry.fields, entry.offset_at, entry.last)
end

local said = {}
local function look_at_all()
  for _, entry in ipairs(entries) do
    local ok, message = pcall(look, entry)
    if not ok and said[entry] ~= message then log(entry, "error", "it waits: " .. tostring(message)) end
    said[entry] = not ok and message or nil
  end
end

-- ls.cron(line: string, fn: fun() [, options: CronOptions])
-- Calls a function at the times of a line of cron, such as `"0 3 * * *"`: minute, hour, day of the month, month, day of the week.
-- Once for the server; once for all servers with the Redis of ls.config, or with `postgres`. Only while the site loads.
function cron.add(line, fn, given, ...)
  local call <const> = "ls.cron"
  usage.check(line, "string", '%s: the first argument must be a line such as "0 3 * * *" or "@daily"', call)
  usage.check(fn, "function", "%s: the second argument must be a function", call)
  usage.check(given, "table?", '%s: options must be a table such as { zone = "Europe/Berlin" }', call)
  usage.no_more("ls.cron(line, fn, options)", given, ...)
  local out = options.take(call, given or {}, cron.calls[call], { zone = "local" })
  local fields, wrong = cron.parse(line)
  if not fields then usage.error("%s: %s", call, wrong) end
  local offset_at = zones.find(out.zone)
  if not offset_at then
    usage.error('%s: there is no time zone %s in /usr/share/zoneinfo: zone is such as "Europe/Berlin", "UTC" or "local"', call,
      usage.quote(out.zone))
  elseif not cron.next(fields, offset_at, time()) then
    usage.error("%s: %s is never: no such day comes", call, usage.quote(line))
  end
  if core.thread() ~= 0 then
    usage.error("%s: call it while the site loads, at the top of the file: there each time is once for the server", call)
  end
  local pool = given and given.postgres ~= nil and require("luaserve.postgres").pool_of(call, given.postgres) or nil
  local place = usage.where()
  local key = place:gsub(":%d+$", ""):match("[^/\\]*$") .. " " .. out.zone .. " " .. line
  places[key] = (places[key] or 0) + 1
  key = key .. " " .. places[key]
  local entry = { line = line, place = place, key = key, fn = fn, fields = fields, offset_at = offset_at, catch_up = out.catch_up, pool = pool,
    gate = core.semaphore("luaserve.cron " .. core.cache_name(key):sub(1, 40), 1, place) }
  entries[#entries + 1] = entry
  if #entries == 1 then core.every(1, look_at_all) end
end

return cron
