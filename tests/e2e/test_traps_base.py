"""Traps of the first hours with luaserve: paths, single tables, standard output, variables of commands, dicts, forgotten
arguments, printed tables. Each test begins with the site as a newcomer wrote it."""
# sanitizers: asan; one thread runs
import json
import os
import re
import subprocess

from harness import E2E, LUASERVE, ROOT, WAIT, WINDOWS, read_text, run_program, scratch, write_text

SITE = 'local ls = require "luaserve"\nlocal app = ls.app()\n'
LISTEN = '\nls.listen("127.0.0.1:0", app)\n'


def run(*args, stdin="", cwd=None):
    """Run the program to its end; returns its exit status, stdout and stderr."""
    done = subprocess.run([LUASERVE, *args], input=stdin, capture_output=True, text=True, timeout=2 * WAIT, cwd=cwd, check=False)
    return done.returncode, done.stdout, done.stderr


def native(path):
    """The path as the program gives it; under Wine one of Linux is on the drive Z:."""
    return ("Z:" if path.startswith("/") else "") + path.replace("/", "\\") if WINDOWS else path


class OneBaseForPaths(E2E):
    def test_t13_the_page_about_an_upload_works_from_another_directory(self):
        """luaserve sub/site.lua, then an upload: the file is beside the site."""
        text = read_text(os.path.join(ROOT, "lua/docs/upload.md"))
        with scratch() as where:
            os.makedirs(os.path.join(where, "sub/views"))
            for pattern, name in ((r"```html.*?\n(.*?)```", "views/pictures.html"), (r"```lua\n(.*?)```", "site.lua")):
                with open(os.path.join(where, "sub", name), "w") as out:
                    part = re.search(pattern, text, re.DOTALL).group(1)
                    out.write(part.replace("ls.listen(8080, app)", LISTEN).replace(', { file = "pictures.db" }', ""))
            server = self.serve(None, cwd=where, site_path="sub/site.lua")
            picture = b"\x89PNG\r\n\x1a\n..."
            body = b'--b\r\nContent-Disposition: form-data; name="picture"; filename="a.png"\r\n\r\n' + picture + b"\r\n--b--\r\n"
            with server.connect() as conn:
                headers = [("Content-Type", "multipart/form-data; boundary=b")]
                self.assertEqual(conn.ask("POST", "/", headers, body).status, 303)
                shown = re.search(r'src="(/pictures/[^"]+)"', conn.get("/").text).group(1)
                self.assertEqual(conn.get(shown).body, picture)
            self.assertEqual(os.listdir(os.path.join(where, "sub", "pictures")), [os.path.basename(shown)])
            self.assertEqual(os.listdir(where), ["sub"])

    def test_t13_ls_dir_is_the_directory_of_the_site_for_all_functions(self):
        site = SITE + """
app:get("/", function(req, res)
  local file = assert(io.open(ls.dir .. "/data.txt", "w"))
  file:write("beside the site")
  file:close()
  assert(ls.file.write("public/data.txt", "beside the site"))
  return table.concat({ ls.dir, assert(ls.file.read("data.txt")), assert(ls.file.read(ls.dir .. "/data.txt")) }, "|")
end)
app:get("/file", function(req, res) res:file(ls.dir .. "/data.txt") end)
ls.file.mkdir("public")
app:static("/static", ls.dir .. "/public")""" + LISTEN
        with scratch() as where:
            where = os.path.realpath(where)
            folder = os.path.join(where, "sub")
            os.mkdir(folder)
            write_text(os.path.join(folder, "site.lua"), site)
            server = self.serve(None, cwd=where, site_path="./sub/../sub/site.lua")
            self.assertEqual(server.get("/").text, "%s|beside the site|beside the site" % native(folder))
            self.assertEqual([server.get("/file").text, server.get("/static/data.txt").text], ["beside the site"] * 2)

    def test_ls_dir_of_a_site_that_is_no_file(self):
        """It is the working directory."""
        code = 'local ls = require "luaserve" ls.config{ states = 1 } ls.init(function() print(ls.dir) end)'
        with scratch() as where:
            for args, stdin in ((["-e", code], ""), (["-"], code)):
                self.assertEqual(run("--log-level", "warn", *args, stdin=stdin, cwd=where), (0, native(os.path.realpath(where)) + "\n", ""))


