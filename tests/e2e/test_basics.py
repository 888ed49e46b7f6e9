"""What a site can say and what a client then gets: routes, requests, answers, timers, listeners."""
import json
import os
import shutil
import subprocess
import unittest

from harness import E2E, Closed, Conn, HAS_UNIX_SOCKETS, in_parallel, main, request, WAIT

ROUTES = r"""
local ls = require "luaserve"
local app = ls.app()
for _, verb in ipairs{"get", "post", "put", "patch", "delete"} do
  app[verb](app, "/verb/" .. verb, function(req) return verb .. ":" .. req.method end)
end
app:head("/verb/head", function(req, res) res:header("X-Verb", "head"); return 200 end)
app:options("/verb/options", function(req, res) res:header("X-Verb", "options"); return 204 end)
app:any("/any", function(req) return req.method end)
app:route("PURGE", "/cache", function(req) return "purged" end)
app:get("/", function() return "root\n" end)
app:get("/hello/:name", function(req) return "hello " .. req.params.name end)
app:get("/a/:x/b/:y", function(req) return req.params.x .. "|" .. req.params.y end)
app:get("/files/*path", function(req) return req.params.path end)
app:get("/fixed/one", function() return "fixed one" end)
app:get("/fixed/:any", function(req) return "any " .. req.params.any end)
app:get("/two", function() return "get" end)
app:post("/two", function() return "post" end)
app:get("/query", function(req)
  return { a = req.query.a, b = req.query.b, empty = req.query.empty, missing = req.query.missing == nil }
end)
app:get("/headers", function(req)
  return { field = req.headers["x-thing"], upper = req.headers["X-THING"], method = req:header("x-ThInG"),
           none = req.headers["x-none"] == nil and req:header("x-none") == nil }
end)
app:get("/cookies", function(req) return { a = req.cookies.a, b = req.cookies.b, none = req.cookies.c == nil } end)
app:any("/fields", function(req)
  return { method = req.method, path = req.path, target = req.target, version = req.version, remote = tostring(req.remote),
           local_addr = tostring(req.local_addr), id = tostring(req.id), scheme = req.scheme, host = req.host }
end)
app:post("/json", function(req)
  local item, err = req:json()
  if not item then return 400, { error = tostring(err) } end
  return 201, item
end)
app:post("/form", function(req)
  local form = req:form()
  return { a = form.a, b = form.b }
end)
app:post("/body", function(req) return req:body() end)
app:post("/buffer", function(req) return req:buffer() end)
app:post("/pieces", function(req)
  local n = 0
  for piece in req:chunks() do n = n + #piece end
  return tostring(n)
end)
app:post("/twice", function(req) return req:body() .. req:body() end)
app:not_found(function(req) return 404, "no " .. req.path .. "\n" end)
ls.listen{ host = "127.0.0.1", port = 0, app = app }
"""


