"""res:upgrade: protocols of a site's own after 101, and CONNECT tunnels."""
import socket

from harness import E2E, WAIT, app_site, beside, free_port, request
from harness import tls
from harness.websocket import WebSocket

SITE = r"""
local ls = require "luaserve"
ls.config { threads = 2, max_connections = @MAX@, drain_timeout = 5 }
local app = ls.app()
app:get("/", function() return "root" end)
app:get("/stats", function() return ls.stats() end)
app:use(function(req, res, next)
  res:header("X-Middleware", "yes")
  return next()
end)
ls.on("log", function(req, res, info)
  ls.log.info(("logged %s %s %d %d"):format(req.method, req.target, info.status, info.bytes))
end)

local function echo(sock)
  for data in sock:chunks() do
    if not sock:send(data) then break end
  end
end

app:get("/echo", function(req, res)
  local sock, message, code = res:upgrade("echo/1")
  if not sock then return 426, message .. "|" .. code .. "\n", { Upgrade = { "echo/1", "echo/2" } } end
  echo(sock)
end)
app:get("/advertises", function(req, res)
  local way = req.query.way
  if way == "result" then return "text", { upgrade = "a" } end
  res:header("Upgrade", "a"):header("X-Own", "1")
  if way == "fail" then error("on purpose") end
  if way == "upgrade" then return echo(assert(res:upgrade("echo/1"))) end
  return "text"
end)
app:get("/lines/:name", function(req, res)
  local sock = assert(res:upgrade("echo/1"))
  for line in sock:lines() do
    if line == "name" then sock:send(req.params.name, " ", req.headers["x-mine"] or "", " ", req.path, "\n")
    elseif line == "tls" then sock:send(tostring(req.tls and req.tls.version), " ", tostring(sock.tls and sock.tls.version), "\n")
    elseif line == "addresses" then sock:send(tostring(req.remote == sock.remote), " ", tostring(req.local_addr == sock.local_addr), "\n")
    elseif line == "res" then
      local messages = {}
      for _, call in ipairs {
        function() res:write("x") end, function() res:send("x") end, function() res:status(200) end, function() res:flush() end,
        function() res:header("A", "b") end, function() res:abort() end, function() res:upgrade("echo/1") end,
      } do
        local ok, err = pcall(call)
        messages[#messages + 1] = ok and "no error" or err:match("the connection was taken over; .*$") or err
      end
      sock:send(table.concat(messages, "|"), "\n")
    elseif line == "sent" then sock:send(tostring(res.sent), " ", tostring(res:status()), " ", tostring(req:body()), "\n")
    elseif line == "error" then error("the handler fails")
    elseif line == "return" then return "a result"
    elseif line == "big" then sock:send(("x"):rep(1024):rep(1024), "\n")
    elseif line == "abort" then sock:abort()
    else sock:send(line, "\n") end
  end
end)
app:get("/late", function(req, res)
  ls.log.info("waits")
  ls.sleep(0.05)
  local sock, message, code = res:upgrade("echo/1")
  ls.log.info("late " .. tostring(code))
  if sock then echo(sock) end
end)
app:get("/job", function(req, res)
  local sock = assert(res:upgrade("echo/1"))
  ls.spawn(function()
    for line in sock:lines() do sock:send("job ", line, "\n") end
    ls.log.info("job ends")
  end)
  assert(sock.remote)
  ls.sleep(tonumber(req.query.s))
end)
app:post("/body", function(req, res)
  local sock, message = res:upgrade("echo/1")
  local body = req:body()
  if not sock then
    sock = assert(res:upgrade("echo/1"))
    sock:send(message, "\n")
  end
  sock:send("body ", body, "\n")
  echo(sock)
end)
app:get("/errors", function(req, res)
  local messages = {}
  for _, protocol in ipairs { "", "a b", "a/", "/1", "a/b/c", "a,b", "x\r\ny: z" } do
    local ok, err = pcall(res.upgrade, res, protocol)
    messages[#messages + 1] = tostring(ok) .. " " .. tostring(err):gsub("^.-: ", "")
  end
  local ok, err = pcall(res.upgrade, res)
  messages[#messages + 1] = tostring(err)
  res:write("begun ")
  ok, err = pcall(res.upgrade, res, "echo/1")
  messages[#messages + 1] = tostring(err)
  res:write(table.concat(messages, "\n"))
end)

-- A proxy for tunnels to ports of this machine.
app:route("CONNECT", "*", function(req, res)
  if req.headers["x-status"] then
    res:status(tonumber(req.headers["x-status"]))
    local ok, err = pcall(res.upgrade, res)
    return 200, tostring(err)
  end
  local port = tonumber(req.target:match("^127%.0%.0%.1:(%d+)$"))
  if not port then return 403, "only ports of this machine\n" end
  local to <close>, message = ls.connect("127.0.0.1", port, { read_timeout = false })
  if not to then return 502, message .. "\n" end
  local client = assert(res:upgrade())
  local function pump(from, into)
    for data in from:chunks() do if not into:send(data) then break end end
    if from.ended ~= "ECLOSED" or not into:shutdown("send") then from:close() into:close() end
  end
  local back = ls.spawn(pump, to, client)
  pump(client, to)
  back:wait()
end)
app:get("/inject", function()
  local answer = assert(app:inject { path = "/echo", headers = { Connection = "upgrade", Upgrade = "echo/1" } })
  return answer.status .. " " .. answer.body
end)
@LISTEN@
"""

