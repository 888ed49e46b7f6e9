"""JSON in requests and responses: its memory counts against max_memory and comes back, a text without room is a 500,
and large texts are not copied."""
# sanitizers: asan; one thread runs
# wine: none; texts and their memory, the same code on every system
import json
import unittest

from harness import E2E, SANITIZER, WINDOWS, app_site

MIB = 1 << 20

SITE = app_site(r"""
ls.config { threads = 1, threads_max = 1, max_memory = "%s", max_cpu = 600 } -- a sanitizer writes large texts slowly
app:post("/decode", function(req)
  return req:json() and "decoded"
end)
app:post("/decode-text", function(req) return ls.json.decode(req:body()) and "decoded" end)
app:get("/many-large", function() -- 120 references to one string
  local text, t = ("x"):rep(1024):rep(2 << 10), {}
  for i = 1, 120 do t[i] = text end
  return t
end)
app:get("/many-small", function()
  local text, t = ("x"):rep(1000), {}
  for i = 1, 100000 do t[i] = text end
  return t
end)
app:get("/escapes", function() return { ("\1"):rep(1024):rep(4 << 10) } end) -- six times as long in JSON
app:get("/caught", function()
  local ok, message = pcall(ls.json.encode, { ("\1"):rep(1024):rep(4 << 10) })
  return tostring(ok) .. " " .. message:match("ls.json.encode: (.*)")
end)
local kilobyte = ("x"):rep(1000)
local function text(bytes) return kilobyte:rep(bytes // 1000) .. kilobyte:sub(1, bytes %% 1000) end
app:get("/text/:bytes", function(req, res)
  return { text = text(tonumber(req.params.bytes)) }
end)
app:get("/sent/:bytes", function(req, res) res:json { text = text(tonumber(req.params.bytes)) } end)
app:get("/collect", function() collectgarbage() return tostring(ls.stats().lua_bytes) end)
app:get("/copied", function() return tostring(ls.stats().bytes_copied) end)
app:get("/", function() return "root" end)
""")


class Faults(E2E):
    """What has no JSON form is named by its path; cjson itself takes strings with any bytes."""
    SITE = app_site(r"""
local d = ls.dict("d")
d.copy = { a = { 1, "\u{e9}\u{20ac}\u{10ffff}" } }
local loop, deep = {}, {}
loop.me = loop
local at = deep
for _ = 1, 1001 do at.x = {} at = at.x end
local values = {
  latin = { list = { 1, { name = "Andr\xe9" } } }, cut = "\xe2\x82", surrogate = { "\xed\xa0\x80" }, key = { a = { ["\xff"] = 1 } },
  fn = { ["x y"] = print }, number = { 1, 0 / 0 }, huge = { x = -1 / 0 }, bool = { [true] = 1 }, loop = loop, deep = deep,
  file = { d.copy, io.stdout }, jar = { ls.cookie_jar(ls.dict("jar")) }, own = { setmetatable({}, { __metatable = "mine" }) },
  good = { d.copy, ls.json.null, ls.json.empty_array },
}
app:get("/:name", function(req) return values[req.params.name] end)
app:get("/encode/:name", function(req) return select(2, pcall(ls.json.encode, values[req.params.name])) end)
app:get("/cjson/:name", function(req) return tostring(#require("cjson").encode(values[req.params.name])) end)
""")

    def test_each_kind(self):
        for name, says in (
                ("latin", r"value\.list\[2\]\.name is not valid UTF-8; encode bytes, for instance in base64"),
                ("surrogate", r"value\[1\] is not valid UTF-8.*"), ("key", r"a key of value\.a is not valid UTF-8"),
                ("fn", r'value\["x y"\] is a function, which JSON does not have'),
                ("number", r"value\[2\] is NaN, which JSON does not have"), ("huge", r"value\.x is infinite, which JSON does not have"),
                ("bool", "a key of value is a boolean; JSON has strings"), ("loop", r"value\.me is a table that contains itself"),
                ("deep", "value has more than 1000 levels"), ("file", r"value\[2\] is a userdata, which JSON does not have"),
                ("jar", r"value\[1\] is an object, which JSON does not have"),
                ("own", r"value\[1\] is an object, which JSON does not have")):
            with self.subTest(name):
                self.assertEqual(self.get("/" + name).status, 500)
                self.server.wait_log(r"site\.lua:\d+: GET /:name: %s$" % says)
                self.assertRegex(self.get("/encode/" + name).text, r"site\.lua:\d+: ls\.json\.encode: %s$" % says)
        self.assertRegex(self.get("/encode/cut").text, "ls.json.encode: value is not valid UTF-8")
        self.assertEqual(json.loads(self.get("/good").body), [{"a": [1, "\u00e9\u20ac\U0010ffff"]}, None, []])
        self.assertEqual([self.get("/cjson/" + name).text for name in ("cut", "surrogate")], ["4", "7"])


