-- protocol_test.lua - the commands, without a connection.

local ls = require "luaserve"
local test = require "luaserve.test"
local protocol = require "protocol"

local function answer(line) return (protocol.answer(line)) end

describe("the protocol", function()
  before_each(function() ls.dict("values"):clear() end)

  it("keeps values", function()
    test.equal(answer("GET color"), "NONE")
    test.equal(answer("SET color dark red"), "OK")
    test.equal(answer("get color"), "VALUE dark red")
    test.equal(answer("DEL color"), "OK")
    test.equal(answer("DEL color"), "NONE")
    test.equal(answer("COUNT"), "VALUE 0")
  end)

  it("counts names, not changes", function()
    answer("SET a 1")
    answer("SET a 2")
    test.equal(answer("COUNT"), "VALUE 1")
  end)

  it("has a limit", function()
    local long, stored = ("x"):rep(4000), 0
    while answer("SET name" .. stored + 1 .. " " .. long) == "OK" do stored = stored + 1 end
    test.near(stored * 4000, protocol.STORE_BYTES_MAX, protocol.STORE_BYTES_MAX / 10)
    test.equal(answer("SET more " .. long), "ERROR the store is full")
    test.equal(answer("SET name1 y"), "OK")
  end)

  it("refuses other lines", function()
    test.equal(answer("SET a"), "ERROR usage: SET name value")
    test.equal(answer("FLY"), "ERROR unknown command")
    test.equal(answer(""), "ERROR unknown command")
  end)

  it("ends with QUIT", function()
    test.equal({ protocol.answer("QUIT") }, { "BYE", true })
  end)
end)
