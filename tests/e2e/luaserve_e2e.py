"""The harness of the end-to-end tests: a real server process, raw sockets, strict framing checks.

Server     writes a site.lua into a directory of its own, starts the program, waits for its `listening on` lines,
           keeps what it logs, stops it and looks at the exit status and at sanitizer reports.
Conn       one socket with a deadline on every wait; reads one response at a time and refuses sloppy framing.
E2E        a test case that owns servers: each is ended by its pid even when a test fails, and a server that died
           fails the test with its log.

Environment: LUASERVE         the program (default: build/luaserve of this tree)
             LUASERVE_BACKEND    the back end of every server (its --backend), where a test does not name one itself
             LUASERVE_ENGINE     http.sys: sites that say `host = "127.0.0.1", port = 0` listen with that engine instead, each on a
                                 free port, and requests say that port in their Host
             LUASERVE_SYSTEM     windows: the program is luaserve.exe under Wine (scripts/test-windows)
             LUASERVE_SANITIZER  asan or tsan: fewer repeats, no memory assertions, no LD_PRELOAD
"""
import concurrent.futures
import contextlib
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LUASERVE = os.path.abspath(os.environ.get("LUASERVE") or os.path.join(ROOT, "build", "luaserve"))
BACKEND = os.environ.get("LUASERVE_BACKEND", "")
PROGRAM = [LUASERVE, "--backend", BACKEND] if BACKEND else [LUASERVE]
SANITIZER = os.environ.get("LUASERVE_SANITIZER", "")
ENGINE = os.environ.get("LUASERVE_ENGINE", "")
http_sys = {}  # the ports on which servers of this process have said that they listen with http.sys: each one's Nudge
WINDOWS = os.environ.get("LUASERVE_SYSTEM") == "windows"
SLOW = 4 if SANITIZER else 1
WAIT = 40.0  # the longest any single wait of a test may take: of a machine that runs many others beside it, in any build

# What Wine 8 and Windows do differently, each seen with a program of a few lines before it was listed here.
no_refusals = unittest.skipIf(WINDOWS, "Wine 8 takes the error of a refused datagram: only a receive that waits sees it, "
                                       "and afterwards nothing is received any more")


HAS_UNIX_SOCKETS = not WINDOWS  # Wine 8: socket(AF_UNIX) says WSAEAFNOSUPPORT
ELSEWHERE = "of another system: "  # run.py counts these apart


def not_on_windows(reason):
    """A test of what Windows does not have."""
    return unittest.skipIf(WINDOWS, ELSEWHERE + reason)


def free_port():
    """A port that nobody listened on a moment ago, for what cannot pick one itself."""
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        return probe.getsockname()[1]


def with_engine(site):
    """The site as LUASERVE_ENGINE wants it."""
    if ENGINE != "http.sys":
        return site
    listen = 'engine = "http.sys", url = "http://+:%d/"'
    return re.sub(r'host = "127\.0\.0\.1", port = 0(?=[ ,}])', lambda _: listen % free_port(), site)


