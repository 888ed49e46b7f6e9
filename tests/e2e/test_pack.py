"""luaserve pack: a packed program serves from its own file, from any folder; what it finds, lists and refuses."""
# sanitizers: asan; one thread packs
# wine: none; the programs that it makes would have to be started by Wine
import gzip
import json
import os
import re
import shutil
import subprocess
import unittest
import zipfile

from harness import E2E, LUASERVE, WAIT, WINDOWS, read_bytes, write_bytes, write_text
from harness.server import has_sqlite
from harness.websocket import WebSocket

EXE = ".exe" if WINDOWS else ""
TOKEN = "token-of-this-test"
SITE = """
local ls = require "luaserve"
local app = ls.app()
local greet = require "lib.greet"
local views = ls.templates("views")
app:static("/files", "public", { list = true })
local name = ...
app:get("/", function() return greet(name or "nobody") end)
app:get("/late", function() return require "late" end)
app:get("/page", function(req, res) return res:render("page.html", { name = "ada" }) end)
app:get("/read", function() return ls.file.read("data/words.txt") or "no file" end)
app:get("/list", function() return table.concat(ls.file.list("data"), " ") end)
app:get("/write", function()
  local _, why = ls.file.write("data/words.txt", "x")
  local _, missing = ls.file.write("data/new.txt", "x")
  return why .. "; " .. missing .. "; " .. tostring(ls.file.write("made.txt", "made"))
end)
app:get("/dofile", function() return dofile("lib/value.lua") end)
app:get("/dir", function() return ls.dir end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
"""
PAGE = b"<p>a page of words</p>\n" * 3000  # 69,000 bytes: from the file, not from memory
FILES = {
    "site.lua": SITE.lstrip().encode(),
    "lib/greet.lua": b'return function(name) return "hello " .. name end\n',
    "lib/value.lua": b'return "a value"\n',
    "late.lua": b'-- require "in_a_comment"\nlocal text = [[require "in_a_text"]]\nreturn "late" .. require("later")\n',
    "later.lua": b'return "r"\n',
    "views/page.html": b"<p>{{name}}</p>\n",
    "public/page.html": PAGE,
    "public/small.txt": b"small\n",
    "public/.hidden": b"hidden\n",
    "data/words.txt": b"words\n",
}


def run(*args, cwd, program=LUASERVE):
    return subprocess.run([program, *args], capture_output=True, text=True, cwd=cwd, timeout=4 * WAIT, stdin=subprocess.DEVNULL,
                          env={**os.environ, "API_TOKEN": TOKEN}, check=False)


NAMES = """
local ls = require "luaserve"
local app = ls.app()
local function call(with, name)
  local fine, value = pcall(with, name)
  return fine and value or "none"
end
app:get("/require/:name", function(req) return call(require, req.params.name) end)
app:get("/dofile/:name", function(req) return call(dofile, req.params.name .. ".lua") end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
"""
CALLS = """
local ls = require "luaserve"
ls.init(function()
  pcall(require, "optional")
  pcall(require, "absent")
  dofile("calls/one.lua")
  pcall(dofile, 'calls/two.lua')
  local three = loadfile "calls/three.lua"
  local four = loadfile("calls/four.lua")
  require("plug." .. three())
  require(four())
end)
"""
NO_DATA = "".join("luaserve pack: site.lua:%d: ls.file.%s, which is not inside: name it on the command line, put it beside the program, "
                  "or leave it out with --without %s\n" % line for line in ((10, "read reads data/words.txt", "data/words.txt"),
                                                                            (11, "list reads data", "data")))
KEY = b"-----BEGIN " + b"PRIVATE KEY-----\n"


