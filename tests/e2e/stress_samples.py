"""What the tests of a stress run's reports share: runs that never took place, whose figures are known (written by
tests/unit/stress/report_sample.c), a JSON parser without Python's liberties, and a small tree of an HTML page."""
import functools
import html.parser
import json
import os
import re
import subprocess

from luaserve_e2e import LUASERVE, WAIT

SAMPLE = os.path.join(os.path.dirname(LUASERVE), "tests", "report_sample")
KINDS = ["closed", "open", "ramp", "empty", "hostile", "long"]
STATUS = {"open": 99, "empty": 99}


@functools.lru_cache(maxsize=None)
def report(kind, form):
    done = subprocess.run([SAMPLE, kind, form], capture_output=True, timeout=WAIT * 3, check=False)
    assert done.returncode == STATUS.get(kind, 0), (done.returncode, done.stderr)
    assert done.stderr == b"", done.stderr
    return done.stdout.decode("utf-8") if form != "text" else done.stdout.decode("utf-8", "replace")


def strict_json(text):
    """Refuses what Python allows beyond RFC 8259, and names that come twice."""

    def constant(name):
        raise ValueError("%s is no JSON" % name)

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
            if (name is None or child.name == name) and all(
                    child.attributes.get(k.replace("_", "-")) == v for k, v in wanted.items()):
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
