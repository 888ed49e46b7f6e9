"""The cache of app:proxy: what is stored, served, validated and removed, against a server that counts its requests."""
import collections
import email.utils
import gzip
import os
import shutil
import socketserver
import threading
import time

from harness import Closed, E2E, app_site, in_parallel, not_on_windows, request, table, temporary_folder, write_text
from harness.environment import WAIT
from harness.peer import Peer, PeerConn, response

SITE = r"""
local ls = require "luaserve"
ls.config { threads = 2 }
local app, trusting = ls.app(), ls.app()
local server, entered = "http://127.0.0.1:@PORT@", ls.dict("entered")
app:use(function(req, res, next)
  if req.path ~= "/entered" then entered:incr("n") end
  if req.path:find("^/own") then res:header("Set-Cookie", "own=1"):header("X-Own", "yes"):header("X-Both", "own") end
  if req.query.own then res:header("X-Many", "own") end
  if req.query.control then res:header("Cache-Control", "private"):header("Expires", "0") end
  if req.path == "/own/equal" then res:header("Vary", "X-A") end
  next()
end)
local _, main = app:proxy("/", server, { cache = {} })
app:proxy("/small", server, { cache = { max_body = 10 } })
app:proxy("/default", server, { cache = { lifetime = 100 }, response = function(res, upstream)
  if upstream.headers["X-Hook"] then res:header("Cache-Control", "public, max-age=100") end
end, request = function(req, upstream) upstream.headers["X-Hook"] = req.query.hook end })
app:proxy("/tiny", server, { cache = { size = "64k", max_body = "1m" } })
app:proxy("/impatient", server, { cache = { wait = 0 } })
app:proxy("/key", server, { cache = { key = function(req) if req.query.k ~= "none" then return req.query.k end end } })
app:proxy("/key/cookies", server, { cache = { cookies = true, key = function(req) return req.cookies.user end } })
app:proxy("/hooked/key", server, { cache = { key = function(req) return req.path end }, request = function(req, upstream)
  upstream.headers["X-User"], upstream.headers["X-Request-Id"] = req.headers["x-who"], req.query.id
end })
app:proxy("/hook", server, { cache = {}, response = function(res)
  if res:status() == 404 then return 200, "ours\n" end
  res:header("Set-Cookie", nil):header("X-Own", nil)
end })
app:proxy("/guard", server, { cache = { lifetime = 100 }, request = function(req, upstream)
  entered:incr("hook")
  if req.query.key ~= "k" and not req.headers.authorization then return 401, "a key is needed\n" end
  local lang = req.headers["x-lang"]
  upstream.headers["X-User"], upstream.headers["X-Lang"] = req.headers["x-who"], lang and lang:sub(1, 2) or false
  if req.headers["x-token"] then upstream.headers["Authorization"] = "Bearer " .. req.headers["x-token"] end
  if req.headers["x-part"] then upstream.path = "/guard/part?of=" .. req.headers["x-part"] end
end })
app:proxy("/peer", "http://127.0.0.1:@PEER@", { cache = {} })
app:get("/entered", function() return tostring(entered:get("n") or 0) end)
app:get("/busy", function()
  local start = os.clock()
  while os.clock() - start < 0.001 do end
  return "done"
end)
app:get("/hooked", function() return tostring(entered:get("hook") or 0) end)
app:get("/purge", function(req) return tostring(main:purge(req.query.path)) end)
trusting:proxy("/", server, { cache = {} })
ls.listen { host = "127.0.0.1", port = 0, handler = app }
ls.listen { host = "127.0.0.1", port = 0, handler = trusting, trusted = { "127.0.0.1" } }
"""
# Wrong handles for each function of luaserve.core that takes one; /handles returns what was not refused.
HANDLES = r"""
local ls = require "luaserve"
local core, fetch, rules = require "luaserve.core", require "luaserve.fetch", require "luaserve.fetch_rules"
local app, inner = ls.app(), ls.app()
local at = rules.parse("http://127.0.0.1:@PORT@")
local server = { at = at, origin = at.origin, connect_ms_max = 5000 }
local options = { origin = at.origin, key = fetch.key_of(server), prefix = "", place = "", timeout_ms = 60000, slow_ms = 0,
  body_bytes_max = 1000, pauses = true, checked = false }
local upstream, cache = core.proxy_upstream(options), core.cache("handles", 65536)
local facts = { age_ms = 0, lifetime_ms = 1000, refresh_ms = 0, error_ms = 0, strict = false, for_all = false }
local ended, failed = {}, {} -- handles of tasks that have ended; what was not refused

local function refuses(what, expected, fn, ...)
  local ok, message = pcall(fn, ...)
  if ok or not tostring(message):find(expected, 1, true) then
    failed[#failed + 1] = what .. ": " .. (ok and "accepted" or tostring(message))
  end
end

local function send(res) return (assert(core.proxy_send(res, upstream, assert(fetch.dial(server)), 0, nil, nil, nil, true))) end
local function claim(res, key) return core.cache_claim(res, cache, key, nil, 1000, nil, false) end

-- The number of the argument that is a handle, its kind, and the function with it.
local function calls(res, fill, call)
  return {
    { 2, "upstream", function(v) return core.proxy_send(res, v, nil, 0) end },
    { 1, "upstream", core.proxy_load }, { 1, "upstream", core.proxy_back }, { 1, "upstream", function(v) return core.proxy_refused(v, 0) end },
    { 1, "upstream", function(v) return core.proxy_failed(v, 1, 1) end },
    { 1, "upstream", function(v) return core.proxy_mark(v, true) end },
    { 2, "call", function(v) return core.proxy_resume(res, v) end },
    { 2, "call", function(v) return core.proxy_refuse(res, v) end },
    { 2, "call", function(v) return core.cache_lines(fill, v) end },
    { 2, "call", function(v) return core.cache_keep(fill, v, facts, "") end },
    { 1, "fill", function(v) return core.cache_lines(v, call) end },
    { 1, "fill", function(v) return core.cache_keep(v, call, facts, "") end },
    { 1, "fill", core.cache_stale },
    { 1, "fill", function(v) return core.cache_restore(v, 200, facts, "k", "", "", "") end },
    { 2, "fill", function(v) return core.cache_end(nil, v, false, false) end, "removal" },
    { 1, "removal", core.cache_await },
    { 2, "cache", function(v) return core.cache_serve(res, v) end },
    { 2, "cache", function(v) return core.cache_claim(res, v, nil, nil, 1, nil, false) end },
    { 1, "cache", function(v) return core.cache_list(v, "k") end },
    { 1, "cache", function(v) return core.cache_remove(v, "k", false) end },
  }
end

inner:get("/", function(_, res)
  refuses("a call of another request", "bad argument #2", core.proxy_resume, res, ended.outer)
  refuses("a call of another request", "bad argument #2", core.proxy_refuse, res, ended.outer)
  return "ok"
end)

app:get("/handles", function(req, res)
  failed = {}
  local values = { upstream = upstream, cache = cache, res = res, req = req, call = send(res), fill = claim(res),
    removal = select(2, core.cache_remove(cache, "none", true)), number = 1, text = "x", table = {}, flag = true,
    print = print, file = io.stdout, ["old call"] = ended.call, ["old fill"] = ended.fill }
  for n, one in ipairs(calls(res, values.fill, values.call)) do
    local index, kind, fn, also = table.unpack(one)
    for name, value in pairs(values) do
      if name ~= kind and name ~= also then refuses(n .. " with " .. name, "bad argument #" .. index, fn, value) end
    end
  end
  for _, fields in ipairs { { key = 1 }, { prefix = 1 }, { place = 1 }, { origin = false } } do
    local given = setmetatable(fields, { __index = options })
    refuses("an upstream", "bad argument #1", core.proxy_upstream, given)
  end
  refuses("a fill without an entry", "bad argument #2", core.cache_end, res, values.fill, false, false)
  refuses("a copy that does not wait", "bad argument #6", core.cache_claim, res, cache, "k\0", nil, 1, nil, false)
  refuses("changes", "table expected", core.cache_serve, res, cache, nil, 1)
  for status, body in pairs { [199] = "", [204] = "x", [205] = "x", [304] = "x", [600] = "" } do
    if core.cache_restore(values.fill, status, facts, "k", "", "", body) then failed[#failed + 1] = "a copy with " .. status end
  end
  ended.outer = values.call
  core.inject(function(r, s) return inner:handle(r, s) end, error, "GET", "/", {})
  -- A fill that has ended gets nothing of a response that is still on its way.
  assert(core.cache_keep(values.fill, values.call, facts, ""))
  refuses("a second response", "bad argument #1", core.cache_keep, values.fill, values.call, facts, "")
  core.cache_end(nil, values.fill, true, false)
  core.cache_end(nil, values.removal, false, false)
  for n, one in ipairs(calls(res, values.fill, values.call)) do
    if one[2] == "fill" then refuses(n .. " ended", "bad argument #" .. one[1], one[3], values.fill) end
  end
  ended.fill, ended.call = claim(res, "kept"), values.call
  res:header("X-Failed", table.concat(failed, "; "))
  assert(core.proxy_resume(res, values.call) == true)
end)
app:get("/refused", function(_, res)
  local call = send(res)
  core.proxy_refuse(res, call)
  failed = {}
  refuses("resume", "bad argument #2", core.proxy_resume, res, call)
  refuses("refuse", "bad argument #2", core.proxy_refuse, res, call)
  call = send(res)
  call = nil
  collectgarbage()
  return #failed == 0 and "refused" or table.concat(failed, "; ")
end)
ls.listen { host = "127.0.0.1", port = 0, handler = app }
"""
FRESH = "Cache-Control: max-age=1000"
STALE = ["Age: 1000", "Cache-Control: max-age=10"]  # on its arrival
PAST, FUTURE = (email.utils.formatdate(time.time() + s, usegmt=True) for s in (-1000, 100000))


