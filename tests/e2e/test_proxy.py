"""app:proxy: requests as upstream servers see them, every kind of response and of failure, bodies of any size both ways,
upgrades, events, balance, health, retries, hooks, and clients that leave."""
import concurrent.futures
import contextlib
import gzip
import re
import socket
import threading

from harness import E2E, LUASERVE, WINDOWS, app_site, free_port, request, table, temporary_folder
from harness.conn import Closed, chunked
from harness.environment import SANITIZER, WAIT, WINE, repeats
from harness.peer import Peer, response
from harness.stress import stress
from harness.websocket import WebSocket

SITE = app_site(r"""
ls.config { threads = 2, drain_timeout = 5 }
local trusting, site = ls.app(), ls.app()
local peer, odd, dead = "http://127.0.0.1:@PEER@", "http://127.0.0.1:@ODD@", "http://127.0.0.1:@DEAD@"
local own = "unix"
app:use("/middleware", function(req, res, next)
  if req.query.read then req:body() end
  res:header("X-Frame-Options", "DENY"):header("Set-Cookie", "own=1")
  next()
  if res:status() == 502 then return 502, "our own page\n" end
end)
app:use("/after", function(req, res, next)
  if req.query.job then ls.spawn(function()
    if ls.channel("read"):receive() then ls.channel("was read"):send((select(2, pcall(req.body, req)))) end
  end) end
  next()
  local fine, body = pcall(req.body, req)
  ls.dict("noted").text = tostring(fine) .. " " .. body
end)
app:use("/raises", function(req, res, next)
  next()
  ls.dict("noted").text = select(2, pcall(req.body, req))
end)
app:proxy("/raises", peer, { response = function() error("not this one", 0) end })
app:get("/read", function()
  ls.channel("read"):send(true)
  return ls.channel("was read"):receive()
end)
app:proxy("/after", peer)
app:proxy("/after/dead", dead)
app:get("/noted", function() return ls.dict("noted").text end)
app:use("/decoded", require("luaserve.compress").requests())
app:use("/decoded", function(req, res, next)
  if req.query.read then req:body() end
  next()
end)
app:proxy("/raw", peer)
app:proxy("/decoded", peer)
app:proxy("/strip", peer .. "/base/", { strip = true, host = "keep" })
app:proxy("/v/:n", peer, { strip = true, host = "named.example:81" })
app:proxy("/middleware", peer)
app:proxy("/odd", odd, { strip = true })
app:proxy("/dead", dead)
app:proxy("/slow", peer, { timeout = 0.3 })
app:proxy("/tunnel", peer, { timeout = 2 })
app:proxy("/small", peer, { max_body = 5 })
app:proxy("/none", peer, { retry = false })
app:proxy("/hook", peer, {
  request = function(req, upstream)
    if req.query.stop then return 403, "stopped\n" end
    if req.query.path then upstream.path = req.query.path end
    local headers = upstream.headers
    headers["X-Url"], headers["user-agent"], headers["X-List"] = upstream.url, false, { "a", 2 }
    if req.query.bad then headers[req.query.bad] = "x" end
    if req.query.own then req.headers[req.query.own] = nil end
  end,
  response = function(res, upstream)
    res:header("Server", nil):header("X-From", upstream.url)
    if res:header("x-secret") then return 418, "no secrets\n" end
    if res:status() == 404 then res:status(410) end
  end,
})
app:proxy("/fails", peer, {
  request = function(req) if req.query.at == "request" then return nil, "not today" end end,
  response = function() return nil, "not this answer" end,
})
app:proxy("/cached/fails", peer, { cache = {}, request = function() return nil, "not today" end })
app:proxy("/described/:how", peer, { response = function(res)
  local how = res:header("x-how")
  res:header("X-Secret", nil)
  if how == "redirect" then res:redirect("/login")
  elseif how == "send" then res:send("redacted")
  elseif how == "json" then res:json({ a = 1 })
  elseif how == "returned" then return res:html("page") end
end })
app:proxy("/reads", peer .. "/base", { strip = true, request = function(req, upstream)
  local headers = upstream.headers
  if headers["X-User"] then return 400, "X-User is ours\n" end
  local before, names = upstream.path, {}
  headers["x-user"] = "small"
  headers["X-User"] = "ada"
  for name, value in pairs(headers) do names[#names + 1] = name .. "=" .. tostring(value) end
  table.sort(names)
  if req.query.to then upstream.path = req.query.to end
  headers["X-Read"] = table.concat({ before, upstream.path, headers["x-USER"], tostring(headers["X-Forwarded-For"]), table.concat(names, ",") }, " ")
end })
app:proxy("/guest", peer, { request = function(req, upstream)
  local headers = upstream.headers
  headers["X-User"], headers["X-Role"], headers["X-Group"] = req.user, "set", nil
  headers["X-Role"] = req.role
  headers["X-Read"] = tostring(headers["X-Group"]) .. " " .. tostring(headers["X-Other"])
end })
app:proxy("/wrong", peer, {
  request = function(req, upstream)
    if req.query.set then upstream[req.query.set] = req.query.set == "headers" and {} or "/x" end
    if req.query.get then return tostring(upstream[req.query.get]) end
  end,
  response = function(res, upstream) upstream.headers["X-Late"] = "x" end,
})
app:proxy("/two", { dead, { url = peer, weight = 2 } }, { strip = true })
app:use("/swap", function(req, res, next)
  res:header("X-A", 1):header("X-B", 2)
  next()
end)
app:proxy("/swap", peer, { response = function(res)
  res:header("X-A", nil)
  return 200, "ours\n"
end })
app:get("/raw/here", function() return "a route of the site\n" end)
app:error(function(req, res, err) return "error: " .. tostring(err) end)
trusting:proxy("/", peer)
site:any("/len", function(req)
  local n = 0
  for piece in req:chunks() do n = n + #piece end
  return tostring(n)
end)
site:get("/bytes/:n", function(req, res) -- without a length
  local piece = ("x"):rep(50000)
  for _ = 1, tonumber(req.params.n) // #piece do res:write(piece) end
end)
site:any("/echo", function(req, res)
  for piece in req:chunks() do res:write(piece) res:flush() end
end)
site:ws("/ws", function(ws) for message in ws:messages() do ws:send(message) end end)
site:get("/events", function(req, res)
  local sse = res:sse()
  sse:send("first")
  ls.channel("go"):receive()
  sse:send("second")
end)
site:get("/go", function() ls.channel("go"):send(true) return 204 end)
ls.listen { host = "127.0.0.1", port = 0, handler = app }
ls.listen { host = "127.0.0.1", port = 0, handler = trusting, trusted = { "127.0.0.1" } }
ls.listen { host = "127.0.0.1", port = @SITE@, handler = site, max_body = "1g" }
app = ls.app()
app:proxy("/", "http://127.0.0.1:@SITE@")
""")
LEFT = app_site("""
local begun, ended = ls.dict("begun"), ls.dict("ended")
local function wait()
  begun:incr("n")
  ls.sleep(0.05) -- the client leaves here, or, on a slow machine, while the server is asked: the result is the same
end
app:get("/first", function() return "first" end)
app:proxy("/hook", "http://127.0.0.1:@PEER@", { request = wait })
app:proxy("/cache", "http://127.0.0.1:@PEER@", { request = wait, cache = {} })
app:get("/handler", function(req, res)
  local _ <close> = setmetatable({}, { __close = function() ended:incr("n") end })
  begun:incr("n")
  for _ = 1, 20 do
    ls.sleep(0.005)
    res:header("X-A", "1")
  end
  return "not sent\\n"
end)
app:get("/begun", function() return tostring(begun.n or 0) end)
app:get("/ended", function() return tostring(ended.n) end)
""")
OK = response(b"ok")


