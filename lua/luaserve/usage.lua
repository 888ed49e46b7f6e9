-- usage.lua - errors in calls of luaserve: a message with the file and line of the caller and a suggestion.
--
-- The message must point into the site's file, not into luaserve: the caller is the innermost Lua function outside of
-- the modules of luaserve.

local pcall, require, preload = pcall, require, package.preload -- a site may replace the globals

local usage = {}

-- is_internal(source) -> whether `source`, of debug.getinfo, is a module of luaserve: those are in package.preload.
function usage.is_internal(source)
  local name = source:match("^@luaserve/(.*)%.lua$")
  return name ~= nil and preload[name == "init" and "luaserve" or "luaserve." .. name:gsub("/", ".")] ~= nil
end

-- caller([whole]) -> "site.lua:12", the line of the site that called luaserve, or nil when the stack has no Lua function of
-- the site (a tail call may have replaced it). `whole`: with the whole path of a file.
function usage.caller(whole)
  local level = 2
  while true do
    local info = debug.getinfo(level, "Sl")
    if not info then return nil end
    if info.what ~= "C" and info.currentline > 0 and not usage.is_internal(info.source) then
      return (whole and info.source:match("^@(.*)") or info.short_src) .. ":" .. info.currentline
    end
    level = level + 1
  end
end

-- where() -> that line, or "?", for the messages of the core: at most 79 bytes.
function usage.where() return (usage.caller() or "?"):sub(1, 79) end

-- error(format, ...): raises "site.lua:12: message". Arguments as for string.format.
function usage.error(format, ...)
  local where = usage.caller()
  local message = string.format(format, ...)
  error(where and where .. ": " .. message or message, 0)
end

-- suggest(name, known [, object]) -> "; write x", of the habits of an object such as "a queue" in names.lua, or "; did you mean 'x'?",
-- the nearest key of `known`, or "": the end of a message about an unknown name.
function usage.suggest(name, known, object)
  local names = require "luaserve.names"
  local habit = object and names.habit(object, name)
  if habit then return "; write " .. habit end
  local near = names.nearest(name, known)
  return near and "; did you mean '" .. near .. "'?" or ""
end

-- check_waits(call): raises where no call can wait: while the site loads, and inside a C function.
local core
function usage.check_waits(call)
  core = core or require "luaserve.core"
  if core.can_wait() then return end
  usage.error("%s: cannot wait while the site loads or inside a C function; call it in a handler, in ls.init or in "
    .. "ls.spawn", call)
end

-- strict(title, t) -> t, with a metatable that raises when an unknown name is read: `title` is the name of t.
function usage.strict(title, t)
  return setmetatable(t, {
    __index = function(_, name)
      usage.error("%s has no %s%s", title, usage.quote(name), usage.suggest(name, t, title))
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

-- no_more(call, last, ...): raises if an argument after `last` is not nil: it would be ignored. `call` shows the right
-- call, such as "app:error(fn)". A second result of `require` after `last` is ignored.
function usage.no_more(call, last, ...)
  if select("#", ...) == 0 then return end -- almost always
  for i = (...) ~= nil and usage.is_loader_data(last, (...)) and 2 or 1, select("#", ...) do
    local extra = select(i, ...)
    if extra ~= nil then
      usage.error("too many arguments for %s: got %s as well%s", call, usage.quote(extra),
        require("luaserve.names").extra(call, extra))
    end
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

-- no_nil(call, ...): raises if one of the arguments is a nil that the call has: it would be as if nothing were there.
function usage.no_nil(call, ...)
  for i = 1, select("#", ...) do
    if select(i, ...) == nil then
      usage.error("%s: an argument after the path is nil: a name in this call is misspelt, or has its value later", call)
    end
  end
end

-- refuse(wrong, value, format, ...): raises the message and what was given instead, if `wrong`. For calls that are not
-- frequent: it also costs something when all is right.
function usage.refuse(wrong, value, format, ...)
  if wrong then usage.error("%s; got %s", string.format(format, ...), usage.quote(value)) end
end

-- check(value, kind, format, ...): the same, unless the value has the type `kind`: "table", or, for a value that may be
-- nil, "table?".
function usage.check(value, kind, ...)
  if type(value) == kind or value == nil and kind:sub(-1) == "?" or type(value) .. "?" == kind then return end
  usage.refuse(true, value, ...)
end

-- fault_of_list(t) -> nil: the keys of the table are 1 to #t, as for ipairs, which leaves out all others; else "with the field x",
-- or "without a value at 2".
local function fault_of_list(t)
  for key in pairs(t) do
    if math.type(key) ~= "integer" or key < 1 or key > #t then return "with the field " .. usage.quote(key) end
  end
  for i = 1, #t do
    if t[i] == nil then return "without a value at " .. i, i end
  end
end

-- is_list(t) -> whether the keys of the table are 1 to #t.
function usage.is_list(t) return fault_of_list(t) == nil end

-- check_list(call, name, list [, hint]) -> list. Raises if they are others; `hint` ends the message about a field.
function usage.check_list(call, name, list, hint)
  local fault, at = fault_of_list(list)
  if fault then
    usage.error("%s: %s must be a value or a list of values; got a table %s%s", call, usage.quote(name), fault,
      at and "; a name in the list is misspelt, or has its value later" or hint or "")
  end
  return list
end

-- decider(option, fn) -> fn, whose result decides, as a function that raises for one that is true in Lua and hardly meant
-- so: 0, "" and an empty table, which databases return for what they do not have. nil: nil.
function usage.decider(option, fn)
  local function decided(first, ...)
    local meta = type(first) == "table" and getmetatable(first)
    local empty = type(first) == "table" and next(first) == nil
      and (meta == nil or meta == getmetatable(require("luaserve.json").array {})) -- also that of no rows
    if first == 0 or first == "" or empty then
      local at = debug.getinfo(fn, "S")
      error(('%s: the function at %s:%d has returned %s; 0, "" and {} are true in Lua: return true, or the user, or nil')
        :format(option, at.short_src, at.linedefined, type(first) == "table" and "{}" or usage.quote(first)), 0)
    end
    return first, ...
  end
  return fn and function(...) return decided(fn(...)) end
end

local function finish(call, fine, result, ...)
  if not fine then usage.error("%s: %s", call, tostring(result)) end
  return result, ...
end

-- call(name, fn, ...) -> the results of fn(...), a function of the core. What it raises is raised at the line of the site,
-- after the name.
function usage.call(call, fn, ...) return finish(call, pcall(fn, ...)) end

return usage
