-- router.lua - compiles the routes of an app into one function, dispatch(req, res, method, path, too_big).
--
-- Three structures, made once, and the paths of files that were asked for lately.
-- `plain[method][path]` holds the routes without parameters and without limits of their
-- own: two lookups and a tail call, no garbage. `by_prefix[method]["/hello/"]` holds the routes that end in their
-- only parameter, such as /hello/:name: one split at the last slash. Both are shortcuts into a trie of path segments,
-- one for each method, which holds all routes.
--
--     GET  ── "hello" ── :name ●           a node has children by text, one child for a parameter, and a leaf for a
--          ── "files" ── *path ●           *rest. At each segment the search tries the text first, then the parameter,
--                                          then the rest, and backtracks from a dead end. It visits no node twice.
--
-- The trie of a method also holds the `any` routes, and that of HEAD the GET routes, at every pattern for which the
-- method has no route of its own.
--
-- Paths are as received. A path with a `%` is split at its slashes first and decoded afterwards, so an encoded slash
-- does not separate segments.
--
-- Mounted apps are flattened into the same tries. The *scope* of an app keeps its middleware (after that of its
-- parents) and its error and not_found handlers (else those of its parent).

local core = require "luaserve.core"
local usage = require "luaserve.usage"

-- Functions that run for a request are locals: a site may replace the globals.
local find, sub, byte, concat, ipairs = string.find, string.sub, string.byte, table.concat, ipairs
local gmatch, gsub, lower = string.gmatch, string.gsub, string.lower
local percent_decode, last_segment = core.percent_decode, core.last_segment
local set_params, set_body_max, set_time_max = core.params, core.body_max, core.time_max

-- `names`: from dispatch functions to functions that name the route of a request. Those of app:inject become garbage.
local router = { names = setmetatable({}, { __mode = "k" }) }

local recent_max, recent_bytes_max = 1024, 200 -- remembered paths of files, and the length of one

local guards, wraps = setmetatable({}, { __mode = "k" }), setmetatable({}, { __mode = "k" })

-- guard(fn [, scheme [, wrap]]) -> fn, middleware that returns at most three results, or ends with `return next()`: it needs no chain.
-- `scheme`: that of the credentials it asks for, for app:openapi: { name =, type = ... } as in OpenAPI. wrap(inner, guarded) -> a function
-- that calls `inner` where that is sure to be next, else `guarded`, which is `inner` after the guard; or nil.
function router.guard(fn, scheme, wrap)
  guards[fn], wraps[fn] = scheme or true, wrap
  return fn
end

-- scheme(fn) -> what router.guard has of the middleware, or nil.
function router.scheme(fn) return guards[fn] ~= true and guards[fn] or nil end

local rules_of = setmetatable({}, { __mode = "k" })

-- place(fn, rules) -> fn, middleware that is not right in every place. Both functions of `rules` may raise, and may be nil:
-- rules.defined(call, path) is called for app:use or a route that names it, whether with a path; rules.compiled(place) when
-- an app is compiled that has it: { rules =, where =, prefix = of its mount; all = such places of the app; uses, n = the
-- middleware of app:use, its number in them, or nil for that of a route; named, matching = functions from a path to the
-- route of exactly this path, and to one that answers GET }.
function router.place(fn, rules)
  rules_of[fn] = rules
  return fn
end

-- rules(fn | use) -> what router.place has of middleware, or nil.
function router.rules(fn)
  if type(fn) == "table" then fn = fn.inner or fn.fn end
  return rules_of[fn]
end

local usual_methods = { "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS" }

-- ---- patterns ------------------------------------------------------------------------------------------------------

-- Segments in the syntax of other routers, and what they are here.
local foreign = {
  { "^{%*([%a_][%w_]*)}$", "*%1" }, -- {*rest}
  { "^{([%a_][%w_]*)%.%.%.}$", "*%1" }, -- {rest...}
  { "^{([%a_][%w_]*):%.[*+]}$", "*%1" }, -- {rest:.*}
  { "^<path:([%a_][%w_]*)>$", "*%1" },
  { "^%[+%.%.%.([%a_][%w_]*)%]+$", "*%1" }, -- [...rest]
  { "^:([%a_][%w_]*)[*+]$", "*%1" },
  { "^%*%*?$", "*rest" },
  { "^{([%a_][%w_]*)[:?]?.*}$", ":%1" }, -- {id}, {id:int}, {id?}
  { "^<([%a_][%w_]*)>$", ":%1" },
  { "^<%w+:([%a_][%w_]*)>$", ":%1" }, -- <int:id>
  { "^%[([%a_][%w_]*)%]$", ":%1" },
  { "^:([%a_][%w_]*)%(.*$", ":%1" }, -- :id(%d+)
}

