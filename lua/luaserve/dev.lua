-- dev.lua - dev mode (`luaserve dev`) in a Lua state: it records the files that the site loads, answers the requests
-- below /__dev/, shows errors in the browser and logs a line for each request. Without dev mode core.dev is nil, and
-- nothing of this module is loaded.

local core = require "luaserve.core"
local page = require "luaserve.dev_page"
local state = require "luaserve.dev_state"
local usage = require "luaserve.usage"

local dev = {}

local body_shown_max = 4096 -- bytes of a request's body in the error page
local poll_seconds = 0.05 -- between the looks of an event stream at the version
local ping_seconds = 15 -- between its comments, which notice that the browser has closed the connection

local name_routes = setmetatable({}, { __mode = "k" }) -- of the apps, by request

-- ---- files ----------------------------------------------------------------------------------------------------------

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

-- The candidates in a message of package.searchpath.
local function record_candidates(message)
  for path in message:gmatch("no file '([^'\n]*)'") do core.dev.file(path) end
end

-- searcher(inner) -> the searcher of Lua modules, which records the file that it finds. A module that is found nowhere
-- may be a file that is missing: all places where it may appear are recorded.
local function searcher(inner)
  return function(name)
    local path, message = package.searchpath(name, package.path)
    if path then
      core.dev.file(path)
    elseif not package.preload[name] and not package.searchpath(name, package.cpath) then
      record_candidates(message)
    end
    local ok, loader, data = pcall(inner, name)
    if not ok then error(loader, 0) end -- without pcall its message would begin with this file
    return path and state.module_loader(loader, name) or loader, data
  end
end

-- opener(inner, folder) -> dofile or loadfile, which records the file. A relative name is one beside the site if that
-- exists (src/script/core/lua/lua_modules.c).
local function opener(inner, folder)
  return function(name, ...)
    if type(name) == "string" then
      local beside = folder .. name
      if folder ~= "" and not name:find("^[/\\]") and not name:find("^%a:") and exists(beside) then
        core.dev.file(beside)
      else
        core.dev.file(name)
        if folder ~= "" and not exists(name) then core.dev.file(beside) end
      end
    end
    return inner(name, ...)
  end
end

-- ---- the log --------------------------------------------------------------------------------------------------------

local function log_request(req, _, info)
  if req.path:sub(1, 7) == "/__dev/" then return end
  local hosts = package.loaded["luaserve.hosts"]
  core.log("info", string.format("%s %s%s %d %.1f ms", req.method, hosts and hosts.several and req.host or "", req.path, info.status,
    info.duration * 1000))
end

-- ---- pages ----------------------------------------------------------------------------------------------------------

local function no_store(type)
  return { ["Content-Type"] = type .. "; charset=utf-8", ["Cache-Control"] = "no-store" }
end

local reload_script = [[
(function () {
  var seen = document.currentScript.src.split("?")[1] || "";
  var events = new EventSource("/__dev/events?seen=" + seen);
  events.addEventListener("change", function () { events.close(); location.reload(); });
  events.addEventListener("style", function () {
    document.querySelectorAll("link[rel~=stylesheet][href]").forEach(function (link) {
      var url = new URL(link.href);
      if (url.origin !== location.origin) return;
      url.searchParams.set("dev", Date.now());
      link.href = url;
    });
  });
  addEventListener("pagehide", function () { events.close(); });
})();
]]

local elements = " !doctype a article aside b body br button code dd details div dl dt em fieldset figure footer form h1 "
  .. "h2 h3 h4 h5 h6 head header hr html i img input label li link main meta nav ol p pre script section select small "
  .. "span strong style svg table tbody td template textarea th thead title tr ul "

