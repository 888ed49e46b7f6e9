"""HTTP/2: what sites of HTTP/1 have, over both kinds of listeners; many streams of a connection beside each other; reload and drain;
curl, nghttp, h2load and python3-h2."""
import gzip
import json
import re
import shutil
import subprocess
import unittest

from harness import Conn, E2E, WAIT, WINDOWS, app_site, free_port, repeats, table, temporary_folder, write_bytes, write_text
from harness import http2 as h
from harness import tls, websocket
from harness.http2 import H2, Reset

HEADS = app_site(r"""
app:get("/loop", function(_, res)
  while res:write("x") do ls.sleep(0.001) end
  ls.log.info("the loop has ended")
end)
app:get("/deaf", { timeout = 0.1 }, function(_, res) while true do res:write("x") ls.sleep(0.001) end end)
app:get("/events", { timeout = 0.1 }, function(_, res)
  local sse = res:sse()
  while true do sse:send("x") ls.sleep(0.001) end
end)
app:get("/length", function(_, res)
  res:header("Content-Length", 4)
  for _ = 1, 4 do res:write("x") ls.sleep(0) end
end)
""", "http2 = true")
SITE = r"""
local ls = require "luaserve"
ls.config{ threads = 2, drain_timeout = 20 }
local app = ls.app()
local seen = ls.dict("seen")
local large = ("0123456789abcdef"):rep(655360)
app:use(require "luaserve.compress"{ min_size = 1000 })
app:get("/", function() return "root" end)
app:get("/info", function(req)
  return { version = req.version, scheme = req.scheme, secure = req.secure, host = req.headers.host, authority = req.authority,
    alpn = req.tls and req.tls.alpn, cookie = req.headers.cookie, b = req.cookies.b, target = req.target, remote = req.remote,
    list = req.headers["x-list"] }
end)
app:any("/echo", function(req) return req:body() end)
app:any("/pieces", function(req, res)
  for piece in req:chunks() do res:write(piece) res:flush() end
end)
app:get("/large", function() return large end)
app:get("/parts", function(_, res) for n = 1, 1000 do res:write(("x"):rep(1000)) if n % 100 == 0 then ls.sleep(0) end end end)
app:get("/text", function() return ("line of text\n"):rep(1000) end)
app:get("/status/:n", function(req) return tonumber(req.params.n), "text" end)
app:get("/fields", function(_, res)
  res:header("X-Upper", "A"):header("Set-Cookie", "a=1"):header("Connection", "close"):cookie("b", "2")
  return "fields"
end)
app:any("/trailers", function(req, res)
  local body = req:body()
  res:trailer("X-Sum", tostring(#body))
  res:write(body, req.trailers and req.trailers["x-note"] or "-")
end)
app:get("/hints", function(_, res)
  res:early_hints{ Link = "</a.css>; rel=preload" }
  return "hinted"
end)
app:get("/hold", { timeout = 600 }, function(req)
  seen:incr("held")
  while not seen:get("open") do ls.sleep(0.005) end
  return "held"
end)
app:get("/open", function() seen:set("open", true) return "" end)
app:get("/count", function() return tostring(seen:incr("count")) end)
app:get("/counted", function() return tostring(seen:get("count") or 0) end)
app:get("/held", function() return tostring(seen:get("held") or 0) end)
app:get("/compute", function() local stop = os.clock() + 0.5 repeat until os.clock() > stop return "computed" end)
app:get("/events", function(_, res)
  local sse = res:sse()
  for n = 1, 3 do sse:send("event " .. n) end
end)
app:get("/news", function(_, res) local sse = res:sse() sse:subscribe("news") sse:wait() end)
app:get("/publish", function(req) return tostring(ls.publish("news", req.query.text)) end)
app:get("/noted", function() ls.log.info("it ran") return "" end)
local function ended(ws) seen:incr("ended " .. tostring(ws.code)) end
app:ws("/ws", function(ws)
  for data, kind in ws:messages() do if not ws:send(data, kind) then break end end
  ended(ws)
end)
app:ws("/ws/event", { message = function(ws, data, kind) ws:send(data, kind) end, close = ended })
app:ws("/ws/news", function(ws) ws:subscribe("news") for _ in ws:messages() do end end)
app:get("/ended/:code", function(req) return tostring(seen:get("ended " .. req.params.code) or 0) end)
app:get("/stats", function() return ls.stats() end)
app:get("/fails", function() error("on purpose") end)
app:get("/late", function(_, res)
  res:write("begun")
  res:flush()
  while not seen:get("late") do ls.sleep(0.005) end
  error("on purpose")
end)
app:get("/go-on", function() seen:set("late", true) return "" end)
app:get("/sleeps", { timeout = 1 }, function() ls.sleep(1000) end)
app:static("/files", "@FILES@")
app:proxy("/up", "http://127.0.0.1:@UP@")
ls.on("log", function(req, res, info) seen:set("log " .. req.path, info.status) end)
app:get("/logged/*path", function(req) return tostring(seen:get("log /" .. req.params.path)) end)
local other = ls.app()
other:any("/up/*rest", function(req)
  local body = req:body()
  return { method = req.method, version = req.version, host = req.authority, cookie = req.headers.cookie, bytes = #body,
    te = req.headers.te, lengths = req.headers["content-length"] }
end)
other:get("/up/large", function() return large end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app, http2 = true }
ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = "self-signed" }
ls.listen{ host = "127.0.0.1", port = @UP@, handler = other }
ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = "self-signed", http2 = false }
"""
PLAIN, TLS, UP, REFUSING = range(4)
LONGEST = (1 << 31) - 1
LARGE = b"0123456789abcdef" * 655360


