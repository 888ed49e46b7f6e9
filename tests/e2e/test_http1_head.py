"""HTTP/1.1 request heads (RFC 9112, sections 2 to 5): characters, Host, forms of the target, sizes, versions, empty
lines."""
import json

from harness import request
from harness.http1 import H, Http1, get


class Head(Http1):
    def test_characters(self):
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

    def test_values_that_are_fine(self):
        for value in (b"a\tb", b"\xe9\xff", b"", b"   ", b"!#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"):
            with self.subTest(value), self.server.connect() as conn:
                conn.send(get(H + b"X: " + value + b"\r\n\r\n"))
                self.assertEqual(conn.response().status, 200)

    def test_host(self):
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

    def test_host_is_not_needed_in_1_0(self):
        with self.connect() as conn:
            conn.send(b"GET / HTTP/1.0\r\n\r\n")
            self.assertEqual(conn.response().text, "root")
            conn.expect_end()

    def test_absolute_form_wins(self):
        with self.connect() as conn:
            got = json.loads(conn.get("http://other.example:81/host?q=1").text)
            self.assertEqual((got["host"], got["path"], got["query"]), ("other.example:81", "/host", "1"))
            self.assertEqual(conn.get("http://other").text, "root")
            self.assertEqual(conn.get("HTTP://other/").text, "root")
            self.assertEqual(conn.get("http://other?x=1").text, "root")

    def test_other_forms(self):
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

    def test_sizes(self):
        long_target = b"/n/" + b"a" * (8192 - 3)
        with self.connect() as conn:
            conn.send(get(H + b"\r\n", b"/n/" + b"a" * 7980))  # RFC 9112, section 3: request lines of 8,000 octets at least
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

    def test_versions(self):
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

    def test_empty_lines_first(self):
        with self.connect() as conn:
            conn.send(b"\r\n" + request("GET", "/n/1"))
            self.assertEqual(conn.response().text, "1")
            conn.send(b"\r\n" + request("GET", "/n/2"))
            self.assertEqual(conn.response().text, "2")
            conn.send(request("POST", "/echo", body=b"x") + b"\r\n" + request("GET", "/n/3"))
            self.assertEqual(conn.response().body, b"x")
            self.assertEqual(conn.response().text, "3")

    def test_endless_empty_lines_are_bounded(self):
        with self.connect() as conn:
            conn.try_send(b"\r\n" * 500000)
            try:
                rest = conn.rest()
            except ConnectionResetError:
                rest = b""
            self.assertTrue(rest == b"" or rest.startswith(b"HTTP/1.1 4"), rest[:100])
        self.assertEqual(self.get("/n/1").text, "1")
