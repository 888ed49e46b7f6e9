-- inject.lua - app:inject: checks the request and makes the response.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
local reply = require "luaserve.reply"

local inject = {}

local request_fields = {
  method = true, -- string - default "GET"
  path = true, -- string - the request target with its query; default "/"
  headers = true, -- Headers - header fields
  body = true, -- string - the body
  json = true, -- any - in place of body: a value that is sent as JSON
  form = true, -- table - in place of body: fields that are sent as a form
}
inject.calls = { ["app:inject"] = { request_fields } } -- InjectRequest

-- What becomes a body, its Content-Type, and what encodes it.
local encoded = {
  json = { "application/json", function(value) return require("luaserve.json").encode(value) end },
  form = { "application/x-www-form-urlencoded", function(fields) return require("luaserve.url").query(fields) end },
}

local function check_header(name)
  if type(name) == "string" then return end
  usage.error('app:inject: headers must be a table such as { ["Content-Type"] = "text/plain" }; got the key %s',
    usage.quote(name))
end

-- The names and values of the fields of a request, in turn.
local function fields_of(headers, body, content_type)
  local list, given = {}, {}
  local function add(name, value)
    list[#list + 1], list[#list + 2] = name, value
    given[name:lower()] = true
  end
  for _, field in ipairs(options.fields(headers or {}, check_header)) do
    add(field[1], tostring(field[2]):match("^[ \t]*(.-)[ \t]*$"))
  end
  if not given.host then add("Host", "localhost") end
  if content_type and not given["content-type"] then add("Content-Type", content_type) end
  if body and not given["content-length"] then add("Content-Length", tostring(#body)) end
  return list
end

-- run(compile, app, request) -> response | nil, message, code. compile(app) returns the compiled router of the app.
function inject.run(compile, app, request)
  usage.check(request, "table", 'app:inject takes a table: app:inject{ method = "GET", path = "/" }')
  options.take("app:inject", request, inject.calls["app:inject"], {})
  local method, path, text, content_type = request.method or "GET", request.path or "/", request.body, nil
  for name, kind in pairs(encoded) do
    if request[name] ~= nil then
      if text ~= nil then usage.error("app:inject: give one of json, form and body") end
      local ok, made = pcall(kind[2], request[name])
      if not ok then usage.error("app:inject: %s: %s", name, made:match("ls%.[%a.]+:? (.*)") or made) end
      text, content_type = made, kind[1]
    end
  end
  for name, value in pairs { method = method, path = path, body = text } do
    usage.check(value, "string", "app:inject: %s must be a string", name)
  end
  usage.check(request.headers, "table?", "app:inject: headers must be a table")
  local dispatcher = compile(app)
  local status, fields, body, after = core.inject(dispatcher.dispatch, dispatcher.failed,
    method, path, fields_of(request.headers, text, content_type), text, options.max_body_default())
  if not status and body == "EBUSY" then
    usage.error('app:inject: the handler of %s %s waits, which is not possible while the site loads; call app:inject in '
      .. 'ls.init(function() ... end) or ls.on("start", function() ... end)', method, path)
  elseif not status then
    return nil, fields, body
  end
  local headers, trailers = reply.headers(), reply.headers()
  for n = 1, #fields, 2 do reply.add(headers, fields[n], fields[n + 1]) end
  for n = 1, #after, 2 do reply.add(trailers, after[n], after[n + 1]) end
  return reply.new(status, headers, body, trailers)
end

return inject