def needs(*programs):
    missing = [name for name in programs if not shutil.which(name)]
    return unittest.skipIf(missing, "not installed: " + ", ".join(missing))


@h.needs_http2
class Http2(E2E):
    LISTENERS = 4

    @classmethod
    def setUpClass(cls):
        cls.files = temporary_folder()
        cls.addClassCleanup(shutil.rmtree, cls.files, ignore_errors=True)
        write_bytes(cls.files + "/large.bin", LARGE)
        write_text(cls.files + "/page.html", "<p>page\n" * 1000)
        cls.SITE = cls.site()
        super().setUpClass()

    @classmethod
    def site(cls):
        return SITE.replace("@UP@", str(free_port())).replace("@FILES@", cls.files)

    def h2(self, index=PLAIN, **kw):
        return self.owns(H2(self.server.at(index), over_tls=index == TLS or None, **kw))

    def both(self, check):
        """check(conn) on a plain connection and over TLS."""
        table(self, [("plain", PLAIN), ("TLS", TLS)], lambda index: check(self.h2(index)))


class Requests(Http2):
    def test_what_a_handler_sees(self):
        def check(conn):
            secure = conn.sock.__class__.__name__ == "SSLSocket"
            response = conn.request("/info?q=1", authority="Example.com:81", scheme="https" if secure else "http",
                                    fields=[("cookie", "a=1"), ("x-list", "1"), ("cookie", "b=2"), ("x-list", "2"), ("cookie", "c=3")])
            got = json.loads(response.body)
            self.assertEqual((got["version"], got["scheme"], got["secure"]), ("2", "https" if secure else "http", secure))
            self.assertEqual((got["host"], got["target"], got["list"]), ("Example.com:81", "/info?q=1", "1, 2"))
            self.assertEqual((got["cookie"], got["b"]), ("a=1; b=2; c=3", "2"))
            self.assertEqual(got.get("alpn"), "h2" if secure else None)
            self.assertEqual(response.header("content-length"), str(len(response.body)))
            self.assertRegex(response.header("date"), r"\w+, \d\d \w+ \d{4} ")

        self.both(check)

    def test_bodies(self):
        def check(conn):
            for data in (b"", b"abc", bytes(range(256)) * 300, LARGE[:7 << 20]):
                self.assertEqual(conn.request("/echo", "POST", data).body, data)
            self.assertEqual(conn.request("/pieces", "PUT", LARGE[:3 << 20]).body, LARGE[:3 << 20])
            self.assertEqual(conn.request("/large").body, LARGE)
            self.assertEqual(conn.request("/parts").body, b"x" * 1000000)
            self.assertEqual(conn.request("/echo", "POST", bytes(9 << 20)).status, 413)

        self.both(check)

    def test_a_body_that_is_answered_while_it_arrives(self):
        conn = self.h2()
        stream = conn.open("/pieces", "POST", end=False)
        for n in range(1, 6):
            conn.send(h.DATA, 0, stream, b"piece")
            conn.until(lambda: stream in conn.streams and len(conn.streams[stream].body) == 5 * n)
        conn.send(h.DATA, h.END_STREAM, stream)
        self.assertEqual(conn.response(stream).text, "piece" * 5)

    def test_responses_without_a_body(self):
        conn = self.h2()
        rows = [("HEAD", "/large", 200, str(len(LARGE))), ("HEAD", "/parts", 200, None), ("GET", "/status/204", 204, None),
                ("GET", "/status/304", 304, None), ("GET", "/missing", 404, None), ("DELETE", "/info", 405, None)]
        for method, path, status, length in rows:
            with self.subTest(method + " " + path):
                response = conn.request(path, method)
                self.assertEqual(response.status, status)
                if status < 400:
                    self.assertEqual((response.body, response.header("content-length")), (b"", length))

    def test_fields_of_responses(self):
        response = self.h2().request("/fields")
        fields = [field for field in response.fields if field[0] in ("x-upper", "set-cookie", "connection", "transfer-encoding")]
        self.assertEqual(sorted(value for name, value in fields if name == "set-cookie")[0], "a=1")
        self.assertEqual([name for name, _ in fields], ["x-upper", "set-cookie", "set-cookie"])

    def test_trailers(self):
        conn = self.h2()
        stream = conn.open("/trailers", "POST", end=False)
        conn.send(h.DATA, 0, stream, b"abc")
        conn.send(h.HEADERS, h.END_HEADERS | h.END_STREAM, stream, h.block([("x-note", "noted")]))
        response = conn.response(stream)
        self.assertEqual((response.text, response.trailers), ("abcnoted", [("x-sum", "3")]))

    def test_interim_responses(self):
        conn = self.h2()
        response = conn.request("/hints")
        self.assertEqual((response.interim, response.text), ([[(":status", "103"), ("link", "</a.css>; rel=preload")]], "hinted"))
        stream = conn.open("/echo", "POST", end=False, fields=[("expect", "100-continue")])
        conn.until(lambda: stream in conn.streams and conn.streams[stream].interim)
        self.assertEqual(conn.streams[stream].interim, [[(":status", "100")]])
        conn.body(stream, b"abc")
        self.assertEqual(conn.response(stream).text, "abc")

    def test_compression(self):
        response = self.h2().request("/text", fields=[("accept-encoding", "gzip")])
        self.assertEqual((response.header("content-encoding"), gzip.decompress(response.body)), ("gzip", b"line of text\n" * 1000))

    def test_files(self):
        def check(conn):
            whole = conn.request("/files/large.bin")
            self.assertEqual((whole.body, whole.header("content-length")), (LARGE, str(len(LARGE))))
            self.assertEqual(conn.request("/files/large.bin", fields=[("if-none-match", whole.header("etag"))]).status, 304)
            part = conn.request("/files/large.bin", fields=[("range", "bytes=100000-299999")])
            self.assertEqual((part.status, part.body), (206, LARGE[100000:300000]))
            self.assertEqual(conn.request("/files/page.html").text, "<p>page\n" * 1000)
            self.assertEqual(conn.request("/files/page.html", "HEAD").body, b"")
            self.assertEqual(conn.request("/files/none").status, 404)

        self.both(check)

    def test_events(self):
        conn = self.h2()
        self.assertEqual(conn.request("/events").text, "data: event 1\n\ndata: event 2\n\ndata: event 3\n\n")
        streams = [conn.open("/news") for _ in range(20)]
        conn.until(lambda: all(s in conn.streams and conn.streams[s].fields for s in streams))
        self.eventually(lambda: conn.request("/publish?text=now").text == "20", "20 subscribers")
        conn.until(lambda: all(b"data: now\n\n" in conn.streams[s].body for s in streams))
        for stream in streams[:5]:
            conn.send(h.RST_STREAM, 0, stream, h.number(h.CANCEL))
        self.eventually(lambda: conn.request("/publish?text=then").text == "15", "15 subscribers")
        conn.until(lambda: all(b"data: then\n\n" in conn.streams[s].body for s in streams[5:]))

    def test_handlers_that_fail(self):
        conn = self.h2()
        self.assertEqual(conn.request("/fails").status, 500)
        stream = conn.open("/late")
        conn.until(lambda: stream in conn.streams and conn.streams[stream].body == b"begun")
        conn.request("/go-on")
        with self.assertRaises(Reset) as reset:
            conn.response(stream)
        self.assertEqual(reset.exception.code, h.INTERNAL_ERROR)
        self.assertEqual(conn.request("/sleeps").status, 503)
        self.assertEqual(conn.request("/logged/fails").text, "500")

    def test_upstreams_of_http1(self):
        def check(conn):
            got = json.loads(conn.request("/up/a", "POST", b"abc" * 100000, authority="example.com",
                                          fields=[("cookie", "a=1"), ("cookie", "b=2"), ("te", "trailers")]).body)
            self.assertEqual((got["method"], got["version"], got["bytes"], got["cookie"]), ("POST", "1.1", 300000, "a=1; b=2"))
            self.assertEqual(conn.request("/up/large").body, LARGE)

        self.both(check)

    def test_statistics(self):
        conn = self.h2()
        before = json.loads(conn.request("/stats").body)
        self.assertEqual(conn.request().status, 200)
        after = json.loads(conn.request("/stats").body)
        self.assertGreaterEqual(after["requests"] - before["requests"], 2)
        self.assertGreaterEqual(after["http2_connections_open"], 1)
        conn.close()
        self.eventually(lambda: json.loads(self.get("/stats").text)["http2_connections_open"] == 0, "it has ended")


