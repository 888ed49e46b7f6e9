"""HTTP/2 from clients that break its rules, or keep them at the cost of others: the codes that they get, and that nothing else
is delayed and no memory kept. All frames are written by the test."""
# sanitizers: asan; the threads are those of test_http2
# wine: none; frames for nghttp2; test_http2 uses the sockets there
import contextlib
import threading

from harness import E2E, SANITIZER, Closed, app_site, repeats, table
from harness import http2 as h
from harness.http2 import H2, Reset, frame, number

SITE = app_site(r"""
ls.config{ threads = 2 }
local seen = ls.dict("seen")
local function alive(name) -- counted until the handler ends, in any way
  seen:incr(name)
  return setmetatable({}, { __close = function() seen:incr(name, -1) end })
end
local function wait(gate) -- as long as it is closed, also when the client has left
  local _ <close> = alive("held " .. gate)
  while not seen:get(gate) do ls.sleep(0.01) end
end
app:get("/", function() return "root" end)
app:any("/started", function() seen:incr("started") return "started" end)
app:any("/hold/:gate", function(req) wait(req.params.gate) return "held" end)
app:get("/open/:gate", function(req) seen:set(req.params.gate, true) return "" end)
app:get("/count/:name", function(req) return tostring(seen:get(req.params.name) or 0) end)
app:get("/blocks", function() collectgarbage() return tostring(ls.stats().blocks_live) end)
app:get("/big", function() return ("0123456789abcdef"):rep(65536) end)
app:get("/huge", function() return ("0123456789abcdef"):rep(1024 * 1024) end)
app:any("/echo", function(req)
  local _ <close> = alive("readers")
  return req:body()
end)
app:any("/trailers", function(req) req:body() return { a = req.trailers and req.trailers.a } end)
app:get("/stream", function(_, res)
  local _ <close> = alive("writers")
  local n = 0
  while res:write(("x"):rep(1000)) do
    n = n + 1
    if n % 10 == 0 then ls.sleep(0.001) end
  end
end)
""", 'http2 = true, max_body = "1m", max_head = "16k"')

POST = {"method": "POST", "path": "/echo"}


def headers(stream, flags=h.END_HEADERS | h.END_STREAM, **of_head):
    """A frame HEADERS."""
    return frame(h.HEADERS, flags, stream, h.block(h.head(**of_head)))


@h.needs_http2
class Http2(E2E):
    SITE = SITE

    def connect2(self, **kw):
        return H2(self.server.at(), **kw)

    def count(self, name):
        return int(self.get("/count/" + name.replace(" ", "%20")).text)

    def opens(self, gate):
        """Let the handlers of this gate go on, and await that they have ended."""
        self.get("/open/" + gate)
        self.eventually(lambda: self.count("held " + gate) == 0, "all handlers have returned")

    def holds(self, gate, count):
        self.eventually(lambda: self.count("held " + gate) == count, "%d handlers run" % count)

    def alive(self, conn):
        self.assertEqual(conn.request().text, "root")

    @contextlib.contextmanager
    def no_memory_kept(self):
        """The blocks in use behind the body of the statement are those before it."""
        before = int(self.get("/blocks").text)
        yield
        self.eventually(lambda: int(self.get("/blocks").text) <= before + 2, "the blocks are free again")


