-- options.lua - the options of ls.listen and ls.config: their names, units, ranges and their names in the core.
--
-- In Lua, times are seconds and sizes are bytes or "64k"; in the core, the unit is part of the name. Only this file
-- converts between them. lua/docs/reference/server.md documents the options.

local usage = require "luaserve.usage"
usage.mark_internal()

local options = {}

local units = { [""] = 1, k = 1024, m = 1024 ^ 2, g = 1024 ^ 3, t = 1024 ^ 4 }
local uint32_max = 2 ^ 32 - 1
local on_windows = package.config:sub(1, 1) == "\\"

-- bytes(4096 | "64k" | "1.5m" | "10g") -> the number of bytes as an integer; nil for an invalid size.
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
    expected = 'a number of bytes or a string such as "64k", "10m" or "2g"',
    read = options.bytes,
    show = function(n) return string.format("%.0f", n) end,
    unit = " bytes",
  },
  seconds = {
    expected = "a number of seconds, such as 10 or 0.5",
    read = function(value)
      if type(value) ~= "number" or not (value >= 0 and value < 2 ^ 53) then return nil end
      return math.ceil(value * 1000)
    end,
    show = function(n) return string.format("%.10g", n / 1000) end,
    unit = " s",
  },
  count = {
    expected = "a whole number",
    read = function(value) return type(value) == "number" and math.tointeger(value) or nil end,
    show = function(n) return string.format("%.0f", n) end,
    unit = "",
  },
  rate = {
    expected = 'a number of bytes per second or a string such as "1k"',
    read = options.bytes,
    show = function(n) return string.format("%.0f", n) end,
    unit = " bytes per second",
  },
  flag = {
    expected = "true or false",
    read = function(value) if type(value) == "boolean" then return value end end,
  },
}

-- name = { name in the core, kind, minimum, maximum, none = the core's value for `false`, if `false` is allowed }. A
-- flag has no minimum and maximum. tests/unit/lua/test_option_tables.lua tries every entry of such a table.
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
  min_send_rate = { "send_rate_min", "rate", 0, uint32_max },
  max_unread = { "unread_bytes_max", "size", 1, uint32_max },
  linger = { "linger_ms_max", "seconds", 0, uint32_max },
  write_ahead = { "write_bytes_high", "size", 1, uint32_max },
}

-- What comes before the protocol: PROXY headers and TLS. Of ls.tcp as well.
local handshake = {
  handshake_timeout = { "handshake_ms_max", "seconds", 1, uint32_max },
  max_handshakes = { "handshakes_max", "count", 1, 10000000 },
}

local process = {
  threads = { "threads", "count", 1, 1024 },
  threads_max = { "threads_max", "count", 1, 1024 },
  states = { "states_max", "count", 1, 1024 },
  max_connections = { "connections_max", "count", 1, 10000000 },
  max_buffers = { "pool_bytes_max", "size", 1024 * 1024, math.maxinteger },
  max_memory = { "lua_bytes_max", "size", 1024 * 1024, math.maxinteger },
  max_jobs = { "jobs_max", "count", 1, 1000000 },
  max_cpu = { "handler_cpu_ms_max", "seconds", 1, uint32_max },
  drain_timeout = { "drain_ms_max", "seconds", 1, uint32_max },
  accepts_posted = { "accepts_posted", "count", 1, 1024 },
  backlog = { "backlog", "count", 1, 65535 },
}

local function read(fname, name, value, spec)
  local kind = kinds[spec[2]]
  if value == false and spec.none then return spec.none end
  local number = kind.read(value)
  if number == nil then
    usage.error("%s: %s must be %s%s; got %s", fname, name, kind.expected,
      spec.none and ", or false for no limit" or "", usage.quote(value))
  end
  if not kind.show then return number end
  local least, most = spec[3], spec[4]
  if number < least or number > most then
    local range = most == math.maxinteger and "at least " .. kind.show(least)
      or "from " .. kind.show(least) .. " to " .. kind.show(most)
    usage.error("%s: %s must be %s%s; got %s", fname, name, range, kind.unit, usage.quote(value))
  end
  return number
end

