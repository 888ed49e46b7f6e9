"""Trailers (RFC 9110, section 6.5; RFC 9112, section 7.1.2) as a handler sees and sends them."""
import json

from harness import E2E, app_site, chunked, request

SITE = app_site(r"""
app:post("/", function(req)
  local before = req.trailers
  local body = req:body()
  return { body = body, before = before == nil, trailers = req.trailers, upper = req.trailers["X-SUM"], same = req.trailers == req.trailers,
           header = req.headers["x-sum"] }
end)
app:post("/chunks", function(req)
  local seen = {}
  for part in req:chunks() do seen[#seen + 1] = part .. tostring(req.trailers) end
  return { seen = seen, trailers = req.trailers }
end)
app:get("/", function(req) return { trailers = req.trailers } end)
app:get("/parts", function(req, res)
  res:trailer("X-First", 1)
  res:write("a")
  res:flush()
  res:trailer("X-Sum", "7"):trailer("x-sum", "8")
end)
app:get("/whole", function(req, res)
  res:trailer("X-Sum", "7")
  return "whole"
end)
app:get("/failed", function(req, res)
  res:trailer("X-Sum", "7")
  error("failed")
end)
app:get("/none", function(req, res)
  res:trailer("X-Sum", "7")
  return 204
end)
app:get("/inject", function() return app:inject{ path = "/parts" }.trailers end)
app:get("/bad", function(req, res)
  local kinds = { { "Content-Length", "1" }, { "a b", "1" }, { "A", "1\n2" }, { "A", ("v"):rep(4096 - 4) }, { "A", {} } }
  local seen = {}
  for n, kind in ipairs(kinds) do seen[n] = select(2, pcall(res.trailer, res, kind[1], kind[2])) end
  res:trailer("A", ("v"):rep(4096 - 5))
  res:header("Content-Length", 3)
  seen[#seen + 1] = select(2, pcall(res.trailer, res, "B", "1"))
  res:header("Content-Length", nil)
  res:write(table.concat(seen, "\n"))
end)
""")


def post(target, *parts, trailers=b""):
    return b"POST %s HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" % target + chunked(parts, trailers)


class OfRequests(E2E):
    SITE = SITE

    def ask(self, data):
        with self.server.connect() as conn:
            conn.send(data)
            response = conn.response()
            self.assertEqual(response.status, 200)
            return json.loads(response.body)

    def test_they_are_there_when_the_body_is_read(self):
        got = self.ask(post(b"/", b"he", b"llo", trailers=b"X-Sum: 7\r\nx-list: a\r\nX-List:  b \r\n"))
        self.assertEqual(got, {"body": "hello", "before": True, "trailers": {"x-sum": "7", "x-list": "a, b"},
                               "upper": "7", "same": True})

    def test_they_are_nil_between_the_parts(self):
        got = self.ask(post(b"/chunks", b"a", trailers=b"X-Sum: 7\r\n"))
        self.assertEqual(got, {"seen": ["anil"], "trailers": {"x-sum": "7"}})

    def test_a_request_without_trailers_has_none(self):
        self.assertEqual(self.ask(request("GET", "/")), {"trailers": {}})
        self.assertEqual(self.ask(post(b"/chunks", b"a"))["trailers"], {})
        length = b"POST /chunks HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\na"
        self.assertEqual(self.ask(length)["trailers"], {})


class OfResponses(E2E):
    SITE = SITE

    def get(self, target, method="GET", version="1.1"):
        with self.server.connect() as conn:
            conn.send(b"%s %s HTTP/%s\r\nHost: h\r\n\r\n" % (method.encode(), target.encode(), version.encode()))
            return conn.response(method)

    def test_they_are_behind_the_last_part(self):
        got = self.get("/parts")
        self.assertEqual((got.body, got.header("Trailer")), (b"a", "X-First"))
        self.assertEqual(got.trailers, [("X-First", "1"), ("X-Sum", "7"), ("x-sum", "8")])

    def test_a_whole_body_is_chunked_for_their_sake(self):
        got = self.get("/whole")
        self.assertEqual((got.body, got.header("Trailer"), got.header("Content-Length")), (b"whole", "X-Sum", None))
        self.assertEqual(got.trailers, [("X-Sum", "7")])

    def test_responses_that_have_none(self):
        for row in (("/whole", "HEAD", "1.1"), ("/whole", "GET", "1.0"), ("/parts", "GET", "1.0"), ("/none", "GET", "1.1"),
                    ("/failed", "GET", "1.1")):
            with self.subTest(row):
                self.assertEqual(self.get(*row).trailers, [])
        self.assertEqual(self.get("/failed").status, 500)
        self.assertEqual(self.get("/whole", "GET", "1.0").header("Content-Length"), "5")
        self.server.wait_log("failed")

    def test_inject_gives_them_back(self):
        self.assertEqual(json.loads(self.get("/inject").body), {"x-first": "1", "x-sum": "7, 8"})

    def test_what_raises(self):
        got = self.get("/bad")
        lines = got.text.split("\n")
        for line, part in zip(lines, ("'Content-Length' cannot be a trailer", "invalid trailer name 'a b'",
                                      "invalid value of trailer 'A'", "exceed 4096 bytes", "string expected",
                                      "a response with a Content-Length has no"), strict=True):
            self.assertIn(part, line)
        self.assertEqual([len(value) for _, value in got.trailers], [4091])
