-- site.lua - what the rules of dev mode read in the source of the site: the line that calls luaserve now, those before it, and
-- whether anything uses the results of a call. A rule is a look at texts, so each one has forms that it does not see.

local core = require "luaserve.core"
local usage = require "luaserve.usage"

local concat, getinfo, ipairs, math_huge, select = table.concat, debug.getinfo, ipairs, math.huge, select

local site = {}

local texts = {} -- by source: the lines of a file of the site
site.open = io.open -- that of the site may be another one

-- site.begin(): before the site is loaded.
function site.begin() texts, site.open, site.loaded = {}, io.open, false end

-- site.warn(place, text, ...): a line of the log, once after a load. Arguments as for string.format.
function site.warn(place, text, ...)
  local line = place .. ": " .. (select("#", ...) > 0 and text:format(...) or text)
  if core.dev.once(line) then core.log("warn", line) end
end

function site.place() return usage.caller() or core.dev.site end

-- site.here(text, ...): a warning of the line of the site that called luaserve.
function site.here(text, ...) site.warn(site.place(), text, ...) end

-- site.notes() -> a dict of what the states of a site tell one another.
function site.notes() return require("luaserve.dict").open("luaserve.dev", { size = "256k", evict = true }) end

function site.several_states() return core.dev.states() > 1 end

function site.set_of(words)
  local set = {}
  for word in words:gmatch("%S+") do set[word] = true end
  return set
end

-- site.lines_of(info, from, to) -> array with these lines of the file, empty without one.
function site.lines_of(info, from, to)
  local lines = info and texts[info.source]
  if not lines then
    local file = info and info.source:sub(1, 1) == "@" and site.open(info.source:sub(2), "rb")
    if not file then return {} end
    lines = {}
    for line in file:lines() do lines[#lines + 1] = line end
    file:close()
    texts[info.source] = lines
  end
  return table.move(lines, math.max(from, 1), math.min(to, #lines), 1, {})
end
local lines_of = site.lines_of

-- site.function_lines(fn) -> the lines of the function, and what getinfo says of it.
function site.function_lines(fn)
  local info = getinfo(fn, "S")
  return lines_of(info, info.linedefined, info.lastlinedefined), info
end

function site.is_own(fn)
  local info = getinfo(fn, "S")
  return info.what ~= "C" and info.source:sub(1, 1) == "@" and info.source:sub(1, 10) ~= "@luaserve/"
end

-- site.site_info() -> source and currentline of the line of the site that called luaserve, or nil.
function site.site_info()
  for level = 2, math_huge do
    local info = getinfo(level, "Sl")
    if not info or info.currentline > 0 and not usage.is_internal(info.source) then return info end
  end
end
local site_info = site.site_info

-- site.caller_line() -> the text of the line of the site that called luaserve, or "", and of the line before.
function site.caller_line()
  local info = site_info()
  local lines = info and lines_of(info, info.currentline - 1, info.currentline) or {}
  return lines[#lines] or "", #lines == 2 and lines[1] or ""
end

-- site.in_function(word) -> whether the function of the site that calls luaserve names this word outside of comments, in small or
-- capital letters.
function site.in_function(word)
  local info = site_info()
  local text = concat(info and lines_of(info, info.linedefined, info.lastlinedefined) or {}, "\n")
  return text:gsub("%-%-[^\n]*", ""):lower():find(word, 1, true) ~= nil
end

-- site.since(read) -> the lines of the site from that which has read (read.info) to that which calls now, and their text; empty:
-- they are in two files.
function site.since(read)
  local now = site_info()
  local lines = now and read.info and now.source == read.info.source and lines_of(now, read.info.currentline, now.currentline) or {}
  return lines, concat(lines, "\n")
end

-- site.stripped(read) -> the same lines without texts and comments.
function site.stripped(read)
  local lines = site.since(read)
  for i, line in ipairs(lines) do
    lines[i] = line:gsub('%b""', '""'):gsub("%b''", "''"):gsub("%[%[.-%]%]", '""'):gsub("%-%-.*", ""):gsub("<%a+>", "")
  end
  return lines
end

-- site.names(read) -> whether the line that calls now names the variable with what was read.
function site.names(read)
  local lines = site.stripped(read)
  local name = (lines[1] or ""):match("([%a_][%w_]*)%s*=%f[^=]")
  return name and #lines > 1 and lines[#lines]:find("%f[%w_]" .. name .. "%f[^%w_]") ~= nil or #lines == 1
end

-- site.compares(read) -> whether a line since then compares a field of what was read with a value, and returns.
function site.compares(read)
  local lines = site.stripped(read)
  local name = (lines[1] or ""):match("([%a_][%w_]*)%s*=%f[^=]")
  local field = name and "%f[%w_]" .. name .. "%.[%a_][%w_]*%s*[=~]="
  for i = 2, field and #lines or 0 do
    if lines[i]:find(field) and concat(lines, "\n", i):find("%f[%w_]return%f[^%w_]") then return true end
  end
  return false
end

-- site.returns(read) -> whether a line from there to that of the site that calls now returns.
function site.returns(read)
  local _, text = site.since(read)
  return text:find("%f[%w_]return%f[^%w_]") ~= nil
end

-- site.decides(read, field, length) -> whether a comparison of what was read decides about the line of the site that calls now: one by
-- < or >, or, with the name of a field, one of the value or of this field with a number by == or ~=. `length`: a return
-- at the length 0 is in order.
function site.decides(read, field, length)
  local lines = site.stripped(read)
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
      local rest = line:sub(at) .. "\n" .. concat(lines, "\n", i + 1)
      local returns = rest:find("%f[%w_]return%f[^%w_]") or rest:find("%f[%w_]error%f[^%w_]")
      local inside = not concat(lines, "\n", i, #lines - 1):find("%f[%w_]end%f[^%w_]")
      if length and number == "0" then return operator == "~=" and returns or operator == "==" and inside end
      return returns or inside
    end
  end
  return false
end

local uses = site.set_of "return and or not in if elseif while until" -- a call after one of these words has its results used

-- site.is_statement(line, at, before) -> whether nothing uses the results of the call there. `before`: the line before.
function site.is_statement(line, at, before)
  local prefix = line:sub(1, at - 1):gsub("%s+$", "")
  if prefix == "" then prefix = before:gsub("%-%-.*", ""):gsub("%s+$", "") end
  return prefix == "" or not uses[prefix:match("%a+$")] and prefix:find("[%w_%)%]}\"';]$") ~= nil
end

-- site.statement_of(names, only) -> "db:exec", the first call of a function with one of these names in the line of the site that
-- called luaserve, if it is a statement, whose results nothing uses; else nil. `only`: of the one with this name.
function site.statement_of(names, only)
  local line, before = site.caller_line()
  for at, call, name in line:gmatch("()%f[%w_]([%a_][%w_.:]*[.:]([%a_][%w_]*))%s*[%({\"'%[]") do
    if names[name] and name == (only or name) then return site.is_statement(line, at, before) and call or nil end
  end
end

return site
