"""The middleware of lua/docs/reference/middleware.md in a server: right, wrong, forged and repeated requests."""
# sanitizers: asan; Lua code around handlers; unit.script.store.dict_threads has the dicts of several threads
# wine: none; Lua code around handlers, the same on every system
import base64
import hashlib
import json
import ssl
from urllib.parse import quote

from harness import E2E, LUASERVE, app_site, in_parallel, run_program, table

CSRF = r"""
local ls = require "luaserve"
local csrf = require "luaserve.csrf"
local app = ls.app()
app:use(ls.session { store = ls.dict("sessions") })
app:use(csrf { origins = { "https://app.example" } })
app:get("/token", function(req) return csrf.token(req) end)
app:get("/field", function(req, res) return res:html(csrf.field(req)) end)
app:post("/", function(req) return req:form().text end)
app:put("/", function(req) return req:body() end)
app:ws("/ws", { message = function() end })
ls.listen("127.0.0.1:0", app)
"""
FORM = ("Content-Type", "application/x-www-form-urlencoded")


ORDER = """local ls = require "luaserve"
ls.config { threads = 1 }
local csrf, cors, bearer = require "luaserve.csrf", require "luaserve.cors", require "luaserve.bearer_auth" { check = function() return true end }
local app = ls.app()
app:get("/", function() return "x" end)

"""


class Csrf(E2E):
    SITE = CSRF

    def token(self, target="/token", cookie=None):
        response = self.get(target, [("Cookie", cookie)] if cookie else [])
        return response.text, response.header("Set-Cookie").split(";")[0]

    def test_a_token_in_a_form_that_the_handler_reads_too(self):
        token, cookie = self.token()
        multipart = ("Content-Type", "multipart/form-data; boundary=b")
        part = '--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
        for kind, body in ((FORM, "_csrf=%s&text=x" % token), (FORM, "text=x&_csrf=%s" % token),
                           (multipart, part % ("text", "x") + part % ("_csrf", token) + "--b--\r\n")):
            response = self.ask("POST", "/", [("Cookie", cookie), kind], body.encode())
            self.assertEqual((response.status, response.text), (200, "x"))
        response = self.ask("PUT", "/", [("Cookie", cookie), ("X-CSRF-Token", token), ("Content-Type", "text/plain")], b"body")
        self.assertEqual((response.status, response.text), (200, "body"))
        field = '<input type="hidden" name="_csrf" value="%s">' % token
        self.assertEqual(self.get("/field", [("Cookie", cookie)]).text, field)

    def test_a_wrong_token(self):
        token, cookie = self.token()
        other, _ = self.token()
        for wrong in ("", other, token[:-1], token + "A", "x" * 5000):
            response = self.ask("POST", "/", [("Cookie", cookie), FORM], ("text=x&_csrf=" + wrong).encode())
            self.assertEqual(response.status, 403, wrong)
        response = self.ask("POST", "/", [("Cookie", cookie), ("Content-Type", "multipart/form-data; boundary=b")], b"nonsense")
        self.assertEqual(response.status, 400)

    def test_a_body_is_read_for_a_token_only_when_it_can_be_right(self):
        def refused_at_once(*fields):
            with self.server.connect() as conn:
                lines = "".join("%s: %s\r\n" % field for field in fields)
                conn.send(("POST / HTTP/1.1\r\nHost: h\r\n%s\r\n" % lines).encode())  # the body does not follow
                return conn.response().status

        _, cookie = self.token()
        multipart = ("Content-Type", "multipart/form-data; boundary=b")
        self.assertEqual(refused_at_once(("Cookie", "a=b"), FORM, ("Content-Length", "100")), 403)
        self.assertEqual(refused_at_once(("Cookie", cookie), multipart, ("Content-Length", "65537")), 403)
        self.assertEqual(refused_at_once(("Cookie", cookie), multipart, ("Transfer-Encoding", "chunked")), 403)

    def test_the_largest_form_with_files_that_is_read(self):
        token, cookie = self.token()
        form = '--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
        rest = form % ("_csrf", token) + form % ("text", "") + "--b--\r\n"
        for size, status in ((65536, 200), (65537, 403)):
            text = "x" * (size - len(rest))
            body = form % ("_csrf", token) + form % ("text", text) + "--b--\r\n"
            self.assertEqual(len(body), size)
            headers = [("Cookie", cookie), ("Content-Type", "multipart/form-data; boundary=b")]
            self.assertEqual(self.ask("POST", "/", headers, body.encode()).status, status)
            self.assertEqual(self.ask("POST", "/", [*headers, ("X-CSRF-Token", token)], body.encode()).text, text)

    def test_an_order_that_cannot_work_raises(self):
        """csrf finds its token in the session; a preflight request has no login."""
        def check(code):
            return run_program(["--check", "-e", ORDER + code + "\nls.listen(8080, app)"])
        session, token, login, cors = "app:use(%s ls.session { store = ls.dict('s') })", "app:use(%s csrf())", "app:use(%s bearer)", "app:use(%s cors { origins = '*' })"
        for uses, says in (
                ((token, session), "csrf: its token is in the session: put app:use(ls.session{ ... }) of (command line):8 before it"),
                ((token, session % '"/a",'), "csrf: its token"), ((session, token, session), None), ((session, token), None), ((token,), None),
                ((token % '"/b",', session % '"/a",'), None), ((cors, login), None), ((login % '"/admin",', cors), None),
                ((login, cors), "cors: the login of (command line):7 comes before it, and answers preflight requests, which have none, with 401"),
                ((login, cors % '"/a",'), "cors: the login of")):
            status, _, err = check("\n".join(use.replace("%s", "") for use in uses))
            self.assertEqual((status != 0, says is None or says in err), (says is not None, True), (uses, err))

    def test_refusals_are_not_logged(self):
        self.assertEqual(self.ask("POST", "/", [("Sec-Fetch-Site", "cross-site")], b"").status, 403)
        self.assertEqual(self.get("/token").status, 200)  # the log of the request before has been written
        self.assertNotIn("refused", self.server.log())


