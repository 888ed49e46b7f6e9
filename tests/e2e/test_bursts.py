"""Bursts: messages that wait for a subscriber leave in one send, and so do the answers to frames that arrived together.

Sends are counted at the client, as segments: on the loopback each send is a segment of its own. A retransmission counts as
well; so what is counted is done again when there were too many.
"""
import json
import unittest

from harness import E2E, SANITIZER, in_parallel, request, system, tls
from harness.websocket import CLOSE, PING, PONG, TEXT, WebSocket, frame

SITE = r"""
local ls = require "luaserve"
ls.config { threads = @THREADS@, threads_max = @THREADS@, @CONFIG@ }
local app = ls.app()
local seen = ls.channel("seen", { capacity = 100000 })
local function subscribe(ws) ws:subscribe("t") ws:send("subscribed") end
app:ws("/sub", { open = subscribe })
app:ws("/sub/deflate", { compress = { min_size = 1 }, open = subscribe })
app:ws("/sub/close", { max_queue = @LIMIT@, open = subscribe })
app:ws("/sub/skip", { max_queue = @LIMIT@, overflow = "skip", open = subscribe })
app:ws("/pub", { message = function(_, data) ls.publish("t", data) end })
app:ws("/echo", { message = function(ws, data) ws:send(data) end })
app:ws("/echo/coroutine", function(ws) for data in ws:messages() do ws:send(data) end end)
app:ws("/mixed", {  -- some of the handlers wait, fail or close
  message = function(ws, data)
    if data == "wait" then ls.sleep(0.001) elseif data == "fail" then error("broken on purpose") end
    ws:send("echo " .. data)
    if data == "close" then ws:close(4000) end
  end,
  close = function(ws, code) seen:send("closed " .. code) end,
})
app:ws("/busy", { message = function(ws, data)
  local until_time = os.clock() + tonumber(data)
  repeat until os.clock() > until_time
  ws:send(data)
end })
app:get("/sse", function(_, res)
  local sse = res:sse()
  sse:subscribe("t")
  sse:send("subscribed")
  sse:wait()
end)
app:post("/burst", function(req)  -- published by one task
  for n = 1, tonumber(req.query.n) do
    ls.publish("t", (req.query.name .. " " .. n .. " "):rep(1 + tonumber(req.query.pad or 0)))
  end
  return 204
end)
app:get("/seen", function() return seen:receive(20) or 504 end)
app:get("/stats", function() return ls.stats() end)
ls.init(function()
  ls.subscribe("t", function(data) seen:send(data) end)
end)
ls.listen { host = "127.0.0.1", port = 0, handler = app }
ls.listen { host = "127.0.0.1", port = 0, handler = app, tls = "self-signed" }
ls.tcp({ host = "127.0.0.1", port = 0 }, function(sock)
  sock:subscribe("t")
  sock:send("subscribed\n")
  sock:receive()
end)
"""
TRIES = 3
FEW, MANY = 3, 16 if SANITIZER else 300  # MANY: more than a batch has


class Subscriber:
    """A WebSocket, a client of server-sent events or of TCP."""

    def __init__(self, server, kind):
        self.kind, self.buffer = kind, b""
        if kind.startswith("/sub"):
            self.ws = WebSocket(server.at(), kind, deflate="deflate" in kind or None)
            self.conn = self.ws.conn
        elif kind == "tls":
            self.ws = WebSocket(server.at(1), "/sub", tls=tls.context())
            self.conn = self.ws.conn
        else:
            self.conn = server.connect(0 if kind == "sse" else 2)
            if kind == "sse":
                self.conn.send(request("GET", "/sse"))
                self.conn.response_head()
        if self.message() != "subscribed":
            raise AssertionError("not subscribed: " + kind)
        self.segments = self.count()

    def message(self):
        if self.kind == "tcp":
            return self.conn.line().decode()
        if self.kind != "sse":
            return self.ws.receive()
        while b"\n\n" not in self.buffer:
            self.buffer += self.conn.take(int(self.conn.line(), 16))
            self.conn.line()
        event, self.buffer = self.buffer.split(b"\n\n", 1)
        return event.decode().replace("data: ", "", 1)

    def messages(self, count):
        return [self.message() for _ in range(count)]

    def count(self):
        """Of segments with data; None: the system does not tell."""
        return system.data_segments(self.conn.sock)

    def sends(self):
        """Since the last call."""
        before, self.segments = self.segments, self.count()
        return None if before is None else self.segments - before


