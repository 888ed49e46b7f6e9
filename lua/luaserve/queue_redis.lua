-- queue_redis.lua - the jobs of ls.queue in Redis: the functions of queue_sql.lua as scripts, each of which Redis executes at
-- once.
--
-- The keys of a queue begin with `luaserve:%queue:{NAME}:`. A job is a hash, `job:SEQ`; `ready`, `running`, `delayed`, `dead` and
-- `done` are sorted sets of the numbers of jobs: `ready` by the order in which they run, the others by the time at which they
-- change (`due`), `dead` by their number. `ids` has the numbers by the ids that the site gave, `seq` the last number, `of:SERVER`
-- the jobs that a server runs. The clock is that of Redis.

local json = require "luaserve.json"
local usage = require "luaserve.usage"

local ipairs, next, setmetatable, tonumber, type = ipairs, next, setmetatable, tonumber, type

local queue_redis = {}

-- What all scripts begin with. KEYS[1]: the beginning of the keys.
local HEAD <const> = [[
local base, call = KEYS[1], redis.call
local time = call('TIME')
local now = time[1] + time[2] / 1e6
local function key(name) return base .. name end
local function job(seq) return base .. 'job:' .. seq end
local function of(owner) return key('of:' .. owner:sub(1, 24)) end
local function ready(seq) -- higher priorities first, then the order of the numbers
  local priority = tonumber(call('HGET', job(seq), 'priority'))
  call('ZADD', key('ready'), ('%.0f'):format(seq - priority * 2^41), seq)
end
local function release(seq) -- of its owner
  call('ZREM', key('running'), seq)
  call('SREM', of(call('HGET', job(seq), 'owner') or ''), seq)
  call('HDEL', job(seq), 'owner')
end
local function has(seq, owner) return call('HGET', job(seq), 'owner') == owner end
local function drop(seq)
  local id = call('HGET', job(seq), 'id')
  if id then call('HDEL', key('ids'), id) end
  call('DEL', job(seq))
end
local function find(kind, id) return kind == 'seq' and id or call('HGET', key('ids'), id) end
]]

