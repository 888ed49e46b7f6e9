-- top.lua - dev mode warns of what the top of a file does again in each Lua state: writes to dicts, databases and files.

local core = require "luaserve.core"
local site = require "luaserve.dev.site"
local usage = require "luaserve.usage"

local warn = site.warn

local top = {}

local top_writes -- array of { place =, text = } of what the site has written to dicts and files while it was loaded
local late_writes -- the same of those that only an additional state sees, which logs them in its first run: its load is silent
local top_files -- array of the files that the site has opened for appending while it was loaded
local kept_files -- those of top_files that are open after the load
local open_file -- io.open of the site while it loads
local getenv = os.getenv

-- top.begin(): before the site is loaded.
function top.begin()
  top_writes, late_writes, top_files, kept_files = {}, {}, {}, {}
  io.open, os.getenv = open_file, top.getenv -- luacheck: ignore 122
end

local top_methods = { set = true, incr = true, update = true, clear = true, delete = true, rpush = true, lpush = true }

function top.note(call, effect, list)
  list = list or top_writes
  list[#list + 1] = { place = site.place(),
    text = call .. " at the top of a file runs again with each additional Lua state, perhaps hours later" .. effect }
end

-- top.note_dict(...): a write to a dict while the site loads. One that keeps the value of an earlier state is in order.
function top.note_dict(call, dict, key, value)
  if call == "set" or call == "[key] = value" then
    top.note(call == "set" and "dict:set" or "dict" .. call,
      ", and then overwrites the value: use dict:add, which keeps it, also in ls.init, which each reload runs")
  elseif call == "update" then
    local old = core.dict_read(dict, key)
    if old ~= nil and old ~= value and type(old) ~= "table" then top.note("dict:update", ": use ls.init", late_writes) end
  elseif top_methods[call] and not (call == "incr" and value == 0) then
    top.note("dict:" .. call, ": use ls.init")
  end
end

-- top.watch_drawn(): a random value is drawn. One of the top of a file is another one in each state, unless it is stored for all.
function top.watch_drawn()
  local info = not site.loaded and site.site_info()
  local line = info and site.caller_line() or ""
  local name = line:match("([%a_][%w_]*)%s*=[^=]*%f[%w_]ls%.crypto%.%l+%s*%(")
  if not name or line:find(":add%s*%(") or line:find("%-%-.*each state") or line:find("%-%-.*this state") then return end
  local used = line:find("[{(,]%s*" .. name .. "%s*=")
  for _, other in ipairs(site.lines_of(info, 1, math.huge)) do
    used = used or other ~= line and other:find("%f[%w_]" .. name .. "%f[^%w_]") and not other:find(":add%s*%(")
  end
  if used then
    top_writes[#top_writes + 1] = { place = site.place(), text = "each Lua state draws a value of its own, and another one after each reload: "
      .. "keep one in an environment variable, or ls.dict(\"keys\", { file = \"keys.db\" }):add(name, value), and read that one" }
  end
end

local function size_of(path)
  local file = site.open(path, "rb")
  local size = file and file:seek("end")
  if file then file:close() end
  return size
end

-- io.open while the site loads. A file for appending is noted for end_top: each state may have one open.
function open_file(path, mode, ...)
  local append = type(path) == "string" and type(mode) == "string" and mode:find("^a")
  local size = append and size_of(path)
  local ok, file, message, code = pcall(site.open, path, mode, ...)
  if not ok then usage.error("%s", (file:gsub("to '[^']*'", "to 'open'"))) end
  if not file or tostring(path):find("^/dev/") then return file, message, code end
  if append then
    top_files[#top_files + 1] = { file = file, at = file:seek("cur"), path = path, size = size or 0,
      place = site.place() }
  elseif mode and mode:find("^w") then
    top.note('io.open(path, "w")', ", and then empties the file: use ls.init")
  end
  return file
end

-- top.getenv(...): os.getenv of the site while it loads. A variable that is not there, and that no line asks for, is nil, as a header
-- field that a client does not send.
function top.getenv(...)
  local ok, value = pcall(getenv, ...)
  if not ok then usage.error("%s", (value:gsub("to '[^']*'", "to 'getenv'"))) end
  local name = ...
  local variable = value == nil and site.caller_line():gsub("%-%-.*", ""):match("^%s*local%s+([%a_][%w_]*)%s*=%s*os%.getenv[%s(]*[\"'][%w_]+[\"'][%s)]*$")
  local asked = not variable
  for _, line in ipairs(asked and {} or site.lines_of(site.site_info(), 1, math.huge)) do
    local rest = line:match("%f[%w_]" .. variable .. "%f[^%w_](.*)")
    asked = asked or rest and (rest:find("^%s*[=~]=%s*nil") or rest:find("^%s*or%f[%W]") or rest:find("^%s*and%f[%W]") or rest:find("^%s*then%f[%W]")
      or line:find("not%s+" .. variable) or line:find("assert%s*%(%s*" .. variable))
  end
  if not asked then site.here("the environment has no %s, so %s is nil, which equals a header field that a client does not send: write ls.env(%q), which raises",
    name, variable, name) end
  return value
end

-- top.finish(open): the site is loaded; io.open is this function from now on.
function top.finish(open)
  if io.open == open_file then io.open = open end -- luacheck: ignore 122
  os.getenv = getenv -- luacheck: ignore 122
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
  for _, write in ipairs(site.several_states() and top_writes or {}) do warn(write.place, write.text) end
  if not site.several_states() then late_writes = {} end
  kept_files = site.several_states() and top_files or {}
  top_writes, top_files = {}, {}
end

-- top.check(): a task waits or has ended. Logs late_writes, and warns of a file for appending that several states write to, each with a
-- buffer of its own. A line that is in a buffer when the task waits or ends may be split by those of others; seek writes it.
function top.check()
  for _, write in ipairs(late_writes) do warn(write.place, write.text) end
  late_writes = {}
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
        warn(one.place, 'several Lua states write to io.open(path, "a") of the top of the file, each with its own buffer, so lines are '
          .. "split and mixed: use ls.file.write(path, line, { append = true }) or ls.log, or open and close the file for each write")
      end
    end
  end
end

return top
