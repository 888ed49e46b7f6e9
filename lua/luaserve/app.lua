-- app.lua - the object of ls.app(): the routes, middleware and handlers of a site.
--
-- An app only collects definitions; router.lua compiles them into the dispatch function, at ls.listen or at the first
-- inject. After ls.listen the app cannot change: all Lua states must have the same routes.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
local router = require "luaserve.router"

local require = require -- a site may replace the global

-- app is an App: the routes, middleware and error pages of a site.
-- type Handler: fun(req: Request, res: Response): ... - handles a request; it returns a body, a status, a status with a
-- body and header fields, or nothing.
-- type Middleware: fun(req: Request, res: Response, next: fun()): ... - runs around handlers; `next()` runs the rest of
-- the chain.
local app_methods = {}
local field_names = setmetatable({}, { __index = app_methods })

local app_meta = {
  __name = "luaserve.app",
  __index = function(_, name)
    local method = app_methods[name]
    if method == nil and type(name) == "string" and not field_names[name] then
      usage.error("an app has no method %q%s", name, usage.suggest(name, app_methods, "an app"))
    end
    return method
  end,
  __newindex = function(app, name, value)
    if rawget(field_names, name) then return rawset(app, name, value) end
    usage.error("an app has no fields of the site, and each Lua state has its own app; got %s: data of all requests is in "
      .. "a ls.dict, data of one request in a field of req", usage.quote(name))
  end,
}

-- The number of definitions in all apps of this state: a compiled router is out of date when it has changed.
local definitions = 0

local function check_app(fname, app)
  usage.refuse(getmetatable(app) ~= app_meta, app,
    "%s must be called on an app with a colon, such as app:get(...)", fname)
end

local function check_can_define(fname, app)
  check_app(fname, app)
  if app.fixed then
    usage.error("%s: the app cannot change after ls.listen (%s); define everything before ls.listen", fname, app.fixed)
  end
  definitions = definitions + 1
end

local function check_function(fname, fn, signature)
  usage.check(fn, "function", "%s needs a function(%s)", fname, signature)
end

local route_options = {
  max_body = { "body_bytes_max", "size", 0, math.maxinteger, none = -1 }, -- largest request body; default: the listener's
  timeout = { "time_ms_max", "seconds", 1, (1 << 32) - 1, none = 0 }, -- seconds of waiting; default: the listener's
  slow = { "slow_ms", "seconds", 1, (1 << 32) - 1, none = 0 }, -- seconds after which a request is logged; default: the listener's
}
local function is_id(value) return type(value) == "string" and value:find("^[%a_][%w_]*$") end

-- What route_schema.lua reads: the descriptions of a route, and the schemas of its requests.
local described_options = {
  summary = { "summary", "is", "string", "a string" }, -- string - what the route does, in a line; default: of the comment above it
  description = { "description", "is", "string", "a string" }, -- string - more about it; default: of the comment
  -- string - its operationId, a name for programs; default: of the method and the path
  id = { "id", "is", is_id, 'a name of letters, digits and _, such as "getItem"' },
  tags = true, -- string[] - groups of routes
  deprecated = { "deprecated", "flag" }, -- clients should not use it any more
  hidden = { "hidden", "flag" }, -- app:openapi leaves it out
  params = true, -- Schema|Check - of req.params, which it replaces with the checked values; else the response is 422
  query = true, -- Schema|Check - of req.query, as params
  headers = true, -- Schema|Check - of fields of the header, which are checked only
  json = true, -- Schema|Check - of a JSON body: req:json() returns the checked value
  null = { "null", "flag" }, -- with json, as for req:json
  form = true, -- Schema|Check - of a form: req:form() returns the checked fields
  parts = true, -- table<string, Schema|Check> - of a form with files, for descriptions only; a file is "file"
  responses = true, -- table<integer|string, string|Check|table> - by status: a text, a check, or { json =, type = ... }
  security = true, -- string[]|false - names of schemes; default: those of its middleware
}
local app_calls = {
  ["app:get"] = { route_options, described_options }, -- RouteOptions
}

-- The methods whose target may be no path, and the fields of an app with their handlers for the pattern "*".
local without_path = { OPTIONS = "star", CONNECT = "connect" }

local function check_place(fname, fn, has_path)
  local rules = router.rules(fn)
  if rules and rules.defined then rules.defined(fname, has_path) end
end

