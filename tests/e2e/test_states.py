"""Lua states: made when they are needed, limited by ls.config{ states = N }; hooks, timers and output of late states."""
import os
import select

from harness import E2E, read_text, request, write_text

# A handler of /hold occupies its state (and its thread) until the file exists; it looks every few milliseconds.
SITE = r"""
local ls = require "luaserve"
local app = ls.app()
print("loading")
io.stderr:write("a line of standard error\n")
ls.log.info("loading")
ls.config{ threads = %d, threads_max = %d %s }
local started, ticks = 0, 0
ls.on("start", function() started = started + 1 ls.log.info("started") end)
ls.after({ seconds = 0.01, each_state = true }, function() ticks = ticks + 1 ls.log.info("tick") end)
app:get("/states", function() return tostring(ls.stats().lua_states) end)
app:get("/here", function() return tostring(started) end)
app:get("/hold", function(req)
  ls.log.info("holds")
  while true do
    local f = io.open(req.query.file)
    if f then f:close() break end
    os.execute("sleep 0.005")
  end
  return tostring(started)
end)
app:get("/wait", function(req)
  ls.log.info("waits")
  while not io.open(req.query.file) do ls.sleep(0.005) end
  return "waited"
end)
app:get("/pid", function() return "here" end)
"""
HTTP = 'ls.listen{ host = "127.0.0.1", port = 0, handler = app }\n'


