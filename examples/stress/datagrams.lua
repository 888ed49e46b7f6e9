-- datagrams.lua - three datagrams at a time; a round without all three replies within the time limit fails.
return {
  target = "udp://127.0.0.1:7000", connections = 10, requests = 1000, timeout = "1s",
  scenario = function(vu, sock)
    for i = 1, 3 do sock:send(vu.id, ":", vu.iteration, ":", i) end
    for _ = 1, 3 do
      local id = sock:receive():match("^(%d+):")
      vu:check(tonumber(id) == vu.id, "own datagram")
    end
  end,
}
