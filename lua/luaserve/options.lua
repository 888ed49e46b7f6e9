-- options.lua - the options of ls.listen and ls.config: their names, units and ranges, and the core's names for them.
--
-- In Lua, times are seconds and sizes are bytes or "64k"; in the core, the unit is part of the name. This table is the
-- only place that converts between them. lua/docs/reference/server.md documents the options.

local usage = require "luaserve.usage"
usage.ours()

local options = {}

local units = { [""] = 1, k = 1024, m = 1024 ^ 2, g = 1024 ^ 3, t = 1024 ^ 4 }
local uint32_max = 2 ^ 32 - 1

-- Bytes of 4096, "64k", "1.5m", "10g"; nil when it is none of these.
function options.bytes(value)
  if type(value) == "string" then
    local number, unit = value:lower():match("^(%d+%.?%d*)%s*([kmgt]?)i?b?$")
    number = tonumber(number)
    if not number then return nil end
    value = number * units[unit]
  end
  if type(value) ~= "number" or not (value >= 0 and value < 2 ^ 62) then return nil end
  return math.tointeger(value) or math.ceil(value)
end

local kinds = {
  size = {
    says = 'a number of bytes, or a text such as "64k", "10m" or "2g"',
    read = options.bytes,
    show = function(n) return string.format("%.0f bytes", n) end,
  },
  seconds = {
    says = "a number of seconds, such as 10 or 0.5",
    read = function(value)
      if type(value) ~= "number" or not (value >= 0 and value < 2 ^ 53) then return nil end
      return math.ceil(value * 1000)
    end,
    show = function(n) return string.format("%g s", n / 1000) end,
  },
  count = {
    says = "a whole number",
    read = function(value) return type(value) == "number" and math.tointeger(value) or nil end,
    show = function(n) return string.format("%.0f", n) end,
  },
  rate = {
    says = 'a number of bytes per second, or a text such as "1k"',
    read = options.bytes,
    show = function(n) return string.format("%.0f bytes per second", n) end,
  },
}

