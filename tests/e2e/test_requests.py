"""What a handler reads of a request: query, headers, cookies, address fields, JSON, forms, bodies; many requests at
once."""
import json
import os

from harness import E2E, app_site

SITE = app_site(r"""
app:get("/", function() return "root\n" end)
app:get("/hello/:name", function(req) return "hello " .. req.params.name end)
app:get("/query", function(req)
  return { a = req.query.a, b = req.query.b, empty = req.query.empty, missing = req.query.missing == nil }
end)
app:get("/headers", function(req)
  return { field = req.headers["x-thing"], upper = req.headers["X-THING"], method = req:header("x-ThInG"),
           none = req.headers["x-none"] == nil and req:header("x-none") == nil }
end)
app:get("/cookies", function(req) return { a = req.cookies.a, b = req.cookies.b, none = req.cookies.c == nil } end)
app:any("/fields", function(req)
  return { method = req.method, path = req.path, target = req.target, version = req.version, remote = req.remote, ip = req.ip,
           port = req.port, local_addr = req.local_addr, local_ip = req.local_ip, local_port = req.local_port, id = req.id,
           scheme = req.scheme, host = req.authority }
end)
app:post("/json", function(req) return 201, req:json() end)
app:post("/nulls", function(req)
  local without, with = req:json(), req:json{ null = true }
  return { without, with, is_null = with.a == ls.json.null, absent = without.a == nil }
end)
app:post("/object", function(req)
  return { size = #(next(req:json{ object = true }) or "") }
end)
app:post("/array", function(req) return tostring(#req:json{ array = true }) end)
app:post("/both", function(req) return req:json{ array = true, object = true } end)
app:post("/caught", function(req)
  if not pcall(req.json, req, { object = true }) then error("another error") end
end)
app:post("/any", function(req) return { value = req:json{ object = false } } end)
app:get("/query-all", function(req)
  local all, names = req.query_all, {}
  for name in pairs(all) do names[#names + 1] = name end
  table.insert(all.none, "not kept")
  assert(rawequal(all, req.query_all) and #all.none == 0)
  table.sort(names)
  return { names = names, tag = all.tag, x = all.x, none = all.none, first = req.query.tag }
end)
app:post("/form-all", function(req)
  local form = req:form_all()
  return { tag = form.tag, none = form.none, same = req:form().tag }
end)
app:post("/form", function(req)
  local form = req:form()
  return { a = form.a, b = form.b }
end)
app:post("/form-again", function(req)
  local ok, message = pcall(req.form, req)
  return 418, message
end)
app:post("/body", function(req) return req:body() end)
app:post("/buffer", function(req) return req:buffer() end)
app:post("/pieces", function(req)
  local n = 0
  for piece in req:chunks() do n = n + #piece end
  return tostring(n)
end)
app:post("/twice", function(req) return req:body() .. req:body() end)
app:get("/accepts", function(req) return req:accepts("html", "json", "text/csv") or "none" end)
app:get("/accepts-twice", function(req) return tostring(req:accepts "html") .. " " .. req:accepts("text/csv") end)
app:get("/accepts-vary", function(req, res)
  res:header("Vary", "Origin")
  return req:accepts ".html"
end)
app:get("/accepts-none", function(req) return req:accepts() or "" end)
app:get("/accepts-number", function(req) return req:accepts(5) or "" end)
app:get("/accepts-unknown", function(req) return req:accepts("htmml") or "" end)
""")


