-- A fake luaserve.core: records the calls and their arguments, and runs requests without a server.

local core = { version = "0.0-test", backend = "epoll", dir = "/site", calls = {}, results = {},
  seconds_max = 3.2e8, sse_retry_ms_max = 600000 }

-- A function that records its call and returns core.results[name]: a list of results, or a function that returns them.
local function recorded(name)
  return function(...)
    core.calls[#core.calls + 1] = { name, ... }
    local results = core.results[name]
    if type(results) == "function" then return results(...) end
    if results then return table.unpack(results, 1, results.n or #results) end
  end
end

for _, name in ipairs { "listen", "config", "sleep", "after", "every", "spawn", "init", "on", "on_drain", "on_loaded", "log", "buffer", "now",
  "stats", "tcp", "connect", "ws_opening", "udp", "udp_connect", "notify", "socket",
  "cache", "proxy_send", "proxy_resume", "proxy_refuse", "proxy_failed", "proxy_mark",
  "proxy_back", "proxy_refused",
  "dict", "dict_read", "dict_swap", "dict_scan",
  "redis_connection", "safe_join", "file_stat" } do
  core[name] = recorded(name)
end

function core.codings()
  return { { name = "zstd", min = 1, max = 19, usual = 3 }, { name = "gzip", min = 1, max = 9, usual = 5 } }
end

-- An upstream server of app:proxy is its options, with the fields active, share and until_ms.
function core.proxy_upstream(options) return options end
function core.proxy_load(upstream) return upstream.active or 0, upstream.share or 1, upstream.until_ms end
function core.proxy_hash(text)
  local sum = 5381
  for n = 1, #text do sum = ((sum ~ text:byte(n)) * 0x9E3779B97F4A7C15) ~ (sum >> 29) end
  return ((sum >> 12) + 0.5) / 2 ^ 52
end

function core.client_take() end
core.results.now = { 0 }
function core.topics() return {} end
function core.publish() end
function core.publish_here() end
function core.subscribe() end
core.results.redis_connection = { {} }
function core.semaphore() return {} end
function core.is_buffer() return false end
function core.number_text(n) return n ~= n and "nan" or n % 1 == 0 and ("%d"):format(n) or ("%.16g"):format(n) end

function core.is_network(text) return text:find("^[%x:.]+/?%d*$") ~= nil or text == "unix:" end

function core.ws_origin(text) return type(text) == "string" and text:find("^%a+://[^/]+$") ~= nil end

-- As if all folders existed.
function core.absolute_path(path)
  path = (path:find("^/") and path or "/site/" .. path):gsub("/%.%f[/\0]", ""):gsub("(.)/$", "%1")
  return path
end

-- The object of a folder holds its arguments; the results of static_get come from core.results.
function core.static(folder, options)
  core.calls[#core.calls + 1] = { "static", folder, options }
  if folder == "nowhere" then return nil, "not found", "ENOENT" end
  if folder == "locked" then return nil, "permission denied", "EACCES" end
  return { folder = folder, options = options }, options.fallback ~= "none.html"
end

core.static_get = recorded("static_get")

function core.dict_content(value) return value end
function core.task() return coroutine.running() end
function core.plain(metatable) return metatable end

-- Sealed texts as text, so that tests see them; the key of a secret is the secret.
function core.crypto_built() return true end
function core.crypto_same() return true end
function core.crypto_hash(_, _, key) return key end
function core.crypto_seal(key, text, context) return key .. "|" .. context .. "|" .. text end
function core.crypto_unseal(key, sealed, context)
  local prefix = key .. "|" .. context .. "|"
  if sealed:sub(1, #prefix) == prefix then return sealed:sub(#prefix + 1) end
end
function core.crypto_random(count)
  core.random = (core.random or 0) + 1
  return string.format("%0" .. count .. "d", core.random)
end
function core.crypto_encode(_, bytes) return (bytes .. ("0"):rep(43 - #bytes)) end
function core.crypto_decode(_, text) return text end
function core.is_buffer() return false end
function core.crypto_equal(a, b) return a == b end

core.waits = true
function core.can_wait() return core.waits end
function core.failed(...) return ... end

-- Returns and clears the recorded calls.
function core.take_calls()
  local calls = core.calls
  core.calls = {}
  return calls
end

function core.last_segment(req, path, leaves)
  local prefix, value = path:match("^(.*/)([^/]+)$")
  local leaf = prefix and not path:find("%", 1, true) and leaves[prefix]
  if not leaf then return nil end
  req.params = { [leaf[1]] = value }
  return leaf
end

function core.percent_decode(text)
  local invalid = false
  local decoded = text:gsub("%%(%x?%x?)", function(digits)
    if #digits < 2 then invalid = true return "" end
    return string.char(tonumber(digits, 16))
  end)
  if invalid or decoded:find("\0", 1, true) then return nil end
  return decoded
end

local entities = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;" }
function core.html_escape(text) return (text:gsub("[&<>\"']", entities)) end

local function template_value(escape)
  return function(value)
    while type(value) == "function" do value = value() end
    if value == nil then return "" end
    local text = tostring(value)
    return escape and type(value) ~= "number" and core.html_escape(text) or text
  end
end
core.template_escape, core.template_output = template_value(true), template_value(false)

function core.thread() return core.serving and 1 or 0 end
function core.site_path(path) return path:find("^/") and path or "/site/" .. path end

-- The files of a site: core.files[path] is a text. Folders are the prefixes of the paths.
core.files = {}

function core.file_read(path)
  local text = core.files[path]
  if text then return text end
  return nil, path .. ": not found", "ENOENT"
end

function core.kept_text() return nil end
function core.keep_text() end

function core.file_list(path, details)
  local given = core.results.file_list
  if given then return table.unpack(given, 1, given.n or #given) end
  local found, names = {}, {}
  for name, text in pairs(core.files) do
    local rest = name:sub(1, #path + 1) == path .. "/" and name:sub(#path + 2)
    local folder = rest and rest:match("^([^/]*)/")
    if rest and not found[folder or rest] then
      found[folder or rest] = true
      names[#names + 1] = { name = folder or rest, type = folder and "directory" or "file", size = #text }
    end
  end
  if #names == 0 then return nil, path .. ": not found", "ENOENT" end
  table.sort(names, function(a, b) return a.name < b.name end)
  if not details then for i, entry in ipairs(names) do names[i] = entry.name end end
  return names
end

-- The parameters without "&" in a value, undecoded.
function core.environment() return { "HOME=/root", "LANG=C", "EMPTY=" } end

function core.query(text, lists)
  local all = {}
  for name, value in text:gmatch("([^&=]+)=?([^&]*)") do
    if lists then
      all[name] = all[name] or {}
      table.insert(all[name], value)
    else
      all[name] = all[name] or value
    end
  end
  return all
end

function core.http_date(seconds) return "http " .. seconds end
function core.http_date_parse(text) return math.tointeger(tonumber(text:match("^http (%-?%d+)$"))) end

function core.url_encode(text)
  return (text:gsub("[^%w._~-]", function(char) return string.format("%%%02X", char:byte()) end))
end

function core.params(req, params) req.params = params end

-- As in the core: whether the announced length exceeds the new limit.
function core.body_max(req, bytes)
  req.body_max = bytes or "none"
  return bytes ~= nil and #(req.body_text or "") > bytes
end

function core.too_large() return 413 end

function core.access_variables()
  return { "remote_addr", "remote_user", "time_local", "request", "status", "body_bytes_sent", "http_" }
end

function core.time_max(req, ms) req.time_max = ms end

core.listener_body_max = 1000

local function response_of(res, ...)
  local n, first, body, headers = select("#", ...), ...
  if n == 0 or first == nil then
    return res.code or 204, ""
  elseif type(first) == "number" then
    for name, value in pairs(headers or {}) do res:header(name, value) end
    return first, body or "status " .. first
  end
  return res.code or 200, first
end

-- As in the core, but an error goes through next().
function core.chain(functions)
  return function(req, res)
    local function call(n)
      if n == #functions then return functions[n](req, res) end
      return functions[n](req, res, function()
        local results = table.pack(call(n + 1))
        if results[1] ~= nil then res.described = results end
      end)
    end
    local results = table.pack(call(1))
    if results[1] == nil and res.described then results = res.described end
    return table.unpack(results, 1, results.n)
  end
end

function core.inject(dispatch, failed, method, target, fields, body)
  local headers = {}
  for n = 1, #fields, 2 do headers[#headers + 1] = { fields[n], fields[n + 1] } end
  local path = target:match("^[^?]*"):gsub("^%a+://[^/]*", "")
  local req = { method = method, target = target, path = path, headers = headers, body_text = body }
  local res = { list = {}, trailers = {} }
  function res:status(code)
    if code == nil then return self.code end
    self.code = code
  end
  function res:type(name) self.list[#self.list + 1] = { "Content-Type", name } end
  function res:trailer(name, value) table.move({ name, value }, 1, 2, #self.trailers + 1, self.trailers) end
  function res:header(name, value) self.list[#self.list + 1] = { name, value } end
  local too_big = #(body or "") > core.listener_body_max
  local results = table.pack(xpcall(dispatch, function(err)
    return { err = err, traceback = debug.traceback() }
  end, req, res, method, path, too_big))
  local status, text
  if results[1] then
    status, text = response_of(res, table.unpack(results, 2, results.n))
  else
    res.code = 500
    status, text = response_of(res, failed(req, res, results[2].err, results[2].traceback))
  end
  local sent = {}
  for _, field in ipairs(res.list) do
    sent[#sent + 1] = field[1]
    sent[#sent + 1] = field[2]
  end
  return status, sent, text, res.trailers
end

return core
