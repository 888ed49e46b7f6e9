"""luaserve new: each template passes its own tests, loads with --check, and serves; what it refuses."""
# sanitizers: none; templates are Lua code over what other tests use
import concurrent.futures
import contextlib
import glob
import json
import os
import queue
import re
import shutil
import ssl
import subprocess
import unittest

from harness import E2E, LUASERVE, ROOT, WAIT, WINDOWS, not_on_windows, read_text, scratch, write_text
from harness.acceptor import Acceptor
from harness.server import has_sqlite
from harness.tls import certificate, system_trust
from harness.websocket import WebSocket

TEMPLATES = ("api", "chat", "tcp", "web")
TOKEN = "token-of-this-test"  # of the API, which without one does not start
FORM = (("Content-Type", "application/x-www-form-urlencoded"), ("Sec-Fetch-Site", "same-origin"))


def run(*args, cwd):
    return subprocess.run([LUASERVE, *args], capture_output=True, text=True, cwd=cwd, timeout=4 * WAIT, stdin=subprocess.DEVNULL,
                          env={**os.environ, "API_TOKEN": TOKEN}, check=False)


def source_of(template, relative):
    """The file of a template that becomes this one of the site."""
    if relative == "store.lua":
        relative = "store.%s.lua" % ("sqlite" if has_sqlite() else "dict")
    return os.path.join(ROOT, "lua", "templates", template, relative)


class MailServer(Acceptor):
    """A mail server (SMTP) with STARTTLS. It refuses some mails before it takes one: `taken` then has its lines."""

    def __init__(self, cert, refusals):
        self.context, self.refusals, self.taken = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), refusals, queue.Queue()
        self.context.load_cert_chain(cert + ".pem", cert + ".key")
        super().__init__()

    def serve(self, conn, _):
        conn.sendall(b"220 ready\r\n")
        lines, said = conn.makefile("rb"), []
        for line in lines:
            said.append(line.decode().rstrip("\r\n"))
            verb = said[-1][:4]
            if verb == "STAR":
                conn.sendall(b"220 go ahead\r\n")
                conn = self.context.wrap_socket(conn, server_side=True)
                lines, said = conn.makefile("rb"), []
                break
            conn.sendall(b"250-shop\r\n250 STARTTLS\r\n")
        for line in lines:
            said.append(line.decode().rstrip("\r\n"))
            if said[-1][:4] == "RCPT" and self.refusals > 0:
                self.refusals -= 1
                conn.sendall(b"451 later\r\n")
            elif said[-1] == "DATA":
                conn.sendall(b"354 end with a dot\r\n")
                for text in lines:
                    if text == b".\r\n":
                        break
                    said.append(text.decode().rstrip("\r\n"))
                conn.sendall(b"250 taken\r\n")
                self.taken.put(said)
            else:
                conn.sendall(b"250 ok\r\n")


