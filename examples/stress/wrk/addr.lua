-- addr.lua - each thread sends to another address of the host name, of those that accept connections.
-- luacheck: std luajit, no unused args, globals wrk setup init
local addrs
local turn = 0

function setup(thread)
  if not addrs then
    addrs = wrk.lookup(wrk.host, wrk.port or "http")
    for i = #addrs, 1, -1 do
      if not wrk.connect(addrs[i]) then table.remove(addrs, i) end
    end
  end
  turn = turn % table.getn(addrs) + 1
  thread.addr = addrs[turn]
end

function init(args)
  print("target " .. tostring(wrk.thread.addr))
end
