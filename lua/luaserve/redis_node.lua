-- redis_node.lua - one Redis server for ls.redis: its connections. Each Lua state has one that carries the commands of all
-- its tasks; commands that block take one of their own, of which all states together have `connections`.
--
-- A node that cannot be reached is tried again after a pause, by one task at a time. Meanwhile other calls fail at once.

local core = require "luaserve.core"
local usage = require "luaserve.usage"

-- A site may replace the globals.
local ipairs, pack, pcall, setmetatable, type, unpack = ipairs, table.pack, pcall, setmetatable, type, table.unpack
local now = core.now

local node = {}

local PAUSE_S, PAUSE_S_MAX = 0.05, 2 -- before the second attempt, doubled before each further one

local codes = { -- of the replies that are errors, by their first word
  NOAUTH = "EACCES", WRONGPASS = "EACCES", NOPERM = "EACCES", LOADING = "EBUSY", BUSY = "EBUSY", TRYAGAIN = "EBUSY",
  MASTERDOWN = "EBUSY", CLUSTERDOWN = "EBUSY", READONLY = "EBUSY", MOVED = "EBUSY", ASK = "EBUSY", OOM = "ELIMIT",
  NOSCRIPT = "ENOENT",
}

-- failure(text) -> nil, text, code: of a reply that is an error.
function node.failure(text) return nil, text, codes[text:match("^%u+")] or "EINVAL" end

-- unexpected(reply) -> nil, message, code: of a reply of another type than the command has.
function node.unexpected(reply) return nil, "unexpected reply: " .. usage.quote(reply), "EPROTO" end

local methods = {}
local meta = { __index = methods }

-- new(host, port, settings) -> a node. settings: see redis.lua.
function node.new(host, port, settings)
  local target = host:match("^unix:") and host or (host:find(":", 1, true) and "[" .. host .. "]" or host) .. ":" .. port
  return setmetatable({ host = host, port = port, settings = settings, target = "Redis at " .. target }, meta)
end

-- of(client) -> its node; in a cluster one that can be reached, for what each of them does.
function node.of(client) return client.nodes and client.nodes:any() or client.node end

-- lost(message, code) -> nil, message, code: of the connection, with the name of the server.
function methods.lost(self, message, code)
  if code == "ETIMEDOUT" then message = "timeout: no reply within " .. self.settings.reply_ms / 1000 .. " s" end
  return nil, self.target .. ": " .. message, code
end

local function dial(self)
  local sock, message, code = core.connect(self.host, self.port, self.settings.limits)
  if not sock then return nil, self.target .. ": " .. message, code end
  return sock
end

-- Ask the sentinels for the address of the master, the last one that answered first.
local function find_master(self)
  local sentinels, message, code = self.settings.sentinels, nil, nil
  for at, sentinel in ipairs(sentinels) do
    local conn
    conn, message, code = sentinel:open(false)
    if conn then
      local reply
      reply, message, code = conn:call(sentinel.settings.reply_ms, "SENTINEL", "get-master-addr-by-name",
        self.settings.name)
      conn:close()
      local port = type(reply) == "table" and type(reply[1]) == "string" and math.tointeger(reply[2])
      if port then
        table.insert(sentinels, 1, table.remove(sentinels, at))
        self.host, self.port = reply[1], port
        self.target = "Redis " .. self.settings.name .. " at " .. self.host .. ":" .. self.port
        return true
      end
      message, code = sentinel.target .. ": " .. (message or "no master " .. self.settings.name), code or "ENOENT"
    end
  end
  return nil, message, code
end

