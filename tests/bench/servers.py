"""The compared servers: configuration, start, readiness check and stop.

A Server is one started program with its children. Its output goes into the run's temporary directory. All servers
listen on a free port of 127.0.0.1; `cpu` pins the whole process to one core, None leaves it to the scheduler.
"""
import functools
import http.client
import json
import os
import random
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

import machine
from memory_group import MemoryGroup

sys.path.append(os.path.join(machine.ROOT, "tests", "e2e"))
from harness.websocket import CLOSE, WebSocket  # CLOSE: of measure_websocket, which finds the harness by this file

HERE = os.path.dirname(os.path.abspath(__file__))
SITES = os.path.join(HERE, "sites")
EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(HERE)), "examples")
RELOAD_SITE = os.path.join(HERE, "reload.lua")
CONNECTIONS = 16384
BACKEND = "bare-echo backend"  # the server behind the proxies
MEMORY_GROUPED = ("luaserve echo.lua", "s6", "s7")
HAPROXY_CONNECTIONS_MAX = 9900  # it needs two descriptors for each


class Unavailable(Exception):
    """The server cannot run on this machine; the run continues without it."""


class Failed(Exception):
    """A step failed unexpectedly."""


ECHOED = b"is anybody there?\n"


def free_port():
    """A free port below the range of ephemeral ports."""
    while True:
        port = random.randint(12000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def get(server, target, fields=()):
    """One request on its own connection, with these header fields -> (status, fields, body bytes)."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    connection.sock = server.connect()
    try:
        connection.request("GET", target, headers=dict(fields))
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def head_bytes(server):
    """The size of the head of a keep-alive response, and its lines."""
    with server.connect() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n")
        text = b""
        while b"\r\n\r\n" not in text:
            chunk = sock.recv(65536)
            if not chunk:
                break
            text += chunk
        head = text.split(b"\r\n\r\n")[0] + b"\r\n\r\n"
        return len(head), head.decode("latin-1").split("\r\n")[:-2]


def echoes(port, kind):
    """Whether the server on `port` echoes. `kind` is socket.SOCK_STREAM or SOCK_DGRAM."""
    with socket.socket(socket.AF_INET, kind) as sock:
        sock.settimeout(1)
        sock.connect(("127.0.0.1", port))
        sock.send(ECHOED)
        text = sock.recv(4096)
        while text and len(text) < len(ECHOED) and kind == socket.SOCK_STREAM:
            text += sock.recv(4096)
        return text == ECHOED


def websocket(server, path, **how):
    """A WebSocket on a server; `how` as for harness.websocket.WebSocket. Over "... deflate" with permessage-deflate."""
    deflate = True if server.name.removesuffix(BEFORE).endswith(" deflate") else None
    ws = WebSocket(("127.0.0.1", server.port), path, deflate=deflate, **how)
    if deflate and ws.deflate is None:
        ws.conn.close()
        raise Failed(f"{server.name}: did not negotiate permessage-deflate")
    return ws


def echoes_messages(server):
    with websocket(server, "/echo", timeout=1) as ws:
        ws.send(ECHOED.decode())
        return ws.receive() == ECHOED.decode()


@functools.cache
def unverified_tls():
    """The settings of our TLS clients, which accept any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def fill(template, values):
    with open(os.path.join(HERE, template), encoding="utf-8") as file:
        text = file.read()
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def responds(server):
    return get(server, "/")[0] == 200


READY = {  # whether a server responds as expected
    "http": responds,
    "https": responds,
    "tcp": lambda server: echoes(server.port, socket.SOCK_STREAM),
    "udp": lambda server: echoes(server.port, socket.SOCK_DGRAM),
    "ws": lambda server: echoes_messages(server),
    "redis": lambda server: server.ready(),
    "postgres": lambda server: server.ready(),
    # It serves only one client, so no probe may connect: it prints a line when it listens.
    "tcp once": lambda server: "listening" in server.output(),
}


class Server:
    """One server program. `make(directory, port)` writes its configuration and returns its argument list. `kind` is
    a key of READY. `grouped`: its memory is charged to a separate control group, if possible. `content`: what it serves,
    if it serves files. `answers`: {target: the body, or a function(body, fields) that accepts it}; by default those of bench.lua.
    `behind`: the servers that it needs, which are started before it."""

    stop_signal = signal.SIGTERM
    ready_s = 15
    members = ()  # servers that it only distributes connections to: they are measured in its place

    def __init__(self, name, make, cpu, directory, kind="http", grouped=False, content=None, answers=None, behind=()):
        self.name, self.make, self.cpu, self.kind, self.grouped = name, make, cpu, kind, grouped
        self.content, self.answers, self.behind = content, answers, behind
        self.directory = os.path.join(directory, name.replace(" ", "-"))
        self.process = None
        self.group = None
        self.port = None

    def url(self, target="/", scheme=None):
        return f"{scheme or self.kind}://127.0.0.1:{self.port}{target}"

    def connect(self):
        """A connection to it, over TLS if it is an https server."""
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        return unverified_tls().wrap_socket(sock) if self.kind == "https" else sock

    def start(self):
        for other in self.behind:
            if not other.alive():
                other.start()
        os.makedirs(self.directory, exist_ok=True)
        if self.content:
            self.content.make()
        self.port = free_port()
        argv = self.make(self.directory, self.port)
        if self.cpu is not None:
            argv = ["taskset", "-c", str(self.cpu)] + argv
        if self.grouped:
            try:
                self.group = MemoryGroup()
            except OSError as reason:
                print(f"  {self.name}: {reason}", file=sys.stderr)
        with open(os.path.join(self.directory, "output"), "wb") as output:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                            start_new_session=True, cwd=self.directory,
                                            preexec_fn=self.group.enter if self.group else None)
        self.wait_ready()
        return self

    def wait_ready(self):
        until = time.monotonic() + self.ready_s
        while time.monotonic() < until:
            if self.process.poll() is not None:
                status = self.process.returncode
                self.stop()
                raise (Unavailable if status == 3 else Failed)(f"{self.name}: ended with {status}: {self.output()}")
            try:
                if READY[self.kind](self):
                    return
            except (OSError, http.client.HTTPException, AssertionError):  # AssertionError: of the harness
                pass
            time.sleep(0.02)
        self.stop()
        raise Failed(f"{self.name}: does not respond within {self.ready_s} s: {self.output()}")

    def output(self):
        """The end of its output, for messages."""
        text = ""
        for name in ("output", "error.log"):
            try:
                with open(os.path.join(self.directory, name), encoding="utf-8", errors="replace") as file:
                    text += file.read()
            except OSError:
                pass
        return text.strip()[-600:] or "(it wrote nothing)"

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def pids(self):
        """The program, or those of its members, and their descendants."""
        found, look = [], [server.process.pid for server in self.members or (self,)]
        while look:
            pid = look.pop()
            found.append(pid)
            try:
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                        look += [int(child) for child in file.read().split()]
            except OSError:
                pass
        return found

    def stop(self):
        """SIGTERM, then SIGKILL to the rest of its process group after 5 s."""
        if self.process is None:
            return
        group = self.process.pid
        if self.process.poll() is None:
            self.process.send_signal(self.stop_signal)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process = None
        if self.group is not None:
            self.group.close()
            self.group = None


