"""app:static: folders, conditions, ranges, codings, listings, and files that change while they are sent."""
import contextlib
import email.utils
import gzip
import http.client
import os
import re
import socket
import ssl
import tempfile
import threading
import time
import unittest
import urllib.parse

from harness import (E2E, ENGINE, OTHER_SYSTEM, WAIT, WINDOWS, WINE, app_site, many_files, not_on_windows, read_bytes,
                     repeats, request, tls, write_bytes, write_text)

SITE = app_site(r"""
app:static("/plain", "public")
app:static("/cached", "public", { max_age = 3600, immutable = "/cached/hashed/" })
app:static("/fresh", "public", { max_age = 0 })
app:static("/coded", "public", { precompressed = true })
app:static("/list", "public", { list = true })
app:static("/all", "public", { list = true, dotfiles = true, index = false })
app:static("/spa", "public", { fallback = "app.html", immutable = "/spa/sub/" })
app:static("/own", "public", { headers = function(path)
  if path == "bad.txt" then error("no headers for " .. path) end
  if path == "none.txt" then return nil end
  if path == "a.txt" then return { ["Content-Type"] = "text/x-own", ETag = '"own"', ["Last-Modified"] = "never" } end
  return { ["X-Path"] = path, ["Cache-Control"] = "private", Vary = "Cookie" }
end })
app:static("/varied", "public", { precompressed = true, headers = function() return { Vary = "Cookie" } end })
local inner = ls.app()
inner:static("/", "public")
inner:not_found(function() return "inner missing\n" end)
app:mount("/mounted/:id", inner)
app:get("/plain/route", function() return "a route" end)
app:use(function(req, res, next)
  res:header("X-Outer", "1")
  return next()
end)
""", "send_timeout = 5")

REWRITTEN = r"""
local ls = require "luaserve"
local folder = "%(folder)s"
local app, chained = ls.app(), ls.app()
local function file(req, res) res:file(folder .. "/big.bin") end
app:static("/static", folder)
app:get("/file", file)
chained:use(function(req, res, next) return next() end)
chained:get("/file", file)
chained:get("/changes", file)
local function rewrite()
  local out = assert(io.open(folder .. "/big.bin", "w"))
  out:write(("x"):rep(150000))
  out:close()
end
app:get("/changes", function(req, res)
  file(req, res)
  rewrite()
end)
app:mount("/chained", chained)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = "self-signed" }
"""

