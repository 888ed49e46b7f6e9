-- usage.lua - how luaserve says that it was called wrongly: at the caller's line, with the nearest right name.
--
-- A message must point into the file of the person who reads it. So the modules of luaserve report themselves with
-- `ours()`, and the place of a call is the innermost function that belongs to none of them.

local usage = {}

local own_sources = {}

-- Called once at the top of each module of luaserve: its functions are skipped when a place is looked for.
function usage.ours()
  own_sources[debug.getinfo(2, "S").source] = true
end

usage.ours()

-- "site.lua:12", the line that called into luaserve; nil when no Lua function of the user is on the stack (a tail call
-- may have replaced it).
function usage.where()
  local level = 2
  while true do
    local info = debug.getinfo(level, "Sl")
    if not info then return nil end
    if info.what ~= "C" and info.currentline > 0 and not own_sources[info.source] then
      return info.short_src .. ":" .. info.currentline
    end
    level = level + 1
  end
end

-- Raise "site.lua:12: <message>". Arguments as for string.format.
function usage.raise(format, ...)
  local where = usage.where()
  local message = string.format(format, ...)
  error(where and where .. ": " .. message or message, 0)
end

-- The Damerau-Levenshtein distance of two short names (insert, delete, replace, swap neighbours: 1 each).
function usage.distance(a, b)
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

local function words_in_order(name)
  local words = {}
  for word in name:gmatch("[^_]+") do words[#words + 1] = word end
  table.sort(words)
  return table.concat(words, "_")
end

-- The key of `known` that was most likely meant by `name`, or nil when none is near. Words in another order
-- (timeout_idle, idle_timeout) are near.
function usage.nearest(name, known)
  if type(name) ~= "string" then return nil end
  local wanted = name:lower()
  local best, best_distance = nil, math.max(2, #wanted // 3) + 1
  for candidate in pairs(known) do
    local distance = math.min(usage.distance(wanted, candidate),
      usage.distance(words_in_order(wanted), words_in_order(candidate)) + 1)
    if distance < best_distance or distance == best_distance and best and candidate < best then
      best, best_distance = candidate, distance
    end
  end
  return best
end

-- "; did you mean 'x'?" or "", to end a message about an unknown name.
function usage.hint(name, known)
  local near = usage.nearest(name, known)
  return near and "; did you mean '" .. near .. "'?" or ""
end

-- How a value looks in a message: strings in quotes, numbers as they are, anything else by its type.
function usage.show(value)
  if type(value) == "string" then
    if #value > 60 then value = value:sub(1, 57) .. "..." end
    return string.format("%q", value)
  elseif type(value) == "number" or type(value) == "boolean" or value == nil then
    return tostring(value)
  end
  return "a " .. type(value)
end

return usage