def luaserve(program, threads=None, site=os.path.join(HERE, "bench.lua"), more=()):
    def make(_directory, port):
        options = ["--threads", str(threads)] if threads else []
        return [program] + options + [site, str(port)] + list(more)
    return make


def luaserve_proxy(program, backend):
    def make(_directory, port):
        return [program, "--threads", "1", os.path.join(EXAMPLES, "proxy.lua"), str(port), f"127.0.0.1:{backend.port}"]
    return make


class Content:
    """The folder of files that all servers send, and the certificate that all use; made when first asked for."""

    SIZES = {"1k": 1 << 10, "100k": 100 << 10, "1m": 1 << 20, "10m": 10 << 20}

    def __init__(self, directory):
        self.folder, self.cert, self.key = (os.path.join(directory, name) for name in ("files", "cert.pem", "key.pem"))

    def make(self):
        if os.path.exists(self.folder):
            return
        os.mkdir(self.folder)
        for name, size in self.SIZES.items():
            with open(os.path.join(self.folder, name), "wb") as file:
                file.write(os.urandom(size))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                        "-days", "30", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                        "-keyout", self.key, "-out", self.cert], check=True, capture_output=True)

    def read(self, name):
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()

    def check(self, server):
        """Raise Failed unless the server sends these files byte for byte and, over TLS, uses the agreed cipher."""
        for name in self.SIZES:
            status, fields, body = get(server, f"/files/{name}")
            if (status, fields["Content-Length"], body) != (200, str(self.SIZES[name]), self.read(name)):
                raise Failed(f"{server.name}: /files/{name} returned {status} and {len(body)} bytes")
        if server.kind == "https":
            with server.connect() as sock:
                if (sock.version(), sock.cipher()[0]) != TLS_AGREED:
                    raise Failed(f"{server.name}: uses {sock.version()} {sock.cipher()[0]}, not {' '.join(TLS_AGREED)}")


