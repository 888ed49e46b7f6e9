"""WebSocket over a stream of HTTP/2 (RFC 8441), by frames and in a browser."""
# sanitizers: asan; the threads are those of test_http2
# wine: none; frames for nghttp2; test_http2 uses the sockets there
import unittest

from harness import E2E, free_port, table
from harness import http2 as h
from harness.browser import Browser, needs_browser
from harness.http2 import H2
from harness.websocket import CLOSE, CONTINUATION, TEXT, close_payload, frame

SITE = r"""
local ls = require "luaserve"
local app = ls.app()
app:ws("/echo", { max_message = "4m" }, function(ws, req)
  ws:send(req.version .. " " .. req.method .. " " .. tostring(req.headers["sec-websocket-key"] ~= nil))
  for data in ws:messages() do ws:send(data) end
  ls.dict("seen"):incr("ended")
end)
app:ws("/one", function(ws) ws:send("only") end)
app:get("/plain", function() return "plain" end)
app:get("/ended", function() return tostring(ls.dict("seen"):get("ended") or 0) end)
app:get("/page", function(_, res) return res:html(PAGE) end)
app:get("/picture/:n", function(req, res)
  return res:type("image/svg+xml"):send('<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>')
end)
app:get("/events", function(_, res)
  local sse = res:sse()
  sse:send("an event")
  sse:wait()
end)
app:proxy("/up", "http://127.0.0.1:@UP@", { strip = true })
ls.listen{ host = "127.0.0.1", port = 0, handler = app, http2 = true }
ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = "self-signed" }
local none = ls.app()
none:get("/", function() return "no WebSocket here" end)
ls.listen{ host = "127.0.0.1", port = 0, handler = none, http2 = true }
local passes = ls.app()
passes:proxy("/up", "http://127.0.0.1:@UP@", { strip = true })
ls.listen{ host = "127.0.0.1", port = 0, hosts = { h = passes }, http2 = true }
local up = ls.app()
up:ws("/echo", function(ws) for data in ws:messages() do ws:send("up " .. data) end end)
ls.listen{ host = "127.0.0.1", port = @UP@, handler = up }
"""
PAGE = """[==[<body><script>
for (let n = 0; n < 50; n++) { const i = new Image(); i.src = '/picture/' + n; document.body.append(i) }
const source = new EventSource('/events'); source.onmessage = e => { window.event_data = e.data }
const ws = new WebSocket('wss://' + location.host + '/echo'), got = []
ws.onopen = () => ws.send('hello'); ws.onmessage = e => got.push(e.data)
</script>]==]"""
PLAIN, TLS, NONE, PROXY = range(4)


