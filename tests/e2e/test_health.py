"""app:health: ready and live, `luaserve ready` and `unready`, and drain_delay before the drain."""
# sanitizers: none; few requests
import os
import subprocess
import time
import unittest

from harness import E2E, HAS_UNIX_SOCKETS, LUASERVE, WAIT, request

SITE = """
local ls = require "luaserve"
ls.config { %s }
local app, flags = ls.app(), ls.dict "flags"
app:health("/health", { ready = function()
  if flags:get "raise" then error "no database" end
  return not flags:get "down", "database down"
end })
app:health "/"
app:get("/set/:name", function(req) flags:set(req.params.name, true) return 204 end)
app:get("/clear", function() flags:clear() return 204 end)
app:get("/hello", function() return "hello" end)
app:get("/stop", function() ls.stop() return 204 end)
ls.listen("127.0.0.1:0", app)
"""
LONG = "drain_delay = %g" % (10 * WAIT)


def fresh(server, target):
    """The status and the body for a request on a connection of its own."""
    with server.connect() as conn:
        conn.send(request("GET", target, [("Connection", "close")]))
        response = conn.response()
        return response.status, response.text


class Health(E2E):
    SITE = SITE % ""

    def test_the_function_of_the_site(self):
        self.assertEqual([fresh(self.server, path) for path in ("/health", "/health/ready", "/health/live", "/", "/ready", "/live")],
                         2 * [(200, "ready\n"), (200, "ready\n"), (200, "live\n")])
        self.assertEqual(self.get("/health").header("Cache-Control"), "no-store")
        for flag, logged in (("down", "not ready: database down"), ("raise", "not ready: .*no database")):
            self.get("/set/" + flag)
            mark = self.server.mark()
            self.assertEqual([fresh(self.server, path) for path in ("/health", "/health/ready", "/health/live", "/")],
                             [(503, "not ready\n"), (503, "not ready\n"), (200, "live\n"), (200, "ready\n")])
            self.server.wait_log(logged, since=mark)
        self.get("/clear")
        self.assertEqual(fresh(self.server, "/health")[0], 200)

    def test_options(self):
        for call, message in (('app:health("/h", { raedy = print })', "did you mean 'ready'"), ('app:health("/h", { ready = 1 })', "must be a function"),
                              ('app:health("/h", {}, 1)', "too many arguments for app:health(path, options)"),
                              ('app:health("h")', 'must begin with "/"'), ('app:health("/h") app:health("/h")', "already defined")):
            self.refuses("local app = require('luaserve').app()\n" + call, message)


@unittest.skipUnless(HAS_UNIX_SOCKETS, "of another system: the control socket needs Unix sockets")
class Control(E2E):
    def command(self, name, *flags):
        done = subprocess.run([LUASERVE, name, *flags], capture_output=True, text=True, timeout=WAIT, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_ready_and_unready(self):
        path = os.path.join(self.new_folder(), "control")
        server = self.serve(SITE % LONG, flags=("--control", path))
        for name, status in (("unready", 503), ("unready", 503), ("ready", 200), ("unready", 503)):
            self.assertEqual(self.command(name, "--control", path), (0, ""))
            self.assertEqual([fresh(server, target)[0] for target in ("/health", "/health/live", "/hello")], [status, 200, 200])
        server.reload("reloaded")
        self.assertEqual(fresh(server, "/health"), (503, "unready\n"), "a reload does not change it")
        server.signal()
        server.wait_log("not ready, then drains")
        self.assertEqual(self.command("ready", "--control", path)[0], 1)
        self.assertEqual(fresh(server, "/health"), (503, "draining\n"))
        server.signal()
        self.assertEqual(server.wait(), 1)

    def test_wrong_lines(self):
        self.assertEqual(self.command("ready"), (2, "luaserve ready: --control PATH is missing, the control socket of the server: "
                                                    "luaserve --control PATH\n"))
        self.assertEqual(self.command("unready", "--control", "/none/control")[0], 1)


class Delay(E2E):
    def test_all_is_served_and_a_second_signal_ends_it(self):
        server = self.serve(SITE % LONG)
        with server.connect() as kept:
            kept.send(request("GET", "/health"))
            self.assertEqual(kept.response().status, 200)
            server.signal()
            server.wait_log("stops: serves for drain_delay = .* s, not ready, then drains")
            kept.send(request("GET", "/health"))
            answer = kept.response()
            self.assertEqual((answer.status, answer.text, answer.header("Connection")), (503, "draining\n", None))
            self.assertEqual([fresh(server, path)[0] for path in ("/health/ready", "/health/live", "/hello")], [503, 200, 200])
            server.reload("reloaded")
            self.assertEqual(fresh(server, "/health")[0], 503)
            server.signal()
        self.assertEqual(server.wait(), 1)
        self.assertTrue(server.logged("stopped a second time"))

    def test_then_it_drains(self):
        server = self.serve(SITE % "drain_delay = 0.2")
        server.signal()
        self.assertEqual(server.wait(), 0)
        log = "\n".join(filter(None, server.lines))
        self.assertRegex(log, r"(?s)not ready, then drains.*info draining\n")

    def test_ready_during_the_delay(self):
        server = self.serve(SITE % (LONG + ", drain_ready = true"))
        server.get("/stop")
        server.wait_log(" s, ready, then drains")
        self.assertEqual(fresh(server, "/health")[0], 200)
        server.signal()  # the first one from outside: it does not end the delay of ls.stop
        self.assertEqual(fresh(server, "/health")[0], 200)
        while server.alive():  # two signals that wait are one
            server.signal()
            time.sleep(0.01)
        self.assertEqual(server.wait(), 1)
