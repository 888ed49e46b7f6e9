-- openapi.lua - app:openapi: an OpenAPI 3.1 document of the routes of an app, and a page that shows it.
--
-- The document is made while the site loads, when the routes are compiled; so a mistake in it is an error of the site. What a route
-- says about itself is route.doc (route_schema.lua), else the comment above it in the source.

local core = require "luaserve.core"
local description = require "luaserve.description"
local json = require "luaserve.json"
local json_schema = require "luaserve.json_schema"
local options = require "luaserve.options"
local methods = require("luaserve.route_schema").methods
local router = require "luaserve.router"
local usage = require "luaserve.usage"

-- A site may replace the globals.
local concat, sort, getinfo, open, require = table.concat, table.sort, debug.getinfo, io.open, require
local find, gsub, lower, match, sub = string.find, string.gsub, string.lower, string.match, string.sub
local ipairs, next, pairs, select, tonumber, tostring, type = ipairs, next, pairs, select, tonumber, tostring, type

local openapi = {}

local document_options = {
  title = { "title", "is", "string", "a string" }, -- string - the name of the API; default: that of the site's file
  version = { "version", "is", "string", "a string", "1.0.0" }, -- string - of the API; default "1.0.0"
  description = { "description", "is", "string", "a string" }, -- string - about the API as a whole
  servers = true, -- string[] - URLs of the API; default: where the document is
  tags = true, -- table<string, string> - descriptions of the tags of routes
  -- table<string, Check> - names of checks, which the document has once
  schemas = { "schemas", "is", "table", "a table of checks of ls.check by their names" },
  schemes = true, -- table<string, table> - of other middleware: { fn = middleware, type = "apiKey", name =, ["in"] = "cookie" }
  comments = { "comments", "flag", nil, nil, true }, -- comments above routes are their descriptions
  -- string|false - path of the page; default: that of the document without ".json"
  page = { "page", "is", function(value) return not value or type(value) == "string" end, "a path or false" },
  -- Middleware - lets those pass who may see both
  auth = { "auth", "is", "function", 'middleware, such as require "luaserve.basic_auth" { ... }' },
}
openapi.calls = { ["app:openapi"] = { document_options, optional = true, listed = true } } -- OpenApiOptions

local places = { { "params", "path" }, { "query", "query" }, { "headers", "header" } }
local scheme_fields = { apiKey = { "name", "in" }, http = { "scheme" }, oauth2 = { "flows" }, openIdConnect = { "openIdConnectUrl" },
  mutualTLS = {} }
local reserved = { accept = true, ["content-type"] = true, authorization = true } -- OpenAPI has them elsewhere
local refused = { ["400"] = { "BadBody", "The body is malformed" }, ["413"] = { "LargeBody", "The body is too large" },
  ["415"] = { "OtherBody", "The body has another Content-Type" } }
local invalid = { type = "object", required = json.array { "error", "fields" }, properties = { error = { type = "string" },
  fields = { type = "object", description = "What is wrong, by the path of the field",
    additionalProperties = { type = "string" } } } }

-- ---- comments ------------------------------------------------------------------------------------------------------

