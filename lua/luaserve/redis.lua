-- redis.lua - ls.redis: URLs and options, commands, pipelines, transactions, scripts. redis_node.lua has the connections,
-- redis_subscriber.lua subscriptions, redis_cluster.lua the slots of a cluster; src/script/bind/redis sends
-- commands and reads replies.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
local failure = require "luaserve.failure"
local nodes = require "luaserve.redis_node"

-- A site may replace the globals.
local ipairs, next, pairs, pack, select, setmetatable, type = ipairs, next, pairs, table.pack, select, setmetatable, type

local can_wait, dev = core.can_wait, core.dev

local redis = {}

local redis_options = {
  user = { "user", "text", "a user name" }, -- in place of that of the URL
  password = { "password", "text", "a password" }, -- in place of that of the URL
  timeout = { "reply_ms", "seconds", 1, 2 ^ 32 - 1, 5 }, -- seconds for a reply
  connect_timeout = { "connect_ms_max", "seconds", 1, 2 ^ 32 - 1, 5 }, -- seconds for lookup, addresses and TLS
  connections = { "connections", "count", 1, 10000, 32 }, -- for commands that block and subscriptions, of all Lua states
  max_reply = { "reply_bytes_max", "size", 64, math.maxinteger, "64m" }, -- bytes; a longer reply closes the connection
  tls = true, -- TlsClientOptions - of rediss://
  cluster = { "cluster", "flag" }, -- follow the slots of a cluster
  sentinels = true, -- string[] - in place of a URL: `"host:port"` of the sentinels that know the master
  name = { "name", "text", "the name of the master" }, -- of sentinels
  database = { "database", "count", 0, 1000000 }, -- of sentinels; default 0
}
redis.calls = { ["ls.redis"] = { redis_options } } -- RedisOptions

-- ---- commands ------------------------------------------------------------------------------------------------------

local transaction_form = "use r:transaction(fn)"
local refused = { -- as methods and by call, with what to write instead
  MULTI = transaction_form, EXEC = transaction_form, DISCARD = transaction_form, UNWATCH = transaction_form,
  WATCH = "use r:transaction(keys, fn)",
  SUBSCRIBE = "use r:subscribe(channel, fn)", PSUBSCRIBE = "use r:psubscribe(pattern, fn)",
  UNSUBSCRIBE = "use subscription:remove()", PUNSUBSCRIBE = "use subscription:remove()",
  SSUBSCRIBE = "use r:subscribe(channel, fn)", SUNSUBSCRIBE = "use subscription:remove()",
  SELECT = "the number of the database stands in the URL: redis://host:6379/1",
  AUTH = "user and password stand in the URL: redis://user:password@host:6379",
  HELLO = "luaserve speaks RESP2", MONITOR = "use redis-cli monitor", QUIT = "connections close with their Lua state",
  RESET = "other tasks use the connection", SYNC = "it is a command of replicas", PSYNC = "it is a command of replicas",
}

-- Seconds that a command may block, or nil: 0 is without end.
local function last(args) return args[args.n] end
local function option_block(args)
  for i = 2, args.n - 1 do
    local word = type(args[i]) == "string" and args[i]:upper()
    if word == "STREAMS" then return nil end
    if word == "BLOCK" then return (tonumber(args[i + 1]) or 0) / 1000 end
  end
end
local function first(args) return args[2] end
local blocking = {
  BLPOP = last, BRPOP = last, BRPOPLPUSH = last, BLMOVE = last, BZPOPMIN = last, BZPOPMAX = last, BLMPOP = first,
  BZMPOP = first, XREAD = option_block, XREADGROUP = option_block,
}
local waits = { -- for replicas: of the writes on its own connection
  WAIT = function(args) return (tonumber(args[3]) or 0) / 1000 end,
  WAITAOF = function(args) return (tonumber(args[4]) or 0) / 1000 end,
}

local function map_of(list)
  if type(list) ~= "table" then return list end
  local map = {}
  for i = 1, #list, 2 do map[list[i]] = list[i + 1] end
  return map
end
-- Of an integer that says yes or no: 0 is true in Lua. `keys`: with several the reply is their number.
local function yes(reply, keys)
  if type(reply) ~= "number" or keys and keys > 1 then return reply end
  return reply ~= 0
