-- inject.lua - app:inject: checks the request and makes the response.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
local reply = require "luaserve.reply"
usage.mark_internal()

local inject = {}

local request_fields = {
  method = true, -- string - default "GET"
  path = true, -- string - the request target with its query; default "/"
  headers = true, -- Headers - header fields
  body = true, -- string - the body
  json = true, -- any - in place of body: a value that is sent as JSON
}
inject.calls = {
  ["app:inject"] = { request_fields }, -- InjectRequest
}

local function check_header(name)
  if type(name) ~= "string" then
    usage.error('app:inject: headers must be a table such as { ["Content-Type"] = "text/plain" }; got the key %s',
      usage.quote(name))
  end
end

-- The names and values of the fields of a request, in turn.
local function fields_of(headers, body, is_json)
  local list, given = {}, {}
  local function add(name, value)
    list[#list + 1], list[#list + 2] = name, value
    given[name:lower()] = true
  end
  for _, field in ipairs(options.fields(headers or {}, check_header)) do
    add(field[1], tostring(field[2]):match("^[ \t]*(.-)[ \t]*$"))
  end
  if not given.host then add("Host", "localhost") end
  if is_json and not given["content-type"] then add("Content-Type", "application/json") end
  if body and not given["content-length"] then add("Content-Length", tostring(#body)) end
  return list
end

-- run(compile, app, request) -> response | nil, message, code. compile(app) returns the compiled router of the app.
function inject.run(compile, app, request)
  if type(request) ~= "table" then
    usage.error('app:inject takes a table: app:inject{ method = "GET", path = "/" }; got %s', usage.quote(request))
  end
  options.take("app:inject", request, inject.calls["app:inject"], {})
  local method, path, text = request.method or "GET", request.path or "/", request.body
  if request.json ~= nil then
    if text ~= nil then usage.error("app:inject: give one of json and body") end
    local ok, encoded = pcall(require("luaserve.json").encode, request.json)
    if not ok then usage.error("app:inject: json: %s", encoded:match("ls%.json%.encode: (.*)") or encoded) end
    text = encoded
  end
  for name, value in pairs { method = method, path = path, body = text } do
    if type(value) ~= "string" then
      usage.error("app:inject: %s must be a string; got %s", name, usage.quote(value))
    end
  end
  if request.headers ~= nil and type(request.headers) ~= "table" then
    usage.error("app:inject: headers must be a table; got %s", usage.quote(request.headers))
  end
  local dispatcher = compile(app)
  local status, fields, body, behind = core.inject(dispatcher.dispatch, dispatcher.failed,
    method, path, fields_of(request.headers, text, request.json ~= nil), text, options.max_body_default())
  if not status and body == "EBUSY" then
    usage.error('app:inject: the handler of %s %s waits, which is not possible while the site loads; call app:inject in '
      .. 'ls.init(function() ... end) or ls.on("start", function() ... end)', method, path)
  elseif not status then
    return nil, fields, body
  end
  local headers, trailers = reply.headers(), reply.headers()
  for n = 1, #fields, 2 do reply.add(headers, fields[n], fields[n + 1]) end
  for n = 1, #behind, 2 do reply.add(trailers, behind[n], behind[n + 1]) end
  return reply.new(status, headers, body, trailers)
end

return inject
