-- queue.lua - ls.queue: jobs that are kept in SQLite, PostgreSQL or Redis until a worker has done them, at least once.
--
--     push --> store <--claim-- claimer --channel--> workers of all states --finish, put_back--> store
--
-- The claimer, a task of the first state, takes as many jobs as workers are free, and some ahead while jobs are short, and
-- passes them on by a channel. Each state has workers, of which a semaphore lets `workers` run. A worker runs a job in a task of its own,
-- with a limit of time, and renews its lease. A job that waits for a third of its lease goes back to the store. One
-- whose lease has ended is swept: another attempt begins. The channel `wake` wakes the claimer: its values are the seconds
-- after which a sweep is due. queue_sql.lua and queue_redis.lua are the stores.
--
-- A site that is replaced takes no further job; those that run have drain_timeout, and go back to the store just before.
-- In a test file a push runs the job itself, from a database in memory.

local core = require "luaserve.core"
local json = require "luaserve.json"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

local floor, max, min, pack, random, getmetatable = math.floor, math.max, math.min, table.pack, math.random, debug.getmetatable
local ipairs, next, pairs, pcall, setmetatable, tostring, type = ipairs, next, pairs, pcall, setmetatable, tostring, type
local now = core.now

local queue = {}

local NAME_BYTES_MAX <const>, ID_BYTES_MAX <const>, ERROR_BYTES_MAX <const> = 60, 200, 2000
local PRIORITY_MAX <const>, DELAY_S_MAX <const> = 1000, 10 * 365 * 86400
local POLL_S <const>, TICK_S <const> = 1, 0.1 -- other servers push as well; a delay is over
local AHEAD_S <const>, AHEAD_MAX <const> = 0.1, 256 -- jobs of so much time are claimed before a worker is free
local WAITING_MAX <const> = 4096 -- in the channel, above workers and AHEAD_MAX
local DRAIN_SHARE <const> = 0.8 -- of drain_timeout; the rest is for putting back
local TRIES <const> = 8 -- to store a result, with pauses that grow
local LEASE_ENDED <const> = "the lease ended: the worker was killed, was cut off from the database, or computed for too long"

local function is_delay(value) return type(value) == "number" and value >= 0 and value <= DELAY_S_MAX end
local function is_backoff(value) return type(value) == "function" or is_delay(value) end
local function is_priority(value)
  return type(value) == "number" and math.tointeger(value) and value >= -PRIORITY_MAX and value <= PRIORITY_MAX
end
local function is_id(value)
  return type(value) == "string" and value ~= "" and #value <= ID_BYTES_MAX and not value:find("%z") and utf8.len(value)
end
local function is_tx(value) return type(value) == "table" and rawget(value, "failure") ~= nil end

local queue_options = {
  file = { "file", "text", "the path of an SQLite database" }, -- default "jobs.db" in ls.data
  redis = true, -- boolean|string|Redis - in Redis: that of ls.config, a URL or a client
  postgres = true, -- string|PostgresPool - in PostgreSQL: a URL or a pool
  retries = { "retries", "count", 0, 1000, 5 }, -- further attempts of a job that fails
  -- number|fun(attempt: integer, message: string): number - seconds before an attempt; a number doubles; default 1
  backoff = { "backoff", "is", is_backoff, "a number of seconds or a function(attempt, message)", 1 },
  timeout = { "timeout_ms", "seconds", 1, 86400000, 60 }, -- an attempt ends then
  lease = { "lease_ms", "seconds", 1000, 86400000, 30 }, -- a job whose server was killed begins again then
  keep = { "keep_ms", "seconds", 0, DELAY_S_MAX * 1000, 0 }, -- seconds for which the id of a job that is done stays taken
}
local run_options = {
  workers = { "workers", "count", 1, 1000, 1 }, -- jobs at a time, of the whole server
}
local push_options = {
  delay = { "delay", "is", is_delay, ("a number from 0 to %d"):format(DELAY_S_MAX) }, -- number - seconds before it may run
  -- string - no second job gets this id
  id = { "id", "is", is_id, ("a string of 1 to %d bytes of UTF-8"):format(ID_BYTES_MAX) },
  -- integer - from -1000 to 1000; higher ones run first; default 0
  priority = { "priority", "is", is_priority, ("a whole number from %d to %d"):format(-PRIORITY_MAX, PRIORITY_MAX), 0 },
  -- Transaction|PostgresTransaction - the job is pushed when this transaction is committed
  tx = { "tx", "is", is_tx, "the argument of the function of db:transaction" },
}
queue.calls = {
  ["ls.queue"] = { queue_options }, -- QueueOptions
  ["queue:run"] = { run_options }, -- QueueRunOptions
  ["queue:push"] = { push_options }, -- QueuePushOptions
}

