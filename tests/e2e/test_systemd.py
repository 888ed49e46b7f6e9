"""What a service manager gives and is told: the socket of sd_notify(3), the stream of the
journal; and the program as process 1 of a container."""
# sanitizers: none; no memory is shared
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from harness import E2E, LUASERVE, WAIT, app_site, not_on_windows, read_text, write_text

SITE = """
local ls = require "luaserve"
local app = ls.app()
app:get("/", function() return tostring(os.getenv("NOTIFY_SOCKET")) end)
app:get("/child", function() return io.popen("echo $NOTIFY_SOCKET"):read("a") end)
ls.listen(0, app)
"""
FIELD = re.compile("([A-Z_]+)=(.*)")


class Manager:
    """The socket of a service manager; it takes the credentials of the sender, as systemd does."""

    def __init__(self, path):
        self.path = path
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.socket.bind(path.replace("@", "\0", 1))
        self.socket.settimeout(WAIT)

    def receive(self):
        """The fields of the next datagram, and the process that sent it."""
        data, ancillary, _, _ = self.socket.recvmsg(4096, 256)
        pid = int.from_bytes(ancillary[0][2][:4], "little")
        return dict(FIELD.fullmatch(line).groups() for line in data.decode().split("\n")), pid


@not_on_windows("it has no NOTIFY_SOCKET")
class Notify(E2E):
    def manager(self, path):
        manager = Manager(path)
        self.addCleanup(manager.socket.close)
        return manager

    def write(self, server, text):
        write_text(server.site, text)

    def states_of(self, manager):
        server = self.serve(SITE, listeners=2, env={"NOTIFY_SOCKET": manager.path})
        name = os.path.basename(server.site)
        loading, pid = manager.receive()
        self.assertEqual((list(loading), pid), (["STATUS"], server.pid))
        ready = manager.receive()[0]
        self.assertEqual(ready["READY"], "1")
        self.assertRegex(ready["STATUS"], "^serves .*" + re.escape(name))
        self.assertEqual((server.get("/").text, server.get("/child").text), ("nil", "\n"), "it is not for the site")
        return server

    def test_start_reload_and_stop(self):
        with tempfile.TemporaryDirectory() as folder:
            manager = self.manager(os.path.join(folder, "notify"))
            server = self.states_of(manager)
            before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
            self.write(server, "error('bad\\nREADY=0')")
            server.signal(signal.SIGHUP)
            reloading = manager.receive()[0]
            self.assertEqual(reloading["RELOADING"], "1")
            self.assertGreaterEqual(int(reloading["MONOTONIC_USEC"]), before)
            failed = manager.receive()[0]
            self.assertEqual(failed["READY"], "1")
            self.assertRegex(failed["STATUS"], "^serves the previous site: reload failed: .*bad.*READY=0")
            self.write(server, SITE)
            server.signal(signal.SIGHUP)
            self.assertEqual(manager.receive()[0]["RELOADING"], "1")
            self.assertRegex(manager.receive()[0]["STATUS"], "^serves /")
            server.signal(signal.SIGTERM)
            self.assertEqual(manager.receive()[0]["STOPPING"], "1")
            self.assertEqual(server.wait(), 0)

    def test_an_abstract_socket(self):
        self.states_of(self.manager("@luaserve-test-%d" % os.getpid()))

    def test_a_site_that_fails_is_not_ready(self):
        """Also when ls.init fails, after the listeners are known."""
        with tempfile.TemporaryDirectory() as folder:
            manager = self.manager(os.path.join(folder, "notify"))
            site = SITE + "ls.init(function() error('no') end)"
            server = self.serve(site, listeners=0, env={"NOTIFY_SOCKET": manager.path})
            self.assertEqual(server.wait(), 1)
            said = [manager.receive()[0] for _ in range(2)]
            self.assertEqual([list(one)[0] for one in said], ["STATUS", "STOPPING"])

    def test_a_manager_that_has_gone(self):
        for path in ("/nowhere/notify", "relative", ""):
            with self.subTest(path):
                self.serve(SITE, listeners=2, env={"NOTIFY_SOCKET": path}).stop()


@not_on_windows("it has no journal")
class Journal(unittest.TestCase):
    CODE = """
        local log = require("luaserve").log
        require("luaserve").init(function() log.debug("d") log.info("<0>i") log.warn("w") log.error("e\\n\\nf") end)"""

    def log_of(self, stream):
        """What a program writes whose standard error is a pipe, with the variable stream(device, inode)."""
        reader, writer = os.pipe()
        with open(reader, encoding="utf-8") as text:
            found = os.fstat(writer)
            process = subprocess.Popen([LUASERVE, "--log-level", "debug", "-e", self.CODE], stderr=writer,
                                       env=dict(os.environ, JOURNAL_STREAM=stream(found.st_dev, found.st_ino)))
            os.close(writer)
            lines = text.read().splitlines()
            self.assertEqual(process.wait(WAIT), 0)
        return lines

    def test_entries_have_priorities_and_no_time(self):
        lines = self.log_of("{}:{}".format)
        self.assertEqual([line for line in lines if not re.match("<[67]>(stopped|draining|.*descriptors)", line)],
                         ["<7>d", "<6><0>i", "<4>w", "<3>e", "<3>\t", "<3>\tf"])

    def test_another_stream_is_no_journal(self):
        for stream in (lambda device, inode: "%d:%d" % (device, inode + 1), lambda *_: "", lambda *_: "x:1"):
            lines = self.log_of(stream)
            self.assertRegex("\n".join(lines), r"(?m)^\d{4}-\S+Z warn w$")
            self.assertFalse([line for line in lines if line.startswith("<")])


UNSHARE = ("unshare", "--pid", "--fork", "--kill-child")


def has_namespaces():
    try:
        return subprocess.run([*UNSHARE, "true"], capture_output=True, timeout=WAIT, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def children(pid):
    return [int(word) for word in read_text("/proc/%d/task/%d/children" % (pid, pid)).split()]


@not_on_windows("it has no process 1")
@unittest.skipUnless(has_namespaces(), "unshare(1) cannot make a namespace of processes here")
class ProcessOne(E2E):
    def test_orphans_are_waited_for_and_children_keep_their_status(self):
        server = self.serve(app_site("""
            app:get("/orphan", function() os.execute("(sleep 0.05 & true)") return 204 end)
            app:get("/statuses", function()
              local of_execute = select(3, os.execute("exit 4"))
              return of_execute .. " " .. select(3, io.popen("exit 3"):close())
            end)
"""), prefix=UNSHARE)
        first = children(server.pid)[0]
        program = children(first)
        self.assertEqual(len(program), 1)
        for _ in range(3):
            server.get("/orphan")
            self.assertEqual(server.get("/statuses").text, "4 3")
        self.eventually(lambda: children(first) == program, "no orphan is left")
        self.assertEqual(children(program[0]), [])
        os.kill(first, signal.SIGHUP)
        server.wait_log("reloaded")
        os.kill(first, signal.SIGTERM)
        self.assertEqual(server.wait(), 0)

    def test_the_status_of_an_error(self):
        done = subprocess.run([*UNSHARE, LUASERVE, "/none.lua"], capture_output=True, timeout=WAIT, check=False)
        self.assertEqual(done.returncode, 1)
