"""A raw WebSocket server, for tests of clients: the test reads the client's request and frames, and sends any bytes.

    peer = Peer()                                   # listens on a free port: peer.port
    with peer.accept() as conn:                     # reads the head of the request: conn.target, conn.fields, conn.key
        conn.answer()                               # 101, with the right Sec-WebSocket-Accept
        conn.send_frame(TEXT, b"hello")             # not masked; the other arguments are those of websocket.frame
        assert conn.read_frame() == (TEXT, b"hi", True, 0)   # checks that the client masks
        conn.ends()

Every wait has the deadline WAIT.
"""
import socket
import struct

from harness.conn import Closed, Framing
from harness.environment import WAIT
from harness.websocket import Frame, accept, frame, masked


class PeerConn:
    def __init__(self, sock):
        sock.settimeout(WAIT)
        self.sock, self.unread, self.keys = sock, b"", []
        while b"\r\n\r\n" not in self.unread:
            self._more()
        head, _, self.unread = self.unread.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.method, self.target, self.version = lines[0].split(" ")
        self.lines = lines[1:]
        self.fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        self.key = self.fields["sec-websocket-key"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def _more(self):
        data = self.sock.recv(65536)
        if not data:
            raise Closed("the client closed the connection")
        self.unread += data

    def take(self, count):
        while len(self.unread) < count:
            self._more()
        data, self.unread = self.unread[:count], self.unread[count:]
        return data

    def send(self, data):
        self.sock.sendall(data)
        return self

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

    def read_frame(self):
        first, second = self.take(2)
        length = second & 0x7f
        if not second & 0x80:
            raise Framing("a frame of the client is not masked")
        if length >= 126:
            size = "!H" if length == 126 else "!Q"
            length, = struct.unpack(size, self.take(struct.calcsize(size)))
        key = self.take(4)
        self.keys.append(key)
        return Frame(first & 0xf, masked(self.take(length), key), bool(first & 0x80), first >> 4 & 7)

    def ends(self):
        """The client closes the connection, and sends nothing more. It may be a reset: it has not read all."""
        try:
            data = self.unread + self.sock.recv(1)
        except ConnectionResetError:
            return
        if data:
            raise Framing("the client has sent %r" % data)


class Peer:
    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(WAIT)
        self.port = self.listener.getsockname()[1]

    def accept(self):
        return PeerConn(self.listener.accept()[0])

    def close(self):
        self.listener.close()
