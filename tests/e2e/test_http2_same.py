"""A handler sees and does the same over HTTP/1.1 and HTTP/2: one site that tells all it knows, asked over both."""
import json
import os
import re
import ssl
import unittest

from harness import E2E, ROOT, Conn, chunked, read_text, request
from harness import http2 as h
from harness import tls, websocket
from harness.http2 import H2

SITE = r"""
local ls = require "luaserve"
local app, told = ls.app(), ls.dict("told")
local names = ls.json.decode [==[@NAMES@]==]
local function tell(kind, of)
  local out = {}
  for _, name in ipairs(names[kind]) do
    local value = of[name]
    out[name] = type(value) == "table" and ls.json.decode(ls.json.encode(value)) or value == nil and "nil" or value
  end
  return out
end
local function keep(name, value) told:set(name, ls.json.encode(value)) end
local function describe(req, res)
  local before, body = tell("req", req), req:body()
  return { before = before, body = body, after = tell("req", req), accepts = req:accepts("text/html", "text/plain"),
    status = res:status(), sent = res.sent, date = res:header("Date") or "nil" }
end
ls.on("log", function(req, res, info)
  local out = { req = tell("req", req), status = res:status(), sent = res.sent, info = {} }
  for name, value in pairs(info) do out.info[name] = name == "status" and value or value > 0 end
  keep("log " .. (req.query.name or "-"), out)
end)
app:any("/dump/:id", describe)
app:any("/unread", function() return "unread" end)
app:get("/parts", function(req, res)
  local out = {}
  out[1] = tostring(res.sent) .. tostring(res:write("a")) .. tostring(res.sent)
  out[2] = tostring(pcall(res.header, res, "A", "b"))
  out[3] = tostring(res:flush())
  keep("parts", out)
end)
app:get("/aborts", function(_, res) res:abort() end)
app:get("/fails", function() error("on purpose") end)
app:get("/none", function() return 204 end)
app:get("/events", function(_, res)
  local sse = res:sse()
  sse:send(ls.json.encode(tell("sse", sse)))
  sse:close()
  keep("sse", { tell("sse", sse), tostring(sse:send("late")) })
end)
app:get("/leaves", function(_, res)
  local sse = res:sse()
  sse:send("here")
  local ok, message, code = sse:wait(600)
  keep("leaves", { tostring(ok), code or "nil", tell("sse", sse) })
end)
app:get("/streams", function(_, res)
  local ok, message, code
  repeat ok, message, code = res:write(("x"):rep(10000)) until not ok
  keep("streams", { code, tostring(res.sent) })
end)
app:ws("/ws", { protocols = { "chat" } }, function(ws, req)
  ws:send(ls.json.encode{ ws = tell("ws", ws), req = tell("req", req) })
  for data in ws:messages() do ws:send(data) end
  keep("ws", tell("ws", ws))
end)
app:route("CONNECT", "*", function(req, res)
  if req.target == "h:403" then return 403, "not there" end
  res:status(202):header("X-Own", "1")
  local sock = assert(res:upgrade())
  sock:flush()
  sock:send(ls.json.encode{ sock = tell("sock", sock), req = tell("req", req), status = res:status() }, "\n")
  for line in sock:lines() do sock:send(line, "\n") end
  keep("sock", { ended = sock.ended, after = tell("sock", sock) })
end)
app:get("/told/:name", function(req)
  local text = told:get(req.params.name) or "null"
  told:delete(req.params.name)
  return text
end)
app:get("/stats", function()
  local all, out = ls.stats(), {}
  for _, name in ipairs{ "requests", "responses", "refused", "websockets", "tasks" } do out[name] = all[name] end
  return out
end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app, http2 = true, max_body = 1000 }
ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = "self-signed", max_body = 1000 }
"""
PLAIN, TLS = range(2)


def fields_of(kind):
    """The fields that the reference names."""
    pages = {"req": "request", "ws": "websocket", "sse": "sse", "sock": "tcp"}
    lines = read_text(os.path.join(ROOT, "lua/docs/reference/%s.md" % pages[kind])).split("\n")
    cells = [line.split("|")[1] for line in lines if line.startswith("| `%s." % kind)]
    return sorted({name for cell in cells for name in re.findall(r"`%s\.(\w+)`" % kind, cell)})


NAMES = {kind: fields_of(kind) for kind in ("req", "ws", "sse", "sock")}


