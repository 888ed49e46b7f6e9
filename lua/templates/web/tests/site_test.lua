-- site_test.lua - the site as a server of its own, on a free port.

local test = require "luaserve.test"

local server = test.serve("site.lua")

it("shows the form of the login to strangers", function()
  local res = server:get("/")
  test.equal(res.status, 303)
  test.contains(server:get(res.headers.location).body, "<h1>Log in</h1>")
end)

it("serves the files of public/ and no others", function()
  test.equal(server:get("/public/style.css").status, 200)
  test.equal(server:get("/public/../app.lua").status, 404)
end)

it("limits the attempts to log in", function()
  local status
  for _ = 1, 21 do status = server:post("/register", { form = { name = "?" } }).status end
  test.equal(status, 429)
end)
