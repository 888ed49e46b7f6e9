-- proxy_cache.lua - the cache of app:proxy: what a request takes from it, what the response to it leaves there.
-- http/proxy/response_cache.h stores; cache_rules.lua has the rules of HTTP.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
local rules = require "luaserve.cache_rules"

local concat, sort, type, time, max = table.concat, table.sort, type, os.time, math.max

local fname = "app:proxy"
local uint32_max = 2 ^ 32 - 1

local cache = {}

local cache_options = {
  size = { "bytes_max", "size", 65536, math.maxinteger, "64m" }, -- memory of all stored responses
  max_body = { "body_bytes_max", "size", 0, math.maxinteger, "1m" }, -- longest body that is stored
  lifetime = { "lifetime_ms", "seconds", 1, uint32_max, false, none = 0 }, -- of a response that says nothing about it
  wait = { "wait_ms", "seconds", 0, uint32_max, 5 }, -- for the same response on its way to another client
  dict = true, -- Dict - a second store after the memory: a dict
  -- string - or a folder
  folder = { "folder", "is", function(value) return type(value) == "string" and value ~= "" end, 'a path such as "cache"' },
  folder_size = { "folder_bytes_max", "size", 1, math.maxinteger, "1g" }, -- bytes of the files in it
  -- fun(req: Request): string? - the key in place of path and query; nil: not from the cache
  key = { "key", "is", "function", "a function(req)" },
  cookies = { "cookies", "flag", nil, nil, false }, -- the key has what a response depends on of Cookie
}
cache.calls = { ["app:proxy: cache"] = { cache_options } } -- ProxyCache

local is_one_of = rules.set
local safe = is_one_of("GET", "HEAD", "OPTIONS", "TRACE")
local own_error = is_one_of(500, 502, 503, 504) -- RFC 5861 section 4
-- Fields that a request that is made later does not repeat.
local of_client = is_one_of("cache-control", "pragma", "upgrade", "expect", "transfer-encoding", "content-length", "range",
  "if-none-match", "if-modified-since", "if-range")

-- ---- the second store ----------------------------------------------------------------------------------------------

-- By the first line of a key, which is the path with its query: the entries of one key as bytes, after that line. A
-- store has get(line), set(line, bytes) -> true or not, remove(line), and clear(prefix), of all lines that begin so; these
-- two raise when something is not removed. The order of these calls: see response_cache.h.
local stores = {}

