-- redis_cluster.lua - a Redis cluster for ls.redis: which node has a key, and redirections (MOVED, ASK). The map of the
-- slots comes from CLUSTER SLOTS, when the first command needs it and when a node cannot be reached; MOVED changes a slot.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local nodes = require "luaserve.redis_node"

-- A site may replace the globals.
local ipairs, next, pairs, pcall, setmetatable, type, unpack = ipairs, next, pairs, pcall, setmetatable, type, table.unpack

local cluster = {}

local SLOTS, REDIRECTIONS_MAX = 16384, 5

local crc_table = {} -- CRC16 of the Redis cluster specification: polynomial 0x1021
for byte = 0, 255 do
  local crc = byte << 8
  for _ = 1, 8 do crc = (crc << 1 ~ (crc & 0x8000 ~= 0 and 0x1021 or 0)) & 0xffff end
  crc_table[byte] = crc
end

-- slot(key) -> the slot of a key, from 0; of its part in braces, if it has one.
function cluster.slot(key)
  key = tostring(key)
  key = key:match("^[^{]*{([^}]+)}") or key
  local crc = 0
  for at = 1, #key do crc = (crc << 8 & 0xffff) ~ crc_table[(crc >> 8 ~ key:byte(at)) & 0xff] end
  return crc % SLOTS
end

local key_places = { -- index of the first key, where it is not 2
  EVAL = 4, EVALSHA = 4, EVAL_RO = 4, EVALSHA_RO = 4, FCALL = 4, FCALL_RO = 4, BLMPOP = 4, BZMPOP = 4, LMPOP = 3, ZMPOP = 3,
  SINTERCARD = 3, ZINTERCARD = 3, ZUNION = 3, ZINTER = 3, ZDIFF = 3, BITOP = 3, OBJECT = 3, MEMORY = 3, XINFO = 3,
  XGROUP = 3,
}
local partial = { SCAN = true, KEYS = true, DBSIZE = true, RANDOMKEY = true, FLUSHDB = true, FLUSHALL = true }
local without_key = { MULTI = true, EXEC = true, WAIT = true, WAITAOF = true }

local function key_of(args)
  local name = args[1]
  if without_key[name] then return nil end
  if partial[name] then
    usage.error("ls.redis: %s concerns one server of a cluster; call it for each, with clients without the option cluster",
      name:lower())
  end
  if name == "XREAD" or name == "XREADGROUP" then
    for at = 2, args.n do
      if type(args[at]) == "string" and args[at]:upper() == "STREAMS" then return args[at + 1] end
    end
  end
  return args[key_places[name] or 2]
end

local methods = {}
local meta = { __index = methods }

-- new(node) -> a cluster that this node belongs to
function cluster.new(node)
  return setmetatable({ common = node, at = { [node.host .. ":" .. node.port] = node }, slots = {}, gate = false }, meta)
end

-- The node at this address; `from` has named it, and an empty host is its own.
function methods.node_at(self, host, port, from)
  if host == "" or host == false then host = from.host end
  local address = host .. ":" .. port
  self.at[address] = self.at[address] or nodes.new(host, port, from.settings)
  return self.at[address]
end

-- The text of an error that names another node -> the node, "MOVED" or "ASK" | nil
function methods.redirected(self, text, from)
  local kind, slot, host, port = text:match("^(%u+) (%d%d?%d?%d?%d?) (.*):(%d%d?%d?%d?%d?)$")
  if kind ~= "MOVED" and kind ~= "ASK" then return nil end
  local node = self:node_at(host, math.tointeger(port), from)
  if kind == "MOVED" then self.slots[math.tointeger(slot)] = node end
  return node, kind
end