PLAIN = 'ls.listen { host = "127.0.0.1", port = 0, handler = app }'
ASK = {"Connection": "Upgrade", "Upgrade": "echo/1"}


def site(listen=PLAIN, limit=1000):
    return SITE.replace("@LISTEN@", listen).replace("@MAX@", str(limit))


def up(path, more=b"", fields=()):
    return request("GET", path, {**ASK, **dict(fields)}) + more


class Upgrade(E2E):
    SITE = site()
    FLAGS = ("--log-level", "info")

    def upgraded(self, path="/echo", more=b"", fields=(), server=None):
        conn = self.connect(server=server)
        conn.send(up(path, more, fields))
        self.switched(conn)
        return conn

    def switched(self, conn):
        head = conn.head()
        self.assertEqual((head.status, head.reason), (101, "Switching Protocols"))
        self.assertEqual(head.header("Connection"), "upgrade")
        self.assertEqual(head.header("Upgrade"), "echo/1")
        self.assertEqual(head.header("X-Middleware"), "yes")
        self.assertIsNotNone(head.header("Date"))
        self.assertEqual(head.all("Content-Length") + head.all("Transfer-Encoding") + head.all("Content-Type"), [])
        return head

    def test_an_echo(self):
        conn = self.upgraded(more=b"right behind the head")
        self.assertEqual(conn.take(21), b"right behind the head")
        for n in (1, 100, 70000, 1 << 20):
            data = bytes(n)
            with beside(lambda: conn.send(data)):
                self.assertEqual(conn.take(n), data)
        conn.half_close()
        conn.expect_end()

    def test_the_offer_of_the_client(self):
        for fields in ({"Connection": "upgrade", "Upgrade": "h2c, echo/1"}, {"Connection": "keep-alive, Upgrade", "Upgrade": "ECHO/1"}):
            conn = self.connect()
            conn.send(request("GET", "/echo", fields))
            head = conn.head()
            self.assertEqual((head.status, head.header("Upgrade")), (101, "echo/1"), fields)
        for fields in ({}, {"Upgrade": "echo/1"}, {"Connection": "upgrade"}, {"Connection": "upgrade", "Upgrade": "echo"},
                       {"Connection": "upgrade", "Upgrade": "echo/11, xecho/1"}):
            with self.server.connect() as conn:
                for _ in range(2):  # the connection goes on
                    answer = conn.get("/echo", fields)
                    self.assertEqual((answer.all("Upgrade"), answer.all("Connection")), (["echo/1", "echo/2"], ["upgrade"]))
                    self.assertEqual((answer.status, answer.body),
                                     (426, b"the client did not ask for the protocol 'echo/1'|EINVAL\n"), fields)
        conn = self.connect()
        conn.send(request("GET", "/echo", ASK, version="HTTP/1.0"))
        answer = conn.response()
        self.assertEqual((answer.status, answer.all("Connection")), (426, ["close", "upgrade"]))
        for way in "header", "result":  # RFC 9110, section 7.8: any response may advertise protocols
            answer = self.get("/advertises?way=" + way)
            self.assertEqual((answer.status, answer.all("Upgrade"), answer.all("Connection")), (200, ["a"], ["upgrade"]))
        answer = self.get("/advertises?way=fail")
        self.assertEqual((answer.status, answer.all("Upgrade"), answer.all("Connection")), (500, ["a"], ["upgrade"]))

    def test_the_101_names_one_protocol(self):
        conn = self.connect()
        conn.send(request("GET", "/advertises?way=upgrade", ASK))
        head = conn.head()
        self.assertEqual((head.status, head.all("Upgrade"), head.all("Connection"), head.all("X-Own")),
                         (101, ["echo/1"], ["upgrade"], ["1"]))

    def test_errors(self):
        lines = self.get("/errors", ASK).text.split("\n")
        for line in lines[:7]:
            self.assertRegex(line, "invalid protocol '|begun")
        self.assertIn('res:upgrade: the protocol is missing, as in res:upgrade("chat/1"); only CONNECT has none', "\n".join(lines))
        self.assertRegex(lines[-1], "the head of the response was sent already: ")

    def test_the_request_and_the_response_afterwards(self):
        conn = self.upgraded("/lines/ada?a=b", fields={"X-Mine": "field"})
        conn.send(b"name\naddresses\nres\nsent\ntls\n")
        self.assertEqual(conn.line(), b"ada field /lines/ada")
        self.assertEqual(conn.line(), b"true true")
        self.assertEqual(conn.line(), b"|".join([b"the connection was taken over; use the sock of res:upgrade"] * 7))
        self.assertEqual(conn.line(), b"true 101 ")
        self.assertEqual(conn.line(), b"nil nil")
        conn.send(b"big\nlast\n")
        self.assertEqual(len(conn.line()), 1 << 20)
        self.assertEqual(conn.line(), b"last")

    def test_the_log_hook(self):
        since = self.server.mark()
        conn = self.upgraded("/lines/logged", more=b"x\n")
        self.assertEqual(conn.line(), b"x")
        self.assertFalse(self.server.logged("logged GET /lines/logged", since))
        conn.close()
        self.server.wait_log(r"logged GET /lines/logged 101 0", since)

    def test_the_end_of_the_handler(self):
        for what, log in (("error", "the handler fails"), ("return", "the handler returned a string, but res has already sent")):
            since = self.server.mark()
            conn = self.upgraded("/lines/x", more=b"before\n%s\n" % what.encode())
            self.assertEqual(conn.line(), b"before")
            conn.expect_end()
            self.server.wait_log(log, since)
            self.server.wait_log(r"logged GET /lines/x 101 0", since)
        conn = self.upgraded("/lines/x")
        conn.send(b"abort\n")
        conn.expect_end(reset_ok=True)

    def test_a_job_uses_the_sock(self):
        since = self.server.mark()
        conn = self.upgraded("/job?s=0.3", more=b"one\n")
        self.assertEqual(conn.line(), b"job one")
        conn.expect_end()  # the handler has ended
        self.server.wait_log("job ends", since)

    def test_the_client_goes_while_the_handler_waits(self):
        since = self.server.mark()
        conn = self.connect()
        conn.send(up("/late"))
        self.server.wait_log("waits", since)
        conn.reset()
        self.server.wait_log("late (ERESET|nil)", since)

    def test_clients_that_go(self):
        held = self.quiet_fds()
        for n in range(20):
            conn = self.upgraded("/lines/x", more=b"x\n")
            self.assertEqual(conn.line(), b"x")
            (conn.reset if n % 2 else conn.close)()
        self.eventually(lambda: self.server.fds() <= held, "every descriptor is closed")
        self.assertEqual(self.quiet_fds(), held)

    def test_inject(self):
        self.assertEqual(self.get("/inject").body, b"426 app:inject has no connection to hand over|ENOTSUP\n")

    def test_over_tls(self):
        server = self.serve(site('ls.listen { host = "127.0.0.1", port = 0, handler = app, tls = "self-signed" }'))
        with tls.client(server.port()) as conn:
            conn.sendall(request("GET", "/") + up("/lines/x", b"tls\n"))
            got = b""
            while not got.endswith(b"TLSv1.3 TLSv1.3\n"):
                part = conn.recv(65536)
                self.assertTrue(part, got)
                got += part
            self.assertIn(b"root", got)
            self.assertIn(b"HTTP/1.1 101 Switching Protocols\r\n", got)
            data = bytes(300000)
            conn.sendall(data + b"\nend\n")  # the server answers a whole line: no thread, Python's ssl takes one at a time
            got = b""
            while not got.endswith(b"end\n"):
                part = conn.recv(65536)
                if not part:
                    break
                got += part

    def test_a_stop_while_connections_are_open(self):
        server = self.serve(site())
        idle = self.upgraded("/lines/x", more=b"a\n", server=server)
        self.assertEqual(idle.line(), b"a")
        server.signal()
        idle.expect_end()  # the loop over the lines has ended
        self.assertEqual(server.wait(), 0, server.log())

    def test_a_reload_leaves_it_alone(self):
        server = self.serve(site(), flags=("--log-level", "info"))
        conn = self.upgraded("/lines/x", more=b"a\n", server=server)
        self.assertEqual(conn.line(), b"a")
        server.reload("reloaded")
        conn.send(b"b\n")
        self.assertEqual(conn.line(), b"b")
        with server.connect() as other:
            self.assertEqual(other.get("/").body, b"root")
        conn.close()


