"""Every limit of the README's table, set by the site, at the limit and one past it; and every deadline.

The sites set short deadlines. The tests check events and their order, never durations."""
# sanitizers: asan; each limit is that of one connection, and test_scarcity, test_handlers and test_states run many
import json
import threading
import unittest

from harness import E2E, WAIT, app_site, beside, chunked, repeats, request, run_program, scratch, system

APP = r"""
local ls = require "luaserve"
local app = ls.app()
app:get("/", function() return "root" end)
app:any("/echo", function(req) return req:body() end)
app:any("/ignore", function() return "ignored" end)
app:get("/n/:n", function(req) return req.params.n end)
app:post("/route10", { max_body = 10 }, function(req) return req:body() end)
app:post("/route2000", { max_body = "2k" }, function(req) return req:body() end)
app:post("/unlimited", { max_body = false }, function(req)
  local n = 0
  for piece in req:chunks() do n = n + #piece end
  return tostring(n)
end)
app:post("/told", function(req)
  local ok, err = pcall(function() return #req:body() end)
  ls.log.info("body told " .. tostring(ok) .. " " .. tostring(err))
  error(err, 0)
end)
app:post("/held", function(req) local held = req:buffer(); return ls.stats().bytes_live .. " " .. #held end)
app:get("/flood", function(req, res)
  local piece = ("x"):rep(1024):rep(64)
  for i = 1, 1600 do
    local ok, err, message, code = pcall(res.write, res, piece)
    if not ok or not err then ls.log.info("flood told " .. tostring(err) .. " " .. tostring(message) .. " " .. tostring(code)); return end
  end
  ls.log.info("flood went through")
end)
app:get("/flood-string", function() return ("x"):rep(1024):rep(100 * 1024) end)
local wall = ls.buffer(("x"):rep(1024):rep(4 * 1024))
app:get("/wall", function() return wall end)
app:get("/nap", function() ls.sleep(1); return "nap" end)
app:get("/stats", function() return ls.stats() end)
"""

LISTEN = 'ls.listen{ host = "127.0.0.1", port = 0, handler = app }\n'


class Sizes(E2E):
    SITE = (
        APP
        + r"""
ls.listen{ host = "127.0.0.1", port = 0, handler = app, max_head = 1024, max_target = 100, max_fields = 10, max_body = 1000 }
"""
    )

    def test_heads(self):
        start = b"GET / HTTP/1.1\r\nHost: h\r\n"

        def head(size):
            return start + b"X: " + b"a" * (size - len(start) - 7) + b"\r\n\r\n"

        def fields(count):
            return request("GET", "/", [("X-%d" % n, "y") for n in range(count - 1)])

        for fits, too_much, status in (
                (head(1024), head(1025), 431), (head(1024), start + b"X: " + b"a" * 1100, 431),  # which does not end
                (request("GET", "/n/" + "a" * 97), request("GET", "/n/" + "a" * 98), 414),
                (request("GET", "/n/" + "a" * 97), b"GET /" + b"a" * 100, 414), (fields(10), fields(11), 431),
                *((request("GET", "/"), request("POST", route, {"Expect": "100-continue", "Content-Length": size}), 413)
                  for route, size in (("/echo", "1001"), ("/route10", "11")))):
            with self.server.connect() as conn:
                self.assertEqual(conn.send(fits).response().status, 200)
                conn.try_send(too_much)
                response = conn.response()
                self.assertEqual((response.status, response.closes, response.interim), (status, True, []))
                conn.expect_end(reset_ok=True)

    def test_body(self):
        for size, route, want in ((1000, "/echo", 200), (1001, "/echo", 413), (2048, "/route2000", 200),
                                  (2049, "/route2000", 413), (1001, "/ignore", 413)):
            with self.subTest((size, route)):
                body = b"b" * size
                with self.server.connect() as conn:
                    response = conn.ask("POST", route, body=body)
                    self.assertEqual(response.status, want)
                    if want == 200 and route != "/ignore":
                        self.assertEqual(response.body, body)
                if route == "/ignore":
                    continue
                with self.server.connect() as conn:
                    conn.send(request("POST", route, {"Transfer-Encoding": "chunked"}, chunked([body[:7], body[7:]])))
                    response = conn.response()
                    self.assertEqual((response.status, response.closes), (want, want == 413))

    def test_unlimited_body(self):
        with self.connect() as conn:
            self.assertEqual(conn.ask("POST", "/unlimited", body=b"b" * 100000).text, "100000")
            conn.send(request("POST", "/unlimited", {"Transfer-Encoding": "chunked"}, chunked([b"c" * 1000] * 100)))
            self.assertEqual(conn.response().text, "100000")


