"""app:ws: both forms of a handler, the object `ws`, errors, limits, back-pressure, topics, TLS, stop and reload. Peers that
break the rules are in test_websocket_hostile.py."""
import itertools
import json
import os
import re
import unittest

from harness import E2E, SANITIZER, app_site, request, write_text
from harness.tls import certificate, context
from harness.websocket import CLOSE, TEXT, CloseFrame, WebSocket, frame, handshake, refused

SITE = app_site(r"""
ls.config { threads = 4 }
local ends = ls.channel("ends", { capacity = 10000 })
local function told(text) ends:send(text, 0) end
app:get("/", function() return "served\n" end)
app:get("/end", function() return ends:receive(20) or 504 end)
app:get("/stats", function() return ls.stats() end)
ls.on("log", function(req, res, info)
  if info.status == 101 then ls.log.info("seen " .. req.path .. " " .. info.bytes) end
end)

-- ---- forms
app:ws("/co", function(ws, req)
  for data, kind in ws:messages() do ws:send(data, kind) end
  told(("%s %q %s %s"):format(ws.code, ws.reason, ws.closed, select(3, ws:send("late"))))
end)
app:ws("/event", {
  message = function(ws, data, kind) ws:send(data, kind) end,
  close = function(ws, code, reason) told(("%s %q %s"):format(code, reason, ws.closed)) end,
})
-- Its thread does not see that the connection is lost before it sends.
app:ws("/unaware", function(ws)
  ws:receive()
  assert(io.open("unaware", "w")):close()
  local lost
  repeat lost = io.open("lost") until lost
  lost:close()
  local ok, _, code = ws:send(("x"):rep(1024):rep(1024))
  told(("%s %s %s"):format(ok, code, ws.code))
end)
app:ws("/listens", { open = function(ws) ws:send("welcome") end })
app:ws("/wait", { message = function(ws, data)
  ws.n = (ws.n or 0) + 1
  ls.sleep(ws.n % 3 == 0 and 0.005 or 0)
  ws:send(ws.n .. " " .. data)
end })
app:ws("/receive", function(ws)
  ws:send(table.concat({ tostring(ws:receive(0.01)), select(3, ws:receive(0)) }, " "))
  ws:send(tostring(ws:receive(20)))
end)

-- ---- the request
local members = ls.app()
members:use(function(req, res, next)
  if req.query.key ~= "k" then return 401, "no key\n" end
  req.user = "ann"
  return next()
end)
members:ws("/:room", function(ws, req)
  for _ in ws:messages() do
    ws:send(("%s %s %s %s %s"):format(req.params.room, req.user, req.query.key, req.headers["x-a"], req.path))
  end
end)
members:ws("/event/:room", {
  open = function(ws, req)
    ws.req, ws.name = req, req.params.room .. " " .. req.user
  end,
  message = function(ws) ws:send(ws.name .. " " .. tostring(select(2, pcall(function() return ws.req.path end)))) end,
})
app:mount("/members", members)
-- A function without a second parameter has no request; one with "..." has it.
local unkept = ls.app()
local stored = {}
unkept:use(function(req, res, next)
  stored.req, stored.res = req, res
  return next()
end)
local function stored_path() return tostring(select(2, pcall(function() return stored.req.path end))) end
unkept:ws("/co", function(ws) for _ in ws:messages() do ws:send(stored_path()) end end)
unkept:ws("/event", { open = function(ws) ws:send(stored_path()) end })
unkept:ws("/kept", function(ws, ...)
  stored.res = nil
  for _ in ws:messages() do
    collectgarbage()
    local req = ...
    ws:send(("%d %s %s %s"):format(select("#", ...), stored_path(), req.remote:match("^[%d.]+"), req.local_addr:match("^[%d.]+")))
  end
end)
unkept:ws("/res", function(ws, req)
  for _ in ws:messages() do
    collectgarbage()
    ws:send(("%s %s"):format(stored.res.sent, select(2, pcall(stored.res.send, stored.res, req.path))))
  end
end)
app:mount("/unkept", unkept)
app:ws("/protocol", { protocols = { "b", "a" } }, function(ws, req)
  assert((req.tls and req.tls.version) == (ws.tls and ws.tls.version))
  ws:send(tostring(ws.protocol) .. " " .. tostring(ws.tls) .. " " .. ws.remote:match("^[%d.]+"))
  ws:receive()
end)
-- "wait": the handler waits, and the message behind it waits for the handler.
local gate = ls.channel("gate")
app:ws("/gated", {
  open = function(ws) ws:subscribe("gated") end,
  message = function(_, data)
    told(data)
    if data == "wait" then gate:receive(20) end
  end,
  close = function(_, code) told("gated " .. code) end,
})
app:get("/gate", function() return gate:send(true) and 204 end)
app:get("/gated/publish", function() return tostring(ls.publish("gated", "x")) end)

-- ---- errors
app:ws("/error", function(ws) ws:receive() error("broken on purpose") end)
app:ws("/error/returned", function(ws) return nil, (ws:receive()), "x" end)
app:ws("/error/object", function(ws) ws:receive() return nil, setmetatable({}, { __tostring = error }) end)
app:ws("/nil", function(ws) ws:receive() return nil, nil, "x" end)
local results = { status = { 403 }, no = { false }, failure = { nil, "not allowed" }, text = { "echo" }, table = { { a = 1 } },
  number = { 0 }, fine = { true, "EVEN" }, none = { n = 0 }, null = { nil } }
local function result_of(name) return table.unpack(results[name], 1, results[name].n or 2) end
app:ws("/results", {
  open = function(ws, req)
    if req.query.open then return result_of(req.query.open) end
    ws:subscribe("results")
  end,
  message = function(ws, name)
    ws:send("got " .. name)
    if name:find("^wait ") then ls.sleep(0.001) end
    return result_of(name:match("%w+$"))
  end,
  close = function(ws, code)
    told("results " .. code)
    return result_of(ws.reason ~= "" and ws.reason or "none")
  end,
})
app:ws("/results/whole", function(ws) return result_of(ws:receive()) end)
app:ws("/error/event", {
  open = function(ws, req) if req.query.open then error("broken at open") end end,
  message = function() error("broken on purpose") end,
  close = function(ws, code) told("closed " .. code) end,
})
local after = ls.app()
local behind = ls.channel("behind")
app:get("/behind", function() return behind:send(true) and 204 end)
after:use(function(req, res, next)
  next()
  if req.query.unaware then -- its thread does not see that the connection is lost before it sends the 101
    assert(io.open("handshake", "w")):close()
    local reset
    repeat reset = io.open("reset") until reset
    reset:close()
    os.remove("reset")
  end
  if req.query.wait then
    behind:receive(20)
    told("behind it")
  end
  if req.query.fail then error("broken middleware") end
  if req.query.send then told(tostring(select(2, pcall(res.send, res, "x")))) end
  if req.query.header then res:header("X-Late", "1") end
  ls.sleep(0)
end)
after:ws("/", {
  open = function(ws, req)
    ws:send("opened " .. tostring(req.query.fail))
  end,
  message = function(ws, data) ws:send("got " .. data) end,
  close = function(ws, code) told("closed " .. code) end,
})
after:ws("/co", function(ws)
  told("begun")
  for data in ws:messages() do ws:send("got " .. data) end
end)
app:mount("/after", after)
app:ws("/cpu", { message = function() while true do end end })
app:ws("/misuse", function(ws)
  for code in ws:messages() do
    local fn = assert(load("local ws, ls = ... " .. code))
    local results = table.pack(pcall(fn, ws, ls))
    for n = 1, results.n do results[n] = tostring(results[n]) end
    if not ws:send(table.concat(results, " ", 1, results.n)) then told(table.concat(results, " ", 1, results.n)) end
  end
end)
app:post("/wrong", function(req) -- the message of app:ws with these arguments
  return tostring(select(2, pcall(load("require('luaserve').app():ws('/', " .. req:body() .. ")"))))
end)
app:ws("/misuse/event", { message = function(ws) ws:send((select(2, pcall(ws.receive, ws)))) end })

-- ---- close
app:ws("/closes", { message = function(ws, data) ws:close(4001, data) ws:close(4002) ws:send("late") end,
  close = function(ws, code, reason) told(code .. " " .. reason) end })
app:ws("/refused", { open = function(ws) ws:close(4001, "no") ws:subscribe("secrets") end })
app:ws("/other", function(ws)
  local job = ls.spawn(function() ls.sleep(0.01) ws:close(4003, "from a job") end)
  local data, err, code = ws:receive()
  told(tostring(data) .. " " .. code)
  job:wait()
end)
app:ws("/two", function(ws)
  local job = ls.spawn(function() return ws:receive() end)
  ls.sleep(0.01)
  ws:send(tostring(select(2, pcall(ws.receive, ws))))
  ws:send(tostring((job:wait())))
end)

-- ---- limits
app:ws("/flood", { write_ahead = "64k" }, function(ws)
  local block = ("x"):rep(65536)
  for n = 1, 1024 do
    if not ws:send(block, "binary") then return told("cut") end
    ls.dict("sent"):incr("n", 1, 0)
  end
  told("sent all")
end)
app:get("/sent", function() return tostring(ls.dict("sent"):get("n") or 0) end)

-- ---- topics
app:ws("/room/:name", { compress = true,
  open = function(ws, req)
    ws.room = req.params.name
    assert(ws:subscribe(ws.room))
  end,
  message = function(ws, data, kind)
    if data == "leave" then
      ws:unsubscribe(ws.room)
      ws:send("left")
    else
      ls.publish(ws.room, data, kind)
    end
  end })
app:ws("/leaving", {
  open = function(ws) ws:subscribe("leaving") ws:send("subscribed") end,
  message = function(ws) ws:close() ls.publish("leaving", "own") end,
})
local function own(ws) -- the last messages before the end
  ws:subscribe("own")
  for n = 1, 100 do assert(ls.publish("own", tostring(n)) == 1) end
end
app:ws("/last/close", { open = function(ws) own(ws) ws:close(4001, "done") end })
app:ws("/last/return", function(ws) own(ws) end)
app:ws("/last/error", function(ws) own(ws) error("after its messages") end)
app:get("/publish/leaving", function() return tostring(ls.publish("leaving", "x")) end)

local inject = ls.app()
inject:ws("/ws", function() end)
app:get("/inject", function(req)
  local headers = req.query.full and { Host = "h", Connection = "upgrade", Upgrade = "websocket",
    ["Sec-WebSocket-Version"] = "13", ["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ==" } or {}
  local reply = inject:inject{ path = "/ws", headers = headers }
  return reply.status .. " " .. reply.body
end)
ls.dict("sent")
""")


