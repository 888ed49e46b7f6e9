"""luaserve.oidc with the npm package oidc-provider: logins, refreshed tokens, an API with the access token, logouts, refusals."""
# wine: none; Lua code over ls.fetch and sessions, the same on every system
import json
import os
import re
import subprocess
from urllib.parse import urlsplit

from harness import E2E, free_port, read_text
from harness.npm import FOLDER, needs_npm
from harness.oidc import Browser, make_keys

SECRET = "a secret: of the tests/long & odd"
SITE = r"""
local ls = require "luaserve"
local oidc, bearer_auth = require "luaserve.oidc", require "luaserve.bearer_auth"
local app = ls.app()
local issuer, tokens = "@ISSUER@", ls.dict("tokens")
app:use(ls.session { store = ls.dict("sessions") })
for name, more in pairs {
  rsa = { scopes = { "profile", "email", "offline_access" }, params = { prompt = "consent" }, tokens = tokens }, ec = {}, ed = {}, post = {},
  api = { scopes = { "read", "offline_access" }, params = { prompt = "consent", resource = "urn:api" }, tokens = tokens, userinfo = false },
} do
  local given = { issuer = issuer, client_id = name, client_secret = "@SECRET@", path = "/" .. name,
    after_login = "/user", after_logout = "/" .. name .. "/bye" }
  for key, value in pairs(more) do given[key] = value end
  app:use(oidc(given))
end
app:use(oidc { issuer = issuer, client_id = "public", path = "/public", after_login = "/user", after_logout = false })
app:get("/user", function(req) return req.session.user or "nobody" end)
app:get("/:client/bye", function() return "bye" end)
app:get("/token", function(req)
  local token, message, code = oidc.token(req)
  return { token = token, message = message, code = code }
end)
app:get("/expire", function(req)
  tokens:update(req.session._oidc.id, function(old) old.expires = 1 return old end)
  return "ok"
end)
app:get("/api", bearer_auth { provider = issuer, audience = "urn:api" }, function(req) return req.user.sub .. " " .. req.user.scope end)
ls.listen("127.0.0.1:@PORT@", app)
"""


def form_of(answer):
    """The action of the form of a page, and its hidden fields."""
    fields = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', answer.text))
    return re.search(r'<form[^>]* action="([^"]*)"', answer.text)[1], fields


@needs_npm
class OidcProvider(E2E):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        ports = free_port(), free_port()
        cls.issuer, cls.at = ("http://127.0.0.1:%d" % port for port in ports)
        pem, _, _ = make_keys()
        script = read_text(os.path.join(os.path.dirname(os.path.abspath(__file__)), "oidc_provider.mjs"))
        cls.node = subprocess.Popen(["node", "--input-type=module", "--eval", script], cwd=FOLDER, stdin=subprocess.PIPE,
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(cls.node.communicate)
        cls.addClassCleanup(cls.node.kill)
        cls.node.stdin.write(json.dumps({"port": ports[0], "site": cls.at, "secret": SECRET, "keys": pem}).encode())
        cls.node.stdin.close()
        cls.node.stdin = None
        cls.port = ports[1]
        assert cls.node.stdout.readline() == b"listening\n"

    def setUp(self):
        super().setUp()
        self.site = self.serve(SITE.replace("@ISSUER@", self.issuer).replace("@SECRET@", SECRET).replace("@PORT@", str(self.port)))

    def login(self, client, user="ada", browser=None):
        """-> the answer after the login, the browser"""
        browser = browser or Browser(self.at)
        answer = browser.go("/%s/login" % client)
        while "/interaction/" in answer.url:
            action, fields = form_of(answer)
            if fields["prompt"] == "login":
                fields.update(login=user, password="any")
            answer = browser.go(action, fields)
        return answer, browser

    def token(self, browser):
        return json.loads(browser.one("/token").text)

    def test_each_algorithm_and_kind_of_client(self):
        for client in "rsa", "ec", "ed", "post", "public":
            with self.subTest(client):
                answer, _ = self.login(client)
                self.assertEqual((answer.status, answer.url), (200, self.at + "/user"), answer.text + self.site.log())
                user = json.loads(answer.text)
                self.assertEqual((user["iss"], user["sub"]), (self.issuer, "ada"))
                self.assertEqual(user.get("email"), "ada@id.example" if client == "rsa" else None)

    def test_tokens_are_refreshed_and_used(self):
        _, browser = self.login("api")
        first = self.token(browser)["token"]
        for _ in range(3):  # the provider gives a new refresh token each time
            before = self.token(browser)["token"]
            browser.one("/expire")
            self.assertNotIn(self.token(browser).get("token"), (None, before), self.site.log())
        for token in first, self.token(browser)["token"]:
            answer = self.site.get("/api", [("Authorization", "Bearer " + token)])
            self.assertEqual(answer.text, "ada read")
        self.assertEqual(self.site.get("/api", [("Authorization", "Bearer " + first[:-4] + "AAAA")]).status, 401)
        _, other = self.login("rsa")
        opaque = self.token(other)["token"]
        self.assertEqual(self.site.get("/api", [("Authorization", "Bearer " + opaque)]).status, 401)

    def test_logout(self):
        answer, browser = self.login("rsa")
        answer = browser.go("/rsa/logout", {})
        action, fields = form_of(answer)
        answer = browser.go(action, {**fields, "logout": "yes"})
        self.assertEqual((answer.url, answer.text), (self.at + "/rsa/bye", "bye"))
        self.assertEqual(browser.one("/user").text, "nobody")
        answer, _ = self.login("ec", "eve", browser)  # the provider asks again who it is
        self.assertEqual(json.loads(answer.text)["sub"], "eve")

    def test_what_the_provider_refuses(self):
        browser = Browser(self.at)
        answer = browser.go("/rsa/login")
        answer = browser.go(answer.url + "/abort")
        self.assertEqual((answer.status, answer.text), (403, "the login was refused\n"))
        answer = browser.go("/rsa/login")
        callback = self.at + "/rsa/callback"
        while "/interaction/" in answer.url:
            action, fields = form_of(answer)
            if fields["prompt"] == "login":
                fields.update(login="ada", password="any")
            answer = browser.go(action, fields, until=callback)
        location = answer.location
        jar = dict(browser.jar[urlsplit(self.at).netloc])
        self.assertEqual(browser.one(location).status, 303)
        browser.jar[urlsplit(self.at).netloc] = jar
        self.assertEqual(browser.one(location).status, 502)  # a code is valid once