@h.needs_http2
class Heads(E2E):
    SITE = HEADS

    def test_a_handler_that_writes_for_ever_ends_after_a_head(self):
        """The stream of HTTP/2 is closed with the head; a connection of HTTP/1 waits for the handler, and serves the next request."""
        for path, line in ("/loop", "the loop has ended"), ("/deaf", "waited for longer"), ("/events", "waited for longer"), ("/length", None):
            for client, ask, arguments in (H2(self.server.at()), H2.request, (path, "HEAD")), (self.connect(), Conn.ask, ("HEAD", path)):
                mark = self.server.mark()
                with client:
                    self.assertEqual(ask(client, *arguments).status, 200)
                    if line:
                        self.server.wait_log(line, mark)
                if line is None:
                    self.assertFalse(self.server.logged(" error ", mark))


class Beside(Http2):
    """Streams of one connection beside each other."""

    def test_a_slow_handler_delays_no_other(self):
        def check(conn):
            slow = [conn.open("/hold"), conn.open("/compute"), conn.open("/hold")]
            large = conn.open("/large")
            for _ in range(20):
                self.assertEqual(conn.request().text, "root")
            self.assertEqual(conn.response(large).body, LARGE)
            self.assertFalse(slow[0] in conn.streams and conn.streams[slow[0]].ended, vars(conn.streams.get(slow[0], conn)))
            conn.request("/open")
            self.assertEqual([conn.response(stream).text for stream in slow], ["held", "computed", "held"])

        check(self.h2())

    def test_a_response_that_is_not_read_delays_no_other(self):
        conn = self.h2(credit=False)
        stuck = conn.open("/large")
        conn.until(lambda: stuck in conn.streams and len(conn.streams[stuck].body) == 65535)
        conn.send(h.WINDOW_UPDATE, 0, 0, h.number(1 << 20))
        for _ in range(20):
            self.assertEqual(conn.request().text, "root")
        self.assertEqual(len(conn.streams[stuck].body), 65535)

    @unittest.skipIf(WINDOWS, "of another system: Windows decides how much it takes")
    def test_an_urgent_response_is_not_behind_megabytes(self):
        conn = self.h2(first=[(h.INITIAL_WINDOW_SIZE, LONGEST)], credit=False)
        conn.send(h.WINDOW_UPDATE, 0, 0, h.number(LONGEST - 65535))
        large = conn.open("/large")
        conn.until(lambda: large in conn.streams)  # the rest is in the socket, as far as it takes it
        urgent = conn.open("/count", fields=[("priority", "u=0")])
        other = self.h2()
        self.eventually(lambda: other.request("/counted").text != "0", "its handler has run")
        self.assertEqual(conn.response(urgent).text, "1")
        self.assertLess(len(conn.streams[large].body), 768 * 1024)

    def test_many_at_once(self):
        def check(conn):
            for _ in range(3):
                streams = [conn.open() if n % 3 else conn.open("/parts") for n in range(100)]
                for n, stream in enumerate(streams):
                    self.assertEqual(len(conn.response(stream).body), 4 if n % 3 else 1000000)

        check(self.h2(TLS))