CLOCK_MONOTONIC_COARSE = 6  # clock_gettime(2)
MTIME = 981173106
DATE = email.utils.formatdate(MTIME, usegmt=True)
ODD = "b\u00e4r & x'y.txt"  # < and > are refused: Windows reserves them
BIG = 10 * 1024 * 1024
BLOCK = bytes((i * 7 + i // 251) & 255 for i in range(65536))


def big(size=BIG):
    return BLOCK * (size // len(BLOCK)) + BLOCK[:size % len(BLOCK)]


class Static(E2E):
    def start(self, files=None):
        self.dir = self.new_folder()
        self.public = os.path.join(self.dir, "public")
        os.makedirs(os.path.join(self.public, "sub", "empty"))
        os.makedirs(os.path.join(self.public, "hashed"))
        for name, data in dict({
                "index.html": b"<p>index</p>\n", "app.html": b"<p>app</p>\n", "a.txt": b"0123456789", "empty.txt": b"",
                "none.txt": b"none", "bad.txt": b"bad", "none": b"x",
                ".hidden": b"secret", "sub/index.html": b"<p>sub</p>\n", "sub/b.css": b"p {}\n", "hashed/x.js": b"1;\n",
                "app.js": b"plain", "app.js.gz": gzip.compress(b"plain"), "app.js.br": b"not really brotli",
                "style.css": b"plain css", "style.css.gz": gzip.compress(b"plain css"),
                "baer.txt" if WINDOWS else ODD: b"odd",
                "large.bin": big(100000)}, **(files or {})).items():
            self.write(name, data)
        return self.serve(SITE.replace('"public"', '"%s"' % self.public.replace("\\", "/")), flags=("--threads", "2"))

    def folder(self):
        self.public = self.new_folder()
        self.path = self.write("big.bin", big(200000))
        return self.public.replace("\\", "/")

    def write(self, name, data):
        path = os.path.join(self.public, name)
        write_bytes(path, data)
        return path

    # ---- files and paths ---------------------------------------------------------------------------------------

    def test_files_and_their_headers(self):
        server = self.start()
        os.utime(os.path.join(self.public, "a.txt"), (MTIME, MTIME))
        for _ in range(3):  # loaded, then from the cache
            response = server.get("/plain/a.txt")
            self.assertEqual((response.status, response.text), (200, "0123456789"))
            self.assertEqual(response.header("Content-Type"), "text/plain; charset=utf-8")
            self.assertEqual(response.header("Last-Modified"), DATE)
            self.assertEqual(response.header("Accept-Ranges"), "bytes")
            self.assertRegex(response.header("ETag"), r'^"[0-9a-f]+-[0-9a-f]+"$')
            self.assertIsNone(response.header("Cache-Control"))
            self.assertIsNone(response.header("Vary"))
            self.assertEqual(response.header("X-Outer"), "1")
        self.assertEqual(server.get("/plain/empty.txt").body, b"")
        self.assertEqual(server.get("/plain/large.bin").body, big(100000))
        self.assertEqual(server.get("/plain/sub/b.css").header("Content-Type"), "text/css; charset=utf-8")
        self.assertEqual(server.get("/cached/a.txt").header("Cache-Control"), "public, max-age=3600")
        self.assertEqual(server.get("/cached/hashed/x.js").header("Cache-Control"), "public, max-age=31536000, immutable")
        self.assertEqual(server.get("/fresh/a.txt").header("Cache-Control"), "no-cache")
        self.assertEqual(server.get("/plain/route").text, "a route")

    def test_head_and_other_methods(self):
        server = self.start()
        for name, size in (("a.txt", 10), ("large.bin", 100000), ("empty.txt", 0)):
            with server.connect() as conn:
                for _ in range(2):
                    response = conn.ask("HEAD", "/plain/" + name)
                    self.assertEqual((response.status, response.header("Content-Length")), (200, str(size)))
        for method in ("POST", "PUT", "DELETE"):
            with server.connect() as conn:
                response = conn.ask(method, "/plain/a.txt")
            self.assertEqual(response.status, 405)
            self.assertEqual(response.header("Allow"), "GET, HEAD, OPTIONS")

    def test_index_and_redirects(self):
        server = self.start()
        for path, body in (("/plain/", "<p>index</p>\n"), ("/plain/sub/", "<p>sub</p>\n"),
                           ("/mounted/7/", "<p>index</p>\n"), ("/mounted/7/sub/", "<p>sub</p>\n")):
            response = server.get(path)
            self.assertEqual((response.status, response.text), (200, body), path)
            self.assertEqual(response.header("Content-Type"), "text/html; charset=utf-8")
        for path, location in (("/plain", "/plain/"), ("/plain/sub", "/plain/sub/"), ("/plain/sub?a=b&c", "/plain/sub/?a=b&c"),
                               ("/plain/%73ub?", "/plain/%73ub/?"), ("/mounted/7/sub", "/mounted/7/sub/")):
            response = server.get(path)
            self.assertEqual((response.status, response.header("Location")), (308, location), path)
        self.assertEqual(server.get("/plain/sub/empty/").status, 404)  # no index, no listing
        self.assertEqual(server.get("/plain/a.txt/").status, 404)
        self.assertEqual(server.get("/mounted/7/none.html").text, "inner missing\n")

    def test_a_redirect_stays_on_this_server(self):
        """Browsers take //host and /\\host for another host, and a backslash for a slash (WHATWG URL)."""
        folder = self.new_folder()
        os.mkdir(os.path.join(folder, "sub"))
        server = self.serve(app_site("""
app:static("/:tenant", (...), { dotfiles = true })
"""), args=(folder.replace("\\", "/"),))
        for path, status, location in (
                ("/a/sub", 308, "/a/sub/"), ("/\\host/sub", 308, "/%5Chost/sub/"), ("/\\host", 308, "/%5Chost/"),
                ("/%5chost/sub", 308, "/%5chost/sub/"), ("/%2fhost/sub?\\", 308, "/%2fhost/sub/?\\"), ("//sub", 404, None),
                ("//host/sub", 404, None), ("/a//host/sub", 404, None), ("/a/sub/..", 404, None)):
            response = server.get(path)
            self.assertEqual((response.status, response.header("Location")), (status, location), path)

    def test_refused_paths(self):
        server = self.start()
        outside = os.path.join(self.dir, "outside.txt")
        write_text(outside, "outside")
        for path in ("/plain/../outside.txt", "/plain/%2e%2e/outside.txt", "/plain/..%2foutside.txt", "/plain/..%5coutside.txt",
                     "/plain/sub/../a.txt", "/plain/sub%2fb.css", "/plain/sub%5cb.css", "/plain//a.txt", "/plain/./a.txt", "/plain//",
                     "/plain/sub//", "/plain/.hidden", "/plain/%2ehidden", "/plain/a.txt%20", "/plain/a.txt.", "/plain/a.txt::$DATA",
                     "/plain/con", "/plain/%ff", "/plain/nothing", "/plain/sub/nothing", "/plain/" + "x" * 300, "/plain/" + "x/" * 2000):
            with server.connect() as conn:
                self.assertEqual(conn.ask("GET", path).status, 404, path[:60])
        for path in ("/plain/a%00.txt", "/plain/%zz"):
            self.assertEqual(server.get(path).status, 400, path)
        self.assertEqual(server.get("/all/.hidden").text, "secret")
        self.assertEqual(server.get("/plain/%61.txt").text, "0123456789")

    @not_on_windows("links and pipes")
    def test_symbolic_links_stay_in_the_folder(self):
        server = self.start()
        outside = os.path.join(self.dir, "outside")
        os.mkdir(outside)
        write_text(os.path.join(outside, "secret.txt"), "secret")

        def link(target, name):
            os.symlink(target, os.path.join(self.public, name))

        link("../outside/secret.txt", "out.txt")
        link(os.path.join(outside, "secret.txt"), "absolute.txt")
        link("../outside", "folder")
        link("a.txt", "in.txt")
        link(os.path.join(self.public, "a.txt"), "in_absolute.txt")
        link("sub", "in_folder")
        link("nowhere", "dangling.txt")
        link("loop", "loop")
        for path in ("out.txt", "absolute.txt", "folder/secret.txt", "folder/", "dangling.txt", "loop"):
            for _ in range(2):
                self.assertEqual(server.get("/list/" + path).status, 404, path)
        for path in ("in.txt", "in_absolute.txt"):
            self.assertEqual(server.get("/plain/" + path).text, "0123456789")
        self.assertEqual(server.get("/plain/in_folder/").text, "<p>sub</p>\n")
        names = server.get("/all/").text
        for name in ("out.txt", "absolute.txt", "dangling.txt", "loop", "folder"):
            self.assertNotIn('"%s' % name, names)
        self.assertIn("in.txt", names)
        # a link that begins to lead out is noticed when the file is examined again
        os.replace(os.path.join(self.public, "out.txt"), os.path.join(self.public, "in.txt"))
        self.eventually(lambda: server.get("/plain/in.txt").status == 404, "the new link is refused")

    @not_on_windows("pipes and sockets")
    def test_other_types_of_files_are_missing(self):
        server = self.start()
        os.mkfifo(os.path.join(self.public, "pipe"))
        os.makedirs(os.path.join(self.public, "page", "index.html"))  # a folder with the name of the index
        os.mkdir(os.path.join(self.public, "none.txt.gz"))  # and of a sibling
        os.symlink("/dev/null", os.path.join(self.public, "device"))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.join(self.public, "socket"))
            for path in ("pipe", "socket", "device", "page/", "page/index.html/"):
                self.assertEqual(server.get("/plain/" + path).status, 404, path)
        self.assertEqual(server.get("/plain/page").status, 308)
        self.assertEqual(server.get("/coded/none.txt", headers={"Accept-Encoding": "gzip"}).text, "none")
        page = server.get("/list/page/").text  # no file is the index: a listing
        self.assertIn('<a href="index.html/">', page)
        page = server.get("/all/").text
        for name in ("pipe", "socket", "device"):
            self.assertNotIn(name, page)

    @not_on_windows("links")
    def test_a_link_that_another_route_may_follow_is_refused_here(self):
        """The routes share the cache of files, but not the folder that a link must not leave."""
        folder = self.new_folder()
        os.makedirs(os.path.join(folder, "public", "sub"))
        for name in ("outside.txt", "public/inside.txt"):
            write_text(os.path.join(folder, name), name)
        os.symlink("../outside.txt", os.path.join(folder, "public", "link.txt"))
        os.symlink("../inside.txt", os.path.join(folder, "public", "sub", "link.txt"))
        server = self.serve(app_site("""
local folder = ...
app:static("/public", folder .. "/public")
app:static("/sub", folder .. "/public/sub")
app:get("/handler", function(_, res) res:file(folder .. "/public/link.txt") end)
"""), args=(folder,), flags=("--threads", "1"))
        for _ in range(2):
            self.assertEqual(server.get("/handler").text, "outside.txt")
            self.assertEqual(server.get("/public/link.txt").status, 404)
            self.assertEqual(server.get("/public/sub/link.txt").text, "public/inside.txt")
            self.assertEqual(server.get("/sub/link.txt").status, 404)

    # ---- conditions, ranges, codings ----------------------------------------------------------------------------

    def test_conditions(self):
        server = self.start()
        os.utime(os.path.join(self.public, "a.txt"), (MTIME, MTIME))
        etag = server.get("/cached/a.txt").header("ETag")
        earlier = email.utils.formatdate(MTIME - 1, usegmt=True)
        for fields, status in (
                ({"If-None-Match": etag}, 304), ({"If-None-Match": '"x"', "If-Modified-Since": DATE}, 200), ({"If-Match": '"x"'}, 412),
                ({"If-Modified-Since": DATE}, 304), ({"If-Modified-Since": earlier}, 200), ({"If-Unmodified-Since": earlier}, 412)):
            for method in ("GET", "HEAD"):
                with self.subTest(fields), server.connect() as conn:
                    response = conn.ask(method, "/cached/a.txt", headers=fields)
                    self.assertEqual(response.status, status)
                    if status == 304:
                        shown = [response.header(name) for name in ("ETag", "Cache-Control", "Content-Length", "Content-Type")]
                        self.assertEqual(shown, [etag, "public, max-age=3600", None, None])
                    self.assertEqual(conn.ask("GET", "/cached/a.txt").text, "0123456789")

    def test_ranges(self):
        server = self.start()
        whole = big(100000)
        etag = server.get("/plain/large.bin").header("ETag")
        for name, data in (("a.txt", b"0123456789"), ("large.bin", whole)):
            size = len(data)
            for value, begin, end in (("2-5", 2, 6), ("-2", size - 2, size), ("5-99999999", 5, size)):
                response = server.get("/plain/" + name, headers={"Range": "bytes=" + value})
                self.assertEqual((response.status, response.body), (206, data[begin:end]), (name, value))
                self.assertEqual(response.header("Content-Range"), "bytes %d-%d/%d" % (begin, end - 1, size))
        self.assertEqual(server.get("/plain/large.bin", headers={"Range": "bytes=2-1"}).status, 200)
        response = server.get("/plain/large.bin", headers={"Range": "bytes=100000-"})
        self.assertEqual((response.status, response.header("Content-Range")), (416, "bytes */100000"))
        for if_range, status in ((etag, 206), ('"x"', 200)):
            self.assertEqual(server.get("/plain/large.bin", headers={"Range": "bytes=0-1", "If-Range": if_range}).status, status)
        with server.connect() as conn:  # a range of HEAD is ignored
            self.assertEqual(conn.ask("HEAD", "/plain/a.txt", headers={"Range": "bytes=0-1"}).status, 200)

    @not_on_windows("files with holes")
    def test_ranges_beyond_4_gib(self):
        size, at = 6 << 30, 5 << 30
        with tempfile.TemporaryDirectory(prefix="luaserve-static-") as folder:
            with open(os.path.join(folder, "large.bin"), "wb") as out:
                out.seek(at)
                out.write(b"beyond")
                out.truncate(size)
            server = self.serve(app_site("""
local folder = ...
app:static("/", folder)
app:get("/part", function(_, res) res:file(folder .. "/large.bin", { offset = %d, length = 6 }) end)
""") % at, args=(folder,))
            with server.connect() as conn:
                self.assertEqual(conn.ask("HEAD", "/large.bin").header("Content-Length"), str(size))
                for value, begin, body in (("%d-%d" % (at - 2, at + 7), at - 2, b"\0\0beyond\0\0"), ("-1", size - 1, b"\0"),
                                           ("%d-%d" % ((1 << 32) - 1, 1 << 32), (1 << 32) - 1, b"\0\0")):
                    response = conn.get("/large.bin", headers={"Range": "bytes=" + value})
                    self.assertEqual((response.status, response.body), (206, body))
                    self.assertEqual(response.header("Content-Range"), "bytes %d-%d/%d" % (begin, begin + len(body) - 1, size))
                response = conn.get("/large.bin", headers={"Range": "bytes=%d-" % size})
                self.assertEqual((response.status, response.header("Content-Range")), (416, "bytes */%d" % size))
                self.assertEqual(conn.get("/part").text, "beyond")

    def test_several_ranges(self):
        server = self.start()
        whole = big(100000)
        ranges = [(n * 5000, n * 5000 + 999) for n in range(16)]
        for count in (2, 16):
            value = "bytes=" + ",".join("%d-%d" % one for one in ranges[:count])
            response = server.get("/plain/large.bin", headers={"Range": value})
            self.assertEqual(response.status, 206)
            self.assertIsNone(response.header("Content-Range"))
            boundary = re.fullmatch("multipart/byteranges; boundary=([0-9a-f]{32})", response.header("Content-Type")).group(1)
            wanted = b"\r\n".join(
                b"--%s\r\nContent-Type: application/octet-stream\r\nContent-Range: bytes %d-%d/100000\r\n\r\n%s"
                % (boundary.encode(), begin, end, whole[begin:end + 1]) for begin, end in ranges[:count])
            self.assertEqual(response.body, wanted + b"\r\n--%s--\r\n" % boundary.encode())
        response = server.get("/plain/large.bin", headers={"Range": "bytes=0-9,5-19"})  # they overlap: one range
        self.assertEqual((response.status, response.header("Content-Range")), (206, "bytes 0-19/100000"))

    def test_precompressed_siblings(self):
        server = self.start()
        plain, gz = server.get("/coded/app.js"), os.path.join(self.public, "app.js.gz")
        self.assertEqual((plain.text, plain.header("Vary"), plain.header("Content-Encoding")), ("plain", "Accept-Encoding", None))
        zipped = read_bytes(gz)
        for accepted, coding in (("gzip", "gzip"), ("gzip, br", "br"), ("br;q=0.5, gzip", "gzip"), ("br;q=0", None)):
            response = server.get("/coded/app.js", headers={"Accept-Encoding": accepted})
            self.assertEqual(response.header("Content-Encoding"), coding, accepted)
            self.assertEqual(response.header("Content-Type"), "text/javascript; charset=utf-8")
            self.assertEqual(response.header("Vary"), "Accept-Encoding")
            self.assertEqual(response.body, {"gzip": zipped, "br": b"not really brotli", None: b"plain"}[coding])
            self.assertEqual(response.header("ETag") == plain.header("ETag"), coding is None)
            again = server.get("/coded/app.js", headers={"Accept-Encoding": accepted, "If-None-Match": response.header("ETag")})
            self.assertEqual((again.status, again.header("Vary")), (304, "Accept-Encoding"))
        self.assertEqual(server.get("/coded/style.css", headers={"Accept-Encoding": "br, gzip"}).header("Content-Encoding"), "gzip")
        self.assertIsNone(server.get("/coded/a.txt", headers={"Accept-Encoding": "br, gzip"}).header("Content-Encoding"))
        self.assertIsNone(server.get("/plain/app.js", headers={"Accept-Encoding": "br"}).header("Content-Encoding"))
        preferred = {"Accept-Encoding": "gzip;q=0.5, *;q=0.8"}  # the file as it is, as there is no .br
        self.assertIsNone(server.get("/coded/style.css", headers=preferred).header("Content-Encoding"))
        self.write("a.txt.gz", gzip.compress(b"0123456789"))  # the cache knew that there was none
        self.eventually(lambda: server.get("/coded/a.txt", headers={"Accept-Encoding": "gzip"})
                        .header("Content-Encoding") == "gzip", "the new sibling is used")

    def test_a_sibling_is_examined_although_its_file_was_just_now(self):
        """Each entry of the cache is examined once a second, in a second of its own."""
        server = self.start()
        gz, accepts = os.path.join(self.public, "app.js.gz"), {"Accept-Encoding": "gzip"}
        server.get("/coded/app.js")
        server.get("/coded/a.txt")
        time.sleep(0.5)  # the siblings enter the cache half a second after the files
        self.assertEqual(server.get("/coded/app.js", headers=accepts).header("Content-Encoding"), "gzip")
        self.assertIsNone(server.get("/coded/a.txt", headers=accepts).header("Content-Encoding"))
        self.write("a.txt.gz", gzip.compress(b"0123456789"))
        self.eventually(lambda: server.get("/coded/a.txt", headers=accepts).header("Content-Encoding") == "gzip",
                        "the new sibling is used")
        new = gzip.compress(b"changed")
        self.write("new", new)
        os.replace(os.path.join(self.public, "new"), gz)
        self.eventually(lambda: server.get("/coded/app.js", headers=accepts).body == new, "the changed sibling is used")

    # ---- listings, fallback, headers ----------------------------------------------------------------------------

    def test_listings(self):
        server = self.start()
        os.utime(os.path.join(self.public, "a.txt"), (MTIME, MTIME))
        self.assertEqual(server.get("/list/").text, "<p>index</p>\n")  # the index goes first
        page = server.get("/list/sub/empty/")
        self.assertEqual((page.status, page.header("Content-Type")), (200, "text/html; charset=utf-8"))
        self.assertIn("<title>Index of /list/sub/empty/</title>", page.text)
        self.assertIn('href="../"', page.text)
        text = server.get("/all/").text
        names = re.findall(r'<a href="([^"]+)">', text)
        folders = [name for name in names if name.endswith("/")]
        self.assertEqual(names[:3], ["../", "hashed/", "sub/"])
        self.assertEqual(names[len(folders):], sorted(names[len(folders):], key=urllib.parse.unquote))
        self.assertIn(".hidden", names)
        self.assertNotIn("%00", text)
        self.assertIn('<td><a href="a.txt">a.txt</a></td><td>10</td><td>2001-02-03 04:05:06</td>', text)
        if not WINDOWS:
            self.assertIn('<a href="b%C3%A4r%20%26%20x%27y.txt">b\u00e4r &amp; x&#39;y.txt</a>', text)
            with server.connect() as conn:
                self.assertEqual(conn.get("/all/b%C3%A4r%20%26%20x%27y.txt").text, "odd")
        self.assertEqual(server.get("/list/nothing/").status, 404)
        with server.connect() as conn:
            self.assertEqual(conn.ask("HEAD", "/all/").status, 200)

    @not_on_windows("times of change that are no date")
    @unittest.skipUnless(os.path.isdir("/dev/shm"), "needs a file system with times of 64 bits")
    def test_a_listing_with_a_time_that_is_no_date(self):
        with tempfile.TemporaryDirectory(prefix="luaserve-static-", dir="/dev/shm") as folder:
            path = os.path.join(folder, "far.txt")
            write_bytes(path, b"far")
            os.utime(path, (0, 1 << 60))
            server = self.serve(app_site("""
app:static("/", (...), { list = true })
"""), args=(folder,))
            self.assertIn('<td><a href="far.txt">far.txt</a></td><td>3</td><td></td>', server.get("/").text)
            response = server.get("/far.txt")
            self.assertEqual((response.status, response.header("Last-Modified")), (200, None))

    @unittest.skipIf(WINE, OTHER_SYSTEM + "20,000 files take 8 s of Wine's processor time; unit.port.shared_file tests the limit there")
    def test_a_listing_has_10000_names_at_most(self):
        server = self.start()
        many_files(os.path.join(self.public, "sub", "empty"), 10000)
        for more in (False, True):
            page = server.get("/list/sub/empty/").text
            self.assertEqual(len(re.findall(r'<a href="\d+">', page)), 10000)
            self.assertEqual("There are more files." in page, more)
            self.write("sub/empty/10000", b"")

    def test_fallback(self):
        server = self.start()
        page = {"Accept": "text/html,*/*;q=0.8"}
        for path, headers, status, body in (
                ("/spa/users/7", {}, 200, "<p>app</p>\n"), ("/spa/users/john.doe", page, 200, "<p>app</p>\n"),
                ("/spa/users/", page, 200, "<p>app</p>\n"), ("/spa/missing.js", {}, 404, None),
                ("/spa/missing.js", {"Accept": "*/*"}, 404, None), ("/spa/api", {"Accept": "application/json"}, 404, None),
                ("/spa/a.txt", page, 200, "0123456789"), ("/spa/", page, 200, "<p>index</p>\n")):
            response = server.get(path, headers=headers)
            self.assertEqual(response.status, status, path)
            if body:
                self.assertEqual(response.text, body)
        # The page depends on Accept, and a file that a deployment brings later replaces it.
        for path, vary, cache in (("/spa/sub/missing", "Accept", None), ("/spa/sub/b.css", None, "public, max-age=31536000, immutable")):
            response = server.get(path)
            self.assertEqual((response.header("Vary"), response.header("Cache-Control")), (vary, cache), path)
        os.remove(os.path.join(self.public, "app.html"))
        self.eventually(lambda: server.get("/spa/users/7").status == 404, "the fallback is gone")

    def test_the_function_headers(self):
        server = self.start()
        response = server.get("/own/sub/b.css")
        self.assertEqual((response.header("X-Path"), response.header("Cache-Control"), response.header("Vary")),
                         ("sub/b.css", "private", "Cookie"))
        self.assertEqual(server.get("/varied/a.txt").all("Vary"), ["Cookie", "Accept-Encoding"])  # theirs and ours
        self.assertIsNone(server.get("/own/none.txt").header("X-Path"))
        response = server.get("/own/a.txt")
        self.assertEqual([response.all(name) for name in ("Content-Type", "ETag", "Last-Modified")],
                         [["text/x-own"], ['"own"'], ["never"]])
        self.assertEqual(server.get("/own/bad.txt").status, 500)
        server.wait_log("no headers for bad.txt")

    # ---- changes ------------------------------------------------------------------------------------------------

    def test_a_replaced_file_is_served_soon(self):
        server = self.start()
        before = server.get("/plain/a.txt")
        new = self.write("new", b"other text")
        os.replace(new, os.path.join(self.public, "a.txt"))
        self.eventually(lambda: server.get("/plain/a.txt").text == "other text", "the new file is served")
        self.assertNotEqual(server.get("/plain/a.txt").header("ETag"), before.header("ETag"))
        os.remove(os.path.join(self.public, "a.txt"))
        self.eventually(lambda: server.get("/plain/a.txt").status == 404, "the file is gone")

    def test_a_second_change_with_the_time_of_the_first_is_served_soon(self):
        """The times of files have a granularity: of a tick of the kernel, on some file systems of 2 s."""
        server, path = self.start(), os.path.join(self.public, "a.txt")
        while True:
            self.write("a.txt", b"first text")
            first = os.stat(path).st_mtime_ns
            self.eventually(lambda: server.get("/plain/a.txt").text == "first text", "the first text is served")
            with open(path, "r+b") as out:
                out.write(b"other text")
            os.utime(path, ns=(first, first))
            if time.time_ns() - first < 1500000000:
                break  # else this machine was so slow that such a change cannot have the time of the first
        self.eventually(lambda: server.get("/plain/a.txt").text == "other text", "the second text is served")

    def test_a_file_that_is_replaced_while_it_is_sent_goes_on(self):
        server = self.start(files={"big.bin": big()})
        with server.connect(rcvbuf=4096) as conn:
            conn.send(request("GET", "/plain/big.bin"))
            head = conn.sock.recv(1000)
            new = self.write("new", b"x" * 1000)
            if WINDOWS:
                return  # an open file cannot be replaced
            os.replace(new, os.path.join(self.public, "big.bin"))
            self.eventually(lambda: server.get("/plain/big.bin").body == b"x" * 1000, "the new file is served")
            self.assertEqual(self.read_all(conn, head).split(b"\r\n\r\n", 1)[1], big())

    def test_a_file_in_memory_that_was_just_written_is_sent_as_it_was(self):
        """Until the cache examines the file again, the bytes and the tag are the old ones, also of a file that would be sent
        from the open file."""
        server = self.start(files={"some.bin": big(100000)})
        with server.connect() as conn:
            tags = {big(100000): conn.ask("GET", "/plain/some.bin").header("ETag")}
            if not WINDOWS:  # the open file is looked at once per tick of this clock
                tick = time.clock_gettime_ns(CLOCK_MONOTONIC_COARSE)
                while time.clock_gettime_ns(CLOCK_MONOTONIC_COARSE) - tick < 1000000:
                    pass
            with open(os.path.join(self.public, "some.bin"), "r+b") as out:
                out.write(b"written")
            new = b"written" + big(100000)[7:]
            response, deadline = None, time.monotonic() + WAIT
            while response is None or response.body != new:  # for about a second
                self.assertLess(time.monotonic(), deadline)
                response = conn.ask("GET", "/plain/some.bin")
                self.assertIn(response.body, (big(100000), new))
                self.assertEqual(tags.setdefault(response.body, response.header("ETag")), response.header("ETag"))
            self.assertEqual(len(set(tags.values())), 2)

    def read_all(self, conn, begun):
        head, _, body = begun.partition(b"\r\n\r\n")
        length = int(re.search(rb"Content-Length: (\d+)", head).group(1))
        parts, got = [begun], len(body)
        while got < length:
            data = conn.sock.recv(1 << 20)
            self.assertTrue(data, "the connection was closed after %d of %d bytes" % (got, length))
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def test_a_file_that_changes_while_it_is_sent_ends_the_connection(self):
        for change in ("truncated", "written", "grown"):
            with self.subTest(change):
                server = self.start(files={"big.bin": big(40 * 1024 * 1024)})
                path = os.path.join(self.public, "big.bin")
                with server.connect(rcvbuf=4096) as conn:
                    conn.send(request("GET", "/plain/big.bin"))
                    got = conn.sock.recv(1000)
                    if change == "truncated":
                        os.truncate(path, 1000)
                    elif change == "grown":
                        with open(path, "ab") as out:
                            out.write(b"more")
                    else:
                        with open(path, "r+b") as out:
                            out.write(b"changed" * 1000)
                            out.seek(30 * 1024 * 1024)
                            out.write(b"changed" * 1000)
                    parts = [got]
                    with contextlib.suppress(ConnectionResetError):
                        while True:
                            parts.append(conn.sock.recv(1 << 20))
                            if not parts[-1]:
                                break
                body = b"".join(parts).partition(b"\r\n\r\n")[2]
                # Bytes that were handed to the system before the change may be sent after it (sendfile(2)), no others.
                self.assertLess(len(body), 30 * 1024 * 1024)
                self.assertEqual(server.get("/plain/a.txt").text, "0123456789")
                server.stop()

    @unittest.skipIf(ENGINE == "http.sys", "http.sys has TLS of its own")
    def test_a_file_that_is_rewritten_in_its_place_is_opened_anew(self):
        """Cached, and too large to be kept in memory: no request of the time in which an entry is fresh ends without a byte."""
        server = self.serve(REWRITTEN % {"folder": self.folder()}, listeners=2, flags=("--threads", "2"))
        context = tls.context()
        plain = http.client.HTTPConnection("127.0.0.1", server.port(), timeout=WAIT)
        secure = http.client.HTTPSConnection("127.0.0.1", server.port(1), timeout=WAIT, context=context)

        def ask(conn, target, **fields):
            conn.request("GET", target, headers=fields)
            response = conn.getresponse()
            return response.status, response.read(), response.headers["ETag"]

        tags = set()
        for conn in (plain, secure):
            self.addCleanup(conn.close)
            for target in ("/static/big.bin", "/file", "/chained/file"):
                for size in (200000, 300000):
                    old = ask(conn, target)[1]
                    new = bytes([(old[0] + 1) & 255]) * size  # another size, or the same one
                    with open(self.path, "r+b" if len(old) == size else "wb") as out:
                        out.write(new)
                    status, body, tag = ask(conn, target)
                    self.assertEqual((status, body == new), (200, True), (conn, target, size))
                    self.assertNotIn(tag, tags)
                    tags.add(tag)
                    self.assertEqual(ask(conn, target, Range="bytes=10-19", **{"If-Range": tag})[:2], (206, new[:10]))
                    self.assertEqual(ask(conn, target, **{"If-None-Match": tag})[0], 304)

    @unittest.skipIf(ENGINE == "http.sys", "http.sys has TLS of its own")
    def test_a_file_that_is_rewritten_while_requests_run(self):
        """Each answer is whole, or a 503, or is cut after its begin; none is empty."""
        server = self.serve(REWRITTEN % {"folder": self.folder()}, listeners=2, flags=("--threads", "2"))
        stop, statuses = threading.Event(), set()

        def rewrite():
            fill = 0
            while not stop.is_set():
                fill = (fill + 1) & 127
                with open(self.path, "r+b") as out:
                    out.write(bytes([fill]) * 200000)

        writer = threading.Thread(target=rewrite)
        writer.start()
        try:
            for index in range(repeats(200)):
                with server.connect() as conn:
                    conn.send(request("GET", "/file" if index % 2 else "/static/big.bin"))
                    begin = conn.sock.recv(12)
                    self.assertIn(begin, (b"HTTP/1.1 200", b"HTTP/1.1 503"))
                    statuses.add(begin)
        finally:
            stop.set()
            writer.join()
        self.assertIn(b"HTTP/1.1 200", statuses)

    @unittest.skipIf(ENGINE == "http.sys", "http.sys has TLS of its own")
    def test_a_file_that_changes_before_its_response_is_sent_is_a_503(self):
        server = self.serve(REWRITTEN % {"folder": self.folder()}, listeners=2, flags=("--threads", "2"))
        context = tls.context()
        for port, wrap in ((0, lambda sock: sock), (1, context.wrap_socket)):
            for fields in ((), (("Connection", "close"),)):
                with socket.create_connection(("127.0.0.1", server.port(port)), WAIT) as sock, wrap(sock) as conn:
                    conn.sendall(request("GET", "/changes", fields))
                    got = b""
                    while part := conn.recv(65536):
                        got += part
                self.assertTrue(got.startswith(b"HTTP/1.1 503 Service Unavailable\r\n"), got[:200])
                self.assertTrue(got.endswith(b"\r\n\r\nService Unavailable: the file has changed\n"), got[-200:])

    @unittest.skipIf(ENGINE == "http.sys", "http.sys has TLS of its own")
    def test_over_tls(self):
        """The bytes of a file are read, because they are encrypted in the process."""
        folder = self.new_folder()
        path, whole = os.path.join(folder, "big.bin"), big(40 * 1024 * 1024)
        write_bytes(path, whole)
        server = self.serve(app_site("""
app:static("/", (...))
""", 'tls = "self-signed"'), args=(folder.replace("\\", "/"),), flags=("--threads", "2"))
        context = tls.context()
        conn = http.client.HTTPSConnection("127.0.0.1", server.port(), timeout=WAIT, context=context)
        self.addCleanup(conn.close)
        for fields, status, body in (({}, 200, whole), ({"Range": "bytes=65530-65545"}, 206, whole[65530:65546])):
            conn.request("GET", "/big.bin", headers=fields)
            response = conn.getresponse()
            self.assertEqual((response.status, response.read()), (status, body))
        conn.request("GET", "/big.bin")  # a file that changes while it is sent
        response = conn.getresponse()
        begun = response.read(1000)
        with open(path, "r+b") as out:
            out.write(b"changed" * 1000)
            out.seek(len(whole) // 2)
            out.write(b"changed" * 1000)
        with self.assertRaises((http.client.IncompleteRead, ssl.SSLError, ConnectionError)) as cut:
            response.read()
        rest = cut.exception.partial if isinstance(cut.exception, http.client.IncompleteRead) else b""
        self.assertTrue(whole.startswith(begun + rest))  # not one byte of the new file
        conn.close()

    # ---- wrong calls --------------------------------------------------------------------------------------------
