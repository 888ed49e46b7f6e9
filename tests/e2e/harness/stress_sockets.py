"""WebSocket servers for the load generator, raw ones of a few lines, which can break the protocol."""
import threading

from harness.stress import Small, Stress, head_of
from harness.websocket import BINARY, CLOSE, TEXT, accept, frame
from harness.websocket_peer import Frames


def upgrade(head, extra=""):
    """The 101 for a handshake."""
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if line)
    return ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Accept: %s\r\n%s\r\n" % (accept(fields["Sec-WebSocket-Key"]), extra)).encode()


class Peer(Frames):
    def __init__(self, conn, head):
        super().__init__(conn)
        self.conn, self.head, self.read = conn, head.decode(), self.read_frame
        self.path = self.head.split(" ")[1]

    def send(self, opcode, payload=b"", **how):  # pylint: disable=arguments-renamed
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
