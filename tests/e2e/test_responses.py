"""Responses: what a handler may return, the methods of `res`, and headers that are refused."""
import json

from harness import Closed, E2E, app_site

SITE = app_site(r"""
local prepared = ls.buffer("pre", "pared")
app:get("/list", function() return { 1, 2, 3 } end)
app:get("/teapot", function() return 418 end)
app:get("/n304", function() return 304 end)
app:get("/all", function() return 201, "made", { ["X-A"] = "1", ["Content-Type"] = "text/x" } end)
app:get("/buffer", function() return prepared end)
app:post("/attachment", function(req, res)
  if req.query.type then res:type(req.query.type) end
  local ok, message = pcall(res.attachment, res, req:body())
  return (ok and "body" or message) .. "\n"
end)
app:get("/send", function(req, res) res:status(203); res:header("X-B", "2"); res:send("sent") end)
app:get("/resjson", function(req, res) res:json({ a = { b = true } }) end)
app:get("/html/:kind", function(req, res)
  if req.params.kind == "page" then return res:status(404):html("<p>\xC3\xBC") end
  if req.params.kind == "buffer" then return res:html(ls.buffer("<p>", 1)) end
  if req.params.kind == "typed" then return res:type("application/xhtml+xml"):html("<p/>") end
  if req.params.kind == "long" then return res:html(("x"):rep(100000)) end
  local ok, err = pcall(res.html, res, {})
  return tostring(err)
end)
app:get("/type-of", function(req, res) res:type(req.query.name) return "x" end)
app:get("/text", function(req)
  local text = req.query.text
  return { html = ls.html.escape(text), number = ls.html.escape(5), encoded = ls.url.encode(text),
    decoded = ls.url.decode(ls.url.encode(text)) == text, bad = tostring(select(2, pcall(function() ls.html.escape() end))) }
end)
app:get("/write", function(req, res) res:header("Content-Type", "text/csv"); res:write("a", ",", 1, "\n"); res:write(2.5, "\n") end)
app:get("/flush", function(req, res) res:write("one"); res:flush(); ls.sleep(0.01); res:write("two") end)
app:get("/announced", function(req, res)
  res:header("Content-Length", 6)
  assert(res:header("content-length") == "6" and res:header("Content-Length", nil):header("Content-Length") == nil)
  res:header("Content-Length", 6)
  res:write("abc") res:flush() res:write("def")
end)
app:get("/announced-short", function(req, res) res:header("Content-Length", 6); res:write("abc") end)
app:get("/announced-long", function(req, res)
  res:header("Content-Length", 3)
  local ok = pcall(res.write, res, "abcdef")
  if not ok then res:write("abc") end
end)
app:get("/sent", function(req, res)
  local before = res.sent
  res:send("x")
  ls.log.info("sent before=" .. tostring(before) .. " after=" .. tostring(res.sent))
end)
app:get("/number-name", function(req, res)
  return res:header("5", "x"):header(5, nil):header("6", "y"):header(6, "z")
end)
app:get("/server", function(req, res)
  if req.query.set then res:header("Server", req.query.set) end
  if req.query.remove then res:header("server", nil) end
  return "ok"
end)
app:get("/redirect", function(req, res) return res:redirect(req.query.at or "/elsewhere") end)
app:get("/redirect301", function(req, res) return res:redirect("/moved", 301) end)
app:get("/type", function(req, res) res:header("Content-Type", "text/html"); return "<p>" end)
local function bad(value, name)
  return function(req, res)
    local ok, err = pcall(res.header, res, name or "X-Bad", value)
    return ok and "accepted" or "raised " .. tostring(err)
  end
end
app:get("/bad-cr", bad("a\rb")) app:get("/bad-lf", bad("a\nSet-Cookie: x=1")) app:get("/bad-nul", bad("a\0b"))
app:get("/bad-name", bad("v", "X Bad")) app:get("/bad-name2", bad("v", "X:\r\nY"))
app:get("/bad-length", bad("5", "Content-Length")) app:get("/bad-te", bad("chunked", "Transfer-Encoding"))
app:get("/bad-cookie", function(req, res)
  return pcall(res.cookie, res, "a", "b\r\nX: y") and "accepted" or "raised"
end)
app:get("/bad-cookie-option", function(req, res)
  return pcall(res.cookie, res, "a", "b", { pathh = "/" }) and "accepted" or "raised"
end)
app:get("/bad-redirect", function(req, res)
  return (pcall(res.redirect, res, "/a\r\nX: y") or pcall(res.redirect, res, "") or pcall(res.redirect, res, "/a\0")) and "accepted" or "raised"
end)
app:get("/two-cookies", function(req, res)
  res:cookie("a", "1")
  local ok, why = pcall(res.header, res, "set-cookie", "b=2")
  if req.query.all then res:header("Set-Cookie", { "b=2", "c=3" }) end
  return ok and "removed" or why
end)
app:get("/bad-returned", function() return 200, "x", { ["X-A"] = "a\r\nb: c" } end)
app:get("/bad-options", function() return pcall(ls.config, { thraeds = 1 }) and "accepted" or "raised" end)
""")


