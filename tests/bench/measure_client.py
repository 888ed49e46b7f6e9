"""The measurements of the client: app:proxy beside nginx and HAProxy, its cache, ls.fetch in a handler, an upstream that hangs.

The upstream, nginx, and the WebSocket echo behind the proxies run on the core of the load. The site is sites/client.lua.
"""
import contextlib
import os
import secrets
import socket

import measure_websocket
from measure import cpu_per_request, bytes_copied_by, connect_to_reset, memory, stall
from servers import HELLO, HERE, NGINX_FILES, NGINX_TLS, SITES, Server, fill, javascript, luaserve, nginx

WAITING = 1000  # requests to the server that does not answer


def request(server, load_cpu, seconds, target="/", connections=64, **_):
    return cpu_per_request(server, load_cpu, seconds, target, connections)


def echo(server, load_cpu, seconds, program, **_):
    return measure_websocket.echo(server, "/echo", program, load_cpu, seconds, 64)


def copies(server, **_):
    """The bytes that the core copies for a response of 100 KiB and one of 1 MiB."""
    return bytes_copied_by(server, {size: ("GET", f"/files/{size}", None) for size in ("100k", "1m")})


def hang(server, build, seconds, **_):
    """The latency of other requests, and the growth of memory, while WAITING requests wait for a server that does not answer."""
    quiet, open_loop = server.hanging, os.path.join(build, "open_loop")
    stall(server, open_loop, "/", 1)
    before = memory(server.pids())
    with contextlib.ExitStack() as stack:
        for _ in range(WAITING):
            target = f"/hang/{secrets.token_hex(8)}"
            stack.enter_context(connect_to_reset(server)).sendall(f"GET {target} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
            while True:  # those of an earlier round, whose clients have gone, end meanwhile
                upstream = stack.enter_context(quiet.accept()[0])
                upstream.settimeout(20)
                if upstream.recv(4096).startswith(f"GET {target} ".encode()):
                    break
        result = stall(server, open_loop, "/", max(seconds, 3))
        after = memory(server.pids())
    return {**result, "resident": after[0] - before[0], "user": after[1] - before[1]}


NGINX_UPSTREAM = NGINX_FILES + """
        location = /fast { return 200 "hello, world\\n"; }
        location = /cached { alias @FOLDER@/1k; add_header Cache-Control max-age=3600; }
"""
NGINX_PROXY_HTTP = """
    upstream files { server 127.0.0.1:@UPSTREAM@; keepalive 256; keepalive_requests 1000000000; keepalive_timeout 3600s; }
    upstream echo { server 127.0.0.1:@ECHO@; }
    proxy_cache_path cache keys_zone=cached:16m;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header X-Forwarded-Host $http_host;
    proxy_buffers 8 64k;
    proxy_busy_buffers_size 128k;
    proxy_max_temp_file_size 0;
    proxy_read_timeout 600s;
"""
NGINX_PROXY = """
        location / { proxy_pass http://files; }
        location = /cached { proxy_cache cached; proxy_pass http://files; }
        location = /echo {
            proxy_pass http://echo;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade;
        }
"""
NGINX_FETCH = """
        location = / { return 200 "hello, world\\n"; }
        location = /fetch { content_by_lua_block { bench.fetch() } }
        location /up/ { internal; proxy_pass http://files/; }
"""


def haproxy(upstream):
    def make(directory, port):
        path = os.path.join(directory, "haproxy.cfg")
        with open(path, "w", encoding="utf-8") as file:
            file.write(fill("haproxy-http.cfg.in", {"PORT": port, "BACKEND": upstream.port}))
        return ["haproxy", "-db", "-f", path]
    return make


def catalogue(at):
    """{name: Server}; `at`: servers.Place."""
    files = at.content
    behind = Server("upstream nginx", nginx(NGINX_UPSTREAM.replace("@FOLDER@", files.folder)), at.load_cpu, at.directory,
                    content=files, answers={})
    echo_server = Server("upstream echo", luaserve(at.program, 1, os.path.join(HERE, "websocket", "ws.lua")), at.load_cpu, at.directory,
                         "ws")
    quiet = socket.create_server(("127.0.0.1", 0), backlog=4096)
    quiet.settimeout(20)
    ports = {"UPSTREAM": behind, "ECHO": echo_server}
    servers = {one.name: one for one in (behind, echo_server)}

    def add(name, make, kind="http", answers=None, content=None):
        servers[name] = Server(name, make, at.cpu, at.directory, kind, content=content, behind=(behind, echo_server),
                               answers={**HELLO, **(answers or {})})

    def site(program, *more):
        def make(directory, port):
            return luaserve(program, 1, os.path.join(SITES, "client.lua"),
                            [str(behind.port), str(echo_server.port), str(quiet.getsockname()[1]), *more])(directory, port)
        return make

    fetched = {"/fetch": HELLO["/"]}
    cached = {"/cached": lambda body, _: body == files.read("1k")}
    for end, program in at.programs(""):
        add("luaserve client" + end, site(program), answers=fetched, content=files)
        add("luaserve client tls" + end, site(program, files.cert, files.key), "https", content=files)
        add("luaserve client ws" + end, site(program), "ws")
        add("luaserve client cache" + end, site(program, "cache"), answers=cached)
        servers["luaserve client" + end].hanging = quiet
    add("nginx proxy", nginx(NGINX_PROXY, http=NGINX_PROXY_HTTP, ports=ports), answers=cached, content=files)
    add("nginx proxy tls", nginx(NGINX_PROXY, http=NGINX_PROXY_HTTP, ports=ports,
                                 tls=NGINX_TLS.replace("@CERT@", files.cert).replace("@KEY@", files.key)), "https", content=files)
    add("nginx proxy ws", nginx(NGINX_PROXY, http=NGINX_PROXY_HTTP, ports=ports), "ws")
    add("haproxy proxy ws", haproxy(echo_server), "ws")
    add("nginx-lua fetch", nginx(NGINX_FETCH, http=NGINX_PROXY_HTTP, ports=ports), answers=fetched)
    add("bun fetch", lambda directory, port: javascript(
        at.packages, "sites/bun.js", "bun", "fetch", behind.url())(directory, port), answers=fetched)
    return servers


def names(luaserve_name, *others, **how):
    return {name: (name, how) for name in (luaserve_name, *others)}


PROXY = ("luaserve client", "nginx proxy")
FRESH = ("client-hang",)  # each round has a newly started server
# section: ({shown name: (server, arguments of its measurement)}, measurement, arguments for all)
SECTIONS = {
    "client-13": (names(*PROXY), request, {}),
    "client-tls": (names("luaserve client tls", "nginx proxy tls"), request, {}),
    "client-100k": (names(*PROXY), request, {"target": "/files/100k"}),
    "client-1m": (names(*PROXY), request, {"target": "/files/1m", "connections": 16}),
    "client-copies": (names("luaserve client"), copies, {}),
    "client-ws": (names("luaserve client ws", "nginx proxy ws", "haproxy proxy ws"), echo, {}),
    "client-cache": (names("luaserve client cache", "nginx proxy"), request, {"target": "/cached"}),
    "client-fetch": (names("luaserve client", "nginx-lua fetch", "bun fetch"), request, {"target": "/fetch"}),
    "client-hang": (names("luaserve client"), hang, {}),
}
