"""req:parts: the parts of a form as they arrive, part:save, and what an aborted upload leaves: nothing."""
# sanitizers: asan; no thread starts
import hashlib
import json
import os
import socket
from random import Random

from harness import E2E, SANITIZER, not_on_windows, read_bytes, read_text
from harness.server import write_text

SITE = r"""
local ls = require "luaserve"
local app = ls.app()
app:post("/parts", { max_body = "200m" }, function(req)
  local list = ls.json.array{}
  for part in req:parts() do
    local bytes = 0
    if part.filename then for chunk in part:chunks() do bytes = bytes + #chunk end end
    list[#list + 1] = { name = part.name, filename = part.filename, type = part.type, bytes = part.filename and bytes,
      body = not part.filename and part:body() or nil, odd = part.headers["X-Odd"] }
  end
  return list
end)
app:post("/save", { max_body = "200m" }, function(req)
  local list = ls.json.array{}
  if req.query.read then req:body() end
  for part in req:parts() do
    local ok, result, code = part:save(req.query.path or part.name, req.query.max)
    list[#list + 1] = { ok = ok or false, result = result, code = code }
  end
  return list
end)
app:post("/saved", { max_body = "200m" }, function(req)
  local list = ls.json.array{}
  for part in req:parts() do
    local _, result = pcall(part.save, part, part.name, req.query.max)
    list[#list + 1] = { name = part.name, result = tostring(result):match("the part .*") or result }
  end
  return list
end)
app:post("/slow", { timeout = 1 }, function(req)
  for part in req:parts() do part:save("slow") end
  return 201
end)
app:post("/caught", function(req)
  local ok, message = pcall(function() for part in req:parts() do part:body(5) end end)
  return 418, message .. "\n"
end)
app:post("/again", function(req)
  req:body()
  local names = {}
  for part in req:parts() do names[#names + 1] = part.name end
  return table.concat(names, " ")
end)
app:get("/", function() return "hello" end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
"""

TYPE = (("Content-Type", "multipart/form-data; boundary=b"),)


def part(head, data):
    return b"--b\r\nContent-Disposition: form-data; " + head + b"\r\n\r\n" + data + b"\r\n"


