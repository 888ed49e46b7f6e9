"""test.clock: the time of a test file's process moves forward, and what becomes due runs in its order at its time."""
# sanitizers: asan; a test file runs in one thread
from test_luaserve_test import Tests

APP = r"""
local ls = require "luaserve"
local app = ls.app()
local d = ls.dict("d")
app:use(ls.session { secret = "0123456789abcdef0123456789abcdeZ", max_age = 60 })
app:get("/set", function() d:set("k", 1, 10) return "ok" end)
app:get("/get", function() return tostring(d:get("k")) end)
app:get("/sleep", function()
  local from = ls.now()
  ls.sleep(5)
  return string.format("%.1f", ls.now() - from)
end)
app:get("/visits", function(req)
  req.session.n = (req.session.n or 0) + 1
  return tostring(req.session.n)
end)
app:get("/limited", require "luaserve.rate_limit" { limit = 1, per = 60 }, function() return "in" end)
return app
"""

CLOCK = r"""
local app = require "app"
local advance = test.clock.advance
local function body(path, headers) return app:inject({ path = path, headers = headers }).body end
it("times to live", function()
  body "/set"
  advance(9.5)
  test.equal(body "/get", "1")
  advance(0.6)
  test.equal(body "/get", "nil")
  ls.dict("d"):set("l", 1, 3600)
  advance(3599)
  test.equal(ls.dict("d"):keys("l"), { "l" })
  advance(2)
  test.equal(ls.dict("d"):keys("l"), {})
end)
it("times of day", function()
  local time, now, clock = os.time(), ls.now(), os.clock()
  advance(86400)
  test.near(os.time() - time, 86400, 10)
  test.near(ls.now() - now, 86400, 10)
  test.near(ls.date.parse(ls.date.iso()) - time, 86400, 10)
  test.equal(os.date("!%Y-%m-%d", 0), "1970-01-01")
  test.equal(os.date("!*t").yday, os.date("!*t", os.time()).yday)
  test.equal(os.time { year = 2000, month = 1, day = 2, hour = 0 } - os.time { year = 2000, month = 1, day = 1, hour = 0 }, 86400)
  test.near(os.clock() - clock, 0, 100)
end)
it("work on other threads ends first", function()
  local built, db = pcall(ls.sqlite, ":memory:")
  local path, ended = os.tmpname(), nil
  ls.spawn(function()
    if built then db:one("with recursive c(n) as (select 1 union all select n + 1 from c where n < 1000000) select sum(n) from c") end
    ls.sleep(1)
    ls.file.write(path, ("x"):rep(1000000))
    ls.sleep(1)
    ended = #ls.file.read(path)
  end)
  advance(3)
  os.remove(path)
  test.equal(ended, 1000000)
end)
it("times of SQLite", function()
  local built, db = pcall(ls.sqlite, ":memory:")
  if not built then return end
  local query <const> = "select unixepoch('now') as s, unixepoch(current_timestamp) as t, unixepoch(date('now')) as day"
  local before = db:one(query)
  test.near(before.s - os.time(), 0, 10)
  advance(5 * 86400)
  local after = db:one(query)
  test.near(after.s - before.s, 5 * 86400, 10)
  test.near(after.t - before.t, 5 * 86400, 10)
  test.equal((after.day - before.day) % 86400, 0)
  test.near(after.day - before.day, 5 * 86400, 86400)
end)
it("timers and sleeps in their order", function()
  local list, from = {}, ls.now()
  local function note(name) list[#list + 1] = string.format("%s %d", name, (ls.now() - from) // 1) end
  local every = ls.every(10, note, "every")
  ls.after(25, note, "after")
  ls.spawn(function()
    ls.sleep(15)
    note "slept"
    ls.sleep(11)
    note "again"
  end)
  advance(40.5)
  test.equal(list, { "every 10", "slept 15", "every 20", "after 25", "again 26", "every 30", "every 40" })
  every:cancel()
  advance(40)
  test.equal(#list, 7)
end)
it("an hour of seconds", function()
  local n = 0
  local every = ls.every(1, function() n = n + 1 end)
  advance(3600)
  every:cancel()
  test.equal(n, 3600)
end)
it("nothing is due", function()
  local now = ls.now()
  advance(0)
  advance(1e9)
  test.near(ls.now() - now, 1e9, 100)
end)
it("a handler that sleeps", function()
  local job = ls.spawn(function() return body "/sleep" end)
  advance(4.9)
  advance(0.2)
  test.equal(job:wait(), "5.0")
end)
it("sessions", function()
  local cookie = app:inject({ path = "/visits" }).headers["set-cookie"]:match("^[^;]*")
  test.equal(body("/visits", { Cookie = cookie }), "2")
  advance(61)
  test.equal(body("/visits", { Cookie = cookie }), "1")
end)
it("limits of requests", function()
  test.equal(body "/limited", "in")
  test.equal(app:inject({ path = "/limited" }).status, 429)
  advance(60)
  test.equal(body "/limited", "in")
end)
it("tokens", function()
  local jwt, key = ls.crypto.jwt, ("k"):rep(8) .. ls.crypto.token()
  local token = jwt.sign({ exp = os.time() + 60 }, key)
  test.truthy(jwt.verify(token, key))
  advance(200)
  test.falsy(jwt.verify(token, key))
end)
it("waits of channels, semaphores and jobs", function()
  local c, s = ls.channel("c"), ls.semaphore("s", 1)
  s:acquire()
  local jobs = { ls.spawn(function() return select(3, c:receive(100)) end),
    ls.spawn(function() return select(3, s:acquire(100)) end),
    ls.spawn(function() return select(3, ls.spawn(ls.sleep, 300):wait(100)) end) }
  advance(99)
  for _, job in ipairs(jobs) do test.equal(job:wait(0), nil) end
  advance(2)
  for _, job in ipairs(jobs) do test.equal(job:wait(), "ETIMEDOUT") end
end)
it("wrong arguments", function()
  for _, value in ipairs { -1, 1e9 + 1, 0 / 0, "5", false } do
    test.raises(function() advance(value) end, "^x_test.lua:%d+: test.clock.advance takes seconds, from 0 to 1e9; got ")
  end
  test.raises(function() advance(1, 2) end, "too many arguments")
  test.raises(function() return test.clock.advanse end, "test.clock has no \"advanse\"; did you mean 'advance'?")
end)
"""


