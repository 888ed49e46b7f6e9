-- dev_state.lua - dev mode warns of data that is not shared: a handler sets a global, or changes a variable or table of
-- the top level of a file. Each Lua state has its own copy of both, so the next request may find another value.
--
-- New globals are seen as they are set, by __newindex of _G. For the others, the variables that the handlers of the apps
-- can reach are compared after each request with a copy: upvalues of their functions (and of the functions in these),
-- the tables in them, two levels deep, and the globals that the site has set while it was loaded. A variable that has
-- changed is reported and then left out, so each costs one line of the log.
--
-- Limits: tables with more than keys_max keys are compared by their length and first key only; at most variables_max
-- variables are observed; the line is the first one in the functions that use the variable that looks like a write to
-- it. Variables that only timers and jobs use are not seen. A name with "cache" or "memo" in it is left out: a copy for
-- each state is what a cache wants.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
usage.mark_internal()

local getupvalue, upvalueid, getinfo, getmetatable_of = debug.getupvalue, debug.upvalueid, debug.getinfo, debug.getmetatable
local next, rawequal, rawget, rawlen, rawset = next, rawequal, rawget, rawlen, rawset

local state = {}

local keys_max, variables_max, depth_max = 200, 1000, 2

local known -- tables and functions that are not the site's own: the libraries
local globals_before -- names of the globals before the site was loaded
local apps -- of ls.listen
local variables -- array of observed variables; nil before the first request

local function warn(place, text)
  local line = place .. ": " .. text
  if core.dev.once(line) then core.log("warn", line) end
end

local function several_states() return core.dev.states() > 1 end

-- state.begin(): before the site is loaded.
function state.begin()
  known, globals_before, apps, variables = { [_G] = true }, {}, {}, nil
  for name in pairs(_G) do globals_before[name] = true end
  for _, module in pairs(package.loaded) do
    known[module] = true
    if type(module) == "table" then
      for _, value in next, module do
        if type(value) == "function" or type(value) == "table" then known[value] = true end
      end
    end
  end
end

