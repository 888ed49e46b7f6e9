"""app:inject: a request to an application without a connection."""
import json

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
local early = show(app:inject{ method = "GET", path = "/" })
app:get("/early", function() return early end)
""")


class Inject(E2E):
    SITE = SITE

    def inject(self, path):
        return json.loads(self.get("/self?path=" + path).text)

    def test_json(self):
        self.assertEqual(self.get("/json").text, '{"sum":3}')
        self.assertIn("give one of json, form and body", self.get("/both").text)

    def test_form(self):
        self.assertEqual(json.loads(self.get("/form").text), {"a": ["x&y"], "b": ["1", "\u00e9"]})
        wrong = json.loads(self.get("/wrong").text)
        for message, part in zip(wrong, ("form: takes a table such as", 'form: "b" must be a string', "form: takes a table such as",
                                         "give one of json, form and body"), strict=True):
            self.assertRegex(message, r"^.*site\.lua:\d+: app:inject: " + part)

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
