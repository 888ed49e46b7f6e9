"""Names with other than ASCII characters: folders, sites, files, arguments, variables. On Windows no code page
converts them."""
# sanitizers: asan; one thread runs
import os
import shutil
import tempfile
import urllib.parse

from harness import E2E, WINDOWS, app_site, read_text, run_program, write_text

SITE = app_site(r"""
package.path = "./?.lua;" .. package.path
local words = require "wörter"
local args = { ... }

app:get("/args", function() return table.concat(args, "|") end)
app:get("/arg0", function() return arg[0] end)
app:get("/module", function() return words.hello end)
app:get("/getenv", function() return os.getenv("LUASERVE_WORT") end)
app:get("/files/:name", function(req)
  local file, why = io.open(req.params.name, "rb")
  if not file then return 404, why end
  local text = file:read("a")
  file:close()
  return text
end)
app:put("/files/:name", function(req)
  local file = assert(io.open(req.params.name, "wb"))
  file:write(req:body())
  file:close()
  return 201
end)
app:delete("/files/:name", function(req) return os.remove(req.params.name) and 204 or 404 end)
app:post("/rename/:from/:to", function(req) return os.rename(req.params.from, req.params.to) and 204 or 404 end)
app:get("/lines/:name", function(req)
  local out = {}
  for line in io.lines(req.params.name) do out[#out + 1] = line end
  return table.concat(out, "|")
end)
app:get("/popen", function()
  local pipe = assert(io.popen("COMMAND", "r"))
  local text = pipe:read("a")
  pipe:close()
  return text
end)
app:get("/execute", function() return os.execute("EXECUTE") and "yes" or "no" end)
""").replace("COMMAND", "cmd /c type wörter.lua" if WINDOWS else "cat wörter.lua").replace(
    "EXECUTE", "cmd /c copy wörter.lua 写し.txt" if WINDOWS else "cp wörter.lua 写し.txt")

WORDS = 'return { hello = "grüß dich, 世界" }\n'


def escaped(name):
    return urllib.parse.quote(name)


class Names(E2E):
    ARGUMENTS = ["日本語", "ÄÖÜ ß", "*", "*.lua", "a?c", 'quote"d', "back\\slash\\", "", "-x"]

    def setUp(self):
        super().setUp()
        self.where = os.path.join(tempfile.mkdtemp(prefix="luaserve-e2e-"), "üml 日本")
        self.addCleanup(shutil.rmtree, os.path.dirname(self.where), ignore_errors=True)
        os.mkdir(self.where)
        self.write("seite ü.lua", SITE)
        self.write("wörter.lua", WORDS)
        self.write("日本語.txt", "こんにちは\nzwei\n")
        self.server = self.serve(None, cwd=self.where, site_path="seite ü.lua", args=self.ARGUMENTS, env={"LUASERVE_WORT": "größe 大"})
        self.addCleanup(self.server.stop)

    def write(self, name, text):
        write_text(os.path.join(self.where, name), text)

    def read(self, name):
        return read_text(os.path.join(self.where, name))

    def test_names(self):
        self.assertEqual(self.get("/arg0").text, "seite ü.lua")
        self.assertEqual(self.get("/args").text.split("|"), self.ARGUMENTS)
        self.assertEqual(self.get("/module").text, "grüß dich, 世界")
        self.assertEqual(self.get("/getenv").text, "größe 大")
        self.assertEqual(self.get("/files/" + escaped("日本語.txt")).text, "こんにちは\nzwei\n")
        self.assertEqual(self.get("/lines/" + escaped("日本語.txt")).text, "こんにちは|zwei")
        self.assertEqual(self.get("/popen").text.replace("\r\n", "\n"), WORDS)
        self.assertEqual(self.get("/execute").text, "yes")
        self.assertEqual(self.read("写し.txt"), WORDS)
        self.assertEqual(self.ask("PUT", "/files/" + escaped("новый.txt"), body=b"new").status, 201)
        self.assertEqual(self.read("новый.txt"), "new")
        self.assertEqual(self.ask("POST", "/rename/%s/%s" % (escaped("новый.txt"), escaped("Ω.txt"))).status, 204)
        self.assertEqual(self.read("Ω.txt"), "new")
        self.assertEqual(self.ask("DELETE", "/files/" + escaped("Ω.txt")).status, 204)
        self.assertFalse(os.path.exists(os.path.join(self.where, "Ω.txt")))
        self.assertEqual(self.get("/files/" + escaped("Ω.txt")).status, 404)

    def test_messages_name_them(self):
        status, _, err = run_program(["keine ü.lua"], cwd=self.where)
        self.assertEqual(status, 1)
        self.assertIn("keine ü.lua", err)
        self.write("falsch ü.lua", "local = 1")
        status, _, err = run_program(["falsch ü.lua"], cwd=self.where)
        self.assertEqual(status, 1)
        self.assertIn("falsch ü.lua:1:", err)

    def test_reports_and_bodies_of_the_load_engine(self):
        url = "http://127.0.0.1:%d/files/%s" % (self.server.port(), escaped("日本語.txt"))
        status, out, err = run_program(["stress", "-q", "-n", "4", "-c", "2", "--json", "bericht ü.json", "--csv", "表.csv",
                                        "--html", "отчёт.html", "--expect-body", "日本語.txt", url], cwd=self.where)
        self.assertEqual(status, 0, out + err)
        self.assertIn('"requests"', self.read("bericht ü.json"))
        self.assertIn(",", self.read("表.csv"))
        self.assertIn("</html>", self.read("отчёт.html"))
