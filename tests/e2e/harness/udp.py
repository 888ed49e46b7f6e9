"""Udp, the test case of ls.udp and ls.notify: servers with UDP sockets, UDP clients, and Lua code that runs in a
task."""
import re
import socket

from harness.case import E2E
from harness.environment import WAIT

TOP = 'local ls = require "luaserve"\n'


def ports(server, count=1):
    """Wait for `count` UDP sockets; returns their ports in order. A socket on both loopback addresses counts twice."""
    server.wait_log("listening on udp://", count=count)
    return [int(re.search(r":(\d+)$", line).group(1)) for line in server.logged("listening on udp://")]


class UdpClient:
    """A connected UDP socket with a deadline; a refused datagram raises ConnectionRefusedError."""

    def __init__(self, port, host="127.0.0.1", timeout=WAIT):
        self.sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.settimeout(timeout)
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.sock.connect((host, port))

    def send(self, data):
        self.sock.send(data)

    def get(self):
        return self.sock.recv(70000)

    def ask(self, data):
        self.send(data)
        return self.get()

    @property
    def port(self):
        return self.sock.getsockname()[1]

    def close(self):
        self.sock.close()


class Udp(E2E):
    def udp(self, body, count=1, **kw):
        """A server of this site, and the port of its first UDP socket."""
        kw.setdefault("flags", ("--threads", "2"))
        server = self.serve(TOP + body, listeners=0, **kw)
        return server, ports(server, count)[0]

    def client(self, port, **kw):
        """A client of this port, for this test."""
        client = UdpClient(port, **kw)
        self.addCleanup(client.close)
        return client

    def run_once(self, body, echo="return data", **kw):
        """Run `body` in a task; its `port` is the port of a UDP server with the handler body `echo`. Returns what it
        prints."""
        server, port = self.udp("""
          local sock
          sock = ls.udp({ port = 0, host = "127.0.0.1" }, function(data, peer) %s end)
          ls.init(function() ls.spawn(function() -- ls.init returns, so that the handler runs
            local port = sock.local_port
            local ok, message = pcall(function() %s end)
            if not ok then print("failed: " .. message) end
            io.stdout:flush()
            ls.log.info("the task has ended")
          end) end)""" % (echo, body), **kw)
        server.wait_log("the task has ended")
        with open(server.out_path) as out:
            text = out.read()
        server.stop()
        return text
