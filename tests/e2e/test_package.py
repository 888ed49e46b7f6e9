"""The Debian packages that scripts/package makes: lintian accepts them, and they are installed, used, upgraded and removed."""
# sanitizers: none; installs packages
# long; it makes packages
# not quick; so does lintian, and four systems get them
import glob
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import E2E, LUASERVE, ROOT, SANITIZER, not_on_windows, read_text, write_text
from harness.install import SITE, Installation, run
from harness.root import Root

BUILD = os.path.dirname(LUASERVE)
TOOLS = "dpkg-buildpackage dh".split()
PACKAGES = "libluaserve-dev libluaserve0.1 luaserve".split()
SYMBOLS = "libluaserve0.1-dbgsym luaserve-dbgsym".split()

# What dpkg, ldconfig and mandb write about the packages that are installed.
RECORDS = re.compile(r"^(etc/ld\.so\.cache|var/(lib/dpkg|cache/ldconfig|cache/man|log)/.*)$")

# A systemctl that writes its command line to the file @LOG@.
SYSTEMCTL = """#!/bin/sh
echo "$*" >>@LOG@
case $* in
*list-units*) printf 'luaserve@%s.service loaded active running site\\n' one two ;;
esac
"""


@not_on_windows("the packages are those of Debian")
@unittest.skipIf(SANITIZER, "a sanitizer's build is not packaged")
@unittest.skipUnless(all(map(shutil.which, TOOLS)), "scripts/package needs dpkg-dev and debhelper: scripts/setup --test installs them")
class Packages(E2E):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory = cls.packages()
        made = {os.path.basename(path).split("_")[0]: path for path in glob.glob(cls.directory + "/*.deb")}
        cls.symbols = {name: path for name, path in made.items() if name.endswith("-dbgsym")}
        cls.files = {name: path for name, path in made.items() if name not in cls.symbols}

    @classmethod
    def packages(cls):
        """Make the packages of the present build, without compression, which takes half of the time; returns their directory."""
        directory = tempfile.mkdtemp(prefix="luaserve-e2e-")
        cls.addClassCleanup(shutil.rmtree, directory)
        run([os.path.join(ROOT, "scripts", "package"), "--built", BUILD, "--to", directory], env={"DPKG_DEB_COMPRESSOR_LEVEL": "0"})
        return directory

    def root(self):
        root = Root()
        self.addCleanup(root.close)
        where = self.new_folder()
        installation = Installation(where, enter=root.enter)
        # Else dpkg has the index of all manual pages of the system made anew.
        installation.run(["rm", "-f", "/var/lib/man-db/auto-update"])
        return root, installation

    def test_the_packages(self):
        self.assertEqual(sorted([*self.files, *self.symbols]), sorted(PACKAGES + SYMBOLS))

    def test_the_logs_of_the_unit_are_rotated(self):
        """Every log in the directory that the unit may write to; the command tells all sites."""
        with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as where:
            run(["dpkg-deb", "--extract", self.files["luaserve"], where])
            rotated = read_text(where + "/etc/logrotate.d/luaserve")
            self.assertIn("LogsDirectory=luaserve/%i\n", read_text(where + "/usr/lib/systemd/system/luaserve@.service"))
            self.assertIn("/var/log/luaserve/*/*.log {", rotated)
            self.assertIn("--signal=SIGUSR1 'luaserve@*.service'", rotated)
            if shutil.which("logrotate"):
                run(["logrotate", "--debug", where + "/etc/logrotate.d/luaserve"])

    def test_their_program_and_its_symbols_are_those_of_the_build(self):
        with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as where:
            for package in self.files["luaserve"], self.symbols["luaserve-dbgsym"]:
                run(["dpkg-deb", "--extract", package, where])
            run(["strip", "--remove-section=.comment", "--remove-section=.note", "-o", where + "/stripped", LUASERVE])
            build_id = re.search("Build ID: ([0-9a-f]{2})([0-9a-f]+)", run(["readelf", "-n", where + "/usr/bin/luaserve"]))
            symbols = where + "/usr/lib/debug/.build-id/%s/%s.debug" % build_id.groups()
            run(["objcopy", "--add-gnu-debuglink=" + symbols, where + "/stripped"])
            with open(where + "/usr/bin/luaserve", "rb") as packaged, open(where + "/stripped", "rb") as stripped:
                self.assertTrue(packaged.read() == stripped.read())

    @unittest.skipUnless(shutil.which("lintian"), "lintian is not installed; scripts/test all installs it")
    def test_lintian_accepts_them(self):
        done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error,warning", *glob.glob(self.directory + "/*.changes")],
                              capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    @unittest.skipUnless(os.environ.get("CI"), "a second set of packages: set CI=true")
    def test_a_second_run_makes_the_same_files(self):
        again = self.packages()
        for path in self.files.values():
            with open(path, "rb") as first, open(os.path.join(again, os.path.basename(path)), "rb") as second:
                self.assertTrue(first.read() == second.read(), os.path.basename(path) + " differs")

    def test_an_empty_root(self):
        """Without the dependencies: what dpkg leaves there in the end was left by these packages."""
        if os.geteuid() != 0:
            self.skipTest("dpkg sets the owners of files only as root")
        with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as where:
            dpkg = ["dpkg", "--root=" + where, "--force-script-chrootless", "--force-depends"]
            os.makedirs(where + "/var/lib/dpkg/info")
            os.makedirs(where + "/var/lib/dpkg/updates")
            write_text(where + "/var/lib/dpkg/status", "")
            run([*dpkg, "--install", *self.files.values()])
            Installation(where).check_program(self, [where + "/usr/bin/luaserve"])
            run([*dpkg, "--purge", *PACKAGES])
            left = {os.path.relpath(os.path.join(directory, name), where)
                    for directory, directories, files in os.walk(where) for name in directories + files}
            self.assertEqual({path for path in left if not path.startswith("var")}, set())

    def test_install_use_remove(self):
        root, installation = self.root()
        before = root.changes()
        installation.run(["dpkg", "--install", *self.files.values()])
        changes = {path for path in root.changes() - before if not RECORDS.match(path)}
        for path in ("usr/bin/luaserve", "usr/include/luaserve.h", "usr/share/man/man1/luaserve.1.gz",
                     "usr/share/doc/luaserve/README.md", "usr/share/doc/luaserve/examples/hello.lua"):
            self.assertIn(path, changes)
        for path in changes:
            self.assertRegex(path, r"^(usr/.*|etc/logrotate.d/)luaserve")

        installation.check_program(self, ["luaserve"])
        installation.check_pkg_config(self)
        installation.check_cmake(self)
        installation.run(["cmake", "-S", installation.where + "/project", "-B", installation.where + "/bin-first"],
                         env={"PATH": "/bin:/sbin:/usr/bin:/usr/sbin"})

        installation.run(["dpkg", "--purge", *PACKAGES])
        self.assertEqual({path for path in root.changes() - before if not RECORDS.match(path)}, set())
        self.assertEqual(installation.run(["sh", "-c", "ls -d /etc/luaserve /usr/share/doc/*luaserve* 2>&1 || true"]).count("No such file"), 2)

    def test_the_libraries_without_the_program(self):
        _, installation = self.root()
        installation.run(["dpkg", "--install", self.files["libluaserve0.1"], self.files["libluaserve-dev"]])
        installation.check_pkg_config(self)

    def test_the_command_of_the_unit_serves_a_site(self):
        _, installation = self.root()
        installation.run(["dpkg", "--install", self.files["luaserve"]])
        site = installation.write("site.lua", SITE)
        installation.run(["mkdir", "/etc/luaserve/site"])
        installation.run(["cp", site, "/etc/luaserve/site/site.lua"])
        unit = installation.run(["cat", "/usr/lib/systemd/system/luaserve@.service"])
        command = re.search(r"(?m)^ExecStart=(.*)$", unit).group(1).replace("%i", "site").split()
        self.assertEqual(command, ["/usr/bin/luaserve", "--control", "%t/luaserve/site/control", "/etc/luaserve/site/site.lua"])
        server = self.serve(None, site_path=command[-1], program=[*installation.enter, command[0]])
        self.assertEqual(server.get("/").status, 200)
        server.stop()
        if shutil.which("systemd-analyze"):
            installation.run(["systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/luaserve@.service"])

    def test_what_the_packages_ask_of_systemd(self):
        _, installation = self.root()
        log = os.path.join(installation.where, "systemctl.log")

        def asked(*dpkg):
            write_text(log, "")
            installation.run(["dpkg", "--no-triggers", *dpkg])
            return read_text(log).splitlines()

        systemctl = installation.write("systemctl", SYSTEMCTL.replace("@LOG@", log))
        installation.run(["install", "-m", "755", systemctl, "/usr/bin/systemctl"])
        installation.run(["mkdir", "-p", "/run/systemd/system"])
        installation.run(["rm", "-f", "/usr/sbin/policy-rc.d"])
        self.assertEqual(asked("--install", self.files["luaserve"]), ["--system daemon-reload"])
        self.assertEqual(asked("--install", self.files["luaserve"]), [
            "--system daemon-reload", "--plain --no-legend --state=active list-units luaserve@*.service",
            "try-restart luaserve@one.service", "try-restart luaserve@two.service"], "one after the other")
        self.assertEqual(asked("--purge", "luaserve"), ["stop luaserve@*.service", "--system daemon-reload"])
