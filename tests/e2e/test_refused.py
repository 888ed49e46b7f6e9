"""The log of refused clients: who was refused, with which status, and why; not more than some lines a second."""
# sanitizers: none; reads the log
import configparser
import os
import re

from harness import E2E, ROOT, chunked, request, table

SITE = """
local ls = require "luaserve"
local app = ls.app()
app:post("/all", function(req) return req:body() end)
app:use("/caught", function(req, res, next) next() end)
app:post("/caught", function(req) return pcall(req.body, req) and "whole" or "caught" end)
local d = ls.dict("d")
d.a, d.b, d.c, d.e = "old", "old", "old", "old"
app:put("/d/:id", function(req) d[req.params.id] = req:body() end)
app:put("/ttl/:id", function(req) assert(d:set(req.params.id, req:body())) end)
app:put("/buffer/:id", function(req) d[req.params.id] = req:buffer() end)
app:use("/layered", function(_, _, next) next() end)
app:put("/layered/:id", function(req) d[req.params.id] = req:body() end)
app:put("/again", function(req) -- each call raises, also after the first
  local first, message = pcall(req.body, req)
  ls.log.info(("again: %s %s; %s %s"):format(first, message, pcall(req.json, req)))
end)
ls.on("log", function(req, res) if req.method == "PUT" then d:set("status " .. req.path, res:status()) end end)
app:get("/status/:kind/:id", function(req) return tostring(d["status " .. req.path:sub(8)]) end)
app:get("/d/:id", function(req) return d[req.params.id] or 404 end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app, max_head = 1024, max_target = 100, max_body = 10,
           head_timeout = 0.05, trusted = { "127.0.0.1" } }
"""
PATIENT = SITE.replace("head_timeout = 0.05", "head_timeout = 60")  # for a loaded machine

CASES = (  # name, bytes, status, what the log says
    ("malformed", b"GE T / HTTP/1.1\r\n\r\n", 400, "127.0.0.1 400: .+"),
    ("lengths", request("POST", "/", [("Content-Length", "1"), ("Content-Length", "1")]), 400, "127.0.0.1 400: .+"),
    ("target", request("GET", "/" + "a" * 200), 414, "127.0.0.1 414: .+"),
    ("head", request("GET", "/", [("X", "a" * 2000)]), 431, "127.0.0.1 431: .+"),
    ("expect", request("GET", "/", [("Expect", "wonders")]), 417, "127.0.0.1 417: .+"),
    ("coding", request("POST", "/", [("Transfer-Encoding", "gzip, chunked")]), 501, "127.0.0.1 501: .+"),
    ("slow", b"GET / HT", 408, "127.0.0.1 408: the request head took too long"),
    ("length", request("POST", "/all", body=b"a" * 11), 413,
     "127.0.0.1 413: request [0-9a-f]+ POST /all: the request body is larger than its limit"),
    ("chunks", request("POST", "/all", [("Transfer-Encoding", "chunked")]) + chunked([b"a" * 11]), 413,
     "127.0.0.1 413: request [0-9a-f]+ POST /all: .*larger than 10 bytes"),
    ("bad chunk", request("POST", "/all", [("Transfer-Encoding", "chunked")]) + b"x\r\n", 400,
     "127.0.0.1 400: request [0-9a-f]+ POST /all: .*malformed"),
    ("proxied", request("POST", "/all", [("X-Forwarded-For", "192.0.2.7")], body=b"a" * 11), 413,
     "192.0.2.7 413: request [0-9a-f]+ POST /all: .*larger than its limit"),
)
LINES_MAX = 20  # LS_REFUSED_LINES_MAX


def fail2ban_patterns():
    """The regular expressions of the filter in deploying.md, with an address for <HOST>."""
    with open(os.path.join(ROOT, "lua", "docs", "deploying.md"), encoding="utf-8") as page:
        block = re.search(r"```ini\n(\[Definition\]\n.*?)```", page.read(), re.S).group(1)
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.read_string(block)
    lines = parser.get("Definition", "failregex").split("\n")
    return [re.compile(line.replace("<HOST>", r"(?P<host>[\da-fA-F:.]+)")) for line in lines]


