"""Server-sent events (WHATWG HTML, section 9.2): res:sse, what clients receive, topics, the ends of a stream."""
import json
import re
import threading
import time

from harness import Conn, E2E, app_site, request
from harness import tls

SITE = r"""
local ls = require "luaserve"
ls.config { threads = 2, drain_timeout = 5 }
local app = ls.app()
app:get("/", function() return "root" end)
app:get("/stats", function() return ls.stats() end)
ls.on("log", function(req, res, info) ls.log.info(("logged %s %d %d"):format(req.target, info.status, info.bytes)) end)

local function results(...)
  local parts = table.pack(...)
  for n = 1, parts.n do parts[n] = tostring(parts[n]) end
  return table.concat(parts, "|")
end

app:get("/events", function(req, res)
  local sse = res:sse { retry = 1.5 }
  assert(sse:send("plain"))
  assert(sse:send { event = "tick", id = "7", data = "x" })
  assert(sse:send { data = { n = 1 } })
  assert(sse:send { data = "a\nb\r\nc\rd" })
  assert(sse:send { id = "", data = "" })
  assert(sse:send { id = 9 })
  assert(sse:send { retry = 0.25 })
  assert(sse:send(42))
  assert(sse:send(ls.buffer("one ", "two")))
  assert(sse:send { data = ls.buffer() })
  assert(sse:comment("two\nlines"))
  assert(sse:comment(""))
  assert(sse:send { event = "last", data = tostring(sse.last_id) })
end)
app:get("/wait", function(req, res)
  local sse = assert(res:sse { keepalive = tonumber(req.query.keepalive) or false,
    max_queue = req.query.max_queue, overflow = req.query.overflow })
  for topic in (req.query.topics or ""):gmatch("[^,]+") do assert(sse:subscribe(topic)) end
  sse:send { event = "ready", data = results(ls.thread()) }
  local ended = results(sse:wait(tonumber(req.query.seconds)))
  local more = sse.closed and results(results(sse:send("late")), results(sse:comment("late")), results(sse:subscribe("late")),
    results(sse:unsubscribe("late")), sse.queued, sse:wait(), sse:close())
  ls.log.info(results("ended", req.query.name, ended, more))
end)
app:get("/head", function(req, res)
  local sse = res:sse { headers = { ["X-A"] = { "1", "2" }, ["Cache-Control"] = "no-store" } }
  ls.log.info(results("head", req.method, sse.closed, sse:send("x")))
end)
local gate = ls.channel("gate")
app:get("/told/:how", function(req, res)
  local how = req.params.how
  if how == "write" then
    while res:write("x") do ls.sleep(0.01) end
  else
    local sse = res:sse()
    sse:send("ready")
    if how == "send" then while sse:send("x") do ls.sleep(0.01) end else sse:wait() end
  end
  ls.log.info(results("told", how))
  ls.log.info(results("after", how, gate:receive()))
end)
app:get("/gate", function() return { sent = gate:send("open") } end)
app:get("/close", function(req, res)
  local sse <close> = res:sse()
  sse:send("before")
  sse:close()
  ls.log.info(results("closed", sse:send("x")))
  local ok, err = pcall(res.write, res, "x")
  ls.log.info(err)
  return "ignored"
end)
app:get("/numbered", function(req, res)
  local sse = res:sse()
  sse:subscribe("numbered")
  sse:wait()
end)
app:get("/last", function(req, res)
  local sse = res:sse()
  sse:subscribe(req.target)
  if req.query.waits then ls.sleep(0) end
  for n = 1, 100 do assert(ls.publish(req.target, tostring(n)) == 1) end
  if req.query.closes then sse:close() end
end)
app:get("/fail", function(req, res) res:sse():send("before") ls.sleep(0) error("out of paper") end)
app:get("/early", function(req, res) -- an error before the first wait
  local sse = res:sse { retry = tonumber(req.query.retry) }
  if req.query.topic then sse:subscribe(req.query.topic) end
  if req.query.send then sse:send("before") end
  if req.query.sleep then ls.sleep(0) end
  if req.query.flush then res:flush() end
  if req.query.close then sse:close() end
  error("too early")
end)
app:get("/mixed", function(req, res)
  local sse = res:sse()
  sse:subscribe("retained")
  sse:send("behind the retained one")
  local ok, err = pcall(res.write, res, ": raw\n\n")
  sse:send((tostring(err):gsub("^.-site%.lua:%d+: ", "")))
  sse:unsubscribe("retained")
  sse:send("end")
end)
app:get("/unsubscribe", function(req, res)
  local sse = res:sse()
  sse:subscribe("u1") sse:subscribe("u2") sse:subscribe("u1")
  sse:send("ready")
  local before = ls.stats().topic_delivered
  ls.publish("u1", "one") ls.publish("u2", "two")
  repeat ls.sleep(0.01) until ls.stats().topic_delivered >= before + 2
  sse:unsubscribe("u1")
  ls.publish("u1", "none") ls.publish("u2", "last")
  sse:wait(tonumber(req.query.seconds))
end)
app:get("/others", function(req, res) -- any task of the state
  local sse = res:sse()
  local job = ls.spawn(function() for n = 1, 3 do sse:send("job " .. n) ls.sleep(0.001) end end)
  ls.after(0.001, function() sse:send("timer") end)
  job:wait()
  ls.sleep(0.01)
end)
app:get("/long", function(req, res)
  local sse = res:sse { keepalive = false }
  local text, n = ("x"):rep(60000), 0
  repeat
    n = n + 1
    local ok = sse:send(text)
  until not ok or n == tonumber(req.query.n)
  ls.log.info(results("long", n, sse.closed))
end)
app:get("/ticker", function(req, res) -- the loop of the page
  local sse = res:sse { keepalive = 0.05 }
  local n = tonumber(sse.last_id) or 0
  repeat
    n = n + 1
    sse:send { id = n, data = { n = n } }
  until sse:wait(0.01)
end)

local full = ls.app() -- a response without room for the fields of res:sse
full:get("/", function(req, res)
  local count = 0
  local function add(bytes)
    count = count + 1
    return (pcall(res.header, res, "X-" .. count, ("x"):rep(bytes)))
  end
  while add(20000) do end
  while add(2000) do end
  while add(100) do end
  while add(1) do end
  return tostring(select(2, pcall(res.sse, res)))
end)
app:get("/full", function(req)
  local function memory(rounds)
    local why
    for _ = 1, rounds do why = full:inject { path = "/" }.body end
    collectgarbage()
    collectgarbage()
    return collectgarbage("count"), why
  end
  local least, before, after, why = math.huge, (memory(25))
  for _ = 1, 5 do -- streams of other tests that end in this state use memory as well, but not each time
    after, why = memory(100)
    least, before = math.min(least, after - before), after
  end
  return { kilobytes = least, why = why }
end)

local function message(fn, ...)
  local ok, err = pcall(fn, ...)
  return ok and "no error" or (tostring(err):gsub("^.-site%.lua:%d+: ", ""))
end
app:get("/errors", function(req, res)
  local list = {}
  local function add(...) list[#list + 1] = message(...) end
  for _, options in ipairs { 1, { overflow = "drop" }, { headers = { ["a b"] = "c" } } } do
    add(res.sse, res, options)
  end
  add(res.sse, res, nil, 1)
  res:status(404)
  add(res.sse, res)
  res:status(200)
  local sse = res:sse { keepalive = false, max_queue = 1, retry = 0 }
  add(res.sse, res)
  for _, event in ipairs { {}, { event = "x" }, { event = "a\nb", data = "" }, { event = "a\0b", data = "" }, { id = "a\r", data = "" },
    { id = "a\0", data = "" }, { id = true, data = "" }, { data = true }, { data = "\xff" }, { retry = "x" }, { retry = -1 },
    { retry = 3000 }, { datas = "x" }, { "x" }, { id = "\xff" } } do
    add(sse.send, sse, event)
  end
  add(sse.send, sse)
  add(sse.send, sse, true)
  add(sse.send, sse, "\xff")
  add(sse.send, sse, "a", "b")
  add(sse.comment, sse)
  add(sse.comment, sse, "\xff")
  add(sse.subscribe, sse, "")
  add(sse.subscribe, sse, ("t"):rep(1025))
  add(sse.wait, sse, -1)
  add(function() return sse.sent end)
  add(sse.send, io.stdout, "x")
  for _, text in ipairs(list) do sse:send(text) end
end)
app:post("/publish/:topic", function(req)
  return { count = ls.publish(req.params.topic, req:body(), { retain = req.query.retain == "1" or math.tointeger(tonumber(req.query.retain or "")),
    kind = req.query.kind, event = req.query.event, id = req.query.numbered and true or req.query.id }), thread = ls.thread() }
end)
app:post("/many/:topic", function(req)
  local n = 0
  for i = 1, tonumber(req.query.n) do n = n + ls.publish(req.params.topic, req.query.text .. i) end
  return { count = n }
end)
app:get("/inject", function()
  local answer = assert(app:inject { path = "/events", headers = { ["Last-Event-ID"] = "3" } })
  local waits = assert(app:inject { path = "/wait?name=injected&topics=a,b&seconds=1000" })
  return { type = answer.headers["content-type"], status = answer.status, body = answer.body, waits = waits.body }
end)
@LISTEN@
"""

