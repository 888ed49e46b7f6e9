"""ls.config{ redis = }: topics over several servers; dicts, sessions and rate limits in Redis."""
import json
import re
import threading

from harness import E2E, LUASERVE, OTHER_SYSTEM, WINDOWS, app_site, in_parallel, not_on_windows, read_text, repeats
from harness.redis import RedisServer, has_redis
from harness.websocket import WebSocket

# The same calls with a dict of this server and with one in Redis: the results as a list of texts.
CALLS = r"""
local function run(d)
  local out = {}
  local function show(...)
    local t = table.pack(...)
    for i = 1, t.n do t[i] = ls.inspect(t[i]) end
    out[#out + 1] = table.concat(t, ", ")
  end
  local function fails(...) out[#out + 1] = pcall(...) and "no error" or "raises" end
  d:clear()
  show(d:set("a", 1), d.a, d:get("a"), d.none, d[nil], d[1.5], d:get(1.5))
  show(d:incr("a"), d:incr("a", 10), d:incr("new", 1, 41), d:incr("half", 0.5), d:incr("half", 1))
  show(d:incr("timed", 1, 0, 60) and d:ttl("timed") > 59, d:ttl("a"), d:ttl("none"))
  show(d:incr("timed", 1, 0, 5) and d:ttl("timed") > 59)
  show(d:add("a", 2)) show(d:add("b", 2)) show(d:replace("none", 1)) show(d:replace("b", 3)) show(d.b)
  show(d:delete("b"), d:delete("b"), d.b)
  d.t = { title = "tea", tags = { "hot" }, n = 1.0, deep = { { {} } }, [3] = false }
  show(d.t) fails(function() d.t.title = "x" end)
  show(d:update("t", function(t) t.title = "coffee" return t end)) show(d.t.title)
  show(d:update("none", function(old) return old == nil and "made" end), d.none)
  show(d:update("none", function() return nil end), d.none)
  show(d:set("gone", 1, 0.001)) ls.sleep(0.02) show(d.gone)
  show(d:expire("a", 60), d:ttl("a") > 59, d:expire("a"), d:ttl("a"), d:expire("absent", 1))
  fails(function() d:set("a", nil) end) d.a = nil show(d.a)
  d[5], d["5"], d.yes, d.bytes, d.empty, d.null = "five", "text", true, "\0\xff'=5\r\n", "", ls.json.null
  show(d[5], d["5"], d[5.0], d.yes, d.bytes, d.empty, d.null == ls.json.null)
  show(d:rpush("l", 1, "two", { 3 }), d:lpush("l", false, "first"), d:llen("l"), d:llen("no"))
  show(d:range("l"), d:range("l", 2, 3), d:range("l", -2), d:range("no"), d:range("l", 1, 0))
  show(d.l) show(d:lpop("l"), d:rpop("l"), d:lpop("no"))
  show(d:rpush("t", 1)) show(d:lpop("t")) show(d:incr("t")) show(d:incr("l")) show(d:incr("5"))
  show(d:incr("big", math.maxinteger)) show(d:incr("big"))
  local keys = d:keys() table.sort(keys, function(a, b) return tostring(a) .. type(a) < tostring(b) .. type(b) end) show(keys)
  show(#d, d:len(), #d:keys("^t"), #d:keys(nil, 2))
  local seen = 0
  for key, value in pairs(d) do if ls.inspect(value) == ls.inspect(d:get(key)) then seen = seen + 1 end end
  show(seen == #d)
  fails(d.set, d, "f", print) fails(d.set, d, nil, 1) fails(d.set, d, "k", 1, 0) fails(function() d.keys = 1 end)
  fails(d.update, d, "k", 1) fails(d.incr, d, "k", nil) fails(d.keys, d, 1) fails(d.set, d, "k", 1, nil) fails(d.expire, d, "k", nil) d:set("digits", "5") fails(d.incr, d, "digits") show(d:expire("digits", false)) d:delete("digits")
  show(select(2, pcall(d.range, d, "l", 0, 1)):match "first is 0: positions count from 1") fails(d.set, d, ("k"):rep(65536), 1)
  d:clear() show(#d, next(d:keys()))
  return out
end
app:get("/calls", function() return { run(ls.dict("here")), run(ls.dict("there*[:#]", { redis = true })) } end)
app:get("/updated", function() return ls.dict("shared", { redis = true }):update("n", function() return "new" end) end)
app:get("/count", function() return ls.dict("there*[", { redis = true }):incr("n") .. "" end)
app:post("/update", function() return ls.dict("shared", { redis = true }):update("n", function(n) return (n or 0) + 1 end) .. "" end)
app:get("/read", function() return tostring(ls.dict("shared", { redis = true }).n) end)
app:use("/visits", ls.session{ store = ls.dict("sessions", { redis = true }) })
app:get("/visits", function(req) req.session.n = (req.session.n or 0) + 1 return req.session.n .. "" end)
app:use("/few", require "luaserve.rate_limit" { limit = 3, per = 600, dict = ls.dict("limits", { redis = true }) })
app:get("/few", function() return "ok" end)
"""
TOPICS = r"""
app:ws("/live", { open = function(ws) ws:subscribe("news") ws:send("open") end })
app:post("/publish", function(req)
  for n = tonumber(req.query.from), tonumber(req.query.to) do ls.publish("news", req.query.name .. " " .. n) end
  return 204
end)
app:post("/kinds", function()
  ls.publish("news", { a = 1 })
  ls.publish("news", "\xff\0", "binary")
  ls.publish("news", ls.buffer("of ", "a buffer"), { retain = true })
  return 204
end)
app:post("/retain", function(req)
  ls.publish(req.query.topic, req:body() or "", { retain = true })
  return 204
end)
app:ws("/of/:topic", { open = function(ws, req) ws:subscribe(req.params.topic) ws:send("open") end })
app:get("/stats", function() return ls.stats() end)
"""
SITE = app_site(r"""
ls.config{ redis = "redis://127.0.0.1:@PORT@/0", threads = 3 }
@MORE@
""")


