-- sqlite.lua - ls.sqlite: checks the arguments, and what needs no C: transactions, migrations, rows one by one, backups.
-- The core runs the statements (src/script/bind/database/database_object.c): it returns a result, nil, message, code for a
-- failure, or false and a message for a call that is wrong.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
local database = require "luaserve.database"

local string_unpack, setmetatable, type = string.unpack, setmetatable, type -- a site may replace the globals
local strict, check_call, sure = database.strict, database.check_call, database.sure
local core_run, core_rows, core_more = core.sqlite_run, core.sqlite_rows, core.sqlite_more
local EXEC, QUERY, ONE = 0, 1, 2

local sqlite = {}

local sqlite_options = {
  readers = { "readers", "count", 1, 16, 2 }, -- statements that read at a time
  sync = { "sync", "flag", nil, nil, true }, -- a write waits until the device has it
}
sqlite.calls = { ["ls.sqlite"] = { sqlite_options } } -- SqliteOptions

-- db is a Database: an SQLite database that all Lua states share. Its methods wait.
local methods = {}

-- db:exec(sql, ...: any) -> result: SqliteResult
-- Runs a statement. The values after it are those of its parameters. Raises a Failure when it fails, as all methods do.
--
-- result is a SqliteResult: what db:exec returns.
-- result.changes: integer - number of rows that were inserted, updated or deleted
-- result.last_id: integer|nil - rowid of the last row that the statement has inserted; nil: it has inserted none
function methods.exec(self, sql, ...)
  check_call(self, sql, "db:exec", "database")
  return database.result(sure(self, "db:exec", sql, core_run(self.handle, EXEC, sql, ...)))
end

-- db:query(sql, ...: any) -> rows: table[]
-- Runs a statement, and returns all rows of its result: tables by the names of the columns, without those that are NULL.
function methods.query(self, sql, ...)
  check_call(self, sql, "db:query", "database")
  return sure(self, "db:query", sql, core_run(self.handle, QUERY, sql, ...))
end

-- db:one(sql, ...: any) -> row: table?
-- Runs a statement, and returns the first row of its result; nil without one.
function methods.one(self, sql, ...)
  check_call(self, sql, "db:one", "database")
  return sure(self, "db:one", sql, core_run(self.handle, ONE, sql, ...))
end

-- db:rows(sql, ...: any) -> iterator: fun(): table?
-- Iterates over the rows of a result, of which some are in memory at a time.
function methods.rows(self, sql, ...)
  check_call(self, sql, "db:rows", "database")
  local rows, more, call = core_rows(self.handle, sql, ...)
  if not rows then sure(self, "db:rows", sql, rows, more, call) end
  local at = 0
  return function()
    at = at + 1
    local row = rows[at]
    if row == nil and more then
      local code
      rows, more, code = core_more(call)
      if not rows then sure(self, "db:rows", sql, rows, more, code) end
      at, row = 1, rows[1]
    end
    return row
  end, nil, nil, call
end

local booleans = {} -- by path and name of a table

-- The columns of a table that are declared boolean (1) or as a number (2), by their names.
local function booleans_of(self, name)
  local key = self.target .. "\0" .. name
  if booleans[key] then return booleans[key] end
  local schema, rest = name:match("^([^.]*)%.(.*)$")
  local sql = "select lower(name) as name, case when lower(type) in ('boolean', 'bool') then 1 "
    .. "when lower(type) in ('integer', 'int', 'bigint', 'smallint', 'real', 'double', 'float') then 2 end as flag from pragma_table_info(?"
  local found, set = core_run(self.handle, QUERY, sql .. (schema and ", ?)" or ")"), table.unpack({ rest or name, schema })) or {}, {}
  for _, column in ipairs(found) do set[column.name] = column.flag end
  if found[1] then booleans[key] = set end
  return set
end

-- The runs of database_rows.lua, by what they return: changes, rows, a row.
local function runs_of(kind)
  local function runs(how, field)
    return function(self, call, sql, ...)
      check_call(self, sql, call, kind)
      if kind == "transaction" then database.check_open(self) end
      local result = sure(self, call, sql, core_run(self.handle, how, sql, ...))
      if field then return result[field] end
      return result
    end
  end
  return { runs(EXEC, "changes"), runs(QUERY), runs(ONE), booleans = booleans_of }
end
local of_db, of_tx = runs_of "database", runs_of "transaction"

-- db:insert(name, row: table<string, any> [, options: RowOptions]) -> row: table
-- Inserts a row into a table and returns it, with the values that the database has given. ls.json.null is NULL.
function methods.insert(self, ...) return database.rows(self, "insert", of_db, "db", ...) end

-- db:update(name, columns: table<string, any>, condition: table<string, any> [, options: RowOptions]) -> changes: integer | rows: table[]
-- Sets columns of the rows that have these values, or one of a list of values, and returns their number; with the option
-- returning the rows. Raises without a condition.
function methods.update(self, ...) return database.rows(self, "update", of_db, "db", ...) end

-- db:delete(name, condition: table<string, any> [, options: RowOptions]) -> changes: integer | rows: table[]
-- Deletes the rows that have these values, as db:update finds them.
function methods.delete(self, ...) return database.rows(self, "delete", of_db, "db", ...) end

-- tx is a Transaction: the statements of a transaction; the argument of the function of db:transaction.
local tx_methods = {}

local function run_in(tx, call, how, sql, ...)
  check_call(tx, sql, call, "transaction")
  database.check_open(tx)
  return sure(tx, call, sql, core_run(tx.handle, how, sql, ...))
end

-- tx:exec(sql, ...: any) -> result: SqliteResult
-- As db:exec.
function tx_methods.exec(self, sql, ...) return database.result(run_in(self, "tx:exec", EXEC, sql, ...)) end

