"""A hostile OpenID provider in Lua, whose answers a test changes; its keys; a browser that follows redirects."""
import base64
import http.client
import json
import subprocess
from urllib.parse import parse_qs, urlencode, urlsplit

from harness.environment import WAIT

ISSUER = "http://127.0.0.1:%d"

# Changes of /change: doc, claims, header, token, userinfo (fields; "(none)" removes one), callback (parameters), keys (names), sign
# (the name of a key, "none", "hs256:TEXT"), raw (path -> {status, body, location}), hold (the token endpoint does not answer).
PROVIDER = r"""
local ls = require "luaserve"
local app = ls.app()
local pem, jwk = ls.json.decode([==[@PEM@]==]), ls.json.decode([==[@JWK@]==])
local state, codes, counts, seen = ls.dict "state", ls.dict "codes", ls.dict "counts", ls.dict "seen"

local function changes(name) return (state:get "changes" or {})[name] end
local function changed(name, fields)
  for key, value in pairs(changes(name) or {}) do
    if value == "(none)" then fields[key] = nil else fields[key] = value end
  end
  return fields
end
local function encode(value) return ls.crypto.base64url.encode(value) end
local function half(name, text) local d = ls.crypto[name](text) return encode(d:sub(1, #d // 2)) end

local function token(claims)
  local how = changes "sign" or "rsa"
  local alg = ({ rsa = "RS256", rsa2 = "RS256", ec = "ES256", ed = "EdDSA", none = "none" })[how] or "HS256"
  local header = changed("header", { alg = alg, kid = pem[how] and how, typ = "JWT" })
  local text = encode(ls.json.encode(header)) .. "." .. encode(ls.json.encode(claims))
  local secret = how:match "^hs256:(.*)$"
  local code = how == "none" and "" or secret and ls.crypto.hmac("sha256", secret, text) or ls.crypto.sign(pem[how], text)
  return text .. "." .. encode(code)
end

app:use(function(req, res, next)
  counts:incr(req.path)
  local raw = (changes "raw" or {})[req.path]
  if not raw then return next() end
  if raw.body == "endless" then
    for _ = 1, 100 do res:write(("x"):rep(65536)) end
    return
  end
  return raw.status, raw.body, { ["Content-Type"] = "application/json", Location = raw.location }
end)
app:post("/change", function(req) state:set("changes", req:json()) return "ok" end)
app:get("/counts", function() return { doc = counts:get "/.well-known/openid-configuration" or 0, keys = counts:get "/keys" or 0,
  token = counts:get "/token" or 0, revoked = seen:get "revoked" } end)
app:get("/seen", function() return seen:get "authorize" or {} end)
local function discovery(req)
  local at = "http://" .. req.authority
  return changed("doc", { issuer = at .. (req.params.tenant and "/" .. req.params.tenant or ""), authorization_endpoint = at .. "/authorize", token_endpoint = at .. "/token",
    jwks_uri = at .. "/keys", userinfo_endpoint = at .. "/userinfo", end_session_endpoint = at .. "/end",
    revocation_endpoint = at .. "/revoke" })
end
app:get("/.well-known/openid-configuration", discovery)
app:get("/:tenant/.well-known/openid-configuration", discovery)
app:get("/keys", function()
  local list = ls.json.array {}
  for _, name in ipairs(changes "keys" or { "rsa", "ec", "ed" }) do list[#list + 1] = jwk[name] end
  return { keys = list }
end)
app:get("/authorize", function(req, res)
  local q = req.query
  seen:set("authorize", q)
  local code = ls.crypto.token()
  codes:set(code, q)
  local answer = changed("callback", { code = code, state = q.state, iss = "http://" .. req.authority })
  return res:redirect(q.redirect_uri .. "?" .. ls.url.query(answer), 303)
end)
local function tokens(req, of, refresh)
  local now, access = os.time(), ls.crypto.token()
  local alg = changes "sign" == "ed" and "sha512" or "sha256"
  local claims = changed("claims", { iss = "http://" .. req.authority, sub = of.sub or "ada-1", aud = of.client_id, exp = now + 600,
    iat = now, nonce = of.nonce, at_hash = half(alg, access), name = "Ada" })
  counts:incr "issued"
  local new = ls.crypto.token()
  codes:set(new, of)
  return changed("token", { access_token = access, token_type = "Bearer", expires_in = 600, id_token = token(claims),
    refresh_token = refresh and new or nil })
end
app:post("/token", function(req)
  local form, basic = req:form(), req.headers.authorization
  while changes "hold" do ls.sleep(0.02) end
  local id = basic and ls.crypto.base64.decode(basic:match "^Basic (.*)$") or form.client_id .. ":" .. (form.client_secret or "")
  local code = form.code or form.refresh_token
  local of = codes:get(code or "")
  if not of or not codes:delete(code) then return 400, { error = "invalid_grant", error_description = "used" } end
  if id ~= of.client_id .. ":a%20secret%20of%20the%20tests%2C%20long" and id ~= of.client_id .. ":" then
    return 401, { error = "invalid_client" }
  end
  if form.grant_type == "authorization_code" and (form.redirect_uri ~= of.redirect_uri
    or encode(ls.crypto.sha256(form.code_verifier or "")) ~= of.code_challenge or of.code_challenge_method ~= "S256") then
    return 400, { error = "invalid_grant", error_description = "PKCE" }
  end
  return tokens(req, of, (of.scope or ""):find "offline")
end)
app:get("/userinfo", function(req)
  if not (req.headers.authorization or ""):find "^Bearer " then return 401 end
  return changed("userinfo", { sub = "ada-1", email = "ada@id.example", email_verified = true })
end)
app:post("/revoke", function(req) seen:set("revoked", req:form().token ~= nil) return 200 end)
app:get("/end", function(req) return req.query end)
app:get("/access/:how", function(req) -- a token for an API
  local now = os.time()
  return token(changed("claims", { iss = "http://" .. req.authority, sub = "robot", aud = "api", exp = now + 600, iat = now }))
end)
ls.listen("127.0.0.1:@PORT@", app)
"""


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def make_keys():
    """-> {name: private key in PEM}, {name: public JWK}; "pem": the public keys in PEM."""
    rsa = ("-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048")
    kinds = {"rsa": rsa, "rsa2": rsa, "ec": ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"), "ed": ("-algorithm", "ed25519")}

    def openssl(*args, data=None):
        return subprocess.run(["openssl", *args], input=data, capture_output=True, check=True).stdout

    pem, jwk, public = {}, {}, {}
    for name, options in kinds.items():
        private = openssl("genpkey", *options)
        pem[name], public[name] = private.decode(), openssl("pkey", "-pubout", data=private).decode()
        der = openssl("pkey", "-pubout", "-outform", "DER", data=private)
        if options is rsa:
            modulus = openssl("rsa", "-noout", "-modulus", data=private).decode().strip().split("=")[1]
            jwk[name] = {"kty": "RSA", "n": encoded(bytes.fromhex(modulus)), "e": "AQAB", "alg": "RS256", "use": "sig"}
        elif name == "ec":
            jwk[name] = {"kty": "EC", "crv": "P-256", "x": encoded(der[-64:-32]), "y": encoded(der[-32:])}
        else:
            jwk[name] = {"kty": "OKP", "crv": "Ed25519", "x": encoded(der[-32:])}
        jwk[name]["kid"] = name
    jwk["odd"] = {"kty": "RSA", "n": "!", "e": 1, "kid": ["x"]}
    jwk["enc"] = {**jwk["rsa"], "use": "enc"}
    jwk["rs512"] = {**jwk["rsa"], "alg": "RS512"}
    return pem, jwk, public


def provider_site(pem, jwk, port=0):
    return PROVIDER.replace("@PEM@", json.dumps(pem)).replace("@JWK@", json.dumps(jwk)).replace("@PORT@", str(port))


class Answer:
    def __init__(self, status, headers, body, url):
        self.status, self.headers, self.text, self.url = status, headers, body.decode("utf-8", "replace"), url
        self.location = self.headers.get("Location")
        self.query = {name: values[0] for name, values in parse_qs(urlsplit(self.location or url).query).items()}

    def cookies(self):
        return self.headers.get_all("Set-Cookie") or []


class Browser:
    """Keeps cookies by host and port; go() follows redirects up to one whose URL begins with `until`."""

    def __init__(self, at):
        self.at, self.jar = at, {}

    def one(self, url, form=None, headers=()):
        parts = urlsplit(url if "://" in url else self.at + url)
        jar = self.jar.setdefault(parts.netloc, {})
        fields = dict(headers)
        if jar:
            fields["Cookie"] = "; ".join("%s=%s" % item for item in jar.items())
        if form is not None:
            fields["Content-Type"] = "application/x-www-form-urlencoded"
        conn = http.client.HTTPConnection(parts.hostname, parts.port, timeout=WAIT)
        try:
            conn.request("GET" if form is None else "POST", (parts.path or "/") + ("?" + parts.query if parts.query else ""),
                         None if form is None else urlencode(form), fields)
            got = conn.getresponse()
            answer = Answer(got.status, got.headers, got.read(), parts.geturl())
        finally:
            conn.close()
        for line in answer.cookies():
            name, _, value = line.split(";")[0].partition("=")
            if "max-age=0" in line.lower() or "01 Jan 1970" in line:
                jar.pop(name, None)
            else:
                jar[name] = value
        return answer

    def go(self, url, form=None, until=None, headers=()):
        answer = self.one(url, form, headers)
        for _ in range(20):
            if not answer.location or until and answer.location.startswith(until):
                return answer
            base = urlsplit(answer.url)
            answer = self.one(answer.location if "://" in answer.location else "%s://%s%s" % (base.scheme, base.netloc, answer.location))
        raise AssertionError("too many redirects: " + answer.url)
