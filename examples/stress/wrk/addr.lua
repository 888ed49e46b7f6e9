-- addr.lua - every thread asks another of the addresses behind the name, of those that take connections.
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
  print("asking " .. tostring(wrk.thread.addr))
end
