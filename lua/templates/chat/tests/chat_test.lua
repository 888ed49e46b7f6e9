-- chat_test.lua - the chat as a server of its own: connections (listener 2) and the page (listener 1).

local test = require "luaserve.test"
local chat = require "chat"

local server = test.serve("site.lua")

-- A connection of a person with this name.
local function join(name)
  local sock = server:connect(2)
  test.equal(sock:receive(11), "Your name? ")
  sock:send(name, "\n")
  test.equal(sock:receive("*l"), name .. ": joins")
  return sock
end

describe("a connection", function()
  it("receives what others say", function()
    local ada, bob = join("ada"), join("bob")
    test.equal(ada:receive("*l"), "bob: joins")
    ada:send("hello\n")
    test.equal(ada:receive("*l"), "ada: hello")
    test.equal(bob:receive("*l"), "ada: hello")
    bob:send("/quit\n")
    test.equal(ada:receive("*l"), "bob: leaves")
    ada:close()
  end)

  it("asks again for a name that is not valid", function()
    local sock = server:connect(2)
    sock:receive(11)
    sock:send("not a name\nfay\n")
    test.match(sock:receive("*l"), "^a name has 1 to 30 letters.*fay: joins$")
    sock:close()
  end)
end)

describe("the page", function()
  it("shows the messages of connections", function()
    local eve = join("eve")
    local last = server:get("/messages"):json().last
    eve:send("to the page\n")
    eve:receive("*l")
    local answer = server:get("/messages?after=" .. last):json()
    test.equal(answer.messages, { { number = last + 1, name = "eve", text = "to the page" } })
    eve:close()
  end)

  it("sends messages to connections", function()
    local eve = join("eve")
    test.equal(server:post("/messages", { json = { name = "web", text = "from the page" } }).status, 204)
    local line
    repeat line = eve:receive("*l") until line == nil or line:find("^web")
    test.equal(line, "web: from the page")
    eve:close()
  end)

  it("refuses a message that is not valid", function()
    test.equal(server:post("/messages", { json = { name = "web" } }).status, 400)
    test.equal(server:get("/messages?after=x").status, 400)
  end)

  it("is served", function()
    test.contains(server:get("/").body, "chat.js")
  end)
end)

describe("a room", function()
  it("keeps the last messages", function()
    local room = chat.new()
    for n = 1, chat.MESSAGES_MAX + 1 do room:say("ada", "message " .. n) end
    local kept = room:after(0)
    test.equal(#kept, chat.MESSAGES_MAX)
    test.equal(kept[1].number, 2)
    test.equal(#room:after(chat.MESSAGES_MAX), 1)
  end)

  it("has limits for names and messages", function()
    test.equal(chat.check(("n"):rep(30), ("t"):rep(1000)), nil)
    test.truthy(chat.check(("n"):rep(31), "t"))
    test.truthy(chat.check("n", ("t"):rep(1001)))
    test.truthy(chat.check("n", "two\nlines"))
  end)
end)