local function is_line(bytes, line) return bytes and bytes:sub(1, #line + 1) == line .. "\n" end

local absent = is_one_of("ENOENT", "ENOTDIR")
local function succeeds(result, message, code)
  if result == nil and not absent[code] then error(fname .. ": cache: " .. message, 0) end
  return result
end

function stores.dict(dict)
  local function remove(line) succeeds(dict:delete(line)) end
  return {
    get = function(line) return (dict:get(line)) end,
    set = function(line, bytes) return dict:set(line, bytes) end,
    remove = remove,
    clear = function(prefix)
      for _, line in ipairs(succeeds(dict:keys())) do
        if type(line) == "string" and line:sub(1, #prefix) == prefix then remove(line) end
      end
    end,
  }
end

local CLEANED, BLOCK = 0.9, 4096 -- of the largest size, what is left of a folder that was too large; of a disk

-- object: see core.cache_copied.
function stores.folder(path, bytes_max, object)
  local file = require "luaserve.file"
  local function path_of(line)
    local name = core.cache_name(line)
    return path .. "/" .. name:sub(1, 2), name
  end
  -- Whether a copy, or one that was not written to its end, has that name: others in the folder are not ours.
  local function is_copy(folder, name)
    return #name == 32 and name:find("^%x+$") and name:sub(1, 2) == folder or name:find("^%.luaserve%-%x+$")
  end
  local function each(fn)
    for _, folder in ipairs(succeeds(file.list(path)) or {}) do
      for _, info in ipairs(folder:find("^%x%x$") and succeeds(file.list(path .. "/" .. folder, { details = true })) or {}) do
        if info.type == "file" and is_copy(folder, info.name) then fn(path .. "/" .. folder .. "/" .. info.name, info) end
      end
    end
  end
  local function on_disk(size) return (size + BLOCK - 1) // BLOCK * BLOCK end
  local sweeping = false
  -- Measure the files, one task at a time; if there is no room for `size` more bytes, remove the oldest ones. -> whether there
  -- is room.
  local function make_room(size)
    if size > bytes_max then return false end
    while sweeping do core.sleep(0.01) end
    local bytes_before, written = core.cache_copied(object, 0)
    if bytes_before + size <= bytes_max then return true end
    sweeping = true
    local _ <close> = setmetatable({}, { __close = function() sweeping = false end })
    local bytes, by_time, times, last = 0, {}, {}, nil -- in steps of 10 ms: the folder may have very many files
    local function time_of(info) return info.mtime * 100 // 1 end
    each(function(_, info)
      local at, its = time_of(info), on_disk(info.size)
      if not by_time[at] then times[#times + 1] = at end
      bytes, by_time[at] = bytes + its, (by_time[at] or 0) + its
    end)
    table.sort(times)
    local most = bytes + size > bytes_max and math.min(bytes_max * CLEANED, bytes_max - size) or bytes
    for _, at in ipairs(times) do
      if bytes <= most then break end
      bytes, last = bytes - by_time[at], at
    end
    if last then each(function(name, info) if time_of(info) <= last then file.remove(name) end end) end
    core.cache_copied(object, 0, bytes - written)
    return true
  end
  return {
    get = function(line) return (file.read(("%s/%s"):format(path_of(line)))) end,
    set = function(line, bytes)
      local size, folder, name = on_disk(#bytes), path_of(line)
      if core.cache_copied(object, 0) + size > bytes_max and not make_room(size) then return false end
      core.cache_copied(object, size)
      local done, message = file.mkdir(folder, { parents = true })
      if done then done, message = file.write(folder .. "/" .. name, bytes, { atomic = true, sync = false }) end
      if not done then core.log("warn", "app:proxy: cache: " .. message) end
      return done
    end,
    remove = function(line) succeeds(file.remove(("%s/%s"):format(path_of(line)))) end,
    clear = function(prefix)
      each(function(name)
        local bytes = file.read(name) -- nil: also of one that may be read later
        if not bytes or bytes:sub(1, #prefix) == prefix then succeeds(file.remove(name)) end
      end)
    end,
  }
end

local function remove(self, line, prefix)
  local count, removal = core.cache_remove(self.object, line and line .. "\n" or prefix, self.store ~= nil)
  if removal then
    while core.cache_await(removal) do end
    (line and self.store.remove or self.store.clear)(line or prefix)
    core.cache_end(nil, removal, false, false)
  end
  return count
end

-- Remove the stored responses of a line, or of all lines that begin with `prefix`. -> the number of those in memory. With a
-- second store in a task of its own, which continues when the client leaves.
local function discard(self, line, prefix)
  if self.store then
    local begun, job = pcall(core.spawn, remove, self, line, prefix) -- unless there are too many
    if begun then return job:wait() end
  end
  return remove(self, line, prefix)
end

-- An entry of core.cache_list as bytes, with their checksum before them: the time of its age, in seconds since 1970, and its
-- parts. Times have 6 bytes, so that no sum of them overflows.
local CHECKED, ENTRY, MAGIC = "<c8c32s4", "<I6I6I6I6I6I2BBs4s4s4s4", "lsstore3"

local function pack(entry)
  local text = string.pack(ENTRY, time(), max(entry.age_ms, 0), entry.lifetime_ms, entry.refresh_ms, entry.error_ms,
    entry.status, entry.strict and 1 or 0, entry.for_all and 1 or 0, entry.key, entry.select, entry.lines, entry.body)
  return string.pack(CHECKED, MAGIC, core.cache_name(text), text)
end

-- Restore the entries of the line at bytes[from..]. -> their number; one that is damaged ends them.
local function unpack_all(fill, line, bytes, from)
  local count = 0
  while from <= #bytes do
    local whole, magic, checksum, text, after = pcall(string.unpack, CHECKED, bytes, from)
    if not whole or magic ~= MAGIC or checksum ~= core.cache_name(text) then break end
    local made, stored_s, age_ms, lifetime_ms, refresh_ms, error_ms, status, strict, for_all, key, selects, lines, body =
      pcall(string.unpack, ENTRY, text)
    if not made then break end
    local facts = { age_ms = age_ms + max(time() - stored_s, 0) * 1000, lifetime_ms = lifetime_ms, refresh_ms = refresh_ms,
      error_ms = error_ms, strict = strict ~= 0, for_all = for_all ~= 0 }
    if is_line(key, line) and core.cache_restore(fill, status, facts, key, selects, lines, body) then count = count + 1 end
    from = after
  end
  return count
end

-- Copy what is stored for the request to the second store.
local function keep(self, res, key)
  local whole = key or core.cache_key(res)
  local line = whole:match("^[^\n]*")
  if self.copies[whole] then return end -- a task that has not begun to do so
  self.copies[whole] = pcall(core.spawn, function() -- unless there are too many
    local _ <close> = setmetatable({}, { __close = function() self.copies[whole] = nil end })
    local claim
    repeat claim = core.cache_claim(nil, self.object, line .. "\n\0", nil, 0, math.huge) until type(claim) == "userdata"
    self.copies[whole] = nil -- what is stored from now on needs another copy
    local parts = { line .. "\n" }
    for _, entry in ipairs(core.cache_list(self.object, whole)) do parts[#parts + 1] = pack(entry) end
    if not parts[2] or not self.store.set(line, concat(parts)) then self.store.remove(line) end
    core.cache_end(nil, claim, false, false)
  end) or nil
end

-- Get what the second store has for the request of the fill. -> whether there is something.
local function restore(self, res, key, fill)
  local line = (key or core.cache_key(res)):match("^[^\n]*")
  local bytes = self.store.get(line)
  return is_line(bytes, line) and unpack_all(fill, line, bytes, #line + 2) > 0
end

-- ---- a response on its way -----------------------------------------------------------------------------------------

local own_text = "app:proxy: the cache keeps no response to requests with %s, which may be for one client: let them say "
  .. "Vary: %s or Cache-Control: public, or give cache.key, and for Cookie cache.cookies = true"

-- What app:proxy does beside one request: { cache =, req =, reason = of Cache-Status, fill =, lines =, drops = of the
-- request to the server, ready = see cache:answer, key =, validates, reload = flags, anyway = although a fresh response is
-- stored }.
local plan_meta = {}
plan_meta.__index = plan_meta

-- Whether the stored response is the answer to a failure, of which Cache-Status says `how`.
function plan_meta:stale(res, how)
  local fill = self.fill
  self.fill = nil
  if not fill then return false end
  if not core.cache_stale(fill) then
    core.cache_end(nil, fill, false, true)
    return false
  end
  return core.cache_end(res, fill, false, true, "fwd=stale" .. how)
end

-- No server has answered. -> whether a stored response is the answer.
function plan_meta:failed(res, begun)
  if not begun then return self:stale(res, "") end
  if self.fill then core.cache_end(nil, self.fill, false, false) end
  self.fill = nil
  return false
end

-- The response is replaced by one of a hook.
function plan_meta:replaced()
  if self.fill then core.cache_end(nil, self.fill, false, true) end
  self.fill = nil
end

-- The targets that the response to an unsafe method makes invalid (RFC 9111 section 4.4).
local function invalidate(self, req, res)
  local function discard_target(target)
    local done, message = pcall(discard, self, target)
    if not done then core.log("error", tostring(message)) end -- the server has done what the request asks for
  end
  discard_target((req.target:gsub("^%a[%w+.-]*://[^/?]*", "")))
  for _, name in ipairs { "location", "content-location" } do
    local value = res:header(name)
    local host, target = (value or ""):match("^%a[%w+.-]*://([^/?#]*)([^#]*)")
    if not host then target = value and value:match("^/[^#]*") end
    if target and (not host or host == req.authority) then discard_target(target) end
  end
end

-- The fields of "Name: value\r\n"...: by names in lower case, several of one name joined with ", ".
local function fields_of(lines)
  local fields = {}
  for name, value in lines:gmatch("([^:\r\n]+): *([^\r\n]*)\r\n") do
    name = name:lower()
    fields[name] = fields[name] and fields[name] .. ", " .. value or value
  end
  return fields
end

-- The head of the response of `call` was taken. -> true: the response is another one, and complete.
function plan_meta:head(res, call)
  local status, fill, stored, req = res:status(), self.fill, false, self.req
  if not safe[req.method] and status < 400 then invalidate(self.cache, req, res) end
  if fill and own_error[status] and core.cache_stale(fill) then
    core.proxy_refuse(res, call)
    return self:stale(res, "; fwd-status=" .. status)
  end
  if fill then
    local validated = status == 304 and self.validates
    local fields = fields_of(core.cache_lines(fill, call))
    fields.age = res:header("age")
    local ready = self.ready
    local facts, own = rules.store(validated and 200 or status, fields, time(), self.cache.lifetime), nil
    if facts then stored, own = core.cache_keep(fill, call, facts, facts.vary, ready) end
    if own and own:lower() ~= "authorization" and not self.cache.said then
      self.cache.said = true
      core.log("info", own_text:format(own, own))
    end
    if validated then
      core.proxy_refuse(res, call)
      self.fill = nil
      core.cache_end(res, fill, stored, not stored, "fwd=stale; fwd-status=304" .. (stored and "; stored" or ""))
      if stored and self.cache.store then keep(self.cache, res, self.key) end
      return true
    elseif not stored then
      self:replaced()
    end
  end
  local before, text = res:header("cache-status"), "luaserve; fwd=" .. self.reason .. (stored and "; stored" or "")
  res:header("Cache-Status", before and { before, text } or text)
end

-- All of the response has been passed on.
function plan_meta:complete(res)
  if not self.fill then return end
  core.cache_end(nil, self.fill, false, false) -- it was stored before the client had all of it
  self.fill = nil
  if self.cache.store then keep(self.cache, res, self.key) end
end

-- ---- a request -----------------------------------------------------------------------------------------------------

local fill_drops = "if-none-match,if-modified-since,if-range," -- fields that a request that fills the cache does not have
local refresh_drops = "x-forwarded-for,x-forwarded-proto,x-forwarded-host,"

-- Begin a fill for the plan. `again()`: another one has ended; whether the response is there now, or why not. -> whether it
-- is.
local function begin_fill(plan, res, again)
  local self, wait = plan.cache, not plan.reload and plan.cache.wait_ms / 1000 or nil
  local looks = self.store ~= nil and plan.reason ~= "stale"
  while true do
    local claim = core.cache_claim(res, self.object, plan.key, plan.ready, self.body_bytes_max, wait, plan.anyway)
    if claim == "late" then
      wait = false
    elseif claim ~= "again" and looks then -- once, while others wait
      looks = false
      local found = restore(self, res, plan.key, claim)
      core.cache_end(nil, claim, false, false)
      claim = found and not plan.reload and "again"
    end
    if claim == "again" then
      local done, why = again()
      if done then return true end
      if plan.anyway then wait = nil else plan.reason = why end
    elseif claim and claim ~= "late" then
      plan.fill = claim
      break
    end
  end
  local stored, lines = fields_of(core.cache_lines(plan.fill) or ""), {}
  if stored.etag then lines[1] = "If-None-Match: " .. stored.etag .. "\r\n" end
  if stored["last-modified"] then lines[#lines + 1] = "If-Modified-Since: " .. stored["last-modified"] .. "\r\n" end
  plan.validates = lines[1] ~= nil
  plan.lines, plan.drops = (plan.lines or "") .. concat(lines), (plan.drops or "") .. fill_drops
  return false
end

local function inject_failed(err) core.log("error", "app:proxy: a stored response was not refreshed: " .. tostring(err)) end

-- Get the response for `key` again, in a task of its own. run, ready: as of cache:answer.
local function refresh(self, req, key, run, ready)
  local fields, lines = {}, ("X-Forwarded-For: %s\r\nX-Forwarded-Proto: %s\r\nX-Forwarded-Host: %s\r\n%s"):format(req.ip,
    req.scheme, req.authority or "", core.proxy_said(req))
  for name, value in pairs(req.headers) do
    if not of_client[name] then fields[#fields + 1], fields[#fields + 2] = name, value end
  end
  pcall(core.spawn, core.inject, function(inner, res) -- unless there are too many: another request tries it later
    local plan = setmetatable({ cache = self, req = inner, reason = "stale", key = key, lines = lines,
      drops = refresh_drops, ready = ready }, plan_meta)
    local function look() return core.cache_serve(res, self.object, key, ready, -1, -1, -1) end
    if begin_fill(plan, res, look) then return end
    return run(inner, res, plan, ready)
  end, inject_failed, "GET", req.target, fields)
end

-- Fields that a hook sets for each request, and on which no response depends.
local of_request = is_one_of("x-request-id", "x-correlation-id", "traceparent", "tracestate", "baggage", "x-real-ip", "x-forwarded-for")

-- keyed(self, key, lines) -> a key of the site, and what the hook has set: the server may answer by that, although `key` does not
-- have it.
local function keyed(self, key, lines)
  local list, names = {}, {}
  for name, value in (lines or ""):gmatch("([^:\r\n]+):([^\r\n]*)") do
    if not of_request[name:lower()] then list[#list + 1], names[#names + 1] = name:lower() .. value, name end
  end
  if not list[1] then return key end
  sort(list)
  local text = concat(list, "\n")
  if self.key_before == key and self.text_before ~= text and not self.said_keyed then
    self.said_keyed = true
    core.log("info", ("app:proxy: the cache keeps one response of a key for each value of what the hook sets: let cache.key have what makes "
      .. "the responses different; it sets %s"):format(concat(names, ", ")))
  end
  self.key_before, self.text_before = key, text
  return key .. "\n" .. core.cache_name(text)
end

local function is_partial(headers)
  return headers.range or headers["if-match"] or headers["if-unmodified-since"]
end

local cache_meta = {}
cache_meta.__index = cache_meta

-- cache:answer(req, res, run, ready) -> results of a handler. run(req, res, plan, ready) asks a server. ready: what the
-- request hook has made of the request, { lines =, drops =, path = }; nil: no hook.
function cache_meta:answer(req, res, run, ready)
  local key, done, reason, asked
  if self.key then
    key = self.key(req)
    usage.check(key, "string?", "%s: the function cache.key must return a string or nil", fname)
    key = key and core.cache_key(res, key) -- nil: it is too long, also for the cache
  end
  if ready and ready.path and (key or not self.key) then
    local whole = key or core.cache_key(res)
    key = whole and whole .. "\n" .. ready.path
  end
  if self.key and key and ready then key = keyed(self, key, ready.lines) end
  if self.key and not key then
    reason = "bypass"
  else
    done, reason = core.cache_serve(res, self.object, key, ready)
    if done == true then return end
    if done then return refresh(self, req, key or reason, run, ready) end
  end
  local function look()
    local found, why
    if asked then
      found, why = core.cache_serve(res, self.object, key, ready, asked.age_max, asked.fresh_min, asked.stale_max)
    else
      found, why = core.cache_serve(res, self.object, key, ready)
    end
    if found == "refresh" then refresh(self, req, key or why, run, ready) end
    return found ~= nil, why
  end
  if reason == "asks" then
    asked, reason = rules.asked(req.headers["cache-control"], req.headers.pragma), "request"
    if not asked.reload and look() then return end
    if asked.only_if_cached then return 504 end
    if asked.no_store then reason = "bypass" end
  end
  local fills = reason ~= "bypass" and reason ~= "method"
  if fills and (req.method == "HEAD" or is_partial(req.headers)) then fills, reason = false, "bypass" end
  local plan = setmetatable({ cache = self, req = req, reason = reason, key = key, anyway = asked ~= nil,
    reload = asked ~= nil and asked.reload, ready = ready }, plan_meta)
  if fills and begin_fill(plan, res, look) then return end
  return run(req, res, plan, ready)
end

-- store is a ProxyStore: the stored responses of an app:proxy.
-- store:purge([path: string]) -> count: integer
-- Removes the stored responses of a path with its query, "/news/*" those of all that begin so; without one, all.
function cache_meta:purge(path, ...)
  usage.no_more("store:purge(path)", path, ...)
  usage.refuse(path ~= nil and (type(path) ~= "string" or path == ""), path,
    'store:purge takes a path such as "/a?b=1" or "/news/*"')
  if self.store and not core.can_wait() then
    usage.error("store:purge: cannot wait while the site loads or inside a C function; call it in a handler or in ls.init")
  end
  local prefix = path and path:match("^(.*)%*$")
  return discard(self, not prefix and path or nil, prefix or "")
end

local names = {} -- numbers of equal names, so that each Lua state finds the same ones

-- cache.new(given, name) -> the cache of an app:proxy.
function cache.new(given, name)
  usage.check(given, "table", '%s: cache must be a table such as { size = "64m" }', fname)
  local self = options.take(fname, given, cache.calls["app:proxy: cache"], {}, "cache.")
  if self.cookies and not given.key then usage.error("%s: cache.cookies is for cache.key, which has what a response depends on", fname) end
  self.copies = {} -- a set of keys, see keep()
  if given.dict ~= nil and given.folder ~= nil then usage.error("%s: give one of cache.dict and cache.folder", fname) end
  if given.dict ~= nil then
    name = tostring(given.dict)
    usage.refuse(not name:find("^dict '"), given.dict,
      '%s: cache.dict must be a dict, such as ls.dict("pages", { evict = true })', fname)
  elseif given.folder ~= nil then
    name = "folder " .. given.folder
  else
    names[name] = (names[name] or 0) + 1
    name = ("%d %s"):format(names[name], name)
  end
  self.lifetime = self.lifetime_ms > 0 and self.lifetime_ms / 1000 or nil
  -- One memory for each second store, also after a reload.
  self.object = core.cache(core.cache_name(name), self.bytes_max, given.key and (self.cookies and 2 or 1) or 0)
  if given.dict ~= nil then
    self.store = stores.dict(given.dict)
  elseif given.folder ~= nil then
    self.store = stores.folder(given.folder, self.folder_bytes_max, self.object)
  end
  return setmetatable(self, cache_meta)
end

return cache
