"""The traps of a first hour with requests and cookies: programs that look right must be right, or fail with a message that
says what to write."""
# wine: none; Lua code of a site, the same on every system
import http.cookiejar
import json
import os
import re
import time
import urllib.request

from harness import ROOT, in_parallel
from harness.program import Program
from harness.websocket import WebSocket


class Traps(Program):
    HEAD = Program.HEAD + 'ls.log.debug("the site")\n'

    def limited(self, before=""):
        """The start of a site with the rate limit of dict.md as the page has it."""
        with open(os.path.join(ROOT, "lua/docs/reference/dict.md"), encoding="utf-8") as page:
            block, = re.findall(r"(?s)\nA limit of 10 requests a minute for each address:\n\n```lua handler\n(.*?)```", page.read())
        return 'app:get("/", function(req, res)\n%s%s  return "ok"\nend)\n' % (before, block)

    def assert_ten_pass(self, statuses, begun):
        """As many as ten for each minute that began since this time: a slow machine may need several."""
        self.assertEqual(set(statuses), {200, 429})
        self.assertIn(statuses.count(200), range(10, 10 * (1 + int((time.monotonic() - begun) / 60)) + 1))

    def test_a_patch_with_null(self):
        """A field that a PATCH clears does not seem to be left out, unless the site says so."""
        server = self.of("""
            local schema = { due = "string?", title = "string?" }
            app:any("/json", function(req) return req:json() end)
            app:any("/kept", function(req) return req:json { null = true } end)
            app:any("/left-out", function(req) return req:json { null = false } end)
            app:any("/checked", function(req) return req:json(schema) end)
            app:any("/checked-kept", function(req) return req:json(schema, { null = true }) end)
            app:any("/checked-left-out", function(req) return req:json(schema, { null = false }) end)""")
        null, without = {"due": None, "title": "x"}, {"title": "x"}
        for method, path, wanted in (
                ("PATCH", "json", 400), ("PATCH", "kept", null), ("PATCH", "left-out", without), ("PATCH", "checked", 400),
                ("PATCH", "checked-kept", null), ("PATCH", "checked-left-out", without), ("PUT", "json", without),
                ("PUT", "kept", null), ("PUT", "checked", without)):
            with self.subTest(method + path):
                answer = self.ask_of(server, method, "/" + path, {}, json.dumps(null).encode())
                self.assertEqual(answer.status if answer.status != 200 else json.loads(answer.body), wanted, answer.text)
                if wanted == 400:
                    self.assertRegex(answer.text, r'^the field "due" of this PATCH is null; .*req:json\{ null = true \}')
        self.assertEqual(self.ask_of(server, "PATCH", "/json", {}, b'{"list":[null],"text":"null"}').status, 200)

    def test_a_jar_whose_dict_is_full(self):
        """The fetch goes on without the cookie."""
        server = self.of("""
            app:get("/", function()
              local jar = ls.cookie_jar(ls.dict("jar", { size = 4096 }))
              for _, host in ipairs { "a", "b" } do jar:set("http://" .. host .. ".example/", "id=" .. ("x"):rep(3000)) end
              return "ok"
            end)""")
        self.assertEqual(server.get("/").text, "ok")
        server.wait_log(r'warn ls\.fetch: a cookie of b\.example is not stored: .*the dict "jar" is full')

    def test_t4_the_rate_limit_of_the_documentation_limits(self):
        server = self.of(self.limited() + """
            app:get("/address", function(req) return req.ip .. " " .. req.port .. " " .. req.remote end)
            ls.init(function() ls.log.info("injected", app:inject{ path = "/address" }.body) end)""")
        server.wait_log("injected\t127.0.0.1 0 127.0.0.1:0")
        begun = time.monotonic()
        statuses = [server.get("/").status for _ in range(13)]  # each on a connection of its own
        self.assertEqual(statuses[:10], [200] * 10)
        forged = {"X-Forwarded-For": "192.0.2.7", "Forwarded": "for=192.0.2.7"}
        with server.connect() as conn:
            statuses += [conn.get("/", headers).status for headers in ((), (), forged)]
            self.assert_ten_pass(statuses, begun)
            server.wait_log(r"warn a request of 127\.0\.0\.1 names another client .* write trusted = { \"127\.0\.0\.1\" }")
            port = conn.sock.getsockname()[1]
            self.assertEqual(conn.get("/address").text, "127.0.0.1 %d 127.0.0.1:%d" % (port, port))

    def test_t4_the_rate_limit_of_the_documentation_in_parallel(self):
        """40 clients of each address: the last one lets all of them go on at the same time."""
        clients = ("127.0.0.1", "127.0.0.2") * 40
        wait = 'arrived:incr("n") while arrived.n < %d do ls.sleep(0.001) end ' % len(clients)
        server = self.of('local arrived = ls.dict("arrived")\n' + self.limited(wait), flags=("--threads", "4"))

        def ask(source):
            with server.connect(source=source) as conn:
                return [conn.get("/").status for _ in range(2)]
        begun = time.monotonic()
        answers = in_parallel([lambda source=source: ask(source) for source in clients], len(clients))
        for n in range(2):
            self.assert_ten_pass(sum(answers[n::2], []), begun)

    def test_t4_addresses_behind_proxies(self):
        server = self.of("""
            app:get("/", function(req)
              return { ip = req.ip, port = req.port, remote = req.remote, scheme = req.scheme, secure = req.secure, host = req.authority }
            end)
            ls.on("log", function(req) ls.log.info("log of", req.ip, req.scheme) end)
            app:ws("/ws", function(ws, req) ws:send(req.ip .. " " .. ws.ip) end)""",
                         """ls.listen("127.0.0.1:0", app, { trusted = { "127.0.0.1", "10.0.0.0/8", "::1" } })
            ls.listen("127.0.0.1:0", app, { trusted = { "::ffff:127.0.0.0/104" } })
            ls.listen("127.0.0.1:0", app, { trusted = { "192.0.2.0/24" } })""", listeners=3)

        def got(headers, index=0):
            return json.loads(server.get("/", {"Host": "own.example", **headers}, index).text)

        own = got({})
        self.assertEqual((own["ip"], own["scheme"], own["secure"], own["host"]), ("127.0.0.1", "http", False, "own.example"))
        self.assertEqual(got({"X-Forwarded-For": "6.6.6.6, 192.0.2.7, ::ffff:10.0.0.1", "X-Forwarded-Proto": "https",
                              "X-Forwarded-Host": "shop.example"}),
                         {"ip": "192.0.2.7", "remote": "192.0.2.7", "scheme": "https", "secure": True, "host": "shop.example"})
        self.assertEqual(got({"Forwarded": 'for="[2001:DB8:0::7]:4711";proto=https;host="a.example:1"'}),
                         {"ip": "2001:db8::7", "port": 4711, "remote": "[2001:db8::7]:4711", "scheme": "https", "secure": True,
                          "host": "a.example:1"})
        self.assertEqual(got({"X-Forwarded-For": "::ffff:192.0.2.9"}, 1)["ip"], "192.0.2.9")
        server.wait_log("log of\t192.0.2.7\thttps")
        with WebSocket(server.at(), "/ws", [("X-Forwarded-For", "192.0.2.7")]) as ws:
            self.assertEqual(ws.receive(), "192.0.2.7 127.0.0.1")
        page = [("Origin", "https://shop.example"), ("X-Forwarded-For", "192.0.2.7"), ("X-Forwarded-Host", "shop.example")]
        with WebSocket(server.at(), "/ws", page) as ws:
            self.assertEqual(ws.receive(), "192.0.2.7 127.0.0.1")
        for fields, index in ((page[:2], 0), (page, 2)):
            with self.assertRaisesRegex(AssertionError, "403"):
                WebSocket(server.at(index), "/ws", fields)
        for wrong in ("unknown", "", "1.2.3", "256.1.1.1", "unix:/run/a", "fe80::1%lo", "*", "192.0.2.7, x"):
            answer = got({"X-Forwarded-For": wrong})
            self.assertEqual((answer["ip"], answer["remote"], answer.get("port")), ("unknown", "unknown", None), wrong)
        # A client adds the kind that its proxy does not write: not even its own requests get the address of the proxy.
        for added in ("for=1.2.3.4", "for=127.0.0.1", "for=unknown", 'for="192.0.2.7', "x"):
            refused = server.get("/", {"X-Forwarded-For": "192.0.2.7", "Forwarded": added})
            self.assertEqual(refused.status, 400, added)
            self.assertIn("Forwarded", refused.text)
            self.assertEqual(server.get("/", {"X-Forwarded-For": "192.0.2.7", "Forwarded": added}, 2).status, 200)
        server.wait_log("log of\tunknown\thttp")
        self.assertEqual(got({"Forwarded": "for=192.0.2.7", "X-Forwarded-Host": "evil"}),
                         {"ip": "192.0.2.7", "remote": "192.0.2.7", "scheme": "http", "secure": False, "host": "own.example"})
        # A second field of that name is the end of the list.
        with server.connect() as conn:
            conn.send(b"GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n")
            self.assertEqual(json.loads(conn.response("GET").text)["ip"], "192.0.2.7")
        forged = got({"X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil"}, 2)
        self.assertEqual((forged["ip"], forged["scheme"], forged["host"]), ("127.0.0.1", "http", "own.example"))

    def test_t11_a_cookie_of_a_login_page_is_for_the_whole_site(self):
        server = self.of("""
            app:get("/account/login", function(req, res) res:cookie("sid", "7f") return "logged in" end)
            app:get("/account/logout", function(req, res) res:cookie("sid", nil) return "bye" end)
            app:get("/forgotten", function(req, res) res:cookie("sid") end)
            app:get("/", function(req) return req.cookies.sid and "logged in" or "logged out" end)""")
        jar = http.cookiejar.CookieJar()
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))

        def get(path):
            with browser.open("http://127.0.0.1:%d%s" % (server.port(), path), timeout=60) as response:
                return response.read().decode()

        get("/account/login")
        self.assertEqual([(c.path, c.has_nonstandard_attr("HttpOnly"), c.get_nonstandard_attr("SameSite")) for c in jar],
                         [("/", True, "Lax")])
        self.assertEqual(get("/"), "logged in")
        get("/account/logout")
        self.assertEqual((get("/"), list(jar)), ("logged out", []))
        self.assertEqual(server.get("/forgotten").status, 500)
        server.wait_log("res:cookie: the value is missing; res:cookie\\(name, nil\\) deletes")

    def test_t15_the_three_signatures(self):
        server = self.of("""
            local udp = ls.udp("127.0.0.1:0", function(data) return data:upper() end)
            app:get("/header", function(req, res) res:header("X-A", "1"):header("X-B", "2") res:header("X-A", nil) return "ok" end)
            app:post("/chunks", function(req)
              local kinds, count = {}, 0
              for chunk in req:chunks() do kinds[type(chunk)], count = true, count + #chunk:sub(1, 1) end
              return { kinds = kinds, any = count > 0 }
            end)
            app:get("/udp", function()
              local one <close> = assert(ls.udp_connect("127.0.0.1:" .. udp.local_port))
              local two <close> = assert(ls.udp_connect("127.0.0.1:" .. udp.local_port, { batch = 1 }))
              one:send("one") two:send("two")
              return { one:receive(60), two:receive(60), one.ip == "127.0.0.1" and one.port == udp.local_port }
            end)""", listeners=2)
        response = self.ask_of(server, "GET", "/header")
        self.assertEqual((response.header("X-A"), response.header("X-B")), (None, "2"))
        self.assertEqual(json.loads(self.ask_of(server, "POST", "/chunks", body=b"x" * 100000).text),
                         {"kinds": {"string": True}, "any": True})
        self.assertEqual(json.loads(self.ask_of(server, "GET", "/udp").text), ["ONE", "TWO", True])

    def test_t23_a_gateway_passes_on_the_length_of_a_head_request(self):
        server = self.of("""
            app:use("/chain", function(req, res, next) next() res:header("X-Length", res:status()) end)
            for _, path in ipairs { "/", "/chain/" } do
              app:get(path .. "announced", function(req, res) res:status(200):header("Content-Length", 100) end)
              app:get(path .. "alone", function(req, res) res:header("Content-Length", 100) end)
              app:get(path .. "gone", function(req, res) res:status(404):header("Content-Length", 7) return res end)
              app:get(path .. "body", function(req, res) res:header("Content-Length", 100) return "own" end)
            end
            app:get("/short", function(req, res) res:header("Content-Length", 100) res:write("own") end)
            ls.init(function()
              local answer = app:inject { method = "HEAD", path = "/announced" }
              ls.log.info("injected", answer.status, answer.headers["content-length"], #answer.body)
            end)""")
        server.wait_log("injected\t200\t100\t0")
        for prefix in ("/", "/chain/"):
            for path, status, length in (("announced", 200, "100"), ("alone", 200, "100"), ("gone", 404, "7"), ("body", 200, "3")):
                with server.connect() as conn:
                    response = conn.ask("HEAD", prefix + path)
                    self.assertEqual((response.status, response.header("Content-Length"), response.body), (status, length, b""),
                                     prefix + path)
                    self.assertEqual(conn.get("/body").text, "own", "the connection goes on")
        # A GET has the length of the body that it has.
        for path, status, length in (("/announced", 200, "0"), ("/alone", 500, "22"), ("/body", 200, "3")):
            response = server.get(path)
            self.assertEqual((response.status, response.header("Content-Length")), (status, length), path)
        with server.connect() as conn:
            conn.send(b"GET /short HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertNotIn(b"own\r\n", conn.rest())
        server.wait_log("Content-Length is 100, but the handler wrote 3 bytes")
