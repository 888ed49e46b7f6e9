"""WebSocket peers that break the rules (RFC 6455, RFC 7692): bad handshakes and frames, bytes that are not UTF-8, messages
and compressed messages that are too big. Each test ends with the proof that the server serves."""
# wine: none; bytes for the parser of frames; test_websocket and test_websocket_floods use the sockets there
import zlib

from harness import SANITIZER, Conn, repeats, request, tls
from harness.websocket import (BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, CloseFrame, WebSocket, accept, close_payload,
                               frame, handshake, refused)
from harness.websocket_site import LIMIT, MIB, SITE, Hostile


class Handshakes(Hostile):
    def is_refused(self, sent, status, why):
        got = refused(self.server.at(), sent)
        self.assertEqual(got.status, status, got)
        self.assertIn(why, got.text)
        self.assertEqual(got.all("Sec-WebSocket-Accept"), [])
        return got

    def test_rules_that_are_broken(self):
        for sent, status, why in (
                (handshake("/echo", upgrade=None), 426, '"Upgrade: websocket" is missing'),
                (handshake("/echo", version="8"), 426, "13"),
                (handshake("/echo", connection="keep-alive"), 400, '"Connection: upgrade" is missing'),
                (handshake("/echo", key="dGhlIHNhbXBsZSBub25jZTE="), 400, "not the base64 of 16 bytes"),
                (handshake("/echo", [("Transfer-Encoding", "chunked")]) + b"0\r\n\r\n", 400, "has no body")):
            got = self.is_refused(sent, status, why)
            if status == 426:
                self.assertEqual((got.header("Upgrade"), got.header("Sec-WebSocket-Version")), ("websocket", "13"))
                self.assertIn("upgrade", got.header("Connection").lower().split(", "))

    def test_other_methods_are_not_handshakes(self):
        for method in ("POST", "PUT", "DELETE"):
            with Conn(self.server.at()) as conn:
                got = conn.send(handshake("/echo", [("Content-Length", "0")], method=method)).response()
                self.assertEqual((got.status, "GET" in got.header("Allow")), (405, True))
        self.assertEqual(refused(self.server.at(), handshake("/nothing")).status, 404)
        self.assertEqual(self.ask("GET", "/echo").status, 426)

    def test_origins(self):
        for path, origin, status in (("/echo", "http://h", 101), ("/echo", "http://evil.example", 403),
                                     ("/echo", "null", 403), ("/listed", "https://A.example:443", 101),
                                     ("/listed", "http://h", 403), ("/any", "http://evil.example", 101)):
            sent = handshake(path, {"Origin": origin})
            if status == 403:
                self.is_refused(sent, 403, "Origin")
                continue
            with Conn(self.server.at()) as conn:
                self.assertEqual(conn.send(sent).head().status, 101, (path, origin))
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
        """A reset may discard a handshake that the server has not read. /count does not tell its end."""
        held = self.quiet_fds()
        for n in range(repeats(200)):
            sent = handshake("/count" if n % 2 else "/echo")
            with Conn(self.server.at()) as conn:
                conn.send(sent[:len(sent) - n % 3])
                if n % 2:
                    conn.reset()
        for n in range(repeats(200)):
            if n % 6 == 0:
                self.assertEqual(self.end(), "1006 ")
        self.eventually(lambda: self.server.fds() <= held, "the descriptors are closed")


class Frames(Hostile):
    def test_broken_frames(self):
        for sent, why in (
                (frame(TEXT, b"x", mask=False), "mask"),
                (frame(TEXT, b"x", rsv=4), "RSV1"),
                (frame(PING, b"x" * 126), "125"),
                (frame(TEXT, b"a", fin=False) + frame(TEXT, b"b"), "inside another"),
                (frame(TEXT, b"a", fin=False) + frame(CONTINUATION, b"b") + frame(CONTINUATION, b"c"), "continuation"),
                (request("GET", "/"), "reserved opcode"),
                (b"\xff" * 64, "reserved bit")):
            for ws in self.both():
                ws.send_raw(sent + frame(TEXT, b"not served"))
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
        for payload, code, why in ((b"\x03", 1002, ""), (close_payload(1005), 1002, ""),
                                   (close_payload(1000) + b"\xff", 1007, "UTF-8")):
            for ws in self.both():
                self.is_closed(ws.send_frame(CLOSE, payload), code, why)
        for code in (1000, 4999):
            for ws in self.both():
                self.assertEqual(ws.close(code, "grüße" * 17), (code, ""))
                self.assertEqual(self.end(), "%d %s" % (code, "grüße" * 17))
        for ws in self.both():  # without a code
            ws.send_frame(CLOSE)
            self.assertEqual(ws.close_frame(), (None, ""))
            ws.ends()
            self.assertEqual(self.end(), "1005 ")

    def test_messages_around_a_close(self):
        """What the peer asked before its Close frame is answered before ours; nothing behind it is."""
        for ws in self.both():
            ws.send_raw(frame(TEXT, b"a") + frame(TEXT, b"b") + frame(CLOSE, close_payload(1000))
                        + frame(TEXT, b"c") * 100 + b"\xff" * 1000)
            self.assertEqual([ws.receive(), ws.receive()], ["a", "b"])
            self.assertEqual(ws.close_frame()[0], 1000)
            ws.ends(reset_ok=True)
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


