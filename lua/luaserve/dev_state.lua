-- dev_state.lua - dev mode warns of what works only with one Lua state: a handler sets a global, or changes a variable or
-- table of the top level of a file, of which each state has its own copy; a file writes to a dict or a file at its top
-- level, which each state runs; a task reads an entry of a dict, or the table of a database, and then writes it. It
-- also warns of results of handlers that are probably meant otherwise, and of failures that a handler does not look at.
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
local usage = require "luaserve.usage"

local getupvalue, upvalueid, getinfo, getlocal = debug.getupvalue, debug.upvalueid, debug.getinfo, debug.getlocal
local getmetatable_of = debug.getmetatable
local next, rawequal, rawget, rawlen, rawset = next, rawequal, rawget, rawlen, rawset
local running = coroutine.running

local state = {}

local keys_max, variables_max, depth_max, writers_max = 1000, 1000, 4, 10000

local known -- tables and functions that are not the site's own: the libraries
local globals_before -- names of the globals before the site was loaded
local apps -- of ls.listen
local variables -- array of observed variables; nil while the site loads
local top_writes -- array of { place =, text = } of what the site has written to dicts and files while it was loaded
local late_writes -- the same of those that only an additional state sees, which logs them in its first run: its load is silent
local top_files -- array of the files that the site has opened for appending while it was loaded
local kept_files -- those of top_files that are open after the load
local io_open -- io.open of the site, in the time of the load
local locks -- array of the semaphores of one permit
local reads -- by coroutine, dict and key: what has read the entry, or false; by database and table: the run that has
-- selected from it. Also `request`, in a request; `message`: the number of what the task works on; `origin`, `each_state`:
-- of origin_of; `written`: the set of what it has written (named); `counted`: the numbers that it has got from counters; `inserted`: the
-- places, by table; `left`: by line, the run in which a write has told first that the client has left; `files`: the set of those that were read;
-- `reread`: the dict that was read after a write
local writers -- by dict or database, and key or table: a set of the origins that have written it; `counts`: in one step
local writers_count = 0
local names_of = setmetatable({}, { __mode = "k" }) -- by dict
local handler_places -- array of { source =, linedefined =, lastlinedefined = }: what many tasks may run at a time
local indexed -- set of the lines at which warn_index has looked
local runs = 0 -- number of runs so far
local watched_methods -- of channels
local own_functions -- functions of handlers, by the function that observes their results
local each_state -- set of functions that run in every state
local once -- set of functions that run once for the server, in the first state
local shared -- by upvalue: variables that are left out because functions of each state reach them
local observe -- function(name, value): adds the variables that a value reaches, in a handler
local visited -- array of the other functions that were visited
local of_requests -- set of those that handlers of requests and middleware reach
local middleware -- set of the functions of app:use

local texts -- by source: the lines of a file of the site

local open_file, open_in_task -- io.open of the site while it loads, and later

local function warn(place, text)
  local line = place .. ": " .. text
  if core.dev.once(line) then core.log("warn", line) end
end

-- state.warn_here(text): of the line of the site that called luaserve.
function state.warn_here(text) warn(usage.caller() or core.dev.site, text) end

-- notes() -> a dict of what the states of a site tell one another.
local function notes() return require("luaserve.dict").open("luaserve.dev", { size = "256k", evict = true }) end

local function several_states() return core.dev.states() > 1 end

local write_line = print

-- print of the site.
local function print_values(...)
  for n = 1, select("#", ...) do
    local value = select(n, ...)
    local meta = type(value) == "table" and getmetatable_of(value)
    if type(value) == "table" and not (meta and rawget(meta, "__tostring")) then
      warn(usage.caller() or core.dev.site, "print shows the address of a table: write print(ls.inspect(t))")
    end
  end
  return write_line(...)
end

-- state.begin(): before the site is loaded.
function state.begin()
  print = print_values -- luacheck: ignore 121
  known, globals_before, apps, variables = { [_G] = true }, {}, {}, nil
  top_writes, late_writes, top_files, kept_files, locks, own_functions, each_state = {}, {}, {}, {}, {}, {}, {}
  reads, writers, indexed, handler_places, texts = setmetatable({}, { __mode = "k" }), {}, {}, {}, {}
  for name in pairs(_G) do globals_before[name] = true end
  for _, module in pairs(package.loaded) do
    known[module] = true
    if type(module) == "table" then
      for _, value in next, module do
        if type(value) == "function" or type(value) == "table" then known[value] = true end
      end
    end
  end
  io_open, io.open = io.open, open_file -- luacheck: ignore 122
end

