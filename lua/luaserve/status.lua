-- status.lua - what a server does now, as JSON: for the page of app:status and for `luaserve top`.
--
-- A snapshot has totals since the start of the server; who shows them makes the differences. However many look, a snapshot is
-- made at most once a second, in the state that asks first, and none without a viewer.
--
--   version, site, pid, now (monotonic seconds), time (since 1970)
--   stats            ls.stats()
--   resident_bytes   memory of the process; not on Windows
--   bounds_s         the upper limits of the buckets of latency but the last one, which has none
--   routes           { route =, count =, failed = status 500 and above, sum_s =, buckets = counts }, those with most requests
--   threads, states  of core.look()
--   waiting          tasks that wait, as in the last look before: { what =, scope =, client =, line =, for_s = }
--   errors           the last ones: { number =, at =, text = }
--   topics, dicts    { topic =, subscribers = }, { dict =, entries =, bytes = }

local core = require "luaserve.core"
local json = require "luaserve.json"
local options = require "luaserve.options"
local pages = require "luaserve.page"
local usage = require "luaserve.usage"

local require, pcall, ipairs, pairs = require, pcall, ipairs, pairs -- a site may replace the globals
local open, find, match, sub = io.open, string.find, string.match, string.sub

local status = {}

local PERIOD = 1 -- seconds between two snapshots
local ROUTES_MAX, LISTED_MAX = 200, 100
local NAME = "luaserve.status" -- of the dict with the last snapshot

local status_options = {
  auth = true, -- Middleware|false - lets those pass who may see the page; false: other middleware of the app does
}
status.calls = { ["app:status"] = { status_options, optional = true, listed = true } } -- StatusOptions

-- The fields of Linux for the memory and the number of this process; nil on other systems.
local function process()
  local file = open("/proc/self/status", "rb")
  if not file then return nil, nil end
  local text = file:read("a")
  file:close()
  local resident = match(text, "\nVmRSS:%s*(%d+) kB")
  return math.tointeger(tonumber(match(text, "\nPid:%s*(%d+)"))), resident and math.tointeger(tonumber(resident)) * 1024
end

local function routes()
  local list = {}
  for _, one in ipairs(core.latencies()) do
    local count, failed, last = 0, 0, 0
    for i, n in ipairs(one.buckets) do
      count = count + n
      if n > 0 then last = i end
    end
    for _, classes in ipairs(one.statuses) do failed = failed + classes[5] end
    for i = #one.buckets, last + 1, -1 do one.buckets[i] = nil end
    list[#list + 1] = {
      route = one.route ~= "" and one.route or "(no route)", count = count, failed = failed, sum_s = one.sum_s,
      buckets = json.array(one.buckets),
    }
  end
  table.sort(list, function(a, b) return a.count > b.count end)
  for i = #list, ROUTES_MAX + 1, -1 do list[i] = nil end
  return json.array(list)
end

