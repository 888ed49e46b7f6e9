"""ls.websocket: the handshake and its errors against a raw server, messages, TLS, where it may be called, and the end of the
server."""
import base64
import contextlib
import re
import tempfile
import zlib

from harness import E2E, Conn
from harness.tls import certificate
from harness.websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, close_payload
from harness.websocket_peer import Peer

# Each line of a connection to the second listener is Lua code; the server sends back its results.
SITE = r"""
local ls = require "luaserve"
ls.config { threads = 2 }
local app = ls.app()
local function echo(ws) for data, kind in ws:messages() do ws:send(data, kind) end end
app:ws("/echo", { max_message = "4m" }, echo)
app:ws("/compressed", { compress = true, max_message = "4m" }, echo)
app:ws("/context", { compress = { context = true }, max_message = "4m", protocols = { "a", "b.v1" } }, echo)
app:ws("/bye", function(ws) ws:send("last") ws:close(3001, "done") end)
app:get("/plain", function() return "page" end)
app:get("/moved", function() return 301, "", { Location = "/echo" } end)
local function show(...)
  local parts = table.pack(...)
  for i = 1, parts.n do parts[i] = tostring(parts[i]) end
  return table.concat(parts, "|", 1, parts.n)
end
local kept = {}
ls.listen({ port = 0, host = "127.0.0.1", handler = app })
ls.tcp({ port = 0, host = "127.0.0.1" }, function(sock)
  for line in sock:lines() do
    local chunk, err = load("local ls, url, kept = ... " .. line)
    sock:send(chunk and show(pcall(chunk, ls, "ws://127.0.0.1:@PORT@", kept)) or err, "\n")
  end
end)
"""


class ClientCase(E2E):
    LISTENERS = 2

    def setUp(self):
        super().setUp()
        self.control = self.connect(1)
        self.peer = Peer()
        self.addCleanup(self.peer.close)

    def begin(self, text, peer=None):
        """Start Lua code; ws_url is the URL of the raw server."""
        port = (peer or self.peer).port
        self.control.send(('local ws_url = "ws://127.0.0.1:%d" ' % port + text.replace("\n", " ")).encode() + b"\n")

    def result(self):
        return self.control.line().decode()

    def run_lua(self, text):
        port = self.server.at()[1] if self.server is not None else 0
        self.begin(text.replace("@URL@", "ws://127.0.0.1:%d" % port))
        return self.result()


