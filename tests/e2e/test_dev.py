"""luaserve dev: reload after each change, the error page, pages that reload themselves, the log and its warnings.

Every reload is awaited by its line of the log. The browser of the last tests is Debian's chromium, run without a window;
without it they are skipped (`scripts/setup --browser` installs it).
"""
# sanitizers: asan; few requests, one after the other
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time

from harness import (E2E, LUASERVE, WAIT, WINDOWS, Conn, app_site, free_port, needs_terminal, not_on_windows, pty,
                     read_text, scratch, write_text)
from harness.browser import Browser, needs_browser
from harness.dev import DEV, with_handlers
from harness.websocket import CLOSE, WebSocket, close_payload, frame, handshake

LOCAL = ("Host", "localhost")
HTML = (("Accept", "text/html,*/*"), LOCAL)


def send_datagram(server, client):
    client.sendto(b"x", ("127.0.0.1", int(re.search(r"udp://127\.0\.0\.1:(\d+)", server.wait_log("udp://127")).group(1))))


SITE = r"""
local ls = require "luaserve"
local app = ls.app()
app:get("/", function() return "one" end)
ls.listen{ host = "127.0.0.1", port = @PORT@, handler = app }
"""


class Dev(E2E):
    def dev(self, site, files=None, **kw):
        """A server in dev mode. @PORT@ is a free port, the same in each version of the site."""
        self.port = free_port()
        self.folder = tempfile.mkdtemp(prefix="luaserve-dev-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        for name, text in (files or {}).items():
            self.write(name, text)
        self.write("site.lua", site)
        self.server = None
        server = self.serve(None, program=DEV, site_path="site.lua", cwd=self.folder, **kw)
        return server

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        """Replace a file as an editor does: write another one, rename it."""
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        write_text(self.path(name + ".new"), text.replace("@PORT@", str(self.port)))
        os.replace(self.path(name + ".new"), self.path(name))

    def write_in_place(self, name, text):
        write_text(self.path(name), text.replace("@PORT@", str(self.port)))

    def change(self, server, change, pattern=r"reloaded \S+ in \d+ ms"):
        mark = server.mark()
        change()
        return server.wait_log(pattern, mark)

    def site_of(self, text):
        return SITE.replace('return "one"', text)


class Reload(Dev):
    def test_the_first_lines(self):
        server = self.dev("require 'helper'\n" + SITE, {"helper.lua": "return {}"})
        server.wait_log(r"listening on http://127\.0\.0\.1:%d" % self.port)
        server.wait_log(r"dev: watching site\.lua, \./helper\.lua$")
        self.assertEqual(server.get("/").text, "one")
        server.wait_log(r"info GET / 200 \d+\.\d ms$")

    def test_a_saved_file(self):
        server = self.dev(SITE)
        self.change(server, lambda: self.write("site.lua", self.site_of('return "two"')))
        self.assertEqual(server.get("/").text, "two")
        self.change(server, lambda: self.write_in_place("site.lua", self.site_of('return "three"')))
        self.assertEqual(server.get("/").text, "three")

    def test_a_reload_behind_a_failed_init_is_the_start(self):
        server = self.dev("error_at = 'no luck'\n" + SITE.replace("ls.listen", "ls.init(function(reload) "
                          "if error_at then error(error_at) end ls.log.info('reload', reload) end)\nls.listen", 1))
        server.wait_log("no luck")
        text = read_text(self.path("site.lua"))
        for line, value in (("", "false"), ("-- again", "true")):
            self.write("site.lua", text.replace("error_at = 'no luck'", line))
            server.wait_log("info reload\t" + value)

    def test_a_connection_survives(self):
        server = self.dev(SITE)
        with server.connect() as conn:
            self.assertEqual(conn.get("/").text, "one")
            self.change(server, lambda: self.write("site.lua", self.site_of('return "two"')))
            self.assertEqual(conn.get("/").text, "two")

    def test_websockets_are_closed(self):
        site = SITE.replace("ls.listen", 'app:ws("/ws", { open = function(ws) ws:send("@V@") end })\nls.listen', 1)
        server = self.dev(site.replace("@V@", "one"))
        with WebSocket(server.at(), "/ws") as ws:
            self.assertEqual(ws.receive(), "one")
            self.change(server, lambda: self.write("site.lua", site.replace("@V@", "two")))
            self.assertEqual(ws.closes(), (1012, ""))
            self.assertIn("the previous site closes 1 WebSocket connection with 1012: dev mode", server.log())
        with WebSocket(server.at(), "/ws") as ws:
            self.assertEqual(ws.receive(), "two")
            server.signal()
            self.assertEqual(ws.closes(), (1001, ""))
        self.assertEqual(server.wait(), 0, server.log())

    def test_a_websocket_is_closed_whose_handshake_goes_on(self):
        site = SITE.replace("ls.listen", """
app:use(function(req, res, next)
  if req.path == "/ws" then
    ls.log.info("shakes hands")
    local go
    repeat ls.sleep(0.01) go = io.open("go") until go
    go:close()
  end
  return next()
end)
app:ws("/ws", { open = function(ws) ls.log.info("opened") end })
ls.listen""", 1)
        server = self.dev(site)
        with server.connect() as conn:
            conn.send(handshake("/ws"))
            server.wait_log("shakes hands")
            self.change(server, lambda: self.write("site.lua", site + "-- changed"))
            self.write("go", "")
            self.assertEqual(conn.head().status, 101)
            server.wait_log("opened")
            self.assertEqual(conn.take(4), b"\x88\x02" + (1012).to_bytes(2, "big"))
            conn.send(frame(CLOSE, close_payload(1012)))
            conn.expect_end()

    def test_files_of_require_dofile_and_loadfile(self):
        site = """
local ls = require "luaserve"
local app = ls.app()
local a, b, c = require "lib.a", dofile "b.lua", loadfile "c.lua" ()
app:get("/", function() return a .. b .. c .. (late and late() or "") end)
app:get("/late", function() return dofile "late.lua" end)
ls.listen{ host = "127.0.0.1", port = @PORT@, handler = app }
"""
        server = self.dev(site, {"lib/a.lua": "return 'a'", "b.lua": "return 'b'", "c.lua": "return 'c'",
                                 "late.lua": "return 'late'"})
        self.assertEqual(server.get("/").text, "abc")
        for name, expected in (("lib/a.lua", "Abc"), ("b.lua", "ABc"), ("c.lua", "ABC")):
            upper = os.path.basename(name)[0].upper()
            self.change(server, lambda: self.write(name, "return '%s'" % upper), "info reloaded ")
            self.eventually(lambda: server.get("/").text == expected, expected)
        self.assertEqual(server.get("/late").text, "late")  # a file that is loaded by a handler
        self.change(server, lambda: self.write("late.lua", "return 'later'"), "info reloaded ")

    def test_files_that_the_site_reads_while_it_loads(self):
        site = SITE.replace('return "one"', 'return page').replace('local app', """
local page = ls.file.read("page.html")
for line in ls.file.lines("lines") do page = page .. line end
assert(ls.file.write("own", "by " .. (ls.file.read("own") or "nobody")))
local app""")
        site = site.replace("ls.listen", """
app:get("/late", function() return ls.file.read("late") end)
app:get("/own", function() return tostring(ls.file.write("own", "handler")) end)
ls.listen""", 1)
        server = self.dev(site, {"page.html": "one", "lines": "1\n", "late": "x", "own": "0"})
        self.assertEqual(server.get("/").text, "one1")
        self.change(server, lambda: self.write("page.html", "two"))
        self.assertEqual(server.get("/").text, "two1")
        self.change(server, lambda: self.write("lines", "2\n"))
        self.assertEqual(server.get("/").text, "two2")
        self.assertEqual(server.get("/late").text, "x")
        mark = server.mark()
        self.write("late", "y")  # read by a handler each time
        self.assertEqual(server.get("/own").text, "true")  # written by the site
        time.sleep(0.3)
        self.assertFalse(server.logged("has changed", mark))
        self.assertEqual(server.get("/late").text, "y")

    def test_files_that_the_site_names(self):
        site = SITE.replace('return "one"', 'return text').replace("local app", """
local text = ""
for _, name in ipairs { "menu.csv", "data/a", "data/sub/b", "later" } do
  local file = io.open(ls.dir .. "/" .. name)
  if file then
    text = text .. file:read("a")
    file:close()
  end
end
ls.watch("menu.csv", "data", ls.templates("views"))
ls.watch "later"
local app""", 1).replace("ls.listen", """
app:get("/wrong", function()
  local ok, none = pcall(ls.watch)
  local _, number = pcall(ls.watch, "menu.csv", 5)
  return none .. " " .. number
end)
ls.listen""", 1)
        server = self.dev(site, {"menu.csv": "1", "data/a": "2", "data/sub/b": "3", "data/.hidden": "", "views/x.html": ""})
        self.assertEqual(server.get("/").text, "123")
        for name, text in (("menu.csv", "m23"), ("data/a", "ma3"), ("data/sub/b", "mab"), ("later", "mabl")):
            self.change(server, lambda name=name, text=text: self.write(name, text[-1] if name == "later" else
                                                                         text[("menu.csv", "data/a", "data/sub/b").index(name)]))
            self.eventually(lambda text=text: server.get("/").text == text, "the change of " + name)
        self.assertRegex(server.get("/wrong").text, r'ls.watch takes files and folders, such as "data/menu.csv"; got nil '
                                                    r".*ls.watch takes files and folders, .*; got 5")

    def test_templates(self):
        site = SITE.replace('return "one"', 'return require("luaserve").inspect(views:render("page.html"))').replace("local app", '''
local views = ls.templates("views")
local app''', 1).replace("ls.listen", '''
app:get("/page", function(req, res) return res:render("page.html") end)
app:get("/late", function(req, res) return res:render("late.txt") end)
ls.listen''', 1)
        server = self.dev(site, {"views/page.html": "one {(sub/part.html)}", "views/sub/part.html": "part", "views/late.txt": "x"})
        self.assertEqual(server.get("/page").text, "one part")
        self.change(server, lambda: self.write("views/sub/part.html", "new"), r"dev: \S*views/sub/part\.html has changed|reloaded")
        self.eventually(lambda: server.get("/page").text == "one new", "the template that another one includes")
        self.assertEqual(server.get("/late").text, "x")
        self.change(server, lambda: self.write("views/late.txt", "y"))
        self.assertEqual(server.get("/late").text, "y")
        mark = server.mark()
        self.write("views/page.html", "\n{% if %}")  # the site is served as it was; its pages show the error
        server.wait_log(r"views/page\.html:2: unexpected symbol", mark)
        page = server.get("/page", HTML)
        self.assertEqual(page.status, 500)
        self.assertIn('class="marked"><b>2</b>{% if %}</span>', page.text)
        self.change(server, lambda: self.write("views/page.html", "a\n{{none.x}}\n"))
        page = server.get("/page", HTML)  # an error while it runs
        self.assertIn("attempt to index a nil value (global &#39;none&#39;)", page.text)
        self.assertIn('class="marked"><b>2</b>{{none.x}}</span>', page.text)

    def test_a_module_that_appears(self):
        server = self.dev(SITE)
        self.change(server, lambda: self.write("site.lua", "local text = require 'sub.missing'\n" + self.site_of("return text")),
                    "reload failed: .*module 'sub.missing' not found")
        self.assertEqual(server.get("/").text, "one")
        self.change(server, lambda: self.write("sub/missing.lua", "return = 'found'"),
                    "reload failed: error loading module 'sub.missing' from file '[^']*missing.lua':")
        self.change(server, lambda: self.write("sub/missing.lua", "return 'found'"), "info reloaded ")
        self.assertEqual(server.get("/").text, "found")

    def test_a_broken_site_is_served_as_it_was(self):
        server = self.dev(SITE)
        self.change(server, lambda: self.write("site.lua", "local x = = 1\n"),
                    r"error reload failed: site\.lua:1: unexpected symbol")
        self.assertEqual(server.get("/").text, "one")
        self.assertEqual(server.get("/", (("Accept", "text/html"),)).text, "one")  # of a host that is not this machine
        page = server.get("/", HTML)
        self.assertEqual(page.status, 500)
        self.assertEqual(page.header("content-type"), "text/html; charset=utf-8")
        self.assertIn("The site does not load", page.text)
        self.assertIn('<span id="L1" class="marked"><b>1</b>local x = = 1</span>', page.text)
        self.change(server, lambda: self.write("site.lua", SITE))
        self.assertEqual(server.get("/", HTML).text, "one")

    def test_a_broken_site_at_the_start(self):
        """The server waits for the file to be mended, and then begins to serve."""
        server = self.dev("error('not yet')", listeners=0)
        server.wait_log(r"error site\.lua:1: not yet")
        mark = server.mark()
        server.wait_log("dev: waiting for a change of the file")
        self.write("site.lua", "return 1")
        server.wait_log("defines no listener, timer or job", mark)
        self.write("site.lua", SITE)
        server.wait_log("listening on", mark)
        self.assertEqual(server.get("/").text, "one")


PAGES = r"""
local ls = require "luaserve"
local app = ls.app()
app:get("/", function(_, res) res:html("<html><body><p>text</p></body></html>") end)
app:get("/returned", function() return "<!doctype html><p>text", { ["Content-Type"] = "text/html" } end)
app:get("/part", function(_, res) return res:html("<li>part") end)
app:get("/plain", function() return "</body>" end)
app:get("/json", function() return { html = "</body>" } end)
app:get("/buffer", function(_, res)
  local b = ls.buffer()
  b:append("<html><body>", ("x"):rep(100000), "</body></html>")
  res:type("html")
  return b
end)
app:get("/streamed", function(_, res) res:type("html") res:write("<html><body>", "</body></html>") end)
app:get("/encoded", function(_, res)
  res:type("html"):header("Content-Encoding", "x-none")
  return "<html></html>"
end)
app:get("/nonce", function(_, res)
  res:header("Content-Security-Policy", "script-src 'nonce-abc='")
  res:html("<html></html>")
end)
app:get("/fail", function(req)
  local missing = req.query.nothing
  return missing.field
end)
app:post("/fail", function(req) req:body() error("<script>alert(1)</script>") end)
app:get("/value", function() error{ code = 7 } end)
app:static("/files", "public")
app:get("/injected", function() return app:inject{ path = "/" }.body end)
local api = ls.app()
api:get("/fail", function() error("inside") end)
api:error(function(_, _, err) return 500, { error = err } end)
app:mount("/api", api)
ls.listen{ host = "127.0.0.1", port = @PORT@, handler = app }
"""
SCRIPT = re.compile(r'<script src="/__dev/reload\.js\?\d+"></script>')


class Pages(Dev):
    def setUp(self):
        self.dev_server = self.dev(PAGES, {"public/a.html": "<html><body>a</body></html>"})
        super().setUp()

    def get(self, target, headers=(), index=0):
        return self.dev_server.get(target, headers, index)

    def test_the_script_of_pages(self):
        for target, after in (("/", "</body></html>"), ("/returned", ""), ("/buffer", "</body></html>")):
            text = self.get(target).text
            self.assertEqual(len(SCRIPT.findall(text)), 1, target)
            self.assertTrue(SCRIPT.sub("@", text).endswith("@" + after), target)
        self.assertIn("x" * 100000 + "<script", self.get("/buffer").text)
        self.assertIn("nonce=\"abc=\"", self.get("/nonce").text)

    def test_responses_without_it(self):
        for target in ("/part", "/plain", "/json", "/streamed", "/encoded", "/files/a.html", "/injected"):
            self.assertNotIn("/__dev/", self.get(target).text, target)
        self.assertIn("/__dev/", self.get("/part", (("Sec-Fetch-Dest", "document"),)).text)
        self.assertNotIn("/__dev/", self.get("/", (("Sec-Fetch-Dest", "empty"),)).text)

    def test_head_has_the_length_of_get(self):
        with self.dev_server.connect() as conn:
            body = conn.get("/")
            head = conn.ask("HEAD", "/")
            self.assertEqual(head.header("content-length"), body.header("content-length"))
            self.assertEqual(int(head.header("content-length")), len(body.body))

    def test_error_page(self):
        page = self.get("/fail?q=%3Cb%3E", HTML)
        self.assertEqual(page.status, 500)
        text = page.text
        self.assertIn("attempt to index a nil value (local &#39;missing&#39;)", text)
        line = PAGES.splitlines().index("  return missing.field") + 1
        self.assertIn('<span id="L%d" class="marked"><b>%d</b>  return missing.field</span>' % (line, line), text)
        self.assertIn('<a href="/__dev/source?file=site.lua&amp;line=%d#L%d">site.lua:%d</a>: in ' % (line, line, line), text)
        self.assertIn("<tr><th>q</th><td>&lt;b&gt;</td></tr>", text)
        self.assertIn("<tr><th>accept</th>", text)
        self.assertEqual(len(re.findall(r"<script|<link|<img| src=", text)), 2)  # <script src= of the reload
        source = self.get("/__dev/source?file=site.lua&line=%d" % line, (("Host", "localhost:1"),))
        self.assertEqual(source.status, 200)
        self.assertIn('class="marked"><b>%d</b>' % line, source.text)

    def test_text_of_the_client_is_escaped(self):
        with self.dev_server.connect() as conn:
            page = conn.ask("POST", "/fail?%22%3E%3Cscript%3E=1", (*HTML, ("X-A", "<script>")), b"<script>\x00\xff")
        self.assertEqual(page.status, 500)
        self.assertEqual(len(re.findall("<script", page.text)), 1)
        self.assertIn("&lt;script&gt;alert(1)&lt;/script&gt;", page.text)
        self.assertIn("&lt;script&gt;\\x00\\xFF", page.text)

    def test_clients_that_show_no_html(self):
        for headers in ((LOCAL,), (("Accept", "application/json"), LOCAL), (*HTML, ("Sec-Fetch-Dest", "empty"))):
            answer = self.get("/fail", headers)
            self.assertEqual((answer.status, answer.header("content-type")), (500, "text/plain; charset=utf-8"))
            self.assertIn("attempt to index a nil value (local 'missing')\nstack traceback:", answer.text)
        answer = self.get("/api/fail")  # the site has its own
        self.assertIn("inside", answer.text)
        self.assertEqual(answer.header("content-type"), "application/json")
        self.assertIn("inside", self.get("/api/fail", HTML).text)
        self.assertIn("<!doctype html>", self.get("/api/fail", HTML).text)

    def test_errors_are_shown_to_this_machine_only(self):
        for host, shown in (("localhost:80", True), ("192.0.2.1:80", True), ("evil.example", False)):
            for accept in ("text/html", "*/*"):
                answer = self.get("/fail", (("Host", host), ("Accept", accept)))
                self.assertEqual((answer.status, "missing" in answer.text), (500, shown), (host, accept))
                if not shown:
                    self.assertEqual(answer.text, "Internal Server Error\n")

    def test_only_loaded_files_are_shown(self):
        for name in ("/etc/passwd", "public/a.html", "../site.lua", "./site.lua", "", "...te.lua%00", "nothing.lua"):
            self.assertEqual(self.get("/__dev/source?line=1&file=" + name, (("Host", "localhost"),)).status, 404, name)
        self.assertEqual(self.get("/__dev/source", (("Host", "localhost"),)).status, 404)
        for host, status in (("localhost", 200), ("127.0.0.1:80", 200), ("[::1]:80", 200), ("a.localhost", 200),
                             ("evil.example", 404), ("localhost.evil.example", 404), ("127.0.0.1.evil.example", 404)):
            answer = self.get("/__dev/source?file=site.lua", (("Host", host),))
            self.assertEqual(answer.status, status, host)

    def test_events(self):
        version = SCRIPT.search(self.get("/").text).group(0).split("?")[1].split('"')[0]
        with self.dev_server.connect() as old:
            old.send("GET /__dev/events?seen=1 HTTP/1.1\r\nHost: h\r\n\r\n".encode())
            self.assertIn("event: change", old.response().text)  # another version: at once
        with self.dev_server.connect() as conn:
            conn.send(("GET /__dev/events?seen=%s HTTP/1.1\r\nHost: h\r\n\r\n" % version).encode())
            head = conn.response_head()
            self.assertEqual(head.header("content-type"), "text/event-stream; charset=utf-8")
            self.write("site.lua", PAGES.replace("<p>text</p>", "<p>new</p>"))
            self.assertIn(b"event: change", conn.rest() if head.closes else conn.take(20) + conn.take(20))
            self.assertIn("<p>new</p>", self.get("/").text)  # the new version serves when the event arrives

    def test_a_waiting_page_does_not_delay_the_end(self):
        version = SCRIPT.search(self.get("/").text).group(0).split("?")[1].split('"')[0]
        with self.dev_server.connect() as conn:
            conn.send(("GET /__dev/events?seen=%s HTTP/1.1\r\nHost: h\r\n\r\n" % version).encode())
            conn.response_head()


class Production(E2E):
    SITE = app_site(r"""
app:get("/", function(_, res) res:html("<html><body></body></html>") end)
app:get("/fail", function() error("secret") end)
app:get("/core", function() return tostring(require("luaserve.core").dev) end)
""")

    def test_nothing_of_it_is_there(self):
        for path in ("/__dev/events", "/__dev/source?file=site.lua", "/__dev/reload.js", "/__dev/"):
            self.assertEqual(self.get(path).status, 404)
        self.assertEqual(self.get("/", HTML).text, "<html><body></body></html>")
        page = self.get("/fail", HTML)
        self.assertEqual(page.status, 500)
        self.assertNotIn("secret", page.text)
        self.assertEqual(self.get("/core").text, "nil")
        self.assertEqual(self.server.logged("GET / 200"), [])


WARNINGS = r"""
local ls = require "luaserve"
local app = ls.app()
local visits = 0
app:get("/global", function() total = 1 return "ok" end)
app:get("/count", function() visits = visits + 1 return "ok" end)
app:get("/block", function()
  local f = io.popen("@SLEEP@")
  f:read("a")
  f:close()
  return "ok"
end)
app:get("/wait", function() ls.sleep(0.3) return "ok" end)
app:get("/compute", function()
  local until_ = os.clock() + 0.4
  local n = 0
  while os.clock() < until_ do n = n + 1 end
  return "ok"
end)
app:get("/tags", function(req)
  return { #req.query_all["a-b"], req.query.tag, req.query.tags, req.query["ids[]"] }
end)
ls.listen{ host = "127.0.0.1", port = @PORT@, handler = app }
"""


class Warnings(Dev):
    def test_repeated_parameters_of_which_the_first_is_read(self):
        server = self.dev(WARNINGS)
        for _ in range(2):
            server.get("/tags?tag=1&tag=2&tags=3&ids[]=4&ids[]=5&a-b=6&a-b=7")
        server.stop()
        self.assertEqual(sorted(line.partition(" warn ")[2] for line in server.logged("several values")), [
            'site.lua:21: the request has several values of "%s": req.query has the first, req.query_all the list of all' % name
            for name in ("ids[]", "tag")])

    def test_a_misspelt_global(self):
        """Before a request reads it; --check says so, too."""
        files = {"helper.lua": "function of_helper() end\nreturn function() return helpr end\n"}
        server = self.dev("""
local ls = require "luaserve"
local app, users, helper = ls.app(), {}, require "helper"
dofile("more.lua")
app:get("/", function() if userz then return users end return of_helper(), of_more, helper() end)
ls.listen{ host = "127.0.0.1", port = @PORT@, handler = app }
""", files={**files, "more.lua": "of_more = 1\n"})
        server.wait_log(r"warn \./helper\.lua:2: reads the global helpr, which nothing sets, so it is nil; did you mean 'helper'\?$")
        server.wait_log(r"warn site\.lua:5: reads the global userz, which nothing sets, so it is nil; did you mean 'users'\?$")
        self.assertEqual(len(server.warnings()), 2, server.log())
        checked = subprocess.run([LUASERVE, "--check", "site.lua"], cwd=self.folder, capture_output=True, text=True, timeout=WAIT)
        self.assertEqual((checked.returncode, len(checked.stderr.splitlines())), (0, 2), checked.stderr)
        self.assertRegex(checked.stderr, r"warn site\.lua:5: reads the global userz,")

    def test_repeated_fields_of_which_the_first_is_read(self):
        site = app_site("""
            app:post("/direct", function(req) return { req:form().tag } end) -- WARN the form has several values of "tag"
            app:post("/named", function(req)
              local form = req:form() -- WARN the form has several values of "tag"
              return { form.name, form["tag"] }
            end)
            app:post("/whole", function(req) return req:form() end) -- WARN the form has several values of "tag"
            app:post("/passed", function(req)
              local f = req:form() -- WARN the form has several values of "tag"
              return ls.inspect(f)
            end)
            app:post("/schema", function(req) return req:form{ tag = "string" } end) -- WARN several values of "tag" were sent
            app:post("/other", function(req)
              local form = req:form()
              return { form.name, req.query.tag, form.tags }
            end)
            app:post("/both", function(req)
              local form, tags = req:form(), req:form_all().tag
              return { form.name, tags }
            end)
            app:post("/list", function(req) return req:form{ tag = { "string" } } end)
            app:post("/all", function(req) local form = req:form_all() return form.tag end)
            """)
        server = self.serve(site, program=DEV)
        parts = "".join('--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n1\r\n' % name for name in ("tag", "tag", "name")) + "--b--\r\n"
        for path in re.findall(r'"(/\w+)"', site) * 2:
            for kind, body in (("application/x-www-form-urlencoded", "tag=1&tag=2&name=x"), ("multipart/form-data; boundary=b", parts)):
                with server.connect() as conn:
                    self.assertEqual(conn.ask("POST", path, [("Content-Type", kind)], body=body.encode()).status, 200)
        server.stop()
        self.assertEqual(server.warnings(), [line for n, text in enumerate(site.split("\n"), 1) if "WARN" in text
                                             for line in server.logged(r"site\.lua:%d: %s" % (n, text.partition("WARN ")[2]))])
        self.assertEqual(len(server.warnings()), 5, server.log())

    def test_a_parameter_that_the_schema_of_the_route_leaves_out(self):
        server = self.dev("""
            local ls = require "luaserve"
            local app = ls.app()
            app:get("/q", { query = { page = { is = "integer", default = 1 } } }, function(req)
              return { page = req.query.page, done = tostring(req.query.done), other = tostring(req.query.other) }
            end)
            ls.listen{ host = "127.0.0.1", port = @PORT@, handler = app }
            """)
        for _ in range(2):
            self.assertEqual(json.loads(server.get("/q?done=1&page=2").body), {"page": 2, "done": "nil", "other": "nil"})
        server.stop()
        lines = server.logged("the option query of the route")
        self.assertEqual(len(lines), 1, lines)
        self.assertRegex(lines[0], r"warn .*site\.lua:5: reads req\.query\.done, which the request has")

    def test_data_that_is_not_shared(self):
        server = self.dev(WARNINGS)
        for _ in range(5):
            server.get("/global")
            server.get("/count")
        server.wait_log(r"warn site\.lua:5: sets the global total while the site serves: write \"local\"")
        server.wait_log(r"warn site\.lua:6: changes visits, of which each Lua state has its own copy")
        self.assertEqual(len(server.logged("sets the global")), 1)
        self.assertEqual(len(server.logged("changes visits")), 1)

    def test_wrong_arguments_are_those_without_dev_mode(self):
        server = self.dev(app_site(r"""
            local dict, channel = ls.dict("d"), ls.channel("c")
            app:get("/none", function() return dict:get(1.5) or 404 end)
            app:get("/dict", function() return (dict:get({})) end)
            app:get("/nil", function() return (channel:send(nil)) end)
            app:get("/function", function() return (channel:send(print)) end)
"""))
        for path, status, says in (("none", 404, None), ("dict", 500, ":6: bad argument #1 to 'get' (key must be a string or an integer; got table)"),
                                   ("nil", 500, ":7: bad argument #1 to 'send' (value that is not nil expected"),
                                   ("function", 500, ":8: channel:send: value is a function")):
            self.assertEqual(server.get("/" + path).status, status)
            if says:
                server.wait_log(r"site\.lua" + re.escape(says))

    def test_slow_handlers(self):
        sleep = "ping -n 2 127.0.0.1" if WINDOWS else "sleep 0.4"
        server = self.dev(WARNINGS.replace("@SLEEP@", sleep))
        server.get("/wait")
        server.get("/block")
        server.wait_log(r"GET /block: slow: blocked \d+ ms in \S+ \(site\.lua:(8|9|10)\)")
        server.get("/compute")
        server.wait_log(r"GET /compute: slow: computed for \d+ ms without a wait, mostly at site\.lua:17")
        self.assertEqual(server.logged("GET /wait: slow"), [])


STATES = r"""
local ls = require "luaserve"
@CONFIG@
local app = ls.app()
local mine = tostring({})
app:get("/a", function() return mine end)
app:get("/b", function() return mine end)
app:ws("/ws", { open = function(ws) ws:send(mine) end })
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.tcp({ host = "127.0.0.1", port = 0 }, function(sock) sock:send(mine) end)
ls.udp({ host = "127.0.0.1", port = 0 }, function() return mine end)
"""


class States(Dev):
    """Three states exist from the start, and take turns."""

    def dev_of(self, config, program=DEV):
        return self.serve(STATES.replace("@CONFIG@", config), program=program, listeners=3)

    @staticmethod
    def tcp(server):
        with server.connect(1) as conn:
            return conn.rest().decode()

    @staticmethod
    def udp(server):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(WAIT)
            send_datagram(server, client)
            return client.recv(100).decode()

    @staticmethod
    def websocket(server):
        with WebSocket(server.at(), "/ws") as ws:
            return ws.receive()

    def test_work_is_handed_round(self):
        server = self.dev_of("")
        for what in (lambda: server.get("/a").text, lambda: self.tcp(server), lambda: self.udp(server),
                     lambda: self.websocket(server)):
            seen = [what() for _ in range(6)]
            self.assertEqual(len(set(seen)), 3, seen)
            for before, after in zip(seen, seen[1:]):
                self.assertNotEqual(before, after, seen)

    def test_a_path_changes_its_state_whatever_else_is_requested(self):
        """A page with two files makes three requests: each visit must be answered by another state than the last."""
        for others in range(4):
            server = self.dev_of("")
            seen = []
            for _ in range(4):
                seen.append(server.get("/a").text)
                between = [server.get("/b").text for _ in range(others)]
                if between:
                    self.assertNotEqual(seen[-1], between[0])
            for before, after in zip(seen, seen[1:]):
                self.assertNotEqual(before, after, seen)
            server.stop()

    def test_the_number_of_states(self):
        for config, count in (("ls.config{ states = 1 }", 1), ("ls.config{ states = 2 }", 2),
                              ("ls.config{ states = 5 }", 3), ("ls.config{ threads = 1 }", 3)):
            server = self.dev_of(config)
            self.assertEqual(len({server.get("/a").text for _ in range(7)}), count, config)
            server.stop()


class SharedByAll(Dev):
    """Warnings of variables outside of app:get. One site for each, which names the line 'HERE'."""

    def warns(self, site, act, name, listeners=1, request=False, once=False):
        site = 'local ls = require "luaserve"\nlocal app = ls.app()\n' + site
        if "ls.listen" not in site:
            site += '\nls.listen{ host = "127.0.0.1", port = 0, handler = app }\n'
        line = [n for n, text in enumerate(site.splitlines(), 1) if "HERE" in text][0]
        server = self.serve(site, program=DEV, listeners=listeners)
        act(server)
        server.wait_log(r"warn \S*site\.lua:%d: changes %s, of which.*one\. Use %s" % (
            line, name, r"req\." + name + " = " if request else "each_state = true in" if once else r"ls\.dict or"))
        self.assertEqual(len(server.warnings()), 1)
        server.stop()

    def test_a_websocket(self):
        def talk(server):
            with WebSocket(server.at(), "/ws") as ws:
                ws.send("x")
                ws.receive()
        for event in ("open = function(ws) n = n + 1 ws:send('') --HERE\nend",
                      "message = function(ws) n = n + 1 ws:send('') --HERE\nend",
                      "message = function(ws) ws:send('') end, close = function() n = n + 1 --HERE\nend"):
            self.warns("local n = 0\napp:ws('/ws', { %s })" % event, talk, "n")
        self.warns("local n = 0\napp:ws('/ws', function(ws)\nfor m in ws:messages() do\nn = n + 1 --HERE\nws:send(m)\nend\nend)",
                   talk, "n")

    def test_a_line_of_tcp(self):
        """The handler has not returned: the comparison is made when it waits for the next line."""
        conns = []

        def talk(server):
            conns.append(server.connect(0))
            conns[-1].send(b"ann\n")
        self.warns("""
local users = {}
ls.tcp({ host = "127.0.0.1", port = 0 }, function(sock)
  for name in sock:lines() do
    users[name] = sock -- HERE
  end
end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }""", talk, "users", listeners=2)
        self.warns("""
names = ""
app:get("/", function() return names end)
ls.tcp({ host = "127.0.0.1", port = 0 }, function(sock)
  for name in sock:lines() do
    names = names .. name -- HERE
  end
end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }""", talk, "the global names", listeners=2)
        for conn in conns:
            conn.close()

    def test_a_datagram(self):
        client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(client.close)
        self.warns("""
local last
ls.udp({ host = "127.0.0.1", port = 0 }, function(data)
  last = data -- HERE
end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }""", lambda server: send_datagram(server, client), "last", listeners=2)

    def test_a_timer_and_a_job(self):
        handler = "app:get('/', function() return { last = last } end)"
        for site in ("ls.every(0.01, function() last = ls.now() --HERE\nend)\n",
                     "ls.subscribe('t', function() last = 1 --HERE\nend) ls.init(function() ls.publish('t', 'x') end)\n",
                     "ls.on('start', function()\nlast = 1\nls.every(60, function() last = 1 --HERE\nend) end)\n",
                     "local function load() last = 1 --HERE\nend\nls.on('start', load) ls.every(60, load)\n"):
            self.warns("local last = 0\n" + site + handler, lambda server: None, "last", once=True)
        self.warns("local last = 0\napp:get('/', function()\nls.spawn(function()\nlast = 1 --HERE\nend)\nreturn 'x' end)",
                   lambda server: server.get("/"), "last", request=True)
        self.warns("local last = 0\napp:get('/', function() ls.after(0, function()\nlast = 1 --HERE\nend) return 'x' end)",
                   lambda server: server.get("/"), "last", request=True)
        self.warns("local secret\nls.init(function()\nsecret = 'x' --HERE\nend)\n"
                   "app:get('/', function() return secret end)", lambda server: None, "secret", once=True)

    def test_a_coroutine(self):
        for make, call in (("wrap", "gen()"), ("create", "select(2, coroutine.resume(gen))")):
            self.warns("local gen = coroutine.%s(function() local n = 0 while true do n = n + 1 coroutine.yield(n) end end)\n"
                       "app:get('/', function()\nreturn { id = %s } --HERE\nend)" % (make, call),
                       lambda server: server.get("/"), "gen", request=True)

    def test_a_module_that_a_handler_requires(self):
        server = self.dev(app_site(r"""
ls.every(0.001, function() require("counts").next() end) -- of the first state alone
app:get("/id", function() return { id = require("mine").next() } end)"""), {
            name + ".lua": "local n = 0\nreturn { next = function()\n  n = n + 1\n  return n\nend }\n" for name in ("mine", "counts")})
        for _ in range(6):
            server.get("/id")
        server.wait_log(r"warn \./mine\.lua:3: changes n, of which each Lua state has its own copy")
        server.stop()
        self.assertEqual(len(server.warnings()), 1)

    def test_a_correct_site_gives_no_warning(self):
        server = self.serve(app_site(r"""
local items = ls.dict("items")
items:add("count", 0)
local page_cache, pool = {}, {} -- of each state
local ticks, subscribers, settings, here, db, step = 0, {}, { a = 1 }, 0, nil, 0
local turn = 0 -- of this state
local function open() db = db or { n = 0 } return db end
ls.every(0.01, function() ticks = ticks + 1 items.tick = ticks end)
ls.init(function() step = step + 1 ls.spawn(function() step = step + 1 items:set("init", step) end) end)
ls.on("start", function() here = here + 1 end)
ls.on("log", function() page_cache.logged = true end)
ls.every({ seconds = 0.01, each_state = true }, function() settings = { a = 2 } end)
ls.subscribe("news", function(m) for ws in pairs(subscribers) do ws:send(m) end end, { each_state = true })
app:use(function(req, res, next) next() if req.path == "/news" then return end res:header("X-Here", here .. settings.a) end)
app:get("/", function() turn = turn + 1 pool[#pool + 1] = open() page_cache.x = turn return { n = items:incr("count") } end)
app:get("/status", function() return 404 end)
app:get("/publish", function() ls.publish("news", "hi") return 204 end)
app:ws("/news", { open = function(ws) subscribers[ws] = true end, close = function(ws) subscribers[ws] = nil end })
ls.tcp({ host = "127.0.0.1", port = 0 }, function(sock) for line in sock:lines() do sock:send(items:incr("lines") .. line) end end)
"""), program=DEV, listeners=2)
        with WebSocket(server.at(1), "/news") as ws, server.connect(0) as conn:
            for n in range(6):
                self.assertEqual(server.get("/", index=1).text, '{"n":%d}' % (n + 1))
                self.assertEqual(server.get("/status", index=1).status, 404)
            conn.send(b"a\n")
            self.assertEqual(conn.take(2), b"1a")
            server.get("/publish", index=1)
            self.assertEqual(ws.receive(), "hi")
        server.wait_log("GET /publish 204")
        server.stop()
        self.assertEqual(server.logged("warn|error"), [])


# A warning is expected at each line with a comment "WARN <text>", and at no other.
RACES = app_site(with_handlers(r"""
local d, jobs, gate = ls.dict("d"), ls.channel("jobs", { capacity = 1 }), ls.semaphore("gate", 1)
local small = ls.dict("small", { size = "4k" })
local users, queues, ids, kept = ls.dict("users"), ls.dict("queues"), ls.dict("ids"), ls.dict("kept", { file = "kept.db" })
local db = ls.sqlite("shop.db")
db:migrate { [[create table stock(id integer primary key, qty integer check (qty >= 0));
  create table sale(item text unique not null, qty); insert into stock values(1, 1000)]],
  "alter table stock add item; alter table stock add at; alter table stock add done; update stock set item = 'tea'",
  "create table seat(name text); create table own(name text primary key); create table score(id integer primary key, n); insert into score values(1, 0)",
  "create table member(id integer primary key, name text not null unique, role text, visit, number integer)" }
d:add("n", 0)
local bearer = require "luaserve.bearer_auth" { tokens = { ["0123456789abcdefgh"] = "ann" } }
local change = ls.check { role = "string?" }

app:use("/session", ls.session { store = ls.dict("sessions") })
GET /session/wrong
  req.session.account = 7 -- WARN sets session.account, which looks like a login, .* ls.session{ login = "account" }, or call
GET /session/right
  req.session.account_id = 7
  req.session:regenerate()
GET /session/user
  req.session.email, req.session.user = "a", 1
GET /coupon/wrong
  local c = d:get("c") or 0
  d:delete("c") -- WARN reads and then removes an entry of the dict "d": another request .* let the result of delete decide
  return "ok" .. c
GET /coupon/assignment
  local c = d.c2
  d.c2 = nil -- WARN reads and then removes an entry of the dict "d"
  return "ok" .. tostring(c)
GET /coupon/flag
  local first = false
  d:update("c3", function(used) -- WARN the function of dict:update changes first, .* its second result
    if not used then first = true end
    return true
  end)
  return first and "ok" or "used"
GET /coupon/result
  local last
  local _, first = d:update("c4", function(used) last = used return true, not used end)
  return first and "ok" or "used" .. tostring(last)
GET /coupon/right
  local c = d:get("c")
  if not d:delete("c") then return "used" end
  return c
app:get("/coupon/locked", function() return gate:with(function() local c = d:get("c")
  d:delete("c")
  return c or "none" end) end)
GET /coupon/alone
  d:delete("alone")
GET /list/wrong
  local list = d:range("q")
  d:delete("q") -- WARN reads and then removes a list of the dict "d": .* take them with lpop, until it returns nil
  return list
GET /list/looks
  local list = d:range("q2")
  return d:delete("q2") and list or "none" -- WARN removes a list of the dict "d"
GET /list/right
  local first = d:range("q3", 1, 1)
  while d:lpop("q3") do end
  return first
GET /set
  d.n = d.n + 1 -- WARN reads and then sets an entry of the dict "d": another request may write it in between: use incr, add, or update, whose function decides
GET /scan/name
  for _, one in pairs(users) do if one == "ada" then return 204 end end
  users:set(tostring(ls.now()), "x") -- WARN reads and then adds an entry to the dict "users" because a loop over it has found none
GET /scan/seats
  if #users:keys() >= 500 then return 204 end
  users:set("seat" .. ls.now(), "x") -- WARN reads and then adds an entry to the dict "users"
GET /scan/blind
  for key, state in pairs(users) do
    if state == "ada" then users:update(key, function() return "busy" end) end
    if state == "x" then users:update(key, function() return "eve" end) end -- WARN updates an entry of the dict "users" that it has read
    if state == "x" then users:update(key, function(old) if old == "x" then return "eve" end return old end) end
  end
GET /scan/take
  for key in pairs(users) do users:update(key, function(old) return nil, old end) end
GET /scan/list
  for key in pairs(queues) do
    local list = queues:range(key)
    if list then queues:delete(key) end -- WARN removes a list of the dict "queues": .* take them with lpop
  end
  queues:rpush("q", 1)
GET /blind/limit
  local left = d:get("points") or 5
  if left < 1 then return 409 end
  d:update("points", function(n) return (n or 5) - 1 end) -- WARN updates an entry of the dict "d" that it has read: .* look at the value
  d:update("points", function(n) if (n or 5) < 1 then return n, false end return (n or 5) - 1, true end)
  d:update("points", function() return 1000 end)
GET /scan/clear
  for _ in pairs(users) do end
  users:clear() -- WARN reads and then clears the dict "users"
GET /ids
  local id = ids:incr("last")
  kept[id] = "x" -- WARN the dict "kept" has a file, and its key is a number of the dict "ids", .* ls.dict\("ids", { file = "kept.db" }\)
  kept:set("key " .. kept:incr("last"), "x")
GET /sql/wrong
  local row = db:one("select * from stock where id = 1")
  local done = db:exec('update "stock" set qty = ? where id = 1', row.qty) -- WARN selects from the table stock and then updates .* "where id = \? and count > 0", .* db:transaction$
  return done and "ok"
GET /sql/joined
  local row = db:query("with a as (select 1) select s.qty from sale join main.stock as s on s.id = sale.qty")
  assert(db:exec("UPDATE or ignore main.stock SET qty = 5 WHERE id = 1")) -- WARN selects from the table stock
  return row
GET /sql/owner
  local row = db:one("select * from stock where id = 1 and item = 'tea'")
  local done = db:exec("update stock set qty = ? where id = 1 and item = 'tea'", row.qty) -- WARN selects from the table stock and then updates
  return done and "ok"
GET /sql/mark
  local row = db:one("select item from stock where id = 1")
  db:exec("update stock set done = 1, at = 'now' where id = 1")
  db:one("select id from stock where done = 0")
  db:exec("update stock set done = 1 where id = 1") -- WARN selects from the table stock and then updates
  return { item = row.item }
GET /sql/below
  local row = db:one("select qty from stock where id = 1")
  if row.qty < 0 then return 204 end
  db:exec("update stock set qty = qty - 1 where id = 1") -- WARN selects from the table stock and then updates
GET /sql/spent
  db:exec("update stock set at = 1, qty = qty - ? where id = 1 and qty >= ?", 0, 0) -- WARN db:exec takes from qty where enough is there, .*changes == 0
  db:transaction(function(tx)
    tx:exec("update stock set qty = qty - 0 where qty > 0") -- WARN tx:exec takes from qty
  end)
  db:exec("update stock set qty = qty + 0 where id = 1 and qty > 0")
  db:exec("update stock set qty = qty - 0 where id > 0")
  if db:exec("update stock set qty = qty - 0 where id = 1 and qty > 0").changes == 0 then return 409 end
GET /sql/counted
  local row = db:one("select id from stock")
  return db:exec("update stock set qty = qty + 1, at = unixepoch() where id = ?", row.id) and "ok"
GET /sql/seat
  if db:one("select count(*) as n from seat").n >= 500 then return 204 end
  db:exec("insert into seat values('x')") -- WARN selects from the table seat and then inserts into it .*count
GET /sql/name
  if db:one("select 1 as x from seat where name = 'y'") then return 204 end
  db:exec("insert into seat values('y')") -- WARN selects from the table seat and then inserts into it .*unique
GET /sql/key
  if db:one("select 1 as x from own where name = 'y'") then return 204 end
  db:exec("insert into own values('y') on conflict do nothing")
  if db:one("select 1 as x from own where name = 'z'") then return 204 end
  db:exec("insert into own(name) values('z')")
GET /sql/job
  local row = db:one("select min(id) as id from stock")
  db:exec("delete from stock where id = -?", row.id) -- WARN selects from the table stock and then deletes from it .*changes
  if db:exec("delete from stock where id = -?", row.id).changes == 0 then return 204 end
app:get("/sql/user", function(req, _, next)
  req.row = db:one("select * from stock where id = 1")
  return next()
end, function(req)
  return { done = db:exec("update stock set qty = ? where id = 2", 5).changes, id = req.row.id }
end)
GET /sql/zero
  if not db:delete("stock", { id = 99 }) then return 404 end -- WARN db:delete returns a number, and 0 is true in Lua
  if db:update("stock", { qty = 1 }, { id = 99 }) == 0 then return 204 end
app:get("/sql/first", function(req) -- the key of another column does not protect the role
  local n = db:one("select count(*) as n from member").n
  db:insert("member", { name = ls.crypto.uuid(), role = n == 0 and "admin" or "user" }) -- WARN selects from the table member and then inserts into it
  if db:one("select count(*) as n from member").n == 0 then return 204 end
  db:exec("insert into member(name) values(?)", ls.crypto.uuid()) -- WARN selects from the table member and then inserts into it
  return 204
end)
GET /sql/taken
  local name = ls.crypto.uuid()
  if db:one("select count(*) as n from member where name = ?", name).n > 0 then return 204 end
  db:insert("member", { name = name })
  local count = db:one("select count(*) as n from sale").n
  db:exec("insert into sale(item) values(?)", ls.crypto.uuid())
  return { count = count }
GET /sql/next
  local n = db:one("select coalesce(max(number), 0) + 1 as n from member").n
  db:insert("member", { name = ls.crypto.uuid(), number = n }) -- WARN selects from the table member and then inserts into it
app:get("/sql/login", function() -- what the update sets does not depend on what was read
  local user = db:one("select * from member order by id limit 1")
  if not user then return 204 end
  db:exec("update member set visit = ? where id = ?", os.time(), user.id)
  db:update("member", { role = "x" }, { id = user.id, name = user.name })
  return 204
end)
GET /sql/returning
  local row = db:one("select * from stock where id = 1")
  row = db:one("update stock set qty = ? where id = 1 returning qty", row.qty) -- WARN selects from the table stock and then updates
  return row
GET /ttl
  local n = d:get("tokens") or 50
  d:set("tokens", n, 60)
  d:set("tokens", n - 1, 60) -- WARN reads and then sets an entry of the dict "d"
GET /path/wrong
  if not req.query.never then return 204 end
  local name = req.params.name
  local file = io.open("notes/" .. name) -- WARN the path of io.open has what the client sends, .*: write ls.safe_join
  if req.query.name then ls.file.write("notes/" .. req.query.text, "x") end -- WARN the path of ls.file.write has what the client sends
  if not file then return 204 end
  return res:file(req.query.file) -- WARN the client chooses the file that res:file sends
app:get("/path/whole", function(req, res) return req.query.x and res:file("." .. req.path) or 204 end) -- WARN the client chooses the file
GET /path/right
  local name, id = req.params.name, tonumber(req.query.id)
  if name and name:find("^%w+$") then io.open("notes/" .. name) end
  local path = ls.safe_join("notes", req.query.path or "x")
  if path then io.open(path) end
  if id then io.open("notes/" .. id) end
  local file = req.query.file
  if file == "a" then ls.file.read("notes/" .. file) end
  if req.query.sent then return res:file("notes/" .. req.query.sent) end
  if file == "b" then return res:file(req.query.other, { root = "notes" }) end
GET /twins
  local twins = ls.dict("twins")
  twins:set(5, "five")
  local text = twins:get("5") -- WARN the dict "twins" has the key 5, and not the key "5"
  twins:set("7", "seven")
  twins:delete(7) -- WARN the dict "twins" has the key "7", and not the key 7
  return { twins:get(5), twins:get("7"), twins:get(8), twins:get("8"), twins:get("05"), twins:get("5x"), #twins, text }
GET /guard/called
  bearer(req, res, function() end) -- WARN continues after bearer has refused the request at luaserve.bearer_auth
app:get("/guard/returned", function(req, res, next) return bearer(req, res, next) and 204 end)
GET /conditions
  local list, done = {}, db:exec("delete from seat where name = 'none'")
  if #list then list = nil end -- WARN the condition #list is a number, and 0 is true in Lua
  if done.changes then done = nil end -- WARN the condition done.changes is a number
  if not db:exec("delete from seat where name = 'none'").changes then return 404 end -- WARN is a number, and 0 is true in Lua
  if db:exec("delete from seat where name = ''") then done = 1 end -- WARN is a table, also when nothing has changed
  if req.query.token and db:query("select 1 as x from seat where name = 'none'") then done = 2 end -- WARN is a list, which is true also without rows
  if db:one("select count(*) as n from seat") then done = 3 end -- WARN is a row also for a count of 0
  if d:llen("none") then done = 4 end -- WARN the condition d:llen.* is a number
GET /conditions/right
  local list, done = {}, db:exec("delete from seat where name = 'none'")
  if #list > 0 or done.changes == 1 or d:llen("none") > 0 then return 404 end
  if db:query("select 1 as x from seat where name = 'none'")[1] then return 404 end
  if db:exec("delete from seat where name = ''").changes > 0 and #list ~= 1 then return 404 end
  if db:one("select count(*) as n from seat").n < 0 or not db:one("select 1 as x") then return 404 end
  local n = #list and 1
  return { n = n, changes = done.changes }
app:post("/mass", function(req)
  db:insert("member", req:json()) -- WARN insert takes all fields that the client has sent
  return { title = req:body().title } -- WARN req:body.* is a text, which has no fields
end)
app:post("/mass/right", function(req)
  db:insert("member", req:json { name = "string" })
  return 204
end)
app:patch("/check", function(req) return req:json(change) end)
GET /sse/wait
  local sse = res:sse()
  sse:send("x")
  sse:wait(0.01)
GET /sql/condition
  local row = db:one("select * from stock where id = 1")
  local done = assert(db:exec("update stock set qty = qty - 1 where id = 1 and qty > 0"))
  return done.changes == 1 and "ok" .. row.qty or 409
GET /sql/other
  local row = db:one("select * from stock where id = 1")
  assert(db:exec("update sale set qty = 1 where item = ?", "x"))
  assert(db:exec("insert into stock(qty) values(5)"))
  return "ok" .. row.qty
GET /sql/transaction
  return assert(db:transaction(function(tx)
    local row = tx:one("select * from stock where id = 1")
    tx:exec("update stock set qty = ? where id = 1", row.qty + 1)
    return "ok"
  end))
GET /sql/outside
  local row = db:one("select * from stock where id = 1")
  db:transaction(function(tx)
    tx:exec("update stock set qty = ? where id = 1", row.qty) -- WARN selects from the table stock and then updates .* or use tx for the select as well
  end)
  db:transaction(function(tx)
    if tx:one("select qty from stock where id = 1").qty < 1 then return false end
    tx:exec("update stock set qty = ? where id = 1", row.qty)
  end)
  local n = db:transaction(function(tx) return tx:one("select qty from stock where id = 1").qty end)
  db:exec("update stock set qty = ? where id = 1", n) -- WARN selects from the table stock and then updates
GET /sql/equal
  local row = db:one("select * from stock where id = 1")
  if row.qty == 0 then return 204 end
  db:exec("update stock set qty = qty - 1 where id = 1") -- WARN selects from the table stock and then updates
  if db:one("select qty > 0 as left from stock where id = 1").left == 0 then return 204 end
  db:exec("update stock set qty = qty - 1 where id = 1") -- WARN selects from the table stock and then updates
  if not db:one("select 1 as x from stock where id = 1 and qty > 0") then return 204 end
  db:exec("update stock set qty = qty - 1 where id = 1") -- WARN selects from the table stock and then updates
  row = db:one("select done from stock where id = 1")
  if row.done == 5 then return 204 end
  db:exec("update stock set qty = qty + 1 where id = 1")
  if db:one("select count(*) < 500 as left from seat").left == 0 then return 204 end
  db:exec("insert into seat values('x')") -- WARN selects from the table seat and then inserts into it
GET /sql/upsert
  local row = db:one("select id, n from score where id = 1")
  db:exec("replace into score(id, n) values(1, ?)", row.n) -- WARN selects from the table score and then replaces a row of it .*on conflict
  local n = db:one("select n from score where id = 1").n
  db:exec("insert or replace into score values(1, ?)", n) -- WARN selects from the table score and then replaces
  db:exec("insert into score(id, n) values(1, ?) on conflict (id) do update set n = excluded.n", n) -- WARN selects from
  db:exec("insert into score(id, n) values(1, 1) on conflict (id) do update set n = score.n + excluded.n")
  db:exec("insert or replace into score(id, n) values(?, 5)", row.id)
  db:exec("replace into score(id, n) values(1, ?)", 5)
  return { n = n }
GET /sql/committed
  local status = db:transaction(function(tx)
    tx:exec("update stock set qty = 7")
    if tx:one("select 1 as x") then return 409, "sold out" end -- WARN the function of a transaction has returned the status 409, and the transaction was committed: return nil
  end)
  assert(status == 409)
  local count = db:transaction(function(tx)
    return tx:exec("update stock set qty = 7").changes, "rows"
  end)
  return "ok" .. count
GET /unused/process
  ls.process({ "no-such-program" }) -- WARN ls.process has returned nil: cannot start no-such-program
  ls.process { "false" } -- WARN a program of ls.process has failed with the exit status 1|ls.process has returned nil
  if ls.process { "false" } then ls.process { "true" } end -- WARN a program of ls.process has failed|returned nil
app:get("/unused/oneline", function() ls.file.write("none/b", "x") return "ok" end) -- WARN ls.file.write has returned nil
GET /unused/transaction
  db:transaction(function() return nil, "no", "EINVAL" end) -- WARN db:transaction has returned nil: no
  db:transaction(function() return nil, "sold out" end) -- WARN db:transaction has returned nil: sold out
GET /unused/job
  local job = ls.spawn(ls.file.write, "none/a", "x")
  job:wait() -- WARN job:wait has returned nil: none/a: not found
  ls.file.mkdir("none/a/b") -- WARN ls.file.mkdir has returned nil
GET /unused/write
  ls.file.write("none/a", "x") -- WARN ls.file.write has returned nil: none/a: not found
GET /unused/send
  jobs:send("x", 0)
  jobs:send("y", 0) -- WARN jobs:send has returned nil: full; look at its results
GET /unused/fetch
  ls.fetch("http://127.0.0.1:@PORT@/", { timeout = 5 }) -- WARN ls.fetch has returned nil: .*refused
GET /unused/set
  small.text = "x"
  small:incr("text") -- WARN small:incr has returned nil: the value of "text" is not a number
GET /used
  local ok, message, code = ls.file.write("none/a", "x")
  if not ls.file.write("none/a", "x") then ls.log.info("refused", message, code) end
  local list = { ls.file.write("none/a", "x"),
    ls.file.write("none/a", "x") }
  local text =
    select(2, ls.file.write("none/a", "x"))
  pcall(function() assert(ls.file.write("none/a", "x")) end)
  ls.file.remove("none")
  d:add("n", 1)
  if not d:add("n", 1) then small:set("y", 1) end
  if d:add("n", 1) then d:incr("o") end
  local function send(...) return ... end
  local other = { send = send }
  other.send(small:incr("text"))
  jobs:receive(0.01)
  return tostring(ok) .. #list .. #text
"""))


# The same, by tasks that are no requests: they run when the test connects, and again and again.
BESIDE = app_site(with_handlers(r"""
local d, hits, own, old, gate = ls.dict("d"), ls.dict("hits"), ls.dict("own"), ls.dict("old"), ls.semaphore("gate", 1)
local done, jobs, taken, moved = ls.dict("done"), ls.channel("jobs"), ls.dict("taken"), ls.dict("moved")
local db = ls.sqlite(":memory:")
db:migrate { "create table stock(id integer primary key, qty); insert into stock values(1, 0); create table mail(sent); create table post(sent)" }

local function job(key)
  local n = d:get(key) or 0
  ls.sleep(0)
  d:set(key, n + 1) -- WARN reads and then sets an entry of the dict "d"
end
ls.tcp({ host = "127.0.0.1", port = 0 }, function(sock)
  for line in sock:lines() do
    if line == "get" then
      sock:send(tostring(d.tcp) .. "\n")
    elseif line == "set" then
      d.tcp = 1
      sock:send("set\n")
    else
      d.lines = (d.lines or 0) + 1 -- WARN reads and then sets an entry of the dict "d"
      ls.spawn(function()
        local row = db:one("select * from stock where id = 1")
        assert(db:exec("update stock set qty = ? where id = 1", row.qty)) -- WARN selects from the table stock and then updates
        done:incr("job")
        ls.file.write("none/x", "x") -- WARN ls.file.write has returned nil: .*; look at its results
      end)
      sock:send("counted\n")
      ls.file.write("none/x", "x") -- WARN ls.file.write has returned nil: .*; look at its results
    end
  end
end)
ls.every(0.05, function()
  ls.file.write("none/x", "x") -- WARN ls.file.write has returned nil: .*; look at its results
end)
ls.subscribe("t", function()
  ls.file.write("none/x", "x") -- WARN ls.file.write has returned nil: .*; look at its results
end)
ls.init(function() ls.publish("t", "x") end)
ls.udp({ host = "127.0.0.1", port = 0 }, function()
  local n = d:get("udp") or 0
  ls.file.write("none/x", "x") -- WARN ls.file.write has returned nil: .*; look at its results
  d:set("udp", n + 1) -- WARN reads and then sets an entry of the dict "d"
  return "counted"
end)
app:ws("/events", { message = function(ws, text)
  if text == "get" then
    ws:send(tostring(d:get("event")))
  elseif text == "set" then
    d:set("event", 1)
    ws:send("set")
  else
    ls.file.write("none/x", "x") -- WARN ls.file.write has returned nil: .*; look at its results
    d:set("events", (d:get("events") or 0) + 1) -- WARN reads and then sets an entry of the dict "d"
    ws:send("counted")
  end
end })
app:ws("/loop", function(ws)
  for text in ws:messages() do
    if text == "get" then
      ws:send(tostring(d:get("loop")))
    elseif text == "set" then
      d:set("loop", 1)
      ws:send("set")
    else
      ls.file.write("none/x", "x") -- WARN ls.file.write has returned nil: .*; look at its results
      d:set("loops", (d:get("loops") or 0) + 1) -- WARN reads and then sets an entry of the dict "d"
      ws:send("counted")
    end
  end
end)
GET /spawn
  ls.spawn(job, "spawned"):wait()
GET /after
  ls.after(0, function()
    d.late = (d.late or 0) + 1 -- WARN reads and then sets an entry of the dict "d"
    done:incr("after")
  end)
GET /hit
  hits:incr("page")
  hits:incr("other")
  taken:incr("page", 2)
  for _, key in ipairs { "wrong", "right", "looks" } do moved:incr(key, 2) end
  own:set("setting", 2)
  own:set("aged", ls.now())
  old:set("pending", true)
  jobs:send("hit")

-- Timers and jobs of the server run once at a time: they race with what others write.
ls.every(0.005, function()
  for key, n in pairs(hits) do
    if key == "page" and n > 0 then hits:delete(key) end -- WARN reads and then removes an entry of the dict "hits": what others count in between is lost: take it with update, whose function returns nil, n
  end
end)
ls.every(0.005, function()
  local n = hits:get("other")
  hits.other = nil -- WARN reads and then removes an entry of the dict "hits": what others count
  return n
end)
ls.every(0.005, function()
  for key, n in pairs(taken) do
    if n > 0 then taken:incr(key, -n) end -- WARN subtracts from the dict "taken" what it has read: .*"drain".* take it with update
  end
  for key in pairs(moved) do
    local n = moved:get(key)
    if key == "wrong" then moved:incr(key, -n) end -- WARN subtracts from the dict "moved" what it has read
    if key == "right" then moved:update(key, function(count) return nil, count end) end
    if key == "looks" and moved:incr(key, -n) < 0 then moved:incr(key, n) end
  end
end)
ls.every(0.005, function()
  if old.pending then old.pending = nil end -- WARN reads and then removes an entry of the dict "old"
  own.ticks = (own.ticks or 0) + 1 -- the only one that writes it
  for key, at in pairs(own) do
    if key == "aged" and at < ls.now() - 60 then own:delete(key) end
  end
  for key, n in pairs(done) do done:incr(key, n - n) end
  assert(db:query("select * from mail"))
  assert(db:exec("update mail set sent = 1"))
  done:incr("ticks")
end)
ls.every({ seconds = 0.005, each_state = true }, function()
  d.states = (d.states or 0) + 1 -- WARN reads and then sets an entry of the dict "d"
end)
ls.on("start", function() -- workers, one in each state
  assert(db:query("select * from post"))
  assert(db:exec("update post set sent = 1")) -- WARN selects from the table post and then updates
end)
ls.init(function()
  own.started = (own.started or 0) + 1
  ls.spawn(function()
    for _ in jobs:values() do own.jobs = (own.jobs or 0) + 1 end
  end)
end)

-- A limit is passed when several have read the number before one of them counts.
GET /limit
  if (d:get("sold") or 0) < 1000 then
    d:incr("sold") -- WARN changes the dict "d" because what it has read is within a limit: .* Let the result of incr decide
  end
GET /limit/line
  if (d:get("line") or 0) < 1000 then ls.sleep(0) d:incr("line") end -- WARN changes the dict "d" because
GET /limit/name
  local left = d:get("left") or 5
  ls.sleep(0)
  if left <= 0 then return 409 end
  d:incr("left", -1, 5) -- WARN changes the dict "d" because
GET /limit/entries
  if #own > 1000 then return 409 end
  own:set(ls.crypto.token(), true) -- WARN changes the dict "own" because
GET /limit/first
  local id = ls.crypto.token()
  own:set(id, #own == 0 and "admin" or "user") -- WARN changes the dict "own" because
  local first = own:len() == 0
  own:set(ls.crypto.token(), first) -- WARN changes the dict "own" because
  if #own == 0 then return 409 end
  own:set(ls.crypto.token(), true)
  if #own == 0 then ls.log.info("the first") end
  own:set(ls.crypto.token(), true)
GET /limit/equal
  if (d:get("tickets") or 5) == 0 then return 409 end
  d:incr("tickets", -1, 5) -- WARN changes the dict "d" because
  local n = d:get("seats") or 0
  if n == 1000 then return 409 end
  d:incr("seats") -- WARN changes the dict "d" because
  local m = d:get("marks") or 0
  if m == 1 then ls.log.info("one") end
  d:incr("marks")
  if d.calls == 7 then return 409 end
  d:incr("calls") -- WARN changes the dict "d" because
  if old:llen("empty") == 0 then return "empty" end
  old:rpush("empty", 1)
GET /limit/len
  local count = own:len()
  if count < 1000 then own:incr(ls.crypto.token()) end -- WARN changes the dict "own" because
GET /limit/list
  if old:llen("list") < 1000 then old:rpush("list", 1) end -- WARN changes the dict "old" because
GET /limit/right
  local before = d:get("shown") or 0
  local now = d:incr("shown")
  d:incr("shown2", before > 5 and 1 or 2)
  if (d:get("r") or 0) >= 1000 then return 409 end
  if d:incr("r") > 1000 then
    d:incr("r", -1)
    return 409
  end
  if (d:get("load") or 0) > -1 then own:incr("busy") d:incr("refused") end
  gate:with(function()
    if (d:get("locked") or 0) < 10 then d:incr("locked") end
  end)
  if (d:get("u") or 0) < 10 then d:update("u", function(n) return (n or 0) < 10 and (n or 0) + 1 or n end) end
  if old:rpush("log", "x") > 10 then old:lpop("log") end
  if old:llen("long") > -1 then old:delete("long") end
  local const <const> = d:get("const")
  local page = [[<p>]] .. (d:get("const") or "none")
  d:incr("const")
  ls.log.debug(const, page)
  return "a <" .. before .. now
GET /limit/shown
  local n = d:get("views") or 0
  if n > 1000 then
    ls.log.info("many")
  end
  d:incr("views")
  return "a <" .. n
"""))


class Races(E2E):
    def test_lists_that_are_none_in_json(self):
        server = self.serve(app_site("""
app:get("/rows/:n", function(req) return { rows = req.params.n == "0" and {} or { 1 }, fine = ls.json.array {} } end)
app:get("/ids", function() return { [7] = "x" } end)
app:get("/gap", function() return 200, { rows = { "a", [3] = "c" } } end)
app:get("/checked", { query = { n = "integer" } }, function(req) return { ids = req.query.n == 0 and {} or { 1 } } end)
"""), program=(LUASERVE, "dev"))
        for path in ("/rows/0", "/rows/1", "/ids", "/gap", "/checked?n=0", "/checked?n=1"):
            self.assertEqual(server.get(path).status, 200)
        for text in (r"site.lua:7: the field ids is a list in one", r"site.lua:4: the field rows is a list in one response and empty in another", "site.lua:5: the result has integers",
                     "site.lua:6: the field rows has integers with gaps"):
            server.wait_log(text)
        self.assertEqual(len(server.warnings()), 4, server.log())

    def check_warnings(self, server, site):
        found = {}
        for line in server.logged("warn|error"):
            place = re.search(r"site\.lua:(\d+): (.*)", line)
            found.setdefault(int(place.group(1)) if place else 0, []).append(line)
        found.pop(0, None)  # the dict that is full
        wanted = {n: m.group(1) for n, m in enumerate((re.search("-- WARN (.*)", line) for line in site.split("\n")), 1) if m}
        self.assertEqual(sorted(found), sorted(wanted), found)
        for n, text in wanted.items():
            self.assertEqual(len(found[n]), 1, found[n])
            self.assertRegex(found[n][0], text)

    def test_tasks_beside_requests(self):
        server = self.serve(BESIDE, program=DEV, listeners=2)
        with server.connect(0) as conn, WebSocket(server.at(1), "/events") as events, WebSocket(server.at(1), "/loop") as loop, \
                socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.settimeout(WAIT)
            for text in ("get", "set", "count") * 2:
                conn.send(text.encode() + b"\n")
                conn.line()
                for ws in (events, loop):
                    ws.send(text)
                    ws.receive()
                send_datagram(server, client)
                client.recv(100)
        paths = re.findall(r'app:get\("([^"]+)"', BESIDE)
        for path in paths * 2:
            self.assertIn(server.get(path, index=1).status, (200, 204), path)
        wanted = {n for n, line in enumerate(BESIDE.split("\n"), 1) if "-- WARN" in line}

        def all_found():  # a timer sees the writes of the requests to its own state, and then races with them
            server.get("/hit", index=1)
            return all(server.logged(r"warn \S*site\.lua:%d: " % n) for n in wanted)
        self.eventually(all_found, "the warnings")
        server.stop()
        self.check_warnings(server, BESIDE)

    def test_each_line_that_works_by_hand_only_and_no_other(self):
        site = RACES.replace("@PORT@", str(free_port()))
        if WINDOWS:  # where "false" is no program, and its nil is looked at
            site = re.sub(r"(if ls.process .* end) -- WARN.*", r"\1", site)
        server = self.serve(site, program=DEV)
        for path in re.findall(r'app:get\("([^"]+)"', site) * 2:
            self.assertIn(server.get(path).status, (200, 204), path)
        for _ in range(4):  # the states share a check, which notes that it has seen a PATCH
            with server.connect() as conn:
                self.assertEqual(conn.ask("PATCH", "/check", [("Content-Type", "application/json")], body=b"{}").status, 200)
        server.wait_log("GET /used 200", count=2)
        server.stop()
        self.check_warnings(server, site)

    def test_one_state_is_in_order_unless_the_request_waits(self):
        server = self.serve(r"""
local ls = require "luaserve"
ls.config{ states = 1 }
local app, d = ls.app(), ls.dict("d")
app:get("/at-once", function()
  local c = d:get("c")
  d:delete("c")
  return c or "none"
end)
app:get("/later", function()
  local c = d:get("c")
  ls.sleep(0)
  d:delete("c")
  return c or "none"
end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
""", program=DEV)
        for path in ("/at-once", "/later"):
            self.assertEqual(server.get(path).text, "none")
        server.wait_log("GET /later 200")
        server.stop()
        self.assertRegex("\n".join(server.logged("warn|error")), r"^\S+ warn \S*site\.lua:13: reads and then removes [^\n]*$")


class Assets(Dev):
    FILES = SITE.replace("ls.listen", """
app:static("/files", "public")
app:get("/file", function(_, res) return res:file("page.html") end)
app:get("/page", function(_, res) res:html("<html><body></body></html>") end)
ls.listen""", 1)

    def events(self, server):
        version = SCRIPT.search(server.get("/page").text).group(0).split("?")[1].split('"')[0]
        conn = self.connect(server=server)
        conn.send(("GET /__dev/events?seen=%s HTTP/1.1\r\nHost: h\r\n\r\n" % version).encode())
        conn.response_head()
        return conn

    @staticmethod
    def await_event(conn, name):
        text = b""
        while b"event: %s\n" % name not in text:
            text += conn.take(1)

    def test_a_file_that_was_sent(self):
        server = self.dev(self.FILES, {"public/style.css": "a", "public/app.js": "a", "page.html": "a"})
        for target, name in (("/files/app.js", "public/app.js"), ("/file", "page.html")):
            self.assertEqual(server.get(target).text, "a")
            conn, mark = self.events(server), server.mark()
            self.write(name, "b")
            self.await_event(conn, b"change")
            server.wait_log(r"dev: \S*%s has changed: pages load again$" % os.path.basename(name), mark)
            self.assertEqual(server.get(target).text, "b")  # at once, whatever the cache of files says
            self.assertEqual(server.logged("reloaded ", mark), [])

    def test_a_style_sheet(self):
        server = self.dev(self.FILES, {"public/style.css": "a"})
        server.get("/files/style.css")
        conn = self.events(server)
        self.write("public/style.css", "b")
        server.wait_log(r"dev: \S*public/style\.css has changed: pages load their style sheets again$")
        self.await_event(conn, b"style")
        self.assertEqual(server.get("/files/style.css").text, "b")
        self.assertIn("stylesheet", server.get("/__dev/reload.js").text)
        self.change(server, lambda: self.write("site.lua", self.FILES + "-- changed"))  # the stream still waits for this
        self.await_event(conn, b"change")
        self.write("public/style.css", "c")  # is watched after a reload, too
        server.wait_log(r"pages load their style sheets again$", count=2)

    def test_a_file_that_was_not_sent(self):
        server = self.dev(self.FILES, {"public/style.css": "a", "public/other.txt": "a"})
        server.get("/files/style.css")
        mark = server.mark()
        self.write("public/other.txt", "b")
        self.write("public/style.css", "b")  # the end of the wait
        server.wait_log("has changed", mark)
        self.assertEqual(len(server.logged("has changed", mark)), 1)


class Command(E2E):
    def test_usage(self):
        for arguments, status, text in ((("dev", "--help"), 0, "usage: luaserve dev"),
                                        (("dev",), 2, "usage: luaserve dev [options] site.lua"),
                                        (("dev", "-"), 2, "standard input"),
                                        (("dev", "-e", "x"), 2, "unknown option -e"),
                                        (("dev", "--check", "x"), 2, "unknown option --check"),
                                        (("dev", "--editr=x", "y"), 2, "did you mean --editor?"),
                                        (("dev", "--editor", "vi", "y"), 2, '--editor: invalid value "vi": must be a URL with {file}, such as '),
                                        (("--editor=x", "y"), 2, "unknown option --editor")):
            done = subprocess.run([LUASERVE, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=WAIT, check=False)
            self.assertEqual(done.returncode, status, arguments)
            self.assertIn(text, done.stdout.decode(), arguments)

    def test_help_lists_it(self):
        done = subprocess.run([LUASERVE, "--help"], stdout=subprocess.PIPE, timeout=WAIT, check=True)
        self.assertRegex(done.stdout.decode(), r"(?m)^  dev +serve a site, reload it")


class Editor(Dev):
    def test_links(self):
        self.port = 0
        with scratch() as folder:
            path = os.path.join(folder, "site.lua")
            write_text(path, PAGES.replace("@PORT@", "0").replace('app:static("/files", "public")', ""))
            server = self.serve(None, program=(*DEV, "--editor", "edit://open?file={file}&line={line}"), site_path=path)
            line = PAGES.splitlines().index("  return missing.field") + 1
            self.assertIn('href="edit://open?file=%s&amp;line=%d"' % (path, line), server.get("/fail", HTML).text)


@needs_terminal
class Colors(Dev):
    def lines(self, env):
        self.port = free_port()
        self.folder = tempfile.mkdtemp(prefix="luaserve-dev-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.write("site.lua", SITE)
        master, slave = pty.openpty()
        environment = dict(os.environ)
        environment.update(env)
        process = subprocess.Popen([*DEV, "site.lua"], cwd=self.folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=slave, env=environment)
        try:
            os.close(slave)
            text = b""
            while b"watching" not in text:
                text += os.read(master, 4096)
            with Conn(("127.0.0.1", self.port)) as conn:
                conn.get("/")
                conn.get("/missing")
            while text.count(b" ms") < 2:
                text += os.read(master, 4096)
        finally:
            process.terminate()
            process.wait(WAIT)
            os.close(master)
        return text

    def test_a_terminal(self):
        text = self.lines({})
        self.assertRegex(text, rb"GET / \x1b\[32m200\x1b\[0m\x1b\[2m \d+\.\d ms\x1b\[0m")
        self.assertRegex(text, rb"GET /missing \x1b\[33m404\x1b\[0m")

    @not_on_windows("the console of Wine moves its cursor with escape sequences")
    def test_no_color(self):
        self.assertNotIn(b"\x1b", self.lines({"NO_COLOR": "1"}))
        self.assertNotIn(b"\x1b", self.lines({"TERM": "dumb"}))


LIVE = r"""
local ls = require "luaserve"
local app = ls.app()
app:get("/", function(_, res)
  res:html([[<html><body><h1>first</h1><script>fetch("/seen/" + document.querySelector("h1").textContent)</script></body></html>]])
end)
app:get("/seen/:text", function() return 204 end)
ls.listen{ host = "127.0.0.1", port = @PORT@, handler = app }
"""


@needs_browser
class InBrowser(Dev):
    def browse(self, path):
        browser = Browser()
        self.addCleanup(browser.close)
        return browser.page("http://127.0.0.1:%d%s" % (self.port, path))

    def test_the_page_reloads_itself(self):
        server = self.dev(LIVE)
        self.browse("/")
        server.wait_log("GET /seen/first 204")
        self.write("site.lua", LIVE.replace("first", "second"))
        server.wait_log("GET /seen/second 204")
        mark = server.mark()
        self.write("site.lua", LIVE.replace('res:html', 'res:hmtl'))  # the handler fails
        server.wait_log("GET / 500", mark)
        mark = server.mark()
        self.write("site.lua", "local x = = 1")  # the site does not load
        server.wait_log("GET / 500", mark)
        self.write("site.lua", LIVE.replace("first", "third"))
        server.wait_log("GET /seen/third 204")
