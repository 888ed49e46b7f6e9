"""The HTTP measurements: CPU time per request, memory, bytes copied, and latency on schedule while a handler stalls.

CPU time comes from the process CPU clock (nanoseconds, all threads, including ended ones), summed over the program
and its children; the ratio of user and system time comes from the 10 ms ticks of /proc/PID/stat.
"""
import contextlib
import http.client
import json
import os
import socket
import struct
import subprocess
import time

from servers import Failed

HERE = os.path.dirname(os.path.abspath(__file__))
TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")
ERRORS = ("connect", "read", "write", "status", "timeout")
HELLO = b"GET / HTTP/1.1\r\nHost: bench\r\n\r\n"


def cpu_now(pids):
    """(all, user, system) microseconds of CPU that these processes have used."""
    total = user = system = 0.0
    for pid in pids:
        total += time.clock_gettime((~pid << 3) | 2) * 1e6  # as clock_getcpuclockid(3)
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        user += int(fields[11]) * TICK_US
        system += int(fields[12]) * TICK_US
    return total, user, system


def core_busy_us(cpu):
    """Microseconds that a core was busy (without idle, iowait and steal)."""
    with open("/proc/stat", encoding="ascii") as file:
        for line in file:
            if line.startswith(f"cpu{cpu} "):
                ticks = [int(field) for field in line.split()[1:]]
                return (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) * TICK_US
    return 0.0


def start_wrk(url, connections, seconds, cpu, depth=1, headers=()):
    """Start wrk -> its process. After `seconds`, or on SIGINT, it ends; then call end_wrk."""
    script = os.path.join(HERE, "wrk.lua")
    argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", script]
    for header in headers:
        argv += ["-H", header]
    argv += [url, "--", str(depth)]
    if cpu is not None:
        argv = ["taskset", "-c", str(cpu)] + argv
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    process.began = time.monotonic()
    return process


def end_wrk(process):
    """Wait for the end of wrk -> its summary, with its own CPU share as "cpu_share"."""
    try:
        output = process.stdout.read()  # ends by itself: wrk's duration is bounded
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        process.stdout.close()
    elapsed = time.monotonic() - process.began
    lines = [line for line in output.splitlines() if line.startswith("SUMMARY ")]
    if process.returncode != 0 or not lines:
        raise Failed(f"wrk ended with {process.returncode}: {output.strip()[-400:]}")
    summary = json.loads(lines[0][len("SUMMARY "):])
    summary["errors"] = {kind: summary[kind] for kind in ERRORS if summary[kind]}
    summary["cpu_share"] = (usage.ru_utime + usage.ru_stime) / elapsed
    return summary


def wrk(*args, **how):
    """Run wrk, with the arguments of start_wrk -> its summary."""
    return end_wrk(start_wrk(*args, **how))


def cpu_per_request(server, load_cpu, seconds, target="/", connections=64, depth=1, headers=()):
    """One run of wrk against a started server -> a dict of its cost."""
    return cpu_while(server, lambda: wrk(server.url(target), connections, seconds, load_cpu, depth, headers))


def cpu_while(server, load):
    """The cost of each request for a started server while `load()` sends requests -> a dict.

    load() gives requests, duration_us, errors ({kind: count}) and cpu_share (of the generator's core)."""
    pids = server.pids()
    core = core_busy_us(server.cpu)
    before, began = cpu_now(pids), time.monotonic()
    summary = load()
    after, elapsed = cpu_now(pids), (time.monotonic() - began) * 1e6
    core = core_busy_us(server.cpu) - core
    requests = summary["requests"]
    if requests == 0:
        raise Failed(f"{server.name}: no request got a response: {summary}")
    total, user, system = (b - a for a, b in zip(before, after))
    ticks = user + system or 1.0
    return {
        "us": total / requests,
        "user_us": total * user / ticks / requests,
        "system_us": total * system / ticks / requests,
        "requests": requests,
        "per_second": requests * 1e6 / summary["duration_us"],
        "failures": sum(summary["errors"].values()),
        "errors": summary["errors"],
        "server_share": total / elapsed,
        "generator_share": summary["cpu_share"],
        "generator_bound": summary["cpu_share"] > 0.9 and total / elapsed < 0.9,
        "others_share": max(0.0, core - total) / elapsed,
    }


def memory(pids):
    """(resident, resident user memory) in bytes; the latter without file pages. /proc/PID/status is less exact."""
    resident = user = 0
    for pid in pids:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
            for line in file:
                name, _, rest = line.partition(":")
                if name == "Rss":
                    resident += int(rest.split()[0]) * 1024
                elif name == "Anonymous":
                    user += int(rest.split()[0]) * 1024
    return resident, user


