"""ls.connect: the forms of an address, names and name servers, errors, and descriptors that are closed again."""
import socket
import threading

from harness import E2E, WAIT, WINDOWS, Conn, has_ipv6, not_on_windows
from harness.dns import CHOSEN, Dns, looks_up_names

CLIENT = r"""
local ls = require "luaserve"
ls.config { threads = 2, nameservers = "127.0.0.1:@DNS@" }
ls.config { threads_max = 12 } -- keeps the options of the earlier call
local function show(...)
  local parts = table.pack(...)
  for i = 1, parts.n do parts[i] = tostring(parts[i]) end
  return table.concat(parts, "|", 1, parts.n)
end
-- Each line of the control connection is Lua code; the server sends back its results.
ls.tcp({ port = 0, host = "127.0.0.1" }, function(sock)
  for line in sock:lines() do
    local chunk, err = load("local ls, show = ... " .. line)
    sock:send(chunk and show(pcall(chunk, ls, show)) or err, "\n")
  end
end)
"""


class SystemNames(E2E):
    """The names of the system."""

    SITE = CLIENT.replace(CHOSEN, "")

    @not_on_windows("the name of the machine is not in its hosts file")
    def test_the_machine_itself(self):
        name = socket.gethostname()
        try:
            socket.getaddrinfo(name, None)
        except socket.gaierror:
            self.skipTest("this machine does not know its own name")
        listener = socket.create_server(("", 0))
        self.addCleanup(listener.close)
        with Conn(self.server.at()) as conn:
            conn.send(b"local s, e = ls.connect('%s', %d) return s and 'yes' or e\n" % (name.encode(), listener.getsockname()[1]))
            self.assertEqual(conn.line(), b"true|yes")

    def test_an_unknown_name(self):
        with Conn(self.server.at()) as asker, Conn(self.server.at()) as other:
            asker.send(b"return ls.connect('no-such-name.invalid', 1, { connect_timeout = 1 })\n")
            for n in range(10):
                other.send(b"return %d\n" % n)
                self.assertEqual(other.line(), b"true|%d" % n)
            # Without a network no name server answers, and the lookup times out.
            self.assertRegex(asker.line().decode(), r'true\|nil\|cannot look up "no-such-name.invalid": .*\|(ENOENT|ETIMEDOUT)')

    def test_an_invalid_name(self):
        with Conn(self.server.at()) as conn:
            conn.send(b"return ls.connect(('a'):rep(300), 1)\n")
            self.assertRegex(conn.line().decode(), r"true\|nil\|cannot look up .*\|(EINVAL|ENOENT)")