AUTH = r"""
local ls = require "luaserve"
local basic_auth, bearer_auth = require "luaserve.basic_auth", require "luaserve.bearer_auth"
local app = ls.app()
ls.config { threads = 2 }
local function who(req) return type(req.user) == "table" and req.user.sub or req.user end
app:get("/plain", basic_auth { users = { ada = "secret", ["j\u{f6}rg"] = "p\u{e4}ss:word" }, realm = "the office" }, who)
app:get("/hashed", basic_auth { users = { ada = "@HASH@", eve = "plain" } }, who)
app:get("/checked", basic_auth { check = function(name, password, req)
  ls.sleep(0.001)
  return password == req.query.wanted and name:upper()
end }, who)
local secret = ("0123456789abcdef"):rep(2)
app:get("/jwt", bearer_auth { jwt = { ("another secret, of 32 bytes "):rep(2), secret }, issuer = "shop", leeway = 0 }, who)
app:get("/make", function(req)
  return ls.crypto.jwt.sign({ sub = "ada", iss = req.query.iss, exp = os.time() + tonumber(req.query.seconds) }, secret)
end)
app:get("/busy", function() -- as many passwords are hashed as may be, until a login is answered with 503
  local codes, ended, answer = {}, false, nil
  for _ = 1, 200 do
    ls.spawn(function()
      while not ended do
        local _, e = ls.try(ls.crypto.password.verify, "x", "@HASH@")
        codes[e and e.code or "none"] = true
        ls.sleep(0.001)
      end
    end)
  end
  repeat
    answer = app:inject { path = "/hashed", headers = { Authorization = "Basic YWRhOm5v" } }
    assert(answer.status == 401 or answer.status == 503)
  until answer.status == 503 and codes.none
  repeat -- nobody takes "not now" for "wrong"
    local login = app:inject { path = "/login" }
    assert(login.status == 200 or login.status == 503)
  until login.status == 503
  ended = true
  local hash, e = ls.try(ls.crypto.password.hash, "x")
  return { codes, answer.headers["retry-after"], hash and "hashed" or e.code }
end)
app:get("/login", function()
  if not ls.crypto.password.verify("secret", "@HASH@") then return 403 end
  return "in"
end)
app:get("/scrypt", basic_auth { users = { ada = ls.crypto.password.hash "secret" } }, who)
app:get("/together", function(req) -- the requests of a page, which a browser sends before one has been answered
  local answers, jobs = {}, {}
  for n = 1, 80 do
    jobs[n] = ls.spawn(function() return app:inject { path = "/scrypt", headers = { Authorization = req.query.field } }.status end)
  end
  for n, job in ipairs(jobs) do answers[n] = job:wait() end
  return answers
end)
app:get("/key", bearer_auth { tokens = { ["0123456789abcdef"] = "one", ["0123456789abcdeg"] = "two" } }, who)
app:get("/fn", bearer_auth { check = function(token) ls.sleep(0.001) return token == "yes" and "fn" end, realm = "api" }, who)
local results = { zero = 0, empty = "", none = {}, rows = ls.json.array {} }
local function decide(_, _, req) return results[req.query.of] end
app:get("/decide/basic", basic_auth { check = decide }, who)
app:get("/decide/bearer", bearer_auth { check = function(...) return decide(nil, ...) end }, who)
app:get("/decide/cors", require "luaserve.cors" { origins = function(...) return decide(nil, ...) end }, who)
ls.listen("127.0.0.1:0", app)
"""