class Case(E2E):
    def open(self, path="/co", server=None, **options):
        ws = WebSocket((server or self.server).at(), path, **options)
        self.owns(ws.conn)
        return ws

    def end(self, pattern):
        """Wait until a handler tells this text; those of other tests are skipped."""
        while True:
            response = self.get("/end")
            self.assertEqual(response.status, 200, "no handler tells %s" % pattern)
            if re.search(pattern, response.text):
                return response.text


class WebSockets(Case):
    SITE = SITE

    # -- forms

    def test_both_forms_echo(self):
        for path in ("/co", "/event"):
            ws = self.open(path)
            for data in ("hello", b"\x00\xff", "", b"", "ä" * 1000, "x" * 126, "x" * 65536, b"y" * 1000000):
                self.assertEqual(ws.send(data).receive(), data)
            ws.send("in parts" * 100, fragments=7)
            self.assertEqual(ws.receive(), "in parts" * 100)
            self.assertEqual(ws.close(3000, "done"), (3000, ""))
        self.end('^3000 "done" true ECLOSED$')
        self.end('^3000 "done" true$')

    def test_one_handler_of_a_connection_runs_at_a_time(self):
        ws = self.open("/wait")
        ws.send_raw(b"".join(frame(TEXT, b"m%d" % n) for n in range(1, 101)))
        self.assertEqual([ws.receive() for _ in range(100)], ["%d m%d" % (n, n) for n in range(1, 101)])

    def test_receive_with_a_timeout(self):
        ws = self.open("/receive")
        self.assertEqual(ws.receive(), "nil ETIMEDOUT")
        self.assertEqual(ws.send("a").receive(), "a")
        self.assertEqual(ws.closes(), (1000, ""))

    # -- the request

    def test_the_request_stays_with_the_coroutine(self):
        headers = {"X-A": "value"}
        ws = self.open("/members/blue?key=k", headers=headers)
        for _ in range(200):  # req and res objects are used again
            self.get("/")
        self.assertEqual(ws.send("?").receive(), "blue ann k value /members/blue")

    def test_the_request_ends_with_open(self):
        ws = self.open("/members/event/red?key=k")
        self.assertRegex(ws.send("?").receive(), "^red ann .*request object used after its request ended")

    def test_middleware_refuses(self):
        response = refused(self.server.at(), handshake("/members/blue"))
        self.assertEqual((response.status, response.text), (401, "no key\n"))

    def test_the_log_hook_sees_101(self):
        mark = self.server.mark()
        self.open("/members/blue?key=k")
        self.server.wait_log("seen /members/blue 0", mark)

    def test_protocols(self):
        for asked, chosen in ((["a", "b"], "a"), (["x", "b"], "b"), (["x"], None), ([], None)):
            ws = self.open("/protocol", protocols=asked)
            self.assertEqual(ws.protocol, chosen)
            self.assertEqual(ws.receive(), "%s nil 127.0.0.1" % (chosen or "nil"))

    def test_inject_has_no_connection(self):
        self.assertRegex(self.get("/inject").text, "^426 ")
        self.assertRegex(self.get("/inject?full=1").text, "^501 .*app:inject")

    # -- errors

    def test_an_error_closes_with_1011(self):
        mark = self.server.mark()
        self.assertEqual(self.open("/error").send("x").closes(), (1011, ""))
        self.server.wait_log("request [0-9a-f]{16} GET /error: .*broken on purpose", mark)
        self.assertEqual(self.open("/error/event").send("x").closes(), (1011, ""))
        self.server.wait_log(r"WebSocket /error/event \(.*site.lua:\d+\) from 127.0.0.1:\d+: .*broken on purpose", mark)
        self.assertEqual(self.open("/error/event?open=1").closes(), (1011, ""))
        self.server.wait_log("GET /error/event: .*broken at open", mark)
        self.end("closed 1011")
        self.end("closed 1011")

    def test_a_function_that_goes_on_after_it_has_closed_cannot_subscribe(self):
        mark = self.server.mark()
        self.assertEqual(self.open("/refused").closes(), (4001, "no"))
        self.server.wait_log(r"GET /refused: .*ws:subscribe: this function has closed the connection; end it there: return ws:close", mark)

    def test_a_function_without_a_request_does_not_keep_it(self):
        ended = "request object used after its request ended"
        self.assertIn(ended, self.open("/unkept/co").send("x").receive())
        self.assertIn(ended, self.open("/unkept/event").receive())

    def test_a_kept_request(self):
        ws = self.open("/unkept/kept")
        for _ in range(2):
            self.assertEqual(ws.send("x").receive(), "1 /unkept/kept 127.0.0.1 127.0.0.1")
        self.assertIn("the response 101 was sent", self.open("/unkept/res").send("x").receive())

    def test_a_returned_reason_closes_with_1011(self):
        mark = self.server.mark()
        self.assertEqual(self.open("/error/returned").send("no such room").closes(), (1011, ""))
        self.server.wait_log(r"error.*request [0-9a-f]{16} GET /error/returned: /error/returned \(.*site.lua:\d+\): "
                             "the handler returned nil, no such room$", mark)
        self.assertEqual(self.open("/error/object").send("x").closes(), (1011, ""))
        self.server.wait_log("GET /error/object: .*the handler returned nil, ", mark)
        self.assertEqual(self.open("/nil").send("x").closes(), (1000, ""))

    def test_the_results_of_the_functions_of_a_connection(self):
        """A result that nothing reads was meant to refuse the client, or to answer it."""
        mark = self.server.mark()
        wrong = {"status": "403", "no": "false", "text": "echo", "number": "0", "table": "{ a = 1 }", "failure": "nil, not allowed"}
        for name, said in wrong.items():
            ws = self.open("/results?open=" + name)
            self.assertEqual(ws.send("fine").closes(), (1011, ""))
            self.end("results 1011")
            self.server.wait_log(r"error.*GET /results: /results \(.*site.lua:\d+\): open returned " + re.escape(said), mark)
            for waits in "", "wait ":
                ws = self.open("/results")
                self.assertEqual(ws.send(waits + name).receive(), "got " + waits + name)
                self.assertEqual(ws.closes(), (1011, ""))
                self.end("results 1011")
                self.server.wait_log(r"error.*WebSocket /results \(.*: message returned " + re.escape(said), mark)
            self.assertEqual(self.open("/results/whole").send(name).closes(), (1011, ""))
            self.server.wait_log("error.*GET /results/whole.*: the handler returned " + re.escape(said), mark)
        for name in "fine", "none", "null":
            ws = self.open("/results?open=" + name)
            for waits in "", "wait ":
                self.assertEqual(ws.send(waits + name).receive(), "got " + waits + name)
            ws.close()
            self.end("results 1000")
            self.assertEqual(self.open("/results/whole").send(name).closes(), (1000, ""))
        self.open("/results").close(1000, "status")
        self.end("results 1000")
        self.server.wait_log("error.*WebSocket /results .*: close returned 403", mark)

    def test_a_middleware_fails_after_the_handshake(self):
        mark = self.server.mark()
        for query, error in (("fail=1", "broken middleware"),
                             ("header=1", "the response 101 was sent, .*a WebSocket: set header fields before next")):
            ws = self.open("/after?" + query)
            self.assertRegex(ws.receive(), "^opened ")
            self.assertEqual(ws.send("on").receive(), "got on")
            self.server.wait_log("request [0-9a-f]{16} GET /after: .*" + error, mark)
            self.server.wait_log("seen /after 0", mark)
            ws.close()
            self.end("^closed 1000$")
            mark = self.server.mark()
        ws = self.open("/after?send=1")
        self.assertEqual(ws.receive(), "opened nil")
        self.end("the response 101 was sent, and the connection is a WebSocket: .*send data with ws:send$")
        ws.close()
        self.end("^closed 1000$")

    def test_a_middleware_waits_behind_the_handshake(self):
        """The 101 has left, and the connection begins when the middleware has ended."""
        ws = self.open("/after?wait=1").send("early")
        for _ in range(20):  # time for a handler that runs too early
            self.get("/")
        self.get("/behind")
        self.assertEqual(ws.receive(), "opened nil")
        self.assertEqual(ws.receive(), "got early")
        self.assertEqual(ws.close(), (1000, ""))
        self.end("^closed 1000$")

    def test_a_connection_is_lost_behind_the_handshake(self):
        """No handler runs."""
        for path in ("/after", "/after/co"):
            conn = self.connect()
            conn.send(handshake(path + "?unaware=1&wait=1"))
            begun = os.path.join(self.server.dir, "handshake")
            self.eventually(lambda: os.path.exists(begun), "the middleware runs")
            conn.reset()
            os.remove(begun)
            write_text(os.path.join(self.server.dir, "reset"), "")
            for _ in range(20):  # time for a handler that runs too early
                self.get("/")
            self.get("/behind")
            self.end("^behind it$")
            self.eventually(lambda: self.stats()["websockets"] == 0, "the connection has ended")
            self.assertEqual(self.open("/after").close(), (1000, ""))
            self.assertEqual(self.end("^(closed|begun)"), "closed 1000")

    def test_options_are_checked(self):
        options = "compress, max_message, max_queue, message_timeout, origins, overflow, ping, ping_timeout, protocols, "
        for call, message in (
                ("{ message = print, error = print }",
                 'unknown option "error"; the options are close, close_timeout, compress, max_message, max_queue, '
                 "message, message_timeout, open, "),
                ("{ eror = 1 }, print", 'unknown option "eror"; the options are close_timeout, ' + options),
                ("{ on_message = print }", '''unknown option "on_message"; did you mean 'message'?'''),
                ("{ onmessage = print }", '''unknown option "onmessage"; did you mean 'message'?'''),
                ("{ overflow = 'drop' }, print", 'overflow must be "close" or "skip"; got "drop"'),
                ("{ origins = { 'example.org' } }, print", 'without a path or *: "https://example.org"; got "example.org"'),
                ("{ origins = 'https://a' }, print", 'write { "https://a" }'),
                ("{ protocols = 'a' }, print", 'protocols = { "a" }'),
                ("{ protocols = { 'a b' } }, print", 'got "a b"'),
                ("{ compress = true }", "it needs open, message or close"),
                ("{ message = 1 }", "message must be a function(ws, data, kind)"),
                ("print, {}", "the options come before the function"),
                ("7", "needs a function(ws, req), or a table")):
            self.assertIn(message, self.ask("POST", "/wrong", body=call.encode()).text)

    def test_misuse(self):
        ws = self.open("/misuse")
        for code, expected in (
                ("ws:send({})", "false .*string, number or buffer expected, got a table; send ls.json.encode"),
                ("ws:send()", "false .*string, number or buffer expected"),
                ("ws:send('\\xff')", 'false .*text must be UTF-8; send other bytes with ws:send\\(data, "binary"\\)'),
                ("ws:send('hello ', 'ada')",
                 r'''false .*ws:send: the kind is "text" or "binary", not "ada"; join values with `\.\.`$'''),
                ("ws:send('a', {})", 'false .*the kind is "text" or "binary", not a table'),
                ("ws:send('a', 'text', 3)", "false .*too many arguments .*3"),
                ("local t = {} t.t = t ls.publish('x', t)", "false .*ls.publish: value.t is a table that contains itself"),
                ("ls.publish('x', { print })", "false .*ls.publish: .*function"),
                ("ws:close(1006)", "false .*invalid code 1006"),
                ("ws:close(999)", "false .*invalid code 999"),
                ("ws:close(1000, ('x'):rep(124))", "false .*at most 123 bytes; got 124"),
                ("ws:close(1000, '\\xff')", "false .*must be UTF-8"),
                ("ws:ping(('x'):rep(126))", "false .*at most 125 bytes"),
                ("ws.send = 1", "false .*ws.send is read-only"),
                ("ws.remote = 1", "false .*ws.remote is read-only"),
                ("ws:receive(-1)", "false .*must be 0 or more"),
                ("ws:subscribe('')", "false .*topic"),
                ("ws:close(1000, 'a', 'b')", "false .*too many arguments"),
                ("ws.own = { 1 } return ws.own[1], ws.none", "true 1 nil"),
                ("return ws.queued, ws.closed, ws.code", "true 0 false nil"),
                ("return tostring(ws)", r"true WebSocket \(127.0.0.1:\d+\)"),
                ("return ws:ping('x')", "true true"),
                ("local b = ls.buffer('a', 'b') ws:send(b) return 1", "ab"),
                ("ws:send(7) return 1", "true 1|7"),
        ):
            with self.subTest(code=code):
                self.assertRegex(ws.send(code).receive(), expected)
                if "return 1" in code and "send" in code:
                    ws.receive()
        ws.send("ws:close(4000, ('x'):rep(123)) return (select(2, ws:send('x')))")
        self.assertEqual(ws.closes(), (4000, "x" * 123))
        self.end("^true closed")
        self.assertRegex(self.open("/misuse/event").send("x").receive(), "go to the function 'message' of app:ws")

    def test_two_tasks_cannot_receive(self):
        ws = self.open("/two")
        self.assertIn("another task already receives", ws.receive())
        self.assertEqual(ws.send("for the job").receive(), "for the job")

    # -- close

    def test_close_by_the_server(self):
        ws = self.open("/closes")
        self.assertEqual(ws.send("bye").closes(), (4001, "bye"))
        self.end("^4001 ")

    def test_close_from_another_task(self):
        self.assertEqual(self.open("/other").closes(), (4003, "from a job"))
        self.end("^nil ECLOSED$")

    def test_a_lost_connection_is_1006(self):
        self.open("/event").conn.close()
        self.end("^1006 ")

    def test_a_message_outlives_its_connection(self):
        ws = self.open("/gated")
        ws.conn.send(frame(TEXT, b"wait") + frame(TEXT, b"left"))
        self.end("^wait$")
        ws.conn.reset()
        while self.get("/gated/publish").text != "0":  # a send that fails finds the loss
            pass
        self.get("/gate")
        self.end("^left$")
        self.end("^gated 1006$")

    def test_a_send_that_finds_the_loss_knows_the_code(self):
        ws = self.open("/unaware").send("go")
        self.eventually(lambda: os.path.exists(os.path.join(self.server.dir, "unaware")), "the handler runs")
        ws.conn.reset()
        write_text(os.path.join(self.server.dir, "lost"), "")
        self.end("^nil ECLOSED 1006$")

    # -- limits, back-pressure

    def test_send_waits_for_a_peer_that_does_not_read(self):
        ws = self.open("/flood", rcvbuf=4096)
        seen = [0, -1]
        while seen[-1] != seen[-2]:  # until the server waits: no further message within some requests
            seen.append([self.get("/sent").text for _ in range(50)][-1])
        self.assertLess(int(seen[-1]), 1024)
        for _ in range(1024):
            self.assertEqual(len(ws.receive()), 65536)
        self.assertEqual(ws.closes(), (1000, ""))
        self.end("^sent all$")

    # -- topics

    def test_publish_and_unsubscribe(self):
        names = ("one", "two", "three")
        members = [self.open("/room/a") for _ in names]
        members.append(self.open("/room/a", deflate=True))
        other = self.open("/room/b")
        for ws, text in zip(members, names):
            ws.send(text)
        for ws in members:
            self.assertEqual(sorted(ws.receive() for _ in names), sorted(names))
        members[0].send(b"\x00" * 3000)
        members[1].send("long " * 1000)
        for ws in members:
            self.assertEqual({ws.receive(), ws.receive()}, {b"\x00" * 3000, "long " * 1000})
        self.assertEqual(members[0].send("leave").receive(), "left")
        members[1].send("rest")
        for ws in members[1:]:
            self.assertEqual(ws.receive(), "rest")
        self.assertEqual(members[0].close(), (1000, ""))
        other.send("own")
        self.assertEqual(other.receive(), "own")

    def test_the_end_sends_what_was_published_before(self):
        for way, code in (("close", 4001), ("return", 1000), ("error", 1011)):
            with self.open("/last/" + way) as ws:
                self.assertEqual([ws.receive() for _ in range(100)], [str(n) for n in range(1, 101)], way)
                self.assertEqual(ws.closes()[0], code)
        self.eventually(lambda: self.stats()["topic_subscriptions"] == 0, "every subscription has ended")

    def stats(self):
        return json.loads(self.get("/stats").body)


