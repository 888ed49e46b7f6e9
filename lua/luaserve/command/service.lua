-- command/service.lua - `luaserve install` and `luaserve uninstall`, on Windows: they create and delete the service. Its
-- command line is luaserve run-as-service with complete paths. src/cli/install_win32.c has the functions of
-- `program.service`.

local server = require "luaserve.command.server"

local service = {}

local COMMAND_CHARS_MAX, NAME_CHARS_MAX = 32766, 256

-- The number of UTF-16 units of a text in UTF-8; 0 for other bytes.
local function units(text) return (utf8.len(text) or 0) + select(2, text:gsub("[\xF0-\xF4]", "")) end

-- quote(argument) -> the argument in a command line, so that CommandLineToArgvW and the C library return it unchanged: a
-- backslash is literal, except before a quotation mark, where two backslashes stand for one.
function service.quote(argument)
  if argument ~= "" and not argument:find('[ \t\n\v"]') then return argument end
  return '"' .. argument:gsub('(\\*)"', '%1%1\\"'):gsub("(\\*)$", "%1%1", 1) .. '"'
end

local function fail(format, ...)
  io.stderr:write("luaserve: ", string.format(format, ...), "\n")
  return 1
end

-- The message about an error of the system, by its number and text. `what`: "install" or "uninstall".
local function explain(name, what, number, reason)
  if number == 5 then
    return fail('cannot %s the service "%s": access denied (error 5); run this as an administrator', what, name)
  elseif number == 1073 or number == 1078 then
    return fail('the service "%s" already exists (error %d); give another --name, or first run: luaserve uninstall '
      .. '--name "%s"', name, number, name)
  elseif number == 1060 then
    return fail('the service "%s" does not exist (error %d); give the --name of its install', name, number)
  elseif number == 1072 then
    return fail('the service "%s" is marked for deletion (error %d); close every program that has it open, such as '
      .. "services.msc", name, number)
  end
  return fail('cannot %s the service "%s": %s', what, name, reason)
end

-- line(program, name, values, site, log, arguments) -> the command line of the service
function service.line(program, name, values, site, log, arguments)
  local words = { program, "run-as-service", "--name", name, "--log", log }
  for _, option in ipairs { "threads", "backend", "log_level" } do
    if values[option] then
      words[#words + 1] = "--" .. option:gsub("_", "-")
      words[#words + 1] = tostring(values[option])
    end
  end
  words[#words + 1] = site -- a complete path does not start with "-"
  table.move(arguments, 1, #arguments, #words + 1, words)
  for i, word in ipairs(words) do words[i] = service.quote(word) end
  return table.concat(words, " ")
end

local function folder_of(path) return path:match("^(.*)\\") or path end

-- What an administrator still has to do. The commands are valid in cmd and in PowerShell, where (OI) without quotation
-- marks would be an expression.
local function advise(name, site, log)
  print(('The service "%s" is installed. It starts with the system; to start it now: net start "%s"\nLog: %s'):format(
    name, name, log))
  print(('If the service may not write there: icacls "%s" /grant "NT SERVICE\\%s:(OI)(CI)M"'):format(folder_of(log), name))
  if folder_of(log) == folder_of(site) then
    print "That lets it change the site as well: better give --log a file in another folder."
  end
  print(('If others shall connect, in PowerShell: New-NetFirewallRule -DisplayName "%s" -Service "%s" -Direction Inbound '
    .. "-Action Allow"):format(name, name))
end

local function install(program, name, values, given, arguments)
  local system = program.service
  local site = system.full_path(given)
  local log = site and (not values.log and site .. ".log" or system.full_path(values.log))
  if not log then return fail('invalid path of the site or the log: "%s"', values.log or given) end
  if program.kind(site) ~= "file" then
    return fail("cannot install %s: no such file%s", given, system.hint(given))
  end
  local line = service.line(system.program(), name, values, site, log, arguments)
  if units(line) > COMMAND_CHARS_MAX then
    return fail("the command line of the service is longer than %d characters", COMMAND_CHARS_MAX)
  end
  local created, number, reason = system.create(name, line, "Serves " .. site .. ".")
  if not created then return explain(name, "install", number, reason) end
  advise(name, site, log)
  return 0
end

local function uninstall(program, name)
  local deleted, number, reason = program.service.delete(name, function(seconds)
    fail('the service "%s" has not stopped within %d s; it is deleted when it ends', name, seconds)
  end)
  if not deleted then return explain(name, "uninstall", number, reason) end
  print(('The service "%s" is deleted. Its log remains.'):format(name))
  return 0
end

-- run(program, name, arguments) -> the exit status. name: "install" or "uninstall"
function service.run(program, name, arguments)
  local line = name == "install" and "service" or name
  local values, at = server.read(program, line, arguments)
  if not at then return values end
  local word = arguments[at]
  local own = values.name or "luaserve"
  if units(own) == 0 or units(own) > NAME_CHARS_MAX or own:find("[/\\]") then
    fail('invalid service name "%s"; give 1 to %d characters without / and \\', own, NAME_CHARS_MAX)
    return 2
  end
  if name == "uninstall" then return uninstall(program, own) end
  return install(program, own, values, word, table.move(arguments, at + 1, #arguments, 1, {}))
end

return service