class ErrorsOfTheConnection(Http2):
    """Frames for which the server ends the connection with GOAWAY (RFC 9113 section 5.4.1)."""

    def ends(self, data, codes, **kw):
        with self.connect2(**kw) as conn:
            conn.raw(data)
            code = conn.end()
            if code not in (codes if isinstance(codes, tuple) else (codes,)):
                raise AssertionError("the code is %s, not %s" % (code, codes))

    def test_frames(self):
        open_1 = headers(1, flags=h.END_HEADERS, **POST)
        unended = headers(1, flags=h.END_STREAM)
        rows = [
            ("an even stream", headers(2), h.PROTOCOL_ERROR),
            ("HEADERS of stream 0", headers(0), h.PROTOCOL_ERROR),
            ("DATA of stream 0", frame(h.DATA, 0, 0, b"a"), h.PROTOCOL_ERROR),
            ("DATA of an idle stream", frame(h.DATA, 0, 5, b"a"), h.PROTOCOL_ERROR),
            ("RST_STREAM of stream 0", frame(h.RST_STREAM, 0, 0, number(8)), h.PROTOCOL_ERROR),
            ("RST_STREAM of an idle stream", frame(h.RST_STREAM, 0, 5, number(8)), h.PROTOCOL_ERROR),
            ("RST_STREAM of 3 bytes", open_1 + frame(h.RST_STREAM, 0, 1, b"abc"), h.FRAME_SIZE_ERROR),
            ("a stream number that was passed over", headers(5) + headers(3), h.PROTOCOL_ERROR),
            ("WINDOW_UPDATE of an idle stream", frame(h.WINDOW_UPDATE, 0, 5, number(1)), h.PROTOCOL_ERROR),
            ("WINDOW_UPDATE 0", frame(h.WINDOW_UPDATE, 0, 0, number(0)), h.PROTOCOL_ERROR),
            ("WINDOW_UPDATE of 3 bytes", frame(h.WINDOW_UPDATE, 0, 0, b"abc"), h.FRAME_SIZE_ERROR),
            ("a connection window above 2^31-1", frame(h.WINDOW_UPDATE, 0, 0, number(2**31 - 1)), h.FLOW_CONTROL_ERROR),
            ("SETTINGS of 5 bytes", frame(h.SETTINGS, payload=b"abcde"), h.FRAME_SIZE_ERROR),
            ("SETTINGS of a stream", frame(h.SETTINGS, 0, 1), h.PROTOCOL_ERROR),
            ("an ACK with settings", frame(h.SETTINGS, h.ACK, 0, h.settings({1: 1})), h.FRAME_SIZE_ERROR),
            ("ENABLE_PUSH 2", frame(h.SETTINGS, payload=h.settings({h.ENABLE_PUSH: 2})), h.PROTOCOL_ERROR),
            ("a window of 2^31", frame(h.SETTINGS, payload=h.settings({h.INITIAL_WINDOW_SIZE: 2**31})), h.FLOW_CONTROL_ERROR),
            ("frames of 1 byte", frame(h.SETTINGS, payload=h.settings({h.MAX_FRAME_SIZE: 1})), h.PROTOCOL_ERROR),
            ("SETTINGS of 2,000 entries", frame(h.SETTINGS, payload=h.settings({}) + b"\x00\x03\x00\x00\x00\x64" * 2000),
             (h.ENHANCE_YOUR_CALM, h.PROTOCOL_ERROR)),
            ("PING of 7 bytes", frame(h.PING, payload=b"1234567"), h.FRAME_SIZE_ERROR),
            ("PING of a stream", frame(h.PING, 0, 1, b"12345678"), h.PROTOCOL_ERROR),
            ("PUSH_PROMISE", frame(h.PUSH_PROMISE, h.END_HEADERS, 1, number(2) + h.block([])), h.PROTOCOL_ERROR),
            ("GOAWAY of a stream", frame(h.GOAWAY, 0, 1, number(0) + number(0)), h.PROTOCOL_ERROR),
            ("CONTINUATION without HEADERS", frame(h.CONTINUATION, h.END_HEADERS, 1), h.PROTOCOL_ERROR),
            ("a frame inside a header block", unended + frame(h.PING, payload=b"12345678"), h.PROTOCOL_ERROR),
            ("the CONTINUATION of another stream", unended + frame(h.CONTINUATION, h.END_HEADERS, 3), h.PROTOCOL_ERROR),
            ("a frame of 16,385 bytes", open_1 + frame(h.DATA, 0, 1, bytes(16385)), h.FRAME_SIZE_ERROR),
            ("more padding than payload", open_1 + frame(h.DATA, h.PADDED, 1, b"\x05abcd"), h.PROTOCOL_ERROR),
            ("HPACK: an index that is unknown", frame(h.HEADERS, h.END_HEADERS | h.END_STREAM, 1, b"\xff\x00"), h.COMPRESSION_ERROR),
            ("HPACK: a table of 8,192 bytes", frame(h.HEADERS, h.END_HEADERS | h.END_STREAM, 1, b"\x3f\xe1\x3f"), h.COMPRESSION_ERROR),
            ("HPACK: a string that is cut", frame(h.HEADERS, h.END_HEADERS | h.END_STREAM, 1, b"\x00\x05abc"), h.COMPRESSION_ERROR),
            ("HPACK: Huffman's end of string", frame(h.HEADERS, h.END_HEADERS | h.END_STREAM, 1, b"\x00\x84\xff\xff\xff\xff\x00"),
             h.COMPRESSION_ERROR),
        ]
        table(self, [(name, (data, codes)) for name, data, codes in rows], lambda case: self.ends(*case))
        self.assertEqual(self.get("/").text, "root")

    def test_the_preface(self):
        rows = [
            ("no SETTINGS", h.PREFACE + frame(h.PING, payload=b"12345678"), h.PROTOCOL_ERROR),
            ("SETTINGS with ACK", h.PREFACE + frame(h.SETTINGS, h.ACK), h.PROTOCOL_ERROR),
            ("HEADERS", h.PREFACE + headers(1), h.PROTOCOL_ERROR),
        ]
        table(self, [(name, (data, code)) for name, data, code in rows], lambda case: self.ends(*case, preface=False))

    def test_a_plain_listener_takes_only_the_preface_for_http2(self):
        with self.connect() as conn:  # HTTP/1 answers what is none
            conn.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\nX")
            self.assertEqual(conn.response().status, 400)
        self.ends(b"INVALID CONNECTION PREFACE\r\n\r\n", h.PROTOCOL_ERROR, preface=False)  # of neither version
        with self.connect2(preface=False) as conn:
            for byte in h.PREFACE:
                conn.raw(bytes([byte]))
            conn.send(h.SETTINGS)
            self.alive(conn)
        with self.connect() as conn:  # the other protocol of the same port
            self.assertEqual(conn.get("/").text, "root")

    def test_a_header_block_of_many_frames(self):
        with self.connect2() as conn:
            block = h.block(h.head())
            conn.send(h.HEADERS, h.END_STREAM, 1, block[:3])
            for at in range(3, 10):
                conn.send(h.CONTINUATION, 0, 1, block[at:at + 1])
            conn.send(h.CONTINUATION, h.END_HEADERS, 1, block[10:])
            self.assertEqual(conn.response(1).status, 200)
        self.ends(headers(1, flags=h.END_STREAM) + frame(h.CONTINUATION, 0, 1) * 10000, (h.ENHANCE_YOUR_CALM, h.PROTOCOL_ERROR))


