"""The process and its parent: signals, child processes, standard descriptors, a log and an output that nobody reads."""
import os
import signal
import subprocess
import threading
import unittest

from harness import E2E, LUASERVE, SANITIZER, WAIT, WINDOWS, Conn, app_site, request, run_program, scratch, write_text

SITE = app_site(r"""
app:get("/", function() return "root" end)
app:get("/wait", function() ls.log.info("waiting"); ls.sleep(0.3) return "waited" end)
app:get("/execute", function(req) local _, how, status = os.execute(req.query.command) return how .. " " .. status .. "\n" end)
app:get("/popen", function(req)
  local from = io.popen(req.query.command)
  local text = from:read("a")
  from:close()
  return text
end)
app:get("/log", function(req) for _ = 1, tonumber(req.query.lines) do ls.log.info(("x"):rep(1000)) end return "logged" end)
app:get("/stop", function() ls.stop() return "stopping" end)
""")


@unittest.skipIf(WINDOWS, "of another system: Windows has no signals")
class Signals(E2E):
    def test_signals_without_effect(self):
        """SIGUSR1 without --log changes nothing; SIGHUP reloads the site."""
        server = self.serve(SITE)
        with server.connect() as conn:
            conn.send(request("GET", "/wait"))
            server.wait_log("waiting")
            for name in ("SIGHUP", "SIGUSR1", "SIGHUP"):
                mark = server.mark()
                server.signal(getattr(signal, name))
                if name == "SIGHUP":
                    server.wait_log("reloaded", mark)
            self.assertEqual(conn.response().text, "waited")
            self.assertEqual(conn.get("/").text, "root")

    def test_status(self):
        """What waits, and what does not answer."""
        server = self.serve('''
local ls = require "luaserve"
local app = ls.app()
app:get("/slow/:id", function() ls.channel("end"):receive() return "x" end)
app:get("/spin", function() while not io.open("@DIR@/go") do end return "y" end)
app:get("/", function() ls.channel("end"):send(1) return "" end)
ls.listen(0, app)
''', flags=("--control", "control"), listeners=2)

        def status():
            code, out, err = run_program(["status", "--control", "control"], cwd=server.dir)
            self.assertEqual((code, err), (0, ""))
            return out

        self.assertEqual(status(), "nothing waits\n")
        with server.connect() as slow, server.connect() as spin:
            slow.send(request("GET", "/slow/7"))
            self.eventually(lambda: "/slow" in status(), "the request waits")
            self.assertRegex(status(), r'^request \w+ GET /slow/7 of 127.0.0.1, handler of GET /slow/:id \(\S*site.lua:4\), waits at \S*site.lua:4 for '
                                       r'the channel "end"(, for \d+.\d s)?\n$')
            spin.send(request("GET", "/spin"))
            self.eventually(lambda: "a Lua state computes, or blocks in a C function" in status(), "a state does not answer")
            write_text(server.dir + "/go", "")
            server.get("/")
            self.assertEqual((slow.response().text, spin.response().text), ("x", "y"))
        server.stop()
        self.assertEqual(run_program(["status", "--control", "control"], cwd=server.dir)[0], 3)

    def test_nohup(self):
        """A SIGHUP that the parent ignores remains ignored, but not by a server that `luaserve reload` finds."""
        for flags, reloads in (((), 0), (("--pid", "p"), 1)):
            server = self.serve(SITE, prefix=("nohup",), flags=flags)
            server.signal(signal.SIGHUP)
            if reloads:
                server.wait_log("reloaded")
            self.assertEqual(server.get("/").status, 200)
            self.assertEqual(len(server.logged("reloaded")), reloads)
            server.stop()

    def test_a_hangup_while_the_site_loads(self):
        server = self.serve('io.stderr:write("loading\\n") os.execute("sleep 0.5")\n' + SITE, listeners=0)
        server.wait_log("loading")
        server.signal(signal.SIGHUP)
        server.wait_log("listening on")
        server.wait_log("reloaded")  # as soon as the server serves

    def test_a_request_to_stop_while_the_site_loads(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server = self.serve('io.stderr:write("loading\\n") while true do end\n', listeners=0)
            server.wait_log("loading")
            server.signal(number)
            self.assertEqual(server.wait(), -number)

    def test_a_request_to_stop_as_soon_as_a_client_can_connect(self):
        """It drains: the client has its response."""
        with scratch() as where:
            path = os.path.join(where, "s")
            server = self.serve(SITE + 'ls.listen("unix:%s", app)\nls.listen("unix:%s2", app)\n' % (path, path), listeners=0)
            self.eventually(lambda: os.path.exists(path), "the first listener is open")
            server.signal()
            self.assertEqual(server.wait(), 0)


@unittest.skipIf(WINDOWS, "of another system: Windows has no signals")
class Children(E2E):
    SITE = SITE

    def run_command(self, how, command):
        return self.get("/%s?command=%s" % (how, "".join("%%%02x" % c for c in command.encode()))).text

    def test_sigpipe_ends_a_child(self):
        self.assertEqual(self.run_command("popen", "{ yes; echo status $? >&2; } 2>&1 | head -1"), "y\n")
        mark = self.server.mark()
        self.assertEqual(self.run_command("popen", "(yes; echo status $?) 2>&1 >/dev/full | grep -c 'Broken pipe'"), "0\n")
        self.assertEqual(self.run_command("execute", "bash -c 'yes | head -1 >/dev/null; exit ${PIPESTATUS[0]}'"),
                         "exit %d\n" % (128 + signal.SIGPIPE))
        self.assertEqual(self.server.logged("Broken pipe", mark), [])

    def test_a_command_that_waits_delays_no_other(self):
        """Two handlers run commands, and the first one does not end: others go on, also in a state that is made now."""
        with scratch() as where:
            fifo = os.path.join(where, "fifo")
            os.mkfifo(fifo)
            with self.connect() as first:
                first.send(request("GET", "/popen?command=cat%%20%s" % fifo))
                with open(fifo, "w") as end:  # returns when cat has opened it
                    for _ in range(5):
                        self.assertEqual(self.run_command("popen", "echo hi"), "hi\n")
                        self.assertEqual(self.get("/").text, "root")
                    end.write("the end")
                self.assertEqual(first.response().text, "the end")


@unittest.skipIf(WINDOWS, "of another system: standard descriptors of a POSIX process")
class StandardDescriptors(E2E):
    def test_closed_ones_are_not_used_for_files(self):
        """A file that the site opens does not become standard error."""
        site = """
          local ls = require "luaserve"
          kept = io.open("@DIR@/data", "w")
          kept:write("data\\n") kept:flush()
          print("printed")
          ls.log.error("logged")
          ls.after(0.01, ls.stop)
        """
        for closed in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
            with self.subTest(closed), scratch() as where:
                path = os.path.join(where, "site.lua")
                write_text(path, site.replace("@DIR@", where))
                done = subprocess.run(["sh", "-c", 'exec "$@" ' + closed, "sh", LUASERVE, path], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=2 * WAIT)
                self.assertEqual(done.returncode, 0)
                with open(os.path.join(where, "data")) as data:
                    self.assertEqual(data.read(), "data\n")
                self.assertEqual(b"logged" in done.stderr, "2>" not in closed)
                self.assertEqual(b"printed" in done.stdout, " >" not in " " + closed)

    def test_a_help_text_without_descriptors(self):
        done = subprocess.run(["sh", "-c", 'exec "$@" <&- 2>&-', "sh", LUASERVE, "--help"], stdout=subprocess.PIPE, timeout=WAIT)
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"usage", done.stdout)


