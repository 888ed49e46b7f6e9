-- process.lua - ls.process: a program that runs while the task waits.

local core = require "luaserve.core"
local names = require "luaserve.names"
local options = require "luaserve.options"
local usage = require "luaserve.usage"

-- A site may replace the globals.
local find, ipairs, pairs, sort, tostring, type = string.find, ipairs, pairs, table.sort, tostring, type
local concat, max, setmetatable, sub = table.concat, math.max, setmetatable, string.sub

local process = {}

local bytes_max = 1024 ^ 3
local read_bytes = 65536 -- at once; then the other stream and other tasks have their turn
local is_windows = package.config:sub(1, 1) == "\\"

-- What identifies a variable: on Windows its name in capitals.
local function key(name) return is_windows and name:upper() or name end

local process_options = {
  stdin = true, -- string|Buffer - what the program reads from its standard input
  env = true, -- table<string, string|number|false> - variables beside those of the server; false removes one
  clear_env = { "clear_env", "flag" }, -- the program has the variables of `env` only
  cwd = { "cwd", "text", "a directory, not empty" }, -- its working directory; default: that of the site
  -- fun(line: string) - called with each line of the output, in place of `out` of the result; it may wait
  output = { "output", "is", "function", "a function, which gets each line" },
  max_out = { "out_bytes_max", "size", 0, bytes_max, "1m" }, -- bytes of its output, with `output` of a line; then it is ended
  max_err = { "err_bytes_max", "size", 0, bytes_max, "1m" }, -- bytes of its messages; then it is ended
  timeout = { "ms_max", "seconds", 1, 2 ^ 32 - 1, 60, none = 0 }, -- seconds; then it is ended
}
process.calls = { ["ls.process"] = { process_options, listed = true } } -- ProcessOptions

local function check_argv(argv)
  usage.check(argv, "table",
    'ls.process takes a list of the program and its arguments, such as { "git", "log", "-1" }')
  local list, count = {}, 0
  for name in pairs(argv) do
    count = count + 1
    if type(name) ~= "number" then
      usage.error("ls.process: options are the second argument: ls.process({ ... }, { %s = ... })", tostring(name))
    end
  end
  for i, text in ipairs(argv) do
    if type(text) == "number" then text = tostring(text) end
    usage.refuse(type(text) ~= "string" or find(text, "\0", 1, true), argv[i],
      "ls.process: argument %d must be a string without NUL", i)
    list[i] = text
  end
  if #list ~= count then usage.error("ls.process: argument %d is nil", #list + 1) end
  if not list[1] or list[1] == "" then usage.error("ls.process: the name of the program is missing") end
  return list
end

