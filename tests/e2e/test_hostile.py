"""Sites that misuse the interface: jobs that outlive the response, two tasks that read one body, finalizers that
answer, chains of waiting jobs, ls.stop in any place. The server stays up and keeps its guarantees."""
import os
import time

from harness import E2E, SANITIZER, WINDOWS, app_site, repeats, request, run_program, scratch

SITE = app_site(r"""
ls.config{ max_memory = "200m", drain_timeout = 5, max_jobs = 30000 }
app:get("/", function() return "root" end)
app:get("/live", function() collectgarbage() return tostring(ls.stats().blocks_live) end)

-- One body, several tasks
app:post("/answer-before-job", function(req)
  ls.spawn(function() pcall(req.body, req) end)
  ls.sleep(0.01)
  return "early"
end)
app:post("/error-before-job", function(req)
  ls.spawn(function() pcall(req.body, req) end)
  ls.sleep(0.01)
  error("on purpose")
end)
app:post("/two-readers", function(req)
  local mine, other = 0, 0
  local next_chunk = req:chunks()
  local job = ls.spawn(function() for chunk in next_chunk do other = other + #chunk end end)
  ls.sleep(0.01)
  for chunk in next_chunk do mine = mine + #chunk end
  job:wait()
  return { sum = mine + other }
end)
app:post("/chunks-in-gsub", function(req)
  local n = 0
  local ok, err = pcall(string.gsub, "x", "x", function() for chunk in req:chunks() do n = n + #chunk end end)
  ls.log.info("behind gsub")
  for chunk in req:chunks() do n = n + #chunk end
  return { ok = ok, err = err, n = n }
end)
app:post("/body-in-gsub", function(req)
  local ok, err = pcall(string.gsub, "x", "x", function() return req:body() end)
  ls.log.info("behind gsub")
  return { ok = ok, err = err, n = #req:body() }
end)
app:post("/both-ways", function(req, res)
  local n = 0
  local job = ls.spawn(function() for chunk in req:chunks() do n = n + #chunk end end)
  ls.sleep(0.01)
  for _ = 1, 2000 do assert(res:write(("z"):rep(1000):rep(16))) end
  job:wait()
  res:write("got " .. n)
end)
app:post("/half-closed", function(req, res)
  ls.spawn(function() req:body() end)
  ls.sleep(0.01)
  local _, _, code = res:write(("y"):rep(1000):rep(20000))
  ls.log.info("the write gave " .. tostring(code))
  collectgarbage()
  local keep = {}
  for i = 1, 3 do keep[i] = tostring(i):rep(1000):rep(8000) end
  ls.log.info("filled again")
  ls.sleep(0.05)
end)
app:get("/write-after-close", function(_, res)
  local buffer = ls.buffer(("b"):rep(1000):rep(700))
  for _ = 1, 1000 do
    if not res:write(("s"):rep(1000):rep(30)) or not res:write(buffer) then break end
    ls.sleep(0.002)
  end
  ls.log.info("gave up")
end)

-- Finalizers
local function at_collection(fn) setmetatable({}, { __gc = fn }) end
local function in_a_moment(fn) -- the next collection calls fn
  collectgarbage()
  collectgarbage("stop")
  at_collection(fn)
  collectgarbage("restart")
end
app:get("/finalizer-sends", function(_, res)
  local t = {}
  for i = 1, 30000 do t[i] = i end
  in_a_moment(function() pcall(res.send, res, "from a finalizer") end)
  return t
end)
app:get("/finalizer-writes", function(_, res)
  local t = {}
  for i = 1, 30000 do t[i] = i end
  in_a_moment(function() pcall(res.write, res, "from a finalizer") end)
  return t
end)
app:get("/finalizer-between-parts", function(_, res)
  local part = ("p"):rep(1000):rep(70)
  string.gsub("x", "x", function() -- a callback of string.gsub cannot wait; the reference to the part takes memory
    in_a_moment(function() pcall(res.send, res, "from a finalizer") end)
    pcall(res.write, res, part)
  end)
end)
app:get("/finalizer-spawns", function()
  for _ = 1, 50 do
    at_collection(function() ls.after(0, function() end) pcall(ls.spawn, function() ls.sleep(0) end) end)
    at_collection(function() ls.sleep(1) end)
    at_collection(function() error("in a finalizer") end)
    at_collection(function() coroutine.yield() end)
  end
  collectgarbage()
  return "collected"
end)
app:get("/finalizer-stops", function()
  at_collection(function() ls.stop() end)
  collectgarbage()
  return "stopped"
end)
local kept = {}
app:get("/left-for-the-end", function(req, res)
  for i = 1, 50 do -- kept: else a collection in a handler calls the finalizers there
    kept[#kept + 1] = setmetatable({}, { __gc = function()
      if i == 1 then ls.log.info("finalized") end
      pcall(ls.after, 0, print) pcall(ls.spawn, print) pcall(ls.sleep, 1) pcall(ls.stats) pcall(ls.stop)
      pcall(function() return req.path end) pcall(res.write, res, "x") pcall(ls.buffer, "x") pcall(app.inject, app, {})
      pcall(ls.log.info, "x") pcall(ls.every, 1, print) pcall(ls.listen, 0, app) pcall(ls.connect, "127.0.0.1:1")
      pcall(ls.udp_connect, "127.0.0.1:1") pcall(ls.json.encode, {}) pcall(coroutine.wrap(function() ls.sleep(0) end))
    end })
  end
  return "left"
end)

-- Coroutines and to-be-closed variables
app:get("/wrap-across-pcall", function()
  local step = coroutine.wrap(function()
    for i = 1, 3 do
      pcall(function() ls.sleep(0.001) coroutine.yield(i) ls.sleep(0.001) end)
    end
    error({ "end" })
  end)
  local seen = { step(), step(), step() }
  local ok, err = pcall(step)
  return { seen = seen, ok = ok, kind = type(err) }
end)
app:get("/close-waits", function(_, res)
  local ok, err = pcall(function()
    local _ <close> = setmetatable({}, { __close = function() ls.sleep(0.001) res:write("closed;") end })
    error("first")
  end)
  res:write(tostring(ok), " ", (tostring(err):gsub("^.-: ", "")))
end)
app:get("/close-in-dead-coroutine", function()
  local co = coroutine.wrap(function()
    local _ <close> = setmetatable({}, { __close = function() ls.sleep(1) end })
    error("inside")
  end)
  local ok, err = pcall(co)
  return { ok = ok, err = tostring(err) }
end)
app:get("/close-left-behind", function()
  local _ <close> = setmetatable({}, { __close = function() ls.sleep(1) end })
  error("on purpose")
end)

-- Many
app:get("/chain", function(req)
  local last = ls.spawn(function() ls.sleep(0.05) end)
  for _ = 1, tonumber(req.query.n) do
    local before = last
    last = ls.spawn(function() before:wait() end)
  end
  last:wait()
  return "chained"
end)
app:get("/many-waiters", function(req)
  local first = ls.spawn(function() ls.sleep(0.05) return 1 end)
  local jobs, sum = {}, 0
  for n = 1, tonumber(req.query.n) do jobs[n] = ls.spawn(function() return first:wait() end) end
  for n = 1, #jobs do sum = sum + jobs[n]:wait() end
  return { sum = sum }
end)
app:get("/inject-inside", function() return app:inject{ path = "/inject-inside" }.status end)

-- Methods called with values of other types
app:get("/foreign", function(req, res)
  local results = {}
  local meta = getmetatable(req.headers)
  results.headers = pcall(meta.__index, 5, "X") or pcall(meta.__index, nil, "X") or pcall(meta.__index, req, "X")
  results.req = pcall(res.status, req) or pcall(req.header, res, "x") or pcall(req.body, io.stdout)
  results.buffer = pcall(ls.buffer().append, io.stdout, "x") or pcall(ls.buffer().sub, req, 1)
  local timer = ls.after(100, print)
  results.timer = pcall(timer.cancel, io.stdout) or pcall(timer.cancel, req) or pcall(timer.cancel, 1)
  timer:cancel()
  local job = ls.spawn(print)
  results.job = pcall(job.wait, io.stdout) or pcall(job.wait, timer)
  return results
end)
app:get("/cookie-options", function(_, res)
  collectgarbage("step")
  local opts = setmetatable({}, { __index = function(_, k) return k == "path" and string.rep("/p", 5000) or nil end })
  res:cookie("a", "b", opts)
  return "ok"
end)
app:get("/nils/:kind", function(req, res)
  local headers = { ["X-A"] = "1" }
  if req.params.kind == "sent" then res:send("sent") end
  return table.unpack(({ status = { 201, "body", headers }, body = { "body", headers }, nothing = {},
    message = { nil, "why" }, sent = {} })[req.params.kind], 1, 10000)
end)
app:get("/twenty", function() return 201, "body", { ["X-A"] = "1" }, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 end)
local statuses = { nan = 0 / 0, inf = math.huge, neg = -200, min = math.mininteger, big = 1 << 40, frac = 200.25, z = 0, h = 199, k = 1000 }
app:get("/status/:which", function(req) return statuses[req.params.which], "x" end)
local cyclic = {}
cyclic[1] = cyclic
local tables = { array = { "X-A", "1" }, cyclic = { ["X-A"] = cyclic }, number = { [1.5] = "x" }, nested = { ["X-A"] = { { "x" } } },
  boolean = { ["X-A"] = true }, empty = { [""] = "x" }, crlf = { ["X-A"] = "a\r\nX-B: b" }, huge = { ["X-A"] = ("h"):rep(1000):rep(70) } }
app:get("/headers/:which", function(req) return 200, "x", tables[req.params.which] end)
app:get("/proxy-table", function()
  return setmetatable({}, { __index = function() error("index") end, __pairs = function() error("pairs") end,
    __len = function() return 1e9 end, __tostring = function() error("tostring") end })
end)

local logged = ls.app()
logged:get("/x", function() return "logged" end)
app:mount("/logged", logged)
ls.on("log", function(req)
  if req.path == "/logged/x" then
    ls.log.info("the hook runs")
    error(setmetatable({}, { __tostring = function() error("no text") end }))
  end
end)
""", "send_timeout = 1, body_grace = 20")