class Routes(E2E):
    SITE = ROUTES

    def test_every_verb(self):
        for verb in ("get", "post", "put", "patch", "delete"):
            with self.subTest(verb):
                body = b"" if verb in ("post", "put", "patch") else None
                self.assertEqual(
                    self.ask(verb.upper(), "/verb/" + verb, body=body).text, verb + ":" + verb.upper()
                )
        head = self.ask("HEAD", "/verb/head")
        self.assertEqual((head.status, head.header("X-Verb"), head.body), (200, "head", b""))
        options = self.ask("OPTIONS", "/verb/options")
        self.assertEqual((options.status, options.header("X-Verb")), (204, "options"))

    def test_any_takes_every_method(self):
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            self.assertEqual(self.ask(method, "/any").text, method)

    def test_a_method_of_ones_own(self):
        self.assertEqual(self.ask("PURGE", "/cache").text, "purged")

    def test_parameters_are_decoded(self):
        self.assertEqual(self.get("/hello/world").text, "hello world")
        self.assertEqual(self.get("/hello/a%20b%C3%A9").text, "hello a b\u00e9")
        self.assertEqual(self.get("/hello/a%2Fb").text, "hello a/b")
        self.assertEqual(self.get("/hello/a+b").text, "hello a+b")
        self.assertEqual(self.get("/a/1/b/2").text, "1|2")
        self.assertEqual(self.get("/a//b/2").status, 404)

    def test_rest_parameter(self):
        self.assertEqual(self.get("/files/a/b/c.txt").text, "a/b/c.txt")
        self.assertEqual(self.get("/files/a%20b/c").text, "a b/c")

    def test_bad_escapes_are_the_clients_fault(self):
        self.assertEqual(self.get("/hello/%zz").status, 400)
        self.assertEqual(self.get("/hello/%4").status, 400)
        self.assertEqual(self.get("/hello/%00").status, 400)

    def test_fixed_before_parameter(self):
        self.assertEqual(self.get("/fixed/one").text, "fixed one")
        self.assertEqual(self.get("/fixed/two").text, "any two")

    def test_query(self):
        got = json.loads(self.get("/query?a=1&b=x%20y+z&empty=").text)
        self.assertEqual(got, {"a": "1", "b": "x y z", "empty": "", "missing": True})
        self.assertEqual(json.loads(self.get("/query").text), {"missing": True})
        self.assertEqual(json.loads(self.get("/query?").text), {"missing": True})
        self.assertEqual(json.loads(self.get("/query?&&a=%26&").text), {"a": "&", "missing": True})

    def test_headers_any_case(self):
        for name in ("X-Thing", "x-thing", "X-THING"):
            got = json.loads(self.get("/headers", {name: "  v 1\t"}).text)
            self.assertEqual(got, {"field": "v 1", "upper": "v 1", "method": "v 1", "none": True})
        self.assertEqual(json.loads(self.get("/headers").text), {"none": True})

    def test_cookies(self):
        self.assertEqual(
            json.loads(self.get("/cookies", {"Cookie": "a=1; b=two"}).text),
            {"a": "1", "b": "two", "none": True},
        )
        self.assertEqual(json.loads(self.get("/cookies").text), {"none": True})

    def test_not_found(self):
        response = self.get("/nowhere")
        self.assertEqual((response.status, response.text), (404, "no /nowhere\n"))

    def test_wrong_method_names_the_right_ones(self):
        response = self.ask("DELETE", "/two")
        self.assertEqual(response.status, 405)
        allow = {m.strip() for m in response.header("Allow").split(",")}
        self.assertLessEqual({"GET", "HEAD", "POST"}, allow)
        self.assertNotIn("DELETE", allow)

    def test_head_is_get_without_body(self):
        with self.connect() as conn:
            got = conn.get("/hello/x")
            head = conn.ask("HEAD", "/hello/x")
            self.assertEqual(head.status, 200)
            self.assertEqual(head.header("Content-Length"), got.header("Content-Length"))
            self.assertEqual(head.header("Content-Type"), got.header("Content-Type"))
            self.assertEqual(conn.get("/hello/y").text, "hello y")

    def test_options_lists_methods(self):
        response = self.ask("OPTIONS", "/two")
        self.assertIn(response.status, (200, 204))
        allow = {m.strip() for m in response.header("Allow").split(",")}
        self.assertLessEqual({"GET", "HEAD", "POST"}, allow)

    def test_options_asterisk(self):
        response = self.ask("OPTIONS", "*")
        self.assertIn(response.status, (200, 204))

    def test_fields(self):
        with self.connect() as conn:
            got = json.loads(conn.get("/fields?q=1", {"Host": "example.org:81"}).text)
            mine = "%s:%d" % conn.sock.getsockname()
            theirs = "%s:%d" % conn.sock.getpeername()
        self.assertEqual(got["method"], "GET")
        self.assertEqual(got["path"], "/fields")
        self.assertEqual(got["target"], "/fields?q=1")
        self.assertIn("1.1", got["version"])
        self.assertEqual(got["scheme"], "http")
        self.assertEqual(got["host"], "example.org:81")
        self.assertIn(got["remote"], (mine, "127.0.0.1"))
        self.assertIn(got["local_addr"], (theirs, "127.0.0.1"))

    def test_ids_differ(self):
        with self.connect() as conn:
            ids = [json.loads(conn.get("/fields").text)["id"] for _ in range(20)]
        self.assertEqual(len(set(ids)), 20)

    def test_json_in_and_out(self):
        response = self.ask(
            "POST", "/json", {"Content-Type": "application/json"}, b'{"a":[1,2,{"b":null}],"c":"\\u00e9"}'
        )
        self.assertEqual(response.status, 201)
        self.assertEqual(json.loads(response.text), {"a": [1, 2, {"b": None}], "c": "\u00e9"})
        self.assertTrue(response.header("Content-Type").startswith("application/json"))

    def test_bad_json_is_an_error_value(self):
        for bad in (b"{", b"", b"{'a':1}", b"[1,]", b"nonsense"):
            with self.subTest(bad):
                response = self.ask("POST", "/json", {"Content-Type": "application/json"}, bad)
                self.assertEqual(response.status, 400)
                self.assertTrue(json.loads(response.text)["error"])

    def test_form(self):
        response = self.ask(
            "POST", "/form", {"Content-Type": "application/x-www-form-urlencoded"}, b"a=1+2&b=%26%3D&c"
        )
        self.assertEqual(json.loads(response.text), {"a": "1 2", "b": "&="})

    def test_bodies(self):
        for body in (b"", b"x", os.urandom(5000), os.urandom(100000)):
            self.assertEqual(self.ask("POST", "/body", body=body).body, body)
            self.assertEqual(self.ask("POST", "/buffer", body=body).body, body)
            self.assertEqual(self.ask("POST", "/pieces", body=body).text, str(len(body)))

    def test_body_read_twice_is_clear(self):
        """The same bytes again, or an error: never half a body and never a hang."""
        response = self.ask("POST", "/twice", body=b"ab")
        self.assertTrue(response.status == 500 or response.body in (b"abab", b"ab"), response)


