"""The first command, scripts/serve, on a machine that has nothing: what it installs, builds, says and leaves behind.
scripts/setup asks before it installs, and no service starts or is enabled. scripts/package packages the profiled build.
scripts/test shows its stages, and the logs of those that fail."""
# sanitizers: none; it builds the program itself
# long; it builds the program and installs packages
# not quick; who runs scripts/test has seen it
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import urllib.request

from harness import E2E, ROOT, SANITIZER, needs_terminal, not_on_windows, pty, read_text, write_text
from harness.install import run
from harness.root import BareRoot, Root
from harness.screen import drawn_on

MINUTES = 60
PACKAGES_MAX = 120
OUTPUTS_MAX = 385
STAGES = ("installing \\d+ packages", "fetching the sources of Lua", "configuring", "building luaserve")
SCRIPTS = "setup stages".split()

# Programs that write their command lines to the file @LOG@.
RECORD = """#!/bin/sh
echo "${0##*/} $*" >>@LOG@
"""
# The links of units are made and removed without a running systemd.
SYSTEMCTL = RECORD + """case "$*" in
--root=/*) [ ! -x /usr/bin/systemctl.real ] || exec /usr/bin/systemctl.real "$@" ;;
esac
"""
# Calls the compiler: the subject is what is compiled and with which packages, and optimisation takes most of the time.
NOT_OPTIMISED = '#!/bin/sh\nexec "$@" -O0 -g0\n'
LINKS = ["find", "/etc/systemd/system", "/etc/rc2.d", "/etc/rc3.d", "/etc/rc4.d", "/etc/rc5.d", "-type", "l"]


def copy_of_the_tree(where):
    """Without the builds and the history: a source archive."""
    return shutil.copytree(ROOT, where, ignore=lambda directory, _: ["build", ".git"] if directory == ROOT else [])


def starting(links):
    """Of the paths of links those with which a service starts: units, and init scripts that a runlevel starts."""
    return {link for link in links.split() if not re.search(r"/rc\d\.d/K", link)}