PLAIN = 'ls.listen { host = "127.0.0.1", port = 0, handler = app, send_timeout = 3 }'
LISTENERS = PLAIN + '\nls.listen { host = "127.0.0.1", port = 0, handler = app, tls = "self-signed" }'

EVENTS = (b"retry: 1500\n\ndata: plain\n\nevent: tick\nid: 7\ndata: x\n\ndata: {\"n\":1}\n\ndata: a\ndata: b\ndata: c\ndata: d\n\n"
          b"id: \ndata: \n\nid: 9\n\nretry: 250\n\ndata: 42\n\ndata: one two\n\ndata: \n\n: two\n: lines\n\n: \n\nevent: last\ndata: %s\n\n")


def site(listen=PLAIN):
    return SITE.replace("@LISTEN@", listen)


class Stream:
    """A client: the events of a response in chunks."""

    def __init__(self, conn, target, headers=(), version="HTTP/1.1"):
        self.conn = conn
        self.conn.send(request("GET", target, headers, version=version))
        self.head = conn.response_head()
        self.chunked = self.head.header("Transfer-Encoding") == "chunked"
        self.text = b""

    def chunk(self):
        """The next chunk; b"": the end."""
        if not self.chunked:
            if not self.conn.data and not self.conn._more():
                return b""
            data, self.conn.data = self.conn.data, b""
            return data
        size = int(self.conn.line(b"\r\n"), 16)
        data = self.conn.take(size)
        assert self.conn.take(2) == b"\r\n"
        return data

    def event(self):
        """The next event or comment, without the empty line; None: the end."""
        while b"\n\n" not in self.text:
            more = self.chunk()
            if not more:
                assert self.text == b"", self.text
                return None
            self.text += more
        event, self.text = self.text.split(b"\n\n", 1)
        return event

    def data(self):
        """The data of the next event."""
        return b"\n".join(line[6:] for line in self.event().split(b"\n") if line.startswith(b"data: "))

    def rest(self):
        events = []
        while True:
            event = self.event()
            if event is None:
                return events
            events.append(event)


