"""ls.file: each function and each error, where it may be called, and that a slow or full device disturbs nobody else."""
# sanitizers: asan; unit.port.work and test_sqlite give work to other threads
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from harness import (E2E, SANITIZER, WAIT, WINDOWS, WINE, app_site, beside, in_parallel, many_files, not_on_windows,
                     read_bytes, repeats, run_program, scratch, write_bytes, write_text)

# Snippets run inside a handler; their results are a JSON list, in which false stands for nil.
SITE = r"""
local ls = require "luaserve"
local app = ls.app()
local top = ls.file.read("top.txt")
local env = setmetatable({ ls = ls, top = top }, { __index = _G })
app:post("/", function(req)
  local results = table.pack(pcall(assert(load(req:body(), "=snippet", "t", env))))
  for i = 1, results.n do if results[i] == nil then results[i] = false end end
  return ls.json.array(table.move(results, 1, results.n, 1, {}))
end)
app:get("/", function() return "hello" end)
app:get("/read/:name", function(req) return assert(ls.file.read(req.params.name)) end)
app:post("/write/:name", function(req) return tostring(assert(ls.file.write(req.params.name, req:buffer()))) end)
app:post("/append/:name", function(req) return tostring(assert(ls.file.write(req.params.name, req:body(), { append = true }))) end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.config{ threads = 2, max_cpu = 600 }
"""


