"""The option ticket_secret of listeners: servers resume each other's TLS sessions with keys in Redis."""
# wine: none; keys over Redis, whose sockets test_redis uses there
import socket
import ssl

from harness import WAIT, temporary_folder, tls
from test_redis_site import SITE, Case

SECRETS = ["0123456789abcdef0123456789abcdef", "fedcba9876543210fedcba9876543210"]
LISTEN = r"""
app:get("/", function(req) return tostring(req.tls.resumed) end)
ls.listen{ host = "127.0.0.1", port = 0, handler = app, tls = { cert = "@DIR@/one.pem", key = "@DIR@/one.key",
  ticket_secret = { @SECRETS@ } } }
"""
AHEAD = "local time = os.time os.time = function() return time() + %d * 12 * 3600 end\n"  # periods
VERSIONS = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


class Tickets(Case):
    def setUp(self):
        super().setUp()
        self.folder = temporary_folder()
        tls.certificate(self.folder, "one")

    def text(self, secrets=SECRETS[:1], before=""):
        listen = LISTEN.replace("@DIR@", self.folder.replace("\\", "/"))
        return before + SITE.replace("@PORT@", str(self.redis.port)).replace(
            "@MORE@", listen.replace("@SECRETS@", ", ".join(f'"{s}"' for s in secrets)))

    def pair(self, *args, **kw):
        return [self.serve(self.text(), listeners=2), self.serve(self.text(*args, **kw), listeners=2)]

    def ask(self, server, made, session=None):
        """(whether the session was resumed, the session of the next connection)"""
        with socket.create_connection(("127.0.0.1", server.port(0)), WAIT) as plain, \
                made.wrap_socket(plain, server_hostname="localhost", session=session) as conn:
            conn.sendall(b"GET / HTTP/1.0\r\n\r\n")
            text = tls.read_all(conn)
            self.assertEqual(text.endswith(b"true"), conn.session_reused)
            return conn.session_reused, conn.session

    def expect(self, servers, resumes):
        """A session of each server resumes at the other one, or does not."""
        for version in VERSIONS:
            for one, other in servers, servers[::-1]:
                made = tls.context(version=version)
                resumed, session = self.ask(one, made)
                self.assertFalse(resumed)
                self.assertTrue(self.ask(one, made, session)[0])
                self.assertEqual(self.ask(other, made, session)[0], resumes)

    def stop(self, servers):
        for server in servers:
            server.stop()

    def test_a_session_resumes_at_the_other_server(self):
        servers = self.pair()
        self.expect(servers, True)
        self.assertEqual(self.redis.ask("DBSIZE"), ":2")  # of this period and the next one
        self.stop(servers)

    def test_periods_overlap(self):
        for periods, resumes in (1, True), (2, False):
            with self.subTest(periods):
                servers = self.pair(before=AHEAD % periods)
                self.expect(servers, resumes)
                self.stop(servers)

    def test_secrets_change_in_two_steps(self):
        for secrets, resumes in (SECRETS, True), (SECRETS[1:], False):
            with self.subTest(secrets):
                servers = self.pair(secrets)
                self.expect(servers, resumes)
                if not resumes:
                    servers[1].wait_log("session tickets are not those of the other servers: the keys in Redis were not "
                                        "sealed with this ticket_secret")
                self.stop(servers)

    def test_redis_is_down_and_comes_back(self):
        first = self.serve(self.text(), listeners=2)
        made = tls.context()
        session = self.ask(first, made)[1]
        self.redis.kill()
        self.assertTrue(self.ask(first, made, session)[0])
        second = self.serve(self.text(), listeners=2)
        second.wait_log("session tickets are not those of the other servers: Redis at 127.0.0.1")
        made = tls.context()
        session = self.ask(second, made)[1]
        self.assertTrue(self.ask(second, made, session)[0])  # with keys of its own
        self.redis.start()
        second.wait_log("session tickets are those of the other servers again")
        self.assertTrue(self.ask(second, made, session)[0])  # these decrypt still
        third = self.serve(self.text(), listeners=2)
        self.expect([second, third], True)
        self.stop([first, second, third])

    def test_misuse(self):
        for options, message in [
            ('ticket_secret = "short"', "ls.listen: tls.ticket_secret: the secret has 5 bytes; at least 32 are needed"),
            ('ticket_secret = "%s", tickets = "keys"' % SECRETS[0],
             "ls.listen: tls: tickets and ticket_secret exclude each other"),
        ]:
            with self.subTest(options):
                self.refuses(SITE.replace("@PORT@", "1").replace(
                    "@MORE@", 'ls.listen{ port = 1, handler = app, tls = { cert = "a.pem", %s } }' % options), message)
        first = self.text()
        other = first[first.index("ls.listen{"):first.index("ls.listen{ host = \"127.0.0.1\", port = 0, handler = app }")]
        self.refuses(first + other.replace(SECRETS[0], SECRETS[1]),
                     "ls.listen: tls.ticket_secret: another listener has another secret; a server has one")
        self.refuses(self.text().replace("ls.config{", "local _ = {"),
                     "ls.listen: tls.ticket_secret: redis = true needs ls.config{ redis =")
