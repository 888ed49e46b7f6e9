"""luaserve stress --http2: requests, responses and ends of streams and connections, against servers that are played frame by frame
and against nginx."""
# sanitizers: asan; connections of a thread share nothing, and test_stress runs many threads
import os
import shutil
import ssl
import struct
import subprocess
import tempfile
import unittest

from harness import WAIT, free_port, in_parallel, run_program, write_text
from harness.stress import OK, Small, Stress, head_of, stress
from harness.tls import certificate

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
ACK = END_STREAM = 1
END_HEADERS, PADDED = 4, 8
STATUS = {200: b"\x88", 204: b"\x89", 404: b"\x8d", 103: b"\x08\x03103"}  # the static table of HPACK; a literal
LENGTH_3 = b"\x0f\x0d\x013"                                                  # content-length: 3


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def frames(conn):
    """The frames of a client: (kind, flags, stream, payload)."""
    file = conn.makefile("rb")
    if file.read(len(PREFACE)) != PREFACE:
        return
    while len(head := file.read(9)) == 9:
        kind, flags, stream = struct.unpack(">BBI", head[3:])
        yield kind, flags, stream, file.read(int.from_bytes(head[:3], "big"))


def whole(stream):
    return frame(HEADERS, END_HEADERS, stream, STATUS[200] + LENGTH_3) + frame(DATA, END_STREAM, stream, b"ok\n")


def played(answer):
    """A handler of Small: answer(conn, number of the connection, number of the request on it, stream) for each request."""
    def handle(conn, number):
        conn.sendall(frame(SETTINGS, 0, 0))
        requests = 0
        for kind, flags, stream, _ in frames(conn):
            if kind == SETTINGS and not flags & ACK:
                conn.sendall(frame(SETTINGS, ACK, 0))
            if kind == HEADERS:
                requests += 1
                if answer(conn, number, requests, stream):
                    return
    return handle


def sends(*parts):
    """Each request is answered with these frames: (kind, flags, payload)."""
    return played(lambda conn, number, request, stream: conn.sendall(b"".join(frame(kind, flags, stream, payload)
                                                                              for kind, flags, payload in parts)))


ANSWERS = {
    "chunks without a length": ((HEADERS, END_HEADERS, STATUS[200]), (DATA, 0, b"o"), (DATA, PADDED, b"\x02k\0\0"),
                                (DATA, 0, b""), (DATA, END_STREAM, b"\n")),
    "an interim response and trailers": ((HEADERS, END_HEADERS, STATUS[103]), (HEADERS, END_HEADERS, STATUS[200]), (DATA, 0, b"ok\n"),
                                         (HEADERS, END_HEADERS | END_STREAM, b"\0\x01x\x01y")),
    "trailers after a length": ((HEADERS, END_HEADERS, STATUS[200] + LENGTH_3), (DATA, 0, b"ok\n"),
                                (HEADERS, END_HEADERS | END_STREAM, b"\0\x01x\x01y")),
    "a length, and the end alone": ((HEADERS, END_HEADERS, STATUS[200] + LENGTH_3), (DATA, 0, b"ok\n"), (DATA, END_STREAM, b"")),
}
EMPTY = {
    "204": ((HEADERS, END_HEADERS | END_STREAM, STATUS[204]),),
    "no data": ((HEADERS, END_HEADERS | END_STREAM, STATUS[200]),),
    "no data, and the end alone": ((HEADERS, END_HEADERS, STATUS[200]), (DATA, END_STREAM, b"")),
}


def setUpModule():
    if "HTTP/2: not built in" in run_program(["--version"])[1]:
        raise unittest.SkipTest("built without nghttp2")


