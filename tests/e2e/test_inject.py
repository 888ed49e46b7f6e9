"""app:inject: a request to an application without a connection."""
import json
from urllib.parse import quote

from harness import E2E, app_site

SITE = app_site(r"""
app:get("/", function() return "root" end)
app:post("/echo", function(req) return 201, req:body(), { ["X-Seen"] = req.headers["x-give"] or "none" } end)
app:get("/sleep", function() ls.sleep(0.01); return "slept" end)
app:get("/big", function() return ("x"):rep(1000):rep(100) end)
app:get("/parts", function(req, res) res:write("a"); res:write("b") end)
app:get("/boom", function() error("x") end)
local function show(r, err) return r and { status = r.status, body = r.body } or { failed = tostring(err) } end
app:get("/self", function(req)
  return show(app:inject{ method = "GET", path = req.query.path })
end)
app:get("/self-post", function()
  local r = app:inject{ method = "POST", path = "/echo", headers = { ["X-Give"] = "g" }, body = "data" }
  local seen = type(r.headers) == "table" and (r.headers["x-seen"] or r.headers["X-Seen"])
  return { status = r.status, body = r.body, seen = seen }
end)
app:post("/sum", function(req) local list = req:json() return { sum = list[1] + list[2] } end)
app:get("/json", function() return app:inject{ method = "POST", path = "/sum", json = { 1, 2 } }:json() end)
app:post("/form", function(req) return req:form_all() end)
app:get("/form", function() return app:inject{ method = "POST", path = "/form", form = { a = "x&y", b = { 1, "\xC3\xA9" } } }.body end)
app:get("/wrong", function()
  local wrong = {}
  for _, form in ipairs { 5, { a = {} , b = print }, { "x" } } do
    wrong[#wrong + 1] = select(2, pcall(app.inject, app, { method = "POST", path = "/form", form = form }))
  end
  wrong[#wrong + 1] = select(2, pcall(app.inject, app, { form = {}, json = 1 }))
  return wrong
end)
app:get("/both", function() return select(2, pcall(app.inject, app, { json = 1, body = "1" })) end)
app:get("/cookie", function(req, res)
  res:cookie("n", (tonumber(req.cookies.n) or 0) + 1)
  return res:redirect(req.query.to or "/cookies", tonumber(req.query.status))
end)
app:get("/cookies", function(req) return "n=" .. (req.cookies.n or "none") end)
app:any("/method", function(req) return req.method .. " " .. (req:body() or "") end)
app:post("/again", function(req, res) return res:redirect("/method", tonumber(req.query.status)) end)
app:get("/round", function(req, res) return res:redirect("/round") end)
app:post("/upload", function(req)
  local seen = {}
  for part in req:parts() do seen[#seen + 1] = { part.name, part.filename or "", part:body() } end
  return seen
end)
app:get("/run", function(req)
  local results = table.pack(pcall(assert(load(req.query.code, "=chunk", "t", setmetatable({ ls = ls, app = app }, { __index = _G })))))
  for i = 1, results.n do results[i] = results[i] == nil and ls.json.null or results[i] end
  results.n = nil
  return ls.json.array(results)
end)
local early = show(app:inject{ method = "GET", path = "/" })
app:get("/early", function() return early end)
""")


class Inject(E2E):
    SITE = SITE

    def inject(self, path):
        return json.loads(self.get("/self?path=" + path).text)

    def test_json(self):
        self.assertEqual(self.get("/json").text, '{"sum":3}')
        self.assertIn("give one of json, form, parts and body", self.get("/both").text)

    def test_form(self):
        self.assertEqual(json.loads(self.get("/form").text), {"a": ["x&y"], "b": ["1", "\u00e9"]})
        wrong = json.loads(self.get("/wrong").text)
        for message, part in zip(wrong, ("form: takes a table such as", 'form: "b" must be a string', "form: takes a table such as",
                                         "give one of json, form, parts and body"), strict=True):
            self.assertRegex(message, r"^.*site\.lua:\d+: app:inject: " + part)

    def run_lua(self, code):
        return json.loads(self.get("/run?code=" + quote(code)).text)

    def test_cookies_and_redirects(self):
        self.assertEqual(self.run_lua("""
            local jar, seen = ls.cookie_jar(), {}
            local function ask(request)
              request.jar = jar
              local r, message, code = app:inject(request)
              seen[#seen + 1] = r and r.status .. " " .. r.body or message .. " " .. code
            end
            ask { path = "/cookies" }
            ask { path = "/cookie", redirects = 1 }
            ask { path = "/cookie" }
            ask { path = "/cookies", query = { a = "b c" } }
            ask { path = "/cookie?to=http://other.example/", redirects = 3 }
            ask { path = "/cookies", headers = { Host = "other.example" } }
            ask { path = "/cookies" }
            ask { path = "/round", redirects = 2 }
            for _, status in ipairs { 302, 303, 307, 308 } do ask { path = "/again?status=" .. status, body = "x", redirects = 5 } end
            return seen"""), [True, ["200 n=none", "200 n=1", "302 Found\n", "200 n=2", "302 Found\n", "200 n=none", "200 n=3",
                                     "more than 2 redirects ELIMIT", "200 GET ", "200 GET ", "200 POST x", "200 POST x"]])

    def test_parts(self):
        self.assertEqual(self.run_lua("""
            local pieces = { "y", "z" }
            return app:inject { path = "/upload", parts = {
              { name = "a", body = 1 }, { name = "f", filename = 'b".txt', body = ls.buffer("x0") },
              { name = "g", filename = "c", body = function() return table.remove(pieces, 1) end } } }:json()"""),
            [True, [["a", "", "1"], ["f", "b\".txt", "x0"], ["g", "c", "yz"]]])

    def test_wrong_requests(self):
        for request, message in (
                ("jar = {}", "jar must be what ls.cookie_jar returns; got a table"),
                ("jar = ls.cookie_jar(), headers = { Cookie = 'a=b' }", "give one of jar and the header Cookie"),
                ("parts = {}", "parts must be a list such as"), ("parts = { { body = 1 } }", "parts[1].name is missing"),
                ("parts = { { name = 'a', body = {} } }", "parts[1].body must be a string"), ("query = 1", "query must be a table"),
                ("query = { a = print }", 'query: "a" must be a string'), ("redirects = 101", "redirects must be from 0 to 100"),
                ("path = 'notes'", 'path must begin with "/"; got "notes"'),
                ("redirects = 1, path = '//x y'", "jar and redirects need a URL; invalid URL http://localhost//x y")):
            with self.subTest(request):
                done, text = self.run_lua("app:inject { %s } return 1" % request)
                self.assertFalse(done)
                self.assertIn("chunk:1: app:inject: " + message, text)

    def test_inject(self):
        self.assertEqual(self.inject("/"), {"status": 200, "body": "root"})
        self.assertEqual(self.inject("/none")["status"], 404)
        self.assertEqual(self.inject("/sleep"), {"status": 200, "body": "slept"})
        self.assertEqual(self.inject("/parts"), {"status": 200, "body": "ab"})
        self.assertEqual(self.inject("/big"), {"status": 200, "body": "x" * 100000})
        self.assertEqual(self.inject("/boom")["status"], 500)

    def test_inject_post(self):
        self.assertEqual(json.loads(self.get("/self-post").text), {"status": 201, "body": "data", "seen": "g"})

    def test_inject_while_loading(self):
        self.assertEqual(json.loads(self.get("/early").text), {"status": 200, "body": "root"})
