"""app:openapi: the document, validated; its schemas compared with what ls.check accepts; the checks of routes; the page."""
# sanitizers: asan; no thread starts
import base64
import hashlib
import json
import os
import re
import unittest
import urllib.parse

from harness import E2E, WINDOWS, app_site, request, run_program, write_text
from harness.browser import Browser, needs_browser
from harness.npm import needs_npm, node

VALIDATE = """
import { Validator } from "@seriousme/openapi-schema-validator";
const validator = new Validator({ strict: true });
const result = await validator.validate(input);
console.log(JSON.stringify({ version: validator.version, valid: result.valid, errors: result.errors || [] }));
"""
COMPARE = """
import Ajv from "ajv/dist/2020.js";
const ajv = new Ajv({ strict: true, allowUnionTypes: true, allErrors: true, formats: { int64: true } });
console.log(JSON.stringify(input.map(({ schema, samples }) => {
  const check = ajv.compile(schema);
  return samples.map((text) => check(JSON.parse(text)));
})));
"""

SHOP = r"""local ls = require "luaserve"
local app, admin = ls.app(), ls.app()
local basic = require "luaserve.basic_auth" { users = { ada = "secret of ada" } }
local bearer = require "luaserve.bearer_auth" { tokens = { ["0123456789abcdef"] = "ada" } }
local function login(req, _, next) if not req.cookies.sid then return 401 end return next() end
local item = ls.check({
  name = { is = "string", min = 1, max = 80, description = "What is sold" }, price = { is = "number", min = 0 },
  code = { is = "string?", pattern = "^[A-Z]%d+$" }, state = { is = "string", one_of = { "new", "old" }, default = "new" },
}, { unknown = "refuse" })
local list = ls.check { items = { item }, next = "integer?" }

-- Lists the items. The newest
-- is first.
--
-- At most a hundred.
app:get("/items", { query = { page = { is = "integer", min = 1, default = 1, description = "From 1" }, tag = { "string" },
  sold = "boolean", new = "boolean?" }, tags = { "items" }, responses = { [200] = list } }, function(req) return { req.query.page, req.query.tag } end)

-- ---- a heading of the file ----
app:post("/items", { json = item, id = "addItem", summary = "Adds one", responses = {
  [201] = { json = item, headers = { Location = { is = "string", description = "Where it is" } } }, [409] = "the name is taken" } }, basic,
  function(req) return 201, req:json() end)

-- Changes an item.
local function change(req) return { req.params.id, req:json().name == ls.json.null } end

app:patch("/items/:id", { params = { id = { is = "integer", min = 1 } }, json = { name = "string?" }, null = true, deprecated = true, max_body = "1k" }, change)
app:put("/items/:id", { form = { name = "string", count = "integer?", old = "boolean" } }, function(req) return req:form() end)
app:post("/photos", { parts = { title = "string", photo = "file", more = { "file?" } } }, function(req)
  local names = ls.json.array {}
  for part in req:parts() do names[#names + 1] = part.name end
  return names
end)
app:get("/export.csv", { headers = { ["X-Rows"] = "integer" }, responses = { [200] = { type = "text/csv", description = "Rows" } } },
  function(req) return req.headers["x-rows"] end)
app:get("/me", login, function() return "me" end)
app:get("/open", { security = false }, login, function() return "open" end)
app:get("/numbers", function() return { n = 9007199254740993 } end)
app:get("/hidden", { hidden = true }, function() return "x" end)
app:get("/files/a%20b/*path", function(req) return req.params.path end)
app:any("/any", function() return "x" end)
app:ws("/ws", function() end)
app:route("PROPFIND", "/files/*path", function() return 207, "" end)
app:health "/health"
admin:get("/", function() return "admin" end)
admin:delete("/items/:id", bearer, function() return 204 end)
admin:openapi("/openapi.json", { title = "Admin", page = "/docs/api" })
app:use("/admin", basic)
app:mount("/admin", admin)
app:openapi("/openapi.json", { title = "Shop", version = "2.0", description = "Sells tea.\n\nAnd cups.", tags = { items = "What is sold" },
  schemas = { Item = item }, schemes = { login = { fn = login, type = "apiKey", ["in"] = "cookie", name = "sid" } } })
ls.listen("127.0.0.1:0", app)
"""
LOGIN = ("Authorization", "Basic " + base64.b64encode(b"ada:secret of ada").decode())

