-- test/client.lua - a small HTTP/1.1 client over ls.connect for the requests of tests: one connection per request.

local json = require "luaserve.json"
local reply = require "luaserve.reply"
local trim = require("luaserve.text").trim
local usage = require "luaserve.usage"
local options_of = require "luaserve.options"
local form_query = require("luaserve.url").query

local client = {}

local MESSAGE_MAX = 256 * 1024 * 1024 -- bytes of a body

local request_options = { headers = true, json = true, form = true, body = true, timeout = true }

-- check(call, path, options): raises unless the arguments of a request are right.
function client.check(call, path, options)
  usage.refuse(type(path) ~= "string" or path:sub(1, 1) ~= "/" or path:find("[%s%c]"), path,
    '%s: the path must begin with "/" and have no spaces', call)
  usage.check(options, "table", "%s: the options must be a table such as { json = { ... } }", call)
  options_of.check_names(call, options, request_options)
  options_of.one_of(call, options, { "json", "form", "body" })
  usage.check(options.body, "string?", "%s: body must be a string", call)
  usage.check(options.form, "table?", "%s: form must be a table of fields", call)
  usage.check(options.headers, "table?", '%s: headers must be a table such as { ["X-Token"] = "secret" }', call)
  for name in pairs(options.headers or {}) do
    if type(name) ~= "string" then
      usage.error('%s: headers must be a table such as { ["X-Token"] = "secret" }; got the key %s', call, usage.quote(name))
    end
  end
end

-- The text of the request, with a body that `options` describes.
local function request_text(method, path, host, options)
  local body, kind = options.body, nil
  if options.json ~= nil then
    body, kind = json.encode(options.json), "application/json"
  elseif options.form then
    body, kind = form_query(options.form), "application/x-www-form-urlencoded"
  end
  local lines, given = { method .. " " .. path .. " HTTP/1.1" }, {}
  for name in pairs(options.headers or {}) do given[name:lower()] = true end
  for _, field in ipairs(options_of.fields(options.headers or {})) do
    lines[#lines + 1] = field[1] .. ": " .. tostring(field[2])
  end
  if not given.host then table.insert(lines, 2, "Host: " .. host) end
  if not given.connection then lines[#lines + 1] = "Connection: close" end
  if kind and not given["content-type"] then lines[#lines + 1] = "Content-Type: " .. kind end
  if body and not given["content-length"] then lines[#lines + 1] = "Content-Length: " .. #body end
  return table.concat(lines, "\r\n") .. "\r\n\r\n" .. (body or "")
end

local function read_fields(sock, headers)
  while true do
    local line, message = sock:receive("*l")
    if not line then return nil, message end
    if line == "" then return true end
    local name, value = line:match("^([^:]+):(.*)$")
    if not name then return nil, "malformed header line " .. usage.quote(line) end
    reply.add(headers, name, trim(value))
  end
end

local function read_chunked(sock, trailers)
  local parts = {}
  while true do
    local line, message = sock:receive("*l")
    if not line then return nil, message end
    local size = tonumber(line:match("^%x+"), 16)
    if not size then return nil, "malformed chunk size " .. usage.quote(line) end
    if size == 0 then
      local ok, why = read_fields(sock, trailers)
      if not ok then return nil, why end
      return table.concat(parts)
    end
    local data
    data, message = sock:receive(size)
    if not data then return nil, message end
    parts[#parts + 1] = data
    line, message = sock:receive("*l")
    if line ~= "" then return nil, message or "malformed chunk" end
  end
end

local function read_body(sock, method, status, headers, trailers)
  if method == "HEAD" or status == 204 or status == 304 then return "" end
  if headers["transfer-encoding"] then return read_chunked(sock, trailers) end
  local length = headers["content-length"]
  if length == "0" then return "" end
  if length then return sock:receive(tonumber(length)) end
  return sock:receive("*a")
end

-- exchange(sock, method, path, host, options) -> response | nil, message. Sends the request and reads its response, and
-- those before it with a status 1xx. The response has status, headers, body and json().
function client.exchange(sock, method, path, host, options)
  local ok, message = sock:send(request_text(method, path, host, options))
  if not ok then return nil, message end
  while true do
    local line
    line, message = sock:receive("*l")
    if not line then return nil, message end
    local status = tonumber(line:match("^HTTP/1%.[01] (%d%d%d)"))
    if not status then return nil, "malformed status line " .. usage.quote(line) end
    local headers, trailers = reply.headers(), reply.headers()
    ok, message = read_fields(sock, headers)
    if not ok then return nil, message end
    if status >= 200 then
      local body, why = read_body(sock, method, status, headers, trailers)
      if not body then return nil, "in the body of the response (status " .. status .. "): " .. tostring(why) end
      return reply.new(status, headers, body, trailers)
    end
  end
end

client.sock_options = { max_line = 256 * 1024, max_message = MESSAGE_MAX }

return client
