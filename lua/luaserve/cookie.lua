-- cookie.lua - res:cookie: the value of the field Set-Cookie (RFC 6265 section 4.1).
--
-- A cookie is sent to all paths, not to scripts of the page, and not with posts of other sites, unless the options say so.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

local cookie = {}

local fname = "res:cookie"
local seconds_max = 253402300799 -- the end of the year 9999, as seconds since 1970
local seconds_min = 1e8 -- of `expires`; less is no time of day, but that of a clock such as ls.now

local function is_text(value) return not value or type(value) == "string" and not value:find("[;\0-\8\10-\31\127]") end

local function is_seconds(value)
  return not value or type(value) == "number" and value >= -seconds_max and value <= seconds_max -- false for NaN
end

local text_form <const>, seconds_form <const> = "a string without ';' or control characters", "a number of seconds"

local attributes = {
  path = { "path", "is", is_text, text_form, "/" }, -- string|false - paths that the client sends it to; default "/", false: that of the page
  domain = { "domain", "is", is_text, text_form }, -- string - the domain, with all its subdomains
  max_age = { "max_age", "is", is_seconds, seconds_form }, -- number - seconds after which the client drops it; 0 deletes it
  expires = { "expires", "is", is_seconds, seconds_form }, -- number - the same as a time, in seconds since 1970 (os.time)
  secure = { "secure", "flag" }, -- only over HTTPS
  http_only = { "http_only", "flag" }, -- not for scripts of the page; default true
  same_site = true, -- "lax"|"strict"|"none"|"Lax"|"Strict"|"None"|false - with requests of other sites; default "Lax"
}
cookie.calls = { ["res:cookie"] = { attributes, listed = true } } -- CookieOptions

local same_sites = { lax = "Lax", strict = "Strict", none = "None" }

-- line(name, value|nil [, options]) -> the value of the field; that of nil deletes the cookie. Raises.
function cookie.line(name, value, given)
  local deletes = value == nil
  if deletes then value = "" end
  if type(value) == "number" then value = tostring(value) end
  if not options.is_token(name) then
    usage.error("invalid cookie name %s", usage.quote(name))
  elseif type(value) ~= "string" then
    usage.error("%s: the value of %q must be a string; got %s", fname, name, usage.quote(value))
  elseif value:find("[^!-~]") or value:find('[",;\\]') then
    usage.error("invalid value of cookie '%s': it contains a space, '\"', ',', ';', '\\' or a control character; encode "
      .. "it first, for instance with ls.url.encode", name)
  end
  usage.check(given, "table?", '%s: options must be a table such as { path = "/" }', fname)
  local own = {} -- without a metatable
  for key, option in next, core.dict_content(given or {}) do own[key] = option end
  given = own
  local out = options.take(fname, given, cookie.calls[fname], {})
  local parts = { name .. "=" .. value }
  local function add(label, part) parts[#parts + 1] = part and label .. part or nil end
  local path, domain, max_age, expires = out.path, out.domain, out.max_age, out.expires
  usage.refuse(path and not path:find("^/"), path, '%s: path must begin with "/"', fname)
  usage.refuse(domain and domain:find("[^%w.-]"), domain, '%s: domain must be a name such as "example.org"', fname)
  usage.refuse(expires and expires > 0 and expires < seconds_min, expires,
    "%s: expires must be a time in seconds since 1970, such as os.time() + 3600, not of ls.now(), or 0, which deletes the cookie",
    fname)
  usage.refuse(max_age and max_age > core.seconds_max, max_age, "%s: max_age is in seconds: this is more than 10 years", fname)
  add("Path=", path)
  add("Domain=", domain)
  if deletes then max_age, expires = 0, 0 end
  add("Max-Age=", max_age and string.format("%.0f", max_age))
  add("Expires=", expires and core.http_date(math.max(0, expires // 1 | 0)))
  if out.secure then add("Secure", "") end
  if out.http_only ~= false then add("HttpOnly", "") end
  if given.same_site == nil then given.same_site = "Lax" end
  if given.same_site then
    local same_site = type(given.same_site) == "string" and same_sites[given.same_site:lower()]
    usage.refuse(not same_site, given.same_site, '%s: same_site must be "lax", "strict" or "none"', fname)
    if same_site == "None" and not out.secure then
      usage.error('%s: same_site = "none" needs secure = true: browsers drop the cookie without it', fname)
    end
    add("SameSite=", same_site)
  end
  return table.concat(parts, "; ")
end

return cookie
