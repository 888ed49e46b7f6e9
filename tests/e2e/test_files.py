"""res:file: a file as the body of a response, opened and read without blocking a thread."""
import email.utils
import functools
import json
import os
import shutil
import socket
import tempfile
import urllib.parse

from harness import E2E, WINDOWS, in_parallel, not_on_windows, write_bytes

SITE = r"""
local ls = require "luaserve"
local dir = ...
local app = ls.app()
app:get("/files/*name", function(req, res) assert(res:file(dir .. "/" .. req.params.name)) end)
app:get("/said/*name", function(req, res)
  local ok, message, code = res:file(dir .. "/" .. req.params.name)
  if not ok then return 404, { message = message, code = code } end
end)
app:get("/typed/*name", function(req, res)
  res:status(203):header("X-Own", "1")
  return res:file(dir .. "/" .. req.params.name, { type = "text/x-own" })
end)
app:get("/own-type/*name", function(req, res)
  res:header("Content-Type", "application/x-mine")
  res:file(dir .. "/" .. req.params.name)
end)
app:get("/twice", function(_, res)
  res:file(dir .. "/small.txt")
  local ok, why = pcall(res.file, res, dir .. "/small.txt")
  ls.log.info("twice: " .. tostring(ok) .. " " .. tostring(why))
end)
app:get("/misuse/:what", function(req, res)
  local ok, why
  if req.params.what == "option" then ok, why = pcall(res.file, res, "x", { tpye = "text/plain" })
  elseif req.params.what == "type" then ok, why = pcall(res.file, res, "x", { type = "a\r\nb" })
  elseif req.params.what == "offset" then ok, why = pcall(res.file, res, "x", { offset = -1 })
  elseif req.params.what == "length" then ok, why = pcall(res.file, res, "x", { length = 1.5 })
  elseif req.params.what == "max_age" then ok, why = pcall(res.file, res, "x", { max_age = "1h" })
  elseif req.params.what == "download" then ok, why = pcall(res.file, res, "x", { download = "a/b" })
  elseif req.params.what == "etag" then ok, why = pcall(res.file, res, "x", { etag = "x" })
  elseif req.params.what == "nul" then ok, why = pcall(res.file, res, "x\0y")
  else ok, why = pcall(res.file, res, {}) end
  return { ok = ok, why = tostring(why) }
end)
app:get("/beside", function(req, res) assert(res:file("beside.txt")) end)
app:get("/root/*name", function(req, res) if not res:file(req.query.name or req.params.name, { root = "public" }) then return 404 end end)
app:get("/up", function(req, res) if not res:file("public/" .. req.query.name) then return 404 end end)
app:get("/above", function(_, res) res:file("beside.txt", { root = "public/.." }) end)
app:get("/joined/*name", function(req, res) assert(res:file(assert(ls.safe_join("public", req.params.name)))) end)
app:any("/with/*name", function(req, res)
  local q = req.query
  if q.own then res:header("Cache-Control", "private"):header("Vary", "Cookie"):header("ETag", '"own"') end
  if q.status then res:status(math.tointeger(q.status)) end
  assert(res:file(dir .. "/" .. req.params.name, { offset = math.tointeger(q.offset), length = math.tointeger(q.length),
    download = q.download, max_age = math.tointeger(q.max_age), etag = q.etag == nil }))
end)
app:get("/tagged/*name", function(req, res, next)
  if req.query.tag then res:header("ETag", req.query.tag) end
  next()
  if req.query.late then res:header("ETag", req.query.late) end
  if req.query.date then res:header("Last-Modified", req.query.date):header("Accept-Ranges", "none") end
end, function(req, res) assert(res:file(dir .. "/" .. req.params.name)) end)
app:get("/long", function(req, res)
  local name = "small.txt"
  local path = dir .. ("/"):rep(math.tointeger(req.query.bytes) - #dir - #name) .. name
  local ok, _, code = res:file(path)
  if not ok then return code end
end)
app:get("/", function() return "root" end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app, send_timeout = 2 }
"""