ACCEPTED = {"Accept-Encoding": "gzip"}
TLS_AGREED = ("TLSv1.3", "TLS_AES_256_GCM_SHA384")  # the first choice of OpenSSL's clients


def javascript(packages, script, needs, *args):
    """Bun, or node with the package `needs`, with a script of this folder; `packages`: the folder of npm's packages."""
    def make(_directory, port):
        program = machine.bun_of(packages) if needs == "bun" else shutil.which("node")
        modules = os.path.join(packages, "node_modules")
        if not program or not os.path.exists(os.path.join(modules, needs)):
            raise Unavailable(f"{script}: npm's package {needs} is not installed; without --no-install the benchmark installs it")
        return ["env", "NODE_PATH=" + modules, program, os.path.join(HERE, script), str(port), *args]
    return make


def bare(program, *args):
    def make(_directory, port):
        if not os.path.exists(program):
            raise Unavailable(f"{os.path.basename(program)} was not built")
        return [program, str(port)] + list(args)
    return make


NGINX_RETURN = """
        location = / { return 200 "hello, world\\n"; }
        location / { return 404; }
"""
NGINX_LUA = """
        location = / { content_by_lua_block { bench.hello() } }
        location = /fast { content_by_lua_block { bench.hello() } }
        location = /dict/incr { content_by_lua_block { bench.dict_incr() } }
        location = /dict/get { content_by_lua_block { bench.dict_get() } }
        location = /busy { content_by_lua_block { bench.busy() } }
        location = /block { content_by_lua_block { bench.block() } }
        location ~ ^/api/items/([^/]+)$ { default_type application/json; content_by_lua_block { bench.item() } }
        location / { return 404; }
"""
NGINX_FILES = """
        sendfile on;
        tcp_nopush on;
        open_file_cache max=1000 inactive=3600s;
        location = / { return 200 "hello, world\\n"; }
        location /files/ { alias @FOLDER@/; }
"""
NGINX_TLS = """
        ssl_certificate @CERT@;
        ssl_certificate_key @KEY@;
        ssl_protocols TLSv1.2 TLSv1.3;
"""
NGINX_MODULES = ("ndk_http_module.so", "ngx_http_lua_module.so")


