-- chat_test.lua - the room without a server, then the chat as a server of its own.

local ls = require "luaserve"
local test = require "luaserve.test"
local chat = require "chat"

describe("a room", function()
  it("keeps the last messages", function()
    for n = 1, chat.MESSAGES_MAX + 1 do chat.say("lobby", "ada", "message " .. n) end
    local kept = chat.after("lobby", 0)
    test.equal(#kept, chat.MESSAGES_MAX)
    test.equal(kept[1].text, "message 2")
    test.equal(#chat.after("lobby", kept[#kept].number - 1), 1)
  end)

  it("has limits for names and messages", function()
    test.equal(chat.check("lobby", ("n"):rep(30), ("t"):rep(1000)), nil)
    test.truthy(chat.check("lobby", ("n"):rep(31), "t"))
    test.truthy(chat.check("lobby", "n", ("t"):rep(1001)))
    test.truthy(chat.check("lobby", "n", "two\nlines"))
    test.truthy(chat.check("lobby", "not a name", "t"))
    test.truthy(chat.check("cellar", "n", "t"))
    test.truthy(chat.check(nil, "n", "t"))
  end)
end)

describe("a connection", function()
  local server = test.serve("site.lua")

  local function connect(query)
    if not query:find("room=") then query = "room=lobby&" .. query end
    return assert(ls.websocket(server.url:gsub("^http", "ws") .. "/live?" .. query))
  end

  -- The next object that has this field.
  local function receive(ws, field)
    local object
    repeat object = ls.json.decode((assert(ws:receive(10)))) until object[field]
    return object[field]
  end

  -- Receive until these people are here.
  local function sees(ws, ...)
    local wanted = table.concat({ ... }, " ")
    local people
    repeat people = table.concat(receive(ws, "people"), " ") until people == wanted
  end

  it("receives what others say, and who is here", function()
    local ada <close> = connect("name=ada")
    sees(ada, "ada")
    local bob <close> = connect("name=bob")
    sees(ada, "ada", "bob")
    sees(bob, "ada", "bob")
    ada:send("hello <b>")
    for _, ws in ipairs { ada, bob } do
      local message
      repeat message = receive(ws, "messages")[1] until message
      test.equal(message.name, "ada")
      test.equal(message.text, "hello <b>")
    end
    bob:close()
    sees(ada, "ada")
  end)

  it("gets what it has missed", function()
    local eve <close> = connect("name=eve&after=0")
    local before = receive(eve, "messages")
    eve:send("one more")
    local number = receive(eve, "messages")[1].number
    local late <close> = connect("name=late&after=" .. number - 1)
    test.equal(receive(late, "messages"), { { number = number, name = "eve", text = "one more" } })
    late:close()
    local all <close> = connect("name=all")
    test.equal(#receive(all, "messages"), #before + 1)
  end)

  it("is of one room", function()
    local ada <close> = connect("room=music&name=ada")
    sees(ada, "ada")
    local bob <close> = connect("room=weather&name=bob")
    sees(bob, "bob")
    bob:send("rain")
    test.equal(receive(bob, "messages")[1].text, "rain")
    ada:send("la la")
    test.equal(receive(ada, "messages")[1].text, "la la")
    local eve <close> = connect("room=music&name=eve")
    test.equal(#receive(eve, "messages"), 1)
  end)

  it("has a limit of messages in a time", function()
    local ada <close> = connect("room=weather&name=ada")
    for n = 1, chat.RATE_MAX + 1 do ada:send("message " .. n) end
    repeat until not ada:receive(10)
    test.equal(ada.reason, "too many messages in a short time")
    local late <close> = connect("room=weather&name=late")
    local all = receive(late, "messages")
    test.equal(all[#all].text, "message " .. chat.RATE_MAX)
  end)

  it("ignores a message that is not valid", function()
    local ada <close> = connect("name=ada&after=9e15")
    test.equal(#receive(ada, "messages"), 0)
    ada:send(" ")
    ada:send("good")
    test.equal(receive(ada, "messages")[1].text, "good")
  end)

  it("ends without a valid name", function()
    local ws = connect("name=not+a+name")
    test.equal(ws:receive(10), nil)
    test.equal(ws.code, 4000)
    test.match(ws.reason, "^a name has 1 to 30 letters")
  end)

  it("needs a room", function()
    local ws = connect("room=cellar&name=ada")
    test.equal(ws:receive(10), nil)
    test.equal(ws.reason, "there is no such room")
  end)

  it("has a page", function()
    test.contains(server:get("/").body, "chat.js")
    test.equal(server:get("/rooms"):json(), chat.ROOMS)
  end)
end)
