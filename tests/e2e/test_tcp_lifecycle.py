"""ls.tcp from loading to draining: options, mistakes in the site, the connection limit, handlers while the server
drains."""
import signal
import socket
import time
import unittest

from harness import E2E, HAS_UNIX_SOCKETS, SANITIZER, WAIT, fcntl, not_on_windows, read_text, termios


class Lifecycle(E2E):
    def test_a_tick_that_waits_for_a_client_is_a_warning(self):
        server = self.serve("""local ls = require 'luaserve'
ls.config { states = 1 }
local players = {}
ls.every(0.01, function()
  for sock in pairs(players) do sock:send(("x"):rep(200000)) end -- line 5
end)
ls.every(0.01, function() ls.sleep(0.05) end)
ls.tcp({ port = 0, host = '127.0.0.1', read_timeout = false }, function(sock)
  players[sock] = true
  for line in sock:lines() do end
  players[sock] = nil
end)""")
        with server.connect(rcvbuf=4096):
            server.wait_log(r"warn ls\.every: calls are omitted, because the one before has waited for \d+\.\d s, now at .*site\.lua:5 "
                            r"\(logged once for this timer\)\. Give this call .*; before a sock:send, test sock\.queued")
        server.stop()
        self.assertEqual(len(server.logged(r"calls are omitted.*site\.lua:5 ")), 1)  # a slow machine may delay the other timer

    def test_text_that_a_handler_returns_is_a_warning(self):
        server = self.serve("""local ls = require 'luaserve'
ls.config { states = 1 }
ls.tcp('127.0.0.1:0', function(sock) -- line 3
  local what = sock:receive()
  if what == 'send' then return sock:send('sent') end
  if what == 'false' then return false end
  return what == 'buffer' and ls.buffer('x') or 'text'
end)""")
        for what, answer in ((b"send", b"sent"), (b"false", b"")):
            with server.connect() as conn:
                conn.send(what + b"\n")
                self.assertEqual(conn.rest(), answer)
        self.assertEqual(server.logged("returned a"), [])
        for what in (b"text", b"buffer", b"text"):
            with server.connect() as conn:
                conn.send(what + b"\n")
                self.assertEqual(conn.rest(), b"")
        server.wait_log(r"warn .*site\.lua:3: a function of ls\.tcp returned a string, which is not sent \(logged once\): use sock:send")
        server.stop()
        self.assertEqual(len(server.logged("returned a")), 1)

    @unittest.skipIf(SANITIZER, "what the process leaves behind at once would be a report")
    def test_os_exit_in_a_handler_is_logged(self):
        server = self.serve("""local ls = require 'luaserve'
ls.tcp('127.0.0.1:0', function(sock)
  sock:receive()
  os.exit(7) -- line 4
end)""")
        with server.connect() as conn:
            conn.send(b"x\n")
            self.assertEqual(server.wait(), 7)
        self.assertEqual(len(server.logged(r"warn os\.exit at .*site\.lua:4 ends the server at once: open requests and connections are closed\. "
                                           r"ls\.stop\(\) ends it in order")), 1, server.log())

    def test_check_and_log(self):
        server = self.serve("require 'luaserve'.tcp('127.0.0.1:0', print)", flags=("--check",), listeners=0)
        self.assertEqual(server.wait(), 0)
        self.assertIn("listener: tcp 127.0.0.1", read_text(server.out_path))
        server = self.serve("require 'luaserve'.tcp('127.0.0.1:0', print)")
        server.wait_log(r"listening on tcp://127\.0\.0\.1:\d+")

    def test_after_loading(self):
        server = self.serve("local ls = require 'luaserve' ls.tcp('127.0.0.1:0', function(s) "
                            "s:send(select(2, pcall(ls.tcp, 1, print))) end)")
        self.assertIn(b"while the site loads", self.connect(server=server).rest())

    def test_a_site_may_leave_clients_open(self):
        peer = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(peer.close)
        server = self.serve("local ls = require 'luaserve' ls.tcp('127.0.0.1:0', print) ls.init(function() "
                            "kept = ls.connect('127.0.0.1', %d) kept:settimeouts(nil, nil, 0.05) kept:receive(1) "
                            "ls.log.info('kept') end)" % peer.getsockname()[1])
        server.wait_log("kept")

    def test_connections_of_the_sites_own_are_not_counted(self):
        """max_connections limits accepted connections; connections that the site opens do not count."""
        peer = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.addCleanup(peer.close)
        server = self.serve("local ls = require 'luaserve' ls.config { max_connections = 2 } "
                            "ls.tcp('127.0.0.1:0', function(s) local made = {} for i = 1, 150 do "
                            "made[i] = assert(ls.connect('127.0.0.1', %d)) end s:send('made ', #made) end)"
                            % peer.getsockname()[1])
        self.assertEqual(self.connect(server=server).rest(), b"made 150", server.log())

    def test_an_idle_listener_keeps_no_places_from_another(self):
        """With a connection limit below the number of accepts posted ahead, every listener serves its clients."""
        server = self.serve("local ls = require 'luaserve' ls.config { max_connections = 2 } local app = ls.app() "
                            "app:get('/', function() return 'web' end) "
                            "local function echo(s) for data in s:chunks() do s:send(data) end end "
                            "ls.listen('127.0.0.1:0', app) ls.tcp('127.0.0.1:0', echo) ls.tcp('127.0.0.1:0', echo)",
                            listeners=3)
        for which in (2, 1, 2):
            conns = [self.connect(which, server=server) for _ in range(2)]
            for conn in conns:  # at the limit
                self.assertEqual(conn.send(b"ping").take(4), b"ping")
            conns.append(self.connect(which, server=server).send(b"pong"))
            self.assertTrue(conns[2].silent())  # one more waits until another closes
            conns[0].close()
            self.assertEqual(conns[2].take(4), b"pong")
            for conn in conns[1:]:
                conn.half_close()
                conn.expect_end()
        self.assertEqual(server.get("/").text, "web")

    def test_two_listeners_in_the_options(self):
        server = self.serve("local ls = require 'luaserve' local function f(s) s:send(s:receive('*l') or 'late') end "
                            "ls.tcp({ host = '127.0.0.1', port = 0, read_timeout = 0.1 }, f) "
                            "ls.tcp({ " + ("path = '@DIR@/s'" if HAS_UNIX_SOCKETS else "host = '127.0.0.1', port = 0") + ", read_timeout = 5, backlog = 5, keepalive = 20 }, f)", listeners=2)
        self.assertEqual(self.connect(server=server).rest(), b"late")
        conn = self.connect(1, server=server)
        conn.send(b"in time\n")
        self.assertEqual(conn.rest(), b"in time")


