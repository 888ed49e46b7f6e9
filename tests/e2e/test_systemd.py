"""What a service manager gives and is told: the socket of sd_notify(3), the stream of the
journal; the program as process 1 of a container; and the unit of the package, run by systemd."""
# sanitizers: none; no memory is shared
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

from harness import E2E, LUASERVE, ROOT, WAIT, app_site, not_on_windows, read_text, write_text

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
            stopping = manager.receive()[0]
            self.assertEqual(stopping["STOPPING"], "1")
            self.assertGreater(int(stopping["EXTEND_TIMEOUT_USEC"]), 15e6, "the default drain_timeout")
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

    def test_an_upgrade_continues_the_container(self):
        server = self.serve(app_site('app:get("/", function() return "ok" end)'), prefix=UNSHARE)
        first = children(server.pid)[0]
        for n in (1, 2):
            before = children(first)
            os.kill(first, signal.SIGUSR2)
            server.wait_log(" info stopped$", count=n)
            self.eventually(lambda: len(children(first)) == 1 and children(first) != before, "only the new process is left")
            self.assertEqual(server.get("/").text, "ok")
        os.kill(first, signal.SIGTERM)
        self.assertEqual(server.wait(), 0)

    def test_the_status_of_an_error(self):
        done = subprocess.run([*UNSHARE, LUASERVE, "/none.lua"], capture_output=True, timeout=WAIT, check=False)
        self.assertEqual(done.returncode, 1)


# Starts systemd as process 1 of a copy of this system, in namespaces of its own. $1: a folder, which it sees as /shared.
SYSTEMD = """set -e
ip link set lo up
mount --make-rprivate /
mount -t tmpfs tmpfs "$1/t"
mkdir "$1/t/up" "$1/t/work" "$1/t/root"
mount -t overlay overlay -o lowerdir=/,upperdir="$1/t/up",workdir="$1/t/work" "$1/t/root"
cd "$1/t/root"
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
for folder in run tmp dev; do mount -t tmpfs tmpfs $folder; done
for node in null zero urandom random full tty; do cp -a /dev/$node dev/; done
ln -s /proc/self/fd dev/fd
mkdir dev/shm dev/pts
touch dev/console
rm -rf etc/systemd/system/* etc/luaserve etc/machine-id usr/sbin/policy-rc.d
echo 0123456789abcdef0123456789abcdef >etc/machine-id
mkdir -p shared old "etc/systemd/system/luaserve@.service.d" etc/luaserve
mount --bind "$1" shared
pivot_root . old
umount -l /old
cp -r /shared/one /shared/two /shared/*.env /etc/luaserve/
chmod 600 /etc/luaserve/*.env
cp /shared/program /usr/local/bin/luaserve
cp /shared/luaserve@.service /shared/probe.service /etc/systemd/system/
cp /shared/here.conf /etc/systemd/system/luaserve@.service.d/
container=test exec chroot . /lib/systemd/systemd --unit=probe.service --show-status=0
"""
# What a system inside namespaces cannot have; the users, the folders and the results are those of the unit.
HERE = "[Service]\n" + "".join(line + "\n" for line in (
    "PrivateDevices=no", "ProtectProc=default", "ProtectKernelTunables=no", "ProtectControlGroups=no", "ProtectKernelLogs=no",
    "ProtectHostname=no", "ProtectClock=no", "ProtectKernelModules=no", "WatchdogSec=5", "TimeoutStopSec=1"))
PROBE = """[Service]
Type=oneshot
ExecStart=/bin/sh /shared/probe.sh
ExecStopPost=/bin/systemctl --force --force poweroff
"""
IN_UNIT = """
local ls = require "luaserve"
local app, items = ls.app(), ls.dict("items", { file = ls.data .. "/items.db" })
ls.config { drain_timeout = tonumber(ls.env "DRAIN") }
app:get("/", function()
  items:incr("n")
  return ls.data .. " " .. io.popen("id -un"):read()
end)
app:get("/run", function(req) return io.popen(req.query.c .. " 2>&1"):read("a") end)
app:get("/slow", function()
  ls.file.write(ls.data .. "/slow", "")
  ls.sleep(60)
end)
ls.listen(tonumber(ls.env "PORT"), app)
ls.listen("unix:" .. ls.env "RUNTIME_DIRECTORY" .. "/http.sock", app)
"""
STEPS = r"""exec >/shared/out 2>&1
step() { printf '\n== %s\n' "$1"; shift; "$@"; }
step start systemctl start luaserve@one luaserve@two
step one curl -s http://127.0.0.1:18401/
step two curl -s http://127.0.0.1:18402/
two=$(systemctl show -p MainPID --value luaserve@two)
for command in "cat /proc/$two/environ" "ls /proc/$two/root/var/lib/private/luaserve/two" "sh -c 'kill -9 $two'" \
    "luaserve reload --wait --control /run/luaserve/two/control" "cat /etc/luaserve/two.env" "cat /var/lib/luaserve/two/items.db"; do
  step "refused ${command%% *}" curl -s -G --data-urlencode "c=$command" http://127.0.0.1:18401/run
done
step reload systemctl reload luaserve@one
(until [ -e /shared/restarted ]; do curl -sS http://127.0.0.1:18402/; echo; curl -sS --unix-socket /run/luaserve/two/http.sock http://h/; echo; curl -sS http://127.0.0.1:18401/; echo; done) >/shared/answers 2>&1 &
loop=$!
for n in 1 2 3; do step restart systemctl restart luaserve@two; done
before=$(systemctl show -p MainPID --value luaserve@two)
step upgrade luaserve upgrade --control /run/luaserve/two/control
while [ -e /proc/$before ]; do sleep 0.01; done
[ $before = "$(systemctl show -p MainPID --value luaserve@two)" ] || step replaced systemctl show -p ActiveState luaserve@two
pids=$(systemctl show -p MainPID --value luaserve@one luaserve@two)
step package sh /shared/luaserve.postinst configure 0.0.1
for pid in $pids; do while [ -e /proc/$pid ]; do sleep 0.01; done; done
step packaged systemctl show -p MainPID,ActiveState luaserve@one luaserve@two
touch /shared/restarted
wait $loop
step sockets systemctl show -p NFileDescriptorStore,NRestarts luaserve@two
until before=$(systemctl show -p MainPID --value luaserve@two) && [ -e /proc/$before ]; do sleep 0.1; done # systemd has read MAINPID
kill -STOP $before
until [ "$(systemctl show -p NRestarts --value luaserve@two)" = 1 ] && systemctl is-active -q luaserve@two; do sleep 0.1; done
step hangs sh -c 'systemctl show -p NRestarts luaserve@two; curl -sS http://127.0.0.1:18402/'
step again sh -c 'systemctl stop luaserve@two; systemctl start luaserve@two; curl -sS http://127.0.0.1:18402/'
curl -s -o /shared/slow -w '%{http_code}' http://127.0.0.1:18401/slow >/shared/status &
until [ -e /var/lib/private/luaserve/one/slow ]; do sleep 0.01; done
step stop systemctl stop luaserve@one
wait $!
step ended systemctl show -p Result,ActiveState luaserve@one
echo 'error "broken"' >>/etc/luaserve/one/site.lua
step broken systemctl start luaserve@one
step end true
"""


