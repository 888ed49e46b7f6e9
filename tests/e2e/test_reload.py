"""Reload: SIGHUP loads the site again while clients go on. No request fails, no connection closes; a site that cannot be
served leaves the old one."""
import collections
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import unittest

from harness import (E2E, LUASERVE, ROOT, SANITIZER, WAIT, WINDOWS, WINE, Conn, free_port, in_parallel, not_on_windows,
                     read_text, request, tls, write_text)
from harness.websocket import CLOSE, WebSocket
from harness.websocket_peer import Peer as WebSocketPeer

SITE = """
local ls = require "luaserve"
local app = ls.app()
app:get("/", function() return "@V@" end)
app:post("/echo", function(req) return req:body() end)
app:get("/stream", function(req, res)
  for n = 1, 5 do res:write("@V@ ") ls.sleep(0.01) end
end)
app:get("/wait/:ms", function(req) ls.sleep(tonumber(req.params.ms) / 1000) return "@V@" end)
app:get("/until", function(req) -- the file exists
  ls.log.info("waits")
  while not io.open(req.query.file) do ls.sleep(0.005) end
  return "@V@"
end)
ls.listen(@HTTP@, app)
@MORE@
"""

BEFORE = SITE.replace("ls.listen(@HTTP@, app)\n@MORE@", "@MORE@\nls.listen(@HTTP@, app)")
TCP = 'ls.tcp(@TCP@, function(sock) for line in sock:lines() do sock:send("@V@ " .. line .. "\\n") end end)\n'
UDP = 'ls.udp(@UDP@, function(data) return "@V@ " .. data end)\n'



def refused(port):
    """Whether a connection to the port is refused."""
    try:
        socket.create_connection(("127.0.0.1", port), WAIT).close()
    except OSError:
        return True
    return False


# Work of each scope that waits in each way at a reload; "go" ends the waits that the reload does not end.
SCOPES = r"""
local ls = require "luaserve"
local app, gate = ls.app(), ls.semaphore("gate", 1)
ls.config{ states = 1, threads = 2, drain_timeout = 600 }
local waits = {
  sleep = function() while not io.open("go") do ls.sleep(0.005) end end,
  message = function(name) ls.channel(name):receive() end,
  result = function() gate:with(function() end) end,
}
local function work(scope, wait)
  ls.log.info("begins " .. scope .. " " .. wait)
  waits[wait](scope .. " " .. wait)
  ls.log.info("continues " .. scope .. " " .. wait)
end
if "@V@" == "one" then
  ls.init(function()
    ls.spawn(function() gate:with(function() ls.sleep(1000) end) end) -- the reload ends it, which frees the permit
    for wait in pairs(waits) do
      ls.channel("values"):send(wait)
      ls.spawn(work, "site", wait)
      ls.spawn(function() work("batch", ls.channel("values"):receive()) end)
    end
  end)
  for wait in pairs(waits) do ls.after(0, work, "timer", wait) end
  app:get("/request/:wait", function(req) work("request", req.params.wait) return 204 end)
  app:get("/job/:wait", function(req) ls.spawn(work, "job", req.params.wait) return 204 end)
  app:ws("/websocket/:wait", function(ws, req) work("websocket", req.params.wait) ws:receive() end)
  ls.tcp(@TCP@, function(sock) work("connection", sock:receive("*l")) end)
end
app:get("/go", function()
  io.open("go", "w"):close()
  for scope in ("request connection websocket site batch timer job"):gmatch("%a+") do ls.channel(scope .. " message"):send(1) end
  return 204
end)
app:get("/running", function() return ls.stats().running end)
app:get("/", function() return "@V@" end)
ls.listen(@HTTP@, app)
"""
STARTED = r"""
local ls = require "luaserve"
ls.config { threads = 4 }
local app = ls.app()
local begun, price -- of each state
ls.on("start", function() begun = "begun" end)
ls.subscribe("prices", function(data) price = data end, { each_state = true })
ls.init(function(reload) for n = reload and 3 or 1, 3 do ls.publish("prices", tostring(n), { retain = true }) end end)
local function state() return tostring(begun) .. " " .. tostring(price) end
app:get("/", state)
app:get("/busy", function() -- additional states are made
  local start = os.clock()
  while os.clock() - start < 0.005 do end
  return state()
end)
ls.listen{ host = "127.0.0.1", port = @HTTP@, handler = app }
ls.tcp({ host = "127.0.0.1", port = @TCP@ }, function(sock) sock:send(state()) end)
ls.udp({ host = "127.0.0.1", port = @UDP@ }, state)
"""


