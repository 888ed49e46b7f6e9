-- postgres.lua - ls.postgres: checks the arguments, runs statements, transactions, migrations, COPY, notifications.
-- The core has the pool of connections, sends, and reads results (src/script/bind/database/postgres_object_libpq.c).

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
local database = require "luaserve.database"
local values = require "luaserve.postgres_values"
local json = require "luaserve.json"
usage.mark_internal()

-- A site may replace the globals.
local select, setmetatable, type, pack, unpack, concat = select, setmetatable, type, table.pack, table.unpack, table.concat
local core_result, core_prepare, core_send, core_type = core.postgres_result, core.postgres_prepare, core.postgres_send,
  core.postgres_type
local check_call, results = database.check_call, database.results
local ALL, ONE, SOME = 0, 1, 2
local SHOWN_BYTES, PUT_BYTES, ROW_BYTES_MAX, CHECKED_MAX = 200, 65536, 1 << 30, 256

local postgres = {}

local postgres_options = {
  connections = { "connections", "count", 1, 1000, 16 }, -- connections at a time, of all Lua states together
  timeout = { "timeout_ms", "seconds", 1, 86400000, 30 }, -- a call waits so long for a connection, and for each answer
  connect_timeout = { "connect_timeout_ms", "seconds", 1, 3600000, 5 }, -- a new connection is given up then
}
postgres.calls = {
  ["ls.postgres"] = { postgres_options }, -- PostgresOptions
}

-- ---- statements ----------------------------------------------------------------------------------------------------

local checked, checked_count = {}, 0 -- statements without objection, outside of transactions

-- Raises for a statement that does not go to one connection of many.
local function check_statement(call, sql, in_transaction)
  if checked[sql] then return end
  if sql:find("\0", 1, true) then usage.error("%s: the statement has a zero byte: %s", call, usage.quote(sql)) end
  local instead = values.instead(sql, in_transaction)
  if instead then usage.error("%s: %s; got: %s", call, instead, usage.quote(sql)) end
  if in_transaction then return end
  if checked_count == CHECKED_MAX then checked, checked_count = {}, 0 end
  checked[sql], checked_count = true, checked_count + 1
end

local function shown(sql)
  return #sql <= SHOWN_BYTES and sql or sql:sub(1, SHOWN_BYTES):gsub("[\xC0-\xFF][\x80-\xBF]*$", "") .. "..."
end

local function hint(sql, several)
  if several then return "; a call takes one statement, pg:migrate several" end
  local found = values.placeholder(sql)
  return found and ("; the parameters of PostgreSQL are $1, $2, not %s"):format(found) or ""
end

-- failed(tx or nil, call, sql, message, sqlstate, position, detail) -> nil, message, code, sqlstate; raises for a statement
-- that is wrong. A transaction has failed with it.
local function failed(tx, call, sql, message, sqlstate, position, detail)
  local code = values.code(sqlstate)
  message = message .. (detail and " (" .. detail .. ")" or "") .. (position and " at character " .. position or "")
    .. " in: " .. shown(sql)
  if tx then tx.failure = { message, code, sqlstate } end
  if values.is_wrong(sqlstate) then
    usage.error("%s: %s%s", call, message, hint(sql, sqlstate == "42601" and not position))
  end
  return nil, message, code, sqlstate
end

-- read(lease, how) -> kind and values of a result, as core.postgres_result; those after it are read, too, and an error
-- among them takes its place. nil, message, code: no result.
local function read(lease, how)
  local result = pack(results("ls.postgres", core_result(lease, how, values.decoders)))
  local kind = result[1]
  while kind and kind ~= "some" and kind ~= "in" and kind ~= "out" do
    local following = pack(core_result(lease, how, values.decoders))
    kind = following[1]
    if kind == "error" or kind == "in" or kind == "out" or (not kind and following.n > 0) then result = following end
  end
  return unpack(result, 1, 5)
end

-- answer(tx, call, sql, kind, ...) -> kind, ... of the result, unless it is a failure
local function answer(tx, call, sql, kind, first, second, state, ...)
  if kind == "error" then return failed(tx, call, sql, first, second, state, ...) end
  if kind == "in" or kind == "out" then usage.error("%s: use pg:copy_%s(sql); got: %s", call, kind, usage.quote(sql)) end
  if not kind and state == "" then state = nil end
  if not kind and tx then tx.failure = { first, second, state } end
  return kind, first, second, state
