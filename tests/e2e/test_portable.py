"""The static program (scripts/build portable): it is one, starts in an empty root directory, and knows the users of its files."""
# sanitizers: none; a sanitizer's build has no static program
# not quick; it links the program once more
import os
import shutil
import subprocess
import unittest

from harness import E2E, LUASERVE, SANITIZER, WAIT, not_on_windows, read_text, write_text

BUILD = os.path.dirname(LUASERVE)
SITE = """
local ls = require "luaserve"
local app = ls.app()
app:static("/files", "public")
app:get("/", function() return "hello from " .. ls.dir .. "\\n" end)
app:get("/postgres", function() return select(2, pcall(ls.postgres, "postgres://ada@127.0.0.1/none")) .. "" end)
ls.dict("kept", { file = "kept.db" }).n = 1
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.listen{ host = "unix:/s", handler = app, owner = "of-this-root:its-group" }
"""


def makes_it():
    """Whether the build of the program under test can make the static one, as some libraries have no static form."""
    ninja = os.path.join(BUILD, "build.ninja")
    return os.path.exists(ninja) and "build portable/luaserve:" in read_text(ninja) and shutil.which("cmake")


@not_on_windows("luaserve.exe has all libraries inside")
@unittest.skipIf(SANITIZER, "of another system: a sanitizer's build has no static program")
@unittest.skipUnless(os.name == "posix" and makes_it(), "of another system: the static libraries are not installed, or this is no build directory")
class Portable(E2E):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        made = subprocess.run(["cmake", "--build", BUILD, "--target", "portable"], capture_output=True, text=True, timeout=30 * WAIT, check=False)
        if made.returncode != 0:
            raise AssertionError(made.stdout + made.stderr)
        cls.program = os.path.join(BUILD, "portable", "luaserve")

    def test_it_says_what_is_inside(self):
        done = subprocess.run([self.program, "--version"], capture_output=True, text=True, timeout=WAIT, check=True)
        self.assertRegex(done.stdout, r"\nC library: glibc 2\.\d+\nlibraries: inside this program; updates of the system do not reach them\n")
        self.assertIn("\nPostgreSQL: this luaserve is a static program, which cannot load libraries\n", done.stdout)
        self.assertNotIn("inside this program", subprocess.run([LUASERVE, "--version"], capture_output=True, text=True, check=True).stdout)

    def test_it_starts_in_an_empty_root(self):
        root = self.new_folder()
        os.makedirs(root + "/public")
        os.makedirs(root + "/etc")
        write_text(root + "/public/a.txt", "a file\n")
        number = 4242 if os.geteuid() == 0 else 0  # that of nobody else; in a namespace there is only one
        write_text(root + "/etc/passwd", "root:x:0:0::/:\nof-this-root:x:%d:0::/:\n" % number)
        write_text(root + "/etc/group", "its-group:x:%d:\n" % number)
        write_text(root + "/site.lua", SITE)
        shutil.copy(self.program, root + "/luaserve")
        enter = ["chroot", root] if os.geteuid() == 0 else ["unshare", "--map-root-user", "chroot", root]
        entered = subprocess.run([*enter, "/luaserve", "pack", "site.lua", "-o", "app"], capture_output=True, text=True, cwd=root, check=False)
        if "unshare" in entered.stderr:
            self.skipTest("of another system: users may make no namespaces: " + entered.stderr)
        self.assertEqual((entered.returncode, entered.stderr), (0, ""))
        os.remove(root + "/site.lua")
        shutil.rmtree(root + "/public")
        server = self.serve(None, prefix=enter, program=["/app"], site_path="x", listeners=2)
        self.assertEqual(server.get("/").text, "hello from /\n")
        self.assertEqual(server.get("/files/a.txt").text, "a file\n")
        self.assertEqual(server.get("/postgres").text, "/site.lua:6: ls.postgres: this luaserve is a static program, which cannot load libraries")
        self.assertTrue(os.path.exists(root + "/kept.db"))
        made = os.stat(root + "/s")
        self.assertEqual((made.st_uid, made.st_gid), (number or os.geteuid(), number or os.getegid()))