class OnDemand(E2E):
    def held(self, server, count, path):
        conns = [self.connect(server=server) for _ in range(count)]
        for n, conn in enumerate(conns):
            conn.send(request("GET", "/hold?file=" + path))
            server.wait_log("holds", count=n + 1)
        return conns

    def release(self, conns, path):
        open(path, "w").close()
        for conn in conns:
            response = conn.response()
            self.assertEqual((response.status, response.text), (200, "1"))

    def test_one_state_for_each_running_thread_at_the_start(self):
        for threads in (1, 3):
            for _ in range(5):  # a busy machine: the request may find all in use, and one more is made
                server = self.serve(SITE % (threads, 8, "") + HTTP)
                states = server.get("/states").text
                server.stop()
                if states == str(threads):
                    break
            self.assertEqual(states, str(threads))

    def test_states_are_made_when_all_are_in_use(self):
        server = self.serve(SITE % (1, 4, "") + HTTP)
        path = os.path.join(server.dir, "go")
        conns = self.held(server, 3, path)
        self.assertEqual(server.get("/states").text, "4")
        self.release(conns, path)
        self.assertEqual(server.get("/states").text, "4")  # they stay

    def test_a_request_over_the_limit_is_refused(self):
        """Also one with a body, and the connection stays open; the log has one line about all of them."""
        server = self.serve(SITE % (1, 3, "") + HTTP)
        path = os.path.join(server.dir, "go")
        conns = self.held(server, 2, path)
        self.assertEqual(server.get("/states").text, "3")  # the third one finds a state
        conns.append(self.connect(server=server))
        conns[2].send(request("GET", "/hold?file=" + path))
        server.wait_log("holds", count=3)
        late = self.connect(server=server)
        for head in (request("GET", "/pid"), request("POST", "/pid", body=b"x" * 100), request("GET", "/pid")):
            late.send(head)
            response = late.response()
            self.assertEqual((response.status, response.header("retry-after")), (503, "1"))
        server.wait_log("3 handlers compute or block")
        self.assertEqual(server.log().count("3 handlers compute or block"), 1)
        self.release(conns, path)

        def is_served():
            late.send(request("GET", "/pid"))
            return late.response().status == 200
        self.eventually(is_served, "a state is free")

    def test_a_late_state_runs_its_hooks_before_its_first_request_and_its_timers(self):
        server = self.serve(SITE % (1, 2, "") + HTTP)
        server.wait_log("tick")
        path = os.path.join(server.dir, "go")
        conns = self.held(server, 1, path)
        self.assertEqual(server.get("/here").text, "1")
        self.release(conns, path)  # on a busy machine it is the late state that was held
        server.wait_log("tick", count=2)
        self.assertEqual(server.log().count("started"), 2)

    def test_a_late_state_prints_nothing_while_it_loads(self):
        server = self.serve(SITE % (1, 3, "") + HTTP)
        path = os.path.join(server.dir, "go")
        conns = self.held(server, 2, path)
        self.assertEqual(server.get("/states").text, "3")
        self.assertEqual(server.log().count("info loading"), 1)
        self.assertEqual(read_text(server.out_path), "loading\n")
        self.assertEqual(server.log().count("a line of standard error"), 1)
        self.release(conns, path)

    def test_a_late_state_runs_the_text_of_the_first_one(self):
        text = 'local version = 1\n' + SITE % (1, 2, "") + 'app:get("/version", function() return tostring(version) end)\n' + HTTP
        server = self.serve(text)
        path = os.path.join(server.dir, "go")
        write_text(server.site, "this is no Lua")
        conns = self.held(server, 1, path)
        self.assertEqual(server.get("/version").text, "1")
        self.release(conns, path)

    def test_a_late_state_runs_the_files_that_the_first_one_has_loaded(self):
        """The files of require, dofile and loadfile have changed, or vanished; what a handler loads is read anew."""
        write = """
        local made = io.open("@DIR@/made")
        if not made then
          local function write(name, text) io.open("@DIR@/" .. name, "w"):write(text):close() end
          write("m.lua", "#!/usr/bin/lua\\nreturn { v = 'm1', other = require 'n' }")
          write("n.lua", "return 'n1'")
          write("d.lua", "return 'd1'")
          write("l.lua", "return v")
          write("made", "")
        end
        """
        more = """
        local m, where = require "m"
        local d = dofile("d.lua")
        local l = loadfile("l.lua", "t", { v = "l1" })()
        assert(where:find("m.lua", 1, true))
        assert(select(2, loadfile("none.lua")):find("cannot open none.lua", 1, true))
        local found, message = pcall(require, "none")
        assert(not found and message:find("no file '.*none.lua'") and message:find("no field package.preload", 1, true))
        app:get("/files", function() return table.concat({ m.v, m.other, d, l }, " ") end)
        app:get("/now", function() return dofile("d.lua") end)
        """
        server = self.serve(SITE % (1, 3, "") + write + more + HTTP)
        path = os.path.join(server.dir, "go")
        for name in ("m.lua", "n.lua"):
            os.remove(os.path.join(server.dir, name))
        for name, text in (("d.lua", "return 'd2'"), ("l.lua", "no Lua")):
            write_text(os.path.join(server.dir, name), text)
        conns = self.held(server, 2, path)
        self.assertEqual(server.get("/files").text, "m1 n1 d1 l1")
        self.assertEqual(server.get("/now").text, "d2")
        self.release(conns, path)
        self.assertEqual(server.get("/states").text, "3")
        self.assertFalse(server.logged("cannot load the site"))

    def test_a_late_state_has_the_templates_that_the_first_one_has_loaded(self):
        """Two of them have changed, one has vanished; a text is read when a state uses it first."""
        write = """
        if not ls.file.stat("views") then
          assert(ls.file.mkdir("views"))
          for _, name in ipairs{ "a.html", "b.html", "gone.html", "t.txt" } do assert(ls.file.write("views/" .. name, name .. " 1")) end
        end
        local views = ls.templates("views")
        app:get("/pages", function()
          local pages = {}
          for _, name in ipairs{ "a.html", "b.html", "gone.html", "t.txt" } do pages[#pages + 1] = views:render(name) end
          return table.concat(pages, ", ")
        end)
        """
        server = self.serve(SITE % (1, 3, "") + write + HTTP)
        path = os.path.join(server.dir, "go")
        views = os.path.join(server.dir, "views")
        for name in ("a.html", "b.html", "t.txt"):
            write_text(os.path.join(views, name), name + " 2")
        os.remove(os.path.join(views, "gone.html"))
        conns = self.held(server, 2, path)
        self.assertEqual(server.get("/pages").text, "a.html 1, b.html 1, gone.html 1, t.txt 2")
        self.release(conns, path)

    def test_a_state_that_does_not_load_is_reported_once_and_work_waits(self):
        text = ('local f = io.open("@DIR@/loaded") if f then f:close() error("no second state") end '
                'io.open("@DIR@/loaded", "w"):close()\n') + SITE % (1, 3, "") + HTTP
        server = self.serve(text)
        path = os.path.join(server.dir, "go")
        conns = self.held(server, 1, path)
        late = [self.connect(server=server) for _ in range(3)]
        for conn in late:
            conn.send(request("GET", "/states"))
        server.wait_log("cannot load the site into an additional Lua state")
        self.release(conns, path)
        for conn in late:
            self.assertEqual(conn.response().text, "1")
        self.assertEqual(server.log().count("no second state"), 1)