-- environment(call, env [, clear]) -> the variables as "NAME=value", sorted; nil: those of the server. Raises.
function process.environment(call, env, clear)
  if env == nil and not clear then return nil end
  usage.check(env, "table?", '%s: env must be a table such as { LANG = "C" }', call)
  local list, given = {}, {}
  for name, value in pairs(env or {}) do
    if type(name) ~= "string" or name == "" or find(name, "[=\0]") then
      usage.error("%s: env has the invalid name %s", call, usage.quote(name))
    end
    given[key(name)] = true
    if value then
      local kind = type(value)
      usage.refuse(kind ~= "string" and kind ~= "number" or find(value, "\0", 1, true), value,
        "%s: env.%s must be a string without NUL, or false", call, name)
      list[#list + 1] = name .. "=" .. value
    end
  end
  for _, line in ipairs(clear and {} or core.environment()) do
    if not given[key(line:match("^[^=]*"))] then list[#list + 1] = line end
  end
  sort(list)
  return list
end

local fields = { code = true, signal = true, out = true, err = true }

local result_meta = core.plain {
  __index = function(_, name)
    if not fields[name] then names.unknown_member("a result of ls.process", name, fields) end
  end,
}

-- collect(most) -> add(text) -> whether that is within the limit; finish() -> the text
local function collect(most)
  local parts, len = {}, 0
  local function add(text)
    local last = #parts
    len = len + #text
    if len > most then text = sub(text, 1, #text - (len - most)) end
    if last > 0 and #parts[last] < 4096 then -- many short texts take few entries
      parts[last] = parts[last] .. text
    else
      parts[last + 1] = text
    end
    return len <= most
  end
  return add, function() return concat(parts) end
end

-- The same for a function that gets each line.
local function pass_lines(most, call)
  local parts, len = {}, 0 -- of the last line, which has no end yet
  local function add(text)
    local from = 1
    while true do
      local stop = find(text, "\n", from, true)
      local part = sub(text, from, stop and stop - 1)
      len = len + #part
      if len > most then return false end
      parts[#parts + 1] = part
      if not stop then return true end
      local line = concat(parts)
      parts, len, from = {}, 0, stop + 1
      call(line)
    end
  end
  return add, function()
    if len > 0 and len <= most then call(concat(parts)) end
    return ""
  end
end

-- The program of `argv`, until it has ended.
local function run(argv, env, input, settings, output)
  local child <close>, message, code = core.child(argv, env, settings.cwd or core.dir, input, true)
  if not child then return nil, message, code end
  local deadline = settings.ms_max > 0 and core.now() + settings.ms_max / 1000 or nil
  local ended -- why: { message, code }
  local adds, texts = {}, {}
  if output then
    adds[1], texts[1] = pass_lines(settings.out_bytes_max, output)
  else
    adds[1], texts[1] = collect(settings.out_bytes_max)
  end
  adds[2], texts[2] = collect(settings.err_bytes_max)
  -- Read what the stream has, once or all of it.
  local function read(stream, all)
    repeat
      local text = adds[stream] and child:read(stream, read_bytes) or ""
      if text ~= "" and not adds[stream](text) then
        adds[stream] = nil
        child:close(stream)
        ended = ended or { "it has written more than " .. (stream == 1 and "max_out" or "max_err"), "EMSGSIZE" }
        child:stop()
      end
    until text == "" or not all
  end
  local status, signal, why, why_code
  repeat
    child:wait(deadline and not ended and max(0, deadline - core.now()) or nil)
    status, signal, why, why_code = child:status()
    for stream = 1, 2 do read(stream, status) end
    if deadline and not ended and not status and core.now() >= deadline then
      ended = { "timeout", "ETIMEDOUT" }
      child:stop()
    end
  until status
  if why and not ended then ended = { why, why_code } end
  local result = setmetatable({ code = status, signal = signal, out = texts[1](), err = texts[2]() }, result_meta)
  if not ended and status ~= 0 and core.dev then require("luaserve.dev_state").watch_exit(status) end
  if not ended then return result end
  message = ended[2] == "ETIMEDOUT" and "timeout: the process was ended" or "the process was ended: " .. ended[1]
  return nil, message, ended[2], result
end

-- ls.process(argv: (string|number)[] [, options: ProcessOptions]) -> result: ProcessResult | nil, message, code,
-- result: ProcessResult
-- Runs a program, without a shell, and waits until it ends. When it was ended by a limit, the fourth result has its output.
-- result is a ProcessResult: what a program has left.
-- result.code: integer - its exit status; 128 and the number of the signal that has ended it
-- result.signal: integer? - the number of this signal
-- result.out: string - its output
-- result.err: string - its messages, from the standard error
function process.run(argv, given, ...)
  local list = check_argv(argv)
  usage.check(given, "table?", "ls.process: the second argument is a table of options, such as { timeout = 5 }")
  usage.no_more("ls.process(argv, options)", given, ...)
  given = given or {}
  local settings = options.take("ls.process", given, process.calls["ls.process"], {})
  local input = given.stdin
  if core.is_buffer(input) then input = input:tostring() end
  usage.check(input, "string?", "ls.process: stdin must be a string or a buffer")
  return run(list, process.environment("ls.process", given.env, settings.clear_env), input, settings, given.output)
end

return process
