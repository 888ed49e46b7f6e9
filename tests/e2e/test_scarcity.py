"""Clients that hold what the server has little of: buffers of the pool, connections. Slow uploads and slow readers, no
buffers at all, clients that are gone while their handlers wait, buffers of very many pieces."""
import json
import os
import threading
import unittest

from harness import E2E, SANITIZER, chunked, not_on_windows, request, system, write_bytes, write_text

SITE = r"""
local ls = require "luaserve"
ls.config{ threads = 2, max_buffers = "%s", max_connections = %d }
local app = ls.app()
app:get("/", function() return "root" end)
app:post("/echo", function(req) return req:body() end)
app:post("/count", function(req)
  local n = 0
  for piece in req:chunks() do n = n + #piece end
  return tostring(n)
end)
app:get("/file", function(_, res) return res:file("@FILE@") end)
app:get("/stats", function() return ls.stats() end)

-- A handler that waits until the test makes a file
local function exists(name) local f = io.open(name) if f then f:close() end return f ~= nil end
local function wait_for(name) while not exists(name) do ls.sleep(0.01) end end

-- All blocks of the pool
app:get("/hoard", function()
  local held, full = {}, false
  for _, size in ipairs{ 65536, 4096 } do
    local bytes = ("x"):rep(size)
    while pcall(function() held[#held + 1] = ls.buffer(bytes) end) do end
  end
  ls.log.info("hoarded")
  wait_for("@DIR@/give")
  held = nil
  collectgarbage()
  ls.log.info("given back")
  return "hoarded"
end)

app:get("/wait", function(req, res)
  ls.log.info("waits " .. req.query.n)
  wait_for("@DIR@/go" .. req.query.n)
  local ok, message, code = res:write("late")
  ok, message, code = res:flush()
  ls.log.info("wrote " .. req.query.n .. " " .. tostring(ok) .. " " .. tostring(code))
end)
app:post("/wait-then-body", function(req)
  ls.log.info("waits " .. req.query.n)
  wait_for("@DIR@/go" .. req.query.n)
  local ok, body = pcall(req.body, req)
  ls.log.info("read " .. req.query.n .. " " .. (ok and #body or body))
  return ok and body or nil
end)

-- Many pieces
local function pieces(count)
  local b, one = ls.buffer(), ls.buffer("ab")
  for n = 1, count do b:append(one:sub(n %% 2 + 1, n %% 2 + 1)) end
  return b
end
app:get("/pieces/:n", function(req) return pieces(tonumber(req.params.n)) end)
app:get("/write-pieces/:n", function(req, res) res:write("<", pieces(tonumber(req.params.n)), ">") end)
app:get("/write-length/:n", function(req, res)
  local n = tonumber(req.params.n)
  res:header("Content-Length", n)
  res:write(pieces(n))
end)

-- Responses before an abort
app:get("/n/:n", function(req) return req.params.n end)
app:get("/abort", function(_, res) res:abort() end)
app:get("/part-then-abort", function(_, res) res:write("part of it") res:abort() end)
app:get("/sent-then-fails", function(_, res) res:write("sent ") res:flush() res:write("not sent") error("on purpose") end)
app:get("/sent-then-abort", function(_, res) res:write("sent ") res:flush() res:write("not sent") res:abort() end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app, body_grace = 60 %s }
ls.tcp({ host = "127.0.0.1", port = 0 }, function(sock)
  sock:send(pieces(100000))
  sock:send({ pieces(70000), "x", pieces(10) })
end)
"""


class Scarcity(E2E):
    def serve_with(self, buffers="64m", connections=65536, more=""):
        data = os.urandom(100000)
        server = self.serve((SITE % (buffers, connections, more)).replace("@FILE@", "@DIR@/file"), listeners=2)
        write_bytes(os.path.join(server.dir, "file"), data)
        return server, data

    def touch(self, server, name):
        write_text(os.path.join(server.dir, name), "")


class SlowUploads(Scarcity):
    COUNT = 600

    def slow_uploads(self, start):
        """COUNT clients send `start` and wait. Meanwhile others upload and download, from a pool with 64 KiB for less
        than half of the clients."""
        system.raise_descriptor_limit(4000)
        server, data = self.serve_with("16m")
        conns = [self.connect(server=server) for _ in range(self.COUNT)]
        for conn in conns:
            conn.send(start)
        body = b"b" * 300000
        for _ in range(5):
            with server.connect() as conn:
                self.assertEqual(conn.ask("POST", "/echo", body=body).body, body)
                self.assertEqual(conn.get("/file").body, data)
        self.assertLess(json.loads(server.get("/stats").text)["bytes_live"], 16 * 1024 * self.COUNT)
        for conn in conns[::50]:  # they go on
            self.assertTrue(conn.silent(0.01))
        for conn in conns:
            conn.close()
        server.stop()

    def test_one_byte_with_the_head(self):
        self.slow_uploads(request("POST", "/echo", {"Content-Length": "1000000"}) + b"x")

    def test_one_byte_for_a_handler_that_reads_chunks(self):
        self.slow_uploads(request("POST", "/count", {"Content-Length": "1000000"}) + b"x")

    def test_tiny_chunks(self):
        head = request("POST", "/echo", {"Transfer-Encoding": "chunked"})
        self.slow_uploads(head + b"1\r\nx\r\n" * 30)

    def test_bytes_one_by_one(self):
        """Each byte of the body comes alone, after a fast beginning."""
        system.raise_descriptor_limit(4000)
        server, data = self.serve_with("16m")
        conns = [self.connect(server=server) for _ in range(self.COUNT)]
        for conn in conns:
            conn.send(request("POST", "/count", {"Content-Length": "1000000"}) + b"x" * 12000)
        for _ in range(3):
            for conn in conns:
                conn.send(b"x")
        with server.connect() as conn:
            self.assertEqual(conn.ask("POST", "/echo", body=data).body, data)
            self.assertEqual(conn.get("/file").body, data)
        server.kill()


