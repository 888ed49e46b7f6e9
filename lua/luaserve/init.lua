-- luaserve - the table that `require "luaserve"` returns to a site.
--
-- Functions with simple arguments are those of the core. Functions that take options or an app check them with
-- options.lua and app.lua first, so that every usage error is reported at the line of the site.

local core = require "luaserve.core"
local json = require "luaserve.json"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

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

-- group(title, module, own, names...) -> the table `own` with these functions of the module, as `later` makes them.
local function group(title, module, own, ...)
  for _, name in ipairs { ... } do own[name] = later(module, name) end
  return usage.strict(title, own)
end

local function stats(...)
  local counters, queue = core.stats(...), package.loaded["luaserve.queue"]
  if queue then queue.count(counters) end
  local acme = package.loaded["luaserve.acme"]
  if acme then counters.certificates = acme.certificates() end
  return counters
end

local function topics(...)
  local found = core.topics(...)
  for name in pairs(package.loaded["luaserve.presence"] and found or {}) do
    if name:find("^luaserve:presence") then found[name] = nil end -- of members
  end
  return found
end

local crypto -- luaserve.crypto

-- ls is a Module: the table that `require "luaserve"` returns. Reading an unknown name raises an error that suggests the
-- nearest one.
-- ls.version: string - the version of luaserve, such as `"0.1.0"`
-- ls.dir: string - the directory of the site, an absolute path; for a site that is no file the working directory
-- ls.data: string - where the site may write, an absolute path: the state directory of its service, else `ls.dir`
-- ls.json: Json - encodes and decodes JSON
-- ls.html: Html - text for HTML pages
-- ls.url: Url - URLs, percent-encoding and query strings
-- ls.date: Date - dates as text, and back
-- ls.file: File - reads and writes files
-- ls.log: Log - writes lines to the log
-- ls.metrics: Metrics - numbers of the site for Prometheus
-- ls.crypto: Crypto - digests, random bytes, password hashes, sealed texts
--
-- ls.html is a Html: text for HTML pages.
local ls = {
  version = core.version,
  dir = core.dir,
  data = os.getenv "LUASERVE_ENV" ~= "test" and (os.getenv "STATE_DIRECTORY" or ""):match "^[^:]+" or core.dir,
  app = later("luaserve.app", "new"),
  json = usage.strict("ls.json", json),
  html = usage.strict("ls.html", { escape = core.html_escape }),
  url = group("ls.url", "luaserve.url", { encode = core.url_encode }, "decode", "parse", "build", "query"),
  check = later("luaserve.check", "new"), -- values that must have a given form
  date = group("ls.date", "luaserve.date", {}, "http", "iso", "parse"),
  env = later("luaserve.env", "read"),
  now = core.now,
  sleep = core.sleep,
  after = core.after,
  every = core.every,
  spawn = core.spawn_of_site,
  init = core.init,
  buffer = core.buffer,
  stats = stats,
  stop = core.stop, -- starts to drain, as SIGTERM does
  thread = core.thread, -- its number, from 1
  processors = core.processors,
  tcp = later("luaserve.tcp", "listen"),
  connect = later("luaserve.tcp", "connect"),
  websocket = later("luaserve.ws_client", "connect"),
  fetch = later("luaserve.fetch", "fetch"), -- HTTP requests to other servers
  cookie_jar = later("luaserve.cookie_jar", "new"),
  udp = later("luaserve.udp", "listen"),
  udp_connect = later("luaserve.udp", "connect"),
  notify = later("luaserve.notify", "notify"),
  socket = later("luaserve.notify", "socket"),
  dict = later("luaserve.dict", "open"), -- shared by all states, as are the next two
  channel = later("luaserve.channel", "channel"),
  semaphore = later("luaserve.channel", "semaphore"),
  publish = core.publish, -- to all subscribers of a topic, in all states
  subscribe = core.subscribe,
  topics = topics,
  presence = later("luaserve.presence", "of"), -- who is subscribed to a topic
  on_presence = later("luaserve.presence", "on"),
  file = group("ls.file", "luaserve.file", {}, "read", "write", "stat", "list", "mkdir", "remove", "rename", "lines"),
  metrics = group("ls.metrics", "luaserve.metrics", {}, "counter", "gauge", "histogram"),
  crypto = setmetatable({}, { -- loaded when a name is first read; empty, since `luaserve dev` reports tables that change
    __index = function(_, name)
      crypto = crypto or require "luaserve.crypto"
      return crypto[name]
    end,
    __pairs = function() return pairs(require "luaserve.crypto") end,
  }),
  session = later("luaserve.session", "new"),
  redis = later("luaserve.redis", "open"), -- a Redis server
  sqlite = later("luaserve.sqlite", "open"), -- databases in files
  postgres = later("luaserve.postgres", "open"), -- databases of PostgreSQL
  queue = later("luaserve.queue", "open"), -- jobs that are kept until they are done
  cron = later("luaserve.cron", "add"), -- functions at times of the day
  process = later("luaserve.process", "run"),
  templates = later("luaserve.template", "open"), -- pages from the files of a folder
  watch = later("luaserve.watch", "add"), -- files for luaserve dev
  inspect = later("luaserve.inspect", "show"), -- the text of a value, also of a table
  try = later("luaserve.failure", "try"), -- results, or nil and the failure of a database
  safe_join = core.safe_join, -- a path below a directory, from untrusted input
}

