"""ls.semaphore(name, n, { redis = true }): permits that several servers share."""
import threading

from harness import WAIT, in_parallel, not_on_windows
from test_redis_site import SITE as CONFIGURED
from test_redis_site import Case

SITE = r"""
local door = ls.semaphore("door{%}", 2, { redis = true })
local one = ls.semaphore("one", 1, { redis = true })
local inside = ls.dict("inside", { redis = true })
app:get("/held", function() return door.held .. " " .. one.held .. " of " .. door.permits .. " " .. one.name end)
app:get("/permit/:n", function(req) -- two at a time over all servers
  return one:with(function(n)
    if inside:incr("n") ~= 1 then error("too many") end
    ls.sleep(0.002)
    inside:incr("n", -1)
    return "done " .. n
  end, req.params.n)
end)
app:get("/take", function() -- until /give, or the end of the server
  local ok, message, code = door:acquire(0)
  if not ok then return 409, code .. " " .. message end
  ls.channel("take"):send(true)
  ls.channel("give"):receive()
  door:release()
  return "given"
end)
app:get("/taken", function() return tostring(ls.channel("take"):receive()) end)
app:get("/clear", function()
  local dict = ls.dict("semaphore", { redis = true })
  local count = #dict
  dict:clear()
  return tostring(count)
end)
app:get("/give", function() ls.channel("give"):send(true) return 204 end)
app:get("/wait/:s", function(req)
  local ok, message, code = door:acquire(tonumber(req.params.s))
  if not ok then return 409, code .. " " .. message end
  door:release()
  return "ok"
end)
app:get("/with", function() return door:with(function() return "ok" end) end)
app:get("/ends/:how", { timeout = 0.2 }, function(req)
  one:acquire()
  if req.params.how == "error" then error("oops") end
  if req.params.how == "sleep" then ls.sleep(60) end
  while req.params.how == "spin" do end
  return "returned"
end)
app:get("/misuse", function()
  local function message(...) return (select(2, pcall(...))) end
  local out = { message(one.release, one), message(one.acquire, one, -1), message(one.with, one), message(one.acquire),
    message(function() return one.none end), message(function() one.x = 1 end), tostring(one) }
  one:acquire()
  out[#out + 1] = message(one.acquire, one)
  out[#out + 1] = tostring(select(3, one:acquire(0)))
  out[#out + 1] = tostring(select(3, one:acquire(0.01)))
  out[#out + 1] = message(ls.spawn(function() one:release() end).wait, ls.spawn(function() one:release() end))
  one:release()
  out[#out + 1] = tostring(one:acquire(0))
  one:release()
  one:with(function() out[#out + 1] = message(one.release, one) end)
  out[#out + 1] = message(one.with, one, error, "no luck")
  out[#out + 1] = table.concat({ one:with(function(a, b) return a + b, one.held end, 1, 2) }, " ")
  out[#out + 1] = tostring(one.held)
  return table.concat(out, "\n")
end)
"""


