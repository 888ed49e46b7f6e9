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

local keys_max, variables_max, depth_max, writers_max = 200, 1000, 2, 10000

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
-- of origin_of
local writers -- by dict or database, and key or table: a set of the origins that have written it; `counts`: in one step
local writers_count = 0
local handler_places -- array of { source =, linedefined =, lastlinedefined = }: what many tasks may run at a time
local indexed -- set of the lines at which warn_index has looked
local runs = 0 -- number of runs so far
local own_functions -- functions of handlers, by the function that observes their results
local each_state -- set of functions that run in every state
local once -- set of functions that run once for the server, in the first state
local shared -- by upvalue: variables that are left out because functions of each state reach them
local observe -- function(name, value): adds the variables that a value reaches, in a handler
local visited -- array of the other functions that were visited
local of_requests -- set of those that handlers of requests and middleware reach

local open_file -- io.open of the site while it loads

local function warn(place, text)
  local line = place .. ": " .. text
  if core.dev.once(line) then core.log("warn", line) end
end

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
  reads, writers, indexed, handler_places = setmetatable({}, { __mode = "k" }), {}, {}, {}
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
    for _, use in ipairs(app.uses) do visit_function(use.fn) end
    for _, fn in ipairs { app.on_error or false, app.on_not_found or false, app.star and app.star.fn or false } do
      if fn then visit_function(fn) end
    end
    for _, mount in ipairs(app.mounts) do visit_app(mount.app) end
  end

  local handlers, others = classify()
  visited, of_requests, once, shared = {}, {}, {}, {}
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
  local file = info.source:sub(1, 1) == "@" and io.open(info.source:sub(2), "rb")
  if not file then return nil end
  local declared = "^%s*local%s.*%f[%w_]" .. variable.name:match("^[%w_]*") .. "%f[^%w_].*%-%-.*%f[%w]"
  local number, before, found = 0, "", nil
  for line in file:lines() do
    number = number + 1
    if line:find(declared .. "each state") or line:find(declared .. "this state") then
      found = false
      break
    end
    line = line:gsub("%b{}", function(text) return not variable.thread and not text:find("function") and "{}" or nil end)
    local own = found == nil and number >= info.linedefined and number <= info.lastlinedefined
      and not line:find("^%s*%-%-") and (not line:find("^%s*local%s") or line:find("^%s*local%s+function%s"))
    for _, pattern in ipairs(own and patterns or {}) do
      if found == nil and line:find(pattern) then found = not makes_once(variable, line, before) and number end
    end
    before = line
  end
  file:close()
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
-- among those that are left out although handlers use them.
function state.check_once(fn)
  local seen = {}
  local function check(one)
    if seen[one] or known[one] or not is_own(one) then return end
    seen[one] = true
    for i = 1, 255 do
      local name, value = getupvalue(one, i)
      if not name then break end
      local variable = shared[upvalueid(one, i)]
      local plain = kinds[type(value)] or type(value) == "table" and getmetatable_of(value) == nil
      local number = plain and variable and variable.served and write_in(variable, write_patterns(name), one)
      once[one] = true
      if number then report(variable, getinfo(one, "S").short_src .. ":" .. number, one) end
      if type(value) == "function" then check(value) end
    end
  end
  check(fn)
end

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
      ", and then overwrites the value: use dict:add, which keeps it, or ls.init")
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
  if io.open == open_file then io.open = io_open end -- luacheck: ignore 122
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

-- note_write(of, key, entries, counts): a task writes the entry, or the table of a database.
local function note_write(of, key, entries, counts)
  local keys = writers[of] or {}
  local noted = keys[key] or {}
  if not keys[key] then writers_count = writers_count + 1 end
  if writers_count > writers_max then return end
  writers[of], keys[key] = keys, noted
  noted[entries.origin or "many"] = true
  noted.counts = noted.counts or counts
end

-- may_race(run, origin, noted) -> whether another task may have written in between what this one has read in its run of
-- this number. `origin`: it runs once at a time, so that only others race with it. `noted`: who has written it so far.
local function may_race(run, origin, noted)
  for _, semaphore in ipairs(locks) do
    if semaphore.held > 0 then return false end
  end
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

