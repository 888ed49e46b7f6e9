"""WebSocket peers that break the rules (RFC 6455, RFC 7692), or keep them without mercy: bad handshakes and frames,
bytes that are no UTF-8, messages and compressed messages that are too big, that never end, peers that flood, stall or
vanish. Each test ends with the proof that the server serves, and the class with that it has closed every descriptor."""
import struct
import zlib

from harness import SANITIZER, E2E, Conn, in_parallel, main, repeats, request
from harness.websocket import (BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, CloseFrame, WebSocket, accept, close_payload,
                               frame, handshake, refused)

LIMIT = 1000  # bytes: max_message of the routes with "small"
MIB = 1 << 20

SITE = r"""
local ls = require "luaserve"
ls.config { threads = 4, drain_timeout = 10, head_timeout = 2 }
local app = ls.app()
local ends = ls.channel("ends", { capacity = 10000 })
app:get("/", function() return "served\n" end)
app:get("/end", function() return ends:receive(20) or 504 end)
app:get("/forget", function()
  while ends:receive(0) do end
end)

local function told(ws) ends:send(("%s %s"):format(ws.code, ws.reason), 0) end
local function echo(ws)
  for data, kind in ws:messages() do
    if not ws:send(data, kind) then break end
  end
end

-- Both forms of each route: /NAME has a coroutine, /NAME/event has functions.
local function route(name, options)
  app:ws("/" .. name, options, function(ws)
    echo(ws)
    told(ws)
  end)
  local event = { message = function(ws, data, kind) ws:send(data, kind) end, close = told }
  for key, value in pairs(options) do event[key] = value end
  app:ws("/" .. name .. "/event", event)
end

route("echo", {})
route("small", { max_message = 1000 })
route("deflate", { max_message = 1000, compress = true })
route("takeover", { max_message = 1000, compress = { context = true } })
route("bomb", { compress = true })
route("quick", { message_timeout = 1, close_timeout = 1, ping = 60 })
route("chat", { protocols = { "chat.v2", "chat.v1" } })
route("listed", { origins = { "https://a.example", "http://b.example:81" } })
route("any", { origins = "*" })

-- The number of messages and their bytes, at the message "count".
app:ws("/count", function(ws)
  local messages, bytes = 0, 0
  for data in ws:messages() do
    if data == "count" then
      ws:send(messages .. " " .. bytes)
    else
      messages, bytes = messages + 1, bytes + #data
    end
  end
end)
-- Sends until it cannot.
app:ws("/flood", { close_timeout = 1 }, function(ws)
  local block = ("x"):rep(65536)
  while ws:send(block) do end
  told(ws)
end)
-- Never receives: what the peer sends waits.
app:ws("/deaf", { close_timeout = 1 }, function(ws)
  while not ws.closed do ls.sleep(0.05) end
end)
app:ws("/closes", { close_timeout = 1, open = function(ws) ws:close(4000, "bye") end, close = told })

-- Topics: what a message says is done, and its results are sent.
app:ws("/topics", { max_queue = "256k", close_timeout = 1, close = told, message = function(ws, data)
  local topic = ("t"):rep(tonumber(data) or 0)
  if data == "nobody" then
    ws:send(tostring(ls.publish("nobody", "x")))
  elseif data == "closed" then
    ws:close()
    local ok, _, code = ws:subscribe("after")
    ends:send(("%s %s %s"):format(ok, code, ls.topics().after))
  else
    local ok, why = pcall(ws.subscribe, ws, topic)
    ws:send(tostring(ok and ls.publish(topic, "x" .. #topic) or why))
  end
end })
app:ws("/news", { max_queue = "256k", close_timeout = 1, open = function(ws)
  ws:subscribe("news")
  ws:send("subscribed")
end, close = told })
app:ws("/news/skip", { max_queue = "256k", overflow = "skip", compress = true, open = function(ws)
  ws:subscribe("news")
  ws:send("subscribed")
end, close = told })
app:get("/stats", function()
  local stats = ls.stats()
  return ("%d %d"):format(stats.topic_closed, stats.topic_dropped)
end)
app:post("/news", function(req) return tostring(ls.publish("news", req:body(), "binary")) .. "\n" end)

ls.listen { host = "127.0.0.1", port = 0, app = app }
"""


def pieces(data, size):
    return [data[at:at + size] for at in range(0, len(data), size)]


class Hostile(E2E):
    SITE = SITE

    def setUp(self):
        super().setUp()
        self.mark = self.server.mark()
        self.get("/forget")  # what a failed test has left

    def tearDown(self):
        self.assertEqual(self.get("/").text, "served\n")
        with WebSocket(self.server.at(), "/echo") as ws:
            self.assertEqual(ws.send("served too").receive(), "served too")
            self.assertEqual(ws.close(), (1000, ""))
        self.assertIn(self.end(), "1000 ")
        self.assertEqual(self.server.logged(" error ", self.mark), [])
        super().tearDown()

    def open(self, path="/echo", **options):
        ws = WebSocket(self.server.at(), path, **options)
        self.addCleanup(ws.conn.close)
        return ws

    def end(self):
        """What a handler has learned about the end of its connection: "code reason"."""
        return self.get("/end").text

    def both(self, name="echo"):
        """A connection of each form."""
        for path in ("/" + name, "/" + name + "/event"):
            with WebSocket(self.server.at(), path) as ws:
                yield ws

    def is_closed(self, ws, code, why=None):
        """The server sends a Close frame with this code and ends the connection; the handler learns the same."""
        got, reason = ws.closes()
        self.assertEqual(got, code, reason)
        if why is not None:
            self.assertIn(why, reason)
        self.assertEqual(self.end(), "%d %s" % (code, reason))
        return reason