class Upstream:
    """A server that answers each target with what `on` has set, and records the requests."""

    def __init__(self):
        upstream = self
        self.answers, self.requests = {}, collections.defaultdict(list)

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                conn = PeerConn(self.request)
                try:
                    while True:
                        conn.request()
                        method, target, _ = conn.line.split()
                        conn.take(int(conn.fields.get("content-length", 0)))
                        seen = dict(conn.fields, method=method)
                        upstream.requests[target].append(seen)
                        answer = upstream.answers[target]
                        data = answer(seen) if callable(answer) else answer
                        if data is None:
                            return
                        head, _, body = data.partition(b"\r\n\r\n")
                        conn.send(data if method != "HEAD" else head + b"\r\n\r\n")
                        if b"Connection: close" in head:
                            return
                except (EOFError, OSError):
                    pass

        self.server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def on(self, target, answer):
        self.answers[target] = answer
        del self.requests[target][:]
        return target

    def count(self, target):
        return len(self.requests[target])

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class CacheCase(E2E):
    LISTENERS = 2

    @classmethod
    def setUpClass(cls):
        cls.up, cls.peer = Upstream(), Peer()
        cls.addClassCleanup(cls.up.close)
        cls.addClassCleanup(cls.peer.close)
        cls.SITE = SITE.replace("@PORT@", str(cls.up.port)).replace("@PEER@", str(cls.peer.port))
        super().setUpClass()

    def ask(self, target, headers=(), method="GET", index=0):
        with self.connect(index) as conn:
            return conn.ask(method, target, headers)

    def status(self, got):
        """The part of Cache-Status in which tests are interested."""
        text = got.header("cache-status")
        return text and text.split("luaserve; ")[-1].split("; ttl")[0]

    def until(self, ready):
        end = time.monotonic() + WAIT
        while not ready():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.001)

    def asks(self, target, times=2, headers=(), **options):
        """Cache-Status of so many requests."""
        return [self.status(self.ask(target, headers, **options)) for _ in range(times)]


