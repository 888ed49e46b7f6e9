"""The access log: lines of requests, refused ones and those whose client left; files, reopening, a reader that stops."""
# sanitizers: asan; tsan
import json
import os
import re
import signal
import time

from harness import Conn, E2E, app_site, not_on_windows, read_text, request, write_text

SITE = """
local ls = require "luaserve"
local app, quiet, api = ls.app(), ls.app(), ls.app()
app:get("/items/:id", function(req) return "item " .. req.params.id end)
app:post("/wait", function(req) ls.log.info("waits") return req:body() end)
app:get("/fail", function() error("no") end) app:get("/broken", function(_, res) res:write("x") ls.sleep(0.01) error("no") end)
app:get("/dropped", function() return tostring(ls.stats().access_lines_dropped) end)
app:post("/body", function(req) return req:body() end)
quiet:get("/up", function() return "up" end)
quiet:access_log(false)
api:get("/:name", function() return "api" end)
api:access_log{ file = "api.log", format = "$status $route $request_uri", mask = { "key" } }
app:mount("/quiet", quiet)
app:mount("/api", api)
ls.listen{ host = "127.0.0.1", port = 0, handler = app, trusted = { "127.0.0.1" }, %s }
"""


class AccessLog(E2E):
    def start(self, option):
        server = self.serve(SITE % option)
        return server, server.dir

    def lines(self, path, count):
        self.eventually(lambda: os.path.exists(path) and len(read_text(path).splitlines()) >= count,
                        f"{count} lines of {path}")
        got = read_text(path).splitlines()
        self.assertEqual(len(got), count, got)
        return got

    def ask_each(self, server, requests):
        with self.connect(server=server) as conn:
            for data, status in requests:
                conn.send(data)
                self.assertEqual(conn.response().status, status)

    def test_combined_has_what_other_tools_read(self):
        server, folder = self.start('access_log = "a.log"')
        agent = [("User-Agent", 'forged"\\ GET'), ("Referer", "http://r/"), ("X-Forwarded-For", "192.0.2.7")]
        hidden = [("X-Forwarded-For", "unknown")]
        self.ask_each(server, [(request("GET", "/items/7?a=1", agent), 200), (request("GET", "/none"), 404),
                               (request("GET", "/items/8", hidden), 200), (request("GET", "/quiet/up"), 200), (request("POST", "/body", body=b"12345"), 200)])
        with self.connect(server=server) as conn:
            conn.send(b"GE T / HTTP/1.1\r\n\r\n")
            self.assertEqual(conn.response().status, 400)
        got = self.lines(os.path.join(folder, "a.log"), 5)
        when = r"\[\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d \+0000\]"
        for pattern in (
                rf'192\.0\.2\.7 - - {when} "GET /items/7\?a=1 HTTP/1\.1" 200 6 "http://r/" "forged\\x22\\x5C GET"',
                rf'unknown - - {when} "GET /items/8 HTTP/1\.1" 200 6 "-" "-"',
                rf'127\.0\.0\.1 - - {when} "GET /none HTTP/1\.1" 404 \d+ "-" "-"',
                rf'127\.0\.0\.1 - - {when} "POST /body HTTP/1\.1" 200 5 "-" "-"',
                rf'127\.0\.0\.1 - - {when} "GE T / HTTP/1\.1" 400 32 "-" "-"'):
            self.assertEqual(len([line for line in got if re.fullmatch(pattern, line)]), 1, (pattern, got))

    def test_json_and_the_ends_of_requests(self):
        server, folder = self.start('access_log = { file = "a.log", format = "json", mask = { "token" } }')
        path = os.path.join(folder, "a.log")
        self.ask_each(server, [(request("GET", "/items/x?token=s3&b=2", [("User-Agent", b"\xff\"")]), 200),
                               (request("GET", "/fail", [("X-Request-Id", "from-the-proxy")]), 500)])
        server.wait_log("request from-the-proxy GET /fail")
        with self.connect(server=server) as conn:
            conn.send(request("POST", "/wait", [("Content-Length", "10")]) + b"1")
            server.wait_log("waits")
            conn.reset()
        one, two, three = sorted((json.loads(line) for line in self.lines(path, 3)),
                                 key=lambda line: ["/items/x?token=***&b=2", "/fail", "/wait"].index(line["uri"]))
        self.assertEqual((one["uri"], one["route"], one["status"], one["outcome"], one["bytes"]),
                         ("/items/x?token=***&b=2", "/items/:id", 200, "complete", 6))
        self.assertEqual(one["user_agent"], '\ufffd"')
        self.assertRegex(one["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual((two["status"], two["request_id"], two["upstream"]), (500, "from-the-proxy", None))
        self.assertEqual((three["uri"], three["status"], three["outcome"]), ("/wait", 499, "left"))

    def test_a_log_of_an_app(self):
        server, folder = self.start('access_log = { file = "a.log", format = "$uri" }')
        self.ask_each(server, [(request("GET", "/api/x?key=1&n=2"), 200), (request("GET", "/api/x/y"), 404),
                               (request("GET", "/quiet/none"), 404), (request("GET", "/items/1"), 200)])
        self.assertEqual(sorted(self.lines(os.path.join(folder, "api.log"), 2)),
                         ["200 /api/:name /api/x?key=***&n=2", "404 - /api/x/y"])
        self.assertEqual(self.lines(os.path.join(folder, "a.log"), 1), ["/items/1"])

    def test_a_sample_has_all_errors(self):
        server, folder = self.start(
            'access_log = { file = "a.log", format = "$status $uri", sample = 0 }')
        self.ask_each(server, [(request("GET", "/items/1"), 200), (request("GET", "/fail"), 500)])
        self.assertEqual(self.lines(os.path.join(folder, "a.log"), 1), ["500 /fail"])
        with self.connect(server=server) as conn:  # its handler fails inside the response
            conn.send(request("GET", "/broken")).rest()
        self.assertEqual(self.lines(os.path.join(folder, "a.log"), 2)[1], "200 /broken")

    def test_a_function_chooses(self):
        server, folder = self.start('access_log = { file = "a.log", format = "$uri", '
                                    'when = function(req, res, info) return info.bytes == 6 end }')
        self.ask_each(server, [(request("GET", "/items/10"), 200), (request("GET", "/items/1"), 200)])
        self.assertEqual(self.lines(os.path.join(folder, "a.log"), 1), ["/items/1"])

    def test_plain_http_on_a_port_for_https(self):
        server = self.serve(app_site("""
            app:get("/refused", function() return tostring(ls.stats().refused) end)
            ls.listen("127.0.0.1:0", app)""",
                                     'tls = "self-signed", access_log = { file = "a.log", format = "$request $status $outcome $body_bytes_sent" }'),
                            listeners=2)
        with self.connect(1, server=server) as conn:
            answer = conn.ask("GET", "/a", [("Host", "a")])
        self.assertEqual(answer.status, 400)
        self.assertEqual(self.lines(os.path.join(server.dir, "a.log"), 1), ["GET /a HTTP/1.1 400 refused %d" % len(answer.body)])
        self.assertEqual(server.get("/refused").text, "1")

    def test_masked_addresses(self):
        server = self.serve(SITE.replace("local app,", "ls.config{ mask_addresses = true } local app,") % 'access_log = "a.log"' + """
            ls.listen{ host = "127.0.0.1", port = 0, handler = app, deny = { "127.0.0.0/8" } }
            ls.tcp("127.0.0.1:0", function() error "no" end)""", listeners=3)
        self.ask_each(server, [(request("GET", "/items/1", [("X-Forwarded-For", "2001:db8:1:2::3")]), 200)])
        with self.connect(server=server) as conn:
            conn.send(b"GE T / HTTP/1.1\r\n\r\n")
            self.assertEqual(conn.response().status, 400)
        got = self.lines(os.path.join(server.dir, "a.log"), 2)
        self.assertEqual({line.split(" ")[0] for line in got}, {"2001:db8:1::", "127.0.0.0"})
        server.wait_log("refused 127.0.0.0 400")
        for index, line in ((1, "refused 127.0.0.0: "), (2, "connection from 127.0.0.0:[0-9]+: ")):
            with self.connect(index, server=server):
                server.wait_log(line)

    def test_the_server_of_a_proxy(self):
        upstream = self.serve("""local ls = require "luaserve" local app = ls.app()
            app:get("/p/x", function() return "up" end) ls.listen("127.0.0.1:0", app)""")
        port = upstream.port()
        server = self.serve(f"""local ls = require "luaserve" local app = ls.app()
            app:proxy("/p", "http://127.0.0.1:{port}")
            ls.listen("127.0.0.1:0", app, {{ access_log = {{ file = "stdout",
              format = "line $route $upstream_addr $upstream_status $upstream_response_time" }} }})""")
        with self.connect(server=server) as conn:
            conn.send(request("GET", "/p/x"))
            self.assertEqual(conn.response().body, b"up")
        self.eventually(lambda: re.search(rf"line /p/\*path 127\.0\.0\.1:{port} 200 \d\.\d{{3}}\n", read_text(server.out_path)),
                        "the line")

    @not_on_windows("Windows has no SIGUSR1")
    def test_a_moved_file_is_opened_again(self):
        server, folder = self.start('access_log = { file = "a.log", format = "$uri" }')
        path, moved = os.path.join(folder, "a.log"), os.path.join(folder, "b.log")
        self.ask_each(server, [(request("GET", "/items/1"), 200)])
        self.lines(path, 1)
        os.rename(path, moved)
        server.signal(signal.SIGUSR1)
        self.eventually(lambda: os.path.exists(path), "a new file")
        self.ask_each(server, [(request("GET", "/items/2"), 200)])
        self.assertEqual(self.lines(path, 1), ["/items/2"])
        os.rename(path, moved)
        server.signal(signal.SIGHUP)
        self.eventually(lambda: os.path.exists(path), "a new file after a reload")
        self.ask_each(server, [(request("GET", "/items/3"), 200)])
        self.assertEqual(self.lines(path, 1), ["/items/3"])

    @not_on_windows("Windows has no named pipes in folders")
    def test_a_reader_that_stops_does_not_delay_responses(self):
        folder = self.new_folder()
        pipe = os.path.join(folder, "pipe")
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        server = self.serve(SITE % f'access_log = "{pipe}"')
        with self.connect(server=server) as conn:
            data = request("GET", "/items/1", [("User-Agent", "x" * 4000), ("Referer", "x" * 4000)])
            while not server.logged("access log .*: lines are dropped: its reader takes no more"):
                conn.send(data)
                self.assertEqual(conn.response().status, 200)
            conn.send(request("GET", "/dropped"))
            self.assertGreater(float(conn.response().body), 0)
            while not server.logged("access log .*: is written again; [0-9]+ lines were dropped"):
                try:
                    os.read(reader, 65536)
                except BlockingIOError:
                    time.sleep(0.01)
        os.close(reader)

    @not_on_windows("Windows has no /dev/full")
    def test_a_full_disk_at_the_stop(self):
        server = self.serve(SITE % 'access_log = "/dev/full"')
        self.ask_each(server, 3 * [(request("GET", "/items/1"), 200)])
        server.stop()
        self.assertTrue(server.logged("warn access log /dev/full: ends, and 3 lines were not written$"))

    def test_many_apps_have_their_logs(self):
        apps = " ".join(f"local a{n} = ls.app() a{n}:get('/', function() return '' end) a{n}:access_log('{n}.log') app:mount('/{n}', a{n})"
                        for n in range(6))
        server = self.serve(SITE.replace('app:mount("/quiet"', apps + ' app:mount("/quiet"') % 'access_log = "a.log"')
        self.ask_each(server, [(request("GET", f"/{n}"), 200) for n in range(6)])
        for n in range(6):
            self.lines(os.path.join(server.dir, f"{n}.log"), 1)

    def test_slow_requests(self):
        site = SITE.replace("ls.listen{", """
            app:get("/sleeps", function() ls.sleep(0.01)
              ls.sleep(0.3) return "" end)
            app:get("/may", { slow = 60 }, function() ls.sleep(0.3) return "" end)
            app:get("/must", { slow = 0.05 }, function() ls.sleep(0.1) return "" end)
            ls.listen{ slow = 0.2, """)
        server = self.serve(site % 'access_log = { file = "a.log", format = "$uri", sample = 0 }')
        self.ask_each(server, [(request("GET", "/items/1"), 200), (request("GET", "/sleeps"), 200), (request("GET", "/may"), 200),
                               (request("GET", "/must"), 200)])
        server.wait_log(r"request \w+ GET /sleeps of 127\.0\.0\.1: slow: 0\.\d+ s, status 200, route /sleeps: queued for "
                        r"\d\.\d+ s, ran for \d\.\d+ s, waited for 0\.3\d* s \(0\.\d+ s at \S*site\.lua:17\), was sent in ")
        server.wait_log("GET /must of .*: slow: ")
        self.assertEqual(server.logged("GET /(items|may).*slow"), [])

    def test_the_log_as_json(self):
        server = self.serve(SITE % 'access_log = false', flags=["--log-format", "json"], listeners=0)
        self.eventually(lambda: "listening on" in server.log(), "the listener")
        port = int(re.search(r"127\.0\.0\.1:(\d+)", server.log()).group(1))
        with Conn(("127.0.0.1", port)) as conn:
            for data, status in ((request("GET", "/fail", [("X-Request-Id", "abc-1")]), 500),
                                 (request("POST", "/wait", [("X-Request-Id", "abc-2")], body=b"1"), 200)):
                conn.send(data)
                self.assertEqual(conn.response().status, status)
        self.eventually(lambda: "abc-2" in server.log(), "the lines")
        lines = [json.loads(line) for line in server.log().splitlines()]
        self.assertEqual([line["level"] for line in lines if line.get("request_id") == "abc-1"], ["error"])
        self.assertEqual([line["message"] for line in lines if line.get("request_id") == "abc-2"], ["waits"])
        self.assertNotIn("request_id", lines[0])
        self.assertIn("\n", next(line for line in lines if line.get("request_id") == "abc-1")["message"])

    def test_what_is_refused(self):
        for option, message in (
                ('access_log = 1', "access_log must be a file or a table"),
                ('access_log = { format = "json" }', 'file must be the name of a file'),
                ('access_log = { file = "a", formt = 1 }', 'unknown option "formt"'),
                ('access_log = { file = "a", format = "combind" }', 'unknown format "combind"'),
                ('access_log = { file = "a", format = "$statuss" }', 'unknown variable "\\$statuss".*status'),
                ('access_log = { file = "a", format = "$" }', 'a \\$ without a name in the format "\\$"; write \\$status or'),
                ('access_log = { file = "a", sample = 2 }', "sample must be a number from 0 to 1"),
                ('access_log = { file = "a", when = 1 }', "when must be a function"),
                ('access_log = { file = "a", mask = "token" }', "mask must be a list of names"),
                ('access_log = "/no/such/folder/a.log"', "cannot open /no/such/folder/a.log: not found; write a file in a folder that exists"),
                ('access_log = "stderr"', 'standard error has the log of the server; write "stdout", or "./stderr" for a file of that name'),
                ('access_log = { file = "a", mask = { "a", b = "token" } }', "mask must be a list of names"),
                ('access_log = "."', "cannot open .*: (is a directory|permission denied)")):
            self.assertRegex(self.refuses(SITE % option, "ls.listen: access_log"), r"site\.lua:\d+: .*" + message)
        server = self.serve(SITE % 'access_log = "/no/such/folder/a.log"', listeners=0, env={"LOGS_DIRECTORY": "/var/log/site"})
        self.assertEqual(server.wait(), 1)
        self.assertIn("may write; the folder of this service for logs is /var/log/site", server.log())

    def test_a_reload_with_a_log_that_cannot_be_opened_leaves_the_site(self):
        server, folder = self.start('access_log = { file = "a.log", format = "$uri" }')
        write_text(server.site, read_text(server.site).replace("a.log", "none/a.log"))
        self.assertIn("the previous site continues", server.reload("reload failed: .*access_log: cannot open .*: not found"))
        self.ask_each(server, [(request("GET", "/items/1"), 200)])
        self.assertEqual(self.lines(os.path.join(folder, "a.log"), 1), ["/items/1"])