-- tx:query(sql, ...: any) -> rows: table[]
-- As db:query.
function tx_methods.query(self, sql, ...) return run_in(self, "tx:query", QUERY, sql, ...) end

-- tx:one(sql, ...: any) -> row: table?
-- As db:one.
function tx_methods.one(self, sql, ...) return run_in(self, "tx:one", ONE, sql, ...) end

-- tx:insert(name, row: table<string, any> [, options: RowOptions]) -> row: table
-- As db:insert.
function tx_methods.insert(self, ...) return database.rows(self, "insert", of_tx, "tx", ...) end

-- tx:update(name, columns: table<string, any>, condition: table<string, any> [, options: RowOptions]) -> changes: integer | rows: table[]
-- As db:update.
function tx_methods.update(self, ...) return database.rows(self, "update", of_tx, "tx", ...) end

-- tx:delete(name, condition: table<string, any> [, options: RowOptions]) -> changes: integer | rows: table[]
-- As db:delete.
function tx_methods.delete(self, ...) return database.rows(self, "delete", of_tx, "tx", ...) end

local tx_meta = strict("a transaction", tx_methods)

-- begin(db, call) -> tx, whose handle must be closed
local function begin(self, call)
  local handle = sure(self, call, nil, core.sqlite_begin(self.handle))
  return setmetatable({ handle = handle, target = self.target, failure = false }, tx_meta)
end

local function commit(tx) return sure(tx, "db:transaction", nil, core.sqlite_commit(tx.handle)) end

-- db:transaction(fn: fun(tx: Transaction): ...) -> ...: any
-- Runs a function whose statements, by `tx`, are committed together, and returns its results, or true. Everything is
-- undone after an error, a statement that fails, and when the function returns false, or nil with a reason.
function methods.transaction(self, fn, ...)
  check_call(self, "", "db:transaction", "database")
  database.check_function("db:transaction", fn, ...)
  return database.transaction(fn, commit, begin(self, "db:transaction"))
end

-- db:migrate(migrations: string[]) -> true
-- Brings the database to the version of the list: runs the statements after those that it has run before, in one
-- transaction. The number of them is in `pragma user_version`.
function methods.migrate(self, list, ...)
  booleans = {}
  local call <const>, version <const> = "db:migrate", "pragma user_version"
  check_call(self, "", call, "database")
  database.check_migrations(self, call, list, ...)
  local hashes = core_run(self.handle, QUERY, database.get_hashes) or {} -- nil: there is no such table yet
  database.check_hashes(call, list, hashes)
  local before = sure(self, call, version, core_run(self.handle, ONE, version)).user_version
  if before == #list and #hashes == #list then return true end
  return database.transaction(function(tx)
    local from = run_in(tx, call, ONE, version).user_version -- another state may have been first
    database.check_version(self, call, from, #list)
    for i = from + 1, #list do
      sure(tx, call .. ": migration " .. i, list[i], core.sqlite_script(tx.handle, list[i]))
    end
    if from < #list then run_in(tx, call, EXEC, version .. " = " .. #list) end
    run_in(tx, call, EXEC, database.make_hashes)
    for i, sql in ipairs(list) do
      run_in(tx, call, EXEC, "insert or ignore into luaserve_migration values(?, ?)", i, database.hash_of(sql))
    end
  end, commit, begin(self, call))
end

-- db:backup(path) -> true
-- Writes a copy of the database to a file, which it replaces in one step. The database can be used meanwhile.
function methods.backup(self, path, ...)
  check_call(self, "", "db:backup", "database")
  usage.refuse(type(path) ~= "string" or path == "" or path:find("\0", 1, true), path,
    'db:backup: path must be a string, such as "backup/site.db"')
  usage.no_more("db:backup(path)", path, ...)
  local beside = ("%s.luaserve-%016x"):format(path, string_unpack("i8", core.crypto_random(8)))
  local written <close> = core.file_temporary(beside)
  sure({ target = path }, "db:backup", nil, core.sqlite_backup(self.handle, beside))
  sure({ target = path }, "db:backup", nil, core.file_rename(beside, path, true))
  core.file_keep(written)
  return true
end

local meta = strict("a database", methods)
local opened = {} -- by path; the objects of this state

-- ls.sqlite(path [, options: SqliteOptions]) -> db: Database
-- Opens an SQLite database, or makes it: the same one in all Lua states, which a reload does not close. `":memory:"` is one
-- without a file. Raises when it cannot be opened.
function sqlite.open(path, given, ...)
  if given == nil and opened[path] and select("#", ...) == 0 then return opened[path] end
  if type(path) ~= "string" or path == "" or path:find("%c") then
    usage.error('ls.sqlite: path must be a string, such as "site.db" or ":memory:"; got %s', usage.quote(path))
  elseif given ~= nil and type(given) ~= "table" then
    usage.error("ls.sqlite: options must be a table, such as { readers = 4 }; got %s", usage.quote(given))
  end
  usage.no_more("ls.sqlite(path, options)", given, ...)
  local out = options.take("ls.sqlite", given or {}, sqlite.calls["ls.sqlite"], {})
  local handle, message = core.sqlite(path, usage.where(), out.readers or 2, out.sync ~= false, given ~= nil)
  if handle == nil then
    usage.error("ls.sqlite: %s", message)
  elseif not handle then
    usage.error("ls.sqlite: %s has other options at %s, which stay until a restart", usage.quote(path), message)
  end
  if path ~= ":memory:" then require("luaserve.private").store(path, "the database " .. path) end
  opened[path] = opened[path] or setmetatable({ handle = handle, target = path }, meta)
  return opened[path]
end

return sqlite
