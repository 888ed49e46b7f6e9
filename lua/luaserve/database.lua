-- database.lua - what ls.sqlite and ls.postgres share: checks of their calls, strict objects, the frame of a transaction.

local core = require "luaserve.core"
local failure = require "luaserve.failure"
local usage = require "luaserve.usage"

-- A site may replace the globals.
local error, pack, rawget, require, unpack = error, table.pack, rawget, require, table.unpack
local getmetatable, setmetatable, tostring, type = getmetatable, setmetatable, tostring, type

local database = {}

local migrated = setmetatable({}, { __mode = "k" }) -- by database: the longest list of this state, and its line

-- strict(what, methods) -> the metatable of an object with these methods; `what` is it in a message: "a database".
function database.strict(what, methods)
  return { __index = usage.strict(what, methods), __name = what, __metatable = false }
end

local READ_BYTES_MAX <const>, KNOWN_MAX <const> = 4000, 1000
local known, known_count = {}, 0 -- statements that check_text has seen

-- Raises for what is never meant: a comparison with NULL, which is never true, and an order by a parameter, which is a constant.
local function check_text(sql, name)
  local text = sql:lower():gsub("'[^']*'", "''"):gsub('"[^"]*"', '""')
  if text:find("--", 1, true) or text:find("/*", 1, true) or text:find("%$[%a$]") then return end -- a quote may be in a comment
  local verb, from = text:match("^%s*(%a+)"), nil
  if verb == "select" or verb == "delete" then from = 1 elseif verb == "update" then from = text:match("^[^(]*%f[%w]()where%f[%W]") end
  for operator in (from and text:sub(from) or ""):gmatch("([=<>!:]+)%s*null%f[^%w_]") do
    if operator == "=" or operator == "==" or operator == "!=" or operator == "<>" then
      usage.error('%s: "%s null" is never true: write "is null" or "is not null"; in: %s', name, operator, sql:sub(1, 200))
    end
  end
  for by, rest in text:gmatch("%f[%w](%a+%s+by)%s+[?$:@][%w_]*()") do
    local after = text:match("^%s*([%a,;)]*)", rest)
    if (by:find("^order") or by:find("^group")) and (text:find("^%s*$", rest) or after:find("^[,;)]") or after == "asc" or after == "desc"
      or after == "limit" or after == "nulls" or after == "having") then
      usage.error("%s: a parameter in %s is a constant, not the column with this name: choose the name in Lua, as in \"order by \" .. "
        .. "(columns[req.query.sort] or \"id\") with local columns = { name = \"name\" }; in: %s", name, by:gsub("%s+", " "), sql:sub(1, 200))
    end
  end
  if known_count == KNOWN_MAX then known, known_count = {}, 0 end
  known[sql], known_count = true, known_count + 1
end

-- check_call(self, sql, name, kind): raises unless `name`, such as "db:exec", was called as a method of a `kind`, with a
-- statement.
function database.check_call(self, sql, name, kind)
  if type(self) ~= "table" or self.handle == nil then
    usage.error("'%s' is a method of a %s: call it with a colon, as in %s(sql); got %s for the %s", name, kind, name,
      usage.quote(self), kind)
  elseif type(sql) ~= "string" then
    usage.error("%s: the statement must be a string; got %s", name, usage.quote(sql))
  end
  if not known[sql] and #sql <= READ_BYTES_MAX then check_text(sql, name) end
  if core.dev and not sql:find("luaserve_job", 1, true) then -- those of ls.queue
    require("luaserve.dev_state").watch_sql(self, sql, name, kind, migrated[self] and migrated[self].list)
  end
end

-- sure(self, call, sql, result, message, code, sqlstate, unsent) -> result, of the core. With a message it raises: false is a
-- call that is wrong, nil a failure, which is also that of the transaction `self`.
function database.sure(self, call, sql, result, message, code, sqlstate, unsent)
  if message == nil and core.dev and type(result) == "table" then
    local dev = require "luaserve.dev_state"
    dev.watch_changes(call, sql, result)
    if call:find(":one$") then dev.watch_row(result) end
  end
  if message == nil then return result end
  if result == false then usage.error("%s: %s", tostring(sql):find("luaserve_job", 1, true) and "ls.queue" or call, message) end
  if message == "datatype mismatch" and sql:lower():find("%f[%w_]limit%f[^%w_]") then
    message = message .. ": limit and offset are whole numbers, as of math.tointeger(tonumber(req.query.limit)) or 10; a negative limit gives all rows"
  end
  local e = { target = self.target, statement = sql, message = message, code = code, sqlstate = sqlstate, unsent = unsent }
  if rawget(self, "failure") == false then self.failure = e end
  failure.raise(call, e)
