-- udp.lua - ls.udp and ls.udp_connect: their options, checked; the rest is the core's.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
usage.ours()

local udp = {}

local payload_max = 65507 -- bytes that fit into one IPv4 datagram

local function whole(who, name, value, least, most)
  local number = type(value) == "number" and math.tointeger(value)
  if not number or number < least or number > most then
    usage.raise("%s: %s must be a whole number from %d to %d; got %s", who, name, least, most, usage.show(value))
  end
  return number
end

local function size(who, name, value, least, most)
  local bytes = options.bytes(value)
  if not bytes then
    usage.raise('%s: %s must be a number of bytes, or a text such as "64k"; got %s', who, name, usage.show(value))
  elseif bytes < least or bytes > most then
    usage.raise("%s: %s must be from %d to %d bytes; got %s", who, name, least, most, usage.show(value))
  end
  return bytes
end

local function flag(who, name, value)
  if type(value) ~= "boolean" then usage.raise("%s: %s is true or false; got %s", who, name, usage.show(value)) end
  return value
end

-- What a socket can be told, by option: how it is read into the core's names.
local readers = {
  batch = function(who, value, out) out.batch = whole(who, "batch", value, 1, 32) end,
  max_datagram = function(who, value, out)
    out.datagram_bytes_max = size(who, "max_datagram", value, 1, payload_max)
  end,
  receive_buffer = function(who, value, out)
    out.recv_buffer_bytes = size(who, "receive_buffer", value, 1, 2 ^ 30 - 1)
  end,
  send_buffer = function(who, value, out) out.send_buffer_bytes = size(who, "send_buffer", value, 1, 2 ^ 30 - 1) end,
  reuse = function(who, value, out) out.reuse_port = flag(who, "reuse", value) end,
  gather = function(who, value, out) out.gather = flag(who, "gather", value) end,
  broadcast = function(who, value, out) out.broadcast = flag(who, "broadcast", value) end,
}

local multicast_known = { group = true, interface = true, ttl = true, loop = true }

local function is_group(text)
  local first = tonumber(text:match("^(%d+)%.%d+%.%d+%.%d+$"))
  return first and first >= 224 and first <= 239 or text:lower():match("^ff[%x:]+[%%%w]*$") ~= nil
end

-- multicast = "239.1.2.3", or { group = "..." | { ... }, interface =, ttl =, loop = }
function readers.multicast(who, value, out)
  if type(value) == "string" then value = { group = value } end
  if type(value) ~= "table" then
    usage.raise('%s: multicast is a group such as "239.1.2.3", or { group =, interface =, ttl =, loop = }; got %s', who,
      usage.show(value))
  end
  options.check_names(who .. ": multicast", value, multicast_known)
  local groups = value.group
  if type(groups) == "string" then groups = { groups } end
  if groups ~= nil then
    if type(groups) ~= "table" or #groups > 16 then
      usage.raise("%s: multicast.group is an address or a list of 16 at most; got %s", who, usage.show(groups))
    end
    for _, group in ipairs(groups) do
      if type(group) ~= "string" or not is_group(group) then
        usage.raise('%s: a multicast group is an address such as "239.1.2.3" or "ff02::1:3"; got %s', who,
          usage.show(group))
      end
    end
    out.groups = groups
  end
  if value.interface ~= nil then
    if type(value.interface) ~= "string" or #value.interface == 0 or #value.interface > 63 then
      usage.raise('%s: multicast.interface is a name such as "eth0" or an address of it; got %s', who,
        usage.show(value.interface))
    end
    out.interface = value.interface
  end
  if value.ttl ~= nil then out.ttl = whole(who, "multicast.ttl", value.ttl, 1, 255) end
  if value.loop ~= nil then out.loop = flag(who, "multicast.loop", value.loop) end
end

local connect_known = { batch = true, max_datagram = true, receive_buffer = true, send_buffer = true,
  broadcast = true, multicast = true }
local listen_known = { host = true, port = true, handler = true }
for name in pairs(readers) do listen_known[name] = true end

local function read(who, given, known)
  options.check_names(who, given, known)
  local out = {}
  for name, reader in pairs(readers) do
    if given[name] ~= nil then reader(who, given[name], out) end
  end
  return out
end

local says = 'ls.udp(7000, fn), ls.udp("host:port", fn) or ls.udp({ port = 7000, ... }, fn)'

-- ls.udp(port | "host:port" | { port =, host =, batch =, max_datagram =, ... }, fn) -> sock. fn(data, peer [, info]) runs
-- for each datagram; a string or buffer that it returns is the reply. Without a host it is the loopback, "*" is everyone;
-- with a multicast group and no host it is what is sent to the group. Raises on unknown options, wrong types and after
-- loading.
function udp.listen(at, handler)
  local setup = {}
  if type(at) == "table" then
    setup = read("ls.udp", at, listen_known)
    if handler == nil then handler = at.handler end
    at = { host = at.host or setup.groups and setup.groups[1], port = at.port }
  end
  setup.host, setup.port = options.address("ls.udp", at, true)
  if not setup.host then
    usage.raise("ls.udp: the first argument says where to receive: %s; got %s", says, usage.show(at))
  end
  if type(handler) ~= "function" then
    usage.raise("ls.udp: the handler is missing: %s, with fn(data, peer); got %s", says, usage.show(handler))
  end
  setup.where = (usage.where() or "?"):sub(1, 79)
  local ok, sock = pcall(core.udp, setup, handler)
  if not ok then usage.raise("ls.udp: %s", tostring(sock)) end
  return sock
end

-- ls.udp_connect(host, port [, opts]) -> sock | nil, message, code. A socket that sends to and hears one peer. Raises on
-- wrong types, and while the site loads.
function udp.connect(host, port, given)
  if type(host) ~= "string" then
    usage.raise('ls.udp_connect: host is an address such as "127.0.0.1" or "::1"; got %s', usage.show(host))
  end
  port = options.port("ls.udp_connect", port, 1)
  local setup
  if given ~= nil then
    if type(given) ~= "table" then
      usage.raise("ls.udp_connect: options are a table; got %s", usage.show(given))
    end
    setup = read("ls.udp_connect", given, connect_known)
    if setup.groups then usage.raise("ls.udp_connect: a group is joined by the socket that receives: ls.udp") end
    setup.batch = setup.batch or 8
  end
  local ok, sock, message, code = pcall(core.udp_connect, host:match("^%[(.*)%]$") or host, port, setup)
  if not ok then usage.raise("ls.udp_connect: %s", tostring(sock)) end
  return sock, message, code
end

return udp
