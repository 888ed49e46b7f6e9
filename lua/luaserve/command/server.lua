-- command/server.lua - the command lines that open a server: `luaserve site.lua`, and the commands dev, repl, install and
-- run-as-service; and uninstall. src/cli/options.c has the table of their options, and reads them when they are right;
-- here are help and what is wrong.
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

-- Makers of kinds, by the kinds of options.c. Each must refuse what options.c refuses.
local kinds = {}

function kinds.switch() return nil end

function kinds.number(row)
  return {
    expected = string.format("a number from %d to %d", row.least, row.most),
    read = function(text)
      local number = #text <= 9 and text:find("^%d+$") and math.tointeger(tonumber(text))
      return number and number >= row.least and number <= row.most and number or nil
    end,
  }
end

function kinds.word(row) return command.one_of(row.words) end
function kinds.backend(_, program) return server.backend_kind(program.backend) end
function kinds.code() return command.matching("", "the code of a site") end

function kinds.text(row)
  local part = row.words or ""
  return {
    expected = row.expected,
    read = function(text) return text ~= "" and text:find(part, 1, true) and text or nil end,
  }
end

-- The options of a line, from the table of options.c.
local function options_of(program, line)
  local list = {}
  for _, row in ipairs(program.options) do
    if row[line] then
      list[#list + 1] = { row.form, kinds[row.kind](row, program), row.text, ends = row.kind == "code" }
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
  if line == "serve" then own.about = own.about .. commands_of(program) end
  return own
end

-- What is wrong with a line whose options are right. `word`: the first argument that is no option, or nil.
local function wrong_word(line, spec, values, word)
  if line == "uninstall" and word then return command.unexpected(spec, word) end
  if values.attach and (word or values.e or values.listen) then
    return "--attach excludes a site and the other options"
  elseif word == "-" then
    return line == "repl" and "the site cannot be read from standard input, which has the lines"
      or "cannot read its site from standard input; give the file"
  end
  return "no site given; usage: " .. command.program_name(spec) .. " " .. spec.usage[1]
end

-- explain(program, line, arguments) -> the exit status. Prints help, or why options.c does not take the line.
function server.explain(program, line, arguments)
  local spec = server.spec(program, line)
  local values, words, at = command.parse(spec, arguments)
  if not values then return command.fail(spec, words) end
  if values.help then return command.help(spec) end
  return command.fail(spec, wrong_word(line, spec, values, arguments[at]))
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
