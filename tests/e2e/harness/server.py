"""Server: one process of the program under test; run_program: a run of the program to its end."""
import atexit
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import weakref

from harness import httpsys
from harness.conn import Conn
from harness.environment import EXIT_STATUS_LOST, LUASERVE, ROOT, SLEEP, WAIT, WINDOWS, WINE, system

REPORT = re.compile(r"(ERROR|WARNING): (Address|Thread|Leak|Memory|UndefinedBehavior)Sanitizer|runtime error:")


def temporary_folder(prefix="luaserve-e2e-"):
    """Make one; its path has forward slashes on every system, so that Lua sources and expected messages can contain it."""
    return tempfile.mkdtemp(prefix=prefix).replace("\\", "/")


def app_site(text, options=""):
    """The site of an app with these routes, which begin in line 4 of the file. `options`: of its listener."""
    listen = 'ls.listen{ host = "127.0.0.1", port = 0, handler = app%s }\n' % (options and ", " + options)
    return '\nlocal ls = require "luaserve"\nlocal app = ls.app()' + text + listen


def write_text(path, text):
    """Write a file in UTF-8, with the line ends of `text` on every system."""
    with open(path, "w", encoding="utf-8", newline="\n") as out:
        out.write(text)


def write_bytes(path, data):
    with open(path, "wb") as out:
        out.write(data)


def read_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def read_text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def lua_paths(text):
    """A Lua source with forward slashes in the paths of the tree and of temporary files: a backslash begins an escape."""
    for start in {ROOT, tempfile.gettempdir()}:
        text = re.sub(re.escape(start) + r"""[^"'\]\n]*""", lambda path: path[0].replace("\\", "/"), text)
    return text


def has_sqlite():
    """Whether the program under test was built with SQLite."""
    return "SQLite: not built in" not in run_program(["--version"])[1]


