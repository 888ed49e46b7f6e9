-- once.lua - iterators over bytes that arrive once, such as those of req:chunks().
--
-- A second ls.fetch that sends what such an iterator has left would send a part of the body, or an empty one, and the other
-- server would store it. So the iterator raises then, also when a function of the site calls it.

local core = require "luaserve.core"
local usage = require "luaserve.usage"


local running = core.task -- the function of a body may be a coroutine
local format, pcall, setmetatable = string.format, pcall, setmetatable

local once = {}

local sends = setmetatable({}, { __mode = "k" }) -- of a task that sends the body of ls.fetch: its request

-- send(request, fn, ...) -> pcall(fn, ...), in a task that only sends the body of this request of ls.fetch.
function once.send(request, fn, ...)
  local task = running()
  sends[task] = request
  local ok, result = pcall(fn, ...)
  sends[task] = nil
  return ok, result
end

-- iterator(read, name, whole) -> the iterator that calls read() for the next bytes, nil at their end. `name` is the call
-- that made it, `whole` the one that returns all bytes at once. It raises in ls.fetch after its end, unless there were no
-- bytes or this request has sent them; and everywhere else when one request of ls.fetch has begun to send them.
function once.iterator(read, name, whole)
  local sender, begun, ended
  return function()
    local now = sends[running()]
    if (ended or sender) and sender ~= now then
      local message = format("%s: the bytes arrive once, and %s: to use them twice, such as to repeat ls.fetch, read them "
        .. "whole before, by %s or into a file", name,
        sender and "ls.fetch has begun to send them" or "this iterator has ended", whole)
      if now then now.refused = message end
      usage.error("%s", message)
    end
    sender = now
    local piece = read()
    if piece ~= nil then
      begun = true
    else
      ended, sender = begun, begun and sender
    end
    return piece
  end
end

return once