class Clock(Tests):
    def test_what_follows_the_clock(self):
        done = self.folder(app_lua=APP, x_test_lua='local test, ls = require "luaserve.test", require "luaserve"\n' + CLOCK).run(
            "--tap", "--timeout", "60", "x_test.lua", status=0, test=self)
        self.assertEqual(done.stdout.count("\nok "), CLOCK.count("\nit("), done.stdout)

    def test_the_limit_of_a_test_takes_its_real_time(self):
        text = """
it("moves", function() test.clock.advance(3600) end)
it("hangs", { timeout = 0.2 }, function()
  test.clock.advance(3600)
  ls.channel("none"):receive()
end)
it("loops", { timeout = 0.2 }, function()
  ls.every(0.001, function() end)
  test.clock.advance(1e9)
end)
test.clock.advance(1)
"""
        lines = "\n".join(self.tap(text))
        self.assertIn("test.clock.advance: call it in a test or a hook", lines)
        lines = "\n".join(self.tap(text.replace("\ntest.clock.advance(1)\n", "")))
        self.assertRegex(lines, "(?m)^ok 1 - x_test.lua: moves")
        self.assertRegex(lines, "(?m)^not ok 2 - x_test.lua: hangs")
        self.assertRegex(lines, "(?m)^not ok 3 - x_test.lua: loops")
        self.assertEqual(lines.count("timed out after 0.2 s"), 2, lines)
