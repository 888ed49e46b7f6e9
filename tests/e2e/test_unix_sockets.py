"""The paths of Unix listeners: mode and owner, paths in use, whose path a server removes."""
import os
import socket
import stat
import unittest

from harness import E2E, WINDOWS, fcntl, grp, pwd, scratch

SITE = """
local ls = require "luaserve"
local app = ls.app()
app:get("/", function() return "x" end)
ls.%s
"""


@unittest.skipIf(WINDOWS, "of another system: Wine 8 has no Unix sockets")
class UnixSockets(E2E):
    def setUp(self):
        where = scratch()
        self.dir = where.__enter__()
        self.addCleanup(where.__exit__, None, None, None)
        self.path = os.path.join(self.dir, "s")

    def start(self, rest, call="listen{ path = %r, handler = app, %s }"):
        return self.serve(SITE % (call % (self.path, rest)))

    def fails(self, site, message):
        server = self.serve(site, listeners=0)
        self.assertEqual(server.wait(), 1, server.log())
        self.assertIn(message, server.log())

    def test_mode(self):
        for rest, mode in (('mode = "0600"', 0o600), ('mode = "666"', 0o666), ("mode = 432", 0o660)):
            server = self.start(rest)
            self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), mode)
            self.assertEqual(server.get("/").text, "x")
            server.stop()
            self.assertFalse(os.path.exists(self.path))

    def test_a_lock_of_another_process_does_not_stop_the_start_for_ever(self):
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(self.path)
        stale.close()
        directory = os.open(self.dir, os.O_RDONLY)
        self.addCleanup(os.close, directory)
        fcntl.flock(directory, fcntl.LOCK_SH)
        self.fails(SITE % ("listen{ path = %r, handler = app }" % self.path), "cannot listen on unix:")
        fcntl.flock(directory, fcntl.LOCK_UN)
        server = self.start("")
        self.assertEqual(server.get("/").text, "x")

    def test_owner_of_another_user(self):
        if os.geteuid() != 0:
            self.skipTest("only root gives a file to another user")
        self.start('owner = "nobody:nogroup", mode = "0600"')
        st = os.stat(self.path)
        self.assertEqual((st.st_uid, st.st_gid), (pwd.getpwnam("nobody").pw_uid, grp.getgrnam("nogroup").gr_gid))

    def test_an_owner_that_the_process_may_not_set(self):
        if os.geteuid() == 0:
            self.skipTest("root may")
        self.fails(SITE % ("listen{ path = %r, handler = app, owner = 'root' }" % self.path),
                     "permission denied; only root may set another user as owner")
        self.assertFalse(os.path.exists(self.path))

    def test_mode_of_a_tcp_server(self):
        server = self.start("mode = '0640', handler = function(sock) sock:send('hello') end", "tcp{ path = %r, %s }")
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o640)
        with server.connect() as conn:
            self.assertEqual(conn.rest(), b"hello")
