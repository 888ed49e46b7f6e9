"""ls.check, req:json(schema) and req:form(schema): what fits comes as described, the rest is a 422 that lists the fields."""
# sanitizers: asan; no thread starts
import json
import re
import urllib.parse

from harness import E2E, app_site

SITE = app_site(r"""
local item = ls.check { name = { is = "string", min = 1, max = 3 }, count = "integer?", tags = { "string" } }
local list = ls.check { { id = "integer" } }
local signup = ls.check { name = "string", age = { is = "integer", min = 18 }, news = "boolean", tags = { "string" } }
app:post("/json", function(req) return req:json(item) end)
app:post("/list", function(req) return req:json(list) end)
app:post("/strict", function(req) return req:json(item, { unknown = "refuse" }) end)
app:post("/inline", function(req) return req:json { name = "string" } end)
app:post("/given", function(req)
  local value, errors = req:json(item, { refuse = false })
  if errors then return 422, { given = value, errors = errors } end
  return value
end)
app:post("/caught", function(req)
  local ok, message = pcall(req.json, req, item)
  return tostring(ok) .. " " .. tostring(message)
end)
app:post("/form", function(req) return req:form(signup) end)
app:post("/lines/json", function(req) local value = req:json(item) return value end)
app:post("/lines/form", function(req) local form = req:form(signup) return form end)
app:post("/lines/parts", function(req) for part in req:parts() do part:body() end return "ok" end)
app:post("/page", function(req)
  local form, errors = req:form(signup, { refuse = false })
  if errors then return 422, { form = form, errors = errors } end
  return form
end)
local function asks(fn) return function(req) fn(req) end end
app:post("/wrong", asks(function(req) req:json { name = "strin" } end))
app:post("/nested", asks(function(req) req:form { a = { b = "string" } } end))
app:post("/of-list", asks(function(req) req:form { "string" } end))
app:post("/scalar", asks(function(req) req:json(ls.check "integer") end))
app:post("/third", asks(function(req) req:json({ object = true }, { refuse = false }) end))
app:post("/no-schema", asks(function(req) req:form(5) end))
app:post("/misspelt/json", function(req) return req:json(itme) end)
app:post("/misspelt/form", asks(function(req) req:form(itme) end))
local of_default = ls.check { title = "string?", list = { { a = { is = "string", default = "" } } },
  more = { deep = { is = "integer", default = 5 } } }
app:patch("/default/json", function(req) return req:json(of_default) end)
app:patch("/default/form", function(req) return req:form { news = { is = "boolean", default = true } } end)
app:patch("/without", function(req) return req:json { title = "string?" } end)
local layered = ls.app()
layered:use(function(req, res, next) next() res:header("X-Status", tostring(res:status())) end)
layered:post("/json", function(req) return req:json(item) end)
app:mount("/layered", layered)
""")
JSON, FORM = "application/json", "application/x-www-form-urlencoded"


