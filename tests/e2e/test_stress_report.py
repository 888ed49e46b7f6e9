"""The reports of a stress run, read by a JSON parser, a CSV parser, and the patterns of programs that parse wrk's
output; and the file of the HTML report."""
# sanitizers: asan; one thread runs
# wine: none; the figures of a program without sockets, as text
import csv
import io
import os
import re
import unittest

from harness import ROOT, read_text
from harness.stress_report import KINDS, SCHEMA, Tree, check_schema, inner_json, report, run_of

class Json(unittest.TestCase):
    def test_names_and_types_are_those_documented(self):
        documented = set(re.findall(r"`([A-Za-z_0-9.\s]+)`", read_text(os.path.join(ROOT, "src", "stress", "REPORTS.md"))))
        documented = {word for words in documented for part in words.split() for word in [part, *part.split(".")]}

        def names(schema):
            for name, inner in schema.items() if isinstance(schema, dict) else []:
                yield name
                yield from names(inner[0] if isinstance(inner, list) else inner)

        missing = set(names(SCHEMA)) - documented - {"%dxx" % i for i in range(2, 5)}
        self.assertEqual(missing, set(), "not in REPORTS.md")
        for kind in KINDS:
            with self.subTest(kind=kind):
                check_schema(self, run_of(kind))

    def test_figures_agree_with_each_other(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                run = run_of(kind)
                totals, series = run["totals"], run["series"]
                for name in "requests bytes_in bytes_out".split():
                    self.assertEqual(sum(p[name] for p in series), totals[name], name)
                self.assertEqual(sum(p["errors"] for p in series), run["errors"]["total"])
                self.assertEqual(sum(n for e, n in run["errors"].items() if e != "total"), run["errors"]["total"])
                self.assertEqual(sum(run["status"].values()), totals["requests"])
                self.assertEqual(sum(run["status_classes"].values()), totals["requests"])
                self.assertEqual(sum(p["failed_status"] for p in series), run["status_classes"]["4xx"] + run["status_classes"]["5xx"])
                self.assertEqual(series[0]["from_s"], 0)
                self.assertEqual([p["to_s"] for p in series[:-1]], [p["from_s"] for p in series[1:]])
                self.assertAlmostEqual(series[-1]["to_s"], totals["duration_s"], 3)
                missed = not all(t["met"] for t in run["thresholds"])
                if not {t["metric"] for t in run["thresholds"]} & {"errors", "error_rate", "checks", "checks_failed"}:
                    missed = missed or any(check["failed"] for check in run["checks"])
                self.assertEqual(run["exit_status"], 99 if missed else 1 if run["failure"] else 0)
                self.assertEqual(run["short_of"] is None, run["failure"] is None)
                self.assertRegex(run["started"], r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z")
                self.assertEqual(run["config"]["mode"] == "open", run["latency_us"]["corrected"] is not None)
                for latency in filter(None, run["latency_us"].values()):
                    self.assertEqual(latency["count"], totals["requests"])
                    if latency["count"] == 0:
                        self.assertEqual(latency["curve"], [])
                        self.assertIsNone(latency["percentiles"]["p99"])
                        continue
                    values = list(latency["percentiles"].values())
                    self.assertEqual(values, sorted(values))
                    curve = latency["curve"]
                    self.assertEqual(curve, sorted(curve))
                    self.assertEqual(curve[0], [0, latency["min"]])
                    self.assertEqual(curve[-1], [100, latency["max"]])
                    self.assertLess(100 - curve[-2][0], 2 * 100 / latency["count"])  # the resolution of this many values
                    self.assertEqual(dict(map(tuple, curve))[50], latency["percentiles"]["p50"])

    def test_texts_from_outside_stay_texts(self):
        run = run_of("hostile")
        self.assertEqual(run["config"]["target"],
                         'http://127.0.0.1/</script><img src=x onerror="alert(1)">&amp;\x01\ufffd\ufffd\ufffd \U0001f389')
        self.assertEqual(run["config"]["script"], "<!--\"\\\n'.lua")
        self.assertEqual(run["checks"][0]["name"][:18], "</pre><script>\0\x1b[3")
        self.assertNotIn("<", report("hostile", "json"))

    def test_thresholds(self):
        found = {t["text"]: (t["metric"], t["met"], t["limit"], t["unit"]) for t in run_of("open")["thresholds"]}
        self.assertEqual(found, {
            "p99 < 5ms": ("p99", False, 5000, "us"), "rate >= 3900/s": ("rate", True, 3900, "/s"),
            "errors < 0.1%": ("errors", True, 0.1, "%"), "5xx == 0": ("5xx", False, 0, ""),
            "checks == 0": ("checks", False, 0, "")})


class Csv(unittest.TestCase):
    def test_the_tables_are_the_figures_of_the_json(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                run = run_of(kind)
                first, second, *third = report(kind, "csv").split("\r\n\r\n")
                rows = list(csv.DictReader(io.StringIO(first, newline=""), strict=True))
                self.assertEqual(len(rows), len(run["series"]))
                for row, point in zip(rows, run["series"]):
                    self.assertEqual(list(row), list(point))
                    for name, text in row.items():
                        if point[name] is None:
                            self.assertEqual(text, "")
                        else:
                            self.assertAlmostEqual(float(text), point[name], 3, name)
                rows = list(csv.DictReader(io.StringIO(second, newline=""), strict=True))
                self.assertEqual([r["percent"] for r in rows], "50 75 90 95 99 99.9 99.99 99.999 100".split())
                for row in rows:
                    for side in ("corrected", "uncorrected"):
                        latency = run["latency_us"][side]
                        value = latency and (latency["max"] if row["percent"] == "100" else latency["percentiles"]["p" + row["percent"]])
                        self.assertEqual(row[side + "_us"], "" if value is None else "%.3f" % value)
                self.assertEqual(len(third), bool(run["tls"]) + bool(run["websocket"]) + bool(run["fanout"]))
                if run["fanout"]:
                    row, = csv.DictReader(io.StringIO(third.pop(), newline=""), strict=True)
                    self.assertEqual({name: int(text) for name, text in row.items()}, {name: run["fanout"][name] for name in row})
                    self.assertEqual(list(row), "published expected delivered lost reordered duplicated ignored".split())
                if run["websocket"]:
                    row, = csv.DictReader(io.StringIO(third.pop(), newline=""), strict=True)
                    shakes, times = run["websocket"], run["websocket"]["handshake_us"]
                    self.assertEqual([int(row[name + "_handshakes"]) for name in ("websocket", "failed", "deflate")],
                                     [shakes["handshakes"], shakes["failed"], shakes["deflate"]])
                    self.assertAlmostEqual(float(row["mean_us"]), times["mean"], 2)
                    self.assertAlmostEqual(float(row["max_us"]), times["max"], 2)
                if run["tls"]:
                    tls, times = run["tls"], run["tls"]["handshake_us"]
                    figures = {"full_handshakes": tls["full"], "resumed_handshakes": tls["resumed"],
                               "failed_handshakes": tls["failed"], "mean_us": times["mean"],
                               "p50_us": times["percentiles"]["p50"], "p99_us": times["percentiles"]["p99"],
                               "max_us": times["max"]}
                    row, = csv.DictReader(io.StringIO(third[0], newline=""), strict=True)
                    self.assertEqual(list(row), list(figures))
                    for name, text in row.items():
                        self.assertAlmostEqual(float(text), figures[name], 2, name)


class LikeWrk(unittest.TestCase):
    """The patterns of scripts that parse wrk's output match."""

    def test_what_is_parsed_of_wrk(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                text, run = report(kind, "text"), run_of(kind)
                number = r"([\d.]+)"
                size = r"([\d.]+)([KMGT]?)B"
                time = r"([\d.]+)(us|ms|s|m|h)"
                self.assertRegex(text.splitlines()[0], r"\ARunning \d+[smh] test @ (https?|ws)://")
                self.assertRegex(text, r"(?m)^  \d+ threads and \d+ connections$")
                self.assertRegex(text, r"(?m)^    Latency +%s +%s +%s +%s%%$" % (time, time, time, number))
                self.assertRegex(text, r"(?m)^    Req/Sec +[\d.]+k? +[\d.]+k? +[\d.]+k? +[\d.]+%$")
                done = re.search(r"(?m)^  (\d+) requests in %s, %s read$" % (time, size), text)
                self.assertEqual(int(done[1]), run["totals"]["requests"])
                rate = re.search(r"(?m)^Requests/sec: +%s$" % number, text)
                self.assertAlmostEqual(float(rate[1]), run["totals"]["requests_per_s"], 2)
                self.assertRegex(text, r"(?m)^Transfer/sec: +%s$" % size)
                latency = run["latency_us"]["corrected"] or run["latency_us"]["uncorrected"]
                for p in (50, 75, 90, 99):
                    shown = re.search(r"(?m)^ +%d%% +%s$" % (p, time), text)
                    us = float(shown[1]) * {"us": 1, "ms": 1e3, "s": 1e6}[shown[2]]
                    self.assertAlmostEqual(us, latency["percentiles"]["p%d" % p] or 0, delta=0.005 * us + 0.005)
                bad = re.search(r"(?m)^  Non-2xx or 3xx responses: (\d+)$", text)
                self.assertEqual(int(bad[1]) if bad else 0, sum(n for s, n in run["status"].items() if s >= "400"))
                errors = re.search(r"(?m)^  Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)$", text)
                kinds = [run["errors"][e] for e in "connect read write timeout".split()]
                self.assertEqual([int(n) for n in errors.groups()] if errors else [0] * 4, kinds)


class Page(unittest.TestCase):
    def test_holds_the_json_and_names_no_other_file(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                page = report(kind, "html")
                inner, run = inner_json(page), dict(run_of(kind))
                self.assertEqual(dict(inner, started=""), dict(run, started=""))
                tree = Tree(page).root
                self.assertIn("default-src 'none'", tree.one("meta", http_equiv="Content-Security-Policy") .attributes["content"])
                for node in tree.all():
                    for name in ("src", "srcset", "href", "action", "data", "poster", "style"):
                        if name in node.attributes:
                            self.assertEqual((node.name, node.attributes[name]), ("link", "data:,"))
                    self.assertFalse([n for n in node.attributes if n.startswith("on")], node.name)
                self.assertEqual([n for n in tree.all() if n.name in ("img", "iframe", "object", "embed", "base")], [])
                ours = page.replace(report(kind, "json").rstrip("\n"), "")
                style = tree.one("style").text()
                script = list(tree.all("script"))[-1].text()
                self.assertNotRegex(ours, r"google|gvt1|gstatic")
                self.assertNotRegex(style, r"url\(|@import")
                self.assertNotRegex(script, r"\b(fetch|XMLHttpRequest|new WebSocket|EventSource|sendBeacon|import)\b")
                self.assertNotRegex(ours.replace(run["config"]["target"], ""), r"@(TITLE|RUN|TEXT|STYLE|SCRIPT)@")

    def test_the_page_is_the_same_in_every_build(self):
        """Apart from the run, the page equals the files of src/stress/page and lua/page byte by byte; so it is enough to test one
        build's page in a browser."""
        head, body = read_text(os.path.join(ROOT, "src", "stress", "page", "report.html")).split("\n\n", 1)
        page = read_text(os.path.join(ROOT, "lua", "page", "head.html")).replace("@HEAD@", head + "\n") + body
        for mark, name in (("DRAWSTYLE", "lua/page/draw.css"), ("STYLE", "src/stress/page/report.css"),
                           ("DRAW", "lua/page/draw.js"), ("SCRIPT", "src/stress/page/report.js")):
            page = page.replace("@%s@" % mark, read_text(os.path.join(ROOT, *name.split("/"))))
        parts = re.split(r"@(?:TITLE|TEXT|RUN)@", page)
        self.assertEqual(len(parts), 4)
        for kind in KINDS:
            self.assertRegex(report(kind, "html"), r"\A(?s:%s)\Z" % ".*".join(re.escape(part) for part in parts))

    def test_has_the_text_for_browsers_without_scripts(self):
        tree = Tree(report("open", "html")).root
        self.assertEqual(tree.one("noscript").one("pre").text(), report("open", "text"))
        self.assertEqual(tree.one("html").attributes["lang"], "en")
        self.assertEqual(len(list(tree.all("h1"))), 1)
        self.assertEqual(tree.one("title").text(), "Load test of http://127.0.0.1:8080/hello/ada?lang=fr")
        self.assertIn("Load test of http://127.0.0.1/</script><img", Tree(report("hostile", "html")).root.one("title").text())
