-- The options of the modules' tables, their defaults and ranges, against the tables of lua/docs/reference, and the
-- defaults against the C constants that apply without lua/luaserve.
local check = require "check"
local options = require "luaserve.options"

local here = debug.getinfo(1, "S").source:match("^@(.*)/[^/]*$") or "."

local function read(path)
  local file = assert(io.open(here .. "/../../../" .. path))
  local text = file:read("a")
  file:close()
  return text
end

-- The sections of the pages with a table of options, and the calls whose options it has.
local sections = {
  { "server", "ls.listen", { "ls.listen" } }, { "server", "HTTP/2", { "ls.listen: http2" } }, { "server", "ls.config", { "ls.config" } },
  { "server", "Limits of an address", { "ls.listen" } }, { "app", "app:health", { "app:health" } },
  { "metrics", "ls.metrics.counter", { "ls.metrics.counter", "ls.metrics.histogram" } },
  { "tcp", "Options of ls.tcp and ls.connect", { "ls.tcp", "ls.connect" } },
  { "tcp", "TLS of ls.connect", { "ls.connect: tls" } }, { "tls", "tls", { "ls.listen: tls", "ls.listen" } },
  { "../certificates", "Options", { "ls.listen: tls.acme" } },
  { "udp", "ls.udp", { "ls.udp", "ls.udp: multicast" } }, { "websocket", "app:ws", { "app:ws" } },
  { "websocket", "Compression", { "app:ws: compress" } },
  { "websocket_client", "Options", { "ls.websocket", "app:ws: compress" } }, { "sse", "res:sse", { "res:sse" } },
  { "fetch", "Options", { "ls.fetch" } }, { "notify", "ls.notify", { "ls.notify" } },
  { "dict", "ls.dict", { "ls.dict" } }, { "channel", "ls.channel", { "ls.channel" } },
  { "static", "Static files", { "app:static" } }, { "process", "ls.process", { "ls.process" } },
  { "check", "ls.check", { "ls.check" } }, { "check", "Requests", { "req:json" } },
  { "session", "ls.session", { "ls.session" } }, { "postgres", "ls.postgres", { "ls.postgres" } },
  { "sqlite", "ls.sqlite", { "ls.sqlite" } }, { "queue", "ls.queue", { "ls.queue" } },
  { "queue", "queue:push", { "queue:push" } }, { "../cron", "ls.cron", { "ls.cron" } }, { "queue", "queue:run", { "queue:run" } }, { "sqlite", "db:insert", { "db:insert" } },
  { "postgres", "pg:insert", { "db:insert" } }, { "redis", "ls.redis", { "ls.redis" } },
  { "templates", "ls.templates", { "ls.templates" } }, { "middleware", "csrf", { "csrf" } },
  { "middleware", "basic_auth", { "basic_auth" } }, { "middleware", "bearer_auth", { "bearer_auth" } },
  { "../oidc", "oidc", { "oidc" } }, { "../oidc", "oidc.required", { "oidc.required" } },
  { "compress", "compress", { "compress" } }, { "middleware", "request_id", { "request_id" } },
  { "middleware", "rate_limit", { "rate_limit" } }, { "middleware", "cors", { "cors" } },
  { "middleware", "secure_headers", { "secure_headers" } },
  { "crypto", "ls.crypto.jwt.sign", { "ls.crypto.jwt.sign" } },
  { "crypto", "ls.crypto.jwt.verify", { "ls.crypto.jwt.verify" } }, { "proxy", "Proxy options", { "app:proxy" } },
  { "proxy", "Options of a server", { "app:proxy: server" } },
  { "proxy", "Options of health", { "app:proxy: health" } }, { "proxy", "Options of cache", { "app:proxy: cache" } },
  { "app", "Routes", { "app:get" } }, { "../openapi", "What a route says", { "app:get" } }, { "../openapi", "app:openapi", { "app:openapi" } },
   { "app", "app:inject", { "app:inject" } },
  { "server", "Access log", { "access_log" } },
}

-- Options that another section has, or the text of their section.
local elsewhere = {
  ["ls.listen"] = "host|port|path|mode|owner|tls|proxy_protocol|trusted|handler|hosts|engine|url|"
    .. "handshake_timeout|max_handshakes",
  ["ls.config"] = "slow|max_head|max_target|max_fields|max_body|head_timeout|body_grace|min_body_rate|idle_timeout|"
    .. "send_timeout|min_send_rate|max_unread|linger|write_ahead|timeout",
  ["ls.tcp"] = "host|port|path|handler|proxy_protocol|trusted|handshake_timeout|max_handshakes|allow|deny|max_connections_per_ip",
  ["ls.connect"] = "host|port|path", ["ls.udp"] = "handler",
}

