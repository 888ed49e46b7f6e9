"""The programs in examples/, each started with the command line that its comment gives."""
import json
import os
import re
import subprocess
import unittest

from harness import E2E, LUASERVE, ROOT, WAIT, WINDOWS, needs_terminal, read_bytes, read_text
from harness.terminal import terminal

EXAMPLES = os.path.join(ROOT, "examples")
HERE = "127.0.0.1:0"


def source(name):
    return read_text(os.path.join(EXAMPLES, name))


class Hello(E2E):
    SITE = source("hello.lua")
    ARGS = (HERE,)

    def test_hello(self):
        self.assertEqual(self.get("/").text, "hello\n")
        self.assertEqual(self.get("/hello/w%20d").text, "hello, w d\n")
        self.assertEqual(self.get("/hello").status, 404)


class Static(E2E):
    def test_a_folder(self):
        folder = os.path.join(ROOT, "lua", "docs")
        server = self.serve(source("static.lua"), args=(folder, HERE))
        listing = server.get("/")
        self.assertEqual(listing.status, 200)
        self.assertIn('<a href="reference/">reference/</a>', listing.text)
        whole = read_bytes(os.path.join(folder, "faq.md"))
        response = server.get("/faq.md")
        self.assertEqual((response.body, response.header("Cache-Control")), (whole, "no-cache"))
        self.assertEqual(server.get("/faq.md", {"If-None-Match": response.header("ETag")}).status, 304)
        self.assertEqual(server.get("/faq.md", {"Range": "bytes=10-19"}).body, whole[10:20])
        self.assertEqual(server.get("/reference").header("Location"), "/reference/")


class Links(E2E):
    SITE = source("links.lua")
    ARGS = (HERE,)

    def test_links(self):
        paths = [self.ask("POST", "/", body=b"https://example.org/%d" % n).text.strip() for n in range(1, 13)]
        self.assertEqual(paths, ["/%d" % n for n in range(1, 13)])
        for _ in range(3):
            response = self.get("/12")
            self.assertEqual((response.status, response.header("Location")), (302, "https://example.org/12"))
        latest = json.loads(self.get("/latest").text)
        self.assertEqual([link["id"] for link in latest], list(range(12, 2, -1)))
        self.assertEqual((latest[0]["url"], latest[0]["visits"], latest[1]["visits"]), ("https://example.org/12", 3, 0))
        self.assertEqual(self.get("/13").status, 404)
        self.assertEqual(self.get("/x").status, 404)
        self.assertEqual([self.get("/" + name).status for name in ("0x1", "1e0", "%201", "1.0", "99999999999999999999")], [404] * 5)
        self.assertEqual(self.ask("POST", "/", body=b"javascript:alert(1)").status, 400)
        self.assertEqual(self.ask("POST", "/", body=b"https://example.org/\xff").status, 400)
        self.assertEqual(self.get("/latest").status, 200)
        statuses = [self.ask("POST", "/", body=b"https://example.org/").status for _ in range(9)]
        self.assertEqual(statuses, [201] * 8 + [429])