class DefaultBody(E2E):
    SITE = APP + LISTEN

    def test_eight_mebibytes(self):
        with self.connect() as conn:
            body = b"b" * (8 << 20)
            self.assertEqual(conn.ask("POST", "/echo", body=body).body, body)
            response = conn.send(request("POST", "/echo", {"Content-Length": str((8 << 20) + 1)})).response()
            self.assertEqual((response.status, response.closes), (413, True))

    def test_a_body_in_tiny_chunks(self):
        """A body is kept without its framing: the limit of the body limits the memory that it takes."""
        size = 1 << 20
        with self.connect() as conn:
            conn.send(request("POST", "/held", {"Transfer-Encoding": "chunked"}))
            conn.send(b"1\r\nx\r\n" * size + b"0\r\n\r\n")
            held, length = conn.response().text.split()
        self.assertEqual(int(length), size)
        self.assertLess(int(held), 2 * size)


class Definitions(unittest.TestCase):
    """The limits of what a site defines, at the limit and one past it."""

    def check(self, text):
        with scratch(site_lua='local ls = require "luaserve" local app = ls.app()\n' + text + "\n") as where:
            return run_program(["--check", "site.lua"], cwd=where)

    def test_limits(self):
        groups = 'local groups = {} for i = 1, %d do groups[i] = "239.1.2." .. i end '
        for text, most, says in (
            ('for i = 1, %d do ls.listen("127.0.0.1:0", app) end', 64, "ls.listen: more than 64 listeners"),
            ('for i = 1, %d do ls.tcp("127.0.0.1:0", print) end', 64, "ls.tcp: more than 64 listeners"),
            ('for i = 1, %d do ls.udp("127.0.0.1:0", print) end', 64, "more than 64 UDP sockets"),
            (groups + "ls.udp({ port = 0, multicast = { group = groups } }, print)", 16, "a list of at most 16 addresses"),
            ('ls.listen{ path = ("p"):rep(%d), handler = app }', 111 - len("unix:"), "is too long (at most 111 bytes)"),
        ):
            with self.subTest(text):
                status, out, err = self.check(text % most)
                self.assertEqual((status, out.splitlines()[0]), (0, "site.lua: ok"), err)
                status, out, err = self.check(text % (most + 1))
                self.assertEqual((status, out), (1, ""))
                self.assertRegex(err, "^luaserve: site.lua:2: ")
                self.assertIn(says, err)