local function read_map(self)
  local known = {}
  for _, node in pairs(self.at) do known[#known + 1] = node end
  for _, node in ipairs(known) do
    local conn = node:shared()
    local ranges = conn and conn:call(node.settings.reply_ms, "CLUSTER", "SLOTS")
    for _, range in ipairs(type(ranges) == "table" and ranges or {}) do
      local master = self:node_at(range[3][1], range[3][2], node)
      for slot = math.max(range[1], 0), math.min(range[2], SLOTS - 1) do self.slots[slot] = master end
    end
    if type(ranges) == "table" then return end
  end
end

local function refresh(self, gate)
  pcall(read_map, self)
  self.gate = false
  gate:wake()
end

-- Ask a node for the map. A task of its own does, since that of a request may end at any time; others wait for it, too.
function methods.refresh(self)
  local settings, gate = self.common.settings, self.gate
  if not gate then
    gate = core.redis_connection()
    self.gate = gate
    if not pcall(core.spawn, refresh, self, gate) then return refresh(self, gate) end
  end
  gate:wait(settings.limits.connect_ms_max / 1000 + settings.reply_ms / 1000)
end

-- A node for what each of them does: one that could be reached, or the one whose next attempt is due first.
function methods.any(self)
  if not next(self.slots) then self:refresh() end
  local best = self.common
  if best.failure then
    for _, node in pairs(self.at) do
      if not node.failure then
        best = node
        break
      elseif node.again < best.again then
        best = node
      end
    end
    self.common = best
  end
  return best
end

-- The nodes that have slots, by the newest map; without a map, the one that must have it.
function methods.masters(self)
  self:refresh()
  local list, seen = {}, {}
  for slot = 0, SLOTS - 1 do
    local node = self.slots[slot] or self.common
    if not seen[node] then
      seen[node] = true
      list[#list + 1] = node
    end
  end
  return list
end

-- The node of the first key of a command; any without a key, or without a map.
function methods.node_of(self, args)
  local key = key_of(args)
  if key == nil then return self:any() end
  local slot = cluster.slot(key)
  if not self.slots[slot] then self:refresh() end
  return self.slots[slot] or self:any()
end

-- The node of a list of commands, whose keys must have the same slot.
function methods.node_of_all(self, list)
  local first
  for _, args in ipairs(list) do
    local key = key_of(args)
    if key ~= nil and first == nil then first = args end
    if key ~= nil and cluster.slot(key) ~= cluster.slot(key_of(first)) then
      usage.error("ls.redis: the keys of a transaction must have one slot of the cluster: write the same part in braces, "
        .. "as {user:1}:name and {user:1}:visits; got %s and %s", usage.quote(key_of(first)), usage.quote(key))
    end
  end
  return first and self:node_of(first) or self:any()
end

-- reach(find, args) -> the node find(cluster, args), by a newer map if it cannot be reached.
function methods.reach(self, find, args)
  local node = find(self, args)
  if node:shared() then return node end
  self:refresh()
  return find(self, args)
end

-- Send a command to a node -> value, message, code of conn:call
local function send(conn, node, args, asking)
  if not asking then return conn:call(node.settings.reply_ms, unpack(args, 1, args.n)) end
  local replies, message, code = conn:many(node.settings.reply_ms, { { "ASKING", n = 1 }, args })
  if not replies then return nil, message, code end
  local value = replies[2]
  if type(value) == "table" and value.err then return nil, value.err end
  if value == false then return nil end
  return value
end

-- The results of finish(node, call, offset, args, ...) of redis.lua, from the node that has the key.
function methods.command(self, finish, call, offset, args)
  local node, kind, refreshed = self:node_of(args), nil, false
  for _ = 1, REDIRECTIONS_MAX do
    local conn, message, code = node:shared()
    local value
    if conn then
      value, message, code = send(conn, node, args, kind == "ASK")
      local other
      if value == nil and message and not code then other, kind = self:redirected(message, node) end
      if not other then return finish(node, call, offset, args, value, message, code) end
      node = other
    else
      if refreshed then return nil, message, code, true end
      self:refresh()
      refreshed, kind = true, nil
      node = self:node_of(args)
    end
  end
  return nil, node.target .. ": too many redirections", "EBUSY"
end

-- Send the commands of a pipeline to their nodes, one node after the other -> replies | nil, message, code
function methods.pipeline(self, list)
  local groups, order, replies, reached = {}, {}, {}, {}
  for at, args in ipairs(list) do
    local node = self:node_of(args)
    if not reached[node] then
      node = self:reach(self.node_of, args)
      reached[node] = true
    end
    if not groups[node] then
      groups[node] = {}
      order[#order + 1] = node
    end
    groups[node][#groups[node] + 1] = at
  end
  for _, node in ipairs(order) do
    local commands = {}
    for i, at in ipairs(groups[node]) do commands[i] = list[at] end
    local conn, message, code = node:shared()
    if not conn then
      self:refresh() -- for the next call
      return nil, message, code
    end
    local got
    got, message, code = conn:many(node.settings.reply_ms, commands)
    if not got then return node:lost(message, code) end
    for i, at in ipairs(groups[node]) do
      local reply = got[i]
      if type(reply) == "table" and reply.err and self:redirected(reply.err, node) then
        local function finish(_, _, _, _, value, text)
          if text then return { err = text } end
          return value
        end
        reply = self:command(finish, "p:call", 0, list[at])
      end
      replies[at] = reply == nil and false or reply
    end
  end
  return replies
end

return cluster
