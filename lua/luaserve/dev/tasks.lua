-- tasks.lua - what dev mode knows of the running task: what it has read and written, who else writes it, and what it does not look at.

local core = require "luaserve.core"
local site = require "luaserve.dev.site"
local usage = require "luaserve.usage"
local variables = require "luaserve.dev.variables"

local getinfo, running = debug.getinfo, coroutine.running
local caller_line, here, set_of, statement_of, warn = site.caller_line, site.here, site.set_of, site.statement_of, site.warn

local tasks = {
  after_it = "do it after the transaction",
  wrote = setmetatable({}, { __mode = "k" }), -- set of the transactions with a statement that writes
  runs = 0, -- number of runs so far
  names_of = setmetatable({}, { __mode = "k" }), -- by dict
}

local writers_max = 10000

local locks -- array of the semaphores of one permit
local reads -- by coroutine, dict and key: what has read the entry, or false; by database and table: the run that has
-- selected from it. Also `request`, in a request; `message`: the number of what the task works on; `origin`, `each_state`:
-- of variables.origin; `written`: the set of what it has written (named); `counted`: the numbers that it has got from counters;
-- `inserted`: the places, by table; `left`: by line, the run in which a write has told first that the client has left; `files`: the set of
-- those that were read; `reread`: the dict that was read after a write
tasks.writers = {} -- by dict or database, and key or table: a set of the origins that have written it; `counts`: in one step
local writers_count = 0

-- tasks.begin(): before the site is loaded.
function tasks.begin() locks, reads, tasks.writers = {}, setmetatable({}, { __mode = "k" }), {} end

local inside = setmetatable({}, { __mode = "k" }) -- by coroutine: whose function it runs, "update" or "transaction"

-- tasks.run_inside(what, fn, ...) -> the results of fn(...), whose effects watch_effect sees.
function tasks.run_inside(what, fn, ...)
  local co = running()
  local before = inside[co]
  local _ <close> = setmetatable({}, { __close = function() inside[co] = before end })
  inside[co] = before == "update" and before or what
  return fn(...)
end

-- tasks.watch_effect(call, instead): the task has an effect outside of it. `instead`: the advice for one in a transaction, where it
-- is in order otherwise.
function tasks.watch_effect(call, instead)
  local what, entries = inside[running()], reads[running()]
  if entries and not call:find("^dict") and (call ~= "ls.fetch" or site.in_function("idempot")) then entries.effects = (entries.effects or 0) + 1 end
  if what == "update" then
    here(call .. " in the function of dict:update happens once more each time that another request was "
      .. "faster: let the function return what is to be done as its second result, and do it after update")
  elseif what and instead then
    here("%s in a transaction comes before the commit, and stays when the transaction is undone: %s", call, instead)
  end
end

-- tasks.effect_of(call) -> a function that the wrapper of this function calls: an effect, unless luaserve itself calls it.
function tasks.effect_of(call)
  return function()
    if not usage.is_internal(getinfo(3, "S").source) then tasks.watch_effect(call, tasks.after_it) end
  end
end
tasks.watch_spawn = tasks.effect_of "ls.spawn"

-- tasks.watch_start(call): a call whose effect is one for the whole server. Warns where functions of "start" of two Lua states make it.
function tasks.watch_start(call)
  local _, _, _, starts = core.dev.task()
  local place, me = starts and usage.caller(), tostring(tasks)
  local key = place and place .. "\0" .. core.dev.version()
  if key and not site.notes():add(key, me) and site.notes():get(key) ~= me then
    warn(place, call .. ' in ls.on("start") comes once for each Lua state, also for one that is made hours later: call it in ls.init')
  end
end

-- origin_of() -> variables.origin of the outermost function of the running task
local function origin_of()
  local level, outer = 2, nil
  repeat
    local info = getinfo(level, "Sf")
    if info and info.what ~= "C" and not usage.is_internal(info.source) then outer = info end
    level = level + 1
  until not info
  if outer then return variables.origin(outer) end
end

-- tasks.entries() -> reads[the running task], or nil: no task runs. What was read for the message before is over.
function tasks.entries()
  local co = running()
  local entries, serves, message = reads[co], core.dev.task()
  if serves == nil then return nil end
  if not entries or entries.message ~= message and not entries.request then
    entries = { message = message }
    if not serves then entries.origin, entries.each_state, entries.hook = origin_of() end
    reads[co] = entries
  end
  return entries