local in_database <const> = 'keep the queue in this database, as in ls.queue(name, { file = "shop.db" }), and push with { tx = tx }'
local opened = {} -- by name; of this state
local claiming, run_here = {}, {} -- those that run in this state, and by name
local entries = setmetatable({}, { __mode = "k" }) -- by job: its queue and row
local running = {} -- of this state: { task =, row =, ... } as keys
local draining = false
local owner, counters, first_state

local function log(level, self, ...) core.log(level, ("queue %s: "):format(self.name) .. (...):format(select(2, ...))) end

local function count(what) counters:incr(what) end

-- count(counters): for ls.stats.
function queue.count(into)
  for _, name in ipairs { "pushed", "done", "retried", "dead" } do into["jobs_" .. name] = counters:get(name) or 0 end
end

local function in_test() return package.loaded["luaserve.test"] ~= nil end

-- ---- one attempt ---------------------------------------------------------------------------------------------------

-- queued is a QueueJob: the argument of the function of queue:run.
-- queued.id: integer|string - that of queue:push
-- queued.data: any - what was pushed
-- queued.attempt: integer - 1 for the first attempt
local job_meta = {}

local function text_of(message)
  local text = tostring(message):gsub("%z", " "):sub(1, ERROR_BYTES_MAX)
  return utf8.len(text) and text or text:gsub("[\x80-\xFF]", "?")
end

-- stored(self, row, what, ...) -> whether the store has done it. It has not when the lease has ended: the result is void.
local function stored(self, row, what, ...)
  local message
  for n = 1, TRIES do
    local ok, kept = pcall(self.store[what], self.store, row, ...)
    if ok then
      if not kept then log("warn", self, "job %s: the lease has ended before attempt %d has: it runs again", row.id or row.seq, row.attempt) end
      return kept
    end
    message = kept
    core.sleep(min(0.05 * 2 ^ n, 5))
  end
  log("error", self, "job %s: its result is not stored, and it runs again: %s", row.id or row.seq, tostring(message))
end

local function wake(self, seconds) self.wake:send(seconds or 0, 0) end

-- Seconds before the next attempt.
local function pause_of(self, row, message)
  local backoff = self.backoff
  if type(backoff) == "function" then
    local ok, result = pcall(backoff, row.attempt, message)
    if ok and is_delay(result) then return result end
    log("error", self, "backoff has returned no number of seconds, but %s", tostring(result))
    backoff = 1
  end
  return min(backoff * 2 ^ min(row.attempt - 1, 30), 3600) * (0.5 + random() / 2) -- those that failed together do not come back together
end

local function failed(self, row, message)
  local text, id = text_of(message), row.id or row.seq
  if row.attempt > self.retries then
    log("error", self, "job %s is dead after %d attempts: %s", id, row.attempt, text)
    if stored(self, row, "put_back", "dead", text) then count("dead") end
    return
  end
  local seconds = pause_of(self, row, text)
  log("warn", self, "job %s: attempt %d has failed, the next one begins in %.3g s: %s", id, row.attempt, seconds, text)
  if stored(self, row, "put_back", seconds > 0 and seconds or nil, text) then count("retried") end
  return seconds
end

-- refused(first, second) -> why a job has failed by the results of its function, of which there are some; nil: it is done.
local function refused(first, second)
  if first == nil and second == nil then
    return "the function has returned nil: write return false, or raise, when the work is not done, and return true, or nothing, when it is"
  elseif not first then
    return second == nil and "the function has returned false" or second
  end
  local name = (getmetatable(first) or {}).__name
  return name == "answer" and not first.ok and "the function has returned an answer of ls.fetch with the status " .. first.status
    or name == "job" and "the function has returned a job of ls.spawn, which nothing waits for: write return job:wait()"
end

