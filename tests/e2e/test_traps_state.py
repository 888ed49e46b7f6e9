"""Traps of a first hour: what the top of a file does again in additional states (T2)."""
# wine: none; Lua code of a site, the same on every system
import json

from harness import LUASERVE, in_parallel
from harness.program import Program


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