def nginx(locations, workers=1, tls="", http="", ports=None, lua_path=lambda: "", listen="ssl"):
    """`listen`: what stands behind the address if there is `tls`; `http`: directives for all locations; `ports`: {a name between two @: the server whose port it is}; `lua_path()`: a folder with
    further Lua modules."""
    with_lua = "content_by_lua" in locations
    module = "nginx" if locations == NGINX_LUA else "peers"

    def make(directory, port):
        modules = [os.path.join("/usr/lib/nginx/modules", name) for name in NGINX_MODULES]
        if with_lua and not all(os.path.exists(path) for path in modules):
            raise Unavailable("nginx's Lua module is not installed")
        paths = "".join(f"{folder}/?.lua;" for folder in (HERE, SITES, lua_path()) if folder)
        text = fill("nginx.conf.in", {
            "MODULES": "".join(f"load_module {path};\n" for path in modules) if with_lua else "",
            "USER": "user root;" if os.geteuid() == 0 else "",
            "WORKERS": workers,
            "FILES": 2 * CONNECTIONS if os.geteuid() == 0 else CONNECTIONS,
            "CONNECTIONS": CONNECTIONS,
            "HTTP": http + (f'lua_package_path "{paths};"; lua_shared_dict shared 16m; '
                            f'init_by_lua_block {{ bench = require "{module}"; bench.open() }}' if with_lua else ""),
            "PORT": port,
            "LISTEN": listen if tls else "",
            "LOCATIONS": tls + locations,
            **{name: server.port for name, server in (ports or {}).items()},
        })
        path = os.path.join(directory, "nginx.conf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return ["nginx", "-p", directory, "-e", os.path.join(directory, "error.log"), "-c", path]
    return make


def nginx_files(content):
    return nginx(NGINX_FILES.replace("@FOLDER@", content.folder))


def nginx_tls(content):
    return nginx(NGINX_FILES.replace("@FOLDER@", content.folder),
                 tls=NGINX_TLS.replace("@CERT@", content.cert).replace("@KEY@", content.key))


def haproxy_connections():
    return min(HAPROXY_CONNECTIONS_MAX, (resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200) // 2)


def haproxy(directory, port):
    path = os.path.join(directory, "haproxy.cfg")
    with open(path, "w", encoding="utf-8") as file:
        file.write(fill("haproxy.cfg.in", {"LUA": os.path.join(HERE, "haproxy.lua"), "PORT": port,
                                           "CONNECTIONS": haproxy_connections()}))
    return ["haproxy", "-db", "-f", path]


def haproxy_tcp(backend, option=""):
    def make(directory, port):
        path = os.path.join(directory, "haproxy.cfg")
        with open(path, "w", encoding="utf-8") as file:
            file.write(fill("haproxy-tcp.cfg.in", {"PORT": port, "BACKEND": backend.port, "OPTION": option}))
        return ["haproxy", "-db", "-f", path]
    return make


BEFORE = " (before)"  # the end of the name of a server that runs the program to compare with


def luaserve_web(program, cpu, end=""):
    return {"luaserve" + end: (luaserve(program, 1), cpu)}


def luaserve_content(program, content, end=""):
    """{name: (make, kind)} of the site files.lua, plain and over TLS."""
    def make(*more):
        return luaserve(program, 1, os.path.join(HERE, "files.lua"), [content.folder, *more])
    return {"luaserve files" + end: (make(), "http"), "luaserve tls" + end: (make(content.cert, content.key), "https")}


def luaserve_echo(program, backend, end=""):
    return {
        "luaserve tcp.lua" + end: (luaserve(program, 1, os.path.join(HERE, "tcp.lua")), "tcp"),
        "luaserve udp.lua" + end: (luaserve(program, 1, os.path.join(HERE, "udp.lua")), "udp"),
        "luaserve proxy.lua" + end: (luaserve_proxy(program, backend), "tcp"),
        "luaserve echo.lua" + end: (luaserve(program, None, os.path.join(EXAMPLES, "echo.lua"), ["quiet"]), "tcp"),
    }


def luaserve_websocket(program, end=""):
    site = os.path.join(HERE, "websocket", "ws.lua")
    return {"luaserve ws" + end: luaserve(program, 1, site), "luaserve ws deflate" + end: luaserve(program, 1, site, ["deflate"])}


class Place:
    """Where servers run, and what they need: the folder of the run, the program under test and the one to compare with (or None), the
    folder of our C programs, that of npm's packages, and the cores."""

    def __init__(self, directory, program, before, build, packages, cpu, load_cpu):
        self.directory, self.program, self.before, self.build, self.packages = directory, program, before, build, packages
        self.cpu, self.load_cpu, self.content = cpu, load_cpu, Content(directory)

    def programs(self, name):
        """(`name`, the program), and if there is one (the name of the server to compare with, its program)."""
        yield name, self.program
        if self.before:
            yield name + BEFORE, self.before


def catalogue(at):
    """All servers by name, not started, but for those of measure_client, measure_sites and measure_data. Servers of the tests of
    stalls and reloads are not pinned. The back end of the proxies must be started before them; it runs on the core of the load."""
    directory, luaserve_program, before, build, cpu, load_cpu = at.directory, at.program, at.before, at.build, at.cpu, at.load_cpu
    bare_echo = bare(os.path.join(build, "bare_echo"))
    backend = Server(BACKEND, bare_echo, load_cpu, directory, "tcp")
    web = {
        **luaserve_web(luaserve_program, cpu),
        **(luaserve_web(before, cpu, BEFORE) if before else {}),
        "nginx": (nginx(NGINX_RETURN), cpu),
        "nginx-lua": (nginx(NGINX_LUA), cpu),
        "haproxy-lua": (haproxy, cpu),
        "bare-epoll": (bare(os.path.join(build, "bare_epoll")), cpu),
        "bare-epoll close": (bare(os.path.join(build, "bare_epoll"), "close"), cpu),
        "luaserve default threads": (luaserve(luaserve_program), None),
        "luaserve --threads 1": (luaserve(luaserve_program, 1), None),
        "nginx-lua 2 workers": (nginx(NGINX_LUA, 2), None),
        "luaserve reload": (luaserve(luaserve_program, 2, RELOAD_SITE), None),
    }
    content = at.content
    files = {
        **luaserve_content(luaserve_program, content),
        **(luaserve_content(before, content, BEFORE) if before else {}),
        "nginx files": (nginx_files(content), "http"),
        "nginx tls": (nginx_tls(content), "https"),
    }
    echo = {
        **luaserve_echo(luaserve_program, backend),
        **(luaserve_echo(before, backend, BEFORE) if before else {}),
        "bare-echo": (bare_echo, "tcp"),
        "bare-udp": (bare(os.path.join(build, "bare_udp")), "udp"),
        "haproxy-tcp": (haproxy_tcp(backend), "tcp"),
        "haproxy-tcp splice": (haproxy_tcp(backend, "option splice-auto"), "tcp"),
        "s6": (bare(os.path.join(build, "s6")), "tcp once"),
        "s7": (bare(os.path.join(build, "s7")), "tcp"),
    }
    websocket = {
        **luaserve_websocket(luaserve_program),
        **(luaserve_websocket(before, BEFORE) if before else {}),
        "bun": javascript(at.packages, "websocket/bun.js", "bun"),
        "bun deflate": javascript(at.packages, "websocket/bun.js", "bun", "deflate"),
        "node": javascript(at.packages, "websocket/node.js", "ws"),
        "node deflate": javascript(at.packages, "websocket/node.js", "ws", "deflate"),
    }
    servers = {name: Server(name, make, where, directory) for name, (make, where) in web.items()}
    servers.update((name, Server(name, make, cpu, directory, kind, content=content)) for name, (make, kind) in files.items())
    servers.update((name, Server(name, make, cpu, directory, kind, name in MEMORY_GROUPED)) for name, (make, kind) in echo.items())
    servers.update((name, Server(name, make, cpu, directory, "ws")) for name, make in websocket.items())
    servers[BACKEND] = backend
    return servers


def item_42(body, fields):
    return (json.loads(body) == {"id": "a 42", "lang": "de", "page": 3} and "Content-Length" in fields
            and fields.get("Content-Type", "").startswith("application/json"))


HELLO = {"/": b"hello, world\n"}
LUA_ANSWERS = {**HELLO, "/api/items/a%2042?lang=d%65&page=3": item_42, "/dict/get": b"Ada Lovelace, London, 310"}


def check_same_answers(servers):
    """Compared servers must return the same bytes. `servers` are started. Raises Failed.

    An echo server was checked when it became ready, and its bytes are compared during the measurement."""
    for server in servers:
        if server.kind not in ("http", "https"):
            continue
        answers = server.answers
        if answers is None:
            lua = server.name.startswith(("luaserve", "nginx-lua")) and not (server.content or server.name.endswith(" reload"))
            answers = LUA_ANSWERS if lua else HELLO
        for target, expected in answers.items():
            status, fields, body = get(server, target, ACCEPTED)
            if status != 200 or not (expected(body, fields) if callable(expected) else body == expected):
                if not (target == "/dict/get" and server.name.endswith(BEFORE)):  # the program of before may be older
                    raise Failed(f"{server.name}: {target} returned {status} {fields.items()} {body[:2000]!r}")
        if isinstance(server.content, Content):
            server.content.check(server)