local http_defaults = {}
local listeners = {} -- { given =, out = } of each call of ls.listen

-- ls.listen(address: integer|string, app [, options: ListenOptions])
-- ls.listen(options: ListenOptions)
-- Serves an app by HTTP, once the site is loaded, at a port, `"host:port"`, `"unix:/path"`, or with all options in a table.
-- The default host is the loopback interface, "*" means all interfaces. The app cannot change afterwards. Only while the
-- site loads.
function ls.listen(at, served, given, ...)
  local app = require "luaserve.app"
  usage.no_more("ls.listen(8080, app, options)", given, ...)
  if app.is(at) then usage.error("ls.listen: the port is missing: ls.listen(8080, app)") end
  if app.is(given) then
    local written = { string = true, number = true }
    if not (written[type(at)] and written[type(served)]) then
      usage.error("ls.listen: the app is the second argument: ls.listen(8080, app, options), "
        .. "or ls.listen{ port = 8080, handler = app }")
    end
    usage.error("ls.listen: the address is one argument: ls.listen(%s, app)", usage.quote(at .. ":" .. tostring(served)))
  end
  for _, one in pairs { served = not app.is(served) and served or nil, given = given } do
    if type(one) == "table" and one.hosts then
      usage.error("ls.listen: hosts stands in a single table: ls.listen{ port = 8080, hosts = { ... } }")
    end
  end
  local settings
  settings, served = options.listen(http_defaults, at, served, core, given)
  if rawequal(served, ls.metrics) then served = require("luaserve.metrics").app() end
  local records = require "luaserve.records"
  local access_log = type(at) == "table" and at.access_log
  if given then access_log = given.access_log end
  if access_log then settings.access_log = require("luaserve.access_log").read("ls.listen", access_log, settings) end
  if settings.slow_ms > 0 then records.want() end
  local function serve(one, host)
    if core.dev then require("luaserve.dev").prepare(one) end
    local dispatcher = app.serve(one, settings.where, records.wanted and (host or true), settings.host)
    return core.dev and require("luaserve.dev").wrap(dispatcher, one) or dispatcher
  end
  local hosts = type(at) == "table" and at.hosts
  local function compile() return hosts and require("luaserve.hosts").dispatcher(hosts, serve) or serve(served) end
  local dispatcher
  if hosts then
    if served ~= nil then usage.error("ls.listen: hosts takes the place of handler: hosts = { default = app }") end
    dispatcher = compile()
    if settings.tls and not settings.tls.self_signed then
      settings.tls.names = require("luaserve.tls").lacking(dispatcher.names())
    end
  elseif app.is(served) then
    dispatcher = compile()
  else
    usage.error("ls.listen: the app is missing: ls.listen(8080, app), with app = ls.app(); got %s",
      usage.quote(served))
  end
  settings.dispatch, settings.failed, settings.routes = dispatcher.dispatch, dispatcher.failed, dispatcher.routes
  settings.tunnels, settings.gets = dispatcher.tunnels, dispatcher.gets
  local index = usage.call("ls.listen", core.listen, settings)
  records.listened(index, settings, dispatcher, compile)
  listeners[#listeners + 1] = { given = given or type(at) == "table" and at or {}, out = settings }
end

-- ls.config(options: ConfigOptions)
-- Sets settings of the server, and default limits of the listeners; raises for a limit that comes after an ls.listen
-- which does not give it itself. Only while the site loads.
function ls.config(given, ...)
  usage.no_more("ls.config{ ... }", given, ...)
  local settings, http = options.config(given, listeners)
  for name, value in pairs(http) do http_defaults[name] = value end
  if settings.mask_addresses ~= nil then
    local records = require "luaserve.records"
    if records.wanted then usage.error("ls.config: mask_addresses comes too late: put ls.config before access_log, app:status and app:metrics") end
    records.mask_addresses = settings.mask_addresses
  end
  if next(settings) ~= nil then usage.call("ls.config", core.config, settings) end
end

local events = { start = true, drain = true, log = true, host = true }

-- ls.on(event: "start"|"drain", fn: fun())
-- ls.on(event: "log", fn: fun(req: Request, res: Response, info: LogInfo))
-- ls.on(event: "host", fn: fun(data: string): any)
-- Calls a function when the server starts to serve or to drain; after each response ("log", which cannot wait); or in one
-- state for each message of the program that embeds luaserve ("host"). Only while the site loads.
function ls.on(name, fn, ...)
  if not events[name] then
    local suggestion = usage.suggest(name, events)
    usage.error("ls.on: unknown event %s%s", usage.quote(name), suggestion ~= "" and suggestion
      or '; the events are "start", "drain" (the server stops), "log" (a response was sent) and "host" (the program '
        .. 'posts)')
  end
  usage.check(fn, "function", "ls.on: %s needs a function", name)
  usage.no_more("ls.on(event, fn)", fn, ...)
  if name == "host" then usage.call("ls.on", core.on_host, fn) else usage.call("ls.on", core.on, name, fn) end
end

-- ls.log is a Log: writes lines to the log.
-- ls.log.debug|info|warn|error(...)
-- Writes a line of this level, with the arguments as `print` shows them; tables as `ls.inspect` does.
ls.log = usage.strict("ls.log", {})
getmetatable(ls.log).__call = function() usage.error("ls.log is a table: write ls.log.info(...), or debug, warn, error") end
local function text_of(value) return type(value) == "table" and ls.inspect(value) or tostring(value) end
local formats = {} -- set of the lines whose first argument has been named
-- Warns once of a line that means string.format.
local function warn_format(level, first, n)
  local _, count = first:gsub("%%[%d.]*[sdifgqx]%f[^%w]", "")
  local place = count == n - 1 and usage.caller()
  if not place or formats[place] then return end
  formats[place] = true
  core.log("warn", ("%s: ls.log.%s writes its arguments one after another: for a format write ls.log.%s((%q):format(...))"):format(place, level, level,
    first:sub(1, 40)))
end
for _, level in ipairs { "debug", "info", "warn", "error" } do
  ls.log[level] = function(...)
    local n = select("#", ...)
    if n == 1 then return core.log(level, text_of((...))) end
    local parts = { ... }
    if type(parts[1]) == "string" then warn_format(level, parts[1], n) end
    for i = 1, n do parts[i] = text_of(parts[i]) end
    return core.log(level, table.concat(parts, "\t", 1, n))
  end
end

-- Names of earlier versions, with what to write now.
local removed = {
  once = "is now ls.init(fn): it runs once, before the first request, which waits until fn returns; work that continues "
    .. "belongs into ls.spawn(fn)",
}

-- An unknown name is usually a misspelling, and "attempt to call a nil value" suggests no correction. rawget(ls,
-- "name") reads a field without the check.
return setmetatable(ls, {
  __index = function(_, name)
    if removed[name] then usage.error("ls.%s %s", name, removed[name]) end
    usage.error("luaserve %s has no ls.%s%s", core.version, tostring(name), usage.suggest(name, ls, "ls"))
  end,
})
