-- pages.lua - what a whole site does: the site of the sections sites-*.   luaserve pages.lua PORT FOLDER
-- peers.lua does the same in nginx.
local ls = require "luaserve"
local compress = require "luaserve.compress"
local rate_limit = require "luaserve.rate_limit"

local port, folder = ...
assert(folder, "usage: luaserve pages.lua PORT FOLDER")
local app = ls.app()
ls.templates("views")
local page = dofile(ls.dir .. "/values.lua").page()
local json = assert(ls.file.read(folder .. "/json"))
local items = ls.json.decode(json)
local GZIP_LEVEL = 5 -- as in measure_sites.py
local as_json = { ["Content-Type"] = "application/json" }

app:get("/", function() return "hello, world\n" end)
app:get("/page", function(_, res) return res:render("page.html", page) end)

app:use("/gzip", compress { codings = { "gzip" }, level = GZIP_LEVEL, cache = false })
app:get("/gzip/text", function() return 200, json, as_json end)
app:get("/gzip/table", function() return items end)
app:use("/kept", compress { codings = { "gzip" }, level = GZIP_LEVEL })
app:get("/kept/text", function() return 200, json, as_json end)

app:use("/session", ls.session { secret = "8f3c2a9d5e7b41f06c8d2e4a1b9f7c35" })
app:get("/session/login", function(req)
  req.session.user = "Ada Lovelace"
  return "in\n"
end)
app:get("/session/user", function(req) return req.session.user end)
app:get("/user", function() return "Ada Lovelace" end)

app:use("/limited", rate_limit { limit = 1000000, per = 1 })
app:get("/limited", function() return "hello, world\n" end)

app:post("/upload", { max_body = false }, function(req)
  local bytes = 0
  for part in req:parts() do
    local path = folder .. "/uploads/" .. ls.crypto.token()
    local _, saved = assert(part:save(path))
    bytes = bytes + saved
    os.remove(path)
  end
  return tostring(bytes)
end)

ls.listen("127.0.0.1:" .. port, app, { timeout = 600 })
