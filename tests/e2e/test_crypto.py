"""ls.crypto in a server: long computations delay nobody and survive a client that leaves; a weak secret is refused at load."""
import base64
import hashlib
import hmac
import json
import unittest

from harness import E2E, run_program, scratch

SITE = r"""
local ls = require "luaserve"
local app, state = ls.app(), ls.dict("state")
ls.config { states = 1, threads = 1 }
app:post("/digests", { max_body = "64m" }, function(req)
  local buffer = req:buffer()
  local text, parts = buffer:tostring(), ls.crypto.hasher("sha256", "key")
  for at = 1, #text, 70000 do parts:update(buffer:sub(at, at + 69999)) end
  local sorted = { 2, 1 }
  local inside
  table.sort(sorted, function(a, b) inside = ls.crypto.sha256(text, "hex") return a < b end) -- cannot wait here
  return { string = ls.crypto.sha256(text, "hex"), buffer = ls.crypto.sha256(buffer, "hex"), inside = inside,
    hmac = ls.crypto.hmac("sha256", "key", buffer, "hex"), parts = parts:final("hex") }
end)
app:get("/changed", function()
  local buffer = ls.buffer(("a"):rep(4 << 20))
  local job = ls.spawn(function() return ls.crypto.sha256(buffer, "hex") end)
  ls.sleep(0)
  buffer:append("more")
  return job:wait()
end)
app:get("/hash", function()
  local turns, hash = 0, nil
  state:incr("begun")
  local other = ls.spawn(function() while not hash do turns = turns + 1 ls.sleep(0.001) end end)
  hash = ls.crypto.password.hash("secret")
  state:incr("done")
  other:wait()
  return { hash = hash, turns = turns }
end)
app:get("/state", function() return (state.begun or 0) .. " " .. (state.done or 0) end)
app:get("/verify", function(req) return { ls.crypto.password.verify(req.query.password, req.query.hash) } end)
app:get("/many", function()
  local jobs, count = {}, 0
  local hash = "$scrypt$ln=10,r=8,p=1$AAAA$" .. ("A"):rep(43)
  for n = 1, 8 do jobs[n] = ls.spawn(function() return ls.crypto.password.verify("x", hash) end) end
  for n = 1, 8 do if jobs[n]:wait() == false then count = count + 1 end end
  return tostring(count)
end)
ls.listen("127.0.0.1:0", app)
"""
# passlib.hash.scrypt and hashlib.scrypt give this hash of "secret" with the salt of 16 bytes "salt salt salt s".
OTHER = "$scrypt$ln=10,r=8,p=1$%s$%s"


class Crypto(E2E):
    SITE = SITE

    def test_digests_of_a_large_body(self):
        body = bytes(range(256)) * 4096 * 3 + b"end"
        digest, code = hashlib.sha256(body).hexdigest(), hmac.new(b"key", body, "sha256").hexdigest()
        got = json.loads(self.ask("POST", "/digests", body=body).text)
        self.assertEqual(got, {"string": digest, "buffer": digest, "inside": digest, "hmac": code, "parts": code})
        self.assertEqual(json.loads(self.ask("POST", "/digests", body=b"").text)["string"], hashlib.sha256(b"").hexdigest())

    def test_a_buffer_may_change_meanwhile(self):
        self.assertEqual(self.get("/changed").text, hashlib.sha256(b"a" * (4 << 20)).hexdigest())

    def test_a_password_is_hashed_while_the_only_state_goes_on(self):
        got = json.loads(self.get("/hash").text)
        hashed = got["hash"]
        self.assertGreater(got["turns"], 1)
        self.assertRegex(hashed, r"^\$scrypt\$ln=15,r=8,p=3\$[\w+/]{22}\$[\w+/]{43}$")
        for password, right in (("secret", True), ("Secret", False), ("", False)):
            target = "/verify?password=%s&hash=%s" % (password, hashed.replace("+", "%2B").replace("$", "%24"))
            self.assertEqual(json.loads(self.get(target).text), [right, False])

    def test_a_hash_of_other_parameters(self):
        salt = b"salt salt salt s"
        digest = hashlib.scrypt(b"secret", salt=salt, n=1024, r=8, p=1, dklen=32)
        text = OTHER % tuple(base64.b64encode(part).decode().rstrip("=") for part in (salt, digest))
        text = text.replace("+", "%2B").replace("$", "%24")
        self.assertEqual(json.loads(self.get("/verify?password=secret&hash=" + text).text), [True, True])
        self.assertEqual(json.loads(self.get("/verify?password=other&hash=" + text).text), [False, False])
        for wrong in ("$scrypt$ln=19,r=8,p=1", "$scrypt$ln=0,r=8,p=1", "$scrypt$ln=18,r=8,p=1", "$bcrypt$ln=10,r=8,p=1"):
            self.assertEqual(self.get("/verify?password=secret&hash=" + text.replace("%24scrypt%24ln=10,r=8,p=1",
                                                                                    wrong.replace("$", "%24"))).status, 500)

    def test_a_client_that_leaves_and_many_at_once(self):
        begun, done = map(int, self.get("/state").text.split())
        with self.connect() as conn:
            conn.send(b"GET /hash HTTP/1.1\r\nHost: h\r\n\r\n")
            self.eventually(lambda: self.get("/state").text.split()[0] == str(begun + 1), "the hash is computed")
        self.eventually(lambda: self.get("/state").text.split()[1] == str(done + 1), "the hash is complete")
        self.assertEqual(self.get("/many").text, "8")


class Secrets(unittest.TestCase):
    def test_a_weak_secret_is_refused_at_load(self):
        for secret, message in ((r'"short"', "the secret has 5 bytes; at least 32 are needed"),
                                (r'("x"):rep(31)', "the secret has 31 bytes"), (r'("x"):rep(40)', "the same character"),
                                ("nil", "secret must be a string"), ("{}", "secret must be a string"),
                                (r'{ ls.crypto.token(), "short" }', "the secret has 5 bytes")):
            site = 'local ls = require "luaserve"\n\nls.crypto.seal(%s, "x")\nls.listen("127.0.0.1:0", ls.app())\n' % secret
            with scratch(site_lua=site) as folder:
                status, _, err = run_program(["--check", "site.lua"], cwd=folder)
            self.assertEqual(status, 1, secret)
            self.assertIn("site.lua:3: ls.crypto.seal: ", err)
            self.assertIn(message, err)
