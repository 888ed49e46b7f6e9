"""H2: a client of HTTP/2 (RFC 9113) that writes any frame. Every wait has a deadline."""
import collections
import socket
import struct
import sys
import time
import unittest

from harness import tls
from harness.conn import Closed, TimedOut
from harness.environment import WAIT
from harness.server import run_program

sys.path.append("/usr/lib/python3/dist-packages")  # of Debian, for another Python than that of the system
try:
    import hpack
except ImportError:
    hpack = None

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
PRIORITY_UPDATE = 16
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, PRIORITY_FLAG = 0x4, 0x8, 0x20
(NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR, SETTINGS_TIMEOUT, STREAM_CLOSED, FRAME_SIZE_ERROR, REFUSED_STREAM,
 CANCEL, COMPRESSION_ERROR, CONNECT_ERROR, ENHANCE_YOUR_CALM, INADEQUATE_SECURITY, HTTP_1_1_REQUIRED) = range(14)
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = range(1, 7)
ENABLE_CONNECT_PROTOCOL, NO_RFC7540_PRIORITIES = 8, 9

needs_http2 = unittest.skipIf(hpack is None or "HTTP/2: not built in" in run_program(["--version"])[1],
                              "the program has no HTTP/2, or hyper-h2 is not installed")

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
Frame = collections.namedtuple("Frame", "kind flags stream payload")


def frame(kind, flags=0, stream=0, payload=b""):
    """The bytes of a frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def block(fields):
    """A header block of literal fields, which no table keeps (RFC 7541 section 6.2.2)."""
    return b"".join(b"\x00" + text(name) + text(value) for name, value in fields)


def text(value):
    """A string of HPACK, without Huffman's code."""
    value = value.encode("latin-1") if isinstance(value, str) else value
    if len(value) < 127:
        return bytes([len(value)]) + value
    size, rest = b"\x7f", len(value) - 127
    while rest > 127:
        size, rest = size + bytes([rest & 127 | 128]), rest >> 7
    return size + bytes([rest]) + value


def settings(values):
    """The payload of SETTINGS."""
    return b"".join(struct.pack(">HI", key, value) for key, value in dict(values).items())


def number(value):
    return struct.pack(">I", value)


def head(path="/", method="GET", fields=(), authority="h", scheme="http"):
    """The fields of a request; of its parts, those that are None are left out."""
    parts = {":method": method, ":scheme": scheme, ":path": path, ":authority": authority}
    return [(name, value) for name, value in parts.items() if value is not None] + list(fields)


class Reset(Exception):
    """The stream was reset; `.code`."""

    def __init__(self, code):
        super().__init__("RST_STREAM %d" % code)
        self.code = code


class Response:
    """What a stream has received: the final head, and the interim ones."""

    def __init__(self):
        self.interim, self.fields, self.trailers, self.body = [], None, None, bytearray()
        self.ended, self.reset = False, None

    @property
    def status(self):
        return self.fields and int(self.header(":status"))

    def header(self, name):
        return dict(self.fields).get(name)

    @property
    def text(self):
        return self.body.decode()


