"""Random load: clients that pipeline, trickle, stop reading, half-close and reset, against handlers that read, stream,
spawn, wait and fail, with so little memory for buffers and for Lua that both run out all the time.

A single response only has to be framed correctly. The server must stay up without sanitizer reports, serve a plain
request afterwards, and hold neither a block nor a descriptor once all clients have closed. A run prints its seed;
CHAOS_SEED repeats it."""
import contextlib
import os
import random
import threading
import time

from harness import E2E, WAIT, Closed, chunked, in_parallel, repeats, request

SITE = r"""
local ls = require "luaserve"
ls.config{ max_memory = "6m", max_buffers = "2m", max_cpu = 2, drain_timeout = 10, threads = 4 }
local app = ls.app()
local size = { tiny = 10, small = 3000, part = 20000, big = 300000 }
local function text(req) return ("tttttttttt"):rep((size[req.query.size] or 100) // 10) end
local function collected(fn) setmetatable({}, { __gc = fn }) end

app:get("/", function() return "root" end)
app:get("/live", function() collectgarbage() return tostring(ls.stats().blocks_live) end)
app:any("/text", text)
app:any("/buffer", function(req) return ls.buffer(text(req)) end)
app:any("/json", function(req) local t = {} for i = 1, 200 do t[i] = { n = i, text = req.query.size } end return t end)
app:any("/echo", function(req) return req:body() end)
app:any("/share", function(req) return req:buffer() end)
app:any("/sum", function(req) local n = 0 for chunk in req:chunks() do n = n + #chunk end return tostring(n) end)
app:any("/parts", function(req, res) for _ = 1, 20 do res:write(text(req)) end end)
app:any("/buffers", function(req, res) local b = ls.buffer(text(req)) for _ = 1, 20 do res:write("x", b, text(req)) end end)
app:any("/events", function(req, res) for _ = 1, 10 do res:write(text(req)) ls.sleep(0.002) end end)
app:any("/relay", function(req, res) for chunk in req:chunks() do res:write(chunk) end end)
app:any("/both", function(req, res)
  local job = ls.spawn(function() for _ in req:chunks() do end end)
  for _ = 1, 10 do res:write(text(req)) end
  job:wait()
end)
app:any("/early", function(req)
  ls.spawn(function() pcall(req.body, req) end)
  ls.sleep(0)
  return text(req)
end)
app:any("/jobs", function(req)
  local jobs = {}
  for i = 1, 20 do jobs[i] = ls.spawn(function() ls.sleep(0.001) return #text(req) end) end
  local n = 0
  for i = 1, 20 do n = n + jobs[i]:wait() end
  return tostring(n)
end)
app:any("/wrapped", function(req, res)
  local step = coroutine.wrap(function() for i = 1, 5 do ls.sleep(0.001) res:write(text(req)) coroutine.yield(i) end end)
  for _ = 1, 5 do step() end
end)
app:any("/finalizers", function(req, res)
  local b = ls.buffer()
  for _ = 1, 10 do collected(function() b:append("gc") pcall(res.write, res, "gc") end) end
  for _ = 1, 10 do b:append(text(req)) end
  res:write(b, text(req))
end)
app:any("/eat", function() local t = {} while true do t[#t + 1] = string.rep("e", 1000) .. #t end end)
app:any("/eat-buffers", function() local t = {} for i = 1, 100 do t[i] = ls.buffer(("e"):rep(1000):rep(60)) end return "ate" end)
app:any("/error", function(req) req:header("x") error(req.query.size == "tiny" and {} or "on purpose") end)
app:any("/late-error", function(req, res) res:write(text(req)) res:flush() error("late") end)
app:any("/abort", function(req, res) res:write(text(req)) res:flush() res:abort() return "never" end)
app:any("/inject", function(req) return app:inject{ path = "/parts?size=small" }.body end)
local failing = ls.app()
failing:any("/x", function() error("first") end)
failing:error(function(req, res) ls.sleep(0.001) res:write(text(req)) end)
app:mount("/failing", failing)
ls.on("log", function(req) if #req.path % 3 == 0 then local _ = { req.headers, req.query } end end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app, send_timeout = 1, body_grace = 1, head_timeout = 1, idle_timeout = 2,
  linger = 0.2, max_body = "1m" }
"""

TARGETS = (
    "/ /text /buffer /json /echo /share /sum /parts /buffers /events /relay /both /early /jobs /wrapped /finalizers /eat"
    " /eat-buffers /error /late-error /abort /inject /failing/x /nowhere"
).split()


def one_request(dice):
    method = dice.choice(["GET", "GET", "POST", "POST", "PUT", "HEAD"])
    target = "%s?size=%s" % (dice.choice(TARGETS), dice.choice(["tiny", "small", "part", "big"]))
    body = b"b" * dice.choice([0, 1, 100, 5000, 70000, 300000])
    headers = []
    if method in ("GET", "HEAD") and dice.random() < 0.8:
        return method, request(method, target, headers)
    if dice.random() < 0.1:
        headers.append(("Expect", "100-continue"))
    if dice.random() < 0.4:
        headers.append(("Transfer-Encoding", "chunked"))
        step = dice.choice([1000, 7000, 100000])
        return method, request(method, target, headers) + chunked([body[n : n + step] for n in range(0, len(body), step)])
    return method, request(method, target, headers, body)


def client(server, dice):
    """One connection. Any failure but invalid HTTP is its own doing. Its response may wait for several others that use
    all the time and memory they may use."""
    asked = [one_request(dice) for _ in range(dice.randrange(1, 5))]
    data = b"".join(text for _, text in asked)
    how = dice.choice(["plain", "plain", "pieces", "cut", "half", "reset", "deaf"])
    if how in ("cut", "half", "reset"):
        data = data[: dice.randrange(len(data)) + 1]
    try:
        conn = server.connect(rcvbuf=4096 if how == "deaf" else None, timeout=3 * WAIT)
    except ConnectionResetError:
        return  # no memory for a further connection
    with conn:

        def send():
            step = dice.choice([7, 1000, 9000]) if how == "pieces" else len(data)
            with contextlib.suppress(OSError):  # the server or this client closed the connection
                for at in range(0, len(data), step)[:200]:
                    conn.sock.sendall(data[at : at + step])
                if how in ("half", "cut", "pieces"):
                    conn.half_close()

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        with contextlib.suppress(Closed, OSError):  # cut off: out of memory, a handler that failed late, or an incomplete request
            if how == "reset":
                time.sleep(dice.random() * 0.02)
                conn.reset()
            elif how == "deaf":
                time.sleep(dice.random() * 1.5)
            else:
                for method, _ in asked:
                    if conn.response(method).closes:
                        break
    sender.join()


class Chaos(E2E):
    def test_all_at_once(self):
        seed = int(os.environ.get("CHAOS_SEED") or random.randrange(1 << 30))
        print("CHAOS_SEED=%d" % seed)
        server = self.serve(SITE)
        self.assertEqual(server.get("/").text, "root")
        held = self.quiet_fds(server)
        in_parallel([lambda n=n: client(server, random.Random(seed + n)) for n in range(max(200, repeats(1000)))], 24)

        def live():
            time.sleep(0.7)  # an idle server collects the garbage of its states
            response = server.get("/live")
            seen.append(response.text)
            return response.status == 200 and int(response.text) <= 4  # this connection's own

        seen = []
        self.eventually(live, seen)
        self.eventually(lambda: server.fds() <= held, "all descriptors are closed")
        self.assertEqual(server.get("/").text, "root")
