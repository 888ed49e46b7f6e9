-- handlers.lua - dev mode warns of results of handlers that are probably meant otherwise, and of lines of handlers and middleware:
-- conditions that no value makes false, and refusals that nothing looks at.

local core = require "luaserve.core"
local from_client = require "luaserve.dev.from_client"
local site = require "luaserve.dev.site"
local usage = require "luaserve.usage"
local variables = require "luaserve.dev.variables"

local getinfo, getupvalue, getmetatable_of, next, rawget = debug.getinfo, debug.getupvalue, debug.getmetatable, next, rawget
local caller_line, function_lines, lines_of, warn = site.caller_line, site.function_lines, site.lines_of, site.warn

local handlers = {}

local decisions, followers = site.set_of "if elseif while until not and or", site.set_of "then do and or"

local chosen = "^and%f[^%w_].-%f[%w_]or%f[^%w_]" -- after an expression: it decides between two others

-- warn_tested(lines, info, first, method, text): warns of a condition of the lines that is the variable to which the first one assigns
-- the result of the method. `first`: the number of that line.
local function warn_tested(lines, info, first, method, text)
  local name = lines[1] and lines[1]:match("local%s+([%a_][%w_]*)%s*=%s*[%a_][%w_.]*:" .. method .. "%s*%b()%s*$")
  for i = 2, name and #lines or 0 do
    for word, rest in lines[i]:gsub("%-%-.*", ""):gmatch("(%a+)[%s(]+" .. name .. "%f[^%w_.:%[(]%s*([^\n]*)") do
      if decisions[word] and rest:find("^then%f[%W]") or rest:find(chosen) then
        return warn(info.short_src .. ":" .. first + i - 1, text, name, name)
      end
    end
  end
end

-- handlers.watch_reply(call, value): a line of the site has got this result of a database, such as "r:del" or "db:delete".
function handlers.watch_reply(call, value)
  if not value and caller_line():find("^%s*[%w_.]+:h?setnx%s*%b()%s*$") then
    site.here("%s has set nothing, because the key is there, and nothing looks at it: write if not %s(...) then", call, call)
  end
  local line, number = caller_line(), "%s*[=~]=%s*[01]%f[^%w.]"
  for word, rest in line:gmatch("(%a*)[%s(]+[%a_][%w_.]*:" .. call:match("%a+$") .. "%s*%b()%s*([^\n]*)") do
    if type(value) == "boolean" and rest:find("^" .. number) then
      warn(usage.caller(), call .. " returns true or false, never a number: leave out the comparison")
    elseif type(value) == "number" and (decisions[word] and not rest:find("^[=~<>]") or rest:find(chosen)) then
      warn(usage.caller(), "%s returns a number, and 0 is true in Lua: write %s(...) > 0", call, call)
    end
  end
  local info = type(value) == "number" and site.site_info()
  if info then
    warn_tested(lines_of(info, info.currentline, info.lastlinedefined), info, info.currentline, call:match("%a+$"),
      "%s is the number that " .. call .. " returns, and 0 is true in Lua: write %s == 0")
  end
end

-- handlers.watch_row(row): db:one has returned it. Warns of a condition that is a field of it with the number 0.
function handlers.watch_row(row)
  local name, info = caller_line():match("([%a_][%w_]*)%s*=%s*[%a_][%w_.]*:one%s*%("), site.site_info()
  for i, line in ipairs(name and lines_of(info, info.currentline + 1, info.lastlinedefined) or {}) do
    for word, field, rest in line:gsub("%-%-.*", ""):gmatch("(%a+)[%s(]+" .. name .. "%.([%w_]+)%f[^%w_.:%[(]%s*([^\n]*)") do
      if rawget(row, field) == 0 and decisions[word] and followers[rest:match("^%a+")] then
        warn(info.short_src .. ":" .. info.currentline + i, "%s.%s is the number 0, and 0 is true in Lua: write %s.%s == 0, or declare the column as boolean",
          name, field, name, field)
      end
    end
  end
end

-- ---- results --------------------------------------------------------------------------------------------------------

-- handlers.warn_route(name_route, method, path, text [, between]): a warning at the route of the request. `between` the name
-- and the text: a space unless given.
function handlers.warn_route(name_route, method, path, text, between)
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

