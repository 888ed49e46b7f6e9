-- database_rows.lua - db:insert, db:update and db:delete of ls.sqlite and ls.postgres: statements from tables.
--
-- A name of a table or column that is no name raises; all are quoted, so that an unknown one is an error of the database, which
-- names it. Values are parameters. The columns are sorted: the same ones make the same statement, which is prepared once.

local core = require "luaserve.core"
local json = require "luaserve.json"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

local concat, ipairs, next, rawget, select, sort, tonumber, type, unpack =
  table.concat, ipairs, next, rawget, select, table.sort, tonumber, type, table.unpack

local rows = {}

local rows_options = {
  returning = true, -- string|string[] - columns of the rows that are returned, `"*"` for all
}
rows.calls = { ["db:insert"] = { rows_options } } -- RowOptions

-- Of a database: the quotes of a name; PostgreSQL has parameters with numbers, and arrays. In SQLite "x" is a text if there is no
-- column x, and `x` never.
local sqlite <const>, postgres <const> = { quote = "`%s`" }, { quote = '"%s"', arrays = true }

-- A statement: { call =, of = sqlite or postgres, n = number of values, and the values }.
local function name_of(made, what, name)
  if type(name) ~= "string" or not name:find("^[%a_\x80-\xff][%w_$\x80-\xff]*$") then
    usage.error("%s: the name of a %s must be letters, digits and _; got %s", made.call, what, usage.quote(name))
  end
  return made.of.quote:format(name)
end

local function table_of(made, name)
  usage.check(name, "string", '%s: the first argument must be the name of a table, such as "todo"', made.call)
  local schema, rest = name:match("^([^.]*)%.(.*)$")
  return (schema and name_of(made, "schema", schema) .. "." or "") .. name_of(made, "table", rest or name)
end