class Handshakes(Hostile):
    def is_refused(self, sent, status, why):
        got = refused(self.server.at(), sent)
        self.assertEqual(got.status, status, got)
        self.assertIn(why, got.text)
        self.assertEqual(got.all("Sec-WebSocket-Accept"), [])
        return got

    def test_each_rule(self):
        path = "/echo"
        for sent, status, why in (
                (handshake(path, upgrade=None), 426, '"Upgrade: websocket" is missing'),
                (handshake(path, upgrade="h2c"), 426, '"Upgrade: websocket" is missing'),
                (handshake(path, upgrade="websockets"), 426, '"Upgrade: websocket" is missing'),
                (handshake(path, connection=None), 400, '"Connection: upgrade" is missing'),
                (handshake(path, connection="keep-alive"), 400, '"Connection: upgrade" is missing'),
                (handshake(path, key=None), 400, "Sec-WebSocket-Key is missing"),
                (handshake(path, key=""), 400, "Sec-WebSocket-Key is not the base64 of 16 bytes"),
                (handshake(path, key="dGhlIHNhbXBsZSBub25jZQ="), 400, "Sec-WebSocket-Key is not the base64 of 16 bytes"),
                (handshake(path, key="dGhlIHNhbXBsZSBub25jZTE="), 400, "Sec-WebSocket-Key is not the base64 of 16 bytes"),
                (handshake(path, key="dGhl*HNhbXBsZSBub25jZQ=="), 400, "Sec-WebSocket-Key is not the base64 of 16 bytes"),
                (handshake(path, [("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")]), 400, "more than one Sec-WebSocket-Key"),
                (handshake(path, [("Sec-WebSocket-Version", "13")]), 400, "more than one Sec-WebSocket-Version"),
                (handshake(path, [("Origin", "http://h"), ("Origin", "http://h")]), 400, "more than one Origin"),
                (handshake(path, protocols=["a b"]), 400, "Sec-WebSocket-Protocol is not a list of tokens"),
                (handshake(path, [("Content-Length", "1")]) + b"x", 400, "has no body"),
                (handshake(path, [("Transfer-Encoding", "chunked")]) + b"0\r\n\r\n", 400, "has no body"),
                (handshake(path, http="HTTP/1.0"), 400, "HTTP/1.1")):
            with self.subTest(sent):
                got = self.is_refused(sent, status, why)
                if status == 426:
                    self.assertEqual((got.header("Upgrade"), got.header("Sec-WebSocket-Version")), ("websocket", "13"))

    def test_other_methods_are_not_handshakes(self):
        for method in ("POST", "PUT", "DELETE"):
            with Conn(self.server.at()) as conn:
                got = conn.send(handshake("/echo", [("Content-Length", "0")], method=method)).response()
                self.assertEqual((got.status, "GET" in got.header("Allow")), (405, True))
        self.assertEqual(refused(self.server.at(), handshake("/nothing")).status, 404)
        self.assertEqual(self.ask("GET", "/echo").status, 426)

    def test_a_wrong_version_is_answered_with_the_right_one(self):
        for version in ("0", "8", "12", "14", "013", "13, 8", "", "x", None):
            with self.subTest(version):
                got = self.is_refused(handshake("/echo", version=version), 426, "13")
                self.assertEqual((got.header("Sec-WebSocket-Version"), got.header("Upgrade")), ("13", "websocket"))
                self.assertIn("upgrade", got.header("Connection").lower().split(", "))

    def test_origins(self):
        own = "http://h"
        for path, origin, status in (("/echo", own, 101), ("/echo", own + ":80", 101), ("/echo", "https://h", 101),
                                     ("/echo", own + ":81", 403), ("/echo", "http://hh", 403), ("/echo", "null", 403),
                                     ("/echo", "http://evil.example", 403), ("/echo", "", 403), ("/echo", "http://h/", 403),
                                     ("/listed", "https://A.example:443", 101), ("/listed", "http://b.example:81", 101),
                                     ("/listed", "http://a.example", 403), ("/listed", own, 403), ("/listed", "null", 403),
                                     ("/any", "http://evil.example", 101), ("/any", "null", 101)):
            with self.subTest(path=path, origin=origin):
                sent = handshake(path, {"Origin": origin})
                if status == 403:
                    self.is_refused(sent, 403, "Origin")
                    continue
                with Conn(self.server.at()) as conn:
                    self.assertEqual(conn.send(sent).head().status, 101)
                    conn.send(frame(CLOSE, close_payload(1000)))
                    conn.rest()
                self.end()

    def test_the_first_subprotocol_of_the_client_that_is_supported(self):
        for asked, chosen in (((), None), (("other",), None), (("CHAT.V1",), None), (("other", "chat.v1", "chat.v2"), "chat.v1")):
            with self.subTest(asked), WebSocket(self.server.at(), "/chat", protocols=asked) as ws:
                self.assertEqual(ws.protocol, chosen)
                ws.close()
                self.end()

    def test_a_slow_handshake(self):
        sent = handshake("/echo")
        with self.connect() as conn:  # a byte at a time
            for n in range(len(sent)):
                conn.send(sent[n:n + 1])
            self.assertEqual(conn.head().header("Sec-WebSocket-Accept"), accept("dGhlIHNhbXBsZSBub25jZQ=="))
            conn.send(frame(TEXT, b"x"))
            self.assertEqual(conn.take(3), b"\x81\x01x")
        self.assertEqual(self.end(), "1006 ")
        with self.connect() as conn:  # never complete
            self.assertEqual(conn.send(sent[:-1]).response().status, 408)
            conn.expect_end()

    def test_frames_behind_the_handshake(self):
        """In the same segment, and split at every place."""
        sent = handshake("/echo") + frame(TEXT, b"one") + frame(TEXT, b"two", mask=b"abcd") + frame(CLOSE, close_payload(1000))
        reply = b"\x81\x03one\x81\x03two\x88\x02\x03\xe8"
        head = len(handshake("/echo"))
        for split in range(head - 3, len(sent) + 1):
            with self.connect() as conn:
                conn.send(sent[:split])
                if split >= head:
                    self.assertEqual(conn.head().status, 101)
                    conn.send(sent[split:])
                else:
                    conn.send(sent[split:])
                    self.assertEqual(conn.head().status, 101)
                self.assertEqual(conn.rest(), reply)
            self.assertEqual(self.end(), "1000 ")

    def test_handshakes_that_vanish(self):
        sent = handshake("/echo")
        for n in range(repeats(200)):
            with Conn(self.server.at()) as conn:
                conn.send(sent[:len(sent) - n % 3])
                if n % 2:
                    conn.reset()
        for n in range(repeats(200)):
            if n % 3 == 0:
                self.assertEqual(self.end(), "1006 ")