class Hostile(E2E):
    SITE = SITE

    def ask_late(self, target, late=b"x" * 8, length=10, line=None):
        """Send a request with a body in two parts, the second after the handler has begun, or has logged the line; returns the
        response."""
        mark = self.server.mark()
        with self.server.connect() as conn:
            conn.send(request("POST", target, {"Content-Length": str(length)}) + b"ab")
            if line is not None:
                self.server.wait_log(line, mark)
            self.assertTrue(conn.silent(0.2), "it waits for the body")
            conn.send(late)
            response = conn.response()
            self.assertEqual(conn.get("/").text, "root")
            return response

    # ---- one body, several tasks

    def test_an_answer_before_a_job_has_read_the_body(self):
        for target, status in (("/answer-before-job", 200), ("/error-before-job", 500)):
            for length in (10, 65536):
                with self.subTest(target=target, length=length), self.server.connect() as conn:
                    conn.send(request("POST", target, {"Content-Length": str(length)}) + b"ab")
                    self.assertEqual(conn.response().status, status)
                    # The rest of the body is not served as a request, and the next request follows it.
                    rest = b"GET /nowhere HTTP/1.1\r\nHost: h\r\n\r\n" * length
                    conn.send(rest[: length - 2])
                    self.assertEqual(conn.get("/").text, "root")

    def test_an_answer_before_a_job_has_read_chunks(self):
        with self.server.connect() as conn:
            conn.send(request("POST", "/answer-before-job", {"Transfer-Encoding": "chunked"}) + b"5\r\nab")
            self.assertEqual(conn.response().text, "early")
            conn.send(b"cde\r\n0\r\n\r\n")
            self.assertEqual(conn.get("/").text, "root")

    def test_an_answer_before_a_job_has_read_too_large_a_rest(self):
        with self.server.connect() as conn:
            conn.send(request("POST", "/answer-before-job", {"Content-Length": "5000000"}) + b"ab")
            response = conn.response()
            self.assertEqual(response.text, "early")
            self.assertTrue(response.closes)
            conn.expect_end()

    def test_a_client_that_goes_before_a_job_has_read_the_body(self):
        for end in ("half_close", "reset"):
            for _ in range(repeats(20)):
                with self.server.connect() as conn:
                    conn.send(request("POST", "/answer-before-job", {"Content-Length": "100"}) + b"ab")
                    if end == "half_close":
                        self.assertEqual(conn.response().text, "early")
                    getattr(conn, end)()
        self.assertEqual(self.get("/").text, "root")

    def test_two_tasks_read_one_body(self):
        self.assertEqual(self.ask_late("/two-readers").text, '{"sum":10}')

    def test_a_wait_that_raises_loses_nothing(self):
        for target in ("/chunks-in-gsub", "/body-in-gsub"):
            text = self.ask_late(target, line="behind gsub").text
            self.assertIn('"ok":false', text, target)
            self.assertIn("cannot wait here", text, target)
            self.assertRegex(text, r'"n":10\b', target)

    def test_both_ways_while_the_client_holds_its_body_back(self):
        """The complete response arrives before the client sends the rest of the body."""
        with self.server.connect() as conn:
            conn.send(request("POST", "/both-ways", {"Content-Length": "10"}) + b"ab")
            conn.response_head()
            got, tail = 0, b""
            while True:
                size = int(conn.line(b"\r\n"), 16)
                tail = conn.take(size + 2)[:-2]
                got += size
                if got == 32000000:
                    conn.send(b"x" * 8)
                if size == 0:
                    break
                last = tail
            self.assertEqual(last, b"got 10")

    def test_a_half_close_while_a_large_string_leaves(self):
        """After the client has closed, the server notices, and does not read the string's bytes."""
        mark = self.server.mark()
        with self.server.connect() as conn:
            conn.send(request("POST", "/half-closed", {"Content-Length": "10"}) + b"ab")
            conn.response_head()
            conn.half_close()
            self.server.wait_log("the write gave ECLOSED", mark)
            self.server.wait_log("filled again", mark)
            chunk = conn.rest().split(b"\r\n", 1)[1].removesuffix(b"\r\n")  # the last chunk never follows
            self.assertEqual(set(chunk), {ord("y")})
        self.assertEqual(self.get("/").text, "root")

    def test_writes_to_a_client_that_left_give_their_blocks_back(self):
        before = int(self.get("/live").text)
        for _ in range(10):
            mark = self.server.mark()
            with self.server.connect() as conn:
                conn.send(request("GET", "/write-after-close"))
                conn.response_head()
                conn.reset()
            self.server.wait_log("gave up", mark)

        def live():
            time.sleep(0.7)  # an idle server collects the garbage of its states
            return int(self.get("/live").text) <= before

        self.eventually(live, "as many blocks as before: %d" % before)

    # ---- finalizers

    def test_finalizers_that_answer(self):
        for target in ("/finalizer-sends", "/finalizer-writes", "/finalizer-between-parts"):
            for _ in range(5):
                with self.server.connect() as conn:
                    response = conn.get(target)
                    self.assertIn(response.status, (200, 500), target)
                    self.assertEqual(conn.get("/").text, "root", target)

    def test_finalizers_that_wait_and_raise(self):
        for _ in range(5):
            self.assertEqual(self.get("/finalizer-spawns").text, "collected")

    def test_finalizers_at_the_end(self):
        server = self.serve(SITE)
        for _ in range(8):
            self.assertEqual(server.get("/left-for-the-end").text, "left")
        self.assertEqual(server.logged("finalized"), [])
        server.stop()
        self.assertEqual(len(server.logged("finalized")), 8)

    def test_a_finalizer_that_stops_the_server(self):
        server = self.serve(SITE)
        self.assertEqual(server.get("/finalizer-stops").text, "stopped")
        self.assertEqual(server.wait(), 0)

    # ---- coroutines

    def test_coroutines(self):
        for target, want in (("/wrap-across-pcall", ('"seen":[1,2,3]', '"ok":false', '"kind":"table"')),
                             ("/close-waits", ("closed;false first",)),
                             ("/close-in-dead-coroutine", ('"ok":false', "cannot wait here"))):
            text = self.get(target).text
            for part in want:
                self.assertIn(part, text, target)
        self.assertEqual(self.get("/close-left-behind").status, 500)

    # ---- many

    def test_a_long_chain_of_jobs(self):
        """Each job wakes the next; their number must not deepen the C stack."""
        count = 4000 if SANITIZER == "tsan" else 20000
        self.assertEqual(self.get("/chain?n=%d" % count).text, "chained")
        self.assertEqual(self.get("/many-waiters?n=5000").text, '{"sum":5000}')

    def test_endless_injection(self):
        """It ends at the memory limit, with an error; the state serves as before."""
        server = self.serve('require("luaserve").config{ max_memory = "16m" }\n' + SITE.replace('max_memory = "200m", ', ""))
        self.assertEqual(server.get("/inject-inside").status, 500)
        self.assertEqual(server.get("/").text, "root")

    # ---- values

    def test_methods_on_foreign_objects(self):
        text = self.get("/foreign").text
        for name in ("headers", "req", "buffer", "timer", "job"):
            self.assertIn('"%s":false' % name, text)

    def test_cookie_options_with_a_metatable(self):
        for _ in range(20):
            response = self.get("/cookie-options")
            self.assertEqual(response.header("Set-Cookie"), "a=b; Path=/; HttpOnly; SameSite=Lax")

    def test_many_values(self):
        self.assertEqual(self.get("/twenty").status, 500)
        response = self.get("/nils/status")
        self.assertEqual((response.status, response.text, response.header("X-A")), (201, "body", "1"))
        response = self.get("/nils/body")
        self.assertEqual((response.status, response.text, response.header("X-A")), (200, "body", "1"))
        self.assertEqual(self.get("/nils/nothing").status, 500)
        self.assertEqual(self.get("/nils/message").status, 500)
        self.assertEqual(self.get("/nils/sent").text, "sent")

    def test_statuses(self):
        for which in ("nan", "inf", "neg", "min", "big", "frac", "z", "h", "k"):
            with self.subTest(which=which):
                mark = self.server.mark()
                self.assertEqual(self.get("/status/" + which).status, 500)
                self.server.wait_log(r"invalid status: .* from 200 to 999", mark)

    def test_headers(self):
        says = {
            "array": "invalid header name: string expected, got number",
            "cyclic": "string or number expected, got table",
            "number": "invalid header name: string expected, got number",
            "nested": "string or number expected, got table",
            "boolean": "string or number expected, got boolean",
            "empty": "invalid header name ''",
            "crlf": "line break",
            "huge": "the headers of the response exceed",
        }
        for which, text in says.items():
            with self.subTest(which=which):
                mark = self.server.mark()
                response = self.get("/headers/" + which)
                self.assertEqual((response.status, response.all("X-A")), (500, []))
                self.server.wait_log(text, mark)

    def test_a_table_of_metamethods(self):
        self.assertEqual(self.get("/proxy-table").text, "{}")

    def test_a_log_hook_whose_error_has_no_text(self):
        mark = self.server.mark()
        with self.server.connect() as conn:
            self.assertEqual(conn.get("/logged/x").text, "logged")
            self.assertEqual(conn.get("/").text, "root")
        self.server.wait_log('in a "log" hook: .*a table value that cannot be converted', mark)
        self.assertEqual(len(self.server.logged("the hook runs", mark)), 1)


