"""luaserve.exe as a Windows service: installing, starting and stopping it, and every error. Under Wine the service
manager is Wine's services.exe, and the tests use Wine's net and sc. On other systems the commands are errors."""
# sanitizers: none; only Windows has services
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import E2E, ROOT, WAIT, WINDOWS, WINE, Conn, free_port, not_on_windows, run_program, write_text

# In front of a program of the system.
STARTER = [os.path.join(ROOT, "third_party", "windows", "wine")] if WINE else []

# /held responds once the drain has begun.
SITE = r"""
local ls = require "luaserve"
local app = ls.app()
local draining = false
ls.log.info("arguments: " .. table.concat({ ... }, "|"))
ls.on("drain", function() draining = true end)
app:get("/", function() return "hello\n" end)
app:get("/folder", function() local file = io.open("beside.txt"); return file and file:read("a") or 404 end)
app:get("/held", function()
  ls.log.info("held")
  while not draining do ls.sleep(0.01) end
  ls.sleep(0.3)
  return "held until the end\n"
end)
app:get("/end", function() ls.stop() return 204 end)
ls.listen("127.0.0.1:PORT", app)
"""


@not_on_windows("the commands are valid on Windows")
class Elsewhere(unittest.TestCase):
    def test_the_words_are_for_windows(self):
        for word in ("install", "uninstall", "run-as-service"):
            status, out, err = run_program([word, "site.lua"])
            self.assertEqual((status, out), (2, ""))
            self.assertIn("luaserve: %s is for Windows services" % word, err)