class Connect(E2E):
    SITE = site()

    def tunnel(self, port, more=b""):
        conn = self.connect()
        conn.send(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (port, port) + more)
        head = conn.head()
        self.assertEqual((head.status, head.all("Connection"), head.all("Upgrade"), head.all("Content-Length")), (200, [], [], []))
        return conn

    def test_a_tunnel(self):
        conn = self.tunnel(self.server.port(), request("GET", "/"))
        self.assertEqual(conn.response().body, b"root")  # of the same server, through itself
        self.assertEqual(conn.get("/").body, b"root")
        conn.half_close()
        conn.expect_end()

    def test_the_other_end_closes(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(WAIT)
            conn = self.tunnel(listener.getsockname()[1], b"hello")
            other, _ = listener.accept()
            with other:
                other.settimeout(WAIT)
                self.assertEqual(other.recv(5), b"hello")
                other.sendall(b"goodbye")
            self.assertEqual(conn.take(7), b"goodbye")
            conn.half_close()
            conn.expect_end()

    def test_refusals(self):
        for target, status in ((b"10.0.0.1:80", 403), (b"127.0.0.1:%d" % free_port(), 502)):
            with self.server.connect() as conn:  # what follows is no request: it was meant for the tunnel
                conn.send(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target, target) + request("GET", "/"))
                self.assertEqual(conn.response("CONNECT").status, status)
                conn.expect_end()
        with self.server.connect() as conn:
            conn.send(b"CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\nX-Status: 301\r\n\r\n")
            self.assertIn("the status of a tunnel must be from 200 to 299, not 301", conn.response().text)

    def test_the_server_stops_while_a_tunnel_is_open(self):
        server = self.serve(site())
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            conn = self.connect(server=server)
            conn.send(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x:1\r\n\r\n" % port)
            self.assertEqual(conn.head().status, 200)
            other, _ = listener.accept()
            with other:
                other.settimeout(WAIT)
                server.signal()
                self.assertEqual(other.recv(1), b"")  # the drain ends the direction from the client
            conn.expect_end()
        self.assertEqual(server.wait(), 0, server.log())

    def test_without_a_route(self):
        server = self.serve('local ls = require "luaserve" local app = ls.app() app:any("/*rest", function() return "any" end)\n'
                            'ls.listen { host = "127.0.0.1", port = 0, handler = app }')
        for target in (b"h:443", b"a_b:1"):
            with server.connect() as conn:
                conn.send(b"CONNECT %s HTTP/1.1\r\nHost: h\r\n\r\n" % target)
                self.assertEqual(conn.response().status, 501)
                conn.expect_end()
        with server.connect() as conn:
            self.assertNotIn("CONNECT", conn.ask("OPTIONS", "*").header("Allow"))
            self.assertEqual(conn.get("/").body, b"any")

    def test_definitions(self):
        begin = 'local ls = require "luaserve" local app = ls.app() '
        for text, message in (
                ('app:route("CONNECT", "/x", print)', 'app:route: a CONNECT request has no path; write app:route("CONNECT", "*", fn), '
                                                      'and read req.target; got "/x"'),
                ('app:route("CONNECT", "*", print) app:route("CONNECT", "*", print)', "CONNECT * is already defined at"),
                ('local b = ls.app() b:route("CONNECT", "*", print) app:mount("/b", b)', "its route cannot be in a mounted app"),
                ('app:route("CONNECT", "*", { max_body = 1 }, print)', "a route for CONNECT * has no options")):
            self.refuses(begin + text + ' ls.listen { host = "127.0.0.1", port = 0, handler = app }', message)


class BehindAWait(E2E):
    def test_an_upgrade_after_a_fetch(self):
        """ls.fetch waits for the end of the client, too: that receive ends before the connection moves."""
        server = self.serve(app_site("""
            app:get("/user", function() ls.sleep(0.01) return "ada" end)
            app:use(function(req, res, next)
              if req.path ~= "/user" then assert(ls.fetch("http://" .. req.authority .. "/user", { timeout = 10 })) end
              next()
            end)
            app:get("/raw", function(req, res)
              local sock = assert(res:upgrade("echo/1"))
              for data in sock:chunks() do sock:send(data) end
            end)
            app:ws("/ws", function(ws) for message in ws:messages() do ws:send(message) end end)
"""))
        host = "127.0.0.1:%d" % server.port()
        conn = self.connect(server=server)
        conn.send(request("GET", "/raw", [("Connection", "upgrade"), ("Upgrade", "echo/1")], host=host))
        self.assertEqual(conn.head().status, 101)
        conn.send(b"hello")
        self.assertEqual(conn.take(5), b"hello")
        with WebSocket(server.at(), "/ws", headers={"Host": host}) as ws:
            ws.send("hello")
            self.assertEqual(ws.receive(), "hello")
        conn.close()
