"""The HTML report of a stress run, in a browser: it draws the figures of its JSON, its controls work, and it loads
nothing.

The browser is Debian's chromium, run without a window. Without it these tests are skipped; `scripts/setup --browser`
installs it.
"""
# sanitizers: none; starts a browser
import http.server
import json
import math
import re
import threading
import unittest

from harness import browser
from harness.stress_report import Tree, inner_json, report, run_of

# Hosts that the browser contacts on its own, with any page; no page of the tests names one of them.
OF_ITS_OWN = re.compile(r"\A(http://)?[a-z0-9.-]+\.(google|googleapis|gvt1|gstatic)\.com(:443\Z|/)")


class Recorder(http.server.BaseHTTPRequestHandler):
    """A proxy that serves every page itself and records the URLs. All network requests of the browser, those to the
    loopback address included, go through it."""

    def do_GET(self):
        with self.server.lock:
            self.server.requested.append(self.path)
        body = self.server.pages.get(self.path)
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def do_CONNECT(self):
        with self.server.lock:
            self.server.requested.append(self.path)
        self.send_error(403)

    do_POST = do_HEAD = do_OPTIONS = do_GET

    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        pass  # the browser has ended


@browser.needs_browser
class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(("127.0.0.1", 0), Recorder)
        cls.server.lock, cls.server.requested, cls.server.pages = threading.Lock(), [], {}
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.server.server_close)
        cls.addClassCleanup(cls.server.shutdown)
        cls.browser = browser.Browser(("--proxy-server=http://127.0.0.1:%d" % cls.server.server_port,
                                       "--proxy-bypass-list=<-loopback>"))
        cls.addClassCleanup(cls.browser.close)

    def load(self, page, width=1100, also=None):
        """The document after its scripts have run, and the URLs that the browser requested."""
        self.server.pages = {"http://report.test/": page.encode(), **{k: v.encode() for k, v in (also or {}).items()}}
        with self.server.lock:
            self.server.requested.clear()
        shown = self.browser.page("http://report.test/", width, 1000)
        text = shown.run("document.documentElement.outerHTML")
        shown.close()
        with self.server.lock:
            requested = [url for url in self.server.requested if not OF_ITS_OWN.search(url)]
        return Tree(text).root, requested

    # -- figures ------------------------------------------------------------------------------------------------------

    def axis(self, figure, axis, log):
        """value -> pixel, from the labels of the axis; all labels must agree with it."""
        ticks = sorted((float(t.attributes["data-value"]), float(t.attributes["data-at"])) for t in figure.all("text", data_axis=axis))
        self.assertGreaterEqual(len(ticks), 2)
        to = math.log10 if log else float
        (v0, p0), (v1, p1) = ticks[0], ticks[-1]

        def at(value):
            return p0 + (to(value) - to(v0)) / (to(v1) - to(v0)) * (p1 - p0)

        for value, pixel in ticks:
            self.assertAlmostEqual(at(value), pixel, delta=0.1)
        return at

    def points(self, figure, name):
        path = figure.one("path", data_series=name).attributes["d"]
        return [(float(x), float(y)) for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path)]

    def same(self, figure, name, expected, X, Y):
        drawn = self.points(figure, name)
        self.assertEqual(len(drawn), len(expected), name)
        for (x, y), (u, v) in zip(drawn, expected):
            self.assertAlmostEqual(x, X(u), delta=0.2)
            self.assertAlmostEqual(y, Y(v), delta=0.2)

    def check_percentiles(self, tree, run, log):
        figure = tree.one("figure", id="chart-percentiles")
        self.assertEqual(figure.one("svg", role="img").attributes["data-scale"], "log" if log else "linear")
        X, Y = self.axis(figure, "x", True), self.axis(figure, "y", log)
        end = max(float(t.attributes["data-value"]) for t in figure.all("text", data_axis="x"))
        names = ["corrected", "uncorrected"] if run["latency_us"]["corrected"] else ["latency"]
        for name in names:
            curve = run["latency_us"]["uncorrected" if name == "latency" else name]["curve"]
            self.same(figure, name, [(100 / (100 - p) if p < 100 else end, v) for p, v in curve], X, Y)

    def check_time(self, tree, run):
        middle = [(p["from_s"] + p["to_s"]) / 2 for p in run["series"]]
        figure = tree.one("figure", id="chart-rate")
        X, Y = self.axis(figure, "x", False), self.axis(figure, "y", False)
        self.same(figure, "responses", list(zip(middle, [p["requests_per_s"] for p in run["series"]])), X, Y)
        figure = tree.one("figure", id="chart-latency")
        log = figure.one("svg", role="img").attributes["data-scale"] == "log"
        X, Y = self.axis(figure, "x", False), self.axis(figure, "y", log)
        for name in ("p50", "p99", "max"):
            expected = [(m, p[name + "_us"]) for m, p in zip(middle, run["series"]) if p[name + "_us"] is not None]
            self.same(figure, name, expected, X, Y)

    def check_errors(self, tree, run):
        figure = tree.one("figure", id="chart-errors")
        X, Y = self.axis(figure, "x", False), self.axis(figure, "y", False)
        below = [0] * len(run["series"])
        for name, key in (("errors", "errors"), ("status 400 and above", "failed_status")):
            bars = list(figure.one("g", data_series=name).all("rect"))
            expected = [(i, p) for i, p in enumerate(run["series"]) if p[key]]
            self.assertEqual(len(bars), len(expected))
            for bar, (i, p) in zip(bars, expected):
                self.assertEqual(float(bar.attributes["data-value"]), p[key])
                self.assertAlmostEqual(float(bar.attributes["x"]), X(p["from_s"]), delta=0.2)
                top = Y(below[i] + p[key])
                self.assertAlmostEqual(float(bar.attributes["y"]), top, delta=0.2)
                self.assertAlmostEqual(float(bar.attributes["height"]), Y(below[i]) - top, delta=0.2)
            below = [b + p[key] for b, p in zip(below, run["series"])]

    # -- tests --------------------------------------------------------------------------------------------------------

    def test_figures_are_those_of_the_json_and_nothing_is_loaded(self):
        for kind, width in (("open", 1100), ("open", 500), ("closed", 800), ("ramp", 1100), ("hostile", 700)):
            with self.subTest(kind=kind, width=width):
                page = report(kind, "html")
                tree, requested = self.load(page, width)
                run = inner_json(page)
                self.assertEqual(requested, ["http://report.test/"])
                self.assertEqual(tree.one("h1").text(), run["config"]["target"])
                self.assertEqual(list(tree.all("img")), [])
                self.assertEqual(tree.one("html").attributes["data-drawn"], "4" if kind == "open" else "3")
                curve = (run["latency_us"]["corrected"] or run["latency_us"]["uncorrected"])["curve"]
                self.check_percentiles(tree, run, curve[-1][1] > 20 * curve[0][1])
                self.check_time(tree, run)
                if kind == "open":
                    self.check_errors(tree, run)
                    marks = [m for m in tree.all("path") if "data-threshold" in m.attributes]
                    self.assertEqual([(m.attributes["data-threshold"], m.attributes["class"]) for m in marks],
                                     [("p99 < 5ms", "mark missed")])

    def test_texts_and_tables(self):
        run = run_of("open")
        tree, _ = self.load(report("open", "html"))
        rows = {row.one("th").text(): [c.text() for c in row.all("td")]
                for row in tree.one("table", id="thresholds").one("tbody").all("tr")}
        self.assertEqual({text: cells[1][2:] for text, cells in rows.items()},
                         {t["text"]: "met" if t["met"] else "missed" for t in run["thresholds"]})
        self.assertEqual(tree.one("p", id="verdict").text(), "3 of 5 thresholds missed")
        failed = run["status_classes"]["5xx"]
        self.assertEqual([li.text() for li in tree.one("ul", id="warnings").all("li")],
                         ["%d responses (%.1f%%) had a status of 400 or above." % (failed, failed / 1200)])
        rows = list(tree.one("table", id="series").one("tbody").all("tr"))
        self.assertEqual([int(list(r.all("td"))[0].text().replace(",", "")) for r in rows], [p["requests"] for p in run["series"]])
        for table in tree.all("table"):
            self.assertTrue(table.one("caption").text())
            self.assertTrue(all(h.attributes.get("scope") for h in table.all("th")))
        for figure in tree.all("figure"):
            self.assertTrue(figure.one("svg", role="img").attributes["aria-label"])
        self.assertEqual([h.text() for h in tree.all("h2")],
                         ["Thresholds", "Latency by percentile", "Over time", "Responses", "Configuration"])

    def test_a_run_that_is_only_fast_is_not_green(self):
        page = report("closed", "html")
        for text, verdict in ((page, ("good", "2 of 2 thresholds met")),
                              (re.sub(r'("4xx": ?)0', r"\g<1>7", page),
                               ("", "2 of 2 thresholds met; none is about the responses that failed"))):
            found = self.load(text)[0].one("p", id="verdict")
            self.assertEqual((found.attributes.get("class", ""), found.text()), verdict)

    def test_handshakes(self):
        tree, _ = self.load(report("tls", "html"))
        config = tree.one("dl", id="config")
        pairs = dict(zip([e.text() for e in config.all("dt")], [e.text() for e in config.all("dd")]))
        self.assertEqual(pairs["TLS handshakes"], "2 full, 62 resumed, 3 failed")
        self.assertEqual(pairs["TLS resumption"], "on")
        self.assertRegex(pairs["TLS handshake time"], r"\Ap50 1\.2\d\s?ms, p99 1\.5\d\s?ms, max 1\.53\s?ms\Z")
        tree, _ = self.load(report("closed", "html"))
        self.assertNotIn("TLS", tree.one("dl", id="config").text())

    def test_a_missed_rate(self):
        failure = run_of("short")["failure"]
        self.assertIn("20000 of 40000 due requests were never sent, because no connection was free", failure)
        tree, _ = self.load(report("short", "html"))
        self.assertEqual([li.text() for li in tree.one("ul", id="warnings").all("li")], ["The run failed: %s." % failure])

    def test_an_empty_run_and_a_long_run(self):
        tree, _ = self.load(report("empty", "html"))
        self.assertIn("No responses", tree.one("figure", id="chart-percentiles").text())
        self.assertEqual(tree.one("p", id="verdict").text(), "The threshold was missed")
        tree, _ = self.load(report("long", "html"))
        self.assertEqual(len(self.points(tree.one("figure", id="chart-rate"), "responses")), 900)
        self.assertEqual(len(list(tree.one("table", id="series").one("tbody").all("tr"))), 900)

    def test_reading_by_pointer_and_keys(self):
        probe = """<script>
        const svg = document.querySelector("#chart-latency svg[role=img]"), box = svg.getBoundingClientRect();
        const at = (part) => svg.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + part * box.width}));
        const shown = () => {
          const r = document.querySelector("#chart-latency .reading"), b = r.getBoundingClientRect();
          if (r.hidden) return "";
          const within = b.left >= box.left && b.right <= box.right && b.top >= box.top && b.bottom <= box.bottom;
          return (within ? "" : "outside of the drawing: ") + [...r.children].map((c) => c.textContent).join("|");
        };
        const key = (key) => svg.dispatchEvent(new KeyboardEvent("keydown", {key}));
        const out = [];
        at(0); out.push(shown()); at(1); out.push(shown()); at(0.5); if (shown().startsWith("outside")) out.push(shown());
        key("Home"); out.push(shown()); key("ArrowRight"); out.push(shown()); key("End"); out.push(shown());
        key("Escape"); out.push(shown());
        document.querySelector("#chart-latency button").click();
        document.body.dataset.shown = JSON.stringify(out);
        document.body.dataset.scale = document.querySelector("#chart-latency svg[role=img]").dataset.scale;
        </script></body>"""
        tree, _ = self.load(report("open", "html").replace("</body>", probe))
        body = tree.one("body").attributes
        first, last, home, second, end, after_escape = json.loads(body["data-shown"])
        series = run_of("open")["series"]

        def us(text):
            number, unit = re.fullmatch(r"([\d.]+)\u2009(ns|\u00b5s|ms|s)", text).groups()
            return float(number) * {"ns": 1e-3, "\u00b5s": 1, "ms": 1e3, "s": 1e6}[unit]

        for shown, point in ((first, series[0]), (last, series[-1]), (home, series[0]), (second, series[1]), (end, series[-1])):
            title, *rows = shown.split("|")
            self.assertEqual(title, "%g to %g s" % (point["from_s"], point["to_s"]))
            for row, name in zip(rows, ("max", "p99", "p50")):
                self.assertTrue(row.startswith(name + " "))
                self.assertAlmostEqual(us(row[len(name) + 1:]) / point[name + "_us"], 1, delta=0.006)
        self.assertEqual(after_escape, "")
        self.assertEqual(body["data-scale"], "linear")  # the button changed it

    def test_a_phone_needs_no_sideways_scrolling(self):
        frame = """<body><script>
        const frame = document.createElement("iframe");
        frame.width = 340; frame.height = 700; frame.src = "http://report.test/page";
        frame.onload = () => { const d = frame.contentDocument.documentElement;
          document.body.dataset.page = d.scrollWidth + " " + d.clientWidth + " " + d.dataset.drawn; };
        document.body.append(frame);
        </script></body>"""
        for kind in ("open", "ramp", "hostile", "empty"):
            tree, _ = self.load(frame, also={"http://report.test/page": report(kind, "html")})
            wide, window, drawn = map(int, tree.one("body").attributes["data-page"].split())
            self.assertEqual((wide, window), (340, 340), kind)
            self.assertGreater(drawn, 0)

    def test_the_recorder_would_notice_and_the_policy_refuses(self):
        probe = '<img src="http://elsewhere.test/a.png"><script>fetch("http://elsewhere.test/b").catch(() => 0)</script></body>'
        page = report("closed", "html").replace("</body>", probe)
        _, requested = self.load(page)
        self.assertEqual(requested, ["http://report.test/"])  # the page's Content-Security-Policy blocks both
        page = re.sub(r"<meta http-equiv=\"Content-Security-Policy\"[^>]*>", "", page)
        _, requested = self.load(page)
        self.assertIn("http://elsewhere.test/a.png", requested)
