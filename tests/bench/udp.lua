-- udp.lua: the UDP echo that scripts/bench measures.   luaserve udp.lua PORT
local ls = require "luaserve"

local port = assert(tonumber((...)), "usage: luaserve udp.lua PORT")

ls.udp({ port = port, batch = 32 }, function(data) return data end)
