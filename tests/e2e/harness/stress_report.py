"""Reports of `luaserve stress` and their readers: sample reports with known figures (tests/unit/stress/report_sample.c
writes them), a strict JSON parser, the schema of the JSON report, and the element tree of an HTML page."""
import functools
import html.parser
import json
import os
import re
import subprocess

from harness import LUASERVE, ROOT, WAIT, WINE

SAMPLE = [os.path.join(os.path.dirname(LUASERVE), "tests", "report_sample")]
if WINE:
    SAMPLE = [os.path.join(ROOT, "third_party", "windows", "wine"), SAMPLE[0] + ".exe"]
SAMPLE.append(os.path.join(ROOT, "tests", "unit", "stress", "report_sample.lua"))
KINDS = ["closed", "tls", "fanout", "open", "ramp", "short", "empty", "hostile", "long"]
STATUS = {"open": 99, "short": 1, "empty": 99, "hostile": 99}


@functools.lru_cache(maxsize=None)
def report(kind, form):
    """A sample report; `form` is its format."""
    done = subprocess.run([*SAMPLE, kind, form], capture_output=True, timeout=WAIT * 3, check=False)
    assert done.returncode == STATUS.get(kind, 0), (done.returncode, done.stderr)
    assert done.stderr == b"", done.stderr
    return done.stdout.decode("utf-8") if form != "text" else done.stdout.decode("utf-8", "replace")


def strict_json(text):
    """Parse JSON; reject duplicate names and what Python's parser allows beyond RFC 8259."""

    def constant(name):
        raise ValueError("not JSON: %s" % name)

    def pairs(members):
        names = [name for name, _ in members]
        assert len(set(names)) == len(names), names
        return dict(members)

    return json.loads(text, parse_constant=constant, object_pairs_hook=pairs)


@functools.lru_cache(maxsize=None)
def run_of(kind):
    return strict_json(report(kind, "json"))


VOID = {"meta", "link", "br", "img", "input", "hr"}


class Node:
    def __init__(self, name, attributes, parent):
        self.name, self.attributes, self.parent = name, dict(attributes), parent
        self.children, self.words = [], []

    def all(self, name=None, **wanted):
        for child in self.children:
            if (name is None or child.name == name) and all(child.attributes.get(k.replace("_", "-")) == v for k, v in wanted.items()):
                yield child
            yield from child.all(name, **wanted)

    def one(self, name=None, **wanted):
        found = list(self.all(name, **wanted))
        assert len(found) == 1, (name, wanted, len(found))
        return found[0]

    def text(self):
        return "".join(w if isinstance(w, str) else w.text() for w in self.words)