class Socket:
    """A WebSocket over the stream of an H2."""

    def __init__(self, conn, path, **fields):
        self.conn, self.at = conn, 0
        more = [("sec-websocket-version", "13"), *((name.replace("_", "-"), value) for name, value in fields.items())]
        conn.until(lambda: conn.got_settings)
        self.stream = conn.open(end=False, whole=[(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"),
                                                  (":path", path), (":authority", "h"), *more])
        self.response = conn.streams.setdefault(self.stream, h.Response())
        conn.until(lambda: self.response.fields or self.response.reset is not None)

    def send(self, data, opcode=TEXT, **how):
        self.conn.body(self.stream, frame(opcode, data, **how), end=False)

    def take(self, count):
        self.conn.until(lambda: len(self.response.body) >= self.at + count or self.response.ended)
        data = self.response.body[self.at:self.at + count]
        self.at += count
        return data

    def receive(self):
        """(opcode, payload) of a frame of the server."""
        first, size = self.take(2)
        if size > 125:
            size = int.from_bytes(self.take(2 if size == 126 else 8), "big")
        return first & 15, self.take(size)


@h.needs_http2
class WebSockets(E2E):
    LISTENERS = 5
    SITE = SITE.replace("PAGE", PAGE).replace("@UP@", str(free_port()))

    def h2(self, index=PLAIN):
        return self.owns(H2(self.server.at(index), over_tls=index == TLS or None))

    def test_messages(self):
        def check(index):
            conn = self.h2(index)
            one, two = Socket(conn, "/echo"), Socket(conn, "/echo")
            for ws in (one, two):
                self.assertEqual((ws.response.status, ws.response.header("sec-websocket-accept")), (200, None))
                self.assertEqual(ws.receive(), (TEXT, b"2 GET true"))
            for size in (0, 1, 125, 126, 65535, 65536, 1 << 20):
                data = (b"0123456789abcdef" * (size // 16 + 1))[:size]
                one.send(data)
                two.send(b"beside")
                self.assertEqual(two.receive(), (TEXT, b"beside"))
                self.assertEqual(one.receive(), (TEXT, data))
            self.assertEqual(conn.request("/plain").text, "plain")
        table(self, [("plain", PLAIN), ("TLS", TLS)], check)

    def test_frames_in_pieces(self):
        """A head of a frame, its mask and its payload come in DATA frames of one byte."""
        conn = self.h2()
        ws = Socket(conn, "/echo")
        ws.receive()
        for byte in frame(TEXT, b"in pieces"):
            conn.send(h.DATA, 0, ws.stream, bytes([byte]))
        self.assertEqual(ws.receive(), (TEXT, b"in pieces"))
        ws.send(b"frag", fin=False)
        ws.send(b"ments", CONTINUATION)
        self.assertEqual(ws.receive(), (TEXT, b"fragments"))

    def test_ends(self):
        conn = self.h2()
        by_client = Socket(conn, "/echo")
        by_client.receive()
        by_client.send(close_payload(1000), CLOSE)
        self.assertEqual(by_client.receive(), (CLOSE, close_payload(1000)))
        conn.until(lambda: by_client.response.ended)
        by_server = Socket(conn, "/one")
        self.assertEqual([by_server.receive(), by_server.receive()], [(TEXT, b"only"), (CLOSE, close_payload(1000))])
        reset = Socket(conn, "/echo")
        reset.receive()
        conn.send(h.RST_STREAM, 0, reset.stream, h.number(h.CANCEL))
        lost = self.h2()
        Socket(lost, "/echo").receive()
        lost.close()
        self.eventually(lambda: conn.request("/ended").text == "3", "the handlers have ended")

    def test_what_is_refused(self):
        conn = self.h2()
        for path, status, fields in (("/echo", 426, {"sec_websocket_version": "12"}), ("/plain", 501, {}), ("/none", 404, {})):
            if "sec_websocket_version" in fields:
                stream = conn.open(end=False, whole=[(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"),
                                                     (":path", path), (":authority", "h"), ("sec-websocket-version", "12")])
                response = conn.streams.setdefault(stream, h.Response())
                conn.until(lambda: response.fields)
            else:
                response = Socket(conn, path).response
            self.assertEqual(response.status, status, path)
        stream = conn.open(end=False, whole=[(":method", "CONNECT"), (":protocol", "other"), (":scheme", "http"),
                                             (":path", "/echo"), (":authority", "h")])
        response = conn.streams.setdefault(stream, h.Response())
        conn.until(lambda: response.fields)
        self.assertEqual(response.status, 501)

    def test_only_where_there_are_some(self):
        for index, value in ((PLAIN, 1), (PROXY, 1), (NONE, None)):
            conn = self.h2(index)
            conn.until(lambda: conn.got_settings)
            self.assertEqual(conn.peer.get(h.ENABLE_CONNECT_PROTOCOL), value)
        self.assertEqual(conn.reset_code(conn.open(end=False, whole=[
            (":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":path", "/"), (":authority", "h")])),
            h.PROTOCOL_ERROR)

    def test_through_a_proxy(self):
        for index in (PLAIN, PROXY):
            ws = Socket(self.h2(index), "/up/echo")
            self.assertEqual(ws.response.status, 200)
            ws.send(b"data")
            self.assertEqual(ws.receive(), (TEXT, b"up data"))


@needs_browser
@h.needs_http2
class InBrowser(E2E):
    LISTENERS = 5
    SITE = SITE.replace("PAGE", PAGE).replace("@UP@", str(free_port()))

    def test_a_page(self):
        """50 pictures, events and a WebSocket share one connection."""
        with Browser(flags=("--ignore-certificate-errors",)) as browser:
            page = browser.page("https://127.0.0.1:%d/page" % self.server.port(TLS))
            page.wait("window.event_data === 'an event' && got.length === 2")
            self.assertEqual(page.run("got"), ["2 GET true", "hello"])
            used = page.run("performance.getEntriesByType('resource').map(e => e.nextHopProtocol)")
            self.assertEqual(set(used), {"h2"})
            self.assertGreaterEqual(len(used), 50)
            page.check()


if __name__ == "__main__":
    unittest.main()