DIGEST = hashlib.scrypt(b"secret", salt=b"salt", n=1024, r=8, p=1, dklen=32)  # the parameters of an old hash: it is quick
HASH = "$scrypt$ln=10,r=8,p=1$%s$%s" % tuple(base64.b64encode(part).decode().rstrip("=") for part in (b"salt", DIGEST))
AUTH = AUTH.replace("@HASH@", HASH)


def basic(text):
    return [("Authorization", "Basic " + base64.b64encode(text.encode() if isinstance(text, str) else text).decode())]


class Auth(E2E):
    SITE = AUTH

    def test_passwords_that_are_hashed_at_a_time(self):
        codes, retry_after, code = json.loads(self.get("/busy").text)
        self.assertEqual((codes, retry_after), ({"none": True, "EBUSY": True}, "1"))
        self.assertIn(code, ("hashed", "EBUSY"))
        self.server.wait_log(r"GET /login: .*site\.lua:\d+: ls\.crypto\.password\.verify: 50 passwords are being hashed already")
        self.eventually(lambda: self.get("/hashed", basic("ada:secret")).text == "ada", "a login when the others are hashed")

    def test_requests_with_the_same_password_share_its_check(self):
        for text, status in (("ada:no", 401), ("ada:secret", 200)):
            field = quote(basic(text)[0][1], safe="")
            self.eventually(lambda: json.loads(self.get("/together?field=" + field).text) == [status] * 80, "hashes of another test have ended")

    def answers(self, cases):
        def check(case):
            target, headers, expected = case
            response = self.get(target, headers)
            self.assertEqual((response.status, response.text if response.status == 200 else None),
                             (200, expected) if expected else (401, None))

        table(self, [("%s %s" % (target, str(headers)[:70]), (target, headers, expected)) for target, headers, expected in cases], check)

    def test_names_and_passwords(self):
        right = basic("ada:secret")
        value = right[0][1]
        self.answers([
            ("/plain", right, "ada"), ("/plain", basic("j\u00f6rg:p\u00e4ss:word"), "j\u00f6rg"), ("/plain", [("Authorization", "bAsIC  " + value[6:])], "ada"),
            ("/plain", [], None), ("/plain", basic("ada:Secret"), None), ("/plain", basic("ada:"), None), ("/plain", basic("ada"), None),
            ("/plain", basic(":secret"), None), ("/plain", basic(""), None), ("/plain", basic("eve:secret"), None), ("/plain", basic("ada:secret\0"), None),
            ("/plain", basic("ada\n:secret"), None), ("/plain", basic("Ada:secret"), None), ("/plain", basic("get:"), None),
            ("/plain", basic("ada:" + "x" * 6000), None), ("/plain", [("Authorization", value + "x")], None),
            ("/plain", [("Authorization", value + ", " + value)], None), ("/plain", [("Authorization", "Basic")], None),
            ("/plain", [("Authorization", "Basic !!!!")], None), ("/plain", [("Authorization", "Bearer " + value[6:])], None),
            ("/plain", [("Proxy-Authorization", value)], None),
            ("/checked?wanted=x", basic("ada:x"), "ADA"), ("/checked?wanted=x", basic("ada:y"), None), ("/checked?wanted=x", [], None),
        ])

    def test_hashed_passwords(self):
        self.answers([("/hashed", basic("ada:secret"), "ada"), ("/hashed", basic("ada:Secret"), None), ("/hashed", basic("bob:secret"), None),
                      ("/hashed", basic("eve:plain"), "eve"), ("/hashed", basic("eve:secret"), None),
                      ("/hashed", basic("ada:" + "x" * 1025), None)] * 2)

    def test_a_function_that_decides_with_what_is_true_in_lua(self):
        for result, shown in (("zero", "0"), ("empty", '""'), ("none", "{}"), ("rows", "{}")):
            for option, field in (("basic_auth: check", basic("a:b")), ("bearer_auth: check", [("Authorization", "Bearer x")]),
                                  ("cors: origins", [("Origin", "https://app.example")])):
                target = "/decide/%s?of=%s" % (option.split(":")[0].split("_")[0], result)
                self.assertEqual(self.get(target, field).status, 500, target)
                text = "has returned %s; 0, \"\" and {} are true in Lua" % shown
                self.eventually(lambda: any("%s: the function at" % option in line and text in line
                                            for line in self.server.log().split("\n")), text)

    def test_what_a_browser_is_asked(self):
        for target, expected in (("/plain", 'Basic realm="the office", charset="UTF-8"'), ("/key", 'Bearer realm="site"'),
                                 ("/fn", 'Bearer realm="api"')):
            self.assertEqual(self.get(target).header("WWW-Authenticate"), expected)
        response = self.get("/key", [("Authorization", "Bearer wrong")])
        self.assertEqual(response.header("WWW-Authenticate"), 'Bearer realm="site", error="invalid_token"')

    def test_tokens(self):
        def bearer(token, scheme="Bearer "):
            return [("Authorization", scheme + token)]

        made = {name: self.get("/make?iss=%s&seconds=%d" % case).text
                for name, case in (("right", ("shop", 100)), ("other", ("blog", 100)), ("old", ("shop", -1)), ("now", ("shop", 0)))}
        self.answers([
            ("/jwt", bearer(made["right"]), "ada"), ("/jwt", bearer(made["right"], "bearer  "), "ada"), ("/jwt", bearer(made["other"]), None),
            ("/jwt", bearer(made["old"]), None), ("/jwt", bearer(made["now"]), None), ("/jwt", bearer(made["right"] + "x"), None),
            ("/jwt", bearer(made["right"], "Token "), None), ("/jwt", bearer(made["right"], "Bearer"), None), ("/jwt", [], None),
            ("/jwt", basic("ada:" + made["right"]), None), ("/jwt?access_token=" + made["right"], [], None),
            ("/key", bearer("0123456789abcdef"), "one"), ("/key", bearer("0123456789abcdeg"), "two"), ("/key", bearer("0123456789abcdeh"), None),
            ("/key", bearer("0123456789abcde"), None), ("/key", bearer("get"), None), ("/key", bearer("x" * 8000), None), ("/key", [], None),
            ("/fn", bearer("yes"), "fn"), ("/fn", bearer("no"), None), ("/fn", [], None),
        ])

    def test_sites_that_are_refused(self):
        site = 'local ls = require "luaserve"\nlocal app = ls.app()\napp:use(require "luaserve.%s"{ %s })\nls.listen("127.0.0.1:0", app)\n'
        for module, options, message in (
                ("bearer_auth", 'jwt = "short"', "bearer_auth: jwt: the secret has 5 bytes; at least 32 are needed"),
                ("bearer_auth", 'jwt = ("x"):rep(32), tokens = { a = 1 }', "give one of jwt, provider, tokens and check"),
                ("bearer_auth", 'tokens = { short = "x" }', "a token has at least 16 bytes"), ("bearer_auth", "tokens = {}", "tokens must be"),
                ("bearer_auth", 'check = print, issuer = "x"', "issuer belongs to jwt"), ("basic_auth", "", "give one of users and check"),
                ("basic_auth", 'users = { ["a:b"] = "c" }', "a name without ':'"), ("basic_auth", "users = { a = 1 }", "users: "),
                ("basic_auth", 'users = { a = "" }', "users: "), ("basic_auth", 'check = print, realm = "a\\"b"', "realm must be"),
                *(("basic_auth", "users = { ada = '%s' }" % text, 'the password of "ada" is a hash')
                  for text in ("$2y$10$abcdefghijklmnopqrstuv", "$argon2id$v=19$m=65536", "$apr1$salt$hash", "{SHA}abc=", "{SSHA512}abc",
                               "$scrypt$ln=15,r=8,p=3$6AeU8GM6", HASH[:-1], HASH + "x")),
                ("bearer_auth", 'tokens = { ["0123456789 abcdef"] = 1 }', "only letters, digits and"),
                ("bearer_auth", 'tokens = { [("x"):rep(16) .. "\\195\\164"] = 1 }', "only letters, digits and"),
                ("bearer_auth", "jwt = '{\"kty\":\"oct\"}' .. (' '):rep(32)", "-----BEGIN PUBLIC KEY-----"),
                ("csrf", 'origins = { "app.example" }', "without a path")):
            line = self.refuses(site % (module, options), message)
            self.assertRegex(line, r"site\.lua:3: " + module)

    def test_keys_that_differ_between_the_states_are_refused(self):
        site = ('local ls = require "luaserve"\nlocal app = ls.app()\nlocal made = ls.crypto.token()\nls.config { threads = 2 }\n'
                'app:use(require "luaserve.bearer_auth"{ %s })\nls.listen("127.0.0.1:0", app)\n')
        for options, name in (("jwt = made", "jwt"), ('jwt = { ("0123456789abcdef"):rep(2), made }', "jwt"), ("tokens = { [made] = 1 }", "tokens")):
            line = self.refuses(site % options, "bearer_auth: %s differs between the Lua states" % name)
            self.assertRegex(line, r"site\.lua:5: ")

    def test_why_a_token_is_refused_is_in_the_log(self):
        server = self.serve(AUTH, flags=("--log-level", "debug"))
        old = server.get("/make?iss=shop&seconds=-1").text
        for target, token, reason in (("/jwt", old, "the token has expired"), ("/key", "x" * 16, "it is not one of tokens")):
            mark = server.mark()
            self.assertEqual(server.get(target, [("Authorization", "Bearer " + token)]).status, 401)
            line = server.wait_log("bearer_auth: ", mark)
            self.assertIn("the token of 127.0.0.1 is refused: " + reason, line)
            self.assertNotIn(token, line)