class Reload(E2E):
    def refuses(self, name):
        """The port refuses connections: at once, but Wine closes a listener a moment later."""
        if WINE:
            self.eventually(lambda: refused(self.ports[name]), "the port refuses connections")
        self.assertTrue(refused(self.ports[name]))

    def site(self, version="one", more="", base=SITE):
        text = base.replace("@MORE@", more).replace("@V@", version)
        for name in ("HTTP", "TCP", "UDP", "OTHER"):
            if "@%s@" % name in text:
                self.ports.setdefault(name, free_port())
                text = text.replace("@%s@" % name, str(self.ports[name]))
        return text

    def setUp(self):
        super().setUp()
        self.ports = {}

    def tearDown(self):
        super().tearDown()
        if self.server is not None:
            self.server.stop()

    def start(self, *args, listeners=2, flags=(), **kw):
        self.server = self.serve(self.site(*args), listeners=listeners, flags=flags, **kw)
        return self.server

    def write(self, text):
        write_text(self.server.site + ".new", text)
        os.replace(self.server.site + ".new", self.server.site)

    def reload(self, expected="reloaded site.lua in|reloaded .*site.lua in"):
        return self.server.reload(expected)

    def change(self, *args, **kw):
        self.write(self.site(*args, **kw))
        return self.reload()

    def refuse(self, text, reason):
        """The new text is not served; the previous site continues, on the same connection."""
        conn = self.http()
        before = self.get(conn)
        self.write(text)
        line = self.reload("reload failed: ")
        self.assertRegex(line, reason)
        self.assertIn("the previous site continues", line)
        self.assertEqual(self.get(conn), before)
        conn.close()

    def http(self):
        conn = Conn(("127.0.0.1", self.ports["HTTP"]))
        self.addCleanup(conn.close)
        return conn

    def get(self, conn, path="/"):
        conn.send(request("GET", path))
        response = conn.response()
        self.assertEqual(response.status, 200)
        return response.body.decode()

    # ---- the new site

    def test_a_change_is_served_on_open_and_new_connections(self):
        self.start()
        old = self.http()
        self.assertEqual(self.get(old), "one")
        self.change("two")
        self.assertEqual(self.get(old), "two")
        self.assertEqual(self.get(self.http()), "two")

    def test_a_request_that_waits_ends_in_the_old_site(self):
        self.start()
        waits = self.http()
        path = os.path.join(self.server.dir, "go")
        waits.send(request("GET", "/until?file=" + path) + request("GET", "/"))
        self.server.wait_log("waits")
        self.change("two")
        open(path, "w").close()
        self.assertEqual(waits.response().body, b"one")
        self.assertEqual(waits.response().body, b"two")

    def test_start_hooks_run_and_old_timers_stop(self):
        more = """ls.config{ threads = 2 }
        ls.init(function() print("once @V@") end)
        ls.on("start", function() ls.log.info("start @V@") end)
        ls.on("drain", function() ls.log.info("drain @V@") end)
        ls.every(0.02, function() ls.log.info("tick @V@") end)"""
        self.start("one", more)
        self.server.wait_log("tick one")
        self.change("two", more)
        self.server.wait_log("start two")
        self.server.wait_log("drain one", count=2)  # both states have stopped their timers
        mark = self.server.mark()
        self.server.wait_log("tick two", mark, count=10)
        self.assertLessEqual(len(self.server.logged("tick one", mark)), 2)  # at most one that was due in each state

    def test_a_listener_is_added_and_removed(self):
        self.start("one", TCP, listeners=4)
        sock = socket.create_connection(("127.0.0.1", self.ports["TCP"]), WAIT)
        sock.sendall(b"a\n")
        self.assertEqual(sock.recv(100), b"one a\n")
        self.change("two", 'ls.listen(@OTHER@, app)')
        self.assertEqual(self.get(Conn(("127.0.0.1", self.ports["OTHER"]))), "two")
        self.refuses("TCP")
        sock.sendall(b"b\n")  # the open connection goes on in the previous site
        self.assertEqual(sock.recv(100), b"one b\n")
        sock.close()
        self.change("three", TCP)
        sock = socket.create_connection(("127.0.0.1", self.ports["TCP"]), WAIT)
        sock.sendall(b"c\n")
        self.assertEqual(sock.recv(100), b"three c\n")
        sock.close()

    def test_an_address_changes_from_http_to_tcp_and_back(self):
        tcp = 'local ls = require "luaserve"\n' + TCP.replace("@TCP@", "@HTTP@")
        self.start()
        kept = self.http()
        self.assertEqual(self.get(kept), "one")
        self.change("two", base=tcp)
        sock = socket.create_connection(("127.0.0.1", self.ports["HTTP"]), WAIT)
        sock.sendall(b"a\n")
        self.assertEqual(sock.recv(100), b"two a\n")
        kept.expect_end()
        self.change("three")
        self.assertEqual(self.get(self.http()), "three")
        sock.sendall(b"b\n")
        self.assertEqual(sock.recv(100), b"two b\n")
        sock.close()

    def test_an_address_changes_from_plain_to_tls_and_back(self):
        encrypted = SITE.replace("ls.listen(@HTTP@, app)", "ls.listen{ port = @HTTP@, tls = 'self-signed', handler = app }")
        self.start()
        kept = self.http()
        self.assertEqual(self.get(kept), "one")
        self.change("two", base=encrypted)
        self.assertEqual(self.get(kept), "two")  # an open plain connection stays plain
        context = tls.context()
        raw = socket.create_connection(("127.0.0.1", self.ports["HTTP"]), WAIT)
        secure = context.wrap_socket(raw)
        certificate = secure.getpeercert(True)
        self.change("three", base=encrypted)
        secure.sendall(request("GET", "/"))
        self.assertIn(b"three", secure.recv(4096))
        again = context.wrap_socket(socket.create_connection(("127.0.0.1", self.ports["HTTP"]), WAIT))
        self.assertEqual(again.getpeercert(True), certificate)  # the self-signed certificate stays
        again.close()
        self.change("four")
        self.assertEqual(self.get(self.http()), "four")
        secure.sendall(request("GET", "/"))
        self.assertIn(b"four", secure.recv(4096))
        secure.close()

    def test_limits_change_for_new_connections(self):
        limited = SITE.replace("ls.listen(@HTTP@, app)", "ls.listen{ port = @HTTP@, handler = app, max_body = 4 }")
        self.start()
        kept = self.http()
        self.assertEqual(self.get(kept), "one")
        self.change("two", base=limited)
        body = request("POST", "/echo", body=b"12345")
        kept.send(body)
        self.assertEqual(kept.response().body, b"12345")
        self.assertEqual(self.get(kept), "two")
        new = self.http()
        new.send(body)
        self.assertEqual(new.response().status, 413)
        self.change("three")
        new = self.http()
        new.send(body)
        self.assertEqual(new.response().body, b"12345")

    @not_on_windows("modes of Unix sockets")
    def test_the_permissions_of_a_unix_socket_change(self):
        self.start("one", 'ls.listen("unix:@DIR@/s", app, { mode = "0666" })', listeners=3)
        path = os.path.join(self.server.dir, "s")
        more = 'ls.listen("unix:%s", app, { mode = "%%s" })' % path
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o666)
        self.change("two", more % "0600")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        taken = socket.socket()
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        self.refuse(self.site("three", more % "0640" + "\nls.listen(%d, app)" % taken.getsockname()[1]), "in use")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)  # as before the plan
        taken.close()

    def test_settings_of_the_process_stay_with_a_warning(self):
        self.start()
        mark = self.server.mark()
        self.change("two", "ls.config{ threads = 3, max_connections = 77 }")
        self.server.wait_log("reload: threads, threads_max, max_connections of ls.config: the change needs a restart|"
                             "reload: threads, max_connections of ls.config: the change needs a restart", mark)

    def test_udp_goes_on(self):
        self.start("one", UDP, listeners=4)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.settimeout(WAIT)
        udp.connect(("127.0.0.1", self.ports["UDP"]))
        for version in ("one", "two", "three"):
            if version != "one":
                self.change(version, UDP)
            udp.send(b"x")
            self.assertEqual(udp.recv(100), version.encode() + b" x")
        udp.close()

    # ---- a site that cannot be served

    def test_a_syntax_error(self):
        self.start()
        self.refuse("x = = 1", r"site\.lua:1: unexpected symbol")

    def test_an_error_while_it_loads(self):
        self.start()
        self.refuse(self.site("two", 'error("no")'), r"site\.lua:\d+: no")

    def test_a_vanished_file(self):
        self.start()
        os.rename(self.server.site, self.server.site + ".away")
        self.assertRegex(self.reload("reload failed: "), "No such file|no such file|does not exist|cannot open")
        self.assertEqual(self.get(self.http()), "one")
        os.rename(self.server.site + ".away", self.server.site)
        self.reload()

    def test_nothing_to_do(self):
        self.start()
        self.refuse("x = 1", "nothing to do")

    def test_a_port_that_is_taken(self):
        self.start()
        taken = socket.socket()
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        more = "ls.listen(@OTHER@, app)\nls.listen(%d, app)" % port
        self.refuse(self.site("two", more), "cannot listen on 127.0.0.1:%d: .*in use" % port)
        self.refuses("OTHER")  # what was opened for it is closed
        taken.close()
        self.reload()
        self.assertEqual(self.get(self.http()), "two")

    def test_a_bad_certificate(self):
        self.start()
        bad = self.server.dir + "/bad.pem"
        write_text(bad, "no certificate\n")
        self.refuse(SITE.replace("ls.listen(@HTTP@, app)",
                                 "ls.listen{ port = %d, tls = { cert = '%s' }, handler = app }" % (self.ports["HTTP"], bad))
                    .replace("@V@", "two").replace("@MORE@", ""), "bad.pem")

    @unittest.skipIf(SANITIZER == "tsan", "its signals wait for a system call")
    def test_a_chunk_that_never_ends_reaches_the_limit(self):
        self.start("one", "ls.config{ max_cpu = 0.2 }")
        self.refuse(self.site("two", "while true do end"),
                    r"site\.lua:\d+: the site used more processor time than max_cpu allows \(0\.2 s\) while it loaded")

    @unittest.skipIf(SANITIZER == "tsan", "its signals wait for a system call")
    def test_a_stop_ends_a_chunk_that_never_ends(self):
        self.start("one", "ls.config{ max_cpu = 60 }")
        self.write('require("luaserve").log.info("loading")\nwhile true do end')
        self.reload("loading")
        self.get(self.http())
        self.server.signal()
        self.assertEqual(self.server.wait(), 0)
        self.assertTrue(self.server.logged("reload failed: the server stops"))
        self.server.stopped = True
        self.server = None

    def test_a_stop_at_any_time_of_a_reload(self):
        """The limits differ, so each plan makes an engine while the drain goes through the engines."""
        limited = SITE.replace("ls.listen(@HTTP@, app)", "ls.listen{ port = @HTTP@, handler = app, max_body = @N@ }")
        more = TCP + UDP + 'ls.log.info("loaded")\n'
        for n in range(4 if SANITIZER else 12):
            server = self.start("one", more, limited.replace("@N@", "1"), listeners=6)
            conns = [self.http() for _ in range(4)]
            for conn in conns:
                self.get(conn)
            self.write(self.site("two", more, limited.replace("@N@", "2")))
            mark = server.mark()
            server.reload()
            if n % 3 > 0:
                server.wait_log("loaded" if n % 3 == 1 else "reloaded", mark)
            server.signal()
            for conn in conns:
                conn.expect_end()
            self.assertEqual(server.wait(), 0, server.log())
            self.assertFalse(server.logged("ended early"))
            server.stopped = True
            self.server = None

    def test_a_consumer_of_the_previous_site_gets_no_value_any_more(self):
        """The new site sends before the state of the consumer, which is busy, has learned of the reload."""
        more = """ls.config{ states = 1, threads = 2 }
        local jobs = ls.channel("jobs")
        ls.on("start", function() if "@V@" == "one" then for job in jobs:values() do ls.log.info("taken " .. job) end end end)
        app:get("/send", function() jobs:send("x") return 204 end)
        app:get("/left", function() return tostring(#jobs) end)
        app:get("/busy", function(req)
          ls.log.info("busy")
          while not io.open(req.query.file) do end
          return 204
        end)"""
        self.start("one", more, BEFORE)
        busy, path = self.http(), os.path.join(self.server.dir, "go")
        busy.send(request("GET", "/busy?file=" + path))
        self.server.wait_log("busy")
        self.change("two", more, BEFORE)
        conn = self.http()
        conn.send(request("GET", "/send"))
        self.assertEqual(conn.response().status, 204)
        open(path, "w").close()
        self.assertEqual(busy.response().status, 204)
        self.eventually(lambda: self.get(conn, "/left") == "1", "the value is in the channel again")
        self.assertEqual(self.server.logged("taken"), [])

    def test_loops_of_the_previous_site_end_before_those_of_the_next_begin(self):
        """A job that ls.init waits for begins at once."""
        more = """local gate, asked = ls.semaphore("gate", 1), ls.channel("asked")
        ls.init(function()
          ls.spawn(function()
            ls.log.info("loop @V@ begins")
            while gate.held == 0 do ls.sleep(0.005) end
            ls.log.info("loop @V@ waits")
            gate:with(function() end) -- a reload does not end this wait
            ls.sleep(1000)
          end)
        end)
        ls.init(function()
          if "@V@" ~= "three" then return end
          ls.spawn(asked.send, asked, 1)
          asked:receive()
        end)
        app:get("/hold", function(req)
          gate:with(function() while not io.open(req.query.file) do ls.sleep(0.005) end end)
          return 204
        end)"""
        self.start("one", more, BEFORE)
        hold, path = self.http(), os.path.join(self.server.dir, "go")
        hold.send(request("GET", "/hold?file=" + path))
        self.server.wait_log("loop one waits")
        self.change("two", more, BEFORE)
        self.assertEqual(self.server.logged("loop two begins"), [])
        open(path, "w").close()
        self.server.wait_log("loop two begins")
        self.change("three", more, BEFORE)
        self.server.wait_log("loop three begins")
        self.change("four")  # without a loop, which would hold the stop

    def test_each_scope_ends_as_the_page_says(self):
        with open(os.path.join(ROOT, "lua/docs/deploying.md"), encoding="utf-8") as page:
            rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in page if line.startswith("|")]
        first = next(n for n, row in enumerate(rows) if row[0] == "work of the previous site")
        names = ("request", "connection", "websocket", "site", "batch", "timer", "job")
        columns = {"sleep": 1, "message": 2, "result": 5}
        cells = {"%s %s" % (name, wait): row[at] == "ends" for name, row in zip(names, rows[first + 2:]) for wait, at in columns.items()}
        self.assertEqual(len(cells), 21)
        self.server = self.serve(self.site("one", base=SCOPES), listeners=4)
        with contextlib.ExitStack() as clients, self.http() as conn:
            for wait in columns:
                clients.enter_context(self.http()).send(request("GET", "/request/" + wait))
                sock = clients.enter_context(socket.create_connection(("127.0.0.1", self.ports["TCP"]), WAIT))
                sock.sendall(wait.encode() + b"\n")
                clients.enter_context(WebSocket(("127.0.0.1", self.ports["HTTP"]), "/websocket/" + wait))
                conn.send(request("GET", "/job/" + wait))
                self.assertEqual(conn.response().status, 204)
            for cell in cells:
                self.server.wait_log("begins " + cell)
            self.change("two", base=SCOPES)
            conn.send(request("GET", "/go"))
            self.assertEqual(conn.response().status, 204)
            for cell, ends in cells.items():
                if not ends:
                    self.server.wait_log("continues " + cell)
        conn = self.http()
        self.eventually(lambda: sum(json.loads(self.get(conn, "/running")).values()) == 1, "only this request runs")
        for cell, ends in cells.items():
            self.assertEqual(len(self.server.logged("continues " + cell)), 0 if ends else 1, cell)

    def test_an_old_site_is_cut_after_drain_timeout(self):
        self.start("one", "ls.config{ drain_timeout = 1 }\n" + TCP, listeners=4)
        sock = socket.create_connection(("127.0.0.1", self.ports["TCP"]), WAIT)
        sock.sendall(b"a\n")
        self.assertEqual(sock.recv(100), b"one a\n")
        waits = self.http()
        waits.send(request("GET", "/until?file=/never"))
        self.server.wait_log("waits")
        before = self.site("one", "ls.config{ drain_timeout = 1 }\n" + TCP)
        self.change("two", "ls.config{ drain_timeout = 1 }\n" + TCP)
        self.server.wait_log("the previous site has not ended within 1 s")
        sock.settimeout(WAIT)
        self.server.wait_log(r"connection from 127\.0\.0\.1:%d: its handler was ended while it waited at [^ ]*site\.lua:%d: "
                             "the site was replaced or stopped" % (sock.getsockname()[1], before[:before.index("sock:lines()")].count("\n") + 1))
        self.assertEqual(len(self.server.logged("was ended while it waited at")), 1)
        self.assertEqual(sock.recv(100), b"")
        self.server.wait_log("warn ended with the previous site, unfinished: a request, a TCP connection$")
        self.assertEqual(self.get(self.http()), "two")
        sock.close()

    def test_what_is_cut_is_named_with_its_lines(self):
        """A job and a timer that are not done are warnings. A loop of ls.init that rests ends with its site, which is in order."""
        jobs = """ls.config{ drain_timeout = 1 }
local function never() ls.sleep(1000) end
app:get("/begin", function()
  ls.spawn(function() -- LINE in a spawned job
    never()
  end)
  ls.after(0, function() never() end) -- LINE in a timer
  return "begun"
end)
ls.init(function() ls.spawn(function() -- INFO in a spawned job
  while true do ls.sleep(1000) end
end) end)
ls.listen"""
        self.start("one", "", SITE.replace("ls.listen", jobs), listeners=1)
        self.assertEqual(self.get(self.http(), "/begin"), "begun")
        text = read_text(self.server.site).split("\n")
        waits = 1 + next(n for n, line in enumerate(text) if "local function never" in line)
        self.change("two", "ls.config{ drain_timeout = 1 }")
        self.server.wait_log("the previous site has not ended within 1 s")
        for n, line in enumerate(text, 1):
            if found := re.search("-- (LINE|INFO) (.*)", line):
                self.server.wait_log(r" %s %s \(\S*site\.lua:%d\), at \S*site\.lua:%d: the task was ended while it waited: "
                                     "its site was replaced" % ("warn" if found[1] == "LINE" else "info", found[2], n,
                                                                waits if found[1] == "LINE" else n + 1))
        self.server.wait_log("warn ended with the previous site, unfinished: 2 jobs$")

    def test_a_handshake_does_not_reach_a_site_that_was_cut(self):
        encrypted = TCP.replace("ls.tcp(@TCP@, function", "ls.tcp({ port = @TCP@, tls = 'self-signed', handshake_timeout = 600 }, function")
        self.start("one", "ls.config{ drain_timeout = 0.2 }\n" + encrypted, listeners=4, flags=("--log-level", "debug"))
        raw = socket.create_connection(("127.0.0.1", self.ports["TCP"]), WAIT)
        raw.settimeout(WAIT)
        context = tls.context()
        received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        handshake = context.wrap_bio(received, sent)
        with self.assertRaises(ssl.SSLWantReadError):
            handshake.do_handshake()
        raw.sendall(sent.read())
        received.write(raw.recv(65536))  # the handshake has begun with the previous site
        self.change("two", "ls.config{ drain_timeout = 0.2 }\n" + encrypted)
        self.server.wait_log("the previous site has not ended within 0.2 s")
        with contextlib.suppress(ConnectionResetError):
            while raw.recv(65536):  # the cut aborts it
                pass
        raw.close()
        self.server.wait_log("the previous site has ended")
        self.assertEqual(self.get(self.http()), "two")
        self.change("three", encrypted)  # the stop has the usual time

    # ---- under load

    def test_each_state_has_started_before_its_first_request(self):
        self.server = self.serve(self.site(base=STARTED), listeners=3)
        stop, seen = threading.Event(), collections.Counter()

        def http(target):
            with self.http() as conn:
                while not stop.is_set():
                    seen[conn.get(target).text] += 1

        def tcp():
            while not stop.is_set():
                with socket.create_connection(("127.0.0.1", self.ports["TCP"]), WAIT) as sock:
                    sock.settimeout(WAIT)
                    seen[sock.makefile("rb").read().decode()] += 1

        def udp():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                sock.settimeout(WAIT)
                while not stop.is_set():
                    sock.sendto(b"x", ("127.0.0.1", self.ports["UDP"]))
                    seen[sock.recv(100).decode()] += 1

        def reloads():
            try:
                for _ in range(5 if WINDOWS or SANITIZER else 15):
                    before = sum(seen.values())
                    self.reload()
                    self.eventually(lambda: sum(seen.values()) > before + 50, "requests")  # pylint: disable=cell-var-from-loop
            finally:
                stop.set()
        in_parallel([reloads, tcp, udp] + [lambda: http("/")] * 8 + [lambda: http("/busy")] * 4)
        self.assertEqual(list(seen), ["begun 3"], seen)

    def test_no_request_fails_across_many_reloads(self):
        reloads = 20 if WINDOWS else 30  # Windows: each is a process
        more = "ls.config{ drain_timeout = 60 }\n" + TCP + UDP
        self.start("v0", more, listeners=6)
        stop, failures, counts = threading.Event(), [], {}

        def client(name, once):
            try:
                while not stop.is_set():
                    once()
                    counts[name] = counts.get(name, 0) + 1
            except Exception as error:  # noqa: any failure of a client is a failure of the test
                failures.append("%s: %r" % (name, error))

        keep, pipelined, streaming, waiting = (self.http() for _ in range(4))
        sock = socket.create_connection(("127.0.0.1", self.ports["TCP"]), WAIT)
        sock.settimeout(WAIT)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.settimeout(WAIT)
        udp.connect(("127.0.0.1", self.ports["UDP"]))

        def pipeline():
            pipelined.send(request("GET", "/") * 10)
            for _ in range(10):
                if pipelined.response().status != 200:
                    raise AssertionError("status")

        def fresh():
            conn = self.http()
            self.get(conn)
            conn.close()

        def tcp():
            sock.sendall(b"x\n")
            if not sock.recv(100).endswith(b" x\n"):
                raise AssertionError("tcp")

        def fresh_tcp():
            own = socket.create_connection(("127.0.0.1", self.ports["TCP"]), WAIT)
            own.settimeout(WAIT)
            own.sendall(b"y\n")
            if not own.recv(100).endswith(b" y\n"):
                raise AssertionError("fresh tcp")
            own.close()

        def datagram():
            udp.send(b"u")
            if not udp.recv(100).endswith(b" u"):
                raise AssertionError("udp")

        clients = {"keep-alive": lambda: self.get(keep), "pipelined": pipeline, "new": fresh,
                   "stream": lambda: self.get(streaming, "/stream"), "wait": lambda: self.get(waiting, "/wait/50"),
                   "tcp": tcp, "new tcp": fresh_tcp, "udp": datagram}
        threads = [threading.Thread(target=client, args=item) for item in clients.items()]
        for thread in threads:
            thread.start()
        try:
            for n in range(1, reloads + 1):
                self.change("v%d" % n, more)
                if failures:
                    break
            self.assertEqual(self.get(self.http()), "v%d" % reloads)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(set(counts), set(clients))
        sock.close()
        udp.close()

    @unittest.skipIf(SANITIZER, "measures memory")
    def test_memory_after_many_reloads(self):
        self.start("v", TCP + UDP, listeners=6)

        def reloads(count):
            """The growth."""
            before = self.server.rss()
            for _ in range(count):
                self.reload()
            self.assertEqual(self.get(self.http()), "v")
            return self.server.rss() - before

        reloads(10 if WINDOWS else 50)
        self.eventually(lambda: reloads(50 if WINDOWS else 200) < 1 << 20, "200 reloads cost less than 1 MiB")

    def test_reloads_asked_for_during_a_reload_are_one(self):
        self.start()
        self.write(self.site("two"))
        for _ in range(3 if WINDOWS else 30):
            self.server.reload()
        self.server.wait_log("reloaded")
        conn = self.http()
        self.write(self.site("three"))
        self.server.reload()  # the line of a reload that has begun before may come first
        self.eventually(lambda: self.get(conn) == "three", "the last text is served")