-- The names and values of a table, the greatest value first.
local function listed(t, key, value)
  local list = {}
  for name, one in pairs(t) do list[#list + 1] = { [key] = name, [value] = one } end
  table.sort(list, function(a, b) return a[value] > b[value] end)
  for i = #list, LISTED_MAX + 1, -1 do list[i] = nil end
  return json.array(list)
end

local function dicts()
  local list = {}
  for _, one in ipairs(core.shared()) do
    if one.kind == "dict" and one.name ~= NAME and #list < LISTED_MAX then
      list[#list + 1] = { dict = one.name, entries = one.entries, bytes = one.bytes }
    end
  end
  return json.array(list)
end

-- snapshot() -> the text. Raises while the site loads.
function status.snapshot()
  local look, pid, resident = core.look(), process()
  local all = {
    version = core.version, site = arg[0], pid = pid, resident_bytes = resident, now = core.now(), time = core.wall_time(),
    stats = core.stats(), bounds_s = core.latency_limits(), routes = routes(),
    threads = json.array(look.threads), states = json.array(look.states), errors = json.array(look.errors),
    topics = listed(core.topics(), "topic", "subscribers"), dicts = dicts(),
  }
  local waiting = look.tasks:gsub("%[(.-)%]\n", "%1,"):gsub(",$", "")
  return sub(json.encode(all), 1, -2) .. ',"waiting":[' .. waiting .. "]}"
end

-- ---- app:status -----------------------------------------------------------------------------------------------------

local shared -- the dict with the last snapshot

-- The last snapshot, or a new one if that is older than PERIOD.
local function recent()
  while true do
    if shared:add("due", true, PERIOD * 0.9) then
      local text = status.snapshot()
      shared:set("text", text)
      return text
    end
    local text = shared:get("text")
    if text then return text end
    core.sleep(0.02) -- another state makes the first one
  end
end

local function is_loopback(address)
  return address == "::1" or address ~= nil
    and (find(address, "^127%.%d+%.%d+%.%d+$") or find(address, "^::ffff:127%.%d+%.%d+%.%d+$") or find(address, "^unix:")) ~= nil
end

local forwarded = { "forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via" }

-- Why the page without `auth` is not for this client: it is not on this machine, or may not be; nil: it is.
local function stranger(req)
  if not is_loopback(req.remote and match(req.remote, "^%[?(.-)%]?:%d+$") or req.remote) then return "another machine" end
  for _, name in ipairs(forwarded) do
    if req.headers[name] then return "a proxy (" .. name .. ")" end
  end
  local host = (req.headers.host or ""):lower():gsub(":%d+$", "")
  if host ~= "localhost" and not find(host, "%.localhost$") and not is_loopback((host:gsub("[%[%]]", ""))) then
    return "a page of another site, or a proxy: Host is " .. usage.quote(host)
  end
end

local function refusal(path, why)
  return 403, ("app:status(%q) has no auth, so it responds only to clients on this machine; this request is from %s.\n"
    .. "Write app:status(%q, { auth = require \"luaserve.basic_auth\" { users = { ... } } }), or auth = false if other "
    .. "middleware of the app decides.\n"):format(path, why, path)
end

-- handlers(path, given, ...) -> the handlers of the page and of its events, auth: middleware, false or nil. Raises.
function status.handlers(path, given, ...)
  local _, own = options.only("app:status", status.calls["app:status"], '("/_status", { auth = fn })', given, ...)
  local auth = own.auth
  if auth ~= nil and auth ~= false then
    usage.check(auth, "function", 'app:status: auth must be middleware such as require "luaserve.basic_auth" { ... }, or false')
  end
  require("luaserve.latency").want()
  shared = shared or require("luaserve.dict").open(NAME)

  local function guarded(handler)
    if auth ~= nil then return handler end
    return function(req, res)
      local why = stranger(req)
      if why then return refusal(path, why) end
      return handler(req, res)
    end
  end

  local function respond_page(_, res) return res:html(pages.open("status", res, "no-store")) end

  local function respond_events(_, res)
    pages.fields(res, "no-store")
    local sse = res:sse { retry = 2 }
    repeat
      local ok, text = pcall(recent)
      if not ok then error(text, 0) end
      sse:send(text)
    until sse:wait(PERIOD)
  end
  return guarded(respond_page), guarded(respond_events), auth
end

-- check_address(where, host): raises if a page without `auth`, defined at `where`, would be served at the host of a listener
-- that other machines reach. `host`: for the core, "" is the loopback interface.
function status.check_address(where, host)
  if host == "" or is_loopback(host) then return end
  usage.error("ls.listen: app:status at %s has no auth, and other machines reach this listener: write auth = require "
    .. '"luaserve.basic_auth" { users = { ... } } (or other middleware), auth = false if middleware of the app decides, or '
    .. "serve it at the loopback interface", where)
end

return status
