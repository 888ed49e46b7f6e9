-- text.lua - texts that a peer sends. Patterns such as "^(.-)[ \t]*$" take quadratic time for a long run of blanks: a few kilobytes of
-- a client would take seconds.

local find, match = string.find, string.match -- a site may replace the globals

local text = {}

-- trim(s) -> the string without the white space at both ends, in linear time.
function text.trim(s)
  local from = find(s, "%S")
  return from and match(s, "^.*%S", from) or ""
end

return text