local calls = {}
for _, module in ipairs { "options", "app", "metrics", "health", "inject", "static", "template", "tcp", "tls", "acme", "udp", "ws", "ws_client", "sse",
  "dict", "channel", "notify", "postgres", "session", "redis", "sqlite", "database_rows", "queue", "cron", "csrf", "signature", "basic_auth",
  "bearer_auth", "oidc", "rate_limit", "cors", "secure_headers", "fetch", "check", "openapi", "process", "compress", "request_id",
  "proxy", "proxy_cache", "access_log" } do
  for call, tables in pairs(require("luaserve." .. module).calls) do calls[call] = options.merged(tables) end
end

local units = { bytes = 1, byte = 1, KiB = 1024, MiB = 1024 ^ 2, GiB = 1024 ^ 3, TiB = 1024 ^ 4, million = 1e6 }

-- A number with a unit, such as "64 KiB", "`10` s", "`\"64k\"`", "10 million"; nil for another text.
local function number(text)
  text = text:gsub("[`,]", ""):gsub("/s$", ""):gsub("^%s*(.-)%s*$", "%1")
  local size = text:match('^"(%d+[kmg])"$')
  if size then return options.bytes(size) end
  local value, unit = text:match("^([%d.]+)%s*(%a*)$")
  return value and tonumber(value) * (units[unit] or 1)
end

-- The value of the core as one of Lua: seconds for milliseconds.
local function shown(spec, value) return spec[2] == "seconds" and value / 1000 or value end

local function near(a, b) return a and b and math.abs(a - b) <= math.max(a, b) * 1e-6 end

-- Checks the cell of the default.
local function check_default(where, spec, cell)
  local text = cell:gsub("`", "")
  if spec[5] == nil then
    -- a default that the core computes: words, or none
    if number(cell) or text == "true" then error(where .. ": the page has a default: " .. cell, 0) end
  elseif type(spec[5]) == "boolean" or spec[2] == "choice" then
    check.equal({ where, text }, { where, spec[2] == "choice" and '"' .. spec[5] .. '"' or tostring(spec[5]) })
  else
    local default = shown(spec, options.read("", "", spec[5], spec))
    if not near(number(cell), default) then error(("%s: default %s, on the page %s"):format(where, default, cell), 0) end
  end
end

-- Checks the cell of the range, of a table that has one.
local function check_range(where, spec, cell)
  if not spec[4] or type(spec[4]) ~= "number" then return end
  local range, rest = cell:match("^([^;]*);?%s*(.*)$")
  local from, to = range:match("^(.-) to (.*)$")
  if not from then from = range:match("^from (.*)$") or range:match("^(.-) and more$") end
  if from and not number(from) then from = tostring(shown(spec, spec[3])) end -- such as "`threads` to 1024"
  local unit = to and to:match("%a+/?s?$")
  local least = from and number(from:find("%a") and from or from .. " " .. (units[unit] == 1 and unit or ""))
  if not near(least, shown(spec, spec[3])) and least ~= spec[3] then
    error(("%s: at least %s, on the page %s"):format(where, shown(spec, spec[3]), cell), 0)
  end
  if spec[4] == math.maxinteger then
    check.equal({ where, to }, { where, nil })
  elseif math.abs(number(to) - shown(spec, spec[4])) > 1 then
    error(("%s: at most %s, on the page %s"):format(where, shown(spec, spec[4]), cell), 0)
  end
  check.equal({ where, rest:find("`false`", 1, true) ~= nil }, { where, spec.none ~= nil and spec[5] ~= false })
end

