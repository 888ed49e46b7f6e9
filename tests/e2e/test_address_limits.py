"""Limits of an address: allow, deny, max_connections_per_ip, max_streams_per_ip, and the requests and the time of a connection."""
import contextlib
import json

from harness import E2E, Closed, app_site, request, table
from harness import http2 as h
from harness.http2 import H2, Reset

LOCAL = '"127.0.0.1:0"'
SITE = """
local ls = require "luaserve"
local app, gates = ls.app(), ls.dict "gates"
app:get("/", function(req) return req.ip end)
app:get("/stats", function() return ls.stats() end)
app:get("/sleep", function() gates:incr "asleep" while not gates:get "open" do ls.sleep(0.01) end return "slept" end)
app:get("/asleep", function() return tostring(gates:get "asleep") end)
app:get("/open", function() gates:set("open", true) return "" end)
app:ws("/ws", function(ws) for m in ws:messages() do ws:send(m) end end)
local function listen(more)
  more.host, more.port, more.handler = "127.0.0.1", 0, app
  ls.listen(more)
end
listen {}
listen { proxy_protocol = true, trusted = { "127.0.0.1" }, allow = { "192.0.2.0/24", "2001:db8::/32" }, deny = { "192.0.2.7", "2001:db8:1::/48" } }
listen { proxy_protocol = true, trusted = { "127.0.0.1" }, max_connections_per_ip = 2 }
listen { deny = { "127.0.0.0/8" }, tls = "self-signed" }
listen { trusted = { "127.0.0.1" }, deny = { "127.0.0.1" }, max_connections_per_ip = 1 }
ls.tcp(%s, function(sock) sock:send "tcp" end, { allow = { "192.0.2.1" } })
""" % LOCAL
PLAIN, LISTS, COUNTED, DENIED_TLS, TRUSTED, TCP = range(6)


class Lists(E2E):
    SITE = SITE
    LISTENERS = 6

    def counter(self, name):
        return json.loads(self.get("/stats").text)[name]

    def proxied(self, address, index, target="/", headers=()):
        """A connection that a proxy announces, with a request."""
        conn = self.connect(index)
        family = b"TCP6" if ":" in address else b"TCP4"
        conn.send(b"PROXY %s %s %s 1 2\r\n" % (family, address.encode(), address.encode()))
        conn.send(request("GET", target, headers))
        return conn

    def is_refused(self, conn):
        """Whether it is closed without a response."""
        try:
            conn.response()
        except (Closed, ConnectionError):
            return True
        return False

    def test_allow_and_deny(self):
        before = self.counter("refused_denied")
        cases = (("192.0.2.6", False), ("192.0.2.7", True), ("192.0.2.8", False), ("192.0.3.1", True), ("2001:db8::1", False),
                 ("2001:db8:1::1", True), ("2001:db9::1", True))

        def check(case):
            address, refused = case
            with self.proxied(address, LISTS) as conn:
                self.assertEqual(self.is_refused(conn), refused)

        table(self, [(case[0], case) for case in cases], check)
        self.assertEqual(self.counter("refused_denied") - before, 4)

    def test_at_the_accept(self):
        """Before TLS, for TCP as well; a peer in `trusted` is a proxy, which has no limits."""
        before = self.counter("refused_denied")
        for index in (DENIED_TLS, TCP):
            with self.connect(index) as conn, contextlib.suppress(ConnectionError):
                self.assertEqual(conn.sock.recv(1), b"")
        self.assertEqual(self.counter("refused_denied") - before, 2)
        with self.connect(TRUSTED) as one, self.connect(TRUSTED) as two:
            for conn in (one, two):
                conn.send(request("GET", "/"))
                self.assertEqual(conn.response().status, 200)

    def test_connections_of_an_address(self):
        """At the limit and one past; a /64 of IPv6 is one address; an end makes room, of a WebSocket too."""
        upgrade = (("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="))
        for first, second, other in (("192.0.2.1", "192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::ffff", "2001:db8:0:1::1")):
            with self.proxied(second, COUNTED) as kept:
                self.assertEqual(kept.response().status, 200)
                with self.proxied(first, COUNTED, "/ws", upgrade) as websocket:
                    self.assertEqual(websocket.head().status, 101)
                    before = self.counter("refused_per_ip")
                    for address in (first, second):
                        with self.proxied(address, COUNTED) as conn:
                            self.assertTrue(self.is_refused(conn), address)
                    self.assertEqual(self.counter("refused_per_ip") - before, 2)
                    with self.proxied(other, COUNTED) as conn:
                        self.assertEqual(conn.response().status, 200)

                def has_room():
                    with self.proxied(first, COUNTED) as conn:
                        return not self.is_refused(conn)

                self.eventually(has_room, "the WebSocket has ended")

    def test_one_line_of_the_log(self):
        for _ in range(3):
            with self.proxied("198.51.100.1", LISTS) as conn:
                self.assertTrue(self.is_refused(conn))
        self.eventually(lambda: self.counter("refused_denied") >= 3, "they are counted")
        self.assertEqual(len([line for line in self.server.lines if line and "the address is" in line]), 1)