def read_answer(sock):
    text = b""
    while b"\r\n\r\nhello, world\n" not in text:
        chunk = sock.recv(4096)
        if not chunk:
            raise Failed(f"the connection ended after {text!r}")
        text += chunk


def request_hello(sock):
    sock.sendall(HELLO)
    read_answer(sock)


def idle_http(server, load_cpu, count):
    return idle_connections(server, lambda: wrk(server.url(), 64, 1, load_cpu), request_hello, count)


def reset_at_end(sock):
    """Close it with a reset, which leaves no TIME_WAIT behind."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def connect_to_reset(server):
    sock = server.connect()
    reset_at_end(sock)
    return sock


def idle_connections(server, warm_up, request, count, connect=connect_to_reset):
    """Memory per connection of `count` connections after `request(connection)` got a response, in addition to a warm
    server's."""
    warm_up()
    time.sleep(0.5)
    before = memory(server.pids())
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            opened.append(stack.enter_context(connect(server)))
            request(opened[-1])
        time.sleep(1.0)
        after = memory(server.pids())
        request(opened[0])  # check the oldest and the newest connection
        request(opened[-1])
    return {"resident": (after[0] - before[0]) / count, "user": (after[1] - before[1]) / count, "connections": count,
            "base_resident": before[0]}


def growth(server, load_cpu, requests):
    """Resident growth over `requests` requests, from a warm and idle server to idle again."""
    fresh = memory(server.pids())[0]
    warm_up = wrk(server.url(), 64, 1, load_cpu)
    time.sleep(1.0)
    before = memory(server.pids())[0]
    done = failures = 0
    until = time.monotonic() + 120
    while done < requests and time.monotonic() < until:
        summary = wrk(server.url(), 64, 2, load_cpu)
        done += summary["requests"]
        failures += sum(summary["errors"].values())
    time.sleep(2.0)
    after = memory(server.pids())[0]
    if done < requests:
        raise Failed(f"{server.name}: {done} of {requests} requests within 120 s")
    return {"growth": after - before, "from_fresh": after - fresh, "requests": done, "resident": after,
            "warm_up": warm_up["requests"], "failures": failures}


def find_number(table, name):
    """The number called `name`, at any depth in the response of /stats."""
    if isinstance(table, dict):
        if isinstance(table.get(name), (int, float)):
            return table[name]
        for value in table.values():
            found = find_number(value, name)
            if found is not None:
                return found
    return None


def bytes_copied(server):
    """The bytes that the core copied for a 1 MiB string response and for an echoed 1 MiB body."""
    return bytes_copied_by(server, {"string": ("GET", "/big", None), "echo": ("POST", "/echo", os.urandom(1 << 20))})


def bytes_copied_by(server, requests):
    """The bytes that the core copied for each of `requests`, {name: (method, target, body)}, by its own counter -> {name: bytes}. An
    answer to a body is that body.

    The requests that read the counter are subtracted."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)

    def request(method, target, body=None):
        connection.request(method, target, body=body)
        response = connection.getresponse()
        text = response.read()
        if response.status != 200 or (body and text != body):
            raise Failed(f"{server.name}: {method} {target} returned {response.status} {text[:200]!r}")
        return text

    def counter():
        copied = find_number(json.loads(request("GET", "/stats")), "bytes_copied")
        if copied is None:
            raise Failed(f"{server.name}: /stats has no bytes_copied")
        return copied

    found = {}
    try:
        counter()
        first = counter()
        last = counter()
        own = last - first
        for name, (method, target, body) in requests.items():
            if len(request(method, target, body)) < 100 << 10:
                raise Failed(f"{server.name}: {target} is too short for this measurement")
            now = counter()
            found[name], last = now - last - own, now
    finally:
        connection.close()
    return found


def stall(server, open_loop, path, seconds, clients=64, rate=10):
    """The latencies of clients on schedule, in milliseconds, while another client keeps `path` running."""
    argv = [open_loop, "127.0.0.1", str(server.port), str(clients), str(rate), f"{seconds:g}", "/fast", path]
    try:
        ended = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=seconds + 60)
    except subprocess.TimeoutExpired:
        raise Failed(f"{server.name}: open_loop did not end") from None
    if ended.returncode != 0:
        raise Failed(f"{server.name}: open_loop ended with {ended.returncode}: {ended.stdout.strip()[-400:]}")
    result = json.loads(ended.stdout)
    if result["occupied"] == 0:
        raise Failed(f"{server.name}: {path} never got a response: {result}")
    for name in ("p50", "p99", "max", "lag_p99", "lag_max"):
        result[f"{name}_ms"] = result.pop(f"{name}_us") / 1000.0
    result["failures"] = result["failed"] + result["unfinished"] + result["occupied_failed"]
    return result
