-- command/prompt.lua - `luaserve repl`: reads lines, has them run by a session of a server, prints the values. src/cli/repl.h
-- describes the messages, src/cli/repl.c the functions of `program.repl`.

local command = require "luaserve.command"

local prompt = {}

local HEADER_BYTES_MAX, INPUT_BYTES_MAX, MESSAGE_BYTES_MAX = 96, 1 << 20, 1 << 28
local INTERRUPTS_MAX = 3 -- in vain, of one line: then the prompt leaves the server of --attach

local system -- program.repl
local path -- of the control socket, for --attach; nil: the server is our own

local function say(...) io.stderr:write("luaserve repl: ", string.format(...), "\n") end

-- ---- a session -----------------------------------------------------------------------------------------------------

-- Ctrl-C: first for a line that computes, then for a line that waits.
local function interrupt(session)
  local other = path and system.connect(path)
  if not path then
    system.interrupt()
  elseif other then
    if system.write(other, string.format("interrupt %d\n", session.id)) then
      system.read(other) -- the server closes it
    end
    system.disconnect(other)
  end
  system.write(session.link, "interrupt 0\n")
end

-- Receive more bytes; nil: the connection has ended, or Ctrl-C was pressed in vain.
local function more(session)
  local text = system.read(session.link)
  while text == false do
    session.interrupts = session.interrupts + 1
    if path and session.interrupts == INTERRUPTS_MAX then return nil end
    interrupt(session)
    text = system.read(session.link)
  end
  return text
end

-- The next message: kind, text, number; nil: the connection has ended.
local function receive(session)
  local kind, bytes, number, from
  while true do
    kind, bytes, number, from = session.buffer:match("^(%l+) (%d+) (%d+)\n()", session.at)
    if kind then break end
    local text = #session.buffer - session.at < HEADER_BYTES_MAX and more(session)
    if not text then return nil end
    session.buffer, session.at = session.buffer:sub(session.at) .. text, 1
  end
  local parts, left = {}, math.tointeger(tonumber(bytes))
  number = math.tointeger(tonumber(number))
  if not left or left > MESSAGE_BYTES_MAX or not number then return nil end
  while true do
    local part = session.buffer:sub(from, from + left - 1)
    parts[#parts + 1], left, session.at = part, left - #part, from + #part
    if left == 0 then return kind, table.concat(parts), number end
    session.buffer, from = more(session), 1
    if not session.buffer then return nil end
  end
end

-- Begin a session: it | nil, message.
local function begin(at)
  local link, why = system.connect(at)
  if not link then return nil, why .. command.CONTROL_HINT end
  local session = { link = link, buffer = "", at = 1, interrupts = 0 }
  local kind, text
  if system.write(link, "repl\n") then kind, text, session.id = receive(session) end
  if kind == "hello" then return session end
  system.disconnect(link)
  return nil, kind == "error" and command.printable(text) or "the server closed the connection; it accepts its own user and root"
end

-- What another program sends cannot change the terminal.
local function printable(text)
  return path and system.terminal() and command.printable(text) or text
end

-- Send a text and receive the message that responds to it: kind, text; nil: the connection has ended without one.
local function exchange(session, kind, text)
  session.interrupts = 0
  if not system.write(session.link, string.format("%s %d\n", kind, #text) .. text) then return nil end
  while true do
    local got, answer, number = receive(session)
    if got == "out" then
      io.stdout:write(printable(answer))
      io.stdout:flush()
    elseif got == "hello" then
      session.id = number
    else
      return got, answer
    end
  end
end

-- ---- lines ---------------------------------------------------------------------------------------------------------

local current -- the session; nil: the server has ended
local waits   -- a line was interrupted: its task may still wait

-- Run the input. A session ends when the site is reloaded; the text then runs in a new one. kind, text; nil: the server has
-- ended.
local function run(input)
  local kind, text = exchange(current, "eval", input)
  if kind then return kind, text end
  system.disconnect(current.link)
  if current.interrupts == INTERRUPTS_MAX then
    current = nil
    return say("the server does not answer; the line may still run")
  end
  current = path and begin(path) or nil
  if not current then return say("the server has ended") end
  io.stderr:write("(the site was reloaded: a new session)\n")
  return exchange(current, "eval", input)
end

-- Read and run lines until the end of the input. Returns the exit status.
local function loop(terminal)
  local input -- the lines of the text that is not complete yet; nil: none
  while true do
    local line = system.line(terminal and (input and ">> " or "> ") or nil)
    if line == nil then break end
    if line == false then
      input = nil
      print()
    elseif input or line:find("[^ \t\r]") then
      input = input and input .. "\n" .. line or line
      if #input >= INPUT_BYTES_MAX then
        say("the text is longer than %d bytes", INPUT_BYTES_MAX)
        return 1
      end
      local kind, text = run(input)
      if not kind then return 1 end
      if kind == "error" and text == "interrupted" then waits = true end
      if kind ~= "more" then
        input = nil
        if text ~= "" then (kind == "error" and io.stderr or io.stdout):write(printable(text), "\n") end
      end
      io.stdout:flush()
      if kind == "error" and not terminal then return 1 end
    end
  end
  if terminal then
    print()
  elseif input then
    say("the last statement is incomplete")
    return 1
  end
  return 0
end

local function complete(text)
  local kind, words = exchange(current, "words", text)
  return kind == "words" and not words:find("[^%w_\n]") and words or nil
end

-- Lines for the session. Returns the exit status.
local function serve(session, version)
  local terminal = system.terminal()
  current = session
  if terminal then
    io.stdout:write("luaserve ", version, ", Lua 5.4. Ctrl-C ends a line, Ctrl-D leaves.\n")
    io.stdout:flush()
    if not system.open_editor(complete) then
      say("cannot read lines from this terminal")
      return 1
    end
  end
  local status = loop(terminal)
  if terminal then system.close_editor() end
  if current then system.disconnect(current.link) end
  return status
end

-- ask(program, at, code) -> what the code has printed, in a session of its own | nil, message
function prompt.ask(program, at, code)
  system, path = program.repl, at
  local session, why = begin(at)
  if not session then return nil, string.format("cannot connect to %s: %s", at, why) end
  local parts, kind, text = {}, "out", ""
  if not system.write(session.link, string.format("eval %d\n", #code) .. code) then kind = nil end
  while kind == "out" or kind == "hello" do
    kind, text = receive(session)
    if kind == "out" then parts[#parts + 1] = text end
  end
  system.disconnect(session.link)
  if kind == "value" then return table.concat(parts) end
  return nil, text or "the server has ended"
end

-- run(program, attach) -> the exit status. attach: the path of --attach, or nil.
function prompt.run(program, attach)
  system, path = program.repl, attach
  local own, why, session, status
  if not attach then
    own, why = system.serve()
    if not own then
      io.stderr:write(why, "\n")
      return 1
    end
  end
  session, why = begin(attach or own)
  if own then system.remove(own) end
  if session then
    status = serve(session, program.version)
  else
    status = 1
    say("cannot %s: %s", attach and "attach to " .. attach or "reach the own server", why)
  end
  if own then system.stop(waits, status) end
  return status
end

return prompt
