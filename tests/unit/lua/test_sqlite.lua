-- sqlite.lua over a fake core: what a transaction, a migration and a backup do after each result of the core.
local check = require "check"
local core = require "luaserve.core"
local ls = require "luaserve"

local log -- the calls of the core
local replies -- by statement: a list of results; else { changes = 0 }

local closing = { __close = function() log[#log + 1] = "close" end }
local function answer(_, how, sql)
  log[#log + 1] = sql
  local reply = replies[sql]
  if reply then return table.unpack(reply, 1, 3) end
  return how == 0 and { changes = 0 } or nil
end

local function open()
  log, replies = {}, {}
  core.sqlite = function() return {} end
  core.sqlite_run = answer
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

  a_failure_ends_the_transaction_and_is_its_result = function()
    local db = open()
    replies.bad = { nil, "no", "EEXIST" }
    check.equal({ db:transaction(function(tx)
      tx:exec("a")
      check.equal({ tx:exec("bad") }, { nil, "no", "EEXIST" })
      check.equal({ tx:one("more") }, { nil, "no", "EEXIST" })
      return "fine"
    end) }, { nil, "no", "EEXIST" })
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

  a_commit_that_fails_is_the_result = function()
    local db = open()
    replies.commit = { nil, "full", "ENOSPC" }
    check.equal({ db:transaction(function() return 1 end) }, { nil, "full", "ENOSPC" })
    steps("begin commit close")
  end,

  wrong_statements_raise_at_the_line_of_the_site = function()
    local db = open()
    replies.wrong = { false, "syntax" }
    check.raises(check.line(1) .. ": db:query: syntax", function()
      local _ = db:query("wrong")
    end)
    check.raises(check.line(1) .. ": tx:query: syntax", db.transaction, db, function(tx)
      local _ = tx:query("wrong")
    end)
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
    check.equal(db:migrate { "one" }, true)
    steps("pragma user_version")
    check.raises({ "this database gets a longer list at ", line .. ": use one list" }, db.migrate, db, {})
    check.raises({ "this database gets another list at ", line .. "; " }, db.migrate, db, { "one", "other" })
    check.equal(db:migrate { "one" }, true)
    replies["pragma user_version"] = { { user_version = 4 } }
    check.raises("the database has version 4, and the list has 3: it was made by a newer site, or by another call",
      db.migrate, db, { "one", "two", "three" })
  end,

  a_migration_that_fails_is_named = function()
    local db = open()
    replies["pragma user_version"] = { { user_version = 0 } }
    replies.two = { nil, "constraint", "EINVAL" }
    check.equal({ db:migrate { "one", "two" } }, { nil, "migration 2: constraint", "EINVAL" })
    replies.two = { false, "syntax" }
    check.raises("db:migrate: migration 2: syntax", db.migrate, db, { "one", "two" })
    steps("pragma user_version begin pragma user_version one two close "
      .. "pragma user_version begin pragma user_version one two close")
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
