"""scripts/bench: measure luaserve beside its peers, in one run, interleaved. See --help."""
import argparse
import collections
import functools
import json
import os
import shutil
import signal
import sys
import tempfile
import time

import machine
import measure_attacks
import measure
import measure_access_log
import measure_client
import measure_counts
import measure_data
import measure_http2
import measure_middleware
import measure_reload
import measure_sites
import measure_sockets
import measure_start
import measure_stress
import measure_tls
import measure_websocket
import measure_windows
import report
import servers as catalogue_of
from memory_group import MemoryGroup
from servers import Failed, Unavailable

WEB_SERVERS = ("luaserve", "nginx", "nginx-lua", "haproxy-lua", "bare-epoll")
JSON_TARGET = "/api/items/42?lang=de&page=3"

# section: (servers, arguments of wrk)
PLAIN_SECTIONS = {
    "hello-1": (WEB_SERVERS, {"connections": 1}),
    "hello-64": (WEB_SERVERS, {"connections": 64}),
    "hello-512": (WEB_SERVERS, {"connections": 512}),
    "json": (("luaserve", "nginx-lua"), {"connections": 64, "target": JSON_TARGET}),
    "dict-incr": (("luaserve", "nginx-lua"), {"connections": 64, "target": "/dict/incr"}),
    "dict-get": (("luaserve", "nginx-lua"), {"connections": 64, "target": "/dict/get"}),
    "pipelined": (WEB_SERVERS, {"connections": 64, "depth": 16}),
    "close": (WEB_SERVERS, {"connections": 64, "headers": ("Connection: close",)}),
}
TLS_SERVERS = ("luaserve tls", "nginx tls")
FILE_SERVERS = ("luaserve files", "nginx files")
TLS_CPU_SECTIONS = {"tls-hello": (TLS_SERVERS, {"connections": 64}),
                    "tls-100k": (TLS_SERVERS, {"connections": 64, "target": "/files/100k"})}
STATIC_SECTIONS = {"static-1k": (FILE_SERVERS, {"connections": 64, "target": "/files/1k"}),
                   "static-100k": (FILE_SERVERS, {"connections": 64, "target": "/files/100k"}),
                   "static-10m": (FILE_SERVERS, {"connections": 16, "target": "/files/10m"})}
CPU_SECTIONS = {**PLAIN_SECTIONS, **TLS_CPU_SECTIONS, **STATIC_SECTIONS}
HANDSHAKE_SECTIONS = {  # section: (servers, measurement, its arguments)
    "tls-full": (TLS_SERVERS, measure_tls.handshakes, {"kind": "full"}),
    "tls-resumed": (TLS_SERVERS, measure_tls.handshakes, {"kind": "resumed"}),
}
TLS_SECTIONS = tuple(TLS_CPU_SECTIONS) + tuple(HANDSHAKE_SECTIONS) + ("tls-idle", "tls-stress")
IDLE_SERVERS = ("luaserve", "nginx", "nginx-lua", "haproxy-lua")
RELOAD_SERVERS = ("luaserve reload",)
STALL_SERVERS = {
    section: ("luaserve default threads", "luaserve --threads 1", "nginx-lua 2 workers") for section in ("stall-busy", "stall-block")
}
HTTP_SECTIONS = tuple(PLAIN_SECTIONS) + ("idle", "growth", "copies", "stall-busy", "stall-block", "reload", "start", "start-dev")
WEB_SECTIONS = HTTP_SECTIONS + TLS_SECTIONS + tuple(STATIC_SECTIONS)

