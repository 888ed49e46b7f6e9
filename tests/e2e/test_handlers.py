"""Handlers that fail: errors, loops, exhausted memory. Their request gets a 500 where that is still possible; no other
request fails.

After each failure the log must name the request and show a traceback, and the next request must succeed."""
import contextlib
import json
import re
import socket
import threading
import unittest

from harness import E2E, SANITIZER, WAIT, Closed, Framing, app_site, beside, request
from harness.environment import WINDOWS

SITE = app_site(r"""
ls.config{ max_cpu = 0.4, max_memory = "32m", drain_timeout = 5 }
local function note(req) ls.log.info("serving id=" .. tostring(req.id) .. " " .. req.path) end
app:use(function(req, res, next) note(req); return next() end)
app:get("/", function() return "root" end)
local function inner() error("raised on purpose") end
app:any("/error", function() inner() end)
app:get("/error-table", function() error({ "a table" }) end)
app:get("/error-nil", function() error(nil) end)
app:get("/error-object", function() error(setmetatable({}, { __tostring = function() return "an object speaks" end })) end)
app:get("/error-nasty", function() error(setmetatable({}, { __tostring = function() error("again") end })) end)
app:get("/usage", function() ls.json.array("x") end)
app:get("/call-nil", function() local t = {}; t.x.y = 1 end)
app:get("/loop", function() while true do end end)
app:get("/loop-xpcall", function() while true do xpcall(function() while true do end end, function() while true do end end) end end)
app:get("/loop-close", function()
  local c <close> = setmetatable({}, { __close = function() while true do end end })
  error("into close")
end)
app:get("/eat", function() local t = {} while true do t[#t + 1] = ("x"):rep(1000):rep(100) .. #t end end)
app:get("/eat-pcall", function()
  local t = {}
  while true do pcall(function() t[#t + 1] = ("x"):rep(1000):rep(100) .. #t end) end
end)
app:get("/write-after-send", function(req, res) res:send("all"); res:write("more"); return "and more" end)
app:get("/send-twice", function(req, res) res:send("first"); res:send("second") end)
app:get("/status-late", function(req, res) res:write("x"); res:flush(); res:status(404); res:header("X-Late", "1") end)
app:get("/error-after-parts", function(req, res) res:write("part"); res:flush(); ls.sleep(0.01); error("after parts") end)
app:get("/error-after-send", function(req, res) res:send("whole"); error("after send") end)
app:get("/error-after-sleep", function(req, res) ls.sleep(0.01); error("after sleep") end)
local function half_made(res)
  res:header("X-Half", "1"):header("Access-Control-Allow-Origin", "*"):cookie("sid", "7"):type("json")
  for _, name in ipairs{ "ETag", "Cache-Control", "Content-Encoding", "Last-Modified", "Expires", "Content-Disposition",
    "Content-Language", "content-location", "CONTENT-RANGE" } do res:header(name, "x") end
  res:header("Content-Length", 7):status(201)
end
app:get("/error-headers", function(req, res) half_made(res); error("with headers") end)
app:post("/error-body", function(req, res) half_made(res); return req:json{ object = true } end)
app:post("/error-unread", function(req) error("body not read") end)
app:get("/yield", function() coroutine.yield("nobody waits") return "after" end)
app:get("/exit", function() return pcall(os.exit, 3) and "alive" or "refused" end)
app:get("/collect", function() collectgarbage() return "ok" end)
app:get("/timer-error", function() ls.after(0, function() error("timer broke") end); ls.spawn(function() error("job broke") end); return "ok" end)
local bad = ls.app()
bad:get("/x", function() error("first") end)
bad:get("/y", function() while true do end end)
bad:error(function() error("the error page broke too") end)
app:mount("/bad", bad)
local bad_page = ls.app()
bad_page:get("/headers", function(req, res) half_made(res); error("with headers") end)
bad_page:error(function(req, res) return "no luck" end)
app:mount("/bad-page", bad_page)
local nonsense = ls.app()
nonsense:get("/x", function() error("first") end)
nonsense:error(function() return function() end end)
app:mount("/nonsense", nonsense)
local slow = ls.app()
slow:get("/x", function() error("first") end)
slow:error(function(req, res) ls.sleep(0.01); return 503, "slow page" end)
app:mount("/slow", slow)
""")