class Own(Case):
    """Tests with a server of their own, self.server."""

    def start(self, site, **options):
        self.server = self.serve(site, **options)
        return self.server

    def tearDown(self):
        self.server = None  # it may have ended

    def stops(self):
        """It has got its signal, and ends in order."""
        self.assertEqual(self.server.wait(), 0, self.server.log())


class Alone(Own):

    @unittest.skipIf(SANITIZER == "tsan", "ThreadSanitizer delays signals while Lua loops")
    def test_max_cpu(self):
        server = self.start(SITE.replace("threads = 4", "threads = 2, max_cpu = 0.2"))
        with self.open("/cpu") as ws:
            self.assertEqual(ws.send("x").closes(), (1011, ""))
        server.wait_log("more processor time than max_cpu")

    def test_a_subscriber_that_closes_drops_nothing(self):
        self.start(SITE.replace("threads = 4", "threads = 1, threads_max = 1"))  # one state, which delivers in the order of the subscriptions
        closes, stays = self.open("/leaving"), self.open("/leaving")
        self.assertEqual((closes.receive(), stays.receive()), ("subscribed", "subscribed"))
        self.assertEqual(closes.send("x").read_frame().opcode, CLOSE)  # it does not answer
        self.assertEqual(stays.receive(), "own")
        for _ in range(2):
            self.assertEqual(self.get("/publish/leaving").text, "1")
            self.assertEqual(stays.receive(), "x")
        stats = json.loads(self.get("/stats").body)
        self.assertEqual((stats["topic_dropped"], stats["topic_closed"]), (0, 0))
        closes.conn.close()
        stays.conn.close()

    def test_stop(self):
        server = self.start(SITE)
        held = [self.open(path) for path in ("/co", "/event", "/listens")]
        self.assertEqual(held[2].receive(), "welcome")
        server.signal()
        for ws in held:
            self.assertEqual(ws.closes(), (1001, ""))
            ws.conn.close()
        self.stops()

    def test_stop_with_a_peer_that_does_not_answer(self):
        server = self.start(SITE.replace('"/listens", {', '"/listens", { close_timeout = 0.2,'))
        ws = self.open("/listens")
        server.signal()
        with self.assertRaises(CloseFrame):
            while True:
                ws.receive()
        self.stops()

    def test_stop_waits_for_close_handlers(self):
        site = SITE.replace('app:ws("/listens", {', 'app:ws("/listens", { close = function() ls.sleep(0.05) '
                            'ls.log.info("close handler is over") end, ')
        server = self.start(site)
        ws = self.open("/listens")
        self.assertEqual(ws.receive(), "welcome")
        server.signal()
        self.assertEqual(ws.closes(), (1001, ""))
        ws.conn.close()
        self.stops()
        self.assertEqual(len(server.logged("close handler is over")), 1)

    def test_tls(self):
        folder = self.new_folder()
        certificate(folder, "localhost")
        tls = '{ cert = "%s/localhost.pem", key = "%s/localhost.key" }' % (folder, folder)
        site = SITE.replace("port = 0, handler", "port = 0, tls = %s, handler" % tls).replace("tostring(ws.tls)", "ws.tls.version")
        server = self.serve(site)
        trusting = context(ca=os.path.join(folder, "localhost.pem"))
        for path in ("/co", "/event"):
            with WebSocket(server.at(), path, tls=trusting) as ws:
                for data in ("hello", "x" * 500000):
                    self.assertEqual(ws.send(data).receive(), data)
                self.assertEqual(ws.close(), (1000, ""))
        with WebSocket(server.at(), "/protocol", tls=trusting) as ws:
            self.assertRegex(ws.receive(), "^nil TLSv1")

    def test_a_duplicate_route(self):
        site = 'local ls = require "luaserve"\nlocal app = ls.app()\napp:get("/", print)\napp:ws("/", print)\nls.listen(0, app)\n'
        line = self.refuses(site, "app:ws: GET / is already defined at ")
        self.assertRegex(line, r"/site\.lua:3$")  # Lua shortens a long path


