-- dicts.lua - dev mode warns of a task that reads an entry of a dict, or a key of Redis, and then writes it, although another task may
-- write it in between.

local core = require "luaserve.core"
local site = require "luaserve.dev.site"
local tasks = require "luaserve.dev.tasks"
local top = require "luaserve.dev.top"
local usage = require "luaserve.usage"

local getinfo, getupvalue, next = debug.getinfo, debug.getupvalue, next
local caller_line, here, site_info, statement_of = site.caller_line, site.here, site.site_info, site.statement_of

local dicts = {}

local indexed -- set of the lines at which warn_index has looked

function dicts.begin() indexed = {} end

-- Warn of dict[key] with a key that the line computes: it may come from a client, who can send the name of a method.
local function warn_index(name, key)
  local place = usage.caller()
  if not place or indexed[place] then return end
  indexed[place] = true
  key = key:gsub("%W", "%%%0")
  local line = caller_line()
  if not line:find("%[%s*[%a_(]") or line:find("[%.\"']" .. key .. "%f[^%w_]") then return end
  site.warn(place, "reads the dict %q with [key]: for a key such as \"get\" that is the method, which is true. "
    .. "Use dict:get(key) for keys that clients choose", name)
end

-- Keys of what a task has read: the length of the dict + 1; where it was read; a loop over the dict. Of its `entries`: the
-- numbers that it has got from a counter in a dict without a file.
local next_index, length, scan, numbers = {}, {}, {}, {}
dicts.of_all = { [length] = true, [scan] = true }

local observers = setmetatable({}, { __mode = "k" }) -- by dict
local files_of = setmetatable({}, { __mode = "k" }) -- by dict
local blind -- the function of the last dict:update does not look at the value

local is_delete, grows = site.set_of "delete", site.set_of "incr rpush lpush decr incrby decrby hincrby incrbyfloat hincrbyfloat sadd zadd zincrby append"
local is_read, is_set = site.set_of "get range llen pairs members has", { set = true, ["[key] = value"] = true }

-- value_of(dict, key) -> the value in a dict; true for a list in Redis.
local function value_of(dict, key)
  if type(dict) == "userdata" then return (core.dict_read(dict, key)) end
  local ok, value = pcall(require("luaserve.redis_dict").read, dict, key)
  return not ok or value
end

-- The rules of writes. A task is wrong to set or to remove an entry that it has read before, because another task may write it in
-- between: in another state at any time, in the same one while the task waits. So is to count what was below a limit when it was read.
-- In order: to look at the result of the removal or of the count; to set it with a time to live, as sessions and caches do, but for the
-- marks true and 1; and all writes under a semaphore. Of a loop over all entries, which may look for old ones, only the removal of what
-- others count is reported, and a new entry after a loop that may return.
--
-- By the kind of the write: rows of a function that returns what was read, or false, and what is wrong with it. The first row counts; one
-- without a text is in order. c: `entries` of the task, `keys` of the dict, `read`, `call`, `key`, `value`, `ttl`; `is_new`: the dict has
-- no such entry; `counted`: others have counted it.
local rules = {}

local limit = "changes the dict %q because what it has read is within a limit: others may do so in between, and pass it. Let "
  .. 'the result of incr decide, as in if d:incr("n") > 10 then d:incr("n", -1) return 409 end; who is the first, that of d:add("first", id)'

