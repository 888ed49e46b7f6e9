-- crypto.lua - ls.crypto: checks the arguments for the core (crypto_object.c), the form of password hashes, and the keys of
-- sealed texts.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local seal = require "luaserve.seal"

-- A site may replace the globals.
local format, match, math_type, rep, sub = string.format, string.match, math.type, string.rep, string.sub
local pairs, tonumber, type = pairs, tonumber, type
local no_more = usage.no_more

-- ls.crypto is a Crypto: digests, random bytes, password hashes, sealed texts.
-- type Digest: "sha256"|"sha384"|"sha512"|"sha1"|"md5" - the name of a digest.
-- type Encoding: "hex"|"base64"|"base64url" - how a digest is written; without one it is the bytes themselves.
local crypto = {}

local built = core.crypto_built()

-- need(name): raises in a build without OpenSSL.
local function need(name)
  if not built then usage.error("ls.crypto.%s needs OpenSSL, without which this luaserve was built", name) end
end

local digests = { md5 = 0, sha1 = 1, sha256 = 2, sha384 = 3, sha512 = 4 } -- enum ls_digest
local encodings = { hex = 1, base64 = 2, base64url = 3 }

-- Strings and numbers are data, and buffers, which the core reads where they are.
local function check_data(call, value)
  if type(value) == "string" or type(value) == "number" or core.is_buffer(value) then return value end
  usage.error("ls.crypto.%s: data must be a string or a buffer; got %s", call, usage.quote(value))
end

local function check_encoding(call, encoding)
  if encoding == nil then return nil end
  return encodings[encoding]
    or usage.error('ls.crypto.%s: encoding must be "hex", "base64" or "base64url"; got %s', call, usage.quote(encoding))
end

local function check_digest(call, name)
  return digests[name] or usage.error(
    'ls.crypto.%s: algorithm must be "sha256", "sha384", "sha512", "sha1" or "md5"; got %s', call, usage.quote(name))
end

local function check_count(call, n, least, most, hint)
  usage.refuse(math_type(n) ~= "integer" or n < least or n > most, n,
    "ls.crypto.%s takes a number of bytes from %d to %d%s", call, least, most, hint or "")
  return n
end

-- check_secret(call, key): raises for an empty key, with which everybody could sign.
local function check_secret(call, key)
  if key == "" then usage.error("ls.crypto.%s: the key is empty, so everybody could sign; is the variable with the secret set?", call) end
end

-- ls.crypto.sha256|sha384|sha512|sha1|md5(data: string|Buffer [, encoding: Encoding]) -> digest: string
-- The digest of the data: bytes, or text in an encoding. SHA-1 and MD5 are broken; they are for old protocols.
for name, digest in pairs(digests) do
  crypto[name] = function(data, encoding, ...)
    need(name)
    check_data(name, data)
    no_more("ls.crypto." .. name .. "(data, encoding)", encoding, ...)
    return core.crypto_hash(digest, data, nil, check_encoding(name, encoding))
  end
end

-- ls.crypto.hmac(algorithm: Digest, key: string, data: string|Buffer [, encoding: Encoding]) -> code: string
-- The HMAC of the data (RFC 2104). Compare it with ls.crypto.equal.
function crypto.hmac(algorithm, key, data, encoding, ...)
  need("hmac")
  local digest = check_digest("hmac", algorithm)
  usage.check(key, "string", "ls.crypto.hmac: key must be a string")
  check_secret("hmac", key)
  check_data("hmac", data)
  usage.no_more("ls.crypto.hmac(algorithm, key, data, encoding)", encoding, ...)
  return core.crypto_hash(digest, data, key, check_encoding("hmac", encoding))
end

-- ls.crypto.hasher(algorithm: Digest [, key: string]) -> hasher
-- Makes an object for data that arrive in parts; with a key its result is an HMAC.
function crypto.hasher(algorithm, key, ...)
  need("hasher")
  local digest = check_digest("hasher", algorithm)
  usage.check(key, "string?", "ls.crypto.hasher: key must be a string")
  check_secret("hasher", key)
  usage.no_more("ls.crypto.hasher(algorithm, key)", key, ...)
  return core.crypto_hasher(digest, key)
