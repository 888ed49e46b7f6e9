local check = require "check"
local core = require "luaserve.core"
local ls = require "luaserve"
local router = require "luaserve.router"

local tests = {}

-- A handler that responds with its name and its parameters.
local function handler(name)
  return function(req)
    local parts = { name }
    for key, value in pairs(req.params or {}) do parts[#parts + 1] = key .. "=" .. value end
    table.sort(parts, function(a, b) return a ~= b and (a == name or b ~= name and a < b) end)
    return table.concat(parts, " ")
  end
end

local function request(app, method, path, body)
  local response = assert(app:inject { method = method, path = path, body = body })
  return response.body, response.status, response.headers
end

-- Each request "METHOD target" gets the response that follows it: a body, or a status.
local function expect(app, cases)
  for wanted, expected in pairs(cases) do
    local body, status = request(app, wanted:match("^(%S+) (.*)$"))
    check.equal({ wanted, type(expected) == "number" and status or body }, { wanted, expected })
  end
end

-- Each three of the patterns come in each order; test random_routes has more.
function tests.text_precedes_parameter_precedes_rest_in_any_order()
  local patterns = { "/a/b", "/a/:x", "/a/*r", "/:p/b", "/a/:x/c", "/*r" }
  for case = 0, 2 * #patterns - 1 do
    local app = ls.app()
    for i = 1, #patterns do
      local pattern = patterns[(case // 2 + (case % 2 == 0 and i or -i)) % #patterns + 1]
      app:get(pattern, handler(pattern))
    end
    for path, expected in pairs {
      ["/a/b"] = "/a/b", ["/a/z"] = "/a/:x x=z", ["/a/b/c"] = "/a/:x/c x=b", ["/a/b/d"] = "/a/*r r=b/d",
      ["/a/"] = "/a/*r r=", ["/z/b"] = "/:p/b p=z", ["/a"] = "/*r r=a", ["/"] = "/*r r=", ["/z/b/"] = "/*r r=z/b/",
    } do
      check.equal(request(app, "GET", path), expected)
    end
  end
end

function tests.a_trailing_slash_makes_another_path()
  local app = ls.app()
  app:get("/a", handler "a")
  app:get("/b/", handler "b")
  app:get("/c/:x", handler "c")
  for path, status in pairs { ["/a"] = 200, ["/a/"] = 404, ["/b"] = 404, ["/b/"] = 200, ["/c/"] = 404, ["/c/1"] = 200,
    ["/c/1/"] = 404, ["//a"] = 404, ["/"] = 404 } do
    check.equal(select(2, request(app, "GET", path)), status)
  end
end

function tests.parameters_are_decoded_after_the_path_is_split()
  local app = ls.app()
  app:get("/p/:x", handler "p")
  app:get("/r/*x", handler "r")
  app:get("/s/caf\xc3\xa9", handler "s")
  app:get("/100%25", handler "percent")
  app:get("/two/:x/:y", handler "two")
  app:get("/three/:x/:y/:z", handler "three")
  expect(app, {
    ["GET /p/a%20b"] = "p x=a b", ["GET /p/a+b"] = "p x=a+b", ["GET /p/a%2Fb"] = "p x=a/b",
    ["GET /p/a%252Fb"] = "p x=a%2Fb", ["GET /p/%e2%82%ac?x=%zz"] = "p x=\xe2\x82\xac",
    ["GET /r/a/%62%2fc/d"] = "r x=a/b/c/d", ["GET /s/caf%C3%A9"] = "s", ["GET /%73/caf%C3%A9"] = "s",
    ["GET /100%25"] = "percent", ["GET /two/1/%32"] = "two x=1 y=2", ["GET /three/1/2/3"] = "three x=1 y=2 z=3",
    ["GET /p%2Fa"] = 404,
  })
end

-- A server behind app:proxy may read these paths as /a/b/1.
function tests.middleware_of_a_path_runs_for_other_spellings_of_it()
  for _, pattern in ipairs { "/a/b", "/a/:x" } do
    local app = ls.app()
    app:any("/*path", handler "any")
    app:use(pattern, function() return 401 end)
    for _, path in ipairs { "/a/b", "/a/b/", "/a/b/1", "/a//b/1", "//a/b", "/a%2fb/1", "/a%2Fb", "/%61/b", "/a%5cb/1",
      "/a\\b", "/a/b;v=1/1", "/a;v/b", "/a/%62;v=1", "/a%2f%2Fb",
      "/a/;/b", "/;/a/b", "/a/;v=1/b", "/a//;a//b", "/a/;%2fb", "/a/%3b/b", "/A/b", "/%41/%42" } do
      check.equal({ path, (select(2, request(app, "GET", path))) }, { path, 401 })
    end
    for _, path in ipairs { "/", "/a", "/b/a/b", "/ab", "/a;/", "/a%3b" } do
      check.equal({ path, (select(2, request(app, "GET", path))) }, { path, 200 })
    end
  end
  local app = ls.app()
  app:any("/*path", handler "any")
  app:use("/a/b", function() return 401 end)
  for _, path in ipairs { "/a/bc", "/a/b%20c", "/a/c;/a/b" } do
    check.equal({ path, (select(2, request(app, "GET", path))) }, { path, 200 })
  end
end

-- An app:proxy("/", ...) whose server responds with `name`.
local function proxy(app, name)
  local route = { method = "any", segments = router.parse("", "/*path"), skip = 0 }
  function route.proxy() return function() return name end end
  route.proxy = { runner = route.proxy }
  app.routes[#app.routes + 1] = route
end

local function login(_, _, _) return 401 end

function tests.a_mounted_app_has_its_prefix_also_for_the_rest_of_its_path()
  local app, admin, files, own = ls.app(), ls.app(), ls.app(), ls.app()
  admin:use(login)
  proxy(admin, "server")
  proxy(app, "all")
  app:mount("/admin", admin)
  files:get("/*path", handler "files")
  app:mount("/files", files)
  own:get("/", handler "own /")
  own:get("/*path", handler "own")
  app:mount("/own/:id", own)
  app:get("/taken", handler "taken")
  app:mount("/taken", files)
  expect(app, {
    ["GET /admin"] = 401, ["POST /admin"] = 401, ["GET /admin/"] = 401, ["GET /admin/x"] = 401, ["GET /administer"] = "all",
    ["GET /files"] = "files path=", ["GET /files/"] = "files path=", ["GET /files/a/b"] = "files path=a/b",
    ["GET /own/7"] = "own / id=7", ["GET /own/7/x"] = "own id=7 path=x", ["GET /taken"] = "taken", ["GET /taken/x"] = "files path=x",
  })
end

function tests.routes_that_may_be_tunnels()
  local app = ls.app()
  app:any("/*path", handler "any")
  check.equal(router.compile(app).tunnels, false)
  proxy(app:mount("/a", ls.app()).mounts[1].app, "all")
  check.equal(router.compile(app).tunnels, true)
end

-- The server of the catch-all may read these paths as one that needs a login.
function tests.other_spellings_of_a_guarded_route_are_no_paths_of_a_proxy()
  local app, admin = ls.app(), ls.app()
  proxy(app, "all")
  admin:use(login)
  proxy(admin, "admin")
  app:mount("/Admin", admin)
  app:get("/stats", login, handler "stats")
  app:get("/open", handler "open")
  local cases = { ["GET /Admin/x"] = 401, ["GET /stats"] = 401, ["GET /OPEN"] = "all", ["GET //open"] = "all", ["GET /a%2Fb"] = "all",
    ["GET /X/admin"] = "all", ["GET //"] = "all", ["GET /"] = "all", ["GET /a//B"] = "all", ["GET /stats2"] = "all" }
  for _, path in ipairs { "//admin/x", "/ADMIN/x", "/admin", "/Admin;a/x", "/;/admin/x", "/\\admin/x", "/admin%2fx", "/Admin%5Cx", "/STATS",
    "/stat%53", "//stats", "/stats;a" } do
    cases["GET " .. path], cases["POST " .. path] = 400, 400
  end
  expect(app, cases)
end

-- chains(app) -> the numbers of functions in the chains of its routes and of requests without a route; of all.
local function chains(app)
  local chain, counts = core.chain, {}
  core.chain = function(functions)
    counts[#counts + 1] = #functions
    return chain(functions)
  end
  router.compile(app)
  core.chain = chain
  return table.concat(counts, " ")
end

function tests.a_route_has_only_the_middleware_that_may_run_for_it()
  local function through(_, _, go) go() end
  for _, case in ipairs {
    { "/a", "/a", "2" }, { "/a", "/a/b", "2" }, { "/a", "/a/", "2" }, { "/a", "/a/:x", "2" }, { "/a", "/a/*x", "2" },
    { "/a", "/b", "" }, { "/a", "/", "" }, { "/a", "/ab", "" }, { "/a/b", "/a", "" }, { "/a/b", "/b/:x", "" },
    { "/a/b", "/a/:x", "2" }, { "/a", "/:x", "2" }, { "/a", "/*x", "2" }, { "/:x", "/a", "2" }, { "/:x/b", "/a/c", "" },
    { "/A/b", "/a/B", "2" }, { "/b", "/a%2Fb", "2" }, { "/b", "/a%5Cb", "2" }, { "/b", "/a%3Bb", "2" }, { "/a/b", "/a//b", "2" },
  } do
    local app = ls.app()
    app:get(case[2], handler "a")
    app:use(case[1], through)
    check.equal({ case[1], case[2], chains(app) }, { case[1], case[2], (case[3] .. " 2 2 2"):match("^ ?(.*)") })
  end
  local app, below = ls.app(), ls.app()
  below:use("/x", function() return 401 end)
  below:get("/x", handler "x")
  below:get("/y", handler "y")
  app:mount("/in", below)
  expect(app, { ["GET /in/x"] = 401, ["GET /in/y"] = "y", ["GET /x"] = 404, ["GET /in/x/none"] = 401 })
end

function tests.a_guard_needs_no_chain()
  local seen = {}
  local function mark(name, answer)
    return function(_, _, go)
      seen[#seen + 1] = name
      if answer then return 403, answer, { X = "y" } end
      return go()
    end
  end
  local function app_of(...)
    local app = ls.app()
    app:use(...)
    app:get("/a", handler "a")
    return app
  end
  local guard = router.guard
  local app = app_of(guard(mark "1"), guard(mark "2"))
  app:use("/a", guard(mark "3"))
  app:use("/:x", guard(mark "4"))
  check.equal({ request(app, "GET", "/a"), chains(app) }, { "a", "" })
  check.equal({ select(2, request(app, "GET", "/a/none")) }, { 404, {} })
  check.equal(table.concat(seen), "12341234")
  seen = {}
  app = app_of(guard(mark "1"), mark "2", guard(mark "3"), mark "4", guard(mark "5"))
  check.equal({ request(app, "GET", "/a"), chains(app) }, { "a", "3 3 3 3" })
  check.equal(table.concat(seen), "12345")
  for _, at in ipairs { 1, 2 } do
    local list = { guard(mark "1"), mark "2" }
    table.insert(list, at, guard(mark("no", "no")))
    seen = {}
    local body, status, headers = request(app_of(table.unpack(list)), "GET", "/a")
    check.equal({ body, status, headers.x, table.concat(seen) }, { "no", 403, "y", at == 1 and "no" or "1no" })
  end
end

function tests.invalid_escapes_and_nul_are_400()
  local app = ls.app()
  app:get("/p/:x", handler "p")
  app:get("/100%25", handler "percent")
  local seen = 0
  app:use(function(_, _, go) seen = seen + 1 return go() end)
  for _, path in ipairs { "/p/%", "/p/%4", "/p/%zz", "/p/%00", "/p/a%00b", "/none/%", "/100%" } do
    check.equal(select(2, request(app, "GET", path)), 400)
  end
  check.equal(seen, 7)
end

function tests.routes_are_found_by_method()
  local app = ls.app()
  app:get("/a", handler "get")
  app:post("/a", handler "post")
  app:any("/any", handler "any")
  app:get("/any", handler "get")
  app:get("/h", handler "get")
  app:head("/h", handler "head")
  app:options("/o", handler "options")
  app:route("PROPFIND", "/dav/:x", handler "dav")
  app:delete("/x/:id", handler "delete")
  app:patch("/x/:id", handler "patch")
  app:put("/x/special", handler "put")
  expect(app, {
    ["GET /a"] = "get", ["HEAD /a"] = "get", ["HEAD /h"] = "head", ["HEAD /any"] = "get", ["PUT /any"] = "any",
    ["BREW /any"] = "any", ["OPTIONS /any"] = "any", ["OPTIONS /o"] = "options", ["PROPFIND /dav/1"] = "dav x=1",
    ["PATCH /x/special"] = "patch id=special",
  })
  for _, case in ipairs {
    { "PUT", "/a", 405, "GET, HEAD, OPTIONS, POST" }, { "OPTIONS", "/a", 204, "GET, HEAD, OPTIONS, POST" },
    { "GET", "/x/special", 405, "DELETE, OPTIONS, PATCH, PUT" }, { "GET", "/dav/1", 405, "OPTIONS, PROPFIND" },
    { "BREW", "/a", 405, "GET, HEAD, OPTIONS, POST" }, { "GET", "/o", 405, "OPTIONS" }, { "BREW", "/none", 404, nil },
    { "OPTIONS", "/none", 404, nil },
  } do
    local _, status, headers = request(app, case[1], case[2])
    check.equal({ status, headers.allow }, { case[3], case[4] })
  end
end

function tests.options_asterisk_lists_all_methods()
  local app = ls.app()
  app:get("/a", handler "get")
  local _, status, headers = request(app, "OPTIONS", "*")
  check.equal({ status, headers.ALLOW }, { 204, "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT" })
  check.equal(select(2, request(app, "GET", "*")), 400)
  app:options("*", handler "star")
  check.equal(request(app, "OPTIONS", "*"), "star")
  check.raises("already defined", app.options, app, "*", handler "star")
end

function tests.middleware_runs_in_order_for_every_response()
  local app = ls.app()
  local seen = {}
  local function mark(name)
    return function(_, _, go)
      seen[#seen + 1] = name
      local function after(...)
        seen[#seen + 1] = "/" .. name
        return ...
      end
      return after(go())
    end
  end
  app:use(mark "1")
  app:get("/", function() seen[#seen + 1] = "handler" return 201, "made", { X = "y" } end)
  app:use(mark "2")
  local body, status, headers = request(app, "GET", "/")
  check.equal({ body, status, headers.x }, { "made", 201, "y" })
  check.equal(seen, { "1", "2", "handler", "/2", "/1" })
  for _, case in ipairs { { "GET", "/none", 404 }, { "POST", "/", 405 }, { "OPTIONS", "/", 204 },
    { "OPTIONS", "*", 204 }, { "GET", "/%", 400 } } do
    seen = {}
    check.equal(select(2, request(app, case[1], case[2])), case[3])
    check.equal(seen, { "1", "2", "/2", "/1" })
  end
end

function tests.middleware_may_respond_itself()
  local app = ls.app()
  app:use(function() return 403, "no" end)
  app:get("/", function() error("not reached") end)
  check.equal(request(app, "GET", "/"), "no")
end

function tests.mounted_apps_keep_their_handlers()
  local app, api, deep = ls.app(), ls.app(), ls.app()
  local seen = {}
  local function mark(name)
    return function(_, _, go) seen[#seen + 1] = name return go() end
  end
  app:use(mark "app")
  api:use(mark "api")
  deep:use(mark "deep")
  app:get("/", handler "root")
  app:get("/api/own", handler "own")
  app:get("/*rest", handler "catch")
  api:get("/", handler "api root")
  api:get("/items/:id", handler "item")
  api:not_found(function() return "api: none" end)
  deep:get("/:x", handler "deep")
  deep:error(function(_, _, err) return 503, "deep: " .. err end)
  deep:get("/fail/now", function() error("oh", 0) end)
  api:get("/fail", function() error("ah", 0) end)
  app:error(function(_, _, err) return "app: " .. err end)
  api:mount("/u/:user/", deep)
  app:mount("/api", api)
  for _, case in ipairs {
    { "GET", "/", "root", 200, "app" }, { "GET", "/else", "catch rest=else", 200, "app" },
    { "GET", "/api", "api root", 200, "app api" }, { "GET", "/api/", "api root", 200, "app api" },
    { "GET", "/api/own", "own", 200, "app" }, { "GET", "/api/items/5", "item id=5", 200, "app api" },
    { "GET", "/api/none", "api: none", 404, "app api" }, { "GET", "/api/%6eone", "api: none", 404, "app api" },
    { "POST", "/api/none", "api: none", 404, "app api" }, { "POST", "/api/items/5", "status 405", 405, "app api" },
    { "GET", "/api/u/me/y", "deep user=me x=y", 200, "app api deep" },
    { "GET", "/api/u/me/y/z", "api: none", 404, "app api deep" },
    { "GET", "/api/u/me/fail/now", "deep: oh", 503, "app api deep" },
    { "GET", "/api/fail", "app: ah", 500, "app api" },
    { "GET", "http://h/api/u/me/fail/now?q", "deep: oh", 503, "app api deep" },
  } do
    local method, path, body, status, marks = table.unpack(case)
    seen = {}
    local got_body, got_status = request(app, method, path)
    check.equal({ path, got_body, got_status, table.concat(seen, " ") }, { path, body, status, marks })
  end
end

function tests.a_mount_without_not_found_uses_that_of_the_parent()
  local app, api = ls.app(), ls.app()
  api:get("/x", handler "x")
  app:mount("/api", api)
  app:not_found(function(req) return 404, "no " .. req.path end)
  check.equal(request(app, "GET", "/api/none"), "no /api/none")
  app:get("/*rest", handler "catch")
  check.equal(request(app, "GET", "/api/none"), "catch rest=api/none")
end

function tests.middleware_with_the_prefix_of_its_app_once_more_raises_unless_a_route_is_there()
  local function mounted(path, route, ...)
    local inner = ls.app():use(path, function() end):get(route, function() end)
    for _, prefix in ipairs { ... } do inner = ls.app():mount(prefix, inner) end
    return router.compile(inner)
  end
  check.raises('no route "/api/admin" there: write app:use("/admin", fn)', mounted, "/api/admin", "/admin", "/api")
  check.raises("write app:use(fn)", mounted, "/api/", "/*rest", "/api")
  for _, path in ipairs { "/v1/api/admin", "/api/admin" } do
    check.raises('write app:use("/admin", fn)', mounted, path, "/admin", "/api", "/v1")
  end
  mounted("/api/admin", "/api/admin/users", "/api")
  mounted("/apis", "/admin", "/api")
  mounted("/v1", "/v1/x", "/v1")
  mounted("/:id", "/x", "/:user")
  mounted("/api", "/admin", "/")
  mounted("/api", "/admin")
end

function tests.an_app_can_be_mounted_at_the_root()
  local app, site = ls.app(), ls.app()
  site:get("/", handler "home")
  site:get("/a", handler "a")
  app:mount("/", site)
  check.equal(request(app, "GET", "/"), "home")
  check.equal(request(app, "GET", "/a"), "a")
end

function tests.an_app_can_be_mounted_twice()
  local app, part = ls.app(), ls.app()
  part:get("/x", handler "x")
  app:mount("/a", part):mount("/b", part)
  check.equal(request(app, "GET", "/a/x"), "x")
  check.equal(request(app, "GET", "/b/x"), "x")
end

function tests.body_limits_of_routes()
  local app = ls.app()
  app:post("/small", { max_body = 10 }, handler "small")
  app:post("/large", { max_body = "10k" }, handler "large")
  app:post("/any/:x", { max_body = false }, function(req) return req.body_max end)
  app:post("/plain", handler "plain")
  local long = ("x"):rep(2000)
  check.equal(select(2, request(app, "POST", "/plain", "x")), 200)
  check.equal(select(2, request(app, "POST", "/plain", long)), 413)
  check.equal(select(2, request(app, "POST", "/small", ("x"):rep(10))), 200)
  check.equal(select(2, request(app, "POST", "/small", ("x"):rep(11))), 413)
  check.equal(select(2, request(app, "POST", "/large", long)), 200)
  check.equal(request(app, "POST", "/any/1", long), "none")
  check.equal(select(2, request(app, "POST", "/none", long)), 404)
end

function tests.time_limits_of_routes()
  local app = ls.app()
  local function show(req) return tostring(req.time_max) end
  app:get("/default", show)
  app:get("/short", { timeout = 0.5 }, show)
  app:get("/none/:x", { timeout = false }, show)
  check.equal(request(app, "GET", "/default"), "nil")
  check.equal(request(app, "GET", "/short"), "500")
  check.equal(request(app, "GET", "/none/1"), "0")
end

function tests.shortcuts_agree_with_the_trie()
  local app, part = ls.app(), ls.app()
  app:get("/a/:x", handler "param")
  app:get("/a/limited", { max_body = 1 }, handler "limited")
  app:get("/b/:x", handler "param")
  app:get("/b/%25", handler "percent")
  app:get("/b%25/:x", handler "odd")
  app:get("/e%2Ff", handler "slash")
  app:get("/c/:x", { max_body = 5 }, function(req) return req.body_max .. req.params.x end)
  app:get("/d/:x", handler "param")
  part:not_found(function() return "part: none" end)
  app:mount("/d/part", part)
  app:get("/:x", handler "top")
  expect(app, {
    ["GET /a/limited"] = "limited", ["GET /a/other"] = "param x=other", ["GET /b/%25"] = "percent",
    ["GET /b/1"] = "param x=1", ["GET /b%25/1"] = "odd x=1", ["GET /e%2Ff"] = "slash", ["GET /e/f"] = 404,
    ["GET /b%/1"] = 400, ["GET /c/1"] = "51", ["GET /d/part"] = "part: none", ["GET /d/1"] = "param x=1",
    ["GET /1"] = "top x=1", ["GET /d/part/1"] = 404,
  })
end

function tests.errors_without_a_handler_are_500()
  local app = ls.app()
  app:get("/", function() error("oh") end)
  check.equal(select(2, request(app, "GET", "/")), 500)
end

function tests.simple_routes_make_no_garbage()
  local app = ls.app()
  app:get("/hello", function() return "hello" end)
  app:get("/p/:x", function() return "hello" end)
  local dispatch = router.compile(app).dispatch
  local req, res, path = { params = {} }, {}, "/hello"
  local function bytes_of(count, target)
    collectgarbage()
    collectgarbage("stop")
    local before = collectgarbage("count")
    for _ = 1, count do dispatch(req, res, "GET", target, false) end
    local used = (collectgarbage("count") - before) * 1024
    collectgarbage("restart")
    return used / count
  end
  check.equal(bytes_of(1000, path) < 1, true)
  -- The table and its one slot; the string of the parameter exists already.
  check.equal(bytes_of(1000, "/p/hello") <= 56 + 40 + 1, true)
end

function tests.invalid_patterns_raise()
  local app = ls.app()
  local fn = handler "x"
  for pattern, part in pairs {
    ["a"] = 'must begin with "/"', [""] = 'must begin with "/"', ["*"] = 'must begin with "/"',
    ["/%"] = "invalid escape", ["/a/%0"] = "write %25 for", ["/%00"] = "invalid escape",
    ["/a?b"] = "control characters, ? or #", ["/a\n"] = "control characters",
    ["/:"] = "':' must be followed by a name", ["/:a-b"] = "':' must be followed by a name", ["/*"] = 'write "*rest"',
    ["/*r/x"] = "must come last", ["/:a/:a"] = "duplicate parameter name a", ["/:a/*a"] = "duplicate parameter name a",
  } do
    check.raises({ "app:get: ", part }, app.get, app, pattern, fn)
  end
  check.raises("must be a string", app.get, app, nil, fn)
end

function tests.escapes_in_a_pattern_are_decoded()
  local app = ls.app()
  app:get("/a%20b/:x", handler "space")
  app:get("/%7Bid%7D", handler "braces")
  app:get("/%3Aid", handler "colon")
  app:get("/%2A", handler "star")
  app:get("/:id", handler "param")
  expect(app, {
    ["GET /a%20b/1"] = "space x=1", ["GET /{id}"] = "braces", ["GET /%7bid%7d"] = "braces", ["GET /:id"] = "colon",
    ["GET /*"] = "star", ["GET /x"] = "param id=x",
  })
  check.raises("already defined", app.get, app, "/%7bid%7d", handler "x")
end

function tests.patterns_of_other_routers_raise_with_the_right_spelling()
  local app = ls.app()
  for pattern, right in pairs {
    ["/{id}"] = '"{id}" write ":id"', ["/{id:int}"] = 'write ":id"', ["/{id:\\d+}"] = 'write ":id"',
    ["/{id?}"] = 'write ":id"', ["/{*rest}"] = 'write "*rest"', ["/{path...}"] = 'write "*path"',
    ["/{p:.*}"] = 'write "*p"', ["/<id>"] = 'write ":id"', ["/<int:id>"] = 'write ":id"', ["/<path:p>"] = 'write "*p"',
    ["/[id]"] = 'write ":id"', ["/[...slug]"] = 'write "*slug"', ["/[[...slug]]"] = 'write "*slug"',
    ["/a/**"] = 'write "*rest"', ["/a/*"] = 'write "*rest"', ["/:id(\\d+)"] = 'write ":id"', ["/:p*"] = 'write "*p"',
    ["/:p+"] = 'write "*p"', ["/:id?"] = 'two routes, "/" and "/:id"', ["/x/:id?"] = 'two routes, "/x" and "/x/:id"',
    ["/a*x"] = "write %2A for the character itself", ["/*a-b"] = "%2A", ["/x{y"] = "%7B", ["/x<y"] = "%3C",
    ["/:a.json"] = "take it apart in the handler", ["/:from-:to"] = "take it apart in the handler",
  } do
    check.raises({ check.line(1), "app:get: ", right, string.format("got %q", pattern) }, function()
      app:get(pattern, handler "x")
    end)
    check.raises("app:mount: ", function() app:mount(pattern, ls.app()) end)
  end
  for _, pattern in ipairs { "/items:batch", "/Foo_(bar)", "/a[1]", "/a+b", "/$x", "/@me", "/a,b;c=1" } do
    app:get(pattern, handler(pattern))
    check.equal(request(app, "GET", pattern), pattern)
  end
end

function tests.routes_have_names_for_messages()
  local app, part = ls.app(), ls.app()
  local line = check.line(1)
  part:get("/:x/%3Ay", handler "x")
  app:mount("/a/:b", part)
  app:any("/c", handler "c")
  local error_line = check.line(1)
  app:error(handler "e")
  local dispatch = router.compile(app).dispatch
  local function named(...)
    local name, where = router.name(dispatch, ...)
    return { name, where and where:match("[^/]*$") }
  end
  check.equal(named("GET", "/a/1/2/:y", false), { "GET /a/:b/:x/%3Ay", line })
  check.equal(named("PUT", "/c", false)[1], "any /c")
  check.equal(named("GET", "/c", true), { "app:error", error_line })
  check.equal(named("GET", "/none", false), {})
  local use_line = check.line(1)
  app:use(handler "u")
  dispatch = router.compile(app).dispatch
  check.equal(named("GET", "/none", false), { "app:use", use_line })
  local not_found_line = check.line(1)
  app:not_found(handler "n")
  dispatch = router.compile(app).dispatch
  check.equal(named("GET", "/none", false), { "app:not_found", not_found_line })
  check.equal(named("OPTIONS", "*", false), {})
end

function tests.duplicate_routes_raise_with_both_lines()
  local app = ls.app()
  local first = check.line(1)
  app:get("/a/:x", handler "1")
  check.raises({ check.line(1), "GET /a/:y is already defined at ", first }, function()
    app:get("/a/:y", handler "2")
  end)
  app:post("/a/:x", handler "3")
  app:any("/a/:x", handler "4")
  check.raises("already defined", app.any, app, "/a/:z", handler "5")
  local api, line = ls.app(), check.line(1)
  api:get("/:x", handler "6")
  app:mount("/a", api)
  check.raises({ line, "GET /a/: is already defined at ", first }, app.inject, app, {})
end

-- The reference implementation: of all matching patterns, the one with the lower rank at the first segment where two
-- differ. Ranks: text 1, parameter 2, rest 3.
local function reference_match(patterns, path)
  local best, best_ranks
  for _, pattern in ipairs(patterns) do
    local wanted, ranks, from, fits = {}, {}, 2, true
    for segment in pattern:gmatch("/([^/]*)") do wanted[#wanted + 1] = segment end
    for i, segment in ipairs(wanted) do
      local slash = path:find("/", from, true)
      local given = path:sub(from, (slash or #path + 1) - 1)
      if segment:sub(1, 1) == "*" then
        ranks[i] = 3
        break
      end
      ranks[i] = segment:sub(1, 1) == ":" and 2 or 1
      local last = i == #wanted
      if ranks[i] == 1 and segment ~= given or ranks[i] == 2 and given == "" or last == (slash ~= nil) then
        fits = false
        break
      end
      from = (slash or 0) + 1
    end
    if fits then
      local closer = not best
      for i = 1, best and math.min(#ranks, #best_ranks) or 0 do
        if ranks[i] ~= best_ranks[i] then
          closer = ranks[i] < best_ranks[i]
          break
        end
      end
      if closer then best, best_ranks = pattern, ranks end
    end
  end
  return best
end

function tests.random_routes_match_like_the_reference()
  math.randomseed(7)
  local parts = { "a", "b", ":p", "" }
  for _ = 1, 100 do
    local app, patterns, defined = ls.app(), {}, {}
    for _ = 1, math.random(8) do
      local segments = {}
      local depth = math.random(3)
      for i = 1, depth do
        local part = parts[math.random(i == depth and 4 or 3)]
        segments[i] = part == ":p" and ":p" .. i or part
      end
      if math.random(4) == 1 then segments[#segments + 1] = "*r" end
      local pattern = "/" .. table.concat(segments, "/")
      if not defined[pattern] then
        defined[pattern] = true
        patterns[#patterns + 1] = pattern
        app:get(pattern, math.random(5) == 1 and { max_body = 1 } or {}, function() return pattern end)
      end
    end
    for _ = 1, 40 do
      local segments = {}
      for i = 1, math.random(4) do segments[i] = ({ "a", "b", "c", "" })[math.random(4)] end
      local path = "/" .. table.concat(segments, "/")
      local expected = reference_match(patterns, path)
      for _, spelled in ipairs { path, (path:gsub("a", "%%61")) } do
        local body, status = request(app, "GET", spelled)
        local got = status == 200 and body or nil
        if got ~= expected then
          error(spelled .. " in " .. table.concat(patterns, " ") .. ": " .. tostring(got) .. " for " .. tostring(expected))
        end
      end
    end
  end
end

function tests.paths_of_many_slashes_are_handled()
  local app = ls.app()
  app:get("/:a/:b/:c", handler "abc")
  app:get("/x/*rest", handler "rest")
  check.equal(select(2, request(app, "GET", ("/"):rep(8000))), 404)
  check.equal(select(2, request(app, "GET", "/y" .. ("/%61"):rep(2000))), 404)
  check.equal(select(2, request(app, "GET", "/x" .. ("/%61"):rep(2000))), 200)
  check.equal(core.percent_decode("%61"), "a")
end

return tests
