"""app:status: what its events say, who may see it; and its page in a browser, as pictures."""
# sanitizers: none; few requests
import base64
import hashlib
import json
import os
import re
import struct
import subprocess
import unittest

from harness import E2E, HAS_UNIX_SOCKETS, LUASERVE, WAIT, TimedOut, fcntl, needs_terminal, pty, request, run_program, termios
from harness.browser import Browser, needs_browser
from harness.screen import drawn_on
from harness.status_samples import samples

SITE = """
local ls = require "luaserve"
ls.config { threads = 2, max_cpu = 600 }
local app, flags = ls.app(), ls.dict "flags"
app:status "/_status"
app:get("/hello/:name", function(req) return req.params.name end)
app:get("/bad", function() error "no database" end)
app:get("/wait", function() return ls.channel("news"):receive(600) or 204 end) -- line 8
app:get("/busy", function()
  while not flags.stop do end -- line 10
  return "busy"
end)
app:get("/stop", function() flags.stop = true ls.channel("news"):send("x") return 204 end)
ls.subscribe("weather", print)
app:get("/hold/:name", function(req)
  local subscription = ls.subscribe(req.params.name, print)
  ls.channel("hold"):receive(600)
  subscription:remove()
  error(req.params.name)
end)
app:get("/free", function() ls.channel("hold"):send("x") return 204 end)
ls.listen("127.0.0.1:0", app)
"""


