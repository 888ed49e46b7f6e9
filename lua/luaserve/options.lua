-- options.lua - the options of all calls that take a table of them: how they are described, checked and converted; and
-- the options of ls.listen and ls.config.
--
-- A table of options is { name = { name in the core, kind, least, most, default, none = the core's value for `false`, required =
-- whether it must be given } }.
-- The default is a value as a site writes it; without one the core decides. `true` in place of the description: the
-- module that has the option reads it. In Lua, times are seconds and sizes are bytes or "64k"; in the core, the unit is
-- part of the name. Only this file converts between them.
--
-- The comment after an option is its description for editors (lua/definitions.lua makes the definitions from it): a
-- text, after its type and " - " if the kind does not give the type, as "is"; after that of the kind "text". Each module has its
-- tables in `calls`, by the name of the call, each as a list of tables; the comment after it names the class for editors.
-- tests/unit/lua/test_option_tables.lua tries every option, test_option_pages.lua compares the defaults and ranges with
-- lua/docs/reference, tests/e2e/test_options.py with the core.

local usage = require "luaserve.usage"

local options = {}

local units = { [""] = 1, k = 1024, m = 1024 ^ 2, g = 1024 ^ 3, t = 1024 ^ 4 }
local uint32_max = 2 ^ 32 - 1
local on_windows = package.config:sub(1, 1) == "\\"

-- bytes(4096 | "64k" | "1.5m" | "10g") -> the number of bytes as an integer; nil for an invalid size.
-- type Size: integer|string - a number of bytes, or a string with a unit: `"64k"`, `"1.5m"`, `"10g"`.
function options.bytes(value)
  if type(value) == "string" then
    local number, unit, ending = value:lower():match("^(%d+%.?%d*)%s*([kmgt]?)(i?b?)$")
    number = tonumber(number)
    if not number or unit == "" and ending:find("i", 1, true) or ending == "i" then return nil end
    value = number * units[unit]
  end
  if type(value) ~= "number" or not (value >= 0 and value < 2 ^ 62) then return nil end
  return math.tointeger(value) or math.ceil(value)
end

-- max(call, value, default) -> the bytes of an argument `max`, or the default for nil. Raises.
function options.max(call, value, default)
  local bytes = value == nil and default or options.bytes(value)
  usage.refuse(value ~= nil and not bytes, value, '%s: max must be a number of bytes or a string such as "10m"', call)
  return bytes
end

local function show_whole(n) return string.format("%.0f", n) end

local kinds = {
  size = {
    expected = 'a number of bytes or a string such as "64k", "10m" or "2g"',
    read = options.bytes,
    show = show_whole,
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
    show = show_whole,
    unit = "",
  },
  rate = {
    expected = 'a number of bytes per second or a string such as "1k"',
    read = options.bytes,
    show = show_whole,
    unit = " bytes per second",
  },
  flag = {
    expected = "true or false",
    read = function(value) if type(value) == "boolean" then return value end end,
  },
  text = { -- { name in the core, "text", what it is }
    what = 3,
    read = function(value) return type(value) == "string" and value:find("^[^\0]+$") and value or nil end,
  },
  is = { -- { name in the core, "is", its type or a function that tells whether a value is right, what it is, default }
    what = 4,
    read = function(value, spec)
      local is = spec[3]
      if type(value) == is or type(is) == "function" and is(value) then return value end
    end,
  },
  choice = { -- { name in the core, "choice", one, other }
    read = function(value, spec) return (value == spec[3] or value == spec[4]) and value or nil end,
  },
}

