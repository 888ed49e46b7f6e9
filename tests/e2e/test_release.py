"""What a release needs: the licences in the program, the list of what is inside, and what scripts/release refuses."""
# sanitizers: none; one short run of scripts
import glob
import json
import os
import re
import shutil
import subprocess
import tarfile
import unittest

from harness import E2E, LUASERVE, ROOT, WAIT, not_on_windows, read_text


def run(*args, **kw):
    return subprocess.run(args, capture_output=True, text=True, cwd=ROOT, timeout=4 * WAIT, check=False, **kw)


class Release(E2E):
    def test_the_licences_are_in_the_program(self):
        done = run(LUASERVE, "--licenses")
        text = read_text(os.path.join(ROOT, "scripts", "debian", "copyright"))
        self.assertEqual((done.returncode, done.stdout[:len(text)]), (0, text))
        for owner in ("Lua.org", "Mark Pulford", "Daniel Stenberg", "the luaserve authors"):
            self.assertIn(owner, done.stdout)

    @not_on_windows("the packages are those of Debian")
    @unittest.skipUnless(shutil.which("dpkg-query"), "of another system: no packages of Debian")
    def test_the_list_of_what_is_inside(self):
        first, second = self.new_folder() + "/a.json", self.new_folder() + "/b.json"
        for path in (first, second):
            done = run(os.path.join(ROOT, "scripts", "sbom"), "1.2.3", path, env={**os.environ, "SOURCE_DATE_EPOCH": "0"})
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(read_text(first), read_text(second))
        document = json.loads(read_text(first))
        packages = {package["SPDXID"]: package for package in document["packages"]}
        self.assertEqual(len(packages), len(document["packages"]))
        self.assertEqual((document["spdxVersion"], document["creationInfo"]["created"]), ("SPDX-2.3", "1970-01-01T00:00:00Z"))
        self.assertEqual({each["relatedSpdxElement"] for each in document["relationships"]}, set(packages))
        self.assertEqual(packages["SPDXRef-luaserve"]["versionInfo"], "1.2.3")
        for identifier, package in packages.items():
            self.assertRegex(identifier, r"^SPDXRef-[A-Za-z0-9.-]+$")
            self.assertRegex(package["versionInfo"], r"^\d", identifier)
        for name in ("lua5.4", "c-ares", "ssl", "zlib1g", "brotli", "zstd", "sqlite3", "nghttp2", "hiredis", "libc6"):
            self.assertTrue(any(name in each for each in packages), name)

    @not_on_windows("the scripts are for a POSIX shell")
    def test_the_stored_profile_is_of_these_sources(self):
        """A file that was renamed has none: scripts/build profile makes it again."""
        stored = glob.glob(os.path.join(ROOT, "scripts", "profiles", "gcc-*.tar.xz"))
        self.assertTrue(stored)
        for path in stored:
            with tarfile.open(path) as profile:
                made = [re.sub(r"^CMakeFiles/\w+\.dir/|\.gcda$", "", name) for name in profile.getnames()]
            sources = [name for name in made if name.startswith("src/")]
            there = [name for name in sources if os.path.exists(os.path.join(ROOT, name))]
            self.assertGreater(len(there), 0.95 * len(sources), sorted(set(sources) - set(there)))
            self.assertGreater(len(sources), 200)

    @not_on_windows("the scripts are for a POSIX shell")
    def test_the_compiler_gets_paths_that_do_not_depend_on_the_place_of_the_tree(self):
        words = run(os.path.join(ROOT, "scripts", "relative"), "/a b", "../..", "printf", "%s\n", "-I/a b/src", "/a b/x.c", "/a bc/x", "-fdebug-prefix-map=/a b=.", "y.dir/a b/x.o")
        self.assertEqual(words.stdout, "-I../../src\n../../x.c\n/a bc/x\n-fdebug-prefix-map=/a b=.\ny.dir/a b/x.o\n")

    @not_on_windows("the scripts are for a POSIX shell")
    def test_what_is_refused(self):
        version = run(LUASERVE, "--version").stdout.split()[1]
        for words, why in ((("9.9.9",), "the version of src/luaserve.h is %s, not 9.9.9" % version), ((), "usage: scripts/release"), (("--nonsense",), "usage: ")):
            done = run(os.path.join(ROOT, "scripts", "release"), *words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(why, done.stderr)
