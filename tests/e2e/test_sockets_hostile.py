"""Sockets in Lua under misuse: peers that reset, stall or send slowly, tasks that close sockets that others wait for,
connects that are cancelled during a lookup or a drain, descriptors that are closed beside their notification."""
import contextlib
import random
import socket

from harness import E2E, WINDOWS, Conn, in_parallel, repeats
from harness.dns import Dns, has_resolver, looks_up_names

# The first line of a connection selects its handler; in most of them several tasks use one sock.
STORM = r"""
local ls = require "luaserve"
ls.config { threads = 16, drain_timeout = 20 }
local block = ls.buffer(("b"):rep(1024):rep(64))
local long = ("l"):rep(1024):rep(64)
local acts = {}

function acts.echo(sock)
  for data in sock:chunks() do sock:send(data) end
end
-- Several tasks receive: one may, a receive of another raises. The last task closes.
function acts.receivers(sock)
  local jobs = {}
  for i = 1, 4 do
    jobs[i] = ls.spawn(function()
      local ok, data, err, code
      repeat
        ok, data, err, code = pcall(sock.receive, sock, 1 + i)
        if not ok then ls.sleep(0.001) end
      until ok and not data
      return code
    end)
  end
  for i = 1, 4 do
    local code = jobs[i]:wait()
    assert(code == "ECLOSED" or code == "ERESET" or code == "EPIPE" or code == "ETIMEDOUT", code)
  end
end
-- Closed while one task receives, several send data that the peer may never read, and one flushes.
function acts.closed(sock, how, delay)
  local jobs = { ls.spawn(function() return sock:receive("*a") end), ls.spawn(function() return sock:flush() end) }
  for i = 1, 3 do
    jobs[#jobs + 1] = ls.spawn(function()
      for _ = 1, 20 do
        if not sock:send(i % 2 == 0 and block or long) then return end
      end
    end)
  end
  ls.sleep(tonumber(delay))
  sock[how](sock)
  for _, job in ipairs(jobs) do job:wait() end
end
-- The waiting task is forgotten; its sock is collected later.
function acts.forgotten(sock)
  local other = setmetatable({}, { __gc = function() sock:close() end })
  ls.spawn(function() return sock:receiveuntil("never") end)
  ls.spawn(function() return sock:send(long, long, long), other end)
  ls.sleep(0.01)
  collectgarbage("step", 100)
end
function acts.short(sock)
  sock:settimeouts(nil, 0.02, 0.02)
  while sock:receive("*l") do
    if not sock:send(long, "\n") then break end
  end
end
function acts.raise(sock)
  ls.spawn(function() for line in sock:lines() do sock:send(line) end end)
  ls.sleep(0.002)
  error("planned")
end

ls.tcp({ port = 0, host = "127.0.0.1", read_timeout = 5, send_timeout = 5, backlog = 4096 }, function(sock)
  local words = {}
  for word in (sock:receive("*l") or "short"):gmatch("%S+") do words[#words + 1] = word end
  return acts[words[1]](sock, table.unpack(words, 2))
end)
"""


