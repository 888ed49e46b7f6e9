"""Trailers (RFC 9110, section 6.5; RFC 9112, section 7.1.2) as a handler sees and sends them."""
import json

from harness import E2E, chunked, main, request, table

SITE = """
local ls = require "luaserve"
local app = ls.app()
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
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
"""


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

    def test_fields_that_frame_route_or_authenticate_are_passed_over(self):
        names = (b"Content-Length", b"Transfer-Encoding", b"Host", b"Authorization", b"Cookie", b"X-Forwarded-For",
                 b"Content-Type", b"Connection", b"Range", b"TE")

        def check(name):
            got = self.ask(post(b"/", b"x", trailers=name + b": 1\r\nX-Sum: 7\r\n"))
            self.assertEqual((got["body"], got["trailers"]), ("x", {"x-sum": "7"}))

        table(self, [(name.decode(), name) for name in names], check)


if __name__ == "__main__":
    main()
