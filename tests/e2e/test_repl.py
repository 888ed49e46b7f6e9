"""luaserve repl: lines from a pipe, at a terminal, and in a running server over its control socket."""
# sanitizers: asan; one prompt
import contextlib
import os
import re
import select
import signal
import socket
import stat
import subprocess
import tempfile
import time
import unittest

from harness import (E2E, HAS_UNIX_SOCKETS, LUASERVE, OTHER_SYSTEM, WAIT, app_site, fcntl, needs_terminal, pty,
                     scratch, termios, write_text)
from harness.server import write_text

EDITOR = "line editor: none" not in subprocess.run([LUASERVE, "--version"], capture_output=True, text=True).stdout

SITE = app_site("""
counter = 0
function double(x) return 2 * x end
app:get("/", function() counter = counter + 1 return "hello\\n" end)
""")


def repl(text, *args, env=None, cwd=None):
    """Run lines from a pipe: (status, standard output, standard error)."""
    done = subprocess.run([LUASERVE, "repl", *args], input=text.encode(), capture_output=True, timeout=WAIT,
                          env=dict(os.environ, **(env or {})), cwd=cwd)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


needs_unix_sockets = unittest.skipUnless(HAS_UNIX_SOCKETS, OTHER_SYSTEM + "the prompt and the control socket need Unix sockets")


class Terminal:
    """The program at a pseudo-terminal."""

    def __init__(self, *args, env=None):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen([LUASERVE, "repl", *args], stdin=slave, stdout=slave, stderr=slave,
                                        env=dict(os.environ, TERM="dumb", LC_ALL="C.UTF-8", **(env or {})),
                                        preexec_fn=self._own_terminal(slave))
        os.close(slave)
        self.text = ""
        self.at = 0

    @staticmethod
    def _own_terminal(slave):
        def prepare():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        return prepare

    def send(self, text):
        os.write(self.master, text.encode())

    def expect(self, pattern):
        """Read until the text since the last match matches."""
        while True:
            match = re.compile(pattern, re.M).search(self.text, self.at)
            if match:
                self.at = match.end()
                return match
            ready, _, _ = select.select([self.master], [], [], WAIT)
            if not ready:
                raise AssertionError("%r is missing in %r" % (pattern, self.text[self.at:]))
            try:
                got = os.read(self.master, 4096)
            except OSError:
                got = b""
            if not got:
                raise AssertionError("%r is missing at the end of %r" % (pattern, self.text[self.at:]))
            self.text += got.decode("utf-8", "replace")

    def prompt(self):
        """Wait for the prompt, and until the editor has switched the terminal: before, it would discard Ctrl-D."""
        self.expect(r"> $")
        deadline = time.monotonic() + WAIT
        while EDITOR and termios.tcgetattr(self.master)[3] & termios.ICANON:
            assert time.monotonic() < deadline, "the terminal still edits lines"
            time.sleep(0.001)

    def line(self, text, pattern):
        self.prompt()
        self.send(text + "\r")
        return self.expect(pattern)

    def close(self):
        with contextlib.suppress(OSError):
            os.close(self.master)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(WAIT)


class Session:
    """A session of the control socket: the messages that src/cli/repl.h describes."""

    def __init__(self, link):
        self.link = link
        self.lines = link.makefile("rb")
        kind, text, self.number = self.receive()
        assert (kind, text.count(".")) == ("hello", 2), (kind, text)

    def receive(self):
        """The next message: its kind, text and number; None at the end."""
        head = self.lines.readline()
        if not head:
            return None
        kind, length, number = head.decode().split()
        return kind, self.lines.read(int(length)).decode(), int(number)

    def eval(self, text):
        self.link.sendall(b"eval %d\n%s" % (len(text.encode()), text.encode()))


