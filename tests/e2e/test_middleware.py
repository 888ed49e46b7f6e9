"""Middleware: next() returns nothing, afterwards `res` is the response, whatever it is, and nothing of it was sent."""
# sanitizers: asan; Lua code around handlers
# wine: none; Lua code around handlers, the same on every system
import json
import os
import re
from urllib.parse import quote

from harness import E2E, app_site, request, run_program, scratch

SITE = r"""
local ls = require "luaserve"
local app, api, streams = ls.app(), ls.app(), ls.app()
ls.config { states = 1 } -- one request keeps the next() of another
ls.file.mkdir("public")
for _, name in ipairs { "", "public/" } do
  io.open("@DIR@/" .. name .. "page.txt", "w"):write(("0123456789"):rep(10)):close()
end
app:use(function(req, res, next)
  next()
  res:header("X-Seen", table.concat({ res:status(), res:header("content-type") or "-", math.type(res:body()) or type(res:body()) }, " "))
end)
app:use(function(_, res, next) next() res:header("X-Second", "2") end)
app:get("/text", function() return "text" end)
app:get("/table", function() return { a = 1 } end)
app:get("/both", function() return 201, "made", { ["X-Own"] = "1" } end)
app:get("/status", function() return 403 end)
app:get("/none", function() end)
app:get("/own-status", function(_, res) res:status(202) end)
app:get("/html", function(_, res) return res:html("<p>page") end)
app:get("/html-alone", function(_, res) res:status(203):html("<p>page") end)
app:get("/json", function(_, res) return res:json("text") end)
app:get("/send", function(_, res) res:type("csv"):send("a,b") end)
app:get("/redirect", function(_, res) return res:redirect("/text", 303) end)
app:get("/file", function(_, res) return res:file("page.txt") end)
app:get("/no-file", function(_, res) return res:file("none.txt") or 404 end)
app:get("/leaves", function() ls.channel("never"):receive() end)
app:get("/forgotten-file", function(_, res) res:file("none.txt") end)
app:get("/forgotten-folder", function(_, res) res:file(".") end)
app:get("/gone-file", function(_, res) if not res:file("none.txt") then res:status(410) end end)
app:get("/second-file", function(_, res) if not res:file("none.txt") then res:file("page.txt") end end)
app:get("/fail", function() error("no luck") end)
app:get("/fail-after", function(_, res) res:type("csv"):status(201):html("half") error("no luck") end)
app:get("/wrong", function() return print end)
app:get("/waits", function() ls.sleep(0.01) return "waited" end)
app:get("/fail-after-wait", function() ls.sleep(0.01) error("no luck") end)
app:post("/json", function(req) return req:json{ object = true } end)
app:static("/static", "public")

api:use(function(req, res, next)
  next()
  if req.query.replace == "status" then return 404, { error = "replaced" } end
  if req.query.replace == "body" then return "replaced" end
  if req.query.replace == "nil" then return nil end
  if req.query.replace == "html" then res:html("<b>" .. res:body()) end
  if req.query.replace == "type" then res:header("Content-Type", nil):header("X-Own", nil) end
end)
api:error(function(_, _, err) return 503, "api: " .. err:match("[^:]*$") end)
api:not_found(function(req) return "nothing at " .. req.path end)
api:get("/page", function(_, res) return "page", { ["X-Own"] = "1", ["Content-Type"] = "text/x" } end)
api:get("/fail", function() error("luck") end)
api:get("/forgets", function(_, _, next) next = nil end)
app:mount("/api", api)

app:use("/admin", function(req, _, next)
  if req.headers.authorization ~= "Bearer x" then return 401, "token" end
  next()
end)
app:get("/admin", function() return "admin" end)
app:get("/admin/users/:id", function(req) return "user " .. req.params.id end)
app:get("/administrator", function() return "other" end)
local function login(req, _, next)
  if not req.query.user then return 403, "login" end
  req.user = req.query.user
  next()
end
app:get("/me", login, function(req) return req.user end)
app:put("/me", { max_body = 10 }, login, function(_, _, next) next() end, function(req) return req.user .. " " .. req:body() end)

local calls = {}
app:get("/twice", function(_, _, next) next() next() end, function() return "once" end)
app:get("/late", function(_, _, next) calls.late = next next() end, function() return "early" end)
app:get("/later", function() calls.late() return "never" end)
app:get("/argument", function(_, _, next) next("route") end, function() return "x" end)
app:get("/job", function(_, _, next) ls.spawn(function() return next() end):wait() end, function() return "x" end)
app:get("/forgets", function(_, _, next) next = nil end, function() return "x" end)
app:get("/went-on", function(_, res, next) res:redirect("/login") next() end, function() return "SECRET" end)
app:get("/replaces", function(_, res, next) next() res:send("a") return "b" end, function(_, res) return res:send("SECRET") end)
app:get("/renders", function(_, res) res:json("a") return res:render("SECRET") end)
app:get("/caught", function(_, _, next) assert(pcall(next)) end, function() error("inner") end)
app:get("/own-error", function(_, _, next) next() error("behind next") end, function() return "x" end)
app:get("/sleeps", function(_, res, next) ls.sleep(0.01) next() ls.sleep(0.01) res:header("X-Slept", "1") end,
  function() ls.sleep(0.01) return "slept" end)

streams:get("/write", function(_, res) res:write("a") res:write("b") end)
streams:get("/events", function(_, res) local sse = res:sse() sse:send("x") end)
streams:get("/described", function(_, res) res:html("page") res:write("more") end)
local plain = ls.app()
plain:mount("/streams", streams)
plain:use(function(_, res, next) res:header("X-Before", "1") next() end)
for _, route in ipairs{ "forgotten", "gone", "second", "written" } do
  plain:get("/" .. route .. "-file", function(_, res)
    local ok = res:file("none.txt")
    if route == "gone" then res:status(410) elseif route == "second" then res:file("page.txt") elseif route == "written" then res:write("written") end
  end)
end
plain:get("/late-header", function(_, res, next) next() res:header("X-Late", "1") end, function(_, res) res:write("a") res:flush() end)
ls.listen("127.0.0.1:0", app)
ls.listen("127.0.0.1:0", plain)
"""
TEXT, JSON, HTML = "text/plain; charset=utf-8", "application/json", "text/html; charset=utf-8"


