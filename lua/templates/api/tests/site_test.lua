-- site_test.lua - the site as a server of its own, on a free port.

local test = require "luaserve.test"

local server = test.serve("site.lua")
local headers = { Authorization = "Bearer token-for-development" }

it("serves the API", function()
  local created = server:post("/items", { headers = headers, json = { title = "write" } })
  test.equal(created.status, 201)
  test.equal(server:get(created.headers.location, { headers = headers }):json().title, "write")
end)

it("gives every item an id of its own", function()
  local seen = {}
  for _ = 1, 20 do
    local id = server:post("/items", { headers = headers, json = { title = "one of many" } }):json().id
    test.falsy(seen[id])
    seen[id] = true
  end
end)

it("refuses long bodies, and requests without the token", function()
  test.equal(server:post("/items", { headers = headers, json = { title = ("x"):rep(70000) } }).status, 413)
  test.equal(server:get("/items").status, 401)
end)
