"""A site that serves a directory with ls.safe_join: no request makes it open a path outside the directory."""
# sanitizers: asan; one thread runs
import os
import shutil
import urllib.parse

from harness import E2E, app_site, not_on_windows, temporary_folder, write_text

# The site logs every path that it opens.
SITE = app_site(r"""
app:get("/files/*path", function(req)
  local path, why, code = ls.safe_join("PUBLIC", req.params.path)
  if not path then
    return 404, code == "EINVAL" and why or code .. ": " .. why
  end
  ls.log.info("opens [" .. path .. "]")
  local file = io.open(path, "rb")
  if not file then return 404, "not there" end
  local text = file:read("a")
  file:close()
  return text or 404 -- a directory can be opened, not read
end)
app:get("/misuse/:n", function(req)
  local calls = {
    function() return ls.safe_join() end, function() return ls.safe_join("a") end, function() return ls.safe_join({}, "a") end,
    function() return ls.safe_join("", "a") end, function() return ls.safe_join("a\0b", "a") end,
  }
  local ok, err = pcall(calls[tonumber(req.params.n)])
  return ok and "no error" or err
end)
app:get("/join", function(req) return (ls.safe_join(req.query.directory, req.query.name)) end)
app:get("/joins", function()
  return table.concat({ ls.safe_join("a", "b"), ls.safe_join("a/", "b/c"), ls.safe_join("/", "b") }, "|")
end)
""")

# Requested below /files/ without changes: none of them may reach the file system.
NEVER = [
    "", "/", "//", ".", "..", "../secret.txt", "a/../../secret.txt", "%2e%2e/secret.txt", "%2e%2e%2fsecret.txt",
    "..%5csecret.txt", "..\\secret.txt", "sub%5c..%5c..%5csecret.txt", "%5c%5chost%5cshare%5cfile", "//host/share/file",
    "%5c%5c%3f%5cC:%5cWindows%5cwin.ini", "%5c%5c.%5cpipe%5cx", "%5c%3f%3f%5cC:%5ca", "C:", "C:/Windows/win.ini", "C:%5cWindows%5cwin.ini",
    "C%3a/a", "/etc/passwd", "page.txt::$DATA", "page.txt:stream", "page.txt%3a%3a$DATA", "sub::$INDEX_ALLOCATION/a.txt",
    "page.txt.", "page.txt..", "page.txt%20", "page.txt.%20.", "page.txt%2e", "sub./a.txt", "sub%20/a.txt", "...", ".%20", "..%20/secret.txt",
    "CON", "con", "NUL", "nul.txt", "NUL.tar.gz", "AUX", "PRN", "COM1", "com1.txt", "LPT1", "CONIN$", "CONOUT$", "COM%C2%B9",
    "sub/NUL", "NUL/page.txt", "con%20.txt", "LONGNA~1.TXT", "PROGRA~1/a", "SUBDIR~1/a.txt", "page%2A", "page.tx%3F", "%3Cpage",
    "page%3E%3E", "page%22txt", "page%7C", "%0a", "page.txt%0d", "%7f", "%C0%AE%C0%AE/secret.txt", "%C0%AF", "%E0%80%AE%E0%80%AE/secret.txt",
    "%ff", "a//page.txt", "sub/", "./page.txt", "sub/./a.txt", "%252e%252e/" + "x" * 256,
]


