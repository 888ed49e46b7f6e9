-- ws.lua - app:ws: checks the arguments and converts them to the names and units of the core.
--
-- ls.websocket, the client, has the same limits: ws.limits and ws.compression.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

local ws = {}

local uint32_max = 2 ^ 32 - 1

ws.limits = { -- of a connection
  max_message = { "message_bytes_max", "size", 1, math.maxinteger, "1m" }, -- a longer one ends the connection with 1009
  write_ahead = { "write_bytes_high", "size", 1, uint32_max, "256k" }, -- send waits while more bytes are queued
  ping = { "ping_ms", "seconds", 1, uint32_max, 30, none = 0 }, -- seconds without a byte of the peer before a ping
  ping_timeout = { "pong_ms", "seconds", 1, uint32_max, 30 }, -- further seconds before the connection ends
  message_timeout = { "message_ms_max", "seconds", 1, uint32_max, 60, none = 0 }, -- seconds for one message
  close_timeout = { "close_ms_max", "seconds", 1, uint32_max, 5 }, -- seconds for the closing handshake
  send_timeout = { "send_stall_ms_max", "seconds", 1, uint32_max, 60, none = 0 }, -- seconds without a byte accepted
}
local compression = {
  context = { "compress_takeover", "flag", nil, nil, false }, -- each message refers to those before
  min_size = { "compress_bytes_min", "size", 0, uint32_max, 256 }, -- shorter messages are not compressed
  window = { "compress_bits", "count", 9, 15, 15 }, -- the window has 2^window bytes
}
local server_only = {
  max_queue = { "queue_bytes_max", "size", 1, uint32_max, "1m" }, -- messages of topics are queued up to this size
  overflow = { "overflow", "choice", "close", "skip", "close" }, -- what happens above max_queue
  protocols = true, -- string[] - subprotocols that the site supports
  origins = true, -- "*"|string[] - allowed origins; default: that of the server
  compress = true, -- boolean|WebSocketCompression - default false
}
local functions = {
  open = { "open", "is", "function", "a function(ws, req)" }, -- fun(ws: WebSocket, req: Request) - after the handshake
  -- fun(ws: WebSocket, data: string, kind: "text"|"binary") - for each message
  message = { "message", "is", "function", "a function(ws, data, kind)" },
  -- fun(ws: WebSocket, code: integer, reason: string) - the connection has ended
  close = { "close", "is", "function", "a function(ws, code, reason)" },
}

ws.calls = {
  ["app:ws"] = { ws.limits, server_only, listed = true }, -- WebSocketRouteOptions
  ["app:ws: events"] = { ws.limits, server_only, functions, listed = true }, -- WebSocketEvents
  ["app:ws: compress"] = { compression }, -- WebSocketCompression
}

-- read_compression(fname, value, out): the option `compress`, false, true or a table, into `out`. Raises.
function ws.read_compression(fname, value, out)
  if type(value) == "table" then
    options.take(fname, value, ws.calls["app:ws: compress"], out, "compress.")
    out.compress = true
  elseif type(value) == "boolean" or value == nil then
    options.take(fname, {}, ws.calls["app:ws: compress"], out)
    out.compress = value or false
  else
    usage.error("%s: compress must be true, false or a table such as { context = true }; got %s", fname,
      usage.quote(value))
  end
end

-- read_protocols(fname, list) -> a copy of the list of subprotocols. Raises.
function ws.read_protocols(fname, list)
  if type(list) == "string" then
    usage.error("%s: protocols must be a list: protocols = { %s }", fname, usage.quote(list))
  elseif type(list) ~= "table" or #list == 0 then
    usage.error('%s: protocols must be a list of names such as { "chat.v1" }; got %s', fname, usage.quote(list))
  end
  local copy, seen = {}, {}
  for i, name in ipairs(list) do
    usage.refuse(not options.is_token(name), name,
      "%s: a subprotocol is a token of letters, digits and !#$%%&'*+-.^_`|~", fname)
    if seen[name] then usage.error("%s: duplicate subprotocol %q", fname, name) end
    copy[i], seen[name] = name, true
  end
  for key in pairs(list) do
    if copy[key] == nil then usage.error("%s: protocols must be a list; got the key %s", fname, usage.quote(key)) end
  end
  return copy
end

local origin_form = 'origins must be "*" or a list such as { "https://example.org" }'

local function read_origins(fname, value, out)
  if value == "*" then
    out.any_origin = true
    return
  end
  if type(value) == "string" then
    usage.error("%s: %s; got %s: write { %s }", fname, origin_form, usage.quote(value), usage.quote(value))
  elseif type(value) ~= "table" or #value == 0 then
    usage.error("%s: %s; got %s", fname, origin_form, usage.quote(value))
  end
  out.origins = {}
  for i, origin in ipairs(value) do
    if origin == "*" then usage.error('%s: for any origin write origins = "*", not a list with "*"', fname) end
    usage.refuse(not core.ws_origin(origin) or origin:find("*", 1, true), origin,
      '%s: an origin is a scheme, a host and perhaps a port, without a path or *: "https://example.org"', fname)
    out.origins[i] = origin
  end
end

local function checked(req, where, ...)
  local fine, session = pcall(core.own, req, "session") -- the request may have ended
  if fine then require("luaserve.session").warn_unsaved(session, where) end
  return ...
end

-- with_session(fn, where) -> fn; a warning follows if it takes the request and leaves a changed session that is not stored.
local function with_session(fn, where)
  local info = fn and debug.getinfo(fn, "u")
  if not info or info.nparams < 2 and not info.isvararg then return fn end
  local function watched(object, req)
    if core.own(req, "session") == nil then return fn(object, req) end
    return checked(req, where, fn(object, req))
  end
  if core.dev then require("luaserve.dev_state").stands_for(watched, fn) end
  return watched
end

-- route(pattern, where, opts, handler) -> the handler of a GET route, which is called as handler(req, res). Raises.
function ws.route(pattern, where, opts, handler)
  local fname = "app:ws"
  local out = { name = string.format("%s (%s)", pattern, where or "?") }
  local given = opts
  if type(handler) == "function" then
    out.serve = handler
  elseif type(handler) == "table" then
    if opts ~= nil then
      usage.error("app:ws: put the options into the table of functions: app:ws(path, { message = fn, compress = true })")
    end
    given = handler
  else
    usage.error("app:ws needs a function(ws, req), or a table { message = function(ws, data, kind) end }; got %s",
      usage.quote(handler))
  end
  usage.check(given, "table?", 'app:ws: options must be a table such as { max_message = "64k" }')
  given = given or {}
  options.take(fname, given, ws.calls[out.serve and "app:ws" or "app:ws: events"], out)
  if given.protocols ~= nil then out.protocols = ws.read_protocols(fname, given.protocols) end
  if given.origins ~= nil then read_origins(fname, given.origins, out) end
  ws.read_compression(fname, given.compress, out)
  out.skip = out.overflow == "skip"
  if not (out.serve or out.open or out.message or out.close) then
    usage.error("app:ws: the table has no function; it needs open, message or close")
  end
  out.serve, out.open = with_session(out.serve, out.name), with_session(out.open, out.name)
  return core.ws(out)
end

return ws