end
local function is_yes(reply) return yes(reply) end

local maps = { hgetall = map_of, exists = yes } -- by method, what becomes of its reply
for name in ("setnx msetnx hsetnx hexists sismember smove renamenx move copy persist expire expireat pexpire pexpireat pfadd")
  :gmatch("%a+") do
  maps[name] = is_yes
end

local function wrong_argument(call, offset, at, ...)
  usage.error("%s: argument %d must be a string, a number or a buffer; got %s", call, at - offset,
    usage.quote((select(at, ...))))
end

-- sure(self, call, value, message, code, unsent) -> value; raises a failure. Each function below that is no method returns
-- nil, message, code, and true when nothing was sent.
local function sure(self, call, value, message, code, unsent)
  if message == nil then return value end
  local target, reason = message:match("^(Redis .-): (.*)$") -- of a node
  failure.raise(call, { target = target or self.node.target, message = reason or message, code = code, unsent = unsent })
end
redis.sure = sure

-- The results of a call. `value` false: an argument is wrong, at the index `message`.
local function finish(node, call, offset, args, value, message, code)
  if message == nil then return value end
  if value == false then wrong_argument(call, offset, message, table.unpack(args, 1, args.n)) end
  if code then return node:lost(message, code) end
  if message:find("^READONLY") then node:leave() end
  return nodes.failure(message)
end

-- Milliseconds for the reply of a command that may block for `seconds`; 0: no limit.
local function reply_ms(node, seconds)
  seconds = tonumber(seconds) or 0
  return seconds == 0 and 0 or math.ceil(seconds * 1000) + node.settings.reply_ms
end

-- Send one command and wait for its reply. `call`, `offset`: for messages.
local function command(self, call, offset, name, ...)
  local node = self.node
  if dev and (offset == 1 or call == "r:call") then require("luaserve.dev_state").watch_redis(node, name, ...) end
  if self.nodes then return self.nodes:command(finish, call, offset, pack(name, ...)) end
  local conn, message, code = node.conn
  if not conn or not conn:is_open() then
    conn, message, code = node:shared()
    if not conn then return nil, message, code, true end
  end
  local value
  value, message, code = conn:call(node.settings.reply_ms, name, ...)
  if message == nil then return value end
  return finish(node, call, offset, pack(name, ...), value, message, code)
end

-- own(self, args, fn) -> the results of fn(conn, node), with a connection of its own to the node that has the key of a
-- command; those of a second call when the first one returns that another node has it.
local function own(self, args, fn)
  local cluster = self.nodes
  if not cluster then return self.node:own(fn) end
  local node = cluster:reach(cluster.node_of, args)
  local results = pack(node:own(fn))
  local other = results[1] == nil and results[2] and cluster:redirected(results[2], node)
  if other then return other:own(fn) end
  return table.unpack(results, 1, results.n)
end

-- Commands that block in tasks that the next site starts again, by their connections: { node =, id = of the connection, asked =
-- to end }. A connection that was asked is not used again: it might be another command that ends.
local blocked = {}

-- The site has been replaced, or the server stops: no further ones are added, and Redis ends these as if their time were over, so
-- that no reply is lost. A Redis that does not answer this within a second has no reply, either.
local function unblock()
  local silent = {}
  while next(blocked) do
    for conn, one in next, blocked do
      local node = one.node
      local shared = one.id and not silent[node] and node:shared()
      one.asked = true
      local reply = shared and blocked[conn] and shared:call(math.min(node.settings.reply_ms, 1000), "CLIENT", "UNBLOCK", one.id)
      if blocked[conn] and not reply then -- 0: it is about to block
        silent[node] = silent[node] or one.id ~= nil
        conn:close()
      end
    end
    core.sleep(0.01)
  end
end
core.on_drain(unblock)

