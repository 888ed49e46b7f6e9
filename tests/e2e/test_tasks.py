"""Hooks, timers, tasks, sleep, the log, and ls.stats."""
import json

from harness import E2E, app_site, free_port

SITE = app_site(r"""
ls.on("start", function() ls.log.info("hook start") end)
ls.on("drain", function() ls.log.info("hook drain") end)
ls.on("log", function(req, res, info)
  ls.log.info("hook log " .. req.method .. " " .. req.path)
  ls.log.info(("info %s %d %d %s %s"):format(req.path, info.status, info.bytes, res:status() == info.status,
    info.duration >= 0 and info.duration < 60 and math.type(info.duration)))
end)
ls.init(function()
  ls.log.info("once ran")
  ls.after(0.001, ls.file.write, "none/a", "x")
  ls.spawn(function() return ls.file.write("none/b", "x") end)
  local job = ls.spawn(ls.file.write, "none/c", "x")
  job:wait()
  ls.after(0.02, function(a, b) ls.log.info("after ran " .. a .. b) end, "x", "y")
  local n = 0
  ls.every(0.01, function() n = n + 1; if n <= 3 then ls.log.info("every ran " .. n) end end)
end)
app:get("/tick/1000", function() ls.every(1000, print) return 204 end)
app:get("/sleep", function() local t = ls.now(); ls.sleep(0.05); return ls.now() - t >= 0.045 and "slept" or "too early" end)
app:get("/fails", function() error("on purpose") end)
app:get("/parts", function(_, res) res:write("ab") res:flush() res:write("cde") end)
app:get("/file", function(_, res)
  local name = os.tmpname()
  local file = assert(io.open(name, "w"))
  file:write("abc"):close()
  assert(res:file(name))
  os.remove(name)
end)
app:get("/stats", function() return ls.stats() end)
app:get("/version", function() return tostring(ls.version) end)
app:get("/log", function()
  ls.log.debug("quiet debug") ls.log.info("line info") ls.log.warn("line warn") ls.log.error("line error")
  ls.log.info("two\nlines")
  return "ok"
end)
""")

FAILING = r"""
ls.init(function()
  ls.publish("failing", "x")
  return ls.file.write("none/init", "x")
end)
ls.init(function() ls.sleep(0.001) return ls.file.write("none/late", "x") end)
ls.on("start", function() return ls.file.write("none/start", "x") end)
ls.subscribe("failing", function() return ls.file.write("none/subscribe", "x") end)
ls.tcp(@TCP@, function(sock) return ls.file.write("none/tcp", "x") end)
ls.udp(@UDP@, function(data)
  if data == "late" then ls.sleep(0.001) end
  return ls.file.write("none/" .. data, "x")
end)
app:get("/calls", function()
  ls.connect("127.0.0.1", @TCP@):receive()
  local udp = ls.udp_connect("127.0.0.1", @UDP@)
  udp:send("udp") udp:send("late")
  return 204
end)
"""


class Tasks(E2E):
    SITE = SITE

    def test_hooks_and_timers(self):
        for line in ("hook start", "once ran", "after ran xy", "every ran 3"):
            self.server.wait_log(line)
        self.assertEqual(len(self.server.logged("once ran")), 1)
        self.assertEqual(len(self.server.logged("after ran")), 1)
        self.server.wait_log("warn a function of ls.after or ls.every has returned nil, which nothing looks at: none/a: not found")
        self.server.wait_log("warn a function of ls.spawn has returned nil, which nothing looks at: none/b: not found")
        self.assertFalse(self.server.logged("none/c"))  # a task waits for it

    def test_results_that_nothing_looks_at(self):
        server = self.serve(app_site(FAILING.replace("@TCP@", str(free_port())).replace("@UDP@", str(free_port()))), listeners=3)
        self.assertEqual(server.get("/calls", index=2).status, 204)
        for what, name in (("a function of ls.init", "init"), ("a function of ls.init", "late"), ("a function of ls.on", "start"),
                           (r"the function of ls.subscribe at \S*site\.lua:\d+", "subscribe"), ("a function of ls.tcp", "tcp"),
                           ("a function of ls.udp", "udp"), ("a function of ls.udp", "late")):
            server.wait_log("warn %s has returned nil, which nothing looks at: none/%s: not found" % (what, name))

    def test_a_timer_that_ends_with_its_request_before_a_call(self):
        self.get("/tick/1000")
        self.server.wait_log(r"warn ls\.every: the timer with the function at .* has ended with its request, before its first call")

    def test_log_hook_info(self):
        mark = self.server.mark()
        body = self.get("/version").body
        self.server.wait_log(r"info /version 200 %d true float" % len(body), mark)
        with self.server.connect() as conn:  # the body of a response to HEAD is not sent
            conn.ask("HEAD", "/version")
        self.server.wait_log("info /version 200 0 true float", mark)
        for target, status, size in (("/none", 404, 10), ("/fails", 500, 22), ("/parts", 200, 5), ("/file", 200, 3)):
            self.get(target)
            self.server.wait_log("info %s %d %d true float" % (target, status, size), mark)

    def test_stats(self):
        before = json.loads(self.get("/stats").text)
        self.assertIn("bytes_copied", before)
        self.assertTrue(all(isinstance(v, (int, float, dict, list, str)) for v in before.values()))

    def test_version(self):
        self.assertRegex(self.get("/version").text, r"^\d+\.\d+")

    def test_log_levels(self):
        mark = self.server.mark()
        self.get("/log")
        self.server.wait_log("line error", mark)
        self.server.wait_log(r"line info", mark)
        self.server.wait_log(r"line warn", mark)
        self.assertEqual(self.server.logged("quiet debug", mark), [])


class Drain(E2E):
    def test_drain_hook(self):
        server = self.serve(SITE)
        server.stop()
        self.assertTrue(server.logged("hook drain"), server.log())
