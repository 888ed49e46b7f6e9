"""The choice of the back end: io_uring where the system allows it, else epoll."""
import errno
import functools
import os
import re
import struct
import sys

from harness import E2E, in_parallel, main, not_on_windows, run_program, scratch

SITE = """
local ls = require "luaserve"
local app = ls.app()
app:get("/", function() return "hello" end)
app:post("/echo", function(req) return req:body() end)
ls.listen{ host = "127.0.0.1", port = 0, app = app }
"""

# Runs its arguments under a seccomp filter (prctl(2), seccomp(2)) that answers io_uring_setup(2) with the errno value
# FORBID.
UNDER_SECCOMP = """
import ctypes, os, struct, sys
SETUP, RET_ERRNO, RET_ALLOW = 425, 0x50000, 0x7fff0000
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, SETUP), (0x06, 0, 0, RET_ERRNO | int(os.environ["FORBID"])), (0x06, 0, 0, RET_ALLOW)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
prog = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, ctypes.byref(prog), 0, 0) != 0:
    sys.exit("seccomp: " + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
"""
assert struct.calcsize("HxxxxxxP") == 16, "struct sock_fprog of a 64-bit system"


@not_on_windows("only Linux has io_uring")
class Backend(E2E):
    def one_line(self, server):
        lines = [line for line in server.log().splitlines() if "io_uring" in line]
        self.assertEqual(len(lines), 1, server.log())
        return lines[0]

    def test_where_io_uring_is_forbidden_epoll_serves(self):
        for error in (errno.EPERM, errno.ENOSYS, errno.ENOMEM):
            with self.subTest(error=errno.errorcode[error]):
                server = self.serve(
                    SITE,
                    flags=("--backend", "uring"),
                    prefix=(sys.executable, "-c", UNDER_SECCOMP),
                    env={"FORBID": str(error)},
                )
                self.assertEqual(server.get("/").text, "hello")
                line = self.one_line(server)
                self.assertIn("io_uring_setup: " + os.strerror(error), line)
                self.assertIn("the back end is epoll", line)
                server.stop()

    def test_auto_says_nothing_of_io_uring_unless_it_is_refused(self):
        server = self.serve(SITE, flags=("--backend", "auto"))
        self.assertEqual(server.get("/").text, "hello")
        self.assertNotIn("io_uring", server.log())
        server.stop()

    def test_uring_is_what_check_says(self):
        with scratch(site_lua=SITE) as where:
            status, out, err = run_program(["--backend", "uring", "--check", os.path.join(where, "site.lua")])
        self.assertEqual(status, 0, err)
        name = re.search(r"^back end: (\w+)$", out, re.M).group(1)
        self.assertEqual(name, "epoll" if "io_uring cannot be used here" in err else "uring")

    def test_bodies_of_all_sizes_on_one_connection(self):
        """Bodies shorter and longer than a buffer of the ring, and longer than all buffers that the ring keeps for a
        connection."""
        server = self.serve(SITE, flags=("--backend", "uring", "--threads", "2"))

        def client(index):
            with server.connect() as conn:
                for size in (0, 1, 2000, 2047, 2048, 2049, 5000, 20000, 70000, 300000, 17):
                    body = bytes((i * 7 + index + size) & 255 for i in range(size))
                    self.assertEqual(conn.ask("POST", "/echo", (), body).body, body)

        in_parallel([functools.partial(client, index) for index in range(10)])
        server.stop()


if __name__ == "__main__":
    main()
