"""ls.crypto with the vectors of Project Wycheproof: HMAC, signatures, JSON Web Tokens. LUASERVE_WYCHEPROOF is its folder
testvectors_v1; `scripts/check vectors` downloads it."""
# sanitizers: none; Python and OpenSSL compute
# wine: none; scripts/check vectors runs them with the program of the machine
import base64
import json
import os
import unittest

from harness import E2E, read_text

SITE = r"""
local ls = require "luaserve"
local app, bytes = ls.app(), ls.crypto.hex.decode
local accepts = {
  mac = function(case) return ls.crypto.hmac(case.algorithm, bytes(case.key), bytes(case.msg)):sub(1, #case.tag // 2) == bytes(case.tag) end,
  signature = function(case) return ls.crypto.verify(case.key, bytes(case.msg), bytes(case.sig)) end,
  token = function(case)
    local claims, message = ls.crypto.jwt.verify(case.jws, case.secret and ls.crypto.base64url.decode(case.secret) or case.key)
    return claims ~= nil or message == "the claims are not a JSON object" -- which is looked at behind the signature
  end,
}
app:post("/:kind", function(req)
  local results = {}
  for n, case in ipairs(req:json()) do
    local fine, result = pcall(accepts[req.params.kind], case)
    results[n] = fine and tostring(result) or result
  end
  return results
end)
ls.listen { port = 0, host = "127.0.0.1", handler = app, max_body = "64m" }
"""
FOLDER = os.environ.get("LUASERVE_WYCHEPROOF")
ALGORITHMS = ("HS256", "RS256", "ES256", "EdDSA")  # of tokens
OTHERWISE = {  # vectors that ls.crypto.jwt judges otherwise than Wycheproof
    "emptyPayload": "claims are a JSON object",
    "InvalidCharacterInsertedInHeader": "valid there, but RFC 7515 section 2 has no other characters than those of base64url",
    "InvalidCharacterInsertedInPayload": "likewise",
    "invalidBase64Padding": "invalid there, but the file has the text without the padding, which is valid",
    "invalidBase64PaddingInPayload": "likewise",
    "rejectsKeyWithRocaVulnerability": "a key of a faulty generator; OpenSSL does not look for it",
    "MacOfIncorrectlyEncodedMessage": "refused, but only behind the signature",
}


def unbase64(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def der(tag, *parts):
    data = b"".join(parts)
    size = len(data).to_bytes((len(data).bit_length() + 7) // 8 or 1, "big")
    return bytes([tag]) + (size if len(data) < 128 else bytes([0x80 | len(size)]) + size) + data


def number(text):
    return der(2, b"\0" + unbase64(text))


def key_of(jwk):
    """The key of a JSON Web Key for a case: PEM, a secret, or {} for a kind that ls.crypto does not know and refuses."""
    if jwk["kty"] == "oct":
        return {"secret": jwk["k"]}
    if jwk["kty"] == "RSA":
        spki = der(0x30, bytes.fromhex("300d06092a864886f70d0101010500"), der(3, b"\0", der(0x30, number(jwk["n"]), number(jwk["e"]))))
    elif jwk.get("crv") == "P-256":
        point = unbase64(jwk["x"]).rjust(32, b"\0") + unbase64(jwk["y"]).rjust(32, b"\0")
        spki = der(0x30, bytes.fromhex("301306072a8648ce3d020106082a8648ce3d030107"), der(3, b"\0\4", point))
    else:
        return {}
    return {"key": "-----BEGIN PUBLIC KEY-----\n%s-----END PUBLIC KEY-----\n" % base64.encodebytes(spki).decode()}


@unittest.skipUnless(FOLDER, "LUASERVE_WYCHEPROOF does not name a folder")
class Wycheproof(E2E):
    maxDiff = None
    SITE = SITE

    def check(self, kind, name, cases):
        """cases: [(the vector, what ls.crypto gets, whether it is valid)]"""
        self.assertTrue(cases)
        got = self.ask("POST", "/" + kind, [("Content-Type", "application/json")], json.dumps([case for _, case, _ in cases]).encode())
        self.assertEqual(got.status, 200, got.text[:200])
        results = json.loads(got.text)
        self.assertEqual([(name, vector["tcId"], vector["comment"], result) for (vector, _, valid), result in zip(cases, results)
                          if (result == "true") != valid and vector["result"] != "acceptable"], [])
        self.assertEqual(any(valid for *_, valid in cases), name != "DER")

    @staticmethod
    def groups(name):
        return json.loads(read_text(os.path.join(FOLDER, name + "_test.json")))["testGroups"]

    def test_hmac(self):
        for algorithm in "sha1", "sha256", "sha384", "sha512":
            self.check("mac", algorithm, [(test, {**test, "algorithm": algorithm}, test["result"] == "valid")
                                          for group in self.groups("hmac_" + algorithm) for test in group["tests"]])

    def test_signatures(self):
        for name in ("ed25519", "ecdsa_secp256r1_sha256_p1363", *("rsa_signature_%d_sha256" % bits for bits in (2048, 3072, 4096))):
            self.check("signature", name, [(test, {**test, "key": group["publicKeyPem"]}, test["result"] == "valid")
                                           for group in self.groups(name) for test in group["tests"]])

    def test_signatures_of_ecdsa_in_der_are_not_those_of_tokens(self):
        self.check("signature", "DER", [(test, {**test, "key": group["publicKeyPem"]}, False)
                                        for group in self.groups("ecdsa_secp256r1_sha256") for test in group["tests"]])

    def test_tokens(self):
        for name in "json_web_signature", "json_web_crypto":
            cases = []
            for group in self.groups(name):
                jwk = group.get("public") or group["private"]
                # What a PEM text does not say: another use, or another algorithm.
                if jwk.get("alg") in ALGORITHMS and jwk.get("use", "sig") == "sig" and "key_ops" not in jwk and key_of(jwk):
                    cases += [(test, {"jws": test["jws"], **key_of(jwk)}, test["result"] == "valid") for test in group["tests"]
                              if isinstance(test.get("jws"), str) and test["comment"] not in OTHERWISE]
            self.check("token", name, cases)
