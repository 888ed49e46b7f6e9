"""The order of messages on an HTTP/1.1 connection: pipelined responses, 100 Continue, and the last response of a
connection."""

from harness import beside, chunked, request
from harness.http1 import EVIL, Http1, post


class Ordering(Http1):
    def test_pipelined_in_order(self):
        """Handlers that answer at once, that wait, and both."""
        for targets in (["/n/%d" % n for n in range(100)], ["/slow/%d" % n for n in range(20)],
                        ["/slow/%d" % n if n % 5 == 0 else "/n/%d" % n for n in range(100)]):
            with self.subTest(targets[:2]), self.connect() as conn:
                conn.send(b"".join(request("GET", target) for target in targets))
                self.assertEqual([conn.response().text for _ in targets], [str(n) for n in range(len(targets))])
                self.assertEqual(conn.get("/n/x").text, "x")

    def test_pipelined_kinds(self):
        """Methods and targets, the body of the request, and that of the response if it is known."""
        asks = [("GET", "/stream", None, b"part 1\npart 2\npart 3\n"), ("HEAD", "/big", None, b""),
                ("POST", "/echo", b"x" * 20000, b"x" * 20000), ("GET", "/n204", None, b""), ("GET", "/big", None, None),
                ("POST", "/pieces", b"y" * 30000, b"y" * 30000), ("GET", "/nowhere", None, None), ("DELETE", "/big", None, None),
                ("HEAD", "/stream", None, b""), ("GET", "/n304", None, b""), ("GET", "/slow/1", None, b"1")] * 3
        with self.connect() as conn:
            data = b"".join(request(method, target, (), body) for method, target, body, _ in asks)
            with beside(lambda: conn.try_send(data)):
                for method, target, _, expected in asks:
                    body = conn.response(method).body
                    self.assertEqual(body, body if expected is None else expected, target)

    def test_nothing_after_close(self):
        with self.connect() as conn:
            conn.send(request("GET", "/n/1") + request("GET", "/n/2", {"Connection": "close"}) + EVIL + b"complete nonsense\0\r\n\r\n")
            self.assertEqual(conn.response().text, "1")
            second = conn.response()
            self.assertEqual((second.text, second.closes), ("2", True))
            conn.expect_end()
        for value in ("Close", "keep-alive, close", "x,CLOSE ,y"):
            with self.subTest(value), self.server.connect() as conn:
                conn.send(request("GET", "/slow/1", {"Connection": value}) + EVIL)
                self.assertTrue(conn.response().closes)
                conn.expect_end()
        self.assertEqual(self.server.logged("EVIL"), [])

    def test_http_1_0(self):
        with self.connect() as conn:
            conn.send(request("GET", "/n/1", version="HTTP/1.0") + EVIL)
            response = conn.response()
            self.assertEqual(response.text, "1")
            conn.expect_end()
        with self.connect() as conn:
            for n in range(3):
                response = conn.send(request("GET", "/n/%d" % n, {"Connection": "keep-alive"}, version="HTTP/1.0")).response()
                self.assertEqual(response.text, str(n))
                self.assertEqual(response.header("Connection", "").lower(), "keep-alive")
        with self.connect() as conn:
            conn.send(request("GET", "/stream", {"Connection": "keep-alive"}, version="HTTP/1.0"))
            response = conn.response()
            self.assertEqual((response.text, response.chunked, response.to_close), ("part 1\npart 2\npart 3\n", False, True))
        with self.connect() as conn:
            response = conn.send(request("POST", "/echo", {"Expect": "100-continue"}, b"hello", version="HTTP/1.0")).response()
            self.assertEqual((response.interim, response.body), ([], b"hello"))
        self.assertEqual(self.server.logged("EVIL"), [])

    def test_expectations(self):
        self.refuse_all([
            ("too large", post(b"Content-Length: 9000000\r\n"), 413),
            ("too large, to be continued", post(b"Expect: 100-continue\r\nContent-Length: 9000000\r\n"), 413),
            ("too large for the route, to be continued",
             post(b"Expect: 100-continue\r\nContent-Length: 101\r\n", target=b"/small"), 413),
        ])
        with self.connect() as conn:  # the server may skip a short body instead of closing; it is not a request
            conn.send(post(b"Content-Length: 101\r\n", b"\r\n\r\n" + EVIL, b"/small"))
            response = conn.response()
            self.assertEqual(response.status, 413)
            if response.closes:
                conn.expect_end()
            else:
                conn.send(b"x" * (101 - 4 - len(EVIL)))
                self.assertEqual(conn.get("/n/1").text, "1")
        with self.connect() as conn:
            conn.send(post(b"Expect: 200-maybe\r\nContent-Length: 5\r\n", b"hello"))
            self.assertEqual(conn.response().status, 417)

    def test_continue(self):
        with self.connect() as conn:
            for target in ("/echo", "/pieces"):
                conn.send(request("POST", target, {"Expect": "100-continue", "Content-Length": "5"}))
                interim = conn.head()
                self.assertEqual(interim.status, 100)
                conn.send(b"hello")
                self.assertEqual(conn.response().body, b"hello")
            conn.send(request("POST", "/echo", {"Expect": "100-Continue", "Transfer-Encoding": "chunked"}))
            self.assertEqual(conn.head().status, 100)
            conn.send(chunked([b"abc"]))
            self.assertEqual(conn.response().body, b"abc")
            conn.send(request("POST", "/echo", {"Expect": "100-continue"}, b"at once"))
            self.assertEqual(conn.response().body, b"at once")
            conn.send(request("GET", "/n/1", {"Expect": "100-continue"}))
            response = conn.response()
            self.assertEqual((response.text, response.interim), ("1", []))
