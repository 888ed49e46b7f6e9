"""Routes: methods, parameters, 404 and 405, HEAD and OPTIONS; middleware, mounted applications, error pages."""
import json

from harness import E2E, app_site

ROUTES = app_site(r"""
for _, verb in ipairs{"get", "post", "put", "patch", "delete"} do
  app[verb](app, "/verb/" .. verb, function(req) return verb .. ":" .. req.method end)
end
app:head("/verb/head", function(req, res) res:header("X-Verb", "head"); return 200 end)
app:options("/verb/options", function(req, res) res:header("X-Verb", "options"); return 204 end)
app:any("/any", function(req) return req.method end)
app:route("PURGE", "/cache", function(req) return "purged" end)
app:get("/hello/:name", function(req) return "hello " .. req.params.name end)
app:get("/a/:x/b/:y", function(req) return req.params.x .. "|" .. req.params.y end)
app:get("/files/*path", function(req) return req.params.path end)
app:get("/fixed/one", function() return "fixed one" end)
app:get("/fixed/:any", function(req) return "any " .. req.params.any end)
app:get("/two", function() return "get" end)
app:post("/two", function() return "post" end)
app:not_found(function(req) return 404, "no " .. req.path .. "\n" end)
""")


class Routes(E2E):
    SITE = ROUTES

    def test_methods_and_paths(self):
        for verb in ("get", "post", "put", "patch", "delete"):
            body = b"" if verb in ("post", "put", "patch") else None
            self.assertEqual(self.ask(verb.upper(), "/verb/" + verb, body=body).text, verb + ":" + verb.upper())
            self.assertEqual(self.ask(verb.upper(), "/any", body=body).text, verb.upper())
        head, options = self.ask("HEAD", "/verb/head"), self.ask("OPTIONS", "/verb/options")
        self.assertEqual((head.status, head.header("X-Verb"), head.body), (200, "head", b""))
        self.assertEqual((options.status, options.header("X-Verb")), (204, "options"))
        self.assertEqual(self.ask("PURGE", "/cache").text, "purged")
        for path, status, text in (("/hello/a%20b%C3%A9", 200, "hello a b\u00e9"), ("/a/1/b/2", 200, "1|2"),
                                   ("/hello/%zz", 400, None),
                                   ("/files/a%20b/c.txt", 200, "a b/c.txt"), ("/fixed/one", 200, "fixed one"),
                                   ("/nowhere", 404, "no /nowhere\n")):
            response = self.get(path)
            self.assertEqual((response.status, response.text if text else None), (status, text), path)

    def test_wrong_method_names_the_right_ones(self):
        for method, statuses in (("DELETE", (405,)), ("OPTIONS", (200, 204))):
            response = self.ask(method, "/two")
            self.assertIn(response.status, statuses)
            allow = {m.strip() for m in response.header("Allow").split(",")}
            self.assertLessEqual({"GET", "HEAD", "POST"}, allow)
            self.assertNotIn("DELETE", allow)

    def test_head_is_get_without_body(self):
        with self.connect() as conn:
            got = conn.get("/hello/x")
            head = conn.ask("HEAD", "/hello/x")
            self.assertEqual(head.status, 200)
            self.assertEqual(head.header("Content-Length"), got.header("Content-Length"))
            self.assertEqual(head.header("Content-Type"), got.header("Content-Type"))
            self.assertEqual(conn.get("/hello/y").text, "hello y")


COMPOSED = app_site(r"""
local sub, deep = ls.app(), ls.app()
app:use(function(req, res, next) res:header("X-Outer", req.id); return next() end)
app:use(function(req, res, next)
  if req.headers["x-stop"] then return 403, "stopped" end
  return next()
end)
app:use(function(req, res, next)
  if req.headers["x-sleep"] then ls.sleep(0.01) end
  return next()
end)
app:get("/", function() return "top" end)
app:get("/boom", function() error("boom here") end)
app:get("/boom-table", function() error({ code = 7 }) end)
sub:use(function(req, res, next) res:header("X-Sub", "yes"); return next() end)
sub:get("/", function() return "sub root" end)
sub:get("/x/:id", function(req) return "sub " .. req.params.id end)
deep:get("/y", function() return "deep" end)
sub:mount("/deep", deep)
app:mount("/sub", sub)
app:error(function(req, res, err)
  return 500, { error = "internal", text = type(err) == "table" and "code " .. err.code or tostring(err), id = tostring(req.id) }
end)
app:not_found(function(req) return 404, "nothing at " .. req.path end)
""")


class Composed(E2E):
    SITE = COMPOSED

    def test_use_runs_around(self):
        response = self.get("/")
        self.assertEqual(response.text, "top")
        self.assertTrue(response.header("X-Outer"))
        stopped = self.get("/", {"X-Stop": "1"})
        self.assertEqual((stopped.status, stopped.text), (403, "stopped"))
        self.assertTrue(stopped.header("X-Outer"))
        self.assertEqual(self.get("/", {"X-Sleep": "1"}).text, "top")

    def test_mount(self):
        for path, text in (("/sub/", "sub root"), ("/sub/x/9", "sub 9"), ("/sub/deep/y", "deep")):
            response = self.get(path)
            self.assertEqual((response.status, response.text, response.header("X-Sub")), (200, text, "yes"), path)
        self.assertEqual(self.get("/sub/none").status, 404)
        self.assertEqual(self.get("/subway").status, 404)

    def test_error_page(self):
        response = self.get("/boom")
        got = json.loads(response.text)
        self.assertEqual((response.status, got["error"]), (500, "internal"))
        self.assertIn("boom here", got["text"])
        self.assertTrue(got["id"])
        self.assertEqual(json.loads(self.get("/boom-table").text)["text"], "code 7")
