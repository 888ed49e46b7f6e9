"""The comforts of the command line: a site from an argument or standard input, scripts that end by themselves, --check,
files beside the site, suggestions for misspelt words; and what a file prints while it loads."""
# sanitizers: asan; one thread runs
import json
import os
import re
import subprocess
import unittest

from harness import E2E, LUASERVE, WAIT, free_port, read_text, run_program, scratch, system, write_text

STATES = 'local ls = require "luaserve"\nls.config{ threads = 4, threads_max = 4 }\n'


def run(*args, stdin=None, cwd=None, env=None):
    """Run the program to its end; returns its exit status, stdout and stderr."""
    done = subprocess.run([LUASERVE, *args], input=stdin, capture_output=True, text=True, timeout=2 * WAIT, cwd=cwd,
                          env=dict(os.environ, **(env or {})), check=False)
    return done.returncode, done.stdout, done.stderr


class LoadLimits(unittest.TestCase):
    def test_a_site_that_does_not_end_loading(self):
        """Not in the first state, and not in a later one."""
        late = "took longer to load than load_timeout allows \\(0.1 s\\)"
        busy = "used more processor time than max_cpu allows \\(0.1 s\\) while it loaded"
        for name, config, code, says in (
                ("computes", "max_cpu = 0.1", "pcall(function() while true do end end)", busy),
                ("waits", "load_timeout = 0.1", "while true do io.open('none') end", late),
                ("later", "load_timeout = 0.1, threads = 2", "if d.later then while true do end end d:set('later', true) ls.init(print)", late)):
            with self.subTest(name):
                status, out, err = run(
                    "--check", "-e", "local ls = require 'luaserve' ls.config{ %s } local d = ls.dict('d')\n%s" % (config, code))
                self.assertEqual((status, out), (1, ""))
                self.assertRegex(err, r"^luaserve: \(command line\):[12]: the site %s\n$" % says)


ALL = """local ls = require "luaserve"
ls.config { threads = 1, max_connections = 100, max_body = "1k" }
local app = ls.app()
app:use(function(_, _, next) return next() end)
app:get("/", print)
app:get("/x/:id", { timeout = 0.5, max_body = 2 }, function(_, _, next) return next() end, print)
ls.listen { port = 8080, hosts = { ["a.example"] = app }, timeout = false }
ls.tcp(7000, print)
ls.udp("*:7001", print)
ls.every(60, print) ls.after(0.5, print)
ls.init(print) ls.on("log", print)
"""
ALL_AS_TEXT = """  limits: max_connections=100, threads=1
listener: loopback port 8080 (site.lua:7)
  a.example
    GET  /       (site.lua:5), middleware site.lua:4
    GET  /x/:id  (site.lua:6), middleware site.lua:4, site.lua:6
  limits: max_body=1024, timeout=none
listener: tcp loopback port 7000 (site.lua:8)
udp: * port 7001 (site.lua:9)
timer: every 60 s (site.lua:10)
timer: after 0.5 s (site.lua:10)
hook: ls.init (site.lua:11)
hook: ls.on "log" (site.lua:11)
"""


class SitesFromText(unittest.TestCase):
    def test_code(self):
        status, out, err = run(
            "--log-level", "warn", "-e", STATES + "local n = select('#', ...)\n"
            "ls.init(function() print(n, arg[0], arg[1], arg[2], #arg) end)", "one", "--two")
        self.assertEqual((status, out, err), (0, "2\t(command line)\tone\t--two\t2\n", ""))

    def test_standard_input(self):
        for start in ("", "#!/usr/bin/env luaserve\n", "\ufeff", "\ufeff#!x\n"):
            status, out, err = run(
                "--log-level", "warn", "-", "one",
                stdin=start + STATES + "local a = ... ls.init(function() print(a, arg[0], arg[1]) end)\n")
            self.assertEqual((status, out, err), (0, "one\t(standard input)\tone\n", ""), start)

    def test_a_long_site(self):
        text = STATES + "-- a comment\n" * 30000 + 'ls.init(function() print "end" end)'
        status, out, _ = run("--log-level", "warn", "-", stdin=text)
        self.assertEqual((status, out), (0, "end\n"))

    def test_errors_name_the_source(self):
        self.assertEqual(run("-e", "x = = 1")[::2], (1, "luaserve: (command line):1: unexpected symbol near '='\n"))
        self.assertEqual(run("-e", 'require("luaserve").lisen(1)')[2].split(": luaserve")[0], "luaserve: (command line):1")
        self.assertEqual(run("-", stdin="#!x\nx = = 1")[::2], (1, "luaserve: (standard input):2: unexpected symbol near '='\n"))

    def test_no_code(self):
        status, _, err = run("-e")
        self.assertEqual((status, "missing value of -e: the code of a site" in err), (2, True), err)

    def test_modules_are_found_in_the_working_directory(self):
        code = STATES + 'ls.init(function() print(require("word"), dofile("word.lua")) end)'
        with scratch(word_lua='return "found"') as where:
            for args, stdin in ((["-e", code], None), (["-"], code)):
                self.assertRegex(run("--log-level", "warn", *args, stdin=stdin, cwd=where)[1], r"^found\t.*found\n$")

    def test_check(self):
        status, out, err = run("--check", "-e", STATES + "ls.tcp(7000, function() end)")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("(command line): ok\n", out)
        self.assertIn("listener: tcp loopback port 7000 ((command line):3)\n", out)


