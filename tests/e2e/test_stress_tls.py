"""luaserve stress against https targets: handshakes, certificates, the end of a connection, options."""
# sanitizers: asan; connections of a thread share nothing, and test_stress and test_tls run many threads
import os
import shutil
import ssl
import tempfile
import threading
import unittest
import zlib

from harness import read_text
from harness.stress import OK, Small, Stress, head_of, stress
from harness.tls import certificate

FILES = {}  # certificates and keys of this module, made once


def setUpModule():
    if shutil.which("openssl") is None:
        raise unittest.SkipTest("openssl(1) is not installed")
    FILES["dir"] = tempfile.mkdtemp(prefix="luaserve-tls-")
    for name, names in (("server", ("localhost", "IP:127.0.0.1")), ("other", ("other.example",)), ("client", ("client.example",))):
        certificate(FILES["dir"], name, names)
        for part, suffix in ("cert", ".pem"), ("key", ".key"):
            FILES[name, part] = os.path.join(FILES["dir"], name + suffix)


def tearDownModule():
    if "dir" in FILES:
        shutil.rmtree(FILES["dir"])


class TlsServer(Small):
    """A TLS server of a few lines: handle(conn, number) after each handshake. `seen`: (resumed, ALPN, version) of each."""

    def __init__(self, handle, cert="server", client_ca=None):
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(FILES[cert, "cert"], FILES[cert, "key"])
        self.tls.set_alpn_protocols(["h2", "http/1.1"])
        if client_ca:
            self.tls.verify_mode = ssl.CERT_REQUIRED
            self.tls.load_verify_locations(client_ca)
        self.seen, self.lock, self.handle_plain = [], threading.Lock(), handle
        super().__init__(self._shake)
        self.url = "https://127.0.0.1:%d/" % self.port

    def _shake(self, conn, number):
        with self.tls.wrap_socket(conn, server_side=True) as wrapped:  # the probe makes no handshake: an OSError
            with self.lock:
                self.seen.append((wrapped.session_reused, wrapped.selected_alpn_protocol(), wrapped.version()))
            self.handle_plain(wrapped, number)


def serve(answer):
    """Answer every request on a connection with these bytes; with a function, with what it returns for the head."""
    def handle(conn, _):
        while head := head_of(conn):
            conn.sendall(answer(head) if callable(answer) else answer)
    return handle


class Tls(Stress):
    def tls(self, handle=serve(OK), **how):
        server = TlsServer(handle, **how)
        self.addCleanup(server.close)
        return server

    def ca(self):
        return "--ca", FILES["server", "cert"]


class Handshakes(Tls):
    def test_requests_on_kept_connections(self):
        server = self.tls()
        ran = self.good(stress("-n", "200", "-c", "4", "-t", "2", "--expect-length", "3", *self.ca(), server.url), 200)
        tls = ran.report["tls"]
        self.assertEqual((tls["full"] + tls["resumed"], tls["failed"], ran.totals["connects"]), (4, 0, 4), ran)
        self.assertEqual([(alpn, version) for _, alpn, version in server.seen], [("http/1.1", "TLSv1.3")] * 4)
        self.assertEqual(tls["handshake_us"]["count"], 4)
        self.assertGreater(tls["handshake_us"]["percentiles"]["p50"], 0)
        self.assertRegex(ran.out, r"(?m)^TLS handshakes: full \d, resumed \d, failed 0; mean .*, p50 .*, p99 .*, max .*$")

    def test_sessions_are_resumed(self):
        server = self.tls()
        ran = self.good(stress("-n", "20", "-c", "1", "--no-keepalive", *self.ca(), server.url), 20)
        tls, connects = ran.report["tls"], ran.totals["connects"]
        self.assertEqual((tls["full"], tls["resumed"], tls["failed"]), (1, connects - 1, 0), ran)
        self.assertGreaterEqual(connects, 20)
        self.assertEqual(sum(not resumed for resumed, _, _ in server.seen), 1)
        self.assertEqual(ran.report["config"]["tls_resume"], True)

    def test_full_handshakes_only(self):
        server = self.tls()
        ran = self.good(stress("-n", "20", "-c", "2", "--no-keepalive", "--tls-resume", "off", *self.ca(), server.url), 20)
        self.assertEqual((ran.report["tls"]["full"], ran.report["tls"]["resumed"]), (ran.totals["connects"], 0), ran)
        self.assertEqual({resumed for resumed, _, _ in server.seen}, {False})
        self.assertEqual(ran.report["config"]["tls_resume"], False)

    def test_tls_1_2(self):
        server = self.tls()
        server.tls.maximum_version = ssl.TLSVersion.TLSv1_2
        ran = self.good(stress("-n", "20", "-c", "1", "--no-keepalive", *self.ca(), server.url), 20)
        self.assertEqual(ran.report["tls"]["full"], 1, ran)
        self.assertEqual({version for _, _, version in server.seen}, {"TLSv1.2"})

    def test_a_plain_target_has_no_handshakes(self):
        ran = self.good(stress("-n", "2", "-c", "1", self.url + "/"), 2)
        self.assertIsNone(ran.report["tls"])
        self.assertIsNone(ran.report["config"]["tls_resume"])
        self.assertNotIn("TLS", ran.out)


