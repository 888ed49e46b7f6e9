-- seal.lua - the keys of sealed texts, from the secrets of a site; for ls.crypto.seal and sessions.

local core = require "luaserve.core"
local usage = require "luaserve.usage"

local rep, sub, type, ipairs = string.rep, string.sub, type, ipairs

local seal = {}

local sha256 = 2 -- enum ls_digest
local secret_bytes_min = 32
local keys, key_count, keys_max = {}, 0, 100 -- by secret

-- check_secret(call, secret): raises unless it is a string of at least 32 bytes.
local function check_secret(call, secret)
  if type(secret) ~= "string" then
    usage.error("%s: secret must be a string of at least %d bytes, or a list of them; got %s", call, secret_bytes_min,
      type(secret))
  elseif #secret < secret_bytes_min then
    usage.error("%s: the secret has %d bytes; at least %d are needed: make one with `openssl rand -hex 32`", call, #secret,
      secret_bytes_min)
  elseif secret == rep(sub(secret, 1, 1), #secret) then
    usage.error("%s: the secret is the same character again and again: make one with `openssl rand -hex 32`", call)
  end
end

-- keys(call, secret | list) -> the keys for the core, the first of which seals.
function seal.keys(call, secrets)
  if type(secrets) ~= "table" then secrets = { secrets } end
  if #secrets == 0 then check_secret(call, nil) end
  local list = {}
  for i, secret in ipairs(secrets) do
    local key = keys[secret]
    if not key then
      check_secret(call, secret)
      key = core.crypto_hash(sha256, "luaserve seal 1", secret)
      if key_count == keys_max then keys, key_count = {}, 0 end
      keys[secret], key_count = key, key_count + 1
    end
    list[i] = key
  end
  return list
end

-- open(keys, sealed, context) -> text, the number of its key | nil
function seal.open(list, sealed, context)
  for i = 1, #list do
    local text = core.crypto_unseal(list[i], sealed, context)
    if text then return text, i end
  end
end

return seal
