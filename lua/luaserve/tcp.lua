-- tcp.lua - what ls.tcp and ls.connect are given, checked and put into the core's names and units.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
usage.ours()

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
  local out = { tcp = {}, where = usage.where() or "?" }
  if type(at) == "table" then
    options.check_names("ls.tcp", at, server_known)
    if at.serve ~= nil then
      if serve ~= nil then usage.raise("ls.tcp: the function is there twice, as an argument and as serve") end
      serve = at.serve
    end
    options.read_all("ls.tcp", at, limits, out.tcp)
    options.read_all("ls.tcp", at, server_only, out)
  end
  out.host, out.port = options.address("ls.tcp", at)
  if not out.host then
    usage.raise('ls.tcp: the first argument says where to listen: ls.tcp(7000, fn), ls.tcp("host:port", fn) or '
      .. "ls.tcp({ port = 7000, ... }, fn); got %s", usage.show(at))
  end
  if type(serve) ~= "function" then
    usage.raise("ls.tcp: the function is missing: ls.tcp(7000, function(sock) ... end); got %s", usage.show(serve))
  end
  out.serve = serve
  local ok, err = pcall(core.tcp, out)
  if not ok then usage.raise("ls.tcp: %s", tostring(err)) end
end

-- host, port of "host:port", "[::1]:port", "unix:/path". Raises.
local function client_text(text)
  if text:match("^unix:.") then return text, 0 end
  local host, port = options.host_port(text)
  if not host then
    usage.raise('ls.connect: %q names no port; write ls.connect("%s", 7000), "host:port", "[::1]:port" or "unix:/path"',
      text, text)
  end
  return host, options.port("ls.connect", port, 1)
end

local none = {}

-- ls.connect(host, port [, opts]), ls.connect("host:port" [, opts]), ls.connect("unix:/path" [, opts]),
-- ls.connect{ host =, port =, path =, ... } -> sock | nil, message, code. Waits. Raises on wrong types and unknown
-- options.
function tcp.connect(host, port, opts)
  local limit = none
  if not core.can_wait() then
    usage.raise("ls.connect: cannot wait while the site loads, nor inside a function written in C: call it in a handler, "
      .. "in ls.once, or with ls.spawn")
  end
  if type(host) == "table" then
    if port ~= nil then usage.raise("ls.connect: with a table, everything goes into it") end
    opts = host
    host, port = opts.host or opts.path and "unix:" .. tostring(opts.path), opts.port
  elseif port ~= nil and type(port) ~= "number" and opts == nil then
    port, opts = nil, port
  end
  if type(host) ~= "string" or host == "" then
    usage.raise('ls.connect: the first argument is a host, "host:port" or "unix:/path"; got %s', usage.show(host))
  end
  if opts ~= nil then
    if type(opts) ~= "table" then
      usage.raise("ls.connect: the options are a table: { read_timeout = 5 }; got %s", usage.show(opts))
    end
    options.check_names("ls.connect", opts, client_known)
    limit = options.read_all("ls.connect", opts, client_only, options.read_all("ls.connect", opts, limits, {}))
  end
  if port == nil then
    host, port = client_text(host)
  else
    host, port = host:match("^%[(.*)%]$") or host, options.port("ls.connect", port, 1)
  end
  return core.connect(host, port, limit)
end

return tcp
