"""ls.dict: data that all Lua states share: values in other states, expiry, eviction, update under concurrency, the
read-only copies, and the messages of errors."""
import json
import socket
from urllib.parse import quote

from harness import E2E, WAIT, app_site, in_parallel

SITE = app_site(r"""
ls.config { threads = 4 }
local d = ls.dict("d", { size = "4m" })
local small = ls.dict("small", { size = "16k", evict = true })
local strict = ls.dict("strict", { size = "16k" }) -- a full dict refuses unless it is a cache
local state = tostring({}) -- another text in each state

app:put("/json/:key", function(req) d[req.params.key] = req:json() return state end)
app:get("/json/:key", function(req, res)
  res:header("X-State", state)
  local value = d[req.params.key]
  if value == nil then return 404 end
  return value
end)
app:get("/run", function(req) -- the text of a chunk, with the dicts
  local fn = assert(load(req.query.code, "=chunk", "t", setmetatable({ d = d, small = small, strict = strict, ls = ls },
    { __index = _G })))
  local results = table.pack(pcall(fn))
  for i = 1, results.n do results[i] = results[i] == nil and ls.json.null or results[i] end
  results.n = nil
  return results
end)
app:post("/update-waits", function()
  return tostring(d:update("slow counter", function(n) ls.sleep(0.001) return (n or 0) + 1 end))
end)
app:post("/push/:n", function(req) return tostring(d:rpush("queue", tonumber(req.params.n))) end)
app:post("/pop", function() return tostring(d:lpop("queue")) end)
""")


