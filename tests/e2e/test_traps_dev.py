"""What a new user tried in the first hours, and `luaserve dev` says of it: the programs of the review, used as it did."""
# sanitizers: asan; few requests, one after the other
import re
import subprocess

from harness import E2E, LUASERVE, WAIT, Conn, free_port, not_on_windows, read_text, request, scratch
from harness.dev import DEV, HEAD, LISTEN, DevSites
from harness.browser import Browser, needs_browser
from harness.screen import drawn_on
from harness.terminal import terminal
from harness.websocket import WebSocket

LOCAL = ("Host", "localhost")
HTML = (("Accept", "text/html,*/*"), LOCAL)


class Traps(DevSites):
    def test_t2_a_dict_that_is_set_at_the_top(self):
        server = self.dev("""
local d = ls.dict("session")
d:set("counter", 0)                                  -- "initialise"
app:get("/incr", function() return "n=" .. d:incr("counter") .. "\\n" end)""")
        server.wait_log(r"warn \S*site\.lua:5: dict:set at the top of a file runs again .*: use dict:add, .* also in ls\.init, which each reload runs$")
        self.assertEqual([server.get("/incr").text for _ in range(5)], ["n=%d\n" % n for n in range(1, 6)])
        self.assertEqual(len(server.logged("dict:set at the top")), 1)

    def test_request_lines_of_several_hosts_have_the_name(self):
        for hosts, named in (("default = app", ""), ('["a.example"] = app, default = app', "a.example")):
            server = self.serve(HEAD + 'app:get("/x", function() return "ok" end)\n'
                                'ls.listen { host = "127.0.0.1", port = 0, hosts = { %s } }' % hosts, program=DEV)
            self.assertEqual(server.get("/x", (("Host", "A.example:80"),)).status, 200)
            server.wait_log(r"info (\S+: )?GET %s/x 200 " % named)

    def test_two_sites_with_the_sessions_of_one(self):
        server = self.dev("""
local secret, sessions = ("ab"):rep(20), ls.dict("sessions")
ls.session { secret = secret }
ls.session { secret = secret, cookie = "b" }
ls.session { secret = secret }
ls.session { store = sessions, cookie = "c" }
ls.session { store = ls.dict("other"), cookie = "d" }
ls.session { store = ls.dict("sessions"), cookie = "e" }
app:get("/", function() return "ok" end)""")
        self.assertEqual(server.get("/").text, "ok")
        server.stop()
        twin = r"^\S+ warn \S*site\.lua:%d: ls\.session has the %s of that at \S*site\.lua:%d: each accepts the sessions of the other, with their " \
               r"users\. For one login use one middleware in both apps; else give each its own %s$"
        self.assertRegex("\n".join(server.warnings()), re.compile("%s\n%s" % (twin % (7, "secret and cookie", 5, "secret"),
                                                                               twin % (10, "store", 8, "dict")), re.M))

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
            server.wait_log(r"warn \S*site\.lua:%d: %s at the top of a file runs again with each additional Lua state, .*ls\.init"
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

    def test_a_timer_without_a_function_names_its_line(self):
        server = self.dev("""
local _, message = pcall(ls.every, 5)
local ok, at = pcall(function() local timer = ls.every(5, nil) return timer end)
app:get("/", function() return at end)""")
        self.assertRegex(server.get("/").text, r"^\S*site\.lua:5: bad argument #2 to 'every' \(function expected, got nil\)$")

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
                            r"it in between: use incr, add, or update, whose function decides$" % (line, name))
        self.assertEqual(len(server.logged("warn .* reads and then sets")), 3)

    def test_a_history_that_is_sent_before_the_subscription(self):
        """Of a WebSocket and of events, from a dict and a table; not under a semaphore, and not from what no publisher writes."""
        server = self.dev("""
local said, users, order = ls.dict("said"), ls.dict("users"), ls.semaphore("order", 1)
local db = ls.sqlite("chat.db")
db:migrate { "create table line(id integer primary key, text text)" }
users:add("ann", 1)
local function say(text)
  said:rpush("all", text)
  db:exec("insert into line(text) values(?)", text)
  ls.publish("talk", text)
end
app:post("/say", function(req) say(req:body()) return 204 end)
app:get("/list", function(_, res)
  local sse = res:sse()
  for _, text in ipairs(said:range("all")) do sse:send(text) end
  sse:subscribe("talk")
end)
app:get("/rows", function(_, res)
  local sse = res:sse()
  for row in db:rows("select text from line") do sse:send(row.text) end
  sse:subscribe("talk")
end)
app:get("/right", function(_, res)
  local sse = res:sse()
  order:with(function()
    said:range("all")
    sse:subscribe("talk")
  end)
end)
app:get("/other", function(_, res)
  local sse, _ = res:sse(), users:get("ann")
  sse:subscribe("talk")
end)
app:ws("/ws", { open = function(ws) ws:send(said:llen("all") .. "") ws:subscribe("talk") end, message = function(_, text) say(text) end })""")
        with server.connect() as conn:
            conn.ask("POST", "/say", body=b"hello")
        with WebSocket(server.at(), "/ws") as ws:
            ws.receive()
        for path in ("/list", "/rows", "/right", "/other") * 2:
            self.assertEqual(server.get(path).status, 200)
        text = r'warn \S*site\.lua:%d: subscribes to "talk" after it has read %s: .*\{ retain = 50 \}\); or read and subscribe in one step'
        for line, what in ((17, 'the dict "said"'), (22, "the table line"), (35, 'the dict "said"')):
            server.wait_log(text % (line, what))
        self.assertEqual(len(server.logged("subscribes to")), 3)

    def test_a_number_that_is_published_out_of_order(self):
        server = self.dev("""
local ids, order = ls.dict("ids"), ls.semaphore("order", 1)
app:get("/number", function() ls.publish("n", ids:incr("a")) return 204 end)
app:get("/field", function() local n = ids:incr("a") ls.publish("n", { id = n, text = "x" }) return 204 end)
app:get("/text", function() local n = ids:incr("a") ls.publish("n", '{"id":' .. n .. "}") return 204 end)
app:get("/id", function() local n = ids:incr("a") ls.publish("n", "x", { id = tostring(n) }) return 204 end)
app:get("/right", function() order:with(function() ls.publish("n", ids:incr("a")) end) return 204 end)
app:get("/topic", function() ids:incr("b", 1000) ls.publish("n", { text = "1", at = 0.5 }, { retain = 9, id = true }) return 204 end)
ls.every(0.01, function() ls.publish("n", ids:incr("ticks", 1000)) end)""")
        for path in ("/number", "/field", "/text", "/id", "/right", "/topic") * 2:
            self.assertEqual(server.get(path).status, 204)
        for line in (5, 6, 7, 8):
            server.wait_log(r"warn \S*site\.lua:%d: publishes a number that incr has given: .*order:with\(fn\), or .*retain = 100, id = true" % line)
        server.stop()
        self.assertEqual({re.search(r"lua:(\d+)", line).group(1) for line in server.warnings()}, {"5", "6", "7", "8"})

    def test_a_state_that_is_published_out_of_order(self):
        server = self.dev("""
local online, order = ls.dict("online"), ls.semaphore("order", 1)
local function tell() ls.publish("room", { online = online:keys() }) end
app:get("/in", function() online:set("ann", true) tell() return 204 end)
app:get("/count", function() online:incr("n") ls.publish("room", online.n .. "") return 204 end)
app:get("/right", function() order:with(function() online:set("bob", true) tell() end) return 204 end)
app:get("/other", function()
  online:set("eve", true)
  ls.publish("room", "eve")
  return { n = #online:keys() }
end)
app:get("/version", function()
  online:update("list", function(list) return { version = (list and list.version or 0) + 1 } end)
  ls.publish("room", { online = online:keys(), version = online:get("list").version })
  return 204
end)
app:get("/read", function() tell() return 204 end)""")
        for path in ("/in", "/count", "/right", "/other", "/version", "/read") * 2:
            self.assertIn(server.get(path).status, (200, 204))
        for line in (5, 7):
            server.wait_log(r'warn \S*site\.lua:%d: changes the dict "online" and publishes what it then has: .*order:with' % line)
        server.stop()
        self.assertEqual({re.search(r"lua:(\d+)", line).group(1) for line in server.warnings()}, {"5", "7"}, server.log())

    def test_a_channel_whose_values_several_clients_take(self):
        server = self.dev("""
local feed, work = ls.channel("feed"), ls.channel("work")
app:get("/feed", function(_, res)
  local sse = res:sse()
  for value in feed:values() do sse:send(value) end
end)
app:get("/next", function() return work:receive(0.01) or 204 end)
app:get("/fill", function() feed:send("x") return 204 end)""")
        streams = [self.connect(server=server) for _ in range(2)]
        for conn in streams:
            conn.send(request("GET", "/feed"))
        for _ in range(2):
            server.get("/next")
        server.wait_log(r'warn \S*site\.lua:7: several clients take values from the channel "feed", .*a topic: ls\.publish')
        self.assertEqual(len(server.warnings()), 1, server.log())

    def test_keys_that_two_requests_share(self):
        """The time as a key, a mark that ends, and the greatest key as that of the own row; not a cache, a check or a transaction."""
        server = self.dev("""
local seen, orders, cache = ls.dict("seen"), ls.dict("orders"), ls.dict("cache")
local db = ls.sqlite("keys.db")
db:migrate { "create table item(id integer primary key, text text)" }
app:get("/hook/:id", function(req)
  if seen:get(req.params.id) then return "known" end
  seen:set(req.params.id, true, 3600)
  return "new"
end)
app:get("/order", function() orders[os.time()] = { n = 1 } return 204 end)
app:get("/named", function() orders:set("order-" .. os.time(), 1, 60) return 204 end)
app:get("/max", function()
  db:exec("insert into item(text) values('a')")
  return db:one("select max(id) as id from item")
end)
app:get("/right", function(req)
  cache:set("text", cache:get("text") or "computed", 60)
  orders:set(17, os.time())
  if not seen:add("right", true, 60) then return 204 end
  db:transaction(function(tx)
    tx:exec("insert into item(text) values('a')")
    return tx:one("select max(id) as id from item")
  end)
  return db:one("select max(id) as id from item")
end)""")
        for path in ("/hook/1", "/hook/2", "/order", "/named", "/max", "/right") * 2:
            self.assertIn(server.get(path).status, (200, 204))
        for line, text in ((9, 'reads and then sets an entry of the dict "seen"'), (12, 'the key of the dict "orders" is the time: .*uuid'),
                           (13, 'the key of the dict "orders" is the time'), (15, "inserts into the table item and then selects .*last_id")):
            server.wait_log(r"warn \S*site\.lua:%d: %s" % (line, text))
        self.assertEqual(len(server.warnings()), 4, server.log())

    def test_a_file_that_is_read_and_then_written(self):
        """As a small database of JSON; not under a semaphore, at the end of the file, by one timer, or another file."""
        server = self.dev("""
local order = ls.semaphore("todos", 1)
local function add(read, write)
  local list = ls.json.decode(read() or "[]")
  list[#list + 1] = "x"
  write(ls.json.encode(list))
end
local function read() return ls.file.read("todos.json") end
local function write(text) assert(ls.file.write("todos.json", text)) end
app:get("/wrong", function() add(read, write) return 204 end)
app:get("/io", function()
  local file = io.open("@DIR@/io.json")
  local text = file and file:read("a") or ""
  io.open("@DIR@/io.json", "w"):write(text .. "x"):close()
  return 204
end)
app:get("/right", function()
  order:with(add, read, write)
  return 204
end)
app:get("/append", function()
  read()
  assert(ls.file.write("todos.json", " ", { append = true }))
  assert(ls.file.write("other.json", " "))
  return 204
end)
ls.every(0.01, function() assert(ls.file.write("n", (ls.file.read("n") or "") .. "x")) end)""")
        for path in ("/wrong", "/io", "/right", "/append") * 2:
            self.assertEqual(server.get(path).status, 204)
        for line, name in ((11, "todos.json"), (16, r"\S*/io\.json")):
            server.wait_log(r'warn \S*site\.lua:%d: reads and then writes the file "%s": .*order:with' % (line, name))
        server.stop()
        self.assertEqual(len(server.warnings()), 2, server.log())

    def test_a_loop_that_continues_without_its_client(self):
        """One that looks at a result ends, and one write at the end is no loop."""
        server = self.dev("""
app:get("/events", function(_, res)
  local sse = res:sse()
  while true do
    sse:send("tick")
    ls.sleep(0.001)
  end
end)
app:get("/parts", function(_, res) while true do res:write("part") ls.sleep(0.001) end end)
app:ws("/ws", function(ws) while true do ws:send("tick") ls.sleep(0.001) end end)
app:get("/right", function(_, res)
  local sse = res:sse()
  while sse:send("tick") do ls.sleep(0.001) end
  sse:send("end")
end)
ls.tcp("127.0.0.1:0", function(sock) while true do sock:send("tick\\n") ls.sleep(0.001) end end)
app:get("/end", function() ls.stop() return "x" end)""", listeners=2)
        for path in ("/events", "/parts", "/right"):
            with server.connect(1) as conn:
                conn.send(request("GET", path))
                conn.response_head()
        with WebSocket(server.at(1), "/ws") as ws:
            ws.receive()
        with server.connect(0) as conn:
            conn.line()
        for line, call in ((7, "sse:send"), (11, "res:write"), (12, "ws:send"), (18, "sock:send")):
            server.wait_log(r"warn \S*site\.lua:%d: %s has returned nil since the client has left, .* while %s\(\.\.\.\) do" % (line, call, call))
        self.assertEqual(len(server.warnings()), 4, server.log())
        server.kill()

    def test_a_guard_whose_result_is_dropped(self):
        """A helper, one of a module and a global one; not where the results are used, nor one that only describes."""
        server = self.dev("""
local function guard(req)
  if req.query.key ~= "k" then return 401 end
end
local auth = {}
function auth.admin(req, res) if not req.query.admin then res:status(403) end end
function member(req) if not req.query.name then return 403, "who?" end end
local function fail(res) res:status(422) end
app:get("/a", function(req) guard(req) return "secret" end)
app:get("/b", function(req, res)
  auth.admin(req, res)
  return "secret"
end)
app:use("/c", function(req, res, next) member(req) next() end)
app:get("/c", function(req)
  local status = guard(req)
  if status or guard(req) then return status end
  return member(req)
end)
app:get("/d", function(req, res) fail(res) return { error = "no" } end)""")
        for line, name, at in ((11, "guard", 5), (13, r"auth\.admin", 8), (16, "member", 9)):
            server.wait_log(r"warn \S*site\.lua:%d: continues after %s has refused the request at \S*site\.lua:%d, .*middleware" % (line, name, at))
        self.assertEqual(len(server.warnings()), 3, server.log())

    def test_a_worker_of_each_state_that_counts(self):
        server = self.dev("""
local done, stats, loads, names = 0, { n = 0 }, 0, {}
local kept = 0 -- of this state
local work = ls.channel("work")
ls.on("start", function()
  loads = loads + 1
  names = { "a" }
  ls.spawn(function()
    for _ in work:values() do
      done = done + 1
      stats.n = stats.n + 1
      kept = kept + 1
    end
  end)
end)
app:get("/", function() return { done = done, n = stats.n, loads = loads, kept = kept, name = names[1] } end)""")
        for line, name in ((12, "done"), (13, "stats")):
            server.wait_log(r"warn \S*site\.lua:%d: changes %s, of which each Lua state has its own copy: .*Use ls\.dict" % (line, name))
        self.assertEqual(len(server.warnings()), 2, server.log())

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

    def test_effects_in_the_function_of_an_update(self):
        """It runs again when another request was faster: 300 moves were 4241 rows and jobs."""
        self.check_lines("""
local d, log, feed = ls.dict("d"), ls.dict("log"), ls.channel("feed", { capacity = 10000 })
local db, mail = ls.sqlite("moves.db"), ls.queue("mail", { file = "moves.db" })
db:migrate { "create table move(n integer)" }
local function again(fn) return d:update("n", function(n) fn(n) return (n or 0) + 1 end) end
d:add("n", 1)
app:get("/sql", function() again(function(n)
  db:exec("insert into move(n) values (?)", n) -- WARN db:exec in the function of dict:update .*second result
  db:insert("move", { n = n }) -- WARN db:insert in the function of dict:update
  db:query("select * from move")
end) return 204 end)
app:get("/tx", function() again(function() db:transaction(function(tx)
  tx:exec("update move set n = 1") -- WARN tx:exec in the function of dict:update
end) end) return 204 end)
GET /push
  d:update("n", function(n) mail:push { n = n } return n end) -- WARN queue:push in the function of dict:update
app:get("/dict", function() again(function(n)
  log:rpush("all", n or 0) -- WARN dict:rpush in the function of dict:update
  log.last = n -- WARN dict\\[key\\] = value in the function of dict:update
  log:update("x", function() return 1 end) -- WARN dict:update in the function of dict:update
  log:get("all")
end) return 204 end)
app:get("/tell", function() again(function(n)
  ls.publish("moves", "x") -- WARN ls.publish in the function of dict:update
  feed:send("x") -- WARN channel:send in the function of dict:update
  local job = ls.spawn(function() feed:send("x") end) -- WARN ls.spawn in the function of dict:update
  local r = ls.fetch("http://127.0.0.1:1/", { body = "x" }) -- WARN ls.fetch in the function of dict:update
  r = ls.fetch("http://127.0.0.1:1/")
  assert(ls.file.write("log", "x", { append = true })) -- WARN ls.file.write in the function of dict:update
end) return 204 end)
GET /right
  pcall(d.update, d, "n", function() error("no") end)
  local _, n = d:update("n", function(n) return (n or 0) + 1, n end)
  db:exec("insert into move(n) values (?)", n)
  mail:push { n = n }
  log:incr("n")
  ls.publish("moves", "x")""")

    def test_effects_before_the_commit(self):
        """A queue of another file cannot see the transaction: its jobs began before the commit, and stayed after a rollback."""
        self.check_lines("""
local db, here, other = ls.sqlite("shop.db"), ls.queue("here", { file = "shop.db" }), ls.queue("mail")
local feed = ls.channel("feed", { capacity = 10000 })
db:migrate { "create table o(n integer)" }
app:get("/wrong", function() return db:transaction(function(tx)
  tx:insert("o", { n = 1 })
  other:push(1) -- WARN queue:push in a transaction comes before the commit, .* ls.queue\\(name, { file = .* { tx = tx }
  ls.publish("orders", "1") -- WARN ls.publish in a transaction comes before the commit
  feed:send("1") -- WARN channel:send in a transaction
  local job = ls.spawn(function() end) -- WARN ls.spawn in a transaction
  return 204
end) end)
GET /right
  local ok, why = pcall(db.transaction, db, function(tx) here:push(1) end)
  assert(why:find("site.lua:16: ls.queue: this task is inside of db:transaction: use the argument of its function, such as tx:exec, or "
    .. "{ tx = tx } of queue:push", 1, true), why)
  db:transaction(function(tx) here:push(1, { tx = tx }) end)
  other:push(1)
  ls.publish("orders", "1")""")

    def test_wrong_calls_have_the_messages_that_they_have_without_dev(self):
        site = """
local top = { select(2, pcall(function() return (os.getenv()) end)), (select(2, pcall(function() return (os.getenv({})) end))) }
app:get("/", function()
  local said = { table.unpack(top) }
  for _, fn in ipairs { function() ls.every("x", print) end, function() ls.after(-1, print) end, function() ls.spawn() end,
    function() ls.subscribe("x") end, function() ls.every(1) end } do said[#said + 1] = select(2, pcall(fn)) end
  return table.concat(said, "\\n")
end)"""
        said = [re.sub(r"\S*site\.lua", "site.lua", self.serve(HEAD + site + LISTEN, program=program).get("/").text) for program in ((LUASERVE,), DEV)]
        self.assertRegex(said[0], r"(?m)^site.lua:4: bad argument #1 to 'getenv' \(string expected, got no value")
        self.assertRegex(said[0], r"(?m)^site.lua:7: bad argument #1 to 'every' \(number expected")
        self.assertEqual(*said)

    def test_an_answer_whose_status_nothing_looks_at(self):
        self.check_lines("""
local url = "http://127.0.0.1:8081"
app:get("/wrong", function()
  local data = assert(ls.fetch(url .. "/404")) -- WARN the answer of ls.fetch has the status 404, .* look at answer.ok
  return data:json() or "none"
end)
app:get("/chain", function()
  return assert(ls.fetch(url .. "/500")):body() -- WARN has the status 500
end)
app:get("/dropped", function()
  ls.fetch(url .. "/401", { method = "POST" }) -- WARN has the status 401
  return 204
end)
app:get("/right", function()
  local one, two, three = assert(ls.fetch(url .. "/404")), assert(ls.fetch(url .. "/500")), assert(ls.fetch(url .. "/200"))
  return one.ok and two.status == 200 and "all" or three:body()
end)
local function passed() return ls.fetch(url .. "/404") end
app:get("/passed", function() return passed().ok and 200 or 404 end)
app:get("/fine", function() return ls.fetch(url .. "/200"):body() end)
local upstream = ls.app()
upstream:any("/:status", function(req) return tonumber(req.params.status), "[1]" end)
ls.listen("127.0.0.1:8081", upstream)""".replace("8081", str(free_port())), ["/wrong", "/chain", "/dropped", "/right", "/passed", "/fine"], listeners=2)

    def test_what_a_client_sends(self):
        """SQL, pages, commands, patterns and addresses that are put together with it."""
        self.check_lines(r"""
local db = ls.sqlite("a.db")
db:migrate { "create table u(name text)" }
app:get("/wrong", function(req, res)
  if not req.query.never then return 204 end
  local name, form = req.query.name, req:form()
  local page = req.query.page
  db:query("select * from u where name = '" .. (req.query.name or "") .. "'") -- WARN the SQL of db:query has what the client sends, .* with \?
  db:exec(("delete from u where name = '%s'"):format(page)) -- WARN the SQL of db:exec
  db:one([[select * -- WARN the SQL of db:one has
    from u order by ]] .. req.query.order)
  res:html("<p>" .. page .. "</p>") -- WARN the page of res:html has what the client sends, .* ls.html.escape
  assert(os.execute("convert " .. req.params.file)) -- WARN the client chooses what the command of os.execute does
  io.popen(req:body()) -- WARN the command of io.popen
  local found = page:find(req.query.q) -- WARN page:find takes what the client sends as a pattern
  return res:redirect(req.query.next or "/") -- WARN the client chooses where res:redirect leads
end)
app:get("/right", function(req, res)
  if not req.query.never then return 204 end
  local order, id, to, name = req.query.order, tonumber(req.query.id), req.query.to, req.query.name
  local column = req.query.column
  if column ~= "name" then column = "rowid" end
  db:query("select * from u where name = ? order by " .. column, req.query.name)
  db:query("select * from u limit " .. id)
  db:query("select * from u where name = '" .. req.session.name .. "'")
  res:html("<p>" .. ls.html.escape(name) .. "</p>" .. id)
  if name:find(req.query.q, 1, true) then return 204 end
  ls.process { "convert", req.params.file }
  local next_page = req.query.next
  if next_page:find("^/[^/]") then return res:redirect(next_page) end
  return res:redirect("/found?q=" .. ls.url.encode(req.query.q))
end)""", ["/wrong", "/right"])

    def test_habits(self):
        self.check_lines(r"""
local none = os.getenv "NOT_THERE" -- WARN has no NOT_THERE, so none is nil, .* ls.env\("NOT_THERE"\)
local level = os.getenv("NO_LEVEL") or "info"
local flag = os.getenv "NO_FLAG"
local d = ls.dict("list")
ls.init(function() d:add("list", { { id = 1 }, { id = 2 } }) end)
app:get("/wrong", function(req, res)
  local on = d:get("on") or true -- WARN true also for false
  local off = on and false or 1 -- WARN always y
  local token = "t" .. math.random(1, 1000000) -- WARN can be guessed
  local hash = ls.crypto.sha256(req.query.password or "") -- WARN ls.crypto.password.hash
  os.execute("exit 3") -- WARN nothing looks at whether
  if req.query.never then res:write("data: 1\n\n") end -- WARN res:sse
  return none == 1 and { token, hash, off } or 204
end)
app:get("/gap", function() -- WARN the result has integers with gaps
  d:update("list", function(t) if #t == 2 then t[1] = nil end return t end)
  return d:get("list")
end)
app:get("/user", function() -- WARN the field user has the field "password_hash"
  return { user = { name = "ada", password_hash = "x" } }
end)
app:get("/users", function() return ls.json.array { { password = "x" } } end) -- WARN the result has the field "password"
app:get("/right", function(req, res)
  local set, text = true and not false, "this or true and false or that"
  if flag then return level end
  assert(os.execute("exit 0"))
  res:header("Content-Type", "text/event-stream")
  return { set = set, text = text, list = { 1, 2 }, number = math.random(10) }
end)""", ["/wrong", "/gap", "/user", "/users", "/right"])

    def test_a_state_that_decides_and_is_then_updated(self):
        self.check_lines("""
local orders = ls.dict("orders")
ls.init(function() for i = 1, 9 do orders:add(i, { state = "open" }) end end)
local n = ls.dict("n")
app:post("/wrong", function()
  local id = n:incr("wrong")
  local order = orders:get(id)
  if not order or order.state ~= "open" then return 409, "no" end
  orders:update(id, function(v) v.state = "refunded" return v end) -- WARN updates an entry of the dict "orders" that it has read
  return 204
end)
app:post("/right", function()
  local id = 4 + n:incr("right")
  local order = orders:get(id)
  if order.state ~= "open" then return 409, "no" end
  local done = orders:update(id, function(v)
    if v.state ~= "open" then return nil end
    v.state = "refunded"
    return v
  end)
  return done and 204 or 409
end)
app:post("/none", function()
  local id = 7
  local order = orders:get(id)
  orders:update(id, function(v) v.count = 1 return v end)
  return { order.state == "open" }
end)""", ["POST /wrong", "POST /right", "POST /none"])

    def test_rows_that_are_there_already(self):
        self.check_lines(r"""
local db = ls.sqlite("a.db")
db:migrate { "create table event(id text primary key)", "create table log(n integer)" }
ls.init(function()
  db:exec("insert into log values(1)") -- WARN db:exec in ls.init is repeated at each reload
  db:exec("insert or ignore into event values('first')")
end)
ls.init(function() if db:one("select count(*) as n from log").n == 0 then db:exec("insert into log values(2)") end end)
app:post("/wrong", function(req)
  local id = req.query.id
  if db:one("select 1 as x from event where id = ?", id) then return 409, "known" end
  db:exec("insert or ignore into event(id) values(?)", id) -- WARN selects from the table event and then inserts into it
  ls.publish("events", id)
  return 204
end)
app:post("/right", function(req)
  local id = req.query.id
  if db:one("select 1 as x from event where id = ?", id) then return 409, "known" end
  if db:exec("insert or ignore into event(id) values(?)", id).changes == 0 then return 409, "known" end
  return 204
end)
app:post("/schema", function(req)
  local t = req.query.never and req:json { done = "boolean?", title = "string?" } or {}
  local title = t.title or "none"
  return { title = title, done = t.done or 1 } -- WARN x.done or y is y also for false
end)
app:get("/zero", function(req)
  local user = db:one("select 0 as admin, 0 as count, 1 as one")
  if not user.admin and user.one then return 409 end -- WARN user.admin is the number 0, and 0 is true .* user.admin == 0
  if user.count == 0 and user.one then return { count = user.count, one = user.one or 2 } end
  return 204
end)
app:get("/tx", function()
  assert(select("#", db:transaction(function(tx) tx:exec("insert into log values(3)") end)) == 1)
  assert(db:transaction(function(tx) tx:exec("insert into log values(3)") end) == true)
  return 204
end)""", ["POST /wrong?id=1", "POST /right?id=2", "POST /schema", "/tx", "/zero"])

    def test_a_topic_is_no_pattern(self):
        self.check_lines("""
ls.subscribe("jobs/*", print) -- WARN subscribes to "jobs/\\*", and a topic is no pattern: .* publish to "jobs" as well
ls.subscribe("jobs", print)
ls.on_presence("room *", print) -- WARN subscribes to "room \\*", and a topic is no pattern
GET /
  local sse = res:sse()
  sse:subscribe("jobs.*") -- WARN subscribes to "jobs\\.\\*"
  sse:subscribe("jobs.1")
  sse:close()""")

    def test_an_id_from_a_path_is_text(self):
        self.check_lines("""
local mail = ls.queue("mail")
ls.init(function() mail:push(1, { id = "7" }) end)
GET /
  local number = mail:push(1)
  local text = tostring(number)
  assert(not mail:get(text)) -- WARN queue:get finds no job with this text as its id, and one with this number: .* math.tointeger
  assert(not mail:retry(text)) -- WARN queue:retry finds no job
  assert(not mail:remove(text)) -- WARN queue:remove finds no job
  assert(mail:get(number) and mail:get("7") and not mail:get("x") and not mail:get("999999"))""")

    def test_jobs_that_each_state_pushes(self):
        self.check_lines("""
local mail, door = ls.queue("mail"), ls.dict("door")
ls.on("start", function()
  mail:push("report") -- WARN queue:push in ls.on\\("start"\\) comes once for each Lua state, .* ls.init
  mail:push("one", { id = "one" })
  if door:add("first", true) then mail:push("two") end
end)
ls.init(function() mail:push("three") end)
app:get("/", function() mail:push("four") return 204 end)""")

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
