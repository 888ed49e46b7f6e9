"""A WebSocket client (RFC 6455) as small as the benchmark needs it: it checks that servers work, and holds connections.

A frame that it receives is a complete message. It inflates only the first message with context takeover (RFC 7692)."""
import base64
import hashlib
import os
import socket
import struct
import zlib

TEXT, BINARY, CLOSE = 1, 2, 8
RSV1 = 0x40  # a compressed message
MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
DEFLATE = "permessage-deflate"


class Refused(OSError):
    """The server did not accept the handshake, or broke the protocol."""


def handshake(sock, path, deflate=False):
    """Turn a connection into a WebSocket -> whether permessage-deflate was negotiated."""
    key = base64.b64encode(os.urandom(16))
    offer = f"Sec-WebSocket-Extensions: {DEFLATE}\r\n" if deflate else ""
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                 f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key.decode()}\r\n{offer}\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:  # byte by byte: the first frame may follow at once
        byte = sock.recv(1)
        if not byte:
            raise Refused(f"{path}: the connection ended after {head!r}")
        head += byte
    lines = head.decode("latin-1").split("\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    accept = base64.b64encode(hashlib.sha1(key + MAGIC).digest()).decode()
    if " 101 " not in lines[0] or fields.get("sec-websocket-accept") != accept:
        raise Refused(f"{path}: the handshake got {lines[0]!r}")
    return DEFLATE in fields.get("sec-websocket-extensions", "")


def frame(payload, opcode=TEXT):
    """A masked frame; the mask is zero, so that the payload stays as it is."""
    size = len(payload)
    length = (struct.pack("!B", 0x80 | size) if size < 126 else
              struct.pack("!BH", 0x80 | 126, size) if size < 65536 else struct.pack("!BQ", 0x80 | 127, size))
    return bytes([0x80 | opcode]) + length + bytes(4) + payload


def exactly(sock, count):
    found = b""
    while len(found) < count:
        chunk = sock.recv(count - len(found))
        if not chunk:
            raise Refused(f"the connection ended within a frame, after {found!r}")
        found += chunk
    return found


def receive(sock):
    """The next frame -> (opcode, payload)."""
    first, second = exactly(sock, 2)
    size = second & 127
    if size == 126:
        size, = struct.unpack("!H", exactly(sock, 2))
    elif size == 127:
        size, = struct.unpack("!Q", exactly(sock, 8))
    payload = exactly(sock, size)
    if first & RSV1:
        payload = zlib.decompressobj(-zlib.MAX_WBITS).decompress(payload + b"\0\0\xff\xff")
    return first & 15, payload


def echo(sock, payload):
    """Send a text message and check that it comes back."""
    sock.sendall(frame(payload))
    opcode, received = receive(sock)
    if (opcode, received) != (TEXT, payload):
        raise Refused(f"the echo of {len(payload)} bytes is a frame of type {opcode} with {len(received)} bytes")


def connect(port, path, receive_buffer=None, deflate=False):
    """A connected WebSocket -> its socket. `receive_buffer`: bytes."""
    sock = socket.socket()
    try:
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(10)
        sock.connect(("127.0.0.1", port))
        if handshake(sock, path, deflate) != deflate:
            raise Refused(f"{path}: permessage-deflate was {'not ' if deflate else ''}negotiated")
        return sock
    except BaseException:
        sock.close()
        raise