class Events:
    """The events of the page, one after the other."""

    def __init__(self, server, path="/_status/events", fields=(), host="localhost"):
        self.open = lambda: Events(server, path, fields, host)
        self.conn = server.connect()
        self.conn.send(request("GET", path, fields, host=host, version="HTTP/1.0"))
        head = self.conn.line(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head

    def next(self):
        while True:
            for line in self.conn.line(b"\n\n").split(b"\n"):
                if line.startswith(b"data: "):
                    return json.loads(line[6:])

    def until(self, holds):
        """The first event for which the function is true. As the page, it opens another stream if this one is late: a handler
        that computes delays the events of its Lua state."""
        events = self
        while True:
            events.conn.sock.settimeout(3)
            try:
                event = events.next()
            except TimedOut:
                events = events.open()
            else:
                if holds(event):
                    return event


class Bytes(E2E):
    SITE = SITE

    def test_bytes_that_are_no_text(self):
        """In a path, the name of a topic and the text of an error; and a character that a long path has at its cut."""
        with self.server.connect() as raw, self.server.connect() as long:
            raw.send(b"GET /hold/\xff HTTP/1.1\r\nHost: localhost\r\n\r\n")
            long.send(b"GET /hold/" + b"\xc3\xa9" * 100 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            events = Events(self.server)
            event = events.until(lambda e: sum("/hold" in w.get("what", "") for w in e["waiting"]) == 2 and len(e["topics"]) == 3)
            self.assertIn("GET /hold/\\xff", [re.sub("^request [0-9a-f]+ ", "", w["what"]) for w in event["waiting"] if "what" in w])
            self.assertIn({"topic": "\\xff", "subscribers": 1}, event["topics"])
            for conn in (raw, long):
                self.get("/free")
            self.assertEqual({conn.response().status for conn in (raw, long)}, {500})
            event = events.until(lambda e: "errors" in e and sum("/hold" in one["text"] for one in e["errors"]) == 2)
            self.assertTrue(any("GET /hold/\\xff: " in one["text"] for one in event["errors"]), event["errors"])


class Status(E2E):
    SITE = SITE

    def test_what_the_server_does(self):
        for name in "abc":
            self.get("/hello/" + name)
        self.assertEqual(self.get("/bad").status, 500)
        with self.server.connect() as waits, self.server.connect() as computes:
            waits.send(request("GET", "/wait"))
            events = Events(self.server)
            first = events.until(lambda e: "errors" in e)
            second = events.next()
            self.get("/bad")
            later = events.until(lambda e: "errors" in e)
            waiting = events.until(lambda e: any("/wait" in w.get("what", "") for w in e["waiting"]))
            computes.send(request("GET", "/busy"))
            busy = events.until(lambda e: any("/busy" in t.get("what", "") for t in e["threads"]))
            self.get("/stop")
            self.assertEqual(computes.response().text, "busy")
            waits.response()
        task, = [w for w in waiting["waiting"] if "/wait" in w.get("what", "")]
        self.assertRegex(task["line"], r"site\.lua:8 for the channel \"news\"$")
        self.assertEqual((task["client"], task["scope"], task["for_s"] >= 0), ("127.0.0.1", "a request", True))
        thread, = [t for t in busy["threads"] if "/busy" in t.get("what", "")]
        self.assertRegex(thread["line"], r"site\.lua:10$")
        self.assertIn(thread["state"], [s["state"] for s in busy["states"]])
        routes = {r["route"]: r for r in busy["routes"]}
        self.assertEqual([(routes[r]["count"], routes[r]["failed"], sum(routes[r]["buckets"])) for r in ("/hello/:name", "/bad")],
                         [(3, 0, 3), (2, 2, 2)])
        self.assertEqual([e["number"] for e in first["errors"]], [1])
        self.assertRegex(first["errors"][0]["text"], r"(?s)GET /bad: .*no database.*traceback")
        self.assertNotIn("errors", second)
        self.assertEqual([e["number"] for e in later["errors"]], [2, 1])
        self.assertIn({"topic": "weather", "subscribers": 1}, busy["topics"])
        self.assertEqual([d["dict"] for d in busy["dicts"]], ["flags"])
        self.assertGreater(busy["stats"]["responses"], 4)

    def test_all_who_look_share_a_snapshot_a_second(self):
        viewers = [Events(self.server) for _ in range(4)]
        times = sorted({viewer.next()["now"] for _ in range(3) for viewer in viewers})
        self.assertGreater(len(times), 1)
        self.assertGreater(min(b - a for a, b in zip(times, times[1:])), 0.85)

    def test_the_policy_names_what_the_page_has(self):
        page = self.get("/_status", [("Host", "localhost")])
        policy = page.header("Content-Security-Policy")
        for name in ("style", "script"):
            part, = re.findall("<%s>(.*?)</%s>" % (name, name), page.text, re.S)
            self.assertIn("%s-src 'sha256-%s'" % (name, base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()), policy)
        self.assertNotRegex(page.text, r"<script [^>]|<link[^>]*stylesheet|@import|url\(|@[A-Z]+@| style=| on\w+=")
        self.assertEqual(page.header("Cache-Control"), "no-store")

    def test_strangers(self):
        for name, value in (("X-Forwarded-For", "192.0.2.1"), ("Via", "1.1 proxy"), ("Host", "site.example"), ("Host", "127.0.0.1.example")):
            for path in ("/_status", "/_status/events"):
                response = self.get(path, [(name, value)] + [("Host", "localhost")] * (name != "Host"))
                self.assertEqual(response.status, 403, (name, path))
                self.assertIn('Write app:status("/_status", { auth = require "luaserve.basic_auth"', response.text)
        for host in ("localhost", "127.0.0.1:80", "[::1]:80", "a.localhost"):
            self.assertEqual(self.get("/_status", [("Host", host)]).status, 200, host)


class Definition(E2E):
    def test_auth(self):
        server = self.serve("""local ls = require "luaserve"
local app, sub = ls.app(), ls.app()
local auth = require "luaserve.basic_auth" { users = { ada = "secret of ada" } }
sub:status("/in", { auth = auth })
app:mount("/sub", sub)
app:status("/open", { auth = false })
ls.listen("0.0.0.0:0", app)""")
        login = ("Authorization", "Basic " + base64.b64encode(b"ada:secret of ada").decode())
        for path in ("/sub/in", "/sub/in/events"):
            with server.connect() as conn:
                conn.send(request("GET", path))
                self.assertEqual(conn.response().status, 401)
        with server.connect() as conn:
            conn.send(request("GET", "/sub/in", [login]))
            self.assertIn("<title>Status</title>", conn.response().text)
        Events(server, "/sub/in/events", [login], "h").next()
        Events(server, "/open/events", [("Via", "1.1 x")], "site.example").next()

    def test_what_is_refused(self):
        top = "local ls = require 'luaserve' local app = ls.app()\n"
        for code, message in (
                ('app:status("/s")\nls.listen("*:0", app)', "site.lua:2 has no auth, and other machines reach this listener: write auth = "),
                ('local sub = ls.app() sub:status("/s")\napp:mount("/x", sub)\nls.listen("0.0.0.0:0", app)', "site.lua:2 has no auth"),
                ('app:status("/s", { auth = "x" })', "site.lua:2: app:status: auth must be middleware"),
                ('app:status("/s", { atuh = print })', "did you mean 'auth'"), ('app:status("s")', 'must begin with "/"'),
                ('app:status("/s") app:status("/s")', "already defined at")):
            self.refuses(top + code, message)


@unittest.skipUnless(HAS_UNIX_SOCKETS, "of another system: the control socket needs Unix sockets")
class Top(E2E):
    def setUp(self):
        self.path = os.path.join(self.new_folder(), "c")
        self.top_server = self.serve(SITE.replace("max_cpu", "mask_addresses = true, max_cpu"), flags=("--control", self.path))

    def test_a_listing(self):
        self.top_server.get("/hello/a")
        with self.top_server.connect() as waits:
            waits.send(request("GET", "/wait"))

            def listing():
                status, out, err = run_program(["top", "--control", self.path])
                self.assertEqual((status, err), (0, ""))
                return out
            self.eventually(lambda: "/wait" in listing(), "the task that waits is listed")
            out = listing()
            self.top_server.get("/stop")
            waits.response()
        self.assertRegex(out, r"\A\S+site\.lua  up \S+  process \d+  luaserve [\d.]+\n[\d.e-]+ responses/s  p50 \S+  p99 \S+  0 errors")
        self.assertRegex(out, r"(?m)^ +\d\S*  GET /wait of 127\.0\.0\.0, at .*site\.lua:8 for the channel \"news\"$")
        self.assertRegex(out, r"(?m)^ +1 +\S+ +\d\S*s +\d\S*s +0  /hello/:name$")
        self.assertRegex(out, r"(?m)^ +\d+ +Lua$")  # what makes the listing

    @needs_terminal
    def test_a_screen(self):
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        program = subprocess.Popen([LUASERVE, "top", "--control", self.path], stdin=slave, stdout=slave, stderr=slave)
        before = termios.tcgetattr(slave)
        self.addCleanup(program.wait)
        self.addCleanup(os.close, slave)
        text = drawn_on(master, lambda text: text.count("\x1b[J") >= 2)
        os.write(master, b"q")
        text += drawn_on(master, lambda text: "\x1b[?1049l" in text)
        self.assertEqual(program.wait(WAIT), 0)
        self.assertEqual(termios.tcgetattr(slave), before)
        screens = text.split("\x1b[H")[1:]
        for screen in screens:
            lines = re.sub(r"\x1b\[[?0-9]*[A-Za-z]", "", screen).rstrip("\r\n").split("\r\n")
            self.assertLessEqual(len(lines), 24)
            self.assertLessEqual(max(map(len, lines)), 80)
            self.assertTrue(any(line.startswith("REQUESTS") for line in lines), lines)

    def test_what_is_refused(self):
        for args, status, message in (((), 2, "--control PATH is missing"), (("--control", self.path + "x"), 1, "cannot connect to %sx: No such file or directory; the server must run, with luaserve --control PATH" % self.path),
                                      (("--control", self.path, "x"), 2, 'unexpected argument "x"')):
            got, out, err = run_program(["top", *args])
            self.assertEqual((got, out), (status, ""))
            self.assertIn(message, err)


PAGE = """
local ls = require "luaserve"
local app, more = ls.app(), ls.channel "more"
app:get("/_status", function(_, res) return res:html((require "luaserve.status_page")) end)
app:get("/_status/events", function(_, res)
  local sse = res:sse()
  for line in io.lines "samples.txt" do sse:send(line) end
  repeat
    local line = more:receive(0.05)
    if line then sse:send(line) end
  until sse:wait(0.01)
end)
app:post("/more", function(req) more:send(req:body()) return 204 end)
ls.listen("127.0.0.1:0", app)
"""
SCREENS = os.path.join(os.path.dirname(__file__), "screens")
COMPARE = """(async () => {
  const [a, b] = await Promise.all(%s.map(async (data) => {
    const image = await createImageBitmap(await (await fetch(data)).blob());
    const canvas = new OffscreenCanvas(%d, %d), paint = canvas.getContext("2d");
    paint.drawImage(image, 0, 0, canvas.width, canvas.height);
    return [image.width / image.height, paint.getImageData(0, 0, canvas.width, canvas.height).data];
  }));
  let sum = 0, far = 0;
  for (let i = 0; i < a[1].length; i++) {
    const d = Math.abs(a[1][i] - b[1][i]);
    sum += d;
    if (d > 60) far++;
  }
  return [Math.abs(a[0] - b[0]), sum / a[1].length, far / a[1].length];
})()"""


@needs_browser
class Page(E2E):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = Browser(("--font-render-hinting=none",))
        cls.addClassCleanup(cls.browser.close)
        cls.samples = samples()

    def open(self, width, height, phone=False, dark=False):
        folder = self.new_folder()
        server = self.serve(PAGE.replace("samples.txt", os.path.join(folder, "samples.txt").replace("\\", "/")))
        with open(os.path.join(folder, "samples.txt"), "w", encoding="utf-8") as out:
            out.write("".join(json.dumps(s) + "\n" for s in self.samples[:-2]))
        page = self.browser.page("about:blank#", width, height, phone)
        self.addCleanup(page.close)
        page.call("Emulation.setTimezoneOverride", timezoneId="UTC")
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                                                          {"name": "prefers-reduced-motion", "value": "reduce"}])
        page.call("Page.addScriptToEvaluateOnNewDocument", source="""window.shift = 0;
            new PerformanceObserver((list) => { for (const e of list.getEntries()) window.shift += e.value; })
              .observe({type: "layout-shift", buffered: true});
            const font = new CSSStyleSheet();
            font.replaceSync('* { font-family: "DejaVu Sans" !important }');
            addEventListener("DOMContentLoaded", () => { document.adoptedStyleSheets = [font]; });""")
        page.call("Page.navigate", url="http://127.0.0.1:%d/_status" % server.port())
        self.wait_drawn(page, self.samples[-3])
        return server, page

    def wait_drawn(self, page, sample):
        page.wait("document.documentElement.dataset.drawn === '%d'" % sample["now"])

    def more(self, server, sample):
        with server.connect() as conn:
            body = json.dumps(sample)
            conn.send(request("POST", "/more", [("Content-Length", str(len(body)))]) + body.encode())
            self.assertEqual(conn.response().status, 204)

    def test_pictures(self):
        """The page of fixed samples looks as it did. WRITE=1 makes the pictures anew: look at them before a commit."""
        for name, width, height, phone, dark in (("light", 1000, 3400, False, False), ("dark", 1000, 3400, False, True),
                                                 ("phone", 390, 4300, True, False)):
            with self.subTest(name):
                _, page = self.open(width, height, phone, dark)
                self.assertEqual(page.run("document.documentElement.scrollWidth"), width)
                clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 0.5}
                got = page.call("Page.captureScreenshot", format="webp", quality=50, clip=clip)["data"]
                page.check()
                path = os.path.join(SCREENS, "status-%s.webp" % name)
                if os.environ.get("WRITE"):
                    with open(path, "wb") as out:
                        out.write(base64.b64decode(got))
                with open(path, "rb") as file:
                    kept = base64.b64encode(file.read()).decode()
                urls = json.dumps(["data:image/webp;base64," + data for data in (got, kept)])
                shape, mean, far = page.run(COMPARE % (urls, width // 5, height // 5))
                self.assertTrue(shape < 0.01 and mean < 4 and far < 0.01, (shape, mean, far))

    def test_figures_and_tables(self):
        _, page = self.open(1000, 700)
        last, before = self.samples[-3], self.samples[-13]
        self.assertEqual(page.text("h1"), "shop/site.lua")
        figures = dict(zip(page.run("[...document.querySelectorAll('#figures dt')].map((e) => e.innerText)"),
                           page.run("[...document.querySelectorAll('#figures dd')].map((e) => e.innerText)")))
        rate = (last["stats"]["responses"] - before["stats"]["responses"]) / 10
        self.assertAlmostEqual(float(figures["Responses/second"]), rate, delta=0.5)
        self.assertEqual(figures["Connections"], "1,616")
        cells = page.run("[...document.querySelectorAll('#routes tbody tr')].map((r) => [...r.children].map((c) => c.innerText))")
        counts = {r["route"]: r["count"] for r in last["routes"]}
        first = {r["route"]: r["count"] for r in self.samples[0]["routes"]}
        self.assertEqual({row[0]: int(row[1].replace(",", "")) for row in cells}, {r: counts[r] - first[r] for r in counts})
        self.assertEqual(cells[0][0], "/export.csv")  # the slowest
        page.run("(() => { const order = document.querySelector('#order'); order.value = 'count'; order.dispatchEvent(new Event('change')); })()")
        page.click("[data-since=start]")
        self.assertEqual(page.run("[...document.querySelector('#routes tbody tr').children].slice(0, 3).map((c) => c.innerText)"),
                         ["/static/*path", format(counts["/static/*path"], ","), "\u2013"])
        self.assertIn("GET /export.csv, at export.lua:40", page.text("#threads"))
        self.assertIn("traceback", page.run("document.querySelector('#errors pre').textContent"))
        self.assertEqual(page.run("[...document.querySelectorAll('table')].filter((t) => !t.caption || !t.caption.textContent).length"), 0)

    def test_it_lives_and_nothing_moves(self):
        server, page = self.open(1000, 700)
        page.run("window.shift = 0")
        page.run("document.querySelector('#chart-latency svg[role=img]').focus()")
        for _ in range(3):
            page.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", code="ArrowLeft", windowsVirtualKeyCode=37)
        read = "document.querySelector('#chart-latency .reading').innerText"
        self.assertRegex(page.run(read), r"^2 s ago\np99 .*\np90 .*\np50 ")
        self.more(server, self.samples[-2])
        self.wait_drawn(page, self.samples[-2])
        self.assertRegex(page.run(read), r"^3 s ago|^2 s ago")  # the reading and the focus survive
        self.assertEqual(page.run("document.activeElement.getAttribute('role')"), "img")
        page.click("#pause")
        self.assertEqual(page.text("#link"), "paused")
        self.more(server, self.samples[-1])
        page.wait("document.documentElement.dataset.taken === '%d'" % self.samples[-1]["now"])
        self.assertEqual(page.run("document.documentElement.dataset.drawn"), "%d" % self.samples[-2]["now"])
        page.click("#pause")
        self.wait_drawn(page, self.samples[-1])
        self.assertLess(page.run("window.shift"), 0.001)
        server.stop()
        page.wait("document.querySelector('#link').textContent.startsWith('connection lost')")
        page.check()