end

-- Of results of exec, which have no rows, also as copies: a field that they do not have raises.
local result_fields = { changes = true, last_id = true }
local function result_meta(title, optional)
  return core.plain { __index = function(_, name)
    if name ~= optional then require("luaserve.names").unknown_member(title, name, result_fields) end
  end }
end
local of_sqlite, of_postgres = result_meta("a result of exec", "last_id"), result_meta "a result of pg:exec"

-- result(t [, postgres]) -> t, what exec returns
function database.result(t, postgres) return setmetatable(t, postgres and of_postgres or of_sqlite) end

-- check_migrations(db, call, list): raises unless it is a list of strings, and the beginning of that of an earlier call for
-- this database, or longer than it.
function database.check_migrations(self, call, list, ...)
  usage.check(list, "table", '%s: the argument must be a list such as { "create table ..." }', call)
  usage.no_more(call .. "{ ... }", list, ...)
  for i = 1, #list do
    usage.check(list[i], "string", "%s: migration %d must be a string with statements", call, i)
  end
  local before, place = migrated[self], usage.where()
  for i = 1, before and before.place ~= place and #before.list or 0 do
    if list[i] and list[i] ~= before.list[i] then
      usage.error("%s: this database gets another list at %s; a database counts its migrations: put all of them into one "
        .. "list, in one call", call, before.place)
    end
  end
  if not before or #list > #before.list then migrated[self] = { list = list, place = place } end
end

-- check_version(db, call, version, count): raises for a database that has seen more migrations than the list has.
function database.check_version(self, call, version, count)
  if version <= count then return end
  local longest = migrated[self]
  if #longest.list > count and longest.place ~= usage.where() then
    usage.error("%s: this database gets a longer list at %s: use one list, in one call", call, longest.place)
  end
  usage.error("%s: the database has version %d, and the list has %d: it was made by a newer site, or by another call of "
    .. "migrate: a database has one list", call, version, count)
end

-- The digest of each migration that has run.
database.make_hashes = "create table if not exists luaserve_migration(number integer primary key, hash text not null)"
database.get_hashes = "select hash from luaserve_migration order by number"

function database.hash_of(sql) return core.cache_name((sql:gsub("%s+", " "))) end

-- check_hashes(call, list, rows): raises for a migration that has run, and is another one now.
function database.check_hashes(call, list, rows)
  for i, row in ipairs(rows) do
    if list[i] and row.hash ~= database.hash_of(list[i]) then
      usage.error("%s: migration %d was edited after it has run, and a migration runs once: restore it, and add what changes as a "
        .. "new one at the end of the list; or remove the database, if it is one to try things", call, i)
    end
  end
end

-- check_function(call, fn, ...): the only argument is the function of a transaction.
function database.check_function(call, fn, ...)
  usage.check(fn, "function", "%s: the argument must be a function(tx)", call)
  usage.no_more(call .. "(fn)", fn, ...)
end

-- rows(...): as rows.call of database_rows.lua, which is loaded when it is first needed.
function database.rows(...) return require("luaserve.database_rows").call(...) end

-- check_open(tx): raises the failure of a statement before, after which a transaction has an end.
function database.check_open(tx)
  if tx.failure then error(tx.failure, 0) end
end

-- Whether the result is a response with an error, of the request or of ls.fetch.
local function is_refusal(result)
  local meta = type(result) == "table" and getmetatable(result)
  return meta and meta.__name == "answer" and not result.ok or type(result) == "userdata" and (core.response_status(result) or 0) >= 400
end

-- transaction(fn, commit, tx) -> the results of fn(tx), or true, when commit(tx) has succeeded; false, nil and a reason, or a response
-- with an error, of fn: it is undone. tx.handle is closed at the end.
function database.transaction(fn, commit, tx)
  local _ <close> = tx.handle
  local begun = core.now()
  local result = pack((core.dev and require("luaserve.dev_state").watch_transaction(fn) or fn)(tx))
  if core.now() - begun > 1 and not rawget(tx, "types") then -- one of PostgreSQL lets others write
    core.log("warn", ("%s: a transaction took %.1f s, in which all others that write have waited: receive from the client, and "
      .. "call other servers, before it begins"):format(usage.where(), core.now() - begun))
  end
  database.check_open(tx)
  if result[1] == false or result[1] == nil and result[2] ~= nil or is_refusal(result[1]) then
    if core.dev then require("luaserve.dev_state").note_failure(tostring(result[2]), result[3], "transaction") end
    return unpack(result, 1, result.n)
  end
  commit(tx)
  if result.n == 0 then return true end
  return unpack(result, 1, result.n)
end

return database
