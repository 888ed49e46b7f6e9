-- reply.lua - the responses that a client gets: of app:inject, and of the servers of tests.

local json = require "luaserve.json"
local usage = require "luaserve.usage"

local reply = {}

local headers_meta = {
  __index = function(headers, name)
    if type(name) ~= "string" then return nil end
    return rawget(headers, name:lower())
  end,
}

-- headers() -> an empty table of header fields; lookups ignore case.
function reply.headers() return setmetatable({}, headers_meta) end

-- add(headers, name, value): adds a field. The values of a repeated field are joined with ", ", those of Set-Cookie with a
-- line feed.
function reply.add(headers, name, value)
  name = name:lower()
  local before = rawget(headers, name)
  local separator = name == "set-cookie" and "\n" or ", "
  headers[name] = before and before .. separator .. value or value
end

-- response is an InjectResponse: the response that a client gets.
-- response.status: integer - the status
-- response.headers: table<string, string> - header fields; names are found in any case
-- response.trailers: table<string, string> - fields after the body; as headers
-- response.body: string - the body
local methods = {}
local meta = { __index = methods }

-- response:json() -> value
-- Decodes the body. Raises if it is not JSON.
function methods:json(...)
  usage.no_more("response:json()", nil, ...)
  local value, message = json.decode(self.body)
  if value ~= nil then return value end
  usage.error("the body of the response (status %d) is not JSON: %s; it is %s", self.status, message,
    usage.quote(self.body))
end

-- new(status, headers, body [, trailers]) -> a response
function reply.new(status, headers, body, trailers)
  return setmetatable({ status = status, headers = headers, body = body, trailers = trailers or reply.headers() }, meta)
end

return reply
