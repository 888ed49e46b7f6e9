-- repl.lua - the prompt: compiles lines, completes names, and serves `luaserve repl` over the control
-- socket.
--
-- A session belongs to one Lua state. Each line runs as a task, so it may wait. Globals are those of the site; `print`
-- writes to the client, `_` is the last value.
--
-- Client and server exchange messages: a line "kind N [number]", then N bytes. src/cli/repl.h describes them.

local core = require "luaserve.core"
local options = require "luaserve.options"
local inspect = require "luaserve.inspect"

local repl = {}

local message_bytes_max = 1048576
local describe = inspect.describe

-- ---- lines ---------------------------------------------------------------------------------------------------------

-- compile(text, env) -> function | nil, message, incomplete. An expression returns its values. `incomplete`: the text
-- is the beginning of a chunk, so further lines may complete it.
function repl.compile(text, env)
  text = text .. "\n" -- else a string without its end would seem incomplete
  local expression, expected = load("return " .. text, "=repl", "t", env)
  if expression then return expression end
  local chunk, message = load(text, "=repl", "t", env)
  if chunk then return chunk end
  return nil, message, (message:match("<eof>'?$") or expected:match("<eof>'?$")) ~= nil
end

-- ---- completion ----------------------------------------------------------------------------------------------------

-- The table in which the names of `value` are found; nil for a value without any.
local function names_of(value)
  if type(value) == "table" then return value end
  local meta = debug.getmetatable(value)
  local index = type(meta) == "table" and rawget(meta, "__index")
  return type(index) == "table" and index or nil
end

-- The field of a table or of the tables after its __index. Calls no function.
local function field_of(t, name)
  for _ = 1, 8 do
    local value = rawget(t, name)
    if value ~= nil then return value end
    local meta = debug.getmetatable(t)
    t = type(meta) == "table" and rawget(meta, "__index")
    if type(t) ~= "table" then return nil end
  end
end

-- complete(text, env) -> list of the words that may replace the last word of `text`, sorted; that word. `text` ends at
-- the cursor. A name before a dot or colon is looked up without calling a function.
function repl.complete(text, env)
  local path, word = text:match("([%a_][%w_.:]*[.:])([%w_]*)$")
  if not path then path, word = "", text:match("[%a_][%w_]*$") or "" end
  local before = text:sub(1, #text - #path - #word)
  if before:match("[%w_.:\"')%]]$") or path == "" and word == "" then return {}, word end
  local t = env
  for name in path:gmatch("[%w_]+") do
    local value = field_of(t, name)
    t = value ~= nil and names_of(value) or nil
    if t == nil then return {}, word end
  end
  local methods = path:sub(-1) == ":"
  local found, list = {}, {}
  local function add(name)
    if type(name) == "string" and name:sub(1, #word) == word and name:match("^[%a_][%w_]*$") and not found[name] then
      found[name] = true
      list[#list + 1] = name
    end
  end
  for _ = 1, 8 do
    for name, value in next, t do
      if not methods or type(value) == "function" then add(name) end
    end
    local meta = debug.getmetatable(t)
    t = type(meta) == "table" and rawget(meta, "__index")
    if type(t) ~= "table" then break end
  end
  if path == "" then for name in pairs(inspect.keywords) do add(name) end end
  table.sort(list)
  return list, word
end

-- ---- sessions ------------------------------------------------------------------------------------------------------

local sessions = {}   -- those of this state
local retired = false -- the site was reloaded, or the server stops: sessions end after their line

-- environment(print) -> the globals of a session: `print`, `ls`, `_`, and those of the state, which lines also change.
function repl.environment(print)
  local env = { print = print, ls = require "luaserve" }
  return setmetatable(env, { __index = _G, __newindex = _G })
end

local function send(session, kind, text, number)
  session.sock:send(string.format("%s %d %d\n", kind, #text, number or 0), text)
end

local function finish(session, number, kind, text)
  if session.running ~= number then return end -- it was interrupted: the client no longer waits for it
  session.running = nil
  send(session, kind, text, number)
  if retired then session.sock:close() end
end

local function evaluated(session, number, ok, ...)
  if not ok then
    local text = describe((...)):gsub("\n\t%[C%]: in function 'luaserve%.core%.interruptible'.*", "")
    return finish(session, number, "error", text)
  end
  local n = select("#", ...)
  if n == 0 then return finish(session, number, "value", "") end
  if session.running == number then rawset(session.env, "_", (...)) end
  finish(session, number, "value", inspect.show_all(n, ...))
end

-- Run one text. The task that waits for it also reports that the processor-time limit has ended it.
local function evaluate(session, text)
  local chunk, message, incomplete = repl.compile(text, session.env)
  local number = session.number + 1
  session.number, session.running = number, number
  if not chunk then return finish(session, number, incomplete and "more" or "error", message) end
  local ls = require "luaserve"
  ls.spawn(function()
    local line = ls.spawn(core.interruptible, session.interrupt, chunk)
    local results = table.pack(pcall(line.wait, line))
    local ok, text_of = pcall(evaluated, session, number, table.unpack(results, 1, results.n))
    if not ok then finish(session, number, "error", "cannot print the values: " .. describe(text_of)) end
  end)
end

local handlers = {}

function handlers.eval(session, text)
  if session.running then return send(session, "error", "a line is running", session.running) end
  session.interrupt:clear()
  evaluate(session, text)
end

function handlers.words(session, text)
  local list, word = repl.complete(text, session.env)
  send(session, "words", word .. "\n" .. table.concat(list, "\n"))
end

-- A line that computes was ended before, by the message of another connection (src/server/control.h), and then nothing
-- is running. Else the line waits: its task ends when its wait does.
function handlers.interrupt(session)
  if not session.running then return end
  session.interrupt:set()
  session.interrupt = core.interrupt()
  send(session, "hello", core.version, session.interrupt.id)
  finish(session, session.running, "error", "interrupted")
end

-- The next message of the client: kind, text. nil: the session ends.
local function receive(sock)
  local header = sock:receive("*l")
  local kind, length = (header or ""):match("^(%l+) (%d+)$")
  length = math.tointeger(tonumber(length))
  if not handlers[kind] or not length or length > message_bytes_max then return nil end
  local text = sock:receive(length)
  return text and kind, text
end

-- serve(sock): a session. It ends when the client closes the connection, when the site is reloaded and when the server
-- stops.
function repl.serve(sock)
  local session = { sock = sock, number = 0, interrupt = core.interrupt() }
  session.env = repl.environment(function(...)
    local parts = table.pack(...)
    for i = 1, parts.n do parts[i] = tostring(parts[i]) end
    send(session, "out", table.concat(parts, "\t") .. "\n")
    if core.can_wait() then sock:flush() end
  end)
  sock:receive("*l") -- "repl": src/server/control.c has read it
  sessions[session] = true
  send(session, "hello", core.version, session.interrupt.id)
  for kind, text in receive, sock do handlers[kind](session, text) end
  sessions[session] = nil
  session.running = nil
  session.interrupt:set() -- a line that waits ends when its wait does
end

-- listen(): called in each state after the site was loaded, for the control socket of the server.
function repl.listen()
  local limits = { read_timeout = false, max_message = message_bytes_max, write_ahead = "4m" }
  core.control(options.take("luaserve repl", limits, require("luaserve.tcp").calls["ls.connect"], { serve = repl.serve }))
  core.on("drain", function()
    retired = true
    for session in pairs(sessions) do
      if not session.running then session.sock:close() end
    end
  end)
end

return repl
