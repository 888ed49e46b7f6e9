"""`cmake --install` into an empty prefix: the program, the libraries, the manual. test_package.py tests the packages."""
# sanitizers: none; installs files
# not quick; it installs the program, and builds programs with it
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from docs_pages import check_links
from harness import (E2E, LUASERVE, ROOT, SANITIZER, WAIT, not_on_windows, read_bytes, read_text, run_program, scratch, write_text)
from harness.install import HOST, SITE, Installation, run

BUILD = os.path.dirname(LUASERVE)

needs_pkg_config = unittest.skipUnless(shutil.which("pkg-config"), "pkg-config is not installed")


def files_below(directory):
    """The paths of all files and links below a directory."""
    return {os.path.relpath(os.path.join(where, name), directory) for where, _, names in os.walk(directory) for name in names}


def options_of(text):
    """The options that a text names: -x and --xyz, without the dashes inside a word."""
    return set(re.findall(r"(?<![\w-])(--[a-z][\w-]*|-[A-Za-z])(?![\w-])", text))


@not_on_windows("its installation has no libraries and no manual page")
@unittest.skipIf(SANITIZER, "a sanitizer's build is not for installation")
class Install(E2E):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.lib = re.search(r"(?m)^CMAKE_INSTALL_LIBDIR:PATH=(.*)$", read_text(os.path.join(BUILD, "CMakeCache.txt"))).group(1)
        cls.prefix = tempfile.mkdtemp(prefix="luaserve-e2e-")
        cls.addClassCleanup(shutil.rmtree, cls.prefix)
        run(["cmake", "--install", BUILD, "--prefix", cls.prefix])

    def path(self, name):
        return os.path.join(self.prefix, name)

    def read(self, name):
        return read_text(self.path(name))

    def installation(self):
        where = self.new_folder()
        return Installation(where, env={"LD_LIBRARY_PATH": self.path(self.lib),
                                        "PKG_CONFIG_PATH": self.path(self.lib + "/pkgconfig"),
                                        "CMAKE_PREFIX_PATH": self.prefix})

    def test_the_files(self):
        files = files_below(self.prefix)
        self.assertLessEqual({
            "bin/luaserve", "include/luaserve.h", "lib/systemd/system/luaserve@.service", "share/man/man1/luaserve.1",
            "share/doc/luaserve/README.md", "share/doc/luaserve/LICENSE", "share/doc/luaserve/NOTICE", "share/doc/luaserve/lua/docs/reference/server.md",
            "share/doc/luaserve/examples/hello.lua", "share/doc/luaserve/examples/stress/hello.lua",
            "share/doc/luaserve/examples/c/embed.c", "share/doc/luaserve/examples/c/pool.c", self.lib + "/libluaserve.a", self.lib + "/libluaserve.so",
            self.lib + "/libluaserve.so.0.1", self.lib + "/pkgconfig/luaserve.pc", self.lib + "/pkgconfig/luaserve-lua.pc",
            self.lib + "/cmake/luaserve/luaserveConfig.cmake"}, files)
        for name in files:
            self.assertRegex(name, r"^(bin/luaserve$|include/luaserve\.h$|lib/systemd/system/luaserve@\.service$|%s/.*luaserve|"
                                   r"share/doc/luaserve/|share/man/man1/luaserve\.1$)" % re.escape(self.lib))

    def test_the_components_are_the_whole(self):
        with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as where:
            found = []
            for component in "program", "library", "development":
                prefix = os.path.join(where, component)
                run(["cmake", "--install", BUILD, "--prefix", prefix, "--component", component])
                found.append(files_below(prefix))
            self.assertEqual(sorted(path for files in found for path in files), sorted(files_below(self.prefix)))
            self.assertIn(self.lib + "/libluaserve.so.0.1", found[1])
            self.assertIn(self.lib + "/libluaserve.so", found[2])

    def test_no_file_names_the_directory_of_the_build(self):
        with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as where:
            for name in files_below(self.prefix):
                copy = os.path.join(where, "copy")
                shutil.copy(self.path(name), copy)
                if re.search(r"^bin/|\.a$|\.so", name):
                    run(["strip", "--strip-debug", copy])
                self.assertFalse(ROOT.encode() in read_bytes(copy), "%s names %s" % (name, ROOT))
        for name in "bin/luaserve", self.lib + "/libluaserve.so":
            self.assertNotRegex(run(["readelf", "-d", self.path(name)]), "RPATH|RUNPATH")

    def test_the_shared_library_exports_the_functions_of_the_header(self):
        functions = re.findall(r"^LS_PUBLIC .*?(\w+)\(", self.read("include/luaserve.h"), re.MULTILINE)
        exported = [line.split()[-1] for line in run(["nm", "-D", "--defined-only", self.path(self.lib + "/libluaserve.so")]).splitlines()]
        self.assertEqual(sorted(exported), sorted(functions))
        self.assertIn("[libluaserve.so.0.1]", run(["readelf", "-d", self.path(self.lib + "/libluaserve.so")]))

    def test_the_static_library_has_no_intermediate_code(self):
        self.assertNotIn(".gnu.lto_", run(["readelf", "-SW", self.path(self.lib + "/libluaserve.a")]))

    @needs_pkg_config
    def test_the_version_is_that_of_the_program(self):
        version = run([self.path("bin/luaserve"), "--version"]).split()[1]
        self.assertEqual(self.installation().pkg_config("--modversion"), [version])
        self.assertTrue(os.path.exists(self.path(self.lib + "/libluaserve.so." + version)))
        self.assertIn('PACKAGE_VERSION "%s"' % version, self.read(self.lib + "/cmake/luaserve/luaserveConfigVersion.cmake"))

    def test_the_program_serves(self):
        self.installation().check_program(self, [self.path("bin/luaserve")])

    def test_the_examples_load(self):
        for name in "hello.lua", "site.lua", "dns.lua", "chat.lua", "live/chat.lua":
            run([self.path("bin/luaserve"), "--check", self.path("share/doc/luaserve/examples/" + name)])

    @needs_pkg_config
    def test_host_programs_with_pkg_config(self):
        self.installation().check_pkg_config(self)

    @needs_pkg_config
    def test_a_host_program_without_any_shared_library(self):
        installation = self.installation()
        path = installation.compile("all-static", ["-static", *installation.pkg_config("--static", "--cflags", "--libs"),
                                                   "-Wl,--no-warnings"])
        self.assertNotIn("NEEDED", run(["readelf", "-d", path]))
        installation.check_program(self, [path])

    @needs_pkg_config
    def test_the_command_lines_of_the_page(self):
        """Those of the table in src/README.md, "In a C program", with the libraries of this build."""
        commands = re.findall(r"`(cc [^`]*program\.c [^`]*-o program)`", read_text(os.path.join(ROOT, "src", "README.md")))
        self.assertEqual(len(commands), 4)
        installation = self.installation()
        os.symlink(os.path.join(ROOT, "src"), os.path.join(installation.where, "src"))
        os.symlink(BUILD, os.path.join(installation.where, "build"))
        program = os.path.join(installation.where, "program")
        installation.write("program.c", HOST)
        for command in commands:
            with self.subTest(command=command):
                installation.run(["sh", "-ec", 'cd "$0"; ' + command, installation.where])
                self.assertEqual(installation.needed(program), [] if ".a " in command or "-static" in command else ["libluaserve.so.0.1"])
                installation.check_program(self, [program])

    def test_host_programs_with_cmake(self):
        self.installation().check_cmake(self)

    def test_the_links_of_the_pages(self):
        documentation = self.path("share/doc/luaserve")
        for name in files_below(documentation):
            if name.endswith(".md"):
                with self.subTest(page=name):
                    check_links(name, self.read("share/doc/luaserve/" + name), documentation)

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
    def test_the_systemd_unit(self):
        unit = self.path("lib/systemd/system/luaserve@.service")
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        text = self.read("lib/systemd/system/luaserve@.service")
        self.assertIn("ExecStart=%s --control %%t/luaserve/%%i/control /etc/luaserve/%%i/site.lua\n" % self.path("bin/luaserve"), text)
        self.assertIn("\nDynamicUser=yes\nUser=ls-%i\nStateDirectory=luaserve/%i\nStateDirectoryMode=0700\n", text)

    def test_a_new_site_in_the_folders_of_the_unit(self):
        """The files of the site belong to another user, and only the state directory can be written; with root's rights
        the user is changed as the unit does it."""
        prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"] if os.geteuid() == 0 else []
        with scratch() as folder:
            os.chmod(folder, 0o755)
            site, state = os.path.join(folder, "etc"), os.path.join(folder, "state")
            run([self.path("bin/luaserve"), "new", "--template", "api", site])
            run(["chmod", "-R", "a-w,a+rX", site])
            os.mkdir(state)
            os.chmod(state, 0o700)
            if prefix:
                os.chown(state, 65534, 65534)
            env = {"STATE_DIRECTORY": state, "API_TOKEN": "t" * 16, "LUASERVE_ENV": "production"}
            server = self.serve(None, site_path=os.path.join(site, "site.lua"), args=["0"], program=[*prefix, LUASERVE], env=env, cwd=state)
            with server.connect() as conn:
                answer = conn.ask("POST", "/items", [("Authorization", "Bearer " + "t" * 16), ("Content-Type", "application/json")], b'{"title":"x"}')
            self.assertEqual(answer.status, 201, answer.text)
            server.stop()
            self.assertEqual(os.listdir(os.path.join(state, "data"))[:1], ["site.db"])
            for code in "ls.dict('d', { file = 'd.db' })", "ls.sqlite 'd.db'", "assert(ls.file.mkdir 'd.db')":
                lua = os.path.join(folder, "site.lua")
                write_text(lua, "local ls = require 'luaserve' " + code)
                os.chmod(lua, 0o644)
                done = subprocess.run([*prefix, LUASERVE, lua], env=dict(os.environ, **env), capture_output=True, text=True, check=False, timeout=WAIT)
                self.assertEqual(done.returncode, 1)
                if prefix:
                    self.assertIn("d.db (%s/d.db, outside of ls.data, %s): " % (folder, state), done.stderr)

    def test_the_hook_for_certbot(self):
        """Copies for the owner of the folder only; a link that the site has put there is not followed with root's rights."""
        hook = self.path("share/doc/luaserve/examples/certbot-hook")
        root = os.geteuid() == 0
        owner = 65534 if root else os.geteuid()
        with scratch() as folder:
            os.chmod(folder, 0o755)
            state, live = os.path.join(folder, "state", "site"), os.path.join(folder, "live")
            for directory in (state, live, os.path.join(folder, "bin")):
                os.makedirs(directory)
            if root:
                os.chown(state, owner, owner)
            else:  # only root may change its user
                with open(os.path.join(folder, "bin", "setpriv"), "w", encoding="ascii") as out:
                    out.write('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n')
                os.chmod(os.path.join(folder, "bin", "setpriv"), 0o755)

            def renew(text, *sites):
                for name in ("fullchain", "privkey"):
                    write_text(os.path.join(live, name + ".pem"), name + text)
                return subprocess.run(["sh", hook, *sites], capture_output=True, text=True, check=False, env=dict(
                    os.environ, STATE_ROOT=os.path.dirname(state), RENEWED_LINEAGE=live,
                    PATH=os.path.join(folder, "bin") + ":" + os.environ["PATH"]))

            for text in (" one", " two"):
                self.assertEqual(renew(text, "site").returncode, 0)
                for name in ("fullchain", "privkey"):
                    path = os.path.join(state, "tls", name + ".pem")
                    self.assertEqual(read_text(path), name + text)
                    found = os.stat(path)
                    self.assertEqual((found.st_mode & 0o777, found.st_uid), (0o600, owner))
            self.assertEqual(sorted(os.listdir(os.path.join(state, "tls"))), ["fullchain.pem", "privkey.pem"])
            self.assertIn("start luaserve@other once", renew("", "other").stderr)
            self.assertEqual(renew("").returncode, 2)
            if root:
                shutil.rmtree(os.path.join(state, "tls"))
                os.mkdir(os.path.join(folder, "roots"), 0o700)
                os.symlink(os.path.join(folder, "roots"), os.path.join(state, "tls"))
                self.assertNotEqual(renew(" three", "site").returncode, 0)
                self.assertEqual(os.listdir(os.path.join(folder, "roots")), [])

    def test_a_port_that_is_busy_for_a_while_does_not_fail_the_unit(self):
        text = self.read("lib/systemd/system/luaserve@.service")
        pause, interval, burst = (int(re.search("(?m)^%s=([0-9]+)$" % name, text).group(1))
                                  for name in ("RestartSec", "StartLimitIntervalSec", "StartLimitBurst"))
        self.assertGreaterEqual(pause * burst, 30, "it is tried for half a minute")
        self.assertGreater(interval, pause * burst, "it is not tried for ever")


