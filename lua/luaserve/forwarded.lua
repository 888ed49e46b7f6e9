-- forwarded.lua - the client of a request behind trusted proxies, from Forwarded (RFC 7239) or X-Forwarded-For, -Proto
-- and -Host.
--
-- Each proxy adds the address of its client at the right. So the walk begins there, passes over trusted proxies, and ends
-- at the first other address, which is that of the client: what stands left of it was written by the client.

local trim = require("luaserve.text").trim

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

-- Walk over the hops, a list of { ip text }: the index of the client's, with its address; nil: the last one is invalid.
local function client(hops, hop)
  local result
  for i = #hops, 1, -1 do
    local text, port = split(hops[i])
    local ip, trusted
    if text then ip, trusted = hop(text) end
    if not ip then break end -- such as "unknown": the proxy that says so is the nearest that is known
    result = { at = i, ip = ip, port = port or false }
    if not trusted then break end
  end
  return result
end

local function list(text)
  local items = {}
  for item in ((text or "") .. ","):gmatch("([^,]*),") do items[#items + 1] = trim(item) end
  return items
end

local function host_of(text) return text and text:match("^[%w._:%[%]-]+$") end

local function scheme_of(text) return text and schemes[text:lower()] end

-- The elements of Forwarded, each a table of its parameters; nil: the field is malformed.
local function elements(text)
  local items, at = { {} }, 1
  while true do
    local name, from = text:match("^[ \t]*([%w!#$%%&'*+.^_`|~-]+)=()", at)
    if name then
      local value, to = text:match("^([%w!#$%%&'*+.^_`|~-]+)()", from)
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

local function standard(text, hop)
  local items = elements(text)
  if not items then return {} end
  local hops = {}
  for i, item in ipairs(items) do hops[i] = item["for"] or "" end
  local found = client(hops, hop)
  local item = items[found and found.at or #items]
  found = found or {}
  found.scheme, found.host = scheme_of(item.proto), host_of(item.host)
  return found
end

-- Of several schemes and hosts the one beside the client counts if each proxy has added one, else the last.
local function customary(addresses, protos, hosts, hop)
  local hops = list(addresses)
  local found = addresses and client(hops, hop)
  local function beside(text)
    local items = list(text)
    return text and items[found and #items == #hops and found.at or #items]
  end
  local result = found or {}
  result.scheme, result.host = scheme_of(beside(protos)), host_of(beside(hosts))
  return result
end

-- read(hop, forwarded, for, proto, host) -> { ip, port, remote, scheme, host }. The fields are texts or nil, port an
-- integer, or false if it is not known. hop(text) -> the address in its usual form, whether it is trusted | nil.
--
-- A proxy that writes one kind of field passes the other kind on from the client. So of a request with both only what is
-- equal counts.
function forwarded.read(hop, text, addresses, protos, hosts)
  local given
  if not text then
    given = customary(addresses, protos, hosts, hop)
  else
    given = standard(text, hop)
    if addresses or protos or hosts then
      local other = customary(addresses, protos, hosts, hop)
      if other.ip ~= given.ip then given.ip = nil end
      if other.port ~= given.port then given.port = false end
      if other.scheme ~= given.scheme then given.scheme = nil end
      if other.host ~= given.host then given.host = nil end
    end
  end
  local ip, port = given.ip, given.port
  local remote = ip
  if ip and port then remote = (ip:find(":", 1, true) and "[%s]:%d" or "%s:%d"):format(ip, port) end
  return { ip = ip, port = ip and port, remote = remote, scheme = given.scheme, host = given.host }
end

return forwarded
