"""The measurements of whole sites: a template page, compression, a session, a rate limit, an upload to a file.

The site is sites/pages.lua; sites/peers.lua has the same work for the Lua module of nginx, and sites/values.lua the data of both.
"""
import gzip
import html
import json
import os
import socket
import threading
import time

import machine
from measure import cpu_per_request, cpu_while, memory
from servers import ACCEPTED, HELLO, SITES, Failed, Server, Unavailable, get, luaserve, nginx

MIB = 1 << 20
BLOCK = bytes(range(256)) * 4096  # 1 MiB of the uploaded file
BOUNDARY = "----bench"


def wrk_fields(fields):
    return tuple(f"{name}: {value}" for name, value in fields.items())


def request(server, load_cpu, seconds, target, fields=(), **_):
    return cpu_per_request(server, load_cpu, seconds, target, headers=wrk_fields(dict(fields)))


def added(server, load_cpu, seconds, target, without, login=None, **_):
    """The CPU time of `target` beyond that of `without`, which are measured one after the other. `login`: a target that sets a
    cookie, which the requests of both send."""
    fields = {"Cookie": get(server, login)[1]["Set-Cookie"].split(";")[0]} if login else {}
    for one in (target, without):  # both warm
        get(server, one, fields)
    base = cpu_per_request(server, load_cpu, seconds, without, headers=wrk_fields(fields))
    result = cpu_per_request(server, load_cpu, seconds, target, headers=wrk_fields(fields))
    result["failures"] += base["failures"]
    return {**result, "base_us": base["us"], "added_us": result["us"] - base["us"]}


def upload(server, load_cpu, size, target="/upload", form=True, **_):
    """CPU time per MiB of an upload of `size` MiB, and the growth of memory: its peak from a warm server on."""
    send(server, 1, target, form)
    pids = server.pids()
    before = memory(pids)
    peak, done = [before], threading.Event()

    def watch():
        while not done.wait(0.02):
            peak[0] = max(peak[0], memory(pids))

    watcher = threading.Thread(target=watch)

    def load():
        began = time.monotonic()
        used = time.thread_time()
        send(server, size, target, form)
        elapsed = time.monotonic() - began
        return {"requests": size, "duration_us": elapsed * 1e6, "errors": {}, "cpu_share": (time.thread_time() - used) / elapsed}

    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {load_cpu})
    watcher.start()
    try:
        result = cpu_while(server, load)
    finally:
        done.set()
        watcher.join()
        os.sched_setaffinity(0, cores)
    return {**result, "growth": peak[0][0] - before[0]}


