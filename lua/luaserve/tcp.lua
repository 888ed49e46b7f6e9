-- tcp.lua - ls.tcp and ls.connect: checks the arguments and converts them to the names and units of the core.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
local tls = require "luaserve.tls" -- sock:starttls needs it loaded
usage.mark_internal()

local tcp = {}

local uint32_max = 2 ^ 32 - 1

-- As in options.lua: { name in the core, kind, minimum, maximum, none = the core's value for `false` }
local limits = {
  read_timeout = { "receive_ms_max", "seconds", 1, uint32_max, none = 0 },
  send_timeout = { "send_ms_max", "seconds", 1, uint32_max, none = 0 },
  write_ahead = { "write_bytes_high", "size", 1, uint32_max },
  max_queue = { "queue_bytes_max", "size", 1, uint32_max },
  max_line = { "line_bytes_max", "size", 1, uint32_max },
  max_message = { "message_bytes_max", "size", 1, math.maxinteger },
  keepalive = { "keepalive_s", "count", 1, 32767, none = 0 },
}
local server_only = { backlog = { "backlog", "count", 1, 65535 } }
local client_only = { connect_timeout = { "connect_ms_max", "seconds", 1, uint32_max, none = 0 } }

local server_address = { host = true, port = true, path = true, serve = true }
local server_known = options.merged(limits, server_only, server_address, options.beside_address)
local client_address = { host = true, port = true, path = true }
local client_known = options.merged(limits, client_only, client_address, { tls = true })

-- The tables of options, for the tests.
tcp.known = { ["ls.tcp"] = server_known, ["ls.connect"] = client_known }
tcp.specs = { ["ls.tcp"] = options.merged(limits, server_only, options.handshake),
  ["ls.connect"] = options.merged(limits, client_only) }

-- ls.tcp(port | "host:port" | "unix:/path", fn [, options]), or ls.tcp({ port =, host =, path =, read_timeout =, ... },
-- fn): a TCP server. fn(sock) runs in a new coroutine for each connection; when it returns the sock is closed. Raises on
-- unknown options, on wrong types and after loading.
function tcp.listen(at, serve, given, ...)
  local out = { tcp = {}, where = usage.caller() or "?" }
  usage.no_more("ls.tcp(7000, fn, options)", given, ...)
  given = options.check_beside("ls.tcp", at, serve, given, server_address)
  if type(at) == "table" then
    given = at
    if at.serve ~= nil then
      if serve ~= nil then usage.error("ls.tcp: two functions given, as argument and as serve; give only one") end
      serve = at.serve
    end
  end
  if given then
    options.check_names("ls.tcp", given, server_known)
    options.read_all("ls.tcp", given, limits, out.tcp)
    options.read_all("ls.tcp", given, server_only, out)
  end
  out.host, out.port = options.address("ls.tcp", at)
  if not out.host then
    usage.error('ls.tcp: the first argument must be an address: ls.tcp(7000, fn), ls.tcp("host:port", fn) or '
      .. "ls.tcp({ port = 7000, ... }, fn); got %s", usage.quote(at))
  end
  options.path_access("ls.tcp", given or {}, out.host, core, out)
  options.security("ls.tcp", given or {}, core, out)
  if type(serve) ~= "function" then
    usage.error("ls.tcp: the function is missing: ls.tcp(7000, function(sock) ... end); got %s", usage.quote(serve))
  end
  out.serve = serve
  local ok, err = pcall(core.tcp, out)
  if not ok then usage.error("ls.tcp: %s", tostring(err)) end
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

local no_limits = {}
local connect_form = "ls.connect(host, port, options)"

-- ls.connect(host, port [, opts]), ls.connect("host:port" [, opts]), ls.connect("unix:/path" [, opts]), ls.connect{
-- host =, port =, path =, ... } -> sock | nil, message, code. Waits. Raises on wrong types, on unknown options and
-- where it cannot wait.
function tcp.connect(host, port, opts, ...)
  local limit = no_limits
  if not core.can_wait() then
    usage.error("ls.connect: cannot wait while the site loads or inside a C function; call it in a handler, in "
      .. "ls.once or in ls.spawn")
  end
  if type(host) == "table" then
    if port ~= nil then usage.error("ls.connect: with a table of options, pass host and port in it") end
    usage.no_more(connect_form, nil, opts, ...)
    opts = host
    host, port = opts.host, opts.port
    if opts.path ~= nil then host = options.unix_path("ls.connect", opts.path, host, port) end
  else
    if port ~= nil and not tonumber(port) and opts == nil then port, opts = nil, port end
    usage.no_more(connect_form, nil, ...)
    if type(opts) == "table" then options.check_no_address("ls.connect", opts, client_address) end
  end
  if type(host) ~= "string" or host == "" then
    usage.error('ls.connect: the first argument must be a host, "host:port" or "unix:/path"; got %s',
      usage.quote(host))
  end
  if opts ~= nil then
    if type(opts) ~= "table" then
      usage.error("ls.connect: options must be a table such as { read_timeout = 5 }; got %s", usage.quote(opts))
    end
    options.check_names("ls.connect", opts, client_known)
    limit = options.read_all("ls.connect", opts, client_only, options.read_all("ls.connect", opts, limits, {}))
    if opts.tls ~= nil then limit.tls = tls.client("ls.connect", opts.tls) end
  end
  if port == nil then
    host, port = client_text(host)
  else
    host, port = host:match("^%[(.*)%]$") or host, options.port("ls.connect", port, 1)
  end
  return core.connect(host, port, limit)
end

return tcp