class Responses(E2E):
    SITE = SITE

    def test_attachment(self):
        for name, disposition, type_ in (
                ("a.csv", 'attachment; filename="a.csv"', "text/csv; charset=utf-8"), ("a", 'attachment; filename="a"', "text/plain; charset=utf-8"),
                ("a.unknown", 'attachment; filename="a.unknown"', "text/plain; charset=utf-8"),
                ("\u00e9.pdf", "attachment; filename=\"_.pdf\"; filename*=UTF-8''%C3%A9.pdf", "application/pdf"),
                ("x" * 255, 'attachment; filename="%s"' % ("x" * 255), "text/plain; charset=utf-8")):
            answer = self.ask("POST", "/attachment", (), name.encode())
            self.assertEqual((answer.text, answer.header("content-disposition"), answer.header("content-type")), ("body\n", disposition, type_))
        self.assertEqual(self.ask("POST", "/attachment?type=text/x", (), b"a.csv").header("content-type"), "text/x")
        for name in b"", b"x" * 256, b"a/b", b"a\\b", b"a\nb", b"a\0b", b"\xff":
            answer = self.ask("POST", "/attachment", (), name)
            self.assertIn("res:attachment: name must be the name of a file in UTF-8, at most 255 bytes", answer.text)
            self.assertIsNone(answer.header("content-disposition"))

    def test_html(self):
        html = "text/html; charset=utf-8"
        response = self.get("/html/page")
        self.assertEqual((response.status, response.header("Content-Type"), response.body), (404, html, "<p>ü".encode()))
        response = self.get("/html/buffer")
        self.assertEqual((response.header("Content-Type"), response.text), (html, "<p>1"))
        self.assertEqual(self.get("/html/typed").header("Content-Type"), "application/xhtml+xml")
        self.assertEqual(len(self.get("/html/long").body), 100000)
        self.assertIn("res:html: string, number or buffer expected, got table", self.get("/html/table").text)

    def test_type(self):
        for name, type_ in (("html", "text/html; charset=utf-8"), ("text", "text/plain; charset=utf-8"),
                            ("json", "application/json"), (".css", "text/css; charset=utf-8"), ("PNG", "image/png"),
                            ("image/x-own", "image/x-own"), ("text/plain;%20charset=us-ascii", "text/plain; charset=us-ascii")):
            self.assertEqual(self.get("/type-of?name=" + name).header("Content-Type"), type_)
        for name, says in (("htlm", "res:type: unknown type 'htlm'"), ("", "res:type: unknown type ''"),
                           ("text/plain%0d%0a", "invalid value of header 'Content-Type'")):
            mark = self.server.mark()
            self.assertEqual(self.get("/type-of?name=" + name).status, 500)
            self.server.wait_log(says, mark)

    def test_escapes(self):
        got = json.loads(self.get("/text?text=%3Ca%20href=%22x%22%3E%26%27%C3%BC~-_.%01").text)
        self.assertEqual(got["html"], "&lt;a href=&quot;x&quot;&gt;&amp;&#39;ü~-_.\x01")
        self.assertEqual(got["encoded"], "%3Ca%20href%3D%22x%22%3E%26%27%C3%BC~-_.%01")
        self.assertEqual((got["number"], got["decoded"]), ("5", True))
        self.assertIn("bad argument #1 to 'escape'", got["bad"])
        got = json.loads(self.get("/text?text=plain").text)
        self.assertEqual((got["html"], got["encoded"]), ("plain", "plain"))

    def test_what_a_handler_may_return(self):
        text, json_type, none = "text/plain; charset=utf-8", "application/json", None
        with self.connect() as conn:
            for path, status, body, type_ in (
                    ("/list", 200, "[1,2,3]", json_type), ("/teapot", 418, none, text), ("/n304", 304, "", none),
                    ("/all", 201, "made", "text/x"), ("/buffer", 200, "prepared", none), ("/buffer", 200, "prepared", none),
                    ("/type", 200, "<p>", "text/html"), ("/redirect", 302, none, none), ("/redirect301", 301, none, none)):
                response = conn.get(path)
                self.assertEqual((response.status, response.text if body is not None else none), (status, body), path)
                if type_:
                    self.assertEqual(response.header("Content-Type"), type_, path)
            self.assertEqual(response.header("Location"), "/moved")
        self.assertEqual((self.get("/all").header("X-A"), self.get("/teapot").reason), ("1", "I'm a teapot"))

    def test_methods_of_res(self):
        response = self.get("/send")
        self.assertEqual((response.status, response.header("X-B"), response.text), (203, "2", "sent"))
        self.assertEqual(json.loads(self.get("/resjson").text), {"a": {"b": True}})
        response = self.get("/write")
        self.assertEqual((response.text, response.header("Content-Type"), response.chunked),
                         ("a,1\n2.5\n", "text/csv", True))
        response = self.get("/flush")
        self.assertEqual((response.text, response.chunked), ("onetwo", True))
        self.assertGreaterEqual(response.chunks, 2)

    def test_announced_length(self):
        """A response in parts with a Content-Length is sent with it, and may not be longer or shorter."""
        response = self.get("/announced")
        self.assertEqual((response.text, response.chunked, response.header("Content-Length")), ("abcdef", False, "6"))
        with self.assertRaises(Closed):
            self.get("/announced-short")
        response = self.get("/announced-long")
        self.assertEqual((response.text, response.header("Content-Length")), ("abc", "3"))

    def test_sent(self):
        mark = self.server.mark()
        self.assertEqual(self.get("/sent").text, "x")
        self.server.wait_log("sent before=false after=false", mark)  # it is described

    def test_server(self):
        for query, expected in (("", "luaserve"), ("?set=mine", "mine"), ("?set=mine&remove=1", "luaserve")):
            with self.connect() as conn:
                for _ in range(2):
                    response = conn.get("/server" + query)
                    self.assertEqual([v for n, v in response.headers if n.lower() == "server"], [expected])

    def test_a_redirect_is_a_url(self):
        """RFC 3986 section 2; a browser reads a backslash as a slash."""
        for at, location in (("/a%20b%09", "/a%20b%09"), ("/wiki/caf%C3%A9?q=%25C3%23x", "/wiki/caf%C3%A9?q=%C3#x"),
                             ("/%5Cevil.example", "/%5Cevil.example"), ("%22%3C%3E%5E%60%7B%7C%7D", "%22%3C%3E%5E%60%7B%7C%7D"),
                             ("http://h:8/-._~!$%26'()*%2B,;=:@/[]", "http://h:8/-._~!$&'()*+,;=:@/[]"), ("%25zz", "%zz"),
                             ("%C3%A9" * 1300, "%C3%A9" * 1300)):
            self.assertEqual(self.get("/redirect?at=" + at).header("location"), location)

    def test_a_field_whose_name_is_a_number(self):
        response = self.get("/number-name")
        self.assertEqual((response.header("5"), response.all("6")), (None, ["z"]))

    def test_a_second_cookie(self):
        """A text as Set-Cookie does not remove the cookie, such as that of a session, which the response has."""
        response = self.get("/two-cookies")
        self.assertEqual([value[:3] for value in response.all("Set-Cookie")], ["a=1"])
        self.assertIn("write res:cookie(name, value), which adds one, or a list", response.text)
        self.assertEqual(self.get("/two-cookies?all=1").all("Set-Cookie"), ["b=2", "c=3"])

    def test_a_header_cannot_break_out(self):
        for name in ("cr", "lf", "nul", "name", "name2", "te", "cookie", "cookie-option", "redirect", "options"):
            response = self.get("/bad-" + name)
            self.assertTrue(response.text.startswith("raised"), response)
            self.assertEqual(response.all("Set-Cookie") + response.all("X"), [])
        self.assertIn(self.get("/bad-length").text, ("accepted", "raised"))  # the framing is checked in either case
        response = self.get("/bad-returned")
        self.assertEqual((response.status, response.all("b")), (500, []))