class Pack(E2E):
    def folder_of(self, files=None):
        folder = self.new_folder()
        for name, data in (files or FILES).items():
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            write_bytes(os.path.join(folder, name), data)
        return folder

    def pack(self, folder, *words, to=None, stderr=""):
        """The path of the packed program, in a folder of its own."""
        app = (to or self.new_folder()) + "/app" + EXE
        done = run("pack", "site.lua", *words, "-o", app, cwd=folder)
        self.assertEqual((done.returncode, done.stderr), (0, stderr), done.stdout)
        return app

    def serve_packed(self, app, *flags, arguments="x", **kw):
        return self.serve(None, site_path=arguments, program=[app], flags=flags, **{"cwd": self.new_folder(), **kw})

    def test_a_built_in_module_that_the_system_has_too(self):
        others = self.new_folder()
        write_bytes(others + "/cjson.so", b"")
        os.environ["LUA_CPATH"] = others + "/?.so"
        self.addCleanup(os.environ.pop, "LUA_CPATH")
        self.pack(self.folder_of(), "data")

    def test_a_site_with_all_kinds_of_files(self):
        folder = self.folder_of()
        app = self.pack(folder, "data")
        shutil.rmtree(folder)
        server = self.serve_packed(app, arguments="ada")
        for path, text in (("/", "hello ada"), ("/late", "later"), ("/page", "<p>ada</p>\n"), ("/read", "words\n"),
                           ("/list", "words.txt"), ("/dofile", "a value"), ("/dir", os.path.dirname(app)),
                           ("/write", "data/words.txt: is inside the packed program, and cannot be changed; data/new.txt: its folder "
                            "is only inside the packed program; ls.file.mkdir with parents = true makes it outside; true")):
            answer = server.get(path)
            self.assertEqual((answer.status, answer.text.replace("\\", "/")), (200, text), path)
        self.assertEqual(read_bytes(os.path.dirname(app) + "/made.txt"), b"made")

    def test_static_files_with_conditions_ranges_and_forms(self):
        app = self.pack(self.folder_of(), "data")
        server = self.serve_packed(app)
        page = server.get("/files/page.html")
        tag = page.header("ETag")
        self.assertEqual((page.status, page.body, page.header("Content-Type")), (200, PAGE, "text/html; charset=utf-8"))
        self.assertRegex(tag, r'^"[0-9a-f-]+"$')
        self.assertIsNone(page.header("Last-Modified"))
        self.assertEqual(server.get("/files/page.html", (("If-None-Match", tag),)).status, 304)
        part = server.get("/files/page.html", (("Range", "bytes=50000-50009"), ("If-Range", tag)))
        self.assertEqual((part.status, part.body), (206, PAGE[50000:50010]))
        last = server.get("/files/page.html", (("Range", "bytes=-4"),))
        self.assertEqual((last.status, last.body), (206, PAGE[-4:]))
        form = server.get("/files/page.html", (("Accept-Encoding", "gzip"),))
        self.assertEqual((form.header("Content-Encoding"), gzip.decompress(form.body)), ("gzip", PAGE))
        self.assertNotEqual(form.header("ETag"), tag)
        small = server.get("/files/small.txt", (("Accept-Encoding", "gzip"),))
        self.assertEqual((small.header("Content-Encoding"), small.body), (None, b"small\n"))
        self.assertEqual(server.get("/files/.hidden").status, 404)
        self.assertEqual(server.get("/files/none.txt").status, 404)
        listing = server.get("/files/").text
        self.assertEqual(re.findall(r'href="([^"]+)"', listing), ["../", "page.html", "small.txt"])

    def test_an_overlay_and_reload(self):
        app = self.pack(self.folder_of(), "data")
        beside, overlay = os.path.dirname(app), self.new_folder()
        for folder in (beside, overlay):
            os.makedirs(folder + "/public")
            write_text(folder + "/public/small.txt", "of the disk\n")
            write_text(folder + "/public/new.txt", "new\n")
        self.assertEqual(self.serve_packed(app).get("/files/small.txt").text, "small\n")
        server = self.serve_packed(app, "--overlay", overlay)
        self.assertEqual(server.get("/files/small.txt").text, "of the disk\n")
        self.assertEqual(server.get("/files/new.txt").text, "new\n")
        self.assertEqual(server.get("/files/page.html").body, PAGE)
        self.assertEqual(re.findall(r'href="([^"]+)"', server.get("/files/").text), ["../", "new.txt", "page.html", "small.txt"])
        refused = run("--overlay", "none", cwd=beside, program=app)
        self.assertEqual((refused.returncode, refused.stderr),
                         (2, "luaserve: cannot use --overlay none: not found\n"))

    def test_modules_come_from_the_overlay_inside_and_beside_but_not_from_the_working_directory(self):
        folders = {}
        for name in ("inside", "overlay", "beside", "here"):
            own = {"site.lua": NAMES.encode()} if name == "inside" else {}
            text = b'return "%s"' % name.encode()
            folders[name] = self.folder_of({**own, "both.lua": text, name + ".lua": text})
        app = self.new_folder() + "/app" + EXE
        done = run("pack", "site.lua", "both.lua", "inside.lua", "-o", app, cwd=folders["inside"])
        self.assertEqual(done.returncode, 0, done.stderr)
        shutil.copy(folders["beside"] + "/beside.lua", os.path.dirname(app))
        for flags, first in (((), "inside"), (("--overlay", folders["overlay"]), "overlay")):
            server = self.serve_packed(app, *flags, cwd=folders["here"])
            for name, value in (("both", first), ("inside", "inside"), ("overlay", "overlay" if flags else "none"),
                                ("beside", "beside"), ("here", "none")):
                for call in ("require", "dofile"):
                    self.assertEqual(server.get("/%s/%s" % (call, name)).text, value, (flags, call, name))

    def test_calls_that_load_files_later(self):
        names = {"optional.lua", "calls/one.lua", "calls/two.lua", "calls/three.lua", "plug/a.lua", "needed.lua"}
        folder = self.folder_of({**{name: b"return 1\n" for name in names}, "site.lua": CALLS.encode(),
                                 "plug/a.lua": b'require "needed"\n'})
        notes = "".join("luaserve pack: %s\n" % line for line in (
            "the module absent, which site.lua:5 requires by pcall, is not found: it is not inside",
            "site.lua:9 loads the file calls/four.lua, which is not in the folder of the site: it is not inside",
            "site.lua:11: the argument of require is computed: name the files that it loads later on the command line"))
        with zipfile.ZipFile(self.pack(folder, "plug", stderr=notes)) as archive:
            self.assertEqual(set(archive.namelist()), names | {"site.lua"})
        done = run("pack", "site.lua", "-o", "app2", cwd=folder)
        self.assertIn("site.lua:10 requires modules whose names begin with plug.: name their folder, plug, on the command "
                      "line, or leave them out with --without plug.\n", done.stderr)
        self.assertEqual(run("pack", "site.lua", "-o", "app2", "--without", "plug.", cwd=folder).returncode, 0)

    def test_a_module_that_the_site_has_loaded_is_left_out(self):
        for name in "lib.greet", "lib/greet.lua":
            with zipfile.ZipFile(self.pack(self.folder_of(), "data", "lib/value.lua", "--without", name)) as archive:
                self.assertNotIn("lib/greet.lua", archive.namelist(), name)

    def test_files_that_handlers_read_by_name_are_reported(self):
        """The program would find them in the folder of the project only."""
        site = """local ls = require "luaserve"
local file = ls.file
local function handler(req, res)
  res:file("data/a.txt")
  file.lines 'data/b.txt'
  ls.file.stat("data/inside.txt")
  ls.file.read("data/absent.txt")
  ls.file.read("data/" .. req.path)
  ls.file.write("data/a.txt", "x")
  io.open("data/a.txt", "w")
  io.open("data/inside.txt", "r")
  ls.file.read("data/left.txt") -- ls.file.read("data/c.txt")
  require "late"
end
ls.listen(0, ls.app())
"""
        names = {"data/%s.txt" % name: b"x" for name in ("a", "b", "c", "d", "inside", "left")}
        folder = self.folder_of({**names, "site.lua": site.encode(), "late.lua": b'return io.lines "data/d.txt"\n'})
        what = "%s, which is not inside: name it on the command line, put it beside the program, or leave it out with --without %s"
        disk = "%s, on the disk only: use ls.file.read, or put it beside the program"
        self.pack(folder, "data/inside.txt", "--without", "data/left.txt", stderr="".join("luaserve pack: %s\n" % line for line in (
            "site.lua:4: res:file reads " + what % (("data/a.txt",) * 2),
            "site.lua:5: ls.file.lines reads " + what % (("data/b.txt",) * 2), "site.lua:11: io.open opens " + disk % "data/inside.txt",
            "late.lua:1: io.lines opens " + disk % "data/d.txt")))

    @unittest.skipIf(WINDOWS, "of another system: links need a right, and there are no named pipes in folders")
    def test_links_out_of_a_folder_and_pipes_are_left_out(self):
        folder = self.folder_of()
        for to, name in (("../data/words.txt", "out"), ("/etc", "etc"), (".", "loop"), ("none", "nowhere"),
                         ("small.txt", "in.txt")):
            os.symlink(to, folder + "/public/" + name)
        os.mkfifo(folder + "/public/pipe")
        app = self.pack(folder, ".", stderr="".join("luaserve pack: public/%s: it is not inside\n" % line for line in (
            "etc is a link that leads out of its folder", "loop is a link to a folder that it lies in",
            "nowhere is a link that leads nowhere", "out is a link that leads out of its folder",
            "pipe is a device, a pipe or a socket")))
        server = self.serve_packed(app)
        for name, status in (("out", 404), ("etc/hostname", 404), ("in.txt", 200)):
            self.assertEqual(server.get("/files/" + name).status, status, name)

    def test_what_is_private_or_would_not_be_found_is_refused(self):
        site = SITE + 'ls.dict("counts", { file = "data/counts.db" })\n' if has_sqlite() else SITE
        site += 'local own = io.open("data/words.txt")\nif own then own:close() end\n'
        folder = self.folder_of({**FILES, "site.lua": site.lstrip().encode(), "keys/a.pem": b"x\n" + KEY, "data/counts.db": b""})
        opened = ("luaserve pack: the site opens data/words.txt by io.open, which reads the disk only: use ls.file.read, or "
                  "put it beside the program\n")
        self.pack(folder, "keys/a.pem", stderr=NO_DATA + opened)
        self.pack(folder, "keys", "--without", "keys/a.pem", stderr=NO_DATA + opened)
        for name, why in (("keys/a.pem", "is a private key, which all who have the program could read"),
                          *([("data/counts.db", "is the file of a dict, data/counts.db, which the site uses on the disk")]
                            if has_sqlite() else [])):
            done = run("pack", "site.lua", os.path.dirname(name), "-o", "app2", cwd=folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn("%s %s: leave it out with --without %s, or move it to another place" % (name, why, name), done.stderr)

    def test_an_output_that_is_another_file_is_refused(self):
        folder = self.folder_of({**FILES, ".env": b"A=1\n"})
        app = self.pack(folder, to=folder, stderr=NO_DATA)
        self.assertEqual(run("pack", "site.lua", ".", "-o", app, cwd=folder).returncode, 0)
        with zipfile.ZipFile(app) as archive:
            self.assertNotIn(os.path.basename(app), archive.namelist())
        names = ["site.lua", "./lib/../site.lua", "data/words.txt", ".env", "public/page.html"]
        if not WINDOWS:
            os.symlink("site.lua", folder + "/link")
            names.append("link")
        for name in names:
            before = read_bytes(folder + "/" + name)
            done = run("pack", "site.lua", ".", "-o", name, cwd=folder)
            self.assertEqual((done.returncode, done.stderr), (1, "luaserve pack: the output, %s, exists and is no packed program: "
                                                              "give it another name, or remove that file\n" % name))
            self.assertEqual(read_bytes(folder + "/" + name), before)

    def test_the_same_input_gives_the_same_bytes(self):
        other = shutil.copy(LUASERVE, self.new_folder() + "/other")
        first, second, third = (self.pack(self.folder_of(), "data", *words) for words in ((), (), ("--target", other)))
        self.assertEqual(read_bytes(first), read_bytes(second))
        self.assertEqual(read_bytes(first), read_bytes(third))

    def test_the_archive_can_be_read_by_others(self):
        app = self.pack(self.folder_of(), "data")
        with zipfile.ZipFile(app) as archive:
            self.assertIsNone(archive.testzip())
            names = archive.namelist()
            self.assertEqual(names, sorted(names))
            made = {"public/page.html.gz"} | {name for name in names if name.endswith(".br")}
            self.assertEqual(set(names) - made, set(FILES) - {"public/.hidden"})
            self.assertEqual(archive.read("public/page.html"), PAGE)
            place = archive.getinfo("public/page.html")
            head = place.header_offset + 30 + len("public/page.html")
            data = read_bytes(app)
            self.assertEqual((head + int.from_bytes(data[head - len("public/page.html") - 2:][:2], "little")) % 4096, 0)
        listed = run("--packed", cwd=os.path.dirname(app), program=app).stdout
        self.assertRegex(listed, r"\n +69000  [0-9a-f]{16}  text/html +public/page\.html\n")
        self.assertIn("public/page.html.gz (made by luaserve pack)\n", listed)

    def test_options_and_arguments(self):
        app = self.pack(self.folder_of(), "data")
        where = self.new_folder()
        self.assertIn("usage: app%s [options] [arguments of the site...]" % EXE, run("--help", cwd=where, program=app).stdout)
        self.assertIn("luaserve ", run("--version", cwd=where, program=app).stdout)
        self.assertIn("/site.lua: ok\n", run("--check", cwd=where, program=app).stdout.replace("\\", "/"))
        self.assertIn("unknown option --pakced", run("pack", "--pakced", cwd=where).stderr)
        server = self.serve_packed(app, "--threads", "1", "--", arguments="--name")
        refused = run("--log-levle", "warn", cwd=where, program=app)
        self.assertEqual((refused.returncode, refused.stderr.splitlines()[0]), (
            2, "app%s: unknown option --log-levle; did you mean --log-level?; arguments of the site that begin with - come "
            "after --" % EXE))
        self.assertEqual(server.get("/").text, "hello --name")

    def test_a_damaged_program_does_not_start(self):
        app = self.pack(self.folder_of(), "data")
        whole = read_bytes(app)
        middle, end = len(whole) // 3, len(whole) - 10
        inside = (os.path.getsize(LUASERVE) + len(whole)) // 2  # a program that is itself cut is one that no system starts
        for data, why in ((whole[:-1], "is truncated"), (whole[:inside], "is truncated"), (whole + b"x", "was appended"),
                          (whole[:end] + bytes([whole[end] ^ 1]) + whole[end + 1:], "is damaged"),
                          (whole.replace(b"hello ", b"hallo "), "is damaged"), (whole[:middle] + whole[middle:], None)):
            write_bytes(app, data)
            done = run("--check", cwd=os.path.dirname(app), program=app)
            self.assertEqual(done.returncode, 0 if why is None else 1, done.stderr)
            self.assertIn(why or "", done.stderr)

    def test_what_is_refused(self):
        folder = self.folder_of({**FILES, "other/small.txt": b"1", "sub/small.txt": b"2", "bad.lua": b'local ls = require "luaserve"\n'
                                 b'ls.init(function()\n  require "nosuch"\nend)\n', "worse.lua": b'require "lib.none"\n',
                                 "lib/none.lua": b'\nrequire "nosuch"\n'})
        app = self.pack(folder, "data", to=folder)
        os.mkdir(folder + "/big")
        with open(folder + "/big/video", "wb") as video:
            video.truncate(0 if WINDOWS else 5000000000)
        outside = self.folder_of({"a/x.txt": b"1", "b/x.txt": b"2"})
        for words, why in (
                (("site.lua",), "no output given"), ((), "no site given"),
                (("none.lua", "-o", "app2"), "cannot open none.lua"),
                (("bad.lua", "-o", "app2"), "bad.lua:3 requires the module nosuch, which is not in"),
                (("worse.lua", "-o", "app2"), "none.lua:2: module 'nosuch' not found"),
                (("site.lua", "none", "-o", "app2"), "there is no file or folder none"),
                (("site.lua", outside + "/a/x.txt", outside + "/b/x.txt", "-o", "app2"), "two files have the name x.txt inside: "),
                (("site.lua", "-o", "app2", "--target", app), "is packed already"),
                (("site.lua", "-o", "app2", "--target", "site.lua"), "is not a luaserve onto which files can be packed"),
                (("site.lua", "-o", "none/app2"), "cannot write none/app2: there is no folder none; make it first"),
                (("site.lua", "-o", "lib"), "the output, lib, is a folder: add the name of a file"),
                (("site.lua", "-o", "app2", "-o", "app3"), "-o is given twice"),
                (("site.lua", "-o", "app2", "--without", "nosuch"), "--without nosuch: no file, folder or module that would"),
                (("site.lua", "-o", "app2", "--without", "./site.lua"), "--without site.lua: it is the site"),
                (("site.lua", "-o", "app2", "--target", "lib"), "--target: there is no program lib"),
                ((".", "-o", "app2"), ". is a folder: give the file of the site, such as site.lua"),
                *(() if WINDOWS else ((("site.lua", "-o", "/dev/full"), "cannot write /dev/full, of"),
                                      (("site.lua", "big", "-o", "app2"), "big/video has 5000000000 bytes, but an archive 4294967295 at most")))):
            done = run("pack", *words, cwd=folder)
            self.assertNotEqual(done.returncode, 0, words)
            self.assertIn(why, done.stderr.replace("\\", "/"))
            self.assertFalse(os.path.exists(folder + "/app2"))
        done = run("pack", "bad.lua", "-o", "app3", "--without", "nosuch", cwd=folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_sites_of_luaserve_new(self):
        for template in ("api", "chat", "tcp", "web"):
            where = self.new_folder()
            self.assertEqual(run("new", "my-site", "--template", template, cwd=where).returncode, 0)
            app = self.pack(where + "/my-site")
            shutil.rmtree(where)
            server = self.serve_packed(app, arguments="0" if template == "tcp" else "127.0.0.1:0", env={"API_TOKEN": TOKEN})
            if template == "chat":
                self.assertEqual(server.get("/").header("Content-Type"), "text/html; charset=utf-8")
                with WebSocket(server.addresses[0], "/live?room=lobby&name=ada") as ws:
                    self.assertEqual(json.loads(ws.receive()), {"messages": []})
            elif template == "web":
                self.assertEqual(server.get("/login").status, 200)
                self.assertEqual(server.get("/public/style.css").header("Content-Type"), "text/css; charset=utf-8")
                self.assertEqual(os.path.exists(os.path.dirname(app) + "/data/site.db"), has_sqlite())
            elif template == "api":
                self.assertEqual(server.get("/items", (("Authorization", "Bearer " + TOKEN),)).status, 200)
