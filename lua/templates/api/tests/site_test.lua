-- site_test.lua - the site as a server of its own, on a free port.

local test = require "luaserve.test"

local server = test.serve("site.lua")

it("serves the API", function()
  local created = server:post("/items", { json = { title = "write" } })
  test.equal(created.status, 201)
  test.equal(server:get(created.headers.location):json().title, "write")
end)

it("refuses other paths", function()
  test.equal(server:get("/").status, 404)
end)
