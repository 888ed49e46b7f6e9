-- sqlite.lua over a fake core: what a transaction, a migration and a backup do after each result of the core.
local check = require "check"
local core = require "luaserve.core"
local ls = require "luaserve"

local log -- the calls of the core
local replies -- by statement: a list of results; else { changes = 0 }

local closing = { __close = function() log[#log + 1] = "close" end }
local function answer(_, how, sql)
  if not sql:find("luaserve_migration") then log[#log + 1] = sql end
  local reply = replies[sql]
  if reply then return table.unpack(reply, 1, 3) end
  return how == 0 and { changes = 0 } or nil
end

local function open()
  log, replies = {}, {}
  core.sqlite = function() return {} end
  core.sqlite_run = answer
  core.cache_name = function(text) return text end
  core.sqlite_begin = function()
    log[#log + 1] = "begin"
    return setmetatable({}, closing)
  end
  core.sqlite_commit = function()
    log[#log + 1] = "commit"
    return table.unpack(replies.commit or { true }, 1, 3)
  end
  core.sqlite_script = function(_, sql)
    log[#log + 1] = sql
    return table.unpack(replies[sql] or { true }, 1, 3)
  end
  package.loaded["luaserve.sqlite"] = nil
  return require("luaserve.sqlite").open("a.db")
end

local function steps(expected) check.equal(table.concat(log, " "), expected) end

return {
  function_results_are_those_of_the_transaction = function()
    local db = open()
    check.equal({ db:transaction(function(tx) tx:exec("a") return 1, nil, 3 end) }, { 1, nil, 3 })
    steps("begin a commit close")
    check.equal({ open():transaction(function() end) }, { true })
  end,

  a_failure_that_is_caught_ends_the_transaction = function()
    local db = open()
    replies.bad = { nil, "no", "EEXIST" }
    local failure = { message = "no", code = "EEXIST", statement = "bad", target = "a.db", call = "tx:exec", retry = false }
    check.fails(failure, db.transaction, db, function(tx)
      tx:exec("a")
      check.fails(failure, tx.exec, tx, "bad")
      check.fails(failure, tx.one, tx, "more")
      return "fine"
    end)
    steps("begin a bad close")
  end,

  no_row_is_no_failure = function()
    local db = open()
    check.equal({ db:transaction(function(tx) return tx:one("none") == nil end) }, { true })
    steps("begin none commit close")
  end,

  a_reason_and_an_error_undo_the_transaction = function()
    local db = open()
    check.equal({ db:transaction(function() return nil, "why" end) }, { nil, "why" })
    check.equal({ db:transaction(function() return false, "why", 3 end) }, { false, "why", 3 })
    check.raises("oops", db.transaction, db, function() error("oops") end)
    steps("begin close begin close begin close")
  end,

  a_commit_that_fails_raises = function()
    local db = open()
    replies.commit = { nil, "full", "ENOSPC" }
    check.fails({ code = "ENOSPC", call = "db:transaction" }, db.transaction, db, function() return 1 end)
    steps("begin commit close")
  end,

  failures_are_raised_at_the_line_of_the_site = function()
    local db = open()
    replies.wrong, replies.refused = { nil, "syntax", "EINVAL" }, { false, "inside of a transaction" }
    local line = check.line(2)
    local _, e = ls.try(function()
      return (db:query("wrong"))
    end)
    check.equal(tostring(e):match("[^/]*$"), line .. ": db:query: a.db: syntax in: wrong")
    check.equal(e.where:match("[^/]*$"), line)
    check.raises(check.line(1) .. ": tx:query: inside of", db.transaction, db, function(tx)
      local _ = tx:query("refused")
    end)
    replies[("é"):rep(150)] = { nil, "long", "EINVAL" }
    _, e = ls.try(db.one, db, ("é"):rep(150))
    check.equal(tostring(e):match("in: (.*)"), ("é"):rep(99) .. "...")
    check.raises("did you mean 'exec'?", function() return db.exce end)
    check.raises("call it with a colon", function() return db.exec("a") end)
  end,

  migrations_begin_behind_the_version = function()
    local db = open()
    replies["pragma user_version"] = { { user_version = 1 } }
    local line = check.line(1)
    check.equal(db:migrate { "one", "two", "three" }, true)
    steps("pragma user_version begin pragma user_version two three pragma user_version = 3 commit close")
    log = {}
    local hashes = "select hash from luaserve_migration order by number"
    replies[hashes] = { { { hash = "one" } } }
    check.equal(db:migrate { "one" }, true)
    steps("pragma user_version")
    check.raises({ "this database gets a longer list at ", line .. ": use one list" }, db.migrate, db, {})
    check.raises({ "this database gets another list at ", line .. "; " }, db.migrate, db, { "one", "other" })
    replies[hashes] = { { { hash = "once" } } }
    check.raises("migration 1 was edited after it has run", db.migrate, db, { "one" })
    replies[hashes] = nil -- a database of an earlier version
    check.equal(db:migrate { "one" }, true)
    replies["pragma user_version"] = { { user_version = 4 } }
    check.raises("the database has version 4, and the list has 3: it was made by a newer site, or by another call",
      db.migrate, db, { "one", "two", "three" })
  end,

  a_migration_that_fails_is_named = function()
    local db = open()
    replies["pragma user_version"] = { { user_version = 0 } }
    replies.two = { nil, "constraint", "EINVAL" }
    check.fails({ call = "db:migrate: migration 2", message = "constraint", statement = "two" }, db.migrate, db,
      { "one", "two" })
    steps("pragma user_version begin pragma user_version one two close")
  end,

  ls_try_catches_failures_and_nothing_else = function()
    local db = open()
    check.equal({ ls.try(function(...) return ..., nil, 3 end, 1) }, { 1, nil, 3 })
    check.raises("oops", ls.try, function() error("oops") end)
    check.raises("ls.try: the first argument must be a function; got a table", ls.try, db)
  end,

  a_path_is_opened_once_in_a_state = function()
    open()
    local opened = 0
    core.sqlite = function()
      opened = opened + 1
      return {}
    end
    check.equal(ls.sqlite("b.db") == ls.sqlite("b.db"), true)
    check.equal(opened, 1)
    core.sqlite = function() return nil, "c.db: no", "EACCES" end
    check.raises(check.line(1) .. ": ls.sqlite: c.db: no", function()
      ls.sqlite("c.db")
    end)
  end,
}
