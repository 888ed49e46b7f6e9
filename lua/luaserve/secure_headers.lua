-- secure_headers.lua - middleware that sets the header fields with which browsers protect a site. A handler may set them
-- anew.

local options = require "luaserve.options"
local usage = require "luaserve.usage"
usage.mark_internal()

local find, format, type = string.find, string.format, type

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
}
secure_headers.calls = {
  ["secure_headers"] = { secure_options, listed = true }, -- SecureHeadersOptions
}

local fields = { -- option, field, default
  { "content_security_policy", "Content-Security-Policy", "object-src 'none'; base-uri 'self'; frame-ancestors 'self'" },
  { "frame_options", "X-Frame-Options", "SAMEORIGIN" },
  { "referrer_policy", "Referrer-Policy", "strict-origin-when-cross-origin" },
  { "opener_policy", "Cross-Origin-Opener-Policy", "same-origin" },
  { "permissions_policy", "Permissions-Policy", false },
}

-- secure_headers([options: SecureHeadersOptions]) -> middleware: Middleware
-- Makes middleware that sets these header fields, and X-Content-Type-Options, in each response.
local function new(given, ...)
  if given ~= nil and type(given) ~= "table" then
    usage.error("secure_headers takes a table of options; got %s", usage.quote(given))
  end
  usage.no_more("secure_headers(options)", given, ...)
  given = given or {}
  local out = options.take("secure_headers", given, secure_headers.calls.secure_headers, {})
  local list = { { "X-Content-Type-Options", "nosniff" } }
  for _, field in ipairs(fields) do
    local option, name, value = field[1], field[2], field[3]
    if given[option] ~= nil then value = given[option] end
    if value and (type(value) ~= "string" or value == "" or find(value, "[%c]")) then
      usage.error("secure_headers: %s must be a string, or false; got %s", option, usage.quote(value))
    end
    if value then list[#list + 1] = { name, value } end
  end
  local hsts = out.hsts_ms >= 0
    and format("max-age=%d%s", out.hsts_ms // 1000, out.hsts_subdomains and "; includeSubDomains" or "")
  return function(req, res, next)
    for i = 1, #list do
      local field = list[i]
      res:header(field[1], field[2])
    end
    if hsts and req.secure then res:header("Strict-Transport-Security", hsts) end
    return next()
  end
end

return setmetatable(secure_headers, { __call = function(_, ...) return new(...) end })
