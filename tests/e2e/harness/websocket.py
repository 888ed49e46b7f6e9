"""A raw WebSocket client (RFC 6455, RFC 7692): it can send every frame, also broken ones, and checks strictly what the
server sends.

    with WebSocket(server.at(), "/echo") as ws:
        ws.send("hello")                                # text; bytes are binary
        assert ws.receive() == "hello"
        ws.send_frame(TEXT, b"a", fin=False)            # fragments
        ws.send_frame(CONTINUATION, b"b")
        ws.send_frame(PING, b"x" * 126, mask=False)     # broken
        assert ws.closes() == (1002, "...")             # the Close frame and the end of the connection

    WebSocket(server.at(), "/", protocols=["chat"], headers={"Origin": "http://a"}, deflate=True)   # .protocol, .deflate
    WebSocket(server.at(), "/", tls=harness.tls.context())
    refused(server.at(), handshake("/", version=None))  # the response to a handshake that is no 101

Every wait has the deadline of harness.conn.Conn.
"""
import base64
import hashlib
import os
import struct
import zlib
from collections import namedtuple

from harness.conn import Closed, Conn, Framing, request

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = "dGhlIHNhbXBsZSBub25jZQ=="  # RFC 6455 section 1.3
TAIL = b"\x00\x00\xff\xff"  # RFC 7692 section 7.2.1

Frame = namedtuple("Frame", "opcode payload fin rsv")  # rsv: the three bits, 4 is RSV1


class CloseFrame(AssertionError):
    """A Close frame was received instead of a message. .code (None: without one), .reason"""

    def __init__(self, code, reason):
        super().__init__("Close frame %s %r" % (code, reason))
        self.code, self.reason = code, reason


def masked(payload, key):
    """The payload, masked or unmasked with a key of 4 bytes."""
    size = len(payload)
    turned = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(turned, "little")).to_bytes(size, "little")


def frame(opcode, payload=b"", fin=True, rsv=0, mask=True, length=None, bits=None):
    """The bytes of a frame. `mask`: True: a random key; a key of 4 bytes; False: not masked. `length`: the length in the
    head, where it shall be another than that of the payload. `bits`: 7, 16 or 64: the form of the length; None: the shortest."""
    count = len(payload) if length is None else length
    bits = bits or (7 if count < 126 else 16 if count < 65536 else 64)
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    second = (0x80 if mask else 0) | {7: count, 16: 126, 64: 127}[bits]
    head = struct.pack("!BB", first, second) + {7: b"", 16: struct.pack("!H", count & 0xffff), 64: struct.pack("!Q", count)}[bits]
    if not mask:
        return head + payload
    key = os.urandom(4) if mask is True else mask
    return head + key + masked(payload, key)


def close_payload(code=None, reason=""):
    """The payload of a Close frame."""
    return b"" if code is None else struct.pack("!H", code) + reason.encode()


def handshake(path="/", headers=(), protocols=(), deflate=None, key=KEY, version="13", upgrade="websocket",
              connection="Upgrade", method="GET", http="HTTP/1.1"):
    """The bytes of a client's handshake. None leaves a field out; `headers` are further ones. `deflate`: the value of
    Sec-WebSocket-Extensions; True: "permessage-deflate; client_max_window_bits"."""
    if deflate is True:
        deflate = "permessage-deflate; client_max_window_bits"
    fields = [("Upgrade", upgrade), ("Connection", connection), ("Sec-WebSocket-Key", key), ("Sec-WebSocket-Version", version),
              ("Sec-WebSocket-Protocol", ", ".join(protocols) or None), ("Sec-WebSocket-Extensions", deflate)]
    further = list(headers.items() if isinstance(headers, dict) else headers)
    return request(method, path, [(name, value) for name, value in fields if value is not None] + further, version=http)


def accept(key):
    """The value of Sec-WebSocket-Accept for a key."""
    digest = hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
    return base64.b64encode(digest).decode()