class Refused(E2E):
    SITE = SITE

    def ask_raw(self, data, status):
        with self.connect() as conn:
            conn.send(data)
            self.assertEqual(conn.response().status, status)

    def test_each_has_a_line_with_address_status_and_reason(self):
        def check(case):
            _, data, status, text = case
            self.ask_raw(data, status)
            self.server.wait_log(" info refused " + text)

        table(self, [(case[0], case) for case in CASES], check, workers=3)

    def test_a_body_that_the_site_catches_is_its_own(self):
        mark = self.server.mark()
        self.ask_raw(request("POST", "/caught", [("Transfer-Encoding", "chunked")]) + chunked([b"a" * 11]), 200)
        self.assertFalse(self.server.logged("refused", mark))

    def test_fail2ban_finds_the_address(self):
        mark = self.server.mark()
        self.ask_raw(b"GE T / HTTP/1.1\r\n\r\n", 400)
        self.server.wait_log(" info refused ", mark)
        line = next(one for one in self.server.lines[mark:] if " refused " in one)
        text = line.split(" ", 1)[1]  # fail2ban removes the time
        forms = (" " + text, "host luaserve[12]: " + text.replace("info ", ""), "refused 2001:db8::1 413: request 1 POST /")
        found = [[m.group("host") for m in map(lambda p: p.search(form), fail2ban_patterns()) if m] for form in forms]
        self.assertEqual(found, [["127.0.0.1"], ["127.0.0.1"], ["2001:db8::1"]])
        for other in (" info request 1 GET /refused 192.0.2.1 400: x", " info refused 3 more: the log has at most 20",
                      " info refused 127.0.0.1 503: out of buffers"):
            self.assertFalse(any(p.search(other) for p in fail2ban_patterns()), other)


class Left(E2E):
    """The client leaves in the middle of the body."""
    SITE = PATIENT

    def test_a_client_that_leaves_in_the_middle_of_the_body_changes_nothing(self):
        for target in ("/d/a", "/ttl/b", "/layered/c", "/buffer/e"):
            with self.subTest(target):
                mark = self.server.mark()
                with self.connect() as conn:
                    conn.send(request("PUT", target, [("Content-Length", "10")]) + b"12345")
                left = "PUT %s: [^ ]*site.lua:[0-9]+: the request body is not whole: the client has left" % target
                self.server.wait_log(" info request [0-9a-f]+ " + left, mark)
                kept = self.server.get("/d/" + target[-1])
                self.assertEqual((kept.status, kept.text), (200, "old"))
                self.eventually(lambda: self.server.get("/status" + target).text == "400", "the log hook sees no 200")
                self.assertEqual(len(self.server.logged("PUT " + target, mark)), 1)
                self.assertFalse(self.server.logged(" (warn|error) ", mark))

    def test_each_call_raises_when_the_client_has_left(self):
        with self.connect() as conn:
            conn.send(request("PUT", "/again", [("Content-Length", "10")]) + b"12345")
        self.server.wait_log("again: false .*the client has left.*; false .*the request body could not be read")

    def test_half_a_body_and_the_end_of_the_sending_direction(self):
        mark = self.server.mark()
        with self.connect() as conn:
            conn.send(request("PUT", "/d/a", [("Content-Length", "10")]) + b"12345")
            conn.half_close()
            self.assertEqual(conn.rest(), b"")
        self.server.wait_log("PUT /d/a: .*the client has left", mark)


class Flood(E2E):
    SITE = PATIENT

    def test_a_flood_is_counted(self):
        """All are counted, and the lines with the counted ones are as many as were refused."""
        def told():
            more = sum(int(m.group(1)) for m in map(re.compile("refused ([0-9]+) more:").search, self.server.lines) if m)
            return more, sum(bool(re.search(" refused 127.0.0.1 400: ", line)) for line in self.server.lines)

        count = 4 * LINES_MAX
        conns = [self.connect() for _ in range(count)]
        for conn in conns:
            conn.send(b"GE T / HTTP/1.1\r\n\r\n")
        for conn in conns:
            self.assertEqual(conn.response().status, 400)
        self.eventually(lambda: sum(told()) == count, "all are told")
        more, lines = told()
        self.assertGreater(more, 0)
        self.assertGreaterEqual(lines, LINES_MAX)