RELOAD = r"""
local ls = require "luaserve"
ls.config { drain_timeout = @DRAIN@ }
local app = ls.app()
app:get("/", function() return "@V@" end)
app:ws("/co", function(ws)
  ws:subscribe("all")
  for data in ws:messages() do ws:send("@V@ " .. data) end
end)
app:ws("/event", { open = function(ws) ws:subscribe("all") end, message = function(ws, data) ws:send("@V@ " .. data) end })
app:ws("/stays", function() while true do ls.sleep(0.1) end end)
app:get("/stats", function() return ls.stats() end)
app:get("/publish", function() return tostring(ls.publish("all", "@V@ says")) end)
app:get("/wait", function() ls.log.info("waits") ls.sleep(1000) end)
app:get("/upgrade", function(req, res)
  local sock = assert(res:upgrade("x"))
  ls.log.info("upgraded")
  for line in sock:lines() do sock:send(line, "\n") end
end)
"""
LISTEN = 'ls.listen { host = "127.0.0.1", port = 0, handler = app }\n'

# Beside the WebSockets: a consumer of a channel, a loop, and what a handler begins.
WORK = r"""
local jobs, turns = ls.channel("jobs"), ls.dict("turns")
ls.on("start", function()
  for job in jobs:values() do ls.log.info("@V@ does job " .. job) end
end)
ls.init(function()
  ls.spawn(function() while LOOPS and not turns.ends do turns:incr("@V@") ls.sleep(0.02) end end)
end)
app:get("/turns", function() return { one = turns.one, two = turns.two or 0 } end)
app:get("/end", function() turns.ends = true return "it ends" end)
app:get("/job/:n", function(req) assert(jobs:send(req.params.n)) return "sent" end)
app:ws("/begins", function(ws)
  ls.every(0.02, function() ws:send("timer") end)
  ls.spawn(function() while ws:send("job") do ls.sleep(0.02) end end)
  for _ in ws:messages() do ws:send("reply") end
end)
"""

