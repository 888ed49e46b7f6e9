"""ls.fetch: requests as raw servers see them, every kind of response and of failure, kept connections, redirects, TLS,
compression, streaming, and the end of a task that waits for an answer."""
import base64
import concurrent.futures
import contextlib
import gzip
import json
import os
import shutil
import socket
import subprocess
import tempfile
import unittest
import zlib

from harness import (E2E, HAS_UNIX_SOCKETS, LUASERVE, WAIT, beside, free_port, not_on_windows, run_program, table,
                     write_text)
from harness.environment import OTHER_SYSTEM, SANITIZER, WINE
from harness.dns import looks_up_names
from harness.peer import Peer, PeerConn, response
from harness.tls import certificate, openssl

# Each line of a connection to the second listener is Lua code; the server sends back its results.
SITE = r"""
local ls = require "luaserve"
ls.config { threads = 2, max_cpu = 600 }
local app = ls.app()
app:get("/hello", function() return "hello, world\n" end)
app:any("/echo", function(req) return { method = req.method, target = req.target, type = req:header("content-type"),
  length = req:header("content-length"), coding = req:header("transfer-encoding"), body = req:body() } end)
app:get("/headers", function(req, res)
  res:header("X-One", { "a", "b" }):header("Set-Cookie", { "a=1; Path=/", "b=2" })
  return "x"
end)
app:get("/bytes/:n", function(req)
  local n, piece = math.tointeger(req.params.n), ("x"):rep(1000) -- rep copies piece by piece
  return piece:rep(n // 1000) .. piece:sub(1, n % 1000)
end)
app:get("/chunks/:n", function(req, res) for n = 1, req.params.n do res:write("line ", n, "\n") end end)
app:get("/status/:n", function(req) return tonumber(req.params.n), "body" end)
app:get("/to/:status", function(req, res) return res:redirect(req.query.at, tonumber(req.params.status)) end)
app:post("/to/:status", function(req, res) return res:redirect(req.query.at, tonumber(req.params.status)) end)
app:post("/parts", function(req, res)
  for part in req:parts() do res:write(part.name, " ", tostring(part.filename), " ", part:body(), "\n") end
end)
app:get("/loop", function(_, res) return res:redirect("/loop") end)
app:get("/count/:n", function(req, res)
  local n = tonumber(req.params.n)
  return n == 0 and "the end" or res:redirect("/count/" .. n - 1)
end)
app:post("/pay", function(req)
  local answer = assert(ls.fetch(req.query.url, { body = req:body() }))
  ls.log.info("paid " .. answer:body())
end)
app:get("/wait", function(req) -- fetches what the client names, and says what came
  local answer, message = ls.fetch(req.query.url, { timeout = false })
  return answer and answer:body() or message
end)
app:get("/short", { timeout = 0.3 }, function(req) return (select(2, ls.fetch(req.query.url, { timeout = false }))) end)
local function show(...)
  local parts = table.pack(...)
  for i = 1, parts.n do parts[i] = tostring(parts[i]) end
  return (table.concat(parts, "|", 1, parts.n):gsub("\n", "~"))
end
ls.listen({ port = 0, host = "127.0.0.1", handler = app, max_body = "64m" })
ls.tcp({ port = 0, host = "127.0.0.1" }, function(sock)
  for line in sock:lines() do
    local chunk, err = load("local ls = ... " .. line)
    sock:send(chunk and show(pcall(chunk, ls)) or err, "\n")
  end
end)
"""


class FetchCase(E2E):
    LISTENERS = 2

    def setUp(self):
        super().setUp()
        self.peer = Peer()
        self.addCleanup(self.peer.close)
        self.control = self.connect(1)

    def begin(self, text, peer=None):
        """Start Lua code: `url` is that of the raw server, `site` that of the site, body(...) the body of a fetch."""
        prefix = ('local url, site = "http://127.0.0.1:%d", "http://127.0.0.1:%d" '
                  'local function body(...) local answer, message, code = ls.fetch(...) '
                  'if not answer then return message, code end return answer.status, answer:body() end ')
        prefix = prefix % ((peer or self.peer).port, self.server.port())
        self.control.send((prefix + text.replace("\n", " ")).encode() + b"\n")

    def result(self):
        return self.control.line().decode()

    def run_lua(self, text):
        self.begin(text)
        return self.result()

    def fails(self, code, pattern, result=None):
        if result is None:
            result = self.result()
        self.assertRegex(result, r"^true\|cannot fetch http://[^/]+/[^?|]*: [^|]*%s[^|]*\|%s$" % (pattern, code))