-- state.observe(app): the handlers of this app, which is complete.
function state.observe(app) apps[#apps + 1] = app end

-- ---- globals --------------------------------------------------------------------------------------------------------

local function set_global(t, name, value)
  rawset(t, name, value)
  local place = usage.caller()
  if not place then return end
  local advice = several_states()
    and "; if other requests need it, each Lua state has its own copy: use ls.dict, or ls.config{ states = 1 }" or ""
  warn(place, string.format('sets the global %s while the site serves: write "local"%s', tostring(name), advice))
end

local function arm_globals()
  local meta = getmetatable_of(_G)
  if meta == nil then
    setmetatable(_G, { __newindex = set_global })
  elseif rawget(meta, "__newindex") == nil then
    meta.__newindex = set_global
  end -- else the site has a check of its own
end

-- ---- variables ------------------------------------------------------------------------------------------------------

local function is_own(fn)
  local info = getinfo(fn, "S")
  return info.what ~= "C" and info.source:sub(1, 1) == "@" and info.source:sub(1, 10) ~= "@luaserve/"
end

-- copy_of(t) -> what is compared: { count =, [key] = value } or, of a large table, { length =, first = }.
local function copy_of(t)
  local copy, count = {}, 0
  for key, value in next, t do
    count = count + 1
    if count > keys_max then return { large = true, length = rawlen(t), first = next(t) } end
    copy[key] = value
  end
  return { fields = copy, count = count }
end

local function has_changed(t, copy)
  if copy.large then return rawlen(t) ~= copy.length or next(t) ~= copy.first end
  local count, fields = 0, copy.fields
  for key, value in next, t do
    count = count + 1
    if count > copy.count or not rawequal(fields[key], value) then return true end
  end
  return count ~= copy.count
end

local function ignored(name) return name:find("[Cc]ache") or name:find("[Mm]emo") or name == "_ENV" end

-- Collect the variables. `seen` holds the functions, upvalues and tables that were visited, with the variable of each.
local function collect()
  local list, seen = {}, {}
  local visit_function

  local function add(variable)
    if #list < variables_max then list[#list + 1] = variable end
  end

  local function visit_value(name, value, user, depth)
    local kind = type(value)
    if kind == "function" then
      visit_function(value)
    elseif kind == "table" and not known[value] then
      local variable = seen[value]
      if variable then
        if user then variable.users[#variable.users + 1] = user end
        return
      end
      local meta = getmetatable_of(value)
      local type_name = meta and rawget(meta, "__name")
      if type(type_name) == "string" and type_name:sub(1, 9) == "luaserve." then return end
      variable = { name = name, table = value, copy = copy_of(value), users = { user } }
      seen[value] = variable
      add(variable)
      if depth == depth_max or variable.copy.large then return end
      for key, inner in next, variable.copy.fields do
        local below = type(key) == "string" and name .. "." .. key or name
        if not ignored(below) then visit_value(below, inner, user, depth + 1) end
      end
    end
  end

  function visit_function(fn)
    if seen[fn] or known[fn] or not is_own(fn) then return end
    seen[fn] = {}
    for i = 1, 255 do
      local name, value = getupvalue(fn, i)
      if not name then break end
      if not ignored(name) then
        local id = upvalueid(fn, i)
        local variable = seen[id]
        if variable then
          variable.users[#variable.users + 1] = fn
        else
          variable = { name = name, fn = fn, index = i, value = value, users = { fn } }
          seen[id] = variable
          add(variable)
        end
        visit_value(name, value, fn, 0)
      end
    end
  end

  local function visit_app(app)
    for _, route in ipairs(app.routes) do
      if route.fn then visit_function(route.fn) end
    end
    for _, fn in ipairs(app.uses) do visit_function(fn) end
    for _, fn in ipairs { app.on_error or false, app.on_not_found or false, app.star and app.star.fn or false } do
      if fn then visit_function(fn) end
    end
    for _, mount in ipairs(app.mounts) do visit_app(mount.app) end
  end

  for _, app in ipairs(apps) do visit_app(app) end
  for name, value in next, _G do
    if type(name) == "string" and not globals_before[name] and not ignored(name) then
      add { name = name, global = name, value = value, users = {} }
      visit_value(name, value, nil, 0)
    end
  end
  return list
end

-- write_pattern(name) -> patterns of lines that write to a variable: an assignment to it or to a field of it, and the
-- functions that change a table.
local function write_patterns(name)
  local escaped = name:gsub("%W", "%%%0")
  local at = "%f[%w_]" .. escaped .. "%f[^%w_]"
  return {
    at .. "%s*=[^=]", at .. "%s*=$", at .. "%s*,[^=()]*=[^=]", at .. "%s*[%.%[][^=~<>]-[^=~<>]=[^=]",
    "table%.%a+%s*%(%s*" .. at, "rawset%s*%(%s*" .. at, "function%s+" .. at,
  }
end

-- place_of(variable) -> "site.lua:12", the first line in its functions that looks like a write to it.
local function place_of(variable)
  local patterns = write_patterns(variable.name)
  local last = variable.name:match("[%w_]+$")
  if last and last ~= variable.name then
    table.move(write_patterns(last), 1, 7, #patterns + 1, patterns) -- "store.items" may be "M.items" or "items" there
  end
  local first
  local users = variable.users
  if #users == 0 then -- a global: in any function of an app
    for _, app in ipairs(apps) do
      for _, route in ipairs(app.routes) do users[#users + 1] = route.fn end
    end
  end
  for _, fn in ipairs(users) do
    local info = getinfo(fn, "S")
    first = first or info.short_src .. ":" .. info.linedefined
    local file = info.source:sub(1, 1) == "@" and io.open(info.source:sub(2), "rb")
    if file then
      local number = 0
      for line in file:lines() do
        number = number + 1
        local own = number >= info.linedefined and number <= info.lastlinedefined
          and not line:find("^%s*local%s") and not line:find("^%s*%-%-")
        for _, pattern in ipairs(own and patterns or {}) do
          if line:find(pattern) then
            file:close()
            return info.short_src .. ":" .. number
          end
        end
      end
      file:close()
    end
  end
  return first or core.dev.site
end

local function is_changed(variable)
  if variable.table then return has_changed(variable.table, variable.copy) end
  if variable.global then return not rawequal(rawget(_G, variable.global), variable.value) end
  local _, value = getupvalue(variable.fn, variable.index)
  return not rawequal(value, variable.value)
end

local function report(variable)
  warn(place_of(variable), string.format("changes %s%s, of which each Lua state has its own copy: other "
    .. "requests may not see it. Share it with ls.dict, or set ls.config{ states = 1 }",
    variable.global and "the global " or "", variable.name))
end

-- ---- requests -------------------------------------------------------------------------------------------------------

-- state.arm(): the site is loaded. Every further call does nothing.
function state.arm()
  if variables then return end
  arm_globals()
  variables = several_states() and collect() or {}
end

-- state.check(): a request has ended; reports what has changed since the last call.
function state.check()
  local kept = 0
  for i = 1, #variables do
    local variable = variables[i]
    variables[i] = nil
    if is_changed(variable) then
      report(variable)
    else
      kept = kept + 1
      variables[kept] = variable
    end
  end
end

return state
