-- ticker.lua - prices that change, as server-sent events, and their page ticker.html.
--
--   luaserve examples/live/ticker.lua [address [milliseconds]]    default: port 8080, a price every 500 ms
--
-- Each event has an id. A browser that has lost the connection connects again by itself and sends the id of the last event
-- it has received (Last-Event-ID): the site sends what was missed. Without a browser:
--
--   curl -N http://127.0.0.1:8080/prices
--   curl -N -H 'Last-Event-ID: 1700000000005' http://127.0.0.1:8080/prices

local ls = require "luaserve"

local address, period = ...
local NAMES = { "ALPHA", "BRAVO", "CHARLIE", "DELTA" }
local EVENTS_MAX = 200 -- that can be sent again

local app = ls.app()
local prices = ls.dict("prices") -- NAME -> its price in cents; "last": the id of the last event; "events": a list

local order = ls.semaphore("ticker", 1) -- events leave in the order of their ids, also while a reload runs two timers

local function tick()
  local name = NAMES[math.random(#NAMES)]
  local price = prices:incr(name, math.random(-150, 150), 10000)
  local id = prices:incr("last", 1, os.time() * 1000) -- also after a new start higher than all before
  local event = { id = tostring(id), data = ls.json.encode { name = name, price = math.max(price, 1) / 100 } }
  if prices:rpush("events", event) > EVENTS_MAX then prices:lpop("events") end
  ls.publish("prices", event.data, { id = event.id })
end

-- One timer for all Lua states.
ls.every((tonumber(period) or 500) / 1000, function() order:with(tick) end)

app:get("/", function(_, res) return res:file("ticker.html") end)

app:get("/prices", function(req, res)
  local last = tonumber(req.headers["last-event-id"]) or 0
  local sse = res:sse { retry = 1 }
  -- sse:send waits for a slow client. A price that overtook older ones would become the last one of its page, which would
  -- then never get those: so the stream subscribes when all have been sent, and none is published meanwhile.
  repeat
    for _, event in ipairs(prices:range("events")) do
      local id = tonumber(event.id)
      if id > last then
        sse:send(event)
        last = id
      end
    end
  until order:with(function()
    local newest = prices:range("events", -1)[1]
    if newest and tonumber(newest.id) > last then return false end
    sse:subscribe("prices")
    return true
  end)
  sse:wait()
end)

ls.listen(address or 8080, app)