class Tree(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.root = self.at = Node("", (), None)
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        node = Node(tag, attrs, self.at)
        self.at.children.append(node)
        self.at.words.append(node)
        if tag not in VOID:
            self.at = node

    def handle_startendtag(self, tag, attrs):
        node = Node(tag, attrs, self.at)
        self.at.children.append(node)

    def handle_endtag(self, tag):
        node = self.at
        while node is not None and node.name != tag:
            node = node.parent
        if node is not None:
            self.at = node.parent

    def handle_data(self, data):
        self.at.words.append(data)


def inner_json(page):
    return strict_json(re.search(r'<script type="application/json" id="run">(.*?)</script>', page, re.S)[1])


# ---- the schema of the JSON report: the tables of REPORTS.md ----------------------------------------------------------

NUMBER, COUNT, TEXT, FLAG = (int, float), int, str, bool
MAYBE = (int, float, type(None))
LATENCY = {"count": COUNT, "min": MAYBE, "mean": MAYBE, "stdev": MAYBE, "max": MAYBE, "within_stdev_percent": MAYBE,
           "over_an_hour": COUNT,
           "percentiles": {p: MAYBE for p in "p50 p75 p90 p95 p99 p99.9 p99.99 p99.999".split()}}
CURVED = dict(LATENCY, curve=list)
SCHEMA = {
    "format": TEXT, "version": COUNT, "luaserve": TEXT, "started": TEXT, "interrupted": FLAG, "exit_status": COUNT,
    "failure": (str, type(None)), "short_of": (str, type(None)),
    "config": {"target": TEXT, "script": (str, type(None)), "mode": TEXT, "threads": COUNT, "connections": COUNT,
               "duration_s": MAYBE, "requests": MAYBE, "rate_per_s": MAYBE, "pipeline": COUNT, "streams": MAYBE, "message_bytes": MAYBE, "keepalive": FLAG,
               "tls_resume": FLAG, "timeout_s": MAYBE, "backend": TEXT,
               "stages": [{"duration_s": NUMBER, "rate_per_s": MAYBE, "connections": MAYBE}]},
    "totals": {"duration_s": NUMBER, "requests": COUNT, "requests_per_s": NUMBER, "asked_per_s": MAYBE, "unsent": COUNT, "in_flight": MAYBE,
               "behind_s": MAYBE, "connects": COUNT, "bytes_in": COUNT, "bytes_out": COUNT, "bytes_in_per_s": NUMBER,
               "bytes_out_per_s": NUMBER},
    "latency_us": {"corrected": CURVED, "uncorrected": CURVED},
    "tls": {"full": COUNT, "resumed": COUNT, "failed": COUNT, "handshake_us": LATENCY},
    "websocket": {"handshakes": COUNT, "failed": COUNT, "deflate": COUNT, "handshake_us": LATENCY, "close_codes": dict},
    "fanout": {"publishers": COUNT, "subscribers": COUNT, "topics": COUNT, "stalled": COUNT, "sse": FLAG, "published": COUNT,
               "published_per_s": NUMBER, "expected": COUNT, "delivered": COUNT, "lost": COUNT, "reordered": COUNT,
               "duplicated": COUNT, "ignored": COUNT},
    "engine_lag_us": LATENCY, "engine_late": FLAG,
    "thread_rate_per_s": {"samples": COUNT, "mean": NUMBER, "stdev": NUMBER, "max": NUMBER, "within_stdev_percent": NUMBER},
    "status": dict, "status_classes": {c: COUNT for c in "1xx 2xx 3xx 4xx 5xx".split()},
    "errors": {e: COUNT for e in "total connect tls handshake subscribe read write timeout unanswered answer script body check".split()},
    "checks": [{"name": TEXT, "passed": COUNT, "failed": COUNT}],
    "thresholds": [{"text": TEXT, "metric": TEXT, "met": FLAG, "limit": NUMBER, "actual": MAYBE, "unit": TEXT, "actual_text": TEXT}],
    "series": [{"from_s": NUMBER, "to_s": NUMBER, "requests": COUNT, "requests_per_s": NUMBER, "errors": COUNT,
                "failed_status": COUNT, "bytes_in": COUNT, "bytes_out": COUNT, "connections": COUNT, "p50_us": MAYBE,
                "p99_us": MAYBE, "max_us": MAYBE}],
    "series_cut": FLAG,
}
NULLABLE = {"corrected", "engine_lag_us",  # null in a closed loop
            "tls", "tls_resume",  # without TLS
            "websocket", "fanout"}  # and in other runs


def check_schema(test, value, schema=None, where="run"):
    """Fail the test unless the members of `value` are the documented ones, in the documented order (so that diffs of
    reports stay readable), of the documented types, and no number is negative."""
    schema = SCHEMA if schema is None else schema
    if isinstance(schema, dict):
        test.assertEqual(list(value), list(schema), where)
        for name, inner in schema.items():
            if value[name] is not None or name not in NULLABLE:
                check_schema(test, value[name], inner, where + "." + name)
    elif isinstance(schema, list):
        for i, element in enumerate(value):
            check_schema(test, element, schema[0], "%s[%d]" % (where, i))
    else:
        test.assertIsInstance(value, schema, where)
        if not isinstance(value, bool) and isinstance(value, (int, float)):
            test.assertGreaterEqual(value, 0, where)
        if schema is not FLAG:
            test.assertNotIsInstance(value, bool, where)