class Storm(E2E):
    def test_every_kind_of_peer_meets_every_kind_of_task(self):
        server = self.serve(STORM)
        with Conn(server.at()) as conn:
            self.assertEqual(conn.send(b"echo\nhello").take(5), b"hello")
        fds = server.fds()
        acts = ["echo", "receivers", "closed close 0.002", "closed abort 0.002", "closed close 0", "closed abort 0",
                "forgotten", "short", "raise"]

        def client(seed):
            rnd = random.Random(seed)
            for _ in range(repeats(40)):
                with Conn(server.at()) as conn:
                    conn.try_send(rnd.choice(acts).encode() + b"\n")
                    kind = rnd.randrange(5)
                    with contextlib.suppress(OSError):
                        if kind == 0:  # reset in the middle of much unread data
                            conn.sock.settimeout(0.05)
                            conn.try_send(b"x" * rnd.choice((1, 5000, 300000)))
                            conn.reset()
                        elif kind == 1:
                            conn.half_close()
                            conn.rest()
                        elif kind == 2:  # a byte at a time
                            for _ in range(20):
                                if not conn.try_send(b"x\n"[rnd.randrange(2):][:1]):
                                    break
                            conn.half_close()
                            conn.rest()
                        elif kind == 3:  # stops reading, then closes
                            conn.silent(0.01)
                        else:
                            conn.try_send(b"line\n" * 100)
                            conn.half_close()
                            conn.rest()
            return True

        in_parallel([lambda n=n: client(n) for n in range(12)], 12)
        self.eventually(lambda: server.fds() <= fds, "the descriptors are closed")
        with Conn(server.at()) as conn:
            self.assertEqual(conn.send(b"echo\nstill here").take(10), b"still here")
        self.assertFalse([line for line in server.logged(" error ") if "planned" not in line])

    def test_one_byte_now_and_then_costs_a_coroutine_only(self):
        """Other clients are served without delay beside a hundred that send slowly and a hundred that do not read."""
        server = self.serve(STORM)
        slow = []
        for n in range(repeats(200)):
            conn = self.connect(server=server)
            slow.append(conn.send(b"receivers\n" if n % 2 else b"closed close 2\n"))
        for _ in range(5):
            for conn in slow:
                conn.try_send(b"x")
            with Conn(server.at()) as conn:
                self.assertEqual(conn.send(b"echo\nhello").take(5), b"hello")
        for conn in slow:
            conn.reset()


CONNECT = r"""
local ls = require "luaserve"
ls.config { threads = 2, drain_timeout = 10, nameservers = "127.0.0.1:@DNS@" }
ls.tcp({ port = 0, host = "127.0.0.1" }, function(sock)
  for line in sock:lines() do
    local chunk = assert(load("local ls = ... " .. line))
    local results = table.pack(chunk(ls))
    for i = 1, results.n do results[i] = tostring(results[i]) end
    sock:send(table.concat(results, "|"), "\n")
  end
end)
"""


