"""ls.tcp: every method of a sock, in correct and incorrect use, and peers that misbehave."""
import os
import random
import threading
import time

from harness import E2E, HAS_UNIX_SOCKETS, WINDOWS, beside, repeats

# The first line of a connection names one of `acts`, with its arguments; the handler runs it.
SITE = r"""
local ls = require "luaserve"
ls.config { threads = 2, drain_timeout = 10 }

local function show(...)
  local parts = table.pack(...)
  for i = 1, parts.n do parts[i] = tostring(parts[i]) end
  return table.concat(parts, "|", 1, parts.n)
end

local acts = {}
function acts.count(sock, n) sock:send(show(sock:receive(tonumber(n)))) end
function acts.line(sock)
  while true do
    local line, err, code, rest = sock:receive("*l")
    if not line then return sock:send(show(line, err, code, rest)) end
    sock:send("[", line, "]")
  end
end
function acts.all(sock) sock:send(show(sock:receive("*a"))) end
function acts.any(sock, max)
  while true do
    local data, err, code = sock:receiveany(max and tonumber(max))
    if not data then return sock:send(show(data, err, code)) end
    sock:send("<", #data, ">")
  end
end
acts["until"] = function(sock, pattern, inclusive, limit)
  local opts = { inclusive = inclusive == "yes", limit = tonumber(limit) }
  while true do
    local data, err, code, rest = sock:receiveuntil(pattern, opts)
    if not data then return sock:send(show(data, err, code, rest)) end
    sock:send("[", data, "]")
  end
end
function acts.lines(sock)
  for line in sock:lines() do sock:send("[", line, "]") end
  sock:send(show(sock.ended))
end
function acts.chunks(sock)
  for data in sock:chunks() do sock:send(data) end
end
function acts.kinds(sock)
  local kept, stale
  for data in sock:chunks() do
    if type(data) == "userdata" then
      if stale then
        sock:send(show(pcall(function() return #stale end)), "\n")
        sock:send(show(#kept, tostring(kept):sub(1, 3), kept:find("xy", 1, true), kept == kept:sub(1)), "\n")
        return
      end
      stale, kept = data, ls.buffer(data)
      sock:send("buffer\n")
    else
      sock:send(type(data), data == "small" and " same" or "", "\n")
    end
  end
end
function acts.keep(sock)
  local kept = {}
  for data in sock:chunks() do kept[#kept + 1] = type(data) == "string" and data or data:keep() end
  sock:send(kept)
end
function acts.send(sock)
  local big = ("0123456789abcdef"):rep(4096) -- 64 KiB: sent from where it lies
  sock:send("a", 1, 2.5, ls.buffer("b", "c"), { "d", { 3, ls.buffer("e") } }, big, { big }, "")
end
function acts.pour(sock, mib)
  local block, sent = ("x"):rep(1024):rep(64), 0
  for _ = 1, tonumber(mib) * 16 do
    local ok, err, code = sock:send(block)
    if not ok then return ls.log.info("pour: " .. show(ok, err, code)) end
    sent = sent + #block
  end
  ls.log.info("poured " .. sent)
end
function acts.stalled_while_receiving(sock)
  sock:settimeouts(nil, 0.3, false)
  local sender = ls.spawn(function() return show(sock:send(("x"):rep(1024):rep(2^16))) end)
  local received = show(sock:receive(1))
  ls.log.info("receiver: " .. received .. "; sender: " .. sender:wait() .. "; " .. show(sock:send("y")) .. "; " .. show(sock:flush()) .. "; "
    .. tostring(sock) .. "; " .. show(sock:close()) .. "; " .. show(sock:send("y")))
end
function acts.both(sock) -- one task receives, another sends
  local total = 0
   local sender = ls.spawn(function() for i = 1, 200 do sock:send(("%04d"):format(i):rep(4096)) end return "sent" end)
  for data in sock:chunks() do total = total + #data end
  sock:send(" got ", total, " ", sender:wait())
end
function acts.raise(sock) sock:send("partly") ; error("it went wrong") end
function acts.addresses(sock) sock:send(sock.remote, " ", sock.local_addr, " ", tostring(sock)) end
local users = ls.dict("users")
users:add("ada", { name = "ada" })
users:add("list", { "x", "y" })
function acts.misuse(sock)
  local other = { }
  for _, f in ipairs {
    function() sock:receive({}) end, function() sock:receive("*n") end, function() sock:receive(-1) end,
    function() sock:receive(1.5) end, function() sock:receiveany(0) end, function() sock:receiveany("x") end,
    function() sock:receiveuntil("") end, function() sock:receiveuntil(("x"):rep(1025)) end, function() sock:receiveuntil() end,
    function() sock:receiveuntil("x", { inclusiv = true }) end, function() sock:receiveuntil("x", { limit = "a" }) end,
    function() sock:send(nil) end, function() sock:send("a", print) end, function() sock:send({ "a", true }) end,
    function() sock:send(io.stdout) end, function() sock:settimeouts(-1) end, function() sock:settimeouts(nil, "x") end,
    function() sock:settimeouts(0 / 0) end, function() sock:shutdown("both") end, function() sock:setkeepalive("x") end,
    function() sock:setkeepalive(0) end, function() sock.receive(other, 1) end, function() sock.send(io.stdout, "x") end,
    function() sock.nothing() end, function() local t = {} ; t[1] = t ; sock:send(t) end,
    function() sock:send({ ok = true }) end, function() sock:send({ "a", name = "b" }) end, function() sock:send({ "a", nil, "c" }) end,
    function() sock:send({ [0] = "a" }) end, function() sock:send({ "a", { [3] = "b" } }) end, function() sock:send(users:get "ada") end,
    function() sock:send({}, { {} }, users:get "list") sock:send("\n") error("a list", 0) end,
  } do
    local ok, err = pcall(f)
    sock:send(ok and "no error" or err, "\n")
  end
  sock:send(show(sock:receive(9 * 1024 * 1024)), "\n")
end
function acts.keepalive(sock) sock:send(show(sock:setkeepalive(), sock:setkeepalive(30), sock:setkeepalive(false))) end

ls.tcp({ port = 0, host = "127.0.0.1", max_line = 100000 }, function(sock)
  local words = {}
  for word in assert(sock:receive("*l")):gmatch("%S+") do words[#words + 1] = word end
  return acts[words[1]](sock, table.unpack(words, 2))
end)
""" + ("" if WINDOWS else
"""
ls.tcp("unix:@DIR@/sock", function(sock)
  sock:send(sock:receive("*l"):upper(), "|", sock.remote, "|", show(sock:setkeepalive()))
end)
""")


