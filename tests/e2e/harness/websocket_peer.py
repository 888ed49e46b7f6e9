"""A raw WebSocket server, for tests of clients: the test reads the client's request and frames, and sends any bytes.

    peer = Peer()                                   # listens on a free port: peer.port
    with peer.accept() as conn:                     # reads the head of the request: conn.target, conn.fields, conn.key
        conn.answer()                               # 101, with the right Sec-WebSocket-Accept
        conn.send_frame(TEXT, b"hello")             # not masked; the other arguments are those of websocket.frame
        assert conn.read_frame() == (TEXT, b"hi", True, 0)   # checks that the client masks
        conn.ends()

Every wait has the deadline WAIT.
"""
import struct

from harness import peer
from harness.conn import Framing
from harness.websocket import Frame, accept, frame, masked


class Frames(peer.PeerConn):
    """The server's side of a connection after its handshake."""

    keys = ()

    def read_frame(self):
        first, second = self.take(2)
        length = second & 0x7f
        if not second & 0x80:
            raise Framing("a frame of the client is not masked")
        if length >= 126:
            size = "!H" if length == 126 else "!Q"
            length, = struct.unpack(size, self.take(struct.calcsize(size)))
        key = self.take(4)
        self.keys += (key,)
        return Frame(first & 0xf, masked(self.take(length), key), bool(first & 0x80), first >> 4 & 7)


class PeerConn(Frames):
    def __init__(self, sock):
        super().__init__(sock)
        self.request()
        self.method, self.target, self.version = self.line.split(" ")
        self.key = self.fields["sec-websocket-key"]

    def head(self, *lines, status="101 Switching Protocols", upgrade="websocket", connection="Upgrade", key=None):
        """The head of a response, with further lines; None leaves a field out, key = "" the accepted key."""
        fields = [("Upgrade", upgrade), ("Connection", connection),
                  ("Sec-WebSocket-Accept", accept(key or self.key) if key != "" else None)]
        out = ["HTTP/1.1 " + status] + ["%s: %s" % field for field in fields if field[1] is not None] + list(lines)
        return ("\r\n".join(out) + "\r\n\r\n").encode()

    def answer(self, *lines, **how):
        return self.send(self.head(*lines, **how))

    def send_frame(self, opcode, payload=b"", mask=False, **how):
        return self.send(frame(opcode, payload, mask=mask, **how))

    def ends(self):
        """The client closes the connection, and sends nothing more. It may be a reset: it has not read all."""
        try:
            data = self.unread + self.sock.recv(1)
        except ConnectionResetError:
            return
        if data:
            raise Framing("the client has sent %r" % data)


class Peer(peer.Peer):
    CONN = PeerConn