-- middleware(fname, functions, first, last) -> { { fn =, where = }, ... }
local function middleware(fname, functions, first, last)
  local uses, where = {}, usage.caller()
  for i = first, last do
    if type(functions[i]) == "table" and fname ~= "app:use" then
      usage.error("%s: the options come before the functions: %s(path, options, middleware, fn)", fname, fname)
    end
    check_function(fname, functions[i], "req, res, next")
    check_place(fname, functions[i], fname ~= "app:use" or first > 1)
    uses[#uses + 1] = { fn = functions[i], where = where }
  end
  for i, use in ipairs(fname ~= "app:use" and uses or {}) do
    local info = debug.getinfo(use.fn, "Su")
    if info.nparams < 3 and not info.isvararg then
      usage.error("%s: the last function is the handler, and those before it are middleware: function %d, of %s:%d, has no third parameter, "
        .. "next, so that the functions after it would never run", fname, i, info.short_src, info.linedefined)
    end
  end
  return uses
end

local function define(fname, app, method, pattern, ...)
  check_can_define(fname, app)
  local arguments, first, opts = table.pack(...), 1, nil
  local last = arguments.n
  usage.no_nil(fname, ...)
  while last > 1 and usage.is_loader_data(arguments[last - 1], arguments[last]) do last = last - 1 end
  if type(arguments[1]) == "table" then opts, first = arguments[1], 2 end
  if first <= last and type(arguments[1]) ~= "function" and first == 1 and last > 1 then
    usage.error('%s: options must be a table such as { max_body = "10g" }; got %s', fname, usage.quote(arguments[1]))
  elseif last > 1 and type(arguments[last]) == "table" then
    usage.error("%s: the options come before the function: %s(path, options, fn)", fname, fname)
  end
  local fn = first <= last and arguments[last] or nil
  check_function(fname, fn, "req, res")
  check_place(fname, fn, true)
  local own = middleware(fname, arguments, first, last - 1)
  local where = usage.caller()
  local pathless = without_path[method]
  if method == "CONNECT" and pattern ~= "*" then
    usage.error('%s: a CONNECT request has no path; write app:route("CONNECT", "*", fn), and read req.target; got %s',
      fname, usage.quote(pattern))
  elseif pathless and pattern == "*" then
    if opts then usage.error("%s: a route for %s * has no options", fname, method) end
    if own[1] then usage.error("%s: a route for %s * has no middleware of its own; write app:use(fn)", fname, method) end
    if app[pathless] then usage.error("%s: %s * is already defined at %s", fname, method, app[pathless].where or "?") end
    app[pathless] = { fn = fn, where = where }
    return app
  end
  local route = { method = method, segments = router.parse(fname, pattern), fn = fn, uses = own, where = where, call = fname,
    place = usage.caller(true) }
  local key = method .. " " .. router.shape(route.segments)
  if app.seen[key] then
    usage.error("%s: %s %s is already defined at %s", fname, method, pattern, app.seen[key].where or "?")
  end
  if opts then
    local limits = options.take(fname, opts, app_calls["app:get"], {})
    for name in pairs(described_options) do
      if opts[name] ~= nil then
        require("luaserve.route_schema").read(fname, route, opts)
        break
      end
    end
    local bytes = limits.body_bytes_max
    if bytes then route.max_body = bytes >= 0 and bytes end -- false: no limit
    route.time_max = limits.time_ms_max
    route.slow = limits.slow_ms
    if route.slow and route.slow > 0 then
      core.slow_routes()
      require("luaserve.records").want()
    end
  end
  app.seen[key] = route
  app.routes[#app.routes + 1] = route
  return app
end

-- app:get|post|put|patch|delete|head|options(path, fn: Handler) -> app
-- app:get|post|put|patch|delete|head|options(path, options: RouteOptions, fn: Handler) -> app
-- app:get|post|put|patch|delete|head|options(path, first: RouteOptions|Middleware, ...: Middleware|Handler) -> app
-- Adds a route for requests of this method. The last function handles them; those before it are middleware, which runs
-- around it, inside that of app:use. Raises on an invalid or duplicate path.
for _, verb in ipairs { "get", "post", "put", "patch", "delete", "head", "options" } do
  local fname, method = "app:" .. verb, verb:upper()
  app_methods[verb] = function(self, pattern, ...) return define(fname, self, method, pattern, ...) end
end

-- app:any(path, fn: Handler) -> app
-- app:any(path, options: RouteOptions, fn: Handler) -> app
-- app:any(path, first: RouteOptions|Middleware, ...: Middleware|Handler) -> app
-- Adds a route for every method that has no other route for this path.
function app_methods:any(pattern, ...) return define("app:any", self, "any", pattern, ...) end

-- app:route(method: string, path, fn: Handler) -> app
-- app:route(method: string, path, options: RouteOptions, fn: Handler) -> app
-- app:route(method: string, path, first: RouteOptions|Middleware, ...: Middleware|Handler) -> app
-- Adds a route for a method by its name, such as "PROPFIND". The path of CONNECT is "*".
function app_methods:route(method, pattern, ...)
  usage.refuse(not options.is_token(method), method,
    'app:route: the method must be a string such as "GET" or "PROPFIND"')
  if method ~= method:upper() then
    usage.error("app:route: the method must be in upper case: %q", method:upper())
  end
  return define("app:route", self, method, pattern, ...)
end

-- app:ws(path, handler: (fun(ws: WebSocket, req: Request))|WebSocketEvents) -> app
-- app:ws(path, options: WebSocketRouteOptions, handler: fun(ws: WebSocket, req: Request)) -> app
-- Adds a route for GET that accepts WebSocket connections. The function serves a connection, in a task of its own; a table
-- has functions for its events, and the options among them.
function app_methods:ws(pattern, ...)
  check_can_define("app:ws", self)
  usage.no_nil("app:ws", ...)
  local opts, handler = ...
  if usage.is_loader_data(opts, handler) then handler = nil end
  if handler == nil then opts, handler = nil, opts end
  if type(opts) == "function" and type(handler) == "table" then
    usage.error("app:ws: the options come before the function: app:ws(path, options, fn)")
  end
  usage.no_more("app:ws(path, options, handler)", handler, select(3, ...))
  local fn = require("luaserve.ws").route(pattern, usage.caller(), opts, handler)
  define("app:ws", self, "GET", pattern, fn)
  self.routes[#self.routes].shown = "WS"
  return self
end

-- The segments of a prefix, without an empty last one. `noun`: what messages call it. Raises.
local function parse_prefix(fname, prefix, noun)
  local segments = router.parse(fname, prefix)
  local last = segments[#segments]
  if last.rest then usage.error("%s: the %s must not contain *%s", fname, noun, last.rest) end
  if last.text == "" then segments[#segments] = nil end
  return segments
end

-- app:use(fn: Middleware, ...: Middleware) -> app
-- app:use(path, fn: Middleware, ...: Middleware) -> app
-- Adds middleware, which runs around every handler of this app, including those of mounted apps and the responses 404, 405
-- and 500, in the order of the functions and of the calls; with a path only for requests of it and below it. next()
-- returns nothing: afterwards `res` has the response, which may be read and changed. Results of the function replace it.
function app_methods:use(path, ...)
  check_can_define("app:use", self)
  local functions = table.pack(path, ...)
  local first, segments = 1, nil
  if type(path) == "string" then
    first, segments = 2, parse_prefix("app:use", path, "path")
  end
  if usage.is_loader_data(functions[functions.n - 1], functions[functions.n]) then functions.n = functions.n - 1 end
  for _, use in ipairs(middleware("app:use", functions, first, math.max(functions.n, first))) do
    use.segments = segments
    self.uses[#self.uses + 1] = use
  end
  self.use_where = self.use_where or usage.caller()
  return self
end

local function contains(app, wanted)
  if app == wanted then return true end
  for _, mount in ipairs(app.mounts) do
    if contains(mount.app, wanted) then return true end
  end
  return false
end

-- app:mount(prefix: string, other: App) -> app
-- Adds the routes of another app below a prefix, which may contain :parameters. The "/" of that app is the prefix itself,
-- with and without a slash at the end. The other app keeps its middleware, error and not_found.
function app_methods:mount(prefix, other, ...)
  check_can_define("app:mount", self)
  if getmetatable(prefix) == app_meta and type(other) == "string" then
    usage.error("app:mount: the prefix comes first: app:mount(%s, other)", usage.quote(other))
  end
  usage.refuse(getmetatable(other) ~= app_meta, other, 'app:mount takes a prefix and an app: app:mount("/api", api)')
  usage.no_more("app:mount(prefix, other)", other, ...)
  if contains(other, self) then usage.error("app:mount: an app cannot be mounted inside itself") end
  self.mounts[#self.mounts + 1] = { segments = parse_prefix("app:mount", prefix, "prefix"), app = other }
  return self
end

-- Add routes for the prefix and all paths below it, with these fields. `shown`: the method in messages.
local function add_below(fname, app, prefix, fields, shown)
  local segments, where = parse_prefix(fname, prefix, "prefix"), usage.caller()
  local below = table.move(segments, 1, #segments, 1, {})
  below[#below + 1] = { rest = "path" }
  for _, path in ipairs { below, #segments > 0 and segments or nil } do
    local key = fields.method .. " " .. router.shape(path)
    if app.seen[key] then
      usage.error("%s: %s%s is already defined at %s", fname, shown, prefix, app.seen[key].where or "?")
    end
    local route = { segments = path, where = where, skip = #segments }
    for name, value in pairs(fields) do route[name] = value end
    app.seen[key], app.routes[#app.routes + 1] = route, route
  end
end

-- app:static(prefix: string, folder: string [, options: StaticOptions]) -> app
-- Adds routes for GET and HEAD that send the files below a folder. Raises on a missing folder.
function app_methods:static(prefix, folder, ...)
  check_can_define("app:static", self)
  usage.no_nil("app:static", ...)
  usage.no_more("app:static(prefix, folder, options)", ...)
  local files = require("luaserve.static").new(prefix, folder, (...))
  add_below("app:static", self, prefix, { method = "GET", files = files }, "GET ")
  return self
end

-- app:proxy(prefix: string, servers: string|(string|ProxyServer)[] [, options: ProxyOptions]) -> app, store: ProxyStore?
-- Adds routes for every method of the prefix and the paths below it, which other servers answer: URLs such as
-- "http://127.0.0.1:9000". More specific routes take precedence. Raises on an invalid URL or option. RFC 9110 section 7.6.
function app_methods:proxy(prefix, servers, ...)
  check_can_define("app:proxy", self)
  usage.no_nil("app:proxy", ...)
  usage.no_more("app:proxy(prefix, servers, options)", ...)
  parse_prefix("app:proxy", prefix, "prefix")
  local proxy = require("luaserve.proxy").new(servers, (...), prefix)
  add_below("app:proxy", self, prefix, { method = "any", proxy = proxy }, "")
  return self, proxy.cache
end

-- app:status(path [, options: StatusOptions]) -> app
-- Adds a page that shows what the server does now: rates, latency, what runs and waits, errors, memory. Without `auth` it
-- responds only to clients on this machine.
function app_methods:status(path, ...)
  check_can_define("app:status", self)
  usage.no_nil("app:status", ...)
  local page, events, auth = require("luaserve.status").handlers(path, ...)
  local below = type(path) == "string" and path:gsub("/$", "") .. "/events"
  local uses = { auth or nil }
  for _, one in ipairs { { path, page }, { below, events } } do
    uses[auth and 2 or 1] = one[2]
    define("app:status", self, "GET", one[1], table.unpack(uses))
  end
  if auth == nil then self.open_status = self.open_status or usage.caller() or "?" end
  return self
end

-- The place of an app:status without auth in the app or one that is mounted in it; nil: none.
local function open_status(self)
  local found = self.open_status
  for _, mount in ipairs(self.mounts) do found = found or open_status(mount.app) end
  return found
end

-- app:health(path [, options: HealthOptions]) -> app
-- Adds the routes that a balancer asks: the path, and `ready` below it, respond with 200 while the server and the site
-- are ready, else with 503; `live` below it always with 200.
function app_methods:health(path, ...)
  check_can_define("app:health", self)
  usage.no_nil("app:health", ...)
  local ready, live = require("luaserve.health").handlers(...)
  define("app:health", self, "GET", path, ready)
  local below = path:gsub("/$", "")
  define("app:health", self, "GET", below .. "/ready", ready)
  return define("app:health", self, "GET", below .. "/live", live)
end

-- app:openapi(path [, options: OpenApiOptions]) -> app
-- Adds the description of the routes of this app, and of those mounted in it, as an OpenAPI 3.1 document, and a page that shows it.
function app_methods:openapi(path, ...)
  check_can_define("app:openapi", self)
  usage.no_nil("app:openapi", ...)
  local added = require("luaserve.openapi").new(path, ...)
  for _, one in ipairs(added.routes) do
    if added.auth then
      define("app:openapi", self, "GET", one[1], added.auth, one[2])
    else
      define("app:openapi", self, "GET", one[1], one[2])
    end
  end
  self.documents = self.documents or {}
  self.documents[#self.documents + 1] = added
  return self
end

-- app:metrics(path, ...: Middleware) -> app
-- Adds a route that shows all metrics to Prometheus, and has the requests of all listeners counted. The functions run
-- around it, such as basic_auth. Only while the site loads.
function app_methods:metrics(path, ...)
  local metrics = require "luaserve.metrics"
  local functions = table.pack(...)
  functions[functions.n + 1] = metrics.handler
  define("app:metrics", self, "GET", path, table.unpack(functions, 1, functions.n + 1))
  usage.call("app:metrics", metrics.want)
  return self
end

-- app:access_log(log: string|false|AccessLogOptions) -> app
-- Gives the requests for this app, and those of the apps mounted in it, an access log of their own, in place of that of the
-- listener: a file, "stdout", "syslog", false for none, or a table. Only while the site loads.
function app_methods:access_log(value, ...)
  check_can_define("app:access_log", self)
  usage.no_more("app:access_log(log)", value, ...)
  if self.access then usage.error("app:access_log is already called at %s", self.access_where or "?") end
  self.access, self.access_where = require("luaserve.access_log").read("app:access_log", value, {}), usage.caller()
  usage.call("app:access_log", core.access_of_apps)
  return self
end

local function set_once(fname, app, field, signature, fn, ...)
  check_can_define(fname, app)
  check_function(fname, fn, signature)
  usage.no_more(fname .. "(fn)", fn, ...)
  if app[field] then usage.error("%s is already defined at %s", fname, app[field .. "_where"] or "?") end
  app[field], app[field .. "_where"] = fn, usage.caller()
  return app
end

-- app:error(fn: fun(req: Request, res: Response, err: any, traceback: string): ...) -> app
-- Sets the function that responds when a handler raised an error. The default status is 500.
function app_methods:error(...) return set_once("app:error", self, "on_error", "req, res, err", ...) end

-- app:not_found(fn: Handler) -> app
-- Sets the function that responds when no route matches. The default status is 404.
function app_methods:not_found(...) return set_once("app:not_found", self, "on_not_found", "req, res", ...) end

for _, field in ipairs { "fixed", "star", "connect", "use_where", "on_error", "on_error_where", "on_not_found",
  "on_not_found_where", "dispatcher", "dispatcher_version", "access", "access_where" } do
  field_names[field] = true
end

field_names.open_status, field_names.documents = true, true

-- Make the documents of app:openapi of the app and those mounted in it.
local function describe(self, compiled)
  for _, document in ipairs(self.documents or {}) do document.make(compiled.routes_of(self)) end
  for _, mount in ipairs(self.mounts) do describe(mount.app, compiled) end
end

-- The compiled router: { dispatch =, failed =, routes = } for core.listen and core.inject. Compiled again
-- after new definitions. `records`: its routes are named for records; true, or the name of their host.
local function compile(self, records)
  local version = definitions .. " " .. tostring(records)
  if self.dispatcher == nil or self.dispatcher_version ~= version then
    self.dispatcher, self.dispatcher_version = router.compile(self, records), version
    describe(self, self.dispatcher)
  end
  return self.dispatcher
end

-- app:inject(request: InjectRequest) -> response | nil, message, code
-- Runs a request without a socket, for tests. Raises while the site loads for a handler that waits.
function app_methods:inject(request, ...)
  check_app("app:inject", self)
  usage.no_more("app:inject{ method = ..., path = ... }", request, ...)
  return require("luaserve.inject").run(compile, self, request)
end

local app = { calls = app_calls }

-- ls.app() -> app
-- Makes an app without routes.
function app.new(...)
  usage.no_more("ls.app()", nil, ...)
  return setmetatable({ routes = {}, seen = {}, uses = {}, mounts = {} }, app_meta)
end

-- app.serve(self, where, records, host) -> { dispatch =, failed =, routes = }, for ls.listen at `where`. Fixes the app and the
-- apps mounted in it. `records`: it names the routes of requests for records; true, or the name of
-- its host in `hosts`.
function app.serve(self, where, records, host)
  local dispatcher = compile(self, records)
  local open = open_status(self)
  if open then require("luaserve.status").check_address(open, host) end
  local function fix(one)
    one.fixed = one.fixed or where
    for _, mount in ipairs(one.mounts) do fix(mount.app) end
  end
  fix(self)
  return dispatcher
end

-- app.is(value) -> whether ls.app() made the value.
function app.is(value) return getmetatable(value) == app_meta end

return app