class Scripts(E2E):
    def test_nothing_to_do(self):
        for text in ("", "local x = 1", 'require "luaserve"', 'require("luaserve").app()',
                     'require("luaserve").on("drain", function() end)', 'require("luaserve").after(3600, print):cancel()'):
            for flags in ((), ("--check",)):
                status, _, err = run(*flags, "-e", text)
                self.assertEqual((status, err), (1, "luaserve: (command line) defines no listener, timer or job: nothing "
                                                    "to do; add ls.listen(8080, app)\n"), text)

    def test_it_ends_with_its_last_job(self):
        for name, text in (
            ("init", "ls.init(function() print 'end' end)"),
            ("a job", "ls.init(function() ls.spawn(function() ls.sleep(0.05) print 'end' end) end)"),
            ("start hook", "ls.on('start', function() ls.sleep(0.01) end) ls.init(function() print 'end' end)"),
            ("timers", "ls.init(function() ls.after(0.02, function() ls.after(0.02, print, 'end') end) end)"),
            ("a cancelled timer", "ls.init(function() local n, t = 0 t = ls.every(0.001, function() n = n + 1 "
                                  "if n == 3 then print 'end' t:cancel() end end) end)"),
            ("two of three timers", "ls.init(function() ls.after(3600, print):cancel() ls.after(0, print, 'end') end)"),
            ("a connection", "ls.init(function() print(ls.connect('127.0.0.1', %d) or 'end') end)" % free_port()),
            ("an error", "ls.on('start', function() if ls.dict('d'):add(1, 1) then print 'end' error('x') end end)"),
        ):
            with self.subTest(name):
                status, out, err = run("-e", STATES + text)
                self.assertEqual((status, out), (0, "end\n"), err)
                self.assertIn("info stopped", err)

    def test_in_each_state(self):
        for first, times in (("0.01", 1), ("{ seconds = 0.01 }", 1), ("{ seconds = 0.01, each_state = true }", 4)):
            status, out, _ = run("-e", STATES + "ls.after(%s, function() io.stdout:write('x') end)" % first)
            self.assertEqual((status, out), (0, "x" * times))

    def test_a_repeating_timer_keeps_it_running(self):
        server = self.serve(STATES + "ls.every(0.01, function() ls.log.info('tick') end)", listeners=0)
        server.wait_log("tick", count=20)

    def test_a_listener_keeps_it_running(self):
        server = self.serve(STATES + "local app = ls.app() app:get('/', function() return 'x' end)\n"
                                     "ls.after(0, function() ls.log.info('ended') end) ls.listen('127.0.0.1:0', app)")
        server.wait_log("ended")
        self.assertEqual(server.get("/").text, "x")


class Loading(E2E):
    def test_output_appears_once(self):
        text = STATES + """
            local say, out = print, io.stdout
            print("print") say("say") io.write("write\\n") io.stdout:write("method\\n") out:write("local\\n")
            io.output():write("output\\n") io.stderr:write("error stream\\n")
            ls.log.warn("log")
            ls.on("start", function() say("later") out:write("later\\n") io.write("later\\n") ls.log.warn("later") end)"""
        status, out, err = run("--log-level", "warn", "-e", text)
        self.assertEqual(status, 0, err)
        lines = out.split("\n")[:-1]
        self.assertEqual(lines[:6], ["print", "say", "write", "method", "local", "output"])
        self.assertEqual(lines[6:], ["later"] * 12)
        self.assertEqual(err.count("error stream"), 1)
        self.assertEqual((err.count("warn log"), err.count("warn later")), (1, 4))

    def test_print_writes_a_whole_line(self):
        text = STATES + """
            ls.init(function() end)
            local writes = setmetatable({}, { __tostring = function() io.write("between\\n") return "object" end })
            print("first", writes, nil, 1.5) print() print("last")"""
        status, out, err = run("--log-level", "warn", "-e", text)
        self.assertEqual((status, out), (0, "between\nfirst\tobject\tnil\t1.5\n\nlast\n"), err)

    def test_files_are_still_written_in_every_state(self):
        with scratch(site_lua=STATES + 'local f = io.open("out", "a") f:write("x") f:close() io.output("out2") '
                                       'io.write("y") ls.init(function() end)') as where:
            self.assertEqual(run("site.lua", cwd=where)[0], 0)
            self.assertEqual(read_text(os.path.join(where, "out")), "xxxx")

    def test_a_failure_in_a_later_state_is_reported(self):
        status, _, err = run("-e", STATES + "count = 0 ls.init(function() end) if ls.stats().lua_states > 0 then "
                                            "print('x') error('in the second state') end")
        self.assertEqual((status, err), (1, "luaserve: (command line):3: in the second state\n"))


