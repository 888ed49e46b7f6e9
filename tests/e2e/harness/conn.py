"""Conn: a client's connection that rejects malformed HTTP, and the bytes of requests."""
import re
import socket
import struct

from harness import httpsys
from harness.environment import WAIT

TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-9][0-9]{2}) ([\t\x20-\x7e\x80-\xff]*)\Z")
FIELD_LINE = re.compile(rb"(" + TOKEN + rb"):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*\Z")
CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}\Z")
IMF_DATE = re.compile(
    r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) "
    r"\d{4} \d\d:\d\d:\d\d GMT\Z"
)


class Framing(AssertionError):
    """The peer's bytes are not valid HTTP."""


class Closed(AssertionError, EOFError):
    """The connection ended before or inside a response."""


class TimedOut(AssertionError):
    """No data arrived within the connection's time limit."""


class Response:
    def __init__(self, status, reason, headers):
        self.status = status
        self.reason = reason
        self.headers = headers  # [(name as sent, value)]
        self.body = b""
        self.chunked = False
        self.chunks = 0  # how many data chunks a chunked body had
        self.trailers = []
        self.interim = []  # the status of each 1xx response before this one
        self.to_close = False  # the body ended with the connection

    def __repr__(self):
        return "<%d %r %r>" % (self.status, self.headers, self.body[:200])

    def all(self, name):
        return [v for n, v in self.headers if n.lower() == name.lower()]

    def header(self, name, default=None):
        values = self.all(name)
        if len(values) > 1:
            raise Framing("%s occurs %d times: %r" % (name, len(values), self))
        return values[0] if values else default

    @property
    def text(self):
        return self.body.decode("utf-8")

    @property
    def closes(self):
        return "close" in [t.strip().lower() for t in ",".join(self.all("Connection")).split(",")]


class Conn:
    """One client connection. `where` is an address as Server.at() gives it, `source` the client's own address."""

    needs_date, status_line = True, STATUS_LINE  # of responses

    def __init__(self, where, timeout=None, rcvbuf=None, source=None):
        self.timeout = timeout or WAIT
        is_path = isinstance(where, str)
        family = socket.AF_UNIX if is_path else socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(self.timeout)
            if rcvbuf:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
            if source:
                self.sock.bind((source, 0))
            self.sock.connect(where)
            if not is_path:
                self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            self.sock.close()
            raise
        self.data = b""
        self.ended = False
        self.nudge = httpsys.nudges.get(where[-1])
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
        """Wine's http.sys finds the site by the Host alone, and crashes when the Host has no port."""
        return data.replace(b"Host: h\r\n", self.host) if self.host else data

    def send(self, data):
        self.sock.sendall(self.with_host(data))
        return self

    def try_send(self, data):
        """Send to a peer that may close. Returns whether all of the data was sent."""
        try:
            self.sock.sendall(self.with_host(data))
            return True
        except (BrokenPipeError, ConnectionResetError):
            return False

    def _more(self):
        """Receive once. Returns False at the peer's end."""
        if self.ended:
            return False
        try:
            got = self.nudge.receive(self.sock, self.timeout) if self.nudge else self.sock.recv(262144)
        except socket.timeout:
            raise TimedOut("no data for %.0f s; the last data: %r" % (self.timeout, self.data[-300:])) from None
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
                raise Framing("%s without an end: %r" % (what, self.data[:100]))
            if not self._more():
                raise Closed("the connection ended inside the %s: %r" % (what, self.data[-300:]))

    def take(self, count):
        """The next `count` bytes."""
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
        """The data up to the next `end`, without it."""
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
        """A status line and its fields, interim or final; their syntax is checked."""
        line = self._line("status line")
        match = self.status_line.match(line)
        if not match:
            raise Framing("bad status line: %r" % line)
        return Response(int(match.group(1)), match.group(2).decode("latin-1"), self.fields("header section"))

    def fields(self, section):
        """The fields up to an empty line: [(name, value)]"""
        fields = []
        while (line := self._line(section)) != b"":
            field = FIELD_LINE.match(line)
            if not field:
                raise Framing("bad line of a %s: %r" % (section, line))
            fields.append((field.group(1).decode(), field.group(2).decode("latin-1")))
        return fields

    def response_head(self):
        """The final response's head; .interim lists the interim responses before it."""
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
        if not IMF_DATE.match(date or "") and self.needs_date:
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
        """One whole response; its framing is checked. `method` is the request's: a response to HEAD has no body."""
        response = self.response_head()
        length, coding = response.header("Content-Length"), response.header("Transfer-Encoding")
        if method == "HEAD" or response.status in (204, 304):
            return response
        if coding:
            response.chunked = True
            self.chunked_body(response)
        elif length is not None:
            response.body = self.take(int(length))
        else:
            if not response.closes:
                raise Framing("neither Content-Length, chunked nor Connection: close: %r" % response)
            response.to_close = True
            response.body = self.rest()
        return response

    def chunked_body(self, message):
        """Reads a chunked body, and its trailers, into the message."""
        parts = []
        while True:
            size = self._line("chunk size")
            if not CHUNK_SIZE.match(size):
                raise Framing("bad chunk size: %r" % size)
            size = int(size, 16)
            if size == 0:
                break
            message.chunks += 1
            parts.append(self.take(size))
            if self.take(2) != b"\r\n":
                raise Framing("chunk data is not followed by CRLF")
        message.trailers = self.fields("trailer section")
        message.body = b"".join(parts)

    def ask(self, method, target, headers=(), body=None):
        """Send one request and read its response."""
        self.send(request(method, target, headers, body))
        return self.response(method)

    def get(self, target, headers=()):
        return self.ask("GET", target, headers)

    def expect_end(self, reset_ok=False):
        """The peer ends the connection without sending more."""
        try:
            rest = self.rest()
        except ConnectionResetError:
            if not reset_ok:
                raise
            rest = b""
        if rest:
            raise AssertionError("data before the end: %r" % rest[:300])

    def silent(self, seconds=0.2):
        """Whether neither data nor the end arrive for this long."""
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
    """A request's bytes. `headers`: a dict or pairs. A body without a framing field gets a Content-Length."""
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
    """A body in the chunked coding."""
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n" + trailers + b"\r\n"
