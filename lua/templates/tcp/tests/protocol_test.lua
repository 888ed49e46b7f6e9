-- protocol_test.lua - the commands, without a connection.

local test = require "luaserve.test"
local protocol = require "protocol"

local store = protocol.store()

local function answer(line) return (protocol.answer(store, line)) end

describe("the protocol", function()
  before_each(function() store:clear() end)

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
    local value, count = ("x"):rep(16 * 1024), 0
    while answer("SET name" .. count .. " " .. value) == "OK" do count = count + 1 end
    test.equal(answer("SET more " .. value), "ERROR the store is full")
    test.equal(answer("COUNT"), "VALUE " .. count)
    test.equal(answer("SET name0 y"), "OK")
  end)

  it("refuses other lines", function()
    test.equal(answer("SET a"), "ERROR usage: SET name value")
    test.equal(answer("FLY"), "ERROR unknown command")
    test.equal(answer(""), "ERROR unknown command")
  end)

  it("ends with QUIT", function()
    test.equal({ protocol.answer(store, "QUIT") }, { "BYE", true })
  end)
end)