class WebSockets(Http2):
    """RFC 8441."""

    def open(self, conn, path="/ws", protocol="websocket", **fields):
        whole = [(":method", "CONNECT"), (":protocol", protocol), (":scheme", "http"), (":path", path), (":authority", "h"),
                 ("sec-websocket-version", "13"), *fields.items()]
        stream = conn.open(end=False, whole=whole)
        conn.until(lambda: stream in conn.streams and (conn.streams[stream].fields or conn.streams[stream].reset is not None))
        return stream

    def expect(self, conn, stream, data):
        """The next bytes of the stream."""
        conn.until(lambda: len(conn.streams[stream].body) >= len(data))
        self.assertEqual(conn.streams[stream].body[:len(data)], data)
        conn.streams[stream].body = conn.streams[stream].body[len(data):]

    def test_messages(self):
        def check(conn):
            for path in ("/ws", "/ws/event"):
                stream = self.open(conn, path)
                self.assertEqual((conn.peer[h.ENABLE_CONNECT_PROTOCOL], conn.streams[stream].status), (1, 200))
                self.assertIsNone(conn.streams[stream].header("sec-websocket-accept"))
                for data in (b"", b"hello", b"x" * 200, bytes(range(256)) * 2000):
                    conn.body(stream, websocket.frame(websocket.BINARY, data), end=False)
                    self.expect(conn, stream, websocket.frame(websocket.BINARY, data, mask=False))
                    self.assertEqual(conn.request().text, "root")
                for byte in websocket.frame(websocket.PING, b"abc"):
                    conn.send(h.DATA, 0, stream, bytes([byte]))
                self.expect(conn, stream, websocket.frame(websocket.PONG, b"abc", mask=False))
                conn.send(h.DATA, 0, stream, websocket.frame(websocket.CLOSE, websocket.close_payload(1000)))
                self.expect(conn, stream, websocket.frame(websocket.CLOSE, websocket.close_payload(1000), mask=False))
                conn.until(lambda of=stream: conn.streams[of].ended or conn.streams[of].reset is not None)
                self.assertEqual(conn.request().text, "root")

        self.both(check)
        self.eventually(lambda: self.get("/ended/1000").text == "4", "the handlers have ended")

    def test_many_beside_each_other(self):
        conn = self.h2()
        streams = [self.open(conn, ("/ws", "/ws/event")[n % 2]) for n in range(60)]
        for n, stream in enumerate(streams):
            conn.send(h.DATA, 0, stream, websocket.frame(websocket.TEXT, b"message %d" % n))
        for n, stream in enumerate(streams):
            self.expect(conn, stream, websocket.frame(websocket.TEXT, b"message %d" % n, mask=False))
        for stream in streams[:30]:
            conn.send(h.RST_STREAM, 0, stream, h.number(h.CANCEL))
        for stream in streams[30:]:
            conn.send(h.DATA, h.END_STREAM, stream)
        self.eventually(lambda: self.get("/ended/1006").text == "60", "a handler learns of the end of its stream")
        self.assertEqual(conn.request().text, "root")

    def test_topics(self):
        conn = self.h2()
        streams = [self.open(conn, "/ws/news") for _ in range(10)]
        self.eventually(lambda: conn.request("/publish?text=now").text == "10", "10 subscribers")
        for stream in streams:
            self.expect(conn, stream, websocket.frame(websocket.TEXT, b"now", mask=False))

    def test_what_is_refused(self):
        conn = self.h2()
        rows = [("no route", {"path": "/none"}, 404), ("another origin", {"origin": "http://other"}, 403),
                ("another protocol", {"protocol": "connect-udp"}, None),
                ("a route of GET", {"path": "/"}, None)]
        for name, how, status in rows:
            with self.subTest(name):
                stream = self.open(conn, **how)
                got = conn.streams[stream].status
                self.assertTrue(got == status if status else got is None or got >= 400, got)
        self.assertEqual(conn.request().text, "root")

    def test_a_site_without_websockets_does_not_offer_them(self):
        server = self.serve(app_site('app:get("/", function() return "root" end)\n', "http2 = true"))
        with H2(server.at()) as conn:
            conn.request()
            self.assertNotIn(h.ENABLE_CONNECT_PROTOCOL, conn.peer)