class ErrorsOfAStream(Http2):
    """Requests that are reset (RFC 9113 section 5.4.2) or refused with a status, beside others of their connection."""

    def check(self, data, expected, stream=1):
        """The stream is reset with this code, or has this status; the connection lives."""
        with self.connect2() as conn:
            conn.raw(data)
            conn.next_id = stream + 2
            try:
                got = conn.response(stream).status
            except Reset as reset:
                got = ("reset", reset.code)
            if got != expected:
                raise AssertionError("%s, not %s" % (got, expected))
            self.alive(conn)

    def test_requests(self):
        malformed = ("reset", h.PROTOCOL_ERROR)
        rows = [(repr(extra), [*h.head(), extra], malformed) for extra in (
            ("connection", "close"), ("keep-alive", "1"), ("proxy-connection", "close"), ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"), ("te", "gzip"), ("X", "upper"), ("", "empty"), ("a b", "space"), ("x", "a\rb"), ("x", "a\nb"),
            ("x", "a\0b"), ("x", " a"), ("x", "a\t"), (":path", "/"), (":unknown", "x"), (":status", "200"),
            ("content-length", "5"))]
        rows += [("without " + name, [field for field in h.head() if field[0] != name], malformed)
                 for name in (":method", ":scheme", ":path")]
        rows += [
            ("a pseudo-header field at the end", [*h.head(path=None), ("x", "y"), (":path", "/")], malformed),
            ("two authorities", [*h.head(), (":authority", "h")], malformed),
            ("an empty path", h.head(path=""), malformed),
            ("a path without /", h.head(path="a"), malformed),
            ("a target that is a URL", h.head(path="http://h/"), malformed),
            ("CONNECT with a path", h.head(method="CONNECT"), malformed),
            (":authority against Host", [*h.head(), ("host", "other")], 400),
            ("two Hosts", [*h.head(authority=None), ("host", "h"), ("host", "h")], malformed),
            ("no authority", h.head(authority=None), malformed),
            ("userinfo", h.head(authority="u@h"), 400),
            ("a fragment", h.head(path="/#a"), 400),
            ("an escape that is cut", h.head(path="/%4"), 400),
            ("an expectation", [*h.head(), ("expect", "x")], 417),
            ("a long target", h.head(path="/" + "a" * 9000), 414),
            ("101 fields", [*h.head(), *[("x", str(n)) for n in range(101)]], 431),
            ("a head of 17 KiB", [*h.head(), ("x", "y" * 15000), ("z", "y" * 2400)], 431),
            ("a long method", h.head(method="M" * 33), 501),
        ]
        same = [
            ("Host as :authority", [*h.head(), ("host", "h")], 200),
            ("only Host", [*h.head(authority=None), ("host", "h")], 200),
            ("te: trailers", [*h.head(), ("te", "trailers")], 200),
        ]
        # in pieces of the largest frame
        table(self, [(name, (self.blocks(fields), expected)) for name, fields, expected in rows + same],
              lambda case: self.check(*case))

    @staticmethod
    def blocks(fields):
        block = h.block(fields)
        pieces = [block[at:at + 16384] for at in range(0, len(block), 16384)]
        last = len(pieces) - 1
        return b"".join(frame(h.CONTINUATION if n else h.HEADERS, (h.END_HEADERS if n == last else 0) | (0 if n else h.END_STREAM),
                              1, piece) for n, piece in enumerate(pieces))

    def test_bodies(self):
        def body(length, *frames, path="/echo"):
            fields = [("content-length", str(length))] if length is not None else []
            return headers(1, flags=h.END_HEADERS, path=path, method="POST", fields=fields) + b"".join(frames)

        def data(size, flags=0):
            return b"".join(frame(h.DATA, flags if at + 16384 >= size else 0, 1, bytes(min(16384, size - at)))
                            for at in range(0, size, 16384))

        end = h.END_STREAM
        trailers = h.END_HEADERS | end
        malformed = ("reset", h.PROTOCOL_ERROR)
        rows = [
            ("as long as announced", body(3, data(3, end)), 200),
            ("padded", body(3, frame(h.DATA, h.PADDED | end, 1, b"\x02abc\0\0")), 200),
            ("empty", body(None, frame(h.DATA, end, 1)), 200),
            ("with trailers", body(3, data(3), frame(h.HEADERS, trailers, 1, h.block([("a", "b")])), path="/trailers"), 200),
            ("longer than announced", body(3, data(4, end)), malformed),
            ("shorter than announced", body(3, data(2, end)), malformed),
            ("shorter, before trailers", body(3, data(2), frame(h.HEADERS, trailers, 1, h.block([("a", "b")]))), malformed),
            ("trailers without END_STREAM", body(None, data(3), frame(h.HEADERS, h.END_HEADERS, 1, h.block([("a", "b")]))), malformed),
            ("pseudo-header field in trailers", body(None, data(3), frame(h.HEADERS, trailers, 1, h.block([(":path", "/")]))), malformed),
            ("upper case in trailers", body(None, data(3), frame(h.HEADERS, trailers, 1, h.block([("A", "b")]))), malformed),
            ("longer than max_body, announced", body(2 << 20), 413),
            ("its stream window is above 2^31-1", body(None, frame(h.WINDOW_UPDATE, 0, 1, number(2**31 - 1))),
             ("reset", h.FLOW_CONTROL_ERROR)),
        ]
        table(self, [(name, (data, expected)) for name, data, expected in rows], lambda case: self.check(*case))

    def test_a_body_longer_than_max_body(self):
        with self.connect2() as conn:
            stream = conn.open(end=False, **POST)
            with contextlib.suppress(Reset):
                conn.body(stream, bytes(2 << 20))
            self.assertEqual(conn.response(stream).status, 413)
            self.alive(conn)

    def test_a_body_beyond_its_window(self):
        """It costs the stream or the connection, and no other one."""
        with self.connect2() as conn:
            stream = conn.open("/hold/window", "POST", end=False)
            for _ in range(10):
                conn.send(h.DATA, 0, stream, bytes(16384))
            try:
                self.assertEqual(conn.reset_code(stream), h.FLOW_CONTROL_ERROR)
            except Closed:
                self.assertEqual(conn.goaways[-1][1], h.FLOW_CONTROL_ERROR)
        self.opens("window")

    def test_frames_of_a_closed_stream(self):
        for name, data in (("DATA", frame(h.DATA, 0, 1, b"a")), ("HEADERS", headers(1))):
            with self.subTest(name), self.connect2() as conn:
                self.assertEqual(conn.request().status, 200)
                conn.raw(data)
                self.assertEqual(conn.end(), h.STREAM_CLOSED)