ANSWERS = r"""
local ls = require "luaserve"
local app = ls.app()
local prepared = ls.buffer("pre", "pared")
app:get("/string", function() return "text" end)
app:get("/empty", function() return "" end)
app:get("/table", function() return { a = 1 } end)
app:get("/list", function() return { 1, 2, 3 } end)
app:get("/number", function() return 404 end)
app:get("/teapot", function() return 418 end)
app:get("/n204", function() return 204 end)
app:get("/n304", function() return 304 end)
app:get("/all", function() return 201, "made", { ["X-A"] = "1", ["Content-Type"] = "text/x" } end)
app:get("/status-table", function() return 202, { ok = true } end)
app:get("/buffer", function() return prepared end)
app:get("/nothing", function() end)
app:get("/send", function(req, res) res:status(203); res:header("X-B", "2"); res:send("sent") end)
app:get("/resjson", function(req, res) res:json({ a = { b = true } }) end)
app:get("/write", function(req, res) res:header("Content-Type", "text/csv"); res:write("a", ",", 1, "\n"); res:write(2.5, "\n") end)
app:get("/flush", function(req, res) res:write("one"); res:flush(); ls.sleep(0.01); res:write("two") end)
app:get("/announced", function(req, res)
  res:header("Content-Length", 6)
  res:write("abc") res:flush() res:write("def")
end)
app:get("/announced-short", function(req, res) res:header("Content-Length", 6); res:write("abc") end)
app:get("/announced-long", function(req, res)
  res:header("Content-Length", 3)
  local ok = pcall(res.write, res, "abcdef")
  if not ok then res:write("abc") end
end)
app:get("/sent", function(req, res)
  local before = res.sent
  res:send("x")
  ls.log.info("sent before=" .. tostring(before) .. " after=" .. tostring(res.sent))
end)
app:get("/redirect", function(req, res) return res:redirect("/elsewhere") end)
app:get("/redirect301", function(req, res) return res:redirect("/moved", 301) end)
app:get("/cookie", function(req, res)
  res:cookie("sid", "abc", { path = "/", domain = "example.com", max_age = 60, secure = true, http_only = true, same_site = "Lax" })
  res:cookie("plain", "1")
  return "ok"
end)
app:get("/type", function(req, res) res:header("Content-Type", "text/html"); return "<p>" end)
app:get("/header-twice", function(req, res) res:header("X-C", "1"); res:header("X-C", "2"); return "ok" end)
app:get("/jsonrules", function()
  return { null = ls.json.null, nested = ls.json.decode('{"x":[1,2.5,"s",false,null]}').x[2] }
end)
app:get("/json-round", function() return ls.json.encode(ls.json.decode('{"k":[true,{"z":1}]}')) end)
local function bad(value, name)
  return function(req, res)
    local ok, err = pcall(res.header, res, name or "X-Bad", value)
    return ok and "accepted" or "raised " .. tostring(err)
  end
end
app:get("/bad-cr", bad("a\rb")) app:get("/bad-lf", bad("a\nSet-Cookie: x=1")) app:get("/bad-nul", bad("a\0b"))
app:get("/bad-name", bad("v", "X Bad")) app:get("/bad-name2", bad("v", "X:\r\nY"))
app:get("/bad-length", bad("5", "Content-Length")) app:get("/bad-te", bad("chunked", "Transfer-Encoding"))
app:get("/bad-cookie", function(req, res)
  return pcall(res.cookie, res, "a", "b\r\nX: y") and "accepted" or "raised"
end)
app:get("/bad-cookie-option", function(req, res)
  return pcall(res.cookie, res, "a", "b", { pathh = "/" }) and "accepted" or "raised"
end)
app:get("/bad-redirect", function(req, res)
  return pcall(res.redirect, res, "/a\r\nX: y") and "accepted" or "raised"
end)
app:get("/bad-returned", function() return 200, "x", { ["X-A"] = "a\r\nb: c" } end)
app:get("/bad-options", function() return pcall(ls.config, { thraeds = 1 }) and "accepted" or "raised" end)
ls.listen{ host = "127.0.0.1", port = 0, app = app }
"""


