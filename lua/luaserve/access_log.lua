-- access_log.lua - the option access_log of ls.listen and of apps: its check, and formats as the parts that
-- src/http/access/access_log.h takes.

local core = require "luaserve.core"
local options = require "luaserve.options"
local records = require "luaserve.records"
local usage = require "luaserve.usage"

local access_log = {}

local function is_file(value) return type(value) == "string" and value ~= "" and not value:find("%z") end
local function is_part(value) return type(value) == "number" and value >= 0 and value <= 1 end

local log_options = {
  -- string - a file, "stdout" or "syslog"
  file = { "file", "is", is_file, 'the name of a file, "stdout" or "syslog"', required = true },
  -- "combined"|"json"|string - or a text with variables such as "$remote_addr"; default "combined"
  format = { "format", "is", "string", '"combined", "json" or a text with variables', "combined" },
  -- fun(req: Request, res: Response, info: LogInfo): any - whether the request is logged
  when = { "when", "is", "function", "a function(req, res, info)" },
  mask = true, -- string[] - names in queries whose values are written as ***
  -- number - the part of the requests, from 0 to 1; those with errors and slow ones are always logged
  sample = { "sample", "is", is_part, "a number from 0 to 1, such as 0.1" },
}
access_log.calls = { ["access_log"] = { log_options, listed = true } } -- AccessLogOptions

local PARTS_MAX, LITERALS_MAX = 64, 4096
local forms = 'access_log = "access.log", "stdout", "syslog", false or { file = "access.log", format = "json" }'

local formats = {
  combined = '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" '
    .. '"$http_user_agent"',
  json = '{"time":$time_iso8601,"remote_addr":$remote_addr,"request":$request,"method":$request_method,"uri":$request_uri,'
    .. '"route":$route,"host":$host,"scheme":$scheme,"protocol":$server_protocol,"status":$status,'
    .. '"bytes":$body_bytes_sent,"duration":$request_time,"first_byte":$first_byte_time,"outcome":$outcome,'
    .. '"request_id":$request_id,"upstream":$upstream_addr,"upstream_time":$upstream_response_time,'
    .. '"upstream_status":$upstream_status,"referer":$http_referer,"user_agent":$http_user_agent}',
}

-- part(number, text) -> a literal (0) or a variable for the core.
local function part(number, text) return string.pack("Bs4", number, text) end

-- variable(fname, name) -> its part. Raises.
local function variable(fname, name)
  local known = {}
  for number, one in ipairs(core.access_variables()) do
    if name == one and one:sub(-1) ~= "_" then return part(number, "") end
    local field = one:sub(-1) == "_" and name:sub(1, #one) == one and name:sub(#one + 1)
    if field and field ~= "" then return part(number, (field:gsub("_", "-"))) end
    known[one:sub(-1) == "_" and one .. "NAME" or one] = true
  end
  local hint = usage.suggest(name, known)
  if hint == "" then
    local names = {}
    for one in pairs(known) do names[#names + 1] = "$" .. one end
    table.sort(names)
    hint = "; the variables are " .. table.concat(names, ", ")
  end
  usage.error("%s: access_log: unknown variable %s in the format%s", fname, usage.quote("$" .. name), hint)
end

-- parts(fname, format) -> the list of parts for the core. Raises.
local function parts(fname, format)
  local list, at, literals = {}, 1, 0
  local text = formats[format] or format
  if text:find("[%c]") then
    usage.error("%s: access_log: the format has a control character; a line break follows each line anyway", fname)
  end
  local function literal(to)
    if to >= at then list[#list + 1], literals = part(0, text:sub(at, to)), literals + to - at + 1 end
  end
  for from, name, to in text:gmatch("()%$({?[%w_]*}?)()") do
    local plain = name:match("^{([%w_]+)}$") or name:match("^[%w_]+")
    if not plain then usage.error("%s: access_log: a $ without a name in the format %s; write $status or ${status}: there is no other $", fname, usage.quote(format)) end
    if name:sub(1, 1) ~= "{" then to = from + 1 + #plain end
    literal(from - 1)
    list[#list + 1], at = variable(fname, plain), to
  end
  literal(#text)
  if at == 1 then
    usage.error('%s: access_log: unknown format %s%s; write "combined", "json" or a text with variables such as '
      .. "'$remote_addr $status $route'", fname, usage.quote(format), usage.suggest(format, formats))
  elseif #list > PARTS_MAX or literals > LITERALS_MAX then
    usage.error("%s: access_log: the format has at most %d parts, and %d bytes beside the variables", fname, PARTS_MAX,
      LITERALS_MAX)
  end
  return list
end

local function masked(fname, mask)
  local packed = {}
  if mask == nil then return packed end
  usage.refuse(type(mask) ~= "table" or #mask == 0 or not usage.is_list(mask), mask,
    '%s: access_log: mask must be a list of names in queries, such as { "token" }', fname)
  for i, name in ipairs(mask) do
    usage.refuse(type(name) ~= "string" or name == "", name, "%s: access_log: mask must be a list of names", fname)
    packed[i] = string.pack("s4", name)
  end
  return packed
end

local functions = 0 -- of `when` in this state: each makes a log of its own

-- Have the requests of `log` for which fn returns false or nil be no requests of it.
local function filter(log, fn)
  local none = core.access_log { key = "" }
  core.on("log", function(req, res, info)
    if core.access_is(req, log) and not fn(req, res, info) then core.set_route(req, nil, none) end
  end)
end

-- read(fname, value, settings) -> the log for the core, of the option access_log. `settings`: those of the listener, with
-- slow_ms. Raises.
function access_log.read(fname, value, settings)
  if value == false then return core.access_log { key = "" } end
  local given = type(value) == "string" and { file = value } or value
  usage.refuse(type(given) ~= "table", value, "%s: access_log must be a file or a table: %s", fname, forms)
  local own = options.take(fname .. ": access_log", given, access_log.calls["access_log"], {})
  local file, format, sample, fn = own.file, own.format, own.sample, own.when
  if file == "stderr" then
    usage.error('%s: access_log: standard error has the log of the server; write "stdout", or "./stderr" for a file of that name', fname)
  end
  local list, names = parts(fname, format), masked(fname, given.mask)
  local out = {
    part_count = #list, masked_count = #names, json = format == "json",
    sample = sample and sample < 1 and math.max(1, math.floor(sample * 2 ^ 32)) or 0,
    slow_ns = (settings.slow_ms or 0) * 1000000, masks_addresses = records.mask_addresses or false,
    name = (file == "stdout" or file == "syslog") and file or nil,
  }
  out.path = not out.name and file or nil
  if fn then functions = functions + 1 end
  out.key = table.concat(names) .. table.concat(list) .. table.concat({ file, out.sample, out.slow_ns, tostring(out.json),
    tostring(out.masks_addresses), fn and functions or 0, #names }, "\0")
  records.want()
  local log = usage.call(fname .. ": access_log", core.access_log, out)
  if fn then filter(log, fn) end
  return log
end

return access_log
