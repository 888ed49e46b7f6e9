-- description.lua - what a site defines, for `luaserve --check`: listeners, routes, middleware, timers, functions that run by
-- themselves, limits. It stands between the site and the core while the site loads, in the one state of a server that only
-- checks.
--
-- Limits have the names of the options, in seconds and bytes; false: no limit.

local core = require "luaserve.core"
local json = require "luaserve.json"
local options = require "luaserve.options"
local usage = require "luaserve.usage"

local description = {}

local folders, read, opened = {}, {}, {} -- for `luaserve pack`: those of app:static; the files that were read, or by io.open
local found = { listeners = {}, udp = {}, timers = {}, hooks = {}, config = {} }

-- The options of these tables as the site has written them, from their values in the core, or their defaults.
local function limits(tables, out)
  local list = {}
  for _, specs in ipairs(tables) do
    for name, spec in pairs(specs) do
      local usual = spec ~= true and spec[5]
      if type(usual) == "string" then usual = options.bytes(usual) end
      local value = spec ~= true and out[spec[1]]
      if value == nil then value = usual end
      if type(value) == "number" and out[spec[1]] ~= nil then
        if value == spec.none then value = false elseif spec[2] == "seconds" then value = value / 1000 end
      end
      if type(value) == "number" or value == false and spec ~= true and spec.none then
        list[name] = { value = math.tointeger(value) or value, default = value == usual }
      end
    end
  end
  return list
end

local function limits_of_server() return limits({ options.calls["ls.config"][2] }, found.config) end

local function by_address(kind, call)
  return function(out)
    local tables = options.calls[call] or require("luaserve." .. kind).calls[call]
    local host, url = out.host ~= "" and out.host or "loopback", out.urls and out.urls:gsub("\n", " ")
    return {
      kind = url and "http.sys" or (kind == "tcp" and (out.tls and "tls" or "tcp")) or (out.tls and "https") or kind,
      address = url or host, port = not (url or host:find("^unix:")) and out.port or nil, where = out.where,
      limits = limits(tables, out), routes = out.routes and out.routes(),
    }
  end
end

-- What is recorded of each call of the core, and in which list.
local recorded = {
  listen = { "listeners", by_address("http", "ls.listen") },
  tcp = { "listeners", by_address("tcp", "ls.tcp") },
  udp = { "udp", by_address("udp", "ls.udp") },
  every = { "timers", function(seconds) return { every = seconds, where = usage.where() } end },
  after = { "timers", function(seconds) return { after = seconds, where = usage.where() } end },
  init = { "hooks", function() return { event = "init", where = usage.where() } end },
  on = { "hooks", function(event) return { event = event, where = usage.where() } end },
  on_host = { "hooks", function() return { event = "host", where = usage.where() } end },
}

-- Raises what a function of the core has raised at the line of its caller, as the core does.
local function finish(name, fine, result, ...)
  if not fine then error(tostring(result):gsub("'%?'", "'" .. name .. "'"), 2) end
  return result, ...
end

-- Have `take` see the first argument of a function of the core, and the results of the others.
local function observe(name, take)
  local inner = core[name]
  core[name] = function(path, ...)
    take(path)
    return inner(path, ...)
  end
end