-- lines_of(info, from, to) -> array with these lines of the file, empty without one.
local function lines_of(info, from, to)
  local file, lines, at = info and info.source:sub(1, 1) == "@" and io.open(info.source:sub(2), "rb"), {}, 0
  if not file then return lines end
  for line in file:lines() do
    at = at + 1
    if at >= from and at <= to then lines[#lines + 1] = line end
  end
  file:close()
  return lines
end

-- caller_line() -> the text of the line of the site that called luaserve, or "", and of the line before.
local function caller_line()
  local info = site_info()
  local lines = info and lines_of(info, info.currentline - 1, info.currentline) or {}
  return lines[#lines] or "", #lines == 2 and lines[1] or ""
end

-- decides(read) -> whether a comparison by < or > of what was read decides about the line of the site that calls now.
local function decides(read)
  local now = site_info()
  if not now or not read.info or now.source ~= read.info.source then return false end
  local lines = lines_of(now, read.info.currentline, now.currentline)
  for i, line in ipairs(lines) do
    lines[i] = line:gsub('%b""', '""'):gsub("%b''", "''"):gsub("%[%[.-%]%]", '""'):gsub("%-%-.*", ""):gsub("<%a+>", "")
  end
  local name = (lines[1] or ""):match("([%a_][%w_]*)%s*=%f[^=]")
  for i, line in ipairs(lines) do
    local at = i == 1 and line:find("[<>]") or i > 1 and name and (line:find("%f[%w_]" .. name .. "%f[^%w_][^,]-[<>]")
      or line:find("[<>]=?%s*" .. name .. "%f[^%w_]"))
    if at then
      local rest = line:sub(at) .. "\n" .. table.concat(lines, "\n", i + 1)
      return rest:find("%f[%w_]return%f[^%w_]") or rest:find("%f[%w_]error%f[^%w_]")
        or not table.concat(lines, "\n", i, #lines - 1):find("%f[%w_]end%f[^%w_]")
    end
  end
  return false
end

local uses = set_of "return and or not in if elseif while until" -- a call after one of these words has its results used

-- statement_of(names) -> "db:exec", the first call of a function with one of these names in the line of the site that
-- called luaserve, if it is a statement, whose results nothing uses; else nil.
local function statement_of(names)
  local line, before = caller_line()
  for at, call, name in line:gmatch("()%f[%w_]([%a_][%w_.:]*[.:]([%a_][%w_]*))%s*[%({\"'%[]") do
    if names[name] then
      local prefix = line:sub(1, at - 1):gsub("%s+$", "")
      if prefix == "" then prefix = before:gsub("%-%-.*", ""):gsub("%s+$", "") end
      local word = prefix:match("%a+$")
      return (prefix == "" or not uses[word] and prefix:find("[%w_%)%]}\"';]$")) and call or nil
    end
  end
end

local results_matter = set_of "transaction write rename fetch process send set incr update rpush lpush save"
local client_left = set_of "ECLOSED ECONNRESET ERESET EPIPE"

-- state.note_failure(message, code): the function that called this one returns nil, `message` and `code` to the site.
function state.note_failure(message, code)
  local place = usage.caller()
  if client_left[code] or not place then return end
  local call = statement_of(results_matter)
  if not call or not core.dev.once("unused result: " .. place) then return end
  warn(place, string.format("%s has returned nil: %s; look at its results, or write assert(%s(...))", call, message, call))
end

local tables_of = { "%f[%w_]from%s+([%w_.]+)", "%f[%w_]join%s+([%w_.]+)" }
local in_one_step = { db = "db:transaction", pg = 'pg:transaction with "select ... for update"' }

local writes = set_of "insert update delete replace drop alter truncate create"
local repeatable = { "^insert%s+or%s+ignore", "on%s+conflict.-do%s+nothing", "if%s+not%s+exists", "where%s+not%s+exists",
  "luaserve_version" }

-- A statement while the site loads. One that changes nothing when it runs again is in order.
local function note_sql(sql, call)
  sql = sql:lower():gsub("%-%-[^\n]*", ""):gsub("^%s+", "")
  local word = sql:match("^%a+")
  local writes_in = word == "with" and sql:find("%)%s*[iud]%a+%f[%W]") -- insert, update, delete
  if not writes[word] and not writes_in and not call:find(":copy_in") then return end
  for _, pattern in ipairs(repeatable) do
    if sql:find(pattern) then return end
  end
  note_top(call, ": use " .. (call:match("^pg") or "db") .. ":migrate, whose statements run once, or ls.init")
end

-- state.watch_sql(db, sql, call, kind): a statement by a call such as "db:exec"; those of a transaction count only at the
-- top of a file. An update with a condition besides the key is in order.
function state.watch_sql(db, sql, call, kind)
  if not variables then return call:find(":migrate") == nil and note_sql(sql, call) end
  local entries = kind ~= "transaction" and entries_of()
  if not entries then return end
  local tables = entries[db] or {}
  entries[db], sql = tables, sql:lower():gsub('["`%[%]]', "")
  if sql:find("^%s*select%f[^%w_]") or sql:find("^%s*with%f[^%w_]") then
    for _, pattern in ipairs(tables_of) do
      for name in sql:gmatch(pattern) do tables[name:match("[^.]*$")] = runs end
    end
    return
  end
  local target, rest = sql:match("^%s*update%s+(.-)%s+set%f[^%w_](.*)")
  local name = target and target:gsub("^or%s+%a+%s+", ""):gsub("^only%s+", ""):match("^[%w_.]*"):match("[^.]*$")
  if not name then return end
  local run, noted = tables[name], writers[db] and writers[db][name]
  note_write(db, name, entries)
  local where = rest and rest:match("%f[%w_]where%f[^%w_](.*)") or ""
  if where:find("%f[%w_]and%f[^%w_]") or where:find("[<>]") then return end
  if not run or not may_race(run, entries.origin, noted) then return end
  warn(usage.caller() or core.dev.site, string.format("selects from the table %s and then updates it in another "
    .. "statement: another request may change it in between. Put the condition into the update, as in "
    .. '"where id = ? and count > 0", and look at the changes of its result, or use %s', name,
    in_one_step[call:match("^%a+")]))
end

-- state.watch_committed(fn, status, body): the first results of the function of a transaction, which is committed.
function state.watch_committed(fn, status, body)
  if math.type(status) ~= "integer" or status < 400 or status > 599 then return end
  if type(body) ~= "string" and type(body) ~= "table" then return end
  local info = getinfo(fn, "S")
  local at = info.linedefined
  for i, line in ipairs(lines_of(info, at, info.lastlinedefined)) do
    if line:find("%f[%w_]return%s*%(?" .. status .. "%f[^%w_.]") then at = info.linedefined + i - 1 end
  end
  warn(info.short_src .. ":" .. at, ("the function of a transaction has returned the status %d, and the transaction was "
    .. "committed: return nil and a reason, which undoes it, and then return %d outside of the transaction, or raise")
    :format(status, status))
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

local next_index, length = {}, {} -- keys of what a task has read: the length of the dict + 1; where it was read

local is_delete, grows = set_of "delete", set_of "incr rpush lpush"
local is_read, is_set = set_of "get range llen pairs", { set = true, ["[key] = value"] = true }

-- watch_call(entries, name, call, dict, key, value, ttl): a call in a task. It is wrong to set or to remove an entry that
-- was read before, because another task may write it in between: in another state at any time, in the same one while the
-- task waits. So is to count what was below a limit when it was read. In order: to look at the result of the removal or of
-- the count; to set it with a time to live, as sessions and caches do; and all writes under a semaphore. Of a loop over all
-- entries, which may look for old ones, only the removal of what others count is reported.
local function watch_call(entries, name, call, dict, key, value, ttl)
  if key == nil or key ~= key then return end
  entries[dict] = entries[dict] or {}
  local keys = entries[dict]
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
  if is_read[call] then
    if keys[key] == nil then keys[key] = { run = runs, call = call, info = call ~= "pairs" and site_info() } end
    return
  end
  local read, noted, text = keys[key], writers[dict] and writers[dict][key], nil
  note_write(dict, key, entries, grows[call] or call == "update")
  if not sets then keys[key] = false end -- the site knows these methods
  local new = keys[length] and not (sets and (ttl or value == nil)) and core.dict_read(dict, key) == nil
  if (sets and new or grows[call]) and not (sets and read) then
    read = grows[call] and read or new and keys[length]
    if not read or not (sets or statement_of(grows)) or not decides(read) then return end
    text = "changes the dict %q because what it has read is within a limit: others may do so in between, and pass it. Let "
      .. 'the result of incr decide, as in if d:incr("n") > 10 then d:incr("n", -1) return 409 end'
  elseif not read or read.call == "llen" then
    return
  elseif (sets or call == "delete") and read.call == "pairs" and not (noted and noted.counts) then
    return
  elseif sets and value ~= nil then
    text = ttl == nil and "sets an entry of the dict %q: another request may write it in between: use incr, update or add"
  elseif not sets and call ~= "delete" then
    return
  elseif noted and noted.counts and read.call ~= "range" and (sets or statement_of(is_delete)) then
    text = "removes an entry of the dict %q: what others count in between is lost: subtract what was stored, as in "
      .. "d:incr(key, -n), or take it with update, whose function returns nil, n"
  elseif read.call == "range" then
    text = "removes a list of the dict %q: what another request pushes in between is lost, and two may take the same "
      .. "values: take them with lpop, until it returns nil"
  elseif sets or statement_of(is_delete) then
    text = "removes an entry of the dict %q: another request may have done so in between, and both continue: let the result "
      .. "of delete decide, as in if not d:delete(key) then return 404 end"
  end
  if not text or not may_race(read.run, not entries.each_state and entries.origin, noted) then return end
  warn(usage.caller() or core.dev.site, string.format("reads and then " .. text, name))
end

local observers = setmetatable({}, { __mode = "k" }) -- by dict

-- state.watch_dict(name, dict, evicts): the site has opened this dict. `evicts`: it is a cache.
function state.watch_dict(name, dict, evicts)
  observers[dict] = function(call, _, ...)
    if not variables then return call ~= "#" and note_dict(call, dict, ...) end
    local entries = not evicts and entries_of()
    if entries and select("#", ...) > 0 then watch_call(entries, name, call, dict, ...) end
  end
  core.dict_observe(dict, observers[dict])
end

-- state.watch_pairs(dict, key): a loop over the dict has come to this key.
function state.watch_pairs(dict, key)
  if observers[dict] then observers[dict]("pairs", dict, key) end
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
  return function(old)
    local before = flags_of(fn)
    local results = table.pack(fn(old))
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
  local info = getinfo(fn, "S")
  local file = info.source:sub(1, 1) == "@" and io.open(info.source:sub(2), "rb")
  if not file then return nil end
  local text, found = file:read("a"), nil
  file:close()
  if text:find("%f[%w_.]" .. number .. "%f[^%w_.]") then return nil end -- it is written somewhere as a status
  local counts, at = {}, 0
  for line in text:gmatch("([^\n]*)\n?") do
    at = at + 1
    if at >= info.linedefined and at <= info.lastlinedefined then
      local name, value = line:match("([%a_][%w_]*)%s*=%s*(.*)")
      if name and (value:find("incr%s*%(") or value:find("^#") or value:find("%+")) then counts[name] = true end
      local result = line:match("%f[%w_]return%s+(.*)")
      if result and (result:find("incr%s*%(") or result:find("^#") or counts[result:match("^[%a_][%w_]*")]) then
        found = info.short_src .. ":" .. at
      end
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

-- state.route(handler) -> the handler of a route, with a look at its results.
function state.route(handler)
  if own_functions[handler] then return handler end
  local function look(...)
    local number = ...
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
  local info, name = getinfo(fn, "S"), debug.getlocal(fn, 3)
  local file = name and info.source:sub(1, 1) == "@" and io.open(info.source:sub(2), "rb")
  if not file then return end
  local at, pattern = 0, "[%w_]%s*=%s*%f[%w_]" .. name .. "%s*%("
  for line in file:lines() do
    at = at + 1
    if at >= info.linedefined and at <= info.lastlinedefined and line:find(pattern) and not line:find("^%s*%-%-") then
      warn(info.short_src .. ":" .. at, name .. "() returns nothing: call it alone; afterwards res:status(), "
        .. "res:header(name) and res:body() are the response")
    end
  end
  file:close()
end

-- ---- runs of tasks --------------------------------------------------------------------------------------------------

-- state.arm(): the site is loaded.
function state.arm()
  end_top()
  arm_globals()
  variables = several_states() and collect() or {}
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