class Requests(E2E):
    SITE = SITE

    def test_json_objects(self):
        for body, size in (('{}', 0), ('{"abc":1}', 3), (' \r\n\t{"a":[]}', 1)):
            response = self.ask("POST", "/object", body=body.encode())
            self.assertEqual((response.status, json.loads(response.text)), (200, {"size": size}), body)
        for body, kind in (("[{}]", "an array"), ("null", "null"), ("-1", "a number"), ('"x"', "a string"), ("true", "a boolean"),
                           (" ", "an empty body"), ("x", "malformed JSON"), (" \0{}", "malformed JSON")):
            mark = self.server.mark()
            with self.server.connect() as conn:
                response = conn.ask("POST", "/object", body=body.encode())
                self.assertEqual((response.status, response.header("Content-Type"), response.text),
                                 (400, "text/plain; charset=utf-8", "the request body must be a JSON object; got %s\n" % kind))
                self.assertFalse(response.closes, "the connection is kept")
                self.assertEqual(conn.get("/").text, "root\n")
            self.assertIn("info request", self.server.wait_log("must be a JSON object; got " + kind, mark))
        response = self.ask("POST", "/object", body=b'{"a":')
        self.assertEqual(response.status, 400)
        self.assertIn("must be a JSON object; it is malformed: ", response.text)
        self.assertEqual(self.ask("POST", "/object", body=b'{"' + b"x" * 100000).status, 400)
        for body, size in ((b"[]", "0"), (b" [1,null]", "2")):
            self.assertEqual(self.ask("POST", "/array", body=body).text, size)
        for body, says in ((b"{}", "got an object"), (b'{"a":[1]}', "got an object"), (b"5", "got a number"),
                           (b"[1", "it is malformed: ")):
            response = self.ask("POST", "/array", body=body)
            self.assertEqual(response.status, 400)
            self.assertIn("the request body must be a JSON array; " + says, response.text)
        self.assertEqual(self.ask("POST", "/both", body=b"[]").status, 500)
        self.server.wait_log("req:json: object and array exclude each other")
        self.assertEqual(self.ask("POST", "/caught", body=b"[]").status, 500, "the site has caught the refusal")
        self.assertEqual(json.loads(self.ask("POST", "/any", body=b"[1]").text), {"value": [1]})

    def test_repeated_values(self):
        self.assertEqual(json.loads(self.get("/query-all?tag=a&x&tag=b+%26&tag=").text),
                         {"names": ["tag", "x"], "tag": ["a", "b &", ""], "x": [""], "none": [], "first": "a"})
        self.assertEqual(json.loads(self.get("/query-all?tag=1").text)["tag"], ["1"])
        many = "&".join("tag=%d" % n for n in range(100))
        self.assertEqual(json.loads(self.get("/query-all?" + many).text)["tag"], [str(n) for n in range(100)])
        form = {"Content-Type": "application/x-www-form-urlencoded"}.items()
        self.assertEqual(json.loads(self.ask("POST", "/form-all", form, b"tag=a&b=1&tag=c+d").text),
                         {"tag": ["a", "c d"], "none": [], "same": "a"})
        self.assertEqual(self.ask("POST", "/form-all", body=b"tag=a").status, 415)

    def test_fields(self):
        with self.connect() as conn:
            got = json.loads(conn.get("/fields?q=1", {"Host": "example.org:81"}).text)
            mine = "%s:%d" % conn.sock.getsockname()
            theirs = "%s:%d" % conn.sock.getpeername()
        self.assertEqual(got["method"], "GET")
        self.assertEqual(got["path"], "/fields")
        self.assertEqual(got["target"], "/fields?q=1")
        self.assertIn("1.1", got["version"])
        self.assertEqual(got["scheme"], "http")
        self.assertEqual(got["host"], "example.org:81")
        self.assertEqual([got["remote"], got["ip"], got["port"]], [mine, "127.0.0.1", int(mine.split(":")[1])])
        self.assertEqual([got["local_addr"], got["local_ip"], got["local_port"]], [theirs, "127.0.0.1", int(theirs.split(":")[1])])

    def test_accepts(self):
        for accept, kind in {None: "html", "": "none", "*/*": "html", "application/json": "json", "image/png": "none",
                             "text/html;q=0.5, application/json;q=0.5": "html", "text/*;q=0.1, */*;q=0.2": "json",
                             "text/html;q=0": "none", "text/csv": "text/csv", "text/html;q=x, text/csv;q=0.001": "text/csv"}.items():
            with self.subTest(accept):
                response = self.get("/accepts", [("Accept", accept)] if accept is not None else [])
                self.assertEqual((response.text, response.all("vary")), (kind, ["Accept"]))
        response = self.get("/accepts-twice", [("Accept", "text/csv")])
        self.assertEqual((response.text, response.all("vary")), ("nil text/csv", ["Accept"]))
        self.assertEqual(self.get("/accepts-vary").all("vary"), ["Origin", "Accept"])
        for call, says in (("accepts-none", "string expected, got no value"), ("accepts-number", "unknown type '5'"),
                           ("accepts-unknown", "req:accepts: unknown type 'htmml'; write a media type")):
            self.assertEqual(self.get("/" + call).status, 500)
            self.server.wait_log("/%s: .*site.lua:\\d+: .*%s" % (call, says))

    def test_ids_are_unique_over_listeners_injected_requests_and_servers(self):
        # each listener began at 1, and each server: two uploads had one name
        site = app_site("""
app:get("/id", function(req) return req.id end)
app:get("/injected", function() return app:inject{ path = "/id" }.body end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
""")
        servers = [self.serve(site, listeners=2) for _ in range(2)]
        ids = [server.get(path, index=index).text for server in servers for index in (0, 1) for path in ("/id", "/injected")
               for _ in range(3)]
        self.assertEqual(len(set(ids)), len(ids), ids)
        for server in servers:
            server.stop()

    def test_json_in_and_out(self):
        response = self.ask("POST", "/json", {"Content-Type": "application/json"}, b'{"a":[1,2,{"b":null}],"c":"\\u00e9"}')
        self.assertEqual(response.status, 201)
        self.assertEqual(json.loads(response.text), {"a": [1, 2, {}], "c": "\u00e9"})
        self.assertTrue(response.header("Content-Type").startswith("application/json"))
        self.assertEqual(json.loads(self.ask("POST", "/json", body=b" []").text), [])

    def test_nulls(self):
        response = self.ask("POST", "/nulls", body=b'{"a":null,"b":[null,1,{"c":null,"d":{"e":null}}],"f":"null"}')
        self.assertEqual(json.loads(response.text), {
            "1": {"b": [None, 1, {"d": {}}], "f": "null"},
            "2": {"a": None, "b": [None, 1, {"c": None, "d": {"e": None}}], "f": "null"}, "is_null": True, "absent": True})
        deep = b'{"a":null,"b":' + b'[' * 900 + b'null' + b']' * 900 + b'}'
        self.assertEqual(self.ask("POST", "/nulls", body=deep).status, 200)
        many = b'{' + b','.join(b'"k%d":null' % n for n in range(20000)) + b',"z":1}'
        self.assertEqual(json.loads(self.ask("POST", "/json", body=many).text), {"z": 1})

    def test_a_form_must_be_utf_8(self):
        part = b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n%s\r\n--b--\r\n'
        for type_, body, status in (("application/x-www-form-urlencoded", b"a=%ff", 400), ("application/x-www-form-urlencoded", b"%ff=1", 400),
                                    ("application/x-www-form-urlencoded", "a=ü&b=%C3%BC".encode(), 200),
                                    ("multipart/form-data; boundary=b", part % b"\xff", 400),
                                    ("multipart/form-data; boundary=b", part % "ü".encode(), 200)):
            response = self.ask("POST", "/form", {"Content-Type": type_}, body)
            self.assertEqual(response.status, status, response.text)
            if status == 400:
                self.assertEqual(response.text, "the form must be UTF-8\n")
        self.assertEqual(self.ask("POST", "/form-all", {"Content-Type": "application/x-www-form-urlencoded"}, b"tag=a&tag=%ff").status, 400)

    def test_bad_json_is_refused(self):
        for bad in (b"{", b"", b"5", b"null", b"[1e999]", b'["\xed\xa0\x80"]'):
            response = self.ask("POST", "/json", {"Content-Type": "application/json"}, bad)
            self.assertEqual(response.status, 400, bad)
            self.assertIn("the request body must be a JSON object or array; ", response.text)

    def test_types_of_json(self):
        page = {"Origin": "http://other.example"}
        for fields, status in (
                ({"Content-Type": "application/json"}, 201), ({"Content-Type": "Application/JSON ; charset=utf-8"}, 201),
                ({"Content-Type": "application/vnd.api+json"}, 201), ({}, 201),
                ({"Content-Type": "application/x-www-form-urlencoded"}, 201), ({"Content-Type": "text/plain"}, 415),
                ({"Content-Type": "application/jsonx"}, 415), ({"Content-Type": "+json"}, 415),
                ({"Content-Type": "multipart/form-data"}, 415), ({"Content-Type": "application/json", **page}, 201),
                # Browsers send these without a preflight.
                (page, 415), ({"Content-Type": "application/x-www-form-urlencoded", **page}, 415)):
            response = self.ask("POST", "/json", fields, b"{}")
            self.assertEqual(response.status, status, fields)
            if status == 415:
                type_ = fields.get("Content-Type")
                self.assertEqual(response.text, "the Content-Type must be application/json; %s\n"
                                 % ("got " + type_ if type_ else "it is missing"))

    def test_form(self):
        response = self.ask("POST", "/form", {"Content-Type": "application/x-www-form-urlencoded"}, b"a=1+2&b=%26%3D&c")
        self.assertEqual(json.loads(response.text), {"a": "1 2", "b": "&="})
        for fields, body, status, says in (
                ({}, b"a=1", 415, "the Content-Type must be application/x-www-form-urlencoded or multipart/form-data; it is missing\n"),
                ({"Content-Type": "application/json"}, b"{}", 415, "; got application/json\n"),
                ({"Content-Type": "multipart/form-data; boundary=b"}, b"a=1", 400,
                 "the multipart body is malformed: there is no boundary\n"),
                ({"Content-Type": "multipart/form-data"}, b"--b--", 400, "has no valid boundary\n")):
            mark = self.server.mark()
            with self.server.connect() as conn:
                response = conn.ask("POST", "/form", fields, body)
                self.assertEqual(response.status, status)
                self.assertTrue(response.text.endswith(says), response.text)
                self.assertFalse(response.closes, "the connection is kept")
                self.assertEqual(conn.get("/").text, "root\n")
            self.assertIn("info request", self.server.wait_log(says.strip()[-20:], mark))
            response = self.ask("POST", "/form-again", fields, body)
            self.assertEqual((response.status, response.text.endswith(says.strip())), (418, True), response.text)

    def test_multipart_form(self):
        def part(head, data):
            return b"--b b\r\nContent-Disposition: form-data; " + head + b"\r\n\r\n" + data + b"\r\n"
        body = (part(b'name="a"', b"1 + 2 = \xe2\x82\xac") + part(b'name="f"; filename="x"\r\nContent-Type: image/png', os.urandom(300000))
                + part(b'name="b"', b"") + part(b'name="a"', b"3") + b"--b b--\r\n")
        multipart = {"Content-Type": 'multipart/form-data; boundary="b b"'}
        self.assertEqual(json.loads(self.ask("POST", "/form", multipart, body).text), {"a": "1 + 2 = \u20ac", "b": ""})
        body = part(b'name="tag"', b"a") + part(b'name="tag"', b"b&c=d") + b"--b b--"
        self.assertEqual(json.loads(self.ask("POST", "/form-all", multipart, body).text),
                         {"tag": ["a", "b&c=d"], "none": [], "same": "a"})

    def test_bodies(self):
        for size in (0, 1, 2047, 2048, 2049, 5000, 20000, 100000, 300000, 17):
            body = os.urandom(size)
            self.assertEqual(self.ask("POST", "/body", body=body).body, body)
            self.assertEqual(self.ask("POST", "/buffer", body=body).body, body)
            self.assertEqual(self.ask("POST", "/pieces", body=body).text, str(len(body)))