class Connect(E2E):
    @classmethod
    def setUpClass(cls):
        cls.dns = Dns()
        cls.addClassCleanup(cls.dns.close)
        cls.SITE = cls.dns.asked_by(CLIENT)
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self.listener = self.listen_at_one_address()
        self.to = self.listener.getsockname()[1]
        self.control = self.connect()

    def listen_at_one_address(self):
        """A listener at 127.0.0.1. Its port is bound at the other addresses of the names, so that these refuse."""
        while True:
            listener = socket.create_server(("127.0.0.1", 0))
            self.addCleanup(listener.close)
            port = listener.getsockname()[1]
            try:
                for family, host in [(socket.AF_INET, "127.0.0.2")] + [(socket.AF_INET6, "::1")] * has_ipv6():
                    refuses = socket.socket(family)
                    self.addCleanup(refuses.close)
                    refuses.bind((host, port))
                return listener
            except OSError:  # another program has the port there
                continue

    def run_lua(self, text, wait=True):
        self.control.send(text.replace("PORT", str(self.to)).encode() + b"\n")
        return self.control.line().decode() if wait else None

    def test_forms(self):
        for call in ("ls.connect('127.0.0.1', PORT)", "ls.connect('127.0.0.1:PORT')", "ls.connect('localhost', PORT)",
                     "ls.connect{ host = '127.0.0.1', port = PORT }", "ls.connect('localhost:PORT', { read_timeout = 3 })"):
            answer = self.run_lua("local s, e, c = %s if s then s:send('hi') s:close() end return s, e, c" % call)
            self.assertTrue(answer.startswith("true|sock (127.0.0.1:") or answer == "true|sock (closed)|nil|nil", answer)
            peer, _ = self.listener.accept()
            self.assertEqual(peer.recv(10), b"hi")
            self.assertEqual(peer.recv(10), b"")
            peer.close()

    def test_refused(self):
        self.listener.close()
        self.assertEqual(self.run_lua("return ls.connect('127.0.0.1', PORT)"), "true|nil|connection refused|EREFUSED")
        self.assertEqual(self.run_lua("return ls.connect('unix:/does/not/exist')"),
                         "true|nil|not supported here|ENOTSUP" if WINDOWS else "true|nil|not found|ENOENT")
        self.assertIn("|ELIMIT", self.run_lua("return ls.connect('unix:/' .. ('x'):rep(200))"))

    @looks_up_names
    def test_names(self):
        for name in ("one.test", "two.test", "both.test"):
            answer = self.run_lua("local s, e = ls.connect('%s', PORT) return s and s.remote, e" % name)
            self.assertEqual(answer, "true|127.0.0.1:%d|nil" % self.to)
        self.assertEqual(self.run_lua("return ls.connect('missing.test', PORT)"),
                         'true|nil|cannot look up "missing.test": no such name|ENOENT')

    @looks_up_names
    def test_a_name_is_asked_for_again_when_its_time_has_passed(self):
        """The record has a minute. A name that does not exist is asked for each time."""
        asked = {}
        for name in ("again.test", "missing.test"):
            call = "local s = ls.connect('%s', PORT) return s and s.remote" % name
            first = self.run_lua(call)
            before = self.dns.asked_about[name]
            for _ in range(3):
                self.assertEqual(self.run_lua(call), first)
            asked[name] = self.dns.asked_about[name] - before
        self.assertEqual(asked["again.test"], 0)
        self.assertGreaterEqual(asked["missing.test"], 3)

    @looks_up_names
    def test_a_slow_name_server_costs_the_asker_only(self):
        self.dns.hold("held.test")
        self.run_lua("return ls.connect('held.test', PORT)", wait=False)
        with Conn(self.server.at()) as other:  # on any thread and state, before the name server answers
            for n in range(10):
                other.send(b"return ls.connect('one.test', %d) and %d\n" % (self.to, n))
                self.assertEqual(other.line(), b"true|%d" % n)
        self.dns.release()
        self.assertEqual(self.control.line().decode(), "true|sock (127.0.0.1:%d)" % self.to)

    @looks_up_names
    def test_a_silent_name_server(self):
        answer = self.run_lua("return ls.connect('silent.test', PORT, { connect_timeout = 0.2 })")
        self.assertEqual(answer, 'true|nil|cannot look up "silent.test": timeout: no response from a name server|ETIMEDOUT')

    @looks_up_names
    def test_many_names_at_once(self):
        answer = self.run_lua(
            "local jobs, good = {}, 0 for i = 1, 50 do jobs[i] = ls.spawn(ls.connect, 'one.test', PORT) end "
            "for i = 1, 50 do local s = jobs[i]:wait() if s then good = good + 1 s:close() end end return good")
        self.assertEqual(answer, "true|50")

    def test_misuse(self):
        for call, says in (
                ("ls.connect()", "the first argument must be a host"), ("ls.connect('x')", "has no port"),
                ("ls.connect('x', 70000)", "from 1 to 65535"), ("ls.connect({}, 1)", "pass host and port in it")):
            answer = self.run_lua("return " + call)
            self.assertTrue(answer.startswith("false|"), answer)
            self.assertIn(says, answer)
        self.assertRegex(self.run_lua("return ls.connect('..', 1)"), "invalid host name|not supported by the resolver|no such name")
        for host in (r"127.0.0.1\0.example.org", r"one.test\0", r"unix:/run/s\0"):  # NUL, which ends a C string
            self.assertRegex(self.run_lua("return ls.connect('%s', 1)" % host), "invalid host name.EINVAL")

    def test_forgotten_sockets_are_closed(self):
        self.run_lua("forgotten = ls.connect('127.0.0.1', PORT) return 1")
        peer, _ = self.listener.accept()
        self.addCleanup(peer.close)
        self.run_lua("forgotten = nil collectgarbage() collectgarbage() return 1")
        peer.settimeout(WAIT)
        self.assertEqual(peer.recv(10), b"")

    @not_on_windows("Windows has no limit of handles")
    def test_garbage_sockets_are_collected_at_the_limit_of_descriptors(self):
        """A state whose collector seldom completes a cycle: connections that nobody closes do not use up the
        descriptors; and when all are in use, the last connect collects once."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.addCleanup(listener.close)
        accepted = []

        def accept():
            while True:
                try:
                    accepted.append(listener.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        for nofile in (150, 600):
            server = self.serve("""
              local ls = require "luaserve"
              ls.config { threads = 1, threads_max = 1 }
              ls.tcp({ port = 0, host = "127.0.0.1" }, function(sock)
                collectgarbage("stop")
                for i = 1, 2000 do
                  local s, err = ls.connect("127.0.0.1", %d)
                  if not s then return sock:send(i, " ", err, "\\n") end
                end
                collectgarbage("restart")
                sock:send("all\\n")
              end)""" % listener.getsockname()[1], nofile=nofile)
            with server.connect() as conn:
                self.assertEqual(conn.line(), b"all")
            server.stop()

    @not_on_windows("Windows has no limit of handles")
    def test_sockets_in_use_at_the_limit_of_descriptors(self):
        listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.addCleanup(listener.close)
        server = self.serve("""
          local ls = require "luaserve"
          ls.config { threads = 1, threads_max = 1 }
          ls.tcp({ port = 0, host = "127.0.0.1" }, function(sock)
            local kept, code = {}
            repeat kept[#kept + 1], _, code = ls.connect("127.0.0.1", %d) until code
            sock:send(code, "\\n")
            for _, s in ipairs(kept) do s:close() end
            sock:send(tostring(ls.connect("127.0.0.1", %d)):match("^%%a+"), "\\n")
          end)""" % ((listener.getsockname()[1],) * 2), nofile=100)
        with server.connect() as conn:
            self.assertEqual(conn.line(), b"EMFILE")
            self.assertNotEqual(conn.line(), b"nil")

    def test_connects_are_given_back(self):
        """Neither failed nor successful connects leave a descriptor open."""
        self.run_lua("return 1")  # the control connection is accepted and counted
        held = self.server.fds()
        answer = self.run_lua(
            "for i = 1, 100 do local s = assert(ls.connect('127.0.0.1', PORT)) s:close() "
            "assert(not ls.connect('127.0.0.1', 1)) assert(not ls.connect('unix:/nope')) end return 1")
        self.assertEqual(answer, "true|1")
        for _ in range(100):  # they have waited in the queue of the listener
            self.listener.accept()[0].close()
        self.eventually(lambda: self.server.fds() <= held, "the descriptors are closed")
