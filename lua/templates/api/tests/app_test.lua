-- app_test.lua - the API without a server: app:inject passes a request to the app.

local test = require "luaserve.test"
local app = require "app"
local store = require "store"

-- Send a request with a JSON body and the token; returns the response and the value of its body.
local function send(method, path, json)
  local res = app:inject { method = method, path = path, json = json,
    headers = { Authorization = "Bearer token-for-development" } }
  return res, res.body ~= "" and res:json()
end

-- Add an item with this title; returns its path.
local function add(title) return send("POST", "/items", { title = title }).headers.location end

before_each(store.clear)

describe("items", function()
  it("are an empty list at first", function()
    test.equal(send("GET", "/items").body, '{"items":[]}')
  end)

  it("are created", function()
    local res, item = send("POST", "/items", { title = "write" })
    test.equal(res.status, 201)
    test.equal(res.headers.location, "/items/" .. item.id)
    test.equal(item, { id = item.id, title = "write", done = false })
    test.equal(select(2, send("GET", res.headers.location)), item)
  end)

  it("are changed", function()
    local path = add("write")
    test.equal(select(2, send("PATCH", path, { done = true })).title, "write")
    test.equal(select(2, send("PATCH", path, { title = "read" })).done, true)
    test.equal(select(2, send("PATCH", path, { done = false })).done, false)
    test.equal(select(2, send("PATCH", path, { title = "read" })).done, false)
  end)

  it("are deleted", function()
    local path = add("write")
    test.equal(send("DELETE", path).status, 204)
    for _, method in ipairs { "DELETE", "GET" } do test.equal(send(method, path).status, 404) end
    test.equal(send("PATCH", path, { done = true }).status, 404)
  end)

  it("have ids of their own", function()
    local first = add("first")
    send("DELETE", first)
    test.not_equal(add("second"), first)
  end)

  it("are not found by other paths", function()
    for _, path in ipairs { "/items/0", "/items/x", "/items/1e3", "/items/99999999999999999999", "/" } do
      test.equal(send("GET", path).status, 404, path)
    end
  end)
end)

describe("pages", function()
  it("follow each other", function()
    for n = 1, 5 do add("item " .. n) end
    local path, seen = "/items?limit=2", {}
    while path do
      local _, page = send("GET", path)
      seen[#seen + 1] = #page.items
      path = page.next
    end
    test.equal(seen, { 2, 2, 1 })
  end)

  it("hold what is asked for", function()
    send("PATCH", add("first"), { done = true })
    add("second")
    test.equal(select(2, send("GET", "/items?done=true")).items[1].title, "first")
    test.equal(select(2, send("GET", "/items?done=false")).items[1].title, "second")
    test.equal(#select(2, send("GET", "/items?limit=100")).items, 2)
  end)

  it("have limits", function()
    for _, query in ipairs { "limit=0", "limit=101", "limit=x", "after=-1", "done=maybe", "page=2" } do
      test.equal(send("GET", "/items?" .. query).status, 400, query)
    end
  end)
end)

describe("an item that is not valid", function()
  local cases = { -- name, item, the field that is wrong
    { "without a title", {}, "title" },
    { "with an empty title", { title = "" }, "title" },
    { "with a title of spaces", { title = "  " }, "title" },
    { "with a long title", { title = ("x"):rep(201) }, "title" },
    { "with a number as its state", { title = "a", done = 1 }, "done" },
    { "with an unknown field", { title = "a", color = "red" }, "color" },
  }
  for _, case in ipairs(cases) do
    it(case[1] .. " is refused", function()
      local res, body = send("POST", "/items", case[2])
      test.equal(res.status, 422)
      test.truthy(body.fields[case[3]])
    end)
  end

  it("is refused as a change", function()
    test.equal(send("PATCH", add("write"), { title = "" }).status, 422)
  end)

  it("may have a title of 200 characters", function()
    test.equal(send("POST", "/items", { title = ("é"):rep(200) }).status, 201)
  end)

  it("is no object", function()
    local res = app:inject { method = "POST", path = "/items", body = "title", headers = {
      Authorization = "Bearer token-for-development" } }
    test.equal(res.status, 400)
  end)
end)

describe("the token", function()
  it("is needed", function()
    for _, token in ipairs { "Bearer token-for-developmen", "Bearer ", "token-for-development", "" } do
      test.equal(app:inject { path = "/items", headers = { Authorization = token } }.status, 401, token)
    end
    test.equal(app:inject { method = "DELETE", path = "/items/1" }.status, 401)
  end)
end)
