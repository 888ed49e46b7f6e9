-- luaserve - the table that `require "luaserve"` gives to a site.
--
-- What needs no checking is the core's own function. What takes options, or an app, goes through options.lua and
-- app.lua first, so that every mistake is reported at the site's line.

local core = require "luaserve.core"
local json = require "luaserve.json"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
usage.ours()

-- module[name], of a module that only some sites want: loaded by the first call. Each Lua state has its own copy of what is
-- loaded, and a site of one protocol needs half of it.
local require = require -- whatever a site makes of the globals
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
  json = json,
  now = core.now,
  sleep = core.sleep,
  after = core.after,
  every = core.every,
  spawn = core.spawn,
  once = core.once,
  buffer = core.buffer,
  stats = core.stats,
  stop = core.stop, -- begin to drain, as SIGTERM does
  thread = core.thread, -- its number, from 1
  processors = core.processors,
  tcp = later("luaserve.tcp", "listen"),
  connect = later("luaserve.tcp", "connect"),
  udp = later("luaserve.udp", "listen"),
  udp_connect = later("luaserve.udp", "connect"),
  notify = later("luaserve.notify", "notify"),
  socket = later("luaserve.notify", "socket"),
  safe_join = core.safe_join, -- a path below a directory, out of what a request says
}

local http_defaults = {}

-- ls.listen(port | "host:port" | "unix:/path", app), or ls.listen{ port =, host =, path =, app =, max_body =, ... }.
-- Serves the app there as soon as the site is loaded. Without a host it is the loopback, "*" is everyone. On Windows also
-- ls.listen{ engine = "http.sys", url = "http://+:8080/", app = }, where `url` may be a list. The app is fixed from now on.
-- Raises on unknown options, wrong types and after loading.
function ls.listen(at, served)
  local app = require "luaserve.app"
  if app.is(at) then usage.raise("ls.listen: the port is missing: ls.listen(8080, app)") end
  local settings
  settings, served = options.listen(http_defaults, at, served, core.http_sys)
  if not app.is(served) then
    usage.raise("ls.listen: the app is missing: ls.listen(8080, app), with app = ls.app(); got %s",
      usage.show(served))
  end
  settings.where = usage.where() or "?"
  local bytecode = app.serve(served, settings.where)
  settings.dispatch, settings.failed = bytecode.dispatch, bytecode.failed
  local ok, err = pcall(core.listen, settings)
  if not ok then usage.raise("ls.listen: %s", tostring(err)) end
end

-- ls.config{ threads = 4, max_body = "64m", ... }: settings of the whole server, and the limits of listeners that come
-- later. Raises on unknown options, wrong types and after loading.
function ls.config(given)
  local settings, http = options.config(given)
  for name, value in pairs(http) do http_defaults[name] = value end
  if next(settings) ~= nil then
    local ok, err = pcall(core.config, settings)
    if not ok then usage.raise("ls.config: %s", tostring(err)) end
  end
end

local events = { start = true, drain = true, log = true }

-- ls.on("start" | "drain" | "log", fn): fn() when the server begins to serve or to drain, fn(req, res) after each
-- answer.
function ls.on(name, fn)
  if not events[name] then
    usage.raise("ls.on: there is no event %s%s", usage.show(name), usage.hint(name, events))
  elseif type(fn) ~= "function" then
    usage.raise("ls.on: %s needs a function; got %s", name, usage.show(fn))
  end
  return core.on(name, fn)
end

ls.log = {}
for _, level in ipairs { "debug", "info", "warn", "error" } do
  -- ls.log.info(...): one line, the arguments as print would show them.
  ls.log[level] = function(...)
    local n = select("#", ...)
    if n == 1 then return core.log(level, tostring((...))) end
    local parts = { ... }
    for i = 1, n do parts[i] = tostring(parts[i]) end
    return core.log(level, table.concat(parts, "\t", 1, n))
  end
end

-- A name that is not there is most often a typing mistake, and "attempt to call a nil value" does not say which name
-- was meant. rawget(ls, "name") asks without raising.
return setmetatable(ls, {
  __index = function(_, name)
    usage.raise("luaserve %s has no ls.%s%s", core.version, tostring(name), usage.hint(name, ls))
  end,
})