class Paths(E2E):
    @classmethod
    def setUpClass(cls):
        cls.where = temporary_folder()
        cls.addClassCleanup(shutil.rmtree, cls.where, ignore_errors=True)
        public = cls.where + "/public"
        os.makedirs(os.path.join(public, "sub"))
        for name, text in (("secret.txt", "secret"), ("public/page.txt", "a page"), ("public/sub/a.txt", "a in sub"),
                           ("public/日本語 ü.txt", "よし"), ("public/long name that is shortened.txt", "long"),
                           ("public/.well-known", "known"), ("public/a~", "tilde"), ("public/%2e", "escape")):
            write_text(os.path.join(cls.where, name), text)
        cls.SITE = SITE.replace("PUBLIC", public)
        cls.public = public
        super().setUpClass()

    def asked(self, since):
        """The paths that the site opened. The log is complete up to this function's own request."""
        last = "sentinel %d" % since
        self.get("/files/" + urllib.parse.quote(last))
        self.server.wait_log(r"opens \[.*/%s\]" % last, since)
        asked = [line.split("opens [", 1)[1][:-1] for line in self.server.logged(r"opens \[", since)]
        return asked[:-1]

    def test_what_is_served(self):
        since = self.server.mark()
        names = []
        for name, text in (("page.txt", "a page"), ("sub/a.txt", "a in sub"), ("日本語 ü.txt", "よし"), (".well-known", "known"),
                           ("long name that is shortened.txt", "long"), ("a~", "tilde"), ("%2e", "escape")):
            with self.subTest(name):
                response = self.get("/files/" + urllib.parse.quote(name))
                self.assertEqual((response.status, response.text), (200, text))
                names.append(self.public + "/" + name)
        for name in ("none.txt", "sub", "sub/none", "none/a"):
            self.assertEqual(self.get("/files/" + name).status, 404)
            names.append(self.public + "/" + name)
        self.assertEqual(self.asked(since), names)

    def test_what_never_reaches_the_file_system(self):
        since = self.server.mark()
        for name in NEVER:
            with self.subTest(name):
                response = self.get("/files/" + name)
                self.assertIn(response.status, (400, 404))
                self.assertNotIn("not there", response.text)
        self.get("/files/%00")
        self.get("/files/page.txt%00.html")
        self.assertEqual(self.asked(since), [])

    @not_on_windows("a symbolic link needs a right of its own")
    def test_symbolic_links(self):
        """A link that leads out of the directory is refused; one to a file inside the directory is followed."""
        for name, target in (("out", "../secret.txt"), ("up", ".."), ("absolute", os.path.join(self.where, "secret.txt")), ("root", "/"),
                             ("sub/out", "../../secret.txt"), ("chain", "sub/out"), ("dangling", "../none.txt"), ("loop", "loop"),
                             ("sibling", "../public-2/page.txt"), ("in", "page.txt"), ("sub/in", "../page.txt"), ("to-sub", "sub"),
                             ("back", "../public/page.txt"), ("inside", os.path.join(self.public, "page.txt"))):
            os.symlink(target, os.path.join(self.public, name))
        os.mkdir(self.public + "-2")
        write_text(self.public + "-2/page.txt", "sibling")
        since = self.server.mark()
        for name in ("out", "up", "up/secret.txt", "absolute", "root/etc/passwd", "sub/out", "to-sub/out", "chain", "dangling", "dangling/x",
                     "loop", "sibling", "root", "up/none.txt", "up/none/none"):
            with self.subTest(name):
                response = self.get("/files/" + name)
                self.assertEqual((response.status, response.text), (404, "EACCES: a symbolic link leads out of the directory"))
        self.assertEqual(self.asked(since), [])
        since = self.server.mark()
        for name, text in (("in", "a page"), ("sub/in", "a page"), ("to-sub/a.txt", "a in sub"), ("back", "a page"), ("inside", "a page")):
            with self.subTest(name):
                self.assertEqual(self.get("/files/" + name).text, text)
        self.assertEqual(len(self.asked(since)), 5)

    @not_on_windows("a symbolic link needs a right of its own")
    def test_a_directory_behind_a_link(self):
        """The directory itself may be a link, and relative; a directory that does not exist has no links."""
        os.symlink("public", os.path.join(self.where, "link"))
        join = lambda directory, name: self.get("/join?directory=%s&name=%s" % (directory, name)).text
        self.assertEqual(join(self.where + "/link", "page.txt"), self.where + "/link/page.txt")
        self.assertEqual(join(self.where + "/link/", "page.txt"), self.where + "/link/page.txt")
        self.assertEqual(join(self.where + "/none", "page.txt"), self.where + "/none/page.txt")
        self.assertEqual(join("/", "etc/passwd"), "/etc/passwd")
        self.assertEqual(join(".", "site.lua"), "./site.lua")

    def test_joins(self):
        self.assertEqual(self.get("/joins").text, "a/b|a/b/c|/b")
        for n in range(1, 6):
            self.assertIn("bad argument", self.get("/misuse/%d" % n).text)
