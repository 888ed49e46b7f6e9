"""app:metrics and ls.metrics: both text formats, what requests count, metrics of the site over states and reloads, their limits."""
import json
import re
import shutil
import subprocess
import time
from collections import namedtuple

from harness import tls
from harness import E2E, app_site, in_parallel, not_on_windows, read_text, repeats, request, write_text

Family = namedtuple("Family", "kind help samples")  # samples: {(name, labels): value}
SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*",?)*)\})? ([-+]?(?:[0-9.]+(?:e[-+]?\d+)?|Inf))')
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\[\\"n])*)"')
SUFFIXES = {"counter": {False: ("",), True: ("_total", "_created")}, "gauge": {False: ("",), True: ("",)},
            "histogram": {False: ("_bucket", "_sum", "_count"), True: ("_bucket", "_sum", "_count", "_created")}}


def unescape(text):
    return re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), text)


def parse(text, open_metrics=False):
    """The families of a text. Strict: raises for what either format does not allow."""
    lines = text.split("\n")
    assert lines.pop() == "", "it ends with a line break"
    if open_metrics:
        assert lines.pop() == "# EOF", lines[-1]
    families, name, last = {}, None, None
    for line in lines:
        if line.startswith("# HELP "):
            _, _, name, text = line.split(" ", 3)
            assert name not in families, name
            assert re.fullmatch(r'(?:[^\\"\n]|\\[\\n"])*' if open_metrics else r"(?:[^\\\n]|\\[\\n])*", text), text
            families[name] = Family(None, unescape(text), {})
        elif line.startswith("# TYPE "):
            _, _, of, kind = line.split(" ")
            assert of == name and families[name].kind is None and not families[name].samples, line
            assert kind != "counter" or name.endswith("_total") != open_metrics, line
            families[name] = families[name]._replace(kind=kind)
        else:
            match = SAMPLE.fullmatch(line)
            assert match, line
            family = families[name]
            assert match[1] in [name + suffix for suffix in SUFFIXES[family.kind][open_metrics]], line
            labels = [(key, unescape(value)) for key, value in LABEL.findall(match[2] or "")]
            assert len(dict(labels)) == len(labels), line
            key = (match[1], tuple(labels))
            assert key not in family.samples, line
            family.samples[key] = float(match[3])
            assert not match[1].endswith("_created") or key[1] == last[1], "it follows the samples of its label set: " + line
            last = key
    for name, family in families.items():
        if family.kind == "histogram":
            check_histogram(name, family, open_metrics)
    return families


def check_histogram(name, family, open_metrics):
    """The buckets of each label set grow, and the last one is the count."""
    sets = {}
    for (sample, labels), value in family.samples.items():
        if sample == name + "_bucket":
            bound = dict(labels)["le"]
            assert not open_metrics or "." in bound or bound == "+Inf" or "e" in bound, bound
            sets.setdefault(tuple(pair for pair in labels if pair[0] != "le"), []).append((float(bound), value))
    for labels, buckets in sets.items():
        assert buckets == sorted(buckets) and [v for _, v in buckets] == sorted(v for _, v in buckets), buckets
        assert buckets[-1] == (float("inf"), family.samples[name + "_count", labels])


