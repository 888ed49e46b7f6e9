"""ls.queue: jobs that are kept over failures, kills, reloads and stops, in SQLite, PostgreSQL and Redis; ids, delays, priorities."""
# sanitizers: none; Lua code over databases, which test_sqlite, test_postgres and test_redis use
# wine: none; each kill is a start of the program, and there is no libpq
import contextlib
import os
import sqlite3
import threading
import time

from harness import WAIT, app_site, has_sqlite, read_text, write_text
from harness.chunks import ROUTE, Chunks
from harness.postgres import MISSING, Postgres
from harness.redis import RedisServer, has_redis
from harness.server import LUASERVE, run_program

SITE = app_site(r"""
ls.config { threads = 4, drain_timeout = @DRAIN@ }
local got, gate = ls.dict("got"), ls.channel("gate")
local mail = ls.queue("mail", { @WHERE@, retries = 2, backoff = 0.01, lease = @LEASE@, timeout = @TIMEOUT@, keep = @KEEP@ })
mail:run(function(job)
  local data = job.data
  got:rpush("order", data.n or 0)
  got:incr("runs " .. (data.n or 0))
  local most = got:incr("now")
  if most > (got.most or 0) then got.most = most end
  local _ <close> = setmetatable({}, { __close = function() got:incr("now", -1) end })
  if data.progress then job:progress(data.progress) end
  if data.sleep then ls.sleep(data.sleep) end
  if data.spin then while true do end end
  if data.fails and job.attempt <= data.fails then error("no luck " .. job.attempt, 0) end
  if data.code then return load(data.code, "=code", "t", { ls = ls, job = job })() end
  if data.says then return nil, data.says .. " \0 \xff" end
end, { workers = @WORKERS@ })
local env = { mail = mail, got = got, ls = ls }
""" + ROUTE)


def site(where="file = 'jobs.db'", **given):
    values = {"where": where, "workers": 2, "lease": 30, "timeout": 60, "keep": 0, "drain": 15, **given}
    text = SITE
    for name, value in values.items():
        text = text.replace("@%s@" % name.upper(), str(value))
    return text


