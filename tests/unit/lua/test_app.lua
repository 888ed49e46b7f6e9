local check = require "check"
local core = require "luaserve.core"
local ls = require "luaserve"

local tests = {}

local function hello() return "hello" end

function tests.usage_errors_point_at_the_caller()
  local app = ls.app()
  check.raises({ check.line(), "app:get needs a function(req, res); got nil" }, function() app:get("/") end)
  check.raises({ check.line(), "no method \"gett\"; did you mean 'get'?" }, function() app:gett("/", hello) end)
  check.raises("with a colon", function() app.get("/", hello) end)
  check.raises("unknown option \"max_boddy\"; did you mean 'max_body'?", function()
    app:get("/", { max_boddy = 1 }, hello)
  end)
  check.raises("max_body must be a number of bytes", function() app:get("/", { max_body = true }, hello) end)
  check.raises("options must be a table", function() app:get("/", "x", hello) end)
  check.raises("must be in upper case: \"GET\"", function() app:route("get", "/", hello) end)
  check.raises("the method must be a string", function() app:route("G T", "/", hello) end)
  check.raises("app:use needs a function", function() app:use(1) end)
  check.raises("app:use needs a function", function() app:use(hello, nil, hello) end)
  check.raises("app:use needs a function(req, res, next); got nil", function() app:use("/x") end)
  check.raises("must not contain *rest", function() app:use("/x/*rest", hello) end)
  check.raises("app:mount takes a prefix and an app", function() app:mount("/x") end)
  check.raises("must not contain *rest", function() app:mount("/x/*rest", ls.app()) end)
  check.raises("inside itself", function() app:mount("/x", app) end)
end

function tests.arguments_that_would_be_ignored_raise()
  local app, other = ls.app(), ls.app()
  check.raises({ check.line(), "app:mount(prefix, other): got a table" }, function() app:mount("/a", other, {}) end)
  check.raises('app:mount("/a", other)', function() app:mount(other, "/a") end)
  check.raises("app:get needs a function(req, res); got 5", function() app:get("/", {}, hello, 5) end)
  check.raises("the options come before the function", function() app:route("GET", "/", {}, hello, {}) end)
  check.raises("the options come before the function", function() app:any("/", hello, { max_body = 1 }) end)
  check.raises("the options come before the functions: app:post(path, options, middleware, fn)", function()
    app:post("/", hello, { max_body = 1 }, hello)
  end)
  check.raises("app:post needs a function(req, res, next); got 1", function() app:post("/", {}, 1, hello) end)
  check.raises("app:error(fn): got a function", function() app:error(hello, hello) end)
  check.raises("app:not_found(fn): got true", function() app:not_found(hello, true) end)
  check.raises("app:inject{ method = ..., path = ... }: got a table", function() app:inject({}, {}) end)
  check.raises('ls.app(): got "x"', function() ls.app("x") end)
end

-- A name that is misspelt, or declared further down, is nil: the route would be open, or its options would be lost.
function tests.a_nil_among_the_arguments_of_a_route_raises()
  local app = ls.app()
  local function guard(_, _, go) return go() end
  local text = { check.line(), "an argument after the path is nil: a name in this call is misspelt, or has its value later" }
  for _, verb in ipairs { "get", "post", "put", "patch", "delete", "head", "options", "any" } do
    text[1] = check.line(1)
    check.raises(text, function() app[verb](app, "/", nil, hello) end)
  end
  for name, call in pairs {
    several = function() app:get("/", nil, nil, hello) end,
    second = function() app:get("/", guard, nil, hello) end,
    options = function() app:get("/", { timeout = 5 }, nil, hello) end,
    handler = function() app:get("/", guard, nil) end,
    route = function() app:route("GET", "/", nil, hello) end,
    ws = function() app:ws("/", nil, hello) end,
    ws_handler = function() app:ws("/", {}, nil) end,
    static = function() app:static("/", "lua", nil) end,
    proxy = function() app:proxy("/", "http://127.0.0.1:1", nil) end,
    status = function() app:status("/", nil) end,
    health = function() app:health("/", nil) end,
    openapi = function() app:openapi("/", nil) end,
    metrics = function() app:metrics("/", nil) end,
  } do
    local fine, message = pcall(call)
    check.equal({ name, fine, tostring(message):find(text[2], 1, true) ~= nil or message }, { name, false, true })
  end
  check.equal(app:inject{ path = "/" }.status, 404)
end

-- As in other frameworks, where the order is another one: what stands behind the handler would never run.
function tests.a_handler_before_the_last_function_raises()
  local app = ls.app()
  local function guard(_, _, go) return go() end
  for name, call in pairs {
    guard_behind = function() app:get("/", hello, guard) end,
    two_handlers = function() app:any("/", {}, guard, function(_, _) return 1 end, hello) end,
  } do
    local fine, message = pcall(call)
    check.equal({ name, fine, tostring(message):match("function %d, of .-test_app%.lua:%d+, has no third parameter, next") ~= nil or message },
      { name, false, true })
  end
  app:get("/a", guard, hello)
  app:get("/b", function(...) return select(3, ...)() end, print, guard, function() return "hello" end)
  app:use("/old", function() return 410 end)
