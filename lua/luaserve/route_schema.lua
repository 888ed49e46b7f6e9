-- route_schema.lua - what a route says about itself: its descriptions, and the schemas of its requests, which are checked before its
-- handler runs. openapi.lua makes a document of it.

local check = require "luaserve.check"
local core = require "luaserve.core"
local options = require "luaserve.options"
local usage = require "luaserve.usage"

-- A site may replace the globals.
local concat, find, gsub, utf8_len = table.concat, string.find, string.gsub, utf8.len
local ipairs, next, pairs, rawget, setmetatable = ipairs, next, pairs, rawget, setmetatable
local tostring, type = tostring, type

-- The methods of operations in OpenAPI.
local route_schema = { methods = { GET = "get", PUT = "put", POST = "post", DELETE = "delete", OPTIONS = "options", HEAD = "head",
  PATCH = "patch" } }

local as_given = { "summary", "description", "id", "deprecated", "hidden", "null", "tags", "security" }
local with_body = { json = true, form = true, parts = true }
local without_body = { GET = true, HEAD = true }
local only_described = { "summary", "description", "id", "tags", "deprecated", "parts", "responses", "security" }
local response_names = { description = true, json = true, type = true, headers = true }

local function check_list(call, name, value)
  usage.check(value, "table?", '%s: %s must be a list of names, such as { "items" }', call, name)
  for i, one in pairs(value or {}) do
    if type(i) ~= "number" or type(one) ~= "string" then
      usage.error('%s: %s must be a list of names, such as { "items" }; got %s in it', call, name, usage.quote(one))
    end
  end
end

-- as_check(call, name, schema [, converts]) -> a check. Its errors begin with the call and the name.
local function as_check(call, name, schema, converts)
  if check.is(schema) then return check.copy(schema, converts) end
  return check.make(call .. ": " .. name, schema, converts)
end

-- A check of an object, the fields of which are `known` if that is given, or names of header fields.
local function fields_of(call, name, schema, known, of_header)
  local made = as_check(call, name, schema, true)
  if made.node.kind ~= "object" then usage.error("%s: %s must be a table of fields", call, name) end
  for _, field in ipairs(made.node.fields) do
    local node, item = field[2], field[2].item or {}
    if node.fields or item.fields or item.item then
      usage.error("%s: %s: %s: there are no fields within fields", call, name, field[1])
    elseif node.kind == "table" or item.kind == "table" then
      usage.error('%s: %s: %s: a text is never a "table"; write { "string" } for all values of the name', call, name, field[1])
    elseif of_header and not options.is_token(field[1]) then
      usage.error('%s: %s: %s is no name of a header field, such as "X-Rows"', call, name, usage.quote(field[1]))
    elseif known and known[field[1]] and (node.optional or node.default ~= nil) then
      usage.error('%s: params: %s: a parameter of the path is never absent; write it without "?", optional and default', call, field[1])
    elseif known and not known[field[1]] then
      usage.error("%s: params: %s is no parameter of the path%s", call, usage.quote(field[1]),
        next(known) and usage.suggest(field[1], known) or "; it has none")
    end
  end
  return made
end