class Templates(E2E):
    def make(self, *args):
        where = scratch()
        self.addCleanup(where.__exit__, None, None, None)
        where = where.__enter__()
        done = run("new", "my-site", *args, cwd=where)
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        return os.path.join(where, "my-site"), done.stdout

    def serve_in(self, folder, *args, listeners, env=(), **kw):
        return self.serve(None, site_path=os.path.join(folder, "site.lua"), args=args, listeners=listeners, cwd=folder,
                          env={"API_TOKEN": TOKEN, **dict(env)}, **kw)

    def test_all_are_listed_and_tested_here(self):
        folders = {os.path.basename(os.path.dirname(path)) for path in glob.glob(os.path.join(ROOT, "lua", "templates", "*", ""))}
        self.assertEqual(folders, {*TEMPLATES, "common"})
        help_text = run("new", "--help", cwd=ROOT).stdout
        for name in TEMPLATES:
            self.assertRegex(help_text, r"\b%s(, the default)?: " % name)

    def test_every_file_of_a_template_is_written(self):
        for name in TEMPLATES:
            folder, out = self.make("--template", name)
            source = os.path.join(ROOT, "lua", "templates", name)
            for path in glob.glob(os.path.join(source, "**"), recursive=True):
                if not os.path.isfile(path):
                    continue
                relative = re.sub(r"^store\.\w+\.lua$", "store.lua", os.path.relpath(path, source))
                with open(source_of(name, relative), encoding="utf-8") as wanted, open(os.path.join(folder, relative), encoding="utf-8") as got:
                    self.assertEqual(got.read(), wanted.read().replace("@NAME@", "my-site"), path)
                self.assertIn("my-site/" + relative.replace(os.sep, "/"), out)
            for name_of_setting in (".gitignore", ".luarc.json", ".luaserve/luaserve.lua", ".luaserve/test.lua"):
                self.assertTrue(os.path.isfile(os.path.join(folder, name_of_setting)), name_of_setting)
            self.assertEqual(json.loads(read_text(os.path.join(folder, ".luarc.json")))["workspace.library"], [".luaserve"])
            with open(os.path.join(folder, "README.md"), encoding="utf-8") as page:
                self.assertEqual(page.readline(), "# my-site\n")

    def test_the_definitions_of_a_site_that_exists(self):
        with scratch() as where:
            write_text(os.path.join(where, "site.lua"), "-- mine")
            first = run("new", "--definitions", where, cwd=where)
            self.assertEqual((first.returncode, first.stderr), (0, ""))
            self.assertEqual(sorted(os.listdir(where)), [".luarc.json", ".luaserve", "site.lua"])
            definitions = os.path.join(where, ".luaserve", "luaserve.lua")
            text = read_text(definitions)
            write_text(definitions, "-- of another version")
            write_text(os.path.join(where, ".luarc.json"), "{}")
            second = run("new", where, "--definitions", cwd=where)
            self.assertEqual((second.returncode, second.stderr), (0, ""))
            self.assertNotIn(".luarc.json", second.stdout)
            self.assertEqual(read_text(definitions), text)
            self.assertEqual(read_text(os.path.join(where, ".luarc.json")), "{}")
            for args, message in ((["new", "--definitions", "none"], "none is not a folder; give the folder of a site"),
                                  (["new", "--definitions", "site.lua"], "site.lua is not a folder"),
                                  (["new", "--definitions", "--template", "api", "."], "leave out --template"),
                                  (["new", "--definitions"], "no folder given")):
                refused = run(*args, cwd=where)
                self.assertEqual(refused.returncode, 2, refused.stdout)
                self.assertIn(message, refused.stderr)

    def passes_its_tests(self, folder):
        done = run("test", "--timeout", str(WAIT), cwd=folder)  # hashes of passwords take long on a slow machine
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"\n\d+ passed in")
        log = [line for line in done.stderr.splitlines() if "and refuses new entries" not in line]
        self.assertEqual(log, [])  # one of the tests fills a dict

    def test_each_passes_its_tests_and_loads(self):
        for name in TEMPLATES:
            folder, _ = self.make("--template=" + name)
            self.passes_its_tests(folder)
            check = run("--check", "site.lua", cwd=folder)
            self.assertTrue(check.stdout.startswith("site.lua: ok\n"), check.stdout + check.stderr)

    def test_what_a_program_without_sqlite_writes(self):
        for name in ("api", "web"):
            folder, _ = self.make("--template", name)
            shutil.copy(os.path.join(ROOT, "lua", "templates", name, "store.dict.lua"), os.path.join(folder, "store.lua"))
            self.passes_its_tests(folder)

    def test_the_api_serves(self):
        folder, _ = self.make("--template", "api")
        server = self.serve_in(folder, "127.0.0.1:0", listeners=1)
        token = (("Authorization", "Bearer " + TOKEN),)
        with server.connect() as conn:
            self.assertEqual(conn.ask("POST", "/items", token, b'{"title":"write"}').status, 201)
            self.assertEqual(json.loads(conn.get("/items/1", token).text), {"id": 1, "title": "write", "done": False})
            self.assertEqual(conn.get("/items/1", (("Authorization", "Bearer token-for-development"),)).status, 401)

    def test_the_api_needs_a_token_of_its_own(self):
        folder, _ = self.make("--template", "api")
        done = subprocess.run([LUASERVE, "site.lua"], capture_output=True, text=True, cwd=folder, timeout=WAIT, check=False,
                              env={key: value for key, value in os.environ.items() if key != "API_TOKEN"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("API_TOKEN is not set", done.stderr)

    def log_in(self, server, path="/register"):
        answer = server.connect().ask("POST", path, FORM, b"name=ada&password=correct+horse")
        self.assertEqual(answer.status, 303, answer.text)
        return (*FORM, ("Cookie", answer.header("Set-Cookie").split(";")[0]))

    def test_the_pages_keep_what_requests_at_a_time_store(self):
        folder, _ = self.make()  # web is the default
        server = self.serve_in(folder, "127.0.0.1:0", listeners=1)
        ada = self.log_in(server)

        def write(n):
            with server.connect() as conn:
                return conn.ask("POST", "/notes", ada, b"title=note+%d" % n).status

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            first = list(pool.map(write, range(20)))
            mark = server.mark()
            if not WINDOWS:
                server.reload()
            second = list(pool.map(write, range(20, 40)))
        if not WINDOWS:
            server.wait_log("reloaded", mark)
        self.assertEqual(set(first + second), {303})
        self.assertEqual(set(re.findall(r"<h2>note (\d+)</h2>", server.get("/", ada).text)), {str(n) for n in range(40)})
        server.stop()
        if has_sqlite():  # the next run has the account, its session and its notes
            server = self.serve_in(folder, "127.0.0.1:0", listeners=1)
            self.assertEqual(server.get("/", ada).text.count("<h2>note "), 40)
            self.log_in(server, "/login")
            server.stop()

    def test_the_mail_of_a_new_password_is_sent_again_until_the_mail_server_takes_it(self):
        folder, _ = self.make()
        certificate(folder, "mail")
        with system_trust(os.path.join(folder, "mail.pem")) as env, contextlib.closing(
                MailServer(os.path.join(folder, "mail"), refusals=1)) as mails:
            server = self.serve_in(folder, "127.0.0.1:0", listeners=1, env={
                **env, "MAIL_SERVER": "localhost:%d" % mails.port, "MAIL_FROM": "site@shop.example", "SITE_URL": "https://shop.example"})
            server.connect().ask("POST", "/register", FORM, b"name=ada&password=correct+horse&mail=ada@example.org")
            self.assertIn("a mail is on its way", server.connect().ask("POST", "/password", FORM, b"name=ada").text)
            if not has_sqlite():  # without a queue the mail is lost
                return
            said = mails.taken.get(timeout=WAIT)
            server.wait_log("warn queue mails: job 1: attempt 1 has failed, .*the mail server said: 451 later")
        self.assertEqual(said[:3], ["EHLO shop.example", "MAIL FROM:<site@shop.example>", "RCPT TO:<ada@example.org>"])
        text = "\n".join(said)
        self.assertIn("\nTo: ada@example.org\nSubject: Your new password\n\n", text)
        token, = re.findall(r"https://shop\.example/password\?token=([\w-]+)\n", text)
        answer = server.connect().ask("POST", "/password/new", FORM, b"token=%s&password=battery+staple" % token.encode())
        self.assertEqual((answer.status, answer.header("Location")), (303, "/login"))

    def test_an_upload_that_does_not_arrive_leaves_nothing(self):
        folder, _ = self.make()
        server = self.serve_in(folder, "127.0.0.1:0", listeners=1)
        ada = self.log_in(server)
        headers = [field for field in ada if field[0] != "Content-Type"]
        body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n' + bytes(21 << 20) + b"\r\n--b--\r\n"
        headers.append(("Content-Type", "multipart/form-data; boundary=b"))
        with server.connect() as conn:
            self.assertEqual(conn.ask("POST", "/files", headers, body).status, 413)
        self.assertEqual(os.listdir(os.path.join(folder, "data", "files")), [])

    @not_on_windows("the developer's server watches files there in another way")
    def test_dev_warns_of_nothing(self):
        """luaserve dev has three Lua states from the start, and compares their variables after each request."""
        def web(server):
            ada = self.log_in(server)
            for n in range(20):
                with server.connect() as conn:
                    self.assertEqual(conn.ask("POST", "/notes", ada, b"title=note+%d" % n).status, 303)
                    self.assertEqual(conn.get("/files", ada).status, 200)

        def api(server):
            token = (("Authorization", "Bearer token-for-development"),)
            for n in range(20):
                with server.connect() as conn:
                    self.assertEqual(conn.ask("POST", "/items", token, b'{"title":"write"}').status, 201)
                    self.assertEqual(conn.get("/items?limit=5", token).status, 200)

        def chat(server):
            for n in range(20):
                with WebSocket(server.at(), "/live?room=lobby&name=ada") as ada:
                    ada.send("hello %d" % n)
                    while '"hello %d"' % n not in ada.receive():
                        pass
                    ada.close()

        def tcp(server):
            for n in range(20):
                with server.connect() as conn:
                    conn.send(b"SET a %d\nGET a\nQUIT\n" % n)
                    self.assertIn(b"BYE", conn.rest())

        for name, use in {"web": web, "api": api, "chat": chat, "tcp": tcp}.items():
            with self.subTest(template=name):
                folder, _ = self.make("--template", name)
                server = self.serve_in(folder, "0" if name == "tcp" else "127.0.0.1:0", listeners=1, program=(LUASERVE, "dev"))
                use(server)
                server.stop()
                self.assertIn("dev: watching", server.log())
                self.assertEqual(server.warnings() + server.logged(" error "), [])

    def test_the_chat_knows_who_is_there(self):
        """Of those who come and leave at a time, before and behind a reload, nothing remains."""
        folder, _ = self.make("--template", "chat")
        server = self.serve_in(folder, "127.0.0.1:0", listeners=1)

        def member(name):
            return WebSocket(server.at(), "/live?room=music&name=" + name)

        def people(ws):
            while "people" not in (data := json.loads(ws.receive())):
                pass
            return data["people"]

        def visit(n):
            with member("guest%d" % n) as guest:
                while "guest%d" % n not in people(guest):
                    pass
                guest.close()

        with member("stays") as stays, member("twice"), member("twice") as second:
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(visit, range(16)))
                mark = server.mark()
                if not WINDOWS:
                    server.reload()
                    server.wait_log("reloaded", mark)
                list(pool.map(visit, range(16, 32)))
            second.close()
            with member("last"):  # in the new site
                while people(stays) != ["last", "stays", "twice"]:
                    pass

    def test_the_messages_of_the_chat_keep_their_order(self):
        """A page asks for what follows its last message: one that arrives behind a later one would be lost."""
        folder, _ = self.make("--template", "chat")
        write_text(os.path.join(folder, "tests", "order_test.lua"), """
local ls = require "luaserve"
local test = require "luaserve.test"
local chat = require "chat"
it("keeps the order", function()
  local publish, numbers = ls.publish, {}
  ls.publish = function(topic, data)
    if data.messages[1].text == "first" then for _ = 1, 10 do ls.sleep(0) end end -- others run meanwhile
    numbers[#numbers + 1] = data.messages[1].number
    return publish(topic, data)
  end
  local first, second = ls.spawn(chat.say, "lobby", "ada", "first"), ls.spawn(chat.say, "lobby", "bob", "second")
  first:wait()
  second:wait()
  ls.publish = publish
  test.equal(#numbers, 2)
  test.truthy(numbers[1] < numbers[2])
end)
""")
        done = run("test", "--timeout", str(WAIT), "tests/order_test.lua", cwd=folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Refusals(unittest.TestCase):
    def refuses(self, where, status, message, *args):
        before = sorted(os.listdir(where))
        done = run("new", *args, cwd=where)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertIn(message, done.stderr)
        self.assertEqual(sorted(os.listdir(where)), before)

    def test_folders(self):
        with scratch(site_lua="") as where:
            self.refuses(where, 1, "the folder . is not empty: it contains site.lua; give a new or an empty folder", ".")
            self.refuses(where, 1, "site.lua is a file; give the name of a new folder", "site.lua")
            self.refuses(where, 1, "cannot make the folder site.lua", "site.lua/sub")
            self.refuses(where, 2, "no folder given; usage: luaserve new DIR")
            self.refuses(where, 2, "two folders given, a and b", "a", "b")

    def test_templates_and_options(self):
        with scratch() as where:
            self.refuses(where, 2, 'unknown template "wbe"; the templates are api, chat, tcp, web; did you mean web?',
                         "x", "--template", "wbe")
            self.refuses(where, 2, 'unknown template "common"', "x", "--template=common")

    def test_an_empty_folder_one_with_a_repository_and_parents(self):
        with scratch() as where:
            self.assertEqual(run("new", ".", cwd=where).returncode, 0)
            with open(os.path.join(where, "README.md"), encoding="utf-8") as page:
                self.assertEqual(page.readline(), "# site\n")
        with scratch() as where:
            os.makedirs(os.path.join(where, "a", ".git"))
            self.assertEqual(run("new", "a", cwd=where).returncode, 0)
            self.assertEqual(run("new", "b/c/d/", cwd=where).returncode, 0)
            self.assertTrue(os.path.isfile(os.path.join(where, "b", "c", "d", "tests", "app_test.lua")))

    def test_misspelt_command(self):
        done = run("nwe", cwd=ROOT)
        self.assertIn("did you mean luaserve new?", done.stderr)