class Dict(E2E):
    SITE = SITE

    def setUp(self):
        super().setUp()
        self.run_lua("d:clear() small:clear() strict:clear()")

    def run_lua(self, code):
        """The results of the chunk."""
        results = self.results(code)
        self.assertTrue(results[0], results)
        return results[1:]

    def failure(self, statement):
        """What the statement raises, and its code."""
        return self.run_lua("local _, e = ls.try(function() %s end) return tostring(e), e.code" % statement)

    def results(self, code):
        response = self.get("/run?code=" + quote(code))
        self.assertEqual(response.status, 200, response.text)
        return json.loads(response.text)

    def raises(self, code, message):
        results = self.results(code)
        self.assertFalse(results[0], results)
        self.assertIn(message, results[1])

    def test_a_value_is_seen_by_every_state(self):
        value = {"title": "tea", "items": [1, 2.5, "x", None, True], "empty": [], "object": {}}
        self.assertEqual(self.ask("PUT", "/json/k", body=json.dumps(value).encode()).status, 200)
        states = set()

        def read():
            response = self.get("/json/k")
            self.assertEqual(json.loads(response.text), value)
            states.add(response.header("x-state"))
            return True

        self.eventually(lambda: all(in_parallel([read] * 16)) and len(states) > 1, "requests in several states")

    def test_methods(self):
        cases = (
            ('return d:set("a", 1), d:get("a"), d.a, d["a"]', [True, 1, 1, 1]),
            ('return d:get("missing"), d.missing, d:delete("missing")', [None, None, False]),
            ('d.a = 1 d.a = nil return d.a, #d', [None, 0]),
            ('return d:incr("n"), d:incr("n", 5), d:incr("n", -0.5), d:incr("m", 1, 10)', [1, 6, 5.5, 11]),
            ('return d:add("x", 1), d:add("x", 2)', [True, None, 'the key "x" exists in the dict "d"', "EEXIST"]),
            ('return d:replace("y", 1)', [None, 'the key "y" is not in the dict "d"', "ENOENT"]),
            ('return d:replace(7, 1)', [None, 'the key 7 is not in the dict "d"', "ENOENT"]),
            ('d.z = true return d:incr("z")', [None, 'the value of "z" is not a number', "EINVAL"]),
            ('d[1] = "int" d["1"] = "str" return d[1], d[1.0], d["1"]', ["int", "int", "str"]),
            ('d.a = 1 d.b = 2 return #d, d:len(), d:clear() == nil, #d', [2, 2, True, 0]),
            ('for i = 1, 200 do d[i] = i * i end local n, s = 0, 0 for k, v in pairs(d) do n = n + 1 s = s + v - k * k end '
             'return n, s, #d:keys(), #d:keys("^1"), #d:keys("^1", 5), #d:keys(nil, 7)', [200, 0, 200, 111, 5, 7]),
            ('d:set("t", 1, 100) local t = d:ttl("t") return t > 99 and t <= 100, d:expire("t", false), d:ttl("t"), d:ttl("u"), '
             'd:expire("u", 1)', [True, True, False, None, False]),
            ('d.buffer = ls.buffer("one ", "two") return d.buffer', ["one two"]),
            ('d.t = { b = ls.buffer() } return d.t.b', [""]),
            ('d.null = ls.json.decode("[null,[]]") return d.null[1] == ls.json.null, ls.json.encode(d.null)', [True, "[null,[]]"]),
            ('d.array = ls.json.empty_array return ls.json.encode(d.array)', ["[]"]),
        )
        for code, wanted in cases:
            with self.subTest(code):
                self.run_lua("d:clear()")
                self.assertEqual(self.run_lua(code), wanted)

    def test_lists(self):
        cases = (
            ('return d:rpush("q", 1, 2), d:lpush("q", 3, 4), d:llen("q"), table.concat(d:range("q"), " ")', [2, 4, 4, "4 3 1 2"]),
            ('return table.concat(d:range("q", 2, -2), " "), d:lpop("q"), d:rpop("q"), #d.q, d.q[1]', ["3 1", 4, 2, 2, 3]),
            ('return d:rpush("q", { deep = { 1 } }), d:range("q")[3].deep[1], d:rpop("q").deep[1]', [3, 1, 1]),
            ('d:lpop("q") d:lpop("q") return d:lpop("q"), d:llen("q"), d.q, #d:range("q")', [None, 0, None, 0]),
            ('d.x = 1 return d:lpush("x", 1)', [None, 'the value of "x" is not a list', "EINVAL"]),
            ('return #d:range("l", 1, 0), select(2, pcall(d.range, d, "l", 0, 1)):match "first is .* 1"',
             [0, "first is 0: positions count from 1"]),
            ('return d:range("x")', [None, 'the value of "x" is not a list', "EINVAL"]),
            ('d:rpush("l", 1, 2) d:update("l", function(l) l[3] = 3 return l end) return #d.l, d:llen("l")',
             [3, None, 'the value of "l" is not a list', "EINVAL"]),
            ("return ls.json.encode { d:range('none'), d:keys('none') }", ["[[],[]]"]),
            ("d:set('j', ls.json.decode('[[1],{}]')) d:update('j', function(j) table.remove(j[1]) return j end) "
             "return ls.json.encode(d.j)", ["[[],{}]"]),
        )
        for code, wanted in cases:
            with self.subTest(code):
                self.assertEqual(self.run_lua(code), wanted)

    def test_a_copy_is_read_only(self):
        self.run_lua('d.t = { title = "tea", items = { 3, 1, 2 } }')
        for code in ('d.t.title = "coffee"', "d.t.items[1] = 5", "table.sort(d.t.items)"):
            self.raises(code, "read-only copy; to change it, store the whole value again: todos[key] = t")
        self.assertEqual(self.results("d.t.title = 1")[1][:8], "chunk:1:")  # the line of the site
        self.assertEqual(self.run_lua("d.copy = d.t return d.copy.items[2], d.t"), [1, {"title": "tea", "items": [3, 1, 2]}])

    def test_update(self):
        self.assertEqual(self.run_lua(
            "d.t = { n = 1 } local new = d:update('t', function(t) t.n = t.n + 1 t.more = true return t end) "
            "new.n = 99 return d.t.n, d.t.more"), [2, True])
        self.assertEqual(self.run_lua("return d:update('t', function() return nil end), d.t"), [None, None])
        self.assertEqual(self.run_lua("return d:update('u', function(old) return old == nil and 'made' end), d.u"), ["made", "made"])
        self.assertEqual(self.run_lua(  # written in the meantime: fn runs again
            "local runs = 0 d.v = 1 d:update('v', function(v) runs = runs + 1 if runs == 1 then d.v = 10 end "
            "return v + 1 end) return d.v, runs"), [11, 2])
        self.raises("d:update('t', function() error('on purpose', 0) end)", "on purpose")
        self.raises("d:update('t', function() return print end)", "dict:update: value is a function")
        self.raises("d:update('t')", "dict:update: the second argument must be a function")

    def test_update_with_a_function_that_waits(self):
        def client():
            for _ in range(5):
                self.assertEqual(self.ask("POST", "/update-waits").status, 200)

        in_parallel([client for _ in range(4)])
        self.assertEqual(self.run_lua('return d["slow counter"]'), [20])

    def test_a_list_as_a_queue_of_all_states(self):
        in_parallel([lambda n=n: self.ask("POST", f"/push/{n}") for n in range(100)])
        taken = in_parallel([lambda: self.ask("POST", "/pop").text for _ in range(100)])
        self.assertEqual(sorted(map(int, taken)), list(range(100)))
        self.assertEqual(self.run_lua("return d:llen('queue')"), [0])

    def test_a_full_dict_forgets_nothing(self):
        """The first trap of the first hour: entries vanished and ids began anew, without a word."""
        ids = self.run_lua("local e = ls.dict('items', { size = '64k' }) local n = 0 e:incr('last id') "
                           "repeat local id = e:incr('last id') n = id until not ls.try(e.set, e, id, ('x'):rep(1000)) "
                           "return n, e:get('last id'), #e, e:get(2) ~= nil")
        self.assertEqual(ids, [ids[0], ids[0], ids[0] - 1, True])
        full = 'the dict "items" is full .64 KiB. and refuses new entries'
        self.server.wait_log(full)
        self.assertEqual(len(self.server.logged(full)), 1)

    def test_a_full_dict(self):
        self.run_lua("local i = 1 while ls.try(strict.set, strict, i, ('x'):rep(50)) do i = i + 1 end")
        for call in ("strict:set('more', ('x'):rep(50))", "strict:add('more', ('x'):rep(50))", "strict:rpush('more', ('x'):rep(50))",
                     "strict:replace(1, ('x'):rep(400))", "strict:incr(('k'):rep(400))",
                     "strict:update('more', function() return ('x'):rep(50) end)", "strict.more = ('x'):rep(50)"):
            with self.subTest(call):
                self.assertEqual(self.failure(call), ['chunk:1: dict: no memory: the dict "strict" is full (16 KiB); see size and evict '
                                                      'of ls.dict', "ELIMIT"])
        large = ['chunk:1: dict: no memory: the value of "more" is larger than the dict "strict" (16 KiB)', "EMSGSIZE"]
        self.assertEqual(self.failure("strict:set('more', ('x'):rep(20000))"), large)
        self.assertEqual(self.failure("strict:set('more', { ('x'):rep(20000) })"), large)
        self.assertEqual(self.run_lua("return strict:add(1, 2)")[2], "EEXIST")
        self.server.wait_log("warn .*the value of .more. does not fit into the dict .strict. .16 KiB. and is refused")
        self.assertEqual(len(self.server.logged("does not fit into the dict .strict.")), 1)
        self.assertEqual(self.run_lua("return strict:delete(1), strict:set('more', ('x'):rep(20))"), [True, True])

    def test_a_list_that_fills_its_dict(self):
        """What follows is refused, not silently."""
        for push in ("lpush", "rpush"):
            self.assertEqual(
                self.run_lua("local d = ls.dict('%s', { size = '64k' }) "
                             "local n, e repeat n, e = ls.try(d.%s, d, 'all', ('x'):rep(1000)) until not n "
                             "return d:llen('all') > 30, e.message, e.code" % (push, push)),
                [True, 'no memory: the value of "all" is larger than the dict "%s" (64 KiB)' % push, "EMSGSIZE"])
            self.server.wait_log('warn the value of "all" does not fit into the dict "%s" .64 KiB. and is refused' % push)
            self.assertEqual(len(self.server.logged('does not fit into the dict "%s"' % push)), 1)

    def test_misuse(self):
        cases = (
            ("d:set('k', { items = { 1, 2, { fn = print } } })",
             "chunk:1: bad argument #2 to 'set' (value.items[3].fn is a function, which cannot be shared)"),
            ("local t = {} t.self = t d.k = t", "dict: value.self refers to value: a cycle"),
            ("d.k = io.stdout", "dict: value is a userdata, which cannot be shared"),
            ("d:rpush('l', 1, 2, print)", "bad argument #4 to 'rpush' (value is a function"),
            ("d:rpush('l', 1, nil, 2)", "bad argument #3 to 'rpush' (value must not be nil)"),
            ("d[1.5] = 1", "dict: key must be a string or an integer; got 1.5"),
            ("return d[{}]", "dict: key must be a string or an integer; got table"),
            ("d:get(true)", "bad argument #1 to 'get' (key must be a string or an integer; got boolean)"),
            ("d:get(('k'):rep(65536))", "key must have at most 65535 bytes"),
            ("d:get('k', 'more')", "too many arguments for dict:get(key)"),
            ("d:set('k', 1, 0)", "bad argument #3 to 'set' (ttl must be more than 0 seconds"),
            ("ls.sleep(4e8)", "the time is in seconds: this is more than 10 years"),
            ("d:set('k', 1, os.time() + 60)", "ttl is in seconds from now; for a time write at - os.time()"),
            ("d:expire('k', os.time())", "bad argument #2 to 'expire' (ttl is in seconds from now"),
            ("d:incr('k', 1, 0, math.huge)", "bad argument #4 to 'incr' (ttl is in seconds from now"),
            ("d:keys('user:*')", 'dict:keys: "user:*" seems to be a pattern of a shell or of Redis; in one of Lua write "^user:"'),
            ("d:keys('*')", "in one of Lua write keys()"),
            ("d:set('k', 1, tonumber('60s'))", "bad argument #3 to 'set' (ttl is nil, as of a field that is missing; false is"),
            ("d:expire('k', nil)", "bad argument #2 to 'expire' (ttl is nil"),
            ("d:incr('k', 1, 0, nil)", "bad argument #4 to 'incr' (ttl is nil"),
            ("d.k = '5' local _, e = pcall(d.incr, d, 'k') d.k = nil error(e, 0)", 'dict:incr: the value of "k" is a string, "5"; store a number: tonumber(value)'),
            ("d:set('k', 1, 'x')", "bad argument #3 to 'set' (number expected, got string)"),
            ("d:set('k')", "bad argument #2 to 'set' (value expected)"),
            *(("d:%s('k', nil)" % how, "bad argument #2 to '%s' (the value is nil; dict:delete(key) removes" % how)
              for how in ("set", "add", "replace")),
            ("d:incr('k', 'x')", "bad argument #2 to 'incr' (number expected, got string)"),
            ("d:incr('k', 0 / 0)", "bad argument #2 to 'incr' (finite number expected, got inf or NaN, for which JSON has no form)"),
            ("d:incr('k', 1, tonumber '-1e999')", "bad argument #3 to 'incr' (finite number expected"),
            ("d.get('k')", "'get' is a method of a dict: call it with a colon, such as object:get(...); got string for the object"),
            ("d:keys(5)", "dict:keys: pattern must be a string; got 5"),
            ("d:keys('x', 1.5)", "dict:keys: max must be a whole number; got 1.5"),
            ("table.insert(d, 1)", "keep the list under one key: dict:rpush(key, value)"),
            ("table.remove(d)", "keep the list under one key"),
            ("table.sort(d)", "keep the list under one key"),
            ("table.move({ 1 }, 1, 1, 1, d)", "keep the list under one key"),
            ("ls.dict()", "chunk:1: ls.dict: the name must be a string of 1 to 100 bytes"),
            ("ls.dict('d', { size = '1m' })", "site.lua:5: size 4 MiB, evict = false"),
        )
        for code, message in cases:
            with self.subTest(code):
                self.raises(code, message)
        self.assertEqual(self.run_lua("return ls.dict(('n'):rep(100)) ~= nil, d:set(('k'):rep(65535), 1), "
                                      "ls.dict('later') == ls.dict('later'), ls.dict('d') == d, "
                                      "ls.dict('d', { size = '4m' }):len()"), [True, True, True, True, 1])

    def test_functions_of_ls_take_a_read_only_copy_as_any_table(self):
        self.run_lua("d.headers = { ['X-One'] = '1', ['X-List'] = { 'a', 'b' } } d.cookie = { path = '/c', max_age = 5 } "
                     "d.wants = { object = true }")
        self.assertEqual(self.run_lua("""
            local app = ls.app()
            app:post('/headers', function(req, res)
              res:header('X-More', d.headers['X-List'])
              res:cookie('a', 'b', d.cookie)
              return 200, req:json(d.wants).text, d.headers
            end)
            local r = app:inject { method = 'POST', path = '/headers', body = '{"text":"x"}' }
            local h = r.headers
            return r.status, r.body, h['X-One'], h['X-List'], h['X-More'], h['Set-Cookie']"""),
            [200, "x", "1", "a, b", "a, b", "a=b; Path=/c; Max-Age=5; HttpOnly; SameSite=Lax"])

    def test_assertions_and_the_prompt_read_a_copy(self):
        self.assertEqual(self.run_lua("""
            local test = require 'luaserve.test'
            d.t = { 1, { x = 2 }, k = 'v' }
            test.equal(d.t, { 1, { x = 2 }, k = 'v' })
            test.equal({ { d.t } }, { { { 1, { x = 2 }, k = 'v' } } })
            test.contains(d.t, { x = 2 })
            test.not_equal(d.t, { 1, { x = 3 }, k = 'v' })
            local _, err = pcall(test.equal, d.t, { 1, { x = 3 }, k = 'v' })
            return err.lines, require 'luaserve'.inspect(d.t)"""),
            [["[2].x: expected 3, got 2", "expected { 1, { x = 3 }, k = \"v\" }", "got      { 1, { x = 2 }, k = \"v\" }"],
             '{ 1, { x = 2 }, k = "v" }'])

    def test_what_is_no_key_has_no_value(self):
        """As in a table: items[tonumber(req.params.id)] needs no check."""
        self.assertEqual(self.run_lua("d.x = 1 return d[nil] == nil, d:get(nil) == nil, d[2.5] == nil, d:get(0/0) == nil, d.x"),
                         [True, True, True, True, True, 1][1:])
        self.raises("d[nil] = 1", "dict: key must be a string or an integer; got nil")
        self.raises("d:get({})", "key must be a string or an integer; got table")
        self.raises("d:get()", "key must be a string or an integer; got no value")

    def test_a_missing_amount_is_not_one(self):
        self.raises("local body = {} d:incr('total', body.amount)", "number expected, got nil; to add 1, write 1")

    def test_a_pattern_that_is_malformed(self):
        self.raises("local keys = d:keys('[')", "chunk:1: dict:keys: the pattern \"[\" is malformed (missing ']')")
        self.raises("d:set('user:1', true) local keys = d:keys('user[')",
                    "chunk:1: dict:keys: the pattern \"user[\" is malformed (missing ']')")

    def test_an_update_that_writes_its_own_key(self):
        self.raises("local new = d:update('own', function() d.own = 1 return 2 end)",
                    'chunk:1: dict:update: "own" was written during each of 1000 calls of the function; '
                    "the function must not write this key itself")

    def test_the_name_is_in_its_text(self):
        self.assertEqual(self.run_lua("return tostring(d)"), ["dict 'd'"])



class Loading(E2E):
    def test_a_sock_sends_a_read_only_copy(self):
        server = self.serve('local ls = require "luaserve"\nlocal d = ls.dict("d")\n'
                            'd.parts = { "a", { 1, ("b"):rep(100000) } }\n'
                            'ls.tcp({ host = "127.0.0.1", port = 0 }, function(sock) sock:send(d.parts, "\\n") end)\n')
        with socket.create_connection(("127.0.0.1", server.port()), timeout=WAIT) as client:
            with client.makefile("rb") as received:
                self.assertEqual(received.read(), b"a1" + b"b" * 100000 + b"\n")
