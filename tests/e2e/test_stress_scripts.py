"""luaserve stress with scripts: scripts for wrk, native scripts, scenarios, and scripts with errors."""
# sanitizers: asan; the scripts of a thread share nothing, and test_stress and test_load_tsan run many threads
# wine: none; Lua code of the load engine, whose sockets test_stress, test_stress_ws and test_stress_tls use there
import os
import re
import socket
import threading

from harness import ROOT, WAIT, read_text
from harness.stress import EXAMPLES, OK, Stress, head_of, stress


class Scripts(Stress):
    def wrk(self, name, *args, **kw):
        return stress("-s", os.path.join(EXAMPLES, "wrk", name), "-t", "2", "-c", "4", self.url + "/", *args, **kw)

    def test_a_failed_check_is_an_error(self):
        """One for each request, in response hooks and in scenarios."""
        response = """return { target = "%s", connections = 4, requests = 40, response = function(vu, status)
          vu.n = (vu.n or 0) + 1
          vu:check(status == 200, "status"); vu:check(vu.n %% 2 == 0, "even"); vu:check(vu.n %% 2 == 0, "again") end }"""
        ran = stress("own.lua", files={"own_lua": response % self.url})
        odd = ran.checks["even"][1]
        self.assertGreaterEqual(odd, 20)
        self.assertEqual((ran.status, ran.totals["requests"], ran.errors), (99, 40, {"total": odd, "check": odd}), ran)
        self.assertEqual(ran.checks, {"status": (40, 0), "even": (40 - odd, odd), "again": (40 - odd, odd)})
        scenario = """return { target = "%s", connections = 4, requests = 40, scenario = function(vu, sock)
          vu:check(vu.id ~= 1, "id"); sock:send("x\\n"); sock:receive(2); vu:check(vu.id ~= 1, "later") end }"""
        ran = stress("own.lua", files={"own_lua": scenario % self.tcp})
        failed = ran.checks["id"][1]
        self.assertEqual((ran.status, ran.totals["requests"], ran.errors), (99, 40, {"total": failed, "check": failed}), ran)

    def test_variables_that_hooks_count_in_are_summed_over_the_threads(self):
        script = """local bad, all, half, limit = 0, 0, 0.5, 7
return { target = "%s", connections = 4, threads = 2, requests = 40, request = function() half = half + 0.5 return "GET", "/" end,
  response = function(_, status) all = all + 1 if status ~= 404 then bad = bad + 1 end end,
  done = function() print("bad " .. bad, "all " .. all, "half " .. half, "limit " .. limit) if bad > 0 then error("bad") end end }"""
        ran = stress("own.lua", files={"own_lua": script % self.url})
        self.assertEqual(ran.status, 1, ran)
        self.assertIn("bad 40\tall 40\thalf 20.5\tlimit 7", ran.out)

    def test_a_scenario_that_sends_nothing(self):
        for target in self.url, self.tcp:
            ran = stress("own.lua", files={"own_lua": 'return { target = "%s", connections = 2, requests = 10, '
                                           'scenario = function(vu) vu:check(true, "done") end }' % target})
            self.assertEqual(ran.status, 1, ran)
            self.assertIn("the scenario has sent and received nothing", ran.err)

    def test_a_failed_check_in_a_request_hook(self):
        """The error is that of the request, also of one of several on their way."""
        request = """return { target = "%s", connections = 2, threads = 1, requests = 40, pipeline = @, request = function(vu)
          vu:check(vu.id == 1 or vu.iteration %% 3 > 0, "third") return "GET", "/" end }"""
        for pipeline in "1", "4":
            ran = stress("own.lua", files={"own_lua": (request % self.url).replace("@", pipeline)})
            passed, failed = ran.checks["third"]
            self.assertEqual(passed + failed, 40, ran)
            self.assertEqual((ran.status, ran.totals["requests"], ran.errors), (99, 40, {"total": failed, "check": failed}),
                             ran)

    def test_the_iteration_of_a_response_is_that_of_its_request(self):
        """With a request hook or without one, and for each request on its way."""
        response = """response = function(vu) vu.answers = (vu.answers or 0) + 1
          vu:check(vu.iteration == vu.answers, "iteration") end"""
        request = """request = function(vu) vu.asked = (vu.asked or 0) + 1
          vu:check(vu.iteration == vu.asked, "asked") return "GET", "/" end, """
        for pipeline in "1", "4":
            for hooks, checks in ((response, {"iteration": (40, 0)}),
                                  (request + response, {"iteration": (40, 0), "asked": (40, 0)})):
                script = 'return { target = "%s", connections = 2, requests = 40, pipeline = %s, %s }' % (
                    self.url, pipeline, hooks)
                ran = self.good(stress("own.lua", files={"own_lua": script}), 40)
                self.assertEqual(ran.checks, checks)

    def test_every_example_for_wrk_is_tested(self):
        names = {name[:-4] for name in os.listdir(os.path.join(EXAMPLES, "wrk"))}
        tested = {name[len("test_wrk_"):] for name in dir(self) if name.startswith("test_wrk_")}
        self.assertEqual(names, tested)
        self.assertGreaterEqual(len(names), 10)

    def recording_server(self):
        """A server's URL, and the list of requests that it receives."""
        seen, lock = [], threading.Lock()

        def serve(conn, _):
            while True:
                head = head_of(conn)
                if not head:
                    return
                with lock:
                    seen.append(head.decode())
                conn.sendall(OK)

        return self.small(serve).url, seen

    def test_wrk_counter(self):
        url, seen = self.recording_server()
        script = os.path.join(EXAMPLES, "wrk", "counter.lua")
        self.good(stress("-s", script, "-t", "1", "-c", "1", "-n", "3", url), 3)
        for i, head in enumerate(seen, 2):  # the first connection was the probe
            self.assertTrue(head.startswith("GET /hello/%d HTTP/1.1\r\n" % i), head)
            self.assertIn("\r\nX-Counter: %d\r\n" % i, head)
            self.assertEqual(head.count("\r\nHost: 127.0.0.1:"), 1, head)

    def test_a_content_length_of_the_script_is_the_only_one(self):
        """A Content-Length of the script or of the options is not followed by a second one."""
        url, seen = self.recording_server()
        script = 'return { request = function() return "POST", "/", %s, "body" end }'
        for headers, options in (('{ ["content-Length"] = "4" }', ()), ("{}", ("-H", "Content-length: 4")), ("{}", ())):
            with self.subTest(headers=headers, options=options):
                seen.clear()
                self.good(stress("-c", "1", "-n", "2", *options, "own.lua", url, files={"own_lua": script % headers}), 2)
                self.assertEqual([head.lower().count("\r\ncontent-length: 4\r\n") for head in seen], [1, 1], seen)
                self.assertEqual([head.lower().count("content-length") for head in seen], [1, 1], seen)

    def test_wrk_post(self):
        ran = self.good(self.wrk("post.lua", "-n", "40", "--expect-body", "body", files={"body": "name=ada&year=1843"}))
        self.assertEqual(ran.checks, {"body": (40, 0)})

    def test_wrk_pipeline(self):
        ran = self.good(self.wrk("pipeline.lua", "-n", "30"))
        self.assertGreaterEqual(ran.totals["requests"], 30)
        self.assertEqual(ran.totals["requests"] % 3, 0)

    def test_wrk_setup(self):
        ran = self.good(self.wrk("setup.lua", "-n", "100"), 100)
        self.assertIn("thread 1 created\nthread 2 created\n", ran.out)
        counts = [int(n) for n in re.findall(r"thread \d made \d+ requests and got (\d+) responses", ran.out)]
        self.assertEqual((len(counts), sum(counts)), (2, 100), ran)

    def test_wrk_addr(self):
        ran = self.good(self.wrk("addr.lua", "-n", "10"), 10)
        self.assertEqual(ran.out.count("target 127.0.0.1:%s\n" % self.url.rsplit(":", 1)[1]), 2)

    def test_an_address_of_another_family(self):
        script = """
function setup(thread)
  for _, addr in ipairs(wrk.lookup("::1", wrk.port)) do
    assert(wrk.connect(addr))
    thread.addr = addr
  end
end
function init() print("thread uses " .. tostring(wrk.thread.addr)) end
"""
        port = next(address[1] for address in self.server.addresses if address[0] == "::1")
        ran = self.good(stress("-n", "20", "-t", "1", "-s", "own.lua", "http://127.0.0.1:%d/" % port,
                               files={"own_lua": script}), 20)
        self.assertIn("thread uses [::1]:%d\n" % port, ran.out)

    def test_the_services_of_a_lookup(self):
        script = """
function setup()
  for _, service in ipairs { "http", "https", "8080", 81 } do print(wrk.lookup("127.0.0.1", service)[1]) end
  print(wrk.lookup("127.0.0.1")[1])
  print(select(2, pcall(wrk.lookup, "127.0.0.1", "no-such-service")))
  print(select(2, pcall(wrk.lookup, "127.0.0.1", "65536")))
  print(select(2, pcall(function() wrk.lookup("no..host", 80) end)))
end
"""
        ran = self.good(stress("-n", "1", "-c", "1", "-t", "1", "-s", "own.lua", self.url + "/", files={"own_lua": script}), 1)
        self.assertTrue(ran.out.startswith(
            "127.0.0.1:80\n127.0.0.1:443\n127.0.0.1:8080\n127.0.0.1:81\n127.0.0.1:0\n"
            "wrk.lookup: unknown service no-such-service\nwrk.lookup: unknown service 65536\n"), ran)
        self.assertRegex(ran.out, r"own\.lua:7: wrk\.lookup: no\.\.host: ")

    def test_hooks_of_the_table_wrk(self):
        """The benchmark's script replaces wrk.init and wrk.request, and sends several requests as one."""
        ran = self.good(stress("-n", "160", "-c", "2", "-s", os.path.join(ROOT, "tests", "bench", "wrk.lua"), self.url + "/",
                               "--", "16"), 160)
        self.assertRegex(ran.out, r'SUMMARY {"requests": 160, "duration_us": \d+, "connect": 0,')

    def test_responses_to_head_have_no_body(self):
        for text in ("wrk.method = 'HEAD'",
                     "function request() return wrk.format('HEAD') end",
                     "local r = '' function init() for _, m in ipairs { 'GET', 'HEAD', 'GET' } do r = r .. wrk.format(m) end end "
                     "function request() return r end",
                     "return { method = 'HEAD', response = function() end }",
                     "local n = 0 return { request = function() n = n + 1 return n % 2 == 0 and 'GET' or 'HEAD', '/big' end }"):
            with self.subTest(text):
                kind = ["own.lua"] if text.endswith("}") else ["-s", "own.lua"]
                ran = self.good(stress("-n", "30", "-t", "1", "-c", "1", *kind, self.url + "/big", files={"own_lua": text}))
                self.assertEqual(ran.totals["requests"], 30)

    def test_wrk_auth(self):
        ran = self.good(self.wrk("auth.lua", "-n", "60"), 60)
        self.assertEqual(ran.report["status"], {"200": 60})

    def test_wrk_delay(self):
        ran = self.good(self.wrk("delay.lua", "-d", "500ms"))
        self.assertLessEqual(ran.totals["requests"], 4 * 50)  # each waits for at least 10 ms
        self.assertGreater(ran.totals["requests"], 0)

    def test_wrk_report(self):
        ran = self.good(self.wrk("report.lua", "-n", "100"), 100)
        for line in (r"requests,100", r"seconds,\d+\.\d{3}", r"errors timeout,0", r"p99\.999,\d+", r"mean,\d+\.\d",
                     r"values,[1-9]\d*", r"first,\d+,[1-9]\d*", r"rate of a thread,\d+"):
            self.assertRegex(ran.out, "(?m)^%s$" % line)

    def test_wrk_stop(self):
        ran = self.good(self.wrk("stop.lua", "-d", "1h"))
        self.assertGreaterEqual(ran.totals["requests"], 200)

    def test_wrk_args(self):
        since = self.server.mark()
        ran = self.good(self.wrk("args.lua", "-n", "8", "--", "/seen/one", "/seen/two"), 8)
        self.server.wait_log(r"seen\s+one", since)
        self.server.wait_log(r"seen\s+two", since)
        self.assertEqual(ran.report["status"], {"204": 8})

    def test_wrk_mixed(self):
        self.good(self.wrk("mixed.lua", "-n", "300"), 300)

    def test_every_native_example_is_tested(self):
        names = {name for name in os.listdir(EXAMPLES) if name.endswith(".lua")}
        text = read_text(__file__)
        self.assertEqual([name for name in sorted(names) if '"%s"' % name not in text], [])

    def test_native_scripts(self):
        # The example's own rate and its limit of 500 ms need an idle machine.
        ran = stress("-R", "200", "-d", "500ms", os.path.join(EXAMPLES, "hello.lua"), self.url)
        missed = [threshold["text"] for threshold in ran.report["thresholds"] if not threshold["met"]]
        if missed:
            self.assertEqual((ran.status, missed), (1 if ran.totals["unsent"] else 99, ["p99 < 500ms"]), ran)
            self.assertGreater(ran.report["latency_us"]["corrected"]["percentiles"]["p99"], 500e3)
        else:
            self.all_due(ran, 100)
        failed = {name: count for name, (_, count) in ran.checks.items()}
        self.assertEqual(failed, {"status": 0, "type": 0, "own name": 0})
        self.assertEqual(ran.checks["status"][0], ran.totals["requests"])
        ran = stress("--stages", "300ms:100,100ms:0", os.path.join(EXAMPLES, "ramp.lua"), self.url + "/")
        self.assertEqual((ran.errors, ran.totals["requests"] + ran.totals["unsent"]), ({}, 20), ran)
        ran = self.good(stress(os.path.join(EXAMPLES, "session.lua"), self.url), 400)
        self.assertEqual(ran.checks, {"status": (400, 0)})
        self.assertRegex(ran.out, r"(?m)^400 requests, median [0-9.]+ ms$")

    def test_scenarios(self):
        self.good(stress("-n", "200", "-d", "1m", os.path.join(EXAMPLES, "lines.lua"), self.tcp), 200)
        ran = self.good(stress("-n", "100", os.path.join(EXAMPLES, "datagrams.lua"), self.udp), 100)
        self.assertEqual(ran.checks, {"own datagram": (300, 0)})

    def test_all_methods_of_a_sock(self):
        script = """
return { connections = 2, requests = 40,
  scenario = function(vu, sock)
    sock:send("one\\r\\n", "two|th", 3, "\\n")
    assert(sock:receive("*l") == "one")
    assert(sock:receiveuntil("|") == "two")
    assert(sock:receive(2) == "th" and sock:receive(0) == "")
    vu:sleep(0.001)
    assert(sock:receiveany(100) == "3\\n")
    if vu.iteration % 2 == 0 then
      sock:close()
      local data, err, code = sock:receive(1)
      assert(data == nil and err == "closed" and code == "ECLOSED")
    end
  end }"""
        ran = self.good(stress("own.lua", self.tcp, files={"own_lua": script}), 40)
        self.assertGreaterEqual(ran.totals["connects"], 20)

    def test_a_close_by_the_server_in_a_scenario(self):
        def hang_up(conn, _):
            conn.recv(100)
            conn.sendall(b"half a line")

        script = """
return { connections = 2, requests = 10,
  scenario = function(vu, sock)
    sock:send("x")
    local line, err, code, rest = sock:receive("*l")
    vu:check(line == nil and err == "closed" and code == "ECLOSED" and rest == "half a line", "the end")
    vu:check(sock:send("y") == nil, "no more")
  end }"""
        server = self.small(hang_up)
        ran = self.good(stress("own.lua", "tcp://127.0.0.1:%d" % server.port, files={"own_lua": script}), 10)
        self.assertEqual(ran.checks, {"the end": (10, 0), "no more": (10, 0)})

    def test_a_receive_at_which_nothing_looks(self):
        def after_two(conn, _):  # two lines are answered
            for _ in range(2):
                conn.recv(100)
                conn.sendall(b"one\n")
            conn.recv(100)
        server = self.small(after_two)
        warning = "the first receive of 3 iterations failed, because the server closed the connection"
        for receive, errors, warned in (("sock:receive('*l')", 0, True), ("assert(sock:receive('*l'))", 3, False),
                                        ("vu:check(sock:receive('*l'), 'a line')", 3, False)):
            ran = stress("own.lua", "tcp://127.0.0.1:%d" % server.port, files={"own_lua": "return { connections = 1, requests = 9,"
                         "thresholds = { 'p99 < 3600s' }, scenario = function(vu, sock) sock:send('x') %s end }" % receive})
            self.assertEqual(("\nWarning: " + warning in ran.out, ran.report["errors"]["total"]), (warned, errors), ran)
            self.assertEqual("no threshold is about errors: for failed requests (here 3)" in ran.out, "assert" in receive)

    def test_fields_and_values_that_do_not_exist(self):
        self.good(stress("-n", "1", "-c", "1", "-s", "own.lua", self.url + "/", files={"own_lua": """
            function setup(thread) assert(thread.name == nil and thread.addr and thread.get) end
            function done(summary, latency)
              assert(latency(1) and not pcall(latency, 0) and not pcall(latency, #latency + 1))
            end"""}), 1)

    def test_an_empty_text(self):
        ran = self.good(stress("own.lua", self.tcp, files={"own_lua": """return { connections = 1, requests = 1,
            scenario = function(vu, sock) sock:send("") sock:send("", "a") vu:check(sock:receive(1) == "a", "a") end }"""}), 1)
        self.assertEqual(ran.checks, {"a": (1, 0)}, ran)

    def test_datagrams_of_a_sock(self):
        script = """
local much = ("x"):rep(1 << 13):rep(1 << 13)
return { connections = 1, requests = 3,
  scenario = function(vu, sock)
    local good, err = pcall(sock.send, sock, much)
    vu:check(not good and err:find("64 MiB", 1, true), "refused")
    sock:send("one") -- one at a time: two could come back in another order
    vu:check(sock:receive(2) == "on", "cut")
    sock:send("two")
    vu:check(sock:receiveany(1) == "t", "cut")
  end }"""
        ran = self.good(stress("own.lua", self.udp, files={"own_lua": script}), 3)
        self.assertEqual(ran.checks, {"refused": (3, 0), "cut": (6, 0)})

    def test_a_scenario_that_never_waits(self):
        self.good(stress("own.lua", self.tcp, files={
            "own_lua": "return { connections = 1, requests = 5000, scenario = function(vu, sock) if vu.iteration == 1 "
                       "then sock:send(\"x\") end end }"}), 5000)

    def test_a_server_that_stops_answering_a_scenario(self):
        """Waits for the server that have lasted most of the run are errors, one for each virtual user; a sleep is none."""
        ran_out = threading.Event()

        def handle(conn, _):
            for line in conn.makefile("rb"):
                if line == b"echo\n":
                    conn.sendall(line)
                elif line == b"full\n":
                    conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                    ran_out.wait(WAIT)
                    return  # unread bytes remain

        ran = stress("hang.lua", self.small(handle).url, files={"hang.lua": """
local much = ("x"):rep(16 << 20)
return { connections = 6, duration = "10s", thresholds = { "errors == 0" },
  scenario = function(vu, sock)
    if vu.iteration == 1 then sock:send("echo\\n") return vu:check(sock:receive(5) == "echo\\n", "echo") end
    if vu.id == 1 then sock:send("hush\\n") sock:receive("*l")
    elseif vu.id == 2 then sock:send("echo\\nhush\\n") sock:receive("*l") sock:receiveuntil("x")
    elseif vu.id == 3 then vu:ws()
    elseif vu.id == 4 then sock:send("full\\n", much)
    else sock:send("hush\\n") vu:sleep(60) end
  end,
  done = function(summary) print("unanswered " .. summary.errors.unanswered) end }
"""})
        ran_out.set()
        self.assertEqual((ran.status, ran.errors, ran.totals["in_flight"]), (99, {"total": 4, "unanswered": 4}, 2), ran)
        self.assertEqual((ran.totals["requests"], ran.checks), (6, {"echo": (6, 0)}), ran)
        self.assertRegex(ran.out, r"(?m)^4 requests got no response \(waiting for up to .* when the run ended\)$")
        self.assertIn("MISSED  errors == 0 (measured: 4)", ran.out)
        self.assertIn("unanswered 4", ran.out)
        self.assertEqual(sum(point["errors"] for point in ran.report["series"]), 4, ran)

    def test_a_wait_that_is_usual(self):
        """User 1 has waited longer for its answer than user 2 at the end, so that user 2 may be answered as well."""
        asked, conns = threading.Event(), []

        def handle(conn, _):
            for line in conn.makefile("rb"):
                if line == b"ask\n":
                    conns.append(conn)
                    asked.set()
                elif line == b"answer\n" and asked.wait(WAIT):
                    conns[0].sendall(line)

        ran = stress("slow.lua", self.small(handle).url, files={"slow.lua": """
return { connections = 3, duration = "3s", scenario = function(vu, sock)
    if vu.iteration == 2 then vu:sleep(60)
    elseif vu.id == 1 then sock:send("ask\\n") vu:check(sock:receive("*l") == "answer", "answer")
    elseif vu.id == 2 then vu:sleep(1.5) sock:send("hush\\n") sock:receive("*l")
    else vu:sleep(2) sock:send("answer\\n") end
  end }
"""})
        self.good(ran, 2)
        self.assertEqual((ran.totals["in_flight"], ran.checks), (3, {"answer": (1, 0)}), ran)

    def test_a_scenario_that_raises(self):
        script = """
return { connections = 2, requests = 20,
  scenario = function(vu, sock)
    if vu.iteration % 2 == 0 then error("even") end
    sock:send("x")
    sock:receive(1)
  end }"""
        ran = stress("own.lua", self.tcp, files={"own_lua": script})
        self.assertEqual(ran.status, 0, ran)
        # Two odd numbers of iterations make one odd one more.
        self.assertIn((ran.totals["requests"], ran.errors["script"]), ((10, 10), (11, 9)))
        self.assertIn("own.lua:4: even", ran.err)

    def test_functions_of_a_site(self):
        """Those that only compute, in both kinds of scripts."""
        text = """local ls = require "luaserve"
local data = ls.json.decode(ls.json.encode { list = ls.json.array {}, n = 2^53 | 0, no = ls.json.null })
assert(#data.list == 0 and data.n == 2^53 and data.no == ls.json.null and ls.json.decode "{" == nil)
assert(require("cjson").encode(data.list) == "[]")
assert(ls.url.query { a = "x y" } == "a=x%20y" and ls.url.encode "&" == "%26" and ls.url.decode "%26" == "&")
assert(ls.url.build { path = { "a", "b/c" } } == "/a/b%2Fc")
for name, encoded in pairs { hex = "f0ff", base64 = "8P8=", base64url = "8P8" } do
  local code = ls.crypto[name]
  assert(code.encode "\\xf0\\xff" == encoded and code.decode(encoded) == "\\xf0\\xff" and code.decode "!" == nil)
end
local _, why = pcall(ls.json.encode, { a = { print } })
assert(why:find "own.lua:%d+: ls.json.encode: value.a%[1%] is a function", why)
"""
        for more, options in (("return { response = function(vu, _, _, body) vu:check(ls.json.decode(body), 'JSON') end }", ()),
                              ("function response(_, _, body) assert(ls.json.decode(body)) end", ("-s",))):
            with self.subTest(more):
                ran = self.good(stress("-n", "10", "-c", "1", "--method", "POST", "--body", "[1]", *options, "own.lua",
                                       self.url + "/echo", files={"own_lua": text + more}), 10)
                self.assertEqual(ran.checks, {} if options else {"JSON": (10, 0)})

    def test_invalid_native_scripts(self):
        rows = (
            ("return 3", "did not return a table"),
            ("local x = = 3", "own.lua:1: unexpected symbol"),
            ("error('no')", "own.lua:1: no"),
            ("return { request = 3 }", "request must be a function"),
            ("return { request = function() end, scenario = function() end }", "either scenario, or request and response"),
            ("return { setup = function() return print end }", "cannot copy to another thread: value is a function"),
            ("return { request = function() return 'GET' end }", "must return a method and a path"),
            ("return { request = function() return 'POST', '/', 'text' end }",
             "returned a string in place of a table of headers; the body is the fourth result"),
            ("return { request = function() return 'GET', '/a b' end }", "has no white space"),
            ("return { request = function() return 'G T', '/' end }", "invalid method"),
            ("return { request = function() return 'post', '/' end }", 'the method "post"; methods have capital letters'),
            ("return { request = function() return 'GET', '/', { a = 'b\\n' } end }", "an invalid header"),
            ("return { request = function() return 'GET', '/', nil, {} end }", "request(): the body is a table"),
            ("return { request = function()\n local x\n return x.y end }", "own.lua:3: attempt to index a nil value"),
            ("return { response = function()\n error({}) end }", "own.lua"),
            ("local x = 1\nreturn { response = function() ls.json.decode '1' end }",
             "own.lua:2: ls is no global; scripts have ls.json, "),
            ("return { response = function() json.decode '1' end }", "own.lua:1: json is no global; scripts have ls.json, "),
            ("require 'json'", "scripts have ls.json, ls.url.encode, decode, query and build, and ls.crypto.base64, base64url and "
             'hex of require "luaserve" (see "Functions for scripts" in the manual of luaserve stress)'),
            ("\nrequire 'luaserve'.fetch()", "own.lua:2: scripts of luaserve stress do not have ls.fetch; they have ls.json, "),
            ("require 'luaserve'.url.parse '/'", "do not have ls.url.parse; they have"),
            ("require 'luaserve'.json.decod '1'", "own.lua:1: ls.json has no \"decod\"; did you mean 'decode'?"),
        )
        for text, why in rows:
            with self.subTest(text):
                self.fails(stress("-d", "1m", "own.lua", self.url + "/", files={"own_lua": text}), why)

    def test_invalid_scripts_for_wrk(self):
        rows = (
            ("local x = = 3", "own.lua:1: unexpected symbol"),
            ("function request()\n return nil + 1 end", "own.lua:2: attempt to perform arithmetic on a nil value"),
            ("function request() end", "it must return a request as a string"),
            ("function request() return wrk.format('POST', '/', {}, {}) end", "wrk.format: the body is a table"),
            ("function request() return 'GET / HTTP/1.1' end", "an incomplete request"),
            ("function response()\n error('bad') end", "own.lua:2: bad"),
            ("function delay()\n error('bad') end", "own.lua:2: bad"),
            ("function setup(thread)\n thread.x = 3 end", "own.lua:2: a thread has only one writable field"),
            ("function init()\n error('bad') end", "own.lua:2: bad"),
        )
        for text, why in rows:
            with self.subTest(text):
                self.fails(stress("-d", "1m", "-s", "own.lua", self.url + "/", files={"own_lua": text}), why)
        ran = stress("-n", "3", "-s", "own.lua", self.url, files={"own_lua": "function done()\n error('bad') end"})
        self.assertEqual(ran.status, 1, ran)
        self.assertIn("own.lua:2: bad", ran.err)
        self.assertIn("3 requests in", ran.out)
        self.assertEqual(stress("-s", "/does/not/exist.lua", self.url).status, 1)

    def test_values_that_another_thread_cannot_have(self):
        """They raise in the script that asks; the run goes on."""
        ran = stress("-s", "x.lua", "-n", "2", "-c", "1", "-t", "1", self.url + "/", files={"x_lua": """
            function setup(thread)
              local deep = {}
              for _ = 1, 140 do deep = { deep } end
              thread:set("list", { 1, { true, "x" } })
              print(thread:get("list")[2][2], thread:get("nothing"))
              print(pcall(thread.get, thread, "print"))
              print(pcall(thread.set, thread, "mine", print))
              print(pcall(thread.set, thread, "mine", deep))
              print(thread:get("list")[1], thread:get("mine"))
            end"""})
        self.good(ran, 2)
        self.assertRegex(ran.out, "x\tnil\n(false\tcannot copy to another thread: value is a function.*\n){2}"
                                  "false\tcannot copy to another thread: value.* 100 levels.*\n1\tnil\n")

    def test_an_error_in_one_thread_ends_all(self):
        script = """
local count = 0
function setup(thread) count = count + 1 thread:set("mine", count) end
function response() if mine == 1 then error("enough") end end
"""
        self.fails(stress("-t", "2", "-c", "2", "-d", "1h", "-s", "own.lua", self.url, files={"own_lua": script}),
                   "own.lua:4: enough")

    def test_lua_51(self):
        """Functions of LuaJIT's Lua that Lua 5.4 does not have."""
        script = """
local t = { 3, 4, n = 1 }
assert(unpack(t) == 3 and table.getn(t) == 2 and table.maxn(t) == 2)
assert(loadstring("return 7")() == 7 and math.pow(2, 10) == 1024 and tostring(math.pow(2, 3)) == "8")
assert(string.format("%d", 7 / 2) == "3" and string.format("%d|%s", -1.5, "x") == "-1|x")
assert(not pcall(string.format, "%d", "x"))
assert(math.random(5.5) <= 5 and math.log10(1000) > 2.99 and math.mod(7, 4) == 3)
math.randomseed(os.time() + 0.5)
local function f() return answer end
setfenv(f, { answer = 42 })
assert(f() == 42 and getfenv(f).answer == 42 and answer == nil and getfenv(0) == _G)
local bit = require "bit"
assert(bit.band(0xff, 0x0f) == 15 and bit.bnot(0) == -1 and bit.lshift(1, 31) == -2147483648)
assert(bit.rshift(-1, 28) == 15 and bit.arshift(-16, 2) == -4 and bit.tohex(255, 4) == "00ff" and bit.bxor(1, 3) == 2)
assert(bit.rol(0x12345678, 8) == 0x34567812 and bit.bor(1, 2, 4) == 7)
for word in string.gfind("a b", "%a") do assert(#word == 1) end
local cjson = require "cjson"
wrk.body = cjson.encode({ 1, 2 })
function response(status, headers, body) assert(body == "[1,2]" and headers["Content-Length"] == "5") end
"""
        self.good(stress("-n", "5", "--method", "POST", "-s", "own.lua", self.url + "/echo", files={"own_lua": script}), 5)