class Random(E2E):
    SEEDED = """
    local ls = require "luaserve"
    local app = ls.app()
    ls.config{ threads = 3, threads_max = 3%s }
    math.randomseed(%s)
    ls.on("start", function() ls.log.info("drew " .. math.random(1 << 50)) end)
    app:get("/again", function() math.randomseed(7) return tostring(math.random(1 << 50)) end)
    """ + HTTP

    def drawn(self, server, states):
        server.wait_log("drew", count=states)
        return sorted(line.split("drew ")[1] for line in server.logged("drew"))

    def test_states_with_the_same_seed_draw_different_numbers(self):
        alone = self.serve(self.SEEDED % (", states = 1", "7"))
        first, = self.drawn(alone, 1)
        self.assertEqual(alone.get("/again").text, first)
        alone.stop()
        server = self.serve(self.SEEDED % ("", "7"))
        drawn = self.drawn(server, 3)
        self.assertEqual(len(set(drawn)), 3)
        self.assertIn(first, drawn)  # the first state gets the seed as it is
        self.assertEqual([server.get("/again").text for _ in range(6)], [first] * 6)  # while it serves, each state does

    def test_a_seed_of_two_numbers(self):
        server = self.serve(self.SEEDED % ("", "7, math.maxinteger"))
        self.assertEqual(len(set(self.drawn(server, 3))), 3)


# A handler of /compute occupies a thread and a state until /go; it never waits.
COMPUTE = r"""
local ls = require "luaserve"
local app = ls.app()
ls.config{ threads = 1, max_cpu = 3600 }
local flags = ls.dict("flags")
app:get("/compute", function()
  ls.log.info("computes")
  while not flags.go do end
  return "computed"
end)
app:get("/go", function() flags.go = true return "gone" end)
app:get("/pid", function() return "here" end)
""" + HTTP


class Computing(E2E):
    def compute(self, server, count):
        conns = [self.connect(server=server) for _ in range(count)]
        for n, conn in enumerate(conns):
            conn.send(request("GET", "/compute"))
            server.wait_log("computes", count=n + 1)
        return conns

    def finish(self, conns):
        for conn in conns:
            response = conn.response()
            self.assertEqual((response.status, response.text), (200, "computed"))

    def test_a_request_is_answered_while_many_handlers_compute(self):
        server = self.serve(COMPUTE)
        conns = self.compute(server, 24)
        for _ in range(20):
            self.assertEqual(server.get("/pid").text, "here")
        self.assertEqual(server.get("/go").text, "gone")
        self.finish(conns)
        self.assertEqual(server.get("/pid").text, "here")


# /hold keeps `mib` MiB, its thread and its state until the file exists.
MEMORY = r"""
local ls = require "luaserve"
local app = ls.app()
ls.config{ threads = 1, max_memory = "24m", max_states_memory = "32m" }
local function take(mib)
  local taken = {}
  for n = 1, mib do taken[n] = ("x"):rep(1 << 20) end
  return taken
end
app:get("/take", function(req) return tostring(#take(tonumber(req.query.mib))) end)
app:get("/hold", function(req)
  local held = take(tonumber(req.query.mib))
  ls.log.info("holds")
  while not io.open(req.query.file) do os.execute("sleep 0.005") end
  return tostring(#held)
end)
""" + HTTP


