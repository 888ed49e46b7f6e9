"""The option `timeout`: a handler that waits for too long is ended, with 503 or the end of the connection."""
import json

from harness import E2E, app_site, in_parallel, request

SITE = app_site("""
ls.config { timeout = 0.25 }
local state = ls.dict("state")
local gate = ls.channel("gate")
app:get("/sleep", function() ls.sleep(100) return "late" end)
app:get("/soon", { timeout = 30 }, function() ls.sleep(0.01) return "soon" end)
app:get("/code", function(req) for i = 1, 100 do ls.sleep(0.02) end return "late" end)
app:get("/never", { timeout = false }, function() state:set("waits", 1) return gate:receive() end)
app:get("/own/:x", { timeout = 0.05 }, function(req) ls.sleep(100) return req.params.x end)
app:get("/open", { timeout = 30 }, function() gate:send("open") return 204 end)
app:get("/waits", function() return tostring(state:get("waits")) end)
app:get("/parts", { timeout = 1 }, function(req, res)
  for i = 1, 20 do res:write("part ", i, "\\n") ls.sleep(0.06) end
end)
app:get("/stops", function(req, res) res:write("first\\n") ls.sleep(100) end)
app:get("/closes", function(req, res)
  local closing <close> = setmetatable({}, { __close = function() state:set("ran", 1) end })
  pcall(ls.sleep, 100)
  state:set("ran", 2)
  return 204
end)
app:get("/ran", function() return tostring(state:get("ran")) end)
app:post("/body", { timeout = 1 }, function(req) return "got " .. #req:body() end)
app:get("/job", function()
  local job = ls.spawn(function() ls.sleep(0.6) state:set("job", "done") end)
  job:wait()
  return 204
end)
app:get("/job/result", { timeout = 30 }, function() while not state:get("job") do ls.sleep(0.01) end return state:get("job") end)
app:get("/events", function(req, res) local sse = res:sse() sse:wait() end)
app:get("/events/later", function(req, res) ls.sleep(0) res:sse():wait() end) -- its limit has begun
app:get("/upgrade", function(req, res) ls.sleep(0) res:upgrade("own"):receive() end)
app:get("/forgets", { timeout = 0.25 }, function(req, res)
  local sse = res:sse()
  while true do sse:send("x") ls.sleep(0.02) end
end)
app:get("/endless", function(req, res) while true do res:write("x") ls.sleep(0.02) end end)
local semaphore = ls.semaphore("printer", 1)
app:get("/holds", { timeout = 30 }, function()
  return semaphore:with(function() state:set("holds", 1) return gate:receive() end)
end)
app:get("/wants", function() return semaphore:with(function() state:set("inside", semaphore.held) return "inside" end) end)
app:get("/printer", function() return { held = semaphore.held, holds = state:get("holds"), inside = state:get("inside") } end)
app:ws("/ws", function(ws) for m in ws:messages() do ws:send(m) end end)
local own = ls.app()
own:error(function(req, res, err) return { error = err, status = res:status() } end)
own:use(function(req, res, next) next() res:header("X-After", "1") end)
own:get("/", function() ls.sleep(100) end)
app:mount("/own-error", own)
""")


# A backend that takes connections and says nothing, and tasks that the timeout ends while they wait for it.
SILENT = app_site("""
ls.config { states = 1 }
local ports = ls.dict("ports")
ls.tcp("127.0.0.1:0", function(sock) ls.log.info("opened") sock:receive("*a") ls.log.info("closed") end)
app:get("/port/:port", function(req) ports.backend = tonumber(req.params.port) return 204 end)
app:get("/receive", { timeout = 0.05 }, function() local s = assert(ls.connect("127.0.0.1", ports.backend)) return s:receive("*l") end)
app:get("/connect", { timeout = 0.05 }, function() return tostring(ls.connect("127.0.0.1", ports.backend, { tls = true })) end)
app:get("/starttls", { timeout = 0.05 }, function()
  local s = assert(ls.connect("127.0.0.1", ports.backend))
  return tostring(s:starttls{ insecure = true })
end)
app:get("/websocket", { timeout = 0.05 }, function() return tostring(ls.websocket("ws://127.0.0.1:" .. ports.backend .. "/")) end)
app:get("/collect", function() collectgarbage() collectgarbage() return 204 end)
app:get("/wait", function() ls.sleep(0.01) return "waited" end)
app:get("/first", { timeout = 0.1 }, function() ls.sleep(100) end)
app:get("/second", { timeout = 0.2 }, function() ls.sleep(100) end)
app:get("/long", { timeout = 50 }, function() ls.sleep(0.3) return "long" end)
""")


class Ended(E2E):
    """What a task leaves behind that was ended while it waited for a socket."""

    def test_nothing_refers_to_it(self):
        server = self.serve(SILENT, listeners=2)
        web = 1  # after the backend
        server.get("/port/%d" % server.port(), index=web)
        opened = 0
        for _ in range(3):
            for path in ("/receive", "/connect", "/starttls", "/websocket"):
                self.assertEqual(server.get(path, index=web).status, 503, path)
                opened += 1
                server.wait_log("opened", count=opened)
            self.assertEqual(server.get("/collect", index=web).status, 204)
            server.wait_log("closed", count=opened)
        self.assertEqual(server.get("/receive", index=web).status, 503)

    def test_a_task_that_begins_when_another_one_ends_delays_no_third_one(self):
        server = self.serve(SILENT, listeners=2)
        first, second = self.connect(1, server=server), self.connect(1, server=server)
        first.send(request("GET", "/first") + request("GET", "/long"))
        second.send(request("GET", "/second"))
        self.assertEqual([first.response().status, second.response().status, first.response().text], [503, 503, "long"])