local listener = {
  max_head = { "head_bytes_max", "size", 256, 65536, "16k" }, -- bytes of the request head; then 431
  max_target = { "target_bytes_max", "size", 16, 65536, "8k" }, -- bytes of the request target; then 414
  max_fields = { "fields_max", "count", 1, 100, 100 }, -- header fields of a request; then 431
  max_body = { "body_bytes_max", "size", 0, math.maxinteger, "8m", none = -1 }, -- bytes of a request body; then 413
  head_timeout = { "head_ms_max", "seconds", 1, uint32_max, 10 }, -- seconds until the head is complete; then 408
  body_grace = { "body_grace_ms", "seconds", 1, uint32_max, 10 }, -- seconds before min_body_rate applies
  min_body_rate = { "body_rate_min", "rate", 0, uint32_max, 256 }, -- lowest rate of a body in bytes per second; then 408
  idle_timeout = { "idle_ms_max", "seconds", 1, uint32_max, 75 }, -- seconds between two requests of a connection
  send_timeout = { "send_stall_ms_max", "seconds", 1, uint32_max, 30 }, -- seconds without a byte accepted
  min_send_rate = { "send_rate_min", "rate", 0, uint32_max, 256 }, -- lowest rate of a response in bytes per second
  max_unread = { "unread_bytes_max", "size", 1, uint32_max, "64k" }, -- bytes of an unread body that are skipped
  linger = { "linger_ms_max", "seconds", 0, uint32_max, 2 }, -- seconds of reading after an error response
  timeout = { "time_ms_max", "seconds", 1, uint32_max, 60, none = 0 }, -- seconds that a handler may wait; then 503
  slow = { "slow_ms", "seconds", 1, uint32_max, false, none = 0 }, -- seconds after which a request is slow, and logged
  write_ahead = { "write_bytes_high", "size", 1, uint32_max, "64k" }, -- bytes that res:write queues before it waits
}

local process = {
  threads = { "threads", "count", 1, 1024 }, -- threads that run at a time; default: one per processor
  threads_max = { "threads_max", "count", 1, 1024 }, -- the same with the standby threads; default: 128, or 2 * threads
  states = { "states_max", "count", 1, 1024 }, -- largest number of Lua states; default: threads_max
  max_connections = { "connections_max", "count", 1, 10000000, 65536 }, -- open connections of all listeners
  max_buffers = { "pool_bytes_max", "size", 1024 * 1024, math.maxinteger, "256m" }, -- memory of all buffers
  max_memory = { "lua_bytes_max", "size", 1024 * 1024, math.maxinteger, "256m" }, -- memory of each Lua state
  max_states_memory = { "lua_all_bytes_max", "size", 1024 * 1024, math.maxinteger }, -- memory of all Lua states
  max_jobs = { "jobs_max", "count", 1, 1000000, 10000 }, -- unfinished jobs of each Lua state
  max_timers = { "timers_max", "count", 1, 1000000, 10000 }, -- timers of each Lua state
  max_cpu = { "handler_cpu_ms_max", "seconds", 1, uint32_max, 5 }, -- seconds of CPU time of a task between two waits
  load_timeout = { "load_ms_max", "seconds", 1, uint32_max, 60 }, -- seconds that the site may load, from the call on
  drain_timeout = { "drain_ms_max", "seconds", 1, uint32_max, 15 }, -- seconds for requests and tasks to end at the stop
  drain_delay = { "drain_delay_ms", "seconds", 0, uint32_max, 0 }, -- seconds at the stop before the drain; all is served
  drain_ready = { "drain_ready", "flag" }, -- app:health says ready during drain_delay; by default it does not
  old_sites = { "old_sites_max", "count", 1, 1000, 4 }, -- with WebSockets after reloads; then the oldest closes them
  old_site_timeout = { "old_site_ms_max", "seconds", 1, uint32_max, false, none = 0 }, -- until it closes them anyway
  accepts_posted = { "accepts_posted", "count", 1, 1024, 4 }, -- accepts of each listener that wait in advance
  mask_addresses = { "mask_addresses", "flag" }, -- logs name the network of a client in place of its address
  backlog = { "backlog", "count", 1, 65535, 1024 }, -- connections that the system queues until they are accepted
  redis = true, -- string|Redis - a Redis that joins the topics of several servers, and has the dicts with redis = true
  nameservers = true, -- string|string[] - name servers for ls.connect; default: those of the system
}

