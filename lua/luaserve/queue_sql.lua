-- queue_sql.lua - the jobs of ls.queue in SQLite and PostgreSQL: one table, `luaserve_job`, with the jobs of all queues of the
-- database.
--
--     READY --claim--> RUNNING --finish--> removed, or DONE for the time of `keep`
--       ^  ^              |  \--put_back-> DEAD --revive--> READY
--       |   \--delayed----+-- put_back
--     DELAYED
--
-- `due` is the time at which a job changes by itself: the end of a delay, of a lease, of `keep`; else it is null. The clock is that of the
-- database, so that all servers have the same one. The owner of a job that runs is a server, by 24
-- characters, and the number of its claim; what changes the job names it, and changes nothing when the lease has ended, or the
-- job was put back, also if the same server has claimed it again.

local sort = table.sort

local queue_sql = {}

local READY <const>, DELAYED <const>, DEAD <const> = 0, 2, 3
local names <const> = { [0] = "ready", "running", "delayed", "dead", "done" }

-- What differs: the words in braces of the statements.
local words <const> = {
  sqlite = { key = "integer primary key autoincrement", now = "((julianday('now') - 2440587.5) * 86400.0)", most = "max",
    set = "in", unset = "", lock = "" },
  postgres = { key = "bigserial primary key", now = "cast(extract(epoch from clock_timestamp()) as double precision)",
    most = "greatest", set = "= any(array", unset = ")", lock = " for update skip locked" },
}

local schema <const> = {
  [[create table if not exists luaserve_job (seq {key}, queue text not null, id text, data text not null,
    state integer not null, priority integer not null, due double precision, attempt integer not null,
    owner text, error text, progress double precision, pushed double precision not null)]],
  "create index if not exists luaserve_job_ready on luaserve_job (queue, priority desc, seq) where state = 0",
  "create index if not exists luaserve_job_due on luaserve_job (queue, due) where due is not null",
  "create index if not exists luaserve_job_owner on luaserve_job (owner) where owner is not null",
  "create unique index if not exists luaserve_job_id on luaserve_job (queue, id) where id is not null",
}

local begun <const> = "(attempt <= $1 or progress is not null)" -- see queue.lua, perform
local mine <const> = " where seq = $%d and owner = $%d"

-- The parameters are numbered in the order in which they first appear, since SQLite counts them so.
local statements <const> = {
  push = [[insert into luaserve_job (queue, id, data, state, priority, due, attempt, pushed)
    values ($1, $2, $3, $4, $5, {now} + cast($6 as double precision), 0, {now}) on conflict do nothing returning seq]],
  claim = [[update luaserve_job set state = 1, owner = $1, attempt = attempt + 1, progress = null,
    due = {now} + cast($2 as double precision) where seq {set}(select seq from luaserve_job where queue = $3 and state = 0
    order by priority desc, seq limit {most}(0, $4 - (select count(*) from luaserve_job
    where owner is not null and substr(owner, 1, 24) = substr($1, 1, 24) and queue = $3)){lock}){unset}
    returning seq, id, data, attempt, priority]],
  sweep = [[update luaserve_job set state = case when state = 1 and attempt > $1 and progress is not null then 3 else 0 end,
    owner = null, due = null, attempt = case when state = 1 and not ]] .. begun .. [[ then attempt - 1 else attempt end,
    error = case when state = 1 and ]] .. begun .. [[ then $2 else error end where queue = $3 and state in (1, 2) and due <= {now}
    returning seq, id, attempt, state, owner, error]],
  expire = "delete from luaserve_job where queue = $1 and state = 4 and due <= {now}",
  due = "select min(due) - {now} as seconds from luaserve_job where queue = $1 and state in (1, 2)",
  renew = "update luaserve_job set due = {now} + cast($1 as double precision), progress = coalesce($2, progress)"
    .. mine:format(3, 4),
  finish = "delete from luaserve_job" .. mine:format(1, 2),
  keep = "update luaserve_job set state = 4, owner = null, error = null, due = {now} + cast($1 as double precision)" .. mine:format(2, 3),
  put_back = [[update luaserve_job set state = $1, owner = null, due = {now} + cast($2 as double precision), error = $3,
    attempt = attempt - $4]] .. mine:format(5, 6),
  counts = "select state, count(*) as n from luaserve_job where queue = $1 group by state",
  dead = [[select seq, id, data, attempt, error, pushed from luaserve_job where queue = $1 and state = 3 order by seq
    limit $2]],
  get = "select seq, id, data, state, attempt, error, progress, pushed from luaserve_job where queue = $1 and ",
  revive = "update luaserve_job set state = 0, attempt = 0, error = null where queue = $1 and state = 3 and ",
  remove = "delete from luaserve_job where queue = $1 and state <> 1 and ",
}