class Stored(CacheCase):
    def test_a_hit(self):
        self.up.on("/a?x=1", response(b"hello", [FRESH, 'ETag: "e"', "X-A: 1", "X-A: 2", "Content-Type: text/x", "Age: 7", "Server: origin"]))
        first, second = self.ask("/a?x=1"), self.ask("/a?x=1")
        self.assertEqual(self.up.count("/a?x=1"), 1)
        self.assertEqual((first.text, self.status(first)), ("hello", "fwd=uri-miss; stored"))
        self.assertEqual((second.text, self.status(second), second.all("x-a")), ("hello", "hit", ["1", "2"]))
        self.assertGreaterEqual(int(second.header("age")), 7)
        self.assertEqual((len(second.all("age")), first.all("server"), second.all("server")), (1, ["origin"], ["origin"]))
        self.assertEqual({n for n, _ in first.headers} | {"Age"}, {n for n, _ in second.headers})
        self.assertEqual(self.ask("/a?x=1", method="HEAD").header("content-length"), "5")
        self.assertEqual(self.up.count("/a?x=1"), 1)

    def test_what_is_stored(self):
        """RFC 9111 sections 3 and 4.2.1."""
        def check(case):
            number, (fields, stored) = case
            status, fields = ("200 OK", fields) if not isinstance(fields, tuple) else fields
            target = self.up.on("/what/%d" % number, response(b"x", fields, status))
            second = self.asks(target)[1]
            self.assertEqual((second == "hit", self.up.count(target)), (stored, 1 if stored else 2))
        table(self, [(str(case), (n, case)) for n, case in enumerate([
            ([FRESH], True), ([], False), (["Cache-Control: no-store, max-age=9"], False),
            (["Cache-Control: max-age=1000, private"], False), (['Cache-Control: private="x", max-age=1000'], False),
            (["Cache-Control: max-age=0"], False), (["Cache-Control: max-age=x"], False),
            (["Cache-Control: max-age=1000, max-age=0"], False), (["Cache-Control: MAX-AGE=\"1000\""], True),
            (["Cache-Control: max-age=0, s-maxage=1000"], True), (["Cache-Control: max-age=1000, s-maxage=0"], False),
            (["Cache-Control: no-cache, max-age=1000"], False), (["Expires: " + FUTURE], True), (["Expires: " + PAST], False),
            (["Expires: 0"], False), (["Expires: " + FUTURE, "Cache-Control: max-age=0"], False),
            (["Cache-Control: public"], False), ([FRESH, "Set-Cookie: a=1"], False), ([FRESH, "Vary: *"], False),
            ([FRESH, "Vary: a, *"], False), ([FRESH, "Age: 999"], True), ([FRESH, "Age: 1000"], False),
            ([FRESH, "Date: " + PAST], False), (("404 No", [FRESH]), True), (("404 No", []), False),
            (("302 F", [FRESH, "Location: /"]), True), (("500 E", [FRESH]), False), (("206 P", [FRESH]), False),
            (("204 N", [FRESH]), True), (("301 M", [FRESH, "Location: /"]), True)])], check)

    def test_bodies(self):
        chunks = b"HTTP/1.1 200 OK\r\n%s\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n" % FRESH.encode()
        until_end = b"HTTP/1.1 200 OK\r\n%s\r\nConnection: close\r\n\r\nhello" % FRESH.encode()
        large = response(bytes(range(256)) * 4000, [FRESH])
        for n, (answer, body, stored) in enumerate([(chunks, b"hello!", True), (until_end, b"hello", False),
                                                    (large, bytes(range(256)) * 4000, True), (response(b"", [FRESH]), b"", True)]):
            target = self.up.on("/bodies/%d" % n, answer)
            self.assertEqual([self.ask(target).body for _ in range(2)], [body, body])
            self.assertEqual(self.up.count(target), 1 if stored else 2)

    def test_the_longest_body(self):
        for number, (body, chunked, stored) in enumerate([(b"0123456789", False, True), (b"0123456789x", False, False),
                                                          (b"0123456789", True, True), (b"0123456789x", True, False)]):
            answer = response(body, [FRESH])
            if chunked:
                answer = b"HTTP/1.1 200 OK\r\n%s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (
                    FRESH.encode(), len(body), body)
            target = self.up.on("/small/%d" % number, answer)
            self.assertEqual([self.ask(target).body for _ in range(2)], [body, body])
            self.assertEqual(self.up.count(target), 1 if stored else 2)

    def test_without_room_the_least_recently_used_goes(self):
        for n in range(3):
            target = self.up.on("/tiny/%d" % n, response(b"x" * 25000, [FRESH]))
            self.assertEqual(self.asks(target), ["fwd=uri-miss; stored", "hit"])
            self.assertEqual(self.asks("/tiny/0", 1), ["hit"])
        self.assertEqual([self.asks("/tiny/%d" % n, 1)[0] for n in (2, 0, 1)], ["hit", "hit", "fwd=uri-miss; stored"])
        self.assertEqual(self.asks(self.up.on("/tiny/large", response(b"x" * 65536, [FRESH]))), ["fwd=uri-miss; stored"] * 2)

    def test_a_lifetime_of_the_site(self):
        table(self, [(str(case), (n, case)) for n, case in enumerate([
            ("200 OK", [], True), ("404 N", [], False), ("200 OK", ["Cache-Control: no-cache"], False),
            ("200 OK", ["Cache-Control: max-age=0"], False), ("302 F", ["Location: /"], False)])],
            lambda case: self.assertEqual(self.asks(self.up.on("/default/%d" % case[0], response(
                b"x", case[1][1], case[1][0])))[1] == "hit", case[1][2]))

    def test_vary(self):
        self.up.on("/vary", lambda seen: response(seen.get("accept-language", "none").encode(), [FRESH, "Vary: Accept-Language , X-B"]))
        de, en, both = [("Accept-Language", "de")], [("accept-language", "en")], [("Accept-Language", "de"), ("X-B", "")]

        def stores(headers, reason):
            self.assertEqual(self.asks("/vary", 2, headers), ["fwd=%s; stored" % reason, "hit"])

        for headers, reason in ((de, "uri-miss"), (en, "vary-miss"), ([], "vary-miss"), (both, "vary-miss")):
            stores(headers, reason)
        self.assertEqual([self.asks("/vary", 1, h) for h in (en, de, both, [])], [["hit"]] * 4)
        self.assertEqual([self.ask("/vary", h).text for h in (de, en, [])], ["de", "en", "none"])
        for n in range(17):  # one more than a URL may have: the first ones are dropped
            stores([("Accept-Language", str(n))], "vary-miss")
        self.assertEqual(self.asks("/vary", 1, [("Accept-Language", "1")]), ["hit"])
        self.assertEqual(self.asks("/vary", 1, [("Accept-Language", "0")]), ["fwd=vary-miss; stored"])

    def test_requests_that_differ_for_the_server(self):
        """One that the server would answer in another way does not fill the cache for the others."""
        def check(case):
            number, (target, index, first, second, status, texts) = case
            target, host = target % number, [f[1] for f in first if f[0] == "Host"] or ["h"]
            self.up.on(target, lambda seen: response(("%s %s" % (seen.get("accept-language"), seen["x-forwarded-host"])).encode(),
                                                     [FRESH, "Vary: " + target.split("?")[1]]))
            got = []
            for headers, name in (first, host[0]), (second, "h"):
                with self.connect(index) as conn:
                    conn.send(request("GET", target, [f for f in headers if f[0] != "Host"], host=name))
                    got.append(conn.response())
            self.assertEqual(([self.status(one) for one in got], [one.text for one in got]), (["fwd=uri-miss; stored", status], texts))
        de, dropped = ("Accept-Language", "de"), ("Connection", "accept-language")
        table(self, [(str(case), (n, case)) for n, case in enumerate([
            ("/d/%d?Accept-Language", 0, [de, dropped], [de], "fwd=vary-miss; stored", ["None h", "de h"]),
            ("/d/%d?Accept-Language", 0, [de], [de, dropped], "fwd=vary-miss; stored", ["de h", "None h"]),
            ("/d/%d?Accept-Language", 0, [("Accept_Language", "de")], [], "fwd=vary-miss; stored", ["None h"] * 2),
            ("/d/%d?X-Real-IP", 0, [("X-Real-IP", "1.1.1.1")], [], "hit", ["None h"] * 2),
            ("/d/%d?X-Forwarded-Proto", 1, [("X-Forwarded-Proto", "https")], [], "fwd=uri-miss; stored", ["None h"] * 2),
            ("/d/%d?X-Forwarded-Host", 1, [("X-Forwarded-Host", "a")] * 2, [("X-Forwarded-Host", "a"), ("X-Forwarded-Host", "b")],
             "fwd=uri-miss; stored", ["None a", "None b"]),
            ("/key/%d?k=A", 0, [("Host", "evil.example")], [], "fwd=uri-miss; stored", ["None evil.example", "None h"])])], check)
        for n, name in enumerate(("X-Forwarded-For", "Forwarded", "a, Via")):
            self.assertEqual(self.asks(self.up.on("/differs/%d" % n, response(b"x", [FRESH, "Vary: " + name]))), ["fwd=uri-miss"] * 2)

    def test_authorization(self):
        who = [("Authorization", "Bearer a")]
        target = self.up.on("/auth/own", response(b"x", [FRESH]))
        self.assertEqual(self.asks(target, headers=who), ["fwd=uri-miss"] * 2)
        self.assertEqual(self.asks(target), ["fwd=uri-miss; stored", "hit"])
        self.assertEqual(self.asks(target, headers=who), ["fwd=bypass"] * 2)
        for n, control in enumerate(["public, max-age=9", "s-maxage=9", "must-revalidate, max-age=9"]):
            target = self.up.on("/auth/%d" % n, response(b"x", ["Cache-Control: " + control]))
            self.assertEqual(self.asks(target, headers=who), ["fwd=uri-miss; stored", "hit"])

    def test_credentials(self):
        """What may be for one client is neither stored nor served to others, unless the server or the site says so."""
        for n, (start, target, fields) in enumerate((s, *case) for s in ("/own-", "/default/own-", "/guard/own-?key=k&") for case in [
                ("a", []), ("b", [FRESH])]):
            for name in "Cookie", "X-Api-Key", "x_auth_token", "X-Session", *(["X-Who"] if "guard" in start else []):
                target = self.up.on(start + target[0] + str(n) + name, lambda seen: response(
                    ("%s %s" % (seen.get(name.lower()), seen.get("x-user"))).encode(), fields))
                got = [self.ask(target, headers) for headers in ([(name, "a=1")], [(name, "b=2")], [], [(name, "a=1")])]
                expected = ["%s %s" % (v, v if name == "X-Who" else None) for v in ("a=1", "b=2", None, "a=1")]
                with self.subTest(target):
                    self.assertEqual([one.text for one in got], expected)
        for n, fields in enumerate((["Cache-Control: public, max-age=9"], [FRESH, "Vary: Cookie"])):
            target = self.up.on("/with/%d" % n, response(b"x", fields))
            self.assertEqual(self.asks(target, headers=[("Cookie", "a=1")]), ["fwd=uri-miss; stored", "hit"])
        self.up.on("/key/own?k=own", response(b"x", [FRESH]))
        self.assertEqual(self.asks("/key/own?k=own", headers=[("X-Api-Key", "a")]), ["fwd=uri-miss; stored", "hit"])
        cookie = [("Cookie", "user=ada")]
        self.up.on("/key/cookies", response(b"x", [FRESH]))
        self.assertEqual(self.asks("/key/cookies", headers=cookie), ["fwd=uri-miss; stored", "hit"])
        self.up.on("/key/cookie?k=cookie", response(b"x", [FRESH]))
        self.assertEqual(self.asks("/key/cookie?k=cookie", headers=cookie), ["fwd=uri-miss"] * 2)
        self.server.wait_log("keeps no response to requests with Cookie")

    def test_who_has_all_of_a_response_finds_it_stored(self):
        """Also when no request waits for another one, because nothing was stored before, and all threads are busy."""
        chunks = b"HTTP/1.1 200 OK\r\n%s\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" % FRESH.encode()
        ended = threading.Event()

        def keep_busy():
            with self.connect() as conn:
                while not ended.is_set():
                    conn.ask("GET", "/busy")

        def ask():
            try:
                for n in range(30):
                    target = self.up.on("/at-once/%d" % n, chunks if n % 2 else response(b"hello", [FRESH]))
                    self.assertEqual(self.asks(target, 1, [("Authorization", "Bearer a")]), ["fwd=uri-miss"])
                    self.assertEqual(self.asks(target), ["fwd=uri-miss; stored", "hit"], target)
            finally:
                ended.set()
        in_parallel([ask] + [keep_busy] * 4)

    def test_the_key_has_host_and_what_a_trusted_proxy_says(self):
        self.up.on("/hosts", lambda seen: response(seen["x-forwarded-host"].encode(), [FRESH]))
        for host in "one", "two", "one":
            with self.connect() as conn:
                conn.send(request("GET", "/hosts", host=host))
                self.assertEqual(conn.response().text, host)
        self.assertEqual(self.up.count("/hosts"), 2)
        self.up.on("/proto", lambda seen: response(seen["x-forwarded-proto"].encode(), [FRESH]))
        for proto in "https", "http", "https":
            self.assertEqual(self.ask("/proto", [("X-Forwarded-Proto", proto)], index=1).text, proto)
        self.assertEqual(self.asks("/proto", 2, [("X-Forwarded-Proto", "https")]), ["fwd=uri-miss; stored", "hit"])
        self.assertEqual(self.ask("/proto", [("X-Forwarded-Proto", "https")]).text, "http")

    def test_no_field_that_changes_what_a_url_means_reaches_others(self):
        """Of a client of a trusted proxy, which sets some of them, and of any client."""
        def parts(seen):
            return response(repr(sorted(one for one in seen.items() if "evil" in one[1])).encode(), [FRESH])
        for index, names in (1, ("Port", "Prefix", "Scheme", "Server", "Ssl")), (0, ("Original-URL", "Rewrite-URL", "Host", "HTTP-Method-Override")):
            for name in names:
                field = "X-" + "Forwarded-" * index + name
                target = self.up.on("/means/" + name, parts)
                for fields in [(field, "evil")], [], [(field, "evil 2")]:
                    self.assertEqual(self.asks(target, 2, fields, index=index), ["fwd=uri-miss; stored", "hit"], (field, fields))
                    self.assertEqual(self.ask(target, fields, index=index).text, repr([(one.lower(), value) for one, value in fields]), field)

    def test_a_refresh_has_what_a_trusted_proxy_says(self):
        stale = ["Age: 1000", "Cache-Control: max-age=10, stale-while-revalidate=5000"]
        self.up.on("/port", response(b"x", stale))
        said = [("X-Forwarded-Port", "81"), ("X-Forwarded-For", "192.0.2.7")]
        self.assertEqual(self.asks("/port", 2, said, index=1), ["fwd=uri-miss; stored", "hit"])
        self.eventually(lambda: self.up.count("/port") == 2, "the refresh")
        self.assertEqual(*([seen.get("x-forwarded-port") for seen in self.up.requests["/port"]]))

    def test_a_key_that_is_too_long_is_not_stored(self):
        for host in "h", "h" * 1000:
            for length in (2000, *range(4070, 4098), 5000, 7000):
                target = self.up.on("/long/" + "x" * (length - 6), response(b"%d" % length, [FRESH]))
                for n in (1, 2):
                    with self.connect() as conn:
                        conn.send(b"GET %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (target.encode(), host.encode()))
                        self.assertEqual(conn.response().body, b"%d" % length)
                    self.assertEqual(self.up.count(target), n if length > 4096 - len("\nhttp://" + host) else 1, (length, host))

    def test_a_key_of_the_site(self):
        for target in "/key/a?k=1", "/key/b?k=1", "/key/c?k=2", "/key/d?k=none", "/key/e":
            self.up.on(target, response(target.encode(), [FRESH]))
        self.assertEqual([self.ask(t).text for t in ("/key/a?k=1", "/key/b?k=1", "/key/c?k=2")],
                         ["/key/a?k=1", "/key/a?k=1", "/key/c?k=2"])
        self.assertEqual(self.asks("/key/d?k=none") + self.asks("/key/e"), ["fwd=bypass"] * 4)

    def test_a_key_has_what_the_hook_sets(self):
        """The server answers by it, although the function of the key has left it out."""
        for n in range(3):
            self.up.on("/hooked/key?id=%d" % n, lambda seen: response(b"for " + (seen.get("x-user") or "all").encode(), [FRESH]))
        who = lambda name: [("X-Who", name)]
        got = [self.ask("/hooked/key?id=%d" % n, headers=h).text for n, h in ((0, who("ada")), (1, who("bob")), (2, who("Ada")), (1, []))]
        self.assertEqual(got, ["for ada", "for bob", "for Ada", "for all"])
        got = [self.ask("/hooked/key?id=%d" % n, headers=h) for n, h in ((2, who("bob")), (0, []), (2, who("ada")))]
        self.assertEqual([(r.text, r.all("cache-status")[0][:13]) for r in got], [(t, "luaserve; hit") for t in ("for bob", "for all", "for ada")])
        self.server.wait_log("let cache.key have what makes the responses different; it sets X-User")

    def test_fields_of_middleware_are_not_stored(self):
        self.up.on("/own", response(b"x", [FRESH, "X-Both: theirs", "X-C: 1", "Vary: a", "Vary: b"]))
        for _ in range(2):
            got = self.ask("/own")
            self.assertEqual((got.all("set-cookie"), got.all("x-own"), got.all("x-both"), got.all("x-c"), got.all("vary")),
                             (["own=1"], ["yes"], ["own"], ["1"], ["a", "b"]))
        self.assertEqual(self.up.count("/own"), 1)
        long = ["X-Many: %s%d" % ("x" * 800, n) for n in range(5)]
        for target, count in ("/many?own=1", 1), ("/many", 5), ("/own/many", 5):
            self.up.on(target, response(b"x", [FRESH] + long))
            self.assertEqual([len(self.ask(target).all("x-many")) for _ in range(2)], [count] * 2)

    def test_what_middleware_has_replaced_counts_for_the_cache(self):
        self.up.on("/default?control=1", lambda seen: response(b"%d" % self.up.count("/default?control=1"), ["Cache-Control: no-store"]))
        self.up.on("/default/2?control=1", response(b"x", ["Expires: " + PAST]))
        self.up.on("/default/3?control=1", response(b"x"))
        self.up.on("/default/4?control=1&hook=1", response(b"x", ["Cache-Control: no-store"]))
        self.assertEqual([self.ask("/default?control=1").text for _ in range(2)], ["1", "2"])
        self.assertEqual(self.asks("/default/2?control=1"), ["fwd=uri-miss"] * 2)
        self.assertEqual(self.asks("/default/3?control=1"), ["fwd=uri-miss; stored", "hit"])
        self.assertEqual(self.asks("/default/4?control=1&hook=1"), ["fwd=uri-miss; stored", "hit"])

    def test_a_field_of_the_server_that_is_equal_to_one_of_middleware(self):
        target = self.up.on("/own/equal", lambda seen: response(seen["x-a"].encode(), [FRESH, "Vary: X-A"]))
        for value, status in ("1", "fwd=uri-miss; stored"), ("2", "fwd=vary-miss; stored"), ("1", "hit"):
            got = self.ask(target, [("X-A", value)])
            self.assertEqual((got.text, self.status(got), got.all("vary")), (value, status, ["X-A", "X-A"]))
        self.up.on("/own/cookie", response(b"x", [FRESH, "Set-Cookie: own=1"]))
        self.assertEqual(self.asks("/own/cookie"), ["fwd=uri-miss"] * 2)

    def test_a_hook_changes_what_is_stored(self):
        self.up.on("/hook", response(b"x", [FRESH, "Set-Cookie: a=1", "X-Own: theirs"]))
        self.assertEqual(self.asks("/hook"), ["fwd=uri-miss; stored", "hit"])
        self.assertEqual(self.ask("/hook").all("x-own"), [])
        self.up.on("/hook/404", response(b"x", [FRESH], "404 N"))
        self.assertEqual([self.ask("/hook/404").text for _ in range(2)], ["ours\n"] * 2)
        self.assertEqual(self.up.count("/hook/404"), 2)


class Hooked(CacheCase):
    def runs(self, target, headers=(), expected=1):
        before = int(self.ask("/hooked").text)
        got = self.ask(target, headers)
        self.assertEqual(int(self.ask("/hooked").text) - before, expected)
        return got.status, self.status(got), got.text

    def test_a_hit_passes_the_hook(self):
        target = self.up.on("/guard/a?key=k", response(b"x"))
        self.up.on("/guard/a", response(b"never"))
        self.assertEqual([self.runs(target) for _ in range(3)],
                         [(200, "fwd=uri-miss; stored", "x"), (200, "hit", "x"), (200, "hit", "x")])
        self.assertEqual(self.runs("/guard/a"), (401, None, "a key is needed\n"))
        self.assertEqual(self.runs(target, [("Cache-Control", "no-cache")])[:2], (200, "fwd=request; stored"))
        target = self.up.on("/guard/public", response(b"x", ["Cache-Control: public, max-age=9"]))
        who = [("Authorization", "Bearer a")]
        self.assertEqual([self.runs(target, h)[:2] for h in (who, who, [])],
                         [(200, "fwd=uri-miss; stored"), (200, "hit"), (401, None)])
        self.assertEqual(self.up.count(target) + self.up.count("/guard/a"), 1)

    def test_the_hook_changes_what_selects_a_response(self):
        target = self.up.on("/guard/vary?key=k", lambda seen: response(
            ("%s %s" % (seen.get("x-user"), seen.get("x-lang"))).encode(), ["Vary: x-lang, X-User"]))
        rows = [([("X-Who", "ada")], "ada None", "fwd=uri-miss; stored"), ([("X-Who", "bob")], "bob None", "fwd=vary-miss; stored"),
                ([("X-Who", "ada"), ("X-User", "bob")], "ada None", "hit"),
                ([("X-Who", "ada"), ("X-Lang", "de-AT")], "ada de", "fwd=vary-miss; stored"),
                ([("X-Who", "ada"), ("X-Lang", "de-CH")], "ada de", "hit"), ([("X-Who", "bob")], "bob None", "hit")]
        for headers, text, status in rows:
            self.assertEqual(self.runs(target, headers), (200, status, text))
        target = self.up.on("/guard/path?key=k", response(b"whole"))
        for part in "1", "2":
            self.up.on("/guard/part?of=" + part, response(part.encode()))
        self.assertEqual([self.runs(target, h)[1:] for h in ([], [("X-Part", "1")], [("X-Part", "2")], [("X-Part", "1")], [])],
                         [("fwd=uri-miss; stored", t) for t in ("whole", "1", "2")] + [("hit", "1"), ("hit", "whole")])

    def test_authorization_of_the_hook(self):
        target = self.up.on("/guard/auth?key=k", lambda seen: response(seen.get("authorization", "none").encode(), [FRESH]))
        one, two = [("X-Token", "1")], [("X-Token", "2")]
        self.assertEqual([self.runs(target, h)[1:] for h in (one, two, [], [], one)],
                         [("fwd=uri-miss", "Bearer 1"), ("fwd=uri-miss", "Bearer 2"), ("fwd=uri-miss; stored", "none"),
                          ("hit", "none"), ("fwd=bypass", "Bearer 1")])

    def test_a_refresh_has_what_the_hook_made(self):
        target = "/guard/swr?key=k"
        self.up.on(target, response(b"one", ["Age: 1000", "Cache-Control: max-age=10, stale-while-revalidate=5000", "Vary: X-User"]))
        self.ask(target, [("X-Who", "ada")])
        self.up.on(target, lambda seen: response(b"two for " + seen["x-user"].encode(), [FRESH, "Vary: X-User"]))
        self.assertEqual(self.runs(target, [("X-Who", "ada")]), (200, "hit", "one"))  # a refresh does not run it again
        self.until(lambda: self.ask(target, [("X-Who", "ada")]).text == "two for ada")
        self.assertEqual(self.up.count(target), 1)


class Served(CacheCase):
    def test_conditions_and_ranges(self):
        modified = "Sun, 06 Nov 1994 08:49:37 GMT"
        self.up.on("/c", response(b"0123456789", [FRESH, 'ETag: "e"', "Last-Modified: " + modified, "Content-Type: text/x"]))
        self.ask("/c")

        def check(case):
            fields, expected = case
            got = self.ask("/c", fields)
            self.assertEqual((got.status, got.text if got.status != 416 else got.header("content-range")), expected)
        table(self, [(str(case), case) for case in [
            ([("If-None-Match", '"e"')], (304, "")), ([("If-None-Match", '"f"')], (200, "0123456789")),
            ([("If-None-Match", '"f", W/"e"')], (304, "")), ([("If-Modified-Since", modified)], (304, "")),
            ([("If-Modified-Since", PAST)], (304, "")), ([("If-Match", '"f"')], (412, "Precondition Failed\n")),
            ([("Range", "bytes=2-4")], (206, "234")), ([("Range", "bytes=-3")], (206, "789")),
            ([("Range", "bytes=10-")], (416, "bytes */10")), ([("Range", "bytes=0-0,2-2")], (200, "0123456789")),
            ([("Range", "lines=1-2")], (200, "0123456789")), ([("Range", "bytes=1-1"), ("If-Range", '"e"')], (206, "1")),
            ([("Range", "bytes=1-1"), ("If-Range", '"f"')], (200, "0123456789"))]], check)
        got = self.ask("/c", [("If-None-Match", '"e"')])
        self.assertEqual((got.header("etag"), got.header("content-type"), self.status(got)), ('"e"', None, "hit"))
        got = self.ask("/c", [("Range", "bytes=2-4")])
        self.assertEqual((got.header("content-range"), got.header("content-type")), ("bytes 2-4/10", "text/x"))
        self.assertEqual(self.ask("/c", [("Range", "bytes=2-4")], "HEAD").status, 200)
        self.assertEqual(self.up.count("/c"), 1)

    def test_parts_and_heads_do_not_fill(self):
        self.up.on("/p", response(b"x", [FRESH]))
        self.assertEqual(self.asks("/p", headers=[("Range", "bytes=0-0")]) + self.asks("/p", method="HEAD"), ["fwd=bypass"] * 4)
        self.assertEqual([seen.get("range") for seen in self.up.requests["/p"]], ["bytes=0-0"] * 2 + [None] * 2)
        got = self.ask("/p", [("If-None-Match", '"a"'), ("If-Modified-Since", PAST)])
        self.assertEqual((got.status, self.status(got)), (200, "fwd=uri-miss; stored"))
        self.assertNotIn("if-none-match", self.up.requests["/p"][-1])

    def test_what_a_request_asks_for(self):
        fresh, stale = "/asks/fresh", "/asks/stale"

        def check(case):
            number, (control, target, expected) = case
            is_fresh = target == fresh
            target = self.up.on("%s%d" % (target, number), response(
                b"x", ["Cache-Control: max-age=1000", "Age: 100"] if is_fresh else STALE + ['ETag: "e"']))
            self.ask(target)
            name = "Pragma" if control == "pragma" else "Cache-Control"
            got = self.ask(target, [(name, control if control != "pragma" else "no-cache")])
            self.assertEqual((got.status, self.status(got)) if got.status != 504 else 504, expected)
        hit, asked = (200, "hit"), (200, "fwd=request; stored")
        table(self, [(str(case), (n, case)) for n, case in enumerate([
            ("no-cache", fresh, asked), ("pragma", fresh, asked), ("max-age=0", fresh, asked), ("max-age=2000", fresh, hit),
            ("max-age=50", fresh, asked), ("min-fresh=100", fresh, hit), ("min-fresh=1000", fresh, asked),
            ("only-if-cached", fresh, hit), ("only-if-cached", stale, 504), ("max-stale", stale, hit),
            ("max-stale=10", stale, asked), ("max-stale=5000", stale, hit), ("no-store", fresh, hit),
            ("no-store", stale, (200, "fwd=bypass")), ("nonsense", fresh, hit), ("no-cache, only-if-cached", fresh, 504)])], check)
        self.assertEqual(self.ask("/asks/none", [("Cache-Control", "only-if-cached")]).status, 504)

    def test_compressed_on_its_way(self):
        server = self.serve(app_site("""
            app:use(require("luaserve.compress")())
            app:proxy("/", "http://127.0.0.1:%d", { cache = {} })
""") % self.up.port)
        body = b"text " * 100000
        self.up.on("/z", response(body, [FRESH, "Content-Type: text/plain", 'ETag: "e"']))
        with server.connect() as conn:
            for _ in range(2):
                got = conn.get("/z", [("Accept-Encoding", "gzip")])
                self.assertEqual((gzip.decompress(got.body), got.header("content-encoding")), (body, "gzip"))
            self.assertEqual(conn.get("/z").body, body)
        self.assertEqual(self.up.count("/z"), 1)


class Validated(CacheCase):
    def test_304_updates_what_is_stored(self):
        def answer(seen):
            if seen.get("if-none-match") == '"e"':
                return b'HTTP/1.1 304 N\r\nETag: "e"\r\n%s\r\nX-A: new\r\nContent-Type: text/y\r\n\r\n' % FRESH.encode()
            return response(b"hello", STALE + ['ETag: "e"', "X-A: old", "X-B: kept", "Content-Type: text/x"])
        self.up.on("/v", answer)
        self.assertEqual(self.asks("/v", 3), ["fwd=uri-miss; stored", "fwd=stale; fwd-status=304; stored", "hit"])
        got = self.ask("/v")
        self.assertEqual((got.text, got.all("x-a"), got.all("x-b"), got.header("content-type")), ("hello", ["new"], ["kept"], "text/x"))
        self.assertEqual(self.up.count("/v"), 2)

    def test_by_date_and_by_another_response(self):
        self.up.on("/d", response(b"one", STALE + ["Last-Modified: " + PAST]))
        self.ask("/d")
        self.up.on("/d", response(b"two", [FRESH]))
        self.assertEqual([self.ask("/d").text for _ in range(2)], ["two", "two"])
        self.assertEqual([seen.get("if-modified-since") for seen in self.up.requests["/d"]], [PAST])

    def test_no_cache_is_stored_and_validated_each_time(self):
        self.up.on("/n", lambda seen: b'HTTP/1.1 304 N\r\n\r\n' if "if-none-match" in seen else
                   response(b"hello", ["Cache-Control: no-cache", 'ETag: "e"']))
        self.assertEqual(self.asks("/n", 3), ["fwd=uri-miss; stored"] + ["fwd=stale; fwd-status=304; stored"] * 2)
        self.assertEqual(self.ask("/n", [("If-None-Match", '"e"')]).status, 304)

    def test_stale_while_revalidate(self):
        for target in "/swr", "/key?k=swr&" + "x" * 5000:  # which is too long for a key
            self.refreshed(target)

    def refreshed(self, target):
        done = threading.Event()
        stale = response(b"one", ["Age: 1000", "Cache-Control: max-age=10, stale-while-revalidate=5000", 'ETag: "e"'])
        self.up.on(target, stale)
        self.assertEqual(self.asks(target, 1, [("X-A", "1")]), ["fwd=uri-miss; stored"])

        def answer(seen):
            done.set()
            return response(b"two", [FRESH])
        self.up.on(target, answer)
        got = self.ask(target, [("X-A", "2")])
        self.assertEqual((got.text, self.status(got)), ("one", "hit"))
        self.assertTrue(done.wait(WAIT))
        self.until(lambda: self.ask(target).text == "two")
        seen = self.up.requests[target]
        self.assertEqual((len(seen), seen[0]["if-none-match"], seen[0]["x-a"], seen[0]["host"], seen[0]["x-forwarded-host"],
                          seen[0]["x-forwarded-for"], seen[0]["x-forwarded-proto"]),
                         (1, '"e"', "2", "127.0.0.1:%d" % self.up.port, "h", "127.0.0.1", "http"))

    def test_one_refresh_at_a_time(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.up.on("/one", response(b"x", ["Age: 1000", "Cache-Control: max-age=10, stale-while-revalidate=5000"]))
        self.ask("/one")
        self.up.on("/one", lambda seen: gate.wait(WAIT) and response(b"y", [FRESH]))
        self.assertEqual([self.ask("/one").text for _ in range(10)], ["x"] * 10)
        gate.set()
        self.until(lambda: self.ask("/one").text == "y")
        self.assertEqual(self.up.count("/one"), 1)

    def test_a_refresh_for_which_there_are_too_many_jobs(self):
        server = self.serve(app_site("""
ls.config { max_jobs = 1 }
local gate = ls.channel("gate")
app:use("/a", function(req, res, next)
  if req.headers["x-busy"] then ls.spawn(function() gate:receive() end) end
  next()
end)
app:proxy("/a", "http://127.0.0.1:%d", { cache = {} })
app:get("/go", function() return tostring(gate:send(true)) end)
""") % self.up.port)
        self.up.on("/a", response(b"old", STALE + ["Cache-Control: stale-while-revalidate=10000"]))
        for target, headers, text in ("/a", [], "old"), ("/a", [("X-Busy", "1")], "old"), ("/go", [], "true"):
            with self.connect(server=server) as conn:
                self.assertEqual(conn.ask("GET", target, headers).text, text)
        server.stop()
        self.assertNotIn(" error ", server.log())
        self.assertEqual(self.up.count("/a"), 1)

    def test_stale_if_error(self):
        """RFC 5861 section 4."""
        def check(case):
            number, (control, failure, expected) = case
            target = self.up.on("/sie/%d" % number, response(b"old", ["Age: 1000", "Cache-Control: " + control, 'ETag: "e"']))
            self.ask(target)
            self.up.on(target, failure)
            got = self.ask(target)
            self.assertEqual((got.status, got.text, self.status(got)), expected)
        within, beyond = "max-age=10, stale-if-error=5000", "max-age=10, stale-if-error=900"
        error = response(b"no", [], "503 No")
        table(self, [(str(case), (n, case)) for n, case in enumerate([
            (within, error, (200, "old", "fwd=stale; fwd-status=503")), (beyond, error, (503, "no", "fwd=stale")),
            (within + ", must-revalidate", error, (503, "no", "fwd=stale")),
            (within, response(b"no", [], "501 No"), (501, "no", "fwd=stale")),
            (within, lambda seen: None, (200, "old", "fwd=stale")), (beyond, lambda seen: None, (502, "Bad Gateway\n", None))])], check)


class Fills(CacheCase):
    def entered(self):
        return int(self.ask("/entered").text)

    def begin(self, target, count, gate, answer):
        """Send `count` requests, the first of which waits at the server until all others have arrived. -> connections"""
        arrived = threading.Event()

        def first(seen):
            arrived.set()
            gate.wait(WAIT)
            self.up.answers[target] = answer[1]
            return answer[0]
        self.addCleanup(gate.set)
        self.up.on(target, first)
        before = self.entered()
        conns = [self.connect().send(request("GET", target))]
        self.assertTrue(arrived.wait(WAIT))
        conns += [self.connect().send(request("GET", target)) for _ in range(count - 1)]
        self.until(lambda: self.entered() - before == count)
        return conns

    def test_others_wait_for_the_first_one(self):
        gate = threading.Event()
        conns = self.begin("/wait", 20, gate, [response(b"x", [FRESH]), response(b"y", [FRESH])])
        gate.set()
        self.assertEqual([conn.response().text for conn in conns], ["x"] * 20)
        self.assertEqual(self.up.count("/wait"), 1)

    def test_a_wait_has_an_end(self):
        gate = threading.Event()
        self.addCleanup(gate.set)
        self.up.on("/impatient", lambda seen: gate.wait(WAIT) and response(b"x", [FRESH]) if self.up.count("/impatient") == 1
                   else response(b"y", [FRESH]))
        first = self.connect().send(request("GET", "/impatient"))
        self.until(lambda: self.up.count("/impatient") > 0)
        self.assertEqual(self.ask("/impatient").text, "y")
        gate.set()
        self.assertEqual(first.response().text, "x")

    def test_an_event_stream_is_not_stored(self):
        conn = self.connect().send(request("GET", "/peer/events"))  # without an end
        upstream = self.peer.accept()
        upstream.request()
        upstream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n%s\r\n\r\n"
                      b"5\r\nhello\r\n" % FRESH.encode())
        conn.head()
        other = self.connect().send(request("GET", "/peer/events"))
        with self.peer.accept() as again:  # it does not wait for the end of the first one
            again.request()
            again.send(response(b"another"))
            self.assertEqual(other.response().text, "another")
        upstream.sock.close()

    def peer_fill(self, target):
        """A response on its way, of which the first part has arrived. -> client, server"""
        conn = self.connect().send(request("GET", target))
        upstream = self.peer.accept()
        upstream.request()
        upstream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n%s\r\n\r\nhello" % FRESH.encode())
        conn.head()
        self.assertEqual(conn.take(5), b"hello")  # before the rest has arrived
        return conn, upstream

    def test_the_first_client_gets_each_part_at_once(self):
        conn, upstream = self.peer_fill("/peer/parts")
        upstream.send(b"world")
        self.assertEqual(conn.take(5), b"world")
        self.until(lambda: self.status(self.ask("/peer/parts")) == "hit")
        upstream.sock.close()

    def test_a_response_that_is_cut_is_not_stored(self):
        conn, upstream = self.peer_fill("/peer/cut")
        waits = self.connect().send(request("GET", "/peer/cut"))
        upstream.sock.close()
        with self.assertRaises(Closed):
            conn.take(5)
        with self.peer.accept() as again:
            again.request()
            again.send(response(b"whole", [FRESH]))
            self.assertEqual(waits.response().text, "whole")

    def test_a_client_that_leaves_ends_its_fill_only(self):
        conn, upstream = self.peer_fill("/peer/leaves")
        waits = self.connect().send(request("GET", "/peer/leaves"))
        conn.close()
        self.addCleanup(upstream.sock.close)
        upstream.send(b"w")  # and the proxy finds that the client has left
        upstream.ends()
        with self.peer.accept() as again:
            again.request()
            again.send(response(b"whole", [FRESH]))
            self.assertEqual(waits.response().text, "whole")

    def test_requests_at_the_same_time(self):
        """Many clients of few targets, with removals: each response is whole and of its target."""
        for n in range(3):
            self.up.on("/mix/%d" % n, lambda seen, n=n: response(b"%d" % n * 5000, [FRESH, "Vary: X-V"]))
        failures = []

        def client(number):
            with self.connect() as conn:
                for n in range(60):
                    got = conn.get("/mix/%d" % (n % 3), [("X-V", str(n % 2))])
                    if got.body != b"%d" % (n % 3) * 5000:
                        failures.append(got)
                    if (n + number) % 20 == 0:
                        conn.get("/purge?path=/mix/*")
        threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])


