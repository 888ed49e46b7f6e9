-- dicts.lua - dev mode warns of a task that reads an entry of a dict, or a key of Redis, and then writes it, although another task may
-- write it in between.

local core = require "luaserve.core"
local site = require "luaserve.dev.site"
local tasks = require "luaserve.dev.tasks"
local top = require "luaserve.dev.top"
local usage = require "luaserve.usage"

local getinfo, getupvalue, next = debug.getinfo, debug.getupvalue, next
local caller_line, decides, function_lines, here, is_statement, lines_of, returns, set_of, site_info, statement_of, warn = site.caller_line,
  site.decides, site.function_lines, site.here, site.is_statement, site.lines_of, site.returns, site.set_of, site.site_info,
  site.statement_of, site.warn

local dicts = {}

local indexed -- set of the lines at which warn_index has looked

function dicts.begin() indexed = {} end

-- ---- dicts ----------------------------------------------------------------------------------------------------------

-- Warn of dict[key] with a key that the line computes: it may come from a client, who can send the name of a method.
local function warn_index(name, key)
  local place = usage.caller()
  if not place or indexed[place] then return end
  indexed[place] = true
  key = key:gsub("%W", "%%%0")
  local line = caller_line()
  if not line:find("%[%s*[%a_(]") or line:find("[%.\"']" .. key .. "%f[^%w_]") then return end
  warn(place, "reads the dict %q with [key]: for a key such as \"get\" that is the method, which is true. "
    .. "Use dict:get(key) for keys that clients choose", name)
end

-- Keys of what a task has read: the length of the dict + 1; where it was read; a loop over the dict. Of its `entries`: the
-- numbers that it has got from a counter in a dict without a file.
local next_index, length, scan, numbers = {}, {}, {}, {}
dicts.of_all = { [length] = true, [scan] = true }

local observers = setmetatable({}, { __mode = "k" }) -- by dict
local files_of = setmetatable({}, { __mode = "k" }) -- by dict
local blind -- the function of the last dict:update does not look at the value

local is_delete, grows = set_of "delete", set_of "incr rpush lpush decr incrby decrby hincrby sadd zadd"
local is_read, is_set = set_of "get range llen pairs members", { set = true, ["[key] = value"] = true }

-- watch_call(entries, name, call, dict, key, value, ttl): a call in a task. It is wrong to set or to remove an entry that
-- was read before, because another task may write it in between: in another state at any time, in the same one while the
-- task waits. So is to count what was below a limit when it was read. In order: to look at the result of the removal or of
-- the count; to set it with a time to live, as sessions and caches do; and all writes under a semaphore. So is a mark with a time to live, true or 1. Of a loop over all
-- entries, which may look for old ones, only the removal of what others count is reported, and a new entry after a loop that
-- may return.
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
  if twin and core.dict_read(dict, key) == nil and core.dict_read(dict, twin) ~= nil then
    here("the dict %q has the key %s, and not the key %s: a number and a text are two keys. "
      .. "What a request sends is text: use tonumber(req.params.id)", name, usage.quote(twin), usage.quote(key))
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
  if is_read[call] then
    entries.reread = entries.reread or keys[key] == false and name
    if keys[key] == nil then
      local value = (call == "get" or call == "pairs") and observers[dict] and core.dict_read(dict, key)
      keys[key] = { run = tasks.runs, info = call ~= "pairs" and site_info(), value = tonumber(value) }
    end
    if keys[key] and keys[key].call ~= "range" then keys[key].call = call end
    return
  end
  tasks.watch_effect(call:find("^%[") and "dict" .. call or "dict:" .. call)
  local read, noted, text = keys[key], tasks.writers[dict] and tasks.writers[dict][key], nil
  tasks.note_write(dict, key, entries, grows[call] or call == "update")
  local file = files_of[dict]
  local count = call == "incr" and observers[dict] and (core.dict_read(dict, key) or ttl or 0)
  if type(count) == "number" then
    local number = tostring(count + (tonumber(value) or 1))
    entries.counted, entries[numbers] = entries.counted or {}, entries[numbers] or {}
    entries.counted[number], entries[numbers][number] = true, not file and name or nil
  elseif file and (sets or call == "add") and entries[numbers] and entries[numbers][tostring(key)] then
    here("the dict %q has a file, and its key is a number of the dict %q, which has none: after a restart that counts from 1, and entries are "
      .. "overwritten. Write ls.dict(%q, { file = %q })", name, entries[numbers][tostring(key)], entries[numbers][tostring(key)], file)
  end
  if not sets then keys[key] = false end -- the site knows these methods
  local new = keys[length] and not (sets and (ttl or value == nil)) and core.dict_read(dict, key) == nil
  if keys[scan] and not read and (sets or call == "rpush") and core.dict_read(dict, key) == nil and returns(keys[scan]) then
    read = keys[scan]
    text = "adds an entry to the dict %q because a loop over it has found none: another request may do so in between. Make the "
      .. "value a key, as in if not d:add(email, id) then return 409 end"
  elseif read and read.value and call == "incr" and value == -read.value and statement_of(grows) and caller_line():find(",%s*%-%s*[%a_(]") then
    text = "subtracts from the dict %q what it has read: another call may have read the same number in between, as at a stop, where "
      .. '"drain" runs in each state: take it with update, whose function returns nil, n'
  elseif (sets and new or grows[call]) and not (sets and read) then
    read = grows[call] and read or new and keys[length]
    if not read or not (sets or statement_of(grows)) or not decides(read, key, call ~= "incr") then return end
    text = "changes the dict %q because what it has read is within a limit: others may do so in between, and pass it. Let "
      .. 'the result of incr decide, as in if d:incr("n") > 10 then d:incr("n", -1) return 409 end; who is the first, that of d:add("first", id)'
  elseif not read or read.call == "llen" then
    return
  elseif call == "update" and blind and (read.call == "pairs" or decides(read)) then
    text = "updates an entry of the dict %q that it has read: another task may have done so in between. Let the "
      .. "function of update look at the value that it gets"
  elseif (sets or call == "delete") and read.call == "pairs" and not (noted and noted.counts) then
    return
  elseif sets and value ~= nil then
    local counts = read.value and math.type(value) and value ~= read.value -- n - 1, also with a time to live
    text = (ttl == nil or value == true or value == 1 or counts) and "sets an entry of the dict %q: another request may write it in between: use incr, update or add"
  elseif not sets and call ~= "delete" then
    return
  elseif noted and noted.counts and read.call ~= "range" and (sets or statement_of(is_delete)) then
    text = "removes an entry of the dict %q: what others count in between is lost: take it with update, whose function returns nil, n"
  elseif read.call == "range" then
    text = "removes a list of the dict %q: what another request pushes in between is lost, and two may take the same "
      .. "values: take them with lpop, until it returns nil"
  elseif read.call == "members" and not sets then
    text = "removes an entry of the dict %q: what another request adds in between is lost: rename the key first, and read that one"
  elseif sets or statement_of(is_delete) then
    text = "removes an entry of the dict %q: another request may have done so in between, and both continue: let the result "
      .. "of delete decide, as in if not d:delete(key) then return 404 end"
  end
  if text and not observers[dict] then
    text = text:gsub("an entry of the dict %%q", "a key of Redis"):gsub("the dict %%q", "Redis"):gsub("d:", "r:")
      :gsub("use incr, update or add", 'use incr, set with "NX", or r:transaction(key, fn)')
  end
  if not text or not tasks.may_race(read.run, not entries.each_state and entries.origin, noted) then return end
  here("reads and then " .. text, name)
