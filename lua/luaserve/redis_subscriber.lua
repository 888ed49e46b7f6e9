-- redis_subscriber.lua - r:subscribe and r:psubscribe: one connection of the Lua state for all subscriptions of a client,
-- and a task that waits for their messages. After a loss it connects again and subscribes to the same. Each subscription has
-- the messages that its function has not got yet, and a task that calls it.

local core = require "luaserve.core"
local nodes = require "luaserve.redis_node"

-- A site may replace the globals.
local ipairs, next, pack, pairs, pcall, setmetatable = ipairs, next, table.pack, pairs, pcall, setmetatable
local tostring, type, unpack = tostring, type, table.unpack

local subscriber = {}

local PAUSE_S, PAUSE_S_MAX = 0.05, 2 -- before the second attempt, doubled before each further one
local WAITING_MAX <const> = 100000 -- messages of a subscription

-- new(client) -> a subscriber without subscriptions
function subscriber.new(client)
  return { client = client, node = client.node, lists = { subscribe = {}, psubscribe = {} }, running = false, conn = false }
end

local function is_empty(self) return not next(self.lists.subscribe) and not next(self.lists.psubscribe) end

-- Each subscription that waits for its confirmation, or those of `list`, gets it or a failure.
local function confirm(self, list, message, code)
  for _, lists in pairs(self.lists) do
    for _, one in pairs(lists) do
      for _, subscription in ipairs(list or one) do
        if subscription.gate then
          subscription.failure = message and { message, code }
          subscription.gate:wake()
          subscription.gate = nil
        end
      end
      if list then return end
    end
  end
end

-- Call the function for each message that waits. A job of its own does, which a limit may end.
local function work(subscription)
  while subscription.first <= subscription.last and not subscription.removed do
    local message = subscription[subscription.first]
    subscription[subscription.first] = nil
    subscription.first = subscription.first + 1
    local ok, job = pcall(core.spawn, subscription.fn, unpack(message, 1, message.n))
    if ok then ok, job = pcall(job.wait, job) end
    if not ok then core.log("error", "in a function of r:subscribe: " .. tostring(job)) end
  end
  subscription.works = false
end

local function deliver(list, ...)
  for _, subscription in ipairs(list or {}) do
    local waiting = subscription.last - subscription.first + 1
    if waiting < WAITING_MAX then
      subscription.last = subscription.last + 1
      subscription[subscription.last] = pack(...)
    elseif not subscription.full then
      core.log("warn", ("r:subscribe: %d messages of %q wait for its function, and further ones are dropped"):format(waiting,
        subscription.name))
    end
    subscription.full = waiting == WAITING_MAX
    subscription.works = subscription.works or pcall(core.spawn, work, subscription)
  end
end

local function take_in(self, message)
  local kind, name = message[1], message[2]
  if message.err then
    confirm(self, nil, select(2, nodes.failure(message.err)))
  elseif kind == "message" then
    deliver(self.lists.subscribe[name], message[3], name)
  elseif kind == "pmessage" then
    deliver(self.lists.psubscribe[name], message[4], message[3], name)
  elseif self.lists[kind] and self.lists[kind][name] then
    self.lists[kind][name].conn = self.conn
    confirm(self, self.lists[kind][name])
  end
end

-- Wait for messages until the connection is lost or closed -> message, code
local function receive(self, conn)
  for kind, lists in pairs(self.lists) do
    for name in pairs(lists) do conn:send(kind, name) end
  end
  self.conn = conn
  local messages, message, code
  repeat
    messages, message, code = conn:read(0)
    for _, one in ipairs(messages or {}) do
      if type(one) == "table" then take_in(self, one) end
    end
  until not messages
  self.conn = false
  return message, code
end

local function listen(self)
  local pause
  while not is_empty(self) do
    local node = nodes.of(self.client)
    local conn, message, code = node:open(false)
    if conn then
      pause = nil
      message, code = receive(self, conn)
      conn:close()
      message = node.target .. ": " .. message
    end
    local left = self.left
    self.left = false
    if core.retired() or code == "ECANCELED" and not left then return nil, message, code end
    if not left then
      confirm(self, nil, message, code)
      if not is_empty(self) then
        if not pause then core.log("warn", message .. "; its subscriptions receive nothing until it is connected again") end
        pause = pause and math.min(pause * 2, PAUSE_S_MAX) or PAUSE_S
        core.sleep(pause)
      end
    end
  end
  return true
end

local function run(self)
  local warned = false
  repeat
    local permitted, ok, message, code = self.node:permitted(function() return listen(self) end)
    if not permitted then ok, message, code = nil, ok, message end
    if not ok then confirm(self, nil, message, code) end
    local again = code == "ETIMEDOUT" and not permitted and not is_empty(self) and not core.retired()
    if again and not warned then
      warned = true
      core.log("warn", message .. "; subscriptions wait for one")
    end
  until not again
  self.running = false
end

local function start(self)
  if self.running or is_empty(self) then return end
  core.spawn(run, self)
  self.running = true
end

local meta = { __name = "a subscription", __metatable = false }
meta.__index = {}

-- remove(): ends the subscription.
function meta.__index.remove(self)
  local owner = self.owner
  local list = not self.removed and owner.lists[self.kind][self.name]
  self.removed = true
  if not list then return end
  for at, one in ipairs(list) do
    if one == self then table.remove(list, at) break end
  end
  if list[1] then return end
  owner.lists[self.kind][self.name] = nil
  if not owner.conn then return end
  if is_empty(owner) then
    owner.left = true
    owner.conn:close()
  else
    owner.conn:send(self.kind == "subscribe" and "UNSUBSCRIBE" or "PUNSUBSCRIBE", self.name)
  end
end

-- Subscribe, unless it was removed. Returns whether Redis has confirmed the name on this connection before.
local function begin(subscription)
  local self, lists = subscription.owner, subscription.owner.lists[subscription.kind]
  if subscription.removed then return true end
  local list = lists[subscription.name] or {}
  lists[subscription.name] = list
  list[#list + 1] = subscription
  if self.conn and list.conn == self.conn then return true end
  if self.conn and #list == 1 then self.conn:send(subscription.kind, subscription.name) end
  start(self)
end

-- add(subscriber, kind, name, fn) -> subscription | nil, message, code. kind: "subscribe" or "psubscribe".
function subscriber.add(self, kind, name, fn)
  local subscription = setmetatable({ owner = self, kind = kind, name = name, fn = fn, removed = false, first = 1, last = 0 },
    meta)
  if not core.can_wait() then
    core.after(0, begin, subscription) -- at the top of the file: once for the server
    return subscription
  end
  local gate = core.redis_connection()
  subscription.gate = gate
  if begin(subscription) then
    subscription.gate = nil
    return subscription
  end
  local limits = self.node.settings.limits
  local woken = gate:wait(limits.connect_ms_max / 1000 + self.node.settings.reply_ms / 1000)
  subscription.gate = nil
  local failure = subscription.failure
  if not woken then failure = { self.node.target .. ": timeout: no reply to " .. kind, "ETIMEDOUT" } end
  if not failure then return subscription end
  subscription:remove()
  return nil, failure[1], failure[2]
end

return subscriber