class Middleware(E2E):
    SITE = SITE
    LISTENERS = 2

    def check(self, target, status, text, seen, **fields):
        response = self.get(target)
        self.assertEqual((response.status, response.text), (status, text), target)
        self.assertEqual((response.header("X-Seen"), response.header("X-Second")), (seen, "2"), target)
        for name, value in fields.items():
            self.assertEqual(response.header(name.replace("_", "-")), value, target)

    def test_it_sees_every_kind_of_response(self):
        error = "Internal Server Error\n"
        for case in (
            ("/text", 200, "text", "200 %s string" % TEXT), ("/table", 200, '{"a":1}', "200 %s table" % JSON),
            ("/both", 201, "made", "201 %s string" % TEXT), ("/status", 403, "Forbidden\n", "403 %s nil" % TEXT),
            ("/none", 500, error, "500 %s nil" % TEXT), ("/own-status", 202, "", "202 - nil"),
            ("/html", 200, "<p>page", "200 %s string" % HTML), ("/html-alone", 203, "<p>page", "203 %s string" % HTML),
            ("/json", 200, '"text"', "200 %s string" % JSON), ("/send", 200, "a,b", "200 text/csv; charset=utf-8 string"),
            ("/redirect", 303, "See Other\n", "303 %s nil" % TEXT), ("/file", 200, "0123456789" * 10, "200 %s nil" % TEXT),
            ("/no-file", 404, "Not Found\n", "404 %s nil" % TEXT), ("/forgotten-file", 404, "Not Found\n", "404 %s nil" % TEXT),
            ("/forgotten-folder", 500, error, "500 %s nil" % TEXT), ("/gone-file", 410, "", "410 - nil"),
            ("/second-file", 200, "0123456789" * 10, "200 %s nil" % TEXT),
            ("/static/page.txt", 200, "0123456789" * 10, "200 %s nil" % TEXT),
            ("/static/none.txt", 404, "Not Found\n", "404 %s nil" % TEXT), ("/fail", 500, error, "500 %s nil" % TEXT),
            ("/fail-after", 500, error, "500 %s nil" % TEXT), ("/wrong", 500, error, "500 %s nil" % TEXT),
            ("/waits", 200, "waited", "200 %s string" % TEXT), ("/fail-after-wait", 500, error, "500 %s nil" % TEXT),
            ("/nowhere", 404, "Not Found\n", "404 %s nil" % TEXT), ("/%00", 400, "Bad Request\n", "400 %s nil" % TEXT),
            ("/api/none", 404, "nothing at /api/none", "404 %s string" % TEXT), ("/api/fail", 503, "api:  luck", "503 %s string" % TEXT),
        ):
            with self.subTest(case[0]):
                self.check(*case)

    def test_a_client_that_leaves_is_no_error(self):
        mark = self.server.mark()
        with self.connect() as conn:
            conn.send(request("GET", "/leaves"))
            self.get("/text")
        line = self.server.wait_log("GET /leaves: .*the client has left while the handler waited", mark)
        self.assertRegex(line, "^[^ ]+ info request ")
        self.assertEqual(self.server.logged("error ", mark), [])

    def test_a_file_that_is_missing_and_forgotten_is_logged(self):
        for listener in 0, 1:
            with self.connect(listener) as conn:
                for target, status, text in (("/gone-file", 410, ""), ("/second-file", 200, "0123456789" * 10),
                                             ("/written-file", 200, "written"), ("/forgotten-file", 404, "Not Found\n")):
                    if target == "/written-file" and listener == 0:  # its middleware wants to set a field
                        continue
                    mark = self.server.mark()
                    response = conn.get(target)
                    self.assertEqual((response.status, response.text), (status, text))
                    if "forgotten" in target:
                        self.server.wait_log("res:file has found no file", mark)
                    lines = self.server.logged("error .*res:file has found no file", mark)
                    self.assertEqual(len(lines), 1 if "forgotten" in target else 0, lines)

    def test_conditions_ranges_and_head_see_the_final_response(self):
        with self.server.connect() as conn:
            whole = conn.get("/file")
            tag = whole.header("ETag")
            for target in ("/file", "/static/page.txt"):
                part = conn.get(target, [("Range", "bytes=2-4")])
                self.assertEqual((part.status, part.text, part.header("X-Second")), (206, "234", "2"))
            same = conn.get("/file", [("If-None-Match", tag)])
            self.assertEqual((same.status, same.body, same.header("X-Second")), (304, b"", "2"))
            head = conn.send(request("HEAD", "/html")).response("HEAD")
            self.assertEqual((head.header("Content-Length"), head.header("X-Second")), ("7", "2"))

    def test_mistakes_of_the_client(self):
        with self.server.connect() as conn:
            response = conn.ask("POST", "/json", body=b"[1")
            self.assertEqual((response.status, response.header("X-Second")), (400, "2"))
            response = conn.ask("DELETE", "/text")
            self.assertEqual((response.status, response.header("Allow"), response.header("X-Second")), (405, "GET, HEAD, OPTIONS", "2"))
        self.assertEqual(self.server.logged("error .*POST /json"), [])

    def test_results_replace_the_response(self):
        for replace, status, text, kind in (("status", 404, '{"error":"replaced"}', "text/x"),
                                            ("body", 200, "replaced", "text/x"), ("nil", 200, "page", "text/x"),
                                            ("html", 200, "<b>page", "text/x"), ("type", 200, "page", TEXT)):
            with self.subTest(replace):
                response = self.get("/api/page?replace=" + replace)
                self.assertEqual((response.status, response.text, response.header("Content-Type")), (status, text, kind))
                self.assertEqual(response.header("X-Own"), None if replace == "type" else "1")

    def test_errors_are_logged_once_with_their_place(self):
        mark = self.server.mark()
        self.get("/fail")
        line = self.server.wait_log("no luck", mark)
        self.assertRegex(line, r"error request [0-9a-f]{16} GET /fail: .*site.lua:\d+: no luck")
        self.assertEqual(len(self.server.logged("no luck", mark)), 1)
        self.get("/wrong")
        self.assertRegex(self.server.wait_log("returned a function", mark), r"site.lua:\d+: GET /wrong: the handler returned")

    def test_routes(self):
        with self.server.connect() as conn:
            self.assertEqual((conn.get("/me").status, conn.get("/me?user=eve").text), (403, "eve"))
            self.assertEqual(conn.ask("PUT", "/me?user=eve", body=b"hello").text, "eve hello")
            self.assertEqual(conn.ask("PUT", "/me?user=eve", body=b"x" * 11).status, 413)

    def test_misuse(self):
        for target, message in (
            ("/twice", "next() was called before by this middleware"), ("/later", "next() belongs to the middleware that got it"),
            ("/argument", "next() takes no arguments"), ("/job", "next() belongs to the middleware that got it"),
            ("/forgets", "the middleware neither called next() nor answered the request: call next(), or return a response such as"),
            ("/own-error", "behind next"),
            ("/went-on", r"site.lua:\d+: res:redirect at \S*site.lua:\d+ has described the response: write return res:redirect(...)"),
            ("/replaces", r"site.lua:\d+: res:send at \S*site.lua:\d+ has described the response"),
            ("/renders", r"site.lua:\d+: res:json at \S*site.lua:\d+ has described the response"),
            ("/none", "GET /none: the handler described no response: write return before the body, or return 204"),
        ):
            with self.subTest(target):
                self.get("/late")
                mark = self.server.mark()
                response = self.get(target)
                self.assertEqual((response.status, response.header("X-Second"), response.header("Location")), (500, "2", None))
                line = self.server.wait_log(message.replace("(", r"\(").replace(")", r"\)"), mark)
                self.assertRegex(line, r"site.lua:\d+: ")
        caught = self.get("/caught")  # next() does not raise: it has made the error a response
        self.assertEqual((caught.status, caught.header("X-Seen")), (500, "500 %s nil" % TEXT))

    def test_results_in_the_wrong_order(self):
        """The message names the function whose results they are, whatever runs around it."""
        site = r"""
local ls = require "luaserve"
local app = ls.app()
local function bad(name)
  if name == "number" then return 5 end
  if name == "large" then return 1000, "x" end
  if name == "status" then return "x", 404 end
  if name == "nil" then return nil, "no luck" end
  if name == "value" then return { f = print } end
  if name == "boolean" then return false end
  if name == "field" then return "x", { A = print } end
  if name == "many" then return table.unpack({ "x", {}, 1 }, 1, 1000) end
end
app:use(function(_, _, next) next() return nil end)
app:use("/outer", function(req, _, next) next() return bad(req.params.name) end)
app:use("/outer", function(_, _, next) next() end)
app:use("/shown", function(_, _, next) next() return bad("number") end)
app:get("/outer/:name", function() return "fine" end)
app:get("/own/:name",
  function(req, _, next) next() return bad(req.params.name) end,
  function() return "fine" end)
app:get("/handler/:name", function(req) return bad(req.params.name) end)
local outermost = ls.app()
outermost:use(function(req, res, next) res:header("X", 1) return bad(req.query.name) end)
outermost:get("/", function() return "fine" end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.listen{ host = "127.0.0.1", port = 0, handler = outermost }"""
        lines = ("\n" + site).split("\n")

        def line_of(text):
            return next(number for number, line in enumerate(lines) if text in line)
        server = self.serve(site, listeners=2)
        for index, target, place in (
            (0, "/outer/%s", "%d: the middleware" % line_of('"/outer", function(req')),
            (0, "/own/%s", "%d: the middleware" % line_of('app:get("/own')),
            (0, "/handler/%s", "%d: GET /handler/:name: the handler" % line_of('"/handler')),
            (1, "/?name=%s", "%d: the middleware" % line_of("outermost:use")),
        ):
            for name, message in (
                ("number", "returned the number 5, which"), ("large", "returned an invalid status: 1000 "),
                ("status", "returned a string, 404; the status comes first"), ("nil", "returned nil, no luck; "), ("value", None),
                ("boolean", "returned a boolean; a "), ("field", None), ("many", "returned a string, a table, 1; a "),
            ):
                with self.subTest(target % name):
                    mark = server.mark()
                    self.assertEqual(server.get(target % name, index=index).status, 500)
                    expected = "%s %s" % (place, message) if message else place.rpartition(": the")[0] + ": .*function"
                    server.wait_log(r"error request .*: \S*site\.lua:" + expected.replace("(", r"\("), mark)

    def test_the_functions_of_a_route_run_in_its_task_alone(self):
        server = self.serve(app_site("""
ls.config { states = 1 }
local run = nil
app:get("/", function(_, _, next) run = debug.getinfo(2, "f").func next() end, function() return "kept" end)
app:get("/run", function() return ls.spawn(function() return select(2, pcall(run)) end):wait() end)
"""))
        self.assertEqual([server.get(path).text for path in ("/", "/run")],
                         ["kept", "the functions of a route run in the task of their request"])

    def test_it_may_wait(self):
        response = self.get("/sleeps")
        self.assertEqual((response.text, response.header("X-Slept")), ("slept", "1"))

    def test_streams(self):
        with self.connect(1) as conn:
            self.assertEqual(conn.get("/streams/write").text, "ab")
            self.assertEqual(conn.get("/streams/events").text, "data: x\n\n")
            self.assertEqual(conn.get("/streams/described").status, 500)
            mark = self.server.mark()
            conn.send(request("GET", "/late-header"))
            self.assertEqual(conn.head().status, 200)
            self.server.wait_log("the head of the response was sent already", mark)


