-- stress/vu_ws.lua - the arguments of vu:ws in scenarios; src/stress/scripts/script_ws.c has the WebSocket.

local target = require "luaserve.stress.target"
local text = require "luaserve.stress.text"

local PROTOCOLS_MAX = 16

-- The path of a URL, which must be of the target; a path stays as it is. nil: that of the target.
local function path_of(path, url)
  if path == nil then return nil end
  local at = type(path) == "string" and (path:find("^wss?://")) and target.parse(path)
  if at then
    local wanted = target.parse(url)
    if at.tls ~= wanted.tls or at.port ~= wanted.port or at.host ~= wanted.host then
      error(string.format("vu:ws: %s is not on the target %s; a virtual user has one connection, to the target", path, url),
        3)
    end
    path = at.path
  end
  if type(path) ~= "string" or not path:find("^/[^\0-\32\127#]*$") then
    error("vu:ws: invalid path: a path begins with / and has no white space", 3)
  end
  return path
end

-- The lines of options.headers after those of the command line.
local function fields_of(headers, lines)
  if headers == nil then return lines end
  if type(headers) ~= "table" then error("vu:ws: headers must be a table", 3) end
  for name, value in pairs(headers) do
    if type(value) == "number" then value = tostring(value) end
    if not text.is_field(name, value) then
      error("vu:ws: invalid header: a header is a token and a string without line breaks", 3)
    end
    lines = lines .. name .. ": " .. value .. "\r\n"
  end
  return lines
end

local function protocols_of(protocols)
  if protocols == nil then return nil end
  if type(protocols) ~= "table" then error("vu:ws: protocols must be a list of tokens", 3) end
  if #protocols > PROTOCOLS_MAX then error(string.format("vu:ws: more than %d protocols", PROTOCOLS_MAX), 3) end
  for _, name in ipairs(protocols) do
    if type(name) ~= "string" or not name:find(text.TOKEN) then error("vu:ws: protocols must be a list of tokens", 3) end
  end
  return protocols
end

-- vu_ws(open, url, fields) -> vu:ws. open(vu, path, fields, protocols) begins the handshake; url: of the target; fields:
-- the header lines of the command line, nil for a target that is neither HTTP nor WebSocket.
return function(open, url, fields)
  return function(vu, path, options)
    if not fields then error("vu:ws needs a ws, wss, http or https target, not " .. url, 2) end
    if options ~= nil and type(options) ~= "table" then error("vu:ws: the options must be a table", 2) end
    options = options or {}
    return open(vu, path_of(path, url), fields_of(options.headers, fields), protocols_of(options.protocols))
  end
end
