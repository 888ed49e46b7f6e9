"""Http1, the test case of HTTP/1.1: a site with request and response bodies of every kind, and requests that must be
refused."""
from harness.case import E2E, table
from harness.conn import request

SITE = r"""
local ls = require "luaserve"
local app = ls.app()
app:get("/", function() return "root" end)
app:any("/evil", function() ls.log.warn("EVIL was served"); return "evil" end)
app:get("/host", function(req) return { host = req.authority, path = req.path, query = req.query.q, target = req.target } end)
app:any("/echo", function(req) return req:body() end)
app:any("/ignore", function() return "ignored" end)
app:any("/pieces", function(req, res)
  for piece in req:chunks() do res:write(piece) end
end)
app:post("/small", { max_body = 100 }, function(req) return req:body() end)
app:get("/n/:n", function(req) return req.params.n end)
app:get("/slow/:n", function(req) ls.sleep(0.02); return req.params.n end)
app:get("/nap", function() ls.sleep(0.15); return "nap" end)
app:get("/stream", function(_, res) for i = 1, 3 do res:write("part ", i, "\n"); res:flush() end end)
app:get("/n204", function() return 204 end)
app:get("/n304", function() return 304, "must not be sent" end)
app:get("/n204body", function() return 204, "must not be sent" end)
app:get("/n205", function() return 205 end)
app:get("/n205body", function() return 205, "must not be sent" end)
app:get("/n205parts", function(_, res) res:status(205) res:write("must not") res:flush() res:write("be sent") end)
app:get("/big", function() return ("0123456789"):rep(1000):rep(100) end)
app:post("/log-body", function(req)
  local ok, body, message, code = pcall(req.body, req)
  ls.log.info(table.concat({ "body", req.query.tag, tostring(ok), tostring(body):sub(1, 40), tostring(message), tostring(code) }, " "))
  return "logged"
end)
app:not_found(function() return 404, "none" end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
"""

EVIL = request("GET", "/evil")  # a request that must not be answered: its handler logs EVIL
H = b"Host: h\r\n"


def get(rest, target=b"/", version=b"HTTP/1.1", method=b"GET"):
    """A request's bytes: its request line and `rest`."""
    return method + b" " + target + b" " + version + b"\r\n" + rest


def post(fields, body=b"", target=b"/echo", version=b"HTTP/1.1"):
    """A POST request's bytes."""
    return b"POST " + target + b" " + version + b"\r\n" + H + fields + b"\r\n" + body


class Http1(E2E):
    SITE = SITE

    def refused(self, data, statuses, follow=EVIL):
        """On one connection send `data`, which must be refused, and `follow`, which must not be answered. The server
        sends one response, of one of these statuses and with Connection: close, and then ends the connection."""
        with self.server.connect() as conn:
            conn.try_send(data + follow)
            response = conn.response()
            if response.status not in statuses:
                raise AssertionError("status must be one of %s: %r" % (sorted(statuses), response))
            if not response.closes:
                raise AssertionError("no Connection: close on %r" % response)
            if response.interim:
                raise AssertionError("an interim response %r before %r" % (response.interim, response))
            conn.expect_end()

    def refuse_all(self, rows):
        """refused() for each row, in parallel. rows: (name, bytes, status or statuses)"""
        cases = [(name, (data, status if isinstance(status, (set, tuple)) else {status})) for name, data, status in rows]
        table(self, cases, lambda case: self.refused(*case))
        self.assertEqual(self.server.logged("EVIL"), [])
        self.assertEqual(self.get("/n/after").text, "after")
