-- signature.lua - ls.crypto.sign, ls.crypto.verify and ls.crypto.jwt: JSON Web Tokens (RFC 7519) in the compact form of
-- JWS (RFC 7515), with the advice of RFC 8725.
--
-- A key has one algorithm: that of a PEM key follows from its kind, any other string is a secret for HS256. A token whose
-- header names another algorithm is refused before its signature is looked at; there is no algorithm "none".

local core = require "luaserve.core"
local json = require "luaserve.json"
local options = require "luaserve.options"
local usage = require "luaserve.usage"

local byte, char, concat, find, format = string.byte, string.char, table.concat, string.find, string.format
local gsub, match, pack, sub, unpack = string.gsub, string.match, string.pack, string.sub, string.unpack
local time, type = os.time, type

local signature = {}

local jwt_sign_options = {
  expires_in = { "expires_ms", "seconds", 1000, 320000000000 }, -- seconds: adds the claims iat and exp
  -- table<string, any> - further members of the header, such as { kid = "2024" }
  header = { "header", "is", "table", "a table" },
}
local jwt_verify_options = {
  issuer = { "issuer", "is", "string", "a string" }, -- string - the claim iss must be this
  -- string - the claim aud must be this, or a list with it; without it, a token with aud is refused
  audience = { "audience", "is", "string", "a string" },
  leeway = { "leeway_ms", "seconds", 0, 600000, 60 }, -- seconds by which the clocks may differ
}
signature.calls = {
  ["ls.crypto.jwt.sign"] = { jwt_sign_options, listed = true }, -- JwtSignOptions
  ["ls.crypto.jwt.verify"] = { jwt_verify_options, listed = true }, -- JwtVerifyOptions
}

local sha256, base64, base64url = 2, 2, 3
local secret_bytes_min, token_bytes_max = 32, 8192
local keys, key_count, keys_max = {}, 0, 100 -- by their text

local function is_pem(text) return find(text, "-----BEGIN", 1, true) ~= nil end

-- Whether the bytes begin with a DER sequence of their whole length, in which a sequence or an integer comes first, as in
-- every key of X.509 (SubjectPublicKeyInfo), PKCS #1 and PKCS #8.
local function is_der(bytes)
  local long = match(bytes, "^\x30([\x81-\x83])")
  local at = long and #long + 1 + (byte(long) & 3) + 1 or 3
  if #bytes < at or byte(bytes) ~= 0x30 then return false end
  local length = long and unpack(">I" .. at - 3, bytes, 3) or byte(bytes, 2)
  return length == #bytes - at + 1 and find(bytes, "^[\x02\x30]", at) ~= nil
end

-- Whether the text is a key in another form than PEM: it must not pass for a secret, because a public key is known to all.
local function is_other_key(text)
  if find(text, "^%s*{") or find(text, "^%s*%l[%w@.-]*%-%w+ AAAA") or find(text, "^%s*%-+ ?BEGIN ") then return true end
  local bytes = core.crypto_decode(base64, (text:gsub("%s", "")))
  return is_der(text) or bytes ~= nil and is_der(bytes)
end