-- The node of a form with files, such as { title = "string", photo = "file", more = { "file?" } }.
local function parts_of(call, parts)
  local node = { kind = "object", fields = {} }
  usage.check(parts, "table", '%s: parts must be a table such as { title = "string", photo = "file" }', call)
  for name, schema in pairs(parts) do
    local one, list = schema, type(schema) == "table" and type(schema[1]) == "string"
    if list then one = schema[1] end
    local mark = type(one) == "string" and one:match "^file(%??)$"
    local is = type(one) == "table" and not check.is(one) and one.is or one
    if not mark and type(is) == "string" and find(is, "^files?%??$") then
      usage.error('%s: parts: %s: a file is written as "file" or "file?", several as { "file" }, without limits', call, tostring(name))
    end
    local field = mark and { kind = "file", optional = mark == "?" or nil } or as_check(call, "parts: " .. tostring(name), schema, true).node
    node.fields[#node.fields + 1] = { name, mark and list and { kind = "list", item = field } or field }
  end
  table.sort(node.fields, function(a, b) return a[1] < b[1] end)
  return node
end

local function responses_of(call, responses)
  local read = {}
  usage.check(responses, "table", '%s: responses must be a table by status, such as { [404] = "no such item" }', call)
  if next(responses) == nil then usage.error('%s: responses must have a status, such as { [404] = "no such item" }', call) end
  for status, one in pairs(responses) do
    local key = tostring(status)
    if read[key] then usage.error("%s: responses: the status %s is there twice, as number and as text", call, key) end
    if not find(key, "^[1-5]%d%d$") and not find(key, "^[1-5]XX$") and key ~= "default" then
      usage.error('%s: responses: a status is a number such as 404, "4XX" or "default"; got %s', call, usage.quote(status))
    end
    local name = "responses[" .. key .. "]"
    if type(one) == "string" then one = { description = one } elseif check.is(one) then one = { json = one } end
    usage.check(one, "table", "%s: %s must be a text, a check of ls.check or a table such as { json = schema }", call, name)
    for option in pairs(one) do
      if not response_names[option] then
        local hint = usage.suggest(option, response_names)
        usage.error("%s: %s: unknown option %s%s", call, name, usage.quote(option),
          hint ~= "" and hint or "; a schema is written as { json = schema }")
      end
    end
    usage.check(one.description, "string?", "%s: %s: description must be a string", call, name)
    usage.check(one.type, "string?", '%s: %s: type must be a media type such as "text/csv"', call, name)
    read[key] = { description = one.description, type = one.type,
      json = one.json ~= nil and as_check(call, name .. ": json", one.json) or nil,
      headers = one.headers and fields_of(call, name .. ": headers", one.headers, nil, true) }
  end
  return read
end

local readers = {
  params = function(req) return req.params end,
  query = function(req) return req.query_all end,
  headers = function(req, made)
    local values = {}
    for _, field in ipairs(made.node.fields) do values[field[1]] = req.headers[field[1]] end
    return values
  end,
}
-- What is wrong, with a short text that was given: all of a URL is text.
local function named(text, given)
  if type(given) == "table" then given = given[1] end
  if type(given) ~= "string" or #given > 60 or not utf8_len(given) or find(given, "%c") then return text end
  return (gsub(text, "got a string$", function() return "got " .. usage.quote(given) end))
end

-- The checked parameters of a query, for luaserve dev: the log says once when the handler reads one that the schema leaves out.
local function watched(values, given)
  return setmetatable(values, { __index = function(_, name)
    if rawget(given, name) == nil then return nil end
    local line = ("%s: reads req.query.%s, which the request has and the option query of the route has not: it is nil; add it to the schema")
      :format(usage.caller() or "?", tostring(name))
    if core.dev.once(line) then core.log("warn", line) end
  end })
end

local replaced = { params = core.params, query = core.set_query }
local order = { "params", "query", "headers" }

-- The handler, after the checks: a request that does not fit is answered with 422 and all that is wrong outside of its body.
local function checked(doc, fn)
  local body = doc.json and "json" or doc.form and "form"
  local settings = { null = doc.null }
  return function(req, ...)
    local wrong
    for _, name in ipairs(order) do
      local made = doc[name]
      if made then
        local given = readers[name](req, made)
        local values, errors = made(given)
        if values and core.dev and name == "query" then watched(values, given) end
        if values and replaced[name] then replaced[name](req, values) end
        for path, text in pairs(errors or {}) do
          wrong = wrong or {}
          wrong[name .. "." .. path] = name == "headers" and text or named(text, given[path])
        end
      end
    end
    if wrong then check.refuse(req, wrong) end
    if body then core.own(req, body, check.read_body(body, req, doc[body], settings)) end
    return fn(req, ...)
  end
end

-- read(call, route, given): the options `given` of a route as route.doc, and route.fn with the checks. Raises.
function route_schema.read(call, route, given)
  local doc, bodies = { fn = route.fn }, {}
  for _, name in ipairs(as_given) do doc[name] = given[name] end
  for _, name in ipairs(route_schema.methods[route.method] and {} or only_described) do
    if given[name] ~= nil then
      usage.error("%s: app:openapi does not show a route for %s: %s has no effect; write app:get, app:post ..., or leave it out", call,
        route.method == "any" and "any method" or route.method, name)
    end
  end
  for name in pairs(with_body) do
    if given[name] ~= nil then bodies[#bodies + 1] = name end
  end
  table.sort(bodies)
  if bodies[2] then usage.error("%s: give one of %s", call, concat(bodies, " and ")) end
  if bodies[1] and without_body[route.method] then
    usage.error("%s: a %s request has no body: %s belongs to another method; write query for parameters", call, route.method, bodies[1])
  end
  if doc.null ~= nil and given.json == nil then usage.error("%s: null belongs to json", call) end
  check_list(call, "tags", given.tags)
  if given.security ~= false then check_list(call, "security", given.security) end
  local known = {}
  for _, segment in ipairs(route.segments) do known[segment.param or segment.rest or "/"] = segment.text == nil or nil end
  for _, name in ipairs(order) do
    doc[name] = given[name] ~= nil and fields_of(call, name, given[name], name == "params" and known or nil, name == "headers") or nil
  end
  if given.json ~= nil then
    doc.json = as_check(call, "json", given.json)
    if doc.json.node.kind ~= "object" and doc.json.node.kind ~= "list" then
      usage.error('%s: json must be a table of fields, or of a list: { "string" }', call)
    end
  end
  doc.form = given.form ~= nil and fields_of(call, "form", given.form) or nil
  if route.method == "PATCH" then
    for _, name in ipairs { "json", "form" } do if doc[name] then check.for_patch(call .. ": " .. name, doc[name]) end end
  end
  doc.parts = given.parts ~= nil and parts_of(call, given.parts) or nil
  doc.responses = given.responses ~= nil and responses_of(call, given.responses) or nil
  route.doc = doc
  if doc.params or doc.query or doc.headers or doc.json or doc.form then
    doc.checks = true
    route.fn = checked(doc, route.fn)
  end
end

return route_schema
