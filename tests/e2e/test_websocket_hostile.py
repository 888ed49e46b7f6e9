"""WebSocket peers that break the rules (RFC 6455, RFC 7692), over TCP and TLS: one of each kind, and what the server holds for
them. tests/unit/codec/ws and tests/unit/ws check the rules one by one. Each test ends with the proof that the server serves."""
# wine: none; bytes for the parser of frames; test_websocket and test_websocket_floods use the sockets there
import zlib

from harness import SANITIZER, Conn, repeats, tls
from harness.websocket import BINARY, CLOSE, CONTINUATION, TEXT, WebSocket, close_payload, frame, handshake, refused
from harness.websocket_site import MIB, SITE, Hostile


class Plain(Hostile):
    def test_other_methods_are_not_handshakes(self):
        for method in ("POST", "PUT", "DELETE"):
            with Conn(self.server.at()) as conn:
                got = conn.send(handshake("/echo", [("Content-Length", "0")], method=method)).response()
                self.assertEqual((got.status, "GET" in got.header("Allow")), (405, True))
        self.assertEqual(refused(self.server.at(), handshake("/nothing")).status, 404)
        self.assertEqual(self.ask("GET", "/echo").status, 426)

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

    def test_a_close_inside_a_fragmented_message(self):
        for ws in self.both():
            ws.send_frame(TEXT, b"begun", fin=False).send_frame(CLOSE, close_payload(1001, "away"))
            self.assertEqual(ws.closes(), (1001, ""))
            self.assertEqual(self.end(), "1001 away")

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

    def test_the_origin_has_the_port(self):
        for origin, status in (("https://h:81", 101), ("https://h", 403), ("https://h:82", 403)):
            with Conn(self.server.at(1)) as conn:
                conn.sock = tls.context().wrap_socket(conn.sock, server_hostname="localhost")
                conn.send(handshake("/echo", [("Origin", origin)]).replace(b"Host: h\r\n", b"Host: h:81\r\n"))
                self.assertEqual(conn.head().status, status, origin)
            if status == 101:
                self.end()
