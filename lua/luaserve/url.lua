-- url.lua - ls.url: percent-encoding and query strings (RFC 3986).

local core = require "luaserve.core"
local usage = require "luaserve.usage"
usage.mark_internal()

local concat, sort, tostring, type = table.concat, table.sort, tostring, type
local encode, percent_decode = core.url_encode, core.percent_decode

-- ls.url is a Url: percent-encoding and query strings.
local url = {}

-- ls.url.decode(text) -> text | nil, message, code
-- Decodes percent-encoding; a `+` stays. EINVAL: an invalid escape, or %00.
function url.decode(text, ...)
  if type(text) ~= "string" then usage.error("ls.url.decode takes a string; got %s", usage.quote(text)) end
  usage.no_more("ls.url.decode(text)", text, ...)
  local decoded = percent_decode(text)
  if not decoded then return nil, "invalid escape in " .. usage.quote(text), "EINVAL" end
  return decoded
end

local scalar = { string = true, number = true, boolean = true }

local function add(parts, name, value)
  if not scalar[type(value)] then
    usage.error("ls.url.query: %s must be a string, a number, a boolean or a list of them; got %s", usage.quote(name),
      usage.quote(value))
  end
  parts[#parts + 1] = encode(name) .. "=" .. encode(tostring(value))
end

-- ls.url.query(values: table<string, string|number|boolean|(string|number|boolean)[]>) -> query: string
-- Makes a query string: "a=1&b=x%20y&b=z" of { a = 1, b = { "x y", "z" } }. The names are sorted: equal tables give equal
-- strings.
function url.query(values, ...)
  if type(values) ~= "table" then
    usage.error("ls.url.query takes a table such as { page = 2 }; got %s", usage.quote(values))
  end
  usage.no_more("ls.url.query(values)", values, ...)
  local names, parts = {}, {}
  for name in pairs(values) do
    if type(name) ~= "string" then
      usage.error("ls.url.query takes a table such as { page = 2 }; got the key %s", usage.quote(name))
    end
    names[#names + 1] = name
  end
  sort(names)
  for _, name in ipairs(names) do
    local value = values[name]
    if type(value) == "table" then
      for _, one in ipairs(value) do add(parts, name, one) end
    else
      add(parts, name, value)
    end
  end
  return concat(parts, "&")
end

return url
