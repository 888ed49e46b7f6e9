"""100,000 requests on 1,000 connections and 4 threads: each gets exactly one response, the one to its own request.
Afterwards the server holds as many descriptors (Windows: handles and sockets) as at the start."""
import contextlib
import errno
import json
import os
import select
import socket
import time

from harness import E2E, WAIT, WINE, app_site, repeats

CONNECTIONS, REQUESTS = 1000, 100_000
SITE = app_site("""
app:get("/", function() return "root" end)
app:get("/n/:n", function(req) return req.params.n end)
app:get("/stats", function() return ls.stats() end)
""")


def handles(server):
    """The number of descriptors of the server; under Wine those of Wine's server, which serves this module alone."""
    if not WINE:
        return server.fds()
    wanted = b"WINEPREFIX=" + os.environ["LUASERVE_WINEPREFIX"].encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            with open("/proc/%s/comm" % pid) as comm, open("/proc/%s/environ" % pid, "rb") as environ:
                if comm.read().startswith("wineserver") and wanted in environ.read().split(b"\0"):
                    return len(os.listdir("/proc/%s/fd" % pid))
    raise AssertionError("no Wine server")


class Client:
    """One connection: one request at a time, the next after the complete response."""

    def __init__(self, where):
        self.sock = socket.socket()
        self.sock.connect(where)
        self.sock.setblocking(False)
        self.number, self.got = None, b""

    def ask(self, number):
        self.number, self.got = number, b""
        asked = b"GET /n/%d HTTP/1.1\r\nHost: h\r\n\r\n" % number
        assert self.sock.send(asked) == len(asked)

    def answered(self):
        """Returns whether the response is complete; raises when it is wrong."""
        try:
            more = self.sock.recv(4096)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return False
            raise
        assert more, "closed under request %s" % self.number
        self.got += more
        head, end, body = self.got.partition(b"\r\n\r\n")
        wanted = b"%d" % self.number
        if not end or len(body) < len(wanted):
            return False
        assert head.startswith(b"HTTP/1.1 200 OK\r\n") and body == wanted, (self.number, self.got)
        return True


class Count(E2E):
    SITE = SITE
    FLAGS = ("--threads", "4")

    def test_each_request_is_answered_once(self):
        quiet, requests = self.quiet_fds(), repeats(REQUESTS)
        before, held = json.loads(self.get("/stats").text), handles(self.server)
        clients = [Client(self.server.at()) for _ in range(CONNECTIONS)]
        by_fd = {client.sock.fileno(): client for client in clients}
        poll = select.epoll()
        asked = answered = 0
        for client in clients:
            poll.register(client.sock, select.EPOLLIN)
            client.ask(asked)
            asked += 1
        last = time.monotonic()
        while answered < requests:
            events = poll.poll(1)
            for fd, _ in events:
                client = by_fd[fd]
                if client.number is None:
                    self.fail("data without a request: %r" % client.sock.recv(100))
                if not client.answered():
                    continue
                answered += 1
                client.number = None
                if asked < requests:
                    client.ask(asked)
                    asked += 1
            if events:
                last = time.monotonic()
            if time.monotonic() > last + 3 * WAIT:
                lost = [client.number for client in clients if client.number is not None]
                self.fail("%d of %d answered; lost: %r" % (answered, asked, lost[:20]))
        self.assertEqual(asked, requests)
        self.assertEqual(poll.poll(0), [], "nothing comes that was not asked for")
        after = json.loads(self.get("/stats").text)
        self.assertEqual(after["requests"] - before["requests"], requests + 1)
        self.assertEqual(after["connections"] - before["connections"], CONNECTIONS + 1)
        poll.close()
        for client in clients:
            client.sock.close()
        self.eventually(lambda: self.server.fds() <= quiet, "the descriptors are closed")
        self.eventually(lambda: handles(self.server) <= held, "the handles are closed")
        self.assertEqual(self.get("/").text, "root")
