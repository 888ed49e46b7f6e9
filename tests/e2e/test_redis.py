"""ls.redis: values, errors, pipelines, transactions, subscriptions; a server that is lost, restarted, stopped, wrong."""
# sanitizers: asan; test_redis_site uses Redis on several threads
import binascii
import json
import socket
import threading

from harness import HAS_UNIX_SOCKETS, OTHER_SYSTEM, WAIT, app_site, free_port, temporary_folder
from harness.chunks import ROUTE, Chunks
from harness.redis import FakeRedis, RedisServer, encode, has_redis
from harness.tls import certificate

PRELUDE = app_site(r"""
ls.config { threads = 4 }
local URL = "redis://127.0.0.1:@PORT@"
local env = { ls = ls, URL = URL, r = ls.redis(URL), log = ls.channel("log") }
@MORE@
""").replace("@MORE@", ROUTE + "@MORE@")


class RedisCase(Chunks):
    """Servers that run chunks of Lua with `r`, the client of a Redis server."""

    def setUp(self):
        if not has_redis():
            self.skipTest(OTHER_SYSTEM + "this luaserve has no ls.redis, or redis-server is not installed")
        super().setUp()

    def redis(self, *arguments, **kw):
        server = RedisServer(*arguments, **kw)
        self.addCleanup(server.kill)
        return server

    def fake(self, answer):
        server = FakeRedis(answer)
        self.addCleanup(server.close)
        return server

    def site(self, redis, more=""):
        return self.serve(PRELUDE.replace("@PORT@", str(redis.port)).replace("@MORE@", more))

    def stat(self, server, name):
        return self.run_lua(server, "return ls.stats().redis_%s" % name)[0]