-- perform(self, row) -> seconds until the job is due again, or nil. Runs a job that was claimed.
local function perform(self, row)
  -- Only a last attempt that has begun, by its progress, was the last one when the server is killed.
  if row.attempt > self.retries and not stored(self, row, "renew", self.lease, 0.0) then return end
  local job = setmetatable({ id = row.id or row.seq, data = json.decode(row.data), attempt = row.attempt }, job_meta)
  local results
  entries[job] = { queue = self, row = row }
  local ok, task = pcall(core.spawn_limited, self.timeout_ms, function() results = pack(self.fn(job)) end)
  if not ok then return stored(self, row, "put_back", 1, text_of(task), true) and 1 end
  local entry = { task = task }
  running[entry] = true
  local message
  local renews_at = (row.at or now()) + self.lease / 3
  repeat
    ok, message = pcall(task.wait, task, max(renews_at - now(), 0))
    if ok and not results then pcall(self.store.renew, self.store, row, self.lease) end
    renews_at = now() + self.lease / 3
  until results or not ok
  running[entry] = nil
  local why = message
  if ok then why = results.n > 0 and refused(results[1], results[2]) end
  if not ok and entry.drained and not results then -- it runs again after the restart
    log("info", self, "job %s: it is put back, because the server stops or was reloaded", job.id)
    stored(self, row, "put_back", nil, nil, true)
  elseif why or not ok then
    return failed(self, row, why)
  elseif stored(self, row, "finish", self.keep) then
    count("done")
  end
end

-- queued:progress(value: number)
-- Stores how much of the job is done, from 0 to 1, for queue:get, and renews its lease. Raises when the lease has ended: another
-- attempt has the job.
local function progress(job, value, ...)
  local entry = entries[job]
  if not entry then usage.error("'progress' is a method of a job: call it with a colon; got %s for the job", usage.quote(job)) end
  usage.refuse(type(value) ~= "number" or not (value >= 0 and value <= 1), value, "the progress of a job must be a number from 0 to 1")
  usage.no_more("progress(value)", value, ...)
  local self = entry.queue
  if self.store:renew(entry.row, self.lease, value + 0.0) then return end
  usage.error("the lease of this job has ended, and another attempt has it")
end
local fields <const> = { id = true, data = true, attempt = true, progress = true }
function job_meta.__index(job, name)
  if name == "progress" then return progress end
  local hint = type(job.data) == "table" and job.data[name] ~= nil and "; write job.data." .. name or usage.suggest(name, fields, "a job of a queue")
  usage.error("a job of a queue has no %s%s", usage.quote(name), hint)
end

-- ---- the tasks of a server -------------------------------------------------------------------------------------------

-- take(self, row) -> seconds until the job is due again, or nil. Runs a job that was claimed. One that waits for long is put back: the
-- end of its lease would count as an attempt.
local function take(self, row)
  local left = row.at + self.lease / 3 - now()
  local has = not draining and left >= 0 and self.permits:acquire(left)
  local _ <close> = has and setmetatable({}, { __close = function() self.permits:release() end }) or nil
  if draining or not has then return stored(self, row, "put_back", nil, nil, true) and nil end
  local ok, due = pcall(perform, self, row)
  if ok then return due end
  log("error", self, "job %s: %s", row.id or row.seq, tostring(due))
end

-- Each state has as many workers as the server may run; a job that was claimed ahead waits for a permit.
local function worker(self)
  for row in self.work:values() do
    if self.work:len() <= self.low then wake(self) end
    local due = take(self, row)
    if self.work:len() <= self.low then wake(self, due) end
  end
end

-- Put back the jobs that no worker has taken.
local function give_back(self)
  for row in function() return self.work:receive(0) end do stored(self, row, "put_back", nil, nil, true) end
end

local function sweep(self)
  local seconds, rows = self.store:sweep(self.name, self.retries + 1, LEASE_ENDED)
  self.sweep_at = now() + min(max(seconds or POLL_S, 0), POLL_S, self.lease / 3)
  for _, row in ipairs(rows) do
    if row.error == LEASE_ENDED or row.state == 3 then
      local dead = row.state == 3
      log(dead and "error" or "warn", self, "job %s: attempt %d: %s%s", row.id or row.seq, row.attempt, LEASE_ENDED, dead and ": it is dead" or "")
      if dead then count("dead") end
    end
  end
end

-- Each claim has a number: when the reply of a put_back is lost and the job is claimed again, a second put_back is void.
local function claim_rows(self, most)
  return self.store:claim(self.name, owner .. "." .. counters:incr("claims"), most, self.lease)
end