class Check(unittest.TestCase):
    SITE = """local ls = require "luaserve"
local app, api = ls.app(), ls.app()
app:post("/b", function() end)
app:get("/b", function() end)
app:get("/", function() end)
app:options("*", function() end)
api:get("/", function() end)
api:any("/items/:id", function() end)
api:route("PROPFIND", "/files/*rest", function() end)
api:ws("/live", function() end)
app:mount("/api/:version", api)
ls.listen("127.0.0.1:1", app)
ls.tcp(2, function() end)
ls.listen{ path = "/run/none.sock", handler = api }
"""
    EXPECTED = """listener: 127.0.0.1 port 1 (site.lua:12)
  OPTIONS   *                            (site.lua:6)
  GET       /                            (site.lua:5)
  GET       /api/:version                (site.lua:7)
  GET       /api/:version/               (site.lua:7)
  PROPFIND  /api/:version/files/*rest    (site.lua:9)
  any       /api/:version/items/:id      (site.lua:8)
  WS        /api/:version/live           (site.lua:10)
  GET       /b                           (site.lua:4)
  POST      /b                           (site.lua:3)
listener: tcp loopback port 2 (site.lua:13)
listener: unix:/run/none.sock (site.lua:14)
  GET       /              (site.lua:7)
  PROPFIND  /files/*rest   (site.lua:9)
  any       /items/:id     (site.lua:8)
  WS        /live          (site.lua:10)
"""

    def test_routes(self):
        with scratch(site_lua=self.SITE) as where:
            outputs = [run_program(["--check", "site.lua"], cwd=where) for _ in range(4)]
        for status, out, err in outputs:
            self.assertEqual((status, err), (0, ""))
            self.assertEqual(re.sub(" +", " ", out[out.index("listener"):]), re.sub(" +", " ", self.EXPECTED))

    def test_all_that_a_site_defines(self):
        with scratch(site_lua=ALL) as where:
            text = run_program(["--check", "site.lua"], cwd=where)[1]
            status, out, err = run_program(["--check", "--json", "site.lua"], cwd=where)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(text[text.index("back end"):].split("\n", 1)[1], ALL_AS_TEXT)
        got = json.loads(out)
        self.assertEqual((got["site"], got["threads"], got["limits"]["max_connections"], got["limits"]["drain_timeout"]),
                         ("site.lua", 1, 100, 15))
        self.assertEqual([(at["kind"], at["address"], at.get("port"), at["where"], at["limits"].get("timeout"), at["limits"].get("max_body"))
                          for at in got["listeners"] + got["udp"]],
                         [("http", "loopback", 8080, "site.lua:7", False, 1024), ("tcp", "loopback", 7000, "site.lua:8", None, None),
                          ("udp", "*", 7001, "site.lua:9", None, None)])
        self.assertEqual(got["listeners"][0]["routes"],
                         [{"host": "a.example", "method": "GET", "pattern": "/", "where": "site.lua:5", "middleware": ["site.lua:4"]},
                          {"host": "a.example", "method": "GET", "pattern": "/x/:id", "where": "site.lua:6", "timeout": 0.5, "max_body": 2,
                           "middleware": ["site.lua:4", "site.lua:6"]}])
        self.assertEqual(got["timers"], [{"every": 60, "where": "site.lua:10"}, {"after": 0.5, "where": "site.lua:10"}])
        self.assertEqual(got["hooks"], [{"event": "init", "where": "site.lua:11"}, {"event": "log", "where": "site.lua:11"}])
        self.assertEqual(list(got), sorted(got))  # two versions of a site can be compared
        self.assertEqual(run("--json", "-e", "")[::2], (2, "luaserve: --json belongs to --check\n"))