class Requests(FetchCase):
    SITE = SITE

    def test_a_request_and_its_answer(self):
        self.begin('local a = ls.fetch(url .. "/a?b=c#d") return a.status, a.ok, a.url:match("/a.*"), a:body(), '
                   'a.headers["x-b"], a.headers["X-B"], a.headers.none, a:body()')
        with self.peer.accept() as conn:
            conn.request()
            self.assertEqual(conn.line, "GET /a?b=c HTTP/1.1")
            self.assertEqual(conn.fields["host"], "127.0.0.1:%d" % self.peer.port)
            self.assertEqual(conn.fields["accept"], "*/*")
            self.assertRegex(conn.fields["user-agent"], r"^luaserve/\d")
            self.assertNotIn("connection", conn.fields)
            self.assertNotIn("content-length", conn.fields)
            conn.send(response(b"hello", ["X-B:  1 ", "x-b: 2"], "203 Fine"))
            self.assertEqual(self.result(), "true|203|true|/a?b=c|hello|1, 2|1, 2|nil|hello")

    def test_options_of_a_request(self):
        self.begin('return body(url .. "/x?a=1", { method = "PATCH", headers = { ["X-List"] = { "a", 2 }, Accept = "b", '
                   'Host = "h", ["User-Agent"] = "me" }, query = { q = "x y", z = { 1, 2 } }, body = "data" })')
        with self.peer.accept() as conn:
            conn.request()
            self.assertEqual(conn.line, "PATCH /x?a=1&q=x%20y&z=1&z=2 HTTP/1.1")
            self.assertEqual(sorted(line for line in conn.lines if not line.startswith("Accept-Encoding")),
                             ["Accept: b", "Content-Length: 4", "Host: h", "User-Agent: me", "X-List: 2", "X-List: a"])
            self.assertEqual(conn.take(4), b"data")
            conn.send(response(b"ok"))
            self.assertEqual(self.result(), "true|200|ok")

    def test_bodies(self):
        def echoed(options):
            text = self.run_lua('local a = assert(ls.fetch(site .. "/echo", %s)) return a:body()' % options)
            return json.loads(text.partition("|")[2])
        self.assertEqual(echoed('{ body = "abc" }'),
                         {"method": "POST", "target": "/echo", "length": "3", "body": "abc"})
        self.assertEqual(echoed('{ json = { a = 1 } }'), {"method": "POST", "target": "/echo", "length": "7",
                                                         "type": "application/json", "body": '{"a":1}'})
        self.assertEqual(echoed('{ method = "PUT", form = { a = "b c", d = 1 } }'),
                         {"method": "PUT", "target": "/echo", "length": "11",
                          "type": "application/x-www-form-urlencoded", "body": "a=b%20c&d=1"})
        self.assertEqual(echoed('{ json = 1, headers = { ["Content-Type"] = "a/b" } }')["type"], "a/b")
        for name in "post", "Put", "patch", "delete":  # as browsers write them; a method of one's own keeps its letters
            self.assertEqual(echoed('{ method = "%s", body = "x" }' % name)["method"], name.upper())
        self.assertEqual(echoed('{ method = "DELETE" }'), {"method": "DELETE", "target": "/echo", "body": ""})
        self.assertEqual(echoed('{ method = "POST" }')["length"], "0")
        self.assertEqual(echoed('{ body = "" }')["length"], "0")
        self.assertEqual(echoed('{ body = ls.buffer("buf", "fer") }')["body"], "buffer")
        stream = echoed('{ body = (function() local n = 0 return function() n = n + 1 ls.sleep(0.001) '
                        'if n <= 3 then return n == 2 and "" or "part" .. n end end end)() }')
        self.assertEqual((stream["coding"], stream["body"], "length" in stream), ("chunked", "part1part3", False))
        self.assertEqual(echoed('{ body = function() return ("a,b"):gmatch("[^,]+") end }')["body"], "ab")

    def test_an_answer_is_no_json(self):
        """The fields of its request, such as Authorization, would be in it."""
        for value, path in ("a", "value"), ("{ list = { a } }", r"value\.list\[1\]"):
            for options in "", ", stream = true":
                self.assertRegex(self.run_lua(
                    'local a = assert(ls.fetch(site .. "/echo", { headers = { Authorization = "secret" }%s })) '
                    'local text = select(2, pcall(ls.json.encode, %s)) a:close() return text' % (options, value)),
                    r"true\|.*ls\.json\.encode: %s is an answer of ls\.fetch: write answer:json\(\) or answer:body\(\)" % path)

    def test_a_large_body_both_ways(self):
        # With 20 MB a program that sends to itself sometimes stalls under Wine 8; a sanitizer makes it slow.
        tens = 200000 if WINE or SANITIZER else 2000000
        self.assertEqual(self.run_lua(
            'local text = ("0123456789"):rep(%d) local a = assert(ls.fetch(site .. "/echo", { body = text, '
            'max_body = "64m" })) return a:json().body == text' % tens), "true|true")
        self.assertEqual(self.run_lua(
            'local n, piece = 0, ("x"):rep(%d) local a = assert(ls.fetch(site .. "/echo", { max_body = "64m", '
            'body = function() n = n + 1 if n <= 200 then return piece end end })) return #a:json().body' % (tens / 20)),
            "true|%d" % (10 * tens))

    def test_an_error_in_the_function_of_a_body_closes_the_connection(self):
        self.begin('return pcall(ls.fetch, url, { body = function() error("no data", 0) end })')
        with self.peer.accept() as conn:
            self.assertEqual(self.result(), "true|false|no data")
            conn.ends()
        self.begin('return pcall(ls.fetch, url, { body = function() return {} end })')
        with self.peer.accept() as conn:
            self.assertIn("must return strings and buffers", self.result())
            conn.ends()

    def test_usage(self):
        table(self, [(case[0], case) for case in [
            ('ls.fetch()', "the first argument must be a URL"), ('ls.fetch(url, 5)', "options must be a table"),
            ('ls.fetch(url, { json = 1, body = "x" })', "give one of body, json, form and parts"),
            ('ls.fetch(url, { json = print })', "ls.fetch: json: "),
            ('ls.fetch(url, { body = true })', "body must be a string, a buffer or a function; got true"),
            ('ls.fetch(url, { query = { a = print } })', "query: \"a\" must be"),
            ('ls.fetch(url, { method = "A B" })', "invalid method"), ('ls.fetch(url, { method = "CONNECT" })', "makes a tunnel"),
            ('ls.fetch(url, { headers = { ["a b"] = "x" } })', "invalid header name \"a b\""),
            ('ls.fetch(url, { headers = { A = "x\\r\\ny" } })', "control character"),
            ('ls.fetch(url, { headers = { A = true } })', "must be a string, a number or a list"),
            ('ls.fetch(url, { headers = { ["content-length"] = 3 } })', "is written by ls.fetch"),
            ('ls.fetch(url, { unix = "/a", public = true })', "not public"), ('ls.fetch(url, {}, 5)', "too many arguments"),
        ]], lambda case: self.assertIn(case[1], self.raised(case[0])), workers=1)
        self.assertIn("cannot wait", self.run_lua('return string.gsub("a", "a", function() return (pcall(ls.fetch, url)) and '
                                                  '"" or select(2, pcall(ls.fetch, url)) end)'))

    def raised(self, call):
        result = self.run_lua('return select(2, pcall(function() %s end))' % call)
        self.assertRegex(result, r"^true\|.*ls\.fetch|^true\|.*too many")
        return result


