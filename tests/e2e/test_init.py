"""What runs once for the server, although each Lua state runs the file: ls.init and the timers at the top."""
# wine: none; the states of a server, the same on every system; test_states has them there
import json

from harness import E2E, in_parallel, run_program, scratch, write_text

SITE = r"""
local ls = require "luaserve"
local app = ls.app()
ls.config { threads = 4 }
local d = ls.dict("d")
"""
LISTEN = r"""
app:get("/", function() return (d.text or "none") end)
app:get("/work", function() local t = os.clock() while os.clock() - t < 0.05 do end return "done" end)
ls.listen("127.0.0.1:0", app)
"""




def site(text):
    return SITE + text + LISTEN


def rewrite(server, text):
    write_text(server.site, text)


class Init(E2E):
    def test_it_ends_before_the_first_request(self):
        server = self.serve(site("""
            ls.init(function() ls.sleep(0.1) d.text = "one" end)
            ls.init(function() assert(d.text == "one") ls.sleep(0.05) d.text = d.text .. " two" end)"""))
        self.assertEqual(in_parallel([lambda: server.get("/").text] * 8), ["one two"] * 8)

    def test_it_runs_once_also_when_states_are_made_later(self):
        server = self.serve(site("ls.init(function() d:incr('runs') end) app:get('/runs', function() return 'n=' .. d.runs "
                                 "end)"))
        in_parallel([lambda: server.get("/work").text] * 12)
        self.assertEqual(server.get("/runs").text, "n=1")

    def test_jobs_of_it_go_on(self):
        server = self.serve(site("""
            ls.init(function()
              ls.spawn(function() while not d.enough do d:incr('n') ls.sleep(0.001) end end)
            end)
            app:get('/enough', function() d.enough = true return 204 end)
            app:get('/n', function() return 'n=' .. (d.n or 0) end)"""))
        self.eventually(lambda: int(server.get("/n").text[2:]) > 5, "the job goes on")
        server.get("/enough")  # else the drain would wait for it

    def test_timers_and_start_hooks_come_after_it(self):
        server = self.serve(site("""
            ls.init(function() ls.sleep(0.1) d.text = "ready" end)
            ls.after(0, function() ls.log.info("timer " .. d.text) end)
            ls.on("start", function() ls.log.info("hook " .. d.text) end)"""))
        server.wait_log("hook ready", count=4)
        server.wait_log("timer ready")

    def test_a_failure_ends_the_server(self):
        for body, message in (("error('no luck')", "site.lua:6: no luck"), ("error { code = 7 }", "{ code = 7 }"),
                              ("ls.sleep(0.01) local x = nil; x()", "attempt to call a nil value (local 'x')")):
            with self.subTest(body), scratch(site_lua=site("ls.init(function() %s end)" % body)) as where:
                status, _, err = run_program(["site.lua"], cwd=where)
                self.assertEqual(status, 1, err)
                self.assertIn("site.lua: ls.init failed: ", err)
                self.assertIn(message, err)
                self.assertNotIn("error ended early", err)

    def test_the_functions_behind_a_failure_do_not_run(self):
        with scratch(site_lua=site("ls.init(function() error('first') end) ls.init(function() print('second') end)")) as where:
            status, out, _ = run_program(["site.lua"], cwd=where)
        self.assertEqual((status, out), (1, ""))

    def test_a_stop_while_it_runs(self):
        server = self.serve(site('ls.init(function() ls.log.info("begun") ls.sleep(0.3) ls.log.info("ended") end)'), listeners=0)
        server.wait_log("begun")
        server.signal()
        self.assertEqual(server.wait(), 0, server.log())
        self.assertIn("ended", server.log())

    def test_wrong_calls(self):
        for text, message in (("ls.init()", "function expected"), ("ls.init(print, 1)", "too many arguments for ls.init(fn)"),
                              ("ls.once(print)", "ls.once is now ls.init(fn)")):
            with self.subTest(text), scratch(site_lua=site(text)) as where:
                status, _, err = run_program(["--check", "site.lua"], cwd=where)
                self.assertEqual(status, 1)
                self.assertIn("site.lua:6: ", err)
                self.assertIn(message, err)


