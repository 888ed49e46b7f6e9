"""HTTP/1.1 complete and strict (RFC 9110, 9112): what is refused, with which status, and that nothing follows it.

Every row of a table is one connection: bytes that must be refused, followed by a request that must never be answered
(its handler leaves a line in the log). The answer must be one response of an allowed status, announced as the last, then
the end of the connection."""
import json
import os
import threading

from harness import E2E, Closed, chunked, in_parallel, main, repeats, request, table

SITE = r"""
local ls = require "luaserve"
local app = ls.app()
app:get("/", function() return "root" end)
app:any("/evil", function() ls.log.warn("EVIL was served"); return "evil" end)
app:get("/host", function(req) return { host = req.host, path = req.path, query = req.query.q, target = req.target } end)
app:any("/echo", function(req) return req:body() end)
app:any("/ignore", function() return "ignored" end)
app:any("/pieces", function(req, res)
  for piece in req:chunks() do res:write(piece) end
end)
app:post("/small", { max_body = 100 }, function(req) return req:body() end)
app:get("/n/:n", function(req) return req.params.n end)
app:get("/slow/:n", function(req) ls.sleep(0.02); return req.params.n end)
app:get("/nap", function() ls.sleep(0.15); return "nap" end)
app:get("/stream", function(_, res) for i = 1, 3 do res:write("part ", i, "\n"); res:flush() end end)
app:get("/n204", function() return 204 end)
app:get("/n304", function() return 304, "must not be sent" end)
app:get("/n204body", function() return 204, "must not be sent" end)
app:get("/n205", function() return 205 end)
app:get("/n205body", function() return 205, "must not be sent" end)
app:get("/n205parts", function(_, res) res:status(205) res:write("must not") res:flush() res:write("be sent") end)
app:get("/big", function() return ("0123456789"):rep(1000):rep(100) end)
app:post("/told", function(req)
  local ok, body, message, code = pcall(req.body, req)
  ls.log.info("told " .. (req.query.tag or "") .. " " .. tostring(ok) .. " " .. tostring(body):sub(1, 40) .. " " .. tostring(message) .. " " .. tostring(code))
  return "told"
end)
app:not_found(function() return 404, "none" end)
ls.listen{ host = "127.0.0.1", port = 0, app = app }
"""

EVIL = request("GET", "/evil")
H = b"Host: h\r\n"


def get(rest, target=b"/", version=b"HTTP/1.1", method=b"GET"):
    return method + b" " + target + b" " + version + b"\r\n" + rest


def post(fields, body=b"", target=b"/echo", version=b"HTTP/1.1"):
    return b"POST " + target + b" " + version + b"\r\n" + H + fields + b"\r\n" + body


