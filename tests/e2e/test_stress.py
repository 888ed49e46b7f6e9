"""luaserve stress: closed and open loops, echoes, rates that the load generator keeps and rates that it cannot
keep."""
import contextlib
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

from harness import (EXIT_STATUS_LOST, HAS_UNIX_SOCKETS, LUASERVE, OTHER_SYSTEM, SLOW, WAIT, WINE, in_parallel,
                     read_text, repeats, scratch, system)
from harness.stress import FIRST, OK, Ran, Stress, head_of, stress


class Loads(Stress):
    def test_a_plain_url(self):
        ran = self.good(stress("-c", "8", "-t", "2", "-n", "501", self.url + "/"), 501)
        self.assertEqual(ran.report["status"], {"200": 501})
        self.assertRegex(ran.out, r"(?m)^  2 threads and 8 connections$")
        self.assertRegex(ran.out, r"(?m)^  501 requests in .*, .* read$")
        self.assertRegex(ran.out, r"(?m)^Requests/sec: +[0-9.]+$")
        self.assertEqual(ran.totals["connects"], 8)

    def test_the_duration(self):
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
        ran = self.good(stress("-n", "20", "--body", "@body", "--expect-body", "body", self.url + "/echo", files={"body": body}), 20)
        self.assertEqual(ran.checks, {"body": (20, 0)})

    def test_headers_and_method(self):
        text = b"b GET other.example"
        ran = self.good(stress("-n", "4", "-H", "X-A: b", "-H", "Host: other.example", "--expect-crc32",
                               "%08x" % zlib.crc32(text), "--expect-length", str(len(text)), "--expect-status", "200",
                               self.url + "/headers"), 4)
        self.assertEqual(ran.checks, {"status": (4, 0), "length": (4, 0), "crc32": (4, 0)})

    def test_a_failed_expectation_is_an_error(self):
        """Each response counts once; it is a complete request as well."""
        for option, value in (("--expect-status", "404"), ("--expect-length", "5"), ("--expect-crc32", "00000000"),
                              ("--expect-body", "body")):
            with self.subTest(option):
                ran = stress("-n", "4", "--expect-status", "404", option, value, self.url + "/", files={"body": "hellO\n"})
                self.assertEqual((ran.status, ran.totals["requests"], ran.errors), (99, 4, {"total": 4, "check": 4}), ran)
                self.assertIn("Errors: check 4 (a complete response that failed an expectation or a check)\n", ran.out)
                self.assertIn("The run has failed: ", ran.out)

    def test_a_connection_for_each_request(self):
        ran = self.good(stress("-n", "30", "-c", "3", "-t", "1", "--no-keepalive", self.url + "/"), 30)
        self.assertGreaterEqual(ran.totals["connects"], 30)

    def test_a_server_that_closes_after_each_response(self):
        for pipeline in "1", "4":
            with self.subTest(pipeline):
                ran = self.good(stress("-n", "30", "-c", "3", "--pipeline", pipeline, self.url + "/close"), 30)
                self.assertGreaterEqual(ran.totals["connects"], 30)

    def test_pipelining_keeps_count(self):
        self.good(stress("-n", "1003", "-c", "7", "--pipeline", "16", self.url + "/"), 1003)

    def test_more_connections_than_requests(self):
        self.good(stress("-n", "3", "-c", "20", self.url + "/"), 3)

    def test_unix_sockets(self):
        if not HAS_UNIX_SOCKETS and not WINE:
            self.skipTest(OTHER_SYSTEM + "Python for Windows has no Unix sockets")
        if WINE:
            return self.fails(stress("-n", "1", "unix:/tmp/echo.sock"), "unix:/tmp/echo.sock", "not supported here")
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
        self.all_due(stress("-R", "1000000", "-n", "101", "-t", "2", self.url + "/"), 101)  # all requests are due at once

    def test_an_open_loop_with_pipelines(self):
        self.all_due(stress("-R", "500", "-d", "500ms", "-c", "2", "--pipeline", "8", self.url + "/chunks"), 250)

    def test_due_requests_fill_the_pipeline(self):
        """A server that answers ten requests together: the load generator then sends ten waiting requests together."""
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
        ran = self.good(stress("--stages", "500ms:12c,{0}ms:12c,300ms:2c".format(500 * SLOW), "-t", "2", self.url + "/"))
        most = max(point["connections"] for point in ran.report["series"])
        self.assertLessEqual(most, 12)
        self.assertGreaterEqual(ran.totals["connects"], 12)

    def slow(self):
        """The URL of a slow server: beside its delay that of the load generator is mostly negligible."""
        def serve(conn, _):
            while head_of(conn):
                time.sleep(0.2)
                conn.sendall(OK)

        return self.small(serve).url

    def falls_short(self, ran, of, text, status=1):
        self.assertEqual(ran.status, status, ran)
        self.assertEqual((ran.report["short_of"], ran.report["exit_status"]), (of, status), ran)
        self.assertIn(text, ran.report["failure"])
        self.assertEqual(ran.err, "luaserve stress: %s\n" % ran.report["failure"])
        self.assertIn("\nFailed: %s\n" % ran.report["failure"], ran.out)

    def falls_short_of_connections(self, ran, text, status=1):
        """Or of time, and the report says so: on a busy machine the load generator is late beside any server."""
        if ran.report["short_of"] == "time":
            self.falls_short(ran, "time", "because the load generator itself was late by up to ")
        else:
            self.falls_short(ran, "connections", text, status)

    def test_the_end_waits_for_outstanding_responses(self):
        """After the end of the run each outstanding request has its time limit."""
        def late(conn, _):
            while head_of(conn):
                time.sleep(1.5)
                conn.sendall(OK)

        args = ("-R", "10", "-d", "500ms", "-c", "20", self.small(late).url)
        ran, out_of_time = in_parallel([lambda: stress(*args), lambda: stress("--timeout", "100ms", *args)])
        self.all_due(ran, 5)
        self.assertAlmostEqual(ran.totals["duration_s"], 0.5, places=2)
        ran = out_of_time
        self.fails(ran, "no complete response within the time limit")
        self.assertEqual(ran.errors, {"total": 5, "timeout": 5}, ran)

    def test_retries_are_not_lost(self):
        """A slow server that closes after its first response: the other pipelined requests wait for a new
        connection."""
        def once(conn, _):
            if head_of(conn):
                time.sleep(0.05)
                conn.sendall(OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n"))

        ran = stress("-R", "400", "-d", "500ms", "-c", "2", "--pipeline", "8", self.small(once).url)
        total = ran.totals["requests"] + ran.totals["unsent"] + ran.report["errors"]["total"]
        self.assertEqual(total, 200, ran)
        self.assertIn(ran.report["short_of"], ["connections", "time"], ran)  # time: on a busy machine

    def test_a_rate_above_the_capacity_of_the_server(self):
        rate = repeats(5000)  # the server takes 10 of them at most
        ran = stress("-R", str(rate), "-d", "2s", "-c", "2", self.slow())
        self.falls_short_of_connections(ran, "no connection was free")
        self.assertRegex(ran.err, r"target rate %d\.0 requests/s, reached \d+\.\d: \d+ of %d due requests were never sent, " % (rate, 2 * rate))
        self.assertGreater(ran.totals["unsent"], 2 * rate * 0.75)
        # Unsent requests count with their age: half of them waited for half of the run or longer.
        self.assertGreater(ran.report["latency_us"]["corrected"]["percentiles"]["p50"], 600e3)

    def test_a_number_that_cannot_be_sent_in_time(self):
        ran = stress("-R", str(repeats(5000)), "-n", "16", "-c", "2", self.slow())
        self.assertEqual(ran.totals["requests"], 16)
        self.falls_short_of_connections(ran, "the last request was sent ")
        self.assertGreater(ran.totals["behind_s"], 1)

    @unittest.skipUnless(hasattr(signal, "SIGSTOP"), OTHER_SYSTEM + "a process cannot be stopped")
    def test_a_stopped_load_generator(self):
        """The load generator is stopped from its first request until after the end of the run; its report says that it
        was late."""
        def run(threshold):
            begun = threading.Event()

            def serve(conn, _):
                while head_of(conn):
                    begun.set()
                    time.sleep(0.01)  # else the load generator could send all that is due before it looks at the time again
                    conn.sendall(OK)

            server = self.small(serve)
            with scratch() as where:
                process = subprocess.Popen(
                    [LUASERVE, "stress", "-q", "--json", "report.json", "-R", "100", "-d", "2s", "-c", "2", "-t", "1",
                     "--threshold", threshold, server.url],
                    cwd=where, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                self.addCleanup(process.kill)
                self.assertTrue(begun.wait(WAIT))
                process.send_signal(signal.SIGSTOP)
                time.sleep(2.2)  # longer than the run
                process.send_signal(signal.SIGCONT)
                out, err = process.communicate(timeout=WAIT)
                return Ran(process.returncode, out, err, json.loads(read_text(os.path.join(where, "report.json"))))

        for ran, met in zip(in_parallel([lambda: run("p99 < 1us"), lambda: run("errors == 0")]), (False, True)):
            self.falls_short(ran, "time", "the load generator itself was late by up to ")
            self.assertEqual(ran.report["thresholds"][0]["met"], met)
            self.assertEqual(ran.totals["requests"] + ran.totals["unsent"], 200)

    def test_interrupted(self):
        with scratch() as where:
            process = subprocess.Popen([LUASERVE, "stress", "-d", "1h", "--json", "report.json", self.url + "/"], cwd=where,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **system.PROCESS_OPTIONS)
            self.addCleanup(process.kill)
            line = process.stderr.readline()  # a line each second: the run has begun
            system.send_signal(process, signal.SIGINT)
            out, err = process.communicate(timeout=2 * WAIT)
            self.assertEqual(process.returncode, 0, out + err)
            self.assertIn("requests/s", line)
            self.assertIn("requests in", out)
            self.assertTrue(json.loads(read_text(os.path.join(where, "report.json")))["interrupted"])

    def test_interrupted_twice(self):
        """A second Ctrl-C ends a run whose hook never returns."""
        script = "function response()\n io.stderr:write('in\\n')\n while true do end end"
        with scratch(own_lua=script) as where:
            process = subprocess.Popen([LUASERVE, "stress", "-q", "-t", "1", "-c", "1", "-s", "own.lua", self.url + "/"], cwd=where,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **system.PROCESS_OPTIONS)
            self.addCleanup(process.kill)
            self.assertEqual(process.stderr.readline(), "in\n")
            system.send_signal(process, signal.SIGINT)
            while process.poll() is None:  # repeated: two pending signals count as one
                system.send_signal(process, signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.5)
            process.communicate(timeout=WAIT)
            self.assertIn(process.returncode, (1, EXIT_STATUS_LOST))


class Echoes(Stress):
    def test_messages_on_streams_and_datagrams(self):
        self.good(stress("-n", "300", "-c", "5", self.tcp), 300)
        self.good(stress("-n", "300", "-c", "5", "--pipeline", "20", "--message", "x" * 5000, self.tcp), 300)
        self.good(stress("-n", "100", "-c", "2", "--message", "x" * 20000, self.udp), 100)

    def test_s9(self):
        """As many threads as connections; each thread sends its own numbered messages in order."""
        ran = self.good(stress("-t", "8", "--sends", str(repeats(500)), "--message", "thirty bytes of text, as it is",
                               self.tcp), 8 * repeats(500))
        self.assertIn("8 threads and 8 connections", ran.out)
        self.assertEqual(ran.totals["connects"], 8)
        self.assertEqual(ran.totals["bytes_in"], ran.totals["bytes_out"])

    def test_the_messages_of_s9(self):
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

    def test_s9_with_half_an_echo(self):
        def hang_up(conn, _):
            data = conn.recv(1000)
            conn.sendall(data[:len(data) // 2])

        ran = stress("-t", "2", "--sends", "3", "tcp://127.0.0.1:%d" % self.small(hang_up).port)
        self.fails(ran, "the server closed the connection in the middle of an echo")
        self.assertEqual((ran.errors, ran.totals["requests"]), ({"total": 6, "read": 6}, 0), ran)

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
        self.assertIn('the echo differs from the message: "heLLo"', ran.err)

    def test_a_lost_datagram_times_out(self):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(0.1)
        ended = threading.Event()
        timeout = 0.5 * SLOW

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
        url = "udp://127.0.0.1:%d" % sock.getsockname()[1]
        try:
            plain = stress("-c", "1", "-n", "4", "--timeout", "%gs" % timeout, url)
            s9 = stress("-t", "1", "--sends", "4", "--message", "hi", "--timeout", "%gs" % timeout, url)
        finally:
            ended.set()
            thread.join()
            sock.close()
        for ran in plain, s9:
            self.assertEqual((ran.status, ran.totals["requests"], ran.errors), (0, 2, {"total": 2, "timeout": 2}), ran)

    def test_a_closed_udp_port(self):
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        sock.close()
        self.fails(stress("-n", "3", "--timeout", "200ms", "udp://127.0.0.1:%d" % port))


class Honest(Stress):
    FREEZE_S = 0.5

    def frozen(self, *args):
        """A run against a server that freezes once -> the run, and the length of the freeze in microseconds."""
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

    def test_an_open_loop_shows_a_freeze_in_all_due_requests(self):
        """200/s for 3 s: of 600 requests 100 are due during the freeze of 0.5 s, and wait for the rest of it.

        So 10 % wait for 0.2 s or more, and the worst of a thousand waits for the whole freeze. In the uncorrected
        figures the freeze is 50 slow responses, one for each connection: 8 %."""
        ran, frozen_us = self.frozen("-R", "200", "-d", "3s")
        self.assertEqual(ran.errors, {}, ran)
        self.assertEqual(ran.totals["requests"] + ran.totals["unsent"], 600, ran)
        corrected = ran.report["latency_us"]["corrected"]["percentiles"]
        uncorrected = ran.report["latency_us"]["uncorrected"]["percentiles"]
        self.assertGreater(corrected["p99.9"], 0.9 * frozen_us)
        self.assertGreater(corrected["p90"], 0.9 * 0.2e6)
        self.assertLess(uncorrected["p90"], corrected["p90"])

    def test_a_closed_loop_hides_a_freeze(self):
        ran, frozen_us = self.frozen("-n", "6000")
        self.good(ran, 6000)
        self.assertIsNone(ran.report["latency_us"]["corrected"])
        uncorrected = ran.report["latency_us"]["uncorrected"]
        self.assertGreater(uncorrected["max"], 0.9 * frozen_us)
        self.assertLess(uncorrected["percentiles"]["p50"], 0.9 * frozen_us)
