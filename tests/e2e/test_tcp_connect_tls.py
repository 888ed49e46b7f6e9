"""ls.connect with tls: the trust of certificates and names, the options, errors, and servers that are no TLS servers."""
import contextlib
import os
import shutil
import socket
import ssl
import tempfile
import threading
import unittest

from harness import E2E, HAS_UNIX_SOCKETS, WAIT, Conn
from harness.tls import certificate, system_trust

SITE = r"""
local ls = require "luaserve"
ls.config { threads = 2 }
local function show(...)
  local parts = table.pack(...)
  for i = 1, parts.n do parts[i] = tostring(parts[i]) end
  return table.concat(parts, "|", 1, parts.n)
end
-- talk(port, options, host): connect, send a line, return the line that is sent back.
local function talk(port, tls, host, more)
  local options = more or {}
  options.tls = tls
  local sock <close>, err, code = ls.connect(host or "localhost", port, options)
  if not sock then return nil, err, code end
  sock:send("ping\n")
  return sock:receive("*l")
end
ls.tcp({ port = 0, host = "127.0.0.1" }, function(sock)
  for line in sock:lines() do
    local chunk, err = load("local ls, talk = ... " .. line)
    sock:send(chunk and show(pcall(chunk, ls, talk)) or err, "\n")
  end
end)
"""


def make_certificates(folder):
    """ca.pem; server.pem for localhost, client.pem, locked.pem (password "secret") and other.pem for other.test, each with
    its key in the file; NAME.crt and NAME.key hold them apart."""
    certificate(folder, "ca", extra=["-addext", "basicConstraints=critical,CA:TRUE"])
    for name, names, password in (("server", ["localhost", "IP:127.0.0.1"], None), ("other", ["other.test"], None),
                                  ("client", ["client.test"], None), ("locked", ["client.test"], "secret")):
        certificate(folder, name, names, ca="ca", password=password)
        shutil.copy(os.path.join(folder, name + ".pem"), os.path.join(folder, name + ".crt"))
        with open(os.path.join(folder, name + ".key")) as key, open(os.path.join(folder, name + ".pem"), "a") as both:
            both.write(key.read())


class Peer:
    """A TLS server on a free port that sends back each line; it collects the attributes of its connections."""

    def __init__(self, folder, cert="server.pem", family=socket.AF_INET, at=("127.0.0.1", 0), **settings):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(os.path.join(folder, cert))
        self.context.sni_callback = lambda sock, name, context: self.names.append(name)
        for name, value in settings.items():
            if name == "alpn":
                self.context.set_alpn_protocols(value)
            elif name == "client_ca":
                self.context.verify_mode = ssl.CERT_REQUIRED
                self.context.load_verify_locations(os.path.join(folder, value))
            else:
                setattr(self.context, name, value)
        self.names, self.resumed, self.protocols, self.versions = [], [], [], []
        self.listener = socket.socket(family)
        self.listener.bind(at)
        self.listener.listen(8)
        self.port = self.listener.getsockname()[1] if family == socket.AF_INET else 0
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                conn = self.listener.accept()[0]
            except OSError:
                return
            conn.settimeout(WAIT)
            with contextlib.suppress(OSError):  # a handshake that the client ended
                with self.context.wrap_socket(conn, server_side=True) as tls:
                    self.protocols.append(tls.selected_alpn_protocol())
                    self.versions.append(tls.version())
                    self.resumed.append(tls.session_reused)
                    while True:
                        line = tls.recv(100)
                        if not line:
                            break
                        tls.sendall(line)

    def close(self):
        self.listener.close()


