"""tls.acme: certificates of an authority. Pebble checks the protocol as an authority on the internet does; the small
authority of the tests has what Debian's Pebble lacks, and fails as a test wants."""
# sanitizers: asan; one thread orders, and unit.net.tls.tls_context changes the contexts of threads that use them
import json
import os
import stat
import time
import unittest

from harness import E2E, OTHER_SYSTEM, SANITIZER, WAIT, WINDOWS, free_port, read_text, tls, write_text
from harness.acme import PEBBLE, Authority, Pebble, alert_of, unpacked
from harness.redis import RedisServer, has_redis

SITE = """
local ls = require "luaserve"
local app = ls.app()
app:use(function(req, res, next)
  if not req.secure and not req.path:find "^/plain" then return res:redirect("https://" .. req.host .. req.path) end
  return next()
end)
app:get("/", function(req) return req.tls.server_name end)
app:get("/plain", function() return "plain" end)
for _, path in ipairs { "/stats", "/plain/stats" } do app:get(path, function() return ls.stats().certificates end) end
app:metrics("/metrics")
ls.listen("127.0.0.1:@HTTP@", app)
ls.listen("127.0.0.1:@TLS@", app, { tls = { acme = { names = { "a.example", "b.example" }, store = @STORE@, directory = "@URL@",
  http_port = @HTTP@, @MORE@ } } })
"""


class Case(E2E):
    def setUp(self):
        super().setUp()
        self.folder, self.http, self.tls = self.new_folder(), free_port(), free_port()
        self.certs = self.new_folder()

    def text(self, url, more="", store=None, http=None, tls_port=None, site=SITE):
        text = site.replace("@STORE@", '"%s"' % (store or self.certs)).replace("@URL@", url)
        return text.replace("@HTTP@", str(http or self.http)).replace("@TLS@", str(tls_port or self.tls)).replace("@MORE@", more)

    def run_site(self, *args, **kw):
        return self.serve(self.text(*args, **kw), listeners=2, flags=["--threads", "2"])

    def file(self, suffix):
        """The path of the file of the store whose name ends so; None: there is none."""
        for folder, _, names in os.walk(self.certs):
            for name in names:
                if name.endswith(suffix):
                    return folder + "/" + name
        return None

    def state(self):
        return json.loads(read_text(self.file("a.example.json")))

    def await_certificate(self, ca=None, name="a.example", port=None):
        self.eventually(lambda: alert_of(port or self.tls, name) is None, "there is a certificate")
        self.assertEqual(tls.get(port or self.tls, made=tls.context(ca), name=name), name)