class Answers(E2E):
    SITE = ANSWERS

    def test_string(self):
        response = self.get("/string")
        self.assertEqual((response.status, response.text), (200, "text"))
        self.assertEqual(response.header("Content-Type"), "text/plain; charset=utf-8")
        self.assertEqual(response.header("Content-Length"), "4")
        empty = self.get("/empty")
        self.assertEqual((empty.status, empty.header("Content-Length"), empty.body), (200, "0", b""))

    def test_table(self):
        response = self.get("/table")
        self.assertEqual((response.status, json.loads(response.text)), (200, {"a": 1}))
        self.assertTrue(response.header("Content-Type").startswith("application/json"))
        self.assertEqual(json.loads(self.get("/list").text), [1, 2, 3])

    def test_number(self):
        self.assertEqual((self.get("/number").status, self.get("/number").reason), (404, "Not Found"))
        self.assertIn("Not Found", self.get("/number").text)
        self.assertEqual(self.get("/teapot").status, 418)
        with self.connect() as conn:
            self.assertEqual(conn.get("/n204").status, 204)
            self.assertEqual(conn.get("/n304").status, 304)
            self.assertEqual(conn.get("/string").text, "text")

    def test_status_body_headers(self):
        response = self.get("/all")
        self.assertEqual(
            (response.status, response.text, response.header("X-A"), response.header("Content-Type")),
            (201, "made", "1", "text/x"),
        )
        response = self.get("/status-table")
        self.assertEqual((response.status, json.loads(response.text)), (202, {"ok": True}))

    def test_buffer(self):
        for _ in range(3):
            response = self.get("/buffer")
            self.assertEqual((response.status, response.text), (200, "prepared"))

    def test_nothing(self):
        response = self.get("/nothing")
        self.assertEqual((response.status, response.body), (204, b""))

    def test_what_res_did(self):
        response = self.get("/send")
        self.assertEqual((response.status, response.header("X-B"), response.text), (203, "2", "sent"))
        self.assertEqual(json.loads(self.get("/resjson").text), {"a": {"b": True}})
        response = self.get("/write")
        self.assertEqual(
            (response.text, response.header("Content-Type"), response.chunked), ("a,1\n2.5\n", "text/csv", True)
        )
        response = self.get("/flush")
        self.assertEqual((response.text, response.chunked), ("onetwo", True))
        self.assertGreaterEqual(response.chunks, 2)

    def test_announced_length(self):
        """A handler that writes in parts may say how much it will be: sent as such, and held to it."""
        response = self.get("/announced")
        self.assertEqual(
            (response.text, response.chunked, response.header("Content-Length")), ("abcdef", False, "6")
        )
        with self.assertRaises(Closed):
            self.get("/announced-short")
        response = self.get("/announced-long")
        self.assertEqual((response.text, response.header("Content-Length")), ("abc", "3"))

    def test_sent(self):
        mark = self.server.mark()
        self.assertEqual(self.get("/sent").text, "x")
        self.server.wait_log("sent before=false after=true", mark)

    def test_redirect(self):
        response = self.get("/redirect")
        self.assertEqual((response.status, response.header("Location")), (302, "/elsewhere"))
        response = self.get("/redirect301")
        self.assertEqual((response.status, response.header("Location")), (301, "/moved"))

    def test_cookie(self):
        cookies = self.get("/cookie").all("Set-Cookie")
        self.assertEqual(len(cookies), 2)
        parts = [p.strip() for p in cookies[0].split(";")]
        self.assertEqual(parts[0], "sid=abc")
        self.assertEqual(
            {p.lower() for p in parts[1:]},
            {"path=/", "domain=example.com", "max-age=60", "secure", "httponly", "samesite=lax"},
        )
        self.assertEqual(cookies[1].split(";")[0], "plain=1")

    def test_type_of_ones_own(self):
        self.assertEqual(self.get("/type").header("Content-Type"), "text/html")

    def test_json_helpers(self):
        self.assertEqual(json.loads(self.get("/jsonrules").text), {"null": None, "nested": 2.5})
        self.assertEqual(json.loads(self.get("/json-round").text), {"k": [True, {"z": 1}]})

    def test_a_header_cannot_break_out(self):
        for path in (
            "/bad-cr",
            "/bad-lf",
            "/bad-nul",
            "/bad-name",
            "/bad-name2",
            "/bad-te",
            "/bad-cookie",
            "/bad-cookie-option",
            "/bad-redirect",
            "/bad-options",
        ):
            with self.subTest(path):
                response = self.get(path)
                self.assertTrue(response.text.startswith("raised"), response)
                self.assertEqual(response.all("Set-Cookie") + response.all("X"), [])
        self.assertIn(self.get("/bad-length").text, ("accepted", "raised"))  # and the framing is right
        response = self.get("/bad-returned")
        self.assertEqual((response.status, response.all("b")), (500, []))