def with_max_cpu(seconds):
    return SITE.replace("max_cpu = 0.4", "max_cpu = %s" % seconds)


class Failing(E2E):
    def broken(self, target, method="GET", body=None, traceback=True, says=None, status=500):
        """Request the failing handler, then another one on the same connection; check the response, the log and
        another client."""
        mark = self.server.mark()
        with self.server.connect() as conn:
            response = conn.ask(method, target, body=body)
            self.assertEqual(response.status, status, response)
            if not response.closes:
                self.assertEqual(conn.get("/").text, "root", "the next request on the same connection")
        self.assertEqual(self.server.get("/").text, "root", "someone else")
        self.logged_with_id(target, mark, traceback, says)
        return response

    def logged_with_id(self, target, mark, traceback=True, says=None):
        line = self.server.wait_log(r"serving id=\S+ " + re.escape(target.split("?")[0]), mark)
        request_id = re.search(r"id=(\S+)", line).group(1)
        expected = [says or "", "stack traceback" if traceback else ""]

        def is_logged():
            lines = self.server.logged(".", mark)
            text = "\n".join(lines)
            return any(request_id in l and "serving id" not in l for l in lines) and all(part in text for part in expected)

        self.eventually(is_logged, "an error with id %s for %s, with %s, in the log" % (request_id, target, expected))


class Loops(Failing):
    SITE = with_max_cpu(0.1)

    @unittest.skipIf(SANITIZER == "tsan", "ThreadSanitizer delays signals while Lua loops")
    def test_loops(self):
        """Each loop fails its own request only, however it is written; other requests are served meanwhile."""
        targets = ("/loop", "/loop-xpcall", "/loop-close")
        for target in targets:
            with self.subTest(target):
                mark = self.server.mark()
                begun, done = threading.Event(), threading.Event()
                served = []

                def bystander():  # before, during and after the loop
                    while not done.is_set():
                        try:
                            served.append(self.server.get("/").text)
                        except (OSError, AssertionError) as error:
                            served.append(error)
                            done.set()
                        begun.set()
                        done.wait(0.01)

                thread = threading.Thread(target=bystander)
                thread.start()
                try:
                    self.assertTrue(begun.wait(WAIT))
                    with self.server.connect() as conn:
                        self.assertEqual(conn.get(target).status, 500)
                        self.assertEqual(conn.get("/").text, "root")
                finally:
                    done.set()
                    thread.join()
                self.assertEqual(served, ["root"] * len(served))
                self.logged_with_id(target, mark)