class One:
    """A request of HTTP/1.1 on a connection of its own."""

    version, alpn = "1.1", "http/1.1"

    def __init__(self, server, index):
        self.conn = Conn(server.at(index))
        if index == TLS:
            self.conn.sock = tls.context(alpn=["http/1.1"]).wrap_socket(self.conn.sock, server_hostname="localhost")
        self.port = self.conn.sock.getsockname()[1]

    def begin(self, path="/", method="GET", body=None, fields=(), trailers=(), **_):
        framing = [("transfer-encoding", "chunked")] if trailers else []
        lines = b"".join(b"%s: %s\r\n" % (name.encode(), value.encode()) for name, value in trailers)
        data = chunked([body], lines) if trailers else body
        self.conn.sock.sendall(request(method, path, [*fields, *framing], data, host="h:80"))

    def ask(self, path="/", method="GET", **kw):
        self.begin(path, method, **kw)
        got = self.conn.response(method)
        return got.status, got.body, {name.lower(): value for name, value in got.headers}

    def part(self, until):
        """Await the beginning of a response."""
        data = b""
        while until not in data:
            data += self.conn.sock.recv(65536)
        return data.partition(b"\r\n\r\n")[2]

    def websocket(self, path, fields):
        self.begin(path, fields=[*fields, ("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-key", websocket.KEY)])
        got = self.conn.head()
        return got.status if got.status != 101 else 200

    def connect(self, target):
        self.conn.sock.sendall(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target))
        got = self.conn.head()
        return got.status, {name.lower(): value for name, value in got.headers}

    def send(self, data):
        self.conn.sock.sendall(data)

    def take(self, count):
        return self.conn.take(count)

    def end(self):
        """End the client's direction of a tunnel."""
        if isinstance(self.conn.sock, ssl.SSLSocket):
            self.conn.sock.unwrap()
        else:
            self.conn.half_close()

    def close(self):
        self.conn.close()


class Two(One):
    """The same of HTTP/2."""

    version, alpn = "2", "h2"

    def __init__(self, server, index):
        self.conn = H2(server.at(index), over_tls=index == TLS or None)
        self.scheme = "https" if index == TLS else "http"
        self.port = self.conn.sock.getsockname()[1]
        self.at = 0

    def begin(self, path="/", method="GET", body=None, fields=(), trailers=(), whole=None):
        length = [] if body is None or trailers else [("content-length", str(len(body)))]
        self.stream = self.conn.open(path, method, end=body is None and whole is None, fields=[*fields, *length], authority="h:80",
                                     scheme=self.scheme, whole=whole)
        self.response = self.conn.streams.setdefault(self.stream, h.Response())
        if body is not None:
            self.conn.send(h.DATA, 0 if trailers else h.END_STREAM, self.stream, body)
        if trailers:
            self.conn.send(h.HEADERS, h.END_HEADERS | h.END_STREAM, self.stream, h.block(trailers))

    def ask(self, path="/", method="GET", **kw):
        self.begin(path, method, **kw)
        got = self.conn.response(self.stream)
        return got.status, got.body, {name: value for name, value in got.fields if name[0] != ":"}

    def part(self, until):
        self.conn.until(lambda: until in self.response.body)
        return self.response.body

    def tunnel(self, whole):
        self.conn.until(lambda: self.conn.got_settings)
        self.begin(whole=whole)
        self.conn.until(lambda: self.response.fields)
        return self.response.status

    def websocket(self, path, fields):
        return self.tunnel([(":method", "CONNECT"), (":protocol", "websocket"), *h.head(path, None, fields, "h:80", self.scheme)])

    def connect(self, target):
        status = self.tunnel([(":method", "CONNECT"), (":authority", target.decode())])
        return status, {name: value for name, value in self.response.fields if name[0] != ":"}

    def send(self, data):
        self.conn.body(self.stream, data, end=False)

    def take(self, count):
        self.conn.until(lambda: len(self.response.body) >= self.at + count or self.response.ended)
        self.at += count
        return self.response.body[self.at - count:self.at]

    def end(self):
        self.conn.send(h.DATA, h.END_STREAM, self.stream)

    def close(self):
        self.conn.close()


