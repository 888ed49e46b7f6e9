-- proxy.lua - a TCP proxy: forwards data in both directions.
--
--   luaserve examples/proxy.lua 7003 127.0.0.1:7000
--                               port target
--
-- A received block is sent without a copy. When one side ends its half, the proxy forwards the end, and the response
-- still comes back. When one side reads slowly, the proxy stops reading the other. The target may be a name, an
-- address, or "unix:/path".

local ls = require "luaserve"

local address, target = ...
if not address or not target then
  io.stderr:write("usage: luaserve ", arg[0], " PORT|HOST:PORT TARGET:PORT\n")
  os.exit(1)
end

local limits = { read_timeout = false }

-- Forwards until `from` ends. It forwards a normal end; an error of either side closes both directions.
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
  local responses = ls.spawn(pump, server, client)
  pump(client, server)
  responses:wait()
  server:close()
end)
