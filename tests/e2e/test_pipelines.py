"""Random pipelines of requests to handlers of all kinds, each with a distinct response: bodies that are read early,
late, in part, by jobs, or never; responses sent whole, in parts, by jobs, from files, cut off, aborted. The
next request has arrived when a handler ends, so that an operation of one request is often pending when the next
handler begins.

All requests are answered in order and completely, until a response has Connection: close. Then a drain begins during
the load. With deadlines that expire all the time the server only has to stay up without sanitizer reports. A run
prints its seed; PIPELINES_SEED repeats its requests, PIPELINES_SECONDS sets its duration."""
import contextlib
import os
import random
import socket
import threading
import time

from harness import E2E, WAIT, Closed, chunked, request, write_bytes

SITE = r"""
local ls = require "luaserve"
ls.config{ drain_timeout = 10 }
local app = ls.app()
local function text(req, c) return (c or "t"):rep(tonumber(req.query.n) or 10) end
local function count(req, next_chunk) local n = 0 for chunk in next_chunk or req:chunks() do n = n + #chunk end return n end
local function swallow(req) pcall(count, req) end

app:any("/whole", function(req) return text(req) end)
app:any("/shared", function(req) return ls.buffer(text(req)) end)
app:any("/parts", function(req, res) for _ = 1, 5 do res:write(text(req)) end end)
app:any("/paced", function(req, res) for _ = 1, 5 do res:write(text(req)) ls.sleep(0) end end)
app:any("/flushed", function(req, res) for _ = 1, 5 do res:write(text(req)) res:flush() end end)
app:any("/nap", function(req) ls.sleep(math.random() * 0.002) return text(req) end)
app:any("/busy", function(req) local from = os.clock() while os.clock() - from < 0.008 do end return text(req) end)
app:any("/wrapped", function(req, res)
  local step = coroutine.wrap(function() for _ = 1, 5 do ls.sleep(0) res:write(text(req)) coroutine.yield() end end)
  for _ = 1, 5 do step() end
end)
app:any("/writer", function(req, res) ls.spawn(function() for _ = 1, 5 do res:write(text(req)) end end):wait() end)
app:any("/writers", function(req, res)
  local jobs = {}
  for n = 1, 5 do jobs[n] = ls.spawn(function() if n > 2 then ls.sleep(0) end res:write(text(req)) end) end
  for n = 1, 5 do jobs[n]:wait() end
end)
app:any("/inject", function(req) return app:inject{ path = "/paced?n=" .. req.query.n }.body end)
app:any("/file", function(_, res) res:file("@DIR@/file") end)
app:any("/file-job", function(_, res) ls.spawn(function() res:file("@DIR@/file") end):wait() end)
app:any("/timed", function(req)
  local job = ls.spawn(function() ls.sleep(math.random() * 0.001) end)
  for _ = 1, 5 do job:wait(math.random() * 0.0005) end
  return text(req)
end)
app:any("/fails", function() ls.sleep(0) error("on purpose") end)

app:any("/echo", function(req) return req:body() end)
app:any("/share", function(req) return req:buffer() end)
app:any("/relay", function(req, res) for chunk in req:chunks() do res:write(chunk) end if not res.sent then return 204 end end)
app:any("/sum", function(req) return tostring(count(req)) end)
app:any("/late", function(req) ls.sleep(0) return tostring(#req:body()) end)
app:any("/job", function(req) return tostring(ls.spawn(count, req):wait()) end)
app:any("/duo", function(req)
  local next_chunk = req:chunks()
  local a, b = ls.spawn(count, req, next_chunk), ls.spawn(count, req, next_chunk)
  return tostring(a:wait() + b:wait())
end)
app:any("/ahead", function(req, res) res:write(text(req)) res:flush() res:write(tostring(count(req))) end)
app:any("/beside", function(req, res)
  local job = ls.spawn(count, req)
  for _ = 1, 5 do res:write(text(req)) ls.sleep(0) end
  res:write(tostring(job:wait()))
end)

app:any("/first", function(req) for _ in req:chunks() do break end return text(req) end)
app:any("/left", function(req) ls.spawn(swallow, req) return text(req) end)
app:any("/left-later", function(req) ls.spawn(swallow, req) ls.sleep(0) return text(req) end)
app:any("/left-parts", function(req, res) ls.spawn(swallow, req) for _ = 1, 5 do res:write(text(req)) ls.sleep(0) end end)
app:any("/left-timed", function(req)
  ls.spawn(swallow, req):wait(math.random() * 0.001)
  return text(req)
end)

app:any("/says-close", function(req, res) res:header("Connection", "close") return text(req) end)
app:any("/cut", function(req, res) res:write(text(req)) res:flush() error("late") end)
app:any("/abort", function(req, res) res:write(text(req)) res:flush() res:abort() end)
app:any("/abort-sent", function(req, res)
  local job = ls.spawn(function() ls.sleep(0) res:abort() end)
  res:send(text(req))
  job:wait()
end)
app:any("/abort-writer", function(req, res)
  local job = ls.spawn(function() for _ = 1, 50 do if not res:write(text(req)) then break end ls.sleep(0) end end)
  ls.sleep(math.random() * 0.001)
  res:abort()
  job:wait()
end)
app:any("/abort-reader", function(req, res)
  ls.spawn(swallow, req)
  ls.sleep(math.random() * 0.001)
  res:abort()
end)
ls.on("log", function(req) local _ = req.path end)
ls.every(0.003, function() collectgarbage("step") end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app, max_unread = "8k", linger = 0.1, write_ahead = "64k",
  send_timeout = 5 } -- shorter than a drain: Wine may keep a send pending after its peer has closed

"""