end

function tests.the_second_result_of_require_is_no_argument()
  local app, part = ls.app(), ls.app()
  package.loaded["a.module"], package.loaded["a.handler"] = part, hello
  app:mount("/part", part, "./a/module.lua")
  app:use(function(_, _, go) return go() end)
  app:get("/", hello, "./a/handler.lua")
  app:get("/options", {}, hello, "./a/handler.lua")
  app:not_found(hello, "./a/handler.lua")
  app:use(function(_, _, go) return go() end, hello, "./a/handler.lua")
  check.raises('got "x"', function() app:mount("/other", ls.app(), "x") end)
  core.take_calls()
  ls.listen(8080, part, "./a/module.lua")
  check.equal(core.take_calls()[1][1], "listen")
  package.loaded["a.module"], package.loaded["a.handler"] = nil, nil
end

function tests.use_takes_several_functions()
  local app, seen = ls.app(), {}
  local function note(name)
    return function(_, _, go) seen[#seen + 1] = name return go() end
  end
  app:use(note "a", note "b"):use(note "c")
  app:get("/", hello)
  check.equal(app:inject{ path = "/" }.body, "hello")
  check.equal(seen, { "a", "b", "c" })
end

function tests.inject_raises_for_a_handler_that_waits_while_loading()
  local app, inject = ls.app(), core.inject
  core.inject = function() return nil, "the handler waits", "EBUSY" end
  check.raises({ check.line(1), "app:inject: the handler of GET /slow waits", "ls.init", 'ls.on("start"' }, function()
    app:inject{ path = "/slow" }
  end)
  core.inject = function() return nil, "malformed", "EINVAL" end
  check.equal({ app:inject{} }, { nil, "malformed", "EINVAL" })
  core.inject = inject
end

function tests.cyclic_mounts_raise()
  local a, b = ls.app(), ls.app()
  a:mount("/b", b)
  check.raises("inside itself", function() b:mount("/a", a) end)
end

function tests.error_and_not_found_are_defined_once()
  local app = ls.app()
  app:error(hello)
  app:not_found(hello)
  check.raises("already defined at ", function() app:error(hello) end)
  check.raises("already defined at ", function() app:not_found(hello) end)
end

function tests.definitions_return_the_app()
  local app = ls.app()
  local same = app:get("/", hello):post("/", hello):use(function(_, _, go) return go() end):any("/x", hello)
  check.equal(same == app, true)
end

function tests.inject_returns_status_headers_body_and_trailers()
  local app = ls.app()
  app:post("/x", function(req, res)
    res:header("X-One", "1")
    res:header("x-one", "2")
    res:header("Set-Cookie", "a=1")
    res:header("Set-Cookie", "b=2")
    res:trailer("X-Sum", "7")
    res:trailer("x-sum", "8")
    local list = {}
    for _, header in ipairs(req.headers) do list[#list + 1] = header[1] .. ":" .. header[2] end
    return 201, table.concat(list, " ") .. " " .. req.body_text
  end)
  local response = app:inject { method = "POST", path = "/x?y", headers = { A = { "1", "2" }, B = 3 }, body = "b" }
  check.equal({ response.status, response.body }, { 201, "A:1 A:2 B:3 Host:localhost Content-Length:1 b" })
  check.equal(response.headers["X-ONE"], "1, 2")
  check.equal(response.headers["set-cookie"], "a=1\nb=2")
  check.equal(response.headers.none, nil)
  check.equal(response.trailers["X-Sum"], "7, 8")
end

function tests.inject_sees_routes_defined_after_the_first_inject()
  local app, api = ls.app(), ls.app()
  app:mount("/api", api)
  check.equal(app:inject { path = "/api/x" }.status, 404)
  api:get("/x", hello)
  check.equal(app:inject { path = "/api/x" }.status, 200)
end

function tests.inject_checks_its_options()
  local app = ls.app()
  check.raises("unknown option \"paht\"; did you mean 'path'?", app.inject, app, { paht = "/" })
  check.raises("body must be a string; got a table", app.inject, app, { body = {} })
  check.raises("headers must be a table", app.inject, app, { headers = "A: b" })
  check.raises("headers must be a table such as", app.inject, app, { headers = { "A: b" } })
  check.raises("takes a table", app.inject, app, "/")
end

function tests.an_app_keeps_nothing_of_the_site()
  local app = ls.app()
  check.raises({ check.line(), 'got "locals": data of all requests is in a ls.dict' }, function() app.locals = {} end)
end

return tests