COMPOSED = r"""
local ls = require "luaserve"
local app, sub, deep = ls.app(), ls.app(), ls.app()
app:use(function(req, res, next) res:header("X-Outer", req.id); return next() end)
app:use(function(req, res, next)
  if req.headers["x-stop"] then return 403, "stopped" end
  return next()
end)
app:use(function(req, res, next)
  if req.headers["x-sleep"] then ls.sleep(0.01) end
  return next()
end)
app:get("/", function() return "top" end)
app:get("/boom", function() error("boom here") end)
app:get("/boom-table", function() error({ code = 7 }) end)
sub:use(function(req, res, next) res:header("X-Sub", "yes"); return next() end)
sub:get("/", function() return "sub root" end)
sub:get("/x/:id", function(req) return "sub " .. req.params.id end)
deep:get("/y", function() return "deep" end)
sub:mount("/deep", deep)
app:mount("/sub", sub)
app:error(function(req, res, err)
  return 500, { error = "internal", text = type(err) == "table" and "code " .. err.code or tostring(err), id = tostring(req.id) }
end)
app:not_found(function(req) return 404, "nothing at " .. req.path end)
ls.listen{ host = "127.0.0.1", port = 0, app = app }
"""


class Composed(E2E):
    SITE = COMPOSED

    def test_use_runs_around(self):
        response = self.get("/")
        self.assertEqual(response.text, "top")
        self.assertTrue(response.header("X-Outer"))
        stopped = self.get("/", {"X-Stop": "1"})
        self.assertEqual((stopped.status, stopped.text), (403, "stopped"))
        self.assertTrue(stopped.header("X-Outer"))
        self.assertEqual(self.get("/", {"X-Sleep": "1"}).text, "top")

    def test_mount(self):
        for path, text in (("/sub/", "sub root"), ("/sub/x/9", "sub 9"), ("/sub/deep/y", "deep")):
            response = self.get(path)
            self.assertEqual(
                (response.status, response.text, response.header("X-Sub")), (200, text, "yes"), path
            )
        self.assertEqual(self.get("/sub/none").status, 404)
        self.assertEqual(self.get("/subway").status, 404)

    def test_error_page(self):
        response = self.get("/boom")
        got = json.loads(response.text)
        self.assertEqual((response.status, got["error"]), (500, "internal"))
        self.assertIn("boom here", got["text"])
        self.assertTrue(got["id"])
        self.assertEqual(json.loads(self.get("/boom-table").text)["text"], "code 7")

    def test_not_found_page(self):
        response = self.get("/nope")
        self.assertEqual((response.status, response.text), (404, "nothing at /nope"))