def read(path):
    return read_text(path)


def process_id(server, path):
    """The process id in the file, which is that of the server. Under Wine it is the one that programs of Windows see."""
    return int(read(path)) if WINE else server.pid


class Commands(E2E):
    TEXT = 'local ls = require "luaserve"\nlocal app = ls.app()\nls.listen(0, app)\n'

    def command(self, name, server, status, pattern):
        done = subprocess.run([LUASERVE, name, "--pid", os.path.join(server.dir, "p")], capture_output=True, text=True, timeout=WAIT)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        self.assertRegex(done.stdout + done.stderr, pattern)

    def test_pid_file_reload_status_stop(self):
        server = self.serve(self.TEXT, listeners=2, flags=("--pid", "p"))
        path = os.path.join(server.dir, "p")
        self.wait_for_file(path)
        pid = process_id(server, path)
        self.command("status", server, 0, "^running, process id %d$" % pid)
        self.command("reload", server, 0, "^process %d loads its site again; its log shows the result$" % pid)
        server.wait_log("reloaded")
        second = subprocess.run([LUASERVE, "--pid", path, server.site], capture_output=True, text=True, timeout=WAIT)
        self.assertEqual(second.returncode, 1, second.stderr)
        self.assertRegex(second.stderr, "the server with the process id %d owns .*p; give another --pid" % process_id(server, path))
        self.command("stop", server, 0, "^$")
        self.assertEqual(server.wait(), 0)
        self.assertFalse(os.path.exists(path))
        self.command("status", server, 3, "^not running: no server owns .*p$")
        for name in ("reload", "stop"):
            self.command(name, server, 1, "no running server owns .*p; start it with --pid")

    def test_what_a_handler_has_sent_before_it_returned(self):
        """A reload ends no connection whose last bytes are on their way."""
        size = 32 << 20  # more than the buffers of the system
        server = self.serve("local ls = require 'luaserve' ls.tcp({ port = 0, write_ahead = '1g', send_timeout = 600 }, "
                            "function(sock) sock:send(('x'):rep(%d)) ls.log.info('returns') end)" % size)
        with server.connect() as conn:
            server.wait_log("returns")
            for _ in range(2):
                server.reload("reloaded")
            self.assertEqual(len(conn.rest()), size)

    def test_what_was_sent_before_a_websocket_closed(self):
        """Neither a reload nor a stop ends a WebSocket that a task has closed before its last message has left."""
        size = 32 << 20
        for reloads in (True, False):
            with self.subTest(reloads=reloads), contextlib.closing(WebSocketPeer()) as peer:
                server = self.serve(
                    "local ls = require 'luaserve' ls.config { drain_timeout = 600 } ls.listen('127.0.0.1:0', ls.app()) "
                    "ls.on('start', function() if not ls.dict('once'):add('begun', 1) then return end local ws = ls.websocket('ws://127.0.0.1:%d/', "
                    "{ write_ahead = '1g', send_timeout = 600, close_timeout = 600, compress = false }) "
                    "ws:send(('x'):rep(%d)) ws:close() ls.log.info('closed') end)"
                    % (peer.port, size))
                with peer.accept() as conn:
                    conn.answer()
                    server.wait_log("closed")
                    if reloads:
                        server.reload("reloaded")
                    server.signal()
                    server.wait_log("draining")
                    left, conn.unread = 2 + 8 + 4 + size - len(conn.unread), b""  # a head with 64 bits of length and a key
                    while left > 0 and (data := conn.sock.recv(min(left, 1 << 20))):
                        left -= len(data)
                    self.assertEqual(left, 0)
                    close = conn.read_frame()
                    self.assertEqual(close.opcode, CLOSE)
                    conn.send_frame(close.opcode, close.payload)
                self.assertEqual(server.wait(), 0)

    def test_what_a_task_has_sent_before_it_closed(self):
        """A stop does not end a connection of ls.connect that was closed before its last bytes have left, nor one of a replaced site."""
        size = 32 << 20
        for reloads in (False, True):
            with self.subTest(reloads=reloads), socket.create_server(("127.0.0.1", 0)) as listener:
                server = self.serve(
                    "local ls = require 'luaserve' ls.config { drain_timeout = 600 } ls.listen('127.0.0.1:0', ls.app()) "
                    "ls.init(function(reload) if reload then return end local sock = ls.connect('127.0.0.1', %d, "
                    "{ write_ahead = '1g', send_timeout = 600 }) sock:send(('x'):rep(%d)) sock:close() ls.log.info('closed') end)"
                    % (listener.getsockname()[1], size))
                peer, _ = listener.accept()
                with peer:
                    peer.settimeout(WAIT)
                    server.wait_log("closed")
                    if reloads:
                        server.reload("reloaded")
                    server.signal()
                    server.wait_log("draining")
                    got = 0
                    while data := peer.recv(1 << 20):
                        got += len(data)
                self.assertEqual(got, size)
                self.assertEqual(server.wait(), 0)

    def test_a_stop_that_is_not_in_order(self):
        server = self.serve("local ls = require 'luaserve' ls.config { drain_timeout = 0.1 } "
                            "ls.tcp('127.0.0.1:0', function(sock) sock:send('x') ls.sleep(600) end)", flags=("--pid", "p"))
        self.wait_for_file(os.path.join(server.dir, "p"))
        with server.connect() as conn:
            self.assertEqual(conn.take(1), b"x")
            self.command("stop", server, 1, "^luaserve stop: the server has ended with an error; its log has the reason$")
            server.wait_log("the drain took longer than 0.1 s")
            self.assertEqual(server.wait(), 1)

    WAITING = TEXT + """
local part = io.open("part.lua")
if part then part:close() dofile("part.lua") end
"""

    def waits(self, server, *prefix):
        return subprocess.Popen([*prefix, LUASERVE, "reload", "--wait", "--control", os.path.join(server.dir, "c")],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def ends(self, process, status, out, err):
        found = process.communicate(timeout=WAIT)
        self.assertEqual((process.returncode, found[0]), (status, out))
        self.assertRegex(found[1], err)

    @not_on_windows("Windows does not remove a file that is open")
    def test_files_that_were_removed_while_they_are_in_use(self):
        server = self.serve(SITE.replace("@V@", "one").replace("@HTTP@", "0").replace("@MORE@", """
local db, d = ls.sqlite("site.db"), ls.dict("d", { file = "dict.db" })"""))
        for name in "site.db", "dict.db":
            os.remove(os.path.join(server.dir, name))
        self.assertEqual(server.logged("was removed"), [])
        server.reload("reloaded")
        for name in "the database site.db", "the file of a dict, dict.db":
            server.wait_log("warn %s was removed while it is in use" % name)

    @not_on_windows("Wine has no Unix sockets")
    def test_a_reload_that_is_waited_for(self):
        server = self.serve(self.WAITING, listeners=2, flags=("--control", "c"))
        part = os.path.join(server.dir, "part.lua")

        def write(text):
            write_text(part, text)

        self.ends(self.waits(server), 0, "the new site is served\n", "^$")
        write("error('no way')")
        self.ends(self.waits(server), 1, "", "^luaserve reload: .*part.lua:1: no way; the previous site continues\n$")

        # One that is asked for during another waits for a reload that begins after it: the first one's site is broken.
        write("while not io.open('go') do end error('first')")
        idle = self.quiet_fds(server)
        first = self.waits(server)
        before = server.cpu()
        self.eventually(lambda: server.cpu() > before + 0.05, "the first one loads")
        write("")
        second = self.waits(server)
        self.eventually(lambda: server.fds() > idle + 1, "the second one is asked for")
        open(os.path.join(server.dir, "go"), "w").close()
        self.ends(first, 1, "", "first; the previous site continues")
        self.ends(second, 0, "the new site is served\n", "^$")
        server.stop()
        self.ends(self.waits(server), 1, "", "^luaserve reload: cannot connect to .*c: .*; the server must run, with luaserve --control PATH")

    @not_on_windows("Wine has no Unix sockets")
    @unittest.skipIf(not hasattr(os, "getuid") or os.getuid() != 0, "only root can run the command as another user")
    def test_another_user_is_refused(self):
        server = self.serve(self.WAITING, listeners=2, flags=("--control", "c"))
        os.chmod(server.dir, 0o755)
        os.chmod(server.dir + "/c", 0o666)  # its mode is 0600
        self.ends(self.waits(server, "setpriv", "--reuid=65534", "--clear-groups"), 1, "",
                  "^luaserve reload: the server refuses user 65534: run it as the user of the server, or as root\n$")
        server.wait_log("the control socket: refused a connection of user 65534")

    def test_waiting_needs_the_control_socket(self):
        for words, what in ((("--wait",), "--wait needs --control PATH, .*"), (("--control", "c"), "--control belongs to --wait; .*")):
            done = subprocess.run([LUASERVE, "reload", *words], capture_output=True, text=True, timeout=WAIT)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, "^luaserve reload: %s\n$" % what)

    def wait_for_file(self, path):
        self.eventually(lambda: os.path.exists(path) and os.path.getsize(path) > 0, "the file of the process id")

    def test_a_stale_pid_file_is_replaced(self):
        server = self.serve(self.TEXT, listeners=2, flags=("--pid", "p"))
        path = os.path.join(server.dir, "p")
        self.wait_for_file(path)
        server.kill()
        self.assertTrue(os.path.exists(path))
        self.command("status", server, 3, "^not running: no server owns .*p$")
        again = self.serve(self.TEXT, listeners=2, flags=("--pid", path))
        self.wait_for_file(path)
        self.command("status", server, 0, "^running, process id %d$" % process_id(again, path))

    def serve_with_log(self):
        server = self.serve(self.TEXT, listeners=0, flags=("--log", "l"))
        path = os.path.join(server.dir, "l")
        self.log_has(path, "listening on http://[::1]")
        return server, path

    def log_has(self, path, text):
        self.eventually(lambda: os.path.exists(path) and text in read(path), "%r in the log" % text)

    @not_on_windows("Windows has no SIGUSR1")
    def test_the_log_is_opened_again_by_SIGUSR1(self):
        server, path = self.serve_with_log()
        os.rename(path, path + ".1")
        server.signal(signal.SIGUSR1)
        self.eventually(lambda: os.path.exists(path), "a new log")
        self.assertNotIn("listening", read(path))

    def test_the_log_is_opened_again_by_a_reload(self):
        server, path = self.serve_with_log()
        os.rename(path, path + ".1")
        server.reload()
        self.log_has(path, "reloaded")
        self.assertNotIn("listening", read(path))