end

local function command(lease, tx, call, sql)
  local ok, message, code = results(call, core.postgres_command(lease, sql))
  if not ok then return nil, message, code end
  return answer(tx, call, sql, read(lease, ALL))
end

-- The values after a statement, of which tables become text.
local function encoded(lease, call, ...)
  local list
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if type(value) == "table" then
      list = list or pack(...)
      local text, wrong = values.encode(value, core_type(lease, i))
      if not text then usage.error("%s: parameter $%d: %s", call, i, wrong) end
      list[i] = text
    end
  end
  if list then return unpack(list, 1, list.n) end
  return ...
end

-- send(lease, tx, call, sql, ...) -> true | nil, message, code, sqlstate: the statement runs.
local function send(lease, tx, call, sql, ...)
  local count, message, code = results(call, core_prepare(lease, sql))
  while count == true do
    local kind, failure, error_code, state = answer(tx, call, sql, read(lease, ALL))
    if not kind then return nil, failure, error_code, state end
    count, message, code = results(call, core_prepare(lease, sql))
  end
  if not count then return nil, message, code end
  local given = select("#", ...)
  if given ~= count then
    usage.error("%s: the statement has %d parameter%s; got %d value%s%s", call, count, count == 1 and "" or "s", given,
      given == 1 and "" or "s", hint(sql))
  end
  return results(call, core_send(lease, encoded(lease, call, ...)))
end

-- run(lease, tx, call, how, sql, ...) -> kind, rows, changes | nil, message, code, sqlstate
local function run(lease, tx, call, how, sql, ...)
  local ok, message, code, state = send(lease, tx, call, sql, ...)
  if not ok then return nil, message, code, state end
  local result = pack(read(lease, how))
  if result[1] == "error" and not tx and result[3] == "0A000" then -- a table was altered: the plan is too old
    core.postgres_deallocate(lease)
    ok, message, code, state = send(lease, tx, call, sql, ...)
    if not ok then return nil, message, code, state end
    result = pack(read(lease, how))
  end
  return answer(tx, call, sql, unpack(result, 1, result.n))
end

local function of_exec(kind, rows, changes, state)
  if not kind then return nil, rows, changes, state end
  return { changes = changes }
end

local function of_query(kind, rows, changes, state)
  if not kind then return nil, rows, changes, state end
  return rows or json.array {}
end

local function of_one(kind, rows, changes, state)
  if not kind then return nil, rows, changes, state end
  return rows and rows[1]
end

local function is_reading(sql) return sql:find("^%s*[sS][eE][lL][eE][cC][tT]%f[%W]") ~= nil end

-- lease(pg, call, reads, in_transaction) -> a connection, to be closed | nil, message, code, sqlstate
local function lease_of(self, call, reads, in_transaction)
  local lease, message, code, state = results(call, core.postgres_lease(self.handle, reads, in_transaction))
  if lease then return lease end
  if state == "" then state = nil end
  return nil, message, state and values.code(state) or code, state
end

local function run_alone(self, call, how, of, sql, ...)
  check_call(self, sql, call, "pool")
  check_statement(call, sql, false)
  local lease, message, code, state = lease_of(self, call, how ~= nil and is_reading(sql), false)
  if not lease then return nil, message, code, state end
  local _ <close> = lease
  return of(run(lease, nil, call, how or ONE, sql, ...))
end

local function run_in(tx, call, how, of, sql, ...)
  check_call(tx, sql, call, "transaction")
  check_statement(call, sql, true)
  if tx.failure then return nil, unpack(tx.failure) end
  return of(run(tx.handle, tx, call, how, sql, ...))
end

-- pg is a PostgresPool: connections to a database of PostgreSQL, for all Lua states. Its methods wait.
local methods = {}

-- pg:exec(sql, ...: any) -> result: PostgresResult | nil, message, code
-- Runs a statement. The values after it are those of its parameters `$1`, `$2`.
--
-- result is a PostgresResult: what pg:exec returns.
-- result.changes: integer - number of rows that were inserted, updated, deleted or selected
function methods.exec(self, sql, ...) return run_alone(self, "pg:exec", nil, of_exec, sql, ...) end