class Stores(CacheCase):
    """The second store behind the memory."""
    SOURCE = app_site("""
        local _, store = app:proxy("/", "http://127.0.0.1:%d", { cache = { %s } })
        app:get("/purge", function(req) return tostring(store:purge(req.query.path)) end)
        app:get("/forge", function(req)  -- a copy with a right checksum: of the entry that is sent, else of each beginning of one
          local core, file = require "luaserve.core", ls.file
          local name = core.cache_name(req.query.line)
          local path = "@DIR@/c/" .. name:sub(1, 2)
          local entry = string.pack("<I6I6I6I6I6I2BBs4s4s4s4", os.time(), 0, 1000000, 0, 0, 200, 0, 0,
            req.query.line .. "\\nhttp://" .. req.authority, "", req.query.lines or "", "forged")
          entry = entry:sub(1, tonumber(req.query.bytes) or #entry)
          assert(file.mkdir(path, { parents = true }))
          assert(file.write(path .. "/" .. name, req.query.line .. "\\n" .. string.pack("<c8c32s4", "lsstore3", core.cache_name(entry), entry)))
        end)
        app:get("/copies", function() return tostring(#ls.dict("pages", { evict = true }):keys()) end)
""")

    def one(self, options):
        return self.serve(self.SOURCE % (self.up.port, options))

    def folder(self):
        folder = temporary_folder()
        self.addCleanup(shutil.rmtree, folder)
        return folder

    def files(self, folder):
        return [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]

    def wait_files(self, folder, count):
        self.eventually(lambda: len([name for name in self.files(folder) if len(os.path.basename(name)) == 32]) == count, "%d files" % count)

    def statuses(self, server, *targets, headers=()):
        with server.connect() as conn:
            return [self.status(conn.get(target, headers)) for target in targets]

    def test_a_folder_outlives_the_server(self):
        for target, fields in ("/f/1", [FRESH, "Vary: A"]), ("/f/2", STALE + ['ETag: "e"']), ("/f/2?x", [FRESH]):
            self.up.on(target, response(target.encode(), fields))
        folder = self.folder()
        options = 'folder = "%s/deep"' % folder
        server = self.one(options)
        self.assertEqual(self.statuses(server, "/f/1", "/f/2", "/f/2?x"), ["fwd=uri-miss; stored"] * 3)
        self.wait_files(folder, 3)
        server.stop()
        self.up.on("/f/2", lambda seen: b"HTTP/1.1 304 N\r\n%s\r\n\r\n" % FRESH.encode() if "if-none-match" in seen else
                   response(b"new", [FRESH]))
        server = self.one(options)
        self.assertEqual(self.statuses(server, "/f/1", "/f/2", "/f/2"), ["hit", "fwd=stale; fwd-status=304; stored", "hit"])
        with server.connect() as conn:
            self.assertEqual([conn.get(target).text for target in ("/f/1", "/f/2")], ["/f/1", "/f/2"])
        self.assertEqual(self.statuses(server, "/f/1", headers=[("A", "1")]), ["fwd=vary-miss; stored"])
        self.assertEqual(self.statuses(server, "/purge?path=/f/2", "/f/2?x"), [None, "hit"])
        self.wait_files(folder, 2)
        self.statuses(server, "/purge?path=/f/*")
        self.wait_files(folder, 0)

    def test_files_that_are_damaged(self):
        """A file with another byte anywhere, or without its end, is not served."""
        folder, sources = self.folder(), []
        server = self.one('folder = "%s"' % folder)
        for n in range(60):
            sources.append(self.up.on("/g/%02d" % n, response(b"hello", [FRESH, "X-A: 1"])))
            self.statuses(server, sources[-1])
        self.wait_files(folder, len(sources))
        server.stop()
        for name in self.files(folder):
            with open(name, "r+b") as file:
                whole = file.read()
                n = int(whole[3:5])
                if n % 2:
                    file.truncate(n * len(whole) // 60)
                elif n:
                    file.seek(n * len(whole) // 60)
                    byte = file.read(1)[0]
                    file.seek(-1, os.SEEK_CUR)
                    file.write(bytes([byte ^ n]))
        server = self.one('folder = "%s"' % folder)
        self.assertEqual(self.statuses(server, *sources), ["hit"] + ["fwd=uri-miss; stored"] * 59)

    def test_files_that_are_forged(self):
        """A copy that somebody else has written is an entry with valid fields, or none."""
        server = self.one('folder = "@DIR@/c"')
        for n, (query, expected) in enumerate([("", "hit"), ("lines=A:+1%0D%0A", "hit"), ("lines=Content-Length:+1%0D%0A", None),
                                               ("lines=Transfer-Encoding:+chunked%0D%0A", None), ("lines=A:+1", None),
                                               ("lines=Connection:+close%0D%0A", None), ("lines=A:+1%0D%0A%0D%0AB", None),
                                               *(("bytes=%d" % at, None) for at in range(0, 70, 7))]):
            source = self.up.on("/forged/%d" % n, response(b"hello", [FRESH]))
            self.statuses(server, "/forge?line=%s&%s" % (source, query))
            with self.subTest(query=query):
                self.assertEqual(self.statuses(server, source, source), [expected or "fwd=uri-miss; stored", "hit"])

    def test_a_folder_never_has_more_than_its_size(self):
        folder = self.folder()
        others = [folder + "/README", folder + "/ab/notes.txt", folder + "/site/" + "a" * 32, folder + "/ab/" + "c" * 32]
        for path in others:  # the oldest files
            os.makedirs(os.path.dirname(path), exist_ok=True)
            write_text(path, "of somebody else")
            os.utime(path, (1, 1))

        def copies():
            """The first line and the bytes on the disk of each file."""
            out = {}
            for name in self.files(folder):
                try:
                    with open(name, "rb") as file:
                        data = file.read()
                except FileNotFoundError:
                    continue
                if len(os.path.basename(name)) == 32 and name not in others:
                    out[data.split(b"\n")[0]] = -(-len(data) // 4096) * 4096
            return out

        def fill(server, targets, most):
            for target in targets:
                self.up.on(target, response(b"x" * (20000 if target[-1] == "1" else 100), [FRESH]))
                self.statuses(server, target)
                self.until(lambda: target.encode() in copies())
                self.assertLessEqual(sum(copies().values()), most)
        server = self.one('folder_size = "400k", folder = "%s"' % folder)
        fill(server, ["/size/%d?%d" % (n, n % 2) for n in range(60)], 400 << 10)
        self.assertGreater(sum(copies().values()), 200 << 10)
        server.stop()
        fill(self.one('folder_size = "100k", folder = "%s"' % folder), ["/size/1", "/size/2"], 100 << 10)
        self.assertEqual([os.path.exists(path) for path in others], [True] * len(others))

    def test_a_dict(self):
        with self.subTest("behind a memory without room"):
            server = self.one('size = "64k", dict = ls.dict("pages", { evict = true })')
            for n in range(4):
                self.up.on("/h/%d" % n, response(b"x" * 30000, [FRESH]))
                self.statuses(server, "/h/%d" % n)
                self.until(lambda: server.get("/copies").text == str(n + 1))  # it leaves the memory with the next one
            self.assertEqual(self.statuses(server, "/h/0", "/h/1", "/h/2", "/h/3"), ["hit"] * 4)
            self.assertEqual([self.up.count("/h/%d" % n) for n in range(4)], [1] * 4)
            self.statuses(server, "/purge?path=/h/0")
            self.assertEqual(self.statuses(server, "/h/0", "/h/1"), ["fwd=uri-miss; stored", "hit"])
            self.statuses(server, "/purge")
            self.assertEqual(self.statuses(server, "/h/1"), ["fwd=uri-miss; stored"])


class Removed(CacheCase):
    def test_purge(self):
        for target in "/purged", "/purged?a", "/purged/b", "/kept":
            self.ask(self.up.on(target, response(b"x", [FRESH])))
        self.assertEqual(self.ask("/purge?path=/purged").text, "1")
        self.assertEqual([self.asks(t, 1)[0] for t in ("/purged?a", "/purged/b", "/kept", "/purged")], ["hit"] * 3 + ["fwd=uri-miss; stored"])
        self.assertEqual(self.ask("/purge?path=/purged*").text, "3")
        self.assertEqual(self.asks("/kept", 1), ["hit"])
        self.assertGreaterEqual(int(self.ask("/purge").text), 1)
        self.assertEqual(self.asks("/kept", 1), ["fwd=uri-miss; stored"])

    def test_unsafe_methods(self):
        """RFC 9111 section 4.4."""
        def check(case):
            number, (method, status, fields, removed) = case
            target, other = self.up.on("/u/%d" % number, response(b"x", [FRESH])), self.up.on("/o/%d" % number, response(b"x", [FRESH]))
            self.ask(target)
            self.ask(other)
            self.up.on(target, response(b"", [f.replace("OTHER", other) for f in fields], status))
            got = self.ask(target, method=method)
            self.assertEqual(self.status(got), "fwd=method")
            self.up.on(target, response(b"x", [FRESH]))
            self.assertEqual([self.asks(t, 1)[0] != "hit" for t in (target, other)], removed)
        table(self, [(str(case), (n, case)) for n, case in enumerate([
            ("POST", "200 OK", [], [True, False]), ("DELETE", "204 N", [], [True, False]), ("PROPPATCH", "200 OK", [], [True, False]),
            ("PUT", "500 E", [], [False, False]), ("PUT", "404 N", [], [False, False]), ("OPTIONS", "200 OK", [], [False, False]),
            ("POST", "303 S", ["Location: OTHER"], [True, True]), ("POST", "201 C", ["Content-Location: http://h" + "OTHER"], [True, True]),
            ("POST", "201 C", ["Location: http://elsewhere" + "OTHER"], [True, False])])], check)

    def test_a_removal_during_a_fill(self):
        gate, here = threading.Event(), threading.Event()
        self.addCleanup(gate.set)
        self.up.on("/during", lambda seen: (here.set(), gate.wait(WAIT)) and response(b"old", [FRESH]))
        conn = self.connect().send(request("GET", "/during"))
        self.assertTrue(here.wait(WAIT))
        self.ask("/purge?path=/during")
        gate.set()
        self.assertEqual(conn.response().text, "old")
        self.up.on("/during", response(b"new", [FRESH]))
        self.assertEqual(self.ask("/during").text, "new")

    def test_wrong_handles_are_refused(self):
        server = self.serve(HANDLES.replace("@PORT@", str(self.up.port)))
        self.up.on("/handles", response(b"hello", [FRESH]))
        self.up.on("/refused", response(b"hello", [FRESH]))
        with server.connect() as conn:
            for _ in range(3):
                got = conn.get("/handles")
                self.assertEqual((got.status, got.text, got.header("x-failed")), (200, "hello", ""))
                self.assertEqual(conn.get("/refused").text, "refused")

    @not_on_windows("Windows has no SIGHUP")
    def test_a_reload_keeps_what_is_stored(self):
        server = self.serve(app_site("""
            app:proxy("/", "http://127.0.0.1:%d", { cache = {} })
""") % self.up.port)
        self.up.on("/reload", response(b"x", [FRESH]))
        with server.connect() as conn:
            conn.get("/reload")
        server.reload()
        with server.connect() as conn:
            self.assertEqual(self.status(conn.get("/reload")), "hit")

    def test_usage(self):
        def refuse(case):
            call, message = case
            self.refuses('local ls = require "luaserve"\nlocal _, store = ls.app():proxy("/", "http://x", { cache = %s })' % call,
                         message)
        table(self, [(call, (call, message)) for call, message in [
            ('{ folder = "" }', "cache.folder must be a path"), ("{ dict = {} }", "cache.dict must be a dict"),
            ('{ folder = "a", dict = ls.dict("a") }', "give one of"),
            ("{} }) store:purge(1) print({", "store:purge takes a path")]], refuse)