PARENT = """cmake_minimum_required(VERSION 3.21)
project(host LANGUAGES C)
add_subdirectory(%s luaserve EXCLUDE_FROM_ALL)
add_executable(shared host.c)
target_link_libraries(shared PRIVATE luaserve::luaserve)
add_executable(static host.c)
target_link_libraries(static PRIVATE luaserve::static)
"""


@not_on_windows("its build has no libraries for other programs")
@unittest.skipIf(SANITIZER, "it configures a build of its own")
class Subdirectory(E2E):
    """add_subdirectory(luaserve) in the build of a program. It is configured and not built, which would take minutes."""

    def test_a_parent_project(self):
        where = self.new_folder()
        installation = Installation(where)
        installation.write("host.c", HOST)
        installation.write("CMakeLists.txt", PARENT % ROOT)
        build = os.path.join(where, "build")
        run(["cmake", "-G", "Ninja", "-S", where, "-B", build])
        cache = dict(re.findall(r"(?m)^([\w-]+):\w+=(.*)$", read_text(os.path.join(build, "CMakeCache.txt"))))
        self.assertEqual(cache["CMAKE_BUILD_TYPE"], "")
        self.assertNotIn("CMAKE_INSTALL_LIBDIR", cache)
        self.assertEqual((cache["LUASERVE_TESTS"], cache["LUASERVE_FUZZ"]), ("OFF", "OFF"))
        targets = run(["ninja", "-C", build, "-t", "targets", "all"])
        self.assertNotRegex(targets, r"\b(test_\w+|fuzz_\w+|example_\w+): ")
        self.assertFalse(os.path.exists(os.path.join(build, "CTestTestfile.cmake")))
        links = run(["ninja", "-C", build, "-t", "commands", "static"]).splitlines()[-1]
        self.assertRegex(links, r"host\.c\.o .*luaserve/libluaserve\.a .*liblua5\.4\.a ")
        links = run(["ninja", "-C", build, "-t", "commands", "shared"]).splitlines()[-1]
        self.assertRegex(links, r"host\.c\.o .*luaserve/libluaserve\.so\.")
        run(["cmake", "--install", build, "--prefix", where + "/prefix"])
        self.assertFalse(os.path.exists(where + "/prefix"))  # the parent decides what it installs