class Memory(E2E):
    def hold(self, server, conn, target, before):
        """Ask until it holds: a request that finds the state of the last one busy still may be refused."""
        while True:
            conn.send(request("GET", target))
            self.eventually(lambda: len(server.logged("holds")) > before or select.select([conn.sock], [], [], 0)[0],
                            "it holds, or is refused")
            if len(server.logged("holds")) > before:
                return
            self.assertEqual(conn.response().status, 503)

    def test_the_limit_of_all_states_and_one_past_it(self):
        server = self.serve(MEMORY)
        path = os.path.join(server.dir, "go")
        conns = []
        self.assertEqual(server.get("/take?mib=20").text, "20")  # alone
        for n, mib in enumerate((14, 10)):
            conns.append(self.connect(server=server))
            self.hold(server, conns[n], "/hold?mib=%d&file=%s" % (mib, path), n)
            if n == 0:  # with a second state
                self.eventually(lambda: server.get("/take?mib=6").text == "6", "there is memory for another state")
                self.assertIn(server.get("/take?mib=20").status, (500, 503))
        before = server.mark()
        refused = server.get("/take?mib=9")
        if refused.status == 503:  # a third state is not made
            self.assertEqual(refused.header("retry-after"), "1")
        else:  # it was made before, when a request found the second one busy
            self.assertEqual(refused.status, 500)
            server.wait_log("not enough memory", before)
        open(path, "w").close()
        self.assertEqual([conn.response().text for conn in conns], ["14", "10"])
        self.eventually(lambda: server.get("/take?mib=20").text == "20", "idle states give back what they do not use")


class Limited(E2E):
    def test_one_state(self):
        """Requests of all threads share the variables, and wait while a handler occupies the state."""
        server = self.serve(SITE % (2, 6, ", states = 1") + 'local n = 0\napp:get("/n", function() n = n + 1 return tostring(n) end)\n' + HTTP)
        path = os.path.join(server.dir, "go")
        holds = self.connect(server=server)
        holds.send(request("GET", "/hold?file=" + path))
        server.wait_log("holds")
        conns = [self.connect(server=server) for _ in range(20)]
        for conn in conns:
            conn.send(request("GET", "/n") * 2)  # pipelined
        open(path, "w").close()
        self.assertEqual(holds.response().status, 200)
        counts = sorted(int(conn.response().text) for conn in conns for _ in range(2))
        self.assertEqual(counts, list(range(1, 41)))
        self.assertEqual(server.get("/states").text, "1")

    def test_the_limit_and_one_past_it(self):
        server = self.serve(SITE % (1, 8, ", states = 2") + HTTP)
        path = os.path.join(server.dir, "go")
        conns = [self.connect(server=server) for _ in range(3)]
        for n, conn in enumerate(conns[:2]):
            conn.send(request("GET", "/hold?file=" + path))
            server.wait_log("holds", count=n + 1)
        conns[2].send(request("GET", "/states"))
        open(path, "w").close()
        self.assertEqual(conns[2].response().text, "2")

    def test_a_task_that_waits_does_not_occupy_the_state(self):
        server = self.serve(SITE % (2, 4, ", states = 1") + HTTP)
        path = os.path.join(server.dir, "go")
        conn = self.connect(server=server)
        conn.send(request("GET", "/wait?file=" + path))
        server.wait_log("waits")
        self.assertEqual(server.get("/pid").text, "here")
        open(path, "w").close()
        self.assertEqual(conn.response().text, "waited")

    def test_tcp_and_udp_wait_for_the_state(self):
        text = SITE % (2, 6, ", states = 1") + HTTP + """
        ls.tcp("127.0.0.1:0", function(sock) sock:send("hello") end)
        ls.udp({ port = 0, host = "127.0.0.1" }, function(data) return data end)
        """
        server = self.serve(text, listeners=2)
        path = os.path.join(server.dir, "go")
        holds = self.connect(server=server)
        holds.send(request("GET", "/hold?file=" + path))
        server.wait_log("holds")
        conns = [self.connect(server=server, index=1) for _ in range(5)]
        open(path, "w").close()
        for conn in conns:
            self.assertEqual(conn.rest(), b"hello")
        self.assertEqual(holds.response().status, 200)