class Sock(E2E):
    SITE = SITE
    LISTENERS = 1 if WINDOWS else 2

    def act(self, words, data=b"", end=True):
        """Run an act on a new connection: send its line and `data`; half-close unless `end` is False."""
        conn = self.connect()
        conn.send(words.encode() + b"\n" + data)
        if end:
            conn.half_close()
        return conn

    def answer(self, words, data=b"", end=True):
        """act(), and everything that the handler sends."""
        return self.act(words, data, end).rest()

    def test_receives(self):
        big = random.Random(1).randbytes(3_000_000)
        for words, data, expected in (
                ("count 5", b"helloworld", b"hello"), ("count %d" % len(big), big, big),
                ("line", b"a\r\nb\n\n\r\nc\rd\nrest", b"[a][b][][][c\rd]nil|closed|ECLOSED|rest"), ("all", big, big),
                ("any 2", b"12345", b"<2><2><1>nil|closed|ECLOSED"),
                ("until -- yes", b"a--bc----d", b"[a--][bc--][--]nil|closed|ECLOSED|d"),
                ("until -- no 5", b"123456--", b"nil|message too long|EMSGSIZE|nil"),
                ("lines", b"a\nb\r\nlast\n", b"[a][b][last]ECLOSED"), ("lines", b"a\nb\r\nlast", b"[a][b]ETRUNCATED"),
                ("lines", b"a\n" + b"x" * 100001, b"[a]EMSGSIZE"), ("keep", big, big), ("keepalive", b"", b"true|true|true")):
            self.assertTrue(self.answer(words, data) == expected, words)

    def test_chunks_are_strings_when_small_and_lent_buffers_when_large(self):
        conn = self.act("kinds", end=False)
        conn.send(b"small")
        self.assertEqual(conn.line(), b"string same")
        conn.send(b"xyz" * 20000)
        seen = b""
        while not seen.startswith(b"buffer"):
            seen = conn.line()
        conn.try_send(b"xyz" * 20000)  # the handler ends with the second chunk, read or unread
        text = conn.line() + b"|" + conn.line()
        self.assertIn(b"false|", text)
        self.assertIn(b"valid for one round of its loop only", text)
        self.assertIn(b"|true", text)

    def test_send_takes_everything_that_is_text(self):
        big = b"0123456789abcdef" * 4096
        self.assertEqual(self.answer("send"), b"a12.5bcd3e" + big + big)

    def test_reader_that_stops_closes_the_connection(self):
        """So a receive ends as well, although it has no time limit; a send returns the reason."""
        since = self.server.mark()
        conn = self.act("stalled_while_receiving", end=False)
        late, closed = r"nil\|timeout\|ETIMEDOUT", r"nil\|closed\|ECLOSED"
        self.server.wait_log(r"receiver: %s\|?; sender: %s; %s; %s; sock \(closed\); true; %s"
                             % (closed, late, late, late, closed), since)
        conn.close()

    def test_two_tasks_use_one_socket(self):
        conn = self.act("both", end=False)
        data = b"z" * 3_000_000
        with beside(lambda: (conn.send(data), conn.half_close())):
            expected = b"".join(b"%04d" % i * 4096 for i in range(1, 201)) + b" got %d sent" % len(data)
            got = conn.rest()
            self.assertTrue(got == expected, (len(got), len(expected), got[-40:], os.path.commonprefix([got, expected])[-8:]))

    def test_raise_is_logged_with_the_peer(self):
        since = self.server.mark()
        conn = self.act("raise", end=False)
        self.assertEqual(conn.rest(), b"partly")
        port = conn.sock.getsockname()[1]
        self.server.wait_log(r"connection from 127\.0\.0\.1:%d: .*it went wrong" % port, since)
        self.assertTrue(self.server.logged("stack traceback", since))

    def test_addresses(self):
        conn = self.act("addresses", end=False)
        mine = "127.0.0.1:%d" % conn.sock.getsockname()[1]
        self.assertEqual(conn.rest().decode(), "%s 127.0.0.1:%d sock (%s)" % (mine, self.server.port(), mine))

    def test_unix(self):
        if not HAS_UNIX_SOCKETS:
            return self.refuses_unix_socket("require 'luaserve'.tcp('unix:@DIR@/s', print)",
                                            "cannot listen on unix:@DIR@/s: not supported here")
        conn = self.connect(1)
        conn.send(b"hello\n")
        self.assertEqual(conn.rest(), b"HELLO|unix:|nil|not supported here|ENOTSUP")

    def test_misuse_raises(self):
        lines = self.answer("misuse").decode().splitlines()
        says = ["(all until the end) expected", "(all until the end) expected", "number of bytes must be 0 or more",
                "no integer representation", "at least 1", "number expected", "the pattern is empty", "longer than 1024",
                "string expected", "unknown option \"inclusiv\"", "limit must be a whole number", "string, number, buffer or table",
                "string, number, buffer or table", "string, number, buffer or table", "string, number, buffer or table",
                "0 or more", "number expected", "0 or more", "direction must be \"send\"", "from 1 to 32767", "from 1 to 32767",
                "method of a sock: call it with a colon", "method of a sock: call it with a colon", "nothing", "nested too deeply",
                *["bad argument #1 to 'send' (list expected, got a table with other keys; send ls.json.encode(t))"] * 6, "xy", "a list"]
        for text, line in zip(says, lines):
            self.assertIn(text, line)
        self.assertEqual(len(lines), len(says) + 1)
        self.assertEqual(lines[-1], "nil|message too long|EMSGSIZE")

    def test_bad_peers_cost_themselves(self):
        """Other connections are served beside peers that reset, half-close, stop reading, or send a byte at a time."""
        stop = threading.Event()
        rude = []

        def drip(conn):
            while not stop.is_set():
                if not conn.try_send(b"x"):
                    return
                time.sleep(0.02)

        drips = []
        for i in range(repeats(40)):
            conn = self.connect()
            kind = i % 4
            if kind == 0:
                conn.send(b"chunks\n" + b"x" * 1000).reset()
            elif kind == 1:
                conn.send(b"line\n").half_close()
            elif kind == 2:
                conn.send(b"pour 64\n")
            else:
                conn.send(b"line\n")
                drips.append(threading.Thread(target=drip, args=(conn,)))
                drips[-1].start()
            rude.append(conn)
        try:
            for _ in range(20):  # the rude peers are still connected
                self.assertEqual(self.answer("count 4", b"ping"), b"ping")
        finally:
            stop.set()
            for thread in drips:
                thread.join()
        for conn in rude:
            conn.close()