-- merged(table, ...) -> a table with the keys of all, and the values of the last one that has the key.
local function merged(...)
  local all = {}
  for _, names in ipairs { ... } do
    for name, value in pairs(names) do all[name] = value end
  end
  return all
end

-- check_names(fname, given, known [, listed]): raises unless every key of `given` is a key of `known`. With `listed` the
-- message lists the known ones when none is near.
function options.check_names(fname, given, known, listed)
  for name in pairs(given) do
    if not known[name] then
      local hint = usage.suggest(name, known)
      if listed and hint == "" then
        local names = {}
        for other in pairs(known) do names[#names + 1] = other end
        table.sort(names)
        hint = "; the options are " .. table.concat(names, ", ")
      end
      usage.error("%s: unknown option %s%s", fname, usage.quote(name), hint)
    end
  end
end

-- is_token(text) -> whether the text is a token, such as a method or the name of a header (RFC 9110 section 5.6.2).
function options.is_token(text)
  return type(text) == "string" and text:find("^[%w!#$%%&'*+.^_`|~-]+$") ~= nil
end

-- fields(t, check) -> a list of { name, value }: the fields of t, such as headers, sorted by name. A value that is a list
-- gives one field for each of its values. First check(name) is called for each name, unless `check` is nil.
function options.fields(t, check)
  local names, list = {}, {}
  for name in pairs(t) do
    if check then check(name) end
    names[#names + 1] = name
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local value = t[name]
    for _, one in ipairs(type(value) == "table" and value or { value }) do list[#list + 1] = { name, one } end
  end
  return list
end

-- skips(fname, overflow) -> whether a subscriber whose queue is full skips messages; it is closed by default. Raises.
function options.skips(fname, overflow)
  if overflow ~= nil and overflow ~= "close" and overflow ~= "skip" then
    usage.error('%s: overflow must be "close" or "skip"; got %s', fname, usage.quote(overflow))
  end
  return overflow == "skip"
end

-- max_body(fname, value) -> the body limit of a route in bytes, or false for no limit. Raises.
function options.max_body(fname, value)
  local bytes = read(fname, "max_body", value, listener.max_body)
  return bytes ~= math.maxinteger and bytes
end

local listen_address = { host = true, port = true, path = true, app = true, engine = true, url = true }
-- Beside any address of a listener; luaserve.tls reads them.
local security = { tls = true, trusted = true, proxy_protocol = true }
options.handshake = handshake
options.beside_address = merged(security, handshake, { mode = true, owner = true })
local listen_known = merged(listener, listen_address, options.beside_address)
local config_known = merged(listener, process, { nameservers = true })

-- The tables of options, for the tests.
options.known = { ["ls.listen"] = listen_known, ["ls.config"] = config_known }
options.specs = { ["ls.listen"] = merged(listener, handshake), ["ls.config"] = merged(listener, process) }

local listen_forms = 'ls.listen(8080, app), ls.listen("host:port", app) or ls.listen{ port = 8080, app = app, ... }'

-- check_host(fname, host) -> the host for the core, which takes addresses, not names. "localhost" becomes "": the
-- loopback interface, IPv4 and IPv6. Raises.
local function check_host(fname, host)
  if host == "localhost" then return "" end
  if host == "" or host == "*" or host:find(":", 1, true) or host:match("^%d+%.%d+%.%d+%.%d+$") then return host end
  usage.error('%s: host must be an address such as "127.0.0.1", "::1" or "*" (names are not looked up); got %q',
    fname, host)
end

-- host_port("host:port" | "[::1]:port") -> host, port; nil for another string.
function options.host_port(text)
  local host, port = text:match("^%[([%x:.%%%w]+)%]:(%d+)$")
  if not host then host, port = text:match("^([^:%[%]]+):(%d+)$") end
  return host, tonumber(port)
end

local function address_of_text(fname, text, no_paths)
  local path = not no_paths and text:match("^unix:(.+)$")
  if path then return "unix:" .. path, 0 end
  if text:match("^%d+$") then return "", tonumber(text) end
  local host, port = options.host_port(text)
  if host then return check_host(fname, host), port end
  if text:match("^:%d+$") then
    usage.error('%s: %q has no host; write %s for the loopback interface or "*%s" for all interfaces', fname, text,
      text:sub(2), text)
  end
  usage.error('%s: invalid address %q; write 8080, "127.0.0.1:8080", "[::1]:8080"%s', fname, text,
    no_paths and ' or "*:8080"' or ', "*:8080" or "unix:/path"')
end

-- port(fname, port, least) -> the port as an integer from `least` to 65535; 0 picks a free port. `port` may be a string
-- of digits, as from os.getenv. Raises.
function options.port(fname, port, least)
  local number = port
  if type(port) == "string" and port:match("^%d+$") then number = tonumber(port) end
  number = math.type(number) and math.tointeger(number)
  if not number or number < least or number > 65535 then
    usage.error("%s: port must be a whole number from %s to 65535; got %s", fname,
      least == 0 and "0 (pick a free one)" or least, usage.quote(port))
  end
  return number
end

-- unix_path(fname, path, host, port) -> "unix:/path". Raises unless `path` is a file name and host and port are nil.
function options.unix_path(fname, path, host, port)
  if type(path) ~= "string" or path == "" then
    usage.error('%s: path must be the file name of a Unix socket, such as "/run/site.sock"; got %s', fname,
      usage.quote(path))
  end
  if host ~= nil or port ~= nil then
    usage.error("%s: path names a Unix socket and cannot be combined with host or port", fname)
  end
  return "unix:" .. path
end

local function address_of_table(fname, given, no_paths)
  local host, port, path = given.host, given.port, given.path
  if host ~= nil and type(host) ~= "string" then
    usage.error('%s: host must be a string such as "127.0.0.1", "::1" or "*"; got %s', fname, usage.quote(host))
  end
  if host and not no_paths and host:match("^unix:") then
    if path ~= nil then usage.error("%s: host and path both name a Unix socket; give only one of them", fname) end
    path, host = host:sub(6), nil
  end
  if path ~= nil then return options.unix_path(fname, path, host, port), 0 end
  if port == nil then usage.error("%s: port is missing (0 picks a free one)", fname) end
  if host then host = host:match("^%[(.*)%]$") or host end
  return check_host(fname, host or ""), options.port(fname, port, 0)
end

-- address(fname, at [, no_paths]) -> host, port for the core. `at`: 8080, "host:port", "unix:/path" or a table with
-- host, port, path. The host "" is the loopback interface. `no_paths`: no Unix sockets. Raises; returns nil for
-- another type.
function options.address(fname, at, no_paths)
  local host, port
  if type(at) == "number" then
    host, port = "", options.port(fname, at, 0)
  elseif type(at) == "string" then
    host, port = address_of_text(fname, at, no_paths)
    options.port(fname, port, 0)
  elseif type(at) == "table" then
    host, port = address_of_table(fname, at, no_paths)
  else
    return nil
  end
  if #host > 111 then usage.error("%s: %s is too long (at most 111 bytes)", fname, usage.quote(host)) end
  return host, port
end

-- mode_of(fname, "0660" | 432) -> the permission bits as an integer. Raises.
local function mode_of(fname, mode)
  local bits = mode
  if type(mode) == "string" then
    bits = mode:match("^[0-7]+$") and tonumber(mode, 8)
  elseif type(mode) == "number" then
    bits = math.tointeger(mode)
  end
  if math.type(bits) ~= "integer" or bits < 0 or bits > 511 then
    usage.error('%s: mode must be octal digits in a string, from "0000" to "0777", such as "0660"; got %s', fname,
      usage.quote(mode))
  end
  return bits
end

-- The number of a user or group, which is `name` itself or looked up.
local function id_of(fname, kind, name, look_up)
  local id = name:match("^%d+$") and math.tointeger(tonumber(name))
  if id and id < uint32_max then return id end
  local err, code
  id, err, code = look_up(name)
  if id then return id end
  if code == "ENOENT" then usage.error("%s: owner: unknown %s %s", fname, kind, usage.quote(name)) end
  usage.error("%s: owner: cannot look up the %s %s: %s", fname, kind, usage.quote(name), err)
end

-- path_access(fname, given, host, core, out). Reads mode and owner of the Unix socket `host` into out.mode, out.user
-- and out.group. Raises.
function options.path_access(fname, given, host, core, out)
  local name = given.mode ~= nil and "mode" or given.owner ~= nil and "owner"
  if not name then return end
  if not host:match("^unix:[^@]") then
    usage.error('%s: %s belongs to the file of a Unix socket; give path = "/run/site.sock" with it', fname, name)
  end
  if on_windows then usage.error("%s: %s is not supported on Windows", fname, name) end
  if given.mode ~= nil then out.mode = mode_of(fname, given.mode) end
  if given.owner == nil then return end
  local user, colon, group = tostring(given.owner):match("^([^:]*)(:?)([^:]*)$")
  if type(given.owner) ~= "string" or not user or user .. group == "" or (colon == ":" and group == "") then
    usage.error('%s: owner must be "user", "user:group" or ":group"; got %s', fname, usage.quote(given.owner))
  end
  if user ~= "" then out.user = id_of(fname, "user", user, core.user_id) end
  if group ~= "" then out.group = id_of(fname, "group", group, core.group_id) end
end

-- security(fname, given, core, out, alpn): reads the limits of handshakes, and tls, trusted and proxy_protocol: see
-- luaserve.tls.
function options.security(fname, given, core, out, alpn)
  options.read_all(fname, given, handshake, out)
  for name in pairs(security) do
    if given[name] ~= nil then return require("luaserve.tls").read(fname, given, core, out, alpn) end
  end
end

-- read_all(fname, given, specs, out [, prefix]) -> out. Reads the fields of `given` that `specs` describes (a table like
-- `listener`) into `out`, under their names in the core. `prefix` is put before the names in messages. Raises.
function options.read_all(fname, given, specs, out, prefix)
  for name, spec in pairs(specs) do
    if given[name] ~= nil then out[spec[1]] = read(fname, (prefix or "") .. name, given[name], spec) end
  end
  return out
end

options.merged = merged

local engines = { luaserve = true, ["http.sys"] = true }
local urls_max, urls_bytes_max = 16, 2046 -- LS_HTTPSYS_URLS_MAX; LS_HTTPSYS_URLS_BYTES without the terminators

local function check_engine(fname, engine, supported)
  if engine ~= nil and not engines[engine] then
    usage.error('%s: engine must be "luaserve" or, on Windows, "http.sys"; got %s%s', fname, usage.quote(engine),
      type(engine) == "string" and usage.suggest(engine, engines) or "")
  elseif engine == "http.sys" and not supported then
    usage.error('%s: engine "http.sys" is available on Windows only; use "luaserve" on this system', fname)
  end
  return engine == "http.sys"
end

local function check_url(fname, url)
  if type(url) ~= "string" then
    usage.error('%s: url must be a string such as "http://+:8080/", or a list of URLs; got %s', fname,
      usage.quote(url))
  end
  local port = url:match("^https?://[^/:%[%]%s%c]+:(%d+)/[^?#%c]*$")
    or url:match("^https?://%[[%x:.]+%]:(%d+)/[^?#%c]*$")
  port = tonumber(port)
  if not port or port < 1 or port > 65535 then
    usage.error("%s: invalid URL %s for http.sys; write http://host:port/ or http://host:port/path/, with a port from "
      .. "1 to 65535; the host + stands for every host name", fname, usage.quote(url))
  end
  return url
end

-- check_urls(fname, "http://+:8080/" | list) -> the URLs in one string, one per line. Raises.
local function check_urls(fname, value)
  if value == nil then
    usage.error('%s: engine = "http.sys" needs url = "http://+:8080/", or a list of URLs', fname)
  end
  local urls = {}
  for i, url in ipairs(type(value) == "table" and value or { value }) do urls[i] = check_url(fname, url) end
  if #urls == 0 then check_url(fname, value) end
  local text = table.concat(urls, "\n")
  if #urls > urls_max or #text > urls_bytes_max then
    usage.error("%s: url takes at most %d URLs of %d bytes in total; got %d of %d bytes", fname, urls_max,
      urls_bytes_max, #urls, #text)
  end
  return text
end

-- check_no_address(fname, given, address): raises if `given`, options behind the arguments of an address, has one of the
-- names `address`.
function options.check_no_address(fname, given, address)
  for name in pairs(given) do
    if address[name] then
      usage.error("%s: %s is given by the arguments before; leave it out of the options", fname, name)
    end
  end
end

-- check_beside(fname, at, served, given, address) -> given. Raises unless `given`, the options behind an address and an
-- app or a function, is nil or a table without the names `address`. Of ls.listen(8080, require "site") it is the second
-- result of `require`: then nil.
function options.check_beside(fname, at, served, given, address)
  if given == nil or usage.is_loader_data(served, given) then return nil end
  if type(given) ~= "table" then
    usage.error("%s: the third argument is a table of options; got %s", fname, usage.quote(given))
  elseif type(at) == "table" then
    usage.error("%s: two tables of options; put all options in the first", fname)
  end
  options.check_no_address(fname, given, address)
  return given
end

-- listen(defaults, at, app, core, given) -> { host =, port =, mode =, user =, group = | urls =, http = { names of the
-- core } }, app. Reads the arguments of ls.listen. `defaults`: the http table that ls.config made; `core`: luaserve.core,
-- of which it uses http_sys, user_id and group_id; `given`: options beside an address that is no table, or nil. Does not
-- check the app. Raises.
function options.listen(defaults, at, app, core, given)
  local out = { http = {} }
  for name, value in pairs(defaults) do out.http[name] = value end
  given = options.check_beside("ls.listen", at, app, given, listen_address)
  if given then
    options.check_names("ls.listen", given, listen_known)
    options.read_all("ls.listen", given, listener, out.http)
  elseif type(at) == "table" then
    options.check_names("ls.listen", at, listen_known)
    if app ~= nil then usage.error("ls.listen: with a table of options, pass the app in it: app = app") end
    app = at.app
    options.read_all("ls.listen", at, listener, out.http)
    if check_engine("ls.listen", at.engine, core.http_sys) then
      for name in pairs(merged(options.beside_address, { host = true, port = true, path = true })) do
        if at[name] ~= nil then
          usage.error('ls.listen: %s cannot be combined with engine = "http.sys"; use url', name)
        end
      end
      out.urls = check_urls("ls.listen", at.url)
      return out, app
    elseif at.url ~= nil then
      usage.error('ls.listen: url needs engine = "http.sys"; the engine "luaserve" takes host and port')
    end
  end
  out.host, out.port = options.address("ls.listen", at)
  if not out.host then
    usage.error("ls.listen: the first argument must be an address: %s; got %s", listen_forms, usage.quote(at))
  end
  given = given or type(at) == "table" and at or {}
  options.path_access("ls.listen", given, out.host, core, out)
  options.security("ls.listen", given, core, out, "http/1.1")
  return out, app
end

-- name_server("127.0.0.1" | "[::1]", with or without ":port") -> "address:port", by default port 53; nil for another
-- value.
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

-- nameservers(address | list) -> the addresses with ports in one string, separated by commas. Raises.
local function nameservers(value)
  local list = {}
  for i, text in ipairs(type(value) == "table" and value or { value }) do
    list[i] = name_server(text)
    if not list[i] then
      usage.error('ls.config: nameservers must be addresses such as "127.0.0.1:53" or "[::1]:53", or a list of them; '
        .. "got %s", usage.quote(text))
    end
  end
  local text = table.concat(list, ",")
  if #list < 1 or #list > 10 or #text > 255 then
    usage.error("ls.config: nameservers must be 1 to 10 addresses of 255 bytes in total")
  end
  return text
end

-- config(given) -> settings of the process, defaults of listeners; both with names of the core. Raises.
function options.config(given)
  if type(given) ~= "table" then
    usage.error("ls.config takes a table of options: ls.config{ threads = 4, max_body = \"64m\" }; got %s",
      usage.quote(given))
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
    usage.error("ls.config: threads_max (%d) must not be below threads (%d)", settings.threads_max, settings.threads)
  end
  return settings, http
end

return options