rules.set = {
  { function(c) return not c.read and c.keys[scan] and c.is_new and site.returns(c.keys[scan]) and c.keys[scan] end,
    "adds an entry to the dict %q because a loop over it has found none: another request may do so in between. Make the value a key, as in "
      .. "if not d:add(email, id) then return 409 end" },
  { function(c) return not c.read and c.keys[length] and not c.ttl and c.is_new and site.decides(c.keys[length], c.key, true) and c.keys[length] end, limit },
  { function(c) return not c.read or c.read.call == "llen" or c.read.call == "pairs" and not c.counted end },
  { function(c) return (c.ttl == nil or c.value == true or c.value == 1 or c.read.value and math.type(c.value) and c.value ~= c.read.value)
      and (c.read.call ~= "members" or c.key == c.read.key or site.names(c.read)) and c.read end,
    "sets an entry of the dict %q: another request may write it in between: use incr, add, or update, whose function decides" }, -- n - 1 also with a ttl
  { function(c) return (c.entries.effects or 0) > c.read.effects and caller_line():find(":%l*set%l*%s*%(") and site.returns(c.read) and c.read end,
    "keeps the result in the dict %q after the effects of the request: a second one with the same key has them as well in between. Let "
      .. 'the first one win: use d:add(key, "pending", ttl) before them, and answer 409 where it returns nil' },
}
rules.grow = {
  { function(c) return c.call == "rpush" and rules.set[1][1](c) end, rules.set[1][2] },
  { function(c) return c.read and c.read.value and c.call == "incr" and c.value == -c.read.value and statement_of(grows)
      and caller_line():find(",%s*%-%s*[%a_(]") and c.read end,
    "subtracts from the dict %q what it has read: another call may have read the same number in between, as at a stop, where "
      .. '"drain" runs in each state: take it with update, whose function returns nil, n' },
  { function(c)
      local read = c.read or c.keys[length] and c.is_new and c.keys[length]
      return read and statement_of(grows) and site.decides(read, c.key, c.call ~= "incr") and read
    end, limit },
  { function(c) return c.read and c.read.call == "has" and statement_of(grows) and site.returns(c.read) and not table.concat(site.stripped(c.read), " "):find("%f[%w]not%f[%W]") and c.read end,
    "adds to the dict %q because it was not there: another request may do so in between, and both continue. Let the result decide, as in "
      .. "if r:sadd(key, member) == 0 then return 409 end" },
}
rules.update = {
  { function(c) return c.read and blind and (c.read.call == "pairs" or c.read.call ~= "llen" and (site.decides(c.read) or site.compares(c.read))) and c.read end,
    "updates an entry of the dict %q that it has read: another task may have done so in between. Let the function of update look at the value that it gets" },
}
local function drops(c) return c.call ~= "delete" or statement_of(is_delete) end
rules.remove = {
  { function(c) return not c.read or c.read.call == "llen" or c.read.call == "pairs" and not c.counted end },
  { function(c) return c.counted and c.read.call ~= "range" and drops(c) and c.read end,
    "removes an entry of the dict %q: what others count in between is lost: take it with update, whose function returns nil, n" },
  { function(c) return c.read.call == "range" and c.read end,
    "removes a list of the dict %q: what another request pushes in between is lost, and two may take the same "
      .. "values: take them with lpop, until it returns nil" },
  { function(c) return c.read.call == "members" and c.call == "delete" and c.read end,
    "removes an entry of the dict %q: what another request adds in between is lost: rename the key first, and read that one" },
  { function(c) return drops(c) and c.read end,
    "removes an entry of the dict %q: another request may have done so in between, and both continue: let the result "
      .. "of delete decide, as in if not d:delete(key) then return 404 end" },
}
rules.take = {
  { function(c) return c.read and c.read.first and statement_of(site.set_of "lpop rpop") and c.read end,
    "removes the first value of a list of the dict %q: another request may have taken it in between, and this one takes the next. Take it "
      .. "with lpop, whose result is the value" },
}

-- note_read(entries, name, call, dict, key): a call that reads.
local function note_read(entries, name, call, dict, key)
  local keys = entries[dict]
  entries.reread = entries.reread or keys[key] == false and name
  if keys[key] == nil then
    local value = (call == "get" or call == "pairs") and observers[dict] and value_of(dict, key)
    keys[key] = { run = tasks.runs, info = call ~= "pairs" and site_info(), key = key, value = tonumber(value), effects = entries.effects or 0 }
  end
  if keys[key] and keys[key].call ~= "range" then keys[key].call = call end
end

local hooks = { init = "ls.init is repeated at each reload", start = 'ls.on("start") is repeated in each new Lua state' }

-- note_reset(entries, name, call, key, value): a write. What "start" or ls.init sets, and others write, is set back.
local function note_reset(entries, name, call, key, value)
  local at, notes = "set\0" .. name .. "\0" .. tostring(key), site.notes()
  if hooks[entries.hook] and is_set[call] and value ~= nil then
    notes:set(at, { place = site.place(), text = (call == "set" and "dict:set" or "dict" .. call) .. " in " .. hooks[entries.hook] })
  end
  local before = not entries.hook and notes:get(at)
  if before then
    site.warn(before.place, before.text .. ", and then overwrites what others have written meanwhile: use dict:add, which keeps it")
  end
