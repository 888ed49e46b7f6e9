"""luaserve stress with a wrong command line, an unreachable target, or a server that sends invalid responses."""
# sanitizers: asan; connections of a thread share nothing, and test_stress runs many threads
# wine: none; bytes for the parsers of the load generator; test_stress, test_stress_ws and test_stress_tls use the sockets there
import os
import socket
import struct
import threading

from harness import WAIT, WINDOWS, beside, not_on_windows, read_text, run_program, scratch
from harness.stress import FIRST, OK, Stress, head_of, stress


H = b"HTTP/1.1 200 OK\r\n"
CHUNKED = H + b"Transfer-Encoding: chunked\r\n\r\n"
# The response to each request, and the message of the run.
INVALID_RESPONSES = (
    (H + b"Content-Length: 1, 1\r\n\r\nx", "bad Content-Length"),
    (H + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nx", "several Content-Length fields"),
    (H + b"Transfer-Encoding: gzip\r\n\r\nx", "unknown transfer coding"), (CHUNKED + b"zz\r\n", "bad chunk size"),
    (CHUNKED + b"2\r\nokXX", "no CR LF after a chunk"), (H + b"A: " + b"a" * 100000, "the head of the response is too large"),
    (b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", "bare LF"),
    (b"HTTP/1.1 101 Switching\r\n\r\n", "status 101, but no upgrade was requested"), (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH-2.0"),
    (b"\x15\x03\x03\x00\x02\x02\x46", "the port expects TLS (https://)"),
)
# The data before the server closes.
CUT_RESPONSES = (H[:9], H, H + b"Content-Length: 100\r\n\r\n", H + b"Content-Length: 100\r\n\r\nhalf",
               CHUNKED + b"5\r\nhe", CHUNKED + b"5\r\nhello\r\n0\r\n")


class Responses(Stress):
    """Invalid responses only: none counts, each connection is opened again, and one line describes the first error."""

    def all_bad(self, ran, kind, text):
        self.fails(ran, text)
        self.assertEqual((ran.errors, ran.totals["requests"]), ({"total": 6, kind: 6}, 0), ran)
        # A connection that is opened again may find that another one has sent the last request meanwhile.
        self.assertIn(ran.totals["connects"], (6, 7), ran)
        self.assertIn(text, ran.report["failure"])

    def serve(self, answer, then):
        """-> the URL of a server that reads a request, sends this text, and then waits, closes or resets."""
        def handle(conn, _):
            if not head_of(conn):
                return
            conn.sendall(answer)
            if then == "wait":
                conn.recv(1)  # until the client closes
            elif then == "reset":
                conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        return self.small(handle).url

    def test_invalid_responses(self):
        for answer, why in INVALID_RESPONSES:
            with self.subTest(answer[:60]):
                self.all_bad(stress("-c", "2", "-n", "6", self.serve(answer, "wait")), "answer", why)

    def test_incomplete_responses(self):
        for answer in CUT_RESPONSES:
            with self.subTest(answer):
                ran = stress("-c", "2", "-n", "6", self.serve(answer, "close"))
                self.all_bad(ran, "read", "the server closed the connection in the middle of a response")

    def test_a_reset_in_a_response(self):
        ran = stress("-c", "2", "-n", "6", self.serve(H + b"Content-Length: 100\r\n\r\nhalf", "reset"))
        # Wine 8's server may clear the socket's error: then the receive gets an end instead of the error.
        ended = WINDOWS and "connection reset" not in ran.err
        self.all_bad(ran, "read", "the server closed the connection in the middle of a response" if ended else "connection reset by the peer")

    def test_endless_responses(self):
        """The time limit ends a wait behind an interim response, a body that stalls, and floods; they take no memory."""
        rows = (b"", b"HTTP/1.1 100 Continue\r\n\r\n"), (H + b"Content-Length: 100\r\n\r\n", b""), \
            (CHUNKED, b"5\r\nhello\r\n" * 500)
        for first, more in rows:
            def handle(conn, _, first=first, more=more):
                if head_of(conn):
                    conn.sendall(first)
                    for _ in range(1 if len(more) < 100 else 1 << 30):
                        conn.sendall(more)
                    conn.recv(1)

            with self.subTest(first + more[:40]):
                ran = stress("-c", "2", "-n", "6", "--timeout", "300ms", self.small(handle).url)
                self.all_bad(ran, "timeout", "no complete response within the time limit")

    def test_interim_responses_have_a_limit(self):
        """As many as ls.fetch takes: LS_RESPONSE_INTERIM_MAX."""
        for count, good in ((16, True), (17, False)):
            with self.subTest(count):
                def handle(conn, _, count=count):
                    while head_of(conn):
                        for _ in range(count):
                            conn.sendall(b"HTTP/1.1 102 Processing\r\n\r\n")
                        conn.sendall(OK)

                ran = stress("-c", "2", "-n", "6", self.small(handle).url)
                if good:
                    self.assertEqual((ran.status, ran.totals["requests"]), (0, 6), ran)
                else:
                    self.all_bad(ran, "answer", "too many interim responses")

    def test_a_flood_for_a_script(self):
        """A body for a script has a limit; past it the run goes on, and keeps little memory."""
        def handle(conn, number):
            while head_of(conn):
                if number > FIRST:
                    conn.sendall(OK)
                    continue
                conn.sendall(CHUNKED)
                for _ in range(80):
                    conn.sendall(b"100000\r\n" + b"x" * 0x100000 + b"\r\n")

        ran = stress("-c", "1", "-n", "6", "--timeout", "60s", "-s", "own.lua", self.small(handle).url,
                     files={"own_lua": "function response(status, headers, body) end"})
        self.assertEqual((ran.status, ran.errors, ran.totals["requests"]), (0, {"total": 1, "body": 1}, 5), ran)
        self.assertIn("first error: a body is longer than --max-body, the limit for scripts", ran.err)
        self.assertIn("Errors: body 1 (a body longer than --max-body, the limit for scripts)", ran.out)

    def test_the_limit_of_a_body_for_a_script(self):
        def answer(size):
            return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size

        for option, limit in (((), 1 << 20), (("--max-body", "1000"), 1000), (("--max-body", "2k"), 2000), (("--max-body", "1"), 1)):
            for size, errors in ((limit, {}), (limit + 1, {"total": 2, "body": 2})):
                with self.subTest((option, size)):
                    def handle(conn, _, size=size):
                        while head_of(conn):
                            conn.sendall(answer(size))

                    ran = stress("-c", "1", "-n", "2", *option, "-s", "own.lua", self.small(handle).url,
                                 files={"own_lua": "function response(status, headers, body) end"})
                    self.assertEqual(ran.errors, errors, ran)
        for wrong in ("0", "-1", "x", "2G"):
            self.fails(stress("--max-body", wrong, "http://127.0.0.1:1/"), "a number of bytes from 1 to 1G", status=2)

    def test_control_characters_of_a_server(self):
        """They do not reach the terminal, neither in the name of a check nor in the message of an error."""
        def handle(conn, _):
            while head_of(conn):
                conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n\x9b2J\xc2\x9b\xe2\x80\xae")

        script = """return { connections = 1, requests = 1, response = function(vu, status, headers, body) %s end }"""
        url = self.small(handle).url.rstrip("/")
        ran = stress("own.lua", files={"own_lua": script.replace("{ ", "{ target = '%s', " % url) % "vu:check(false, body)"})
        self.assertIn("  FAILED  ?2J??: 1 of 1\n", ran.out)
        ran = stress("own.lua", files={"own_lua": script.replace("{ ", "{ target = '%s', " % url, 1) % "error(body)"})
        self.assertIn("\\x9b2J\\xc2\\x9b\\xe2\\x80\\xae", ran.err)

    def test_a_server_that_closes_before_the_request(self):
        ran = stress("-c", "2", "-n", "6", self.small(lambda conn, _: None).url)
        self.fails(ran)
        self.assertRegex(ran.err, "closed every connection without a response|connection reset by the peer")
        self.assertEqual((ran.errors["total"], ran.totals["requests"]), (6, 0), ran)


class Wrong(Stress):
    def test_the_target(self):
        closed = socket.socket()
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        self.fails(stress("http://127.0.0.1:%d/" % port), "127.0.0.1:%d: connection refused" % port)
        closed.close()
        self.fails(stress("http://no-such-host.invalid/"), "no-such-host.invalid")
        self.fails(stress("unix:/does/not/exist"), "unix:/does/not/exist")
        self.fails(stress(self.url + "/#x"), "fragment", status=2)

    def test_options(self):
        """Exit status 2: an invalid command line, as for a site; 1: a valid one that cannot be carried out."""
        self.fails(stress("-t", "4", "-c", "2", self.url), "4 threads need at least as many connections", status=2)
        self.fails(stress("--json", "/does/not/exist/x", self.url), "/does/not/exist/x", status=1)
        status, out, _ = run_program(["stress", "--help"])
        self.assertEqual(status, 0)
        self.assertIn("usage: luaserve stress [options] URL", out)

    @not_on_windows("Windows has no limit of handles")
    def test_too_many_connections(self):
        self.fails(stress("-c", "1M", self.url), "descriptors", "ulimit -n")

    def test_one_invalid_response_among_valid_ones(self):
        for text in (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", OK + b"more"):
            def once(conn, number, text=text):
                while head_of(conn):
                    conn.sendall(text if number == FIRST else OK)

            ran = stress("-c", "1", "-n", "10", self.small(once).url)
            self.assertEqual((ran.status, ran.errors["answer"]), (0, 1), ran)
            self.assertIn("first error: ", ran.err)

    def test_every_split_of_a_response(self):
        """Responses byte by byte, after interim responses, and several in one piece."""
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
        self.assertIn("in the middle of a response", ran.err)

    def test_a_run_without_responses_writes_its_files(self):
        def silent(conn, _):
            head_of(conn)
            head_of(conn)  # until the client closes

        ran = stress("-c", "2", "-n", "4", "--timeout", "200ms", "--csv", "report.csv", "--threshold", "errors == 0",
                     self.small(silent).url)
        self.fails(ran, "no complete response within the time limit")
        self.assertEqual((ran.report["exit_status"], ran.report["failure"]), (1, ran.err[len("luaserve stress: "):-1]))
        self.assertEqual((ran.totals["requests"], ran.errors), (0, {"total": 4, "timeout": 4}))
        self.assertFalse(ran.report["thresholds"][0]["met"])
        ran = stress("-c", "2", "-n", "4", "--timeout", "200ms", "-s", "own.lua", self.small(silent).url, files={
            "own_lua": "function done(summary, latency) print(summary.requests, summary.errors.timeout, #latency, "
                       "latency:percentile(99), latency.mean) end"})
        self.fails(ran, "no complete response within the time limit")
        self.assertIn("\n0\t4\t0\t0\t0.0\n", ran.out)

    def test_a_run_that_fails_to_start_leaves_no_file(self):
        closed = socket.socket()
        closed.bind(("127.0.0.1", 0))
        with scratch(old_json="an older report") as where:
            for name in "new.json", "old.json":
                status, _, err = run_program(["stress", "--json", name, "http://127.0.0.1:%d/" % closed.getsockname()[1]],
                                             WAIT, cwd=where)
                self.assertEqual((status, "connection refused" in err), (1, True), err)
            self.assertEqual(os.listdir(where), ["old.json"])
            self.assertEqual(read_text(os.path.join(where, "old.json")), "an older report")
        closed.close()

    def test_requests_without_a_response_at_the_end(self):
        """Of three connections one is answered. The requests of the others have waited for the whole run."""
        def first_alone(conn, number):
            while head_of(conn):
                if number == FIRST:
                    conn.sendall(OK)

        def run(*more):
            return stress("-c", "3", "-t", "1", "-d", "1s", *more, self.small(first_alone).url)

        ran = run()
        self.assertEqual((ran.status, ran.errors), (0, {"total": 2, "unanswered": 2}), ran)
        self.assertRegex(ran.out, r"(?m)^2 requests got no response \(waiting for up to .* when the run ended\)$")
        self.assertIn(ran.totals["in_flight"], (0, 1), ran)
        self.assertEqual(sum(point["errors"] for point in ran.report["series"]), 2, ran)
        ran = run("--threshold", "errors == 0")
        self.assertEqual(ran.status, 99, ran)
        self.assertIn("MISSED  errors == 0 (measured: 2)", ran.out)

    def test_scripts_see_requests_without_a_response(self):
        def even_alone(conn, _):
            while (head := head_of(conn)):
                if b"/even" in head:
                    conn.sendall(OK)

        ran = stress("hang.lua", self.small(even_alone).url, files={"hang.lua": """
return { connections = 4, threads = 1, duration = "1s", pipeline = 2,
  request = function(vu) return "GET", vu.id % 2 == 0 and "/even" or "/odd" end,
  done = function(summary) print("unanswered " .. summary.errors.unanswered) end }
"""})
        self.assertEqual(ran.status, 0, ran)
        self.assertIn("unanswered 4", ran.out)

    def test_a_server_that_goes_away(self):
        """Failed connections count as failed requests, so the run ends."""
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

        with beside(serve):
            ran = stress("-c", "1", "-n", "4", "http://127.0.0.1:%d/" % listener.getsockname()[1])
        self.assertTrue(done.is_set())
        self.assertEqual(ran.totals["requests"], 1, ran)
        self.assertEqual(ran.errors["total"], 3, ran)