SITE = """
local ls = require "luaserve"
ls.config { threads = 2 }
local app, other = ls.app(), ls.app()
local orders = ls.metrics.counter { name = "orders_total", help = 'of "all"\\\\ customers\\nand lines', labels = { "country", "paid" } }
local plain = ls.metrics.counter { name = "plain", help = "without labels" }
local depth = ls.metrics.gauge { name = "depth", help = "jobs" }
local took = ls.metrics.histogram { name = "took_seconds", help = "time", labels = { "what" }, buckets = { 0.5, 1, 2.5 } }
local many = ls.metrics.counter { name = "many", help = "many label sets", labels = { "x" }, max_series = 310 }
local few = ls.metrics.counter { name = "few", help = "few label sets", labels = { "x" }, max_series = 3 }
app:get("/", function() return "hello" end)
app:get("/items/:id", function(req) return tonumber(req.params.id) and "item" or 404 end)
app:get("/fail", function() error "on purpose" end)
app:get("/order", function()
  orders:add(1.5, { country = "a\\"b\\\\c\\nd\\xff", paid = true })
  plain:add()
  depth:add(-2)
  for _, n in ipairs { 0.5, 0.7, 3 } do took:observe(n, { what = "all" }) end
  return 204
end)
app:get("/set/:n", function(req) depth:set(tonumber(req.params.n)) return 204 end)
app:get("/few/:x", function(req) few:add(1, { x = req.params.x }) return 204 end)
app:get("/many/:x", function(req) many:add(1, { x = req.params.x }) return 204 end)
app:get("/collect", function() collectgarbage() return tostring(ls.stats().lua_collections) end)
app:get("/open", function(_, res) while res:write("x") do ls.sleep(0.01) end end)
app:get("/abort", function(_, res) res:write("x") ls.sleep(0.01) error "on purpose" end)
app:post("/eval", function(req) return tostring(select(2, pcall(load(req:body(), "=eval", "t", { orders = orders, depth = depth })))) end)
app:get("/stats", function() return ls.stats() end)
app:get("/rows", function() return require "luaserve.metric_table" end)
other:get("/other", function() return "other" end)
app:metrics("/metrics")
for n = 1, 5 do app:metrics("/again/" .. n) end
app:metrics("/secret", function(req, res, next) if req.query.key ~= "open" then return 401 end return next() end)
ls.listen("127.0.0.1:0", app)
ls.listen { host = "127.0.0.1", port = 0, hosts = { ["a.example"] = app, ["*.b.example"] = other } }
ls.listen { host = "127.0.0.1", port = 0, handler = ls.metrics }
ls.listen { host = "127.0.0.1", port = 0, handler = app, head_timeout = 0.2 }
"""
REQUESTS = "luaserve_http_requests_total"
PYTHON = "/usr/bin/python3"  # of the system, which has the packages of the distribution
READ = """
import json, sys
from %s import text_string_to_metric_families
sums = {}
for family in text_string_to_metric_families(sys.stdin.read()):
    sums[family.name] = sum(sample.value for sample in family.samples if not sample.name.endswith("_created"))
print(json.dumps(sums))
"""