class Wrong(Failing):
    SITE = with_max_cpu(0.4)

    def test_errors(self):
        for target, says in (
            ("/error", "raised on purpose"), ("/error-table", None), ("/error-nil", None), ("/error-object", "an object speaks"),
            ("/error-nasty", None), ("/call-nil", "site.lua:"), ("/error-after-sleep", "after sleep"),
        ):
            with self.subTest(target):
                response = self.broken(target, says=says)
                self.assertNotIn("on purpose", response.text, "the client is not shown the error")
                self.assertNotIn("traceback", response.text)

    def test_traceback_names_the_place(self):
        mark = self.server.mark()
        self.assertEqual(self.get("/error").status, 500)
        self.server.wait_log("stack traceback", mark)
        line = SITE[: SITE.index("raised on purpose")].count("\n") + 1
        self.eventually(lambda: self.server.logged(r"site\.lua:%d:" % line, mark), "site.lua:%d in the log" % line)
        for target in ("/error", "/call-nil", "/usage"):  # the frames are those of the site and of what it has called
            mark = self.server.mark()
            self.assertEqual(self.get(target).status, 500)
            self.server.wait_log("stack traceback", mark)
            self.server.wait_log(r"^\t\t\S*site\.lua:\d+: in ", mark)
            self.assertEqual(self.server.logged(r"^\s+(luaserve/|\[C\]: in \?)", mark), [])

    def test_headers_of_a_failed_response(self):
        """Header fields stay; those that describe the content of the response that failed do not."""
        for target in ("/error-headers", "/bad-page/headers"):
            response = self.broken(target)
            for name in ("ETag", "Cache-Control", "Content-Encoding", "Last-Modified", "Expires", "Content-Disposition",
                         "Content-Language", "Content-Location", "Content-Range"):
                self.assertIsNone(response.header(name), name)
            self.assertEqual(response.header("X-Half"), "1")
            self.assertEqual(response.header("Access-Control-Allow-Origin"), "*")
            self.assertEqual(response.header("Set-Cookie"), "sid=7; Path=/; HttpOnly; SameSite=Lax")
            self.assertEqual(response.header("Content-Type"), "text/plain; charset=utf-8")
            self.assertEqual(response.header("Content-Length"), str(len(response.body)))
        response = self.broken("/error-body", "POST", b"null", status=400, traceback=False)
        self.assertEqual((response.header("X-Half"), response.header("ETag")), ("1", None), "also for a refused body")

    def test_error_with_an_unread_body(self):
        self.broken("/error-unread", "POST", b"x" * 100000)

    def test_allocates_for_ever(self):
        memory = "(not enough memory|.*max_cpu)" if SANITIZER else "not enough memory"  # they take time
        for target, says in (("/eat", memory), ("/eat-pcall", ".*max_cpu")):
            with self.subTest(target):
                mark = self.server.mark()
                self.broken(target, traceback=False)
                self.server.wait_log(r"GET %s: \S*site.lua:\d+: %s" % (target, says), mark)
                self.assertEqual(self.get("/collect").text, "ok")

    @unittest.skipIf(SANITIZER == "tsan", "one thread runs")
    def test_memory_used_up_to_the_last_byte(self):
        """The message takes memory as well, while the coroutine may still hold all of it."""
        site = app_site("""
ls.config{ max_memory = %d, threads = 1 }
app:get("/", function() local function deeper() return 1 + deeper() end return deeper() end)
""")
        for step in range(8):
            with self.subTest(step):
                server = self.serve(site % ((20 << 20) + step * 100000))
                self.assertEqual(server.get("/").status, 500)
                server.stop()
                self.assertRegex(server.log(), r"request [0-9a-f]{16} GET /: \S*site.lua:5: not enough memory")

    def test_writes_after_the_end(self):
        for target, status, text in (
            ("/write-after-send", 500, "Internal Server Error\n"), ("/send-twice", 500, "Internal Server Error\n"),
            ("/error-after-send", 500, "Internal Server Error\n"),
        ):
            with self.subTest(target):
                mark = self.server.mark()
                with self.server.connect() as conn:
                    response = conn.get(target)
                    self.assertEqual((response.status, response.text), (status, text))
                    self.assertEqual(conn.get("/").text, "root")
                if status == 500:
                    self.logged_with_id(target, mark)

    def test_status_after_the_head_has_left(self):
        mark = self.server.mark()
        with self.server.connect() as conn:
            conn.send(request("GET", "/status-late"))
            head = conn.response_head()
            self.assertEqual((head.status, head.header("X-Late")), (200, None))
        self.logged_with_id("/status-late", mark)

    def test_error_after_parts(self):
        """The body is truncated visibly: without a last chunk, and the connection closes."""
        mark = self.server.mark()
        with self.server.connect() as conn:
            conn.send(request("GET", "/error-after-parts") + request("GET", "/"))
            with self.assertRaises((Closed, Framing)):
                conn.response()
            conn.expect_end()
        self.logged_with_id("/error-after-parts", mark, says="after parts")
        self.assertEqual(self.get("/").text, "root")

    def test_error_in_the_error_page(self):
        self.broken("/bad/x", says="the error page broke too")
        if SANITIZER != "tsan":
            self.broken("/bad/y")
        self.broken("/nonsense/x")
        self.assertEqual(self.broken("/slow/x", status=503).text, "slow page")

    def test_errors_in_timers_and_jobs(self):
        mark = self.server.mark()
        self.assertEqual(self.get("/timer-error").text, "ok")
        self.server.wait_log("timer broke", mark)
        self.assertEqual(self.get("/").text, "root")

    def test_yield_of_ones_own(self):
        """A bare coroutine.yield in a handler is an error of the handler, not a request that never ends."""
        self.broken("/yield", traceback=False)

    def test_many_errors_on_one_connection(self):
        with self.connect() as conn:
            for _ in range(50):
                response = conn.get("/error")
                self.assertEqual(response.status, 500)
                self.assertFalse(response.closes, "a handler's error does not cost the connection")
                self.assertEqual(conn.get("/").text, "root")
            conn.send(request("GET", "/error") * 20 + request("GET", "/"))
            self.assertEqual([conn.response().status for _ in range(21)], [500] * 20 + [200])