STALLED = app_site(r"""
app:get("/", function() return "root" end)
app:get("/trickle", function(_, res) -- waits between its parts, as a stream of events does
  for _ = 1, 1e6 do
    local ok = res:write(("e"):rep(1000):rep(16))
    if not ok then break end
    ls.sleep(0.001)
  end
  ls.log.info("the reader is gone")
end)
app:post("/trickle", function(req, res)
  ls.spawn(function() for _ in req:chunks() do end end)
  for _ = 1, 1e6 do
    local ok = res:write(("e"):rep(1000):rep(16))
    if not ok then break end
    ls.sleep(0.001)
  end
  ls.log.info("the reader is gone")
end)
""", "send_timeout = 0.5")


class Stalled(E2E):
    SITE = STALLED

    def test_a_stream_whose_reader_stalls(self):
        """The deadline holds although the handler also waits for other events."""
        mark = self.server.mark()
        with self.server.connect(rcvbuf=4096) as conn:
            conn.send(request("GET", "/trickle"))
            self.server.wait_log("the reader is gone", mark)

    def test_a_stream_whose_reader_stalls_while_it_sends(self):
        """Bytes of the body do not cancel the deadline."""
        mark = self.server.mark()
        with self.server.connect(rcvbuf=4096) as conn:
            conn.send(request("POST", "/trickle", {"Content-Length": "1000000"}))
            self.eventually(lambda: not conn.try_send(b"x") or self.server.logged("the reader is gone", mark), "the connection ends")
        self.server.wait_log("the reader is gone", mark)