class Case(E2E):
    def setUp(self):
        if not has_redis():
            self.skipTest(OTHER_SYSTEM + "this luaserve has no ls.redis, or redis-server is not installed")
        super().setUp()
        self.redis = RedisServer()
        self.addCleanup(self.redis.kill)

    def site(self, more):
        return self.serve(SITE.replace("@PORT@", str(self.redis.port)).replace("@MORE@", more))

    def fetch(self, server, path, method="GET", expect=200, **kw):
        with server.connect() as conn:
            response = conn.ask(method, path, **kw)
        self.assertEqual(response.status, expect, response.text)
        return response


class Dicts(Case):
    def test_it_answers_as_a_dict_of_the_server(self):
        site = self.site(CALLS)
        here, there = json.loads(self.fetch(site, "/calls").text)
        replies = {"is not in the dict": "", "exists in the dict": ""}
        for one, other in zip(here, there):
            if not any(text in one for text in replies):
                self.assertEqual(one.replace("here", "NAME"), other.replace("there*[:#]", "NAME"))
        self.assertEqual(len(here), len(there))

    def test_servers_share_it(self):
        sites = [self.site(CALLS) for _ in range(2)]
        in_parallel([lambda n=n: [self.fetch(sites[n % 2], "/update", "POST") for _ in range(25)] for n in range(8)])
        self.assertEqual(self.fetch(sites[1], "/read").text, "200")
        first = self.fetch(sites[0], "/visits")
        cookie = first.header("set-cookie").split(";")[0]
        self.assertEqual(self.fetch(sites[1], "/visits", headers=[("Cookie", cookie)]).text, "2")
        passed = [self.fetch(sites[n % 2], "/few", expect=200 if n < 3 else 429).status for n in range(5)]
        self.assertEqual(passed.count(200), 3)
        for site in sites:
            site.stop()

    def test_a_redis_that_is_down_costs_its_requests_and_heals(self):
        site = self.site(CALLS)
        self.assertEqual(self.fetch(site, "/count").text, "1")
        self.redis.kill()
        self.fetch(site, "/read", expect=503)
        site.wait_log(r'dict "shared": Redis at 127.0.0.1:%d: ' % self.redis.port)
        self.fetch(site, "/visits", headers=[("Cookie", "session=" + "x" * 43)], expect=503)
        for _ in range(5):
            self.fetch(site, "/few")
        site.wait_log("rate_limit: a bucket cannot be read or stored, and requests are not limited: .*Redis at ")
        self.fetch(site, "/updated", expect=503)
        site.wait_log(r'site.lua:\d+: dict "shared": Redis at 127.0.0.1:%d: ' % self.redis.port, count=2)
        self.redis.start()
        self.eventually(lambda: self.is_ok(site), "the dict works again")

    def is_ok(self, site):
        with site.connect() as conn:
            return conn.ask("GET", "/count").status == 200

    def test_dev_mode_has_no_warning_of_clients(self):
        site = self.serve(SITE.replace("@PORT@", str(self.redis.port)).replace("@MORE@", """
local r, last = ls.redis("redis://127.0.0.1:%d/0"), 0
local door = ls.semaphore("door", 1, { redis = true })
app:get("/", function()
  local _ = r:subscribe("news", function() end)
  return door:with(function() return assert(r:incr("n")) .. "" end)
end)
app:get("/race", function()
  r:set("left", (tonumber(r:get("left")) or 9) - 1)
  if not r:exists("found") then r:set("found", 1, "EX", 60) end
  return r:sismember("none", "x") and "in" or "out"
end)
app:get("/queued", function()
  local shared, name = ls.dict("shared", { redis = true }), nil
  shared:set("n", 1)
  for key in pairs(shared) do name = shared:get(key) end -- a pipeline of luaserve itself
  r:pipeline(function(p)
    if p:exists("n") then
      p:incr("x")
    end
    name = p:get("n")
    p:set("k", 1)
  end)
  return "queued"
end)
local run = function(job) ls.log.debug(job) end
app:get("/take", function()
  ls.redis("redis://127.0.0.1:%d/0", { timeout = 9 }):zadd("due", 1, "a", 2, "b", 3, "c")
  for _, job in ipairs(r:zrangebyscore("due", "-inf", 9)) do
    r:zrem("due", job) -- WARN zrem
    run(job)
  end
  local first = r:zrange("first", 0, 0)[1]
  if first then run(first) end
  r:zrem("first", first or "a") -- WARN zrem
  for field, value in pairs(r:hgetall("jobs")) do run(value) r:hdel("jobs", field) end -- WARN hdel
  local batch = r:lrange("batch", 0, 9)
  r:ltrim("batch", 10, -1) -- WARN ltrim
  local old = r:zrangebyscore("old", 0, 5)
  r:zremrangebyscore("old", 0, 5) -- WARN zremrangebyscore
  local all = r:smembers("all")
  r:del("all") -- WARN rename the key
  if r:call("SISMEMBER", "none", "x") then batch = nil end -- WARN r:call returns a number
  return { batch, old, all }
end)
app:get("/dict", function()
  local there = ls.dict("there", { redis = true })
  there.n = (there.n or 0) + 1 -- WARN sets an entry of the dict "there"
  if (there:get("m") or 0) < 1000 then there:incr("m") end -- WARN changes the dict "there"
  local list = there:range("list")
  there:delete("list") -- WARN removes a list of the dict "there"
  for _, name in pairs(there) do if name == "ada" then return "taken" end end
  there:set(ls.crypto.uuid(), "x") -- WARN adds an entry to the dict "there"
  if there:incr("r") <= 10 then there:update("u", function(n) return (n or 0) + 1 end) end
  if #there >= 100000 then return "full" end
  there:set(ls.crypto.uuid(), "y") -- WARN to the dict "there"
  return "dict"
end)
app:get("/pairs", function()
  if r:sismember("voted", "ada") then return "again" end
  r:sadd("voted", ls.crypto.uuid())
  local hash = r:hgetall("hash")
  r:hset("hash", "n", (hash.n or 0) + 1) -- WARN reads and then sets a key of Redis
  local name = r:hget("user", "name")
  r:hset("user", "seen", 1)
  r:hset("user", "name", (name or "") .. "x") -- WARN reads and then sets a key of Redis
  local job = r:lindex("jobs list", 0)
  r:lpop("jobs list") -- WARN removes the first value of a list of Redis
  if tonumber(r:get("stock") or 0) < -100 then return "sold" end
  r:incrbyfloat("stock", -1) -- WARN changes Redis because
  local kept = r:get("kept")
  r:setex("kept", 60, kept or "page")
  if not r:exists("lock") then r:set("lock", 1, "NX", "EX", 60) end
  return { job = job }
end)
app:get("/pairs/add", function()
  if r:sismember("voted", "eve") then return "again" end
  r:sadd("voted", "eve") -- WARN adds to Redis because it was not there
  if not r:sismember("voted", "eve") then return "lost" end
  r:srem("voted", "eve")
  return "voted"
end)
app:get("/idempotent", function()
  local answer = r:get("key")
  if answer then return answer end
  ls.dict("effects"):rpush("all", "x")
  r:set("key", "done", "EX", 60) -- WARN Redis after the effects .* use r:set\\(key, "pending", "NX", "EX", 60\\) before them
  return "done"
end)
app:get("/take/right", function()
  for _, job in ipairs(r:zrangebyscore("due2", "-inf", 9)) do
    if r:zrem("due2", job) > 0 then run(job) end
  end
  for _, id in ipairs(r:zrangebyscore("online", 0, 5)) do
    if id ~= "me" then r:zrem("online", id) end
  end
  for _, id in ipairs(r:smembers("room")) do run(id) end
  r:srem("room", "me")
  local last = r:lrange("log", 0, 0)
  r:lpush("log", "x")
  r:ltrim("log", 0, 99)
  local top = r:zrange("window", 0, -1)
  r:zremrangebyscore("window", 0, 5)
  if r:call("SISMEMBER", "none", "x") == 1 or r:call("EXISTS", "none") > 0 then last = nil end
  return { last, top }
end)
app:get("/last", function() last = last + 1 return last .. "" end)""" % (self.redis.port, self.redis.port)), program=(LUASERVE, "dev"))
        for number in range(1, 10):
            self.assertEqual(self.fetch(site, "/").text, str(number))
        self.fetch(site, "/last")
        site.wait_log("changes last, of which each Lua state has its own copy")
        self.assertEqual(len(site.warnings()), 1, site.log())
        self.assertEqual(self.fetch(site, "/race").text, "out")
        site.wait_log("reads and then sets a key of Redis: another request may write it in between: use incr, set with", count=2)
        self.assertEqual(len(site.warnings()), 3, site.log())
        self.assertEqual(self.fetch(site, "/queued").text, "queued")
        site.wait_log(r"site\.lua:\d+: the result of p:exists is no reply: it stands in the list that r:pipeline")
        site.wait_log(r"site\.lua:\d+: the result of p:get is no reply")
        self.assertEqual(len(site.warnings()), 5, site.log())
        for words in ("SADD all x", "HSET jobs f v", "ZADD due2 1 a", "ZADD online 1 a"):
            self.redis.ask(*words.split())
        for path in ("/take", "/take/right", "/dict", "/pairs", "/pairs/add", "/idempotent") * 2:
            self.fetch(site, path)
        lines = read_text(site.site).split("\n")
        wanted = {n: m[1] for n, m in ((n, re.search("-- WARN (.*)", line)) for n, line in enumerate(lines, 1)) if m}
        for n, text in wanted.items():
            site.wait_log(r"site\.lua:%d: .*%s" % (n, text))
        self.assertEqual(len(site.warnings()), 5 + len(wanted), site.log())

    def test_misuse(self):
        for code, message in [
            ('ls.dict("a", { redis = true, size = "1m" })', "ls.dict: size has no meaning with redis"),
            ('ls.dict("a", { redis = 1 })', "ls.dict: redis must be true or a client of ls.redis; got 1"),
            ('ls.dict("a") ls.dict("a", { redis = true })', 'ls.dict: "a" is defined without redis elsewhere'),
            ('ls.dict("a", { redis = true }) ls.dict("a", { size = "1m" })', 'ls.dict: "a" is defined with redis elsewhere'),
            ('ls.dict("a", { redis = true }) ls.dict("a", { redis = ls.redis("redis://127.0.0.1:2") })',
             'ls.dict: "a" is defined with another redis elsewhere'),
            ('ls.config{ redis = 5 }', 'ls.config: redis must be a URL'),
            ('ls.config{ redis = "redis://127.0.0.1:1" }', "ls.config: redis is set already"),
        ]:
            with self.subTest(code):
                self.refuses(SITE.replace("@PORT@", "1").replace("@MORE@", code), "site.lua:5: " + message)
        text = SITE.replace('ls.config{ redis = "redis://127.0.0.1:@PORT@/0", threads = 3 }', "").replace(
            "@MORE@", 'ls.dict("a", { redis = true })')
        self.refuses(text, "ls.dict: redis = true needs ls.config{ redis =")