RATE = r"""
local ls = require "luaserve"
local rate_limit = require "luaserve.rate_limit"
local app = ls.app()
ls.config { threads = 2 }
app:get("/day", rate_limit { limit = 100, per = 86400 }, function() return "ok" end)
app:get("/one", rate_limit { limit = 1, per = 86400 }, function() return "ok" end)
app:get("/small", rate_limit { limit = 1, per = 86400, key = function(req) return req.query.n end,
  dict = ls.dict("small", { size = 4096, evict = true }) }, function() return "ok" end)
app:get("/forwarded", rate_limit { limit = 1, per = 86400 }, function(req) return req.ip end)
ls.listen("127.0.0.1:0", app, { trusted = { "127.0.0.1" } })
"""


class Rate(E2E):
    def setUp(self):
        super().setUp()
        self.server = self.serve(RATE)

    def statuses(self, targets):
        return in_parallel([lambda t=target: self.get(t).status for target in targets])

    def test_all_threads_count_together(self):
        got = self.statuses(["/day"] * 150)
        self.assertEqual((got.count(200), got.count(429)), (100, 50))
        response = self.get("/day")
        self.assertEqual((response.status, response.text), (429, "too many requests\n"))
        self.assertLessEqual(int(response.header("Retry-After")), 864)
        self.assertGreater(int(response.header("Retry-After")), 0)

    def test_the_address_behind_a_proxy(self):
        def ask(*addresses):
            return [self.get("/forwarded", [("X-Forwarded-For", address)]).status for address in addresses]

        self.assertEqual(ask("192.0.2.1", "192.0.2.1", "192.0.2.2", "198.51.100.1, 192.0.2.2"), [200, 429, 200, 429])
        self.assertEqual(ask("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"), [200, 429, 200])
        self.assertEqual(ask("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::", "::1", "::2", "1::"), [200, 429, 200, 429, 200])
        self.assertEqual(ask("::ffff:192.0.2.3", "::ffff:192.0.2.4", "192.0.2.3"), [200, 200, 429])

    def test_a_reload_keeps_the_buckets(self):
        self.assertEqual(self.statuses(["/one"] * 2).count(200), 1)
        self.server.reload("reloaded")
        self.assertEqual(self.get("/one").status, 429)

    def test_more_clients_than_the_dict_can_hold(self):
        self.assertEqual(set(self.statuses("/small?n=%d" % n for n in range(300))), {200})
        self.assertEqual(self.get("/small?n=299").status, 429)

    def test_a_dict_that_keeps_all_is_refused(self):
        site = ('local ls = require "luaserve"\nlocal app = ls.app()\nlocal dict = ls.dict("limits"%s)\n'
                'app:use(require "luaserve.rate_limit"{ limit = 1, dict = %s })\nls.listen("127.0.0.1:0", app)\n')
        for given in ("", ', { size = "1m" }', ", { evict = false }"):
            line = self.refuses(site % (given, "dict"), "rate_limit: dict must be made with evict = true")
            self.assertRegex(line, r"site\.lua:4: ")
        self.serve(site % (", { evict = true }", 'ls.dict("limits")')).stop()