class Semaphores(Case):
    def sites(self, count):
        return [self.site(SITE) for _ in range(count)]

    def held(self, site):
        return self.fetch(site, "/held").text.split(" of ")[0]

    def test_servers_share_its_permits(self):
        sites = self.sites(2)
        self.assertEqual(self.fetch(sites[0], "/held").text, "0 0 of 2 one")
        self.assertEqual(sorted(r.text for r in in_parallel(
            [lambda n=n: self.fetch(sites[n % 2], f"/permit/{n}") for n in range(40)])),
            sorted(f"done {n}" for n in range(40)))
        self.assertEqual([self.held(site) for site in sites], ["0 0", "0 0"])
        for site in sites:
            site.stop()

    def test_the_last_permit_and_one_more(self):
        sites = self.sites(2)
        takers = [threading.Thread(target=self.fetch, args=(site, "/take")) for site in sites]
        for taker, site in zip(takers, sites):
            taker.start()
            self.fetch(site, "/taken")
        self.assertEqual(self.held(sites[1]), "2 0")
        self.assertEqual((self.fetch(sites[0], "/clear").text, self.held(sites[1])), ("0", "2 0"))  # a dict of another kind of keys
        self.assertEqual(self.fetch(sites[0], "/take", expect=409).text, "ETIMEDOUT timeout")
        self.assertEqual(self.fetch(sites[0], "/wait/0.05", expect=409).text, "ETIMEDOUT timeout")
        waits = threading.Thread(target=self.fetch, args=(sites[0], "/with"))
        waits.start()
        self.redis.wait(("ZCARD", "luaserve:%semaphore:{door%7B%25%7D}:waiting"), ":1".__eq__)
        self.fetch(sites[1], "/give", expect=204)
        waits.join(WAIT)
        self.fetch(sites[0], "/give", expect=204)
        for taker in takers:
            taker.join(WAIT)
        self.assertEqual(self.held(sites[0]), "0 0")
        for site in sites:
            site.stop()

    def test_however_a_task_ends(self):
        sites = self.sites(2)
        for how, status in ("error", 500), ("sleep", 503), ("return", 200):
            since = len(sites[0].lines)
            self.fetch(sites[0], "/ends/" + how, expect=status)
            sites[0].wait_log(r"semaphore 'one': the task that called acquire at .*site.lua:\d+ has ended without release; "
                              "its permit is returned", since)
            self.assertEqual(self.fetch(sites[1], "/permit/1").text, "done 1")
        self.assertEqual(self.held(sites[1]), "0 0")
        for site in sites:
            site.stop()

    @not_on_windows("it has no SIGKILL")
    def test_the_permits_of_a_killed_server_come_back(self):
        sites = self.sites(2)
        for _ in range(2):
            conn = sites[0].connect()
            self.addCleanup(conn.close)
            conn.send(b"GET /take HTTP/1.1\r\nHost: a\r\n\r\n")
            self.fetch(sites[0], "/taken")
        sites[0].kill()
        self.assertEqual(self.held(sites[1]), "2 0")
        self.assertEqual(self.fetch(sites[1], "/wait/600").text, "ok")
        self.assertEqual(self.held(sites[1]), "0 0")
        sites[1].stop()

    def test_redis_ends_and_comes_back(self):
        sites = self.sites(2)
        taker = threading.Thread(target=self.fetch, args=(sites[0], "/take"))
        taker.start()
        self.fetch(sites[0], "/taken")
        self.redis.kill()
        response = self.fetch(sites[1], "/wait/60", expect=409)
        self.assertRegex(response.text, r"^E\w+ Redis at 127.0.0.1:\d+: ")
        self.fetch(sites[1], "/with", expect=503)
        sites[1].wait_log(r"semaphore 'door{%}': Redis at 127.0.0.1:\d+: ")
        sites[0].wait_log(r"semaphore 'door{%}': the permit of .*site.lua:\d+ is not renewed: Redis at ")
        self.redis.start()  # without its data: the permit that is held comes back
        self.redis.wait(("ZCARD", "luaserve:%semaphore:{door%7B%25%7D}:held"), ":1".__eq__)
        self.assertEqual(self.held(sites[0]), "1 0")
        self.fetch(sites[0], "/give", expect=204)
        taker.join(WAIT)
        self.eventually(lambda: self.held(sites[1]) == "0 0", "the permit is returned")
        for site in sites:
            site.stop()

    def test_misuse(self):
        site = self.site(SITE)
        lines = self.fetch(site, "/misuse").text.split("\n")
        for line, part in zip(lines, [
            "this task holds no permit of 'one'; only the task that called acquire can release",
            "the timeout must be seconds, at least 0; got -1", "the first argument must be a function; got nil",
            "'acquire' is a method of a semaphore: call it with a colon", "a semaphore has no none",
            "a semaphore has no field x to set", "semaphore 'one'",
            "this task holds all its permits since ", "ETIMEDOUT", "ETIMEDOUT",
            "this task holds no permit of 'one'", "true", "this task holds no permit of 'one'", "no luck", "3 1", "0",
        ], strict=True):
            self.assertIn(part, line)
        site.stop()
        text = 'ls.semaphore("a", 1, { redis = true })'
        for code, message in [
            ('ls.semaphore("a", 1, 5)', "ls.semaphore: options must be a table such as { redis = true }; got 5"),
            ('ls.semaphore("a", 1, { redis = 5 })', "ls.semaphore: redis must be true or a client of ls.redis; got 5"),
            (text + ' ls.semaphore("a", 2, { redis = true })', "is defined with another number of permits at another line"),
            (text + ' ls.semaphore("a", 1)', "is defined with another redis at another line"),
            (text + ":acquire()", "semaphore:acquire: cannot wait while the site loads"),
        ]:
            with self.subTest(code):
                self.refuses(CONFIGURED.replace("@PORT@", "1").replace("@MORE@", code), message)
