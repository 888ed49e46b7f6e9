-- command/server.lua - the command lines that open a server: `luaserve site.lua`, and the commands dev, repl, install and
-- run-as-service; and uninstall. src/cli/command.c takes the values that `read` returns.
--
-- `program`: see main.lua.

local command = require "luaserve.command"

local server = {}

-- backend_kind(own) -> the kind of --backend. A system has one back end. "uring", of earlier versions, is accepted on
-- Linux: the server logs that epoll is used.
function server.backend_kind(own)
  local kind = command.one_of("auto " .. own)
  return {
    expected = kind.expected,
    read = function(text) return text == "uring" and own == "epoll" and text or kind.read(text) end,
  }
end

server.log_level_kind = command.one_of "debug info warn error off"

local threads = {
  expected = "a number from 1 to 1024",
  read = function(text)
    local number = #text <= 9 and text:find("^%d+$") and math.tointeger(tonumber(text))
    return number and number >= 1 and number <= 1024 and number or nil
  end,
}
local socket = command.matching(".", "the path of a Unix socket")
local service_name = command.matching(".", "the name of a service")
local editor = command.matching("{file}", "a URL with {file}, such as vscode://file/{file}:{line}")
local all = "serve dev repl service"

-- The options: the lines that have it, and what command.lua describes. "backend": the kind of this system.
local rows = {
  { "repl", "--attach PATH", socket,
    "run the lines in the server whose control socket is PATH: luaserve --control PATH site.lua" },
  { "repl", "--listen", nil, 'also start the site: open its listeners, run its timers and "start" hooks' },
  { "service uninstall", "--name NAME", service_name, "name of the service (default: luaserve)" },
  { "service", "--log FILE", command.file,
    "file to which the log and the output of the site are appended (default: SITE.log)" },
  { "dev", "--editor URL", editor, [[URL of a line in the error page, with {file} and {line}, such as
    vscode://file/{file}:{line} (default: a page of the server)]] },
  { all, "--threads N", threads, [[run N threads at a time (default: `threads` of ls.config in the site, else one per
    processor). A standby thread replaces a thread whose handler computes or blocks for more than 5 ms]] },
  { all, "--backend NAME", "backend", "epoll on Linux, iocp on Windows, or auto, the default: a system has one back end" },
  { "serve dev", "--control PATH", socket, [[listen at the Unix socket PATH for luaserve repl --attach PATH; only the same
    user and root may connect]] },
  { "serve", "--check", nil, "load the site and print its listeners, routes, timers and limits, without serving" },
  { "serve", "--json", nil, "with --check: print them as JSON" },
  { "serve dev", "--log FILE", command.file,
    "append the log, and what the site prints, to FILE; SIGUSR1 opens it again" },
  { "serve", "--log-format FORMAT", command.one_of "text json",
    "lines of the log: text (the default), or json, an object each with time, level, request_id and message" },
  { "serve dev service", "--log-level LEVEL", server.log_level_kind,
    "drop log lines below this level: debug, info (the default), warn, error or off" },
  { "repl", "--log-level LEVEL", server.log_level_kind, "as of luaserve (default: warn)" },
  { "serve dev", "--pid FILE", command.file, [[write the process id to FILE while the server runs, for reload, stop and
    status; it is an error if a running server owns the file]] },
  { "serve repl", "-e CODE", command.matching("", "the code of a site"),
    "the site is CODE; the last option: the arguments of the site follow", ends = true },
  { "packed", "--overlay DIR", command.matching(".", "a folder"), "files in DIR come before those inside of the same name" },
  { "packed", "--packed", nil, "print the files inside: bytes, tag, media type, name", ends = true },
  { "serve", "--version", nil, "print the version and what is built in", ends = true },
  { "serve", "--licenses", nil, "print the licences of luaserve and of what it contains", ends = true },
}

local function options_of(program, line)
  local list = {}
  for _, row in ipairs(rows) do
    local as = line == "packed" and row[2] ~= "-e CODE" and row[1]:find("serve", 1, true) and "serve" or line
    if row[1]:find("%f[%a]" .. as .. "%f[%A]") then
      local kind = row[3] == "backend" and server.backend_kind(program.backend) or row[3]
      list[#list + 1] = { row[2], kind, row[4], ends = row.ends }
    end
  end
  list[#list + 1] = command.help_option
  return list
end

local function commands_of(program)
  local lines = {}
  for i, one in ipairs(program.commands) do lines[i] = string.format("  %-18s %s", one[1], one[2]) end
  return table.concat(lines, "\n")
end

local specs = {
  serve = {
    title = "network servers in Lua",
    usage = { "[options] site.lua [arguments...]", "[options] -e CODE [arguments...]", "[options] - [arguments...]",
      "COMMAND ..." },
    about = [[
With - the site is read from standard input. The arguments are `...` and arg[1], arg[2], ... of the site.

Commands, which luaserve COMMAND --help describes:

]],
    notes = [[
A site without listeners ends with status 0 when its last job and timer have ended.

SIGHUP loads the site again: requests that have begun end with the previous site, and no connection closes. SIGINT or SIGTERM
starts the drain: luaserve responds to every accepted request and ends with status 0. A second signal ends it
immediately.]],
  },
  packed = {
    usage = { "[options] [arguments of the site...]" },
    about = [[
A site and its files, packed with luaserve. The first argument that does not begin with -, and all after it, are those of the
site; so are all after --.]],
    unknown_note = "; arguments of the site that begin with - come after --",
  },
  dev = {
    name = "dev",
    usage = { "[options] site.lua [arguments...]" },
    about = [[
Serves the site for its developer: reloads it when one of the files that it has loaded changes, shows errors in the
browser, reloads the pages in the browser, and logs each request and what takes long.]],
    notes = [[
Errors, sources and headers of requests are shown to every client that reaches the server: use it on a loopback address
or in a network that you trust.]],
  },
  repl = {
    name = "repl",
    title = "a prompt for Lua",
    usage = { "[options] [site.lua [arguments...]]", "--attach PATH" },
    about = [[
Each line runs in a Lua state with the site loaded; without a site there are only `ls` and the libraries of Lua. A line
may wait (ls.sleep, ls.connect). The values of an expression are printed, and `_` is the first of them. A line that is
incomplete is continued on the next one. Globals remain; a local variable ends with its line.]],
    notes = [[
Tab completes a name, Ctrl-C ends the running line, Ctrl-D leaves. The history is in
$XDG_STATE_HOME/luaserve/repl_history. Lines from a pipe run without a prompt; the first one that fails ends the program
with status 1.]],
  },
  service = {
    name = "install",
    title = "a site as a Windows service, which starts with the system and drains when it is stopped",
    usage = { "[--name NAME] [--log FILE] [options] site.lua [arguments...]" },
    notes = [[
It needs administrator rights. The service runs as NT AUTHORITY\LocalService in the folder of site.lua; that account must
be able to read the site and to write the log. If the service fails to start, the reason is in its log and in the event
log of the system. Then: net start NAME, net stop NAME, luaserve uninstall --name NAME.]],
  },
  uninstall = { name = "uninstall", usage = { "[--name NAME]" }, title = "delete the Windows service" },
}

-- spec(program, line) -> the table of the command line: a key of `specs`
function server.spec(program, line)
  local own = { first_word_ends = true, options = options_of(program, line) }
  for name, value in pairs(specs[line]) do own[name] = value end
  if line == "packed" then own.program = program.pack.own():match("[^/\\]*$") end
  if line == "serve" then own.about = own.about .. commands_of(program) end
  return own
end

-- What is wrong with a line whose options are right; nil: nothing. `word`: the first argument that is no option, or nil.
local function wrong_word(line, spec, values, word)
  if line == "uninstall" then return word and command.unexpected(spec, word) end
  if values.attach and (word or values.e or values.listen) then
    return "--attach excludes a site and the other options"
  elseif values.json and not values.check then
    return "--json belongs to --check"
  elseif word == "-" and line ~= "serve" and not values.e then
    return line == "repl" and "the site cannot be read from standard input, which has the lines"
      or "cannot read its site from standard input; give the file"
  elseif not word and not values.e and line ~= "repl" and line ~= "packed" then
    return "no site given; usage: " .. command.program_name(spec) .. " " .. spec.usage[1]
  end
end

-- Print the licences. The static program contains more libraries than these.
local function licenses(program)
  for _, file in ipairs(program.files()) do
    if file.path:find("/copyright$") then io.stdout:write(file.bytes) end
  end
  if program.static then
    io.stdout:write("\nThis program is static: the licences of the other libraries inside, which --version lists, are in the file ",
      "luaserve-VERSION-linux-ARCHITECTURE.NOTICE that comes with it.\n")
  end
  return 0
end

-- Note an argument of the site that is spelled as an option of the server with a value. "--" before it or the site: it is meant.
local function note_late(line, spec, values, arguments, at)
  if arguments[at - 1] == "--" then return end
  for i = at, #arguments do
    local name = arguments[i]:match "^%-%-([%w-]*)"
    if name == "" then return end
    for option in command.each(spec) do
      if name and command.long_name(option) == name and (command.value_name(option) or name == "check") then
        io.stderr:write(command.program_name(spec), ": note: --", name, " is an argument of the site here: options of luaserve come before the ",
          values.e and "code" or line == "packed" and "arguments; -- before the arguments" or "site; -- before the site",
          values.e and "" or " says that it is meant", "\n")
        return
      end
    end
  end
end

-- read(program, line, arguments) -> values, at: the options by their keys, and the place of the word after them; or the
-- exit status: help, or what is wrong with the line, is printed.
function server.read(program, line, arguments)
  local spec = server.spec(program, line)
  local values, words, at = command.parse(spec, arguments)
  if not values then return command.fail(spec, words) end
  if values.help then return command.help(spec) end
  if values.licenses then return licenses(program) end
  local wrong = not values.version and wrong_word(line, spec, values, arguments[at])
  if wrong then return command.fail(spec, wrong) end
  note_late(line, spec, values, arguments, at)
  return values, at
end

-- suggest(program, site, argument) -> 0. Prints the end of the message about a site that cannot be opened, if it may be a
-- command. `argument`: the one after it, or "".
function server.suggest(program, site, argument)
  local names = {}
  for _, one in ipairs(program.commands) do names[one[1]] = true end
  if site:find("[./\\]") then return 0 end
  local near = site == "help" and "--help" or command.suggest(site, names) or argument:find("%.lua$") and argument
  io.stderr:write("; unknown command ", site,
    near and ": did you mean luaserve " .. near .. "?" or "; luaserve --help lists the commands")
  return 0
end

return server