def refused(where, bytes_of_handshake, timeout=None):
    """Send a handshake that the server refuses; returns the response."""
    with Conn(where, timeout) as conn:
        return conn.send(bytes_of_handshake).response()


class Deflate:
    """One connection's permessage-deflate, with the parameters of the response."""

    def __init__(self, value, offer):
        parts = [part.strip().lower() for part in value.split(";")]
        if parts[0] != "permessage-deflate":
            raise Framing("Sec-WebSocket-Extensions is %r" % value)
        self.parameters = {}
        for part in parts[1:]:
            name, _, number = part.partition("=")
            bits = number.isdigit() and 8 <= int(number) <= 15
            if name in self.parameters or not (
                    name in ("server_max_window_bits", "client_max_window_bits") and bits
                    or part in ("server_no_context_takeover", "client_no_context_takeover")):
                raise Framing("bad parameter %r: %r" % (part, value))
            self.parameters[name] = int(number) if number else True
        if "client_max_window_bits" in self.parameters and "client_max_window_bits" not in offer:
            raise Framing("client_max_window_bits was not offered: %r" % value)
        self.compressor = self.decompressor = None

    def compress(self, data):
        if self.compressor is None:
            bits = max(9, self.parameters.get("client_max_window_bits", 15))  # zlib has no raw window of 8 bits
            self.compressor = zlib.compressobj(wbits=-bits)
        out = self.compressor.compress(data) + self.compressor.flush(zlib.Z_SYNC_FLUSH)
        if "client_no_context_takeover" in self.parameters:
            self.compressor = None
        return out[:-4] if out.endswith(TAIL) else out

    def decompress(self, data):
        if self.decompressor is None:
            self.decompressor = zlib.decompressobj(wbits=-self.parameters.get("server_max_window_bits", 15))
        try:
            out = self.decompressor.decompress(data + TAIL)
        except zlib.error as error:
            raise Framing("the message does not inflate: %s" % error) from None
        if "server_no_context_takeover" in self.parameters:
            self.decompressor = None
        return out