@not_on_windows("it has no manual pages")
class ManualPage(unittest.TestCase):
    SOURCE = os.path.join(BUILD, "src", "install", "luaserve.1")

    def text(self):
        done = subprocess.run(["man", "--warnings", "-l", self.SOURCE], capture_output=True, text=True, check=False,
                              env=dict(os.environ, MANWIDTH="120", LC_ALL="C", MAN_KEEP_FORMATTING=""))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_mandoc_has_no_complaint(self):
        done = subprocess.run(["mandoc", "-W", "style", "-T", "lint", self.SOURCE], capture_output=True, text=True, check=False)
        self.assertLess(done.returncode, 2, done)  # 1: lines of the level "style" were printed
        # The manuals that the page refers to need not be installed here.
        absent = re.compile("referenced manual not found: Xr (curl 1|systemctl 1|epoll 7)$")
        self.assertEqual([line for line in done.stdout.splitlines() if not absent.search(line)], [])

    @unittest.skipUnless(shutil.which("man"), "man is not installed")
    def test_it_has_every_option(self):
        page = self.text()
        program, load = (page.split("\n%s\n" % title)[1] for title in ("OPTIONS", "LOAD TESTS"))
        new, pack, test, repl = (page.split("\n%s\n" % title)[1] for title in ("NEW SITES", "PACKED SITES", "TESTS", "PROMPT"))
        for arguments, section in ((["--help"], program.split("\nSIGNALS\n")[0]), (["new", "--help"], new.split("\nPACKED SITES\n")[0]),
                                   (["pack", "--help"], re.sub("--packed|--overlay", "", pack.split("\nTESTS\n")[0])),  # of what it makes
                                   (["test", "--help"], test.split("\nPROMPT\n")[0]),
                                   (["repl", "--help"], repl.split("\nLOAD TESTS\n")[0]),
                                   (["stress", "--help"], load.split("\nENVIRONMENT\n")[0])):
            with self.subTest(arguments=arguments):
                status, options, _ = run_program(arguments)
                self.assertEqual(status, 0)
                self.assertEqual(options_of(section), options_of(options))
