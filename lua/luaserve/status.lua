-- status.lua - what a server does now, as JSON: for the page of app:status and for `luaserve top`.
--
-- A snapshot has totals since the start of the server; who shows them makes the differences. However many look, a snapshot is
-- made at most once a second, in the state that asks first, and none without a viewer.
--
--   version, site, pid, now (monotonic seconds)
--   stats            those of ls.stats() that metric_table marks
--   resident_bytes   memory of the process; not on Windows
--   first_us         the upper limit of the first bucket of latency; each further one is that before, times the square root of 2
--   routes           { route =, count =, failed = status 500 and above, sum_us =, buckets = counts }, those with most requests
--   threads, states  of core.look()
--   waiting          tasks that wait, as the states have answered to the looks before: { what =, scope =, client =, line =, for_s = }
--   errors           the last ones: { number =, at_ms = since 1970, text = }; in the first event of a page, and when there are new ones
--   topics, dicts    { topic =, subscribers = }, { dict =, entries =, bytes = }

local core = require "luaserve.core"
local json = require "luaserve.json"
local latency = require "luaserve.latency"
local options = require "luaserve.options"
local pages = require "luaserve.page"
local usage = require "luaserve.usage"

local require, pcall, ipairs, pairs = require, pcall, ipairs, pairs -- a site may replace the globals
local open, find, match, sub = io.open, string.find, string.match, string.sub
local math_type, utf8_len = math.type, utf8.len

local status = {}

local PERIOD = 1 -- seconds between two snapshots
local ROUTES_MAX, LISTED_MAX = 200, 100
local NAME = "luaserve.process.status" -- of the dict with the last snapshot

local status_options = {
  auth = true, -- Middleware|false - lets those pass who may see the page; false: other middleware of the app does
}
status.calls = { ["app:status"] = { status_options, optional = true, listed = true } } -- StatusOptions

-- readable(rows) -> rows, whose texts are valid UTF-8, as JSON needs: paths and topics may have other bytes, shown as \xNN.
local function shown(c) return ("\\x%02x"):format(c:byte()) end
local function readable(rows)
  for _, row in ipairs(rows) do
    for key, value in pairs(row) do
      if type(value) == "string" and not utf8_len(value) then row[key] = value:gsub("[\x80-\xff]", shown) end
    end
  end
  return rows
end

-- The fields of Linux for the number and the memory of this process; nil on other systems.
local function process()
  local file <close> = open("/proc/self/status", "rb")
  local text = file and file:read("a") or ""
  local function number(name)
    local _, last = find(text, name, 1, true)
    return last and math.tointeger(match(text, "%d+", last))
  end
  local kilobytes = number "\nVmRSS:"
  return number "\nPid:", kilobytes and kilobytes * 1024
end

local function stats()
  local all, out = core.stats(), {}
  for _, row in ipairs(require "luaserve.metric_table") do
    if row[5] then out[row[1]] = all[row[1]] end
  end
  return out
end

local function routes()
  local list = {}
  for i, one in ipairs(core.latencies()) do
    local buckets, count = latency.buckets(one.cells)
    local _, failed = latency.statuses(one.cells, 5)
    list[i] = {
      route = one.route ~= "" and one.route or "(no route)", count = count, failed = failed, sum_us = latency.sums(one.cells)[1] // 1,
      buckets = json.array(buckets),
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
  return json.array(readable(list))
end

local function dicts()
  local list = {}
  for _, one in ipairs(core.shared()) do
    if one.kind == "dict" and one.name ~= NAME and #list < LISTED_MAX then
      list[#list + 1] = { dict = one.name, entries = one.entries, bytes = one.bytes }
    end
  end
  return json.array(readable(list))
end

local shared -- the dict with the last snapshot, the number of the last error, the JSON of the last errors, and the answers

local function open_shared()
  shared = shared or require("luaserve.dict").open(NAME)
  return shared
end

-- answer(id, tasks): what the tasks of a state wait for. core.look() has each state call it.
function status.answer(id, tasks)
  if tasks[1] then open_shared():set(id, readable(tasks)) else open_shared():delete(id) end
end

-- The last answers of the states that are open.
local function waiting(states)
  local list, open_states = {}, {}
  for _, one in ipairs(states) do open_states[one.id], one.id = true, nil end
  for id, tasks in pairs(open_shared()) do
    if open_states[id] then
      table.move(tasks, 1, #tasks, #list + 1, list)
    elseif math_type(id) then
      shared:delete(id)
    end
  end
  return json.array(list)
end

-- snapshot() -> the text. Raises while the site loads.
function status.snapshot()
  local look, pid, resident = core.look(), process()
  local tasks = waiting(look.states)
  local all = {
    version = core.version, site = arg[0], pid = pid, resident_bytes = resident, now = core.now(), stats = stats(),
    first_us = latency.FIRST_US, routes = routes(), threads = json.array(readable(look.threads)), states = json.array(look.states),
    topics = listed(core.topics(), "topic", "subscribers"), dicts = dicts(), waiting = tasks,
  }
  return json.encode(all)
end

-- ---- app:status -----------------------------------------------------------------------------------------------------

-- The last snapshot, or a new one if that is older than PERIOD; and the number of the last error.
local function recent()
  while true do
    if shared:add("due", true, PERIOD * 0.9) then
      local errors, number = core.errors(shared:get("number") or 0)
      if errors then
        shared:set("errors", json.encode(json.array(errors)))
        shared:set("number", number)
      end
      shared:set("text", status.snapshot())
    end
    local text = shared:get("text")
    if text then return text, shared:get("number") end
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
  open_shared()

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
    local sse, known = res:sse { retry = 2 }, nil
    repeat
      local ok, text, number = pcall(recent)
      if not ok then error(text, 0) end
      if number ~= known then text = sub(text, 1, -2) .. ',"errors":' .. shared:get("errors") .. "}" end
      known = number
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
