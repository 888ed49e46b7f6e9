"""ls.crypto.jwt: the examples of RFC 7515, every way to get a forged or expired token accepted, keys of OpenSSL."""
# sanitizers: asan; each call computes alone
# wine: none; Lua code and OpenSSL, the same on every system
import base64
import hmac
import json
import subprocess
import time

from harness import E2E, app_site, table

SITE = app_site(r"""
app:post("/verify", function(req)
  local given = req:json()
  local claims, message, code = ls.crypto.jwt.verify(given.token, given.keys, given.options)
  return { claims = claims, message = message, code = code }
end)
app:post("/sign", function(req)
  local given = req:json()
  return { token = ls.crypto.jwt.sign(given.claims, given.key, given.options) }
end)
""")
# The keys of RFC 7515, appendices A.1 to A.3, and of RFC 8037, appendix A, in PEM.
A1_SECRET = base64.urlsafe_b64decode("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow==")
A2_PUBLIC = """-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAofgWCuLjybRlzo0tZWJj
NiuSfb4p4fAkd/wWJcyQoTbji9k0l8W26mPddxHmfHQp+Vaw+4qPCJrcS2mJPMEz
P1Pt0Bm4d4QlL+yRT+SFd2lZS+pCgNMsD1W/YpRPEwOWvG6b32690r2jZ47soMZo
9wGzjb/7OMg0LOL+bSf63kpaSHSXndS5z5rexMdbBYUsLA9e+KXBdQOS+UTo7WTB
EMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6/I5IhlJH7aGhyxX
FvUK+DWNmoudF8NAco9/h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXp
oQIDAQAB
-----END PUBLIC KEY-----
"""
A3_PUBLIC = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEf83OJ3D2xF1Bg8vub9tLe1gHMzV7
6e8Tus9uPHvRVEXH8UTNG72bfocs3+257rn0s2ldbqkLJK2KRiMohYjlrQ==
-----END PUBLIC KEY-----
"""
ED_PUBLIC = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=
-----END PUBLIC KEY-----
"""
ED_PRIVATE = """-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g
-----END PRIVATE KEY-----
"""
PAYLOAD = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ"
A1_CODE = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
A2_CODE = ("cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9"
           "uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB"
           "_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rq"
           "Vt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw")
A3_CODE = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
SECRET = "0123456789abcdef0123456789abcdef"


def encoded(value):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def hs256(claims, secret=SECRET, header=None):
    """A token of these claims, or of this header, signed by HMAC whatever the header says."""
    text = encoded({"alg": "HS256"} if header is None else header) + "." + encoded(claims)
    return text + "." + encoded(hmac.new(secret.encode(), text.encode(), "sha256").digest())


