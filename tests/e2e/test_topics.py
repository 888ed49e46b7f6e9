"""Topics: ls.publish, ls.subscribe, sock:subscribe between states; order, retained messages, limits, reload and stop."""
# wine: none; the states of a server, the same on every system; test_websocket and test_sse publish there
import json
import os
import re
import threading

from harness import E2E, app_site, beside, in_parallel, read_text, repeats, request, write_text
from harness.websocket import WebSocket

# Lines from a TCP client: "sub TOPIC", "unsub TOPIC", "pub TOPIC DATA", each answered by a line that begins with "=";
# "end return", "end error", "end close", "end shutdown", "end burst".
SITE = r"""
local ls = require "luaserve"
local app = ls.app()
local last -- the latest connection
@MORE@
app:post("/pub/:topic", function(req)
  local count, message, code = ls.publish(req.params.topic, req:body(), { kind = "binary", retain = req.query.retain == "1" })
  return { count = count, message = message, code = code }
end)
app:post("/burst/:topic", function(req)  -- numbers, published by one task
  for n = tonumber(req.query.from), tonumber(req.query.to) do
    assert(ls.publish(req.params.topic, req.query.name .. " " .. n .. ("."):rep(tonumber(req.query.pad or 0))))
  end
  return 204
end)
app:get("/topics", function(req) return { topics = ls.topics(req.query.prefix) } end)
app:get("/stats", function() return ls.stats() end)
app:get("/", function() return "here" end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.tcp({ host = "127.0.0.1", port = 0, @TCP@ }, function(sock)
  last = sock
  for line in sock:lines() do
    local verb, topic, data = line:match("^(%a+) (%S+) ?(.*)$")
    local result, _, code
    if verb == "end" and topic == "return" then return
    elseif verb == "end" and topic == "error" then error("as asked")
    elseif verb == "end" and topic == "burst" then
      for n = 1, 3 do ls.publish("y", n .. ("x"):rep(60000)) end
      return
    elseif verb == "end" then return sock[topic](sock) end
    if verb == "sub" then result, _, code = sock:subscribe(topic)
    elseif verb == "unsub" then result, _, code = sock:unsubscribe(topic)
    else result, _, code = ls.publish(topic, data) end
    sock:send("= ", tostring(result), " ", tostring(code), "\n")
  end
  ls.log.info("the loop ended with " .. sock.ended .. ", a send with " .. tostring(select(3, sock:send(""))))
end)
"""
THREADS = "ls.config{ threads = 3 }"
ONE_STATE = "ls.config{ threads = 1, threads_max = 1 }"


OF_CONNECTIONS = r"""
local ls = require "luaserve"
ls.config{ states = 1 }
local app = ls.app()
local pages = {}
ls.subscribe("t", function(data) for page in pairs(pages) do page:send("of the state " .. data) end end) -- line 6
app:ws("/live", {
  open = function(ws)
    pages[ws] = true
    ls.subscribe("t", function(data) ws:send("own " .. data) end)
    ws:send("open")
  end,
  message = function(ws, text) ws:send(tostring(ls.subscribe("t", function(data) ws:send("late " .. data) end) ~= nil)) end,
  close = function(ws) pages[ws] = nil end,
})
app:get("/publish/:n", function(req) return ls.publish("t", req.params.n) .. "" end)
app:get("/count", function() return (ls.topics().t or 0) .. "" end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.tcp({ host = "127.0.0.1", port = 0 }, function(sock)
  local own = assert(ls.subscribe("t", function(data) sock:send("own ", data, "\n") end))
  sock:send("open\n")
  for line in sock:lines() do if line == "remove" then own:remove() sock:send("removed\n") end end
end)
"""


