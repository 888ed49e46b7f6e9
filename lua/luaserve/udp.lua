-- udp.lua - ls.udp and ls.udp_connect: checks the arguments and converts them to the names and units of the core.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

local udp = {}

local payload_max = 65507 -- the payload of the largest IPv4 datagram

local limits = {
  max_datagram = { "datagram_bytes_max", "size", 1, payload_max, 2048 }, -- longer datagrams are truncated
  receive_buffer = { "recv_buffer_bytes", "size", 1, 2 ^ 30 - 1 }, -- of the socket in the system
  send_buffer = { "send_buffer_bytes", "size", 1, 2 ^ 30 - 1 }, -- of the socket in the system
  broadcast = { "broadcast", "flag" }, -- allow sending to broadcast addresses
}
local client_only = {
  batch = { "batch", "count", 1, 32, 8 }, -- datagrams that one system call receives
}
local server_only = {
  batch = { "batch", "count", 1, 32, 32 }, -- datagrams that one system call receives
  reuse = { "reuse_port", "flag" }, -- several processes may share the port
  gather = { "gather", "flag", nil, nil, true }, -- wait up to 20 microseconds under load
}
local more = {
  multicast = true, -- string|Multicast - a group, or a table
}
local address = {
  port = true, -- integer|string - 0 picks a free one; required in a single table
  host = true, -- string - an address or "*"; default: the loopback interface, or the first multicast group
  handler = true, -- fun(data: string, peer: Peer, info?: DatagramInfo): Data? - the function, in a single table
}
local multicast_limits = {
  ttl = { "ttl", "count", 1, 255 }, -- hops of what this socket sends
  loop = { "loop", "flag" }, -- sockets of this machine receive what this one sends
}
local function is_interface(value) return type(value) == "string" and #value > 0 and #value <= 63 end

local multicast = {
  group = true, -- string|string[] - up to 16 groups of one family
  -- string - name or address of a network interface
  interface = { "interface", "is", is_interface, 'the name or an address of an interface, such as "eth0"' },
}

udp.calls = {
  ["ls.udp"] = { limits, server_only, more, address }, -- UdpOptions
  ["ls.udp_connect"] = { limits, client_only, more }, -- UdpConnectOptions
  ["ls.udp: multicast"] = { multicast_limits, multicast }, -- Multicast
}

local function is_group(text)
  local first = tonumber(text:match("^(%d+)%.%d+%.%d+%.%d+$"))
  return first and first >= 224 and first <= 239 or text:lower():match("^ff[%x:]+[%%%w]*$") ~= nil
end

-- multicast = "239.1.2.3", or { group = "..." | { ... }, interface =, ttl =, loop = }
local function read_multicast(fname, value, out)
  if type(value) == "string" then value = { group = value } end
  usage.check(value, "table",
    '%s: multicast must be a group such as "239.1.2.3" or { group =, interface =, ttl =, loop = }', fname)
  options.take(fname, value, udp.calls["ls.udp: multicast"], out, "multicast.")
  out.loop_set = value.loop ~= nil
  local groups = value.group
  if type(groups) == "string" then groups = { groups } end
  if groups ~= nil then
    usage.refuse(type(groups) ~= "table" or #groups > 16, groups,
      "%s: multicast.group must be an address or a list of at most 16 addresses", fname)
    for _, group in ipairs(groups) do
      usage.refuse(type(group) ~= "string" or not is_group(group), group,
        '%s: a multicast group must be an address such as "239.1.2.3" or "ff02::1:3"', fname)
    end
    out.groups = groups
  end
end

local function read(fname, given, out)
  options.take(fname, given, udp.calls[fname], out)
  if given.multicast ~= nil then read_multicast(fname, given.multicast, out) end
  return out
end

local listen_forms = 'ls.udp(7000, fn), ls.udp("host:port", fn) or ls.udp({ port = 7000, ... }, fn)'

-- ls.udp(address: integer|string, fn: fun(data: string, peer: Peer, info?: DatagramInfo): Data? [, options: UdpOptions]) ->
-- udp
-- ls.udp(options: UdpOptions [, fn: fun(data: string, peer: Peer, info?: DatagramInfo): Data?]) -> udp
-- Receives datagrams at a port, `"host:port"`, or with all options in a table. The function runs once per datagram, in a
-- task; its result is the reply. Only while the site loads.
function udp.listen(at, handler, given, ...)
  usage.no_more("ls.udp(7000, fn, options)", given, ...)
  given = options.check_beside("ls.udp", at, handler, given, { address })
  local setup = read("ls.udp", given or type(at) == "table" and at or {}, {})
  if type(at) == "number" and setup.groups then
    at = { host = setup.groups[1], port = at }
  elseif type(at) == "table" then
    if at.handler ~= nil then
      if handler ~= nil then usage.error("ls.udp: two functions given, as argument and as handler; give only one") end
      handler = at.handler
    end
    at = { host = at.host or setup.groups and setup.groups[1], port = at.port }
  end
  setup.host, setup.port = options.address("ls.udp", at, true)
  usage.refuse(not setup.host, at, "ls.udp: the first argument must be an address: %s", listen_forms)
  usage.check(handler, "function", "ls.udp: the handler is missing: %s, with fn(data, peer)", listen_forms)
  setup.where = usage.where()
  return usage.call("ls.udp", core.udp, setup, handler)
end

-- ls.udp_connect(host, port: integer|string [, options: UdpConnectOptions]) -> client | nil, message, code
-- ls.udp_connect(at: string [, options: UdpConnectOptions]) -> client | nil, message, code
-- Makes a socket that sends to one peer, an address and a port or `"host:port"`, and receives from it only. Not while
-- the site loads.
function udp.connect(host, port, given, ...)
  usage.check(host, "string", 'ls.udp_connect: host must be an address such as "127.0.0.1" or "::1"')
  usage.no_more("ls.udp_connect(host, port, options)", given, ...)
  local alone, its_port = options.host_port(host)
  if alone and (port == nil or type(port) == "table") and given == nil then host, port, given = alone, its_port, port end
  port = options.port("ls.udp_connect", port, 1)
  usage.check(given, "table?", "ls.udp_connect: options must be a table")
  local setup = read("ls.udp_connect", given or {}, { gather = true })
  if setup.groups then usage.error("ls.udp_connect: multicast.group is an option of ls.udp only") end
  return usage.call("ls.udp_connect", core.udp_connect, host:match("^%[(.*)%]$") or host, port, setup)
end

return udp
