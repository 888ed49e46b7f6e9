"""The middleware luaserve.compress, etag and request_id: what is compressed, by which coding, and what the client gets when;
request bodies with a content coding."""
# long; large bodies
import gzip
import json
import os
import re
import shutil
import subprocess
import unittest
import zlib

from harness import E2E, OTHER_SYSTEM, WAIT, read_bytes, run_program, table, write_bytes
from harness.conn import request

SITE = r"""
local ls = require "luaserve"
local compress = require "luaserve.compress"
local app, inner, tuned = ls.app(), ls.app(), ls.app()
ls.config { states = 1 } -- a long response must not delay the others
local go = ls.channel("go")
local text = {}
for n = 1, 200 do text[n] = "line " .. n .. " of the text\n" end
text = table.concat(text)
ls.file.mkdir("public")
local file = assert(io.open("@DIR@/public/page.html", "w"))
file:write(text):close()
file = assert(io.open("@DIR@/long.txt", "w"))
for n = 1, 300000 do file:write(n, " ", (n * 7919) % 1000003, "\n") end
file:close()

local function routes(to)
  to:get("/text", function() return text end)
  to:get("/table", function() return { list = { text } } end)
  to:get("/html", function(_, res) return res:html(text) end)
  to:get("/buffer", function() return ls.buffer(text, text) end)
  to:get("/missing", function() return 404, text end)
  to:get("/fail", function() error("no luck") end)
  to:get("/long", function() return text:rep(1000) end)
  to:get("/file", function(_, res) return res:file("public/page.html") end)
  to:get("/long-file", function(_, res) return res:file("long.txt") end)
  to:get("/parts", function(_, res) res:type("text") for n = 1, 100 do res:write(text, n) end end)
  to:get("/announced", function(_, res)
    res:type("text"):header("Content-Length", #text) res:write(text:sub(1, 100)) res:write(text:sub(101))
  end)
  to:get("/trailer", function(_, res) res:trailer("X-Sum", "7") return text end)
  to:get("/etag", function(_, res) return text, { ETag = '"a"' } end)
end
app:use(compress { cache = 0 })
routes(app)
app:get("/short", function(req) return ("x"):rep(tonumber(req.query.n)) end)
app:get("/image", function() return text, { ["Content-Type"] = "image/png" } end)
app:get("/svg", function() return text, { ["Content-Type"] = "IMAGE/SVG+XML; charset=utf-8" } end)
app:get("/own", function() return text, { ["Content-Encoding"] = "gzip" } end)
app:get("/no-transform", function() return text, { ["Cache-Control"] = "public, no-transform" } end)
app:get("/vary", function() return text, { Vary = "Origin" } end)
app:get("/vary-already", function() return text, { Vary = "Origin, accept-encoding" } end)
app:get("/none", function() return 204 end)
app:get("/hints", function(_, res) res:early_hints { Link = "</a.css>; rel=preload" } return text end)
app:static("/static", "public", { precompressed = true })
app:get("/step", function(_, res)
  res:type("text")
  for n = 1, 3 do
    res:write("part ", n, "\n")
    res:flush()
    go:receive(30)
  end
end)
app:get("/sleeps", function(_, res) res:type("text") res:write("before") go:receive(30) res:write("behind") end)
app:get("/events", function(_, res)
  local sse = res:sse()
  sse:send("first")
  sse:subscribe("news")
  sse:wait()
end)
app:post("/go", function() go:send(true) return 204 end)
app:post("/news", function(req) ls.publish("news", req:body()) return 204 end)
app:ws("/ws", { message = function(ws, data) ws:send(data) end })

-- The same as innermost middleware of others, and applied twice.
inner:use(function(_, res, next) next() if res.sent then return end res:header("X-Outer", "1") if res:status() == 404 then return 200, res:body() .. "!" end end)
inner:use(compress(), compress { min_size = 0 })
routes(inner)

tuned:use("/first", compress { codings = { "gzip" }, level = { gzip = 9 }, types = { "application/json" }, min_size = 10 })
tuned:get("/first", function(req) return req.query.json and { "a number of bytes" } or text end)
local seen = 0
tuned:get("/cached", compress { codings = { "gzip" }, min_size = 0, level = 1 }, function(req)
  seen = seen + 1
  return req.query.text or ("again and again " .. seen % 2)
end)
ls.listen("127.0.0.1:0", app)
ls.listen("127.0.0.1:0", inner)
ls.listen("127.0.0.1:0", tuned)
"""
ROUTES = ("text", "table", "html", "buffer", "missing", "long", "file", "long-file", "parts", "announced", "trailer", "etag")
GZIP = [("Accept-Encoding", "gzip")]