class GivenUp(E2E):
    """Connects that end before they are established."""

    def setUp(self):
        super().setUp()
        self.dns = Dns()
        self.addCleanup(self.dns.close)
        self.site = self.dns.asked_by(CONNECT)

    def start(self):
        server = self.serve(self.site)
        conn = self.connect(server=server)
        self.assertEqual(self.lua(conn, "return 'ready'"), "ready")
        return server, conn

    def lua(self, conn, text):
        return conn.send(text.encode() + b"\n").line().decode()

    def deaf(self):
        """The port of a listener with a full queue: a connect to it neither succeeds nor fails."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.addCleanup(listener.close)
        for _ in range(3):
            filler = socket.socket()
            self.addCleanup(filler.close)
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        return listener.getsockname()[1]

    @looks_up_names
    def test_an_answer_that_comes_after_the_timeout(self):
        server, conn = self.start()
        self.dns.hold("one.test")
        timed_out = 'nil|cannot look up "one.test": timeout: no response from a name server|ETIMEDOUT'
        self.assertEqual(self.lua(conn, "return ls.connect('one.test', 1, { connect_timeout = 0.05 })"), timed_out)
        many = ("local jobs, codes = {}, {} for i = 1, 20 do jobs[i] = ls.spawn(ls.connect, 'one.test', 1, "
                "{ connect_timeout = 0.01 * i }) end for i = 1, 20 do local _, _, code = jobs[i]:wait() "
                "codes[code] = (codes[code] or 0) + 1 end collectgarbage() return codes.ETIMEDOUT")
        self.assertEqual(self.lua(conn, many), "20")
        asked = self.dns.asked
        self.dns.release()  # all answers at once, after their lookups have timed out
        self.assertGreater(asked, 0)
        peer = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(peer.close)
        port = peer.getsockname()[1]
        self.assertEqual(self.lua(conn, "local s, e = ls.connect('one.test', %d) return s and s.remote, e" % port),
                         "127.0.0.1:%d|nil" % port)

    def test_a_connect_that_is_cut_off_gives_its_descriptor_back(self):
        server, conn = self.start()
        port = self.deaf()
        fds = server.fds()
        text = ("local jobs = {} for i = 1, 20 do jobs[i] = ls.spawn(ls.connect, '127.0.0.1', %d, "
                "{ connect_timeout = 0.05 }) end local good = 0 for i = 1, 20 do local s, e, c = jobs[i]:wait() "
                "if not s and e == 'timeout' and c == 'ETIMEDOUT' then good = good + 1 end end return good" % port)
        self.assertEqual(self.lua(conn, text), "20")
        self.eventually(lambda: server.fds() <= fds, "the descriptors are closed")

    @looks_up_names
    def test_the_server_stops_while_a_name_is_looked_up(self):
        server, conn = self.start()
        conn.send(b"ls.log.info('looking up') return ls.connect('silent.test', 1, { connect_timeout = 0.5 })\n")
        server.wait_log("looking up")
        server.signal()
        self.assertIn("ETIMEDOUT", conn.line().decode())  # it runs to its end
        conn.expect_end()
        self.assertEqual(server.wait(), 0)

    def test_the_server_stops_while_it_connects(self):
        server, conn = self.start()
        conn.send(b"ls.log.info('connecting') return ls.connect('127.0.0.1', %d, { connect_timeout = 0.5 })\n" % self.deaf())
        server.wait_log("connecting")
        server.signal()
        self.assertEqual(conn.line(), b"nil|timeout|ETIMEDOUT")
        conn.expect_end()
        self.assertEqual(server.wait(), 0)

    def test_the_drain_has_an_end_although_a_connect_has_none(self):
        text = self.site.replace("drain_timeout = 10", "drain_timeout = 0.3")
        calls = ["ls.connect('127.0.0.1', %d, { connect_timeout = false })" % self.deaf()]
        if has_resolver():
            calls.append("ls.connect('silent.test', 1, { connect_timeout = false })")
        for what in calls:
            server = self.serve(text)
            conn = self.connect(server=server)
            conn.send(b"ls.log.info('begun') return %s\n" % what.encode())
            server.wait_log("begun")
            server.signal()
            server.wait_log("the drain took longer than 0.3 s")
            self.assertNotEqual(server.wait(), 0)


OTHERS = r"""
local ls = require "luaserve"
ls.config { threads = 1, threads_max = 1 }
local stale = {}
ls.tcp({ port = 0, host = "127.0.0.1" }, function(sock)
  for line in sock:lines() do
    if line == "leave" then -- pipes that are closed while they are registered, with a waiter and without
      local pipes = {}
      for i = 1, 20 do
        pipes[i] = assert(io.popen("true"))
        local n = assert(ls.notify(pipes[i], i % 2 == 0 and "in" or "out", { trigger = i % 3 == 0 and "edge" or "level" }))
        stale[i] = n
        if i % 4 == 0 then ls.spawn(function() return n:wait(1) end) ls.sleep(0) end
      end
      for _, pipe in ipairs(pipes) do pipe:close() end
      sock:send("left\n")
    elseif line == "ask" then -- through the notification of the closed descriptor
      for i, n in ipairs(stale) do
        if i % 5 == 1 then
          stale[i] = false
        elseif i % 5 == 2 then
          n:remove()
        elseif i % 5 == 3 then
          local ok, message, code = n:rearm("in")
          assert(not ok and code == "ENOENT", message)
        elseif i % 5 == 4 then
          pcall(n.wait, n, 0) -- another task may wait already
        end
      end
      stale = {}
      collectgarbage() collectgarbage()
      sock:send("asked\n")
    else
      sock:send(line, "\n")
    end
  end
end)
"""


class BehindTheBack(E2E):
    def test_numbers_of_closed_descriptors_go_to_connections(self):
        """The server's own connections reuse the descriptor numbers; events for the old descriptors must not reach
        them."""
        server = self.serve(OTHERS.replace('popen("true")', 'popen("cmd /c exit")') if WINDOWS else OTHERS)
        control = self.connect(server=server)
        self.assertEqual(control.send(b"leave\n").line(), b"left")
        conns = [self.connect(server=server) for _ in range(40)]
        for conn in conns:
            self.assertEqual(conn.send(b"before\n").line(), b"before")
        self.assertEqual(control.send(b"ask\n").line(), b"asked")
        for conn in conns:
            self.assertEqual(conn.send(b"after\n").line(), b"after")
        for conn in conns:
            conn.close()