class Site(E2E):
    SITE = source("site.lua")
    ARGS = (HERE,)

    def json(self, *args, **kw):
        response = self.ask(*args, **kw)
        self.assertTrue(response.header("Content-Type").startswith("application/json"), response)
        return response.status, json.loads(response.text)

    def test_index_lists_lines_to_try(self):
        response = self.get("/", {"Host": "example.org:8080"})
        self.assertEqual(response.header("Content-Type"), "text/html; charset=utf-8")
        self.assertIn("curl http://example.org:8080/hello", response.text)
        self.assertTrue(response.header("X-Request-Id"))

    def test_answers(self):
        self.assertEqual(self.get("/hello").text, "hello\n")
        self.assertEqual(self.get("/hello/world").text, "hello, world\n")
        self.assertEqual(self.get("/files/a/b/c.txt").text, "you asked for a/b/c.txt\n")
        self.assertEqual(self.json("GET", "/search?q=lua&limit=3"), (200, {"query": "lua", "limit": 3, "found": []}))
        self.assertEqual(self.json("GET", "/search?limit=x")[0], 400)

    def test_json(self):
        response = self.ask("POST", "/items", body=b'{"name":"tea"}')
        self.assertEqual((response.status, response.header("Location"), json.loads(response.text)), (201, "/items/1", {"name": "tea"}))
        for bad in (b"{", b"", b"3", b"null"):
            response = self.ask("POST", "/items", body=bad)
            self.assertEqual(response.status, 400)
            self.assertIn("the request body must be a JSON object; ", response.text)

    def test_form(self):
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        self.assertEqual(self.ask("POST", "/form", headers, b"name=Ada&city=London").text, "name: Ada\ncity: London\n")

    def test_echo(self):
        body = os.urandom(200000)
        self.assertEqual(self.ask("POST", "/echo", body=body).body, body)

    def test_streaming_down(self):
        response = self.get("/csv?rows=5")
        self.assertTrue(response.chunked)
        self.assertEqual(response.text, "n,square\n1,1\n2,4\n3,9\n4,16\n5,25\n")
        self.assertEqual(self.get("/csv?rows=100000").text.count("\n"), 100001)

    def test_streaming_up_past_the_usual_limit(self):
        status, answer = self.json("PUT", "/upload/big", body=bytes(9 << 20))
        self.assertEqual((status, answer["name"], answer["bytes"]), (201, "big", 9 << 20))
        self.assertGreater(answer["chunks"], 1)

    def test_clock_comes_piece_by_piece(self):
        with self.connect() as conn:
            response = conn.get("/clock")
        self.assertGreaterEqual(response.chunks, 5)
        self.assertEqual(len(response.text.splitlines()), 5)

    def test_together(self):
        self.assertTrue(self.get("/together").text.startswith("first done, second done, after 0."))

    def test_cookie_and_redirect(self):
        response = self.get("/login/ada")
        self.assertEqual((response.status, response.header("Location")), (302, "/whoami"))
        cookie = response.header("Set-Cookie").split(";")[0]
        self.assertEqual(self.get("/whoami", {"Cookie": cookie}).text, "ada\n")
        self.assertEqual(self.get("/whoami").text, "unknown\n")

    def test_the_mounted_part(self):
        response = self.get("/api/status")
        self.assertEqual((json.loads(response.text)["up"], response.header("Cache-Control")), (True, "no-store"))
        response = self.get("/api/none")
        self.assertEqual((response.status, json.loads(response.text)), (404, {"error": "the API has no /api/none"}))
        self.assertEqual(response.header("Cache-Control"), "no-store")

    def test_error_pages(self):
        mark = self.server.mark()
        response = self.get("/fail")
        self.assertEqual(response.status, 500)
        known = re.search("logged with request id ([0-9a-f]+)$", response.text)
        self.assertTrue(known, response.text)
        self.server.wait_log("request %s GET /fail: .*this handler always fails" % known.group(1), mark)
        response = self.get("/nowhere")
        self.assertEqual((response.status, response.text), (404, "there is no /nowhere here; see / for a list\n"))

    def test_stats(self):
        status, stats = self.json("GET", "/stats")
        self.assertEqual(status, 200)
        self.assertIn("requests", stats)