SOCKET_SERVERS = ("bare-echo", "bare-udp", "haproxy-tcp", "s6", "s7")
# section: (servers, measurement, its arguments)
ECHO_SECTIONS = {
    "tcp-echo": (("luaserve tcp.lua", "bare-echo"), measure_sockets.tcp_echo, {"connections": 64, "size": 64}),
    "tcp-echo-64k": (("luaserve tcp.lua", "bare-echo"), measure_sockets.tcp_echo, {"connections": 64, "size": 65536}),
    "udp-echo": (("luaserve udp.lua", "bare-udp"), measure_sockets.udp_echo, {"sockets": 16, "window": 8, "size": 64}),
    "tcp-proxy": (("luaserve proxy.lua", "haproxy-tcp", "haproxy-tcp splice"), measure_sockets.tcp_proxy,
                  {"connections": 4, "size": 1 << 20}),
}
S8_SECTIONS = {  # section: (servers, clients)
    "s8-1": (("luaserve echo.lua", "s6", "s7"), 1),
    "s8-100": (("luaserve echo.lua", "s7"), 100),
    "s8-1000": (("luaserve echo.lua", "s7"), 1000),
    "s8-10000": (("luaserve echo.lua", "s7"), 10000),
}
SOCKET_SECTIONS = tuple(ECHO_SECTIONS) + ("idle-tcp", "tcp-churn") + tuple(S8_SECTIONS)
STRESS_SECTIONS = ("stress-plain", "stress-script", "stress-freeze", "stress-rate", "stress-memory", "stress-s9")
WEBSOCKET_SERVERS = ("bun", "node")
WEBSOCKET_SECTIONS = measure_websocket.SECTIONS
WORK = {"middleware": measure_middleware, "client": measure_client, "sites": measure_sites, "data": measure_data, "http2": measure_http2,
        "access-log": measure_access_log, "attacks": measure_attacks, "counts": measure_counts}  # group of sections: module
WORK_SECTIONS = {section: how for module in WORK.values() for section, how in module.SECTIONS.items()}
SECTIONS = WEB_SECTIONS + SOCKET_SECTIONS + STRESS_SECTIONS + WEBSOCKET_SECTIONS + tuple(WORK_SECTIONS)
SERVERS = WEB_SERVERS + SOCKET_SERVERS + WEBSOCKET_SERVERS + ("haproxy", *measure_http2.SERVERS)
GROUPS = {"stall": tuple(STALL_SERVERS), "s8": tuple(S8_SECTIONS), "stress": STRESS_SECTIONS, "tls": TLS_SECTIONS,
          "static": tuple(STATIC_SECTIONS), "websocket": WEBSOCKET_SECTIONS, "dict": ("dict-incr", "dict-get"),
          **{group: tuple(module.SECTIONS) for group, module in WORK.items()}}
S9_THREADS = 48
FREEZE_RATE = 20000