-- state.observe(app): the handlers of this app, which is complete.
function state.observe(app) apps[#apps + 1] = app end

-- ---- globals --------------------------------------------------------------------------------------------------------

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
  local advice = several_states()
    and "; if other requests need it, use ls.dict: each Lua state has its own copy" or ""
  warn(place, string.format('sets %s%s while the site serves: write "local"%s', prefix, tostring(name), advice))
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

local function arm_globals()
  arm(_G, "the global ")
  for _, name in ipairs(libraries) do
    if package.loaded[name] then arm(package.loaded[name], name .. ".") end
  end
end

-- ---- variables ------------------------------------------------------------------------------------------------------

local function is_own(fn)
  local info = getinfo(fn, "S")
  return info.what ~= "C" and info.source:sub(1, 1) == "@" and info.source:sub(1, 10) ~= "@luaserve/"
end

-- lines_of(info, from, to) -> array with these lines of the file, empty without one.
local function lines_of(info, from, to)
  local lines = info and texts[info.source]
  if not lines then
    local file = info and info.source:sub(1, 1) == "@" and io_open(info.source:sub(2), "rb")
    if not file then return {} end
    lines = {}
    for line in file:lines() do lines[#lines + 1] = line end
    file:close()
    texts[info.source] = lines
  end
  return table.move(lines, math.max(from, 1), math.min(to, #lines), 1, {})
end

-- function_lines(fn) -> the lines of the function, and what getinfo says of it.
local function function_lines(fn)
  local info = getinfo(fn, "S")
  return lines_of(info, info.linedefined, info.lastlinedefined), info
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
  local handlers, others, hooks = {}, {}, {}
  for _, kind in ipairs { "start", "drain", "log", "init" } do
    for _, fn in ipairs(core.dev.hooks(kind)) do
      hooks[fn] = true
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
  for _, fn in ipairs(others) do state.check_once(fn) end
  for fn in next, each_state do state.check_once(fn, true) end
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

-- state.module_loader(loader, name) -> the loader of a module. One that a handler requires has variables of its state.
function state.module_loader(loader, name)
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
  return { at .. "[^=<>~]-=[^=].-" .. at .. ".-[+-]" }
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

local function is_changed(variable)
  if variable.table then return has_changed(variable.table, variable.copy) end
  if variable.thread then return has_changed(stack_of(variable.thread), variable.copy) end
  if variable.global then return not rawequal(rawget(_G, variable.global), variable.value) end
  local _, value = getupvalue(variable.fn, variable.index)
  return not rawequal(value, variable.value)
end

local function report(variable, place, fn)
  if not place then return end
  if not several_states() then -- what all requests share is in order, but for what middleware sets for each
    local _, value = getupvalue(variable.fn or fn, variable.index or 1)
    if middleware[fn] and variable.fn and type(value) ~= "number" and type(value) ~= "boolean" then
      warn(place, ("changes %s in a middleware, and all requests share it: while one waits, another one changes it. Use req.%s = ...")
        :format(variable.name, variable.name))
    end
    return
  end
  local advice = of_requests[fn] and "req.%s = ... for what belongs to one request, "
    or once[fn] and "each_state = true in a timer or ls.subscribe that keeps a cache of each state, " or ""
  warn(place, string.format("changes %s%s, of which each Lua state has its own copy: other requests may not see it, or "
    .. "see that of another one. Use " .. advice:format(variable.name:match("[%w_]+$") or "NAME")
    .. "ls.dict or a topic for what all share; "
    .. 'after the declaration of a cache, the comment "of each state" ends this warning',
    variable.global and "the global " or "", variable.name))
end

local kinds = { ["nil"] = true, boolean = true, number = true, string = true } -- of values

-- state.check_once(fn): the function runs once for the server. Reports the variables that it writes, or a function in it,
-- among those that are left out although handlers use them. `counts`: it runs in each state; those to which a loop or
-- function in it adds.
function state.check_once(fn, counts)
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
      if type(value) == "function" then check(value) end
    end
  end
  check(fn)
end

local inside = setmetatable({}, { __mode = "k" }) -- by coroutine: whose function it runs, "update" or "transaction"

-- run_inside(what, fn, ...) -> the results of fn(...), whose effects watch_effect sees.
local function run_inside(what, fn, ...)
  local co = running()
  local before = inside[co]
  local _ <close> = setmetatable({}, { __close = function() inside[co] = before end })
  inside[co] = before == "update" and before or what
  return fn(...)
end

-- state.watch_effect(call, instead): the task has an effect outside of it. `instead`: the advice for one in a transaction, where it
-- is in order otherwise.
function state.watch_effect(call, instead)
  local what = inside[running()]
  if what == "update" then
    warn(usage.caller() or core.dev.site, call .. " in the function of dict:update happens once more each time that another request was "
      .. "faster: let the function return what is to be done as its second result, and do it after update")
  elseif what and instead then
    warn(usage.caller() or core.dev.site, ("%s in a transaction comes before the commit, and stays when the transaction is undone: %s")
      :format(call, instead))
  end
end

local after_it <const> = "do it after the transaction"

-- effect_of(call) -> a function that the wrapper of this function calls: an effect, unless luaserve itself calls it.
local function effect_of(call)
  return function()
    if not usage.is_internal(getinfo(3, "S").source) then state.watch_effect(call, after_it) end
  end
end
state.watch_spawn = effect_of "ls.spawn"

-- state.watch_timer(first, fn): ls.every or ls.after is called. In "start" it makes a timer that runs once for the server.
function state.watch_timer(first, fn)
  local _, _, is_once = core.dev.task()
  if variables and is_once and type(fn) == "function" and not (type(first) == "table" and first.each_state) then
    state.check_once(fn)
  end
end

-- ---- writes at the top of a file ------------------------------------------------------------------------------------

local top_methods = { set = true, incr = true, update = true, clear = true, delete = true, rpush = true, lpush = true }

local function note_top(call, effect, list)
  list = list or top_writes
  list[#list + 1] = { place = usage.caller() or core.dev.site,
    text = call .. " at the top of a file runs again with each additional Lua state, perhaps hours later" .. effect }
end

-- A write to a dict while the site loads. One that keeps the value of an earlier state is in order.
local function note_dict(call, dict, key, value)
  if call == "set" or call == "[key] = value" then
    note_top(call == "set" and "dict:set" or "dict" .. call,
      ", and then overwrites the value: use dict:add, which keeps it, also in ls.init, which each reload runs")
  elseif call == "update" then
    local old = core.dict_read(dict, key)
    if old ~= nil and old ~= value and type(old) ~= "table" then note_top("dict:update", ": use ls.init", late_writes) end
  elseif top_methods[call] and not (call == "incr" and value == 0) then
    note_top("dict:" .. call, ": use ls.init")
  end
end

local function size_of(path)
  local file = io_open(path, "rb")
  local size = file and file:seek("end")
  if file then file:close() end
  return size
end

-- io.open while the site loads. A file for appending is noted for end_top: each state may have one open.
function open_file(path, mode, ...)
  local append = type(path) == "string" and type(mode) == "string" and mode:find("^a")
  local size = append and size_of(path)
  local ok, file, message, code = pcall(io_open, path, mode, ...)
  if not ok then usage.error("%s", (file:gsub("'%?'", "'open'"))) end
  if not file or tostring(path):find("^/dev/") then return file, message, code end
  if append then
    top_files[#top_files + 1] = { file = file, at = file:seek("cur"), path = path, size = size or 0,
      place = usage.caller() or core.dev.site }
  elseif mode and mode:find("^w") then
    note_top('io.open(path, "w")', ", and then empties the file: use ls.init")
  end
  return file
end

local function end_top()
  if io.open == open_file then io.open = open_in_task end -- luacheck: ignore 122
  for _, one in ipairs(top_files) do
    local written
    if io.type(one.file) == "file" then
      written = one.file:seek("cur") ~= one.at
    else
      written = (size_of(one.path) or 0) > one.size
    end
    if written then
      top_writes[#top_writes + 1] = { place = one.place,
        text = 'a write to io.open(path, "a") at the top of a file runs again with each additional Lua state, perhaps hours '
          .. "later: use ls.init" }
    end
  end
  for _, write in ipairs(several_states() and top_writes or {}) do warn(write.place, write.text) end
  if not several_states() then late_writes = {} end
  kept_files = several_states() and top_files or {}
  top_writes, top_files = {}, {}
end

-- Warn of a file for appending that several states write to, each with a buffer of its own. A line that is in a buffer when
-- the task waits or ends may be split by those of others; seek writes it.
local function check_files()
  for i = #kept_files, 1, -1 do
    local one, before, written = kept_files[i], nil, false
    if io.type(one.file) == "file" then
      before = size_of(one.path)
      local at = one.file:seek("cur")
      written, one.at = at ~= one.at, at -- by this state: the size may be changed by others, too
    end
    if not before or written and size_of(one.path) ~= before then
      table.remove(kept_files, i)
      if before and not core.dev.once("written by a state: " .. one.place) then
        warn(one.place, 'several Lua states write to io.open(path, "a") of the top of the file, each with its own '
          .. "buffer, so lines are split and mixed: use ls.file.write(path, line, { append = true }) or ls.log, or open and "
          .. "close the file for each write")
      end
    end
  end
end

-- ---- calls in tasks -------------------------------------------------------------------------------------------------

local function set_of(words)
  local set = {}
  for word in words:gmatch("%S+") do set[word] = true end
  return set
end

-- origin_of() -> "site.lua:5", the outermost function of the running task, unless it is of a handler, which many tasks run;
-- and whether it runs in each state.
local function origin_of()
  local level, outer = 2, nil
  repeat
    local info = getinfo(level, "Sf")
    if info and info.what ~= "C" and not usage.is_internal(info.source) then outer = info end
    level = level + 1
  until not info
  if not outer then return nil end
  for _, one in ipairs(handler_places) do
    if one.source == outer.source and outer.linedefined >= one.linedefined
      and outer.lastlinedefined <= one.lastlinedefined then return nil end
  end
  return outer.short_src .. ":" .. outer.linedefined, each_state[outer.func]
end

-- entries_of() -> reads[the running task], or nil: no task runs. What was read for the message before is over.
local function entries_of()
  local co = running()
  local entries, serves, message = reads[co], core.dev.task()
  if serves == nil then return nil end
  if not entries or entries.message ~= message and not entries.request then
    entries = { message = message }
    if not serves then entries.origin, entries.each_state = origin_of() end
    reads[co] = entries
  end
  return entries
end

-- named(of, key) -> the entry, or the table of a database, in the notes of all states. Without a key: the dict.
local function named(of, key) return tostring(names_of[of]) .. (key ~= nil and "\0" .. tostring(key) or "") end

-- note_write(of, key, entries, counts): a task writes the entry, or the table of a database.
local function note_write(of, key, entries, counts)
  entries.written = entries.written or {}
  entries.written[named(of, key)], entries.written[named(of)] = true, true
  local keys = writers[of] or {}
  local noted = keys[key] or {}
  if not keys[key] then writers_count = writers_count + 1 end
  if writers_count > writers_max then return end
  writers[of], keys[key] = keys, noted
  noted[entries.origin or "many"] = true
  noted.counts = noted.counts or counts
end

local function is_locked()
  for _, semaphore in ipairs(locks) do
    if semaphore.held > 0 then return true end
  end
  return false
end

-- may_race(run, origin, noted) -> whether another task may have written in between what this one has read in its run of
-- this number. `origin`: it runs once at a time, so that only others race with it. `noted`: who has written it so far.
local function may_race(run, origin, noted)
  if is_locked() then return false end
  local another = not origin
  for writer in pairs(noted or {}) do another = another or writer ~= origin and writer ~= "counts" end
  return another and (several_states() or run ~= runs)
end

-- site_info() -> source and currentline of the line of the site that called luaserve, or nil.
local function site_info()
  for level = 2, math.huge do
    local info = getinfo(level, "Sl")
    if not info or info.currentline > 0 and not usage.is_internal(info.source) then return info end
  end
end

-- caller_line() -> the text of the line of the site that called luaserve, or "", and of the line before.
local function caller_line()
  local info = site_info()
  local lines = info and lines_of(info, info.currentline - 1, info.currentline) or {}
  return lines[#lines] or "", #lines == 2 and lines[1] or ""
end

-- stripped(read) -> the lines of the site from that which has read to that which calls now, without texts and comments; nil: they
-- are in two files.
local function stripped(read)
  local now = site_info()
  if not now or not read.info or now.source ~= read.info.source then return nil end
  local lines = lines_of(now, read.info.currentline, now.currentline)
  for i, line in ipairs(lines) do
    lines[i] = line:gsub('%b""', '""'):gsub("%b''", "''"):gsub("%[%[.-%]%]", '""'):gsub("%-%-.*", ""):gsub("<%a+>", "")
  end
  return lines
end

-- decides(read, field, length) -> whether a comparison of what was read decides about the line of the site that calls now: one by
-- < or >, or, with the name of a field, one of the value or of this field with a number by == or ~=. `length`: a return
-- at the length 0 is in order.
local function decides(read, field, length)
  local lines = stripped(read) or {}
  local name = (lines[1] or ""):match("([%a_][%w_]*)%s*=%f[^=]")
  local of = field and "%." .. tostring(field):gsub("%W", "%%%0")
  for i, line in ipairs(lines) do
    local at = i == 1 and line:find("[<>]") or i > 1 and name and (line:find("%f[%w_]" .. name .. "%f[^%w_][^,]-[<>]")
      or line:find("[<>]=?%s*" .. name .. "%f[^%w_]"))
    local word, operator, number = name and "%f[%w_]" .. name, nil, nil
    for _, pattern in ipairs(field and (i == 1 and { "%)", "#[%w_.]+", of } or word and { word, word .. of }) or {}) do
      if not at then at, _, operator, number = line:find(pattern .. "%s*([=~]=)%s*(%d+)") end
    end
    if at then
      local rest = line:sub(at) .. "\n" .. table.concat(lines, "\n", i + 1)
      local returns = rest:find("%f[%w_]return%f[^%w_]") or rest:find("%f[%w_]error%f[^%w_]")
      local inside = not table.concat(lines, "\n", i, #lines - 1):find("%f[%w_]end%f[^%w_]")
      if length and number == "0" then return operator == "~=" and returns or operator == "==" and inside end
      return returns or inside
    end
  end
  return false
end

local uses = set_of "return and or not in if elseif while until" -- a call after one of these words has its results used

-- is_statement(line, at, before) -> whether nothing uses the results of the call there. `before`: the line before.
local function is_statement(line, at, before)
  local prefix = line:sub(1, at - 1):gsub("%s+$", "")
  if prefix == "" then prefix = before:gsub("%-%-.*", ""):gsub("%s+$", "") end
  return prefix == "" or not uses[prefix:match("%a+$")] and prefix:find("[%w_%)%]}\"';]$") ~= nil
end

-- statement_of(names, only) -> "db:exec", the first call of a function with one of these names in the line of the site that
-- called luaserve, if it is a statement, whose results nothing uses; else nil. `only`: of the one with this name.
local function statement_of(names, only)
  local line, before = caller_line()
  for at, call, name in line:gmatch("()%f[%w_]([%a_][%w_.:]*[.:]([%a_][%w_]*))%s*[%({\"'%[]") do
    if names[name] and name == (only or name) then return is_statement(line, at, before) and call or nil end
  end
end

local writes_to_client = set_of "send write flush comment ping"
local results_matter = set_of "transaction write mkdir rename fetch process send set incr update rpush lpush save wait"
local client_left = set_of "ECLOSED ECONNRESET ERESET EPIPE"

-- state.note_failure(message, code, name): the function that called this one, of this name or nil, returns nil, `message` and `code`
-- to the site.
function state.note_failure(message, code, name)
  local place, entries = usage.caller(), client_left[code] and variables and entries_of()
  if entries and place then
    local left = entries.left or {}
    local first, call = left[place], statement_of(writes_to_client, name)
    entries.left, left[place] = left, first or runs
    if call and first and first ~= runs then
      warn(place, ("%s has returned nil since the client has left, and the function does not end: end the loop, as in while %s(...) do")
        :format(call, call))
    end
  end
  if client_left[code] or not place or name == "wait" and code == "ETIMEDOUT" then return end
  local call = statement_of(results_matter, name)
  if not call or not core.dev.once("unused result: " .. place) then return end
  warn(place, string.format("%s has returned nil: %s; look at its results, or write assert(%s(...))", call, message, call))
end

local tables_of = { "%f[%w_]from%s+([%w_.]+)", "%f[%w_]join%s+([%w_.]+)" }
local in_one_step = { db = "db:transaction", pg = 'pg:transaction with "select ... for update"',
  tx = '"select ... for update"', sqlite = "tx for the select as well" }
local then_it = { update = "updates", delete = "deletes from", insert = "inserts into", replace = "replaces a row of" }

-- overwrites(assignments, where, read, counts) -> whether an update sets a column to a value that does not depend on the old one,
-- nor does its condition. In order: a constant for a column that the select has not read, and a column that it has read with all
-- others, and no line since names. `counts`: also n = n + 1, after a look at a limit, as also when the select or a line since compares
-- the column with a number.
local function overwrites(assignments, where, read, counts)
  local now, select = site_info(), read.sql
  local between = now and read.info and now.source == read.info.source and now.currentline >= read.info.currentline
    and table.concat(lines_of(now, read.info.currentline, now.currentline), "\n"):lower()
  for column, value in (assignments:gsub("excluded%.[%w_]+", "?") .. ","):gmatch("([%w_]+)%s*=%s*(.-),") do
    local name = "%f[%w_]" .. column .. "%f[^%w_]"
    local marks = value:find("^[^?$:@(]*$") and not select:find(name) and not select:find("*", 1, true)
    if between and value:find("[?$:@]") and select:find("*", 1, true) then marks = marks or not between:find("[.\"]" .. column .. "%f[^%w_]") end
    if not marks and not where:find(name) and (counts or not value:find(name) or decides(read, column) or select:find(name .. "%s*[<>]"))
      and not value:find("^[%w_]+%(%s*[)']") and not value:find("^current_") then return true end
  end
  return false
end

-- passes_on(read) -> whether the line of the site that calls now names the variable with what was read, or a field of it that the
-- select has not compared.
local function passes_on(read)
  local lines = stripped(read) or {}
  local name, where = (lines[1] or ""):match("local%s+([%w_]+)%s*="), read.sql:match("%f[%w_]where%f[^%w_](.*)") or ""
  for after in (name and #lines > 1 and lines[#lines] or ""):gmatch("%f[%w_]" .. (name or "") .. "%f[^%w_]%.?([%w_]*)") do
    if after == "" or not where:find("%f[%w_]" .. after:lower() .. "%f[^%w_]") then return true end
  end
  return false
end

-- has_key(sqls, name, select) -> whether these statements make a key that refuses a second row in the table of this name, of a column
-- that the select compares or computes with.
local function has_key(sqls, name, select)
  local text = " " .. table.concat(sqls, "; "):lower():gsub('["`%[%]]', "")
  local keys = {}
  for part in (text:match("%screate%s+table[^(;]-%f[%w_]" .. name .. "%s*(%b())") or ""):sub(2, -2):gsub("%b()", function(list)
    return list:gsub(",", " ")
  end):gmatch("[^,]+") do
    if part:find("%f[%w_]unique%f[^%w_]") or part:find("primary%s+key") and not part:find("integer%s+primary") then
      keys[#keys + 1] = part:match("%((.-)%)") or part:match("[%w_]+")
    end
  end
  for list in text:gmatch("%screate%s+unique%s+index[^;]-%son%s+" .. name .. "%s*(%b())") do keys[#keys + 1] = list end
  for _, key in ipairs(keys) do
    for column in key:gmatch("[%w_]+") do
      if select:find("%f[%w_]" .. column .. "%f[^%w_]") then return true end
    end
  end
  return false
end

-- looks_for(read) -> whether the line with db:one, or a later one, asks whether there is a row, and returns.
local function looks_for(read)
  if read.line:find("%f[%w_]if%s+[%w_]+:one%(") then return true end
  local name, now = read.line:match("local%s+([%w_]+)%s*=%s*[%w_]+:one%("), site_info()
  local lines = name and now and read.info and now.source == read.info.source
    and table.concat(lines_of(now, read.info.currentline, now.currentline), "\n") or ""
  return lines:find("%f[%w_]if%s+" .. (name or "") .. "%s+then.-%f[%w_]return%f[^%w_]") ~= nil
end

-- numbers_from(read) -> whether a line since then compares the number that was read with another one, or adds to it.
local function numbers_from(read)
  local now = site_info()
  local lines = now and read.info and now.source == read.info.source and lines_of(now, read.info.currentline, now.currentline) or {}
  local text = table.concat(lines, "\n"):gsub('%b""', function(sql) return sql:find("%+%s*1") and "+" or '""' end)
  return text:find("[=~]=%s*%d") or text:find("%+") or text:find("<%f[^<]=?%s*%d") or text:find(">=?%s*%d")
end

local writes = set_of "insert update delete replace drop alter truncate create"
local repeatable = { "^insert%s+or%s+ignore", "on%s+conflict.-do%s+nothing", "if%s+not%s+exists", "where%s+not%s+exists",
  "luaserve_version", "luaserve_migration" }

-- A statement while the site loads. One that changes nothing when it runs again is in order.
local function note_sql(sql, call, object)
  sql = sql:lower():gsub("%-%-[^\n]*", ""):gsub("^%s+", "")
  local word = sql:match("^%a+")
  local writes_in = word == "with" and sql:find("%)%s*[iud]%a+%f[%W]") -- insert, update, delete
  if not writes[word] and not writes_in and not call:find(":copy_in") then return end
  for _, pattern in ipairs(repeatable) do
    if sql:find(pattern) then return end
  end
  note_top(call, ": use " .. object .. ":migrate, whose statements run once, or ls.init")
end

-- state.watch_handler(fn) -> the handler behind middleware. What that has selected, such as the user, decides who may do it; it is not
-- the old value of what the handler updates.
function state.watch_handler(fn)
  return function(...)
    local entries = reads[running()]
    for db in pairs(entries and entries.databases or {}) do entries[db] = nil end
    return fn(...)
  end
end

local of_paths = {} -- by path: what stands for a database of SQLite and its transactions

-- state.watch_sql(db, sql, call, kind, sqls): a statement by a call such as "db:exec". In order is what another statement cannot make
-- wrong, as what a transaction of SQLite, which excludes all others that write, has read itself. `sqls`: the migrations.
function state.watch_sql(db, sql, call, kind, sqls)
  if not variables then return call:find(":migrate") == nil and note_sql(sql, call, rawget(db, "types") and "pg" or "db") end
  if writes[sql:lower():match("%a+")] then state.watch_effect(call) end
  local tx = kind == "transaction" and not rawget(db, "types") and db or nil -- one of PostgreSQL excludes no other
  of_paths[db.target] = of_paths[db.target] or {}
  db = rawget(db, "types") or of_paths[db.target]
  local entries = entries_of()
  if not entries then return end
  local tables = entries[db] or {}
  entries[db], sql = tables, sql:lower():gsub('["`%[%]]', "")
  entries.databases = entries.databases or {}
  entries.databases[db] = true
  if sql:find("^%s*select%f[^%w_]") or sql:find("^%s*with%f[^%w_]") then
    local read = not sql:find("%sfor%s+[%a%s]*update") and { run = runs, info = site_info(), line = caller_line(), sql = sql, tx = tx } or nil
    for _, pattern in ipairs(tables_of) do
      for name in sql:gmatch(pattern) do
        name = name:match("[^.]*$")
        tables[name] = read
        if kind ~= "transaction" and entries.inserted and entries.inserted[name] and sql:find("select%s+max%s*%(") then
          warn(usage.caller() or entries.inserted[name], ("inserts into the table %s and then selects the greatest key, which may be that of "
            .. "another request: %s"):format(name, call:find("^pg") and "add returning id to the insert"
            or "use last_id of the result, or returning id"))
        end
      end
    end
    return
  end
  sql = sql:gsub("^%s*insert%s+or%s+replace%f[^%w_]", "replace")
  local verb, target, rest = sql:match("^%s*(update)%s+(.-)%s+set%f[^%w_](.*)")
  if not verb then verb, target, rest = sql:match("^%s*(%a+)%s+%a+%s+([%w_.]+)(.*)") end
  local name = writes[verb] and target:gsub("^or%s+%a+%s+", ""):gsub("^only%s+", ""):match("^[%w_.]*"):match("[^.]*$")
  if not name then return end
  local read, noted, wrong = tables[name], writers[db] and writers[db][name], nil
  note_write(db, name, entries)
  local taken = verb == "update" and rest:match("%f[%w_]([%a_][%w_]*)%s*=%s*%1%s*%-")
  local done = taken and rest:find("%f[%w_]where%f[^%w_].-%f[%w_]" .. taken .. "%s*>") and statement_of(set_of "exec")
  if done then
    warn(usage.caller() or core.dev.site, ("%s takes from %s where enough is there, and nothing looks at whether it was: its result has changes, "
      .. "which is 0 if not, as in if %s(...).changes == 0 then return 409 end"):format(done, taken, done))
  end
  if verb == "insert" and not tx then
    entries.inserted = entries.inserted or {}
    entries.inserted[name] = usage.caller() or core.dev.site
  end
  if not read or tx and read.tx == tx or not may_race(read.run, not entries.each_state and entries.origin, noted) then return end
  local where = (rest:match("%f[%w_]where%f[^%w_](.*)") or ""):gsub("%f[%w_]returning%f[^%w_].*", "")
  local advice = 'Put the condition into the update, as in "where id = ? and count > 0", and look at the changes of its result, or use '
    .. in_one_step[tx and "sqlite" or call:match("^%a+")]
  local upsert = sql:match("%f[%w_]on%s+conflict.-%f[%w_]set%f[^%w_](.*)")
  if verb == "update" and not where:find("[<>]") then
    wrong = overwrites(rest:match("^(.-)%f[%w_]where%f[^%w_]") or rest, where, read, decides(read))
  elseif verb == "delete" then
    wrong = where ~= "" and statement_of(set_of "exec delete")
    advice = "Let the changes of its result decide, which are 0 for all but one"
  elseif upsert then
    wrong = overwrites(upsert:match("^(.-)%f[%w_]where%f[^%w_]") or upsert, where, read, decides(read))
  elseif verb == "replace" then
    wrong = passes_on(read)
    advice = 'Let the statement compute the value, as in "on conflict (id) do update set n = n + excluded.n", or use '
      .. in_one_step[tx and "sqlite" or call:match("^%a+")]
  elseif verb == "insert" and not sql:find("on%s+conflict") then
    local computes = read.sql:find("select%s+[%w_(]*count%s*%(") or read.sql:find("max%s*%(")
    wrong = decides(read) or computes and (numbers_from(read) or read.sql:find("count%s*%b()%s*[<>=]"))
    local looks = not wrong and (kind ~= "transaction" or tx) and looks_for(read)
    wrong = (wrong or looks) and not has_key(sqls or {}, name, read.sql)
    advice = looks and "Make an index unique, and let the insert fail with EEXIST" or "Put the condition into the insert, as in "
      .. '"insert into ... select ... where (select count(*) ...) < 10", or use ' .. in_one_step[tx and "sqlite" or call:match("^%a+")]
  end
  if wrong then
    warn(usage.caller() or core.dev.site, ("selects from the table %s and then %s it in another statement: another request may "
      .. "change it in between. %s"):format(name, then_it[verb], advice))
  end
end

local decisions, followers = set_of "if elseif while until not and or", set_of "then do and or"

-- state.watch_reply(call, value): a line of the site has got this result of a database, such as "r:del" or "db:delete".
function state.watch_reply(call, value)
  local line, number = caller_line(), "%s*[=~]=%s*[01]%f[^%w.]"
  for word, rest in line:gmatch("(%a*)[%s(]+[%a_][%w_.]*:" .. call:match("%a+$") .. "%s*%b()%s*([^\n]*)") do
    if type(value) == "boolean" and rest:find("^" .. number) then
      warn(usage.caller(), call .. " returns true or false, never a number: leave out the comparison")
    elseif value == 0 and decisions[word] and not rest:find("^[=~<>]") then
      warn(usage.caller(), ("%s has returned 0, which is true in Lua: write %s(...) > 0"):format(call, call))
    end
  end
end

-- state.watch_exit(code): a program of ls.process has failed.
function state.watch_exit(code)
  if statement_of(results_matter) or caller_line():find("if%s+n?o?t?%s*ls%.process[^\n]-%sthen") then
    warn(usage.caller() or core.dev.site, ("a program of ls.process has failed with the exit status %d: its result is a table "
      .. "also then; look at its code"):format(code))
  end
end

-- state.watch_subscribe(call): a function that stays is subscribed.
function state.watch_subscribe(call)
  if core.dev.task() and statement_of(set_of "subscribe psubscribe") then
    warn(usage.caller() or core.dev.site, call .. " in a handler stays when its client has left, one for each: keep its result and "
      .. "call remove, or subscribe once at the top of the file, and pass the messages on with ls.publish")
  end
end

-- watch_committed(fn, status, body, ...) -> these results of the function of a transaction, which is committed.
local function watch_committed(fn, status, body, ...)
  if math.type(status) ~= "integer" or status < 400 or status > 599 or type(body) ~= "string" and type(body) ~= "table" then
    return status, body, ...
  end
  local lines, info = function_lines(fn)
  local at = info.linedefined
  for i, line in ipairs(lines) do
    if line:find("%f[%w_]return%s*%(?" .. status .. "%f[^%w_.]") then at = info.linedefined + i - 1 end
  end
  warn(info.short_src .. ":" .. at, ("the function of a transaction has returned the status %d, and the transaction was "
    .. "committed: return nil and a reason, which undoes it, and then return %d outside of the transaction, or raise")
    :format(status, status))
  return status, body, ...
end

-- state.watch_transaction(fn) -> the function of a transaction, with a look at its results.
function state.watch_transaction(fn)
  return function(tx) return watch_committed(fn, run_inside("transaction", fn, tx)) end
end

-- state.watch_file(path, use, append): a task reads the file, "data", or replaces its content, "own".
function state.watch_file(path, use, append)
  if append then return state.watch_effect("ls.file.write") end
  local entries = variables and entries_of()
  if not entries then return end
  entries.files = entries.files or {}
  if use == "data" then
    entries.files[path] = true
  elseif entries.files[path] and not entries.origin and not is_locked() then
    warn(usage.caller() or core.dev.site, ("reads and then writes the file %q: what another request writes in between is lost. Do "
      .. "both in one step under a semaphore, as in order:with(fn), or keep the data in a dict with a file or in ls.sqlite"):format(path))
  end
end

function open_in_task(path, mode, ...)
  local use = (mode == nil or mode == "r" or mode == "rb") and "data" or (mode == "w" or mode == "wb") and "own"
  if use and type(path) == "string" then state.watch_file(path, use) end
  return io_open(path, mode, ...)
end

-- ---- dicts ----------------------------------------------------------------------------------------------------------

-- Warn of dict[key] with a key that the line computes: it may come from a client, who can send the name of a method.
local function warn_index(name, key)
  local place = usage.caller()
  if not place or indexed[place] then return end
  indexed[place] = true
  key = key:gsub("%W", "%%%0")
  local line = caller_line()
  if not line:find("%[%s*[%a_(]") or line:find("[%.\"']" .. key .. "%f[^%w_]") then return end
  warn(place, string.format("reads the dict %q with [key]: for a key such as \"get\" that is the method, which is true. "
    .. "Use dict:get(key) for keys that clients choose", name))
end

-- Keys of what a task has read: the length of the dict + 1; where it was read; a loop over the dict. Of its `entries`: the
-- numbers that it has got from a counter in a dict without a file.
local next_index, length, scan, numbers = {}, {}, {}, {}

local observers = setmetatable({}, { __mode = "k" }) -- by dict
local files_of = setmetatable({}, { __mode = "k" }) -- by dict
local blind -- the function of the last dict:update does not look at the value

-- returns(read) -> whether a line from there to that of the site that calls now returns.
local function returns(read)
  local now = site_info()
  local lines = now and read.info and lines_of(now, read.info.currentline, now.currentline) or {}
  return table.concat(lines, "\n"):find("%f[%w_]return%f[^%w_]") ~= nil
end

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
    keys[length] = { run = runs, info = site_info() }
    keys[scan] = keys[length]
    entries.reread = entries.reread or entries.written and entries.written[named(dict)] and name
  elseif call == "clear" and keys[scan] and next(writers[dict] or {}) then
    warn(usage.caller() or core.dev.site, ("reads and then clears the dict %q: what others write in between is lost: take each entry "
      .. "with update, whose function returns nil and what was there"):format(name))
  end
  if type(key) ~= "string" and not math.tointeger(key) then return end -- no dict has such a key
  local twin = call ~= "#" and observers[dict] and (math.type(key) == "integer" and tostring(key)
    or type(key) == "string" and key:find("^[1-9]%d*$") and math.tointeger(tonumber(key)))
  if twin and core.dict_read(dict, key) == nil and core.dict_read(dict, twin) ~= nil then
    warn(usage.caller() or core.dev.site, ("the dict %q has the key %s, and not the key %s: a number and a text are two keys. "
      .. "What a request sends is text: use tonumber(req.params.id)"):format(name, usage.quote(twin), usage.quote(key)))
  end
  if call == "[key]" then
    if type(key) == "string" and not entries.origin then warn_index(name, key) end
    call = "get"
  end
  if call == "#" then
    keys[next_index], keys[length] = key + 1, { run = runs, info = site_info() }
    return
  end
  local sets = is_set[call]
  if key == keys[next_index] and sets then
    warn(usage.caller() or core.dev.site, string.format("appends to the dict %q at its length + 1: another request may do "
      .. "so at the same time, and one of the two is lost. Use rpush and range on a list under one key, or incr for a "
      .. "number that no other request gets", name))
    keys[length] = nil
  end
  local at = (sets or call == "rpush") and tonumber(tostring(key):match("^%a*[-_:]?(%d+)$"))
  if at and not entries.origin and os.time() - at <= 1 and at <= os.time() then
    warn(usage.caller() or core.dev.site, ("the key of the dict %q is the time: two requests of one second write the same entry. Use "
      .. "incr for a number that no other request gets, or ls.crypto.uuid()"):format(name))
  end
  if is_read[call] then
    entries.reread = entries.reread or keys[key] == false and name
    if keys[key] == nil then
      local value = (call == "get" or call == "pairs") and observers[dict] and core.dict_read(dict, key)
      keys[key] = { run = runs, info = call ~= "pairs" and site_info(), value = tonumber(value) }
    end
    if keys[key] and keys[key].call ~= "range" then keys[key].call = call end
    return
  end
  state.watch_effect(call:find("^%[") and "dict" .. call or "dict:" .. call)
  local read, noted, text = keys[key], writers[dict] and writers[dict][key], nil
  note_write(dict, key, entries, grows[call] or call == "update")
  local file = files_of[dict]
  local count = call == "incr" and observers[dict] and (core.dict_read(dict, key) or ttl or 0)
  if type(count) == "number" then
    local number = tostring(count + (tonumber(value) or 1))
    entries.counted, entries[numbers] = entries.counted or {}, entries[numbers] or {}
    entries.counted[number], entries[numbers][number] = true, not file and name or nil
  elseif file and (sets or call == "add") and entries[numbers] and entries[numbers][tostring(key)] then
    warn(usage.caller() or core.dev.site, ("the dict %q has a file, and its key is a number of the dict %q, which has none: after a "
      .. "restart that counts from 1, and entries are overwritten. Write ls.dict(%q, { file = %q })"):format(name,
      entries[numbers][tostring(key)], entries[numbers][tostring(key)], file))
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
  if not text or not may_race(read.run, not entries.each_state and entries.origin, noted) then return end
  warn(usage.caller() or core.dev.site, string.format("reads and then " .. text, name))
end

-- state.watch_dict(name, dict, evicts, file): the site has opened this dict. `evicts`: it is a cache.
function state.watch_dict(name, dict, evicts, file)
  if name:find("^luaserve%.") then return end -- of luaserve itself
  files_of[dict], names_of[dict] = file, name
  observers[dict] = function(call, _, ...)
    if not variables then return call ~= "#" and note_dict(call, dict, ...) end
    local entries = not evicts and entries_of()
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

-- state.watch_queued(call): a command such as "p:exists" of a pipeline. Its result is no reply yet, but true in a condition.
function state.watch_queued(call)
  local level = 2
  while getinfo(level, "S").source == "@luaserve/redis.lua" do level = level + 1 end
  if usage.is_internal(getinfo(level, "S").source) then return end -- a dict in Redis
  local line, before = caller_line()
  local method = call:match("%w+$")
  for at, name in line:gmatch("()%f[%w_][%a_][%w_.]*:([%a_][%w_]*)%s*[%({\"'%[]") do
    local text = before .. " " .. line:sub(1, at - 1)
    if name == method and not is_statement(line, at, before) and not text:find("return%s*$") then
      warn(usage.caller() or core.dev.site, ("the result of %s is no reply: it stands in the list that r:pipeline or r:transaction "
        .. "returns; to read first, use c of r:transaction(keys, function(t, c) ... end)"):format(call))
    end
  end
end

-- state.watch_redis(node, name, key, value, option): a command of Redis.
function state.watch_redis(node, name, key, value, option)
  local entries = variables and type(key) == "string" and entries_of()
  if not entries then return end
  local read, trims_read = entries[node] and entries[node][key], nil
  if read and trims[name] then trims_read = name == "LTRIM" and tonumber(value) ~= 0 or name ~= "LTRIM" and read.from == value and read.to == option end
  if read and not is_locked() and (removals[name:lower()] and takes(read) or trims_read and trims[name] == read.name) then
    warn(usage.caller() or core.dev.site, ("reads and then removes what it has read from Redis (%s): another task may have read it as well, "
      .. "and both continue. Let the result decide, as in if r:zrem(key, member) > 0, or take it with lpop, spop or zpopmin"):format(name:lower()))
  end
  local call = as_dict[name]
  if call then watch_call(entries, "", call, node, key, value, name == "SET" and option or nil) end
  read = (call == "members" or call == "range") and entries[node][key]
  if read then read.name, read.from, read.to, read.line = name, value, option, caller_line() end
end

-- state.watch_pairs(dict, key): a loop over the dict has come to this key; without it, all keys are read.
function state.watch_pairs(dict, key)
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

-- state.watch_update(fn) -> the function that dict:update calls in place of fn: reports a flag or number that fn changes.
function state.watch_update(fn)
  local text = table.concat((function_lines(fn)), "\n"):match("function%s*%(.*") or "if"
  blind = true -- unless it compares the value, or gives it to the caller
  for _, pattern in ipairs { "%f[%w_]if%f[^%w_]", "%f[%w_]and%f[^%w_]", "[=~]=", "[<>]", "return%s+nil%s*," } do
    blind = blind and not text:find(pattern)
  end
  return function(old)
    local before = flags_of(fn)
    local results = table.pack(run_inside("update", fn, old))
    for at, value in pairs(before) do
      local name, now = getupvalue(fn, at)
      if now ~= value then
        warn(usage.caller() or core.dev.site, string.format("the function of dict:update changes %s, and runs again when "
          .. "another request was faster: let it return this as its second result, which update returns", name))
      end
    end
    return table.unpack(results, 1, results.n)
  end
end

-- state.watch_semaphore(semaphore): the site has opened this semaphore.
function state.watch_semaphore(semaphore)
  if semaphore.permits == 1 then locks[#locks + 1] = semaphore end
end

-- state.begin_request(), state.end_request(): a handler of an app begins or has ended in the running coroutine.
function state.begin_request() reads[running()] = { request = true } end
function state.end_request() reads[running()] = nil end

-- state.watch_values(name): a schema takes the first of several values that were sent.
function state.watch_values(name)
  state.warn_here(("several values of %q were sent, and the schema takes the first: { \"string\" } is the list of all"):format(name))
end

-- state.watch_fields(req, form): req:form() has the first value of each field. Warns of a field with several of which the first is read, or
-- which is passed on with the form, in a function that does not call form_all.
function state.watch_fields(req, form)
  local info = type(select(2, next(form))) == "string" and site_info()
  local lines = info and lines_of(info, info.linedefined, info.lastlinedefined) or {}
  local name = caller_line():match("([%a_][%w_]*)%s*=%s*[%w_.]+:form%(")
  local text, base = table.concat(lines, "\n"), name and "%f[%w_.]" .. name or ":form%(%s*%)"
  local passed = not text:find(":form_all", 1, true) and (name and text:find("[(,{=n]%s*%f[%w_]" .. name .. "%s*[,)\n}]")
    or not name and caller_line():find("[(,{=n]%s*[%w_.]+:form%(%s*%)%s*[^%s.%[]") or text:find("return%s+[%w_.]+:form%(%s*%)"))
  for field, values in pairs(lines[1] and req:form_all() or {}) do
    local escaped = field:gsub("%W", "%%%0")
    if values[2] and (passed or text:find(base .. "%." .. escaped .. "%f[^%w_]") or text:find(base .. "%[[\"']" .. escaped .. "[\"']%]")) then
      state.warn_here(("the form has several values of %q: req:form() has the first, req:form_all() the list of all"):format(field))
    end
  end
end

-- state.watch_form(name): req:form() has left a file out.
function state.watch_form(name)
  warn(usage.caller() or core.dev.site, ("req:form() leaves out the file %q: read the form with req:parts(), part:save and "
    .. "part:body"):format(name))
end

local instead_of = { headers = "upstream.headers[name]", cookies = 'upstream.headers["Cookie"]', query = "upstream.path" }

-- state.watch_proxy(req): app:proxy sends the request.
function state.watch_proxy(req)
  local sent = {}
  sent.headers, sent.cookies, sent.query = core.sent(req)
  for name, fields in pairs(sent) do
    for _, list in ipairs { fields, req[name] } do
      for key in next, list do
        if rawget(req[name], key) ~= rawget(fields, key) then
          state.warn_here(("req.%s[%q] has changed, and the server of app:proxy gets what the client has sent: set %s in the hook "
            .. "request of app:proxy"):format(name, key, instead_of[name]))
        end
      end
    end
  end
end

-- state.watch_key(fn, req, key): fn has given a key of rate_limit to a request without a user.
function state.watch_key(fn, req, key)
  local info = getinfo(fn, "S")
  for _, values in ipairs { req.headers, req.query } do
    for _, value in pairs(values) do
      if value == key then
        warn(info.short_src .. ":" .. info.linedefined, "the key of rate_limit is what the client sends: with another one for "
          .. "each request it has no limit. Return what was checked, such as req.user, or let a rate_limit without key go first")
      end
    end
  end
end

local logins = " account accountid username userid login loggedin isloggedin member memberid email mail admin isadmin auth "
  .. "authenticated authorized customer customerid principal identity person personid "
local login_places = setmetatable({}, { __mode = "k" }) -- by session: the field that looks like a login, and where it was set

-- state.watch_session(session, key, value): the field is set for the first time. Without a key: the session is stored;
-- `value`: with a new id.
function state.watch_session(session, key, value)
  local seen = login_places[session]
  if key and value and logins:find(" " .. key:lower():gsub("_", "") .. " ", 1, true) then
    login_places[session] = { key = key, place = usage.caller() or core.dev.site }
  elseif not key and seen and not value then
    warn(seen.place, string.format("sets session.%s, which looks like a login, and the session keeps its id: a stranger who has "
      .. 'given the visitor this id is logged in as well. Write ls.session{ login = "%s" }, or call '
      .. "req.session:regenerate() here", seen.key, seen.key))
  end
end

-- ---- topics and channels --------------------------------------------------------------------------------------------

-- carries(data, options, number) -> whether the message of ls.publish has the number, which is text.
local function carries(data, options, number)
  if type(options) == "table" and options.id == number then return true end
  if type(data) ~= "table" then data = { data } end
  for _, value in pairs(data) do
    local text = (type(value) == "string" or type(value) == "number") and tostring(value)
    if text and text:find("%f[%w_.-]" .. number:gsub("%p", "%%%0") .. "%f[^%w_.-]") then return true end
  end
  return false
end

-- state.watch_publish(topic, data, options): a task publishes a message.
function state.watch_publish(topic, data, options)
  local entries = variables and entries_of()
  if not entries or type(topic) ~= "string" then return end
  state.watch_effect("ls.publish", after_it)
  for name in pairs(entries.written or {}) do notes():set(topic .. "\0" .. name, true) end
  if entries.reread and not entries.origin and not is_locked() and not (type(data) == "table" and data.version) then
    warn(usage.caller() or core.dev.site, ("changes the dict %q and publishes what it then has: another request may publish its newer "
      .. "state first, and the older one stays. Do all of it in one step under a semaphore, as in order:with(fn)"):format(entries.reread))
  end
  for number in pairs(not entries.origin and not is_locked() and entries.counted or {}) do
    if carries(data, options, number) then
      warn(usage.caller() or core.dev.site, "publishes a number that incr has given: another request may publish its later "
        .. "number first, and the older one stays. Do both in one step under a semaphore, as in order:with(fn), or leave the "
        .. "number to the topic: { retain = 100, id = true }")
    end
  end
end

-- state.watch_pattern(topic): ls.subscribe is called.
function state.watch_pattern(topic)
  local before = type(topic) == "string" and topic:match("^(.-)%W*%*")
  if before then
    state.warn_here(("subscribes to %q, and a topic is no pattern: subscribe to each topic, or publish to %q as well"):format(topic, before))
  end
end

-- state.watch_topic(topic): a connection subscribes.
function state.watch_topic(topic)
  state.watch_pattern(topic)
  local entries = variables and not is_locked() and entries_of()
  for of, keys in next, entries or {} do
    for key, read in next, type(of) ~= "string" and type(keys) == "table" and keys or {} do
      local all = key == scan or key == length or type(read) == "table" and read.call == "pairs"
      if type(read) == "table" and notes():get(topic .. "\0" .. (all and named(of) or named(of, key))) then
        warn(usage.caller() or core.dev.site, ("subscribes to %q after it has read %s: a message of the time in between is "
          .. "missing. Let the topic keep the last messages, which a new subscriber gets first: ls.publish(topic, data, "
          .. "{ retain = 50 }); or read and subscribe in one step, under the semaphore of the publisher"):format(topic,
          names_of[of] and ("the dict %q"):format(names_of[of]) or "the table " .. tostring(key)))
      end
    end
  end
end

-- watch_receiver(channel): a task takes a value. Warns of a loop that sends the values to its client, when another client
-- runs it as well.
local function watch_receiver(channel)
  local entries = variables and entries_of()
  local info = entries and not entries.origin and site_info()
  if not info or not table.concat(lines_of(info, info.currentline, info.lastlinedefined), "\n"):find(":send%s*[({\"']") then
    return
  end
  local place, me = info.short_src .. ":" .. info.currentline, tostring(running())
  local key = place .. "\0" .. channel.name
  if not notes():add(key, me) and notes():get(key) ~= me then
    warn(place, ("several clients take values from the channel %q, and each value goes to one of them. What all are to get "
      .. "is a message of a topic: ls.publish(topic, value), and sse:subscribe(topic) or ws:subscribe(topic)")
      :format(channel.name))
  end
end

-- The results of a method of a channel; an error in its arguments is one of the line of the site.
local function at_caller(name, fine, first, ...)
  if fine then return first, ... end
  local number, text = tostring(first):match("^bad argument #(%d) to '%?' (.*)")
  if number then usage.error("bad argument #%d to '%s' %s", number - 1, name, text) end
  if tostring(first):find("^channel:") then usage.error("%s", first) end
  error(first, 0)
end

-- state.watch_channel(channel): the site has opened it. All channels of a state have the same methods.
function state.watch_channel(channel)
  local _, methods = getupvalue(getmetatable_of(channel).__index, 1)
  if methods == watched_methods then return end
  watched_methods = methods
  for name, watch in pairs { receive = watch_receiver, values = watch_receiver, send = effect_of "channel:send" } do
    local inner = methods[name]
    methods[name] = function(self, ...)
      if getmetatable_of(self) == getmetatable_of(channel) then watch(self) end
      return at_caller(name, pcall(inner, self, ...))
    end
  end
end

-- ---- results --------------------------------------------------------------------------------------------------------

-- state.warn_route(name_route, method, path, text [, between]): a warning at the route of the request. `between` the name
-- and the text: a space unless given.
function state.warn_route(name_route, method, path, text, between)
  local name, place = nil, nil
  if name_route then name, place = name_route(method, path) end
  warn(place or core.dev.site, (name or method .. " " .. path) .. (between or " ") .. text)
end

-- count_place(fn, number) -> the line of the function that returns a computed number, or nil.
local function count_place(fn, number)
  local lines, info = function_lines(fn)
  local text = table.concat(lines_of(info, 1, math.huge), "\n")
  if text:find("%f[%w_.]" .. number .. "%f[^%w_.]") then return nil end -- it is written somewhere as a status
  local counts, found = {}, nil
  for at, line in ipairs(lines) do
    local name, value = line:match("([%a_][%w_]*)%s*=%s*(.*)")
    if name and (value:find("incr%s*%(") or value:find("^#") or value:find("%+")) then counts[name] = true end
    local result = line:match("%f[%w_]return%s+(.*)")
    if result and (result:find("incr%s*%(") or result:find("^#") or counts[result:match("^[%a_][%w_]*")]) then
      found = info.short_src .. ":" .. info.linedefined + at - 1
    end
  end
  return found
end

-- state.stands_for(wrapper, fn): a function of luaserve that calls the function of the site in its place.
function state.stands_for(wrapper, fn)
  if own_functions then own_functions[wrapper] = fn end
end

-- warn_repeated(fn, req): warns of a line of the function that reads the first of several values of a parameter.
local function warn_repeated(fn, req)
  if not req.target:find("&", 1, true) then return end
  local info = getinfo(fn, "S")
  for name, values in pairs(req.query_all) do
    for i, line in ipairs(values[2] and lines_of(info, info.linedefined, info.lastlinedefined) or {}) do
      local _, stop = line:find("query." .. name, 1, true)
      if stop and not line:find("^[%w_]", stop + 1) or line:find('query["' .. name .. '"]', 1, true) then
        warn(info.short_src .. ":" .. info.linedefined + i - 1, ("the request has several values of %q: req.query has the "
          .. "first, req.query_all the list of all"):format(name))
      end
    end
  end
end

-- watch_lists(handler, body): a table that becomes JSON.
local function watch_lists(handler, body)
  local info = getinfo(handler, "S")
  for i = 1, 255 do -- the function of a route with checks is that of route_schema.lua
    local name, value = getupvalue(handler, i)
    if not name or not usage.is_internal(info.source) then break end
    if name == "fn" and type(value) == "function" then info = getinfo(value, "S") end
  end
  local place = info.short_src .. ":" .. info.linedefined
  local function look(value, name)
    if type(value) ~= "table" or getmetatable_of(value) then return end
    local is = next(value) == nil and "empty" or value[1] ~= nil and "list"
    local key = place .. name
    local lists = notes()
    if is and lists:get(key) and lists:get(key) ~= is then
      warn(place, name .. " is a list in one response and empty in another, which is sent as {}: write ls.json.array(t)")
    end
    if is then lists:set(key, is) end
    local first = math.type(next(value))
    if first == "integer" and #value == 0 or value[1] ~= nil and value[#value + 2] ~= nil then
      warn(place, name .. " has integers with gaps as keys, which is no list for a client: use tostring(id), or rows with an id")
    end
  end
  look(body, "the result")
  for name, value in next, type(body) == "table" and getmetatable_of(body) == nil and body or {} do
    if type(name) == "string" then look(value, "the field " .. name) end
  end
end

local guards = set_of "basic_auth bearer_auth csrf rate_limit oidc"

-- refusal_in(fn) -> the line at which a function of the site decides to refuse a request, or nil
local function refusal_in(fn)
  if type(fn) ~= "function" or known[fn] then return nil end
  local lines, info = function_lines(fn)
  local module = info.source:match("^@luaserve/(.*)%.lua$")
  if module then return guards[module] and "luaserve." .. module or nil end
  local decides_there = false
  for i, line in ipairs(lines) do
    decides_there = decides_there or line:find("%f[%w_]if%f[^%w_]") ~= nil
    if decides_there and (line:find("%f[%w_]return%s*%(?[45]%d%d%f[^%w_.]") or line:find(":status%s*%(%s*[45]%d%d%s*%)")) then
      return info.short_src .. ":" .. info.linedefined + i - 1
    end
  end
end

local never_false = { -- expressions that no value makes false, and what to write
  ["#[%a_][%w_.]*"] = "a number, and 0 is true in Lua: compare it, as in > 0",
  ["[%a_][%w_.]*%.changes"] = "a number, and 0 is true in Lua: compare it, as in > 0",
  ["[%a_][%w_.]*:exec%s*%b()%.changes"] = "a number, and 0 is true in Lua: compare it, as in > 0",
  ["[%a_][%w_.]*:exec%s*%b()"] = "a table, also when nothing has changed: look at its changes, as in .changes > 0",
  ["[%a_][%w_.]*:query%s*%b()"] = "a list, which is true also without rows: look at its first row, as in [1], or use one",
  ["[%a_][%w_.]*:hgetall%s*%b()"] = "a table, which is true also without fields: write next(t)",
  ["[%a_][%w_.]*:one%s*%([\"'%[]%s*select%s+count%([^()]*%)[^()]*%)"] = "a row also for a count of 0: compare its field",
}
for name in ("len llen scard hlen zcard"):gmatch("%a+") do
  never_false["[%a_][%w_.]*:" .. name .. "%s*%b()"] = never_false["#[%a_][%w_.]*"]
end

local sent_by_client = { "req%.[%a_]+[.%[][\"']?[%w_]+[\"']?%]?", "req%.path%f[^%w_]", "req:form%(%)%.[%w_]+" }

-- sent_path(first, text) -> what the client sends in the first argument of a call, and the local of the function that has it, if nothing
-- else in the function looks at it; nil: there is no such thing.
local function sent_path(first, text)
  for _, pattern in ipairs(sent_by_client) do
    local value, name = first:match(pattern), nil
    for word in (value and "" or first:gsub('%b""', "")):gmatch("%f[%w_.][%a_][%w_]*") do
      local from = text:match("local%s+" .. word .. "%s*=%s*(" .. pattern .. ")%s*\n")
      if from then value, name = from, word end
    end
    local shown = (name or value or ""):gsub("%W", "%%%0")
    local rest = text:gsub("if%s+not%s+" .. shown .. "%s+then", ""):gsub("local%s+" .. (name or "%z") .. "%s*=[^\n]*", "")
    if value and select(2, rest:gsub("%f[%w_.]" .. shown .. "%f[^%w_]", "")) == 1 then return value, shown end
  end
end

-- warn_paths(lines, info): warns of a file whose path has what the client sends.
local function warn_paths(lines, info)
  local text = table.concat(lines, "\n"):gsub("%-%-[^\n]*", "")
  for i, line in ipairs(lines) do
    for _, pattern in ipairs { "io%.open", "io%.lines", "ls%.file%.%a+", "[%a_][%w_]*:file" } do
      for call, arguments in line:gsub("%-%-.*", ""):gmatch("%f[%w_](" .. pattern .. ")%s*(%b())") do
        local first, sends = arguments:match("^%(%s*([^,]*)"), call:find(":", 1, true)
        local value, shown = sent_path(first, text)
        if sends and (arguments:find("root%s*=") or not first:find("^" .. (shown or "")) and not first:find("^[\"']%.?/?[\"']%s*%.%.%s*" .. (shown or ""))) then
          value = nil
        end
        if value then
          warn(info.short_src .. ":" .. info.linedefined + i - 1, sends and ("the client chooses the file that %s sends, such as site.lua: write "
            .. "%s(path, { root = \"files\" })"):format(call, call) or ("the path of %s has what the client sends, such as ../site.lua: "
            .. "write ls.safe_join(\"files\", %s), which is nil for a path outside of the folder"):format(call, value))
        end
      end
    end
  end
end

-- warn_conditions(lines, info): warns of a condition that is always true, and of a field of a text.
local function warn_conditions(lines, info)
  for i, line in ipairs(lines) do
    local place = info.short_src .. ":" .. info.linedefined + i - 1
    for pattern, text in pairs(not line:find("^%s*%-%-") and never_false or {}) do
      for word, call, after in line:gmatch("%f[%w_](%a+)[%s(]+(" .. pattern .. ")%s*%)?%s*(%a*)") do
        if decisions[word] and followers[after] then warn(place, ("the condition %s is %s"):format(call, text)) end
      end
    end
    local call = line:match("[:.](%a+)%s*%([^,]+,%s*req:%a+%(%s*%)%s*[,)]")
    if (call == "insert" or call == "update") and line:find("req:json%(%s*%)") or line:find("req:form%(%s*%)") and call == "insert" then
      warn(place, call .. " takes all fields that the client has sent, such as id or admin: give a schema, as in req:json{ title = \"string\" }")
    end
    if line:find("req:body%(%)%.%a") then warn(place, "req:body() is a text, which has no fields: write req:json() or req:form()") end
  end
end

-- warn_guards(fn): warns of a line of a handler or middleware that calls such a function and does not look at its results.
local function warn_guards(fn)
  local lines, info = function_lines(fn)
  local values = {}
  for i = 1, 255 do
    local name, value = getupvalue(fn, i)
    if not name then break end
    values[name] = value
  end
  local before = ""
  warn_conditions(lines, info)
  warn_paths(lines, info)
  for i, line in ipairs(lines) do
    line = line:gsub("%-%-.*", "")
    for at, base, field in line:gmatch("()%f[%w_.:]([%a_][%w_]*)%.?([%w_]*)%s*%(") do
      local value = values[base]
      if value == nil and not globals_before[base] then value = rawget(_G, base) end
      if field ~= "" then value = type(value) == "table" and not known[value] and rawget(value, field) or nil end
      local place = is_statement(line, at, i > 1 and before or "") and refusal_in(value)
      if place then
        local call = field == "" and base or base .. "." .. field
        warn(info.short_src .. ":" .. info.linedefined + i - 1, ("continues after %s has refused the request at %s, because nothing "
          .. "looks at its results: write local status = %s(...) if status then return status end; or make it middleware of the "
          .. "route, which ends with next(): app:get(path, %s, handler)"):format(call, place, call, call))
      end
    end
    before = line
  end
end

-- state.route(handler) -> the handler of a route, with a look at its results.
function state.route(handler)
  if own_functions[handler] then return handler end
  warn_guards(handler)
  local function look(...)
    local number, body = ...
    watch_lists(handler, type(number) == "table" and number or body)
    if select("#", ...) == 1 and math.type(number) == "integer" then
      local place = count_place(handler, number)
      if place then
        warn(place, "returns a number alone, which is the status of the response. A count? Write "
          .. "return { count = n } or return tostring(n)")
      end
    end
    return ...
  end
  local function observed(req, res, ...)
    warn_repeated(handler, req)
    return look(handler(req, res, ...))
  end
  own_functions[observed] = handler
  return observed
end

-- state.middleware(fn): warns of a middleware function that takes results of next().
function state.middleware(fn)
  warn_guards(fn)
  local name = debug.getlocal(fn, 3)
  local lines, info = function_lines(fn)
  for at, line in ipairs(name and lines or {}) do
    if line:find("[%w_]%s*=%s*%f[%w_]" .. name .. "%s*%(") and not line:find("^%s*%-%-") then
      warn(info.short_src .. ":" .. info.linedefined + at - 1, name .. "() returns nothing: call it alone; afterwards res:status(), "
        .. "res:header(name) and res:body() are the response")
    end
  end
end

-- ---- runs of tasks --------------------------------------------------------------------------------------------------

-- state.arm(): the site is loaded.
function state.arm()
  end_top()
  arm_globals()
  variables = collect()
end

-- state.check(): a task waits or has ended; reports what has changed since the last call, and late_writes.
function state.check()
  if not variables then return end
  runs = runs + 1
  for _, write in ipairs(late_writes) do warn(write.place, write.text) end
  late_writes = {}
  check_files()
  local kept = 0
  for i = 1, #variables do
    local variable = variables[i]
    variables[i] = nil
    if is_changed(variable) then
      report(variable, place_of(variable))
    else
      kept = kept + 1
      variables[kept] = variable
    end
  end
end

return state
