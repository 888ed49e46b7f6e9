"""ls.channel and ls.semaphore: between states, with limits, timeouts, close, errors, the drain and the end of a task."""
import json
import re
import signal
import unittest

from harness import E2E, SANITIZER, not_on_windows, repeats, request, write_text

# Two states, each with a consumer. Every value that a consumer takes is counted by its number in a channel of one state.
SITE = r"""
local ls = require "luaserve"
local app = ls.app()
local jobs = ls.channel("jobs", { capacity = 8 })
local seen = ls.channel("seen", { capacity = 100000 })

ls.on("start", function()
  for job in jobs:values() do
    if job.wait then ls.sleep(0.001) end
    seen:send(job.number)
  end
  ls.log.info("consumer ends")
end)
app:post("/jobs", function(req)
  local from, to = req.query.from, req.query.to
  for number = tonumber(from), tonumber(to) do
    assert(jobs:send({ number = number, wait = number % 7 == 0, list = { "a", { b = 1.5 } } }))
  end
  return 204
end)
app:get("/seen", function(req)
  local numbers = {}
  for n = 1, tonumber(req.query.count) do numbers[n] = assert(seen:receive(20)) end
  return { numbers = numbers, left = seen:len() }
end)
app:get("/close", function() jobs:close() return 204 end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.config{ threads = 2 }
"""

# Snippets run inside a handler. `check(a, b)` raises unless a == b.
SNIPPETS = r"""
local ls = require "luaserve"
local app = ls.app()
local function check(a, b)
  if a ~= b then error("expected " .. tostring(b) .. ", got " .. tostring(a), 2) end
end
local env = setmetatable({ ls = ls, check = check }, { __index = _G })
app:post("/", function(req)
  local fn = assert(load(req:body(), "=snippet", "t", env))
  local ok, err = xpcall(fn, debug.traceback)
  return ok and 200 or 500, ok and "ok" or err
end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.config{ threads = 2, max_cpu = 1 }
"""


class Served(E2E):
    def start(self, site, **kw):
        self.server = self.serve(site, **kw)
        return self.server

    def tearDown(self):
        server, self.server = self.server, None
        server.stop()