# Functions that call themselves by ls.after, and count.
CHAINS = r"""
local turns, begun = ls.dict("turns"), false
local function chain(kind)
  local function turn()
    turns:incr(kind .. " @V@")
    ls.after(0.01, turn)
  end
  return turn
end
ls.after(0.01, chain("top"))
ls.init(chain("init"))
ls.on("start", chain("start"))
ls.every(0.01, function()
  if not begun then chain("every")() end
  begun = true
end)
app:post("/chain", function() chain("handler")() end)
app:ws("/chain", function(ws)
  chain("websocket")()
  for _ in ws:messages() do end
end)
app:get("/chains", function()
  local all = {}
  for kind, n in pairs(turns) do all[kind] = n end
  return all
end)
"""


class Reload(Own):
    def change(self, version, drain="15", more=""):
        write_text(self.server.site + ".new", (RELOAD + more + LISTEN).replace("@V@", version).replace("@DRAIN@", drain))
        os.replace(self.server.site + ".new", self.server.site)
        self.server.reload("reloaded .*site.lua in|reloaded site.lua in")

    def begin(self, drain="15", flags=(), more=""):
        self.start((RELOAD + more + LISTEN).replace("@V@", "one").replace("@DRAIN@", drain), flags=flags)

    def test_connections_survive(self):
        self.begin()
        old = [self.open("/co"), self.open("/event")]
        self.change("two")
        new = [self.open("/co"), self.open("/event")]
        for ws in old:
            self.assertEqual(ws.send("a").receive(), "one a")
        for ws in new:
            self.assertEqual(ws.send("a").receive(), "two a")
        self.assertEqual(self.get("/publish").text, "4")
        for ws in old + new:
            self.assertEqual(ws.receive(), "two says")
        self.server.signal()
        for ws in old + new:
            self.assertEqual(ws.closes(), (1001, ""))
            ws.conn.close()
        self.stops()

    def test_they_survive_drain_timeout(self):
        self.begin(drain="0.2", more='app:get("/waits", function() ls.log.info("waits") ls.sleep(1000) end)\n')
        old = [self.open("/co"), self.open("/event")]
        self.connect().send(request("GET", "/waits"))
        self.server.wait_log("info waits")
        self.change("two", drain="0.2")
        self.server.wait_log("the previous site continues for 2 WebSocket connections")
        self.server.wait_log("warn ended with the previous site, unfinished: a request$")
        for ws in old:
            self.assertEqual(ws.send("a").receive(), "one a")
            self.assertEqual(ws.close(), (1000, ""))
        self.change("three", drain="0.2")
        with self.open("/co") as ws:
            self.assertEqual(ws.send("a").receive(), "three a")
        self.server.stop()
        self.assertEqual(self.server.log().count("ended with the previous site"), 1)

    def does(self, numbers):
        """The sites that the jobs were given to."""
        mark = self.server.mark()
        for n in numbers:
            self.assertEqual(self.get("/job/%d" % n).text, "sent")
        for n in numbers:
            self.server.wait_log("does job %d$" % n, mark)
        return set(re.findall(r"(\w+) does job", self.server.log()[mark:]))

    def old_consumers_end(self):
        batches = itertools.count(1000, 20)
        self.eventually(lambda: self.does(range(n := next(batches), n + 20)) == {"two"}, "the previous site takes no job")
        for _ in range(3):
            self.assertEqual(self.does(range(n := next(batches), n + 20)), {"two"})

    def test_consumers_of_an_old_site_end(self):
        idle = WORK.replace("LOOPS", "false")
        self.begin(more=idle)
        with self.open("/co") as ws:
            self.assertEqual(self.does(range(5)), {"one"})
            self.change("two", more=idle)
            self.old_consumers_end()
            self.assertNotIn("the previous site continues", self.server.log())  # long before drain_timeout
            self.assertEqual(ws.send("a").receive(), "one a")

    def turns(self):
        return json.loads(self.get("/turns").body)

    def test_tasks_of_an_old_site_end_but_not_those_of_its_websockets(self):
        loops = WORK.replace("LOOPS", "true")
        self.begin(drain="0.2", more=loops)
        with self.open("/begins") as ws:
            self.change("two", drain="0.2", more=loops)
            self.server.wait_log("the previous site continues for 1 WebSocket connection; its other tasks end")
            self.old_consumers_end()
            before = self.turns()
            self.eventually(lambda: self.turns()["two"] > before["two"] + 5, "the new site goes on")
            self.assertEqual(self.turns()["one"], before["one"])
            ws.send("a")
            while ws.receive() != "reply":
                pass
            self.assertEqual({ws.receive() for _ in range(20)}, {"job", "timer"})
        self.assertEqual(self.get("/end").text, "it ends")

    def goes_on(self, kinds):
        """Which of these chains of the previous site still run."""
        before = self.chains()
        self.eventually(lambda: self.chains()["top two"] > before["top two"] + 10, "the new site goes on")
        after = self.chains()
        return {kind for kind in kinds if after[kind + " one"] > before[kind + " one"]}

    def chains(self):
        return json.loads(self.get("/chains").body)

    def test_timers_of_an_old_site_end_but_not_those_of_its_websockets(self):
        self.begin(more=CHAINS)
        kinds = {"top", "init", "start", "every", "handler", "websocket"}
        with self.open("/chain") as ws:
            self.assertEqual(self.server.connect().ask("POST", "/chain").status, 204)
            self.eventually(lambda: len(self.chains()) == len(kinds), "all chains have begun")
            self.change("two", more=CHAINS)
            self.eventually(lambda: "top two" in self.chains(), "the new site has begun")
            self.eventually(lambda: self.goes_on(kinds) == {"websocket"}, "the previous site continues for the WebSocket alone")
            for _ in range(3):
                self.assertEqual(self.goes_on(kinds), {"websocket"})
            self.assertNotIn("the previous site continues", self.server.log())  # long before drain_timeout
            self.server.wait_log("calls? of ls.after did not run, because the site was replaced or stopped")
            self.assertEqual(ws.close(), (1000, ""))

    def test_timers_of_requests_end_with_the_tasks_that_are_cut(self):
        self.begin(more=CHAINS, drain="0.2")
        kinds = {"top", "init", "start", "every", "handler", "websocket"}
        with self.open("/chain") as ws, self.server.connect() as waits:
            waits.send(request("GET", "/wait"))
            self.server.wait_log("waits")
            self.assertEqual(self.server.connect().ask("POST", "/chain").status, 204)
            self.eventually(lambda: len(self.chains()) == len(kinds), "all chains have begun")
            self.change("two", drain="0.2", more=CHAINS)
            self.server.wait_log("the previous site continues for 1 WebSocket connection")
            self.server.wait_log("ended with the previous site, unfinished: a request$")
            self.eventually(lambda: self.goes_on(kinds) == {"websocket"}, "the previous site continues for the WebSocket alone")
            self.assertEqual(self.goes_on(kinds), {"websocket"})
            self.assertEqual(ws.close(), (1000, ""))

    def test_timers_of_a_request_that_is_under_way(self):
        """One that it has set before the reload is called, and so is one that it sets then."""
        more = """
local done, go = ls.channel("done"), ls.channel("go")
app:get("/guarded", function()
  ls.after(0.5, function() done:send("after") end)
  ls.log.info("guarded waits")
  local first, n = done:receive(), 0
  go:receive()
  ls.every(0.01, function()
    n = n + 1
    if n == 3 then done:send("every") end
  end)
  return first .. ", " .. done:receive()
end)
app:get("/go", function() assert(go:send("@V@")) return "@V@" end)
"""
        self.begin(more=more)
        with self.open("/co") as ws, self.server.connect() as waits:
            waits.send(request("GET", "/guarded"))
            self.server.wait_log("guarded waits")
            self.change("two", more=more)
            self.assertEqual(self.get("/go").text, "two")
            self.assertEqual(waits.response().text, "after, every")
            self.assertEqual(ws.send("a").receive(), "one a")

    def test_what_goes_on_or_is_idle_is_not_counted_as_cut(self):
        more = """
app:get("/idle", function() ls.spawn(function() ls.channel("never"):receive() end) return "idle" end)
app:ws("/holds", function(ws)
  local sock
  for port in ws:messages() do
    sock = assert(ls.connect("127.0.0.1", tonumber(port)))
    ws:send("connected")
  end
  sock:close()
end)
"""
        self.begin(more=more, drain="0.2")
        self.assertEqual(self.get("/idle").text, "idle")
        with self.open("/holds") as ws:
            self.assertEqual(ws.send(str(self.server.port())).receive(), "connected")
            self.change("two", more=more, drain="0.2")
            self.server.wait_log("the previous site continues for 1 WebSocket connection")
            self.assertEqual(ws.send(str(self.server.port())).receive(), "connected")
            self.assertEqual(ws.close(), (1000, ""))
        self.server.stop()
        self.assertEqual(self.server.logged("ended with the previous site"), [])

    def stats(self):
        return json.loads(self.get("/stats").body)

    def test_the_oldest_of_too_many_old_sites_closes_its_websockets(self):
        limits = "0.2, old_sites = 2"
        self.begin(drain=limits, flags=("--log-level", "debug"))
        clients = [[self.open("/co"), self.open("/event"), self.open("/stays")]]
        for version in ("two", "three"):
            self.change(version, drain=limits)
            clients.append([self.open("/co")])
        self.assertEqual(clients[0][0].send("a").receive(), "one a")  # at the limit
        self.assertEqual(clients[1][0].send("a").receive(), "two a")
        self.assertEqual(self.stats()["websockets_restarted"], 0)
        self.change("four", drain=limits)
        for ws in clients[0]:  # one past it
            self.assertEqual(ws.closes(), (1012, ""))
        self.server.wait_log("the previous site closes 3 WebSocket connections with 1012: old_sites of ls.config is exceeded")
        self.server.wait_log("the previous site has ended")  # with the handler that does not return
        self.assertEqual(clients[1][0].send("a").receive(), "two a")
        self.assertEqual(clients[2][0].send("a").receive(), "three a")
        stats = self.stats()
        self.assertEqual((stats["websockets_restarted"], stats["old_sites"], stats["websockets"]), (3, 2, 2))
        for ws in clients[1] + clients[2]:
            self.assertEqual(ws.close(), (1000, ""))

    def test_an_old_site_closes_its_websockets_after_old_site_timeout(self):
        limits = "15, old_site_timeout = 0.3"
        self.begin(drain=limits)
        old = [self.open("/co"), self.open("/event")]
        self.change("two", drain=limits)
        for ws in old:
            self.assertEqual(ws.closes(), (1012, ""))
        self.server.wait_log("the previous site closes 2 WebSocket connections with 1012: old_site_timeout of ls.config is over")
        with self.open("/co") as ws:
            self.assertEqual(ws.send("a").receive(), "two a")

    def test_an_old_site_that_ends_late_ends_in_order(self):
        """Its WebSockets keep it for longer than its handlers would have had after drain_timeout."""
        self.begin(drain="0.2", flags=("--log-level", "debug"))
        old = self.open("/co")
        self.change("two", drain="0.2", more='ls.after(5.5, function() ls.log.info("late") end)')
        self.server.wait_log("late")
        self.assertEqual(old.close(), (1000, ""))
        self.server.wait_log("the previous site has ended")
        self.assertFalse(self.server.logged("does not end"))

    def test_requests_of_an_old_site_are_cut(self):
        self.begin(drain="0.2")
        old = self.open("/co")
        waits, upgraded = self.server.connect(), self.server.connect()
        self.addCleanup(waits.close)
        self.addCleanup(upgraded.close)
        waits.send(request("GET", "/wait"))
        upgraded.send(request("GET", "/upgrade", [("Connection", "upgrade"), ("Upgrade", "x")]))
        self.server.wait_log("waits")
        self.server.wait_log("upgraded")
        self.change("two", drain="0.2")
        upgraded.head()
        upgraded.expect_end()
        self.assertEqual(waits.response().status, 503)
        self.assertEqual(old.send("a").receive(), "one a")
        self.assertEqual(old.close(), (1000, ""))
