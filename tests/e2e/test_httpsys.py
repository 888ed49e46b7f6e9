"""engine = "http.sys": the same sites on the HTTP server of Windows, and the errors of this option on other systems.

The part for Windows runs under Wine, whose http.sys lacks much; tests/unit/http/httpsys tests the rest against functions of its
own. When a request queue is closed, Wine 8 closes the listening sockets of all other queues as well;
so this module runs one server at a time.
"""
import json
import os
import signal
import socket
import subprocess
import unittest

from harness import (E2E, LUASERVE, ROOT, WAIT, WINDOWS, WINE, app_site, free_port, in_parallel, read_text, repeats,
                     run_program, scratch)

RESPONDER = os.path.join(ROOT, "examples", "responder.lua")
HEAD = 'local ls = require "luaserve"\nlocal app = ls.app()\napp:get("/", function() return "hello\\n" end)\n'


class Misuse(unittest.TestCase):
    def refused(self, listen, *says):
        with scratch(site_lua=HEAD + listen + "\n") as where:
            status, out, err = run_program(["site.lua"], cwd=where)
        self.assertEqual(status, 1, err)
        for text in ("site.lua:4: ", *says):
            self.assertIn(text, err)
        self.assertEqual(out, "")

    def test_what_is_no_engine_and_no_url(self):
        self.refused('ls.listen{ engine = "nginx", port = 0, handler = app }', 'engine must be "luaserve" or', '"nginx"')
        self.refused('ls.listen{ url = "http://+:80/", port = 0, handler = app }', 'url needs engine = "http.sys"')

    def test_the_program_says_what_it_has(self):
        _, out, _ = run_program(["--version"])
        self.assertIn("\nHTTP engines: luaserve%s\n" % (" http.sys" if WINDOWS else ""), out)

    if not WINDOWS:

        def test_elsewhere_there_is_none(self):
            self.refused('ls.listen{ engine = "http.sys", url = "http://+:80/", handler = app }',
                         'engine "http.sys" is available on Windows only; use "luaserve" on this system')


# Wine 8 may lose a request that arrives while no receive waits (HTTPSYS.md), so more receives wait than there are clients.
SITE = app_site(r"""
ls.config{ accepts_posted = 32 }
app:get("/", function() return "hello\n" end)
app:get("/fields", function(req)
  return { method = req.method, path = req.path, target = req.target, query = req.query, host = req.authority,
    headers = req.headers, remote = req.remote, local_addr = req.local_addr, version = req.version,
    scheme = req.scheme, id = req.id }
end)
app:any("/echo", function(req, res)
  res:header("X-Method", req.method)
  return req:body()
end)
app:post("/chunks", function(req)
  local count, bytes = 0, 0
  for chunk in req:chunks() do count, bytes = count + 1, bytes + #chunk end
  return { count = count, bytes = bytes }
end)
app:post("/small", { max_body = 10 }, function(req) return req:body() end)
app:get("/cookies", function(req, res)
  res:cookie("a", "1") res:cookie("b", "2")
  return 201, "made", { Location = "/x", ["X-Own"] = "y" }
end)
app:get("/bytes/:n", function(req) return ("x"):rep(tonumber(req.params.n)) end)
local page = ls.buffer(("p"):rep(5000))
app:get("/page", function() return page end)
app:get("/parts", function(req, res)
  for i = 1, 5 do res:write("part ", i, "\n") ls.sleep(0.005) end
end)
app:ws("/ws", function(ws) ws:send("never") end)
app:get("/upgrade", function(req, res)
  local sock, message, code = res:upgrade("echo/2")
  return { sock = tostring(sock), message = message, code = code }
end)
app:get("/events", function(req, res)
  local sse = res:sse()
  for i = 1, 3 do sse:send("event " .. i) end
  sse:close()
end)
app:get("/sleep/:s", function(req) ls.sleep(tonumber(req.params.s)) return "slept\n" end)
app:get("/error", function() error("on purpose") end)
app:get("/stats", function() return ls.stats() end)
ls.listen{ engine = "http.sys", url = { "http://+:@ONE@/", "http://127.0.0.1:@TWO@/echo/" }, handler = app }
""")