-- call(conn, node, ms, args) -> as conn:call: for a command that blocks. Ends a task of a site that was replaced.
local function call_blocking(conn, node, ms, args)
  if not core.remote_wait() then return conn:call(ms, table.unpack(args, 1, args.n)) end
  local id = conn:call(node.settings.reply_ms, "CLIENT", "ID")
  core.remote_wait()
  blocked[conn] = { node = node, id = id, asked = false }
  local value, message, code = conn:call(ms, table.unpack(args, 1, args.n))
  if blocked[conn].asked then conn:close() end
  blocked[conn] = nil
  if value then core.received() else core.remote_wait() end
  return value, message, code
end

-- The same for one that may block, on a connection of its own.
local function block(self, call, offset, seconds, ...)
  if self.node.fixed then usage.error("%s: it cannot block inside a transaction", call) end
  local args = pack(...)
  return own(self, args, function(conn, node)
    return finish(node, call, offset, args, call_blocking(conn, node, reply_ms(node, seconds), args))
  end)
end

local function send(self, call, offset, name, ...)
  if type(self) ~= "table" or not self.node then
    usage.error("%s: call it with a colon, as in r:get(key); got %s", call, usage.quote(self))
  end
  usage.check_waits(call)
  local seconds = blocking[name] and blocking[name](pack(name, ...))
  if seconds then return block(self, call, offset, seconds, name, ...) end
  if waits[name] then
    usage.error("%s: it counts the writes of its own connection; use r:pipeline(function(p) p:set(...) p:%s(...) end)",
      call, name:lower())
  end
  return command(self, call, offset, name, ...)
end

local function check_name(call, name)
  if type(name) ~= "string" or name == "" then
    usage.error('%s: the first argument must be the name of a command, such as "GET"; got %s', call, usage.quote(name))
  end
  name = name:upper()
  if refused[name] then usage.error("%s: %s", call, refused[name]) end
  return name
end

local inside = {} -- by client, the set of the tasks that run a function of its transactions

local function check_outside(self, call)
  if not inside[self][coroutine.running()] then return end
  usage.error("%s is not a part of the transaction whose function runs: call it by the first argument, as t:%s, or, to read, "
    .. "by the second one: r:transaction(keys, function(t, c) ... end)", call, call:sub(3))
end

-- The results of the function of a transaction, packed.
local function run_inside(self, fn, ...)
  local tasks, task = inside[self] or {}, coroutine.running()
  inside[self], tasks[task] = tasks, true
  local _ <close> = setmetatable({}, { __close = function()
    tasks[task] = nil
    if inside[self] == tasks and not next(tasks) then inside[self] = nil end
  end })
  return pack(fn(...))
end

-- r is a Redis: a Redis server, or a cluster. Each command of Redis is a method in lower case: it waits for the reply and
-- returns it, nil for a key that does not exist. Raises a Failure when it fails, as all methods do.
-- r:del|exists|expire|ttl|persist|type|rename|scan|publish(...: string|number|Buffer) -> reply: any
-- Commands of keys.
-- r:get|set|mget|mset|incr|incrby|decr|append|strlen(...: string|number|Buffer) -> reply: any
-- Commands of strings.
-- r:hget|hset|hdel|hmget|hincrby|hlen|hkeys|hvals|hgetall(...: string|number|Buffer) -> reply: any
-- Commands of hashes.
-- r:lpush|rpush|lpop|rpop|llen|lrange|lrem|ltrim(...: string|number|Buffer) -> reply: any
-- Commands of lists.
-- r:lmove|blpop|brpop|blmove(...: string|number|Buffer) -> reply: any
-- Commands that take a value of a list; those with `b` wait for one.
-- r:sadd|srem|smembers|sismember|scard|spop(...: string|number|Buffer) -> reply: any
-- Commands of sets.
-- r:zadd|zrem|zincrby|zscore|zrank|zcard|zrange|zcount(...: string|number|Buffer) -> reply: any
-- Commands of sorted sets.
-- r:xadd|xread|xreadgroup|xgroup|xack|xrange|xlen|xtrim(...: string|number|Buffer) -> reply: any
-- Commands of streams.
local methods = {}

-- r:call(command: string, ...: string|number|Buffer) -> reply: any
-- Sends a command of any name, and waits for its reply.
function methods.call(self, name, ...)
  name = check_name("r:call", name)
  if inside[self] then check_outside(self, "r:call") end
  local reply = sure(self, "r:call", send(self, "r:call", 0, name, ...))
  if reply == 0 and dev then require("luaserve.dev_state").watch_reply("r:call", reply) end
  return reply
