-- url.lua - ls.url: URLs, percent-encoding and query strings (RFC 3986).

local core = require "luaserve.core"
local usage = require "luaserve.usage"

-- A site may replace the globals.
local concat, find, match, sort = table.concat, string.find, string.match, table.sort
local ipairs, pairs, tonumber, tostring, type = ipairs, pairs, tonumber, tostring, type
local encode, percent_decode = core.url_encode, core.percent_decode

-- ls.url is a Url: URLs, percent-encoding and query strings.
local url = {}

-- ls.url.decode(text) -> text | nil, message, code
-- Decodes percent-encoding; a `+` stays. EINVAL: an invalid escape, or %00.
function url.decode(text, ...)
  if type(text) ~= "string" then usage.error("ls.url.decode takes a string; got %s", usage.quote(text)) end
  usage.no_more("ls.url.decode(text)", text, ...)
  local decoded = percent_decode(text)
  if not decoded then return nil, "invalid escape in " .. usage.quote(text), "EINVAL" end
  return decoded
end

local scalar = { string = true, number = true, boolean = true }

local function add(parts, name, value)
  usage.refuse(not scalar[type(value)], value,
    "ls.url.query: %s must be a string, a number, a boolean or a list of them", usage.quote(name))
  parts[#parts + 1] = encode(name) .. "=" .. encode(tostring(value))
end

-- ls.url.query(values: table<string, string|number|boolean|(string|number|boolean)[]>) -> query: string
-- Makes a query string: "a=1&b=x%20y&b=z" of { a = 1, b = { "x y", "z" } }. The names are sorted: equal tables give equal
-- strings.
function url.query(values, ...)
  usage.check(values, "table", "ls.url.query takes a table such as { page = 2 }")
  usage.no_more("ls.url.query(values)", values, ...)
  local names, parts = {}, {}
  for name in pairs(values) do
    if type(name) ~= "string" then
      usage.error("ls.url.query takes a table such as { page = 2 }; got the key %s", usage.quote(name))
    end
    names[#names + 1] = name
  end
  sort(names)
  for _, name in ipairs(names) do
    local value = values[name]
    if type(value) == "table" then
      usage.check_list("ls.url.query", name, value)
      for _, one in ipairs(value) do add(parts, name, one) end
    else
      add(parts, name, value)
    end
  end
  return concat(parts, "&")
end

local default_ports = { http = 80, ws = 80, https = 443, wss = 443 }

local v6 = "^%x*:[%x:.]*:[%x:.]*$"

-- The host of an authority "host" or "[v6]" with or without ":port", and the port; nil: it is malformed. An empty port is
-- none (RFC 3986 section 3.2.3).
local function split_host(text)
  local host, rest = match(text, "^%[([%x:.]+)%](.*)$")
  if host and not find(host, v6) then return nil end
  if not host then host, rest = match(text, "^([^:%[%]]*)(.*)$") end
  if rest == "" or rest == ":" then return host:lower() end
  local port = tonumber(match(rest, "^:(%d+)$"))
  if not port or port > 65535 then return nil end
  return host:lower(), port
end

local function has_broken_escape(text) return find(text:gsub("%%%x%x", ""), "%", 1, true) ~= nil end

local function invalid(text, why) return nil, "invalid URL " .. usage.quote(text) .. ": " .. why, "EINVAL" end

-- ls.url.parse(text) -> parts: UrlParts | nil, message, code
-- The parts of a URL, also of a relative one such as `"/a?b=c"`. EINVAL: it is malformed.
-- parts is a UrlParts: the parts of a URL.
-- parts.scheme: string? - in lower case, without the colon
-- parts.user: string? - decoded
-- parts.password: string? - decoded
-- parts.host: string? - in lower case, an IPv6 address without brackets
-- parts.port: integer? - also that of http, https, ws and wss when the URL has none
-- parts.path: string - encoded, as in the text
-- parts.query: table<string, string> - the parameters, decoded; the first of each name
-- parts.query_all: table<string, string[]> - the same, with all values of each name
-- parts.fragment: string? - decoded
function url.parse(text, ...)
  if type(text) ~= "string" then usage.error("ls.url.parse takes a string; got %s", usage.quote(text)) end
  usage.no_more("ls.url.parse(text)", text, ...)
  local odd = match(text, "[^%w%-._~:/?#%[%]@!$&'()*+,;=%%]")
  if odd then return invalid(text, "it has the character " .. usage.quote(odd) .. ", which must be percent-encoded") end
  local parts = {}
  local scheme, rest = match(text, "^(%a[%w+.-]*):(.*)$")
  parts.scheme, rest = scheme and scheme:lower(), rest or text
  local fragment, query
  rest, fragment = match(rest, "^([^#]*)#?(.*)$")
  rest, query = match(rest, "^([^?]*)%??(.*)$")
  local authority, path = match(rest, "^//([^/]*)(.*)$")
  if authority then
    local user, host = match(authority, "^(.*)@([^@]*)$")
    local name, port = split_host(host or authority)
    if not name then return invalid(text, "the host or the port is malformed") end
    if name == "" and (user or port or default_ports[parts.scheme]) then return invalid(text, "the host is missing") end
    parts.host, parts.port = name, port or default_ports[parts.scheme]
    if user then
      local password
      user, password = match(user, "^([^:]*):?(.*)$")
      parts.user, parts.password = percent_decode(user), password ~= "" and percent_decode(password) or nil
      if not parts.user or password ~= "" and not parts.password then
        return invalid(text, "the user has an invalid escape")
      end
    end
  end
  parts.path = path or rest
  if has_broken_escape(parts.path) then return invalid(text, "the path has an invalid escape") end
  if fragment ~= "" then
    parts.fragment = percent_decode(fragment)
    if not parts.fragment then return invalid(text, "the fragment has an invalid escape") end
  end
  parts.query, parts.query_all = core.query(query), core.query(query, true)
  return parts
end

local part_names = { scheme = true, user = true, password = true, host = true, port = true, path = true, query = true,
  query_all = true, fragment = true }

-- ls.url.build(parts: UrlParts|table) -> text
-- The URL of its parts, as ls.url.parse gives them; `query_all` is not used. The path is encoded text, or a list of
-- segments, which are encoded. The query is encoded text, or a table for ls.url.query. Raises for parts that are no URL.
function url.build(parts, ...)
  local function wrong(name, expected)
    usage.error("ls.url.build: %s must be %s; got %s", name, expected, usage.quote(parts[name]))
  end
  usage.check(parts, "table",
    'ls.url.build takes a table such as { scheme = "https", host = "a.example", path = "/" }')
  usage.no_more("ls.url.build(parts)", parts, ...)
  for name in pairs(parts) do
    if not part_names[name] then
      usage.error("ls.url.build: unknown part %s%s", usage.quote(name), usage.suggest(name, part_names))
    end
  end
  local function text(name)
    local value = parts[name]
    if value ~= nil and type(value) ~= "string" then wrong(name, "a string") end
    return value
  end
  local out, path, port = {}, parts.path or "", parts.port
  local scheme, host, user, password, fragment = text "scheme", text "host", text "user", text "password", text "fragment"
  if scheme then
    if not find(scheme, "^%a[%w+.-]*$") then wrong("scheme", 'a name such as "https"') end
    out[1] = scheme .. ":"
  end
  if port ~= nil and not (math.type(port) == "integer" and port >= 0 and port <= 65535) then
    wrong("port", "a whole number from 0 to 65535")
  end
  if not host and (port or user) then usage.error("ls.url.build: %s needs host", port and "port" or "user") end
  if password and not user then usage.error("ls.url.build: password needs user") end
  if host then
    local is_v6 = find(host, v6)
    if not is_v6 and find(host, "[^%w%-._~!$&'()*+,;=%%]") then wrong("host", "a name or an address, without the port") end
    out[#out + 1] = "//" .. (user and encode(user) .. (password and ":" .. encode(password) or "") .. "@" or "")
      .. (is_v6 and "[" .. host .. "]" or host)
      .. (port and port ~= default_ports[scheme] and ":" .. port or "")
  end
  if type(path) == "table" then
    local segments = {}
    for i, segment in ipairs(path) do
      if type(segment) ~= "string" and type(segment) ~= "number" then wrong("path", "a string or a list of segments") end
      segments[i] = encode(tostring(segment))
    end
    path = "/" .. concat(segments, "/")
  elseif type(path) ~= "string" or find(path, "[^%w%-._~:/@!$&'()*+,;=%%]") or has_broken_escape(path) then
    wrong("path", "a string of characters of a path, percent-encoded, or a list of segments")
  end
  if host and path ~= "" and path:sub(1, 1) ~= "/" then wrong("path", 'a path that begins with "/", after a host') end
  if not host and path:sub(1, 2) == "//" then wrong("path", 'a path that does not begin with "//", without a host') end
  if not host and not scheme and find(path, "^[^/]*:") then wrong("path", "a path without a colon in its first segment") end
  out[#out + 1] = path
  local query = parts.query
  if type(query) == "table" then query = url.query(query) end
  if query ~= nil and (type(query) ~= "string" or find(query, "[^%w%-._~:/@!$&'()*+,;=%%?%[%]]")) then
    wrong("query", "a table, or a string of characters of a query, percent-encoded")
  end
  if query and query ~= "" then out[#out + 1] = "?" .. query end
  if fragment then out[#out + 1] = "#" .. encode(fragment) end
  return concat(out)
end

return url