class LuaBytes:
    def lua_bytes(self):
        return int(self.get("/collect").text)


class Small(LuaBytes, E2E):
    """States of 20 MB."""

    SITE = SITE % "20m"

    def test_texts_without_room(self):
        for target in ("/many-large", "/many-small", "/escapes"):
            with self.subTest(target):
                mark = self.server.mark()
                self.assertEqual(self.get(target).status, 500)
                self.server.wait_log("not enough memory", mark)
                self.assertEqual(self.get("/").text, "root")
                self.assertTrue(self.server.alive())
        self.assertEqual(self.get("/caught").text, "false not enough memory")
        self.assertLess(self.lua_bytes(), 2 * MIB)

    def test_bodies_without_room(self):
        """The decoder frees its memory after "not enough memory", which is no error of the client."""
        body = b'["' + b"x" * (MIB // 2) + b'","' + b"\\n" * (MIB // 4) + b'"' + b",[]" * 400000 + b"]"
        before = self.lua_bytes()
        for target in ("/decode", "/decode-text"):
            for _ in range(5):
                mark = self.server.mark()
                self.assertEqual(self.ask("POST", target, body=body).status, 500)
                self.server.wait_log("not enough memory", mark)
                self.assertEqual(self.ask("POST", target, body=b"[1]").text, "decoded")
        self.assertLess(self.lua_bytes() - before, 2 * MIB)

    def test_a_large_string_needs_room_once(self):
        """5 MB: the string, its text in the encoder, the text as a string. Less than six times the string."""
        self.assertEqual(len(self.get("/text/5000000").body), 5000000 + len('{"text":""}'))


class Large(LuaBytes, E2E):
    SITE = SITE % "256m"

    def test_no_buffer_is_kept(self):
        before = self.lua_bytes()
        for _ in range(3):
            self.assertEqual(len(self.get("/text/30000000").body), 30000011)
        self.assertLess(self.lua_bytes() - before, MIB)

    def test_copies(self):
        """A text is written by the encoder, copied into a Lua string, and sent from there."""
        for size in (100, 16000, 16384 - 12, 16384 - 11, 16384, 1000000):
            for target in ("/text/", "/sent/"):
                with self.subTest(target + str(size)):
                    before = int(self.get("/copied").text)
                    self.assertEqual(json.loads(self.get(target + str(size)).text), {"text": "x" * size})
                    self.assertEqual(int(self.get("/copied").text) - before, 0)


@unittest.skipIf(SANITIZER or WINDOWS, "resident memory")
class Resident(E2E):
    """A server of its own: after larger blocks the C library keeps more free memory. At the end of a thread's heap it keeps
    up to twice the size of the largest block that it mapped (mallopt(3), M_MMAP_THRESHOLD): here an array of 16 MiB."""

    SITE = SITE % "256m"

    def test_it_comes_back(self):
        for what, body, mebibytes, collect in (("a value, while the server is idle", b"[" + b'{"":[]},' * 500000 + b"[]]", 48, False),
                                               ("small objects", b"[" + b"[]," * 1000000 + b"[]]", 64, True)):
            self.get("/collect")
            before = self.server.rss()
            for _ in range(3):
                self.assertEqual(self.ask("POST", "/decode", body=body).text, "decoded")
            if collect:
                self.get("/collect")
            self.eventually(lambda: self.server.rss() - before < mebibytes * MIB, "resident memory of %s is free" % what)