CACHED_BODY_MAX = 131072  # LS_CACHED_BODY_MAX: the bytes of smaller files are kept in memory
COPY_MAX = CACHED_BODY_MAX if WINDOWS else 32768  # larger files are kept open, ls_shared_file_copy_max
SIZES = (0, 1, 4095, 4096, 4097, 32768, 32769, CACHED_BODY_MAX, CACHED_BODY_MAX + 1, 65536, 65537, 200000, 3000000)


def content(size):
    return bytes((i * 7 + size) & 255 for i in range(min(size, 1021))) * (size // min(size, 1021) + 1) if size else b""


class Files(E2E):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="luaserve-files-")
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        for size in SIZES:
            cls.write("%d.bin" % size, content(size)[:size])
        cls.write("small.txt", b"small\n")
        cls.write("page.html", b"<p>page</p>\n")
        os.mkdir(os.path.join(cls.dir, "folder"))

    @classmethod
    def write(cls, name, data):
        write_bytes(os.path.join(cls.dir, name), data)

    def start(self):
        return self.serve(SITE, args=(self.dir,), flags=("--threads", "2"))

    def test_a_tag_of_the_site(self):
        server = self.start()
        with server.connect() as conn:
            for query in "tag", "late":
                target = "/tagged/small.txt?%s=%%22own%%22" % query
                self.assertEqual(conn.get(target).all("ETag"), ['"own"'])
                self.assertEqual(conn.get(target).text, "small\n")
                for fields, status in (([("If-None-Match", '"own"')], 304), ([("If-None-Match", '"other"')], 200),
                                       ([("If-Match", '"own"')], 200), ([("If-Match", '"other"')], 412),
                                       ([("Range", "bytes=0-0"), ("If-Range", '"own"')], 206),
                                       ([("Range", "bytes=0-0"), ("If-Range", '"other"')], 200)):
                    got = conn.get(target, fields)
                    self.assertEqual((got.status, got.header("ETag")), (status, None if status == 412 else '"own"'), fields)
            got = conn.get("/tagged/small.txt?tag=W/%22own%22", [("Range", "bytes=0-0"), ("If-Range", 'W/"own"')])
            self.assertEqual((got.status, got.all("ETag")), (200, ['W/"own"']))
            got = conn.get("/tagged/small.txt?tag=own", [("If-None-Match", "own")])
            self.assertEqual((got.status, got.all("ETag")), (200, ["own"]))
            date = "Sun, 06 Nov 1994 08:49:37 GMT"
            target = "/tagged/small.txt?date=" + urllib.parse.quote(date)
            got = conn.get(target, [("If-Modified-Since", "Fri, 27 Nov 2099 08:49:37 GMT")])
            self.assertEqual((got.status, got.all("Last-Modified"), got.all("Accept-Ranges")), (200, [date], ["none"]))

    def test_relative_paths_start_at_the_site(self):
        """As those of require do; the working directory of the server is another one."""
        server = self.serve(SITE, args=(self.dir,), cwd=self.dir)
        os.makedirs(os.path.join(server.dir, "public"))
        for name in ("beside.txt", os.path.join("public", "a.txt")):
            write_bytes(os.path.join(server.dir, name), name[-5:].encode())
        self.assertEqual(server.get("/beside").text, "e.txt")
        self.assertEqual(server.get("/joined/a.txt").text, "a.txt")
        self.assertEqual([server.get(target).status for target in (
            "/root/a.txt", "/root/none.txt", "/root/x?name=../beside.txt", "/root/x?name=/etc/passwd", "/root/x?name=a.txt", "/above",
            "/up?name=a.txt", "/up?name=..a", "/up?name=a..", "/up?name=../beside.txt", "/up?name=x/..", "/up?name=..%5Cbeside.txt")],
            [200, 404, 404, 404, 200, 200, 200, 404, 404, 500, 500, 500])
        server.wait_log(r'site\.lua:\d+: res:file: the path has a segment "\.\.": write res:file\(path, \{ root = "files" \}\)', count=3)

    def test_every_size_on_one_connection(self):
        server = self.start()
        quiet = self.quiet_fds(server)

        def client(_):
            with server.connect() as conn:
                for size in SIZES:
                    for method in ("GET", "HEAD"):
                        response = conn.ask(method, "/files/%d.bin" % size)
                        self.assertEqual(response.status, 200)
                        self.assertEqual(response.header("Content-Length"), str(size))
                        self.assertEqual(response.header("Content-Type"), "application/octet-stream")
                        if method == "GET":
                            self.assertEqual(response.body, content(size)[:size])

        in_parallel([functools.partial(client, index) for index in range(8)])
        kept = sum(size > COPY_MAX for size in SIZES)  # the cache keeps them open
        self.eventually(lambda: server.fds() <= quiet + kept, "no file is open twice")

    def test_headers(self):
        server = self.start()
        mtime = 981173106
        os.utime(os.path.join(self.dir, "page.html"), (mtime, mtime))
        response = server.get("/files/page.html")
        self.assertEqual(response.text, "<p>page</p>\n")
        self.assertEqual(response.header("Content-Type"), "text/html; charset=utf-8")
        self.assertEqual(response.header("Last-Modified"), email.utils.formatdate(mtime, usegmt=True))
        response = server.get("/typed/small.txt")
        self.assertEqual((response.status, response.text), (203, "small\n"))
        self.assertEqual(response.header("Content-Type"), "text/x-own")
        self.assertEqual(response.header("X-Own"), "1")
        response = server.get("/own-type/small.txt")
        self.assertEqual(response.header("Content-Type"), "application/x-mine")

    def test_a_part_of_a_file(self):
        server = self.start()
        whole = content(200000)[:200000]
        etags = {server.get("/with/200000.bin").header("ETag")}
        for query, begin, end in (("offset=0", 0, 200000), ("offset=5", 5, 200000), ("length=7", 0, 7),
                                  ("offset=100000&length=10", 100000, 100010), ("offset=199999&length=10", 199999, 200000),
                                  ("offset=200000", 200000, 200000), ("offset=300000&length=1", 200000, 200000)):
            response = server.get("/with/200000.bin?" + query)
            self.assertEqual((response.status, response.body), (200, whole[begin:end]), query)
            etags.add(response.header("ETag"))
        self.assertEqual(len(etags), 7)  # each part is a representation of its own; the last two are the same
        response = server.get("/with/200000.bin?offset=1000&length=100", headers={"Range": "bytes=10-19,90-"})
        self.assertEqual(response.status, 206)
        self.assertIn(b"Content-Range: bytes 10-19/100\r\n\r\n" + whole[1010:1020] + b"\r\n--", response.body)
        self.assertIn(b"Content-Range: bytes 90-99/100\r\n\r\n" + whole[1090:1100] + b"\r\n--", response.body)
        response = server.get("/with/200000.bin?offset=1000&length=100", headers={"Range": "bytes=100-"})
        self.assertEqual((response.status, response.header("Content-Range")), (416, "bytes */100"))

    def test_options_and_own_fields(self):
        server = self.start()
        response = server.get("/with/small.txt?download=%C3%BCber%20%22a%22.txt&max_age=60&etag=0")
        self.assertEqual(response.header("Content-Disposition"),
                         "attachment; filename=\"_ber \\\"a\\\".txt\"; filename*=UTF-8''%C3%BCber%20%22a%22.txt")
        self.assertEqual(response.header("Cache-Control"), "max-age=60")
        self.assertIsNone(response.header("ETag"))
        self.assertEqual(server.get("/with/small.txt?max_age=0").header("Cache-Control"), "no-cache")
        response = server.get("/with/small.txt?own=1&max_age=60")
        self.assertEqual((response.header("Cache-Control"), response.header("Vary")), ("private", "Cookie"))
        self.assertEqual(len(response.all("ETag")), 1)
        self.assertEqual(response.all("ETag"), ['"own"'])
        self.assertEqual(server.get("/with/small.txt?own=1&etag=0").header("ETag"), '"own"')

    def test_conditions_and_ranges(self):
        server = self.start()
        first = server.get("/with/small.txt")
        etag, date = first.header("ETag"), first.header("Last-Modified")
        for fields, status in (({"If-None-Match": etag}, 304), ({"If-Match": '"x"'}, 412), ({"If-Modified-Since": date}, 304),
                               ({"Range": "bytes=0-1"}, 206), ({"Range": "bytes=6-"}, 416)):
            with self.subTest(fields):
                self.assertEqual(server.get("/with/small.txt", headers=fields).status, status)
                # another status than 200: the conditions do not apply (RFC 9110 13.2.1)
                response = server.get("/with/small.txt?status=203", headers=fields)
                self.assertEqual((response.status, response.text), (203, "small\n"))
                with server.connect() as conn:  # another method
                    response = conn.ask("POST", "/with/small.txt", headers=fields)
                    self.assertEqual((response.status, response.text), (200, "small\n"))
        response = server.get("/with/small.txt?etag=0", headers={"If-None-Match": etag})
        self.assertEqual(response.status, 200)  # it has no tag
        response = server.get("/with/small.txt?etag=0", headers={"If-Modified-Since": date})
        self.assertEqual((response.status, response.header("Last-Modified")), (304, date))

    def test_what_cannot_be_sent_is_told_before_anything_has_left(self):
        server = self.start()
        cases = [("nowhere.txt", "ENOENT"), ("small.txt/below", "ENOENT"), ("folder", "EISDIR")]
        if not WINDOWS:
            os.mkfifo(os.path.join(self.dir, "fifo"))
            listener = socket.socket(socket.AF_UNIX)
            self.addCleanup(listener.close)
            listener.bind(os.path.join(self.dir, "socket"))
            cases += [("fifo", "ENOTSUP"), ("socket", "ENOTSUP")]
        for name, code in cases:
            with self.subTest(name):
                response = server.get("/said/" + name)
                self.assertEqual(response.status, 404)
                self.assertEqual(json.loads(response.text)["code"], code)
                self.assertTrue(json.loads(response.text)["message"])

    @not_on_windows("paths of this length")
    def test_the_longest_path(self):
        server = self.start()
        for path_bytes, text in ((4095, "small\n"), (4096, "ELIMIT")):
            self.assertEqual(server.get("/long?bytes=%d" % path_bytes).text, text)

    def test_misuse(self):
        server = self.start()
        self.assertEqual(server.get("/twice").text, "small\n")
        server.wait_log(r"twice: false .*res:file at \S*site.lua:\d+ has described the response: write return res:file")
        for what, why in (
            ("option", "res:file: unknown option \"tpye\"; did you mean 'type'?"), ("type", "media type"),
            ("offset", "res:file: offset must be a whole number from 0 to 9223372036854775807; got -1"),
            ("length", "res:file: length must be a whole number from 0 to 9223372036854775807; got 1.5"),
            ("max_age", "res:file: max_age must be a whole number from 0 to 2147483648; got 1h"),
            ("download", "res:file: download must be the name of a file in UTF-8"), ("etag", "res:file: etag must be true or false"),
            ("nul", "path contains NUL"), ("path", "string expected, got table"),
        ):
            with self.subTest(what):
                told = json.loads(server.get("/misuse/" + what).text)
                self.assertFalse(told["ok"])
                self.assertIn(why, told["why"])

    @not_on_windows("a limit of descriptors")
    def test_the_cache_leaves_descriptors_for_others(self):
        """More large files than descriptors: the cache keeps a few of them open, and nothing fails."""
        with tempfile.TemporaryDirectory(prefix="luaserve-files-") as folder:
            for n in range(100):
                with open(os.path.join(folder, str(n)), "wb") as out:
                    out.truncate(CACHED_BODY_MAX + 1)
            server = self.serve(SITE, args=(folder,), flags=("--threads", "2"), nofile=100)
            for n in range(100):
                with server.connect() as conn:
                    self.assertEqual(conn.get("/files/%d" % n).status, 200)
            conns = [self.connect(server=server) for _ in range(30)]
            for conn in conns:
                self.assertEqual(conn.get("/files/0").status, 200)