class OfAConnection(E2E):
    SITE = SITE + """
listen { max_requests_per_connection = 3, http2 = true }
listen { max_time_per_connection = 0.001, http2 = true }
listen { max_streams_per_ip = 2, http2 = true }
"""
    LISTENERS = 9

    def ask_until_closed(self, index, most):
        with self.connect(index) as conn:
            for count in range(1, most + 1):
                conn.send(request("GET", "/"))
                if conn.response().header("Connection") == "close":
                    self.assertEqual(conn.sock.recv(1), b"")
                    return count
        return most

    def test_requests(self):
        self.assertEqual(self.ask_until_closed(6, 9), 3)
        with self.connect(6) as conn:  # pipelined
            conn.send(4 * request("GET", "/"))
            self.assertEqual([conn.response().header("Connection") for _ in range(3)], [None, None, "close"])
            with contextlib.suppress(ConnectionError):
                self.assertEqual(conn.sock.recv(1), b"")

    def test_time(self):
        self.assertLess(self.ask_until_closed(7, 1000), 1000)
        self.assertEqual(self.ask_until_closed(0, 20), 20)

    @h.needs_http2
    def test_http2(self):
        for index, least in ((6, 3), (7, 1)):
            client = self.owns(H2(self.server.at(index)))
            for _ in range(least):
                self.assertEqual(client.request("/").status, 200)
            if index == 7:
                with contextlib.suppress(Closed):
                    while not client.goaways:
                        client.request("/")
            client.goaway()
            self.assertEqual(client.end(), 0)

    @h.needs_http2
    def test_streams_of_an_address(self):
        """Over all its connections, at the limit and one past."""
        one, two = (self.owns(H2(self.server.at(8))) for _ in range(2))
        held = [(client, client.open("/sleep")) for client in (one, two)]
        for client in (one, two):
            client.ping()
        self.eventually(lambda: self.get("/asleep").text == "2", "both run")
        for client in (one, two):
            with self.assertRaises(Reset) as refused:
                client.request("/")
            self.assertEqual(refused.exception.code, 7)
        self.assertEqual(json.loads(self.get("/stats").text)["http2_refused_per_ip"], 2)
        self.get("/open")
        for client, stream in held:
            self.assertEqual(client.response(stream).status, 200)
        self.eventually(lambda: self.is_served(one), "there is room again")

    @staticmethod
    def is_served(client):
        try:
            return client.request("/").status == 200
        except Reset:
            return False


class Wrong(E2E):
    def test_options(self):
        for option, message in (("allow = {}", "allow must be a list of addresses"), ('deny = { "x" }', "deny[1] must be an address or a network"),
                                ("max_connections_per_ip = 0", "must be from 1 to 10000000"), ("max_conections_per_ip = 1", "did you mean"),
                                ("max_requests_per_connection = 1.5", "must be a whole number")):
            self.refuses(app_site("", option), message)
