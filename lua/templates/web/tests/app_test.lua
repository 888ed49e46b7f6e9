-- app_test.lua - the pages without a server: app:inject passes a request to the app.

local ls = require "luaserve"
local test = require "luaserve.test"
local app = require "app"
local mail, store = require "mail", require "store"

-- A browser: browser(method, path [, form [, parts]]) sends a request with the cookies that it has got, and returns the response.
local function browser()
  local jar
  return function(method, path, form, parts)
    jar = jar or ls.cookie_jar()
    return app:inject { method = method, path = path, form = form, parts = parts, jar = jar,
      headers = { ["Sec-Fetch-Site"] = "same-origin" } }
  end
end

local function upload(visit, name, bytes)
  return visit("POST", "/files", nil, { { name = "file", filename = name, body = bytes } })
end

local ada, eve = browser(), browser() -- two accounts
before(function()
  for name, visit in pairs { ada = ada, eve = eve } do
    test.equal(visit("POST", "/register", { name = name, password = "correct horse" }).status, 303)
  end
end)

describe("accounts", function()
  it("are needed for the pages", function()
    for _, path in ipairs { "/", "/files", "/files/x" } do
      local res = browser()("GET", path)
      test.equal(res.status, 303)
      test.equal(res.headers.location, "/login")
    end
  end)

  it("begin with a form", function()
    local res = browser()("GET", "/login")
    test.equal(res.status, 200)
    test.contains(res.body, 'action="/login"')
    test.equal(res.headers["set-cookie"], nil)
    test.contains(res.headers["content-security-policy"], "default-src 'self'")
  end)

  it("log in and out", function()
    local visit = browser()
    test.equal(visit("POST", "/login", { name = "ada", password = "wrong horse" }).status, 403)
    test.equal(visit("POST", "/login", { name = "bob", password = "correct horse" }).status, 403)
    test.equal(visit("POST", "/login", { name = "ada", password = "correct horse" }).status, 303)
    test.equal(visit("GET", "/").status, 200)
    test.equal(visit("POST", "/logout").headers.location, "/login")
    test.equal(visit("GET", "/").status, 303)
  end)

  it("need both fields of the form", function()
    local long = ("x"):rep(2000)
    for _, form in ipairs { { name = "ada" }, { password = "correct horse" }, { name = "ada", password = long } } do
      test.equal(browser()("POST", "/login", form).status, 403)
    end
  end)

  local cases = { -- name, password, status, message
    { "ada", "correct horse", 409, "This name is taken." },
    { "", "correct horse", 422, "is missing" },
    { "<b>", "correct horse", 422, "A name has 1 to 30 letters and digits." },
    { ("n"):rep(31), "correct horse", 422, "A name has 1 to 30 letters and digits." },
    { "bob", "1234567", 422, "A password has 8 to 200 characters." },
    { "bob", ("x"):rep(201), 422, "A password has 8 to 200 characters." },
  }
  for _, case in ipairs(cases) do
    it("are refused: " .. case[1]:sub(1, 5) .. " " .. case[2]:sub(1, 7), function()
      local res = browser()("POST", "/register", { name = case[1], password = case[2] })
      test.equal(res.status, case[3])
      test.contains(res.body, case[4])
      test.falsy(res.body:find(case[2], 1, true), "the page shows the password")
    end)
  end

  it("refuse forms of other sites", function()
    local headers = { Origin = "https://evil.example" }
    local res = app:inject { method = "POST", path = "/login", form = { name = "ada" }, headers = headers }
    test.equal(res.status, 403)
  end)
end)