local function claim(self)
  if now() - self.claimed_at > self.lease / 3 then give_back(self) end
  if now() >= self.sweep_at then sweep(self) end
  local rows = claim_rows(self, self.workers + self.ahead)
  for _, row in ipairs(rows) do
    row.at, self.claimed_at = now(), now()
    if draining or not self.work:send(row, 0) then stored(self, row, "put_back", nil, nil, true) end
  end
  self.claimed = self.claimed + #rows
  local seconds = now() - self.since
  if seconds >= POLL_S then
    self.ahead = min(AHEAD_MAX, floor(self.claimed / seconds * AHEAD_S))
    self.low = self.ahead // 2
    self.claimed, self.since = 0, now()
  end
end

local function claimer(self)
  local said = -60
  for seconds in self.wake:values() do
    if draining then return end
    self.sweep_at = min(self.sweep_at, now() + seconds)
    local ok, message = pcall(claim, self)
    if not ok and now() - said >= 60 then
      log("error", self, "no job is taken: %s", tostring(message))
      said = now()
    end
  end
end

local function drain()
  draining = true
  for entry in next, running do
    entry.drained = true
    core.job_limit(entry.task, floor(options.drain_timeout_ms() * DRAIN_SHARE))
  end
  for self in next, first_state and claiming or {} do give_back(self) end
end

-- In a test file: runs all jobs that are ready, in this task.
local function run_now(self)
  if not self.fn or self.busy then return end
  self.busy = true
  repeat
    self.store:sweep(self.name, self.retries + 1, LEASE_ENDED)
    local row = claim_rows(self, 1)[1]
    local due = row and perform(self, row)
    if due then core.after(due + 0.01, run_now, self) end -- the clock of the database has milliseconds
  until not row
  self.busy = false
end

-- ---- the object ----------------------------------------------------------------------------------------------------

-- queue is a Queue: jobs that are kept until a worker has done them. Its methods wait.
local methods = {}

local function check_self(self, name)
  if type(self) == "table" and opened[self.name] == self then return end
  usage.error("'%s' is a method of a queue: call it with a colon, as in mail:%s(...); got %s for the queue", name, name, usage.quote(self))
end

-- read_push(options) -> delay | nil, priority, id | nil, tx | nil. Raises.
function queue.read_push(given)
  local call <const> = "queue:push"
  usage.check(given, "table?", "%s: options must be a table such as { delay = 60 }", call)
  if not given then return nil, 0 end
  local out = options.take(call, given, queue.calls[call], {})
  local delay = out.delay or 0
  return delay > 0 and delay + 0.0 or nil, math.tointeger(out.priority), out.id, out.tx
end

-- Says once that this server runs no job of the queue: another one may, or its name is misspelt.
local function say_unrun(self)
  self.said = true
  if in_test() or not counters:add("no queue:run " .. self.name, true) then return end
  local near = usage.suggest(self.name, run_here)
  log(near ~= "" and "warn" or "info", self, "a job was pushed, and this server runs none of this queue: it has no queue:run%s", near)
end

-- queue:push(data: any [, options: QueuePushOptions]) -> id: integer|string | nil, message, code
-- Stores a job with these data, a value of JSON. Returns its id; nil and `"EEXIST"` when there is a job with the id of the options.
function methods:push(data, given, ...)
  local call <const> = "queue:push"
  check_self(self, "push")
  usage.no_more("queue:push(data, options)", given, ...)
  local delay, priority, id, tx = queue.read_push(given)
  if core.thread() == 0 and not in_test() then
    usage.error("%s: call it in a handler or in ls.init: at the top of the file each Lua state pushes the job", call)
  end
  if data == nil then usage.error("%s: the data of the job are missing", call) end
  local ok, text = pcall(json.encode, data)
  if not ok then usage.error("%s: %s", call, text:match("ls%.json%.encode: (.*)") or text) end
  local at, key = require("luaserve.json_fault").changed(data, "value")
  if at then
    usage.error("%s: %s has the key %s, and JSON has only lists with the keys 1 to n and tables with strings as keys", call, at, key)
  end
  if tx and self.store.db and tx.target ~= self.store.db.target then
    usage.error("%s: tx is a transaction of %s, and the queue is in %s", call, tostring(tx.target), self.store.db.target)
  end
  local seq = self.store:push(self.name, id, text, delay, priority, tx)
  if not seq then return nil, "there is a job with the id " .. id, "EEXIST" end
  if core.dev and not tx then require("luaserve.dev_state").watch_effect(call, in_database) end
  if core.dev and not id then require("luaserve.dev_state").watch_start(call) end
  count("pushed")
  if not self.fn and not self.said then say_unrun(self) end
  if in_test() then
    if delay then core.after(delay + 0.01, run_now, self) elseif tx then core.after(TICK_S / 2, run_now, self) else run_now(self) end
  else
    wake(self, tx and not delay and TICK_S / 2 or delay) -- the claimer does not see it before the commit
  end
  return id or seq