-- add_script(req, text, policy, middleware) -> the page with the script, or nil for a part of a page, which a script
-- of the page requests. Browsers send the use of a response; for other clients the beginning of the text decides.
--
-- `policy` false: the text has no media type. One that begins with a tag is meant as HTML. `middleware`: the place of the
-- one that has returned the page.
local function add_script(req, text, policy, middleware)
  if policy == false then
    local tag = text:sub(1, 200):lower():match("^%s*<(!?%a%w*)[%s/>]")
    if tag and elements:find(" " .. tag .. " ", 1, true) then
      local named = middleware and function() return "the middleware", middleware end
      state.warn_route(named or name_routes[req], req.method, req.path,
        "returns HTML as text, so browsers show its source: use res:html(text)")
    end
    return nil
  end
  local use = req.headers["sec-fetch-dest"]
  local document = use == "document" or use == "iframe"
  local at = text ~= "" and (not use or document) and page.script_place(text, document)
  if not at then return nil end
  local nonce = policy and page.nonce(policy)
  return string.format('%s<script src="/__dev/reload.js?%d"%s></script>%s', text:sub(1, at - 1), core.dev.version(),
    nonce and ' nonce="' .. nonce .. '"' or "", text:sub(at))
end

-- events(req, res): an event stream that ends with the event "change" as soon as the version is not that of the page.
-- After a restart the browser connects again, and the version differs as well. "style": only style sheets have changed.
local function events(req, res)
  local seen = math.tointeger(tonumber(req.query.seen)) or core.dev.version()
  for name, value in pairs(no_store("text/event-stream")) do res:header(name, value) end
  if not res:write("retry: 300\n\n") then return end
  local ping, styles = core.now() + ping_seconds, core.dev.styles()
  while core.dev.version() == seen do
    core.sleep(poll_seconds)
    if core.dev.draining() then return end
    if core.dev.styles() ~= styles then
      styles = core.dev.styles()
      if not res:write("event: style\ndata: " .. styles .. "\n\n") then return end
    end
    if core.now() > ping then
      if not res:write(":\n\n") then return end
      ping = core.now() + ping_seconds
    end
  end
  res:write("event: change\ndata: " .. core.dev.version() .. "\n\n")
end

-- local_host(req) -> whether the request names this machine. A page of another site can have its own name resolved to
-- this address, and would read the sources and errors otherwise.
local function local_host(req)
  local host = (req.headers.host or ""):lower()
  local name = host:match("^%[([%x:.]+)%]") or host:gsub(":%d+$", "")
  return name == "localhost" or name:find("%.localhost$") ~= nil or name:find("^[%x:]*:[%x:.]*$") ~= nil
    or name:find("^%d+%.%d+%.%d+%.%d+$") ~= nil
end

