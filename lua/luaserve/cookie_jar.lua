-- cookie_jar.lua - ls.cookie_jar: the cookies that servers have set, for the next requests of ls.fetch to them (RFC 6265).
--
-- The cookies of a domain are one entry: a list of { name =, value =, path =, ends = a time, secure =, host_only =,
-- at = when it was set }. The entries are in a table of the jar, or in a dict that all Lua states share.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local rules = require "luaserve.fetch_rules"
local days_of = require("luaserve.date").days_of
local trim = require("luaserve.text").trim

local concat, find, lower, match, sort = table.concat, string.find, string.lower, string.match, table.sort
local ipairs, setmetatable, time, tonumber, type = ipairs, setmetatable, os.time, tonumber, type

local cookie_jar = {}

local DOMAIN_COOKIES_MAX, COOKIE_BYTES_MAX, DOMAINS_MAX = 50, 4096, 1000
local forever = math.huge

-- ---- the field Set-Cookie ------------------------------------------------------------------------------------------

local months = { jan = 1, feb = 2, mar = 3, apr = 4, may = 5, jun = 6, jul = 7, aug = 8, sep = 9, oct = 10, nov = 11,
  dec = 12 }

-- A time of the attribute Expires, in the forms that servers have sent (RFC 6265 section 5.1.1). nil: it is not a date.
local function read_date(text)
  local hour, minute, second, day, month, year
  for token in text:gmatch("[%w:]+") do
    local h, m, s = match(token, "^(%d%d?):(%d%d?):(%d%d?)%f[%D]")
    if h and not hour then
      hour, minute, second = tonumber(h), tonumber(m), tonumber(s)
    elseif not day and find(token, "^%d%d?%f[%D]") then
      day = tonumber(match(token, "^%d+"))
    elseif not month and months[lower(token:sub(1, 3))] then
      month = months[lower(token:sub(1, 3))]
    elseif not year and find(token, "^%d%d%d?%d?%f[%D]") then
      year = tonumber(match(token, "^%d+"))
    end
  end
  if not (hour and day and month and year) then return nil end
  if year < 70 then year = year + 2000 elseif year < 100 then year = year + 1900 end
  local days = days_of(year, month, day)
  if not days or year < 1601 or hour > 23 or minute > 59 or second > 59 then return nil end
  return days * 86400 + hour * 3600 + minute * 60 + second
end

local function is_address(host) return find(host, "^[%d.]+$") ~= nil or find(host, ":", 1, true) ~= nil end

-- Whether a cookie of `domain` is for the host (RFC 6265 section 5.1.3).
local function domain_matches(host, domain)
  return host == domain
    or not is_address(host) and #host > #domain and host:sub(-#domain - 1) == "." .. domain
end

