"""A bounded load on 4 threads: fast, slow and blocking handlers, uploads, downloads, abrupt closes, then a drain under
load.

Meant for the ThreadSanitizer and AddressSanitizer builds; in other builds it is an ordinary test."""
import os
import random
import threading
import time

from harness import E2E, SANITIZER, WAIT, Closed, Conn, app_site, beside, chunked, in_parallel, request

SITE = app_site(r"""
local shared = ls.buffer(("s"):rep(1000):rep(50))
app:use(function(req, res, next) res:header("X-Id", req.id); return next() end)
app:get("/", function() return "root" end)
app:get("/json/:n", function(req) return { n = req.params.n, q = req.query.q, agent = req.headers["user-agent"] } end)
app:get("/sleep", function(req) ls.sleep(math.random() * 0.01); return "slept" end)
app:get("/busy", function() local t = os.clock(); while os.clock() - t < 0.02 do end return "busy" end)
app:get("/block", function() os.execute("sleep 0.02"); return "blocked" end)
app:post("/echo", function(req) return req:body() end)
app:post("/buffer", function(req) return req:buffer() end)
app:post("/relay", function(req, res) for piece in req:chunks() do res:write(piece) end end)
app:get("/parts", function(req, res) for i = 1, 20 do res:write(("p"):rep(5000)); if i % 5 == 0 then ls.sleep(0.001) end end end)
app:get("/big", function() return ("b"):rep(1000):rep(300) end)
app:get("/shared", function() return shared end)
app:post("/unread", function(req, res) for _ = 1, 5 do res:write(("u"):rep(4000)) end end)
app:get("/nap", function() ls.sleep(0); return "napped" end)
app:get("/error", function() error("under load") end)
app:get("/spawn", function()
  local a, b = ls.spawn(function() ls.sleep(0.001); return 1 end), ls.spawn(function() return 2 end)
  return tostring(a:wait() + b:wait())
end)
app:get("/inject", function() return app:inject{ method = "GET", path = "/json/7" }.body end)
app:get("/stats", function() return ls.stats() end)
app:get("/after", function() ls.after(0.001, function() end); return "after" end)
app:get("/garbage", function() local t = {} for i = 1, 1000 do t[i] = { i, tostring(i) } end collectgarbage("step"); return "g" end)
ls.every(0.005, function() collectgarbage("step") end)
""", 'max_unread = "8k"')

GETS = [
    "/", "/json/1?q=2", "/sleep", "/parts", "/big", "/shared", "/error", "/spawn", "/inject", "/stats", "/after", "/garbage", "/nowhere",
]
SECONDS = 4 if SANITIZER == "tsan" else 2


class Load(E2E):
    def client(self, server, seed, stop, bad, counts):
        rnd = random.Random(seed)
        while not stop.is_set():
            try:
                with server.connect(rcvbuf=rnd.choice((None, 8192))) as conn:
                    for _ in range(rnd.randrange(1, 30)):
                        if stop.is_set():
                            break
                        kind = rnd.randrange(12)
                        if kind == 0:
                            target = rnd.choice(["/busy", "/block"])
                            response = conn.get(target)
                        elif kind == 1:
                            data = bytes([rnd.randrange(256)]) * rnd.choice((0, 10, 5000, 70000, 300000))
                            response = conn.ask("POST", rnd.choice(["/echo", "/buffer", "/relay"]), body=data)
                            if response.body != data:
                                bad.append("echo differs: %d of %d" % (len(response.body), len(data)))
                        elif kind == 2:
                            data = os.urandom(rnd.randrange(1, 20000))
                            conn.send(request("POST", "/relay", {"Transfer-Encoding": "chunked"}, chunked([data[:100] or b"x", data])))
                            response = conn.response()
                            if response.body != (data[:100] or b"x") + data:
                                bad.append("relay differs")
                        elif kind == 3:
                            targets = [rnd.choice(GETS[:6]) for _ in range(10)]
                            conn.send(b"".join(request("GET", t) for t in targets))
                            for _ in targets:
                                response = conn.response()
                                counts[0] += 1
                                if response.closes:
                                    break
                        elif kind == 4:  # close in the middle of the response
                            conn.send(request("GET", rnd.choice(GETS)) * 3)
                            if rnd.random() < 0.5:
                                conn.take(20)
                            if rnd.random() < 0.5:
                                conn.reset()
                            break
                        elif kind == 5:  # close after half a request
                            conn.send(request("POST", "/echo", {"Content-Length": "50000"}) + b"x" * rnd.randrange(20000))
                            break
                        elif kind == 6:  # no HTTP
                            conn.try_send(b"GET / HTTP/9.9\r\n\r\n")
                            response = conn.response()
                            break
                        else:
                            response = conn.get(rnd.choice(GETS))
                        counts[0] += 1
                        if response.closes:
                            break
            except (Closed, ConnectionResetError, BrokenPipeError, ConnectionRefusedError) as error:
                if not stop.is_set():
                    bad.append("%s: %s" % (type(error).__name__, error))
                    return
            except Exception as error:  # any other error is a failure at any time
                bad.append("%s: %s" % (type(error).__name__, error))
                return

    def test_load_then_drain(self):
        server = self.serve(SITE, flags=("--threads", "4"))
        stop, bad, counts = threading.Event(), [], [0]
        with beside(*[lambda seed=seed: self.client(server, seed, stop, bad, counts) for seed in range(16)]):
            begun = time.monotonic()
            while server.alive() and not bad:
                elapsed = time.monotonic() - begun
                if elapsed > WAIT or (elapsed > SECONDS and counts[0] > 50):
                    break
                time.sleep(0.05)
            alive = server.alive()
            stop.set()  # from here on the drain may close any connection
            server.signal()
        status = server.wait()
        server.check_reports()
        self.assertTrue(alive, server.log()[-5000:])
        self.assertEqual(bad, [], server.log()[-3000:])
        self.assertEqual(status, 0, server.log()[-3000:])
        self.assertGreater(counts[0], 50)

    def test_answers_on_their_way_while_the_next_request_waits(self):
        """The end of the response to a request with an unread body is still being sent while the next handler waits
        and answers."""
        server = self.serve(SITE, flags=("--threads", "4"))
        asked = (request("POST", "/unread", (), b"b" * 100) + request("GET", "/nap")) * 4

        def client():
            with server.connect() as conn:
                for _ in range(15 if SANITIZER else 50):
                    conn.send(asked)
                    for _ in range(4):
                        self.assertEqual(len(conn.response("POST").body), 20000)
                        self.assertEqual(conn.response().text, "napped")

        in_parallel([client] * 16)

    def test_states_and_sleepers(self):
        """Many sleeping handlers, which any thread wakes in their own states, while connections open and close."""
        server = self.serve(SITE, flags=("--threads", "4"))
        conns = [self.connect(server=server) for _ in range(100)]
        for _ in range(3 if SANITIZER else 10):
            for conn in conns:
                conn.send(request("GET", "/sleep"))
            with Conn(server.at()) as gone:
                gone.send(request("GET", "/sleep"))
            for conn in conns:
                self.assertEqual(conn.response().text, "slept")
