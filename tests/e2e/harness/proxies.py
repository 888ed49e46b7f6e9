"""A proxy between a strict client and a strict server: what each of them reads of a message. start() runs nginx, HAProxy and
nghttpx with the settings that pass on the most, to compare."""
import contextlib
import os
import re
import shutil
import socket
import subprocess
import threading
import time

from harness.acceptor import Acceptor
from harness.conn import STATUS_LINE, TOKEN, Closed, Conn, Framing, Response, TimedOut
from harness.environment import WAIT, free_port

REQUEST_LINE = re.compile(rb"(" + TOKEN + rb") ([!-~\x80-\xff]+) (HTTP/1\.[01])\Z")
HOST = re.compile(r"([A-Za-z0-9._~!$&'()*+,;=%-]*|\[[0-9a-f:.]+\])(:\d*)?\Z")
DATE = b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
END = b"GET /end HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
SHOWN = re.compile(r"(x|y|te|upgrade|http2-settings|expect|trailer|content_length|transfer_encoding)\Z", re.I)  # fields
PROGRAMS = {
    "nginx": """daemon off; master_process off; pid %(folder)s/pid; error_log /dev/null; events {}
        http { access_log off; client_header_timeout 2; client_body_timeout 2; underscores_in_headers on;
          client_body_temp_path %(folder)s/b; proxy_temp_path %(folder)s/p; fastcgi_temp_path %(folder)s/f;
          uwsgi_temp_path %(folder)s/u; scgi_temp_path %(folder)s/s;
          upstream strict { server 127.0.0.1:%(upstream)d; keepalive 4; }
          server { listen 127.0.0.1:%(port)d; location / { proxy_pass http://strict; proxy_http_version 1.1;
            proxy_set_header Host $http_host; proxy_set_header Connection ""; proxy_read_timeout 2; } } }""",
    "haproxy": """
defaults
  mode http
  timeout connect 2s
  timeout client 2s
  timeout server 2s
  timeout http-request 2s
frontend front
  bind 127.0.0.1:%(port)d
  default_backend strict
backend strict
  server one 127.0.0.1:%(upstream)d
""",
    "nghttpx": """frontend=127.0.0.1,%(port)d;no-tls
backend=127.0.0.1,%(upstream)d
workers=1
errorlog-file=/dev/null
frontend-read-timeout=2s
backend-read-timeout=2s
""",
}
COMMANDS = {"nginx": ["-e", "/dev/null", "-c"], "haproxy": ["-db", "-f"], "nghttpx": ["--conf"]}