class BetweenStates(Served):
    def test_close_ends_every_consumer(self):
        server = self.start(SITE.replace("threads = 2", "threads = 2, threads_max = 2"))
        self.assertEqual(self.ask("POST", "/jobs?from=1&to=5").status, 204)
        self.assertEqual(self.get("/close").status, 204)
        server.wait_log("consumer ends", count=2)
        self.assertEqual(sorted(json.loads(self.get("/seen?count=5").body)["numbers"]), [1, 2, 3, 4, 5])
        self.assertEqual(self.ask("POST", "/jobs?from=1&to=1").status, 500)

    def test_idle_consumers_do_not_delay_the_drain(self):
        server = self.start(SITE + 'ls.config{ drain_timeout = 600 }')
        self.assertEqual(self.ask("POST", "/jobs?from=1&to=20").status, 204)
        self.get("/seen?count=20")
        server.signal()
        self.assertEqual(server.wait(), 0)

    def test_a_value_that_is_sent_during_the_drain_is_received(self):
        server = self.start(r"""
local ls = require "luaserve"
local app = ls.app()
local jobs = ls.channel("jobs")
ls.on("start", function()
  for job in jobs:values() do
    ls.sleep(0.05)
    ls.log.info("done " .. job)
  end
end)
local draining = false
ls.on("drain", function() draining = true end)
app:get("/", function()
  ls.log.info("request begins")
  while not draining do ls.sleep(0.005) end
  for n = 1, 5 do jobs:send(n) end
  return "sent"
end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.config{ threads = 1, threads_max = 1, drain_timeout = 600 }
""")
        conn = self.connect()
        conn.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        server.wait_log("request begins")
        server.signal()
        self.assertEqual(conn.response().body, b"sent")
        conn.close()
        self.assertEqual(server.wait(), 0)
        for n in range(1, 6):
            self.assertTrue(server.logged("done %d" % n))

    def test_a_site_without_listeners_ends_when_only_consumers_are_left(self):
        server = self.start(r"""
local ls = require "luaserve"
local jobs = ls.channel("jobs")
ls.on("start", function() for job in jobs:values() do ls.log.info("done " .. job) end end)
ls.init(function() for n = 1, 30 do jobs:send(n) end end)
ls.config{ threads = 2 }
""", listeners=0)
        self.assertEqual(server.wait(), 0)
        for n in range(1, 31):
            self.assertTrue(server.logged("done %d$" % n))

    @not_on_windows("Windows has no SIGHUP")
    def test_a_reload_keeps_the_channel(self):
        site = r"""
local ls = require "luaserve"
local app = ls.app()
local jobs = ls.channel("jobs", { capacity = CAPACITY })
local gate = ls.semaphore("gate", CAPACITY)
ls.on("start", function()
  if VERSION == 1 then return end
  for job in jobs:values() do ls.log.info("version " .. VERSION .. " takes " .. job) end
end)
app:get("/send", function(req) return tostring(jobs:send(req.query.job, 0)) end)
app:get("/", function() return VERSION .. " " .. jobs:len() .. " " .. jobs.capacity .. " " .. gate.permits end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.config{ threads = 2 }
"""

        def version(n, capacity):
            return site.replace("VERSION", str(n)).replace("CAPACITY", str(capacity))

        server = self.start(version(1, 2))
        path = server.site

        def reload(n, capacity):
            write_text(path, version(n, capacity))
            server.signal(signal.SIGHUP)
            self.eventually(lambda: self.get("/").body.startswith(b"%d " % n), "version %d serves" % n)

        for job in "a", "b":
            self.assertEqual(self.get("/send?job=" + job).body, b"true")
        self.assertEqual(self.get("/send?job=c").body, b"nil")  # one past the capacity
        self.assertEqual(self.get("/").body, b"1 2 2 2")
        reload(2, 3)  # takes what the previous site has left, with its own capacity
        server.wait_log("version 2 takes a")
        server.wait_log("version 2 takes b")
        self.eventually(lambda: self.get("/").body == b"2 0 3 3", "the channel is empty")
        for n in range(3, 6):
            reload(n, 3)
            since = server.mark()
            for job in range(repeats(20)):
                self.assertEqual(self.get("/send?job=%d.%d" % (n, job)).body, b"true")
                server.wait_log(r"version \d takes %d\.%d$" % (n, job), since)

    def reloads(self, site):
        """Start version 1 of the site. Returns a function that reloads it as the next version."""
        server, versions = self.start(site.replace("VERSION", "1")), iter(range(2, 100))

        def reload():
            version = next(versions)
            write_text(server.site, site.replace("VERSION", str(version)))
            server.signal(signal.SIGHUP)
            self.eventually(lambda: self.get("/").body == b"%d" % version, "version %d serves" % version)

        return server, reload

    @not_on_windows("Windows has no SIGHUP")
    def test_a_reload_with_values_left_loses_none(self):
        """The consumers of the previous site took values until they were cut, each in the middle of one."""
        server, reload = self.reloads(r"""
local ls = require "luaserve"
local app = ls.app()
local jobs, done = ls.channel("jobs"), ls.dict("done")
local function work(job) ls.sleep(0.15) done:incr("count") done:incr("job " .. job) end
ls.on("start", function() for job in jobs:values() do work(job) end end)
ls.on("start", function() for job in jobs:values() do ls.spawn(work, job):wait() end end)
local stops = false
ls.on("drain", function() stops = true end)
ls.on("start", function() while not stops or VERSION < 4 do local job = jobs:receive(0) if job then work(job) else ls.sleep(0.01) end end end)
ls.init(function() if VERSION == 1 then for n = 1, 120 do jobs:send(n) end end end)
app:get("/", function() return "VERSION" end)
app:get("/done", function()
  local once = 0
  for n = 1, 120 do if done:get("job " .. n) == 1 then once = once + 1 end end
  return tostring(done:get("count")) .. " " .. once
end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.config{ threads = 2, drain_timeout = 0.4 }
""")
        for _ in range(3):
            reload()
        self.eventually(lambda: self.get("/done").body == b"120 120", "each value was worked on once")

    @not_on_windows("Windows has no SIGHUP")
    def test_a_task_of_the_old_site_that_cannot_wait_goes_on(self):
        _, reload = self.reloads(r"""
local ls = require "luaserve"
local app, results = ls.app(), ls.dict("results")
local go, none = ls.channel("go"), ls.channel("none")
if VERSION == 1 then
  ls.on("start", function()
    go:receive() -- it has taken a value: a reload does not end it where it sleeps
    results:set("taken", 1)
    local subscription
    repeat -- until the site is replaced
      ls.sleep(0.01)
      subscription = ls.subscribe("none", print)
      if subscription then subscription:remove() end
    until not subscription
    table.sort({ 1, 2 }, function()
      local _, err = pcall(none.receive, none)
      results:set("error", err)
    end)
    ls.sleep(0.01)
    results:set("slept", 1)
  end)
end
app:get("/", function() return "VERSION" end)
app:get("/go", function() go:send(1) return 204 end)
app:get("/results", function() return { results:get("taken") or 0, results:get("error") or "", results:get("slept") or 0 } end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.config{ states = 1, threads = 2 }
""")

        def result(n):
            return json.loads(self.get("/results").body)[n]

        self.get("/go")
        self.eventually(lambda: result(0) == 1, "it has taken the value")
        reload()
        self.eventually(lambda: result(1), "it has compared")
        self.assertIn("cannot wait here", result(1))
        self.eventually(lambda: result(2) == 1, "it has gone on")

    @not_on_windows("Windows has no SIGHUP")
    def test_a_loop_of_the_old_site_ends_where_it_sleeps(self):
        server, reload = self.reloads(r"""
local ls = require "luaserve"
local app, rounds = ls.app(), ls.dict("rounds")
local stops = false
ls.on("drain", function() stops = VERSION == 2 end)
local function loop(name) while not stops do rounds:incr(name .. " VERSION") ls.sleep(0.01) end end
ls.init(function()
  ls.spawn(loop, "job")
  ls.spawn(function() ls.spawn(loop, "nested"):wait() end)
  if VERSION == 1 then ls.spawn(function() ls.sleep(3600) end) end
end)
ls.on("start", function() loop("hook") end)
app:get("/", function() return "VERSION" end)
app:get("/rounds/:version", function(req)
  local function of(name) return rounds:get(name .. " " .. req.params.version) or 0 end
  return { of("job"), of("nested"), of("hook") }
end)
app:get("/running", function() return tostring(ls.stats().running.site) end)
app:post("/task", function() ls.spawn(function() ls.sleep(0.5) rounds:set("job 0", 1) end) end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.config{ threads = 2 }
""")

        def rounds(version):
            return json.loads(self.get("/rounds/%s" % version).body)

        self.eventually(lambda: min(rounds(1)) > 3, "the loops run")
        self.assertEqual(self.ask("POST", "/task").status, 204)
        mark = server.mark()
        reload()
        self.eventually(lambda: self.get("/running").body == b"5", "those of the previous site end")
        old = rounds(1)
        self.eventually(lambda: min(rounds(2)) > 20, "the loops of the new site run")
        self.assertEqual(rounds(1), old)
        self.assertEqual(server.logged("the previous site has not ended", mark), [])
        self.eventually(lambda: rounds(0)[0] == 1, "a job of a request is completed")


