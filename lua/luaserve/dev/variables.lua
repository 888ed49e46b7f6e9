-- variables.lua - dev mode warns of variables of which each Lua state has its own copy, when a handler changes them.
--
-- New globals are seen as they are set, by __newindex of _G and of the libraries. For the others, the variables that the
-- handlers of apps, of ls.tcp, ls.udp and ls.on("host") can reach are compared with a copy after each run of a task,
-- that is when it waits or ends: upvalues of their functions (and of the functions in these), the tables in them, two
-- levels deep, the locals of coroutines in them, the globals that the site has set while it was loaded, and those of
-- modules that a handler requires. A variable that has changed is reported and
-- then left out, so each costs one line of the log. So a change by a timer or a job is seen if a handler uses the
-- variable as well; one that only timers of the server use is in order, because they run in one state.
--
-- What every state does for itself is in order, too: the variables that functions of ls.on("start"), ls.on("drain") and
-- timers and subscriptions with each_state can reach are left out, unless a line of what runs once for the server writes to
-- them; so is a value that is made at its first use (x = x or new()), and a variable whose declaration has a comment with
-- "each state" or "this state", as a cache needs it.
--
-- Limits: tables with more than keys_max keys are compared by their length and first key only; at most variables_max
-- variables are observed; the line is the first one in the functions that use the variable that looks like a write to
-- it.

local core = require "luaserve.core"
local site = require "luaserve.dev.site"
local usage = require "luaserve.usage"

local getupvalue, upvalueid, getinfo, getlocal = debug.getupvalue, debug.upvalueid, debug.getinfo, debug.getlocal
local getmetatable_of = debug.getmetatable
local next, rawequal, rawget, rawlen, rawset = next, rawequal, rawget, rawlen, rawset
local function_lines, is_own, lines_of, warn = site.function_lines, site.is_own, site.lines_of, site.warn

local variables = {}

local keys_max, variables_max, depth_max = 1000, 1000, 4

local known -- tables and functions that are not the site's own: the libraries
local globals_before -- names of the globals before the site was loaded
local apps -- of ls.listen
local observed -- array of observed variables
local handler_places -- array of { source =, linedefined =, lastlinedefined = }: what many tasks may run at a time
local own_functions -- functions of handlers, by the function that observes their results
local each_state -- set of functions that run in every state
local hooks -- by function: the kind of ls.on or ls.init
local once -- set of functions that run once for the server, in the first state
local shared -- by upvalue: variables that are left out because functions of each state reach them
local observe -- function(name, value): adds the variables that a value reaches, in a handler
local visited -- array of the other functions that were visited
local of_requests -- set of those that handlers of requests and middleware reach
local middleware -- set of the functions of app:use

-- variables.begin(): before the site is loaded.
function variables.begin()
  known, globals_before, apps, own_functions, each_state, hooks, handler_places, observe = { [_G] = true }, {}, {}, {}, {}, {}, {}, nil
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