def codings():
    """The codings of this build."""
    text = run_program(["--version"])[1]
    line = re.search(r"^compression: (.*)$", text, re.M)[1]
    return [coding for name, coding in (("zlib", "gzip"), ("brotli", "br"), ("zstd", "zstd")) if name in line]


def unpacked(response):
    """The text of a response, decoded from gzip; its end must be there."""
    if response.header("Content-Encoding") != "gzip":
        return response.body
    unpacker = zlib.decompressobj(31)
    data = unpacker.decompress(response.body)
    if not unpacker.eof or unpacker.unused_data:
        raise AssertionError("not one member of gzip: %r" % response)
    return data


class CompressCase(E2E):
    @classmethod
    def setUpClass(cls):
        cls.codings = codings()
        if "gzip" not in cls.codings:
            raise unittest.SkipTest("built without zlib")
        super().setUpClass()


class Compress(CompressCase):
    SITE = SITE
    LISTENERS = 3

    def test_every_kind_of_response(self):
        def check(case):
            path, index, version = case
            with self.server.connect(index) as conn:
                plain = conn.get("/" + path)
                conn.send(request("GET", "/" + path, GZIP, version=version))
                packed = conn.response()
            self.assertIsNone(plain.header("Content-Encoding"))
            self.assertEqual(packed.header("Content-Encoding"), "gzip")
            self.assertLess(len(packed.body), len(plain.body) / 2)
            self.assertTrue(unpacked(packed) == plain.body)
            self.assertEqual((packed.status, packed.header("Content-Type")), (plain.status, plain.header("Content-Type")))
            self.assertEqual((packed.header("Vary"), plain.header("Vary")), ("Accept-Encoding",) * 2)
            self.assertIsNone(packed.header("Accept-Ranges"))
            if plain.header("ETag"):
                self.assertEqual(packed.header("ETag"), "W/" + plain.header("ETag"))
            if path == "trailer" and version == "HTTP/1.1":
                self.assertEqual(packed.trailers, [("X-Sum", "7")])
            if index == 1 and path not in ("parts", "announced"):
                self.assertEqual(packed.header("X-Outer"), "1")

        table(self, [(str(case), case) for case in (
            (path, index, version) for path in ROUTES for index in (0, 1) for version in ("HTTP/1.0", "HTTP/1.1"))], check)

    def test_a_whole_body_has_its_length(self):
        with self.server.connect() as conn:
            for path in ("text", "file", "table", "buffer"):
                response = conn.get("/" + path, GZIP)
                self.assertEqual(response.header("Content-Length"), str(len(response.body)))
            self.assertTrue(conn.get("/long", GZIP).chunked)

    def test_what_is_not_compressed(self):
        for path, vary in (("image", None), ("own", None), ("no-transform", None), ("none", None), ("short?n=1023", None)):
            with self.subTest(path):
                response = self.get("/" + path, GZIP)
                self.assertEqual((response.header("Content-Encoding"), response.header("Vary")),
                                 ("gzip" if path == "own" else None, vary))
        self.assertEqual(self.get("/short?n=1024", GZIP).header("Content-Encoding"), "gzip")
        self.assertEqual(self.get("/svg", GZIP).header("Content-Encoding"), "gzip")
        self.assertEqual(self.get("/first", GZIP, 2).header("Content-Encoding"), None)
        response = self.get("/first?json=1", GZIP, 2)
        self.assertEqual(json.loads(unpacked(response)), ["a number of bytes"])
        self.assertEqual(response.header("Content-Encoding"), "gzip")

    def test_vary(self):
        self.assertEqual(self.get("/vary", GZIP).all("Vary"), ["Origin", "Accept-Encoding"])
        self.assertEqual(self.get("/vary").all("Vary"), ["Origin", "Accept-Encoding"])
        self.assertEqual(self.get("/vary-already", GZIP).all("Vary"), ["Origin, accept-encoding"])

    def test_head(self):
        with self.server.connect() as conn:
            for path in ("text", "file", "long-file", "etag"):
                got = conn.ask("GET", "/" + path, GZIP)
                head = conn.ask("HEAD", "/" + path, GZIP)
                fields = [field for field in got.headers if field[0] not in ("Content-Length", "Transfer-Encoding", "Date")]
                self.assertIsNone(head.header("Content-Length"))
                self.assertEqual([field for field in head.headers if field[0] not in ("Transfer-Encoding", "Date")], fields)
            self.assertEqual(conn.ask("HEAD", "/text").header("Content-Length"), str(len(conn.get("/text").body)))

    def test_conditions_and_ranges(self):
        with self.server.connect() as conn:
            strong = conn.get("/file").header("ETag")
            for asked, tag in (("W/" + strong, "W/" + strong), (strong, strong), ('"x", W/' + strong, "W/" + strong)):
                response = conn.get("/file", GZIP + [("If-None-Match", asked)])
                self.assertEqual((response.status, response.header("ETag"), response.header("Vary"),
                                  response.header("Content-Encoding")), (304, tag, "Accept-Encoding", None))
            part = conn.get("/file", GZIP + [("Range", "bytes=5-9")])
            self.assertEqual((part.status, part.text, part.header("Content-Encoding"), part.header("Vary"), part.header("ETag")),
                             (206, "1 of ", None, "Accept-Encoding", strong))

    def test_precompressed_siblings_are_not_compressed_again(self):
        text = os.urandom(3000).hex().encode()
        write_bytes(os.path.join(self.server.dir, "public", "own.txt"), text)
        write_bytes(os.path.join(self.server.dir, "public", "own.txt.gz"), gzip.compress(text, 1))
        with self.server.connect() as conn:
            own, made = conn.get("/static/own.txt", GZIP), conn.get("/static/page.html", GZIP)
            self.assertEqual(own.body, gzip.compress(text, 1)[:4] + own.body[4:])
            self.assertEqual(unpacked(own), text)
            self.assertTrue(own.header("ETag").startswith('"'))
            self.assertEqual(own.all("Vary"), ["Accept-Encoding"])
            self.assertEqual((made.header("Content-Encoding"), made.all("Vary")), ("gzip", ["Accept-Encoding"]))
            self.assertEqual(unpacked(made), conn.get("/static/page.html").body)

    def test_a_flush_is_decodable_at_once(self):
        with self.server.connect() as conn, self.server.connect() as other:
            for path, parts, steps in (("/step", [b"part 1\n", b"part 2\n", b"part 3\n"], 3), ("/sleeps", [b"before", b"behind"], 1)):
                conn.send(request("GET", path, GZIP))
                head = conn.response_head()
                self.assertEqual((head.header("Content-Encoding"), head.header("Transfer-Encoding")), ("gzip", "chunked"))
                unpacker, data = zlib.decompressobj(31), b""
                for n, part in enumerate(parts):
                    while len(data) < len(b"".join(parts[:n + 1])):
                        data += self.chunk(conn, unpacker)
                    self.assertEqual(data, b"".join(parts[:n + 1]))
                    if n < steps:
                        self.assertEqual(other.ask("POST", "/go", body=b"").status, 204)
                while not unpacker.eof:
                    self.assertEqual(self.chunk(conn, unpacker), b"")
                self.assertEqual(self.chunk(conn, unpacker), b"")  # the last chunk

    def chunk(self, conn, unpacker):
        size = int(conn._line("chunk size"), 16)
        data = conn.take(size)
        self.assertEqual(conn.take(2), b"\r\n")
        return unpacker.decompress(data) if data else b""

    def test_events(self):
        with self.server.connect() as conn:
            conn.send(request("GET", "/events", [("Accept-Encoding", "zstd, br, gzip")]))
            self.assertEqual(conn.response_head().header("Content-Encoding"), "gzip")
        with self.server.connect() as conn, self.server.connect() as other:
            conn.send(request("GET", "/events", GZIP))
            self.assertEqual(conn.response_head().header("Content-Encoding"), "gzip")
            unpacker, data = zlib.decompressobj(31), b""
            for text in (b"first", b"second", b"x" * 5000):
                if text != b"first":
                    self.assertEqual(other.ask("POST", "/news", body=text).status, 204)
                while text + b"\n\n" not in data:
                    data += self.chunk(conn, unpacker)
            self.assertEqual(data, b"data: first\n\ndata: second\n\ndata: %s\n\n" % (b"x" * 5000))

    def test_a_long_response_holds_no_state(self):
        with self.server.connect(rcvbuf=4096) as slow, self.server.connect() as conn:
            slow.send(request("GET", "/long-file", GZIP))
            slow.response_head()
            self.assertEqual(unpacked(conn.get("/text", GZIP))[:7], b"line 1 ")  # the only state is free
            slow.send(request("GET", "/text", GZIP))  # pipelined behind it
            unpacker = zlib.decompressobj(31)
            data = []
            while not unpacker.eof:
                data.append(self.chunk(slow, unpacker))
            self.assertTrue(b"".join(data) == read_bytes(os.path.join(self.server.dir, "long.txt")))
            self.chunk(slow, unpacker)
            self.assertEqual(slow.response().status, 200)

    def test_a_client_that_leaves_a_long_response(self):
        for _ in range(3):
            conn = self.server.connect(rcvbuf=4096)
            conn.send(request("GET", "/long-file", GZIP))
            conn.response_head()
            conn.reset()
        self.assertEqual(self.get("/text").status, 200)

    def test_repeated_bodies(self):
        with self.server.connect(2) as conn:
            for n in range(12):
                response = conn.get("/cached", GZIP)
                self.assertEqual(unpacked(response), b"again and again %d" % ((n + 1) % 2))
            for n in range(3 * 600):
                self.assertEqual(unpacked(conn.get("/cached?text=body%d" % (n // 3), GZIP)), b"body%d" % (n // 3))

    def test_beside_hints_errors_and_websockets(self):
        response = self.get("/hints", GZIP)
        self.assertEqual((response.interim, response.header("Content-Encoding")), ([103], "gzip"))
        self.assertEqual(self.get("/fail", GZIP).text, "Internal Server Error\n")
        with self.server.connect() as conn:
            conn.send(request("GET", "/ws", [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"),
                                             ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")] + GZIP))
            self.assertEqual(conn.head().status, 101)

    def test_another_client_decodes_every_coding(self):
        curl = shutil.which("curl")
        features = subprocess.run([curl, "--version"], capture_output=True, text=True).stdout if curl else ""
        known = [coding for coding, word in (("gzip", "libz"), ("br", "brotli"), ("zstd", "zstd"))
                 if word in features and coding in self.codings]
        if not known:
            self.skipTest("no curl with these codings")
        base = "http://127.0.0.1:%d/" % self.server.port()
        for coding in known:
            for path in ROUTES:
                with self.subTest("%s %s" % (coding, path)):
                    done = subprocess.run([curl, "-s", "--max-time", str(WAIT), "--compressed", "-H", "Accept-Encoding: " + coding,
                                           "-w", "%{stderr}%header{content-encoding}", base + path], capture_output=True, check=True)
                    self.assertEqual(done.stderr.decode(), coding)
                    self.assertTrue(done.stdout == self.get("/" + path).body)

    def test_the_client_of_luaserve_decodes_every_coding(self):
        site = SITE.split("ls.listen")[0] + r"""
app:get("/fetch", function(req)
  local a = assert(ls.fetch("http://127.0.0.1:" .. req.local_port .. req.query.path))
  return { a.headers["content-encoding"] or "none", #a:body() }
end)
app:get("/accept", compress.requests(), function(req) return req.headers["accept-encoding"] end)
ls.listen("127.0.0.1:0", app)
"""
        server = self.serve(site)
        accept = json.loads(server.get("/fetch?path=/accept").text)
        self.assertEqual(accept[1], len(", ".join(self.codings)))
        for path in ROUTES:
            if path not in ("missing", "long"): # the one is no 200, the other grows too much
                response = server.get("/fetch?path=/" + path)
                self.assertEqual(response.status, 200, (path, server.log()))
                self.assertEqual(json.loads(response.text), ["none", len(server.get("/" + path).body)])


class Misuse(CompressCase):
    def test_wrong_options(self):
        site = 'require "luaserve.compress" %s\n'
        for given, message in (
            ("{ types = { 'html' } }", "compress: types[1] must be such as"),
            ("{ codings = { 'deflate' } }", 'compress: codings[1] must be "gzip", "br" or "zstd"'),
            ("{ level = { gzip = 10 } }", "compress: level.gzip must be a whole number from 1 to 9; got 10"),
            ("{ level = { deflate = 1 } }", 'compress: level has the keys'),
            (".requests(1)", "too many arguments for compress.requests()"),
        ):
            with self.subTest(given):
                self.refuses(site % given, message)


REQUESTS = r"""
local ls = require "luaserve"
local compress = require "luaserve.compress"
local app = ls.app()
app:post("/raw", function(req) return ls.buffer(req:body()) end)
app:use("/in", compress.requests())
app:post("/in/body", { max_body = 1000 }, function(req) return req:body() end)
app:post("/in/free", { max_body = false }, function(req) return tostring(#req:body()) end)
app:post("/in/json", function(req) return req:json() end)
app:post("/in/form", function(req) return req:form().a end)
app:post("/in/chunks", { max_body = 1000 }, function(req) local n = 0 for chunk in req:chunks() do n = n + #chunk end return tostring(n) end)
app:post("/in/parts", function(req) for part in req:parts() do return part:body() end end)
app:post("/in/caught", { max_body = 1000 }, function(req) return tostring(select(2, pcall(req.body, req))) end)
app:post("/late", function(req, _, next) req:body() next() end, compress.requests(), function(req) return req:body() end)
app:post("/unread", compress.requests(), function() return "unread" end)
ls.listen("127.0.0.1:0", app)
"""


class Requests(CompressCase):
    SITE = REQUESTS

    def post(self, path, body, coding="gzip", *fields):
        return self.ask("POST", path, [("Content-Encoding", coding), *fields], body)

    def test_a_body_is_decoded(self):
        data = gzip.compress(b"hello")
        for coding, body in (("gzip", data), ("x-gzip", data), ("GZIP", data), ("identity", b"hello"), ("gzip", b""),
                             ("gzip", data[:3] and gzip.compress(b"hel") + gzip.compress(b"lo"))):
            response = self.post("/in/body", body, coding)
            self.assertEqual((response.status, response.text), (200, "hello" if body else ""))
        self.assertEqual(self.post("/raw", data).body, data)
        self.assertEqual(self.post("/in/json", gzip.compress(b'{"a":1}'), "gzip", ("Content-Type", "application/json")).text, '{"a":1}')
        self.assertEqual(self.post("/in/form", gzip.compress(b"a=b"), "gzip",
                                   ("Content-Type", "application/x-www-form-urlencoded")).text, "b")
        form = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\npart\r\n--x--\r\n'
        self.assertEqual(self.post("/in/parts", gzip.compress(form), "gzip",
                                   ("Content-Type", "multipart/form-data; boundary=x")).text, "part")
        self.assertEqual(self.ask("POST", "/in/body", body=b"plain").text, "plain")
        self.assertEqual(self.post("/unread", data).text, "unread")
        with self.server.connect() as conn:  # each byte in a chunk of its own
            conn.send(request("POST", "/in/body", [("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked")]))
            for byte in data:
                conn.send(b"1\r\n%c\r\n" % byte)
            conn.send(b"0\r\n\r\n")
            self.assertEqual(conn.response().text, "hello")
            self.assertEqual(conn.ask("POST", "/in/body", [("Content-Encoding", "gzip")], data).text, "hello")

    def test_limits_count_decoded_bytes(self):
        for path in ("/in/body", "/in/chunks"):
            self.assertEqual(self.post(path, gzip.compress(b"x" * 1000)).status, 200)
            response = self.post(path, gzip.compress(b"x" * 1001))
            self.assertEqual((response.status, response.closes), (413, True))
        self.assertIn("decoded, is larger than its limit", self.post("/in/caught", gzip.compress(b"x" * 1001)).text)
        self.assertEqual(self.post("/in/body", b"x" * 1001).status, 413)  # announced
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
        self.assertEqual(self.post("/in/free", bomb).status, 413)
        self.assertEqual(self.post("/in/free", gzip.compress(bytes(1 << 20))).text, str(1 << 20))
        text = os.urandom(1 << 20).hex().encode()
        self.assertEqual(self.post("/in/free", gzip.compress(text)).text, str(len(text)))

    def test_what_is_refused(self):
        accepted = ", ".join(self.codings)
        for coding in ("deflate", "compress", "gzip, gzip", "gzip, br", "x"):
            response = self.post("/in/body", b"x", coding)
            self.assertEqual((response.status, response.header("Accept-Encoding")), (415, accepted), coding)
            self.assertEqual(response.text, "the Content-Encoding must be one of: %s; got %s\n" % (accepted, coding))
        response = self.ask("POST", "/in/body", [("Content-Encoding", "gzip"), ("Content-Encoding", "gzip")], b"x")
        self.assertEqual(response.status, 415)
        data = gzip.compress(b"hello")
        for body in (b"plain text", data[:-1], data[:5], data[:-6] + b"\0\0" + data[-4:]):
            response = self.post("/in/body", body)
            self.assertEqual((response.status, response.text), (400, "Bad Request\n"))
        self.assertEqual(self.post("/late", data).status, 500)
        self.server.wait_log("compress.requests: the body was read before")

    def test_the_other_codings(self):
        if "br" not in self.codings or "zstd" not in self.codings:
            self.skipTest(OTHER_SYSTEM + "this luaserve has no brotli or zstd")
        for coding, packed in (("br", "0b028068656c6c6f03"), ("zstd", "28b52ffd006829000068656c6c6f")):
            self.assertEqual(self.post("/in/body", bytes.fromhex(packed), coding).text, "hello")
            self.assertEqual(self.post("/in/body", bytes.fromhex(packed[:-2]), coding).status, 400)


TAGS = r"""
local ls = require "luaserve"
local etag, request_id, compress = require "luaserve.etag", require "luaserve.request_id", require "luaserve.compress"
local app = ls.app()
app:use(request_id(), compress { min_size = 0, codings = { "gzip" } }, etag())
app:get("/text", function(req) return req.query.text or "text" end)
app:get("/table", function() return { a = 1 } end)
app:get("/json", function(_, res) return res:json({ a = 1 }) end)
app:get("/row", function() return { title = 1, owner = 2, price = 3, note = 4, id = 5 } end)
app:get("/members", function() return { title = 1, owner = { y = 1, x = 2 }, price = 3, note = 4, id = 5 } end)
app:get("/typed", function(_, res) res:type("application/problem+json") return { a = 1 } end)
app:get("/html", function(_, res) return res:html("text") end)
app:get("/buffer", function() return ls.buffer("text") end)
app:get("/number", function(_, res) res:send(7) end)
app:get("/own", function() return "text", { ETag = '"own"' } end)
app:get("/missing", function() return 404, "text" end)
app:get("/parts", function(_, res) res:write("text") end)
app:get("/id", function(req) return req.request_id .. " " .. req.id end)
app:get("/fail", function() error("no luck") end)
app:post("/text", function() return "text" end)
ls.listen("127.0.0.1:0", app, { trusted = { @TRUSTED@ } })
"""


class Tags(CompressCase):
    SITE = TAGS.replace("@TRUSTED@", '"127.0.0.1"')

    def test_a_tag_of_the_body(self):
        tags = {}
        for path in ("text", "text?text=other", "table", "json", "typed", "html", "buffer", "number"):
            with self.subTest(path), self.server.connect() as conn:
                whole = conn.get("/" + path)
                tag = whole.header("ETag")
                self.assertRegex(tag, r'\A"[0-9a-f]{32}"\Z')
                tags[path] = tag
                self.assertEqual(conn.ask("HEAD", "/" + path).header("ETag"), tag)
                again = conn.get("/" + path, [("If-None-Match", '"x", ' + tag)])
                self.assertEqual((again.status, again.header("ETag"), again.header("Content-Type")), (304, tag, None))
                self.assertEqual(conn.get("/" + path, [("If-None-Match", '"x"')]).body, whole.body)
                self.assertEqual(conn.get("/" + path, [("If-Match", '"x"')]).status, 412)
                packed = conn.get("/" + path, GZIP)
                self.assertEqual((packed.header("ETag"), unpacked(packed)), ("W/" + tag, whole.body))
                again = conn.get("/" + path, GZIP + [("If-None-Match", "W/" + tag)])
                self.assertEqual((again.status, again.header("ETag")), (304, "W/" + tag))
                self.assertEqual(whole.header("Content-Type"), packed.header("Content-Type"))
        self.assertEqual(tags["table"], tags["json"])
        self.assertEqual(self.get("/members").text, '{"id":5,"note":4,"owner":{"x":2,"y":1},"price":3,"title":1}')  # one text in all states
        self.assertEqual(len({tags[path] for path in ("text", "text?text=other", "table", "typed", "html", "number")}), 6)

    def test_what_gets_none(self):
        self.assertEqual(self.get("/own").header("ETag"), '"own"')
        for path in ("/missing", "/parts"):
            self.assertIsNone(self.get(path).header("ETag"))
        self.assertIsNone(self.ask("POST", "/text", body=b"").header("ETag"))

    def test_the_id_of_a_request(self):
        for given, taken in (("abc-123.4:5=6@7", True), ("x" * 64, True), ("x" * 65, False), ("a b", False), ("a/b", False),
                             ("", False), ('a"b', False)):
            with self.subTest(given):
                response = self.get("/id", [("X-Request-Id", given)])
                named, own = response.text.split(" ")
                self.assertEqual(named, own)
                self.assertRegex(own, r"\A%s\Z" % (re.escape(given) if taken else "[0-9a-f]{16}"))
                self.assertEqual(response.header("X-Request-Id"), named)
        response = self.get("/fail", [("X-Request-Id", "the-one-that-fails")])
        self.assertEqual((response.status, response.header("X-Request-Id")), (500, "the-one-that-fails"))
        self.server.wait_log("request the-one-that-fails GET /fail: .*no luck")

    def test_an_id_of_a_stranger_is_not_taken(self):
        server = self.serve(TAGS.replace("@TRUSTED@", '"192.0.2.1"'))
        named, own = server.get("/id", [("X-Request-Id", "forged")]).text.split(" ")
        self.assertEqual(named, own)