class Timeout(E2E):
    SITE = SITE

    def test_a_handler_that_waits_is_ended(self):
        response = self.ask("GET", "/sleep")
        self.assertEqual((response.status, response.text), (503, "Service Unavailable\n"))
        self.server.wait_log(r"error request \w+ GET /sleep: \S*site\.lua:\d+: the handler of GET /sleep "
                             r"\(\S*site\.lua:\d+\) waited for longer than timeout allows \(0\.25 s\)")
        self.assertEqual(self.ask("GET", "/soon").text, "soon")

    def test_many_short_waits_are_one(self):
        self.assertEqual(self.ask("GET", "/code").status, 503)

    def test_a_route_has_its_own(self):
        self.assertEqual(self.ask("GET", "/own/1").status, 503)
        self.server.wait_log(r"timeout allows \(0\.05 s\)")

    def test_no_limit(self):
        with self.connect() as conn:
            conn.send(request("GET", "/never"))
            self.eventually(lambda: self.ask("GET", "/waits").text == "1", "it waits")
            self.assertEqual(self.ask("GET", "/sleep").status, 503)  # later than the limit of the others
            self.ask("GET", "/open")
            self.assertEqual(conn.response().text, "open")

    def test_parts_begin_the_time_anew(self):
        response = self.ask("GET", "/parts")
        self.assertEqual(response.status, 200)
        self.assertEqual(response.text.count("part"), 20)

    def test_a_response_that_has_begun(self):
        with self.connect() as conn:
            conn.send(request("GET", "/stops"))
            self.assertEqual(conn.response_head().status, 200)
            self.assertEqual(conn.rest(), b"6\r\nfirst\n\r\n")  # without the last chunk

    def test_none_of_its_code_runs(self):
        self.assertEqual(self.ask("GET", "/closes").status, 503)
        self.assertEqual(self.ask("GET", "/ran").text, "nil")

    def test_a_slow_body_is_no_slow_handler(self):
        with self.connect() as conn:
            conn.send(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 25\r\n\r\n")
            for _ in range(25):
                conn.send(b"x")
                self.ask("GET", "/own/1")  # takes 0.05 s
            self.assertEqual(conn.response().text, "got 25")

    def test_a_body_that_does_not_come(self):
        with self.connect() as conn:
            conn.send(b"POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\nx")
            self.assertEqual(conn.response().status, 503)

    def test_jobs_go_on(self):
        self.assertEqual(self.ask("GET", "/job").status, 503)
        self.eventually(lambda: self.ask("GET", "/job/result").text == "done", "the job is done")

    def test_events_have_no_limit(self):
        upgrade = [("Connection", "Upgrade"), ("Upgrade", "own")]
        conns = [self.connect().send(request("GET", path, fields)) for path, fields in (("/events", []), ("/events/later", []), ("/upgrade", upgrade))]
        for conn in conns:
            conn.head()
        self.assertEqual([self.ask("GET", "/sleep").status for _ in range(3)], [503] * 3)
        for conn in conns:
            self.assertTrue(conn.silent())

    def test_a_loop_whose_client_has_left_ends(self):
        for path in ("/forgets", "/endless"):
            with self.connect() as conn:
                conn.send(request("GET", path))
                conn.response_head()
                conn.take(4)
            self.server.wait_log(r"GET %s: .*the handler of GET %s .* waited for longer than timeout allows \(0\.25 s\)" % (path, path))

    def test_a_permit_that_was_waited_for_is_not_given_back(self):
        """semaphore:with of a task that ended while it waited gave back the permit of another one."""
        with self.connect() as conn:
            conn.send(request("GET", "/holds"))
            self.eventually(lambda: json.loads(self.ask("GET", "/printer").body).get("holds"), "one holds the permit")
            for _ in range(3):
                self.assertEqual(self.ask("GET", "/wants").status, 503)
                self.assertEqual(json.loads(self.ask("GET", "/printer").body), {"held": 1, "holds": 1})
            self.ask("GET", "/open")
            self.assertEqual(conn.response().text, "open")
        self.eventually(lambda: json.loads(self.ask("GET", "/printer").body)["held"] == 0, "the permit is free")
        self.assertEqual(self.ask("GET", "/wants").text, "inside")

    def test_the_error_handler_answers(self):
        response = self.ask("GET", "/own-error/")
        self.assertEqual(response.status, 503)
        self.assertEqual(json.loads(response.body)["status"], 503)
        self.assertIn("waited for longer than timeout allows", json.loads(response.body)["error"])

    def test_many_at_once(self):
        in_parallel([lambda: self.assertEqual(self.ask("GET", "/sleep").status, 503)] * 50, workers=50)
