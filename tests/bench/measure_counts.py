"""What a request costs in counts, which do not depend on the load of the machine: system calls (strace), and under callgrind the
instructions of the program and its libraries, and calls of malloc and its kind. One connection, which is kept.

The servers are those of other sections, luaserve with sites/counted.lua around its site."""
import copy
import os
import re
import subprocess
import time

import measure_client
import measure_sites
import servers as catalogue_of
from servers import BEFORE, SITES, Failed, get

WARM_UP, COUNTED = 100, 400  # requests
ALLOCATORS = ("malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc", "memalign")


class Client:
    """A connection that sends `depth` requests at once and reads their responses."""

    def __init__(self, server, target, fields, depth):
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        self.text = f"GET {target} HTTP/1.1\r\nHost: bench\r\n{lines}\r\n".encode() * depth
        self.server, self.sock, self.depth = server, server.connect(), depth
        self.sock.settimeout(120)

    def run(self, requests):
        for _ in range(requests // self.depth):
            self.sock.sendall(self.text)
            text, ended = b"", 0
            while ended < self.depth:
                chunk = self.sock.recv(65536)
                if not chunk:
                    raise Failed(f"{self.server.name}: the connection ended after {text[-300:]!r}")
                text += chunk
                while b"\r\n\r\n" in text:
                    head, _, rest = text.partition(b"\r\n\r\n")
                    length = int(re.search(rb"\r\nContent-Length: (\d+)", head, re.I)[1])
                    if not head.startswith(b"HTTP/1.1 200 "):
                        raise Failed(f"{self.server.name}: {head!r}")
                    if len(rest) < length:
                        break
                    text, ended = rest[length:], ended + 1


def system_calls(server, client):
    """{name: calls per request}, by strace of all threads of the server while the client runs."""
    path = os.path.join(server.directory, "calls")
    pids = [option for pid in server.pids() for option in ("-p", str(pid))]
    with subprocess.Popen(["strace", "-f", "-qq", "-o", path, *pids], stderr=subprocess.PIPE) as trace:
        try:
            until = time.monotonic() + 20
            while not os.path.exists(path) or any(not traced(pid) for pid in server.pids()):
                if trace.poll() is not None or time.monotonic() > until:
                    raise Failed(f"strace does not attach: {trace.stderr.read1()!r}")
                time.sleep(0.01)
            client.run(COUNTED)
        finally:
            trace.terminate()
            trace.wait()
    counts = {}
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            call = re.match(r"\d+ +(\w+)\(", line)
            if call:
                counts[call[1]] = counts.get(call[1], 0) + 1 / COUNTED
    return {name: count for name, count in counts.items() if count > 0.05 and name != "futex"}  # those of the watchdog's clock


def traced(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return "TracerPid:\t0\n" not in file.read()


def totals(path):
    """(instructions, calls of the allocators) of a dump of callgrind."""
    instructions, calls, names, callee = 0, 0, {}, None
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith(("fn=", "cfn=")):  # (number) name, which only its first line has
                number, _, name = line.partition("=")[2].strip().partition(" ")
                callee = names.setdefault(number, name)
            elif line.startswith("calls=") and callee in ALLOCATORS:
                calls += int(line[6:].split()[0])
            elif line.startswith("summary:"):
                instructions = int(line.split()[1])
    return instructions, calls


def control(option, pids):
    done = subprocess.run(["callgrind_control", option, *pids], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"callgrind_control: {done.stdout} {done.stderr}")


def under_callgrind(server, ask):
    """(instructions, allocations) per request of a server that is started for it. ask(): a Client."""
    make, base = server.make, os.path.join(server.directory, "callgrind")
    server.make = lambda directory, port: ["valgrind", "-q", "--tool=callgrind", "--trace-children=yes",
                                           f"--callgrind-out-file={base}.%p", *make(directory, port)]
    try:
        server.start()
        client = ask()
        client.run(WARM_UP)
        pids = [str(pid) for pid in server.pids()]
        control("--zero", pids)
        client.run(COUNTED)
        control("--dump", pids)
        sums = [totals(f"{base}.{pid}.1") for pid in pids]
    finally:
        server.make = make
        server.stop()
    return tuple(sum(one) / COUNTED for one in zip(*sums))


def count(server, target="/", depth=1, login=None, **_):
    """The counts of a started server, which ends."""
    fields = {"Cookie": get(server, login)[1]["Set-Cookie"].split(";")[0]} if login else {}
    client = Client(server, target, fields, depth)
    client.run(WARM_UP)
    calls = system_calls(server, client)
    server.stop()
    instructions, allocations = under_callgrind(server, lambda: Client(server, target, fields, depth))
    return {"calls": sum(calls.values()), "instructions": instructions, "allocations": allocations, "by_name": calls}


USER = {"login": "/session/login"}
JSON = {"target": "/api/items/42?lang=de&page=3"}
# name of a server: (the server of another section, arguments of count)
PLACES = {
    "luaserve hello": ("luaserve", {}), "nginx hello": ("nginx", {}),
    "luaserve pipelined": ("luaserve", {"depth": 16}), "nginx pipelined": ("nginx", {"depth": 16}),
    "luaserve json": ("luaserve", JSON), "nginx-lua json": ("nginx-lua", JSON),
    "luaserve proxied": ("luaserve client", {}), "nginx proxied": ("nginx proxy", {}),
    "luaserve proxied tls": ("luaserve client tls", {}), "nginx proxied tls": ("nginx proxy tls", {}),
    "luaserve proxied 100k": ("luaserve client", {"target": "/files/100k"}),
    "nginx proxied 100k": ("nginx proxy", {"target": "/files/100k"}),
    "luaserve fetch": ("luaserve client", {"target": "/fetch"}), "nginx-lua fetched": ("nginx-lua fetch", {"target": "/fetch"}),
    "luaserve no session": ("luaserve pages", {**USER, "target": "/user"}),
    "luaserve session": ("luaserve pages", {**USER, "target": "/session/user"}),
    "luaserve no limit": ("luaserve pages", {}), "luaserve limit": ("luaserve pages", {"target": "/limited"}),
    "nginx no limit": ("nginx pages", {}), "nginx limit": ("nginx pages", {"target": "/limited"}),
}


def counted(make):
    """luaserve with its site behind counted.lua."""
    def made(directory, port):
        argv = make(directory, port)
        at = next(n for n, one in enumerate(argv) if one.endswith(".lua"))
        return [*argv[:at], os.path.join(SITES, "counted.lua"), *argv[at:]]
    return made


def catalogue(at):
    """{name: Server}; `at`: servers.Place."""
    others = {**catalogue_of.catalogue(at), **measure_client.catalogue(at), **measure_sites.catalogue(at)}
    servers = {}
    for end in ("", BEFORE):
        for name, (place, _) in PLACES.items():
            if place + end not in others:
                continue
            server = servers[name + end] = copy.copy(others[place + end])
            server.name, server.directory, server.ready_s = name + end, f"{server.directory}-{name}".replace(" ", "-"), 120
            if name.startswith("luaserve"):
                server.make = counted(server.make)
            servers.update((f"{other.name}, counts", other) for other in server.behind)  # which end with the others
    return servers


# section: ({shown name: (server, arguments of its measurement)}, measurement, arguments for all)
SECTIONS = {"counts": ({name: (name, how) for name, (_, how) in PLACES.items()}, count, {})}
FRESH = tuple(SECTIONS)