LOOP = r"""
local r = ls.redis("redis://127.0.0.1:@PORT@/0")
ls.on("start", function()
  while true do
    local job = r:blmove("jobs", "mine", "LEFT", "RIGHT", 0)
    ls.log.info("takes", job)
    ls.sleep(0.005) -- a reload does not end it here
    r:lrem("mine", 1, job)
    r:incr("done")
  end
end)
ls.on("start", function() while true do r:xread("BLOCK", 0, "STREAMS", "stream", "$") end end)
local leader = ls.semaphore("leader", 1, { redis = true })
ls.on("start", function()
  leader:acquire()
  ls.log.info("leads")
  for _ in ls.channel("orders"):values() do end
end)
"""


class Loops(Case):
    """Loops that wait in commands that block."""

    def text(self):
        return LOOP.replace("@PORT@", str(self.redis.port))

    def blocked(self, count):
        """All loops of all states wait."""
        self.redis.wait(("EVAL", "return redis.call('INFO', 'clients'):match('blocked_clients:(%d+)') * 1", "0"),
                        f":{count}".__eq__)

    def test_a_stop_ends_them_at_once(self):
        late = 'ls.on("start", function() ls.redis("redis://127.0.0.1:%d"):blpop("none", 0) end)' % self.redis.port
        sites = [self.site(self.text()), self.site(self.text()), self.serve(app_site("ls.config{ threads = 3 }" + late))]
        self.blocked(15)
        for site in sites:
            site.stop()  # status 0: the drain does not run out of time
            self.assertNotIn("drain took", site.log())

    @not_on_windows("Windows has no SIGHUP")
    def test_reloads_lose_no_job(self):
        site = self.site(self.text())
        done = threading.Event()
        count = [0]

        def push():
            while not done.is_set():
                self.redis.ask("RPUSH", "jobs", "job %d" % count[0])
                count[0] += 1

        def reload():
            try:
                for _ in range(repeats(10)):
                    since = len(site.lines)
                    site.reload()
                    site.wait_log("reloaded", since)
            finally:
                done.set()

        in_parallel([push, reload])
        self.redis.wait(("INCRBY", "done", "0"), f":{count[0]}".__eq__)  # each once
        self.assertEqual(self.redis.ask("LLEN", "mine"), ":0")


