"""Request and response bodies in parts: bounded memory, back-pressure, clients that close early, and bytes that are
not copied."""
import json
import os

from harness import E2E, SANITIZER, WAIT, app_site, in_parallel, request

SITE = app_site(r"""
local MiB = 1024 * 1024
app:get("/", function() return "root" end)
app:put("/upload", { max_body = "10g" }, function(req)
  local bytes, pieces = 0, 0
  local ok, err = pcall(function()
    for piece in req:chunks() do bytes = bytes + #piece; pieces = pieces + 1 end
  end)
  if not ok then ls.log.info("upload told after " .. bytes .. ": " .. tostring(err)); error(err, 0) end
  return 201, { bytes = bytes, pieces = pieces }
end)
app:put("/upload-slow", { max_body = "10g" }, function(req)
  local bytes = 0
  for piece in req:chunks() do bytes = bytes + #piece; ls.sleep(0.005) end
  return tostring(bytes)
end)
app:get("/download", function(req, res)
  local megabytes = tonumber(req.query.m)
  local piece = ("0123456789abcdef"):rep(4096)
  for i = 1, megabytes * 16 do
    local called, ok, message, code = pcall(res.write, res, piece)
    if not called or not ok then
      ls.log.info("download told: " .. tostring(ok) .. " " .. tostring(message) .. " " .. tostring(code))
      return
    end
  end
  ls.log.info("download written " .. (req.query.tag or ""))
end)
app:get("/csv", function(req, res)
  res:header("Content-Type", "text/csv")
  for i = 1, 100000 do res:write(i, ",", i * i, "\n") end
end)
app:post("/echo", function(req) return req:buffer() end)
local shared = ls.buffer(("s"):rep(1000):rep(100))
app:get("/shared", function() return shared end)
local kibibyte = ("f"):rep(1024)
local big = ("b"):rep(1024):rep(1024)
app:get("/big", function() return big end)
app:get("/fresh", function(req) return kibibyte:rep(1023) .. kibibyte:sub(2) .. req.query.c end)
app:get("/stats", function() return ls.stats() end)
""")

MIB = 1 << 20


LONG_STRINGS = r"""
local ls = require "luaserve"
ls.config{ max_memory = "40m", threads = 1, threads_max = 1 }
local app = ls.app()
local function fresh(i) return tostring(i % 10):rep(1024):rep(1024) end
app:get("/write", function(req, res)
  for i = 1, tonumber(req.query.m) do
    if not res:write(fresh(i)) then break end
    collectgarbage("step")
  end
  ls.log.info("written")
end)
app:get("/send", function(req, res)
  collectgarbage() -- string.rep does not collect garbage at the limit
  ls.log.info("sent " .. tostring(res:send(fresh(1):rep(tonumber(req.query.m))) == res))
  for i = 1, 40 do fresh(i) end
end)
app:get("/return", function(req) return (fresh(tonumber(req.query.i))) end)
app:get("/lua", function() collectgarbage() return tostring(ls.stats().lua_bytes) end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app, write_ahead = "6m" }
ls.tcp{ host = "127.0.0.1", port = 0, write_ahead = "6m", handler = function(sock)
  for i = 1, tonumber((sock:receive("*l"))) do
    if not sock:send(fresh(i)) then break end
    collectgarbage("step")
  end
  ls.log.info("written")
end }
"""


