"""ls.templates and res:render: values never become markup, errors name the template, includes stay in the folder."""
# sanitizers: asan; no thread starts
import html.parser
import json
import os
import re
import urllib.parse

from harness import E2E, LUASERVE, app_site, not_on_windows
from harness.browser import Browser, needs_browser
from harness.server import write_text

SITE = app_site(r"""
local views = ls.templates("views", { globals = { encode = ls.url.encode } })
app:post("/odd", function(req, res) return res:render("odd.html", { v = req:body() }) end)
app:get("/include", function(req, res) return res:render("include.html", { name = req.query.name }) end)
app:get("/waits", function(req, res)
  return res:render("waits.txt", { wait = function() ls.sleep(0.02) return "<waited>" end })
end)
app:get("/text", function() return views:render("include.html", { name = "part.html" }) end)
app:get("/none", function(req, res) return res:render("none.html") end)
app:get("/type", function(req, res) return res:render("type.html") end)
app:get("/table", function(req, res) return res:render("user.html", { user = { name = "ada" } }) end)
app:get("/own", function(req, res) return res:render("part.html", { layout = "grid" }) end)
app:get("/fails", function(req, res) return res:render("fails.html") end)
app:get("/loops", function(req, res) return res:render("loops.html") end)
app:get("/status", function(req, res)
  res:status(422)
  return res:render("part.html")
end)
app:get("/later", function() local late = ls.templates("views") return late end)
""")

VIEWS = {
    "odd.html": """<!doctype html><p id="text">{{v}}</p><p id="quoted" title="{{v}}" class='{{v}}'>x</p>
<a id="link" href="/items?q={{encode(v)}}&amp;page=1">x</a>
{% layout = "frame.html" %}{-aside-}<i id="block">{{v}}</i>{-aside-}{(part.html)}
""",
    "frame.html": "<main>{*view*}</main>{*blocks.aside*}",
    "part.html": '<b id="part">{{v}}</b>',
    "include.html": "{[name]}",
    "waits.txt": "{{wait}} {*wait()*} {% wait() %}{(part.html, { v = wait })}",
    "type.html": "\n{{type}}",
    "user.html": "\n\n{{user}}",
    "loops.html": "<p>\n{% for _, x in ipairs(items) do %}{{x}}{% end %}\n",
    "fails.html": "<p>\n{% local user = nil %}\n{{user.name}}\n",
}

TAGS = [["main", []], ["p", ["id"]], ["p", ["id", "title", "class"]], ["a", ["id", "href"]], ["b", ["id"]], ["i", ["id"]]]

# Values that break out of a place in a page that does not escape them.
ODD = [
    "<script>alert(1)</script>", "</p><script>alert(1)</script>", "\"><script>alert(1)</script>", "'><img src=x onerror=alert(1)>",
    "\" onmouseover=\"alert(1)", "' onmouseover='alert(1)", "\" autofocus onfocus=alert(1) x=\"", "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>", "<svg><script>alert(1)</script></svg>", "<!--", "-->", "--!><script>x</script>", "<![CDATA[", "]]>",
    "<?php ?>", "<!doctype html>", "</main>", "</body></html>", "<iframe srcdoc='<script>x</script>'>", "<a href=javascript:x>",
    "javascript:alert(1)", "data:text/html,<script>x</script>", "&lt;script&gt;", "&#60;script&#62;", "&amp;", "&", "&&&", "&copy", "&quot;>",
    "\"", "'", "`", "\"'`<>&", "a b", " a ", "a\tb", "a=b", "a&b=c", "#a", "?a=1", "/../..", "//evil.example", "\\", "\\\"", "\\u003cscript\\u003e",
    "{{v}}", "{*v*}", "{% os.exit() %}", "{(part.html)}", "${7*7}", "%3Cscript%3E", "%00", "+ADw-script+AD4-",
    "\u2028<b>", "\u202e<b>", "\uff1cscript\uff1e", "\U0001f600<", "a\u0301>", "<\u017fcript>", "x" * 70000 + "<b>", "\x0b<b>", "\x1b[1m<b>",
]