@unittest.skipIf(WINDOWS, "of another system: a write to a pipe of Windows waits for its reader")
class StalledLog(E2E):
    """Standard error is a pipe that nobody reads."""

    def start(self, site=SITE):
        where = scratch()
        directory = where.__enter__()
        self.addCleanup(where.__exit__, None, None, None)
        path = os.path.join(directory, "site.lua")
        at = os.path.join(directory, "s")
        write_text(path, site.replace('host = "127.0.0.1", port = 0', 'host = "unix:%s"' % at))
        process = subprocess.Popen([LUASERVE, path], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)

        def end():
            process.kill()
            process.wait()
            process.stderr.close()

        self.addCleanup(end)
        self.eventually(lambda: os.path.exists(at) and self.answers(at), "it serves")
        return process, at

    def answers(self, at):
        try:
            with Conn(at) as conn:
                return conn.get("/").text == "root"
        except OSError:
            return False

    def test_dropped_lines_are_counted(self):
        process, at = self.start()
        with Conn(at) as conn:
            self.assertEqual(conn.get("/log?lines=3000").text, "logged")
            text = ""
            while "dropped" not in text:
                text += os.read(process.stderr.fileno(), 1 << 20).decode()
            self.assertEqual(conn.get("/log?lines=1").text, "logged")
        process.terminate()
        self.assertEqual(process.wait(WAIT), 0)
        text += process.stderr.read().decode()
        dropped = [line for line in text.splitlines() if "dropped" in line]
        self.assertEqual(len(dropped), 1, text[-3000:])
        kept = sum(line.endswith("x" * 1000) for line in text.splitlines())
        self.assertRegex(dropped[0], r"Z warn %d log lines dropped: standard error took no more$" % (3001 - kept))
        self.assertIn("draining", text)

    @unittest.skipIf(SANITIZER == "tsan", "ThreadSanitizer delays SIGALRM while fflush waits for the lock of a file")
    def test_a_file_that_takes_too_long_at_the_end(self):
        """The message of the early end does not wait for the reader either."""
        stuck = r"""
        local name = os.tmpname()
        os.execute("rm " .. name .. " && mkfifo " .. name)
        local fifo = io.open(name, "r+")
        os.remove(name)
        app:get("/stuck", function(req) io.open(req.query.marker, "w"):close() fifo:read() end)
        """
        process, at = self.start(SITE.replace("ls.listen{", stuck + "ls.listen{"))
        with Conn(at) as stuck:
            stuck.send(request("GET", "/stuck?marker=%s.stuck" % at))
            self.eventually(lambda: os.path.exists(at + ".stuck"), "the handler reads")
            process.terminate()
            self.eventually(lambda: not os.path.exists(at), "it drains")  # else the next signal may end it before that
            fill = os.open("/proc/self/fd/%d" % process.stderr.fileno(), os.O_WRONLY | os.O_NONBLOCK)
            with self.assertRaises(BlockingIOError):
                while True:
                    os.write(fill, b"x")
            os.close(fill)
            process.terminate()
            self.assertEqual(process.wait(WAIT), 1)


