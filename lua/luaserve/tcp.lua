-- tcp.lua - what ls.tcp and ls.connect are given, checked and put into the core's names and units.

local core = require "luaserve.core"
local misuse = require "luaserve.misuse"
local options = require "luaserve.options"
misuse.ours()

local tcp = {}

local uint32_max = 2 ^ 32 - 1

-- As in options.lua: { the core's name, kind, smallest, largest }; `none`: what `false` means.
local limits = {
  read_timeout = { "receive_ms_max", "seconds", 1, uint32_max, none = 0 },
  send_timeout = { "send_ms_max", "seconds", 1, uint32_max, none = 0 },
  write_ahead = { "write_bytes_high", "size", 1, uint32_max },
  max_line = { "line_bytes_max", "size", 1, uint32_max },
  max_message = { "message_bytes_max", "size", 1, math.maxinteger },
  keepalive = { "keepalive_s", "count", 1, 32767, none = 0 },
}
local server_only = { backlog = { "backlog", "count", 1, 65535 } }
local client_only = { connect_timeout = { "connect_ms_max", "seconds", 1, uint32_max, none = 0 } }

local server_known = options.merged(limits, server_only, { host = true, port = true, path = true, serve = true })
local client_known = options.merged(limits, client_only, { host = true, port = true, path = true })

-- ls.tcp(port | "host:port" | "unix:/path" | { port =, host =, path =, read_timeout =, ... }, fn): a server whose
-- connections are each served by fn(sock) in a coroutine of its own; afterwards the sock is closed. Raises on unknown
-- options, wrong types and after loading.
function tcp.listen(at, serve)
  local out = { tcp = {}, where = misuse.where() or "?" }
  if type(at) == "table" then
    options.check_names("ls.tcp", at, server_known)
    if at.serve ~= nil then
      if serve ~= nil then misuse.raise("ls.tcp: the function is there twice, as an argument and as serve") end
      serve = at.serve
    end
    options.read_all("ls.tcp", at, limits, out.tcp)
    options.read_all("ls.tcp", at, server_only, out)
  end
  out.host, out.port = options.address("ls.tcp", at)
  if not out.host then
    misuse.raise('ls.tcp: the first argument says where to listen: ls.tcp(7000, fn), ls.tcp("host:port", fn) or '
      .. "ls.tcp({ port = 7000, ... }, fn); got %s", misuse.show(at))
  end
  if type(serve) ~= "function" then
    misuse.raise("ls.tcp: the function is missing: ls.tcp(7000, function(sock) ... end); got %s", misuse.show(serve))
  end
  out.serve = serve
  local ok, err = pcall(core.tcp, out)
  if not ok then misuse.raise("ls.tcp: %s", tostring(err)) end
end

return tcp