end

local function random(count)
  if core.dev then require("luaserve.dev_state").watch_drawn() end
  return core.crypto_random(count)
end

-- ls.crypto.random(count: integer) -> bytes: string
-- Bytes that cannot be guessed.
function crypto.random(count, ...)
  usage.no_more("ls.crypto.random(count)", count, ...)
  return random(check_count("random", count, 1, 1 << 20))
end

-- ls.crypto.token([count: integer]) -> text
-- Random bytes, 32 unless given, as base64url: for links, API keys and names of uploads.
function crypto.token(count, ...)
  usage.no_more("ls.crypto.token(count)", count, ...)
  return core.crypto_encode(encodings.base64url, random(check_count("token", count or 32, 16, 1024,
    " (a short code is a part of the text: ls.crypto.token():sub(1, 8))")))
end

-- ls.crypto.uuid() -> text
-- A random UUID (RFC 9562, version 4).
function crypto.uuid(...)
  usage.no_more("ls.crypto.uuid()", nil, ...)
  local text = core.crypto_encode(encodings.hex, random(16))
  local variant = format("%x", 8 | tonumber(sub(text, 17, 17), 16) & 3)
  return sub(text, 1, 8) .. "-" .. sub(text, 9, 12) .. "-4" .. sub(text, 14, 16) .. "-" .. variant .. sub(text, 18, 20)
    .. "-" .. sub(text, 21)
end

-- ls.crypto.equal(a: any, b: any) -> equal: boolean
-- Whether two strings are equal, in a time that does not tell how much of a guess is right. Another value is equal to
-- nothing.
function crypto.equal(a, b, ...)
  usage.no_more("ls.crypto.equal(a, b)", b, ...)
  return type(a) == "string" and type(b) == "string" and core.crypto_equal(a, b)
end

for name, code in pairs(require "luaserve.text_code") do crypto[name] = code end

-- ---- sealed texts ---------------------------------------------------------------------------------------------------

-- ls.crypto.seal(secret: string|string[], text [, context: string]) -> sealed: string
-- Encrypts a text so that only ls.crypto.open with the same secret and context can read it, and so that a change is found.
-- Of several secrets the first one seals. The result has the characters of base64url.
function crypto.seal(secret, text, context, ...)
  need("seal")
  usage.check(text, "string", "ls.crypto.seal: text must be a string")
  usage.check(context, "string?", "ls.crypto.seal: context must be a string")
  usage.no_more("ls.crypto.seal(secret, text, context)", context, ...)
  return core.crypto_seal(seal.keys("ls.crypto.seal", secret)[1], text, context or "")
end

-- ls.crypto.open(secret: string|string[], sealed: any [, context: string]) -> text | nil, message, code
-- Reads a sealed text. EINVAL: it was changed, or sealed with another secret or context.
function crypto.open(secret, sealed, context, ...)
  need("open")
  usage.check(context, "string?", "ls.crypto.open: context must be a string")
  usage.no_more("ls.crypto.open(secret, sealed, context)", context, ...)
  local list = seal.keys("ls.crypto.open", secret)
  local text = type(sealed) == "string" and seal.open(list, sealed, context or "")
  if not text then return nil, "the text was not sealed with this secret and context, or was changed", "EINVAL" end
  return text
end

-- ---- passwords ------------------------------------------------------------------------------------------------------

-- ls.crypto.password: Password - hashes of passwords
-- ls.crypto.password is a Password: hashes of passwords.
local password = {}

local password_bytes_max = 1024
local log_n, r, p = 15, 8, 3 -- 32 MiB; of the parameters that OWASP recommends
local at_a_time = 2 -- of the threads of the port (LS_WORK_THREADS_MAX), which ls.file needs as well
local begun_max = 50 -- of the server: some seconds of work
local busy = format("%d passwords are being hashed already", begun_max)

local begun, gate
-- -> 32 bytes. Raises a failure when too many have begun: a password is not wrong then.
local function scrypt(call, text, salt, ...)
  if core.thread() == 0 then return core.crypto_scrypt(text, salt, ...) end -- the site loads
  begun = begun or core.semaphore("luaserve.passwords", begun_max, "luaserve")
  gate = gate or core.semaphore("luaserve.password", at_a_time, "luaserve")
  local bytes = core.semaphore_within(begun, 0, gate.with, gate, core.crypto_scrypt, text, salt, ...)
  return bytes or require("luaserve.failure").raise("ls.crypto.password." .. call, { message = busy, code = "EBUSY" })
