"""HTTP/1.1 message framing (RFC 9112, sections 6 and 7): Content-Length, Transfer-Encoding, chunks, trailers.

A request with an ambiguous length is refused, and no part of a body is served as a request."""
import json

from harness import Closed, chunked, request, table
from harness.http1 import EVIL, H, Http1, get, post


class Framing(Http1):
    def test_transfer_encoding_with_length(self):
        body = b"5\r\nhello\r\n0\r\n\r\n"
        self.refuse_all(
            [
                ("CL then TE", post(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", body), 400),
                ("TE then CL", post(b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", body), 400),
                ("CL 0 then TE", post(b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", body), 400),
                ("TE upper case", post(b"Content-Length: 5\r\nTRANSFER-ENCODING: CHUNKED\r\n", body), 400),
                ("on a GET", get(H + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + body), 400),
                (
                    "to a route that ignores bodies",
                    post(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", body, b"/ignore"),
                    400,
                ),
            ]
        )

    def test_transfer_codings(self):
        body = b"5\r\nhello\r\n0\r\n\r\n"

        def te(*values):
            return post(b"".join(b"Transfer-Encoding: " + v + b"\r\n" for v in values), body)

        self.refuse_all(
            [
                ("chunked not last", te(b"chunked, gzip"), {400, 501}),
                ("chunked not last, two lines", te(b"chunked", b"gzip"), {400, 501}),
                ("chunked twice", te(b"chunked, chunked"), 400),
                ("chunked twice, two lines", te(b"chunked", b"chunked"), 400),
                ("chunked, identity", te(b"chunked, identity"), {400, 501}),
                ("unknown", te(b"xchunked"), {400, 501}),
                ("unknown before chunked", te(b"gzip, chunked"), 501),
                ("unknown alone", te(b"gzip"), {400, 501}),
                ("identity", te(b"identity"), {400, 501}),
                ("empty", te(b""), {400, 501}),
                ("quoted", te(b'"chunked"'), {400, 501}),
                ("with a parameter", te(b"chunked;q=1"), {400, 501}),
                ("two words", te(b"chunked chunked"), {400, 501}),
                ("glued prefix", te(b"xchunked, chunked"), {400, 501}),
                ("vertical tab before", te(b"\x0bchunked"), 400),
                ("form feed after", te(b"chunked\x0c"), 400),
                ("NUL after", te(b"chunked\0"), 400),
                ("folded", te(b"\r\n chunked"), 400),
                ("bare CR inside", te(b"chunked\r"), 400),
                ("space before the colon", post(b"Transfer-Encoding : chunked\r\n", body), 400),
                ("tab before the colon", post(b"Transfer-Encoding\t: chunked\r\n", body), 400),
                ("behind a bare LF", post(b"X: y\nTransfer-Encoding: chunked\r\n", body), 400),
                ("behind a bare CR", post(b"X: y\rTransfer-Encoding: chunked\r\n", body), 400),
                (
                    "behind a bare LF, with length",
                    post(b"Content-Length: 5\r\nX: y\nTransfer-Encoding: chunked\r\n", body),
                    400,
                ),
                ("space in the name", post(b"Transfer Encoding: chunked\r\n", body), 400),
                ("leading space", post(b" Transfer-Encoding: chunked\r\n", body), 400),
            ]
        )

    def test_chunked_any_case_is_fine(self):
        with self.connect() as conn:
            conn.send(post(b"Transfer-Encoding: CHUNKED\r\n", chunked([b"ab", b"c"])) + request("GET", "/n/1"))
            self.assertEqual(conn.response().body, b"abc")
            self.assertEqual(conn.response().text, "1")

    def test_transfer_encoding_in_http_1_0(self):
        body = chunked([b"hello"])
        self.refuse_all(
            [
                ("1.0", post(b"Transfer-Encoding: chunked\r\n", body, version=b"HTTP/1.0"), 400),
                (
                    "1.0 keep-alive",
                    post(
                        b"Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n", body, version=b"HTTP/1.0"
                    ),
                    400,
                ),
                (
                    "1.0 with length",
                    post(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", body, version=b"HTTP/1.0"),
                    400,
                ),
            ]
        )

    def test_content_length(self):
        values = [
            b"-1",
            b"+5",
            b"0x5",
            b"1_0",
            b"5 6",
            b"",
            b"5,5",
            b"5, 5",
            b"5,",
            b",5",
            b"5;6",
            b"five",
            b"5.0",
            b"1e1",
            b"\"5\"",
            b"0 5",
            b"18446744073709551616",
            b"18446744073709551621",
            b"9" * 40,
            b"-0",
            b"5\x0b",
            b"\xb2",
            b"5\0",
        ]
        rows = [(repr(v), post(b"Content-Length: " + v + b"\r\n", b"hello"), 400) for v in values]
        rows += [
            ("differing", post(b"Content-Length: 5\r\nContent-Length: 6\r\n", b"hello"), 400),
            ("differing, case", post(b"content-length: 5\r\nCONTENT-LENGTH: 0\r\n", b"hello"), 400),
            ("twice the same", post(b"Content-Length: 5\r\nContent-Length: 5\r\n", b"hello"), 400),
            ("space before colon", post(b"Content-Length : 5\r\n", b"hello"), 400),
            ("folded", post(b"Content-Length:\r\n 5\r\n", b"hello"), 400),
        ]
        self.refuse_all(rows)

    def test_huge_but_valid_length_is_too_large(self):
        self.refuse_all(
            [
                ("2^63", post(b"Content-Length: 9223372036854775808\r\n", b"hello"), {400, 413}),
                ("2^64-1", post(b"Content-Length: 18446744073709551615\r\n", b"hello"), {400, 413}),
                ("2^63-1", post(b"Content-Length: 9223372036854775807\r\n", b"hello"), 413),
            ]
        )

    BAD_CHUNKS = [
        ("sign -", b"-5\r\nhello\r\n0\r\n\r\n"),
        ("sign +", b"+5\r\nhello\r\n0\r\n\r\n"),
        ("0x", b"0x5\r\nhello\r\n0\r\n\r\n"),
        ("underscore", b"1_0\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n"),
        ("leading space", b" 5\r\nhello\r\n0\r\n\r\n"),
        ("leading tab", b"\t5\r\nhello\r\n0\r\n\r\n"),
        ("inner space", b"5 5\r\nhello\r\n0\r\n\r\n"),
        ("nothing", b"\r\nhello\r\n0\r\n\r\n"),
        ("only an extension", b";a=b\r\nhello\r\n0\r\n\r\n"),
        ("no hex", b"g\r\nhello\r\n0\r\n\r\n"),
        ("comma", b"5,5\r\nhello\r\n0\r\n\r\n"),
        ("overflow 2^64", b"10000000000000000\r\nhello\r\n0\r\n\r\n"),
        ("overflow 2^64+5", b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
        ("overflow 2^68", b"f" * 17 + b"\r\nhello\r\n0\r\n\r\n"),
        ("many digits", b"0" * 400 + b"5\r\nhello\r\n0\r\n\r\n"),
        ("2^64-1", b"f" * 16 + b"\r\nhello\r\n0\r\n\r\n"),
        ("data too long", b"5\r\nhelloX\r\n0\r\n\r\n"),
        ("data then LF", b"5\r\nhello\n0\r\n\r\n"),
        ("data then CR", b"5\r\nhello\r0\r\n\r\n"),
        ("data then nothing", b"5\r\nhello0\r\n\r\n"),
        ("LF after the size", b"5\nhello\r\n0\r\n\r\n"),
        ("CR after the size", b"5\rhello\r\n0\r\n\r\n"),
        ("bare CR in an extension", b"5;a\rb\r\nhello\r\n0\r\n\r\n"),
        ("bare LF in an extension", b"5;a\nb\r\nhello\r\n0\r\n\r\n"),
        ("LF ends an extension", b"5;a=b\nhello\r\n0\r\n\r\n"),
        ("NUL in an extension", b"5;a\0b\r\nhello\r\n0\r\n\r\n"),
        ("extension without a name", b"5;\r\nhello\r\n0\r\n\r\n"),
        ("extension without a name, then one", b"5;;a\r\nhello\r\n0\r\n\r\n"),
        ("value without a name", b"5;=b\r\nhello\r\n0\r\n\r\n"),
        ("name without a value", b"5;a=\r\nhello\r\n0\r\n\r\n"),
        ("quote that does not end", b'5;a="b\r\nhello\r\n0\r\n\r\n'),
        ("quoted-pair at the end", b'5;a="b\\"\r\nhello\r\n0\r\n\r\n'),
        ("quote that does not begin", b'5;a=b"\r\nhello\r\n0\r\n\r\n'),
        ("quote in a quote", b'5;a="b"c"\r\nhello\r\n0\r\n\r\n'),
        ("CR LF in a quote", b'5;a="b\r\nc"\r\nhello\r\n0\r\n\r\n'),
        ("space at the end", b"5;a=b \r\nhello\r\n0\r\n\r\n"),
        ("extension after the last chunk", b"5\r\nhello\r\n0;\r\n\r\n"),
        ("extension of 257 bytes", b"5;" + b"a" * 256 + b"\r\nhello\r\n0\r\n\r\n"),
        ("endless extension", b"5;" + b"a" * 100000 + b"\r\nhello\r\n0\r\n\r\n"),
        ("LF after the last chunk", b"5\r\nhello\r\n0\n\r\n"),
        ("LF after the trailers", b"5\r\nhello\r\n0\r\nX: y\r\n\n"),
        ("LF in the trailers", b"5\r\nhello\r\n0\r\nX: y\n\r\n"),
        ("space before a trailer's colon", b"5\r\nhello\r\n0\r\nX : y\r\n\r\n"),
        ("folded trailer", b"5\r\nhello\r\n0\r\nX: y\r\n z\r\n\r\n"),
        ("NUL in a trailer", b"5\r\nhello\r\n0\r\nX: \0\r\n\r\n"),
        ("trailer without colon", b"5\r\nhello\r\n0\r\nGET /evil HTTP/1.1\r\n\r\n"),
        ("trailer without name", b"5\r\nhello\r\n0\r\n: x\r\n\r\n"),
    ]

    def test_chunks_refused(self):
        self.refuse_all(
            [(name, post(b"Transfer-Encoding: chunked\r\n", body), 400) for name, body in self.BAD_CHUNKS]
        )

    def test_bad_chunks_to_a_handler_that_does_not_read(self):
        """The handler may have answered already, but the bytes after a malformed body are not served as a request."""

        def check(body):
            with self.server.connect() as conn:
                conn.try_send(post(b"Transfer-Encoding: chunked\r\n", body, b"/ignore") + EVIL)
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
            ("extensions", b'5;a=b;c="d e"\r\nhello\r\n0;x\r\n\r\n'),
            ("white space and quotes", b'5 ; a = "b\\"\\\\;c" ;d\r\nhello\r\n0\t;\tx\r\n\r\n'),
            ("extension of 256 bytes", b"5;" + b"a" * 255 + b"\r\nhello\r\n0\r\n\r\n"),
            ("upper and lower hex", b"00A\r\n" + b"x" * 10 + b"\r\n00a\r\n" + b"y" * 10 + b"\r\n0\r\n\r\n"),
            ("many zeros at the end", b"1\r\nz\r\n000\r\n\r\n"),
            ("trailers", b"1\r\nz\r\n0\r\nX-A: 1\r\nX-B: 2\r\n\r\n"),
            ("empty", b"0\r\n\r\n"),
        ]
        want = {
            "extensions": b"hello",
            "white space and quotes": b"hello",
            "extension of 256 bytes": b"hello",
            "upper and lower hex": b"x" * 10 + b"y" * 10,
            "many zeros at the end": b"z",
            "trailers": b"z",
            "empty": b"",
        }

        def check(row):
            name, body = row
            with self.server.connect() as conn:
                conn.send(post(b"Transfer-Encoding: chunked\r\n", body) + request("GET", "/n/1"))
                got = conn.response()
                if (got.status, got.body) != (200, want[name]):
                    raise AssertionError(got)
                if conn.response().text != "1":
                    raise AssertionError("the next request was not answered")

        table(self, [(row[0], row) for row in rows], check)

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

    def test_trailers_are_bounded(self):
        many = b"".join(b"X-%d: y\r\n" % n for n in range(2000))
        self.refuse_all(
            [
                ("too many", post(b"Transfer-Encoding: chunked\r\n", chunked([b"x"], many)), {400, 431}),
                (
                    "too long",
                    post(b"Transfer-Encoding: chunked\r\n", chunked([b"x"], b"X: " + b"y" * 100000 + b"\r\n")),
                    {400, 431},
                ),
            ]
        )

    def test_chunked_body_too_large(self):
        with self.connect() as conn:
            conn.try_send(
                post(b"Transfer-Encoding: chunked\r\n", chunked([b"x" * 60, b"x" * 60]), b"/small") + EVIL
            )
            response = conn.response()
            self.assertEqual((response.status, response.closes), (413, True))
            conn.expect_end()
        self.assertEqual(self.server.logged("EVIL"), [])

    def test_no_follow_up_is_served_from_a_body(self):
        """A body that looks like a request is not served as one, whether the handler reads the body or not."""
        for target in (b"/echo", b"/ignore", b"/none"):
            for body, fields in (
                (EVIL, b"Content-Length: %d\r\n" % len(EVIL)),
                (chunked([EVIL, EVIL]), b"Transfer-Encoding: chunked\r\n"),
            ):
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

    def test_split_at_every_byte(self):
        """Each request in two pieces, cut at every byte, on a connection for each cut; then one byte at a time."""
        asks = [
            (request("GET", "/n/7?x=1", {"X-Field": "value", "Cookie": "a=b"}), b"7"),
            (request("POST", "/echo", body=b"hello body"), b"hello body"),
            (
                request(
                    "POST",
                    "/echo",
                    {"Transfer-Encoding": "chunked"},
                    chunked([b"hello", b" ", b"chunks" * 3], b"X-T: 1\r\n"),
                ),
                b"hello " + b"chunks" * 3,
            ),
            (
                b"\r\n"
                + request("POST", "/pieces", {"Transfer-Encoding": "chunked"}, b"3;ext=1\r\nabc\r\n0\r\n\r\n"),
                b"abc",
            ),
        ]
        for data, body in asks:
            with self.subTest(data[:20]):
                data += request("GET", "/n/next")
                conns = [self.server.connect() for _ in range(1, len(data))]
                try:
                    for at, conn in enumerate(conns, 1):
                        conn.send(data[:at])
                    for at, conn in enumerate(conns, 1):
                        conn.send(data[at:])
                    for at, conn in enumerate(conns, 1):
                        response = conn.response()
                        self.assertEqual((response.status, response.body), (200, body), "cut at %d" % at)
                        self.assertEqual(conn.response().text, "next", "cut at %d" % at)
                finally:
                    for conn in conns:
                        conn.close()
                with self.server.connect() as conn:
                    for n in range(len(data)):
                        conn.send(data[n : n + 1])
                    self.assertEqual(conn.response().body, body)
                    self.assertEqual(conn.response().text, "next")