class Bursts(E2E):
    def start(self, threads=1, limit=100000, config=""):
        site = SITE.replace("@THREADS@", str(threads)).replace("@LIMIT@", str(limit)).replace("@CONFIG@", config)
        self.server = self.serve(site, listeners=3)

    def stop(self):
        for conn in self.own_connections:
            conn.close()
        server, self.server = self.server, None
        server.stop()

    def stats(self):
        return json.loads(self.get("/stats").body)

    def subscribe(self, kind, count=FEW):
        subscribers = in_parallel([lambda: Subscriber(self.server, kind) for _ in range(count)])
        for one in subscribers:
            self.owns(one.conn)
        return subscribers

    def burst(self, count, name="x", pad=0):
        answer = self.ask("POST", "/burst?n=%d&name=%s&pad=%d" % (count, name, pad), body=b"")
        self.assertEqual(answer.status, 204, answer.body)
        return [("%s %d " % (name, n)) * (1 + pad) for n in range(1, count + 1)]

    def open(self, path):
        ws = WebSocket(self.server.at(), path)
        self.owns(ws.conn)
        return ws

    def expect_sends(self, most, everyone, publish):
        """publish() returns the messages, which reach each of these subscribers in at most so many sends."""
        for _ in range(TRIES):
            expected = publish()
            for one in everyone:
                self.assertEqual(one.messages(len(expected)), expected, one.kind)
            counted = {(one.kind, one.sends()) for one in everyone}
            if all(sends is None or 0 < sends <= most for _, sends in counted):
                return
        self.fail("%d sends expected: %r" % (most, counted))

    # ---- topics

    def test_one_task_publishes(self):
        self.start()
        everyone = [one for kind in ("/sub/deflate", "tls", "sse", "tcp") for one in self.subscribe(kind)]
        everyone += self.subscribe("/sub", MANY)

        def publish(count):
            expected = self.burst(count)
            self.assertEqual([self.get("/seen").text for _ in expected], expected)  # the function
            return expected

        for count, sends in ((1, 1), (16, 1), (64, 1), (200, 4)):
            self.expect_sends(sends, everyone, lambda n=count: publish(n))

    def test_longer_messages(self):
        """They are sent from their own blocks. Up to 64 KiB leave together."""
        self.start()
        everyone = [one for kind in ("/sub", "sse", "tcp") for one in self.subscribe(kind)]
        self.expect_sends(1, everyone, lambda: self.burst(6, pad=1000))  # 4 KB each
        expected = self.burst(2, pad=20000)
        for one in everyone:
            self.assertEqual(one.messages(2), expected, one.kind)

    def test_one_client_publishes_in_one_segment(self):
        self.start()
        everyone = [one for kind in ("/sub", "sse", "tcp") for one in self.subscribe(kind)]
        publisher = self.open("/pub")

        def publish():
            publisher.send_raw(b"".join(frame(TEXT, b"m %d" % n) for n in range(40)))
            return ["m %d" % n for n in range(40)]

        self.expect_sends(1, everyone, publish)

    def test_several_publishers(self):
        """In several states. Everything arrives once, in the order of each publisher."""
        self.start(threads=3)
        everyone = [one for kind in ("/sub", "/sub/deflate", "tls", "sse", "tcp") for one in self.subscribe(kind)]
        everyone += self.subscribe("/sub", MANY)
        publishers, each, size = [self.open("/pub") for _ in range(6)], 5, 16

        def publish(p):
            for n in range(0, each * size, size):
                publishers[p].send_raw(b"".join(frame(TEXT, b"%d %d" % (p, n + k)) for k in range(size)))

        def check(name, messages):
            for p in range(len(publishers)):
                mine = [int(message.split()[1]) for message in messages if message.startswith("%d " % p)]
                self.assertEqual(mine, list(range(each * size)), name)

        in_parallel([lambda p=p: publish(p) for p in range(len(publishers))])
        total = len(publishers) * each * size
        for one in everyone:
            check(one.kind, one.messages(total))
        check("function", [self.get("/seen").text for _ in range(total)])
        self.assertEqual(self.stats()["topic_dropped"], 0)

    def test_the_limit_of_a_queue(self):
        """A burst of nine frames of 100 bytes fits into a queue, or its last frame does not."""
        for limit, fit in ((900, 9), (899, 8)):
            self.start(limit=limit)
            closes, skips = self.subscribe("/sub/close", 1)[0], self.subscribe("/sub/skip", 1)[0]
            expected = self.burst(9, name="x" * 95)
            for one in (closes, skips):
                self.assertEqual(one.messages(fit), expected[:fit])
            if fit < 9:
                self.assertEqual(closes.ws.closes()[0], 1013)
                full = r"WebSocket /sub/close \(.*site.lua:[0-9]+\) from [\w.:\[\]]+: closed with 1013: its queue"
                self.server.wait_log(full)
                self.assertEqual(len(self.server.logged("closed with 1013")), 1)
            later = self.burst(1, name="later")
            for one in (skips,) if fit < 9 else (closes, skips):
                self.assertEqual(one.messages(1), later)
            self.assertEqual(self.stats()["topic_closed"], 9 - fit)
            self.assertEqual(self.stats()["topic_dropped"], 2 * (9 - fit))
            self.stop()

    # ---- frames

    def test_echoes_of_one_segment(self):
        self.start()
        for path in ("/echo", "/echo/coroutine"):
            ws = self.open(path)
            self.assertEqual(ws.send("first").receive(), "first")
            texts, counted = ["%d" % n * 20 for n in range(16)], []
            for _ in range(TRIES):
                before = system.data_segments(ws.conn.sock)
                ws.send_raw(b"".join(frame(TEXT, text.encode()) for text in texts))
                self.assertEqual([ws.receive() for _ in texts], texts)
                counted.append(1 if before is None else system.data_segments(ws.conn.sock) - before)
            self.assertIn(1, counted, path)

    def test_handlers_of_one_segment(self):
        """One after the other, whatever they do. What follows a failure or a close is not handled."""
        self.start()
        for texts, answers, code in (
                (["a", "b", "wait", "c", "wait", "wait", "d"], 7, None), (["a", "b", "fail", "c"], 2, 1011),
                (["a", "wait", "fail", "c"], 2, 1011), (["a", "close", "c", "wait"], 2, 4000)):
            ws = self.open("/mixed")
            ws.send_raw(b"".join(frame(TEXT, text.encode()) for text in texts))
            self.assertEqual([ws.receive() for _ in range(answers)], ["echo " + text for text in texts[:answers]])
            if code is not None:
                self.assertEqual(ws.closes()[0], code)
            else:
                self.assertEqual(ws.close()[0], 1000)
            self.assertEqual(self.get("/seen").text, "closed %d" % (code or 1000))

    def test_control_frames_between_messages(self):
        self.start()
        ws = self.open("/mixed")
        ws.send_raw(frame(TEXT, b"a") + frame(PING, b"1") + frame(TEXT, b"b", fin=False) + frame(PING, b"2") +
                    frame(0, b"c") + frame(CLOSE, b"\x03\xe8bye") + frame(TEXT, b"late"))
        got = [ws.read_frame() for _ in range(5)]
        self.assertEqual([(one.opcode, one.payload) for one in got],
                         [(TEXT, b"echo a"), (PONG, b"1"), (PONG, b"2"), (TEXT, b"echo bc"), (CLOSE, b"\x03\xe8")])
        self.assertEqual(self.get("/seen").text, "closed 1000")

    def test_many_frames_of_one_segment(self):
        """More than are handled without a look at other packets."""
        self.start()
        ws, count = self.open("/echo"), 3000
        ws.send_raw(b"".join(frame(TEXT, b"%d" % n) for n in range(count)))
        self.assertEqual([ws.receive() for _ in range(count)], ["%d" % n for n in range(count)])

    @unittest.skipIf(SANITIZER == "tsan", "ThreadSanitizer delays signals while Lua loops")
    def test_each_message_has_its_own_processor_time(self):
        self.start(config="max_cpu = 0.3")
        ws = self.open("/busy")
        ws.send_raw(b"".join(frame(TEXT, b"0.1") for _ in range(6)))
        self.assertEqual([ws.receive() for _ in range(6)], ["0.1"] * 6)
        ws.send_raw(frame(TEXT, b"0.1") + frame(TEXT, b"100") + frame(TEXT, b"0.1"))
        self.assertEqual(ws.receive(), "0.1")
        self.assertEqual(ws.closes()[0], 1011)
        self.server.wait_log("more processor time than max_cpu")
