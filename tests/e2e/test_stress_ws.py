"""luaserve stress against ws and wss targets: echoes, fan-out, idle connections, scripts. The server is a raw one of a few
lines, which can break the protocol."""
import os
import re
import socket
import ssl
import struct
import threading
import zlib

from harness import main, repeats, scratch
from harness.stress import OK, Small, Stress, head_of, stress
from harness.tls import certificate
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
        for answer, text in ((b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "did not upgrade the connection: 404 Not Found\n"),
                             (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 11\r\n\r\nno\xc3\xa9 key\r\n2\n",
                              "did not upgrade the connection: 403 Forbidden: no\u00e9 key\n"),
                             (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 90\r\n\r\n" + b"x" * 79 + b"\xc3\xa9",
                              ": " + 79 * "x" + "\n"),
                             (b"HTTP/1.1 403 \r\nContent-Length: 4\r\n\r\na\x1b[m", "connection: 403\n"),
                             (b"HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", "connection: 403 No\n"),
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



class Hub:
    """Publishes what is received on /pub to the connections on other paths. `change`: (number of the message, data) -> the
    messages that each subscriber gets."""

    def __init__(self, change=None, join=None):
        self.lock, self.peers, self.change, self.join = threading.Lock(), [], change, join
        self.count, self.probes, self.paths, self.asked = 0, 0, [], []
        self.published, self.until_published = threading.Event(), []

    def add(self, peer):
        with self.lock:
            self.peers.append(peer)

    def publish(self, opcode, data):
        with self.lock:
            probe = data[14:24] == b"0" * 10
            self.count += not probe
            self.probes += probe
            if not probe:
                self.peers = [peer for peer in self.peers if peer not in self.until_published]
                self.published.set()
            for out in [data] if probe or self.change is None else self.change(self.count, data):
                for peer in self.peers:
                    peer.send(opcode, out)

    def __call__(self, peer, _):
        self.paths.append(peer.path)
        if peer.path.startswith("/pub"):
            while (got := peer.read()).opcode != CLOSE:
                self.publish(got.opcode, got.payload)
            peer.send(CLOSE, got.payload)
            return
        if self.join:
            self.asked.append(peer.read().payload.decode())
        self.add(peer)
        try:
            while peer.read().opcode != CLOSE:
                pass
        finally:
            with self.lock:
                self.peers.remove(peer)

    def serves_until_published(self, peer):
        """Serve the first connection on /sub until a message is published, which it does not get, and return True. False: it
        is another one."""
        if peer.path != "/sub" or self.paths.count("/sub"):
            return False
        self.paths.append("/sub")
        self.until_published.append(peer)
        self.add(peer)
        self.published.wait()
        return True


class Fanout(WebSockets):
    def test_deliveries_are_counted(self):
        for how in (), ("-R", "500"), ("--pipeline", "4"), ("--binary", "--size", "48"), ("--size", "70000"), ("-t", "1"):
            server = self.sockets(Hub())
            ran = stress("--fanout", "-c", "5", "-n", "20", "--publish-path", "/pub", *how, server.url + "sub")
            if "-R" in how and ran.status == 1:  # the machine stalled
                continue
            self.good(ran, 100)
            fanout = ran.report["fanout"]
            self.assertEqual({key: fanout[key] for key in ("published", "expected", "delivered", "lost", "reordered",
                                                           "duplicated")},
                             {"published": 20, "expected": 100, "delivered": 100, "lost": 0, "reordered": 0,
                              "duplicated": 0}, ran)
            self.assertEqual(ran.report["latency_us"]["uncorrected"]["count"], 100, ran)
            self.assertIn("Delivered: 100 of 100, lost 0, reordered 0, duplicated 0\n", ran.out)
            self.assertEqual(ran.report["websocket"]["handshakes"], 6, ran)

    def test_lost_messages(self):
        server = self.sockets(Hub(lambda number, data: [data] if number % 4 else []))
        ran = stress("--fanout", "-c", "3", "-n", "8", "--pipeline", "8", "--timeout", "3s", "--publish-path", "/pub",
                     "--threshold", "lost == 0", "--threshold", "lost < 50%", server.url)
        self.assertEqual(ran.status, 99, ran)
        self.assertEqual(ran.report["fanout"]["expected"], 24, ran)
        self.assertEqual(ran.report["fanout"]["lost"], 6, ran)
        self.assertEqual(ran.report["fanout"]["delivered"], 18, ran)
        self.assertEqual([(t["metric"], t["met"], t["actual"]) for t in ran.report["thresholds"]],
                         [("lost", False, 6), ("lost", True, 25)])

    def test_reordered_and_duplicated_messages(self):
        held = []

        def change(number, data):
            if number == 2:
                held.append(data)
                return []
            return [data, held.pop(), data] if number == 3 else [data]
        server = self.sockets(Hub(change))
        ran = stress("--fanout", "-c", "2", "-n", "5", "--pipeline", "5", "--publish-path", "/pub", "--threshold",
                     "reordered == 2", "--threshold", "duplicated == 2", server.url)
        self.good(ran, 10)
        self.assertEqual([ran.report["fanout"][key] for key in ("lost", "reordered", "duplicated")], [0, 2, 2], ran)

    def test_changed_and_foreign_messages(self):
        def change(number, data):
            if number == 1:
                return [b"hello", b"LS" + b"0" * 46 + data[48:], data]
            return [data[:-1] + b"!"] if number == 2 else [data]
        server = self.sockets(Hub(change))
        ran = stress("--fanout", "-c", "1", "-n", "3", "--pipeline", "3", "--timeout", "3s", "--publish-path", "/pub",
                     server.url)
        self.assertEqual([ran.report["fanout"][key] for key in ("delivered", "lost", "ignored")], [2, 1, 2], ran)
        self.assertEqual(ran.errors["answer"], 1, ran)
        self.assertIn("a delivery differs from the message", ran.err)

    def test_a_closed_loop_continues_after_a_loss(self):
        server = self.sockets(Hub(lambda number, data: [data] if number != 2 else []))
        ran = stress("--fanout", "-c", "2", "-n", "4", "--timeout", "3s", "--publish-path", "/pub", server.url)
        self.assertEqual([ran.report["fanout"][key] for key in ("published", "delivered", "lost")], [4, 6, 2], ran)
        self.assertEqual(ran.errors["timeout"], 1, ran)

    def test_topics_and_the_first_message(self):
        hub = Hub(join=True)
        server = self.sockets(hub)
        ran = stress("--fanout", "-c", "4", "--publishers", "3", "--topics", "2", "-n", "6", "--publish-path",
                     "/pub/{topic}", "--subscribe", "join {topic}, {topic}", server.url + "room/{topic}")
        self.good(ran)
        self.assertEqual(sorted(hub.asked), ["join 0, 0"] * 2 + ["join 1, 1"] * 2)
        self.assertEqual(sorted(hub.paths), ["/pub/0", "/pub/0", "/pub/1", "/room/0", "/room/0", "/room/1", "/room/1"])
        self.assertEqual(ran.report["fanout"]["expected"], ran.totals["requests"], ran)
        self.assertEqual(ran.totals["requests"], 12, ran)
        self.assertGreaterEqual(ran.report["fanout"]["ignored"], 1, ran)  # of the other topic: this hub has one

    def test_probes_before_the_run_are_not_counted(self):
        hub = Hub()

        def play(peer, number):
            while peer.path == "/room/1" and hub.probes < 6:
                threading.Event().wait(0.01)
            hub(peer, number)
        ran = stress("--fanout", "-c", "2", "--publishers", "2", "--topics", "2", "-n", "2", "--publish-path", "/pub/{topic}",
                     self.sockets(play).url + "room/{topic}")
        self.good(ran, 2)
        self.assertLessEqual(ran.report["fanout"]["ignored"], 4, ran)  # two messages, and the last probes

    def test_a_run_with_a_number_ends_with_the_last_delivery(self):
        server = self.sockets(Hub())
        for threads in "1", "2":
            ran = stress("--fanout", "-t", threads, "-c", "2", "-n", "1", "-R", "10", "--publish-path", "/pub", server.url)
            self.all_due(ran, 2)  # at the begin of the run
            self.assertEqual(round(ran.totals["duration_s"] * 1e9), round(ran.report["latency_us"]["corrected"]["max"] * 1e3), ran)

    def test_stages(self):
        """They are rates: all subscribers stay."""
        server = self.sockets(Hub())
        ran = stress("--fanout", "-c", "4", "--publishers", "3", "--stages", "300ms:60,300ms:60", "--publish-path", "/pub",
                     server.url + "sub")
        self.assertEqual(ran.errors, {}, ran)
        self.assertEqual(ran.totals["connects"], 7, ran)
        self.assertEqual(ran.report["fanout"]["expected"], 4 * ran.report["fanout"]["published"], ran)
        self.assertEqual(ran.report["fanout"]["lost"], 0, ran)

    def test_stalled_subscribers(self):
        """They do not read, and nothing is expected of them."""
        server = self.sockets(Hub())
        ran = stress("--fanout", "-c", "4", "--stalled", "1", "-n", "10", "--publish-path", "/pub", server.url)
        self.good(ran, 30)
        self.assertEqual(ran.report["fanout"]["expected"], 30, ran)
        self.assertIn("to 4 subscribers, 1 of them stalled", ran.out)

    def test_nothing_is_published(self):
        def play(peer, _):
            while peer.read().opcode != CLOSE:
                pass
        ran = stress("--fanout", "-c", "2", "-d", "1s", "--timeout", "300ms", self.sockets(play).url)
        self.assertEqual(ran.status, 1, ran)
        self.assertEqual(ran.errors["subscribe"], 2, ran)
        self.assertLess(ran.totals["duration_s"], 1, ran)  # it did not begin
        self.assertLess(ran.report["series"][-1]["to_s"], 1, ran)
        self.assertIn("a subscriber received no message within the time limit", ran.err)

    def test_the_server_closes_a_subscriber(self):
        hub = Hub()

        def play(peer, number):
            if hub.serves_until_published(peer):
                peer.send(CLOSE, close_payload(1013))
                peer.read()
            else:
                hub(peer, number)
        ran = stress("--fanout", "-c", "3", "-n", "4", "-R", "50", "--timeout", "3s", "--publish-path", "/pub",
                     self.sockets(play).url + "sub")
        self.assertEqual(ran.report["websocket"]["close_codes"], {"1013": 1}, ran)
        self.assertGreaterEqual(ran.report["fanout"]["lost"], 1, ran)
        self.assertEqual(ran.errors["read"], 1, ran)

    def test_a_subscriber_that_cannot_come_back(self):
        """Its connects fail; the publisher sends all its messages."""
        hub = Hub()

        def play(peer, number):
            if hub.serves_until_published(peer):
                server.ended = True
                server.threads[0].join()
                server.sock.close()
            else:
                hub(peer, number)
        server = self.sockets(play)
        ran = stress("--fanout", "-t", "1", "-c", "2", "-n", "10", "-R", "10", "--timeout", "3s", "--publish-path", "/pub",
                     server.url + "sub")
        self.assertGreaterEqual(ran.errors["connect"], 1, ran)
        self.assertEqual(ran.report["fanout"]["published"], 10, ran)

    def test_the_server_ends(self):
        """Without connections nothing is waited for."""
        hub, peers = Hub(), []

        def play(peer, number):
            peers.append(peer)
            if peer.path != "/sub":
                hub(peer, number)
                return
            hub.add(peer)
            while hub.count == 0:
                threading.Event().wait(0.01)
            server.ended = True
            server.threads[0].join()
            server.sock.close()
            for each in peers:
                each.conn.shutdown(socket.SHUT_RDWR)
        server = self.sockets(play)
        ran = stress("--fanout", "-t", "1", "-c", "1", "-n", "5", "-R", "20", "--timeout", "10m", "--publish-path", "/pub",
                     server.url + "sub")
        self.assertGreaterEqual(ran.errors["connect"], 1, ran)

    def test_options_that_do_not_fit(self):
        for args, text in ((("--fanout", "http://h/"), "needs --sse"), (("--fanout", "tcp://h:1"), "needs a ws or wss target"),
                           (("--fanout", "--sse", "ws://h/"), "--sse needs an http or https target"),
                           (("--sse", "http://h/"), "are for --fanout"), (("--publishers", "2", "ws://h/"), "are for --fanout"),
                           (("--subscribe", "x", "ws://h/"), "is for --fanout, --hold and --cycles"),
                           (("--fanout", "--size", "47", "ws://h/"), "at least 48 bytes"),
                           (("--fanout", "--publishers", "65536", "ws://h/"), "a number from 1 to 65535"),
                           (("--fanout", "--topics", "3", "--publishers", "2", "ws://h/"), "at least as many publishers"),
                           (("--fanout", "-c", "4", "--stalled", "4", "ws://h/"), "each topic needs a subscriber that reads"),
                           (("--fanout", "--publish-path", "pub", "ws://h/"), "a path that begins with /"),
                           (("--fanout", "--hold", "ws://h/"), "--fanout excludes --hold"),
                           (("--hold", "--cycles", "2", "ws://h/"), "exclude each other"),
                           (("--hold", "-n", "2", "ws://h/"), "--hold sends no messages"),
                           (("--hold", "--expect-status", "200", "http://h/"), "--hold sends no messages"),
                           (("--hold", "--method", "HEAD", "http://h/"), "--hold sends no messages"),
                           (("--hold", "-H", "A: b", "http://h/"), "not a WebSocket; remove --header"),
                           (("--cycles", "2", "http://h/"), "--cycles is for ws and wss targets"),
                           (("--hold", "udp://h:1"), "udp has none")):
            self.fails(stress(*args), text, status=2)


class Idle(WebSockets):
    def test_hold(self):
        pongs, asked = [], []

        def play(peer, _):
            asked.append(peer.read().payload)
            peer.send(PING, b"there?")
            while (got := peer.read()).opcode != CLOSE:
                pongs.append(got.payload)
        server = self.sockets(play)
        ran = self.good(stress("--hold", "-c", "3", "-d", "500ms", "--subscribe", "join", server.url), 0)
        server.close()
        self.assertEqual(ran.totals["connects"], 3, ran)
        self.assertEqual((pongs, asked), ([b"there?"] * 3, [b"join"] * 3))
        self.good(stress("--hold", "-c", "3", "-d", "200ms", self.url), 0)  # HTTP
        self.good(stress("--hold", "-c", "3", "-d", "200ms", self.tcp), 0)

    def test_hold_counts_lost_connections(self):
        def play(peer, number):
            if number == 2:
                peer.send(CLOSE, close_payload(1001))
            peer.read()
        ran = stress("--hold", "-c", "1", "-d", "1s", self.sockets(play).url)
        self.assertEqual(ran.errors["read"], 1, ran)
        self.assertEqual(ran.report["websocket"]["close_codes"], {"1001": 1}, ran)

    def test_cycles(self):
        plays = []

        def play(peer, _):
            plays.append((peer.read(), peer.read()))
            peer.send(CLOSE, plays[-1][1].payload)
        server = self.sockets(play)
        ran = self.good(stress("-t", "1", "--cycles", "3", "-c", "2", "--subscribe", "join", server.url), 6)
        server.close()
        self.assertEqual(plays, [(Frame(TEXT, b"join", True, 0), Frame(CLOSE, close_payload(1000), True, 0))] * 6)
        self.assertEqual(ran.report["websocket"]["handshakes"], 6, ran)
        self.assertEqual(ran.report["websocket"]["close_codes"], {"1000": 6}, ran)


def inflated(got):
    """The message of a frame."""
    return zlib.decompressobj(-15).decompress(got.payload + b"\0\0\xff\xff") if got.rsv == 4 else got.payload


class Compressed(WebSockets):
    NO_TAKEOVER = "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover\r\n"

    def compressed(self, *args, **how):
        ran = stress("--compress", *args, **how)
        if "built without" in ran.err:
            self.skipTest("without zlib")
        return ran

    def test_messages_are_compressed_and_inflated(self):
        def play(peer, _):
            self.assertIn("Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; "
                          "client_no_context_takeover", peer.head)
            for number in range(100):
                got = peer.read()
                if got.opcode == CLOSE:
                    return
                self.assertEqual((got.rsv, len(inflated(got))), (4, 20000))
                packer = zlib.compressobj(wbits=-15)
                packed = (packer.compress(inflated(got)) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
                if number % 2:
                    peer.send(TEXT, packed, rsv=4)
                else:
                    peer.send(TEXT, packed[:3], rsv=4, fin=False)
                    peer.send(CONTINUATION, packed[3:])
        server = self.sockets(play, self.NO_TAKEOVER)
        ran = self.compressed("-c", "1", "-n", "6", "--size", "20000", "--pipeline", "3", server.url)
        self.good(ran, 6)
        self.assertEqual(ran.report["websocket"]["deflate"], 1, ran)
        self.assertLess(ran.totals["bytes_in"], 60000, ran)
        self.assertLess(ran.totals["bytes_out"], 60000, ran)

    def test_which_messages_are_compressed(self):
        """Those of 256 bytes or more if the server agrees, also numbered ones and those of scripts."""
        words = "seven words of eight bytes, seven words "
        for extra, args, files, rsv in (
                (self.NO_TAKEOVER, ("--message", (words * 7)[:255]), None, 0),
                (self.NO_TAKEOVER, ("--message", (words * 7)[:256]), None, 4),
                ("", ("--message", words * 7), None, 0),
                (self.NO_TAKEOVER, ("--message", words * 7, "--sends", "1"), None, 4),
                (self.NO_TAKEOVER, ("script.lua",), words * 7, 4), (self.NO_TAKEOVER, ("script.lua",), "short", 0)):
            seen = []

            def play(peer, _, seen=seen):
                while (got := peer.read()).opcode != CLOSE:
                    seen.append((got.rsv, inflated(got).decode()))
                    peer.send(TEXT, inflated(got))
            server = self.sockets(play, extra)
            script = """return { requests = 1, scenario = function(vu)
              local ws = vu:ws()
              ws:send("%s")
              vu:check(ws:receive() == "%s", "echo")
            end }""" % (files, files)
            count = () if "--sends" in args or files else ("-n", "1")
            self.good(self.compressed("-c", "1", *count, *args, server.url, files={"script.lua": script}), 1)
            server.close()
            self.assertEqual([got for got, _ in seen], [rsv], seen)
            self.assertTrue(seen[0][1].endswith(files or args[1]), seen)

    def test_publications_are_compressed(self):
        hub, kinds = Hub(), set()

        def play(peer, number):
            read = peer.read

            def read_inflated():
                got = read()
                kinds.add(got.rsv)
                return got._replace(payload=inflated(got))
            peer.read = read_inflated
            hub(peer, number)
        server = self.sockets(play, self.NO_TAKEOVER)
        ran = self.compressed("--fanout", "-c", "3", "-n", "5", "--size", "1000", "--publish-path", "/pub", server.url)
        self.good(ran, 15)
        self.assertEqual(kinds, {0, 4})  # Close frames, messages

    def test_the_server_may_decline(self):
        ran = self.compressed("-c", "1", "-n", "2", "--size", "1000", self.sockets(echo).url)
        self.good(ran, 2)
        self.assertEqual(ran.report["websocket"]["deflate"], 0, ran)

    def test_data_that_does_not_inflate(self):
        def play(peer, _):
            peer.read()
            peer.send(TEXT, b"\xff\xff\xff", rsv=4)
            peer.read()
        server = self.sockets(play, "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n")
        ran = stress("-c", "1", "-n", "1", "--compress", server.url)
        if "built without" in ran.err:
            self.skipTest("without zlib")
        self.assertIn("cannot be inflated", ran.err)
        self.assertEqual(ran.errors["answer"], 1, ran)


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"


class Sse(WebSockets):
    def events(self, head, form, closes=lambda count: False):
        """A server whose GET is a stream of the events that are POSTed. form(data) -> bytes. It closes the connection of the
        POST with the number `count` if closes(count): it does not read what follows."""
        lock, streams, posts = threading.Lock(), [], []

        def handle(conn, _):
            rest = b""
            while True:
                while b"\r\n\r\n" not in rest:
                    got = conn.recv(65536)
                    if not got:
                        return
                    rest += got
                asked, rest = rest.split(b"\r\n\r\n", 1)
                if asked.startswith(b"GET"):
                    assert b"\r\nAccept: text/event-stream" in asked
                    conn.sendall(head)
                    with lock:
                        streams.append(conn)
                    try:
                        conn.recv(1)
                    finally:
                        with lock:
                            streams.remove(conn)
                    return
                size = int(re.search(rb"Content-Length: (\d+)", asked)[1])
                while len(rest) < size:
                    rest += conn.recv(65536)
                data, rest = rest[:size], rest[size:]
                with lock:
                    posts.append(data)
                    last = closes(len(posts))
                    for stream in streams:
                        for part in form(data):
                            stream.sendall(part)
                conn.sendall(b"HTTP/1.1 204 No Content\r\n%s\r\n" % (b"Connection: close\r\n" if last else b""))
                if last:
                    conn.shutdown(socket.SHUT_WR)
                    while conn.recv(65536):  # so that no reset destroys the response
                        pass
                    return
        return self.small(handle)

    def test_events(self):
        def plain(data):
            return [b": comment\nevent: x\nid: 1\ndata: " + data + b"\n\n"]

        def chunks(data):
            for part in (b"da", b"ta:" + data[:10], data[10:] + b"\r", b"\n\r\n", b"retry: 5\n\n"):
                yield b"%x\r\n%s\r\n" % (len(part), part)
        for head, form in ((EVENTS + b"\r\n", plain), (EVENTS + b"Transfer-Encoding: chunked\r\n\r\n", chunks)):
            server = self.events(head, form)
            ran = stress("--fanout", "--sse", "-c", "3", "-n", "10", "--publish-path", "/pub", server.url + "events")
            self.good(ran, 30)
            self.assertEqual(ran.report["fanout"]["lost"], 0, ran)
            self.assertEqual(ran.report["fanout"]["sse"], True, ran)
            self.assertEqual(ran.report["status"], {"204": 10}, ran)  # without the probes before the run
            self.assertIsNone(ran.report["websocket"], ran)

    def test_messages_that_are_sent_again(self):
        """The server closes the connection of a publisher with requests in flight: they are sent again, and keep their
        numbers."""
        for how in (), ("-R", "200"):
            server = self.events(EVENTS + b"\r\n", lambda data: [b"data: " + data + b"\n\n"], lambda count: count % 3 == 0)
            ran = stress("--fanout", "--sse", "-c", "2", "-n", "20", "--pipeline", "8", "--publish-path", "/pub", *how,
                         server.url + "events")
            if "-R" in how and ran.status == 1:  # the machine stalled
                continue
            self.good(ran, 40)
            self.assertEqual([ran.report["fanout"][name] for name in ("published", "expected", "lost", "reordered", "duplicated")],
                             [20, 40, 0, 0, 0], ran)

    def test_responses_that_are_no_streams(self):
        for answer, text in ((b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "needs a response with status 200"),
                             (OK, "of the type text/event-stream"),
                             (EVENTS + b"Content-Length: 5\r\n\r\n", "has a Content-Length")):
            def handle(conn, _, answer=answer):
                while head := head_of(conn):
                    if head.startswith(b"GET"):
                        conn.sendall(answer)
                        return
                    conn.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")  # to the publisher
            ran = stress("--fanout", "--sse", "-c", "1", "-n", "1", "--timeout", "3s", self.small(handle).url)
            self.assertEqual(ran.status, 1, ran)
            self.assertIn(text, ran.err)


class Scripts(WebSockets):
    def script(self, text, server, *args):
        return stress("script.lua", *args, files={"script.lua": text.replace("@URL@", server.url)})

    def test_a_chat_user(self):
        server = self.sockets(echo, "Sec-WebSocket-Protocol: chat\r\n")
        ran = self.script("""
            return { target = "@URL@", connections = 2, requests = 6, scenario = function(vu)
              local ws = assert(vu:ws("/room?id=" .. vu.id, { protocols = { "other", "chat" }, headers = { ["X-A"] = "b" } }))
              vu:check(ws == vu:ws(), "the same")
              vu:check(ws.protocol == "chat" and ws.code == nil, "fields")
              ws:send("€") ws:send("\\xff", "binary") ws:send(12)
              local data, kind = ws:receive()
              vu:check(data == "€" and kind == "text", "text")
              data, kind = ws:receive()
              vu:check(data == "\\xff" and kind == "binary", "binary")
              for data in ws:messages() do vu:check(data == "12", "number") break end
              vu:check(ws:close(4000, "bye"), "close")
              local _, message, code = ws:receive()
              vu:check(message == "closed" and code == "ECLOSED" and ws.code == 4000, "closed")
              vu:check(select(3, ws:send("x")) == "ECLOSED" and select(3, vu:ws()) == "ECLOSED", "over")
            end }""", server)
        self.good(ran, 6)
        self.assertEqual(set(ran.checks.values()), {(6, 0)}, ran)
        self.assertEqual(len(ran.checks), 8, ran)
        self.assertIn("GET /room?id=1 HTTP/1.1", server.seen[0] + server.seen[1])
        self.assertIn("\r\nX-A: b\r\n", server.seen[0])
        self.assertEqual(ran.report["websocket"]["close_codes"], {"4000": 6}, ran)

    def test_a_connection_that_stays_open(self):
        server = self.sockets(echo)
        ran = self.script("""
            return { target = "@URL@", connections = 1, requests = 5, scenario = function(vu)
              local ws = vu:ws()
              ws:send("x")
              vu:check(ws:receive() == "x", "echo")
            end }""", server)
        self.good(ran, 5)
        self.assertEqual(ran.report["websocket"]["handshakes"], 1, ran)

    def test_on_an_http_target(self):
        server = self.sockets(echo)
        server.url = server.url.replace("ws", "http")
        ran = self.script("""
            return { target = "@URL@", connections = 1, requests = 2, scenario = function(vu)
              local ws = assert(vu:ws("/a"))
              ws:send("x")
              vu:check(ws:receive() == "x", "echo")
            end }""", server)
        self.good(ran, 2)
        self.assertTrue(server.seen[0].startswith("GET /a HTTP/1.1"), server.seen)

    def test_failures(self):
        def play(peer, _):
            peer.read()
            peer.send(CLOSE, close_payload(1008))
            peer.read()
        ran = self.script("""
            return { target = "@URL@", connections = 1, requests = 1, scenario = function(vu)
              local ws = vu:ws()
              ws:send("x")
              vu:check(select(3, ws:receive()) == "ECLOSED" and ws.code == 1008, "closed")
            end }""", self.sockets(play))
        self.good(ran, 1)
        refused = self.small(lambda conn, _: head_of(conn) and conn.sendall(b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"))
        ran = self.script("""
            return { target = "@URL@", connections = 1, requests = 1, scenario = function(vu)
              local ws, message, code = vu:ws()
              vu:check(ws == nil and code == "EPROTO", message)
            end }""", refused)
        self.assertEqual(ran.checks, {"the server did not accept the handshake of WebSocket": (1, 0)}, ran)
        self.assertEqual(ran.report["websocket"]["failed"], 1, ran)

    def test_wrong_calls(self):
        server = self.sockets(echo)
        for call, text in (('vu:ws("x")', "a path begins with /"), ('vu:ws("ws://other.example/")', "is not on the target"),
                           ('vu:ws("/", { headers = { ["a b"] = "c" } })', "invalid header"),
                           ('vu:ws("/", { protocols = { "a b" } })', "a list of tokens"),
                           ('vu:ws():send("\\xff")', "text must be UTF-8"), ('vu:ws():close(1005)', "a code is 1000"),
                           ('vu:ws() sock:send("x")', "the connection is a WebSocket"),
                           ('vu:ws():close(1000, ("x"):rep(124))', "at most 123 bytes")):
            ran = self.script("""return { target = "@URL@", connections = 1, requests = 1,
                                          scenario = function(vu, sock) """ + call + " end }", server)
            self.assertEqual(ran.errors["script"], 1, ran)
            self.assertIn(text, ran.err)
        ran = self.script('return { target = "%s", connections = 1, requests = 1, scenario = function(vu) vu:ws() end }' %
                          self.tcp, server)
        self.assertIn("vu:ws needs a ws, wss, http or https target", ran.err)



class Encrypted(WebSockets):
    def test_wss(self):
        """An echo and a fan-out over TLS."""
        with scratch() as folder:
            certificate(folder, "server")
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(os.path.join(folder, "server.pem"), os.path.join(folder, "server.key"))
            hub = Hub()

            def handle(conn, number):
                with tls.wrap_socket(conn, server_side=True) as wrapped:  # the probe makes no handshake: an OSError
                    head = head_of(wrapped)
                    if head is None:
                        return
                    wrapped.sendall(upgrade(head))
                    peer = Peer(wrapped, head)
                    try:
                        peer.echo() if peer.path == "/echo" else hub(peer, number)
                    except EOFError:
                        pass
            server = self.small(handle)
            url = "wss://127.0.0.1:%d" % server.port
            ran = self.good(stress("-t", "1", "-c", "2", "-n", "10", "--size", "20000", "--insecure", url + "/echo"), 10)
            self.assertEqual(ran.report["websocket"]["handshakes"], 2, ran)
            self.assertEqual(ran.report["tls"]["full"] + ran.report["tls"]["resumed"], 2, ran)
            self.good(stress("--fanout", "-c", "3", "-n", "10", "--publish-path", "/pub", "--insecure", url + "/news"), 30)
            ran = stress("-c", "1", "-n", "1", url + "/echo")
            self.assertEqual(set(ran.errors) - {"total"}, {"tls"}, ran)


class OnLuaserve(Stress):
    """The same against the server of the project."""

    def setUp(self):
        self.ws = self.url.replace("http", "ws")

    def test_echoes(self):
        for how in (), ("--size", "70000"), ("--binary", "--pipeline", "8"), ("--no-keepalive",):
            ran = self.good(stress("-c", "4", "-n", "100", *how, self.ws + "/echo"), 100)
            self.assertEqual(ran.report["websocket"]["failed"], 0, ran)

    def test_fan_out(self):
        for target, how in ((self.ws + "/news", ()), (self.url + "/events", ("--sse",))):
            ran = self.good(stress("--fanout", "-c", "20", "--publishers", "2", "-n", "50", "--publish-path", "/publish",
                                   "--threshold", "lost == 0", *how, target), 1000)
            self.assertEqual([ran.report["fanout"][name] for name in ("lost", "reordered", "duplicated")], [0, 0, 0], ran)

    def test_no_delivery_is_faster_than_light(self):
        """Messages that arrive while others are handled have the time of their arrival."""
        for how in ("--pipeline", "1024", "-n", str(repeats(50000))), ("-R", "100000", "-n", str(repeats(20000))):
            ran = stress("--fanout", "-t", "2", "-c", "4", "--publish-path", "/publish", *how, self.ws + "/news")
            self.assertEqual(ran.errors, {}, ran)
            self.assertGreater(ran.report["latency_us"]["uncorrected"]["min"], 0, ran)

    def test_connections_come_and_go(self):
        ran = self.good(stress("--cycles", "5", "-c", "10", self.ws + "/news"), 50)
        self.assertEqual(ran.report["websocket"]["close_codes"], {"1000": 50}, ran)
        self.good(stress("--hold", "-c", "10", "-d", "300ms", self.ws + "/news"), 0)


if __name__ == "__main__":
    main()
