-- site_test.lua - a client of the server, on a free port.

local test = require "luaserve.test"
local protocol = require "protocol"

local server = test.serve("site.lua")

-- A client: client(line) sends a line and returns the answer.
local function connect()
  local sock = server:connect()
  return function(line)
    sock:send(line, "\n")
    return sock:receive("*l")
  end, sock
end

it("shares values between connections", function()
  local first, second = connect(), connect()
  test.equal(first("SET color red"), "OK")
  test.equal(second("GET color"), "VALUE red")
end)

it("answers commands that arrive together", function()
  local _, sock = connect()
  sock:send("SET a 1\nGET a\nQUIT\n")
  test.equal(sock:receive("*a"), "OK\nVALUE 1\nBYE\n")
end)

it("refuses a line that is too long", function()
  local client = connect()
  test.equal(client("SET a " .. ("x"):rep(protocol.LINE_BYTES_MAX - 6)), "OK")
  test.equal(client("SET a " .. ("x"):rep(protocol.LINE_BYTES_MAX - 5)), "ERROR the line is too long")
end)
