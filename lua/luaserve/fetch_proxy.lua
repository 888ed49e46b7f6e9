-- fetch_proxy.lua - the HTTP proxies of ls.fetch: which one a request goes through, and tunnels (CONNECT, RFC 9110
-- section 9.3.6). A proxy comes from the option proxy, or from the environment: http_proxy, https_proxy, all_proxy and
-- no_proxy, as other programs read them.

local core = require "luaserve.core"
local rules = require "luaserve.fetch_rules"

local proxy = {}

local percent_decode = core.percent_decode

-- read(url) -> { host =, port =, shown = the URL without a password, authorization = a field line or "" } | nil, why
function proxy.read(url)
  if not url:find("://", 1, true) then url = "http://" .. url end
  local scheme, user, rest = url:match("^(%a+://)([^/@]*)@(.*)$")
  local at, why = rules.parse(scheme and scheme .. rest or url)
  if not at then return nil, why end
  if at.secure then return nil, 'it must begin with "http://"; TLS to the proxy itself is not supported' end
  if at.target ~= "/" then return nil, "it has a path" end
  local authorization = ""
  if user then
    local name, password = user:match("^([^:]*):?(.*)$")
    name, password = percent_decode(name), percent_decode(password)
    if not name or not password then return nil, "user name and password are percent-encoded wrongly" end
    authorization = "Proxy-Authorization: Basic " .. core.crypto_encode(2, name .. ":" .. password) .. "\r\n"
  end
  return { host = at.host, port = at.port, shown = at.origin, authorization = authorization }
end

-- ---- the environment -----------------------------------------------------------------------------------------------

local environment -- { http = proxy | { why }, https =, except = a list of patterns }; false: it names none

-- HTTP_PROXY in capitals may be the field Proxy of a request, for a program that a CGI server has started (CVE-2016-5385).
local variables = {
  http = { "http_proxy", "all_proxy", "ALL_PROXY" },
  https = { "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY" },
}

local function read_variable(names)
  for _, name in ipairs(names) do
    local value = os.getenv(name)
    if value and value ~= "" then
      local found, why = proxy.read(value)
      return found or { why = "the environment variable " .. name .. " is not the URL of a proxy: " .. why }
    end
  end
end

local function read_environment()
  environment = { http = read_variable(variables.http), https = read_variable(variables.https), except = {} }
  if not environment.http and not environment.https then
    environment = false
    return
  end
  for pattern in (os.getenv("no_proxy") or os.getenv("NO_PROXY") or ""):gmatch("[^%s,]+") do
    environment.except[#environment.except + 1] = pattern:lower():gsub("^%*?%.", "")
  end
end

-- Whether requests of the parsed URL go without a proxy: those to this machine, and those of no_proxy, which is a list of
-- names that stand for their subdomains too, of addresses and networks, each perhaps with a port; or "*".
local function excepted(at)
  local host = at.host
  if rules.is_here(host) then return true end
  for _, pattern in ipairs(environment.except) do
    local name, port = pattern:match("^([^:]+):(%d+)$")
    name = (name or pattern):gsub("^%[(.*)%]$", "%1")
    if (not port or tonumber(port) == at.port)
      and (name == "*" or name == host or host:sub(-#name - 1) == "." .. name) then
      return true
    end
  end
  return false
end

-- of(request) -> proxy | nil: none | nil, message
function proxy.of(request)
  if request.proxy ~= nil then return request.proxy or nil end
  if environment == nil then read_environment() end
  if not environment or request.unix or request.public_only or excepted(request.at) then return nil end
  local found = request.at.secure and environment.https or not request.at.secure and environment.http or nil
  if found and found.why then return nil, found.why end
  return found
end

-- ---- tunnels -------------------------------------------------------------------------------------------------------

local function failure(via, message, code) return nil, "the proxy " .. via.shown .. ": " .. message, code end
proxy.failure = failure

local refused = { [403] = "EACCES", [407] = "EACCES" }

-- tunnel(via, sock, at, seconds) -> true | nil, message, code. Makes a connection to a proxy one to the server
-- of the parsed URL. A failure closes it.
function proxy.tunnel(via, sock, at, seconds)
  local server = at.authority:find(":%d+$") and at.authority or at.authority .. ":" .. at.port
  local call = core.client_call(sock, "head", seconds)
  sock:send("CONNECT " .. server .. " HTTP/1.1\r\nHost: " .. server .. "\r\n" .. via.authorization .. "\r\n")
  local status, head, code = call:head()
  if not status then return failure(via, head, code) end
  if status < 200 or status > 299 then
    call:close()
    local reason = head:match("^%S+ ([^\r\n]*)"):gsub("[^ -~]", "?")
    return failure(via, "it answered CONNECT with " .. reason, refused[status] or "EUNREACH")
  end
  call:release()
  return true
end

return proxy