def repeats(count):
    """How often to repeat something: less under a sanitizer."""
    return max(1, count // 10) if SANITIZER else count


def descriptors(wanted):
    """Ask for so many descriptors for this process; returns how many it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-9][0-9]{2}) ([\t\x20-\x7e\x80-\xff]*)\Z")
FIELD_LINE = re.compile(rb"(" + TOKEN + rb"):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*\Z")
CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}\Z")
IMF_DATE = re.compile(
    r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) "
    r"\d{4} \d\d:\d\d:\d\d GMT\Z"
)


class Framing(AssertionError):
    """The peer's bytes are not the HTTP they should be."""


class Closed(AssertionError):
    """The connection ended where a response (or its rest) should have come."""


class Response:
    def __init__(self, status, reason, headers):
        self.status = status
        self.reason = reason
        self.headers = headers  # [(name as sent, value)]
        self.body = b""
        self.chunked = False
        self.chunks = 0  # how many data chunks a chunked body had
        self.trailers = []
        self.interim = []  # status of each 1xx that came before
        self.to_close = False  # the body ended with the connection

    def __repr__(self):
        return "<%d %r %r>" % (self.status, self.headers, self.body[:200])

    def all(self, name):
        return [v for n, v in self.headers if n.lower() == name.lower()]

    def header(self, name, default=None):
        values = self.all(name)
        if len(values) > 1:
            raise Framing("%s came %d times: %r" % (name, len(values), self))
        return values[0] if values else default

    @property
    def text(self):
        return self.body.decode("utf-8")

    @property
    def closes(self):
        return "close" in [t.strip().lower() for t in ",".join(self.all("Connection")).split(",")]


class Nudge:
    """Wine 8's http.sys waits for one event of all its sockets, and now and then misses the one of a new connection: that and all
    after it stay in the queue of the listener until some other socket has something, when it looks at all of them. So there
    is one: a connection on which a request never gets to its end. luaserve sees nothing of it."""

    AFTER = 2.0  # seconds in which nothing came

    def __init__(self, where):
        self.sock = socket.create_connection(where, WAIT)
        self.sock.sendall(b"GET / HTTP/1.1\r\nX-Nudges: ")

    def receive(self, sock, seconds):
        """sock.recv, nudging."""
        deadline = time.monotonic() + seconds
        try:
            while True:
                left = deadline - time.monotonic()
                sock.settimeout(max(0.001, min(left, self.AFTER)))
                try:
                    return sock.recv(262144)
                except socket.timeout:
                    if left <= self.AFTER:
                        raise
                with contextlib.suppress(OSError):
                    self.sock.sendall(b"n")
        finally:
            sock.settimeout(seconds)

    def close(self):
        self.sock.close()


class Conn:
    """One client connection. `where` is an address as Server.at() gives it."""

    def __init__(self, where, timeout=None, rcvbuf=None):
        self.timeout = timeout or WAIT
        family = (
            socket.AF_UNIX if isinstance(where, str) else socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        )
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            if rcvbuf:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
            self.sock.connect(where)
            if family != socket.AF_UNIX:
                self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            self.sock.close()
            raise
        self.data = b""
        self.ended = False
        self.nudge = http_sys.get(where[-1])
        self.host = b"Host: h:%d\r\n" % where[1] if self.nudge else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def reset(self):
        """Close with a reset instead of an orderly end."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def with_host(self, data):
        """Wine's http.sys finds the site by the Host alone, and ends when that has no port."""
        return data.replace(b"Host: h\r\n", self.host) if self.host else data

    def send(self, data):
        self.sock.sendall(self.with_host(data))
        return self

    def try_send(self, data):
        """Send what the peer takes; a peer that closed is no failure. True when all of it went."""
        try:
            self.sock.sendall(self.with_host(data))
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def _more(self):
        """Receive once. False: the peer ended."""
        if self.ended:
            return False
        try:
            got = self.nudge.receive(self.sock, self.timeout) if self.nudge else self.sock.recv(262144)
        except socket.timeout:
            raise AssertionError(
                "nothing came for %.0f s; before that: %r" % (self.timeout, self.data[-300:])
            ) from None
        if not got:
            self.ended = True
            return False
        self.data += got
        return True

    def _line(self, what, limit=65536):
        while True:
            at = self.data.find(b"\n")
            if at >= 0:
                line, self.data = self.data[: at + 1], self.data[at + 1 :]
                if not line.endswith(b"\r\n"):
                    raise Framing("%s ends in a bare LF: %r" % (what, line))
                return line[:-2]
            if len(self.data) > limit:
                raise Framing("%s has no end: %r" % (what, self.data[:100]))
            if not self._more():
                raise Closed("the connection ended inside the %s: %r" % (what, self.data[-300:]))

    def take(self, count):
        """Exactly `count` bytes of what comes next."""
        parts, have = [], 0
        while True:
            part = self.data[: count - have]
            self.data = self.data[len(part) :]
            parts.append(part)
            have += len(part)
            if have == count:
                return b"".join(parts)
            if not self._more():
                raise Closed("the connection ended with %d of %d bytes of the body" % (have, count))

    def line(self, end=b"\n"):
        """What comes next up to `end`, which is dropped."""
        while end not in self.data:
            if not self._more():
                raise Closed("the connection ended inside a line: %r" % self.data[-300:])
        line, self.data = self.data.split(end, 1)
        return line

    def rest(self):
        """Everything until the peer's end."""
        parts = [self.data]
        self.data = b""
        while self._more():
            parts.append(self.data)
            self.data = b""
        return b"".join(parts)

    def head(self):
        """A status line and its fields, interim or final, checked."""
        line = self._line("status line")
        match = STATUS_LINE.match(line)
        if not match:
            raise Framing("bad status line: %r" % line)
        headers = []
        while True:
            line = self._line("header section")
            if line == b"":
                break
            field = FIELD_LINE.match(line)
            if not field:
                raise Framing("bad field line: %r" % line)
            headers.append((field.group(1).decode(), field.group(2).decode("latin-1")))
        return Response(int(match.group(1)), match.group(2).decode("latin-1"), headers)

    def response_head(self):
        """The final response's head; interim ones are noted in .interim."""
        interim = []
        while True:
            response = self.head()
            if response.status >= 200:
                break
            if response.all("Content-Length") or response.all("Transfer-Encoding"):
                raise Framing("an interim response with a length: %r" % response)
            interim.append(response.status)
        response.interim = interim
        date = response.header("Date")
        if date is None or not IMF_DATE.match(date):
            raise Framing("Date is %r" % date)
        lengths, codings = response.all("Content-Length"), response.all("Transfer-Encoding")
        if lengths and codings:
            raise Framing("both Content-Length and Transfer-Encoding: %r" % response)
        if len(lengths) > 1 or (lengths and not re.match(r"[0-9]+\Z", lengths[0])):
            raise Framing("Content-Length is %r" % lengths)
        if codings and codings != ["chunked"]:
            raise Framing("Transfer-Encoding is %r" % codings)
        if response.status == 204 and (lengths or codings):
            raise Framing("204 with a length: %r" % response)
        return response

    def response(self, method="GET"):
        """One whole response, its framing checked. `method` is what was asked: HEAD has no body."""
        response = self.response_head()
        length, coding = response.header("Content-Length"), response.header("Transfer-Encoding")
        if method == "HEAD" or response.status in (204, 304):
            return response
        if coding:
            response.chunked = True
            parts = []
            while True:
                size = self._line("chunk size")
                if not CHUNK_SIZE.match(size):
                    raise Framing("bad chunk size: %r" % size)
                size = int(size, 16)
                if size == 0:
                    break
                response.chunks += 1
                parts.append(self.take(size))
                if self.take(2) != b"\r\n":
                    raise Framing("chunk data is not followed by CRLF")
            while True:
                line = self._line("trailer section")
                if line == b"":
                    break
                field = FIELD_LINE.match(line)
                if not field:
                    raise Framing("bad trailer: %r" % line)
                response.trailers.append((field.group(1).decode(), field.group(2).decode("latin-1")))
            response.body = b"".join(parts)
        elif length is not None:
            response.body = self.take(int(length))
        else:
            if not response.closes:
                raise Framing("neither Content-Length, chunked nor Connection: close: %r" % response)
            response.to_close = True
            response.body = self.rest()
        return response

    def ask(self, method, target, headers=(), body=None):
        """Send one request and read its response."""
        self.send(request(method, target, headers, body))
        return self.response(method)

    def get(self, target, headers=()):
        return self.ask("GET", target, headers)

    def expect_end(self, reset_ok=False):
        """The peer ends, and nothing more comes before that."""
        try:
            rest = self.rest()
        except ConnectionResetError:
            if not reset_ok:
                raise
            rest = b""
        if rest:
            raise AssertionError("more came before the end: %r" % rest[:300])

    def silent(self, seconds=0.2):
        """Nothing comes for this long, not even the end."""
        if self.data:
            return False
        self.sock.settimeout(seconds)
        try:
            got = self.sock.recv(65536)
        except socket.timeout:
            return True
        finally:
            self.sock.settimeout(self.timeout)
        self.data += got
        self.ended = not got
        return False


def as_bytes(value):
    return value if isinstance(value, bytes) else value.encode("latin-1")


def request(method, target, headers=(), body=None, host="h", version="HTTP/1.1"):
    """A request's bytes. headers: a dict or pairs. A body gets a Content-Length unless a framing field is there."""
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers)
    names = [as_bytes(name).lower() for name, _ in pairs]
    lines = [as_bytes(method) + b" " + as_bytes(target) + b" " + as_bytes(version)]
    if host is not None and b"host" not in names:
        lines.append(b"Host: " + as_bytes(host))
    lines += [as_bytes(name) + b": " + as_bytes(value) for name, value in pairs]
    if body is not None and b"content-length" not in names and b"transfer-encoding" not in names:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


