-- forwarded.lua - the client of a request behind trusted proxies, from Forwarded (RFC 7239) or X-Forwarded-For, -Proto
-- and -Host.
--
-- Each proxy adds the address of its client at the right. So the walk begins there, passes over trusted proxies, and ends
-- at the first other address, which is that of the client: what stands left of it was written by the client.

local trim = require("luaserve.text").trim

local format = string.format

local forwarded = {}

local schemes = { http = "http", https = "https", ws = "http", wss = "https" }

-- "192.0.2.1", "192.0.2.1:80", "2001:db8::1", "[2001:db8::1]:80" -> the address, its port; nil for another text.
local function split(text)
  local ip, port = text:match("^%[(%x*:[%x:.]*)%]:?(%d*)$")
  if not ip then ip, port = text:match("^([%d.]+):?(%d*)$") end
  if not ip then ip, port = text:match("^%x*:[%x:.]*$"), "" end
  port = ip and math.tointeger(tonumber(port))
  return ip, port and port <= 65535 and port or nil
end

-- Walk over the hops, a list of { ip text }, to the client: { at = its index, ip, port or false }. A proxy hides a client
-- that it does not name by an address: "unknown".
local function client(hops, hop)
  for i = #hops, 1, -1 do
    local text, port = split(hops[i])
    local ip, trusted
    if text then ip, trusted = hop(text) end
    if not trusted or i == 1 then return { at = i, ip = ip or "unknown", port = ip and port or false } end
  end
end

local function list(text)
  local items = {}
  for item in ((text or "") .. ","):gmatch("([^,]*),") do items[#items + 1] = trim(item) end
  return items
end

local function host_of(text)
  return text and (text:match("^[%w._-]+:?%d*$") or text:match("^%[[%x:.]+%]:?%d*$"))
end

local function scheme_of(text) return text and schemes[text:lower()] end

-- The elements of Forwarded, each a table of its parameters; nil: the field is malformed.
local function elements(text)
  local items, at = { {} }, 1
  while true do
    local name, from = text:match("^[ \t]*([%w!#$%%&'*+.^_`|~-]+)=()", at)
    if name then
      local value, to = text:match("^([%w!#$%%&'*+.^_`|~:%[%]-]+)()", from) -- also an address without quotation marks
      if not value then
        value, to = text:match('^"([^"\\]*)"()', from) -- no value that counts has a backslash
        if not value then return nil end
      end
      name = name:lower()
      if items[#items][name] then return nil end
      items[#items][name], at = value, to
    end
    local separator, to = text:match("^[ \t]*([;,])()", at)
    if separator == "," then items[#items + 1] = {} end
    if not separator then return text:find("^[ \t]*$", at) and items end
    at = to
  end
end

-- nil: the field is malformed.
local function standard(text, hop)
  local items = elements(text)
  if not items then return nil end
  local hops, named = {}, false
  for i, item in ipairs(items) do
    hops[i] = item["for"] or ""
    named = named or item["for"] ~= nil
  end
  local found = named and client(hops, hop) or {}
  local item = items[found.at or #items]
  found.scheme, found.host = scheme_of(item.proto), host_of(item.host)
  return found
end

-- Of several schemes and hosts the one beside the client counts if each proxy has added one, else the last.
local function customary(addresses, protos, hosts, hop)
  local hops = list(addresses)
  local found = addresses and client(hops, hop) or {}
  local function beside(text)
    local items = list(text)
    return text and items[found.at and #items == #hops and found.at or #items]
  end
  found.scheme, found.host = scheme_of(beside(protos)), host_of(beside(hosts))
  return found
end

-- What both kinds of fields tell, or why the request is refused.
local function both(one, other)
  if one.ip and other.ip and one.ip ~= other.ip then
    return { ip = "unknown" },
      "X-Forwarded-For and Forwarded name different clients: the proxy must remove the one that it does not write"
  end
  return {
    ip = one.ip or other.ip,
    port = one.port == other.port and one.port,
    scheme = one.scheme == other.scheme and one.scheme or (one.scheme or other.scheme) and "http",
    host = one.host == other.host and one.host or nil,
  }
end

-- read(hop, forwarded, for, proto, host) -> { ip, port, remote, scheme, host, refused }. The fields are texts or nil; ip
-- is "unknown" of a client that its proxy hides, and port an integer, or false if it is not known. refused: why the request
-- must be. hop(text) -> the address in its usual form, whether it is trusted | nil.
--
-- A proxy that writes one kind of field passes the other kind on from the client. So of a request with both only what is
-- equal counts, and one that names two clients, or hides one in a malformed field, is refused: another address, also that
-- of the proxy, could be one that a site trusts.
function forwarded.read(hop, text, addresses, protos, hosts)
  local given, refused = customary(addresses, protos, hosts, hop), nil
  if text then
    local one = standard(text, hop)
    if not one then
      given, refused = { ip = "unknown" }, "malformed Forwarded"
    elseif addresses or protos or hosts then
      given, refused = both(one, given)
    else
      given = one
    end
  end
  local ip, port = given.ip, given.port
  local remote = ip
  if ip and port then remote = format(ip:find(":", 1, true) and "[%s]:%d" or "%s:%d", ip, port) end
  return { ip = ip, port = ip and (port or false), remote = remote, scheme = given.scheme, host = given.host, refused = refused }
end

return forwarded