class WebSocket:
    """A connection after its handshake. `where`: an address as Server.at() gives it. `tls`: an ssl.SSLContext; `name`: the
    server's name for it. `rcvbuf` as for Conn. .response is the head of the 101, .conn the Conn under it."""

    def __init__(self, where, path="/", headers=(), protocols=(), deflate=None, tls=None, name="localhost", timeout=None, rcvbuf=None):
        self.conn = Conn(where, timeout, rcvbuf)
        try:
            if tls is not None:
                self.conn.sock = tls.wrap_socket(self.conn.sock, server_hostname=name)
            key = base64.b64encode(os.urandom(16)).decode()
            asked = handshake(path, headers, protocols, deflate, key)
            self.conn.send(asked)
            self.response = self._upgraded(key, protocols)
            value = self.response.header("Sec-WebSocket-Extensions")
            if value is not None and not deflate:
                raise Framing("an extension that was not offered: %r" % value)
            self.deflate = Deflate(value, asked.decode()) if value is not None else None
        except BaseException:
            self.conn.close()
            raise

    def _upgraded(self, key, protocols):
        response = self.conn.head()
        if response.status != 101:
            raise AssertionError("the handshake was refused: %r" % response)
        wrong = {name: response.header(name) for name, wanted in
                 (("Upgrade", "websocket"), ("Connection", "upgrade"), ("Sec-WebSocket-Accept", accept(key)))
                 if (response.header(name) or "").lower() != wanted.lower()}
        self.protocol = response.header("Sec-WebSocket-Protocol")
        if wrong or response.header("Sec-WebSocket-Accept") != accept(key) or response.all("Content-Length") or (
                self.protocol is not None and self.protocol not in protocols):
            raise Framing("bad 101: %r" % response)
        return response

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.conn.close()

    # -- send

    def send_raw(self, data):
        """Any bytes."""
        self.conn.sock.sendall(data)
        return self

    def try_send(self, data):
        """Any bytes, to a peer that may close. Returns whether all were sent."""
        return self.conn.try_send(data)

    def send_frame(self, opcode, payload=b"", **how):
        """One frame; the arguments are those of frame()."""
        return self.send_raw(frame(opcode, payload, **how))

    def send(self, data, compress=False, fragments=1):
        """A message: str is text, bytes binary. In this many fragments; with `compress` as negotiated."""
        opcode, payload = (TEXT, data.encode()) if isinstance(data, str) else (BINARY, data)
        if compress:
            payload = self.deflate.compress(payload)
        size = -(-len(payload) // fragments)
        parts = [payload[n * size:(n + 1) * size] for n in range(fragments)]
        return self.send_raw(b"".join(
            frame(opcode if n == 0 else CONTINUATION, part, fin=n == fragments - 1, rsv=4 if compress and n == 0 else 0)
            for n, part in enumerate(parts)))

    # -- receive

    def read_frame(self):
        """The next frame; a broken one raises Framing, the end of the connection Closed."""
        first, second = self.conn.take(2)
        fin, rsv, opcode, length = bool(first & 0x80), first >> 4 & 7, first & 0xf, second & 0x7f
        if second & 0x80:
            raise Framing("a masked frame of the server")
        if length >= 126:
            size, least = ("!H", 126) if length == 126 else ("!Q", 65536)
            length, = struct.unpack(size, self.conn.take(struct.calcsize(size)))
            if not least <= length < 1 << 63:
                raise Framing("the length %d is not in its shortest form" % length)
        if opcode not in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG):
            raise Framing("reserved opcode %d" % opcode)
        if opcode >= CLOSE and (not fin or length > 125):
            raise Framing("a control frame that is fragmented or has %d bytes" % length)
        if rsv and (rsv != 4 or self.deflate is None or opcode not in (TEXT, BINARY)):
            raise Framing("reserved bits %d in a frame with opcode %d" % (rsv, opcode))
        return Frame(opcode, self.conn.take(length), fin, rsv)

    def receive(self):
        """The next message: str or bytes. Pings are answered, pongs skipped; a Close frame raises CloseFrame."""
        begun, parts = None, []
        while True:
            got = self.read_frame()
            if got.opcode == PING:
                self.send_frame(PONG, got.payload)
            elif got.opcode == CLOSE:
                raise self._close_frame(got.payload)
            elif got.opcode != PONG:
                if (got.opcode == CONTINUATION) != (begun is not None):
                    raise Framing("a frame with opcode %d %s a message" % (got.opcode, "inside" if begun else "outside"))
                begun = begun or got
                parts.append(got.payload)
                if got.fin:
                    break
        data = b"".join(parts)
        if begun.rsv:
            data = self.deflate.decompress(data)
        return data.decode() if begun.opcode == TEXT else data

    @staticmethod
    def _close_frame(payload):
        if not payload:
            return CloseFrame(None, "")
        if len(payload) == 1:
            raise Framing("a Close frame with 1 byte")
        return CloseFrame(struct.unpack("!H", payload[:2])[0], payload[2:].decode())

    def close_frame(self):
        """Skip messages until the Close frame of the server; returns its code (None: without one) and reason."""
        try:
            while True:
                self.receive()
        except CloseFrame as got:
            return got.code, got.reason

    def closes(self):
        """The server begins the closing handshake: its Close frame, ours, the end. Returns code and reason. The end may be a
        reset if we have sent what the server did not read."""
        code, reason = self.close_frame()
        self.try_send(frame(CLOSE, close_payload(code)))
        self.ends(reset_ok=True)
        return code, reason

    def close(self, code=1000, reason=""):
        """We begin it; returns the code and reason of the server's Close frame."""
        self.send_frame(CLOSE, close_payload(code, reason))
        got = self.close_frame()
        self.ends()
        return got

    def ends(self, reset_ok=False):
        """The server ends the connection, and sends nothing more."""
        self.conn.expect_end(reset_ok)

    def lost(self):
        """The server ends the connection without a Close frame. Messages before are skipped."""
        try:
            while True:
                self.receive()
        except (Closed, ConnectionResetError):
            return