local function read(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("a")
  file:close()
  return text
end

local function source(req)
  local path = req.query.file and core.dev.find(req.query.file)
  local text = path and local_host(req) and read(path)
  if not text then return 404, "no such file among those that the site has loaded\n" end
  return 200, page.source(path, text, math.tointeger(tonumber(req.query.line))), no_store("text/html")
end

local pages = {
  ["/__dev/events"] = events,
  ["/__dev/source"] = source,
  ["/__dev/reload.js"] = function() return 200, reload_script, no_store("text/javascript") end,
}

-- wants_page(req) -> whether the client shows HTML, the request is for a page, and may see the sources.
local function wants_page(req)
  local use = req.headers["sec-fetch-dest"]
  return local_host(req) and (req.headers.accept or ""):find("text/html", 1, true) ~= nil
    and (use == nil or use == "document" or use == "iframe")
end

-- The files and links of the error page.
local places = {
  path_of = core.dev.find,
  read = read,
  link = function(path, line)
    local editor = core.dev.editor
    if editor == "" then return "/__dev/source?file=" .. core.url_encode(path) .. "&line=" .. line .. "#L" .. line end
    local folder = os.getenv("PWD")
    if folder and not path:find("^[/\\]") and not path:find("^%a:") then path = folder .. "/" .. path end
    local values = { file = path, line = tostring(line) }
    return (editor:gsub("{(%a+)}", values))
  end,
}

-- body_start(req) -> the beginning of the body and its length, or nil: the request has no body, or the handler has taken
-- it in parts.
local function body_start(req)
  local length = tonumber(req.headers["content-length"])
  if length == 0 or length == nil and not req.headers["transfer-encoding"] then return nil end
  local ok, body = pcall(req.body, req)
  if not ok or type(body) ~= "string" then return nil end
  return body:sub(1, body_shown_max), #body
end

local function request_of(req)
  local headers = {}
  for name, value in pairs(req.headers) do headers[#headers + 1] = { name, value } end
  table.sort(headers, function(a, b) return a[1] < b[1] end)
  local body, bytes = body_start(req)
  local query = {}
  for name, value in pairs(req.query) do query[#query + 1] = { name, value } end
  table.sort(query, function(a, b) return a[1] < b[1] end)
  return { method = req.method, path = req.path, headers = headers, query = query, body = body, body_bytes = bytes }
end

local function failure_page(message, traceback)
  return 500, page.failure({
    title = "The site does not load",
    note = "The version before the change still serves other clients. This page reloads itself after the next change.",
    message = message, traceback = traceback,
  }, places), no_store("text/html")
end

-- ---- requests -------------------------------------------------------------------------------------------------------

local function finish(req, res, ...)
  core.dev.slow_end()
  state.end_request(req, res, ...)
  if core.dev.sse_never_waited(res) then
    state.warn_route(name_routes[req], req.method, req.path, "the stream ended with its handler: call sse:wait()", ": ")
  end
  return ...
end

-- dev.prepare(app): before the app is compiled; state.route sees the results of its handlers.
function dev.prepare(app)
  for _, use in ipairs(app.uses) do state.middleware(use.fn) end
  for _, route in ipairs(app.routes) do
    if route.fn then route.fn = state.route(route.fn) end
    for _, use in ipairs(route.uses or {}) do state.middleware(use.fn) end
  end
  for _, mount in ipairs(app.mounts) do dev.prepare(mount.app) end
end

-- wrap(dispatcher, app) -> the dispatcher of the app (router.lua) in dev mode.
function dev.wrap(dispatcher, app)
  local inner, inner_failed = dispatcher.dispatch, dispatcher.failed
  state.observe(app)

  local function dispatch(req, res, method, path, too_big)
    local own = pages[path]
    if own and method == "GET" then return own(req, res) end
    local failure, trace = core.dev.failure()
    if failure and (method == "GET" or method == "HEAD") and wants_page(req) then return failure_page(failure, trace) end
    name_routes[req] = dispatcher.name_route
    core.dev.slow_begin()
    if not req.headers.upgrade then state.begin_request() end
    return finish(req, res, inner(req, res, method, path, too_big))
  end

  local function failed(req, res, err, traceback)
    if wants_page(req) then
      return 500, page.failure({
        title = req.method .. " " .. req.path .. " failed", message = page.text_of(err, traceback), traceback = traceback,
        request = request_of(req),
      }, places), no_store("text/html")
    end
    local results = table.pack(inner_failed(req, res, err, traceback))
    if results.n == 1 and results[1] == 500 and not res.sent and local_host(req) then
      return 500, "500 Internal Server Error\n\n" .. tostring(traceback) .. "\n", no_store("text/plain")
    end
    return table.unpack(results, 1, results.n)
  end

  require("luaserve.router").names[dispatch] = dispatcher.name_route
  return {
    dispatch = dispatch, failed = failed, name_route = dispatcher.name_route, routes = dispatcher.routes,
    tunnels = dispatcher.tunnels,
  }
end

-- passed_on(name, ok, result, ...) -> the results after `ok` of a core function of this name, or its error at the line of the site.
local function passed_on(name, ok, result, ...)
  if not ok then usage.error("%s", (tostring(result):gsub("'%?'", "'" .. name .. "'"))) end
  return result, ...
end

-- dev.begin(): begins dev mode in this state, before the site is loaded.
function dev.begin()
  local site = core.dev.site
  local folder = site:match("^(.*[/\\])") or ""
  core.dev.file(site)
  package.searchers[2] = searcher(package.searchers[2])
  dofile, loadfile = opener(dofile, folder), opener(loadfile, folder) -- luacheck: ignore 121
  state.begin()
  for name, watch in pairs { every = state.watch_timer, after = state.watch_timer, spawn_of_site = state.watch_spawn,
    subscribe = state.watch_pattern } do
    local inner = core[name]
    core[name] = function(...)
      watch(...)
      return passed_on(name:match("^%a+"), pcall(inner, ...))
    end
  end
  core.on("log", log_request)
  core.dev.on_page(add_script)
  core.dev.on_run(state.check)
end

-- dev.loaded(): the site has loaded.
function dev.loaded()
  state.arm()
  require("luaserve.globals").warn()
end

return dev