local function columns_of(made, what, given, example)
  usage.check(given, "table", "%s: the %s must be a table such as %s", made.call, what, example)
  local names = {}
  for name in next, given do
    name_of(made, "column", name)
    names[#names + 1] = name
  end
  sort(names)
  return names
end

local fine <const> = { string = true, number = true, boolean = true }

-- The texts of a form, and what they are in a column that is declared boolean; in SQL a text is neither true nor false.
local truths <const> = { [""] = false, ["false"] = false, f = false, no = false, n = false, off = false, ["0"] = false, [0] = false,
  ["true"] = true, t = true, yes = true, y = true, on = true, ["1"] = true, [1] = true }

-- declared(made, name, value, stored) -> the value for a column that may be declared boolean, or as a number, in which SQLite would
-- store another text.
local function declared(made, name, value, stored)
  if not made.booleans or type(value) == "boolean" or value == json.null then return value end
  if type(made.booleans) == "function" then made.booleans = made.booleans() end
  local kind = made.booleans[name:lower()]
  usage.refuse(kind == 2 and stored and type(value) == "string" and (not tonumber(value) or value:find("[xX]")), value,
    "%s: the column %s is declared as a number, and SQLite would store this text; for what depends on the old value write a statement", made.call, name)
  if kind ~= 1 then return value end
  local truth = truths[type(value) == "string" and value:lower() or value]
  usage.refuse(truth == nil, value, "%s: the column %s is declared boolean: give true or false", made.call, name)
  return truth
end

-- The text of a parameter for this value of a column.
local function parameter(made, name, value, list)
  value = declared(made, name, value, not list)
  if not (fine[type(value)] or value == json.null or core.is_buffer(value) or made.of.arrays and type(value) == "table") then
    usage.error("%s: %s must be a string, a number, a boolean, ls.json.null or a buffer%s; got %s", made.call, name,
      (list and ", or a list of these") or (made.of.arrays and ", or a table" or ""), usage.quote(value))
  end
  made.n = made.n + 1
  made[made.n] = value
  return made.of.arrays and "$" .. made.n or "?"
end

-- " where ..." of a table of conditions; `instead` says how to change all rows.
local function where_of(made, given, instead)
  local names = columns_of(made, "condition", given == nil and {} or given, "{ id = 3 }")
  if not names[1] then
    usage.error("%s: the condition is missing or empty, which would be all rows: give one such as { id = 3 }; for all rows write %s",
      made.call, instead)
  end
  local parts = {}
  for i, name in ipairs(names) do
    local value, column = given[name], name_of(made, "column", name)
    local or_null = ""
    if type(value) == "table" and not core.is_buffer(value) and value ~= json.null then -- a list
      local list, marks = {}, {}
      for key, one in next, value do
        if math.type(key) ~= "integer" then
          usage.error("%s: %s must be a value or a list of values; got a table with the field %s", made.call, name, usage.quote(key))
        elseif one == json.null then
          or_null = " or " .. column .. " is null"
        else
          list[#list + 1] = one
          if not made.of.arrays then marks[#marks + 1] = parameter(made, name, one, true) end
        end
      end
      local set = made.of.arrays and " = any(" .. parameter(made, name, list) .. ")" or " in (" .. concat(marks, ", ") .. ")"
      parts[i] = (or_null ~= "" and "(%s%s%s)" or "%s%s%s"):format(column, set, or_null)
    else
      parts[i] = column .. (value == json.null and " is null" or " = " .. parameter(made, name, value, true))
    end
  end
  return " where " .. concat(parts, " and ")
end

local function returning_of(made, given, default)
  usage.check(given, "table?", '%s: the options must be a table such as { returning = "*" }', made.call)
  options.check_names(made.call, given or {}, rows_options)
  local wanted = given and given.returning or default
  if wanted == nil then return "" end
  local names = {}
  for i, name in ipairs(type(wanted) == "table" and wanted or { wanted }) do
    names[i] = name == "*" and name or name_of(made, "column in returning", name)
  end
  if not names[1] then usage.error('%s: returning must be "*" or a list of columns; got %s', made.call, usage.quote(wanted)) end
  return " returning " .. concat(names, ", ")
end

-- A function of all three: (db, name, values, condition, options) -> statement, whether it returns rows
local make = {}

function make.insert(made, name, values, given)
  local at, names = table_of(made, name), columns_of(made, "row", values, '{ title = "x" }')
  if not names[1] then
    usage.error("%s: the row is empty: give its columns, such as { title = \"x\" }; for defaults only write insert into %s default values",
      made.call, name)
  end
  local columns, marks = {}, {}
  for i, column in ipairs(names) do
    columns[i], marks[i] = name_of(made, "column", column), parameter(made, column, values[column])
  end
  return ("insert into %s (%s) values (%s)%s"):format(at, concat(columns, ", "), concat(marks, ", "),
    returning_of(made, given, "*")), true
end

function make.update(made, name, values, condition, given)
  local at, names = table_of(made, name), columns_of(made, "second argument", values, "{ done = true }")
  if not names[1] then usage.error("%s: no column is given: write what changes, such as { done = true }", made.call) end
  local sets = {}
  for i, column in ipairs(names) do
    sets[i] = name_of(made, "column", column) .. " = " .. parameter(made, column, values[column])
  end
  local instead = ('exec("update %s set ...")'):format(name)
  local returning = returning_of(made, given)
  return ("update %s set %s%s%s"):format(at, concat(sets, ", "), where_of(made, condition, instead), returning), returning ~= ""
end

function make.delete(made, name, condition, given)
  local at, returning = table_of(made, name), returning_of(made, given)
  return ("delete from %s%s%s"):format(at, where_of(made, condition, ('exec("delete from %s")'):format(name)), returning),
    returning ~= ""
end

-- What the calls are named in a message about too many arguments.
local forms <const> = { insert = "(name, row, options)", update = "(name, columns, condition, options)",
  delete = "(name, condition, options)" }
local counts <const> = { insert = 3, update = 4, delete = 3 }

-- call(self, what, run, kind, ...) -> the results of what = "insert", "update" or "delete" with these arguments.
-- run[1](self, call, sql, ...) -> changes, run[2] -> rows, run[3] -> row. run.booleans(self, name) -> the columns of
-- this table that are declared boolean (1) or as a number (2), where the database stores texts in them. kind: "db", "pg" or "tx".
function rows.call(self, what, run, kind, ...)
  local call = kind .. ":" .. what
  if type(self) ~= "table" or rawget(self, "handle") == nil then
    usage.error("'%s' is a method: call it with a colon, as in %s%s; got %s", call, call, forms[what], usage.quote(self))
  end
  local made, most = { call = call, n = 0, of = rawget(self, "types") and postgres or sqlite }, counts[what]
  local name = ...
  made.booleans = run.booleans and function() return run.booleans(self, name) end
  if select("#", ...) > most then usage.no_more(call .. forms[what], select(most, ...)) end
  local sql, returns = make[what](made, ...)
  local result = run[what == "insert" and 3 or returns and 2 or 1](self, call, sql, unpack(made, 1, made.n))
  if core.dev and type(result) == "number" then require("luaserve.dev_state").watch_reply(call, result) end
  return result
end

return rows
