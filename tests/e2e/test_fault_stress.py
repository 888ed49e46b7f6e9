"""Faults of the load tool: whichever allocation fails, `luaserve stress` ends, with a status of its own and the reason."""
import errno
import re

from harness import main, run_program, scratch
from harness.fault import ALLOC, FaultCase

SITE = r"""
local ls = require "luaserve"
local app = ls.app()
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
ls.listen { host = "127.0.0.1", port = 0, app = app }
"""

SCRIPT = """
return { target = "@URL@", requests = 6, scenario = function(vu)
  local ws = assert(vu:ws("/ws"))
  ws:send("hello")
  vu:check(ws:receive() == "hello", "echo")
end }
"""

SAMPLES = 16  # of the allocations of a run


class Stress(FaultCase):
    def load(self, *args):
        server = self.serve(SITE)
        http = "http://127.0.0.1:%d" % server.port()
        urls = {"HTTP": http, "WS": http.replace("http", "ws")}
        args = [re.sub("HTTP|WS", lambda m: urls[m[0]], arg) for arg in args]
        with scratch(script_lua=SCRIPT.replace("@URL@", urls["WS"]), body="b" * 50000) as where:
            def run(k, times):
                self.orders.arm(0)
                more = {"FAULT_CALL": str(ALLOC), "FAULT_K": str(k), "FAULT_TIMES": str(times)}
                return run_program(["stress", "-q", "-t", "2", "-c", "3", "--timeout", "500ms", "--json", "report.json",
                                    *args], cwd=where,
                                   env=self.environment(FAULT_ERRNO=str(errno.ENOMEM), **more))
            status, _, err = run(0, 0)
            if "built without" in err:
                self.skipTest("without zlib")
            self.assertEqual(status, 0, err)
            total, _ = self.orders.disarm()
            self.assertGreater(total, SAMPLES)
            for n in range(SAMPLES):
                k = 1 + n * total // SAMPLES
                status, out, err = run(k, 1 if n % 2 else 10)
                self.assertIn(status, (0, 1, 2, 99), "k=%d of %d: %s %s" % (k, total, out, err))
                self.assertTrue(status == 0 or re.search(r"[a-z]{4}", err), "k=%d of %d: no reason" % (k, total))
        server.stop()

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


if __name__ == "__main__":
    main()
