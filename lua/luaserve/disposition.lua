-- disposition.lua - the field Content-Disposition of a download (RFC 6266).

local usage = require "luaserve.usage"

local byte, find, format, gsub = string.byte, string.find, string.format, string.gsub -- a site may replace the globals
local utf8_len = utf8.len

local disposition = {}

local function escape(c) return format("%%%02X", byte(c)) end

-- value(what, name) -> the value `attachment; filename="name"`. A name that is not plain ASCII gets a second parameter in the
-- encoding of RFC 8187, which clients prefer: filename*=UTF-8''na%C3%AFve; the first one then has "_" in place of the other
-- characters. `what`, such as "res:attachment: name", begins the message about a wrong name.
function disposition.value(what, name)
  if name == "" or #name > 255 or not utf8_len(name) or find(name, "[%c/\\]") then
    usage.error('%s must be the name of a file in UTF-8, at most 255 bytes without / and \\, such as "report.pdf"', what)
  end
  local plain = gsub(gsub(name, "[\xC2-\xF4][\x80-\xBF]*", "_"), '"', '\\"')
  local value = 'attachment; filename="' .. plain .. '"'
  if not find(name, "[\x80-\xFF%%]") then return value end -- some clients decode a % in a quoted name
  return value .. "; filename*=UTF-8''" .. gsub(name, "[^%w!#$&+.^_`|~-]", escape)
end

return disposition
