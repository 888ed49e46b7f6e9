"""ls.cron: once for the server and for all servers, missed times, runs that are too long, reloads; the times are in tests/unit/lua/test_cron.lua."""
# wine: none; Lua code over a database, the same on every system
import json
import os

from harness import E2E, app_site
from harness.postgres import MISSING, Postgres
from harness.redis import RedisServer, has_redis
from harness.server import run_program

SITE = app_site(r"""
ls.config { threads = 4 @MORE@ }
local seen, real, offset = ls.dict("seen"), os.time, ls.dict("offset")
@CLOCK@
ls.cron("* * * * *", function() seen:incr("minute") if seen.slow then ls.sleep(3600) end end, { zone = "UTC" @WHERE@ })
ls.cron("0 0 1 1 *", function() seen:incr("year") end, { zone = "UTC", catch_up = true @WHERE@ })
ls.cron("* * * * *", function() if seen:incr("turn") % 2 == 1 then error("no luck") end return nil, "no answer", "ECLOSED" end, { @WHERE@ })
app:get("/seen", function() return { minute = seen.minute or 0, year = seen.year or 0 } end)
ls.every(1, function() seen:incr("ticks") end)
app:get("/known", function() return { n = #(@KNOWN@):keys(), ticks = seen.ticks } end)
app:get("/move/:s", function(req) offset:set("s", (offset.s or 0) + tonumber(req.params.s)) return 204 end)
app:get("/slow", function() seen:set("slow", true) return 204 end)
""")
# os.time before the module is loaded, which keeps it; from the middle of a minute, so that none begins by itself
CLOCK = "function os.time(t) return t and real(t) or 1700000000 // 60 * 60 + 30 + (offset.s or @START@) end"


def site(more="", start=0, known='ls.dict("luaserve.cron")', where=""):
    return SITE.replace(", { @WHERE@ }", where and ", { " + where[1:] + " }").replace("@WHERE@", where).replace("@KNOWN@", known).replace("@MORE@", more).replace("@CLOCK@", CLOCK.replace("@START@", str(start)))


class Cron(E2E):
    def seen(self, server):
        return json.loads(server.get("/seen").text)

    def ticks(self, server):
        return json.loads(server.get("/known").text).get("ticks", 0)

    def begun(self, server, lines):
        """It has looked at the clock for all of these lines."""
        self.eventually(lambda: json.loads(server.get("/known").text)["n"] == lines and self.ticks(server) > 1, "the first look")

    def until(self, server, **expected):
        self.eventually(lambda: {**expected, **self.seen(server)} == self.seen(server) and all(
            self.seen(server)[name] == n for name, n in expected.items()), "the runs %s" % expected)

    def test_each_time_is_once_over_all_states_and_reloads(self):
        server = self.serve(site())
        self.begun(server, 2)
        server.get("/move/60")
        self.until(server, minute=1, year=0)
        server.wait_log("no luck")
        mark = server.mark()
        server.reload()
        server.get("/move/60")
        self.until(server, minute=2)
        server.wait_log("it has returned nil, which nothing looks at: no answer", mark)
        server.get("/move/86400")
        server.wait_log(r'warn cron "\* \* \* \* \*" at .*site.lua:\d+: 1439 times were missed since 2023-11-14T22:16:00Z: it runs once now')
        self.until(server, minute=3)
        server.get("/move/-7200")  # a clock that is set back runs nothing twice
        server.get("/slow")
        server.get("/move/7260")
        self.until(server, minute=4)
        server.get("/move/60")
        server.wait_log("this time is left out, because the run before has not ended")
        self.assertEqual(self.seen(server)["minute"], 4)
        server.kill()

    def test_what_was_missed_while_the_server_did_not_run(self):
        known = 'ls.dict("luaserve.cron.file", { file = ls.data .. "/cron.dict", sync = true })'
        server = self.serve(site(known=known))
        self.begun(server, 1)
        server.stop()
        other = self.new_folder()
        os.rename(server.dir + "/cron.dict", other + "/cron.dict")
        again = self.serve(site(start=86400 * 400), env={"STATE_DIRECTORY": other})
        again.wait_log(r'cron "0 0 1 1 \*" at .*: 1 time was missed since 2024-01-01T00:00:00Z: it runs once now')
        self.until(again, year=1, minute=0)

    def test_once_for_all_servers(self):
        if not has_redis():
            self.skipTest("this luaserve has no ls.redis, or redis-server is not installed")
        redis = RedisServer()
        self.addCleanup(redis.kill)
        more = ", redis = 'redis://127.0.0.1:%d'" % redis.port
        self.once_for_all(site(more, known='ls.dict("luaserve.cron.redis", { redis = true })'))

    def test_once_for_all_servers_of_a_database(self):
        if MISSING or "PostgreSQL: libpq" not in run_program(["--version"])[1]:
            self.skipTest(MISSING or "this luaserve has no libpq")
        pg = Postgres()
        self.addCleanup(pg.cleanup)
        text = site(where=", postgres = '%s'" % pg.url, known='{ keys = function() return ls.try(db.query, db, "select line from luaserve_cron") or {} end }')
        self.once_for_all(text.replace("local seen", "local db = ls.postgres('%s')\nlocal seen" % pg.url, 1))
        self.assertEqual(pg.psql("select count(*) from luaserve_cron").strip(), "3")
        self.refuses("local ls = require 'luaserve'\nls.cron('@daily', print, { postgres = 5 })", "postgres must be a URL or what ls.postgres returns; got 5")

    def once_for_all(self, text):
        servers = [self.serve(text) for _ in range(2)]
        for server in servers:
            self.begun(server, 3)
        for moved in range(1, 4):
            for server in servers:
                server.get("/move/60")
            self.eventually(lambda m=moved: sum(self.seen(server)["minute"] for server in servers) == m, "one run")
        for server in servers:  # each has looked again
            ticks = self.ticks(server)
            self.eventually(lambda s=server, t=ticks: self.ticks(s) > t + 2, "ticks")
        self.assertEqual(sum(self.seen(server)["minute"] for server in servers), 3)

    def test_wrong_calls(self):
        for call, message in (("ls.cron('0 3 * *', print)", "a line has five fields"), ("ls.cron(1, print)", "the first argument must be a line"),
                              ("ls.cron('@daily')", "the second argument must be a function"), ("ls.cron('@daily', print, { zone = 'X/Y' })", 'there is no time zone "X/Y"'),
                              ("ls.cron('0 0 31 2,4 *', print)", "is never")):
            with self.subTest(call):
                self.refuses("local ls = require 'luaserve'\n" + call, message)
