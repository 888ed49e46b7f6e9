"""The tests on http.sys: sites that listen with it, and a workaround for Wine 8's."""
import contextlib
import re
import socket
import time

from harness.environment import ENGINE, WAIT, free_port

nudges = {}  # port -> Nudge, for each listener on http.sys of this process's servers


def with_engine(site):
    """The site, changed to listen with the engine of LUASERVE_ENGINE, each listener on a free port."""
    if ENGINE != "http.sys":
        return site
    listen = 'engine = "http.sys", url = "http://+:%d/"'
    return re.sub(r'host = "127\.0\.0\.1", port = 0(?=[ ,}])', lambda _: listen % free_port(), site)


class Nudge:
    """A connection that wakes Wine 8's http.sys.

    http.sys waits there for one event of all its sockets, and now and then misses the event of a new connection. That
    connection and the following ones stay in the listener's queue until another socket has an event; then http.sys
    looks at all of them. This connection is that other socket: it sends a request without an end, which luaserve never
    sees."""

    AFTER = 2.0  # seconds without data

    def __init__(self, where):
        self.sock = socket.create_connection(where, WAIT)
        self.sock.sendall(b"GET / HTTP/1.1\r\nX-Nudges: ")

    def receive(self, sock, seconds):
        """sock.recv with a timeout; while nothing arrives, send a byte of the request now and then."""
        deadline = time.monotonic() + seconds
        try:
            while True:
                left = deadline - time.monotonic()
                sock.settimeout(max(0.001, min(left, self.AFTER)))
                try:
                    return sock.recv(262144)
                except socket.timeout:
                    if left <= self.AFTER:
                        raise
                with contextlib.suppress(OSError):
                    self.sock.sendall(b"n")
        finally:
            sock.settimeout(seconds)

    def close(self):
        self.sock.close()
