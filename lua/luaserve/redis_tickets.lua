-- redis_tickets.lua - the option ticket_secret of listeners: the keys of TLS session tickets that servers share.
--
-- Each period has a key of its own, by the number of the period since 1970. The first server that needs it makes it and
-- puts it into Redis, sealed with the secret. A server has the key of this period, which encrypts, and those of the next
-- and the previous one, so that tickets of servers whose clocks differ are accepted. The core continues with keys of its own
-- when it gets none.

local core = require "luaserve.core"
local seal = require "luaserve.seal"
local usage = require "luaserve.usage"

-- A site may replace the globals.
local concat, ipairs, time, type = table.concat, ipairs, os.time, type

local tickets = {}

local PERIOD_S <const>, LOOK_S <const>, AGAIN_S <const> = 12 * 3600, 60, 2
local KEY_BYTES <const> = 80
local KEY <const> = "luaserve:{tickets}:"

-- KEYS: of this period, the next and the previous one. ARGV: new values for the first two, seconds that they last.
local script <const> = [[
for i = 1, 2 do redis.call('SET', KEYS[i], ARGV[i], 'NX', 'EX', ARGV[3]) end
return redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])]]

local client, secrets -- of this site

local function context(period) return "luaserve tickets " .. period end

-- refresh() -> true | nil, message
local function refresh()
  local period = time() // PERIOD_S
  local names, sealed, list = {}, {}, {}
  for i, number in ipairs { period, period + 1, period - 1 } do
    names[i] = KEY .. number
    if i < 3 then sealed[i] = core.crypto_seal(secrets[1], core.crypto_random(KEY_BYTES), context(number)) end
  end
  sealed[3] = 4 * PERIOD_S
  local replies, message = require("luaserve.redis").eval(client, "table", script, names, sealed)
  if not replies then return nil, message end
  for i, number in ipairs { period, period + 1, period - 1 } do
    local key = type(replies[i]) == "string" and seal.open(secrets, replies[i], context(number))
    if key and #key == KEY_BYTES then
      list[#list + 1] = key
    elseif i == 1 then
      return nil, "the keys in Redis were not sealed with this ticket_secret"
    end
  end
  core.tls_ticket_keys(concat(list))
  return true
end

local function run(warned)
  local gate = core.redis_connection()
  while true do
    gate:wait(warned and AGAIN_S or LOOK_S, "idle")
    local ok, message = refresh()
    if not ok and not warned then
      core.log("warn", "tls: session tickets are not those of the other servers: " .. message)
    elseif ok and warned then
      core.log("info", "tls: session tickets are those of the other servers again")
    end
    warned = not ok
  end
end

-- share(call, secret): the listeners of this site have the keys in Redis. `call`: for messages. Raises.
function tickets.share(call, given)
  local list = seal.keys(call, given)
  if secrets and concat(secrets) ~= concat(list) then
    usage.error("%s: another listener has another secret; a server has one", call)
  end
  if not secrets then
    client = require("luaserve.redis_topics").client_of(call, true)
    core.init(function()
      local ok, message = refresh()
      if not ok then core.log("warn", "tls: session tickets are not those of the other servers: " .. message) end
      core.spawn(run, not ok)
    end)
  end
  secrets = list
end

return tickets
