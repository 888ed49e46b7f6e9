"""The WebSocket measurements: echoes, fan-out to many subscribers of single messages and of bursts, server-sent events, a
subscriber that does not read, idle connections, and connections that come, subscribe and go.

The load is `luaserve stress` on the core of the load; the client of the end-to-end tests holds connections. The servers of
websocket/ work by the path of the request, see websocket/ws.lua.
"""
import contextlib
import json
import time

from measure import cpu_while, find_number, idle_connections, reset_at_end
from measure_stress import cancel_stress, end_stress, has_ended, start_stress
from servers import CLOSE, Failed, get, websocket

SUBSCRIBERS = 1000
CLIENTS = 64
RATE = 50  # publications per second: no server is at its limit
SKIPPED = "topic_dropped"  # in ls.stats()
WARM_UP_ROUNDS = 5  # of the connections that come and go
HELLO = "is anybody there?"


def wait_until(condition, what):
    until = time.monotonic() + 30
    while not condition():
        if time.monotonic() > until:
            raise Failed(f"not within 30 s: {what}")
        time.sleep(0.01)


def subscribers(server):
    return sum(int(get(one, "/subscribers")[2]) for one in server.members or (server,))


def summary(process):
    """The end of a run of luaserve stress, as measure.cpu_while requires it, with the 99th percentile of its latency."""
    began = time.monotonic()
    report, used, _ = end_stress(process)
    lost = report["fanout"]["lost"] if report.get("fanout") else 0
    errors = {kind: count for kind, count in report["errors"].items() if count and kind != "total"}
    latency = report["latency_us"]["corrected"] or report["latency_us"]["uncorrected"]
    return {"requests": report["totals"]["requests"], "duration_us": (time.monotonic() - began) * 1e6,
            "errors": {**errors, "lost": lost} if lost else errors,
            "cpu_share": used / (time.monotonic() - process.began), "p99_ms": latency["percentiles"]["p99"] / 1000}


def echo(server, path, program, load_cpu, seconds, size, in_flight=1):
    """CPU per message of `size` bytes, echoed on each of CLIENTS connections in a closed loop."""
    return cpu_while(server, lambda: summary(start_stress(program, load_cpu, "-t1", f"-c{CLIENTS}", f"-d{seconds}",
                                                          "--size", size, "--pipeline", in_flight, server.url(path))))


def fan_out(server, path, program, load_cpu, seconds, size, stalled=0, in_flight=None):
    """CPU per delivery: what one client publishes reaches SUBSCRIBERS others, `stalled` of which do not read. It publishes
    RATE times a second, or has `in_flight` messages on their way."""
    wait_until(lambda: subscribers(server) == 0, "the subscribers of the round before have gone")
    how = ["--fanout", "-t1", f"-c{SUBSCRIBERS - stalled}", f"-d{seconds}", "--publishers", "1", "--size", size,
           "--publish-path", "/pub"]
    how += ["--pipeline", in_flight] if in_flight else ["--rate", RATE]
    how += ["--sse"] if path == "/sse" else ["--compress"] if server.name.endswith(" deflate") else []
    with stalled_subscribers(server, stalled):
        process = start_stress(program, load_cpu, *how, server.url(path, "http" if path == "/sse" else "ws"))
        try:
            wait_until(lambda: subscribers(server) == SUBSCRIBERS or has_ended(process), "all have subscribed")
        except BaseException:
            cancel_stress(process)
            raise
        found = {}
        result = cpu_while(server, lambda: found.update(summary(process)) or found)
        return {**result, "p99_ms": found["p99_ms"]}


def skipped(server):
    return find_number(json.loads(get(server, "/stats")[2]), SKIPPED)


@contextlib.contextmanager
def stalled_subscribers(server, count):
    """Subscribers that do not read: their queues are full when the block begins."""
    with contextlib.ExitStack() as opened:
        for _ in range(count):
            opened.enter_context(websocket(server, "/slow", rcvbuf=4096))
        if count:
            publisher = opened.enter_context(websocket(server, "/pub"))
            before = skipped(server)

            def skips():
                publisher.send(bytes(8192))
                return skipped(server) >= before + count
            wait_until(skips, "the server skips messages for the subscribers that do not read")
        yield


def idle(server, path, program, load_cpu, count):
    """Memory per connection that has had one message echoed."""
    def connect(_):
        ws = websocket(server, path)
        reset_at_end(ws.conn.sock)
        return ws

    def use(ws):
        ws.send(HELLO)
        if ws.receive() != HELLO:
            raise Failed(f"{server.name}: a message was not echoed")

    return idle_connections(server, lambda: echo(server, path, program, load_cpu, 1, 64), use, count, connect)


@contextlib.contextmanager
def subscribed(server, count, number):
    """`count` subscribers, which have all received a message. At the end every second one closes in order, the others
    reset their connections. `number`: of the round."""
    with contextlib.ExitStack() as opened:
        all_of_them = [opened.enter_context(websocket(server, "/sub")) for _ in range(count)]
        message = f"round {number}"
        with websocket(server, "/pub") as publisher:
            publisher.send(message)
            for ws in all_of_them:
                if ws.receive() != message:
                    raise Failed(f"{server.name}: a subscriber received another message")
        yield
        for ws in all_of_them[::2]:
            ws.send_frame(CLOSE)
        for ws in all_of_them[::2]:
            ws.close_frame()
        for ws in all_of_them[1::2]:
            reset_at_end(ws.conn.sock)
    wait_until(lambda: subscribers(server) == 0, "all subscribers have gone")


def at(path, *servers):
    return {name: (name, {"path": path}) for name in servers}


COROUTINE = {"luaserve ws coroutine": ("luaserve ws", {"path": "/coroutine"})}
ECHO = {**at("/echo", "luaserve ws"), **COROUTINE, **at("/echo", "bun", "node")}
FAN_OUT = at("/sub", "luaserve ws", "bun", "node")
DEFLATE = at("/sub", "luaserve ws", "luaserve ws deflate", "bun", "bun deflate", "node", "node deflate")
SSE = {**at("/sub", "luaserve ws"), "luaserve sse": ("luaserve ws", {"path": "/sse"})}
STALLED = {**at("/sub", "luaserve ws"), "luaserve ws, one stalled": ("luaserve ws", {"path": "/sub", "stalled": 1})}
IDLE = {**at("/echo", "luaserve ws"), **COROUTINE, **at("/echo", "bun", "node")}

# section: ({shown name: (server, arguments of its measurement)}, measurement, arguments for all)
LOAD_SECTIONS = {
    "ws-echo": (ECHO, echo, {"size": 64}),
    "ws-echo-16k": (ECHO, echo, {"size": 16384}),
    "ws-echo-burst": (ECHO, echo, {"size": 64, "in_flight": 16}),
    "ws-fanout-64": (FAN_OUT, fan_out, {"size": 64}),
    "ws-fanout-1k": (FAN_OUT, fan_out, {"size": 1024}),
    "ws-burst-4": (FAN_OUT, fan_out, {"size": 64, "in_flight": 4}),
    "ws-burst-16": (FAN_OUT, fan_out, {"size": 64, "in_flight": 16}),
    "ws-fanout-deflate": (DEFLATE, fan_out, {"size": 1024}),
    "ws-sse": (SSE, fan_out, {"size": 64}),
    "ws-stalled": (STALLED, fan_out, {"size": 1024}),
}
SECTIONS = tuple(LOAD_SECTIONS) + ("ws-idle", "ws-churn")