class Limits(Http2):
    """What a client may cost: the handlers, resets, empty frames, lists of fields and unread responses of a connection."""

    def test_resets_of_running_handlers(self):
        """CVE-2023-44487: a handler counts until it has returned, not until its stream ends."""
        with self.connect2() as conn:
            held = [conn.open("/hold/reset") for _ in range(100)]
            self.holds("reset", 100)
            for stream in held:
                conn.send(h.RST_STREAM, 0, stream, number(h.CANCEL))
            more = [conn.open("/hold/reset") for _ in range(29)]
            self.assertEqual(conn.reset_code(more.pop()), h.REFUSED_STREAM)
            self.holds("reset", 128)
            self.opens("reset")
            self.assertEqual({conn.response(stream).text for stream in more}, {"held"})
            self.alive(conn)

    def test_streams_above_the_limit(self):
        with self.connect2() as conn:
            held = [conn.open("/hold/many") for _ in range(129)]
            self.assertEqual(conn.reset_code(held.pop()), h.REFUSED_STREAM)
            self.assertEqual(conn.peer[h.MAX_CONCURRENT_STREAMS], 128)
            self.holds("many", 128)
            self.opens("many")
            self.assertEqual({conn.response(stream).text for stream in held}, {"held"})

    def test_a_flood_of_resets(self):
        """Each costs one of a budget that completed requests refill."""
        before = self.count("started")
        with self.connect2() as conn:
            for stream in range(1, 2000, 2):  # both at once: before the handler has completed the stream
                conn.raw(headers(stream, path="/started") + frame(h.RST_STREAM, 0, stream, number(h.CANCEL)))
            self.assertEqual(conn.end(), h.ENHANCE_YOUR_CALM)
        self.assertLessEqual(self.count("started") - before, 256 + 8)  # a read may end between the two
        with self.connect2() as conn:  # for ever, if they alternate
            for _ in range(repeats(500)):
                stream = conn.open("/stream")
                conn.until(lambda of=stream: of in conn.streams and conn.streams[of].fields)
                conn.send(h.RST_STREAM, 0, stream, number(h.CANCEL))
                self.alive(conn)
            self.assertEqual(conn.goaways, [])

    def test_a_flood_of_faults(self):
        """CVE-2025-8671: resets that the client provokes cost as much as its own."""
        for name, provoke in (
            ("a field", lambda conn: conn.open("/started", fields=[("te", "x")])),
            ("a window", lambda conn: conn.send(h.WINDOW_UPDATE, 0, conn.open("/hold/fault"), number(2**31 - 1))),
            ("a body", lambda conn: conn.send(h.DATA, h.END_STREAM, conn.open(end=False, fields=[("content-length", "2")], **POST), b"abc")),
        ):
            with self.subTest(name), self.connect2() as conn:
                for _ in range(1000):
                    provoke(conn)
                self.assertEqual(conn.end(), h.ENHANCE_YOUR_CALM)
                self.assertLessEqual(self.count("held fault"), 128)
        self.opens("fault")

    def test_a_list_that_a_table_makes_large(self):
        """A block of 16 KiB that stands for 49 MB of fields."""
        with self.connect2() as conn, self.no_memory_kept():
            first = b"\x40" + h.text("x") + h.text("y" * 4000)  # enters the table
            conn.send(h.HEADERS, h.END_HEADERS | h.END_STREAM, 1, h.block(h.head()) + first + b"\xbe" * 12000)
            conn.next_id = 3
            try:
                self.assertEqual(conn.response(1).status, 431)
            except Reset as reset:
                self.assertIn(reset.code, (h.INTERNAL_ERROR, h.ENHANCE_YOUR_CALM, h.PROTOCOL_ERROR))
            self.alive(conn)
            conn.send(h.HEADERS, h.END_HEADERS | h.END_STREAM, 5, h.block(h.head()) + b"\xbe" * 3)  # the table is as it was
            self.assertEqual(conn.response(5).status, 200)

    def flood(self, data, most=1 << 30):
        """Send this again and again until the connection ends, and read what comes beside that; the last 4 KiB."""
        tail = bytearray()
        with self.connect2() as conn:
            conn.open("/echo", "POST", end=False)

            def read():
                with contextlib.suppress(OSError):
                    while part := conn.sock.recv(1 << 20):
                        tail[:] = (tail + part)[-4096:]

            reader = threading.Thread(target=read)
            reader.start()
            block = data * (65536 // len(data) + 1)
            sent = 0
            with contextlib.suppress(OSError):
                while reader.is_alive() and sent < most:
                    conn.sock.sendall(block)
                    sent += len(block)
            self.assertLess(sent, most)
            reader.join()
        return bytes(tail)

    def test_frames_that_carry_nothing(self):
        """CVE-2019-9512, 9515, 9518."""
        calm = number(h.ENHANCE_YOUR_CALM)
        rows = [
            ("PING", frame(h.PING, payload=b"12345678")), ("PING ACK", frame(h.PING, h.ACK, 0, b"12345678")),
            ("SETTINGS", frame(h.SETTINGS)), ("empty DATA", frame(h.DATA, 0, 1)),
            ("WINDOW_UPDATE", frame(h.WINDOW_UPDATE, 0, 1, number(1))), ("PRIORITY", frame(h.PRIORITY, 0, 1, number(3) + b"\x01")),
            ("PRIORITY_UPDATE", frame(h.PRIORITY_UPDATE, 0, 0, number(1) + b"u=1")), ("an unknown frame", frame(99, 0, 0, bytes(1000))),
            ("RST_STREAM", frame(h.RST_STREAM, 0, 1, number(8))),
        ]

        def check(row):
            tail = self.flood(row[1])
            if row[0] not in ("PING", "SETTINGS") and calm not in tail[-600:]:  # their answers may fill the connection
                raise AssertionError("no GOAWAY ENHANCE_YOUR_CALM at the end: %r" % tail[-64:])

        table(self, [(row[0], row) for row in rows], check, workers=4)
        self.assertEqual(self.get("/").text, "root")

    def test_padding(self):
        """It is no payload, although it keeps the windows."""
        with self.connect2() as conn, contextlib.suppress(Closed):
            conn.open("/echo", "POST", end=False)
            for _ in range(200):
                conn.raw(frame(h.DATA, h.PADDED, 1, b"\xff" + bytes(255)) * 200)
                conn.ping()
        self.assertEqual([code for _, code, _ in conn.goaways], [h.ENHANCE_YOUR_CALM])

    def test_answers_that_are_not_read(self):
        """The server reads no more from a client that does not take its answers, or ends the connection."""
        before = self.server.rss()
        with self.connect2() as conn:
            conn.sock.settimeout(2)
            with contextlib.suppress(OSError):
                for _ in range(1000):
                    conn.sock.sendall(frame(h.PING, payload=b"12345678") * 4000)
        if not SANITIZER:
            self.assertLess(self.server.rss() - before, 8 << 20)

    def test_windows_that_grow_by_one_byte(self):
        """CVE-2019-9511: they do not make frames of one byte; what is less than 64 bytes waits for a second."""
        with self.connect2(first={h.INITIAL_WINDOW_SIZE: 0}, credit=False) as conn:
            stream = conn.open("/big")
            conn.until(lambda: stream in conn.streams and conn.streams[stream].fields)
            for _ in range(500):
                conn.send(h.WINDOW_UPDATE, 0, stream, number(1))
            conn.send(h.PING, 0, 0, b"12345678")
            sizes = []
            while len(conn.streams[stream].body) < 500 or not conn.pings:
                got = conn.read()
                sizes += [len(got.payload)] if got.kind == h.DATA else []
            self.assertLess(len(sizes), 20, sizes)
            small = conn.open("/")  # a whole response of 4 bytes needs no more
            conn.send(h.WINDOW_UPDATE, 0, small, number(4))
            self.assertEqual(conn.response(small).text, "root")

    def test_a_body_in_pieces_of_one_byte(self):
        """They do not hold the blocks in which they were received."""
        with self.connect2() as conn, self.no_memory_kept():
            stream = conn.open("/hold/pieces", "POST", end=False)
            before = int(self.get("/blocks").text)
            for _ in range(100):
                conn.raw(frame(h.DATA, 0, stream, b"a") * 200)
            conn.ping()
            self.assertLess(int(self.get("/blocks").text) - before, 20)
            conn.send(h.DATA, h.END_STREAM, stream)
            self.opens("pieces")
            self.assertEqual(conn.response(stream).text, "held")

    def test_responses_that_are_not_read(self):
        """A stream whose window stays 0 holds the response of its handler, and nothing more."""
        with self.no_memory_kept(), self.connect2(first={h.INITIAL_WINDOW_SIZE: 0}, credit=False) as conn:
            conn.open("/huge")
            for _ in range(20):
                conn.open("/stream")
            conn.send(h.SETTINGS, 0, 0, h.settings({h.INITIAL_WINDOW_SIZE: 65535}))
            conn.until(lambda: sum(len(of.body) for of in conn.streams.values()) >= 65535)
            conn.ping()  # the window of the connection is used up
            self.assertEqual(sum(len(of.body) for of in conn.streams.values()), 65535)

    def test_uploads_that_no_handler_reads(self):
        """Their bytes are no frames that carry nothing, although their streams are closed."""
        with self.connect2() as conn:
            for _ in range(200):
                stream = conn.open("/started", "POST", end=False)
                conn.raw(b"".join(frame(h.DATA, 0, stream, bytes(size)) for size in (16384, 16384, 16384, 16383)))
                conn.response(stream)
                conn.send(h.RST_STREAM, 0, stream, number(h.CANCEL))
            self.alive(conn)

    def test_the_connection_window_after_aborted_uploads(self):
        with self.connect2() as conn:
            for n in range(200):
                stream = conn.open("/hold/uploads%d" % (n % 2), "POST", end=False)  # the handler waits, or has answered already
                conn.body(stream, bytes(65535), end=False)
                conn.send(h.RST_STREAM, 0, stream, number(h.CANCEL))
                self.alive(conn)
                if n == 50:
                    self.opens("uploads1")
            self.assertEqual(conn.request(body=bytes(1 << 20), **POST).body, bytes(1 << 20))
        self.opens("uploads0")


class Moments(Http2):
    """A stream that is reset at each moment of its life."""

    def reset(self, at, conn):
        """Open a stream, await the moment, reset it."""
        path, method, body, ready = at
        stream = conn.open(path, method=method, end=body is None)
        if body:
            conn.send(h.DATA, 0, stream, body)
        if ready:
            conn.until(lambda: stream in conn.streams and ready(conn.streams[stream]))
        conn.send(h.RST_STREAM, 0, stream, number(h.CANCEL))
        return stream

    def test_each_moment(self):
        rows = [
            ("at once", ("/started", "GET", None, None)),
            ("before its body", ("/echo", "POST", b"", None)),
            ("inside its body", ("/echo", "POST", b"abc", None)),
            ("while its handler waits", ("/hold/moment", "GET", None, None)),
            ("behind its head", ("/stream", "GET", None, lambda of: of.fields)),
            ("inside its response", ("/stream", "GET", None, lambda of: len(of.body) > 100000)),
            ("inside a large response", ("/huge", "GET", None, lambda of: len(of.body) > 100000)),
            ("without a window", ("/huge", "GET", None, lambda of: len(of.body) > 60000)),
        ]

        def check(row):
            name, at = row
            with self.connect2(credit=name != "without a window") as conn:
                for _ in range(repeats(20)):
                    self.reset(at, conn)
                    if not conn.credit:
                        conn.send(h.WINDOW_UPDATE, 0, 0, number(65535))
                    self.alive(conn)

        with self.no_memory_kept():
            table(self, [(row[0], row) for row in rows], check)
            self.opens("moment")
            for what in ("readers", "writers"):
                self.eventually(lambda of=what: self.count(of) == 0, "no handler is left of the " + what)

    def test_the_connection_ends(self):
        with self.no_memory_kept():
            for _ in range(repeats(20)):
                conn = self.connect2(credit=False)
                for path in ("/hold/end", "/huge", "/stream", "/started"):
                    conn.open(path)
                conn.open(end=False, **POST)
                conn.ping()
                conn.close()
            self.holds("end", repeats(20))
            self.opens("end")
            self.eventually(lambda: self.count("writers") + self.count("readers") == 0, "all handlers have ended")


@h.needs_http2
class Options(E2E):
    """http2 = { ... }: each limit at the limit and one past it."""
    SITE = app_site(r"""
local seen = ls.dict("seen")
app:get("/", function() return "root" end)
app:any("/hold/:gate", function(req) while not seen:get(req.params.gate) do ls.sleep(0.01) end return "" end)
app:post("/echo", function(req) return req:body() end)
app:get("/open/:gate", function(req) seen:set(req.params.gate, true) return "" end)
app:get("/ended", function() return tostring(ls.stats().http2_ended) end)
""", 'http2 = { streams = 5, resets = 4, window = "2m" }')

    def test_streams(self):
        with H2(self.server.at()) as conn:
            held = [conn.open("/hold/streams") for _ in range(6)]
            self.assertEqual(conn.reset_code(held.pop()), h.REFUSED_STREAM)
            self.assertEqual(conn.peer[h.MAX_CONCURRENT_STREAMS], 5)
            self.get("/open/streams")
            self.assertEqual([conn.response(stream).status for stream in held], [200] * 5)

    def test_resets(self):
        before = int(self.get("/ended").text)
        with H2(self.server.at()) as conn:
            for _ in range(3):
                conn.send(h.RST_STREAM, 0, conn.open("/hold/resets"), number(h.CANCEL))
            conn.ping()
            self.assertEqual(conn.goaways, [])
            conn.send(h.RST_STREAM, 0, conn.open("/hold/resets"), number(h.CANCEL))
            self.assertEqual(conn.end(), h.ENHANCE_YOUR_CALM)
        self.get("/open/resets")
        self.assertEqual(int(self.get("/ended").text), before + 1)
        self.server.wait_log("HTTP/2: too many streams were reset: the connection is closed")

    def test_the_window(self):
        with H2(self.server.at()) as conn:
            conn.until(lambda: conn.windows[0])
            self.assertEqual(conn.room(0), 1 << 20)
            body = bytes(7 << 20)
            self.assertEqual(conn.request("/echo", "POST", body).body, body)
            self.assertGreater(conn.room(0), 1 << 20)  # its handler has read as fast as it arrived
            self.assertLessEqual(conn.room(0), 2 << 20)
            self.assertLessEqual(conn.room(conn.next_id - 2), 2 << 20)
        with H2(self.server.at()) as conn:
            conn.until(lambda: conn.windows[0])
            stream = conn.open("/hold/window", "POST", end=False)
            conn.raw(b"".join(frame(h.DATA, 0, stream, bytes(size)) for size in (16384, 16384, 16384, 16383)))
            conn.ping()
            self.assertEqual((conn.windows[stream], conn.windows[0]), (0, (1 << 20) - 65535))  # nobody has read it
            self.get("/open/window")


@h.needs_http2
class Slow(E2E):
    """Clients that take their time: head_timeout, send_timeout, idle_timeout, the rate of a body."""
    SITE = app_site(r"""
app:get("/", function() return "root" end)
app:get("/huge", function() return ("0123456789abcdef"):rep(1024 * 1024) end)
app:post("/echo", function(req) return req:body() end)
""", "http2 = true, head_timeout = 1, send_timeout = 1, idle_timeout = 2, body_grace = 1, min_body_rate = 1000")

    def test_each(self):
        def check(name):
            with H2(self.server.at(), preface=False, first={}, credit=False) as conn:
                begin = h.PREFACE + frame(h.SETTINGS)
                if name == "preface":
                    conn.raw(h.PREFACE[:20])
                elif name == "settings":
                    conn.raw(h.PREFACE)
                elif name == "block":
                    conn.raw(begin + headers(1, flags=h.END_STREAM))
                elif name == "idle":
                    conn.raw(begin)
                    conn.request()
                else:
                    conn.raw(begin)
                    stream = conn.open("/huge" if name == "window" else "/echo", method="GET" if name == "window" else "POST",
                                       end=name == "window")
                    if name == "window":
                        self.assertEqual(conn.reset_code(stream), h.CANCEL)
                    else:
                        conn.send(h.DATA, 0, stream, b"a")
                        self.assertEqual(conn.response(stream).status, 408)
                    return
                self.assertIn(conn.end(), {"idle": (h.NO_ERROR,), "block": (h.PROTOCOL_ERROR,), "settings": (h.PROTOCOL_ERROR,)}.get(
                    name, (None, h.PROTOCOL_ERROR)))

        table(self, [(name, name) for name in ("preface", "settings", "block", "idle", "window", "body")], check)
