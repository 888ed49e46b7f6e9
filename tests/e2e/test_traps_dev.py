"""What a new user tried in the first hours, and `luaserve dev` says of it: the programs of the review, used as it did."""
import re
import subprocess

from harness import E2E, LUASERVE, WAIT, Conn, free_port, not_on_windows, read_text, request, scratch
from harness.browser import Browser, needs_browser
from harness.screen import drawn_on
from harness.terminal import terminal

DEV = (LUASERVE, "dev")
LISTEN = '\nls.listen{ host = "127.0.0.1", port = 0, handler = app }\n'
HEAD = 'local ls = require "luaserve"\nlocal app = ls.app()\n'
LOCAL = ("Host", "localhost")
HTML = (("Accept", "text/html,*/*"), LOCAL)


class Traps(E2E):
    def dev(self, site, **kw):
        return self.serve(HEAD + site + LISTEN, program=DEV, **kw)

    def test_t2_a_dict_that_is_set_at_the_top(self):
        server = self.dev("""
local d = ls.dict("session")
d:set("counter", 0)                                  -- "initialise"
app:get("/incr", function() return "n=" .. d:incr("counter") .. "\\n" end)""")
        server.wait_log(r"warn \S*site\.lua:5: dict:set at the top of a file runs again .*: use dict:add, .* or ls\.init$")
        self.assertEqual([server.get("/incr").text for _ in range(5)], ["n=%d\n" % n for n in range(1, 6)])
        self.assertEqual(len(server.logged("dict:set at the top")), 1)

    def test_t24_print_of_a_table(self):
        server = self.dev("""
local t, named = { n = 1 }, setmetatable({}, { __tostring = function() return "named" end })
local Class = setmetatable({}, { __index = function(_, name) error("a class has no " .. name) end })
app:get("/", function()
  print("t is", t)
  print(named, ls.inspect(t))
  print(setmetatable({}, Class))
  return "ok"
end)""")
        for _ in range(4):
            self.assertEqual(server.get("/").text, "ok")
        server.stop()
        self.assertRegex("\n".join(server.warnings()),
                         r"^\S+ warn \S*site\.lua:7: print shows the address of a table: write print\(ls\.inspect\(t\)\)\n"
                         r"\S+ warn \S*site\.lua:9: print shows the address of a table: write print\(ls\.inspect\(t\)\)$")
        lines = read_text(server.out_path).splitlines()
        self.assertEqual([re.sub("table: .+", "table", line) for line in lines], ["t is\ttable", "named\t{ n = 1 }", "table"] * 4)

    def test_what_else_is_done_at_the_top(self):
        """Each line has its warning; a file that is only open for appending has none."""
        server = self.dev("""
local d = ls.dict("d")
d:clear()
d:delete("x")
d:rpush("queue", "a")
d:lpush("queue", "b")
d:incr("starts")
d.n = 1
d:update("total", function(old) return (old or 0) + 1 end)
io.open("@DIR@/start", "w"):write("now"):close()
local log = io.open("@DIR@/log", "a") log:write("begins\\n") log:flush()
io.open("@DIR@/more", "a"):write("more"):close()
local access = io.open("@DIR@/access", "a")
d:incr("hits", 0)
d:update("kept", function(old) return old or 0 end)
d:add("first", 1)
io.open("@DIR@/start"):close()
local db = ls.sqlite(":memory:")
db:migrate { "create table u(id integer primary key, name text)" }
db:exec("insert into u(name) values('admin')")
db:transaction(function(tx) tx:exec("update u set name = 'x'") end)
db:query("with x as (select 1 as n) insert into u(name) select n from x returning id")
db:exec("insert or ignore into u values(1, 'admin')")
db:exec("create table if not exists v(id)")
db:query("with x as (select 1) select * from x")
app:get("/", function() access:write("x") io.open("@DIR@/start", "w"):close() d:clear() return "hello" end)""")
        for line, call in ((5, "dict:clear"), (6, "dict:delete"), (7, "dict:rpush"), (8, "dict:lpush"), (9, "dict:incr"),
                           (10, r"dict\[key\] = value"), (12, r'io\.open\(path, "w"\)'),
                           (13, r'a write to io\.open\(path, "a"\)'), (14, r'a write to io\.open\(path, "a"\)'),
                           (22, "db:exec"), (23, "tx:exec"), (24, "db:query")):
            server.wait_log(r"warn \S*site\.lua:%d: %s at the top of a file runs again with each additional Lua state, .*ls\.init$"
                            % (line, call))
        self.assertEqual(server.get("/").text, "hello")
        self.assertEqual(len(server.warnings()), 12)

    def test_a_file_of_the_top_that_handlers_append_to(self):
        """A line that stays in the buffer of a state is mixed with those of others; one that is flushed is not."""
        server = self.dev("""
local log = io.open("@DIR@/log", "a")
local flushed = io.open("@DIR@/flushed", "a")
local timer = io.open("@DIR@/timer", "a")
ls.every(0.001, function() timer:write("tick\\n") end)
app:get("/", function()
  log:write("a line\\n")
  flushed:write("a line\\n") flushed:flush()
  assert(ls.file.write("@DIR@/other", "a line\\n", { append = true }))
  return "hello"
end)""")
        for _ in range(3):
            self.assertEqual(server.get("/").text, "hello")
        server.wait_log(r'warn \S*site\.lua:4: several Lua states write to io\.open\(path, "a"\) .*: use ls\.file\.write\(path, '
                        r"line, \{ append = true \}\) or ls\.log, or open and close the file for each write$")
        for _ in range(6):
            server.get("/")
        self.assertEqual(len(server.warnings()), 1, server.log())

    def test_an_update_at_the_top_that_goes_on(self):
        server = self.dev('local d = ls.dict("d")\nd:update("n", function(old) return (old or 0) + 1 end)\n'
                          'app:get("/", function() return "hello" end)')
        for _ in range(3):  # an additional state sees it, with its first request
            server.get("/")
        server.wait_log(r"warn \S*site\.lua:4: dict:update at the top of a file runs again .*: use ls\.init$")

    def test_a_wrong_mode_at_the_top_names_its_line(self):
        server = self.dev("""
local _, message = pcall(io.open, "@DIR@/x", "write")
local ok, at = pcall(function() return (io.open("@DIR@/x", "write")) end)
app:get("/", function() return at end)""")
        self.assertRegex(server.get("/").text, r"^\S*site\.lua:5: bad argument #2 to 'open' \(invalid mode\)$")

    def test_an_entry_that_is_read_and_then_set(self):
        """Three forms, each with its line; the third one loses what another request writes in the meantime."""
        server = self.dev("""
local d, seen = ls.dict("n"), ls.dict("seen events")
app:get("/count", function() d.n = (d.n or 0) + 1 return "n" end)
app:get("/event/:id", function(req)
  local id = req.params.id
  if seen:get(id) then return "again" end
  ls.sleep(0.001)
  seen:set(id, true)
  return "first"
end)
app:get("/index/:id", function(req)
  local old = d[req.params.id]
  d:set(req.params.id, (old or 0) + 1)
  return "set"
end)""")
        for path in ("/count", "/event/1", "/index/a", "/count", "/event/2"):
            self.assertEqual(server.get(path).status, 200)
        for line, name in ((5, "n"), (10, "seen events"), (15, "n")):
            server.wait_log(r'warn \S*site\.lua:%d: reads and then sets an entry of the dict "%s": another request may write '
                            r"it in between: use incr, update or add$" % (line, name))
        self.assertEqual(len(server.logged("warn .* reads and then sets")), 3)

    def test_an_entry_that_is_appended_at_the_length(self):
        server = self.dev("""
local d, log = ls.dict("n"), ls.dict("log")
app:post("/", function(req)
  d[#d + 1] = req:body()
  log:set(#log + 1, "x")
  return #d + #log .. ""
end)
app:post("/in-order", function()
  d:rpush("list", #d)
  d[50] = #d
  d:set("length", #d)
  return "x"
end)""")
        for path in ("/", "/", "/in-order"):
            with server.connect() as conn:
                self.assertEqual(conn.ask("POST", path, body=b"x").status, 200)
        for line, name in ((6, "n"), (7, "log")):
            server.wait_log(r'warn \S*site\.lua:%d: appends to the dict "%s" at its length \+ 1: another request may do so '
                            r"at the same time" % (line, name))
        self.assertEqual(len(server.warnings()), 2)

    def test_a_key_of_a_client_that_reads_with_an_index(self):
        server = self.dev("""
local sessions = ls.dict("sessions")
sessions:add("ada", 1)
local function known(id) return sessions[id] end
app:get("/login/:id", function(req) return sessions[req.params.id] and "in" or "out" end)
app:get("/known/:id", function(req) return known(req.params.id) and "in" or "out" end)
app:get("/right/:id", function(req)
  local number = sessions[1]
  return sessions:get(req.params.id) and sessions.ada and sessions["ada"] and not number and "in" or "out"
end)""")
        for path in ("/right/ada", "/login/ada", "/known/ada", "/login/eve"):
            self.assertEqual(server.get(path).text, "out" if "eve" in path else "in")
        for line in (6, 7):
            server.wait_log(r'warn \S*site\.lua:%d: reads the dict "sessions" with \[key\]: for a key such as "get" that is '
                            r"the method, which is true\. Use dict:get\(key\) for keys that clients choose$" % line)
        self.assertEqual(len(server.warnings()), 2)

    RIGHT = """
local d, cache, kept = ls.dict("n"), ls.dict("pages", { evict = true }), ls.dict("kept", { evict = true })
local lock = ls.semaphore("lock", 1)
app:get("/other", function(req) local _ = d.a d.b = 1 return "other" end)
app:get("/set", function(req) d.a = 1 return "set " .. d.a end)
app:get("/remove", function(req) if not d:delete("a") then return "absent" end return "removed" end)
app:get("/session", function(req) local s = d.s d:set("s", s or "new", 60) return "renewed" end)
app:get("/cache", function(req) cache.x = cache.x or "page" kept.x = kept.x or "page" return cache.x end)
app:get("/incr", function(req) local n = d:incr("n") if d.n > 1000 then d.n = 0 end return n .. "" end)
app:get("/add", function(req) if d.k or not d:add("k", 1) then return "old" end d.k = 2 return "new" end)
app:get("/lock", function(req) return lock:with(function() d.l = (d.l or 0) + 1 return d.l .. "" end) end)
app:get("/fails", function(req) local _ = d.f error("fails") end)
app:get("/after", function(req) d.f = 1 return "f" end)
ls.every(0.01, function() d.t = (d.t or 0) + 1 end)
ls.tcp({ host = "127.0.0.1", port = 0 }, function(sock)
  for line in sock:lines() do if line == "get" then sock:send(tostring(d.v)) else d.v = line sock:send("ok") end end
end)
"""

    def test_right_uses_of_an_entry(self):
        server = self.dev(self.RIGHT, listeners=2)
        for path in ("other", "set", "remove", "session", "cache", "incr", "incr", "add", "lock", "fails", "after"):
            for _ in range(4):
                self.assertEqual(server.get("/" + path, index=1).status, 500 if path == "fails" else 200)
        with server.connect(0) as conn:
            conn.send(b"get\nx\nget\n")
            self.assertEqual(conn.take(6), b"nilokx")
        self.assertEqual(server.warnings(), [])

    def test_one_state_where_only_a_wait_lets_another_request_in(self):
        server = self.dev("""
ls.config { states = 1 }
local d = ls.dict("n")
app:get("/", function() d.n = (d.n or 0) + 1 return d.n .. "" end)
app:get("/wait", function() local n = d.n ls.sleep(0.001) d.n = n + 1 return d.n .. "" end)""")
        self.assertEqual([server.get(path).text for path in ("/", "/", "/wait")], ["1", "2", "3"])
        server.wait_log(r"warn \S*site\.lua:7: reads and then sets")
        self.assertEqual(len(server.warnings()), 1)

    def test_the_user_of_a_request_in_a_variable(self):
        server = self.dev("""
local user
app:use(function(req, res, next) user = req.query.u next() end)
app:get("/", function() ls.sleep(0.001) return user end)""")
        server.get("/?u=ann")
        server.wait_log(r"warn \S*site\.lua:5: changes user, .*: other requests may not see it, or see that of another one\. "
                        r"Use req\.user = \.\.\. for what belongs to one request, ls\.dict or a topic for what all share; after the "
                        r"declaration of a cache, the comment \"of each state\" ends this warning$")
        self.assertEqual(server.logged("states = 1"), [])

    def test_a_stream_that_ends_with_its_handler(self):
        server = self.dev("""
app:get("/events", function(req, res) local sse = res:sse() sse:subscribe("news") end)
app:post("/events", function(req, res) req:body() local sse = res:sse() sse:send("x") end)
app:get("/waits", function(req, res) local sse = res:sse() sse:send("x") ls.sleep(0.001) sse:send("y") end)
app:get("/closes", function(req, res) local sse = res:sse() sse:send("x") sse:close() end)
app:get("/hello", function() return "hello" end)""")
        self.assertEqual(server.get("/events").status, 200)
        self.assertEqual(server.get("/waits").text, "data: x\n\ndata: y\n\n")
        self.assertEqual(server.get("/closes").text, "data: x\n\n")
        self.assertEqual(server.get("/hello").text, "hello")
        with server.connect() as conn:
            conn.send(request("POST", "/events", body=b"a"))
            self.assertEqual(conn.response().text, "data: x\n\n")
        for line, method in ((4, "GET"), (5, "POST")):
            server.wait_log(r"warn \S*site\.lua:%d: %s /events: the stream ended with its handler: call sse:wait\(\)$" % (line, method))
        self.assertEqual(len(server.warnings()), 2)

    def test_t10_a_count_is_no_status(self):
        server = self.dev("""
local dict = ls.dict("visits")
dict:add("n", 198)
app:get("/", function() return dict:incr("n") end)
app:get("/missing", function() return 404 end)""")
        server.get("/missing")
        self.assertEqual(server.get("/").status, 500)
        self.assertEqual(server.get("/").status, 200)
        server.wait_log(r"warn \S*site\.lua:6: returns a number alone, which is the status .*return \{ count = n \}")
        self.assertEqual(len(server.warnings()), 1)

    def test_results_of_next(self):
        server = self.dev("""
app:use(function(req, res, next)
  local status, body = next()
  if status == 404 then return 404, "nothing here" end
end)
app:use(function(req, res, go_on)
  -- local x = go_on()
  go_on()
end)
app:get("/", function(req, res, next) local b = next() return b end, function() return "hello" end)""")
        self.assertEqual(server.get("/").text, "hello")
        for line in (5, 12):
            server.wait_log(r"warn \S*site\.lua:%d: next\(\) returns nothing: call it alone; afterwards res:status\(\), " % line)
        self.assertEqual(len(server.warnings()), 2)

    def test_t16_html_as_text(self):
        server = self.dev("""
app:get("/items/:id", function() return "<!doctype html><p>hello" end)
app:get("/page", function(_, res) res:html("<!doctype html><p>hello") end)
app:get("/typed", function(_, res) res:type("text/plain") return "<!doctype html>" end)
app:get("/part", function() return "\\n<h1 class=big>hello</h1>" end)
app:get("/other", function() return "<a.b@example.org>" end)
app:get("/text", function() return "<pager>" end)
app:use("/used", function(_, _, next)
  next()
  return "<p>hello"
end)
app:get("/used", function() return 403 end)""")
        for path in ("/page", "/typed", "/other", "/text", "/items/1", "/items/2", "/part", "/used"):
            server.get(path)
        for line, route in ((4, "/items/:id"), (7, "/part")):
            server.wait_log(r"warn \S*site\.lua:%d: GET %s returns HTML as text, .*: use res:html\(text\)$" % (line, route))
        server.wait_log(r"warn \S*site\.lua:10: the middleware returns HTML as text, .*: use res:html\(text\)$")
        self.assertEqual(len(server.warnings()), 3)

    T25 = """
local function inner(t) return t.field end
app:get("/", function(req)
  local value = inner(req.query.nothing)
  return "value " .. value
end)"""

    @needs_browser
    def test_t25_in_a_browser(self):
        server = self.dev(self.T25)
        browser = Browser()
        self.addCleanup(browser.close)
        page = browser.page("http://127.0.0.1:%d/?%s" % (server.port(), "a" * 3000))
        self.assertTrue(page.run("document.documentElement.scrollWidth <= innerWidth"))

    def test_a_middleware_that_does_not_answer(self):
        """It is an error: the page shows its line."""
        server = self.dev("""
app:get("/", function(req, res, next) end, function() return "hello" end)""")
        page = server.get("/", HTML)
        self.assertEqual(page.status, 500)
        self.assertRegex(page.text, r'"message">\S*site\.lua:4: the middleware neither called next\(\) nor answered the request: '
                         r'call next\(\), or return a response such as return 403<')
        self.assertIn('<span id="L4" class="marked">', page.text)
        self.assertNotIn("luaserve/", page.text)


