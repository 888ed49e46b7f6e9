-- app_test.lua - the pages without a server: app:inject passes a request to the app.

local ls = require "luaserve"
local test = require "luaserve.test"
local app = require "app"

local function send(form)
  return app:inject { method = "POST", path = "/messages", body = form,
    headers = { ["Content-Type"] = "application/x-www-form-urlencoded" } }
end

describe("the guest book", function()
  before_each(function() ls.dict("guest book"):clear() end)

  it("has no messages at first", function()
    local res = app:inject { path = "/" }
    test.equal(res.status, 200)
    test.equal(res.headers["content-type"], "text/html; charset=utf-8")
    test.contains(res.body, "No messages yet.")
  end)

  it("shows a message", function()
    local res = send("name=Ada&text=Hello+there")
    test.equal(res.status, 303)
    test.equal(res.headers.location, "/")
    test.contains(app:inject { path = "/" }.body, "<p>Hello there</p>")
  end)

  it("escapes what people write", function()
    send("name=%3Cb%3EAda&text=%3Cscript%3E")
    local page = app:inject { path = "/" }.body
    test.contains(page, "&lt;b&gt;Ada")
    test.falsy(page:find("<script>", 1, true))
  end)

  it("keeps the fields of a form that is not valid", function()
    local res = send("name=Ada&text=")
    test.equal(res.status, 422)
    test.contains(res.body, "Please write a message.")
    test.contains(res.body, 'value="Ada"')
  end)

  it("has limits", function()
    test.equal(send("name=" .. ("x"):rep(60) .. "&text=" .. ("x"):rep(1000)).status, 303)
    test.equal(send("name=" .. ("x"):rep(61) .. "&text=x").status, 422)
    test.equal(send("name=x&text=" .. ("x"):rep(1001)).status, 422)
  end)

  it("keeps the newest messages", function()
    for n = 1, 101 do send("name=Ada&text=message" .. n) end
    local page = app:inject { path = "/" }.body
    test.contains(page, "<p>message101</p>")
    test.contains(page, "<p>message2</p>")
    test.falsy(page:find("<p>message1</p>", 1, true))
  end)

  it("serves its style sheet", function()
    test.equal(app:inject { path = "/public/style.css" }.headers["content-type"], "text/css; charset=utf-8")
  end)
end)