HEADERS = r"""
local ls = require "luaserve"
local cors, secure_headers = require "luaserve.cors", require "luaserve.secure_headers"
local app, open, some, safe = ls.app(), ls.app(), ls.app(), ls.app()
local function routes(to)
  to:get("/", function() return "ok" end)
  to:put("/", function() return "put" end)
  to:get("/fail", function() error("on purpose") end)
  to:get("/vary", function(req, res) res:header("Vary", "Accept") return "ok" end)
  to:get("/both", function(req, res) res:header("Vary", "accept, ORIGIN") return "ok" end)
  to:get("/stream", function(req, res) res:write("a") res:flush() res:write("b") end)
  to:get("/own", function(req, res) res:header("X-Frame-Options", nil):header("Referrer-Policy", "no-referrer") return "ok" end)
end
open:use(cors { origins = "*", headers = { "X-One", "X-Two" }, max_age = 0 })
some:use(cors { origins = { "https://app.example", "http://Localhost:3000", "https://Port.example:443" }, credentials = true, expose = { "ETag", "X-Id" },
  methods = { "get" } })
safe:use(cors { origins = function(origin, req) return origin:find("%.example$") and req.query.no == nil end })
safe:use(secure_headers { hsts_subdomains = true, content_security_policy = "default-src 'self'", opener_policy = false })
local moved, other = ls.app(), ls.app()
moved:use(secure_headers { https = 443 })
other:use(secure_headers { https = 8443, hsts = 300 })
for prefix, one in pairs { ["/open"] = open, ["/some"] = some, ["/safe"] = safe, ["/moved"] = moved, ["/other"] = other } do
  routes(one)
  app:mount(prefix, one)
end
ls.listen("127.0.0.1:0", app)
ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = "self-signed" }
"""


