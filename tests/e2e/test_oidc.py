"""luaserve.oidc against a hostile provider: the attacks of OWASP's and RFC 9700's lists on clients, and every wrong answer."""
# sanitizers: none; Lua code over ls.fetch, ls.crypto and sessions
# wine: none; Lua code over ls.fetch and sessions, the same on every system
import json
import time
from urllib.parse import quote, urlsplit

from harness import E2E, OTHER_SYSTEM, beside, table
from harness.oidc import Browser, make_keys, provider_site
from harness.redis import RedisServer, has_redis

SECRET = "a secret of the tests, long"
SITE = r"""
local ls = require "luaserve"
local oidc, bearer_auth = require "luaserve.oidc", require "luaserve.bearer_auth"
local app = ls.app()
ls.config { threads = 2, states = 2 }
local issuer = "@ISSUER@"
app:use(ls.session { secret = "0123456789abcdef0123456789abcdef" })
local function client(path, more)
  local given = { issuer = issuer, client_id = "site", client_secret = "@SECRET@", path = path, timeout = 60 }
  for name, value in pairs(more or {}) do given[name] = value end
  app:use(oidc(given))
end
client("")
client("/kept", { tokens = ls.dict("tokens"), scopes = { "offline_access", "email" }, after_login = "/kept/home", after_logout = "/bye" })
app:use(oidc { issuer = issuer, client_id = "public", path = "/public", userinfo = false })
client("/slow", { timeout = 0.2 })
for n = 1, 12 do client("/t" .. n, { issuer = issuer .. "/t" .. n }) end
local full = ls.dict("full", { size = 4096 })
full:set("x", ("x"):rep(3000))
client("/full", { tokens = full, error = function(_, _, problem) return problem.code .. " " .. problem.message end })
client("/other", { client_id = "other", url = "https://site.example" })
client("/fresh", { params = { max_age = 60, prompt = "login" } })
client("/members", { check = function(claims, req)
  if claims.email ~= "ada@id.example" then return nil, "members only" end
  return { sub = claims.sub, role = "member" }
end })
client("/hook", { error = function(req, res, problem)
  return res:html("<p>" .. problem.code .. " " .. tostring(problem.error) .. " " .. ls.html.escape(problem.description or "-"))
end })
app:get("/", function(req) return { user = req.session.user, cart = req.session.cart } end)
app:get("/cart", function(req) req.session.cart = "tea" return "ok" end)
app:get("/as/:user", function(req) req.session.user = { sub = req.params.user } req.session.cart = "of " .. req.params.user return "ok" end)
app:get("/private", oidc.required(), function(req) return "hello " .. req.session.user.sub end)
app:post("/private", oidc.required(), function(req) return "posted" end)
app:get("/token", function(req)
  ls.dict("asked"):incr("token")
  local token, message, code = oidc.token(req)
  return { token = token, message = message, code = code }
end)
app:get("/expire", function(req)
  ls.dict("tokens"):update(req.session._oidc.id, function(old) old.expires = 1 return old end)
  return "ok"
end)
app:get("/asked", function() return tostring(ls.dict("asked"):get("token") or 0) end)
app:get("/api", bearer_auth { provider = issuer, audience = "api" }, function(req) return req.user.sub end)
ls.listen("127.0.0.1:0", app)
"""
PEM, JWK, PUBLIC = make_keys()


class Case(E2E):
    def setUp(self):
        super().setUp()
        self.provider = self.serve(provider_site(PEM, JWK))
        self.issuer = "http://127.0.0.1:%d" % self.provider.port()
        self.site = self.serve(self.text())
        self.at = "http://127.0.0.1:%d" % self.site.port()

    def text(self):
        return SITE.replace("@ISSUER@", self.issuer).replace("@SECRET@", SECRET)

    def change(self, **changes):
        """Change answers of the provider: see harness/oidc.py. A field that is None is removed."""
        changes = {what: {name: "(none)" if one is None else one for name, one in value.items()} if isinstance(value, dict) else value
                   for what, value in changes.items()}
        with self.provider.connect() as conn:
            answer = conn.ask("POST", "/change", [("Content-Type", "application/json")], json.dumps(changes).encode())
            self.assertEqual(answer.text, "ok")

    def access_token(self):
        return Browser(self.issuer).one("/access/x").text

    def api(self, token):
        return self.site.get("/api", [("Authorization", "Bearer " + token)])

    def counts(self):
        return json.loads(self.provider.get("/counts").text)

    def login(self, path="", **changes):
        """A new browser logs in. -> the last answer, the browser"""
        self.change(**changes)
        browser = Browser(self.at)
        return browser.go(path + "/login"), browser

    def user(self, browser):
        return json.loads(browser.one("/").text).get("user")

    def refused(self, status, reason, path="", **changes):
        """The login fails with this status, and the log has the reason."""
        mark = self.site.mark()
        answer, browser = self.login(path, **changes)
        self.assertEqual(answer.status, status, answer.text)
        self.assertIsNone(self.user(browser), reason)
        if status >= 500:
            self.assertIn(reason, self.site.wait_log("has failed: ", mark))
        return answer


