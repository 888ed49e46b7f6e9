-- stress/target.lua - the target of a run: the parts of its URL.

local target = {}

local HOST_BYTES_MAX = 255
local PATH_BYTES_MAX = 107 -- of a Unix socket; an abstract name has one more, for "@"

-- kind, port, TLS, and the name in the report of wrk
local schemes = {
  { "http://", kind = "http", port = 80 },
  { "https://", kind = "http", port = 443, tls = true },
  { "ws://", kind = "ws", port = 80 },
  { "wss://", kind = "ws", port = 443, tls = true },
  { "tcp://", kind = "tcp" },
  { "udp://", kind = "udp" },
  { "http+unix:", kind = "http", unix = true },
  { "unix:", kind = "tcp", unix = true },
}

local function fail(text, url) return nil, string.format('%s: "%s"', text, url) end

local function port_of(text)
  local port = text:find("^%d+$") and tonumber(text)
  return port and port >= 1 and port <= 65535 and math.tointeger(port) or nil
end

-- "host", "host:port", "[::1]:port" -> host, port or nil | nil, message
local function split(authority, url)
  if authority:find("@", 1, true) then return fail("user names in URLs are not supported; use --header", url) end
  local host, rest = authority:match("^([^:]*)(.*)$")
  if authority:sub(1, 1) == "[" then
    host, rest = authority:match("^%[([^%]]*)%](.*)$")
    if not host then return fail("missing ] after the IPv6 address", url) end
    if rest ~= "" and rest:sub(1, 1) ~= ":" then return fail("unexpected text between ] and the port", url) end
  end
  if host == "" then return fail("missing host", url) end
  if #host > HOST_BYTES_MAX then return fail("host name too long (at most 255 bytes)", url) end
  if rest == "" then return host end
  local port = port_of(rest:sub(2))
  if not port then return fail("invalid port (1 to 65535)", url) end
  return host, port
end

-- parse(url) -> { kind = "http" | "ws" | "tcp" | "udp", host =, port =, has_port =, path =, tls =, unix = } | nil, message
--
--   http://host[:port][/path]     https://host[:port][/path]
--   http+unix:/run/a.sock         (HTTP on a Unix socket; the path is "/")
--   ws://host[:port][/path]       wss://host[:port][/path]      (WebSocket, RFC 6455 section 3)
--   tcp://host:port               unix:/run/a.sock              udp://host:port
--
-- host: without brackets; "unix:/run/a.sock" for a Unix socket.
function target.parse(url)
  local scheme
  for _, one in ipairs(schemes) do
    if url:sub(1, #one[1]) == one[1] then scheme = one break end
  end
  if not scheme then
    return fail("invalid URL (must begin with http://, https://, ws://, wss://, tcp://, udp://, unix: or http+unix:)",
      url)
  end
  if url:find("[\0-\32\127]") then return fail("white space or control character in the URL", url) end
  local rest = url:sub(#scheme[1] + 1)
  local out = { kind = scheme.kind, tls = scheme.tls or false, path = "/", port = 0, has_port = false }
  if scheme.unix then
    if rest == "" then return fail("missing path of the Unix socket", url) end
    if #rest > PATH_BYTES_MAX + (rest:find("^@") and 1 or 0) then return fail("path of the Unix socket too long", url) end
    out.host, out.unix = "unix:" .. rest, true
    return out
  end
  local authority, path = rest:match("^([^/?#]*)(.*)$")
  local host, port = split(authority, url)
  if not host then return nil, port end
  out.host, out.port, out.has_port = host, port or scheme.port, port ~= nil
  if scheme.port then
    if path:find("#", 1, true) then return fail("remove the fragment (#...); it is not sent to servers", url) end
    if path:sub(1, 1) == "?" then return fail("missing path before the query (write /?...)", url) end
    if path ~= "" then out.path = path end
  else
    if path ~= "" and path ~= "/" then return fail("tcp and udp URLs have no path", url) end
    if not port then return fail("missing port", url) end
  end
  return out
end

-- authority(target) -> the text of a Host field: "h", "h:8080", "[::1]:8080"
function target.authority(of)
  if of.unix then return "localhost" end
  local host = of.host:find(":", 1, true) and "[" .. of.host .. "]" or of.host
  return of.has_port and host .. ":" .. of.port or host
end

return target
