"""HTTP/2 from programs that others have made: nginx and HAProxy in front, httpx, nghttp with trailers and priorities."""
# sanitizers: asan; the threads are those of test_http2
import os
import re
import shutil
import socket
import subprocess
import unittest

from harness import E2E, WAIT, Conn, app_site, free_port, temporary_folder, write_text
from harness import http2 as h
from harness.websocket import WebSocket

PATH = os.environ["PATH"] + ":/usr/sbin"
PYTHON = "/usr/bin/python3"  # of the system, which has the packages of the distribution

SITE = app_site(r"""
app:any("/echo", function(req, res)
  res:header("X-Version", req.version):header("X-Scheme", req.scheme)
  return req:body()
end)
app:get("/large", function() return ("0123456789abcdef"):rep(655360) end)
app:get("/small", function() return "small" end)
app:any("/trailers", function(req, res)
  local body = req:body()
  res:trailer("X-Sum", #body .. (req.trailers["x-note"] or "-"))
  res:write(body)
end)
app:get("/events", function(_, res)
  local sse = res:sse()
  for n = 1, 3 do sse:send("event " .. n) end
end)
app:get("/fails", function() return 503, "not now" end)
app:any("/early/:status", function(req) return tonumber(req.params.status), "early" end)
app:post("/small", { max_body = 1000 }, function(req) return req:body() end)
app:post("/json", function(req) return req:json() end)
app:post("/some", function(req) for _ in req:chunks() do return "some" end end)
app:ws("/ws", function(ws, req)
  ws:send(req.version)
  for data in ws:messages() do ws:send(data) end
end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = "self-signed" }
""", "http2 = true")
TLS, PLAIN = range(2)

NGINX = """daemon off; master_process off; pid %(folder)s/pid; error_log stderr; events {}
http { access_log off; client_max_body_size 0; client_body_temp_path %(folder)s/b; proxy_temp_path %(folder)s/p;
  fastcgi_temp_path %(folder)s/f; uwsgi_temp_path %(folder)s/u; scgi_temp_path %(folder)s/s;
  upstream site { server 127.0.0.1:%(plain)d; keepalive 4; }
  server { listen 127.0.0.1:%(port)d; location / { grpc_pass grpc://site; } }
  server { listen 127.0.0.1:%(second)d; location / { grpc_pass grpcs://127.0.0.1:%(tls)d; grpc_ssl_server_name on; } } }
"""
HAPROXY = """
global
  ssl-server-verify none
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  http-reuse always
frontend one
  bind 127.0.0.1:%(port)d
  default_backend plain
frontend two
  bind 127.0.0.1:%(second)d
  default_backend over_tls
backend plain
  server one 127.0.0.1:%(plain)d proto h2
backend over_tls
  server one 127.0.0.1:%(tls)d ssl alpn h2
"""
HTTPX = r"""
import asyncio, httpx, sys
plain, over_tls = sys.argv[1:]
async def unread(client):
    for path, status in (("/early/200", 200), ("/early/401", 401), ("/missing", 404), ("/small", 413), ("/json", 415)):
        got = await client.post(path, content=bytes(3000000), headers={"Content-Type": "text/plain"})
        assert got.status_code == status and got.text, got
async def main():
    for base, how in ((plain, {"http1": False}), (over_tls, {"verify": False})):
        async with httpx.AsyncClient(http2=True, base_url=base, timeout=60, **how) as client:
            large = client.get("/large")
            posts = [client.post("/echo", content=b"x" * (n * 50000)) for n in range(20)]
            got = await asyncio.gather(large, client.get("/fails"), *posts)
            assert {each.http_version for each in got} == {"HTTP/2"}, got
            assert len(got[0].content) == 10485760 and got[1].status_code == 503
            assert [len(each.content) for each in got[2:]] == [n * 50000 for n in range(20)]
            async with client.stream("GET", "/large") as left:
                async for part in left.aiter_raw():
                    break
            async def parts():
                for n in range(50):
                    yield b"part %02d" % n
            assert len((await client.post("/echo", content=parts())).content) == 350
            await unread(client)
asyncio.run(main())
"""


def found(name):
    return shutil.which(name, path=PATH)


def needs(*programs):
    missing = [name for name in programs if not found(name)]
    return unittest.skipIf(missing, "not installed: " + ", ".join(missing))


