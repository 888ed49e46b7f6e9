-- tcp.lua - ls.tcp and ls.connect: checks the arguments and converts them to the names and units of the core.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

local tcp = {}

local uint32_max = 2 ^ 32 - 1

local limits = { -- of a sock
  read_timeout = { "receive_ms_max", "seconds", 1, uint32_max, 60, none = 0 }, -- seconds of one receive
  send_timeout = { "send_ms_max", "seconds", 1, uint32_max, 60, none = 0 }, -- seconds in which the peer accepts no byte
  write_ahead = { "write_bytes_high", "size", 1, uint32_max, "256k" }, -- send waits while more bytes are queued
  max_queue = { "queue_bytes_max", "size", 1, uint32_max, "1m" }, -- a message of a topic that exceeds it closes the sock
  max_line = { "line_bytes_max", "size", 1, uint32_max, "64k" }, -- longest line
  max_message = { "message_bytes_max", "size", 1, math.maxinteger, "8m" }, -- longest result of receive(n), receive("*a")
  keepalive = { "keepalive_s", "count", 1, 32767, false, none = 0 }, -- idle seconds after which TCP probes the peer
}
local server_only = {
  handler = true, -- fun(sock: Sock) - the function, in a single table
  backlog = { "backlog", "count", 1, 65535 }, -- connections that the system queues; default: that of ls.config
}
local client_only = {
  connect_timeout = { "connect_ms_max", "seconds", 1, uint32_max, 60, none = 0 }, -- seconds for lookup, addresses and TLS
  tls = true, -- boolean|TlsClientOptions - true or options: TLS
}
local client_address = {
  host = true, -- string - a name, an address, "host:port" or "unix:/path"
  port = true, -- integer|string - required without path
  path = true, -- string - file of a Unix socket
}

tcp.calls = {
  ["ls.tcp"] = { limits, server_only, options.addresses, options.beside_address }, -- TcpOptions
  ["ls.connect"] = { limits, client_only, client_address }, -- ConnectOptions
}

local default_limits -- of ls.connect without options

-- defaults() -> the limits of a sock without options, as the core has them.
function tcp.defaults()
  default_limits = default_limits or options.take("ls.connect", {}, tcp.calls["ls.connect"], {})
  return default_limits
end

-- ls.tcp(address: integer|string, fn: fun(sock: Sock) [, options: TcpOptions])
-- ls.tcp(options: TcpOptions [, fn: fun(sock: Sock)])
-- Accepts TCP or Unix connections at a port, `"host:port"`, `"unix:/path"`, or with all options in a table. The function
-- runs once per connection, in a task; the connection closes when it returns. Only while the site loads.
function tcp.listen(at, handler, given, ...)
  usage.no_more("ls.tcp(7000, fn, options)", given, ...)
  given = options.check_beside("ls.tcp", at, handler, given, { options.addresses, { handler = true } })
  if type(at) == "table" then
    given = at
    if at.handler ~= nil then
      if handler ~= nil then usage.error("ls.tcp: two functions given, as argument and as handler; give only one") end
      handler = at.handler
    end
  end
  local out = options.take("ls.tcp", given or {}, tcp.calls["ls.tcp"], {})
  usage.refuse(not options.listener("ls.tcp", given or {}, at, core, out), at,
    'ls.tcp: the first argument must be an address: ls.tcp(7000, fn), ls.tcp("host:port", fn) or '
      .. "ls.tcp({ port = 7000, ... }, fn)")
  usage.check(handler, "function", "ls.tcp: the function is missing: ls.tcp(7000, function(sock) ... end)")
  out.serve = handler
  usage.call("ls.tcp", core.tcp, out)
end

-- client_text("host:port" | "[::1]:port" | "unix:/path") -> host, port. Raises.
local function client_text(text)
  if text:match("^unix:.") then return text, 0 end
  local host, port = options.host_port(text)
  if not host then
    usage.error('ls.connect: %q has no port; write ls.connect("%s", 7000), "host:port", "[::1]:port" or "unix:/path"',
      text, text)
  end
  return host, options.port("ls.connect", port, 1)
end

local connect_form = "ls.connect(host, port, options)"

-- ls.connect(host, port: integer|string [, options: ConnectOptions]) -> sock | nil, message, code
-- ls.connect(at: string [, options: ConnectOptions]) -> sock | nil, message, code
-- ls.connect(options: ConnectOptions) -> sock | nil, message, code
-- Connects by TCP or to a Unix socket: a host and a port, `"host:port"`, `"unix:/path"`, or all options in a table. Waits.
-- Not while the site loads.
function tcp.connect(host, port, opts, ...)
  local limit = tcp.defaults()
  if type(host) == "table" then
    if port ~= nil then usage.error("ls.connect: with a table of options, pass host and port in it") end
    usage.no_more(connect_form, nil, opts, ...)
    opts = host
    host, port = opts.host, opts.port
    if opts.path ~= nil then host = options.unix_path("ls.connect", opts.path, host, port) end
  else
    if port ~= nil and not tonumber(port) and opts == nil then port, opts = nil, port end
    usage.no_more(connect_form, nil, ...)
    if type(opts) == "table" then options.check_no_address("ls.connect", opts, { client_address }) end
  end
  usage.check_waits("ls.connect")
  usage.refuse(type(host) ~= "string" or host == "", host,
    'ls.connect: the first argument must be a host, "host:port" or "unix:/path"')
  if opts ~= nil then
    usage.check(opts, "table", "ls.connect: options must be a table such as { read_timeout = 5 }")
    limit = options.take("ls.connect", opts, tcp.calls["ls.connect"], {})
    if opts.tls ~= nil then limit.tls = require("luaserve.tls").client("ls.connect", opts.tls) end
  end
  if port == nil then
    host, port = client_text(host)
  else
    host, port = host:match("^%[(.*)%]$") or host, options.port("ls.connect", port, 1)
  end
  return core.connect(host, port, limit)
end

return tcp