class Headers(E2E):
    SITE = HEADERS
    LISTENERS = 2

    def fields(self, method, target, *headers):
        """-> the status and the fields of CORS, without the beginning of their names."""
        response = self.ask(method, target, list(headers))
        found = {name[15:]: value for name, value in response.headers if name.startswith("Access-Control-")}
        return response.status, response.header("Vary"), found

    def test_which_sites_may_read(self):
        app, evil = ("Origin", "https://app.example"), ("Origin", "https://evil.example.org")
        shown = {"Allow-Origin": "https://app.example", "Allow-Credentials": "true", "Expose-Headers": "ETag, X-Id"}
        for method, target, headers, expected in (
                ("GET", "/open/", [app], (200, None, {"Allow-Origin": "*"})), ("GET", "/open/", [], (200, None, {})),
                ("GET", "/some/", [app], (200, "Origin", shown)), ("GET", "/some/fail", [app], (500, "Origin", shown)),
                ("GET", "/some/none", [app], (404, "Origin", shown)), ("GET", "/some/stream", [app], (200, "Origin", shown)),
                ("GET", "/some/vary", [app], (200, "Accept, Origin", shown)), ("GET", "/some/both", [app], (200, "accept, ORIGIN", shown)),
                ("GET", "/some/", [evil], (200, "Origin", {})), ("GET", "/some/", [], (200, "Origin", {})),
                ("GET", "/some/", [("Origin", "null")], (200, "Origin", {})), ("GET", "/some/", [("Origin", "https://APP.example")],
                                                                             (200, "Origin", {**shown, "Allow-Origin": "https://APP.example"})),
                ("GET", "/some/", [("Origin", "http://app.example")], (200, "Origin", {})),
                ("GET", "/some/", [("Origin", "https://port.example")], (200, "Origin", {**shown, "Allow-Origin": "https://port.example"})),
                ("GET", "/some/", [("Origin", "https://app.example.org")], (200, "Origin", {})),
                ("GET", "/some/", [("Origin", "http://localhost:3000")], (200, "Origin", {**shown, "Allow-Origin": "http://localhost:3000"})),
                ("GET", "/safe/", [app], (200, "Origin", {"Allow-Origin": "https://app.example"})),
                ("GET", "/safe/?no=1", [app], (200, "Origin", {})), ("GET", "/safe/", [evil], (200, "Origin", {}))):
            self.assertEqual(self.fields(method, target, *headers), expected, (target, headers))

    def test_preflight_requests(self):
        app, put = ("Origin", "https://app.example"), ("Access-Control-Request-Method", "PUT")

        def asked(value):
            return ("Access-Control-Request-Headers", value)

        own = {"Allow-Origin": "https://app.example", "Allow-Credentials": "true", "Allow-Methods": "GET", "Max-Age": "600"}
        for target, headers, expected in (
                ("/open/", [app, put, asked("x-three")], (204, None, {
                    "Allow-Origin": "*", "Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE", "Max-Age": "0", "Allow-Headers": "X-One, X-Two"})),
                ("/some/", [app, put], (204, "Origin", own)), ("/some/none", [app, put], (204, "Origin", own)),
                ("/some/", [app, put, asked("x-one,content-type")], (204, "Origin", {**own, "Allow-Headers": "x-one,content-type"})),
                ("/some/", [app, put, asked("x-one; <script>")], (204, "Origin", own)),
                ("/some/", [("Origin", "https://evil.example"), put], (204, "Origin", {}))):
            self.assertEqual(self.fields("OPTIONS", target, *headers), expected, (target, headers))
        status, _, found = self.fields("OPTIONS", "/some/", app)  # not a preflight request: that of the router
        self.assertEqual((status, found["Allow-Origin"], "Allow-Methods" in found), (204, "https://app.example", False))

    def test_fields_for_browsers(self):
        expected = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'self'", "X-Frame-Options": "SAMEORIGIN",
                    "Referrer-Policy": "strict-origin-when-cross-origin", "Cross-Origin-Opener-Policy": None,
                    "Permissions-Policy": None, "Strict-Transport-Security": None}
        for target in ("/safe/", "/safe/fail", "/safe/none", "/safe/stream"):
            response = self.get(target)
            self.assertEqual({name: response.header(name) for name in expected}, expected, target)
        response = self.get("/safe/own")
        self.assertEqual((response.header("X-Frame-Options"), response.header("Referrer-Policy")), (None, "no-referrer"))
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        with self.connect(1) as conn:
            conn.sock = trusting.wrap_socket(conn.sock)
            self.assertEqual(conn.get("/safe/").header("Strict-Transport-Security"), "max-age=31536000; includeSubDomains")

    def test_http_becomes_https(self):
        for method, target, host, expected in (
                ("GET", "/moved/?a=b", "a.example", "https://a.example/moved/?a=b"),
                ("PUT", "/moved/none", "a.example:8080", "https://a.example/moved/none"),
                ("GET", "/other/fail", "A.example:80", "https://a.example:8443/other/fail"),
                ("GET", "/other/", "[::1]", "https://[::1]:8443/other/"), ("GET", "/other/", "[::1]:80", "https://[::1]:8443/other/"),
                ("GET", "http://b.example:80/moved/?c=http://d/", "b.example:80", "https://b.example/moved/?c=http://d/")):
            response = self.ask(method, target, [("Host", host)])
            self.assertEqual((response.status, response.header("Location")), (308, expected), target)
            self.assertEqual(response.header("X-Content-Type-Options"), "nosniff")
        with self.connect() as conn:
            conn.send(b"GET /moved/ HTTP/1.0\r\n\r\n")
            response = conn.response()
            self.assertEqual((response.status, response.text), (400, "the header Host is missing\n"))
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        with self.connect(1) as conn:
            conn.sock = trusting.wrap_socket(conn.sock)
            response = conn.get("/other/")
            self.assertEqual((response.text, response.header("Strict-Transport-Security")), ("ok", "max-age=300"))

    def test_sites_that_are_refused(self):
        site = 'local ls = require "luaserve"\nlocal app = ls.app()\napp:use(require "luaserve.%s"{ %s })\nls.listen("127.0.0.1:0", app)\n'
        for module, options, message in (
                ("cors", "origins = {}", "origins must be"),
                ("cors", 'origins = { "app.example" }', "without a path"), ("cors", 'origins = { "null" }', "without a path"),
                ("cors", 'origins = { "https://*.app.example" }', "without a path or *"),
                ("csrf", 'origins = { "https://*.app.example" }', "without a path or *"),
                ("secure_headers", 'frame_options = "NOPE"', 'frame_options must be "DENY" or "SAMEORIGIN"'),
                ("cors", 'origins = "*", credentials = true', "needs the list of origins"),
                ("cors", 'origins = "*", methods = { "A B" }', 'invalid name "A B"'), ("cors", 'origins = "*", expose = {}', "expose must be"),
                ("secure_headers", "https = true", "https must be")):
            line = self.refuses(site % (module, options), message)
            self.assertRegex(line, r"site\.lua:3: " + module)