ABOUT = """Measure luaserve beside nginx, HAProxy, Bun, node and bare servers in C, in one run, and compare the results
with the targets."""
EPILOG = f"""sections over HTTP: {' '.join(WEB_SECTIONS)}
                    (`stall`, `dict`, `tls` and `static` mean all of that name)
  over plain sockets: {' '.join(SOCKET_SECTIONS)}
                    (`s8` means all four)
  of luaserve stress: {' '.join(STRESS_SECTIONS)}
  of WebSocket:       {' '.join(WEBSOCKET_SECTIONS)}
  of proxies and ls.fetch (`client`): {' '.join(measure_client.SECTIONS)}
  of middleware (`middleware`): {' '.join(measure_middleware.SECTIONS)}
  of the access log (`access-log`): access-log
  of whole sites (`sites`): {' '.join(measure_sites.SECTIONS)}
  of databases (`data`): {' '.join(measure_data.SECTIONS)}
  of HTTP/2 (`http2`): {' '.join(measure_http2.SECTIONS)}
  of what a request costs in counts: counts
  of its clients that only cost (`attacks`): {' '.join(measure_attacks.SECTIONS)}
servers: {' '.join(WEB_SERVERS)}
         {' '.join(SOCKET_SERVERS)} {' '.join(WEBSOCKET_SERVERS)} haproxy {' '.join(measure_http2.SERVERS)}

CPU sections have the server on one core and the load on another; a round measures each server in turn, ratios are
computed within each round, and medians over the rounds are printed with minimum and maximum. CPU time is that of the
server's processes, user and system, from the process clock. idle and growth read smaps_rollup; copies reads
the server's own counter (ls.stats); reload sends SIGHUP again and again beside 64 busy connections and 100 long
requests, with nothing pinned but the load; the stall sections measure latency from the scheduled time of a request,
with nothing pinned. Each section is printed when it is measured; after Ctrl-C or SIGTERM the verdicts cover
the sections measured by then. Over sockets every received byte is compared; the s8 sections have the echo
server on completions beside the one-to-one server (s6) and the one with a thread per client (s7), each newly
started, its memory charged to a control group (needs root; otherwise only resident memory is reported).
In the tls sections both servers have the same P-256 certificate; in tls-full and tls-resumed each request has a
connection and a handshake of its own. static-* send files of a temporary folder, nginx with sendfile.
In the stress sections the server is nginx (for s9 luaserve with examples/echo.lua), and the load generator is
measured, luaserve stress beside wrk; tls-stress is the same over TLS.
In the ws sections luaserve stress is the load. Bun, the packages ws and pg of node and lua-resty-template are installed into the
build directory, by npm and git; a server that cannot be installed is left out. In the client sections the upstream (nginx) is on the
core of the load, in the data sections Redis and PostgreSQL, which the benchmark starts with data of their own. In the h2 sections
all servers speak HTTP/2 over TLS 1.3; h2-stall measures fast streams beside slow ones of the same connection, h2-attacks what a hostile client
costs in 10 s: the server's processor, the latency of another client on schedule, memory.
--windows measures hello from Lua in luaserve.exe under Wine, including all of Wine's own processes, on completion
ports and on Wine's http.sys.
Exit status: 0 if everything could be measured, whatever the verdicts; 1 if something failed to run."""


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=ABOUT, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--sections", help="comma-separated list (default: all over HTTP)")
    which.add_argument("--sockets", action="store_true", help="all sections over plain sockets")
    which.add_argument("--stress", action="store_true", help="all sections of luaserve stress, the load generator")
    which.add_argument("--websocket", action="store_true", help="all sections of WebSocket, beside Bun and node")
    which.add_argument("--windows", action="store_true", help="luaserve.exe under Wine: completion ports beside http.sys")
    parser.add_argument("--servers", help="comma-separated list; may include luaserve (default: all)")
    parser.add_argument("--rounds", type=int, help="rounds of each measure (5)")
    parser.add_argument("--seconds", type=int, help="length of one CPU measure (3)")
    parser.add_argument("--stall-seconds", type=int, help="length of one stall measure (5)")
    parser.add_argument("--idle-connections", type=int, help="idle connections (10000, or the descriptor limit)")
    parser.add_argument("--churn-rounds", type=int, help="rounds of opening and closing connections (20)")
    parser.add_argument("--growth-requests", type=int, help="requests for the growth measure (1000000)")
    parser.add_argument("--reloads", type=int, help="reloads under load (1000)")
    parser.add_argument("--upload-size", type=int, metavar="MIB", help="MiB of an upload (1024)")
    parser.add_argument("--sends", type=int, help="messages of each of the 48 threads of S9 (60000)")
    parser.add_argument("--quick", action="store_true", help="2 short rounds, for a rough result")
    parser.add_argument("--server-core", type=int, help="core for the server (the first)")
    parser.add_argument("--load-core", type=int, help="core for the load (the second)")
    parser.add_argument("--luaserve", metavar="PROGRAM", help="measure this program instead of building one")
    parser.add_argument("--before", metavar="PROGRAM", help="compare the CPU time with that of this program, in turn")
    parser.add_argument("--build", metavar="DIR", default=os.path.join(machine.ROOT, "build", "bench"),
                        help="build directory of our C programs (build/bench)")
    parser.add_argument("--json", metavar="FILE", help="also write all results to this file")
    parser.add_argument("--no-install", action="store_true", help="install no packages")
    args = parser.parse_args()

    usual = {"rounds": (5, 2), "seconds": (3, 1), "stall_seconds": (5, 3), "idle_connections": (10000, 1000),
             "churn_rounds": (20, 3), "growth_requests": (1000000, 100000), "reloads": (1000, 50),
             "upload_size": (1024, 128), "sends": (60000, 1000)}
    for name, (full, quick) in usual.items():
        if getattr(args, name) is None:
            setattr(args, name, quick if args.quick else full)
        elif getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    chosen = []
    every = next((sections for wanted, sections in ((args.sockets, SOCKET_SECTIONS), (args.stress, STRESS_SECTIONS),
                                                    (args.websocket, WEBSOCKET_SECTIONS)) if wanted), WEB_SECTIONS)
    for name in args.sections.split(",") if args.sections else every:
        chosen += GROUPS.get(name, (name,))
    for name in chosen:
        if name not in SECTIONS:
            parser.error(f"unknown section '{name}'; available: {' '.join(SECTIONS)}, {', '.join(GROUPS)}")
    args.sections = [name for name in SECTIONS if name in chosen]
    args.servers = args.servers.split(",") if args.servers else list(SERVERS)
    for name in args.servers:
        if name not in SERVERS:
            parser.error(f"unknown server '{name}'; available: {' '.join(SERVERS)}")
    cores = sorted(os.sched_getaffinity(0))
    args.server_core = cores[0] if args.server_core is None else args.server_core
    args.load_core = cores[min(1, len(cores) - 1)] if args.load_core is None else args.load_core
    if not {args.server_core, args.load_core} <= set(cores):
        parser.error(f"this process may use the cores {cores}")
    return args