class RealServer(RedisCase):
    def test_values(self):
        site = self.site(self.redis())
        cases = [
            ("r:set('k', 'a\\0b') return r:get('k')", ["a\0b"]),
            ("return r:get 'none'", [None]),
            ("return r:set('i', math.maxinteger), r:incrby('i', -1), r:get 'i'", ["OK", 2 ** 63 - 2, str(2 ** 63 - 2)]),
            ("return r:zadd('z', 1732824000.12341, 'a', 1732824000.12342, 'b'), r:zremrangebyscore('z', '-inf', 1732824000.12341)", [2, 1]),
            ("return r:echo(19.99), r:echo(1e300), r:echo(-0.1), r:echo(2^53), r:echo(math.huge)",
             ["19.99", "1e+300", "-0.1", "9007199254740992", "inf"]),
            ("r:set('f', 1.5) r:set('w', 3.0) return r:mget('f', 'w', 'none')", [["1.5", "3", False]]),
            ("return r:hset('h', 'a', 1, 'b', 'x'), r:hgetall 'h', r:hgetall 'none'", [2, {"a": "1", "b": "x"}, {}]),
            ("""return ls.json.encode { r:smembers 'none', r:lrange('none', 0, -1), r:keys 'none*', r:zrevrange('none', 0, -1), r:hgetall 'none',
                 r:eval('return { {}, 1 }'), r:pipeline(function(p) p:smembers 'none' end) }""", ["[[],[],[],[],{},[[],1],[[]]]"]),
            ("return r:call('HGETALL', 'h')", [["a", "1", "b", "x"]]),
            ("return r:call('set', 'k', ls.buffer('buf', 'fer')), r:get 'k'", ["OK", "buffer"]),
            ("return r:set('long', ('x'):rep(300000)), #r:get 'long'", ["OK", 300000]),
            ("return r:set('long', ls.buffer(('x'):rep(300000))), r:strlen 'long'", ["OK", 300000]),
            ("return r:eval('return { KEYS[1], ARGV[2], { 1, false } }', { 'a' }, { 1, 2 })", [["a", "2", [1, False]]]),
            ("return r:eval('return 1'), r:eval('return 1')", [1, 1]),
            ("return r:xadd('s', '1-1', 'f', 'v'), r:xrange('s', '-', '+')", ["1-1", [["1-1", ["f", "v"]]]]),
            ("return r:xread('STREAMS', 's', 0), r:xread('BLOCK', 10, 'STREAMS', 's', '1-1')",
             [[["s", [["1-1", ["f", "v"]]]]], None]),
        ]
        for code, expected in cases:
            with self.subTest(code):
                self.assertEqual(self.run_lua(site, code), expected)
        self.assertEqual(self.run_lua(site, "return r == ls.redis(URL), r == ls.redis(URL, { timeout = 1 })"), [True, False])

    def test_errors_of_the_server_and_of_the_site(self):
        site = self.site(self.redis())
        self.run_lua(site, "return r:set('k', 'v')")
        self.fails(site, "return r:lpush('k', 1)", "WRONGTYPE", "EINVAL")
        self.fails(site, "return r:evalsha(('0'):rep(40), 0)", "NOSCRIPT", "ENOENT")
        self.fails(site, "return r:call('NOTHING')", "unknown command", "EINVAL")
        self.fails(site, "return r:cluster('KEYSLOT', 'a')", "cluster support disabled", "EINVAL")
        for code, message in [
            ("r:get(nil)", "chunk:1: r:get: argument 1 must be a string, a number or a buffer; got nil"),
            ("r:set('k', {})", "r:set: argument 2 must be a string, a number or a buffer; got a table"),
            ("r:call('SET', 'k', true)", "r:call: argument 3 must be a string, a number or a buffer; got true"),
            ("r.get('k')", 'r:get: call it with a colon, as in r:get(key); got "k"'),
            ("r:multi()", "r:multi: use r:transaction(fn)"), ("r:call('watch', 'k')", "r:call: use r:transaction(keys, fn)"),
            ("r:select(1)", "r:select: the number of the database stands in the URL"), ("r:wait(1, 1)", "use r:pipeline"),
            ("r:pipeline(function(p) p:subscribe('a') end)", "p:subscribe: use r:subscribe"),
            ("r:pipeline(function(p) p:blpop('a', 1) end)", "p:blpop: a command that blocks cannot stand in a pipeline"),
            ("r:pipeline(function(p) p:set('a', nil) end)", "p:set: argument 2 must be"),
            ("r:pipeline(1)", "r:pipeline: the function is missing"), ("r:Get('k')", "commands are methods in lower case"),
            ("ls.redis('http://a')", "invalid URL"),
        ]:
            with self.subTest(code):
                self.raises(site, code, message)

    def test_pipelines_and_transactions(self):
        site = self.site(self.redis(), "env.other = ls.redis(URL, { connect_timeout = 6 })")
        self.assertEqual(self.run_lua(site, """return r:pipeline(function(p)
            p:set('a', 1) p:incr('a') p:get('none') p:hset('h', 'err', 'v') p:hgetall('h') end)"""),
            [["OK", 2, False, 1, {"err": "v"}]])
        wrong = "WRONGTYPE Operation against a key holding the wrong kind of value"
        for call in ("pipeline(", "transaction(", "transaction('b', "):
            code = "r:%sfunction(t) t:lpush('a', 1) t:hset('h', 'f', 'v') t:hdel('h', 'err') end)" % call
            self.fails(site, "return " + code, wrong, "EINVAL")
            self.assertEqual(self.run_lua(site, "local _, e = ls.try(function() %s end) return e.replies, e.statement, e.retry" % code),
                             [[{"err": wrong}, 0, 0], "LPUSH, command 1", False])
        self.assertEqual(self.run_lua(site, "return r:pipeline(function() end)"), [{}])
        self.assertEqual(self.run_lua(site, "return r:transaction(function(t) t:incr 'a' t:hgetall 'h' t:get 'none' end)"),
                         [[3, {"f": "v"}, False]])
        self.assertEqual(self.run_lua(site, """return r:transaction("a", function(t, c)
            t:set("a", c:get("a") + 10) end), r:get "a" """), [["OK"], "13"])
        self.fails(site, """return r:transaction({ "a", "b" }, function(t) other:set("b", 1) t:set("a", 0) end)""",
                   "changed a watched key", "ECHANGED")
        self.fails(site, """return r:transaction("a", function(t) other:set("a", 13) t:set("a", 0) t:wait(0, 10) end)""",
                   "changed a watched key", "ECHANGED")
        self.assertEqual(self.run_lua(site, """return r:transaction(function(t) t:set("a", 0) return nil, "no", "EINVAL" end)"""),
                         [None, "no", "EINVAL"])
        self.fails(site, "return r:transaction(function(t) t:set('a', 0) t:call('NOTHING') end)", "unknown command", "EINVAL")
        for use in "t:get 'a' .. ''", "(t:get 'a').x", "#t:call('GET', 'a')", "t:get 'a' > 1", "t:exists('a') + 1", "tostring(t:get 'a')":
            self.raises(site, "r:transaction(function(t) return %s end)" % use, "has no reply before the function has returned")
        self.raises(site, "r:transaction(function(t) t:set('a', tonumber(t:get 'a' or 0) + 1) end)", "arithmetic on a nil value")
        self.raises(site, "r:pipeline(function(p) p:set('b', p:get 'a' or 'anonymous') end)", "p:set: argument 2 must be")
        self.raises(site, "local name r:pipeline(function(p) name = p:get 'a' end) return ls.json.encode { name = name }", "function")
        for call in ("r:get('a')", "r:incrby('a', 5)", "r:hgetall('h')", "r:blpop('q', 1)", "r:call('GET', 'a')", "r:eval('return 1')",
                     "r:pipeline(print)", "r:transaction(print)"):
            for keys in "", "'a', ":
                self.raises(site, "r:transaction(%sfunction(t) %s end)" % (keys, call),
                            call.partition("(")[0] + " is not a part of the transaction")
        self.assertEqual(self.run_lua(site, """local jobs, n = {}, 0
            r:transaction("a", function(t, c)
              jobs[1] = ls.spawn(function() n = r:strlen "none" end) -- another task
              jobs[1]:wait()
              t:get "a" end)
            return n, r:strlen "none" """), [0, 0])
        self.raises(site, "r:transaction('a', function(t, c) c:subscribe('a', print) end)", "outside of the transaction")
        self.raises(site, "r:transaction('a', function() error('mine') end)", "mine")
        self.assertEqual(self.run_lua(site, "return r:get 'a'"), ["13"])
        self.assertEqual(self.run_lua(site, "return r:pipeline(function(p) p:set('a', 1) p:wait(0, 10) end)"), [["OK", 0]])

    def test_a_command_that_blocks_has_its_own_connection(self):
        redis = self.redis()
        site = self.site(redis, """
local r = env.r
app:get("/pop", { timeout = 60 }, function() return (r:blpop("queue", 0) or {})[2] or 504 end)
app:get("/limited", function()
  local one = ls.redis(URL:gsub("127.0.0.1", "localhost") .. "/1", { connections = 1, timeout = 1 })
  local job = ls.spawn(function() return one:blpop("q", 0) end)
  for _ = 1, 1000 do
    if r:call("CLIENT", "LIST"):find("cmd=blpop") then break end
    ls.sleep(0.01)
  end
  local _, e = ls.try(one.blpop, one, "q", 0)
  ls.redis(URL .. "/1"):rpush("q", "first")
  return { e.code, e.message, job:wait()[2], one:blpop("q", 0.01) or "empty" }
end)""")
        with site.connect() as waiting:
            waiting.send(b"GET /pop HTTP/1.1\r\nHost: a\r\n\r\n")
            redis.wait(("CLIENT", "LIST"), lambda _: "blocked_clients:1" in self.info(redis))
            self.assertEqual(self.run_lua(site, "r:set('a', 1) return r:get 'a'"), ["1"])
            self.run_lua(site, "return r:rpush('queue', 'task')")
            self.assertEqual(waiting.response().text, "task")
        code, message, popped, rest = json.loads(site.get("/limited").text)
        self.assertEqual((code, popped, rest), ("ETIMEDOUT", "first", "empty"))
        self.assertIn("connections", message)
        # The request ends with its client: the server hands the value to the next one.
        with site.connect() as leaves:
            leaves.send(b"GET /pop HTTP/1.1\r\nHost: a\r\n\r\n")
            redis.wait(("PING",), lambda _: "blocked_clients:1" in self.info(redis))
        redis.wait(("PING",), lambda _: "blocked_clients:0" in self.info(redis))

    def info(self, redis):
        with socket.create_connection(("127.0.0.1", redis.port), WAIT) as s:
            s.sendall(encode(["INFO", "clients"]))
            f = s.makefile("rb")
            return f.read(int(f.readline()[1:])).decode()

    def test_subscriptions(self):
        redis = self.redis()
        site = self.site(redis, """
r = env.r
r:subscribe("top", function(message, channel) env.log:send(channel .. "=" .. message) end)
r:psubscribe("p.*", function(message, channel, pattern) env.log:send(pattern .. " " .. channel .. "=" .. message) end)""")

        def publish(channel, message):
            redis.wait(("PUBLISH", channel, message), lambda text: text == ":1")

        def logged():
            return self.run_lua(site, "return log:receive(%d)" % WAIT)[0]

        publish("top", "1")
        publish("p.a", "2")
        self.assertEqual([logged(), logged()], ["top=1", "p.* p.a=2"])
        self.assertEqual(self.run_lua(site, """
            local s = r:subscribe("mine", function(message) log:send("mine " .. message) end)
            r:publish("mine", "a")
            local got = log:receive(%d)
            s:remove()
            s:remove()
            return got""" % WAIT), ["mine a"])
        redis.wait(("PUBLISH", "mine", "b"), lambda text: text == ":0")
        redis.ask("CLIENT", "KILL", "TYPE", "pubsub")
        site.wait_log("its subscriptions receive nothing until it is connected again")
        publish("top", "3")
        self.assertEqual(logged(), "top=3")
        site.reload()
        redis.wait(("PUBLISH", "top", "4"), lambda text: text == ":1")
        self.assertEqual(logged()[:4], "top=")
        redis.kill()
        site.wait_log("its subscriptions receive nothing until it is connected again", count=2)
        site.reload()
        site.stop()
        self.assertNotIn("ended while it waited", site.log())  # the previous site does not try any more

    def test_a_function_that_waits_or_subscribes_delays_no_other_subscription(self):
        redis = self.redis()
        site = self.site(redis)
        self.assertEqual(self.run_lua(site, """
            local got, go = ls.channel("got"), ls.channel("go")
            local inner
            r:subscribe("slow", function(message) go:receive() got:send("slow " .. message) end)
            r:subscribe("outer", function(message)
              inner = r:subscribe("inner", function(text) got:send("inner " .. text) end)
              got:send("outer " .. message)
            end)
            for n = 1, 2 do r:publish("slow", n) end
            r:publish("outer", 1)
            local list = { got:receive(10) }
            r:publish("inner", 1)
            list[2] = got:receive(10)
            for n = 1, 2 do go:send(n) list[#list + 1] = got:receive(10) end
            inner:remove()
            return list"""), [["outer 1", "inner 1", "slow 1", "slow 2"]])

    def test_a_site_without_listeners_goes_on_while_it_subscribes(self):
        redis = self.redis()
        site = self.serve("""
local ls = require "luaserve"
ls.redis("redis://127.0.0.1:%d"):subscribe("stop", function(message)
  ls.log.info("got " .. message)
  ls.stop()
end)""" % redis.port, listeners=0)
        redis.wait(("PUBLISH", "stop", "now"), lambda text: text == ":1")
        self.assertEqual(site.wait(), 0, site.log())
        self.assertIn("got now", site.log())

    def test_a_subscription_of_the_site_waits_for_a_connection(self):
        redis = self.redis()
        site = self.serve("""
local ls = require "luaserve"
ls.config { states = 1 }
local r = ls.redis("redis://127.0.0.1:%d", { connections = 1, timeout = 0.1 })
ls.init(function() ls.spawn(function() r:blpop("queue", 0) end) end)
r:subscribe("news", function(message) ls.log.info("got " .. message) end)""" % redis.port, listeners=0)
        site.wait_log("are in use .the option connections.; subscriptions wait for one")
        redis.ask("RPUSH", "queue", "done")
        redis.wait(("PUBLISH", "news", "1"), lambda text: text == ":1")
        site.wait_log("got 1")

    def test_lost_restarted_and_stopped(self):
        redis = self.redis()
        site = self.site(redis, "env.short = ls.redis(URL, { timeout = 0.2 })")
        self.assertEqual(self.run_lua(site, "return r:set('a', 1)"), ["OK"])
        redis.kill()
        self.eventually(lambda: self.results(site, "return r:get 'a'")[3] != "ECLOSED", "no connection of before is in use")
        self.fails(site, "return r:get 'a'", "Redis at 127.0.0.1:%d: " % redis.port, "EREFUSED")
        redis.start()
        self.eventually(lambda: self.results(site, "return r:set('a', 2)")[1] == "OK", "it connects again")
        self.eventually(lambda: self.results(site, "return short:get 'a'")[1] == "2", "a reply in 0.2 s")
        redis.pause()
        try:
            self.fails(site, "return short:get 'a'", "timeout: no reply within 0.2 s", "ETIMEDOUT")
        finally:
            redis.resume()
        self.eventually(lambda: self.results(site, "return short:get 'a'")[1] == "2", "it connects again")

    def test_a_stop_closes_connections_that_the_drain_has_used(self):
        redis = self.redis()
        site = self.site(redis)
        with site.connect() as conn:
            chunk = b"r:blpop('queue', 0) return r:set('a', 1)"
            conn.send(b"POST /run HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(chunk), chunk))
            redis.wait(("PING",), lambda _: "blocked_clients:1" in self.info(redis))
            site.signal()
            site.wait_log("draining")
            redis.ask("RPUSH", "queue", "go on")
            self.assertEqual(json.loads(conn.response("POST").text), [True, "OK"])
        self.assertEqual(site.wait(), 0, site.log())

    def test_passwords_databases_and_unix_sockets(self):
        redis = self.redis("--requirepass", "se:cret", "--unixsocket", "redis.sock")
        site = self.site(redis)
        self.fails(site, "return r:get 'a'", "NOAUTH", "EACCES")
        for login, ok in (":se%3acret@", True), ("default:se%3Acret@", True), (":wrong@", False):
            url = "redis://%s127.0.0.1:%d/2" % (login, redis.port)
            code = "return ls.redis('%s'):set('a', 1)" % url
            if ok:
                self.assertEqual(self.run_lua(site, code), ["OK"])
            else:
                self.fails(site, code, "Redis at 127.0.0.1:%d: WRONGPASS" % redis.port, "EACCES")
        if HAS_UNIX_SOCKETS:
            code = "return ls.redis('unix:%s/redis.sock?db=2', { password = 'se:cret' }):get 'a'" % redis.folder
            self.assertEqual(self.run_lua(site, code), ["1"])
        self.fails(site, "return ls.redis('redis://:se%%3acret@127.0.0.1:%d/99'):get 'a'" % redis.port,
                   "DB index is out of range", "EINVAL")


    def test_tls(self):
        folder = temporary_folder()
        certificate(folder, "redis")
        cert, port = folder + "/redis.pem", free_port()
        redis = self.redis("--tls-port", str(port), "--tls-cert-file", cert, "--tls-key-file", folder + "/redis.key",
                           "--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
        site = self.site(redis)
        url = "rediss://localhost:%d" % port
        self.assertEqual(self.run_lua(site, """
            local t = ls.redis("%s", { tls = { ca = "%s" } })
            return t:set("a", ("x"):rep(200000)), #t:get "a", t:blpop("q", 0.01)""" % (url, cert)), ["OK", 200000, None])
        self.fails(site, "return ls.redis('%s', { connect_timeout = 60 }):get 'a'" % url, "Redis at localhost:%d: TLS: " % port, "ECERT")
        self.raises(site, "ls.redis(URL, { tls = {} })", "the option tls needs a URL with rediss://")


class Down(RedisCase):
    def test_a_failure_that_is_not_caught_is_503_or_500_and_has_a_line_for_each_place_and_code(self):
        site = self.serve(app_site("""
local r, db = ls.redis("redis://127.0.0.1:1"), ls.sqlite(":memory:")
local failing = ls.app()
local function incr() r:incr("n") return "counted" end
local function by_error(app) app:error(function(_, _, e) return e.code .. " " .. tostring(e.retry) end) return app end
app:get("/plain", incr)
app:get("/tail", function() return r:get("n") end)
app:get("/wrong", function() return db:one("select none") or 404 end)
app:get("/caught", function() return select(2, ls.try(r.incr, r, "n")).message end)
app:use("/middleware", function(_, _, next) next() end)
app:get("/middleware", incr)
by_error(failing):get("/", function() r:incr("n") end)
app:mount("/error", failing)
app:get("/code/:sql", function(req) return db:exec(req.params.sql == "one" and "create table t (a primary key)"
  or req.params.sql == "two" and "insert into t values (1)" or "none") end)
"""))
        for path, status, text in (("/plain", 503, "Service Unavailable\n"), ("/tail", 503, "Service Unavailable\n"),
                                   ("/middleware", 503, "Service Unavailable\n"), ("/wrong", 500, "Internal Server Error\n"),
                                   ("/error", 503, "EREFUSED true"), ("/caught", 200, "connection refused")):
            for _ in range(3):
                response = site.get(path)
                self.assertEqual((response.status, response.text), (status, text), path)
        for text in ("GET /plain: ", "GET /tail: ", "GET /wrong: ", "GET /error: "):
            site.wait_log(text)
            self.assertEqual(site.log().count(text), 1, site.log())
        log = site.log()
        for text in ("site.lua:6: r:incr: Redis at 127.0.0.1:1: connection refused", "site.lua:9: r:get: Redis at",
                     "site.lua:10: db:one: :memory:: no such column: none at byte 8 in: select none"):
            self.assertIn(text, log)
        self.assertNotIn("stack traceback", log)
        site.get("/code/one")
        for path in ("two", "two", "none", "two", "none"):  # the second row exists; it is no statement
            site.get("/code/" + path)
        for text in ("UNIQUE constraint failed", "syntax error"):
            site.wait_log(text)
            self.assertIn(site.log().count(text), (1, 2))  # 2: both places have the same slot


class Cluster(RedisCase):
    """A cluster of two servers, each with half of the slots; the key "b" is in the first one, "a" in the second."""

    def setUp(self):
        super().setUp()
        self.nodes = []
        for _ in range(2):
            bus = free_port()
            node = self.redis("--cluster-enabled", "yes", "--cluster-port", str(bus), "--cluster-node-timeout", "500",
                              "--cluster-require-full-coverage", "no")
            node.id, node.bus = self.bulk(node, "CLUSTER", "MYID"), bus
            self.nodes.append(node)
        first, second = self.nodes
        self.assertEqual(first.ask("CLUSTER", "ADDSLOTSRANGE", 0, 8191), "+OK")
        self.assertEqual(second.ask("CLUSTER", "ADDSLOTSRANGE", 8192, 16383), "+OK")
        self.assertEqual(first.ask("CLUSTER", "MEET", "127.0.0.1", second.port, second.bus), "+OK")
        for node in self.nodes:  # each knows the slots of the other
            node.wait(("CLUSTER", "SLOTS"), lambda text: text == "*2")
            node.wait(("CLUSTER", "KEYSLOT", "a"), lambda _, node=node: "cluster_state:ok" in self.bulk(node, "CLUSTER", "INFO"))

    @staticmethod
    def bulk(node, *words):
        with socket.create_connection(("127.0.0.1", node.port), WAIT) as s:
            s.sendall(encode(words))
            f = s.makefile("rb")
            text = f.read(int(f.readline()[1:])).decode()
            f.close()
            return text

    def site(self, redis, more=""):
        return super().site(redis, "ls.config { states = 1 } env.c = ls.redis(URL, { cluster = true, timeout = 2 })\n" + more)

    def move(self, key):
        """The slot of a key of the first server, without its keys, to the second."""
        slot = self.nodes[0].ask("CLUSTER", "KEYSLOT", key)[1:]
        first, second = self.nodes
        self.assertEqual(second.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", first.id), "+OK")
        for node in second, first:
            self.assertEqual(node.ask("CLUSTER", "SETSLOT", slot, "NODE", second.id), "+OK")
        first.wait(("GET", key), lambda text: text.startswith("-MOVED"))

    def lose_the_first(self):
        """It is killed, and the second takes its slots."""
        first, second = self.nodes
        first.kill()
        self.assertEqual(second.ask("CLUSTER", "DELSLOTSRANGE", 0, 8191), "+OK")
        self.assertEqual(second.ask("CLUSTER", "ADDSLOTSRANGE", 0, 8191), "+OK")
        second.wait(("SET", "b", "1"), lambda text: text == "+OK")

    def test_calls_follow_a_slot_that_moves(self):
        for key, code, expected in [
            ("b", "return c:transaction(function(t) t:incr 'b' end)", [[1]]),
            ("{b}2", "return c:transaction('{b}2', function(t, one) t:set('{b}2', one:get '{b}2' or 'none') end), c:get '{b}2'",
             [["OK"], "none"]),
            ("c", "return c:blpop('c', 0.01)", [None]),
            ("{c}2", "return c:pipeline(function(p) p:incr '{c}2' p:set('a', 1) end)", [[1, "OK"]]),
        ]:
            with self.subTest(code):
                site = self.site(self.nodes[0])
                self.assertEqual(self.run_lua(site, "return c:get '%s'" % key), [None])
                if not key.startswith("{"):
                    self.move(key)
                self.assertEqual(self.run_lua(site, code), expected)
                site.stop()

    def test_a_server_that_is_lost(self):
        codes = [("return c:pipeline(function(p) p:set('b', 1) p:set('a', 2) end)", [["OK", "OK"]]),
                 ("return c:transaction(function(t) t:set('b', 2) end)", [["OK"]]),
                 ("return c:transaction('b', function(t) t:set('b', 3) end)", [["OK"]]),
                 ("return c:blpop('bb', 0.01)", [None]), ("return c:eval('return 5')", [5])]
        sites = [self.site(self.nodes[0]) for _ in codes]
        for site in sites:
            self.assertEqual(self.run_lua(site, "return c:mget('b'), c:mget('a')"), [[False], [False]])
        subscriber = self.site(self.nodes[0], 'env.c:subscribe("news", function(text) ls.log.info("got " .. text) end)')
        self.nodes[0].wait(("PUBLISH", "news", "1"), lambda text: text == ":1")
        self.lose_the_first()
        for site, (code, expected) in zip(sites, codes):
            with self.subTest(code):
                # A connection that is lost meanwhile fails the calls on it.
                self.eventually(lambda site=site, code=code, expected=expected: self.results(site, code) == [True, *expected],
                                "the map is asked for")
        self.nodes[1].wait(("PUBLISH", "news", "2"), lambda text: text == ":1")
        subscriber.wait_log("got 2")
        for site in [*sites, subscriber]:
            site.stop()

    def test_a_dict_and_topics(self):
        site = self.site(self.nodes[0], """
ls.config { redis = env.c }
env.d = ls.dict("d", { redis = true })
ls.subscribe("news", function(text) ls.log.info("got " .. text) end)""")
        other = self.site(self.nodes[1], "ls.config { redis = env.c }")
        self.run_lua(site, "for i = 1, 100 do d[i] = i end")
        self.assertEqual(self.run_lua(site, "local n = 0 for k, v in pairs(d) do n = n + v end return #d, #d:keys(), n"),
                         [100, 100, 5050])
        self.run_lua(site, "d:clear()")
        self.assertEqual([node.ask("DBSIZE") for node in self.nodes], [":0", ":0"])
        self.run_lua(other, "ls.publish('news', 'first')")
        site.wait_log("got first")
        self.nodes[0].kill()
        site.wait_log("the messages of other servers are lost until")
        site.wait_log("topics: connected to Redis at .* again")
        self.run_lua(other, "ls.publish('news', 'second')")
        site.wait_log("got second")


class WrongServer(RedisCase):
    """Servers whose replies the test writes; the site has one Lua state, and so one connection."""

    def site(self, redis, more=""):
        return super().site(redis, "ls.config { states = 1 }\n" + more)

    def test_replies_that_are_none(self):
        answers = {"garbage": b"HTTP/1.1 400 Bad Request\r\n\r\n", "two": b"+OK\r\n+OK\r\n", "cut": b"$10\r\nabc",
                   "deep": b"*1\r\n" * 9 + b":1\r\n", "levels": b"*1\r\n" * 8 + b":1\r\n", "big": b"$65\r\n" + b"x" * 65 + b"\r\n",
                   "fits": b"$58\r\n" + b"x" * 58 + b"\r\n", "exceeds": b"$59\r\n" + b"x" * 59 + b"\r\n", "ok": b"+PONG\r\n",
                   "number": b":1x\r\n"}
        fake = self.fake(lambda words, _: answers[words[1]])
        site = self.site(fake, "env.small = ls.redis(URL, { max_reply = 65 }) env.short = ls.redis(URL, { timeout = 0.2 })")
        cases = [("garbage", "not that of a Redis server", "EPROTO"), ("deep", "not that of a Redis server", "EPROTO"),
                 ("number", "not that of a Redis server", "EPROTO"), ("big", "longer than max_reply", "EMSGSIZE"),
                 ("exceeds", "longer than max_reply", "EMSGSIZE")]
        for key, message, code in cases:
            with self.subTest(key):
                self.fails(site, "return small:get '%s'" % key, message, code)
                self.assertEqual(self.run_lua(site, "return small:get 'ok'"), ["PONG"])  # a new connection
        self.fails(site, "return short:get 'cut'", "timeout: no reply within 0.2 s", "ETIMEDOUT")
        self.assertEqual(self.run_lua(site, "return small:get 'fits'"), ["x" * 58])
        self.assertEqual(self.run_lua(site, "return small:get 'levels'"), [[[[[[[[[1]]]]]]]]])
        self.assertEqual(self.run_lua(site, "return small:get 'two', small:get 'ok'"), ["OK", "PONG"])  # it was closed

    def test_replies_of_another_type(self):
        fake = self.fake(lambda words, _: replies[0])
        replies = [b"+OK\r\n"]
        site = self.site(fake, """
local r = ls.redis(URL, { timeout = 0.2, connect_timeout = 0.2 })
local c, m = ls.redis(URL, { cluster = true }), ls.redis { sentinels = { URL:match "//(.*)" }, name = "m", timeout = 0.2 }
local d, s = ls.dict("d", { redis = r }), ls.semaphore("s", 1, { redis = r })
env.calls = {
  function() return d:get("k") end, function() return d:set("k", 1) end, function() return d:add("k", 1) end,
  function() return d:delete("k") end, function() return d:incr("k") end, function() return d:ttl("k") end,
  function() return d:expire("k", 1) end, function() return d:expire("k") end, function() return d:rpush("k", 1) end,
  function() return d:lpop("k") end, function() return d:llen("k") end, function() return d:range("k") end,
  function() return d:keys() end, function() return #d end, function() d:clear() end, function() for _ in pairs(d) do end end,
  function() return d:update("k", function() return 1 end) end, function() if s:acquire(0) then s:release() end end, function() return s.held end,
  function() return r:hgetall("k") end, function() return r:transaction(function(t) t:get("k") end) end,
  function() return r:transaction("k", function(t) t:get("k") end) end, function() return r:eval("return 1") end,
  function() return r:pipeline(function(p) p:hgetall("k") p:get("k") end) end, function() return s:with(function() end) end,
  function() return c:get("k") end, function() return m:get("k") end, function() return r:subscribe("k", print):remove() end,
}""")
        for replies[0] in (b":1\r\n", b"+text\r\n", b"$-1\r\n", b"*0\r\n", b"*1\r\n*0\r\n", b"*2\r\n:1\r\n:2\r\n", b"*2\r\n$1\r\n0\r\n*1\r\n*0\r\n",
                           b"*3\r\n*0\r\n*1\r\n:1\r\n$-1\r\n"):
            with self.subTest(replies[0]):
                errors = self.run_lua(site, """
                  local errors = ls.json.array {}
                  for n, call in ipairs(calls) do
                    local ok, e = pcall(call)
                    if not ok and type(e) ~= "table" and not e:find "no dict has written" then errors[#errors + 1] = n .. ": " .. e end
                  end
                  return errors""")
                self.assertEqual(errors, [[]])
        self.assertNotRegex(site.log(), "attempt to|bad argument")

    def test_a_connection_with_the_beginning_of_another_reply_is_not_used_again(self):
        reply, numbers = encode(["list", "value"]), []

        def answer(_, number):
            numbers.append(number)
            return (b"K\r\n" if numbers.count(1) > 1 else b"") + reply + (b"+O" if number == 1 else b"")

        site = self.site(self.fake(answer))
        for _ in range(2):
            self.assertEqual(self.run_lua(site, "return r:blpop('list', 1)"), [["list", "value"]])
        self.assertEqual(numbers, [1, 2])
        self.assertEqual(self.run_lua(site, "return r:blpop('list', 1)"), [["list", "value"]])
        self.assertEqual(numbers, [1, 2, 2])

    def test_a_stop_does_not_wait_for_a_redis_that_is_silent(self):
        """Not for each task that waits in it."""
        fake = self.fake(lambda words, _: b":1\r\n" if words == ["CLIENT", "ID"] else b"" if words[0] == "BLPOP" or "UNBLOCK" in words
                         else b"+OK\r\n")
        site = self.site(fake, "ls.config { drain_timeout = 3600 } ls.init(function() for i = 1, 30 do "
                               "ls.spawn(function() env.r:blpop('q' .. i, 0) end) end end)")
        self.eventually(lambda: [words[0] for words in fake.commands].count("BLPOP") == 30, "all tasks wait")
        site.stop()
        self.assertEqual(sum("UNBLOCK" in words for words in fake.commands), 1)

    def test_a_connection_that_was_asked_to_unblock_is_not_used_again(self):
        """Its next command, of the next site, might be the one that Redis ends."""
        asked, numbers = threading.Event(), []

        def answer(words, number):
            if words[0] == "BLPOP":
                numbers.append(number)
                asked.wait(WAIT)
                return encode(["q", "value"])
            if "UNBLOCK" in words:
                asked.set()
            return b":0\r\n" if words[0] == "CLIENT" else b"+OK\r\n"

        site = self.site(self.fake(answer), """ls.config { threads = 1 } ls.init(function(reload)
            if not reload then ls.spawn(function() ls.log.info("got", env.r:blpop('q', 0)[2]) end) end end)""")
        self.eventually(lambda: numbers, "the task waits")
        site.reload("got.value")
        self.assertEqual(self.run_lua(site, "return r:blpop('q', 1)"), [["q", "value"]])
        self.assertNotEqual(numbers[0], numbers[1])

    def test_each_subscription_of_a_channel_waits_until_it_is_confirmed(self):
        fake = self.fake(lambda words, _: b"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n" if words[1] == "a" else b"")
        site = self.site(fake, "env.short = ls.redis(URL, { timeout = 0.2, connect_timeout = 0.2 })")
        self.assertEqual(self.run_lua(site, """
          local function code(name) local ok, e = pcall(short.subscribe, short, name, print) return ok or e.code end
          local codes = { code "a", ls.spawn(code, "b"), ls.spawn(code, "b"), code "a" }
          return codes[1], codes[2]:wait(), codes[3]:wait(), codes[4]"""), [True, "ETIMEDOUT", "ETIMEDOUT", True])

    def test_a_command_that_was_sent_is_not_repeated(self):
        fake = self.fake(lambda words, _: None if words[0] == "INCR" else b"+OK\r\n")
        site = self.site(fake)
        self.fails(site, "return r:incr 'a'", "Redis at 127.0.0.1:%d: " % fake.port, "ECLOSED")
        self.assertEqual(self.run_lua(site, "return r:get 'a'"), ["OK"])
        self.assertEqual([words for words in fake.commands if words[0] == "INCR"], [["INCR", "a"]])

    def test_moved_and_ask(self):
        def node(words, _):
            if words[0] == "CLUSTER":
                return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:%d\r\n" % first.port
            if words[:2] == ["GET", "moved"]:
                return b"-MOVED %d 127.0.0.1:%d\r\n" % (binascii.crc_hqx(b"moved", 0) % 16384, second.port)
            if words[0] == "INCR":
                return b"-MOVED %d 127.0.0.1:%d\r\n" % (binascii.crc_hqx(b"tx", 0) % 16384, second.port)
            if words[0] == "EXEC":
                return b"-EXECABORT Transaction discarded because of previous errors.\r\n"
            if words[:2] == ["GET", "ask"]:
                return b"-ASK 1 127.0.0.1:%d\r\n" % second.port
            return b"+first\r\n"

        second = self.fake(lambda words, _: {"ASKING": b"+OK\r\n", "EXEC": b"*2\r\n:1\r\n:2\r\n"}.get(words[0], b"+second\r\n"))
        first = self.fake(node)
        site = self.site(first, "env.c = ls.redis(URL, { cluster = true })")
        self.assertEqual(self.run_lua(site, """return c:get 'a', c:get 'moved', c:get 'moved', c:get 'ask',
            c:pipeline(function(p) p:get 'a' p:get 'moved' p:get 'ask' end)"""),
            ["first", "second", "second", "second", ["first", "second", "second"]])
        self.assertEqual(sum(words == ["GET", "moved"] for words in first.commands), 1)
        self.assertEqual(sum(words == ["ASKING"] for words in second.commands), 2)
        self.raises(site, "c:transaction(function(t) t:set('a', 1) t:set('b', 1) end)", "must have one slot of the cluster")
        self.assertEqual(self.run_lua(site, "return c:transaction(function(t) t:incr '{tx}1' t:incr '{tx}2' end)"), [[1, 2]])
        self.assertEqual(sum(words == ["EXEC"] for words in first.commands), 1)  # refused: its slot has moved
        self.raises(site, "c:scan(0)", "scan concerns one server of a cluster")

    def test_sentinels(self):
        masters = []
        sentinel = self.fake(lambda words, _: b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%s\r\n" % (len(masters[0]), masters[0].encode())
                             if words[2] == "mymaster" else b"*-1\r\n")
        role = b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n"
        old = self.fake(lambda words, _: role if words[0] == "ROLE" else None)
        new = self.fake(lambda words, _: role if words[0] == "ROLE" else b"+new\r\n")
        replica = self.fake(lambda words, _: b"*2\r\n$5\r\nslave\r\n$1\r\na\r\n")
        masters.append(str(old.port))
        site = self.site(sentinel, """
local function of(name) return ls.redis { sentinels = { "127.0.0.1:1", "127.0.0.1:@PORT@" }, name = name } end
env.s, env.none = of("mymaster"), of("other")""".replace("@PORT@", str(sentinel.port)))
        self.fails(site, "return none:get 'a'", "no master other", "ENOENT")
        masters[0] = str(replica.port)
        self.fails(site, "return s:get 'a'", "it is no master any more", "EBUSY")
        masters[0] = str(old.port)
        self.eventually(lambda: self.results(site, "return s:get 'a'")[3] == "ECLOSED", "the old master closes")
        masters[0] = str(new.port)
        self.eventually(lambda: self.results(site, "return s:get 'a'")[1] == "new", "the new master is found")

    def test_a_request_that_ends_leaves_the_replies_in_step(self):
        release = threading.Event()
        self.addCleanup(release.set)

        def answer(words, _):
            if words[1] == "slow":
                release.wait(WAIT)
            return b"+%s\r\n" % words[1].encode()

        fake = self.fake(answer)
        site = self.site(fake, """
app:get("/slow", { timeout = 0.1 }, function() return r:get "slow" end)""".replace("r:get", "env.r:get"))
        self.assertEqual(site.get("/slow").status, 503)
        release.set()
        self.assertEqual(self.run_lua(site, "return r:get 'a', r:get 'b'"), ["a", "b"])
        self.assertEqual(fake.connections, 1)
