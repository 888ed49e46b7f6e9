-- stress/text.lua - numbers and texts of unknown origin in the reports. Numbers ignore the locale, which a script may have
-- set with os.setlocale.

local text = {}

text.TOKEN = "^[%w!#$%%&'*+.^_`|~-]+$" -- RFC 9110 section 5.6.2

-- is_field(name, value) -> whether a header may have this name and this value
function text.is_field(name, value)
  return type(name) == "string" and name:find(text.TOKEN) and type(value) == "string"
    and not value:find("[\0-\8\10-\31\127]")
end

-- fixed(number, decimals) -> the number rounded to decimals (0 to 9), with "."; "-" for a number that is infinite, not a
-- number, or above 9.2e18 units of the last decimal.
function text.fixed(number, decimals)
  local scale = 10 ^ decimals
  local scaled = math.abs(number) * scale
  if scaled ~= scaled or scaled >= 9.2e18 then return "-" end
  local units = math.tointeger(math.floor(scaled + (scaled < 2 ^ 52 and 0.5 or 0)))
  local sign = number < 0 and units > 0 and "-" or ""
  if decimals == 0 then return sign .. units end
  scale = math.tointeger(scale)
  return string.format("%s%d.%0" .. decimals .. "d", sign, units // scale, units % scale)
end

-- number(number, decimals) -> the same without trailing zeros
function text.number(number, decimals)
  local fixed = text.fixed(number, decimals)
  return decimals > 0 and fixed:gsub("0+$", ""):gsub("%.$", "") or fixed
end

-- time(ns) -> a duration with three significant digits and a unit: "830ns", "12.3us", "4.56ms", "1.20s", "75.0s"; "-"
-- for infinity and what is not a number
function text.time(ns)
  local unit, names = 1, { "ns", "us", "ms", "s" }
  if ns ~= ns or ns == math.huge then return "-" end
  while unit < #names and ns >= 999.5 do -- a value that would round to 1000 uses the next unit
    ns, unit = ns / 1000, unit + 1
  end
  return text.fixed(ns, (unit == 1 or ns >= 99.95) and 0 or ns >= 9.995 and 1 or 2) .. names[unit]
end

-- percent(99.9) -> "p99.9"
function text.percent(percent) return "p" .. text.number(percent, 6) end

-- Each byte that does not belong to valid UTF-8 is replaced.
local function valid(bytes, replacement)
  local parts, from = {}, 1
  repeat
    local length, bad = utf8.len(bytes, from)
    parts[#parts + 1] = bytes:sub(from, not length and bad - 1 or nil)
    if not length then
      parts[#parts + 1], from = replacement(bytes:sub(bad, bad)), bad + 1
    end
  until length
  return table.concat(parts)
end

-- C0, DEL, C1 and the bidirectional controls, as ls_utf8_is_control.
local controls = { { 0, 0x1f }, { 0x7f, 0x9f }, { 0x61c, 0x61c }, { 0x200e, 0x200f }, { 0x202a, 0x202e },
  { 0x2066, 0x2069 } }

local function without_controls(bytes, replacement)
  return (valid(bytes, replacement):gsub("[\0-\31\127\xc2\xd8\xe2][\x80-\xbf]*", function(character)
    local code = utf8.codepoint(character)
    for _, range in ipairs(controls) do
      if code >= range[1] and code <= range[2] then return replacement(character) end
    end
  end))
end

-- printable(bytes) -> the text for a terminal: "?" for each control character and each byte of invalid UTF-8
function text.printable(bytes) return without_controls(bytes, function() return "?" end) end

-- escaped(bytes) -> the same with \xNN for each of their bytes, but line breaks and tabs stay
function text.escaped(bytes)
  return without_controls(bytes, function(character)
    if character == "\n" or character == "\t" then return nil end
    return (character:gsub(".", function(byte) return string.format("\\x%02x", byte:byte()) end))
  end)
end

-- json(bytes) -> a JSON string (RFC 8259 section 7) with its quotes. Invalid UTF-8 becomes U+FFFD, and "<" an escape, so
-- that the text may stand inside an HTML script element.
function text.json(bytes)
  local marked = bytes:gsub('["\\]', "\\%0")
  marked = marked:gsub("[\0-\31\127<]", function(c) return string.format("\\u%04x", c:byte()) end)
  return '"' .. valid(marked, function() return "\\ufffd" end) .. '"'
end

local references = { ["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;" }

-- html(bytes) -> the text with references for &, <, > and quotes; control characters but line breaks and tabs, and bytes
-- of invalid UTF-8, become "?"
function text.html(bytes)
  return (valid(bytes, function() return "?" end):gsub("[\0-\8\11-\31\127]", "?"):gsub('[&<>"]', references))
end

-- counted(1, "connection") -> "1 connection"; counted(2, "connection") -> "2 connections"
function text.counted(count, noun) return count .. " " .. noun .. (count == 1 and "" or "s") end

return text