# Functions behind next() that a limit ends, in many ways; `at` counts those that have not come back.
LIMITS = app_site(r"""
ls.config { max_cpu = 0.3, timeout = 0.2 }
local other, flights, notes, gate = ls.app(), ls.dict("flights"), ls.dict("notes"), ls.semaphore("gate", 1)
local inner = ls.channel("inner")
app:use(ls.session{ store = ls.dict("sessions"), secure = false })
app:use(function(req, res, next)
  local note <close> = setmetatable({}, { __close = function() notes:incr("closed") end })
  flights:incr("at")
  next()
  if req.query.waits then ls.sleep(0.01) end
  if req.query.computes then local t = os.clock() while os.clock() - t < 0.1 do end end
  if req.query.takes then assert(gate:acquire(0)) gate:release() end
  flights:incr("at", -1)
  if req.query.form then return { status = res:status() } end
  res:header("X-After", res:status())
end)
local function spin() while true do end end
app:get("/sleeps", function() ls.sleep(100) end)
app:get("/short", { timeout = 30 }, function() while true do local t = os.clock() while os.clock() - t < 0.01 do end ls.sleep(0) end end)
app:get("/spins", spin)
app:get("/catches", function() while true do pcall(function() while true do pcall(ls.sleep, 100) end end) end end)
app:get("/spins-caught", function() while true do pcall(pcall, spin) xpcall(spin, spin) end end)
app:get("/inner", function() coroutine.wrap(function() coroutine.wrap(function() ls.sleep(100) end)() end)() end)
app:get("/inner-spins", function() while true do coroutine.resume(coroutine.create(spin)) end end)
app:get("/sorts", function() table.sort({ 1, 2, 3 }, spin) end)
app:get("/waits-in-sort", function() gate:acquire() table.sort({ 1, 2, 3 }, spin) end)
app:get("/closes", function()
  local twice <close> = setmetatable({}, { __close = spin })
  ls.sleep(100)
end)
app:get("/holds", function() gate:acquire() ls.sleep(100) end)
app:get("/holds-with", function() gate:with(ls.sleep, 100) end)
app:get("/receives", function() inner:receive() end)
app:post("/body", function(req) return req:body() end)
app:get("/session", function(req) req.session.user = "ann" ls.sleep(100) end)
app:get("/who", function(req) return tostring(req.session.user) end)
app:get("/stream", function(_, res) res:write("x") ls.sleep(100) end)
app:get("/own", { timeout = 0.05 }, function(_, _, next) next() flights:incr("own") end, function() ls.sleep(100) end)
app:get("/slow-after", function(_, _, next) next() notes:incr("began") ls.sleep(100) notes:incr("late") end, function() ls.sleep(100) end)
app:get("/outer", function() return { at = flights:get("at") or 0, own = flights:get("own") or 0, closed = notes:get("closed") or 0, late = notes:get("late") or 0 } end)
app:get("/free", function() return "held " .. gate.held end)
other:error(function(_, res, err, traceback)
  assert(traceback:find(err, 1, true) == 1 and traceback:find("stack traceback:\n\t", 1, true))
  if err:find("max_cpu", 1, true) then ls.sleep(100) end
  return { error = err, status = res:status() }
end)
other:get("/sleeps", function() ls.sleep(100) end)
other:get("/spins", spin)
app:mount("/other", other)
""")
WAITED, COMPUTED = r"waited for longer than timeout allows \(0\.2 s\)", "used more processor time than max_cpu allows"