describe("new passwords", function()
  local sent
  before(function()
    mail.deliver = function(message) sent[#sent + 1] = message end
    local eva = { name = "eva", password = "correct horse", mail = "eva@example.org" }
    test.equal(browser()("POST", "/register", eva).status, 303)
  end)
  before_each(function()
    sent = {}
    test.clock.advance(60) -- for the limit of attempts
  end)

  local function ask(name)
    local res = browser()("POST", "/password", { name = name })
    test.equal(res.status, 200)
    test.contains(res.body, "a mail is on its way")
    test.clock.advance(0.1)
    return sent[1] and test.match(sent[1].text, "http://127.0.0.1:8080(/password%?token=[%w_-]+)")
  end

  it("come by mail", function()
    local visit, path = browser(), ask("eva")
    test.equal(sent[1].to, "eva@example.org")
    local token = test.match(visit("GET", path).body, 'name="token" value="([%w_-]+)"')
    test.equal(visit("POST", "/password/new", { token = token, password = "short" }).status, 422)
    test.equal(visit("POST", "/password/new", { token = token, password = "battery staple" }).status, 303)
    test.equal(visit("POST", "/login", { name = "eva", password = "correct horse" }).status, 403)
    test.equal(visit("POST", "/login", { name = "eva", password = "battery staple" }).status, 303)
    local again = visit("POST", "/password/new", { token = token, password = "battery staple" })
    test.equal(again.status, 403)
    test.contains(again.body, "no longer valid")
  end)

  it("end the sessions and the links of the one before", function()
    local first, second = ask("eva"):match("=(.*)"), ask("eva") and sent[2].text:match("token=([%w_-]+)")
    local visit = browser()
    test.equal(visit("POST", "/register", { name = "ida", password = "correct horse" }).status, 303)
    test.equal(visit("POST", "/login", { name = "eva", password = "battery staple" }).status, 303)
    test.equal(visit("GET", "/").status, 200)
    test.equal(browser()("POST", "/password/new", { token = first, password = "correct horse" }).status, 303)
    test.equal(visit("GET", "/").headers.location, "/login")
    test.equal(browser()("POST", "/password/new", { token = second, password = "battery staple" }).status, 403)
  end)

  it("do not tell who has an account", function()
    for _, name in ipairs { "ada", "none", "" } do test.equal(ask(name), nil) end -- ada has no address
    for _, address in ipairs { "a", "a@b", "a@b.c\r\nDATA", "<a@b.org>" } do
      test.contains(browser()("POST", "/register", { name = "x", password = "correct horse", mail = address }).body, "not an e-mail address")
    end
  end)

  it("are possible for an hour", function()
    local token = ask("eva"):match("=(.*)")
    test.clock.advance(3700)
    test.equal(browser()("POST", "/password/new", { token = token, password = "battery staple" }).status, 403)
  end)
end)

describe("notes", function()
  it("are saved, shown and deleted", function()
    test.contains(ada("GET", "/").body, "No notes yet.")
    test.equal(ada("POST", "/notes", { title = "tea & <b>", text = "buy" }).status, 303)
    local page = ada("GET", "/").body
    test.contains(page, "<h2>tea &amp; &lt;b&gt;</h2>")
    local delete = test.match(page, 'action="(/notes/%d+/delete)"')
    test.equal(eve("POST", delete).status, 404) -- of another account
    test.falsy(eve("GET", "/").body:find("tea"))
    test.equal(ada("POST", delete).status, 303)
    test.equal(ada("POST", delete).status, 404)
    test.contains(ada("GET", "/").body, "No notes yet.")
  end)

  it("come back with what is wrong", function()
    local res = ada("POST", "/notes", { title = "  ", text = "kept" })
    test.equal(res.status, 422)
    test.contains(res.body, "Please give a title")
    test.contains(res.body, ">kept</textarea>")
    test.equal(ada("POST", "/notes", { title = ("x"):rep(81) }).status, 422)
    test.equal(ada("POST", "/notes", { title = "x", text = ("x"):rep(2001) }).status, 422)
    test.equal(ada("POST", "/notes", { title = ("é"):rep(80), text = ("x"):rep(2000) }).status, 303)
  end)

  it("have a limit", function()
    for n = 1, 100 do test.equal(eve("POST", "/notes", { title = "note " .. n }).status, 303) end
    local res = eve("POST", "/notes", { title = "one more" })
    test.equal(res.status, 422)
    test.contains(res.body, "You have 100 already.")
    test.contains(res.body, 'value="one more"')
  end)
end)

describe("files", function()
  it("are uploaded, sent and deleted", function()
    test.equal(upload(ada, "page.html", "<script>").status, 303)
    local page = ada("GET", "/files").body
    test.contains(page, ">page.html</a>")
    local path = test.match(page, 'href="(/files/[%w_-]+)"')
    local res = ada("GET", path)
    test.equal(res.body, "<script>")
    test.match(res.headers["content-disposition"], '^attachment; filename="page.html"')
    test.equal(res.headers["content-type"], "application/octet-stream")
    test.equal(res.headers["x-content-type-options"], "nosniff")
    test.equal(eve("GET", path).status, 404) -- of another account
    test.equal(eve("POST", path .. "/delete").status, 404)
    test.equal(ada("POST", path .. "/delete").status, 303)
    test.equal(ada("GET", path).status, 404)
    test.equal(ada("POST", path .. "/delete").status, 404)
    test.equal(#ls.file.list(store.folder .. "/files"), 0)
  end)

  it("may have any name", function()
    for _, name in ipairs { "../../app.lua", ".htaccess", "<b>", ("é"):rep(127), "CON", " ", "a\\\"b" } do
      test.equal(upload(ada, name, "x").status, 303, name)
      local path = test.match(ada("GET", "/files").body, 'href="(/files/[%w_-]+)"')
      test.equal(ada("GET", path).body, "x", name)
      test.equal(ada("POST", path .. "/delete").status, 303, name)
    end
    test.contains(upload(ada, ("é"):rep(128), "x").body, "The name of the file is too long.")
    test.equal(upload(ada, "", "").status, 303) -- no file was chosen
    test.contains(ada("GET", "/files").body, "No files yet.")
  end)

  it("need a form with files", function()
    test.equal(ada("POST", "/files", { file = "x" }).status, 415)
    test.equal(upload(browser(), "a.txt", "x").headers.location, "/login")
  end)
end)

describe("the rest", function()
  it("is a page for what does not exist", function()
    local res = ada("GET", "/none")
    test.equal(res.status, 404)
    test.contains(res.body, "<h1>Not found</h1>")
  end)

  it("is the style sheet", function()
    test.equal(ada("GET", "/public/style.css").headers["content-type"], "text/css; charset=utf-8")
  end)
end)