class Utf8(Hostile):
    BAD = (b"\xff", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82")

    GOOD = "aé߿ࠀ日퟿￿𐀀🙂\U0010ffff\0"

    def test_invalid_text(self):
        for bad in self.BAD:
            for ws in self.both():
                self.is_closed(ws.send_frame(TEXT, b"ok " + bad), 1007, "UTF-8")
            for ws in self.both():
                ws.send_frame(TEXT, b"ok " + bad[:1], fin=False).try_send(frame(CONTINUATION, bad[1:]))
                self.is_closed(ws, 1007, "UTF-8")
            for path in ("/deflate", "/takeover", "/deflate/event"):
                with WebSocket(self.server.at(), path, deflate=True) as ws:
                    ws.send_frame(TEXT, ws.deflate.compress(b"ok " * 50 + bad), rsv=4)
                    self.is_closed(ws, 1007, "UTF-8")
        for ws in self.both():  # the frame and the message go on
            ws.send_raw(frame(TEXT, b"a" * 100 + b"\xff", fin=False, length=100000))
            self.is_closed(ws, 1007, "UTF-8")

    def test_valid_text_at_every_border(self):
        text = self.GOOD.encode()
        for ws in self.both():
            for split in range(len(text) + 1):
                ws.send_frame(TEXT, text[:split], fin=False).send_frame(CONTINUATION, text[split:])
                self.assertEqual(ws.receive(), self.GOOD)
            self.assertEqual(ws.send(b"\xff").receive(), b"\xff")  # binary may be anything
            ws.close()
            self.end()


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
        for length, bits in ((LIMIT + 1, 16), ((1 << 63) - 1, 64)):
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
                    parts = [bomb[at:min(at + size, len(bomb) - 4)] for at in range(0, len(bomb) - 4, size)]
                    for n, part in enumerate(parts):
                        if not ws.try_send(frame(CONTINUATION if n else BINARY, part, fin=n == len(parts) - 1, rsv=0 if n else 4)):
                            break
                    self.is_closed(ws, 1009, "too long")
        if not SANITIZER:
            self.assertLess(self.server.rss() - before, 32 * MIB)
            self.assertLess(self.server.cpu() - burnt, 20)

    def test_what_is_no_deflate(self):
        for path in self.PATHS:
            with self.subTest(path), WebSocket(self.server.at(), path, deflate=True) as ws:
                ws.send_frame(BINARY, b"\xff" * 20, rsv=4)
                got, reason = ws.closes()
                self.assertIn(got, (1002, 1007), reason)
                self.assertEqual(self.end(), "%d %s" % (got, reason))

    def test_offers(self):
        for offer in ("x-other", "permessage-deflate; server_max_window_bits=7", "a b"):
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


class Tls(Hostile):
    SITE = SITE + """
ls.listen { host = "127.0.0.1", port = 0, tls = "self-signed", handler = app }
"""
    LISTENERS = 2

    def over_tls(self, path="/echo", **options):
        return WebSocket(self.server.at(1), path, tls=tls.context(), **options)

    def test_messages_and_broken_frames(self):
        with self.over_tls() as ws:
            for size in (0, 1, 126, 16384, 65536, MIB):
                self.assertEqual(ws.send(b"x" * size).receive(), b"x" * size)
            self.is_closed(ws.send_frame(TEXT, b"x", mask=False), 1002, "mask")
        with self.over_tls("/echo/event") as ws:
            for byte in frame(TEXT, b"hello"):  # each in a record of its own
                ws.send_raw(bytes([byte]))
            self.assertEqual(ws.receive(), "hello")
            self.is_closed(ws.send_frame(TEXT, b"\xff"), 1007, "UTF-8")

    def test_peers_that_vanish(self):
        for _ in range(repeats(50)):
            ws = self.over_tls()
            ws.send_raw(frame(TEXT, b"begun", length=100))
            ws.conn.reset()
        for _ in range(repeats(50)):
            self.assertEqual(self.end(), "1006 ")

    def test_the_origin_has_https(self):
        with self.over_tls(headers={"Origin": "https://h"}) as ws:
            ws.close()
            self.end()
        with self.assertRaisesRegex(AssertionError, "403"):
            self.over_tls(headers={"Origin": "http://h"})
