"""Early hints (RFC 8297): responses 103 before the response, as a raw socket and curl see them."""
import json

from harness import E2E, app_site, request

SITE = app_site(r"""
local hints = { ["Link"] = { "</a.css>; rel=preload; as=style", "</b.js>; rel=preload; as=script" }, ["X-N"] = 1 }
local statuses = ls.dict("statuses")
ls.on("log", function(req, res) statuses:lpush("all", res:status()) end)
app:get("/page", function(req, res)
  local first = res:early_hints(hints)
  return { first, res:early_hints{ Link = "</c.css>" }, res.sent }
end)
app:get("/slow", function(req, res)
  res:early_hints{ Link = "</a.css>" }
  local go = ls.channel("go"):receive()
  return go
end)
app:get("/go", function() ls.channel("go"):send("went") return 204 end)
app:post("/body", function(req, res)
  res:early_hints{ Link = "</a.css>" }
  return req:body()
end)
app:get("/late", function(req, res)
  res:write("x")
  local ok, message = pcall(res.early_hints, res, { Link = "</a.css>" })
  res:write(message)
end)
app:get("/failed", function(req, res)
  res:early_hints{ Link = "</a.css>" }
  error("failed")
end)
app:get("/inject", function() return app:inject{ path = "/page" } and app:inject{ path = "/page" }.body end)
app:get("/bad", function(req, res)
  local kinds = { { ["Content-Length"] = 1 }, { ["a b"] = 1 }, { A = "1\n2" }, { A = ("v"):rep(4096 - 4) }, { A = true }, { "a" }, "x" }
  local seen = {}
  for n, kind in ipairs(kinds) do seen[n] = select(2, pcall(res.early_hints, res, kind)) end
  res:early_hints{ A = ("v"):rep(4096 - 5) }
  return table.concat(seen, "\n")
end)
app:get("/stats", function()
  local stats = ls.stats()
  return { responses = stats.responses, statuses = statuses:range("all", 1, -1) }
end)
""")


class EarlyHints(E2E):
    SITE = SITE

    def ask(self, data, count=0, method="GET"):
        """Send a request; returns the fields of `count` early hints and the response."""
        with self.server.connect() as conn:
            conn.send(data)
            hints = [conn.head() for _ in range(count)]
            response = conn.response(method)
            self.assertEqual(([hint.status for hint in hints], response.interim), ([103] * count, []))
            return [hint.headers for hint in hints], response

    def test_several_come_before_the_response(self):
        hints, response = self.ask(request("GET", "/page") + request("GET", "/page"), 2)
        self.assertEqual(sorted(hints[0]), [("Link", "</a.css>; rel=preload; as=style"),
                                               ("Link", "</b.js>; rel=preload; as=script"), ("X-N", "1")])
        self.assertEqual(hints[1], [("Link", "</c.css>")])
        self.assertEqual((response.status, response.header("Link")), (200, None))
        self.assertEqual(json.loads(response.body), [True, True, False])

    def test_they_are_sent_at_once(self):
        with self.server.connect() as conn:
            conn.send(request("GET", "/slow"))
            self.assertEqual(conn.head().status, 103)
            self.assertEqual(self.server.get("/go").status, 204)
            self.assertEqual(conn.response().text, "went")

    def test_beside_100_continue(self):
        head = b"POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        self.assertEqual(self.ask(head + b"ab", 1)[1].body, b"ab")
        with self.server.connect() as conn:
            conn.send(head)
            self.assertEqual([conn.head().status, conn.head().status], [103, 100])
            conn.send(b"ab")
            self.assertEqual(conn.response().body, b"ab")

    def test_head_and_errors(self):
        self.assertEqual(self.ask(request("HEAD", "/page"), 2, "HEAD")[1].status, 200)
        self.assertEqual(self.ask(request("GET", "/failed"), 1)[1].status, 500)
        self.server.wait_log("failed")

    def test_none_for_http_1_0_and_inject(self):
        for data in (b"GET /page HTTP/1.0\r\n\r\n", request("GET", "/inject")):
            self.assertEqual(json.loads(self.ask(data)[1].body), [True, True, False])

    def test_they_raise_behind_the_head(self):
        self.assertIn("the head of the response was sent already", self.ask(request("GET", "/late"))[1].text)

    def test_what_raises(self):
        hints, response = self.ask(request("GET", "/bad"), 1)
        for line, part in zip(response.text.split("\n"), (
                "'Content-Length' is set by the server", "invalid header name 'a b'", "invalid value of header 'A'",
                "the fields exceed 4096 bytes", "string or number expected, got boolean", "invalid header name: string",
                "table expected"), strict=True):
            self.assertIn(part, line)
        self.assertEqual([[len(value) for _, value in fields] for fields in hints], [[4091]])

    def test_they_are_no_responses_for_the_log_and_the_counters(self):
        with self.serve(SITE).connect() as conn:
            conn.send(request("GET", "/page"))
            self.assertEqual(conn.response().status, 200)
            conn.send(request("GET", "/stats"))
            self.assertEqual(json.loads(conn.response().body), {"responses": 1, "statuses": [200]})
