-- postgres.lua - ls.postgres: checks the arguments, runs statements, transactions, migrations, COPY, notifications.
-- The core has the pool of connections, sends, and reads results (src/script/bind/database/postgres_object_libpq.c).

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
local database = require "luaserve.database"
local values = require "luaserve.postgres_values"
local json = require "luaserve.json"

-- A site may replace the globals.
local rawget, select, setmetatable, type = rawget, select, setmetatable, type
local pack, unpack, concat = table.pack, table.unpack, table.concat
local core_result, core_prepare, core_send, core_type = core.postgres_result, core.postgres_prepare, core.postgres_send,
  core.postgres_type
local check_call, sure = database.check_call, database.sure
local ALL, ONE, SOME = 0, 1, 2
local PUT_BYTES, ROW_BYTES_MAX, CHECKED_MAX = 65536, 1 << 30, 256

local postgres = {}

local postgres_options = {
  connections = { "connections", "count", 1, 1000, 16 }, -- connections at a time, of all Lua states together
  timeout = { "timeout_ms", "seconds", 1, 86400000, 30 }, -- a call waits so long for a connection, and for each answer
  connect_timeout = { "connect_timeout_ms", "seconds", 1, 3600000, 5 }, -- a new connection is given up then
}
postgres.calls = { ["ls.postgres"] = { postgres_options } } -- PostgresOptions

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

local function hint(sql, several)
  if several then return "; a call takes one statement, pg:migrate several" end
  local found = values.placeholder(sql)
  return found and ("; the parameters of PostgreSQL are $1, $2, not %s"):format(found) or ""
end

-- read(self, lease, how) -> kind and values of a result, as core.postgres_result; those after it are read, too, and an error
-- among them takes its place.
local function read(self, lease, how)
  local decoders = self.types.decoders
  local result = pack(core_result(lease, how, decoders))
  local kind = result[1]
  while kind and kind ~= "some" and kind ~= "in" and kind ~= "out" do
    local following = pack(core_result(lease, how, decoders))
    kind = following[1]
    if kind == "error" or kind == "in" or kind == "out" or (not kind and following.n > 0) then result = following end
  end
  return unpack(result, 1, 5)
end

-- answer(self, call, sql, kind, ...) -> kind, ... of the result, unless it is a failure
local function answer(self, call, sql, kind, first, second, position, detail)
  if kind == "error" then
    local message = first .. (detail and " (" .. detail .. ")" or "") .. (position and " at character " .. position or "")
    local is_wrong = second:find("^42") ~= nil
    return sure(self, call, sql, nil, message .. (is_wrong and hint(sql, second == "42601" and not position) or ""),
      values.code(second), second)
  end
  if kind == "in" or kind == "out" then usage.error("%s: use pg:copy_%s(sql); got: %s", call, kind, usage.quote(sql)) end
  if not kind then return sure(self, call, sql, kind, first, second, position ~= "" and position or nil) end
  if core.dev then require("luaserve.dev_state").watch_changes(call, sql, { changes = second }) end
  return kind, first, second
end

local function command(self, lease, call, sql)
  sure(self, call, sql, core.postgres_command(lease, sql))
  return answer(self, call, sql, read(self, lease, ALL))
end

-- column_of(sql, i) -> " (tags)", the column that gets the parameter, if the statement says it plainly, or "".
local function column_of(sql, i)
  local name, names = sql:match('([%w_]+)"?%s*=%s*%$' .. i .. "%f[%D]"), sql:match("%(([^()]*)%)%s*values%s*%(%s*%$1%s*,?%s*[$)]")
  local at = 0
  for one in (name and "" or names or ""):gmatch('([%w_]+)"?%s*%f[,%z]') do
    at = at + 1
    if at == i then name = one end
  end
  return name and " (" .. name .. ")" or ""
end

-- The values after a statement, of which tables become text.
local function encoded(self, lease, call, sql, ...)
  local list
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    if type(value) == "table" then
      list = list or pack(...)
      local oid = core_type(lease, i) or usage.error("%s: another statement was run meanwhile", call)
      local text, wrong = values.encode(value, oid, self.types)
      if not text then usage.error("%s: parameter $%d%s: %s", call, i, column_of(sql, i), wrong) end
      list[i] = text
    end
  end
  if list then return unpack(list, 1, list.n) end
  return ...