@unittest.skipIf(SANITIZER, "the functions of C are those of WithAuthority")
@unittest.skipIf(PEBBLE is None and WINDOWS, OTHER_SYSTEM + "no Pebble")
class WithPebble(Case):
    def pebble(self, **env):
        pebble = Pebble(self.folder, self.http, self.tls, **{"VA_NOSLEEP": 1, "WFE_NONCEREJECT": 0, **env})
        self.addCleanup(pebble.close)
        return pebble

    def test_the_first_certificate(self):
        pebble = self.pebble(WFE_NONCEREJECT=50, VA_SLEEPTIME=1, VA_NOSLEEP="", CHAIN_LENGTH=3)
        server = self.run_site(pebble.url, 'ca = "%s", email = "admin@example.org"' % pebble.ca)
        self.assertEqual(alert_of(self.tls, "a.example"), "TLSV1_UNRECOGNIZED_NAME")
        self.assertEqual(server.get("/plain").body, b"plain")
        self.assertEqual(server.get("/x").status, 302)
        self.await_certificate()
        self.await_certificate(name="b.example")
        if not WINDOWS:
            for suffix in "a.example.pem", "a.example.json", "account.json":
                self.assertEqual(stat.S_IMODE(os.stat(self.file(suffix)).st_mode), 0o600)
        self.eventually(lambda: self.file(".proofs") is None, "the proofs are removed")
        pebble.close()
        server.stop()
        server = self.run_site(pebble.url, 'ca = "%s"' % pebble.ca)  # it uses the one of the store at once
        self.assertIsNone(alert_of(self.tls, "a.example"))

    def test_an_authority_that_has_lost_the_account(self):
        pebble = self.pebble()
        more = 'ca = "%s", email = "%s"'
        self.run_site(pebble.url, more % (pebble.ca, "one@example.org"))
        self.await_certificate()
        self.own_servers[0].stop()
        os.remove(self.file("a.example.pem"))
        self.run_site(pebble.url, more % (pebble.ca, "other@example.org"))
        self.await_certificate()
        self.assertEqual(json.loads(read_text(self.file("account.json")))["email"], "other@example.org")
        self.own_servers[1].stop()
        os.remove(self.file("a.example.pem"))
        pebble.close()
        pebble = self.pebble(port=pebble.port)
        self.run_site(pebble.url, more % (pebble.ca, "other@example.org"))
        self.await_certificate()

    def test_an_authority_that_wants_to_know_the_account_already(self):
        key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
        pebble = self.pebble(more={"externalAccountBindingRequired": True, "externalAccountMACKeys": {"kid-1": key}})
        for eab, why in (("", "the authority needs an account that it knows: eab = "),
                         ("eab = { kid = 'kid-2', key = '%s' }" % key, r"not known to the ACME server \(unauthorized, status 40"),
                         ("eab = { kid = 'kid-1', key = '%s' }" % key[::-1], r"\((unauthorized|malformed), status 40")):
            server = self.run_site(pebble.url, 'ca = "%s", %s' % (pebble.ca, eab))
            self.assertRegex(server.wait_log("error tls.acme: a.example: "), why)
            self.assertEqual(server.get("/plain").body, b"plain")
            server.stop()
        self.run_site(pebble.url, 'ca = "%s", eab = { kid = "kid-1", key = "%s=" }' % (pebble.ca, key))
        self.await_certificate(pebble.root())

    def test_an_authority_whose_root_changes(self):
        """A certificate of the old root stays in use; the next one is of the new root, and its chain as the authority sends it."""
        pebble = self.pebble(CHAIN_LENGTH=2)
        self.run_site(pebble.url, 'ca = "%s"' % pebble.ca)
        root = pebble.root()
        self.await_certificate(root)
        pebble.close()
        pebble = self.pebble(port=pebble.port, CHAIN_LENGTH=2)
        self.own_servers[0].stop()
        os.rename(root, root + ".old")
        self.run_site(pebble.url, 'ca = "%s"' % pebble.ca)
        self.await_certificate(root + ".old")
        self.own_servers[1].stop()
        os.remove(self.file("a.example.pem"))
        self.run_site(pebble.url, 'ca = "%s"' % pebble.ca)
        self.await_certificate(pebble.root())
        with self.assertRaises(OSError):
            tls.get(self.tls, made=tls.context(root + ".old"), name="a.example")

    def test_validation_that_is_slower_than_the_server_runs(self):
        """The next start continues the order."""
        pebble = self.pebble(VA_SLEEPTIME=4, VA_NOSLEEP="")
        server = self.run_site(pebble.url, 'ca = "%s"' % pebble.ca)
        self.eventually(lambda: self.file(".proofs"), "the order waits for the validation")
        server.stop()
        self.run_site(pebble.url, 'ca = "%s"' % pebble.ca)
        self.await_certificate(pebble.root())