class Strict(E2E):
    SITE = SITE

    def refused(self, data, statuses, follow=EVIL):
        with self.server.connect() as conn:
            conn.try_send(data + follow)
            response = conn.response()
            if response.status not in statuses:
                raise AssertionError("got %r, expected %s" % (response, sorted(statuses)))
            if not response.closes:
                raise AssertionError("no Connection: close on %r" % response)
            if response.interim:
                raise AssertionError("an interim response %r before %r" % (response.interim, response))
            conn.expect_end()

    def refuse_all(self, rows):
        """rows: (name, bytes, status or statuses)"""
        cases = [
            (name, (data, status if isinstance(status, (set, tuple)) else {status}))
            for name, data, status in rows
        ]
        table(self, cases, lambda case: self.refused(*case))
        self.assertEqual(self.server.logged("EVIL"), [])
        self.assertEqual(self.get("/n/after").text, "after")

    def test_01_transfer_encoding_with_length(self):
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

    def test_02_transfer_codings(self):
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

    def test_02_chunked_any_case_is_fine(self):
        with self.connect() as conn:
            conn.send(post(b"Transfer-Encoding: CHUNKED\r\n", chunked([b"ab", b"c"])) + request("GET", "/n/1"))
            self.assertEqual(conn.response().body, b"abc")
            self.assertEqual(conn.response().text, "1")

    def test_03_transfer_encoding_in_http_1_0(self):
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

    def test_04_content_length(self):
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

    def test_04_huge_but_valid_length_is_too_large(self):
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

    def test_05_chunks_refused(self):
        self.refuse_all(
            [(name, post(b"Transfer-Encoding: chunked\r\n", body), 400) for name, body in self.BAD_CHUNKS]
        )

    def test_05_bad_chunks_to_a_handler_that_does_not_read(self):
        """The handler may have answered already; but what follows the broken body is never taken for a request."""

        def check(body):
            with self.server.connect() as conn:
                conn.try_send(post(b"Transfer-Encoding: chunked\r\n", body, b"/ignore") + EVIL)
                response = conn.response()
                if response.status not in (200, 400):
                    raise AssertionError(response)
                rest = conn.rest()
                if b"evil" in rest or b"HTTP/1.1 200" in rest:
                    raise AssertionError("something more was answered: %r" % rest)

        table(self, self.BAD_CHUNKS, check)
        self.assertEqual(self.server.logged("EVIL"), [])

    def test_05_chunks_accepted(self):
        rows = [
            ("extensions", b'5;a=b;c="d e"\r\nhello\r\n0;x\r\n\r\n'),
            ("upper and lower hex", b"00A\r\n" + b"x" * 10 + b"\r\n00a\r\n" + b"y" * 10 + b"\r\n0\r\n\r\n"),
            ("many zeros at the end", b"1\r\nz\r\n000\r\n\r\n"),
            ("trailers", b"1\r\nz\r\n0\r\nX-A: 1\r\nX-B: 2\r\n\r\n"),
            ("empty", b"0\r\n\r\n"),
        ]
        want = {
            "extensions": b"hello",
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

    def test_06_trailers_change_nothing(self):
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

    def test_06_trailers_are_bounded(self):
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

    def test_07_characters(self):
        rows = [
            ("NUL in a value", get(H + b"X: a\0b\r\n\r\n")),
            ("NUL in a name", get(H + b"X\0Y: a\r\n\r\n")),
            ("NUL in the target", get(H + b"\r\n", b"/a\0b")),
            ("NUL in the method", get(H + b"\r\n", method=b"GE\0T")),
            ("NUL in the version", get(H + b"\r\n", version=b"HTTP/1.1\0")),
            ("bare CR in a value", get(H + b"X: a\rb\r\n\r\n")),
            ("bare CR in a name", get(H + b"X\rY: a\r\n\r\n")),
            ("bare CR in the target", get(H + b"\r\n", b"/a\rb")),
            ("CR CR LF", get(H + b"X: a\r\r\n\r\n")),
            ("CR CR LF in the request line", b"GET / HTTP/1.1\r\r\n" + H + b"\r\n"),
            ("bare LF in the request line", b"GET / HTTP/1.1\n" + H + b"\r\n"),
            ("bare LF after a field", b"GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n"),
            ("bare LFs only", b"GET / HTTP/1.1\nHost: h\n\n"),
            ("bare LF at the end", b"GET / HTTP/1.1\r\nHost: h\r\n\n"),
            ("LF first", b"\nGET / HTTP/1.1\r\n" + H + b"\r\n"),
            ("fold, space", get(H + b"X: a\r\n b\r\n\r\n")),
            ("fold, tab", get(H + b"X: a\r\n\tb\r\n\r\n")),
            ("fold of Host", get(b"Host:\r\n h\r\n\r\n")),
            ("space before the first field", get(b" X: y\r\n" + H + b"\r\n")),
            ("tab before the first field", get(b"\tX: y\r\n" + H + b"\r\n")),
            ("space before the colon", get(H + b"X : y\r\n\r\n")),
            ("tab before the colon", get(H + b"X\t: y\r\n\r\n")),
            ("space in a name", get(H + b"X Y: z\r\n\r\n")),
            ("empty name", get(H + b": z\r\n\r\n")),
            ("no colon", get(H + b"XYZ\r\n\r\n")),
            ("DEL in a value", get(H + b"X: a\x7fb\r\n\r\n")),
            ("control in a value", get(H + b"X: a\x01b\r\n\r\n")),
            ("high byte in a name", get(H + b"X\xe9: z\r\n\r\n")),
        ]
        rows += [
            ("%r in a name" % c, get(H + b"X" + c + b"Y: z\r\n\r\n"))
            for c in (
                b"(",
                b")",
                b"<",
                b"@",
                b",",
                b";",
                b"\\",
                b'"',
                b"/",
                b"[",
                b"]",
                b"?",
                b"=",
                b"{",
                b"}",
                b"\x01",
                b"\x7f",
            )
        ]
        rows += [
            ("%r in the method" % c, get(H + b"\r\n", method=b"G" + c + b"T"))
            for c in (b"(", b"\\", b'"', b"/", b":", b"\x01", b"\xe9", b"\t", b",")
        ]
        rows += [
            ("control in the target", get(H + b"\r\n", b"/a\x01b")),
            ("DEL in the target", get(H + b"\r\n", b"/a\x7fb")),
            ("space in the target", get(H + b"\r\n", b"/a b")),
            ("tab in the target", get(H + b"\r\n", b"/a\tb")),
            ("two spaces after the method", b"GET  / HTTP/1.1\r\n" + H + b"\r\n"),
            ("two spaces before the version", b"GET /  HTTP/1.1\r\n" + H + b"\r\n"),
            ("tab after the method", b"GET\t/ HTTP/1.1\r\n" + H + b"\r\n"),
            ("space after the version", b"GET / HTTP/1.1 \r\n" + H + b"\r\n"),
            ("space first", b" GET / HTTP/1.1\r\n" + H + b"\r\n"),
            ("no target", b"GET HTTP/1.1\r\n" + H + b"\r\n"),
            ("no method", b"/ HTTP/1.1\r\n" + H + b"\r\n"),
            ("only a method", b"GET\r\n" + H + b"\r\n"),
            ("TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100) + b"\r\n\r\n"),
            ("target without slash", get(H + b"\r\n", b"foo")),
            ("target is a question mark", get(H + b"\r\n", b"?a=b")),
        ]
        self.refuse_all(
            [
                (
                    name,
                    data,
                    {400, 505}
                    if "version" in name
                    or name
                    in (
                        "no target",
                        "no method",
                        "only a method",
                        "TLS hello",
                        "space in the target",
                        "tab in the target",
                    )
                    else 400,
                )
                for name, data in rows
            ]
        )

    def test_07_values_that_are_fine(self):
        for value in (b"a\tb", b"\xe9\xff", b"", b"   ", b"!#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"):
            with self.subTest(value), self.server.connect() as conn:
                conn.send(get(H + b"X: " + value + b"\r\n\r\n"))
                self.assertEqual(conn.response().status, 200)

    def test_08_host(self):
        self.refuse_all(
            [
                ("missing", get(b"\r\n"), 400),
                ("missing, other fields", get(b"X: y\r\n\r\n"), 400),
                ("twice", get(H + H + b"\r\n"), 400),
                ("twice, differing", get(H + b"host: other\r\n\r\n"), 400),
                ("space inside", get(b"Host: a b\r\n\r\n"), 400),
                ("slash", get(b"Host: a/b\r\n\r\n"), 400),
                ("user", get(b"Host: u@h\r\n\r\n"), 400),
                ("no bracket", get(b"Host: [::1\r\n\r\n"), 400),
                ("bad port", get(b"Host: h:80x\r\n\r\n"), 400),
                ("two ports", get(b"Host: h:80:81\r\n\r\n"), 400),
                ("question mark", get(b"Host: h?x\r\n\r\n"), 400),
                ("hash", get(b"Host: h#x\r\n\r\n"), 400),
                ("backslash", get(b"Host: h\\x\r\n\r\n"), 400),
                ("high byte", get(b"Host: h\xe9\r\n\r\n"), 400),
                ("missing with absolute form", get(b"\r\n", b"http://h/"), 400),
                ("tab inside", get(b"Host: a\tb\r\n\r\n"), 400),
            ]
        )
        for host in ("h", "h:80", "example.org", "127.0.0.1:8080", "[::1]", "[::1]:80", "a-b.c_d~e"):
            with self.subTest(host):
                self.assertEqual(json.loads(self.get("/host", {"Host": host}).text)["host"], host)

    def test_08_host_is_not_needed_in_1_0(self):
        with self.connect() as conn:
            conn.send(b"GET / HTTP/1.0\r\n\r\n")
            self.assertEqual(conn.response().text, "root")
            conn.expect_end()

    def test_08_absolute_form_wins(self):
        with self.connect() as conn:
            got = json.loads(conn.get("http://other.example:81/host?q=1").text)
            self.assertEqual((got["host"], got["path"], got["query"]), ("other.example:81", "/host", "1"))
            self.assertEqual(conn.get("http://other").text, "root")
            self.assertEqual(conn.get("HTTP://other/").text, "root")
            self.assertEqual(conn.get("http://other?x=1").text, "root")

    def test_08_other_forms(self):
        self.refuse_all(
            [
                ("GET *", get(H + b"\r\n", b"*"), 400),
                ("POST *", get(H + b"Content-Length: 0\r\n\r\n", b"*", method=b"POST"), 400),
                ("CONNECT", get(H + b"\r\n", b"h:443", method=b"CONNECT"), {400, 405, 501}),
                ("CONNECT with a path", get(H + b"\r\n", b"/evil", method=b"CONNECT"), {400, 405, 501}),
                ("GET authority form", get(H + b"\r\n", b"h:443"), 400),
            ]
        )
        with self.connect() as conn:
            self.assertIn(conn.ask("OPTIONS", "*").status, (200, 204))
            self.assertEqual(conn.get("/n/1").text, "1")

    def test_09_sizes(self):
        long_target = b"/n/" + b"a" * (8192 - 3)
        with self.connect() as conn:
            conn.send(get(H + b"\r\n", b"/n/" + b"a" * 7980))  # 8,000 octets and some of request line
            self.assertEqual(conn.response().status, 200)
            conn.send(get(H + b"\r\n", long_target))
            self.assertEqual(conn.response().status, 200)
            conn.send(get(b"".join(b"X-%d: y\r\n" % n for n in range(99)) + H + b"\r\n"))
            self.assertEqual(conn.response().status, 200)
            head = get(H + b"X: " + b"\r\n\r\n")
            conn.send(get(H + b"X: " + b"a" * (16384 - len(head)) + b"\r\n\r\n"))
            self.assertEqual(conn.response().status, 200)
        self.refuse_all(
            [
                ("target one too long", get(H + b"\r\n", long_target + b"a"), 414),
                ("target much too long", get(H + b"\r\n", b"/" + b"a" * 100000), 414),
                ("target without end", b"GET /" + b"a" * 200000, 414),
                (
                    "one field too many",
                    get(b"".join(b"X-%d: y\r\n" % n for n in range(100)) + H + b"\r\n"),
                    431,
                ),
                ("head one too long", get(H + b"X: " + b"a" * (16384 - len(head) + 1) + b"\r\n\r\n"), 431),
                ("field without end", get(H + b"X: " + b"a" * 200000), 431),
                ("name without end", get(H + b"X" * 200000), {400, 431}),
                ("many fields without end", get(H + b"X: y\r\n" * 20000), 431),
            ]
        )

    def test_10_versions(self):
        versions = [
            b"HTTP/2.0",
            b"HTTP/9.9",
            b"HTTP/3.0",
            b"HTTP/0.9",
            b"HTTP/1.11",
            b"HTTP/11.1",
            b"HTTP/01.1",
            b"HTTP/1.",
            b"HTTP/.1",
            b"HTTP/1",
            b"HTTP/1,1",
            b"http/1.1",
            b"Http/1.1",
            b"HTP/1.1",
            b"HTTP 1.1",
            b"HTTP/1.1.1",
            b"HTTP/1.1x",
            b"HTTP/a.b",
            b"HTTP/-1.1",
            b"HTTPS/1.1",
            b"ICY/1.1",
            b"",
        ]
        rows = [
            (
                repr(v),
                get(H + b"\r\n", version=v),
                505 if v in (b"HTTP/2.0", b"HTTP/9.9", b"HTTP/3.0") else {400, 505},
            )
            for v in versions
        ]
        rows += [
            ("none at all", b"GET /\r\n" + H + b"\r\n", {400, 505}),
            ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400, 505}),
        ]
        self.refuse_all(rows)

    def test_11_empty_lines_first(self):
        with self.connect() as conn:
            conn.send(b"\r\n" + request("GET", "/n/1"))
            self.assertEqual(conn.response().text, "1")
            conn.send(b"\r\n" + request("GET", "/n/2"))
            self.assertEqual(conn.response().text, "2")
            conn.send(request("POST", "/echo", body=b"x") + b"\r\n" + request("GET", "/n/3"))
            self.assertEqual(conn.response().body, b"x")
            self.assertEqual(conn.response().text, "3")

    def test_11_endless_empty_lines_are_bounded(self):
        with self.connect() as conn:
            conn.try_send(b"\r\n" * 500000)
            try:
                rest = conn.rest()
            except ConnectionResetError:
                rest = b""
            self.assertTrue(rest == b"" or rest.startswith(b"HTTP/1.1 4"), rest[:100])
        self.assertEqual(self.get("/n/1").text, "1")

    def test_14_expectations(self):
        self.refuse_all(
            [
                ("too large", post(b"Content-Length: 9000000\r\n"), 413),
                (
                    "too large, to be continued",
                    post(b"Expect: 100-continue\r\nContent-Length: 9000000\r\n"),
                    413,
                ),
                (
                    "too large for the route, to be continued",
                    post(b"Expect: 100-continue\r\nContent-Length: 101\r\n", target=b"/small"),
                    413,
                ),
            ]
        )
        with self.connect() as conn:  # a short body may be skipped instead of closing, but is never a request
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

    def test_14_chunked_body_too_large(self):
        with self.connect() as conn:
            conn.try_send(
                post(b"Transfer-Encoding: chunked\r\n", chunked([b"x" * 60, b"x" * 60]), b"/small") + EVIL
            )
            response = conn.response()
            self.assertEqual((response.status, response.closes), (413, True))
            conn.expect_end()
        self.assertEqual(self.server.logged("EVIL"), [])

    def test_no_follow_up_is_served_from_a_body(self):
        """A body that looks like a request is a body, whether the handler reads it or not."""
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
                        self.assertTrue(first.closes, "closed without saying so")
        with self.server.connect() as conn:
            conn.send(get(H + b"Content-Length: %d\r\n\r\n" % len(EVIL) + EVIL) + request("GET", "/n/after"))
            self.assertEqual((conn.response().text, conn.response().text), ("root", "after"))
        self.assertEqual(self.server.logged("EVIL"), [])


