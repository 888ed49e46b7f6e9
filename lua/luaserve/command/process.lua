-- command/process.lua - the commands reload, stop and status, which refer to a running server by the file of its process
-- id.

local command = require "luaserve.command"

local process = {}

local DEFAULT_PATH = "luaserve.pid"
local REPLY_BYTES_MAX = 65536
local STATUS_NOT_RUNNING = 3 -- of `status`: Linux Standard Base, "Init Script Actions"

local function spec(name, about)
  return { name = name, usage = { "[--pid FILE]" }, about = about, options = {
    { "--pid FILE", command.file, "the file that the server wrote with --pid FILE (default: " .. DEFAULT_PATH .. ")" },
    command.help_option,
  } }
end

local reload = spec("reload", [[
Have the running server load its site again. Its log shows the result; with --wait the command waits for it, and the status
is 1 when the new site is not served.]])
reload.usage[2] = "--wait --control PATH"
table.insert(reload.options, 2, { "--wait", nil, "wait for the result, at the control socket" })
table.insert(reload.options, 3, { "--control PATH", command.matching(".", "the path of a Unix socket"),
  "the control socket of the server, of luaserve --control PATH" })

process.specs = {
  reload = reload,
  stop = spec("stop", "Stop the running server and wait until it has ended."),
  status = spec("status", "Print whether the server runs. The exit status is 0 if it does, else 3."),
}

local actions = {}

function actions.reload(program, _, id)
  if not id or not program.reload(id) then return nil end
  io.stdout:write(string.format("process %d loads its site again; its log shows the result\n", id))
  return 0
end

-- The reply at the control socket is "ok", "failed" and the reason, or "refused" and the number of the user.
local function reload_and_wait(program, path)
  local link, why = program.repl.connect(path)
  if not link then return command.fail(reload, string.format("cannot connect to %s: %s", path, why), 1) end
  program.repl.write(link, "reload\n") -- a server that refuses the user may have closed the connection already
  local reply, more = "", ""
  while more and #reply <= REPLY_BYTES_MAX do reply, more = reply .. more, program.repl.read(link) end
  program.repl.disconnect(link)
  if reply == "ok" then
    io.stdout:write("the new site is served\n")
    return 0
  end
  local user = reply:match("^refused (%d+)")
  if user then
    return command.fail(reload, "the server refuses user " .. user .. ": run it as the user of the server, or as root", 1)
  end
  why = reply:match("^failed (.*)")
  return command.fail(reload, why and command.printable(why) .. "; the previous site continues" or "the server ended before the result", 1)
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
  if values.wait and not values.control then
    return command.fail(own, "--wait needs --control PATH, the control socket of the server: luaserve --control PATH")
  elseif values.control and not values.wait then
    return command.fail(own, "--control belongs to --wait; without it the server is that of --pid")
  elseif values.wait then
    return reload_and_wait(program, values.control)
  end
  local path = values.pid or DEFAULT_PATH
  local status = actions[name](program, path, program.owner(path))
  if status then return status end
  return command.fail(own, string.format("no running server owns %s; start it with --pid %s", path, path), 1)
end

return process