class Client(ClientCase):
    SITE = SITE

    # ---- the request

    def test_the_request(self):
        keys = set()
        for _ in range(3):
            self.begin("""return ls.websocket(ws_url .. "/feed?a=%20b", { protocols = { "one", "two" }, origin = "http://o.test",
                          headers = { Authorization = "Bearer 1", ["X-List"] = { "a", 2 }, Accept = "" } })""")
            with self.peer.accept() as conn:
                self.assertEqual((conn.method, conn.target, conn.version), ("GET", "/feed?a=%20b", "HTTP/1.1"))
                self.assertEqual(conn.fields["host"], "127.0.0.1:%d" % self.peer.port)
                self.assertEqual(conn.fields["connection"].lower(), "upgrade")
                self.assertEqual(conn.fields["upgrade"], "websocket")
                self.assertEqual(conn.fields["sec-websocket-version"], "13")
                self.assertEqual(conn.fields["sec-websocket-protocol"], "one, two")
                self.assertEqual(conn.fields["sec-websocket-extensions"], "permessage-deflate; server_no_context_takeover; "
                                 "client_no_context_takeover; client_max_window_bits")
                self.assertEqual(conn.fields["origin"], "http://o.test")
                self.assertEqual(conn.lines[-4:], ["Accept: ", "Authorization: Bearer 1", "X-List: a", "X-List: 2"])
                self.assertEqual(len(base64.b64decode(conn.key, validate=True)), 16)
                keys.add(conn.key)
                conn.answer("Sec-WebSocket-Protocol: two")
                self.assertRegex(self.result(), r"^true\|WebSocket \(127\.0\.0\.1:\d+\)$")
        self.assertEqual(len(keys), 3)

    # ---- the response

    def fails(self, head, expected, options=""):
        """`head`: bytes, or a function of the connection; `expected`: the results of ls.websocket behind nil."""
        self.begin("return ls.websocket(ws_url%s)" % options)
        with self.peer.accept() as conn:
            conn.send(head(conn) if callable(head) else head)
            self.assertEqual(self.result(), "true|nil|" + expected)
            conn.ends()

    def test_another_status(self):
        for status, text in (("301 Moved Permanently", "301 Moved Permanently"), ("403 Forbidden", "403 Forbidden"), ("426", "426"),
                             ("500 \x41\xff", "500 A"), ("503 " + "x" * 100, "503 " + "x" * 60), ("200 OK", "200 OK")):
            head = ("HTTP/1.1 %s\r\nLocation: /there\r\nContent-Length: 0\r\n\r\n" % status).encode("latin-1")
            self.fails(head, "the server answered %s|EREFUSED|%s" % (text, status[:3]))
        for path, text in (("/plain", "200 OK|EREFUSED|200"), ("/none", "404 Not Found|EREFUSED|404"),
                           ("/moved", "301 Moved Permanently|EREFUSED|301")):
            self.assertEqual(self.run_lua('return ls.websocket("@URL@%s")' % path), "true|nil|the server answered " + text)
        self.assertEqual(self.run_lua('return ls.websocket("@URL@/echo", { origin = "http://other.test" })'),
                         "true|nil|the server answered 403 Forbidden|EREFUSED|403")

    def test_interim_responses_and_frames_behind_the_head(self):
        self.begin("local ws = ls.websocket(ws_url) local a, b = ws:receive() local c, d = ws:receive() "
                   "return a, b, c == '\\255\\0', d")
        with self.peer.accept() as conn:
            conn.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + conn.head() +
                      b"\x81\x05hello\x82\x02\xff")
            conn.send(b"\0")
            self.assertEqual(self.result(), "true|hello|text|true|binary")

    def test_a_server_that_closes(self):
        closed = "the server closed the connection instead of answering the handshake|ECLOSED"
        for part in (b"", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: web"):
            self.begin("return ls.websocket(ws_url)")
            with self.peer.accept() as conn:
                conn.send(part)
                conn.sock.close()
                self.assertEqual(self.result(), "true|nil|" + closed)

    def test_the_timeout(self):
        for part in (b"", b"HTTP/1.1 101 Switching Protocols\r\n"):
            self.begin("return ls.websocket(ws_url, { timeout = 0.2 })")
            with self.peer.accept() as conn:
                conn.send(part)
                self.assertEqual(self.result(), "true|nil|timeout: the server has not answered the handshake|ETIMEDOUT")

    def test_nothing_listens(self):
        self.peer.close()
        self.assertEqual(self.run_lua("return ls.websocket(ws_url)"), "true|nil|connection refused|EREFUSED")

    # ---- messages

    def test_echo(self):
        for path, options in (("/echo", "{}"), ("/echo", "{ compress = false }"), ("/compressed", "{}"),
                              ("/compressed", "{ compress = { context = true } }"), ("/context", "{ compress = { context = true } }"),
                              ("/context", "{}"), ("/context", "{ compress = { context = true, window = 9, min_size = 0 } }")):
            got = self.run_lua("""local o = %s o.max_message = "4m" local ws = assert(ls.websocket("@URL@%s", o))
                for round = 1, 2 do for _, size in ipairs { 0, 1, 125, 126, 300, 65535, 65536, 1048577 } do
                  local text = ("word %%d, "):rep(size // 6 + 1):sub(1, size) assert(ws:send(text)) local a, b = ws:receive(60)
                  assert(a == text and b == "text", size)
                  local bytes = string.pack("d", size + 0.1):rep(size // 8 + 1):sub(1, size) assert(ws:send(bytes, "binary"))
                  a, b = ws:receive(60) assert(a == bytes and b == "binary", size) end end
                ws:close() return ws:receive(), ws.closed""" % (options, path))
            self.assertEqual(got, "true|nil|true", (path, options))

    def test_the_subprotocol(self):
        self.assertEqual(self.run_lua('local ws = ls.websocket("@URL@/context", { protocols = { "x", "b.v1", "a" } }) '
                                      'return ws.protocol'), "true|b.v1")
        self.assertEqual(self.run_lua('local ws = ls.websocket("@URL@/context") return ws.protocol'), "true|nil")

    def open(self, lua, *lines, options=""):
        self.begin("local ws = assert(ls.websocket(ws_url%s)) %s" % (options, lua))
        conn = self.peer.accept()
        self.addCleanup(conn.sock.close)
        return conn.answer(*lines)

    def test_frames_are_masked(self):
        conn = self.open('for i = 1, 20 do ws:send("m" .. i) end return ws:receive()')
        self.assertEqual([conn.read_frame() for _ in range(20)], [(TEXT, b"m%d" % n, True, 0) for n in range(1, 21)])
        self.assertGreater(len(set(conn.keys)), 10)
        conn.send_frame(TEXT, b"a", fin=False).send_frame(PING, b"p").send_frame(CONTINUATION, b"b")
        self.assertEqual(conn.read_frame(), (PONG, b"p", True, 0))
        self.assertEqual(self.result(), "true|ab|text")

    def test_faults_of_the_server(self):
        for send, code in ((lambda c: c.send_frame(TEXT, b"a", mask=True), 1002),
                           (lambda c: c.send_frame(TEXT, b"a", rsv=4), 1002), (lambda c: c.send_frame(3), 1002),
                           (lambda c: c.send_frame(TEXT, b"\xff"), 1007), (lambda c: c.send_frame(BINARY, b"", length=65), 1009)):
            conn = self.open("local a, b, c = ws:receive() return a, c", options=", { max_message = 64, close_timeout = 1 }")
            send(conn)
            got = conn.read_frame()
            self.assertEqual((got.opcode, got.payload[:2]), (CLOSE, close_payload(code)))
            self.assertEqual(self.result(), "true|nil|ECLOSED")

    def test_compressed_messages(self):
        line = "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; client_no_context_takeover"
        text = b"words and words and words " * 40
        packed = zlib.compressobj(wbits=-15)
        packed = packed.compress(text) + packed.flush(zlib.Z_SYNC_FLUSH)
        conn = self.open("local a, b = ws:receive() ws:send(a) ws:send('short') return #a, b, ws:receive()", line)
        conn.send_frame(TEXT, packed[:9], fin=False, rsv=4).send_frame(CONTINUATION, packed[9:-4])
        got = conn.read_frame()
        self.assertEqual((got.opcode, got.fin, got.rsv), (TEXT, True, 4))
        self.assertEqual(zlib.decompressobj(wbits=-15).decompress(got.payload + b"\0\0\xff\xff"), text)
        self.assertEqual(conn.read_frame(), (TEXT, b"short", True, 0))
        conn.send_frame(TEXT, b"\x06\xff", rsv=4)
        self.assertEqual(conn.read_frame().payload[:2], close_payload(1007))
        self.assertTrue(self.result().startswith("true|%d|text|nil|" % len(text)))

    def test_the_close(self):
        self.assertEqual(self.run_lua('local ws = ls.websocket("@URL@/bye") local n = 0 for m in ws:messages() do n = n + #m end '
                                      'return n, ws.code, ws.reason, ws.closed, (ws:send("x"))'), "true|4|3001|done|true|nil")
        conn = self.open("ws:send('x') ws:close(3000, 'enough') return ws.closed, ws:receive()")
        self.assertEqual(conn.read_frame().payload, b"x")
        self.assertEqual(conn.read_frame(), (CLOSE, close_payload(3000, "enough"), True, 0))
        self.assertTrue(self.result().startswith("true|true|nil|"))
        conn.send_frame(CLOSE, close_payload(3000))
        conn.sock.close()

    def test_an_object_without_references_closes(self):
        conn = self.open("ws = nil collectgarbage() collectgarbage() return 1")
        self.assertEqual(self.result(), "true|1")
        self.assertEqual(conn.read_frame().payload, close_payload(1001))

    def test_pings(self):
        conn = self.open("kept.ws = ws return ws:ping('mine')", options=", { ping = 1, ping_timeout = 1 }")
        self.assertEqual(conn.read_frame(), (PING, b"mine", True, 0))
        self.assertEqual(self.result(), "true|true")
        self.assertEqual(conn.read_frame().opcode, PING)  # the client's own, after a second without any frame
        conn.ends()  # no pong
        self.assertEqual(self.run_lua("local ws = kept.ws ws:receive() return ws.code"), "true|1006")

    def test_many_at_once(self):
        count = 100
        self.assertEqual(self.run_lua("""local jobs, sum = {}, 0 for n = 1, %d do jobs[n] = ls.spawn(function()
            local ws = assert(ls.websocket("@URL@/compressed", { timeout = 60 })) ws:send(("%%d,"):rep(200))
            local back = ws:receive(60) ws:send(tostring(n)) local m = tonumber((ws:receive(60))) ws:close()
            return #back == 600 and m end) end
            for n = 1, #jobs do sum = sum + jobs[n]:wait() end return sum""" % count), "true|%d" % (count * (count + 1) // 2))

    def test_descriptors_come_back(self):
        self.assertEqual(self.run_lua('for n = 1, 3 do ls.websocket("@URL@/none") end return 1'), "true|1")
        before = self.quiet_fds()
        self.assertEqual(self.run_lua("""for n = 1, 200 do local ws = ls.websocket("@URL@/echo") ws:send("x") ws:receive()
            if n % 2 == 0 then ws:close() end assert(not ls.websocket("@URL@/none")) end
            collectgarbage() collectgarbage() return 1"""), "true|1")
        self.eventually(lambda: self.quiet_fds() <= before + 2, "the descriptors are closed")

    # ---- arguments

    def test_wrong_arguments(self):
        for call, message in (
                ("", "the first argument must be a URL"),
                ("'http://a/'", 'invalid URL "http://a/": it must begin with "ws://" or "wss://"'),
                ("'ws://'", "the host must be a name or an address"), ("'ws://a:0/'", "the port must be a number from 1 to 65535"),
                ("'ws://a/\\1'", "percent-encode"), ("'ws://a', { protocols = { 'a b' } }", "a subprotocol is a token"),
                ("'ws://a', { headers = { ['a b'] = 1 } }", 'invalid header name "a b"'),
                ("'ws://a', { headers = { X = '1\\rY: 2' } }", "contains a control character"),
                ("'ws://a', { headers = { X = true } }", "must be a string, a number or a list"),
                ("'ws://a', { headers = { host = 'b' } }", 'the header "host" is written by the handshake'),
                ("'ws://a', { headers = { Origin = 'b' } }", "use the option origin"),
                ("'ws://a', { origin = 'b' }", "origin must be a scheme"),
                ("'ws://a', { tls = {} }", "the option tls needs a URL with wss://"), ("'wss://a', { tls = false }", "wss:// needs TLS"),
                ("'ws://a', {}, 3", "ls.websocket(url, options)")):
            got = self.run_lua("return ls.websocket(%s)" % call)
            self.assertTrue(got.startswith("false|"), (call, got))
            self.assertIn(message, got, call)
        self.assertRegex(self.run_lua("return ls.websocket('ws://a', { headers = { X = ('x'):rep(66000) } })"), r"^true\|nil\|")

    def test_where_it_cannot_wait(self):
        self.refuses('local ls = require "luaserve"\nls.websocket("ws://127.0.0.1:1/")\n',
                     "ls.websocket: cannot wait while the site loads")
        self.assertIn("cannot wait", self.run_lua("return ('x'):gsub('x', function() ls.websocket(ws_url) end)"))


class Places(ClientCase):
    """Timers, hooks, and the end of the server."""

    SITE = None

    def test_hooks_and_timers(self):
        server = self.serve(r"""
local ls = require "luaserve"
local app = ls.app()
local seen = ls.channel("seen")
app:ws("/echo", function(ws) for data in ws:messages() do ws:send(data) end end)
local function talk(name, port)
  local ws <close> = assert(ls.websocket("ws://127.0.0.1:" .. port .. "/echo"))
  ws:send(name)
  seen:send((ws:receive()))
end
app:get("/", function(req)
  local port = req.headers.host:match("%d+$")
  ls.after(0, function() talk("timer", port) end)
  ls.spawn(function() talk("job", port) end):wait()
  talk("handler", port)
  return seen:receive(60) .. seen:receive(60) .. seen:receive(60)
end)
ls.on("start", function()
  if not ls.dict("feed"):add("begun", true) then return end
  local ws, message = ls.websocket("ws://127.0.0.1:@PEER@/")
  ls.log.info("feed " .. tostring(ws and ws:receive() or message))
end)
ls.listen({ port = 0, host = "127.0.0.1", handler = app })
""".replace("@PEER@", str(self.peer.port)), listeners=1)
        with self.peer.accept() as conn:
            conn.answer().send_frame(TEXT, b"begins")
            server.wait_log("feed begins")
        with server.connect() as conn:
            body = conn.send(b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.at()[1]).response().body.decode()
        self.assertEqual(sorted(re.findall("timer|job|handler", body)), ["handler", "job", "timer"])

    def setUp(self):
        E2E.setUp(self)
        self.peer = Peer()
        self.addCleanup(self.peer.close)

    def test_the_server_stops(self):
        """With a handshake, a receive, and an idle connection under way."""
        server = self.serve(SITE.replace("threads = 2", "threads = 2, drain_timeout = 1"), listeners=2)
        url = "ws://127.0.0.1:%d/" % self.peer.port
        controls = [server.connect(1) for _ in range(3)]
        peers = []
        for control, code in zip(controls, (
                "return ls.websocket('%s')", "local ws = ls.websocket('%s') return ws:receive()",
                "kept.ws = ls.websocket('%s') return 1")):
            self.addCleanup(control.close)
            control.send((code % url).encode() + b"\n")
            peers.append(self.peer.accept())
            self.addCleanup(peers[-1].sock.close)
            if len(peers) > 1:
                peers[-1].answer()
        self.assertEqual(controls[2].line(), b"true|1")
        server.signal()
        for conn in peers:
            with contextlib.suppress(ConnectionResetError):
                while conn.sock.recv(100):
                    pass
        server.wait()


class OwnServer(E2E):
    def test_a_client_of_its_own_process_sees_the_reload_and_the_stop(self):
        """Neither waits for the task that receives: the previous site closes its connections after a reload, and a stop all."""
        server = self.serve("""
local ls = require "luaserve"
ls.config { drain_timeout = 600, old_site_timeout = 0.001 }
local app = ls.app()
app:ws("/", function(ws)
  ws:send("open")
  ws:receive()
end)
app:get("/follow", function(req)
  local ws = assert(ls.websocket("ws://" .. req.authority .. "/"))
  ls.log.info("received " .. ws:receive())
  local text, message, code = ws:receive()
  return ("%s %s %s %d"):format(text, message, code, ws.code)
end)
ls.listen { port = 0, host = "127.0.0.1", handler = app }
""")
        for end, code in ((server.reload, 1012), (server.signal, 1001)):
            with Conn(server.at()) as conn:
                mark = server.mark()
                conn.send(b"GET /follow HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % server.at()[1])
                server.wait_log("received open", mark)
                end()
                self.assertEqual(conn.response().body, b"nil closed ECLOSED %d" % code)
        server.wait()


class ClientTls(ClientCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="luaserve-e2e-")
        cls.addClassCleanup(folder.cleanup)
        cls.ca = certificate(folder.name, "ca")
        cls.folder = folder.name.replace("\\", "/")
        certificate(folder.name, "server", ca="ca")
        cls.SITE = SITE.replace("host = \"127.0.0.1\", handler = app }", "host = \"127.0.0.1\", handler = app, tls = { cert = "
                                '"%s/server.pem", key = "%s/server.key" } }' % (cls.folder, cls.folder))
        super().setUpClass()

    def ask(self, options, host="localhost"):
        return self.run_lua("""local ws, err, code = ls.websocket("wss://%s:%d/echo", %s) if not ws then return err, code end
            local text = ("x"):rep(200000) ws:send(text) return ws:receive(60) == text, ws.tls and ws.tls.version"""
                            % (host, self.server.at()[1], options))

    def test_trust(self):
        self.assertEqual(self.ask("{ tls = { ca = '%s/ca.pem' } }" % self.folder), "true|true|TLSv1.3")
        self.assertEqual(self.ask("{ tls = { insecure = true }, compress = { context = true } }"), "true|true|TLSv1.3")
        self.assertRegex(self.ask("nil"), r"^true\|TLS: .+\|ECERT$")
        self.assertRegex(self.ask("{ tls = { ca = '%s/ca.pem', server_name = 'other.test' } }" % self.folder), r"^true\|TLS: .+\|ECERT$")

    def test_plain_and_tls_mixed_up(self):
        self.assertRegex(self.run_lua('return ls.websocket("ws://127.0.0.1:%d/echo")' % self.server.at()[1]),
                         r"^true\|nil\|the server answered 400 .*\|EREFUSED\|400$")
        self.begin('return ls.websocket("wss://127.0.0.1:%d/", { tls = { insecure = true } })' % self.peer.port)
        conn = self.peer.listener.accept()[0]
        conn.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        self.assertRegex(self.result(), r"^true\|nil\|TLS: .+\|EPROTO$")
        conn.close()