-- What a connection begins with: user, database.
local function greet(self, conn)
  local settings, commands = self.settings, {}
  if settings.password then
    commands[1] = settings.user and { "AUTH", settings.user, settings.password, n = 3 }
      or { "AUTH", settings.password, n = 2 }
  end
  if settings.database ~= 0 then commands[#commands + 1] = { "SELECT", settings.database, n = 2 } end
  if settings.sentinels then commands[#commands + 1] = { "ROLE", n = 1 } end
  if not commands[1] then return true end
  local replies, message, code = conn:many(settings.reply_ms, commands)
  if not replies then return self:lost(message, code) end
  for i = 1, #replies do
    local failed = type(replies[i]) == "table" and replies[i].err
    if failed then
      local _, text, of = node.failure(failed)
      return nil, self.target .. ": " .. text, of
    end
  end
  local role = replies[#replies]
  if settings.sentinels and (type(role) ~= "table" or role[1] ~= "master") then
    return nil, self.target .. ": it is no master any more", "EBUSY"
  end
  return true
end

local function connect(self, shared)
  local ok, sock, message, code
  if self.settings.sentinels then
    ok, message, code = find_master(self)
    if not ok then return nil, message, code end
  end
  sock, message, code = dial(self)
  if not sock then return nil, message, code end
  local conn = core.redis_connection()
  ok, message, code = conn:open(sock, self.settings.reply_bytes_max, shared)
  if not ok then return self:lost(message, code) end
  ok, message, code = greet(self, conn)
  if ok then return conn end
  conn:close()
  return nil, message, code
end

-- open(shared) -> conn | nil, message, code. `shared`: that of conn:open.
function methods.open(self, shared)
  local ok, conn, message, code = pcall(connect, self, shared)
  if not ok then conn, message, code = nil, self.target .. ": " .. tostring(conn), "ENOMEM" end
  if conn then
    self.failure, self.pause = nil, nil
    return conn
  end
  self.failure = { message, code }
  self.pause = math.min((self.pause or PAUSE_S / 2) * 2, PAUSE_S_MAX)
  self.again = now() + self.pause
  return nil, message, code
end

local function attempt(self, gate)
  self.conn = self:open(true)
  self.gate = nil
  gate:wake()
end

-- As shared(); `again`: at the second try, see the end.
local function get_shared(self, again)
  local conn, gate, failure = self.conn, self.gate, self.failure
  if conn and conn:is_open() then return conn end
  if self.fixed then return self:lost("the connection was lost", "ECLOSED") end
  if failure and (gate or now() < self.again) then return nil, failure[1], failure[2] end
  if not gate then
    gate = core.redis_connection()
    self.gate = gate
    local ok, why = pcall(core.spawn, attempt, self, gate)
    if not ok then
      self.gate = nil
      return nil, self.target .. ": " .. why, "ELIMIT"
    end
  end
  if not gate:wait(self.settings.limits.connect_ms_max / 1000 + self.settings.reply_ms / 1000) then
    return nil, self.target .. ": timeout: not connected", "ETIMEDOUT"
  end
  conn, failure = self.conn, self.failure
  if conn and conn:is_open() then return conn end
  if failure then return nil, failure[1], failure[2] end
  if not again then return get_shared(self, true) end -- a reload or stop, which closes idle connections, came in between
  return self:lost("the connection was lost", "ECLOSED")
end

-- shared() -> the connection of this state | nil, message, code
function methods.shared(self) return get_shared(self) end

-- A failover has happened: the next command makes a new connection.
function methods.leave(self)
  if self.conn then self.conn:finish() end
  self.conn = nil
end

-- A connection of this task, from the pool of the server or a new one.
local function take(self)
  local sock = core.client_take(self.settings.key .. self.target)
  local conn = sock and core.redis_connection()
  if conn and conn:open(sock, self.settings.reply_bytes_max, false) then return conn end
  return self:open(false)
end

-- permitted(fn) -> true, and the results of fn(), which may have a connection of its own meanwhile | false, message, code:
-- none of them was free in time.
function methods.permitted(self, fn)
  local settings, begun = self.settings, false
  local results = pack(core.semaphore_within(settings.permits, settings.reply_ms / 1000, function()
    begun = true
    return fn()
  end))
  if begun then return true, unpack(results, 1, results.n) end
  if results[3] ~= "ETIMEDOUT" then return false, results[2], results[3] end
  return false, self.target .. ": timeout: all " .. settings.connections .. " connections for commands that block are in "
    .. "use (the option connections)", "ETIMEDOUT"
end

-- own(fn) -> the results of fn(conn, node), with a connection of its own, which goes to the pool unless it is closed | nil,
-- message, code, true
function methods.own(self, fn)
  local results = pack(self:permitted(function()
    local conn, message, code = take(self)
    if not conn then return nil, message, code, true end
    local _ <close> = setmetatable({}, { __close = function(_, err) if err then conn:close() end end })
    local got = pack(fn(conn, self))
    if type(got[2]) == "string" and got[2]:find("^READONLY") then conn:close() end -- a failover has happened
    conn:keep(self.settings.key .. self.target)
    return unpack(got, 1, got.n)
  end))
  if results[1] then return unpack(results, 2, results.n) end
  return nil, results[2], results[3], true
end

return node
