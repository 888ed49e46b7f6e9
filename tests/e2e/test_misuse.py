"""What a site calls or returns wrongly: it raises, and the message names the line of the site, what is wrong and what would
be right. Nothing is ignored silently."""
# wine: none; messages of Lua code, the same on every system
import json
import re

from harness import E2E, app_site, request

SITE = app_site(r"""
ls.config{ threads = 1, threads_max = 1 } -- one Lua state

-- The message of an error in fn, without the path of the site.
local function message(fn, ...)
  local ok, err = pcall(fn, ...)
  return ok and "did not raise" or (tostring(err):gsub("^.*/(site%.lua:)", "%1"))
end

local kept_req, kept_res, go
app:get("/slow", function(req, res)
  kept_req, kept_res, go = req, res, false
  while not go do ls.sleep(0.001) end
  return "slow"
end)
app:get("/cross", function(req, res)
  if not kept_req then return { waits = true } end
  local seen = {
    path = message(function() return kept_req.path end),
    write = message(function() kept_res:write("x") end),
    timer = false,
  }
  ls.after(0, function() seen.timer = message(function() return kept_req.path end) end)
  while not seen.timer do ls.sleep(0.001) end
  go = true
  return seen
end)

app:get("/html", function() return "<p>", { ["Content-Type"] = "text/html", ["X-A"] = { "1", "2" } } end)
app:get("/json", function() return { a = 1 }, { ["X-A"] = "1" } end)
app:get("/buffer", function() return ls.buffer("<p>"), { ["X-A"] = "1" } end)
package.loaded["a.page"] = { page = 1 }
app:get("/required", function() return require "a.page", "./a/page.lua" end)
app:get("/required-json", function(req, res) res:json(require "a.page", "./a/page.lua") end)
app:get("/nils", function() return "x", nil, nil end)

local around = ls.app()
around:use(function() return true end)
app:mount("/around", around)

local broken = ls.app()
broken:get("/", function() error("first") end)
broken:error(function() return true end)
broken:not_found(function() return true end)
app:mount("/broken/:x", broken)

app:get("/error/:kind", function(req)
  local kinds = {
    table = { code = 7, message = "no luck", 1, "two", nested = {}, ["a b"] = true },
    long = { text = ("x"):rep(1000) .. "\n" },
    control = { text = "a\nb\"c" },
    object = setmetatable({ code = 7 }, { __tostring = function() return "an object" end }),
  }
  error(kinds[req.params.kind])
end)

local more = {
  function(req, res) res:json({}, 404) end, function(req, res) res:send("x", 404) end,
  function(req, res) res:html("x", {}) end, function(req, res) res:status(200, "OK") end,
  function(req, res) res:header("A", "b", "c") end, function(req, res) res:cookie("a", "b", {}, 1) end,
  function(req, res) res:redirect("/", 302, {}) end, function(req, res) res:file("x", {}, 1) end,
  function(req, res) res:type("html", "utf-8") end, function(req, res) res:flush("x") end,
  function(req, res) res:abort("x") end, function(req, res) req:header("A", "b") end,
  function(req, res) req:json({}, {}, 1) end, function(req, res) req:body(1) end, function(req, res) req:form({}, {}, 1) end,
  function(req, res) req:form_all(1) end, function(req, res) req:buffer(1) end, function(req, res) req:chunks(1) end,
}
app:get("/arguments", function(req, res)
  local list = {}
  for i, fn in ipairs(more) do list[i] = message(fn, req, res) end
  return list
end)

app:get("/refused", function(req, res)
  local refused = message(function() res:header("A", { a = 1 }) end)
  res:header("A", {})
  return refused
end)

app:get("/names", function(req, res)
  local socket = ls.socket("udp")
  socket:bind("127.0.0.1", 0)
  local objects = {
    heder = res, cancle = ls.after(0, function() end), wiat = ls.spawn(function() end), tostrin = ls.buffer("x"),
    recieve = assert(ls.connect(req.local_addr)), sendt = socket, remov = ls.notify(socket, "in"),
    clos = ls.udp_connect("127.0.0.1", 9), gte = app,
  }
  local seen = {}
  for name, object in pairs(objects) do seen[name] = message(function() return object[name] end) end
  return seen
end)
app:get("/hint/len", function() return ls.dict("hint"):size(nil, {}) end)
app:get("/hint/header", function(req) return req:get("x") end)
app:get("/hint/wait", function() ls.spawn(function(job) job:await() end, setmetatable({}, { __index = { wait = print } })):wait() end)
for name, fn in pairs { ipairs = ipairs, pairs = pairs } do
  app:post("/iterator/" .. name, function(req) for _ in fn(req:parts()) do end end)
end
app:get("/fields", function(req)
  local seen = {}
  for _, name in ipairs{ "quary", "heders", "user", "session", "account", "paht" } do seen[name] = req[name] == nil end
  return seen
end)
app:get("/own", function(req)
  if req.query.set then req.quere = "mine" end
  return { quere = req.quere or "nil" }
end)
app:get("/many", function(req)
  for i = 1, 1000 do if req["name" .. i] ~= nil then return "set" end end
  return req.query.x
end)
app:get("/waits", function() ls.sleep(0) return 204 end)
local loading = {}
for _, fn in ipairs{ function() app:inject{ path = "/waits" } end, function() ls.sleep(1) end,
  function() ls.spawn(print) end, function() ls.on("stop", print) end, function() ls.log.warning("x") end } do
  loading[#loading + 1] = message(fn)
end
app:get("/loading", function() return loading end)
app:get("/later", function()
  return { message(ls.on, "start", print), message(function() ls.on("start", print) end),
    message(function() ls.init(print) end) }
end)
""")


