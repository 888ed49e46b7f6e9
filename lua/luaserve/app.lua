-- app.lua - the object of ls.app(): what a site says about its routes.
--
-- An app only collects; router.lua makes the dispatch function of it, at ls.listen or at the first inject. From
-- ls.listen on the app is fixed: all Lua states must have the same routes.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
local router = require "luaserve.router"
usage.ours()

local app_methods = {}
local known_names = setmetatable({}, { __index = app_methods })

local app_meta = {
  __name = "luaserve.app",
  __index = function(_, name)
    local method = app_methods[name]
    if method == nil and type(name) == "string" and not known_names[name] then
      usage.raise("an app has no method %q%s", name, usage.hint(name, app_methods))
    end
    return method
  end,
}

-- Counts definitions in all apps of this state, so that a bytecode router knows whether it is still the whole truth.
local definitions = 0

local function check_app(who, app)
  if getmetatable(app) ~= app_meta then
    usage.raise("%s must be called on an app with a colon, as in app:get(...); got %s", who, usage.show(app))
  end
end

local function about_to_define(who, app)
  check_app(who, app)
  if app.fixed then
    usage.raise("%s: the app is being served since %s; define everything before ls.listen", who, app.fixed)
  end
  definitions = definitions + 1
end

local function check_function(who, fn, signature)
  if type(fn) ~= "function" then
    usage.raise("%s needs a function(%s); got %s", who, signature, usage.show(fn))
  end
end

local route_options = { max_body = true }