class Metrics(E2E):
    def setUp(self):
        super().setUp()
        self.server = self.serve(SITE, listeners=4)

    def families(self, open_metrics=False, target="/metrics", index=0):
        headers = [("Accept", "application/openmetrics-text; version=1.0.0")] if open_metrics else []
        response = self.server.get(target, headers, index)
        self.assertEqual(response.status, 200)
        self.assertEqual(response.header("Content-Type"), "application/openmetrics-text; version=1.0.0; charset=utf-8" if open_metrics
                         else "text/plain; version=0.0.4; charset=utf-8")
        return parse(response.text, open_metrics)

    def value(self, family, labels=(), name=None):
        return self.families()[family].samples.get((name or family, tuple(labels)))

    def ask_many(self, targets, index=0, **kw):
        """One connection; the responses in their order."""
        with self.server.connect(index) as conn:
            for at in range(0, len(targets), 100):
                part = targets[at:at + 100]
                conn.send(b"".join(request("GET", target, **kw) for target in part))
                for _ in part:
                    conn.response()

    def test_both_formats(self):
        self.ask_many(["/", "/items/1", "/order", "/none"])
        plain, opened = self.families(), self.families(True)
        self.assertEqual(opened["orders"].help, 'of "all"\\ customers\nand lines')
        self.assertEqual(plain["orders_total"].samples, {("orders_total", (("country", 'a"b\\c\nd?'), ("paid", "true"))): 1.5})
        created = ("orders_created", tuple(plain["orders_total"].samples)[0][1])
        self.assertGreater(opened["orders"].samples.pop(created), opened["luaserve_http_requests"].samples[
            "luaserve_http_requests_created", (("route", "/"), ("method", "GET"), ("status", "2xx"))])
        self.assertEqual(opened["orders"].samples, plain["orders_total"].samples)
        self.assertEqual(sorted(name + "_total" if family.kind == "counter" else name for name, family in opened.items()), sorted(plain))
        self.assertEqual(list(plain["took_seconds"].samples.values()), [1, 2, 2, 3, 4.2, 3])
        for families in (self.families(index=2), self.families(index=2, target="/"), self.families(target="/secret?key=open")):
            self.assertEqual(set(families), set(plain))
        self.assertEqual(self.server.get("/secret").status, 401)

    def test_when_counters_were_made(self):
        """Each counter and histogram of OpenMetrics has the time: it does not change, also over a reload."""
        def made():
            return {key: value for family in self.families(True).values() for key, value in family.samples.items() if key[0].endswith("_created")}

        self.ask_many(["/", "/order"])
        first, families = made(), self.families(True)
        self.assertLessEqual(set(first.values()), {value for value in first.values() if abs(value - time.time()) < 86400})
        for name, family in families.items():
            ends = {"counter": "_total", "histogram": "_count"}.get(family.kind)
            sets = {labels for sample, labels in family.samples if ends and sample == name + ends}
            self.assertEqual({labels for sample, labels in family.samples if sample == name + "_created"}, sets, name)
        self.server.reload("reloaded")
        self.ask_many(["/order"])
        later = made()
        self.assertEqual({key: later[key] for key in first}, first)

    @not_on_windows("of another system: the packages of Python")
    def test_other_programs_read_both_formats(self):
        """The parsers of the client library of Prometheus, and promtool where it is installed."""
        self.ask_many(["/", "/items/1", "/order", "/none"])
        if subprocess.run([PYTHON, "-c", "import prometheus_client"], capture_output=True, check=False).returncode:
            self.skipTest("not installed: python3-prometheus-client")
        plain = self.server.get("/metrics").body
        for parser, text in (("prometheus_client.parser", plain),
                             ("prometheus_client.openmetrics.parser", self.server.get("/metrics", [("Accept", "application/openmetrics-text")]).body)):
            done = subprocess.run([PYTHON, "-c", READ % parser], input=text, capture_output=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, b""))
            self.assertEqual(json.loads(done.stdout)["plain"], 1)
        if shutil.which("promtool"):
            done = subprocess.run(["promtool", "check", "metrics"], input=plain, capture_output=True, check=False)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, b""))
    def test_requests(self):
        self.ask_many(["/", "/items/1", "/items/2", "/items/x", "/fail", "/none"])
        for _ in range(3):
            self.server.get("/other", [("Host", "x.b.example")], 1)
        self.server.get("/", [("Host", "a.example")], 1)
        with self.server.connect() as conn:
            conn.send(request("BREW", "/") + b"bad\x01\r\n\r\n")
            self.assertEqual([conn.response().status for _ in range(2)], [405, 400])

        def counts():
            return {tuple(dict(labels).get(key, "") for key in ("host", "route", "method", "status")): value
                    for (_, labels), value in self.families()[REQUESTS].samples.items() if value}

        with self.server.connect() as conn:
            self.assertEqual(conn.ask("POST", "/eval", body=b"return 1").status, 200)
        self.assertEqual({m for (_, labels) in self.families()[REQUESTS].samples for k, m in labels
                          if k == "method" and ("route", "/eval") in labels} - {"POST"}, set())
        expected = {("", "/", "GET", "2xx"): 1, ("", "/items/:id", "GET", "2xx"): 2, ("", "/items/:id", "GET", "4xx"): 1,
                    ("", "/fail", "GET", "5xx"): 1, ("", "none", "GET", "4xx"): 1, ("", "none", "other", "4xx"): 2,
                    ("a.example", "/", "GET", "2xx"): 1, ("*.b.example", "/other", "GET", "2xx"): 3}
        self.eventually(lambda: expected.items() <= counts().items(), "all requests have ended: %s" % counts())
        families = self.families()
        times = families["luaserve_http_request_duration_seconds"].samples
        self.assertEqual(times["luaserve_http_request_duration_seconds_count", (("route", "/items/:id"),)], 3)
        self.assertEqual(families["luaserve_http_response_bytes_total"].samples["luaserve_http_response_bytes_total", (("route", "/items/:id"),)], 8 + 10)

    def of_route(self, name, route="none"):
        return self.families()[name].samples.get((name, (("route", route),)), 0)

    def test_refused_requests(self):
        """Their bytes, and the time from the first of them, count as those of others do."""
        duration, received, sent = "luaserve_http_request_duration_seconds", 0, 0
        for data, status in ((b"GET / HTTP/1.1\r\nHost: h\r\nbad\x01\r\n\r\n", 400), (b"GET / HTTP/9.9\r\n\r\n", 505),
                             (b"GET / HTTP/1.1\r\nHost: h\r\n", 408)):
            with self.server.connect(3) as conn:
                response = conn.send(data).response()
            self.assertEqual(response.status, status)
            received, sent = received + len(data), sent + len(response.body)
        self.assertEqual(self.of_route("luaserve_http_request_bytes_total"), received)
        self.assertEqual(self.of_route("luaserve_http_response_bytes_total"), sent)
        times = self.families()[duration].samples
        self.assertEqual(times[duration + "_count", (("route", "none"),)], 3)
        self.assertGreater(times[duration + "_sum", (("route", "none"),)], 0.15)

    def test_responses_without_an_end(self):
        """A client that leaves inside a response counts as its 2xx, and as one that has left."""
        name = "luaserve_http_requests_incomplete_total"
        self.assertNotIn(name, self.families())
        with self.server.connect() as conn:
            conn.send(request("GET", "/open"))
            self.assertEqual(conn.head().status, 200)
        self.eventually(lambda: name in self.families(), "the server learns of it")
        self.assertEqual(self.families()[name].samples, {(name, (("route", "/open"), ("outcome", "left"))): 1})
        self.assertEqual(self.value(REQUESTS, (("route", "/open"), ("method", "GET"), ("status", "2xx"))), 1)
        with self.server.connect() as conn:
            conn.send(request("GET", "/abort"))
            conn.rest()
        self.eventually(lambda: (name, (("route", "/abort"), ("outcome", "aborted"))) in self.families()[name].samples, "it has ended")

    def test_collections_of_lua(self):
        before = int(self.server.get("/collect").text)
        self.assertGreater(int(self.server.get("/collect").text), before)
        self.assertGreater(self.value("luaserve_lua_collections_total"), before)

    def test_label_sets_are_those_of_the_routes(self):
        self.ask_many(["/", "/items/1", "/none"])
        self.server.get("/other", [("Host", "x.b.example")], 1)
        self.server.get("/", [("Host", "a.example")], 1)
        own = (REQUESTS, (("route", "/metrics"), ("method", "GET"), ("status", "2xx")))
        self.eventually(lambda: own in self.families()[REQUESTS].samples, "a scrape is counted when it has ended")
        before = {name: set(family.samples) for name, family in self.families().items()}
        many = repeats(10000)
        self.ask_many(["/%d/%d" % (n, n) for n in range(many)])
        self.ask_many(["/items/%d" % n for n in range(100)])
        with self.server.connect(1) as conn:
            for at in range(0, many, 100):
                conn.send(b"".join(request("GET", "/other", host="h%d.b.example" % (at + n)) for n in range(100)))
                for _ in range(100):
                    conn.response()
        after = {name: set(family.samples) for name, family in self.families().items()}
        self.assertEqual(after, before)
        self.assertEqual(self.value(REQUESTS, (("route", "none"), ("method", "GET"), ("status", "4xx"))), many + 1)

    def test_all_states_and_reloads(self):
        many = repeats(200)
        in_parallel([lambda: self.ask_many(["/order"] * many)] * 4)
        self.server.reload("reloaded")
        self.ask_many(["/order"])
        families = self.families()
        self.assertEqual(families["plain_total"].samples["plain_total", ()], 4 * many + 1)
        self.assertEqual(families["depth"].samples["depth", ()], -2 * (4 * many + 1))
        self.assertEqual(families["took_seconds"].samples["took_seconds_count", (("what", "all"),)], 3 * (4 * many + 1))
        self.server.get("/set/7.25")
        self.assertEqual(self.value("depth"), 7.25)

    def test_a_reload_may_define_another_metric(self):
        self.ask_many(["/order"])
        write_text(self.server.site, read_text(self.server.site).replace('name = "depth", help = "jobs"', 'name = "depth", help = "other"'))
        self.server.reload("reloaded")
        self.assertEqual(self.families()["depth"].help, "other")
        self.assertEqual(self.value("depth"), 0)

    def test_states_that_count_a_label_set_first_at_the_same_time(self):
        """Only one of them has made it: the others do not use up max_series."""
        sets = ["/many/%d" % n for n in range(300)]
        in_parallel([lambda: self.ask_many(sets)] * 4)
        families = self.families()
        self.assertEqual(set(families["many_total"].samples.values()), {4.0})
        self.assertEqual((len(families["many_total"].samples), self.value("luaserve_metrics_dropped_total")), (300, 0))

    def test_the_limit_of_label_sets(self):
        for x in "abc":
            self.server.get("/few/" + x)
        self.assertEqual(self.value("luaserve_metrics_dropped_total"), 0)
        for x in "dedabc":
            self.server.get("/few/" + x)
        self.assertEqual(self.families()["few_total"].samples, {("few_total", (("x", x),)): 2 for x in "abc"})
        self.assertEqual(self.value("luaserve_metrics_dropped_total"), 3)
        lines = [line for line in self.server.lines if line and "label sets" in line]
        self.assertEqual(len(lines), 1)
        self.assertRegex(lines[0], r'few \(.*site\.lua:\d+\) has max_series = 3 label sets: \{x="d"\} and further ones are not counted; take values of which there are few, or raise max_series')

    def test_wrong_calls(self):
        for code, message in (("orders:add(1, { country = 'x' })", "the label paid of orders must be"),
                              ("orders:add(1, { country = 'x', paid = 1, more = 2 })", "orders has no label \"more\""),
                              ("orders:add(-1, { country = 'x', paid = 1 })", "counter:add takes a number from 0 on; got -1"),
                              ("orders:add(1)", "the label country of orders must be"), ("depth:set()", "gauge:set takes a number; got nil"),
                              ("orders.add(1)", "eval:1: 'add' is a method of a counter: call it with a colon, counter:add(...); got 1 for the counter"),
                              ("depth.add(orders, 1)", "'add' is a method of a gauge"), ("depth:set(1, { x = 1 })", "depth has no label"), ("depth:set(0/0)", "takes a number")):
            answer = self.server.connect()
            with answer as conn:
                conn.send(request("POST", "/eval", body=code.encode()))
                self.assertIn(message, conn.response().text)

    def test_each_number_of_ls_stats_has_a_row(self):
        rows = {row[0]: row[1:] for row in json.loads(self.server.get("/rows").text)}
        self.assertEqual(sorted(set(json.loads(self.server.get("/stats").text)) - set(rows)), [])
        for metric, kind, *_ in rows.values():
            self.assertEqual(metric.endswith("_total"), kind == "counter", metric)