-- Of listeners, of ls.listen and ls.tcp.
options.addresses = {
  port = true, -- integer|string - 0 picks a free one; required without path
  host = true, -- string - an address, "*" or "unix:/path"; default: the loopback interface
  path = true, -- string - file of a Unix socket
}
options.beside_address = {
  mode = true, -- string|integer - permissions of the Unix socket, such as "0660"
  owner = true, -- string - owner of the Unix socket: "user", "user:group" or ":group"
  tls = true, -- TlsOptions|TlsOptions[]|"self-signed" - serves TLS
  handshake_timeout = { "handshake_ms_max", "seconds", 1, uint32_max, 10 }, -- seconds from the accept to its end
  max_handshakes = { "handshakes_max", "count", 1, 10000000 }, -- at a time; default: max_connections / 4, 64 to 1024
  proxy_protocol = { "proxy_protocol", "flag" }, -- proxies in `trusted` send a PROXY header
  trusted = true, -- string[] - addresses and networks of proxies, such as "10.0.0.0/8"; "unix:"
  allow = true, -- string[] - addresses and networks that may connect; default: all
  deny = true, -- string[] - addresses and networks that may not connect
  max_connections_per_ip = { "per_ip_max", "count", 1, 10000000, false, none = 0 }, -- open ones; of IPv6 of a /64
}
local http_only = {
  handler = true, -- App|Metrics - the app, or ls.metrics; required in a single table without `hosts`
  hosts = true, -- table<string, App> - in place of handler: apps by the host name of the request, such as "*.example"
  engine = true, -- "luaserve"|"http.sys" - on Windows, the HTTP server of the system
  url = true, -- string|string[] - with http.sys, such as "http://+:8080/"
}

local http_beside = {
  http2 = true, -- boolean|Http2Options - HTTP/2: over TLS beside HTTP/1.1 unless false, else only if it is given
  max_streams_per_ip = { "streams_per_ip_max", "count", 1, 10000000, false, none = 0 }, -- of HTTP/2, at a time
  max_requests_per_connection = { "requests_max", "count", 1, uint32_max, false, none = 0 }, -- then it closes
  max_time_per_connection = { "conn_ms_max", "seconds", 1, uint32_max, false, none = 0 }, -- closes after a response
}
local http2 = { -- limits of a connection
  streams = { "http2_streams_max", "count", 1, 1000, 128 }, -- requests that run at a time
  resets = { "http2_resets_max", "count", 1, 1000000, 128 }, -- streams that the client may reset
  window = { "http2_window_bytes_max", "size", 65536, 2 ^ 30, "8m" }, -- bytes of bodies that no handler has read
}

local http_log = {
  access_log = true, -- string|false|AccessLogOptions - a file, "stdout" or "syslog" with a line for each request
}

options.calls = {
  ["ls.listen"] = { listener, options.addresses, options.beside_address, http_beside, http_log, http_only }, -- ListenOptions
  ["ls.listen: http2"] = { http2 }, -- Http2Options
  ["ls.config"] = { listener, process }, -- ConfigOptions
}

-- read(fname, name, value, spec) -> the value for the core. `spec`: an entry of a table of options. Raises.
function options.read(fname, name, value, spec)
  local kind = kinds[spec[2]]
  if value == false and spec.none then return spec.none end
  local result = kind.read(value, spec)
  if result == nil then
    local expected = kind.expected or kind.what and spec[kind.what] or string.format("%q or %q", spec[3], spec[4])
    usage.error("%s: %s must be %s%s; got %s", fname, name, expected, spec.none and ", or false for no limit" or "",
      usage.quote(value))
  end
  if not kind.show then return result end
  local least, most = spec[3], spec[4]
  if result < least or result > most then
    local range = most == math.maxinteger and "at least " .. kind.show(least)
      or "from " .. kind.show(least) .. " to " .. kind.show(most)
    usage.error("%s: %s must be %s%s; got %s", fname, name, range, kind.unit, usage.quote(value))
  end
  return result
