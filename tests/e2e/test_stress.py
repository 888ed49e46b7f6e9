"""luaserve stress: against our own server, and against small ones that freeze, talk nonsense or hang up."""
import json
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time
import unittest
import zlib

from luaserve_e2e import (E2E, LUASERVE, REPORT, ROOT, SANITIZER, WAIT, main, not_on_windows, repeats, run_program,
                          scratch)

EXAMPLES = os.path.join(ROOT, "examples", "stress")
SITE = """
local ls = require "luaserve"
local app = ls.app()
local dir = "@DIR@"
app:get("/", function() return "hello\\n" end)
app:get("/hello/:name", function(req) return "hello, " .. req.params.name .. "\\n" end)
app:get("/big", function() return ("0123456789"):rep(20000) end)
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
ls.listen(0, app)
ls.tcp(0, function(sock) for data in sock:chunks() do sock:send(data) end end)
ls.udp({ port = 0, max_datagram = 65507 }, function(data) return data end)
ls.listen { host = "unix:" .. dir .. "/http.sock", app = app }
ls.tcp("unix:" .. dir .. "/echo.sock", function(sock) for data in sock:chunks() do sock:send(data) end end)
"""


class Ran:
    """One run: status, stdout, stderr, and the JSON report where there is one."""

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
    """Run to the end, quietly, with a JSON report. `files` are written to the directory it runs in."""
    with scratch(**(files or {})) as where:
        status, out, err = run_program(["stress", "-q", "--json", "report.json", *args], timeout or 3 * WAIT, cwd=where)
        text = ""
        if os.path.exists(os.path.join(where, "report.json")):
            with open(os.path.join(where, "report.json")) as file:
                text = file.read()
    if re.search(REPORT, err):
        raise AssertionError("a sanitizer reports:\n" + err)
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
            try:
                self.handle(conn, number)
            except OSError:
                pass  # the client has gone: so it does when its run is over

    def close(self):
        self.ended = True
        for thread in self.threads:
            thread.join()
        self.sock.close()


def head_of(conn):
    text = b""
    while b"\r\n\r\n" not in text:
        got = conn.recv(65536)
        if not got:
            return None
        text += got
    return text


FIRST = 2  # the number of the first connection that asks: before the run one finds out whether anybody listens
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n"


class Stress(E2E):
    SITE = SITE
    LISTENERS = 8

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        log = cls.server.log()
        cls.url = "http://127.0.0.1:%s" % re.search(r"http://127\.0\.0\.1:(\d+)", log)[1]
        cls.tcp = "tcp://127.0.0.1:%s" % re.search(r"tcp://127\.0\.0\.1:(\d+)", log)[1]
        cls.udp = "udp://127.0.0.1:%s" % re.search(r"udp://127\.0\.0\.1:(\d+)", log)[1]

    def small(self, handle):
        server = Small(handle)
        self.addCleanup(server.close)
        return server

    def good(self, ran, requests=None):
        self.assertEqual(ran.status, 0, ran)
        self.assertEqual(ran.errors, {}, ran)
        if requests is not None:
            self.assertEqual(ran.totals["requests"], requests, ran)
        return ran

    def fails(self, ran, *texts, status=1):
        """It could not be made, and says so in one line (or with the grammar below it)."""
        self.assertEqual(ran.status, status, ran)
        for text in texts:
            self.assertIn(text, ran.err)
        self.assertTrue(ran.err.startswith("luaserve stress: "), ran)
        self.assertNotIn("requests in", ran.out)