class Reload(E2E):
    def test_the_old_site_serves_until_it_ends(self):
        server = self.serve(site("app:get('/site', function() return 'old' end)"))
        rewrite(server, site("ls.init(function() ls.log.info('new begins') ls.sleep(0.2) end) "
                          "app:get('/site', function() return 'new' end)"))
        server.reload()
        server.wait_log("new begins")
        self.assertEqual(server.get("/site").text, "old")
        server.wait_log("reloaded")
        self.assertEqual(server.get("/site").text, "new")

    def test_a_failure_leaves_the_old_site(self):
        server = self.serve(site("app:get('/site', function() return 'old' end)"))
        for n in range(3):
            rewrite(server, site("ls.init(function() ls.spawn(function() ls.sleep(60) ls.log.info('a job of it') end) ls.sleep(0.01) "
                              "error('no luck') end) app:get('/site', function() return 'new' end)"))
            server.reload()
            server.wait_log("reload failed: ls.init failed: .*no luck; the previous site continues", count=n + 1)
            self.assertEqual(server.get("/site").text, "old")
        server.wait_log("the task was ended while it waited: its site was replaced", count=3)
        self.assertFalse(server.logged("a job of it"))
        rewrite(server, site("ls.init(function() d.text = 'from init' end) app:get('/site', function() return 'new' end)"))
        server.reload()
        server.wait_log("reloaded")
        self.assertEqual((server.get("/site").text, server.get("/").text), ("new", "from init"))

    def test_the_argument_says_whether_it_is_a_reload(self):
        text = "ls.init(function(...) ls.sleep(0) d:rpush('args', tostring((...)) .. select('#', ...)) end) " * 2
        text += "app:get('/args', function() return table.concat(d:range('args'), ' ') end) "
        server = self.serve(site(text))
        self.assertEqual(server.get("/args").text, "false1 false1")
        server.reload()
        server.wait_log("reloaded")
        self.assertEqual(server.get("/args").text, "false1 false1 true1 true1")

    def test_a_channel_that_the_start_fills_has_each_value_once(self):
        server = self.serve(site("""
            local jobs = ls.channel("jobs")
            ls.init(function(reload) for n = 1, reload and 0 or 20 do jobs:send(n) end end)
            app:get("/jobs", function() return #jobs .. "" end)"""))
        for n in range(2):
            server.reload()
            server.wait_log("reloaded", count=n + 1)
        self.assertEqual(server.get("/jobs").text, "20")

    def test_a_site_that_was_served_without_it_has_started(self):
        server = self.serve(site(""))
        rewrite(server, site("ls.init(function(reload) d.text = tostring(reload) end)"))
        server.reload()
        server.wait_log("reloaded")
        self.assertEqual(server.get("/").text, "true")

    def test_a_stop_while_it_runs(self):
        server = self.serve(site(""))
        rewrite(server, site("ls.init(function() ls.log.info('new begins') ls.sleep(0.2) end)"))
        server.reload()
        server.wait_log("new begins")


class Timers(E2E):
    def test_one_state_runs_them(self):
        """The second trap of the first hour: the timer ran in each state, also in those that load made."""
        server = self.serve(site("""
            local state = tostring({}) -- another text in each state
            ls.every(0.005, function() d:rpush("ticks", state) end)
            app:get("/states", function() return { states = ls.stats().lua_states, ticks = d:range("ticks") } end)"""))
        in_parallel([lambda: server.get("/work").text] * 12)
        self.eventually(lambda: len(json.loads(server.get("/states").text)["ticks"]) > 20, "the timer ticks")
        seen = json.loads(server.get("/states").text)
        self.assertGreater(seen["states"], 1)
        self.assertEqual(len(set(seen["ticks"])), 1)

    def test_a_timer_of_a_handler_that_is_dropped_is_logged(self):
        """"Work afterwards" in ls.after, as with setTimeout: it was lost at a stop without a word."""
        server = self.serve(site("""
            ls.after(100, function() end)
            ls.init(function() ls.after(100, function() end) end) -- the next site makes them anew
            ls.on("start", function() ls.after(100, function() end) end)
            app:get("/later", function() ls.after(100, function() end) ls.after(0, function() end):cancel() return "ok" end)"""))
        server.get("/later")
        server.stop()
        self.assertRegex(server.log(), r"warn 1 call of ls\.after did not run, .*ls\.spawn runs to its end")

    def test_any_state_cancels_it(self):
        server = self.serve(site("""
            local timer = ls.every(0.005, function() ls.log.info("tick") end)
            local once = ls.after(3, function() ls.log.info("after") end)
            ls.after(3.2, function() ls.log.info("the end") end)
            app:get("/cancel", function() timer:cancel() once:cancel() return tostring({}) end)"""))
        server.wait_log("tick")
        states = {server.get("/cancel").text for _ in range(20)}
        self.assertGreater(len(states), 1)
        count = len(server.logged("tick"))
        server.get("/work")
        self.assertLessEqual(len(server.logged("tick")), count + 1)
        server.wait_log("the end")
        server.stop()
        self.assertNotIn("info after", server.log())

    def test_wrong_calls(self):
        for text, message in (
            ("ls.every({ second = 1 }, print)", "unknown option \"second\"; did you mean 'seconds'"),
            ("ls.every({ each_state = true }, print)", "number expected"),
            ("ls.every(1, print, { each_state = true })",
             "site.lua:6: ls.every: options are the first argument: ls.every({ seconds = 1, each_state = true }, fn)"),
            ("ls.after({ seconds = 0.5 }, print, 1, { each_state = false })",
             "ls.after: options are the first argument: ls.after({ seconds = 0.5, each_state = false }, fn)"),
            ("ls.every({ seconds = 0 }, print)", "interval must be at least 0.001 s"),
            ("for _ = 1, 1025 do ls.after(1, print) end", "more than 1024 timers at the top of the file"),
            ("if ls.dict('once'):add('x', 1) then ls.every(1, print) end",
             "1 timers at the top of the file (each runs once for the server) in one Lua state and 0 in another"),
        ):
            with self.subTest(text), scratch(site_lua=site(text)) as where:
                status, _, err = run_program(["site.lua"], cwd=where)
                self.assertEqual(status, 1)
                self.assertIn(message, err)