class ConnectTls(E2E):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="luaserve-e2e-")
        cls.addClassCleanup(cls.folder.cleanup)
        make_certificates(cls.folder.name)
        cls.SITE = SITE
        cls.ENV = cls.enterClassContext(system_trust(os.path.join(cls.folder.name, "ca.pem")))
        super().setUpClass()

    def setUp(self):
        super().setUp()
        self.control = self.connect()

    def peer(self, **settings):
        peer = Peer(self.folder.name, **settings)
        self.addCleanup(peer.close)
        return peer

    def run_lua(self, text, wait=True):
        self.control.send(text.replace("@C@", self.folder.name.replace("\\", "/")).encode() + b"\n")
        return self.control.line().decode() if wait else None

    def test_trust(self):
        good, other = self.peer(), self.peer(cert="other.pem")
        for call in ("talk(%d, { ca = '@C@/ca.pem' })", "talk(%d, true)", "talk(%d, { insecure = true })",
                     "talk(%d, { ca = '@C@/ca.pem' }, '127.0.0.1')"):
            self.assertEqual(self.run_lua("return " + call % good.port), "true|ping", call)
        self.assertEqual(good.names, ["localhost"] * 3 + [None])  # SNI has no addresses (RFC 6066 section 3)
        self.assertEqual(self.run_lua("return talk(%d, { ca = '@C@/ca.pem', server_name = 'other.test' })" % other.port), "true|ping")
        self.assertEqual(other.names, ["other.test"])
        for call in ("talk(%d, { ca = '@C@/other.pem' })" % good.port, "talk(%d, { ca = '@C@/ca.pem' })" % other.port,
                     "talk(%d, { ca = '@C@/ca.pem', server_name = 'other.test' })" % good.port):
            self.assertRegex(self.run_lua("return " + call), r"^true\|nil\|TLS: .+\|ECERT$", call)
        self.assertEqual(self.run_lua("return talk(%d, { insecure = true })" % other.port), "true|ping")

    def test_certificates_of_the_client(self):
        peer = self.peer(client_ca="ca.pem")
        for options in ("cert = '@C@/client.pem'", "cert = '@C@/client.crt', key = '@C@/client.key'",
                        "cert = '@C@/locked.crt', key = '@C@/locked.key', key_password = 'secret'"):
            self.assertEqual(self.run_lua("return talk(%d, { ca = '@C@/ca.pem', %s })" % (peer.port, options)), "true|ping")
        # In TLS 1.3 the client is finished before the server looks at the certificate, so a receive gets the alert.
        self.assertRegex(self.run_lua("return talk(%d, { ca = '@C@/ca.pem' })" % peer.port), r"^true\|nil\|")

    def test_protocols_and_versions(self):
        peer = self.peer(alpn=["b", "c"])
        self.assertEqual(self.run_lua("return talk(%d, { alpn = { 'a', 'c' } })" % peer.port), "true|ping")
        self.assertEqual(self.run_lua("return talk(%d, true)" % peer.port), "true|ping")
        self.assertEqual(peer.protocols, ["c", None])
        old = self.peer(maximum_version=ssl.TLSVersion.TLSv1_2)
        self.assertEqual(self.run_lua("return talk(%d, true)" % old.port), "true|ping")
        self.assertEqual(self.run_lua("return talk(%d, { ciphers = 'ECDHE-ECDSA-AES256-GCM-SHA384' })" % old.port), "true|ping")
        self.assertEqual(set(old.versions), {"TLSv1.2"})
        self.assertRegex(self.run_lua("return talk(%d, { min = '1.3' })" % old.port), r"^true\|nil\|TLS: .+\|EPROTO$")

    def test_sessions_are_resumed(self):
        peer = self.peer()
        for _ in range(3):  # the tickets of TLS 1.3 come with the first bytes that are received
            self.assertEqual(self.run_lua("return talk(%d, { ca = '@C@/ca.pem' })" % peer.port), "true|ping")
        self.assertEqual(peer.resumed[0], False)
        self.assertIn(True, peer.resumed)

    def test_values_that_cannot_be_used(self):
        peer = self.peer()
        for options, code in (("ca = '@C@/missing.pem'", "missing.pem.*ENOENT"), ("cert = '@C@/locked.pem'", "EINVAL")):
            answer = self.run_lua("return talk(%d, { %s })" % (peer.port, options))
            self.assertRegex(answer, r"^true\|nil\|TLS: .+%s$" % code)
        self.assertEqual(peer.versions, [])  # no connection was made

    def test_servers_without_tls(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        port = listener.getsockname()[1]
        for reply, code in ((b"220 a plain server\r\n", "EPROTO"), (b"", "ETRUNCATED|ERESET")):
            self.run_lua("return talk(%d, true)" % port, wait=False)
            peer = listener.accept()[0]
            peer.settimeout(WAIT)
            self.assertEqual(peer.recv(1), b"\x16")
            peer.recv(65536)
            if reply:
                peer.sendall(reply)
            else:
                peer.close()
            self.assertRegex(self.control.line().decode(), r"^true\|nil\|TLS: .+\|(%s)$" % code)
            peer.close()

    def test_a_server_that_is_silent(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        answer = self.run_lua("return talk(%d, true, nil, { connect_timeout = 0.2 })" % listener.getsockname()[1])
        self.assertRegex(answer, r"^true\|nil\|TLS: .+\|ETIMEDOUT$")

    @unittest.skipUnless(HAS_UNIX_SOCKETS, "of another system: no Unix sockets")
    def test_unix_sockets(self):
        path = os.path.join(self.folder.name, "s")
        self.peer(family=socket.AF_UNIX, at=path)
        connect = "local s <close>, e, c = ls.connect('unix:%s', { tls = %s }) if not s then return s, e, c end " \
                  "s:send('ping\\n') return s:receive('*l')"
        self.assertEqual(self.run_lua(connect % (path, "{ ca = '@C@/ca.pem', server_name = 'localhost' }")), "true|ping")
        self.assertEqual(self.run_lua(connect % (path, "{ insecure = true }")), "true|ping")
        self.assertRegex(self.run_lua(connect % (path, "{ ca = '@C@/ca.pem' }")), r"^true\|nil\|TLS: .+\|EINVAL$")

    def test_descriptors_are_given_back(self):
        peer, wrong = self.peer(), self.peer(cert="other.pem")
        self.run_lua("return 1")
        held = self.server.fds()
        self.assertEqual(self.run_lua(
            "for i = 1, 20 do assert(talk(%d, true) == 'ping') assert(not talk(%d, true)) end return 1"
            % (peer.port, wrong.port)), "true|1")
        self.eventually(lambda: self.server.fds() <= held, "the descriptors are closed")

    def test_a_stop_in_the_middle_of_a_handshake(self):
        """The drain waits for the task, whose dial ends at its deadline; nothing is left open."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        server = self.serve(SITE)
        with Conn(server.at()) as conn:
            conn.send(b"return talk(%d, true, nil, { connect_timeout = 1 })\n" % listener.getsockname()[1])
            peer = listener.accept()[0]
            self.addCleanup(peer.close)