@unittest.skipUnless(WINDOWS, "only Windows has services")
class Service(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Wine ends its services with the last other program, and its own processes inherit the output of the first
        # program: so one program waits for a key during all tests.
        cls.session = subprocess.Popen([*STARTER, "cmd", "/c", "echo up& pause"], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(cls.end_session)
        assert cls.session.stdout.readline().strip() == b"up", "no program of the system starts"

    @classmethod
    def end_session(cls):
        cls.session.stdin.close()
        try:
            cls.session.wait(WAIT)
        except subprocess.TimeoutExpired:
            cls.session.kill()
            cls.session.wait()
        cls.session.stdout.close()

    def setUp(self):
        self.name = "luaserve e2e %d %s" % (os.getpid(), self.id().rsplit(".", 1)[1])
        self.port = free_port()
        self.where = os.path.join(tempfile.mkdtemp(prefix="luaserve-e2e-"), "der dienst 日本")
        self.addCleanup(shutil.rmtree, os.path.dirname(self.where), ignore_errors=True)
        os.mkdir(self.where)
        if not WINE:  # a temporary folder is closed to LocalService
            self.assertEqual(self.system("icacls", self.where, "/grant", "*S-1-5-19:(OI)(CI)M")[0], 0)
        self.site = os.path.join(self.where, "site ü.lua")
        self.log = self.site + ".log"
        self.write(self.site, SITE.replace("PORT", str(self.port)))
        self.write(os.path.join(self.where, "beside.txt"), "beside\n")

    @staticmethod
    def write(path, text):
        write_text(path, text)

    @staticmethod
    def system(*command):
        """Run a program of the system; returns its status and its output."""
        done = subprocess.run([*STARTER, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=3 * WAIT, check=False)
        return done.returncode, done.stdout

    def program(self, *args, status=0):
        got, out, err = run_program(list(args), timeout=3 * WAIT)
        self.assertEqual(got, status, out + err)
        return out if status == 0 else err

    def install(self, *options, arguments=()):
        self.addCleanup(run_program, ["uninstall", "--name", self.name], 3 * WAIT)
        return self.program("install", "--name", self.name, *options, self.site, *arguments)

    def state(self):
        """("RUNNING", exit code, the service's own exit code); None without such a service."""
        status, out = self.system("sc", "query", self.name)
        found = re.search(r"STATE\s*: \d+\s+(\w+)\s+(?:\([^)]*\)\s+)?WIN32_EXIT_CODE\s*: (\d+).*\s+SERVICE_EXIT_CODE\s*: (\d+)", out)
        if not found:
            self.assertNotEqual(status, 0, out)
            return None
        return found.group(1), int(found.group(2)), int(found.group(3))

    def logged(self, path=None):
        with contextlib.suppress(FileNotFoundError), open(path or self.log, encoding="utf-8") as log:
            return log.read()
        return ""

    def start(self):
        status, out = self.system("net", "start", self.name)
        self.assertEqual(status, 0, out + self.logged())
        self.eventually(lambda: self.state()[0] != "START_PENDING", "the service has started")  # Wine's net does not wait

    def connect(self):
        conn = Conn(("127.0.0.1", self.port))
        self.addCleanup(conn.close)
        return conn

    eventually = E2E.eventually

    def test_its_life(self):
        out = self.install(arguments=['a "b" c\\', "日本", "", "--x", "*"])
        self.assertIn(self.name, out)
        self.assertIn("site ü.lua.log", out)
        self.assertEqual(self.state()[0], "STOPPED")
        self.start()
        # A running service serves: it accepts the first connection.
        self.assertEqual(self.connect().get("/").text, "hello\n")
        self.assertEqual(self.state()[0], "RUNNING")
        self.assertEqual(self.connect().get("/folder").text, "beside\n")
        self.assertIn('arguments: a "b" c\\|日本||--x|*\n', self.logged())

        held = self.connect()
        held.send(b"GET /held HTTP/1.1\r\nHost: h\r\n\r\n")
        self.eventually(lambda: "info held" in self.logged(), "the request has arrived")
        status, out = self.system("net", "stop", self.name)
        self.assertEqual(status, 0, out)
        response = held.response()
        self.assertEqual((response.status, response.text), (200, "held until the end\n"))
        self.assertTrue(response.closes)
        held.expect_end()
        self.eventually(lambda: self.state() == ("STOPPED", 0, 0), "the service has stopped")
        self.assertRegex(self.logged(), r"info draining\n(.*\n)*.* info stopped\n\Z")
        with self.assertRaises(ConnectionRefusedError):
            self.connect()

        self.start()  # again; it appends to its log
        self.assertEqual(self.connect().get("/").text, "hello\n")
        self.program("uninstall", "--name", self.name)  # uninstall stops it first
        self.assertIsNone(self.state())
        self.assertEqual(self.logged().count("info stopped\n"), 2)

    def test_the_site_ends_it(self):
        self.install()
        self.start()
        self.connect().get("/end")
        self.eventually(lambda: self.state() == ("STOPPED", 0, 0), "the service has stopped")
        self.assertIn("info stopped\n", self.logged())

    def test_options_and_the_log(self):
        log = os.path.join(self.where, "das log.txt")
        self.install("--log", log, "--threads", "3", "--log-level=debug", "--backend", "iocp")
        self.start()
        self.assertEqual(self.connect().get("/").text, "hello\n")
        os.rename(log, log + ".1")  # log rotation renames it
        self.connect().get("/end")
        self.eventually(lambda: "info stopped\n" in self.logged(log + ".1"), "it goes on writing to the renamed file")
        self.assertEqual(self.logged(), "")

    def test_what_keeps_it_from_starting(self):
        self.write(self.site, "local = 1")
        self.install()
        self.system("net", "start", self.name)
        self.eventually(lambda: self.state() == ("STOPPED", 1066, 1), "the service has failed")
        self.assertRegex(self.logged(), r"luaserve: .*site ü\.lua:1: ")
        os.unlink(self.site)
        self.system("net", "start", self.name)
        self.eventually(lambda: "cannot open" in self.logged(), "the service has failed again")
        self.eventually(lambda: self.state() == ("STOPPED", 1066, 1), "the service has failed again")

    def test_a_log_that_cannot_be_written(self):
        self.install("--log", os.path.join(self.where, "nowhere", "log"))
        self.system("net", "start", self.name)
        self.eventually(lambda: self.state() == ("STOPPED", 3, 0), "the service has failed: path not found")  # ERROR_PATH_NOT_FOUND

    def test_a_log_whose_folder_refuses(self):
        self.install("--log", self.where)  # a folder: access denied, whoever asks
        self.system("net", "start", self.name)
        self.eventually(lambda: self.state() == ("STOPPED", 5, 0), "the service has failed: access denied")

    def test_what_install_advises(self):
        out = self.install()
        self.assertRegex(out, r'icacls ".*der dienst 日本" /grant "NT SERVICE\\%s:\(OI\)\(CI\)M"' % self.name)
        self.assertIn("in another folder", out)
        self.assertIn('New-NetFirewallRule -DisplayName "%s" -Service "%s"' % (self.name, self.name), out)
        key = "HKLM\\SYSTEM\\CurrentControlSet\\Services\\EventLog\\Application\\" + self.name
        self.assertIn("EventCreate.exe", self.system("reg", "query", key)[1])
        self.program("uninstall", "--name", self.name)
        self.assertNotEqual(self.system("reg", "query", key)[0], 0)

    def test_refusals(self):
        self.install()
        for args, status, text in (
            (("install", "--name", self.name, self.site), 1, "already exists (error 1073); give another --name"),
            (("install", "--name", "none", os.path.join(self.where, "none.lua")), 1, "none.lua: no such file"),
            (("install", "--name", "none", self.where), 1, "no such file"),
            (("install", "--name", "a/b", self.site), 2, 'invalid service name "a/b"'),
            (("install", "--name", "", self.site), 2, '--name: invalid value ""'),
            (("install", "--name", "x" * 257, self.site), 2, "give 1 to 256 characters"), (("install",), 2, "no site given"),
            (("install", "--threads", "0", self.site), 2, "a number from 1 to 1024"),
            (("install", "--check", self.site), 2, "unknown option --check"),
            (("uninstall", "--name", "no such service"), 1, 'the service "no such service" does not exist (error 1060)'),
            (("uninstall", "--name", "a\\b"), 2, "invalid service name"),
            (("uninstall", self.site), 2, "usage: luaserve uninstall [--name NAME]"),
            (("run-as-service", self.site), 2, "which did not start this program (error 1063); run: luaserve "),
        ):
            with self.subTest(args[:3]):
                self.assertIn(text, self.program(*args, status=status))
        self.assertEqual(self.state()[0], "STOPPED")  # unchanged

    def test_help(self):
        self.assertIn("usage: luaserve install [--name NAME]", self.program("install", "--help"))
        self.assertIn("make a Windows service of a site", self.program("--help"))