class ClientLeaves(Served):
    """A handler that waits, whose client has left, takes nothing."""
    def test_what_it_waits_for_goes_to_the_next(self):
        server = self.start(r"""
local ls = require "luaserve"
local app = ls.app()
local jobs, gate, count = ls.channel("jobs"), ls.semaphore("gate", 1), ls.dict("count")
local function count_in(fn, ...)
  ls.log.info("waits")
  count:incr("waits")
  local closer <close> = setmetatable({}, { __close = function() count:incr("waits", -1) end })
  return fn(...)
end
app:get("/receive", function() return count_in(jobs.receive, jobs) end)
app:post("/late", function(req) return count_in(jobs.receive, jobs) .. " " .. req:body() end)
app:get("/stream", function(req, res)
  res:write("begins ")
  return count_in(function() for job in jobs:values() do res:write(job) return end end)
end)
app:get("/events", function(req, res)
  local sse = res:sse()
  count_in(function() for job in jobs:values() do sse:send(job) end end)
end)
app:post("/with", function(req)
  local name = req:body()
  return count_in(gate.with, gate, function() ls.log.info("runs " .. name) return name end)
end)
app:get("/acquire", function()
  return count_in(function() assert(gate:acquire(20)) ls.log.info("runs acquire") gate:release() end)
end)
app:get("/hold", function() gate:with(function() ls.log.info("holds") jobs:receive(20) end) return "held" end)
app:get("/send/:job", function(req) return { sent = jobs:send(req.params.job), left = jobs:len() } end)
app:get("/waits", function() return count.waits .. "" end)
app:get("/abort", function(req, res)
  res:write("begins ")
  res:abort()
  gate:with(function() ls.log.info("after abort " .. jobs:receive()) end)
end)
app:get("/long", function(req, res)
  res:header("Content-Length", 1)
  pcall(res.write, res, "long")
  gate:with(function() ls.log.info("after long " .. jobs:receive()) end)
end)
app:get("/timeout", { timeout = 0.05 }, function() gate:acquire() ls.sleep(20) end)
app:get("/held", function() return gate.held .. "" end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.config{ threads = 2 }
""")

        def leave(method, path, how, body=None, fields=(), ends=True):
            since = server.mark()
            conn = self.connect()
            conn.send(request(method, path, fields) + body if fields else request(method, path, (), body))
            server.wait_log("waits$", since)
            getattr(conn, how)()
            if ends:
                server.wait_log(r" %s %s: .*the client has left while the handler waited$" % (method, path), since)

        for how in "close", "reset":
            for path in "/receive", "/stream", "/events":
                leave("GET", path, how)
            leave("POST", "/late", how, b"a body that is not read before")
            leave("POST", "/late", how, b"3\r\nabc\r\n0\r\n\r\n", (("Transfer-Encoding", "chunked"),))
        late = self.connect()
        since = server.mark()
        late.send(request("GET", "/receive"))
        server.wait_log("waits$", since)
        self.eventually(lambda: self.get("/waits").body == b"1", "all but the last have ended")
        self.assertEqual(json.loads(self.get("/send/one").body), {"sent": True, "left": 0})
        self.assertEqual(late.response().body, b"one")
        self.assertEqual(late.ask("GET", "/held").body, b"0")  # the connection can be used after such a wait

        chunked = request("POST", "/late", (("Transfer-Encoding", "chunked"),)) + b"2\r\nde\r\n3\r\nfgh\r\n0\r\n\r\n"
        for bodies in (b"first", b"second"), (b"x" * 3000, b"y"), (b"x" * 40000, b"last"):  # pipelined; read after the wait
            since = server.mark()
            late.send(b"".join(request("POST", "/late", (), body) for body in bodies) + chunked)
            for body in (*bodies, b"defgh"):
                server.wait_log("waits$", since)
                since = server.mark()
                self.get("/send/job")
                self.assertEqual(late.response().body, b"job " + body)

        since = server.mark()
        late.send(request("GET", "/hold"))
        server.wait_log("holds", since)
        for how in "close", "reset":
            leave("POST", "/with", how, b"", ends=False)
            leave("GET", "/acquire", how, ends=False)
        since = server.mark()
        good = self.connect()
        good.send(request("POST", "/with", (), b"good"))
        server.wait_log("waits$", since)
        self.get("/send/free")
        self.assertEqual(good.response().body, b"good")
        self.assertEqual(late.response().body, b"held")
        server.wait_log("runs acquire$", since)  # a handler that waits for a permit goes on without its client
        for path in "abort", "long":
            since = server.mark()
            conn = self.connect()
            conn.send(request("GET", "/" + path))
            self.eventually(lambda: self.get("/held").body == b"1", "the handler goes on")
            self.get("/send/job")
            server.wait_log("after %s job" % path, since)
            conn.close()
        self.assertEqual(self.get("/timeout").status, 503)
        self.assertEqual(self.get("/held").body, b"0")
        server.wait_log(r"semaphore 'gate': the task that called acquire at .*site.lua:\d+ has ended without release; its "
                        r"permit is returned")


