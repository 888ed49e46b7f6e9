local check = require "check"
local core = require "luaserve.core"
local ls = require "luaserve"
local router = require "luaserve.router"

local tests = {}

-- A handler that tells which route it is, with its parameters.
local function tell(name)
  return function(req)
    local parts = { name }
    for key, value in pairs(req.params or {}) do parts[#parts + 1] = key .. "=" .. value end
    table.sort(parts, function(a, b) return a ~= b and (a == name or b ~= name and a < b) end)
    return table.concat(parts, " ")
  end
end

local function ask(app, method, path, body)
  local answer = assert(app:inject { method = method, path = path, body = body })
  return answer.body, answer.status, answer.headers
end

-- All orders of a short list.
local function permutations(list, n, each)
  n = n or #list
  if n <= 1 then return each(list) end
  for i = 1, n do
    list[i], list[n] = list[n], list[i]
    permutations(list, n - 1, each)
    list[i], list[n] = list[n], list[i]
  end
end

function tests.text_beats_parameter_beats_rest_in_any_order()
  permutations({ "/a/b", "/a/:x", "/a/*r", "/:p/b", "/a/:x/c", "/*r" }, nil, function(patterns)
    local app = ls.app()
    for _, pattern in ipairs(patterns) do app:get(pattern, tell(pattern)) end
    for path, expected in pairs {
      ["/a/b"] = "/a/b", ["/a/z"] = "/a/:x x=z", ["/a/b/c"] = "/a/:x/c x=b", ["/a/b/d"] = "/a/*r r=b/d",
      ["/a/"] = "/a/*r r=", ["/z/b"] = "/:p/b p=z", ["/a"] = "/*r r=a", ["/"] = "/*r r=", ["/z/b/"] = "/*r r=z/b/",
    } do
      check.equal(ask(app, "GET", path), expected)
    end
  end)
end

function tests.the_trailing_slash_counts()
  local app = ls.app()
  app:get("/a", tell "a")
  app:get("/b/", tell "b")
  app:get("/c/:x", tell "c")
  for path, status in pairs { ["/a"] = 200, ["/a/"] = 404, ["/b"] = 404, ["/b/"] = 200, ["/c/"] = 404, ["/c/1"] = 200,
    ["/c/1/"] = 404, ["//a"] = 404, ["/"] = 404 } do
    check.equal(select(2, ask(app, "GET", path)), status)
  end
end

function tests.parameters_are_decoded_after_the_path_was_cut()
  local app = ls.app()
  app:get("/p/:x", tell "p")
  app:get("/r/*x", tell "r")
  app:get("/s/caf\xc3\xa9", tell "s")
  app:get("/100%", tell "percent")
  app:get("/two/:x/:y", tell "two")
  app:get("/three/:x/:y/:z", tell "three")
  check.equal(ask(app, "GET", "/p/a%20b"), "p x=a b")
  check.equal(ask(app, "GET", "/p/a+b"), "p x=a+b")
  check.equal(ask(app, "GET", "/p/a%2Fb"), "p x=a/b")
  check.equal(ask(app, "GET", "/p/a%252Fb"), "p x=a%2Fb")
  check.equal(ask(app, "GET", "/p/%e2%82%ac?x=%zz"), "p x=\xe2\x82\xac")
  check.equal(ask(app, "GET", "/r/a/%62%2fc/d"), "r x=a/b/c/d")
  check.equal(ask(app, "GET", "/s/caf%C3%A9"), "s")
  check.equal(ask(app, "GET", "/%73/caf%C3%A9"), "s")
  check.equal(ask(app, "GET", "/100%25"), "percent")
  check.equal(ask(app, "GET", "/two/1/%32"), "two x=1 y=2")
  check.equal(ask(app, "GET", "/three/1/2/3"), "three x=1 y=2 z=3")
  check.equal(select(2, ask(app, "GET", "/p%2Fa")), 404)
end

function tests.broken_escapes_and_nul_are_400()
  local app = ls.app()
  app:get("/p/:x", tell "p")
  app:get("/100%", tell "percent")
  local seen = 0
  app:use(function(_, _, go) seen = seen + 1 return go() end)
  for _, path in ipairs { "/p/%", "/p/%4", "/p/%zz", "/p/%00", "/p/a%00b", "/none/%", "/100%" } do
    check.equal(select(2, ask(app, "GET", path)), 400)
  end
  check.equal(seen, 7)
end

function tests.methods()
  local app = ls.app()
  app:get("/a", tell "get")
  app:post("/a", tell "post")
  app:any("/any", tell "any")
  app:get("/any", tell "get")
  app:get("/h", tell "get")
  app:head("/h", tell "head")
  app:options("/o", tell "options")
  app:route("PROPFIND", "/dav/:x", tell "dav")
  app:delete("/x/:id", tell "delete")
  app:patch("/x/:id", tell "patch")
  app:put("/x/special", tell "put")
  check.equal(ask(app, "GET", "/a"), "get")
  check.equal(ask(app, "HEAD", "/a"), "get")
  check.equal(ask(app, "HEAD", "/h"), "head")
  check.equal(ask(app, "HEAD", "/any"), "get")
  check.equal(ask(app, "PUT", "/any"), "any")
  check.equal(ask(app, "BREW", "/any"), "any")
  check.equal(ask(app, "OPTIONS", "/any"), "any")
  check.equal(ask(app, "OPTIONS", "/o"), "options")
  check.equal(ask(app, "PROPFIND", "/dav/1"), "dav x=1")
  check.equal(ask(app, "PATCH", "/x/special"), "patch id=special")
  for _, case in ipairs {
    { "PUT", "/a", 405, "GET, HEAD, OPTIONS, POST" }, { "OPTIONS", "/a", 204, "GET, HEAD, OPTIONS, POST" },
    { "GET", "/x/special", 405, "DELETE, OPTIONS, PATCH, PUT" }, { "GET", "/dav/1", 405, "OPTIONS, PROPFIND" },
    { "BREW", "/a", 405, "GET, HEAD, OPTIONS, POST" }, { "GET", "/o", 405, "OPTIONS" }, { "BREW", "/none", 404, nil },
    { "OPTIONS", "/none", 404, nil },
  } do
    local _, status, headers = ask(app, case[1], case[2])
    check.equal({ status, headers.allow }, { case[3], case[4] })
  end
end

function tests.options_asterisk()
  local app = ls.app()
  app:get("/a", tell "get")
  local _, status, headers = ask(app, "OPTIONS", "*")
  check.equal({ status, headers.ALLOW }, { 204, "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT" })
  check.equal(select(2, ask(app, "GET", "*")), 400)
  app:options("*", tell "star")
  check.equal(ask(app, "OPTIONS", "*"), "star")
  check.raises("already defined", app.options, app, "*", tell "star")
end

function tests.middleware_wraps_in_order_and_sees_everything()
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
  local body, status, headers = ask(app, "GET", "/")
  check.equal({ body, status, headers.x }, { "made", 201, "y" })
  check.equal(seen, { "1", "2", "handler", "/2", "/1" })
  for _, case in ipairs { { "GET", "/none", 404 }, { "POST", "/", 405 }, { "OPTIONS", "/", 204 },
    { "OPTIONS", "*", 204 }, { "GET", "/%", 400 } } do
    seen = {}
    check.equal(select(2, ask(app, case[1], case[2])), case[3])
    check.equal(seen, { "1", "2", "/2", "/1" })
  end
end

function tests.middleware_may_answer_itself()
  local app = ls.app()
  app:use(function() return 403, "no" end)
  app:get("/", function() error("not reached") end)
  check.equal(ask(app, "GET", "/"), "no")
end

function tests.mounted_apps()
  local app, api, deep = ls.app(), ls.app(), ls.app()
  local seen = {}
  local function mark(name)
    return function(_, _, go) seen[#seen + 1] = name return go() end
  end
  app:use(mark "app")
  api:use(mark "api")
  deep:use(mark "deep")
  app:get("/", tell "root")
  app:get("/api/own", tell "own")
  app:get("/*rest", tell "catch")
  api:get("/", tell "api root")
  api:get("/items/:id", tell "item")
  api:not_found(function() return "api: none" end)
  deep:get("/:x", tell "deep")
  deep:error(function(_, _, err) return 503, "deep: " .. err end)
  deep:get("/fail/now", function() error("oh", 0) end)
  api:get("/fail", function() error("ah", 0) end)
  app:error(function(_, _, err) return "app: " .. err end)
  api:mount("/u/:user/", deep)
  app:mount("/api", api)
  local function expect(method, path, body, status, marks)
    seen = {}
    local got_body, got_status = ask(app, method, path)
    check.equal({ got_body, got_status, table.concat(seen, " ") }, { body, status, marks })
  end
  expect("GET", "/", "root", 200, "app")
  expect("GET", "/else", "catch rest=else", 200, "app")
  expect("GET", "/api", "api root", 200, "app api")
  expect("GET", "/api/", "api root", 200, "app api")
  expect("GET", "/api/own", "own", 200, "app")
  expect("GET", "/api/items/5", "item id=5", 200, "app api")
  expect("GET", "/api/none", "api: none", 404, "app api")
  expect("GET", "/api/%6eone", "api: none", 404, "app api")
  expect("POST", "/api/none", "api: none", 404, "app api")
  expect("POST", "/api/items/5", "status 405", 405, "app api")
  expect("GET", "/api/u/me/y", "deep user=me x=y", 200, "app api deep")
  expect("GET", "/api/u/me/y/z", "api: none", 404, "app api deep")
  expect("GET", "/api/u/me/fail/now", "deep: oh", 503, "app api deep")
  expect("GET", "/api/fail", "app: ah", 500, "app api")
  expect("GET", "http://h/api/u/me/fail/now?q", "deep: oh", 503, "app api deep")
end

function tests.a_mount_without_not_found_uses_the_parents()
  local app, api = ls.app(), ls.app()
  api:get("/x", tell "x")
  app:mount("/api", api)
  app:not_found(function(req) return 404, "no " .. req.path end)
  check.equal(ask(app, "GET", "/api/none"), "no /api/none")
  app:get("/*rest", tell "catch")
  check.equal(ask(app, "GET", "/api/none"), "catch rest=api/none")
end

function tests.a_mount_at_the_root()
  local app, site = ls.app(), ls.app()
  site:get("/", tell "home")
  site:get("/a", tell "a")
  app:mount("/", site)
  check.equal(ask(app, "GET", "/"), "home")
  check.equal(ask(app, "GET", "/a"), "a")
end

function tests.one_app_mounted_twice()
  local app, part = ls.app(), ls.app()
  part:get("/x", tell "x")
  app:mount("/a", part):mount("/b", part)
  check.equal(ask(app, "GET", "/a/x"), "x")
  check.equal(ask(app, "GET", "/b/x"), "x")
end

function tests.body_limits()
  local app = ls.app()
  app:post("/small", { max_body = 10 }, tell "small")
  app:post("/large", { max_body = "10k" }, tell "large")
  app:post("/any/:x", { max_body = false }, function(req) return req.body_max end)
  app:post("/plain", tell "plain")
  local long = ("x"):rep(2000)
  check.equal(select(2, ask(app, "POST", "/plain", "x")), 200)
  check.equal(select(2, ask(app, "POST", "/plain", long)), 413)
  check.equal(select(2, ask(app, "POST", "/small", ("x"):rep(10))), 200)
  check.equal(select(2, ask(app, "POST", "/small", ("x"):rep(11))), 413)
  check.equal(select(2, ask(app, "POST", "/large", long)), 200)
  check.equal(ask(app, "POST", "/any/1", long), "none")
  check.equal(select(2, ask(app, "POST", "/none", long)), 404)
end

function tests.shortcuts_agree_with_the_trie()
  local app, part = ls.app(), ls.app()
  app:get("/a/:x", tell "param")
  app:get("/a/limited", { max_body = 1 }, tell "limited")
  app:get("/b/:x", tell "param")
  app:get("/b/%", tell "percent")
  app:get("/b%/:x", tell "odd")
  app:get("/c/:x", { max_body = 5 }, function(req) return req.body_max .. req.params.x end)
  app:get("/d/:x", tell "param")
  part:not_found(function() return "part: none" end)
  app:mount("/d/part", part)
  app:get("/:x", tell "top")
  check.equal(ask(app, "GET", "/a/limited"), "limited")
  check.equal(ask(app, "GET", "/a/other"), "param x=other")
  check.equal(ask(app, "GET", "/b/%25"), "percent")
  check.equal(ask(app, "GET", "/b/1"), "param x=1")
  check.equal(ask(app, "GET", "/b%25/1"), "odd x=1")
  check.equal(select(2, ask(app, "GET", "/b%/1")), 400)
  check.equal(ask(app, "GET", "/c/1"), "51")
  check.equal(ask(app, "GET", "/d/part"), "part: none")
  check.equal(ask(app, "GET", "/d/1"), "param x=1")
  check.equal(ask(app, "GET", "/1"), "top x=1")
  check.equal(select(2, ask(app, "GET", "/d/part/1")), 404)
end

function tests.errors_without_a_handler()
  local app = ls.app()
  app:get("/", function() error("oh") end)
  check.equal(select(2, ask(app, "GET", "/")), 500)
end

function tests.a_plain_route_costs_no_garbage()
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
  -- The table and its one slot; the text of the parameter is there already.
  check.equal(bytes_of(1000, "/p/hello") <= 56 + 40 + 1, true)
end

function tests.patterns_that_are_not_well_formed_raise()
  local app = ls.app()
  local fn = tell "x"
  for pattern, part in pairs {
    ["a"] = 'must begin with "/"', [""] = 'must begin with "/"', ["*"] = 'must begin with "/"', ["/a?b"] = "no ?",
    ["/a\n"] = "control", ["/:"] = "after : comes a name", ["/:a-b"] = "after : comes a name", ["/*"] = "after * comes",
    ["/*r/x"] = "must come last", ["/:a/:a"] = "twice", ["/:a/*a"] = "twice",
  } do
    check.raises({ "app:get: ", part }, app.get, app, pattern, fn)
  end
  check.raises("must be a text", app.get, app, nil, fn)
end

function tests.duplicates_raise_with_both_places()
  local app = ls.app()
  local first = check.line(1)
  app:get("/a/:x", tell "1")
  check.raises({ check.line(1), "GET /a/:y is already defined at ", first }, function()
    app:get("/a/:y", tell "2")
  end)
  app:post("/a/:x", tell "3")
  app:any("/a/:x", tell "4")
  check.raises("already defined", app.any, app, "/a/:z", tell "5")
  local api, line = ls.app(), check.line(1)
  api:get("/:x", tell "6")
  app:mount("/a", api)
  check.raises({ line, "GET /a/: is already defined at ", first }, app.inject, app, {})
end

-- What the router should find, said as plainly as possible: of all patterns that match, the one that is closer at the first
-- segment where two differ. Ranks: text 1, parameter 2, rest 3.
local function plain_match(patterns, path)
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

function tests.any_set_of_routes_matches_as_the_plain_rule_says()
  math.randomseed(7)
  local parts = { "a", "b", ":p", "" }
  for _ = 1, 300 do
    local app, patterns, there = ls.app(), {}, {}
    for _ = 1, math.random(8) do
      local segments = {}
      local depth = math.random(3)
      for i = 1, depth do
        local part = parts[math.random(i == depth and 4 or 3)]
        segments[i] = part == ":p" and ":p" .. i or part
      end
      if math.random(4) == 1 then segments[#segments + 1] = "*r" end
      local pattern = "/" .. table.concat(segments, "/")
      if not there[pattern] then
        there[pattern] = true
        patterns[#patterns + 1] = pattern
        app:get(pattern, math.random(5) == 1 and { max_body = 1 } or nil, function() return pattern end)
      end
    end
    for _ = 1, 40 do
      local segments = {}
      for i = 1, math.random(4) do segments[i] = ({ "a", "b", "c", "" })[math.random(4)] end
      local path = "/" .. table.concat(segments, "/")
      local expected = plain_match(patterns, path)
      for _, spelled in ipairs { path, (path:gsub("a", "%%61")) } do
        local body, status = ask(app, "GET", spelled)
        local got = status == 200 and body or nil
        if got ~= expected then
          error(spelled .. " in " .. table.concat(patterns, " ") .. ": " .. tostring(got) .. " for " .. tostring(expected))
        end
      end
    end
  end
end

function tests.many_slashes_do_no_harm()
  local app = ls.app()
  app:get("/:a/:b/:c", tell "abc")
  app:get("/x/*rest", tell "rest")
  check.equal(select(2, ask(app, "GET", ("/"):rep(8000))), 404)
  check.equal(select(2, ask(app, "GET", "/y" .. ("/%61"):rep(2000))), 404)
  check.equal(select(2, ask(app, "GET", "/x" .. ("/%61"):rep(2000))), 200)
  check.equal(core.percent_decode("%61"), "a")
end

return tests
