-- luaserve - the table that `require "luaserve"` returns to a site.
--
-- Functions with simple arguments are those of the core. Functions that take options or an app check them with
-- options.lua and app.lua first, so that every usage error is reported at the line of the site.

local core = require "luaserve.core"
local json = require "luaserve.json"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
usage.mark_internal()

-- later(module, name) -> a function that loads `module` at the first call and calls module[name]. Each Lua state loads
-- its own copy of a module, and a site of one protocol needs half of them.
local require = require -- a site may replace the global
local function later(module, name)
  local fn
  return function(...)
    fn = fn or require(module)[name]
    return fn(...)
  end
end

local ls = {
  version = core.version,
  app = later("luaserve.app", "new"),
  json = usage.strict("ls.json", json),
  html = usage.strict("ls.html", { escape = core.html_escape }),
  url = usage.strict("ls.url", {
    encode = core.url_encode,
    decode = later("luaserve.url", "decode"),
    query = later("luaserve.url", "query"),
  }),
  now = core.now,
  sleep = core.sleep,
  after = core.after,
  every = core.every,
  spawn = core.spawn,
  once = core.once,
  buffer = core.buffer,
  stats = core.stats,
  stop = core.stop, -- starts to drain, as SIGTERM does
  thread = core.thread, -- its number, from 1
  processors = core.processors,
  tcp = later("luaserve.tcp", "listen"),
  connect = later("luaserve.tcp", "connect"),
  websocket = later("luaserve.ws_client", "connect"),
  udp = later("luaserve.udp", "listen"),
  udp_connect = later("luaserve.udp", "connect"),
  notify = later("luaserve.notify", "notify"),
  socket = later("luaserve.notify", "socket"),
  dict = later("luaserve.dict", "open"), -- shared by all states, as are the next two
  channel = later("luaserve.channel", "channel"),
  semaphore = later("luaserve.channel", "semaphore"),
  publish = core.publish, -- to all subscribers of a topic, in all states
  subscribe = core.subscribe,
  topics = core.topics,
  safe_join = core.safe_join, -- a path below a directory, from untrusted input
}

local http_defaults = {}

-- ls.listen(port | "host:port" | "unix:/path", app [, options]), or ls.listen{ port =, host =, path =, app =, max_body
-- =, ... }.
-- Serves the app at this address once the site is loaded. The default host is the loopback interface, "*" means all
-- interfaces. On Windows also ls.listen{ engine = "http.sys", url = "http://+:8080/", app = }; `url` may be a list.
-- The app cannot change afterwards. Raises on unknown options, on wrong types and after loading.
function ls.listen(at, served, given, ...)
  local app = require "luaserve.app"
  usage.no_more("ls.listen(8080, app, options)", given, ...)
  if app.is(at) then usage.error("ls.listen: the port is missing: ls.listen(8080, app)") end
  local settings
  settings, served = options.listen(http_defaults, at, served, core, given)
  if not app.is(served) then
    usage.error("ls.listen: the app is missing: ls.listen(8080, app), with app = ls.app(); got %s",
      usage.quote(served))
  end
  settings.where = usage.caller() or "?"
  local dispatcher = app.serve(served, settings.where)
  if core.dev then dispatcher = require("luaserve.dev").wrap(dispatcher, served) end
  settings.dispatch, settings.failed, settings.routes = dispatcher.dispatch, dispatcher.failed, dispatcher.routes
  local ok, err = pcall(core.listen, settings)
  if not ok then usage.error("ls.listen: %s", tostring(err)) end
end

-- ls.config{ threads = 4, max_body = "64m", ... }: settings of the server, and default limits of later listeners.
-- Raises on unknown options, on wrong types, on further arguments and after loading.
function ls.config(given, ...)
  usage.no_more("ls.config{ ... }", given, ...)
  local settings, http = options.config(given)
  for name, value in pairs(http) do http_defaults[name] = value end
  if next(settings) ~= nil then
    local ok, err = pcall(core.config, settings)
    if not ok then usage.error("ls.config: %s", tostring(err)) end
  end
end

local events = { start = true, drain = true, log = true, host = true }

-- ls.on("start" | "drain", fn): fn() runs when the server starts to serve or to drain. ls.on("log", fn): fn(req, res,
-- info) runs after each response; info has status, bytes and duration. ls.on("host", fn): fn(data) runs in one state for
-- each ls_server_post of the program. Raises on another event and after loading.
function ls.on(name, fn, ...)
  if not events[name] then
    local suggestion = usage.suggest(name, events)
    usage.error("ls.on: unknown event %s%s", usage.quote(name), suggestion ~= "" and suggestion
      or '; the events are "start", "drain" (the server stops), "log" (a response was sent) and "host" (the program '
        .. 'posts)')
  elseif type(fn) ~= "function" then
    usage.error("ls.on: %s needs a function; got %s", name, usage.quote(fn))
  end
  usage.no_more("ls.on(event, fn)", fn, ...)
  local ok, err
  if name == "host" then ok, err = pcall(core.on_host, fn) else ok, err = pcall(core.on, name, fn) end
  if not ok then usage.error("ls.on: %s", tostring(err)) end
end

ls.log = usage.strict("ls.log", {})
for _, level in ipairs { "debug", "info", "warn", "error" } do
  -- ls.log.info(...): logs one line, with the arguments formatted as print does.
  ls.log[level] = function(...)
    local n = select("#", ...)
    if n == 1 then return core.log(level, tostring((...))) end
    local parts = { ... }
    for i = 1, n do parts[i] = tostring(parts[i]) end
    return core.log(level, table.concat(parts, "\t", 1, n))
  end
end

-- An unknown name is usually a misspelling, and "attempt to call a nil value" suggests no correction. rawget(ls,
-- "name") reads a field without the check.
return setmetatable(ls, {
  __index = function(_, name)
    usage.error("luaserve %s has no ls.%s%s", core.version, tostring(name), usage.suggest(name, ls))
  end,
})