def line_of(text):
    return "site.lua:%d: " % (SITE[: SITE.index(text)].count("\n") + 1)


class Misuse(E2E):
    SITE = SITE

    def failed(self, target, says):
        """The request fails with 500, and the log says why, after the place that says names."""
        mark = self.server.mark()
        self.assertEqual(self.get(target).status, 500, target)
        self.server.wait_log(re.escape(says), mark)

    def test_objects_of_another_request_that_still_runs(self):
        seen = {"waits": True}
        with self.connect() as slow:
            slow.send(request("GET", "/slow"))
            while "waits" in seen:  # until the other request has begun
                seen = json.loads(self.get("/cross").text)
            self.assertEqual(slow.response().text, "slow")
        for name in ("path", "write", "timer"):
            self.assertIn("belongs to GET /slow, which is still running", seen[name])
            self.assertIn("ls.spawn", seen[name])
            self.assertIn("site.lua:", seen[name])

    def test_a_header_with_names(self):
        self.assertIn("invalid value of header 'A': a list of values expected, got a table with names", self.get("/refused").text)

    def test_a_count_is_no_status(self):
        """Trap 10 of the first hour: `return dict:incr("n")` failed at visits 1 to 199, then answered 201 Created, 204, 404."""
        server = self.serve(app_site(r"""
            local n = ls.dict("counts")
            app:get("/count/:from", function(req) n:add("n", tonumber(req.params.from)) return n:incr("n") end)
            app:get("/reset", function() n:clear() return 204 end)
            app:get("/text", function() return tostring(7) end)
            app:get("/moved/:status", function(req) return tonumber(req.params.status), { Location = "/" } end)
            app:get("/seen/:status", function(req, res) res:header("location", "/") return tonumber(req.params.status), "text" end)
            app:get("/nothing/:status", function(req) return tonumber(req.params.status), n:get("none") end)
"""))
        for before in (0, 41, 208, 249, 598, 1000):
            with self.subTest(before):
                mark = server.mark()
                self.assertEqual(server.get("/count/%d" % before).status, 500)
                line = server.wait_log("the handler returned the number %d, which is no registered status" % (before + 1), mark)
                self.assertIn("return tostring(n)", line)
                self.assertIn("GET /count/:from", line)
                server.get("/reset")
        self.assertEqual((server.get("/count/403").status, server.get("/text").text), (404, "7"))
        for status, got in ((200, 500), (201, 500), (204, 204), (404, 404)):
            self.assertEqual(server.get("/nothing/%d" % status).status, got)
        for path, status, got in (("moved", 303, 500), ("moved", 308, 500), ("moved", 304, 304), ("moved", 200, 200), ("seen", 302, 302)):
            self.assertEqual(server.get("/%s/%d" % (path, status)).status, got)
        server.wait_log("the handler returned 303, a table; a redirect has the field Location: return res:redirect.url, 303., or return 303, body, ")
        server.wait_log("the handler returned 201; the body is nil, which a call that failed, or found nothing")

    def test_a_result_that_is_nil(self):
        """As of `return db:one("update ... returning *")`, which has found no row; nothing at all is 204."""
        server = self.serve(app_site(r"""
            local function none() end
            app:use("/around", function(req, res, next) next() return nil end)
            app:post("/around", none)
            app:any("/nil", function() return (none()) end)
            app:any("/nothing", function() return none() end)
            app:any("/status", function(req, res) res:status(202) return nil end)
            app:any("/described", function(req, res) res:send("x") return nil end)
"""))
        with server.connect() as conn:
            for method, path, status in (("POST", "/nil", 500), ("PATCH", "/nil", 500), ("GET", "/nil", 500), ("POST", "/nothing", 204),
                                         ("DELETE", "/status", 202), ("PUT", "/described", 200), ("POST", "/around", 204)):
                self.assertEqual(conn.ask(method, path).status, status, (method, path))
        server.wait_log("PATCH /nil: .*the handler returned nil: for what is absent write return ... or 404")

    def test_names_of_other_programs(self):
        server = self.serve(app_site(r"""
            local channel = ls.channel("c")
            local calls = {
              function() ls.time() end, function() ls.http() end, function() ls.redirect("/") end, function() ls.json.parse("{}") end,
              function() ls.file.exists("x") end, function() channel:push(1) end, function() ls.log("x") end, function() app:run(80) end,
              function(req) return req:query("a") .. "" end, function(req) return req:ip() .. "" end, function(req) return req:json("a") .. "" end,
              function(req) return req:form("a") .. "" end, function(req) return req.user_agent .. "" end,
            }
            app:post("/:n", function(req) calls[math.tointeger(req.params.n)](req) end)
"""))
        for n, says in enumerate(("has no ls.time; write os.time() or ls.now()", "has no ls.http; write ls.fetch(url)",
                                  "has no ls.redirect; write res:redirect(url)", 'ls.json has no "parse"; write ls.json.decode(text)',
                                  'ls.file has no "exists"; write ls.file.stat(path)', "a channel has no method or field 'push'; write channel:send(value)",
                                  "ls.log is a table: write ls.log.info(...)", 'an app has no method "run"; write ls.listen(8080, app)',
                                  "(method 'query'); 'query' is a table: read it without a call, as in .query.name",
                                  "(method 'ip'); 'ip' is a string: read it without a call, as in .ip",
                                  'req:json takes a schema such as { a = "string" }; one field is req:json().a',
                                  'req:form takes a schema such as { a = "string" }; one field is req:form().a',
                                  'req.user_agent is nil; write req.headers["user-agent"]')):
            with server.connect() as conn:
                self.assertEqual(conn.ask("POST", "/%d" % (n + 1)).status, 500)
            server.wait_log(re.escape(says))

    def test_a_format_in_the_log_is_named_once(self):
        server = self.serve(app_site(r"""
            app:get("/", function()
              ls.log.info("took %.1f s: %s", 1.5, "x")
              ls.log.info("100%", 1, "%s", 2, "/%d0%b0", 3)
              ls.log.info("a %s")
              return 204
            end)
"""))
        for _ in range(3):
            server.get("/")
        server.wait_log("info a %s", count=3)
        self.assertEqual(sorted({line.split("site.lua")[1] for line in server.logged("warn")}),  # of each state once
                         [':5: ls.log.info writes its arguments one after another: for a format write ls.log.info(("took %.1f s: %s"):format(...))'])

    def test_results_of_error_pages(self):
        self.failed("/around/none", line_of("around:use(") + "the middleware returned a boolean; a middleware returns")
        self.failed("/broken/1/", line_of('broken:error(') + "app:error: the handler returned a boolean")
        mark = self.server.mark()
        self.assertEqual(self.get("/broken/1/none").status, 500)
        self.server.wait_log(re.escape(line_of("broken:not_found(") + "app:not_found: the handler returned"), mark)

    def test_body_and_headers(self):
        response = self.get("/html")
        self.assertEqual((response.status, response.text, response.header("Content-Type")), (200, "<p>", "text/html"))
        self.assertEqual(response.all("X-A"), ["1", "2"])
        response = self.get("/json")
        self.assertEqual((response.text, response.header("Content-Type"), response.header("X-A")), ('{"a":1}', "application/json", "1"))
        self.assertEqual(self.get("/buffer").header("X-A"), "1")
        self.assertEqual(self.get("/nils").text, "x")
        for target in ("/required", "/required-json"):  # require returns the place of the module as well
            self.assertEqual(self.get(target).text, '{"page":1}')

    def test_errors_that_are_tables(self):
        for kind, says in (
            ("table", '{ 1, "two", ["a b"] = true, code = 7, message = "no luck", nested = {...} }'),
            ("long", '{ text = "' + "x" * 100 + '..." }'), ("control", '{ text = "a?b\\"c" }'), ("object", ": an object"),
        ):
            with self.subTest(kind):
                self.failed("/error/" + kind, says)

    def test_too_many_arguments(self):
        calls = json.loads(self.get("/arguments").text)
        wanted = ["res:json(value): got 404 as well; set the status before, with res:status(404)",
                  "res:send(body): got 404 as well; set the status before", "res:html(text): got a table",
                  "res:status(status): got \"OK\"", "res:header(name, value): got \"c\"", "res:cookie(name, value, options): got 1",
                  "res:redirect(url, status): got a table", "res:file(path, options): got 1", "res:type(name): got \"utf-8\"",
                  "res:flush()", "res:abort()", "req:header(name): got \"b\"", "req:json(schema, options): got 1", "req:body(): got 1",
                  "req:form(schema, options): got 1", "req:form_all(): got 1", "req:buffer(): got 1", "req:chunks(): got 1"]
        self.assertEqual(len(calls), len(wanted))
        for said, part in zip(calls, wanted):
            self.assertIn("too many arguments for " + part, said)
            self.assertRegex(said, r"^site\.lua:\d+: ")

    def test_unknown_names(self):
        seen = json.loads(self.get("/names").text)
        for name, right in (("heder", "header"), ("cancle", "cancel"), ("wiat", "wait"), ("tostrin", "tostring"), ("recieve", "receive"),
                            ("sendt", "send"), ("remov", "remove"), ("clos", "close"), ("gte", "get")):
            self.assertIn("did you mean '%s'?" % right, seen[name])
            self.assertRegex(seen[name], r"^site\.lua:\d+: ")

    def test_methods_that_are_nil(self):
        for name in ("len", "header", "wait"):
            self.assertEqual(self.get("/hint/" + name).status, 500)
            self.server.wait_log(r"attempt to call a nil value \(method '\w+'\); did you mean '%s'\?" % name)

    def test_an_iterator_as_a_list(self):
        for name in ("ipairs", "pairs"):
            with self.server.connect() as conn:
                fields = [("Content-Type", "multipart/form-data; boundary=b")]
                self.assertEqual(conn.ask("POST", "/iterator/" + name, fields, b"--b--\r\n").status, 500)
            self.server.wait_log(r"/iterator/%s: \S*site\.lua:\d+: .*; an iterator stands alone, without ipairs and pairs, as in for part in" % name)

    def test_misspelled_fields_of_req_are_logged_once(self):
        mark = self.server.mark()
        for _ in range(3):
            self.assertEqual(set(json.loads(self.get("/fields").text).values()), {True})
        self.assertEqual(json.loads(self.get("/own?set=1").text), {"quere": "mine"})
        self.assertEqual(json.loads(self.get("/own").text), {"quere": "nil"})
        self.server.wait_log("did you mean req.headers", mark)
        told = self.server.logged("did you mean req", mark)
        self.assertEqual(len(told), 2, told)
        self.assertIn(line_of('for _, name in ipairs{ "quary"') + "req.quary is nil; did you mean req.query?", told[0])
        self.assertIn("req.heders is nil; did you mean req.headers?", told[1])
        self.assertEqual(self.get("/many?x=1").text, "1")

    def test_calls_while_the_site_loads(self):
        inject, sleep, spawn, on, log = json.loads(self.get("/loading").text)
        self.assertIn("app:inject: the handler of GET /waits waits", inject)
        self.assertIn("ls.init(function() ... end)", inject)
        self.assertIn("site.lua:", inject)
        self.assertRegex(sleep, r"site\.lua:\d+: cannot wait while the site loads; call it in a handler, or in a function of "
                                r"ls.init")
        self.assertRegex(spawn, r"site\.lua:\d+: ls.spawn: cannot be called while the site loads")
        self.assertRegex(on, r"site\.lua:\d+: ls.on: unknown event \"stop\"; the events are \"start\", \"drain\"")
        self.assertRegex(log, r"site\.lua:\d+: ls.log has no \"warning\"; did you mean 'warn'\?")

    def test_calls_after_loading_name_the_line_of_the_site(self):
        for said in json.loads(self.get("/later").text):
            self.assertIn("must be called while the site loads", said)
            self.assertNotIn("luaserve/init.lua", said)
            self.assertNotIn("@luaserve", said)
