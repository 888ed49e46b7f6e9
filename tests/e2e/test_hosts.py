"""ls.listen{ hosts = ... }: several sites at one address."""
from harness import E2E, request, scratch
from harness.tls import certificate

SITE = """
local ls = require "luaserve"
local function site(name)
  local app = ls.app()
  app:use(function(req, res, next) next() res:header("X-Site", name) end)
  app:get("/", function(req) return name .. " " .. tostring(req.host) end)
  app:get("/fail", function() error("in " .. name) end)
  app:get("/count", function() return 12345 end)
  app:error(function(req, res, err) return "failed: " .. name end)
  app:not_found(function() return name .. " has no such page" end)
  return app
end
local one = site("one")
ls.file.mkdir("files")
ls.file.write("files/site.lua", "return 7")
one:static("/files", "files")
one:ws("/ws", function(ws) for m in ws:messages() do ws:send(m) end end)
ls.listen { host = "127.0.0.1", port = 0, hosts = {
  ["One.example"] = one, ["*.example"] = site("any"), ["*.deep.example"] = site("deep"), ["[::1]"] = site("six"),
  ["xn--bcher-kva.test."] = site("idn"), default = site("default") } }
ls.listen { host = "127.0.0.1", port = 0, hosts = { ["only.example"] = site("only") } }
"""


