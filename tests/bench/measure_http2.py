"""The measurements of HTTP/2 over TLS, beside nginx, h2o and nghttpd: CPU per request, memory of idle connections, sends per 32
responses, fast streams beside slow ones on the same connection, server-sent events to many subscribers.

The load of the CPU sections is h2load. The others have a client of their own, which knows as much of HTTP/2 as they need; the
site is sites/http2.lua.
"""
import contextlib
import functools
import json
import os
import re
import selectors
import socket
import ssl
import struct
import subprocess
import time

from measure import HELLO, cpu_while, find_number, idle_connections, reset_at_end
from servers import READY, SITES, Failed, Server, luaserve, nginx

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE, WINDOW_MAX = 4, (1 << 31) - 1
CREDIT = 1 << 28  # bytes for which the connection gets credit at a time
OK = 0x88  # :status 200, as every server writes it (RFC 7541 appendix A)
FAST_EVERY_S, FAST_MAX = 0.005, 100  # the interval of requests on schedule; those that are open at a time
SUBSCRIBERS, PUBLICATIONS_PER_S, SOCKETS = 1000, 10, 64
MESSAGE = b"data: " + b"x" * 64
IDLE_MAX = 1000


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


@functools.cache
def settings_of_tls(protocol):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([protocol])
    return context


def connect_tls(server, protocol):
    sock = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock = settings_of_tls(protocol).wrap_socket(sock)
    if sock.selected_alpn_protocol() != protocol:
        raise Failed(f"{server.name}: does not speak {protocol}")
    return sock


class Client:
    """A connection. `window` of each stream; that of the connection is as large as can be."""

    def __init__(self, server, window=WINDOW_MAX):
        self.received = 0  # bytes of DATA for which the connection got no credit yet
        self.sock, self.name = connect_tls(server, "h2"), server.name
        self.next_id, self.buffer = 1, b""
        self.sock.sendall(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, window))
                          + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", WINDOW_MAX - 65535)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def request(self, target):
        """The bytes of a GET, and its stream."""
        stream, self.next_id = self.next_id, self.next_id + 2
        block = b"\x82\x87\x41\x05bench\x04" + bytes([len(target)]) + target.encode()
        return frame(HEADERS, END | END_HEADERS, stream, block), stream

    def open(self, target):
        data, stream = self.request(target)
        self.sock.sendall(data)
        return stream

    def frames(self, wait=20):
        """What has arrived within `wait` seconds: (kind, flags, stream, payload)..."""
        self.sock.settimeout(max(wait, 0.0001))
        try:
            part = self.sock.recv(1 << 17)
        except (TimeoutError, ssl.SSLWantReadError):
            return
        if not part:
            raise Failed(f"{self.name}: closed the connection")
        self.buffer += part
        at = 0
        while len(self.buffer) - at >= 9:
            size = int.from_bytes(self.buffer[at:at + 3], "big")
            if len(self.buffer) - at - 9 < size:
                break
            kind, flags, stream = struct.unpack_from(">BBI", self.buffer, at + 3)
            payload = self.buffer[at + 9:at + 9 + size]
            at += 9 + size
            if kind == SETTINGS and not flags:
                self.sock.sendall(frame(SETTINGS, END))
            self.received += size if kind == DATA else 0
            if self.received >= CREDIT:  # else it would stand still after 2 GiB
                self.sock.sendall(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self.received)))
                self.received = 0
            if kind == HEADERS and OK not in payload[:6] or kind in (RST_STREAM, GOAWAY):
                raise Failed(f"{self.name}: a response is not 200: {kind} {payload[:40]!r}")
            yield kind, flags, stream, payload
        self.buffer = self.buffer[at:]

    def answers(self, count):
        """Await the ends of `count` responses -> the bytes of their bodies."""
        body = b""
        while count > 0:
            for kind, flags, _, payload in self.frames():
                body += payload if kind == DATA else b""
                count -= kind in (DATA, HEADERS) and flags & END
        return body

    def get(self, target):
        self.open(target)
        return self.answers(1)


def responds(server):
    with Client(server) as client:
        return all(client.get(target) == body for target, body in server.answers.items())


READY["h2"] = responds


# ---- CPU

