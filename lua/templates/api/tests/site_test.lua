-- site_test.lua - the site as a server of its own, on a free port.

local test = require "luaserve.test"

local server = test.serve("site.lua")

it("serves the API", function()
  local created = server:post("/items", { json = { title = "write" } })
  test.equal(created.status, 201)
  test.equal(server:get(created.headers.location):json().title, "write")
end)

it("gives every item an id of its own", function()
  local seen = {}
  for _ = 1, 20 do
    local id = server:post("/items", { json = { title = "one of many" } }):json().id
    test.falsy(seen[id])
    seen[id] = true
  end
end)

it("refuses other paths", function()
  test.equal(server:get("/").status, 404)
end)
