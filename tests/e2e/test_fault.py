"""Faults: the k-th allocation, accept, send, receive or registration fails, for every k of a short scenario.

fault.c is loaded into the server and reads its orders from a small shared file, so that one server runs through all k.
After each run the server must be alive, hold no more descriptors than before, and serve again, and no step may hang.
For faults while the server starts, each k has a process of its own: it starts, or logs the error and exits with status
1."""
import errno
import mmap
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

from harness import E2E, SANITIZER, WAIT, Server, TimedOut, chunked, main, not_on_windows

ALLOC, ACCEPT, SEND, RECV, EPOLL_CTL, ENTER = 1, 2, 4, 8, 16, 32
HERE = os.path.dirname(os.path.abspath(__file__))
FORMAT = "=6Q"
SECONDS_PER_KIND = 8  # after it the remaining k are sampled

SITE = r"""
local ls = require "luaserve"
local app = ls.app()
app:use(function(req, res, next) res:header("X-Id", req.id); return next() end)
app:get("/", function() return "root" end)
app:get("/hello/:name", function(req) return { hello = req.params.name, q = req.query.q, c = req.cookies.c, h = req.headers["x-h"] } end)
app:post("/echo", function(req) return req:buffer() end)
app:post("/body", function(req) return req:body() end)
app:post("/relay", function(req, res) for piece in req:chunks() do res:write(piece) end end)
app:get("/parts", function(req, res) for i = 1, 5 do res:write(("p"):rep(3000)); res:flush() end end)
app:get("/spawn", function() return tostring(ls.spawn(function() ls.sleep(0.001); return "job" end):wait()) end)
app:get("/big", function() return ("b"):rep(1000):rep(200) end)
app:get("/error", function() error("on purpose") end)
ls.listen{ host = "127.0.0.1", port = 0, app = app }
"""

BODY = b"e" * 100000
STEPS = [
    ("GET", "/hello/x?q=1", {"Cookie": "c=2", "X-H": "3"}, None, None, 200),
    ("GET", "/", {}, None, b"root", 200),
    ("POST", "/echo", {}, BODY, BODY, 200),
    ("POST", "/body", {}, BODY[:9000], BODY[:9000], 200),
    (
        "POST",
        "/relay",
        {"Transfer-Encoding": "chunked"},
        chunked([b"abc", b"d" * 5000]),
        b"abc" + b"d" * 5000,
        200,
    ),
    ("GET", "/parts", {}, None, b"p" * 15000, 200),
    ("GET", "/spawn", {}, None, b"job", 200),
    ("GET", "/big", {}, None, b"b" * 200000, 200),
    ("GET", "/error", {}, None, None, 500),
    ("GET", "/nowhere", {}, None, None, 404),
]


