-- page.lua - the pages of luaserve (lua/page) in a browser: the text, and the fields of its response.

local page = {}

local match, require = string.match, require -- a site may replace the globals
local known = {} -- by name: { text =, policy = }

-- page.fields(res, cache): the fields of a response for such a page. `cache`: Cache-Control.
function page.fields(res, cache)
  res:header("Cache-Control", cache):header("X-Content-Type-Options", "nosniff"):header("Referrer-Policy", "no-referrer")
end

local function load(name)
  local text = require("luaserve." .. name .. "_page")
  local function hash(part) return "'sha256-" .. require("luaserve.crypto").sha256(part, "base64") .. "'" end
  return { text = text, policy = "default-src 'none'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    .. "frame-ancestors 'none'; style-src " .. hash(match(text, "<style>(.-)</style>"))
    .. "; script-src " .. hash(match(text, "<script>(.-)</script>")) }
end

-- page.open(name, res, cache) -> the text of the page. Its policy: the browser runs the scripts and styles of the page only,
-- and asks this server only.
function page.open(name, res, cache)
  local one = known[name] or load(name)
  known[name] = one
  page.fields(res, cache)
  res:header("Content-Security-Policy", one.policy)
  return one.text
end

return page
