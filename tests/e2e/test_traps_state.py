"""Traps of a first hour: dicts that forget, what the top of a file does again in additional states, middleware that empties pages,
counts as a status (T1, T2, T5, T6, T10)."""
import json

from harness import LUASERVE, E2E, in_parallel
from harness.program import Program

SITE = """
local ls = require "luaserve"
local items = ls.dict("items")
local d = ls.dict("visits")
local app = ls.app()
app:use("/plain", function(req, res, next) next() end)
app:use("/after", function(req, res, next)
  next()
  res:header("X-After", "1")
  res:cookie("seen", "yes")
end)

-- T1
app:post("/items", function(req)
  local id = items:incr("last id")
  items[id] = req:json { object = true }
  return 201, { id = id }
end)
app:get("/items/:id", function(req) return items[tonumber(req.params.id)] or 404 end)
app:get("/fill", function()
  local t = ("x"):rep(1000)
  for i = 1, 30000 do local id = items:incr("last id") items[id] = { title = t } end
  return "entries: " .. #items .. "\\n"
end)
local orders = { few = ls.dict("few"), many = ls.dict("many"), cache = ls.dict("cache", { evict = true }) }
app:post("/orders/:dict", function(req)
  local d = orders[req.params.dict]
  local id = d:incr("last id")
  d[id] = req:body()
  return 201, "order " .. id
end)
app:get("/orders/:dict/:id", function(req) return orders[req.params.dict]:get(tonumber(req.params.id)) or 404 end)
app:post("/others/:dict", function(req)
  local d, refused = orders[req.params.dict], 0
  for i = 1, 2000 do if not d:set("other " .. i, req:body()) then refused = refused + 1 end end
  return "refused: " .. refused
end)
app:get("/last/:dict", function(req) return "last: " .. orders[req.params.dict]:incr("last id", 0) end)

-- T5
app:get("/plain/text", function() return "text" end)
app:get("/plain/json", function() return { json = true } end)
app:get("/plain/page", function(req, res) return res:html("<p>page</p>") end)

-- T6
app:get("/after/text", function() return "text" end)
app:get("/after/page", function(req, res) return res:html("<p>page</p>") end)
app:get("/after/goto", function(req, res) return res:redirect("/", 303) end)
app:get("/after/json", function(req, res) return res:json({ json = true }) end)
app:get("/after/file", function(req, res) return res:file("site.lua") end)
app:get("/after/fail", function() error("on purpose") end)

-- T10
app:get("/visits", function() return d:incr("n") end)
app:get("/number/:n", function(req) return tonumber(req.params.n) end)
ls.listen { host = "127.0.0.1", port = 0, handler = app }
"""


class Traps(E2E):
    SITE = SITE

    def test_t1_a_dict_forgets_nothing(self):
        first = self.ask("POST", "/items", body=b'{"title":"tea"}')
        self.assertEqual((first.status, json.loads(first.body)["id"]), (201, 1))
        filled = self.ask("GET", "/fill")
        self.assertEqual(filled.status, 500)
        self.server.wait_log(r'the dict "items" is full \(16 MiB\) and refuses new entries: .* evict = true')
        self.assertEqual(json.loads(self.ask("GET", "/items/1").body), {"title": "tea"})

    def test_t1_a_counter_that_rests_goes_on(self):
        """An order, 2000 other keys, an order. The entries of `few` fit into the dict, those of `many` do not. The same program
        with a cache shows that these keys suffice for the counter to begin anew."""
        def order(name, text):
            answer = self.ask("POST", "/orders/" + name, body=text)
            return answer.status, answer.text if answer.status == 201 else None

        for name, other, some_refused in (("few", b"x", False), ("many", b"x" * 10000, True), ("cache", b"x" * 10000, False)):
            self.assertEqual(order(name, b"tea"), (201, "order 1"))
            filled = self.ask("POST", "/others/" + name, body=other).text
            self.assertEqual(filled != "refused: 0", some_refused, filled)
        self.assertEqual(order("few", b"coffee"), (201, "order 2"))
        self.server.wait_log(r'warn .*the dict "many" is full \(16 MiB\) and refuses new entries: .* evict = true')
        self.assertEqual(order("many", b"c" * 10000), (500, None))
        self.server.wait_log(r'error request \w+ POST /orders/many: .*site.lua:\d+: no memory: the dict "many" is full')
        self.assertEqual(self.get("/last/many").text, "last: 2")
        self.assertEqual([self.get("/orders/%s/1" % name).text for name in ("few", "many")], ["tea", "tea"])
        self.assertEqual(order("cache", b"coffee"), (201, "order 1"))

    def test_t5_middleware_without_return_keeps_the_response(self):
        for path, text in (("text", "text"), ("json", '{"json":true}'), ("page", "<p>page</p>")):
            response = self.ask("GET", "/plain/" + path)
            self.assertEqual((response.status, response.text), (200, text))
        self.assertEqual(self.ask("GET", "/plain/none").status, 404)

    def test_t6_middleware_changes_each_kind_of_response(self):
        for path, status in (("text", 200), ("page", 200), ("goto", 303), ("json", 200), ("file", 200), ("fail", 500), ("none", 404)):
            response = self.ask("GET", "/after/" + path)
            self.assertEqual((response.status, response.header("X-After")), (status, "1"), path)
            self.assertIn("seen=yes", response.header("Set-Cookie"), path)

    def test_t10_a_count_is_no_status(self):
        """Visits 1 to 199 failed, and visit 204 had no content: now each count fails unless it is a registered status, and
        says what to write."""
        self.assertEqual(self.ask("GET", "/visits").status, 500)
        self.server.wait_log("the handler returned the number 1, which is no registered status; .*return tostring")
        for number, status in (("199", 500), ("250", 500), ("299", 500), ("600", 500), ("404", 404), ("204", 204)):
            self.assertEqual(self.ask("GET", "/number/" + number).status, status, number)


