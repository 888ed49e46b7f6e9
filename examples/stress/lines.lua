-- lines.lua - a TCP conversation as sequential code, with an echo server (examples/echo.lua).
return {
  target = "tcp://127.0.0.1:7000", connections = 20, duration = "5s",
  scenario = function(vu, sock)
    local line = ("line %d of user %d"):format(vu.iteration, vu.id)
    sock:send(line, "\r\n")
    assert(sock:receive("*l") == line)
  end,
}