class Responder(E2E):
    BODY = (b"0123456789" * 52)[:512]

    def start(self, **kw):
        return self.serve(source("responder.lua"), args=("http://127.0.0.1:0/", "http://127.0.0.1:0"), listeners=2, **kw)

    def counters(self, server, **at_least):
        """Wait for a line with at least these counters."""
        def there():
            lines = read_text(server.out_path).splitlines()
            fields = lines[-1].split() if lines else []
            last = dict(zip(fields[::2], fields[1::2]))
            return all(float(last.get(name, -1)) >= count for name, count in at_least.items())
        self.eventually(there, "the counters reach %r" % at_least)

    def key(self, stdin, press):
        """Start it with this standard input; `press` sends the key that ends it."""
        program = [LUASERVE, os.path.join(EXAMPLES, "responder.lua"), "http://127.0.0.1:0/"]
        with subprocess.Popen(program, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
            try:
                while "listening on" not in server.stderr.readline():
                    self.assertIsNone(server.poll(), "it ended before it listened")
                press(server)
                self.assertEqual(server.wait(WAIT), 0)
            finally:
                server.kill()

    def test_a_key_stops_it(self):
        def press(server):
            server.stdin.write("x")
            server.stdin.flush()

        self.key(subprocess.PIPE, press)

    @needs_terminal
    def test_a_key_at_a_terminal_stops_it(self):
        """Any key ends it at a console of Windows, a line elsewhere, because a terminal delivers lines."""
        with terminal() as (master, slave):
            self.key(slave, lambda _: os.write(master, b"x" if WINDOWS else b"x\n"))

    @needs_terminal
    def test_a_signal_at_a_terminal_stops_it(self):
        with terminal() as (master, slave):
            server = self.start(terminal=slave)
            os.read(master, 1)  # it is running: the first counters
            server.signal()
            self.assertEqual(server.wait(), 0, server.log())

    def test_get_is_answered_and_anything_else_cut_off(self):
        server = self.start()
        with server.connect() as conn:
            for path in ("/", "/", "/any/path"):
                response = conn.get(path)
                self.assertEqual((response.status, response.body), (200, self.BODY))
                self.assertTrue(response.header("Content-Type").startswith("text/plain"))
        for method in ("POST", "HEAD", "PUT", "DELETE", "OPTIONS", "BREW"):
            with self.subTest(method), server.connect() as conn:
                conn.send(("%s / HTTP/1.1\r\nHost: h\r\n\r\n" % method).encode())
                conn.expect_end(reset_ok=True)
        with server.connect() as conn:
            self.assertEqual(conn.get("/").body, self.BODY)
        self.counters(server, requests=10, responses=4, unanswered=6)

    def test_the_body_is_never_copied(self):
        server = self.start()
        with server.connect() as conn:
            for _ in range(100):
                self.assertEqual(conn.get("/").body, self.BODY)
        server.stop()
        last = read_text(server.out_path).splitlines()[-1]
        self.assertIn("responses 100 ", last, "the last line is printed when it stops")

    def run_alone(self, *args):
        return subprocess.run([LUASERVE, os.path.join(EXAMPLES, "responder.lua"), *args], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=WAIT)

    def test_it_refuses_to_start_without_a_url(self):
        done = self.run_alone()
        self.assertEqual(done.returncode, 1)
        self.assertIn("usage: luaserve ", done.stderr)
        done = self.run_alone("ftp://127.0.0.1/")
        self.assertEqual(done.returncode, 1)
        self.assertIn("ftp://127.0.0.1/", done.stderr)


class Check(unittest.TestCase):
    ARGS_OF = {
        "echo.lua": (HERE,),
        "proxy.lua": (HERE, "127.0.0.1:1"),
        "responder.lua": ("http://127.0.0.1:0/",),
        "stress_client.lua": ("127.0.0.1", "1", "hello", "1", "1"),
    }

    def test_every_example_loads(self):
        live = (os.path.join("live", name) for name in os.listdir(os.path.join(EXAMPLES, "live")))
        for name in sorted(name for name in (*os.listdir(EXAMPLES), *live) if name.endswith(".lua")):
            with self.subTest(name):
                args = self.ARGS_OF.get(name, ())
                done = subprocess.run([LUASERVE, "--check", os.path.join(EXAMPLES, name), *args], timeout=WAIT,
                                      stdin=subprocess.DEVNULL, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