class OneNameForTheFunction(E2E):
    def test_handler_in_every_single_table(self):
        server = self.serve("""
local ls = require "luaserve"
local app = ls.app()
app:get("/", function()
  local sock = assert(ls.connect("127.0.0.1", tonumber(ls.dict("ports").tcp)))
  return sock:receive("*a")
end)
app:post("/:port", function(req) ls.dict("ports").tcp = req.params.port end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app }
ls.tcp{ host = "127.0.0.1", port = 0, handler = function(sock) sock:send("tcp ", udp_answer()) end }
local udp = ls.udp{ host = "127.0.0.1", port = 0, handler = function(data) return data:upper() end }
function udp_answer()
  local client = assert(ls.udp_connect("127.0.0.1", udp.local_port))
  client:send("udp")
  return (client:receive(5))
end
""", listeners=2)
        with server.connect() as conn:
            conn.ask("POST", "/%d" % server.port(1))
            self.assertEqual(conn.get("/").text, "tcp UDP")

    def test_the_old_names_say_the_new_one(self):
        for call, message in (
            ("ls.listen{ port = 0, app = app }", "site.lua:3: ls.listen: unknown option \"app\"; its new name: handler = app"),
            ("ls.tcp{ port = 0, serve = print }", "site.lua:3: ls.tcp: unknown option \"serve\"; its new name: handler = fn"),
            ("ls.tcp(0, print, { serve = print })", "site.lua:3: ls.tcp: unknown option \"serve\"; its new name: handler = fn"),
            ("ls.udp({ port = 0, handler = print }, print)",
             "site.lua:3: ls.udp: two functions given, as argument and as handler; give only one"),
        ):
            self.refuses(SITE + call, message)


class VariableOfTheCommand(E2E):
    MODULE = """return { file = (os.getenv("LUASERVE_ENV") or "real") .. ".db" }"""
    TEST = """
local test = require "luaserve.test"
it("uses its own data", function()
  local store = require "store"
  test.equal(store.file, "test.db")
  local server = test.serve("site.lua")
  test.equal(server:get("/").body, "test.db")
end)
"""

    def test_t19_luaserve_test_uses_other_data(self):
        """Whatever the caller has set: the variable may name the data of a real server."""
        site = SITE + 'local store = require "store"\napp:get("/", function() return store.file end)\nls.listen(8080, app)'
        with scratch(site_lua=site, store_lua=self.MODULE) as where:
            os.mkdir(os.path.join(where, "tests"))
            write_text(os.path.join(where, "tests/store_test.lua"), self.TEST)
            for env in ({}, {"LUASERVE_ENV": "production"}):
                status, out, err = run_program(["test", "--timeout", str(WAIT)], cwd=where, env=env)
                self.assertEqual((status, "1 passed" in out), (0, True), out + err)

    def test_t19_dev_and_the_server(self):
        site = SITE + 'app:get("/", function() return os.getenv("LUASERVE_ENV") or "none" end)' + LISTEN
        for program, env, expected in (([LUASERVE], None, "none"), ([LUASERVE], "staging", "staging"),
                                       ([LUASERVE, "dev"], None, "development"), ([LUASERVE, "dev"], "staging", "staging")):
            server = self.serve(site, program=program, env={"LUASERVE_ENV": env} if env else {})
            self.assertEqual(server.get("/").text, expected)
            server.stop()