end

-- tasks.named(of, key) -> the entry, or the table of a database, in the notes of all states. Without a key: the dict.
function tasks.named(of, key) return tostring(tasks.names_of[of]) .. (key ~= nil and "\0" .. tostring(key) or "") end

-- tasks.note_write(of, key, entries, counts): a task writes the entry, or the table of a database.
function tasks.note_write(of, key, entries, counts)
  entries.written = entries.written or {}
  entries.written[tasks.named(of, key)], entries.written[tasks.named(of)] = true, true
  local keys = tasks.writers[of] or {}
  local noted = keys[key] or {}
  if not keys[key] then writers_count = writers_count + 1 end
  if writers_count > writers_max then return end
  tasks.writers[of], keys[key] = keys, noted
  noted[entries.origin or "many"] = true
  noted.counts = noted.counts or counts
end

function tasks.is_locked()
  for _, semaphore in ipairs(locks) do
    if semaphore.held > 0 then return true end
  end
  return false
end

-- tasks.may_race(run, origin, noted) -> whether another task may have written in between what this one has read in its run of
-- this number. `origin`: it runs once at a time, so that only others race with it. `noted`: who has written it so far.
function tasks.may_race(run, origin, noted)
  if tasks.is_locked() then return false end
  local another = not origin
  for writer in pairs(noted or {}) do another = another or writer ~= origin and writer ~= "counts" end
  return another and (site.several_states() or run ~= tasks.runs)
end

local writes_to_client = set_of "send write flush comment ping"
local results_matter = set_of "transaction write mkdir rename fetch process send set incr update rpush lpush save wait"
local client_left = set_of "ECLOSED ECONNRESET ERESET EPIPE"

-- watch_password(message): ls.crypto.password.hash has returned nil.
local function watch_password(message)
  local name = caller_line():match("local%s+([%a_][%w_]*)[%w_,%s]*=[^=]*password%.hash%s*%(")
  if caller_line():find("assert%s*%(") or name and site.in_function("not " .. name) then return end
  here("ls.crypto.password.hash has returned nil: %s; look at its result before it is stored, as in if not hash then return 422, message end", message)
end

-- tasks.note_failure(message, code, name): the function that called this one, of this name or nil, returns nil, `message` and `code`
-- to the site.
function tasks.note_failure(message, code, name)
  if caller_line():find("password%.hash%s*%(") then return watch_password(message) end
  local place, entries = usage.caller(), client_left[code] and site.loaded and tasks.entries()
  if entries and place then
    local left = entries.left or {}
    local first, call = left[place], statement_of(writes_to_client, name)
    entries.left, left[place] = left, first or tasks.runs
    if call and first and first ~= tasks.runs then
      warn(place, "%s has returned nil since the client has left, and the function does not end: end the loop, as in while %s(...) do", call, call)
    end
  end
  if client_left[code] or not place or name == "wait" and code == "ETIMEDOUT" then return end
  local call = statement_of(results_matter, name)
  if not call or not core.dev.once("unused result: " .. place) then return end
  warn(place, "%s has returned nil: %s; look at its results, or write assert(%s(...))", call, message, call)
end

-- tasks.watch_exit(code): a program of ls.process has failed.
function tasks.watch_exit(code)
  if statement_of(results_matter) or caller_line():find("if%s+n?o?t?%s*ls%.process[^\n]-%sthen") then
    here("a program of ls.process has failed with the exit status %d: its result is a table also then; look at its code", code)
  end
end

-- tasks.watch_answer(status): ls.fetch returns an answer to the site. Warns of a failure that is taken for a success: nothing uses the
-- answer, or the function reads its body and names neither ok nor a status.
function tasks.watch_answer(status)
  if status < 400 or site.in_function(".ok") or site.in_function("status") then return end
  local line = caller_line():gsub("local%s+", "")
  local name = (line:match("([%a_][%w_]*)[%w_,%s]*=[^=]*ls%.fetch") or ""):lower()
  local reads = line:find("ls%.fetch.-%)%s*:%l")
  for method in ("body json chunks lines"):gmatch("%l+") do reads = reads or name ~= "" and site.in_function(name .. ":" .. method) end
  if reads or statement_of(set_of "fetch") then
    here("the answer of ls.fetch has the status %d, which is no failure of the call: look at answer.ok, as in "
      .. "if not answer.ok then return 502 end", status)
  end