def serve_odd(peer, answers):
    """Answer each connection with the bytes that its target names, then close it."""
    def one(conn):
        with conn:
            with contextlib.suppress(EOFError, OSError):
                conn.try_send(answers[int(conn.request().line.split()[1].split("/")[1])])

    def loop():
        while True:
            try:
                conn = peer.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(conn,), daemon=True).start()

    peer.listener.settimeout(None)
    threading.Thread(target=loop, daemon=True).start()


def head_of(length):
    """A response with a head of so many bytes."""
    text = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
    while length - len(text) - 2 > 2000:
        text += b"X: %s\r\n" % (b"x" * 1000)
    return text + b"X: %s\r\n\r\n" % (b"x" * (length - len(text) - 7)) + b"ok"


H = b"HTTP/1.1 200 OK\r\n"
INTERIM = b"HTTP/1.1 102 Processing\r\n\r\n"
CUT, EITHER = "cut", "cut, or 502 if the head has not left"
ODD = [  # name, what the server sends before it closes, the result: a status, the body of a 200, or CUT
    ("nothing", b"", 502),
    ("another protocol", b"SSH-2.0-x\r\n\r\n", 502),
    ("both lengths", H + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 502),
    ("a bad chunk size", H + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\nok\r\n0\r\n\r\n", 502),
    ("a head one byte longer", head_of(65536), 502),
    ("a head without an end", H + b"X: " + b"x" * 200000, 502),
    ("17 interim responses", INTERIM * 17 + OK, 502),
    ("an upgrade that was not asked for", b"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: a\r\n\r\n", 502),
    ("less than announced", H + b"Content-Length: 10\r\n\r\nhello", CUT),
    ("nothing of what was announced", H + b"Content-Length: 10\r\n\r\n", EITHER),
    ("more than announced", H + b"Content-Length: 5\r\n\r\nhello" + OK, b"hello"),
    ("no last chunk", H + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", CUT),
    ("a part of a chunk", H + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel", CUT),
    ("trailers without an end", H + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: a\r\n", CUT),
    ("trailers", H + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: a\r\n\r\n", b"hello"),
    ("a body to the end", H + b"\r\nhello", b"hello"),
    ("a body to the end of HTTP/1.0", b"HTTP/1.0 200 OK\r\n\r\nhello", b"hello"),
    ("204 with a body", b"HTTP/1.1 204 N\r\n\r\nhello", 204),
    ("205 with a body", b"HTTP/1.1 205 R\r\nContent-Length: 5\r\n\r\nhello", 205),
    ("304", b"HTTP/1.1 304 N\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\n", 304),
    ("a status without a name", b"HTTP/1.1 299\r\nContent-Length: 0\r\n\r\n", 299),
    ("1,000 chunks", H + b"Transfer-Encoding: chunked\r\n\r\n" + chunked([b"ab"] * 1000), b"ab" * 1000),
]


class ProxyCase(E2E):
    LISTENERS = 4

    @classmethod
    def setUpClass(cls):
        cls.peer, cls.odd = Peer(), Peer()
        cls.addClassCleanup(cls.peer.close)
        cls.addClassCleanup(cls.odd.close)
        serve_odd(cls.odd, [answer for _, answer, _ in ODD])
        cls.dead, cls.site_port = free_port(), free_port()
        ports = {"@PEER@": cls.peer.port, "@ODD@": cls.odd.port, "@DEAD@": cls.dead, "@SITE@": cls.site_port}
        cls.SITE = SITE
        for name, port in ports.items():
            cls.SITE = cls.SITE.replace(name, str(port))
        super().setUpClass()

    def through(self, data, answer=OK, index=0):
        """Send a request; the request of the proxy, and its response to `answer` of the peer."""
        conn = self.connect(index).send(data)
        with self.peer.accept() as upstream:
            seen = upstream.request()
            upstream.send(answer)
            return seen, conn.response(data.split(b" ")[0].decode())


class Requests(ProxyCase):
    def test_a_request_and_its_response(self):
        seen, got = self.through(request("GET", "/raw/a%20b/..c?x=1&y", [("User-Agent", "me"), ("X-A", "1"), ("X-A", "2")]),
                                 response(b"hello", ["X-B: 1", "X-B: 2", "Server: origin", "Date: Sun, 06 Nov 1994 08:49:37 GMT",
                                                     "Content-Type: text/x"], "203 Fine"))
        self.assertEqual(seen.line, "GET /raw/a%20b/..c?x=1&y HTTP/1.1")
        self.assertEqual(seen.lines, [
            "Host: 127.0.0.1:%d" % self.peer.port, "User-Agent: me", "X-A: 1", "X-A: 2", "X-Forwarded-For: 127.0.0.1",
            "X-Forwarded-Proto: http", "X-Forwarded-Host: h", "Via: 1.1 luaserve"])
        self.assertEqual((got.status, got.text), (203, "hello"))
        self.assertEqual(sorted(got.headers), [
            ("Content-Length", "5"), ("Content-Type", "text/x"), ("Date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("Server", "origin"), ("Via", "1.1 luaserve"), ("X-B", "1"), ("X-B", "2")])

    def test_max_forwards(self):
        """RFC 9110 7.6.2: of OPTIONS and TRACE it is checked and counted down; of other methods it is passed on."""
        for path in ("/raw", "/hook"):
            for method, field, wanted in (("OPTIONS", "2", "1"), ("TRACE", "1", "0"), ("GET", "3", "3"), ("OPTIONS", "x", "x")):
                seen, _ = self.through(request(method, path, [("Max-Forwards", field)]))
                self.assertEqual([line for line in seen.lines if line.startswith("Max-")], ["Max-Forwards: " + wanted], (path, method))
            for method, status in (("OPTIONS", 204), ("TRACE", 501)):
                self.assertEqual(self.ask(method, path, [("Max-Forwards", "0")]).status, status)

    def test_fields_of_a_connection_are_not_passed_on(self):
        seen, got = self.through(
            request("GET", "/raw", [("Connection", "X-Mine, keep-alive"), ("X-Mine", "1"), ("Keep-Alive", "5"), ("TE", "trailers"),
                                    ("Proxy-Connection", "close"), ("Proxy-Authorization", "x"), ("Trailer", "a"),
                                    ("Upgrade", "h2c"), ("HTTP2-Settings", "x"), ("X-Kept", "1"), ("Connection", "X-More"), ("X-More", "1")]),
            response(b"ok", ["Connection: close, X-Theirs", "X-Theirs: 1", "connection: X-More", "X-More: 1", "Keep-Alive: 5", "Proxy-Authenticate: x",
                             "Upgrade: h2c", "X-Kept: 2"]))
        names = {line.split(":")[0] for line in seen.lines}
        self.assertEqual(names, {"Host", "X-Kept", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Via"})
        self.assertEqual({name for name, _ in got.headers}, {"Content-Length", "Date", "Server", "Via", "X-Kept"})

    def test_what_a_client_says_about_itself_counts_only_from_a_trusted_one(self):
        said = [("X-Forwarded-For", "192.0.2.1"), ("X-Forwarded-For", "192.0.2.2"), ("X-Forwarded-Proto", "https"),
                ("X-Forwarded-Host", "a.example"), ("X-Forwarded-Port", "1"), ("X-Real-IP", "192.0.2.1"),
                ("X_Forwarded_For", "192.0.2.3"), ("X-Forwarded_Proto", "https"), ("x_real_ip", "192.0.2.3"),
                ("Forwarded", 'for=192.0.2.2;proto=https')]
        seen, _ = self.through(request("GET", "/raw", said))
        self.assertEqual([line for line in seen.lines if "orward" in line or "Real" in line], [
            "X-Forwarded-For: 127.0.0.1", "X-Forwarded-Proto: http", "X-Forwarded-Host: h"])
        seen, _ = self.through(request("GET", "/raw", said), index=1)
        for n, fields in enumerate((said, said[:-1])):
            seen, _ = self.through(request("GET", "/raw", fields), index=1)
            self.assertEqual(sorted(line for line in seen.lines if "orward" in line or "Real" in line), [
                "X-Forwarded-For: " + ("192.0.2.2, 127.0.0.1", "192.0.2.1, 192.0.2.2, 127.0.0.1")[n],
                "X-Forwarded-Host: " + ("h", "a.example")[n],  # of both kinds only what is equal
                "X-Forwarded-Port: 1", "X-Forwarded-Proto: https", "X-Real-IP: 192.0.2.1"])
        for said, expected in (("proto=https", ["For: 127.0.0.1", "Proto: https", "Host: h"]),
                               ('for="[2001:DB8::7]:1";host=a', ["For: 2001:db8::7, 127.0.0.1", "Proto: http", "Host: a"]),
                               ("for=unknown", ["For: unknown, 127.0.0.1", "Proto: http", "Host: h"])):
            seen, _ = self.through(request("GET", "/raw", [("Forwarded", said)]), index=1)
            self.assertEqual([line for line in seen.lines if "orward" in line], ["X-Forwarded-" + line for line in expected])

    def test_paths_and_hosts(self):
        for target, line, host in [
                ("/strip/a/b?c", "GET /base/a/b?c HTTP/1.1", "h"), ("/strip/", "GET /base/ HTTP/1.1", "h"),
                ("/strip", "GET /base HTTP/1.1", "h"), ("/strip?a", "GET /base?a HTTP/1.1", "h"),
                ("/%73trip/a", "GET /base/a HTTP/1.1", "h"), ("/v/7/x//y", "GET /x//y HTTP/1.1", "named.example:81"),
                ("/raw/..a;..;/;/.../a;..", "GET /raw/..a;..;/;/.../a;.. HTTP/1.1", None),
                ("/v/7", "GET / HTTP/1.1", "named.example:81"),
                ("/raw/..a;..;/;/.../a;..", "GET /raw/..a;..;/;/.../a;.. HTTP/1.1", None), ("http://other/raw/a", "GET /raw/a HTTP/1.1", None)]:
            seen, _ = self.through(request("GET", target))
            self.assertEqual((seen.line, seen.fields["host"]), (line, host or "127.0.0.1:%d" % self.peer.port))
        self.assertEqual(self.get("/raw/here").text, "a route of the site\n")

    def test_a_path_that_could_leave_the_prefix_is_refused(self):
        table(self, [(target, target) for target in [
            "/raw/../x", "/raw/..", "/raw/.", "/raw/a/%2e%2E/x", "/raw/.%2e", "/strip/./a", "/raw/..\\x", "/raw/a\\..\\x",
            "/raw/..%2fx", "/raw/a%2F..", "/raw/%5c..%5Cx", "/strip/%2e%2e%2f",
            "/raw/..;/x", "/raw/..;a=b", "/raw/%2e%2E;.a/x", "/raw/.;/x"]],
            lambda target: self.assertEqual(self.get(target).status, 400))

    def test_other_spellings_of_a_guarded_route(self):
        """The server may read them as that route: a slash, a dot or a blank at the end, other letters."""
        server = self.serve(app_site("""
app:get("/stats", function(req, res, next) return 401 end, function() return "stats" end)
app:get("/Admin/x", function(req, res, next) return 401 end, function() return "x" end)
app:proxy("/", "http://127.0.0.1:%d")""" % self.dead))
        for path, status in (("/stats", 401), ("/stats/", 400), ("/stats.", 400), ("/stats./", 400), ("/stats%20", 400), ("/Stats", 400),
                             ("/admin./x", 400), ("/admin%20/x", 400), ("/stats.x", 502), ("/other./", 502), ("/admin./", 502)):
            self.assertEqual(server.get(path).status, status, path)

    def test_methods_and_their_framing(self):
        for method, body, expected in [("POST", b"abc", "3"), ("PUT", b"", "0"), ("DELETE", None, None), ("PROPFIND", b"x", "1")]:
            seen, got = self.through(request(method, "/raw", body=body))
            self.assertEqual((seen.line, seen.fields.get("content-length"), got.text), (method + " /raw HTTP/1.1", expected, "ok"))
        seen, got = self.through(request("HEAD", "/raw"), b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")
        self.assertEqual((seen.line, got.status, got.header("content-length"), got.body), ("HEAD /raw HTTP/1.1", 200, "1234", b""))
        seen, got = self.through(b"GET /raw HTTP/1.0\r\nHost: h\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                                 + chunked([b"a", b"b"]))
        self.assertEqual((seen.fields["via"], got.text), ("1.0 luaserve", "ab"))

    def test_a_chunked_body_stays_chunked(self):
        conn = self.connect().send(b"POST /raw HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        with self.peer.accept() as upstream:
            self.assertEqual(upstream.request().fields["transfer-encoding"], "chunked")
            self.assertEqual(upstream.take(8), b"3\r\nabc\r\n")  # before the client has sent the rest
            conn.send(b"10\r\n0123456789abcdef\r\n0\r\nX: y\r\n\r\n")
            self.assertEqual(upstream.take(33), b"10\r\n0123456789abcdef\r\n0\r\nX: y\r\n\r\n")
            upstream.send(OK)
            self.assertEqual(conn.response().text, "ok")

    def test_trailers_are_passed_on(self):
        """RFC 9110 section 6.5; not those that frame or route a message."""
        trailers = b"0\r\nX-Sum:1\r\nContent-Length: 5\r\nHost: x\r\nX-Empty:\r\n\r\n"
        theirs = trailers[:-2] + b"X-User: root\r\nX_List: a\r\nUser_Agent: b\r\nX-Real-IP: c\r\nX_Forwarded_For: d\r\nMine: e\r\n\r\n"
        conn = self.connect().send(b"POST /hook HTTP/1.1\r\nHost: h\r\nConnection: mine\r\nTransfer-Encoding: chunked\r\n\r\n" + theirs)
        with self.peer.accept() as upstream:
            upstream.request()
            self.assertEqual(upstream.take(40), b"0\r\nX-Sum: 1\r\nX-Empty: \r\nX-User: root\r\n\r\n")
            upstream.send(OK)
            self.assertEqual(conn.response().text, "ok")
        conn = self.connect().send(b"POST /raw HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + trailers)
        with self.peer.accept() as upstream:
            upstream.request()
            self.assertEqual(upstream.take(26), b"0\r\nX-Sum: 1\r\nX-Empty: \r\n\r\n")
            upstream.send(OK)
            self.assertEqual(conn.response().text, "ok")
            for byte_by_byte in False, True:
                conn.send(request("GET", "/raw"))
                upstream.request()
                upstream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n")
                if byte_by_byte:
                    self.assertEqual((conn.head().status, conn.take(7)), (200, b"2\r\nok\r\n"))
                    for n in range(len(trailers)):
                        upstream.send(trailers[n:n + 1])
                    self.assertEqual(conn.take(26), b"0\r\nX-Sum: 1\r\nX-Empty: \r\n\r\n")
                else:
                    upstream.send(trailers)
                    self.assertEqual((conn.head().status, conn.take(33)), (200, b"2\r\nok\r\n0\r\nX-Sum: 1\r\nX-Empty: \r\n\r\n"))
            conn.send(b"GET /raw HTTP/1.0\r\nHost: h\r\n\r\n")
            upstream.request()
            upstream.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n" + trailers)
            self.assertEqual(conn.response().text, "ok")

    def test_a_location_of_the_server_is_one_of_the_site(self):
        """As by proxy_redirect of nginx: an absolute one below the URL of the server."""
        own = "http://127.0.0.1:%d" % self.peer.port
        for target, location, expected in (
                ("/raw/a", own + "/raw/new?x=1", "/raw/new?x=1"), ("/raw", own.upper(), "/"), ("/raw", own + "?a", "/?a"),
                ("/raw", own + "/", "/"), ("/raw", "/new", None), ("/raw", own + "0/new", None), ("/raw", own + "@evil/", None),
                ("/raw", "https://127.0.0.1:%d/new" % self.peer.port, None), ("/raw", own + "//evil/x", None),
                ("/raw", own + "/\\evil/x", None), ("/raw", own + "/" + "x" * 5000, "/" + "x" * 5000), ("/raw", "", None),
                ("/strip/a", own + "/base/new", "/strip/new"), ("/strip/a", own + "/base", "/strip"), ("/strip/a", own + "/new", None),
                ("/strip/a", own + "/based", None), ("/v/7/a?q", "http://named.example:81/b#c", "/v/7/b#c"), ("/v/7", own + "/b", None)):
            with self.subTest(target=target, location=location):
                _, got = self.through(request("GET", target), response(fields=["Location: " + location], status="302 Found"))
                self.assertEqual(got.header("location"), location if expected is None else expected)

    def test_a_decoded_body_does_not_claim_its_coding(self):
        encoded = gzip.compress(b"hello")
        for query, coding, body in ("", "gzip", encoded), ("?read=1", None, b"hello"):
            conn = self.connect().send(request("POST", "/decoded" + query, [("Content-Encoding", "gzip")], encoded))
            with self.peer.accept() as upstream:
                seen = upstream.request()
                self.assertEqual((seen.fields.get("content-encoding"), upstream.take(len(body))), (coding, body))
                upstream.send(OK)
                self.assertEqual(conn.response().text, "ok")

    def test_a_head_of_an_unknown_length(self):
        for target in "/raw", "/hook":
            _, got = self.through(request("HEAD", target), b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            self.assertEqual((got.status, got.header("content-length")), (200, None))

    def test_a_refusal_keeps_the_fields_of_middleware(self):
        """A hook that changes them before it replaces the response."""
        _, got = self.through(request("GET", "/swap"), response(b"theirs", ["X-Theirs: 1"] * 20))
        self.assertEqual((got.text, got.all("x-a"), got.all("x-b"), got.all("x-theirs")), ("ours\n", ["1"], ["2"], []))

    def test_100_continue_comes_from_the_server(self):
        conn = self.connect().send(b"POST /raw HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        with self.peer.accept() as upstream:
            self.assertEqual(upstream.request().fields["expect"], "100-continue")
            upstream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.assertEqual(conn.head().status, 100)
            conn.send(b"hi")
            self.assertEqual(upstream.take(2), b"hi")
            upstream.send(OK)
            self.assertEqual(conn.response().text, "ok")
        conn = self.connect().send(b"POST /raw HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        with self.peer.accept() as upstream:  # a refusal without the body
            upstream.request()
            upstream.send(response(b"no", status="417 No"))
            got = conn.response()
            self.assertEqual((got.status, got.interim, got.closes), (417, [], True))

    def test_early_hints_are_passed_on(self):
        _, got = self.through(request("GET", "/raw"), b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nX: y\r\n\r\n" + OK)
        self.assertEqual((got.interim, got.text), ([103], "ok"))

    def test_pipelined_requests_are_answered_in_order(self):
        conn = self.connect().send(request("GET", "/raw/1") + request("POST", "/raw/2", body=b"b") + request("GET", "/raw/here"))
        with self.peer.accept() as upstream:
            for body in b"", b"b":
                upstream.request()
                upstream.take(len(body))
                upstream.send(response(b"body " + body))
            self.assertEqual([conn.response().text for _ in range(3)], ["body ", "body b", "a route of the site\n"])

    def test_middleware_before_and_behind(self):
        seen, got = self.through(request("POST", "/middleware?read=1", body=b"abc"),
                                 response(b"ok", ["X-Frame-Options: ALLOW", "Set-Cookie: a=1", "Set-Cookie: b=2"]))
        self.assertEqual(seen.fields["content-length"], "3")
        self.assertEqual(got.all("X-Frame-Options"), ["DENY"])
        self.assertEqual(got.all("Set-Cookie"), ["own=1", "a=1", "b=2"])
        conn = self.connect().send(request("POST", "/middleware", body=b"abc"))
        with self.peer.accept() as upstream:
            upstream.request()
        got = conn.response()
        self.assertEqual((got.status, got.text), (502, "our own page\n"))

    def test_a_client_that_has_left_is_no_error_of_the_site(self):
        peer = Peer()
        self.addCleanup(peer.close)
        server = self.serve(LEFT.replace("@PEER@", str(peer.port)))
        for n, target in enumerate(("/hook", "/cache", "/handler"), 1):
            conn = self.connect(server=server).send(request("GET", "/first") + request("GET", target))
            self.eventually(lambda: server.get("/begun").text == str(n), "%s waits" % target)
            conn.reset()
            if target != "/handler":
                server.wait_log("info request .*GET %s: .*the client has left while the handler waited" % target)
        self.eventually(lambda: server.get("/ended").text == "1", "the handler has ended")
        server.stop()
        self.assertNotIn(" error ", server.log())

    def test_a_body_that_was_passed_on_is_not_an_empty_one_afterwards(self):
        conn = self.connect().send(request("POST", "/after?job=1", [("Content-Length", "10")]) + b"12345")
        with self.peer.accept() as upstream:
            upstream.request()
            self.assertEqual(upstream.take(5), b"12345")
            self.assertIn("another task is reading the request body", self.get("/read").text)
            conn.send(b"67890")
            self.assertEqual(upstream.take(5), b"67890")
            upstream.send(OK)
            self.assertEqual(conn.response().status, 200)
        passed_on = "the request body was already begun by req:chunks() or req:parts(), or passed on by app:proxy"
        self.eventually(lambda: re.match(r"false .*site.lua:\d+: " + re.escape(passed_on), self.get("/noted").text), "it raises")
        conn = self.connect().send(request("POST", "/raises", [("Content-Length", "5")]) + b"12345")
        with self.peer.accept() as upstream:
            upstream.request()
            upstream.send(OK)
            self.assertEqual(conn.response().status, 500)
        self.eventually(lambda: passed_on in self.get("/noted").text, "no other task reads it")
        with self.connect() as conn:
            self.assertEqual(conn.ask("POST", "/after/dead", body=b"hello").status, 502)
        self.eventually(lambda: self.get("/noted").text == "true hello", "it was not passed on")

    def test_a_body_that_was_read_before_is_sent(self):
        conn = self.connect().send(b"POST /middleware?read=1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                                   + chunked([b"abc", b"def"]))
        with self.peer.accept() as upstream:
            self.assertEqual(upstream.request().fields["content-length"], "6")
            self.assertEqual(upstream.take(6), b"abcdef")
            upstream.send(OK)
            self.assertEqual(conn.response().text, "ok")


class Bad(ProxyCase):
    def test_odd_responses(self):
        def check(case):
            number, expected = case
            with self.server.connect() as conn:
                conn.send(request("GET", "/odd/%d" % number))
                if expected in (CUT, EITHER):
                    try:
                        got = conn.response()
                    except Closed:
                        return
                    if expected == EITHER and got.status == 502:
                        return
                    raise AssertionError("a response that looks complete: %r" % got)
                got = conn.response()
                if isinstance(expected, bytes):
                    self.assertEqual((got.status, got.body), (200, expected))
                else:
                    self.assertEqual(got.status, expected)
                conn.send(request("GET", "/raw/here"))  # the connection of the client is sound
                self.assertEqual(conn.response().text, "a route of the site\n")
        table(self, [(name, (n, expected)) for n, (name, _, expected) in enumerate(ODD)], check, workers=8)
        self.assertEqual(self.server.logged("not enough memory|traceback"), [])

    def test_a_response_that_breaks_off_is_broken_off(self):
        for begin, rest in [(b"Content-Length: 10\r\n\r\nhello", b""), (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"zz\r\n"),
                            (b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", b"5\r\nhelloo\r\n0\r\n\r\n")]:
            conn = self.connect().send(request("GET", "/raw"))
            with self.peer.accept() as upstream:
                upstream.request()
                upstream.send(H + begin)
                self.assertEqual(conn.head().status, 200)
                conn.line(b"hello")
                upstream.send(rest)
                if not rest:
                    upstream.reset()
                self.assertNotIn(b"0\r\n\r\n", conn.rest())

    def test_no_server(self):
        got = self.get("/dead/x")
        self.assertEqual((got.status, got.text), (502, "Bad Gateway\n"))
        self.server.wait_log(r"warn app:proxy: GET /dead/x: http://127.0.0.1:\d+: connection refused")

    def test_a_silent_server(self):
        conn = self.connect().send(request("GET", "/slow"))
        with self.peer.accept() as upstream:
            upstream.request()
            self.assertEqual(conn.response().status, 504)
            upstream.ends()
        conn = self.connect().send(request("GET", "/slow"))
        with self.peer.accept() as upstream:
            upstream.request()
            upstream.send(H + b"Content-Length: 10\r\n\r\nhello")
            self.assertEqual(conn.head().status, 200)
            self.assertEqual(conn.rest(), b"hello")

    def test_a_timeout_on_a_kept_connection_is_no_reason_to_send_again(self):
        conn = self.connect().send(request("GET", "/slow"))
        with self.peer.accept() as upstream:
            upstream.request().send(response(b"fast"))
            self.assertEqual(conn.response().body, b"fast")
            conn.send(request("GET", "/slow"))
            upstream.request()  # and silence
            self.assertEqual(conn.response().status, 504)
            upstream.ends()
        conn.send(request("GET", "/slow?next"))
        with self.peer.accept() as upstream:
            self.assertEqual(upstream.request().line, "GET /slow?next HTTP/1.1")
            upstream.send(response(b"next"))
            self.assertEqual(conn.response().body, b"next")

    def test_a_body_that_is_too_long_or_invalid(self):
        seen, got = self.through(request("POST", "/small", body=b"12345"))
        self.assertEqual(got.status, 200)
        self.assertEqual(self.ask("POST", "/small", body=b"123456").status, 413)
        conn = self.connect().send(b"POST /small HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n6\r\n123456\r\n")
        with self.peer.accept() as upstream:
            upstream.ends()
        self.assertEqual(conn.response().status, 413)
        conn = self.connect().send(b"POST /raw HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        with self.peer.accept() as upstream:
            upstream.ends()
        self.assertEqual(conn.response().status, 400)

    def test_what_middleware_reads_has_the_limit_of_the_listener(self):
        """Each time: the second request of a path is answered without the search for its route."""
        for _ in range(2):
            with self.connect() as conn:
                conn.send(request("POST", "/decoded?read=1", [("Content-Length", "9000000")]))
                self.assertEqual(conn.response().status, 413)
            conn = self.connect().send(request("POST", "/decoded", [("Content-Length", "9000000")]))
            with self.peer.accept() as upstream:
                self.assertEqual(upstream.request().fields["content-length"], "9000000")
                upstream.send(OK)
                self.assertEqual(conn.response().status, 200)

    def test_a_server_that_answers_before_the_end_of_the_request(self):
        conn = self.connect().send(b"POST /raw HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\nabc")
        with self.peer.accept() as upstream:
            upstream.request()
            upstream.send(response(b"too long", status="413 Long"))
            got = conn.response()
            self.assertEqual((got.status, got.text), (413, "too long"))
            upstream.ends()  # it is not used for another request

    def test_a_client_that_leaves_ends_the_call(self):
        for leave in "close", "reset", "half_close":
            conn = self.connect().send(request("GET", "/raw"))
            with self.peer.accept() as upstream:
                upstream.request()
                getattr(conn, leave)()
                upstream.ends()
        conn = self.connect().send(b"POST /raw HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nabc")
        with self.peer.accept() as upstream:
            upstream.request()
            conn.close()
            upstream.ends()
        conn = self.connect().send(request("GET", "/raw"))
        with self.peer.accept() as upstream:
            upstream.request()
            upstream.send(H + b"Content-Length: 1000000\r\n\r\nhello")
            conn.head()
            conn.close()
            upstream.ends()


class Streams(ProxyCase):
    SIZE = 2000000 if WINE or SANITIZER else 50000000

    def test_large_bodies(self):
        data = b"0123456789" * (self.SIZE // 10)
        with self.server.connect(3) as conn:
            self.assertEqual(conn.ask("POST", "/len", body=data).text, str(len(data)))
            self.assertEqual(conn.ask("POST", "/len", [("Transfer-Encoding", "chunked")], chunked([data])).text, str(len(data)))
            self.assertEqual(len(conn.get("/bytes/%d" % self.SIZE).body), self.SIZE)

    def test_both_directions_at_a_time(self):
        data = b"0123456789" * (self.SIZE // 10)
        with self.server.connect(3) as conn, concurrent.futures.ThreadPoolExecutor(1) as pool:
            sent = pool.submit(conn.send, request("POST", "/echo", body=data))
            self.assertTrue(conn.response("POST").body == data)
            sent.result()

    def test_a_slow_reader_stops_the_server(self):
        conn = self.connect(rcvbuf=4096).send(request("GET", "/raw"))
        with self.peer.accept() as upstream:
            upstream.request()
            upstream.send(H + b"Content-Length: 1000000000\r\n\r\n")
            upstream.sock.setblocking(False)
            sent, stalls = 0, 0
            while stalls < 50 and sent < 200000000:
                try:
                    sent += upstream.sock.send(b"x" * 65536)
                    stalls = 0
                except BlockingIOError:
                    stalls += 1
                    self.server.get("/raw/here", index=0)  # meanwhile it has turns to receive
            self.assertLess(sent, 200000000)
            conn.close()

    def test_what_has_arrived_does_not_wait_for_more(self):
        head = H + b"Content-Length: 1000000\r\n\r\n"
        for first in 4095, 4096, 4097, 4096 + 65536, 4096 + 2 * 65536:  # blocks of 4 KiB and 64 KiB that are full, or not
            conn = self.connect().send(request("GET", "/raw"))
            with self.peer.accept() as upstream:
                upstream.request()
                upstream.send(head + b"x" * (first - len(head)))
                conn.head()
                self.assertEqual(len(conn.take(first - len(head))), first - len(head))
                conn.close()
                upstream.ends()

    def test_websockets(self):
        with WebSocket(self.server.at(3), "/ws") as ws:
            for message in "hello", "x" * 100000, "":
                ws.send(message)
                self.assertEqual(ws.receive(), message)
            ws.close()

    def test_many_upgrades(self):
        """The response 101 may be there before the packet that tells that the request was sent."""
        def one(_):
            with WebSocket(self.server.at(3), "/ws") as ws:
                ws.send("hello")
                self.assertEqual(ws.receive(), "hello")
                ws.close()

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(len(list(pool.map(one, range(1500)))), 1500)

    def test_another_protocol_and_half_closes(self):
        conn = self.connect().send(request("GET", "/raw", [("Connection", "Upgrade"), ("Upgrade", "chat/1, chat/2")]) + b"early")
        with self.peer.accept() as upstream:
            upstream.request()
            self.assertEqual((upstream.fields["connection"], upstream.fields["upgrade"]), ("Upgrade", "chat/1, chat/2"))
            upstream.send(b"HTTP/1.1 101 Fine\r\nConnection: Upgrade\r\nUpgrade: chat/2\r\nX: y\r\n\r\nhello")
            got = conn.head()
            self.assertEqual((got.status, got.header("upgrade"), got.header("x")), (101, "chat/2", "y"))
            self.assertEqual(conn.take(5), b"hello")
            self.assertEqual(upstream.take(5), b"early")
            conn.send(b"last")
            conn.half_close()
            self.assertEqual(upstream.take(4), b"last")
            self.assertEqual(upstream.sock.recv(1), b"")
            upstream.send(b"bye")
            self.assertEqual(conn.take(3), b"bye")
        conn.expect_end()

    def test_the_end_of_one_side_gives_the_other_one_a_limit(self):
        pairs = []
        for _ in range(2):
            conn = self.connect().send(request("GET", "/tunnel", [("Connection", "Upgrade"), ("Upgrade", "chat")]))
            pairs.append((conn, self.peer.accept().request()))
            pairs[-1][1].send(b"HTTP/1.1 101 Fine\r\nConnection: Upgrade\r\nUpgrade: chat\r\n\r\n")
            conn.head()
        (ended, silent), (quiet, ending) = pairs
        ended.half_close()
        ending.sock.shutdown(socket.SHUT_WR)
        for conn in silent, quiet:
            self.assertEqual(conn.sock.recv(1), b"", "the end is passed on")
        ended.expect_end()
        ending.ends()

    def test_upgrades_that_are_refused(self):
        upgrade = [("Connection", "Upgrade"), ("Upgrade", "chat")]
        _, got = self.through(request("GET", "/raw", upgrade), response(b"no", status="426 No"))
        self.assertEqual((got.status, got.text), (426, "no"))
        for fields in b"Upgrade: other\r\n", b"":
            _, got = self.through(request("GET", "/raw", upgrade), b"HTTP/1.1 101 S\r\nConnection: Upgrade\r\n" + fields + b"\r\n")
            self.assertEqual(got.status, 502)

    def test_events_arrive_one_by_one(self):
        with self.server.connect(3) as conn:
            conn.send(request("GET", "/events"))
            self.assertEqual(conn.head().header("content-type"), "text/event-stream")
            conn.line(b"data: first\n\n")
            self.assertEqual(self.get("/go", index=2).status, 204)
            conn.line(b"data: second\n\n")
            conn.line(b"0\r\n\r\n")

    def test_injected_requests_are_not_upgraded(self):
        server = self.serve("""
            local ls = require "luaserve"
            local app = ls.app()
            app:proxy("/", "http://127.0.0.1:%d")
            local outer = ls.app()
            outer:post("/", function(req)
              local got = app:inject { method = "POST", path = "/in", body = "abc", headers = { Host = "h" } }
              return got.status, got.body
            end)
            ls.listen { host = "127.0.0.1", port = 0, handler = outer }""" % self.peer.port)
        conn = self.connect(server=server).send(request("POST", "/", body=b""))
        with self.peer.accept() as upstream:
            self.assertEqual(upstream.request().line, "POST /in HTTP/1.1")
            self.assertEqual(upstream.take(3), b"abc")
            upstream.send(OK)
            self.assertEqual(conn.response().text, "ok")


class Hooks(ProxyCase):
    def test_a_request_is_changed(self):
        seen, _ = self.through(request("GET", "/hook?path=/other%3Fa=1", [("User-Agent", "me"), ("x-list", "theirs"), ("X_List", "theirs"), ("User_Agent", "x")]))
        self.assertEqual(seen.line, "GET /other?a=1 HTTP/1.1")
        self.assertFalse({"user-agent", "user_agent"} & set(seen.fields))
        self.assertEqual([line for line in seen.lines if line.lower().replace("_", "-").startswith("x-list")], ["X-List: a", "X-List: 2"])
        self.assertEqual(seen.fields["x-url"], "http://127.0.0.1:%d" % self.peer.port)

    def test_a_request_is_answered(self):
        got = self.get("/hook?stop=1")
        self.assertEqual((got.status, got.text), (403, "stopped\n"))
        for name in "Content-Length", "Connection", "Host", "a%20b":
            got = self.get("/hook?bad=" + name)
            self.assertEqual(got.status, 500)
            self.assertRegex(got.text, "upstream.headers: ")
        self.assertEqual(self.get("/hook?own=X-User").status, 500)
        self.server.wait_log('the fields of a request and a response are read-only: "X-User"')

    def test_a_change_of_the_request_that_the_server_would_not_get(self):
        """Dev mode says what to write instead; nothing of what was only read."""
        server = self.serve(r"""
            local ls = require "luaserve"
            local app = ls.app()
            app:use(function(req, _, next)
              local _ = req.headers.accept, req.cookies.a, req.query.a, req.query_all.a, req.headers["x-twice"]
              load(req:header("X-Run") or "", "=run", "t", { req = req })()
              next()
            end)
            app:proxy("/", "http://127.0.0.1:%d")
            ls.listen { host = "127.0.0.1", port = 0, handler = app }""" % self.peer.port, program=(LUASERVE, "dev"))

        def passes(fields):
            conn = self.connect(server=server).send(request("GET", "/?a=1&a=3&%41=%42", [("Accept", "a/b"), ("X-Twice", "1"), ("Cookie", "a=1; a=2"),
                                                                                         ("X-TWICE", "2")] + fields))
            with self.peer.accept() as upstream:
                upstream.request()
                upstream.send(OK)
                self.assertEqual(conn.response().text, "ok")
        passes([("X-Run", "req.user, req.headers.accept = 1, 'a/b'")])
        self.assertEqual(server.warnings(), [])
        for line, instead in (("req.headers.accept = 'x'", 'req.headers["accept"] has changed, and the server of app:proxy gets what the client has sent: set upstream.headers[name]'),
                              ("req.headers.accept = nil", 'req.headers["accept"] has changed'),
                              ("req.cookies.a = 2", 'req.cookies["a"] has changed'),
                              ("req.query.b = 2", 'req.query["b"] has changed'),
                              ("req.query.a = 2", 'req.query["a"] has changed')):
            with self.subTest(line):
                passes([("X-Run", line)])
                server.wait_log(re.escape(instead) + ".* in the hook request of app:proxy")

    def test_a_failure_of_a_hook_is_the_answer(self):
        for target, message in {"/fails?at=request": "not today", "/cached/fails": "not today"}.items():
            got = self.get(target)
            self.assertEqual((got.status, message in got.text), (500, True), got.text)
        _, got = self.through(request("GET", "/fails"))
        self.assertEqual((got.status, "not this answer" in got.text), (500, True), got.text)

    def test_a_field_without_a_value_is_removed(self):
        """What a hook has named is never that of the client: it would say who it is."""
        names = "X-User", "X_User", "x-role", "X-Group", "X-Other"
        seen, _ = self.through(request("GET", "/guest", [(name, "admin") for name in names]))
        self.assertEqual({line.lower() for line in seen.lines if line.lower().startswith("x") and not line.lower().startswith("x-f")},
                         {"x-other: admin", "x-read: nil admin"})

    def test_a_hook_reads_what_the_server_will_get(self):
        for target, line, read in (
                ("/reads/a?b=1", "/base/a?b=1", "/base/a?b=1 /base/a?b=1"), ("/reads", "/base", "/base /base"),
                ("/reads/a?to=/c", "/c?to=/c", "/base/a?to=/c /c?to=/c"), ("/reads/a?to=/c%3f", "/c", "/base/a?to=/c%3f /c"),
                ("/reads/a?to=/c%3fd", "/c?d", "/base/a?to=/c%3fd /c?d")):
            seen, _ = self.through(request("GET", target, [("X-Other", "theirs"), ("X-Forwarded-For", "8.8.8.8")]))
            self.assertEqual(seen.line, "GET %s HTTP/1.1" % line)
            self.assertEqual(seen.fields["x-read"], read + " ada nil X-User=ada,x-other=theirs")
            self.assertEqual(seen.fields["x-user"], "ada")
        got = self.get("/reads/a", [("X-User", "eve")])
        self.assertEqual((got.status, got.text), (400, "X-User is ours\n"))

    def test_what_a_hook_cannot_change_raises(self):
        for query, message in {
                "set=header": "upstream has no field \"header\"; did you mean 'headers'?",
                "set=headers": "upstream.headers cannot be replaced: write upstream.headers[name] = value for each field",
                "set=url": "upstream.url is to read only", "get=heders": "upstream has no field \"heders\"; did you mean 'headers'?"}.items():
            got = self.get("/wrong?" + query)
            self.assertEqual((got.status, message in got.text), (500, True), got.text)
        _, got = self.through(request("GET", "/wrong"))
        self.assertEqual((got.status, "the request was sent" in got.text), (500, True), got.text)

    def test_a_response_is_changed(self):
        _, got = self.through(request("GET", "/hook"), response(b"x" * 100000, ["Server: a", "X-Y: z"], "404 No"))
        self.assertEqual((got.status, got.header("server"), got.header("x-y"), len(got.body)), (410, "luaserve", "z", 100000))
        self.assertEqual(got.header("x-from"), "http://127.0.0.1:%d" % self.peer.port)

    def test_a_response_is_replaced(self):
        _, got = self.through(request("GET", "/hook"), response(b"x", ["X-Secret: 1", "Content-Encoding: gzip", "ETag: 1"]))
        self.assertEqual((got.status, got.text), (418, "no secrets\n"))
        self.assertEqual({name for name, _ in got.headers}, {"Content-Length", "Content-Type", "Date", "Server"})


    def test_a_response_that_the_hook_describes_is_the_answer(self):
        """Without return as well: what the server has sent may be a secret."""
        for how, status, text in (("redirect", 302, "Found\n"), ("send", 200, "redacted"), ("json", 200, '{"a":1}'),
                                  ("returned", 200, "page"), ("not", 200, "secret")):
            _, got = self.through(request("GET", "/described/x"), response(b"secret", ["X-How: " + how, "X-Secret: 1"]))
            self.assertEqual((how, got.status, got.text, got.header("x-secret")), (how, status, text, None))
            self.assertEqual(got.header("x-how"), how if how == "not" else None)


class Balance(ProxyCase):
    def test_another_server_answers_when_one_is_down(self):
        for n in range(4):
            conn = self.connect().send(request("POST", "/two/%d" % n, body=b"x"))
            with self.peer.accept() as upstream:
                self.assertEqual(upstream.request().line, "POST /%d HTTP/1.1" % n)
                upstream.send(OK)
                self.assertEqual(conn.response().text, "ok")

    def test_two_checks_of_a_server_have_two_results(self):
        port = free_port()
        server = self.serve("""
            local ls = require "luaserve"
            local app, checked = ls.app(), ls.app()
            checked:get("/bad", function() return 500 end)
            checked:get("/*path", function() return "served\\n" end)
            for _, name in ipairs { "good", "bad" } do
              app:proxy("/by/" .. name, "http://127.0.0.1:@", { health = { path = "/" .. name, interval = 0.02, fails = 1 } })
            end
            ls.listen { host = "127.0.0.1", port = 0, handler = app }
            ls.listen { host = "127.0.0.1", port = @, handler = checked }""".replace("@", str(port)))
        server.wait_log("warn app:proxy: the server .* is down")
        self.assertEqual([server.get("/by/" + name).status for name in ("bad", "good")], [503, 200])

    def test_checks_find_a_server_that_is_down_and_up_again(self):
        port = free_port()
        backend = """
            local ls = require "luaserve"
            local app = ls.app()
            app:get("/up", function() return "up" end)
            app:get("/x", function() return "x" end)
            ls.listen { host = "127.0.0.1", port = %d, handler = app }""" % port
        server = self.serve(app_site("""
            app:proxy("/", "http://127.0.0.1:%d", { health = { path = "/up", interval = 0.05, fails = 2, passes = 2 } })
""") % port)
        server.wait_log("warn app:proxy: the server http://127.0.0.1:%d is down" % port)
        for _ in range(3):
            got = server.get("/x")
            self.assertEqual((got.status, got.header("retry-after")), (503, "1"))
        up = self.serve(backend)
        server.wait_log("info app:proxy: the server http://127.0.0.1:%d is up" % port)
        self.assertEqual(server.get("/x").text, "x")
        up.stop()

        def counts():
            return [int(re.search(r"[0-9]+$", line)[0]) for line in server.logged(
                "warn app:proxy: no server is usable: the checks of http://127.0.0.1:%d fail; requests answered with 503: " % port)]
        self.eventually(lambda: sum(counts()) == 3, "all of them are in the log, by a check at the latest")
        self.assertEqual(counts()[:1], [1])

    def test_servers_that_requests_have_taken_out(self):
        """With all out, each request still tries one, and finds it as soon as it is back. A line is there once, not for each
        state."""
        ports = [free_port(), free_port()]
        server = self.serve(app_site("""
            ls.config { threads = 2, states = 4 }
            app:proxy("/", { "http://127.0.0.1:%d", "http://127.0.0.1:%d" }, { health = { fails = 3, down = 86400 } })
""") % tuple(ports))
        for _ in range(20):  # each on a connection of its own, so of several states
            self.assertEqual(server.get("/x").status, 502)
        ups = [self.serve("""
            local ls = require "luaserve"
            local app = ls.app()
            app:get("/x", function() return "x" end)
            ls.listen { host = "127.0.0.1", port = %d, handler = app }""" % port) for port in ports]
        self.assertEqual([server.get("/x").text for _ in range(20)], ["x"] * 20)
        for one in (server, *ups):
            one.stop()
        for port in ports:
            line = "warn app:proxy: http://127.0.0.1:%d is avoided for 86400 s: 3 failures in a row$" % port
            self.assertEqual(len(server.logged(line)), 1)
        self.assertEqual(server.logged("is used again"), [])

    def test_no_request_fails_when_one_of_three_servers_is_killed(self):
        """While all clients wait for that one, after it has answered 300 requests."""
        clients, count = 32, repeats(20000)
        source = app_site("""
            local waiting = ls.dict("waiting")
            app:get("/", function()
              local number = waiting:incr("n") - %d
              if number > 0 then
                ls.log.info("waiting " .. number)
                ls.sleep(%d)
              end
              return "hello"
            end)
""")
        doomed, *others = [self.serve(source % (answers, WAIT)) for answers in (300, count, count)]
        front = self.serve(app_site("""
            app:proxy("/", { %s })
""") % ", ".join('"http://127.0.0.1:%d"' % server.port() for server in (doomed, *others)))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            load = pool.submit(stress, "-c", str(clients), "-n", str(count), "--timeout", "%ds" % WAIT, "--expect-status", "200",
                               "--expect-length", "5", "http://127.0.0.1:%d/" % front.port())
            doomed.wait_log("waiting %d$" % clients)
            doomed.kill()
            ran = load.result()
        self.assertEqual((ran.status, ran.errors, ran.totals["requests"]), (0, {}, count), front.log()[-2000:])
        self.assertGreaterEqual(len(front.logged("it is sent again")), clients)
        for server in (front, *others):
            server.stop()

    def test_servers_over_tls_and_unix_sockets(self):
        port, path = free_port(), "/up" if WINDOWS else temporary_folder() + "/up"
        other = "" if WINDOWS else 'ls.listen { path = "%s", handler = site }' % path
        server = self.serve("""
            local ls = require "luaserve"
            local app, site = ls.app(), ls.app()
            site:any("/*path", function(req) return req.path .. " " .. tostring(req.secure) .. " " .. req.body(req) end)
            app:proxy("/tls", "https://127.0.0.1:%d", { tls = { insecure = true } })
            app:proxy("/checked", "https://127.0.0.1:%d")
            app:proxy("/unix", "unix:%s")
            ls.listen { host = "127.0.0.1", port = 0, handler = app }
            ls.listen { host = "127.0.0.1", port = %d, handler = site, tls = "self-signed" }
            %s""" % (port, port, path, port, other), listeners=2 if WINDOWS else 3)
        with server.connect() as conn:
            for n in range(3):  # the second one on a kept connection
                self.assertEqual(conn.ask("POST", "/tls/%d" % n, body=b"x" * 50000).text, "/tls/%d true %s" % (n, "x" * 50000))
            if not WINDOWS:
                self.assertEqual(conn.get("/unix/a").text, "/unix/a false ")
            self.assertEqual(conn.get("/checked").status, 502)
        server.wait_log("warn app:proxy: GET /checked: https://127.0.0.1:[0-9]+: TLS")

    def test_usage(self):
        def refuse(case):
            call, message = case
            self.refuses('local ls = require "luaserve"\nls.app():proxy(%s)' % call, message)
        table(self, [(call, (call, message)) for call, message in [
            ('"/a", { "http://a", weight = 5 }', 'got a table with the field "weight": options of a server stand in its table'), ('"/a"', "app:proxy needs a server"),
            ('"/a", { "http://a", nil, "http://c" }', '"servers" must be a value or a list of values; got a table without a value at 2; a name in the list is misspelt'),
            ('"/a", { nil, "http://c" }', "without a value at 1"), ('"/a", {}', "app:proxy needs a server"),
            ('"/a", "ftp://x"', 'invalid URL "ftp://x"'), ('"/a", "http://x/?a"', "has no query"),
            ('"/a", 5', "server.url must be a URL"), ('"/*a", "http://x"', "must not contain"),
            ('"/a", "http://x", { health = { path = "up" } }', "health.path must be"),
            ('"/a", "http://x", { host = "a b" }', "host must be"),
            ('"/a", "http://x", { tls = { insecure = true } }', "the option tls is for https://"),
            ('"/a", { "http://" .. ("a"):rep(93), "http://" .. ("a"):rep(94) }', "has at most 100 bytes"),
        ]], refuse)


class Ends(ProxyCase):
    def test_the_timeout_of_the_listener_is_none_of_the_proxy(self):
        """The first request has waited for its connection before: its limit had begun."""
        server = self.serve(app_site("""
            ls.config { timeout = 0.25 }
            app:get("/sleep", function() ls.sleep(100) end)
            app:proxy("/", "http://127.0.0.1:%d", { timeout = 60 })
""") % self.peer.port)
        slow = self.connect(server=server).send(request("GET", "/"))
        cut = self.connect(server=server).send(request("GET", "/"))
        upstreams = [self.peer.accept().request() for _ in range(2)]
        upstreams[1].send(H + b"Content-Length: 10\r\n\r\nhello")
        self.assertEqual([server.get("/sleep").status for _ in range(3)], [503] * 3)
        for upstream, rest in zip(upstreams, (H + b"Content-Length: 10\r\n\r\nhelloworld", b"world")):
            upstream.send(rest)
        for conn in slow, cut:
            self.assertEqual(conn.head().status, 200)
            self.assertEqual(conn.take(10), b"helloworld")

    def test_a_stop_waits_for_a_response_and_a_reload_keeps_it(self):
        server = self.serve(app_site("""
            ls.config { drain_timeout = 10 }
            app:proxy("/", "http://127.0.0.1:%d")
""") % self.peer.port)
        conn = self.connect(server=server).send(request("GET", "/"))
        with self.peer.accept() as upstream:
            upstream.request()
            if not WINDOWS:
                server.reload()
            upstream.send(H + b"Content-Length: 10\r\n\r\nhello")
            conn.head()
            server.signal()
            server.wait_log("draining")
            upstream.send(b"world")
            self.assertEqual(conn.take(10), b"helloworld")
        self.assertEqual(server.wait(), 0)

    def test_a_stop_ends_what_takes_too_long(self):
        server = self.serve(app_site("""
            ls.config { drain_timeout = 0.05 }
            app:proxy("/", "http://127.0.0.1:%d", { timeout = false })
""") % self.peer.port)
        waits = self.connect(server=server).send(request("GET", "/"))
        begun = self.connect(server=server).send(request("GET", "/"))
        tunnel = self.connect(server=server).send(request("GET", "/", [("Connection", "Upgrade"), ("Upgrade", "a")]))
        upstreams = [self.peer.accept().request() for _ in range(3)]
        for upstream in upstreams:
            if "upgrade" in upstream.fields:
                upstream.send(b"HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: a\r\n\r\n")
        self.assertEqual(tunnel.head().status, 101)
        server.signal()
        for upstream in upstreams:
            upstream.ends()
            upstream.sock.close()
        for conn in waits, begun, tunnel:
            conn.try_send(b"")
        self.assertIn(server.wait(), (0, 1))