-- variables.observe(app): the handlers of this app, which is complete.
function variables.observe(app) apps[#apps + 1] = app end

function variables.is_known(value) return known[value] ~= nil end

-- variables.global(name) -> the value of a global that the site has set
function variables.global(name) return not globals_before[name] and rawget(_G, name) or nil end

function variables.own(wrapper) return own_functions[wrapper] end

-- variables.stands_for(wrapper, fn): a function of luaserve that calls the function of the site in its place.
function variables.stands_for(wrapper, fn)
  if own_functions then own_functions[wrapper] = fn end
end

-- variables.origin(outer) -> "site.lua:5", the place of the outermost function of a task, of getinfo, unless it is of a handler, which
-- many tasks run; whether it runs in each state, and "start" or "init" for a function of ls.on("start") or ls.init.
function variables.origin(outer)
  for _, one in ipairs(handler_places) do
    if one.source == outer.source and outer.linedefined >= one.linedefined
      and outer.lastlinedefined <= one.lastlinedefined then return nil end
  end
  return outer.short_src .. ":" .. outer.linedefined, each_state[outer.func], hooks[outer.func]
end

local libraries = { "string", "table", "math", "os", "io", "utf8", "coroutine", "debug", "luaserve" }

local function set_global(prefix, t, name, value)
  rawset(t, name, value)
  local level = 2
  repeat
    local info = getinfo(level, "f")
    if info and each_state[info.func] then return end
    level = level + 1
  until not info
  local place = usage.caller()
  if not place then return end
  local advice = site.several_states()
    and "; if other requests need it, use ls.dict: each Lua state has its own copy" or ""
  warn(place, 'sets %s%s while the site serves: write "local"%s', prefix, tostring(name), advice)
end

-- arm(t, prefix): report new fields of t. `prefix` begins their names.
local function arm(t, prefix)
  local function set(...) set_global(prefix, ...) end
  local meta = getmetatable_of(t)
  if meta == nil then
    setmetatable(t, { __newindex = set })
  elseif rawget(meta, "__newindex") == nil then
    meta.__newindex = set
  end -- else the site has a check of its own
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

-- stack_of(co) -> a list of what a coroutine has: its status, lines and locals.
local function stack_of(co)
  local list, level, info = { coroutine.status(co) }, 0, getinfo(co, 0, "l")
  while info do
    list[#list + 1] = info.currentline
    for i = 1, 200 do
      local name, value = getlocal(co, level, i)
      if not name then break end
      if name:sub(1, 1) ~= "(" then list[#list + 1] = value == nil and known or value end
    end
    level = level + 1
    info = getinfo(co, level, "l")
  end
  return list
end

-- classify() -> the functions of the site that the core holds: those of handlers; those that run once, or for the whole
-- server. Fills each_state.
local function classify()
  local handlers, others = {}, {}
  hooks = {}
  for _, kind in ipairs { "start", "drain", "log", "init" } do
    for _, fn in ipairs(core.dev.hooks(kind)) do
      hooks[fn] = kind
      if kind == "start" or kind == "drain" then each_state[fn] = true else others[#others + 1] = fn end
    end
  end
  for key, value in next, debug.getregistry() do
    if math.type(key) == "integer" then
      local kind = type(value)
      if kind == "function" and not hooks[value] then
        handlers[#handlers + 1] = value
      elseif kind == "table" and rawget(value, "n") and type(rawget(value, 1)) == "function" then -- a timer
        if rawget(value, "each_state") then each_state[value[1]] = true else others[#others + 1] = value[1] end
      elseif kind == "userdata" then
        local fn = debug.getuservalue(value, 1) -- of ls.subscribe
        if type(fn) ~= "function" then fn = nil end
        if fn and debug.getuservalue(value, 3) then each_state[fn] = true else others[#others + 1] = fn end
      end
    end
  end
  return handlers, others
end

-- Collect the variables. `seen` holds the functions, upvalues and tables that were visited, with the variable of each.
local function collect()
  local list, seen, observing, of_request = {}, {}, false, false
  local visit_function

  local function add(variable)
    if observing and #list < variables_max then list[#list + 1] = variable end
    if not observing and variable.fn then shared[upvalueid(variable.fn, variable.index)] = variable end
  end

  local function visit_value(name, value, user, depth)
    local kind = type(value)
    if kind == "function" then
      local upvalue, inner = getupvalue(value, 1)
      if upvalue == "" and type(inner) == "thread" then return visit_value(name, inner, user, depth) end -- coroutine.wrap
      visit_function(value)
    elseif kind == "thread" then
      if seen[value] then return end
      seen[value] = { name = name, thread = value, copy = copy_of(stack_of(value)), users = { user } }
      add(seen[value])
    elseif kind == "table" and not known[value] then
      local variable = seen[value]
      if variable then
        if user then variable.users[#variable.users + 1] = user end
        return
      end
      local meta = getmetatable_of(value)
      local type_name = meta and rawget(meta, "__name")
      if type(type_name) == "string" and type_name:sub(1, 9) == "luaserve." then return end
      if meta and rawget(meta, "__metatable") == false then return end -- a client of ls.redis, a subscription
      variable = { name = name, table = value, copy = copy_of(value), users = { user } }
      seen[value] = variable
      add(variable)
      if depth == depth_max or variable.copy.large then return end
      for key, inner in next, variable.copy.fields do
        local below = type(key) == "string" and name .. "." .. key or name
        visit_value(below, inner, user, depth + 1)
      end
    end
  end

  function visit_function(fn)
    if seen[fn] or known[fn] or not is_own(fn) then return end
    seen[fn], of_requests[fn], visited[#visited + 1] = {}, of_request, fn
    for i = 1, 255 do
      local name, value = getupvalue(fn, i)
      if not name then break end
      if name ~= "_ENV" then
        local id = upvalueid(fn, i)
        local variable = seen[id]
        if variable then
          variable.users[#variable.users + 1], variable.served = fn, variable.served or observing
        else
          variable = { name = name, fn = fn, index = i, value = value, users = { fn } }
          seen[id] = variable
          add(variable)
        end
        visit_value(name, value, fn, 0)
      end
    end
  end

  local function visit_entry(fn)
    if is_own(fn) then handler_places[#handler_places + 1] = getinfo(fn, "S") end
    visit_function(fn)
  end

  -- The function of app:ws is one in C: its upvalue is the route, whose user value has the functions of the site.
  local function visit_handler(fn)
    fn = own_functions[fn] or fn
    visit_entry(fn)
    local _, route = getupvalue(fn, 1)
    local functions = getinfo(fn, "S").what == "C" and type(route) == "userdata" and debug.getuservalue(route, 1)
    if type(functions) ~= "table" then return end
    of_request = false
    for _, name in ipairs { "serve", "open", "message", "close" } do
      local one = functions[name]
      if one then visit_entry(own_functions[one] or one) end
    end
    of_request = true
  end

  local function visit_app(app)
    for _, route in ipairs(app.routes) do
      if route.fn then visit_handler(route.fn) end
      for _, use in ipairs(route.uses or {}) do visit_function(use.fn) end
    end
    for _, use in ipairs(app.uses) do
      middleware[use.fn] = true
      visit_function(use.fn)
    end
    for _, fn in ipairs { app.on_error or false, app.on_not_found or false, app.star and app.star.fn or false } do
      if fn then visit_function(fn) end
    end
    for _, mount in ipairs(app.mounts) do visit_app(mount.app) end
  end

  local handlers, others = classify()
  visited, of_requests, once, shared, middleware = {}, {}, {}, {}, {}
  for fn in next, each_state do visit_function(fn) end
  visited = {}
  observing, of_request = true, true
  for _, app in ipairs(apps) do visit_app(app) end
  of_request = false
  for _, fn in ipairs(handlers) do visit_entry(fn) end
  observing = false
  local first = #visited + 1
  for _, fn in ipairs(others) do visit_function(fn) end -- for the lines at which they write
  for i = first, #visited do once[visited[i]] = true end
  for _, fn in ipairs(others) do variables.check_once(fn) end
  for fn in next, each_state do variables.check_once(fn, true) end
  observing = true
  for name, value in next, _G do
    if type(name) == "string" and not globals_before[name] then
      add { name = name, global = name, value = value, users = {} }
      visit_value(name, value, nil, 0)
    end
  end
  function observe(name, value)
    observing, of_request = true, true
    visit_value(name, value, nil, 0)
  end
  return list
end

-- variables.module_loader(loader, name) -> the loader of a module. One that a handler requires has variables of its state.
function variables.module_loader(loader, name)
  if not observe then return loader end
  return function(...)
    local result = loader(...)
    local value = result
    if value == nil then value = package.loaded[name] end
    if core.dev.task() then observe(name, value) end
    return result
  end
end

-- write_patterns(name, thread) -> patterns of lines that write to a variable: an assignment to it or to a field of it, and
-- the functions that change a table; `thread`: also of calls of a coroutine.
local function write_patterns(name, thread)
  local escaped = name:gsub("%W", "%%%0")
  local at = "%f[%w_]" .. escaped .. "%f[^%w_]"
  return {
    at .. "%s*=[^=]", at .. "%s*=$", at .. "%s*,[^=()]*=[^=]", at .. "%s*[%.%[][^=~<>]-[^=~<>]=[^=]",
    "table%.%a+%s*%(%s*" .. at, "rawset%s*%(%s*" .. at, "function%s+" .. at,
    thread and at .. "%s*%(", thread and "resume%s*%(%s*" .. at,
  }
end

-- count_patterns(name) -> patterns of lines that add to a variable or to a field of it.
local function count_patterns(name)
  local at = "%f[%w_]" .. name:gsub("%W", "%%%0") .. "%f[^%w_]"
  return { at .. "[^=<>~]-=[^=].-" .. at .. ".-[+-]", at .. "%[#", "table%.insert%s*%(%s*" .. at }
end

-- makes_once(variable, line, before) -> whether the line makes the value at its first use. `before`: the line before.
local function makes_once(variable, line, before)
  if variable.table or variable.thread or variable.value ~= nil then return false end
  local at = "%f[%w_]" .. variable.name:gsub("%W", "%%%0") .. "%f[^%w_]"
  local test = before .. line
  return line:find(at .. "%s*=%s*" .. at .. "%s*or%f[^%w_]") or test:find("not%s+" .. at)
    or test:find(at .. "%s*==%s*nil")
end

-- write_in(variable, patterns, fn) -> the first line of the function that looks like a write to the variable, or nil;
-- false: the variable is in order.
local function write_in(variable, patterns, fn)
  local info = getinfo(fn, "S")
  local declared = "^%s*local%s.*%f[%w_]" .. variable.name:match("^[%w_]*") .. "%f[^%w_].*%-%-.*%f[%w]"
  local before, found = "", nil
  for number, line in ipairs(lines_of(info, 1, math.huge)) do
    if line:find(declared .. "each state") or line:find(declared .. "this state") then
      return false
    end
    line = line:gsub("%b{}", function(text) return not variable.thread and not text:find("function") and "{}" or nil end)
    local own = found == nil and number >= info.linedefined and number <= info.lastlinedefined
      and not line:find("^%s*%-%-") and (not line:find("^%s*local%s") or line:find("^%s*local%s+function%s"))
    for _, pattern in ipairs(own and patterns or {}) do
      if found == nil and line:find(pattern) then found = not makes_once(variable, line, before) and number end
    end
    before = line
  end
  return found
end

-- place_of(variable) -> "site.lua:12", the first line in its functions that looks like a write to it, and that function;
-- nil: it is in order.
local function place_of(variable)
  local patterns = write_patterns(variable.name, variable.thread)
  local last = variable.name:match("[%w_]+$")
  if last and last ~= variable.name then
    table.move(write_patterns(last), 1, 7, #patterns + 1, patterns) -- "store.items" may be "M.items" or "items" there
  end
  local users = #variable.users > 0 and variable.users or visited -- of a global: all
  for _, fn in ipairs(users) do
    local number = write_in(variable, patterns, fn)
    if number == false then return nil end
    if number then return getinfo(fn, "S").short_src .. ":" .. number, fn end
  end
  local info = users[1] and getinfo(users[1], "S")
  return info and info.short_src .. ":" .. info.linedefined or core.dev.site, users[1]
end

local waits = { "ls%.sleep", "ls%.fetch", "ls%.process", ":wait%s*%(", ":receive%s*%(", "req:%l+%s*%(", "%f[%w_]r:%l+", "%f[%w_]redis:%l+",
  ":exec%s*%(", ":query%s*%(", ":one%s*%(", ":transaction%s*%(" }

local function is_changed(variable)
  if variable.table then return has_changed(variable.table, variable.copy) end
  if variable.thread then return has_changed(stack_of(variable.thread), variable.copy) end
  if variable.global then return not rawequal(rawget(_G, variable.global), variable.value) end
  local _, value = getupvalue(variable.fn, variable.index)
  return not rawequal(value, variable.value)
end

-- warn_wait(variable, place, fn): with one state. Warns of a function that decides by the variable, or copies it, then waits, and then
-- changes it in the line of the place.
local function warn_wait(variable, place, fn)
  local lines, info = function_lines(fn)
  local last, name = tonumber(place:match("%d+$")) - info.linedefined + 1, "%f[%w_]" .. variable.name:match("[%w_]+$") .. "%f[^%w_]"
  local read
  for i = 1, last - 1 do
    local copy = lines[i]:match("local%s+([%a_][%w_]*)%s*=.*" .. name)
    local text = table.concat(lines, "\n", i + 1, last - 1)
    if copy and lines[last]:find("=.*%f[%w_]" .. copy .. "%f[^%w_]") or lines[i]:find("%f[%w_]if%f[^%w_].*" .. name)
      and ((lines[i] .. text):find("%f[%w_]return%f[^%w_]") or not text:find("%f[%w_]end%f[^%w_]")) then read = true end
    for _, wait in ipairs(read and waits or {}) do
      if lines[i]:find(wait) then
        return warn(place, "changes %s after a wait: other requests run in between, also with states = 1. Change it before the wait, "
          .. "or do all of it under a semaphore, as in order:with(fn)", variable.name)
      end
    end
  end
end

local function report(variable, place, fn)
  if not place then return end
  if not site.several_states() then -- what all requests share is in order, but for what middleware sets for each
    local _, value = getupvalue(variable.fn or fn, variable.index or 1)
    if middleware[fn] and variable.fn and type(value) ~= "number" and type(value) ~= "boolean" then
      warn(place, "changes %s in a middleware, and all requests share it: while one waits, another one changes it. Use req.%s = ...", variable.name, variable.name)
    end
    warn_wait(variable, place, fn)
    return
  end
  local advice = of_requests[fn] and "req.%s = ... for what belongs to one request, "
    or once[fn] and "each_state = true in a timer or ls.subscribe that keeps a cache of each state, " or ""
  warn(place, "changes %s%s, of which each Lua state has its own copy: other requests may not see it, or see that of another one. Use "
    .. "" .. advice:format(variable.name:match("[%w_]+$") or "NAME") .. "ls.dict or a topic for what all share; " .. 'after the declaration of '
    .. 'a cache, the comment "of each state" ends this warning', variable.global and "the global " or "", variable.name)
end

local kinds = { ["nil"] = true, boolean = true, number = true, string = true } -- of values

-- check_set(variable, name, fn): a function of "start" may set the variable for each state. Reports a handler that counts in it.
local function check_set(variable, name, fn)
  local number, info = write_in(variable, write_patterns(name), fn), getinfo(fn, "S")
  local text = number and table.concat(lines_of(info, info.linedefined, number), "\n")
  if not text or select(2, text:gsub("function", "")) > 1 then return end
  for _, user in ipairs(variable.users) do
    local at = of_requests[user] and write_in(variable, count_patterns(name), user)
    if at then return report(variable, getinfo(user, "S").short_src .. ":" .. at, user) end
  end
end

-- variables.check_once(fn): the function runs once for the server. Reports the variables that it writes, or a function in it,
-- among those that are left out although handlers use them. `counts`: it runs in each state; those to which a loop or
-- function in it adds.
function variables.check_once(fn, counts)
  local seen = {}
  local function check(one)
    if seen[one] or known[one] or not is_own(one) then return end
    seen[one] = true
    for i = 1, 255 do
      local name, value = getupvalue(one, i)
      if not name then break end
      local variable = shared[upvalueid(one, i)]
      local plain = kinds[type(value)] or type(value) == "table" and getmetatable_of(value) == nil
      local number = plain and variable and variable.served and write_in(variable, (counts and count_patterns or write_patterns)(name), one)
      once[one] = once[one] or not counts or nil
      local info = number and counts and getinfo(one, "S")
      local text = info and table.concat(lines_of(info, info.linedefined, number), "\n"):gsub("function", "", 1)
      if text and not text:find("%f[%w_]do%f[^%w_]") and not text:find("repeat") and not text:find("function") then number = nil end
      if number then report(variable, getinfo(one, "S").short_src .. ":" .. number, one) end
      if hooks[fn] == "start" and one == fn and plain and variable and variable.served then check_set(variable, name, fn) end
      if type(value) == "function" then check(value) end
    end
  end
  check(fn)
end

-- variables.arm(): the site is loaded.
function variables.arm()
  arm(_G, "the global ")
  for _, name in ipairs(libraries) do
    if package.loaded[name] then arm(package.loaded[name], name .. ".") end
  end
  observed = collect()
end

-- variables.check(): a task waits or has ended; reports what has changed since the last call.
function variables.check()
  local kept = 0
  for i = 1, #observed do
    local variable = observed[i]
    observed[i] = nil
    if is_changed(variable) then
      report(variable, place_of(variable))
    else
      kept = kept + 1
      observed[kept] = variable
    end
  end
end

-- variables.watch_timer(first, fn): ls.every or ls.after is called. In "start" it makes a timer that runs once for the server.
function variables.watch_timer(first, fn)
  local _, _, is_once = core.dev.task()
  if site.loaded and is_once and type(fn) == "function" and not (type(first) == "table" and first.each_state) then
    variables.check_once(fn)
  end
end

return variables
