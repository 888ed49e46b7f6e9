"""HTTP/1.1 message framing (RFC 9112, sections 6 and 7): Content-Length, Transfer-Encoding, chunks, trailers.

A request with an ambiguous length is refused, and no part of a body is served as a request. The lengths, codings
and chunks that are refused stand in tests/unit/codec/http1 (test_http1_parse_fields.c, test_http1_chunk.c) one by
one; here is one of each kind."""
import json

from harness import Closed, chunked, request, table
from harness.http1 import EVIL, H, Http1, get, post

BODY = b"5\r\nhello\r\n0\r\n\r\n"


def coded(body, target=b"/echo", coding=b"chunked"):
    return post(b"Transfer-Encoding: " + coding + b"\r\n", body, target)


class Framing(Http1):
    def test_lengths_and_codings_that_are_refused(self):
        both = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"
        self.refuse_all([
            ("CL then TE", post(both, BODY), 400),
            ("TE then CL", post(b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", BODY), 400),
            ("CL and TE on a GET", get(H + both + b"\r\n" + BODY), 400),
            ("CL and TE to a route that ignores bodies", post(both, BODY, b"/ignore"), 400),
            ("TE in HTTP/1.0",
             post(b"Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n", BODY, version=b"HTTP/1.0"), 400),
            ("chunked not last", coded(BODY, coding=b"chunked, gzip"), 400),
            ("chunked twice", post(b"Transfer-Encoding: chunked\r\n" * 2, BODY), 400),
            ("unknown", coded(BODY, coding=b"gzip, chunked"), 501),
            ("with a parameter", coded(BODY, coding=b"chunked;q=1"), 400),
            ("vertical tab before", coded(BODY, coding=b"\x0bchunked"), 400),
            ("TE behind a bare LF", post(b"X: y\nTransfer-Encoding: chunked\r\n", BODY), 400),
            ("TE folded", coded(BODY, coding=b"\r\n chunked"), 400),
            ("CL with a sign", post(b"Content-Length: +5\r\n", b"hello"), 400),
            ("CL twice the same", post(b"Content-Length: 5\r\nContent-Length: 5\r\n", b"hello"), 400),
            ("CL twice in a field", post(b"Content-Length: 5, 5\r\n", b"hello"), 400),
            ("CL 2^64", post(b"Content-Length: 18446744073709551616\r\n", b"hello"), 400),
            ("CL 2^63", post(b"Content-Length: 9223372036854775808\r\n", b"hello"), 400),
            ("CL 2^63-1", post(b"Content-Length: 9223372036854775807\r\n", b"hello"), 413),
        ])

    BAD_CHUNKS = [
        ("sign", b"+5\r\nhello\r\n0\r\n\r\n"),
        ("nothing", b"\r\nhello\r\n0\r\n\r\n"),
        ("overflow 2^64+5", b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("data too long", b"5\r\nhelloX\r\n0\r\n\r\n"),
        ("data then LF", b"5\r\nhello\n0\r\n\r\n"),
        ("LF after the size", b"5\nhello\r\n0\r\n\r\n"),
        ("LF ends an extension", b"5;a=b\nhello\r\n0\r\n\r\n"),
        ("CR LF in a quote", b'5;a="b\r\nc"\r\nhello\r\n0\r\n\r\n'),
        ("endless extension", b"5;" + b"a" * 100000 + b"\r\nhello\r\n0\r\n\r\n"),
        ("LF after the last chunk", b"5\r\nhello\r\n0\n\r\n"),
        ("LF after the trailers", b"5\r\nhello\r\n0\r\nX: y\r\n\n"),
        ("folded trailer", b"5\r\nhello\r\n0\r\nX: y\r\n z\r\n\r\n"),
        ("trailer without colon", b"5\r\nhello\r\n0\r\nGET /evil HTTP/1.1\r\n\r\n"),
        ("too many trailers", chunked([b"x"], b"".join(b"X-%d: y\r\n" % n for n in range(2000)))),
        ("trailers that are too long", chunked([b"x"], b"X: " + b"y" * 100000 + b"\r\n")),
    ]

    def test_chunks_refused(self):
        self.refuse_all([(name, coded(body), 400) for name, body in self.BAD_CHUNKS])

    def test_bad_chunks_to_a_handler_that_does_not_read(self):
        """The handler may have answered already, but the bytes after a malformed body are not served as a request."""

        def check(body):
            with self.server.connect() as conn:
                conn.try_send(coded(body, b"/ignore") + EVIL)
                response = conn.response()
                if response.status not in (200, 400):
                    raise AssertionError(response)
                rest = conn.rest()
                if b"evil" in rest or b"HTTP/1.1 200" in rest:
                    raise AssertionError("a second response: %r" % rest)

        table(self, self.BAD_CHUNKS, check)
        self.assertEqual(self.server.logged("EVIL"), [])

    def test_chunks_accepted(self):
        rows = [
            ("extensions", b'5 ; a = "b\\"\\\\;c" ;d\r\nhello\r\n0\t;\tx\r\n\r\n', b"hello"),
            ("upper and lower hex", b"00A\r\n" + b"x" * 10 + b"\r\n00a\r\n" + b"y" * 10 + b"\r\n0\r\n\r\n",
             b"x" * 10 + b"y" * 10),
            ("trailers", b"1\r\nz\r\n000\r\nX-A: 1\r\nX-B: 2\r\n\r\n", b"z"),
            ("empty", b"0\r\n\r\n", b""),
        ]
        with self.connect() as conn:
            for name, body, expected in rows:
                conn.send(coded(body, coding=b"CHUNKED") + request("GET", "/n/1"))
                got = conn.response()
                self.assertEqual((got.status, got.body, conn.response().text), (200, expected, "1"), name)

    def test_trailers_change_nothing(self):
        for trailer in (
            b"Content-Length: 100\r\n",
            b"Transfer-Encoding: chunked\r\n",
            b"Host: other\r\n",
            b"Connection: close\r\n",
        ):
            with self.subTest(trailer), self.server.connect() as conn:
                conn.send(
                    post(b"Transfer-Encoding: chunked\r\n", chunked([b"hello"], trailer))
                    + request("GET", "/host?q=1")
                )
                first = conn.response()
                if first.status == 400:
                    conn.expect_end()
                else:
                    self.assertEqual(first.body, b"hello")
                    self.assertEqual(json.loads(conn.response().text)["host"], "h")

    def test_chunked_body_too_large(self):
        with self.connect() as conn:
            conn.try_send(post(b"Transfer-Encoding: chunked\r\n", chunked([b"x" * 60, b"x" * 60]), b"/small") + EVIL)
            response = conn.response()
            self.assertEqual((response.status, response.closes), (413, True))
            conn.expect_end()
        self.assertEqual(self.server.logged("EVIL"), [])

    def test_no_follow_up_is_served_from_a_body(self):
        """A body that looks like a request is not served as one, whether the handler reads the body or not."""
        for target in (b"/echo", b"/ignore", b"/none"):
            for body, fields in ((EVIL, b"Content-Length: %d\r\n" % len(EVIL)),
                                 (chunked([EVIL, EVIL]), b"Transfer-Encoding: chunked\r\n")):
                with self.subTest((target, fields)), self.server.connect() as conn:
                    conn.send(post(fields, body, target) + request("GET", "/n/after"))
                    first = conn.response()
                    self.assertIn(first.status, (200, 404))
                    try:
                        self.assertEqual(conn.response().text, "after")
                    except Closed:
                        self.assertTrue(first.closes, "closed without Connection: close")
        with self.server.connect() as conn:
            conn.send(get(H + b"Content-Length: %d\r\n\r\n" % len(EVIL) + EVIL) + request("GET", "/n/after"))
            self.assertEqual((conn.response().text, conn.response().text), ("root", "after"))
        self.assertEqual(self.server.logged("EVIL"), [])

    def test_no_body_where_none_may_be(self):
        with self.connect() as conn:
            for target in ("/n204", "/n204body", "/n304"):
                response = conn.get(target)
                self.assertEqual(response.body, b"")
            for target in ("/n205", "/n205body", "/n205parts"):  # with Content-Length: 0, which ends the message
                response = conn.get(target)
                self.assertEqual((response.body, response.header("Content-Length")), (b"", "0"), target)
            for target in ("/big", "/stream", "/echo", "/nowhere", "/n204"):
                conn.ask("HEAD", target)
            self.assertEqual(conn.ask("HEAD", "/big").header("Content-Length"), "1000000")
            self.assertEqual(conn.get("/n/1").text, "1")