STOPS = r"""
local ls = require "luaserve"
local how = ...
local app = ls.app()
app:get("/", function() return "root" end)
app:get("/stop", function()
  for _ = 1, 3 do ls.stop() end
  ls.sleep(0.05)
  ls.stop()
  return "stopped"
end)
if how == "start" then ls.on("start", function() ls.stop() end) end
if how == "init" then ls.init(function() ls.stop() ls.stop() end) end
if how == "drain" then
  ls.on("drain", function() ls.stop() ls.sleep(0.05) ls.stop() ls.log.info("a drain hook got to its end") end)
end
if how == "timer" then ls.after(0, ls.stop) end
ls.on("log", function() ls.stop() end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
"""


class Stops(E2E):
    """ls.stop starts a drain from any place, called any number of times, once in each state for example."""

    def test_from_the_hooks(self):
        for how in ("start", "init", "timer"):
            with self.subTest(how):
                # A stop in ls.init comes before the listeners.
                server = self.serve(STOPS, args=[how], listeners=0 if how == "init" else 1)
                self.assertEqual(server.wait(), 0, server.log())
                self.assertIn("stopped", server.log())

    def test_from_drain_hooks(self):
        server = self.serve(STOPS, args=["drain"], flags=["--threads", "2"])
        self.assertEqual(server.get("/").text, "root")  # the log hook stops it
        self.assertEqual(server.wait(), 0, server.log())
        self.assertGreater(len(server.logged("a drain hook got to its end")), 1)

    def test_from_a_handler(self):
        server = self.serve(STOPS)
        response = server.get("/stop")
        self.assertEqual((response.text, response.closes), ("stopped", True))
        self.assertEqual(server.wait(), 0, server.log())