class Queue(Chunks):
    def setUp(self):
        super().setUp()
        if not has_sqlite():
            self.skipTest("this luaserve has no SQLite")

    def ask(self, server, code):
        return self.run_lua(server, code)[0]

    def counts(self, server):
        return {name: n for name, n in self.ask(server, "return mail:counts()").items() if n}

    def settled(self, server, **expected):
        seen = []
        with contextlib.suppress(AssertionError):
            return self.eventually(lambda: seen.append(self.counts(server)) or seen[-1] == expected, "")
        self.fail("the counts are %s, not %s; the log:\n%s" % (seen[-1], expected, server.log()[-3000:]))

    def common(self, where):
        """What holds for each store."""
        server = self.serve(site(where, keep=60))
        ask = lambda code: self.ask(server, code)
        ids = ask("return { mail:push { n = 1 }, mail:push({ n = 2 }, { id = 'x' }), (select(3, mail:push({ n = 3 }, { id = 'x' }))) }")
        self.assertEqual(ids[1:], ["x", "EEXIST"])
        self.settled(server, done=2)
        self.assertEqual(ask("return select(3, mail:push({ n = 3 }, { id = 'x' }))"), "EEXIST")  # it is kept
        self.assertEqual(ask("return mail:get('x')")["state"], "done")
        self.assertEqual(ask("return mail:get('y')"), None)
        self.assertEqual(ask("return mail:get(%d).data.n" % ids[0]), 1)

        ask("return mail:push({ n = 4, fails = 2 }, { id = 'retried' })")
        ask("return mail:push({ n = 5, fails = 3 }, { id = 'dead' })")
        ask("return mail:push({ n = 6, says = 'no reason' }, { id = 'said' })")
        self.settled(server, done=3, dead=2)
        self.assertEqual(ask("return { got['runs 4'], got['runs 5'], got['runs 6'] }"), [3, 3, 3])
        dead = ask("return mail:failed()")
        self.assertEqual([(job["id"], job["error"], job["attempt"], job["data"]["n"]) for job in dead],
                         [("dead", "no luck 3", 3, 5), ("said", "no reason   ?", 3, 6)])
        self.assertLess(abs(dead[0]["pushed"] - time.time()), WAIT)
        self.assertEqual(len(ask("return mail:failed(1)")), 1)
        self.assertEqual(ask("return { mail:remove('said'), mail:remove('said'), mail:retry('said'), mail:retry('dead') }"),
                         [True, False, False, True])
        self.settled(server, done=3, dead=1)  # it fails again, three times
        self.assertEqual(ask("return got['runs 5']"), 6)

        ask("return mail:push({ n = 7 }, { delay = 3600, id = 'later' })")
        ask("return mail:push({ n = 8 }, { delay = 0.05, id = 'soon' })")
        self.settled(server, done=4, dead=1, delayed=1)
        self.assertEqual(ask("return mail:get('later').state"), "delayed")
        self.assertTrue(ask("return mail:remove('later')"))

        ask("for n = 10, 11 do mail:push({ n = n, sleep = 3600, progress = 0.5 }, { id = 'p' .. n }) end return 1")  # both workers
        self.eventually(lambda: ask("return mail:get('p11').progress") == 0.5, "progress")
        self.assertFalse(ask("return mail:remove('p11')"))  # it runs
        stats = ask("return ls.stats()")
        self.assertEqual((stats["jobs_done"], stats["jobs_retried"], stats["jobs_dead"]), (4, 8, 3))
        server.kill()

    def test_a_result_that_is_nil_is_a_failure(self):
        """As of `return answer and answer.ok`, when the server is down; nothing is no result."""
        server = self.serve(site())
        port = server.port()
        for code in "return", "return true", "return 0", "return {}", "return (ls.fetch('http://127.0.0.1:%d/run', { method = 'POST', body = '' }))" % port:
            self.run_lua(server, "return mail:push({ code = %r }, { id = %r })" % (code, code))
        self.settled(server)
        reasons = {"return nil": "the function has returned nil: write return false", "return nil, nil": "the function has returned nil",
                   "return false": "the function has returned false", "return nil, 'why'": "why",
                   "return (ls.fetch('http://127.0.0.1:%d/none'))" % port: "an answer of ls.fetch with the status 404",
                   "return ls.spawn(function() end)": "a job of ls.spawn, which nothing waits for: write return job:wait()",
                   "job:done()": "a job of a queue has no \"done\"; write nothing: it is done", "return job.code": "no \"code\"; write job.data.code"}
        for code in reasons:
            self.run_lua(server, "return mail:push({ code = %r })" % code if "'" not in code else 'return mail:push({ code = "%s" })' % code)
        self.settled(server, dead=len(reasons))
        for job in self.ask(server, "return mail:failed()"):
            self.assertIn(reasons[job["data"]["code"]], job["error"])

    def test_a_queue_that_no_function_runs_is_named_once(self):
        server = self.serve(site())
        for _ in range(3):
            self.ask(server, "return ls.queue('mails', { file = 'jobs.db' }):push(1)")
            self.ask(server, "return ls.queue('reports', { file = 'jobs.db' }):push(1)")
        server.wait_log("queue reports: a job was pushed, and this server runs none of this queue: it has no queue:run$")
        self.assertEqual(server.log().count("no queue:run; did you mean 'mail'?"), 1)
        self.assertEqual(server.log().count("it has no queue:run"), 2)

    def test_in_sqlite(self):
        self.common("file = 'jobs.db'")

    def postgres(self):
        if MISSING or "PostgreSQL: libpq" not in run_program(["--version"])[1]:
            self.skipTest(MISSING or "this luaserve has no libpq")
        pg = Postgres()
        self.addCleanup(pg.cleanup)
        return pg

    def redis(self):
        if not has_redis():
            self.skipTest("this luaserve has no ls.redis, or redis-server is not installed")
        redis = RedisServer()
        self.addCleanup(redis.kill)
        return redis

    def test_in_postgresql(self):
        self.common("postgres = '%s'" % self.postgres().url)

    def test_in_redis(self):
        self.common("redis = 'redis://127.0.0.1:%d'" % self.redis().port)

    def test_workers_are_those_of_the_server_and_priorities_come_first(self):
        server = self.serve(site(workers=3))
        # Longer than a second: then some are claimed before a worker is free.
        self.ask(server, "for n = 1, 400 do mail:push { n = n, sleep = 0.02 } end return 1")
        self.settled(server)
        self.assertEqual(self.ask(server, "return { got.most, got.now }"), [3, 0])
        server = self.serve(site(workers=1))
        self.ask(server, "mail:push { n = 0, sleep = 0.3 } while not got['runs 0'] do ls.sleep(0.01) end for n = 1, 9 do mail:push({ n = n }, { priority = n % 3 }) end return 1")
        self.settled(server)
        self.assertEqual(self.ask(server, "return got:range('order')"), [0, 2, 5, 8, 1, 4, 7, 3, 6, 9])

    def test_a_job_that_waits_for_a_worker_loses_no_attempt(self):
        server = self.serve(site(workers=1, lease=6).replace("retries = 2", "retries = 0"))
        self.ask(server, "for n = 1, 330 do mail:push { n = n, sleep = n == 300 and 7 or 0.005 } end return 1")
        self.settled(server)
        self.assertEqual(self.ask(server, "return got:llen 'order'"), 330)

    def test_a_job_ends_at_its_timeout(self):
        server = self.serve(site(timeout=0.05))
        self.ask(server, "mail:push({ n = 1, sleep = 3600 }, { id = 'slow' }) mail:push { n = 2 } return 1")
        self.settled(server, dead=1)
        self.assertIn("waited for longer than timeout allows (0.05 s)", self.ask(server, "return mail:failed()")[0]["error"])
        self.assertEqual(self.ask(server, "return { got['runs 1'], got['runs 2'], got.now }"), [3, 1, 3])  # no <close> after a timeout

    def test_a_transaction_pushes_or_does_not(self):
        server = self.serve(site().replace("local env =", "local db = ls.sqlite('jobs.db')\nlocal env = { db = db }\nlocal env =").replace(
            "{ mail = mail,", "{ mail = mail, db = db,"))
        self.ask(server, """
            db:transaction(function(tx) mail:push({ n = 1 }, { tx = tx }) return nil, "no" end)
            db:transaction(function(tx) mail:push({ n = 2 }, { tx = tx }) end) return 1""")
        self.eventually(lambda: self.ask(server, "return got['runs 2']"), "the job")
        self.settled(server)
        self.assertIsNone(self.ask(server, "return got['runs 1']"))
        self.raises(server, "ls.sqlite(':memory:'):transaction(function(tx) mail:push(1, { tx = tx }) end)",
                    "queue:push: tx is a transaction of :memory:, and the queue is in jobs.db")

    def test_a_last_attempt_that_has_not_begun_when_its_server_is_killed_does_not_count(self):
        folder = self.new_folder()
        server = self.serve(site("file = '%s/jobs.db'" % folder))
        self.ask(server, "for n = 1, 2 do mail:push({ n = n }, { delay = 3600, id = 'j' .. n }) end return 1")
        with contextlib.closing(sqlite3.connect(folder + "/jobs.db", timeout=WAIT)) as db, db:
            db.execute("update luaserve_job set state = 1, attempt = 3, owner = 'killed', due = 1, progress = case id when 'j1' then 0.0 end")
        self.settled(server, dead=1)
        self.assertEqual(self.ask(server, "return { mail:failed()[1].id, got['runs 1'], got['runs 2'] }"), ["j1", None, 1])

    def test_a_stop_and_a_reload_put_jobs_back(self):
        where = "file = '%s/jobs.db'" % self.new_folder()
        server = self.serve(site(where, drain=5))
        self.ask(server, "for n = 1, 4 do mail:push({ n = n, sleep = n < 3 and 3600 or 0 }, { id = 'n' .. n }) end return 1")
        self.eventually(lambda: self.counts(server).get("running") == 2, "two jobs")
        server.reload("job n[12]: it is put back")
        self.eventually(lambda: self.ask(server, "return (got['runs 1'] or 0) + (got['runs 2'] or 0)") >= 3, "the next site")
        server.stop()
        self.assertTrue(server.logged("it is put back, because the server stops"))
        self.assertEqual(server.logged("was ended while it waited"), [])  # of the workers, whose site has ended: no job is lost
        other = self.serve(site(where, workers=4))
        self.settled(other, running=2)  # at once, not at the end of a lease
        self.assertEqual(self.ask(other, "return mail:get('n1').attempt"), 1)  # those did not count
        other.kill()

    def test_a_job_that_is_put_back_twice_has_one_worker(self):
        """The first reply is lost, and the next site has the job when the previous one puts it back again."""
        server = self.serve(site(drain=5).replace("local env =", """local put_back = mail.store.put_back
mail.store.put_back = function(store, row, ...)
  local done = put_back(store, row, ...)
  if row.seq > 1 or got:incr "put back" > 1 then return done end
  while got["runs 1"] < 2 do ls.sleep(0.01) end
  error("no reply", 0)
end
local env ="""))
        self.ask(server, "return mail:push { n = 1, sleep = 3600 }")
        self.eventually(lambda: self.ask(server, "return got['runs 1']"), "the job")
        server.reload()
        self.eventually(lambda: self.ask(server, "mail:push { n = 2 } return got['runs 1'] == 2"), "the next site")  # which a push wakes
        self.assertTrue(server.wait_log("job 1: the lease has ended before attempt 1 has"))
        self.settled(server, running=1)
        self.assertEqual(self.ask(server, "return { got['put back'], got['runs 1'], mail:get(1).attempt }"), [2, 2, 1])
        server.kill()

    def killed(self, where):
        """Two servers push and run jobs, and are killed in turn: no job is lost, and none has two workers at a time. A job of a
        server that was killed begins again when its lease has ended. With QUEUE_KILLS, the number of kills, that is 1 s; a busy
        machine needs more, because a server that stands still for so long loses its jobs too."""
        folder, kills = self.new_folder(), int(os.environ.get("QUEUE_KILLS") or 5)
        text = site(where.replace("@FOLDER@", folder), lease=1 if "QUEUE_KILLS" in os.environ else 10, workers=4).replace("local data = job.data", """local data = job.data
  local function note(what) ls.file.write("%s/log", ("%%s %%d %%d %%.6f\\n"):format(what, data.n, got.pid, ls.now()), { append = true }) end
""" % folder)
        text = text.replace("retries = 2", "retries = 1000").replace("  if data.progress", "  note 'begin'\n  if data.progress").replace(
            "  if data.fails", "  note 'end'\n  if data.fails").replace("local env =", "ls.init(function() got.pid = tonumber((ls.file.read('/proc/self/stat'):match '%d+')) end)\nlocal env =")
        pushed, gone, servers, ended = [], {}, {}, threading.Event()

        def life(which):
            while not ended.is_set():
                server = servers[which] = self.serve(text)
                numbers = iter(range(which * 1000000 + len(pushed) * 10, 10 ** 9))
                with contextlib.suppress(OSError, AssertionError, ValueError):
                    while not ended.is_set() and server.alive():
                        n = next(numbers)
                        self.ask(server, "return mail:push { n = %d, sleep = 0.002 }" % n)
                        pushed.append(n)
                if not ended.is_set():
                    server.process.wait()
                    gone[server.pid] = time.time()

        threads = [threading.Thread(target=life, args=(which,)) for which in (1, 2)]
        for thread in threads:
            thread.start()
        self.eventually(lambda: len(servers) == 2, "both servers")
        for n in range(kills):
            before = len(pushed)
            self.eventually(lambda b=before: len(pushed) > b + 20, "jobs")
            victim = servers[1 + n % 2]
            victim.kill()
            self.eventually(lambda v=victim, n=n: servers[1 + n % 2] is not v, "its restart")
        ended.set()
        for thread in threads:
            thread.join(WAIT)
        alive = [server for server in servers.values() if server.alive()]
        self.settled(alive[0])
        done, runs, again = set(), {}, []
        for line in read_text(folder + "/log").splitlines():
            what, number, pid, at = line.split()
            if what == "end":
                done.add(int(number))
                runs[int(number)].pop(pid, None)
            else:
                others = [other for other in runs.setdefault(int(number), {}) if int(other) not in gone]
                self.assertEqual(others, [], "job %s runs twice" % number)
                again += [float(at) - before for before in runs[int(number)].values()]
                runs[int(number)][pid] = float(at)
        if "QUEUE_KILLS" in os.environ:
            print("%s: kills %d, jobs %d, run again %d, after at least %.2f s" % (where[:8], kills, len(pushed), len(again), min(again, default=0)))
        self.assertEqual(set(pushed) - done, set())
        self.assertGreater(len(pushed), 20 * kills)

    def test_kills_in_sqlite(self):
        self.killed("file = '@FOLDER@/jobs.db'")

    def test_kills_in_postgresql(self):
        self.killed("postgres = '%s'" % self.postgres().url)

    def test_kills_in_redis(self):
        self.killed("redis = 'redis://127.0.0.1:%d'" % self.redis().port)

    def test_data_that_would_come_back_with_other_keys(self):
        server = self.serve(site())
        for data, at in (("{ items = { [7] = 3, [900] = 1 } }", "value.items has the key [79]0?0?"), ("{ 1, a = 2 }", "value has the key 1"),
                         ("{ a = { { [1.5] = 1 } } }", r"value.a\[1\] has the key 1.5"), ("{ [0] = 1 }", "value has the key 0"), ("{ nil, 2 }", "value has the key 2")):
            said = self.ask(server, "return select(2, pcall(mail.push, mail, %s))" % data)
            self.assertRegex(said, r"queue:push: %s, and JSON has only lists with the keys 1 to n and tables with strings as keys" % at)
        got_back = "{ 1, { a = {}, b = { 2 } }, ls.json.array {} }"
        self.ask(server, "got:set('t', %s) return mail:push(got:get('t'), { id = 'fine' })" % got_back)
        self.settled(server)

    def test_wrong_calls_and_what_a_backoff_returns(self):
        self.refuses(site() + "\nmail:push(1)", "queue:push: call it in a handler or in ls.init: at the top of the file each Lua state")
        server = self.serve(site().replace("backoff = 0.01", "backoff = function(attempt) got:incr('backoff') return attempt == 1 and 0 or 'soon' end"))
        self.ask(server, "return mail:push { n = 1, fails = 1 }")
        self.settled(server)
        self.assertEqual(self.ask(server, "return { got.backoff, got['runs 1'] }"), [1, 2])
        for code, message in (("mail.push(1)", "'push' is a method of a queue: call it with a colon"), ("mail:push(nil)", "the data of the job are missing"),
                              ("mail:push(1, { tx = 1 })", "tx must be the argument of the function of db:transaction"),
                              ("mail:push(1, { id = '' })", "id must be a string of 1 to 200 bytes"), ("mail:push(1, { id = ('x'):rep(201) })", "id must be"),
                              ("mail:push(1, { priority = 1001 })", "priority must be a whole number from -1000 to 1000"),
                              ("mail:push(1, { priority = 0.5 })", "priority must be a whole number"), ("mail:get({})", "queue:get: id must be that of queue:push"),
                              ("mail:failed(-1)", "max must be a whole number from 0"), ("mail:run(print)", "the queue \"mail\" has a function already, from"),
                              ("ls.queue('new'):run(print)", "queue:run: "), ("ls.queue('mail', { retries = 1 })", 'the queue "mail" has options at'),
                              ("for n = 1, 2 do ls.queue('twice', { retries = n }) end", 'the queue "twice" has options at'),
                              ("local _ = mail.length", "a queue has no \"length\""), ("mail:push(1, 2)", "options must be a table")):
            with self.subTest(code):
                self.raises(server, code + " return 1", message)
        self.assertEqual(self.ask(server, "return { mail:retry(99), mail:remove('none'), ls.queue('mail') == mail }"), [False, False, True])