@needs_unix_sockets
class Pipe(E2E):
    def lines(self, text, *args, **kw):  # --listen comes before the options of the server
        own = [arg for arg in args if arg == "--listen"]
        return repl(text, *own, *([arg for arg in args if arg != "--listen"] or ("-e", "")), **kw)

    def test_expressions_print_their_values(self):
        self.assertEqual(self.lines('1 + 1\n"a", nil, true\n{ b = 1, 2 }\nx = 5\nx\n_ + 1'),
                         (0, '2\n"a"\tnil\ttrue\n{ 2, b = 1 }\n5\n6\n', ""))

    def test_prints_arrive_in_order_with_the_values(self):
        self.assertEqual(self.lines('print("a", 1) return 2\nprint()\n'), (0, "a\t1\n2\n\n", ""))

    def test_a_chunk_that_stays_incomplete_fails(self):
        status, out, err = self.lines("1\nfor i = 1, 2 do\n")
        self.assertEqual((status, out), (1, "1\n"))
        self.assertIn("the last statement is incomplete", err)

    def test_the_first_line_that_fails_ends_the_program(self):
        for line, message in (("error('boom')", "repl:1: boom\nstack traceback:\n"), ("error({ code = 7 })", "{ code = 7 }\n"),
                              ("x ==== 1", "repl:1: syntax error near '=='"), ("ls.slep(1)", "did you mean"),
                              ("return +", "unexpected symbol")):
            with self.subTest(line=line):
                status, out, err = self.lines("1\n" + line + "\n2\n" if line != "return +" else "1\nx = = 1\n2\n")
                self.assertEqual((status, out), (1, "1\n"))
                self.assertIn(message, err)
                self.assertNotIn("interruptible", err)

    def test_a_line_may_wait(self):
        status, out, err = self.lines('ls.sleep(0.01)\nls.spawn(function() ls.sleep(0.01) return 3 end):wait()\n'
                                      'select(3, ls.connect("127.0.0.1", 1))\n')
        self.assertEqual((status, out, err), (0, '3\n"EREFUSED"\n', ""))

    def test_without_a_site(self):
        self.assertEqual(repl("ls.version ~= nil\n"), (0, "true\n", ""))
        self.assertEqual(repl("1\n", "--listen"), (0, "1\n", ""))

    def test_a_site_is_loaded_but_not_started(self):
        site = SITE + 'ls.init(function() started = true end)\nls.every(0.001, function() ticked = true end)\n'
        with scratch(**{"site.lua": site}) as folder:
            self.assertEqual(self.lines("double(21)\nls.sleep(0.02)\nstarted, ticked, counter\n",
                                        os.path.join(folder, "site.lua")), (0, "42\nnil\tnil\t0\n", ""))

    def test_listen_starts_the_site(self):
        site = 'local ls = require "luaserve"\nls.config { threads_max = 1 }\n' + SITE + \
            'ls.init(function() started = true end)\n'
        with scratch(**{"site.lua": site}) as folder:
            status, out, err = self.lines("while not started do ls.sleep(0.001) end\nstarted\n", "--listen", "--log-level",
                                          "info", os.path.join(folder, "site.lua"))
            self.assertEqual((status, out), (0, "true\n"), err)
            self.assertIn("listening on http://127.0.0.1:", err)

    def test_arguments_of_the_site(self):
        with scratch(**{"site.lua": "first, second = ...\n"}) as folder:
            self.assertEqual(self.lines("second, arg[1]\n", os.path.join(folder, "site.lua"), "a", "b"), (0, '"b"\t"a"\n', ""))

    def test_a_site_that_fails_to_load(self):
        with scratch(**{"site.lua": "x = = 1\n"}) as folder:
            status, out, err = self.lines("1\n", os.path.join(folder, "site.lua"))
            self.assertEqual((status, out), (1, ""))
            self.assertIn("site.lua:1:", err)

    def test_a_line_that_loops_for_ever_ends_by_max_cpu(self):
        for line in ("while true do end", "while true do pcall(function() while true do end end) end",
                     "xpcall(function() while true do end end, function() while true do end end)"):
            with self.subTest(line=line):
                status, out, err = self.lines("print(1)\n" + line + "\nprint(2)\n", "-e", "require 'luaserve'.config { max_cpu = 0.2 }")
                self.assertEqual((status, out), (1, "1\n"))
                self.assertIn("used more processor time than max_cpu allows (0.2 s)", err)

    def test_wrong_arguments(self):
        for args, message in ((("--attach",), "missing value of --attach: the path of a Unix socket"),
                              (("--attach", "x", "y"), "--attach excludes a site"), (("--nonsense",), "unknown option --nonsense"),
                              (("--check", "x"), "unknown option --check\nluaserve repl --help"),
                              (("-",), "the site cannot be read from standard input")):
            with self.subTest(args=args):
                status, out, err = repl("1\n", *args)
                self.assertEqual((status, out), (2, ""))
                self.assertIn(message, err)
        status, out, err = repl("", "--help")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("--attach PATH", out)

    def test_no_file_remains(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(repl("1\n", env={"XDG_RUNTIME_DIR": folder, "XDG_STATE_HOME": folder}), (0, "1\n", ""))
            self.assertEqual(os.listdir(folder), [])


@needs_terminal
@needs_unix_sockets
class AtTerminal(E2E):
    def terminal(self, *args, env=None):
        self.state = self.new_folder()
        terminal = Terminal(*args, env={"XDG_STATE_HOME": self.state, **(env or {})})
        self.addCleanup(terminal.close)
        return terminal

    def ends(self, terminal, status=0):
        terminal.prompt()
        terminal.send("\x04")
        with self.assertRaisesRegex(AssertionError, "at the end"):
            terminal.expect("more than the end")
        self.assertEqual(terminal.process.wait(WAIT), status)

    def test_prompts_values_and_the_end(self):
        t = self.terminal()
        t.expect("Ctrl-D leaves")
        t.line("1 + 1", r"^2\r$")
        t.line("for i = 1, 2 do", r">> $")
        t.at -= 3
        t.line("print(i) end", r"^1\r\n2\r$")
        t.line("error('boom')", r"boom")
        t.line("'still here'", r'^"still here"\r$')
        t.line("'h\u00e4'", '^"h\u00e4"\r$')
        self.ends(t)

    def test_ctrl_c_discards_the_input(self):
        t = self.terminal()
        t.prompt()
        t.send("for i = 1, 2 do\r")
        t.expect(r">> $")
        t.send("\x03")
        t.line("7", r"^7\r$")
        self.ends(t)

    def test_ctrl_c_ends_a_loop(self):
        for config in ("", "threads_max = 1"):
            with self.subTest(config=config):
                t = self.terminal("-e", "require 'luaserve'.config { max_cpu = 1000, %s }" % config)
                t.line("print('o' .. 'n') while true do pcall(string.rep, 'x', 10) end", r"^on\r$")
                t.send("\x03")
                t.expect("interrupted")
                t.line("7", r"^7\r$")
                self.ends(t)

    def test_ctrl_c_leaves_a_server_that_does_not_answer(self):
        path = os.path.join(self.new_folder(), "control")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            listener.settimeout(WAIT)
            t = self.terminal("--attach", path)
            link = listener.accept()[0]
            with link:
                link.settimeout(WAIT)
                lines = link.makefile("rb")
                link.sendall(b"hello 0 1\n")
                t.prompt()
                t.send("1\r")
                self.assertEqual([lines.readline() for _ in range(2)], [b"repl\n", b"eval 1\n"])
                for expected in (b"1interrupt 0\n", b"interrupt 0\n"):
                    t.send("\x03")
                    listener.accept()[0].close()  # of the line that computes
                    self.assertEqual(lines.readline(), expected)
                t.send("\x03")
                t.expect("the server does not answer")
                self.assertEqual(t.process.wait(WAIT), 1)

    def test_ctrl_c_ends_a_wait(self):
        t = self.terminal()
        t.line("print('o' .. 'n') ls.sleep(1000) print('never')", r"^on\r$")
        t.send("\x03")
        t.expect("interrupted")
        t.line("7", r"^7\r$")
        self.ends(t)

    @unittest.skipUnless(EDITOR, "a build without libedit")
    def test_tab_completes(self):
        t = self.terminal()
        t.prompt()
        t.send("ls.udp_c\t")
        t.expect("ls.udp_connect")
        t.send("\x15#ls.vers\t\r")
        t.expect(r"^5\r$")
        t.prompt()
        t.send("string.re\t")
        t.expect("rep  reverse")
        t.send("\x15")
        t.send("\t1\r")
        t.expect(r"^1\r$")
        self.ends(t)

    @unittest.skipUnless(EDITOR, "a build without libedit")
    def test_the_terminal_edits_lines_where_libedit_cannot_be_loaded(self):
        folder = self.new_folder()
        write_text(folder + "/libedit.so.2", "no library")
        t = Terminal(env={"XDG_STATE_HOME": folder, "LD_LIBRARY_PATH": folder})
        self.addCleanup(t.close)
        for line, answer in (("6 * 7", r"^42\r$"), ("#'ls.udp_c\t'", r"^9\r$")):  # Tab is a character
            t.expect(r"> $")
            t.send(line + "\n")
            t.expect(answer)
        t.expect(r"> $")
        t.send("\x04")
        self.assertEqual(t.process.wait(WAIT), 0)

    @unittest.skipUnless(EDITOR, "a build without libedit")
    def test_the_history_is_kept_for_the_user_alone(self):
        t = self.terminal()
        t.line("11 * 11", r"^121\r$")
        self.ends(t)
        path = os.path.join(self.state, "luaserve", "repl_history")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        os.chmod(path, 0o644)
        again = Terminal(env={"XDG_STATE_HOME": self.state})
        self.addCleanup(again.close)
        again.prompt()
        again.send("\x10\r")  # Ctrl-P: the line before
        again.expect(r"^121\r$")
        self.ends(again)
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)