class Check(E2E):
    SITE = SITE

    def post(self, path, body, kind=JSON):
        return self.ask("POST", path, [("Content-Type", kind)], body if isinstance(body, bytes) else body.encode())

    def is_json(self, path, value, expected, status=200, kind=JSON):
        body = json.dumps(value) if kind == JSON else urllib.parse.urlencode(value)
        response = self.post(path, body, kind)
        self.assertEqual((response.status, response.header("content-type")), (status, JSON), response.body)
        self.assertEqual(json.loads(response.body), expected)

    def refused(self, path, value, fields, kind=JSON):
        self.is_json(path, value, {"error": "invalid fields", "fields": fields}, 422, kind)

    def test_the_log_names_the_line_of_the_site(self):
        for path, body, kind, status in (("json", "{}", JSON, 422), ("json", "x", JSON, 400), ("form", "a=b", FORM, 422),
                                         ("form", "{}", JSON, 415), ("parts", "x", "multipart/form-data; boundary=b", 400)):
            with self.subTest(path, status=status):
                self.assertEqual(self.post("/lines/" + path, body, kind).status, status)
                number = [n for n, text in enumerate(SITE.splitlines(), 1) if '"/lines/%s"' % path in text][0]
                text = r"\{\"error\"" if status == 422 else "[a-z]"
                self.server.wait_log(r"info request \S+ POST /lines/%s: \S*site\.lua:%d: %s" % (path, number, text))

    def test_a_body_that_fits(self):
        self.is_json("/json", {"name": "abc", "count": 2, "tags": [], "admin": True}, {"name": "abc", "count": 2, "tags": []})
        self.is_json("/json", {"name": "a", "count": None, "tags": ["x"]}, {"name": "a", "tags": ["x"]})
        self.is_json("/list", [{"id": 1}, {"id": 2.0}], [{"id": 1}, {"id": 2}])
        self.is_json("/list", [], [])
        self.is_json("/inline", {"name": ""}, {"name": ""})

    def test_a_body_that_does_not_fit_is_a_422_with_its_fields(self):
        for path in ("/json", "/layered/json"):
            self.refused(path, {"name": "abcd", "count": 1.5, "tags": ["a", 1]},
                         {"name": "must have 1 to 3 characters", "count": "must be a whole number; got 1.5",
                          "tags[2]": "must be a string; got 1"})
        self.refused("/list", [{"id": 1}, {}, 5], {"[2].id": "is missing", "[3]": "must be an object; got 5"})
        self.refused("/list", [None], {"[1]": "is missing"})
        self.refused("/strict", {"name": "a", "tags": [], "admin": True}, {"admin": "is unknown"})
        self.refused("/inline", {}, {"name": "is missing"})
        response = self.post("/layered/json", "{}")
        self.assertEqual(response.header("x-status"), "422")

    def test_a_body_of_another_kind_is_a_400(self):
        response = self.post("/json", "[]")
        self.assertEqual((response.status, response.body), (400, b"the request body must be a JSON object; got an array\n"))
        self.assertEqual(self.post("/list", "{}").status, 400)
        self.assertEqual(self.post("/json", "{}", "text/plain").status, 415)

    def test_errors_and_values_for_the_site(self):
        self.is_json("/given", {"name": "abcd", "tags": []}, {"given": {"name": "abcd", "tags": []},
                                                               "errors": {"name": "must have 1 to 3 characters"}}, 422)
        response = self.post("/caught", "{}")
        self.assertRegex(response.body, rb'^false .*: \{"error":"invalid fields","fields":\{"name":"is missing"')

    def test_a_form(self):
        self.is_json("/form", [("name", "Ada"), ("age", "18"), ("news", "on"), ("tags", "a"), ("tags", "b"), ("sent", "1")],
                     {"name": "Ada", "age": 18, "news": True, "tags": ["a", "b"]}, kind=FORM)
        self.is_json("/form", {"name": "Ada", "age": "18"}, {"name": "Ada", "age": 18, "news": False, "tags": []}, kind=FORM)
        self.refused("/form", {"name": "", "age": "17"}, {"name": "is missing", "age": "must be at least 18"}, kind=FORM)
        self.is_json("/page", [("name", "<b>"), ("age", "x"), ("tags", "a"), ("tags", "b")],
                     {"form": {"name": "<b>", "age": "x", "tags": "a"},
                      "errors": {"age": "must be a whole number; got \"x\""}}, 422, kind=FORM)
        parts = b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\nAda\r\n--b\r\n' \
                b'Content-Disposition: form-data; name="age"\r\n\r\n20\r\n--b--\r\n'
        response = self.post("/form", parts, "multipart/form-data; boundary=b")
        self.assertEqual(json.loads(response.body), {"name": "Ada", "age": 20, "news": False, "tags": []})

    def test_an_answer_of_many_and_long_fields_is_whole_json(self):
        for length in (1, 59, 60, 61, 200):
            value = {"name": "a", "tags": [], **{("é" * length + str(n)): 1 for n in range(100)}}
            response = self.post("/strict", json.dumps(value))
            self.assertEqual(response.status, 422)
            fields = json.loads(response.body)["fields"]
            self.assertTrue(0 < len(fields) <= 20, fields)
            self.assertLess(len(response.body), 2048)

    def test_mistakes_of_the_site_name_its_line(self):
        for path, message in {
                "/wrong": "req:json: name: unknown type \"strin\"; did you mean 'string'?",
                "/nested": "req:form: a: a form has no fields within fields",
                "/of-list": "req:form: the schema of a form is a table of fields",
                "/scalar": "req:json: the schema must be a table of fields, or of a list",
                "/third": 'req:json: object: a type is a string such as "integer?" or a table; got true',
                "/no-schema": "req:form: a schema is a table such as",
                "/misspelt/json": "req:json: the schema or the options are nil: a name is misspelt, or has its value later",
                "/misspelt/form": "req:form: the schema or the options are nil"}.items():
            kind = FORM if path in ("/nested", "/of-list", "/no-schema", "/misspelt/form") else JSON
            self.assertEqual(self.post(path, "", kind).status, 500)
            self.server.wait_log(r"site\.lua:\d+: " + re.escape(message))

    def test_a_default_would_replace_what_a_patch_leaves_out(self):
        for path, kind, at in (("/default/json", JSON, "more.deep"), ("/default/form", FORM, "news")):
            response = self.ask("PATCH", path, [("Content-Type", kind)], b"{}" if kind == JSON else b"")
            self.assertEqual(response.status, 500)
            self.server.wait_log(r"site\.lua:\d+: req:" + path[9:] + ": " + re.escape(at) + ": in a PATCH the default would replace")
        response = self.ask("PATCH", "/without", [("Content-Type", JSON)], b'{"title":"x"}')
        self.assertEqual((response.status, response.body), (200, b'{"title":"x"}'))
