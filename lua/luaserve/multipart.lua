-- multipart.lua - the fields of an HTML form as multipart/form-data (RFC 7578, RFC 2046 section 5.1), from the whole body.
--
--     preamble CRLF "--" boundary CRLF head CRLF CRLF data CRLF "--" boundary CRLF ... CRLF "--" boundary "--" epilogue

local usage = require "luaserve.usage"
usage.mark_internal()

local multipart = {}

local parts_max, head_bytes_max = 1000, 16384

-- The parameters of a field value such as `form-data; name="a b"`, by lower-case name, from the position `at`. nil: the
-- value is malformed, or a name is repeated.
local function parameters(value, at)
  local found = {}
  while true do
    local name, from = value:match("^[ \t]*;[ \t]*([%w!#$%%&'*+.^_`|~-]+)=()", at)
    if not name then break end
    local text, behind = value:match("^([%w!#$%%&'*+.^_`|~-]+)()", from)
    if not text and value:sub(from, from) == '"' then
      local to = from + 1
      while value:find('^\\.', to) or value:find('^[^"\\]', to) do to = to + (value:byte(to) == 92 and 2 or 1) end
      if value:sub(to, to) ~= '"' then return nil end
      text, behind = value:sub(from + 1, to - 1), to + 1
    end
    name = name:lower()
    if not text or found[name] then return nil end
    found[name], at = text, behind
  end
  return value:find("^[ \t]*;?[ \t]*$", at) and found or nil
end

-- The name of a field as browsers and curl write it: the characters '"', CR and LF are %22, %0D and %0A, or have a '\'
-- in front.
local unescaped = { ["%22"] = '"', ["%0D"] = "\r", ["%0A"] = "\n", ["%0d"] = "\r", ["%0a"] = "\n" }
local function name_of(text)
  return (text:gsub('\\(["\\])', "%1"):gsub("%%[02][2ADad]", unescaped))
end

-- The parameters of the field Content-Disposition in the head of a part; nil: it is missing or malformed.
local function disposition(head)
  local found
  for line in (head .. "\r\n"):gmatch("(.-)\r\n") do
    local name, value = line:match("^([^%s:]+):[ \t]*(.*)$")
    if not name then return nil end
    if name:lower() == "content-disposition" then
      local at = value:match("^[Ff][Oo][Rr][Mm]%-[Dd][Aa][Tt][Aa]()")
      if found or not at then return nil end
      found = parameters(value, at)
      if not found then return nil end
    end
  end
  return found
end

-- boundary(content_type) -> the boundary | nil. It has 1 to 70 characters (RFC 2046 section 5.1.1).
local function boundary_of(content_type)
  local found = parameters(content_type, (content_type:find("[; \t]") or #content_type + 1))
  local text = found and found.boundary
  if text and #text <= 70 and text:find("^[%w'()+_,./:=? -]*[%w'()+_,./:=?-]$") then return text end
end

-- The position behind a delimiter, from the position behind its boundary, and whether it is the last one; nil: neither.
local function behind(body, at)
  local to = body:match("^[ \t]*\r\n()", at)
  if to then return to, false end
  to = body:match("^%-%-[ \t]*()", at)
  if to and (to > #body or body:find("^\r\n", to)) then return to, true end
end

local function malformed(format, ...)
  return nil, "the multipart body is malformed: " .. string.format(format, ...)
end

-- fields(body, content_type, lists) -> a table from name to value, of several with one name the first; with the
-- metatable `lists`, to the list of all values | nil, message. Parts with a file name are left out.
function multipart.fields(body, content_type, lists)
  local boundary = boundary_of(content_type)
  if not boundary then return malformed("the Content-Type has no valid boundary") end
  local delimiter, fields, count = "\r\n--" .. boundary, setmetatable({}, lists), 0
  local at, last
  if body:sub(1, #delimiter - 2) == delimiter:sub(3) then at, last = behind(body, #delimiter - 1) end
  local from = 1
  while not at do -- a preamble, in which lines may begin like a delimiter
    local _, to = body:find(delimiter, from, true)
    if not to then return malformed("there is no boundary") end
    at, last = behind(body, to + 1)
    from = to + 1
  end
  while not last do
    count = count + 1
    if count > parts_max then return malformed("it has more than %d parts", parts_max) end
    local head_to, data = body:find("\r\n\r\n", at, true)
    if not head_to or head_to - at > head_bytes_max then
      return malformed("the head of part %d does not end within %d bytes", count, head_bytes_max)
    end
    local given = disposition(body:sub(at, head_to - 1))
    if not given or not given.name then
      return malformed('part %d has no valid Content-Disposition, such as form-data; name="a"', count)
    end
    -- The line break in front of a delimiter belongs to it; that of the head may be the one.
    local stop
    from = data - 1
    repeat
      local start, to = body:find(delimiter, from, true)
      if not start then return malformed("part %d does not end", count) end
      at, last = behind(body, to + 1)
      stop, from = start - 1, to + 1
    until at
    if not given.filename and not given["filename*"] then
      local name, value = name_of(given.name), body:sub(data + 1, stop)
      if not lists then
        fields[name] = fields[name] or value
      elseif rawget(fields, name) then
        table.insert(fields[name], value)
      else
        fields[name] = { value }
      end
    end
  end
  return fields
end

return multipart
