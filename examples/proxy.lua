-- proxy.lua - a TCP proxy: what comes from either side goes to the other.
--
--   luaserve examples/proxy.lua 7003 127.0.0.1:7000
--                               port target
--
-- A block that was received is sent from where it lies. When one side ends its half, the other side sees that end, and
-- the answer still comes back; when one side is slow to read, no more is read from the other than fits between. The
-- target may be a name, an address, or "unix:/path".

local ls = require "luaserve"

local address, target = ...
if not address or not target then
  io.stderr:write("usage: luaserve ", arg[0], " PORT|HOST:PORT TARGET:PORT\n")
  os.exit(1)
end

local limits = { read_timeout = false }

-- Until `from` ends. A plain end is passed on; a failure (of either side) ends both directions.
local function pump(from, to)
  for data in from:chunks() do
    if not to:send(data) then break end
  end
  if from.ended ~= "ECLOSED" or not to:shutdown("send") then
    from:close()
    to:close()
  end
end

local host, port = address:match("^(.*):(%d+)$")
ls.tcp({ host = host, port = tonumber(port or address), read_timeout = false }, function(client)
  local server, err = ls.connect(target, limits)
  if not server then
    ls.log.warn("proxy: " .. target .. ": " .. err)
    return
  end
  local answers = ls.spawn(pump, server, client)
  pump(client, server)
  answers:wait()
  server:close()
end)