-- pg:query(sql, ...: any) -> rows: table[] | nil, message, code
-- Runs a statement, and returns all rows of its result: tables by the names of the columns, without those that are NULL.
function methods.query(self, sql, ...) return run_alone(self, "pg:query", ALL, of_query, sql, ...) end

-- pg:one(sql, ...: any) -> row: table? | nil, message, code
-- Runs a statement, and returns the first row of its result; nil without one.
function methods.one(self, sql, ...) return run_alone(self, "pg:one", ONE, of_one, sql, ...) end

local function close(lease) local _ <close> = lease end

-- guard(lease) -> an object that closes the lease, unless its `lease` is removed before.
local guard_meta = { __close = function(guard) if guard.lease then close(guard.lease) end end }
local function guarded(lease) return setmetatable({ lease = lease }, guard_meta) end

-- pg:rows(sql, ...: any) -> iterator: fun(): table?
-- Iterates over the rows of a result, of which some are in memory at a time. Raises when it fails.
function methods.rows(self, sql, ...)
  check_call(self, sql, "pg:rows", "pool")
  check_statement("pg:rows", sql, false)
  local lease, message = lease_of(self, "pg:rows", is_reading(sql), false)
  if not lease then usage.error("pg:rows: %s", message) end
  local guard <close> = guarded(lease)
  local ok
  ok, message = send(lease, nil, "pg:rows", sql, ...)
  if not ok then usage.error("pg:rows: %s", message) end
  guard.lease = nil
  local rows, at, more = {}, 0, true
  return function()
    at = at + 1
    while rows[at] == nil and more do
      local kind, list = answer(nil, "pg:rows", sql, read(lease, SOME))
      if not kind then usage.error("pg:rows: %s", list) end
      rows, at, more = list or {}, 1, kind == "some"
      if not more then close(lease) end
    end
    return rows[at]
  end, nil, nil, lease
end

-- ---- COPY ------------------------------------------------------------------------------------------------------------

-- Begins a COPY: true | nil, message, code, sqlstate
local function begin_copy(lease, tx, call, sql, direction)
  local ok, message, code = results(call, core.postgres_command(lease, sql))
  if not ok then return nil, message, code end
  local kind, first, second, third, fourth = read(lease, ALL)
  if kind == direction then return true end
  if not kind or kind == "error" then return answer(tx, call, sql, kind, first, second, third, fourth) end
  usage.error('%s: the statement must be "copy ... %s"; got %s', call, direction == "in" and "from stdin" or "to stdout",
    usage.quote(sql))
end