class NoBuffers(Scarcity):
    def test_refused_with_503(self):
        """Not one block is left: every request is answered with 503, also one with a body that is still coming."""
        server, data = self.serve_with("4m")
        holder = self.connect(server=server)
        holder.send(request("GET", "/hoard"))
        server.wait_log("hoarded")
        for _ in range(3):
            for bytes_sent in (
                request("GET", "/"), request("GET", "/file"), request("GET", "/stats") * 3,
                request("POST", "/echo", {"Content-Length": "5"}) + b"hello",
                request("POST", "/echo", {"Content-Length": "3000000"}) + b"x" * 3000000,
                request("POST", "/echo", {"Transfer-Encoding": "chunked"}, chunked([b"y" * 100000] * 20)),
            ):
                with self.subTest(bytes_sent[:60]), server.connect() as conn:
                    conn.try_send(bytes_sent)
                    response = conn.response()
                    self.assertEqual((response.status, response.closes), (503, True))
                    self.assertEqual(response.header("Retry-After"), "1")
                    conn.expect_end(reset_ok=True)
        self.touch(server, "give")
        self.assertEqual(holder.response().status, 200)
        stats = json.loads(server.get("/stats").text)
        self.assertGreaterEqual(stats["refused"], 18)
        with server.connect() as conn:
            self.assertEqual(conn.get("/file").body, data)
            self.assertEqual(conn.ask("POST", "/echo", body=data).body, data)

    def test_a_response_without_memory(self):
        """Requests that have begun get 503 as well, when there is no memory for their body or for their response."""
        server, _ = self.serve_with("4m")
        waiting, uploading = self.connect(server=server), self.connect(server=server)
        waiting.send(request("GET", "/n/1") + request("GET", "/wait?n=1"))
        self.assertEqual(waiting.response().text, "1")
        uploading.send(request("POST", "/echo", {"Content-Length": "500000"}) + b"x" * 3000)
        server.wait_log("waits 1")
        holder = self.connect(server=server)
        holder.send(request("GET", "/hoard"))
        server.wait_log("hoarded")
        uploading.try_send(b"x" * 497000)
        response = uploading.response()
        self.assertEqual((response.status, response.closes), (503, True))
        self.touch(server, "go1")
        response = waiting.response()  # 200: the upload that was refused has given its blocks back
        self.assertIn(response.status, (200, 500, 503))
        self.assertTrue(response.closes or response.status < 503)
        self.touch(server, "give")
        self.assertEqual(holder.response().status, 200)


class SlowReaders(Scarcity):
    @staticmethod
    def flood(more):
        return (
            SITE.replace("-- Many pieces", r"""
app:get("/flood", function(req, res)
  local piece, ok, message, code = ("x"):rep(1024):rep(64), true
  for i = 1, 1000 do
    ok, message, code = res:write(piece)
    if not ok then break end
  end
  ls.log.info("flood " .. tostring(ok) .. " " .. tostring(code))
end)
-- Many pieces""") % ("64m", 100, more)
        )

    def test_below_the_rate(self):
        """A client that always takes a little, but less than min_send_rate, is disconnected."""
        server = self.serve(self.flood(", send_timeout = 0.3, min_send_rate = 100000000"), listeners=2)
        pause = threading.Event()
        with server.connect(rcvbuf=8192) as conn:
            conn.send(request("GET", "/flood"))
            while not server.logged("flood"):
                pause.wait(0.02)
                conn.sock.recv(2000)
        server.wait_log("flood (nil|false) ETIMEDOUT")


class HalfClosed(Scarcity):
    def test_a_half_close_is_answered(self):
        server, _ = self.serve_with()
        conns = [self.connect(server=server) for _ in range(8)]
        for n, conn in enumerate(conns):
            conn.send(request("GET", "/wait?n=%d" % n))
            if n % 2 == 0:
                conn.half_close()
        server.wait_log("waits", count=8)
        for n, conn in enumerate(conns):
            if n % 2 == 1:
                conn.half_close()
        for n in range(8):
            self.touch(server, "go%d" % n)
        for conn in conns:
            self.assertEqual(conn.response().text, "late")
            conn.expect_end()