@h.needs_http2
class Same(E2E):
    LISTENERS = 2
    maxDiff = None
    SITE = SITE.replace("@NAMES@", json.dumps(NAMES))

    def normal(self, value, client):
        """The value without what must differ; that is checked here."""
        if isinstance(value, (list, tuple)):
            return [self.normal(each, client) for each in value]
        if not isinstance(value, dict):
            return value
        out = {name: self.normal(each, client) for name, each in value.items()}
        if "version" in out and "method" in out:
            self.assertEqual((out.pop("version"), out["port"], out["remote"]), (client.version, client.port, "127.0.0.1:%d" % client.port))
            self.assertRegex(out.pop("id"), "^[0-9a-f]{16}$")
            for name in ("connection", "transfer-encoding", "sec-websocket-key"):
                out["headers"].pop(name, None)
        if "cipher" in out:
            self.assertEqual(out.pop("alpn"), client.alpn)
        for name in ("port", "remote", "fingerprint"):
            if out.get(name) not in (None, "nil"):
                out[name] = str(out[name]).replace(str(client.port), "PORT")
        return out

    def told(self, name):
        """What the site has kept, once."""
        got = []
        self.eventually(lambda: got.append(json.loads(self.get("/told/" + name.replace(" ", "%20")).text)) or got[-1] is not None, "it has told of " + name)
        return got[-1]

    def both(self, check, indexes=(PLAIN, TLS)):
        """check(client) -> what a client of each version gets; it is the same."""
        for index in indexes:
            results = []
            for kind in (One, Two):
                client = self.owns(kind(self.server, index))
                with self.subTest(version=client.version, tls=index == TLS):
                    results.append(self.normal(check(client), client))
            if len(results) == 2:
                self.assertEqual(*results)

    def test_a_request(self):
        fields = [("x-a", "1"), ("cookie", "a=1; b=2"), ("accept", "text/plain"), ("x-a", "2"), ("user-agent", "test"),
                  ("content-type", "text/plain"), ("forwarded", "for=1.2.3.4")]

        def check(client, **how):
            got = client.ask("/dump/a%20b?a=1&a=2&name=" + how.get("method", "GET"), fields=fields, **how)
            return got[0], json.loads(got[1]) if got[1] else None, got[2].get("content-type"), self.told("log " + how.get("method", "GET"))

        self.both(check)
        self.both(lambda client: check(client, method="POST", body=b"the body"))
        self.both(lambda client: check(client, method="PUT", body=b"the body", trailers=[("x-note", "noted"), ("x-more", "more")]))
        self.both(lambda client: check(client, method="HEAD"))

    def test_responses(self):
        def check(client, path, **how):
            try:
                status, body, fields = client.ask(path, **how)
            except (AssertionError, h.Reset):  # the connection, or the stream
                return "lost"
            for name in ("connection", "transfer-encoding", "date"):
                fields.pop(name, None)
            return status, body.decode(), fields

        self.both(lambda client: json.loads(client.ask("/dump/a", "DELETE")[1]))
        rows = [("/parts", {}), ("/none", {}), ("/fails", {}), ("/missing", {}), ("/aborts", {}),
                ("/unread", {"method": "POST", "body": b"x" * 900}), ("/unread", {"method": "POST", "body": b"x" * 1001}),
                ("/dump/a", {"method": "POST", "body": b"x" * 1001}), ("/parts", {"method": "HEAD"}), ("/stats", {"method": "POST", "body": b""})]
        for path, how in rows:
            with self.subTest(path, how=how):
                self.both(lambda client: check(client, path, **how))
        self.assertEqual(self.told("parts"), ["falsetruetrue", "false", "true"])

    def test_events(self):
        def check(client):
            status, body, fields = client.ask("/events", fields=[("last-event-id", "7")])
            return status, json.loads(body[6:]), fields["content-type"], fields["cache-control"], self.told("sse")

        self.both(check)

    def test_clients_that_leave(self):
        def check(client, path, until):
            client.begin(path)
            client.part(until)
            client.close()
            return ["ERESET" if text == "EPIPE" else text for text in self.told(path[1:])]  # by whether a send or its end is told first

        for path, until in (("/leaves", b"here"), ("/streams", b"xxx")):
            self.both(lambda client: check(client, path, until))

    def test_a_websocket(self):
        def check(client):
            status = client.websocket("/ws?name=ws", [("sec-websocket-version", "13"), ("sec-websocket-protocol", "chat")])
            first, size = client.take(2)
            size = int.from_bytes(client.take(2), "big") if size == 126 else size
            told = json.loads(client.take(size))
            del told["ws"]["queued"]  # the 101 of HTTP/1.1
            client.send(websocket.frame(websocket.CLOSE, websocket.close_payload(4000, "bye")))
            self.assertEqual(client.take(4)[:4], b"\x88\x02\x0f\xa0")
            return status, first, told, self.told("ws"), self.told("log ws")

        self.both(check)

    def test_a_tunnel(self):
        def check(client):
            status, fields = client.connect(b"h:443")
            line = b""
            while not line.endswith(b"\n"):
                line += client.take(1)
            client.send(b"one\ntwo\n")
            self.assertEqual(client.take(8), b"one\ntwo\n")
            client.end()
            return status, fields["x-own"], fields.get("content-length"), json.loads(line), self.told("sock")

        self.both(check)
        self.both(lambda client: client.connect(b"h:403")[0])

    def test_statistics(self):
        def check(client, path, **how):
            before = json.loads(self.get("/stats").text)
            try:
                client.ask(path, **how)
            except (AssertionError, h.Reset):
                pass
            after = json.loads(self.get("/stats").text)
            return {name: after[name] - before[name] for name in after}

        for path, how in (("/none", {}), ("/dump/a", {"method": "POST", "body": b"a"}), ("/fails", {}), ("/missing", {}),
                          ("/dump/a", {"method": "POST", "body": b"x" * 1001}), ("/none", {"method": "HEAD"}), ("/%zz", {}), ("/aborts", {})):
            with self.subTest(path, how=how):
                self.both(lambda client: check(client, path, **how), (PLAIN,))


if __name__ == "__main__":
    unittest.main()
