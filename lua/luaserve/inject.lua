-- inject.lua - app:inject: checks the request, passes it to the app and makes the response; the body, the cookies and the
-- redirects are those of ls.fetch.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
local reply = require "luaserve.reply"
local trim = require("luaserve.text").trim

local inject = {}

local function is_jar(value) return require("luaserve.cookie_jar").is(value) end

local request_fields = {
  method = { "method", "is", "string", "a string" }, -- string - default GET, or POST with a body
  path = { "path", "is", "string", "a string", "/" }, -- string - the request target with its query; default "/"
  -- table<string, any> - appended to the path, as ls.url.query makes it
  query = { "query", "is", "table", "a table such as { page = 2 }" },
  headers = { "headers", "is", "table", "a table" }, -- Headers - header fields
  body = { "body", "is", "string", "a string" }, -- string - the body
  json = true, -- any - in place of body: a value that is sent as JSON
  form = true, -- table - in place of body: fields that are sent as a form
  parts = true, -- FetchPart[] - in place of body: a form with files
  -- CookieJar - sends its cookies, and keeps those that the app sets
  jar = { "jar", "is", is_jar, "what ls.cookie_jar returns" },
  redirects = { "redirects_max", "count", 0, 100, 0, none = 0 }, -- that are followed, within the app
}
inject.calls = { ["app:inject"] = { request_fields } } -- InjectRequest

local bodies <const> = { "json", "form", "parts", "body" }

-- The text of the body, and its Content-Type.
local function read_body(request)
  local name = options.one_of("app:inject", request, bodies)
  if not name or name == "body" then return request.body end
  local body, content_type = require("luaserve.fetch_parts").body("app:inject", name, request[name])
  if type(body) ~= "function" then return tostring(body), content_type end
  local pieces = {}
  for piece in body do pieces[#pieces + 1] = tostring(piece) end
  return table.concat(pieces), content_type
end

local function check_header(name)
  if type(name) == "string" then return end
  usage.error('app:inject: headers must be a table such as { ["Content-Type"] = "text/plain" }; got the key %s',
    usage.quote(name))
end

-- send(dispatcher, one) -> response | nil, message, code. one: { method =, at = { target =, authority = }, fields = a list of
-- { name, value }, body =, jar = }.
local function send(dispatcher, one)
  local list = {}
  local function add(name, value) list[#list + 1], list[#list + 2] = name, value end
  for _, field in ipairs(one.fields) do add(field[1], field[2]) end
  if not options.field(one.fields, "host") then add("Host", one.at.authority) end
  if one.body and not options.field(one.fields, "content-length") then add("Content-Length", tostring(#one.body)) end
  local cookies = one.jar and one.jar:field(one.at)
  if cookies then add("Cookie", cookies) end
  local status, fields, body, after = core.inject(dispatcher.dispatch, dispatcher.failed,
    one.method, one.at.target, list, one.body, options.max_body_default())
  if not status and body == "EBUSY" then
    usage.error('app:inject: the handler of %s %s waits, which is not possible while the site loads; call app:inject in '
      .. 'ls.init(function() ... end) or ls.on("start", function() ... end)', one.method, one.at.target)
  elseif not status then
    return nil, fields, body
  end
  local headers, trailers = reply.headers(), reply.headers()
  for n = 1, #fields, 2 do reply.add(headers, fields[n], fields[n + 1]) end
  for n = 1, #after, 2 do reply.add(trailers, after[n], after[n + 1]) end
  if one.jar then one.jar:keep(one.at, (headers["set-cookie"] or ""):gmatch("[^\n]+")) end
  return reply.new(status, headers, body, trailers)
end

-- read(request) -> what send() takes. Raises.
local function read(request)
  usage.check(request, "table", 'app:inject takes a table: app:inject{ method = "GET", path = "/" }')
  local one = options.take("app:inject", request, inject.calls["app:inject"], {})
  local path, text, content_type = one.path, read_body(request)
  one.method, one.body = one.method or text ~= nil and "POST" or "GET", text
  usage.refuse(not path:find "^/" and path ~= "*" and not path:find("://", 1, true), path, 'app:inject: path must begin with "/"')
  local query = require("luaserve.fetch_parts").text("app:inject", "query", request.query or {})
  if query ~= "" then path = path .. (path:find("?", 1, true) and "&" or "?") .. query end
  one.fields = options.fields(request.headers or {}, check_header)
  for _, field in ipairs(one.fields) do field[2] = trim(tostring(field[2])) end
  if content_type and not options.field(one.fields, "content-type") then
    one.fields[#one.fields + 1] = { "Content-Type", content_type }
  end
  local authority = options.field(one.fields, "host") or "localhost"
  one.at = { authority = authority, target = path }
  if one.jar and options.field(one.fields, "cookie") then usage.error("app:inject: give one of jar and the header Cookie") end
  if one.jar or one.redirects_max > 0 then
    local at, why = require("luaserve.fetch_rules").parse("http://" .. authority .. path)
    if not at then usage.error("app:inject: jar and redirects need a URL; invalid URL http://%s%s: %s", authority, path, why) end
    one.at = at
  end
  return one
end

-- run(compile, app, request) -> response | nil, message, code. compile(app) returns the compiled router of the app.
function inject.run(compile, app, request)
  local one, dispatcher = read(request), compile(app)
  local origin = one.at.origin
  for followed = 0, one.redirects_max do
    local response, message, code = send(dispatcher, one)
    local location = response and response.headers.location
    local rules = location and one.redirects_max > 0 and require "luaserve.fetch_rules"
    if not rules or not rules.is_redirect(response.status) then return response, message, code end
    local at = rules.parse(rules.join(one.at, location))
    if not at or at.origin ~= origin then return response end -- it leads out of the app
    if followed == one.redirects_max then return nil, ("more than %d redirects"):format(followed), "ELIMIT" end
    one = rules.redirect(one, response.status, location)
  end
end

return inject