-- The lines of a source file, as all states of the site have loaded it; an empty list for one that cannot be read.
local function lines_of(path, known)
  if known[path] then return known[path] end
  local text, lines = core.kept_text(path), {}
  if not text then
    local file = open(path, "rb")
    text = file and file:read("a") or core.file_read(path, 16 * 1024 * 1024) or "" -- the latter in a packed program
    if file then file:close() end
    core.keep_text(path, text)
  end
  for line in (text .. "\n"):gmatch("(.-)\r?\n") do lines[#lines + 1] = line end
  known[path] = lines
  return lines
end

-- The text of the comment that ends above the line, or nil. A line of dashes, a directive and an annotation of an editor are
-- not part of it.
local function comment_above(lines, line)
  local found = {}
  for at = line - 1, 1, -1 do
    local text = match(lines[at] or "", "^%s*%-%-(.*)$")
    if not text or find(text, "%-%-%-%-") or find(text, "^%-?@") or find(text, "^%[=*%[") or find(text, "^%s*luacheck:") then break end
    table.insert(found, 1, (gsub(match(text, "^%-*%s?(.-)%s*$"), "^%s+$", "")))
  end
  return found[1] and concat(found, "\n")
end

-- The first sentence of a text, without its dot, and the rest; line ends within a paragraph become spaces.
local function sentences(text)
  text = gsub(gsub(text, "([^\n])\n([^\n%s*|-])", "%1 %2"), "^%s+", "")
  local first, rest = match(text, "^([^\n]-[^.%s])%.%s+(.*)$")
  if not first or find(first, "\n") then first, rest = match(text, "^([^\n]*)\n*(.*)$") end
  return (gsub(first, "%.$", "")), rest ~= "" and rest or nil
end

-- ---- operations ----------------------------------------------------------------------------------------------------

local function path_of(segments)
  local parts = {}
  for i, segment in ipairs(segments) do
    parts[i] = segment.text and core.url_encode(segment.text) or "{" .. (segment.param or segment.rest) .. "}"
  end
  return "/" .. concat(parts, "/")
end

-- The names of the nodes, and what makes schemas of them.
local function schemas_of(schemas)
  local names, components = {}, {}
  for name, made in pairs(schemas or {}) do names[made.node] = name end
  local function context(made, converts)
    local loose = made.convert and not converts
    return { names = loose and {} or names, unknown = made.unknown == "refuse" and "refuse" or nil, converts = converts or loose,
      loose = loose }
  end
  for name, made in pairs(schemas or {}) do components[name] = json_schema.whole(made.node, context(made)) end
  return function(made, converts) return json_schema.of(made.node, context(made, converts)) end, components
end

local function parameters(doc, segments, schema)
  local list, given = json.array {}, {}
  for _, place in ipairs(places) do
    local made = doc[place[1]]
    local whole = made and schema({ node = made.node, unknown = made.unknown }, true)
    if whole and whole["$ref"] then whole = json_schema.whole(made.node, { names = {}, converts = true }) end
    for _, field in ipairs(made and made.node.fields or {}) do
      local name, one = field[1], whole.properties[field[1]]
      local required, about = place[2] == "path", one.description
      for _, needed in ipairs(whole.required or {}) do required = required or needed == name end
      one.description, given[place[2] .. name] = nil, true
      if not (place[2] == "header" and reserved[lower(name)]) then
        list[#list + 1] = { name = name, ["in"] = place[2], required = required or nil, description = about, schema = one }
      end
    end
  end
  for _, segment in ipairs(segments) do
    local name = segment.param or segment.rest
    if name and not given["path" .. name] then
      list[#list + 1] = { name = name, ["in"] = "path", required = true, schema = { type = "string" },
        description = segment.rest and "The rest of the path, with its slashes" or nil }
    end
  end
  sort(list, function(a, b) return a["in"] .. " " .. a.name < b["in"] .. " " .. b.name end)
  return list[1] and list
end

local function body_of(doc, schema)
  local made = doc.json or doc.form or doc.parts and { node = doc.parts }
  if not made then return nil end
  local content = { schema = schema(made, not doc.json) }
  if doc.json then return { required = true, content = { ["application/json"] = content } } end
  return { required = true, content = {
    ["multipart/form-data"] = content, ["application/x-www-form-urlencoded"] = doc.form and content } }
end

local function response_of(key, one, schema)
  local text = tonumber(key) and core.status_text(tonumber(key)) or ""
  local out = { description = one.description or (text ~= "" and text or "Response") }
  if one.json or one.type then
    out.content = { [one.type or "application/json"] = one.json and { schema = schema(one.json) } or {} }
  end
  if one.headers then
    out.headers = {}
    for _, field in ipairs(one.headers.node.fields) do
      local made = json_schema.of(field[2], { names = {}, converts = true })
      out.headers[field[1]] = { description = made.description, schema = made }
      made.description = nil
    end
  end
  return out
end

-- Which requests of a route of these segments are at the path of middleware: "all", "some" or nil.
local function reach(at, segments)
  for i, one in ipairs(at) do
    local segment = segments[i]
    if not segment then return nil end
    if segment.rest then return i == #at and not one.text and "all" or "some" end
    if one.text and segment.text and lower(segment.text) ~= one.text then return nil end
    if one.text and not segment.text then
      for k = i + 1, #at do -- a later text may exclude it
        local later = segments[k]
        if later and later.rest then break end
        if not later or at[k].text and later.text and lower(later.text) ~= at[k].text then return nil end
      end
      return "some"
    end
  end
  return "all"
end

-- The requirement that the option security of a route states. Raises where it contradicts the middleware of luaserve.
local function stated(self, doc, where, found, used)
  local names = {}
  for _, name in ipairs(doc.security or {}) do
    local scheme = self.schemes[name]
    if not scheme then
      usage.error("%s: security: app:openapi has no scheme %s%s", where, usage.quote(name), usage.suggest(name, self.schemes))
    elseif scheme.module and not found[name] then
      usage.error("%s: security: the route does not run in %s: add the middleware, or, if middleware of your own asks for it, "
        .. "declare it: app:openapi(path, { schemes = { %s = { type = %q, scheme = %q } } })", where, scheme.module, name, scheme.type,
        scheme.scheme)
    end
    names[name], used[name] = json.array {}, found[name] and found[name].scheme or scheme
  end
  for name, one in pairs(found) do
    if one.known and one.reach == "all" and not names[name] then
      usage.error("%s: security: the route runs in middleware that asks for %s: leave the option out, or name it: "
        .. "security = { %q }; for a route without it, define the route outside of the middleware", where, name, name)
    end
  end
  return json.array { next(names) and names }, next(names) ~= nil
end

-- The requirement of a route by its own option, or by the middleware that it runs in; whether there is one. Where middleware runs for
-- some paths of the route only, what it asks for is an alternative.
local function security_of(self, leaf, doc, used, where)
  local found = {}
  for _, use in ipairs(leaf.uses) do
    local known = router.scheme(use.inner)
    local scheme = self.of_function[use.inner] or known
    local reached = scheme and (not use.at and "all" or reach(use.at, leaf.segments))
    local one = reached and found[scheme.name]
    if reached and not (one and one.reach == "all") then
      found[scheme.name] = { reach = reached, known = known ~= nil, scheme = scheme }
    end
  end
  if doc.security ~= nil then return stated(self, doc, where, found, used) end
  local always, at_most, some = {}, {}, false
  for name, one in pairs(found) do
    at_most[name], used[name] = json.array {}, used[name] or one.scheme
    if one.reach == "all" then always[name] = at_most[name] else some = true end
  end
  if not next(at_most) then return nil, false end
  return some and json.array { always, at_most } or json.array { always }, true
end

local function operation(self, entry, schema, used, sources)
  local route, leaf = entry.leaf.route, entry.leaf
  local doc = route.doc or {}
  local out = { tags = doc.tags and json.array(table.move(doc.tags, 1, #doc.tags, 1, {})), summary = doc.summary,
    description = doc.description, deprecated = doc.deprecated, operationId = doc.id,
    parameters = parameters(doc, entry.segments, schema), requestBody = body_of(doc, schema) }
  if self.comments and not (out.summary and out.description) then
    local path, line = match(route.place or "", "^(.*):(%d+)$")
    local text = path and comment_above(lines_of(path, sources), tonumber(line))
    local at = not text and getinfo(doc.fn or route.fn, "S")
    if at and sub(at.source, 1, 1) == "@" and not usage.is_internal(at.source) then
      text = comment_above(lines_of(sub(at.source, 2), sources), at.linedefined)
    end
    if text and not out.summary then
      local first, rest = sentences(text)
      out.summary, out.description = first, out.description or rest
    end
  end
  local secured
  out.security, secured = security_of(self, leaf, doc, used, leaf.where)
  out.responses = {}
  for key, one in pairs(doc.responses or { default = {} }) do out.responses[key] = response_of(key, one, schema) end
  if secured and not out.responses["401"] then out.responses["401"] = response_of("401", {}) end
  if doc.checks and not out.responses["422"] then
    out.responses["422"] = { description = "The request has invalid fields",
      content = { ["application/json"] = { schema = { ["$ref"] = "#/components/schemas/InvalidFields" } } } }
  end
  if doc.json or doc.form or doc.parts then
    for status, one in pairs(refused) do
      out.responses[status] = out.responses[status] or { ["$ref"] = "#/components/responses/" .. one[1] }
    end
  end
  return out, doc.checks, out.requestBody
end

-- ---- the document ------------------------------------------------------------------------------------------------

-- The routes that the document has, in the order of their paths and methods.
local function shown(entries)
  local list = {}
  for _, entry in ipairs(entries) do
    local route, method = entry.leaf.route, methods[entry.method]
    entry.path = path_of(entry.segments)
    local own = route.call == "app:route" or method and route.call == "app:" .. method
    if own and method and not (route.doc and route.doc.hidden) then list[#list + 1] = entry end
  end
  sort(list, function(a, b) return a.path < b.path or a.path == b.path and a.method < b.method end)
  return list
end

-- The operationId by the method and the path alone, so that it stays when other routes are added.
local function name_of(entry)
  local parts = { lower(entry.method) }
  for i, segment in ipairs(entry.segments) do
    local text = segment.text and gsub(segment.text, "[^%w]+", "_") or "by_" .. (segment.param or segment.rest)
    if text == "" and i > 1 then text = "slash" end
    if text ~= "" then parts[#parts + 1] = text end
  end
  return concat(parts, "_")
end

local function document_of(self, entries)
  local schema, components = schemas_of(self.schemas)
  local paths, used, ids, sources, checks, bodies = {}, {}, {}, {}, false, nil
  for _, entry in ipairs(shown(entries)) do
    local out, has_checks, has_body = operation(self, entry, schema, used, sources)
    local id = out.operationId or name_of(entry)
    local other = ids[id]
    if other and other.leaf.route == entry.leaf.route and sub(entry.path, -1) == "/" then -- of an app that is mounted
      id = id .. "_slash"
      other = ids[id]
    end
    if other then
      usage.error('%s: the id %s is already that of the route at %s; give one of them another: { id = "name" }', entry.leaf.where,
        usage.quote(id), other.leaf.where)
    end
    out.operationId, ids[id] = id, entry
    checks, bodies = checks or has_checks, bodies or has_body and {}
    paths[entry.path] = paths[entry.path] or {}
    paths[entry.path][methods[entry.method]] = out
  end
  if checks then components.InvalidFields = invalid end
  for _, one in pairs(bodies and refused or {}) do
    bodies[one[1]] = { description = one[2], content = { ["text/plain"] = { schema = { type = "string" } } } }
  end
  local schemes, tags = {}, json.array {}
  for name, scheme in pairs(used) do
    schemes[name] = options.merged { scheme }
    schemes[name].fn, schemes[name].key, schemes[name].module, schemes[name].name = nil, nil, nil, scheme.key
  end
  for _, name in ipairs(options.sorted(self.tags or {})) do tags[#tags + 1] = { name = name, description = self.tags[name] } end
  local all = {}
  if next(components) then all.schemas = components end
  all.responses = bodies
  if next(schemes) then all.securitySchemes = schemes end
  return { openapi = "3.1.0", info = { title = self.title, version = self.version, description = self.description },
    tags = tags[1] and tags or nil, paths = paths, components = next(all) and all or nil }
end

-- ---- the routes ----------------------------------------------------------------------------------------------------

local function read_schemes(schemes)
  local by_name, of_function = {}, {}
  for name, given in pairs(schemes or {}) do
    usage.check(given, "table", 'app:openapi: schemes.%s must be a table such as { fn = login, type = "apiKey", name = "sid", '
      .. '["in"] = "cookie" }', name)
    local fields = scheme_fields[given.type]
    usage.refuse(not fields, given.type, "app:openapi: schemes.%s: type must be one of %s", name, concat(options.sorted(scheme_fields), ", "))
    for _, field in ipairs(fields) do
      usage.refuse(given[field] == nil, nil, "app:openapi: schemes.%s: a scheme of the type %s needs %s", name, given.type, field)
    end
    usage.check(given.fn, "function?", "app:openapi: schemes.%s: fn must be the middleware", name)
    local scheme = options.merged { given, { name = name } }
    scheme.key = given.name
    by_name[name] = scheme
    if given.fn then of_function[given.fn] = scheme end
  end
  return by_name, of_function
end

local function check_texts(name, list, of_names)
  usage.check(list, "table?", "app:openapi: %s must be a table", name)
  for key, value in pairs(list or {}) do
    if type(value) ~= "string" or type(key) ~= (of_names and "string" or "number") then
      usage.error("app:openapi: %s must be a table of %s; got %s", name, of_names and "names with texts" or "URLs", usage.quote(value))
    end
  end
end

-- new(path, given, ...) -> { routes = { { path, handler }, ... }, auth = middleware or nil, make = function }. make(entries)
-- makes the document of the routes that router.compile gives. Raises.
function openapi.new(path, given, ...)
  local out, own = options.only("app:openapi", openapi.calls["app:openapi"], '("/openapi.json", { title = "Shop" })', given, ...)
  usage.check(path, "string", 'app:openapi: the path must be a string such as "/openapi.json"')
  if find(path, "[:*]") then usage.error("app:openapi: the path must not have parameters; got %s", usage.quote(path)) end
  if not find(path, "%.json$") then
    local name = gsub(path, "%.%w+$", "")
    usage.error("app:openapi: the path of the document must end in .json; write app:openapi(%q, { page = %q }); got %s", name .. ".json", name,
      usage.quote(path))
  end
  check_texts("servers", own.servers)
  check_texts("tags", own.tags, true)
  for name, made in pairs(own.schemas or {}) do
    if name == "InvalidFields" then
      usage.error("app:openapi: schemas: InvalidFields is the schema of the response 422; choose another name")
    end
    if type(name) ~= "string" or not find(name, "^[%w._-]+$") or not require("luaserve.check").is(made) then
      usage.error("app:openapi: schemas: %s must be a name of letters, digits, ., - and _ with a check of ls.check", tostring(name))
    end
  end
  local file = match(tostring(arg and arg[0] or "site"), "([^/\\]*)$")
  local self = { title = own.title or gsub(file, "%.lua$", ""), version = out.version, description = own.description,
    servers = nil, tags = own.tags, schemas = own.schemas, comments = out.comments }
  if own.servers then
    self.servers = json.array {}
    for i, url in ipairs(own.servers) do self.servers[i] = { url = url } end
  end
  self.schemes, self.of_function = read_schemes(own.schemes)
  for name, made in pairs { basicAuth = { type = "http", scheme = "basic", module = "luaserve.basic_auth" },
    bearerAuth = { type = "http", scheme = "bearer", module = "luaserve.bearer_auth" } } do
    self.schemes[name] = self.schemes[name] or made
  end

  local document, text, made_for
  local function respond(req, res)
    local prefix = sub(req.path, 1, -#path - 1) -- where the app is mounted
    if prefix ~= made_for then
      document.servers = self.servers or prefix ~= "" and json.array { { url = prefix } } or nil
      text, made_for = description.encode(document, "") .. "\n", prefix
    end
    res:header("Content-Type", "application/json"):header("Cache-Control", "no-cache")
    return text
  end
  local page_path = own.page
  if page_path == nil then page_path = match(path, "^(.+)%.json$") end
  local function respond_page(_, res)
    local page = require("luaserve.page").open("openapi", res, "no-cache")
    local depth = select(2, gsub(sub(page_path, 2), "/", ""))
    local href = (depth > 0 and ("../"):rep(depth) or "./") .. sub(path, 2)
    local texts = { ["@DOCUMENT@"] = core.html_escape(href), ["<title>API</title>"] = "<title>" .. core.html_escape(self.title) .. "</title>" }
    return res:html((gsub(gsub(page, "@DOCUMENT@", texts), "<title>API</title>", texts)))
  end
  local routes = { { path, respond } }
  if page_path then routes[2] = { page_path, respond_page } end
  return { routes = routes, auth = own.auth, make = function(entries)
    document, made_for = document_of(self, entries), nil
  end }
end

return openapi
