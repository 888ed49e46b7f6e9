-- compress.lua - middleware that compresses responses: gzip, br and zstd, as the client accepts them. The core decides when
-- the head of the response is sent (src/http/coding/coding_filter.h), so the place among other middleware makes no difference.

local core = require "luaserve.core"
local options = require "luaserve.options"
local usage = require "luaserve.usage"

local concat, find, lower, type = table.concat, string.find, string.lower, type
local begin, decode = core.encode_response, core.decode_request

-- compress is a Compress: middleware that compresses responses, `require "luaserve.compress"`.
local compress = {}

local compress_options = {
  types = true, -- string[] - media types, such as "text/*" and "*+json"; default: texts, JSON, XML, fonts and the like
  min_size = { "bytes_min", "size", 0, 1 << 30, "1k" }, -- shorter bodies are sent as they are
  codings = true, -- string[] - those to use, the best first for clients that want several equally
  level = true, -- integer|table<string, integer> - from fast (1) to small (9), for all codings or by name
  cache = { "cache_bytes", "size", 0, 1 << 30, "1m", none = 0 }, -- for bodies that come again, in each Lua state
}
compress.calls = { ["compress"] = { compress_options, listed = true, optional = true } } -- CompressOptions

local names = { gzip = true, br = true, zstd = true }

local usual_types = { "text/*", "*+json", "*+xml", "application/json", "application/x-ndjson", "application/javascript",
  "application/xml", "application/yaml", "application/graphql", "application/wasm", "application/sql", "application/rtf",
  "application/vnd.ms-fontobject", "font/ttf", "font/otf", "image/bmp", "image/x-icon", "image/vnd.microsoft.icon" }

-- types_of(list) -> the names in the form of the core. Raises.
local function types_of(list)
  usage.refuse(type(list) ~= "table" or #list == 0 or not usage.is_list(list), list,
    'compress: types must be a list such as { "text/*", "application/json" }')
  local out = {}
  for n, name in ipairs(list) do
    local token = "[%w!#$&^_.-]+"
    if type(name) ~= "string" or not (find(name, "^" .. token .. "/" .. token .. "%+?" .. "[%w.-]*$")
      or find(name, "^" .. token .. "/%*$") or find(name, "^%*%+" .. token .. "$")) then
      usage.error('compress: types[%d] must be such as "text/html", "text/*" or "*+json"; got %s', n, usage.quote(name))
    end
    out[n] = lower(name):gsub("/%*$", "/"):gsub("^%*%+", "+") .. "\0"
  end
  return concat(out)
end

-- chosen(list) -> the codings of this build that the list names, in its order. Raises.
local function chosen(list)
  local built, out = core.codings(), {}
  if list == nil then return built end
  usage.refuse(type(list) ~= "table" or #list == 0 or not usage.is_list(list), list,
    'compress: codings must be a list such as { "zstd", "br", "gzip" }')
  for n, name in ipairs(list) do
    usage.refuse(not names[name], name, 'compress: codings[%d] must be "gzip", "br" or "zstd"', n)
    for _, coding in ipairs(built) do
      if coding.name == name then out[#out + 1] = coding end
    end
  end
  return out
end

local function check_level(what, level, from, to)
  usage.refuse(math.type(level) ~= "integer" or level < from or level > to, level,
    "compress: %s must be a whole number from %d to %d", what, from, to)
  return level
end

-- levels_of(given, codings) -> the level of each coding. Raises.
local function levels_of(given, codings)
  local levels = {}
  if given ~= nil and type(given) ~= "table" then check_level("level", given, 1, 9) end
  for name in pairs(type(given) == "table" and given or levels) do
    usage.refuse(not names[name], name, 'compress: level has the keys "gzip", "br" and "zstd"')
  end
  for n, coding in ipairs(codings) do
    local level = given
    if type(given) == "table" then level = given[coding.name] end
    levels[n] = level == nil and coding.usual or check_level(type(given) == "table" and "level." .. coding.name or "level",
      level, coding.min, coding.max)
  end
  return levels
end

-- compress([options: CompressOptions]) -> middleware: Middleware
-- Makes middleware that compresses responses for clients that accept it.
local function new(...)
  local out, given = options.only("compress", compress.calls.compress, "{ level = 6 }", ...)
  local types, codings, list = types_of(given.types or usual_types), chosen(given.codings), {}
  local levels = levels_of(given.level, codings)
  for n, coding in ipairs(codings) do list[n] = coding.name end
  if #list == 0 then
    usage.error("compress: this build of luaserve has none of the codings: luaserve --version lists what is built in")
  end
  local rules = core.coding_rules(out.bytes_min, types, out.cache_bytes, list, levels)
  return function(req, _, next)
    begin(req, rules)
    return next()
  end
end

local function requests(req, _, next)
  decode(req)
  return next()
end

-- compress.requests() -> middleware: Middleware
-- Makes middleware for which req:body and its like decode a body with Content-Encoding. Another coding is refused with 415.
function compress.requests(...)
  usage.no_more("compress.requests()", nil, ...)
  return requests
end

return setmetatable(compress, { __call = function(_, ...) return new(...) end })
