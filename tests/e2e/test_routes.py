"""Routes: methods, parameters, 404 and 405, HEAD and OPTIONS; middleware, mounted applications, error pages."""

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
        for path, status, text in (("/hello/a%20b%C3%A9", 200, "hello a b\u00e9"), ("/a/1/b/2", 200, "1|2"), ("/hello/%zz", 400, None),
                                   ("/files/a%20b/c.txt", 200, "a b/c.txt"), ("/fixed/one", 200, "fixed one"),
                                   ("/nowhere", 404, "no /nowhere\n")):
            response = self.get(path)
            self.assertEqual((response.status, response.text if text else None), (status, text), path)

    def test_head_is_get_without_body(self):
        with self.connect() as conn:
            got = conn.get("/hello/x")
            head = conn.ask("HEAD", "/hello/x")
            self.assertEqual(head.status, 200)
            self.assertEqual(head.header("Content-Length"), got.header("Content-Length"))
            self.assertEqual(head.header("Content-Type"), got.header("Content-Type"))
            self.assertEqual(conn.get("/hello/y").text, "hello y")
