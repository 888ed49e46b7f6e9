-- site_test.lua - the site as a server of its own, on a free port.

local test = require "luaserve.test"

local server = test.serve("site.lua")

it("takes a form and shows it", function()
  test.equal(server:post("/messages", { form = { name = "Ada", text = "1 < 2" } }).status, 303)
  test.contains(server:get("/").body, "1 &lt; 2")
end)

it("serves the files of public/ and no others", function()
  test.equal(server:get("/public/style.css").status, 200)
  test.equal(server:get("/public/../app.lua").status, 404)
end)