-- each_row(page, section, visit): visit(names, default, range or nil) for each row of a table of options.
local function each_row(page, section, visit)
  local inside, columns, ranges, before = false, nil, {}, nil
  for line in read("lua/docs/reference/" .. page .. ".md"):gmatch("[^\n]*") do
    local heading = line:match("^#+ (.*)$")
    if heading then inside, columns = heading == section, nil end
    local cells = {}
    for cell in (inside and line:match("^|(.*)|$") or ""):gmatch("%s*([^|]*)%s*|?") do
      cells[#cells + 1] = cell:gsub("%s+$", "")
    end
    if not line:find("^|") then
      columns = nil
    elseif not columns then
      local first = cells[1] or ""
      columns = (first:find("^option") or first:find("^field")) and cells or {}
    elseif columns[2] == "default" or columns[2] == "type" then
      local range = columns[3] == "range" and cells[3] or nil
      if range then
        range = range == "the same" and before or ranges[range:match("^as (`.*)$")] or range
        ranges[cells[1]], before = range, range
      end
      visit(cells[1], columns[2] == "default" and cells[2] or nil, range)
    end
  end
end

local tests = {}

function tests.the_pages_have_the_defaults_and_ranges()
  local compared, seen = 0, {}
  for _, section in ipairs(sections) do
    local rows = 0
    each_row(section[1], section[2], function(names, defaults, range)
      rows = rows + 1
      local at = 0
      for name in names:gmatch("`([%w_]+)`") do
        local found = false
        at = at + 1
        for _, call in ipairs(section[3]) do
          local spec = calls[call][name]
          if spec then
            local where = ("%s.md: %s: %s"):format(section[1], call, name)
            found, seen[call .. "." .. name] = true, true
            local default = defaults
            if defaults and names:find(", ", 1, true) and defaults:find(", ", 1, true) then
              local each = {}
              for one in defaults:gmatch("[^,]+") do each[#each + 1] = one end
              default = each[at]
            end
            if spec ~= true and spec[2] ~= "is" then
              if default then check_default(where, spec, default) end
              if range then check_range(where, spec, range) end
              compared = compared + (default and 1 or 0)
            end
          end
        end
        if not found then error(("%s.md: %s: no option %s"):format(section[1], section[2], name), 0) end
      end
    end)
    if rows == 0 then error(("%s.md: %s has no table of options"):format(section[1], section[2]), 0) end
  end
  check.equal(compared > 60, true)
  for _, section in ipairs(sections) do
    for _, call in ipairs(section[3]) do
      for name in pairs(calls[call]) do
        local other = (elsewhere[call] or ""):find("%f[%w_]" .. name .. "%f[^%w_]")
        if not seen[call .. "." .. name] and not other then error(call .. ": no page has the option " .. name, 0) end
      end
    end
  end
end

-- Where C has a default of its own, because lua/luaserve may not be loaded: { call, option, file, pattern of the number
-- or product, factor }.
local constants = {
  { "ls.config", "max_connections", "src/server/options.c", "connections_max = ([%d%s*]+);" },
  { "ls.config", "max_buffers", "src/server/options.c", "pool_bytes_max = UINT64_C%((%d+)%) << 20", 1 << 20 },
  { "ls.config", "load_timeout", "src/script/core/runtime.h", "LS_LOAD_MS_MAX = (%d+)" },
  { "ls.config", "drain_timeout", "src/server/options.c", "drain_ms_max = (%d+);" },
  { "ls.config", "old_sites", "src/server/options.c", "old_sites_max = (%d+);" },
  { "ls.config", "accepts_posted", "src/server/options.c", "accepts_posted = (%d+);" },
  { "ls.config", "backlog", "src/server/options.c", "backlog = (%d+);" },
  { "ls.config", "max_memory", "src/script/core/generation.h", "LS_LUA_MIB_MAX = (%d+)", 1 << 20 },
  { "ls.config", "max_jobs", "src/script/core/generation.h", "LS_JOBS_MAX = (%d+)" },
  { "ls.config", "max_timers", "src/script/core/generation.h", "LS_TIMERS_MAX = (%d+)" },
  { "ls.config", "max_cpu", "src/script/core/runtime.h", "LS_HANDLER_CPU_MS_MAX = (%d+)" },
  { "ls.listen", "handshake_timeout", "src/net/acceptor.c", "HANDSHAKE_MS_MAX = ([%d%s*]+)" },
  { "ls.dict", "size", "src/script/store/dict.h", "LS_DICT_BYTES_DEFAULT = ([%d%s*]+)" },
  { "ls.channel", "capacity", "src/script/store/channel.h", "LS_CHANNEL_CAPACITY = (%d+)" },
  { "ls.udp", "batch", "src/net/udp/udp.h", "LS_UDP_BATCH_DEFAULT = (%d+)" },
  { "ls.udp", "max_datagram", "src/net/udp/udp.h", "LS_UDP_DATAGRAM_BYTES_DEFAULT = (%d+)" },
}

function tests.the_constants_of_the_core_have_the_same_defaults()
  for _, constant in ipairs(constants) do
    local call, name, path, pattern, factor = table.unpack(constant)
    local spec, product = calls[call][name], factor or 1
    local text = read(path):match(pattern)
    if not text then error(path .. " has no " .. pattern, 0) end
    for part in text:gmatch("%d+") do product = product * math.tointeger(part) end
    check.equal({ call, name, product }, { call, name, options.read("", "", spec[5], spec) })
  end
end

return tests