class Frames(Hostile):
    def test_broken_frames(self):
        long = b"x" * 126
        for sent, why in (
                (frame(TEXT, b"x", mask=False), "mask"),
                (frame(PING, b"x", mask=False), "mask"),
                (frame(CLOSE, b"", mask=False), "mask"),
                (frame(TEXT, b"x", rsv=4), "RSV1"), (frame(TEXT, b"x", rsv=2), "reserved bit"),
                (frame(TEXT, b"x", rsv=1), "reserved bit"), (frame(PING, b"x", rsv=4), "RSV1"),
                *((frame(opcode, b"x"), "reserved opcode") for opcode in (3, 4, 5, 6, 7, 11, 12, 13, 14, 15)),
                (frame(PING, long), "125"), (frame(PONG, long), "125"), (frame(CLOSE, b"\x03\xe8" + long), "125"),
                (frame(PING, b"x", bits=16), "125"), (frame(PING, b"x", bits=64), "125"),
                (frame(PING, b"x", fin=False), "fragmented"), (frame(PONG, fin=False), "fragmented"),
                (frame(CLOSE, fin=False), "fragmented"),
                (frame(TEXT, b"x" * 125, bits=16), "length"), (frame(TEXT, b"x", bits=64), "length"),
                (frame(BINARY, length=65535, bits=64), "length"), (frame(BINARY, length=1 << 63, bits=64), "length"),
                (frame(CONTINUATION, b"x"), "continuation"), (frame(CONTINUATION, b"x", fin=False), "continuation"),
                (frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"), "inside another"),
                (frame(TEXT, b"a", fin=False) + frame(BINARY, b"b", fin=False), "inside another"),
                (frame(TEXT, b"a", fin=False) + frame(CONTINUATION, b"b") + frame(CONTINUATION, b"c"), "continuation"),
                (request("GET", "/"), "reserved opcode"),
                (b"\xff" * 64, "reserved bit")):
            for ws in self.both():
                with self.subTest(sent[:40]):
                    if b"\x81" not in sent[6:]:
                        sent += frame(TEXT, b"not served")
                    ws.send_raw(sent)
                    got = []
                    try:
                        while True:
                            got.append(ws.receive())
                    except CloseFrame as close:
                        self.assertEqual((close.code, why in close.reason), (1002, True), close.reason)
                        self.assertEqual(self.end(), "1002 " + close.reason)
                    self.assertIn(got, ([], ["ab"]))
                    ws.ends(reset_ok=True)

    def test_close_frames(self):
        for payload, code, why in (
                (b"\x03", 1002, ""), *((close_payload(code), 1002, "") for code in (0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535)),
                (close_payload(1000) + b"\xff", 1007, "UTF-8"), (close_payload(1000) + b"\xe2\x82", 1007, "UTF-8")):
            for ws in self.both():
                with self.subTest(payload):
                    self.is_closed(ws.send_frame(CLOSE, payload), code, why)
        for code in (1000, 1001, 1002, 1003, 1007, 1008, 1011, 1014, 3000, 4999):
            for ws in self.both():
                self.assertEqual(ws.close(code, "grüße" * 17), (code, ""))
                self.assertEqual(self.end(), "%d %s" % (code, "grüße" * 17))
        for ws in self.both():  # without a code
            ws.send_frame(CLOSE)
            self.assertEqual(ws.close_frame(), (None, ""))
            ws.ends()
            self.assertEqual(self.end(), "1005 ")

    def test_nothing_is_served_behind_a_close(self):
        for ws in self.both():
            ws.send_raw(frame(TEXT, b"a") + frame(CLOSE, close_payload(1000)) + frame(TEXT, b"b") * 100 + b"\xff" * 1000)
            self.assertEqual(ws.receive(), "a")
            self.assertEqual(ws.close_frame()[0], 1000)
            ws.ends(reset_ok=True)
            self.assertEqual(self.end(), "1000 ")

    def test_a_message_and_a_close_at_once(self):
        """What the peer asked before its Close frame is answered before ours."""
        for ws in self.both():
            ws.send_raw(frame(TEXT, b"a") + frame(TEXT, b"b") + frame(CLOSE, close_payload(1000)))
            self.assertEqual([ws.receive(), ws.receive()], ["a", "b"])
            self.assertEqual(ws.close_frame()[0], 1000)
            ws.ends()
            self.assertEqual(self.end(), "1000 ")

    def test_a_close_inside_a_fragmented_message(self):
        for ws in self.both():
            ws.send_frame(TEXT, b"begun", fin=False).send_frame(CLOSE, close_payload(1001, "away"))
            self.assertEqual(ws.closes(), (1001, ""))
            self.assertEqual(self.end(), "1001 away")

    def test_control_frames_inside_a_message(self):
        for ws in self.both():
            ws.send_frame(TEXT, b"a", fin=False).send_frame(PING, b"p" * 125).send_frame(PONG, b"unasked")
            got = ws.read_frame()
            self.assertEqual((got.opcode, got.payload), (PONG, b"p" * 125))
            self.assertEqual(ws.send_frame(CONTINUATION, b"b").receive(), "ab")
            ws.close()
            self.end()

    def test_a_byte_at_a_time(self):
        for ws in self.both():
            sent = b"".join((frame(TEXT, b"h\xc3\xa9", fin=False), frame(PING, b"?"), frame(CONTINUATION, b"llo"), frame(BINARY),
                             frame(BINARY, b"x" * 200)))
            for n in range(len(sent)):
                ws.send_raw(sent[n:n + 1])
            self.assertEqual(ws.read_frame().payload, b"?")
            self.assertEqual([ws.receive(), ws.receive(), ws.receive()], ["h\xe9llo", b"", b"x" * 200])
            ws.close()
            self.end()


class Utf8(Hostile):
    BAD = (b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xf0\x8f\xbf\xbf", b"\xed\xa0\x80",
           b"\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8\x88\x80\x80\x80", b"\xfe", b"\xff", b"\xe2\x28\xa1",
           b"\xe2\x82", b"\xf0\x9f\x99", b"\xc3")
    GOOD = "aé߿ࠀ日퟿￿𐀀🙂\U0010ffff\0"

    def test_whole_and_at_every_border(self):
        for bad in self.BAD:
            text = b"ok " + bad
            for split in range(len(text) + 1):
                with self.subTest(bad=bad, split=split), WebSocket(self.server.at(), "/echo/event" if split % 2 else "/echo") as ws:
                    ws.send_frame(TEXT, text[:split], fin=False).try_send(frame(CONTINUATION, text[split:]))
                    self.is_closed(ws, 1007, "UTF-8")
            for ws in self.both():
                self.is_closed(ws.send_frame(TEXT, text), 1007, "UTF-8")

    def test_refused_before_the_message_ends(self):
        for bad in self.BAD[:15]:
            for ws in self.both():  # the frame and the message go on
                ws.send_raw(frame(TEXT, b"a" * 100 + bad, fin=False, length=100000))
                self.is_closed(ws, 1007, "UTF-8")

    def test_valid_text_at_every_border(self):
        text = self.GOOD.encode()
        for ws in self.both():
            for split in range(len(text) + 1):
                ws.send_frame(TEXT, text[:split], fin=False).send_frame(CONTINUATION, text[split:])
                self.assertEqual(ws.receive(), self.GOOD)
            for byte in pieces(text, 1):
                ws.send_frame(TEXT if byte == b"a" else CONTINUATION, byte, fin=False)
            self.assertEqual(ws.send_frame(CONTINUATION).receive(), self.GOOD)
            ws.close()
            self.end()

    def test_at_every_place_of_long_text(self):
        """Around the blocks of the server's buffers and of its fast path."""
        for at in (0, 1, 7, 8, 31, 32, 33, 4095, 4096, 4097, 16383, 16384, 65535, 65536, 99999):
            text = bytearray(b"a" * 100000)
            text[at] = 0xff
            with WebSocket(self.server.at(), "/echo") as ws:
                ws.try_send(frame(TEXT, bytes(text)))
                self.is_closed(ws, 1007, "UTF-8")

    def test_binary_may_be_anything(self):
        for ws in self.both():
            for bad in self.BAD:
                self.assertEqual(ws.send(bad).receive(), bad)
            ws.close()
            self.end()

    def test_compressed(self):
        for path in ("/deflate", "/takeover", "/deflate/event"):
            for bad in self.BAD:
                with self.subTest(path=path, bad=bad), WebSocket(self.server.at(), path, deflate=True) as ws:
                    ws.send_frame(TEXT, ws.deflate.compress(b"ok " * 50 + bad), rsv=4)
                    self.is_closed(ws, 1007, "UTF-8")


class Sizes(Hostile):
    def test_at_the_limit_and_one_past_it(self):
        for ws in self.both("small"):
            for fragments in (1, 2, 10, LIMIT):
                self.assertEqual(ws.send(b"x" * LIMIT, fragments=fragments).receive(), b"x" * LIMIT)
            self.assertEqual(ws.send("é" * (LIMIT // 2)).receive(), "é" * (LIMIT // 2))
            self.is_closed(ws.send(b"x" * (LIMIT + 1)), 1009, "too long")
        for fragments in (2, 7, LIMIT + 1):
            for ws in self.both("small"):
                ws.try_send(frame(BINARY, b"x", fin=False))
                for n in range(fragments - 1):
                    size = LIMIT // (fragments - 1) + (n < LIMIT % (fragments - 1))
                    if not ws.try_send(frame(CONTINUATION, b"x" * size, fin=n == fragments - 2)):
                        break
                self.is_closed(ws, 1009, "too long")

    def test_refused_at_its_announcement(self):
        """The payload is not awaited, and no memory is taken for it."""
        before = self.server.rss()
        for length, bits in ((LIMIT + 1, 16), (65536, 64), (1 << 31, 64), (1 << 32, 64), ((1 << 63) - 1, 64)):
            for ws in self.both("small"):
                self.is_closed(ws.send_raw(frame(BINARY, b"", length=length, bits=bits)), 1009, "too long")
            for ws in self.both("small"):  # a fragment whose sum overflows 64 bits
                ws.send_frame(BINARY, b"x" * LIMIT, fin=False)
                self.is_closed(ws.send_raw(frame(CONTINUATION, b"", length=length, bits=bits)), 1009, "too long")
        if not SANITIZER:
            self.assertLess(self.server.rss() - before, 16 * MIB)

    def test_the_default_limit(self):
        for ws in self.both():
            self.assertEqual(ws.send(b"x" * MIB).receive(), b"x" * MIB)
            ws.try_send(frame(BINARY, b"", length=MIB + 1))
            self.is_closed(ws, 1009, "too long")

    def test_announced_messages_take_no_memory(self):
        """A hundred clients announce 1 MiB and send a few bytes."""
        waiting = [self.open("/echo") for _ in range(repeats(100))]
        before = self.server.rss()
        for ws in waiting:
            ws.send_raw(frame(BINARY, b"few", length=MIB))
        self.assertEqual(self.get("/").text, "served\n")
        if not SANITIZER:
            self.assertLess(self.server.rss() - before, 16 * MIB)
        for ws in waiting:
            ws.conn.close()
        for _ in waiting:
            self.assertEqual(self.end(), "1006 ")


class Compressed(Hostile):
    PATHS = ("/deflate", "/deflate/event", "/takeover", "/takeover/event")

    def test_the_inflated_size_counts(self):
        for path in self.PATHS:
            with self.subTest(path), WebSocket(self.server.at(), path, deflate=True) as ws:
                self.assertIsNotNone(ws.deflate)
                for data in (b"x" * LIMIT, bytes(range(250)) * 4, b""):
                    self.assertEqual(ws.send(data, compress=True).receive(), data)
                self.assertEqual(ws.send(b"x" * LIMIT, compress=True, fragments=3).receive(), b"x" * LIMIT)
                self.assertEqual(ws.send(b"y" * LIMIT).receive(), b"y" * LIMIT)  # not compressed
                self.is_closed(ws.send(b"x" * (LIMIT + 1), compress=True), 1009, "too long")

    def test_bombs(self):
        """256 MiB of zeros in 256 KiB."""
        compressor = zlib.compressobj(9, wbits=-15)
        zeros = bytes(MIB)
        bomb = b"".join(compressor.compress(zeros) for _ in range(256)) + compressor.flush(zlib.Z_SYNC_FLUSH)
        before, burnt = self.server.rss(), self.server.cpu()
        for path in ("/bomb", "/bomb/event", "/deflate"):
            for size in (len(bomb), 1000):
                with self.subTest(path=path, size=size), WebSocket(self.server.at(), path, deflate=True) as ws:
                    parts = pieces(bomb[:-4], size)
                    for n, part in enumerate(parts):
                        if not ws.try_send(frame(CONTINUATION if n else BINARY, part, fin=n == len(parts) - 1, rsv=0 if n else 4)):
                            break
                    self.is_closed(ws, 1009, "too long")
        if not SANITIZER:
            self.assertLess(self.server.rss() - before, 32 * MIB)
            self.assertLess(self.server.cpu() - burnt, 20)

    def test_what_is_no_deflate(self):
        for path in self.PATHS:
            for data in (b"\xff" * 20, b"\x07", b"\x06\x00", b"plain text", b"\x01\x05\x00\x05\x00", b"\x04\xff\xff"):
                with self.subTest(path=path, data=data), WebSocket(self.server.at(), path, deflate=True) as ws:
                    ws.send_frame(BINARY, data, rsv=4)
                    got, reason = ws.closes()
                    self.assertIn(got, (1002, 1007), reason)
                    self.assertEqual(self.end(), "%d %s" % (got, reason))

    def test_a_block_that_says_final(self):
        """RFC 7692 section 7.2.3.5: an end of the DEFLATE stream inside or at the end of a message is allowed."""
        for path in self.PATHS:
            with self.subTest(path), WebSocket(self.server.at(), path, deflate=True) as ws:
                for text in (b"Hello", b"Hello again"):
                    compressor = zlib.compressobj(wbits=-15)
                    final = compressor.compress(text) + compressor.flush(zlib.Z_FINISH) + b"\0"
                    self.assertEqual(ws.send_frame(TEXT, final, rsv=4).receive(), text.decode())
                ws.close()
                self.end()

    def test_the_examples_of_the_rfc(self):
        """Section 7.2.3: one block, the shared window, no compression, two blocks, and the bit in a continuation."""
        for path in self.PATHS:
            with self.subTest(path), WebSocket(self.server.at(), path, deflate=True) as ws:
                for data in (b"\xf2\x48\xcd\xc9\xc9\x07\x00", b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00",
                             b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00", b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00"):
                    self.assertEqual(ws.send_frame(TEXT, data, rsv=4).receive(), "Hello")
                ws.send_frame(TEXT, b"\xf2\x48\xcd", fin=False, rsv=4).send_frame(CONTINUATION, b"\xc9\xc9\x07\x00")
                self.assertEqual(ws.receive(), "Hello")
                ws.send_frame(TEXT, b"\xf2\x48\xcd", fin=False, rsv=4).send_frame(CONTINUATION, b"\xc9\xc9\x07\x00", rsv=4)
                self.is_closed(ws, 1002, "RSV1")

    def test_offers(self):
        """What is not understood is declined; what is wrong is refused, or declined."""
        for offer in ("x-other", "permessage-deflate; x", "permessage-deflate; server_max_window_bits=7",
                      "permessage-deflate; server_max_window_bits=16", "permessage-deflate; server_max_window_bits",
                      "permessage-deflate; server_no_context_takeover=1", "permessage-deflate; client_max_window_bits=\"",
                      "permessage-deflate; server_no_context_takeover; server_no_context_takeover", "permessage-deflate=1", ";", "a b"):
            with self.subTest(offer), Conn(self.server.at()) as conn:
                got = conn.send(handshake("/deflate", deflate=offer)).head()
                self.assertIn(got.status, (101, 400))
                self.assertEqual(got.all("Sec-WebSocket-Extensions"), [])
                if got.status == 101:
                    conn.send(frame(CLOSE)).rest()
                    self.end()
        with WebSocket(self.server.at(), "/deflate", deflate="permessage-deflate; x, permessage-deflate") as ws:
            self.assertEqual(ws.send("second offer", compress=True).receive(), "second offer")
            ws.close()
            self.end()


class Time(Hostile):
    def test_a_message_that_never_ends(self):
        for ws in self.both("quick"):  # nothing more of the frame
            self.is_closed(ws.send_raw(frame(TEXT, b"begun", length=500)), 1008, "too long")
        for ws in self.both("quick"):  # nothing more of the head
            self.is_closed(ws.send_raw(b"\x81"), 1008, "too long")
        for ws in self.both("quick"):  # the last fragment is missing
            self.is_closed(ws.send_frame(TEXT, b"begun", fin=False), 1008, "too long")

    def test_bytes_do_not_extend_the_time(self):
        for more in (frame(CONTINUATION, b"", fin=False), frame(CONTINUATION, b"x", fin=False), frame(PING)):
            for ws in self.both("quick"):
                ws.send_frame(TEXT, b"begun", fin=False)
                while ws.try_send(more) and ws.conn.silent(0.05):
                    pass
                got, _ = ws.close_frame()
                self.assertEqual(got, 1008)
                self.end()

    def test_a_split_control_frame_is_not_a_message(self):
        """The time of a message begins with its first byte, not with that of a ping; and it ends with the message."""
        for ws in self.both("quick"):
            for sent in (frame(TEXT, b"?"), frame(PING, b"?")):
                ws.send_raw(sent[:3])
                self.assertEqual(self.get("/").text, "served\n")  # the server has received it
                ws.send_raw(sent[3:])
                self.assertEqual(ws.read_frame().payload, b"?")
            self.assertTrue(ws.conn.silent(2))
            self.assertEqual(ws.send("still open").receive(), "still open")
            ws.close()
            self.end()

    def test_a_peer_that_does_not_answer_a_close(self):
        ws = self.open("/closes")
        self.assertEqual(ws.close_frame(), (4000, "bye"))
        ws.try_send(frame(TEXT, b"not a Close frame"))
        ws.ends(reset_ok=True)
        self.assertEqual(self.end(), "1006 ")

    def test_a_peer_that_does_not_close_its_side(self):
        ws = self.open("/quick")
        ws.send_frame(CLOSE, close_payload(1000))
        self.assertEqual(ws.close_frame(), (1000, ""))
        ws.ends()
        self.assertEqual(self.end(), "1000 ")
        self.eventually(lambda: not ws.try_send(frame(PING)), "the server closes the socket")

    def test_close_frames_that_cross(self):
        ws = self.open("/closes")
        ws.send_frame(CLOSE, close_payload(3001, "mine"))
        self.assertEqual(ws.close_frame(), (4000, "bye"))
        ws.ends()
        self.assertIn(self.end(), ("3001 mine",))


class Floods(Hostile):
    KEY = b"\x11\x22\x33\x44"
    # ThreadSanitizer records a frame for each yield of a coroutine, at most 65,536 in a thread: then it crashes.
    MESSAGES = 10000 if SANITIZER == "tsan" else repeats(1000000)

    def memory(self):
        return 0 if SANITIZER else self.server.rss()

    def test_one_byte_fragments_by_the_million(self):
        count = repeats(MIB - 2)  # and the first and the last make the limit
        before = self.memory()
        for ws in self.both():
            ws.send_frame(BINARY, b"x", fin=False)
            batch = frame(CONTINUATION, b"x", fin=False, mask=self.KEY) * 1024
            for n in range(0, count, 1024):
                ws.send_raw(batch[:7 * min(1024, count - n)])
            ws.send_frame(CONTINUATION, b"x")
            self.assertEqual(ws.receive(), b"x" * (count + 2))
            ws.close()
            self.end()
        self.assertLess(self.memory() - before, 24 * MIB)

    def test_one_byte_messages_by_the_million(self):
        count = self.MESSAGES
        before = self.memory()
        ws = self.open("/count")
        batch = frame(TEXT, b"x", mask=self.KEY) * 1000
        for _ in range(count // 1000):
            ws.send_raw(batch)
        self.assertEqual(ws.send("count").receive(), "%d %d" % (count, count))
        self.assertLess(self.memory() - before, 24 * MIB)

    def test_empty_fragments_without_end(self):
        before = self.memory()
        for ws in self.both("quick"):
            ws.send_frame(TEXT, fin=False)
            batch = frame(CONTINUATION, fin=False, mask=self.KEY) * 10000
            while ws.try_send(batch):
                pass
            self.assertEqual(self.end().split()[0], "1008")
        self.assertLess(self.memory() - before, 16 * MIB)

    def test_empty_messages_by_the_million(self):
        count = self.MESSAGES
        ws = self.open("/count")
        for _ in range(count // 1000):
            ws.send_raw(frame(BINARY, mask=self.KEY) * 1000)
        self.assertEqual(ws.send("count").receive(), "%d 0" % count)

    def test_pings_that_are_read(self):
        """Each ping gets a pong, or a later ping does (RFC 6455 section 5.5.3); the last one does."""
        for ws in self.both():
            for n in range(repeats(2000)):
                ws.send_frame(PING, struct.pack("!I", n))
            ws.send_frame(PING, b"last")
            seen = [ws.read_frame()]
            while seen[-1].payload != b"last":
                seen.append(ws.read_frame())
            self.assertEqual({got.opcode for got in seen}, {PONG})
            numbers = [got.payload for got in seen[:-1]]
            self.assertEqual(numbers, sorted(numbers))
            ws.close()
            self.end()

    def test_pings_without_reading(self):
        """The queue of pongs is bounded: the server reads on, or waits; it does not collect."""
        before = self.memory()
        for path in ("/echo", "/echo/event", "/deaf"):
            with WebSocket(self.server.at(), path, rcvbuf=4096, timeout=3) as ws:
                batch = frame(PING, b"p" * 125, mask=self.KEY) * 500
                try:
                    for _ in range(repeats(1000)):  # 64 MiB
                        ws.send_raw(batch)
                except TimeoutError:
                    pass  # it waits
                self.assertLess(self.memory() - before, 24 * MIB)
            if path != "/deaf":
                self.assertEqual(self.end(), "1006 ")

    def test_messages_without_reading(self):
        """The echo waits for the reader, and then the server for the echo."""
        before = self.memory()
        for ws in self.both():
            ws.conn.sock.settimeout(3)
            with self.assertRaises(TimeoutError):
                for _ in range(10000):
                    ws.send(b"x" * 65536)
            self.assertLess(self.memory() - before, 24 * MIB)
            self.assertEqual(self.get("/").text, "served\n")
            ws.conn.reset()
            self.assertEqual(self.end(), "1006 ")

    def test_messages_that_nobody_takes(self):
        before = self.memory()
        ws = self.open("/deaf", timeout=3)
        with self.assertRaises(TimeoutError):
            for _ in range(10000):
                ws.send(b"x" * 65536)
        self.assertLess(self.memory() - before, 16 * MIB)

    def test_a_reader_that_never_reads(self):
        before = self.memory()
        stalled = [self.open("/flood", rcvbuf=4096) for _ in range(20)]
        self.assertEqual(self.get("/").text, "served\n")
        for ws in stalled:
            ws.conn.take(2)  # it has begun
        self.assertLess(self.memory() - before, 64 * MIB)
        for ws in stalled:
            ws.conn.reset()
        for _ in stalled:
            self.assertEqual(self.end(), "1006 ")


class Ends(Hostile):
    def test_half_close(self):
        for sent in (b"", frame(TEXT, b"whole"), frame(TEXT, b"cut", length=10), frame(TEXT, b"begun", fin=False), b"\x81"):
            for ws in self.both():
                with self.subTest(sent):
                    ws.send_raw(sent)
                    ws.conn.half_close()
                    ws.lost()
                    self.assertEqual(self.end(), "1006 ")

    def test_resets(self):
        held = self.quiet_fds()

        def client(number):
            for n in range(repeats(50)):
                with WebSocket(self.server.at(), "/any" if n % 2 else "/any/event") as ws:
                    ws.send_raw((b"", frame(TEXT, b"x" * 1000), frame(TEXT, b"x", fin=False), frame(BINARY, b"x", length=70000),
                                 frame(TEXT, b"x" * 100000), frame(PING, b"?"))[(n + number) % 6])
                    ws.conn.reset()
            return True

        in_parallel([lambda number=number: client(number) for number in range(8)], 8)
        for _ in range(8 * repeats(50)):
            self.assertEqual(self.end(), "1006 ")
        self.eventually(lambda: self.server.fds() <= held, "the descriptors are closed")

    def test_come_and_go(self):
        held = self.quiet_fds()
        for _ in range(3):
            crowd = [WebSocket(self.server.at(), "/echo/event") for _ in range(repeats(200))]
            for ws in crowd:
                ws.send("hello")
            for ws in crowd:
                self.assertEqual(ws.receive(), "hello")
            for n, ws in enumerate(crowd):
                if n % 2:
                    ws.close()
                ws.conn.close()
            self.assertEqual(sorted(self.end() for _ in crowd), ["1000 "] * (len(crowd) // 2) + ["1006 "] * (len(crowd) - len(crowd) // 2))
        self.eventually(lambda: self.server.fds() <= held, "the descriptors are closed")


class Topics(Hostile):
    def test_names_and_connections_that_cannot_subscribe(self):
        with WebSocket(self.server.at(), "/topics") as ws:
            self.assertIn("must not be empty", ws.send("0").receive())
            self.assertEqual({ws.send("1024").receive(), ws.receive()}, {"x1024", "1"})
            for size in (1025, MIB):
                self.assertIn("has %d bytes; at most 1024" % size, ws.send(str(size)).receive())
            self.assertEqual(ws.send("nobody").receive(), "0")
            ws.send("closed")
            self.assertEqual(ws.closes(), (1000, ""))
        self.assertEqual(sorted([self.end(), self.end()]), ["1000 ", "nil ECLOSED nil"])

    def test_subscribers_that_do_not_read(self):
        """They are closed, or miss messages, and the others get everything; the memory is bounded."""
        readers = [self.open("/news") for _ in range(4)] + [self.open("/news/skip", deflate=True)]
        stalled = [self.open("/news", rcvbuf=4096) for _ in range(4)]
        skipping = self.open("/news/skip", rcvbuf=4096)
        for ws in readers + stalled + [skipping]:
            self.assertEqual(ws.receive(), "subscribed")
        before = 0 if SANITIZER else self.server.rss()
        block = b"n" * 65536
        for n in range(200):  # 12.8 MiB to each
            got = self.ask("POST", "/news", body=b"%d " % n + block)
            self.assertEqual(got.status, 200)
            for ws in readers:
                self.assertTrue(ws.receive().startswith(b"%d n" % n))
        if not SANITIZER:
            self.assertLess(self.server.rss() - before, 32 * MIB)
        for _ in stalled:
            self.assertRegex(self.end(), "1006 ")  # they have not answered the Close frame either
        skipping.send_frame(PING, b"alive")
        seen = [skipping.read_frame()]
        while seen[-1].opcode != PONG:
            seen.append(skipping.read_frame())
        numbers = [int(got.payload.split()[0]) for got in seen[:-1]]
        self.assertEqual(numbers, sorted(set(numbers)))
        self.assertLess(len(numbers), 200)
        stats = self.get("/stats").text.split()
        self.assertEqual((stats[0], int(stats[1]) > 0), ("4", True), stats)
        for ws in [*readers, skipping]:
            ws.conn.close()
        for _ in range(6):
            self.assertEqual(self.end(), "1006 ")


if __name__ == "__main__":
    main()
