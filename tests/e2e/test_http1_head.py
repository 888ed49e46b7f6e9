"""HTTP/1.1 request heads (RFC 9112, sections 2 to 5): what is refused, its status, and what reaches the handler.

tests/unit/codec/http1/test_http1_parse_*.c checks the rows that are refused one by one; here is one of each kind."""
import json

from harness import request
from harness.http1 import H, Http1, get


class Head(Http1):
    def test_refused(self):
        self.refuse_all([
            ("NUL in a value", get(H + b"X: a\0b\r\n\r\n"), 400),
            ("NUL in the target", get(H + b"\r\n", b"/a\0b"), 400),
            ("bare CR in a value", get(H + b"X: a\rb\r\n\r\n"), 400),
            ("bare LFs only", b"GET / HTTP/1.1\nHost: h\n\n", 400),
            ("bare LF at the end", b"GET / HTTP/1.1\r\nHost: h\r\n\n", 400),
            ("fold", get(H + b"X: a\r\n b\r\n\r\n"), 400),
            ("space before the first field", get(b" X: y\r\n" + H + b"\r\n"), 400),
            ("space before the colon", get(H + b"X : y\r\n\r\n"), 400),
            ("no colon", get(H + b"XYZ\r\n\r\n"), 400),
            ("separator in a name", get(H + b"X(Y: z\r\n\r\n"), 400),
            ("separator in the method", get(H + b"\r\n", method=b"G(T"), 400),
            ("space in the target", get(H + b"\r\n", b"/a b"), 400),
            ("space after the version", b"GET / HTTP/1.1 \r\n" + H + b"\r\n", 400),
            ("only a method", b"GET\r\n" + H + b"\r\n", 400),
            ("TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100) + b"\r\n\r\n", 400),
            ("target without slash", get(H + b"\r\n", b"foo"), 400),
            ("GET *", get(H + b"\r\n", b"*"), 400),
            ("CONNECT", get(H + b"\r\n", b"h:443", method=b"CONNECT"), {400, 405, 501}),
            ("CONNECT with a path", get(H + b"\r\n", b"/evil", method=b"CONNECT"), 400),
            ("no Host", get(b"X: y\r\n\r\n"), 400),
            ("no Host with absolute form", get(b"\r\n", b"http://h/"), 400),
            ("Host twice", get(H + b"host: other\r\n\r\n"), 400),
            ("bad Host", get(b"Host: u@h\r\n\r\n"), 400),
            ("version 1.11", get(H + b"\r\n", version=b"HTTP/1.11"), 400),
            ("version 2.0", get(H + b"\r\n", version=b"HTTP/2.0"), 505),
            ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
            ("long method", get(H + b"\r\n", method=b"M" * 33), 501),
        ])

    def test_values_that_are_fine(self):
        with self.connect() as conn:
            for value in (b"a\tb", b"\xe9\xff", b"", b"   ", b"!#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"):
                conn.send(get(H + b"X: " + value + b"\r\n\r\n"))
                self.assertEqual(conn.response().status, 200, value)

    def test_the_host_of_the_handler(self):
        for host in ("h", "h:80", "127.0.0.1:8080", "[::1]:80", "a-b.c_d~e"):
            self.assertEqual(json.loads(self.get("/host", {"Host": host}).text)["host"], host)
        with self.connect() as conn:
            got = json.loads(conn.get("http://other.example:81/host?q=1").text)
            self.assertEqual((got["host"], got["path"], got["query"]), ("other.example:81", "/host", "1"))
            for target in ("http://other", "HTTP://other/", "http://other?x=1"):
                self.assertEqual(conn.get(target).text, "root", target)
            self.assertIn(conn.ask("OPTIONS", "*").status, (200, 204))
            conn.send(b"GET / HTTP/1.0\r\n\r\n")  # which needs none
            self.assertEqual(conn.response().text, "root")
            conn.expect_end()

    def test_sizes(self):
        long_target = b"/n/" + b"a" * (8192 - 3)
        head = get(H + b"X: \r\n\r\n")
        fits = b"a" * (16384 - len(head))
        with self.connect() as conn:
            for data in (get(H + b"\r\n", long_target), get(H + b"X: " + fits + b"\r\n\r\n"),
                         get(b"".join(b"X-%d: y\r\n" % n for n in range(99)) + H + b"\r\n")):
                conn.send(data)
                self.assertEqual(conn.response().status, 200)
        self.refuse_all([
            ("target one too long", get(H + b"\r\n", long_target + b"a"), 414),
            ("target without end", b"GET /" + b"a" * 200000, 414),
            ("one field too many", get(b"".join(b"X-%d: y\r\n" % n for n in range(100)) + H + b"\r\n"), 431),
            ("head one too long", get(H + b"X: " + fits + b"a\r\n\r\n"), 431),
            ("name without end", get(H + b"X" * 200000), 431),
            ("many fields without end", get(H + b"X: y\r\n" * 20000), 431),
        ])

    def test_empty_lines_first(self):
        with self.connect() as conn:
            conn.send(b"\r\n" + request("GET", "/n/1"))
            self.assertEqual(conn.response().text, "1")
            conn.send(request("POST", "/echo", body=b"x") + b"\r\n" + request("GET", "/n/3"))
            self.assertEqual(conn.response().body, b"x")
            self.assertEqual(conn.response().text, "3")
        self.refuse_all([("without an end", b"\r\n" * 500000, 400)])
