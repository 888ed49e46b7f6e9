-- request_id.lua - middleware that names a request for the logs of several servers: by the identifier that a trusted proxy
-- sends, else by req.id.

local core = require "luaserve.core"
local options = require "luaserve.options"
local guard = require("luaserve.router").guard

local lower = string.lower
local name_request = core.request_id

-- request_id is a RequestId: middleware that names requests, `require "luaserve.request_id"`.
local request_id = {}

local id_options = {
  -- string - the field of the request and of the response; default "X-Request-Id"
  header = { "header", "is", options.is_token, "the name of a header field", "X-Request-Id" },
}
request_id.calls = { ["request_id"] = { id_options, listed = true, optional = true } } -- RequestIdOptions

-- request_id([options: RequestIdOptions]) -> middleware: Middleware
-- Makes middleware that sets req.request_id and a field of the response. The log names the request so.
local function new(...)
  local out = options.only("request_id", request_id.calls.request_id, '{ header = "X-Request-Id" }', ...)
  local header, field = out.header, lower(out.header)
  return guard(function(req, res, next)
    local id = name_request(req, field)
    req.request_id = id
    res:header(header, id)
    return next()
  end)
end

return setmetatable(request_id, { __call = function(_, ...) return new(...) end })