class WithAuthority(Case):
    def setUp(self):
        super().setUp()
        self.authority = Authority(self.folder, self.http, self.tls)
        self.addCleanup(self.authority.close)

    def test_a_renewal_that_the_authority_wants(self):
        now = int(time.time())
        self.authority.window = (now - 10, now - 5)
        server = self.run_site(self.authority.url)
        self.await_certificate(self.folder + "/root.pem")
        server.wait_log("the authority wants a renewal at .* see https://why.example/")
        self.eventually(lambda: len(self.authority.orders) > 1, "it is renewed")
        self.assertNotIn("replaces", self.authority.orders[0])
        serial = self.authority.serials[0]
        key_id, _, number = self.authority.orders[1]["replaces"].partition(".")
        self.assertEqual((len(unpacked(key_id)), unpacked(number)), (20, serial.to_bytes(serial.bit_length() // 8 + 1, "big")))

    def test_an_account_that_is_lost_while_its_address_changes(self):
        more = 'email = "%s@example.org"'
        self.run_site(self.authority.url, more % "one")
        self.await_certificate()
        self.own_servers[0].stop()
        os.remove(self.file("a.example.pem"))
        self.authority.faults["account"] = [(400, "accountDoesNotExist")]
        server = self.run_site(self.authority.url, more % "other")
        self.await_certificate(self.folder + "/root.pem")
        self.assertEqual(server.logged(" error "), [])
        self.assertEqual(json.loads(read_text(self.file("account.json")))["email"], "other@example.org")

    def test_an_order_without_replaces_after_a_409(self):
        self.run_site(self.authority.url)
        self.await_certificate()
        self.own_servers[0].stop()
        now = int(time.time())
        self.authority.window, self.authority.faults["order"] = (now - 10, now - 5), [(409, "alreadyReplaced", None)]
        self.run_site(self.authority.url)
        self.eventually(lambda: len(self.authority.orders) > 1, "it is renewed")
        self.assertNotIn("replaces", self.authority.orders[1])

    def test_proofs_by_tls(self):
        self.authority.kinds = ["tls-alpn-01"]
        self.authority.profiles = {"short": "lasts short"}
        self.run_site(self.authority.url, "profile = 'short'")
        self.await_certificate(self.folder + "/root.pem")
        self.assertEqual([order["profile"] for order in self.authority.orders], ["short"])
        context = tls.context(alpn=["acme-tls/1"])
        with self.assertRaises(OSError), tls.client(self.tls, context, "a.example"):
            pass

    def fails(self, message, *, more="", failures=1):
        """A server whose attempt fails with this message; http is served, and the next start continues."""
        server = self.run_site(self.authority.url, more)
        line = server.wait_log("error tls.acme: a.example: ")
        self.assertRegex(line, message)
        self.assertIn("there is no certificate yet; attempt %d has failed, the next one is at " % failures, line)
        self.assertEqual(server.get("/plain").body, b"plain")
        self.assertEqual(alert_of(self.tls, "a.example"), "TLSV1_UNRECOGNIZED_NAME")
        server.stop()
        state = self.state()
        self.assertEqual(state["failures"], failures)
        return state["next"] - time.time()

    def test_failures(self):
        a = self.authority
        for count, (message, prepare, end) in enumerate([
                ("the authority has sent a certificate without the name a.example", {"wrong": "name"}, {"wrong": None}),
                ("cannot be used: the certificate is for another key", {"wrong": "key"}, {"wrong": None}),
                ("cannot be used: the chain is broken", {"wrong": "chain"}, {"wrong": None}),
                (r"as the test wants \(rejectedIdentifier, status 403\)", {"faults": {"order": [(403, "rejectedIdentifier")]}}, {}),
                ("a.example: http-01 has failed: .*Connection", {"http_port": free_port()}, {"http_port": self.http}),
                ("answers with status 500", {"faults": {"dir": [(500, "serverInternal")]}}, {})], 1):
            for name, value in prepare.items():
                setattr(a, name, value)
            wait = self.fails(message, failures=count)
            expected = [60, 300, 900, 3600, 21600, 21600][count - 1]
            self.assertTrue(expected - WAIT < wait <= expected, (count, wait))
            for name, value in end.items():
                setattr(a, name, value)
            self.forget(next=0)
        server = self.run_site(a.url)  # tls-alpn-01, because http-01 has failed
        self.await_certificate()
        self.assertEqual({**self.state(), "options": None}, {"options": None, "kind": "tls-alpn-01"})
        server.wait_log("is valid until")

    def forget(self, **fields):
        write_text(self.file("a.example.json"), json.dumps({**self.state(), **fields}))

    def test_an_authority_that_limits(self):
        self.authority.faults["order"] = [(429, "rateLimited", "7200")]
        wait = self.fails("rateLimited, status 429")
        self.assertTrue(7200 - WAIT < wait <= 7200, wait)
        asked = len(self.authority.nonces)
        server = self.run_site(self.authority.url)  # it waits over the restart
        line = server.wait_log("warn tls.acme: a.example: .*rateLimited.*; there is no certificate yet; attempt 1 has failed, the next one is at")
        self.assertIn("; to try at once, remove " + self.file("a.example.json"), line.replace("\\", "/"))
        server.get("/plain")
        self.assertEqual(alert_of(self.tls, "a.example"), "TLSV1_UNRECOGNIZED_NAME")
        self.assertEqual(len(self.authority.nonces), asked)
        os.remove(self.file("a.example.json"))
        self.await_certificate()

    def test_an_authority_that_is_down_and_a_profile_that_it_lacks(self):
        self.authority.profiles = {"long": "lasts long"}
        self.fails('the authority has no profile "short"; it has long', more='profile = "short"')
        self.authority.close()
        self.fails("cannot fetch http://127.0.0.1:.*refused")  # at once, as the options are others

    def test_a_renewal_that_fails_keeps_the_certificate(self):
        self.run_site(self.authority.url)
        self.await_certificate()
        self.own_servers[0].stop()
        now = int(time.time())
        self.authority.window, self.authority.wrong = (now - 10, now - 5), "chain"
        server = self.run_site(self.authority.url)
        self.assertIsNone(alert_of(self.tls, "a.example"))
        server.wait_log("error tls.acme: .*the chain is broken.*; the certificate in use is valid until .*attempt 1 has failed")
        self.await_certificate(self.folder + "/root.pem")
        shown = json.loads(tls.get(self.tls, "/stats", name="a.example"))["a.example"]
        self.assertEqual((shown["failures"], "chain" in shown["error"], shown["renews"] < now < shown["expires"]), (1, True, True))
        text = tls.get(self.tls, "/metrics", name="a.example")
        self.assertIn('luaserve_certificate_failures{name="a.example"} 1\n', text)
        self.assertIn("luaserve_certificate_attempts_failed_total 1\n", text)
        self.assertIn('luaserve_certificate_expires_seconds{name="a.example"} %d\n' % shown["expires"], text)

    def test_two_thirds_of_the_lifetime(self):
        self.run_site(self.authority.url)
        self.await_certificate()
        self.own_servers[0].stop()
        late = "local time = os.time os.time = function(...) return time(...) + (... and 0 or %d) end\n"
        server = self.serve(late % (1.9 * 86400) + self.text(self.authority.url), listeners=2)
        server.get("/plain")
        self.assertEqual(len(self.authority.orders), 1)
        server.stop()
        self.serve(late % (2.1 * 86400) + self.text(self.authority.url), listeners=2)
        self.eventually(lambda: len(self.authority.orders) == 2, "it is renewed")

    def test_a_reload_and_a_stop_during_an_order(self):
        self.authority.late = 10 ** 9
        server = self.run_site(self.authority.url)
        self.eventually(lambda: any(one["polls"] for order in self.authority.known for one in order["names"]), "an order waits")
        server.reload()
        server.stop()
        self.run_site(self.authority.url)
        self.authority.late = 0
        self.await_certificate()
        self.assertEqual(len(self.authority.orders), 1)

    def two_servers(self, store=None):
        """They share a store; the authority asks the second one, whoever orders."""
        other = free_port(), free_port()
        self.authority.http_port, self.authority.tls_port = other
        self.authority.ready.clear()
        self.run_site(self.authority.url, store=store)
        self.run_site(self.authority.url, store=store, http=other[0], tls_port=other[1])
        self.authority.ready.set()
        for port in self.tls, other[1]:
            self.await_certificate(self.folder + "/root.pem", port=port)
        self.assertEqual(len(self.authority.orders), 1)

    def test_two_servers_with_a_folder(self):
        self.two_servers()

    def test_two_servers_with_redis_and_proofs_by_tls(self):
        if not has_redis():
            self.skipTest(OTHER_SYSTEM + "no Redis")
        redis = RedisServer()
        self.addCleanup(redis.kill)
        self.authority.kinds = ["tls-alpn-01"]
        self.two_servers("redis://127.0.0.1:%d/0" % redis.port)

    def test_a_name_more(self):
        self.run_site(self.authority.url)
        self.await_certificate()
        self.own_servers[0].stop()
        text = self.text(self.authority.url).replace('"b.example"', '"b.example", "c.example"')
        self.serve(text, listeners=2)
        self.assertIsNone(alert_of(self.tls, "a.example"))  # the old one stays in use
        self.eventually(lambda: b"c.example" in self.certificate(), "it has the new name")

    def certificate(self):
        with tls.client(self.tls, name="a.example") as conn:
            return conn.getpeercert(True)

    def test_a_damaged_store(self):
        self.run_site(self.authority.url)
        self.await_certificate()
        self.own_servers[0].stop()
        write_text(self.file("a.example.pem"), read_text(self.file("a.example.pem"))[:500])
        write_text(self.file("a.example.json"), "{")
        server = self.run_site(self.authority.url)
        server.wait_log("error tls.acme: a.example: the certificate in the store cannot be used: there is no")
        self.await_certificate()
        self.own_servers[1].stop()
        write_text(self.file("account.json"), "{")
        os.remove(self.file("a.example.pem"))
        self.run_site(self.authority.url).wait_log("account.json in the store is damaged; remove it")

    def test_a_store_that_fails(self):
        self.run_site(self.authority.url)
        self.await_certificate()
        self.own_servers[0].stop()
        path = self.file("a.example.json")
        for name in path, self.file("a.example.pem"):
            os.remove(name)
        os.mkdir(path)
        server = self.run_site(self.authority.url)
        server.wait_log("error tls.acme: a.example: .*a.example.json.*; the store fails: .*; attempt 1 has failed, the next one is at")
        self.assertEqual(server.get("/plain").body, b"plain")
        shown = json.loads(server.get("/plain/stats").body)["a.example"]
        self.assertEqual((shown["failures"], "the store fails" in shown["error"], shown["next"] > time.time() - WAIT), (1, True, True))
        self.assertEqual(len(self.authority.orders), 1)
        server.stop()
        os.rmdir(path)
        self.run_site(self.authority.url)
        self.await_certificate()

    def test_a_store_that_fails_while_its_certificate_is_in_use(self):
        self.run_site(self.authority.url)
        self.await_certificate()
        self.own_servers[0].stop()
        path = self.file("a.example.json")
        os.remove(path)
        os.mkdir(path)
        self.run_site(self.authority.url).wait_log("error tls.acme: a.example: the store fails: .*a.example.json")
        self.assertIn('luaserve_certificate_failures{name="a.example"} 1\n', tls.get(self.tls, "/metrics", name="a.example"))
        os.rmdir(path)
        self.eventually(lambda: 'luaserve_certificate_failures{name="a.example"} 0\n' in tls.get(self.tls, "/metrics", name="a.example"), "it works again")


class WrongSites(Case):
    def test_no_listener_that_the_authority_reaches(self):
        text = self.text("staging").replace("http_port = %d," % self.http, "")
        self.refuses(text, 'site.lua:13: ls.listen: tls.acme needs a listener without TLS at port 80 of all interfaces, where the authority '
                     'asks for the proof of a name: add ls.listen("*:80", app), or http_port = 8080 in acme if')
        self.refuses(text.replace("http", "tcp") + 'ls.listen("127.0.0.1:80", app)', "needs a listener without TLS at port 80")

    def test_a_store_that_can_never_work(self):
        write_text(self.certs + "/file", "")
        text = self.text("staging", store=self.certs + "/file/certs")
        self.refuses(text, "/file is no folder")
        self.assertEqual(self.serve(text, listeners=0, flags=["--check"]).wait(), 1)
        if not WINDOWS:
            server = self.serve(self.text("staging", store="/proc/certs"), listeners=0)
            self.assertEqual(server.wait(), 1)
            self.assertIn("site.lua:13: ls.listen: tls.acme.store: /proc/certs/", server.log())

    def test_a_store_that_clients_would_get(self):
        for store in "public", "public/certs", "public/new/certs":
            os.makedirs(self.folder + "/public", exist_ok=True)
            text = self.text("staging", store=self.folder + "/" + store)
            self.refuses(text.replace('app:metrics("/metrics")', 'app:static("/", "%s/public")' % self.folder), "app:static would serve the keys of tls.acme")

    def test_certificates_in_test_and_dev_are_not_ordered(self):
        server = self.serve(self.text("http://127.0.0.1:1/"), listeners=2, env={"LUASERVE_ENV": "test"})
        server.wait_log("tls.acme: luaserve test orders no certificates, and uses those of the store")
        self.assertEqual(server.logged(" error "), [])


if __name__ == "__main__":
    unittest.main()