PRINTING = """
local ls = require "luaserve"
for n = 1, 300 do print("load " .. n .. ("x"):rep(1000)) end
local app = ls.app()
app:get("/", function() return "root" end)
app:get("/print", function(req)
  for n = 1, tonumber(req.query.lines) do print("line " .. n .. ("x"):rep(1000)) end
  return "printed"
end)
app:get("/write", function(req)
  for n = 1, tonumber(req.query.lines) do io.write("part ", n, ("x"):rep(1000), "\\n") end
  io.stdout:flush()
  return "written"
end)
ls.listen("127.0.0.1:0", app)
"""


@unittest.skipIf(WINDOWS, "of another system: io.write waits for the reader there")
class StalledOutput(E2E):
    """Standard output is a pipe whose reader stops."""

    def serve_to_a_pipe(self):
        from_server, to_server = os.pipe()
        server = self.serve(PRINTING, stdout=to_server, listeners=0)
        os.close(to_server)
        reader = os.fdopen(from_server, "r")
        self.addCleanup(reader.close)
        return server, reader

    def loaded(self, server, reader):
        self.assertEqual([reader.readline().split("x", 1)[0] for _ in range(300)], ["load %d" % n for n in range(1, 301)])
        server.wait_log("listening on")

    def test_while_it_loads_no_line_is_lost(self):
        """The site loads when the reader reads: 300 lines exceed the pipe."""
        server, reader = self.serve_to_a_pipe()
        self.loaded(server, reader)

    def test_requests_are_answered_and_lost_lines_are_counted(self):
        server, reader = self.serve_to_a_pipe()
        self.loaded(server, reader)
        with server.connect() as conn:
            self.assertEqual(conn.get("/print?lines=3000").text, "printed")
            self.assertEqual(conn.get("/").text, "root")
            lines = []
            reading = threading.Thread(target=lambda: lines.extend(reader))
            reading.start()
            lost = server.wait_log("printed lines dropped: standard output took no more")
            self.assertEqual(conn.get("/print?lines=1").text, "printed")
        server.stop()
        reading.join(WAIT)
        names = [line.split("x", 1)[0] for line in lines]
        kept = len(names) - 1
        self.assertGreater(kept, 1000)  # the queue has 1 MiB, the pipe 64 KiB
        self.assertEqual(names, ["line %d" % n for n in (*range(1, kept + 1), 1)])
        self.assertIn(" warn %d printed lines dropped" % (3000 - kept), lost)

    def test_io_write_does_not_wait_either(self):
        server, reader = self.serve_to_a_pipe()
        self.loaded(server, reader)
        with server.connect() as conn:
            self.assertEqual(conn.get("/write?lines=3000").text, "written")
            self.assertEqual(conn.get("/").text, "root")
        self.assertEqual(reader.readline().split("x", 1)[0], "part 1")
        server.signal()
        self.assertEqual(server.wait(), 0)  # it waits a second for the reader, not longer

    def test_what_is_queued_is_written_at_the_end(self):
        server, reader = self.serve_to_a_pipe()
        self.loaded(server, reader)
        with server.connect() as conn:
            self.assertEqual(conn.get("/print?lines=500").text, "printed")
        server.signal()
        self.assertEqual([line.split("x", 1)[0] for line in reader], ["line %d" % n for n in range(1, 501)])
        self.assertEqual(server.wait(), 0)

    def test_a_program_without_listeners_waits(self):
        """`luaserve program.lua | less`: all lines arrive, in their order, however late they are read."""
        with scratch(site_lua="""
            local ls = require "luaserve"
            ls.init(function() for n = 1, 3000 do print("line " .. n .. ("x"):rep(1000)) io.write("part ", n, "\\n") end end)
        """) as where:
            with subprocess.Popen([LUASERVE, "--log-level", "warn", os.path.join(where, "site.lua")], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, text=True) as process:
                names = [line.split("x", 1)[0].strip() for line in process.stdout]
                self.assertEqual(process.wait(WAIT), 0)
        self.assertEqual(names, [name % n for n in range(1, 3001) for name in ("line %d", "part %d")])
