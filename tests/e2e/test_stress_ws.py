"""luaserve stress against ws and wss targets: echoes, fan-out, idle connections, scripts. The server is a raw one of a few
lines, which can break the protocol."""
import struct

from harness import main
from harness.stress import Small, Stress, head_of, stress
from harness.websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, Frame, accept, close_payload, frame, masked


def upgrade(head, extra=""):
    """The 101 for a handshake."""
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
    return ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Accept: %s\r\n%s\r\n" % (accept(fields["Sec-WebSocket-Key"]), extra)).encode()


class Peer:
    """The server's side of a connection after its handshake."""

    def __init__(self, conn, head):
        self.conn, self.head, self.rest = conn, head.decode(), b""
        self.path = self.head.split(" ")[1]

    def take(self, count):
        while len(self.rest) < count:
            got = self.conn.recv(65536)
            if not got:
                raise EOFError
            self.rest += got
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def read(self):
        """The next frame, unmasked."""
        first, second = self.take(2)
        if not second & 0x80:
            raise AssertionError("a frame of the client is not masked")
        length = second & 0x7f
        if length >= 126:
            length, = struct.unpack("!H" if length == 126 else "!Q", self.take(2 if length == 126 else 8))
        key = self.take(4)
        return Frame(first & 0xf, masked(self.take(length), key), bool(first & 0x80), first >> 4 & 7)

    def send(self, opcode, payload=b"", **how):
        self.conn.sendall(frame(opcode, payload, mask=False, **how))

    def echo(self):
        """Echo messages until the client closes. Returns its Close frame's payload."""
        while True:
            got = self.read()
            if got.opcode == CLOSE:
                self.send(CLOSE, got.payload)
                return got.payload
            if got.opcode in (TEXT, BINARY):
                self.send(got.opcode, got.payload)


class Sockets(Small):
    """A WebSocket server: play(peer, number) after each handshake. `seen`: the heads, `errors`: what play raised."""

    def __init__(self, play, extra=""):
        self.play, self.extra, self.seen, self.errors = play, extra, [], []
        super().__init__(self._upgrade)
        self.url = "ws://127.0.0.1:%d/" % self.port

    def _upgrade(self, conn, number):
        head = head_of(conn)
        if head is None:  # the probe
            return
        self.seen.append(head.decode())
        conn.sendall(upgrade(head, self.extra))
        try:
            self.play(Peer(conn, head), number)
        except EOFError:
            pass
        except AssertionError as error:
            self.errors.append(error)


class WebSockets(Stress):
    def sockets(self, play, extra=""):
        server = Sockets(play, extra)
        self.addCleanup(server.close)
        self.addCleanup(lambda: self.assertEqual(server.errors, []))
        return server


def echo(peer, _):
    peer.echo()