TIME = r"""
local ls = require "luaserve"
local app = ls.app()
ls.on("start", function() ls.log.info("hook start") end)
ls.on("drain", function() ls.log.info("hook drain") end)
ls.on("log", function(req, res) ls.log.info("hook log " .. req.method .. " " .. req.path) end)
ls.once(function()
  ls.log.info("once ran")
  ls.after(0.02, function(a, b) ls.log.info("after ran " .. a .. b) end, "x", "y")
  local n = 0
  ls.every(0.01, function() n = n + 1; if n <= 3 then ls.log.info("every ran " .. n) end end)
end)
app:get("/sleep", function() local t = ls.now(); ls.sleep(0.05); return ls.now() - t >= 0.045 and "slept" or "too early" end)
app:get("/spawn", function()
  local a = ls.spawn(function(x) ls.sleep(0.03); return x, "second" end, "first")
  local b = ls.spawn(function() ls.sleep(0.01); return "b" end)
  local r1, r2 = a:wait()
  return r1 .. " " .. r2 .. " " .. b:wait()
end)
app:get("/spawn-error", function()
  local job = ls.spawn(function() error("job failed") end)
  local ok, err = pcall(job.wait, job)
  return tostring(ok) .. " " .. tostring(err)
end)
app:get("/spawn-timeout", function()
  local job = ls.spawn(function() ls.sleep(0.3); return "late" end)
  local got, err = job:wait(0.01)
  return tostring(got) .. " " .. tostring(err) .. " then " .. tostring(job:wait())
end)
app:get("/after", function()
  local seen
  ls.after(0.01, function() seen = "seen" end)
  ls.sleep(0.1)
  return tostring(seen)
end)
app:get("/stats", function() return ls.stats() end)
app:get("/version", function() return tostring(ls.version) end)
app:get("/log", function()
  ls.log.debug("quiet debug") ls.log.info("line info") ls.log.warn("line warn") ls.log.error("line error")
  ls.log.info("two\nlines")
  return "ok"
end)
ls.listen{ host = "127.0.0.1", port = 0, app = app }
"""


class Time(E2E):
    SITE = TIME

    def test_hooks_and_timers(self):
        for line in ("hook start", "once ran", "after ran xy", "every ran 3"):
            self.server.wait_log(line)
        self.assertEqual(len(self.server.logged("once ran")), 1)
        self.assertEqual(len(self.server.logged("after ran")), 1)

    def test_log_hook(self):
        mark = self.server.mark()
        self.get("/version")
        self.server.wait_log("hook log GET /version", mark)

    def test_sleep(self):
        self.assertEqual(self.get("/sleep").text, "slept")
        texts = in_parallel([lambda: self.get("/sleep").text for _ in range(30)], 30)
        self.assertEqual(texts, ["slept"] * 30)

    def test_spawn_and_wait(self):
        self.assertEqual(self.get("/spawn").text, "first second b")
        response = self.get("/spawn-error")
        self.assertTrue(response.text.startswith("false") and "job failed" in response.text, response)
        response = self.get("/spawn-timeout")
        self.assertTrue(response.text.startswith("nil") and response.text.endswith("then late"), response)

    def test_after_runs_while_the_handler_sleeps(self):
        self.assertEqual(self.get("/after").text, "seen")

    def test_stats(self):
        before = json.loads(self.get("/stats").text)
        self.assertIn("bytes_copied", before)
        self.assertTrue(all(isinstance(v, (int, float, dict, list, str)) for v in before.values()))

    def test_version(self):
        self.assertRegex(self.get("/version").text, r"^\d+\.\d+")

    def test_log_levels(self):
        mark = self.server.mark()
        self.get("/log")
        self.server.wait_log("line error", mark)
        self.server.wait_log(r"line info", mark)
        self.server.wait_log(r"line warn", mark)
        self.assertEqual(self.server.logged("quiet debug", mark), [])