class Upstream(Acceptor):
    """A strict server. It notes what it reads of each request in `seen`, and answers with `answer`, bytes and what follows them:
    "keep", "close" or "reset"."""

    def __init__(self):
        self.lock, self.unfinished = threading.Lock(), 0
        self.begin()
        super().__init__()

    def begin(self, answer=None):
        self.seen, self.answer = [], answer

    def finished(self):
        """Wait until no request is read in part; whether that was so in time."""
        deadline = time.monotonic() + WAIT
        while self.unfinished and time.monotonic() < deadline:
            time.sleep(0.001)
        return not self.unfinished

    def _count(self, change):
        with self.lock:
            self.unfinished += change

    def serve(self, sock, _):
        with Request(sock) as conn:
            while conn.begins():
                self._count(1)
                try:
                    read = conn.read()
                    self.seen.append(read)
                except Framing as error:
                    self.seen.append("invalid: %s" % error)
                    conn.try_send(b"HTTP/1.1 400 Upstream\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    return
                finally:
                    self._count(-1)
                data, then = b"HTTP/1.1 200 OK\r\n" + DATE + b"Content-Length: 2\r\n\r\nok", "keep"
                if self.answer and not read.startswith("GET /end"):
                    data, then = self.answer
                conn.try_send(data)
                if then == "reset":
                    conn.reset()
                if then != "keep":
                    return


class Request(Conn):
    """The server's side of a connection."""

    needs_date = False

    def __init__(self, sock):
        self.sock, self.data, self.ended, self.nudge, self.host = sock, b"", False, None, None
        self.timeout = WAIT
        sock.settimeout(None)

    def begins(self):
        return self.data != b"" or self._more()

    def read(self):
        """Reads a request, strictly. -> method, target, the host and fields that matter, body"""
        line = self._line("request line")
        match = REQUEST_LINE.match(line)
        if not match:
            raise Framing("request line")
        message = Response(0, "", self.fields("head"))
        hosts, lengths = message.all("Host"), message.all("Content-Length")
        codings = message.all("Transfer-Encoding")
        if len(hosts) != 1 or not HOST.match(hosts[0]):
            raise Framing("Host %r" % ", ".join(hosts))
        fine = re.match(r"[0-9]+\Z", lengths[0]) if lengths else codings in ([], ["chunked"])
        if len(lengths) + len(codings) > 1 or not fine:
            raise Framing("lengths %r" % ", ".join(lengths + codings))
        if codings:
            if match[3] != b"HTTP/1.1":
                raise Framing("Transfer-Encoding in HTTP/1.0")
            self.chunked_body(message)
        elif lengths:
            message.body = self.take(int(lengths[0]))
        parts = [match[1].decode(), match[2].decode("latin-1")]
        if not re.match(r"(h|127\.0\.0\.1:\d+)\Z", hosts[0]):
            parts.append("Host:" + hosts[0])
        parts += ["%s:%s" % (name, value) for name, value in message.headers if SHOWN.match(name)]
        parts += ["trailer " + name for name, _ in message.trailers]
        if message.body:
            parts.append("body:" + message.body.decode("latin-1")[:12])
        return " ".join(parts)


def strictly(data, read=Request.read):
    """What a strict reader reads of these bytes, up to the first invalid one: of requests, or with Request.response."""
    near, far = socket.socketpair()
    with near, Request(far) as conn:
        near.sendall(data)
        near.shutdown(socket.SHUT_WR)
        messages = []
        with contextlib.suppress(Closed, Framing):
            while conn.begins():
                messages.append(read(conn))
        return messages


class Client(Conn):
    needs_date = False
    status_line = re.compile(STATUS_LINE.pattern.replace(b"1\\.1", b"1\\.[01]"))
    heads, upgraded = 0, False  # heads: final ones

    def head(self):
        message = super().head()
        if message.status == 101:
            self.upgraded = True
            raise Closed("another protocol follows")
        self.heads += message.status >= 200
        return message


def short(error):
    return "invalid: " + re.split(": | is ", str(error))[0]


def next_client(upstream, where, wait):
    """What another client gets that is not its response. When it has one, the server has received what was sent before."""
    upstream.answer = None
    with Client(where, wait) as conn:
        try:
            got = conn.ask("GET", "/next")
            return "" if (got.status, got.body) == (200, b"ok") else ", the next client gets %d" % got.status
        except (Closed, Framing, OSError, TimedOut) as error:
            return ", the next client gets nothing valid: %s" % type(error).__name__


def request_outcome(upstream, where, data, wait=WAIT):
    """Send bytes, and a further request behind them, through a proxy. -> what the server read, or the status of the proxy"""
    upstream.begin()
    method = data.lstrip(b"\r\n").split(b" ")[0].decode("latin-1")
    with Client(where, wait) as conn:
        conn.try_send(data + END)
        status = "closed"
        try:
            status = str(conn.response("HEAD" if method == "CONNECT" else method).status)
            conn.rest()
        except (Closed, ConnectionResetError):
            status = "101" if conn.upgraded else status
        except TimedOut:
            status = "waits" if status == "closed" else status
        except Framing as error:
            status = "the response is " + short(error)
    after = next_client(upstream, where, wait)
    if not upstream.finished():
        return "the upstream server waits"
    read = " + ".join(one for one in upstream.seen if one not in ("GET /end", "GET /next"))
    return (read + ("" if status == "200" or "invalid" in read else "; " + status) if read else status) + after


def response_outcome(upstream, where, method, data, then, wait=WAIT):
    """Let the server send bytes for a request through a proxy. -> what the client reads; a further request follows"""
    upstream.begin((data, then))
    outcome = ""
    with Client(where, wait) as conn:
        try:
            conn.send(b"%s /odd HTTP/1.1\r\nHost: h\r\n\r\n" % method.encode())
            got = conn.response(method)
            interims = got.interim if len(got.interim) < 4 else ["%d interim," % len(got.interim)]
            outcome = " ".join(map(str, [*interims, got.status]))
            if got.status == 200:
                outcome += " " + got.body.decode("latin-1")[:12] if got.body else ""
                outcome += "".join(" %s:%s" % (name, value) for name, value in got.headers if name.lower() in ("x", "y"))
            upstream.answer = None
            conn.send(END)
            after = conn.response()
            if after.status == 200 and after.body != b"ok":
                outcome += ", the next request gets %d %s" % (after.status, after.body.decode("latin-1")[:12])
        except (Closed, OSError):
            outcome = outcome or ("invalid: 101" if conn.upgraded else "truncated" if conn.heads else "closed")
        except TimedOut:
            outcome = outcome or "waits"
        except Framing as error:
            outcome = outcome + ", the next response is invalid" if outcome else short(error)
    return outcome + next_client(upstream, where, wait)


def installed():
    return [name for name in PROGRAMS if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")]


class Started:
    """One of PROGRAMS, in front of the port of an upstream server."""

    def __init__(self, name, folder, upstream):
        program = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
        said = subprocess.run([program, "-v"], capture_output=True, text=True, check=True)
        self.version = re.search(r"\d+\.\d+\.\d+", said.stdout + said.stderr)[0]
        self.where = ("127.0.0.1", free_port())
        path = os.path.join(folder, name + ".conf")
        with open(path, "w") as out:
            out.write(PROGRAMS[name] % {"folder": folder, "port": self.where[1], "upstream": upstream})
        self.process = subprocess.Popen([program, *COMMANDS[name], path], stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + WAIT
        while True:
            try:
                socket.create_connection(self.where, WAIT).close()
                return
            except ConnectionRefusedError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.close()
                    raise AssertionError(name + " does not listen") from None
                time.sleep(0.01)

    def close(self):
        self.process.terminate()
        self.process.wait(WAIT)