HASTY = SITE.replace("linger = 0.1", "linger = 0.003, body_grace = 0.003, head_timeout = 0.01, idle_timeout = 0.003")
FILE = b"f" * 70000
ONCE = "/whole /shared /nap /busy /inject /timed /first /left /left-later /left-timed /says-close".split()
FIVE = "/parts /paced /flushed /wrapped /writer /writers /left-parts".split()
OTHERS = "/file /file-job /fails /echo /share /relay /sum /late /job /duo /ahead /beside".split()
ENDS = "/cut /abort /abort-sent /abort-writer /abort-reader".split()
READS = "/echo /share /relay /sum /late /job /duo /ahead /beside".split()  # all of the body
SECONDS = float(os.environ.get("PIPELINES_SECONDS") or 2)  # each test
DRAINS = 2
CLIENTS = 12


def answer(target, n, body):
    """The body of the response."""
    if target in ONCE:
        return b"t" * (5 * n if target == "/inject" else n)
    if target in FIVE:
        return b"t" * (5 * n)
    if target in ("/file", "/file-job"):
        return FILE
    if target in ("/echo", "/share", "/relay"):
        return body
    if target == "/ahead":
        return b"t" * n + b"%d" % len(body)
    if target == "/beside":
        return b"t" * (5 * n) + b"%d" % len(body)
    return b"%d" % len(body)


def ends(conn):
    """Shut the connection down, which ends a sender that waits because the responses are not read."""
    with contextlib.suppress(OSError):  # closed already
        conn.sock.shutdown(socket.SHUT_RDWR)


class Asked:
    """One request, and its expected response."""

    def __init__(self, dice):
        kind = dice.random()
        self.target = dice.choice(ENDS if kind < 0.02 else ONCE if kind < 0.4 else FIVE if kind < 0.6 else OTHERS)
        if self.target == "/says-close" and dice.random() < 0.7:
            self.target = "/whole"
        self.method = dice.choice(["GET", "GET", "POST", "POST", "POST", "HEAD"])
        n = dice.choice([1, 10, 1000, 4000, 4000, 20000, 20000, dice.randrange(1, 200000)])
        if self.target in FIVE:
            n = (n + 4) // 5
        size = 0 if self.method == "GET" else dice.choice([0, 1, 100, 100, 100, 5000, 9000, dice.randrange(1, 100000)])
        body = b"b" * size
        headers = [("Expect", "100-continue")] if size and dice.random() < 0.1 else []
        self.tells = answer(self.target, n, body)
        self.may_close = self.target in ENDS or self.target == "/says-close" or (size > 8000 and self.target not in READS)
        if size and dice.random() < 0.4:
            step = dice.choice([50, 3000, 100000])
            headers.append(("Transfer-Encoding", "chunked"))
            body = chunked([body[at : at + step] for at in range(0, size, step)])
        if dice.random() < 0.05:
            headers.append(("Upgrade", "websocket"))
        self.about = "%s?n=%d (%d %s)" % (self.target, n, size, " ".join("=".join(field) for field in headers))
        self.bytes = request(self.method, "%s?n=%d" % (self.target, n), headers, body if size else None)

    def __repr__(self):
        return "%s %s" % (self.method, self.about)

    def check(self, response):
        if self.target == "/fails":
            assert response.status == 500, response
        elif self.target not in ENDS:
            assert response.status == (204 if self.target == "/relay" and not self.tells else 200), response
            if self.method != "HEAD":
                assert response.body == self.tells, "%s: %d bytes instead of %d, %r" % (
                    self.target, len(response.body), len(self.tells), response)