class Nil(E2E):
    """An error about a nil value names the call that has failed in the same task, and no other."""
    CASES = {  # the handler, and the reason that the line of its call gives; None: no call
        "fetch": ('local r = ls.fetch("http://127.0.0.1:1/x") return r.text', "cannot fetch http://127.0.0.1:1/x: .*refused"),
        "connect": ('local s = ls.connect("127.0.0.1", 1) s:close()', "connection refused"),
        "websocket": ('local ws = ls.websocket("ws://127.0.0.1:1/") ws:close()', ".*refused"),
        "file": ('local text = ls.file.read("none") return #text', "none: .*"),
        "json": ('local t = ls.json.decode("{") return t.a', ".*"),
        "buffer": ('local n = 1 + ls.file.stat("none").size', "none: .*"),
        "chain": ('local function get() local t = ls.file.read("none") return t end local text = get() return text .. ""', "none: .*"),
        "wrapped": ('local b = ls.fetch("http://127.0.0.1:1/x") or nil return b.text', "cannot fetch .*refused"),
        "handled": ('local s = ls.connect("127.0.0.1", 1) if not s then s = nothing end return s.x', "connection refused"),
        "global": ('local t = ls.file.read("none") return nothing.x', None),
        "field": ('local t = ls.file.read("none") return req.nothing.x', None),
        "method": ('local t = ls.file.read("none") return req:nothing()', None),
        "none": ("local t return t.x", None),
        "other": ("local t = {} return t + 1", None),
        "job": ('ls.spawn(function() ls.file.read("none") end):wait() local t return t.x', None),
        "internal": ('assert(ls.file.mkdir("@DIR@/new/folder", { parents = true })) local t return t.x', None),
    }
    SITE = app_site("\n".join('app:get("/%s", function(req) %s end)' % (name, code) for name, (code, _) in CASES.items()))

    def test_the_last_call_that_failed_is_named(self):
        for name, (_, reason) in self.CASES.items():
            with self.subTest(name):
                line = self.SITE[:self.SITE.index('"/%s"' % name)].count("\n") + 1
                mark = self.server.mark()
                self.assertEqual(self.get("/" + name).status, 500)
                message = self.server.wait_log(r"attempt to ", mark)
                if reason is None:
                    self.assertNotIn("the last call", message)
                else:
                    self.assertRegex(message, r"a nil value.*; the last call that failed before: \S*site\.lua:%d: %s$" % (line, reason))