class Streaming(E2E):
    SITE = SITE

    def stats(self):
        return json.loads(self.get("/stats").text)

    def assert_small(self, before, what, allowed=24 * MIB):
        if not SANITIZER:
            self.assertLess(self.server.rss() - before, allowed, what)

    def test_upload_without_growth(self):
        size = 50 * MIB
        block = os.urandom(MIB)
        self.ask("PUT", "/upload", body=block)
        before, peak = self.server.rss(), 0
        with self.connect() as conn:
            conn.send(request("PUT", "/upload", {"Content-Length": str(size)}))
            for _ in range(size // MIB):
                conn.send(block)
                peak = max(peak, self.server.rss())
            response = conn.response()
            self.assertEqual((response.status, json.loads(response.text)["bytes"]), (201, size))
            self.assertGreater(json.loads(response.text)["pieces"], 50)
            conn.send(request("PUT", "/upload", {"Transfer-Encoding": "chunked"}))
            for _ in range(size // MIB):
                conn.send(b"%x\r\n" % MIB + block + b"\r\n")
                peak = max(peak, self.server.rss())
            conn.send(b"0\r\n\r\n")
            self.assertEqual(json.loads(conn.response().text)["bytes"], size)
            self.assertEqual(conn.get("/").text, "root")
        if not SANITIZER:
            self.assertLess(peak - before, 24 * MIB)

    def test_slow_handler_holds_the_sender_back(self):
        size = 30 * MIB
        before = self.server.rss()
        with self.connect() as conn:
            conn.send(request("PUT", "/upload-slow", {"Content-Length": str(size)}))
            for _ in range(size // MIB):
                conn.send(b"u" * MIB)
            self.assert_small(before, "nothing piles up in front of a slow handler")
            self.assertEqual(conn.response().text, str(size))

    def test_download_with_a_slow_reader(self):
        """The writer waits for the reader: it does not finish while most of the bytes are unread."""
        self.assertEqual(len(self.get("/download?m=4").body), 4 * MIB)
        before, mark = self.server.rss(), self.server.mark()
        with self.connect(rcvbuf=65536) as conn:
            conn.send(request("GET", "/download?m=64&tag=slow"))
            head = conn.response_head()
            self.assertEqual(head.header("Transfer-Encoding"), "chunked")
            self.assertEqual(self.get("/").text, "root")
            self.assertEqual(self.server.logged("download written slow", mark), [])
            self.assert_small(before, "nothing piles up for a slow reader")
            size = 0
            while True:
                chunk = int(conn._line("chunk size"), 16)
                self.assertEqual(self.server.logged("download written slow", mark) != [] and size < 8 * MIB, False,
                                 "written long before it was read")
                conn.take(chunk + 2)
                size += chunk
                if chunk == 0:
                    break
            self.assertEqual(size, 64 * MIB)
            self.server.wait_log("download written slow", mark)
            self.assertEqual(conn.get("/").text, "root")

    def test_client_leaves_an_upload(self):
        quiet = self.quiet_fds()
        for ending in ("close", "reset", "half_close"):
            with self.subTest(ending):
                mark = self.server.mark()
                conn = self.connect()
                # Wait for the handler: on Windows a reset discards unread data, which may be the head of the request.
                conn.send(request("PUT", "/upload", {"Content-Length": "1000000", "Expect": "100-continue"}))
                self.assertEqual(conn.head().status, 100)
                conn.send(b"x" * 400000)
                getattr(conn, ending)()
                self.server.wait_log("upload told", mark)
                conn.close()
        self.eventually(lambda: self.server.fds() <= quiet, "the descriptors are closed")

    def test_client_leaves_a_download(self):
        quiet = self.quiet_fds()
        for ending in ("close", "reset"):
            with self.subTest(ending):
                mark = self.server.mark()
                conn = self.connect(rcvbuf=65536)
                conn.send(request("GET", "/download?m=500"))
                conn.response_head()
                getattr(conn, ending)()
                self.server.wait_log("download told: (nil|false)", mark)
        self.eventually(lambda: self.server.fds() <= quiet, "the descriptors are closed")

    def test_one_buffer_for_everyone(self):
        def one():
            with self.server.connect() as conn:
                return {conn.get("/shared").body for _ in range(10)}

        self.assertEqual(set.union(*in_parallel([one] * 8, 8)), {b"s" * 100000})

    def test_nothing_is_copied(self):
        """The core copies no byte of a response of 1 MiB, nor of a body that is echoed as a buffer. Only of the latter a few
        KiB may arrive by themselves, and move from a large block into a small one."""
        body = b"e" * MIB
        with self.connect() as conn:
            for name, may_move, ask in (("string", 0, lambda: conn.get("/big").body),
                                        ("fresh string", 0, lambda: conn.get("/fresh?c=x").body),
                                        ("echo", MIB // 16, lambda: conn.ask("POST", "/echo", body=body).body)):
                with self.subTest(name):
                    first = json.loads(conn.get("/stats").text)["bytes_copied"]
                    control = json.loads(conn.get("/stats").text)["bytes_copied"] - first
                    self.assertEqual(len(ask()), MIB)
                    second = json.loads(conn.get("/stats").text)["bytes_copied"]
                    self.assertLessEqual(second - first - control, control + may_move)

    def test_buffers_are_not_left_to_the_garbage_collector(self):
        """A body as a buffer, a small object in Lua that holds much memory, is freed at the end of its request."""
        server = self.serve("require('luaserve').config{ max_buffers = '8m' }\n" + SITE)
        body = b"x" * 300000
        with server.connect() as conn:
            for n in range(100):
                self.assertEqual(conn.ask("POST", "/echo", body=body).status, 200, "the %dth" % n)

    def test_garbage_of_an_idle_state_does_not_keep_its_blocks(self):
        idle = self.stats()
        with self.connect() as conn:  # less than what starts a garbage collection
            conn.ask("POST", "/echo", body=b"x" * 300000)
        self.eventually(lambda: self.stats()["blocks_live"] <= idle["blocks_live"] + 2, "the blocks are freed")

    def test_old_garbage_of_a_busy_state_does_not_keep_its_blocks(self):
        old = """app:get("/old", function()
  local kept = ls.buffer(("o"):rep(1000):rep(300))
  for _ = 1, 4 do collectgarbage("step") end -- young collections: it is an old object after two
  return tostring(#kept)
end)
ls.listen"""
        server = self.serve(SITE.replace("ls.listen", old), args=["--threads", "1"])
        with server.connect() as conn:

            def live():
                return json.loads(conn.get("/stats").text)["blocks_live"]

            idle = live()
            self.assertEqual(conn.get("/old").text, "300000")
            self.assertGreater(live(), idle + 2)
            self.eventually(lambda: live() <= idle + 2, "the blocks are freed", 3 * WAIT)


class LongStrings(E2E):
    """Long strings are sent from Lua's memory. A call waits only while more than `write_ahead` bytes are queued."""

    SITE = LONG_STRINGS
    LISTENERS = 2

    def freed(self):
        self.eventually(lambda: int(self.get("/lua").text) < 4 * MIB, "the strings are freed")

    def test_below_write_ahead_nothing_waits(self):
        for target, line, expected in (("/write?m=4", "written", b"1234"), ("/send?m=5", "sent true", b"11111")):
            with self.subTest(target), self.connect(rcvbuf=65536) as conn:
                mark = self.server.mark()
                conn.send(request("GET", target))
                self.server.wait_log(line, mark)  # the client has not read yet
                body = conn.response().body
                self.assertEqual(body, b"".join(bytes([digit]) * MIB for digit in expected))
        mark = self.server.mark()
        conn = self.connect(1, rcvbuf=65536).send(b"4\n")
        self.server.wait_log("written", mark)
        self.assertEqual(conn.rest(), b"".join(bytes([digit]) * MIB for digit in b"1234"))
        self.freed()

    def test_above_write_ahead_the_call_waits(self):
        """The queue of a slow reader is bounded, so that 60 MiB pass through 40 MiB of max_memory."""
        for index, ask in ((0, request("GET", "/write?m=60")), (0, request("GET", "/send?m=12")), (1, b"60\n")):
            with self.subTest(ask), self.connect(index, rcvbuf=65536) as conn:
                mark = self.server.mark()
                conn.send(ask)
                self.assertEqual(self.get("/").status, 404)
                if b"/send" not in ask:  # a described body is queued when the handler has returned
                    self.assertEqual(self.server.logged("written", mark), [])
                if index == 1:
                    body = conn.rest()
                else:
                    body = conn.response().body
                self.server.wait_log("written|sent true", mark)
                self.assertEqual(len(body), 12 * MIB if b"/send" in ask else 60 * MIB)
                for n in range(0, len(body), MIB):
                    digit = b"1" if b"/send" in ask else b"%d" % ((n // MIB + 1) % 10)
                    self.assertTrue(body[n : n + MIB] == digit * MIB, "the MiB %d" % (n // MIB))
        self.freed()

    def test_results_of_pipelined_handlers(self):
        with self.connect(rcvbuf=65536) as conn:
            conn.send(b"".join(request("GET", "/return?i=%d" % n) for n in range(9)))
            for n in range(9):
                self.assertTrue(conn.response().body == b"%d" % n * MIB)
        self.freed()

    def test_clients_that_leave(self):
        for n in range(12):
            with self.connect(n % 2, rcvbuf=65536) as conn:
                conn.send(b"100\n" if n % 2 else request("GET", ("/write?m=100", "/send?m=12", "/return?i=1")[n // 2 % 3]))
                conn.take(10)
                conn.reset()
        self.freed()