-- warn_repeated(fn, req): warns of a line of the function that reads the first of several values of a parameter.
local function warn_repeated(fn, req)
  if not req.target:find("&", 1, true) then return end
  local info = getinfo(fn, "S")
  for name, values in pairs(req.query_all) do
    for i, line in ipairs(values[2] and lines_of(info, info.linedefined, info.lastlinedefined) or {}) do
      local _, stop = line:find("query." .. name, 1, true)
      if stop and not line:find("^[%w_]", stop + 1) or line:find('query["' .. name .. '"]', 1, true) then
        warn(info.short_src .. ":" .. info.linedefined + i - 1, "the request has several values of %q: req.query has the "
          .. "first, req.query_all the list of all", name)
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
    if type(value) ~= "table" then return end
    local content = core.dict_content(value)
    local row = type(rawget(content, 1)) == "table" and core.dict_content(content[1]) or content
    for key in next, row do
      if type(key) == "string" and key:lower():find("passw", 1, true) then
        warn(place, "%s has the field %q, which the client can read: select the columns, or copy the fields, that it may have", name, key)
      end
    end
    local of_dict = value ~= content
    if getmetatable_of(value) and not of_dict then return end
    value = content
    local is = next(value) == nil and "empty" or value[1] ~= nil and "list"
    local key = place .. name
    local lists = site.notes()
    if is and lists:get(key) and lists:get(key) ~= is then
      warn(place, name .. " is a list in one response and empty in another, which is sent as {}: write ls.json.array(t)")
    end
    if is then lists:set(key, is) end
    local first = math.type(next(value))
    if first == "integer" and (#value == 0 or of_dict and value[1] == nil) or value[1] ~= nil and value[#value + 2] ~= nil then
      warn(place, name .. " has integers with gaps as keys, which is no list for a client: use tostring(id), or rows with an id")
    end
  end
  look(body, "the result")
  local fields = type(body) == "table" and core.dict_content(body)
  for name, value in next, fields and (fields ~= body or not getmetatable_of(body)) and fields or {} do
    if type(name) == "string" then look(value, "the field " .. name) end
  end
end

local guards = site.set_of "basic_auth bearer_auth csrf rate_limit oidc"

-- refusal_in(fn) -> the line at which a function of the site decides to refuse a request, or nil
local function refusal_in(fn)
  if type(fn) ~= "function" or variables.is_known(fn) then return nil end
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

local habits = { -- what a line has, the warning, and words of the function for which it is in order
  { "%f[%w_]or%s+true%f[^%w_]", "x or true is true also for false: write if x == nil then x = true end" },
  { "%f[%w_]and%s+false%s+or%f[^%w_]", "x and false or y is always y: write if x then ... else ... end" },
  { "%f[%w_]and%s+nil%s+or%f[^%w_]", "x and nil or y is always y: write if x then ... else ... end" },
  { "math%.random%f[^%w_].*[tT][oO][kK][eE][nN]", "math.random can be guessed: write ls.crypto.token()" },
  { "[tT][oO][kK][eE][nN].*math%.random%f[^%w_]", "math.random can be guessed: write ls.crypto.token()" },
  { "ls%.crypto%.[sm][hd][a%d]+%s*%([^)]*passw", "a fast hash lets a stolen table of passwords be guessed: write ls.crypto.password.hash(text)" },
  { ":write%s*%(%s*[\"']data: ", "a browser's EventSource reads no stream of this type: write res:sse() and sse:send", "event-stream" },
  { ":[hsz]?scan%s*%([^\n]*[\"']?%f[%d]0[\"']?%s*[,)]", "a reply of SCAN is one of many, and its first value says where the next begins: call it in a loop until that is \"0\"", "while",
    "repeat" },
  { "return%s+([%w_]+)%.status%s*,%s*%1:body%(%)%s*$", "the Content-Type of the answer is not passed on: give it as the third result, or use app:proxy" },
  { "^%s*os%.execute%s*%b()%s*$", "nothing looks at whether the program has failed: write assert(os.execute(...)), or ls.process and its code" },
}

-- warn_habits(line, place, text): warns of a line of a function with this text.
local function warn_habits(line, place, text)
  line = line:gsub("%-%-.*", "")
  local bare = line:gsub('%b""', '""'):gsub("%b''", "''")
  for at, habit in ipairs(habits) do
    local fine = not (at <= 3 and bare or line):find(habit[1])
    for i = 3, #habit do fine = fine or text:find(habit[i], 1, true) end
    if not fine then warn(place, habit[2]) end
  end
end

-- warn_conditions(lines, info): warns of a condition that is always true, and of a field of a text.
local function warn_conditions(lines, info)
  local counters, whole = "", table.concat(lines, "\n") -- the variables that have a result of incr
  for i, line in ipairs(lines) do
    local place = info.short_src .. ":" .. info.linedefined + i - 1
    warn_habits(line, place, whole)
    for field in whole:gmatch("([%w_]+)%s*=%s*[\"']boolean%?[\"']") do
      if line:find("%." .. field .. "%s+or%f[^%w_]") then
        warn(place, "x.%s or y is y also for false: write if x.%s ~= nil then", field, field)
      end
    end
    for pattern, text in pairs(not line:find("^%s*%-%-") and never_false or {}) do
      for word, call, after in line:gmatch("%f[%w_](%a+)[%s(]+(" .. pattern .. ")%s*%)?%s*(%a*)") do
        if decisions[word] and followers[after] or word ~= "and" and line:match(pattern .. "%s*(.*)"):find(chosen) then warn(place, "the condition %s is %s", call, text) end
      end
    end
    warn_tested(table.move(lines, i, #lines, 1, {}), info, info.linedefined + i - 1, "exec",
      "%s is the table that exec returns, which is always true: look at its changes, as in %s.changes == 0")
    local by, start = line:match(":incr%s*%([^,()]+,%s*(1)%s*,%s*(%d+)%s*%)")
    if by and tonumber(start) >= 60 and start % 60 == 0 then
      warn(place, "the third argument of incr is the number that it begins with, and there is no ttl: write incr(key, 1, 0, %s)", start)
    end
    local counter = line:match("local%s+([%a_][%w_]*)%s*=%s*[%a_][%w_.]*:incr%s*%(")
    counters = counter and counters .. " " .. counter .. " " or counters
    local met, number, then_it = line:match("%f[%w_]if%s+(.-)%s*==%s*([%w_.]+)%s*then%f[%W](.*)")
    if met and number ~= "1" and (met:find(":incr%s*%b()$") or counters:find(" " .. met .. " ", 1, true))
      and (then_it .. (lines[i + 1] or "")):find("[%s(]4[02]%d%f[%D]") then
      warn(place, "only the request with this number is refused, and those after it pass: write >= or > in place of ==")
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
  from_client.check(lines, info)
  for i, line in ipairs(lines) do
    line = line:gsub("%-%-.*", "")
    for at, base, field in line:gmatch("()%f[%w_.:]([%a_][%w_]*)%.?([%w_]*)%s*%(") do
      local value = values[base]
      if value == nil then value = variables.global(base) end
      if field ~= "" then value = type(value) == "table" and not variables.is_known(value) and rawget(value, field) or nil end
      local place = site.is_statement(line, at, i > 1 and before or "") and refusal_in(value)
      if place then
        local call = field == "" and base or base .. "." .. field
        warn(info.short_src .. ":" .. info.linedefined + i - 1, "continues after %s has refused the request at %s, because nothing "
          .. "looks at its results: write local status = %s(...) if status then return status end; or make it middleware of the "
          .. "route, which ends with next(): app:get(path, %s, handler)", call, place, call, call)
      end
    end
    before = line
  end
end

local refusals, in_order = site.set_of "401 403 404 410 429", { "error", "%sor%s", "render" }

-- warn_statuses(fn, res): warns of a refusal at the end of a block that does not return, when the function returns something else later.
local function warn_statuses(fn, res)
  local lines, info = function_lines(fn)
  local text = table.concat(lines, "\n"):gsub("%-%-[^\n]*", "")
  for before, status, at, rest in text:gmatch("([^\n]*)%f[%w_]" .. (res or "%z") .. ":status%(%s*(%d+)%s*%)()%s*()") do
    local after = text:sub(rest):match("^end%f[^%w_](.*)")
    local later = after and (after:match("%f[%w_]return%f[^%w_][^\n]*") or after:match("%f[%w_]next%s*%(%)"))
    for _, word in ipairs(in_order) do later = later and not later:find(word) and later end
    if later and refusals[status] and not before:find("return%s*$") then
      local _, breaks = text:sub(1, at):gsub("\n.", "")
      warn(info.short_src .. ":" .. info.linedefined + breaks, "sets the status %s and continues: write return %s:status(%s)", status, res, status)
    end
  end
end

-- handlers.route(handler) -> the handler of a route, with a look at its results.
function handlers.route(handler)
  if variables.own(handler) then return handler end
  warn_guards(handler)
  warn_statuses(handler, debug.getlocal(handler, 2))
  local function look(...)
    local number, body = ...
    watch_lists(handler, type(number) == "table" and number or body)
    if select("#", ...) == 1 and math.type(number) == "integer" then
      local place = count_place(handler, number)
      if place then
        warn(place, "returns a number alone, which is the status of the response. A count? Write return { count = n } or return tostring(n)")
      end
    end
    return ...
  end
  local function observed(req, res, ...)
    warn_repeated(handler, req)
    return look(handler(req, res, ...))
  end
  variables.stands_for(observed, handler)
  return observed
end

-- handlers.middleware(fn): warns of a middleware function that takes results of next().
function handlers.middleware(fn)
  warn_guards(fn)
  warn_statuses(fn, debug.getlocal(fn, 2))
  local name = debug.getlocal(fn, 3)
  local lines, info = function_lines(fn)
  for at, line in ipairs(name and lines or {}) do
    if line:find("[%w_]%s*=%s*%f[%w_]" .. name .. "%s*%(") and not line:find("^%s*%-%-") then
      warn(info.short_src .. ":" .. info.linedefined + at - 1, name .. "() returns nothing: call it alone; afterwards res:status(), "
        .. "res:header(name) and res:body() are the response")
    end
  end
end

return handlers
