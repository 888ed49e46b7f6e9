"""The socket measurements: echoes on TCP and UDP, a proxy, idle connections, and connections opened and closed.

The generators are our own (load.h describes their control): they compare every byte, and a run lasts until the last
echo has arrived, so that CPU time divided by echoes is exact.

`open_load(name, args...)` opens a Load with the directory and the core filled in.
"""
import json
import os
import subprocess
import time

from measure import cpu_now, cpu_while, idle_connections, memory
from servers import Failed

ERRORS = ("wrong", "closed", "unfinished", "lost", "late")
MESSAGE = b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\n"
WARM_UP_SECONDS = 0.3


class Load:
    """A generator with open sockets, as a context manager; run() may be called repeatedly."""

    def __init__(self, build, load_cpu, name, *args):
        self.name = name
        argv = [os.path.join(build, name)] + [str(arg) for arg in args]
        if load_cpu is not None:
            argv = ["taskset", "-c", str(load_cpu)] + argv
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self):
        try:
            if self.process.stdout.readline() != "ready\n":
                self.fail()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, kind, _value, _trace):
        try:
            if kind is None:
                self.close()
        finally:
            self.end()

    def end(self):
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                pipe.close()
            except BrokenPipeError:
                pass  # the generator did not read the last line

    def fail(self):
        """Raise Failed with the messages of a generator that has ended or is about to end."""
        raise Failed(f"{self.name}: {self.process.stderr.read().strip()[-400:] or 'ended without a message'}")

    def run(self, seconds):
        """-> its counts, with `errors` and `cpu_share` as measure.cpu_while requires them."""
        try:
            self.process.stdin.write(f"{seconds:g}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.fail()
        line = self.process.stdout.readline()
        if not line:
            self.fail()
        summary = json.loads(line)
        summary["errors"] = {kind: summary[kind] for kind in ERRORS if summary.get(kind)}
        summary["cpu_share"] = summary["cpu_us"] / summary["duration_us"]
        return summary

    def close(self):
        """Close the connections in order; raises Failed if the server does not close them as well."""
        self.process.stdin.close()
        try:
            if self.process.wait(30) != 0:
                self.fail()
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name}: did not end") from None


def tcp_echo(server, open_load, seconds, connections, size):
    """CPU per message of `size` bytes, echoed on each of `connections` in a closed loop."""
    with open_load("echo_load", server.port, connections, size) as load:
        load.run(WARM_UP_SECONDS)
        return cpu_while(server, lambda: load.run(seconds))


def udp_echo(server, open_load, seconds, sockets, window, size):
    """CPU per datagram; `window` of them in flight on each of `sockets`."""
    with open_load("udp_load", server.port, sockets, window, size) as load:
        load.run(WARM_UP_SECONDS)
        return cpu_while(server, lambda: load.run(seconds))


def tcp_proxy(server, open_load, seconds, backend, connections, size):
    """CPU per block that went through the proxy to the echo server behind it and back. Generator and echo server share
    a core: the generator's share is the sum of both."""
    def run(load):
        before = cpu_now(backend.pids())[0]
        summary = load.run(seconds)
        summary["cpu_share"] += (cpu_now(backend.pids())[0] - before) / summary["duration_us"]
        return summary

    with open_load("echo_load", server.port, connections, size) as load:
        load.run(WARM_UP_SECONDS)
        return cpu_while(server, lambda: run(load))


def beside_others(server, open_load, seconds, clients, size):
    """CPU per message, and the memory of `clients` connections, of a server started for this measurement."""
    fresh = memory(server.pids())
    with open_load("echo_load", server.port, clients, size) as load:
        load.run(WARM_UP_SECONDS)
        result = cpu_while(server, lambda: load.run(seconds))
        full = memory(server.pids())
        threads = sum(len(os.listdir(f"/proc/{pid}/task")) for pid in server.pids())
        if server.group is not None:
            result["charged"] = server.group.charged()
    result.update(threads=threads, resident=full[0], each=(full[0] - fresh[0]) / clients)
    return result


def echo_once(sock):
    sock.sendall(MESSAGE)
    text = b""
    while len(text) < len(MESSAGE):
        chunk = sock.recv(len(MESSAGE))
        if not chunk:
            break
        text += chunk
    if text != MESSAGE:
        raise Failed(f"the echo is {text!r}")


def idle_tcp(server, open_load, count):
    def warm_up():
        with open_load("echo_load", server.port, 64, len(MESSAGE)) as load:
            load.run(1)

    return idle_connections(server, warm_up, echo_once, count)


def descriptors(pids):
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids)


def churn(server, hold, connections, rounds, warm_up=1):
    """Memory and descriptors while `connections` are opened, used and closed, `rounds` times: "seen" has (resident,
    descriptors) before and after each. hold(round) is a context manager that has them open. "growth" is from after the
    rounds of `warm_up`, when the server has allocated for that number of connections, to after the last; "from_fresh" from
    before any connection."""
    def now():
        time.sleep(1.0)
        return memory(server.pids())[0], descriptors(server.pids())

    seen, full = [now()], None
    for number in range(1, rounds + 1):
        with hold(number):
            full = memory(server.pids())[0], descriptors(server.pids())
        seen.append(now())
    warm_up = min(warm_up, rounds - 1)
    return {"connections": connections, "rounds": rounds, "warm_up": warm_up, "seen": seen, "full": full,
            "growth": seen[-1][0] - seen[warm_up][0], "from_fresh": seen[-1][0] - seen[0][0],
            "descriptors": seen[-1][1] - seen[0][1]}


def tcp_churn(server, open_load, connections, rounds):
    """Every second connection is closed by a reset."""
    return churn(server, lambda number: open_load("echo_load", server.port, connections, len(MESSAGE), number), connections, rounds)