end

-- typed(kind, ...) -> the results of send(), whose reply must have this type, or be nil in place of a string; kind nil: any.
local function typed(kind, value, message, ...)
  if message ~= nil or type(value) == kind or not kind or value == nil and kind == "string" then return value, message, ... end
  return nodes.unexpected(value)
end

-- ask(client, kind, name, ...) -> reply of a command, of this type | nil, message, code, unsent
function redis.ask(self, kind, name, ...) return typed(kind, send(self, "ls.redis", 0, name, ...)) end

-- ---- pipelines -----------------------------------------------------------------------------------------------------

-- What the methods of a pipeline return raises when it is used.
local function unread()
  usage.error("a command of a pipeline or a transaction has no reply before the function has returned: take it from the list "
    .. "that r:pipeline or r:transaction returns, or read first, in r:transaction(keys, function(t, c) ... end) by c")
end
local pending_meta = { __name = "pending reply" }
for name in ("index newindex call tostring concat len eq lt le unm add sub mul div mod pow idiv band bor bxor shl shr bnot pairs")
  :gmatch("%a+") do
  pending_meta["__" .. name] = unread
end
local pending = setmetatable({ unread }, pending_meta) -- JSON and dicts take no functions

-- A pipeline is the list of its commands.
local function add(self, call, offset, name, ...)
  local args = pack(name, ...)
  local wrong = core.redis_arguments(...)
  if wrong then wrong_argument(call, offset, wrong + 1, name, ...) end
  if blocking[name] and blocking[name](args) then
    usage.error("%s: a command that blocks cannot stand in a pipeline or a transaction; call it alone, as r:%s(...)", call,
      name:lower())
  elseif waits[name] then
    self.waits = math.max(self.waits or 0, waits[name](args))
  end
  self[#self + 1] = args
  if dev then require("luaserve.dev_state").watch_queued(call) end
  return pending
end

local pipeline_methods = {}

function pipeline_methods.call(self, name, ...) return add(self, "p:call", 0, check_name("p:call", name), ...) end

local function check_script(call, script, keys, args)
  if type(script) ~= "string" then usage.error("%s: the script must be a string; got %s", call, usage.quote(script)) end
  for name, list in pairs { keys = keys or {}, args = args or {} } do
    if type(list) ~= "table" then
      usage.error('%s: %s must be a list, such as { "a", "b" }; got %s', call, name, usage.quote(list))
    end
  end
  local out = pack(#(keys or {}))
  for _, list in ipairs { keys or {}, args or {} } do
    for i = 1, #list do out[#out + 1] = list[i] end
  end
  return table.unpack(out, 1, #out)
end

function pipeline_methods.eval(self, script, keys, args)
  return add(self, "p:eval", 1, "EVAL", script, check_script("p:eval", script, keys, args))
end

-- Make the method of a command at its first use.
local function strict(what, letter, known, make)
  local function index(_, name)
    if type(name) ~= "string" then return nil end
    if not name:find("^%l[%l%d_]*$") then
      usage.error("%s has no method %s; commands are methods in lower case, as %s:get(key)", what, usage.quote(name),
        letter)
    end
    local call, upper = letter .. ":" .. name, name:upper()
    if refused[upper] then usage.error("%s: %s", call, refused[upper]) end
    known[name] = make(call, upper, maps[name])
    return known[name]
  end
  return { __index = setmetatable(known, { __index = index }), __name = what, __metatable = false }
end

local pipeline_meta = strict("a pipeline", "p", pipeline_methods, function(call, name, map)
  return function(self, ...)
    add(self, call, 1, name, ...)
    if map then
      self.maps = self.maps or {}
      self.maps[#self] = map
    end
    return pending
  end
end)

local function new_pipeline() return setmetatable({ maps = false, waits = false, atomic = false, failed = false }, pipeline_meta) end

-- The replies of a pipeline as its methods return them; `failed` of the pipeline is the index of the first error.
local function convert(p, replies)
  for i = 1, #replies do
    if type(replies[i]) == "table" and replies[i].err then
      p.failed = i
      break
    end
  end
  for at, map in pairs(p.maps or {}) do
    if type(replies[at]) ~= "table" or not replies[at].err then replies[at] = map(replies[at], p[at].n - 1) end
  end
  return replies
end

local function send_to(node, list)
  local function many(conn, ms)
    local replies, message, code = conn:many(ms, list)
    if not replies then return node:lost(message, code) end
    for i = 1, #replies do
      local reply = replies[i]
      if type(reply) == "table" and reply.err and reply.err:find("^READONLY") then node:leave() end
    end
    return replies
  end
  local ms = list.waits and reply_ms(node, list.waits) or node.settings.reply_ms
  if list.waits and not node.fixed then return node:own(function(conn) return many(conn, ms) end) end
  local conn, message, code = node:shared()
  if not conn then return nil, message, code, true end
  return many(conn, ms)
end

-- Send the commands of a list, and wait for their replies -> replies
local function send_all(self, list)
  local cluster = self.nodes
  if not cluster then return send_to(self.node, list) end
  if not list.atomic and not list.waits then return cluster:pipeline(list) end
  local node = cluster:reach(cluster.node_of_all, list)
  local replies, message, code, unsent = send_to(node, list)
  for i = 1, replies and #replies or 0 do
    local text = type(replies[i]) == "table" and replies[i].err
    local other, kind = nil, nil
    if text then other, kind = cluster:redirected(text, node) end
    if kind == "MOVED" and list.atomic then return send_to(other, list) end -- nothing was executed
  end
  return replies, message, code, unsent
end

local function check_call(self, call, fn, form)
  if type(self) ~= "table" or not self.node then
    usage.error("%s: call it with a colon, as in %s; got %s", call, form, usage.quote(self))
  end
  usage.check(fn, "function", "%s: the function is missing: %s", call, form)
  usage.check_waits(call)
  if inside[self] then check_outside(self, call) end
end

-- whole(self, call, p, replies, ...) -> replies, ...; raises the first error among them, as the command alone does.
local function whole(self, call, p, replies, ...)
  if not p.failed then return replies, ... end
  local _, message, code = nodes.failure(replies[p.failed].err)
  failure.raise(call, { target = self.node.target, message = message, code = code, retry = false, replies = replies,
    statement = ("%s, command %d"):format(p[p.failed][1], p.failed) })
end

-- pipeline(client, fn, p) -> replies, of which some may be errors | nil, message, code, unsent. `p`: a new pipeline, or nil.
function redis.pipeline(self, fn, p)
  p = p or new_pipeline()
  fn(p)
  if not p[1] then return {} end
  local replies, message, code, unsent = send_all(self, p)
  if not replies then return nil, message, code, unsent end
  return convert(p, replies)
end

-- r:pipeline(fn: fun(p: Redis)) -> replies: any[]
-- Calls a function, sends the commands that it has called together, and returns their replies. In this list nil is false.
-- If Redis has answered some with an error, the first one is raised; all are executed.
function methods.pipeline(self, fn, ...)
  local form = "r:pipeline(function(p) p:incr(key) p:get(key) end)"
  check_call(self, "r:pipeline", fn, form)
  usage.no_more("r:pipeline(fn)", fn, ...)
  local p = new_pipeline()
  return whole(self, "r:pipeline", p, sure(self, "r:pipeline", redis.pipeline(self, fn, p)))
end

-- ---- transactions --------------------------------------------------------------------------------------------------

-- The commands between MULTI and EXEC -> the list to send.
local function enclose(p)
  local list = { { "MULTI", n = 1 }, atomic = true, waits = p.waits }
  for i = 1, #p do list[i + 1] = p[i] end
  list[#list + 1] = { "EXEC", n = 1 }
  return list
end

-- The results of a transaction: true, and those of r:transaction | nil, message, code, unsent
local function execute(self, p)
  local replies, message, code, unsent = send_all(self, enclose(p))
  if not replies then return nil, message, code, unsent end
  local reply = replies[#replies]
  if reply == false then return nil, "another client has changed a watched key", "ECHANGED" end
  if type(reply) ~= "table" then return nodes.unexpected(reply) end
  if reply.err then
    for i = 1, #replies - 1 do
      if type(replies[i]) == "table" and replies[i].err then return nodes.failure(replies[i].err) end
    end
    return nodes.failure(reply.err)
  end
  return true, convert(p, reply)
end

local function executed(self, p, done, ...)
  if done then return whole(self, "r:transaction", p, ...) end
  return sure(self, "r:transaction", nil, ...)
end

local client_meta

-- r:transaction(fn: fun(t: Redis)) -> replies: any[]
-- r:transaction(keys: string|string[], fn: fun(t: Redis, r: Redis): ...) -> replies: any[]
-- Calls a function, and has the commands of `t` that it has called executed as one. With keys, these are watched first: `r`
-- reads, and if another client changes one of them before the end, nothing is executed, and it raises: ECHANGED. The
-- function may return nil or false and a reason, which are the results then: nothing is executed.
function methods.transaction(self, keys, fn, ...)
  local form = "r:transaction(function(t) t:incr(key) t:get(key) end)"
  if type(keys) == "function" and fn == nil then keys, fn = nil, keys end
  check_call(self, "r:transaction", fn, form)
  usage.no_more("r:transaction(keys, fn)", fn, ...)
  local p = new_pipeline()
  if keys == nil then
    local results = run_inside(self, fn, p)
    if not results[1] and results[2] ~= nil then return table.unpack(results, 1, results.n) end
    if not p[1] then return {} end
    return executed(self, p, execute(self, p))
  end
  if type(keys) ~= "table" then keys = { keys } end
  local watch = { "WATCH", n = #keys + 1 }
  for i = 1, #keys do watch[i + 1] = keys[i] end
  if not keys[1] or core.redis_arguments(table.unpack(keys)) then
    usage.error('r:transaction: keys must be a key or a list of keys, such as { "a", "b" }')
  end
  local watched = false
  return executed(self, p, own(self, watch, function(conn, node)
    if watched then return nil, "another server of the cluster has got a watched key", "ECHANGED" end
    local bound = setmetatable({ conn = conn, fixed = true }, { __index = node })
    local one = setmetatable({ node = bound, nodes = false, subscriber = false }, client_meta)
    local ok, message, code, unsent = command(one, "r:transaction", 1, table.unpack(watch, 1, watch.n))
    if not ok then return nil, message, code, unsent end
    watched = true
    local results = run_inside(self, fn, p, one)
    if not results[1] and results[2] ~= nil then
      conn:close()
      return true, table.unpack(results, 1, results.n)
    end
    return execute(one, p)
  end))
end

-- ---- scripts -------------------------------------------------------------------------------------------------------

local digests, digest_count = {}, 0 -- of scripts

local function digest_of(script)
  if digests[script] then return digests[script] end
  local ok, digest = pcall(require("luaserve.crypto").sha1, script, "hex")
  if not ok then return nil end -- without OpenSSL
  if digest_count == 1000 then digests, digest_count = {}, 0 end
  digests[script], digest_count = digest, digest_count + 1
  return digest
end

local function eval(self, script, keys, args)
  local rest = pack(check_script("r:eval", script, keys, args))
  local digest = digest_of(script)
  if digest then
    local value, message, code, unsent = send(self, "r:eval", 1, "EVALSHA", digest, table.unpack(rest, 1, rest.n))
    if message == nil then return value end
    if not message:find("^NOSCRIPT") then return nil, message, code, unsent end
  end
  return send(self, "r:eval", 1, "EVAL", script, table.unpack(rest, 1, rest.n))
end

-- eval(client, kind, script, keys, args) -> reply of a script, of this type | nil, message, code, unsent
function redis.eval(self, kind, script, keys, args) return typed(kind, eval(self, script, keys, args)) end

-- r:eval(script: string [, keys: string[] [, args: any[]]]) -> reply: any
-- Runs a script in the server, with KEYS and ARGV. It is sent when the server does not have it yet.
function methods.eval(self, script, keys, args, ...)
  usage.no_more("r:eval(script, keys, args)", args, ...)
  if inside[self] then check_outside(self, "r:eval") end
  return sure(self, "r:eval", eval(self, script, keys, args))
end

-- ---- subscriptions -------------------------------------------------------------------------------------------------

local function subscribe(self, kind, name, fn, ...)
  local call = "r:" .. kind
  if core.dev then require("luaserve.dev_state").watch_subscribe(call) end
  local form = call .. '("news", function(message, channel) end)'
  if type(self) ~= "table" or not self.node or type(name) ~= "string" or type(fn) ~= "function" then
    usage.error("%s takes a name and a function: %s; got %s and %s", call, form, usage.quote(name), usage.quote(fn))
  end
  usage.no_more(form, fn, ...)
  if self.node.fixed then usage.error("%s: call it outside of the transaction", call) end
  local subscribers = require "luaserve.redis_subscriber"
  self.subscriber = self.subscriber or subscribers.new(self)
  return sure(self, call, subscribers.add(self.subscriber, kind, name, fn))
end

-- r:subscribe(channel: string, fn: fun(message: string, channel: string)) -> subscription
-- Calls a function for each message of a channel, one at a time and in order, in this Lua state. At the top of the file: in
-- one state, for the whole server.
function methods.subscribe(self, channel, fn, ...) return subscribe(self, "subscribe", channel, fn, ...) end

-- r:psubscribe(pattern: string, fn: fun(message: string, channel: string, pattern: string)) -> subscription
-- The same for each channel whose name the pattern matches, such as `"news.*"`.
function methods.psubscribe(self, pattern, fn, ...) return subscribe(self, "psubscribe", pattern, fn, ...) end

client_meta = strict("a Redis client", "r", methods, function(call, name, map)
  local may_block = blocking[name] or waits[name]
  return function(self, ...)
    if inside[self] then check_outside(self, call) end
    local checks = may_block or type(self) ~= "table" or not self.node or not can_wait()
    local value = sure(self, call, (checks and send or command)(self, call, 1, name, ...))
    if map then value = map(value, select("#", ...)) end
    if dev and not may_block and (map or type(value) == "number") then require("luaserve.dev_state").watch_reply(call, value) end
    return value
  end
end)

-- ---- open ----------------------------------------------------------------------------------------------------------

local form = 'a URL such as "redis://user:password@host:6379/0", "rediss://host", "unix:/path"'

local function decode(text)
  return text and core.percent_decode(text)
end

-- read_url(text) -> host, port, user, password, database, whether it is TLS. Raises.
local function read_url(text)
  local function invalid(why) usage.error("ls.redis: invalid URL: %s; it must be %s", why, form) end
  local path, query = text:match("^unix:([^?]+)(.*)$")
  local number = query and (query == "" and "0" or query:match("^%?db=(%d+)$"))
  if number and #number <= 7 then return "unix:" .. path:gsub("^//", ""), 0, nil, nil, tonumber(number), false end
  if path then invalid("after the path there may be the number of the database, as in unix:/path?db=1") end
  local scheme, authority, database = text:match("^(rediss?)://([^/?#]*)/?(%d*)$")
  if not scheme or #database > 7 then
    local begins = text:match("^[%a+]*:?/*")
    if begins == "" then invalid("it has no scheme, as in redis://" .. text) end
    if not text:find("^rediss?://") then invalid("it begins with " .. usage.quote(begins)) end
    invalid("the path must be the number of the database")
  end
  local login, at = authority:match("^(.*)@(.*)$")
  local user, password = (login or ""):match("^([^:]*):?(.*)$")
  local host, port = options.host_port(at or authority)
  if not host then host, port = (at or authority):match("^%[?([^%]]*)%]?$"), 6379 end
  port = math.tointeger(tonumber(port) or -1)
  if not host or host == "" or not port or port < 1 or port > 65535 then invalid("it has no host, or no valid port") end
  user, password = decode(user), decode(password)
  if not user or not password then invalid("user and password must be percent-encoded") end
  return host, port, user ~= "" and user or nil, password ~= "" and password or nil, tonumber(database) or 0,
    scheme == "rediss"
end

-- The settings of a client, which its nodes share.
local function settings_of(given, user, password, database, tls)
  local out = options.take("ls.redis", given, redis.calls["ls.redis"], {})
  out.limits = {}
  for name, value in pairs(require("luaserve.tcp").defaults()) do out.limits[name] = value end
  out.limits.connect_ms_max, out.limits.keepalive_s = out.connect_ms_max, 60
  out.user, out.password, out.database = out.user or user, out.password or password, out.database or database
  if given.tls ~= nil and not tls then usage.error("ls.redis: the option tls needs a URL with rediss://") end
  if tls then out.limits.tls = require("luaserve.tls").client("ls.redis", given.tls or true) end
  if out.cluster and out.database ~= 0 then usage.error("ls.redis: a cluster has one database, 0") end
  return out
end

-- The node of a master that sentinels know.
local function sentinel_node(given)
  if type(given.sentinels) ~= "table" or not given.sentinels[1] or given.name == nil then
    usage.error('ls.redis: sentinels and name belong together: { sentinels = { "host:26379" }, name = "mymaster" }')
  end
  local settings = settings_of(given, nil, nil, 0, given.tls ~= nil)
  local plain = setmetatable({ database = 0 }, { __index = settings })
  plain.user, plain.password, plain.sentinels = false, false, false
  settings.sentinels = {}
  for i, at in ipairs(usage.check_list("ls.redis", "sentinels", given.sentinels)) do
    local host, port = options.host_port(type(at) == "string" and at or "")
    if not host then
      usage.error('ls.redis: a sentinel must be "host:port", such as "10.0.0.1:26379"; got %s', usage.quote(at))
    end
    settings.sentinels[i] = nodes.new(host, options.port("ls.redis", port, 1), plain)
  end
  local node = nodes.new("unix:" .. settings.name, 0, settings)
  node.target = "Redis " .. settings.name
  return node
end

local clients = {} -- by URL and options

-- ls.redis(url: string [, options: RedisOptions]) -> r: Redis
-- ls.redis(options: RedisOptions) -> r: Redis
-- A client of a Redis server; the same one for the same arguments. It connects when the first command needs it.
function redis.open(url, given, ...)
  if type(url) == "table" and given == nil then url, given = "", url end
  given = given or {}
  if type(url) ~= "string" then usage.error("ls.redis: the first argument must be %s; got %s", form, usage.quote(url)) end
  if type(given) ~= "table" then
    usage.error("ls.redis: options must be a table, such as { timeout = 1 }; got %s", usage.quote(given))
  end
  usage.no_more("ls.redis(url, options)", given, ...)
  local key = next(given) and url .. "\n" .. options.key(given) or url
  if clients[key] then return clients[key] end
  if not core.redis_connection() then usage.error("ls.redis: this luaserve was built without hiredis") end
  local node
  if url == "" then
    if given.sentinels == nil then usage.error("ls.redis: the URL is missing: %s", form) end
    node = sentinel_node(given)
  else
    for _, name in ipairs { "sentinels", "name", "database" } do
      if given[name] ~= nil then usage.error("ls.redis: the option %s takes the place of a URL", name) end
    end
    local host, port, user, password, database, tls = read_url(url)
    node = nodes.new(host, port, settings_of(given, user, password, database, tls))
  end
  local settings = node.settings
  settings.key = "redis " .. key .. "\n"
  local before
  settings.permits, before = core.semaphore(node.target:sub(1, 100), settings.connections, usage.where())
  if not settings.permits then
    usage.error("ls.redis: %s has another number of connections at %s; give the same in both places", node.target, before)
  end
  local client = setmetatable({ node = node, nodes = false, subscriber = false }, client_meta)
  if settings.cluster then client.nodes = require("luaserve.redis_cluster").new(node) end
  clients[key] = client
  return client
end

-- masters(client) -> a list of clients, one for each server that has keys; they do not follow a cluster.
function redis.masters(client)
  if not client.nodes then return { client } end
  local list = client.nodes:masters()
  for i, node in ipairs(list) do
    list[i] = setmetatable({ node = node, nodes = false, subscriber = false }, client_meta)
  end
  return list
end

-- is(value) -> whether it is a client of ls.redis
function redis.is(value)
  return type(value) == "table" and rawget(value, "node") ~= nil and rawget(value, "subscriber") ~= nil
end

return redis