class Left(E2E):
    """A handler goes on when its client leaves: between two of its writes there may be any wait."""
    SITE = app_site("""
local db, gate, go, seen = ls.sqlite(":memory:"), ls.semaphore("gate", 1), ls.channel("go"), ls.dict("seen")
local waits = {
  query = function(sql) return db:one(sql).n end,
  rows = function(sql) for row in db:rows(sql) do return row.n end end,
  fetch = function(_, req) return ls.fetch("http://" .. req.authority .. "/slow"):body() end,
  semaphore = function() return gate:with(function() return "done" end) end,
  process = function() return ls.process { "sh", "-c", "sleep 0.1; echo done" }.out end,
}
app:get("/slow", function() return tostring(go:receive()) end)
app:get("/hold", function() return gate:with(function() return tostring(go:receive()) end) end)
app:get("/held", function() return tostring(gate.held) end)
app:get("/go", function() go:send "done" end)
app:get("/seen", function(req) return tostring(seen:get(req.query.name)) end)
app:get("/:what", function(req)
  seen[req.params.what] = "begun"
  waits[req.params.what]("with recursive c(n) as (select 1 union all select n + 1 from c where n < 300000) "
    .. "select count(*) as n from c", req)
  seen[req.params.what] = "done"
end)
""")

    def test_it_goes_on(self):
        for what in ("query", "rows", "fetch", "semaphore", *([] if WINDOWS else ["process"])):
            with self.subTest(what), self.connect() as holder:
                if what == "semaphore":
                    holder.send(request("GET", "/hold"))
                    self.eventually(lambda: self.get("/held").text == "1", "the permit is taken")
                with self.connect() as conn:
                    conn.send(request("GET", "/" + what, host="127.0.0.1:%d" % self.server.port()))
                    self.eventually(lambda: self.get("/seen?name=" + what).text != "nil", "the handler runs")
                if what in ("fetch", "semaphore"):
                    self.get("/go")
                self.eventually(lambda: self.get("/seen?name=" + what).text == "done", "the handler goes on")


class Failures(E2E):
    def test_each_kind_of_a_failure_has_a_line_of_the_log(self):
        server = self.serve(app_site("""
local db = ls.sqlite(":memory:")
db:migrate { "create table t(n integer check (n > 0))" }
app:get("/insert/:n", function(req) return { db:exec("insert into t values(?)", tonumber(req.params.n)) } end)
app:get("/drop", function() return { db:exec("drop table t") } end)
"""))
        for path in ("/insert/-1", "/insert/-2", "/drop", "/insert/1", "/insert/2"):
            self.assertEqual(server.get(path).status, 200 if path == "/drop" else 500)
        for text in ("CHECK constraint failed", "no such table: t"):
            server.wait_log(text)
            self.assertEqual(len(server.logged(text)), 1)


class Hogs(E2E):
    """A client that always has a next request, or a next line, lets the tasks that wait in the same Lua state run."""

    SITE = r"""
local ls = require "luaserve"
ls.config{ threads = 1, threads_max = 2 }
local app, turns, most = ls.app(), 0, 0
local function turn() for _ = 1, 3000 do end turns = turns + 1 end
app:get("/turn", function() turn() return 204 end)
app:get("/begin", function()
  ls.spawn(function()
    while true do
      local before = turns
      ls.sleep(0.001)
      most = math.max(most, turns - before)
    end
  end)
  return 204
end)
app:get("/most", function() return { most = most, turns = turns } end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.tcp("127.0.0.1:0", function(sock) for _ in sock:lines() do turn() end end)
"""

    def hog(self, index, bytes_of_a_turn):
        server = self.serve(self.SITE + "ls.config{ drain_timeout = 0.1 }", listeners=2)
        with server.connect() as control:  # the jobs of both states run
            for _ in range(20):
                control.get("/begin")
        stop = threading.Event()
        with server.connect(index) as conn:
            conn.sock.settimeout(None)

            def send():
                with contextlib.suppress(OSError):
                    while not stop.is_set():
                        conn.sock.sendall(bytes_of_a_turn * 100)

            def receive():
                with contextlib.suppress(OSError):
                    while conn.sock.recv(1 << 16):
                        pass

            with beside(send, receive):
                seen = []
                with server.connect() as control:

                    def enough():
                        seen.append(json.loads(control.get("/most").text))
                        return max(each["turns"] for each in seen) > 20000

                    self.eventually(enough, "many turns", timeout=4 * WAIT)
                stop.set()
                conn.sock.shutdown(socket.SHUT_RDWR)
        server.kill()
        return max(each["most"] for each in seen)

    def test_pipelined_requests(self):
        self.assertLess(self.hog(0, request("GET", "/turn")), 3000)

    def test_lines(self):
        self.assertLess(self.hog(1, b"x" * 1023 + b"\n"), 3000)
