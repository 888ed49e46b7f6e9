"""TLS listeners: versions, certificates by name, ALPN, clients with certificates, records, bytes that are not TLS,
tickets, changed certificates, options. harness.tls makes the certificates."""
import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import unittest

from harness import E2E, WAIT, Server, read_bytes, read_text, run_program, write_bytes
from harness import tls

APP = """
local ls = require "luaserve"
local app = ls.app()
local function text(t)
  local c = t and t.client or {}
  return t and table.concat({ t.version, t.cipher, t.alpn or "-", t.server_name or "-", c.subject or "-",
    c.issuer or "-", c.fingerprint or "-" }, "|") or "none"
end
app:get("/", function(req) return req.scheme .. "|" .. tostring(req.secure) .. "|" .. text(req.tls) end)
app:get("/same", function(req) return tostring(req.tls == req.tls) end)
"""
SITE = APP + """
ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = { cert = "one.pem", key = "one.key" } }
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = {
  { cert = "one.pem", key = "one.key" }, { cert = "two.pem", key = "two.key" }, min = "1.3" } }
ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = { cert = "one.pem", key = "one.key", client_ca = "ca.pem" } }
ls.listen{ host = "127.0.0.1", port = 0, handler = app,
  tls = { cert = "one.pem", key = "one.key", client_ca = "ca.pem", verify = "optional" } }
ls.tcp({ host = "127.0.0.1", port = 0, tls = "self-signed" }, function(sock)
  for line in sock:lines() do sock:send(line:upper() .. " " .. text(sock.tls):match("^[^|]+") .. "\\n") end
  print("ended: " .. tostring(sock.ended))
end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = { cert = "locked.pem", key = "locked.key", key_password = "open" } }
"""
ONE, PLAIN, TWO, REQUIRED, OPTIONAL, TCP, LOCKED = range(7)


def client_hello():
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


class TlsCase(E2E):
    """A test case with certificates beside the site."""

    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="luaserve-tls-")
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        tls.certificate(cls.dir, "ca", extra=["-addext", "basicConstraints=critical,CA:TRUE"])
        tls.certificate(cls.dir, "one", ["localhost", "one.example"])
        tls.certificate(cls.dir, "two", ["two.example", "*.two.example"])
        tls.certificate(cls.dir, "client", ca="ca")
        tls.certificate(cls.dir, "stranger")
        tls.certificate(cls.dir, "locked", password="open")
        super().setUpClass()

    def path(self, name):
        return os.path.join(self.dir, name)

    def serve_here(self, site, name="site.lua", **kw):
        """A server whose site lies beside the certificates; it runs in another folder."""
        return self.serve(site, site_path=self.path(name), cwd=tempfile.gettempdir(), **kw)