class Orders:
    """The shared file with the orders for fault.c."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "orders")
        with open(self.path, "wb") as out:
            out.write(bytes(4096))
        self.file = open(self.path, "r+b")
        self.map = mmap.mmap(self.file.fileno(), 4096)

    def close(self):
        self.map.close()
        self.file.close()

    def _put(self, index, value):
        struct.pack_into("=Q", self.map, 8 * index, value)

    def arm(self, kinds, first=0, times=1, error=errno.ENOMEM):
        self._put(0, 0)
        for index, value in enumerate((0, first, times, error, 0), 1):
            self._put(index, value)
        self._put(0, kinds)

    def disarm(self):
        """Stop counting and failing; returns the numbers of calls and of failed calls."""
        self._put(0, 0)
        _, calls, _, _, _, failed = struct.unpack_from(FORMAT, self.map, 0)
        return calls, failed


@not_on_windows("fault.c replaces functions of the C library of Linux")
@unittest.skipIf(SANITIZER, "a sanitizer has an allocator of its own")
@unittest.skipUnless(shutil.which("cc"), "no C compiler")
class Faults(E2E):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="luaserve-fault-")
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        cls.library = os.path.join(cls.dir, "fault.so")
        subprocess.run(
            [
                "cc",
                "-std=gnu11",
                "-O1",
                "-Wall",
                "-Wextra",
                "-fPIC",
                "-shared",
                "-o",
                cls.library,
                os.path.join(HERE, "fault.c"),
                "-ldl",
            ],
            check=True,
        )

    def setUp(self):
        self.orders = Orders(self.dir)
        self.addCleanup(self.orders.close)

    def environment(self, **more):
        return {"LD_PRELOAD": self.library, "FAULT_FILE": self.orders.path, **more}

    def scenario(self, server, must_work=False):
        """Run the steps. A step may get any status or lose its connection; it may not hang, and a complete response
        with status 200 must be the right one. With must_work every step must succeed."""
        conn = None
        for method, target, headers, body, want, status in STEPS:
            try:
                if conn is None:
                    conn = server.connect(timeout=6)
                response = conn.ask(method, target, headers, body)
                if response.status == 200 and want is not None and response.body != want:
                    raise ValueError("%s: a wrong body of %d bytes" % (target, len(response.body)))
                if must_work and response.status != status:
                    raise ValueError("%s: %r" % (target, response))
                if response.closes:
                    conn.close()
                    conn = None
            except (AssertionError, OSError) as error:
                if isinstance(error, (TimedOut, TimeoutError)):
                    raise ValueError("%s %s hangs: %s" % (method, target, error)) from None
                if must_work:
                    raise ValueError("%s %s: %s" % (method, target, error)) from None
                if conn is not None:
                    conn.close()
                conn = None
        if conn is not None:
            conn.close()

    def sweep(self, name, kinds, error, times=1, must_work=False, flags=()):
        server = self.serve(SITE, env=self.environment(), flags=("--threads", "2", *flags))
        for _ in range(3):
            self.scenario(server, must_work=True)
        quiet = self.quiet_fds(server)
        total = 0
        for _ in range(2):
            self.orders.arm(kinds)
            self.scenario(server, must_work=True)
            self.eventually(lambda: server.fds() <= quiet, "the descriptors are closed")
            calls, _ = self.orders.disarm()
            total = max(total, calls)
        self.assertGreater(total, 0, "fault.c sees no such call")
        bad, ran, hit, step, k = [], 0, 0, 1, 1
        began = time.monotonic()
        while k <= total:
            self.orders.arm(kinds, k, times, error)
            try:
                self.scenario(server, must_work)
            except ValueError as problem:
                bad.append("k=%d: %s" % (k, problem))
            _, failed = self.orders.disarm()
            ran, hit = ran + 1, hit + (failed > 0)
            if not server.alive():
                server.wait()
                self.fail(
                    "%s, k=%d of %d: the server died with %s:\n%s"
                    % (name, k, total, server.process.returncode, server.log()[-4000:])
                )
            try:
                self.scenario(server, must_work=True)
            except ValueError as problem:
                bad.append("after k=%d: %s" % (k, problem))
            if len(bad) > 5:
                break
            spent = time.monotonic() - began
            if spent > SECONDS_PER_KIND / 2 and step == 1:
                per_run = spent / ran
                step = max(1, int((total - k) * per_run / (SECONDS_PER_KIND / 2)) + 1)
            k += step
        print(
            "%s: %d calls, %d runs, %d with a fault, %.1f s"
            % (name, total, ran, hit, time.monotonic() - began),
            flush=True,
        )
        self.assertEqual(bad, [], server.log()[-3000:])
        self.eventually(
            lambda: server.fds() <= quiet,
            "no descriptor stays open (%d, at first %d)" % (server.fds(), quiet),
        )
        self.assertGreater(hit, 0)
        server.stop()

    def test_allocation(self):
        self.sweep("one allocation", ALLOC, errno.ENOMEM)

    def test_allocations_in_a_row(self):
        self.sweep("three allocations in a row", ALLOC, errno.ENOMEM, times=3)

    def test_many_allocations(self):
        self.sweep("40 allocations in a row", ALLOC, errno.ENOMEM, times=40)

    def test_accept(self):
        for error in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ECONNABORTED, errno.EPERM):
            with self.subTest(errno.errorcode[error]):
                self.sweep("accept4 " + errno.errorcode[error], ACCEPT, error)

    def test_send(self):
        for error in (errno.ECONNRESET, errno.EPIPE, errno.ENOMEM, errno.ENOBUFS):
            with self.subTest(errno.errorcode[error]):
                self.sweep("send " + errno.errorcode[error], SEND, error)

    def test_receive(self):
        for error in (errno.ECONNRESET, errno.ETIMEDOUT, errno.ENOMEM):
            with self.subTest(errno.errorcode[error]):
                self.sweep("receive " + errno.errorcode[error], RECV, error)

    def test_register(self):
        for error in (errno.ENOMEM, errno.ENOSPC):
            with self.subTest(errno.errorcode[error]):
                self.sweep("epoll_ctl " + errno.errorcode[error], EPOLL_CTL, error, flags=("--backend", "epoll"))

    def test_rings(self):
        """No request fails while calls of a ring fail for a while."""
        probe = self.serve(SITE, flags=("--backend", "uring"))
        if "io_uring cannot be used here" in probe.log():
            self.skipTest("no io_uring here")
        for error in (errno.ENOMEM, errno.EAGAIN, errno.EBUSY, errno.EINTR):
            with self.subTest(errno.errorcode[error]):
                self.sweep(
                    "io_uring_enter " + errno.errorcode[error],
                    ENTER,
                    error,
                    times=3,
                    must_work=True,
                    flags=("--backend", "uring"),
                )

    def test_rings_that_die(self):
        """All further calls of a ring fail: another ring replaces it, and no request fails."""
        if "io_uring cannot be used here" in self.serve(SITE, flags=("--backend", "uring")).log():
            self.skipTest("no io_uring here")
        for times in (1, 2):
            with self.subTest(times=times):
                self.sweep(
                    "io_uring_enter ENXIO x %d" % times,
                    ENTER,
                    errno.ENXIO,
                    times=times,
                    must_work=True,
                    flags=("--backend", "uring"),
                )

    def test_rings_that_cannot_be_had_any_more(self):
        """From some call on all calls of all rings fail: the server changes to epoll and logs it."""
        for error in (errno.ENXIO, errno.ENOMEM):
            with self.subTest(errno.errorcode[error]):
                server = self.serve(
                    SITE, env=self.environment(), flags=("--threads", "2", "--backend", "uring")
                )
                if "io_uring cannot be used here" in server.log():
                    self.skipTest("no io_uring here")
                self.scenario(server, must_work=True)
                quiet = self.quiet_fds(server)
                self.orders.arm(ENTER, 1, 1 << 40, error)
                for _ in range(20):
                    self.scenario(server, must_work=True)
                    if "epoll serves from now on" in server.log():
                        break
                self.assertIn("io_uring_enter: " + os.strerror(error), server.log())
                self.assertIn("epoll serves from now on", server.log())
                self.scenario(server, must_work=True)
                self.eventually(lambda: server.fds() <= quiet, "the rings were closed")
                self.orders.disarm()
                server.stop()

    def test_interrupted(self):
        """Every step succeeds although calls fail with EINTR."""
        for kinds, name in ((ACCEPT, "accept4"), (SEND, "send"), (RECV, "receive")):
            with self.subTest(name):
                self.sweep(name + " EINTR", kinds, errno.EINTR, times=2, must_work=True)

    def start_up(self, kinds, times, error, samples):
        """Start with a fault at k, for a sample of all k of a start."""
        self.orders.arm(0)
        server = self.serve(SITE, env=self.environment(FAULT_CALL=str(kinds)), flags=("--threads", "2"))
        total, _ = self.orders.disarm()
        server.stop()
        self.assertGreater(total, 0)
        came_up = gave_up = 0
        for n in range(min(samples, total)):
            k = 1 + n * total // min(samples, total)
            self.orders.arm(0)
            server = Server(
                SITE,
                env=self.environment(
                    FAULT_CALL=str(kinds), FAULT_K=str(k), FAULT_TIMES=str(times), FAULT_ERRNO=str(error)
                ),
                flags=("--threads", "2"),
                listeners=0,
            )
            try:
                with server.news:
                    server.news.wait_for(lambda: server.addresses or None in server.lines, WAIT)
                if server.addresses:
                    came_up += 1
                    try:
                        self.scenario(server)
                    except ValueError as problem:
                        self.fail(
                            "start with a fault at %d of %d: %s\n%s" % (k, total, problem, server.log()[-2000:])
                        )
                    if server.alive():
                        self.orders.disarm()
                        self.scenario(server, must_work=True)
                        server.signal(signal.SIGTERM)
                    status = server.wait()
                    # The start goes on after the address is logged; a fault there may still end the process.
                    self.assertIn(status, (0, 1), "k=%d: %s" % (k, server.log()[-2000:]))
                else:
                    gave_up += 1
                    status = server.wait()
                    self.assertEqual(status, 1, "k=%d of %d: %s" % (k, total, server.log()[-2000:]))
                    self.assertTrue(re.search(r"[a-z]{4}", server.log()), "k=%d: it ends without a word" % k)
            finally:
                server.cleanup()
        print(
            "start-up, kind %d x %d: %d calls, %d started, %d gave up"
            % (kinds, times, total, came_up, gave_up),
            flush=True,
        )

    def test_start_up(self):
        for name, kinds, times, error, samples in (
            ("one allocation", ALLOC, 1, errno.ENOMEM, 25),
            ("allocations in a row", ALLOC, 30, errno.ENOMEM, 40),
            ("registration", EPOLL_CTL, 1, errno.ENOMEM, 10),
        ):
            with self.subTest(name):
                self.start_up(kinds, times, error, samples)


if __name__ == "__main__":
    main()