class Responses(FetchCase):
    SITE = SITE

    def one(self, data, lua='return body(url .. "/p?secret=1")', close=True):
        """Answers one request with these bytes -> the result."""
        self.begin(lua)
        with self.peer.accept() as conn:
            conn.request()
            conn.try_send(data)
            if close:
                conn.sock.close()
            return self.result()

    def test_every_framing(self):
        for data, want in [
                (response(b"abc"), "200|abc"),
                (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=\"y\"\r\nde\r\n0\r\nT: 1\r\n\r\n",
                 "200|abcde"),
                (b"HTTP/1.0 200 OK\r\n\r\nto the end", "200|to the end"), (response(b"", status="999 Odd"), "999|"),
                (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + response(b"x"),
                 "200|x")]:
            self.assertEqual(self.one(data), "true|" + want)

    def test_a_response_to_head_has_no_body(self):
        self.begin('return body(url, { method = "HEAD" })')
        with self.peer.accept() as conn:
            self.assertTrue(conn.request().line.startswith("HEAD / "))
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n")  # above max_body
            self.assertEqual(self.result(), "true|200|")
            self.begin('return body(url)')  # on the same connection
            conn.request()
            conn.send(response(b"x"))
            self.assertEqual(self.result(), "true|200|x")

    def test_invalid_responses(self):
        ok = b"HTTP/1.1 200 OK\r\n"
        for data, why in [
                (b"SSH-2.0-OpenSSH\r\n\r\n", "not an HTTP/1.x response"),
                (ok + b"Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", "no CR LF after a chunk"),
                (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "no upgrade was requested")]:
            self.fails("EPROTO", "invalid response: .*" + why, self.one(data))

    def test_responses_that_are_cut_off(self):
        for data in (b"HTTP/1.1 200 OK\r\nContent-Le", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
                     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
                     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
                     b"HTTP/1.1 100 Continue\r\n\r\n", b"H"):
            self.fails("ETRUNCATED", "cut off before its end", self.one(data))
        self.fails("ECLOSED", "closed the connection without a response", self.one(b""))

    def test_a_reset_in_the_middle(self):
        for data in (b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nabc"):
            self.begin("return body(url)")
            conn = self.peer.accept()
            conn.request()
            conn.send(data)
            conn.reset()
            result = self.result()
            self.assertRegex(result, r"\|(ERESET|ECLOSED|ETRUNCATED)$")
            self.assertTrue(result.startswith("true|cannot fetch http://"))

    def test_more_than_was_announced_is_not_the_next_response(self):
        self.begin("return body(url)")
        with self.peer.accept() as first:
            first.request()
            first.send(response(b"abc") + response(b"forged"))
            self.assertEqual(self.result(), "true|200|abc")
            first.ends()  # the connection is not used again
            self.begin("return body(url)")
            with self.peer.accept() as second:
                second.request()
                second.send(response(b"right"))
                self.assertEqual(self.result(), "true|200|right")

    def test_max_body(self):
        for size, options, ok in [(1000, '{ max_body = 1000 }', True), (1001, '{ max_body = 1000 }', False),
                                  ((8 << 20) + 1, "nil", False), ((8 << 20) + 1, "{ max_body = false }", True)]:
            result = self.run_lua('local a, m, c = ls.fetch(site .. "/bytes/%d", %s) return a and #a:body() or m, c'
                                  % (size, options))
            if ok:
                self.assertEqual(result, "true|%d|nil" % size)
            else:
                self.fails("EMSGSIZE", "longer than max_body, %d bytes" % (size - 1), result)
        chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n5\r\nfghij\r\n0\r\n\r\n"
        self.assertEqual(self.one(chunked, "return body(url, { max_body = 10 })"), "true|200|abcdefghij")
        for data in (chunked, b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 10):
            self.fails("EMSGSIZE", "longer than max_body", self.one(data, "return body(url, { max_body = 9 })"))

    def test_an_announced_body_that_is_too_long_is_not_awaited(self):
        self.fails("EMSGSIZE", "max_body", self.one(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", close=False))

    def test_headers(self):
        self.assertEqual(self.run_lua('local h = ls.fetch(site .. "/headers").headers return h["X-one"], h["set-cookie"]'),
                         "true|a, b|a=1; Path=/~b=2")

    def test_json(self):
        self.assertEqual(self.one(response(b'{"a":[1,2]}'), 'return ls.fetch(url):json().a[2]'), "true|2")
        self.fails("EPROTO", r"the body \(status 500\) is not JSON", self.one(
            response(b"<html>", status="500 No"), 'return select(2, ls.fetch(url):json())'))


class Compressed(FetchCase):
    SITE = SITE

    def setUp(self):
        super().setUp()
        built = self.run_lua('local t = {} for n, coding in ipairs(require("luaserve.core").codings()) do t[n] = coding.name end '
                             'return table.concat(t, ", ")')
        self.codings = built.partition("|")[2]
        if "gzip" not in self.codings:
            self.skipTest("built without zlib")

    def one(self, data, fields=("Content-Encoding: gzip",), lua="return body(url)"):
        self.begin(lua)
        with self.peer.accept() as conn:
            self.accepts = conn.request().fields.get("accept-encoding")
            conn.try_send(response(data, fields))
            return self.result()

    def test_gzip(self):
        text = os.urandom(300000).hex()
        self.begin('local a = ls.fetch(url) return #a:body(), a:body():sub(-9), a.headers["content-encoding"], '
                   'a.headers["content-length"], a.headers["x-a"]')
        with self.peer.accept() as conn:
            self.assertEqual(conn.request().fields["accept-encoding"], self.codings)
            conn.send(response(gzip.compress(text.encode()), ["Content-Encoding: gzip", "X-A: 1"]))
            self.assertEqual(self.result(), "true|%d|%s|nil|nil|1" % (len(text), text[-9:]))
            self.begin("return body(url)")
            conn.request()
            data = gzip.compress(b"hello, ") + gzip.compress(b"world")
            head = b"HTTP/1.1 200 OK\r\nContent-Encoding: x-gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
            conn.send(head + b"".join(b"1\r\n%c\r\n" % byte for byte in data) + b"0\r\n\r\n")
            self.assertEqual(self.result(), "true|200|hello, world")
            self.begin('return body(url, { method = "HEAD" })')
            conn.request()
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n")
            self.assertEqual(self.result(), "true|200|")

    def test_other_codings_stay_as_they_are(self):
        self.assertEqual(self.one(b"data", ["Content-Encoding: compress"]), "true|200|data")
        self.assertEqual(self.one(b"data", ["Content-Encoding: gzip, br"]), "true|200|data")
        self.assertEqual(self.one(b"data", ["Content-Encoding: gzip", "Content-Encoding: br"]), "true|200|data")
        self.assertEqual(self.one(b"data", lua='return body(url, { headers = { ["Accept-Encoding"] = "gzip" } })'),
                         "true|200|data")  # the site decodes
        self.assertEqual(self.accepts, "gzip")
        self.assertEqual(self.one(b"part", lua='return body(url, { headers = { Range = "bytes=2-5" } })'), "true|200|part")
        self.assertIsNone(self.accepts)
        self.assertEqual(self.one(b""), "true|200|")

    def test_br_and_zstd(self):
        for name, data in (("br", "0b028068656c6c6f03"), ("zstd", "28b52ffd00682900" + "0068656c6c6f")):
            if name in self.codings:
                data, fields = bytes.fromhex(data), ["Content-Encoding: " + name]
                self.assertEqual(self.one(data, fields), "true|200|hello")
                self.fails("EPROTO", name + " is damaged", self.one(b"\xff" * 20, fields))
                self.fails("ETRUNCATED", "cut off", self.one(data[:-1], fields))
                self.fails("EMSGSIZE", "max_body", self.one(data, fields, "return body(url, { max_body = 4 })"))

    def test_max_body_counts_what_comes_out(self):
        data = gzip.compress(os.urandom(500).hex().encode())
        self.assertEqual(self.one(data, lua='local a = ls.fetch(url, { max_body = 1000 }) return #a:body()'), "true|1000")
        self.fails("EMSGSIZE", "max_body", self.one(data, lua="return body(url, { max_body = 999 })"))

    def test_a_bomb(self):
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
        self.assertLess(len(bomb), 80000)
        self.fails("EMSGSIZE", "the compressed body grows too much", self.one(bomb))
        self.fails("EMSGSIZE", "the compressed body grows too much", self.one(bomb, lua="return body(url, { max_body = false })"))
        self.assertEqual(self.one(bomb, lua='local a, n = ls.fetch(url, { stream = true }), 0 '
                                  'local ok, why = pcall(function() for piece in a:chunks() do n = n + #piece end end) '
                                  'return n < 9 << 20, ok, (why:match("the compressed body grows too much"))'),
                         "true|true|false|the compressed body grows too much")


class Connections(FetchCase):
    SITE = SITE

    def test_a_connection_is_kept(self):
        self.begin('local t = {} for n = 1, 3 do local a = ls.fetch(url) t[n] = a:body() .. tostring(a.timing.reused) end '
                   'return table.concat(t, ",")')
        with self.peer.accept() as conn:
            for body in (b"a", b"b", b"c"):
                conn.request().send(response(body))
            self.assertEqual(self.result(), "true|afalse,btrue,ctrue")

    def test_states_share_connections(self):
        """The fetches of many tasks, in any state, use no more connections than were open at a time."""
        self.begin('for n = 1, 20 do assert(ls.fetch(site .. "/wait?url=" .. ls.url.encode(url .. "/x")):body() == "x") end '
                   'return "done"')
        with self.peer.accept() as conn:
            for _ in range(20):
                conn.request().send(response(b"x"))
            self.assertEqual(self.result(), "true|done")

    def test_a_connection_that_the_server_ends_is_not_kept(self):
        for data in (response(b"x", ["Connection: close"]), b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx"):
            for _ in range(2):
                self.begin("return body(url)")
                with self.peer.accept() as conn:
                    conn.request().send(data)
                    self.assertEqual(self.result(), "true|200|x")
                    conn.ends()

    def test_a_connection_that_was_closed_while_idle_is_not_used(self):
        self.begin("return body(url)")
        with self.peer.accept() as conn:
            conn.request().send(response(b"a"))
            self.assertEqual(self.result(), "true|200|a")
        self.begin('return body(url, { method = "POST" })')  # not idempotent: nothing is sent on the old one
        with self.peer.accept() as conn:
            conn.request().send(response(b"b"))
            self.assertEqual(self.result(), "true|200|b")

    def stale(self, lua, how):
        """Ends a kept connection when a request comes on it; the next one is answered."""
        self.begin("return body(url)")
        conn = self.peer.accept()
        conn.request().send(response(b"a"))
        self.assertEqual(self.result(), "true|200|a")
        self.begin(lua)
        conn.request()
        how(conn)

    def test_a_stale_connection_costs_one_more_attempt(self):
        for lua, line in [("return body(url)", "GET"), ('return body(url, { method = "PUT", body = "abc" })', "PUT"),
                          ('return body(url, { method = "DELETE" })', "DELETE")]:
            for how in (PeerConn.reset, lambda conn: conn.sock.close()):
                self.stale(lua, how)
                with self.peer.accept() as second:
                    self.assertTrue(second.request().line.startswith(line))
                    second.send(response(b"again", ["Connection: close"]))
                    self.assertEqual(self.result(), "true|200|again")

    def test_a_stale_connection_is_tried_again_once(self):
        self.stale("return body(url)", PeerConn.reset)
        second = self.peer.accept()
        second.request()
        second.reset()
        self.assertRegex(self.result(), r"\|(ERESET|ECLOSED)$")

    def test_what_must_not_be_sent_twice_fails(self):
        for options in ('{ method = "POST" }', '{ body = "x" }', '{ method = "PATCH" }',
                        '{ method = "PUT", body = function() end }'):
            self.stale("return body(url, %s)" % options, PeerConn.reset)
            self.assertRegex(self.result(), r"^true\|cannot fetch .*\|(ERESET|ECLOSED|EPIPE)$")

    def test_a_part_of_a_response_is_not_tried_again(self):
        self.stale("return body(url)", lambda conn: conn.send(b"HTTP/1.1 2").sock.close())
        self.fails("ETRUNCATED", "cut off")

    def test_retry(self):
        self.begin("return body(url, { retry = 2 })")
        for _ in range(2):
            conn = self.peer.accept()
            conn.request()
            conn.reset()
        with self.peer.accept() as conn:
            conn.request().send(response(b"third"))
            self.assertEqual(self.result(), "true|200|third")
        port = free_port()
        self.assertRegex(self.run_lua('local b = ls.now() local _, m, c = ls.fetch("http://127.0.0.1:%d/", { retry = 2, '
                                      'method = "POST" }) return c, ls.now() - b > 0.29' % port), r"^true\|EREFUSED\|true$")

    def test_refused_and_unknown(self):
        port = free_port()
        self.fails("EREFUSED", "connection refused",
                   self.run_lua('return select(2, ls.fetch("http://127.0.0.1:%d/p?token=1"))' % port))

    @looks_up_names
    def test_a_name_that_does_not_exist(self):
        self.assertRegex(self.run_lua('return select(2, ls.fetch("http://no-such-name.invalid/"))'),
                         r'^true\|cannot fetch http://no-such-name\.invalid/: cannot look up .*\|E')

    def test_public(self):
        for url in ("http://127.0.0.1:%d/" % self.peer.port, "http://[::1]:80/", "http://10.0.0.1/", "http://169.254.169.254/",
                    "http://[::ffff:127.0.0.1]/", "http://0.0.0.0/", "http://192.168.1.1/"):
            self.fails("EACCES", "the address is not public",
                       self.run_lua('return select(2, ls.fetch("%s", { public = true }))' % url))
        self.begin("return body(url)")  # a kept connection of others does not help
        with self.peer.accept() as conn:
            conn.request().send(response(b"a"))
            self.assertEqual(self.result(), "true|200|a")
            self.fails("EACCES", "not public", self.run_lua("return body(url, { public = true })"))

    @unittest.skipUnless(HAS_UNIX_SOCKETS, OTHER_SYSTEM + "Unix sockets")
    def test_a_unix_socket(self):
        with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as folder:
            path = os.path.join(folder, "s")
            self.serve('local ls = require "luaserve" local app = ls.app() app:get("/a", function(req) return req.authority end) '
                       'app:get("/r", function(_, res) return res:redirect("http://other/") end) '
                       'ls.listen("unix:%s", app)' % path)
            self.assertEqual(self.run_lua('return body("http://service/a", { unix = "%s" })' % path), "true|200|service")
            self.assertEqual(self.run_lua('local a = ls.fetch("http://service/a", { unix = "%s" }) return a.timing.reused'
                                          % path), "true|true")
            self.fails("EACCES", "not behind the Unix socket",
                       self.run_lua('return body("http://service/r", { unix = "%s" })' % path))
        self.fails("ENOENT", "", self.run_lua('return body("http://service/", { unix = "/nonexistent/s" })'))


class Limits(FetchCase):
    SITE = SITE

    def test_a_server_that_does_not_answer(self):
        self.begin("return body(url, { timeout = 0.1 })")
        with self.peer.accept() as conn:
            self.fails("ETIMEDOUT", "timeout after 0.1 s")
            conn.ends()

    def test_the_timeout_is_that_of_the_whole(self):
        self.begin("return body(url, { timeout = 0.3 })")
        with self.peer.accept() as conn:
            conn.request()
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            with contextlib.suppress(OSError):
                while True:  # each byte comes in time
                    conn.send(b"x")
                    conn.sock.settimeout(0.01)
                    with contextlib.suppress(TimeoutError):
                        if conn.sock.recv(1) == b"":
                            break
                    conn.sock.settimeout(WAIT)
            self.fails("ETIMEDOUT", "timeout after 0.3 s")

    def test_a_server_that_does_not_read(self):
        self.begin('return body(url, { timeout = 0.3, body = ("x"):rep(1000):rep(50000) })')
        with self.peer.accept():
            self.fails("ETIMEDOUT", "timeout after 0.3 s")
        self.begin('local x = ("x"):rep(100000) return body(url, { timeout = 0.3, body = function() return x end })')
        with self.peer.accept():
            self.fails("ETIMEDOUT", "timeout after 0.3 s")

    def test_an_answer_before_the_end_of_the_request(self):
        self.begin('return body(url, { body = ("x"):rep(1000):rep(50000) })')
        with self.peer.accept() as conn:
            conn.request()
            conn.send(response(b"too large", ["Connection: close"], "413 No"))
            self.assertEqual(self.result(), "true|413|too large")

    def test_a_task_whose_time_is_over_gives_up_its_fetch(self):
        with self.connect() as client:
            client.send(b"GET /short?url=http://127.0.0.1:%d/ HTTP/1.1\r\nHost: h\r\n\r\n" % self.peer.port)
            with self.peer.accept() as conn:
                conn.request()
                self.assertEqual(client.response().status, 503)
                conn.ends()

    def test_a_fetch_with_a_body_goes_on_when_the_client_has_left(self):
        for how in "close", "reset":
            client = self.connect()
            client.send(b"POST /pay?url=http://127.0.0.1:%d/ HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n10" % self.peer.port)
            with self.peer.accept() as conn:
                conn.request()
                getattr(client, how)()
                mark = self.server.mark()
                self.get("/")  # the server runs meanwhile
                conn.send(response(b"10 euro"))
                self.server.wait_log("paid 10 euro$", mark)


class Redirects(FetchCase):
    SITE = SITE

    def test_they_are_followed(self):
        self.assertEqual(self.run_lua('local a = ls.fetch(site .. "/count/5") return a.url:match("/count.*"), a:body()'),
                         "true|/count/0|the end")
        self.fails("ELIMIT", "more than 5 redirects", self.run_lua('return body(site .. "/count/6")'))
        self.fails("ELIMIT", "more than 2 redirects", self.run_lua('return body(site .. "/loop", { redirects = 2 })'))
        self.assertEqual(self.run_lua('local a = ls.fetch(site .. "/loop", { redirects = 0 }) return a.status, '
                                      'a.headers.location'), "true|302|/loop")

    def test_what_other_servers_send_is_read(self):
        """RFC 9110 section 2.5, RFC 9112 section 5.2, and the URL standard of WHATWG."""
        self.begin("local a = ls.fetch(url) return a.status, a.headers['x-a'], a:json()[1], a.url:match('/[^/]*$')")
        with self.peer.accept() as conn:
            conn.request().send(b"HTTP/1.2 302\r\nLocation: \r\n /wiki/caf\xc3\xa9 1\r\nContent-Length:0\r\n\r\n")
            self.assertEqual(conn.request().line, "GET /wiki/caf%C3%A9%201 HTTP/1.1")
            conn.send(b"HTTP/1.1 200 \r\nX-A: a\r\n\tb\r\n  c\r\nTransfer-Encoding: chunked\r\n\r\n7 ;a=\"b\" ; c\r\n\xef\xbb\xbf[42]\r\n0\r\n\r\n")
            self.assertEqual(self.result(), "true|200|a  \tb    c|42|/caf%C3%A9%201")

    def test_a_long_body_of_a_redirect_is_not_read(self):
        self.begin("return body(url)")
        with self.peer.accept() as first:
            first.request().send(b"HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 10000000\r\n\r\n")
            with self.peer.accept() as second:
                self.assertEqual(second.request().line, "GET /b HTTP/1.1")
                second.send(response(b"b"))
                self.assertEqual(self.result(), "true|200|b")
            first.ends()


class Streams(FetchCase):
    SITE = SITE

    def test_chunks_as_they_arrive(self):
        self.begin('local a = assert(ls.fetch(url, { stream = true })) local t = {} for piece in a:chunks() do '
                   't[#t + 1] = tostring(piece) ls.fetch(site .. "/hello") end return a.timing.total ~= nil, '
                   'table.concat(t, ",")')
        with self.peer.accept() as conn:
            conn.request()
            conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            conn.send(b"2\r\nde\r\n0\r\n\r\n")
            self.assertEqual(self.result().replace("abc,de", "abcde"), "true|true|abcde")
            self.begin("return body(url)")  # read to its end: the connection is kept
            conn.request().send(response(b"x"))
            self.assertEqual(self.result(), "true|200|x")

    def test_lines(self):
        self.assertEqual(self.run_lua('local n, last = 0 local a = ls.fetch(site .. "/chunks/5000", { stream = true }) '
                                      'for line in a:lines() do n, last = n + 1, line end return n, last'),
                         "true|5000|line 5000")
        for data, want in [(b"a\r\nb\n\nc", "a,b,,c"), (b"", ""), (b"\n", ""), (b"a", "a"), (b"a\n", "a")]:
            self.begin('local t = {} local a = ls.fetch(url, { stream = true }) for l in a:lines() do t[#t + 1] = l end '
                       'return #t, table.concat(t, ",")')
            with self.peer.accept() as conn:
                conn.request().send(response(data, ["Connection: close"]))
                self.assertEqual(self.result(), "true|%d|%s" % (len(data.splitlines()), want))
        for size, want in [(1 << 20, "1|true|nil"), ((1 << 20) + 1, "0|false|a line of the body is longer than 1 MiB")]:
            self.begin('local n, a = 0, ls.fetch(url, { stream = true }) local ok, why = pcall(function() for l in a:lines() do '
                       'n = n + 1 end end) return n, ok, why and why:match(": (a line.*)")')
            with self.peer.accept() as conn:
                conn.request().try_send(response(b"x" * size + b"\n", ["Connection: close"]))
                self.assertEqual(self.result(), "true|" + want)

    def test_body_and_json_of_a_stream(self):
        self.assertEqual(self.run_lua('local a = ls.fetch(site .. "/echo", { stream = true }) return a:json().method'),
                         "true|GET")
        self.fails("EMSGSIZE", "max_body", self.run_lua(
            'local a = ls.fetch(site .. "/bytes/100", { stream = true, max_body = 99 }) return select(2, a:body())'))

    def test_a_large_body_needs_little_memory(self):
        self.assertEqual(self.run_lua('local n = 0 local a = ls.fetch(site .. "/bytes/60000000", { stream = true, timeout = 600 }) '
                                      'for piece in a:chunks() do n = n + #piece end return n'),
                         "true|60000000")

    def test_a_stream_that_is_not_read_to_its_end_closes_its_connection(self):
        for end in ("a:close()", "a = nil collectgarbage()", "do local b <close> = a end", ""):
            self.begin('local a = ls.fetch(url, { stream = true }) %s return "done"' % end if end else
                       'ls.spawn(function() local a = ls.fetch(url, { stream = true }) KEPT = a end) return "done"')
            with self.peer.accept() as conn:
                conn.request()
                conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
                self.assertEqual(self.result(), "true|done")
                conn.ends()

    def test_a_stream_that_breaks_off(self):
        for name in ("chunks", "lines"):
            self.begin('local t, a = {}, ls.fetch(url, { stream = true }) local ok, why = pcall(function() for p in a:%s() do '
                       't[#t + 1] = p end end) return table.concat(t), ok, why:match("cannot fetch .*"), pcall(a.body, a)' % name)
            with self.peer.accept() as conn:
                conn.request()
                conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc\n").sock.close()
                self.assertRegex(self.result(), r"true\|abc~?\|false\|cannot fetch http://127.0.0.1:\d+/: the response was cut off "
                                 r"before its end\|false\|.*answer:body: the body was already begun by answer:" + name)
        self.begin('local t, a = {}, ls.fetch(url, { stream = true }) local piece, why, code repeat piece, why, code = a:read() '
                   't[#t + 1] = piece until not piece return table.concat(t), why:match("the response.*"), code, a:read()')
        with self.peer.accept() as conn:
            conn.request()
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc").sock.close()
            self.assertEqual(self.result(), "true|abc|the response was cut off before its end|ETRUNCATED|nil")

    def test_each_piece_of_a_stream_has_the_timeout(self):
        self.begin('local a = ls.fetch(url, { stream = true, timeout = 0.2 }) for p in a:chunks() do end')
        with self.peer.accept() as conn:
            conn.request()
            conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
            self.assertRegex(self.result(), r"false\|.*timeout after 0.2 s")
            conn.ends()

    def test_the_pieces_of_a_stream_are_read_once(self):
        self.assertEqual(self.run_lua('local a = ls.fetch(site .. "/bytes/9", { stream = true }) local t, read = {}, a:chunks() '
                                      'for p in read do t[1] = tostring(p) break end for p in read do t[2] = p end '
                                      'return #table.concat(t)'), "true|9")
        for first in ("read", "chunks", "lines"):
            for second in ("read", "chunks", "lines", "body", "json"):
                if first == second == "read":
                    continue
                want = "continue with answer:read()" if first == "read" else "local next_piece = answer:%s()" % first
                text = self.run_lua('local a = ls.fetch(site .. "/bytes/9", { stream = true }) a:%s() return a:%s()' % (first, second))
                self.assertTrue(text.startswith("false|"), text)
                self.assertIn("the body was already begun by answer:%s, and its pieces arrive once" % first, text)
                self.assertIn(want, text)
        self.assertEqual(self.run_lua('local a = ls.fetch(site .. "/bytes/9") local n = 0 for _ = 1, 2 do for p in a:chunks() do '
                                      'n = n + #p end end return n, #a:read(), a:read(), #a:body()'), "true|18|9|nil|9")

class Places(FetchCase):
    SITE = SITE

    def test_in_hooks_timers_and_jobs(self):
        url = "http://127.0.0.1:%d/hello" % self.server.port()
        server = self.serve("""local ls = require "luaserve"
            local function try(where)
              local answer, message = ls.fetch("%s")
              ls.log.info(where, answer and answer.status or message)
            end
            ls.init(function() try("init") ls.spawn(function() try("spawn") end) end)
            ls.on("start", function() try("start") end)
            ls.after(0, function() try("timer") end)
            ls.on("drain", function() try("drain") end)
            ls.listen(0, ls.app())""" % url, flags=["--threads", "1"])
        for where in ("init", "spawn", "start", "timer"):
            server.wait_log(r"%s\s+200" % where)
        server.stop()
        self.assertTrue(server.logged(r"drain\s+200"))

    @unittest.skipUnless(HAS_UNIX_SOCKETS, OTHER_SYSTEM + "the prompt needs Unix sockets")
    def test_at_the_prompt(self):
        done = subprocess.run([LUASERVE, "repl"], input='ls.fetch("http://127.0.0.1:%d/hello"):body()\n' % self.server.port(),
                              capture_output=True, text=True, timeout=2 * WAIT, check=True)
        self.assertIn("hello, world", done.stdout)

    def test_a_server_that_stops_closes_its_idle_connections(self):
        server = self.serve("""local ls = require "luaserve" ls.on("start", function() ls.fetch("http://127.0.0.1:%d/") end)
            ls.listen(0, ls.app())""" % self.peer.port, flags=["--threads", "1"])
        with self.peer.accept() as conn:
            conn.request().send(response(b"x"))
            server.stop()
            conn.ends()

    def test_a_fetch_that_waits_when_the_time_of_the_drain_is_over(self):
        """Both directions wait: the server reads nothing, and answers nothing."""
        server = self.serve("""local ls = require "luaserve" ls.config { drain_timeout = 0.2 }
            local x = ("x"):rep(100000)
            ls.on("start", function() ls.spawn(ls.fetch, "http://127.0.0.1:%d/", { timeout = false, body = function()
              return x end }) end)
            ls.listen(0, ls.app())""" % self.peer.port, flags=["--threads", "1"])
        with self.peer.accept() as conn:
            conn.request()
            server.signal()
            self.assertNotEqual(server.wait(), 0)
            conn.ends()


class Parts(FetchCase):
    SITE = SITE

    def test_a_form_as_the_server_reads_it(self):
        self.begin("""return body(url .. "/", { parts = { { name = "title", body = "a \\r\\n--b" },
            { name = "n", body = 7 }, { name = 'p"q', filename = 'x\\n".bin', body = ls.buffer():append(("z"):rep(70000)) },
            { name = "t", filename = "t.txt", type = "text/plain", body = "t" } } })""")
        with self.peer.accept() as conn:
            conn.request()
            self.assertEqual(conn.line, "POST / HTTP/1.1")
            data = conn.take(int(conn.fields["content-length"]))
            kind = conn.fields["content-type"]
            boundary = kind.removeprefix("multipart/form-data; boundary=")
            self.assertRegex(boundary, "^[0-9a-f]{32}$")
            parts = data.decode().split("--" + boundary)
            self.assertEqual((parts[0], parts[-1], len(parts)), ("", "--\r\n", 6))
            self.assertEqual([part.strip("\r\n").partition("\r\n\r\n")[::2] for part in parts[1:-1]], [
                ('Content-Disposition: form-data; name="title"', "a \r\n--b"),
                ('Content-Disposition: form-data; name="n"', "7"),
                ('Content-Disposition: form-data; name="p%22q"; filename="x%0A%22.bin"\r\n'
                 "Content-Type: application/octet-stream", "z" * 70000),
                ('Content-Disposition: form-data; name="t"; filename="t.txt"\r\nContent-Type: text/plain', "t")])
            conn.send(response(b"ok"))
        self.assertEqual(self.result(), "true|200|ok")

    def test_parts_from_functions(self):
        """Both kinds of functions, to req:parts of the site."""
        self.assertEqual(self.run_lua("""
            local n = 0
            local function count() n = n + 1 return n <= 3 and tostring(n) or nil end
            return body(site .. "/parts", { parts = { { name = "a", filename = "f", body = count },
              { name = "b", body = function() return ("xyz"):gmatch(".") end }, { name = "c", body = "end" },
              { name = "d", body = function() return nil end } } })"""), "true|200|a f 123~b nil xyz~c nil end~d nil ~")

    def test_usage(self):
        for given, message in (
            ('parts = {}', "parts must be a list such as"), ('parts = { a = 1 }', "parts must be a list such as"),
            ('parts = { "a" }', 'parts[1] must be a table; got "a"'), ('parts = { { body = "" } }', "parts[1].name is missing"),
            ('parts = { { name = 1, body = "" } }', "parts[1].name must be a string; got 1"),
            ('parts = { { name = "a" } }', "parts[1].body must be a string, a number, a buffer or a function; got nil"),
            ('parts = { { name = "a", body = "", file = "" } }', 'unknown option "file"'),
            ('parts = { { name = "a", body = "", type = "a\\r\\nb" } }', "parts[1].type contains a control character"),
            ('parts = { { name = "a", body = "" } }, form = {}', "give one of body, json, form and parts"),
        ):
            self.assertIn(message, self.run_lua("return ls.fetch(url, { %s })" % given))


class Jar(FetchCase):
    SITE = SITE

    def test_cookies_come_back(self):
        """Also those that a redirect sets, and not to another host."""
        self.begin("""local jar = ls.cookie_jar() body(url .. "/", { jar = jar }) body(url .. "/", { jar = jar })
            return jar:cookies(url .. "/").b, jar:cookies("http://localhost/").a""")
        with self.peer.accept() as conn:
            self.assertNotIn("cookie", conn.request().fields)
            conn.send(response(fields=["Set-Cookie: a=1; Path=/", "Location: /next", "set-cookie:  x=1; Path=/other"],
                               status="302 Found"))
            self.assertEqual(conn.request().fields["cookie"], "a=1")
            conn.send(response(fields=["Set-Cookie: b=2; HttpOnly", "Set-Cookie: a=; Max-Age=0; Path=/"]))
            self.assertEqual(conn.request().fields["cookie"], "b=2")
            conn.send(response(fields=["Location: http://localhost:%d/" % self.peer.port], status="307 Found"))
        with self.peer.accept() as conn:
            self.assertNotIn("cookie", conn.request().fields)
            conn.send(response())
        self.assertEqual(self.result(), "true|2|nil")

    def test_in_a_dict(self):
        server = self.serve("""local ls = require "luaserve"
            local jar, app = ls.cookie_jar(ls.dict("cookies")), ls.app()
            ls.config { threads = 3 }
            app:get("/fetch", function(req) return ls.fetch(req.query.url, { jar = jar }):body() end)
            app:get("/next/:name", function(req, res)
              res:header("Set-Cookie", { req.params.name .. "=1; Path=/; Max-Age=60" })
              return req:header("cookie") or "none"
            end)
            app:get("/clear", function() jar:clear() return "" end)
            ls.listen(0, app)""")
        site = "http://127.0.0.1:%d" % server.port()
        got = [server.get("/fetch?url=%s/next/%s" % (site, name)).text for name in ("a", "b", "c")]
        self.assertEqual(got, ["none", "a=1", "a=1; b=1"])
        with concurrent.futures.ThreadPoolExecutor(8) as pool: # none is lost
            list(pool.map(lambda n: server.get("/fetch?url=%s/next/n%d" % (site, n)), range(24)))
        self.assertEqual(len(server.get("/fetch?url=%s/next/z" % site).text.split("; ")), 27)
        server.get("/clear")
        self.assertEqual(server.get("/fetch?url=%s/next/z" % site).text, "none")

    def test_usage(self):
        self.assertIn("jar must be what ls.cookie_jar returns", self.run_lua("ls.fetch(url, { jar = {} })"))
        self.assertIn("give one of jar and the header Cookie",
                      self.run_lua('ls.fetch(url, { jar = ls.cookie_jar(), headers = { cookie = "a=1" } })'))
        self.assertIn("ls.cookie_jar takes a dict", self.run_lua("ls.cookie_jar({})"))
        with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as folder:
            write_text(os.path.join(folder, "site.lua"), 'require "luaserve".cookie_jar()')
            status, _, err = run_program([os.path.join(folder, "site.lua")])
        self.assertNotEqual(status, 0)
        self.assertIn("site.lua:1: ls.cookie_jar: each Lua state would have a jar of its own", err)


class Proxy(FetchCase):
    SITE = SITE

    def proxied(self, target, options=""):
        return 'return body("%s", { proxy = url%s })' % (target, options)

    def test_http(self):
        self.begin("local to = { proxy = url:gsub('//', '//us%%2Fer:p%%40ss@') .. '/' } "
                   "return select(2, body('http://site.test/a?b#c', to)), select(2, body('http://site.test/d', to))")
        with self.peer.accept() as conn:
            conn.request()
            self.assertEqual((conn.line, conn.fields["host"]), ("GET http://site.test/a?b HTTP/1.1", "site.test"))
            self.assertEqual(conn.fields["proxy-authorization"], "Basic " + base64.b64encode(b"us/er:p@ss").decode())
            conn.send(response(b"one"))
            self.assertEqual(conn.request().line, "GET http://site.test/d HTTP/1.1")
            conn.send(response(b"two"))
        self.assertEqual(self.result(), "true|one|two")

    def test_a_tunnel_that_is_refused(self):
        for answer, message, code in (
            ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "it answered CONNECT with 407 Proxy Auth", "EACCES"),
            ("HTTP/1.1 403 No\r\nContent-Length: 3\r\n\r\nno\n", "it answered CONNECT with 403 No", "EACCES"),
            ("HTTP/1.1 502 Bad Gateway\r\n\r\n", "it answered CONNECT with 502", "EUNREACH"),
            ("HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n", "it answered CONNECT with 302", "EUNREACH"),
            ("SSH-2.0-x\r\n\r\n", "invalid response", "EPROTO"),
            ("", "the server closed the connection without a response", "ECLOSED"),
            ("HTTP/1.1 200 OK\r\n\r\nearly", "TLS: bytes arrived before the handshake", "EPROTO"),
        ):
            self.begin(self.proxied("https://site.test/secret?key", ", headers = { Authorization = 'x' }"))
            with self.peer.accept() as conn:
                conn.request()
                self.assertEqual((conn.line, sorted(conn.fields)), ("CONNECT site.test:443 HTTP/1.1", ["host"]))
                conn.send(answer.encode())
            result = self.result()
            self.assertIn("cannot fetch https://site.test/secret: ", result)
            self.assertIn(message, result)
            self.assertTrue(result.endswith("|" + code), result)

    def test_a_proxy_that_does_not_answer(self):
        self.begin(self.proxied("https://site.test/", ", connect_timeout = 0.2"))
        with self.peer.accept() as conn:
            self.assertRegex(self.result(), r"the proxy http://127.0.0.1:\d+: timeout\|ETIMEDOUT$")
            conn.request()
            conn.ends()
        result = self.run_lua('return body("http://site.test/", { proxy = "http://u:secret@127.0.0.1:1" })')
        self.assertEqual(result, "true|cannot fetch http://site.test/: the proxy http://127.0.0.1:1: connection refused|EREFUSED")

    def test_a_tunnel(self):
        """Certificates are checked against the name of the server; the connection is kept; a task that ends closes it."""
        with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as folder:
            certificate(folder, "site", names=("site.test",))
            path = folder.replace(os.sep, "/")
            https = self.serve("""local ls = require "luaserve" local app = ls.app()
                app:get("/", function(req) return "over TLS for " .. req.authority end)
                ls.listen { port = 0, host = "127.0.0.1", handler = app, tls = { cert = "%s/site.pem", key = "%s/site.key" } }
                """ % (path, path))
            to = 'body("https://%s/", { proxy = url, tls = { ca = "' + path + '/site.pem" } })'
            self.begin("local function try(...) local a, b = body(...) return tostring(b):sub(1, 24) end "
                       "return try(%s), try(%s)" % ((to % "site.test")[5:-1], (to % "site.test")[5:-1]))
            with self.tunnel(https.port(), "site.test:443"):
                self.assertEqual(self.result(), "true|over TLS for site.test|over TLS for site.test")
            self.begin("return " + to % "other.test:8443")
            with self.tunnel(https.port(), "other.test:8443"):
                self.assertRegex(self.result(), r"TLS: .*\|ECERT$")

    @contextlib.contextmanager
    def tunnel(self, port, server):
        """Answer one CONNECT and pass the bytes of both directions on."""
        with self.peer.accept() as conn, socket.create_connection(("127.0.0.1", port)) as other:
            self.assertEqual(conn.request().line, "CONNECT %s HTTP/1.1" % server)
            conn.send(b"HTTP/1.1 200 Connection established\r\nContent-Length: 7\r\n\r\n")

            def pump(source, sink):
                with contextlib.suppress(OSError):
                    while data := source.recv(65536):
                        sink.sendall(data)
                    sink.shutdown(socket.SHUT_WR)
            with beside(*[lambda ends=ends: pump(*ends) for ends in ((conn.sock, other), (other, conn.sock))]):
                yield
                with contextlib.suppress(OSError):  # the client has closed it
                    conn.sock.shutdown(socket.SHUT_RDWR)

    def test_the_environment(self):
        proxy = "http://127.0.0.1:%d" % self.peer.port
        script = """local ls = require "luaserve" ls.init(function()
            for _, url in ipairs{ %s } do
              local a, message, code = ls.fetch(url, { timeout = 60 })
              print(a and a:body() or code)
            end end)"""
        def run(urls, env):
            with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as folder:
                path = os.path.join(folder, "a.lua")
                write_text(path, script % ", ".join('"%s"' % url for url in urls))
                return run_program([path], env=env)
        def answer(count):
            for n in range(count):
                with self.peer.accept() as conn:
                    lines.append(conn.request().line)
                    conn.send(response(b"by the proxy", fields=["Connection: close"]))
        for env, urls, through in (
            ({"http_proxy": proxy}, ["http://a.test/"], ["GET http://a.test/ HTTP/1.1"]),
            ({"all_proxy": proxy.removeprefix("http://")}, ["http://a.test/"], ["GET http://a.test/ HTTP/1.1"]),
            ({"https_proxy": proxy}, ["https://a.test/"], ["CONNECT a.test:443 HTTP/1.1"]),
            ({"http_proxy": proxy, "no_proxy": "b.test, .c.test,d.test:81"},
             ["http://a.test/", "http://ab.test/", "http://d.test/"],
             ["GET http://a.test/ HTTP/1.1", "GET http://ab.test/ HTTP/1.1", "GET http://d.test/ HTTP/1.1"]),
        ):
            lines = []
            with beside(lambda: answer(len(through))):
                status, out, err = run(urls, env)
            self.assertEqual((status, lines), (0, through), err)
        for env, code in (({"HTTP_PROXY": proxy}, "EREFUSED"), ({"http_proxy": proxy}, "EREFUSED"),
                          ({"http_proxy": proxy, "no_proxy": "*"}, "EREFUSED")):
            self.assertEqual(run(["http://127.0.0.1:1/"], env)[1], code + "\n")
        status, out, err = run(["http://a.test/"], {"http_proxy": "ftp://x"})
        self.assertEqual(out, "EINVAL\n")
        for value in ("b.test", ".b.test", "*.b.test", "x,B.test:80"): # not asked, and there is no such name
            out = run(["http://a.b.test/"], {"http_proxy": "http://127.0.0.1:1", "no_proxy": value})[1]
            self.assertNotEqual(out, "EREFUSED\n", value)

    def test_usage(self):
        for value in ('"https://127.0.0.1:1"', '"ftp://a"', '"http://a/path"', '"http://u%zz@a"', "true", "{}", '""'):
            self.assertIn("proxy must be the URL of an HTTP proxy", self.run_lua("ls.fetch(url, { proxy = %s })" % value))
        self.assertNotIn("secret", self.run_lua('ls.fetch(url, { proxy = "https://u:secret@a" })'))
        for other in ("public = true", 'unix = "/x"'):
            self.assertIn("give one of proxy, unix and public",
                          self.run_lua('ls.fetch(url, { proxy = "http://a", %s })' % other))


class Tls(E2E):
    def test_certificates(self):
        with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as folder:
            certificate(folder, "ca", extra=("-addext", "basicConstraints=critical,CA:TRUE"))
            certificate(folder, "good", names=("localhost",), ca="ca")
            certificate(folder, "other", names=("other.test",), ca="ca")
            openssl("req", "-new", "-key", "good.key", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                    "-out", "old.csr", folder=folder)
            openssl("x509", "-req", "-in", "old.csr", "-copy_extensions", "copyall", "-CA", "ca.pem", "-CAkey", "ca.key",
                    "-days", "0", "-out", "old.pem", folder=folder)
            shutil.copy(os.path.join(folder, "good.key"), os.path.join(folder, "old.key"))
            path = folder.replace(os.sep, "/")
            site = """local ls = require "luaserve" local app = ls.app()
                app:get("/", function() return "over TLS" end)
                app:get("/down", function(_, res) return res:redirect("http://127.0.0.1:1/") end)
                ls.listen { port = 0, host = "localhost", handler = app, tls = { cert = "%s/%s.pem", key = "%s/%s.key" } }"""
            good = self.serve(site % (path, "good", path, "good"))
            wrong = self.serve(site % (path, "other", path, "other"))
            old = self.serve(site % (path, "old", path, "old"))
            script = os.path.join(folder, "fetch.lua")
            write_text(script, r"""
                local ls = require "luaserve"
                local good, wrong, old, ca = "https://localhost:%d/", "https://localhost:%d/", "https://localhost:%d/", "%s/ca.pem"
                local function try(...)
                  local a, message, code = ls.fetch(...)
                  print(a and a.status .. " " .. a:body():sub(1, 8) .. (a.timing.reused and " again" or "")
                    or code .. " " .. message)
                end
                ls.init(function()
                  try(good)
                  try(good, { tls = { ca = ca } })
                  try(good, { tls = { ca = ca } })
                  try(good)
                  try(good, { tls = { insecure = true } })
                  try(wrong, { tls = { ca = ca } })
                  try(wrong, { tls = { ca = ca, server_name = "other.test" } })
                  try(good .. "down", { tls = { ca = ca } })
                  try((good:gsub("https", "http")))
                  try(old, { tls = { ca = ca } })
                end)""" % (good.port(), wrong.port(), old.port(), path))
            status, out, err = run_program([script])
            lines = out.splitlines()
            self.assertEqual((status, len(lines)), (0, 10), err)
            self.assertRegex(lines[0], r"^ECERT cannot fetch https://localhost:\d+/: TLS: ")
            self.assertEqual(lines[1:3], ["200 over TLS", "200 over TLS again"])
            self.assertTrue(lines[3].startswith("ECERT "))
            self.assertEqual(lines[4], "200 over TLS")
            self.assertTrue(lines[5].startswith("ECERT "))
            self.assertEqual(lines[6], "200 over TLS")
            self.assertRegex(lines[7], r"^EACCES .*redirected from https to http://127\.0\.0\.1:1")
            self.assertTrue(lines[8].startswith("400 "), lines[8])
            self.assertRegex(lines[9], r"^ECERT cannot fetch https://localhost:\d+/: TLS: .*expired")


# In a network of its own, where 9.9.9.9 is this machine: a name server, a public server, and one of the loopback.
PUBLIC = r"""
local ls = require "luaserve"
ls.config { nameservers = "127.0.0.1:5300", states = 1 }
local asked = 0
ls.udp("127.0.0.1:5300", function(question)
  local name, at = question:match("^(%C*)%c", 14), question:find("\0", 13, true)
  local answers = {}
  if name == "rebind" then asked = asked + 1 end
  if name == "local" or name == "both" or name == "rebind" and asked > 1 then answers[1] = "\127\0\0\1" end
  if name == "public" or name == "both" or name == "rebind" and asked == 1 then answers[#answers + 1] = "\9\9\9\9" end
  if question:sub(at + 1, at + 2) ~= "\0\1" then answers, asked = {}, asked - (name == "rebind" and 1 or 0) end
  for n, address in ipairs(answers) do answers[n] = "\xc0\x0c\0\1\0\1\0\0\0\0\0\4" .. address end
  return question:sub(1, 2) .. "\x81\x80\0\1" .. (">I2"):pack(#answers) .. "\0\0\0\0" .. question:sub(13, at + 4)
    .. table.concat(answers)
end)
local app, secret = ls.app(), ls.app()
app:get("/", function(req, res) res:header("Connection", "close") return "public" end)
app:get("/to", function(req, res) return res:redirect(req.query.url) end)
secret:any("/*path", function() print("served") return "secret" end)
ls.listen { host = "9.9.9.9", port = 80, handler = app }
ls.listen { host = "127.0.0.1", port = 80, handler = secret }
ls.on("start", function()
  for url in ("@URLS@"):gmatch("%S+") do
    local answer, message, code = ls.fetch(url, { public = true })
    print(url, answer and answer:body() or code, message or "")
  end
  ls.stop()
end)
"""
NETWORK = ["unshare", "--net", "--map-root-user", "sh", "-c", 'ip link set lo up && ip addr add 9.9.9.9/32 dev lo && exec "$@"', "sh"]


def has_networks():
    try:
        return subprocess.run([*NETWORK, "true"], capture_output=True, timeout=WAIT, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@not_on_windows("networks of a process")
class Public(unittest.TestCase):
    @unittest.skipUnless(has_networks(), "unshare(1) and ip(8) cannot make a network here")
    @looks_up_names
    def test_names_and_redirects_and_a_name_that_changes(self):
        to = "http://public.test/to?url="
        cases = [("http://9.9.9.9/", "public"), ("http://public.test/", "public"), ("http://both.test/", "public"),
                 ("http://127.0.0.1/", "EACCES"), ("http://[::ffff:127.0.0.1]/", "EACCES"), ("http://local.test/", "EACCES"),
                 ("http://localhost/", "EACCES"), (to + "http://127.0.0.1/", "EACCES"), (to + "//127.0.0.1/", "EACCES"),
                 (to + "http://[::ffff:7f00:1]/", "EACCES"), (to + "http://local.test/", "EACCES"),
                 ("http://rebind.test/", "public"), ("http://rebind.test/", "EACCES"), (to + "http://rebind.test/", "EACCES")]
        with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as folder:
            path = os.path.join(folder, "site.lua")
            write_text(path, PUBLIC.replace("@URLS@", " ".join(url for url, _ in cases)))
            done = subprocess.run([*NETWORK, LUASERVE, path], capture_output=True, text=True, timeout=2 * WAIT, check=False)
        lines = [line.split("\t") for line in done.stdout.splitlines()]
        self.assertEqual([tuple(line[:2]) for line in lines], cases, done.stderr)
        for url, result, message in lines:
            if result == "EACCES":
                target = "http://" + url.rpartition("//")[2]
                self.assertEqual(message, "cannot fetch %s: the address is not public" % target)


class Nginx(FetchCase):
    SITE = SITE

    @unittest.skipUnless(shutil.which("nginx"), "nginx is not installed")
    def test_nginx(self):
        port = free_port()
        with tempfile.TemporaryDirectory(prefix="luaserve-e2e-") as folder:
            write_text(os.path.join(folder, "big.txt"), "".join("%010d\n" % (n * 7919) for n in range(100000)))
            write_text(os.path.join(folder, "nginx.conf"), """
                daemon off; master_process off; pid %(f)s/pid; error_log %(f)s/error.log; events {}
                http { access_log off; client_body_temp_path %(f)s/b; proxy_temp_path %(f)s/p; fastcgi_temp_path %(f)s/f;
                  uwsgi_temp_path %(f)s/u; scgi_temp_path %(f)s/s; default_type text/plain; gzip on; gzip_types text/plain;
                  keepalive_requests 3;
                  server { listen 127.0.0.1:%(port)d; root %(f)s; location /moved { return 301 /big.txt; } } }
                """ % {"f": folder, "port": port})
            nginx = subprocess.Popen(["nginx", "-c", os.path.join(folder, "nginx.conf"), "-e",
                                      os.path.join(folder, "error.log")])
            try:
                self.eventually(lambda: self.run_lua('return (ls.fetch("http://127.0.0.1:%d/"))' % port) != "true|nil",
                                "nginx serves")
                for path in ("big.txt", "moved"):
                    for _ in range(4):
                        self.assertEqual(self.run_lua('local a = assert(ls.fetch("http://127.0.0.1:%d/%s")) return a.status, '
                                                      '#a:body(), a:body():sub(-11)' % (port, path)),
                                         "true|200|1100000|0791892081~")
                self.assertEqual(self.run_lua('return ls.fetch("http://127.0.0.1:%d/none").status' % port), "true|404")
            finally:
                nginx.terminate()
                nginx.wait(WAIT)
