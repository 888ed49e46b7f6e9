-- cors.lua - middleware that lets pages of other sites read responses (Cross-Origin Resource Sharing, the CORS protocol of
-- the Fetch standard).

local options = require "luaserve.options"
local router = require "luaserve.router"
local usage = require "luaserve.usage"

local concat, find, format, lower, type = table.concat, string.find, string.format, string.lower, type

-- cors is a Cors: middleware that lets pages of other sites read responses, `require "luaserve.cors"`.
local cors = {}

local cors_options = {
  origins = true, -- "*"|string[]|fun(origin: string, req: Request): any - the sites that may
  credentials = { "credentials", "flag" }, -- with cookies and logins of the browser; not for "*"
  methods = true, -- string[] - default GET, HEAD, POST, PUT, PATCH, DELETE
  headers = true, -- string[] - request headers that scripts may set; default: those that they ask for
  expose = true, -- string[] - response headers that scripts may read besides the usual ones
  max_age = { "max_age_ms", "seconds", 0, 86400000, 600 }, -- seconds that browsers keep the answer to a preflight request
}
cors.calls = { ["cors"] = { cors_options, listed = true } } -- CorsOptions

-- names(given, option, default) -> the names of a list, separated by commas. Raises.
local function names(given, option, default)
  local list = given[option]
  if list == nil then return default end
  usage.refuse(type(list) ~= "table" or #list == 0 or not usage.is_list(list), list, "cors: %s must be a list of names", option)
  for _, name in ipairs(list) do
    if not options.is_token(name) then usage.error("cors: %s: invalid name %s", option, usage.quote(name)) end
  end
  return concat(list, ", ")
end

-- allower(origins) -> a function that tells whether an origin may; true: each one. Raises.
local function allower(origins)
  if origins == "*" then return true end
  if type(origins) == "function" then return usage.decider("cors: origins", origins) end
  usage.refuse(type(origins) ~= "table" or #origins == 0, origins,
    'cors: origins must be "*", a list such as { "https://app.example" } or a function')
  local set = {}
  for _, origin in ipairs(usage.check_list("cors", "origins", origins)) do
    set[options.origin("cors", origin)] = true
  end
  return function(origin) return set[lower(origin)] end
end

-- Raises when a login stands before it: a preflight request has none, and would get its 401.
local function check_place(place)
  for i = 1, (place.n or 1) - 1 do
    local use = place.uses[i]
    if (router.scheme(use.inner or use.fn) or (router.rules(use) or {}).required) and router.meets(use, place.uses[place.n]) then
      error(("%s: cors: the login of %s comes before it, and answers preflight requests, which have none, with 401: put cors before it")
        :format(place.where, use.where), 0)
    end
  end
end

-- cors(options: CorsOptions) -> middleware: Middleware
-- Makes middleware that adds the header fields of CORS and answers preflight requests.
local function new(...)
  local out, given = options.only("cors", cors.calls.cors, '{ origins = { "https://app.example" } }', ...)
  local allows = allower(given.origins)
  if allows == true and out.credentials then
    usage.error('cors: credentials = true needs the list of origins: with "*" each site could act for your visitors')
  end
  local methods = names(given, "methods", "GET, HEAD, POST, PUT, PATCH, DELETE"):upper()
  local headers, expose = names(given, "headers"), names(given, "expose")
  local max_age = format("%d", out.max_age_ms // 1000)

  -- preflight(res, asked): the fields for an OPTIONS request before the one that a script makes.
  local function preflight(res, asked)
    res:header("Access-Control-Allow-Methods", methods):header("Access-Control-Max-Age", max_age)
    local allowed = headers or asked and not find(asked, "[^%w!#$%%&'*+.^_`|~, -]") and asked or nil
    if allowed then res:header("Access-Control-Allow-Headers", allowed) end
  end

  return router.place(function(req, res, next)
    local fields = req.headers
    local origin = fields.origin
    local is_preflight = req.method == "OPTIONS" and origin and fields["access-control-request-method"] ~= nil
    if allows ~= true then res:header("Vary", "Origin") end
    if origin and (allows == true or allows(origin, req)) then
      res:header("Access-Control-Allow-Origin", allows == true and "*" or origin)
      if out.credentials then res:header("Access-Control-Allow-Credentials", "true") end
      if is_preflight then preflight(res, fields["access-control-request-headers"])
      elseif expose then res:header("Access-Control-Expose-Headers", expose) end
    end
    if is_preflight then return 204 end
    next()
    if allows == true or res.sent then return end
    local vary = res:header("Vary") or ""
    if not find(lower(vary), "origin", 1, true) then res:header("Vary", vary == "" and "Origin" or vary .. ", Origin") end
  end, { compiled = check_place })
end

return setmetatable(cors, { __call = function(_, ...) return new(...) end })
