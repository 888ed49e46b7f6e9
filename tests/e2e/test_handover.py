"""Restarts without a gap: the sockets that a service manager keeps or passes (LISTEN_FDS, FDSTORE), its watchdog, and upgrades.

HANDOVER_ROUNDS=50 HANDOVER_CLIENTS=50 have each test do that many restarts under that many clients of each kind."""
# sanitizers: asan; the threads of a restart are those of a start and a stop
import array
import contextlib
import os
import re
import shutil
import signal
import socket
import sys
import threading
import time

from harness import LUASERVE, E2E, Conn, beside, not_on_windows, read_text, repeats, run_program, system, write_text
from harness.websocket import CloseFrame, WebSocket

ROUNDS = int(os.environ.get("HANDOVER_ROUNDS", repeats(3)))
CLIENTS = int(os.environ.get("HANDOVER_CLIENTS", repeats(4)))
SITE = """
local ls = require "luaserve"
local app, draining = ls.app(), false
ls.on("drain", function() draining = true end)
app:get("/", function() return "hello\\n" end)
app:get("/poll", function()
  local last = ls.now() + 1
  repeat ls.sleep(0.02) until draining or ls.now() > last
  return "polled\\n"
end)
app:ws("/ws", { message = function(ws, text) ws:send(text) end })
ls.listen(0, app)
ls.listen { host = "unix:@DIR@/http.sock", handler = app }
ls.udp({ host = "127.0.0.1", port = 0 }, function(data) return data end)
"""
# Gets descriptors from the manager at the socket argv[1], as systemd passes them, and runs the program.
LAUNCH = """
import os, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(sys.argv[1])
names, fds, _, _ = socket.recv_fds(link, 65536, 64)
link.close()
high = [os.dup2(fd, 100 + n) for n, fd in enumerate(fds)]
for n, fd in enumerate(high):
    os.dup2(fd, 3 + n)
if fds:
    os.environ.update(LISTEN_FDS=str(len(fds)), LISTEN_FDNAMES=names[1:].decode(), LISTEN_PID=str(os.getpid()))
os.environ.update(word.split("=", 1) for word in os.environ.pop("ALSO", "").split())
os.execv(sys.argv[2], sys.argv[2:])
"""


class Manager:
    """A service manager: it keeps the descriptors that a server stores, and passes them to the next one. .messages has the
    fields of each datagram."""

    def __init__(self, folder):
        self.path, self.launcher = folder + "/notify", folder + "/launch"
        self.messages, self.news = [], threading.Condition()
        self.store = {}
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(self.path)
        self.launches = socket.socket(socket.AF_UNIX)
        self.launches.bind(self.launcher)
        self.launches.listen()
        self.env = {"NOTIFY_SOCKET": self.path, "FDSTORE": "16"}
        self.prefix = (sys.executable, "-c", LAUNCH, self.launcher)
        for loop in (self.receive, self.launch):
            threading.Thread(target=loop, daemon=True).start()

    def receive(self):
        while True:
            data, ancillary, _, _ = self.notify.recvmsg(4096, socket.CMSG_SPACE(4))
            if data == b"end":
                return
            fields = dict(line.split("=", 1) for line in data.decode().split("\n"))
            with self.news:
                for _, _, passed in ancillary:
                    self.keep(fields["FDNAME"], array.array("i", passed)[0])
                if "FDSTOREREMOVE" in fields:
                    os.close(self.store.pop(fields["FDNAME"]))
                self.messages.append(fields)
                self.news.notify_all()

    def keep(self, name, fd):
        """As systemd does, not twice the same socket."""
        if any(os.path.sameopenfile(fd, kept) for kept in self.store.values()):
            os.close(fd)
        else:
            self.store[name] = fd

    def launch(self):
        while True:
            link, _ = self.launches.accept()
            with link, self.news:
                names = list(self.store)
                socket.send_fds(link, [b" " + ":".join(names).encode()], [self.store[name] for name in names])

    def wait(self, condition, timeout=90):
        with self.news:
            if not self.news.wait_for(lambda: condition(self), timeout):
                raise AssertionError("%r\n%r" % (self.store, self.messages[-20:]))

    def close(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"end", self.path)
        for fd in self.store.values():
            os.close(fd)
        self.notify.close()
        self.launches.close()