class Logins(Case):
    def test_a_login(self):
        answer, browser = self.login("/kept")
        self.assertEqual((answer.status, urlsplit(answer.url).path), (404, "/kept/home"))
        self.assertEqual(self.user(browser), {"iss": self.issuer, "sub": "ada-1", "name": "Ada", "email": "ada@id.example",
                                              "email_verified": True})
        seen = json.loads(self.provider.get("/seen").text)
        self.assertEqual({name: seen[name] for name in ("response_type", "client_id", "scope", "redirect_uri", "code_challenge_method")},
                         {"response_type": "code", "client_id": "site", "scope": "openid offline_access email",
                          "redirect_uri": self.at + "/kept/callback", "code_challenge_method": "S256"})
        self.assertEqual([len(seen[name]) for name in ("state", "nonce", "code_challenge")], [43, 43, 43])
        self.assertEqual(len({seen["state"], seen["nonce"], seen["code_challenge"]}), 3)
        self.assertEqual(self.counts()["doc"], 1)  # one request for two states
        for sign in ("ec", "ed", "rsa"):
            self.assertIsNotNone(self.user(self.login(sign=sign)[1]), sign)
        self.assertIsNotNone(self.user(self.login(header={"kid": None})[1]))
        self.assertEqual(self.counts()["keys"], 1)
        self.assertIsNotNone(self.user(self.login("/public", doc={"token_endpoint_auth_methods_supported": ["none"]})[1]))
        Browser(self.at).go("/other/login", until="https://site.example")
        self.assertEqual(json.loads(self.provider.get("/seen").text)["redirect_uri"], "https://site.example/other/callback")

    def test_the_session_of_a_login_is_another_one(self):
        self.change()
        browser = Browser(self.at)
        browser.one("/cart")
        before = dict(browser.jar[urlsplit(self.at).netloc])
        browser.go("/login")
        after = browser.jar[urlsplit(self.at).netloc]
        self.assertNotEqual(before["session"], after["session"])
        self.assertEqual(json.loads(browser.one("/").text)["cart"], "tea")
        browser.go("/login")  # the same user again
        self.assertNotEqual(after["session"], before["session"])
        self.assertEqual(json.loads(browser.one("/").text)["cart"], "tea")
        browser.one("/as/eve")
        browser.go("/login")  # data of another user do not stay
        self.assertEqual(set(json.loads(browser.one("/").text)), {"user"})

    def test_the_cookie_of_an_attempt(self):
        self.change()
        browser = Browser(self.at)
        line, = browser.one("/login").cookies()
        self.assertRegex(line, r"^oidc-[\w-]{16}=[\w-]{43}\.\d+\.[\w-]+; Path=/; Max-Age=600; Expires=|^oidc-[\w-]{16}=[^;]+; Path=/; Max-Age=600; HttpOnly; SameSite=Lax$")
        line, = browser.one("/other/login").cookies()  # its url is https
        self.assertRegex(line, r"^__Host-oidc-[\w-]{16}=[^;]+; Path=/; Max-Age=600;.* Secure; HttpOnly; SameSite=Lax$")
        for _ in range(20):
            browser.one("/login")
        names = [name for name in browser.jar[urlsplit(self.at).netloc] if name.startswith("oidc-")]
        self.assertEqual(len(names), 8)
        first, second = browser.one("/login"), browser.one("/login?return_to=/private")  # two tabs
        self.assertEqual(urlsplit(browser.go(first.location).url).path, "/")
        self.assertEqual(browser.go(second.location).text, "hello ada-1")

    def test_a_restart_during_a_login(self):
        self.change()
        browser = Browser(self.at)
        back = browser.go("/login?return_to=/private", until=self.at + "/callback").location
        port = self.site.port()
        self.site.stop()
        self.site = self.serve(self.text().replace("127.0.0.1:0", "127.0.0.1:%d" % port))
        self.assertEqual(browser.go(back).text, "hello ada-1")

    def test_pages_of_those_who_are_logged_in(self):
        self.change()
        browser = Browser(self.at)
        self.assertEqual(browser.go("/private?a=b%20c").url, self.at + "/private?a=b%20c")
        browser = Browser(self.at)
        for form, headers in (({}, ()), (None, {"Sec-Fetch-Mode": "cors"})):
            self.assertEqual(browser.one("/private", form, headers).status, 401)
        self.assertEqual(browser.one("/private", None, {"Sec-Fetch-Mode": "navigate"}).location, "/login?return_to=%2Fprivate")
        long = browser.one("/private?" + "x" * 2000)
        self.assertEqual(long.location, "/login?")

    def test_no_open_redirect(self):
        cases = ["//evil.example", "/\\evil.example", "\\/evil.example", "https://evil.example/", "https:evil", "javascript:alert(1)", "",
                 "evil", "/a\tb", "/\t/evil.example", "/a\r\nX: y", "/a b", "/" + "x" * 1100, "/\u00e9"]

        def check(path):
            self.assertEqual(Browser(self.at).one("/login?return_to=" + quote(path, safe="")).status, 400)

        table(self, [(path, path) for path in cases], check)
        self.change()
        self.assertEqual(Browser(self.at).go("/login?return_to=" + quote("/?x=//evil.example")).status, 200)

    def test_check_decides(self):
        self.assertEqual(self.user(self.login("/members")[1]), {"sub": "ada-1", "role": "member"})
        answer = self.refused(403, "", "/members", userinfo={"email": "eve@id.example"})
        self.assertEqual(answer.text, "members only\n")

    def test_methods(self):
        browser = Browser(self.at)
        for path, form, allow in (("/logout", None, "POST"), ("/login", {}, "GET"), ("/callback", {}, "GET")):
            answer = browser.one(path, form)
            self.assertEqual((answer.status, answer.headers["Allow"]), (405, allow))
            self.assertEqual((answer.headers["Cache-Control"], answer.headers["Referrer-Policy"]), ("no-store", "no-referrer"))

    def test_logout(self):
        _, browser = self.login("/kept")
        self.assertIsNotNone(json.loads(browser.one("/token").text)["token"])
        stolen = dict(browser.jar[urlsplit(self.at).netloc])
        answer = browser.one("/kept/logout", {})
        self.assertTrue(answer.location.startswith(self.issuer + "/end?"), answer.location)
        self.assertEqual((answer.query["post_logout_redirect_uri"], answer.query["client_id"]), (self.at + "/bye", "site"))
        self.assertEqual(answer.query["id_token_hint"].count("."), 2)
        self.assertIsNone(self.user(browser))
        self.eventually(lambda: self.counts().get("revoked"), "the refresh token is revoked")
        browser.jar[urlsplit(self.at).netloc] = stolen
        self.assertEqual(json.loads(browser.one("/token").text)["code"], "ENOENT")  # the tokens have ended, too
        _, browser = self.login("/kept")
        self.assertTrue(browser.one("/logout", {}).location.startswith(self.issuer))  # that of another path
        self.assertEqual(browser.one("/logout", {}).location, "/")  # nobody was logged in

    def refresh_once(self, one, other):
        """The tokens are refreshed once, since the provider takes a refresh token once, and all requests get the new one."""
        one.one("/expire")
        results = []
        self.change(hold=True)
        before = self.counts()["token"]
        with beside(*[lambda b=b: results.append(json.loads(b.one("/token").text)) for b in (one, other) * 4]):
            self.eventually(lambda: self.counts()["token"] > before, "one request refreshes the tokens")
            self.change()
        self.assertEqual(len(results), 8)
        self.assertEqual(len({answer.get("token") for answer in results}), 1, results)
        self.assertIsNotNone(results[0].get("token"))
        self.assertEqual(self.counts()["token"], before + 1)

    def test_requests_that_wait_for_a_refresh_get_its_failure(self):
        _, browser = self.login("/kept")
        browser.one("/expire")
        results, asked = [], int(browser.one("/asked").text)
        self.change(hold=True)
        with beside(*[lambda: results.append(json.loads(browser.one("/token").text)) for _ in range(8)]):
            self.eventually(lambda: int(Browser(self.at).one("/asked").text) == asked + 8, "all wait")
            self.change(token={"access_token": None})
        self.assertEqual([answer["code"] for answer in results], ["EPROTO"] * 8)

    def test_two_apps_with_the_same_client(self):
        text = self.text() + """
local second = ls.app()
second:use(ls.session { secret = "0123456789abcdef0123456789abcdef" })
second:use(oidc { issuer = issuer, client_id = "site", client_secret = "%s", path = "/kept" })
second:get("/token", function(req) return oidc.token(req) or "none" end)
ls.listen("127.0.0.1:0", second)""" % SECRET
        self.site = self.serve(text, listeners=2)
        self.at = "http://127.0.0.1:%d" % self.site.port()
        _, browser = self.login("/kept")
        self.assertIsNotNone(json.loads(browser.one("/token").text)["token"])
        mark = self.site.mark()
        other = Browser("http://127.0.0.1:%d" % self.site.port(1))
        other.go("/kept/login", until=self.issuer)
        other.go("/kept/login")
        self.assertEqual(other.one("/token").status, 500)
        self.site.wait_log("the login keeps no tokens", mark)

    def test_a_full_dict_of_tokens(self):
        mark = self.site.mark()
        answer, browser = self.login("/full")
        self.assertEqual((answer.status, answer.text), (503, "tokens the login is not possible now: try again later at /full/login"))
        self.assertIsNone(self.user(browser))
        self.assertIn('the dict "full" is full', self.site.wait_log("has failed: ", mark))

    def test_two_servers_refresh_once(self):
        if not has_redis():
            self.skipTest(OTHER_SYSTEM + "this luaserve has no ls.redis, or redis-server is not installed")
        redis = RedisServer()
        self.addCleanup(redis.kill)
        text = self.text().replace('ls.dict("tokens")', 'ls.dict("tokens", { redis = true })').replace(
            "ls.config {", 'ls.config { redis = "redis://127.0.0.1:%d",' % redis.port)
        self.site, second = (self.serve(text) for _ in range(2))
        self.at = "http://127.0.0.1:%d" % self.site.port()
        _, one = self.login("/kept")
        other = Browser("http://127.0.0.1:%d" % second.port())
        other.jar[urlsplit(other.at).netloc] = one.jar[urlsplit(one.at).netloc]
        self.refresh_once(one, other)

    def test_tokens_are_refreshed(self):
        _, browser = self.login("/kept")
        first = json.loads(browser.one("/token").text)["token"]
        self.assertEqual(json.loads(browser.one("/token").text)["token"], first)
        self.refresh_once(browser, browser)
        self.assertNotEqual(json.loads(browser.one("/token").text)["token"], first)
        for changes, codes in (({"claims": {"sub": "eve"}}, ["EPROTO"]), ({"sign": "rsa2"}, ["EPROTO"]), ({"token": {"access_token": None}}, ["EPROTO"]),
                               ({"raw": {"/token": {"status": 401, "body": '{"error":"invalid_client"}'}}}, ["EPROTO", "EPROTO"]),
                               ({"raw": {"/token": {"status": 200, "body": "<html>"}}}, ["EPROTO", "EPROTO"]),
                               ({"raw": {"/token": {"status": 503, "body": "{}"}}}, ["EAGAIN", "EAGAIN"]),
                               ({"raw": {"/token": {"status": 400, "body": '{"error":"invalid_grant"}'}}}, ["EACCES", "EACCES"])):
            _, browser = self.login("/kept")
            browser.one("/expire")
            self.change(**changes)
            self.assertEqual([json.loads(browser.one("/token").text)["code"] for _ in codes], codes, changes)
        self.assertEqual(json.loads(Browser(self.at).one("/token").text)["code"], "ENOENT")