end

-- watch_call(entries, name, call, dict, key, value, ttl): a call in a task.
local function watch_call(entries, name, call, dict, key, value, ttl)
  entries[dict] = entries[dict] or {}
  local keys = entries[dict]
  if call == "keys" then
    keys[length] = { run = tasks.runs, info = site_info() }
    keys[scan] = keys[length]
    entries.reread = entries.reread or entries.written and entries.written[tasks.named(dict)] and name
  elseif call == "clear" and keys[scan] and next(tasks.writers[dict] or {}) then
    here("reads and then clears the dict %q: what others write in between is lost: take each entry "
      .. "with update, whose function returns nil and what was there", name)
  end
  if type(key) ~= "string" and not math.tointeger(key) then return end -- no dict has such a key
  local twin = call ~= "#" and observers[dict] and (math.type(key) == "integer" and tostring(key)
    or type(key) == "string" and key:find("^[1-9]%d*$") and math.tointeger(tonumber(key)))
  if twin and value_of(dict, key) == nil and value_of(dict, twin) ~= nil then
    here("the dict %q has the key %s, and not the key %s: a number and a text are two keys. "
      .. "What a request sends is text: use math.tointeger(req.params.id:match(\"^%%d+$\") or -1)", name, usage.quote(twin), usage.quote(key))
  end
  if call == "[key]" then
    if type(key) == "string" and not entries.origin then warn_index(name, key) end
    call = "get"
  end
  if call == "#" then
    keys[next_index], keys[length] = key + 1, { run = tasks.runs, info = site_info() }
    return
  end
  local sets = is_set[call]
  if key == keys[next_index] and sets then
    here("appends to the dict %q at its length + 1: another request may do so at the same time, and one of the two is lost. Use rpush and range "
      .. "on a list under one key, or incr for a number that no other request gets", name)
    keys[length] = nil
  end
  local at = (sets or call == "rpush") and tonumber(tostring(key):match("^%a*[-_:]?(%d+)$"))
  if at and not entries.origin and os.time() - at <= 1 and at <= os.time() then
    here("the key of the dict %q is the time: two requests of one second write the same entry. Use "
      .. "incr for a number that no other request gets, or ls.crypto.uuid()", name)
  end
  if is_read[call] then return note_read(entries, name, call, dict, key) end
  tasks.watch_effect(call:find("^%[") and "dict" .. call or "dict:" .. call)
  note_reset(entries, name, call, key, value)
  local read, noted = keys[key], tasks.writers[dict] and tasks.writers[dict][key]
  tasks.note_write(dict, key, entries, grows[call] or call == "update")
  local file = files_of[dict]
  local count = call == "incr" and observers[dict] and (value_of(dict, key) or ttl or 0)
  if type(count) == "number" then
    local number = tostring(count + (tonumber(value) or 1))
    entries.counted, entries[numbers] = entries.counted or {}, entries[numbers] or {}
    entries.counted[number], entries[numbers][number] = true, not file and name or nil
  elseif file and (sets or call == "add") and entries[numbers] and entries[numbers][tostring(key)] then
    here("the dict %q has a file, and its key is a number of the dict %q, which has none: after a restart that counts from 1, and entries are "
      .. "overwritten. Write ls.dict(%q, { file = %q })", name, entries[numbers][tostring(key)], entries[numbers][tostring(key)], file)
  end
  if not sets then keys[key] = false end -- the site knows these methods
  local c = { entries = entries, keys = keys, read = read, call = call, key = key, value = value, ttl = ttl, counted = noted and noted.counts,
    is_new = (keys[length] or keys[scan]) and value_of(dict, key) == nil }
  local kind = grows[call] and "grow" or call == "delete" and "remove"
    or sets and (value == nil and "remove" or "set") or call
  for _, rule in ipairs(rules[kind] or {}) do
    local found, text = rule[1](c), rule[2]
    if found then
      if text and not observers[dict] then
        text = text:gsub("an entry of the dict %%q", "a key of Redis"):gsub("the dict %%q", "Redis"):gsub("d:add(%(key, [^,]*), ttl", 'd:set%1, "NX", "EX", 60'):gsub("d:", "r:")
          :gsub("use incr, add, or update, whose function decides", 'use incr, set with "NX", or r:transaction(key, fn)')
      end
      if text and tasks.may_race(found.run, not entries.each_state and entries.origin, noted) then here("reads and then " .. text, name) end
      break
    end
  end
  if not (call == "incr" and statement_of(grows)) then entries.effects = (entries.effects or 0) + 1 end