class FieldsOfAFile(E2E):
    """After next() they are in res, and can be changed."""
    NAMES = ("Content-Type", "Content-Length", "Cache-Control", "Vary", "Content-Encoding", "ETag", "Accept-Ranges", "Last-Modified")
    SITE = app_site("""
ls.file.mkdir("public")
local dir = "@DIR@/public"
io.open(dir .. "/page.txt", "w"):write(("0123456789"):rep(10)):close()
io.open(dir .. "/page.txt.gz", "w"):write("packed"):close()
app:use(function(req, res, next)
  if req.query.before then res:header("ETag", req.query.before) end
  next()
  local seen = {}
  for _, name in ipairs(ls.json.decode(req.headers["X-Names"] or "[]")) do seen[name] = res:header(name) end
  res:header("X-Seen", ls.json.encode(seen))
  if req.query.remove then res:header(req.query.remove, nil) end
  if req.query.set then res:header(req.query.set, req.query.value) end
  if req.query.text then return "text" end
end)
ls.on("log", function(_, res, info)
  local function field(name) return tostring(res:header(name)) end
  ls.log.info(table.concat({ "logged", info.status, field "ETag", field "Content-Range", field "Content-Length" }, " "))
end)
app:get("/file", function(_, res) return res:file(dir .. "/page.txt", { max_age = 60 }) end)
app:get("/part", function(_, res) return res:file(dir .. "/page.txt", { offset = 10, length = 5 }) end)
app:get("/own", function(_, res)
  res:header("ETag", '"own"'):header("Last-Modified", "Thu, 01 Jan 1970 00:00:00 GMT"):type("csv")
  return res:file(dir .. "/page.txt")
end)
app:get("/later", function(_, res)
  assert(res:file(dir .. "/page.txt"))
  res:header("X-Tag", res:header("etag"))
  return res:header("Accept-Ranges", nil):header("Cache-Control", "no-store")
end)
app:static("/static", dir, { precompressed = true, max_age = 60 })
""")
    GZIP = ("Accept-Encoding", "gzip")

    def ask(self, target, *headers):
        return self.server.get(target, list(headers))

    def test_they_can_be_read(self):
        names = ("X-Names", json.dumps(self.NAMES))
        for target, headers, missing in (
            ("/file", (), ("Content-Encoding", "Vary")), ("/part", (), ("Content-Encoding", "Vary", "Cache-Control")),
            ("/own", (), ("Content-Encoding", "Vary", "Cache-Control")), ("/static/page.txt", (), ("Content-Encoding",)),
            ("/static/page.txt", (self.GZIP,), ()),
        ):
            with self.subTest(target, headers=headers):
                response = self.ask(target, names, *headers)
                self.assertEqual(response.status, 200)
                sent = {name: response.header(name) for name in self.NAMES if response.header(name) is not None}
                self.assertEqual(json.loads(response.header("X-Seen")), sent)
                self.assertEqual(set(self.NAMES) - set(sent), set(missing))

    def test_the_handler_itself_can(self):
        response = self.ask("/later")
        self.assertRegex(response.header("ETag"), '^"')
        self.assertEqual(response.header("X-Tag"), response.header("ETag"))
        self.assertEqual((response.header("Accept-Ranges"), response.header("Cache-Control")), (None, "no-store"))

    def test_each_can_be_removed(self):
        whole = self.ask("/static/page.txt", self.GZIP)
        for name in self.NAMES[2:]:
            response = self.ask("/static/page.txt?remove=" + name.lower(), self.GZIP)
            self.assertEqual((response.status, response.body), (200, b"packed"))
            for other in self.NAMES:
                self.assertEqual(response.header(other), None if other == name else whole.header(other), name)
        self.assertIsNone(self.ask("/own?remove=ETag").header("ETag"))

    def test_each_can_be_set(self):
        for target in ("/file", "/own", "/static/page.txt"):
            for name, value in (("ETag", '"new"'), ("Last-Modified", "Fri, 02 Jan 1970 00:00:00 GMT"), ("Accept-Ranges", "none"),
                                ("Content-Type", "text/x"), ("Cache-Control", "no-store"), ("Content-Encoding", "x")):
                response = self.ask("%s?set=%s&value=%s" % (target, name, quote(value)), self.GZIP)
                self.assertEqual([v for n, v in response.headers if n.lower() == name.lower()], [value], target)

        vary = self.ask("/static/page.txt?set=Vary&value=Origin", self.GZIP)
        self.assertEqual(sorted(v for n, v in vary.headers if n.lower() == "vary"), ["Accept-Encoding", "Origin"])

    def test_behind_the_response_they_are_those_that_were_sent(self):
        tag = self.ask("/file").header("ETag")
        for condition, status in ((("If-None-Match", tag), 304), (("If-Match", '"x"'), 412), (("Range", "bytes=0-1"), 206),
                                  (("Range", "bytes=200-"), 416)):
            mark = self.server.mark()
            response = self.ask("/file", condition)
            self.assertEqual(response.status, status)
            fields = response.header("ETag") or "nil", response.header("Content-Range") or "nil"
            self.server.wait_log(re.escape("logged %d %s %s nil" % (status, *fields)) + "$", mark)

    def test_conditions_follow(self):
        for target in ("/file", "/static/page.txt"):
            whole = self.ask(target, self.GZIP)
            tag, date = ("If-None-Match", whole.header("ETag")), ("If-Modified-Since", whole.header("Last-Modified"))
            new = ("If-None-Match", '"new"')
            for query, condition, status in (
                ("", tag, 304), ("", date, 304), ("", new, 200), ("?set=ETag&value=%22new%22", tag, 200),
                ("?set=ETag&value=%22new%22", new, 304), ("?remove=ETag", tag, 200), ("?remove=ETag", date, 304),
                ("?remove=Last-Modified", date, 200), ("?remove=Last-Modified", tag, 304),
            ):
                response = self.ask(target + query, self.GZIP, condition)
                self.assertEqual(response.status, status, (target, query, condition))
                if status == 304:
                    expected = None if "remove=ETag" in query else '"new"' if "value" in query else tag[1]
                    self.assertEqual(response.header("ETag"), expected)
                    self.assertEqual(response.header("Last-Modified"), None if expected else date[1])

    def test_the_tag_of_another_representation_is_not_that_of_the_coded_one(self):
        plain, coded = self.ask("/static/page.txt?before=%22own%22"), self.ask("/static/page.txt?before=%22own%22", self.GZIP)
        self.assertEqual(plain.header("ETag"), '"own"')
        self.assertEqual(coded.header("ETag"), self.ask("/static/page.txt", self.GZIP).header("ETag"))

    def test_a_response_that_replaces_the_file_has_none(self):
        response = self.ask("/static/page.txt?text=1", self.GZIP)
        self.assertEqual((response.text, response.header("Content-Type")), ("text", TEXT))
        self.assertEqual([name for name in self.NAMES[2:] if response.header(name)], [])


