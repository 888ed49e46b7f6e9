"""Reloads and stops under load: no request fails. LUASERVE_RELOADS and LUASERVE_DRAINS are numbers of them, for a longer run.

h2load opens no new connection when one ends, so the client that checks a stop is H2: with 100 requests at a time it goes on until
the second GOAWAY, and checks what that has promised. (python3-h2 takes a GOAWAY for the end of the connection.)"""
# long; reloads and stops under load
import os
import re
import shutil
import subprocess
import threading
import unittest

from harness import E2E, SANITIZER, WAIT, Closed, app_site, beside, repeats
from harness import http2 as h
from harness.http2 import H2

RELOADS = int(os.environ.get("LUASERVE_RELOADS", repeats(20)))
DRAINS = int(os.environ.get("LUASERVE_DRAINS", repeats(5)))
SITE = app_site(r"""
ls.config{ drain_timeout = 60 }
app:get("/", function() return "root" end)
app:get("/slow", function() ls.sleep(0.02) return "slow" end)
""", "http2 = true")


class Loader(threading.Thread):
    """Keeps 100 requests open until the connection ends."""

    def __init__(self, server):
        super().__init__()
        self.conn, self.opened, self.started, self.error = H2(server.at()), [], threading.Event(), None

    def run(self):
        conn, bodies = self.conn, {"/": b"root", "/slow": b"slow"}
        answered, paths = 0, {}
        try:
            while True:
                while len(paths) - answered < 100 and len(conn.goaways) < 2:
                    path = "/" if len(paths) % 3 else "/slow"
                    paths[conn.open(path)] = path
                ended = conn.read()
                answered += ended.kind in (h.HEADERS, h.DATA) and ended.flags & h.END_STREAM
                if answered > 200:
                    self.started.set()
        except Closed:
            pass
        except AssertionError as error:
            self.error = repr(error)
        self.opened, self.bodies = paths, bodies
        self.started.set()
        conn.close()

    def wrong(self):
        """What GOAWAY has promised and is not so; nothing."""
        conn = self.conn
        if self.error or len(conn.goaways) < 2:
            return "%s, GOAWAYs %s" % (self.error, conn.goaways)
        last, code, _ = conn.goaways[-1]
        lost = [s for s, path in self.opened.items() if s <= last and (s not in conn.streams or not conn.streams[s].ended
                                                                      or conn.streams[s].body != self.bodies[path])]
        above = [s for s in conn.streams if s > last and s in self.opened and conn.streams[s].fields]
        return (code, lost, above) if code or lost or above or last not in self.opened else None


@h.needs_http2
class Endings(E2E):
    SITE = SITE

    def start(self):
        return self.serve(SITE)

    @unittest.skipUnless(shutil.which("h2load"), "not installed: h2load")
    def test_reloads(self):
        server = self.start()
        url = "http://127.0.0.1:%d" % server.port()
        stop, runs = threading.Event(), []

        def load():
            while not stop.is_set():
                done = subprocess.run(["h2load", "-n", "1000" if SANITIZER else "10000", "-c4", "-m100", url + "/", url + "/slow"],
                                      capture_output=True, text=True, timeout=WAIT)
                runs.append(done.stdout)

        with self.owns(H2(server.at())) as conn, beside(load):
            for _ in range(RELOADS):
                server.reload("reloaded")
                self.assertEqual(conn.request().text, "root")
            stop.set()
        for out in runs:
            self.assertRegex(out, r"(\d+) done, \1 succeeded, 0 failed, 0 errored, 0 timeout")
        self.assertEqual(conn.goaways, [])
        self.assertEqual(server.signal() or server.wait(), 0)
        if RELOADS > 20:
            print("%d reloads, %d requests" % (RELOADS, sum(int(re.search(r"(\d+) succeeded", out)[1]) for out in runs)))

    def test_stops(self):
        total = 0
        for _ in range(DRAINS):
            server = self.start()
            loaders = [Loader(server) for _ in range(3)]
            for loader in loaders:
                loader.start()
            for loader in loaders:
                self.assertTrue(loader.started.wait(WAIT))
            server.signal()
            for loader in loaders:
                loader.join(WAIT)
                self.assertIsNone(loader.wrong())
                total += len(loader.opened)
            self.assertEqual(server.wait(), 0)
        if DRAINS > 5:
            print("%d stops, %d requests" % (DRAINS, total))


if __name__ == "__main__":
    unittest.main()