end

-- dicts.watch_dict(name, dict, evicts, file) -> a function that sees its calls, which one in Redis calls itself. `evicts`: it is a cache.
function dicts.watch_dict(name, dict, evicts, file)
  if name:find("^luaserve%.") then return end -- of luaserve itself
  files_of[dict], tasks.names_of[dict] = file, name
  observers[dict] = function(call, _, ...)
    if not site.loaded then return type(dict) == "userdata" and call ~= "#" and top.note_dict(call, dict, ...) end
    local entries = not evicts and tasks.entries()
    if entries and (call == "clear" or select("#", ...) > 0) then watch_call(entries, name, call, dict, ...) end
  end
  if type(dict) == "userdata" then core.dict_observe(dict, observers[dict]) end
  return observers[dict]
end

local as_dict = {} -- commands of Redis on a key
for call, names in pairs { get = "GET HGET HMGET EXISTS HEXISTS LLEN SCARD HLEN ZCARD STRLEN GETRANGE MGET ZCOUNT", range = "LRANGE LINDEX",
  has = "SISMEMBER ZSCORE",
  members = "SMEMBERS HKEYS HGETALL ZRANGE ZRANGEBYSCORE ZREVRANGE ZREVRANGEBYSCORE",
  set = "SET HSET HMSET MSET LSET SETRANGE SETEX PSETEX", delete = "DEL UNLINK", take = "LPOP RPOP",
  incr = "INCR DECR INCRBY DECRBY INCRBYFLOAT HINCRBY HINCRBYFLOAT RPUSH LPUSH SADD ZADD ZINCRBY APPEND" } do
  for name in names:gmatch("%u+") do as_dict[name] = call end
end
local removals = site.set_of "zrem srem hdel lrem"
local trims = { LTRIM = "LRANGE", ZREMRANGEBYSCORE = "ZRANGEBYSCORE", ZREMRANGEBYRANK = "ZRANGE" }

-- takes(read) -> whether the line of the site that calls now removes what the site has read, and does something with it, too.
local function takes(read)
  local now, name = site_info(), read.line:match("([%a_][%w_]*)%s*=%f[^=]")
  local arguments = nil
  for call, list in caller_line():gmatch(":(%l+)%s*(%b())") do arguments = removals[call] and list or arguments end
  if not arguments or not statement_of(removals) or not read.info or now.source ~= read.info.source then return false end
  local text, after = table.concat(site.lines_of(now, read.info.currentline, now.currentline), "\n"), site.lines_of(now, now.currentline + 1, now.lastlinedefined)
  text = (text .. "\n" .. table.concat(after, "\n"):gsub("%f[%w_]for%f[^%w_].*", "")):gsub("%-%-[^\n]*", "")
  local rest = text:gsub("%f[%w_]for%f[^%w_].-%f[%w_]in%f[^%w_]", "in"):gsub("%f[%w_]if%f[^%w_].-%f[%w_]then%f[^%w_]", "then")
    :gsub("local%s+[%w_]+%s*=", "="):gsub(":(%l+)%s*%b()", function(call) return (removals[call] or call == "del") and "" or nil end)
  for names in (text .. (name and "\nfor " .. name .. " in " or "")):gmatch("%f[%w_]for%s+([%w_,%s]-)%s+in%s") do
    local removed, used = false, false
    for word in names:gmatch("%f[%w_][%a]%w*") do
      removed = removed or arguments:find("%f[%w_]" .. word .. "%f[^%w_]")
      used = used or word ~= name and rest:find("%f[%w_]" .. word .. "%f[^%w_]")
        or word == name and rest:find("%(%s*" .. word .. "%f[^%w_]")
    end
    if removed and used then return true end
  end
  return false
end

