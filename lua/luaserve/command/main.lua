-- command/main.lua - the commands in Lua.
--
-- `program` has what src/cli/command.c defines: backend; build(), the text of --version; commands, a list of
-- { name, help }; files() (of lua/CMakeLists.txt); kind, list, make_folder, write_new (lua_folder.h);
-- owner, reload, stop (pid.h); version; pack, repl and service, the functions of src/cli/pack.c, repl.c and
-- install_win32.c.

local run = {} -- each: (program, arguments) -> the exit status; of a line that opens a server, see server.read

for _, line in ipairs { "serve", "packed", "dev", "repl", "service" } do
  run[line] = function(program, arguments)
    return require("luaserve.command.server").read(program, line, arguments)
  end
end

function run.suggest(program, arguments)
  return require("luaserve.command.server").suggest(program, arguments[1], arguments[2])
end

for _, name in ipairs { "install", "uninstall" } do
  run[name] = function(program, arguments) return require("luaserve.command.service").run(program, name, arguments) end
end

function run.prompt(program, arguments) return require("luaserve.command.prompt").run(program, arguments[1]) end

function run.new(program, arguments) return require("luaserve.command.new").run(program, arguments) end

for _, name in ipairs { "reload", "upgrade", "stop", "status", "ready", "unready" } do
  run[name] = function(program, arguments) return require("luaserve.command.process").run(program, name, arguments) end
end

function run.pack(program, arguments) return require("luaserve.command.pack").run(program, arguments) end

function run.inside(program) return require("luaserve.command.pack").list(program) end -- --packed of a packed program

function run.top(program, arguments) return require("luaserve.command.top").run(program, arguments) end

-- The manual page: luaserve manual MARKED PAGE, when luaserve is built.
function run.manual(program, arguments)
  local specs = {}
  for _, line in ipairs { "serve", "dev", "repl" } do
    specs[line] = require("luaserve.command.server").spec(program, line)
  end
  specs.pack = require("luaserve.command.pack").spec
  specs.new = require("luaserve.command.new").spec
  specs.test = require("luaserve.test.options").spec(program.backend)
  specs.stress = require("luaserve.stress.options").line
  return require("luaserve.command.manual")(specs, arguments[1], arguments[2])
end

-- main(program, name, arguments) -> the exit status
return function(program, name, arguments) return run[name](program, arguments) end
