-- tcp.lua: the TCP echo that scripts/bench measures.   luaserve tcp.lua PORT
local ls = require "luaserve"

local port = assert(tonumber((...)), "usage: luaserve tcp.lua PORT")

ls.tcp(port, function(sock)
  for data in sock:chunks() do sock:send(data) end
end)
