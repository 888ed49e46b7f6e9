"""Stress, the test case of `luaserve stress`: runs of the load generator, against a luaserve site or a server of a few
lines."""
import contextlib
import json
import os
import re
import select
import socket
import threading

from harness import E2E, REPORT, ROOT, WAIT, WINDOWS, run_program, scratch

EXAMPLES = os.path.join(ROOT, "examples", "stress")
SITE = """
local ls = require "luaserve"
local app = ls.app()
local dir = "@DIR@"
app:get("/", function() return "hello\\n" end)
app:get("/hello/:name", function(req) return "hello, " .. req.params.name .. "\\n" end)
app:get("/big", function() return ("0123456789"):rep(1000):rep(20) end)
app:get("/chunks", function(req, res)
  for i = 1, 5 do res:write("part ", i, "\\n") res:flush() end
end)
app:get("/empty", function() return 204 end)
app:get("/close", function(req, res) res:header("Connection", "close") return "bye\\n" end)
app:any("/echo", function(req) return req:buffer() end)
local function login() return 200, "welcome\\n", { ["X-Token"] = "secret" } end
app:get("/login", login)
app:post("/login", login)
app:get("/private", function(req)
  if req.headers["X-Token"] == "secret" then return "yours\\n" end
  return 401, "no\\n"
end)
app:get("/headers", function(req) return req.headers["X-A"] .. " " .. req.method .. " " .. req.host end)
app:get("/seen/:what", function(req) ls.log.info("seen ", req.params.what, " ", req.headers["X-Thread"]) return 204 end)
app:ws("/echo", { message = function(ws, data, kind) ws:send(data, kind) end })
app:ws("/news", { open = function(ws) ws:subscribe("news") end })
app:ws("/publish", { message = function(ws, data) ls.publish("news", data) end })
app:post("/publish", function(req) ls.publish("news", req:body()) return 204 end)
app:get("/events", function(req, res)
  local sse = res:sse()
  sse:subscribe("news")
  sse:wait()
end)
ls.listen(0, app)
ls.tcp(0, function(sock) for data in sock:chunks() do sock:send(data) end end)
ls.udp({ port = 0, max_datagram = 65507 }, function(data) return data end)
""" + ("" if WINDOWS else
"""
ls.listen { host = "unix:" .. dir .. "/http.sock", handler = app }
ls.tcp("unix:" .. dir .. "/echo.sock", function(sock) for data in sock:chunks() do sock:send(data) end end)
""")


class Ran:
    """The result of one run: status, stdout, stderr, and the JSON report (None without one)."""

    def __init__(self, status, out, err, report=None):
        self.status, self.out, self.err, self.report = status, out, err, report

    def __repr__(self):
        return "status %s\n%s\n%s" % (self.status, self.out, self.err)

    @property
    def totals(self):
        return self.report["totals"]

    @property
    def errors(self):
        return {kind: count for kind, count in self.report["errors"].items() if count}

    @property
    def checks(self):
        return {check["name"]: (check["passed"], check["failed"]) for check in self.report["checks"]}


def stress(*args, files=None, timeout=None):
    """Run `luaserve stress -q --json` to its end, in a temporary directory with `files`."""
    with scratch(**(files or {})) as where:
        status, out, err = run_program(["stress", "-q", "--json", "report.json", *args], timeout or 3 * WAIT, cwd=where)
        text = ""
        if os.path.exists(os.path.join(where, "report.json")):
            with open(os.path.join(where, "report.json")) as file:
                text = file.read()
    if re.search(REPORT, err):
        raise AssertionError("sanitizer reports:\n" + err)
    return Ran(status, out, err, json.loads(text) if text.strip() else None)


class Small:
    """A server of a few lines: handle(conn, number) for each connection, on a thread of its own."""

    def __init__(self, handle):
        self.handle = handle
        self.sock = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.sock.getsockname()[1]
        self.url = "http://127.0.0.1:%d/" % self.port
        self.conns = []
        self.ended = False
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self):
        number = 0
        while not self.ended:
            if not select.select([self.sock], [], [], 0.1)[0]:
                continue
            conn, _ = self.sock.accept()
            conn.settimeout(WAIT)
            number += 1
            thread = threading.Thread(target=self._serve, args=(conn, number))
            self.threads.append(thread)
            thread.start()

    def _serve(self, conn, number):
        with conn:
            with contextlib.suppress(OSError):  # the client closed: it does so at the end of its run
                self.handle(conn, number)

    def close(self):
        self.ended = True
        for thread in self.threads:
            thread.join()
        self.sock.close()


def head_of(conn):
    """Receive a request's head; None at the end."""
    text = b""
    while b"\r\n\r\n" not in text:
        got = conn.recv(65536)
        if not got:
            return None
        text += got
    return text


FIRST = 2  # the number of the first connection with requests: an earlier one finds out whether the target listens
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"


class Stress(E2E):
    SITE = SITE
    LISTENERS = 6 if WINDOWS else 8

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        log = cls.server.log()
        cls.url = "http://127.0.0.1:%s" % re.search(r"http://127\.0\.0\.1:(\d+)", log)[1]
        cls.tcp = "tcp://127.0.0.1:%s" % re.search(r"tcp://127\.0\.0\.1:(\d+)", log)[1]
        cls.udp = "udp://127.0.0.1:%s" % re.search(r"udp://127\.0\.0\.1:(\d+)", log)[1]

    def small(self, handle):
        """A server of a few lines for this test."""
        server = Small(handle)
        self.addCleanup(server.close)
        return server

    def good(self, ran, requests=None):
        """The run succeeded, with this many requests."""
        self.assertEqual(ran.status, 0, ran)
        self.assertEqual(ran.errors, {}, ran)
        if requests is not None:
            self.assertEqual(ran.totals["requests"], requests, ran)
        return ran

    def all_due(self, ran, count):
        """Each of the `count` requests due was answered or is reported as unsent; on a machine that stalls some are
        unsent."""
        if ran.status == 1:
            self.assertGreaterEqual(ran.totals["behind_s"], 0.1, ran)
            self.assertEqual(ran.report["failure"], ran.err[len("luaserve stress: "):-1], ran)
        else:
            self.good(ran)
        self.assertEqual(ran.errors, {}, ran)
        self.assertEqual(ran.totals["requests"] + ran.totals["unsent"], count, ran)
        return ran

    def fails(self, ran, *texts, status=1):
        """The run did not start, and the program said why: in one line, or in one line above the grammar."""
        self.assertEqual(ran.status, status, ran)
        for text in texts:
            self.assertIn(text, ran.err, ran)
        self.assertTrue(ran.err.startswith("luaserve stress: "), ran)
        self.assertNotIn("requests in", ran.out)