def has_systemd():
    """Whether a mount of an overlay in a namespace works here, and there is a systemd to start."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or not os.path.exists("/lib/systemd/systemd") or not has_namespaces():
        return False
    with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as folder:
        script = "mount -t tmpfs t %s && cd %s && mkdir a b c && mount -t overlay o -o lowerdir=/,upperdir=a,workdir=b c" % (folder, folder)
        return subprocess.run(["unshare", "--mount", "--net", "sh", "-c", script], capture_output=True, check=False).returncode == 0


@not_on_windows("it has no systemd")
class Units(E2E):
    """The unit of the package, run by systemd itself."""

    def setUp(self):
        super().setUp()
        if not has_systemd():
            self.skipTest("systemd cannot be started in namespaces here")

    def run_steps(self):
        folder = self.new_folder()
        unit = read_text(os.path.join(ROOT, "src/install/luaserve@.service.in")).replace("@prefix@/@CMAKE_INSTALL_BINDIR@", "/usr/local/bin")
        texts = {"luaserve@.service": unit, "probe.service": PROBE, "probe.sh": STEPS, "here.conf": HERE, "start.sh": SYSTEMD}
        for name, port in (("one", 18401), ("two", 18402)):
            os.mkdir(os.path.join(folder, name))
            texts[name + "/site.lua"] = IN_UNIT
            texts[name + ".env"] = "PORT=%d\nSECRET=of %s\nDRAIN=%g\n" % (port, name, 1.5 if name == "one" else 0.2)
        texts["luaserve.postinst"] = read_text(os.path.join(ROOT, "scripts/debian/luaserve.postinst"))
        for name, text in texts.items():
            write_text(os.path.join(folder, name), text)
        os.mkdir(os.path.join(folder, "t"))
        shutil.copy(LUASERVE, os.path.join(folder, "program"))
        command = ["unshare", "--mount", "--pid", "--net", "--cgroup", "--fork", "--kill-child", "sh", os.path.join(folder, "start.sh"), folder]
        done = subprocess.run(command, capture_output=True, text=True, timeout=4 * WAIT, check=False)
        out = os.path.join(folder, "out")
        self.assertTrue(os.path.exists(out), done.stdout + done.stderr)
        parts = re.split(r"(?m)^== (.*)\n", read_text(out))
        return parts[1::2], [text.strip() for text in parts[2::2]], folder

    def test_two_sites_cannot_reach_each_other(self):
        names, texts, folder = self.run_steps()
        status = read_text(os.path.join(folder, "status"))
        said = dict(zip(names, texts))
        self.assertEqual(names[-1], "end", said)
        self.assertEqual((said["start"], said["one"], said["two"]), ("", "/var/lib/luaserve/one ls-one", "/var/lib/luaserve/two ls-two"))
        for name, text in zip(names, texts):
            if name.startswith("refused"):
                self.assertRegex(text, "[Pp]ermission denied|not permitted|No such file", name)
        self.assertEqual((said["reload"], said["stop"], status), ("", "", "503"))
        self.assertEqual(said["ended"], "Result=success\nActiveState=inactive")
        self.assertIn("failed", said["broken"])
        answers = read_text(os.path.join(folder, "answers")).split("\n")
        self.assertEqual((set(answers), said["restart"]), ({"/var/lib/luaserve/one ls-one", "/var/lib/luaserve/two ls-two", ""}, ""), "no connection fails")
        self.assertRegex(said["package"], r"\A(the new process serves when .*items.db\n?){2}\Z")
        self.assertRegex(said["packaged"], r"\A(MainPID=[1-9][0-9]*\nActiveState=active\n*){2}\Z")
        self.assertEqual(said["hangs"], "NRestarts=1\n" + said["two"])
        self.assertRegex(said["upgrade"], "^the new process serves when the server has ended, and with it the use of .*/items.db$")
        self.assertEqual(said["replaced"], "ActiveState=active")
        self.assertEqual((said["sockets"], said["again"]), ("NFileDescriptorStore=3\nNRestarts=0", said["two"]))
