-- links.lua - a URL shortener: its links, their counts and the latest ones are dicts, which all Lua states share.
--
--   luaserve examples/links.lua 8080           then, in another terminal:
--
--   curl -d https://www.lua.org http://127.0.0.1:8080/      the short path, such as /1
--   curl -i http://127.0.0.1:8080/1                         302, to the URL
--   curl http://127.0.0.1:8080/latest                       the latest links with the number of their visits, as JSON
--
-- An address may add 20 links a minute. When the dict is full, new links are refused with 507.

local ls = require "luaserve"

local LATEST, ADDED_MAX = 10, 20

local app = ls.app()
local links = ls.dict("links", { size = "16m" })
local visits = ls.dict("visits", { size = "16m" })
local added = ls.dict("added", { size = "1m" })
local lists = ls.dict("lists", { size = "64k" })

app:post("/", function(req)
  local url = req:body()
  if not url:find("^https?://[^%s%c]+$") or #url > 2000 or not utf8.len(url) then -- JSON has UTF-8 only
    return 400, "send a URL such as https://example.org/\n"
  end
  if added:incr(req.ip, 1, 0, 60) > ADDED_MAX then return 429, "too many links; try again in a minute\n" end
  local id = visits:incr("last id")
  local stored, e = ls.try(links.set, links, id, { url = url, at = os.time() })
  if not stored then return 507, e.message .. "\n" end
  lists:lpush("latest", id)
  if lists:llen("latest") > LATEST then lists:rpop("latest") end
  return 201, "/" .. id .. "\n"
end)

app:get("/latest", function()
  local latest = ls.json.array {}
  for _, id in ipairs(lists:range("latest")) do
    local link = links[id]
    if link then latest[#latest + 1] = { id = id, url = link.url, at = link.at, visits = visits[id] or 0 } end
  end
  return latest
end)

app:get("/:id", function(req, res)
  local id = math.tointeger(req.params.id:match "^%d+$")
  local link = id and links[id]
  if not link then return 404, "no such link\n" end
  visits:incr(id)
  return res:redirect(link.url)
end)

ls.listen(... or 8080, app)