-- dicts.watch_queued(call): a command such as "p:exists" of a pipeline. Its result is no reply yet, but true in a condition.
function dicts.watch_queued(call)
  local level = 2
  while getinfo(level, "S").source == "@luaserve/redis.lua" do level = level + 1 end
  if usage.is_internal(getinfo(level, "S").source) then return end -- a dict in Redis
  local line, before = caller_line()
  local method = call:match("%w+$")
  for at, name in line:gmatch("()%f[%w_][%a_][%w_.]*:([%a_][%w_]*)%s*[%({\"'%[]") do
    local text = before .. " " .. line:sub(1, at - 1)
    if name == method and not site.is_statement(line, at, before) and not text:find("return%s*$") then
      here("the result of %s is no reply: it stands in the list that r:pipeline or r:transaction "
        .. "returns; to read first, use c of r:transaction(keys, function(t, c) ... end)", call)
    end
  end
end

-- The argument with the field or member; a command without one is for the whole key.
local fields = { HGET = 1, HSET = 1, HMSET = 1, HEXISTS = 1, HINCRBY = 1, HINCRBYFLOAT = 1, SISMEMBER = 1, SADD = 1, ZSCORE = 1, ZADD = 2,
  ZINCRBY = 2 }

-- dicts.watch_redis(node, name, key, value, option, ...): a command of Redis.
function dicts.watch_redis(node, name, key, value, option, ...)
  local entries = site.loaded and type(key) == "string" and tasks.entries()
  if not entries then return end
  entries[node] = entries[node] or {}
  local keys, call = entries[node], as_dict[name]
  local read, trims_read = keys[key], nil
  if read and trims[name] then trims_read = name == "LTRIM" and tonumber(value) ~= 0 or name ~= "LTRIM" and read.from == value and read.to == option end
  if read and not tasks.is_locked() and (removals[name:lower()] and read.line and takes(read) or trims_read and trims[name] == read.name) then
    here("reads and then removes what it has read from Redis (%s): another task may have read it as well, "
      .. "and both continue. Let the result decide, as in if r:zrem(key, member) > 0, or take it with lpop, spop or zpopmin", name:lower())
  end
  for _, flag in ipairs { option, ... } do
    if name == "SET" and flag == "NX" then return end
  end
  local entry = fields[name] and key .. "\0" .. tostring(fields[name] == 1 and value or option) or key
  if not is_read[call] and keys[entry] == nil and read and not read.field then entry = key end
  local ttl = name == "SET" and option or nil
  if name == "SETEX" or name == "PSETEX" then value, ttl = option, value end
  if call then watch_call(entries, "", call, node, entry, value, ttl) end
  read = is_read[call] and keys[entry]
  if not read then return end
  if entry ~= key and keys[key] == nil then keys[key] = setmetatable({ field = true }, { __index = read }) end
  if call == "members" or call == "range" then
    read.name, read.from, read.to, read.line = name, value, option, caller_line()
    read.first = tonumber(value) == 0 and (name == "LINDEX" or tonumber(option) == 0)
  end
end

-- dicts.watch_pairs(dict, key): a loop over the dict has come to this key; without it, all keys are read.
function dicts.watch_pairs(dict, key)
  if observers[dict] then observers[dict](key and "pairs" or "keys", dict, key) end
end

-- The flags and numbers among the upvalues of the function, by their index.
local function flags_of(fn)
  local flags, at = {}, 1
  while true do
    local name, value = getupvalue(fn, at)
    if not name then return flags end
    if name ~= "" and (type(value) == "boolean" or type(value) == "number") then flags[at] = value end
    at = at + 1
  end
end

-- dicts.watch_update(fn) -> the function that dict:update calls in place of fn: reports a flag or number that fn changes.
function dicts.watch_update(fn)
  local text = table.concat((site.function_lines(fn)), "\n"):match("function%s*%(.*") or "if"
  blind = true -- unless it compares the value, or gives it to the caller
  for _, pattern in ipairs { "%f[%w_]if%f[^%w_]", "%f[%w_]and%f[^%w_]", "[=~]=", "[<>]", "return%s+nil%s*," } do
    blind = blind and not text:find(pattern)
  end
  return function(old)
    local before = flags_of(fn)
    local results = table.pack(tasks.run_inside("update", fn, old))
    for at, value in pairs(before) do
      local name, now = getupvalue(fn, at)
      if now ~= value then
        here("the function of dict:update changes %s, and runs again when "
          .. "another request was faster: let it return this as its second result, which update returns", name)
      end
    end
    return table.unpack(results, 1, results.n)
  end
end

return dicts