class Topics(Case):
    def subscriber(self, site):
        ws = WebSocket(site.at(), "/live")
        self.addCleanup(ws.conn.close)
        self.assertEqual(ws.receive(), "open")
        return ws

    def stop(self, sites, subscribers):
        for ws in subscribers:
            ws.close()
            ws.conn.close()
        for site in sites:
            site.stop()

    def publish(self, site, name, first, last):
        self.fetch(site, f"/publish?name={name}&from={first}&to={last}", "POST", expect=204)

    def expect(self, ws, counts):
        """The numbers of each name come in order, each once."""
        seen = {name: 0 for name in counts}
        for _ in range(sum(counts.values())):
            name, number = ws.receive().split()
            self.assertEqual(int(number), seen[name] + 1)
            seen[name] += 1
        self.assertEqual(seen, counts)

    def stat(self, site, name):
        return json.loads(self.fetch(site, "/stats").text)[name]

    def test_an_end_does_not_wait_for_a_redis_that_is_down(self):
        """The messages that wait are lost, and counted; drain_timeout is the limit of handlers."""
        self.redis.kill()
        site = self.site(TOPICS + "ls.every(0.02, function() ls.publish('news', 'x') end)\nls.config{ drain_timeout = 3600 }")
        site.wait_log("connection refused")
        self.eventually(lambda: self.stat(site, "topic_published") > 0, "a message waits for Redis")
        if not WINDOWS:  # which has no SIGHUP
            since = len(site.lines)
            site.reload()
            site.wait_log(r"topics: \d+ messages wait for Redis", since)
        site.stop()
        self.assertRegex(site.log(), r"topics: \d+ messages (did not reach|wait for) Redis")

    def test_each_message_reaches_each_server_once_and_in_order(self):
        sites = [self.site(TOPICS) for _ in range(3)]
        subscribers = [self.subscriber(site) for site in sites]
        in_parallel([lambda n=n: [self.publish(sites[n], f"s{n}", 10 * i + 1, 10 * i + 10) for i in range(30)] for n in range(3)])
        for ws in subscribers:
            self.expect(ws, {"s0": 300, "s1": 300, "s2": 300})
        self.fetch(sites[0], "/kinds", "POST", expect=204)
        for ws in subscribers:
            self.assertEqual(ws.receive(), '{"a":1}')
            self.assertEqual(ws.receive(), b"\xff\0")
            self.assertEqual(ws.receive(), "of a buffer")
        late = WebSocket(sites[2].at(), "/live")
        self.addCleanup(late.conn.close)
        self.assertEqual({late.receive(), late.receive()}, {"of a buffer", "open"})
        self.assertEqual([self.stat(site, "topic_lost") for site in sites], [0, 0, 0])
        self.stop(sites, [*subscribers, late])

    def test_a_server_that_starts_later_has_retained_messages(self):
        first = self.site(TOPICS)
        for topic, data in ("a", b"one"), ("a", b"two"), ("b", b"three"), ("c", b"gone"), ("c", b""), ("d", "é".encode()):
            self.fetch(first, "/retain?topic=" + topic, "POST", expect=204, body=data)
        self.redis.wait(("HLEN", "luaserve:retained"), ":3".__eq__)
        second = self.site(TOPICS)
        ws = WebSocket(second.at(), "/of/a")
        self.assertEqual({ws.receive(), ws.receive()}, {"two", "open"})
        first.stop()
        self.fetch(second, "/retain?topic=a", "POST", expect=204, body=b"four")
        self.assertEqual(ws.receive(), "four")
        ws.close()
        ws.conn.close()
        second.stop()
        third = self.site(TOPICS)
        for topic, data in ("a", "four"), ("b", "three"), ("d", "é"):
            ws = WebSocket(third.at(), "/of/" + topic)
            self.assertEqual({ws.receive(), ws.receive()}, {data, "open"})
            ws.close()
            ws.conn.close()

    def test_a_server_that_was_cut_off_gets_retained_messages(self):
        sites = [self.site(TOPICS) for _ in range(2)]
        ws = WebSocket(sites[1].at(), "/of/a")
        self.assertEqual(ws.receive(), "open")
        for number in range(5):
            self.fetch(sites[0], "/retain?topic=a", "POST", expect=204, body=b"before")
            self.assertEqual(ws.receive(), "before")
            self.redis.ask("CLIENT", "KILL", "TYPE", "pubsub")
            self.fetch(sites[0], "/retain?topic=a", "POST", expect=204, body=b"meanwhile %d" % number)
            self.assertEqual(ws.receive(), f"meanwhile {number}")
        ws.close()
        ws.conn.close()
        self.stop(sites, [])

    def test_the_log_names_all_messages_of_a_burst(self):
        site = self.site(TOPICS)
        for _ in range(3):
            self.redis.ask("PUBLISH", "luaserve:topic:x", "none")
        site.wait_log(r"topics: 1 messages of Redis are none of luaserve")
        site.wait_log(r"topics: 2 messages of Redis are none of luaserve")
        for _ in range(2):
            self.redis.ask("PUBLISH", "luaserve:topic:x", "none")
        self.eventually(lambda: self.stat(site, "topic_lost") == 5, "all are counted")
        site.stop()
        self.assertEqual(site.log().count("topics: 2 messages of Redis are none"), 2)

    @not_on_windows("Windows has no SIGHUP")
    def test_reloads_lose_nothing(self):
        sites = [self.site(TOPICS) for _ in range(2)]
        subscribers = [self.subscriber(site) for site in sites]
        done = threading.Event()

        def publish(n):
            count = 0
            while not done.is_set():
                count += 1
                self.publish(sites[n], f"s{n}", count, count)
            return count

        def reload_both():
            try:
                for _ in range(repeats(20)):
                    for site in sites:
                        since = len(site.lines)
                        site.reload()
                        site.wait_log("reloaded", since)
            finally:
                done.set()

        counts = in_parallel([lambda: publish(0), lambda: publish(1), reload_both])
        for ws in subscribers:
            self.expect(ws, {"s0": counts[0], "s1": counts[1]})
        self.stop(sites, subscribers)

    @not_on_windows("Windows has no SIGHUP")
    def test_a_reload_while_redis_is_down(self):
        site, other = [self.serve(SITE.replace("@PORT@", str(self.redis.port)).replace("@MORE@", TOPICS + more))
                       for more in ("ls.config{ drain_timeout = 8 }", "")]
        subscriber = self.subscriber(other)
        self.redis.kill()
        other.wait_log("the messages of other servers are lost until it is connected again")
        self.publish(site, "a", 1, 1)
        since = len(site.lines)
        site.reload()
        site.wait_log("reloaded", since)  # the task that sends has its message for longer than the handover waits
        self.publish(site, "b", 1, 1)
        site.wait_log("did not reach Redis", since)
        self.redis.start()
        other.wait_log("topics: connected to Redis at .* again")
        for number in 1, 2, 3:
            self.publish(site, "c", number, number)
            while subscriber.receive() != f"c {number}":
                pass
        self.stop([site, other], [subscriber])

    def test_a_lost_redis_is_counted_and_heals(self):
        sites = [self.site(TOPICS) for _ in range(2)]
        subscribers = [self.subscriber(site) for site in sites]
        self.publish(sites[0], "a", 1, 10)
        for ws in subscribers:
            self.expect(ws, {"a": 10})
        self.redis.kill()
        for site in sites:
            site.wait_log("the messages of other servers are lost until it is connected again")
        self.publish(sites[0], "b", 1, 10)  # the server itself has them at once
        self.expect(subscribers[0], {"b": 10})
        self.redis.start()
        for site in sites:
            site.wait_log("topics: connected to Redis at .* again")
        self.publish(sites[1], "c", 1, 1)
        self.assertEqual(subscribers[0].receive(), "c 1")
        got = []
        while "c 1" not in got:
            got.append(subscribers[1].receive())
        self.publish(sites[0], "d", 1, 1)
        while "d 1" not in got:
            got.append(subscribers[1].receive())
        arrived = [text for text in got if text.startswith("b ")]
        self.assertEqual(self.stat(sites[1], "topic_lost"), 10 - len(arrived), sites[1].log())
        self.assertEqual(self.stat(sites[1], "topic_reconnects"), 1)
        self.stop(sites, subscribers)
