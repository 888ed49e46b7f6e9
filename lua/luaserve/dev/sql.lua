-- sql.lua - dev mode warns of a task that selects from a table of a database and then writes to it in another statement, although
-- another task may write to it in between.

local site = require "luaserve.dev.site"
local tasks = require "luaserve.dev.tasks"
local top = require "luaserve.dev.top"
local usage = require "luaserve.usage"

local decides, here, since, site_info, statement_of = site.decides, site.here, site.since, site.site_info, site.statement_of

local sql = {}

local tables_of = { "%f[%w_]from%s+([%w_.]+)", "%f[%w_]join%s+([%w_.]+)" }
local in_one_step = { db = "db:transaction", pg = 'pg:transaction with "select ... for update"',
  tx = '"select ... for update"', sqlite = "tx for the select as well" }
local then_it = { update = "updates", delete = "deletes from", insert = "inserts into", replace = "replaces a row of" }

-- overwrites(assignments, where, read, counts) -> whether an update sets a column to a value that does not depend on the old one,
-- nor does its condition. In order: a constant for a column that the select has not read, and a column that it has read with all
-- others, and no line since names. `counts`: also n = n + 1, after a look at a limit, as also when the select or a line since compares
-- the column with a number.
local function overwrites(assignments, where, read, counts)
  local select, lines, between = read.sql, since(read)
  between = lines[1] and between:lower()
  for column, value in (assignments:gsub("excluded%.[%w_]+", "?") .. ","):gmatch("([%w_]+)%s*=%s*(.-),") do
    local name = "%f[%w_]" .. column .. "%f[^%w_]"
    local marks = value:find("^[^?$:@(]*$") and not select:find(name) and not select:find("*", 1, true)
    if between and value:find("[?$:@]") and select:find("*", 1, true) then marks = marks or not between:find("[.\"]" .. column .. "%f[^%w_]") end
    if not marks and not where:find(name) and (counts or not value:find(name) or decides(read, column) or select:find(name .. "%s*[<>]"))
      and not value:find("^[%w_]+%(%s*[)']") and not value:find("^current_") then return true end
  end
  return false
end

