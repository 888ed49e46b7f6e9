"""Peer: a server of raw sockets for clients of HTTP, which reads requests and sends any bytes."""
import contextlib
import socket
import struct

from harness.conn import Closed
from harness.environment import WAIT


class PeerConn:
    """A connection to the raw server."""

    def __init__(self, sock):
        sock.settimeout(WAIT)
        self.sock, self.unread = sock, b""

    def _more(self):
        data = self.sock.recv(65536)
        if not data:
            raise Closed("the client closed the connection")
        self.unread += data

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def request(self):
        """Reads the head of a request: self.line, self.fields, self.lines."""
        while b"\r\n\r\n" not in self.unread:
            self._more()
        head, _, self.unread = self.unread.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        self.line, self.lines = lines[0], lines[1:]
        self.fields = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        return self

    def take(self, count):
        while len(self.unread) < count:
            self._more()
        data, self.unread = self.unread[:count], self.unread[count:]
        return data

    def send(self, data):
        self.sock.sendall(data)
        return self

    def try_send(self, data):
        with contextlib.suppress(OSError):
            self.sock.sendall(data)
        return self

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def ends(self):
        """The client closes the connection, perhaps by a reset."""
        with contextlib.suppress(ConnectionResetError):
            while self.sock.recv(65536):
                pass


class Peer:
    CONN = PeerConn

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.listener.settimeout(WAIT)
        self.port = self.listener.getsockname()[1]

    def accept(self):
        return self.CONN(self.listener.accept()[0])

    def accept_after(self, begin):
        begin()
        return self.accept()

    def close(self):
        self.listener.close()


def response(body=b"", fields=(), status="200 OK"):
    lines = ["HTTP/1.1 " + status, "Content-Length: %d" % len(body), *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body
