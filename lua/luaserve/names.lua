-- names.lua - what the site has probably meant, for messages about an unknown name and about an argument too many.

local usage = require "luaserve.usage"

local names = {}

-- edit_distance(a, b) -> the Damerau-Levenshtein distance of two short names: each insertion, deletion, replacement
-- and transposition of adjacent bytes counts 1.
function names.edit_distance(a, b)
  local before, above, row = nil, {}, {}
  for j = 0, #b do above[j] = j end
  for i = 1, #a do
    row[0] = i
    local ai = a:byte(i)
    for j = 1, #b do
      local bj = b:byte(j)
      local cost = ai == bj and 0 or 1
      local best = math.min(above[j] + 1, row[j - 1] + 1, above[j - 1] + cost)
      if before and j > 1 and ai == b:byte(j - 1) and a:byte(i - 1) == bj then
        best = math.min(best, before[j - 2] + 1)
      end
      row[j] = best
    end
    before, above, row = above, row, {}
  end
  return above[#b]
end

local function sorted_words(name)
  local words = {}
  for word in name:gmatch("[^_]+") do words[#words + 1] = word end
  table.sort(words)
  return table.concat(words, "_")
end

-- Names that other programs have, in small letters without "_", and what luaserve may call the same.
local synonyms = {}
for new, old in pairs {
  ["header"] = "set get setheader getheader append", ["status"] = "writehead statuscode sendstatus", ["cookie"] = "setcookie clearcookie",
  ["type"] = "contenttype mime", ["file"] = "sendfile download", ["send"] = "end say text emit broadcast", ["write"] = "print echo",
  ["render"] = "view template", ["query"] = "args", ["params"] = "param", ["parts"] = "files", ["cookies"] = "cookie",
  ["scheme"] = "protocol", ["target"] = "url originalurl", ["host"] = "hostname", ["ip"] = "remoteaddr host",
  ["len"] = "size count length", ["set"] = "put", ["get"] = "has exists fetch", ["delete"] = "remove del unset", ["incr"] = "increment",
  ["rpush"] = "push append", ["lpop"] = "pop shift", ["lpush"] = "unshift", ["read"] = "text body data receive", ["body"] = "text",
  ["receive"] = "recv read", ["lines"] = "readline", ["exec"] = "execute run", ["one"] = "first get fetchone",
  ["out"] = "stdout", ["err"] = "stderr", ["code"] = "status exitcode", ["local_port"] = "port",
} do
  for name in old:gmatch("%S+") do
    synonyms[name] = synonyms[name] or {}
    table.insert(synonyms[name], new)
  end
end
for _, list in pairs(synonyms) do table.sort(list) end

-- What to write in place of names that other programs have, by object, in small letters without "_"; `*` for each object.
local habits = {}
for object, list in pairs {
  ["ls"] = { ["os.time() or ls.now()"] = "time", ["ls.fetch(url)"] = "http request get post axios", ["res:redirect(url)"] = "redirect",
    ["res:render(name, values)"] = "render", ["ls.crypto.uuid()"] = "uuid", ["ls.env(name)"] = "getenv", ["ls.process(list)"] = "exec system",
    ["ls.log.info(...)"] = "print say logger", ["ls.after(seconds, fn)"] = "settimeout", ["ls.every(seconds, fn)"] = "setinterval",
    ["ls.crypto.sha256(text)"] = "md5 hash sha256", ["ls.dict(name)"] = "cache shared", ["ls.semaphore(name, 1)"] = "lock mutex",
    ["app:get(path, fn), of local app = ls.app()"] = "route router" },
  ["ls.json"] = { ["ls.json.decode(text)"] = "parse loads", ["ls.json.encode(value)"] = "stringify dumps" },
  ["ls.file"] = { ["ls.file.write(path, text, { append = true })"] = "append", ["ls.file.stat(path)"] = "exists size isfile isdir",
    ["ls.file.remove(path)"] = "delete unlink rm", ["ls.file.read(path)"] = "open readfile" },
  ["ls.html"] = { ["ls.html.escape(text)"] = "encode", ["{- value -} in a template"] = "raw" },
  ["ls.url"] = { ["ls.url.decode(text)"] = "unescape", ["ls.url.encode(text)"] = "escape" },
  ["ls.date"] = { ["os.time() or ls.now()"] = "now", ["os.date(format, time)"] = "format strftime" },
  ["ls.crypto"] = { ["ls.crypto.sha256(text)"] = "md5 hash", ["ls.crypto.password.hash(text)"] = "bcrypt argon2 scrypt" },
  ["channel"] = { ["channel:send(value)"] = "push put", ["channel:receive()"] = "pop get recv" },
  ["semaphore"] = { ["semaphore:with(fn)"] = "lock" },
  ["queue"] = { ["queue:push(data)"] = "add enqueue send", ["queue:run(fn)"] = "process work consume", ["queue:remove(id)"] = "delete" },
  ["job of a queue"] = { ["nothing: it is done when the function returns"] = "done complete finish ack", ["job.attempt"] = "tries attempts",
    ["error(reason), and it runs again later"] = "retry fail release nack", ["job.data"] = "payload body args message" },
  ["database"] = { ["db:transaction(function(tx) ... end)"] = "begin commit rollback", ["db:query(sql)"] = "all select fetchall",
    ["db:exec(sql).last_id, or db:insert(name, row)"] = "lastid lastinsertrowid lastinsertid",
    ["the values after the statement: db:query(sql, ...)"] = "prepare", ["nothing: it stays open"] = "close" },
  ["transaction"] = { ["nothing: it is committed when the function returns"] = "commit", ["return nil, reason, which undoes it"] = "rollback abort",
    ["tx:exec in the same function: a transaction has none within it"] = "transaction begin", ["tx:query(sql)"] = "all select fetchall" },
  ["result of exec"] = { ["db:query(sql), or db:one(sql)"] = "rows 1 2", [".changes"] = "rowcount affectedrows affected",
    [".last_id"] = "id lastinsertrowid lastinsertid insertid" },
  ["result of pg:exec"] = { ["pg:query(sql), or pg:one(sql)"] = "rows 1 2", [".changes"] = "rowcount affectedrows affected",
    ['pg:one("insert ... returning id", ...).id'] = "id lastid insertid lastinsertid" },
  ["req"] = { ['req.headers["user-agent"]'] = "useragent", ['req.headers["content-type"]'] = "is contenttype", ["req.headers.referer"] = "referer referrer" },
  ["app"] = { ["ls.listen(8080, app)"] = "listen run start", ["app:ws(path, { message = fn })"] = "websocket", ["ls.on(event, fn)"] = "on" },
  ["sock"] = { ["a loop, as for line in sock:lines() do"] = "on" }, ["WebSocket"] = { ["app:ws(path, { message = fn })"] = "on" },
} do
  habits[object] = {}
  for new, old in pairs(list) do
    for name in old:gmatch("%S+") do habits[object][name] = new end
  end
end

-- habit(object, name) -> what to write in place of a name that an object such as "a queue" does not have, or nil
function names.habit(object, name)
  local of = habits[object:gsub("^an? ", "")]
  return of and of[tostring(name):lower():gsub("_", "")]
end

local function synonym(name, known)
  for _, new in ipairs(synonyms[name:lower():gsub("_", "")] or {}) do
    if rawget(known, new) ~= nil then return new end
  end
  return nil
end

-- nearest(name, known) -> the key of `known` with the smallest distance to `name`, or nil when every key is too far.
-- A synonym is the nearest. The same words in another order (timeout_idle, idle_timeout) are near, and so is a beginning (warning, warn). A name
-- after "on_" (on_close, close) is the nearest.
function names.nearest(name, known)
  if type(name) ~= "string" then return nil end
  local wanted = name:lower()
  local event = wanted:match("^on_(.+)$")
  if event and rawget(known, event) ~= nil then return event end
  local new = synonym(name, known)
  if new then return new end
  local most = #wanted < 5 and 1 or math.max(2, #wanted // 3)
  local best, best_distance = nil, most + 1
  for candidate in pairs(known) do
    local distance = math.min(names.edit_distance(wanted, candidate),
      names.edit_distance(sorted_words(wanted), sorted_words(candidate)) + 1)
    local shorter = math.min(#wanted, #candidate)
    if shorter >= 3 and wanted:sub(1, shorter) == candidate:sub(1, shorter) then distance = math.min(distance, most) end
    if distance < best_distance or distance == best_distance and best and candidate < best then
      best, best_distance = candidate, distance
    end
  end
  return best
end

-- misspelled(name, known) -> the key of `known` that is a synonym of `name` or one letter away from it, or nil. Names of
-- less than 5 letters have such a neighbour by chance.
function names.misspelled(name, known)
  local best = synonym(name, known)
  if best or #name < 5 then return best end
  for candidate in pairs(known) do
    if math.abs(#candidate - #name) <= 1 and (best == nil or candidate < best)
      and names.edit_distance(name, candidate) == 1 then
      best = candidate
    end
  end
  return best
end

-- warn_misspelled(name, known): logs that a field of a request is nil, if it is nearly one of the names of `known`.
function names.warn_misspelled(name, known)
  local habit, near = names.habit("req", name), names.misspelled(name, known)
  if not habit and not near then return end
  local text = string.format(habit and "%s: req.%s is nil; write %s" or "%s: req.%s is nil; did you mean req.%s?", usage.caller() or "?", name,
    habit or near)
  require("luaserve.core").log("warn", text)
end

-- extra(call, value) -> what to do about an argument that `call` does not take; "" if that is not clear.
function names.extra(call, value)
  if value == "text" or value == "binary" then return "; put a call of ws:receive in parentheses" end
  if math.type(value) ~= "integer" then return "" end
  if call:find("^res:") and value >= 200 and value <= 999 then
    return "; set the status before, with res:status(" .. value .. ")"
  end
  return "; put a call that returns several values, such as string.gsub, in parentheses"
end

-- unknown_member(object, name, known): raises for a name that an object does not have. `known`: a table with its names.
function names.unknown_member(object, name, known)
  usage.error("%s has no method or field '%s'%s", object, tostring(name), usage.suggest(name, known, object))
end

-- hint(message) -> the message of an error of Lua about a call of a method that is nil, or no function, with what was probably meant;
-- about ipairs or pairs of a function. task_error.c calls it where the error was raised.
function names.hint(message)
  if not message:find("(method '", 1, true) then
    return (message:find(":%d+: ") and "" or (usage.caller() or "?") .. ": ") .. message
      .. "; an iterator stands alone, without ipairs and pairs, as in for part in req:parts() do"
  end
  local kind, method = message:match("attempt to call an? (%l+) value %(method '(.-)'%)$")
  if kind ~= "nil" then return ("%s; '%s' is a %s: read it without a call, as in .%s%s"):format(message, method, kind, method,
    kind == "table" and ".name" or "") end
  local object, missing
  for n = 1, 250 do -- the values of the call: its function, which is nil, the object, the arguments
    local label, value = debug.getlocal(3, n)
    if not label then break end
    if missing and debug.getmetatable(value) then object = value end
    missing = value == nil
  end
  local meta = object and debug.getmetatable(object)
  local index = meta and meta.__index
  for n = 1, type(index) == "function" and 9 or 0 do
    local _, value = debug.getupvalue(index, n)
    if type(value) == "table" and next(value) ~= nil then index = value break end
  end
  return message .. (type(index) == "table" and usage.suggest(method, index, rawget(meta, "__name")) or "")
end

return names
