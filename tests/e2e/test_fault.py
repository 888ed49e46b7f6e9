"""Faults: the k-th allocation, accept, send, receive or registration fails, for every k of a short scenario.

fault.c is loaded into the server and reads its orders from a small shared file, so that one server runs through all k.
After each run the server must be alive, hold no more descriptors than before, and serve again, and no step may hang.
For faults while the server starts, each k has a process of its own: it starts, or logs the error and exits with status
1."""
import errno
import re
import signal

from harness import Server, TimedOut, WAIT, app_site, chunked
from harness.fault import ACCEPT, ALLOC, EPOLL_CTL, FaultCase, Sweeps

SITE = app_site(r"""
app:use(function(req, res, next) res:header("X-Id", req.id); return next() end)
app:get("/", function() return "root" end)
app:get("/hello/:name", function(req) return { hello = req.params.name, q = req.query.q, c = req.cookies.c, h = req.headers["x-h"] } end)
app:post("/echo", function(req) return req:buffer() end)
app:post("/body", function(req) return req:body() end)
app:post("/relay", function(req, res) for piece in req:chunks() do res:write(piece) end end)
app:get("/parts", function(req, res) for i = 1, 5 do res:write(("p"):rep(3000)); res:flush() end end)
app:get("/spawn", function() return tostring(ls.spawn(function() ls.sleep(0.001); return "job" end):wait()) end)
app:get("/big", function() return ("b"):rep(1000):rep(200) end)
app:post("/file", function(req)
  assert(ls.file.write("it", req:buffer()))
  for line in ls.file.lines("it") do assert(#line > 0) end
  assert(#assert(ls.file.list(".", { details = true })) >= 2)
  return assert(ls.file.read("it"))
end)
app:get("/error", function() error("on purpose") end)
""")

BODY = b"e" * 100000
STEPS = [
    ("GET", "/hello/x?q=1", {"Cookie": "c=2", "X-H": "3"}, None, None, 200), ("GET", "/", {}, None, b"root", 200),
    ("POST", "/echo", {}, BODY, BODY, 200), ("POST", "/body", {}, BODY[:9000], BODY[:9000], 200),
    ("POST", "/relay", {"Transfer-Encoding": "chunked"}, chunked([b"abc", b"d" * 5000]), b"abc" + b"d" * 5000, 200),
    ("GET", "/parts", {}, None, b"p" * 15000, 200), ("GET", "/spawn", {}, None, b"job", 200),
    ("GET", "/big", {}, None, b"b" * 200000, 200), ("POST", "/file", {}, BODY, BODY, 200), ("GET", "/error", {}, None, None, 500),
    ("GET", "/nowhere", {}, None, None, 404),
]


class Faults(Sweeps, FaultCase):
    FAULT_SITE = SITE
    SEND_ERRORS = (errno.ECONNRESET, errno.EPIPE, errno.ENOMEM, errno.ENOBUFS)
    RECV_ERRORS = (errno.ECONNRESET, errno.ETIMEDOUT, errno.ENOMEM)
    INTERRUPTED = Sweeps.INTERRUPTED + ((ACCEPT, "accept4"),)

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

    def test_accept(self):
        for error in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ECONNABORTED, errno.EPERM):
            with self.subTest(errno.errorcode[error]):
                self.sweep("accept4 " + errno.errorcode[error], ACCEPT, error)

    def test_register(self):
        for error in (errno.ENOMEM, errno.ENOSPC):
            with self.subTest(errno.errorcode[error]):
                self.sweep("epoll_ctl " + errno.errorcode[error], EPOLL_CTL, error)

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
                env=self.environment(FAULT_CALL=str(kinds), FAULT_K=str(k), FAULT_TIMES=str(times), FAULT_ERRNO=str(error)),
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
                        self.fail("start with a fault at %d of %d: %s\n%s" % (k, total, problem, server.log()[-2000:]))
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
        print("start-up, kind %d x %d: %d calls, %d started, %d gave up" % (kinds, times, total, came_up, gave_up), flush=True)

    def test_start_up(self):
        for name, kinds, times, error, samples in (("one allocation", ALLOC, 1, errno.ENOMEM, 25),
                                                   ("allocations in a row", ALLOC, 30, errno.ENOMEM, 40),
                                                   ("registration", EPOLL_CTL, 1, errno.ENOMEM, 10)):
            with self.subTest(name):
                self.start_up(kinds, times, error, samples)