-- check_foreign(fname, pattern, segment): raises when the segment has a meaning in other routers that it has not here.
local function check_foreign(fname, pattern, segment)
  local optional = segment:match("^:([%a_][%w_]*)%?$")
  if optional then
    local without = pattern:match("^(.*)/[^/]*%?") or ""
    usage.error('%s: there are no optional parameters; define two routes, %q and "%s/:%s"; got %q', fname,
      without == "" and "/" or without, without, optional, pattern)
  end
  for _, known in ipairs(foreign) do
    if find(segment, known[1]) then
      usage.error("%s: for the segment %q write %q: a parameter is :name, the rest of the path is *name; got %q", fname,
        segment, (segment:gsub(known[1], known[2])), pattern)
    end
  end
  if find(segment, "^:") and not find(segment, "^:[%a_][%w_]*$") then
    usage.error("%s: ':' must be followed by a name of letters, digits and _, up to the next slash; match the segment %q "
      .. "as one parameter and take it apart in the handler; got %q", fname, segment, pattern)
  end
  local sign = segment:match("[{}<>]") or segment:match(".(%*)") or segment:match("^(%*)[^%a_]")
    or segment:match("^(%*)[%w_]*[^%w_]")
  if sign then
    usage.error("%s: %q in the segment %q is neither a parameter (:name) nor the rest of the path (*name); write %s for "
      .. "the character itself; got %q", fname, sign, segment, string.format("%%%02X", sign:byte()), pattern)
  end
end

-- text_of(fname, pattern, segment) -> the text that a literal segment matches: the decoded segment, because the
-- segments of a request are decoded too.
local function text_of(fname, pattern, segment)
  if not find(segment, "%", 1, true) then return segment end
  local text = percent_decode(segment)
  if not text then
    usage.error('%s: invalid escape in the segment %q; write %%25 for "%%"; got %q', fname, segment, pattern)
  end
  return text
end