@h.needs_http2
class Clients(E2E):
    LISTENERS = 2
    SITE = SITE

    def run_client(self, *command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT)
        self.assertEqual(done.returncode, 0, done.stdout[-2000:] + done.stderr[-2000:])
        return done.stdout

    def start(self, name, text, *command):
        """Start a proxy in front of both listeners; its two ports."""
        folder, ports = temporary_folder(), (free_port(), free_port())
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        write_text(folder + "/conf", text % {"folder": folder, "port": ports[0], "second": ports[1], "plain": self.server.port(PLAIN),
                                             "tls": self.server.port(TLS)})
        process = subprocess.Popen([found(name), *command, folder + "/conf"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait, WAIT)
        self.addCleanup(process.terminate)
        for port in ports:
            self.eventually(lambda at=port: process.poll() is not None or socket.socket().connect_ex(("127.0.0.1", at)) == 0, "it listens")
        self.assertIsNone(process.poll(), name + " has ended")
        return ports

    def check_front(self, port, scheme):
        def same(got):
            self.assertEqual((got.status, got.header("X-Version"), got.header("X-Scheme")), (200, "2", scheme))

        where = ("127.0.0.1", port)
        with Conn(where) as conn:
            for size in (0, 5, 70000, 3 << 20):
                got = conn.ask("POST", "/echo", {"Content-Type": "text/plain"}, bytes(size))
                same(got)
                self.assertEqual(len(got.body), size)
            self.assertEqual(len(conn.get("/large").body), 10485760)
            self.assertEqual(conn.get("/events").body, b"data: event 1\n\ndata: event 2\n\ndata: event 3\n\n")
            self.assertEqual(conn.get("/fails").status, 503)
        left = Conn(where)  # a client that leaves inside a response
        left.sock.sendall(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n")
        left.sock.recv(1000)
        left.close()
        with Conn(where) as conn:
            for _ in range(50):
                same(conn.get("/echo"))

    @needs("nginx")
    def test_nginx_in_front(self):
        """nginx speaks HTTP/2 to servers by grpc_pass alone."""
        for port, scheme in zip(self.start("nginx", NGINX, "-e", "stderr", "-c"), ("http", "https")):
            with self.subTest(scheme):
                self.check_front(port, scheme)

    @needs("haproxy")
    def test_haproxy_in_front(self):
        ports = self.start("haproxy", HAPROXY, "-db", "-f")
        for port, scheme in zip(ports, ("http", "https")):
            with self.subTest(scheme):
                self.check_front(port, scheme)
                with WebSocket(("127.0.0.1", port), "/ws") as ws:
                    self.assertEqual(ws.receive(), "2")
                    ws.send("hello")
                    self.assertEqual(ws.receive(), "hello")

    def test_httpx(self):
        if subprocess.run([PYTHON, "-c", "import httpx, h2"], capture_output=True).returncode:
            self.skipTest("not installed: python3-httpx")
        self.run_client(PYTHON, "-c", HTTPX, *("%s://127.0.0.1:%d" % (scheme, self.server.port(index))
                                              for scheme, index in (("http", PLAIN), ("https", TLS))))

    @needs("curl")
    def test_curl_unread(self):
        """The whole of a response that ends before the body of its request is read."""
        if "HTTP2" not in subprocess.run(["curl", "--version"], capture_output=True, text=True).stdout:
            self.skipTest("a curl without HTTP/2")
        body = self.server.dir + "/body"
        rows = [("/early/200", 200), ("/early/401", 401), ("/missing", 404), ("/early/408", 408), ("/small", 413), ("/json", 415),
                ("/early/417", 417), ("/some", 200)]
        for size, paths in ((40000, rows), (3000000, rows), (9000000, [("/echo", 413)])):
            write_text(body, "x" * size)
            for how, scheme, index in (("--http2-prior-knowledge", "http", PLAIN), ("--http2", "https", TLS)):
                for path, status in paths:
                    for field in ("X-None: 1", "Expect:", "Transfer-Encoding: chunked"):
                        url = "%s://127.0.0.1:%d%s" % (scheme, self.server.port(index), path)
                        out = self.run_client("curl", "-sk", how, "-m", str(WAIT), "--data-binary", "@" + body, "-H", "Content-Type: text/plain",
                                              "-H", field, "-w", " %{http_version} %{http_code}", url)
                        self.assertRegex(out, r"(?s)\w.* 2 %d$" % status)

    @needs("nghttp")
    def test_nghttp_trailers(self):
        body = self.server.dir + "/body"
        write_text(body, "x" * 100000)
        for scheme, index in (("http", PLAIN), ("https", TLS)):
            out = self.run_client("nghttp", "-nv", "--no-verify-peer", "-d", body, "--trailer", "x-note: noted",
                                  "%s://127.0.0.1:%d/trailers" % (scheme, self.server.port(index)))
            self.assertIn("x-sum: 100000noted", re.sub("\x1b\\[[0-9;]*m", "", out))

    @needs("nghttp")
    def test_nghttp_priorities(self):
        """The tree of RFC 7540, which the server does not follow, is no error; neither are weights beside the field of RFC 9218."""
        for scheme, index in (("http", PLAIN), ("https", TLS)):
            url = "%s://127.0.0.1:%d" % (scheme, self.server.port(index))
            for more in (("-p", "256"), ("-p", "1", "-H", "priority: u=0, i"), ("--no-dep", "-H", "priority: u=7")):
                out = self.run_client("nghttp", "-nsy", *more, url + "/large", url + "/small", url + "/events")
                self.assertEqual(len(re.findall(r" 200 ", out)), 3, out)


if __name__ == "__main__":
    unittest.main()
