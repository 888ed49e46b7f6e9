-- etag.lua - middleware that gives whole responses an entity tag, and answers a client that has the same one with 304.

local core = require "luaserve.core"
local json = require "luaserve.json"
local usage = require "luaserve.usage"

local tostring, type = tostring, type
local tag_of, is_buffer = core.etag, core.is_buffer

-- etag is an Etag: middleware that gives responses an entity tag, `require "luaserve.etag"`.
local etag = {}

-- etag() -> middleware: Middleware
-- Makes middleware that adds ETag, a digest of the body, to responses to GET and HEAD with the status 200 that have none,
-- and answers conditional requests.
local function new(...)
  usage.no_more("etag()", nil, ...)
  return function(req, res, next)
    next()
    local method = req.method
    if res.sent or (method ~= "GET" and method ~= "HEAD") or res:status() ~= 200 or res:header("ETag") then return end
    local body = res:body()
    if body == nil then return end -- a file has one; none can be before a stream
    local media = res:header("Content-Type")
    local encoded = type(body) == "table" and json.encode_sorted(body)
    local tag, status = tag_of(req, encoded or is_buffer(body) and body:tostring() or tostring(body), media or "")
    res:header("ETag", tag)
    if status then
      res:header("Content-Type", nil)
      return status
    elseif encoded then
      res:send(encoded)
      if media then res:type(media) end
    end
  end
end

return setmetatable(etag, { __call = function(_, ...) return new(...) end })
