-- app_test.lua - the API without a server: app:inject passes a request to the app.

local ls = require "luaserve"
local test = require "luaserve.test"
local app = require "app"

-- Send a request with a JSON body; returns the response and the value of its body.
local function send(method, path, body)
  local res = app:inject { method = method, path = path, body = body and ls.json.encode(body) }
  return res, res:json()
end

describe("items", function()
  before_each(function() ls.dict("items"):clear() end)

  it("are an empty list at first", function()
    test.equal(app:inject { path = "/items" }.body, "[]")
  end)

  it("are created", function()
    local res, item = send("POST", "/items", { title = "write" })
    test.equal(res.status, 201)
    test.equal(res.headers.location, "/items/1")
    test.equal(item, { id = 1, title = "write", done = false })
  end)

  it("are found by their id", function()
    send("POST", "/items", { title = "write" })
    local _, item = send("GET", "/items/1")
    test.equal(item.title, "write")
    test.equal(app:inject { path = "/items/2" }.status, 404)
    test.equal(app:inject { path = "/items/x" }.status, 404)
  end)

  it("are changed", function()
    send("POST", "/items", { title = "write" })
    local _, item = send("PATCH", "/items/1", { done = true })
    test.equal(item, { id = 1, title = "write", done = true })
  end)

  it("are deleted", function()
    send("POST", "/items", { title = "write" })
    test.equal(app:inject { method = "DELETE", path = "/items/1" }.status, 204)
    test.equal(app:inject { method = "DELETE", path = "/items/1" }.status, 404)
    test.equal(app:inject { path = "/items" }.body, "[]")
  end)
end)

describe("an item that is not valid", function()
  before_each(function() ls.dict("items"):clear() end)

  local cases = { -- name, item, what is wrong
    { "without a title", {}, { title = "is missing" } },
    { "with an empty title", { title = "  " }, { title = "must be a text that is not empty" } },
    { "with a long title", { title = ("x"):rep(201) }, { title = "must have at most 200 bytes" } },
    { "with a number as its state", { title = "a", done = 1 }, { done = "must be true or false" } },
    { "with an unknown field", { title = "a", color = "red" }, { color = "is unknown" } },
  }
  for _, case in ipairs(cases) do
    it(case[1] .. " is refused", function()
      local res, body = send("POST", "/items", case[2])
      test.equal(res.status, 400)
      test.equal(body.fields, case[3])
    end)
  end

  it("without JSON is refused", function()
    test.equal(app:inject { method = "POST", path = "/items", body = "title" }.status, 400)
  end)

  it("may have a title of 200 bytes", function()
    test.equal(send("POST", "/items", { title = ("x"):rep(200) }).status, 201)
  end)
end)
