-- s5_exit.lua - an orderly exit: each worker that leaves wakes the next, a worker that fails stops all, and resources
-- are released in the right order.
--
--   luaserve examples/s5_exit.lua 7005 4     4 workers on ports 7005 to 7008, until SIGTERM
--
-- A worker is a task with its own UDP socket. It replies to datagrams; "rekey" makes it replace its registration:
-- remove, wait until that is done, register again; "fail" makes it fail. The threads of the server stop in the same
-- way: each posts one packet for the next.
--
-- The workers share one Lua state, because they must see each other to leave in turn, and states share nothing. In
-- c/s5_exit.c the workers are threads.

local ls = require "luaserve"
local port, count = ...
port, count = tonumber(port) or 7005, tonumber(count) or 4

local workers = {}

local function leave(worker)
  if worker.n then worker.n:remove() end -- wakes its task; returns when no further event can follow
  worker.sock:close()
  ls.log.info("worker " .. worker.index .. " has left")
end

-- Shutdown: the first worker leaves, then the next one.
local function pass_on(index)
  local worker = workers[index]
  if not worker then return ls.log.info("all have left") end
  leave(worker)
  return pass_on(index + 1)
end

local commands = {
  rekey = function(worker)
    worker.n:remove()
    worker.key = worker.key + 1
    worker.n = assert(ls.notify(worker.sock, "in"))
    return "key " .. worker.key
  end,
  fail = function(worker) error("worker " .. worker.index .. " failed on request") end,
}

local function work(worker)
  while true do
    local events = worker.n:wait()
    if not events then return end
    local data, host, from = worker.sock:receivefrom()
    if data then
      local command = commands[data]
      worker.sock:sendto(command and command(worker) or "key " .. worker.key .. ": " .. data, host, from)
    end
  end
end

ls.init(function()
  for i = 1, count do
    local sock = assert(ls.socket("udp"))
    assert(sock:bind("127.0.0.1", port == 0 and 0 or port + i - 1))
    workers[i] = { index = i, key = 1, sock = sock, n = assert(ls.notify(sock, "in")) }
    ls.log.info("worker " .. i .. " on " .. sock.local_addr)
  end
  for _, worker in ipairs(workers) do
    ls.spawn(function()
      local ok, message = pcall(work, worker)
      if ok then return end
      ls.log.error(message)
      ls.stop() -- makes the other workers leave
    end)
  end
end)

ls.on("drain", function()
  if workers[1] then pass_on(1) end
end)