class Http2(Stress):
    SITE = Stress.SITE.replace("ls.listen(0, app)", "ls.listen{ port = 0, handler = app, http2 = true }")

    def played(self, answer, *args):
        server = Small(answer)
        self.addCleanup(server.close)
        return stress("--http2", "-t", "1", *args, server.url)

    def test_every_form_of_a_response(self):
        def run(parts, length):
            ran = self.good(self.played(sends(*parts), "-n", "30", "-c", "2", "--streams", "3", "--expect-length", length), 30)
            self.assertEqual(ran.totals["connects"], 2, ran)
            self.assertEqual(ran.report["config"]["streams"], 3)
        cases = [(name, parts, "3") for name, parts in ANSWERS.items()] + [(name, parts, "0") for name, parts in EMPTY.items()]
        in_parallel([lambda parts=parts, length=length: run(parts, length) for _, parts, length in cases])

    def test_our_server(self):
        load = "--http2", "-n", "200", "-c", "2", "--streams", "8"
        for path, length in ("/", "6"), ("/big", "200000"), ("/chunks", "35"), ("/empty", "0"):
            with self.subTest(path):
                ran = self.good(stress(*load, "--expect-length", length, self.url + path), 200)
                self.assertEqual(ran.totals["connects"], 2)
        self.good(stress(*load, "--method", "HEAD", self.url + "/big"), 200)
        self.good(stress(*load, "--body", "@body", "--expect-body", "body", self.url + "/echo", files={"body": "x" * 100000}), 200)

    def test_a_response_to_head_has_no_body(self):
        answer = sends((HEADERS, END_HEADERS | END_STREAM, STATUS[200] + LENGTH_3))
        self.good(self.played(answer, "-n", "10", "--method", "HEAD", "--expect-length", "0"), 10)

    def test_responses_come_in_any_order(self):
        """Three requests are answered at once, the last one first."""
        waiting = []

        def answer(conn, number, request, stream):
            waiting.append(stream)
            if len(waiting) == 3:
                conn.sendall(b"".join(whole(s) for s in reversed(waiting)))
                waiting.clear()
        self.good(self.played(played(answer), "-n", "30", "-c", "1", "--streams", "3"), 30)

    def test_a_goaway_moves_requests_to_the_next_connection(self):
        """Each connection takes the streams up to 5; the server then closes it. No request is lost."""
        def answer(conn, number, request, stream):
            if stream == 5:
                conn.sendall(frame(GOAWAY, 0, 0, struct.pack(">II", 5, 0)) + whole(stream))
            elif stream < 5:
                conn.sendall(whole(stream))
        ran = self.good(self.played(played(answer), "-n", "60", "-c", "1", "--streams", "4"), 60)
        self.assertGreaterEqual(ran.totals["connects"], 20)

    def test_failures(self):
        """What the server does with each request: the errors of 4 requests, one after another, and the first reason."""
        reset = played(lambda conn, number, request, stream: conn.sendall(frame(RST_STREAM, 0, stream, struct.pack(">I", 2))))
        closes = played(lambda conn, number, request, stream: conn.sendall(frame(HEADERS, END_HEADERS, stream, STATUS[200])) or True)
        broken = played(lambda conn, number, request, stream: conn.sendall(frame(DATA, 0, 0, b"no stream")))
        short = sends((HEADERS, END_HEADERS, STATUS[200] + LENGTH_3), (DATA, END_STREAM, b"o"))
        cases = [("reset", reset, "the server reset the stream: INTERNAL_ERROR"),
                 ("closes", closes, "the server closed the connection in the middle of a response"),
                 ("broken", broken, "the server breaks the rules of HTTP/2"),
                 ("short", short, "the server reset the stream: PROTOCOL_ERROR")]

        def run(answer, why):
            ran = self.played(answer, "-n", "4", "-c", "1")
            self.assertEqual((ran.status, ran.errors), (1, {"total": 4, "read": 4}), ran)
            self.assertIn(why, ran.err)
        in_parallel([lambda answer=answer, why=why: run(answer, why) for _, answer, why in cases])

    def test_a_stream_that_takes_too_long_fails_alone(self):
        ran = self.played(played(lambda conn, number, request, stream: request > 1 and conn.sendall(whole(stream))),
                          "-n", "50", "-c", "1", "--streams", "2", "--timeout", "300ms")
        self.assertEqual((ran.totals["requests"], ran.errors, ran.totals["connects"]), (49, {"total": 1, "timeout": 1}, 1), ran)

    def test_a_server_without_http2(self):
        def http1(conn, number):
            while head_of(conn):
                conn.sendall(OK)
        ran = self.played(http1, "-n", "4")
        self.assertEqual(ran.status, 1, ran)
        self.assertIn('the server does not speak HTTP/2: "HTTP/1.1 200 OK', ran.err)

    @unittest.skipUnless(shutil.which("openssl"), "openssl(1) is not installed")
    def test_a_tls_server_without_http2(self):
        with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as folder:
            certificate(folder, "server", ("localhost", "IP:127.0.0.1"))
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(os.path.join(folder, "server.pem"), os.path.join(folder, "server.key"))
            tls.set_alpn_protocols(["http/1.1"])
            server = Small(lambda conn, number: tls.wrap_socket(conn, server_side=True).recv(1))
            self.addCleanup(server.close)
            ran = stress("--http2", "--insecure", "-n", "4", "https://127.0.0.1:%d/" % server.port)
        self.assertEqual(ran.status, 1, ran)
        self.assertIn("the server does not offer HTTP/2", ran.err)

    @unittest.skipUnless(shutil.which("nginx") and shutil.which("openssl"), "nginx or openssl(1) is not installed")
    def test_nginx(self):
        """Plain and TLS; a body, a script, and connections that end after ten requests."""
        port, tls_port = free_port(), free_port()
        with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as folder:
            certificate(folder, "server", ("localhost", "IP:127.0.0.1"))
            write_text(os.path.join(folder, "nginx.conf"), """
                daemon off; master_process off; pid %(f)s/pid; error_log %(f)s/error.log; events {}
                http { access_log off; client_body_temp_path %(f)s/b; proxy_temp_path %(f)s/p; fastcgi_temp_path %(f)s/f;
                  uwsgi_temp_path %(f)s/u; scgi_temp_path %(f)s/s; keepalive_requests 10; client_max_body_size 10m;
                  server { listen 127.0.0.1:%(port)d http2; listen 127.0.0.1:%(tls)d ssl http2;
                    ssl_certificate %(f)s/server.pem; ssl_certificate_key %(f)s/server.key; location / { proxy_pass %(url)s; } } }
                """ % {"f": folder, "port": port, "tls": tls_port, "url": self.url})
            nginx = subprocess.Popen(["nginx", "-c", os.path.join(folder, "nginx.conf"), "-e", os.path.join(folder, "error.log")])
            try:
                self.eventually(lambda: os.path.exists(os.path.join(folder, "pid")), "nginx serves")
                plain, tls = "http://127.0.0.1:%d" % port, "https://127.0.0.1:%d" % tls_port
                load = "--http2", "-c", "3", "--streams", "4", "--insecure"
                self.good(stress(*load, "-n", "300", "--expect-length", "6", tls + "/"), 300)
                self.good(stress(*load[:-1], "-n", "60", "--expect-length", "200000", plain + "/big"), 60)
                self.good(stress(*load, "-n", "20", "--body", "@body", "--expect-body", "body", tls + "/echo",
                                 files={"body": "x" * 200000}), 20)
                ran = self.good(stress("own.lua", files={"own_lua": """return { target = "%s", connections = 1, requests = 40,
                    http2 = true, streams = 4,
                    request = function(vu) return "POST", "/echo", {}, ("x"):rep(70000 + vu.iteration) end,
                    response = function(vu, status, headers, body) vu:check(#body >= 70000, "body") end }""" % plain}), 40)
                self.assertEqual(ran.checks, {"body": (40, 0)})
            finally:
                nginx.terminate()
                nginx.wait(WAIT)


if __name__ == "__main__":
    unittest.main()
