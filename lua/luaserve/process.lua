-- process.lua - ls.process: a program that runs while the task waits.

local core = require "luaserve.core"
local names = require "luaserve.names"
local options = require "luaserve.options"
local usage = require "luaserve.usage"
usage.mark_internal()

-- A site may replace the globals.
local find, ipairs, pairs, sort, tostring, type = string.find, ipairs, pairs, table.sort, tostring, type
local setmetatable = setmetatable

local process = {}

local bytes_max = 1024 ^ 3
local is_windows = package.config:sub(1, 1) == "\\"

-- What identifies a variable: on Windows its name in capitals.
local function key(name) return is_windows and name:upper() or name end

local process_options = {
  stdin = true, -- string|Buffer - what the program reads from its standard input
  env = true, -- table<string, string|number|false> - variables beside those of the server; false removes one
  clear_env = { "clear_env", "flag" }, -- the program has the variables of `env` only
  cwd = { "cwd", "text", "a directory, not empty" }, -- its working directory; default: that of the site
  max_out = { "out_bytes_max", "size", 0, bytes_max, "1m" }, -- bytes of its output; then it is ended
  max_err = { "err_bytes_max", "size", 0, bytes_max, "1m" }, -- bytes of its messages; then it is ended
  timeout = { "ms_max", "seconds", 1, 2 ^ 32 - 1, 60, none = 0 }, -- seconds; then it is ended
}
process.calls = {
  ["ls.process"] = { process_options, listed = true }, -- ProcessOptions
}

local function check_argv(argv)
  if type(argv) ~= "table" then
    usage.error('ls.process takes a list of the program and its arguments, such as { "git", "log", "-1" }; got %s',
      usage.quote(argv))
  end
  local list, count = {}, 0
  for name in pairs(argv) do
    count = count + 1
    if type(name) ~= "number" then
      usage.error("ls.process: options are the second argument: ls.process({ ... }, { %s = ... })", tostring(name))
    end
  end
  for i, text in ipairs(argv) do
    if type(text) == "number" then text = tostring(text) end
    if type(text) ~= "string" or find(text, "\0", 1, true) then
      usage.error("ls.process: argument %d must be a string without NUL; got %s", i, usage.quote(argv[i]))
    end
    list[i] = text
  end
  if #list ~= count then usage.error("ls.process: argument %d is nil", #list + 1) end
  if not list[1] or list[1] == "" then usage.error("ls.process: the name of the program is missing") end
  return list
end

-- The variables as "NAME=value", sorted; nil: those of the server.
local function environment(env, clear)
  if env == nil and not clear then return nil end
  if env ~= nil and type(env) ~= "table" then
    usage.error('ls.process: env must be a table such as { LANG = "C" }; got %s', usage.quote(env))
  end
  local list, given = {}, {}
  for name, value in pairs(env or {}) do
    if type(name) ~= "string" or name == "" or find(name, "[=\0]") then
      usage.error("ls.process: env has the invalid name %s", usage.quote(name))
    end
    given[key(name)] = true
    if value then
      local kind = type(value)
      if kind ~= "string" and kind ~= "number" or find(value, "\0", 1, true) then
        usage.error("ls.process: env.%s must be a string without NUL, or false; got %s", name, usage.quote(value))
      end
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

local function named(result) return setmetatable(result, result_meta) end

local function results(result, message, code, partial)
  if result then return named(result) end
  if partial then return nil, message, code, named(partial) end
  return nil, message, code
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
  if given ~= nil and type(given) ~= "table" then
    usage.error("ls.process: the second argument is a table of options, such as { timeout = 5 }; got %s",
      usage.quote(given))
  end
  usage.no_more("ls.process(argv, options)", given, ...)
  given = given or {}
  local settings = options.take("ls.process", given, process.calls["ls.process"], {})
  local input = given.stdin
  if input ~= nil and type(input) ~= "string" then
    if not core.is_buffer(input) then
      usage.error("ls.process: stdin must be a string or a buffer; got %s", usage.quote(input))
    end
    input = input:tostring()
  end
  return results(core.process(list, environment(given.env, settings.clear_env), settings.cwd or core.dir, input,
    settings.out_bytes_max, settings.err_bytes_max, settings.ms_max > 0 and settings.ms_max / 1000 or nil))
end

return process