class Server:
    """One server process. It writes `site` as site.lua into a directory of its own, starts the program, and waits for
    `listeners` lines `listening on`. `@DIR@` in the site and in `env` stands for the directory.

    site       the text of site.lua; None: the program runs the file site_path
    nofile     its descriptor limit
    prefix     the start of its command line, before the program
    program    the program with its first arguments; default: the program under test
    terminal   its standard input and output
    stdout     its standard output; default: a file"""

    def __init__(self, site, args=(), flags=(), listeners=1, env=None, nofile=None, prefix=(),
                 site_path=None, cwd=None, terminal=None, program=None, stdout=None):
        self.dir = temporary_folder()
        self.site = site_path or self.dir + "/site.lua"
        if site is not None:
            site = site.replace('os.execute("sleep ', 'os.execute("%s ' % SLEEP)
            write_text(self.site, lua_paths(httpsys.with_engine(site).replace("@DIR@", self.dir)))
        self.lines = []
        self.news = threading.Condition()  # notified of each new line; the last entry of .lines is None
        self.addresses = []
        self.connections = weakref.WeakSet()
        self.stopped = False
        environment = dict(os.environ)
        environment.update({k: v.replace("@DIR@", self.dir) for k, v in (env or {}).items()})
        if WINDOWS and not program and "--pid" not in flags:  # with which `reload` finds it
            flags = (*flags, "--pid", os.path.join(self.dir, self.PID_FILE))
        command = [*prefix, *(program or [LUASERVE]), *flags, self.site, *args]
        self.out_path = os.path.join(self.dir, "stdout")
        with open(self.out_path, "wb") as out:
            self.process = subprocess.Popen(
                command,
                stdin=terminal or subprocess.DEVNULL,
                stdout=terminal or stdout or out,
                stderr=subprocess.PIPE,
                cwd=cwd or self.dir,
                env=environment,
                preexec_fn=system.descriptor_limit(nofile) if nofile else None,
                **system.PROCESS_OPTIONS,
            )
        self.pid = self.process.pid
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if listeners:
            self._wait_listening(listeners)

    def _read(self):
        for raw in self.process.stderr:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            with self.news:
                self.lines.append(line)
                match = re.search(r"listening on (\S+)( with http\.sys)?", line)
                if match:
                    self.addresses.append(self._address(match.group(1)))
                    if match.group(2) and WINE:
                        httpsys.nudges[self.addresses[-1][1]] = httpsys.Nudge(self.addresses[-1])
                self.news.notify_all()
        with self.news:
            self.lines.append(None)  # the end
            self.news.notify_all()

    @staticmethod
    def _address(text):
        if text.startswith("unix:"):
            return text[5:]
        match = re.match(r"(?:https?|tcp|tls)://(?:\[([^\]]+)\]|([^:/]+)):(\d+)", text)
        if not match:
            return text
        host = match.group(1) or match.group(2)
        return ("127.0.0.1" if host == "+" else host, int(match.group(3)))

    def _wait_listening(self, count):
        with self.news:
            self.news.wait_for(lambda: len(self.addresses) >= count or None in self.lines, WAIT)
            if len(self.addresses) >= count:
                return
            ended = None in self.lines
        status = self.process.wait(WAIT) if ended else "running"
        self.kill()
        raise AssertionError(
            "the server did not start (%d of %d listeners; status %s):\n%s" % (len(self.addresses), count, status, self.log())
        )

    def at(self, index=0):
        return self.addresses[index]

    def port(self, index=0):
        return self.addresses[index][1]

    def log(self):
        with self.news:
            return "\n".join(line for line in self.lines if line is not None)

    def mark(self):
        """The present end of the log: `since` for wait_log and logged."""
        with self.news:
            return len(self.lines)

    def wait_log(self, pattern, since=0, count=1, timeout=None):
        """Wait until `count` lines match; returns the last of these lines."""
        found = []

        def matched():
            found[:] = [line for line in self.lines[since:] if line is not None and re.search(pattern, line)]
            return len(found) >= count or (self.lines and self.lines[-1] is None)

        with self.news:
            self.news.wait_for(matched, timeout or WAIT)
        if len(found) < count:
            raise AssertionError("%d of %d lines match %r in the log:\n%s" % (len(found), count, pattern, self.log()[-5000:]))
        return found[-1]

    def logged(self, pattern, since=0):
        with self.news:
            return [line for line in self.lines[since:] if line is not None and re.search(pattern, line)]

    def warnings(self):
        """Those in the log but the ones of slow handlers, which a slow machine causes."""
        return self.logged(" warn (?!.*: slow: )")

    def alive(self):
        return self.process.poll() is None

    def connect(self, index=0, **kw):
        conn = Conn(self.at(index), **kw)
        self.connections.add(conn)
        return conn

    def get(self, target, headers=(), index=0):
        """One GET on a new connection."""
        with self.connect(index) as conn:
            return conn.get(target, headers)

    def rss(self):
        """Resident bytes."""
        return system.rss(self.pid)

    def fds(self):
        """The number of open descriptors. Under Wine the sockets belong to Wine's server process: there it is the number of
        sockets with a port of a listener."""
        return self.sockets() if WINE else system.descriptors(self.pid)

    def sockets(self):
        """The number of TCP sockets with a port of a listener."""
        return system.tcp_sockets({address[1] for address in self.addresses if isinstance(address, tuple)})

    def udp_sockets(self):
        """The number of UDP sockets, in any process, that are connected to a UDP port of this server."""
        return system.udp_sockets({int(line.rsplit(":", 1)[1]) for line in self.logged("listening on udp://")})

    def cpu(self):
        """Seconds of processor time since its start."""
        return system.cpu(self.pid)

    def threads(self):
        return system.threads(self.pid)

    def signal(self, number=signal.SIGTERM):
        """Send a signal. Wine turns SIGINT into Ctrl-C, and has no SIGTERM."""
        system.send_signal(self.process, signal.SIGINT if WINE and number == signal.SIGTERM else number)

    PID_FILE = "luaserve.pid"  # in its directory, of a server on Windows without a --pid of its own

    def pid_file(self):
        """The path of the file PID_FILE, which the server writes after it has logged its addresses."""
        path, until = os.path.join(self.dir, self.PID_FILE), time.monotonic() + WAIT
        while not (os.path.exists(path) and os.path.getsize(path)) and time.monotonic() < until:
            time.sleep(0.01)
        return path

    def reload(self, expected=None):
        """Have it load its site again: SIGHUP. Windows: its event. Then wait for the line that
        matches `expected`, and return it."""
        mark = self.mark()
        if not WINDOWS:
            self.signal(signal.SIGHUP)
        else:
            answer = reloader(read_text(self.pid_file()).strip())
            if answer != "set":
                raise AssertionError("set_event.exe: " + answer)
        return self.wait_log(expected, mark) if expected else None

    def wait(self, timeout=None):
        """Wait for the end; returns the exit status. The log is complete afterwards."""
        try:
            status = self.process.wait(timeout or 2 * WAIT)
        except subprocess.TimeoutExpired:
            text = self.stacks()
            self.kill()
            raise AssertionError("the server did not end; its log:\n%s\n%s" % (self.log()[-4000:], text)) from None
        self.reader.join(WAIT)
        self.stopped = True
        if status == EXIT_STATUS_LOST and self.logged(" info stopped$"):
            status = 0
        return status

    def stacks(self):
        """The stacks of its threads, when gdb is installed."""
        if not shutil.which("gdb") or not self.alive():
            return ""
        try:
            return subprocess.run(
                ["gdb", "-p", str(self.pid), "-batch", "-ex", "thread apply all bt 12"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=30,
            ).stdout[-8000:]
        except (OSError, subprocess.TimeoutExpired):
            return ""

    def kill(self):
        if self.alive():
            self.process.kill()
        self.process.wait()
        for conn in list(self.connections) if WINE else ():  # Wine leaves some open
            with contextlib.suppress(OSError):
                conn.sock.shutdown(socket.SHUT_RDWR)
        self.reader.join(WAIT)
        self.stopped = True

    def check_reports(self):
        log = self.log()
        report = REPORT.search(log)
        if report:
            raise AssertionError("sanitizer reports:\n%s" % log[report.start():][:20000])

    def stop(self):
        """Stop it with SIGTERM; fails unless it drains, exits with status 0, and no sanitizer reports anything. Closes its
        connections, for whose ends the server would wait: two seconds and more."""
        if not self.stopped:
            if not self.alive():
                self.wait()
                raise AssertionError("the server died with status %s:\n%s" % (self.process.returncode, self.log()[-6000:]))
            self.signal()
            for conn in list(self.connections):
                conn.close()
            status = self.wait()
            self.check_reports()
            if status != 0:
                raise AssertionError("exit status %s after SIGTERM:\n%s" % (status, self.log()[-6000:]))
        else:
            self.check_reports()

    def cleanup(self):
        """Kill it unless it has ended; fails when a sanitizer has reported anything."""
        if not self.stopped:
            self.kill()
        if not self.reader.is_alive():  # else a process that outlives the program holds the pipe open
            self.process.stderr.close()
        for address in self.addresses:
            if address[-1] in httpsys.nudges:
                httpsys.nudges.pop(address[-1]).close()
        shutil.rmtree(self.dir, ignore_errors=True)
        self.check_reports()


def run_program(args, timeout=None, env=None, cwd=None):
    """Run the program to its end; returns its exit status, stdout and stderr."""
    environment = dict(os.environ)
    environment.update(env or {})
    done = subprocess.run(
        [LUASERVE, *args],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout or 2 * WAIT,
        env=environment,
        cwd=cwd,
    )
    return done.returncode, done.stdout, done.stderr


class Reloader:
    """set_event.exe (tests/unit/win32), which does what `luaserve reload` does for each process id: one program for all
    reloads of a module. It ends when this process does."""
    process = None

    def __call__(self, pid):
        if self.process is None or self.process.poll() is not None:
            program = os.path.join(os.path.dirname(LUASERVE), "tests", "set_event.exe")
            starter = [os.path.join(ROOT, "third_party", "windows", "wine")] if WINE else []
            self.process = subprocess.Popen([*starter, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL)
            atexit.register(self.process.communicate)
        self.process.stdin.write(b"%s\n" % pid.encode())
        self.process.stdin.flush()
        return self.process.stdout.readline().decode().strip()


reloader = Reloader()


def many_files(folder, count):
    """Empty files 0, 1, ... in the folder: links to a few, which take a quarter of the time of files."""
    for n in range(count):
        path = os.path.join(folder, str(n))
        if n % 50000 == 0:  # ext4: at most 65,000 links to a file
            first = path
            open(path, "wb").close()
        else:
            os.link(first, path)


@contextlib.contextmanager
def scratch(**files):
    """A temporary directory with these files; `_` in an argument's name stands for `.` in the file's."""
    where = temporary_folder()
    try:
        for name, text in files.items():
            write_text(where + "/" + name.replace("_", "."), lua_paths(text))
        yield where
    finally:
        shutil.rmtree(where, ignore_errors=True)

