"""scripts/bench --windows: hello from Lua under Wine, on our completion ports and on Wine's http.sys.

The cost of a request is the CPU time of every process of the Wine prefix: the program, Wine's server, which does part
of the work of the Windows kernel, and its driver host (winedevice.exe), which contains Wine's http.sys. Each
measurement starts a separate Wine in a prefix kept for it: nothing else runs there.
"""
import os
import re
import select
import signal
import statistics
import subprocess
import sys
import time

import machine
import measure
import servers
from servers import Failed, Unavailable

HERE = os.path.dirname(os.path.abspath(__file__))
WINE = os.path.join(machine.ROOT, "third_party", "windows", "wine")
BUILT = os.path.join(machine.ROOT, "build", "windows", "luaserve.exe")
PREFIX = os.path.join(machine.ROOT, "build", "windows", "wine-bench")
ENGINES = ("iocp", "http.sys")
ASKED = 1.0  # maximum ratio of the CPU per request of the first to the second
CONNECTIONS = 16
START_SECONDS = 60  # includes the creation of the prefix


def environment():
    return dict(os.environ, LUASERVE_WINEPREFIX=PREFIX, WINEPREFIX=PREFIX)


def processes():
    """{pid: kind} of the processes of the prefix; a kind is program, wineserver or other."""
    mark, found = b"WINEPREFIX=" + PREFIX.encode(), {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark not in file.read().split(b"\0"):
                    continue
            with open(f"/proc/{name}/cmdline", "rb") as file:
                line = file.read()
        except OSError:
            continue  # it has ended, or belongs to another user
        found[int(name)] = ("program" if b"luaserve.exe" in line else "wineserver" if b"wineserver" in line else "other")
    return found


def end_wine():
    subprocess.run(["wineserver", "-k"], env=environment(), stderr=subprocess.DEVNULL, check=False)
    subprocess.run(["wineserver", "-w"], env=environment(), stderr=subprocess.DEVNULL, timeout=START_SECONDS, check=False)


class Server:
    """One engine in a separate Wine, pinned to a core."""

    def __init__(self, program, engine, core):
        self.engine = engine
        self.port = servers.free_port()
        end_wine()
        self.process = subprocess.Popen(
            ["taskset", "-c", str(core), WINE, program, os.path.join(HERE, "windows.lua"), engine, str(self.port)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment())
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self):
        output, deadline = b"", time.monotonic() + START_SECONDS
        while b"listening on" not in output:
            ready, _, _ = select.select([self.process.stderr], [], [], max(0, deadline - time.monotonic()))
            more = os.read(self.process.stderr.fileno(), 65536) if ready else b""
            if not more:
                text = output.decode("utf-8", "replace").strip()
                if self.engine == "http.sys" and re.search(r"engine|http\.sys", text):
                    raise Unavailable(f"{self.engine}: {text}")
                raise Failed(f"{self.engine} does not start: {text}")
            output += more
        status, _, body = servers.get(self.port, "/")
        if (status, body) != (200, b"hello, world\n"):
            raise Failed(f"{self.engine} returned {status} {body!r}")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stderr.close()
        end_wine()


def used_us(kinds):
    """{kind: microseconds of CPU so far}; both calls of a measurement omit processes that have ended."""
    sums = dict.fromkeys(("program", "wineserver", "other"), 0.0)
    for pid, kind in kinds.items():
        sums[kind] += measure.cpu_now([pid])[0]
    return sums


def once(program, engine, args):
    server = Server(program, engine, args.server_core)
    try:
        measure.wrk(f"http://127.0.0.1:{server.port}/", CONNECTIONS, 1, args.load_core)
        kinds = processes()
        before = used_us(kinds)
        summary = measure.wrk(f"http://127.0.0.1:{server.port}/", CONNECTIONS, args.seconds, args.load_core)
        after = used_us(kinds)
    finally:
        server.stop()
    if summary["errors"] or summary["requests"] == 0:
        raise Failed(f"{engine}: {summary['requests']} responses, failures: {summary['errors']}")
    cost = {kind: (after[kind] - before[kind]) / summary["requests"] for kind in after}
    return {"us": sum(cost.values()), **cost, "per_second": summary["requests"] * 1e6 / summary["duration_us"]}


def spread(numbers, form):
    return f"{form % statistics.median(numbers)} ({form % min(numbers)}..{form % max(numbers)})"


def report(results):
    print("CPU per request, microseconds: median (least..most); all processes of the Wine prefix")
    for engine, rounds in results.items():
        if rounds:
            parts = ", ".join(f"{kind} {statistics.median([r[kind] for r in rounds]):.1f}"
                              for kind in ("program", "wineserver", "other"))
            print(f"  {engine:10} {spread([r['us'] for r in rounds], '%.1f')}   {parts}   "
                  f"{statistics.median([r['per_second'] for r in rounds]):.0f} requests/s")
    pairs = list(zip(*results.values()))
    if len(results) == len(ENGINES) and pairs:
        ratios = [ours["us"] / theirs["us"] for ours, theirs in pairs]
        verdict = "met" if statistics.median(ratios) < ASKED else "MISSED"
        print(f"\nhello from Lua, ours / http.sys under the same Wine: {spread(ratios, '%.2f')}; target < {ASKED:.2f}: {verdict}")


def main(args):
    """Runs scripts/bench --windows; returns the exit status."""
    program = os.path.abspath(args.luaserve) if args.luaserve else BUILT
    if not args.luaserve and not args.no_install:
        ended = subprocess.run([os.path.join(machine.ROOT, "scripts", "test-windows"), "setup", "build"],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if ended.returncode != 0:
            sys.exit(f"bench: scripts/test-windows setup build failed:\n{ended.stdout[-2000:]}")
    if not os.path.exists(program):
        sys.exit(f"bench: {program} does not exist")
    version = subprocess.run(["wine", "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    print(f"{version.stdout.strip()}; {CONNECTIONS} connections; server and Wine on core {args.server_core}, wrk on core {args.load_core}; "
          f"{args.rounds} rounds of {args.seconds} s, interleaved", flush=True)
    results, left_out, problems = {engine: [] for engine in ENGINES}, {}, []
    try:
        for _ in range(args.rounds):
            for engine in ENGINES:
                if engine in left_out:
                    continue
                try:
                    results[engine].append(once(program, engine, args))
                except Unavailable as reason:
                    left_out[engine] = str(reason)
                except (Failed, OSError) as reason:
                    left_out[engine] = str(reason)
                    problems.append(str(reason))
    finally:
        end_wine()
    for engine in left_out:
        del results[engine]
    report(results)
    for reason in left_out.values():
        print(f"\nleft out: {reason}")
    return 1 if problems else 0
