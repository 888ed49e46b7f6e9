-- cache_rules.lua - what a shared cache may store, and for how long (RFC 9111, RFC 5861): rules without state.

local date = require "luaserve.date"

local max, min, tonumber = math.max, math.min, tonumber

local rules = {}

local seconds_max = 2147483647 -- RFC 9111 section 1.2.2
function rules.set(...)
  local out = {}
  for _, name in ipairs { ... } do out[name] = true end
  return out
end
local storable = rules.set(200, 203, 204, 300, 301, 302, 307, 308, 404, 405, 410, 414, 501)
local by_default = rules.set(200, 203, 204, 300, 301, 308) -- without a lifetime of the server

-- seconds(value) -> the number of seconds of a directive, or of Age; 0 of an invalid one, so that it counts as stale.
local function seconds(value)
  local digits = type(value) == "string" and value:match("^%d+$")
  return digits and min(tonumber(digits), seconds_max) or 0
end

local function ms(n) return math.tointeger(n * 1000 // 1) end

-- directives(text) -> { name in lower case = value, or true without one } of a Cache-Control. Of two equal names the
-- smaller value applies. Never raises.
function rules.directives(text)
  local out, at = {}, 1
  while text do
    at = text:match("^[%s,]*()", at)
    local name, equal, after = text:match("^([^%s,=\"]+)%s*(=?)%s*()", at)
    if not name then
      at = text:match("^[^,]*,()", at) -- what is no name
      if not at then break end
    else
      local value = true
      at = after
      if equal ~= "" then
        value, at = text:match('^"([^"]*)"?()', after)
        if not value then value, at = text:match("^([^%s,]*)()", after) end
      end
      name = name:lower()
      local before = out[name]
      out[name] = before == nil and value or seconds(before) < seconds(value) and before or value
    end
  end
  return out
end

-- asked(cache_control, pragma) -> what a request asks for: { reload =, no_store =, only_if_cached = flags; age_max =,
-- fresh_min =, stale_max = seconds }. RFC 9111 section 5.2.1.
function rules.asked(cache_control, pragma)
  local said = rules.directives(cache_control or pragma)
  local stale = said["max-stale"]
  return {
    reload = said["no-cache"] ~= nil, no_store = said["no-store"] ~= nil, only_if_cached = said["only-if-cached"] ~= nil,
    age_max = said["max-age"] and seconds(said["max-age"]) or -1,
    fresh_min = said["min-fresh"] and seconds(said["min-fresh"]) or -1,
    stale_max = stale == true and seconds_max or stale and seconds(stale) or -1,
  }
end

-- What Vary says, in lower case and without white space; nil: "*".
local function selecting(vary)
  local names = (vary or ""):lower():gsub("%s", ""):gsub(",+", ","):gsub("^,", ""):gsub(",$", "")
  return not ("," .. names .. ","):find(",*,", 1, true) and names or nil
end

-- store(status, fields, now, lifetime) -> how a response may be stored, see core.cache_keep; nil: it may not. `fields`: by
-- names in lower case; `lifetime`: seconds of a response that says nothing, or nil. RFC 9111 sections 3, 4.2.
function rules.store(status, fields, now, lifetime)
  local said, vary = rules.directives(fields["cache-control"]), selecting(fields.vary)
  local shared = said["s-maxage"] ~= nil
  local for_all = shared or said.public ~= nil or said["must-revalidate"] ~= nil
  if not storable[status] or said["no-store"] or said.private or fields["set-cookie"] or not vary
    or (fields["content-type"] or ""):lower():find("^text/event%-stream%f[%s;\0]") then
    return nil
  end
  local dated = fields.date and date.parse(fields.date) or now
  if shared then
    lifetime = seconds(said["s-maxage"])
  elseif said["max-age"] ~= nil then
    lifetime = seconds(said["max-age"])
  elseif fields.expires then
    lifetime = min(max((date.parse(fields.expires) or dated) - dated, 0), seconds_max)
  elseif said["no-cache"] then
    lifetime = 0
  elseif not by_default[status] then
    lifetime = nil
  end
  if not lifetime then return nil end
  local refresh, instead = seconds(said["stale-while-revalidate"]), seconds(said["stale-if-error"])
  local strict = said["must-revalidate"] ~= nil or said["proxy-revalidate"] ~= nil or said["no-cache"] ~= nil
    or shared and refresh == 0 and instead == 0
  if said["no-cache"] then lifetime = 0 end
  if lifetime == 0 and (strict or refresh == 0 and instead == 0) and not fields.etag and not fields["last-modified"] then
    return nil -- it would never be used
  end
  local age = min(max(seconds(fields.age), now - dated, 0), seconds_max)
  return { age_ms = ms(age), lifetime_ms = ms(lifetime), refresh_ms = ms(refresh), error_ms = ms(instead), strict = strict,
    for_all = for_all, vary = vary }
end

return rules
