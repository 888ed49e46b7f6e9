"""The __close functions of a task that ends by an error, or because its client has left: they run to their end, also where they
wait, and the log has the error of the task."""
import re
import socket

from harness import E2E, request
from harness.conn import Conn
from harness.websocket import WebSocket

SITE = r"""
local ls = require "luaserve"
local app = ls.app()
local d, order = ls.dict("d"), ls.semaphore("order", 1)
local db = ls.sqlite(":memory:")
local numbers = ls.channel("numbers")
db:migrate { "create table t(n)" }

local closes = {
  sleep = function() ls.sleep(0.01) end,
  exec = function() assert(db:exec("insert into t values(1)")) end,
  one = function() assert(db:one("select count(*) as n from t")) end,
  with = function() order:with(function() ls.sleep(0) end) end,
  job = function() ls.spawn(function() order:with(function() end) end):wait() end,
  fetch = function(req) assert(ls.fetch(req.query.url)) end,
  receive = function() numbers:receive(0.01) end,
}
local function closing(name, req)
  return setmetatable({}, { __close = function()
    d:incr("begun")
    closes[name](req)
    d:incr("ended")
  end })
end
local ends = {
  error = function() error("on purpose") end,
  inner = function() (function() ls.sleep(0) error("on purpose") end)() end,
  job = function() ls.spawn(function() error("on purpose") end):wait() end,
  json = function(req) req:json() end,
  receive = function() numbers:receive() end,
  late = function(req, res) while not d:get("go") do ls.sleep(0.005) end ls.sleep(0.05) res:sse() end,
}
for how, ending in pairs(ends) do
  for name in pairs(closes) do
    local function handler(req, res)
      d:incr("handlers")
      local _ <close> = closing(name, req)
      ending(req, res)
      if not res.sent then return 204 end
    end
    app:get(("/%s/%s"):format(how, name), handler)
    app:get(("/behind/%s/%s"):format(how, name), function(req, res, next)
      next()
      closes[name](req)
      d:incr("behind")
    end, handler)
  end
end

app:get("/go", function() d:set("go", true) return 204 end)
app:get("/clear", function() d:clear() return 204 end)
app:get("/d/:name", function(req) return tostring(d:get(req.params.name) or 0) end)
app:get("/ok", function() return "ok" end)
app:get("/replaced", function()
  local _ <close> = setmetatable({}, { __close = function() ls.sleep(0) error("the second") end })
  error("the first")
end)
app:get("/late", { timeout = 0.05 }, function()
  local _ <close> = setmetatable({}, { __close = function() ls.sleep(60) end })
  error("the first")
end)
app:get("/rows", function()
  local rows <close> = db:rows("select 1 as n union all select 2")
  for _ in rows do error("on purpose") end
end)
app:get("/spawned", function()
  for name in pairs(closes) do
    if name ~= "fetch" then ls.spawn(function() local _ <close> = closing(name) error("on purpose") end) end
  end
  ls.after(0, function() local _ <close> = closing("with") error("on purpose") end)
  return 204
end)
app:ws("/ws", { message = function() local _ <close> = closing("with") error("on purpose") end })
app:ws("/loop", function(ws) local _ <close> = closing("exec") ws:receive() error("on purpose") end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.tcp("127.0.0.1:0", function(sock) local _ <close> = closing("with") sock:receive("l") error("on purpose") end)
ls.udp("127.0.0.1:0", function() local _ <close> = closing("with") error("on purpose") end)
"""
WAITS = "sleep", "exec", "one", "with", "job", "fetch", "receive"


class Close(E2E):
    SITE = SITE
    LISTENERS = 3

    def count(self, name):
        return int(self.get("/d/" + name).text)

    def counts(self, count, names=("begun", "ended")):
        for name in names:
            self.eventually(lambda: self.count(name) == count, "%d %s; there are %d" % (count, name, self.count(name)))

    def url(self):
        return "http://127.0.0.1:%d/ok" % self.server.port()

    def test_errors(self):
        for how in "error", "inner", "job", "json":
            for behind in "", "/behind":
                for name in WAITS:
                    self.get("/clear")
                    mark = self.server.mark()
                    status = 400 if how == "json" else 500
                    self.assertEqual(self.get("%s/%s/%s?url=%s" % (behind, how, name, self.url())).status, status, (how, name))
                    self.counts(1, ("begun", "ended", "behind") if behind else ("begun", "ended"))
                    self.server.wait_log(r"GET \S*/%s/%s: .*(on purpose|the request body must be)" % (how, name), mark)

    def test_clients_that_leave(self):
        mark = self.server.mark()
        for how in "receive", "late":
            # An error of a response that has begun passes through next().
            for behind in ("", "/behind") if how == "receive" else ("",):
                self.get("/clear")
                # Where the server notices it too late, the handler returns, and its client ends the waits of other kinds.
                names = ("sleep", "exec", "job") if how == "late" else WAITS
                conns = [self.connect().send(request("GET", "%s/%s/%s?url=%s" % (behind, how, name, self.url()))) for name in names]
                self.counts(len(conns), ("handlers",))
                for conn in conns:
                    conn.reset()
                if how == "late":
                    self.get("/go")
                self.counts(len(conns), ("begun", "ended", "behind") if behind else ("begun", "ended"))
        self.assertEqual(self.server.logged(" error ", mark), [])

    def test_an_error_of_a_close_function_names_both(self):
        mark = self.server.mark()
        self.assertEqual(self.get("/replaced").status, 500)
        self.server.wait_log(r"GET /replaced: \S*site.lua:\d+: the second", mark)
        self.server.wait_log(r"while a variable was closed because of: \S*site.lua:\d+: the first", mark)

    def test_a_close_function_has_the_time_of_its_task(self):
        mark = self.server.mark()
        self.assertEqual(self.get("/late").status, 503)
        self.server.wait_log(r"GET /late: .*waited for longer than timeout allows \(0.05 s\)", mark)
        self.server.wait_log(r"because of: \S*site.lua:\d+: the first", mark)

    def test_rows_are_closed(self):
        for _ in range(20):  # more than there are connections
            self.assertEqual(self.get("/rows").status, 500)

    def test_other_tasks(self):
        udp = int(re.search(r"udp://127.0.0.1:(\d+)", self.server.log()).group(1))
        self.get("/clear")
        mark = self.server.mark()
        self.assertEqual(self.get("/spawned").status, 204)
        self.counts(len(WAITS))
        for target in "/ws", "/loop":
            self.get("/clear")
            with WebSocket(self.server.at(), target) as ws:
                ws.send("x")
                self.counts(1)
        self.get("/clear")
        with Conn(self.server.at(1)) as conn:
            conn.send(b"x\n")
            self.counts(1, ("begun",))  # the one that cannot wait: it would cost each idle connection memory
            self.server.wait_log(r"while a variable was closed: \S*site.lua:\d+: cannot wait here", mark)
        self.get("/clear")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"x", ("127.0.0.1", udp))
            self.counts(1)
        self.server.wait_log("on purpose", mark, count=len(WAITS) + 4)
