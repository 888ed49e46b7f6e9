-- udp.lua - ls.udp and ls.udp_connect: checks the arguments and converts them to the names and units of the core.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
usage.mark_internal()

local udp = {}

local payload_max = 65507 -- the payload of the largest IPv4 datagram

-- As in options.lua: { name in the core, kind, minimum, maximum }
local limits = {
  batch = { "batch", "count", 1, 32 },
  max_datagram = { "datagram_bytes_max", "size", 1, payload_max },
  receive_buffer = { "recv_buffer_bytes", "size", 1, 2 ^ 30 - 1 },
  send_buffer = { "send_buffer_bytes", "size", 1, 2 ^ 30 - 1 },
  broadcast = { "broadcast", "flag" },
}
local server_only = { reuse = { "reuse_port", "flag" }, gather = { "gather", "flag" } }
local multicast_limits = { ttl = { "ttl", "count", 1, 255 }, loop = { "loop", "flag" } }

local multicast_known = options.merged(multicast_limits, { group = true, interface = true })

local function is_group(text)
  local first = tonumber(text:match("^(%d+)%.%d+%.%d+%.%d+$"))
  return first and first >= 224 and first <= 239 or text:lower():match("^ff[%x:]+[%%%w]*$") ~= nil
end

-- multicast = "239.1.2.3", or { group = "..." | { ... }, interface =, ttl =, loop = }
local function read_multicast(fname, value, out)
  if type(value) == "string" then value = { group = value } end
  if type(value) ~= "table" then
    usage.error('%s: multicast must be a group such as "239.1.2.3" or { group =, interface =, ttl =, loop = }; got %s',
      fname, usage.quote(value))
  end
  options.check_names(fname .. ": multicast", value, multicast_known)
  local groups = value.group
  if type(groups) == "string" then groups = { groups } end
  if groups ~= nil then
    if type(groups) ~= "table" or #groups > 16 then
      usage.error("%s: multicast.group must be an address or a list of at most 16 addresses; got %s", fname,
        usage.quote(groups))
    end
    for _, group in ipairs(groups) do
      if type(group) ~= "string" or not is_group(group) then
        usage.error('%s: a multicast group must be an address such as "239.1.2.3" or "ff02::1:3"; got %s', fname,
          usage.quote(group))
      end
    end
    out.groups = groups
  end
  if value.interface ~= nil then
    if type(value.interface) ~= "string" or #value.interface == 0 or #value.interface > 63 then
      usage.error('%s: multicast.interface must be the name or an address of an interface, such as "eth0"; got %s',
        fname, usage.quote(value.interface))
    end
    out.interface = value.interface
  end
  options.read_all(fname, value, multicast_limits, out, "multicast.")
end

local connect_known = options.merged(limits, { multicast = true })
local listen_address = { host = true, port = true, handler = true }
local listen_known = options.merged(connect_known, server_only, listen_address)

-- The tables of options, for the tests.
udp.known = { ["ls.udp"] = listen_known, ["ls.udp_connect"] = connect_known, ["ls.udp: multicast"] = multicast_known }
udp.specs = { ["ls.udp"] = options.merged(limits, server_only), ["ls.udp_connect"] = limits,
  ["ls.udp: multicast"] = multicast_limits }

local function read(fname, given, known)
  options.check_names(fname, given, known)
  local out = options.read_all(fname, given, limits, {})
  options.read_all(fname, given, server_only, out)
  if given.multicast ~= nil then read_multicast(fname, given.multicast, out) end
  return out
end

local listen_forms = 'ls.udp(7000, fn), ls.udp("host:port", fn) or ls.udp({ port = 7000, ... }, fn)'

-- ls.udp(port | "host:port", fn [, options]) -> sock, or ls.udp({ port =, host =, batch =, ... }, fn). fn(data, peer
-- [, info])
-- runs for each datagram; a string or buffer that it returns is the reply. The default host is the loopback interface,
-- or the first multicast group; "*" means all interfaces. Raises on unknown options, on wrong types and after loading.
function udp.listen(at, handler, given, ...)
  local setup = {}
  usage.no_more("ls.udp(7000, fn, options)", given, ...)
  given = options.check_beside("ls.udp", at, handler, given, listen_address)
  if given then
    setup = read("ls.udp", given, listen_known)
    if type(at) == "number" and setup.groups then at = { host = setup.groups[1], port = at } end
  elseif type(at) == "table" then
    setup = read("ls.udp", at, listen_known)
    if handler == nil then handler = at.handler end
    at = { host = at.host or setup.groups and setup.groups[1], port = at.port }
  end
  setup.host, setup.port = options.address("ls.udp", at, true)
  if not setup.host then
    usage.error("ls.udp: the first argument must be an address: %s; got %s", listen_forms, usage.quote(at))
  end
  if type(handler) ~= "function" then
    usage.error("ls.udp: the handler is missing: %s, with fn(data, peer); got %s", listen_forms, usage.quote(handler))
  end
  setup.where = (usage.caller() or "?"):sub(1, 79)
  local ok, sock = pcall(core.udp, setup, handler)
  if not ok then usage.error("ls.udp: %s", tostring(sock)) end
  return sock
end

-- ls.udp_connect(host, port [, opts]) -> sock | nil, message, code. A socket that sends to one peer and receives from
-- it only. Raises on unknown options, on wrong types and while the site loads.
function udp.connect(host, port, given)
  if type(host) ~= "string" then
    usage.error('ls.udp_connect: host must be an address such as "127.0.0.1" or "::1"; got %s', usage.quote(host))
  end
  port = options.port("ls.udp_connect", port, 1)
  local setup
  if given ~= nil then
    if type(given) ~= "table" then
      usage.error("ls.udp_connect: options must be a table; got %s", usage.quote(given))
    end
    setup = read("ls.udp_connect", given, connect_known)
    if setup.groups then usage.error("ls.udp_connect: multicast.group is an option of ls.udp only") end
    setup.batch = setup.batch or 8
  end
  local ok, sock, message, code = pcall(core.udp_connect, host:match("^%[(.*)%]$") or host, port, setup)
  if not ok then usage.error("ls.udp_connect: %s", tostring(sock)) end
  return sock, message, code
end

return udp