class Order(E2E):
    SITE = SITE

    def test_12_pipelined_in_order(self):
        for name in ("n", "slow"):
            with self.subTest(name), self.connect() as conn:
                conn.send(
                    b"".join(request("GET", "/%s/%d" % (name, n)) for n in range(100 if name == "n" else 20))
                )
                for n in range(100 if name == "n" else 20):
                    self.assertEqual(conn.response().text, str(n))
                self.assertEqual(conn.get("/n/x").text, "x")

    def test_12_pipelined_fast_and_sleeping(self):
        with self.connect() as conn:
            targets = ["/slow/%d" % n if n % 5 == 0 else "/n/%d" % n for n in range(100)]
            conn.send(b"".join(request("GET", t) for t in targets))
            for n in range(100):
                self.assertEqual(conn.response().text, str(n))

    def test_12_pipelined_kinds(self):
        with self.connect() as conn:
            asks = [
                ("GET", "/stream", None),
                ("HEAD", "/big", None),
                ("POST", "/echo", b"x" * 20000),
                ("GET", "/n204", None),
                ("GET", "/big", None),
                ("POST", "/pieces", b"y" * 30000),
                ("GET", "/nowhere", None),
                ("DELETE", "/big", None),
                ("HEAD", "/stream", None),
                ("GET", "/n304", None),
                ("GET", "/slow/1", None),
            ]
            data = b"".join(request(m, t, (), b) for m, t, b in asks) * 3
            sender = threading.Thread(target=conn.try_send, args=(data,))
            sender.start()
            for method, target, body in asks * 3:
                response = conn.response(method)
                want = {
                    "/echo": body,
                    "/pieces": body,
                    "/slow/1": b"1",
                    "/stream": b"part 1\npart 2\npart 3\n",
                }.get(target)
                if want is not None and method != "HEAD":
                    self.assertEqual(response.body, want, target)
            sender.join()

    def test_12_nothing_after_close(self):
        with self.connect() as conn:
            conn.send(
                request("GET", "/n/1")
                + request("GET", "/n/2", {"Connection": "close"})
                + EVIL
                + b"complete nonsense\0\r\n\r\n"
            )
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
                response = conn.send(
                    request("GET", "/n/%d" % n, {"Connection": "keep-alive"}, version="HTTP/1.0")
                ).response()
                self.assertEqual(response.text, str(n))
                self.assertEqual(response.header("Connection", "").lower(), "keep-alive")
        with self.connect() as conn:
            conn.send(request("GET", "/stream", {"Connection": "keep-alive"}, version="HTTP/1.0"))
            response = conn.response()
            self.assertEqual(
                (response.text, response.chunked, response.to_close), ("part 1\npart 2\npart 3\n", False, True)
            )
        with self.connect() as conn:
            response = conn.send(
                request("POST", "/echo", {"Expect": "100-continue"}, b"hello", version="HTTP/1.0")
            ).response()
            self.assertEqual((response.interim, response.body), ([], b"hello"))
        self.assertEqual(self.server.logged("EVIL"), [])

    def test_17_no_body_where_none_may_be(self):
        with self.connect() as conn:
            for target in ("/n204", "/n204body", "/n304"):
                response = conn.get(target)
                self.assertEqual(response.body, b"")
            for target in ("/n205", "/n205body", "/n205parts"):  # with a length: it says where the message ends
                response = conn.get(target)
                self.assertEqual((response.body, response.header("Content-Length")), (b"", "0"), target)
            for target in ("/big", "/stream", "/echo", "/nowhere", "/n204"):
                conn.ask("HEAD", target)
            self.assertEqual(conn.ask("HEAD", "/big").header("Content-Length"), "1000000")
            self.assertEqual(conn.get("/n/1").text, "1")

    def test_split_at_every_byte(self):
        """Two pieces, cut at every place, on a connection each; then one byte at a time."""
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

    def test_14_continue(self):
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

    def test_14_no_continue_for_a_handler_that_does_not_read(self):
        """Whether the client sends the body after all or not, it is never taken for a request."""
        with self.connect() as conn:
            conn.send(request("POST", "/ignore", {"Expect": "100-continue", "Content-Length": str(len(EVIL))}))
            response = conn.response()
            self.assertEqual((response.text, response.interim), ("ignored", []))
            conn.try_send(EVIL)
            if response.closes:
                self.assertNotIn(b"evil", conn.rest())
            else:
                self.assertEqual(conn.get("/n/1").text, "1")
        self.assertEqual(self.server.logged("EVIL"), [])

    def test_13_lingering_close(self):
        """The answer can be read although the client goes on to send 10 MB before it looks."""
        noise = os.urandom(1 << 20)
        for name, head in (
            ("too large", post(b"Content-Length: 20000000\r\n")),
            ("broken", b"GET / HTTP/9.9\r\n\r\n"),
            ("bad chunk", post(b"Transfer-Encoding: chunked\r\n", b"zzz\r\n")),
            ("head without end", b"GET /" + b"a" * 20000),
        ):
            with self.subTest(name), self.server.connect() as conn:
                conn.send(head)
                for _ in range(10):
                    conn.send(noise)
                response = conn.response()
                self.assertIn(response.status, (400, 413, 414, 505))
                conn.expect_end()

    def test_13_close_while_the_client_still_sends(self):
        with self.connect() as conn:
            conn.send(request("POST", "/ignore", {"Content-Length": "8000000", "Connection": "close"}))
            for _ in range(7):
                conn.send(b"x" * 1000000)
            response = conn.response()
            self.assertEqual((response.status, response.text), (200, "ignored"))

    def test_16_truncated(self):
        """Nothing that was cut off is taken for complete; a handler that reads is told."""
        before = self.quiet_fds()

        def check(case):
            data, told = case
            with self.server.connect() as conn:
                conn.send(data)
                conn.half_close()
                try:
                    rest = conn.rest()
                except ConnectionResetError:
                    rest = b""
                if rest and not rest.startswith(
                    (b"HTTP/1.1 400", b"HTTP/1.1 408", b"HTTP/1.1 200 OK" if told else b"HTTP/1.1 4")
                ):
                    raise AssertionError(rest[:300])

        table(
            self,
            [
                ("in the method", (b"GE", False)),
                ("in the head", (b"GET / HTTP/1.1\r\nHost: h\r\n", False)),
                ("before the last LF", (b"GET /evil HTTP/1.1\r\nHost: h\r\n\r", False)),
                ("nothing", (b"", False)),
                ("in a body", (request("POST", "/told?tag=cut", {"Content-Length": "10"}) + b"hello", True)),
                (
                    "in a chunk",
                    (request("POST", "/told?tag=cut", {"Transfer-Encoding": "chunked"}) + b"5\r\nhel", True),
                ),
                (
                    "before the last chunk",
                    (
                        request("POST", "/told?tag=cut", {"Transfer-Encoding": "chunked"}) + b"5\r\nhello\r\n",
                        True,
                    ),
                ),
                (
                    "in the trailers",
                    (
                        request("POST", "/told?tag=cut", {"Transfer-Encoding": "chunked"})
                        + b"5\r\nhello\r\n0\r\n",
                        True,
                    ),
                ),
            ],
            check,
        )
        self.server.wait_log("told cut", count=4)
        for line in self.server.logged("told cut"):
            self.assertNotRegex(line, r"told cut true hel")
        self.assertEqual(self.server.logged("EVIL"), [])
        self.eventually(lambda: self.server.fds() <= before, "the descriptors came back")

    def test_16_half_close_after_whole_requests(self):
        """A client that has said all it wants still gets every answer."""
        for target in ("/n/1", "/slow/1"):
            with self.subTest(target), self.server.connect() as conn:
                conn.send(request("GET", target) * 3)
                conn.half_close()
                for _ in range(3):
                    self.assertEqual(conn.response().text, "1")
                conn.expect_end()

    def test_16_resets(self):
        """Resets at every stage: no descriptor stays, no signal kills, others are served."""
        before = self.quiet_fds()

        def one(n):
            conn = self.server.connect()
            kind = n % 6
            if kind == 0:
                conn.send(b"GET / HT")
            elif kind == 1:
                conn.send(request("POST", "/told?tag=reset", {"Content-Length": "100000"}) + b"x" * 1000)
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
        self.eventually(lambda: self.server.fds() <= before, "the descriptors came back")


if __name__ == "__main__":
    main()