-- begin(): before the site is loaded.
function description.begin()
  observe("static", function(path) folders[#folders + 1] = path end)
  for _, name in ipairs { "file_read", "file_open" } do observe(name, function(path) read[path] = true end) end
  for name, inner in pairs { open = io.open, lines = io.lines } do
    rawset(io, name, function(path, mode, ...)
      local writes = name == "open" and type(mode) == "string" and mode:find "[wa+]"
      if type(path) == "string" and not writes and not usage.is_internal(debug.getinfo(2, "S").source) then opened[path] = true end
      return inner(path, mode, ...)
    end)
  end
  for name, call in pairs(recorded) do
    local inner, list, record = core[name], found[call[1]], call[2]
    core[name] = function(...)
      if usage.caller() then list[#list + 1] = record(...) end
      return finish(name, pcall(inner, ...))
    end
  end
  local config = core.config
  core.config = function(out)
    config(out)
    for name, value in pairs(out) do found.config[name] = value end
  end
end

-- ---- text ----------------------------------------------------------------------------------------------------------

-- The routes in columns: method, pattern, place, and the places of their middleware.
local function write_routes(write, routes)
  local method, pattern, host = 0, 0, nil
  for _, route in ipairs(routes) do method, pattern = math.max(method, #route.method), math.max(pattern, #route.pattern) end
  for _, route in ipairs(routes) do
    if route.host ~= host then
      host = route.host
      write("  " .. host .. "\n")
    end
    write(("  %s%-" .. method .. "s  %-" .. pattern .. "s  (%s)%s\n"):format(host and "  " or "", route.method, route.pattern, route.where,
      #route.middleware > 0 and ", middleware " .. table.concat(route.middleware, ", ") or ""))
  end
end

-- Only those that are not the default: a site has some forty.
local function write_limits(write, list)
  local parts = {}
  for _, name in ipairs(options.sorted(list)) do
    local value = list[name].value
    if not list[name].default then parts[#parts + 1] = name .. "=" .. (value and ("%.14g"):format(value) or "none") end
  end
  if parts[1] then write("  limits: " .. table.concat(parts, ", ") .. "\n") end
end

local function text(server)
  local parts = {}
  local function write(part) parts[#parts + 1] = part end
  write(("threads: %d, with standby threads at most %d\nback end: %s\n"):format(server.threads, server.threads_max, server.back_end))
  write_limits(write, limits_of_server())
  for _, list in ipairs { found.listeners, found.udp } do
    for _, one in ipairs(list) do
      local kind = one.kind == "udp" and "udp: " or one.kind == "http" and "listener: " or "listener: " .. one.kind .. " "
      write(("%s%s%s (%s)\n"):format(kind, one.address, one.port and " port " .. one.port or "", one.where))
      write_routes(write, one.routes or {})
      write_limits(write, one.limits)
    end
  end
  for _, one in ipairs(found.timers) do
    write(("timer: %s %.14g s (%s)\n"):format(one.every and "every" or "after", one.every or one.after, one.where))
  end
  for _, one in ipairs(found.hooks) do
    write(("hook: %s (%s)\n"):format(one.event == "init" and "ls.init" or 'ls.on "' .. one.event .. '"', one.where))
  end
  return table.concat(parts)
end

-- files() -> what the site has loaded, for `luaserve pack`: lines "kind\tpath\tname of the module\n". The kinds: module and
-- file, whose paths start at the working directory; opened, by io.open; library, a module in C; static, views and read, whose
-- paths start at the directory of the site; private, with what it is in place of the name.
function description.files()
  local parts = {}
  local function add(kind, path, name) parts[#parts + 1] = table.concat({ kind, path, name or "" }, "\t") .. "\n" end
  local kept, views = core.kept(), package.loaded["luaserve.template"]
  for key, path in pairs(kept) do
    if path ~= true then add("module", path, key) elseif core.kept_text(key) then add("file", key) end
  end
  for name in pairs(package.loaded) do
    local path = not kept[name] and not package.preload[name] and package.searchpath(name, package.cpath)
    if path then add("library", path, name) end
  end
  for _, folder in ipairs(folders) do add("static", folder) end
  for _, folder in ipairs(views and views.folders() or {}) do add("views", folder) end
  for path in pairs(read) do add("read", path) end
  for path in pairs(opened) do add("opened", path) end
  local private = package.loaded["luaserve.private"]
  for path, name in pairs(private and private.data() or {}) do add("private", path, name) end
  return table.concat(parts)
end

-- ---- JSON ----------------------------------------------------------------------------------------------------------

-- encode(value, indent) -> JSON with sorted names and one member a line, so that two versions can be compared.
local function encode(value, indent)
  if type(value) ~= "table" then return json.encode(value) end
  local list, parts, inner = #value > 0 or getmetatable(value) ~= nil, {}, indent .. "  "
  if list then
    for i, one in ipairs(value) do parts[i] = encode(one, inner) end
  else
    for i, name in ipairs(options.sorted(value)) do parts[i] = json.encode(name) .. ": " .. encode(value[name], inner) end
  end
  if #parts == 0 then return list and "[]" or "{}" end
  return (list and "[\n" or "{\n") .. inner .. table.concat(parts, ",\n" .. inner) .. "\n" .. indent .. (list and "]" or "}")
end

description.encode = encode

local function values_of(list)
  local values = {}
  for name, limit in pairs(list) do values[name] = limit.value end
  return values
end

-- print(as_json, threads, threads_max, back_end): writes the description to standard output. The numbers are those of the server.
function description.print(as_json, threads, threads_max, back_end)
  local server = { threads = threads, threads_max = threads_max, back_end = back_end }
  require("luaserve.globals").warn()
  if not as_json then
    io.stdout:write(text(server))
    return
  end
  for _, one in ipairs { found.listeners, found.udp } do
    for _, listener in ipairs(one) do
      listener.limits = values_of(listener.limits)
      for _, route in ipairs(listener.routes or {}) do json.array(route.middleware) end
      if listener.routes then json.array(listener.routes) end
    end
  end
  for _, name in ipairs { "listeners", "udp", "timers", "hooks" } do server[name] = json.array(found[name]) end
  server.limits, server.site, server.luaserve = values_of(limits_of_server()), arg[0], core.version
  io.stdout:write(encode(server, ""), "\n")
end

return description
