"""ls.notify and ls.socket: events of descriptors, level-triggered, edge-triggered and one-shot; wrong calls."""
import re
import unittest

from harness import SANITIZER, SLEEP, WINDOWS
from harness.udp import Udp


class Notify(Udp):
    def test_a_pipe(self):
        pause = SLEEP + (" 0.1 & " if WINDOWS else " 0.1; ")
        text = self.run_once("""
          local pipe = io.popen("@PAUSE@echo one&& @PAUSE@echo two", "r")
          local n = assert(ls.notify(pipe, "in|hangup"))
          print(select(3, n:wait(0.01)))
          print(n:wait(5)["in"], pipe:read("l"), n:wait(5)["in"], pipe:read("l"))
          print(n:wait(5).hangup)
          print((select(2, pcall(function() n:rearm("inn") end)):gsub("^.*site.lua:%d+", "site.lua")))
          print(n:remove(), pcall(n.wait, n), select(2, pcall(n.remove, n)), (select(2, pcall(n.rearm, n, "in")):gsub('^.*:%d+: ', '')))
          pipe:close()""".replace("@PAUSE@", pause))
        self.assertEqual(text.splitlines(), [
            "ETIMEDOUT", "true\tone\ttrue\ttwo", "true", "site.lua: n:rearm: unknown event \"inn\"; did you mean 'in'?",
            "true\tfalse\tthis notification was removed\tthis notification was removed"])

    SOCKETS = """
          local function udp() local s = assert(ls.socket("udp")) assert(s:bind("127.0.0.1", 0))
            local c = assert(ls.udp_connect("127.0.0.1", tonumber(s.local_addr:match("%d+$")))) return s, c end
          local function events(n, time) local e, _, code = n:wait(time or 5)
            if not e then return code end
            local names = {} for name in pairs(e) do names[#names + 1] = name end table.sort(names)
            return table.concat(names, "+") end
    """

    def test_oneshot(self):
        for trigger in ("level", "edge"):
            text = self.run_once(self.SOCKETS + """
              local s, c = udp() local n = assert(ls.notify(s, "in", { trigger = "%s", oneshot = true }))
              c:send("1") print(events(n)) print(n:wait(5)) print(n:rearm(), events(n)) s:receive()
              print(n:rearm("in"), events(n, 0.05)) c:send("2") print(events(n))
              print(n:rearm("out"), events(n))""" % trigger)
            self.assertEqual(text, "in\nnil\tthis one-shot notification has fired; call n:rearm(events) first\tEINVAL\ntrue\tin\n"
                                   "true\tETIMEDOUT\nin\ntrue\tout\n")

    def test_tcp(self):
        text = self.run_once(self.SOCKETS + """
          local l = ls.socket("tcp") l:bind("127.0.0.1", 0) l:listen() local ln = assert(ls.notify(l, "in"))
          local c = ls.socket("tcp") local cn = assert(ls.notify(c, "out|in|hangup"))
          c:connect("127.0.0.1", tonumber(l.local_addr:match("%d+$"))) print(events(cn), c:error())
          print(events(ln)) local a = l:accept() local an = assert(ls.notify(a, "in|hangup"))
          print(events(an, 0.02)) c:send("hello") print(events(an), a:receive()) c:shutdown() print(events(an), #a:receive())
          print(cn:rearm("in"), events(cn, 0.02)) a:send("bye") print(events(cn), c:receive())
          local refused = ls.socket("tcp") l:close()
          refused:connect("127.0.0.1", 1) -- first: a socket that has not begun to connect is ready to write
          print(events(assert(ls.notify(refused, "out")))) print(select(3, refused:error()))""")
        lines = text.splitlines()
        self.assertEqual(lines[:6], ["out", "in", "ETIMEDOUT", "in\thello", "hangup+in\t0", "true\tETIMEDOUT"])
        self.assertEqual(lines[6], "in\tbye")
        self.assertIn("err", lines[7])
        self.assertEqual(lines[8], "EREFUSED")

    def test_removed_and_closed_under_a_wait(self):
        text = self.run_once(self.SOCKETS + """
          local s, c = udp() local n = assert(ls.notify(s, "in"))
          local job = ls.spawn(function() return n:wait() end) ls.sleep(0.02)
          print(select(2, pcall(n.wait, n)))
          print(n:remove(), job:wait(5))
          local again = assert(ls.notify(s, "in")) c:send("x") print(events(again))
          local job = ls.spawn(function() s:receive() return again:wait() end) ls.sleep(0.02)
          s:close() print(job:wait(5)) print(again:wait()) print(again:rearm("in")) print(again:remove())
          print(select(2, pcall(s.receive, s)))""")
        self.assertEqual(text.splitlines(), [
            "another task already waits for this notification", "true\tnil\toperation cancelled\tECANCELED", "in",
            *["nil\tthe descriptor was closed\tENOENT"] * 3, "true", "this socket was closed"])

    def test_bad_descriptors(self):
        text = self.run_once("""
          print(ls.notify(9999, "in")) print(ls.notify(-1, "in")) print(ls.notify(2^40 // 1 | 0, "in"))
          local file = io.open("/etc/passwd") print(ls.notify(file, "in")) file:close() print(ls.notify(file, "in"))
          local s = ls.socket("udp") local n = ls.notify(s, "in") print(ls.notify(s, "in")) print(ls.notify(s.fd, "in"))
          s:close() print(ls.notify(s, "in"))""")
        codes = [line.rsplit("\t", 1)[1] for line in text.splitlines()]
        self.assertEqual(codes, ["EINVAL", "EINVAL", "EINVAL", "ENOTSUP", "EINVAL", "EEXIST", "EEXIST", "EINVAL"])
        self.assertIn("nil\tinvalid descriptor\t", text)

    @unittest.skipIf(SANITIZER, "memory assertions do not hold under a sanitizer")
    def test_refused_ones_leave_nothing(self):
        server, port = self.udp("""
          ls.udp({ port = 0, host = "127.0.0.1" }, function(data)
            for i = 1, tonumber(data) do assert(not ls.notify(9999, "in")) end
            return data
          end)""")
        client = self.client(port)
        self.assertEqual(client.ask(b"1000"), b"1000")
        before = server.rss()
        times = 20000 if WINDOWS else 200000  # each takes several calls to Wine's server
        self.assertEqual(client.ask(b"%d" % times), b"%d" % times)
        self.assertLess(server.rss() - before, times * 80)

    def test_wrong_calls(self):
        wrong = {
            'ls.notify({}, "in")': "descriptor .* expected, got table",
            'ls.socket("udp"):bind("127.0.0.1", 65536)': "port must be a whole number",
            'ls.socket("udp"):receive(0)': "from 1 byte",
            'ls.udp_connect("127.0.0.1", 1):send({})': "string or buffer expected",
            'ls.udp_connect("127.0.0.1", 1):receive(-1)': "number of seconds must be 0 or more",
            'ls.udp(0, function() end)': "must be called while the site loads",
            'sock:sendto("x", "127.0.0.1", 0)': "port must be a whole number from 1 to 65535",
            'sock.sendto({}, "x", "127.0.0.1", 1)': "is a method of a UDP socket: call it with a colon",
            'sock:sendto(nil, "127.0.0.1", 1)': "string or buffer expected",
        }
        text = self.run_once("\n".join("print(select(2, pcall(function() return %s end)))" % call for call in wrong))
        for line, (call, message) in zip(text.splitlines(), wrong.items()):
            self.assertRegex(line, re.escape(message).replace(r"\.\*", ".*"), call)
        self.assertEqual(len(text.splitlines()), len(wrong))