FILE = ([("Content-Type", "multipart/form-data; boundary=X")],
        b'--X\r\nContent-Disposition: form-data; name="name"; filename="a.txt"\r\n\r\nhello\r\n--X--\r\n')

# Schemas, each with values as JSON. What ls.check accepts is what the JSON Schema accepts, and the other way round.
CASES = r"""
  { "string", { '""', '"a"', '5', 'null', 'true', '[]' } },
  { { is = "string", min = 2, max = 3 }, { '"a"', '"ab"', '"abc"', '"abcd"', '"ä"', '"äöü"', '"äöüß"', '"\\ud83c\\udf75"' } },
  { "integer", { '5', '5.0', '5.5', '-3', '"5"', 'true' } }, { { is = "integer", min = 1, max = 3 }, { '0', '1', '3', '4', '2.0' } },
  { "number", { '5', '0.5', '-1e3', '"5"', '[]' } }, { { is = "number", min = 0.5 }, { '0.4', '0.5', '1e9' } },
  { "boolean", { 'true', 'false', '1', '"true"', 'null' } },
  { "table", { '{"a":1}', '[1]', '"a"', '5', 'null' } }, { "any", { '{"a":1}', '[1]', '"a"', '5', 'false' } },
  { { "integer" }, { '[1]', '[1,2]', '[1,"a"]', '[[1]]', '{"a":1}', '"a"' } },
  { { is = { "string" }, min = 1, max = 2 }, { '[]', '["a"]', '["a","b"]', '["a","b","c"]' } },
  { { name = "string", age = "integer?" }, { '{"name":"a"}', '{"name":"a","age":5}', '{"name":"a","age":null}', '{"name":null}', '{"age":5}',
    '{"name":"a","x":1}', '["a"]' } },
  { { a = { b = { { c = "boolean" } } } }, { '{"a":{"b":[{"c":true}]}}', '{"a":{"b":[{"c":1}]}}', '{"a":{}}', '{"a":{"b":[]}}' } },
  { { s = { is = "string", default = "x" }, t = "table?", y = "any?", z = "any" }, { '{"z":1}', '{}', '{"s":null,"t":null,"y":null,"z":[1]}',
    '{"s":5,"z":1}', '{"z":null}' } },
  { { is = "string", one_of = { "a", "b" } }, { '"a"', '"c"', '1' } }, { { is = "integer", one_of = { 1, 2 } }, { '1', '1.0', '3' } },
  { { v = { is = "string", one_of = { "a" }, optional = true } }, { '{}', '{"v":null}', '{"v":"a"}', '{"v":"b"}' } },
  { { v = inner }, { '{"v":{"n":1}}', '{"v":{}}', '{}', '{"v":null}' } },
  { { v = { is = inner, optional = true }, w = { inner } }, { '{"w":[]}', '{"v":null,"w":[{"n":1}]}', '{"v":{},"w":[]}', '{"w":[{}]}' } },
  { { v = strict, w = "any?" }, { '{"v":{"n":1,"at":{}},"x":1}', '{"v":{"n":1,"x":2,"at":{}}}', '{"v":{"n":1,"at":{"x":2}}}', '{"v":{}}' } },
  { { n = "integer", b = "boolean", s = { is = "string?", min = 2, pattern = "a", one_of = { "aa" } }, l = { "integer" } }, {
    '{"n":5}', '{"n":"5","b":"on","s":"aa","l":"7"}', '{"n":["5"],"b":null,"s":"","l":["","1"]}', '{"n":{}}', '{"b":true}' }, { convert = true } },
  { { v = { is = words, max = 1 } }, { '{"v":["a"]}', '{"v":["a","b"]}', '{"v":[]}' } },
"""
PATTERNS = (r"^%d+$", r"^[%w_]+$", r"^[^@%s]+@[^@%s]+$", r"^%u%l*$", r"^%x%x%x$", r"^[A-Z][A-Z]%-%d+$", r"^(%d%d):(%d%d)$", r"a.-b", r"^%S+$", r"^%a?%d$",
            r"^[%]%-a]+$", r"[]^]", r"^%%+$", r"^\/$", r"%.txt$", r"^[^a]*$", r"^é+$", r"^é$", r"^ü?x", r"^.$", r"^[^x]$", r"^%d+$x", r"^%bxy$", r"%f[%w]a",
            r"(a)%1", r"^[%a%d]+[%p]$", r"^%g+$", r"^%c$", r"^%D+$", r"^[é]$", r"^$", r"", r"^-$", r"^a-$", r"x*", r"^[a-]+$", r"^.+.+$")