class Jwt(E2E):
    SITE = SITE

    def ask_json(self, target, body):
        response = self.ask("POST", target, [("Content-Type", "application/json")], json.dumps(body).encode())
        return json.loads(response.text) if response.status == 200 else response.status

    def verify(self, token, keys=SECRET, **options):
        return self.ask_json("/verify", {"token": token, "keys": keys, "options": options})

    def test_the_examples_are_signed_and_expired(self):
        for header, code, key in (("eyJhbGciOiJSUzI1NiJ9", A2_CODE, A2_PUBLIC), ("eyJhbGciOiJFUzI1NiJ9", A3_CODE, A3_PUBLIC)):
            self.assertEqual(self.verify(header + "." + PAYLOAD + "." + code, key)["message"], "the token has expired")
            changed = PAYLOAD[:-2] + "fg"
            self.assertEqual(self.verify(header + "." + changed + "." + code, key)["message"], "the token is not signed with this key")
        text = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9." + PAYLOAD
        self.assertEqual(encoded(hmac.new(A1_SECRET, text.encode(), "sha256").digest()), A1_CODE)
        valid = hs256({"sub": "ada", "n": 1, "nested": {"a": [1, 2]}})
        self.assertEqual(self.verify(valid)["claims"], {"sub": "ada", "n": 1, "nested": {"a": [1, 2]}})

    def test_forged_tokens(self):
        claims = {"sub": "root"}
        none = encoded({"alg": "none"}) + "." + encoded(claims) + "."
        right = hs256(claims)
        head, payload, code = right.split(".")
        cases = [
            ("none", none), ("none with a signature", none + code), ("None", hs256(claims, header={"alg": "None"})),
            ("no alg", hs256(claims, header={})), ("alg of another type", hs256(claims, header={"alg": ["HS256"]})),
            ("alg in small letters", hs256(claims, header={"alg": "hs256"})), ("HS512", hs256(claims, header={"alg": "HS512"})),
            ("another secret", hs256(claims, SECRET + "x")), ("an empty secret", hs256(claims, "")),
            ("the code of another payload", head + "." + encoded({"sub": "ada"}) + "." + code),
            ("a code that is cut", right[:-4]), ("no code", head + "." + payload + "."), ("two parts", head + "." + payload),
            ("four parts", right + "." + code), ("five parts", right + "..x"), ("empty", ""), ("dots", ".."), ("padding", right + "="),
            ("a space", right + " "), ("a line end", right + "\n"), ("standard base64", right.replace(".", "+", 1)),
            ("bits behind the code", right[:-1] + {"A": "B", "Q": "R", "g": "h", "w": "x"}.get(right[-1], chr(ord(right[-1]) + 1))),
            ("crit", hs256(claims, header={"alg": "HS256", "crit": ["exp"], "exp": 1})),
            ("a header that is a list", hs256(claims, header=["HS256"])), ("a header that is no JSON", hs256(claims, header=b"{")),
            ("claims that are a list", hs256([1])), ("claims that are a text", hs256("x")), ("claims that are no JSON", hs256(b"{\"a\":")),
            ("NUL", right.replace(".", ".\0", 1)), ("a number", 1), ("true", True),
        ]
        self.assertEqual(self.verify(right)["claims"], claims)

        def check(token):
            answer = self.verify(token)
            self.assertNotIn("claims", answer)
            self.assertEqual(answer["code"], "EINVAL")

        table(self, cases, check)

    def test_a_public_key_is_no_secret(self):
        for key, name in ((A2_PUBLIC, "RS256"), (A3_PUBLIC, "ES256"), (ED_PUBLIC, "EdDSA")):
            for alg in ("HS256", name):
                for secret in (key, key.strip(), key + "\n"):
                    token = hs256({"sub": "root"}, secret, {"alg": alg})
                    self.assertEqual(self.verify(token, key)["message"], "the token is not signed with this key")
            self.assertEqual(self.verify(hs256({"sub": "root"}, key), [key, SECRET])["code"], "EINVAL")
        # A PEM text never is a secret, also when it holds no key.
        self.assertEqual(self.verify(hs256({}), "-----BEGIN PUBLIC KEY-----\n" + "x" * 40), 500)

    def test_a_key_in_another_form_than_pem_is_no_secret(self):
        texts = {"SSH": "ssh-ed25519 " + "A" * 64, "JWK": ' {"kty":"oct","k":"%s"}' % ("A" * 43), "JWKS": '{"keys":[]}' + " " * 40,
                 "ECDSA": "ecdsa-sha2-nistp256 " + "A" * 100, "SSH2": "---- BEGIN SSH2 PUBLIC KEY ----\n" + "A" * 64}
        for name, key in (("RSA", A2_PUBLIC), ("EC", A3_PUBLIC), ("Ed25519", ED_PUBLIC), ("private", ED_PRIVATE)):
            lines = key.split("\n")[1:-2]
            texts[name], texts[name + " in lines"] = "".join(lines), "\n".join(lines) + "\n"
        for name, text in texts.items():
            mark = self.server.mark()
            self.assertEqual(self.verify(hs256({"sub": "root"}, text), text), 500, name)
            self.assertIn("-----BEGIN PUBLIC KEY-----", self.server.wait_log("neither a secret nor in PEM", mark))
        for secret in ("MII" + "x" * 40, "ssh" * 20, base64.b64encode(b"\x30\x30" + b"x" * 48).decode(),
                       base64.b64encode(b"\x30\x31\x02" + b"x" * 47).decode(), "0" * 64, "-" * 64):
            self.assertIn("claims", self.verify(hs256({"sub": "ada"}, secret), secret), secret)

    def test_times(self):
        now = int(time.time())
        for claims, options, valid in (
                ({"exp": now + 1000}, {}, True), ({"exp": now - 30}, {}, True), ({"exp": now - 1000}, {}, False),
                ({"exp": now - 30}, {"leeway": 0}, False), ({"exp": now + 1000.5}, {}, True), ({"exp": now - 1000.5}, {}, False),
                ({"exp": "%d" % (now + 1000)}, {}, False), ({"exp": True}, {}, False), ({"exp": 1e300}, {}, True),
                ({"exp": -1}, {}, False), ({"exp": 0}, {}, False), ({"nbf": now - 10}, {}, True), ({"nbf": now + 30}, {}, True),
                ({"nbf": now + 1000}, {}, False), ({"nbf": now + 500}, {"leeway": 600}, True), ({"nbf": []}, {}, False),
                ({"iat": now}, {}, True), ({"iat": now + 1000}, {}, False), ({"iat": "x"}, {}, False), ({}, {}, True)):
            answer = self.verify(hs256(claims), **options)
            self.assertEqual("claims" in answer, valid, (claims, options, answer))

    def test_issuer_and_audience(self):
        for claims, options, valid in (
                ({"iss": "a"}, {"issuer": "a"}, True), ({"iss": "a"}, {"issuer": "b"}, False), ({}, {"issuer": "a"}, False),
                ({"iss": ["a"]}, {"issuer": "a"}, False), ({"aud": "a"}, {"audience": "a"}, True), ({"aud": ["b", "a"]}, {"audience": "a"}, True),
                ({"aud": ["b"]}, {"audience": "a"}, False), ({}, {"audience": "a"}, False), ({"aud": {"a": "a"}}, {"audience": "a"}, False),
                ({"aud": "ab"}, {"audience": "a"}, False),
                ({"aud": "a"}, {}, False), ({"aud": ["a"]}, {}, False), ({"aud": []}, {}, False), ({"aud": 1}, {}, False)):
            self.assertEqual("claims" in self.verify(hs256(claims), **options), valid, (claims, options))

    def test_the_longest_token(self):
        tokens = [hs256({"a": "x" * room}, header={"alg": "HS256", "kid": "x" * kid}) for kid in range(4) for room in range(6020, 6080)]
        by_length = {len(token): token for token in tokens}
        self.assertIn("claims", self.verify(by_length[8192]))
        self.assertEqual(self.verify(by_length[8193])["code"], "ELIMIT")

    def test_keys_that_openssl_makes(self):
        def key(*options):
            private = subprocess.run(["openssl", "genpkey", *options], capture_output=True, text=True, check=True).stdout
            public = subprocess.run(["openssl", "pkey", "-pubout"], input=private, capture_output=True, text=True, check=True).stdout
            return private, public

        made = {"RS256": key("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"), "EdDSA": key("-algorithm", "ed25519"),
                "ES256": key("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256")}
        for name, (private, public) in made.items():
            claims = {"sub": "ada"}
            token = self.ask_json("/sign", {"claims": claims, "key": private, "options": {"header": {"kid": "1"}}})["token"]
            header = json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "=="))
            self.assertEqual(header, {"alg": name, "typ": "JWT", "kid": "1"})
            self.assertEqual(self.verify(token, public)["claims"], claims)
            self.assertEqual(self.verify(token, private)["claims"], claims)
            self.assertEqual(self.verify(token, [SECRET, A2_PUBLIC, A3_PUBLIC, ED_PUBLIC, public])["claims"], claims)
            for other, (_, other_public) in made.items():
                if other != name:
                    self.assertEqual(self.verify(token, other_public)["code"], "EINVAL")
            self.assertEqual(self.ask_json("/sign", {"claims": claims, "key": public}), 500)
        self.assertEqual(self.ask_json("/sign", {"claims": {}, "key": "short"}), 500)
        self.assertEqual(self.ask_json("/sign", {"claims": {}, "key": SECRET, "options": {"header": {"alg": "none"}}}), 500)

    def test_claims_of_a_new_token(self):
        token = self.ask_json("/sign", {"claims": {"sub": "ada", "iat": 5}, "key": SECRET, "options": {"expires_in": 60}})["token"]
        claims = self.verify(token)["claims"]
        self.assertLess(abs(claims["exp"] - time.time() - 60), 300)
        self.assertEqual((claims["sub"], claims["iat"]), ("ada", 5))
        signed = self.ask_json("/sign", {"claims": {"a": 1}, "key": ED_PRIVATE})["token"]
        self.assertEqual(self.verify(signed, ED_PUBLIC)["claims"], {"a": 1})
