-- command/process.lua - the commands for a running server: reload, upgrade, stop and status, which refer to it by the file of
-- its process id; ready, unready, upgrade --control and reload --wait, by its control socket.

local command = require "luaserve.command"

local process = {}

local DEFAULT_PATH = "luaserve.pid"
local REPLY_BYTES_MAX = 1 << 19
local STATUS_NOT_RUNNING = 3 -- of `status`: Linux Standard Base, "Init Script Actions"

local function spec(name, about)
  return { name = name, usage = { "[--pid FILE]" }, about = about, options = {
    { "--pid FILE", command.file, "the file that the server wrote with --pid FILE (default: " .. DEFAULT_PATH .. ")" },
    command.help_option,
  } }
end

local control_option = { "--control PATH", command.matching(".", "the path of a Unix socket"),
  "the control socket of the server, of luaserve --control PATH" }

local reload = spec("reload", [[
Have the running server load its site again. Its log shows the result; with --wait the command waits for it, and the status
is 1 when the new site is not served.]])
reload.usage[2] = "--wait --control PATH"
table.insert(reload.options, 2, { "--wait", nil, "wait for the result, at the control socket" })
table.insert(reload.options, 3, control_option)

local function control_spec(name, about)
  return { name = name, usage = { "--control PATH" }, about = about, options = { control_option, command.help_option } }
end

local upgrade = spec("upgrade", [[
Start the program again, with the command line of the running server, in a process that takes its sockets over: no connection
is refused. The running server drains when that process serves, and continues when it cannot. With --control the command waits
for the result, and the status is 1 when the running server continues; else its log shows it.]])
upgrade.usage[2] = "--control PATH"
table.insert(upgrade.options, 2, control_option)

local status = spec("status", [[
Print whether the server runs. The exit status is 0 if it does, else 3. With --control also what it does: a line for each
request and task that waits, with its client, route, place and time.]])
status.usage[2] = "--control PATH"
table.insert(status.options, 2, control_option)

process.specs = {
  reload = reload,
  ready = control_spec("ready", "Have app:health of the running server say that it is ready, as before `luaserve unready`."),
  unready = control_spec("unready", "Have app:health of the running server say that it is not ready. It serves all requests."),
  upgrade = upgrade,
  stop = spec("stop", "Stop the running server and wait until it has ended."),
  status = status,
}

local actions = {}

function actions.reload(program, _, id)
  if not id or not program.reload(id) then return nil end
  io.stdout:write(string.format("process %d loads its site again; its log shows the result\n", id))
  return 0
end

function actions.upgrade(program, _, id)
  if not id or not program.upgrade(id) then return nil end
  io.stdout:write(string.format("process %d starts another one, which replaces it; its log shows the result\n", id))
  return 0
end

-- ask(program, own, path, line) -> the reply of the control socket to the line; or nil, the exit status of a failure.
local function ask(program, own, path, line)
  local link, why = program.repl.connect(path)
  if not link then
    return nil, command.fail(own, string.format("cannot connect to %s: %s%s", path, why, command.CONTROL_HINT), (own == upgrade or own == status) and STATUS_NOT_RUNNING or 1)
  end
  program.repl.write(link, line .. "\n") -- a server that refuses the user may have closed the connection already
  local reply, more = "", ""
  while more and #reply <= REPLY_BYTES_MAX do reply, more = reply .. more, program.repl.read(link) end
  program.repl.disconnect(link)
  local user = reply:match("^refused (%d+)")
  if not user then return reply end
  return nil, command.fail(own, "the server refuses user " .. user .. ": run it as the user of the server, or as root", 1)
end

-- The reply is "ok", with a file that the new process waits for if it does, or "failed" and the reason.
local function ask_and_wait(program, own, path)
  local reply, status = ask(program, own, path, own.name)
  if not reply then return status end
  local file = reply:match("^ok (.*)")
  if reply == "ok" or file then
    io.stdout:write(file and "the new process serves when the server has ended, and with it the use of " .. command.printable(file)
      or own == reload and "the new site is served" or "the new process serves", "\n")
    return 0
  end
  local why = reply:match("^failed (.*)")
  local continues = own == reload and "; the previous site continues" or "; the server continues"
  if why then return command.fail(own, command.printable(why) .. continues, 1) end
  return own == upgrade and command.fail(own, "the server ended before the result, or is of a version without upgrades", STATUS_NOT_RUNNING)
    or command.fail(own, "the server ended before the result", 1)
end

local function print_status(program, path)
  local reply, failed = ask(program, status, path, "status")
  if not reply then return failed end
  local text = reply:match("^ok ?(.*)")
  if not text then return command.fail(status, command.printable(reply:match("^failed (.*)") or "the server gave no answer"), 1) end
  local lines = {}
  for line in text:gmatch("[^\n]+") do lines[#lines + 1] = command.printable(line) end
  io.stdout:write(#lines > 0 and table.concat(lines, "\n") or "nothing waits", "\n")
  return 0
end

local function set_ready(program, name, path)
  local reply, status = ask(program, process.specs[name], path, name)
  if not reply then return status end
  if reply == "ok" then return 0 end
  return command.fail(process.specs[name], reply == "draining" and "the server stops, and is not ready"
    or "the server has no such line: it is of another version", 1)
end

function actions.stop(program, path, id)
  if not id then return nil end
  local ended, in_order = program.stop(id, path)
  if not ended then return nil end
  if in_order then return 0 end
  return command.fail(process.specs.stop, "the server has ended with an error; its log has the reason", 1)
end

function actions.status(_, path, id)
  io.stdout:write(id and string.format("running, process id %d\n", id)
    or string.format("not running: no server owns %s\n", path))
  return id and 0 or STATUS_NOT_RUNNING
end

-- run(program, name, arguments) -> the exit status
function process.run(program, name, arguments)
  local own = process.specs[name]
  local values, words = command.parse(own, arguments)
  if not values then return command.fail(own, words) end
  if values.help then return command.help(own) end
  if words[1] then return command.fail(own, command.unexpected(own, words[1])) end
  if own == upgrade and program.backend ~= "epoll" then
    return command.fail(own, "this system has no way to pass listeners to another process: restart the server", 1)
  elseif name == "ready" or name == "unready" then
    if values.control then return set_ready(program, name, values.control) end
    return command.fail(own, "--control PATH is missing, the control socket of the server: luaserve --control PATH")
  elseif values.wait and not values.control then
    return command.fail(own, "--wait needs --control PATH, the control socket of the server: luaserve --control PATH")
  elseif values.control and values.pid then
    return command.fail(own, "--control and --pid both name a server: give one of them")
  elseif values.control and own == reload and not values.wait then
    return command.fail(own, "--control belongs to --wait; without it the server is that of --pid")
  elseif own == status and values.control then
    return print_status(program, values.control)
  elseif values.control then
    return ask_and_wait(program, own, values.control)
  end
  local path = values.pid or DEFAULT_PATH
  local status = actions[name](program, path, program.owner(path))
  if status then return status end
  return command.fail(own, string.format("no running server owns %s; start it with --pid %s", path, path), 1)
end

return process