class Objects(E2E):
    def test_dicts_channels_caches_upstreams_and_queues(self):
        upstream = self.serve(app_site('app:get("/*path", function(_, res) res:header("Cache-Control", "max-age=60") return "up" end)'))
        origin = "http://127.0.0.1:%d" % upstream.port()
        server = self.serve(app_site(r"""
            local d = ls.dict "of the \"site\""
            local c = ls.channel("waiting", { capacity = 5 })
            local jobs = ls.queue("mail", { file = "@DIR@/jobs.db" })
            app:get("/do", function()
              d:set("a", 1) d:set("b", 2)
              c:send(1) c:send(2) c:send(3)
              for n = 1, 2 do jobs:push { n = n } end
            end)
            app:proxy("/up", "%s", { cache = { size = "1m" } })
            app:proxy("/none", { "http://127.0.0.1:1", "http://127.0.0.1:2" })
            app:metrics("/metrics")""" % origin))
        server.get("/do")
        for _ in range(3):
            self.assertEqual(server.get("/up/x").text, "up")
        families = parse(server.get("/metrics").text)
        self.assertEqual(families["luaserve_dict_entries"].samples, {("luaserve_dict_entries", (("dict", 'of the "site"'),)): 2})
        self.assertGreater(families["luaserve_dict_bytes"].samples["luaserve_dict_bytes", (("dict", 'of the "site"'),)], 2)
        self.assertEqual(families["luaserve_channel_values"].samples, {("luaserve_channel_values", (("channel", "waiting"),)): 3})
        self.assertEqual([list(families["luaserve_cache_%s_total" % name].samples.values()) for name in ("hits", "stored")], [[2], [1]])
        self.assertGreater(sum(families["luaserve_cache_bytes"].samples.values()), 2)
        self.assertEqual(families["luaserve_upstream_down"].samples["luaserve_upstream_down", (("upstream", origin),)], 0)
        self.eventually(lambda: parse(server.get("/metrics").text)["luaserve_upstream_requests"].samples[
            "luaserve_upstream_requests", (("upstream", origin),)] == 0, "a request to the server ends after its response")
        jobs = {dict(labels)["state"]: count for (_, labels), count in families["luaserve_queue_jobs"].samples.items()}
        self.assertEqual((jobs["ready"], families["luaserve_jobs_pushed_total"].samples["luaserve_jobs_pushed_total", ()]), (2, 2))
        for _ in range(6):
            self.assertEqual(server.get("/none").status, 502)
        down = {dict(labels)["upstream"]: down for (_, labels), down in parse(server.get("/metrics").text)["luaserve_upstream_down"].samples.items()}
        self.assertEqual(down, {origin: 0, "http://127.0.0.1:1": 1, "http://127.0.0.1:2": 1})


    def test_timers_and_handshakes(self):
        server = self.serve(app_site("""
            local plain = ls.app():metrics("/metrics")
            ls.config { threads = 2, drain_timeout = 0.1 }
            ls.every(3600, print)
            app:get("/set", function() ls.after(3600, print) ls.after(3600, print):cancel() return "set" end)
            ls.listen("127.0.0.1:0", plain)""", 'tls = "self-signed"'), listeners=2)
        timers, handshakes = "luaserve_timers", "luaserve_tls_handshakes_total"

        def values():
            families = parse(server.get("/metrics").text)
            return [families[name].samples[name, ()] for name in (timers, handshakes, handshakes.replace("_total", "_failed_total"))]

        self.assertEqual(values(), [1, 0, 0])
        self.assertEqual(tls.get(server.port(1), "/set"), "set")
        with server.connect(1) as conn:
            conn.send(b"GET / HTTP/1.1\r\n\r\n")
            self.assertEqual(conn.response().status, 400)
        self.assertEqual(values(), [2, 1, 1])
        server.reload("reloaded")
        self.eventually(lambda: values()[0] == 1, "that of the new site")


