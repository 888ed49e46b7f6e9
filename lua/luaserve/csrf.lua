-- csrf.lua - middleware that refuses requests which a page of another site makes a browser send, with the cookies and the
-- login of its user (cross-site request forgery).
--
-- Browsers say where a request comes from: in Sec-Fetch-Site (Fetch Metadata, over HTTPS and on the local machine), and in
-- Origin (RFC 6454) with each POST. A request with neither is from a program, or from an old browser. It needs a token of
-- the session if it has what browsers add by themselves: cookies, or a login other than a bearer token.

local core = require "luaserve.core"
local options = require "luaserve.options"
local usage = require "luaserve.usage"
local router = require "luaserve.router"

local find, lower, match, sub = string.find, string.lower, string.match, string.sub
local error, ipairs, tonumber, type = error, ipairs, tonumber, type

-- csrf is a Csrf: middleware that refuses requests of other sites, `require "luaserve.csrf"`.
local csrf = {}

local csrf_options = {
  origins = true, -- string[] - other sites that may send requests, such as "https://app.example"
}
csrf.calls = { ["csrf"] = { csrf_options, listed = true, optional = true } } -- CsrfOptions

local safe = { GET = true, HEAD = true, OPTIONS = true, TRACE = true } -- RFC 9110 section 9.2.1
local default_ports = { http = ":80", https = ":443" }
local base64url, token_bytes = 3, 24
local multipart_bytes_max = 65536 -- of a body that is read for its token

-- host_of(origin) -> its host and port in small letters, without the default port of its scheme; nil: "null" and others.
local function host_of(origin)
  local scheme, host = match(origin, "^(%a[%w+.-]*)://([^/?#@]+)$")
  if not scheme then return nil end
  local default = default_ports[lower(scheme)]
  host = lower(host)
  if default and sub(host, -#default) == default then host = sub(host, 1, -#default - 1) end
  return host
end

-- is_own(req, origin): the scheme is not compared, because a proxy may change it.
local function is_own(req, origin)
  local host = host_of(origin)
  return host ~= nil and req.authority ~= nil and host == host_of(match(origin, "^[^:]*") .. "://" .. req.authority)
end

-- Whether the request has something of its user that a browser adds to requests of any page.
local function has_credentials(headers)
  local authorization = headers.authorization
  return headers.cookie ~= nil or authorization ~= nil and not find(lower(authorization), "^bearer ")
end

local function token_of(req)
  local session = req.session
  return type(session) == "table" and session.csrf_token or nil
end

-- The token that the request has in its header, or in its form: of files, only in a small one. nil, true: in no small one.
local function sent_token(req)
  local headers = req.headers
  if headers["x-csrf-token"] then return headers["x-csrf-token"] end
  local kind = lower(match(headers["content-type"] or "", "^[^;%s]*"))
  if kind == "multipart/form-data" then
    local length = tonumber(headers["content-length"])
    if not length or length > multipart_bytes_max then return nil, true end
  elseif kind ~= "application/x-www-form-urlencoded" then
    return nil
  end
  return req:form()._csrf
end

-- refusal(req, origins) -> why the request is refused, or nil.
local function refusal(req, origins)
  local headers = req.headers
  local site, origin = headers["sec-fetch-site"], headers.origin
  if site == "same-origin" or site == "none" then return nil end
  if origin and origins[lower(origin)] then return nil end
  if site then return "it comes from a page of another site" end
  if origin then return not is_own(req, origin) and "it comes from a page of another site" or nil end
  if not has_credentials(headers) then return nil end
  local expected = token_of(req)
  local given, unread
  if expected then given, unread = sent_token(req) end -- a body is read only then
  if given and core.crypto_equal(given, expected) then return nil end
  if unread then
    return "it has neither Origin nor Sec-Fetch-Site, and a form with files of more than 64 KiB, or without a "
      .. "Content-Length, is not read for its token: send it in the field X-CSRF-Token"
  end
  return "it has neither Origin nor Sec-Fetch-Site, and no valid token"
end

-- Raises when the session stands after it: the token of each request would be missing.
local function check_place(place)
  local me = place.n and place.uses[place.n]
  for i, use in ipairs(me and place.uses or {}) do
    if (router.rules(use) or {}).session and (router.meets(use, me) or router.meets(me, use)) then
      if i < place.n then return end
      error(("%s: csrf: its token is in the session: put app:use(ls.session{ ... }) of %s before it"):format(place.where, use.where), 0)
    end
  end
end

-- csrf([options: CsrfOptions]) -> middleware: Middleware
-- Makes middleware that answers requests of other sites with 403, unless their method is GET, HEAD, OPTIONS or TRACE.
local function new(...)
  local _, given = options.only("csrf", csrf.calls.csrf, '{ origins = { "https://app.example" } }', ...)
  local origins = {}
  usage.refuse(given.origins ~= nil and (type(given.origins) ~= "table" or not usage.is_list(given.origins)), given.origins,
    'csrf: origins must be a list such as { "https://app.example" }')
  for _, origin in ipairs(given.origins or {}) do
    origins[options.origin("csrf", origin)] = true
  end
  return router.place(router.guard(function(req, _, next)
    local why = not safe[req.method] and refusal(req, origins)
    if not why then return next() end
    core.log("debug", "csrf: a request of " .. req.ip .. " was refused: " .. why)
    return 403, "the request was refused: " .. why .. "\n"
  end), { compiled = check_place })
end

-- csrf.token(req: Request) -> token: string
-- The token of the session, for clients that send neither Origin nor Sec-Fetch-Site: in the field X-CSRF-Token or as the
-- field `_csrf` of a form. Raises without `ls.session`.
function csrf.token(req, ...)
  usage.no_more("csrf.token(req)", req, ...)
  local session = type(req) == "userdata" and req.session
  if type(session) ~= "table" then
    usage.error("csrf.token(req) needs the request, with middleware of ls.session around it")
  end
  require("luaserve.session").check_login(session)
  if not session.csrf_token then session.csrf_token = core.crypto_encode(base64url, core.crypto_random(token_bytes)) end
  return session.csrf_token
end

-- csrf.field(req: Request) -> html: string
-- The hidden field of a form with the token.
function csrf.field(req, ...)
  usage.no_more("csrf.field(req)", req, ...)
  return '<input type="hidden" name="_csrf" value="' .. csrf.token(req) .. '">'
end

return setmetatable(csrf, { __call = function(_, ...) return new(...) end })
