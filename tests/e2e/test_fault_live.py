"""Faults of live connections: the k-th allocation, send or receive fails, for every k of a scenario with WebSockets,
server-sent events and a TCP connection that subscribe to a topic.

After a fault a subscriber has each message that was published, in order, or its connection has ended: none misses a message
and goes on. See test_fault.py."""
import json

from harness import TimedOut
from harness.conn import Closed
from harness.fault import FaultCase, Sweeps
from harness.websocket import CloseFrame, WebSocket

SITE = r"""
local ls = require "luaserve"
local app = ls.app()
app:get("/", function() return "root" end)
app:ws("/echo", { compress = { context = true } }, function(ws)
  for data, kind in ws:messages() do ws:send(data, kind) end
end)
local function subscribe(object)
  assert(object:subscribe("live"))
  assert(object:send("ready\n"))
end
app:ws("/sub", { compress = true, open = subscribe })
app:get("/sse", function(req, res)
  local sse = assert(res:sse())
  subscribe(sse)
  sse:wait()
end)
app:post("/publish", function(req)
  local sizes, codes = req:json(), {}
  for n, size in ipairs(sizes) do
    local _, _, code = ls.publish("live", (size .. " "):rep(size // #(size .. " ")), { id = tostring(n) })
    codes[n] = code or "published"
  end
  return codes
end)
ls.listen { host = "127.0.0.1", port = 0, handler = app }
ls.tcp({ host = "127.0.0.1", port = 0 }, function(sock) subscribe(sock) sock:receive() end)
"""
# Short ones are copied into a queue, long ones shared; with 256 bytes the compression begins.
TOGETHER, ALONE, LAST = [20, 300, 3000], 400, 100
PATIENCE = 6


def text_of(size):
    word = "%d " % size
    return word * (size // len(word))


class Subscriber:
    """A connection whose messages are strings. next() raises Closed, CloseFrame or OSError at its end."""

    def __init__(self, conn, following):
        self.conn, self.next = conn, following


def websocket(deflate):
    def begin(server):
        ws = WebSocket(server.at(), "/sub", deflate=deflate, timeout=PATIENCE)
        return Subscriber(ws.conn, ws.receive)
    return begin


def events(server):
    conn = server.connect(timeout=PATIENCE)
    text = [b""]
    conn.send(b"GET /sse HTTP/1.1\r\nHost: h\r\n\r\n")
    if conn.response_head().status != 200:
        conn.close()
        raise Closed("no stream of events")

    def following():
        while b"\n\n" not in text[0]:
            size = int(conn.line(b"\r\n"), 16)
            if size == 0:
                raise Closed("the stream has ended")
            text[0] += conn.take(size)
            conn.take(2)
        event, text[0] = text[0].split(b"\n\n", 1)
        return "\n".join(line[6:] for line in event.decode().split("\n") if line.startswith("data: "))

    return Subscriber(conn, following)


def tcp(server):
    conn = server.connect(1, timeout=PATIENCE)
    return Subscriber(conn, lambda: conn.line().decode())


KINDS = {"WebSocket": websocket(None), "compressed": websocket(True), "events": events, "tcp": tcp}


class LiveFaults(Sweeps, FaultCase):
    FAULT_SITE = SITE
    LISTENERS = 2

    def echo(self, server):
        with WebSocket(server.at(), "/echo", deflate="permessage-deflate", timeout=PATIENCE) as ws:
            for text in (text_of(300), text_of(5000)):
                got = ws.send(text, compress=ws.deflate is not None).receive()
                if got != text:
                    raise ValueError("/echo: a wrong message of %d bytes" % len(got))

    def subscriber(self, server, kind):
        got = KINDS[kind](server)
        if got.next().strip() != "ready":
            raise ValueError("%s: it is not ready" % kind)
        return got

    def publish(self, server, sizes):
        """The result of each message; "unknown" without a response."""
        with server.connect(timeout=PATIENCE) as conn:
            response = conn.ask("POST", "/publish", {"Content-Type": "application/json"}, json.dumps(sizes).encode())
            return json.loads(response.body) if response.status == 200 else ["unknown"] * len(sizes)

    def attempt(self, must_work, what, call, *args, otherwise=None):
        try:
            return call(*args)
        except (AssertionError, OSError) as error:
            if isinstance(error, (TimedOut, TimeoutError)) or must_work:
                raise ValueError("%s: %s%s" % (what, "" if must_work else "hangs: ", error)) from None
            return otherwise

    def got_all(self, kind, subscriber, codes, must_work):
        """Read up to the last message, and compare with what was published."""
        sure = [text_of(size) for size, code in codes if code == "published"]
        known = set(text_of(size) for size, code in codes if code != "unknown")
        got, ended = [], None
        while not got or got[-1] != text_of(LAST):
            try:
                got.append(subscriber.next().rstrip("\n"))
            except TimedOut:
                raise ValueError("%s: no further message after %r" % (kind, [len(text) for text in got])) from None
            except (Closed, CloseFrame, OSError) as error:
                ended = error
                break
        mine = [text for text in got if text in known]
        want = sure[:len(mine)] if ended and not must_work else sure
        if mine != want:
            raise ValueError("%s: %r of %r, %s" % (kind, [len(text) for text in mine], codes, ended or "goes on"))

    def scenario(self, server, must_work=False):
        subscribers = {}
        try:
            self.attempt(must_work, "/echo", self.echo, server)
            for kind in KINDS:
                subscribers[kind] = self.attempt(must_work, kind, self.subscriber, server, kind)
            codes = []
            for sizes in (TOGETHER, [ALONE]):
                results = self.attempt(must_work, "publish", self.publish, server, sizes, otherwise=["unknown"] * len(sizes))
                codes += zip(sizes, results)
            self.orders.disarm()
            codes += zip([LAST], self.attempt(True, "publish", self.publish, server, [LAST]))
            for kind, subscriber in subscribers.items():
                if subscriber is not None:
                    self.got_all(kind, subscriber, codes, must_work)
        finally:
            for subscriber in subscribers.values():
                if subscriber is not None:
                    subscriber.conn.close()