-- name = { the core's name, kind, smallest, largest }; `none`: the core's value for `false`, where that is allowed.
local listener = {
  max_head = { "head_bytes_max", "size", 256, 65536 },
  max_target = { "target_bytes_max", "size", 16, 65536 },
  max_fields = { "fields_max", "count", 1, 100 },
  max_body = { "body_bytes_max", "size", 0, math.maxinteger, none = math.maxinteger },
  head_timeout = { "head_ms_max", "seconds", 1, uint32_max },
  body_grace = { "body_grace_ms", "seconds", 1, uint32_max },
  min_body_rate = { "body_rate_min", "rate", 0, uint32_max },
  idle_timeout = { "idle_ms_max", "seconds", 1, uint32_max },
  send_timeout = { "send_stall_ms_max", "seconds", 1, uint32_max },
  max_unread = { "unread_bytes_max", "size", 1, uint32_max },
  linger = { "linger_ms_max", "seconds", 0, uint32_max },
  write_ahead = { "write_bytes_high", "size", 1, uint32_max },
}

local process = {
  threads = { "threads", "count", 1, 1024 },
  threads_max = { "threads_max", "count", 1, 1024 },
  max_connections = { "connections_max", "count", 1, 10000000 },
  max_buffers = { "pool_bytes_max", "size", 1024 * 1024, math.maxinteger },
  max_memory = { "lua_bytes_max", "size", 1024 * 1024, math.maxinteger },
  max_cpu = { "handler_cpu_ms_max", "seconds", 1, uint32_max },
  drain_timeout = { "drain_ms_max", "seconds", 1, uint32_max },
  accepts_posted = { "accepts_posted", "count", 1, 1024 },
  backlog = { "backlog", "count", 1, 65535 },
}

local function read(who, name, value, spec)
  local kind = kinds[spec[2]]
  if value == false and spec.none then return spec.none end
  local number = kind.read(value)
  if not number then
    usage.raise("%s: %s must be %s%s; got %s", who, name, kind.says, spec.none and ", or false for no limit" or "",
      usage.show(value))
  end
  if number < spec[3] then
    usage.raise("%s: %s must be at least %s; got %s", who, name, kind.show(spec[3]), usage.show(value))
  elseif number > spec[4] then
    usage.raise("%s: %s must be at most %s; got %s", who, name, kind.show(spec[4]), usage.show(value))
  end
  return number
end

local function merged(...)
  local all = {}
  for _, names in ipairs { ... } do
    for name in pairs(names) do all[name] = true end
  end
  return all
end

-- Raise unless every key of `given` is one of `known`.
function options.check_names(who, given, known)
  for name in pairs(given) do
    if not known[name] then
      usage.raise("%s: unknown option %s%s", who, usage.show(name), usage.hint(name, known))
    end
  end
end

-- A body limit as in a route's `max_body`: bytes, or false for none. Raises.
function options.max_body(who, value)
  local bytes = read(who, "max_body", value, listener.max_body)
  return bytes ~= math.maxinteger and bytes
end

local listen_known = merged(listener, { host = true, port = true, path = true, app = true, engine = true, url = true })
local config_known = merged(listener, process, { nameservers = true })

local listen_says = 'ls.listen(8080, app), ls.listen("host:port", app) or ls.listen{ port = 8080, app = app, ... }'

-- The core takes addresses, not names. "localhost" is what it says: the loopback, IPv4 and IPv6.
local function check_host(who, host)
  if host == "localhost" then return "" end
  if host == "" or host == "*" or host:find(":", 1, true) or host:match("^%d+%.%d+%.%d+%.%d+$") then return host end
  usage.raise('%s: host must be an address such as "127.0.0.1", "::1" or "*" (names are not looked up); got %q',
    who, host)
end

-- "host", port of "host:port" or "[::1]:port"; nil when it is neither.
function options.host_port(text)
  local host, port = text:match("^%[([%x:.%%%w]+)%]:(%d+)$")
  if not host then host, port = text:match("^([^:%[%]]+):(%d+)$") end
  return host, tonumber(port)
end

local function address_of_text(who, text, no_paths)
  local path = not no_paths and text:match("^unix:(.+)$")
  if path then return "unix:" .. path, 0 end
  if text:match("^%d+$") then return "", tonumber(text) end
  local host, port = options.host_port(text)
  if host then return check_host(who, host), port end
  if text:match("^:%d+$") then
    usage.raise('%s: %q names no host; write %s for this machine alone, or "*%s" for everyone', who, text,
      text:sub(2), text)
  end
  usage.raise('%s: %q is no address; write 8080, "127.0.0.1:8080", "[::1]:8080"%s', who, text,
    no_paths and ' or "*:8080"' or ', "*:8080" or "unix:/path"')
end

-- A port as a whole number, from `least` (0 picks a free one) on. Raises.
function options.port(who, port, least)
  if math.type(port) == "float" then port = math.tointeger(port) or port end
  if math.type(port) ~= "integer" or port < least or port > 65535 then
    usage.raise("%s: port must be a whole number from %s to 65535; got %s", who,
      least == 0 and "0 (pick a free one)" or least, usage.show(port))
  end
  return port
end

local function address_of_table(who, given, no_paths)
  local host, port, path = given.host, given.port, given.path
  if host ~= nil and type(host) ~= "string" then
    usage.raise('%s: host must be a text such as "127.0.0.1", "::1" or "*"; got %s', who, usage.show(host))
  end
  if host and not no_paths and host:match("^unix:") then
    if path ~= nil then usage.raise("%s: host and path both name a Unix socket; leave one out", who) end
    path, host = host:sub(6), nil
  end
  if path ~= nil then
    if type(path) ~= "string" or path == "" then
      usage.raise('%s: path must be the file name of a Unix socket, such as "/run/site.sock"; got %s', who,
        usage.show(path))
    end
    if host ~= nil or port ~= nil then
      usage.raise("%s: path is a Unix socket and goes without host and port", who)
    end
    return "unix:" .. path, 0
  end
  if port == nil then usage.raise("%s: port is missing (0 picks a free one)", who) end
  if host then host = host:match("^%[(.*)%]$") or host end
  return check_host(who, host or ""), options.port(who, port, 0)
end

-- Where to listen: 8080, "host:port", "unix:/path" or a table with host, port, path -> host, port for the core. A host
-- of "" is the loopback. `no_paths`: no Unix sockets. Raises at the caller's line; nothing for another type.
function options.address(who, at, no_paths)
  local host, port
  if type(at) == "number" then
    host, port = "", options.port(who, at, 0)
  elseif type(at) == "string" then
    host, port = address_of_text(who, at, no_paths)
    options.port(who, port, 0)
  elseif type(at) == "table" then
    host, port = address_of_table(who, at, no_paths)
  else
    return nil
  end
  if #host > 111 then usage.raise("%s: %s is too long (at most 111 bytes)", who, usage.show(host)) end
  return host, port
end

-- The fields of `given` that `specs` has (as `listener` above), with the core's names, put into `out`. Raises.
function options.read_all(who, given, specs, out)
  for name, spec in pairs(specs) do
    if given[name] ~= nil then out[spec[1]] = read(who, name, given[name], spec) end
  end
  return out
end

options.merged = merged

local engines = { luaserve = true, ["http.sys"] = true }
local urls_max, urls_bytes_max = 16, 2046 -- LS_HTTPSYS_URLS_MAX; LS_HTTPSYS_URLS_BYTES without the ends

local function check_engine(who, engine, supported)
  if engine ~= nil and not engines[engine] then
    usage.raise('%s: engine must be "luaserve" or, on Windows, "http.sys"; got %s%s', who, usage.show(engine),
      type(engine) == "string" and usage.hint(engine, engines) or "")
  elseif engine == "http.sys" and not supported then
    usage.raise('%s: engine "http.sys" is the HTTP server of Windows; on this system there is "luaserve" alone', who)
  end
  return engine == "http.sys"
end

local function check_url(who, url)
  if type(url) ~= "string" then
    usage.raise('%s: url must be a text such as "http://+:8080/", or a list of them; got %s', who, usage.show(url))
  end
  local port = url:match("^https?://[^/:%[%]%s%c]+:(%d+)/[^?#%c]*$") or url:match("^https?://%[[%x:.]+%]:(%d+)/[^?#%c]*$")
  port = tonumber(port)
  if not port or port < 1 or port > 65535 then
    usage.raise("%s: %s is no URL for http.sys; write http://host:port/ or http://host:port/path/, with a port from "
      .. "1 to 65535, and + as the host for every name", who, usage.show(url))
  end
  return url
end

-- "http://+:8080/", or a list of such -> the same, one to a line.
local function check_urls(who, value)
  if value == nil then
    usage.raise('%s: engine = "http.sys" needs url = "http://+:8080/", or a list of URLs', who)
  end
  local urls = {}
  for i, url in ipairs(type(value) == "table" and value or { value }) do urls[i] = check_url(who, url) end
  if #urls == 0 then check_url(who, value) end
  local text = table.concat(urls, "\n")
  if #urls > urls_max or #text > urls_bytes_max then
    usage.raise("%s: url takes at most %d URLs, of %d bytes in all; got %d of %d bytes", who, urls_max, urls_bytes_max,
      #urls, #text)
  end
  return text
end

-- What ls.listen was given -> { host=, port= or urls=, http={core's names} }, app. `defaults` is the http table that
-- ls.config made, `http_sys` whether this system has it. The app is returned unchecked. Raises at the caller's line.
function options.listen(defaults, at, app, http_sys)
  local out = { http = {} }
  for name, value in pairs(defaults) do out.http[name] = value end
  if type(at) == "table" then
    options.check_names("ls.listen", at, listen_known)
    if app ~= nil then usage.raise("ls.listen: with a table, the app goes into it: app = app") end
    app = at.app
    options.read_all("ls.listen", at, listener, out.http)
    if check_engine("ls.listen", at.engine, http_sys) then
      for _, name in ipairs { "host", "port", "path" } do
        if at[name] ~= nil then
          usage.raise('ls.listen: %s does not go with engine = "http.sys"; url says it all', name)
        end
      end
      out.urls = check_urls("ls.listen", at.url)
      return out, app
    elseif at.url ~= nil then
      usage.raise('ls.listen: url needs engine = "http.sys"; the engine "luaserve" takes host and port')
    end
  end
  out.host, out.port = options.address("ls.listen", at)
  if not out.host then
    usage.raise("ls.listen: the first argument says where to listen: %s; got %s", listen_says, usage.show(at))
  end
  return out, app
end

-- "127.0.0.1", "[::1]", or one of these with ":" and a port -> the same with a port; nil when it is none.
local function name_server(text)
  if type(text) ~= "string" then return nil end
  local host, port = text:match("^(.-):?(%d*)$")
  if text:find("%]$") or not text:find(":", 1, true) then host, port = text, "53" end
  local number = tonumber(port)
  if not number or number < 1 or number > 65535 then return nil end
  local octets = { host:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$") }
  for _, octet in ipairs(octets) do
    if tonumber(octet) > 255 then return nil end
  end
  if #octets == 0 and not host:match("^%[%x*:[%x:]*:[%x:.]*%%?%w*%]$") then return nil end
  return host .. ":" .. port
end

-- "127.0.0.1:53", "[::1]:53", "1.1.1.1", or a list of such -> the same with ports, separated by commas.
local function nameservers(value)
  local list = {}
  for i, text in ipairs(type(value) == "table" and value or { value }) do
    list[i] = name_server(text)
    if not list[i] then
      usage.raise('ls.config: nameservers must be addresses such as "127.0.0.1:53" or "[::1]:53", or a list of them; '
        .. "got %s", usage.show(text))
    end
  end
  local text = table.concat(list, ",")
  if #list < 1 or #list > 10 or #text > 255 then
    usage.raise("ls.config: nameservers must be 1 to 10 addresses, of 255 bytes in all")
  end
  return text
end

-- What ls.config was given -> settings of the process, defaults for listeners; both with the core's names. Raises.
function options.config(given)
  if type(given) ~= "table" then
    usage.raise("ls.config takes a table of options: ls.config{ threads = 4, max_body = \"64m\" }; got %s",
      usage.show(given))
  end
  options.check_names("ls.config", given, config_known)
  local settings, http = {}, {}
  for name, value in pairs(given) do
    if name == "nameservers" then
      settings.nameservers = nameservers(value)
    elseif process[name] then
      settings[process[name][1]] = read("ls.config", name, value, process[name])
    else
      http[listener[name][1]] = read("ls.config", name, value, listener[name])
    end
  end
  if settings.threads and settings.threads_max and settings.threads_max < settings.threads then
    usage.raise("ls.config: threads_max (%d) must not be below threads (%d)", settings.threads_max, settings.threads)
  end
  return settings, http
end

return options