class Loads(Stress):
    def all_due(self, ran, count):
        """Every request that was due was answered, or is told of; on a machine that stands still some cannot leave."""
        if ran.status == 1:
            self.assertGreaterEqual(ran.totals["behind_s"], 0.1, ran)
            self.assertEqual(ran.report["failure"], ran.err[len("luaserve stress: "):-1], ran)
        else:
            self.good(ran)
        self.assertEqual(ran.errors, {}, ran)
        self.assertEqual(ran.totals["requests"] + ran.totals["unsent"], count, ran)
        return ran

    def test_a_plain_url(self):
        ran = self.good(stress("-c", "8", "-t", "2", "-n", "501", self.url + "/"), 501)
        self.assertEqual(ran.report["status"], {"200": 501})
        self.assertRegex(ran.out, r"(?m)^  2 threads and 8 connections$")
        self.assertRegex(ran.out, r"(?m)^  501 requests in .*, .* read$")
        self.assertRegex(ran.out, r"(?m)^Requests/sec: +[0-9.]+$")
        self.assertEqual(ran.totals["connects"], 8)

    def test_it_takes_as_long_as_asked(self):
        ran = self.good(stress("-d", "300ms", self.url + "/"))
        self.assertGreater(ran.totals["requests"], 0)
        self.assertAlmostEqual(ran.totals["duration_s"], 0.3, places=2)

    def test_every_kind_of_body(self):
        for path in "/big", "/chunks", "/empty", "/hello/x":
            with self.subTest(path):
                self.good(stress("-n", "60", "-c", "3", "--pipeline", "4", self.url + path), 60)

    def test_head_has_no_body(self):
        self.good(stress("-n", "20", "--method", "HEAD", self.url + "/big"), 20)

    def test_a_body_is_sent(self):
        body = "x" * 200000
        ran = self.good(stress("-n", "20", "--body", "@body", "--expect-body", "body", self.url + "/echo",
                               files={"body": body}), 20)
        self.assertEqual(ran.checks, {"body": (20, 0)})

    def test_headers_and_method(self):
        text = b"b GET other.example"
        ran = self.good(stress("-n", "4", "-H", "X-A: b", "-H", "Host: other.example", "--expect-crc32",
                               "%08x" % zlib.crc32(text), "--expect-length", str(len(text)), "--expect-status", "200",
                               self.url + "/headers"), 4)
        self.assertEqual(ran.checks, {"status": (4, 0), "length": (4, 0), "crc32": (4, 0)})

    def test_expectations_that_are_not_met(self):
        ran = stress("-n", "4", "--expect-status", "404", "--expect-length", "5", "--expect-crc32", "00000000",
                     "--expect-body", "body", "--threshold", "checks == 0", self.url + "/", files={"body": "hellO\n"})
        self.assertEqual(ran.checks, {"status": (0, 4), "length": (0, 4), "crc32": (0, 4), "body": (0, 4)})
        self.assertEqual(ran.status, 99, ran)

    def test_a_connection_for_each_request(self):
        ran = self.good(stress("-n", "30", "-c", "3", "-t", "1", "--no-keepalive", self.url + "/"), 30)
        self.assertGreaterEqual(ran.totals["connects"], 30)

    def test_a_server_that_closes_after_each_answer(self):
        for pipeline in "1", "4":
            with self.subTest(pipeline):
                ran = self.good(stress("-n", "30", "-c", "3", "--pipeline", pipeline, self.url + "/close"), 30)
                self.assertGreaterEqual(ran.totals["connects"], 30)

    def test_pipelining_keeps_count(self):
        self.good(stress("-n", "1003", "-c", "7", "--pipeline", "16", self.url + "/"), 1003)

    def test_more_connections_than_requests(self):
        self.good(stress("-n", "3", "-c", "20", self.url + "/"), 3)

    def test_unix_sockets(self):
        self.good(stress("-n", "50", "http+unix:%s/http.sock" % self.server.dir), 50)
        self.good(stress("-n", "50", "--pipeline", "4", "unix:%s/echo.sock" % self.server.dir), 50)

    def test_a_name(self):
        self.good(stress("-n", "5", "http://localhost:%s/" % self.url.rsplit(":", 1)[1]), 5)

    def test_an_open_loop_keeps_its_rate(self):
        ran = self.all_due(stress("-R", "500", "-d", "1s", "-c", "20", self.url + "/"), 500)
        self.assertEqual(ran.totals["asked_per_s"], 500)
        self.assertEqual(ran.report["latency_us"]["corrected"]["count"], 500)
        self.assertEqual(ran.report["engine_lag_us"]["count"], 500)

    def test_an_open_loop_with_a_number(self):
        self.all_due(stress("-R", "1000", "-n", "101", "-t", "2", self.url + "/"), 101)
        self.all_due(stress("-R", "1000000", "-n", "101", "-t", "2", self.url + "/"), 101)  # all are due at once

    def test_an_open_loop_with_pipelines(self):
        self.all_due(stress("-R", "500", "-d", "500ms", "-c", "2", "--pipeline", "8", self.url + "/chunks"), 250)

    def test_a_pipeline_is_filled_by_what_is_due(self):
        """A server that answers ten when it has ten: when ten answers come together, as many that wait leave."""
        def serve(conn, _):
            data = b""
            while True:
                while data.count(b"\r\n\r\n") < 10:
                    more = conn.recv(65536)
                    if not more:
                        return
                    data += more
                data = data.split(b"\r\n\r\n", 10)[10]
                conn.sendall(OK * 10)

        ran = stress("-R", "100000", "-n", "200", "-c", "1", "--pipeline", "10", self.small(serve).url)
        self.assertEqual((ran.totals["requests"], ran.errors), (200, {}), ran)

    def test_a_script_of_several_requests_keeps_the_rate(self):
        script = "local r function init() r = wrk.format():rep(4) end function request() return r end"
        self.all_due(stress("-R", "400", "-d", "500ms", "-c", "20", "-t", "1", "-s", "own.lua", self.url + "/",
                            files={"own_lua": script}), 200)

    def test_stages_of_rates(self):
        self.all_due(stress("--stages", "500ms:400,500ms:0", self.url + "/"), 200)

    def test_stages_of_connections(self):
        ran = self.good(stress("--stages", "300ms:12c,300ms:2c", "-t", "2", self.url + "/"))
        most = max(point["connections"] for point in ran.report["series"])
        self.assertLessEqual(most, 12)
        self.assertGreaterEqual(ran.totals["connects"], 12)

    def slow(self):
        def serve(conn, _):
            while head_of(conn):
                time.sleep(0.02)
                conn.sendall(OK)

        return self.small(serve).url

    def falls_short(self, ran, of, text, status=1):
        self.assertEqual(ran.status, status, ran)
        self.assertEqual((ran.report["short_of"], ran.report["exit_status"]), (of, status), ran)
        self.assertIn(text, ran.report["failure"])
        self.assertEqual(ran.err, "luaserve stress: %s\n" % ran.report["failure"])
        self.assertIn("\nFailed: %s\n" % ran.report["failure"], ran.out)

    def test_a_rate_that_the_server_cannot_take(self):
        ran = stress("-R", "5000", "-d", "2s", "-c", "2", self.slow())
        self.falls_short(ran, "connections", "no connection was free")
        self.assertRegex(ran.err, r"asked for 5000\.0 requests/s, reached \d+\.\d: \d+ of 10000 were due and never sent, ")
        self.assertGreater(ran.totals["unsent"], 8000)
        # What was due and never sent is as old as it is: half of them waited for half of the run and longer.
        self.assertGreater(ran.report["latency_us"]["corrected"]["percentiles"]["p50"], 600e3)

    def test_a_number_that_cannot_be_sent_in_time(self):
        ran = stress("-R", "5000", "-n", "200", "-c", "2", self.slow())
        self.assertEqual(ran.totals["requests"], 200)
        self.falls_short(ran, "connections", "the last one was sent ")
        self.assertGreater(ran.totals["behind_s"], 1)

    def test_a_threshold_missed_by_a_server_that_is_too_slow(self):
        ran = stress("-R", "5000", "-d", "1s", "-c", "2", "--threshold", "p99 < 1ms", self.slow())
        self.falls_short(ran, "connections", "no connection was free", 99)

    @not_on_windows("there a process cannot be stopped by a signal")
    def test_an_engine_that_stands_still(self):
        """It is stopped from its first request to behind its end; all that was due meanwhile is its own fault."""
        begun = threading.Event()

        def serve(conn, _):
            while head_of(conn):
                begun.set()
                conn.sendall(OK)

        server = self.small(serve)
        for threshold, first in ("p99 < 1us", True), ("errors == 0", False):
            with self.subTest(threshold), scratch() as where:
                begun.clear()
                process = subprocess.Popen(
                    [LUASERVE, "stress", "-q", "--json", "report.json", "-R", "100", "-d", "2s", "-c", "2", "-t", "1",
                     "--threshold", threshold, server.url],
                    cwd=where, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.assertTrue(begun.wait(WAIT))
                process.send_signal(signal.SIGSTOP)
                time.sleep(2.2)  # longer than the run
                process.send_signal(signal.SIGCONT)
                out, err = process.communicate(timeout=WAIT)
                with open(os.path.join(where, "report.json")) as file:
                    ran = Ran(process.returncode, out, err, json.load(file))
                self.falls_short(ran, "time", "the load engine itself was late, by up to ")
                self.assertEqual(ran.report["thresholds"][0]["met"], not first)
                self.assertEqual(ran.totals["requests"] + ran.totals["unsent"], 200)

    def test_interrupted(self):
        with scratch() as where:
            process = subprocess.Popen([LUASERVE, "stress", "-d", "1h", "--json", "report.json", self.url + "/"],
                                       cwd=where, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            line = process.stderr.readline()  # a line each second: it runs
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=2 * WAIT)
            self.assertEqual(process.returncode, 0, out + err)
            self.assertIn("requests/s", line)
            self.assertIn("requests in", out)
            with open(os.path.join(where, "report.json")) as file:
                self.assertTrue(json.load(file)["interrupted"])

    def test_interrupted_twice(self):
        """A hook that never returns cannot be waited for."""
        script = "function response()\n io.stderr:write('in\\n')\n while true do end end"
        with scratch(own_lua=script) as where:
            process = subprocess.Popen([LUASERVE, "stress", "-q", "-t", "1", "-c", "1", "-s", "own.lua", self.url + "/"],
                                       cwd=where, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertEqual(process.stderr.readline(), "in\n")
            process.send_signal(signal.SIGINT)
            while process.poll() is None:  # the first may still be on its way when the second comes: they are one then
                process.send_signal(signal.SIGINT)
                time.sleep(0.01)
            process.communicate(timeout=WAIT)
            self.assertEqual(process.returncode, 1)


class Echoes(Stress):
    def test_messages_on_streams_and_datagrams(self):
        self.good(stress("-n", "300", "-c", "5", self.tcp), 300)
        self.good(stress("-n", "300", "-c", "5", "--pipeline", "20", "--message", "x" * 5000, self.tcp), 300)
        self.good(stress("-n", "100", "-c", "2", "--message", "x" * 20000, self.udp), 100)

    def test_s9(self):
        """As many threads as connections, each with its own numbered messages in turn."""
        ran = self.good(stress("-t", "8", "--sends", str(repeats(500)), "--message", "thirty bytes of text, as it is",
                               self.tcp), 8 * repeats(500))
        self.assertIn("8 threads and 8 connections", ran.out)
        self.assertEqual(ran.totals["connects"], 8)
        self.assertEqual(ran.totals["bytes_in"], ran.totals["bytes_out"])

    def test_what_s9_sends(self):
        seen = []

        def echo(conn, _):
            while True:
                data = conn.recv(65536)
                if not data:
                    return
                seen.append(data.decode())
                conn.sendall(data)

        server = self.small(echo)
        url = "tcp://127.0.0.1:%d" % server.port
        ran = self.good(stress("-t", "2", "--sends", "3", "--message", "hi", "--show", url), 6)
        expected = sorted("%d. Thread %d - hi" % (i, t) for i in (1, 2, 3) for t in (1, 2))
        self.assertEqual(sorted(seen), expected)
        self.assertEqual(sorted(re.findall(r"(?m)^\d\. Thread .*", ran.out)), expected)

    def test_a_wrong_echo(self):
        def wrong(conn, number):
            while True:
                data = conn.recv(65536)
                if not data:
                    return
                conn.sendall(data if number > FIRST else data.replace(b"l", b"L"))

        ran = stress("-c", "1", "-n", "20", "tcp://127.0.0.1:%d" % self.small(wrong).port)
        self.assertEqual(ran.status, 0, ran)
        self.assertEqual((ran.totals["requests"], ran.errors["answer"]), (19, 1))
        self.assertIn('an echo that is not what was sent: "heLLo"', ran.err)

    def test_an_echo_too_many(self):
        def twice(conn, _):
            while True:
                data = conn.recv(65536)
                if not data:
                    return
                conn.sendall(data * 2)

        server = self.small(twice)
        ran = stress("-c", "1", "-n", "5", "tcp://127.0.0.1:%d" % server.port)
        self.assertEqual(ran.totals["requests"], 5, ran)
        self.assertGreater(ran.errors["answer"], 0)
        self.assertIn("not what was sent", ran.err)

    def test_a_lost_datagram_times_out(self):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(0.1)
        ended = threading.Event()

        def every_other():
            count = 0
            while not ended.is_set():
                try:
                    data, peer = sock.recvfrom(65536)
                except socket.timeout:
                    continue
                count += 1
                if count % 2:
                    sock.sendto(data, peer)

        thread = threading.Thread(target=every_other)
        thread.start()
        try:
            ran = stress("-c", "1", "-n", "6", "--timeout", "100ms", "udp://127.0.0.1:%d" % sock.getsockname()[1])
        finally:
            ended.set()
            thread.join()
            sock.close()
        self.assertEqual((ran.totals["requests"], ran.errors), (3, {"total": 3, "timeout": 3}))

    def test_nobody_listens_on_udp(self):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        sock.close()
        self.fails(stress("-n", "3", "--timeout", "200ms", "udp://127.0.0.1:%d" % port))


class Honest(Stress):
    FREEZE_S = 0.5

    def frozen(self, *args):
        """Ask a server that freezes once -> the run, and how long it was frozen, in microseconds."""
        frozen_us = []
        sock = socket.create_server(("127.0.0.1", 0), backlog=128)
        ended = threading.Event()

        def serve():
            conns, asked = [], 0
            while not ended.is_set():
                for ready in select.select([sock, *conns], [], [], 0.05)[0]:
                    if ready is sock:
                        conns.append(sock.accept()[0])
                        continue
                    try:
                        data = ready.recv(65536)
                    except OSError:
                        data = b""
                    if not data:
                        conns.remove(ready)
                        ready.close()
                        continue
                    asked += 1
                    if asked == 200:
                        before = time.monotonic()
                        time.sleep(self.FREEZE_S)
                        frozen_us.append((time.monotonic() - before) * 1e6)
                    ready.sendall(OK)
            for conn in conns:
                conn.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            ran = stress("-c", "50", "-t", "1", *args, "http://127.0.0.1:%d/" % sock.getsockname()[1])
        finally:
            ended.set()
            thread.join()
            sock.close()
        self.assertEqual(len(frozen_us), 1)
        return ran, frozen_us[0]

    def test_a_freeze_is_seen_by_all_that_were_due(self):
        """200/s for 3 s: of 600 requests the 100 that are due in the freeze wait for its rest, from 0.5 s down to 0.

        So 10 % wait for 0.2 s or more, and the worst of a thousand is the whole freeze. Fifty connections are stuck in it,
        and see it as 50 slow answers: 8 %."""
        ran, frozen_us = self.frozen("-R", "200", "-d", "3s")
        self.assertEqual(ran.errors, {}, ran)
        self.assertEqual(ran.totals["requests"] + ran.totals["unsent"], 600, ran)
        corrected = ran.report["latency_us"]["corrected"]["percentiles"]
        uncorrected = ran.report["latency_us"]["uncorrected"]["percentiles"]
        self.assertGreater(corrected["p99.9"], 0.9 * frozen_us)
        self.assertGreater(corrected["p90"], 0.9 * 0.2e6)
        self.assertLess(uncorrected["p90"], corrected["p90"])

    def test_a_closed_loop_hides_it(self):
        ran, frozen_us = self.frozen("-n", "6000")
        self.good(ran, 6000)
        self.assertIsNone(ran.report["latency_us"]["corrected"])
        uncorrected = ran.report["latency_us"]["uncorrected"]
        self.assertGreater(uncorrected["max"], 0.9 * frozen_us)
        self.assertLess(uncorrected["percentiles"]["p95"], 0.9 * frozen_us)


class Scripts(Stress):
    def wrk(self, name, *args, **kw):
        return stress("-s", os.path.join(EXAMPLES, "wrk", name), "-t", "2", "-c", "4", self.url + "/", *args, **kw)

    def test_every_example_for_wrk_is_tested(self):
        names = {name[:-4] for name in os.listdir(os.path.join(EXAMPLES, "wrk"))}
        tested = {name[len("test_wrk_"):] for name in dir(self) if name.startswith("test_wrk_")}
        self.assertEqual(names, tested)
        self.assertGreaterEqual(len(names), 10)

    def test_wrk_counter(self):
        seen, lock = [], threading.Lock()

        def serve(conn, _):
            while True:
                head = head_of(conn)
                if not head:
                    return
                with lock:
                    seen.append(head.decode())
                conn.sendall(OK)

        script = os.path.join(EXAMPLES, "wrk", "counter.lua")
        self.good(stress("-s", script, "-t", "1", "-c", "1", "-n", "3", self.small(serve).url), 3)
        for i, head in enumerate(seen, 2):  # the first was made to look at it
            self.assertTrue(head.startswith("GET /hello/%d HTTP/1.1\r\n" % i), head)
            self.assertIn("\r\nX-Counter: %d\r\n" % i, head)
            self.assertEqual(head.count("\r\nHost: 127.0.0.1:"), 1, head)

    def test_wrk_post(self):
        ran = self.good(self.wrk("post.lua", "-n", "40", "--expect-body", "body", files={"body": "name=ada&year=1843"}))
        self.assertEqual(ran.checks, {"body": (40, 0)})

    def test_wrk_pipeline(self):
        ran = self.good(self.wrk("pipeline.lua", "-n", "30"))
        self.assertGreaterEqual(ran.totals["requests"], 30)
        self.assertEqual(ran.totals["requests"] % 3, 0)

    def test_wrk_setup(self):
        ran = self.good(self.wrk("setup.lua", "-n", "100"), 100)
        self.assertIn("thread 1 created\nthread 2 created\n", ran.out)
        counts = [int(n) for n in re.findall(r"thread \d made \d+ requests and got (\d+) responses", ran.out)]
        self.assertEqual((len(counts), sum(counts)), (2, 100), ran)

    def test_wrk_addr(self):
        ran = self.good(self.wrk("addr.lua", "-n", "10"), 10)
        self.assertEqual(ran.out.count("asking 127.0.0.1:%s\n" % self.url.rsplit(":", 1)[1]), 2)

    def test_an_address_of_another_family(self):
        script = """
function setup(thread)
  for _, addr in ipairs(wrk.lookup("::1", wrk.port)) do
    assert(wrk.connect(addr))
    thread.addr = addr
  end
end
function init() print("asking " .. tostring(wrk.thread.addr)) end
"""
        port = next(address[1] for address in self.server.addresses if address[0] == "::1")
        ran = self.good(stress("-n", "20", "-t", "1", "-s", "own.lua", "http://127.0.0.1:%d/" % port,
                               files={"own_lua": script}), 20)
        self.assertIn("asking [::1]:%d\n" % port, ran.out)

    def test_hooks_of_the_table_wrk(self):
        """The benchmark's script replaces wrk.init and wrk.request, and so makes several requests one."""
        ran = self.good(stress("-n", "160", "-c", "2", "-s", os.path.join(ROOT, "tests", "bench", "wrk.lua"), self.url + "/",
                               "--", "16"), 160)
        self.assertRegex(ran.out, r'SUMMARY {"requests": 160, "duration_us": \d+, "connect": 0,')

    def test_answers_to_head_have_no_body(self):
        for text in ("wrk.method = 'HEAD'",
                     "function request() return wrk.format('HEAD') end",
                     "local r = '' function init() for _, m in ipairs { 'GET', 'HEAD', 'GET' } do r = r .. wrk.format(m) end end "
                     "function request() return r end",
                     "return { method = 'HEAD', response = function() end }",
                     "local n = 0 return { request = function() n = n + 1 return n % 2 == 0 and 'GET' or 'HEAD', '/big' end }"):
            with self.subTest(text):
                kind = ["own.lua"] if text.endswith("}") else ["-s", "own.lua"]
                ran = self.good(stress("-n", "30", "-t", "1", "-c", "1", *kind, self.url + "/big", files={"own_lua": text}))
                self.assertEqual(ran.totals["requests"], 30)

    def test_wrk_auth(self):
        ran = self.good(self.wrk("auth.lua", "-n", "60"), 60)
        self.assertEqual(ran.report["status"], {"200": 60})

    def test_wrk_delay(self):
        ran = self.good(self.wrk("delay.lua", "-d", "500ms"))
        self.assertLessEqual(ran.totals["requests"], 4 * 50)  # each waits for 10 ms at least
        self.assertGreater(ran.totals["requests"], 0)

    def test_wrk_report(self):
        ran = self.good(self.wrk("report.lua", "-n", "100"), 100)
        for line in (r"requests,100", r"seconds,\d+\.\d{3}", r"errors timeout,0", r"p99\.999,\d+", r"mean,\d+\.\d",
                     r"values,[1-9]\d*", r"first,\d+,[1-9]\d*", r"rate of a thread,\d+"):
            self.assertRegex(ran.out, "(?m)^%s$" % line)

    def test_wrk_stop(self):
        ran = self.good(self.wrk("stop.lua", "-d", "1h"))
        self.assertGreaterEqual(ran.totals["requests"], 200)

    def test_wrk_args(self):
        since = self.server.mark()
        ran = self.good(self.wrk("args.lua", "-n", "8", "--", "/seen/one", "/seen/two"), 8)
        self.server.wait_log(r"seen\s+one", since)
        self.server.wait_log(r"seen\s+two", since)
        self.assertEqual(ran.report["status"], {"204": 8})

    def test_wrk_mixed(self):
        self.good(self.wrk("mixed.lua", "-n", "300"), 300)

    def test_every_example_of_our_own_is_tested(self):
        names = {name for name in os.listdir(EXAMPLES) if name.endswith(".lua")}
        with open(__file__) as file:
            text = file.read()
        self.assertEqual([name for name in sorted(names) if '"%s"' % name not in text], [])

    def test_our_own(self):
        ran = self.good(stress("-d", "500ms", os.path.join(EXAMPLES, "hello.lua"), self.url))
        failed = {name: count for name, (_, count) in ran.checks.items()}
        self.assertEqual(failed, {"status": 0, "type": 0, "own name": 0})
        self.assertEqual(ran.checks["status"][0], ran.totals["requests"])
        ran = stress("--stages", "300ms:100,100ms:0", os.path.join(EXAMPLES, "ramp.lua"), self.url + "/")
        self.assertEqual((ran.errors, ran.totals["requests"] + ran.totals["unsent"]), ({}, 20), ran)
        ran = self.good(stress(os.path.join(EXAMPLES, "session.lua"), self.url), 400)
        self.assertEqual(ran.checks, {"status": (400, 0)})
        self.assertRegex(ran.out, r"(?m)^400 requests, median [0-9.]+ ms$")

    def test_scenarios(self):
        self.good(stress("-n", "200", "-d", "1m", os.path.join(EXAMPLES, "lines.lua"), self.tcp), 200)
        ran = self.good(stress("-n", "100", os.path.join(EXAMPLES, "datagrams.lua"), self.udp), 100)
        self.assertEqual(ran.checks, {"own datagram": (300, 0)})

    def test_all_of_a_sock(self):
        script = """
return { connections = 2, requests = 40,
  scenario = function(vu, sock)
    sock:send("one\\r\\n", "two|th", 3, "\\n")
    assert(sock:receive("*l") == "one")
    assert(sock:receiveuntil("|") == "two")
    assert(sock:receive(2) == "th" and sock:receive(0) == "")
    vu:sleep(0.001)
    assert(sock:receiveany(100) == "3\\n")
    if vu.iteration % 2 == 0 then
      sock:close()
      local data, err, code = sock:receive(1)
      assert(data == nil and err == "closed" and code == "ECLOSED")
    end
  end }"""
        ran = self.good(stress("own.lua", self.tcp, files={"own_lua": script}), 40)
        self.assertGreaterEqual(ran.totals["connects"], 20)

    def test_the_end_in_a_scenario(self):
        def hang_up(conn, _):
            conn.recv(100)
            conn.sendall(b"half a line")

        script = """
return { connections = 2, requests = 10,
  scenario = function(vu, sock)
    sock:send("x")
    local line, err, code, rest = sock:receive("*l")
    vu:check(line == nil and err == "closed" and code == "ECLOSED" and rest == "half a line", "the end")
    vu:check(sock:send("y") == nil, "no more")
  end }"""
        server = self.small(hang_up)
        ran = self.good(stress("own.lua", "tcp://127.0.0.1:%d" % server.port, files={"own_lua": script}), 10)
        self.assertEqual(ran.checks, {"the end": (10, 0), "no more": (10, 0)})

    def test_a_scenario_that_never_waits(self):
        self.good(stress("own.lua", self.tcp, files={
            "own_lua": "return { connections = 1, requests = 5000, scenario = function() end }"}), 5000)

    def test_a_scenario_that_raises(self):
        script = """
return { connections = 2, requests = 20,
  scenario = function(vu, sock)
    if vu.iteration % 2 == 0 then error("even") end
    sock:send("x")
    sock:receive(1)
  end }"""
        ran = stress("own.lua", self.tcp, files={"own_lua": script})
        self.assertEqual(ran.status, 0, ran)
        self.assertEqual((ran.totals["requests"], ran.errors["script"]), (10, 10))
        self.assertIn("own.lua:4: even", ran.err)

    def test_options_in_the_table(self):
        script = """
return { target = "@", connections = 3, threads = 1, requests = "1k", pipeline = 2, timeout = 2.5,
  thresholds = { "checks == 0" }, headers = { ["X-A"] = "b" }, expect = { status = 200, length = 18 },
  response = function(vu, status) vu:check(status == 200) end }"""
        script = script.replace("@", self.url + "/headers")
        ran = self.good(stress("own.lua", "-H", "Host: other.exampl", files={"own_lua": script}), 1000)
        self.assertEqual((ran.report["config"]["connections"], ran.report["config"]["pipeline"]), (3, 2))
        self.assertEqual(ran.report["config"]["timeout_s"], 2.5)
        self.assertEqual(ran.checks, {"status": (1000, 0), "length": (1000, 0), "check": (1000, 0)})
        ran = self.good(stress("-n", "10", "-c", "2", "own.lua", "-H", "Host: other.exampl", files={"own_lua": script}), 10)
        self.assertEqual(ran.report["config"]["connections"], 2)  # the command line wins

    def test_scripts_that_are_wrong(self):
        rows = (
            ("return { requst = 3 }", 'unknown option "requst"; did you mean "requests"?'),
            ("return 3", "returned no table"),
            ("local x = = 3", "own.lua:1: unexpected symbol"),
            ("error('no')", "own.lua:1: no"),
            ("return { request = 3 }", "request must be a function"),
            ("return { rate = 'fast' }", "rate"),
            ("return { request = function() end, scenario = function() end }", "one or the other"),
            ("return { setup = function() return print end }", "cannot be given to another thread"),
            ("return { request = function() return 'GET' end }", "must return a method and a path"),
            ("return { request = function() return 'GET', '/a b' end }", "has no white space"),
            ("return { request = function() return 'G T', '/' end }", "which is none"),
            ("return { request = function() return 'GET', '/', { a = 'b\\n' } end }", "a header that cannot be one"),
            ("return { request = function()\n local x\n return x.y end }", "own.lua:3: attempt to index a nil value"),
            ("return { response = function()\n error({}) end }", "own.lua"),
        )
        for text, why in rows:
            with self.subTest(text):
                self.fails(stress("-d", "1m", "own.lua", self.url + "/", files={"own_lua": text}), why)

    def test_scripts_for_wrk_that_are_wrong(self):
        rows = (
            ("local x = = 3", "own.lua:1: unexpected symbol"),
            ("function request()\n return nil + 1 end", "own.lua:2: attempt to perform arithmetic on a nil value"),
            ("function request() end", "not the text of a request"),
            ("function request() return 'GET / HTTP/1.1' end", "the middle of a request"),
            ("function response()\n error('bad') end", "own.lua:2: bad"),
            ("function delay()\n error('bad') end", "own.lua:2: bad"),
            ("function setup(thread)\n thread.x = 3 end", "own.lua:2: a thread has only one field to set"),
            ("function init()\n error('bad') end", "own.lua:2: bad"),
        )
        for text, why in rows:
            with self.subTest(text):
                self.fails(stress("-d", "1m", "-s", "own.lua", self.url + "/", files={"own_lua": text}), why)
        ran = stress("-n", "3", "-s", "own.lua", self.url, files={"own_lua": "function done()\n error('bad') end"})
        self.assertEqual(ran.status, 1, ran)
        self.assertIn("own.lua:2: bad", ran.err)
        self.assertIn("3 requests in", ran.out)
        self.assertEqual(stress("-s", "/does/not/exist.lua", self.url).status, 1)

    def test_an_error_in_one_thread_ends_all(self):
        script = """
local count = 0
function setup(thread) count = count + 1 thread:set("mine", count) end
function response() if mine == 1 then error("enough") end end
"""
        self.fails(stress("-t", "2", "-c", "2", "-d", "1h", "-s", "own.lua", self.url, files={"own_lua": script}),
                   "own.lua:4: enough")

    def test_lua_51(self):
        """What scripts for LuaJIT use, and 5.4 has not."""
        script = """
local t = { 3, 4, n = 1 }
assert(unpack(t) == 3 and table.getn(t) == 2 and table.maxn(t) == 2)
assert(loadstring("return 7")() == 7 and math.pow(2, 10) == 1024 and tostring(math.pow(2, 3)) == "8")
assert(string.format("%d", 7 / 2) == "3" and string.format("%d|%s", -1.5, "x") == "-1|x")
assert(not pcall(string.format, "%d", "x"))
assert(math.random(5.5) <= 5 and math.log10(1000) > 2.99 and math.mod(7, 4) == 3)
math.randomseed(os.time() + 0.5)
local function f() return answer end
setfenv(f, { answer = 42 })
assert(f() == 42 and getfenv(f).answer == 42 and answer == nil and getfenv(0) == _G)
local bit = require "bit"
assert(bit.band(0xff, 0x0f) == 15 and bit.bnot(0) == -1 and bit.lshift(1, 31) == -2147483648)
assert(bit.rshift(-1, 28) == 15 and bit.arshift(-16, 2) == -4 and bit.tohex(255, 4) == "00ff" and bit.bxor(1, 3) == 2)
assert(bit.rol(0x12345678, 8) == 0x34567812 and bit.bor(1, 2, 4) == 7)
for word in string.gfind("a b", "%a") do assert(#word == 1) end
local cjson = require "cjson"
wrk.body = cjson.encode({ 1, 2 })
function response(status, headers, body) assert(body == "[1,2]" and headers["Content-Length"] == "5") end
"""
        self.good(stress("-n", "5", "--method", "POST", "-s", "own.lua", self.url + "/echo", files={"own_lua": script}), 5)


class Wrong(Stress):
    def test_the_target(self):
        closed = socket.socket()
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        self.fails(stress("http://127.0.0.1:%d/" % port), "127.0.0.1:%d: connection refused" % port)
        closed.close()
        self.fails(stress("http://no-such-host.invalid/"), "no-such-host.invalid")
        self.fails(stress("https://127.0.0.1/"), "TLS is not built in")
        self.fails(stress("ws://127.0.0.1/"), "WebSocket is not built in")
        self.fails(stress("unix:/does/not/exist"), "unix:/does/not/exist")
        self.fails(stress(self.url + "/#x"), "fragment", status=2)

    def test_options(self):
        """2: a command line that is wrong, as for a site; 1: it is understood, and cannot be done."""
        self.fails(stress("-c", "0", self.url), "-c", "a number from 1", status=2)
        self.fails(stress("--threshold", "p99 <", self.url), "METRIC", status=2)
        self.fails(stress("-t", "4", "-c", "2", self.url), "4 threads need at least as many connections", status=2)
        self.fails(stress("-R", "100", "--sends", "3", self.tcp), "--sends is a closed loop", status=2)
        self.fails(stress("--no-such", self.url), "--no-such", status=2)
        self.fails(stress("--json", "/does/not/exist/x", self.url), "/does/not/exist/x")
        self.fails(stress(), "what is to be put under load", status=2)
        status, out, _ = run_program(["stress", "--help"])
        self.assertEqual(status, 0)
        self.assertIn("usage: luaserve stress [options] URL", out)

    def test_too_many_connections(self):
        self.fails(stress("-c", "1M", self.url), "descriptors", "ulimit -n")

    def test_garbage(self):
        def garbage(conn, _):
            head_of(conn)
            conn.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        self.fails(stress("-n", "5", self.small(garbage).url), "not an HTTP/1.x response", "SSH-2.0")

    def test_tls_on_a_plain_port(self):
        def alert(conn, _):
            head_of(conn)
            conn.sendall(b"\x15\x03\x01\x00\x02\x02\x46")

        self.fails(stress("-n", "5", self.small(alert).url), "speaks TLS")

    def test_one_bad_answer_among_good_ones(self):
        bad = (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
               b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
               b"HTTP/1.1 200 OK\r\nA: " + b"a" * 70000,
               b"HTTP/1.1 101 Switching\r\n\r\n",
               OK + b"more")
        for text in bad:
            def once(conn, number, text=text):
                while head_of(conn):
                    conn.sendall(text if number == FIRST else OK)

            with self.subTest(text[:60]):
                ran = stress("-c", "1", "-n", "10", self.small(once).url)
                self.assertEqual(ran.status, 0, ran)
                self.assertEqual(ran.errors["answer"], 1, ran)
                self.assertIn("the first that went wrong", ran.err)

    def test_every_cut_of_an_answer(self):
        """Answers that come byte by byte, interim ones before them, several in one piece."""
        answers = (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n" + OK,
                   b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nok\n\r\n0\r\nT: r\r\n\r\n")

        def serve(conn, number):
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            count = 0
            while head_of(conn):
                answer = answers[count % 2]
                cut = 1 + (number * 7 + count) % (len(answer) - 1)
                conn.sendall(answer[:cut])
                for i in range(cut, len(answer)):
                    conn.sendall(answer[i:i + 1])
                count += 1

        ran = stress("-c", "4", "-n", "120", "--expect-body", "body", self.small(serve).url, files={"body": "ok\n"})
        self.good(ran, 120)

    def test_a_body_until_the_end(self):
        def serve(conn, _):
            head_of(conn)
            conn.sendall(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")

        ran = self.good(stress("-c", "2", "-n", "10", "--expect-length", "13", self.small(serve).url), 10)
        self.assertEqual(ran.checks, {"length": (10, 0)})

    def test_hanging_up(self):
        def in_the_body(conn, number):
            head_of(conn)
            conn.sendall(OK if number % 2 else b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nhalf")

        ran = stress("-c", "1", "-n", "9", self.small(in_the_body).url)
        self.assertEqual(ran.status, 0, ran)
        self.assertGreaterEqual(ran.errors["read"], 4)
        self.assertEqual(ran.totals["requests"] + ran.errors["read"], 9)
        self.assertIn("hung up in the middle of an answer", ran.err)

    def test_hanging_up_at_once(self):
        self.fails(stress("-c", "2", "-n", "6", self.small(lambda conn, _: head_of(conn)).url), "without an answer")

    def test_nothing_answered_is_reported_in_the_files(self):
        def silent(conn, _):
            head_of(conn)
            head_of(conn)  # until the client goes

        ran = stress("-c", "2", "-n", "4", "--timeout", "200ms", "--csv", "report.csv", "--threshold", "errors == 0",
                     self.small(silent).url)
        self.fails(ran, "no answer came in time")
        self.assertEqual((ran.report["exit_status"], ran.report["failure"]), (1, ran.err[len("luaserve stress: "):-1]))
        self.assertEqual((ran.totals["requests"], ran.errors), (0, {"total": 4, "timeout": 4}))
        self.assertFalse(ran.report["thresholds"][0]["met"])

    def test_a_run_that_is_not_made_leaves_no_file(self):
        closed = socket.socket()
        closed.bind(("127.0.0.1", 0))
        with scratch(old_json="an older report") as where:
            for name in "new.json", "old.json":
                status, _, err = run_program(["stress", "--json", name, "http://127.0.0.1:%d/" % closed.getsockname()[1]],
                                             WAIT, cwd=where)
                self.assertEqual((status, "connection refused" in err), (1, True), err)
            self.assertEqual(os.listdir(where), ["old.json"])
            with open(os.path.join(where, "old.json")) as file:
                self.assertEqual(file.read(), "an older report")
        closed.close()

    def test_never_an_answer(self):
        def silent(conn, _):
            head_of(conn)
            head_of(conn)  # until the client goes

        self.fails(stress("-c", "2", "-n", "4", "--timeout", "200ms", self.small(silent).url), "no answer came in time")

    def test_a_server_that_goes_away(self):
        """The connections that fail count as requests that failed, so the run ends."""
        listener = socket.create_server(("127.0.0.1", 0))
        done = threading.Event()

        def serve():
            listener.accept()[0].close()  # the probe
            conn, _ = listener.accept()
            listener.close()
            with conn:
                head_of(conn)
                conn.sendall(OK)
            done.set()

        thread = threading.Thread(target=serve)
        thread.start()
        ran = stress("-c", "1", "-n", "4", "http://127.0.0.1:%d/" % listener.getsockname()[1])
        thread.join()
        self.assertTrue(done.is_set())
        self.assertEqual(ran.totals["requests"], 1, ran)
        self.assertEqual(ran.errors["total"], 3, ran)

    def test_thresholds(self):
        ran = stress("-n", "10", "--threshold", "p99 < 1us", "--threshold", "errors == 0", self.url + "/")
        self.assertEqual(ran.status, 99, ran)
        self.assertRegex(ran.out, r"MISSED +p99 < 1us")
        self.assertRegex(ran.out, r"met +errors == 0")
        self.assertEqual(stress("-n", "10", "--threshold", "errors < 0.1%", self.url).status, 0)


if __name__ == "__main__":
    main()