DEV = app_site(r"""
local csrf, basic_auth = require "luaserve.csrf", require "luaserve.basic_auth"
app:use(ls.session { secret = ("0123456789abcdef"):rep(2) }, csrf(), require "luaserve.rate_limit" { limit = 1000 })
app:use(require "luaserve.secure_headers"(), require "luaserve.cors" { origins = "*" })
app:get("/basic", basic_auth { users = { ada = "@HASH@" } }, function(req) return req.user end)
app:get("/", function(req, res)
  req.session.n = (req.session.n or 0) + 1
  return res:html(csrf.field(req) .. ls.crypto.sha256("x", "hex") .. ls.crypto.seal(("ab"):rep(16), "x"))
end)
app:get("/jwt", function() return ls.crypto.jwt.sign({}, ("ab"):rep(16)) .. ls.crypto.uuid() end)
""")


class Dev(E2E):
    def test_the_dev_server_has_no_warnings(self):
        """It reports variables that a request changes; those of luaserve are not the business of the site."""
        server = self.serve(DEV.replace("@HASH@", HASH), program=(LUASERVE, "dev"))
        local = ("Host", "localhost")
        for _ in range(6):
            for target, headers in (("/", []), ("/basic", basic("ada:secret")), ("/jwt", [])):
                self.assertEqual(server.get(target, [local, *headers]).status, 200)
        server.stop()
        self.assertEqual(server.warnings(), [])
