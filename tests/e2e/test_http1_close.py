"""The end of an HTTP/1.1 connection: the lingering close, requests cut off, half-closed connections, resets."""
import os

from harness import in_parallel, repeats, request, table
from harness.http1 import Http1, post


class Close(Http1):
    def test_lingering_close(self):
        """A client that sends 10 MB more before it reads still receives the response."""
        noise = os.urandom(1 << 20)
        for name, head in (
            ("too large", post(b"Content-Length: 20000000\r\n")), ("broken", b"GET / HTTP/9.9\r\n\r\n"),
            ("bad chunk", post(b"Transfer-Encoding: chunked\r\n", b"zzz\r\n")), ("head without end", b"GET /" + b"a" * 20000),
        ):
            with self.subTest(name), self.server.connect() as conn:
                conn.send(head)
                for _ in range(10):
                    conn.send(noise)
                response = conn.response()
                self.assertIn(response.status, (400, 413, 414, 505))
                conn.expect_end()

    def test_truncated(self):
        """No truncated message counts as complete; a handler that reads its body gets an error."""
        before = self.quiet_fds()

        def check(case):
            data, has_head = case
            with self.server.connect() as conn:
                conn.send(data)
                conn.half_close()
                try:
                    rest = conn.rest()
                except ConnectionResetError:
                    rest = b""
                if rest and not rest.startswith((b"HTTP/1.1 400", b"HTTP/1.1 408", b"HTTP/1.1 200 OK" if has_head else b"HTTP/1.1 4")):
                    raise AssertionError(rest[:300])

        chunked = request("POST", "/log-body?tag=cut", {"Transfer-Encoding": "chunked"})
        table(self, [
            ("in the method", (b"GE", False)), ("in the head", (b"GET / HTTP/1.1\r\nHost: h\r\n", False)),
            ("before the last LF", (b"GET /evil HTTP/1.1\r\nHost: h\r\n\r", False)), ("nothing", (b"", False)),
            ("in a body", (request("POST", "/log-body?tag=cut", {"Content-Length": "10"}) + b"hello", True)),
            ("in a chunk", (chunked + b"5\r\nhel", True)), ("before the last chunk", (chunked + b"5\r\nhello\r\n", True)),
            ("in the trailers", (chunked + b"5\r\nhello\r\n0\r\n", True))], check)
        self.server.wait_log("body cut", count=4)
        for line in self.server.logged("body cut"):
            self.assertNotRegex(line, r"body cut true hel")
        self.assertEqual(self.server.logged("EVIL"), [])
        self.eventually(lambda: self.server.fds() <= before, "the descriptors are closed")

    def test_resets(self):
        """After resets at every stage no descriptor stays open, the server runs, and other clients are served."""
        before = self.quiet_fds()

        def one(n):
            conn = self.server.connect()
            kind = n % 6
            if kind == 0:
                conn.send(b"GET / HT")
            elif kind == 1:
                conn.send(request("POST", "/log-body?tag=reset", {"Content-Length": "100000"}) + b"x" * 1000)
            elif kind == 2:
                conn.send(request("GET", "/big"))
                conn.take(100)
            elif kind == 3:
                conn.send(request("GET", "/nap"))
            elif kind == 4:
                conn.send(request("GET", "/stream") * 50)
                conn.take(10)
            conn.reset()

        in_parallel([lambda n=n: one(n) for n in range(repeats(300))])
        self.assertEqual(self.get("/n/1").text, "1")
        self.eventually(lambda: self.server.fds() <= before, "the descriptors are closed")