class Page(html.parser.HTMLParser):
    """The tags of a page with their attributes, and the text of each element by its id."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.texts, self.open = [], {}, []
        self.others = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append([tag, [name for name, _ in attributes]])
        self.open.append(dict(attributes))
        if "id" in self.open[-1]:
            self.texts[self.open[-1]["id"]] = self.open[-1]

    def handle_endtag(self, tag):
        self.open.pop()

    def handle_data(self, data):
        if self.open and "id" in self.open[-1]:
            self.open[-1]["data"] = self.open[-1].get("data", "") + data

    def handle_comment(self, data):
        self.others.append(data)

    def handle_pi(self, data):
        self.others.append(data)

    def unknown_decl(self, data):
        self.others.append(data)


class TemplateCase(E2E):
    def start(self, views=None, site=SITE, **kw):
        self.folder = self.new_folder()
        for name, text in (views or VIEWS).items():
            path = os.path.join(self.folder, "views", name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_text(path, text)
        write_text(self.folder + "/site.lua", site)
        return self.serve(None, site_path=self.folder + "/site.lua", **kw)


class Templates(TemplateCase):
    def test_values_never_become_markup(self):
        server = self.start()
        self.assertGreaterEqual(len(ODD), 50)
        with server.connect() as conn:
            for value in ODD:
                answer = conn.ask("POST", "/odd", (), value.encode())
                page = Page(answer.text)
                self.assertEqual(page.tags, TAGS, value)
                self.assertEqual(page.others, [], value)
                for place in "text", "part", "block":
                    self.assertEqual(page.texts[place].get("data", ""), value)
                self.assertEqual(page.texts["quoted"]["title"], value)
                self.assertEqual(page.texts["quoted"]["class"], value)
                query = urllib.parse.urlsplit(page.texts["link"]["href"]).query
                self.assertEqual(urllib.parse.parse_qs(query, keep_blank_values=True), {"q": [value], "page": ["1"]})

    def test_pages_and_texts(self):
        server = self.start()
        page = server.get("/status")
        self.assertEqual((page.status, page.header("content-type"), page.text), (422, "text/html; charset=utf-8", '<b id="part"></b>'))
        self.assertEqual(server.get("/text").header("content-type"), "text/plain; charset=utf-8")
        self.assertEqual(server.get("/waits").text, '&lt;waited&gt; <waited> <b id="part">&lt;waited&gt;</b>')

    def test_errors_name_the_template(self):
        server = self.start()
        for target, message in (
                ("/type", r"views/type\.html:2: the value is a function, which is called without arguments: bad argument #1"),
                ("/table", r"views/user\.html:3: the value is a table, which has no text: write one of its fields"),
                ("/own", r"site\.lua:\d+: res:render: a value cannot have the name layout, which templates have for themselves"),
                ("/fails", r"views/fails\.html:3: attempt to index a nil value \(local 'user'\)"),
                ("/loops", r"views/loops\.html:2: in ipairs\(\.\.\.\): attempt to index a nil value"),
                ("/none", r'site\.lua:11: there is no template "none\.html" in views; did you mean'),
                ("/include?name=../site.lua", r'views/include\.html:1: the template "\.\./site\.lua": invalid path'),
                ("/include?name=//etc/passwd", r'views/include\.html:1: the template "//etc/passwd": invalid path'),
                ("/later", r"site\.lua:21: ls\.templates: call it at the top of the site")):
            mark = server.mark()
            self.assertEqual(server.get(target).status, 500)
            server.wait_log(r"error .* GET %s: \S*%s" % (re.escape(target.split("?")[0]), message), mark)
        self.assertEqual(server.get("/status").status, 422)

    @not_on_windows("links need a privilege")
    def test_dev_does_not_report_the_compiled_templates(self):
        site = """local ls = require "luaserve"
local app = ls.app()
local views = ls.templates("views")
app:get("/", function() return views:render("mail.txt") end)
ls.listen("127.0.0.1:0", app)"""
        server = self.start({"mail.txt": "mail"}, site, program=(LUASERVE, "dev"))
        for _ in range(6):
            self.assertEqual(server.get("/").text, "mail")
        self.assertEqual(server.warnings(), [])

    def test_a_link_out_of_the_folder(self):
        server = self.start()
        os.symlink(self.folder + "/site.lua", self.folder + "/views/link.txt")
        mark = server.mark()
        self.assertEqual(server.get("/include?name=link.txt").status, 500)
        server.wait_log("a symbolic link leads out of the directory", mark)

    def test_a_syntax_error_refuses_the_site(self):
        for views, message in (
                ({"a.html": "fine", "sub/b.html": "<p>\n{% if x %}\n</p>"}, "views/sub/b.html:2: 'then' expected before the text"),
                (VIEWS, "site.lua:4: ls.templates: nowhere: not found")):
            server = self.start(views, SITE.replace('"views"', '"views"' if views != VIEWS else '"nowhere"'), listeners=0)
            self.assertEqual(server.wait(), 1, server.log())
            self.assertIn(message, server.log())

    def test_res_render_needs_one_folder(self):
        handler = 'app:get("/", function(req, res) return res:render("part.html") end)\nls.listen'
        for templates, message in (("", "the site has no templates"), ('ls.templates("views") ls.templates("views")', "several folders")):
            site = 'local ls = require "luaserve"\nlocal app = ls.app()\n%s\n%s("127.0.0.1:0", app)' % (templates, handler)
            server = self.start(site=site)
            self.assertEqual(server.get("/").status, 500)
            server.wait_log(r"site\.lua:4: res:render: .*" + message)
            server.stop()


# Replaces the page by the answer for a value, as if it had been loaded: scripts run, and handlers of events.
SHOW = """fetch("/odd", { method: "POST", body: %s }).then((response) => response.text()).then((text) => {
    window.alert = window.x = () => console.error("a script ran");
    document.open(); document.write(text); document.close();
    for (const one of document.querySelectorAll("*"))
        for (const event of ["error", "load", "mouseover", "focus"]) one.dispatchEvent(new Event(event));
    const at = (id) => document.getElementById(id);
    return {
        tags: Array.from(document.body.querySelectorAll("*"), (one) => [one.localName, one.getAttributeNames()]),
        comment: document.createTreeWalker(document, NodeFilter.SHOW_COMMENT).nextNode() !== null,
        texts: [at("text"), at("part"), at("block")].map((one) => one.textContent),
        values: ["title", "class"].map((name) => at("quoted").getAttribute(name)),
        links: new URL(at("link").href).searchParams.getAll("q"), origin: at("link").origin === location.origin };
})"""


@needs_browser
class InABrowser(TemplateCase):
    def test_values_never_become_markup(self):
        server = self.start()
        with Browser() as browser:
            page = browser.page("http://127.0.0.1:%d/text" % server.port())
            for value in ODD:
                self.assertEqual(page.run(SHOW % json.dumps(value)), {
                    "tags": TAGS, "comment": False, "texts": [value] * 3, "values": [value] * 2, "links": [value],
                    "origin": True}, value)
                page.check()