class NamesOfMethodsInADict(E2E):
    SITE = SITE + """
local d = ls.dict("d")
app:get("/:name", function(req)
  local ok, message = pcall(function() d[req.params.name] = "x" end)
  d:set(req.params.name, "stored")
  return { message = not ok and message or nil, get = d:get(req.params.name), index = type(d[req.params.name]) }
end)""" + LISTEN

    def test_t20_a_key_that_is_the_name_of_a_method_is_not_stored_silently(self):
        """d["keys"] = "x" worked, and d["keys"] is a function."""
        for name in ("keys", "get", "set", "update", "incr"):
            answer = json.loads(self.get("/" + name).text)
            self.assertIn('site.lua:6: dict: \'%s\' is the name of a method: write dict:set("%s", value), and read it by '
                          'dict:get("%s")' % (name, name, name), answer["message"])
            self.assertEqual((answer["get"], answer["index"]), ("stored", "function"))
        self.assertEqual(json.loads(self.get("/pairs").text), {"get": "stored", "index": "string"})


class ForgottenArguments(E2E):
    def test_t22_a_forgotten_second_value_fails(self):
        with scratch() as where:
            write_text(os.path.join(where, "equal_test.lua"), """
local test = require "luaserve.test"
it("forgets", function() test.equal(nil) end)
it("forgets that", function() test.contains("text") end)
it("means it", function() test.equal(nil, nil) end)
""")
            status, out, err = run_program(["test", "--timeout", str(WAIT)], cwd=where)
        self.assertEqual(status, 1)
        self.assertIn("equal_test.lua:3: forgets\n   test.equal: the second value is missing: test.equal(got, expected); for nil write "
                      "test.equal(got, nil)", out + err)
        self.assertIn("equal_test.lua:4: forgets that\n   test.contains: the second value is missing", out + err)
        self.assertIn("1 passed, 2 failed", out)

    def test_t22_errors_name_the_line_and_the_colon(self):
        server = self.serve(SITE + """
local d = ls.dict("d")
app:get("/sort", function() d.list = { 3, 1, 2 } table.sort(d.list) end)
app:get("/html", function(req, res) res.html("x") end)
app:get("/json", function(req) return req.json() end)
app:get("/dict", function() return d.get("x") end)
app:get("/keys", function() return { d.keys("x") } end)
ls.tcp("127.0.0.1:0", function(sock) sock.send("x") end)""" + LISTEN, listeners=2)
        for path, message in (
            ("/sort", "site.lua:5: the value of a dict is a read-only copy"),
            ("/html", "site.lua:6: 'html' is a method of a response: call it with a colon, such as object:html(...); got string"),
            ("/json", "'json' is a method of a request: call it with a colon"),
            ("/dict", "'get' is a method of a dict: call it with a colon"),
            ("/keys", "'keys' is a method of a dict: call it with a colon, such as todos:keys(...); got \"x\" for the dict"),
        ):
            self.assertEqual(server.get(path, index=1).status, 500)
            server.wait_log(re.escape(message))
        server.connect(0).expect_end()
        server.wait_log("'send' is a method of a sock: call it with a colon")

    def test_t22_an_unknown_command(self):
        """luaserve run x.lua"""
        for args, message in (
            (["run", "x.lua"], "cannot open run: No such file or directory; unknown command run: did you mean luaserve x.lua?"),
            (["tset"], "unknown command tset: did you mean luaserve test?"),
            (["frobnicate"], "unknown command frobnicate; luaserve --help lists the commands"),
        ):
            status, _, err = run(*args)
            self.assertEqual((status, message in err), (1, True), err)


class PrintedTables(E2E):
    def test_t24_a_table_in_the_log_is_readable(self):
        """print(t) and ls.log.info(t) showed an address."""
        server = self.serve(SITE + """
local d = ls.dict("d")
d.todo = { title = "tea", tags = { "a", "b" } }
local t = { n = 1 }
t.self = t
app:get("/", function()
  ls.log.info(t)
  ls.log.warn("todo", d.todo, nil, "text")
  print(ls.inspect(d.todo))
  return ls.inspect { "x", list = {} }
end)""" + LISTEN)
        self.assertEqual(server.get("/").text, '{ "x", list = {} }')
        server.wait_log(r"info \{ n = 1, self = \{ <cycle> \} \}$")
        server.wait_log(r'warn todo\t\{ tags = \{ "a", "b" \}, title = "tea" \}\tnil\ttext$')
        server.stop()
        self.assertEqual(read_text(server.out_path), '{ tags = { "a", "b" }, title = "tea" }\n')
