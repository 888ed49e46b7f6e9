-- app.lua - the object of ls.app(): the routes, middleware and handlers of a site.
--
-- An app only collects definitions; router.lua compiles them into the dispatch function, at ls.listen or at the first
-- inject. After ls.listen the app cannot change: all Lua states must have the same routes.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
local router = require "luaserve.router"
local static = require "luaserve.static"
local ws = require "luaserve.ws"
require "luaserve.sse" -- for res:sse
usage.mark_internal()

local app_methods = {}
local field_names = setmetatable({}, { __index = app_methods })

local app_meta = {
  __name = "luaserve.app",
  __index = function(_, name)
    local method = app_methods[name]
    if method == nil and type(name) == "string" and not field_names[name] then
      usage.error("an app has no method %q%s", name, usage.suggest(name, app_methods))
    end
    return method
  end,
}

-- The number of definitions in all apps of this state: a compiled router is out of date when it has changed.
local definitions = 0

local function check_app(fname, app)
  if getmetatable(app) ~= app_meta then
    usage.error("%s must be called on an app with a colon, such as app:get(...); got %s", fname, usage.quote(app))
  end
end

local function check_can_define(fname, app)
  check_app(fname, app)
  if app.fixed then
    usage.error("%s: the app cannot change after ls.listen (%s); define everything before ls.listen", fname, app.fixed)
  end
  definitions = definitions + 1
end

local function check_function(fname, fn, signature)
  if type(fn) ~= "function" then
    usage.error("%s needs a function(%s); got %s", fname, signature, usage.quote(fn))
  end
end

local route_options = { max_body = true }

-- The methods whose target may be no path, and the fields of an app with their handlers for the pattern "*".
local without_path = { OPTIONS = "star", CONNECT = "connect" }

