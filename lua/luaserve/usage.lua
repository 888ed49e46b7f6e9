-- usage.lua - errors in calls of luaserve: a message with the file and line of the caller and a suggestion.
--
-- The message must point into the site's file, not into luaserve. So every module of luaserve calls mark_internal(),
-- and the caller is the innermost Lua function outside these modules.

local usage = {}

local internal_sources = {}

-- mark_internal(): usage.caller skips the functions of the calling file. Each module of luaserve calls it once.
function usage.mark_internal()
  internal_sources[debug.getinfo(2, "S").source] = true
end

-- is_internal(source) -> whether `source`, of debug.getinfo, is a module of luaserve that called mark_internal.
function usage.is_internal(source) return internal_sources[source] == true end

usage.mark_internal()

-- caller() -> "site.lua:12", the line of the site that called luaserve, or nil when the stack has no Lua function of
-- the site (a tail call may have replaced it).
function usage.caller()
  local level = 2
  while true do
    local info = debug.getinfo(level, "Sl")
    if not info then return nil end
    if info.what ~= "C" and info.currentline > 0 and not internal_sources[info.source] then
      return info.short_src .. ":" .. info.currentline
    end
    level = level + 1
  end
end

-- error(format, ...): raises "site.lua:12: message". Arguments as for string.format.
function usage.error(format, ...)
  local where = usage.caller()
  local message = string.format(format, ...)
  error(where and where .. ": " .. message or message, 0)
end

-- edit_distance(a, b) -> the Damerau-Levenshtein distance of two short names: each insertion, deletion, replacement
-- and transposition of adjacent bytes counts 1.
function usage.edit_distance(a, b)
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

-- nearest(name, known) -> the key of `known` with the smallest distance to `name`, or nil when every key is too far.
-- The same words in another order (timeout_idle, idle_timeout) are near, and so is a beginning (warning, warn). A name
-- behind "on_" (on_close, close) is the nearest.
function usage.nearest(name, known)
  if type(name) ~= "string" then return nil end
  local wanted = name:lower()
  local event = wanted:match("^on_(.+)$")
  if event and rawget(known, event) ~= nil then return event end
  local best, best_distance = nil, math.max(2, #wanted // 3) + 1
  for candidate in pairs(known) do
    local distance = math.min(usage.edit_distance(wanted, candidate),
      usage.edit_distance(sorted_words(wanted), sorted_words(candidate)) + 1)
    local shorter = math.min(#wanted, #candidate)
    if shorter >= 3 and wanted:sub(1, shorter) == candidate:sub(1, shorter) then distance = math.min(distance, 2) end
    if distance < best_distance or distance == best_distance and best and candidate < best then
      best, best_distance = candidate, distance
    end
  end
  return best
end

-- suggest(name, known) -> "; did you mean 'x'?" or "", the end of a message about an unknown name.
function usage.suggest(name, known)
  local near = usage.nearest(name, known)
  return near and "; did you mean '" .. near .. "'?" or ""
end

-- misspelled(name, known) -> the key of `known` that is one letter away from `name`, or nil. Short names have such a
-- neighbour by chance: for names of less than 5 letters it returns nil.
function usage.misspelled(name, known)
  if #name < 5 then return nil end
  local best
  for candidate in pairs(known) do
    if math.abs(#candidate - #name) <= 1 and (best == nil or candidate < best)
      and usage.edit_distance(name, candidate) == 1 then
      best = candidate
    end
  end
  return best
end

-- strict(title, t) -> t, with a metatable that raises when an unknown name is read: `title` is the name of t.
function usage.strict(title, t)
  return setmetatable(t, {
    __index = function(_, name)
      usage.error("%s has no %s%s", title, usage.quote(name), usage.suggest(name, t))
    end,
  })
end

-- is_loader_data(value, extra) -> whether `extra` may be the second result of the `require` that returned `value`, as
-- in app:mount("/api", require "api").
function usage.is_loader_data(value, extra)
  if type(extra) ~= "string" or value == nil then return false end
  for _, module in pairs(package.loaded) do
    if rawequal(module, value) then return true end
  end
  return false
end

-- no_more(call, last, ...): raises if an argument behind `last` is not nil: it would be ignored. `call` shows the right
-- call, such as "app:error(fn)". A second result of `require` behind `last` is ignored.
function usage.no_more(call, last, ...)
  for i = usage.is_loader_data(last, (...)) and 2 or 1, select("#", ...) do
    local extra = select(i, ...)
    if extra ~= nil then usage.error("too many arguments for %s: got %s as well", call, usage.quote(extra)) end
  end
end

-- quote(value) -> the value as text for a message: a string in quotes, at most 60 bytes of it; a number, boolean or
-- nil as tostring does; any other value by its type.
function usage.quote(value)
  if type(value) == "string" then
    if #value > 60 then value = value:sub(1, 57) .. "..." end
    return string.format("%q", value)
  elseif type(value) == "number" or type(value) == "boolean" or value == nil then
    return tostring(value)
  end
  return "a " .. type(value)
end

return usage