class Limits(E2E):
    """timeout and max_cpu end the functions behind next(), and next() returns."""
    SITE = LIMITS

    def after(self, target, status, message, text):
        mark = self.server.mark()
        response = self.get(target)
        self.assertEqual((response.status, response.header("X-After")), (status, str(status)))
        self.assertEqual(response.text, text)
        line = self.server.wait_log(message, mark)
        self.assertRegex(line, r"error request \w+ GET [^:]*: \S*site\.lua:\d+: the handler of GET %s \(\S*site\.lua:\d+\) "
                         % target.partition("?")[0])
        self.assertEqual(len(self.server.logged(message, mark)), 1)

    def test_the_middleware_goes_on(self):
        late, busy = "Service Unavailable\n", "Internal Server Error\n"
        before = json.loads(self.get("/outer").body)
        for target, status, message, text in (
            ("/sleeps", 503, WAITED, late), ("/short", 500, COMPUTED, busy), ("/spins", 500, COMPUTED, busy),
            ("/catches", 503, WAITED, late), ("/spins-caught", 500, COMPUTED, busy), ("/inner", 503, WAITED, late),
            ("/inner-spins", 500, COMPUTED, busy), ("/sorts", 500, COMPUTED, busy), ("/closes", 503, WAITED, late),
            ("/receives", 503, WAITED, late), ("/sleeps?waits=1", 503, WAITED, late), ("/spins?waits=1", 500, COMPUTED, busy),
            ("/sleeps?computes=1", 503, WAITED, late), ("/spins?computes=1", 500, COMPUTED, busy), ("/holds?takes=1", 503, WAITED, late),
            ("/holds-with?takes=1", 503, WAITED, late), ("/waits-in-sort?takes=1", 500, COMPUTED, busy),
        ):
            with self.subTest(target):
                self.after(target, status, message, text)
        self.assertEqual(self.get("/sleeps?form=1").text, '{"status":503}')
        self.assertEqual(self.get("/own").status, 503)
        with self.connect() as conn:
            conn.send(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\nx")
            response = conn.response()
            self.assertEqual((response.status, response.header("X-After")), (503, "503"))
        got = json.loads(self.get("/outer").body)
        self.assertEqual((got["at"], got["own"]), (before["at"], 1))
        self.assertEqual(self.get("/free").text, "held 0")

    def test_a_limit_that_passes_in_the_last_call_of_a_handler_with_many_results(self):
        """No instruction of Lua follows, so nothing has ended it; its 9000 results fill the stack."""
        server = self.serve(app_site("""
ls.config { states = 1, max_cpu = 0.05 }
local strings, find, unpack, long = getmetatable(""), string.find, table.unpack, ("a"):rep(1000000)
app:use(function(req, res, next)
  next()
  strings.__index = string
  res:header("X-After", res:status())
end)
app:post("/", coroutine.wrap(function(_, res)
  res:status(204)
  strings.__index = find -- what unpack calls for each element: long:find(n)
  return unpack(long, 1, 9000)
end))
app:get("/next", function() return "next" end)
"""))
        with server.connect() as conn:
            response = conn.ask("POST", "/")
        self.assertEqual((response.status, response.header("X-After")), (204, "204"))
        self.assertEqual(server.get("/next").text, "next")
        self.assertEqual(server.logged("error"), [])

    def test_a_session_is_stored(self):
        first = self.get("/session")
        self.assertEqual(first.status, 503)
        cookie = first.header("Set-Cookie").partition(";")[0]
        with self.connect() as conn:
            self.assertEqual(conn.get("/who", [("Cookie", cookie)]).text, "ann")

    def test_an_error_handler_answers(self):
        late = self.get("/other/sleeps")
        self.assertEqual((late.status, json.loads(late.body)["status"], late.header("X-After")), (503, 503, "503"))
        self.assertRegex(json.loads(late.body)["error"], WAITED)
        mark = self.server.mark()
        busy = self.get("/other/spins")  # that one waits for too long itself
        self.assertEqual((busy.status, busy.header("X-After"), busy.text), (500, "500", "Internal Server Error\n"))
        self.server.wait_log(r"the handler of app:error \(\S*site\.lua:\d+\) waited for longer than timeout allows \(1 s\)", mark)

    def test_what_comes_behind_next_has_a_second(self):
        mark = self.server.mark()
        response = self.get("/slow-after")
        self.assertEqual((response.status, response.header("X-After")), (503, "503"))
        self.server.wait_log(WAITED, mark)
        self.server.wait_log(r"waited for longer than timeout allows \(1 s\)", mark)
        self.assertEqual(json.loads(self.get("/outer").body)["late"], 0)

    def test_a_stream_ends_and_variables_are_closed(self):
        before = json.loads(self.get("/outer").body)["closed"]
        with self.connect() as conn:
            conn.send(request("GET", "/stream"))
            conn.response_head()
            self.assertEqual(conn.rest(), b"1\r\nx\r\n")  # without the last chunk
        self.eventually(lambda: json.loads(self.get("/outer").body)["closed"] >= before + 2, "the variable is closed")


class Load(E2E):
    def test_too_many(self):
        for count, status in ((63, 0), (64, 1)):
            text = ('local ls = require "luaserve" local app = ls.app() for _ = 1, %d do app:use(function(_, _, n) n() end) end '
                    'app:get("/", function() return "x" end) ls.listen(0, app) app:inject{ path = "/" }' % count)
            with scratch(site_lua=text) as where:
                got, _, err = run_program(["--check", os.path.join(where, "site.lua")])
            self.assertEqual(got, status, err)
            if status:
                self.assertIn("more than 63 middleware functions", err)

    def test_a_chain_of_the_longest(self):
        server = self.serve(app_site("""
            for n = 1, 63 do app:use(function(_, res, next) next() return (res:body() or "") .. "x" end) end
            app:get("/", function() return "" end)
"""))
        self.assertEqual(server.get("/").text, "x" * 63)
