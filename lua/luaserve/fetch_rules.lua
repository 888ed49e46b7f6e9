-- fetch_rules.lua - the rules of HTTP that ls.fetch follows and that need no connection: URLs (RFC 3986), the fields that
-- a site may not set, and redirects (RFC 9110 section 15.4).

local usage = require "luaserve.usage"

local concat, tonumber, tostring = table.concat, tonumber, tostring

local rules = {}

local default_ports = { http = 80, https = 443 }

-- parse(url) -> { secure =, host =, port =, authority = the value of Host, target =, origin = } | nil, why
function rules.parse(url)
  local scheme, authority, target = url:match("^(%a[%w+.-]*)://([^/?#]*)([^#]*)")
  scheme = scheme and scheme:lower()
  local port = default_ports[scheme]
  if not port then return nil, 'it must begin with "http://" or "https://"' end
  if authority:find("@", 1, true) then
    return nil, "a user name belongs to the option headers, in the field Authorization"
  end
  local host, given = authority:match("^%[([%x:.%%%w]+)%](.*)$")
  local name = host and "[" .. host .. "]"
  if not host then
    host, given = authority:match("^([^:%[%]]*)(.*)$")
    host = host:lower()
    name = host
  end
  if host == "" or host:find("[^!-~]") then return nil, "the host must be a name or an address" end
  if given ~= "" and given ~= ":" then
    local number = tonumber(given:match("^:(%d+)$"))
    if not number or number < 1 or number > 65535 then return nil, "the port must be a number from 1 to 65535" end
    if number ~= port then name = name .. ":" .. math.tointeger(number) end
    port = math.tointeger(number)
  end
  if target:find("[^!-~]") then
    return nil, "percent-encode other characters than those of ASCII, and blanks: ls.url.encode"
  end
  if target:byte() ~= 47 then target = "/" .. target end
  return { secure = scheme == "https", host = host, port = port, authority = name, target = target,
    origin = scheme .. "://" .. name }
end

-- is_here(host) -> whether the host of a parsed URL is this machine.
function rules.is_here(host) return host == "localhost" or host == "::1" or host:find("^127%.[%d.]+$") ~= nil end

-- is_safe(at) -> whether a parsed URL, or nil, is https, or http on this machine.
function rules.is_safe(at) return at and (at.secure or rules.is_here(at.host)) end

-- The path without its segments "." and "..", also encoded (RFC 3986 section 5.2.4).
local function remove_dots(path)
  local out, last = {}, nil
  for segment in path:gmatch("/([^/]*)") do
    last = segment:gsub("%%2[Ee]", ".")
    if last == ".." then
      out[#out] = nil
    elseif last ~= "." then
      out[#out + 1] = "/" .. segment
    end
  end
  if last == "." or last == ".." then out[#out + 1] = "/" end
  return out[1] and concat(out) or "/"
end

local function escape(character) return ("%%%02X"):format(character:byte()) end

-- join(at, location) -> the URL that `location`, of a response of the parsed URL `at`, stands for (RFC 3986 section 5.2).
-- Read as the URL standard of WHATWG says: characters that no URL has are escaped, and "\" is "/".
function rules.join(at, location)
  local base, base_query = at.target:match("^([^?]*)(.*)$")
  local path, query = location:gsub("#.*$", ""):gsub("\t", ""):match("^([^?]*)(.*)$")
  path = path:gsub("\\", "/")
  if path:find("^//") then path = (at.secure and "https:" or "http:") .. path end
  local origin, rest = path:match("^(%a[%w+.-]*://[^/]*)(.*)$")
  if not origin and path:find("^%a[%w+.-]*:") then return location end
  origin, path = origin or at.origin, rest or path
  if path == "" and not rest then
    path, query = base, query == "" and base_query or query
  elseif path:byte() ~= 47 and not rest then
    path = base:match("^(.*/)") .. path
  end
  return origin .. remove_dots(path:gsub('[\0-\32"<>^`{}\127-\255]', escape)) .. query:gsub("[\0-\32\"'<>\127-\255]", escape)
end

-- Fields that ls.fetch writes itself, or that would change what the server reads as the end of the request.
local own_fields = {
  connection = true, ["content-length"] = true, ["transfer-encoding"] = true, upgrade = true, expect = true, te = true,
  trailer = true, ["keep-alive"] = true, ["proxy-connection"] = true,
}

-- is_own(name) -> whether a site may not set the header.
function rules.is_own(name) return own_fields[name:lower()] or false end

local of_body = { ["content-type"] = true, ["content-encoding"] = true, ["content-language"] = true,
  ["content-location"] = true, digest = true, ["content-digest"] = true }
local of_origin = { authorization = true, cookie = true, ["proxy-authorization"] = true, host = true }

local function without(fields, names)
  local out = {}
  for _, field in ipairs(fields) do
    if not names[field[1]:lower()] then out[#out + 1] = field end
  end
  return out
end

local redirects = { [301] = true, [302] = true, [303] = true, [307] = true, [308] = true }

-- shown(url) -> what a message may name of it: no user, password and query.
function rules.shown(url)
  return (url:match("^[^?#]*"):gsub("^(%a[%w+.-]*://)[^/]*@", "%1"))
end

-- is_redirect(status) -> whether Location names the next request.
function rules.is_redirect(status) return redirects[status] or false end

-- The methods that change nothing (RFC 9110 9.2.1).

local of_one_server = { -- options of TLS
  cert = true, key = true, key_password = true, server_name = true, insecure = true,
}

-- redirect(request, status, location) -> the next request | nil, why, code. A request is { method =, at = a parsed URL,
-- fields = a list of { name, value }, body =, ... }; further fields are passed on.
function rules.redirect(request, status, location)
  local url = rules.join(request.at, location)
  local at, why = rules.parse(url)
  if not at then return nil, "redirected to the invalid URL " .. usage.quote(rules.shown(url)) .. ": " .. why, "EPROTO" end
  if request.at.secure and not at.secure then
    return nil, "redirected from https to " .. at.origin .. ", which is not encrypted", "EACCES"
  end
  if request.unix and at.origin ~= request.at.origin then
    return nil, "redirected to " .. at.origin .. ", which is not behind the Unix socket", "EACCES"
  end
  local next_request = setmetatable({}, getmetatable(request))
  for name, value in pairs(request) do next_request[name] = value end
  next_request.at = at
  local reads = request.method == "GET" or request.method == "HEAD"
  if status == 303 and not reads or status <= 302 and request.method == "POST" then
    next_request.method, next_request.body = "GET", nil
    next_request.fields = without(request.fields, of_body)
  elseif type(request.body) == "function" then
    return nil, "redirected with status " .. tostring(status) .. ", but a body from a function cannot be sent again",
      "ENOTSUP"
  end
  if at.origin ~= request.at.origin then -- which is not to get what authenticates to this one, nor to be trusted as it is
    next_request.fields = without(next_request.fields, of_origin)
    local tls = {}
    for name, value in pairs(request.tls or {}) do tls[name] = not of_one_server[name] and value or nil end
    next_request.tls = request.tls and tls
  end
  return next_request
end

-- The methods that may be sent again when no response came (RFC 9110 section 9.2.2).
rules.idempotent = { GET = true, HEAD = true, OPTIONS = true, TRACE = true, PUT = true, DELETE = true }

return rules