end

-- read_run(options) -> { workers = }. Raises.
function queue.read_run(given)
  usage.check(given, "table?", "queue:run: options must be a table such as { workers = 4 }")
  return options.take("queue:run", given or {}, queue.calls["queue:run"], {})
end

-- queue:run(fn: fun(job: QueueJob): ... [, options: QueueRunOptions])
-- Runs a function for each job, in any Lua state, in a task of its own. The job is done when it returns nothing, or a value; it
-- begins again later when it raises, returns false or nil, and when its time is over. Only while the site loads, once for each queue.
function methods:run(fn, given, ...)
  local call <const> = "queue:run"
  check_self(self, "run")
  usage.check(fn, "function", "%s: the first argument must be a function(job)", call)
  usage.no_more("queue:run(fn, options)", given, ...)
  local out = queue.read_run(given)
  if self.fn then usage.error("%s: the queue %s has a function already, from %s", call, usage.quote(self.name), self.place) end
  if in_test() then
    self.fn, self.place = fn, usage.where()
    return
  end
  self.permits = require("luaserve.channel").semaphore("luaserve.queue." .. self.name, out.workers)
  usage.call(call, core.on, "start", function()
    for _ = 1, out.workers do core.spawn(worker, self) end
    if first_state then core.spawn(claimer, self) end
  end)
  self.fn, self.place, self.workers, claiming[self], run_here[self.name] = fn, usage.where(), out.workers, true, true
  core.every(TICK_S, function() -- in the first state
    if now() >= self.sweep_at then wake(self) end
  end)
end

-- each_count(fn): fn(name of a queue, state, count) for the queues of the site. One whose store fails is left out.
function queue.each_count(fn)
  for name, self in pairs(opened) do
    local ok, counts = pcall(methods.counts, self)
    for state, count in pairs(ok and counts or {}) do fn(name, state, count) end
  end
end

-- queue:counts() -> counts: table<string, integer>
-- How many jobs there are: `ready`, `delayed`, `running`, `dead`, and `done` of those that are kept.
function methods:counts(...)
  check_self(self, "counts")
  usage.no_more("queue:counts()", nil, ...)
  local counts = self.store:counts(self.name)
  for _, name in ipairs { "ready", "delayed", "running", "dead", "done" } do counts[name] = counts[name] or 0 end
  return counts
end

local function shown(row)
  return { id = row.id or row.seq, data = json.decode(row.data), state = row.state, attempt = row.attempt, error = row.error,
    progress = row.progress, pushed = row.pushed }
end

-- queue:failed([max]) -> jobs: QueueEntry[]
-- The oldest dead jobs, at most 100, which have failed in each attempt.
--
-- entry is a QueueEntry: a job as queue:get and queue:failed return it.
-- entry.id: integer|string - that of queue:push
-- entry.data: any - what was pushed
-- entry.state: string? - `"ready"`, `"delayed"`, `"running"`, `"dead"` or `"done"`; of queue:get
-- entry.attempt: integer - number of attempts that have begun
-- entry.error: string? - why the last attempt has failed
-- entry.progress: number? - of job:progress
-- entry.pushed: number - seconds since 1970
function methods:failed(most, ...)
  check_self(self, "failed")
  usage.no_more("queue:failed(max)", most, ...)
  usage.refuse(most ~= nil and not (math.type(most) and math.tointeger(most) and most >= 0 and most <= 100000), most,
    "queue:failed: max must be a whole number from 0 to 100000")
  local rows = self.store:dead(self.name, most or 100)
  for i, row in ipairs(rows) do rows[i] = shown(row) end
  return rows
end

-- of_id(self, name, what, id) -> the result of this function of the store. In dev mode it warns of text, as of a path, for the
-- number of a job.
local function of_id(self, name, what, id, ...)
  check_self(self, name)
  usage.no_more("queue:" .. name .. "(id)", id, ...)
  usage.refuse(type(id) ~= "string" and math.type(id) ~= "integer", id, "queue:%s: id must be that of queue:push", name)
  local result = self.store[what](self.store, self.name, id)
  local number = core.dev and not result and type(id) == "string" and id:find("^%d+$") and math.tointeger(tonumber(id))
  if number and self.store:get(self.name, number) then
    require("luaserve.dev_state").warn_here("queue:" .. name .. " finds no job with this text as its id, and one with this number: an id is "
      .. "what queue:push has returned, so write math.tointeger(id)")
  end
  return result