class Files(E2E):
    server = None

    def start(self, site=SITE, files=None, modes=None, **kw):
        """The site is in a directory of its own, which is not the working directory."""
        self.dir = os.path.realpath(tempfile.mkdtemp(prefix="luaserve-files-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        path = os.path.join(self.dir, "site.lua")
        write_text(path, site)
        self.put("top.txt", b"from the top")
        for name, data in (files or {}).items():
            self.put(name, data)
        for name, mode in (modes or {}).items():
            os.chmod(os.path.join(self.dir, name), mode)
        self.server = self.serve(None, site_path=path, **kw)
        return self.server

    def put(self, name, data):
        write_bytes(os.path.join(self.dir, name), data)

    def content(self, name):
        return read_bytes(os.path.join(self.dir, name))

    def run_lua(self, code):
        """The results of pcall with the snippet."""
        response = self.ask("POST", "/", body=code.encode())
        self.assertEqual(response.status, 200, response.text + self.server.log())
        return json.loads(response.body)

    def returns(self, code, *values):
        self.assertEqual(self.run_lua(code), [True, *values], code)

    def fails(self, code, message, name):
        """nil, message, code"""
        self.assertEqual(self.run_lua(code), [True, False, message, name], code)

    def place(self, name):
        """A path in the message of a refusal."""
        return "%s (%s/%s)" % (name, self.dir, name)

    def raises(self, code, pattern):
        fine, message = self.run_lua(code)[:2]
        self.assertFalse(fine, code)
        self.assertRegex(message, "^snippet:1: " + pattern, code)

    def left(self):
        """Names of new files of a write that were left behind."""
        return [name for name in os.listdir(self.dir) if name.startswith(".luaserve-")]


class Functions(Files):
    def test_read(self):
        self.start()
        self.returns("return top", "from the top")
        self.returns("return ls.file.read('top.txt')", "from the top")
        self.returns("return ls.file.read(%r)" % (self.dir.replace("\\", "/") + "/top.txt"), "from the top")
        self.put("empty", b"")
        self.returns("return ls.file.read('empty')", "")
        self.returns("return ls.file.read('empty', 0)", "")
        for size in (1, 65534, 65535, 65536, 65537, 131072, 1000000):  # around the size that is read at once
            data = bytes((i * 7 + i // 251) & 255 for i in range(size))
            self.put("sized", data)
            self.assertEqual(self.get("/read/sized").body, data, size)
            self.returns("return #ls.file.read('sized', %d)" % size, size)
            self.fails("return ls.file.read('sized', %d)" % (size - 1),
                       "sized: has more than %d bytes, the limit `max`" % (size - 1), "ELIMIT")
        self.returns("return #ls.file.read('sized', '1m')", 1000000)
        self.put("bär.txt", b"with a name in UTF-8")
        self.returns("return ls.file.read('bär.txt')", "with a name in UTF-8")
        self.fails("return ls.file.read('none')", "none: not found", "ENOENT")
        self.fails("return ls.file.read('top.txt/x')", "top.txt/x: not found", "ENOENT")
        self.fails("return ls.file.read('.')", ".: is a directory", "EISDIR")
        self.fails("return ls.file.read(('x'):rep(5000))", "x" * 5000 + ": the path is too long", "ELIMIT")

    @not_on_windows("files of Linux")
    def test_read_what_has_no_size(self):
        self.start()
        with open("/proc/version", "rb") as version:
            self.returns("return ls.file.read('/proc/version')", version.read().decode())
        self.returns("return #ls.file.read('/proc/self/status') > 500", True)
        self.fails("return ls.file.read('/proc/version', 3)", "/proc/version: has more than 3 bytes, the limit `max`", "ELIMIT")
        for path in ("/dev/zero", "/dev/null", "pipe"):
            if path == "pipe":
                os.mkfifo(os.path.join(self.dir, path))
            self.fails("return ls.file.read('%s')" % path, path + ": is not a regular file", "ENOTSUP")

    def test_the_default_limit(self):
        self.start()
        with open(os.path.join(self.dir, "huge"), "wb") as out:
            out.truncate(64 * 1024 * 1024 + 1)
        self.fails("return ls.file.read('huge')", "huge: has more than 67108864 bytes, the limit `max`", "ELIMIT")
        os.truncate(os.path.join(self.dir, "huge"), 64 * 1024 * 1024)
        self.returns("return #ls.file.read('huge')", 64 * 1024 * 1024)

    def test_a_read_beyond_the_memory_of_a_state(self):
        self.start("local ls = require 'luaserve' ls.config{ max_memory = '8m', threads = 1 }\n" + SITE.replace("threads = 2, ", ""))
        with open(os.path.join(self.dir, "huge"), "wb") as out:
            out.truncate(20 * 1024 * 1024)
        for _ in range(5):
            fine, message = self.run_lua("return #ls.file.read('huge')")
            self.assertEqual((fine, message), (False, "snippet:1: ls.file.read: not enough memory"))
        self.returns("return ls.file.read('top.txt')", "from the top")

    def test_write(self):
        self.start()
        self.returns("return ls.file.write('a', 'one')", True)
        self.assertEqual(self.content("a"), b"one")
        self.returns("return ls.file.write('a', 12)", True)
        self.assertEqual(self.content("a"), b"12")
        self.returns("return ls.file.write('a', ' and more', { append = true })", True)
        self.returns("return ls.file.write('a', ls.buffer('!', ('x'):rep(3)), { append = true, sync = true })", True)
        self.assertEqual(self.content("a"), b"12 and more!xxx")
        self.returns("return ls.file.write('a', 'in place', { atomic = false })", True)
        self.returns("return ls.file.write('new', '', { sync = false })", True)
        self.assertEqual((self.content("a"), self.content("new")), (b"in place", b""))
        data = bytes((i * 7 + i // 251) & 255 for i in range(3000000))
        self.assertEqual(self.ask("POST", "/write/big", body=data).text, "true")
        self.assertEqual(self.content("big"), data)
        self.assertEqual(self.get("/read/big").body, data)
        self.fails("return ls.file.write('none/a', 'x')", "none/a: not found", "ENOENT")
        self.fails("return ls.file.write('.', 'x')", ".: is a directory", "EISDIR")
        self.assertEqual(self.left(), [])

    @not_on_windows("a system on which another user can be chosen")
    @unittest.skipIf(not hasattr(os, "getuid") or os.getuid() != 0, "only root can run the server as another user")
    def test_what_is_forbidden(self):
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        self.start(prefix=user, files={"secret": b"x", "open": b"old"}, modes={".": 0o755, "secret": 0o600, "open": 0o666})
        self.fails("return ls.file.read('secret')", self.place("secret") + ": permission denied", "EACCES")
        self.fails("return ls.file.write('secret', 'x', { atomic = false })", self.place("secret") + ": permission denied", "EACCES")
        self.fails("return ls.file.write('secret', 'x', { append = true })", self.place("secret") + ": permission denied", "EACCES")
        self.fails("return ls.file.remove('secret')", self.place("secret") + ": permission denied", "EACCES")
        self.fails("return ls.file.rename('secret', 'b')", self.place("secret") + ": to b: permission denied", "EACCES")
        self.fails("return ls.file.mkdir('new')", self.place("new") + ": permission denied", "EACCES")
        self.fails("return ls.file.write('open', 'new')", self.place("open") + ": permission denied for a new file in its directory; "
                   "atomic = false writes to the file itself", "EACCES")
        self.returns("return ls.file.write('open', 'new', { atomic = false })", True)
        self.assertEqual(self.content("open"), b"new")

    def test_stat(self):
        self.start()
        os.utime(os.path.join(self.dir, "top.txt"), ns=(0, 981173106500000000))
        self.returns("return ls.file.stat('top.txt')", {"type": "file", "size": 12, "mtime": 981173106.5})
        os.mkdir(os.path.join(self.dir, "sub"))
        self.returns("local s = ls.file.stat('sub') return s.type, s.size", "directory", 0)
        self.fails("return ls.file.stat('none')", "none: not found", "ENOENT")
        if not WINDOWS:
            self.returns("return ls.file.stat('/dev/null').type", "other")

    def test_list(self):
        self.start()
        os.mkdir(os.path.join(self.dir, "sub"))
        self.returns("return ls.file.list('sub')", [])
        for name in ("b", "a", "Z", "ä", ".hidden"):
            self.put("sub/" + name, b"x")
        os.mkdir(os.path.join(self.dir, "sub", "c"))
        names = sorted((".hidden", "Z", "a", "b", "c", "ä"), key=os.fsencode)
        if not WINDOWS:
            os.symlink("nowhere", os.path.join(self.dir, "sub", "link"))
            names.insert(names.index("ä"), "link")
        self.returns("return ls.file.list('sub')", names)
        fine, details = self.run_lua("return ls.file.list('sub', { details = true })")
        self.assertTrue(fine)
        self.assertEqual([one["name"] for one in details], names)
        kinds = {one["name"]: (one["type"], one["size"]) for one in details}
        self.assertEqual((kinds["a"], kinds["c"]), (("file", 1), ("directory", 0)))
        self.assertEqual(kinds.get("link", ("other", 0)), ("other", 0))
        self.fails("return ls.file.list('top.txt')", "top.txt: is not a directory", "ENOTDIR")
        self.fails("return ls.file.list('none')", "none: not found", "ENOENT")

    @not_on_windows("directories of 100000 files that are listed within the time of a test: Wine 8 takes over 40 s")
    def test_list_has_a_limit(self):
        self.start()
        os.mkdir(os.path.join(self.dir, "sub"))
        many_files(os.path.join(self.dir, "sub"), 100000)
        self.returns("return #ls.file.list('sub')", 100000)
        self.put("sub/more", b"")
        self.fails("return ls.file.list('sub')", "sub: has more than 100000 names", "ELIMIT")

    def test_directories(self):
        self.start()
        self.returns("return ls.file.mkdir('a')", True)
        self.fails("return ls.file.mkdir('a')", "a: already exists", "EEXIST")
        self.fails("return ls.file.mkdir('b/c')", "b/c: no directory above it; parents = true makes them", "ENOENT")
        self.returns("return ls.file.mkdir('b/c/d', { parents = true })", True)
        self.returns("return ls.file.mkdir('b/c/d', { parents = true })", True)
        self.returns("return ls.file.mkdir('b/c/../e/f/', { parents = true })", True)
        self.fails("return ls.file.mkdir('top.txt', { parents = true })", "top.txt: already exists", "EEXIST")
        self.fails("return ls.file.remove('b')", "b: the directory is not empty", "ENOTEMPTY")
        self.returns("return ls.file.remove('b/e/f')", True)
        self.put("b/c/file", b"x")
        if not WINDOWS:
            os.symlink("..", os.path.join(self.dir, "b", "c", "up"))  # a link is removed, not what it leads to
        self.returns("return ls.file.remove('b', { recursive = true })", True)
        self.returns("return ls.file.remove('a', { recursive = true })", True)
        self.assertEqual(sorted(os.listdir(self.dir)), ["site.lua", "top.txt"])
        self.fails("return ls.file.remove('b')", "b: not found", "ENOENT")
        self.fails("return ls.file.remove('b', { recursive = true })", "b: not found", "ENOENT")
        self.returns("return ls.file.remove('top.txt')", True)

    def test_rename(self):
        self.start(files={"a": b"new", "b": b"old"})
        os.mkdir(os.path.join(self.dir, "d"))
        self.returns("return ls.file.rename('a', 'b')", True)
        self.assertEqual(self.content("b"), b"new")
        self.returns("return ls.file.rename('b', 'd/b')", True)
        self.returns("return ls.file.rename('d', 'e')", True)
        self.assertEqual(self.content("e/b"), b"new")
        self.fails("return ls.file.rename('none', 'x')", "none: to x: not found", "ENOENT")
        self.fails("return ls.file.rename('e/b', 'none/b')", "e/b: to none/b: not found", "ENOENT")
        os.mkdir(os.path.join(self.dir, "f"))
        self.fails("return ls.file.rename('e/b', 'f')", "e/b: to f: is a directory", "EISDIR")
        if not WINDOWS:
            self.fails("return ls.file.rename('f', 'e')", "f: to e: the directory is not empty", "ENOTEMPTY")
            self.fails("return ls.file.rename('f', 'e/b')", "f: to e/b: is not a directory", "ENOTDIR")
            if os.path.isdir("/dev/shm") and os.stat("/dev/shm").st_dev != os.stat(self.dir).st_dev:
                self.fails("return ls.file.rename('e/b', '/dev/shm/luaserve-never')",
                           "e/b: to /dev/shm/luaserve-never: on another file system", "EXDEV")

    def test_lines(self):
        self.start()
        lines = "local all = {} for line in ls.file.lines('lines'%s) do all[#all + 1] = line end return #all, table.concat(all, '|')"
        for text, count, shown in (("", 0, ""), ("a", 1, "a"), ("a\n", 1, "a"), ("a\nb", 2, "a|b"), ("\n\n", 2, "|"),
                                   ("a\r\nb\rc\r\n\r\nd\r", 4, "a|b\rc||d")):
            self.put("lines", text.encode())
            self.returns(lines % "", count, shown)
        for size in (65534, 65535, 65536, 65537, 200000):  # around the size of a part
            self.put("lines", b"x" * size + b"\r\n" + b"y" * size + b"\nz")
            self.returns("local all = {} for line in ls.file.lines('lines') do all[#all + 1] = #line .. line:sub(-1) end return all",
                         ["%dx" % size, "%dy" % size, "1z"])
            self.returns(lines.replace("return #all, table.concat(all, '|')", "return #all") % (", %d" % size), 3)
            self.raises(lines % (", %d" % (size - 1)),
                        "ls.file.lines: lines: a line has more than %d bytes, the limit `max`" % (size - 1))
        self.put("lines", b"".join(b"%d\n" % n for n in range(100000)))
        self.returns("local n, sum = 0, 0 for line in ls.file.lines('lines') do n = n + 1 sum = sum + line end return n, sum",
                     100000, 4999950000)
        self.raises("for line in ls.file.lines('none') do end", "ls.file.lines: none: not found")
        self.raises("for line in ls.file.lines('.') do end", "ls.file.lines: .: is a directory")

    @not_on_windows("descriptors of a process")
    def test_lines_closes_its_file(self):
        self.start()
        self.put("lines", b"line\n" * 100000)
        before = self.quiet_fds()
        for end in ("break", "error('x')", "ls.sleep(0) return"):
            for _ in range(20):
                self.run_lua("for line in ls.file.lines('lines') do %s end" % end)
        self.run_lua("for n = 1, 50 do ls.file.lines('lines') end collectgarbage()")
        self.assertLessEqual(self.quiet_fds(), before)

    def test_wrong_arguments_raise_at_the_line_of_the_call(self):
        self.start()
        for name in ("read", "write", "stat", "list", "mkdir", "remove", "lines"):
            for value in ("nil", "12", "{}", "''", "'a\\0b'"):
                self.raises("ls.file.%s(%s, 'x')" % (name, value), "ls.file.%s: path must be a string" % name)
        self.raises("ls.file.rename('a')", "ls.file.rename: the second path must be a string")
        self.raises("ls.file.rename(1, 'a')", "ls.file.rename: the first path must be a string")
        for value in ("-1", "'x'", "{}", "true"):
            self.raises("ls.file.read('a', %s)" % value, "ls.file.read: max must be a number of bytes or a string such as \"10m\"")
        for value in ("nil", "{}", "true", "print", "io.stdout"):
            self.raises("ls.file.write('a', %s)" % value, "ls.file.write: data must be a string, a number or a buffer")
        self.raises("ls.file.write('a', 'b', { append = true, atomic = true })", "ls.file.write: append adds to the file itself")
        self.raises("ls.file.write('a', 'b', 'append')", "ls.file.write: options must be a table, such as")
        self.raises("ls.file.read('a', 1, 2)", "too many arguments for ls.file.read")
        self.raises("ls.file.stat('a', 1)", "too many arguments for ls.file.stat")
        self.raises("ls.file.reed('a')", "ls.file has no \"reed\"; did you mean 'read'")
        self.assertEqual(sorted(os.listdir(self.dir)), ["site.lua", "top.txt"])


class Served(Files):
    """What res:file and app:static send after a function of ls.file has returned, whichever state answers."""
    SITE = """
local ls = require "luaserve"
local app = ls.app()
ls.file.mkdir("public")
local function path(name) return "public/" .. name end
app:put("/:name", function(req)
  local options = req.query.append and { append = true } or { atomic = req.query.atomic ~= "no" }
  assert(ls.file.write(path(req.params.name), req:body(), options))
  return 201
end)
app:post("/part/:name", function(req)
  for part in req:parts() do assert(part:save(path(req.params.name))) end
  return 201
end)
app:post("/rename", function(req) assert(ls.file.rename(path(req.query.from), path(req.query.to))) return 201 end)
app:delete("/:name", function(req) assert(ls.file.remove(path(req.params.name))) return 201 end)
app:get("/file/*name", function(req, res) res:file(path(req.params.name)) end)
app:static("/static", "public")
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.config{ threads = 3 }
"""

    def begin(self):
        self.start(site=self.SITE)
        self.writer = self.connect()
        self.readers = [self.connect() for _ in range(6)]
        for conn in [self.writer, *self.readers]:
            self.addCleanup(conn.close)

    def change(self, method, target, headers=(), body=None):
        self.assertEqual(self.writer.ask(method, target, headers, body).status, 201, target)

    def sees(self, name, body):
        """They read at once: none gets the old bytes while another one examines the file. None: there is no file."""
        def read(n):
            response = self.readers[n].get(("/file/", "/static/")[n % 2] + name)
            return response.status, response.body if response.status == 200 else None

        got = in_parallel([lambda n=n: read(n) for n in range(len(self.readers))])
        self.assertEqual(got, [(404, None) if body is None else (200, body)] * len(self.readers), name)

    def test_each_write_is_seen(self):
        self.begin()
        self.sees("a", None)
        for n in range(50):
            body = b"%d" % n * (1 if n % 3 else 40000)  # in memory, and of several parts
            self.change("PUT", "/a" + ("?atomic=no" if n % 2 else ""), body=body)
            self.sees("a", body)
        self.change("PUT", "/a?append=yes", body=b"more")
        self.sees("a", body + b"more")

    def test_the_other_functions(self):
        self.begin()
        kind = (("Content-Type", "multipart/form-data; boundary=b"),)
        for n in range(10):
            body = b"part %d" % n
            self.change("POST", "/part/a", kind, b"--b\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\n" +
                        body + b"\r\n--b--\r\n")
            self.sees("a", body)
            self.sees("b", None)
            self.change("POST", "/rename?from=a&to=b")
            self.sees("a", None)
            self.sees("b", body)
            self.change("DELETE", "/b")
            self.sees("b", None)

    @not_on_windows("links")
    def test_other_names_of_the_file(self):
        self.begin()
        os.symlink("a", os.path.join(self.dir, "public", "link"))
        os.mkdir(os.path.join(self.dir, "public", "old"))
        for n in range(10):
            self.change("PUT", "/a", body=b"%d" % n)
            self.sees("link", b"%d" % n)
        self.put("public/old/f", b"f")
        self.sees("old/f", b"f")
        self.sees("new/f", None)
        self.change("POST", "/rename?from=old&to=new")
        self.sees("old/f", None)
        self.sees("new/f", b"f")


class Places(Files):
    """Where the functions may be called."""

    def test_everywhere(self):
        self.start(app_site(r"""
local function note(where) assert(ls.file.write("notes", where .. "\n", { append = true })) end
local first = ls.file.read("top.txt")
for line in ls.file.lines("top.txt") do assert(line == first) end
app:get("/", function()
  note("handler")
  return table.concat({ first, assert(ls.file.read("top.txt")), tostring(#assert(ls.file.list("."))) }, " ")
end)
ls.init(function() note("init") end)
ls.on("start", function() note("start") end)
ls.on("drain", function() note("drain") end)
ls.after(0.01, function() note("timer") end)
ls.on("log", function() ls.log.info("in the log hook:", select(2, pcall(ls.file.read, "top.txt"))) end)
app:get("/c", function()
  local _, inside = pcall(string.gsub, "x", "x", function() return ls.file.read("top.txt") end)
  local co = coroutine.wrap(function() coroutine.yield(ls.file.read("top.txt")) end)
  local lazy = setmetatable({}, { __index = function(_, name) return ls.file.read(name) end })
  return inside .. "|" .. co() .. "|" .. lazy["top.txt"] .. "|" .. ls.spawn(ls.file.read, "top.txt"):wait()
end)
assert(app:inject{ path = "/" }.body:find("^from the top from the top"))
ls.config{ threads = 1, states = 1 }
"""))
        self.assertRegex(self.get("/").text, "^from the top from the top [0-9]+$")
        parts = self.get("/c").text.split("|")
        self.assertIn("cannot wait here: the call is inside a C function", parts[0])
        self.assertEqual(parts[1:], ["from the top"] * 3)
        self.server.wait_log(r"in the log hook:\s.*site\.lua:\d+: ls\.file\.read: cannot wait here")
        self.eventually(lambda: len(self.content("notes").split()) >= 5, "the notes are written")
        server, self.server = self.server, None
        server.stop()
        self.assertEqual(sorted(set(self.content("notes").decode().split())), ["drain", "handler", "init", "start", "timer"])

    def test_in_luaserve_test(self):
        with scratch(**{"a_test.lua": """
local test, ls = require "luaserve.test", require "luaserve"
local text = ls.file.read("data.txt")
it("reads", function()
  assert(text == "data")
  assert(ls.file.write("copy.txt", text))
  assert(ls.file.read("copy.txt") == "data")
end)
""", "data.txt": "data"}) as folder:
            os.rename(os.path.join(folder, "a.test.lua"), os.path.join(folder, "a_test.lua"))
            status, out, err = run_program(["test", "--timeout", str(WAIT), "a_test.lua"], cwd=folder)
            self.assertEqual(status, 0, out + err)

    def test_at_the_top_a_failure_is_an_error_of_the_site(self):
        with scratch(site_lua='local page = assert(require("luaserve").file.read("page.html"))\n') as folder:
            status, _, err = run_program(["site.lua"], cwd=folder)
            self.assertEqual(status, 1)
            self.assertIn("page.html: not found", err)


# Loaded into the server: a read of a file whose name ends in .slow waits until the file $SLOW_GATE exists.
SLOW_DISK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
static void wait_for_gate(int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 5 || memcmp(path + n - 5, ".slow", 5) != 0) return;
    while (access(getenv("SLOW_GATE"), F_OK) != 0) usleep(2000);
}
#define READ(name) \
    ssize_t name(int fd, void *to, size_t len, off_t at) \
    { \
        static ssize_t (*next)(int, void *, size_t, off_t); \
        if (next == NULL) next = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, #name); \
        wait_for_gate(fd); \
        return next(fd, to, len, at); \
    }
READ(pread)
READ(pread64)
"""


@not_on_windows("LD_PRELOAD")
@unittest.skipIf(SANITIZER, "a library before that of the sanitizer")
class SlowDevice(Files):
    def start_slow(self, **kw):
        where = self.new_folder()
        source, library = os.path.join(where, "slow.c"), os.path.join(where, "slow.so")
        write_text(source, SLOW_DISK)
        subprocess.run(["cc", "-std=gnu11", "-O1", "-fPIC", "-shared", "-o", library, source, "-ldl"], check=True)
        self.gate = os.path.join(where, "gate")
        self.start(env={"LD_PRELOAD": library, "SLOW_GATE": self.gate}, files={"a.slow": b"slow" * 1000, "lines.slow": b"a\nb\n"}, **kw)

    def open_gate(self):
        write_text(self.gate, "")

    def test_readers_that_wait_delay_nobody(self):
        self.start_slow()
        answers = []
        with beside(*[lambda: answers.append(self.get("/read/a.slow").body)] * 200):
            self.eventually(lambda: self.server.sockets() >= 200, "the readers are connected")
            for _ in range(50):
                began = time.monotonic()
                self.assertEqual(self.get("/").text, "hello")
                self.assertLess(time.monotonic() - began, 2)
            self.assertEqual(answers, [])
            self.open_gate()
        self.assertEqual(answers, [b"slow" * 1000] * 200)

    def test_a_reload_lets_readers_end(self):
        self.start_slow()
        answers = []
        with beside(*[lambda: answers.append(self.get("/read/a.slow").body)] * 20):
            self.eventually(lambda: self.server.sockets() >= 20, "the readers are connected")
            self.put("top.txt", b"another one")
            self.server.reload()
            self.eventually(lambda: self.run_lua("return top")[1] == "another one", "the new site serves")
            self.open_gate()
        self.assertEqual(answers, [b"slow" * 1000] * 20)

    def test_a_server_stops_although_a_reader_waits(self):
        self.start_slow()
        conns = [self.connect() for _ in range(10)]
        for conn in conns:
            conn.send(b"GET /read/a.slow HTTP/1.1\r\nHost: h\r\n\r\n")
        self.eventually(lambda: self.server.threads() >= 7, "the reads have begun")
        self.server.signal(signal.SIGTERM)
        self.server.wait_log("draining")
        self.open_gate()
        for conn in conns:
            self.assertEqual(conn.response().body, b"slow" * 1000)
        self.assertEqual(self.server.wait(), 0, self.server.log())
        self.server = None

    def test_lines_wait_too(self):
        self.start_slow()
        answer = []
        reader = threading.Thread(target=lambda: answer.append(
            self.run_lua("local n = 0 for _ in ls.file.lines('lines.slow') do n = n + 1 end return n")))
        reader.start()
        self.eventually(lambda: self.server.sockets() >= 1, "the reader is connected")
        self.assertEqual(self.get("/").text, "hello")
        self.assertEqual(answer, [])
        self.open_gate()
        reader.join()
        self.assertEqual(answer, [[True, 2]])


class Disturbed(Files):
    def test_many_at_once(self):
        self.start()
        data = bytes(range(256)) * 400
        self.put("big", data)
        # Wine 8 looks for the end of a file and then writes there: of two appends at once one may be lost.
        appending = threading.Lock() if WINE else contextlib.nullcontext()

        def client(n):
            for _ in range(repeats(5)):
                self.assertEqual(self.get("/read/big").body, data)
                self.assertEqual(self.ask("POST", "/write/own%d" % n, body=b"%d" % n * 1000).text, "true")
                self.assertEqual(self.get("/read/own%d" % n).body, b"%d" % n * 1000)
                with appending:
                    self.assertEqual(self.ask("POST", "/append/log", body=b"line of %d\n" % n).text, "true")

        in_parallel([lambda n=n: client(n) for n in range(32)], 32)
        lines = self.content("log").decode().splitlines()
        self.assertEqual(sorted(lines), sorted(["line of %d" % n for n in range(32)] * repeats(5)))
        self.assertEqual(self.left(), [])

    def test_clients_that_leave(self):
        self.start(files={"big": b"x" * 3000000})
        for n in range(repeats(200)):
            conn = self.connect()
            conn.send(b"GET /read/big HTTP/1.1\r\nHost: h\r\n\r\n" if n % 2 else
                      b"POST /write/it HTTP/1.1\r\nHost: h\r\nContent-Length: 300000\r\n\r\n" + b"y" * 300000)
            conn.reset()
        self.eventually(lambda: self.get("/").text == "hello", "the server answers")
        self.eventually(lambda: not self.left(), "the files of writes are removed")

    @not_on_windows("files that are replaced while they are open: Wine 8 refuses that")
    def test_readers_see_the_old_or_the_new_content(self):
        self.start(files={"it": b"a" * 300000})
        done = threading.Event()

        def write():
            for n in range(repeats(60)):
                self.assertEqual(self.ask("POST", "/write/it", body=bytes([97 + n % 26]) * 300000).text, "true")
            done.set()

        def read():
            while not done.is_set():
                body = self.get("/read/it").body
                self.assertEqual((len(body), body), (300000, body[:1] * 300000))

        in_parallel([write, read, read, read], 4)

    @not_on_windows("SIGHUP")
    def test_reloads_in_the_middle(self):
        self.start(files={"it": b"x" * 100000})
        done = threading.Event()

        def client(n):
            while not done.is_set():
                self.assertEqual(len(self.get("/read/it").body), 100000)
                self.assertEqual(self.ask("POST", "/write/own%d" % n, body=b"y" * 5000).text, "true")

        def reload():
            try:
                for _ in range(repeats(8)):
                    self.server.reload()
            finally:
                done.set()

        in_parallel([reload] + [lambda n=n: client(n) for n in range(8)], 9)
        self.assertEqual(self.left(), [])

    @not_on_windows("SIGKILL")
    def test_a_process_that_dies_leaves_the_old_or_the_new_file(self):
        for _ in range(repeats(5)):
            server = self.start(files={"it": b"a" * 2000000})
            stop = threading.Event()

            def write():
                n = 0
                while not stop.is_set():
                    n += 1
                    try:
                        self.ask("POST", "/write/it", body=bytes([97 + n % 26]) * 2000000)
                    except (OSError, AssertionError):
                        return

            with beside(*[write] * 3):
                time.sleep(0.15)
                server.kill()
                stop.set()
            self.server = None
            data = self.content("it")
            self.assertEqual((len(data), data.count(data[:1])), (2000000, 2000000))

    @not_on_windows("limits of a process")
    def test_a_file_that_may_not_grow(self):
        """RLIMIT_FSIZE: the write fails as on a full device, and the process is not ended by SIGXFSZ."""
        self.start(prefix=["prlimit", "--fsize=50000"], files={"it": b"old"})
        self.fails("return ls.file.write('it', ('x'):rep(60000))", "it: limit reached", "ELIMIT")
        self.assertEqual((self.content("it"), self.left()), (b"old", []))
        self.fails("return ls.file.write('it', ('x'):rep(60000), { atomic = false })", "it: limit reached", "ELIMIT")
        self.returns("return ls.file.write('it', ('x'):rep(50000))", True)
        self.fails("return ls.file.write('it', 'x', { append = true })", "it: limit reached", "ELIMIT")
        self.assertEqual(len(self.content("it")), 50000)