@not_on_windows("the next operation finds the loss of a connection")
class Gone(Scarcity):
    COUNT = 20

    def test_clients_that_reset(self):
        """Their descriptors and places are free at once, while their handlers still wait; the handlers learn of it."""
        server, _ = self.serve_with(connections=self.COUNT + 1)
        before = self.quiet_fds(server)
        after_heads = [
            lambda n: request("GET", "/wait?n=%d" % n),
            lambda n: request("GET", "/wait?n=%d" % n) + request("GET", "/n/never") * 5,  # pipelined behind it
            lambda n: request("GET", "/n/1") + request("GET", "/wait?n=%d" % n),
            lambda n: request("POST", "/wait-then-body?n=%d" % n, {"Content-Length": "500000"}) + b"x" * 100000,
        ]
        for round_number in range(2):
            conns = [server.connect() for _ in range(self.COUNT)]
            mark = server.mark()
            for n, conn in enumerate(conns):
                conn.send(after_heads[n % 4](n))
            server.wait_log("waits", mark, self.COUNT)
            for conn in conns:
                conn.reset()
            self.eventually(lambda: server.fds() <= before, "the descriptors are free")
            again = [server.connect() for _ in range(self.COUNT)]
            for conn in again:
                self.assertEqual(conn.get("/").text, "root")
            for conn in again:
                conn.close()
            self.assertEqual(server.logged("(wrote|read) ", mark), [])
            for n in range(self.COUNT):
                self.touch(server, "go%d" % n)
            server.wait_log("(wrote|read) ", mark, self.COUNT)
            for n in range(self.COUNT):
                ended = "wrote %d nil (ERESET|EPIPE|nil)$|read %d ([0-9]+$|.*the client has left)" % (n, n)
                self.assertEqual(len(server.logged(ended, mark)), 1)
                os.remove(os.path.join(server.dir, "go%d" % n))
            self.eventually(lambda: server.fds() <= before, "no descriptor is left")

    def test_a_drain_waits_for_their_handlers(self):
        server, _ = self.serve_with()
        conn = server.connect()
        conn.send(request("GET", "/wait?n=1"))
        server.wait_log("waits 1")
        before = server.fds()
        conn.reset()
        self.eventually(lambda: server.fds() < before, "the descriptor is free")
        server.signal()
        server.wait_log("drain|stopping|listening")
        self.assertEqual(server.logged("wrote"), [])
        self.touch(server, "go1")
        server.wait_log("wrote 1 nil ERESET")
        self.assertEqual(server.wait(), 0)

    def test_many_that_come_and_go(self):
        """More clients than there are places reset their connections while all handlers wait."""
        count = 200 if SANITIZER else 1000
        server, _ = self.serve_with(connections=50)
        for n in range(count):
            with server.connect() as conn:
                conn.send(request("GET", "/wait?n=x"))
                server.wait_log("waits", count=n + 1)
                conn.reset()
        self.assertEqual(server.get("/n/after").text, "after")
        self.assertEqual(server.logged("wrote"), [])
        self.touch(server, "gox")
        server.wait_log("wrote x nil ERESET", count=count)


@unittest.skipIf(SANITIZER == "tsan", "the buffers are those of one request")
class Pieces(Scarcity):
    def test_buffers_of_many_pieces(self):
        server, _ = self.serve_with("8m")
        want = b"ba" * 50000
        for count in (24, 25, 1024, 1025, 32768, 65535, 65536, 100000):
            with self.subTest(count), server.connect() as conn:
                self.assertEqual(conn.get("/pieces/%d" % count).body, want[:count])
                if count < 2000 or count == 32768:  # one chunk for each piece
                    self.assertEqual(conn.get("/write-pieces/%d" % count).body, b"<" + want[:count] + b">")
                self.assertEqual(conn.get("/write-length/%d" % count).body, want[:count])
                self.assertEqual(conn.get("/").text, "root")
        with server.connect() as conn:
            conn.send(request("GET", "/pieces/60000") * 4)
            for _ in range(4):
                self.assertEqual(conn.response().body, want[:60000])
        with server.connect(1) as conn:
            self.assertEqual(conn.rest(), want + want[:70000] + b"x" + want[:10])


class Aborts(Scarcity):
    def test_responses_before_an_abort(self):
        """The complete responses to pipelined requests before it reach the client."""
        server, _ = self.serve_with()
        for last in ("/abort", "/part-then-abort", "/sent-then-abort", "/sent-then-fails"):
            for count in (0, 1, 2, 30, 250):
                with self.subTest((last, count)), server.connect() as conn:
                    ahead = b"".join(request("GET", "/n/%d" % n) for n in range(count))
                    conn.send(ahead + request("GET", last) + request("GET", "/n/behind") * 3)
                    for n in range(count):
                        self.assertEqual(conn.response().text, str(n))
                    rest = conn.rest()
                    self.assertNotIn(b"not sent", rest)
                    self.assertNotIn(b"behind", rest)
                    if not last.startswith("/sent"):
                        self.assertEqual(rest, b"")