class Pipelines(E2E):
    def one(self, server, dice, stop, asked, patient):
        """One connection. `patient`: the server has long deadlines."""
        data = b"".join(each.bytes for each in asked)
        may_end = any(each.may_close for each in asked)  # with a reset, which may overtake earlier responses
        how = dice.choice(["plain", "plain", "plain", "pieces", "slow", "half", "cut", "reset"])
        if how in ("cut", "reset"):
            data = data[: dice.randrange(len(data)) + 1]
        step = dice.choice([13, 1000, 9000]) if how == "pieces" else len(data)
        waits = dice.random() * 0.001 if how == "pieces" else 0
        with server.connect(rcvbuf=4096 if how == "slow" or dice.random() < 0.2 else None, timeout=WAIT) as conn:

            def send():
                with contextlib.suppress(OSError):  # the connection is closed
                    for at in range(0, min(len(data), 100 * step), step):
                        conn.sock.sendall(data[at : at + step])
                        time.sleep(waits)
                    conn.sock.sendall(data[100 * step :])
                    if how in ("half", "cut"):
                        conn.half_close()

            sender = threading.Thread(target=send, daemon=True)
            sender.start()
            try:
                if how == "reset":
                    time.sleep(dice.random() * 0.004)
                    conn.reset()
                    return
                for each in asked:
                    if how == "slow":
                        time.sleep(dice.random() * 0.01)
                    try:
                        response = conn.response(each.method)
                    except (Closed, OSError):
                        if patient and how != "cut" and not stop.is_set() and not may_end:
                            raise
                        return
                    if patient:
                        each.check(response)
                    if response.closes or each.may_close:
                        return  # the server may not read the next request
            except (AssertionError, OSError) as error:
                raise AssertionError("%s: %s: %s, at %s of %s" % (how, type(error).__name__, error, each, asked)) from None
            finally:
                ends(conn)
                sender.join()

    def client(self, server, dice, stop, bad, patient):
        while not stop.is_set() and not bad:
            try:
                few = [Asked(dice) for _ in range(dice.choice([1, 2, 2, 2, 3, 3, 4]))]
                for _ in range(4):  # repeated: a sequence may fail one time in many
                    self.one(server, dice, stop, few * dice.randrange(1, 6), patient)
            except ConnectionError:
                if not stop.is_set():
                    bad.append("refused")
            except Exception as error:  # pylint: disable=broad-except
                bad.append(error)

    def run_clients(self, site, patient):
        seed = int(os.environ.get("PIPELINES_SEED") or time.time_ns() % (1 << 30))
        print("PIPELINES_SEED=%d" % seed)
        for drain in range(DRAINS):
            server = self.serve(site, flags=("--threads", "4"))
            write_bytes(os.path.join(server.dir, "file"), FILE)
            stop, bad = threading.Event(), []
            threads = [
                threading.Thread(target=self.client, args=(server, random.Random(seed + 1000 * drain + n), stop, bad, patient))
                for n in range(CLIENTS)
            ]
            for thread in threads:
                thread.start()
            end = time.monotonic() + SECONDS / DRAINS
            while time.monotonic() < end and server.alive() and not bad:
                time.sleep(0.02)
            stop.set()
            alive = server.alive()
            if alive:
                server.signal()
            for thread in threads:
                thread.join()
            status = server.wait()
            server.check_reports()
            self.assertTrue(alive, server.log()[-5000:])
            self.assertEqual(bad, [], "PIPELINES_SEED=%d" % seed)
            self.assertEqual(status, 0, server.log()[-3000:])

    def test_random_pipelines_then_a_drain(self):
        self.run_clients(SITE, True)

    def test_deadlines_beside_everything(self):
        self.run_clients(HASTY, False)
