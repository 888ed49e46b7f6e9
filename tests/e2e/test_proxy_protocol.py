"""proxy_protocol = true: headers of trusted and other peers, whole and in pieces, in front of TLS, and a real HAProxy."""
import os
import shutil
import socket
import struct
import subprocess
import time
import unittest

from harness import E2E, HAS_UNIX_SOCKETS, WAIT, Closed, free_port, scratch, table, write_text
from harness import tls

APP = """
local ls = require "luaserve"
local app = ls.app()
app:get("/", function(req) return req.remote .. " " .. req.scheme end)
app:get("/port", function(req) return req.ip .. " " .. tostring(req.port) end)
"""
SITE = APP + """
local from_here = { trusted = { "127.0.0.0/8", "::1" }, proxy_protocol = true }
ls.listen("127.0.0.1:0", app, from_here)
ls.listen("127.0.0.1:0", app, { trusted = { "192.0.2.0/24" }, proxy_protocol = true })
ls.listen("127.0.0.1:0", app, { trusted = { "127.0.0.1" }, proxy_protocol = true, tls = "self-signed" })
ls.tcp("127.0.0.1:0", function(sock) sock:send(sock.remote .. " " .. (sock:receive("*l") or "nothing")) end, from_here)
"""
TRUSTED, OTHER, TLS, TCP = range(4)
LINE = b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 443\r\n"
GET = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def version_2(command, family, rest):
    return b"\r\n\r\n\0\r\nQUIT\n" + struct.pack("!BBH", command, family, len(rest)) + rest


def ip_block(family, source, destination, ports):
    return socket.inet_pton(family, source) + socket.inet_pton(family, destination) + struct.pack("!HH", *ports)


IP4 = ip_block(socket.AF_INET, "192.0.2.7", "198.51.100.1", (40000, 443))
IP6 = ip_block(socket.AF_INET6, "2001:db8::7", "2001:db8::1", (65535, 1))


class ProxyProtocol(E2E):
    SITE = SITE
    LISTENERS = 4
    FLAGS = ["--log-level", "debug"]

    def answer(self, first, index=TRUSTED, pieces=None):
        """The body of the response after these bytes and a request."""
        with self.server.connect(index) as conn:
            for piece in pieces or [first + GET]:
                conn.send(piece)
            return conn.response("GET").text

    def test_headers(self):
        def check(case):
            header, remote = case
            answer = self.answer(header)
            self.assertTrue(answer == remote + " http" or remote == "own" and answer.startswith("127.0.0.1:"), answer)

        table(self, [(repr(case[0]), case) for case in (
            (LINE, "192.0.2.7:40000"), (b"PROXY UNKNOWN\r\n", "own"), (version_2(0x21, 0x11, IP4), "192.0.2.7:40000"),
            (version_2(0x21, 0x21, IP6), "[2001:db8::7]:65535"),
            (version_2(0x21, 0x11, IP4 + b"\x03\0\x04abcd" + b"\x04\x03\xe8" + bytes(1000)), "192.0.2.7:40000"),
            (version_2(0x20, 0x11, IP4), "own"),
        )], check)

    def test_invalid_headers(self):
        def check(header):
            with self.server.connect() as conn:
                conn.send(header + GET)
                with self.assertRaises((Closed, ConnectionError)):
                    conn.response("GET")

        table(self, [(repr(header[:60]), header) for header in (
            b"", b"PROXY TCP4 1.2.3.4 1.2.3.4 1 99999\r\n", b"PROXY UNKNOWN " + b"x" * 200 + b"\r\n",
            version_2(0x31, 0x11, IP4), version_2(0x21, 0x11, IP4 + bytes(4100)))], check)
        self.server.wait_log("info refused 127.0.0.1 PROXY header: ", count=5)

    def test_a_header_of_an_untrusted_peer_is_a_bad_request(self):
        with self.server.connect(OTHER) as conn:
            conn.send(LINE + GET)
            self.assertEqual(conn.response("GET").status, 400)
        self.assertTrue(self.answer(b"", OTHER).startswith("127.0.0.1:"))

    def test_in_front_of_tls(self):
        self.assertEqual(tls.get(self.server.port(TLS), first=LINE), "192.0.2.7:40000 https")
        with self.assertRaises(OSError):  # the ClientHello is no header
            tls.get(self.server.port(TLS))

    def test_a_tcp_server(self):
        with socket.create_connection(self.server.at(TCP), WAIT) as conn:
            conn.sendall(LINE + b"hello\n")
            self.assertEqual(conn.recv(100), b"192.0.2.7:40000 hello")

    def test_a_second_header_is_not_parsed(self):
        with self.server.connect() as conn:
            conn.send(LINE + LINE + GET)
            self.assertEqual(conn.response("GET").status, 400)

    def test_keep_alive_keeps_the_address(self):
        with self.server.connect() as conn:
            conn.send(LINE)
            for _ in range(3):
                self.assertEqual(conn.get("/").text, "192.0.2.7:40000 http")


class Options(E2E):
    @unittest.skipUnless(HAS_UNIX_SOCKETS, "of another system: no Unix sockets")
    def test_unix_peers(self):
        with scratch() as folder:
            path = os.path.join(folder, "s")
            server = self.serve(APP + "ls.listen{ path = %r, handler = app, trusted = { 'unix:' }, proxy_protocol = true }" % path)
            with server.connect() as conn:
                conn.send(LINE + GET)
                self.assertEqual(conn.response("GET").text, "192.0.2.7:40000 http")
            server.stop()


@unittest.skipUnless(shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin"), "haproxy is not installed")
class HaProxy(E2E):
    def test_both_versions(self):
        server = self.serve(APP + "ls.listen('127.0.0.1:0', app, { trusted = { '127.0.0.1' }, proxy_protocol = true })")
        for option in ("send-proxy", "send-proxy-v2"):
            port = free_port()
            with scratch() as folder:
                path = os.path.join(folder, "haproxy.cfg")
                write_text(path, "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n"
                          "listen site\n bind 127.0.0.1:%d\n server one 127.0.0.1:%d %s check\n" % (port, server.port(), option))
                program = shutil.which("haproxy", path=os.environ["PATH"] + ":/usr/sbin")
                with subprocess.Popen([program, "-db", "-f", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                    try:
                        conn = self.dial(port)
                        own = "127.0.0.1:%d" % conn.getsockname()[1]
                        with conn:
                            conn.sendall(GET)
                            data = b""
                            while not data.endswith(b" http"):
                                part = conn.recv(10000)
                                self.assertTrue(part, data)
                                data += part
                        self.assertTrue(data.endswith((own + " http").encode()), (data, own))
                    finally:
                        process.terminate()
        server.stop()

    def dial(self, port):
        deadline = time.monotonic() + WAIT
        while True:
            try:
                return socket.create_connection(("127.0.0.1", port), WAIT)
            except ConnectionRefusedError:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