class Deadlines(E2E):
    SITE = (
        APP
        + r"""
local short = { host = "127.0.0.1", port = 0, handler = app }
local function listen(with)
  for k, v in pairs(short) do with[k] = v end
  ls.listen(with)
end
listen{ body_grace = 0.3, min_body_rate = 256 }
listen{ idle_timeout = 0.3 }
listen{ send_timeout = 0.4 }
listen{ head_timeout = 2, idle_timeout = 2, body_grace = 2, send_timeout = 2 }
"""
    )
    LISTENERS = 4
    BODY, IDLE, SEND, CROWD = range(4)

    def trickle(self, conn, data, ended):
        """Send one byte at a time until the peer closes or `ended` is set."""
        for n in range(len(data)):
            if ended.wait(0.02) or not conn.try_send(data[n : n + 1]):
                return

    def test_slow_body(self):
        for name, fields in (("length", {"Content-Length": "100000"}), ("chunked", {"Transfer-Encoding": "chunked"})):
            for route in ("/echo", "/told"):
                with self.subTest((name, route)), self.server.connect(self.BODY) as conn:
                    ended = threading.Event()
                    conn.send(request("POST", route, fields) + (b"" if name == "length" else b"100000\r\n"))
                    sender = threading.Thread(target=self.trickle, args=(conn, b"x" * 100000, ended))
                    sender.start()
                    try:
                        response = conn.response()
                        self.assertEqual((response.status, response.closes), (408, True))
                        conn.expect_end(reset_ok=True)
                    finally:
                        ended.set()
                        sender.join()
        self.server.wait_log("body told false")

    def test_idle(self):
        """An idle connection is closed without a 408, which a client could take for the response to its next
        request."""
        with self.server.connect(self.IDLE) as conn:
            self.assertEqual(conn.get("/").text, "root")
            self.assertEqual(conn.get("/").text, "root")
            conn.expect_end()

    def test_stalled_reader(self):
        """The connection of a client that does not read is closed; the handler gets an error."""
        quiet = self.quiet_fds()
        for target in ("/flood", "/flood-string"):
            with self.subTest(target), self.server.connect(self.SEND, rcvbuf=65536) as conn:
                mark = self.server.mark()
                self.assertEqual(conn.get("/").text, "root")
                conn.send(request("GET", target))
                if target == "/flood":
                    self.server.wait_log("flood told", mark)
                self.eventually(lambda: self.server.fds() <= quiet, "the connection is closed")
                try:
                    got = len(conn.rest())
                except ConnectionResetError:
                    got = 0
                self.assertLess(got, 100 * 1024 * 1024)
        self.assertEqual(self.server.logged("flood went through"), [])

    def test_hundreds_of_each(self):
        """Clients that are silent, trickle, or do not read are all closed; other clients are served meanwhile."""
        count = min(repeats(300), (system.raise_descriptor_limit(4000) - 200) // 3)
        before = self.quiet_fds()
        conns, slow, over = [], [], threading.Event()

        def trickle():
            while not over.wait(0.2):
                for conn in list(slow):
                    try:
                        conn.try_send(b"x")
                    except OSError:
                        slow.remove(conn)  # closed

        trickler = threading.Thread(target=trickle)
        trickler.start()
        try:
            for n in range(count):
                conns += [self.server.connect(self.CROWD) for _ in range(2)]
                conns.append(self.server.connect(self.CROWD, rcvbuf=4096))
                slow.append(conns[-2].send(b"GET /" if n % 2 else request("POST", "/echo", {"Content-Length": "100000"})))
                conns[-1].send(request("GET", "/wall"))  # and does not read the response
                if n % 20 == 0:
                    self.assertEqual(self.server.get("/n/%d" % n, index=self.CROWD).text, str(n))
            for n in range(20):
                self.assertEqual(self.server.get("/n/%d" % n, index=self.CROWD).text, str(n))
            self.eventually(lambda: self.server.fds() <= before, "the deadlines close all connections", 3 * WAIT)
        finally:
            over.set()
            trickler.join()
            for conn in conns:
                conn.close()


class Connections(E2E):
    SITE = APP.replace("local app =", "ls.config{ max_connections = 5 }\nlocal app =", 1) + LISTEN

    def test_connections_max(self):
        """At the limit every client is served; one more waits until another closes."""
        conns = [self.connect() for _ in range(5)]
        for conn in conns:
            self.assertEqual(conn.get("/").text, "root")
        extra = [self.connect() for _ in range(3)]
        for conn in extra:
            conn.send(request("GET", "/n/late"))
        self.assertTrue(extra[0].silent(0.3), "served past the limit")
        for conn in conns:
            self.assertEqual(conn.get("/").text, "root")
        for gone in conns[:3]:
            gone.close()
        for conn in extra:  # the order of simultaneous connections is the threads'
            self.assertEqual(conn.response().text, "late")


class ManyConnections(E2E):
    SITE = APP.replace("local app =", "ls.config{ max_connections = 10000000 }\nlocal app =", 1) + LISTEN

    def test_the_most_that_may_be_asked_for(self):
        conns = [self.connect() for _ in range(200)]
        for conn in conns:
            self.assertEqual(conn.get("/").text, "root")


class Pipeline(E2E):
    SITE = APP + 'ls.listen{ host = "127.0.0.1", port = 0, handler = app, max_unread = "16k" }\n'

    def test_read_ahead_is_bounded(self):
        """While one request sleeps, a client that keeps sending requests fills the buffers of its own side, not the
        server's."""
        padding = ("X-Pad", "p" * 4000)
        count = 1500
        with self.connect() as conn:
            idle = json.loads(self.get("/stats").text)
            conn.send(request("GET", "/nap"))
            with beside(lambda: conn.try_send(b"".join(request("GET", "/n/%d" % n, [padding]) for n in range(count)))):
                threading.Event().wait(0.3)
                busy = json.loads(self.get("/stats").text)
                self.assertEqual(conn.response().text, "nap")
                for n in range(count):
                    self.assertEqual(conn.response().text, str(n))
        self.assertLess(busy["bytes_live"] - idle["bytes_live"], 128 * 1024)  # a block or two


class Budgets(E2E):
    SITE = r"""
local ls = require "luaserve"
ls.config{ max_cpu = 0.15, drain_timeout = 3 }
local app = ls.app()
app:get("/", function() return "root" end)
app:get("/users/:id", function()
  while true do end
end)
local d = ls.dict("d")
for n = 1, 1000 do d:add(n, true) end
app:get("/keys", function() while true do d:keys("x") end end)
app:get("/job", function() local job = ls.spawn(function() while true do end end) ls.sleep(0) repeat ls.sleep(0.01) until pcall(job.wait, job, 0) == false return "ended" end)
local function work() local t = os.clock() while os.clock() - t < 0.03 do end end
app:post("/upload", function(req) local n = 0 for _ in req:chunks() do work() n = n + 1 ls.log.info("worked " .. n) end return tostring(n) end)
app:get("/background", function() local job = ls.spawn(function() for _ = 1, 8 do work() ls.sleep(0.001) end return "8" end) return job:wait() end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.tcp("127.0.0.1:0", function(sock) for _ in sock:lines() do work() sock:send("done\n") end end)
"""
    LISTENERS = 2

    def test_cpu_names_the_handler_and_the_route(self):
        mark = self.server.mark()
        self.assertEqual(self.get("/users/7").status, 500)
        line = self.server.wait_log("request [0-9a-f]+ GET /users/7: ", mark)
        self.assertRegex(line, r"GET /users/7: \S*site\.lua:7: the handler of GET /users/:id \(\S*site\.lua:6\) used more processor "
                               r"time than max_cpu allows \(0\.15 s\)$")
        mark = self.server.mark()
        self.assertEqual(self.get("/job").text, "ended")
        self.assertRegex(self.server.wait_log("in a spawned job", mark), r"in a spawned job: \S*site\.lua:\d+: the task used more")
        mark = self.server.mark()
        self.assertEqual(self.get("/keys").status, 500)
        self.assertRegex(self.server.wait_log("GET /keys: ", mark), r"GET /keys: \S*site\.lua:\d+: the handler of GET /keys ")

    def test_cpu_of_tasks_that_wait(self):
        """A connection, an upload and a background loop that compute longer than max_cpu between many waits."""
        with self.connect() as conn:
            conn.send(request("POST", "/upload", {"Transfer-Encoding": "chunked"}))
            for n in range(8):
                conn.send(b"4\r\nwork\r\n")
                self.server.wait_log("worked %d$" % (n + 1))
            conn.send(b"0\r\n\r\n")
            self.assertEqual(conn.response().text, "8")
        self.assertEqual(self.get("/background").text, "8")
        with self.connect(1) as conn:
            for n in range(8):
                conn.send(b"work\n")
                self.assertEqual(conn.take(5), b"done\n")


class Memory(E2E):
    SITE = app_site(r"""
ls.config{ threads = 1, threads_max = 1, max_memory = "24m" } -- one Lua state
local function eat(m)
  local t = {}
  for i = 1, m do t[i] = ("x"):rep(1024):rep(1024 - 1) .. i end
  return tostring(#t)
end
app:get("/eat", function(req) return eat(tonumber(req.query.m)) end)
app:get("/catch", function() return tostring(select(2, pcall(eat, 100))) end)
app:get("/job", function()
  local job = ls.spawn(eat, 100)
  return tostring(select(2, pcall(job.wait, job)))
end)
""")

    def test_a_state_serves_after_it_ran_out_of_memory(self):
        for _ in range(3):
            for target in ("/eat?m=100", "/catch", "/job"):
                self.assertEqual(self.get("/eat?m=8").text, "8", target)
                with self.connect() as conn:
                    response = conn.get(target)
                    self.assertEqual(response.status, 500 if "?" in target else 200)
                    self.assertIn("Internal Server Error" if "?" in target else "not enough memory", response.text)
                    self.assertEqual(conn.get("/eat?m=8").text, "8", target)