-- key_of(call, text) -> { algorithm =, key = | secret = }. Raises.
local function key_of(call, text)
  if type(text) ~= "string" then usage.error("%s: key must be a string; got %s", call, usage.quote(text)) end
  local key = keys[text]
  if key then return key end
  if is_pem(text) then
    local made, algorithm = core.crypto_key(text)
    if not made and algorithm == "ENOTSUP" then
      usage.error("%s: the key is of another kind: RSA of 2,048 to 8,192 bits, EC of P-256 and Ed25519 are known", call)
    elseif not made then
      usage.error("%s: the PEM text holds no key that can be read, or one with a password", call)
    end
    key = { algorithm = algorithm, key = made }
  elseif is_other_key(text) then
    usage.error("%s: the key is neither a secret nor in PEM: write it as -----BEGIN PUBLIC KEY-----, then lines of base64, "
      .. "then -----END PUBLIC KEY-----", call)
  elseif #text < secret_bytes_min then
    usage.error("%s: the secret has %d bytes; at least %d are needed for HS256", call, #text, secret_bytes_min)
  else
    key = { algorithm = "HS256", secret = text }
  end
  if key_count == keys_max then keys, key_count = {}, 0 end
  keys[text], key_count = key, key_count + 1
  return key
end

-- A value of DER: its tag, the length, the bytes (X.690 section 8.1).
local function der(tag, ...)
  local bytes = concat { ... }
  return tag .. (#bytes < 128 and char(#bytes) or #bytes < 256 and "\x81" .. char(#bytes) or "\x82" .. pack(">I2", #bytes))
    .. bytes
end
local SEQUENCE <const>, INTEGER <const>, BITS <const> = "\x30", "\x02", "\x03"
local rsa <const> = "\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00" -- RFC 8017, appendix A.1
local p256 <const> = "\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07" -- RFC 5480
local ed25519 <const> = "\x30\x05\x06\x03\x2b\x65\x70" -- RFC 8410

-- A positive integer of big-endian bytes.
local function integer(bytes)
  bytes = gsub(bytes, "^\0+", "")
  return der(INTEGER, (bytes == "" or byte(bytes) >= 128) and "\0" or "", bytes)
end

-- key_of_jwk(jwk) -> the public key of a JSON Web Key (RFC 7518 section 6, RFC 8037), as that of key_of with `kid` | nil:
-- it is of another kind, or malformed
function signature.key_of_jwk(jwk)
  local function bytes(name, length)
    local value = type(jwk[name]) == "string" and core.crypto_decode(base64url, jwk[name])
    return value and (#value == length or not length and #value > 0 and #value <= 1024) and value or nil
  end
  local algorithm, key
  if jwk.kty == "RSA" then
    local n, e = bytes "n", bytes "e"
    algorithm, key = rsa, n and e and der(SEQUENCE, integer(n), integer(e))
  elseif jwk.kty == "EC" and jwk.crv == "P-256" then
    local x, y = bytes("x", 32), bytes("y", 32)
    algorithm, key = p256, x and y and "\4" .. x .. y
  elseif jwk.kty == "OKP" and jwk.crv == "Ed25519" then
    algorithm, key = ed25519, bytes("x", 32)
  end
  if not key then return nil end
  local text = core.crypto_encode(base64, der(SEQUENCE, algorithm, der(BITS, "\0", key)))
  local made, name = core.crypto_key("-----BEGIN PUBLIC KEY-----\n" .. gsub(text, ("."):rep(64), "%0\n")
    .. "\n-----END PUBLIC KEY-----\n")
  return made and { key = made, algorithm = name, kid = jwk.kid }
end

-- The key, of those for ls.crypto.sign and verify: a PEM key.
local function pem_key_of(call, text)
  local key = type(text) == "string" and is_pem(text) and key_of(call, text)
  return key or usage.error("%s: key must be a PEM text with -----BEGIN; a secret is for ls.crypto.hmac", call)
end

local function signed(call, key, data)
  if key.secret then return core.crypto_hash(sha256, data, key.secret) end
  return core.crypto_sign(key.key, data) or usage.error("%s: the key is a public one, which cannot sign", call)
end

local function is_signed(key, data, given)
  if key.secret then return core.crypto_equal(core.crypto_hash(sha256, data, key.secret), given) end
  return core.crypto_verify(key.key, data, given)
end

-- ls.crypto.sign(key: string, data: string) -> signature: string
-- Signs data with a private key in PEM: RSA (PKCS #1 v1.5 with SHA-256), P-256 (64 bytes) or Ed25519.
function signature.sign(key, data, ...)
  usage.check(data, "string", "ls.crypto.sign: data must be a string")
  usage.no_more("ls.crypto.sign(key, data)", data, ...)
  return signed("ls.crypto.sign", pem_key_of("ls.crypto.sign", key), data)
end

-- ls.crypto.verify(key: string, data: string, signature: any) -> right: boolean
-- Whether this is the signature of the data. `key`: a public or private key in PEM.
function signature.verify(key, data, given, ...)
  usage.check(data, "string", "ls.crypto.verify: data must be a string")
  usage.no_more("ls.crypto.verify(key, data, signature)", given, ...)
  key = pem_key_of("ls.crypto.verify", key)
  return type(given) == "string" and is_signed(key, data, given)
end

local function encoded(call, value)
  local fine, text = pcall(json.encode, value)
  if not fine then usage.error("%s: %s", call, text) end
  return core.crypto_encode(base64url, text)
end

-- The object that a part of a token holds; nil: none.
local function object_of(part)
  local text = core.crypto_decode(base64url, part)
  if not text or not find(text, "^%s*{") then return nil end
  local fine, value = pcall(json.decode, text)
  return fine and type(value) == "table" and value or nil
end

-- ls.crypto.jwt is a Jwt: JSON Web Tokens.
-- ls.crypto.jwt.sign(claims: Claims, key: string [, options: JwtSignOptions]) -> token: string
-- Makes a token. `key`: a secret of at least 32 bytes (HS256) or a private key in PEM (RS256, ES256, EdDSA).
function signature.jwt_sign(claims, key, given, ...)
  local call = "ls.crypto.jwt.sign"
  if type(claims) ~= "table" then usage.error("%s: claims must be a table; got %s", call, usage.quote(claims)) end
  if given ~= nil and type(given) ~= "table" then usage.error("%s: options must be a table", call) end
  usage.no_more("ls.crypto.jwt.sign(claims, key, options)", given, ...)
  local one, out = key_of(call, key), options.take(call, given or {}, signature.calls[call], {})
  local header, all = { typ = "JWT", alg = one.algorithm }, claims
  for name, value in pairs(out.header or {}) do
    if name == "alg" then usage.error("%s: header: alg follows from the key", call) end
    header[name] = value
  end
  if out.expires_ms then
    local now = time()
    all = { iat = now, exp = now + out.expires_ms // 1000 }
    for name, value in pairs(claims) do all[name] = value end
  end
  local text = encoded(call, header) .. "." .. encoded(call, all)
  return text .. "." .. core.crypto_encode(base64url, signed(call, one, text))
end

-- why(claims, checks) -> why the claims are not valid, or nil.
local function why(claims, issuer, audience, leeway)
  local now = time()
  for _, name in ipairs { "exp", "nbf", "iat" } do
    local value = claims[name]
    if value ~= nil and (type(value) ~= "number" or value ~= value) then
      return "the claim " .. name .. " is not a number"
    end
  end
  if claims.exp and now >= claims.exp + leeway then return "the token has expired" end
  if claims.nbf and now + leeway < claims.nbf then return "the token is not valid yet" end
  if claims.iat and now + leeway < claims.iat then return "the token was made in the future" end
  if issuer ~= nil and claims.iss ~= issuer then return "the token is from another issuer" end
  if audience == nil then -- RFC 7519 section 4.1.3: who is not named in aud refuses the token
    return claims.aud ~= nil and "the token is for an audience (aud), and the option audience is not set" or nil
  end
  if claims.aud == audience then return nil end
  for _, one in ipairs(type(claims.aud) == "table" and claims.aud or {}) do
    if one == audience then return nil end
  end
  return "the token is for another audience"
end

-- verifier(call, key, options [, find_keys, bytes_max]) -> a function from a token to its claims | nil, message, code.
-- `find_keys`, in place of `key`: a function from the header of a token to a list of keys | nil, message, code. Raises.
function signature.verifier(call, key, given, find_keys, bytes_max)
  if given ~= nil and type(given) ~= "table" then usage.error("%s: options must be a table", call) end
  given = given or {}
  local out = options.take(call, given, signature.calls["ls.crypto.jwt.verify"], {})
  local leeway, issuer, audience = out.leeway_ms // 1000, out.issuer, out.audience
  local fixed = {}
  bytes_max = bytes_max or token_bytes_max
  for i, text in ipairs(find_keys and {} or type(key) == "table" and key or { key }) do fixed[i] = key_of(call, text) end
  if not find_keys and #fixed == 0 then key_of(call, nil) end

  return function(token)
    if type(token) ~= "string" then return nil, "there is no token", "EINVAL" end
    if #token > bytes_max then return nil, format("the token has more than %d bytes", bytes_max), "ELIMIT" end
    local head, payload, code = match(token, "^([%w_-]+)%.([%w_-]+)%.([%w_-]+)$")
    local header = head and object_of(head)
    local given_code = header and core.crypto_decode(base64url, code)
    if not given_code then return nil, "the text is not a token", "EINVAL" end
    if header.crit ~= nil then return nil, "the token needs an extension (crit)", "EINVAL" end
    local list, message, err = fixed, nil, nil
    if find_keys then list, message, err = find_keys(header) end
    if not list then return nil, message, err end
    local data, right = sub(token, 1, #head + 1 + #payload), false
    for i = 1, #list do
      right = right or list[i].algorithm == header.alg and is_signed(list[i], data, given_code)
    end
    if not right then return nil, "the token is not signed with this key", "EINVAL" end
    local claims = object_of(payload)
    if not claims then return nil, "the claims are not a JSON object", "EINVAL" end
    local reason = why(claims, issuer, audience, leeway)
    if reason then return nil, reason, "EINVAL" end
    return claims
  end
end

-- type Keys: string|string[] - a key, or several of which one must fit.
-- type Claims: table<string, any> - the claims of a JSON Web Token.
-- ls.crypto.jwt.verify(token: any, key: Keys [, options: JwtVerifyOptions]) -> claims: Claims | nil, message, code
-- Reads a token, if it was signed with the key, or with one of several, and its times are valid. EINVAL, ELIMIT: it is not
-- valid.
function signature.jwt_verify(token, key, given, ...)
  usage.no_more("ls.crypto.jwt.verify(token, key, options)", given, ...)
  return signature.verifier("ls.crypto.jwt.verify", key, given)(token)
end

return signature
