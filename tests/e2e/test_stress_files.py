"""The output of `luaserve stress`: --json, --csv, --html, --latency, --threshold, --quiet, the live view on a
terminal, the progress lines elsewhere, an interrupted run."""
import csv
import os
import re
import signal
import struct
import subprocess
import unittest

from harness import (E2E, LUASERVE, SLOW, WAIT, WINE, fcntl, needs_terminal, pty, read_bytes, read_text, run_program, scratch,
                     termios, write_text)
from harness.screen import Screen, drawn_on
from harness.stress_report import Tree, check_schema, inner_json, strict_json

SITE = """
local ls = require "luaserve"
local app = ls.app()
app:get("/", function() return "hello\\n" end)
ls.listen(0, app)
"""


class Files(E2E):
    SITE = SITE
    FLAGS = ("--threads", "1")

    def stress(self, *options, path="/", status=0):
        """Run it; returns its standard output and standard error. `status`: the exit status, or several."""
        url = "http://127.0.0.1:%d%s" % (self.server.port(), path)
        got, out, err = run_program(["stress", *options, url], timeout=4 * WAIT)
        self.assertIn(got, status if isinstance(status, tuple) else (status,), out + err)
        return out, err

    def files(self, *options, **how):
        """Run it with all three files; returns the JSON, both tables of the CSV, the page's tree, the text, and the
        page."""
        with scratch() as where:
            names = {kind: os.path.join(where, "run." + kind) for kind in ("json", "csv", "html")}
            write_text(names["html"], "an older report " * 10000)  # the run must replace the file
            out, err = self.stress(*["--%s=%s" % pair for pair in names.items()], *options, **how)
            texts = {}
            for kind, name in names.items():
                texts[kind] = read_bytes(name).decode()
        run = strict_json(texts["json"])
        check_schema(self, run)
        tables = [list(csv.DictReader(part.splitlines(), strict=True)) for part in texts["csv"].split("\r\n\r\n")]
        self.assertEqual(inner_json(texts["html"]), run)
        self.assertNotIn("an older report", texts["html"])
        return run, tables, Tree(texts["html"]).root, out, err

    def test_all_files_agree(self):
        run, (series, percents), tree, out, err = self.files("-c", "4", "-t", "2", "-n", "500", "-q", "--latency")
        self.assertEqual(err, "")
        self.assertEqual(run["totals"]["requests"], 500)
        self.assertEqual(run["totals"]["connects"], 4)
        self.assertEqual(run["status"], {"200": 500})
        self.assertEqual(sum(p["requests"] for p in run["series"]), 500)
        self.assertEqual(sum(int(row["requests"]) for row in series), 500)
        self.assertEqual(run["latency_us"]["uncorrected"]["count"], 500)
        self.assertIsNone(run["latency_us"]["corrected"])
        self.assertEqual(percents[-1]["uncorrected_us"], "%.3f" % run["latency_us"]["uncorrected"]["max"])
        config = run["config"]
        self.assertEqual((config["mode"], config["connections"], config["threads"], config["requests"], config["duration_s"]),
                         ("closed", 4, 2, 500, None))
        self.assertEqual(tree.one("noscript").one("pre").text(), out)
        self.assertRegex(out, r"\ARunning 500 requests @ http://127\.0\.0\.1:\d+/\n  2 threads and 4 connections\n")
        self.assertRegex(out, r"\n  Latency Distribution\n     50% ")
        self.assertRegex(out, r"\n  500 requests in [\d.]+m?s, [\d.]+KB read\nRequests/sec: +[\d.]+\nTransfer/sec: +[\d.]+[KM]B\n\Z")

    def test_open_loop(self):
        # On a busy machine the load generator falls short of the rate (status 1).
        run, (series, percents), _, out, _ = self.files("-c", "50", "-t", "1", "-R", "200", "-d", "1s", "-q", status=(0, 1))
        self.assertEqual(run["config"]["mode"], "open")
        self.assertEqual(run["totals"]["asked_per_s"], 200)
        self.assertEqual(run["totals"]["requests"] + run["totals"]["unsent"], 200)
        self.assertEqual(run["latency_us"]["uncorrected"]["count"], run["totals"]["requests"])
        self.assertEqual(run["latency_us"]["corrected"]["count"], 200)  # with the ages of unsent requests
        self.assertGreaterEqual(run["latency_us"]["corrected"]["max"], run["latency_us"]["uncorrected"]["max"])
        self.assertTrue(all(row["corrected_us"] for row in percents))
        self.assertGreaterEqual(run["engine_lag_us"]["count"], 1)
        self.assertIn("corrected  uncorrected\n  p50 ", out)
        self.assertEqual(len(series), len(run["series"]))

    def test_invalid_thresholds_and_files_stop_the_run_before_its_start(self):
        out, err = self.stress("--threshold", "p99 < 5", status=2)
        self.assertEqual(out, "")
        self.assertIn('threshold "p99 < 5": a latency needs a unit: us, ms or s', err)
        self.assertIn("OPERATOR  <  <=  >  >=  ==", err)
        for option in ("--json", "--csv", "--html"):
            out, err = self.stress(option, "/no/such/folder/file", status=1)
            self.assertEqual(out, "")
            self.assertIn("cannot write /no/such/folder/file: No such file or directory", err)

    def test_a_full_disk(self):
        out, err = self.stress("-n", "10", "-q", "--json", "/dev/full", status=1)
        self.assertIn("  10 requests in ", out)  # the report is printed nevertheless
        self.assertIn("cannot write /dev/full: No space left on device", err)

    # -- on a terminal ------------------------------------------------------------------------------------------------

    def on_terminal(self, *options):
        """Run it with a terminal as its standard error; returns the process and the master's side of the terminal."""
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        environment = dict(os.environ, LC_ALL="C.UTF-8")
        process = subprocess.Popen([LUASERVE, "stress", *options, "http://127.0.0.1:%d/" % self.server.port()],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave, env=environment)
        os.close(slave)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.wait()))
        return process, master

    @needs_terminal
    @unittest.skipIf(WINE, "Wine 8's console prints escape sequences as text; test_stress_view.py has a console of its own")
    def test_the_view_is_drawn_and_gone_at_the_end(self):
        process, master = self.on_terminal("-c", "90", "-R", "40", "-d", "1500ms")  # a rate that any build reaches
        screen = Screen(80)
        drawn = drawn_on(master, lambda text: text.count("\x1b[K") >= 3 and text.endswith("\n"))
        screen.feed(drawn)
        self.assertRegex(screen.text()[0], r"\A\[.*\] +\d+%  \d\.\ds of 1\.5s, \d\.\ds left\Z")
        self.assertRegex(screen.text()[1], r"\A\d+/s of 40  0 errors  \d+ requests  90 connections\Z")
        rest = drawn_on(master, lambda text: False)
        screen.feed(rest)
        self.assertEqual(screen.text(), [])
        self.assertGreater(rest.count("\x1b[3A"), 5 if SLOW == 1 else 1)
        out = process.stdout.read().decode()
        self.assertEqual(process.wait(WAIT), 0)
        self.assertTrue(out.startswith("Running "))
        self.assertNotIn("\x1b", out)

    @needs_terminal
    def test_an_early_end_still_reports(self):
        with scratch() as where:
            name = os.path.join(where, "run.json")
            process, master = self.on_terminal("-c", "90", "-R", "300", "-d", "10m", "--json", name)
            drawn_on(master, lambda text: re.search(r"[1-9]\d* requests", text))
            process.send_signal(signal.SIGINT)
            out = process.stdout.read().decode()
            self.assertEqual(process.wait(2 * WAIT), 0)
            run = strict_json(read_text(name))
        check_schema(self, run)
        self.assertTrue(run["interrupted"])
        self.assertGreater(run["totals"]["requests"], 0)
        self.assertEqual(run["config"]["duration_s"], 600)
        self.assertRegex(out, r"\nEnded early, after [\d.]+m?s\n")