end
local read = options.read

-- merged(list) -> a table with the keys of all tables in the list, and the values of the last one that has the key.
function options.merged(list)
  local all = {}
  for _, names in ipairs(list) do
    for name, value in pairs(names) do all[name] = value end
  end
  return all
end

local of_push, of_queue, zone = "; it is an option of queue:push", "; it is an option of ls.queue", "; the name is zone"
local retries, in_file, member = "; the name is retries", '; write file = "jobs.db"', "; the name is presence"
local hints = { -- by call and unknown option: what to write
  ["ls.listen app"] = "; its new name: handler = app", ["ls.tcp serve"] = "; its new name: handler = fn", ["ls.cron tz"] = zone,
  ["ls.dict ttl"] = "; it is an argument of dict:set(key, value, ttl)", ["ls.queue workers"] = "; it is an option of queue:run",
  ["ls.queue delay"] = of_push, ["ls.queue id"] = of_push, ["queue:push timeout"] = of_queue, ["queue:push retries"] = of_queue,
  ["queue:run concurrency"] = "; the name is workers", ["ls.queue concurrency"] = "; workers is an option of queue:run", ["ls.queue retry"] = retries,
  ["ls.queue attempts"] = retries, ["ls.queue max_attempts"] = retries, ["ls.queue sqlite"] = in_file, ["ls.queue db"] = in_file,
  ["queue:push at"] = "; write delay, in seconds", ["queue:push to"] = "; the data are the first argument", ["ls.cron timezone"] = zone, ["ls.cron redis"] = "; ls.config{ redis = url } makes it once for all servers",
  ["ws:subscribe name"] = member, ["ws:subscribe user"] = member,
  ["app:metrics auth"] = '; app:metrics("/metrics", auth) takes the middleware itself',
}