@not_on_windows("a pseudo-terminal as standard error")
class Terminal(E2E):
    def lines(self, site, program=(LUASERVE,), until="listening"):
        """What the program writes to a terminal as standard error. It is stopped after `until` and a request."""
        port = free_port()
        with scratch(**{"site.lua": HEAD + site + LISTEN.replace("port = 0", "port = %d" % port)}) as folder:
            master, slave = self.enterContext(terminal())
            process = subprocess.Popen([*program, "site.lua"], cwd=folder, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=slave)
            try:
                text = drawn_on(master, lambda text: until in text)
                with Conn(("127.0.0.1", port)) as conn:
                    self.assertEqual(conn.get("/").text, "hello")
                process.terminate()
                return text + drawn_on(master, lambda text: "stopped" in text)
            finally:
                process.kill()
                process.wait(WAIT)

    HELLO = 'app:get("/", function() return "hello" end)'

    def test_t26_how_to_see_requests(self):
        text = self.lines(self.HELLO, until="not logged")
        self.assertRegex(text, r'info listening on \S+\r\n\S+ info requests are not logged: "luaserve dev" logs each one, '
                               r'a site logs them by ls\.on\("log", fn\)\r\n')

    def test_t26_not_where_it_is_done(self):
        self.assertNotIn("not logged", self.lines(self.HELLO + ' ls.on("log", function() end)'))
        self.assertNotIn("not logged", self.lines(self.HELLO, DEV))

    def test_t26_not_in_a_log_file(self):
        server = self.serve(HEAD + self.HELLO + LISTEN)
        server.get("/")
        server.stop()
        self.assertNotIn("not logged", server.log())