class Listeners(Http2):
    def test_which_protocol_a_connection_has(self):
        self.assertEqual(self.get("/").text, "root")  # HTTP/1 on the same port
        for offered, index, got in ((["h2", "http/1.1"], TLS, "h2"), (["http/1.1"], TLS, "http/1.1"), (["http/1.1", "h2"], TLS, "h2"),
                                    (None, TLS, None), (["h2", "http/1.1"], REFUSING, "http/1.1")):
            with self.subTest(offered=offered, index=index), tls.client(self.server.port(index), tls.context(alpn=offered)) as conn:
                self.assertEqual(conn.selected_alpn_protocol(), got)
                if got != "h2":
                    conn.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
                    self.assertTrue(tls.read_all(conn).endswith(b"root"))

    def test_h2_to_a_listener_that_refuses_it(self):
        with self.connect(UP) as conn:
            conn.send(h.PREFACE + h.frame(h.SETTINGS))
            self.assertIn(conn.response().status, (400, 505))
            conn.expect_end()

    def test_http1_on_a_connection_of_http2(self):
        conn = self.h2(TLS, preface=False)
        conn.raw(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertEqual(conn.end(), h.PROTOCOL_ERROR)


class Ends(Http2):
    """The end of a server and of a site, on servers of their own."""

    def start(self, **kw):
        return self.serve(self.site(), listeners=4, **kw)

    def test_a_drain(self):
        """Two GOAWAYs; what was begun is answered, and what comes between them."""
        server = self.start()
        conn = self.owns(H2(server.at()))
        held = conn.open("/hold")
        conn.ping()
        self.eventually(lambda: server.get("/held").text == "1", "a handler waits")
        conn.answers = False
        server.signal()
        self.assertEqual(conn.goaway()[:2], (2**31 - 1, h.NO_ERROR))
        conn.until(lambda: conn.pings)
        between = conn.open("/open")  # it was on its way
        conn.send(h.PING, h.ACK, 0, conn.pings[0][1])
        conn.until(lambda: len(conn.goaways) == 2)
        self.assertEqual((conn.response(held).text, conn.response(between).status), ("held", 200))
        self.assertEqual(conn.goaways[-1][:2], (between, h.NO_ERROR))
        self.assertEqual(conn.end(), h.NO_ERROR)
        self.assertEqual(server.wait(), 0)

    def test_requests_behind_the_answer_to_the_ping(self):
        """The second GOAWAY names every stream whose handler was started."""
        for _ in range(repeats(5)):
            server = self.start()
            conn = self.owns(H2(server.at()))
            conn.answers = False
            conn.request()
            server.signal()
            conn.until(lambda of=conn: of.pings and of.goaways)
            conn.raw(h.frame(h.PING, h.ACK, 0, conn.pings[0][1]) + h.frame(h.HEADERS, h.END_HEADERS | h.END_STREAM, 3, h.block(h.head("/noted"))))
            self.assertEqual(conn.end(), h.NO_ERROR)
            self.assertEqual(server.wait(), 0)
            self.assertEqual(conn.goaways[-1][0] >= 3, bool(server.logged("it ran")))
            self.assertEqual(conn.goaways[-1][0] >= 3, 3 in conn.streams)

    def test_a_client_that_does_not_answer(self):
        server = self.start()
        conn = self.owns(H2(server.at()))
        conn.request()
        conn.answers = False
        server.signal()
        self.assertEqual(conn.end(), h.NO_ERROR)
        self.assertEqual([last for last, _, _ in conn.goaways], [2**31 - 1, 1])
        self.assertEqual(server.wait(), 0)

    def test_a_drain_of_idle_connections(self):
        server = self.start()
        conns = [self.owns(H2(server.at(index), over_tls=index == TLS or None)) for index in (PLAIN, TLS)]
        for conn in conns:
            conn.request()
        server.signal()
        self.assertEqual([conn.end() for conn in conns], [h.NO_ERROR, h.NO_ERROR])
        self.assertEqual(server.wait(), 0)

    def test_reloads(self):
        """The connection stays; a request that runs ends in its site, the next one begins in the new."""
        server = self.start()
        conn = self.owns(H2(server.at()))
        held = conn.open("/hold")
        conn.ping()
        for n in range(5):
            server.reload("reloaded")
            self.assertEqual(conn.request().text, "root")
        conn.request("/open")
        self.assertEqual(conn.response(held).text, "held")
        self.assertEqual(conn.goaways, [])


class Clients(Http2):
    def run_client(self, *command, data=None):
        done = subprocess.run(command, input=data, capture_output=True, timeout=WAIT)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return done.stdout

    @needs("curl")
    def test_curl(self):
        body = self.server.dir + "/body"
        write_bytes(body, LARGE[:6 << 20])
        for index, option, url, many in ((PLAIN, "--http2-prior-knowledge", "http://127.0.0.1:%d", 1),  # curl 7.88 cannot use such a
                                         (TLS, "--http2", "https://127.0.0.1:%d", 3)):                 # connection again
            url = url % self.server.port(index)
            with self.subTest(option):
                curl = ["curl", "-sSfk", "--noproxy", "*", option]
                out = self.run_client(*curl, "-w", "%{http_version}", *[url + "/"] * many)
                self.assertEqual(out.replace(b"root", b""), b"2" * many)
                self.assertEqual(self.run_client(*curl, "--data-binary", "@" + body, url + "/echo"), LARGE[:6 << 20])
                self.assertEqual(self.run_client(*curl, "-T", body, url + "/pieces"), LARGE[:6 << 20])
                self.assertEqual(self.run_client(*curl, "-T", "-", "-H", "Expect: 100-continue", url + "/echo", data=b"abc"), b"abc")
                self.assertEqual(self.run_client(*curl, "--compressed", url + "/text"), b"line of text\n" * 1000)
                self.assertEqual(self.run_client(*curl, "-I", url + "/large")[:10], b"HTTP/2 200")
                self.assertEqual(len(self.run_client(*curl, *["--parallel"] * (many > 1), *[url + "/parts"] * many)), many * 1000000)
        self.assertEqual(self.run_client("curl", "-sSk", "--http1.1", "-w", "%{http_version}", url + "/"), b"root1.1")

    @needs("nghttp")
    def test_nghttp(self):
        for index, url in ((PLAIN, "http://127.0.0.1:%d"), (TLS, "https://127.0.0.1:%d")):
            url = url % self.server.port(index)
            out = self.run_client("nghttp", "-nv", "--no-verify-peer", "--expect-continue", "-d", "/etc/hostname", "--trailer", "x-note: n",
                                  url + "/trailers").decode()
            self.assertRegex(out, r"x-sum: \d")
            out = self.run_client("nghttp", "-ny", "-s", "-m", "30", url + "/large", url + "/", url + "/parts").decode()
            self.assertEqual(len(re.findall(r" 200 ", out)), 90, out[-3000:])

    @needs("h2load")
    def test_h2load(self):
        for index, scheme in ((PLAIN, "http"), (TLS, "https")):
            for many in (1, 32, 100):
                out = self.run_client("h2load", "-n2000", "-c4", "-m%d" % many, "%s://127.0.0.1:%d/" % (scheme, self.server.port(index)))
                self.assertIn(b"2000 done, 2000 succeeded, 0 failed, 0 errored, 0 timeout", out)

    def test_python_h2(self):
        """Its state machine accepts every frame that the server sends."""
        import h2.config
        import h2.connection
        import h2.events
        conn = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        raw = self.h2(TLS, preface=False).sock
        conn.initiate_connection()
        paths = ["/", "/parts", "/hints", "/trailers", "/status/204", "/text", "/files/large.bin"] * 3
        bodies, ended = {}, set()
        for n, path in enumerate(paths):
            fields = h.head(path, authority="localhost", scheme="https")
            conn.send_headers(1 + 2 * n, fields, end_stream=True)
        raw.sendall(conn.data_to_send())
        raw.settimeout(WAIT)
        while len(ended) < len(paths):
            for event in conn.receive_data(raw.recv(65536)):
                if isinstance(event, h2.events.DataReceived):
                    bodies[event.stream_id] = bodies.get(event.stream_id, 0) + len(event.data)
                    conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                elif isinstance(event, h2.events.StreamEnded):
                    ended.add(event.stream_id)
                elif isinstance(event, (h2.events.StreamReset, h2.events.ConnectionTerminated)):
                    self.fail(event)
            raw.sendall(conn.data_to_send())
        self.assertEqual([bodies.get(1 + 2 * n, 0) for n in range(7)], [4, 1000000, 6, 1, 0, 13000, len(LARGE)])
