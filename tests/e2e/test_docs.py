"""Every code block of every page (*.md) runs as printed, and every link leads somewhere. docs_e2e.py says how blocks are run.

One page: python3 -B -m unittest test_docs.Pages.test_README_md
"""
# sanitizers: none; reads pages
# long; some hundred sites
import os
import re
import unittest
from unittest import mock

from docs_e2e import Command, run_page
from docs_pages import DOCS, RECIPES, DocError, check_links, tracked, without_wrong_input
from harness import ROOT, SANITIZER, not_on_windows, scratch


@not_on_windows("the blocks of the pages are run where their commands are")
@unittest.skipIf(SANITIZER, "the times that pages show are those of a release build")
class Pages(unittest.TestCase):
    """A test for each page, made below."""


def page_test(page):
    def test(self):
        failures = run_page(page)
        if failures:
            self.fail("%d blocks failed\n%s" % (len(failures), "\n".join(failures)))

    test.__doc__ = page
    return test


for name in tracked():
    setattr(Pages, "test_" + re.sub(r"\W", "_", name), page_test(name))


class Links(unittest.TestCase):
    def test_every_link_between_pages_leads_somewhere(self):
        for page in tracked():
            with self.subTest(page=page):
                with open(os.path.join(ROOT, page), encoding="utf-8") as text:
                    check_links(page, text.read())

    def test_a_wrong_link_is_found(self):
        with scratch(a_md="# One two\n") as where:
            check_links("b.md", "[a](a.md#one-two) [b](https://example.org) `[c](none.md)`\n", where)
            for wrong in ("[a](none.md)", "[a](a.md#three)", "[a](#here)"):
                with self.assertRaisesRegex(DocError, r"^b\.md:2: the link"):
                    check_links("b.md", "\n" + wrong + "\n", where)


class Recipes(unittest.TestCase):
    def test_every_recipe_and_every_task_is_used_with_wrong_input_too(self):
        tasks = [os.path.join(DOCS, name + ".md") for name in ("gateway", "hosts", "live", "login", "oidc", "openapi", "upload", "webhook")]
        for path in RECIPES + tasks:
            with self.subTest(page=path), open(os.path.join(ROOT, path), encoding="utf-8") as text:
                self.assertEqual(without_wrong_input(path, text.read()), [])

    def test_a_recipe_without_one_is_found(self):
        site, console, wrong = fenced("lua", "local ls"), fenced("console", "$ true"), fenced("console wrong", "$ true")
        page = "\n".join(["# Title", site, "## None", site, "## Right only", site, console, "## Both", site, console, wrong,
                          "## Wrong only", site, wrong, "## No site", "text", "### Below", "## Last", site])
        self.assertEqual(without_wrong_input("page.md", page), ["Title", "None", "Right only", "Wrong only", "Last"])


def fenced(info, text):
    return "```%s\n%s\n```\n" % (info, text)