class Echo(WebSockets):
    def test_messages_are_sent_and_compared(self):
        for sizes in ("1",), ("125",), ("126",), ("65535",), ("65536",), ("300000",), ("16384", "--pipeline", "8"):
            server = self.sockets(echo)
            ran = self.good(stress("-t", "1", "-c", "2", "-n", "20", "--size", *sizes, server.url), 20)
            self.assertEqual(ran.report["websocket"]["handshakes"], 2, ran)
            self.assertEqual(ran.report["websocket"]["failed"], 0, ran)
            self.assertEqual(ran.report["websocket"]["handshake_us"]["count"], 2, ran)
            self.assertEqual(ran.report["websocket"]["close_codes"], {}, ran)
            self.assertIn("WebSocket handshakes: 2, failed 0; mean", ran.out)

    def test_kinds_and_an_open_loop(self):
        kinds = set()

        def play(peer, _):
            while (got := peer.read()).opcode != CLOSE:
                kinds.add(got.opcode)
                peer.send(got.opcode, got.payload)
        server = self.sockets(play)
        self.good(stress("-n", "10", "--text", server.url), 10)
        self.assertEqual(kinds, {TEXT})
        kinds.clear()
        self.all_due(stress("-n", "10", "--binary", "-R", "1000", server.url), 10)
        self.assertEqual(kinds, {BINARY})

    def test_the_handshake_and_the_end(self):
        ends = []

        def play(peer, _):
            ends.append(peer.echo())
        server = self.sockets(play, "Sec-WebSocket-Protocol: b\r\n")
        ran = stress("-c", "1", "-n", "1", "-H", "Host: a.example", "-H", "X-A: 1", "--protocol", "a", "--protocol", "b",
                     server.url + "x?y=z")
        self.good(ran, 1)
        head = server.seen[0]
        self.assertTrue(head.startswith("GET /x?y=z HTTP/1.1\r\nHost: a.example\r\n"), head)
        self.assertIn("\r\nX-A: 1\r\n", head)
        self.assertIn("\r\nSec-WebSocket-Protocol: a, b\r\n", head)
        server.close()
        self.assertEqual(ends, [close_payload(1000)])

    def test_fragments_and_control_frames(self):
        pongs = []

        def play(peer, _):
            peer.send(PING, b"before")
            while (got := peer.read()).opcode != CLOSE:
                if got.opcode == PONG:
                    pongs.append(got.payload)
                    continue
                third = len(got.payload) // 3
                peer.send(TEXT, got.payload[:third], fin=False)
                peer.send(PING, b"between")
                peer.send(PONG, b"nobody asked")
                for byte in frame(CONTINUATION, got.payload[third:2 * third], fin=False, mask=False):
                    peer.conn.sendall(bytes([byte]))
                peer.send(CONTINUATION, b"", fin=False)
                peer.send(CONTINUATION, got.payload[2 * third:])
        server = self.sockets(play)
        self.good(stress("-c", "1", "-n", "5", "--size", "200", server.url), 5)
        server.close()
        self.assertEqual(sorted(pongs), [b"before"] + [b"between"] * 5)

    def test_numbered_messages(self):
        server = self.sockets(echo)
        ran = self.good(stress("-t", "1", "-c", "1", "--sends", "2", "--show", "--message", "ho", server.url), 2)
        self.assertIn("1. Thread 1 - ho\n2. Thread 1 - ho\n", ran.out)

    def test_a_new_connection_for_each_message(self):
        server = self.sockets(echo)
        ran = self.good(stress("-t", "1", "-c", "1", "-n", "5", "--no-keepalive", server.url), 5)
        self.assertGreaterEqual(ran.report["websocket"]["handshakes"], 5, ran)

    def test_wrong_echoes(self):
        for answer in ((TEXT, b"hellO"), (TEXT, b"hell"), (TEXT, b"hello!"), (BINARY, b"hello"), (TEXT, b"")):
            def play(peer, _, answer=answer):
                peer.read()
                peer.send(*answer)
                peer.read()
            ran = stress("-c", "1", "-n", "1", self.sockets(play).url)
            self.assertEqual(ran.status, 1, ran)
            self.assertEqual(set(ran.errors) - {"total"}, {"answer"}, ran)
            self.assertIn("the echo differs from the message", ran.err)

    def test_broken_frames(self):
        for data, text in ((frame(TEXT, b"hello"), "mask"), (frame(3, b"", mask=False), "opcode"),
                           (frame(TEXT, b"hello", mask=False, rsv=4), "RSV1"),
                           (frame(CONTINUATION, b"hello", mask=False), "a continuation without a message"),
                           (frame(TEXT, b"he", mask=False, fin=False) + frame(TEXT, b"llo", mask=False), "inside another"),
                           (frame(PING, b"x" * 126, mask=False), ""),
                           (frame(CLOSE, b"x", mask=False), "invalid Close frame")):
            def play(peer, _, data=data):
                peer.read()
                peer.conn.sendall(data)
                peer.read()
            ran = stress("-c", "1", "-n", "1", self.sockets(play).url)
            self.assertEqual(ran.status, 1, ran)
            self.assertEqual(set(ran.errors) - {"total"}, {"answer"}, ran)
            self.assertIn(text, ran.err)

    def test_the_server_closes(self):
        def play(peer, number):
            got = peer.read()
            if number % 2 == 0:
                peer.send(CLOSE, close_payload(1013, "busy"))
                self.assertEqual(peer.read(), Frame(CLOSE, close_payload(1013), True, 0))
            else:
                peer.send(TEXT, got.payload)
                peer.echo()
        ran = stress("-t", "1", "-c", "1", "-n", "3", self.sockets(play).url)
        self.assertEqual(ran.report["websocket"]["close_codes"], {"1013": 1}, ran)
        self.assertEqual({k: v for k, v in ran.errors.items() if k != "total"}, {"read": 1}, ran)
        self.assertIn("Closed by the server: 1013 1", ran.out)
        self.assertIn("the server closed the WebSocket with the code 1013", ran.err)

    def test_the_server_ends_without_a_close_frame(self):
        def play(peer, number):
            got = peer.read()
            if number > 2:
                peer.send(TEXT, got.payload)
                peer.echo()
        ran = stress("-t", "1", "-c", "1", "-n", "3", self.sockets(play).url)
        self.assertEqual(ran.report["websocket"]["close_codes"], {"1006": 1}, ran)

    def test_refused_handshakes(self):
        for answer, text in ((b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "did not upgrade the connection"),
                             (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                              b"Sec-WebSocket-Accept: " + accept("no").encode() + b"\r\n\r\n", "does not match the key"),
                             (b"SSH-2.0-x\r\n", ""), (b"", "closed the connection")):
            def handle(conn, _, answer=answer):
                if head_of(conn):
                    conn.sendall(answer)
            server = self.small(handle)
            ran = stress("-c", "1", "-n", "1", server.url.replace("http", "ws"))
            self.assertEqual(ran.status, 1, ran)
            self.assertEqual(set(ran.errors) - {"total"}, {"handshake"}, ran)
            self.assertEqual(ran.report["websocket"]["handshakes"], 0, ran)
            self.assertGreaterEqual(ran.report["websocket"]["failed"], 1, ran)
            self.assertIn("WebSocket handshake: ", ran.err)
            self.assertIn(text, ran.err)

    def test_a_handshake_has_a_time_limit(self):
        def handle(conn, _):
            if head_of(conn):
                conn.recv(1)
        server = self.small(handle)
        ran = stress("-c", "1", "-n", "1", "--timeout", "200ms", server.url.replace("http", "ws"))
        self.assertEqual(set(ran.errors) - {"total"}, {"handshake"}, ran)
        self.assertIn("WebSocket handshake: ", ran.err)

    def test_frames_behind_the_handshake(self):
        """The server's first frames may be in the segment of its 101."""
        def handle(conn, _):
            head = head_of(conn)
            if head:
                conn.sendall(upgrade(head) + frame(PING, b"early", mask=False))
                peer = Peer(conn, head)
                assert peer.read().payload == b"early"
                peer.echo()
        server = self.small(handle)
        self.good(stress("-c", "1", "-n", "3", server.url.replace("http", "ws")), 3)


if __name__ == "__main__":
    main()
