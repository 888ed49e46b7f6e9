"""HTTP/1.1 message framing (RFC 9112, sections 6 and 7): Content-Length, Transfer-Encoding, chunks, trailers.

A request with an ambiguous length is refused, and no part of a body is served as a request. The lengths, codings
and chunks that are refused stand in tests/unit/codec/http1 (test_http1_parse_fields.c, test_http1_chunk.c) one by
one; here is one of each kind."""

from harness import Closed, chunked, request, table
from harness.http1 import EVIL, H, Http1, get, post

BODY = b"5\r\nhello\r\n0\r\n\r\n"


def coded(body, target=b"/echo", coding=b"chunked"):
    return post(b"Transfer-Encoding: " + coding + b"\r\n", body, target)


class Framing(Http1):
    def test_lengths_and_codings_that_are_refused(self):
        both = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"
        self.refuse_all([
            ("CL then TE", post(both, BODY), 400), ("CL and TE to a route that ignores bodies", post(both, BODY, b"/ignore"), 400),
            ("TE in HTTP/1.0", post(b"Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n", BODY, version=b"HTTP/1.0"), 400),
            ("chunked not last", coded(BODY, coding=b"chunked, gzip"), 400), ("unknown", coded(BODY, coding=b"gzip, chunked"), 501),
            ("CL with a sign", post(b"Content-Length: +5\r\n", b"hello"), 400),
            ("CL twice in a field", post(b"Content-Length: 5, 5\r\n", b"hello"), 400),
            ("CL 2^63-1", post(b"Content-Length: 9223372036854775807\r\n", b"hello"), 413),
        ])

    BAD_CHUNKS = [
        ("sign", b"+5\r\nhello\r\n0\r\n\r\n"), ("overflow 2^64+5", b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("data too long", b"5\r\nhelloX\r\n0\r\n\r\n"), ("endless extension", b"5;" + b"a" * 100000 + b"\r\nhello\r\n0\r\n\r\n"),
        ("trailer without colon", b"5\r\nhello\r\n0\r\nGET /evil HTTP/1.1\r\n\r\n"),
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