end

-- tasks.watch_subscribe(call): a function that stays is subscribed.
function tasks.watch_subscribe(call)
  if core.dev.task() and statement_of(set_of "subscribe psubscribe") then
    here(call .. " in a handler stays when its client has left, one for each: keep its result and "
      .. "call remove, or subscribe once at the top of the file, and pass the messages on with ls.publish")
  end
end

-- watch_committed(fn, tx, ...) -> these results of the function of a transaction, which is committed.
local function watch_committed(fn, tx, ...)
  local status, body = ...
  if not tasks.wrote[tx] or math.type(status) ~= "integer" or status < 400 or status > 599 or type(body) ~= "string" and type(body) ~= "table" then
    return ...
  end
  local lines, info = site.function_lines(fn)
  local at = info.linedefined
  for i, line in ipairs(lines) do
    if line:find("%f[%w_]return%s*%(?" .. status .. "%f[^%w_.]") then at = info.linedefined + i - 1 end
  end
  warn(info.short_src .. ":" .. at, "the function of a transaction has returned the status %d, and the transaction was "
    .. "committed: return nil and a reason, which undoes it, and then return %d outside of the transaction, or raise", status, status)
  return ...
end

-- tasks.watch_transaction(fn) -> the function of a transaction, with a look at its results.
function tasks.watch_transaction(fn)
  return function(tx) return watch_committed(fn, tx, tasks.run_inside("transaction", fn, tx)) end
end

-- tasks.watch_file(path, use, append): a task reads the file, "data", or replaces its content, "own".
function tasks.watch_file(path, use, append)
  if append then return tasks.watch_effect("ls.file.write") end
  local entries = site.loaded and tasks.entries()
  if not entries then return end
  entries.files = entries.files or {}
  if use == "data" then
    entries.files[path] = true
  elseif entries.files[path] and not entries.origin and not tasks.is_locked() then
    here("reads and then writes the file %q: what another request writes in between is lost. Do "
      .. "both in one step under a semaphore, as in order:with(fn), or keep the data in a dict with a file or in ls.sqlite", path)
  end
end

-- tasks.open(...): io.open of the site while it serves.
function tasks.open(path, mode, ...)
  local use = (mode == nil or mode == "r" or mode == "rb") and "data" or (mode == "w" or mode == "wb") and "own"
  if use and type(path) == "string" then tasks.watch_file(path, use) end
  return site.open(path, mode, ...)
end

-- tasks.watch_semaphore(semaphore): the site has opened this semaphore.
function tasks.watch_semaphore(semaphore)
  if semaphore.permits == 1 then locks[#locks + 1] = semaphore end
end

-- tasks.begin_request(), tasks.end_request(): a handler of an app begins or has ended in the running coroutine.
function tasks.begin_request() reads[running()] = { request = true } end
function tasks.end_request(req, res, status)
  local entries = reads[running()] or {}
  local one = not entries.changed and entries.unchanged
  status = math.type(status) == "integer" and status or res and not res.sent and res:status() or 200
  if one and status < 300 and (req.method == "PUT" or req.method == "PATCH" or req.method == "POST" and next(req.params)) then
    warn(one.place, "%s %s has changed no row, and its status is %d: look at the result, as in if %s == 0 then return 404 end", req.method,
      req.path, status, one.call .. (one.call:find(":exec") and "(...).changes" or "(...)"))
  end
  reads[running()] = nil
end

-- tasks.watch_changes(call, sql, result): a statement has changed result.changes rows.
function tasks.watch_changes(call, sql, result)
  local entries, changes = site.loaded and reads[running()], rawget(result, "changes")
  if not entries or not changes or sql:find("^%s*[sS][eE][lL]") then return end
  entries.changed = entries.changed or changes > 0
  if changes == 0 and sql:find("^%s*[uU][pP][dD]") and statement_of(set_of "exec update") then
    entries.unchanged = { place = site.place(), call = call }
  end
end

-- tasks.watch_handler(fn) -> the handler behind middleware. What that has selected, such as the user, decides who may do it; it is not
-- the old value of what the handler updates.
function tasks.watch_handler(fn)
  return function(...)
    local entries = reads[running()]
    for db in pairs(entries and entries.databases or {}) do entries[db] = nil end
    if entries then entries.unchanged, entries.changed = nil, nil end
    return fn(...)
  end
end

return tasks
