"""The life of the process: command line, failures to start, drain, signals, slow and blocking handlers, limits of the
system."""
import os
import re
import signal
import socket
import unittest

from harness import (E2E, HAS_UNIX_SOCKETS, SANITIZER, WAIT, WINDOWS, Conn, Server, app_site, in_parallel,
                     not_on_windows, repeats, request, run_program, scratch, system, write_text)

SITE = app_site(r"""
app:get("/", function() return "root" end)
app:get("/n/:n", function(req) return req.params.n end)
app:get("/sleep", function(req) ls.sleep(tonumber(req.query.s)); return "slept" end)
app:get("/noted", function(req) ls.log.info("began " .. req.query.n); ls.sleep(0.4); return "slept " .. req.query.n end)
local draining = false
ls.on("drain", function() draining = true end)
app:get("/to-the-end", function(req) ls.log.info("began " .. req.query.n); repeat ls.sleep(0.01) until draining; return "ended " .. req.query.n end)
app:get("/block", function(req) ls.log.info("blocking"); os.execute("sleep " .. req.query.s); return "blocked" end)
local function released() -- by the test, which makes a file
  local file = io.open("@DIR@/released")
  return file and file:close()
end
app:get("/block-until-released", function()
  ls.log.info("blocking")
  repeat os.execute("sleep 0.1") until released()
  return "blocked"
end)
app:get("/spin-until-released", function()
  ls.log.info("spinning")
  repeat for _ = 1, 100000 do end until released()
  return "spun"
end)
app:get("/big", function() return ("x"):rep(1000):rep(4000) end)
app:get("/parts", function(req, res) for i = 1, 10 do res:write("part ", i, "\n"); res:flush(); ls.sleep(0.05) end end)
app:post("/echo", function(req) return req:body() end)
app:get("/stats", function() return ls.stats() end)
""")

# A site of two threads; stuck() blocks inside a C function for ever.
STUCK = r"""
local ls = require "luaserve"
ls.config{ threads = 1, threads_max = 2, drain_timeout = 0.3 }
os.execute("test -p @DIR@/pipe || mkfifo @DIR@/pipe")
local pipe = io.open("@DIR@/pipe", "r+")
local function stuck() pipe:read() end
local app = ls.app()
"""

HELLO = (
    'local ls = require "luaserve"; local app = ls.app(); app:get("/", function() return "x" end)\n'
    'ls.listen{ host = "127.0.0.1", port = %s, handler = app }\n'
)


