-- handler.lua - the sites of test_handler.c.
local t = ... -- the helpers of site_fixture.lua
local core, body, is, get, header, done = t.core, t.body, t.is, t.get, t.header, t.done
local cases = {}

function cases.results_become_responses()
  body(function()
    local s, h, b = get(function() return "hello\n" end)
    is(s, 200) is(b, "hello\n") is(header(h, "content-type"), "text/plain; charset=utf-8")
    is(header(h, "content-length"), "6")
    s, h, b = get(function() return { a = 1 } end)
    is(s, 200) is(b, '{"a":1}') is(header(h, "content-type"), "application/json")
    s, h, b = get(function() return 404 end)
    is(s, 404) is(b, "Not Found\n")
    s, h, b = get(function() return 204 end)
    is(s, 204) is(b, "") is(header(h, "content-type"), nil)
    s, h, b = get(function() return 201, { id = 7 }, { Location = "/7", ["X-A"] = { "b", "c" } } end)
    is(s, 201) is(b, '{"id":7}') is(header(h, "location"), "/7") is(header(h, "x-a"), "b")
    s, h, b = get(function() end, "/", "a POST")
    is(s, 204) is(b, "")
    s, h, b = get(function(_, res) res:status(202) end)
    is(s, 202) is(b, "")
    s, h, b = get(function() return core.buffer("a", 1, core.buffer("b")) end)
    is(s, 200) is(b, "a1b")
    s, h, b = get(function() return ("x"):rep(1000):rep(100) end)
    is(#b, 100000)
    s, h, b = get(function(_, res)
      res:header("Content-Type", "text/html")
      return "<p>"
    end)
    is(header(h, "content-type"), "text/html")
    s, h, b = get(function() return "" end)
    is(s, 200) is(b, "") is(header(h, "content-length"), "0")
    s, h, b = get(function() return "<p>", { ["Content-Type"] = "text/html", ["X-A"] = { 1, 2 } } end)
    is(s, 200) is(b, "<p>") is(header(h, "content-type"), "text/html") is(header(h, "x-a"), "1")
    s, h, b = get(function() return core.buffer("b"), { ["X-A"] = 1 } end)
    is(b, "b") is(header(h, "x-a"), "1")
    s, h, b = get(function() return { 1 }, { ["X-A"] = 1 } end)
    is(b, "[1]") is(header(h, "x-a"), "1")
    s, h, b = get(function() return "a", nil, nil, nil end)
    is(s, 200) is(b, "a")
    s, h, b = get(function() return 201, "a", nil, nil end)
    is(s, 201) is(b, "a")
    s, h, b = get(function() return nil, nil end, "/", "a POST")
    is(s, 500)
  end)
end

function cases.invalid_results_are_logged_errors()
  body(function()
    for _, case in ipairs{
      { "the handler returned a boolean; a handler returns body; body, headers; status; or status", function() return true end },
      { "the handler returned a function; a handler returns", function() return print end },
      { "the number 42, which is no registered status", function() return 42 end },
      { "200.5", function() return 200.5 end }, { "nil, why", function() return nil, "why" end },
      { "got function", function() return 200, print end }, { "got boolean", function() return 200, true end },
      { "200, a string, a string", function() return 200, "a", "b" end }, { "function", function() return { print } end },
      { "", function() return io.stdout end }, { "a string, 404; the status comes first", function() return "a", 404 end },
      { "a table, 404; the status comes first", function() return {}, 404 end },
      { "a buffer, 404, a table; the status comes first", function() return core.buffer("a"), 404, {} end },
      { "a string, 2; put a call that returns several values, such as string.gsub, in parentheses",
        function() return ("aa"):gsub("a", "b") end },
      { "a string, a string; a handler returns", function() return "a", "b" end },
      { "a table, a string; a handler returns", function() return {}, "a" end },
      { "a string, a table, 1", function() return "a", {}, 1 end },
      { "a string, nil, a table", function() return "a", nil, {} end },
      { "200, a table, a string", function() return 200, {}, "a" end },
      { "200, a string, a table, a string", function() return 200, "a", {}, "b" end },
      { "200, a string, a table, 1", function() return 200, "a", {}, 1 end },
      { "the handler returned nil, 404", function() return nil, 404 end },
      { "the handler returned nil, nil, a table", function() return nil, nil, {} end },
      { "a boolean, a string", function() return true, "a" end },
      { "invalid value of header 'A'", function() return "x", { A = true } end },
      { "a b", function() return 200, "x", { ["a b"] = "c" } end },
      { "invalid value of header 'a'", function() return 200, "x", { a = "c\r\nd: e" } end },
      { "nil", function() error() end }, { "table", function() error({}) end }, { "x", function() error("x") end },
    } do
      local s, _, b = get(case[2])
      is(s, 500) is(b:sub(1, 8), "failed: ")
      if not b:find(case[1], 9, true) then error(b .. " has no " .. case[1]) end
    end
  end)
end

function cases.errors_in_failed_end_in_a_500()
  body(function()
    local s, _, b = core.inject(function() error("one") end, function() error("two") end, "GET", "/p",
      {})
    is(s, 500) is(b, "Internal Server Error\n")
    s = get(function() return "next" end)
    is(s, 200)
  end)
end

function cases.fields_of_req()
  body(function()
    local s, _, b = get(function(req, res, method, path, too_big)
      is(req.method, "GET") is(method, "GET") is(path, "/a%20b") is(req.path, "/a%20b")
      is(too_big, false) is(req.target, "/a%20b?x=1&y=a%20b+c&x=2&z") is(req.version, "1.1")
      is(req.scheme, "http") is(req.host, "h") is(#req.id, 16)
      is(req.ip, "127.0.0.1") is(req.port, 0) is(req.local_port, nil)
      is(req.query.x, "1") is(req.query.y, "a b c") is(req.query.z, "") is(req.query.none, nil)
      is(req.query, req.query) is(req.headers["user-agent"], "u") is(req.headers["User-Agent"], "u")
      is(req.headers["X-Two"], "a, b") is(req.headers.none, nil) is(req:header("x-two"), "a, b")
      is(req:header("None"), nil) is(req.cookies.a, "1") is(req.cookies.b, "2")
      is(req.params.n, nil)
      core.params(req, { n = "v" })
      is(req.params.n, "v")
      req.user = "me"
      is(req.user, "me") is(pcall(function() req.method = 1 end), false)
      local seen = {}
      for k in pairs(req.headers) do seen[k] = true end
      is(seen["x-two"], true)
      return "ok"
    end, "/a%20b?x=1&y=a%20b+c&x=2&z", nil, { { "Host", "h" }, { "User-Agent", "u" }, { "X-Two", "a" },
      { "X-Two", "b" }, { "Cookie", "a=1; b=2" } })
    is(b, "ok")
    get(function(req) is(req.user, nil) is(req.params.n, nil) end)
  end)
end

function cases.request_bodies()
  body(function()
    local form = { { "Content-Type", "application/x-www-form-urlencoded" } }
    local s, h, b = get(function(req)
      is(req:body(), "abc") is(req:body(), "abc") is(#req:buffer(), 3)
      return req:buffer()
    end, "/", "abc")
    is(b, "abc")
    s, h, b = get(function(req)
      local t = req:json()
      return t.a
    end, "/", '{"a":"x"}')
    is(b, "x")
    s, h, b = get(function(req)
      is(pcall(req.json, req), false)
      return req:json()
    end, "/", "{")
    is(s, 400)
    s, h, b = get(function(req) return req:form().a end, "/", "a=b+c&d", form)
    is(b, "b c")
    s, h, b = get(function(req) return req:form() end, "/", "a=b")
    is(s, 415)
    s, h, b = get(function(req)
      local n = 0
      for c in req:chunks() do n = n + #c end
      return tostring(n)
    end, "/", "abcd")
    is(b, "4")
    s, h, b = get(function(req)
      is(req:body(), "")
      return "none"
    end)
    is(b, "none")
    s, h, b = get(function(req)
      core.body_max(req, 2)
      req:body()
    end, "/", "abc")
    is(s, 413)
    s, h, b = get(function(req)
      is(core.body_max(req, 2), true) is(core.body_max(req), false)
      return req:body()
    end, "/", "abc")
    is(b, "abc")
    s, h, b = get(function(req)
      core.body_max(req, 2)
      is(pcall(req.body, req), false)
      return "caught"
    end, "/", "abc")
    is(b, "caught")
  end)
end

function cases.members_of_res()
  body(function()
    local s, h, b = get(function(_, res)
      is(res.sent, false)
      res:write("a", 1, core.buffer("b"))
      is(res.sent, true)
      core.sleep(0)
      res:write(("y"):rep(1000):rep(200))
      res:flush()
    end)
    is(s, 200) is(#b, 200003) is(b:sub(1, 4), "a1by")
    s, h, b = get(function(_, res)
      res:status(201):header("X-A", 1)
      return res:send("sent")
    end)
    is(s, 201) is(b, "sent") is(header(h, "x-a"), "1")
    s, h, b = get(function(_, res) return res:json{ 1, 2 } end)
    is(b, "[1,2]")
    s, h, b = get(function(_, res) return res:redirect("/x") end)
    is(s, 302) is(header(h, "location"), "/x")
    s, h, b = get(function(_, res) res:redirect("/x", 308) end)
    is(s, 308)
    s, h, b = get(function(_, res)
      res:cookie("a", "b", { path = "/", max_age = 5, http_only = true, secure = false,
        same_site = "lax" })
      return 204
    end)
    is(s, 204) is(header(h, "set-cookie"), "a=b; Path=/; Max-Age=5; HttpOnly; SameSite=Lax")
    for _, fn in ipairs{
      function(_, res) res:header("A", "b\nc") end, function(_, res) res:header("A\0", "b") end,
      function(_, res) res:cookie("a", "b;c") end, function(_, res) res:cookie("a", "b", { pfad = 1 }) end,
      function(_, res) res:write({}) end, function(_, res) res:status(99) end, function(_, res) res:status("404") end,
      function(_, res) res:header("Transfer-Encoding", "x") end, function(_, res) return res.nothing end,
      function(_, res) res.x = 1 end, function(req, res) res.write(req, "x") end,
    } do
      local st = get(fn)
      is(st, 500)
    end
    s, h, b = get(function(_, res)
      res:send("x")
      is(pcall(res.write, res, "y"), false)
      is(pcall(res.file, res, "y"), false)
    end)
    is(b, "x")
    s, h, b = get(function(_, res)
      res:send("x")
      error("late")
    end)
    is(s, 500) is(b:find("late") ~= nil, true)
    s, h, b = get(function(_, res)
      res:write("x")
      core.sleep(0)
      error("late")
    end)
    is(s, nil)
    s, h, b = get(function(_, res)
      res:write("x")
      error("before anything left")
    end)
    is(s, 500)
    s, h, b = get(function(_, res)
      res:header("Content-Length", 3)
      res:write("abcd")
    end)
    is(s, 500)
    s, h, b = get(function(_, res) is(res:status(), 200) end)
  end)
end

function cases.kept_objects_raise_after_their_request()
  body(function()
    local kept, kept_res
    get(function(req, res)
      kept, kept_res = req, res
      return "x"
    end)
    local function raises(fn)
      local ok, e = pcall(fn)
      is(ok, false)
      if not tostring(e):find("request object used after its request ended", 1, true) then error(e) end
    end
    raises(function() return kept.path end)
    raises(function() return kept:body() end)
    raises(function() return kept_res:write("x") end)
    raises(function() return kept_res.sent end)
    for i = 1, 200 do
      get(function(req)
        if i <= 60 then raises(function() return kept.path end) end
        return "y"
      end)
    end
    local job
    get(function(req)
      job = core.spawn(function()
        core.sleep(0.01)
        return req.path
      end)
      return "z"
    end)
    raises(function() return job:wait() end)
    local s, _, b = get(function(req) return core.spawn(function() return req.path end):wait() end,
      "/p")
    is(b, "/p")
    get(function(req)
      local co = coroutine.wrap(function() return req.path end)
      is(co(), "/q")
    end, "/q")
  end)
end

function cases.log_hooks_run_for_each_response()
  core.on("log", function(req, res) core.log("info", req.path .. " " .. res:status()) end)
  core.on("log", function() error("bad hook") end)
  body(function()
    get(function() return 201 end, "/seen")
    core.inject(function() error("a") end, function() error("b") end, "GET", "/plain", {})
  end)
end

function cases.a_log_hook_sees_the_response()
  core.on("log", function(req, res) core.log("info", req.path .. " " .. res:status()) end)
  body(function() get(function() return 201 end, "/seen") end)
end

function cases.requests_are_injected_while_loading()
  local s, h, b = get(function(req, res)
    res:write("a")
    res:header_()
  end)
  is(s, 500)
  s, h, b = get(function(req) return req:body() end, "/", "abc")
  is(b, "abc")
  s, h, b = get(function(_, res) return res:send(("x"):rep(1000):rep(50)) end)
  is(#b, 50000)
  s, h, b = get(function() return ("x"):rep(1000):rep(50) end)
  is(#b, 50000)
  s, h, b = get(function() core.sleep(1) end)
  is(s, nil) is(b, "EBUSY")
  s, h, b = core.inject(print, print, "G T", "/", {})
  is(s, nil) is(h, "malformed request: bad method (400)") is(b, "EINVAL")
  local function of(path_bytes, fields)
    local list = { { "Host", "h" } }
    for _ = 2, fields do list[#list + 1] = { "X", "" } end
    return get(function() return "ok" end, "/" .. ("x"):rep(path_bytes - 1), nil, list)
  end
  is(of(1, 100), 200)
  is(select(2, of(1, 101)), "malformed request: too many fields (431)")
  is(of(65536 - #"GET" - #"Host" - #"h", 1), 200)
  is(select(2, of(65537 - #"GET" - #"Host" - #"h", 1)), "malformed request: request head too large (431)")
  is(pcall(core.sleep, 1), false) is(pcall(core.spawn, print), false)
  done()
end

return cases