@needs_unix_sockets
class Attach(E2E):
    def controlled(self, site=SITE, **kw):
        folder = self.new_folder()
        self.path = os.path.join(folder, "control")
        return self.serve(site, flags=("--control", self.path), **kw)

    def attach(self, text):
        return repl(text, "--attach", self.path)

    def control(self, first):
        """A connection to the control socket that has sent its first line."""
        link = socket.socket(socket.AF_UNIX)
        self.addCleanup(link.close)
        link.settimeout(WAIT)
        link.connect(self.path)
        link.sendall(first)
        return link

    def session(self):
        session = Session(self.control(b"repl\n"))
        self.addCleanup(session.lines.close)
        return session

    def test_lines_run_in_the_server(self):
        server = self.controlled()
        self.assertEqual(self.attach("double(21)\nprint(counter)\ncounter = 5\ncounter\n"), (0, "42\n0\n5\n", ""))
        self.assertEqual(server.get("/").status, 200)

    def test_globals_stay_between_sessions_of_one_state(self):
        self.controlled('require "luaserve".config { threads_max = 1 }\n' + SITE)
        self.assertEqual(self.attach("shared = 'yes'\n")[0], 0)
        self.assertEqual(self.attach("shared\n"), (0, '"yes"\n', ""))

    def test_the_socket_is_for_the_owner(self):
        server = self.controlled()
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        server.stop()
        self.assertFalse(os.path.exists(self.path))

    @unittest.skipUnless(hasattr(os, "getuid") and os.getuid() == 0, "only root can become another user")
    def test_a_control_socket_that_cannot_be_opened(self):
        with tempfile.TemporaryDirectory() as folder:
            site = os.path.join(folder, "site.lua")
            write_text(site, 'require("luaserve").every(1, print)\n')
            for path, why in ((site, "it exists, and is no socket; give another path"),
                              (os.path.join(folder, "x" * 108), "the path has more than 107 bytes"),
                              (os.path.join(folder, "none", "s"), "not found")):
                done = subprocess.run([LUASERVE, "--control", path, site], capture_output=True, text=True, timeout=WAIT)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(done.stderr, "luaserve: the control socket %s: %s\n" % (path, why))

    def test_another_user_is_refused(self):
        server = self.controlled()
        os.chmod(self.path, 0o777)
        os.chmod(os.path.dirname(self.path), 0o755)
        done = subprocess.run(["setpriv", "--reuid", "65534", "--clear-groups", "python3", "-c",
                               "import socket; s = socket.socket(socket.AF_UNIX); s.connect(%r); s.sendall(b'stats\\n'); "
                               "print(s.recv(100))" % self.path], capture_output=True, timeout=WAIT)
        self.assertIn(done.stdout, (b"b'refused 65534'\n", b""), done.stderr)  # nothing: the connection was reset
        server.wait_log("the control socket: refused a connection of user 65534")
        self.assertEqual(self.attach("1\n"), (0, "1\n", ""))

    def test_several_sessions_at_a_time(self):
        self.controlled()
        sessions = [self.session() for _ in range(8)]
        for n, session in enumerate(sessions):
            session.eval("print(%d) ls.sleep(0.01) return %d" % (n, n))
        for n, session in enumerate(sessions):
            self.assertEqual(session.receive(), ("out", "%d\n" % n, 0))
            self.assertEqual(session.receive(), ("value", "%d" % n, 1))
            session.link.close()

    def test_more_connections_than_the_limit_wait(self):
        self.controlled()
        links = [self.control(b"") for _ in range(64)]
        late = self.control(b"stats\n")
        links[0].close()
        self.assertIn(b"uptime ", late.recv(65536))
        for link in links[1:]:
            link.close()

    def test_sessions_leave_room_for_other_commands(self):
        self.controlled()
        sessions = [self.session() for _ in range(64)]
        self.assertIn(b"uptime ", self.control(b"stats\n").recv(65536))
        self.assertEqual(self.attach("1\n"), (1, "", "luaserve repl: cannot attach to %s: 64 sessions are open; close another\n" % self.path))
        sessions[0].link.shutdown(socket.SHUT_RDWR)
        self.eventually(lambda: self.attach("1\n")[0] == 0, "a session has room")

    def test_a_loop_delays_nobody_else_and_ends_by_max_cpu(self):
        server = self.controlled('require "luaserve".config { max_cpu = 1 }\n' + SITE)
        session = self.session()
        session.eval("while true do end")
        for _ in range(20):
            self.assertEqual(server.get("/").status, 200)
        self.assertEqual(self.attach("1\n"), (0, "1\n", ""))
        kind, text, number = session.receive()
        self.assertEqual((kind, number), ("error", 1))
        self.assertIn("more processor time than max_cpu allows (1 s)", text)
        session.eval("1")
        self.assertEqual(session.receive(), ("value", "1", 2))

    def test_interrupt_ends_a_loop(self):
        self.controlled('require "luaserve".config { max_cpu = 1000 }\n' + SITE)
        session = self.session()
        for loop in ("while true do pcall(function() while true do end end) end",
                     "local t <close> = setmetatable({}, { __close = function() while true do end end })"):
            with self.subTest(loop=loop):
                session.eval("print(1) ls.sleep(0.001) " + loop)
                self.assertEqual(session.receive(), ("out", "1\n", 0))
                other = self.control(b"interrupt %d\n" % (session.number + 1000))  # unknown: no effect
                self.assertEqual(other.recv(1), b"")
                other = self.control(b"interrupt %d\n" % session.number)
                self.assertEqual(other.recv(1), b"")
                self.assertEqual(session.receive()[:2], ("error", "interrupted"))
        session.eval("7")
        self.assertEqual(session.receive()[:2], ("value", "7"))

    def test_interrupt_ends_a_wait(self):
        self.controlled()
        session = self.session()
        session.eval("print(1) ls.sleep(0.05) late = true")
        self.assertEqual(session.receive(), ("out", "1\n", 0))
        session.link.sendall(b"interrupt 0\n")
        kind, _, number = session.receive()
        self.assertEqual(kind, "hello")
        self.assertNotEqual(number, session.number)
        self.assertEqual(session.receive(), ("error", "interrupted", 1))
        session.eval("ls.sleep(0.1) return late")  # the line ended with its wait
        self.assertEqual(session.receive(), ("value", "nil", 2))

    def test_one_line_at_a_time(self):
        self.controlled()
        session = self.session()
        session.eval("ls.sleep(0.01) return 1")
        session.eval("2")
        self.assertEqual(session.receive(), ("error", "a line is running", 1))
        self.assertEqual(session.receive(), ("value", "1", 1))

    def test_a_client_that_vanishes_costs_nothing(self):
        server = self.controlled()
        held = self.quiet_fds(server)
        for text in (b"", b"repl\n", b"repl\neval 5\n", b"repl\neval 14\nls.sleep(1000)", b"x" * 5000, b"nonsense\n",
                     b"repl\nnonsense 5\n", b"repl\neval 99999999999\n", b"repl\neval 1048577\n", b"interrupt x\n",
                     b"repl\neval 16\nreturn ls.sleep("):
            self.control(text).close()
        self.eventually(lambda: server.fds() <= held, "the descriptors are closed")
        self.assertEqual(self.attach("1\n"), (0, "1\n", ""))
        self.assertEqual(server.logged(r" error "), [])
        server.kill()

    def test_the_longest_text(self):
        self.controlled()
        session = self.session()
        session.eval("1" + " " * 1048575)
        self.assertEqual(session.receive(), ("value", "1", 1))
        session.link.sendall(b"eval 1048577\n")
        self.assertIsNone(session.receive())

    def test_stats(self):
        server = self.controlled()
        server.get("/")
        link = self.control(b"stats\n")
        text = b""
        while True:
            got = link.recv(65536)
            if not got:
                break
            text += got
        stats = dict(line.split(" ") for line in text.decode().splitlines())
        self.assertEqual(stats["requests"], "1")
        self.assertGreater(float(stats["uptime"]), 0)

    def test_the_server_stops_with_sessions(self):
        server = self.controlled()
        session = self.session()
        server.stop()
        self.assertIsNone(session.receive())

    def test_a_session_follows_a_reload(self):
        server = self.controlled()
        session = self.session()
        session.eval("old = double(1) return old")
        self.assertEqual(session.receive(), ("value", "2", 1))
        client = subprocess.Popen([LUASERVE, "repl", "--attach", self.path], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(client.kill)
        client.stdin.write("double(1)\n")
        client.stdin.flush()
        self.assertEqual(client.stdout.readline(), "2\n")
        busy = self.session()
        busy.eval("print('begun') ls.sleep(0.2) return double(3)")
        self.assertEqual(busy.receive(), ("out", "begun\n", 0))
        write_text(server.site, SITE.replace("2 * x", "10 * x"))
        server.signal(signal.SIGHUP)
        self.assertIsNone(session.receive())  # it was idle: it ends at once
        self.assertEqual(busy.receive(), ("value", "6", 1))  # it ends after its line
        self.assertIsNone(busy.receive())
        out, err = client.communicate("double(1)\nold\n", timeout=WAIT)
        self.assertEqual((client.returncode, out), (0, "10\nnil\n"), err)
        self.assertIn("a new session", err)
        self.assertEqual(server.get("/").status, 200)

    def test_no_server(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "none")
            status, out, err = repl("1\n", "--attach", path)
            self.assertEqual((status, out), (1, ""))
            self.assertIn("cannot attach to %s: No such file or directory" % path, err)
            status, out, err = repl("1\n", "--attach", "x" * 200)
            self.assertIn("the path is longer than 107 bytes", err)

    def test_a_server_that_is_none(self):
        path = os.path.join(self.new_folder(), "control")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            listener.settimeout(WAIT)
            for args, answer, expected in (
                    (("repl", "--attach"), b"hello %d 1\n" % 10**30, "the server closed the connection"),
                    (("repl", "--attach"), b"hello 0 %d\n" % 10**30, "the server closed the connection"),
                    (("reload", "--wait", "--control"), b"failed \x1b[2J", "\\027[2J; the previous site"),
                    (("reload", "--wait", "--control"), b"x" * 1000000, "the server ended before the result")):
                with subprocess.Popen([LUASERVE, *args, path], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as client:
                    link = listener.accept()[0]
                    with link, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        link.settimeout(WAIT)
                        link.recv(100)
                        link.sendall(answer)
                        if answer[:1] == b"x":
                            self.assertEqual(link.recv(100), b"")  # it has left: the answer is too long
                    self.assertIn(expected, client.communicate(timeout=WAIT)[1])
                    self.assertEqual(client.returncode, 1)

    def test_the_path_is_taken(self):
        self.controlled()
        second = self.serve(SITE, flags=("--control", self.path), listeners=0)
        self.assertEqual(second.wait(), 1)
        self.assertIn("the control socket %s: address in use" % self.path, second.log())

    def test_a_site_without_listeners_still_ends(self):
        server = self.controlled('local ls = require "luaserve"\nls.init(function() ls.sleep(0.01) end)\n', listeners=0)
        self.assertEqual(server.wait(), 0, server.log())

    def test_only_a_control_socket_is_nothing_to_do(self):
        server = self.controlled("x = 1\n", listeners=0)
        self.assertEqual(server.wait(), 1)
        self.assertIn("nothing to do", server.log())
