-- secure_headers.lua - middleware that sets the header fields with which browsers protect a site, and redirects to HTTPS.
-- A handler may set the fields again.

local options = require "luaserve.options"
local usage = require "luaserve.usage"
local guard = require("luaserve.router").guard

local find, format, gsub, type = string.find, string.format, string.gsub, type

-- secure_headers is a SecureHeaders: header fields with which browsers protect a site, `require "luaserve.secure_headers"`.
local secure_headers = {}

local year_ms = 31536000 * 1000
local secure_options = {
  content_security_policy = true, -- string|false - default "object-src 'none'; base-uri 'self'; frame-ancestors 'self'"
  frame_options = true, -- string|false - X-Frame-Options; default "SAMEORIGIN"
  referrer_policy = true, -- string|false - default "strict-origin-when-cross-origin"
  opener_policy = true, -- string|false - Cross-Origin-Opener-Policy; default "same-origin"
  permissions_policy = true, -- string|false - default: none
  hsts = { "hsts_ms", "seconds", 0, 10 * year_ms, 31536000, none = -1 }, -- seconds of Strict-Transport-Security, over HTTPS
  hsts_subdomains = { "hsts_subdomains", "flag" }, -- also for all subdomains
  https = { "https_port", "count", 1, 65535 }, -- redirect HTTP to HTTPS at this port, such as 443; default: no redirect
}
secure_headers.calls = {
  ["secure_headers"] = { secure_options, listed = true, optional = true }, -- SecureHeadersOptions
}

local fields = { -- option, field, default
  { "content_security_policy", "Content-Security-Policy", "object-src 'none'; base-uri 'self'; frame-ancestors 'self'" },
  { "frame_options", "X-Frame-Options", "SAMEORIGIN" },
  { "referrer_policy", "Referrer-Policy", "strict-origin-when-cross-origin" },
  { "opener_policy", "Cross-Origin-Opener-Policy", "same-origin" },
  { "permissions_policy", "Permissions-Policy", false },
}

-- redirect(req, res, port): to the same URL by HTTPS, with the same method (308; RFC 9110 section 15.4.9).
local function redirect(req, res, port)
  if not req.host then return 400, "the header Host is missing\n" end -- HTTP/1.0
  local target = gsub(req.target, "^%a+://[^/?]*", "") -- a client may send the whole URL
  if not find(target, "^/") then target = "/" .. target end
  return res:redirect("https://" .. req.host .. (port == 443 and "" or ":" .. port) .. target, 308)
end

-- secure_headers([options: SecureHeadersOptions]) -> middleware: Middleware
-- Makes middleware that sets these header fields, and X-Content-Type-Options, in each response.
local function new(...)
  local out, given = options.only("secure_headers", secure_headers.calls.secure_headers, "{ hsts_subdomains = true }", ...)
  local list = { { "X-Content-Type-Options", "nosniff" } }
  for _, field in ipairs(fields) do
    local option, name, value = field[1], field[2], field[3]
    if given[option] ~= nil then value = given[option] end
    usage.refuse(value and (type(value) ~= "string" or value == "" or find(value, "[%c]")), value,
      "secure_headers: %s must be a string, or false", option)
    local frame = option == "frame_options" and value and value:upper()
    usage.refuse(frame and frame ~= "DENY" and frame ~= "SAMEORIGIN", value,
      'secure_headers: frame_options must be "DENY" or "SAMEORIGIN"; content_security_policy can name sites, in frame-ancestors')
    if value then list[#list + 1] = { name, value } end
  end
  local hsts = out.hsts_ms >= 0
    and format("max-age=%d%s", out.hsts_ms // 1000, out.hsts_subdomains and "; includeSubDomains" or "")
  local https = out.https_port
  return guard(function(req, res, next)
    for i = 1, #list do
      local field = list[i]
      res:header(field[1], field[2])
    end
    if not req.secure and https then return redirect(req, res, https) end
    if hsts and req.secure then res:header("Strict-Transport-Security", hsts) end
    return next()
  end)
end

return setmetatable(secure_headers, { __call = function(_, ...) return new(...) end })