@not_on_windows("SIGSTOP")
class StandStill(E2E):
    """The process stands still for longer than the time limits, and the peers go on."""

    LIMIT = 3  # seconds; the connections of a test must be made and the process stopped within it
    SITE = """
      local ls = require "luaserve"
      local limits = { port = 0, host = "127.0.0.1", read_timeout = @LIMIT@, send_timeout = @LIMIT@, write_ahead = 1 }
      ls.config { threads = 2 }
      ls.tcp(limits, function(sock)
        sock:send("ready\\n")
        local line, err, code = sock:receive("*l")
        sock:send(tostring(line), " ", tostring(code), "\\n")
      end)
      ls.tcp(limits, function(sock)
        sock:send("ready\\n")
        local text = ("x"):rep(50000)
        local before, now = ls.now(), nil
        while true do
          if not sock:send(text) then return end
          now = ls.now()
          if now - before > @LIMIT@ then break end  -- during this send the process stood still
          before = now
        end
        sock:send("end\\n")
      end)
    """.replace("@LIMIT@", str(LIMIT))
    LISTENERS = 2

    def stopped(self, do):
        self.server.signal(signal.SIGSTOP)
        try:
            do()
            time.sleep(self.LIMIT + 0.5)
        finally:
            self.server.signal(signal.SIGCONT)

    def test_what_has_come_is_received_and_silence_is_a_timeout(self):
        lines, ends, silent = ([self.connect(0) for _ in range(count)] for count in (100, 50, 1))
        for conn in lines + ends + silent:
            self.assertEqual(conn.line(), b"ready")

        def send():
            for n, conn in enumerate(lines):
                conn.send(b"line %d\n" % n)
            for conn in ends:
                conn.sock.shutdown(socket.SHUT_WR)

        self.stopped(send)
        self.assertEqual([conn.line() for conn in lines], [b"line %d nil" % n for n in range(len(lines))])
        self.assertEqual({conn.line() for conn in ends}, {b"nil ECLOSED"})
        self.assertEqual(silent[0].line(), b"nil ETIMEDOUT")

    def test_a_peer_that_has_read_gets_the_rest(self):
        conns = [self.connect(1) for _ in range(20)]
        for conn in conns:
            self.assertEqual(conn.line(), b"ready")
        arrived = []

        def full():
            arrived.append([fcntl.ioctl(conn.sock, termios.FIONREAD, bytes(4)) for conn in conns])
            return arrived[-2:-1] == arrived[-1:]

        self.eventually(full, "nothing more arrives, because the sends wait for the peers")

        def read():
            for conn in conns:
                conn.sock.setblocking(False)
                try:
                    while data := conn.sock.recv(1 << 20):
                        conn.data += data
                    self.fail("the connection ended before the process stood still")
                except BlockingIOError:
                    conn.sock.settimeout(WAIT)

        self.stopped(read)
        for conn in conns:
            self.assertTrue(conn.rest().endswith(b"end\n"))


class SilentPeers(E2E):
    """A loop over lines ends although the peer has sent no end: after read_timeout, and at a line that is too long."""

    SITE = """
local ls = require "luaserve"
ls.tcp({ host = "127.0.0.1", port = 0, read_timeout = 0.2, max_line = 20 }, function(sock)
  for line in sock:lines() do sock:send("you said ", line, "\\n") end
  sock:send("bye\\n")
end)
"""
    FLAGS = ("--log-level", "debug")

    def test_the_log_says_why(self):
        for sends, why in ((b"hi\n", "nothing came for read_timeout seconds"), (b"hi\n" + 30 * b"x", "a line is longer than max_line")):
            with self.connect() as conn:
                conn.send(sends)
                self.assertEqual((conn.line(), conn.line()), (b"you said hi", b"bye"))
                if why.startswith("nothing"):
                    self.server.wait_log(r"info connection from 127\.0\.0\.1:\d+: closed, because it sent nothing for 0\.2 s: read_timeout")
                self.server.wait_log(r"debug connection from 127\.0\.0\.1:\d+: the loop over what it sends ends: " + why)
