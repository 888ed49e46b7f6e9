"""sock:starttls in both roles: dialogues of SMTP and IMAP with other TLS libraries, bytes in front of the handshake,
certificates, failures in the middle of a handshake, and the sock over TLS until its end."""
import contextlib
import imaplib
import os
import shutil
import smtplib
import socket
import ssl
import subprocess
import tempfile
import threading

from harness import E2E, WAIT, Conn, Server, beside, in_parallel
from harness import tls
from harness.acceptor import Acceptor

SITE = r"""
local ls = require "luaserve"
ls.config { threads = 2 }
local server = { server = true, cert = "server.pem", key = "server.key" }
local print = ls.log.info
local function show(...)
  local parts = table.pack(...)
  for i = 1, parts.n do parts[i] = tostring(parts[i]) end
  return table.concat(parts, "|", 1, parts.n)
end
local function text(t)
  if not t then return "none" end
  local peer = t.client or t.server or {}
  return show(t.version, t.alpn, t.server_name, t.resumed, t.verified, t.client and "client" or t.server and "server",
    peer.subject)
end
-- Lines of Lua; the functions for them.
local env = setmetatable({ ls = ls, show = show, text = text, server = server }, { __index = _G })
-- dial(port): connect, and receive the greeting. upgrade(sock, options): ask for TLS, and change to it.
function env.dial(port)
  local sock = assert(ls.connect("127.0.0.1", port))
  assert(sock:receive("*l"))
  return sock
end
function env.upgrade(sock, options)
  sock:send("STARTTLS\r\n")
  assert(sock:receive("*l"))
  return sock:starttls(options)
end
ls.tcp({ port = 0, host = "127.0.0.1" }, function(sock)
  for line in sock:lines() do
    local chunk, err = load(line, "=test", "t", env)
    sock:send(chunk and show(pcall(chunk)) or err, "\n")
  end
end)
-- SMTP. The verbs behind QUIT serve the tests.
local verbs = {}
function verbs.EHLO(sock) sock:send("250-test\r\n", sock.tls and "" or "250-STARTTLS\r\n", "250 HELP\r\n") end
function verbs.STARTTLS(sock, options)
  sock:send("220 go ahead\r\n")
  local own = {}
  for name, value in pairs(server) do own[name] = value end
  for name, value in pairs(load("return {" .. options .. "}")()) do own[name] = value end
  local ok, err, code = sock:starttls(own)
  if not ok then print("starttls: " .. show(ok, err, code) .. " then " .. show(sock:send("x"))) return true end
end
function verbs.NOOP(sock) sock:send("250 " .. text(sock.tls) .. "\r\n") end
function verbs.QUIT(sock) sock:send("221 bye\r\n") return true end
function verbs.ALL(sock) sock:send("250 go on\r\n") print("all: " .. show(sock:receive("*a"))) return true end
function verbs.ANY(sock)
  local data, err, code
  repeat data, err, code = sock:receiveany() until not data
  print("any: " .. show(err, code))
  return true
end
function verbs.LINES(sock) for _ in sock:lines() do end print("lines: " .. tostring(sock.ended)) return true end
function verbs.CHUNKS(sock) for _ in sock:chunks() do end print("chunks: " .. tostring(sock.ended)) return true end
function verbs.SHUT(sock)
  sock:send("250 last\r\n")
  sock:shutdown()
  print("after shutdown: " .. show(sock:receive("*a")))
  return true
end
function verbs.ABORT(sock) sock:abort() return true end
function verbs.ECHO(sock)
  sock:send("250 go on\r\n")
  for data in sock:chunks() do if not sock:send(data) then break end end
  return true
end
function verbs.FLOOD(sock)
  for _ = 1, 100 do sock:send(("x"):rep(99) .. "\n", ("y"):rep(20000)) end
  return verbs.STARTTLS(sock, "")
end
function verbs.UNWAITED(sock) -- a receive that no task waits for
  print("unwaited: " .. show(pcall(string.gsub, "x", "x", function() sock:receive() end)))
  return verbs.STARTTLS(sock, "")
end
function verbs.TASKS(sock)
  sock:send("220 go ahead\r\n")
  ls.spawn(function()
    for call, argument in pairs{ receive = 1, send = "x", flush = false, shutdown = "send", starttls = server } do
      print("beside: " .. show(pcall(sock[call], sock, argument or nil)))
    end
  end)
  print("starttls: " .. show(sock:starttls(server)))
  return true
end
function verbs.CLOSED(sock, how)
  sock:send("220 go ahead\r\n")
  ls.spawn(function() sock[how](sock) end) -- runs when this task waits
  print("starttls: " .. show(sock:starttls(server)))
  return true
end
function verbs.MISUSE(sock)
  print("twice: " .. show(pcall(sock.starttls, sock, server)))
  sock:shutdown()
  return true
end
ls.tcp({ port = 0, host = "127.0.0.1" }, function(sock)
  sock:send("220 test ESMTP\r\n")
  for line in sock:lines() do
    local verb, rest = line:match("^(%a+) ?(.*)$")
    local f = verbs[(verb or ""):upper()]
    if not f then sock:send("500 what?\r\n") elseif f(sock, rest) then return end
  end
end)
-- IMAP
ls.tcp({ port = 0, host = "127.0.0.1" }, function(sock)
  sock:send("* OK test\r\n")
  for line in sock:lines() do
    local tag, verb = line:match("^(%S+) (%a+)")
    if verb == "CAPABILITY" then sock:send("* CAPABILITY IMAP4rev1", sock.tls and "" or " STARTTLS", "\r\n") end
    if verb == "LOGOUT" then sock:send("* BYE " .. text(sock.tls) .. "\r\n") end
    sock:send(tag, " OK done\r\n")
    if verb == "STARTTLS" then assert(sock:starttls(server)) end
    if verb == "LOGOUT" then return end
  end
end)
"""
CONTROL, SMTP, IMAP = range(3)


