"""Faults of the load tool: whichever allocation fails, `luaserve stress` ends, with a status of its own and the reason."""
import errno
import re

from harness import app_site, run_program, scratch
from harness.fault import ALLOC, FaultCase
from harness.stress import Small, head_of
from harness.websocket import accept

SITE = app_site(r"""
app:post("/echo", function(req) return req:buffer() end)
app:ws("/ws", { message = function(ws, data, kind) ws:send(data, kind) end })
app:ws("/news", { open = function(ws) ws:subscribe("news") end })
app:ws("/publish", { message = function(_, data) ls.publish("news", data) end })
app:post("/publish", function(req) ls.publish("news", req:body()) return 204 end)
app:get("/events", function(_, res)
  local sse = res:sse()
  sse:subscribe("news")
  sse:wait()
end)
""")

SCRIPT = """
return { target = "@URL@", requests = 6, scenario = function(vu)
  local ws = assert(vu:ws("/ws"))
  ws:send("hello")
  vu:check(ws:receive() == "hello", "echo")
end }
"""

SAMPLES = 16  # of the allocations of a run


class StressFaults(FaultCase):
    def run_with(self, first, times, *args, cwd=None):
        """Run with allocations that fail from the start: `times` of them, from the one with the number `first` on."""
        self.orders.arm(0)
        more = {"FAULT_CALL": str(ALLOC), "FAULT_K": str(first), "FAULT_TIMES": str(times)}
        return run_program(["stress", *args], cwd=cwd, env=self.environment(FAULT_ERRNO=str(errno.ENOMEM), **more))

    def ends(self, what, status, out, err):
        self.assertIn(status, (0, 1, 2, 99), "%s: %s %s" % (what, out, err))
        self.assertTrue(status == 0 or re.search(r"[a-z]{4}", err), "%s: no reason" % what)


class Stress(StressFaults):
    def load(self, *args):
        server = self.serve(SITE)
        http = "http://127.0.0.1:%d" % server.port()
        urls = {"HTTP": http, "WS": http.replace("http", "ws")}
        args = [re.sub("HTTP|WS", lambda m: urls[m[0]], arg) for arg in args]
        with scratch(script_lua=SCRIPT.replace("@URL@", urls["WS"]), body="b" * 50000) as where:
            def run(k, times):
                return self.run_with(k, times, "-q", "-t", "2", "-c", "3", "--timeout", "500ms", "--json", "report.json",
                                     *args, cwd=where)
            begin = self.begins()
            status, _, err = run(0, 0)
            if "built without" in err:
                self.skipTest("without zlib")
            self.assertEqual(status, 0, err)
            total, _ = self.orders.disarm()
            self.assertGreater(total - begin, SAMPLES)
            for n in range(SAMPLES):
                k = begin + 1 + n * (total - begin) // SAMPLES
                self.ends("k=%d of %d to %d" % (k, begin, total), *run(k, 1 if n % 2 else 10))
        server.stop()

    def begins(self):
        """The number of allocations before the options are read: most are of OpenSSL's initialization."""
        self.assertEqual(self.run_with(0, 0, "--help")[0], 0)
        return self.orders.disarm()[0]

    def test_the_begin(self):
        total = self.begins()
        for n in range(SAMPLES):
            k = 1 + n * total // SAMPLES
            self.ends("k=%d of %d" % (k, total), *self.run_with(k, (1, 10, 1 << 40)[n % 3], "--help"))
        for k in range(1, min(total, 60), 6):  # OpenSSL's default context
            self.ends("k=%d" % k, *self.run_with(k, 1, "--help"))

    def test_requests_with_a_body(self):
        self.load("--body", "@body", "--method", "POST", "-n", "8", "HTTP/echo")

    def test_websocket_messages(self):
        self.load("--sends", "2", "--compress", "--size", "1000", "WS/ws")

    def test_fan_out(self):
        self.load("--fanout", "-n", "3", "--publish-path", "/publish", "--publishers", "2", "WS/news")

    def test_fan_out_of_events(self):
        self.load("--fanout", "--sse", "-n", "3", "--publish-path", "/publish", "HTTP/events")

    def test_script(self):
        self.load("script.lua")


class Handshake(StressFaults):
    def test_no_memory_when_the_response_arrives(self):
        def handle(conn, _):
            head = head_of(conn)
            if head is None:
                return
            key = re.search(rb"(?i)sec-websocket-key: (\S+)", head)[1].decode()
            self.orders.arm(ALLOC, k, 3)
            conn.sendall(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                          "Sec-WebSocket-Accept: %s\r\n\r\n" % accept(key)).encode())
            conn.recv(1)
        for k in range(1, 30, 3):
            server = Small(handle)
            self.addCleanup(server.close)
            self.ends("k=%d" % k, *self.run_with(0, 0, "-q", "-t", "1", "-c", "1", "-n", "1", "--timeout", "500ms",
                                                 server.url.replace("http", "ws")))