-- parse(fname, "/files/:kind/*rest") -> array of { text = } | { param = } | { rest = }. Raises; `fname` begins the
-- message.
function router.parse(fname, pattern)
  usage.check(pattern, "string", '%s: the path must be a string such as "/items/:id"', fname)
  if sub(pattern, 1, 1) ~= "/" then
    usage.error('%s: the path must begin with "/"; got %q', fname, pattern)
  end
  local segments, names = {}, {}
  for segment in pattern:gmatch("/([^/]*)") do
    check_foreign(fname, pattern, segment)
    if find(segment, "[%z\1-\31\127?#]") then
      usage.error("%s: the path must not contain control characters, ? or #; got %q", fname, pattern)
    end
    if segments[#segments] and segments[#segments].rest then
      usage.error("%s: *%s matches the rest of the path and must come last; got %q", fname,
        segments[#segments].rest, pattern)
    end
    local kind, name = segment:match("^([:*])(.*)$")
    if not kind then
      segments[#segments + 1] = { text = text_of(fname, pattern, segment) }
    else
      if names[name] then usage.error("%s: duplicate parameter name %s; got %q", fname, name, pattern) end
      names[name] = true
      segments[#segments + 1] = kind == ":" and { param = name } or { rest = name }
    end
  end
  return segments
end

-- escaped(text) -> the text of a segment as it is written in a pattern.
local function escaped(text)
  return (text:gsub("[%%/:*]", function(char) return string.format("%%%02X", char:byte()) end))
end

-- pattern_of(segments [, nameless]) -> the pattern, as router.parse reads it; `nameless`: without the names of parameters.
local function pattern_of(segments, nameless)
  local parts = {}
  for i, segment in ipairs(segments) do
    local name = nameless and "" or segment.param or segment.rest
    parts[i] = segment.text and escaped(segment.text) or (segment.param and ":" or "*") .. name
  end
  return "/" .. concat(parts, "/")
end

-- shape(segments) -> the pattern without parameter names. Patterns that match the same paths have the same shape.
function router.shape(segments) return pattern_of(segments, true) end

-- ---- the trie ------------------------------------------------------------------------------------------------------

local function new_node() return { texts = {} } end

-- insert(root, segments, leaf) -> the leaf that is already at `segments`, or nil after it inserted `leaf` there.
local function insert(root, segments, leaf)
  local node = root
  for _, segment in ipairs(segments) do
    if segment.rest then
      local old = node.rest
      node.rest = old or leaf
      return old
    elseif segment.param then
      node.param = node.param or new_node()
      node = node.param
    else
      local child = node.texts[segment.text]
      if not child then
        child = new_node()
        node.texts[segment.text] = child
      end
      node = child
    end
  end
  local old = node.leaf
  node.leaf = old or leaf
  return old
end

-- The parameter values of the path that is being matched, in order. Shared: no code yields while it is in use.
local values = {}

-- walk(node, path, from, n) -> leaf | nil. Matches the path from byte `from` (just after a slash) below `node`;
-- values[1..n] are already set.
local function walk(node, path, from, n)
  local slash = find(path, "/", from, true)
  if slash then
    local segment = sub(path, from, slash - 1)
    local child = node.texts[segment]
    if child then
      local leaf = walk(child, path, slash + 1, n)
      if leaf then return leaf end
    end
    child = node.param
    if child and slash > from then
      values[n + 1] = segment
      local leaf = walk(child, path, slash + 1, n + 1)
      if leaf then return leaf end
    end
  else
    local segment = sub(path, from)
    local child = node.texts[segment]
    if child and child.leaf then return child.leaf end
    child = node.param
    if child and child.leaf and segment ~= "" then
      values[n + 1] = segment
      return child.leaf
    end
  end
  if node.rest then
    values[n + 1] = sub(path, from)
    return node.rest
  end
  return nil
end

-- walk_segments(node, segments, i, n) -> leaf | nil. As walk, for segments that are already split and decoded.
local function walk_segments(node, segments, i, n)
  local segment = segments[i]
  local child = node.texts[segment]
  if i < #segments then
    if child then
      local leaf = walk_segments(child, segments, i + 1, n)
      if leaf then return leaf end
    end
    child = node.param
    if child and segment ~= "" then
      values[n + 1] = segment
      local leaf = walk_segments(child, segments, i + 1, n + 1)
      if leaf then return leaf end
    end
  else
    if child and child.leaf then return child.leaf end
    child = node.param
    if child and child.leaf and segment ~= "" then
      values[n + 1] = segment
      return child.leaf
    end
  end
  if node.rest then
    values[n + 1] = concat(segments, "/", i)
    return node.rest
  end
  return nil
end

-- decode_segments(path) -> the decoded segments of a path with a "%"; nil for an invalid escape or an encoded NUL.
local function decode_segments(path)
  local segments, from = {}, 2
  while true do
    local slash = find(path, "/", from, true)
    local segment = percent_decode(sub(path, from, slash and slash - 1))
    if not segment then return nil end
    segments[#segments + 1] = segment
    if not slash then return segments end
    from = slash + 1
  end
end

-- params_of(names) -> the table of req.params. For one or two parameters, the usual case, the constructor sizes it at
-- once.
local function params_of(names)
  local n = #names
  if n == 1 then
    return { [names[1]] = values[1] }
  elseif n == 2 then
    return { [names[1]] = values[1], [names[2]] = values[2] }
  end
  local params = {}
  for i = 1, n do params[names[i]] = values[i] end
  return params
end

-- ---- from apps to leaves -------------------------------------------------------------------------------------------

local function pass() return pass end -- next() of a guard

-- guarded(guard, fn) -> fn after the guard.
local function guarded(guard, fn)
  local function run(req, res, next)
    local status, body, headers = guard(req, res, pass)
    if status == pass then return fn(req, res, next) end
    return status, body, headers
  end
  return wraps[guard] and wraps[guard](fn, run) or run
end

-- covers(at, segments) -> whether the path of middleware, `at`, has all requests for a route of these segments, or none;
-- nil: it depends on the request, because a parameter or a separator in a segment may be anything (is_below). The texts
-- of `at` are in lower case.
local function covers(at, segments)
  for i, one in ipairs(at) do
    local segment = segments[i]
    if not segment then return false end
    local text = segment.text
    if not text or find(text, "[%%/\\;]") or text == "" and i < #segments then return nil end
    if one.text and one.text ~= lower(text) then return false end
  end
  return true
end

-- covers(use, path) -> whether middleware runs for all requests for this path, or none; nil: that depends on the request.
function router.covers(use, path) return not use.at or covers(use.at, router.parse("app:use", path)) end

-- meets(a, b) -> whether the middleware a runs for all requests for which b runs.
function router.meets(a, b) return not a.at or b.at ~= nil and covers(a.at, b.at) == true end

-- wrap(uses, fn [, own [, segments]]) -> fn inside the middleware `uses` and then `own`, the first outermost; for a route
-- of the segments, without what never runs for it.
local function wrap(uses, fn, own, segments)
  local all, functions, places = {}, {}, {}
  for _, list in ipairs { uses, own } do
    for _, use in ipairs(list) do
      local always = use.at and segments and covers(use.at, segments)
      if always ~= false then
        local inner = use.inner or use.fn
        all[#all + 1] = { fn = always and inner or use.fn, inner = inner, at = use.at, where = use.where or "?" }
      end
    end
  end
  if all[1] and core.dev then fn = require("luaserve.dev_state").watch_handler(fn) end
  for i = #all, 1, -1 do
    local use = all[i]
    if guards[use.fn] then
      fn = guarded(use.fn, fn)
    else
      table.insert(functions, 1, fn)
      table.insert(places, 1, use.where)
      fn = use.fn
    end
  end
  if #functions == 0 then return fn, all end
  table.insert(functions, 1, fn)
  return core.chain(functions, places), all
end

-- plain_segments(path) -> the segments of a path as the server behind app:proxy may read it: decoded, in lower case, with a backslash as
-- separator, without parameters (";v=1"), dots and blanks at the end of a segment, and empty segments.
local function plain_segments(path)
  local segments = {}
  for segment in gmatch(gsub(lower(percent_decode(path) or ""), "\\", "/"), "[^/]+") do
    segment = gsub(gsub(segment, ";.*", ""), "[%. ]+$", "")
    if segment ~= "" then segments[#segments + 1] = segment end -- of ";v=1" no name is left
  end
  return segments
end

-- is_odd(path) -> whether plain_segments may be others than those of the path.
local function is_odd(path) return find(path, "//", 1, true) or find(path, "[%%;\\]") or find(path, "%.%f[/\0]") end

-- is_below(segments) -> a function that tells whether a request is for the path of the segments, or below it. So is one
-- that another server may read as such: a check of "/admin" is made for "//admin", "/ADMIN" and "/%61dmin;v=1", too. A
-- path that cannot be decoded is not: no route matches it. The texts of the segments are in lower case.
local function is_below(segments)
  local literal = ""
  for _, segment in ipairs(segments) do literal = literal and segment.text and literal .. "/" .. segment.text end
  local function begins(at)
    for i, segment in ipairs(segments) do
      if not at or not at[i] or segment.text and segment.text ~= lower(at[i]) then return false end
    end
    return true
  end
  return function(path)
    path = lower(path)
    if literal and sub(path, 1, #literal) == literal and (#path == #literal or byte(path, #literal + 1) == 0x2F) then
      return true
    end
    local odd = is_odd(path)
    if literal and not odd then return false end
    return begins(decode_segments(path)) or odd ~= nil and begins(plain_segments(path))
  end
end

-- joined(prefix, segments) -> the segments of a route below the prefix.
local function joined(prefix, segments)
  local all = table.move(prefix, 1, #prefix, 1, {})
  return table.move(segments, 1, #segments, #all + 1, all)
end

-- placed(use, prefix) -> the middleware of app:use in an app below the prefix, which skips itself for other paths.
local function placed(use, prefix)
  if not use.segments then return use end
  local at = joined(prefix, use.segments)
  for i, segment in ipairs(at) do at[i] = { text = segment.text and lower(segment.text) } end
  local matches, fn = is_below(at), use.fn
  local function here(req, res, next)
    if matches(req.path) then return fn(req, res, next) end
    return next()
  end
  guards[here] = guards[fn]
  return { where = use.where, fn = here, inner = fn, at = at }
end

local function respond_404() return 404 end

-- named(flat, pattern, run, log) -> run, which names the route of the request first (nil: none), and the access log of its
-- app, if it has one and the listener has records.
local function named(flat, pattern, run, log)
  local route = flat.records and pattern and core.route(pattern, flat.records ~= true and flat.records or nil)
  if not flat.records or not (route or log) then return run end
  local set_route = core.set_route
  return function(req, res)
    set_route(req, route, log)
    return run(req, res)
  end
end

local function add_place(flat, use, prefix, uses, n)
  local rules = router.rules(use)
  if not rules then return end
  flat.places[#flat.places + 1] = { rules = rules, where = use.where or "?", prefix = #prefix > 0 and pattern_of(prefix) or "",
    all = flat.places, uses = uses, n = n }
end

local function new_scope(flat, parent, app, prefix)
  local scope = { uses = {}, app = app, parent = parent, depth = #prefix }
  if parent then table.move(parent.uses, 1, #parent.uses, 1, scope.uses) end
  for _, use in ipairs(app.uses) do
    scope.uses[#scope.uses + 1] = placed(use, prefix)
    add_place(flat, use, prefix, scope.uses, #scope.uses)
  end
  scope.on_error = app.on_error or parent and parent.on_error
  scope.on_not_found = app.on_not_found or parent and parent.on_not_found
  scope.use_where = app.use_where or parent and parent.use_where
  scope.on_error_where = app.on_error and app.on_error_where or parent and parent.on_error_where
  scope.on_not_found_where = app.on_not_found and app.on_not_found_where or parent and parent.on_not_found_where
  local not_found = scope.on_not_found
  scope.not_found = not_found and function(req, res)
    res:status(404)
    return not_found(req, res)
  end or respond_404
  scope.log = app.access or parent and parent.log
  scope.missing = named(flat, nil, wrap(scope.uses, scope.not_found), scope.log)
  scope.too_big = wrap(scope.uses, core.too_large)
  return scope
end

local function add_leaf(flat, method, segments, leaf)
  leaf.names, leaf.method, leaf.segments = {}, method, segments
  for _, segment in ipairs(segments) do
    local name = segment.param or segment.rest
    if name then leaf.names[#leaf.names + 1] = name end
  end
  leaf.names[#leaf.names + 1] = leaf.empty
  local key = method .. " " .. router.shape(segments)
  local same = flat.seen[key]
  if same then
    error(string.format("%s: %s is already defined at %s", leaf.where or "?", key, same.where or "?"), 0)
  end
  flat.seen[key] = leaf
  flat.methods[method] = flat.methods[method] or {}
  table.insert(flat.methods[method], { segments = segments, leaf = leaf })
end

-- The prefix itself, for a route with the rest of the path of a mounted app: unless another route has it.
local function add_prefix(flat, ...) table.insert(flat.prefixes, table.pack(...)) end

local function has_param(segments)
  for _, segment in ipairs(segments) do if segment.param then return true end end
  return false
end

-- Raises for middleware whose path repeats the prefix of its app, `scope`, and is that of none of its routes: it never runs.
local function check_prefix_repeated(flat, scope, prefix)
  for i, use in ipairs(scope.app.uses) do
    local path, at = use.segments and pattern_of(use.segments) .. "/", scope.uses[#scope.uses - #scope.app.uses + i].at
    for from = 1, path and #prefix or 0 do
      local text = pattern_of(table.move(prefix, from, #prefix, 1, {})) .. "/"
      local runs = sub(path, 1, #text) ~= text or find(text, ":", 1, true)
      for _, leaf in pairs(runs and {} or flat.seen) do
        local of = leaf.scope
        while of and of ~= scope do of = of.parent end
        runs = runs or of and covers(at, leaf.segments)
      end
      if not runs then
        local rest = sub(path, #text, -2)
        error(string.format("%s: app:use: paths in an app that is mounted begin below its prefix, and it has no route %q there: write app:use(%sfn)",
          use.where or "?", sub(path, 1, -2), rest == "" and "" or string.format("%q, ", rest)), 0)
      end
    end
  end
end

local function flatten(flat, app, prefix, parent)
  local scope = new_scope(flat, parent, app, prefix)
  for _, route in ipairs(app.routes) do
    for _, use in ipairs(route.uses or {}) do add_place(flat, use, prefix) end
    local last = #route.segments == 1 and route.segments[1] or {}
    local at = { joined(prefix, route.segments), #prefix > 0 and (last.text == "" or last.rest) and prefix or nil }
    for n, segments in ipairs(at) do
      local pattern, empty = pattern_of(segments), n == 2 and last.rest or nil
      local run, uses = wrap(scope.uses, route.fn or (route.files or route.proxy):runner(#prefix + route.skip, scope.not_found),
        route.uses, segments)
      local add = empty and add_prefix or add_leaf
      add(flat, route.method, segments, {
        run = named(flat, pattern, run, scope.log), uses = uses, too_big = named(flat, pattern, scope.too_big, scope.log),
        files = route.files or route.proxy and not has_param(segments), scope = scope, max_body = route.max_body,
        time_max = route.time_max, slow = route.slow,
        limited = route.max_body ~= nil or route.time_max ~= nil or route.slow ~= nil or empty ~= nil,
        where = route.where, shown = route.shown, route = route, empty = empty,
      })
    end
  end
  local whole_star = app.star
  if whole_star and not parent then
    local run, uses = wrap(scope.uses, whole_star.fn)
    flat.star = { run = named(flat, "*", run, scope.log), uses = uses, where = whole_star.where }
  end
  local tunnel = app.connect
  if tunnel and parent then
    error(string.format("%s: a CONNECT request has no path, so its route cannot be in a mounted app; define it in the "
      .. "app of ls.listen", tunnel.where or "?"), 0)
  elseif tunnel then
    local run, uses = wrap(scope.uses, tunnel.fn)
    flat.connect = { run = named(flat, "*", run, scope.log), uses = uses, where = tunnel.where }
  end
  if parent then
    local below = joined(prefix, { { rest = "rest" } })
    insert(flat.scopes, prefix, scope)
    insert(flat.scopes, below, scope)
    if app.on_not_found then
      -- The not_found of the app takes precedence over a catch-all route of the parent.
      local leaf = { missing = true, scope = scope, names = {} }
      flat.missing[#flat.missing + 1] = { segments = prefix, leaf = leaf }
      flat.missing[#flat.missing + 1] = { segments = below, leaf = leaf }
    end
  end
  for _, mount in ipairs(app.mounts) do
    flatten(flat, mount.app, joined(prefix, mount.segments), scope)
  end
  check_prefix_repeated(flat, scope, prefix)
  return scope
end

-- The proxy of the leaf has no path that its server may read as one of a route with middleware that the proxy is without, such
-- as "//admin/x" beside an app with a login at "/admin", or "/stats/" beside "/stats": it is answered with 400.
local function keep_apart(flat, leaf)
  local has, others, any, mixed = {}, new_node(), false, false
  for _, use in ipairs(leaf.uses) do has[use.inner] = true end
  for _, other in pairs(flat.seen) do
    local more = false
    for _, use in ipairs(other.uses) do more = more or not has[use.inner] end
    if more then
      local segments = {}
      for i, segment in ipairs(other.segments) do
        mixed = mixed or segment.text and lower(segment.text) ~= segment.text
        segments[i] = segment.text and { text = lower(segment.text) } or segment
      end
      insert(others, segments, other)
      any = true
    end
  end
  if not any then return end
  local run = leaf.run
  function leaf.run(req, res)
    local path = req.path
    local odd = mixed or path ~= lower(path) or is_odd(path) or find(path, "/$")
    if odd and walk_segments(others, plain_segments(path), 1, 0) then return 400 end
    return run(req, res)
  end
end

local function fill(trie, entries)
  for _, entry in ipairs(entries or {}) do insert(trie, entry.segments, entry.leaf) end
end

-- shortcuts(trie) -> plain, by_prefix: run functions by path, and leaves of a last parameter by the path before it. A
-- leaf with limits of its own is found through the trie only, and so is a last parameter beside such a leaf.
local function shortcuts(trie)
  local plain, by_prefix = {}, {}
  local function visit(node, prefix)
    local complete = true
    for text, child in pairs(node.texts) do
      local leaf = child.leaf
      local encoded = find(text, "[%%/]") -- a path has such a text in escaped form only
      if leaf and not encoded and not leaf.missing and not leaf.limited then
        plain[prefix .. text] = leaf.run
      elseif leaf then
        complete = false
      end
      if not encoded then visit(child, prefix .. text .. "/") end
    end
    local leaf = node.param and node.param.leaf
    if leaf and complete and #leaf.names == 1 and not leaf.missing and not leaf.limited then
      by_prefix[prefix] = leaf
      leaf[1] = leaf.names[1] -- for core.last_segment
    end
  end
  visit(trie, "/")
  return plain, by_prefix
end

-- list_routes(flat) -> the routes for --check, sorted by pattern: { { method =, pattern =, where =, middleware = places, max_body =,
-- timeout = }, ... }. The method of a WebSocket is "WS".
local function list_routes(flat)
  local rows = {}
  local function add(leaf, method, pattern)
    local places, time = {}, leaf.time_max
    for i, use in ipairs(leaf.uses) do places[i] = use.where end
    rows[#rows + 1] = {
      method = leaf.shown or method, pattern = pattern, where = leaf.where or "?", middleware = places, max_body = leaf.max_body,
      timeout = time and time > 0 and (math.tointeger(time / 1000) or time / 1000) or time and false,
    }
  end
  for method, entries in pairs(flat.methods) do
    for _, entry in ipairs(entries) do add(entry.leaf, method, pattern_of(entry.segments)) end
  end
  if flat.star then add(flat.star, "OPTIONS", "*") end
  if flat.connect then add(flat.connect, "CONNECT", "*") end
  table.sort(rows, function(a, b)
    if a.pattern ~= b.pattern then return a.pattern < b.pattern end
    return a.method < b.method
  end)
  return rows
end

-- The routes of the app `of`, and of those mounted in it, where it is mounted first: { { method =, segments = below the prefix of
-- the app, leaf = }, ... }, in no order.
local function routes_of(flat, of)
  local found, first = {}, nil
  for method, entries in pairs(flat.methods) do
    for _, entry in ipairs(entries) do
      local scope = entry.leaf.scope
      while scope and scope.app ~= of do scope = scope.parent end
      if scope then
        first = first or scope
        if scope == first then
          local segments = table.move(entry.segments, scope.depth + 1, #entry.segments, 1, {})
          found[#found + 1] = { method = method, segments = segments, leaf = entry.leaf }
        end
      end
    end
  end
  return found
end

-- Whether a route may upgrade connections to WebSocket.
local function has_tunnels(flat)
  for _, entries in pairs(flat.methods) do
    for _, entry in ipairs(entries) do
      if entry.leaf.shown == "WS" or entry.leaf.route.proxy then return true end
    end
  end
  return false
end

-- compile(app, records) -> { dispatch =, failed =, gets = the functions for GET by path, which core.listen calls itself, name_route =,
-- routes =, routes_of =, tunnels = } for core.listen. `records`: its routes are named for records, true or the name of their host.
-- Raises when two routes are the same.
function router.compile(app, records)
  local flat = { methods = {}, seen = {}, scopes = new_node(), missing = {}, records = records, places = {}, prefixes = {} }
  local root_scope = flatten(flat, app, {}, nil)
  for _, one in ipairs(flat.prefixes) do
    if not flat.seen[one[1] .. " " .. router.shape(one[2])] then add_leaf(flat, table.unpack(one)) end
  end
  for _, entry in ipairs(flat.methods.any or {}) do
    if entry.leaf.route.proxy then keep_apart(flat, entry.leaf) end
  end

  local tries, plain, by_prefix = {}, {}, {}
  local names = { any = true }
  for _, method in ipairs(usual_methods) do names[method] = true end
  for method in pairs(flat.methods) do names[method] = true end
  for method in pairs(names) do
    local trie = new_node()
    if method ~= "any" then fill(trie, flat.methods[method]) end
    if method == "HEAD" then fill(trie, flat.methods.GET) end
    fill(trie, flat.methods.any)
    fill(trie, flat.missing)
    tries[method] = trie
  end
  local any_trie = tries.any -- for methods without their own trie
  tries.any = nil

  for method, trie in pairs(tries) do
    plain[method], by_prefix[method] = shortcuts(trie)
  end

  local allow_order = {}
  for method in pairs(tries) do allow_order[#allow_order + 1] = method end
  if flat.connect then allow_order[#allow_order + 1] = "CONNECT" end
  table.sort(allow_order)
  tries.CONNECT = new_node() -- its target is no path: no `any` route matches it

  local function leaf_of(method, path, segments)
    local trie = tries[method] or any_trie
    if segments then return walk_segments(trie, segments, 1, 0) end
    return walk(trie, path, 2, 0)
  end

  local function named_route(path)
    for _, leaf in pairs(flat.seen) do
      if pattern_of(leaf.segments) == path then return leaf end
    end
  end

  local function matching(path)
    local leaf = leaf_of("GET", path, find(path, "%", 1, true) and decode_segments(path) or nil)
    return leaf and not leaf.missing and leaf
  end

  for _, place in ipairs(flat.places) do
    place.named, place.matching = named_route, matching
    if place.rules.compiled then place.rules.compiled(place) end
  end

  local function scope_of(path, segments)
    if segments then return walk_segments(flat.scopes, segments, 1, 0) or root_scope end
    return walk(flat.scopes, path, 2, 0) or root_scope
  end

  -- allowed(path, segments) -> the value of Allow, or nil when no method has a route for the path. OPTIONS is always
  -- allowed where another method is.
  local function allowed(path, segments)
    local list, found = {}, false
    for _, method in ipairs(allow_order) do
      local leaf = leaf_of(method, path, segments)
      local has = leaf and not leaf.missing
      found = found or has
      if has or method == "OPTIONS" then list[#list + 1] = method end
    end
    return found and concat(list, ", ") or nil
  end

  local function respond_501() return 501 end
  local tunnel = flat.connect and flat.connect.run or wrap(root_scope.uses, respond_501)

  -- No route has this method and path: 404; when another method has the path, 405, or 204 for OPTIONS.
  local function no_route(req, res, method, path, segments)
    if method == "CONNECT" then return tunnel(req, res) end
    local scope = scope_of(path, segments)
    local allow = allowed(path, segments)
    if not allow then return scope.missing(req, res) end
    local status = method == "OPTIONS" and 204 or 405
    return wrap(scope.uses, function(_, response)
      response:header("Allow", allow)
      return status
    end)(req, res)
  end

  local function respond_400() return 400 end

  local function asterisk(req, res, method)
    if method ~= "OPTIONS" then return wrap(root_scope.uses, respond_400)(req, res) end
    if flat.star then return flat.star.run(req, res) end
    return wrap(root_scope.uses, function(_, response)
      response:header("Allow", concat(allow_order, ", "))
      return 204
    end)(req, res)
  end

  -- recent[method]: paths for which a trie has found an app:static or app:proxy. They are in `plain` as well. Bounded: a method with
  -- recent_max paths begins again.
  local recent = {}
  for method in pairs(tries) do recent[method] = {} end

  local function remember(method, path, run)
    local paths, by_path = recent[method], plain[method]
    if #path > recent_bytes_max or not paths then return end
    if #paths == recent_max then
      for n, one in ipairs(paths) do paths[n], by_path[one] = nil, nil end
    end
    paths[#paths + 1], by_path[path] = path, run
  end

  local function by_trie(req, res, method, path, too_big)
    local segments
    if find(path, "%", 1, true) then
      segments = decode_segments(path)
      if not segments then return wrap(root_scope.uses, respond_400)(req, res) end
    elseif path == "*" then
      return asterisk(req, res, method)
    end
    local leaf = leaf_of(method, path, segments)
    if not leaf or leaf.missing then return no_route(req, res, method, path, segments) end
    if leaf.max_body ~= nil then too_big = set_body_max(req, leaf.max_body or nil) end
    if leaf.route.proxy then too_big = nil end -- it has a limit of its own for what it passes on; what middleware reads has that of the listener
    if leaf.time_max then set_time_max(req, leaf.time_max) end
    if leaf.slow then core.slow(req, leaf.slow) end
    if too_big then return leaf.too_big(req, res) end
    if leaf.files then
      if not segments then remember(method, path, leaf.run) end
      return leaf.run(req, res)
    end
    local names_of_leaf = leaf.names
    if leaf.empty then values[#names_of_leaf] = "" end
    if names_of_leaf[1] then set_params(req, params_of(names_of_leaf)) end
    return leaf.run(req, res)
  end

  local function dispatch(req, res, method, path, too_big)
    local by_path = plain[method]
    if by_path and not too_big then
      local run = by_path[path]
      if run then return run(req, res) end
      local leaf = last_segment(req, path, by_prefix[method])
      if leaf then return leaf.run(req, res) end
    end
    return by_trie(req, res, method, path, too_big)
  end

  -- Calls the error handler of the app of the request's route.
  local function failed(req, res, err, traceback)
    local path = req.path
    local on_error = root_scope.on_error
    if sub(path, 1, 1) == "/" then
      local segments = find(path, "%", 1, true) and decode_segments(path) or nil
      local leaf = leaf_of(req.method, path, segments)
      local scope = leaf and leaf.scope or scope_of(path, segments)
      on_error = scope.on_error
    end
    if not on_error then return res:status() end
    return on_error(req, res, err, traceback)
  end

  -- The name and the place of what has answered a request, for messages about its results.
  local function name_route(method, path, failing)
    if method == "CONNECT" and flat.connect and not failing then return "CONNECT *", flat.connect.where end
    if sub(path, 1, 1) ~= "/" then return nil end
    local segments = find(path, "%", 1, true) and decode_segments(path) or nil
    local leaf = leaf_of(method, path, segments)
    local scope = leaf and leaf.scope or scope_of(path, segments)
    if failing then return "app:error", scope.on_error_where end
    if leaf and not leaf.missing then return leaf.method .. " " .. pattern_of(leaf.segments), leaf.where end
    if scope.on_not_found then return "app:not_found", scope.on_not_found_where end
    if scope.uses[1] then return "app:use", scope.use_where end
    return nil
  end

  router.names[dispatch] = name_route
  return {
    dispatch = dispatch, failed = failed, gets = plain.GET, name_route = name_route,
    routes = function() return list_routes(flat) end, routes_of = function(of) return routes_of(flat, of) end, tunnels = has_tunnels(flat),
  }
end

-- name(dispatch, method, path, failing, host) -> the name and the place of the route that `dispatch` chooses for a request,
-- such as "GET /items/:id" and "site.lua:12", or of the error handler if `failing`; nil for a request without a route. For
-- messages: http_task.c calls it after a failure.
function router.name(dispatch, method, path, failing, host)
  local name_route = router.names[dispatch]
  if not name_route then return nil end
  local name, where = name_route(method, path, failing, host)
  return name, name and (where or "?")
end

return router