end

-- learn(self, lease, call, sql) -> whether another statement was run: the types of the prepared one that the pool does not know
-- are asked for.
local function learn(self, lease, call, sql)
  local types, list, n = self.types, {}, 1
  if types.count == CHECKED_MAX then types.statements, types.count = {}, 0 end
  types.statements[sql], types.count = true, types.count + 1
  for oid in function() n = n + 1 return core_type(lease, n - 1) end do
    if not types.known[oid] then list[#list + 1] = oid end
  end
  if not list[1] then return false end
  local _, rows = command(self, lease, call, values.query:format(concat(list, ",")))
  for i = 1, #rows do values.learn(types, rows[i].oid, rows[i].element, rows[i].mark) end
  return true
end

-- send(self, lease, call, sql, ...) -> whether the statement, which runs now, was prepared by an earlier call
local function send(self, lease, call, sql, ...)
  local count = sure(self, call, sql, core_prepare(lease, sql))
  local kept = count ~= true
  while count == true do
    answer(self, call, sql, read(self, lease, ALL))
    count = sure(self, call, sql, core_prepare(lease, sql))
  end
  if not (kept and self.types.statements[sql]) and learn(self, lease, call, sql) then
    count = sure(self, call, sql, core_prepare(lease, sql))
  end
  local given = select("#", ...)
  if given ~= count then
    usage.error("%s: the statement has %d parameter%s; got %d value%s%s", call, count, count == 1 and "" or "s", given,
      given == 1 and "" or "s", hint(sql))
  end
  sure(self, call, sql, core_send(lease, encoded(self, lease, call, sql, ...)))
  return kept
end

-- is_same(self, lease, sql, count, before) -> whether the parameters would have the types of the kept statement, if it were
-- prepared again now: then it is not the statement that is wrong, but a value. One question to the server. before: what
-- the connection needs first.
local function is_same(self, lease, sql, count, before)
  local types, found = {}, nil
  for i = 1, count do types[i] = core_type(lease, i) end
  if not core.postgres_command(lease, values.same:format(before, sql)) then return false end
  repeat
    local kind, rows = core_result(lease, ALL, self.types.decoders)
    if kind == "rows" then found = rows[1].types end
  until not kind
  core_prepare(lease, sql) -- the current statement again; it is kept, so nothing is sent
  return found == "{" .. concat(types, ",") .. "}"
end

-- run(self, lease, call, how, sql, ...) -> kind, rows, changes
local function run(self, lease, call, how, sql, ...)
  local kept = send(self, lease, call, sql, ...)
  local result, begun = pack(read(self, lease, how)), rawget(self, "begun")
  if kept and result[1] == "error" and values.is_stale(result[3])
    and not (result[3]:find("^22") and not begun
      and is_same(self, lease, sql, select("#", ...), begun == false and "rollback; begin; " or "")) then
    core.postgres_note(lease, result[3] == "26000" and "absent" or "stale")
    if begun and result[3] == "0A000" then
      return sure(self, call, sql, nil, result[2] .. ": a table was altered; run the transaction again", "EBUSY", "0A000")
    elseif not begun then -- nothing was done: prepare it again, and run it
      if begun == false then command(self, lease, call, "rollback; begin") end
      send(self, lease, call, sql, ...)
      result = pack(read(self, lease, how))
      if result[1] ~= "error" then core.postgres_note(lease, "changed") end
    end
  end
  if begun == false then self.begun = true end
  return answer(self, call, sql, unpack(result, 1, result.n))
end

local function of_exec(_, _, changes) return database.result({ changes = changes }, true) end
local function of_query(_, rows) return rows or json.array {} end
local function of_one(_, rows) return rows and rows[1] end

-- lease_of(pg, call, sql, in_transaction) -> a connection, to be closed
local function lease_of(self, call, sql, in_transaction)
  local lease, message, code, state = core.postgres_lease(self.handle, in_transaction)
  if lease then
    if message ~= self.types.epoch then self.types.statements, self.types.count, self.types.epoch = {}, 0, message end
    return lease
  end
  if state == "" then state = nil end
  return sure(self, call, sql, lease, message, state and values.code(state) or code, state, true)
end

local function run_alone(self, call, how, of, sql, ...)
  check_call(self, sql, call, "pool")
  check_statement(call, sql, false)
  local lease <close> = lease_of(self, call, sql, false)
  return of(run(self, lease, call, how or ONE, sql, ...))
end

local function run_in(tx, call, how, of, sql, ...)
  check_call(tx, sql, call, "transaction")
  check_statement(call, sql, true)
  database.check_open(tx)
  return of(run(tx, tx.handle, call, how, sql, ...))
end

-- pg is a PostgresPool: connections to a database of PostgreSQL, for all Lua states. Its methods wait.
local methods = {}

-- pg:exec(sql, ...: any) -> result: PostgresResult
-- Runs a statement. The values after it are those of its parameters `$1`, `$2`. Raises a Failure when it fails, as all
-- methods do.
--
-- result is a PostgresResult: what pg:exec returns.
-- result.changes: integer - number of rows that were inserted, updated, deleted or selected
function methods.exec(self, sql, ...) return run_alone(self, "pg:exec", nil, of_exec, sql, ...) end

-- pg:query(sql, ...: any) -> rows: table[]
-- Runs a statement, and returns all rows of its result: tables by the names of the columns, without those that are NULL.
function methods.query(self, sql, ...) return run_alone(self, "pg:query", ALL, of_query, sql, ...) end

-- pg:one(sql, ...: any) -> row: table?
-- Runs a statement, and returns the first row of its result; nil without one.
function methods.one(self, sql, ...) return run_alone(self, "pg:one", ONE, of_one, sql, ...) end

local function of_changes(_, _, changes) return changes end
-- The runs of database_rows.lua, by what they return: changes, rows, a row.
local function runs_of(run)
  return {
    function(self, call, sql, ...) return run(self, call, nil, of_changes, sql, ...) end,
    function(self, call, sql, ...) return run(self, call, ALL, of_query, sql, ...) end,
    function(self, call, sql, ...) return run(self, call, ONE, of_one, sql, ...) end,
  }
end
local of_pool, of_tx = runs_of(run_alone), runs_of(run_in)

-- pg:insert(name, row: table<string, any> [, options: RowOptions]) -> row: table
-- Inserts a row into a table and returns it, with the values that the database has given. ls.json.null is NULL.
function methods.insert(self, ...) return database.rows(self, "insert", of_pool, "pg", ...) end

-- pg:update(name, columns: table<string, any>, condition: table<string, any> [, options: RowOptions]) -> changes: integer | rows: table[]
-- Sets columns of the rows that have these values, or one of a list of values, and returns their number; with the option
-- returning the rows. Raises without a condition.
function methods.update(self, ...) return database.rows(self, "update", of_pool, "pg", ...) end

-- pg:delete(name, condition: table<string, any> [, options: RowOptions]) -> changes: integer | rows: table[]
-- Deletes the rows that have these values, as pg:update finds them.
function methods.delete(self, ...) return database.rows(self, "delete", of_pool, "pg", ...) end

local function close(lease) local _ <close> = lease end

-- guard(lease) -> an object that closes the lease, unless its `lease` is removed before.
local guard_meta = { __close = function(guard) if guard.lease then close(guard.lease) end end }
local function guarded(lease) return setmetatable({ lease = lease }, guard_meta) end

-- pg:rows(sql, ...: any) -> iterator: fun(): table?
-- Iterates over the rows of a result, of which some are in memory at a time.
function methods.rows(self, sql, ...)
  check_call(self, sql, "pg:rows", "pool")
  check_statement("pg:rows", sql, false)
  local lease = lease_of(self, "pg:rows", sql, false)
  local guard <close> = guarded(lease)
  local at, kind, rows = 0, run(self, lease, "pg:rows", SOME, sql, ...)
  guard.lease = nil
  rows = rows or {}
  local more = kind == "some"
  if not more then close(lease) end
  return function()
    at = at + 1
    while rows[at] == nil and more do
      local list
      kind, list = answer(self, "pg:rows", sql, read(self, lease, SOME))
      rows, at, more = list or {}, 1, kind == "some"
      if not more then close(lease) end
    end
    return rows[at]
  end, nil, nil, lease
end

-- ---- COPY ------------------------------------------------------------------------------------------------------------

local function begin_copy(self, lease, call, sql, direction)
  sure(self, call, sql, core.postgres_command(lease, sql))
  local kind, first, second, third, fourth = read(self, lease, ALL)
  if kind == direction then return end
  if not kind or kind == "error" then return answer(self, call, sql, kind, first, second, third, fourth) end
  usage.error('%s: the statement must be "copy ... %s"; got %s', call, direction == "in" and "from stdin" or "to stdout",
    usage.quote(sql))
end

-- put(...) -> whether more is wanted
local function put(self, lease, call, sql, data)
  local more, message, code = core.postgres_put(lease, data)
  return sure(self, call, sql, more, message, code)
end

local function copy_in(self, lease, call, sql, rows)
  if rawget(self, "begun") == false then self.begun = true end
  begin_copy(self, lease, call, sql, "in")
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
      more = put(self, lease, call, sql, concat(parts))
      parts, bytes = {}, 0
    end
    if row == nil then break end
  end
  if more then put(self, lease, call, sql, nil) end
  return of_exec(answer(self, call, sql, read(self, lease, ALL)))
end

local function check_rows(call, rows, ...)
  usage.refuse(type(rows) ~= "table" and type(rows) ~= "function", rows,
    "%s: the rows must be a list or a function that returns the next one", call)
  usage.no_more(call .. "(sql, rows)", rows, ...)
end

-- pg:copy_in(sql, rows: (string|table)[] | fun(): (string|table)?) -> result: PostgresResult
-- Sends many rows, with `copy ... from stdin`. A row is a list of values, or a string: a piece of the data as PostgreSQL
-- reads them.
function methods.copy_in(self, sql, rows, ...)
  check_call(self, sql, "pg:copy_in", "pool")
  check_rows("pg:copy_in", rows, ...)
  local lease <close> = lease_of(self, "pg:copy_in", sql, false)
  return copy_in(self, lease, "pg:copy_in", sql, rows)
end

-- pg:copy_out(sql) -> iterator: fun(): string?
-- Iterates over the data of `copy ... to stdout`, in pieces of whole lines.
function methods.copy_out(self, sql, ...)
  local call <const> = "pg:copy_out"
  check_call(self, sql, call, "pool")
  usage.no_more("pg:copy_out(sql)", sql, ...)
  local lease = lease_of(self, call, sql, false)
  local guard <close> = guarded(lease)
  begin_copy(self, lease, call, sql, "out")
  guard.lease = nil
  return function()
    local data, message, code = core.postgres_get(lease)
    if data then return data end
    sure(self, call, sql, data, message, code)
    answer(self, call, sql, read(self, lease, ALL))
    close(lease)
  end, nil, nil, lease
end

-- ---- transactions ------------------------------------------------------------------------------------------------------

-- ptx is a PostgresTransaction: the statements of a transaction; the argument of the function of pg:transaction.
local tx_methods = {}

-- ptx:exec(sql, ...: any) -> result: PostgresResult
-- As pg:exec.
function tx_methods.exec(self, sql, ...) return run_in(self, "tx:exec", ONE, of_exec, sql, ...) end

-- ptx:query(sql, ...: any) -> rows: table[]
-- As pg:query.
function tx_methods.query(self, sql, ...) return run_in(self, "tx:query", ALL, of_query, sql, ...) end

-- ptx:one(sql, ...: any) -> row: table?
-- As pg:one.
function tx_methods.one(self, sql, ...) return run_in(self, "tx:one", ONE, of_one, sql, ...) end

-- ptx:insert(name, row: table<string, any> [, options: RowOptions]) -> row: table
-- As pg:insert.
function tx_methods.insert(self, ...) return database.rows(self, "insert", of_tx, "tx", ...) end

-- ptx:update(name, columns: table<string, any>, condition: table<string, any> [, options: RowOptions]) -> changes: integer | rows: table[]
-- As pg:update.
function tx_methods.update(self, ...) return database.rows(self, "update", of_tx, "tx", ...) end

-- ptx:delete(name, condition: table<string, any> [, options: RowOptions]) -> changes: integer | rows: table[]
-- As pg:delete.
function tx_methods.delete(self, ...) return database.rows(self, "delete", of_tx, "tx", ...) end

-- ptx:copy_in(sql, rows: (string|table)[] | fun(): (string|table)?) -> result: PostgresResult
-- As pg:copy_in.
function tx_methods.copy_in(self, sql, rows, ...)
  check_call(self, sql, "tx:copy_in", "transaction")
  check_rows("tx:copy_in", rows, ...)
  database.check_open(self)
  return copy_in(self, self.handle, "tx:copy_in", sql, rows)
end

local tx_meta = database.strict("a transaction", tx_methods)

-- begin(pg, call) -> tx, whose handle must be closed
local function begin(self, call)
  local lease = lease_of(self, call, nil, true)
  local guard <close> = guarded(lease)
  command(self, lease, call, "begin")
  guard.lease = nil
  return setmetatable({ handle = lease, target = self.target, types = self.types, failure = false, begun = false }, tx_meta)
end

local function commit(tx) return command(tx, tx.handle, "pg:transaction", "commit") end

-- pg:transaction(fn: fun(tx: PostgresTransaction): ...) -> ...: any
-- Runs a function whose statements, by `tx`, are committed together, and returns its results, or true. Everything is
-- undone after an error, a statement that fails, and when the function returns false, or nil with a reason.
function methods.transaction(self, fn, ...)
  check_call(self, "", "pg:transaction", "pool")
  database.check_function("pg:transaction", fn, ...)
  return database.transaction(fn, commit, begin(self, "pg:transaction"))
end

-- pg:migrate(migrations: string[]) -> true
-- Brings the database to the version of the list: runs the statements after those that it has run before, in one
-- transaction. The number of them is in the table `luaserve_version`.
function methods.migrate(self, list, ...)
  local call <const> = "pg:migrate"
  check_call(self, "", call, "pool")
  database.check_migrations(self, call, list, ...)
  return database.transaction(function(tx)
    -- The lock, whose numbers are ours, is held up to the commit: other states and servers wait.
    command(tx, tx.handle, call, "select pg_advisory_xact_lock(5001, 5432); "
      .. "create table if not exists luaserve_version (version integer not null); " .. database.make_hashes)
    local row = tx:one("select version from luaserve_version")
    local version = row and row.version or 0
    database.check_version(self, call, version, #list)
    local hashes = tx:query(database.get_hashes)
    database.check_hashes(call, list, hashes)
    for i = #hashes + 1, #list do
      tx:exec("insert into luaserve_migration values($1, $2)", i, database.hash_of(list[i]))
    end
    if version == #list then return true end
    core.postgres_note(tx.handle, "spent") -- they may change settings
    for i = version + 1, #list do command(tx, tx.handle, call .. ": migration " .. i, list[i]) end
    tx:exec(row and "update luaserve_version set version = $1" or "insert into luaserve_version values($1)", #list)
  end, function(tx) commit(tx) core.postgres_note(tx.handle, "changed") end, begin(self, call))
end

-- ---- notifications -----------------------------------------------------------------------------------------------------

-- pg:listen(channel: string [, fn: fun(payload: string, channel: string) [, options: SubscribeOptions]]) -> subscription:
-- Subscription | topic
-- Calls the function for each notification of the channel, one at a time and in order, as ls.subscribe. Without a
-- function it returns the topic that has the notifications as its messages. Raises for too many channels: "ELIMIT".
function methods.listen(self, channel, fn, given, ...)
  check_call(self, "", "pg:listen", "pool")
  if type(channel) ~= "string" or channel == "" or #channel > 63 or channel:find("%z") then
    usage.error("pg:listen: the channel must be a string of 1 to 63 bytes; got %s", usage.quote(channel))
  elseif fn ~= nil and type(fn) ~= "function" then
    usage.error("pg:listen: the second argument must be a function(payload); got %s", usage.quote(fn))
  end
  usage.no_more("pg:listen(channel, fn, options)", given, ...)
  local topic = sure(self, "pg:listen", nil, core.postgres_listen(self.handle, channel))
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
  opened[url] = opened[url] or setmetatable({ handle = handle, target = message, types = values.types() }, meta)
  return opened[url]
end

-- pool_of(call, value) -> the pool of the option postgres: a URL or what ls.postgres returns. Raises.
function postgres.pool_of(call, value)
  local pool = type(value) == "string" and postgres.open(value) or value
  usage.refuse(type(pool) ~= "table" or rawget(pool, "types") == nil, pool, "%s: postgres must be a URL or what ls.postgres returns", call)
  return pool
end

return postgres