local function path_matches(path, prefix)
  return path == prefix
    or path:sub(1, #prefix) == prefix and (prefix:byte(-1) == 47 or path:byte(#prefix + 1) == 47)
end

local function path_of(at) return match(at.target, "^[^?]*") end

-- The cookie that a line of Set-Cookie makes for the parsed URL, and its domain (RFC 6265 section 5.2 and 5.3). nil: it is
-- ignored.
local function read_cookie(at, line, now)
  local pair, rest = match(line, "^([^;]*)(.*)$")
  local name, value = match(pair, "^([^=]*)=(.*)$")
  if not name then return nil end
  name, value = trim(name), trim(value)
  if name == "" or #name + #value > COOKIE_BYTES_MAX or find(pair, "[\0-\8\10-\31\127]") then return nil end
  local given = {}
  for key, text in rest:gmatch(";([^;=]*)=?([^;]*)") do
    given[lower(trim(key))] = trim(text)
  end
  local ends = given.expires and read_date(given.expires) or forever
  local max_age = given["max-age"] and match(given["max-age"], "^-?%d+$")
  if max_age then ends = now + tonumber(max_age) end
  local domain = given.domain and lower(match(given.domain, "^%.?(.*)$")) or ""
  local host_only = domain == "" or is_address(at.host)
  if domain ~= "" and (not domain_matches(at.host, domain) or domain ~= at.host and not find(domain, ".", 1, true)) then
    return nil
  end
  local path = given.path
  if not path or path:byte() ~= 47 then path = match(path_of(at), "^(/.*)/") or "/" end
  local secure = given.secure ~= nil
  if secure and not at.secure then return nil end
  local prefix = match(lower(name), "^__(%a+)%-")
  if (prefix == "secure" or prefix == "host") and not secure then return nil end
  if prefix == "host" and not (host_only and domain == "" and given.path == "/") then return nil end
  return { name = name, value = value, path = path, ends = ends, secure = secure, host_only = host_only, at = now },
    host_only and at.host or domain
end

-- The list of cookies with this one in the place of the same earlier one, and without those that have ended.
local function with_cookie(list, cookie, now)
  local out = {}
  for _, other in ipairs(list or {}) do
    if other.name == cookie.name and other.path == cookie.path and other.host_only == cookie.host_only then
      cookie.at = other.at
    elseif other.ends > now then
      out[#out + 1] = other
    end
  end
  if cookie.ends > now then out[#out + 1] = cookie end
  if #out > DOMAIN_COOKIES_MAX then table.remove(out, 1) end
  return out[1] and out or nil
end

-- ---- the jar -------------------------------------------------------------------------------------------------------

local entries = {} -- the methods of a dict that a jar needs, for a table
entries.__index = entries

function entries:get(domain) return self.of[domain] end

function entries:update(domain, change)
  local before = self.of[domain]
  local after = change(before)
  local more = (after and 1 or 0) - (before and 1 or 0)
  if self.count + more > DOMAINS_MAX then return nil, "the jar has cookies of " .. DOMAINS_MAX .. " domains", "ENOSPC" end
  self.of[domain], self.count = after, self.count + more
  return after or true
end

function entries:clear() self.of, self.count = {}, 0 end

-- jar is a CookieJar: the cookies of servers, for ls.fetch.
local jar = {}
jar.__index = jar
jar.__name = "cookie jar"
jar.__metatable = jar -- it has secrets

local function parsed(call, url)
  local at, why
  if type(url) == "string" then at, why = rules.parse(url) end
  if not at then
    usage.error('%s: the URL must be such as "https://example.org/"; got %s%s', call, usage.quote(url),
      why and ": " .. why or "")
  end
  return at
end

-- Whether a cookie that was set without TLS would take the place of one with Secure (RFC 6265bis section 5.7).
function jar:shadows_secure(at, cookie, now)
  local domain = at.host
  repeat
    for _, other in ipairs(self.entries:get(domain) or {}) do
      if other.secure and other.name == cookie.name and other.ends > now and path_matches(cookie.path, other.path) then
        return true
      end
    end
    domain = not is_address(domain) and match(domain, "%.(.*)$")
  until not domain
  return false
end

-- keep(at, lines): stores the cookies of the lines of Set-Cookie in a response of the parsed URL.
function jar:keep(at, lines)
  local now = time()
  for line in lines do
    local cookie, domain = read_cookie(at, line, now)
    if cookie and (at.secure or not self:shadows_secure(at, cookie, now)) then
      local ok, message = require("luaserve.failure").try(self.entries.update, self.entries, domain,
        function(list) return with_cookie(list, cookie, now) end)
      if ok == nil and message then
        core.log("warn", "ls.fetch: a cookie of " .. domain .. " is not stored: " .. message)
      end
    end
  end
end

-- for_url(at) -> the cookies for a request of the parsed URL, as a list in the order of the field Cookie.
function jar:for_url(at)
  local found, now, path, domain = {}, time(), path_of(at), at.host
  repeat
    for _, cookie in ipairs(self.entries:get(domain) or {}) do
      if cookie.ends > now and path_matches(path, cookie.path) and (at.secure or not cookie.secure)
        and (domain == at.host or not cookie.host_only) then
        found[#found + 1] = cookie
      end
    end
    domain = not is_address(domain) and match(domain, "%.(.*)$")
  until not domain
  sort(found, function(a, b)
    if #a.path ~= #b.path then return #a.path > #b.path end
    if a.at ~= b.at then return a.at < b.at end
    return a.name < b.name
  end)
  return found
end

-- field(at) -> the value of the field Cookie | nil: there are none
function jar:field(at)
  local pairs_of = {}
  for n, cookie in ipairs(self:for_url(at)) do pairs_of[n] = cookie.name .. "=" .. cookie.value end
  return pairs_of[1] and concat(pairs_of, "; ")
end

-- jar:cookies(url: string) -> cookies: table<string, string>
-- The cookies that a request of the URL would send, by name.
function jar:cookies(url, ...)
  usage.no_more("jar:cookies(url)", url, ...)
  local cookies = {}
  for _, cookie in ipairs(self:for_url(parsed("jar:cookies", url))) do
    cookies[cookie.name] = cookies[cookie.name] or cookie.value
  end
  return cookies
end

-- jar:set(url: string, line: string)
-- Stores a cookie as if a response of the URL had it in the field Set-Cookie: "id=7; Path=/; Max-Age=3600".
function jar:set(url, line, ...)
  usage.no_more("jar:set(url, line)", line, ...)
  local at = parsed("jar:set", url)
  usage.refuse(type(line) ~= "string" or not read_cookie(at, line, time()), line,
    'jar:set: the cookie must be a value of Set-Cookie for this URL, such as "id=7; Path=/"')
  local once = line
  self:keep(at, function()
    local next_line = once
    once = nil
    return next_line
  end)
end

-- jar:clear()
-- Removes all cookies.
function jar:clear(...)
  usage.no_more("jar:clear()", nil, ...)
  self.entries:clear()
end

-- is(value) -> whether it is a jar
function cookie_jar.is(value) return getmetatable(value) == jar end

local at_top = "ls.cookie_jar: each Lua state would have a jar of its own. Make it in the handler or job that uses it, or "
  .. 'give it a dict that all states share: ls.cookie_jar(ls.dict("cookies"))'

-- ls.cookie_jar([dict: Dict]) -> jar
-- Makes a jar for the option jar of ls.fetch. With a dict, its cookies are those of all tasks and states that use the dict;
-- a jar that is made while the site loads needs one.
function cookie_jar.new(dict, ...)
  usage.no_more("ls.cookie_jar(dict)", dict, ...)
  if dict == nil then
    if not core.can_wait() then usage.error("%s", at_top) end
    dict = setmetatable({ of = {}, count = 0 }, entries)
  elseif not pcall(core.dict_read, dict, "") then
    usage.error('ls.cookie_jar takes a dict: ls.cookie_jar(ls.dict("cookies")); got %s', usage.quote(dict))
  end
  return setmetatable({ entries = dict }, jar)
end

return cookie_jar