class Peer(Acceptor):
    """The server of a dialogue: it greets, answers STARTTLS, then serves the connection with `serve`."""

    def __init__(self, folder, serve=None, cert="server", answer=b"220 go ahead\r\n", client_ca=None, wrap=True, **settings):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(os.path.join(folder, cert + ".pem"), os.path.join(folder, cert + ".key"))
        if client_ca:
            self.context.verify_mode = ssl.CERT_REQUIRED
            self.context.load_verify_locations(os.path.join(folder, client_ca))
        for name, value in settings.items():
            setattr(self.context, name, value)
        self.use, self.answer, self.wrap = serve or self.echo, answer, wrap
        super().__init__()

    def serve(self, conn, _):
        conn.settimeout(WAIT)
        conn.sendall(b"220 hello\r\n")
        if conn.recv(100) != b"STARTTLS\r\n":
            return
        conn.sendall(self.answer)
        if not self.wrap:
            self.use(conn)
            return
        with self.context.wrap_socket(conn, server_side=True, suppress_ragged_eofs=False) as wrapped:
            self.use(wrapped)

    @staticmethod
    def echo(conn):
        while data := conn.recv(65536):
            conn.sendall(data)
        conn.unwrap()


class Line:
    """Reads lines of a plain or a TLS socket, one byte at a time: nothing is read ahead."""

    def __init__(self, sock):
        self.sock = sock

    def read(self):
        line = b""
        while not line.endswith(b"\n"):
            byte = self.sock.recv(1)
            if not byte:
                break
            line += byte
        return line.decode().rstrip("\r\n")