-- passes_on(read) -> whether the line of the site that calls now names the variable with what was read, or a field of it that the
-- select has not compared.
local function passes_on(read)
  local lines = site.stripped(read)
  local name, where = (lines[1] or ""):match("local%s+([%w_]+)%s*="), read.sql:match("%f[%w_]where%f[^%w_](.*)") or ""
  for after in (name and #lines > 1 and lines[#lines] or ""):gmatch("%f[%w_]" .. (name or "") .. "%f[^%w_]%.?([%w_]*)") do
    if after == "" or not where:find("%f[%w_]" .. after:lower() .. "%f[^%w_]") then return true end
  end
  return false
end

-- has_key(sqls, name, select) -> whether these statements make a key that refuses a second row in the table of this name, of a column
-- that the select compares or computes with.
local function has_key(sqls, name, select)
  local text = " " .. table.concat(sqls, "; "):lower():gsub('["`%[%]]', "")
  local keys = {}
  for part in (text:match("%screate%s+table[^(;]-%f[%w_]" .. name .. "%s*(%b())") or ""):sub(2, -2):gsub("%b()", function(list)
    return list:gsub(",", " ")
  end):gmatch("[^,]+") do
    if part:find("%f[%w_]unique%f[^%w_]") or part:find("primary%s+key") and not part:find("integer%s+primary") then
      keys[#keys + 1] = part:match("%((.-)%)") or part:match("[%w_]+")
    end
  end
  for list in text:gmatch("%screate%s+unique%s+index[^;]-%son%s+" .. name .. "%s*(%b())") do keys[#keys + 1] = list end
  for _, key in ipairs(keys) do
    for column in key:gmatch("[%w_]+") do
      if select:find("%f[%w_]" .. column .. "%f[^%w_]") then return true end
    end
  end
  return false
end

-- looks_for(read) -> whether the line with db:one, or a later one, asks whether there is a row, and returns.
local function looks_for(read)
  if read.line:find("%f[%w_]if%s+[%w_]+:one%(") then return true end
  local name, _, text = read.line:match("local%s+([%w_]+)%s*=%s*[%w_]+:one%("), since(read)
  return name and text:find("%f[%w_]if%s+" .. name .. "%s+then.-%f[%w_]return%f[^%w_]") ~= nil
end

-- numbers_from(read) -> whether a line since then compares the number that was read with another one, or adds to it.
local function numbers_from(read)
  local _, text = since(read)
  text = text:gsub('%b""', function(sql) return sql:find("%+%s*1") and "+" or '""' end)
  return text:find("[=~]=%s*%d") or text:find("%+") or text:find("<%f[^<]=?%s*%d") or text:find(">=?%s*%d")
end

local writes = site.set_of "insert update delete replace drop alter truncate create"
local repeatable = { "^insert%s+or%s+ignore", "on%s+conflict.-do%s+nothing", "if%s+not%s+exists", "where%s+not%s+exists",
  "luaserve_version", "luaserve_migration" }

-- A statement while the site loads. One that changes nothing when it runs again is in order.
local function note_sql(sql, call, object)
  sql = sql:lower():gsub("%-%-[^\n]*", ""):gsub("^%s+", "")
  local word = sql:match("^%a+")
  local writes_in = word == "with" and sql:find("%)%s*[iud]%a+%f[%W]") -- insert, update, delete
  if not writes[word] and not writes_in and not call:find(":copy_in") then return end
  for _, pattern in ipairs(repeatable) do
    if sql:find(pattern) then return end
  end
  top.note(call, ": use " .. object .. ":migrate, whose statements run once, or ls.init")
end

local of_paths = {} -- by path: what stands for a database of SQLite and its transactions

-- sql.watch_sql(db, sql, call, kind, sqls): a statement by a call such as "db:exec". In order is what another statement cannot make
-- wrong, as what a transaction of SQLite, which excludes all others that write, has read itself. `sqls`: the migrations.
function sql.watch_sql(db, sql, call, kind, sqls)
  if not site.loaded then return call:find(":migrate") == nil and note_sql(sql, call, rawget(db, "types") and "pg" or "db") end
  if writes[sql:lower():match("%a+")] then
    tasks.watch_effect(call)
    tasks.wrote[db] = true
  end
  local tx = kind == "transaction" and not rawget(db, "types") and db or nil -- one of PostgreSQL excludes no other
  of_paths[db.target] = of_paths[db.target] or {}
  db = rawget(db, "types") or of_paths[db.target]
  local entries = tasks.entries()
  if not entries then return end
  local tables = entries[db] or {}
  entries[db], sql = tables, sql:lower():gsub('["`%[%]]', "")
  entries.databases = entries.databases or {}
  entries.databases[db] = true
  if sql:find("^%s*select%f[^%w_]") or sql:find("^%s*with%f[^%w_]") then
    local read = not sql:find("%sfor%s+[%a%s]*update") and { run = tasks.runs, info = site_info(), line = site.caller_line(), sql = sql, tx = tx } or nil
    for _, pattern in ipairs(tables_of) do
      for name in sql:gmatch(pattern) do
        name = name:match("[^.]*$")
        tables[name] = read
        if kind ~= "transaction" and entries.inserted and entries.inserted[name] and sql:find("select%s+max%s*%(") then
          site.warn(usage.caller() or entries.inserted[name], "inserts into the table %s and then selects the greatest key, which may be that of another request: %s", name,
            call:find("^pg") and "add returning id to the insert" or "use last_id of the result, or returning id")
        end
      end
    end
    return
  end
  sql = sql:gsub("^%s*insert%s+or%s+replace%f[^%w_]", "replace")
  local ignored
  sql, ignored = sql:gsub("^%s*insert%s+or%s+ignore%f[^%w_]", "insert")
  local ignores = ignored > 0 or sql:find("on%s+conflict.-do%s+nothing") ~= nil
  local verb, target, rest = sql:match("^%s*(update)%s+(.-)%s+set%f[^%w_](.*)")
  if not verb then verb, target, rest = sql:match("^%s*(%a+)%s+%a+%s+([%w_.]+)(.*)") end
  local name = writes[verb] and target:gsub("^or%s+%a+%s+", ""):gsub("^only%s+", ""):match("^[%w_.]*"):match("[^.]*$")
  if not name then return end
  local read, noted, wrong = tables[name], tasks.writers[db] and tasks.writers[db][name], nil
  tasks.note_write(db, name, entries)
  local taken = verb == "update" and rest:match("%f[%w_]([%a_][%w_]*)%s*=%s*%1%s*%-")
  local done = taken and rest:find("%f[%w_]where%f[^%w_].-%f[%w_]" .. taken .. "%s*>") and statement_of(site.set_of "exec")
  if done then
    here("%s takes from %s where enough is there, and nothing looks at whether it was: its result has changes, "
      .. "which is 0 if not, as in if %s(...).changes == 0 then return 409 end", done, taken, done)
  end
  if verb == "insert" and entries.hook == "init" and not ignores and not sql:find("on%s+conflict") and not sql:find("not%s+exists")
    and not next(tables) then
    here("%s in ls.init is repeated at each reload, and inserts the row again: use db:migrate, whose statements run once, or insert or ignore", call)
  end
  if verb == "insert" and not tx then
    entries.inserted = entries.inserted or {}
    entries.inserted[name] = site.place()
  end
  if not read or tx and read.tx == tx or not tasks.may_race(read.run, not entries.each_state and entries.origin, noted) then return end
  local where = (rest:match("%f[%w_]where%f[^%w_](.*)") or ""):gsub("%f[%w_]returning%f[^%w_].*", "")
  local advice = 'Put the condition into the update, as in "where id = ? and count > 0", and look at the changes of its result, or use '
    .. in_one_step[tx and "sqlite" or call:match("^%a+")]
  local upsert = sql:match("%f[%w_]on%s+conflict.-%f[%w_]set%f[^%w_](.*)")
  if verb == "update" and not where:find("[<>]") then
    wrong = overwrites(rest:match("^(.-)%f[%w_]where%f[^%w_]") or rest, where, read, decides(read))
  elseif verb == "delete" then
    wrong = where ~= "" and statement_of(site.set_of "exec delete")
    advice = "Let the changes of its result decide, which are 0 for all but one"
  elseif upsert then
    wrong = overwrites(upsert:match("^(.-)%f[%w_]where%f[^%w_]") or upsert, where, read, decides(read))
  elseif verb == "replace" then
    wrong = passes_on(read)
    advice = 'Let the statement compute the value, as in "on conflict (id) do update set n = n + excluded.n", or use '
      .. in_one_step[tx and "sqlite" or call:match("^%a+")]
  elseif verb == "insert" and not ignores and not sql:find("on%s+conflict") then
    local computes = read.sql:find("select%s+[%w_(]*count%s*%(") or read.sql:find("max%s*%(")
    wrong = decides(read) or computes and (numbers_from(read) or read.sql:find("count%s*%b()%s*[<>=]"))
    local looks = not wrong and (kind ~= "transaction" or tx) and looks_for(read)
    wrong = (wrong or looks) and not has_key(sqls or {}, name, read.sql)
    advice = looks and "Make an index unique, and let the insert fail with EEXIST" or "Put the condition into the insert, as in "
      .. '"insert into ... select ... where (select count(*) ...) < 10", or use ' .. in_one_step[tx and "sqlite" or call:match("^%a+")]
  elseif ignores and not tx and looks_for(read) and statement_of(site.set_of "exec") then
    for word in ("ls.fetch ls.publish ls.spawn :push :incr"):gmatch("%S+") do wrong = wrong or site.in_function(word) end -- an effect, twice
    advice = "Let the insert decide, as in if db:exec(...).changes == 0 then return \"known\" end"
  end
  if wrong then
    here("selects from the table %s and then %s it in another statement: another request may change it in between. %s", name, then_it[verb], advice)
  end
end

return sql