BARE = app_site(r"""
local next = next
app:get("/", function() return "root" end)
app:get("/json", function() return { a = ls.json.empty_array } end)
local globals = _G
app:get("/globals", function()
  local n = 0
  for _ in next, globals do n = n + 1 end
  return n == 0 and "0" or "some"
end)
app:get("/p/:x/:y", function(req) return req.params.x .. req.query.q .. req.headers["X-Y"] end)
app:get("/error", function() return nil .. "x" end)
app:error(function(_, _, err) return 500, "own page: " .. err end)
local string, table, math, coroutine, debug, os, utf8 = string, table, math, coroutine, debug, os, utf8
ls.on("start", function()
  for _, lib in next, { string, table, math, coroutine, debug, os, utf8 } do
    for name in next, lib do lib[name] = function() return nil end end
  end
  for name in next, globals do globals[name] = nil end
end)
""")


class Bare(E2E):
    """A site that removes the globals and the methods of strings: the server uses its own."""

    def test_without_globals(self):
        server = self.serve(BARE, flags=["--threads", "1"])
        with server.connect() as conn:
            self.eventually(lambda: conn.get("/globals").text == "0", "the \"start\" hook has run")
            for method, target, status, text in (
                ("GET", "/json", 200, '{"a":[]}'), ("GET", "/p/a%41/b?q=%42", 200, "aABv"),
                ("GET", "/nowhere", 404, "Not Found\n"), ("GET", "/%zz", 400, "Bad Request\n"),
                ("PUT", "/", 405, "Method Not Allowed\n"), ("OPTIONS", "/", 204, ""), ("OPTIONS", "*", 204, ""),
            ):
                response = conn.ask(method, target, {"X-Y": "v"})
                self.assertEqual((response.status, response.text), (status, text), target)
            self.assertRegex(conn.get("/error").text, "^own page: .*site.lua:14: attempt to concatenate a nil value")