-- sorted(t) -> the names in a table, in their order.
function options.sorted(t)
  local names = {}
  for name in pairs(t) do names[#names + 1] = name end
  table.sort(names)
  return names
end

local of_tls = { cert = true, key = true, key_password = true, client_ca = true }

-- check_names(fname, given, known [, listed]): raises unless every key of `given` is a key of `known`. With `listed` the
-- message lists the known ones when none is near.
function options.check_names(fname, given, known, listed)
  for name in pairs(given) do
    if not known[name] then
      local hint = hints[fname .. " " .. tostring(name)] or usage.suggest(name, known)
      if of_tls[name] and (known.tls or fname == "ls.listen" or fname == "ls.connect") then
        hint = '; it belongs into tls = { cert = "cert.pem", key = "key.pem" }'
      end
      if listed and hint == "" then hint = "; the options are " .. table.concat(options.sorted(known), ", ") end
      usage.error("%s: unknown option %s%s", fname, usage.quote(name), hint)
    end
  end
end

local function is_known(name, tables)
  for _, specs in ipairs(tables) do
    if specs[name] then return true end
  end
  return false
end

-- take(fname, given, tables, out [, prefix]) -> out. Reads the options `given`, of which `tables` is a list of tables, into
-- `out`, under their names in the core. An option that is not given has its default, unless `out` has a value for it.
-- "multicast." as `prefix`: the options are those of a table within the options of the call. Raises.
function options.take(fname, given, tables, out, prefix)
  for name in pairs(given) do
    if not is_known(name, tables) then
      local where = prefix and fname .. ": " .. prefix:sub(1, -2) or fname
      options.check_names(where, { [name] = true }, options.merged(tables), tables.listed)
    end
  end
  for _, specs in ipairs(tables) do
    for name, spec in pairs(specs) do
      local value = given[name]
      if spec == true then
        value = nil
      elseif value == nil and out[spec[1]] == nil then
        value = spec[5]
      end
      if value ~= nil or spec ~= true and spec.required then out[spec[1]] = read(fname, (prefix or "") .. name, value, spec) end
    end
  end
  return out
end

-- only(fname, tables, example, given, ...) -> as take, given: of a call whose only argument is the table of options, which
-- may be nil where `tables` is optional. `example` is shown for another value: "{ level = 6 }".
function options.only(fname, tables, example, given, ...)
  if given == nil and tables.optional then given = {} end
  usage.check(given, "table", "%s takes a table of options: %s%s", fname, fname, example)
  usage.no_more(fname .. (example:find '^%("' and "(path, options)" or "(options)"), given, ...)
  return options.take(fname, given, tables, {}), given
end

-- one_of(call, given, names) -> the name of the option that is given, or nil. Raises for several.
function options.one_of(call, given, names)
  local found
  for _, name in ipairs(names) do
    if found and given[name] ~= nil then
      usage.error("%s: give one of %s and %s", call, table.concat(names, ", ", 1, #names - 1), names[#names])
    end
    found = given[name] ~= nil and name or found
  end
  return found
end

-- key(value) -> a text that equal options, also within tables, have in common, and others have not.
function options.key(value)
  if type(value) ~= "table" then return type(value) == "string" and string.format("%q", value) or tostring(value) end
  local parts = {}
  for name, one in pairs(value) do parts[#parts + 1] = options.key(name) .. "=" .. options.key(one) end
  table.sort(parts)
  return "{" .. table.concat(parts, ",") .. "}"
end

-- is_token(text) -> whether the text is a token, such as a method or the name of a header (RFC 9110 section 5.6.2).
function options.is_token(text)
  return type(text) == "string" and text:find("^[%w!#$%%&'*+.^_`|~-]+$") ~= nil
end

-- fields(t, check) -> a list of { name, value }: the fields of t, such as headers, sorted by name. A value that is a list
-- gives one field for each of its values. First check(name) is called for each name, unless `check` is nil.
-- type Headers: table<string, string|number|(string|number)[]> - header fields; a list makes several fields of one name.
function options.fields(t, check)
  for name in pairs(check and t or {}) do check(name) end
  local list = {}
  for _, name in ipairs(options.sorted(t)) do
    local value = t[name]
    if type(value) == "table" then usage.check_list("headers", name, value) end
    for _, one in ipairs(type(value) == "table" and value or { value }) do list[#list + 1] = { name, one } end
  end
  return list
end

-- field(list, name) -> the first value of this name, in lower case, in such a list; nil: it has none.
function options.field(list, name)
  for _, field in ipairs(list) do if field[1]:lower() == name then return field[2] end end
end

-- max_body_default() -> the default of max_body in bytes.
function options.max_body_default() return options.bytes(listener.max_body[5]) end

local drain_ms = process.drain_timeout[5] * 1000
-- drain_timeout_ms() -> the milliseconds of drain_timeout
function options.drain_timeout_ms() return drain_ms end

local listen_forms = 'ls.listen(8080, app), ls.listen("host:port", app) or ls.listen{ port = 8080, handler = app, ... }'

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
  usage.refuse(not number or number < least or number > 65535, port,
    "%s: port must be a whole number from %s to 65535", fname, least == 0 and "0 (pick a free one)" or least)
  return number
end

-- unix_path(fname, path, host, port) -> "unix:/path". Raises unless `path` is a file name and host and port are nil.
function options.unix_path(fname, path, host, port)
  usage.refuse(type(path) ~= "string" or path == "", path,
    '%s: path must be the file name of a Unix socket, such as "/run/site.sock"', fname)
  if host ~= nil or port ~= nil then
    usage.error("%s: path names a Unix socket and cannot be combined with host or port", fname)
  end
  return "unix:" .. path
end

local function address_of_table(fname, given, no_paths)
  local host, port, path = given.host, given.port, given.path
  usage.check(host, "string?", '%s: host must be a string such as "127.0.0.1", "::1" or "*"', fname)
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
    bits = mode:match("^[0-7]+$") and #mode <= 9 and tonumber(mode, 8)
  elseif type(mode) == "number" then
    bits = math.tointeger(mode)
  end
  usage.refuse(math.type(bits) ~= "integer" or bits < 0 or bits > 511, mode,
    '%s: mode must be octal digits in a string, from "0000" to "0777", such as "0660"', fname)
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

-- path_access(fname, given, host, core, out). Reads mode and owner of the Unix socket `host` into out.mode, out.user,
-- out.group and flags that they are set. Raises.
local function path_access(fname, given, host, core, out)
  local name = given.mode ~= nil and "mode" or given.owner ~= nil and "owner"
  if not name then return end
  if not host:match("^unix:[^@]") then
    usage.error('%s: %s belongs to the file of a Unix socket; give path = "/run/site.sock" with it', fname, name)
  end
  if on_windows then usage.error("%s: %s is not supported on Windows", fname, name) end
  if given.mode ~= nil then out.has_mode, out.mode = true, mode_of(fname, given.mode) end
  if given.owner == nil then return end
  local user, colon, group = tostring(given.owner):match("^([^:]*)(:?)([^:]*)$")
  if type(given.owner) ~= "string" or not user or user .. group == "" or (colon == ":" and group == "") then
    usage.error('%s: owner must be "user", "user:group" or ":group"; got %s', fname, usage.quote(given.owner))
  end
  if user ~= "" then out.has_user, out.user = true, id_of(fname, "user", user, core.user_id) end
  if group ~= "" then out.has_group, out.group = true, id_of(fname, "group", group, core.group_id) end
end

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
  usage.check(url, "string", '%s: url must be a string such as "http://+:8080/", or a list of URLs', fname)
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

-- check_no_address(fname, given, tables): raises if `given`, options after the arguments of an address, has a name of one
-- of the tables.
function options.check_no_address(fname, given, tables)
  for name in pairs(given) do
    if is_known(name, tables) then
      usage.error("%s: %s is given by the arguments before; leave it out of the options", fname, name)
    end
  end
end

-- check_beside(fname, at, served, given, tables) -> given. Raises unless `given`, the options behind an address and an app
-- or a function, is nil or a table without names of the tables. Of ls.listen(8080, require "site") it is the second
-- result of `require`: then nil.
function options.check_beside(fname, at, served, given, tables)
  if given == nil or usage.is_loader_data(served, given) then return nil end
  if type(given) ~= "table" then
    usage.error("%s: the third argument is a table of options; got %s", fname, usage.quote(given))
  elseif type(at) == "table" then
    usage.error("%s: two tables of options; put all options in the first", fname)
  end
  options.check_no_address(fname, given, tables)
  return given
end

-- listener(fname, given, at, core, out, alpn): reads the address `at` and the options of a listener that `take` leaves:
-- path, mode, owner, tls, trusted, into `out`. `alpn`: as for luaserve.tls. Raises; false if `at` is no address.
function options.listener(fname, given, at, core, out, alpn)
  out.host, out.port = options.address(fname, at)
  if not out.host then return false end
  path_access(fname, given, out.host, core, out)
  if given.tls ~= nil or given.trusted ~= nil or given.proxy_protocol or given.allow ~= nil or given.deny ~= nil then
    require("luaserve.tls").read(fname, given, core, out, alpn)
  end
  out.where = usage.where()
  return true
end

-- The protocols of ALPN that a listener with these options offers; `out`, with the options that were taken, gets what a
-- plain one speaks. Raises.
local function protocols(given, core, out)
  local limits = type(given.http2) == "table" and given.http2 or {}
  if limits ~= given.http2 and given.http2 ~= nil and type(given.http2) ~= "boolean" then
    usage.error("ls.listen: http2 must be true, false or a table of limits such as { streams = 100 }; got %s",
      usage.quote(given.http2))
  end
  options.take("ls.listen", limits, options.calls["ls.listen: http2"], out, "http2.")
  if given.http2 and not core.http2 then
    usage.error("ls.listen: http2 = true needs a build with nghttp2, which this one was built without")
  end
  out.http2 = given.http2 and given.tls == nil or nil
  return given.http2 ~= false and core.http2 and "h2,http/1.1" or "http/1.1"
end

-- listen(defaults, at, app, core, given) -> the table for core.listen without its functions, app. Reads the arguments of
-- ls.listen. `defaults`: the limits that ls.config has set; `core`: luaserve.core, of which it uses http_sys, http2, user_id and
-- group_id; `given`: options beside an address that is no table, or nil. Does not check the app. Raises.
function options.listen(defaults, at, app, core, given)
  local out = {}
  for name, value in pairs(defaults) do out[name] = value end
  given = options.check_beside("ls.listen", at, app, given, { options.addresses, http_only })
  local whole = given == nil and type(at) == "table"
  given = given or whole and at or {}
  options.take("ls.listen", given, options.calls["ls.listen"], out)
  if whole then
    if app ~= nil then usage.error("ls.listen: with a table of options, pass the app in it: handler = app") end
    app = at.handler
    if check_engine("ls.listen", at.engine, core.http_sys) then
      for _, names in ipairs { options.beside_address, http_beside, options.addresses } do
        for name in pairs(names) do
          if at[name] ~= nil then
            usage.error('ls.listen: %s cannot be combined with engine = "http.sys"; use url', name)
          end
        end
      end
      out.urls, out.where = check_urls("ls.listen", at.url), usage.where()
      return out, app
    elseif at.url ~= nil then
      usage.error('ls.listen: url needs engine = "http.sys"; the engine "luaserve" takes host and port')
    end
  end
  usage.refuse(not options.listener("ls.listen", given, at, core, out, protocols(given, core, out)), at,
    "ls.listen: the first argument must be an address: %s", listen_forms)
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
  for i, text in ipairs(type(value) == "table" and usage.check_list("ls.config", "nameservers", value) or { value }) do
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

-- config(given, listeners) -> settings of the process, defaults of listeners; both with names of the core. `listeners`:
-- { given =, out = } of the calls of ls.listen so far; a default that comes too late for one of them raises. Raises.
function options.config(given, listeners)
  usage.check(given, "table", "ls.config takes a table of options: ls.config{ threads = 4, max_body = \"64m\" }")
  for _, name in ipairs { "user", "group" } do
    if given[name] ~= nil then
      usage.error("ls.config: there is no option %s: a server that dropped its rights could not open moved logs, renewed keys and "
        .. "new ports. Start it as that user: User= and AmbientCapabilities=CAP_NET_BIND_SERVICE in the unit, or setpriv(1)", name)
    end
  end
  options.check_names("ls.config", given, options.merged(options.calls["ls.config"]))
  local settings, http = {}, {}
  for name, value in pairs(given) do
    if name == "redis" then
      require("luaserve.redis_topics").configure(value)
    elseif name == "nameservers" then
      settings.nameservers = nameservers(value)
    else
      local spec = process[name] or listener[name]
      local out = process[name] and settings or http
      out[spec[1]] = read("ls.config", name, value, spec)
      for _, one in ipairs(out == http and listeners or {}) do
        if one.given[name] == nil and one.out[spec[1]] ~= out[spec[1]] then
          usage.error("ls.config: %s comes too late for ls.listen at %s: put ls.config before it, or give it %s = %s", name,
            one.out.where, name, usage.quote(value))
        end
      end
    end
  end
  if settings.threads and settings.threads_max and settings.threads_max < settings.threads then
    usage.error("ls.config: threads_max (%d) must not be below threads (%d)", settings.threads_max, settings.threads)
  end
  drain_ms = settings.drain_ms_max or drain_ms
  return settings, http
end

-- origin(fname, value) -> a site as browsers name it in Origin: in small letters, without the default port. Raises.
function options.origin(fname, value)
  local origin = type(value) == "string" and value:lower():match("^%a[%w+.-]*://[^/?#@%s,*]+$")
  usage.refuse(not origin, value, '%s: origins must be such as "https://app.example", without a path or *', fname)
  return origin:match("^(https://.*):443$") or origin:match("^(http://.*):80$") or origin
end

return options