class FurtherStates(Program):
    """T2: eight clients whose requests compute at the same time need more states than the two that there are at the start."""
    LISTEN = """
app:get("/work", function() local t = os.clock() while os.clock() - t < 0.05 do end return "done\\n" end)
app:get("/loads", function() return "loads: " .. ls.dict("loads").n end)
ls.listen("127.0.0.1:0", app)
ls.dict("loads"):incr("n") -- the last line: this state has run the file
"""

    def of(self, text, **kw):
        return super().of(text, self.LISTEN, flags=("--threads", "2"), **kw)

    def work(self, server, states=2):
        """Until an additional state has run the file. `states`: how many there are at the start."""
        def made():
            self.assertEqual(in_parallel([lambda: server.get("/work").text] * 8), ["done\n"] * 8)
            return server.get("/loads").text != "loads: %d" % states
        self.assertEqual(server.get("/loads").text, "loads: %d" % states)
        self.eventually(made, "an additional state is made")

    def test_t2_a_dict_that_is_set_at_the_top(self):
        """The program as it was written begins again: luaserve dev warns of its second line (test_traps_dev). With each line that
        the warning names it goes on."""
        for first, number in (('d:set("counter", 0)', 1), ('d:add("counter", 0)', 6),
                              ('ls.init(function() d:set("counter", 0) end)', 6)):
            server = self.of("""
local d = ls.dict("session")
%s                                  -- "initialise"
app:get("/incr", function() return "n=" .. d:incr("counter") .. "\\n" end)""" % first)
            self.assertEqual([server.get("/incr").text for _ in range(5)], ["n=%d\n" % n for n in range(1, 6)])
            self.work(server)
            self.assertEqual(server.get("/incr").text, "n=%d\n" % number, first)

    def test_t2_a_timer_at_the_top(self):
        """It runs at most once in each interval since the start. A timer that asks for each state has by then run ten times more
        than there were intervals."""
        text = """
local sent, each = ls.dict("sent"), ls.dict("each")
each:add("begun", ls.now())
ls.every(0.2, function() sent:incr("mails") end)
ls.every({ seconds = 0.2, each_state = true }, function() each:incr("calls") end)
app:get("/calls", function()
  local mails, calls = sent.mails or 0, each.calls or 0
  return { mails = mails, calls = calls, intervals = (ls.now() - each.begun) / 0.2 }
end)"""
        seen = {}

        def suffices():
            seen.update(json.loads(server.get("/calls").text))
            return seen["mails"] >= 5 and seen["calls"] >= seen["intervals"] + 10

        for program, states in ((LUASERVE,), 2), ((LUASERVE, "dev"), 3):
            server = self.of(text, program=program)
            self.work(server, states)
            self.eventually(suffices, "the timers run")
            self.assertLessEqual(seen["mails"], seen["intervals"])