class Served(TlsCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = Server(SITE, site_path=os.path.join(cls.dir, "served.lua"), cwd=tempfile.gettempdir(), listeners=7,
                            flags=["--log-level", "debug"])
        cls.addClassCleanup(cls.server.cleanup)

    def port(self, index=ONE):
        return self.server.port(index)

    def test_curl(self):
        done = subprocess.run(["curl", "-s", "--cacert", self.path("one.pem"), "--max-time", str(WAIT), "-w", "|%{http_version}",
                               "https://localhost:%d/" % self.port()], capture_output=True, text=True, check=True)
        self.assertRegex(done.stdout, r"^https\|true\|TLSv1\.3\|TLS_\w+\|h2\|localhost\|-\|-\|-\|2$")

    def test_a_plain_listener_has_no_tls(self):
        self.assertEqual(self.server.get("/", index=PLAIN).text, "http|false|none")

    def test_versions(self):
        for version, name in ((ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")):
            made = tls.context(self.path("one.pem"), version=version)
            self.assertEqual(tls.get(self.port(), made=made).split("|")[2], name)
        with self.assertRaises(ssl.SSLError):  # min = "1.3"
            tls.get(self.port(TWO), made=tls.context(version=ssl.TLSVersion.TLSv1_2))

    @unittest.skipUnless(shutil.which("gnutls-cli"), "gnutls-cli is not installed")
    def test_gnutls(self):
        done = subprocess.run(["gnutls-cli", "--x509cafile", self.path("one.pem"), "-p", str(self.port()), "localhost", "--logfile",
                               os.devnull], input=b"GET /same HTTP/1.0\r\n\r\n", capture_output=True, timeout=WAIT, check=False)
        self.assertIn(b"\r\n\r\ntrue", done.stdout)

    def test_certificates_by_name(self):
        for name, own in (("one.example", "one"), ("two.example", "two"), ("a.two.example", "two"), (None, "one")):
            with tls.client(self.port(TWO), name=name) as conn, open(self.path(own + ".pem")) as pem:
                self.assertEqual(conn.getpeercert(True), ssl.PEM_cert_to_DER_cert(pem.read()), name)
        since = self.server.mark()
        with self.assertRaisesRegex(ssl.SSLError, "unrecognized name"), tls.client(self.port(TWO), name="other.example"):
            pass
        self.server.wait_log("info refused 127.0.0.1 TLS handshake: no certificate has the name 'other.example'", since)
        with tls.client(self.port(), name="other.example") as conn:  # one certificate is for all names
            self.assertIsNotNone(conn.getpeercert(True))

    def test_alpn(self):
        for offered, chosen in ((["http/1.1", "h2"], "h2"), (["http/1.1"], "http/1.1")):
            with tls.client(self.port(), tls.context(alpn=offered)) as conn:
                self.assertEqual(conn.selected_alpn_protocol(), chosen)
        with tls.client(self.port()) as conn:
            self.assertIsNone(conn.selected_alpn_protocol())

    def test_clients_with_certificates(self):
        own = tls.fingerprint(ssl.PEM_cert_to_DER_cert(read_text(self.path("client.pem"))))
        for index in (REQUIRED, OPTIONAL):
            answer = tls.get(self.port(index), made=tls.context(cert=self.path("client")))
            self.assertEqual(answer.split("|")[6:], ["CN=client", "CN=ca", own])
            since = self.server.mark()
            with self.assertRaises(OSError):
                tls.get(self.port(index), made=tls.context(cert=self.path("stranger")))
            self.server.wait_log("refused 127.0.0.1 TLS handshake: .*certificate", since)
        self.assertEqual(tls.get(self.port(OPTIONAL)).split("|")[6:], ["-", "-", "-"])
        with self.assertRaises(OSError):
            tls.get(self.port(REQUIRED))

    def test_an_encrypted_key(self):
        self.assertTrue(tls.get(self.port(LOCKED), made=tls.context(self.path("locked.pem"))).startswith("https|"))

    def test_pipelined_requests(self):
        with tls.client(self.port()) as conn:
            conn.sendall(b"GET /same HTTP/1.1\r\nHost: a\r\n\r\n" * 50 + b"GET /same HTTP/1.0\r\n\r\n")
            self.assertEqual(tls.read_all(conn).count(b"\r\n\r\ntrue"), 51)

    def test_plain_http(self):
        with self.server.connect(ONE) as conn:
            answer = conn.ask("GET", "/", [("Host", "a")])
        self.assertEqual((answer.status, answer.header("connection")), (400, "close"))
        self.assertIn("https://", answer.text)

    def answer_to(self, bytes_, index=ONE):
        """What the server sends until it closes."""
        data = b""
        with socket.create_connection(("127.0.0.1", self.port(index)), WAIT) as conn:
            conn.sendall(bytes_)
            while part := conn.recv(1000):
                data += part
        return data

    def test_invalid_records_behind_the_handshake(self):
        for record, alert, why in (
                (b"\x17\x03\x03\0\x40" + os.urandom(64), "BAD_RECORD_MAC", "forged or damaged record"),
                (b"\x17\x03\x03\xff\xff", "RECORD_OVERFLOW", "oversized record"),
                (b"\x17\x09\x09\0\x20" + os.urandom(32), "PROTOCOL_VERSION", "wrong version number")):
            for index, line in ((ONE, b"GET /same HTTP/1.1\r\nHost: a\r\n\r\n"), (TCP, b"hello\n")):
                with self.subTest(why, index=index), tls.client(self.port(index)) as conn:
                    since = self.server.mark()
                    conn.sendall(line)
                    self.assertTrue(conn.recv(1000))
                    os.write(conn.fileno(), record)
                    with self.assertRaisesRegex(ssl.SSLError, alert):
                        conn.recv(1000)
                    self.server.wait_log("debug TLS with 127.0.0.1:[0-9]+: " + why, since)
                    self.assertIn("true", tls.get(self.port(), "/same"))
                    self.assertEqual(sum(" TLS with " in line for line in self.server.lines[since:]), 1)

    def test_a_tcp_server(self):
        with tls.client(self.port(TCP)) as conn:
            conn.sendall(b"hello\n")
            self.assertEqual(conn.recv(100), b"HELLO TLSv1.3\n")
            self.assertIn(tls.fingerprint(conn.getpeercert(True)), self.server.log())
        self.server.wait_log("its certificate is self-signed; SHA-256 fingerprint ")

    def test_a_slow_handshake(self):
        server = self.serve(APP + """ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = "self-signed",
          handshake_timeout = 0.2, max_handshakes = 1 }""", flags=["--log-level", "debug"])
        with socket.create_connection(server.at(), WAIT) as silent, socket.create_connection(server.at(), WAIT) as slow:
            slow.sendall(b"\x16\x03\x01")
            self.assertEqual(slow.recv(100), b"")
            self.assertEqual(silent.recv(100), b"")
        server.wait_log("info refused 127.0.0.1 TLS handshake: timeout", count=2)
        self.assertTrue(tls.get(server.port()).startswith("https"))

    def test_a_stop_cuts_half_open_handshakes(self):
        """They are no requests: of a byte, half and all of a ClientHello, half a PROXY header, and what lingers after a 400."""
        site = APP + """local own = { host = "127.0.0.1", port = 0, handler = app, tls = "self-signed", handshake_timeout = 3600 }
          ls.listen(own)
          ls.listen{ host = "127.0.0.1", port = 0, handler = app, proxy_protocol = true, trusted = { "127.0.0.1" }, handshake_timeout = 3600 }
          ls.config{ drain_timeout = 30 }"""
        hello = client_hello()
        server = self.serve(site, listeners=2)
        with contextlib.ExitStack() as opened:
            for index, text in ((0, hello[:1]), (0, hello[:100]), (0, hello), (0, b"GET / HTTP/1.0\r\n\r\n"), (1, b"PROXY ")):
                conn = opened.enter_context(socket.create_connection(server.at(index), WAIT))
                conn.sendall(text)
                if text == hello or text.startswith(b"GET"):
                    self.assertTrue(conn.recv(10))
            server.signal()
            self.assertEqual(server.wait(), 0)


class Sessions(TlsCase):
    """Tickets resume sessions on every thread, and on another machine with the same keys."""
    TEXT = """
local ls = require "luaserve"
ls.config { threads = 4 }
local app = ls.app()
app:get("/", function(req) return tostring(req.tls.resumed) end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = { cert = "one.pem", key = "one.key", tickets = "keys.bin" } }
ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = { cert = "one.pem", key = "one.key" } }
"""

    def ask(self, port, made, session=None):
        """(whether the server says that it resumed, the session of the next connection)"""
        with socket.create_connection(("127.0.0.1", port), WAIT) as plain, \
                made.wrap_socket(plain, server_hostname="localhost", session=session) as conn:
            conn.sendall(b"GET / HTTP/1.0\r\n\r\n")
            text = tls.read_all(conn)
            self.assertEqual(text.endswith(b"true"), conn.session_reused)
            return conn.session_reused, conn.session

    def test_tickets(self):
        write_bytes(self.path("keys.bin"), os.urandom(80))
        one, two = [self.serve_here(self.TEXT, name, listeners=2) for name in ("one.lua", "two.lua")]
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            made = tls.context(version=version)
            for index in range(2):
                resumed, session = self.ask(one.port(index), made)
                self.assertFalse(resumed)
                for _ in range(20):
                    resumed, session = self.ask(one.port(index), made, session)
                    self.assertTrue(resumed)
                self.assertEqual(self.ask(two.port(index), made, session)[0], index == 0)  # 1: keys of its own
        one.stop()
        two.stop()


class Changed(TlsCase):
    """The certificate on disk changes while the server runs."""

    def test_a_new_certificate_is_used(self):
        for name in ("cert.pem", "cert.key"):
            shutil.copy(self.path("one" + name[4:]), self.path(name))
        server = self.serve_here(APP + 'ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = { cert = "cert.pem", key = "cert.key" } }')
        self.assertEqual(self.served(server), "one")
        with tls.client(server.port()) as before:
            since = server.mark()
            self.replace("cert.pem", b"-----BEGIN CERTIFICATE-----\nbroken\n")
            self.eventually(lambda: self.served(server) and server.logged("cert.pem.*the certificates in use stay", since),
                            "the failure is logged")
            self.assertEqual(self.served(server), "one")
            for name in ("cert.key", "cert.pem"):
                self.replace(name, read_bytes(self.path("two" + name[4:])))
            self.eventually(lambda: self.served(server) == "two", "the new certificate is used")
            before.sendall(b"GET /same HTTP/1.0\r\n\r\n")
            self.assertIn(b"true", tls.read_all(before))

    def test_each_of_several_certificates_is_renewed_on_its_own(self):
        tls.certificate(self.dir, "renewed", ["two.example"])
        tls.certificate(self.dir, "nameless", ["other.example"])
        for name in ("a", "b"):
            for end in (".pem", ".key"):
                shutil.copy(self.path({"a": "one", "b": "two"}[name] + end), self.path(name + end))
        server = self.serve_here(APP + """ls.listen{ host = "127.0.0.1", port = 0,
          hosts = { ["one.example"] = app, ["two.example"] = app },
          tls = { { cert = "a.pem", key = "a.key" }, { cert = "b.pem", key = "b.key" } } }""")

        def served(name):
            try:
                with tls.client(server.port(), name=name) as conn:
                    return conn.getpeercert(True)
            except ssl.SSLError:
                return None

        def renew(source):
            for end in (".key", ".pem"):
                self.replace("b" + end, read_bytes(self.path(source + end)))
            return ssl.PEM_cert_to_DER_cert(read_text(self.path(source + ".pem")))

        first = served("one.example")
        self.replace("a.pem", b"-----BEGIN CERTIFICATE-----\nbroken\n")
        renewed = renew("renewed")
        self.eventually(lambda: served("two.example") == renewed, "the certificate beside the broken one is renewed")
        self.assertEqual(served("one.example"), first)
        server.wait_log(r"error '.*a\.pem' holds .*; the certificates in use stay")
        server.wait_log(r"info a new certificate is in use: '.*b\.pem', valid until \d{4}-\d\d-\d\d")
        self.assertEqual(server.logged("no certificate has the name"), [])
        nameless = renew("nameless")
        self.eventually(lambda: served("other.example") == nameless, "the one without the name is used")
        server.wait_log("warn tls: no certificate has the name 'two.example' of hosts: browsers refuse it")
        self.assertEqual(server.logged("no certificate has the name 'one.example' of hosts"), [])

    def test_a_reload(self):
        """It reads the certificates at once; those in use stay if one of them cannot be used, and so does the site."""
        site = APP + """app:get("/site", function() return "site 1" end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = { cert = "live.pem", key = "live.key" } }
"""
        for name in ("live.pem", "live.key"):
            shutil.copy(self.path("one" + name[4:]), self.path(name))
        server = self.serve(site, site_path=self.path("site.lua"))
        self.replace("live.pem", read_bytes(self.path("two.pem")))  # the key is still the old one
        self.replace("site.lua", site.replace("site 1", "site 2").encode())
        server.reload(r"error reload failed: .*site\.lua:\d+: tls: .*live\.key.*; the previous site continues")
        self.assertEqual((self.served(server), tls.get(server.port(), "/site")), ("one", "site 1"))
        self.replace("live.key", read_bytes(self.path("two.key")))
        server.reload("reloaded ")
        self.assertEqual((self.served(server), tls.get(server.port(), "/site")), ("two", "site 2"))

    def replace(self, name, text):
        write_bytes(self.path("new"), text)
        os.replace(self.path("new"), self.path(name))

    def served(self, server):
        with tls.client(server.port()) as conn:
            der = conn.getpeercert(True)
        for name in ("one", "two"):
            with open(self.path(name + ".pem")) as pem:
                if ssl.PEM_cert_to_DER_cert(pem.read()) == der:
                    return name
        return None


class Refused(TlsCase):
    def test_certificates(self):
        for options, message in (
            ('cert = "missing.pem", key = "one.key"', "missing.pem"), ('cert = "one.pem", key = "two.key"', "two.key"),
            ('cert = "locked.pem", key = "locked.key", key_password = "wrong"', "locked.key"),
            ('cert = "one.pem", key = "one.key", tickets = "missing.bin"', "missing.bin"),
        ):
            with self.subTest(options):
                site = APP + 'ls.tcp(0, print)\nls.listen{ port = 0, handler = app, tls = { %s } }' % options
                server = self.serve_here(site, listeners=0)
                self.assertEqual(server.wait(), 1, server.log())
                line, = server.log().splitlines()
                self.assertRegex(line, r"site\.lua:\d+: tls: ")
                self.assertIn(message, line)
                self.assertNotIn("listening", line)
                status, _, err = run_program(["--check", self.path("site.lua")])
                self.assertEqual((status, message in err), (1, True), err)

    def test_an_expired_certificate_is_a_warning(self):
        tls.openssl("x509", "-in", "one.pem", "-signkey", "one.key", "-days", "-1", "-out", "old.pem", folder=self.dir)
        server = self.serve_here(APP + 'ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = { cert = "old.pem", key = "one.key" } }')
        server.wait_log(r"warn .*site\.lua:\d+: tls: .*old\.pem.*expired")
        self.assertTrue(tls.get(server.port()).startswith("https"))

    def test_check_shows_https(self):
        with open(self.path("check.lua"), "w") as out:
            out.write(APP + 'ls.listen{ port = 8443, handler = app, tls = { cert = "one.pem", key = "one.key" } }')
        status, out, err = run_program(["--check", self.path("check.lua")])
        self.assertEqual(status, 0, err)
        self.assertIn("listener: https loopback port 8443", out)
