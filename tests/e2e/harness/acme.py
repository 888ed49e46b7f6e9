"""Authorities of certificates (RFC 8555): Debian's Pebble, and a small one that fails as a test wants."""
import base64
import hashlib
import http.server
import itertools
import json
import os
import secrets
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

from harness import tls
from harness.environment import WAIT, free_port
from harness.server import read_bytes, read_text, write_bytes, write_text

PEBBLE, DNS = shutil.which("pebble"), shutil.which("pebble-challtestsrv")
ERROR = "urn:ietf:params:acme:error:"


def unpacked(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def packed(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def alert_of(port, name):
    """The name of the alert by which the server refuses a handshake; None: it has a certificate."""
    try:
        with tls.client(port, name=name):
            return None
    except ssl.SSLError as error:
        return error.reason
    except OSError as error:
        return type(error).__name__


class Pebble:
    """Pebble and its DNS server, which answers 127.0.0.1 for all names. `more`: of its configuration; `env`: PEBBLE_... without the
    prefix."""

    def __init__(self, folder, http_port, tls_port, port=None, more=None, **env):
        self.port, dns, management = port or free_port(), free_port(), free_port()
        self.roots = f"https://127.0.0.1:{management}/roots/0"
        self.url, self.ca = f"https://127.0.0.1:{self.port}/dir", folder + "/pebble.pem"
        tls.certificate(folder, "pebble", names=("IP:127.0.0.1",))
        settings = {"listenAddress": f"127.0.0.1:{self.port}", "certificate": self.ca, "privateKey": folder + "/pebble.key",
                    "managementListenAddress": f"127.0.0.1:{management}", "httpPort": http_port, "tlsPort": tls_port, **(more or {})}
        write_text(folder + "/pebble.json", json.dumps({"pebble": settings}))
        self.log = open(folder + "/pebble.log", "wb")  # pylint: disable=consider-using-with
        none = [word for name in ("http01", "https01", "tlsalpn01") for word in ("-" + name, "")]
        self.programs = [
            self.start([DNS, "-dns01", f"127.0.0.1:{dns}", "-defaultIPv6", "", "-management", f"127.0.0.1:{free_port()}", *none]),
            self.start([PEBBLE, "-config", folder + "/pebble.json", "-dnsserver", f"127.0.0.1:{dns}"], env)]
        deadline = time.monotonic() + WAIT
        while not self.listens():
            assert time.monotonic() < deadline and self.programs[1].poll() is None, read_text(folder + "/pebble.log")
            time.sleep(0.01)

    def listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def root(self):
        """The path of the certificate that it signs by. It has another one after each start."""
        with urllib.request.urlopen(self.roots, context=tls.context(self.ca), timeout=WAIT) as answer:
            write_bytes(self.ca + ".root", answer.read())
        return self.ca + ".root"

    def start(self, command, env=()):
        given = {"PEBBLE_" + name: str(value) for name, value in dict(env).items()}
        return subprocess.Popen(command, env={**os.environ, **given}, stdout=self.log, stderr=self.log)

    def close(self):
        for program in self.programs:
            program.kill()
            program.wait(WAIT)
        self.programs = []
        self.log.close()


class Authority:
    """A small one at 127.0.0.1, without https and without a look at signatures, which Pebble checks. What it does:

    kinds      the types of the challenges that it offers
    faults     by the first part of a path, such as "order": a list of (status, type of the error, Retry-After), one for each request
    late       how often an authorization is pending before it ends
    window     None, or (start, stop), seconds since 1970: when a certificate is to be renewed (RFC 9773)
    profiles   None, or a table
    wrong      None, or what is wrong with its certificates: "name", "chain", "key"
    ready      an event: requests wait for it
    orders     the payloads of all orders so far
    serials    the serial numbers of all certificates so far"""

    def __init__(self, folder, http_port, tls_port=None):
        self.folder, self.http_port, self.tls_port = folder, http_port, tls_port
        self.kinds, self.faults, self.late, self.accounts = ["http-01", "tls-alpn-01"], {}, 0, 0
        self.window = self.profiles = self.wrong = self.jwk = None
        self.orders, self.serials, self.known, self.nonces, self.numbers = [], [], [], set(), itertools.count(1)
        self.lock, self.ready, authority = threading.Lock(), threading.Event(), self
        self.ready.set()
        for name in "root", "other":
            tls.certificate(folder, name)

        class Handler(http.server.BaseHTTPRequestHandler):
            """A request."""
            protocol_version = "HTTP/1.1"

            def answer(self):
                status, body, headers = authority.answer(self)
                body = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Replay-Nonce", authority.nonce())
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = do_POST = answer

            def log_message(self, format, *args):  # pylint: disable=redefined-builtin
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = "http://127.0.0.1:%d/" % self.server.server_address[1]
        self.url = self.base + "dir"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def nonce(self):
        nonce = secrets.token_urlsafe(16)
        self.nonces.add(nonce)
        return nonce

    def problem(self, status, kind, retry_after=None):
        return status, {"type": ERROR + kind, "detail": "as the test wants"}, {"Retry-After": retry_after} if retry_after else {}

    def answer(self, request):
        """(status, body, fields)"""
        self.ready.wait(WAIT)
        path = request.path[1:].split("/")
        head, payload = {}, None
        if request.command == "POST":
            jws = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
            head, text = json.loads(unpacked(jws["protected"])), unpacked(jws["payload"])
            payload = json.loads(text) if text else None
            if head["nonce"] not in self.nonces or head["url"] != self.base + request.path[1:]:
                return self.problem(400, "badNonce")
            self.nonces.discard(head["nonce"])
        with self.lock:
            if self.faults.get(path[0]):
                return self.problem(*self.faults[path[0]].pop(0))
            return getattr(self, "on_" + path[0])(path[1:], head, payload)

    def on_dir(self, _path, _head, _payload):
        urls = {"newNonce": self.base + "nonce", "newAccount": self.base + "account", "newOrder": self.base + "order",
                "meta": {"profiles": self.profiles} if self.profiles else {}}
        if self.window:
            urls["renewalInfo"] = self.base + "renewal"
        return 200, urls, {}

    def on_nonce(self, _path, _head, _payload):
        return 204, b"", {}

    def on_account(self, path, head, _payload):
        if path:
            return (200, {"status": "valid"}, {}) if path == [str(self.accounts)] else self.problem(403, "unauthorized")
        self.jwk = head["jwk"]
        self.accounts += 1
        return 201, {"status": "valid"}, {"Location": self.base + "account/%d" % self.accounts}

    def on_order(self, path, _head, payload):
        if path:
            order = self.known[int(path[0])]
            return 200, self.shown(order), {}
        names = [one["value"] for one in payload["identifiers"]]
        order = {"number": len(self.known), "certificate": None, "names": [
            {"name": name, "status": "pending", "token": secrets.token_urlsafe(20), "polls": 0, "error": None} for name in names]}
        self.orders.append(payload)
        self.known.append(order)
        return 201, self.shown(order), {"Location": self.base + "order/%d" % order["number"]}

    def shown(self, order):
        states = {one["status"] for one in order["names"]}
        status = "invalid" if "invalid" in states else "pending" if "pending" in states else "ready"
        base = self.base + "%s/" + str(order["number"])
        shown = {"status": "valid" if order["certificate"] else status, "finalize": base % "finalize",
                 "authorizations": [base % "authz" + "/%d" % i for i in range(len(order["names"]))]}
        return {**shown, "certificate": base % "cert"} if order["certificate"] else shown

    def on_authz(self, path, _head, _payload):
        one = self.known[int(path[0])]["names"][int(path[1])]
        if one["status"] == "asked":
            one["polls"] += 1
        if one["status"] == "asked" and one["polls"] > self.late:
            one["status"] = "invalid" if one["error"] else "valid"
        status = "pending" if one["status"] == "asked" else one["status"]
        return 200, {"status": status, "identifier": {"type": "dns", "value": one["name"]}, "challenges": [
            {"type": kind, "token": one["token"], "status": status, "url": self.base + "/".join(["challenge", *path, kind]),
             "error": one["error"] and {"detail": one["error"]}} for kind in self.kinds]}, {}

    def on_challenge(self, path, _head, _payload):
        one = self.known[int(path[0])]["names"][int(path[1])]
        try:
            self.check(one, path[2])
        except (OSError, AssertionError) as error:
            one["error"] = "%s: %s" % (type(error).__name__, error)
        one["status"] = "asked"
        return 200, {"status": "processing"}, {}

    def check(self, one, kind):
        thumb = packed(hashlib.sha256(json.dumps(dict(sorted(self.jwk.items())), separators=(",", ":")).encode()).digest())
        expected = (one["token"] + "." + thumb).encode()
        if kind == "http-01":
            url = "http://127.0.0.1:%d/.well-known/acme-challenge/%s" % (self.http_port, one["token"])
            with urllib.request.urlopen(urllib.request.Request(url, headers={"Host": one["name"]}), timeout=WAIT) as answer:
                got = answer.read()
            assert got == expected, (got, expected)
        else:
            with tls.client(self.tls_port, tls.context(alpn=["acme-tls/1"]), one["name"]) as conn:
                assert conn.selected_alpn_protocol() == "acme-tls/1"
                assert hashlib.sha256(expected).digest() in conn.getpeercert(True)

    def on_finalize(self, path, _head, payload):
        order = self.known[int(path[0])]
        base = "%s/leaf%d" % (self.folder, next(self.numbers))
        write_bytes(base + ".der", unpacked(payload["csr"]))
        key = ["req", "-inform", "DER", "-in", base + ".der", "-out", base + ".csr"]
        tls.openssl(*key if self.wrong != "key" else ("req", "-new", "-key", "other.key", "-subj", "/CN=x", "-out", base + ".csr"),
                    folder=self.folder)
        names = ["another.example"] if self.wrong == "name" else [one["name"] for one in order["names"]]
        write_text(base + ".ext", "subjectAltName=%s\nauthorityKeyIdentifier=keyid" % ",".join("DNS:" + name for name in names))
        self.serials.append(secrets.randbits(100))
        tls.openssl("x509", "-req", "-in", base + ".csr", "-CA", "root.pem", "-CAkey", "root.key", "-days", "3", "-extfile",
                    base + ".ext", "-set_serial", str(self.serials[-1]), "-out", base + ".pem", folder=self.folder)
        chain = "other" if self.wrong == "chain" else "root"
        order["certificate"] = read_bytes(base + ".pem") + read_bytes("%s/%s.pem" % (self.folder, chain))
        return 200, self.shown(order), {}

    def on_cert(self, path, _head, _payload):
        return 200, self.known[int(path[0])]["certificate"], {}

    def on_renewal(self, _path, _head, _payload):
        start, stop = (time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) for at in self.window)
        return 200, {"suggestedWindow": {"start": start, "end": stop}, "explanationURL": "https://why.example/"}, {"Retry-After": "3600"}