class CommandLine(unittest.TestCase):
    def run_site(self, text, *flags, args=(), status=None):
        with scratch(site_lua=text) as where:
            got = run_program([*flags, os.path.join(where, "site.lua"), *args], cwd=where)
        if status is not None:
            self.assertEqual(got[0], status, got)
        return got

    def test_help(self):
        for flag in ("--help", "-h"):
            status, out, err = run_program([flag])
            self.assertEqual((status, err), (0, ""), flag)
            for word in ("site.lua", "--threads", "--backend", "--check", "--log-level", "--version"):
                self.assertIn(word, out)

    def test_version(self):
        status, out, _ = run_program(["--version"])
        self.assertEqual(status, 0)
        self.assertRegex(out, r"luaserve \d+\.\d+")
        self.assertRegex(out, r"Lua 5\.4")
        self.assertIn("iocp" if WINDOWS else "epoll", out)
        self.assertIn("cjson", out)

    def test_no_site(self):
        status, out, err = run_program([])
        self.assertEqual(status, 2, err)
        self.assertIn("site.lua", out + err)

    def test_bad_option_values(self):
        with scratch(site_lua=HELLO % 0) as where:
            for flag, value in (("--threads", "many"), ("--threads", "0"), ("--threads", "1025"), ("--threads", "0000000001"),
                                ("--control", ""), ("--backend", "magic"), ("--log-level", "loud")):
                status, _, err = run_program([flag, value, os.path.join(where, "site.lua")])
                self.assertEqual(status, 2, (flag, value, err))
                self.assertIn('%s: invalid value "%s": must be ' % (flag, value), err)

    def test_missing_file(self):
        for path in "/nowhere/at/all.lua", "/tmp":  # a directory
            status, _, err = run_program([path])
            self.assertEqual(status, 1)
            self.assertIn(path, err)

    def test_wrong_site(self):
        for name, text, place, says in (
            ("syntax", 'local x = 1\nlocal y = = 2\n', "site.lua:2", "near"),
            ("runtime", 'local ls = require "luaserve"\n\nlocal t = nil\nt.x = 1\n', "site.lua:4", "nil"),
            ("error", '\nerror("on purpose")\n', "site.lua:2", "on purpose"),
            ("unknown name", 'local ls = require "luaserve"\nls.lisen(80)\n', "site.lua:2", "lisen"),
            ("unknown option", 'local ls = require "luaserve"\nls.config{ thraeds = 2 }\n', "site.lua:2", "thraeds"),
            ("bad route", 'local ls = require "luaserve"\nlocal app = ls.app()\napp:get("no-slash", function() end)\n', "site.lua:3",
             "no-slash"),
            ("module", 'require "not.there"\n', "site.lua:1", "not.there"),
        ):
            with self.subTest(name):
                _, out, err = self.run_site(text, status=1)
                self.assertIn(place, err)
                self.assertIn(says, err)
                self.assertNotIn("listening on", err)
                self.assertEqual(out, "")

    def test_error_that_is_no_text(self):
        for value in ("{}", "nil", "setmetatable({}, { __tostring = function() error('x') end })"):
            with self.subTest(value):
                _, _, err = self.run_site("error(%s)\n" % value, status=1)
                self.assertIn("site.lua", err)

    def test_check(self):
        status, out, err = self.run_site(HELLO % 0, "--check")
        self.assertEqual(status, 0, err)
        self.assertNotIn("listening on", out + err)
        self.assertRegex(out + err, r"(?i)listen|route|ok")
        _, _, err = self.run_site("x = = 1\n", "--check", status=1)
        self.assertIn("site.lua:1", err)

    def test_check_binds_nothing(self):
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", 0))
            busy.listen()
            self.run_site(HELLO % busy.getsockname()[1], "--check", status=0)

    def test_all_addresses_are_open_before_the_first_is_named(self):
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", 0))
            busy.listen()
            site = HELLO.replace("ls.listen", "ls.listen('127.0.0.1:0', app) ls.tcp('127.0.0.1:0', print) ls.listen")
            _, _, err = self.run_site(site % busy.getsockname()[1], status=1)
            self.assertIn("in use", err)
            self.assertNotIn("listening on", err)

    def test_a_second_instance_takes_nothing_over(self):
        first = Server(HELLO % 0)
        self.addCleanup(first.cleanup)
        for _ in range(2):
            _, _, err = self.run_site(HELLO % first.port(), status=1)
            self.assertRegex(err, r"site\.lua:2: cannot listen on 127\.0\.0\.1:%d: address in use\n\Z" % first.port())
            self.assertEqual([first.get("/").text for _ in range(20)], ["x"] * 20)
        first.stop()

    def test_arguments(self):
        text = 'local a, b = ...\nprint(a, b, select("#", ...), arg[1], arg[2], #arg, arg[0])\n' + HELLO % 0
        status, out, err = self.run_site(text, "--check", args=["one", "--two"])
        self.assertEqual(status, 0, err)
        fields = out.splitlines()[0].split("\t")
        self.assertEqual(fields[:6], ["one", "--two", "2", "one", "--two", "2"])
        self.assertTrue(fields[6].endswith("site.lua"))


