-- site.lua - serves the protocol of protocol.lua: luaserve site.lua [PORT]

local ls = require "luaserve"
local protocol = require "protocol"

ls.tcp({ port = (...) or 7000, read_timeout = 300, max_line = protocol.LINE_BYTES_MAX }, function(sock)
  for line in sock:lines() do
    local answer, ends = protocol.answer(line)
    if not sock:send(answer, "\n") or ends then return end
  end
  if sock.ended == "EMSGSIZE" then sock:send("ERROR the line is too long\n") end
end)
