-- ws_client.lua - ls.websocket: checks the URL and the options and converts them to the names and units of the core; then
-- the opening handshake, on a connection like those of ls.fetch.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
local tcp = require "luaserve.tcp"
local tls = require "luaserve.tls"
local ws = require "luaserve.ws"

local client = {}

local fname = "ls.websocket"
local client_only = {
  timeout = { "connect_ms_max", "seconds", 1, 2 ^ 32 - 1, 10, none = 0 }, -- seconds for lookup, TLS and the handshakes
  headers = true, -- Headers - further fields of the request
  protocols = true, -- string[] - subprotocols, the preferred one first
  origin = true, -- string - the field Origin, such as "https://example.org"
  compress = true, -- boolean|WebSocketCompression - offer to compress messages; default true
  tls = true, -- true|TlsClientOptions - for wss://
}

client.calls = { ["ls.websocket"] = { ws.limits, client_only } } -- WebSocketClientOptions

local default_ports = { ws = 80, wss = 443 }

-- Fields that the handshake writes, or that would change what the server reads as the end of the request.
local own_fields = {
  host = true, connection = true, upgrade = true, ["sec-websocket-key"] = true, ["sec-websocket-version"] = true,
  ["sec-websocket-protocol"] = "protocols", ["sec-websocket-extensions"] = "compress", origin = "origin",
  ["content-length"] = true, ["transfer-encoding"] = true,
}

local function invalid_url(url, why)
  usage.error("ls.websocket: invalid URL %s: %s", usage.quote(url), why)
end

-- read_url(text) -> host, port, value of Host, target, whether it is wss (RFC 6455 section 3). Raises.
local function read_url(url)
  usage.check(url, "string", 'ls.websocket: the first argument must be a URL such as "wss://example.org/feed"')
  local scheme, authority, target = url:match("^(%a[%w+.-]*)://([^/?#]*)(.*)$")
  scheme = scheme and scheme:lower()
  if not default_ports[scheme] then invalid_url(url, 'it must begin with "ws://" or "wss://"') end
  if target:find("#", 1, true) then invalid_url(url, "a WebSocket URL has no fragment; write # as %23") end
  if authority:find("@", 1, true) then
    invalid_url(url, "a user name belongs to the option headers, in the field Authorization")
  end
  local host, port = authority:match("^%[([%x:.%%%w]+)%](.*)$")
  local name = host and "[" .. host .. "]"
  if not host then
    host, port = authority:match("^([^:%[%]]*)(.*)$")
    name = host
  end
  if host == "" or host:find("[^!-~]") then invalid_url(url, "the host must be a name or an address") end
  local number = (port == "" or port == ":") and default_ports[scheme] or tonumber(port:match("^:(%d+)$"))
  if not number or number < 1 or number > 65535 then invalid_url(url, "the port must be a number from 1 to 65535") end
  if target:find("[^!-~]") then
    invalid_url(url, "percent-encode other characters than those of ASCII, and blanks: ls.url.encode")
  end
  if target:sub(1, 1) ~= "/" then target = "/" .. target end
  if number ~= default_ports[scheme] then name = name .. ":" .. math.tointeger(number) end
  return host, math.tointeger(number), name, target, scheme == "wss"
end

local function field(lines, name, value)
  if type(value) == "number" then value = tostring(value) end
  usage.check(value, "string", "%s: the value of the header %q must be a string, a number or a list of them", fname, name)
  if value:find("[\0-\8\10-\31\127]") then
    usage.error("%s: the value of the header %q contains a control character: %s", fname, name, usage.quote(value))
  end
  lines[#lines + 1] = name .. ": " .. value .. "\r\n"
end

local function check_header(name)
  if not options.is_token(name) then
    usage.error("%s: invalid header name %s", fname, usage.quote(name))
  end
  local own = own_fields[name:lower()]
  if own then
    usage.error("%s: the header %q is written by the handshake%s", fname, name,
      type(own) == "string" and "; use the option " .. own or "")
  end
end

local function read_headers(lines, headers)
  usage.check(headers, "table", '%s: headers must be a table such as { Authorization = "Bearer 1" }', fname)
  for _, header in ipairs(options.fields(headers, check_header)) do field(lines, header[1], header[2]) end
end

-- Why the response was not received, as ls.websocket says it.
local function no_response(message, code)
  if code == "ETIMEDOUT" then
    message = "timeout: the server has not answered the handshake"
  elseif code == "ECLOSED" or code == "ETRUNCATED" then
    message, code = "the server closed the connection instead of answering the handshake", "ECLOSED"
  elseif code == "EPROTO" then
    message = message:gsub("^invalid response:", "invalid response to the handshake:")
  end
  return nil, message, code
end

-- open(host, port, out) -> ws | nil, message, code, status
local function open(host, port, out)
  local opening, request = core.ws_opening(out)
  local deadline = out.connect_ms_max > 0 and core.now() + out.connect_ms_max / 1000
  local limits = { connect_ms_max = out.connect_ms_max, tls = out.tls, write_bytes_high = 2 ^ 32 - 1 }
  local sock, message, code = core.connect(host, port, options.merged { tcp.defaults(), limits })
  if not sock then return nil, message, code end
  local call = core.client_call(sock, "upgrade", deadline and math.max(deadline - core.now(), 0) or nil)
  sock:send(request)
  local status, head, why = call:head()
  if not status then return no_response(head, why) end
  sock:flush() -- a server may answer before it has taken all of the request
  local opened
  opened, message, code = core.ws_open(sock, opening, head)
  if opened then return opened end
  call:close()
  if code == "EREFUSED" then return nil, message, code, status end
  return nil, message, code
end

-- ls.websocket(url: string [, options: WebSocketClientOptions]) -> ws | nil, message, code, status
-- Connects to a WebSocket server: `"ws://host:port/path"`, or `"wss://..."` with TLS. Waits for the end of the handshake;
-- `status` is that of a response other than 101. Not while the site loads.
function client.connect(url, opts, ...)
  usage.no_more("ls.websocket(url, options)", opts, ...)
  usage.check_waits("ls.websocket")
  local host, port, name, target, secure = read_url(url)
  local out, lines = { host = name, target = target }, {}
  usage.check(opts, "table?", "ls.websocket: options must be a table such as { timeout = 5 }")
  opts = opts or {}
  options.take(fname, opts, client.calls[fname], out)
  if opts.protocols ~= nil then out.protocols = ws.read_protocols(fname, opts.protocols) end
  ws.read_compression(fname, opts.compress == nil or opts.compress, out)
  if opts.origin ~= nil then
    usage.refuse(not core.ws_origin(opts.origin), opts.origin,
      'ls.websocket: origin must be a scheme, a host and perhaps a port: "https://example.org"')
    lines[1] = "Origin: " .. opts.origin .. "\r\n"
  end
  if opts.headers ~= nil then read_headers(lines, opts.headers) end
  if secure then
    if opts.tls == false then usage.error("ls.websocket: wss:// needs TLS; got tls = false") end
    out.tls = tls.client(fname, opts.tls or true)
  elseif opts.tls ~= nil then
    usage.error("ls.websocket: the option tls needs a URL with wss://; got %s", usage.quote(url))
  end
  out.fields = table.concat(lines)
  local ws, message, code, status = open(host, port, out)
  if ws then return ws end
  if status then return core.failed(nil, message, code, status) end
  return core.failed(nil, message, code)
end

return client