class Starttls(E2E):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="luaserve-tls-")
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        tls.certificate(cls.dir, "ca", extra=["-addext", "basicConstraints=critical,CA:TRUE"])
        tls.certificate(cls.dir, "server", ["localhost"], ca="ca")
        tls.certificate(cls.dir, "other", ["other.test"], ca="ca")
        tls.certificate(cls.dir, "client", ca="ca")
        tls.certificate(cls.dir, "stranger")
        super().setUpClass()
        cls.server = cls.start("served.lua")
        cls.addClassCleanup(cls.server.cleanup)

    @classmethod
    def start(cls, name):
        return Server(SITE, site_path=os.path.join(cls.dir, name), cwd=tempfile.gettempdir(), listeners=3)

    def path(self, name):
        return os.path.join(self.dir, name)

    def trusting(self, **kw):
        return tls.context(self.path("ca.pem"), **kw)

    def peer(self, **settings):
        peer = Peer(self.dir, **settings)
        self.addCleanup(peer.close)
        return peer

    def lua(self, text, server=None):
        with Conn((server or self.server).at(CONTROL)) as conn:
            conn.send(text.encode() + b"\n")
            return conn.line().decode()

    def client(self, *verbs, server=None):
        """A connection to the SMTP server, behind the answer to each of these verbs."""
        conn = socket.create_connection(("127.0.0.1", (server or self.server).port(SMTP)), WAIT)
        self.addCleanup(conn.close)
        line = Line(conn)
        self.assertEqual(line.read(), "220 test ESMTP")
        for verb in verbs:
            conn.sendall(verb.encode() + b"\r\n")
            self.assertEqual(line.read()[3], " ")
        return conn

    def upgraded(self, verb="STARTTLS", made=None, server=None):
        wrapped = (made or self.trusting()).wrap_socket(self.client(verb, server=server), server_hostname="localhost",
                                                        suppress_ragged_eofs=False)
        self.addCleanup(wrapped.close)
        return wrapped

    # ---- dialogues

    def test_smtp_client(self):
        with smtplib.SMTP("127.0.0.1", self.server.port(SMTP), timeout=WAIT) as smtp:
            smtp._host = "localhost"  # the name that the certificate must have
            smtp.ehlo()
            self.assertTrue(smtp.has_extn("starttls"))
            self.assertEqual(smtp.noop(), (250, b"none"))
            smtp.starttls(context=self.trusting())
            smtp.ehlo()
            self.assertFalse(smtp.has_extn("starttls"))
            self.assertEqual(smtp.noop(), (250, b"TLSv1.3|nil|localhost|false|false|nil|nil"))

    def test_imap_client(self):
        imap = imaplib.IMAP4("127.0.0.1", self.server.port(IMAP), timeout=WAIT)
        imap.host = "localhost"
        self.assertIn("STARTTLS", imap.capabilities)
        self.assertEqual(imap.starttls(self.trusting())[0], "OK")
        self.assertEqual(imap.logout(), ("BYE", [b"TLSv1.3|nil|localhost|false|false|nil|nil"]))

    def test_s_client(self):
        for version in ("-tls1_2", "-tls1_3"):
            done = subprocess.run(
                ["openssl", "s_client", "-quiet", "-starttls", "smtp", "-connect", "127.0.0.1:%d" % self.server.port(SMTP),
                 "-servername", "localhost", version, "-CAfile", self.path("ca.pem"), "-verify_return_error", "-ign_eof"],
                input=b"NOOP\r\nQUIT\r\n", capture_output=True, timeout=WAIT, check=True)
            self.assertRegex(done.stdout.decode(), r"250 TLSv1\.\d\|nil\|localhost\|.*\r\n221 bye\r\n$")

    def test_a_client_in_lua(self):
        peer = self.peer()
        call = "local s = dial(%d) local b = text(s.tls) assert(upgrade(s, %s)) s:send('ping\\n') local l = s:receive() " \
               "local t = text(s.tls) s:close() return b, l, t"
        for options, seen in (("{ server_name = 'localhost', ca = 'ca.pem' }", "localhost|false|true|server|CN=server"),
                              ("{ insecure = true }", "nil|false|false|server|CN=server"),
                              ("{ insecure = true, server_name = 'localhost', min = '1.3' }", "localhost|false|false|server|CN=server")):
            self.assertEqual(self.lua("return " + "(function() %s end)()" % (call % (peer.port, options))),
                             "true|none|ping|TLSv1.3|nil|" + seen)

    # ---- bytes in front of the handshake

    def test_bytes_behind_starttls(self):
        """Commands, or a handshake that the client may begin only when it has the answer."""
        for behind in (b"NOOP\r\n", b"\x16\x03\x01\x00\x05hello"):
            since = self.server.mark()
            conn = self.client()
            conn.sendall(b"STARTTLS\r\n" + behind)
            line = Line(conn)
            self.assertEqual(line.read(), "220 go ahead")
            self.server.wait_log(r"starttls: nil\|TLS: bytes arrived before the handshake\|EPROTO "
                                 r"then nil\|closed\|ECLOSED", since)
            self.assertEqual(line.read(), "")  # closed, without an answer to NOOP

    def test_responses_behind_the_answer(self):
        peer = self.peer(answer=b"220 go ahead\r\n250 injected\r\n", wrap=False, serve=lambda conn: conn.recv(1))
        self.assertEqual(self.lua("local s = dial(%d) local ok, e, c = upgrade(s, { insecure = true }) return ok, e, c, s:receive()"
                                  % peer.port), "true|nil|TLS: bytes arrived before the handshake|EPROTO|nil|closed|ECLOSED")

    def test_plain_bytes_in_place_of_the_handshake(self):
        for data in (b"EHLO test\r\n", b"\x00\x01\x02\x03\x04"):
            since = self.server.mark()
            self.client("STARTTLS").sendall(data)
            self.server.wait_log(r"starttls: nil\|TLS: .*\|EPROTO then nil\|closed\|ECLOSED", since)
        peer = self.peer(wrap=False, serve=lambda conn: (conn.recv(1), conn.sendall(b"250 plain\r\n"), conn.recv(65536)))
        self.assertRegex(self.lua("local s = dial(%d) return upgrade(s, { insecure = true })" % peer.port),
                         r"^true\|nil\|TLS: the server does not speak TLS\|EPROTO$")

    def test_queued_bytes_are_sent_first(self):
        conn = self.client()
        conn.sendall(b"FLOOD\r\n")
        left = 100 * 20100
        while left > 0:
            left -= len(conn.recv(min(left, 65536)))
        self.assertEqual(Line(conn).read(), "220 go ahead")
        with self.trusting().wrap_socket(conn, server_hostname="localhost") as wrapped:
            wrapped.sendall(b"NOOP\r\n")
            self.assertRegex(Line(wrapped).read(), "^250 TLS")

    def test_a_receive_that_no_task_waits_for(self):
        since = self.server.mark()
        with self.upgraded("UNWAITED") as conn:
            conn.sendall(b"NOOP\r\n")
            self.assertRegex(Line(conn).read(), "^250 TLS")
        self.server.wait_log(r"unwaited: false\|.*cannot wait here", since)

    # ---- certificates

    def test_the_server_is_not_accepted(self):
        good, other = self.peer(), self.peer(cert="other")
        for peer, options in ((other, "server_name = 'localhost', ca = 'ca.pem'"), (good, "server_name = 'a.test', ca = 'ca.pem'"),
                              (good, "server_name = 'localhost', ca = 'stranger.pem'"), (good, "server_name = 'localhost'")):
            answer = self.lua("local s = dial(%d) local ok, e, c = upgrade(s, { %s }) return ok, c, e, s:send('x')"
                              % (peer.port, options))
            self.assertRegex(answer, r"^true\|nil\|ECERT\|TLS: the certificate .*\|nil\|closed\|ECLOSED$", options)
        since = self.server.mark()
        # The client closes only after the server has read its alert: a close with unread bytes resets the connection, and
        # after a reset Windows drops the alert.
        conn = tls.context(self.path("stranger.pem")).wrap_socket(self.client("STARTTLS"), server_hostname="localhost",
                                                                  do_handshake_on_connect=False)
        self.addCleanup(conn.close)
        with self.assertRaises(ssl.SSLError):
            conn.do_handshake()
        self.server.wait_log(r"starttls: nil\|TLS: the peer reports: .*\|EPROTO", since)

    def test_clients_with_certificates(self):
        verb = "STARTTLS client_ca = 'ca.pem'"
        with self.upgraded(verb, self.trusting(cert=self.path("client"))) as conn:
            conn.sendall(b"NOOP\r\n")
            self.assertRegex(Line(conn).read(), r"^250 TLSv1\.3\|nil\|localhost\|false\|true\|client\|CN=client$")
        with self.upgraded(verb + ", verify = 'optional'") as conn:
            conn.sendall(b"NOOP\r\n")
            self.assertRegex(Line(conn).read(), r"\|nil\|nil$")
        for cert in ("stranger", None):
            since = self.server.mark()
            made = self.trusting(cert=cert and self.path(cert), version=ssl.TLSVersion.TLSv1_2)
            with self.assertRaises(OSError):
                self.upgraded(verb, made)
            self.server.wait_log(r"starttls: nil\|TLS: the c.*\|ECERT", since)
        peer = self.peer(client_ca="ca.pem")
        self.assertEqual(self.lua("local s = dial(%d) assert(upgrade(s, { insecure = true, cert = 'client.pem', key = 'client.key' "
                                  "})) s:send('ping\\n') return s:receive()" % peer.port), "true|ping")

    def test_files_that_cannot_be_used(self):
        for options, code in (("cert = 'missing.pem'", "ENOENT"), ("key = 'other.key'", "EINVAL"), ("ciphers = 'NONE'", "EINVAL")):
            since = self.server.mark()
            conn = self.client("STARTTLS " + options)
            self.server.wait_log(r"starttls: nil\|TLS: .*\|%s then nil\|closed\|ECLOSED" % code, since)
            self.assertEqual(conn.recv(1), b"")
        self.assertRegex(self.lua("return upgrade(dial(%d), { insecure = true, ca = 'missing.pem' })" % self.peer().port),
                         r"^true\|nil\|TLS: .*missing\.pem.*\|ENOENT$")

    def test_names_that_are_too_long(self):
        peer = self.peer()
        for length, result in ((253, "ECERT"), (254, "EINVAL")):
            answer = self.lua("return upgrade(dial(%d), { ca = 'ca.pem', server_name = ('a.'):rep(126) .. ('b'):rep(%d) })"
                              % (peer.port, length - 252))
            self.assertTrue(answer.startswith("true|nil|TLS: ") and answer.endswith("|" + result), answer)

    # ---- failures in the middle

    def hello(self):
        """A ClientHello."""
        into, out = ssl.MemoryBIO(), ssl.MemoryBIO()
        with self.assertRaises(ssl.SSLWantReadError):
            self.trusting().wrap_bio(into, out, server_hostname="localhost").do_handshake()
        return out.read()

    def test_clients_that_vanish(self):
        hello = self.hello()
        for part in (b"", hello[:1], hello[:100], hello):
            since = self.server.mark()
            conn = self.client("STARTTLS")
            conn.sendall(part)
            conn.close()
            self.server.wait_log(r"starttls: nil\|.*\|(ETRUNCATED|ERESET|EPIPE) then nil\|closed\|ECLOSED", since)
        peer = self.peer(wrap=False, serve=lambda conn: conn.recv(1))
        self.assertRegex(self.lua("local s = dial(%d) return upgrade(s, { insecure = true })" % peer.port),
                         r"^true\|nil\|.*\|(ETRUNCATED|ERESET)$")

    def test_clients_that_are_silent(self):
        hello = self.hello()
        for part in (b"", hello[:100], hello):
            since = self.server.mark()
            conn = self.client("STARTTLS timeout = 0.2")
            conn.sendall(part)
            self.server.wait_log(r"starttls: nil\|TLS: timeout\|ETIMEDOUT then nil\|closed\|ECLOSED", since)
        listener = self.peer(wrap=False, serve=lambda conn: conn.recv(100000) and conn.recv(1))
        self.assertEqual(self.lua("local s = dial(%d) s:settimeouts(nil, nil, 0.2) return upgrade(s, { insecure = true })"
                                  % listener.port), "true|nil|TLS: timeout|ETIMEDOUT")

    def test_drops_of_a_handshake(self):
        """A byte at a time does not extend the time limit."""
        since = self.server.mark()
        conn = self.client("STARTTLS timeout = 0.5")
        done = threading.Event()

        def drip():
            for byte in self.hello()[:-1]:
                if done.wait(0.02):
                    return
                try:
                    conn.sendall(bytes([byte]))
                except OSError:
                    return

        with beside(drip):
            self.server.wait_log(r"starttls: nil\|TLS: timeout\|ETIMEDOUT", since)
            done.set()

    def test_a_close_by_another_task(self):
        for how in ("close", "abort"):
            since = self.server.mark()
            conn = self.client("CLOSED " + how)
            self.server.wait_log(r"starttls: nil\|closed\|ECLOSED", since)
            self.assertEqual(conn.recv(1), b"")

    def test_other_tasks(self):
        since = self.server.mark()
        conn = self.client("TASKS")
        self.server.wait_log(r"beside: false\|.*another task already receives", since, count=2)  # receive, starttls
        self.server.wait_log(r"beside: false\|.*another task waits in sock:starttls", since, count=3)
        with self.trusting().wrap_socket(conn, server_hostname="localhost"):
            self.server.wait_log(r"starttls: true", since)

    def test_misuse(self):
        since = self.server.mark()
        with self.upgraded() as conn:
            conn.sendall(b"MISUSE\r\n")
            self.server.wait_log(r"twice: false\|.*the connection uses TLS already", since)
        peer = self.peer()
        for call, message in (("s:starttls()", "takes a table"), ("s:starttls{}", "server_name is missing"),
                              ("s:shutdown() s:starttls{ insecure = true }", "sock:starttls after sock:shutdown")):
            answer = self.lua("local s = dial(%d) %s" % (peer.port, call))
            self.assertTrue(answer.startswith("false|test:1: "), answer)
            self.assertIn(message, answer)
        self.assertEqual(self.lua("local s = dial(%d) s:close() return s:starttls{ insecure = true }" % peer.port),
                         "true|nil|closed|ECLOSED")

    # ---- the sock over TLS

    def test_streams_that_are_cut(self):
        for verb, result in (("ALL", r"all: nil\|the stream was cut off before its end\|ETRUNCATED\|some"),
                             ("ANY", r"any: .*\|ETRUNCATED"), ("LINES", "lines: ETRUNCATED"), ("CHUNKS", "chunks: ETRUNCATED")):
            since = self.server.mark()
            conn = self.upgraded()
            conn.sendall(b"NOOP\r\n")
            Line(conn).read()  # and the session tickets: a close with unread bytes is a reset
            conn.sendall(verb.encode() + b"\r\nsome")
            if verb == "ALL":
                Line(conn).read()
            conn.close()  # without close_notify
            self.server.wait_log(result, since)

    def test_streams_that_end(self):
        for verb, result in (("ALL", r"all: some$"), ("ANY", r"any: closed\|ECLOSED"), ("LINES", "lines: ETRUNCATED"),
                             ("CHUNKS", "chunks: ECLOSED")):
            since = self.server.mark()
            conn = self.upgraded()
            conn.sendall(verb.encode() + b"\r\nsome")
            if verb == "ALL":
                self.assertEqual(Line(conn).read(), "250 go on")
            conn.unwrap()
            self.server.wait_log(result, since)

    def test_a_client_in_lua_reads_to_the_end(self):
        def end(conn):
            conn.sendall(b"last")
            conn.unwrap()

        for serve, result in ((end, "true|last"),
                              (lambda conn: conn.sendall(b"last"), "true|nil|the stream was cut off before its end|ETRUNCATED|last")):
            peer = self.peer(serve=serve)
            self.assertEqual(self.lua("local s = dial(%d) assert(upgrade(s, { insecure = true })) return s:receive('*a')"
                                      % peer.port), result)

    def test_the_own_end(self):
        with self.upgraded() as conn:
            conn.sendall(b"QUIT\r\n")  # sock:close
            self.assertEqual(tls.read_all(conn), b"221 bye\r\n")
        since = self.server.mark()
        conn = self.upgraded()
        conn.sendall(b"SHUT\r\n")
        self.assertEqual(tls.read_all(conn), b"250 last\r\n")
        conn.sendall(b"still")
        conn.unwrap()
        self.server.wait_log("after shutdown: still", since)
        conn = self.upgraded()
        conn.sendall(b"ABORT\r\n")
        with contextlib.suppress(OSError):  # a reset
            self.assertEqual(conn.recv(1), b"")

    def test_many_at_the_same_time(self):
        begin = threading.Barrier(64)

        def talk(n):
            conn = self.client("STARTTLS")
            begin.wait(WAIT)
            with self.trusting().wrap_socket(conn, server_hostname="localhost") as wrapped:
                wrapped.sendall(b"ECHO\r\n")
                line = Line(wrapped)
                self.assertEqual(line.read(), "250 go on")
                wrapped.sendall(b"%d\r\n" % n)
                self.assertEqual(line.read(), str(n))
                wrapped.unwrap()

        in_parallel([lambda n=n: talk(n) for n in range(64)], workers=64)

    # ---- resources

    def test_descriptors_are_given_back(self):
        server = self.start("fds.lua")
        self.addCleanup(server.cleanup)
        peer, wrong = self.peer(), self.peer(cert="other")
        call = "for _ = 1, %d do local s = dial(%d) assert(upgrade(s, { server_name = 'localhost', ca = 'ca.pem' })) s:close() " \
               "s = dial(%d) assert(not upgrade(s, { server_name = 'localhost', ca = 'ca.pem' })) end return 1"
        self.assertEqual(self.lua(call % (1, peer.port, wrong.port), server), "true|1")
        held = server.fds()
        self.assertEqual(self.lua(call % (20, peer.port, wrong.port), server), "true|1")
        for part in (b"", b"x", self.hello()):
            conn = self.client("STARTTLS", server=server)
            conn.sendall(part)
            conn.close()
        self.eventually(lambda: server.fds() <= held, "the descriptors are closed")

    def test_a_stop_in_the_middle_of_a_handshake(self):
        """The drain lets the handshake end; its limit is shorter than that of the drain."""
        server = self.start("stop.lua")
        self.addCleanup(server.cleanup)
        since = server.mark()
        self.client("STARTTLS timeout = 1", server=server)
        server.stop()
        server.wait_log(r"starttls: nil\|TLS: timeout\|ETIMEDOUT", since)
