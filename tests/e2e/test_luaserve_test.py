"""luaserve test: the files it finds, what its reports say, and that nothing ends a run silently."""
# sanitizers: asan; a test file runs in one thread
import os
import re
import signal
import subprocess
import unittest
import xml.etree.ElementTree as ElementTree

from harness import LUASERVE, REPORT, SANITIZER, WAIT, needs_terminal, not_on_windows, pty, scratch, write_text
from harness.screen import drawn_on
from harness.server import has_sqlite

HEAD = 'local test, ls = require "luaserve.test", require "luaserve"\n'


class Folder:
    """A folder with test files: a name with "/" makes folders."""

    def __init__(self, where, files):
        self.where = where
        for name, text in files.items():
            path = os.path.join(where, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_text(path, text)

    def run(self, *args, env=None, status=None, test=None):
        if "--timeout" not in args:
            args = ("--timeout", str(WAIT), *args)  # not the 5 s of a machine that has nothing else to do
        done = subprocess.run([LUASERVE, "test", *args], capture_output=True, text=True, cwd=self.where, timeout=4 * WAIT,
                              stdin=subprocess.DEVNULL, env={**os.environ, "CI": "", **(env or {})}, check=False)
        if REPORT.search(done.stdout + done.stderr):
            raise AssertionError("sanitizer reports:\n" + done.stdout + done.stderr)
        if status is not None:
            test.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done


class Tests(unittest.TestCase):
    def folder(self, **files):
        where = scratch()
        self.addCleanup(where.__exit__, None, None, None)
        return Folder(where.__enter__(), {name.replace("__", "/").replace("_lua", ".lua"): text for name, text in files.items()})

    def tap(self, text, *args, status=1):
        """Run one test file; returns the lines of its TAP report."""
        return self.folder(x_test_lua=HEAD + text).run("--tap", *args, "x_test.lua", status=status, test=self).stdout.split("\n")

    def points(self, text, *args, status=1):
        """The test points of one file: (ok, name)."""
        found = [re.match(r"(ok|not ok) \d+ - x_test.lua: (.*)", line) for line in self.tap(text, *args, status=status)]
        return [(match[1] == "ok", match[2]) for match in found if match]


class Finding(Tests):
    def test_the_files_below_tests_in_their_order(self):
        folder = self.folder(tests__b_test_lua="it('b', function() end)", tests__sub__test_a_lua="it('a', function() end)",
                             tests__helper_lua="error('not a test')", other_test_lua="error('not below tests')",
                             test__c_test_lua="it('c', function() end)")
        os.makedirs(os.path.join(folder.where, "tests", ".hidden"))
        write_text(os.path.join(folder.where, "tests", ".hidden", "x_test.lua"), "error('hidden')")
        done = folder.run("--tap", status=0, test=self)
        self.assertEqual(re.findall(r"^ok .*", done.stdout, re.M), [
            "ok 1 - tests/b_test.lua: b", "ok 2 - tests/sub/test_a.lua: a", "ok 3 - test/c_test.lua: c"])

    def test_no_files(self):
        folder = self.folder(tests__helper_lua="")
        self.assertEqual(folder.run(status=2, test=self).stderr,
                         "luaserve test: no tests found: no file *_test.lua or test_*.lua below tests\n")
        done = self.folder(site_lua="").run(status=2, test=self)
        self.assertIn("below the current folder", done.stderr)

    def test_a_name_that_does_not_exist(self):
        self.assertEqual(self.folder().run("nosuch", status=2, test=self).stderr, "luaserve test: nosuch: no such file or folder\n")

    def test_no_test_in_a_file(self):
        done = self.folder(a_test_lua="").run(status=2, test=self)
        self.assertIn("no tests found: no call of it() in a_test.lua", done.stderr)
        folder = self.folder(a_test_lua="", b_test_lua="it('one', function() end) it('two', function() end)")
        done = folder.run(status=0, test=self)
        self.assertEqual(done.stderr, "luaserve test: no tests found in a_test.lua: no call of it()\n")
        self.assertEqual(folder.run("--filter", "one", status=0, test=self).stderr, "")

    def test_modules_of_the_project_and_of_the_tests(self):
        folder = self.folder(app_lua="return 'app'", tests__helper_lua="return 'helper'",
                             tests__a_test_lua=HEAD + "it('a', function() test.equal(require 'app' .. require 'helper', 'apphelper') end)")
        folder.run(status=0, test=self)
        path = os.path.join(folder.where, "tests", "a_test.lua")
        folder.where = "/" if os.name == "posix" else folder.where
        folder.run(path, status=0, test=self)

    def test_each_file_has_a_fresh_state(self):
        text = "assert(seen == nil) seen = true\nit('a', function() end)"
        self.folder(a_test_lua=text, b_test_lua=text).run(status=0, test=self)


class CommandLine(Tests):
    def refuses(self, message, *args):
        done = self.folder(a_test_lua="it('a', function() end)").run(*args, status=2, test=self)
        self.assertIn(message, done.stderr)

    def test_values(self):
        self.refuses('--filter: "[" is no Lua pattern: malformed pattern', "--filter", "[")
        self.refuses('--timeout: invalid value "nan": must be seconds, above 0 and at most 86400', "--timeout", "nan")
        self.refuses('--backend: invalid value "x": must be one of auto, ', "--backend", "x")
        self.refuses("--junit: ", "--junit", "no/such/folder.xml")

    def test_help(self):
        done = self.folder().run("--help", status=0, test=self)
        self.assertIn("usage: luaserve test [options]", done.stdout)
        self.assertIn("Exit status:", done.stdout)

    def test_a_test_file_without_luaserve_test(self):
        folder = self.folder(a_test_lua='require("luaserve.test").it("a", function() end)')
        done = subprocess.run([LUASERVE, "a_test.lua"], capture_output=True, text=True, cwd=folder.where, timeout=WAIT, check=False)
        self.assertIn("a_test.lua:1: it: this is a test file: run it with luaserve test a_test.lua", done.stderr)


class Blocks(Tests):
    def test_hooks_in_their_order(self):
        self.assertEqual(self.points("""
local seen = {}
local function add(word) return function() seen[#seen + 1] = word end end
before(add "B") after(add "A") before_each(add "be") after_each(add "ae")
describe("outer", function()
  before(add "oB") after(add "oA") before_each(add "obe") after_each(add "oae")
  it("one", add "1")
  describe("inner", function()
    before_each(add "ibe") after_each(add "iae")
    it("two", add "2")
  end)
end)
it("order", function()
  test.equal(table.concat(seen, " "), "B oB be obe 1 oae ae be obe ibe 2 iae oae ae oA be")
end)
""", status=0), [(True, "outer > one"), (True, "outer > inner > two"), (True, "order")])

    def test_a_failed_before_fails_its_tests_only(self):
        self.assertEqual(self.points("""
describe("a", function()
  before(function() error "broken" end)
  it("one", function() end)
  describe("b", function() it("two", function() end) end)
end)
it("three", function() end)"""), [(False, "a > one"), (False, "a > b > two"), (True, "three")])

    def test_after_each_runs_after_a_failure(self):
        self.assertEqual(self.points("""
local done
after_each(function() done = true end)
it("one", function() error "x" end)
it("two", function() test.truthy(done) end)"""), [(False, "one"), (True, "two")])

    def test_a_failed_after(self):
        self.assertEqual(self.points("""
describe("a", function() after(function() error "x" end) it("one", function() end) end)"""), [(True, "a > one"), (False, "a > after")])

    def test_skip_only_pending(self):
        lines = self.tap("""
it.skip("one", function() error "x" end)
describe.skip("a", function() it("two", function() error "x" end) end)
pending("three")
it("four", function() end)""", status=0)
        self.assertEqual([line for line in lines if " - " in line], [
            "ok 1 - x_test.lua: one # SKIP", "ok 2 - x_test.lua: a > two # SKIP", "not ok 3 - x_test.lua: three # TODO",
            "ok 4 - x_test.lua: four"])

    def test_only(self):
        text = """it("one", function() error "x" end)
it.only("two", function() end)
describe.only("a", function() it("three", function() end) end)
describe("b", function() it("four", function() error "x" end) end)
pending("five")"""
        folder = self.folder(x_test_lua=text, y_test_lua="describe.only('c', function() it('six', function() end) end)\n"
                             "it('seven', function() end)", z_test_lua="it.only('eight', function() end)")
        only = ("3 tests did not run because of it.only at x_test.lua:2", "1 test did not run because of describe.only at y_test.lua:1")
        done = folder.run("--junit", "out.xml", status=0, test=self)
        self.assertRegex(done.stdout, r"\n4 passed, 4 skipped in .*\n%s\n%s\n$" % only)
        self.assertNotIn("seven", done.stdout)
        cases = ElementTree.parse(os.path.join(folder.where, "out.xml")).getroot().findall("testsuite/testcase")
        self.assertEqual([case.get("name") for case in cases if case.find("skipped") is not None], ["one", "four", "five", "seven"])
        self.assertEqual(cases[0].find("skipped").get("message"), "it.only at x_test.lua:2")
        for ci, status in (("true", 1), ("1", 1), ("false", 0), ("0", 0)):
            done = folder.run("--tap", env={"CI": ci}, status=status, test=self)
            self.assertIn("ok 1 - x_test.lua: one # SKIP it.only at x_test.lua:2\nok 2 - x_test.lua: two\n", done.stdout)
            end = ": this fails the run, because the environment has CI" if status else ""
            self.assertTrue(done.stdout.endswith("1..8\n# 4 passed, 0 failed, 4 skipped, 0 pending\n# %s%s\n# %s%s\n" % (
                only[0], end, only[1], end)), done.stdout)
        self.assertIn("\n1 passed in", folder.run("--filter", "two", env={"CI": "1"}, status=0, test=self).stdout)
        folder.run("z_test.lua", env={"CI": "1"}, status=0, test=self)

    def test_filter(self):
        text = """
describe("a", function() it("one", function() end) it("two", function() error "x" end) end)
it("b one", function() end)"""
        self.assertEqual(self.points(text, "--filter", "a one$", status=0), [(True, "a > one")])
        done = self.folder(x_test_lua=text).run("--filter", "none", status=2, test=self)
        self.assertIn('no tests found whose name matches "none" in x_test.lua', done.stderr)

    def test_hooks_of_blocks_without_a_chosen_test_do_not_run(self):
        self.points("""
describe("a", function() before(function() error "x" end) it("one", function() end) end)
it("two", function() end)""", "--filter", "two", status=0)

    def test_bail(self):
        folder = self.folder(a_test_lua="""
after(function() io.stderr:write("after ran\\n") end)
it("one", function() end) it("two", function() error "x" end) it("three", function() end)""", b_test_lua="it('b', function() end)")
        done = folder.run("--bail", "--tap", status=1, test=self)
        self.assertEqual(re.findall(r"^(?:not )?ok .*", done.stdout, re.M), ["ok 1 - a_test.lua: one", "not ok 2 - a_test.lua: two"])
        self.assertIn("1..2", done.stdout)
        self.assertIn("after ran", done.stderr)

    def test_misuse(self):
        for text, message in (("it('a')", "x_test.lua:2: it: the function is missing"),
                              ("it(function() end)", "x_test.lua:2: it: the name is missing"),
                              ("it('a', { timout = 1 }, function() end)", "unknown option \"timout\"; did you mean 'timeout'?"),
                              ("it('a', { timeout = 0 }, function() end)", "timeout must be a number of seconds above 0; got 0"),
                              ("before(1)", "before: the function is missing"),
                              ("it('a', function() it('b', function() end) end)", "not while a test runs"),
                              ("it('a', function() test.eqal(1, 1) end)", "luaserve.test has no \"eqal\"; did you mean 'equal'?")):
            self.assertIn(message.replace("x_test.lua:2: ", ""), self.run_one(text), text)

    def run_one(self, text):
        return self.folder(x_test_lua=HEAD + text).run(status=1, test=self).stdout

    def test_several_tests_wait(self):
        self.assertEqual(self.points("""
it("sleeps", function() local at = ls.now() ls.sleep(0.01) test.truthy(ls.now() - at >= 0.01) end)
it("jobs", function() test.equal(ls.spawn(function() ls.sleep(0) return 7 end):wait(), 7) end)
ls.tcp(7000, function(sock) sock:send("served by the file\\n") end)""", status=0), [(True, "sleeps"), (True, "jobs")])


class Failures(Tests):
    def out(self, text, *args):
        return self.folder(x_test_lua=HEAD + text).run(*args, status=1, test=self).stdout

    def test_the_place_the_excerpt_and_the_differences(self):
        out = self.out("""
it("a", function()
  local got = { list = { 1, 2 }, name = "x" }
  test.equal(got, { list = { 1, 3 }, more = true }, "the answer")
end)""")
        self.assertIn("""
1) x_test.lua:5: a
   the answer: the tables differ
   .list[2]: expected 3, got 2
   .more: expected true, got nil
   .name: not expected, got "x"
   expected { list = { 1, 3 }, more = true }
   got      { list = { 1, 2 }, name = "x" }

        3 | it("a", function()
        4 |   local got = { list = { 1, 2 }, name = "x" }
   >    5 |   test.equal(got, { list = { 1, 3 }, more = true }, "the answer")
        6 | end)

0 passed, 1 failed in """, out)

    def test_errors_show_the_traceback(self):
        out = self.out("local function help() local t\n return t.x end\nit('a', function() help() end)")
        self.assertIn("1) x_test.lua:3: a\n   attempt to index a nil value (local 't')\n", out)
        self.assertRegex(out, r"called from:\n +x_test.lua:3: in [^\n]*help'[^\n]*\n +x_test.lua:4: in function <x_test.lua:4>\n\n")

    def test_assert_and_error_objects(self):
        out = self.out("it('a', function() assert(false, 'no luck') end)\nit('b', function() error { code = 7 } end)")
        self.assertIn("1) x_test.lua:2: a\n   no luck\n", out)
        self.assertIn("2) x_test.lua:3: b\n   { code = 7 }\n", out)

    def test_timeouts_name_the_line_that_waits(self):
        out = self.out("it('a', { timeout = 0.05 }, function()\n  ls.sleep(600)\nend)\nit('b', function() end)")
        self.assertIn("1) x_test.lua:3: a\n   timed out after 0.05 s\n", out)
        self.assertIn("1 passed, 1 failed", out)
        self.assertIn("timed out after 0.05 s", self.out("it('a', function() ls.sleep(600) end)", "--timeout", "0.05"))

    @not_on_windows("a program that sleeps, called by its name")
    def test_a_function_that_returns_late(self):
        """What cannot be ended in time fails when it has returned."""
        late = "it('a', { timeout = 0.2 }, function() os.execute('sleep 0.5') end)\n"
        out = self.out(late + "it('b', function() end)\n" + late.replace("'a'", "'c'").replace(") end)", ") error('own') end)"))
        self.assertRegex(out, r"1\) x_test.lua:2: a\n   timed out after 0\.2 s; it has returned after \d[\d.]* s: a C function, "
                              r"such as os\.execute or string\.rep, is not ended\n")
        self.assertRegex(out, "2\\) x_test.lua:4: c\n   (own|timed out after 0.2 s)")
        self.assertIn("1 passed, 2 failed", out)
        out = self.out("before_each(function() os.execute('sleep 0.5') end)\nit('a', { timeout = 0.2 }, function() end)")
        self.assertIn("in before_each: timed out after 0.2 s; it has returned after", out)

    def test_a_loop_without_an_end(self):
        loop = "it('a', function()\n  while true do pcall(function() while true do end end) end\nend)\n"
        out = self.out(loop + loop + "it('b', function() end)", "--timeout", "0.05")
        for n, line in ((1, 3), (2, 6)):
            self.assertIn("%d) x_test.lua:%d: a\n   timed out after 0.05 s; it computed, without waiting\n" % (n, line), out)
        self.assertIn("1 passed, 2 failed", out)

    def test_files_that_do_not_load(self):
        self.assertIn("1) x_test.lua:3: loading the file\n   unexpected symbol near '='\n", self.out("it('a', function() end)\nx = = 1"))
        out = self.out("describe('a', function()\n  error('at describe') end)")
        self.assertIn("1) x_test.lua:3: loading the file\n   at describe\n", out)

    def test_exit_and_crash(self):
        out = self.out("it('a', function() end)\nit('b', function() os.exit(0) end)\nit('c', function() end)")
        self.assertIn("1) x_test.lua: b\n   the process of this file exited with status 0 during this test\n", out)
        self.assertIn("1 passed, 1 failed", out)

    @not_on_windows("named pipes")
    @unittest.skipIf(SANITIZER, "it waits 15 s, and a process that another one kills reports nothing")
    def test_a_c_function_that_blocks(self):
        out = self.out("it('a', { timeout = 0.1 }, function()\n  os.execute('mkfifo pipe')\n  io.open('pipe')\nend)")
        self.assertIn("1) x_test.lua: a\n   the process was ended: it did not report for 15.1 s; a C function blocks", out)

    @not_on_windows("signals")
    def test_a_signal(self):
        out = self.out("it('a', function() os.execute('kill -KILL $PPID') ls.sleep(600) end)")
        self.assertIn("was ended by signal 9 (SIGKILL) during this test", out)

    def test_control_characters_do_not_reach_the_terminal(self):
        self.assertIn("a\\x1B[31m", self.out("it('a\\27[31m', function() error('\\27]0;x') end)"))


class Reports(Tests):
    TEXT = HEAD + """
it("passes # 1", function() end)
it("fails <&>", function() test.equal("a", "b\\1") end)
it("errors", function() error("x\\ny \\255") end)
it.skip("skipped", function() end)"""

    def test_prints_of_tests_do_not_disturb_the_report(self):
        done = self.folder(x_test_lua="print('loaded')\nit('a', function() print('not ok 1') io.write('x') end)").run(
            "--tap", status=0, test=self)
        self.assertNotIn("not ok", done.stdout)
        self.assertIn("loaded\n", done.stderr)

    @not_on_windows("pseudo terminals")
    @needs_terminal
    def test_colours_only_on_a_terminal(self):
        folder = self.folder(x_test_lua="it('a', function() end)")
        self.assertNotIn("\x1b", folder.run(status=0, test=self).stdout)
        for env, colours in (({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)):
            ours, theirs = pty.openpty()
            process = subprocess.Popen([LUASERVE, "test"], stdout=theirs, stdin=subprocess.DEVNULL, cwd=folder.where,
                                       env={**os.environ, **env})
            os.close(theirs)
            text = drawn_on(ours, lambda _: False)  # to the end
            os.close(ours)
            self.assertEqual(process.wait(WAIT), 0)
            self.assertEqual("\x1b[32m" in text, colours, text)


SITE = """
local ls = require "luaserve"
local app = ls.app()
ls.config { threads_max = 1 }
app:get("/", function(req) return "hello " .. (req.query.name or "you") end)
app:any("/echo", function(req, res)
  res:header("X-Method", req.method)
  return { body = req:body(), type = req.headers["content-type"], token = req.headers["x-token"] }
end)
app:get("/chunks", function(req, res) for n = 1, 3 do res:write(n, "\\n") end end)
app:get("/cookies", function(req, res) res:cookie("a", "1") res:cookie("b", "2") return 204 end)
app:get("/exit", function() os.exit(3) end)
app:get("/args", function() return arg[1] or "none" end)
ls.listen(8080, app)
ls.tcp("unix:/nowhere/x.sock", function(sock) sock:send("line\\n") end)
ls.udp(7000, function(data) return data end)
"""


class Servers(Tests):
    def file(self, text, status=0, site=SITE):
        done = self.folder(site_lua=site, tests__x_test_lua=HEAD + text).run(status=status, test=self)
        return done.stdout + done.stderr

    def test_requests(self):
        self.file("""
local server = test.serve("site.lua")
it("get", function()
  local res = server:get("/?name=ada")
  test.equal(res.status, 200)
  test.equal(res.body, "hello ada")
  test.equal(res.headers["Content-Length"], "9")
  test.match(server.url, "^http://127%.0%.0%.1:%d+$")
  test.equal(server.url, "http://127.0.0.1:" .. server.port)
  test.equal(#server.urls, 3)
  test.match(server.urls[2], "^tcp://")
  test.match(server.urls[3], "^udp://")
end)
it("bodies", function()
  test.equal(server:post("/echo", { json = { 1 } }):json(), { body = "[1]", type = "application/json" })
  test.equal(server:put("/echo", { form = { b = "x y", a = "&" } }):json(),
    { body = "a=%26&b=x%20y", type = "application/x-www-form-urlencoded" })
  test.equal(server:patch("/echo", { body = "raw", headers = { ["X-Token"] = "t" } }):json(), { body = "raw", token = "t" })
  test.equal(server:delete("/echo").headers["x-method"], "DELETE")
  test.equal(server:head("/").body, "")
  test.equal(server:get("/chunks").body, "1\\n2\\n3\\n")
  test.equal(server:get("/cookies").status, 204)
  test.match(server:get("/cookies").headers["set-cookie"], "^a=1[^\\n]*\\nb=2")
end)
it("misuse", function()
  test.raises(function() server:get("no") end, 'server:get: the path must begin with "/"')
  test.raises(function() server:get("/", { jsn = 1 }) end, "unknown option \\"jsn\\"; did you mean 'json'?")
  test.raises(function() server:post("/", { json = 1, body = "" }) end, "give one of json, form and body")
  test.raises(function() server:get("/"):json() end, "is not JSON")
  test.raises(function() return server.prt end, "a server has no \\"prt\\"")
  test.raises(function() server:connect(3) end, "accepts no connections")
end)
it("connects", function() test.equal(server:connect(2):receive("*l"), "line") end)
it("udp", function()
  local c = ls.udp_connect("127.0.0.1", tonumber(server.urls[3]:match("%d+$")))
  c:send("x")
  test.equal(tostring(c:receive()), "x")
end)
it("stops", function()
  test.equal(server:stop(), true)
  test.raises(function() server:get("/") end, "refused")
end)""")

    def test_arguments_and_several_servers(self):
        self.file("""
local one, two = test.serve("site.lua", { args = { "one" } }), test.serve("site.lua", { args = { "two" }, threads = 1 })
it("a", function()
  test.equal(one:get("/args").body, "one")
  test.equal(two:get("/args").body, "two")
  test.not_equal(one.port, two.port)
end)""")

    def test_in_hooks_and_tests(self):
        self.file("""
describe("a", function()
  local server
  before(function() server = test.serve("site.lua") end)
  after(function() server:stop() end)
  it("one", function() test.equal(server:get("/").status, 200) end)
end)""")

    def test_a_site_that_does_not_load(self):
        out = self.file('it("a", function() test.serve("site.lua") end)', 1, "local ls = require 'luaserve'\nls.lisen(1)")
        self.assertRegex(out, r"1\) tests/x_test.lua:2: a\n   test.serve: site.lua:2: luaserve .* has no ls.lisen; did you mean")
        self.assertIn("nosuch.lua", self.file('test.serve("nosuch.lua")', 1))

    @unittest.skipUnless(has_sqlite(), "luaserve was built without SQLite")
    def test_a_file_that_the_test_and_its_server_open(self):
        """A dict belongs to one process, whichever opens it first; SQLite is shared."""
        site = "local ls = require 'luaserve'\nlocal app = ls.app()\n%s\nls.listen(8080, app)"
        hint = ("in use by another process: .*; the other one is a server that runs, or that of a test.serve beside a test file "
                "that loads this module: put these tests into two test files")
        dict_site = site % "ls.dict('d', { file = 'd.db' })"
        for first, second in (("dofile 'site.lua'", "test.serve 'site.lua'"), ("test.serve 'site.lua'", "dofile 'site.lua'")):
            self.assertRegex(self.file("%s\nit('a', function() %s end)" % (first, second), 1, dict_site), hint)
        self.file("dofile 'site.lua'\nlocal server = test.serve 'site.lua'\n"
                  "it('a', function() test.equal(server:get('/').body, '1') test.equal(db:one('select n from t'), { n = 1 }) end)",
                  0, site % "db = ls.sqlite 'd.db'\ndb:migrate { 'create table t(n integer)' }\n"
                            "app:get('/', function() db:exec 'insert into t values(1)' return '1' end)")

    def test_a_site_that_exits(self):
        out = self.file('local server = test.serve("site.lua")\nit("a", function() server:get("/exit") end)', 1)
        self.assertIn("no response to GET /exit: closed; the process of site.lua exited with status 3", out)

    def test_a_site_that_ends_unnoticed(self):
        out = self.file('local server = test.serve("site.lua")\nit("a", function() pcall(server.get, server, "/exit") end)', 1)
        self.assertIn("ok      a", out)
        self.assertIn("servers\n   the process of site.lua exited with status 3", out)

    @not_on_windows("process groups")
    def test_no_process_is_left_behind(self):
        folder = self.folder(site_lua=SITE, x_test_lua=HEAD + """
local server = test.serve("site.lua")
it("a", { timeout = 600 }, function() print("port " .. server.port) io.stdout:flush() ls.sleep(600) end)""")
        with subprocess.Popen([LUASERVE, "test"], cwd=folder.where, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True) as process:
            self.assertRegex(process.stderr.readline(), r"port \d+")
            process.send_signal(signal.SIGKILL)
            self.assertEqual(process.stderr.read(), "")  # ends when the last process that holds it has ended

    def test_inject_and_a_module_that_listens(self):
        self.file("""
local site = require "site"
it("a", function() test.equal(site:inject { path = "/" }.body, "hello") end)""",
                  site='local ls = require "luaserve"\nlocal app = ls.app()\napp:get("/", function() ls.sleep(0.001) return "hello" end)\n'
                       'ls.listen(1, app)\nreturn app')


    def test_a_server_with_variables_of_its_own(self):
        site = 'local ls = require "luaserve"\nlocal app = ls.app()\napp:get("/", function() return { ls.env("OWN", "none"), ' \
               'ls.env("PATH", "none") == "none", ls.env "LUASERVE_ENV" } end)\nls.listen(0, app)'
        test = """
local own = test.serve("site.lua", { env = { OWN = 5, PATH = false, LUASERVE_ENV = "x" } })
local plain = test.serve("site.lua")
it("own", function() test.equal(own:get("/"):json(), { "5", true, "test" }) end)
it("plain", function() test.equal(plain:get("/"):json(), { "none", false, "test" }) end)
it("wrong", function() test.raises(function() test.serve("site.lua", { env = "x" }) end, "^[^ ]+: test.serve: env must be a table such as") end)
"""
        self.folder(x_test_lua=HEAD + test, site_lua=site).run(status=0, test=self)

    def test_functions_of_topics_run(self):
        """At the top of a module, in ls.init and in a test; with messages that were kept."""
        self.assertEqual(self.points("""
            local at_top, at_init, app = {}, {}, ls.app()
            ls.subscribe("t", function(text) at_top[#at_top + 1] = text end)
            ls.init(function()
              ls.subscribe("t", function(text) at_init[#at_init + 1] = text end)
              ls.publish("kept", "k", { retain = 1 })
            end)
            app:get("/", function() ls.publish("t", "of a handler") end)
            it("a", function()
              local here = {}
              local subscription = ls.subscribe("t", function(text) here[#here + 1] = text end)
              test.equal(ls.publish("t", "x"), 3)
              app:inject { path = "/" }
              test.clock.advance(1)
              subscription:remove()
              ls.publish("t", "last")
              test.clock.advance(1)
              test.equal(here, { "x", "of a handler" })
              test.equal(at_top, { "x", "of a handler", "last" })
              test.equal(at_init, { "x", "of a handler", "last" })
            end)
            it("b", function()
              local kept
              ls.subscribe("kept", function(text) kept = text end)
              repeat ls.sleep(0) until kept
            end)""", status=0), [(True, "a"), (True, "b")])

    def test_calls_at_the_top_that_have_no_effect(self):
        site = """local ls = require "luaserve"
local app, ran = ls.app(), {}
ls.init(function() ran[#ran + 1] = "init" end)
ls.on("log", function() end)
%s
app:get("/", function() return ran end)
return app"""
        for call, name in (('ls.every(0.001, function() ran[2] = "tick" end)', "every"), ("ls.after(0, function() end)", "after"),
                           ('ls.cron("* * * * *", function() end)', "cron"),
                           ('ls.on("start", function() end)', "on"), ("", None)):
            test = """local app = require "site"
it("a", function() test.equal(app:inject { path = "/" }:json(), { "init" }) end)
it("b", function() local rest; ls.every(0.001, function() rest = true end) repeat ls.sleep(0.001) until rest end)"""
            folder = self.folder(a_test_lua=HEAD + test, b_test_lua=HEAD + test, site_lua=site % (call + " " + call))
            note = "luaserve test: note: ./site.lua:5: ls.%s at the top of a file has no effect in the process of a test " \
                   "file, unlike ls.init: test the whole site with test.serve\n"
            self.assertEqual(folder.run(status=0, test=self).stderr, note % name if name else "")
        done = self.folder(a_test_lua=HEAD + 'ls.every("x", function() end)').run(status=1, test=self)
        self.assertIn("a_test.lua:2: loading the file\n   bad argument #1 to 'every' (number expected, got string)", done.stdout)


class Fetches(Tests):
    def test_answers_from_a_table(self):
        self.assertEqual(self.points("""
            local url = "https://api.example/x"
            it("forms of answers", function()
              local seen
              test.fetch { [url] = "text", ["POST " .. url] = function(asked) seen = asked return { status = 201, json = { a = 1 },
                headers = { ["X-A"] = { "1", "2" } } } end, [url .. "?q=1"] = { status = 404, body = "none" } }
              local a = ls.fetch(url)
              test.equal({ a.status, a.ok, a:body(), a.url }, { 200, true, "text", url })
              a = ls.fetch(url, { query = { q = 1 } })
              test.equal({ a.status, a.ok, a:body() }, { 404, false, "none" })
              a = ls.fetch(url, { json = { b = 2 }, headers = { Accept = "x" } })
              test.equal({ a.status, a:json().a, a.headers["x-a"], a.headers["Content-Type"] }, { 201, 1, "1, 2",
                "application/json" })
              test.equal({ seen.method, seen.url, seen.body, seen.headers.accept }, { "POST", url, '{"b":2}', "x" })
              local n = 0
              ls.fetch(url, { body = function() n = n + 1 if n < 3 then return "p" .. n end end })
              test.equal(seen.body, "p1p2")
              ls.fetch(url, { body = ls.buffer("buffer") })
              test.equal(seen.body, "buffer")
            end)
            it("streams, limits and failures", function()
              test.fetch { [url] = "one\\ntwo", ["https://api.example/error"] = { error = "EREFUSED" } }
              local lines = {}
              for line in ls.fetch(url, { stream = true }):lines() do lines[#lines + 1] = line end
              test.equal(lines, { "one", "two" })
              test.equal({ ls.fetch(url, { max_body = 6 }) }, { nil, "cannot fetch https://api.example/x: the body is longer "
                .. "than max_body, 6 bytes", "EMSGSIZE" })
              test.equal(select(3, ls.fetch("https://api.example/error")), "EREFUSED")
              test.equal(ls.fetch(url, { method = "HEAD" }):body(), "")
            end)
            it("redirects", function()
              test.fetch { [url] = { status = 302, headers = { Location = "/y" } }, ["https://api.example/y"] = "y" }
              test.equal(ls.fetch(url):body(), "y")
            end)
            it("the table ends with its test", function()
              test.equal(select(3, ls.fetch("http://127.0.0.1:1/")), "EREFUSED")
            end)""", status=0), [(True, "forms of answers"), (True, "streams, limits and failures"), (True, "redirects"),
                                (True, "the table ends with its test")])

    def test_a_request_without_an_answer_fails_the_test(self):
        for body, what in [('ls.fetch("https://api.example/z?a=1")', "GET https://api.example/z?a=1"),
                           ('pcall(ls.fetch, "https://api.example/xx")',
                            "GET https://api.example/xx; did you mean 'https://api.example/x'?"),
                           ('local app = ls.app() app:get("/", function() return ls.fetch("http://other/"):body() end) '
                            'app:inject {}', "GET http://other/")]:
            lines = "\n".join(self.tap("""
                before_each(function() test.fetch { ["https://api.example/x"] = "x" } end)
                it("first", function() %s end)
                it("second", function() ls.fetch("https://api.example/x") end)""" % body))
            self.assertIn("not ok 1 - x_test.lua: first", lines)
            self.assertIn("test.fetch has no answer for " + what, lines)
            self.assertIn("\nok 2 - x_test.lua: second", lines)

    def test_a_failed_assertion_fails_the_test_whoever_catches_it(self):
        """In an answer of test.fetch, in a job, a timer, a handler; also an error of an answer, and one that is wrong."""
        head = """
            local url = "https://api.example/x"
            local function answer(fn) test.fetch { [url] = fn } pcall(ls.fetch, url) end
"""
        lines = self.tap(head + """
            it("answer", function() answer(function(asked) test.equal(asked.method, "POST", "the answer") return {} end) end)
            it("error", function() answer(function() local x; return x.y end) end)
            it("wrong", function() answer(function() return { status = "404" } end) end)
            it("job", function() ls.spawn(function() ls.spawn(function() test.equal(1, 2, "the job") end) end) end)
            it("caught", function() ls.spawn(pcall, test.fail, "the caught one"):wait() end)
            it("timer", function() ls.after(10, function() test.fail("the timer") end) test.clock.advance(20) end)
            it("handler", function()
              local app = ls.app()
              app:get("/", function() test.fail("the handler") end)
              test.equal(app:inject { path = "/" }.status, 500)
            end)
            it("good", function()
              test.raises(function() test.fail() end)
              pcall(test.equal, 1, 2)
              answer(function() pcall(test.fail) return "x" end)
            end)""")
        text = "\n".join(lines)
        for n, message in enumerate(["the answer: expected \"POST\", got \"GET\"", "attempt to index a nil value (local 'x')",
                                     'status must be a number from 200 to 599; got "404"', "the job: expected 2, got 1",
                                     "the caught one", "the timer", "the handler"], 1):
            point = re.search(r"^not ok %d - [^\n]*\n(.*?)^(?=ok|not ok)" % n, text, re.M | re.S)
            self.assertIsNotNone(point, (n, text))
            self.assertIn(message, point[1].replace('\\"', '"'))
        self.assertIn("\nok 8 - x_test.lua: good\n", text)

    def test_a_job_of_the_last_test_that_has_not_run(self):
        lines = self.tap("""
            it("endless", function() ls.spawn(function() while true do ls.sleep(0) end end) end)
            it("last", function() ls.spawn(function() test.equal(1, 2, "the job") end) end)""")
        self.assertIn("ok 1 - x_test.lua: endless", lines)
        self.assertIn("not ok 2 - x_test.lua: last", lines)

    def test_usage(self):
        for call, message in [("test.fetch()", "test.fetch takes a table"), ("test.fetch { 'x' }", "each key must be a URL"),
                              ("test.fetch { ['https://a'] = 'x' }", "each key must be a URL with its path"),
                              ("test.fetch { ['https://a/'] = true }", "must be a table such as"),
                              ("test.fetch { ['https://a/'] = { stauts = 1 } }", "did you mean 'status'?"),
                              ("test.fetch { ['https://a/'] = { status = '404' } }", 'status must be a number from 200 to 599; got \\"404\\"'),
                              ("test.fetch { ['https://a/'] = { status = 99 } }", "from 200 to 599; got 99"),
                              ("test.fetch { ['https://a/'] = { error = 'ENOPE' } }", 'error must be a code such as \\"ETIMEDOUT\\" or \\"EREFUSED\\"; '
                               'got \\"ENOPE\\"'), ("test.fetch { ['https://a/'] = { error = 'ETIMEDOUT', status = 200 } }", "error is in place of"),
                              ("test.fetch { ['https://a/'] = { body = 'x', json = {} } }", "write body or json, not both"),
                              ("test.fetch { ['https://a/'] = { body = {} } }", "body must be a string; for other values write json = value"),
                              ("test.fetch { ['https://a/'] = { headers = 'x' } }", "headers must be a table"),
                              ("test.fetch({}, 1)", "too many arguments")]:
            self.assertIn(message, "\n".join(self.tap("it('x', function() %s end)" % call)))
        self.assertIn("call it in a test or in before_each", "\n".join(self.tap("test.fetch {}")))
