"""ls.listen: several listeners, Unix-domain sockets, IPv6, and the addresses that are listened on by default."""
import os
import socket
import unittest

from harness import Conn, E2E, HAS_UNIX_SOCKETS, WAIT, has_ipv6

LISTENERS = r"""
local ls = require "luaserve"
local one, two = ls.app(), ls.app()
one:get("/", function(req) return "one " .. tostring(req.local_addr) end)
two:get("/", function(req) return "two" end)
ls.listen{ host = "127.0.0.1", port = 0, handler = one }
ls.listen{ host = "127.0.0.1", port = 0, handler = two }
"""
ON_A_PATH = 'ls.listen{ host = "unix:@DIR@/s.sock", handler = one }'


class Listeners(E2E):
    SITE = LISTENERS + (ON_A_PATH if HAS_UNIX_SOCKETS else "")
    LISTENERS = 3 if HAS_UNIX_SOCKETS else 2

    def test_each_has_its_app(self):
        texts = sorted(self.server.get("/", index=i).text[:3] for i in range(2))
        self.assertEqual(texts, ["one", "two"])

    def test_unix_socket(self):
        if not HAS_UNIX_SOCKETS:
            return self.refuses_unix_socket(LISTENERS + ON_A_PATH, "cannot listen on unix:@DIR@/s.sock: not supported here")
        paths = [a for a in self.server.addresses if isinstance(a, str)]
        self.assertEqual(paths, [os.path.join(self.server.dir, "s.sock")])
        with Conn(paths[0]) as conn:
            self.assertTrue(conn.get("/").text.startswith("one"))
            self.assertTrue(conn.get("/").text.startswith("one"))


class Ipv6(E2E):
    @unittest.skipUnless(has_ipv6(), "no IPv6 loopback here")
    def test_ipv6(self):
        server = self.serve(
            'local ls = require "luaserve"; local app = ls.app()\n'
            'app:get("/", function(req) return tostring(req.remote) end)\n'
            'ls.listen{ host = "::1", port = 0, handler = app }\n'
        )
        self.assertEqual(server.at()[0], "::1")
        self.assertIn("::1", server.get("/", {"Host": "[::1]"}).text)

    def test_a_star_is_every_address(self):
        """The local address is that of the connection, not that of the listener."""
        server = self.serve(
            'local ls = require "luaserve"; local app = ls.app()\n'
            'app:get("/", function(req) return req.local_addr end)\n'
            'ls.listen{ host = "*", port = 0, handler = app }\n'
            'ls.tcp({ host = "*", port = 0 }, function(sock) sock:send(sock.local_addr) end)\n',
            listeners=2,
        )
        http, tcp = (address[1] for address in server.addresses)
        for host, text in (("127.0.0.1", "127.0.0.1:%d"), ("127.0.0.2", "127.0.0.2:%d"), ("::1", "[::1]:%d")):
            if host == "::1" and not has_ipv6():
                continue
            with Conn((host, http)) as conn:
                self.assertEqual(conn.get("/", headers={"Host": "a"}).text, text % http)
            with socket.create_connection((host, tcp), WAIT) as conn:
                self.assertEqual(conn.makefile("rb").read().decode(), text % tcp)