@not_on_windows("its packages are those of Debian")
@unittest.skipIf(SANITIZER, "it builds the program itself")
class FirstCommand(E2E):
    def in_root(self, *command):
        return run([*self.root.enter, *command])

    def serve(self):
        """Runs scripts/serve until it listens. -> the lines before, the URL; the server ends with the test"""
        child = subprocess.Popen([*self.root.enter, "env", "TMPDIR=" + self.temporary, "CMAKE_C_COMPILER_LAUNCHER=" + self.launcher,
                                  self.tree + "/scripts/serve", self.tree + "/examples/site.lua", "127.0.0.1:0"],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.terminate)
        lines = []
        for line in child.stdout:
            if " listening on " in line:
                return child, lines, line.split()[-1]
            lines.append(line.rstrip("\n"))
        raise AssertionError("scripts/serve ended with status %d: %s" % (child.wait(), "\n".join(lines)))

    def answer(self, url):
        with urllib.request.urlopen(url, timeout=MINUTES) as response:
            return response.status

    def test_t9_a_bare_system_gets_no_network_server(self):
        self.root = BareRoot()
        self.addCleanup(self.root.close)
        where = self.new_folder()
        self.tree = copy_of_the_tree(os.path.join(where, "luaserve"))
        self.temporary = os.path.join(where, "tmp")
        os.mkdir(self.temporary)
        self.launcher = os.path.join(where, "not-optimised")
        write_text(self.launcher, NOT_OPTIMISED)
        os.chmod(self.launcher, 0o755)
        packages, links = self.packages(), self.in_root(*LINKS)

        child, lines, url = self.serve()
        self.assertEqual(self.answer(url), 200)
        child.terminate()
        self.assertEqual(child.wait(), 0)
        self.assertRegex("\n".join(lines), "^" + "\n".join(stage + r" +\d+\.\d s(  \(\d+ steps\))?" for stage in STAGES) + "$")
        added = self.packages() - packages
        self.assertLessEqual(len(added), PACKAGES_MAX)
        self.assertEqual([name for name in added if re.match("nginx|haproxy|redis|postgresql-[0-9]", name)], [])
        with open(self.tree + "/build/.ninja_log", encoding="utf-8") as log:
            outputs = {line.split("\t")[3] for line in log if not line.startswith("#")}
        self.assertTrue(outputs)
        self.assertLessEqual(len(outputs), OUTPUTS_MAX)
        self.assertEqual([name for name in os.listdir(self.tree + "/build") if name.startswith("libluaserve") or name == "tests"], [])
        self.assertEqual(starting(self.in_root(*LINKS)) - starting(links), set())
        self.assertEqual(os.listdir(self.temporary), [])

        with self.subTest("a second time there is nothing to do"):
            configured = os.stat(self.tree + "/build/build.ninja").st_mtime_ns
            log = os.path.join(where, "calls")
            for program in "/usr/bin/apt-get", "/usr/lib/apt/apt-helper":
                self.root.write(program, RECORD.replace("@LOG@", log))
            child, lines, url = self.serve()
            self.assertEqual((self.answer(url), lines), (200, []))
            child.terminate()
            self.assertEqual(os.stat(self.tree + "/build/build.ninja").st_mtime_ns, configured)
            self.assertFalse(os.path.exists(log))

        with self.subTest("an error of the compiler"):
            with open(self.tree + "/src/cli/main.c", "a", encoding="utf-8") as source:
                source.write("#error broken by a test\n")
            done = subprocess.run([*self.root.enter, self.tree + "/scripts/serve"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=10 * MINUTES, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("error: #error broken by a test", done.stderr)
            log = self.tree + "/build/build.log"
            self.assertTrue(done.stderr.endswith("build: building luaserve: failed; the log is %s\n" % log), done.stderr)
            self.assertIn("#error broken by a test", read_text(log))

    def packages(self):
        return set(self.in_root("dpkg-query", "-W", "-f", "${Package}\n").split())


@not_on_windows("its packages are those of Debian")
@unittest.skipIf(SANITIZER, "it runs no program of the build")
@unittest.skipUnless(shutil.which("redis-server"), "redis-server is not installed; scripts/setup --test installs it")
class Services(E2E):
    """scripts/setup installs nginx and HAProxy, which have services, where Redis was installed by the user."""

    def setUp(self):
        self.root = Root()
        self.addCleanup(self.root.close)
        self.where = self.new_folder()
        os.mkdir(self.where + "/scripts")
        for name in SCRIPTS:
            shutil.copy(os.path.join(ROOT, "scripts", name), self.where + "/scripts")
        self.in_root("rm", "-f", "/usr/sbin/policy-rc.d", "/var/lib/man-db/auto-update")
        self.remove()
        self.in_root("env", "DPKG_MAINTSCRIPT_PACKAGE=redis-server", "deb-systemd-helper", "enable", "redis-server.service")
        self.in_root("update-rc.d", "redis-server", "enable")
        self.log = self.where + "/calls"

    def in_root(self, *command):
        return run([*self.root.enter, *command])

    def remove(self):
        self.in_root("sh", "-c", "dpkg --purge --force-depends $(dpkg-query -W -f '${Package}\\n' | grep -E 'nginx|resty|^haproxy$') 2>&1")
        self.assertFalse(re.search("nginx|haproxy", self.in_root(*LINKS)))

    def install(self):
        """-> what the packages asked systemd and the init scripts to do"""
        before = starting(self.in_root(*LINKS))
        self.assertEqual(len([link for link in before if "redis" in link]), 6, before)
        try:
            done = self.in_root(self.where + "/scripts/setup", "nginx-light", "haproxy", "redis-server")
        except AssertionError as error:
            if "Unable to fetch" in str(error):
                self.skipTest("apt cannot reach its mirror")
            raise
        self.assertRegex(done, r"^installing 2 packages +\d+\.\d s\n$")
        self.assertTrue(self.in_root("sh", "-c", "ls /usr/sbin/nginx /usr/sbin/haproxy"))
        self.assertEqual(starting(self.in_root(*LINKS)), before)
        self.assertFalse(re.search("nginx|haproxy|redis", self.in_root("find", "/etc/systemd/system", "-lname", "/dev/null")))
        self.assertEqual(self.in_root("sh", "-c", "ls /usr/sbin/policy-rc.d 2>&1 || true").count("No such file"), 1)
        if not os.path.exists(self.log):
            return ""
        return read_text(self.log)

    def test_with_systemd(self):
        self.in_root("mkdir", "-p", "/run/systemd/system")
        self.in_root("sh", "-c", "[ ! -e /usr/bin/systemctl ] || mv /usr/bin/systemctl /usr/bin/systemctl.real")
        self.root.write("/usr/bin/systemctl", SYSTEMCTL.replace("@LOG@", self.log))
        self.in_root("chmod", "755", "/usr/bin/systemctl")
        calls = self.install()
        self.assertIn("systemctl --system daemon-reload\n", calls)
        self.assertFalse(re.search(r"(?m)\b(start|restart)\b.*(nginx|haproxy)", calls), calls)

    def test_without_systemd(self):
        self.in_root("rm", "-rf", "/run/systemd", "/usr/bin/systemctl", "/bin/systemctl")
        self.install()
        self.assertEqual(self.in_root("sh", "-c", "cat /run/nginx.pid /run/haproxy.pid 2>/dev/null || true"), "")


@not_on_windows("it has no sudo")
@unittest.skipIf(SANITIZER, "it runs no program of the build")
class Question(E2E):
    """scripts/setup of a user who is not root, where the package luaserve-test-package is missing."""

    PACKAGE = "luaserve-test-package"

    def setUp(self):
        self.where = self.new_folder()
        self.log = self.where + "/calls"
        self.program("id", "echo 1000")
        self.program("sudo", 'echo "$*" >>%s' % self.log)
        self.setup = os.path.join(ROOT, "scripts", "setup")

    def program(self, name, text):
        path = os.path.join(self.where, name)
        write_text(path, "#!/bin/sh\n%s\n" % text)
        os.chmod(path, 0o755)

    def env(self):
        return dict(os.environ, PATH=self.where + ":" + os.environ["PATH"], TMPDIR=self.where)

    def calls(self):
        if not os.path.exists(self.log):
            return []
        return read_text(self.log).splitlines()

    def without_terminal(self, *options):
        return subprocess.run([self.setup, *options], env=self.env(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)

    def test_without_a_terminal_it_names_the_command(self):
        done = self.without_terminal(self.PACKAGE)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr, "scripts/setup: these packages are missing: {0}\nTo install them, run as root: {1} {0}\n".format(
            self.PACKAGE, self.setup))
        self.assertEqual(self.calls(), [])

    def test_yes_needs_no_terminal(self):
        done = self.without_terminal("--yes", self.PACKAGE)
        self.assertEqual(done.returncode, 0, done)
        self.assertEqual(self.calls(), ["-n -v", "-n %s --install %s" % (self.setup, self.PACKAGE)])

    def test_without_sudo(self):
        for name in "dpkg-query", "apt-get", "sed", "sort", "comm", "bash", "dirname", "env":
            os.symlink(shutil.which(name), os.path.join(self.where, name))
        os.remove(os.path.join(self.where, "sudo"))
        done = subprocess.run([self.setup, "--yes", self.PACKAGE], env=dict(self.env(), PATH=self.where), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 1, done)
        self.assertIn("run as root: %s %s" % (self.setup, self.PACKAGE), done.stderr)

    def test_nothing_is_missing(self):
        done = self.without_terminal("bash", "coreutils")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    @needs_terminal
    def test_on_a_terminal_it_asks_once(self):
        for answer, status, calls in (("n", 1, []), ("", 1, []), ("y", 0, ["-v", "%s --install %s" % (self.setup, self.PACKAGE)])):
            with self.subTest(answer=answer):
                text, ended = on_a_terminal([self.setup, self.PACKAGE], self.env(), answer + "\n")
                self.assertEqual((ended, self.calls()), (status, calls), text)
                self.assertEqual(text.count("[y/N]"), 1)
                self.assertIn("these packages are missing: " + self.PACKAGE, text)

    @needs_terminal
    def test_a_stage_counts_the_steps_of_ninja_in_one_line(self):
        script = """. %s/scripts/stages; stage_log=%s/stage.log; : >$stage_log
            stage "building x" printf '[1/2] one\\n[2/2] two\\n'; stage "building y" echo "ninja: no work to do."; stage "z" sh -c 'echo why; exit 3'
            """ % (ROOT, self.where)
        text, status = on_a_terminal(["bash", "-euc", script, "name"], self.env(), "")
        lines = text.replace("\r\n", "\n").split("\n")
        self.assertEqual(status, 1, text)
        self.assertRegex(lines[0], r"^building x\rbuilding x +\[1/2\]\x1b\[K\rbuilding x +\[2/2\]\x1b\[K\r\x1b\[Kbuilding x +0\.\d s  \(2 steps\)$")
        self.assertRegex(lines[1], r"^building y\r\x1b\[Kz\r\x1b\[Kz +0\.\d s$")
        self.assertEqual(lines[2:], ["why", "name: z: failed; the log is %s/stage.log" % self.where, ""])


def on_a_terminal(command, env, typed):
    """Runs a command whose terminal this is. -> (what it wrote, its status)"""
    controller, terminal = pty.openpty()
    try:
        child = subprocess.Popen(command, env=env, stdin=terminal, stdout=terminal, stderr=terminal)
        os.close(terminal)
        os.write(controller, typed.encode())
        text = drawn_on(controller, lambda _: False)  # to the end
        return text, child.wait()
    finally:
        os.close(controller)


@not_on_windows("it is a script for bash")
@unittest.skipIf(SANITIZER, "it runs no program of the build")
class TestCommand(E2E):
    """scripts/test in a tree whose other scripts and tools are these."""

    PROGRAMS = {"scripts/setup": "", "scripts/sources": "", "scripts/build": "echo '[1/2] one'; echo '[2/2] two'",
                "scripts/layering": "echo all is well", "scripts/words": "", "scripts/budget": "",
                "bin/ctest": "echo '    Start 1: a'; echo '1/2 Test  #1: a ....   Passed    0.01 sec'; %s",
                "bin/lua5.4": "echo 422 passed, 0 failed", "bin/python3": "echo '[1/1]     test_x   3 tests  0.1 s'; echo 3 tests, 1 skipped"}
    LINES = ["layering", "words", "budget", r"release: build +\d+\.\d s  \(2 steps\)", r"release: unit tests +\d+\.\d s  \(%s2 programs\)",
             r"Lua tests +\d+\.\d s  \(422 passed, 0 failed\)", r"release: end-to-end tests +\d+\.\d s  \(3 tests, 1 skipped\)"]

    def tree(self, unit):
        where = self.new_folder()
        for folder in "scripts", "bin":
            os.mkdir(os.path.join(where, folder))
        for name in "test", "stages":
            shutil.copy(os.path.join(ROOT, "scripts", name), where + "/scripts")
        for name, text in self.PROGRAMS.items():
            write_text(os.path.join(where, name), "#!/bin/sh\n" + text.replace("%s", unit) + "\n")
            os.chmod(os.path.join(where, name), 0o755)
        return where, dict(os.environ, PATH=where + "/bin:" + os.environ["PATH"])

    def check_lines(self, text, failed):
        for line in self.LINES:
            self.assertRegex(text, "(?m)^" + line.replace("%s", failed))

    def test_success_shows_no_log(self):
        where, env = self.tree("echo '2/2 Test  #2: b ....   Passed    0.02 sec'")
        for text, status in (run([where + "/scripts/test"], env), 0), on_a_terminal([where + "/scripts/test"], env, ""):
            text = re.sub(r"\r[^\n]*\x1b\[K(?:\x1b\[\?7h)?", "", text.replace("\r\n", "\n"))  # the line that a terminal overwrites
            self.assertEqual(status, 0, text)
            self.check_lines(text, "")
            self.assertRegex(text, r"all tests passed in \d+ s\n$")
            self.assertEqual(len(text.splitlines()), len(self.LINES) + 1, text)

    FAILS = "echo '2/2 Test  #2: b ....***Failed    0.02 sec'; echo why; "

    def test_of_a_failure_the_logs_are_shown(self):
        for unit, logs, stage in ((self.FAILS + "exit 8", 2, "release: unit tests again"),
                                  (self.FAILS + "echo 'b.c:1:2: runtime error: shift'; exit 8", 1, "release: unit tests")):
            with self.subTest(stage):
                where, env = self.tree(unit)
                done = subprocess.run([where + "/scripts/test"], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                      check=False)
                self.assertEqual((done.returncode, done.stderr), (1, ""), done.stdout)
                self.check_lines(done.stdout, "FAILED, ")
                self.assertRegex(done.stdout, r"\n\n---- release: unit tests: build/test-logs/release-unit-tests\.log\n"
                                 r"(2/2 Test  #2: b \.\.\.\.\*\*\*Failed    0\.02 sec\nwhy\n(b\.c.*\n)?){%d}\n"
                                 r"FAILED after \d+ s: %s\n$" % (logs, stage))

    def test_what_fails_only_beside_others_is_named(self):
        where, env = self.tree("case $* in *--rerun-failed*-j?1) exit 0 ;; esac; " + self.FAILS + "exit 8")
        said = run([where + "/scripts/test"], env)
        self.check_lines(said, "FAILED, ")
        self.assertRegex(said, r"\n---- release: unit tests: build/test-logs/release-unit-tests\.log\n2/2 Test  #2: b .*\nwhy\n"
                         r"all tests passed in \d+ s\nthe tests above passed only the second time, alone: release: unit tests\n$")


@not_on_windows("the packages are those of Debian")
@unittest.skipIf(SANITIZER, "a sanitizer's build is not packaged")
class PackagedBuild(E2E):
    def test_it_is_the_profiled_build(self):
        with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as where:
            os.mkdir(where + "/scripts")
            shutil.copy(os.path.join(ROOT, "scripts", "package"), where + "/scripts")
            for name, text in ("setup", "exit 0"), ("build", 'echo "$*"; exit 3'):
                write_text(where + "/scripts/" + name, "#!/bin/sh\n%s\n" % text)
                os.chmod(where + "/scripts/" + name, 0o755)
            done = subprocess.run([where + "/scripts/package"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (3, "profiled\n", ""))

    def test_this_build_has_the_libraries_and_no_test(self):
        with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as where:
            run(["cmake", "--preset", "profiled", "-S", ROOT, "-B", where, "-DLUASERVE_PROFILE=use"])
            commands = run(["ninja", "-C", where, "-t", "commands", "all"])
            self.assertIn("-fprofile-use", commands)
            self.assertIn("libluaserve.a", commands)
            self.assertNotRegex(commands, r"%s/(tests|examples)/" % re.escape(ROOT))