def h2load(server, target, load_cpu, seconds, connections, streams):
    """One run of h2load, as measure.cpu_while requires it."""
    argv = ["taskset", "-c", str(load_cpu), "h2load", "-t1", f"-c{connections}", f"-m{streams}", f"-D{seconds}",
            server.url(target, "https")]
    began = time.monotonic()
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    done = re.search(r"(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored", output)
    if process.returncode or not done:
        raise Failed(f"h2load ended with {process.returncode}: {output.strip()[-400:]}")
    elapsed = time.monotonic() - began
    failed = int(done[1]) - int(done[2])
    return {"requests": int(done[2]), "duration_us": elapsed * 1e6, "errors": {"failed": failed} if failed else {},
            "cpu_share": (usage.ru_utime + usage.ru_stime) / elapsed}


def request(server, load_cpu, seconds, target, connections, streams, **_):
    return cpu_while(server, lambda: h2load(server, target, load_cpu, seconds, connections, streams))


# ---- memory, sends

def idle(server, load_cpu, **_):
    def connect(one):
        client = Client(one)
        reset_at_end(client.sock)
        return client
    return idle_connections(server, lambda: h2load(server, "/", load_cpu, 1, 64, 1), lambda client: client.get("/"), IDLE_MAX, connect)


def sends(server, **_):
    """Sends of the server for each 32 responses to requests that arrive together."""
    def counter(client):
        stats = json.loads(client.get("/stats"))
        return find_number(stats, "send_inline") + find_number(stats, "send_queued")

    with Client(server) as client:
        rounds = 50
        counter(client)
        own = -(counter(client) - counter(client))
        before = counter(client)
        for _ in range(rounds):
            client.sock.sendall(b"".join(client.request("/")[0] for _ in range(32)))
            client.answers(32)
        return {"sends": (counter(client) - before - own) / rounds}


# ---- fast streams beside slow ones