class Drain(E2E):
    def test_drain_hook(self):
        server = self.serve(TIME)
        server.stop()
        self.assertTrue(server.logged("hook drain"), server.log())


INJECT = r"""
local ls = require "luaserve"
local app = ls.app()
app:get("/", function() return "root" end)
app:post("/echo", function(req) return 201, req:body(), { ["X-Seen"] = req.headers["x-give"] or "none" } end)
app:get("/sleep", function() ls.sleep(0.01); return "slept" end)
app:get("/big", function() return ("x"):rep(1000):rep(100) end)
app:get("/parts", function(req, res) res:write("a"); res:write("b") end)
app:get("/boom", function() error("x") end)
local function show(r, err) return r and { status = r.status, body = r.body } or { failed = tostring(err) } end
app:get("/self", function(req)
  return show(app:inject{ method = "GET", path = req.query.path })
end)
app:get("/self-post", function()
  local r = app:inject{ method = "POST", path = "/echo", headers = { ["X-Give"] = "g" }, body = "data" }
  local seen = type(r.headers) == "table" and (r.headers["x-seen"] or r.headers["X-Seen"])
  return { status = r.status, body = r.body, seen = seen }
end)
local early = show(app:inject{ method = "GET", path = "/" })
app:get("/early", function() return early end)
ls.listen{ host = "127.0.0.1", port = 0, app = app }
"""


class Inject(E2E):
    SITE = INJECT

    def inject(self, path):
        return json.loads(self.get("/self?path=" + path).text)

    def test_inject(self):
        self.assertEqual(self.inject("/"), {"status": 200, "body": "root"})
        self.assertEqual(self.inject("/none")["status"], 404)
        self.assertEqual(self.inject("/sleep"), {"status": 200, "body": "slept"})
        self.assertEqual(self.inject("/parts"), {"status": 200, "body": "ab"})
        self.assertEqual(self.inject("/big"), {"status": 200, "body": "x" * 100000})
        self.assertEqual(self.inject("/boom")["status"], 500)

    def test_inject_post(self):
        self.assertEqual(json.loads(self.get("/self-post").text), {"status": 201, "body": "data", "seen": "g"})

    def test_inject_while_loading(self):
        self.assertEqual(json.loads(self.get("/early").text), {"status": 200, "body": "root"})


LISTENERS = r"""
local ls = require "luaserve"
local one, two = ls.app(), ls.app()
one:get("/", function(req) return "one " .. tostring(req.local_addr) end)
two:get("/", function(req) return "two" end)
ls.listen{ host = "127.0.0.1", port = 0, app = one }
ls.listen{ host = "127.0.0.1", port = 0, app = two }
"""
ON_A_PATH = 'ls.listen{ host = "unix:@DIR@/s.sock", app = one }'