local function define(fname, app, method, pattern, opts, fn, ...)
  check_can_define(fname, app)
  if usage.is_loader_data(opts, fn) then fn = nil end
  if fn == nil and type(opts) == "function" then opts, fn = nil, opts end
  if type(opts) == "function" and type(fn) == "table" then
    usage.error("%s: the options come before the function: %s(path, options, fn)", fname, fname)
  elseif type(opts) == "function" then
    usage.error("%s takes one function; a function that runs around it is middleware: app:use(fn)", fname)
  end
  usage.no_more(fname .. "(path, options, fn)", fn, ...)
  if opts ~= nil and type(opts) ~= "table" then
    usage.error('%s: options must be a table such as { max_body = "10g" }; got %s', fname, usage.quote(opts))
  end
  check_function(fname, fn, "req, res")
  local where = usage.caller()
  local pathless = without_path[method]
  if method == "CONNECT" and pattern ~= "*" then
    usage.error('%s: a CONNECT request has no path; write app:route("CONNECT", "*", fn), and read req.target; got %s',
      fname, usage.quote(pattern))
  elseif pathless and pattern == "*" then
    if opts then usage.error("%s: a route for %s * has no options", fname, method) end
    if app[pathless] then usage.error("%s: %s * is already defined at %s", fname, method, app[pathless].where or "?") end
    app[pathless] = { fn = fn, where = where }
    return app
  end
  local route = { method = method, segments = router.parse(fname, pattern), fn = fn, where = where }
  local key = method .. " " .. router.shape(route.segments)
  if app.seen[key] then
    usage.error("%s: %s %s is already defined at %s", fname, method, pattern, app.seen[key].where or "?")
  end
  if opts then
    options.check_names(fname, opts, route_options)
    if opts.max_body ~= nil then route.max_body = options.max_body(fname, opts.max_body) end
  end
  app.seen[key] = route
  app.routes[#app.routes + 1] = route
  return app
end

-- app:get(path [, opts], fn) -> app, and the same for the other verbs. fn(req, res) returns the response.
-- opts.max_body: the limit of the request body in bytes or as "10g", false for no limit. Raises on an invalid or
-- duplicate path.
for _, verb in ipairs { "get", "post", "put", "patch", "delete", "head", "options" } do
  local fname, method = "app:" .. verb, verb:upper()
  app_methods[verb] = function(self, pattern, ...) return define(fname, self, method, pattern, ...) end
end

-- app:any(path [, opts], fn) -> app. A route for every method without its own route for this path.
function app_methods:any(pattern, ...) return define("app:any", self, "any", pattern, ...) end

-- app:route(method, path [, opts], fn) -> app. A route for any method, such as "PROPFIND". The path of CONNECT is "*".
function app_methods:route(method, pattern, ...)
  if not options.is_token(method) then
    usage.error('app:route: the method must be a string such as "GET" or "PROPFIND"; got %s', usage.quote(method))
  end
  if method ~= method:upper() then
    usage.error("app:route: the method must be in upper case: %q", method:upper())
  end
  return define("app:route", self, method, pattern, ...)
end

-- app:ws(path [, options], handler) -> app. A GET route that accepts WebSocket connections. handler(ws, req) serves a
-- connection in a coroutine of its own; or, as a table, it has the functions open(ws, req), message(ws, data, kind) and
-- close(ws, code, reason), and the options among them: lua/docs/reference/websocket.md. Raises on an unknown option and on
-- an invalid or duplicate path.
function app_methods:ws(pattern, opts, handler, ...)
  check_can_define("app:ws", self)
  if usage.is_loader_data(opts, handler) then handler = nil end
  if handler == nil then opts, handler = nil, opts end
  if type(opts) == "function" and type(handler) == "table" then
    usage.error("app:ws: the options come before the function: app:ws(path, options, fn)")
  end
  usage.no_more("app:ws(path, options, handler)", handler, ...)
  local fn = ws.route(pattern, usage.caller(), opts, handler)
  define("app:ws", self, "GET", pattern, fn)
  self.routes[#self.routes].shown = "WS"
  return self
end

-- app:use(fn, ...) -> app. Middleware: fn(req, res, next) runs around every handler of this app, including those of
-- mounted apps and the responses 404 and 405, in the order of the functions and of the app:use calls. next() runs the
-- rest and returns its results; fn returns them, changed or not.
function app_methods:use(fn, ...)
  check_can_define("app:use", self)
  if type(fn) == "string" then
    usage.error("app:use takes functions, and runs them for all paths; for the paths below %s, mount an app that uses "
      .. "them: app:mount(%s, other)", usage.quote(fn), usage.quote(fn))
  end
  local functions = table.pack(fn, ...)
  if usage.is_loader_data(functions[functions.n - 1], functions[functions.n]) then functions.n = functions.n - 1 end
  for i = 1, math.max(functions.n, 1) do check_function("app:use", functions[i], "req, res, next") end
  table.move(functions, 1, functions.n, #self.uses + 1, self.uses)
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

-- app:mount(prefix, other) -> app. Adds the routes of the app `other` below the prefix, which may contain :parameters.
-- The "/" of `other` is the prefix itself, with and without a slash at the end. `other` keeps its middleware, error
-- and not_found.
function app_methods:mount(prefix, other, ...)
  check_can_define("app:mount", self)
  if getmetatable(prefix) == app_meta and type(other) == "string" then
    usage.error("app:mount: the prefix comes first: app:mount(%s, other)", usage.quote(other))
  end
  if getmetatable(other) ~= app_meta then
    usage.error('app:mount takes a prefix and an app: app:mount("/api", api); got %s', usage.quote(other))
  end
  usage.no_more("app:mount(prefix, app)", other, ...)
  if contains(other, self) then usage.error("app:mount: an app cannot be mounted inside itself") end
  local segments = router.parse("app:mount", prefix)
  if segments[#segments].rest then
    usage.error("app:mount: the prefix must not contain *%s", segments[#segments].rest)
  end
  if segments[#segments].text == "" then segments[#segments] = nil end
  self.mounts[#self.mounts + 1] = { segments = segments, app = other }
  return self
end

-- app:static(prefix, folder [, options]) -> app. Routes for GET and HEAD that send the files below a folder. The options
-- are those of lua/docs/reference/static.md. Raises on an unknown option, a missing folder, and on a route that is
-- already defined.
function app_methods:static(prefix, folder, opts, ...)
  check_can_define("app:static", self)
  usage.no_more("app:static(prefix, folder, options)", opts, ...)
  local files = static.new(prefix, folder, opts)
  local segments = router.parse("app:static", prefix)
  if segments[#segments].rest then usage.error("app:static: the prefix must not contain *%s", segments[#segments].rest) end
  if segments[#segments].text == "" then segments[#segments] = nil end
  local where = usage.caller()
  local below = table.move(segments, 1, #segments, 1, {})
  below[#below + 1] = { rest = "path" }
  for _, path in ipairs { below, #segments > 0 and segments or nil } do
    local key = "GET " .. router.shape(path)
    if self.seen[key] then
      usage.error("app:static: GET %s is already defined at %s", prefix, self.seen[key].where or "?")
    end
    local route = { method = "GET", segments = path, files = files, where = where, skip = #segments }
    self.seen[key] = route
    self.routes[#self.routes + 1] = route
  end
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

-- app:error(fn) -> app. fn(req, res, err, traceback) responds when a handler raised an error; the default status is
-- 500.
function app_methods:error(...) return set_once("app:error", self, "on_error", "req, res, err", ...) end

-- app:not_found(fn) -> app. fn(req, res) responds when no route matches; the default status is 404.
function app_methods:not_found(...) return set_once("app:not_found", self, "on_not_found", "req, res", ...) end

for _, field in ipairs { "fixed", "star", "connect", "use_where", "on_error", "on_error_where", "on_not_found",
  "on_not_found_where", "dispatcher", "dispatcher_version" } do
  field_names[field] = true
end

local inject_options = { method = true, path = true, headers = true, body = true }

local function check_header(name)
  if type(name) ~= "string" then
    usage.error('app:inject: headers must be a table such as { ["Content-Type"] = "text/plain" }; got the key %s',
      usage.quote(name))
  end
end

local function header_pairs(headers)
  local list = options.fields(headers or {}, check_header)
  for _, field in ipairs(list) do field[2] = tostring(field[2]) end
  return list
end

-- The compiled router: { dispatch =, failed =, routes = } for core.listen and core.inject. Compiled again
-- after new definitions.
local function compile(self)
  if self.dispatcher == nil or self.dispatcher_version ~= definitions then
    self.dispatcher, self.dispatcher_version = router.compile(self), definitions
  end
  return self.dispatcher
end

-- app:inject{ method = "GET", path = "/a?b=c", headers = {}, body = "" } -> response | nil, message, code. Runs a
-- request without a socket, for tests. The response has status, headers, body and json(): see reply.lua. Raises on unknown
-- options, and while the site loads for a handler that waits.
function app_methods:inject(request, ...)
  check_app("app:inject", self)
  usage.no_more("app:inject{ method = ..., path = ... }", request, ...)
  if type(request) ~= "table" then
    usage.error('app:inject takes a table: app:inject{ method = "GET", path = "/" }; got %s', usage.quote(request))
  end
  options.check_names("app:inject", request, inject_options)
  local method, path = request.method or "GET", request.path or "/"
  for name, value in pairs { method = method, path = path, body = request.body } do
    if type(value) ~= "string" then
      usage.error("app:inject: %s must be a string; got %s", name, usage.quote(value))
    end
  end
  if request.headers ~= nil and type(request.headers) ~= "table" then
    usage.error("app:inject: headers must be a table; got %s", usage.quote(request.headers))
  end
  local dispatcher = compile(self)
  local status, list, body = core.inject(dispatcher.dispatch, dispatcher.failed, method, path,
    header_pairs(request.headers), request.body)
  if not status and body == "EBUSY" then
    usage.error('app:inject: the handler of %s %s waits, which is not possible while the site loads; call app:inject in '
      .. 'ls.once(function() ... end) or ls.on("start", function() ... end)', method, path)
  elseif not status then
    return nil, list, body
  end
  local reply = require "luaserve.reply"
  local headers = reply.headers()
  for _, header in ipairs(list) do reply.add(headers, header[1], header[2]) end
  return reply.new(status, headers, body)
end

local app = {}

-- The tables of options, for the tests.
app.known = { ["app:get"] = route_options, ["app:inject"] = inject_options, ["app:static"] = static.known }
app.specs = { ["app:get"] = { max_body = options.specs["ls.listen"].max_body } }

-- ls.app() -> a new app without routes.
function app.new(...)
  usage.no_more("ls.app()", nil, ...)
  return setmetatable({ routes = {}, seen = {}, uses = {}, mounts = {} }, app_meta)
end

-- app.serve(self, where) -> { dispatch =, failed =, routes = }, for ls.listen at `where`. Fixes the app and the
-- apps mounted in it.
function app.serve(self, where)
  local dispatcher = compile(self)
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
