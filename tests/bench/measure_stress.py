"""The measurements of `luaserve stress` as a load generator, beside wrk: the cost of a request for the client, the
report of a server freeze, rates, memory, and the stress client S9 against the echo server S8.

CPU time is the generator's own, from wait4(2).
"""
import json
import os
import signal
import subprocess
import tempfile
import time

from servers import Failed

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "..", "..", "examples", "stress", "wrk", "counter.lua")
MESSAGE = "thirty bytes of a text, as is."
FREEZE_SECONDS = 0.5


def start(argv, cpu):
    """Start a generator, pinned to a core -> its process."""
    if cpu is not None:
        argv = ["taskset", "-c", str(cpu)] + argv
    out = tempfile.TemporaryFile(mode="w+")
    process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, text=True)
    process.out, process.began = out, time.monotonic()
    return process


def end(process, good=(0,)):
    """Wait for its end -> (its output, its seconds of CPU, its peak resident bytes). `good`: accepted exit statuses."""
    with process.out:
        try:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        except BaseException:
            process.kill()
            process.wait()
            raise
        process.out.seek(0)
        text = process.out.read()
    if process.returncode not in good:
        raise Failed(f"{' '.join(process.args)} ended with {process.returncode}: {text.strip()[-400:]}")
    return text, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def has_ended(process):
    """Whether it has ended; end() remains to be called."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def start_stress(program, cpu, *args):
    """Start luaserve stress -> its process. End it with end_stress."""
    where = tempfile.TemporaryDirectory()
    argv = [program, "stress", "-q", "--json", os.path.join(where.name, "report.json"), *map(str, args)]
    if args[-1].startswith("https:"):
        argv.insert(2, "--insecure")
    process = start(argv, cpu)
    process.where = where
    return process


def end_stress(process):
    """-> (its JSON report, CPU seconds, peak resident bytes)."""
    with process.where as where:
        text, used, resident = end(process, good=(0, 1))
        report, path = {}, os.path.join(where, "report.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        # A rate that was not reached is a result: the deviation.
        if not report or (report["failure"] and not report["short_of"]):
            raise Failed(f"{' '.join(process.args)}: {text.strip()[-400:]}")
        return report, used, resident


def cancel_stress(process):
    process.kill()
    process.wait()
    process.out.close()
    process.where.cleanup()


def stress(program, cpu, *args, meanwhile=None):
    """Run luaserve stress -> as end_stress."""
    process = start_stress(program, cpu, *args)
    try:
        if meanwhile:
            meanwhile()
    except BaseException:
        cancel_stress(process)
        raise
    return end_stress(process)


def cost_of_stress(program, cpu, server, seconds, script):
    report, used, _ = stress(program, cpu, "-t1", "-c64", f"-d{seconds}", *(["-s", SCRIPT] if script else []), server.url())
    requests = report["totals"]["requests"]
    return {"us": used * 1e6 / requests, "requests": requests, "per_second": report["totals"]["requests_per_s"],
            "failures": report["errors"]["total"], "errors": report["errors"]}


def cost_of_wrk(cpu, server, seconds, script):
    argv = ["wrk", "-t1", "-c64", f"-d{seconds}s", *(["-s", SCRIPT] if script else []), server.url()]
    text, used, _ = end(start(argv, cpu))
    requests = next(int(line.split()[0]) for line in text.splitlines() if " requests in " in line)
    speed = next(float(line.split()[1]) for line in text.splitlines() if line.startswith("Requests/sec"))
    return {"us": used * 1e6 / requests, "requests": requests, "per_second": speed,
            "failures": int("Socket errors" in text), "errors": {}}


def freeze(program, cpu, server, rate, seconds):
    """Stop the server's processes for half a second in the middle.

    A request due at a moment t of the freeze waits for the rest of it. The slowest thousandth of all requests are
    those of the first `seconds` / 1000 of the freeze (the time the server needs to catch up is additional, and small):
    the true p99.9 is shorter than the freeze by that."""
    frozen = []

    def stop_once():
        time.sleep(seconds / 2)
        pids = server.pids()
        began = time.monotonic()
        try:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            time.sleep(FREEZE_SECONDS)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        frozen.append(time.monotonic() - began)

    how = ["-t1", "-c64", f"-d{seconds}"] + (["-R", rate] if rate else [])
    report, _, _ = stress(program, cpu, *how, server.url(), meanwhile=stop_once)
    kind = "corrected" if rate else "uncorrected"
    reported = report["latency_us"][kind]["percentiles"]["p99.9"] / 1000
    truth = (frozen[0] - seconds / 1000) * 1000
    return {"p999_ms": reported, "truth_ms": truth, "off": abs(reported / truth - 1), "late": int(report["engine_late"] or 0),
            "failures": report["errors"]["total"], "errors": report["errors"]}


def rate(program, cpu, server, asked, seconds):
    report, _, _ = stress(program, cpu, "-t1", "-c64", "-R", f"{asked:.0f}", f"-d{seconds}", server.url())
    reached = report["totals"]["requests_per_s"]
    return {"asked": asked, "reached": reached, "off": abs(reached / asked - 1), "failures": report["errors"]["total"],
            "p99_ms": report["latency_us"]["corrected"]["percentiles"]["p99"] / 1000, "errors": report["errors"]}


def saturation(program, cpu, server, seconds):
    report, _, _ = stress(program, cpu, "-t1", "-c64", f"-d{seconds}", server.url())
    return report["totals"]["requests_per_s"]


def memory(program, cpu, server, connections, seconds):
    report, _, resident = stress(program, cpu, "-t1", f"-c{connections}", f"-d{seconds}", server.url())
    return {"resident": resident, "connections": connections, "requests": report["totals"]["requests"],
            "failures": report["errors"]["total"], "errors": report["errors"]}


def s9(program, cpu, server, threads, sends):
    """The stress client against the echo server: every echo is compared."""
    report, used, _ = stress(program, cpu, "-t", threads, "--sends", sends, "--message", MESSAGE, f"tcp://127.0.0.1:{server.port}")
    totals, latency = report["totals"], report["latency_us"]["uncorrected"]
    lost = threads * sends - totals["requests"]
    return {"messages": totals["requests"], "per_second": totals["requests_per_s"], "us": used * 1e6 / totals["requests"],
            "p50_ms": latency["percentiles"]["p50"] / 1000, "p99_ms": latency["percentiles"]["p99"] / 1000,
            "max_ms": latency["max"] / 1000, "lost": lost + report["errors"]["total"],
            "failures": report["errors"]["total"], "errors": report["errors"]}
