"""Reloads of a site while clients go on: failed requests, closed connections, resident memory before and after.

wrk sends requests on 64 keep-alive connections; 100 further connections have long requests, half of them long polls,
half streams. SIGHUP asks for each reload; its line in the log ends it. The next one follows after RELOAD_EVERY_S at the
earliest, so that about a hundred generations of the site exist at a time, because each long request keeps one. Resident
memory is that of a server at rest whose old generations have ended."""
import asyncio
import http.client
import json
import os
import re
import signal
import statistics
import threading
import time

import measure
from servers import Failed

LONG_REQUESTS = 100
RELOAD_EVERY_S = 0.02
WARM_UP_RELOADS = 500  # until each thread has the buffers that it keeps
RELOAD_SECONDS_MAX = 30
REST_SECONDS_MAX = 90
CONNECTIONS = 64
ANSWERS = {"/wait": b"waited\n", "/stream": b"part\n" * 20}


class LongRequests:
    """Connections that send one long request after the other until close(). `failed`: responses that are wrong or
    missing. `closed`: connections that the server has closed."""

    def __init__(self, port):
        self.port, self.done, self.failed, self.closed = port, 0, 0, 0
        self.stopping = False
        self.open = threading.Semaphore(0)  # released by each connection that is open
        self.thread = threading.Thread(target=lambda: asyncio.run(self.all()))
        self.thread.start()
        for _ in range(LONG_REQUESTS):
            if not self.open.acquire(timeout=20):
                self.close()
                raise Failed("the long requests could not be sent")

    async def all(self):
        await asyncio.gather(*(self.client(("/wait", "/stream")[n % 2]) for n in range(LONG_REQUESTS)))

    async def client(self, target):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            self.failed += 1
            return
        self.open.release()
        try:
            while not self.stopping:
                writer.write(f"GET {target} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
                if await self.body(reader) != ANSWERS[target]:
                    self.failed += 1
                self.done += 1
        except (OSError, EOFError, ValueError):
            self.failed += 1
            self.closed += 1
        finally:
            writer.close()

    @staticmethod
    async def body(reader):
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        if not head[0].startswith("HTTP/1.1 200 ") or fields.get("connection") == "close":
            raise ValueError(head)
        if "content-length" in fields:
            return await reader.readexactly(int(fields["content-length"]))
        body = b""
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
        return body

    def close(self):
        self.stopping = True
        self.thread.join()


def stats(connection):
    connection.request("GET", "/stats")
    return json.loads(connection.getresponse().read())


class Log:
    """Reads the lines that a server adds to its log."""

    def __init__(self, server):
        self.file = open(os.path.join(server.directory, "output"), encoding="utf-8")
        self.file.read()

    def await_reload(self):
        """Wait for the line of a reload -> its milliseconds."""
        until, text = time.monotonic() + RELOAD_SECONDS_MAX, ""
        while "reloaded " not in text or not text.endswith("\n"):
            text += self.file.read()
            if "reload failed" in text or time.monotonic() > until:
                raise Failed(f"the site was not reloaded: {text.strip()[-400:] or 'no line in the log'}")
            time.sleep(0.0005)
        return int(re.search(r"reloaded .* in (\d+) ms", text).group(1))

    def close(self):
        self.file.close()


def reloads_under_load(server, load_cpu, count):
    """`count` reloads one after the other while all clients go on -> what they have seen."""
    log, took = Log(server), []
    long_requests = LongRequests(server.port)
    load = measure.start_wrk(server.url(), CONNECTIONS, 3600, load_cpu)
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        until = time.monotonic() + 20
        while (before := stats(connection))["connections_open"] != CONNECTIONS + LONG_REQUESTS + 1:
            if time.monotonic() > until:
                raise Failed(f"{before['connections_open']} connections are open")
            time.sleep(0.05)
        for _ in range(count):
            due = time.monotonic() + RELOAD_EVERY_S
            os.kill(server.process.pid, signal.SIGHUP)
            took.append(log.await_reload())
            time.sleep(max(0.0, due - time.monotonic()))
        closed = stats(connection)["connections"] - before["connections"]  # each one was opened again
    finally:
        connection.close()
        load.send_signal(signal.SIGINT)  # wrk ends and prints its summary
        long_requests.close()
        summary = measure.end_wrk(load)
        log.close()
    errors = dict(summary["errors"], **({"long": long_requests.failed} if long_requests.failed else {}))
    return {"requests": summary["requests"], "long": long_requests.done, "errors": errors,
            "failures": sum(errors.values()), "closed": closed + long_requests.closed, "ms": statistics.median(took)}


def resident_at_rest(server, states):
    """Resident memory when only `states` Lua states are left: the old generations have ended."""
    until = time.monotonic() + REST_SECONDS_MAX
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        found = stats(connection)["lua_states"]
        connection.close()
        if found <= states:
            break
        if time.monotonic() > until:
            raise Failed(f"{server.name}: {found} Lua states are left, not {states}")
        time.sleep(0.2)
    time.sleep(2.0)  # the idle server returns free memory to the system
    return measure.memory(server.pids())[0]


def reload(server, load_cpu, count):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    states = stats(connection)["lua_states"]
    connection.close()
    fresh = measure.memory(server.pids())[0]
    warm_up = reloads_under_load(server, load_cpu, WARM_UP_RELOADS)
    before = resident_at_rest(server, states)
    result = reloads_under_load(server, load_cpu, count)
    after = resident_at_rest(server, states)
    result["failures"] += warm_up["failures"]
    return dict(result, reloads=count, before=before, resident=after, growth=after - before, from_fresh=after - fresh)