local scripts <const> = {
  push = [[
local id, data, delay, priority = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if id ~= '' and call('HEXISTS', key('ids'), id) == 1 then return false end
local seq = call('INCR', key('seq'))
call('HSET', job(seq), 'data', data, 'priority', priority, 'attempt', 0, 'pushed', now)
if id ~= '' then
  call('HSET', job(seq), 'id', id)
  call('HSET', key('ids'), id, seq)
end
if delay ~= '' then call('ZADD', key('delayed'), now + delay, seq) else ready(seq) end
return seq]],
  claim = [[
local owner, lease, rows = ARGV[1], ARGV[2], {}
local free = ARGV[3] - call('SCARD', of(owner))
if free <= 0 then return rows end
local popped = call('ZPOPMIN', key('ready'), free)
for i = 1, #popped, 2 do
  local seq = popped[i]
  call('HINCRBY', job(seq), 'attempt', 1)
  call('HSET', job(seq), 'owner', owner)
  call('HDEL', job(seq), 'progress')
  call('ZADD', key('running'), now + lease, seq)
  call('SADD', of(owner), seq)
  local found = call('HMGET', job(seq), 'id', 'data', 'attempt', 'priority')
  rows[#rows + 1] = {seq, found[1], found[2], found[3], found[4]}
end
return rows]],
  sweep = [[
local most, reason, rows = tonumber(ARGV[1]), ARGV[2], {}
for _, seq in ipairs(call('ZRANGEBYSCORE', key('delayed'), '-inf', now, 'LIMIT', 0, 1000)) do
  call('ZREM', key('delayed'), seq)
  ready(seq)
end
for _, seq in ipairs(call('ZRANGEBYSCORE', key('running'), '-inf', now, 'LIMIT', 0, 1000)) do
  release(seq)
  local found = call('HMGET', job(seq), 'id', 'attempt', 'progress')
  local last = tonumber(found[2]) > most
  local dead = last and found[3]
  if dead then call('ZADD', key('dead'), seq, seq) else ready(seq) end
  if last and not dead then call('HINCRBY', job(seq), 'attempt', -1) -- it has not begun: see queue.lua, perform
  else
    call('HSET', job(seq), 'error', reason)
    rows[#rows + 1] = {seq, found[1], found[2], dead and 3 or 0}
  end
end
for _, seq in ipairs(call('ZRANGEBYSCORE', key('done'), '-inf', now, 'LIMIT', 0, 1000)) do
  call('ZREM', key('done'), seq)
  drop(seq)
end
local due
for _, name in ipairs({'delayed', 'running'}) do
  local first = call('ZRANGE', key(name), 0, 0, 'WITHSCORES')[2]
  if first and (not due or tonumber(first) < due) then due = tonumber(first) end
end
return {due and tostring(due - now) or false, rows}]],
  renew = [[
if not has(ARGV[1], ARGV[2]) then return 0 end
call('ZADD', key('running'), now + ARGV[3], ARGV[1])
if ARGV[4] ~= '' then call('HSET', job(ARGV[1]), 'progress', ARGV[4]) end
return 1]],
  finish = [[
if not has(ARGV[1], ARGV[2]) then return 0 end
release(ARGV[1])
if tonumber(ARGV[3]) > 0 then
  call('ZADD', key('done'), now + ARGV[3], ARGV[1])
  call('HDEL', job(ARGV[1]), 'error')
else
  drop(ARGV[1])
end
return 1]],
  put_back = [[
local seq, delay, text = ARGV[1], ARGV[3], ARGV[4]
if not has(seq, ARGV[2]) then return 0 end
release(seq)
if ARGV[5] == '1' then call('HINCRBY', job(seq), 'attempt', -1) end
if text ~= '' then call('HSET', job(seq), 'error', text) end
if delay == 'dead' then call('ZADD', key('dead'), seq, seq)
elseif delay ~= '' then call('ZADD', key('delayed'), now + delay, seq)
else ready(seq) end
return 1]],
  counts = [[
local out = {}
for i, name in ipairs({'ready', 'running', 'delayed', 'dead', 'done'}) do out[i] = call('ZCARD', key(name)) end
return out]],
  dead = [[
local rows = {}
for i, seq in ipairs(call('ZRANGE', key('dead'), 0, ARGV[1] - 1)) do
  rows[i] = {seq, unpack(call('HMGET', job(seq), 'id', 'data', 'attempt', 'error', 'pushed'))}
end
return rows]],
  get = [[
local seq = find(ARGV[1], ARGV[2])
if not seq or call('EXISTS', job(seq)) == 0 then return false end
local state
for _, name in ipairs({'ready', 'running', 'delayed', 'dead', 'done'}) do
  if call('ZSCORE', key(name), seq) then state = name end
end
return {seq, state or false, unpack(call('HMGET', job(seq), 'id', 'data', 'attempt', 'error', 'pushed', 'progress'))}]],
  revive = [[
local seq = find(ARGV[1], ARGV[2])
if not seq or call('ZREM', key('dead'), seq) == 0 then return 0 end
call('HSET', job(seq), 'attempt', 0)
call('HDEL', job(seq), 'error')
ready(seq)
return 1]],
  remove = [[
local seq = find(ARGV[1], ARGV[2])
if not seq then return 0 end
local removed = 0
for _, name in ipairs({'ready', 'delayed', 'dead', 'done'}) do removed = removed + call('ZREM', key(name), seq) end
if removed > 0 then drop(seq) end
return removed]],
}
local texts = {}
for name, script in next, scripts do texts[name] = HEAD .. script end

local store = {}
store.__index = store

-- open(client) -> store. client: of ls.redis
function queue_redis.open(client) return setmetatable({ client = client }, store) end

local function run(self, queue, name, ...)
  return self.client:eval(texts[name], { "luaserve:%queue:{" .. queue .. "}:" }, { ... })
end

local function row_of(list, ...)
  local row = {}
  for i, name in ipairs { ... } do row[name] = list[i] or nil end
  for _, name in ipairs { "seq", "attempt", "priority", "state" } do row[name] = tonumber(row[name]) or row[name] end
  row.pushed, row.progress = tonumber(row.pushed), tonumber(row.progress)
  return row
end

local function rows_of(lists, ...)
  local rows = json.array {}
  for i, list in ipairs(lists) do rows[i] = row_of(list, ...) end
  return rows
end

function store:push(queue, id, data, delay, priority, tx)
  if tx then usage.error("queue:push: the option tx is for a queue in the database of the transaction; this one is in Redis") end
  return run(self, queue, "push", id or "", data, delay or "", priority) or nil
end

function store:claim(queue, owner, most, lease)
  local rows = rows_of(run(self, queue, "claim", owner, lease, most), "seq", "id", "data", "attempt", "priority")
  for _, row in ipairs(rows) do row.queue, row.owner = queue, owner end
  return rows
end

function store:sweep(queue, attempts, reason)
  local reply = run(self, queue, "sweep", attempts - 1, reason)
  return tonumber(reply[1] or nil), rows_of(reply[2], "seq", "id", "attempt", "state")
end

-- The functions of a row that was claimed -> whether it is still that of this claim
local function of_row(self, name, row, ...) return run(self, row.queue, name, row.seq, row.owner, ...) == 1 end
function store:renew(row, lease, progress) return of_row(self, "renew", row, lease, progress or "") end
function store:finish(row, keep) return of_row(self, "finish", row, keep) end
function store:put_back(row, delay, message, uncounted)
  return of_row(self, "put_back", row, delay or "", message or "", uncounted and 1 or 0)
end

function store:counts(queue)
  local list, counts = run(self, queue, "counts"), {}
  for i, name in ipairs { "ready", "running", "delayed", "dead", "done" } do counts[name] = list[i] end
  return counts
end

function store:dead(queue, most)
  return rows_of(run(self, queue, "dead", most), "seq", "id", "data", "attempt", "error", "pushed")
end

local function kind_of(id) return type(id) == "number" and "seq" or "id" end

function store:get(queue, id)
  local list = run(self, queue, "get", kind_of(id), id)
  return list and row_of(list, "seq", "state", "id", "data", "attempt", "error", "pushed", "progress") or nil
end

function store:revive(queue, id) return run(self, queue, "revive", kind_of(id), id) == 1 end
function store:remove(queue, id) return run(self, queue, "remove", kind_of(id), id) == 1 end

return queue_redis
