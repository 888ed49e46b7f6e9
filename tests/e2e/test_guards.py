"""The middleware of lua/docs/reference/middleware.md in a server: right, wrong, forged and repeated requests."""

from harness import E2E, main, table

CSRF = r"""
local ls = require "luaserve"
local csrf = require "luaserve.csrf"
local app = ls.app()
app:use(ls.session { store = ls.dict("sessions") })
app:use(csrf { origins = { "https://app.example" } })
app:get("/token", function(req) return csrf.token(req) end)
app:get("/login", function(req) req.session.user = "ada" return csrf.token(req) end)
app:get("/field", function(req, res) return res:html(csrf.field(req)) end)
app:post("/", function(req) return req:form().text end)
app:put("/", function(req) return req:body() end)
app:ws("/ws", { message = function() end })
ls.listen("127.0.0.1:0", app)
"""
FORM = ("Content-Type", "application/x-www-form-urlencoded")


class Csrf(E2E):
    SITE = CSRF

    def token(self, target="/token", cookie=None):
        response = self.get(target, [("Cookie", cookie)] if cookie else [])
        return response.text, response.header("Set-Cookie").split(";")[0]

    def test_where_a_request_comes_from(self):
        host = "127.0.0.1:%d" % self.server.port()
        cases = [
            ([("Sec-Fetch-Site", "same-origin")], 200), ([("Sec-Fetch-Site", "none")], 200),
            ([("Sec-Fetch-Site", "cross-site")], 403), ([("Sec-Fetch-Site", "same-site")], 403),
            ([("Sec-Fetch-Site", "cross-site"), ("Origin", "https://app.example")], 200),
            ([("Origin", "http://" + host)], 200), ([("Origin", "https://" + host)], 200), ([("Origin", "http://127.0.0.1")], 403),
            ([("Origin", "null")], 403), ([("Origin", "https://app.example")], 200), ([("Origin", "http://app.example")], 403),
            ([], 200), ([("Cookie", "a=b")], 403), ([("Authorization", "Basic YTpi")], 403), ([("Authorization", "Bearer x")], 200),
        ]
        table(self, [(str(headers), (headers, status)) for headers, status in cases], self.check)

    def check(self, case):
        headers, status = case
        with self.server.connect() as conn:
            host = "127.0.0.1:%d" % self.server.port()
            lines = "".join("%s: %s\r\n" % field for field in [*headers, FORM])
            conn.send(("POST / HTTP/1.1\r\nHost: %s\r\n%sContent-Length: 6\r\n\r\ntext=x" % (host, lines)).encode())
            response = conn.response()
            self.assertEqual((response.status, response.text == "x"), (status, status == 200), response)
            self.assertEqual(conn.get("/token").status, 200)  # the connection goes on

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

    def test_a_wrong_token(self):
        token, cookie = self.token()
        other, _ = self.token()
        for wrong in ("", other, token[:-1], token + "A", "x" * 5000):
            response = self.ask("POST", "/", [("Cookie", cookie), FORM], ("text=x&_csrf=" + wrong).encode())
            self.assertEqual(response.status, 403, wrong)
        response = self.ask("POST", "/", [("Cookie", cookie), ("Content-Type", "multipart/form-data; boundary=b")], b"nonsense")
        self.assertEqual(response.status, 400)

    def test_the_token_lasts_until_a_login(self):
        token, cookie = self.token()
        self.assertEqual(self.get("/token", [("Cookie", cookie)]).text, token)
        self.assertEqual(self.get("/field", [("Cookie", cookie)]).text, '<input type="hidden" name="_csrf" value="%s">' % token)
        after, cookie = self.token("/login", cookie)
        self.assertNotEqual(after, token)
        for given, status in ((token, 403), (after, 200)):
            response = self.ask("POST", "/", [("Cookie", cookie), ("X-CSRF-Token", given), FORM], b"text=x")
            self.assertEqual(response.status, status)

    def test_refusals_are_not_logged(self):
        before = self.server.log()
        self.assertEqual(self.ask("POST", "/", [("Sec-Fetch-Site", "cross-site")], b"").status, 403)
        self.assertEqual(self.server.log(), before)


if __name__ == "__main__":
    main()