class Topics(E2E):
    def start(self, more=THREADS, tcp="", **kw):
        self.server = self.serve(SITE.replace("@MORE@", more).replace("@TCP@", tcp), listeners=2, **kw)
        return self.server

    def client(self, *topics, **kw):
        conn = self.connect(1, **kw)
        for topic in topics:
            self.tell(conn, "sub " + topic)
        return conn

    def tell(self, conn, line, result="true nil"):
        conn.send(line.encode() + b"\n")
        self.assertEqual(conn.line().decode(), "= " + result, line[:100])

    def publish(self, topic, data, count=None, **query):
        target = "/pub/%s?%s" % (topic, "&".join("%s=%s" % item for item in query.items()))
        answer = json.loads(self.ask("POST", target, body=data).body)
        if count is not None:
            self.assertEqual(answer.get("count"), count, answer)
        return answer

    def burst(self, topic, name, to, first=1, pad=0):
        answer = self.ask("POST", "/burst/%s?name=%s&from=%d&to=%d&pad=%d" % (topic, name, first, to, pad), body=b"")
        self.assertEqual(answer.status, 204, answer.body)

    def stats(self):
        return json.loads(self.get("/stats").body)

    def topics(self, prefix=""):
        return json.loads(self.get("/topics?prefix=" + prefix).body)["topics"] or {}

    # ---- between states

    def test_subscriptions_end(self):
        self.start()
        first, second = self.client("a", "b"), self.client("a")
        self.assertEqual(self.topics(), {"a": 2, "b": 1})
        self.assertEqual(self.topics("b"), {"b": 1})
        self.tell(first, "sub a")  # again: no effect
        self.tell(first, "unsub a")
        self.tell(first, "unsub a", "nil ENOENT")
        self.tell(first, "unsub never", "nil ENOENT")
        self.publish("a", b"1", 1)
        self.publish("b", b"2", 1)
        self.assertEqual(first.line(), b"2")
        self.assertEqual(second.line(), b"1")
        first.close()
        second.reset()
        self.eventually(lambda: self.topics() == {}, "the topics of closed connections end")
        self.publish("a", b"1", 0)

    def test_the_end_of_a_sock_sends_what_was_published_before(self):
        for more in (THREADS, ONE_STATE):
            server = self.start(more)
            for way in ("return", "error", "close", "shutdown"):
                own = self.connect(1)
                own.send(b"sub y\nsub z\n" + b"".join(b"pub %s %d\n" % (b"yz"[n % 2:][:1], n) for n in range(100))
                         + b"end " + way.encode() + b"\n")
                lines = own.rest().split(b"\n")
                self.assertEqual([line for line in lines if not line.startswith(b"=")],
                                 [b"%d" % n for n in range(100)] + [b""], way)
                self.assertEqual(lines.count(b"= 1 nil"), 100, way)
                for _ in range(repeats(40)):  # published by another one, in this state or in another
                    other, own = self.connect(1), self.client("w")
                    self.tell(other, "pub w x", "1 nil")
                    own.send(b"end " + way.encode() + b"\n")
                    self.assertEqual(own.rest(), b"x\n", way)
                    other.close()
            self.eventually(lambda: self.topics() == {}, "all subscriptions have ended")
            self.assertEqual(self.stats()["topic_dropped"], 0)
            server.wait_log("as asked")
            server.stop()

    def test_the_end_of_a_sock_whose_queue_is_full(self):
        for limit, arrives in (("200000", b"123"), ("100000", b"")):  # nothing arrives of what has a gap
            server = self.start(ONE_STATE, tcp="max_queue = " + limit)
            own = self.client("y")
            own.send(b"end burst\n")
            self.assertEqual(own.rest().replace(b"x", b"").replace(b"\n", b""), arrives)
            self.assertEqual(self.stats()["topic_closed"], int(not arrives))
            self.assertEqual(self.topics(), {})
            server.stop()

    def test_retained_messages(self):
        self.start()
        self.publish("t", b"one", 0, retain=1)
        self.publish("t", b"two", 0, retain=1)
        self.publish("t", b"not retained", 0)
        late = self.connect(1)
        late.send(b"sub t\n")
        self.assertEqual([late.line(), late.line()], [b"two", b"= true nil"])
        self.assertEqual(self.stats()["topic_retained_bytes"], 256 + 1 + 3)
        self.publish("t", b"", 1, retain=1)
        self.assertEqual(late.line(), b"")
        later = self.client("t")
        self.publish("t", b"end", 2)
        self.assertEqual(later.line(), b"end")
        self.assertEqual(self.stats()["topic_retained_bytes"], 0)

    def test_the_limit_of_retained_messages(self):
        self.start()
        for n in range(16):  # of a million bytes each; test_topic.c tests the limit to the byte
            self.publish("t%d" % n, b"x" * 1000000, 0, retain=1)
        full = r"warn the retained messages of all topics have reached their limit \(16 MiB\): .*: 1, the last one of t16;"
        self.assertEqual(self.server.logged(full), [])
        client = self.client("t16")
        for _ in range(3):  # what cannot be kept is delivered
            self.publish("t16", b"x" * 1000000, 1, retain=1)
            self.assertEqual(len(client.line()), 1000000)
        self.server.wait_log(full)
        self.assertEqual(len(self.server.logged(full)), 1)

    def test_usage_errors(self):
        self.start(more=r"""
ls.config{ threads = 1 }
app:get("/errors", function()
  local function says(...) local ok, message = pcall(...) return ok and "no error" or message end
  local closed
  return { list = {
    says(ls.publish), says(ls.publish, 7, "x"), says(ls.publish, "", "x"), says(ls.publish, ("n"):rep(1025), "x"),
    says(ls.publish, ("n"):rep(2^20), "x"), says(ls.publish, ("n"):rep(1024), "x"),
    says(ls.publish, "t", "\xff"), says(ls.publish, "t", "\xff", "binary"), says(ls.publish, "t", true),
    says(ls.publish, "t", "x", "txt"), says(ls.publish, "t", "x", { kind = "json" }), says(ls.publish, "t", "x", { retian = true }),
    says(ls.publish, "t", "x", { retain = 0 }), says(ls.publish, "t", { f = print }), says(ls.publish, "t", {}, "binary"),
    says(ls.publish, "t", "x", { id = 7 }), says(ls.publish, "t", "x", { id = "" }), says(ls.publish, "t", "x", { event = "a\nb" }),
    says(ls.publish, "t", "x", { event = "a\0b" }), says(ls.publish, "t", "x", { id = ("i"):rep(1025) }),
    says(ls.publish, "t", "x", { id = ("i"):rep(1024), event = "e" }), says(ls.publish, "t", "x", { id = true }), says(ls.subscribe, "t"), says(ls.subscribe, ("n"):rep(1025), print),
    says(ls.subscribe, "t", print, { each = true }), says(ls.topics, print),
    says(ls.subscribe("t", print).remove, {}),
  } }
end)
""")
        says = json.loads(self.get("/errors").body)["list"]
        for message, part in zip(says, [
                "topic (a string) expected", "topic (a string) expected", "the topic must not be empty",
                "the topic has 1025 bytes; at most 1024 are possible", "the topic has 1048576 bytes; at most 1024",
                "no error", "not valid UTF-8; publish it with the kind \"binary\"", "no error",
                "string, number, table or buffer expected, got boolean", "the kind must be \"text\" or \"binary\"",
                "kind must be \"text\" or \"binary\"", "unknown option 'retian'; the options are kind, retain, event and id",
                "retain must be true, false or the number of messages to keep, from 1 to 1000", "function", "a table is encoded as JSON text",
                "id must be a string, got number", "id has 0 bytes; 1 to 1024 are possible", "event must be UTF-8 without NUL, CR and LF",
                "event must be UTF-8 without NUL", "id has 1025 bytes", "no error", "id = true needs retain, as in { retain = 100, id = true }", "function expected",
                "the topic has 1025 bytes", "unknown option \"each\"; did you mean 'each_state'", "string expected", "subscription expected"], strict=True):
            self.assertIn(part, message)

    def test_publish_while_the_site_loads(self):
        self.refuses("local ls = require 'luaserve' ls.publish('t', 'x')",
                     "ls.publish: cannot be called while the site loads")

    def test_kinds_of_data(self):
        self.start(more=THREADS + r"""
app:post("/kinds", function()
  local long = ls.buffer(("b"):rep(70000), ("c"):rep(70000))
  return { list = { ls.publish("t", 7), ls.publish("t", 1.5), ls.publish("t", { a = { 1, "x" } }), ls.publish("t", ls.buffer("buf")),
    ls.publish("t", long), ls.publish("t", ls.buffer()), ls.publish("t", ("s"):rep(100000)), ls.publish("t", ("j"):rep(20000)) } }
end)
""")
        reader = self.client("t")
        self.assertEqual(json.loads(self.ask("POST", "/kinds").body)["list"], [1] * 8)
        self.assertEqual([reader.line() for _ in range(8)],
                         [b"7", b"1.5", b'{"a":[1,"x"]}', b"buf", b"b" * 70000 + b"c" * 70000, b"", b"s" * 100000, b"j" * 20000])

    def test_a_sock_has_at_most_1000_topics(self):
        self.start()
        conn = self.connect(1)
        conn.send(b"".join(b"sub %d\n" % n for n in range(1000)))
        for _ in range(1000):
            self.assertEqual(conn.line(), b"= true nil")
        self.tell(conn, "sub more", "nil ELIMIT")
        self.tell(conn, "unsub 5")
        self.tell(conn, "sub more")

    def test_a_closed_sock(self):
        self.start(more=THREADS + r"""
app:get("/closed", function(req)
  local sock = ls.connect("127.0.0.1", tonumber(req.query.port))
  local first = sock:subscribe("t")
  sock:shutdown("send")
  local _, message, code = sock:subscribe("u")
  sock:close()
  return { list = { first, message, code, (select(3, sock:subscribe("t"))), (select(3, sock:unsubscribe("t"))),
    tostring(next(ls.topics())) } }
end)
""")
        self.assertEqual(json.loads(self.get("/closed?port=%d" % self.server.port(1)).body)["list"],
                         [True, "closed", "ECLOSED", "ECLOSED", "ECLOSED", "nil"])

    # ---- functions

    def test_what_a_handler_begins_ends_with_its_client(self):
        self.server = self.serve(app_site(r"""
local function begin(send)
  ls.subscribe("kept", send)
  ls.every(0.001, function() ls.dict("ticks"):incr("n") end)
end
app:get("/ticks", function() return tostring(ls.dict("ticks").n) end)
app:get("/topics", function() return { topics = ls.topics() } end)
app:get("/begins", function(_, res) local sse = res:sse() begin(function(data) sse:send(data) end) sse:wait() end)
app:ws("/form", function(ws) begin(function(data) ws:send(data) end) for _ in ws:messages() do end end)
app:ws("/events", { open = function(ws) begin(function(data) ws:send(data) end) end })
app:get("/job", function() ls.spawn(function() ls.subscribe("job", print) end):wait() return 204 end)
""") + 'ls.tcp({ host = "127.0.0.1", port = 0 }, function(sock) begin(print) sock:receive(1) end)', listeners=2)

        def opened(path):
            conn = self.connect()
            conn.send(request("GET", path))
            return conn
        for begin in (lambda: opened("/begins"), lambda: WebSocket(self.server.at(0), "/form"),
                      lambda: WebSocket(self.server.at(0), "/events"), lambda: self.connect(1)):
            conns = [begin() for _ in range(3)]
            self.eventually(lambda: self.topics().get("kept") == 3, "they have subscribed")
            for conn in conns:
                conn.close()
            self.eventually(lambda: self.topics().get("kept") is None, "none is left")
            ticks = [self.get("/ticks").text for _ in range(20)]
            self.assertEqual(ticks[-1], ticks[0])  # no timer, either
        self.assertEqual(self.get("/job").status, 204)
        self.assertEqual(self.topics().get("job"), 1)

    def test_a_function_that_ends_with_its_request_unused_is_reported_once(self):
        self.start(more=r"""
ls.config { states = 1 }
app:get("/leaks", function(req, res)
  local sse = res:sse()
  ls.subscribe("leak", function(data) sse:send(data) end) -- here
  sse:send("begun")
end)
app:get("/removes", function() ls.subscribe("other", print):remove() return 204 end)
""")
        mark = self.server.mark()
        self.assertEqual(self.get("/removes").status, 204)
        for _ in range(3):
            self.assertEqual(self.get("/leaks").text, "data: begun\n\n")
        self.server.wait_log(r"warn \S*site\.lua:\d+: ls\.subscribe: the function has ended with its request", mark)
        self.assertNotIn("leak", self.topics())
        self.assertEqual(len(self.server.logged("the function has ended with its request", mark)), 1)

    def test_a_function_runs_one_at_a_time_in_order(self):
        self.start(more=THREADS + r"""
local seen = ls.channel("seen", { capacity = 10000 })
local running = 0
ls.init(function()
  ls.subscribe("t", function(data, topic)
    running = running + 1
    assert(running == 1 and topic == "t")
    if data:find(" 5$") then running = 0 error("at five") end
    ls.sleep(0.0001)
    running = running - 1
    seen:send(data)
  end)
end)
app:get("/seen", function(req)
  local list = {}
  for n = 1, tonumber(req.query.count) do list[n] = assert(seen:receive(20)) end
  return { list = list }
end)
""")
        self.eventually(lambda: self.topics() == {"t": 1}, "ls.init has subscribed")
        self.burst("t", "x", 300)
        seen = json.loads(self.get("/seen?count=299").body)["list"]
        self.assertEqual(seen, ["x %d" % n for n in range(1, 301) if n != 5])
        self.server.wait_log("in a function of ls.subscribe.*at five")

    def test_the_queue_of_a_function(self):
        """One message runs, 1,000 wait, one past that is dropped."""
        self.start(more=ONE_STATE + r"""
local gate, count = ls.channel("gate"), 0
ls.subscribe("t", function(data)
  count = count + 1
  if count == 1 then ls.log.info("entered") gate:receive() end
  if count == 1001 then ls.log.info("all: " .. data) end
end)
app:get("/open", function() gate:send(true) return 204 end)
app:get("/count", function() return { count = count } end)
""")
        self.burst("t", "x", 1)
        self.server.wait_log("entered")
        self.burst("t", "x", 1001, first=2)
        self.eventually(lambda: self.stats()["topic_delivered"] == 1001, "the queue takes 1,000")
        self.assertEqual(self.stats()["topic_dropped"], 0)
        self.burst("t", "x", 1002, first=1002)
        self.eventually(lambda: self.stats()["topic_dropped"] == 1, "one past it is dropped")
        self.server.wait_log("the function of topic 't' lags: messages are dropped while 1000 wait")
        self.get("/open")
        self.server.wait_log("all: x 1001")
        self.assertEqual(json.loads(self.get("/count").body)["count"], 1001)

    def test_a_removed_function(self):
        self.start(more=ONE_STATE + r"""
local gate, calls, s = ls.channel("gate"), 0, nil
s = ls.subscribe("t", function() calls = calls + 1 gate:receive() end)
app:get("/remove", function() s:remove() s:remove() gate:send(true) return tostring(s) end)
app:get("/calls", function() return { calls = calls } end)
""")
        self.burst("t", "x", 3)
        self.eventually(lambda: json.loads(self.get("/calls").body)["calls"] == 1, "the first call")
        self.assertEqual(self.get("/remove").text, "subscription of 't' (removed)")
        self.publish("t", b"x", 0)
        self.assertEqual(json.loads(self.get("/calls").body)["calls"], 1)

    def test_a_function_of_the_server_handles_each_message_once(self):
        """It ran once in each state, and so a multiple under load, which makes states."""
        self.start(more=THREADS + r"""
local counts, timer, started = ls.dict("counts"), nil, nil
local function count(name) return function() counts:incr(name) end end
local top = ls.subscribe("t", count "top")
ls.subscribe("t", count "each", { each_state = true })
ls.init(function() ls.subscribe("t", count "init") end)
ls.on("start", function()
  started, timer = ls.subscribe("t", count "start"), ls.every(3600, print)
  ls.after(0, count "after")
  ls.after({ seconds = 0, each_state = true }, count "later")
end)
app:get("/work", function() -- further states are made
  local begun = os.clock()
  while os.clock() - begun < 0.02 do end
  ls.publish("t", "x")
  return 204
end)
app:get("/count/:name", function(req) return tostring(counts:get(req.params.name) or 0) end)
app:get("/calls", function()
  local function try(fn, it) local ok, message = pcall(fn, it) return ok and "ok" or message end
  return tostring(top) .. try(timer.cancel, timer) .. try(started.remove, started)
end)
app:get("/remove", function() top:remove() return tostring(top) end)
""")

        def count(name):
            return int(self.get("/count/" + name).text)

        in_parallel([lambda: self.get("/work").status] * 40)
        self.eventually(lambda: [count(name) for name in ("top", "init", "start")] == [40] * 3, "each message once")
        self.assertGreater(count("each"), 80)
        self.assertEqual(count("after"), 1)
        self.assertGreater(count("later"), 2)
        calls = {self.get("/calls").text for _ in range(20)}
        self.assertTrue(any("subscription of 't'" in text and re.search(r"timer:cancel: it was made in ls.on.*subscription:remove: it "
                            r"was made in ls.on", text) for text in calls), calls)
        self.assertEqual({self.get("/remove").text for _ in range(20)}, {"subscription of 't' (removed)"})
        before = count("top")
        self.publish("t", b"x")
        self.eventually(lambda: count("init") == 41, "it is handled")
        self.assertEqual(count("top"), before)

    # ---- slow subscribers

    def test_a_subscriber_that_does_not_read_is_closed(self):
        self.start(tcp='max_queue = "64k"')
        stalled = self.client("t", rcvbuf=4096)  # never reads again
        reader = self.client("t")
        got, sent = [], 0
        while self.stats()["topic_closed"] == 0:
            self.assertLess(sent, 200000)
            self.burst("t", "x", sent + 20, first=sent + 1, pad=1000)
            sent += 20
            got += [reader.line() for _ in range(20)]
        self.publish("t", b"x end", 1)
        self.assertEqual(reader.line(), b"x end")
        self.assertEqual([int(line.split()[1].rstrip(b".")) for line in got], list(range(1, sent + 1)))
        self.assertEqual(self.topics(), {"t": 1})
        self.eventually(lambda: self.stats()["topic_dropped"] == 1, "the message is counted")
        self.server.wait_log("the loop ended with ELIMIT, a send with ELIMIT")
        self.assertEqual(len(self.server.logged("connection from .*: closed: its queue is longer than max_queue")), 1)
        stalled.close()

    def test_a_subscriber_whose_send_times_out_is_closed(self):
        """Its queue is shorter than max_queue, but the rest of it is dropped."""
        self.start(more=ONE_STATE + '\napp:get("/impatient", function() last:settimeouts(nil, 0.2) return 204 end)',
                   tcp='max_queue = "100m"')
        stalled = self.client("t", rcvbuf=4096)
        self.assertEqual(self.get("/impatient").status, 204)
        reader = self.client("t")
        self.burst("t", "x", 40, pad=500000)
        for n in range(40):
            self.assertEqual(reader.line().rstrip(b"."), b"x %d" % (n + 1))
        self.eventually(lambda: self.topics() == {"t": 1}, "the connection is closed")
        self.publish("t", b"end", 1)
        self.assertEqual(reader.line(), b"end")
        self.assertNotIn(b"end", stalled.rest())

    def test_max_queue_to_the_byte(self):
        """One task publishes, so that one batch delivers: ten lines of 100 bytes, which are sent at its end."""
        for limit, closes in ((1000, 0), (999, 1)):
            self.start(more=ONE_STATE + '\napp:get("/queued", function() return tostring(last.queued) end)',
                       tcp="max_queue = %d" % limit)
            reader = self.client("t")
            self.ask("POST", "/burst/t?name=x&from=1&to=9&pad=96", body=b"")  # "x 1" and 96 dots and a line feed
            for _ in range(9):
                self.assertEqual(len(reader.line()), 99)
            self.eventually(lambda: self.get("/queued").text == "0", "the queue is empty: the last send has completed")
            self.ask("POST", "/burst/t?name=x&from=0&to=9&pad=96", body=b"")
            lines = reader.rest() if closes else b"".join(reader.line() + b"\n" for _ in range(10))
            self.assertEqual(len(lines), 0 if closes else 1000)
            self.eventually(lambda: self.stats()["topic_closed"] == closes, "the close is counted")
            self.server.stop()
        self.server = None

    # ---- reload, stop, growth

    def fixed_ports(self):
        """Write the site again, for a reload, with the ports that it listens on."""
        fixed = read_text(self.server.site)
        for port in (self.server.port(0), self.server.port(1)):  # in the order of the calls  # in the order of the calls
            fixed = fixed.replace("port = 0", "port = %d" % port, 1)
        write_text(self.server.site + ".new", fixed)
        os.replace(self.server.site + ".new", self.server.site)

    def test_a_reload_counts_each_message_once(self):
        """A function of the previous site has not ended yet, because its state is busy. It ignores the messages of the new site."""
        self.start(more=r"""
ls.config{ threads = 2, threads_max = 2 }
ls.subscribe("t", function() end, { each_state = true })
app:get("/busy", function()
  assert(io.open("busy", "w")):close()
  local over
  repeat over = io.open("over") until over
  over:close()
  return 204
end)
""")
        self.fixed_ports()
        busy = self.connect()
        busy.send(request("GET", "/busy"))
        self.eventually(lambda: os.path.exists(os.path.join(self.server.dir, "busy")), "the handler runs")
        self.server.reload("reloaded")
        for n in range(10):
            self.publish("t", b"%d" % n)
        write_text(os.path.join(self.server.dir, "over"), "")
        self.assertEqual(busy.response().status, 204)
        self.eventually(lambda: self.topics() == {"t": 2}, "the functions of the previous site end")
        self.eventually(lambda: self.stats()["topic_delivered"] >= 20, "those of the new site get the messages")
        self.assertEqual(self.stats()["topic_delivered"], 20)

    def test_a_reload_handles_each_message_once(self):
        site = THREADS + r"""
local seen = ls.channel("seen", { capacity = 1000000 })
ls.subscribe("t", function(data) seen:send(data) end)
app:get("/seen", function(req)
  local list = {}
  for n = 1, tonumber(req.query.count) do list[n] = assert(seen:receive(20)) end
  return { list = list, left = seen:len() }
end)
"""
        self.start(more=site)
        self.fixed_ports()
        reader = self.client("t")
        count = repeats(300)
        done = threading.Event()

        def publish():
            try:
                with self.server.connect() as conn:
                    for n in range(count):
                        conn.send(request("POST", "/pub/t", (), b"%d" % n))
                        self.assertEqual(conn.response().status, 200)
            finally:
                done.set()

        with beside(publish):
            while not done.is_set():
                self.server.reload("reloaded")
        answer = json.loads(self.get("/seen?count=%d" % count).body)
        self.assertEqual(answer["left"], 0)
        self.assertEqual(sorted(int(n) for n in answer["list"]), list(range(count)))
        self.assertEqual([reader.line() for _ in range(count)], [b"%d" % n for n in range(count)])

    def test_after_a_reload_only_functions_of_connections_reach_them(self):
        server = self.server = self.serve(OF_CONNECTIONS, listeners=2)
        self.fixed_ports()
        warning = r"warn the function of ls\.subscribe at .*site\.lua:6 ends with the previous site, whose WebSockets and TCP connections " \
                  r"stay open: .*ws:subscribe and sock:subscribe continue"
        tcp, removed = server.connect(1), server.connect(1)
        self.assertEqual((tcp.line(), removed.line()), (b"open", b"open"))
        with WebSocket(server.at(0), "/live") as page:
            self.assertEqual(page.receive(), "open")
            self.assertEqual(self.get("/publish/1").text, "4")
            self.assertEqual(sorted((page.receive(), page.receive())), ["of the state 1", "own 1"])
            self.assertEqual((tcp.line(), removed.line()), (b"own 1", b"own 1"))
            mark = server.mark()
            server.reload()
            server.wait_log("reloaded", mark)
            server.wait_log(warning, mark)
            self.eventually(lambda: self.get("/count").text == "4", "the function of the previous site has ended")
            self.assertEqual(self.get("/publish/2").text, "4")  # with the function of the new site
            self.assertEqual(page.receive(), "own 2")
            self.assertEqual((tcp.line(), removed.line()), (b"own 2", b"own 2"))
            page.send("more")
            self.assertEqual(page.receive(), "true")
            removed.send(b"remove\n")
            self.assertEqual(removed.line(), b"removed")
            self.assertEqual(self.get("/publish/3").text, "4")
            self.assertEqual(sorted((page.receive(), page.receive())), ["late 3", "own 3"])
            self.assertEqual(tcp.line(), b"own 3")
            for conn in (tcp, removed):
                conn.half_close()
                conn.expect_end()
            self.eventually(lambda: self.get("/count").text == "3", "the function of the TCP connection ends with it")
        self.eventually(lambda: self.get("/count").text == "1", "those of WebSockets end with the previous site")
        self.assertEqual(len(server.logged("the function of ls.subscribe at")), 1)

    def test_the_stop_handles_what_waits(self):
        self.start(more=ONE_STATE + r"""
ls.subscribe("t", function(data) ls.sleep(0.001) ls.log.info("handled " .. data) end)
""")
        self.burst("t", "x", 200)
        server, self.server = self.server, None
        server.stop()
        self.assertEqual(re.findall(r"handled x (\d+)", server.log()), [str(n) for n in range(1, 201)])