class Load:
    """Clients that never stop: requests on connections that stay open, long polls, and WebSockets, which connect again after a
    close with 1012. .failures lists what else has happened."""

    def __init__(self, where, clients=CLIENTS):
        self.where, self.ended = where, threading.Event()
        self.done = {kind: 0 for kind in ("/", "/poll", "ws", "restarted")}
        self.failures = []
        self.threads = [threading.Thread(target=self.run, args=(one, kind), daemon=True)
                        for one, kind in ((self.ask, "/"), (self.ask, "/poll"), (self.talk, "ws")) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def run(self, one, kind):
        try:
            while not self.ended.is_set():
                one(kind)
        except Exception as error:  # each kind of it is a failure
            self.failures.append("%s: %s: %s" % (kind, type(error).__name__, error))

    def ask(self, target):
        with Conn(self.where) as conn:
            while not self.ended.is_set():
                response = conn.get(target)
                if response.status != 200:
                    self.failures.append(repr(response))
                self.done[target] += 1
                if response.closes:
                    return

    def talk(self, kind):
        with WebSocket(self.where, "/ws") as ws:
            try:
                while not self.ended.is_set():
                    ws.send("hello")
                    ws.receive()
                    self.done[kind] += 1
                    time.sleep(0.01)
            except CloseFrame as frame:
                if frame.code != 1012:
                    raise
                self.done["restarted"] += 1

    def proceeds(self):
        """Whether a client of each kind has got an answer since the last call."""
        before, self.seen = getattr(self, "seen", {}), dict(self.done)
        return all(self.seen[kind] > before.get(kind, 0) for kind in ("/", "/poll", "ws"))

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join(90)
        return self.failures


def end(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def udp_port(server):
    return int(server.wait_log("listening on udp://").rsplit(":", 1)[1])


class Handover(E2E):
    def manager(self):
        manager = Manager(self.new_folder())
        self.addCleanup(manager.close)
        return manager

    def proceeds(self, load):
        load.proceeds()
        self.eventually(lambda: load.failures or load.proceeds(), "answers of each kind: %r %r" % (load.done, load.failures))

    def ends_without_failure(self, load, name):
        failures = load.end()
        print("%s: %r" % (name, load.done) if "HANDOVER_ROUNDS" in os.environ else "", end="", file=sys.stderr)
        self.assertEqual(failures, [], load.done)


@not_on_windows("it has no service manager that keeps sockets")
class Restarts(Handover):
    def start(self, manager, site=SITE, env=(), **how):
        return self.serve(site, prefix=manager.prefix, env={**manager.env, **dict(env)}, **how)

    def again(self, manager, server, **how):
        """The next process of a server that was stopped."""
        folder, path = server.dir, server.site
        server.signal()
        self.assertEqual(server.wait(), 0, server.log())
        server.check_reports()
        return self.start(manager, None, site_path=path, cwd=folder, **how)

    def test_no_request_fails_and_the_backlog_waits(self):
        manager = self.manager()
        server = first = self.start(manager, listeners=3)
        where, port = server.at(), udp_port(server)
        manager.wait(lambda m: len(m.store) == 4)
        kept = dict(manager.store)
        load = Load(where)
        for _ in range(ROUNDS):
            self.proceeds(load)
            server = self.again(manager, server, listeners=3)
            self.assertEqual((server.at(), udp_port(server)), (where, port))
        self.proceeds(load)
        self.ends_without_failure(load, "restarts")
        self.assertGreaterEqual(load.done["restarted"], ROUNDS)
        self.assertEqual(manager.store, kept, "they are the same sockets")
        # Between two processes: a connection, a path and a datagram wait.
        server.signal()
        self.assertEqual(server.wait(), 0)
        with Conn(where) as tcp, Conn(first.dir + "/http.sock") as unix, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            for conn in (tcp, unix):
                conn.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            udp.settimeout(90)
            udp.sendto(b"waits", ("127.0.0.1", port))
            self.start(manager, None, site_path=server.site, listeners=3)
            self.assertEqual((tcp.response().status, unix.response().status, udp.recv(99)), (200, 200, b"waits"))

    def test_a_listener_that_the_site_has_no_more_leaves_the_store(self):
        manager = self.manager()
        server = self.start(manager, listeners=3)
        manager.wait(lambda m: len(m.store) == 4)
        http_only = SITE.split("ls.listen { host")[0]
        write_text(server.site, http_only)
        server.reload("reloaded")
        manager.wait(lambda m: len(m.store) == 2)
        self.assertFalse(os.path.exists(server.dir + "/http.sock"))
        write_text(server.site, http_only.replace("ls.listen(0, app)", "ls.listen(\"127.0.0.1:0\", app)"))
        where = server.at()
        server = self.again(manager, server)
        self.assertEqual(server.at(), where)
        server.wait_log(r"closed the inherited descriptor 4 \(ls-tcp-.*\): no listener of the site has its address, \[::1\]")
        manager.wait(lambda m: len(m.store) == 1)

    def test_sockets_of_a_unit(self):
        """They are used by their address, are not stored, and their path is not removed: they belong to the manager."""
        manager, folder = self.manager(), self.new_folder()
        for name, where in (("web", ("127.0.0.1", 0)), ("path", folder + "/unit.sock"), ("spare", ("127.0.0.1", 0))):
            bound = socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET)
            bound.bind(where)
            bound.listen()
            manager.store[name + ".socket"] = bound.detach()
        connection, other = socket.socketpair()
        self.addCleanup(other.close)
        manager.store["connection"] = connection.detach()
        with socket.socket(fileno=os.dup(manager.store["web.socket"])) as web:
            port = web.getsockname()[1]
        site = "local ls = require 'luaserve'\nlocal app = ls.app()\napp:get('/', function() return 'ok' end)\n" \
               "ls.listen('127.0.0.1:%d', app)\nls.listen('unix:%s/unit.sock', app)\n" % (port, folder)
        server = self.start(manager, site, listeners=2)
        self.assertEqual([server.get("/", index=n).text for n in (0, 1)], ["ok", "ok"])
        server.wait_log(r"closed the inherited descriptor 5 \(spare.socket\): no listener of the site has its address, 127")
        server.wait_log(r"closed the inherited descriptor 6 \(connection\): it does not listen; a socket unit needs Accept=no$")
        server.stop()
        self.assertTrue(os.path.exists(folder + "/unit.sock"))
        self.assertEqual([m for m in manager.messages if "FDSTORE" in m], [])

    def test_wrong_variables(self):
        manager = self.manager()
        for also, message in (
                ("LISTEN_FDS=x", 'luaserve: LISTEN_FDS is "x": a number of descriptors from 0 to 4096 was expected; '),
                ("LISTEN_FDS=4097", 'LISTEN_FDS is "4097": a number'), ("LISTEN_FDS=", 'LISTEN_FDS is "": a number'),
                ("LISTEN_FDS=4096", 'LISTEN_FDS is "4096", but fewer descriptors than that are open from 3 on; start the site by a unit of systemd, or ')):
            manager.store["any"] = os.open("/dev/null", os.O_RDONLY)
            server = self.start(manager, "error 'not loaded'", {"ALSO": also}, listeners=0)
            self.assertEqual(server.wait(), 1)
            self.assertIn(message, server.log())
            os.close(manager.store.pop("any"))
        for also in ("LISTEN_FDS=1", "LISTEN_FDS=1 LISTEN_PID=1"):
            server = self.start(manager, SITE, {"ALSO": also}, listeners=3)
            server.wait_log('LISTEN_FDS is ignored: LISTEN_PID is "1?", and this process is %d' % server.pid)
            server.stop()

    def test_a_store_that_is_too_small(self):
        manager = self.manager()
        server = self.start(manager, env={"FDSTORE": "1"}, listeners=3)
        manager.wait(lambda m: any("READY" in message for message in m.messages))
        self.assertEqual(len(manager.store), 1)
        server.stop()
        self.assertFalse(os.path.exists(server.dir + "/http.sock"), "what nobody keeps is removed")


@not_on_windows("it has no service manager with a watchdog")
class Watchdog(Handover):
    def test_it_is_fed_while_a_thread_takes_packets(self):
        """Also while all threads that may run handlers compute; the variables may be for another process."""
        site = """
local ls = require "luaserve"
local app = ls.app()
ls.config { threads = 1, threads_max = 2, max_cpu = 3600 }
app:get("/", function() while not io.open("@DIR@/go") do end return "" end)
ls.listen(0, app)
"""
        manager = self.manager()

        def feeds():
            return sum("WATCHDOG" in fields for fields in manager.messages)

        other = self.serve(site, env={**manager.env, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}, listeners=2)
        server = self.serve(site, env={**manager.env, "WATCHDOG_USEC": "400000"}, listeners=2)
        manager.wait(lambda m: feeds() >= 3)
        busy = [server.connect() for _ in range(2)]
        for conn in busy:
            conn.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        seen = feeds()
        manager.wait(lambda m: feeds() >= seen + 3)
        write_text(server.dir + "/go", "")
        for conn in busy:
            self.assertEqual(conn.response().status, 200)
        server.stop()
        seen = feeds()
        self.assertEqual(other.get("/none").status, 404)
        other.stop()
        self.assertEqual(feeds(), seen)


@not_on_windows("it cannot pass listeners to another process")
class Upgrades(Handover):
    FLAGS = ("--control", "control", "--pid", "pid")

    def command(self, server, *how):
        """The status and the output of `luaserve upgrade`."""
        return run_program(["upgrade", *(how or ("--control", server.dir + "/control"))], cwd=server.dir)

    def upgraded(self, server, *how):
        """Upgrade it, wait until the process before has ended, and return the id of the new one."""
        pid, mark = read_text(server.dir + "/pid"), server.mark()
        self.assertEqual(self.command(server, *how)[0], 0, server.log())
        new = int(re.search(r"process (\d+)", server.wait_log(r"upgrade: process \d+ serves", mark))[1])
        self.addCleanup(end, new)
        server.wait_log(" info stopped", mark)
        self.eventually(lambda: read_text(server.dir + "/pid") not in ("", pid), "the file has the new process")
        self.assertEqual(read_text(server.dir + "/pid"), "%d\n" % new)
        return new

    def ends(self, server, pid):
        """The last process of the server ends in order."""
        mark = server.mark()
        os.kill(pid, signal.SIGTERM)
        server.wait_log(" info stopped$", mark)
        server.reader.join(90)  # the end of its standard error
        self.assertEqual(server.process.wait(90), 0)
        server.stopped = True
        server.check_reports()

    def test_no_request_fails(self):
        """TCP, Unix and UDP; the new process gets no more than the old one had."""
        server = self.serve(SITE, flags=self.FLAGS, listeners=3)
        where, port, held = server.at(), udp_port(server), system.descriptors(server.pid)
        load = Load(where)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.settimeout(90)
            for n in range(ROUNDS):
                self.proceeds(load)
                pid = self.upgraded(server, *(("--pid", "pid") if n % 2 else ()))
                udp.sendto(b"%d" % n, ("127.0.0.1", port))
                self.assertEqual(udp.recv(99), b"%d" % n)
                with Conn(server.dir + "/http.sock") as conn:
                    self.assertEqual(conn.get("/").status, 200)
        self.proceeds(load)
        self.ends_without_failure(load, "upgrades")
        self.assertGreaterEqual(load.done["restarted"], ROUNDS)
        self.eventually(lambda: system.descriptors(pid) <= held, "descriptors: %d" % held)
        self.ends(server, pid)
        self.assertEqual(sorted(os.listdir(server.dir)), ["site.lua", "stdout"])

    def test_reloads(self):
        server = self.serve(SITE, listeners=3)
        load = Load(server.at())
        for _ in range(ROUNDS):
            self.proceeds(load)
            server.reload("reloaded")
        self.proceeds(load)
        self.ends_without_failure(load, "reloads")

    def test_a_program_that_fails_leaves_the_old_one(self):
        program, folder = shutil.copy(LUASERVE, self.new_folder() + "/program"), self.new_folder()
        site = SITE + "ls.config { load_timeout = 60 } ls.init(function() %s end)\n"
        server = self.serve(site % "", program=[program], flags=self.FLAGS, listeners=3)

        def replace(text):
            write_text(folder + "/new", text)
            os.chmod(folder + "/new", 0o755)
            os.replace(folder + "/new", program)

        def fails(message):
            status, out, err = self.command(server)
            self.assertEqual((status, out), (1, ""))
            self.assertRegex(err, "luaserve upgrade: " + message + "; the server continues")
            server.wait_log("upgrade failed: " + message + "; this process continues", mark)
            self.assertEqual((server.get("/").status, server.alive()), (200, True))

        for text, message in (("#!/nonexistent\n", "cannot start .*program: No such file or directory"),
                              ("#!/bin/sh\nexit 7\n", "the new process has ended before it served: exit status 7"),
                              ("#!/bin/sh\nkill -9 $$\n", r"the new process has ended before it served: signal 9 \(Killed\)"),
                              ("#!/bin/sh\nexec sleep 1000\n", r"the new process did not serve within load_timeout \(0.2 s\)")):
            if "sleep" in text:
                write_text(server.site, site.replace("timeout = 60", "timeout = 0.2") % "")
                server.reload("reloaded")
            replace(text)
            mark = server.mark()
            fails(message)
        write_text(server.site, site % "")
        server.reload("reloaded")
        os.replace(shutil.copy(LUASERVE, folder + "/new"), program)
        for text, message in (("error 'broken'", "ls.init failed: .*: broken"), ("end end", r"site.lua:\d+: '\)' expected near 'end'")):
            write_text(server.site, site % text)
            mark = server.mark()
            fails(".*" + message)
        write_text(server.site, site % "")
        pid = self.upgraded(server)
        self.assertEqual(server.get("/").status, 200)
        self.ends(server, pid)

    def test_a_second_upgrade_and_a_reload_are_refused(self):
        wait = "while not io.open('@DIR@/go') do ls.sleep(0.01) end"
        server = self.serve(SITE + "ls.init(function() if io.open('@DIR@/slow') then %s end end)" % wait, flags=self.FLAGS, listeners=3)
        write_text(server.dir + "/slow", "")
        done = []
        with beside(lambda: done.append(self.command(server))):
            server.wait_log(r"upgrade: process \d+ loads the site")
            self.assertRegex(self.command(server)[2], "another upgrade is under way; the server continues")
            server.signal(signal.SIGUSR2)
            server.wait_log("no upgrade: another upgrade is under way", count=2)
            write_text(server.dir + "/go", "")
        self.assertEqual(done[0][:2], (0, "the new process serves\n"))
        pid = int(re.search(r"process (\d+) serves", server.wait_log(r"process \d+ serves"))[1])
        self.addCleanup(end, pid)
        server.wait_log(" info stopped")
        os.remove(server.dir + "/go")
        mark = server.mark()
        os.kill(pid, signal.SIGUSR2)  # a stop ends the upgrade
        server.wait_log(r"upgrade: process \d+ loads the site", mark)
        os.kill(pid, signal.SIGTERM)
        server.wait_log("upgrade failed: the server stops", mark)
        server.reader.join(90)
        server.stopped = True
        self.assertEqual(server.process.wait(90), 0)

    def test_a_file_that_belongs_to_one_process(self):
        """The new one waits for it, and connections wait as well."""
        server = self.serve(SITE.replace("ls.listen(0", """
local items = ls.dict("items", { file = "@DIR@/items.db" })
app:get("/count", function() return tostring(items:incr("n")) end)
app:get("/slow", function() ls.sleep(0.3) return tostring(items:incr("n")) end)
ls.listen(0"""), flags=self.FLAGS, listeners=3)
        self.assertEqual(server.get("/count").text, "1")
        with server.connect() as slow, server.connect() as waiting:
            slow.send(b"GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
            status, out, _ = self.command(server)
            self.assertEqual(status, 0)
            self.assertRegex(out, "the new process serves when the server has ended, and with it the use of .*items.db")
            pid = int(re.search(r"process (\d+)", server.wait_log("serves when this one has ended"))[1])
            self.addCleanup(end, pid)
            self.assertEqual((slow.response().text, server.get("/count").text), ("2", "3"))
        self.ends(server, pid)

    def test_dicts_are_handed_over(self):
        """With what modules keep in them; what the new process has written stays. One that comes later has its own options."""
        server = self.serve("""
local ls = require "luaserve"
local app, kept, lists = ls.app(), ls.dict "kept", ls.dict("lists", { size = "1m" })
app:use(ls.session { store = ls.dict "sessions" })
ls.init(function() kept:set("loads", (kept:get "loads" or 0) + 1) kept:set("pid", "init") end)
app:get("/fill", function(req)
  kept:set("table", { 1, { a = ls.json.array {} } }) kept:set(7, 1.5, 1000) kept:set("no", false)
  lists:rpush("l", "a", 2, true)
  ls.dict("late", { size = "2m" }):set("x", ("x"):rep(100000))
  req.session.user = "ada"
end)
app:get("/", function(req)
  local late = ls.dict("late", { size = "@SIZE@" }):get "x"
  return { kept:get "table", kept:get(7), kept:ttl(7) > 900, kept:get "no", lists:range "l", #late, req.session.user }
end)
app:get("/loads", function() return kept:get "loads" .. kept:get "pid" end)
app:get("/limited", require "luaserve.rate_limit" { limit = 1, per = 1000, burst = 1 }, function() return "in" end)
app:metrics "/metrics"
ls.listen("127.0.0.1:0", app)
""".replace("@SIZE@", "2m"), flags=self.FLAGS)
        expected = '[[1,{"a":[]}],1.5,true,false,["a",2,true],100000,"ada"]'
        cookie = [("Cookie", server.get("/fill").header("Set-Cookie").split(";")[0])]
        self.assertEqual((server.get("/", cookie).text, server.get("/loads").text, server.get("/limited").status), (expected, "1init", 200))
        write_text(server.site, read_text(server.site).replace('size = "2m" }):get', 'size = "3m" }):get'))
        pid = self.upgraded(server)
        server.wait_log("upgrade: took over [0-9]+ entries of dicts$")
        self.assertEqual((server.get("/", cookie).text, server.get("/loads").text, server.get("/limited").status), (expected, "1init", 429))
        self.assertNotIn('route="/fill"', server.get("/metrics").text)
        self.ends(server, pid)

    def test_the_service_manager_is_told_the_main_process(self):
        manager = self.manager()
        server = self.serve(SITE, prefix=manager.prefix, env=manager.env, flags=self.FLAGS, listeners=3)
        manager.wait(lambda m: len(m.store) == 4 and any("READY" in message for message in m.messages))
        seen, kept = len(manager.messages), dict(manager.store)
        pid = self.upgraded(server)
        manager.wait(lambda m: any("READY" in message for message in m.messages[seen:]))
        told = [message for message in manager.messages[seen:] if "FDSTORE" not in message]
        self.assertEqual([list(message.items())[0] for message in told], [("MAINPID", str(pid)), ("READY", "1")])
        self.assertEqual(manager.store, kept)
        os.kill(pid, signal.SIGTERM)
        server.reader.join(90)
        server.stopped = True
        self.assertEqual(server.process.wait(90), 0)
