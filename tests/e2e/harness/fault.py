"""Faults: fault.c, a library that makes the k-th allocation, accept, send, receive or registration of a server fail, and a
test case that goes through all k of a scenario."""
import errno
import mmap
import os
import shutil
import struct
import subprocess
import tempfile
import time
import unittest

from harness.case import E2E
from harness.environment import SANITIZER, not_on_windows

ALLOC, ACCEPT, SEND, RECV, EPOLL_CTL = 1, 2, 4, 8, 16
FORMAT = "=6Q"
SECONDS_PER_KIND = 8  # after it the remaining k are sampled
SOURCE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "fault.c")


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
class FaultCase(E2E):
    """FAULT_SITE and scenario(server, must_work) belong to the subclass. A scenario raises ValueError for what may not be,
    and with must_work for everything that does not succeed."""

    FAULT_SITE = None

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="luaserve-fault-")
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        cls.library = os.path.join(cls.dir, "fault.so")
        subprocess.run(
            ["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-fPIC", "-shared", "-o", cls.library, SOURCE, "-ldl"],
            check=True,
        )

    def setUp(self):
        self.orders = Orders(self.dir)
        self.addCleanup(self.orders.close)

    def environment(self, **more):
        return {"LD_PRELOAD": self.library, "FAULT_FILE": self.orders.path, **more}

    def sweep(self, name, kinds, error, times=1, must_work=False, flags=()):
        server = self.serve(self.FAULT_SITE, env=self.environment(), flags=("--threads", "2", *flags), listeners=self.LISTENERS)
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
        print("%s: %d calls, %d runs, %d with a fault, %.1f s" % (name, total, ran, hit, time.monotonic() - began), flush=True)
        self.assertEqual(bad, [], server.log()[-3000:])
        self.eventually(lambda: server.fds() <= quiet, "no descriptor stays open (%d, at first %d)" % (server.fds(), quiet))
        self.assertGreater(hit, 0)
        server.stop()


class Sweeps:
    """The sweeps that every scenario goes through, for a subclass that is a FaultCase as well."""

    SEND_ERRORS = RECV_ERRORS = (errno.ECONNRESET, errno.ENOMEM)
    INTERRUPTED = ((SEND, "send"), (RECV, "receive"))

    def test_allocation(self):
        self.sweep("one allocation", ALLOC, errno.ENOMEM)

    def test_allocations_in_a_row(self):
        self.sweep("three allocations in a row", ALLOC, errno.ENOMEM, times=3)

    def test_many_allocations(self):
        self.sweep("40 allocations in a row", ALLOC, errno.ENOMEM, times=40)

    def test_send(self):
        for error in self.SEND_ERRORS:
            with self.subTest(errno.errorcode[error]):
                self.sweep("send " + errno.errorcode[error], SEND, error)

    def test_receive(self):
        for error in self.RECV_ERRORS:
            with self.subTest(errno.errorcode[error]):
                self.sweep("receive " + errno.errorcode[error], RECV, error)

    def test_interrupted(self):
        """Every step succeeds although calls fail with EINTR."""
        for kinds, name in self.INTERRUPTED:
            with self.subTest(name):
                self.sweep(name + " EINTR", kinds, errno.EINTR, times=2, must_work=True)