local function copy_in(lease, tx, call, sql, rows)
  local ok, message, code, state = begin_copy(lease, tx, call, sql, "in")
  if not ok then return nil, message, code, state end
  local parts, bytes, number, more = {}, 0, 0, true
  while more do
    number = number + 1
    local row
    if type(rows) == "table" then row = rows[number] else row = rows() end
    local text, wrong = row, nil
    if type(row) == "table" then text, wrong = values.line(row) end
    if row ~= nil and type(text) ~= "string" then
      usage.error("%s: row %d must be a string or a list of values; %s", call, number, wrong or "got " .. usage.quote(row))
    end
    if #(text or "") > ROW_BYTES_MAX then usage.error("%s: row %d has more than 1 GiB", call, number) end
    parts[#parts + 1], bytes = text, bytes + #(text or "")
    if bytes > 0 and (bytes >= PUT_BYTES or row == nil) then
      more, message, code = results(call, core.postgres_put(lease, concat(parts)))
      if more == nil then return answer(tx, call, sql, nil, message, code) end
      parts, bytes = {}, 0
    end
    if row == nil then break end
  end
  if more then
    ok, message, code = results(call, core.postgres_put(lease, nil))
    if ok == nil then return answer(tx, call, sql, nil, message, code) end
  end
  return of_exec(answer(tx, call, sql, read(lease, ALL)))
end

local function check_rows(call, rows, ...)
  if type(rows) ~= "table" and type(rows) ~= "function" then
    usage.error("%s: the rows must be a list or a function that returns the next one; got %s", call, usage.quote(rows))
  end
  usage.no_more(call .. "(sql, rows)", rows, ...)
end

-- pg:copy_in(sql, rows: (string|table)[] | fun(): (string|table)?) -> result: PostgresResult | nil, message, code
-- Sends many rows, with `copy ... from stdin`. A row is a list of values, or a string: a piece of the data as PostgreSQL
-- reads them.
function methods.copy_in(self, sql, rows, ...)
  check_call(self, sql, "pg:copy_in", "pool")
  check_rows("pg:copy_in", rows, ...)
  local lease, message, code, state = lease_of(self, "pg:copy_in", false, false)
  if not lease then return nil, message, code, state end
  local _ <close> = lease
  return copy_in(lease, nil, "pg:copy_in", sql, rows)
end

-- pg:copy_out(sql) -> iterator: fun(): string?
-- Iterates over the data of `copy ... to stdout`, in pieces of whole lines. Raises when it fails.
function methods.copy_out(self, sql, ...)
  check_call(self, sql, "pg:copy_out", "pool")
  usage.no_more("pg:copy_out(sql)", sql, ...)
  local lease, message = lease_of(self, "pg:copy_out", true, false)
  if not lease then usage.error("pg:copy_out: %s", message) end
  local guard <close> = guarded(lease)
  local ok
  ok, message = begin_copy(lease, nil, "pg:copy_out", sql, "out")
  if not ok then usage.error("pg:copy_out: %s", message) end
  guard.lease = nil
  return function()
    local data, failure = results("pg:copy_out", core.postgres_get(lease))
    if data then return data end
    local kind
    if not failure then
      kind, failure = answer(nil, "pg:copy_out", sql, read(lease, ALL))
      close(lease)
    end
    if not kind then usage.error("pg:copy_out: %s", failure) end
    return nil
  end, nil, nil, lease
end

-- ---- transactions ------------------------------------------------------------------------------------------------------

-- ptx is a PostgresTransaction: the statements of a transaction; the argument of the function of pg:transaction.
local tx_methods = {}

-- ptx:exec(sql, ...: any) -> result: PostgresResult | nil, message, code
-- As pg:exec.
function tx_methods.exec(self, sql, ...) return run_in(self, "tx:exec", ONE, of_exec, sql, ...) end

-- ptx:query(sql, ...: any) -> rows: table[] | nil, message, code
-- As pg:query.
function tx_methods.query(self, sql, ...) return run_in(self, "tx:query", ALL, of_query, sql, ...) end

-- ptx:one(sql, ...: any) -> row: table? | nil, message, code
-- As pg:one.
function tx_methods.one(self, sql, ...) return run_in(self, "tx:one", ONE, of_one, sql, ...) end

-- ptx:copy_in(sql, rows: (string|table)[] | fun(): (string|table)?) -> result: PostgresResult | nil, message, code
-- As pg:copy_in.
function tx_methods.copy_in(self, sql, rows, ...)
  check_call(self, sql, "tx:copy_in", "transaction")
  check_rows("tx:copy_in", rows, ...)
  if self.failure then return nil, unpack(self.failure) end
  return copy_in(self.handle, self, "tx:copy_in", sql, rows)
end

local tx_meta = database.strict("a transaction", tx_methods)

-- begin(pg, call) -> lease, tx | nil, message, code, sqlstate
local function begin(self, call)
  local lease, message, code, state = lease_of(self, call, false, true)
  if not lease then return nil, message, code, state end
  local ok
  ok, message, code, state = command(lease, nil, call, "begin")
  if ok then return lease, setmetatable({ handle = lease, failure = false }, tx_meta) end
  close(lease)
  return nil, message, code, state
end

local function commit(lease) return command(lease, nil, "pg:transaction", "commit") end

-- pg:transaction(fn: fun(tx: PostgresTransaction): ...) -> ...: any | nil, message, code
-- Runs a function whose statements, by `tx`, are committed together, and returns its results, or true. Everything is
-- undone after an error, a statement that fails, and when the function returns false, or nil with a reason.
function methods.transaction(self, fn, ...)
  check_call(self, "", "pg:transaction", "pool")
  database.check_function("pg:transaction", fn, ...)
  return database.transaction(fn, commit, begin(self, "pg:transaction"))
end

-- pg:migrate(migrations: string[]) -> true | nil, message, code
-- Brings the database to the version of the list: runs the statements after those that it has run before, in one
-- transaction. The number of them is in the table `luaserve_version`.
function methods.migrate(self, list, ...)
  check_call(self, "", "pg:migrate", "pool")
  database.check_migrations(self, "pg:migrate", list, ...)
  return database.transaction(function(tx)
    -- The lock, whose numbers are ours, is held up to the commit: other states and servers wait.
    local ok, message, code, state = command(tx.handle, tx, "pg:migrate", "select pg_advisory_xact_lock(5001, 5432); "
      .. "create table if not exists luaserve_version (version integer not null)")
    if not ok then return nil, message, code, state end
    local row
    row, message, code, state = tx:one("select version from luaserve_version")
    if message then return nil, message, code, state end
    local version = row and row.version or 0
    database.check_version(self, "pg:migrate", version, #list)
    if version < #list then core.postgres_spend(tx.handle) end -- they may change settings
    for i = version + 1, #list do
      ok, message, code, state = command(tx.handle, tx, "pg:migrate: migration " .. i, list[i])
      if not ok then
        tx.failure[1] = ("migration %d: %s"):format(i, message)
        return nil, message, code, state
      end
    end
    if version == #list then return true end
    tx:exec(row and "update luaserve_version set version = $1" or "insert into luaserve_version values($1)", #list)
    return true
  end, commit, begin(self, "pg:migrate"))
end

-- ---- notifications -----------------------------------------------------------------------------------------------------

-- pg:listen(channel: string [, fn: fun(payload: string, channel: string) [, options: SubscribeOptions]]) -> subscription:
-- Subscription | topic
-- Calls the function for each notification of the channel, one at a time and in order, as ls.subscribe. Without a
-- function it returns the topic that has the notifications as its messages. nil, message, "ELIMIT": too many channels.
function methods.listen(self, channel, fn, given, ...)
  check_call(self, "", "pg:listen", "pool")
  if type(channel) ~= "string" or channel == "" or #channel > 63 or channel:find("%z") then
    usage.error("pg:listen: the channel must be a string of 1 to 63 bytes; got %s", usage.quote(channel))
  elseif fn ~= nil and type(fn) ~= "function" then
    usage.error("pg:listen: the second argument must be a function(payload); got %s", usage.quote(fn))
  end
  usage.no_more("pg:listen(channel, fn, options)", given, ...)
  local topic, message, code = core.postgres_listen(self.handle, channel)
  if not topic then return nil, message, code end
  if not fn then return topic end
  return core.subscribe(topic, function(payload) return fn(payload, channel) end, given)
end

local meta = database.strict("a pool", methods)
local opened = {} -- by URL; the objects of this state

-- ls.postgres(url: string [, options: PostgresOptions]) -> pg: PostgresPool
-- Makes a pool of connections to a database: the same one in all Lua states, which a reload keeps. They are opened when
-- they are needed. Raises for a URL that is wrong.
function postgres.open(url, given, ...)
  if given == nil and opened[url] and select("#", ...) == 0 then return opened[url] end
  if type(url) ~= "string" or not url:find("^postgres%l*://") or url:find("%c") then
    usage.error('ls.postgres: the URL must be a string such as "postgres://user@host/database"; got %s',
      type(url) == "string" and "another one" or usage.quote(url)) -- it may have a password
  elseif given ~= nil and type(given) ~= "table" then
    usage.error("ls.postgres: options must be a table, such as { connections = 4 }; got %s", usage.quote(given))
  end
  usage.no_more("ls.postgres(url, options)", given, ...)
  local out = options.take("ls.postgres", given or {}, postgres.calls["ls.postgres"], {})
  local handle, message = core.postgres(url, usage.where(), out.connections or 16, out.timeout_ms or 30000,
    out.connect_timeout_ms or 5000, given ~= nil)
  if handle == nil then
    usage.error("ls.postgres: %s", message)
  elseif not handle then
    usage.error("ls.postgres: this database has other options at %s", message)
  end
  opened[url] = opened[url] or setmetatable({ handle = handle }, meta)
  return opened[url]
end

return postgres