class Sse(E2E):
    SITE = site(LISTENERS)
    LISTENERS = 2
    FLAGS = ("--log-level", "info")

    def open(self, target, headers=(), server=None, version="HTTP/1.1", ready=True, **kw):
        stream = Stream(self.connect(server=server, **kw), target, headers, version)
        self.assertEqual((stream.head.status, stream.head.header("Content-Type")), (200, "text/event-stream"))
        if ready:
            self.assertIn(b"event: ready", stream.event())
        return stream

    def publish(self, topic, text, server=None, query=""):
        with (server or self.server).connect() as conn:
            answer = conn.ask("POST", "/publish/" + topic + query, body=text.encode())
            return json.loads(answer.body)["count"]

    def test_every_kind_of_event(self):
        answer = self.get("/events", {"Last-Event-ID": "0-1"})
        self.assertEqual(answer.header("Content-Type"), "text/event-stream")
        self.assertEqual(answer.header("Cache-Control"), "no-cache")
        self.assertEqual(answer.header("X-Accel-Buffering"), "no")
        self.assertTrue(answer.chunked)
        self.assertEqual(self.get("/events", {"Last-Event-ID": "0-1"}).body, EVENTS % b"0-1")
        self.assertEqual(self.get("/events").body, EVENTS % b"nil")
        with self.server.connect() as conn:  # the connection goes on
            for _ in range(2):
                self.assertEqual(conn.get("/events").body, EVENTS % b"nil")

    def test_http_1_0(self):
        conn = self.connect()
        conn.send(request("GET", "/events", version="HTTP/1.0"))
        answer = conn.response()
        self.assertTrue(answer.to_close)
        self.assertEqual(answer.body, EVENTS % b"nil")
        stream = self.open("/wait?topics=old", version="HTTP/1.0")
        self.assertEqual(self.publish("old", "a\nb"), 1)
        self.assertEqual(stream.event(), b"data: a\ndata: b")

    def test_head(self):
        since = self.server.mark()
        with self.server.connect() as conn:
            answer = conn.ask("HEAD", "/head")
            self.assertEqual((answer.status, answer.header("Content-Type")), (200, "text/event-stream"))
            self.assertEqual((answer.all("X-A"), answer.all("Cache-Control")), (["1", "2"], ["no-store"]))
            self.server.wait_log(r"head\|HEAD\|true\|nil\|closed\|ECLOSED", since)
            self.assertEqual(conn.get("/").body, b"root")  # a response to HEAD has no events: the stream was over

    def test_errors(self):
        events = [event[6:].decode() for event in self.get("/errors").text.encode().split(b"\n\n")[1:-1]]
        wanted = [
            "res:sse takes a table of options, such as { retry = 2 }; got 1", 'res:sse: overflow must be "close" or "skip"',
            "invalid header name 'a b'", "too many arguments", "the status of a stream of events must be 200, not 404",
            "the head of the response was sent already", "the table has none of the fields data, id and retry",
            "an event without data is ignored by clients", "event must not contain a line break or NUL", "event must not contain",
            "id must not contain", "id must not contain", "id must be a string; got boolean",
            "data must be a string, number, buffer or table; got boolean", "the data is not valid UTF-8",
            "retry must be a number of seconds", "retry must be a number of seconds", "retry must be a number of seconds",
            "unknown field 'datas'", "unknown field '1'", "id is not valid UTF-8", "value expected", "got boolean",
            "the data is not valid UTF-8", "too many arguments", "string expected", "the comment is not valid UTF-8",
            "the topic must not be empty", "1025 bytes", "must be", "has no method or field 'sent'", "sse expected",
        ]
        for got, want in zip(events, wanted):
            self.assertIn(want, got)
        self.assertEqual(len(events), len(wanted), events)

    def test_no_room_for_the_fields(self):
        answer = json.loads(self.get("/full").body)
        self.assertIn("res:sse: not enough room for the header fields", answer["why"])
        self.assertLess(answer["kilobytes"], 10)  # 100 objects that stay would be more than 15

    def test_the_end_of_the_handler(self):
        since = self.server.mark()
        answer = self.get("/close")
        self.assertEqual(answer.body, b"data: before\n\n")
        self.server.wait_log(r"closed\|nil\|closed\|ECLOSED", since)
        self.server.wait_log("the response was sent already", since)
        self.server.wait_log("the handler returned a string, but res has already sent", since)
        self.publish("early", "x", query="?retain=1")
        with self.server.connect() as conn:  # the head has not left: the response is 500, as after res:write
            for query in ("", "?send=1", "?retry=1", "?retry=1&send=1&topic=early", "?topic=early", "?topic=none"):
                answer = conn.get("/early" + query)
                self.assertEqual((answer.status, answer.header("Content-Type")), (500, "text/plain; charset=utf-8"), query)
                self.assertEqual(answer.body, b"Internal Server Error\n")
                self.server.wait_log("too early", since)
            self.assertEqual(conn.get("/early?close=1&send=1").body, b"data: before\n\n")  # it was complete
        for query in ("sleep=1", "flush=1", "sleep=1&topic=early"):
            conn = self.connect()
            conn.send(request("GET", "/early?" + query))
            self.assertEqual(conn.response_head().status, 200)
            self.assertNotIn(b"0\r\n\r\n", conn.rest())
        conn = self.connect()
        conn.send(request("GET", "/fail"))
        self.assertEqual(conn.response_head().status, 200)
        self.assertNotIn(b"0\r\n\r\n", conn.rest())  # incomplete
        self.server.wait_log("out of paper", since)

    def test_other_tasks(self):
        events = self.get("/others").text
        for text in ("job 1", "job 2", "job 3", "timer"):
            self.assertIn("data: %s\n\n" % text, events)

    # ---- topics ----

    def test_topics_of_another_state(self):
        streams = [self.open("/wait?topics=news,other") for _ in range(8)]
        for n in range(20):
            self.assertEqual(self.publish("news", "message %d" % n), 8)
        self.assertEqual(self.publish("other", "two\r\nlines"), 8)
        self.assertEqual(self.publish("other", "", query="?kind=binary"), 8)
        for stream in streams:
            self.assertEqual([stream.data() for _ in range(20)], [b"message %d" % n for n in range(20)])
            self.assertEqual(stream.event(), b"data: two\ndata: lines")
            self.assertEqual(stream.event(), b"data: ")
        self.assertEqual(self.publish("nobody", "x"), 0)
        self.publish("news", "x", query="?event=tick&id=7")
        self.assertEqual(streams[0].event(), b"event: tick\nid: 7\ndata: x")

    def test_the_end_sends_what_was_published_before(self):
        for query in ("", "?closes=1", "?waits=1", "?waits=1&closes=1"):
            self.assertEqual(self.open("/last" + query, ready=False).rest(), [b"data: %d" % n for n in range(1, 101)], query)

    def test_retained_messages(self):
        self.publish("retained", "the last", query="?retain=1")
        self.assertEqual(self.get("/mixed").body,
                         b"data: the last\n\ndata: behind the retained one\n\n"
                         b"data: res:write: the response is a stream of events; write with sse:send or sse:comment\n\n"
                         b"data: end\n\n")
        self.publish("retained", "", query="?retain=1")

    def test_a_client_that_comes_back_gets_what_it_has_missed(self):
        """The topic numbers its messages, and keeps three; an id of another origin hides none of them."""
        def read(count, **headers):
            stream = self.open("/numbered", headers.items(), ready=False)
            return [re.fullmatch(rb"id: (\d+)\ndata: (\w+)", stream.event()).groups() for _ in range(count)]
        for n in range(5):
            self.publish("numbered", "e%d" % n, query="?retain=3&numbered=1")
        events = read(3)
        self.assertEqual([data for _, data in events], [b"e2", b"e3", b"e4"])
        self.assertEqual(sorted(events), events)
        for last, wanted in ((events[1][0].decode(), events[2:]), ("x", events), ("7", events), ("-1", events)):
            self.assertEqual(read(len(wanted), **{"Last-Event-ID": last}), wanted, last)
        self.publish("numbered", "e5", query="?retain=3&numbered=1")
        self.assertEqual(read(1, **{"Last-Event-ID": events[2][0].decode()})[0][1], b"e5")

    def test_unsubscribe(self):
        stream = Stream(self.connect(), "/unsubscribe?seconds=1")
        self.assertEqual(stream.rest(), [b"data: ready", b"data: one", b"data: two", b"data: last"])

    # ---- the end of a stream ----

    def test_keep_alive(self):
        since = self.server.mark()
        stream = self.open("/wait?keepalive=0.02&name=kept&topics=k")
        for _ in range(3):
            self.assertEqual(stream.event(), b":")
        self.publish("k", "message")
        while stream.event() != b"data: message":
            pass
        stream.conn.close()
        self.server.wait_log(r"ended\|kept\|true\|" + r"nil\|closed\|ECLOSED\|" * 4 + r"0\|nil\|true", since)
        self.eventually(lambda: self.publish("k", "x") == 0, "the subscription ends")

    def test_without_keep_alive(self):
        stream = self.open("/wait?name=quiet&seconds=0.1")
        self.assertEqual(stream.rest(), [])  # nothing until the handler ended the stream

    def test_the_client_goes(self):
        """Without a keep-alive and without a message: the end of its direction is enough."""
        for name, end in (("reset", Conn.reset), ("closed", Conn.close), ("half", Conn.half_close)):
            since = self.server.mark()
            stream = self.open("/wait?topics=gone&name=" + name)
            end(stream.conn)
            self.server.wait_log(r"ended\|%s\|true" % name, since)
            self.assertEqual(self.publish("gone", "x"), 0)
        since = self.server.mark()
        with tls.client(self.server.port(1)) as conn:
            conn.sendall(request("GET", "/wait?name=tls"))
            self.assertIn(b"200 OK", conn.recv(65536))
        self.server.wait_log(r"ended\|tls\|true", since)

    def test_a_handler_that_knows_that_its_client_has_left_may_wait(self):
        for how in ("wait", "send", "write"):
            since = self.server.mark()
            c = self.server.connect()
            c.send(f"GET /told/{how} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            c.line(b"ready" if how != "write" else b"x")
            c.close()
            self.server.wait_log(rf"told\|{how}", since)
            with self.server.connect() as other:
                other.send(request("GET", "/gate"))
                self.assertIn(b"200 OK", other.line())
            self.server.wait_log(rf"after\|{how}\|open", since)

    def test_a_pipelined_request_is_not_the_end(self):
        conn = self.connect()
        conn.send(request("GET", "/wait?seconds=0.2&topics=piped"))
        stream = Stream.__new__(Stream)
        stream.conn, stream.chunked, stream.text = conn, True, b""
        conn.response_head()
        self.assertIn(b"event: ready", stream.event())
        conn.send(request("GET", "/"))
        self.publish("piped", "x")
        self.assertEqual(stream.rest(), [b"data: x"])
        self.assertEqual(conn.response().body, b"root")
        conn.send(request("GET", "/wait?seconds=0.01") + request("GET", "/"))  # before the stream begins
        conn.response_head()
        stream.event()
        self.assertEqual(stream.rest(), [])
        self.assertEqual(conn.response().body, b"root")

    def test_wait_with_a_limit(self):
        since = self.server.mark()
        stream = self.open("/wait?name=limited&seconds=2&topics=limited")
        self.publish("limited", "x")
        self.server.wait_log(r"ended\|limited\|nil\|[^|]*\|ETIMEDOUT", since)
        self.assertEqual(stream.rest(), [b"data: x"])

    def test_the_log_hook(self):
        since = self.server.mark()
        self.get("/events")
        self.server.wait_log(r"logged /events 200 %d" % len(EVENTS % b"nil"), since)

    def test_a_slow_client_makes_send_wait(self):
        since = self.server.mark()
        conn = self.connect(rcvbuf=4096)
        conn.send(request("GET", "/long?n=200"))
        time.sleep(0.2)
        self.assertFalse(self.server.logged(r"long\|200", since))  # it waits: 12 MB do not fit into the sockets
        stream = Stream.__new__(Stream)
        stream.conn, stream.chunked, stream.text = conn, True, b""
        conn.response_head()
        self.assertEqual(len(stream.rest()), 200)
        self.server.wait_log(r"long\|200\|false", since)
        other = self.connect(rcvbuf=4096)
        other.send(request("GET", "/long?n=100000"))
        self.server.wait_log(r"long\|\d+\|true", since)  # send_timeout

    def fill(self, query):
        """A client that does not read, and messages until one is dropped. Returns (stream, accepted)."""
        stream = self.open("/wait?topics=slow&name=slow&" + query, rcvbuf=4096)
        before = json.loads(self.get("/stats").body)
        text = "x" * 65536
        for _ in range(2000):
            self.publish("slow", text)
            stats = json.loads(self.get("/stats").body)
            if stats["topic_dropped"] > before["topic_dropped"]:
                return stream, stats["topic_closed"] - before["topic_closed"]
        self.fail("no message was dropped")

    def test_a_slow_client_is_ended_at_the_limit(self):
        since = self.server.mark()
        stream, closed = self.fill("max_queue=256k")
        self.assertEqual(closed, 1)
        self.server.wait_log(r"ended\|slow\|true", since)
        self.server.wait_log(r"info request \S+ GET /wait: the stream of events for [\w.:\[\]]+ was ended: its queue is longer than max_queue", since)
        text = stream.conn.rest()
        self.assertFalse(text.endswith(b"0\r\n\r\n"))  # not complete
        self.assertEqual(self.publish("slow", "x"), 0)

    def test_a_slow_client_skips(self):
        since = self.server.mark()
        stream, closed = self.fill("max_queue=256k&overflow=skip")
        self.assertEqual(closed, 0)
        self.assertEqual(self.server.logged("longer than max_queue", since), [])
        self.assertEqual(self.publish("slow", "last"), 1)  # still subscribed
        done = threading.Event()

        def publish():
            while not done.is_set():
                self.publish("slow", "mark")
                time.sleep(0.01)

        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            while stream.data() != b"mark":
                pass
        finally:
            done.set()
            publisher.join()
        stream.conn.close()

    def test_the_queue_limit_exactly(self):
        """In one state, without a send between the messages: the first fills the queue to its limit, or one byte less."""
        server = self.serve(app_site(r"""
            ls.config { threads = 1, threads_max = 1, states = 1 }
            app:get("/:max", function(req, res)
              local sse = res:sse { max_queue = tonumber(req.params.max), keepalive = false }
              ls.sleep(0) -- the head has left
              sse:subscribe("t")
              ls.publish("t", ("x"):rep(92)) -- 100 bytes
              ls.publish("t", ("y"):rep(42)) -- 50 bytes
              ls.sleep(0.01)
              sse:send(tostring(sse.closed))
            end)
"""))
        with server.connect() as conn:
            # One part with both events: 150 bytes, whatever frames it on the connection.
            self.assertEqual(conn.get("/150").body.count(b"data: y"), 1)
        with server.connect() as conn:
            conn.send(request("GET", "/149"))
            self.assertNotIn(b"data: y", conn.rest())

    def test_a_stop_ends_the_streams(self):
        server = self.serve(site(), flags=self.FLAGS)
        streams = [self.open("/wait?name=stopped&topics=a", server=server), self.open("/ticker", server=server, ready=False)]
        streams[1].event()
        server.signal()
        for stream in streams:
            stream.rest()  # complete
            stream.conn.expect_end()
        self.assertEqual(server.wait(), 0, server.log())
        self.assertIn("ended|stopped|true", server.log())

    def test_a_reload_ends_the_streams(self):
        server = self.serve(site(), flags=self.FLAGS)
        stream = self.open("/wait?name=reloaded&topics=a", server=server)
        since = server.mark()
        server.reload()
        self.assertEqual(stream.rest(), [])
        server.wait_log(r"ended\|reloaded\|true", since)
        again = Stream(stream.conn, "/wait?topics=a&name=new")  # the connection is there for the new site
        again.event()
        self.eventually(lambda: self.publish("a", "x", server) == 1, "the new site has the subscriber only")
        self.assertEqual(again.data(), b"x")
        again.conn.close()

    def test_inject(self):
        got = json.loads(self.get("/inject").body)
        self.assertEqual((got["type"], got["status"]), ("text/event-stream", 200))
        self.assertEqual(got["body"].encode(), EVENTS % b"3")
        self.assertRegex(got["waits"], r"^event: ready\ndata: \d+\n\n$")
