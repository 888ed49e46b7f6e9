"""HTTP/1.1 request heads (RFC 9112, sections 2 to 5): what is refused, its status, and what reaches the handler.

tests/unit/codec/http1/test_http1_parse_*.c checks the rows that are refused one by one; here is one of each kind."""
import json

from harness.http1 import H, Http1, get


class Head(Http1):
    def test_refused(self):
        self.refuse_all([
            ("NUL in the target", get(H + b"\r\n", b"/a\0b"), 400), ("bare LFs only", b"GET / HTTP/1.1\nHost: h\n\n", 400),
            ("fold", get(H + b"X: a\r\n b\r\n\r\n"), 400), ("space before the colon", get(H + b"X : y\r\n\r\n"), 400),
            ("separator in a name", get(H + b"X(Y: z\r\n\r\n"), 400),
            ("TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100) + b"\r\n\r\n", 400),
            ("CONNECT", get(H + b"\r\n", b"h:443", method=b"CONNECT"), {400, 405, 501}),
            ("Host twice", get(H + b"host: other\r\n\r\n"), 400), ("version 2.0", get(H + b"\r\n", version=b"HTTP/2.0"), 505),
            ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400), ("long method", get(H + b"\r\n", method=b"M" * 33), 501),
        ])

    def test_the_host_of_the_handler(self):
        for host in ("h", "h:80", "127.0.0.1:8080", "[::1]:80", "a-b.c_d-e."):
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