class Uploads(E2E):
    def setUp(self):
        super().setUp()
        self.folder = self.new_folder()
        write_text(self.folder + "/site.lua", SITE)
        self.server = self.serve(None, site_path=self.folder + "/site.lua")

    def files(self):
        return sorted(os.listdir(self.folder))

    def parts(self, body, target="/parts", headers=TYPE):
        return json.loads(self.ask("POST", target, headers, body).text)

    def test_fields_and_files(self):
        data = os.urandom(300000)
        body = (part(b'name="a"', "1 \u20ac".encode()) + part(b'name="f"; filename="C:\\\\x\\\\y.png"\r\nContent-Type: image/png\r\nX-Odd: 1', data)
                + part(b"name=e; filename*=UTF-8''%e2%82%ac", b"") + b"--b--\r\n")
        self.assertEqual(self.parts(body), [
            {"name": "a", "type": "text/plain", "body": "1 \u20ac"},
            {"name": "f", "filename": "y.png", "type": "image/png", "bytes": len(data), "odd": "1"},
            {"name": "e", "filename": "\u20ac", "type": "text/plain", "bytes": 0}])
        self.assertEqual(self.ask("POST", "/again", TYPE, body).text, "a f e")

    def test_refused_bodies(self):
        fine = part(b"name=a", b"123456")
        for headers, body, target, status, says in (
                (TYPE, b"x", "/parts", 400, "the multipart body is malformed: there is no boundary"),
                (TYPE, fine, "/parts", 400, "the multipart body is malformed: part 1 does not end"),
                ((("Content-Type", "text/plain"),), b"", "/parts", 415, "the Content-Type must be multipart/form-data; got text/plain"),
                ((), b"", "/parts", 415, "it is missing"),
                (TYPE, fine + b"--b--", "/save?path=x&max=5", 413, 'the part "a" has more than 5 bytes'),
                (TYPE, fine + b"--b--", "/caught", 418, 'the part "a" has more than 5 bytes')):
            with self.connect() as conn:
                answer = conn.ask("POST", target, headers, body)
                self.assertEqual((answer.status, says in answer.text), (status, True), (says, answer.text))
                self.assertEqual(conn.get("/").text, "hello")
        self.assertEqual(self.files(), ["site.lua"])
        self.assertNotIn(" error ", self.server.log())

    def test_saved_files(self):
        data = os.urandom(3000001)
        body = part(b"name=big; filename=a", data) + part(b"name=empty; filename=b", b"") + b"--b--\r\n"
        self.assertEqual(self.parts(body, "/save"), [{"ok": True, "result": len(data)}, {"ok": True, "result": 0}])
        self.assertEqual(self.files(), ["big", "empty", "site.lua"])
        self.assertEqual(hashlib.sha256(read_bytes(self.folder + "/big")).digest(), hashlib.sha256(data).digest())
        self.assertEqual(self.parts(part(b"name=big", b"new") + b"--b--", "/save?max=3"), [{"ok": True, "result": 3}])
        self.assertEqual(read_bytes(self.folder + "/big"), b"new")
        self.assertEqual(self.parts(part(b"name=a", b"x") + part(b"name=b", b"y") + b"--b--", "/save?path=none/x"),
                         2 * [{"ok": False, "result": "none/x: not found", "code": "ENOENT"}])
        self.assertEqual(self.parts(part(b"name=a", b"x") + b"--b--", "/save?path=.")[0]["ok"], False)
        self.assertEqual(self.files(), ["big", "empty", "site.lua"])

    def content(self, name):
        return read_bytes(self.folder + "/" + name)

    def test_a_saved_part_has_every_byte_wherever_the_body_is_cut(self):
        traps = b"\r\n--bx\r\r\n--\r\n-\r\n--b-x\r\n--b \t\n\r\n--b--x\r"
        random = Random(1)
        filler = random.randbytes(400000).replace(b"\r\n--b", b"")
        large = b"".join(filler[:random.choice((0, 1, 3, 4096, 70000, 400000))] + traps for _ in range(12))
        for data, cuts in (traps, lambda: 1), (traps, lambda: random.randint(1, 7)), (large, lambda: random.choice((1, 9, 5000, 65536, 300000))):
            body = part(b"name=f; filename=x", data) + part(b"name=g", traps) + b"--b--"
            with self.subTest(bytes=len(data)), self.connect() as conn:
                conn.send(b"POST /save HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n")
                at = 0
                while at < len(body):
                    piece = body[at:at + cuts()]
                    conn.send(b"%x\r\n%s\r\n" % (len(piece), piece))
                    at += len(piece)
                conn.send(b"0\r\n\r\n")
                self.assertEqual(json.loads(conn.response("POST").text), [{"ok": True, "result": len(data)}, {"ok": True, "result": len(traps)}])
                self.assertEqual((hashlib.sha256(self.content("f")).digest(), self.content("g")), (hashlib.sha256(data).digest(), traps))
        self.assertEqual(self.parts(body, "/save?read=1")[0], {"ok": True, "result": len(large)})  # out of req:body()
        self.assertEqual(self.files(), ["f", "g", "site.lua"])

    def test_the_limit_of_a_large_part(self):
        for size in (20000, 1000000):
            body = part(b"name=f", b"x" * size) + b"--b--"
            self.assertEqual(self.parts(body, f"/save?max={size}"), [{"ok": True, "result": size}])
            os.remove(self.folder + "/f")
            answer = self.ask("POST", f"/save?max={size - 1}", TYPE, body)
            self.assertEqual((answer.status, f'the part "f" has more than {size - 1} bytes' in answer.text), (413, True))
            answer = self.ask("POST", "/save", TYPE, body[:-6])
            self.assertEqual((answer.status, "part 1 does not end" in answer.text), (400, True))
            self.assertEqual(self.files(), ["site.lua"])

    def begin(self, target, sent=400000):
        """An upload of which the site has begun to write a file."""
        conn = self.connect()
        conn.send(b"POST " + target + b" HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n"
                  + part(b"name=f; filename=x", b"z" * sent)[:-2])
        self.eventually(lambda: any(name.startswith(".luaserve-") and os.path.getsize(self.folder + "/" + name) > 200000
                                    for name in self.files()), "the file that is written")
        return conn

    def test_a_client_that_leaves(self):
        write_text(self.folder + "/kept", "old")
        for leave in ("close", "reset", "half_close"):
            conn = self.begin(b"/save?path=kept")
            getattr(conn, leave)()
            self.eventually(lambda: self.files() == ["kept", "site.lua"], "nothing is left: " + leave)
        self.assertEqual(read_text(self.folder + "/kept"), "old")
        self.assertEqual(self.get("/").text, "hello")
        self.assertNotIn(" error ", self.server.log())

    def test_a_task_over_the_timeout_of_its_route(self):
        self.begin(b"/slow").rest()
        self.eventually(lambda: self.files() == ["site.lua"], "nothing is left")

    @not_on_windows("a signal")
    def test_a_task_of_a_site_that_was_replaced(self):
        write_text(self.folder + "/site.lua", SITE + "ls.config{ drain_timeout = 1 }\n")
        self.server = self.serve(None, site_path=self.folder + "/site.lua")
        self.begin(b"/save?path=x")
        self.server.reload()
        self.eventually(lambda: self.files() == ["site.lua"], "nothing is left")
        self.server.kill()  # on a machine that stalls its end takes longer than drain_timeout

    @not_on_windows("limits of the process")
    def test_a_file_that_may_not_grow(self):
        self.server.stop()
        self.server = self.serve(None, site_path=self.folder + "/site.lua", prefix=("prlimit", "--fsize=300000"))
        for size in (310000, 700000, 3000000):
            body = part(b"name=f", b"x" * size) + part(b"name=g", b"y") + b"--b--"
            self.assertEqual(self.parts(body, "/save"),
                             [{"ok": False, "result": "f: limit reached", "code": "ELIMIT"}, {"ok": True, "result": 1}])
            self.assertEqual(self.files(), ["g", "site.lua"])

    def test_the_parts_behind_one_that_was_too_large(self):
        for size in (6, 100000, 3000000):
            body = part(b"name=f", b"x" * size + b"\r\n-") + part(b"name=g", b"y") + b"--b--"
            self.assertEqual(self.parts(body, "/saved?max=5"),
                             [{"name": "f", "result": 'the part "f" has more than 5 bytes'}, {"name": "g", "result": True}])
            self.assertEqual(self.files(), ["g", "site.lua"])

    def test_the_memory_for_a_large_file(self):
        size = 40 << 20
        head = part(b"name=f; filename=x", b"")[:-2]
        with socket.create_connection(self.server.at()) as sock:
            sock.sendall(b"POST /save HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n"
                         % (len(head) + 2 * size + 9) + head)
            block = os.urandom(1 << 20)
            for n in range(80):
                sock.sendall(block)
                if n == 20:
                    before = self.server.rss()
            grown = self.server.rss() - before
            sock.sendall(b"\r\n--b--\r\n")
            self.assertIn(b"200 OK", sock.recv(4096))
        self.assertEqual(os.path.getsize(self.folder + "/f"), 2 * size)
        if not SANITIZER:
            self.assertLess(grown, 8 << 20)