local store = {}
store.__index = store

-- open(kind, db, names_of_statements) -> store. kind: "sqlite" or "postgres".
function queue_sql.open(kind, db)
  local made = { db = db, sql = {} }
  local function text(sql) return (sql:gsub("{(%a+)}", words[kind])) end
  for name, sql in pairs(statements) do made.sql[name] = text(sql) end
  local function make(tx)
    for _, sql in ipairs(schema) do tx:exec(text(sql)) end
  end
  if kind == "sqlite" then
    make(db)
  else -- two servers at once would both make the table
    db:transaction(function(tx)
      tx:one("select pg_advisory_xact_lock(5001, 5433)")
      make(tx)
    end)
  end
  return setmetatable(made, store)
end

-- The key of a job: the number that it got, or the id that the site gave.
local function by(sql, id) return sql .. (type(id) == "number" and "seq = $2" or "id = $2") end

local function changed(self, sql, ...) return self.db:exec(sql, ...).changes == 1 end

-- push(queue, id|nil, data, delay|nil, priority, tx|nil) -> its number | nil: there is a job with this id
function store:push(queue, id, data, delay, priority, tx)
  local row = (tx or self.db):one(self.sql.push, queue, id, data, delay and DELAYED or READY, priority, delay)
  return row and row.seq
end

local function before(a, b)
  if a.priority ~= b.priority then return a.priority > b.priority end
  return a.seq < b.seq
end

-- claim(queue, owner, most, lease) -> rows { seq, id, data, attempt, priority, owner } in their order: so many that this
-- server has `most` then
function store:claim(queue, owner, most, lease)
  local rows = self.db:query(self.sql.claim, owner, lease, queue, most)
  for _, row in ipairs(rows) do row.owner = owner end
  sort(rows, before)
  return rows
end

-- sweep(queue, attempts, reason) -> seconds until it is needed again, or nil; rows { seq, id, attempt, state, error } whose
-- delay or lease has ended. Those of a lease that have had all attempts are dead, for this reason.
function store:sweep(queue, attempts, reason)
  local rows = self.db:query(self.sql.sweep, attempts - 1, reason, queue)
  self.db:exec(self.sql.expire, queue)
  return self.db:one(self.sql.due, queue).seconds, rows
end

-- renew(row, lease, progress|nil) -> whether the job is still that of this claim
function store:renew(row, lease, progress)
  return changed(self, self.sql.renew, lease, progress, row.seq, row.owner)
end

function store:finish(row, keep)
  if keep > 0 then return changed(self, self.sql.keep, keep, row.seq, row.owner) end
  return changed(self, self.sql.finish, row.seq, row.owner)
end

-- put_back(row, delay|nil|"dead", error, uncounted) -> the same. uncounted: the attempt does not count.
function store:put_back(row, delay, message, uncounted)
  local state = delay == "dead" and DEAD or delay and DELAYED or READY
  return changed(self, self.sql.put_back, state, state == DELAYED and delay or nil, message, uncounted and 1 or 0, row.seq, row.owner)
end

-- counts(queue) -> a table by the names of the states
function store:counts(queue)
  local counts = {}
  for _, row in ipairs(self.db:query(self.sql.counts, queue)) do counts[names[row.state]] = row.n end
  return counts
end

function store:dead(queue, most) return self.db:query(self.sql.dead, queue, most) end

-- get(queue, id) -> row, whose state is a name | nil
function store:get(queue, id)
  local row = self.db:one(by(self.sql.get, id), queue, id)
  if row then row.state = names[row.state] end
  return row
end

function store:revive(queue, id) return changed(self, by(self.sql.revive, id), queue, id) end
function store:remove(queue, id) return changed(self, by(self.sql.remove, id), queue, id) end

return queue_sql