class Listeners(E2E):
    SITE = LISTENERS + (ON_A_PATH if HAS_UNIX_SOCKETS else "")
    LISTENERS = 3 if HAS_UNIX_SOCKETS else 2

    def test_each_has_its_app(self):
        texts = sorted(self.server.get("/", index=i).text[:3] for i in range(2))
        self.assertEqual(texts, ["one", "two"])

    def test_unix_socket(self):
        if not HAS_UNIX_SOCKETS:
            return self.refuses(LISTENERS + ON_A_PATH, "cannot listen on unix:@DIR@/s.sock: not supported here")
        paths = [a for a in self.server.addresses if isinstance(a, str)]
        self.assertEqual(paths, [os.path.join(self.server.dir, "s.sock")])
        with Conn(paths[0]) as conn:
            self.assertTrue(conn.get("/").text.startswith("one"))
            self.assertTrue(conn.get("/").text.startswith("one"))

    def test_curl(self):
        curl = shutil.which("curl")
        if not curl:
            self.skipTest("no curl")
        for address in self.server.addresses:
            where = (["--unix-socket", address, "http://localhost/"] if isinstance(address, str)
                     else ["http://127.0.0.1:%d/" % address[1]])
            done = subprocess.run(
                [curl, "-sS", "-i", "-m", "10", *where],
                capture_output=True,
                text=True,
                timeout=WAIT,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("HTTP/1.1 200 OK", done.stdout)

def has_ipv6():
    import socket

    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
        return True
    except OSError:
        return False


class Ipv6(E2E):
    @unittest.skipUnless(has_ipv6(), "no IPv6 loopback here")
    def test_ipv6(self):
        server = self.serve(
            'local ls = require "luaserve"; local app = ls.app()\n'
            'app:get("/", function(req) return tostring(req.remote) end)\n'
            'ls.listen{ host = "::1", port = 0, app = app }\n'
        )
        self.assertEqual(server.at()[0], "::1")
        self.assertIn("::1", server.get("/", {"Host": "[::1]"}).text)
        server.stop()

    @unittest.skipUnless(has_ipv6(), "no IPv6 loopback here")
    def test_the_default_is_the_loopback_of_both(self):
        server = self.serve(
            'local ls = require "luaserve"; local app = ls.app()\n'
            'app:get("/", function() return "x" end)\nls.listen(0, app)\n',
            listeners=2,
        )
        self.assertEqual({a[0] for a in server.addresses}, {"127.0.0.1", "::1"})
        self.assertEqual(len({a[1] for a in server.addresses}), 1, "one port for both families")
        for index in range(2):
            self.assertEqual(server.get("/", index=index).text, "x")
        server.stop()

    def test_a_star_is_everyone(self):
        server = self.serve(
            'local ls = require "luaserve"; local app = ls.app()\n'
            'app:get("/", function() return "x" end)\nls.listen{ host = "*", port = 0, app = app }\n'
        )
        with Conn(("127.0.0.1", server.port())) as conn:
            self.assertEqual(conn.get("/").text, "x")
        server.stop()


class Curl(E2E):
    SITE = ROUTES

    def curl(self, *args, stdin=None):
        done = subprocess.run(
            ["curl", "-sS", "-m", "20", *args], capture_output=True, timeout=2 * WAIT, input=stdin
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    @unittest.skipUnless(shutil.which("curl"), "no curl")
    def test_curl(self):
        base = "http://127.0.0.1:%d" % self.server.port()
        self.assertEqual(self.curl(base + "/", base + "/hello/x"), b"root\nhello x")
        self.assertIn(b"HTTP/1.1 200", self.curl("-I", base + "/"))
        self.assertEqual(json.loads(self.curl("--data", "a=1&b=2", base + "/form")), {"a": "1", "b": "2"})
        data = os.urandom(300000)
        self.assertEqual(self.curl("--data-binary", "@-", base + "/buffer", stdin=data), data)
        self.assertEqual(
            self.curl("--data-binary", "@-", "-H", "Transfer-Encoding: chunked", base + "/body", stdin=data),
            data,
        )
        self.assertEqual(self.curl("-0", base + "/"), b"root\n")
        self.assertEqual(
            self.curl("--request-target", "*", "-X", "OPTIONS", "-o", os.devnull, "-w", "%{http_code}", base)[
                :1
            ],
            b"2",
        )


class Pipelined(E2E):
    SITE = ROUTES

    def test_one_connection_many_requests(self):
        with self.connect() as conn:
            for n in range(200):
                self.assertEqual(conn.get("/hello/%d" % n).text, "hello %d" % n)

    def test_many_connections(self):
        def one(number):
            with self.server.connect() as conn:
                for n in range(20):
                    self.assertEqual(conn.get("/hello/%d-%d" % (number, n)).text, "hello %d-%d" % (number, n))

        in_parallel([lambda n=n: one(n) for n in range(32)], 32)

    def test_bodies_of_neighbours_do_not_mix(self):
        def one(number):
            body = bytes([65 + number]) * (1000 + number * 3000)
            with self.server.connect() as conn:
                for _ in range(5):
                    self.assertEqual(conn.ask("POST", "/body", body=body).body, body)
                    conn.send(request("POST", "/body", body=body) + request("GET", "/hello/z"))
                    self.assertEqual(conn.response().body, body)
                    self.assertEqual(conn.response().text, "hello z")

        in_parallel([lambda n=n: one(n) for n in range(16)])


if __name__ == "__main__":
    main()
