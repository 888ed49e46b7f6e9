-- s5_exit.lua - an orderly exit: each worker that leaves tells the next, one that fails tells all, and what a registration
-- needs is given up in the right order.
--
--   luaserve examples/s5_exit.lua 7005 4     4 workers on ports 7005 to 7008, until SIGTERM
--
-- A worker is a task with a UDP socket of its own. It answers datagrams; "rekey" has it change what its registration
-- stands for: remove, wait until that is done, register again. "fail" has it fail. The server's own threads leave in
-- the same manner when it stops: one packet that each passes on to the next.
--
-- The workers share one Lua state, because to leave in turn they have to see each other, and states share nothing.
-- c/s5_exit.c is the program whose workers are threads.

local ls = require "luaserve"
local port, count = ...
port, count = tonumber(port) or 7005, tonumber(count) or 4

local workers = {}

local function leave(worker)
  if worker.n then worker.n:remove() end -- wakes its task, and returns when nothing more can come
  worker.sock:close()
  ls.log.info("worker " .. worker.index .. " has left")
end

-- The shutdown: the first worker leaves and wakes the next.
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
  fail = function(worker) error("worker " .. worker.index .. " was told to fail") end,
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

ls.once(function()
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
      ls.stop() -- the others are told to leave
    end)
  end
end)

ls.on("drain", function()
  if workers[1] then pass_on(1) end
end)