class Threads(unittest.TestCase):
    SHOW = 'ls.init(function() print(ls.stats().threads, ls.stats().lua_states) end)'

    def test_threads_max_alone(self):
        for most in (1, 2):
            status, out, err = run("--log-level", "warn", "-e",
                                   'local ls = require "luaserve" ls.config{ threads_max = %d } %s' % (most, self.SHOW))
            threads = min(most, system.processors())
            self.assertEqual((status, out, err), (0, "%d\t%d\n" % (threads, threads), ""))

    def test_a_contradiction(self):
        for flags, code in ((("--threads", "2"), "ls.config{ threads_max = 1 }"),
                            ((), "ls.config{ threads = 2 } ls.config{ threads_max = 1 }")):
            status, _, err = run(*flags, "-e", 'local ls = require "luaserve" %s %s' % (code, self.SHOW))
            self.assertEqual((status, err), (1, "luaserve: (command line): threads = 2 must not exceed threads_max = 1 of "
                                                "ls.config\n"))
        status, out, _ = run("--log-level", "warn", "--threads", "1", "-e",
                             'local ls = require "luaserve" ls.config{ threads_max = 1 } ' + self.SHOW)
        self.assertEqual((status, out), (0, "1\t1\n"))


class FilesBesideTheSite(unittest.TestCase):
    def test_dofile_and_loadfile(self):
        site = """
            local ls = require "luaserve"
            ls.config { threads_max = 1 }
            ls.init(function()
              print(dofile("part.lua"))
              print(loadfile("part.lua")("argument"))
              print(dofile("only_here.lua"))
              print(dofile("waits.lua"))
              print(select(2, pcall(dofile, "none.lua")))
              print(loadfile("none.lua"))
            end)"""
        with scratch(part_lua='return "part of the working directory"') as where:
            os.mkdir(os.path.join(where, "sub"))
            for name, text in (("sub/site.lua", site), ("sub/part.lua", 'return "part beside the site", ...'),
                               ("only_here.lua", 'return "here"'),
                               ("sub/waits.lua", 'require("luaserve").sleep(0.01) return "waited", 2')):
                write_text(os.path.join(where, name), text)
            for site_path in ("sub/site.lua", os.path.join(where, "sub", "site.lua")):
                status, out, err = run("--log-level", "warn", site_path, cwd=where)
                self.assertEqual((status, err), (0, ""))
                self.assertEqual(out.split("\n")[:5], [
                    "part beside the site", "part beside the site\targument", "here", "waited\t2",
                    "cannot open none.lua: No such file or directory"])


class Suggestions(unittest.TestCase):
    def test_options(self):
        for given, right in (("--thraeds", "--threads"), ("--threds=2", "--threads"), ("-Z", None)):
            status, _, err = run(given, "site.lua")
            self.assertEqual(status, 2, given)
            self.assertEqual(re.findall(r"did you mean (\S+)\?", err), [right] if right else [], given)

    def test_an_option_among_the_arguments_of_the_site_is_noted(self):
        """Unless a -- before it or before the site says that the site has an option of that name."""
        with scratch() as folder:
            write_text(folder + "/site.lua", "print(...)")
            note = "luaserve: note: --%s is an argument of the site here: options of luaserve come before the site; -- before the site says " \
                   "that it is meant\n"
            for given, name in (("site.lua --threads 4", "threads"), ("site.lua x --log-level=warn --pid y", "log-level"),
                                ("site.lua --check", "check"), ("site.lua --name n --json --version -e x --help --threadsx", None),
                                ("-- site.lua --threads 4", None), ("site.lua -- --threads 4", None), ("--threads 2 site.lua", None)):
                got = run(*given.split(), cwd=folder)
                self.assertEqual((got[1].split(), got[2].partition("luaserve: site.lua")[0]),
                                 (given.partition("site.lua")[2].split(), note % name if name else ""), got)
            self.assertEqual(run("-e", "print(...)", "--threads", "4")[2].split("\n")[0],
                             "luaserve: note: --threads is an argument of the site here: options of luaserve come before the code")
            self.assertIn("luaserve dev: note: --threads is", run("dev", "none.lua", "--threads", "1")[2])

    def test_commands(self):
        for given, right in (("strss", "stress"), ("stres", "stress"), ("instal", "install"), ("site", None),
                             ("./stres", None), ("stress.lua", None)):
            status, _, err = run(given)
            self.assertEqual(status, 1, given)
            self.assertEqual(re.findall(r"did you mean luaserve (\S+)\?", err), [right] if right else [], given)


class Ports(unittest.TestCase):
    def test_a_port_from_the_environment(self):
        for call in ('ls.listen{ port = os.getenv "PORT", handler = ls.app() }', 'ls.listen(os.getenv "PORT", ls.app())',
                     'ls.tcp({ port = os.getenv "PORT" }, function() end)', 'ls.udp({ port = os.getenv "PORT" }, function() end)'):
            for port, status, says in (("8113", 0, "loopback port 8113"), ("0", 0, "port 0"), ("65535", 0, "port 65535"),
                                       ("65536", 1, "65535; got"), ("80x", 1, "80x")):
                got = run("--check", "-e", 'local ls = require "luaserve" ' + call, env={"PORT": port})
                self.assertEqual(got[0], status, got)
                self.assertIn(says, got[1] + got[2])