class Definitions(E2E):
    def test_what_is_refused(self):
        first = 'ls = require "luaserve" local m = ls.metrics\nm.counter { name = "a", help = "h" }\n'
        for code, message in (('m.gauge { name = "a", help = "h" }', "a is already a counter with other options, at @DIR@/site.lua:2; give one of them another name"),
                              ('m.counter { name = "a", help = "h", labels = { "x" } }', "already a counter with other options"),
                              ('m.counter { name = "b" }', "help is missing"), ('m.counter { name = "9", help = "h" }', "name must have letters"),
                              ('m.gauge { name = "b_total", help = "h" }', "nor end in _total"), ('m.gauge { name = "process_b", help = "h" }', "not begin with"),
                              ('m.histogram { name = "b", help = "h", labels = { "le" } }', 'labels[1]: the name "le" is reserved: the bounds of'),
                              ('m.gauge { name = "b", help = "h", labels = { "__x" } }', '"__x" is reserved for Prometheus'),
                              ('m.gauge { name = "b", help = "h", labels = { "x", "x" } }', 'labels has "x" twice'),
                              ('m.gauge { name = "b", help = "h", labels = { "a-b" } }', "labels[1] must have letters, digits and _; got"),
                              ('m.histogram { name = "b", help = "h", buckets = { 2, 1 } }', "buckets must be 1 to 64 numbers that grow"),
                              ('m.gauge { name = "b", help = "h", buckets = { 1 } }', "unknown option \"buckets\""),
                              ('ls.app():metrics("/metrics", { auth = print })',
                               'unknown option "auth"; app:metrics("/metrics", auth) takes the middleware itself'),
                              ('m.counter { name = "c", help = "h" }:set(1)', 'a counter has no "set": call counter:add(n)'),
                              ('m.gauge { name = "c", help = "h" }:inc()', 'a gauge has no "inc": call gauge:set(n) and gauge:add(n)'),
                              ('m.histogram { name = "c", help = "h" }:add(1)', 'a histogram has no "add": call histogram:observe(n)'),
                              ('m.countr { }', "did you mean 'counter'")):
            self.refuses(first + code, message)

    def test_without_a_route_requests_are_not_counted(self):
        server = self.serve(app_site("""
            ls.metrics.counter { name = "a", help = "h" }:add()
            app:get("/", function() return tostring(require("luaserve.records").wanted) end)"""))
        self.assertEqual(server.get("/").text, "false")