class Starting(E2E):
    def test_a_site_that_listens_nowhere(self):
        """A site may consist of timers only; the server ends with the last one."""
        server = self.serve('require("luaserve").after(0.01, function() print("x") io.stderr:write("ticked\\n") end)\n', listeners=0)
        self.assertEqual(server.wait(), 0)
        self.assertTrue(server.logged("ticked"))

    def test_threads(self):
        server = self.serve(SITE, flags=("--threads", "3"))
        self.assertGreaterEqual(server.threads(), 4)
        self.assertEqual(server.get("/").text, "root")

    def test_backend(self):
        for name in ("auto", "iocp" if WINDOWS else "epoll"):
            server = self.serve(SITE, flags=("--backend", name))
            self.assertEqual(server.get("/").text, "root")
            server.stop()
            self.assertNotIn("back end", server.log())

    @not_on_windows("uring was a back end of Linux")
    def test_the_former_backend_uring_is_epoll(self):
        server = self.serve(SITE, flags=("--backend", "uring"))
        self.assertEqual(server.get("/").text, "root")
        server.stop()
        lines = [line for line in server.log().splitlines() if "back end" in line]
        self.assertEqual(len(lines), 1, server.log())
        self.assertIn('back end "uring": Linux has one back end, epoll, which is used', lines[0])
        with scratch(site_lua=HELLO % 0) as where:
            status, out, err = run_program(["--backend", "uring", "--check", os.path.join(where, "site.lua")])
        self.assertEqual(status, 0, err)
        self.assertIn("\nback end: epoll\n", out)

    def test_log_level(self):
        port = free_port()
        quiet = self.serve(SITE.replace("port = 0", "port = %d" % port), flags=("--log-level", "error"), listeners=0)

        def up():
            try:
                with Conn(("127.0.0.1", port)) as conn:
                    return conn.get("/").text == "root"
            except OSError:
                return False

        self.eventually(up, "the server listens")
        quiet.stop()
        self.assertEqual([line for line in quiet.log().splitlines() if " info " in line], [])
        loud = self.serve(SITE, flags=("--log-level=debug",))
        self.assertEqual(loud.get("/").text, "root")

    def test_restart_at_once_on_the_same_port(self):
        port = free_port()
        for _ in range(3):
            server = self.serve(HELLO % port)
            with server.connect() as conn:
                self.assertEqual(conn.get("/").text, "x")
                server.stop()

    def test_unix_socket_file(self):
        text = (
            'local ls = require "luaserve"; local app = ls.app(); app:get("/", function() return "x" end)\n'
            'ls.listen("unix:%s", app)\n'
        )
        if not HAS_UNIX_SOCKETS:
            return self.refuses_unix_socket(text % "@DIR@/s.sock", "cannot listen on unix:@DIR@/s.sock: not supported here")
        with scratch() as where:
            path = os.path.join(where, "s.sock")
            server = self.serve(text % path)
            self.assertEqual(server.get("/").text, "x")
            busy = self.serve(text % path, listeners=0)
            self.assertEqual(busy.wait(), 1, "a socket that is served is not taken away")
            self.assertIn(path, busy.log())
            self.assertEqual(server.get("/").text, "x")
            server.kill()
            again = self.serve(text % path)  # it starts although a crash left the socket file behind
            self.assertEqual(again.get("/").text, "x")


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Draining(E2E):
    def test_nothing_to_do(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.serve(SITE)
            server.signal(number)
            self.assertEqual(server.wait(), 0)

    def test_drain_in_the_middle_of_many(self):
        """Each request in progress gets a complete response with Connection: close."""
        server = self.serve(SITE)
        count = min(repeats(1000), system.raise_descriptor_limit(1500) - 200)
        conns = []
        for n in range(count):
            conn = self.connect(server=server)
            conns.append(conn)
            conn.send(request("GET", "/to-the-end?n=%d" % n))
        server.wait_log(r"began ", count=count, timeout=2 * WAIT)
        server.signal()
        for n, conn in enumerate(conns):
            response = conn.response()
            self.assertEqual((response.status, response.text), (200, "ended %d" % n))
            self.assertTrue(response.closes, "Connection: close is announced")
            conn.expect_end()
            conn.close()
        self.assertEqual(server.wait(), 0)

    def test_idle_connections_are_closed(self):
        server = self.serve(SITE)
        silent = [self.connect(server=server) for _ in range(20)]
        used = [self.connect(server=server) for _ in range(20)]
        for conn in used:
            self.assertEqual(conn.get("/").text, "root")
        server.signal()
        for conn in silent + used:
            conn.expect_end()
        self.assertEqual(server.wait(), 0)

    def test_long_answers_are_finished(self):
        server = self.serve(SITE)
        parts, big = self.connect(server=server), self.connect(server=server)
        parts.send(request("GET", "/parts"))
        parts.response_head()
        big.send(request("GET", "/big"))
        head = big.response_head()
        server.signal()
        self.assertEqual(len(big.take(int(head.header("Content-Length")))), 4000000)
        body = parts.rest()
        self.assertTrue(body.endswith(b"part 10\n\r\n0\r\n\r\n"), body[-60:])
        self.assertEqual(server.wait(), 0)

    def test_a_body_on_its_way_is_read(self):
        server = self.serve(SITE)
        conn = self.connect(server=server)
        self.assertEqual(conn.get("/").text, "root")
        conn.send(request("POST", "/echo", {"Content-Length": "10", "Expect": "100-continue"}))
        self.assertEqual(conn.head().status, 100)
        idle = self.connect(server=server)
        self.assertEqual(idle.get("/").text, "root")
        server.signal()
        idle.expect_end()  # the drain has reached the connections
        conn.send(b"0123456789")
        response = conn.response()
        self.assertEqual((response.text, response.closes), ("0123456789", True))
        conn.close()  # the server would wait two seconds for it
        self.assertEqual(server.wait(), 0)

    def test_no_new_connections(self):
        server = self.serve(SITE)
        conn = self.connect(server=server)
        conn.send(request("GET", "/noted?n=1"))
        server.wait_log("began 1")
        server.signal()

        def refused():
            try:
                with Conn(server.at(), timeout=1) as other:
                    other.send(request("GET", "/"))
                    return other.rest() == b""
            except (OSError, AssertionError):
                return True

        self.eventually(refused, "new connections are refused")
        self.assertEqual(conn.response().text, "slept 1")
        conn.close()
        self.assertEqual(server.wait(), 0)

    def test_drain_timeout(self):
        server = self.serve("require('luaserve').config{ drain_timeout = 0.3 }\n" + SITE)
        conn = self.connect(server=server)
        conn.send(request("GET", "/sleep?s=3600"))
        self.assertEqual(server.get("/").text, "root")
        server.signal()
        response = conn.response()  # a proxy may ask another server
        self.assertEqual((response.status, response.header("connection")), (503, "close"))
        self.assertEqual(server.wait(), 1)

    def test_second_signal_ends_at_once(self):
        server = self.serve(SITE)
        conn = self.connect(server=server)
        conn.send(request("GET", "/sleep?s=3600"))
        self.assertEqual(server.get("/").text, "root")
        server.signal()
        server.wait_log(r"(?i)drain")
        self.assertTrue(server.alive())
        server.signal()
        server.wait(WAIT)

    @not_on_windows("SIGHUP")
    def test_a_signal_does_not_cut_the_drain_that_the_site_began(self):
        server = self.serve(app_site(r"""
          app:get("/", function() ls.stop() repeat ls.sleep(0.01) until io.open("@DIR@/signalled") return "whole" end)
"""))
        conn = self.connect(server=server)
        conn.send(request("GET", "/"))
        server.wait_log("draining")
        server.signal()
        server.signal(signal.SIGHUP)
        server.wait_log("SIGHUP: no reload: the server stops")  # both signals have had their effect
        write_text(os.path.join(server.dir, "signalled"), "")
        self.assertEqual(conn.response().text, "whole")
        conn.close()
        self.assertEqual(server.wait(), 0)

    def test_a_long_drain_names_what_it_waits_for(self):
        """Trap 17 of the first hour: a response without an end held Ctrl-C for 15 s, and no message named the handler."""
        server = self.serve(app_site(r"""
            ls.config { drain_timeout = 0.4, threads = 1 }
            app:get("/ticks/:n", function(_, res)
              while true do
                res:write("x")
                ls.sleep(0.01)
              end
            end)
            ls.on("start", function() ls.sleep(100) end)
            local jobs = ls.channel("jobs", { capacity = 1 })
            ls.on("start", function()
              jobs:send(1)
              jobs:send(2)
            end)
"""))
        conn = self.connect(server=server)
        conn.send(request("GET", "/ticks/1"))
        self.assertIn(b"200 OK", conn.line())
        server.signal()
        self.assertEqual(server.wait(), 1)
        self.assertRegex(server.log(), r"draining: the handler of GET /ticks/:n \(.*site.lua:5\) waits at .*site.lua:8")
        self.assertRegex(server.log(), r"draining: a task of ls.init or \"start\" waits at .*site.lua:11\n")
        self.assertRegex(server.log(), r'draining: a task of ls.init or "start" waits at .*site.lua:15 for room in the channel "jobs"\n')
        self.assertIn("a second signal ends it at once; still running: a request, 2 tasks of ls.init or \"start\"", server.log())

    def test_a_drain_that_ends_by_time_names_what_it_cuts(self):
        server = self.serve(r"""
            local ls = require "luaserve"
            local app = ls.app()
            ls.config { drain_timeout = 0.3, threads = 1 }
            app:get("/waits/:n", function() ls.log.info("waits") ls.sleep(3600) end)
            ls.on("start", function() ls.log.info("starts") ls.sleep(3600) end)
            ls.listen{ host = "127.0.0.1", port = 0, handler = app, trusted = { "127.0.0.1" } }
            ls.tcp{ host = "127.0.0.1", port = 0, handler = function(sock) ls.log.info("serves") ls.sleep(3600) end }""",
            listeners=2)
        for n in range(12):
            self.connect(server=server).send(request("GET", "/waits/%d" % n, [("X-Forwarded-For", "192.0.2.%d" % n)]))
        self.connect(index=1, server=server)
        server.wait_log("info waits", count=12)
        server.wait_log("info serves")
        server.signal()
        self.assertEqual(server.wait(), 1)
        named = server.logged(r"warn ended: request [0-9a-f]+ GET /waits/\d+ of 192\.0\.2\.\d+ waits at .*site.lua:5, for \d+\.\d s$")
        others = server.logged(r"warn ended: a (?:task of ls.init or \"start\"|TCP connection) waits at .*site.lua:(6|8)$")
        # At most 10 of a state are named. On a slow machine a handler may take more than a turn: there is a second state,
        # with a "start" hook of its own.
        further = re.findall(r"warn ended: (\d+) further tasks wait", server.log())
        self.assertEqual(len(named) + len(others) + sum(map(int, further)), 13 + len(server.logged("info starts")))
        self.assertGreaterEqual(len(named) + len(others), 10)
        starts = len(server.logged("info starts"))
        self.assertTrue(server.logged("the drain took longer than 0.3 s; ended connections: HTTP 12, TCP 1, WebSocket 0; tasks: 12 "
                                      "requests, a TCP connection, " + ("a task" if starts == 1 else "%d tasks" % starts)
                                      + ' of ls.init or "start"'))

    @not_on_windows("it has no named pipes in directories")
    @unittest.skipIf(SANITIZER == "tsan", "ThreadSanitizer delays SIGALRM while fflush waits for the lock of a file")
    def test_drain_timeout_with_all_threads_taken(self):
        """The status is 1 at the limit, with one signal, even if no thread can begin the drain, and a thread holds the
        lock of a C file."""
        site = STUCK + r"""
        app:get("/stuck", function() ls.log.info("stuck") stuck() end)
        ls.listen{ host = "127.0.0.1", port = 0, handler = app }
        """
        server = self.serve(site)
        for _ in range(2):
            self.connect(server=server).send(request("GET", "/stuck"))
        server.wait_log("stuck", count=2)
        server.signal()
        self.assertEqual(server.wait(), 1)
        self.assertIn("the drain took longer than 0.3 s", server.log())

    @not_on_windows("it has no named pipes in directories")
    @unittest.skipIf(SANITIZER == "tsan", "ThreadSanitizer delays SIGALRM while fflush waits for the lock of a file")
    def test_drain_timeout_before_the_server_has_begun(self):
        server = self.serve(STUCK.replace("threads = 1", "threads = 2") + 'ls.on("start", function() ls.log.info("stuck") stuck() end)\n', listeners=0)
        server.wait_log("stuck", count=2)
        server.signal()
        self.assertEqual(server.wait(), 1)

    @not_on_windows("it has no named pipes in directories")
    @unittest.skipIf(SANITIZER == "tsan", "ThreadSanitizer delays SIGALRM while fflush waits for the lock of a file")
    def test_second_signal_with_all_threads_taken(self):
        server = self.serve(STUCK.replace("0.3", "3600").replace("threads = 1", "threads = 2") + 'ls.on("start", function() ls.log.info("stuck") stuck() end)\n', listeners=0)
        server.wait_log("stuck", count=2)
        server.signal()
        server.wait_log("draining")
        server.signal()
        self.assertEqual(server.wait(), 1)

    @unittest.skipIf(SANITIZER == "tsan", "ThreadSanitizer delays signals while Lua loops")
    def test_a_signal_after_the_drain(self):
        """The server has drained, and a finalizer of the site runs: a signal ends the process with the status 0."""
        site = SITE + r"""
        held = setmetatable({}, { __gc = function() io.stderr:write("closing\n") while true do end end })
        """
        server = self.serve(site)
        self.assertEqual(server.get("/").text, "root")
        server.signal()
        server.wait_log("closing")
        server.signal()
        self.assertEqual(server.wait(), 0)


class Stalls(E2E):
    """A slow or blocking handler delays no other request, with any number of threads."""

    def fast_ones_first(self, target, noted, flags, slow_count=1):
        server = self.serve("require('luaserve').config{ max_cpu = 3600 }\n" + SITE, flags=flags)
        slow = [self.connect(server=server) for _ in range(slow_count)]
        mark = server.mark()
        for conn in slow:
            conn.send(request("GET", target))
        server.wait_log(noted, mark, count=slow_count)

        def one(n):
            with server.connect() as conn:
                return [conn.get("/n/%d" % n).text for _ in range(5)]

        self.assertEqual(in_parallel([lambda n=n: one(n) for n in range(10)], 10), [[str(n)] * 5 for n in range(10)])
        for conn in slow:
            self.assertTrue(conn.silent(0.01), "the slow one was answered before the fast ones")
        write_text(os.path.join(server.dir, "released"), "")
        for conn in slow:
            self.assertIn(conn.response().text, ("blocked", "spun"))
        server.stop()

    def test_blocking_with_one_thread(self):
        self.fast_ones_first("/block-until-released", "blocking", ("--threads", "1"))

    def test_busy_with_one_thread(self):
        self.fast_ones_first("/spin-until-released", "spinning", ("--threads", "1"))

    def test_a_sleeping_request_on_the_same_state_is_not_lost(self):
        """A handler that sleeps in a state in which another then blocks wakes late, but wakes."""
        server = self.serve(SITE, flags=("--threads", "1"))
        sleepers = [self.connect(server=server) for _ in range(10)]
        for conn in sleepers:
            conn.send(request("GET", "/sleep?s=0.1"))
        blocker = self.connect(server=server)
        blocker.send(request("GET", "/block?s=0.5"))
        for conn in sleepers:
            self.assertEqual(conn.response().text, "slept")
        self.assertEqual(blocker.response().text, "blocked")


OUT_OF_DESCRIPTORS = r"(?i)too many open|EMFILE|out of descriptors"
HOLDS = app_site("""
    local held = {}
    ls.config { threads = 1, states = 1 }
    app:get("/", function() return "root" end)
    app:get("/hold/:leave", function(req) -- all descriptors but some
      repeat -- none is left to the collector, which would close it at some time
        local file = io.open("/dev/null")
        held[#held + 1] = file
      until #held > 200 or not file
      for _ = 1, req.params.leave do table.remove(held):close() end
      return tostring(#held)
    end)
    app:get("/free", function() while held[1] do table.remove(held):close() end return "freed" end)
""")


@not_on_windows("Windows has no limit of handles")
class Descriptors(E2E):
    def test_out_of_descriptors(self):
        """A site has taken them all: connected clients are served, the log has one line, no thread spins, and the server
        recovers."""
        server = self.serve(HOLDS, nofile=64)
        first = self.connect(server=server)
        first.get("/hold/0")
        mark = server.mark()
        conns = [self.connect(server=server) for _ in range(20)]
        server.wait_log(OUT_OF_DESCRIPTORS, mark)
        self.assertEqual(first.get("/").text, "root")
        before = server.cpu()
        conns[0].send(request("GET", "/"))
        self.assertTrue(conns[0].silent(0.6))
        if not SANITIZER:
            self.assertLess(server.cpu() - before, 0.3, "it spins")
        first.get("/free")
        self.assertEqual(conns[0].response().text, "root")
        for conn in conns[1:]:
            self.assertEqual(conn.get("/").text, "root")
        self.assertLessEqual(len(server.logged(OUT_OF_DESCRIPTORS, mark)), 2, server.log())

    def test_connections_leave_descriptors_for_handlers(self):
        server = self.serve(HOLDS, nofile=100)
        conns = [self.connect(server=server) for _ in range(150)]
        self.assertEqual(conns[0].get("/").text, "root")
        self.assertTrue(conns[149].silent(0.1))
        self.assertGreaterEqual(int(conns[0].get("/hold/0").text), 10)
        for conn in conns[:120]:
            conn.close()
        self.assertEqual(conns[149].get("/").text, "root")

    def test_the_log_is_not_flooded(self):
        """At the limit for long, while connections close and others are accepted: the log does not get a line for
        each."""
        server = self.serve(HOLDS, nofile=64)
        with server.connect() as conn:
            conn.get("/hold/5")
        conns = [self.connect(server=server) for _ in range(20)]
        server.wait_log(OUT_OF_DESCRIPTORS)
        for _ in range(30):
            conns.pop(0).close()
            self.assertEqual(conns[0].get("/").text, "root")
            conns.append(self.connect(server=server))
            self.eventually(lambda: server.fds() >= 64, "the next connection is accepted")
        self.assertLessEqual(len(server.logged(OUT_OF_DESCRIPTORS)), 3, server.log()[-2000:])
