-- database_rows.lua: the statements of insert, update and delete, and what raises.
local check = require "check"
local null = require("luaserve.json").null
local rows = require "luaserve.database_rows"

local lite, pool = { handle = {} }, { handle = {}, types = {} }
local names = { "changes", "rows", "row" }
local run = {}
for i, name in ipairs(names) do
  run[i] = function(_, call, sql, ...) return { name, call, sql, ... } end
end

-- What runs with these arguments.
local function made(db, what, ...) return rows.call(db, what, run, "db", ...) end

local function raises(message, what, ...) check.raises("db:" .. what .. ": " .. message, made, lite, what, ...) end

return {
  the_statements_of_sqlite = function()
    check.equal(made(lite, "insert", "t", { b = 1, a = "x" }),
      { "row", "db:insert", "insert into `t` (`a`, `b`) values (?, ?) returning *", "x", 1 })
    check.equal(made(lite, "update", "t", { b = null }, { c = false, a = { 1, 2 } }),
      { "changes", "db:update", "update `t` set `b` = ? where `a` in (?, ?) and `c` = ?", null, 1, 2, false })
    check.equal(made(lite, "update", "t", { b = 1 }, { a = null }, { returning = { "a", "b" } }),
      { "rows", "db:update", "update `t` set `b` = ? where `a` is null returning `a`, `b`", 1 })
    check.equal(made(lite, "delete", "main.t", { a = { 1, null } }),
      { "changes", "db:delete", "delete from `main`.`t` where (`a` in (?) or `a` is null)", 1 })
    check.equal(made(lite, "delete", "t", { a = {} }), { "changes", "db:delete", "delete from `t` where `a` in ()" })
  end,

  the_statements_of_postgresql = function()
    check.equal(made(pool, "insert", "t", { b = { 1 }, a = "x" }, { returning = "id" }),
      { "row", "db:insert", 'insert into "t" ("a", "b") values ($1, $2) returning "id"', "x", { 1 } })
    check.equal(made(pool, "update", "s.t", { b = 1 }, { a = { 7, null, 8 }, c = 2 }), { "changes", "db:update",
      'update "s"."t" set "b" = $1 where ("a" = any($2) or "a" is null) and "c" = $3', 1, { 7, 8 }, 2 })
  end,

  names_are_never_statements = function()
    for _, name in ipairs { "a b", 'a"', "a`", "a;", "", "a.b", "1a", "a\0", "a'", "a)" } do
      raises("the name of a column must be letters", "insert", "t", { [name] = 1 })
      raises("the name of a column must be letters", "update", "t", { [name] = 1 }, { a = 1 })
      raises("the name of a column must be letters", "delete", "t", { [name] = 1 })
      raises("the name of a column in returning must be letters", "delete", "t", { a = 1 }, { returning = name })
      raises("the name of a ", "insert", "t" .. (name == "" and "." or name) .. "x y", { a = 1 })
    end
    raises("the name of a column must be letters, digits and _; got 1", "insert", "t", { "x" })
  end,

  a_condition_is_needed = function()
    raises('the condition is missing or empty, which would be all rows: give one such as { id = 3 }; for all rows write '
      .. 'exec("delete from t")', "delete", "t")
    raises("the condition is missing or empty", "delete", "t", {})
    raises("the condition is missing or empty", "update", "t", { a = 1 })
    raises("the condition must be a table such as { id = 3 }; got 3", "delete", "t", 3)
    raises("a must be a value or a list of values; got a table with the field \"b\"", "delete", "t", { a = { b = 1 } })
    raises("a must be a string, a number, a boolean, ls.json.null or a buffer, or a list of these; got a table", "delete", "t",
      { a = { {} } })
  end,

  wrong_arguments_raise = function()
    raises('the first argument must be the name of a table, such as "todo"; got a table', "insert", {})
    raises('the row is empty: give its columns, such as { title = "x" }; for defaults only', "insert", "t", {})
    raises('the row must be a table such as { title = "x" }; got nil', "insert", "t")
    raises("no column is given: write what changes", "update", "t", {}, { a = 1 })
    raises("a must be a string, a number, a boolean, ls.json.null or a buffer; got a table", "insert", "t", { a = {} })
    raises("a must be a string, a number, a boolean, ls.json.null or a buffer; got a function", "insert", "t", { a = print })
    raises('returning must be "*" or a list of columns; got a table', "insert", "t", { a = 1 }, { returning = {} })
    raises('the options must be a table such as { returning = "*" }; got true', "delete", "t", { a = 1 }, true)
    check.raises("too many arguments for db:delete(name, condition, options)", made, lite, "delete", "t", { a = 1 }, {}, 1)
    check.raises("'db:insert' is a method: call it with a colon", made, "t", "insert", { a = 1 })
  end,
}