end

local function base64(bytes) return (core.crypto_encode(encodings.base64, bytes):gsub("=", "")) end

-- ls.crypto.password.hash(password: string) -> hash: string | nil, message, code
-- Hashes a password with scrypt and a random salt: the text that a site stores. Waits for about 0.2 s, in which other
-- tasks continue. ELIMIT: the password has more than 1,024 bytes; EINVAL: it is empty. Raises a Failure while 50 are being hashed.
function password.hash(text, ...)
  need("password.hash")
  usage.check(text, "string", "ls.crypto.password.hash: password must be a string")
  usage.no_more("ls.crypto.password.hash(password)", text, ...)
  if text == "" then return nil, "the password is empty", "EINVAL" end
  if #text > password_bytes_max then
    return nil, format("the password has more than %d bytes", password_bytes_max), "ELIMIT"
  end
  local salt = core.crypto_random(16)
  local bytes = scrypt("hash", text, salt, log_n, r, p)
  return format("$scrypt$ln=%d,r=%d,p=%d$%s$%s", log_n, r, p, base64(salt), base64(bytes))
end

-- The parameters, the salt and the bytes of a hash; nil unless it is one that `verify` can take.
local function parts_of(hash)
  local n, rr, pp, salt, bytes = match(hash, "^%$scrypt%$ln=(%d%d?),r=(%d%d?),p=(%d%d?)%$([%w+/]+)%$([%w+/]+)$")
  if not n then return nil end
  n, rr, pp = tonumber(n), tonumber(rr), tonumber(pp)
  salt, bytes = core.crypto_decode(encodings.base64, salt), core.crypto_decode(encodings.base64, bytes)
  local fits = n >= 1 and rr >= 1 and pp >= 1 and n <= 18 and n < 16 * rr and 128 * rr * ((1 << n) + pp) <= 256 << 20
  if not fits or not salt or not bytes or #bytes ~= 32 then return nil end
  return n, rr, pp, salt, bytes
end

-- ls.crypto.password.verify(password: any, hash: string|nil) -> right: boolean, outdated: boolean
-- Whether the password is the one of the hash. With nil as the hash, of a user who does not exist, the result is false and
-- takes the same time. `outdated`: the hash has other parameters than a new one. Raises for a text that is no hash, and a Failure
-- while 50 are being hashed. Waits.
function password.verify(text, hash, ...)
  need("password.verify")
  usage.check(hash, "string?", "ls.crypto.password.verify: hash must be a string")
  usage.no_more("ls.crypto.password.verify(password, hash)", hash, ...)
  local n, rr, pp, salt, expected = log_n, r, p, rep("\0", 16), nil
  if hash ~= nil then
    n, rr, pp, salt, expected = parts_of(hash)
    if not n then
      usage.error("ls.crypto.password.verify: the text is not a hash of ls.crypto.password.hash: $scrypt$ln=15,r=8,p=3$...")
    end
  end
  if type(text) ~= "string" or text == "" or #text > password_bytes_max then return false, false end
  local got = scrypt("verify", text, salt, n, rr, pp)
  local right = expected ~= nil and core.crypto_equal(got, expected)
  return right, right and (n ~= log_n or rr ~= r or pp ~= p)
end

crypto.password = usage.strict("ls.crypto.password", password)

-- later(name) -> a function of signature.lua, which is loaded at its first call.
local function later(shown, name)
  return function(...)
    need(shown)
    return require("luaserve.signature")[name](...)
  end
end

crypto.sign, crypto.verify = later("sign", "sign"), later("verify", "verify")
-- ls.crypto.jwt: Jwt - JSON Web Tokens
crypto.jwt = usage.strict("ls.crypto.jwt", {
  sign = later("jwt.sign", "jwt_sign"),
  verify = later("jwt.verify", "jwt_verify"),
})

return usage.strict("ls.crypto", crypto)