@not_on_windows("as the pages")
class Wrong(unittest.TestCase):
    """What is wrong in a page is found, at its line."""

    SITE = fenced("lua", """local ls = require "luaserve"
local app = ls.app()
app:get("/", function() return "hello\\n" end)
ls.listen(8080, app)""")

    def failures(self, text):
        with scratch(page_md=text) as where:
            return run_page("page.md", where)

    def finds(self, text, *expected):
        failures = self.failures(text)
        self.assertEqual(len(failures), len(expected), failures)
        for failure, pattern in zip(failures, expected):
            self.assertRegex(failure, r"\Apage\.md:" + pattern)

    def test_a_page_that_is_right(self):
        self.finds("# Title\n" + self.SITE
                   + fenced("console", "$ curl -i http://127.0.0.1:8080/\nHTTP/1.1 200 OK\n...\nContent-Length: 6\n\nhello")
                   + fenced("console", "$ luaserve --check site.lua\nsite.lua: ok\n...\n$ false\n$ echo $?\n1")
                   + fenced("lua handler path=/a?b=c", 'req.query.b --> c\nlocal x, y = 1, "two" --> 1, two\nreturn {}')
                   + fenced("lua load", 'ls.json.decode("[1]") --> [1]\nls.sleep("x") --!> number\nerror("x", 0) --!> x')
                   + fenced("json", '{ "a": 1 }') + fenced("text", "anything"))

    def test_a_wrong_value(self):
        self.finds(fenced("lua load", "\n1 + 1 --> 3"), r"3: the value is 2; the page states 3")
        self.finds(fenced("lua handler", "return req.path --> /"), r"2: --> follows neither")
        self.finds(fenced("lua handler", "local path = req.path --> /a"), r"2: the value is /; the page states /a")

    def test_a_value_that_is_never_looked_at(self):
        self.finds(fenced("lua load", 'app:get("/", function(req)\n  req.path --> /\nend)'), r"3: the line never ran")

    def test_a_wrong_error(self):
        self.finds(fenced("lua load", 'ls.sleep("x") --!> nonsense'), r"2: raised .*; the page states nonsense")
        self.finds(fenced("lua load", "ls.now() --!> nonsense"), r"2: raised nothing")

    def test_a_handler_that_fails(self):
        self.finds(fenced("lua handler", 'error("x")'), r"2: the handler failed: .* x")

    def test_a_site_that_does_not_load(self):
        self.finds(fenced("lua", "nonsense("), r"2: the site ended with status 1")
        self.finds(fenced("lua load", "nonsense("), r"2: the site ended with status 1")

    def test_a_wrong_output(self):
        self.finds(self.SITE + fenced("console", "$ curl http://127.0.0.1:8080/\nbye"), r"8: \$ curl")
        self.finds(self.SITE + fenced("console", "$ true\n$ curl http://127.0.0.1:8080/\nhello\n$ echo a\n$ true"), r"11: \$ echo a")

    def test_wrong_input_that_the_site_does_not_expect(self):
        site = fenced("lua", """local ls = require "luaserve"
local app = ls.app()
app:get("/:n", function(req) return req.params.n + 1 .. "\\n" end)
ls.listen(8080, app)""")
        right = fenced("console wrong", "$ curl http://127.0.0.1:8080/1\n2\n$ curl http://127.0.0.1:8080/a/b\nNot Found")
        wrong = fenced("console wrong", "$ curl http://127.0.0.1:8080/x\nInternal Server Error")
        start = fenced("console", "$ luaserve site.lua &")
        self.finds(site + right)
        self.finds(site + wrong, r"8: wrong input is an error of the site:\n.*GET /x: site\.lua:3: attempt to add")
        self.finds(site + start + wrong, r"11: wrong input is an error of the site")

    def test_a_site_that_a_command_starts(self):
        serve = "$ luaserve site.lua%s\n... listening on http://127.0.0.1:8080\n...\n$ curl http://127.0.0.1:8080/\nhello"
        self.finds(self.SITE + fenced("console", serve % " &"))
        self.finds(self.SITE + fenced("console", serve % ""))
        with mock.patch.object(Command, "printed_within", 0.5):  # this never comes
            self.finds(self.SITE + fenced("console", "$ luaserve site.lua\n... nonsense"), r"8: \$ luaserve")

    def test_a_language_without_a_rule(self):
        self.finds(fenced("python", "1") + fenced("lua nonsense", "1"), r"2: no rule .*'python'")
        self.finds(fenced("", "1"), r"2: no rule .*''")

    def test_a_block_without_an_end(self):
        with self.assertRaisesRegex(DocError, r"page\.md:2: the code block has no end"):
            self.failures("```lua\n1\n")

    def test_bad_json_and_a_bad_unit(self):
        self.finds(fenced("json", "{"), r"2: ")
        self.finds(fenced("ini", "[Service]\nExecStart=/bin/true"), r"2: ExecStart does not start luaserve")
        self.finds(fenced("ini", "[Service]\nExecStart=/usr/bin/luaserve --threads 1 /srv/site.lua"))

    def test_a_c_program(self):
        program = '#include <stdio.h>\n#include "luaserve.h"\n\nint main(void)\n{\n    %s\n}'
        self.finds(fenced("c", program % "return puts(ls_server_version()) < 0;"))
        if os.environ.get("LUASERVE_SANITIZER"):
            return
        self.finds(fenced("c", program % "return 3;"), r"2: the program ended with status 3")
        self.finds(fenced("c", program % "return x;"), r"2: cc failed")

    def test_proxies(self):
        location = "        %s http://127.0.0.1:%d;\n"
        nginx = "server {\n    listen 80;\n    location / {\n" + location + "    }\n}"
        curl = fenced("console", "$ curl http://127.0.0.1:80/\nhello")
        self.finds(self.SITE + fenced("nginx", nginx % ("proxy_pass", 8080)) + curl)
        self.finds(self.SITE + fenced("nginx", nginx % ("proxy_pass", 8081)), r"8: nginx: the answer .* 502")
        self.finds(self.SITE + fenced("nginx", nginx % ("nonsense", 8080)), r"8: nginx: it ended with status 1")
        haproxy = ("frontend web\n  bind *:443 ssl crt /etc/ssl/site.pem\n  default_backend site\n"
                   "backend site\n  server one 127.0.0.1:%d")
        self.finds(self.SITE + fenced("haproxy", haproxy % 8080))
        self.finds(self.SITE + fenced("haproxy", haproxy % 8081), r"8: haproxy: the answer .* 503")

    def test_a_unix_socket(self):
        site = """local ls = require "luaserve"
local app = ls.app()
app:get("/", function() return "hello\\n" end)
ls.listen("unix:/run/shop/site.sock", app)"""
        self.finds(fenced("lua", site) + fenced("console", "$ curl --unix-socket /run/shop/site.sock http://h/\nhello"))

    def test_stress(self):
        script = 'return { target = "http://127.0.0.1:8080/%s", connections = 1, duration = "10s" }'
        self.finds(self.SITE + fenced("lua stress", script % ""))
        self.finds(self.SITE + fenced("lua stress", script % '" .. nil .. "'), r"8: luaserve stress ended with status 1")
