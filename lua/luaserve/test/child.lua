-- test/child.lua - the processes of `luaserve test`: this program again, with a pipe to its standard input and one from its
-- standard output (cli/test.c). A child ends when the pipe to it is closed, also because its parent has died.

local core = require "luaserve.core"
local system = require "luaserve.test.system"

local child = {}
local methods = {}
local meta = { __index = methods }

local READ_BYTES = 65536

local signals = { [1] = "SIGHUP", [2] = "SIGINT", [4] = "SIGILL", [6] = "SIGABRT", [7] = "SIGBUS", [8] = "SIGFPE",
  [9] = "SIGKILL", [11] = "SIGSEGV", [13] = "SIGPIPE", [15] = "SIGTERM",
  [0xC0000005] = "EXCEPTION_ACCESS_VIOLATION", [0xC000001D] = "EXCEPTION_ILLEGAL_INSTRUCTION",
  [0xC0000094] = "EXCEPTION_INT_DIVIDE_BY_ZERO", [0xC00000FD] = "EXCEPTION_STACK_OVERFLOW" }

-- now() -> the time, which test.clock does not move
function child.now() return core.now() - core.clock_moved() end

-- start(arguments [, env]) -> child | nil, message. env: as "NAME=value", in place of those of this process.
function child.start(arguments, env)
  local process, message = core.child({ system.program(), table.unpack(arguments) }, env, nil, true, false, true)
  if not process then return nil, message end
  return setmetatable({ process = process, rest = "" }, meta)
end

-- child:receive(seconds) -> the next line of its output | nil, "timeout" | nil, "closed"
function methods:receive(seconds)
  local limit = child.now() + seconds
  while true do
    local line, rest = self.rest:match("^([^\n]*)\n(.*)$")
    if line then
      self.rest = rest
      return line
    end
    local text = self.process:read(1, READ_BYTES)
    if not text or text == "" and self.process:status() then return nil, "closed" end
    self.rest = self.rest .. text
    if text == "" then
      local left = limit - child.now()
      if left <= 0 then return nil, "timeout" end
      self.process:wait(left)
    end
  end
end

-- child:stop(): close the pipe to it, which makes it end
function methods:stop() self.process:close(0) end

-- child:ending() -> whether it ended with status 0, "exited with status 1" or "was ended by signal 11 (SIGSEGV)". Waits until
-- it has ended.
function methods:ending()
  local status, signal, failure
  repeat
    self.process:wait()
    status, signal, failure = self.process:status()
  until status
  if failure then return false, "was ended: " .. failure end
  if not signal and status >= -0x40000000 and status < 0 then signal = status & 0xFFFFFFFF end -- an exception of Windows
  if not signal then return status == 0, "exited with status " .. status end
  return false, "was ended by signal " .. signal .. (signals[signal] and " (" .. signals[signal] .. ")" or "")
end

-- child:kill(): end it at once, if it runs, and wait until it has ended
function methods:kill()
  self.process:stop(true)
  self:ending()
end

return child