end

-- queue:get(id: integer|string) -> entry | nil
-- A job by its id, also while it runs; nil when it is done and not kept.
function methods:get(id, ...)
  local row = of_id(self, "get", "get", id, ...)
  return row and shown(row)
end

-- queue:retry(id: integer|string) -> done: boolean
-- Gives a dead job all its attempts again. Returns whether there was one.
function methods:retry(id, ...)
  local done = of_id(self, "retry", "revive", id, ...)
  if in_test() then run_now(self) elseif done then wake(self) end
  return done
end

-- queue:remove(id: integer|string) -> done: boolean
-- Removes a job that does not run. Returns whether there was one.
function methods:remove(id, ...) return of_id(self, "remove", "remove", id, ...) end

local meta = { __index = usage.strict("a queue", methods), __name = "a queue", __metatable = false }

-- ---- stores --------------------------------------------------------------------------------------------------------

local stores = {} -- by database, of this state

local function sql_store(kind, db)
  stores[db] = stores[db] or require("luaserve.queue_sql").open(kind, db)
  return stores[db]
end

local function store_of(given, file)
  local call <const> = "ls.queue"
  options.one_of(call, given, { "file", "redis", "postgres" })
  local ls = require "luaserve"
  if in_test() then return sql_store("sqlite", ls.sqlite(":memory:")) end
  if given.redis ~= nil then
    local client = type(given.redis) == "string" and ls.redis(given.redis) or require("luaserve.redis_topics").client_of(call, given.redis)
    stores[client] = stores[client] or require("luaserve.queue_redis").open(client)
    return stores[client]
  end
  if given.postgres ~= nil then return sql_store("postgres", require("luaserve.postgres").pool_of(call, given.postgres)) end
  return sql_store("sqlite", ls.sqlite(file or ls.data .. "/jobs.db"))
end

local function begin()
  counters = require("luaserve.dict").open("luaserve.queue")
  counters:add("owner", core.crypto_encode(1, core.crypto_random(12)))
  owner = counters:get("owner")
  if in_test() then return end
  pcall(core.init, function() first_state = true end) -- without effect when the site is loaded already, as is the next one
  pcall(core.on, "drain", drain)
end

-- Whether the options b, of the same line as a, are those of a. A function is a new one each time.
local function has_all(a, b)
  for name, value in pairs(a) do if b[name] ~= value and type(value) ~= "function" then return false end end
  return true
end

-- ls.queue(name [, options: QueueOptions]) -> queue
-- Finds the queue of this name, or makes it. Its jobs are kept in an SQLite database, in PostgreSQL or in Redis.
function queue.open(name, given, ...)
  local call <const> = "ls.queue"
  usage.no_more("ls.queue(name, options)", given, ...)
  usage.refuse(type(name) ~= "string" or not name:find("^[%w_.-]+$") or #name > NAME_BYTES_MAX, name,
    "%s: the name must be 1 to %d letters, digits, dots, _ and -", call, NAME_BYTES_MAX)
  usage.check(given, "table?", "%s: options must be a table such as { retries = 3 }", call)
  local self, place = opened[name], usage.where()
  if self and given and next(given) ~= nil
    and not (self.at == place and has_all(self.given, given) and has_all(given, self.given)) then
    usage.error("%s: the queue %s has options at %s already: give them once", call, usage.quote(name), self.at)
  elseif self then
    return self
  end
  given = given or {}
  local out = options.take(call, given, queue.calls[call], {})
  local store = store_of(given, out.file)
  if not counters then begin() end
  self = setmetatable({
    name = name, at = place, given = given, store = store, retries = out.retries, backoff = out.backoff,
    timeout_ms = out.timeout_ms, lease = out.lease_ms / 1000, keep = out.keep_ms / 1000, fn = false, busy = false, said = false,
    wake = core.channel("luaserve.queue.wake." .. name, 100, place), workers = 0, ahead = 0, low = 0,
    work = core.channel("luaserve.queue.work." .. name, WAITING_MAX, place), claimed = 0, since = now(), claimed_at = 0, sweep_at = 0,
  }, meta)
  opened[name] = self
  return self
end

return queue