class Certificates(Tls):
    def refused(self, ran, connections, *texts):
        """No handshake succeeded: each connection tried once."""
        self.fails(ran, "no valid response; first error: TLS handshake: ", *texts)
        self.assertEqual(ran.errors, {"total": connections, "tls": connections}, ran)
        self.assertEqual((ran.report["tls"]["failed"], ran.totals["connects"]), (connections, 0), ran)
        self.assertIn(texts[0], ran.report["failure"])

    def test_an_unknown_issuer(self):
        server = self.tls()
        self.refused(stress("-n", "6", "-c", "2", server.url), 2, "is not accepted")
        self.refused(stress("-n", "6", "-c", "2", "--ca", FILES["other", "cert"], server.url), 2, "is not accepted")

    def test_the_wrong_name(self):
        server = self.tls(cert="other")
        self.refused(stress("-n", "6", "-c", "1", "--ca", FILES["other", "cert"], server.url), 1, "127.0.0.1")

    def test_insecure_accepts_any(self):
        server = self.tls(cert="other")
        self.good(stress("-n", "6", "-c", "2", "--insecure", server.url), 6)

    def test_a_client_certificate(self):
        server = self.tls(client_ca=FILES["client", "cert"])
        self.good(stress("-n", "6", "-c", "2", *self.ca(), "--cert", FILES["client", "cert"],
                         "--key", FILES["client", "key"], server.url), 6)
        both = os.path.join(FILES["dir"], "both.pem")
        with open(both, "w") as to:
            for part in "cert", "key":
                to.write(read_text(FILES["client", part]))
        self.good(stress("-n", "6", "-c", "2", *self.ca(), "--cert", both, server.url), 6)
        ran = stress("-n", "6", "-c", "1", *self.ca(), server.url)
        self.assertEqual((ran.status, ran.totals["requests"]), (1, 0), ran)
        self.assertGreaterEqual(ran.errors["total"], 1, ran)

    def test_a_server_without_tls(self):
        def answer(conn, _):
            conn.recv(65536)  # the ClientHello: to close a connection with unread bytes would reset it
            conn.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        server = self.small(answer)
        self.refused(stress("-n", "4", "-c", "2", "--insecure", "https://127.0.0.1:%d/" % server.port), 2, "does not speak TLS")

    def test_a_server_that_closes_in_the_handshake(self):
        server = self.small(lambda conn, _: conn.recv(5))
        self.refused(stress("-n", "4", "-c", "2", "--insecure", "https://127.0.0.1:%d/" % server.port), 2, "")

    def test_a_server_that_stalls_in_the_handshake(self):
        def stall(conn, _):
            while conn.recv(4096):
                pass

        server = self.small(stall)
        ran = stress("-n", "4", "-c", "2", "--timeout", "300ms", "--insecure", "https://127.0.0.1:%d/" % server.port)
        self.refused(ran, 2, "timeout")


class Data(Tls):
    def test_large_bodies(self):
        body = os.urandom(1 << 20)
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        server = self.tls(serve(answer))
        self.good(stress("-n", "20", "-c", "2", "--expect-crc32", "%08x" % zlib.crc32(body), *self.ca(), server.url), 20)

    def test_pipelining(self):
        server = self.tls(serve(lambda heads: OK * heads.count(b"\r\n\r\n")))
        self.good(stress("-n", "60", "-c", "1", "--pipeline", "5", *self.ca(), server.url), 60)

    def test_the_end_of_a_body_without_a_length(self):
        """close_notify ends such a body; the end of the TCP stream alone may be an attack (RFC 8446 section 6.1)."""
        def until_close(conn, _):
            if head_of(conn):
                conn.sendall(b"HTTP/1.1 200 OK\r\n\r\nwhole")
                conn.unwrap()

        self.good(stress("-n", "4", "-c", "1", "--expect-length", "5", *self.ca(), self.tls(until_close).url), 4)

        def cut(conn, _):
            if head_of(conn):
                conn.sendall(b"HTTP/1.1 200 OK\r\n\r\nhalf")
                os.close(conn.detach())

        ran = stress("-n", "4", "-c", "1", *self.ca(), self.tls(cut).url)
        self.fails(ran, "the stream was cut off before its end")
        self.assertEqual(ran.errors, {"total": 4, "read": 4}, ran)

    def test_an_idle_connection_that_is_closed_without_close_notify(self):
        """It is not an error: no response is lost."""
        def one(conn, _):
            if head_of(conn):
                conn.sendall(OK)
                os.close(conn.detach())

        ran = stress("-n", "8", "-c", "1", "-R", "20", *self.ca(), self.tls(one).url)
        # A close may cross a request on its way, but not every one: the connection is idle for 50 ms before the next.
        self.assertLess(ran.errors.get("total", 0), 8, ran)
        self.assertGreater(ran.totals["requests"], 0, ran)


class Scripts(Tls):
    def test_options_in_a_script(self):
        server = self.tls()
        script = ("return { target = '%s', requests = 8, connections = 2, keepalive = false, insecure = true,\n"
                  "tls_resume = false, response = function(vu, status) vu:check(status == 200, 'status') end,\n"
                  "done = function(summary) print('tls errors', summary.errors.tls) end }" % server.url)
        ran = stress("s.lua", files={"s.lua": script})
        self.good(ran, 8)
        self.assertIn("tls errors\t0", ran.out)
        self.assertEqual(ran.report["tls"]["resumed"], 0)

    def test_a_scenario(self):
        server = self.tls()
        script = ("return { target = '%s', insecure = true, requests = 6, connections = 2,\n"
                  "scenario = function(vu, sock) sock:send('GET / HTTP/1.1\\r\\n\\r\\n')\n"
                  "assert(sock:receive(%d):find('ok\\n', 1, true)) end }" % (server.url, len(OK)))
        self.good(stress("s.lua", files={"s.lua": script}), 6)


class Options(Tls):
    def test_wrong_files(self):
        self.fails(stress("--ca", "/does/not/exist", "https://h/"), "/does/not/exist", status=2)
        self.fails(stress("--cert", FILES["client", "cert"], "--key", FILES["other", "key"], "https://h/"),
                   FILES["other", "key"], status=2)
        self.fails(stress("--cert", FILES["client", "key"], "https://h/"), FILES["client", "key"], status=2)