class Hosts(E2E):
    SITE = SITE
    LISTENERS = 2

    def site_of(self, host, index=0):
        with self.connect(index) as conn:
            conn.send(request("GET", "/", host=host))
            response = conn.response()
            return response.text.split()[0] if response.status == 200 else response.status

    def test_names(self):
        for host, site in (("one.example", "one"), ("ONE.EXAMPLE", "one"), ("one.example:8080", "one"), ("one.example.", "one"),
                           ("two.example", "any"), ("a.b.example", "any"), ("x.deep.example", "deep"), ("y.x.deep.example", "deep"),
                           ("deep.example", "any"), ("example", "default"), ("oneexample", "default"), ("127.0.0.1", "default"),
                           ("[::1]", "six"), ("[::1]:80", "six"), ("[::2]", "default"), ("xn--bcher-kva.test", "idn")):
            self.assertEqual(self.site_of(host), site, host)

    def test_the_host_of_a_request_is_as_it_is_chosen(self):
        for sent, host in (("ONE.Example.:8080", "one"), ("Two.Example.", "any two.example"), ("[::1]:80", "six [::1]"),
                           ("[::AB]", "default [::ab]"), ("a", "default a")):
            with self.connect() as conn:
                conn.send(request("GET", "/", host=sent))
                self.assertIn(conn.response().text, (host, host + " one.example"), sent)

    def test_without_a_default(self):
        self.assertEqual(self.site_of("only.example", 1), "only")
        self.assertEqual(self.site_of("other.example", 1), 421)
        self.assertEqual(self.site_of("sub.only.example", 1), 421)

    def test_a_request_without_a_name(self):
        for index, status in ((0, 200), (1, 421)):
            with self.connect(index) as conn:
                conn.send(b"GET / HTTP/1.0\r\n\r\n")
                self.assertEqual(conn.response().status, status)

    def test_each_site_has_its_handlers(self):
        for host, site in (("one.example", "one"), ("two.example", "any")):
            response = self.ask("GET", "/fail", [("Host", host)])
            self.assertEqual((response.status, response.text), (500, "failed: " + site))
            self.assertEqual(response.header("X-Site"), site)
            response = self.ask("GET", "/none", [("Host", host)])
            self.assertEqual((response.status, response.text), (404, site + " has no such page"))

    def test_all_of_http_passes(self):
        """What the recipe with app:inject lost: conditions, ranges, HEAD."""
        whole = self.ask("GET", "/files/site.lua", [("Host", "one.example")])
        tag = whole.header("ETag")
        self.assertEqual(self.ask("GET", "/files/site.lua", [("Host", "one.example"), ("If-None-Match", tag)]).status, 304)
        part = self.ask("GET", "/files/site.lua", [("Host", "one.example"), ("Range", "bytes=0-3")])
        self.assertEqual((part.status, part.body), (206, whole.body[:4]))
        head = self.ask("HEAD", "/files/site.lua", [("Host", "one.example")])
        self.assertEqual(head.header("Content-Length"), str(len(whole.body)))

    def test_messages_name_the_route_of_the_site(self):
        self.assertEqual(self.ask("GET", "/count", [("Host", "two.example")]).status, 500)
        self.server.wait_log(r"GET /count \(?\S*site\.lua:8\)?: .*12345|site\.lua:8: GET /count: .*12345")

    def test_names_without_a_certificate(self):
        with scratch() as folder:
            certificate(folder, "cert", ("one.example", "*.example.org", "*.deep.example"))
            server = self.serve("""
local ls = require "luaserve"
local one = ls.app()
one:get("/", function() return "one" end)
ls.listen { host = "127.0.0.1", port = 0, tls = { cert = [[%s/cert.pem]], key = [[%s/cert.key]] }, hosts = {
  ["ONE.example."] = one, ["a.example.org"] = one, ["*.deep.example"] = one, ["a.b.example.org"] = one,
  ["*.example"] = one, ["127.0.0.1"] = one, ["[::1]"] = one, default = one } }
ls.listen { host = "127.0.0.1", port = 0, tls = "self-signed", hosts = { ["two.example"] = one } }
""" % (folder, folder), listeners=2)
            for name in ("a.b.example.org", r"\*\.example"):
                server.wait_log(r"warn \S*site\.lua:5: tls: no certificate has the name '%s' of hosts: browsers refuse it" % name)
            self.assertEqual(len(server.logged("no certificate")), 2)

    def test_wrong_tables(self):
        for hosts, says in (
                ('{}', 'hosts must be a table of apps by name'), ('5', 'hosts must be a table of apps by name'),
                ('{ ["a.example"] = 5 }', '"a.example" needs an app'), ('{ ls.app() }', 'hosts needs names as keys'),
                ('{ ["a.example:80"] = ls.app() }', 'a name has no port: write "a.example"'),
                ('{ ["a.*.example"] = ls.app() }', '* stands only at the beginning'),
                ('{ ["http://a.example"] = ls.app() }', 'invalid name "http://a.example"'),
                ('{ ["a.example"] = ls.app(), ["A.example."] = ls.app() }', 'is there twice'),
                ('{ Default = ls.app() }', 'write default in small letters; got "Default"'),
                ('{ ["bücher.example"] = ls.app() }', 'xn--')):
            self.refuses('local ls = require "luaserve"\nls.listen { port = 0, hosts = %s }' % hosts, says)
        self.refuses('local ls = require "luaserve"\nls.listen { port = 0, handler = ls.app(), hosts = { default = ls.app() } }',
                     "hosts takes the place of handler")
        for call in "0, { hosts = { default = ls.app() } }", "0, ls.app(), { hosts = {} }":
            self.refuses('local ls = require "luaserve"\nls.listen(%s)' % call, "hosts stands in a single table: ls.listen{")

    def test_other_wrong_arguments(self):
        for call, says in (('"127.0.0.1", 0, ls.app()', 'the address is one argument: ls.listen("127.0.0.1:0", app)'),
                           ('{ port = 0 }, "127.0.0.1", ls.app()', 'the app is the second argument: ls.listen(8080, app, options)'),
                           ('0, {}, ls.app()', 'or ls.listen{ port = 8080, handler = app }'),
                           ('{ port = 0, handler = ls.app(), cert = "a" }',
                            'unknown option "cert"; it belongs into tls = { cert = "cert.pem", key = "key.pem" }'),
                           ('0, ls.app(), { key = "a" }', 'it belongs into tls = {')):
            self.refuses('local ls = require "luaserve"\nls.listen(%s)' % call, says)