class Bench:
    """One run: its servers, its results ({section: {server: [a dict or None per round]}}) and its problems."""

    def __init__(self, args, luaserve, directory, packages):
        self.args = args
        self.before = os.path.abspath(args.before) if args.before else None
        self.directory = directory
        place = catalogue_of.Place(directory, luaserve or "luaserve", self.before, args.build, packages, args.server_core,
                                   args.load_core)
        self.all = catalogue_of.catalogue(place)
        for module in WORK.values():
            self.all.update(module.catalogue(place))
        self.open_load = functools.partial(measure_sockets.Load, args.build, args.load_core)
        self.luaserve = luaserve
        self.results = {}
        self.problems = []
        self.left_out = {}
        self.heads = {}

    def chosen(self, names):
        """The servers of `names` that were selected and can run."""
        return [name for name in names if name not in self.left_out
                and any(name == one or name.startswith(one + " ") for one in self.args.servers)]

    def problem(self, text):
        if text not in self.problems:
            self.problems.append(text)
            print(f"bench: {text}", file=sys.stderr, flush=True)

    def say(self, text):
        print(f"  {text}", file=sys.stderr, flush=True)

    def start(self, name):
        """The started server, or None: then it is omitted from the rest of the run."""
        server = self.all[name]
        if server.alive():
            return server
        try:
            if name.startswith("luaserve") and self.luaserve is None:
                raise Failed("luaserve could not be built")
            server.start()
            catalogue_of.check_same_answers([server])
            return server
        except Unavailable as reason:
            self.left_out[name] = str(reason)
            self.say(f"left out: {reason}")
        except (Failed, OSError) as reason:
            server.stop()
            self.left_out[name] = str(reason)
            self.problem(str(reason))
        return None

    def stop(self, name):
        self.all[name].stop()

    def stop_all(self):
        for server in self.all.values():
            server.stop()

    def one(self, section, name, run):
        """Run one measurement of one server and store its result."""
        result = None
        try:
            result = run()
        except (Failed, OSError) as reason:
            self.problem(f"{section}: {name}: {reason}")
            server = self.all.get(name)  # None: a load generator was measured
            if server and not server.alive():
                self.problem(f"{name} has ended: {server.output()}")
                server.stop()
        if result and result.get("failures"):
            self.problem(f"{section}: {name}: {result['failures']} requests failed {result.get('errors', '')}")
        self.results[section].setdefault(name, []).append(result)
        return result

    def with_before(self, names):
        """The names, and behind each luaserve the one that it is compared with."""
        for name in names:
            yield name
            if self.before and name.startswith("luaserve"):
                yield name + catalogue_of.BEFORE

    def interleaved(self, section, place, run):
        """Measurements of warm servers, in turn, round by round. `place`: the server that runs under each name; run(name,
        server, seconds)."""
        names = [name for name in self.chosen(place) if self.start(place[name])]
        for name in names:
            try:
                run(name, self.all[place[name]], 1)
            except Failed as reason:
                self.problem(f"{section}: {name}: warming up: {reason}")
        for _ in range(self.args.rounds):
            for name in names:
                server = self.start(place[name])
                if server:
                    self.one(section, name, lambda n=name, s=server: run(n, s, self.args.seconds))

    def cpu(self, section):
        names, how = CPU_SECTIONS[section]
        # The bare responders read no header, so a separate program closes the connection after each response.
        names = list(self.with_before(names))
        place = {name: f"{name} close" if section == "close" and name.startswith("bare") else name for name in names}
        self.interleaved(section, place, lambda _, server, seconds: measure.cpu_per_request(server, self.args.load_core, seconds, **how))
        for name in names:
            if place[name] != name:
                self.stop(place[name])

    def controlled(self, section):
        names, run, how = {**ECHO_SECTIONS, **HANDSHAKE_SECTIONS}[section]
        if section == "tcp-proxy":
            backend = self.start(catalogue_of.BACKEND)
            if not backend:
                return
            how = dict(how, backend=backend)
        self.interleaved(section, {name: name for name in self.with_before(names)},
                         lambda _, server, seconds: run(server, self.open_load, seconds=seconds, **how))
        # The proxies' backend shares the load's core, and no idle server may disturb the others.
        self.stop_all()

    def work(self, section):
        """A section of measure_websocket or of a module of WORK. Where luaserve stress is the load, it is that
        of the program under test for all servers."""
        places, run, how = {**measure_websocket.LOAD_SECTIONS, **WORK_SECTIONS}[section]
        names = list(self.with_before(places))
        place = {name: places[name.removesuffix(catalogue_of.BEFORE)][0]
                 + (catalogue_of.BEFORE if name.endswith(catalogue_of.BEFORE) else "") for name in names}
        if section in WORK_SECTIONS:
            how = {"build": self.args.build, "size": self.args.upload_size, **how}

        def measured(name, server, seconds):
            return run(server, program=self.luaserve, load_cpu=self.args.load_core, seconds=seconds, **how,
                       **places[name.removesuffix(catalogue_of.BEFORE)][1])
        if section in measure_client.FRESH + measure_http2.FRESH + measure_counts.FRESH:
            rounds = 1 if section in measure_counts.FRESH else self.args.rounds  # they are the same each time
            self.fresh(section, place, lambda server: measured(server.name, server, self.args.seconds), rounds)
        else:
            self.interleaved(section, place, measured)
        self.stop_all()  # no idle server may disturb the others

    def websocket_idle(self):
        count = self.connections(self.args.idle_connections)
        for _ in range(self.args.rounds):
            for name, (place, how) in measure_websocket.IDLE.items():
                self.fresh("ws-idle", {name: place}, lambda s, h=how: measure_websocket.idle(
                    s, program=self.luaserve, load_cpu=self.args.load_core, count=count, **h), 1)

    def websocket_churn(self):
        count = self.connections(self.args.idle_connections)
        self.fresh("ws-churn", ("luaserve ws",), lambda s: measure_sockets.churn(
            s, lambda number: measure_websocket.subscribed(s, count, number), count, self.args.churn_rounds,
            measure_websocket.WARM_UP_ROUNDS), 1)

    def fresh(self, section, names, run, rounds):
        """Measurements that need a newly started server. `names`: of servers; or {shown name: server}."""
        for _ in range(rounds):
            for name in self.chosen(names):
                place = names[name] if isinstance(names, dict) else name
                self.stop(place)
                server = self.start(place)
                if server:
                    self.one(section, name, lambda s=server: run(s))
                    self.stop(place)

    def connections(self, wanted):
        return min(wanted, self.descriptors - 200)

    def idle(self):
        room = {"haproxy-lua": catalogue_of.haproxy_connections() - 100}
        count = self.connections(self.args.idle_connections)
        self.fresh("idle", IDLE_SERVERS, lambda s: measure.idle_http(
            s, self.args.load_core, min(count, room.get(s.name, count))), self.args.rounds)

    def idle_tcp(self):
        count = self.connections(self.args.idle_connections)
        self.fresh("idle-tcp", ("luaserve tcp.lua",),
                   lambda s: measure_sockets.idle_tcp(s, self.open_load, count), self.args.rounds)

    def idle_tls(self):
        count = self.connections(self.args.idle_connections)
        self.fresh("tls-idle", TLS_SERVERS, lambda s: measure_tls.idle(s, self.args.load_core, count), self.args.rounds)

    def churn(self):
        count = self.connections(self.args.idle_connections)
        self.fresh("tcp-churn", ("luaserve tcp.lua",),
                   lambda s: measure_sockets.tcp_churn(s, self.open_load, count, self.args.churn_rounds), 1)

    def s8(self, section):
        names, clients = S8_SECTIONS[section]
        self.fresh(section, names, lambda s: measure_sockets.beside_others(
            s, self.open_load, self.args.seconds, self.connections(clients), 64), min(self.args.rounds, 3))

    def growth(self):
        self.fresh("growth", ("luaserve",), lambda s: measure.growth(s, self.args.load_core, self.args.growth_requests), 1)

    def reload(self):
        self.fresh("reload", RELOAD_SERVERS, lambda s: measure_reload.reload(s, self.args.load_core, self.args.reloads), 1)

    def starts(self, section):
        command = ("dev",) if section == "start-dev" else ()
        programs = {name: program for name, program in (
            ("luaserve", self.luaserve), ("luaserve" + catalogue_of.BEFORE, self.before)) if program}
        site = os.path.join(self.directory, "start.lua")
        with open(site, "w", encoding="utf-8") as file:
            file.write(measure_start.SITE)
        for _ in range(self.args.rounds):
            for name, program in programs.items():
                self.one(section, name, lambda p=program: measure_start.start(p, site, command))

    def copies(self):
        self.fresh("copies", ("luaserve",), measure.bytes_copied, self.args.rounds)

    def stall(self, section):
        path = "/busy" if section == "stall-busy" else "/block"
        client = os.path.join(self.args.build, "open_loop")
        self.fresh(section, STALL_SERVERS[section], lambda s: measure.stall(s, client, path, self.args.stall_seconds), self.args.rounds)

    def stress(self, section):
        """The generator is measured; the server runs on its own core."""
        program, core, seconds = self.luaserve, self.args.load_core, self.args.seconds
        target = {"stress-s9": "luaserve echo.lua", "tls-stress": "nginx tls"}
        server = self.start(target.get(section, "nginx"))
        if not server or program is None:
            return
        if section in ("stress-plain", "stress-script", "tls-stress"):
            script = section == "stress-script"
            for _ in range(self.args.rounds):
                self.one(section, "luaserve stress", lambda: measure_stress.cost_of_stress(program, core, server, seconds, script))
                if self.before:
                    self.one(section, "luaserve stress" + catalogue_of.BEFORE,
                             lambda: measure_stress.cost_of_stress(self.before, core, server, seconds, script))
                self.one(section, "wrk", lambda: measure_stress.cost_of_wrk(core, server, seconds, script))
        elif section == "stress-freeze":
            length = max(2 * seconds, 4)
            for _ in range(min(self.args.rounds, 3)):
                for name, rate in (("open loop", FREEZE_RATE), ("closed loop", None)):
                    self.one(section, name, lambda r=rate: measure_stress.freeze(program, core, server, r, length))
        elif section == "stress-rate":
            half = measure_stress.saturation(program, core, server, seconds) / 2
            for _ in range(min(self.args.rounds, 3)):
                for name, rate in (("1,000/s", 1000), ("20,000/s", 20000), ("half of saturation", half)):
                    self.one(section, name, lambda r=rate: measure_stress.rate(program, core, server, r, seconds))
        elif section == "stress-memory":
            self.one(section, "luaserve stress", lambda: measure_stress.memory(
                program, core, server, self.connections(self.args.idle_connections), seconds))
        else:
            self.one(section, "luaserve stress", lambda: measure_stress.s9(program, core, server, S9_THREADS, self.args.sends))
        self.stop_all()

    def measure_heads(self):
        """The size and the fields of each server's response head, to compare their weight."""
        chosen = set(self.args.sections)
        names = [name for sections, servers in ((HTTP_SECTIONS, WEB_SERVERS), (TLS_SECTIONS, TLS_SERVERS),
                                                (STATIC_SECTIONS, FILE_SERVERS)) if chosen & set(sections)
                 for name in servers]
        for name in self.chosen(names):
            server = self.start(name)
            if server:
                size, lines = catalogue_of.head_bytes(server)
                self.heads[name] = {"bytes": size, "lines": lines}

    def run(self, about):
        self.descriptors = machine.raise_descriptor_limit()
        self.measure_heads()
        print(introduction(self.args, about, self.heads) + "\n", flush=True)
        for section in self.args.sections:
            began = time.monotonic()
            self.results[section] = {}
            print(f"bench: {section}", file=sys.stderr, flush=True)
            if section in CPU_SECTIONS:
                self.cpu(section)
            elif section in ECHO_SECTIONS or section in HANDSHAKE_SECTIONS:
                self.controlled(section)
            elif section in S8_SECTIONS:
                self.s8(section)
            elif section.startswith("stall"):
                self.stop_all()
                self.stall(section)
            elif section in measure_websocket.LOAD_SECTIONS or section in WORK_SECTIONS:
                self.work(section)
            elif section in STRESS_SECTIONS or section == "tls-stress":
                self.stress(section)
            else:
                {"idle": self.idle, "growth": self.growth, "copies": self.copies, "reload": self.reload,
                 "start": lambda: self.starts("start"), "start-dev": lambda: self.starts("start-dev"), "idle-tcp": self.idle_tcp, "tls-idle": self.idle_tls, "tcp-churn": self.churn,
                 "ws-idle": self.websocket_idle, "ws-churn": self.websocket_churn}[section]()
            self.say(f"{time.monotonic() - began:.0f} s")
            if lines := report.section_lines(self.results, section):
                print("\n".join(lines) + "\n", flush=True)