class H2:
    """A connection. `address`: as of Server.at(). `over_tls`: a context of harness.tls, or True. `preface` False: nothing is
    sent at first. `credit` False: WINDOW_UPDATE is the test's own; `.answers` False: so are the answers to PING."""

    def __init__(self, address, over_tls=None, preface=True, first=(), credit=True):
        self.sock = socket.create_connection(address, WAIT)
        if over_tls:
            made = tls.context(alpn=["h2"]) if over_tls is True else over_tls
            self.sock = made.wrap_socket(self.sock, server_hostname="localhost")
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.next_id, self.credit, self.answers = b"", 1, credit, True
        self.decoder = hpack.Decoder(max_header_list_size=1 << 20)
        self.decoder.max_allowed_table_size = 4096
        self.streams, self.pings, self.acknowledged, self.goaways = {}, [], 0, []
        self.peer = {INITIAL_WINDOW_SIZE: 65535, MAX_FRAME_SIZE: 16384}
        self.got_settings = False
        self.windows = collections.defaultdict(int)  # what WINDOW_UPDATE has added, by stream
        self.sent = collections.defaultdict(int)
        if preface:
            self.raw(PREFACE + frame(SETTINGS, payload=settings(first)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    # ---- out

    def raw(self, data):
        """Send bytes. The server may have closed the connection: then the next read says so."""
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def send(self, kind, flags=0, stream=0, payload=b""):
        self.raw(frame(kind, flags, stream, payload))

    def open(self, path="/", method="GET", end=True, whole=None, **of_head):
        """Send the head of a request, or the fields `whole`; returns its stream."""
        stream, self.next_id = self.next_id, self.next_id + 2
        fields = head(path, method, **of_head) if whole is None else whole
        self.send(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block(fields))
        return stream

    def body(self, stream, data, end=True, size=16384):
        """Send a body as the windows allow, until the server has ended its response."""
        data = memoryview(data)
        while data and not self.streams.setdefault(stream, Response()).ended:
            part = min(len(data), size, self.room(0), self.room(stream))
            if part <= 0:
                self.read()
                self.check(stream)
                continue
            self.sent[0] += part
            self.sent[stream] += part
            self.send(DATA, END_STREAM if end and part == len(data) else 0, stream, data[:part])
            data = data[part:]

    def room(self, stream):
        start = self.peer[INITIAL_WINDOW_SIZE] if stream else 65535
        return start + self.windows[stream] - self.sent[stream]

    # ---- in

    def take(self, count, until):
        while len(self.buffer) < count:
            self.sock.settimeout(max(until - time.monotonic(), 0.001))
            try:
                part = self.sock.recv(65536)
            except (TimeoutError, socket.timeout) as error:
                raise TimedOut("no frame; goaways %s" % self.goaways) from error
            except OSError as error:
                raise Closed(str(error)) from error
            if not part:
                raise Closed("the end of the connection; goaways %s" % self.goaways)
            self.buffer += part
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def read(self, timeout=None):
        """The next frame; its effect on this client is done."""
        until = time.monotonic() + (timeout or WAIT)
        head_bytes = self.take(9, until)
        kind, flags, stream = struct.unpack(">BBI", head_bytes[3:])
        got = Frame(kind, flags, stream, self.take(int.from_bytes(head_bytes[:3], "big"), until))
        self.apply(got)
        return got

    def apply(self, got):
        kind, flags, stream, payload = got
        of = self.streams.setdefault(stream, Response())
        if kind == SETTINGS and flags & ACK:
            self.acknowledged += 1
        elif kind == SETTINGS:
            self.got_settings = True
            self.peer.update(struct.unpack(">HI", payload[at:at + 6]) for at in range(0, len(payload), 6))
            self.send(SETTINGS, ACK)
        elif kind == PING:
            self.pings.append((flags & ACK, payload))
            if not flags & ACK and self.answers:
                self.send(PING, ACK, 0, payload)
        elif kind == GOAWAY:
            self.goaways.append((*struct.unpack(">II", payload[:8]), payload[8:]))
        elif kind == WINDOW_UPDATE:
            self.windows[stream] += int.from_bytes(payload, "big")
        elif kind == RST_STREAM:
            of.reset = int.from_bytes(payload, "big")
        elif kind == DATA:
            if of.fields is None or of.ended:
                raise AssertionError("DATA outside of a response: %r" % (got,))
            of.body += payload
            if payload and self.credit:
                self.send(WINDOW_UPDATE, 0, 0, number(len(payload)))
                self.send(WINDOW_UPDATE, 0, stream, number(len(payload)))
        elif kind in (HEADERS, CONTINUATION):
            self.block = (b"" if kind == HEADERS else self.block) + payload
            if flags & END_HEADERS:
                self.fields(of, self.decoder.decode(self.block))
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            of.ended = True

    @staticmethod
    def fields(of, fields):
        if any(name != name.lower() for name, _ in fields):
            raise AssertionError("an upper-case name in %s" % fields)
        status = dict(fields).get(":status")
        if status and int(status) < 200:
            of.interim.append(fields)
        elif of.fields is None:
            of.fields = fields
        else:
            of.trailers = fields

    def check(self, stream):
        """Raise if the stream was reset, or a GOAWAY has excluded it."""
        if self.streams.setdefault(stream, Response()).reset is not None and not self.streams[stream].ended:
            raise Reset(self.streams[stream].reset)

    def until(self, condition, timeout=None):
        """Read frames until condition() holds."""
        end = time.monotonic() + (timeout or WAIT)
        while not condition():
            self.read(max(end - time.monotonic(), 0.001))

    def response(self, stream):
        """The whole response. Raises Reset, Closed, TimedOut."""
        of = self.streams.setdefault(stream, Response())
        self.until(lambda: of.ended or of.reset is not None)
        self.check(stream)
        return of

    def request(self, path="/", method="GET", body=None, **of_head):
        stream = self.open(path, method, body is None, **of_head)
        if body is not None:
            self.body(stream, body)
            if not body:
                self.send(DATA, END_STREAM, stream)
        return self.response(stream)

    def reset_code(self, stream):
        """Await that the stream is reset; the code."""
        try:
            of = self.response(stream)
        except Reset as reset:
            return reset.code
        self.until(lambda: of.reset is not None)
        return of.reset

    def goaway(self):
        """Await the GOAWAY; its (last stream, code, text)."""
        self.until(lambda: self.goaways)
        return self.goaways[-1]

    def end(self):
        """Await the end of the connection. Returns the code of the last GOAWAY, or None."""
        try:
            while True:
                self.read()
        except Closed:
            return self.goaways[-1][1] if self.goaways else None

    def ping(self, data=b"12345678"):
        """Await the answer to a PING: all that was sent before it is read."""
        self.send(PING, 0, 0, data)
        self.until(lambda: (ACK, data) in self.pings)
        self.pings.remove((ACK, data))