STRINGS = ("", "a", "aa", "b", "ab", "axxb", "A", "Ab", "AB-12", "AB-", "12", "12:30", "1", "a1", "é", "éé", "ü", "x", "üx", "x y", " ", "a@b", "a@b@c", "@", "%", "%%",
           "/", "a.txt", "atxt", "]", "-", "]-a", "^", "_", "abc", "fff", "a!", "\t", "\u00a0", "tea \U0001f375", "12$x", "xay", "(", "é!")


def checks_site(cases):
    return app_site("local inner, words = ls.check { n = 'integer' }, ls.check { is = { 'string' }, min = 1 }\n"
                    "local strict = ls.check({ n = 'integer', at = { y = 'integer?' } }, { unknown = 'refuse' })\nlocal cases = {" + cases + r"""}
local answers, responses = {}, {}
for i, case in ipairs(cases) do
  local check = ls.check(case[1], case[3])
  answers[i] = { samples = case[2], accepted = {} }
  for n, text in ipairs(case[2]) do answers[i].accepted[n] = check(ls.json.decode(text)) ~= nil end
  app:get("/" .. i, { responses = { [200] = check } }, function() end)
end
app:get("/cases", { hidden = true }, function() return answers end)
app:openapi "/openapi.json"
""")


class Document(E2E):
    SITE = SHOP

    def document(self, path="/openapi.json", fields=()):
        response = self.get(path, fields)
        self.assertEqual((response.status, response.header("Content-Type")), (200, "application/json"), response.text)
        return json.loads(response.text)

    @needs_npm
    def test_the_documents_are_valid(self):
        for path in ("/openapi.json", "/admin/openapi.json"):
            self.assertEqual(node(VALIDATE, self.document(path, [LOGIN])), {"version": "3.1", "valid": True, "errors": []})
        broken = self.document()
        broken["paths"]["/items"]["get"]["parameters"][0]["in"] = "nowhere"
        self.assertFalse(node(VALIDATE, broken)["valid"])

    def test_the_text_is_the_same_in_each_server(self):
        text = self.get("/openapi.json").text
        for _ in range(3):
            self.assertEqual(self.serve(SHOP).get("/openapi.json").text, text)

    def test_what_it_says(self):
        document = self.document()
        self.assertEqual(document["info"], {"title": "Shop", "version": "2.0", "description": "Sells tea.\n\nAnd cups."})
        self.assertEqual({path: sorted(item) for path, item in document["paths"].items()}, {
            "/items": ["get", "post"], "/items/{id}": ["patch", "put"], "/photos": ["post"], "/export.csv": ["get"], "/me": ["get"],
            "/open": ["get"], "/numbers": ["get"], "/files/a%20b/{path}": ["get"], "/admin": ["get"], "/admin/": ["get"], "/admin/items/{id}": ["delete"]})
        one = {name: item[method] for name, item in document["paths"].items() for method in item if method in ("get", "post", "put")}
        get, change = document["paths"]["/items"]["get"], document["paths"]["/items/{id}"]["patch"]
        self.assertEqual((get["summary"], get["description"], get["tags"]), ("Lists the items", "The newest is first.\n\nAt most a hundred.", ["items"]))
        self.assertEqual((change["summary"], change["deprecated"], one["/items"].get("description")), ("Changes an item", True, None))
        self.assertEqual(get["parameters"], [
            {"name": "new", "in": "query", "schema": {"type": "boolean"}},
            {"name": "page", "in": "query", "description": "From 1",
             "schema": {"type": "integer", "format": "int64", "minimum": 1, "default": 1}},
            {"name": "sold", "in": "query", "schema": {"type": "boolean", "default": False}},
            {"name": "tag", "in": "query", "schema": {"type": "array", "items": {"type": "string"}}}])
        self.assertEqual(change["parameters"], [{"name": "id", "in": "path", "required": True,
                                                 "schema": {"type": "integer", "format": "int64", "minimum": 1}}])
        self.assertEqual(get["responses"]["200"]["content"]["application/json"]["schema"]["properties"]["items"],
                         {"type": "array", "items": {"$ref": "#/components/schemas/Item"}})
        post = document["paths"]["/items"]["post"]
        self.assertEqual((post["operationId"], sorted(post["responses"]), post["responses"]["409"]), (
            "addItem", ["201", "400", "401", "409", "413", "415", "422"], {"description": "the name is taken"}))
        self.assertEqual(post["responses"]["201"]["headers"], {"Location": {"description": "Where it is", "schema": {"type": "string"}}})
        self.assertEqual(document["components"]["schemas"]["Item"]["additionalProperties"], False)
        form = document["paths"]["/items/{id}"]["put"]["requestBody"]["content"]
        self.assertEqual(sorted(form), ["application/x-www-form-urlencoded", "multipart/form-data"])
        self.assertEqual(form["multipart/form-data"]["schema"]["required"], ["name"])
        self.assertEqual(form["multipart/form-data"]["schema"]["properties"]["old"], {"type": "boolean", "default": False})
        files = document["paths"]["/photos"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
        self.assertEqual((files["required"], files["properties"]["more"]["items"]["contentMediaType"]), (
            ["photo", "title"], "application/octet-stream"))
        self.assertEqual(one["/export.csv"]["responses"]["200"], {"description": "Rows", "content": {"text/csv": {}}})
        self.assertEqual(one["/export.csv"]["parameters"][0]["name"], "X-Rows")

    def test_who_may_do_what(self):
        paths = self.document()["paths"]
        self.assertEqual([paths[p][m].get("security") for p, m in (
            ("/items", "get"), ("/items", "post"), ("/me", "get"), ("/open", "get"), ("/admin", "get"), ("/admin/items/{id}", "delete"))],
            [None, [{"basicAuth": []}], [{"login": []}], [], [{"basicAuth": []}], [{"basicAuth": [], "bearerAuth": []}]])
        self.assertEqual(self.document()["components"]["securitySchemes"], {
            "basicAuth": {"type": "http", "scheme": "basic"}, "bearerAuth": {"type": "http", "scheme": "bearer"},
            "login": {"type": "apiKey", "in": "cookie", "name": "sid"}})

    def test_what_the_server_answers_to_bodies_that_it_refuses(self):
        document = self.document()
        for path, method in (("/items/{id}", "patch"), ("/items/{id}", "put"), ("/photos", "post")):
            responses = document["paths"][path][method]["responses"]
            self.assertEqual({status: responses[status] for status in ("400", "413", "415")}, {
                status: {"$ref": "#/components/responses/" + name} for status, name in (("400", "BadBody"), ("413", "LargeBody"), ("415", "OtherBody"))})
        for status, body in (("BadBody", "{"), ("OtherBody", "{}"), ("LargeBody", "[" + " " * 2000)):
            answer = self.ask("PATCH", "/items/7", [("Content-Type", "text/csv")] if status == "OtherBody" else (), body.encode())
            self.assertEqual((answer.status, answer.header("Content-Type").split(";")[0]), (
                {"BadBody": 400, "LargeBody": 413, "OtherBody": 415}[status], *document["components"]["responses"][status]["content"]))
        self.assertNotIn("400", document["paths"]["/items"]["get"]["responses"])

    def test_a_mounted_app_describes_its_own_routes(self):
        self.assertEqual(self.get("/admin/openapi.json").status, 401)
        document = self.document("/admin/openapi.json", [LOGIN])
        self.assertEqual((document["servers"], sorted(document["paths"])), ([{"url": "/admin"}], ["/", "/items/{id}"]))
        self.assertEqual(document["paths"]["/items/{id}"]["delete"]["security"], [{"basicAuth": [], "bearerAuth": []}])
        self.assertIn('href="../openapi.json"', self.get("/admin/docs/api", [LOGIN]).text)

    def test_what_routes_check(self):
        def form(**fields):
            return [("Content-Type", "application/x-www-form-urlencoded")], urllib.parse.urlencode(fields).encode()
        for method, path, (fields, body), status, expected in (
                ("GET", "/items?tag=a&tag=b&x=1", ((), b""), 200, [1, ["a", "b"]]), ("GET", "/items?page=3", ((), b""), 200, [3, []]),
                ("GET", "/items?page=x&page=2", ((), b""), 422, {"query.page": 'must be a whole number; got "x"'}),
                ("POST", "/items", ([LOGIN], b'{"name":"a","price":1}'), 201, {"name": "a", "price": 1, "state": "new"}),
                ("POST", "/items", ([LOGIN], b'{"name":"a","price":-1,"x":1}'), 422, {"price": "must be at least 0", "x": "is unknown"}),
                ("PATCH", "/items/7", ((), b'{"name":null}'), 200, [7, True]),
                ("PATCH", "/items/x", ((), b'{"name":5}'), 422, {"params.id": 'must be a whole number; got "x"'}),
                ("PUT", "/items/x", form(name="a", count="5"), 200, {"name": "a", "count": 5, "old": False}),
                ("PUT", "/items/x", form(count="y", name=""), 422, {"name": "is missing", "count": "must be a whole number; got \"y\""}),
                ("PUT", "/items/x", FILE, 422, {"name": "must be a text; got a file"}),
                ("GET", "/export.csv", ((), b""), 422, {"headers.X-Rows": "is missing"})):
            with self.subTest(method + " " + path):
                response = self.ask(method, path, fields, body)
                value = json.loads(response.text)
                self.assertEqual((response.status, value.get("fields") if status == 422 else value), (status, expected))
        self.assertEqual(self.ask("POST", "/items", [], b"{}").status, 401)  # before the body is read
        self.assertEqual(self.get("/export.csv", [("x-rows", "5")]).text, "5")

    def test_the_policy_names_what_the_page_has(self):
        page = self.get("/openapi")
        for name in ("style", "script"):
            part, = re.findall("<%s>(.*?)</%s>" % (name, name), page.text, re.S)
            self.assertIn("%s-src 'sha256-%s'" % (name, base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()),
                          page.header("Content-Security-Policy"))
        self.assertNotRegex(page.text, r"<script [^>]|<link[^>]*stylesheet|@import|url\(|@[A-Z]+@| style=| on\w+=|https?://")


@needs_npm
class Schemas(E2E):
    def compared(self, cases):
        server = self.serve(checks_site(cases))
        answers, document = json.loads(server.get("/cases").text), json.loads(server.get("/openapi.json").text)
        schemas = [document["paths"]["/%d" % (i + 1)]["get"]["responses"]["200"]["content"]["application/json"]["schema"] for i in range(len(answers))]
        got = node(COMPARE, [{"schema": s, "samples": a["samples"]} for s, a in zip(schemas, answers)])
        return zip(schemas, answers, got)

    def test_each_kind_accepts_what_its_check_accepts(self):
        for schema, answer, got in self.compared(CASES):
            self.assertEqual(list(zip(answer["samples"], got)), list(zip(answer["samples"], answer["accepted"])), schema)
            self.assertEqual(sorted(set(answer["accepted"])) or None, [False, True] if False in got else [True], schema)

    def test_each_pattern_matches_what_its_regular_expression_matches(self):
        samples = ", ".join("[[%s]]" % json.dumps(text, ensure_ascii=False) for text in STRINGS)
        without = []
        for (schema, answer, got), pattern in zip(self.compared("".join(
                "{ { is = 'string', pattern = [==[%s]==] }, { %s } }," % (pattern, samples) for pattern in PATTERNS)), PATTERNS):
            if "pattern" not in schema:
                without.append(pattern)
                self.assertEqual(schema["description"], "Matches the pattern of Lua " + pattern)
                continue
            self.assertEqual(list(zip(answer["samples"], got)), list(zip(answer["samples"], answer["accepted"])), (pattern, schema["pattern"]))
        self.assertEqual(without, [r"^é+$", r"^ü?x", r"^.$", r"^[^x]$", r"^%bxy$", r"%f[%w]a", r"(a)%1", r"^[é]$", r"^.+.+$"])


class Definition(E2E):
    def test_options(self):
        server = self.serve("""local ls = require "luaserve"
local app = ls.app()
-- A remark of the site
app:get("/a", function() return "a" end)
app:openapi("/api.json", { servers = { "https://api.example/v1" }, comments = false, auth = require "luaserve.basic_auth" { users = { ada = "secret of ada" } } })
ls.listen("127.0.0.1:0", app)""")
        self.assertEqual((server.get("/api.json").status, server.get("/api").status, server.get("/openapi").status), (401, 401, 404))
        with server.connect() as conn:
            conn.send(request("GET", "/api.json", [LOGIN]))
            document = json.loads(conn.response().text)
        self.assertEqual((document["servers"], document["info"]), ([{"url": "https://api.example/v1"}], {"title": "site", "version": "1.0.0"}))
        self.assertEqual(document["paths"]["/a"]["get"], {"operationId": "get_a", "responses": {"default": {"description": "Response"}}})


    def test_only_what_is_protected_is_said_to_be(self):
        uses = ("/admin", "/t/:id/admin", "/w/private", "/q/:x")
        routes = {"/:slug": "some", "/:a/:b": "some", "/:a/:b/:c/:d": "some", "/:a/:b/:c": "some", "/x/:b/:c": None, "/t/:id/public": None, "/t/:id/admin": "all", "/t/:id/:page": "some", "/admin/:x": "all",
                  "/w/:x": "some", "/w/*rest": "some", "/w/public": None, "/W/Private": "all", "/q": None, "/q/:x": "all", "/q/*rest": "all", "/*all": "some"}
        server = self.serve(app_site("local basic = require 'luaserve.basic_auth' { users = { ada = 'secret of ada' } }\n"
            + "".join("app:use('%s', basic)\n" % path for path in uses) + "".join("app:get('%s', function() return 'x' end)\n" % path for path in routes)
            + "app:openapi('/openapi.json', { title = 'A & B' })"))
        self.assertIn("<title>A &amp; B</title>", server.get("/openapi").text)
        paths, basic = json.loads(server.get("/openapi.json").text)["paths"], {"basicAuth": []}
        for route, reach in routes.items():
            name = re.sub("[:*]([a-z]+)", r"{\1}", route)
            with self.subTest(route):
                self.assertEqual(paths[name]["get"].get("security"), {"all": [basic], "some": [{}, basic], None: None}[reach])
                self.assertEqual(server.get(re.sub("{[a-z]+}", "zz", name)).status, 401 if reach == "all" else 200)

    def test_ids_stay_when_routes_are_added(self):
        def ids(*routes):
            text = "".join("app:get('%s', function() end)\n" % path for path in routes)
            text += "local other = ls.app()\nother:get('/', { id = 'other' }, function() end)\napp:mount('/other', other)\n"
            paths = json.loads(self.serve(app_site(text + "app:openapi '/openapi.json'")).get("/openapi.json").text)["paths"]
            return {path: item["get"]["operationId"] for path, item in paths.items()}
        before = {"/": "get", "/books/{id}": "get_books_by_id", "/files/{path}": "get_files_by_path", "/other": "other", "/other/": "other_slash"}
        self.assertEqual(ids("/", "/books/:id", "/files/*path"), before)
        self.assertEqual(ids("/", "/books/id", "/books", "/books/:id", "/books/:id/", "/files/*path"), {
            **before, "/books/id": "get_books_id", "/books": "get_books", "/books/{id}/": "get_books_by_id_slash"})


@unittest.skipIf(WINDOWS, "of another system: Wine would have to start the program")
class Packed(E2E):
    def test_the_comments_of_a_packed_site(self):
        folder = self.new_folder()
        app = os.path.join(folder, "app")
        write_text(folder + "/site.lua", 'local ls = require "luaserve"\nlocal app = ls.app()\n-- Says hello.\napp:get("/", function() return "x" end)\n'
                   'app:openapi("/openapi.json", { page = false })\nls.listen("127.0.0.1:0", app)')
        status, out, err = run_program(["pack", "site.lua", "-o", app], cwd=folder)
        self.assertEqual(status, 0, out + err)
        os.remove(folder + "/site.lua")
        document = json.loads(self.serve(None, site_path="x", program=[app], cwd=folder).get("/openapi.json").text)
        self.assertEqual(document["paths"]["/"]["get"]["summary"], "Says hello")


@needs_browser
class Page(E2E):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def open(self, width=1000, height=700, phone=False, dark=False, path="/openapi"):
        page = self.browser.page("about:blank#", width, height, phone)
        self.addCleanup(page.close)
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        page.call("Page.navigate", url="http://127.0.0.1:%d%s" % (self.serve(SHOP).port(), path))
        page.wait("document.documentElement.dataset.drawn === '1'")
        return page

    def test_what_it_shows(self):
        page = self.open()
        self.assertEqual(page.run("[document.title, document.querySelectorAll('details.route').length, "
                                  "[...document.querySelectorAll('h2')].map((h) => h.textContent).join()]"),
                         ["Shop", 13, "Authentication,admin,export.csv,files,items,me,numbers,open,photos,Schemas"])
        page.run("document.getElementById('addItem').open = true")
        page.wait("document.querySelector('#addItem h3') !== null")
        text = page.run("document.getElementById('addItem').textContent")
        for part in ("Adds one", "Item", "Body: application/json", "the name is taken", "Location", "Authentication: basicAuth"):
            self.assertIn(part, text)
        self.assertIn("1 to 80 characters", page.run("document.getElementById('schemas').textContent"))
        page.write("#find", "change patch")
        page.wait("[...document.querySelectorAll('details.route')].filter((r) => !r.hidden).length === 1")
        page.write("#find", "zzz")
        page.wait("!document.getElementById('none').hidden")
        page.check()

    def test_requests_are_sent(self):
        page = self.open(path="/openapi#addItem")
        page.wait("document.querySelector('#addItem form') !== null")
        send = "document.querySelector('#addItem .try button').click()"
        for field, value, answer in (("user", "ada", "401"), ("password", "secret of ada", '"state": "new"')):
            page.run("(() => { const i = [...document.querySelectorAll('#login label')].find((l) => l.textContent === '%s ').querySelector('input');"
                     "i.value = '%s'; i.dispatchEvent(new Event('input')); })()" % (field, value))
            page.run(send)
            page.wait("document.querySelector('#addItem .answer').textContent.includes('%s')" % answer)
        page.run("document.querySelector('#addItem textarea').value = '{}'; " + send)
        page.wait("document.querySelector('#addItem .answer').textContent.includes('is missing')")
        page.run("location.hash = 'put_items_by_id'")
        page.wait("document.querySelector('#put_items_by_id form') !== null")
        page.run("document.querySelectorAll('#put_items_by_id .try input').forEach((i) => { i.value = '7'; })")
        page.run("document.querySelector('#put_items_by_id .try button').click()")
        page.wait("document.querySelector('#put_items_by_id .answer').textContent.includes('\"count\": 7')")
        page.run("document.getElementById('get_numbers').open = true")
        page.wait("document.querySelector('#get_numbers .try button') !== null")
        page.run("document.querySelector('#get_numbers .try button').click()")
        page.wait("document.querySelector('#get_numbers .answer').textContent.includes('{\\n  \"n\": 9007199254740993\\n}')")
        page.check()

    def test_phone_keyboard_and_dark(self):
        page = self.open(360, 700, phone=True, dark=True)
        page.click("#all")
        page.wait("document.querySelectorAll('details.route form').length === 13")
        self.assertLessEqual(page.run("document.documentElement.scrollWidth"), 360)
        self.assertGreater(page.run("Math.min(...[...document.querySelectorAll('td')].map((cell) => cell.clientWidth))"), 150)
        self.assertEqual(page.run("getComputedStyle(document.body).backgroundColor"), "rgb(19, 23, 28)")
        page.click("#all")
        page.run("document.querySelector('#addItem summary').focus()")
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r" if kind == "keyDown" else "")
        page.wait("document.getElementById('addItem').open")
        self.assertEqual(page.run("performance.getEntriesByType('resource').filter((e) => !e.name.startsWith(location.origin)).length"), 0)
        page.check()