def beside(server, seconds, slow, **_):
    """The latencies, in milliseconds, of requests on schedule, while the same connection always has one for `slow`. "unread": a
    response whose stream gets no window beyond the first."""
    times, lags, fast, occupied = [], [], {}, 0
    unread = slow == "unread"
    seconds = max(seconds, 3)
    with Client(server, 65535 if unread else WINDOW_MAX) as client:
        other = client.open("/10m" if unread else slow)
        due = time.monotonic() + 0.1
        end = due + seconds
        while due < end or fast:
            now = time.monotonic()
            if due <= min(now, end) and len(fast) < FAST_MAX:
                fast[client.open("/")] = due
                lags.append(now - due)
                due += FAST_EVERY_S
            if now > end + 20:
                raise Failed(f"{server.name}: {len(fast)} requests beside {slow} have no response")
            for kind, flags, stream, _ in client.frames(max(due - now, 0) if due < end else 1):
                if kind not in (DATA, HEADERS) or not flags & END:
                    continue
                if stream in fast:
                    times.append(time.monotonic() - fast.pop(stream))
                elif stream == other:
                    occupied += 1
                    other = client.open(slow)
    if not unread and not occupied:
        raise Failed(f"{server.name}: {slow} never got a response")
    times.sort()
    lags.sort()
    at = {"p50": times[len(times) // 2], "p99": times[len(times) * 99 // 100], "max": times[-1],
          "lag_p99": lags[len(lags) * 99 // 100], "lag_max": lags[-1]}
    return {**{f"{name}_ms": value * 1000 for name, value in at.items()}, "occupied": occupied, "failures": 0}


# ---- server-sent events

def subscribe(server, over, opened):
    """The sockets of SUBSCRIBERS clients: over HTTP/2, ten streams on each connection. `opened` closes them."""
    socks = []
    for _ in range(SUBSCRIBERS // 10 if over == "h2" else SUBSCRIBERS):
        if over == "h2":
            client = opened.enter_context(Client(server))
            client.sock.sendall(b"".join(client.request("/sse")[0] for _ in range(10)) + frame(SETTINGS, END))
            socks.append(client.sock)
        else:
            socks.append(opened.enter_context(connect_tls(server, "http/1.1")))
            socks[-1].sendall(HELLO.replace(b"GET / ", b"GET /sse "))
    return socks


@contextlib.contextmanager
def on_core(cpu):
    """This process runs on one core inside the block."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def events(server, load_cpu, seconds, over, **_):
    """CPU per delivery of a message to SUBSCRIBERS, PUBLICATIONS_PER_S times a second."""
    with on_core(load_cpu), contextlib.ExitStack() as opened, selectors.DefaultSelector() as selector:
        for sock in subscribe(server, over, opened):
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ)
        until = time.monotonic() + 30
        while int(get_body(server, "/subscribers")) != SUBSCRIBERS:  # those of the round before have gone
            if time.monotonic() > until:
                raise Failed(f"{server.name}: not all have subscribed within 30 s")
            drain(selector, 0.05)
        publisher = opened.enter_context(connect_tls(server, "http/1.1"))
        publisher.setblocking(False)
        selector.register(publisher, selectors.EVENT_READ)
        return cpu_while(server, lambda: publish(publisher, selector, seconds))


def get_body(server, target):
    with connect_tls(server, "http/1.1") as sock:
        sock.sendall(b"GET %s HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n" % target.encode())
        text = b""
        while part := sock.recv(65536):
            text += part
        return text.partition(b"\r\n\r\n")[2]


def drain(selector, wait):
    """Read what arrives within `wait` -> the number of messages in it. Each is in one frame and one record."""
    count = 0
    for key, _ in selector.select(wait):
        with contextlib.suppress(ssl.SSLWantReadError):
            while part := key.fileobj.recv(1 << 16):
                count += part.count(MESSAGE)
    return count


def publish(publisher, selector, seconds):
    began, delivered, sent, used = time.monotonic(), 0, 0, time.process_time()
    body = MESSAGE[len("data: "):]
    while sent < seconds * PUBLICATIONS_PER_S or delivered < sent * SUBSCRIBERS:
        now = time.monotonic()
        if sent < seconds * PUBLICATIONS_PER_S and now >= began + sent / PUBLICATIONS_PER_S:
            publisher.sendall(b"POST /pub HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            sent += 1
        if now > began + seconds + 20:
            break
        delivered += drain(selector, 0.005)
    elapsed, lost = time.monotonic() - began, sent * SUBSCRIBERS - delivered
    return {"requests": delivered, "duration_us": elapsed * 1e6, "errors": {"lost": lost} if lost else {},
            "cpu_share": (time.process_time() - used) / elapsed}


# ---- WebSockets

def echoes(server, load_cpu, seconds, over, **_):
    """CPU per echo of 64 bytes on SOCKETS WebSockets, each on a connection of its own, with one message at a time."""
    message = b"\x81\xc0\0\0\0\0" + b"x" * 64  # the mask changes nothing
    sent = frame(DATA, 0, 1, message) if over == "h2" else message
    with on_core(load_cpu), contextlib.ExitStack() as opened, selectors.DefaultSelector() as selector:
        for _ in range(SOCKETS):
            sock = open_websocket(server, over, opened)
            sock.setblocking(False)
            selector.register(sock, selectors.EVENT_READ)
            sock.sendall(sent)

        def run():
            began, done, used = time.monotonic(), 0, time.process_time()
            while time.monotonic() < began + seconds:
                for key, _ in selector.select(1):
                    with contextlib.suppress(ssl.SSLWantReadError):
                        count = key.fileobj.recv(1 << 16).count(message[6:])
                        done += count
                        key.fileobj.sendall(sent * count)
            elapsed = time.monotonic() - began
            return {"requests": done, "duration_us": elapsed * 1e6, "errors": {}, "cpu_share": (time.process_time() - used) / elapsed}

        return cpu_while(server, run)


def open_websocket(server, over, opened):
    if over != "h2":
        sock = opened.enter_context(connect_tls(server, "http/1.1"))
        sock.sendall(b"GET /ws HTTP/1.1\r\nHost: bench\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
                     b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
        text = b""
        while b"\r\n\r\n" not in text:
            text += sock.recv(1000)
        return sock
    client = opened.enter_context(Client(server))
    block = b"\x02\x07CONNECT\x87\x41\x05bench\x04\x03/ws\x00\x09:protocol\x09websocket\x00\x15sec-websocket-version\x0213"
    client.sock.sendall(frame(HEADERS, END_HEADERS, 1, block))
    while not any(kind == HEADERS for kind, *_ in client.frames()):
        pass
    return client.sock


# ---- servers and sections

ANSWERS = {"/": b"hello, world\n"}
NGINX_H2 = """
        ssl_certificate @CERT@;
        ssl_certificate_key @KEY@;
        ssl_protocols TLSv1.3;
        open_file_cache max=1000 inactive=3600s;
        http2_max_requests 1000000000;
        location = / { return 200 "hello, world\\n"; }
        location = /100k { alias @FOLDER@/100k; }
"""
H2O = """listen:
  host: 127.0.0.1
  port: @PORT@
  ssl:
    certificate-file: @CERT@
    key-file: @KEY@
num-threads: 1
http2-idle-timeout: 3600
max-connections: 16384
@USER@
hosts:
  default:
    paths:
      /:
        file.dir: @HTDOCS@
"""


def catalogue(at):
    """{name: Server}; `at`: servers.Place."""
    content = at.content

    def filled(text, directory, port):
        for name, value in {"CERT": content.cert, "KEY": content.key, "FOLDER": content.folder, "PORT": port,
                            "HTDOCS": htdocs(directory), "USER": "user: root" if os.geteuid() == 0 else ""}.items():
            text = text.replace(f"@{name}@", str(value))
        return text

    def htdocs(directory):
        """What nghttpd and h2o send: the hello as a file."""
        folder = os.path.join(directory, "htdocs")
        os.makedirs(folder, exist_ok=True)
        for name, body in (("index.html", ANSWERS["/"]), ("100k", content.read("100k"))):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(body)
        return folder

    def of_nginx(directory, port):
        return nginx(filled(NGINX_H2, directory, port), tls=" ", listen="ssl http2")(directory, port)

    def of_h2o(directory, port):
        path = os.path.join(directory, "h2o.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(filled(H2O, directory, port))
        return ["h2o", "-c", path]

    def of_nghttpd(directory, port):
        return ["nghttpd", "-a", "127.0.0.1", "-d", htdocs(directory), str(port), content.key, content.cert]

    def ours(program, threads):
        def make(directory, port):
            return luaserve(program, threads, os.path.join(SITES, "http2.lua"), [content.cert, content.key])(directory, port)
        return make

    made = {"nginx h2": (of_nginx, at.cpu), "h2o h2": (of_h2o, at.cpu), "nghttpd h2": (of_nghttpd, at.cpu)}
    for name, program in at.programs("luaserve h2"):
        made[name] = ours(program, 1), at.cpu
    for threads, shown in ((None, "default threads"), (1, "--threads 1")):
        for name, program in at.programs(f"luaserve h2 {shown}"):
            made[name] = ours(program, threads), None
    servers = {name: Server(name, make, cpu, at.directory, "h2", content=content, answers=ANSWERS) for name, (make, cpu) in made.items()}
    return servers


def each(*names, **how):
    return {name: (name, how) for name in names}


PEERS = each("luaserve h2", "nginx h2", "h2o h2", "nghttpd h2")
SLOW = {"computes": "/busy", "blocks": "/block", "10 MiB": "/10m", "unread": "unread"}
BESIDE = {f"luaserve h2 {threads}, {shown}": (f"luaserve h2 {threads}", {"slow": slow})
          for threads in ("default threads", "--threads 1") for shown, slow in SLOW.items()}
EVENTS = {"luaserve h2": ("luaserve h2", {"over": "h2"}), "luaserve http/1.1": ("luaserve h2", {"over": "http/1.1"})}
SERVERS = ("h2o", "nghttpd")
FRESH = ("h2-idle",)  # each round has a newly started server

# section: ({shown name: (server, arguments of its measurement)}, measurement, arguments for all)
SECTIONS = {
    "h2-hello": (PEERS, request, {"target": "/", "connections": 16, "streams": 32}),
    "h2-single": (PEERS, request, {"target": "/", "connections": 64, "streams": 1}),
    "h2-100k": (PEERS, request, {"target": "/100k", "connections": 16, "streams": 8}),
    "h2-idle": (each("luaserve h2", "nginx h2", "h2o h2"), idle, {}),
    "h2-sends": (each("luaserve h2"), sends, {}),
    "h2-stall": (BESIDE, beside, {}),
    "h2-sse": (EVENTS, events, {}),
    "h2-websocket": (EVENTS, echoes, {}),
}
