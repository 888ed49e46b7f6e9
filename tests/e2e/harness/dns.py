"""Dns: a name server for a test, which the site's `nameservers` names."""
import collections
import functools
import re
import socket
import struct
import subprocess
import threading

from harness import LUASERVE

CHOSEN = ', nameservers = "127.0.0.1:@DNS@"'  # in the ls.config of a site


@functools.lru_cache(maxsize=None)
def has_resolver():
    """Whether the program can look up names."""
    about = subprocess.run([LUASERVE, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"(?m)^names: (.*)$", about)[1] != "addresses only"


def looks_up_names(test):
    """Skip a test when the program has no resolver."""

    @functools.wraps(test)
    def checked(self):
        if not has_resolver():
            self.skipTest("this build has no resolver")
        test(self)

    return checked


class Dns:
    """A name server with a few names: A and AAAA records, "no such name", names it never answers, and answers it holds
    back."""

    NAMES = {"one.test": ["127.0.0.1"], "two.test": ["127.0.0.2", "127.0.0.1"], "six.test": ["::1"],
             "both.test": ["::1", "127.0.0.1"], "held.test": ["127.0.0.1"], "again.test": ["127.0.0.1"]}

    def __init__(self):
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sock.bind(("127.0.0.1", 0))
        self.port = self.sock.getsockname()[1]
        self.asked, self.asked_about = 0, collections.Counter()
        self.held, self.answers = None, []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                question, peer = self.sock.recvfrom(4096)
            except OSError:
                return
            self.asked += 1
            labels, at = [], 12
            while question[at]:
                labels.append(question[at + 1:at + 1 + question[at]].decode())
                at += 1 + question[at]
            name = ".".join(labels).lower()
            self.asked_about[name] += 1
            kind = struct.unpack(">H", question[at + 1:at + 3])[0]
            if name == "silent.test":
                continue
            known = name in self.NAMES
            answers = []
            for text in self.NAMES.get(name, []):
                six = ":" in text
                if kind == (28 if six else 1):
                    raw = socket.inet_pton(socket.AF_INET6 if six else socket.AF_INET, text)
                    answers.append(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 60, len(raw)) + raw)
            head = question[:2] + struct.pack(">HHHHH", 0x8180 | (0 if known else 3), 1, len(answers), 0, 0)
            answer = head + question[12:at + 5] + b"".join(answers)
            if name == self.held:
                self.answers.append((answer, peer))
            else:
                self.sock.sendto(answer, peer)

    def hold(self, name):
        """Hold back the answers to questions about this name until release()."""
        self.held = name

    def release(self):
        self.held = None
        for answer, peer in self.answers:
            self.sock.sendto(answer, peer)

    def close(self):
        self.sock.close()

    def asked_by(self, site):
        """The text of `site`, in which CHOSEN occurs, with the port of this name server."""
        return site.replace("@DNS@", str(self.port))