class Refusals(Case):
    def test_id_tokens(self):
        refused = "the ID token is refused: "
        cases = [
            ("none", {"sign": "none"}, "not a token"), ("None", {"header": {"alg": "None"}}, "its algorithm is"),
            ("none with a code", {"header": {"alg": "none"}}, "its algorithm is"),
            ("HS256 with the client secret", {"sign": "hs256:" + SECRET}, "its algorithm is"),
            ("HS256 with the public key", {"sign": "hs256:" + PUBLIC["rsa"], "header": {"kid": "rsa"}}, "its algorithm is"),
            ("RS256, signed by HMAC with the public key", {"sign": "hs256:" + PUBLIC["rsa"], "header": {"kid": "rsa", "alg": "RS256"}},
             "not signed with this key"),
            ("RS512", {"header": {"alg": "RS512"}}, "its algorithm is"), ("no alg", {"header": {"alg": None}}, "its algorithm is"),
            ("another key", {"sign": "rsa2", "header": {"kid": "rsa"}}, "not signed with this key"),
            ("the kid of a key of another kind", {"header": {"kid": "ec"}}, "has no key"),
            ("its own key in the header", {"sign": "rsa2", "header": {"kid": "rsa", "jwk": JWK["rsa2"], "jku": "http://127.0.0.1:1/"}},
             "not signed with this key"),
            ("a path as kid", {"header": {"kid": "../../../dev/null"}}, "has no key"), ("kid of a table", {"header": {"kid": ["rsa"]}}, "has no key"),
            ("crit", {"header": {"crit": ["exp"]}}, "an extension"),
            ("another issuer", {"claims": {"iss": "https://evil.example"}}, "another issuer"), ("no iss", {"claims": {"iss": None}}, "another issuer"),
            ("another audience", {"claims": {"aud": "shop"}}, "another audience"), ("no aud", {"claims": {"aud": None}}, "another audience"),
            ("two audiences without azp", {"claims": {"aud": ["site", "shop"]}}, "another client"),
            ("azp of another client", {"claims": {"aud": ["site", "shop"], "azp": "shop"}}, "another client"),
            ("azp alone", {"claims": {"azp": "shop"}}, "another client"),
            ("expired", {"claims": {"exp": 1000}}, "has expired"), ("no exp", {"claims": {"exp": None}}, "no time of its end"),
            ("exp as a text", {"claims": {"exp": "4000000000"}}, "exp is not a number"), ("no iat", {"claims": {"iat": None}}, "iat is missing"),
            ("of the future", {"claims": {"iat": 4000000000}}, "in the future"), ("nbf", {"claims": {"nbf": 4000000000}}, "not valid yet"),
            ("no nonce", {"claims": {"nonce": None}}, "nonce"), ("another nonce", {"claims": {"nonce": "x" * 43}}, "nonce"),
            ("nonce as a list", {"claims": {"nonce": ["x"]}}, "nonce"),
            ("another at_hash", {"claims": {"at_hash": "x" * 22}}, "at_hash"), ("at_hash as a number", {"claims": {"at_hash": 1}}, "at_hash"),
            ("an empty sub", {"claims": {"sub": ""}}, "sub is not"), ("no sub", {"claims": {"sub": None}}, "sub is not"),
            ("a long sub", {"claims": {"sub": "x" * 256}}, "sub is not"), ("sub as a number", {"claims": {"sub": 1}}, "sub is not"),
            ("no JWT", {"token": {"id_token": "a.b"}}, "not a token"), ("a large one", {"token": {"id_token": "x" * 70000}}, "65536 bytes"),
        ]
        for name, changes, reason in cases:
            with self.subTest(name):
                self.refused(502, refused + "", **changes)
                self.assertIn(reason, self.site.log().splitlines()[-1])
        self.refused(502, "no ID token", token={"id_token": None})
        self.refused(502, "no ID token", token={"id_token": {}})
        self.refused(502, "auth_time", "/fresh")
        self.refused(502, "auth_time", "/fresh", claims={"auth_time": 1000})
        self.assertIsNotNone(self.user(self.login("/fresh", claims={"auth_time": 4000000000})[1]))
        for claims in ({"aud": ["shop", "site"], "azp": "site"}, {"at_hash": None}, {"iat": 1}):
            self.assertIsNotNone(self.user(self.login(claims=claims)[1]), claims)

    def test_token_answers(self):
        self.refused(502, "no access token", token={"access_token": None})
        self.refused(502, "no access token", token={"token_type": "DPoP"})
        self.refused(502, "no access token", token={"token_type": None})
        self.refused(502, "client_secret is another one", raw={"/token": {"status": 401, "body": '{"error":"invalid_client"}'}})
        self.refused(502, "status 302", raw={"/token": {"status": 302, "body": "{}", "location": "https://evil.example/"}})
        self.refused(502, "not a JSON object", raw={"/token": {"status": 200, "body": "<html>"}})
        self.refused(502, "no access token", raw={"/token": {"status": 200, "body": "[]"}})
        self.refused(503, "longer than", raw={"/token": {"body": "endless"}})
        self.refused(503, "status 500", raw={"/token": {"status": 500, "body": "{}"}})
        self.refused(502, "userinfo", userinfo={"sub": "eve"})
        self.refused(502, "userinfo", userinfo={"sub": None})
        self.refused(502, "userinfo", raw={"/userinfo": {"status": 200, "body": "eyJ.jwt"}})
        self.refused(503, "userinfo", raw={"/userinfo": {"body": "endless"}})
        user = self.user(self.login(userinfo={"iss": "https://evil.example", "name": "Eve", "email": 1})[1])
        self.assertEqual((user["iss"], user["name"], user.get("email")), (self.issuer, "Ada", None))  # what is signed counts

    def test_callbacks(self):
        self.refused(502, "the parameter iss", callback={"iss": "https://evil.example"})  # mix-up: RFC 9207
        self.assertIsNotNone(self.user(self.login(callback={"iss": None})[1]))
        self.refused(502, "has no code", callback={"code": None})
        self.refused(502, "has no code", callback={"code": ""})
        self.refused(502, "server_error", callback={"code": None, "error": "server_error"})
        self.refused(503, "temporarily", callback={"code": None, "error": "temporarily_unavailable"})
        self.refused(502, "invalid_grant", callback={"code": "a code of another login"})
        answer = self.refused(403, "", callback={"code": None, "error": "access_denied", "error_description": "<b>call 555</b>"})
        self.assertNotIn("555", answer.text)
        answer, _ = self.login("/hook", callback={"code": None, "error": "access_denied", "error_description": "<b>call 555</b>"})
        self.assertEqual((answer.status, answer.text), (403, "<p>refused access_denied &lt;b&gt;call 555&lt;/b&gt;"))
        for state in (None, "", "x" * 43, "x"):
            self.assertEqual(self.login(callback={"state": state})[0].status, 400, state)
        self.assertEqual(self.login("/hook", callback={"state": None, "error": "a"})[0].text, "<p>attempt nil -")  # a text of anybody is not shown

    def test_forged_and_repeated_callbacks(self):
        self.change()
        eve, ada = Browser(self.at), Browser(self.at)
        of_eve = eve.go("/login", until=self.at)
        self.assertTrue(of_eve.location.startswith(self.at + "/callback?"))
        before = self.counts()["token"]
        self.assertEqual(ada.one(of_eve.location).status, 400)  # a login as the attacker (CSRF)
        ada.one("/login")
        self.assertEqual(ada.one(of_eve.location).status, 400)  # also while ada logs in
        self.assertEqual(eve.one(of_eve.location.replace("/callback", "/hook/callback")).status, 400)  # of another client
        twice = of_eve.location + "&code=x"
        self.assertEqual(eve.one(twice).status, 400)
        self.assertEqual(self.counts()["token"], before)
        self.assertEqual(eve.one(of_eve.location).status, 303)
        eve.one("/logout", {})
        self.assertEqual(eve.one(of_eve.location).status, 400)  # from the history: the attempt has ended
        self.assertIsNone(self.user(eve))
        old = Browser(self.at)
        location = old.one("/login").location
        jar = old.jar[urlsplit(self.at).netloc]
        name, = jar
        random, at, path = jar[name].split(".")
        for value in (f"{random}.{int(at) - 700000}.{path}", f"{random}.{int(at) + 700000}.{path}", f"{random}.{at}.L2V2aWw", random, ""):
            jar[name] = value
            self.assertEqual(old.go(location).status, 400, value)

    def test_documents_of_the_provider(self):
        cases = [("another issuer", {"doc": {"issuer": "https://evil.example"}}, 'write issuer = "https://evil.example"'), ("no issuer", {"doc": {"issuer": None}}, "names no issuer"),
                 ("no token endpoint", {"doc": {"token_endpoint": None}}, "token_endpoint"), ("a number", {"doc": {"jwks_uri": 1}}, "jwks_uri"),
                 ("http elsewhere", {"doc": {"token_endpoint": "http://id.example/t"}}, "https://"),
                 ("a script", {"doc": {"authorization_endpoint": "javascript:alert(1)"}}, "https://"),
                 ("http for the end", {"doc": {"end_session_endpoint": "http://id.example/"}}, "https://"),
                 ("no JSON", {"raw": {"/t8/.well-known/openid-configuration": {"status": 200, "body": "<html>"}}}, "not a JSON object"),
                 ("404", {"raw": {"/t9/.well-known/openid-configuration": {"status": 404, "body": "{}"}}}, "status is 404"),
                 ("a redirect", {"raw": {"/t10/.well-known/openid-configuration": {"status": 302, "body": "", "location": "http://127.0.0.1:1"}}}, "redirects are not followed"),
                 ("endless", {"raw": {"/t11/.well-known/openid-configuration": {"body": "endless"}}}, "longer than")]
        for number, (name, changes, reason) in enumerate(cases, 1):
            with self.subTest(name):
                answer = self.refused(503 if name == "endless" else 502, reason, "/t%d" % number, **changes)
                self.assertIn("/t%d/login" % number, answer.text)

    def test_keys_change(self):
        begun = time.monotonic()
        token = self.access_token()
        self.assertEqual(self.api(token).text, "robot")
        self.assertIsNotNone(self.user(self.login(keys=["odd", "enc", "rs512", "rsa2", "rsa"], sign="rsa2")[1]))  # got again at once
        self.assertEqual(self.counts()["keys"], 2)
        self.refused(502, "has no key", header={"kid": "new"})  # but not again and again
        for number in range(20):
            self.change(header={"kid": "guess %d" % number})
            self.assertEqual(self.api(self.access_token()).status, 401)
        self.assertLessEqual(self.counts()["keys"], 2 + (time.monotonic() - begun) // 10)  # once in 10 s
        for claims in ({"aud": "site"}, {"exp": None}, {"exp": 1000}, {"iss": "https://evil.example"}):
            self.change(claims=claims)
            self.assertEqual(self.api(self.access_token()).status, 401, claims)


class Outages(Case):
    def test_a_provider_that_is_down(self):
        port, site = self.provider.port(), self.site
        self.provider.stop()
        self.site = self.serve(self.text())  # the start does not wait
        self.at = "http://127.0.0.1:%d" % self.site.port()
        browser = Browser(self.at)
        self.assertEqual(browser.one("/login").status, 503)
        self.assertEqual(self.api("a.b.c").status, 401)
        token = ".".join(["eyJhbGciOiJSUzI1NiIsImtpZCI6InJzYSJ9", "e30", "eA"])
        self.assertEqual(self.api(token).status, 503)
        self.assertIn("try again", self.api(token).text)
        self.provider = self.serve(provider_site(PEM, JWK, port))
        self.eventually(lambda: browser.one("/login").status == 303, "the failure is forgotten")
        self.assertEqual(self.login()[0].status, 200)
        token = self.access_token()
        self.assertEqual(self.api(token).text, "robot")
        self.provider.stop()
        self.assertEqual(self.api(token).text, "robot")  # by the keys that are there
        self.assertEqual(Browser(self.at).one("/login").status, 303)
        browser.go("/login", until=self.issuer)
        self.assertEqual(site.get("/").status, 200)

    def test_a_provider_that_does_not_answer(self):
        self.refused(503, "timeout", "/slow", hold=True)
        self.change()


class Options(E2E):
    def test_wrong_options(self):
        good = 'issuer = "https://id.example", client_id = "site"'
        cases = [("", "client_id must be the name"), ('client_id = "a"', "issuer must be the URL of a provider"), ('issuer = "https://id.example"', "client_id must be the name"),
                 ('issuer = "http://id.example", client_id = "a"', 'must begin with "https://"'),
                 ('issuer = "https://id.example/.well-known/openid-configuration", client_id = "a"', 'write "https://id.example"'),
                 ('issuer = "https://id.example?x", client_id = "a"', "must be the URL of a provider"),
                 (good + ', scopes = "email"', "scopes must be a list"), (good + ', scopes = { "a b" }', "names without spaces"),
                 (good + ', path = "staff"', "path must be"), (good + ', path = "/staff/"', "path must be"), (good + ', url = "app.example"', "url must be"),
                 (good + ', url = "https://app.example/a"', "url must be"), (good + ', check = "x"', "check must be a function"),
                 (good + ", error = 1", "error must be a function"), (good + ", tokens = {}", "tokens must be a dict"),
                 (good + ', params = { state = "x" }', '"state" is set by luaserve'), (good + ", params = { a = true }", "must be a string or a number"),
                 (good + ', after_login = "https://evil.example"', "after_login must be a path"), (good + ", after_logout = true", "after_logout must be"),
                 (good + ', client_secret = ""', "client_secret must be"), (good + ", timout = 1", "did you mean 'timeout'"),
                 (good + ", leeway = 601", "leeway"), (good + ', tls = { caa = "x" }', "caa")]
        site = 'local ls = require "luaserve"\nrequire "luaserve.oidc"{ %s }\nls.listen("127.0.0.1:0", ls.app())\n'
        table(self, [(text, (text, message)) for text, message in cases], lambda case: self.refuses(site % case[0], case[1]))
        self.refuses(site.replace("oidc\"{ %s }", 'bearer_auth"{ provider = "https://id.example" }'), "provider needs audience")

    def test_sessions_that_do_not_fit(self):
        server = self.serve("""local ls = require "luaserve"
local app, oidc = ls.app(), require "luaserve.oidc"
app:use("/strict", ls.session { secret = ("0123456789abcdef"):rep(2), same_site = "Strict" })
app:use(oidc.required())
app:get("/*path", function() return "in" end)
ls.listen("127.0.0.1:0", app)""")
        for path, message in ("/", "put app:use(ls.session"), ("/strict", "same_site = "):
            mark = server.mark()
            self.assertEqual(server.get(path).status, 500)
            self.assertIn(message, server.wait_log("oidc: ", mark))

    def test_places(self):
        """Middleware in a place where it would protect nothing, or where nobody could log in, is refused while the site loads."""
        cases = [('app:use(S) app:use("/admin", Login "")', "app:use: oidc{ ... } only answers /login"),
                 ('app:get("/admin", Login "", H)', "app:get: oidc{ ... } only answers /login"),
                 ('app:get("/x", oidc.required, H)', "app:get: oidc.required is called"), ("app:use(oidc.required)", "write oidc.required()"),
                 ('other:use(S, Login "") app:mount("/m", other)', 'write oidc{ path = "/m" }'),
                 ('other:use(S, Login "/a") app:mount("/:t", other)', "put it into the app of ls.listen"),
                 ('other:use(S, Login "/m") other:get("/x", R(), H) app:mount("/m", other)', ""),
                 ('app:use(S) app:get("/x", R(), H)', "the app has no login"), ('app:use(S) app:get("/x", R(), H) app:get("/login", H)', ""),
                 ('app:use(S, Login "/a") app:get("/x", R{ login = "/login" }, H)', 'such as "/a/login"; got "/login"'),
                 ('app:use(S, Login "/a", Login "/b") app:get("/x", R(), H)', "the logins /a/login, /b/login"),
                 ('app:use(S, Login "/a") app:get("/x", R(), H)', ""), ('app:use(S, Login "/a") app:get("/x", R{ login = "/a/login?b=c" }, H)', ""),
                 ('app:use(S, R(), Login "")', "comes before it"), ('app:use(S) app:use("/login", R()) app:use(Login "")', "comes before it"),
                 ('app:use(S) app:use("/x", R()) app:use(Login "")', ""),
                 ('app:use(S, Login "", Login "")', "has the same paths"), ('app:use(S, Login "") app:post("/login", H)', "never runs"),
                 ('app:use(Login "", S)', "put app:use(ls.session{ ... })"), ("app:use(Strict, Login '')", "leave out same_site"),
                 ('local r = R() app:use(S, Login "/a") app:get("/x", r, H) app:inject{ path = "/" } other:use(S, Login "/b") other:get("/x", r, H) app = other',
                  "of two apps")]
        site = """local ls = require "luaserve"
local app, results, oidc = ls.app(), {}, require "luaserve.oidc"
local S, Strict = ls.session { secret = ("0123456789abcdef"):rep(2) }, ls.session { secret = ("0123456789abcdef"):rep(2), same_site = "strict" }
local function Login(path) return oidc { issuer = "http://127.0.0.1:1", client_id = "site", path = path } end
local function H() return "in" end
local R = oidc.required
local function case(build)
  local fine, message = pcall(function() build(ls.app(), ls.app()) end)
  results[#results + 1] = fine and "" or tostring(message)
end
%s
app:use(Login "")
app:get("/", function() return results end)
app:mount("/page", ls.app():use(S, R()))
local page = ls.app():use(S, R()):get("/login", function() return "the form" end)
ls.listen("127.0.0.1:0", app)
ls.listen("127.0.0.1:0", page)""" % "\n".join("case(function(app, other) %s app:inject{ path = '/none' } end)" % case for case, _ in cases)
        server = self.serve(site, listeners=2)
        for (case, reason), message in zip(cases, json.loads(server.get("/").text)):
            with self.subTest(case):
                self.assertTrue(reason in message if reason else message == "", message)
        mark = server.mark()
        self.assertEqual(server.get("/login").status, 500)  # it needs a session, at the first request
        self.assertIn("put app:use(ls.session", server.wait_log("oidc: ", mark))
        with server.connect(1) as conn:
            self.assertEqual(conn.get("/login").text, "the form")  # the page of the login is for all