class Loading(E2E):
    def test_statistics(self):
        with scratch(site_lua='local ls = require "luaserve"\nfor name in pairs(ls.stats()) do print(name) end\nls.init(print)\n') as where:
            status, out, err = run_program(["--check", "site.lua"], cwd=where)
        self.assertEqual(status, 0, err)
        self.assertIn("requests\n", out)

    def test_modules_beside_the_site(self):
        module = 'return { hello = "found" }\n'
        with scratch(site_lua='print(require("words").hello)\nrequire("luaserve").init(print)\n', words_lua=module) as where:
            above, name = os.path.split(where)
            places = [(where, "site.lua"), (above, name + "/site.lua"), (above, where + "/site.lua")]
            for cwd, path in places + ([(above, name + "\\site.lua")] if WINDOWS else []):
                with self.subTest(path):
                    status, out, err = run_program(["--check", path], cwd=cwd)
                    self.assertEqual((status, out.splitlines()[:1]), (0, ["found"]), err)

    def test_a_site_that_is_too_large(self):
        err = self.fails(
            'require("luaserve").config{ max_memory = "4m" }\n'
            "local all = {}\n"
            "for i = 1, 1e9 do all[i] = { i } end\n"
        )
        self.assertIn("site.lua: not enough memory", err)
        self.assertIn("4194304 bytes", err)
        self.assertIn("max_memory", err)

    def fails(self, site):
        with scratch(site_lua=site) as where:
            status, out, err = run_program(["--check", "site.lua"], cwd=where)
        self.assertEqual((status, out), (1, ""), err)
        return err

    def test_injection_without_end(self):
        err = self.fails(
            'local ls = require "luaserve"\nlocal app = ls.app()\n'
            'app:get("/", function() return app:inject{}.status end)\n'
            'local answer = app:inject{}\n'
            'error(answer.status .. " " .. answer.body)\n'
        )
        self.assertIn("more than 16 nested requests", err)
        self.assertIn("site.lua:5: 500", err)  # the innermost response, which the outer ones return