class Rules(Served):
    def setUp(self):
        super().setUp()
        self.start(SNIPPETS)

    def run_lua(self, text, status=200):
        response = self.ask("POST", "/", body=text.encode())
        self.assertEqual(response.status, status, response.body.decode())
        return response.body.decode()

    def test_values(self):
        self.run_lua(r"""
local c = ls.channel("values")
for _, v in ipairs{ true, 1, 1.5, "text", "\0", math.mininteger, math.huge } do
  check(c:send(v), true)
  local got = c:receive()
  check(got, v) check(math.type(got), math.type(v))
end
check(c:send(false), true) check(c:receive(), false)
c:send({ a = { 1, 2, { b = "x" } } })
local got = c:receive()
check(got.a[3].b, "x") got.a[3].b = "y" check(got.a[3].b, "y") -- a copy of its own
c:send(ls.buffer("by", "tes")) check(c:receive(), "bytes")
local function fails(what, ...)
  local ok, err = pcall(c.send, c, ...)
  check(ok, false)
  if not err:find(what, 1, true) then error(err) end
end
fails("value that is not nil", nil)
fails("channel:send: value.a[2].f is a function", { a = { 1, { f = print } } })
local cycle = {} cycle.me = cycle
fails("value.me", cycle)
fails("is a thread", coroutine.create(print))
fails("too many arguments", 1, 2, 3)
check(c:len(), 0)
""")

    def test_capacity_and_timeouts(self):
        self.run_lua(r"""
local c = ls.channel("small", { capacity = 2 })
check(c.capacity, 2) check(c.name, "small") check(tostring(c), "channel 'small'")
check(c:send(1), true) check(c:send(2, 0), true) -- at the limit
local v, message, code = c:send(3, 0) -- one past it
check(v, nil) check(message, "full") check(code, "ELIMIT")
v, message, code = c:send(3, 0.01)
check(v, nil) check(code, "ETIMEDOUT")
check(c:len(), 2) check(#c, 2)
local job = ls.spawn(function() return c:send(3, 20) end)
ls.sleep(0)
check(c:receive(), 1) check(job:wait(), true)
check(c:receive(), 2) check(c:receive(0), 3)
v, message, code = c:receive(0)
check(v, nil) check(code, "ETIMEDOUT")
v, message, code = c:receive(0.01)
check(v, nil) check(code, "ETIMEDOUT")
job = ls.spawn(function() return c:receive(20) end)
ls.sleep(0)
check(c:send("x"), true) check(job:wait(), "x")
-- one that has given up takes nothing
job = ls.spawn(function() return c:receive(0.005) end)
check(job:wait(), nil)
check(c:send("kept"), true) check(c:len(), 1) check(c:receive(0), "kept")
check(pcall(c.receive, c, -1), false)
check(pcall(c.send, c, 1, "x"), false)
check(select(2, pcall(function() return c.recieve end)):find("did you mean 'receive'", 1, true) ~= nil, true)
-- where nothing can wait: what needs no wait works
table.sort({ 1, 2 }, function(a, b) check(c:send(1), true) return a < b end)
while c:receive(0) do end
local ok, err = pcall(table.sort, { 1, 2 }, function() c:receive() end)
check(ok, false) check(err:find("cannot wait here", 1, true) ~= nil, true)
c:send(1) c:send(2)
ok, err = pcall(table.sort, { 1, 2 }, function() c:send(3) end)
check(ok, false) check(err:find("cannot wait here", 1, true) ~= nil, true)
check(c:len(), 2)
""")

    def test_close(self):
        self.run_lua(r"""
local c = ls.channel("closing", { capacity = 2 })
c:send(1) c:send(2)
local sender = ls.spawn(function() return c:send(3) end)
ls.sleep(0)
check(c.closed, false)
c:close() c:close()
check(c.closed, true) check(tostring(c), "channel 'closing' (closed)")
local v, message, code = sender:wait()
check(v, nil) check(message, "closed") check(code, "ECLOSED")
check(select(3, c:send(4)), "ECLOSED") check(select(3, c:send(4, 0)), "ECLOSED")
local seen = {}
for value in c:values() do seen[#seen + 1] = value end
check(table.concat(seen, " "), "1 2")
check(select(3, c:receive()), "ECLOSED") check(select(3, c:receive(0)), "ECLOSED")
check(ls.channel("closing").closed, true)

local d = ls.channel("closing2")
local receivers = {}
for n = 1, 3 do receivers[n] = ls.spawn(function() return d:receive(20) end) end
ls.sleep(0)
d:send("one") d:close()
local counts = {}
for n = 1, 3 do
  local value, _, why = receivers[n]:wait()
  counts[value or why] = (counts[value or why] or 0) + 1
end
check(counts.one, 1) check(counts.ECLOSED, 2)
""")

    def test_definitions(self):
        self.run_lua(r"""
local function fails(what, fn, ...)
  local ok, err = pcall(fn, ...)
  check(ok, false)
  if not err:find(what, 1, true) then error("expected " .. what .. " in " .. err) end
end
local a = ls.channel("same")
check(a.capacity, 1000)
ls.channel("same", { capacity = 10 }) check(a.capacity, 10)
ls.channel("same", { capacity = 10 }) ls.channel("same")
fails('ls.channel: "same" is defined with another capacity at snippet:', ls.channel, "same", { capacity = 11 })
check(ls.channel("large", { capacity = 10000000 }).capacity, 10000000)
fails("ls.channel: name must be", ls.channel)
fails("ls.channel: name must be", ls.channel, "")
fails("ls.channel: name must be", ls.channel, ("x"):rep(101))
check(ls.channel(("x"):rep(100)).name, ("x"):rep(100))
fails("ls.channel: options must be a table", ls.channel, "x", 5)
fails("too many arguments", ls.channel, "x", {}, 1)
check(ls.semaphore("gate", 2).permits, 2)
fails('ls.semaphore: "gate" is defined with another number of permits at snippet:', ls.semaphore, "gate", 3)
fails("ls.semaphore: the number of permits must be a whole number", ls.semaphore, "gate")
fails("ls.semaphore: the number of permits must be a whole number", ls.semaphore, "g", 0)
fails("ls.semaphore: the number of permits must be a whole number", ls.semaphore, "g", 1000001)
check(ls.semaphore("g", 1000000).permits, 1000000)
fails("too many arguments", ls.semaphore, "x", 1, {}, 1)
fails("options must be a table", ls.semaphore, "x", 1, 1)
""")

    def test_a_task_does_not_wait_for_its_own_permit(self):
        server = self.serve("""local ls = require "luaserve" local app = ls.app() local one, two = ls.semaphore("one", 1), ls.semaphore("two", 2)
local function save() one:with(function() end) end -- line 2
app:get("/with", function() one:with(function() -- line 3
  save() end) end)
app:get("/acquire", function()
  one:acquire() -- line 6
  return tostring(select(3, one:acquire(0.01))) .. " " .. select(2, pcall(one.acquire, one)) end)
app:get("/two", function() return two:with(function() return two:with(function()
  return two.held .. " " .. tostring(pcall(two.with, two, print)) end) end) end)
app:get("/held", function() return one.held .. two.held .. "" end)
app:get("/other", function() return one:with(function() return "free" end) end)
ls.tcp("127.0.0.1:0", function(sock) for _ in sock:lines() do one:with(save) end end)
ls.listen("127.0.0.1:0", app)
""", listeners=2)
        said = "semaphore 'one': this task holds all its permits since %ssite.lua:%d, and would wait for itself without end"
        with server.connect(0) as conn:
            conn.send(b"x\n")
            server.wait_log("error connection from .*site.lua:2: " + said % (".*", 12))
        self.assertEqual(server.get("/with", index=1).status, 500)
        server.wait_log("site.lua:2: " + said % (".*", 3))
        self.assertRegex(server.get("/acquire", index=1).text, "^ETIMEDOUT " + said % (".*", 6))
        self.assertEqual(server.get("/two", index=1).text, "2 false")
        self.assertEqual(server.get("/held", index=1).text, "00")
        self.assertEqual(server.get("/other", index=1).text, "free")

    def test_semaphore(self):
        self.run_lua(r"""
local gate = ls.semaphore("one", 1)
check(gate.name, "one") check(gate.held, 0) check(tostring(gate), "semaphore 'one'")
local ok, err = pcall(gate.release, gate)
check(ok, false) check(err:find("this task holds no permit of 'one'", 1, true) ~= nil, true)
check(gate:acquire(), true) check(gate.held, 1)
local v, message, code = gate:acquire(0)
check(v, nil) check(code, "ETIMEDOUT")
check(select(3, gate:acquire(0.01)), "ETIMEDOUT")
local order = {}
local jobs = {}
for n = 1, 3 do
  jobs[n] = ls.spawn(function() check(gate:acquire(), true) order[#order + 1] = n gate:release() end)
end
local impatient = ls.spawn(function() return select(3, gate:acquire(0.005)) end)
check(impatient:wait(), "ETIMEDOUT")
gate:release()
for n = 1, 3 do jobs[n]:wait() end
check(table.concat(order, " "), "1 2 3") check(gate.held, 0)
""")

    def test_with_releases_at_every_end(self):
        self.run_lua(r"""
local gate = ls.semaphore("with", 1)
local function results(...) return select("#", ...), ... end
local n, a, b, c = results(gate:with(function(x, y) check(gate.held, 1) ls.sleep(0.001) return x, nil, y end, 1, 2))
check(n, 3) check(a, 1) check(b, nil) check(c, 2) check(gate.held, 0)
check(results(gate:with(function() end)), 0)
local ok, err = pcall(gate.with, gate, function() ls.sleep(0) error({ "own" }) end)
check(ok, false) check(err[1], "own") check(gate.held, 0)
check(pcall(gate.with, gate, 5), false) check(gate.held, 0)
-- waits
local order, jobs = {}, {}
for i = 1, 3 do
  jobs[i] = ls.spawn(function() return gate:with(function() order[#order + 1] = i ls.sleep(0.002) return i end) end)
end
for i = 1, 3 do check(jobs[i]:wait(), i) end
check(table.concat(order), "123") check(gate.held, 0)
-- a task that fails
local job = ls.spawn(function() gate:with(function() ls.sleep(0) error("lost") end) end)
check(pcall(job.wait, job), false) check(gate.held, 0)
-- a coroutine that is closed, one that is dropped
local co = coroutine.create(function() gate:with(coroutine.yield) end)
coroutine.resume(co) check(gate.held, 1)
coroutine.close(co) check(gate.held, 0)
co = coroutine.create(function() gate:with(coroutine.yield) end)
coroutine.resume(co) check(gate.held, 1)
co = nil
collectgarbage() collectgarbage() check(gate.held, 0)
-- a permit of acquire belongs to its task, and is returned at each end of it
for _, fn in ipairs{ function() return gate:acquire() end, function() gate:acquire() ls.sleep(0) error("lost") end } do
  job = ls.spawn(fn)
  pcall(job.wait, job)
  check(gate.held, 0)
end
check(gate:acquire(), true)
job = ls.spawn(function() gate:release() end)
ok, err = pcall(job.wait, job)
check(ok, false) check(err:find("this task holds no permit of 'with'; only the task that called acquire", 1, true) ~= nil, true)
check(gate.held, 1)
gate:release() check(gate.held, 0)
""")

    @unittest.skipIf(SANITIZER == "tsan", "ThreadSanitizer delays signals while Lua loops")
    def test_max_cpu_returns_the_permit_of_with(self):
        self.server.stop()
        self.start(SNIPPETS.replace("max_cpu = 1", "max_cpu = 0.1"))
        self.run_lua(r"""
local gate = ls.semaphore("burn", 1)
local job = ls.spawn(function() gate:with(function() while true do end end) end)
local ok, err = pcall(job.wait, job)
check(ok, false) check(gate.held, 0)
check(gate:with(function() return "free" end), "free")
job = ls.spawn(function() coroutine.wrap(function() gate:with(function() while true do end end) end)() end)
check(pcall(job.wait, job), false) check(gate.held, 0)
""")

    def test_out_of_memory_keeps_the_value(self):
        self.server.stop()
        server = self.start(r"""
local ls = require "luaserve"
local app = ls.app()
local large = ls.channel("large")
ls.init(function()
  local part = ("x"):rep(1024):rep(1024)
  for n = 1, 6 do large:send(part .. n) end -- 6 MiB outside of Lua
  ls.log.info("filled")
end)
app:get("/", function()
  local kept, ok, value = {}, true
  repeat
    ok, value = pcall(large.receive, large, 0)
    kept[#kept + 1] = value
  until not ok or not value
  return tostring(#kept - 1) .. " " .. tostring(value) .. " " .. large:len()
end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.config{ threads = 1, threads_max = 1, max_memory = "4m" }
""")
        server.wait_log("filled")
        got = re.fullmatch(rb"(\d) not enough memory (\d)", server.get("/").body)
        self.assertTrue(got)
        self.assertEqual(int(got.group(1)) + int(got.group(2)), 6)
