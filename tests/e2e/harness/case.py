"""E2E, the test case of the end-to-end tests, and tests in parallel."""
import concurrent.futures
import contextlib
import shutil
import threading
import time
import unittest

from harness.environment import OTHER_SYSTEM, WAIT, WINE
from harness.server import Server, temporary_folder


class E2E(unittest.TestCase):
    """A test case that owns its servers. With SITE set, the tests of the class share one server."""

    SITE = None
    FLAGS = ()
    ARGS = ()
    LISTENERS = 1
    ENV = None
    server = None
    own_servers = own_connections = ()

    @classmethod
    def setUpClass(cls):
        if cls.SITE is not None:
            cls.server = Server(cls.SITE, args=cls.ARGS, flags=cls.FLAGS, listeners=cls.LISTENERS, env=cls.ENV)
            cls.addClassCleanup(cls.server.cleanup)

    @classmethod
    def tearDownClass(cls):
        if cls.server is not None:
            cls.server.stop()

    def setUp(self):
        shared = type(self).server
        if shared is not None and not shared.alive():
            self.fail("the shared server is dead (%s)" % shared.process.returncode)

    def tearDown(self):
        shared = type(self).server
        if shared is not None and not shared.alive():
            shared.stop()
        for conn in self.own_connections:  # else the end of a server waits for those that do not answer its Close frames
            conn.close()
        if self._outcome.success:  # else the first failure says more
            for server in self.own_servers:
                server.stop()

    def serve(self, site, **kw):
        """A server for this test alone. Behind the test it must exit with status 0 when it is told to, unless the test has
        awaited its end or killed it."""
        server = Server(site, **kw)
        self.addCleanup(server.cleanup)
        self.own_servers = [*self.own_servers, server]
        return server

    def new_folder(self):
        """A temporary folder, which the end of the test removes."""
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def connect(self, index=0, server=None, **kw):
        return self.owns((server or self.server).connect(index, **kw))

    def owns(self, conn):
        """The test closes it before its servers end."""
        self.own_connections = [*self.own_connections, conn]
        self.addCleanup(conn.close)  # when the test does not get to its end
        return conn

    def get(self, target, headers=(), index=0):
        return self.server.get(target, headers, index)

    def ask(self, method, target, headers=(), body=None, index=0):
        with self.server.connect(index) as conn:
            return conn.ask(method, target, headers, body)

    def refuses(self, site, message):
        """A server of this site does not start, and logs the reason in one line, which is returned."""
        server = self.serve(site, listeners=0)
        self.assertEqual(server.wait(), 1, server.log())
        self.assertEqual(len(server.log().splitlines()), 1, server.log())
        self.assertIn(message.replace("@DIR@", server.dir), server.log())
        return server.log()

    def refuses_unix_socket(self, site, message):
        """Without Unix sockets in the tests: Wine has none, and the site is refused. Windows has them, its Python has not."""
        if not WINE:
            self.skipTest(OTHER_SYSTEM + "Python for Windows has no Unix sockets")
        self.refuses(site, message)

    def quiet_fds(self, server=None):
        """The number of descriptors that the server holds without a connection."""
        server = server or self.server
        with server.connect() as conn:
            conn.get("/")
            held = server.fds()
        self.eventually(lambda: server.fds() < held, "the descriptor of a closed connection is closed")
        previous = server.fds()
        for _ in range(20):  # other connections may still be closing
            time.sleep(0.01)
            held = server.fds()
            if held == previous:
                break
            previous = held
        return held

    def eventually(self, condition, what, timeout=None):
        """Poll until condition() is true; `what` names it in the failure message. The pauses are a twentieth of what has passed:
        a condition may be a handshake."""
        begun = time.monotonic()
        while not condition():
            passed = time.monotonic() - begun
            if passed > (timeout or WAIT):
                self.fail("not within the time limit: %s" % what)
            time.sleep(min(max(passed / 20, 0.01), 0.1))


def in_parallel(jobs, workers=16):
    """Run callables in threads; returns their results in order, or raises the first failure after all threads have
    ended."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(job) for job in jobs]
        concurrent.futures.wait(futures)
    return [future.result() for future in futures]


@contextlib.contextmanager
def beside(*functions):
    """Run functions in threads beside the body of the statement, which waits for them at its end, and fails if one of them
    has failed. A body that fails does not wait: they may wait for what it has not done."""
    failures = []

    def run(function):
        try:
            function()
        except BaseException as failure:  # pylint: disable=broad-except
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def table(test, cases, check, workers=16):
    """Run check(case) for every (name, case) in threads; the failure message lists all failures with their names."""

    def one(case):
        try:
            check(case)
        except Exception as error:  # collected, so that a failing row does not hide other failures
            return "%s: %s" % (type(error).__name__, error)
        return None

    results = in_parallel([lambda c=case: one(c) for _, case in cases], workers)
    bad = ["  %s: %s" % (name, result) for (name, _), result in zip(cases, results) if result]
    if bad:
        test.fail("%d of %d rows failed\n%s" % (len(bad), len(cases), "\n".join(bad)))