local function define(who, app, method, pattern, opts, fn)
  about_to_define(who, app)
  if fn == nil and type(opts) == "function" then opts, fn = nil, opts end
  if opts ~= nil and type(opts) ~= "table" then
    usage.raise('%s: options are a table such as { max_body = "10g" }; got %s', who, usage.show(opts))
  end
  check_function(who, fn, "req, res")
  local where = usage.where()
  if pattern == "*" and method == "OPTIONS" then
    if app.star then usage.raise("%s: OPTIONS * is already defined at %s", who, app.star.where or "?") end
    app.star = { fn = fn, where = where }
    return app
  end
  local route = { method = method, segments = router.parse(who, pattern), fn = fn, where = where }
  local key = method .. " " .. router.shape(route.segments)
  if app.seen[key] then
    usage.raise("%s: %s %s is already defined at %s", who, method, pattern, app.seen[key].where or "?")
  end
  if opts then
    options.check_names(who, opts, route_options)
    if opts.max_body ~= nil then route.max_body = options.max_body(who, opts.max_body) end
  end
  app.seen[key] = route
  app.routes[#app.routes + 1] = route
  return app
end

-- app:get(path [, opts], fn), and the other verbs. fn(req, res): what it returns is the answer. opts: max_body, in
-- bytes or "10g", false for no limit. Returns the app. Raises on a path that is not well formed or is defined already.
for _, verb in ipairs { "get", "post", "put", "patch", "delete", "head", "options" } do
  local who, method = "app:" .. verb, verb:upper()
  app_methods[verb] = function(self, pattern, opts, fn) return define(who, self, method, pattern, opts, fn) end
end

-- app:any(path [, opts], fn): every method that has no route of its own for this path.
function app_methods:any(pattern, opts, fn) return define("app:any", self, "any", pattern, opts, fn) end

-- app:route(method, path [, opts], fn): any method at all, such as "PROPFIND".
function app_methods:route(method, pattern, opts, fn)
  if type(method) ~= "string" or not method:match("^[%w!#$%%&'*+.^_`|~-]+$") then
    usage.raise('app:route: the method must be a text such as "GET" or "PROPFIND"; got %s', usage.show(method))
  end
  if method ~= method:upper() then
    usage.raise("app:route: methods are written in capitals: %q", method:upper())
  end
  return define("app:route", self, method, pattern, opts, fn)
end

-- app:use(fn): fn(req, res, next) runs around every handler of this app, those of mounted apps, 404 and 405 included,
-- in the order of the calls; next() runs the rest and gives its results, which fn hands on (or changes).
function app_methods:use(fn)
  about_to_define("app:use", self)
  check_function("app:use", fn, "req, res, next")
  self.uses[#self.uses + 1] = fn
  return self
end

local function contains(app, wanted)
  if app == wanted then return true end
  for _, mount in ipairs(app.mounts) do
    if contains(mount.app, wanted) then return true end
  end
  return false
end

-- app:mount(prefix, other): the routes of `other` below the prefix, which may hold :parameters. Its "/" is the mount
-- point, with and without the slash. It keeps its middleware, error and not_found.
function app_methods:mount(prefix, other)
  about_to_define("app:mount", self)
  if getmetatable(other) ~= app_meta then
    usage.raise('app:mount takes a prefix and an app: app:mount("/api", api); got %s', usage.show(other))
  end
  if contains(other, self) then usage.raise("app:mount: an app cannot be mounted inside itself") end
  local segments = router.parse("app:mount", prefix)
  if segments[#segments].rest then usage.raise("app:mount: a prefix holds no *%s", segments[#segments].rest) end
  if segments[#segments].text == "" then segments[#segments] = nil end
  self.mounts[#self.mounts + 1] = { segments = segments, app = other }
  return self
end

local function set_once(who, app, field, fn, signature)
  about_to_define(who, app)
  check_function(who, fn, signature)
  if app[field] then usage.raise("%s is already defined at %s", who, app[field .. "_where"] or "?") end
  app[field], app[field .. "_where"] = fn, usage.where()
  return app
end

-- app:error(fn): fn(req, res, err, traceback) answers when a handler raised; the status is 500 unless it says
-- otherwise.
function app_methods:error(fn) return set_once("app:error", self, "on_error", fn, "req, res, err") end

-- app:not_found(fn): fn(req, res) answers when no route fits; the status is 404 unless it says otherwise.
function app_methods:not_found(fn) return set_once("app:not_found", self, "on_not_found", fn, "req, res") end

for _, field in ipairs { "fixed", "star", "on_error", "on_error_where", "on_not_found", "on_not_found_where",
  "bytecode", "compiled_of" } do
  known_names[field] = true
end

local headers_meta = {
  __index = function(headers, name)
    if type(name) ~= "string" then return nil end
    return rawget(headers, name:lower())
  end,
}

local inject_options = { method = true, path = true, headers = true, body = true }

local function header_pairs(headers)
  local names, list = {}, {}
  for name in pairs(headers or {}) do
    if type(name) ~= "string" then
      usage.raise('app:inject: headers are { ["Content-Type"] = "text/plain" }; got the key %s', usage.show(name))
    end
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local value = headers[name]
    for _, one in ipairs(type(value) == "table" and value or { value }) do
      list[#list + 1] = { name, tostring(one) }
    end
  end
  return list
end

-- The functions that core.listen and core.inject take; made again when anything was defined since.
local function compile(self)
  if self.bytecode == nil or self.compiled_of ~= definitions then
    self.bytecode, self.compiled_of = router.compile(self), definitions
  end
  return self.bytecode
end

-- app:inject{ method = "GET", path = "/a?b=c", headers = {}, body = "" } -> { status, headers, body }, or nil, message,
-- code. A request without a socket, for tests. `headers` is found whatever the case; a header that came several times
-- is joined with ", " (Set-Cookie: with a line feed). Raises on unknown options.
function app_methods:inject(request)
  check_app("app:inject", self)
  if type(request) ~= "table" then
    usage.raise('app:inject takes a table: app:inject{ method = "GET", path = "/" }; got %s', usage.show(request))
  end
  options.check_names("app:inject", request, inject_options)
  local method, path = request.method or "GET", request.path or "/"
  for name, value in pairs { method = method, path = path, body = request.body } do
    if type(value) ~= "string" then usage.raise("app:inject: %s must be a text; got %s", name, usage.show(value)) end
  end
  if request.headers ~= nil and type(request.headers) ~= "table" then
    usage.raise("app:inject: headers must be a table; got %s", usage.show(request.headers))
  end
  local bytecode = compile(self)
  local status, list, body = core.inject(bytecode.dispatch, bytecode.failed, method, path,
    header_pairs(request.headers), request.body)
  if not status then return nil, list, body end
  local headers = setmetatable({}, headers_meta)
  for _, header in ipairs(list) do
    local name, before = header[1]:lower(), headers[header[1]]
    local glue = name == "set-cookie" and "\n" or ", "
    headers[name] = before and before .. glue .. header[2] or header[2]
  end
  return { status = status, headers = headers, body = body }
end

local app = {}

-- ls.app() -> a new app without routes.
function app.new()
  return setmetatable({ routes = {}, seen = {}, uses = {}, mounts = {} }, app_meta)
end

-- { dispatch =, failed = } of an app, which from now on is fixed, with those mounted in it. For ls.listen.
function app.serve(self, where)
  local bytecode = compile(self)
  local function fix(one)
    one.fixed = one.fixed or where
    for _, mount in ipairs(one.mounts) do fix(mount.app) end
  end
  fix(self)
  return bytecode
end

-- Whether `value` was made by ls.app().
function app.is(value) return getmetatable(value) == app_meta end

return app