end

-- dicts.watch_dict(name, dict, evicts, file): the site has opened this dict. `evicts`: it is a cache.
function dicts.watch_dict(name, dict, evicts, file)
  if name:find("^luaserve%.") then return end -- of luaserve itself
  files_of[dict], tasks.names_of[dict] = file, name
  observers[dict] = function(call, _, ...)
    if not site.loaded then return call ~= "#" and top.note_dict(call, dict, ...) end
    local entries = not evicts and tasks.entries()
    if entries and (call == "clear" or select("#", ...) > 0) then watch_call(entries, name, call, dict, ...) end
  end
  core.dict_observe(dict, observers[dict])
end

local as_dict = {} -- commands of Redis on a key
for call, names in pairs { get = "GET HGET HMGET EXISTS HEXISTS SISMEMBER LLEN SCARD HLEN ZCARD ZSCORE", range = "LRANGE",
  members = "SMEMBERS HKEYS HGETALL ZRANGE ZRANGEBYSCORE ZREVRANGE ZREVRANGEBYSCORE",
  set = "SET HSET SETEX PSETEX", delete = "DEL",
  incr = "INCR DECR INCRBY DECRBY HINCRBY RPUSH LPUSH SADD ZADD" } do
  for name in names:gmatch("%u+") do as_dict[name] = call end
end
local removals = set_of "zrem srem hdel lrem"
local trims = { LTRIM = "LRANGE", ZREMRANGEBYSCORE = "ZRANGEBYSCORE", ZREMRANGEBYRANK = "ZRANGE" }

-- takes(read) -> whether the line of the site that calls now removes what the site has read, and does something with it, too.
local function takes(read)
  local now, name = site_info(), read.line:match("([%a_][%w_]*)%s*=%f[^=]")
  local arguments = nil
  for call, list in caller_line():gmatch(":(%l+)%s*(%b())") do arguments = removals[call] and list or arguments end
  if not arguments or not statement_of(removals) or not read.info or now.source ~= read.info.source then return false end
  local text, after = table.concat(lines_of(now, read.info.currentline, now.currentline), "\n"), lines_of(now, now.currentline + 1, now.lastlinedefined)
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
    if name == method and not is_statement(line, at, before) and not text:find("return%s*$") then
      here("the result of %s is no reply: it stands in the list that r:pipeline or r:transaction "
        .. "returns; to read first, use c of r:transaction(keys, function(t, c) ... end)", call)
    end
  end
end

-- dicts.watch_redis(node, name, key, value, option): a command of Redis.
function dicts.watch_redis(node, name, key, value, option)
  local entries = site.loaded and type(key) == "string" and tasks.entries()
  if not entries then return end
  local read, trims_read = entries[node] and entries[node][key], nil
  if read and trims[name] then trims_read = name == "LTRIM" and tonumber(value) ~= 0 or name ~= "LTRIM" and read.from == value and read.to == option end
  if read and not tasks.is_locked() and (removals[name:lower()] and takes(read) or trims_read and trims[name] == read.name) then
    here("reads and then removes what it has read from Redis (%s): another task may have read it as well, "
      .. "and both continue. Let the result decide, as in if r:zrem(key, member) > 0, or take it with lpop, spop or zpopmin", name:lower())
  end
  local call = as_dict[name]
  if call then watch_call(entries, "", call, node, key, value, name == "SET" and option or nil) end
  read = (call == "members" or call == "range") and entries[node][key]
  if read then read.name, read.from, read.to, read.line = name, value, option, caller_line() end
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
  local text = table.concat((function_lines(fn)), "\n"):match("function%s*%(.*") or "if"
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