def chunked(parts, trailers=b""):
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n" + trailers + b"\r\n"


REPORT = re.compile(r"(ERROR|WARNING): (Address|Thread|Leak|Memory|UndefinedBehavior)Sanitizer|runtime error:")


class Server:
    """One server process. `site` is the text of site.lua (None: no file is written, site_path is the one). `terminal`: its standard
    input and output."""

    def __init__(self, site, args=(), flags=(), listeners=1, env=None, nofile=None, prefix=(),
                 site_path=None, cwd=None, terminal=None):
        self.dir = tempfile.mkdtemp(prefix="luaserve-e2e-")
        self.site = site_path or os.path.join(self.dir, "site.lua")
        if site is not None:
            with open(self.site, "w") as out:
                if WINDOWS:  # which has no such command
                    site = site.replace('os.execute("sleep ', 'os.execute("start /wait /unix /bin/sleep ')
                out.write(with_engine(site).replace("@DIR@", self.dir))
        self.lines = []
        self.news = threading.Condition()
        self.addresses = []
        self.stopped = False
        environment = dict(os.environ)
        environment.update({k: v.replace("@DIR@", self.dir) for k, v in (env or {}).items()})
        if SANITIZER == "tsan":
            environment.setdefault("TSAN_OPTIONS", "exitcode=66 halt_on_error=0 second_deadlock_stack=1")
        if SANITIZER == "asan":
            environment.setdefault("ASAN_OPTIONS", "detect_leaks=1:exitcode=67:allocator_may_return_null=1")
            environment.setdefault("UBSAN_OPTIONS", "print_stacktrace=1:halt_on_error=0")

        def limit():
            if nofile:
                resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, nofile))

        command = [*prefix, *(PROGRAM if "--backend" not in flags else [LUASERVE]), *flags, self.site, *args]
        self.out_path = os.path.join(self.dir, "stdout")
        with open(self.out_path, "wb") as out:
            self.process = subprocess.Popen(
                command,
                stdin=terminal or subprocess.DEVNULL,
                stdout=terminal or out,
                stderr=subprocess.PIPE,
                cwd=cwd or self.dir,
                env=environment,
                preexec_fn=limit if nofile else None,
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
                    if match.group(2):
                        http_sys[self.addresses[-1][1]] = Nudge(self.addresses[-1])
                self.news.notify_all()
        with self.news:
            self.lines.append(None)  # the end
            self.news.notify_all()

    @staticmethod
    def _address(text):
        if text.startswith("unix:"):
            return text[5:]
        match = re.match(r"(?:https?|tcp)://(?:\[([^\]]+)\]|([^:/]+)):(\d+)", text)
        if not match:
            return text
        host = match.group(1) or match.group(2)
        return ("127.0.0.1" if host == "+" else host, int(match.group(3)))

    def _wait_listening(self, count):
        with self.news:
            self.news.wait_for(lambda: len(self.addresses) >= count or None in self.lines, WAIT)
            if len(self.addresses) >= count:
                return
        self.kill()
        raise AssertionError(
            "the server did not come up (%d of %d listeners):\n%s" % (len(self.addresses), count, self.log())
        )

    def at(self, index=0):
        return self.addresses[index]

    def port(self, index=0):
        return self.addresses[index][1]

    def log(self):
        with self.news:
            return "\n".join(line for line in self.lines if line is not None)

    def mark(self):
        """A place in the log to look from."""
        with self.news:
            return len(self.lines)

    def wait_log(self, pattern, since=0, count=1, timeout=None):
        """Wait until `count` lines match; returns the last of them."""
        found = []

        def there():
            found[:] = [line for line in self.lines[since:] if line is not None and re.search(pattern, line)]
            return len(found) >= count or (self.lines and self.lines[-1] is None)

        with self.news:
            self.news.wait_for(there, timeout or WAIT)
        if len(found) < count:
            raise AssertionError(
                "%d of %d lines like %r in the log:\n%s" % (len(found), count, pattern, self.log()[-5000:])
            )
        return found[-1]

    def logged(self, pattern, since=0):
        with self.news:
            return [line for line in self.lines[since:] if line is not None and re.search(pattern, line)]

    def alive(self):
        return self.process.poll() is None

    def connect(self, index=0, **kw):
        return Conn(self.at(index), **kw)

    def get(self, target, headers=(), index=0):
        """One GET on a connection of its own."""
        with self.connect(index) as conn:
            return conn.get(target, headers)

    def rss(self):
        """Resident bytes."""
        with open("/proc/%d/status" % self.pid) as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS")

    def fds(self, rings=False):
        """Descriptors. Rings only when asked for: there is one for each thread that ever waited beside the others."""
        if WINDOWS:
            return self.sockets()
        where, count = "/proc/%d/fd" % self.pid, 0
        for fd in os.listdir(where):
            try:
                count += rings or os.readlink(os.path.join(where, fd)) != "anon_inode:[io_uring]"
            except FileNotFoundError:
                pass  # closed since
        return count

    def sockets(self):
        """TCP sockets with a port of a listener. Those of a program under Wine are in Wine's server, not in /proc/<pid>."""
        ports = {address[1] for address in self.addresses if isinstance(address, tuple)}
        count = 0
        for table_name in ("tcp", "tcp6"):
            with open("/proc/net/" + table_name) as rows:
                for row in list(rows)[1:]:
                    fields = row.split()
                    count += int(fields[1].rsplit(":", 1)[1], 16) in ports and fields[9] != "0"  # an inode: somebody has it
        return count

    def udp_sockets(self):
        """UDP sockets that are connected to a port that it listens on: in whichever process they are, as above."""
        ports = {int(line.rsplit(":", 1)[1]) for line in self.logged("listening on udp://")}
        with open("/proc/net/udp") as rows:
            return sum(int(row.split()[2].rsplit(":", 1)[1], 16) in ports for row in list(rows)[1:])

    def cpu(self):
        """Seconds of processor time so far."""
        with open("/proc/%d/stat" % self.pid) as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def threads(self):
        return len(os.listdir("/proc/%d/task" % self.pid))

    def signal(self, number=signal.SIGTERM):
        """Windows knows no SIGTERM: what asks there is Ctrl-C, which Wine makes of SIGINT."""
        self.process.send_signal(signal.SIGINT if WINDOWS and number == signal.SIGTERM else number)

    def wait(self, timeout=None):
        """The exit status; the log is complete then."""
        try:
            status = self.process.wait(timeout or 2 * WAIT)
        except subprocess.TimeoutExpired:
            text = self.stacks()
            self.kill()
            raise AssertionError(
                "the server did not end; its log:\n%s\n%s" % (self.log()[-4000:], text)
            ) from None
        self.reader.join(WAIT)
        self.stopped = True
        return status

    def stacks(self):
        """Where its threads are, when gdb is there to say so."""
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
        self.reader.join(WAIT)
        self.stopped = True

    def check_reports(self):
        log = self.log()
        report = REPORT.search(log)
        if report:
            raise AssertionError("sanitizer reports:\n%s" % log[report.start():][:20000])

    def stop(self):
        """SIGTERM, a clean drain, exit status 0 and nothing from a sanitizer."""
        if not self.stopped:
            if not self.alive():
                self.wait()
                raise AssertionError(
                    "the server died with status %s:\n%s" % (self.process.returncode, self.log()[-6000:])
                )
            self.signal()
            status = self.wait()
            self.check_reports()
            if status != 0:
                raise AssertionError("exit status %s after SIGTERM:\n%s" % (status, self.log()[-6000:]))
        else:
            self.check_reports()

    def cleanup(self):
        if not self.stopped:
            self.kill()
        if not self.reader.is_alive():  # else something that outlives the program has its end of the pipe
            self.process.stderr.close()
        for address in self.addresses:
            if address[-1] in http_sys:
                http_sys.pop(address[-1]).close()
        shutil.rmtree(self.dir, ignore_errors=True)


class E2E(unittest.TestCase):
    """A test case that owns its servers. With SITE set, one server is shared by the tests of the class."""

    SITE = None
    FLAGS = ()
    ARGS = ()
    LISTENERS = 1
    ENV = None
    server = None

    @classmethod
    def setUpClass(cls):
        if cls.SITE is not None:
            cls.server = Server(cls.SITE, args=cls.ARGS, flags=cls.FLAGS, listeners=cls.LISTENERS,
                                env=cls.ENV)
            cls.addClassCleanup(cls.server.cleanup)

    @classmethod
    def tearDownClass(cls):
        if cls.server is not None:
            cls.server.stop()

    def setUp(self):
        if self.server is not None and not self.server.alive():
            self.fail("the shared server is dead (%s)" % self.server.process.returncode)

    def tearDown(self):
        if self.server is not None and not self.server.alive():
            self.server.wait()
            self.fail(
                "the server died with status %s:\n%s"
                % (self.server.process.returncode, self.server.log()[-6000:])
            )

    def serve(self, site, **kw):
        """A server for this test alone. Call its stop() at the end of the test to check the clean exit."""
        server = Server(site, **kw)
        self.addCleanup(server.cleanup)
        return server

    def connect(self, index=0, server=None, **kw):
        conn = (server or self.server).connect(index, **kw)
        self.addCleanup(conn.close)
        return conn

    def get(self, target, headers=(), index=0):
        return self.server.get(target, headers, index)

    def ask(self, method, target, headers=(), body=None, index=0):
        with self.server.connect(index) as conn:
            return conn.ask(method, target, headers, body)

    def refuses(self, site, message):
        """A server of this site does not start, and says why in one line."""
        server = self.serve(site, listeners=0)
        self.assertEqual(server.wait(), 1, server.log())
        self.assertEqual(len(server.log().splitlines()), 1, server.log())
        self.assertIn(message.replace("@DIR@", server.dir), server.log())

    def quiet_fds(self, server=None):
        """How many descriptors the server holds when nobody is connected."""
        server = server or self.server
        with server.connect() as conn:
            conn.get("/")
            held = server.fds()
        self.eventually(lambda: server.fds() < held, "a closed connection gives its descriptor back")
        previous = server.fds()
        for _ in range(20):  # others may still be on their way out
            time.sleep(0.01)
            held = server.fds()
            if held == previous:
                break
            previous = held
        return held

    def eventually(self, condition, what, timeout=None):
        """Wait, polling, for something that the server does in its own time."""
        deadline = time.monotonic() + (timeout or WAIT)
        while True:
            if condition():
                return
            if time.monotonic() > deadline:
                self.fail("never came true: %s" % what)
            time.sleep(0.01)


def in_parallel(jobs, workers=16):
    """Run callables in threads; returns their results in order, raises the first failure after all have ended."""
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(job) for job in jobs]
        concurrent.futures.wait(futures)
    return [future.result() for future in futures]


def table(test, cases, check, workers=16):
    """Run check(case) for every (name, case) in threads; all failures are reported, each with its name."""

    def one(case):
        try:
            check(case)
        except Exception as error:  # collected: one failing row must not hide the others
            return "%s: %s" % (type(error).__name__, error)
        return None

    results = in_parallel([lambda c=case: one(c) for _, case in cases], workers)
    bad = ["  %s: %s" % (name, result) for (name, _), result in zip(cases, results) if result]
    if bad:
        test.fail("%d of %d rows failed\n%s" % (len(bad), len(cases), "\n".join(bad)))


def run_program(args, timeout=None, env=None, cwd=None):
    """Run the program to its end; returns status, stdout, stderr."""
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


@contextlib.contextmanager
def scratch(**files):
    """A temporary directory holding these files (name with _ for .)."""
    where = tempfile.mkdtemp(prefix="luaserve-e2e-")
    try:
        for name, text in files.items():
            with open(os.path.join(where, name.replace("_", ".")), "w") as out:
                out.write(text)
        yield where
    finally:
        shutil.rmtree(where, ignore_errors=True)


def main():
    unittest.main(verbosity=2)