def introduction(args, about, heads):
    lines = [f"machine: {about['cpu']}, {about['cores']} cores, {about['kernel']}; "
             f"load before: {about['load_before']:.2f}"]
    lines += [f"  {name}: {version}" for name, version in about["versions"].items()]
    lines.append(f"server on core {args.server_core}, load (1 thread) on core {args.load_core}; "
                 f"{args.rounds} rounds of {args.seconds} s, interleaved")
    if args.quick:
        lines.append("  QUICK: too short for reliable verdicts")
    if args.server_core == args.load_core:
        lines.append("  ONE CORE for both: they disturb each other")
    if heads:
        lines.append("bytes of the response's head (status line, fields, empty line), body 13 bytes:")
    for name, head in heads.items():
        fields = ", ".join(line.split(":")[0] for line in head["lines"][1:])
        lines.append(f"  {name}: {head['bytes']} ({fields})")
    return "\n".join(lines)


def end_on_signal(_number, _frame):
    """Act as on Ctrl-C, once: timeout(1) signals both the program and its process group."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def main():
    args = parse_arguments()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_on_signal)
    groups = [group for group, sections in GROUPS.items() if set(args.sections) & set(sections)]
    if not args.no_install:
        machine.install_missing(groups)
    if args.windows:
        return measure_windows.main(args)
    machine.build_programs(args.build)
    wanted = "luaserve" in args.servers
    luaserve = os.path.abspath(args.luaserve) if args.luaserve else machine.build_luaserve() if wanted else None
    packages = os.path.join(args.build, "npm")
    if not args.no_install:
        machine.install_outside(groups, args.build, packages)
    about = machine.describe(luaserve, packages, groups)
    directory = tempfile.mkdtemp(prefix="luaserve-bench-")
    bench = Bench(args, luaserve, directory, packages)
    try:
        bench.run(about)
    except KeyboardInterrupt:
        bench.problem("interrupted; the verdicts cover the measurements before")
    finally:
        bench.stop_all()
        MemoryGroup.unmount()
        shutil.rmtree(directory, ignore_errors=True)

    rows = report.judge(bench.results, args.sections)
    print("\n".join(report.closing_lines(bench.results, rows)))
    if bench.before:
        print("\n".join(report.before_lines(bench.results, catalogue_of.BEFORE)))
    for name, reason in bench.left_out.items():
        print(f"left out: {name}: {reason}")
    if bench.problems:
        print("failed to run, or with failures:\n  " + "\n  ".join(bench.problems))
    if args.json:
        options = collections.OrderedDict(sorted(vars(args).items()))
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"machine": about, "options": options, "heads": bench.heads, "results": bench.results,
                       "asked": rows, "left_out": bench.left_out, "problems": bench.problems}, file, indent=1)
            file.write("\n")
    return 1 if bench.problems else 0


if __name__ == "__main__":
    sys.exit(main())