def send(server, size, target, form):
    """One upload of `size` MiB, as a form with one file or as the plain body."""
    head = (f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n").encode() if form else b""
    tail = f"\r\n--{BOUNDARY}--\r\n".encode() if form else b""
    kind = f"multipart/form-data; boundary={BOUNDARY}" if form else "application/octet-stream"
    length = len(head) + size * MIB + len(tail)
    with server.connect() as sock:
        sock.settimeout(120)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(f"POST {target} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Type: {kind}\r\n"
                     f"Content-Length: {length}\r\n\r\n".encode() + head)
        for _ in range(size):
            sock.sendall(BLOCK)
        sock.sendall(tail)
        answer = b""
        while chunk := sock.recv(65536):
            answer += chunk
    expected = str(size * MIB).encode() if form else b"saved"
    if not answer.startswith(b"HTTP/1.1 200 ") or not answer.endswith(b"\r\n\r\n" + expected):
        raise Failed(f"{server.name}: the upload returned {answer[-300:]!r}")


GZIP_LEVEL = 5  # as in sites/pages.lua
NGINX_PAGES = f"""
        root @FOLDER@;
        open_file_cache max=1000 inactive=3600s;
        location = / {{ try_files /hello =404; }}
        location = /limited {{
            limit_req zone=addresses burst=1000000 nodelay;
            try_files /hello =404;
        }}
        location = /gzip/text {{
            default_type application/json;
            gzip on;
            gzip_comp_level {GZIP_LEVEL};
            gzip_types application/json;
            return 200 '@JSON@';
        }}
"""
NGINX_LUA_PAGES = f"""
        client_body_in_file_only clean;
        client_max_body_size 0;
        client_body_buffer_size 64k;
        set $template_root {SITES}/views;
        location = /page {{ default_type text/html; content_by_lua_block {{ bench.page() }} }}
        location = /upload {{ content_by_lua_block {{ bench.upload() }} }}
"""
NGINX_LIMITS = "limit_req_zone $binary_remote_addr zone=addresses:16m rate=1000000r/s;"


def template_module(build):
    """The folder with lua-resty-template, of machine.install_template."""
    folder = machine.template_of(build)
    if not os.path.exists(os.path.join(folder, "resty", "template.lua")):
        raise Unavailable(f"lua-resty-template is not in {folder}")
    return folder


def page():
    """views/page.html with the values of sites/values.lua."""
    values = [str(n * 7) if n % 4 == 0 else f"value {n}" + (" <b> & more" if n % 5 == 0 else " of this page") for n in range(1, 21)]
    terms = "".join(f"<dt>{n}</dt><dd>{html.escape(values[n - 1])}</dd>\n" for n in range(2, 21))
    rows = "".join(f"<tr><td>{n}</td><td>item {n}{' &amp; &lt;others&gt;' if n % 10 == 0 else ''}</td><td>{n * 3}</td>"
                   f"<td>{n % 7}</td></tr>\n" for n in range(1, 51))
    return f"<!doctype html>\n<title>{values[0]}</title>\n<dl>\n{terms}</dl>\n<table>\n{rows}</table>\n".encode()


def json_text():
    """4 KiB of JSON, which all servers send."""
    words = ("river", "mountain", "forest", "island", "harbour", "meadow", "valley", "desert", "glacier", "canyon", "lagoon")
    items = [{"id": n * 7919 % 10007, "name": f"{words[n * 7 % 11]} {words[n * 5 % 11]}", "price": n * 104729 % 9973 / 4,
              "tags": [words[n * 3 % 11], words[n % 11]], "stock": n * 31 % 97} for n in range(1, 47)]
    return json.dumps(items, separators=(",", ":"))


class Pages:
    """The folder of pages.lua and of nginx, with the files `hello` and `json`; made by the first server that starts."""

    def __init__(self, directory):
        self.folder = os.path.join(directory, "pages")

    def make(self):
        os.makedirs(os.path.join(self.folder, "uploads"), exist_ok=True)
        for name, text in (("hello", "hello, world\n"), ("json", json_text())):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write(text)


def gzipped(body, fields):
    return fields["Content-Encoding"] == "gzip" and json.loads(gzip.decompress(body)) == json.loads(json_text())


PLAIN_ANSWERS = {**HELLO, "/limited": b"hello, world\n"}


def catalogue(at):
    """{name: Server}; `at`: servers.Place."""
    pages = Pages(at.directory)
    answers = {**PLAIN_ANSWERS, "/page": page(), "/user": b"Ada Lovelace",
               **{target: gzipped for target in ("/gzip/text", "/gzip/table", "/kept/text")}}

    def site(program):
        return luaserve(program, 1, os.path.join(SITES, "pages.lua"), [pages.folder])

    servers = {name: Server(name, site(program), at.cpu, at.directory, content=pages, answers=answers)
               for name, program in at.programs("luaserve pages")}

    def server(name, locations, answers, more=""):
        make = nginx(locations.replace("@FOLDER@", pages.folder).replace("@JSON@", json_text()), http=NGINX_LIMITS,
                     lua_path=lambda: more and template_module(at.build))
        servers[name] = Server(name, make, at.cpu, at.directory, content=pages, answers=answers)

    server("nginx pages", NGINX_PAGES, {**PLAIN_ANSWERS, "/gzip/text": gzipped})
    server("nginx-lua pages", NGINX_PAGES + NGINX_LUA_PAGES, HELLO)
    server("nginx-lua template", NGINX_PAGES + NGINX_LUA_PAGES, {**HELLO, "/page": page()}, "template")
    return servers


def both(target, *others):
    return {name: (name, {"target": target}) for name in ("luaserve pages", *others)}


UPLOAD = {"luaserve pages": ("luaserve pages", {}), "nginx-lua pages": ("nginx-lua pages", {"form": False})}
# section: ({shown name: (server, arguments of its measurement)}, measurement, arguments for all)
SECTIONS = {
    "sites-page": (both("/page", "nginx-lua template"), request, {}),
    "sites-gzip": ({**both("/gzip/text", "nginx pages"),
                    "luaserve pages, a table": ("luaserve pages", {"target": "/gzip/table"}),
                    "luaserve pages, kept": ("luaserve pages", {"target": "/kept/text"})}, request, {"fields": ACCEPTED}),
    "sites-session": ({"luaserve pages": ("luaserve pages", {})}, added,
                      {"target": "/session/user", "without": "/user", "login": "/session/login"}),
    "sites-limit": (both("/limited", "nginx pages"), added, {"without": "/"}),
    "sites-upload": (UPLOAD, upload, {}),
}