def site():
    return SITE.replace("@ONE@", str(free_port())).replace("@TWO@", str(free_port()))


if WINDOWS:

    class HttpSys(E2E):
        def clients(self, count, server=None):
            """Connect one after the other. Of simultaneous connections Wine's http.sys may miss one and all that
            follow, which then stay in the queue of the listener."""
            conns = []
            for _ in range(count):
                conns.append(self.connect(server=server))
                self.assertEqual(conns[-1].get("/").text, "hello\n")
            return conns

    class Requests(HttpSys):
        LISTENERS = 3

        @classmethod
        def setUpClass(cls):
            cls.SITE = site()
            super().setUpClass()

        def test_one_connection_many_requests(self):
            with self.connect() as conn:
                for _ in range(50):
                    response = conn.get("/")
                    self.assertEqual((response.status, response.text), (200, "hello\n"))
                    self.assertEqual(response.header("Server"), "luaserve")

        def test_what_a_handler_sees(self):
            with self.connect() as conn:
                got = conn.get("/fields?q=1&r=a%20b", {"X-One": "1", "User-Agent": "t"})
                mine = "%s:%d" % conn.sock.getsockname()
            got = json.loads(got.text)
            self.assertEqual((got["method"], got["path"], got["target"]), ("GET", "/fields", "/fields?q=1&r=a%20b"))
            self.assertEqual(got["query"], {"q": "1", "r": "a b"})
            self.assertEqual((got["version"], got["scheme"]), ("1.1", "http"))
            self.assertEqual(got["host"], "h:%d" % self.server.port())
            self.assertEqual(got["headers"], {"host": got["host"], "x-one": "1", "user-agent": "t"})
            self.assertEqual(got["remote"], mine)
            self.assertEqual(got["local_addr"], "127.0.0.1:%d" % self.server.port())
            self.assertRegex(got["id"], "^[0-9a-f]{16}$")

        def test_methods(self):
            for method in ("POST", "PUT", "DELETE", "PATCH", "BREW"):
                with self.subTest(method):
                    response = self.ask(method, "/echo", body=b"body")
                    self.assertEqual((response.text, response.header("X-Method")), ("body", method))
            self.assertEqual(self.ask("HEAD", "/").header("Content-Length"), "6")

        def test_fields_of_an_answer(self):
            response = self.get("/cookies")
            self.assertEqual((response.status, response.text), (201, "made"))
            self.assertEqual(sorted(value[:3] for value in response.all("Set-Cookie")), ["a=1", "b=2"])
            self.assertEqual((response.header("Location"), response.header("X-Own")), ("/x", "y"))

        def test_a_body_is_read_to_its_end(self):
            body = os.urandom(6000)
            self.assertEqual(self.ask("POST", "/echo", body=body).body, body)
            self.assertEqual(json.loads(self.ask("POST", "/chunks", body=body).text)["bytes"], 6000)

        def test_a_body_in_two_pieces(self):
            with self.connect() as conn:
                conn.send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc")
                conn.send(b"def")
                self.assertEqual(conn.response().text, "abcdef")
                self.assertEqual(conn.get("/").text, "hello\n")

        def test_a_body_that_is_too_large(self):
            with self.connect() as conn:
                self.assertEqual(conn.ask("POST", "/small", body=b"0123456789").text, "0123456789")
                self.assertEqual(conn.ask("POST", "/small", body=b"0123456789a").status, 413)

        def test_a_head_that_needs_a_larger_buffer(self):
            with self.connect() as conn:
                for size in (3000, 6000, 100):
                    got = conn.get("/fields", {"X-Large": "v" * size})
                    self.assertEqual(len(json.loads(got.text)["headers"]["x-large"]), size)

        def test_a_head_that_is_too_large(self):
            self.assertEqual(self.get("/", {"X-Large": "v" * 16384}).status, 431)
            self.assertEqual(self.get("/" + "a" * 8192).status, 414)
            self.assertEqual(self.get("/").status, 200)

        def test_answers_of_many_sizes(self):
            # Wine 8 makes one send() of a non-blocking socket (dlls/http.sys/http.c): what does not fit into its buffer is lost.
            for size in (0, 1, 16383, 16384, 100000) if WINE else (0, 1, 16383, 16384, 100000, 1000000):
                with self.subTest(size):
                    self.assertEqual(self.get("/bytes/%d" % size).body, b"x" * size)
            self.assertEqual(self.get("/page").body, b"p" * 5000)

        def test_parts(self):
            self.assertEqual(self.get("/parts").text, "".join("part %d\n" % i for i in range(1, 6)))

        def test_a_connection_is_not_handed_over(self):
            why = "the listener uses http.sys, which cannot hand over a connection"
            response = self.get("/ws", {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                                        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="})
            self.assertEqual(response.status, 501, response.text)
            self.assertIn(why, response.text)
            got = json.loads(self.get("/upgrade", {"Connection": "Upgrade", "Upgrade": "echo/2"}).text)
            self.assertEqual(got, {"sock": "nil", "message": why, "code": "ENOTSUP"})

        def test_server_sent_events(self):
            response = self.get("/events")
            self.assertEqual((response.status, response.header("Content-Type")), (200, "text/event-stream"))
            self.assertEqual(response.text, "".join("data: event %d\n\n" % i for i in (1, 2, 3)))

        def test_an_error_costs_its_request_alone(self):
            with self.connect() as conn:
                self.assertEqual(conn.get("/error").status, 500)
                self.assertEqual(conn.get("/").status, 200)

        def test_handlers_wait_side_by_side(self):
            def one(conn):
                return [conn.get("/sleep/0.05").text for _ in range(5)]
            self.assertEqual(in_parallel([lambda c=conn: one(c) for conn in self.clients(16)]), [["slept\n"] * 5] * 16)

        def test_none_is_lost_and_none_comes_twice(self):
            def one(number, conn):
                for i in range(repeats(50)):
                    text = "%d-%d" % (number, i)
                    self.assertEqual(conn.ask("POST", "/echo", body=text.encode()).text, text)
            clients = self.clients(32)
            before = json.loads(self.get("/stats", index=2).text)
            in_parallel([lambda n=n: one(n, clients[n]) for n in range(32)], 32)
            after = json.loads(self.get("/stats", index=2).text)
            for name in ("requests", "responses"):
                self.assertEqual(after[name] - before[name] - 1, 32 * repeats(50), name)  # less the request for these figures

        def buffers(self):
            """The blocks in use, less that of `page` in each Lua state: on a busy machine additional states start at any time."""
            stats = json.loads(self.get("/stats", index=2).text)
            return stats["blocks_live"] - stats["lua_states"]

        def test_a_client_that_leaves(self):
            conns, held = [], 0
            for _ in range(10):
                conns += self.clients(1)
                # A receive that is about to be posted again has no buffer: the most of several figures.
                held = max(held, self.buffers())
            for conn in conns:
                conn.send(b"GET /sleep/0.1 HTTP/1.1\r\nHost: h\r\n\r\n")
                conn.reset()
            self.eventually(lambda: self.buffers() <= held, "all buffers are freed")
            self.assertEqual(self.get("/").status, 200)

        def test_the_second_url_and_the_other_engine(self):
            host = {"Host": "127.0.0.1:%d" % self.server.port(1)}  # the host of this URL
            self.assertEqual(self.ask("POST", "/echo", host, body=b"two", index=1).text, "two")
            self.assertEqual(self.get("/", index=2).text, "hello\n")

    class Urls(E2E):
        def refused(self, listen, *says):
            with scratch(site_lua=HEAD + listen) as where:
                status, _, err = run_program(["site.lua"], cwd=where)
            self.assertEqual(status, 1, err)
            for text in ("site.lua:4: ", *says):
                self.assertIn(text, err)

        def test_one_that_is_taken(self):
            url = "http://+:%d/" % free_port()
            listen = 'ls.listen{ engine = "http.sys", url = "%s", handler = app }\n' % url
            self.refused('ls.listen{ engine = "http.sys", url = { "%s", "%s" }, handler = app }' % (url, url),
                         "http.sys refuses %s: it is registered already (error 183)" % url, "netsh http show servicestate")
            server = self.serve(HEAD + listen)
            self.refused(listen, "http.sys refuses %s: " % url, "(error 183)")

        def test_a_port_that_others_have(self):
            with socket.socket() as busy:
                busy.bind(("0.0.0.0", 0))
                busy.listen()
                url = "http://+:%d/" % busy.getsockname()[1]
                self.refused('ls.listen{ engine = "http.sys", url = "%s", handler = app }' % url,
                             "http.sys refuses %s: another program" % url, "(error 32)")

        def test_a_system_without_it(self):
            with scratch(site_lua=HEAD + 'ls.listen{ engine = "http.sys", url = "http://+:80/", handler = app }') as where:
                status, _, err = run_program(["site.lua"], cwd=where, env={"WINEDLLOVERRIDES": "httpapi="})
            self.assertEqual(status, 1, err)
            self.assertIn('site.lua:4: the engine "http.sys" needs the HTTP Server API 2.0 (httpapi.dll)', err)

        def test_check_opens_nothing(self):
            with scratch(site_lua=HEAD + 'ls.listen{ engine = "http.sys", url = "http://+:80/", handler = app }') as where:
                status, out, err = run_program(["--check", "site.lua"], cwd=where)
            self.assertEqual(status, 0, err)
            self.assertIn("listener: http.sys http://+:80/ (site.lua:4)", out)

    class Drain(HttpSys):
        def test_what_is_under_way_is_answered(self):
            server = self.serve(site(), listeners=3)
            conns = self.clients(8, server)
            for conn in conns:
                conn.send(b"GET /sleep/1 HTTP/1.1\r\nHost: h\r\n\r\n")
            with server.connect(2) as other:
                self.eventually(lambda: json.loads(other.get("/stats").text)["connections_open"] >= 9, "the requests run")
            server.signal()
            for conn in conns:
                response = conn.response()
                self.assertEqual(response.text, "slept\n")
                self.assertTrue(response.closes)
            self.assertEqual(server.wait(), 0)
            self.assertIn("stopped", server.log())

        def test_the_url_is_free_again(self):
            text = site()
            for _ in range(3):
                server = self.serve(text, listeners=3)
                self.assertEqual(server.get("/").status, 200)
                server.stop()

    class Responder(E2E):
        BODY = (b"0123456789" * 52)[:512]

        def start(self):
            return self.serve(read_text(RESPONDER), args=("--http.sys", "http://+:%d" % free_port()))

        def test_get_is_answered_and_anything_else_is_not(self):
            server = self.start()
            with server.connect() as conn:
                for path in ("/", "/", "/any/path"):
                    response = conn.get(path)
                    self.assertEqual((response.status, response.body), (200, self.BODY))
            for method in ("POST", "HEAD", "BREW"):
                with server.connect() as conn:  # Wine cannot cancel a request: it gets an error with Connection: close
                    response = conn.ask(method, "/")
                    self.assertEqual((response.status, response.closes), (500, True))
            server.stop()
            last = read_text(server.out_path).splitlines()[-1]
            self.assertIn("requests 6 ", last)

        def test_a_key_stops_it(self):
            program = [LUASERVE, RESPONDER, "--http.sys", "http://+:%d/" % free_port()]
            with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True) as server:
                try:
                    while "listening on" not in server.stderr.readline():
                        self.assertIsNone(server.poll(), "it ended before it listened")
                    server.stdin.write("x")
                    server.stdin.flush()
                    self.assertEqual(server.wait(WAIT), 0)
                finally:
                    server.kill()

        def test_an_interrupt_stops_it(self):
            server = self.start()
            server.get("/")
            server.signal(signal.SIGINT)
            self.assertEqual(server.wait(15), 0)
