-- proxy.lua - a proxy with a cache before two servers, which the clients' side plays: they are slow, are down for a time,
-- close a connection before a response, within it or between two, or respond before they have the request. Judges: a response
-- is that of its URL and whole, or it fails; a POST reaches a server at most once, with its whole body; a stored response is not
-- much older than its lifetime; without faults each request is answered, for a silent server at its time limit.
local ls, sim = require "luaserve", sim
local world = require "lib.world"
local LIFETIME, TIMEOUT, MEMORY = 2, 4, 192 << 10

if sim.side == "server" then
  local app = ls.app()
  app:proxy("/", { "http://127.0.0.1:9001", "http://127.0.0.1:9002" },
    { cache = { size = "64k", wait = 1 }, timeout = TIMEOUT, connect_timeout = 2, health = { down = 1 } })
  ls.listen(8080, app)
  return
end

local is_calm = false
local function mishap(one_of) return not is_calm and world.chance(one_of) end

local function take_body(sock, head, path, bytes)
  local body = sock:receive(math.tointeger(head:lower():match "\ncontent%-length: (%d+)"))
  if body and body ~= world.text(path, bytes) then sim.fail("a server got another body of " .. path) end
  return body
end

local function upstream(sock)
  while true do
    local head = sock:receiveuntil "\r\n\r\n"
    if not head then return end
    local method, path, bytes = head:match "^(%a+) (/[^/]*/[^/]*/(%d+)) "
    bytes = math.tointeger(bytes)
    local has_body, responds_first = method == "POST", mishap(6)
    if has_body then world.once("the request of a server for " .. path) end
    if path:find "^/late/" then
      ls.sleep(TIMEOUT / 2) -- the body waits where the client is
      local live = sim.stats().bytes_live
      if live > MEMORY then sim.fail(("the proxy keeps %d bytes of a request"):format(live)) end
    end
    if has_body and not responds_first and not take_body(sock, head, path, bytes) then return end
    if path:find "^/silent/" then return ls.sleep(3 * TIMEOUT) end
    if path:find "^/steady/" then
      sock:send("HTTP/1.1 200 OK\r\nX-Path: " .. path .. "\r\nConnection: close\r\nContent-Length: " .. bytes .. "\r\n\r\n")
      for byte in world.text(path, bytes):gmatch "." do
        ls.sleep(TIMEOUT / 3)
        sock:send(byte)
      end
      return
    end
    if mishap(30) then world.pause(6) end
    if mishap(20) then return end
    local text = world.text(path, bytes)
    local lines = { "HTTP/1.1 200 OK", "X-Path: " .. path, "X-Made: " .. sim.now() }
    if path:find "^/kept/" then lines[#lines + 1] = "Cache-Control: max-age=" .. LIFETIME end
    if world.chance(2) then
      lines[#lines + 1] = "Transfer-Encoding: chunked"
      local half = bytes // 2 + 1
      text = ("%x\r\n%s\r\n"):format(half, text:sub(1, half)) ..
        (half < bytes and ("%x\r\n%s\r\n"):format(bytes - half, text:sub(half + 1)) or "") .. "0\r\n\r\n"
    else
      lines[#lines + 1] = "Content-Length: " .. bytes
    end
    local closes = world.chance(10) -- with or without a word
    if closes and world.chance(2) then lines[#lines + 1] = "Connection: close" end
    local response = table.concat(lines, "\r\n") .. "\r\n\r\n" .. text
    if mishap(8) then
      sock:send(response:sub(1, sim.random(#response) - 1))
      if world.chance(2) then sock:abort() end
      return
    end
    local at = mishap(10) and sim.random(#response) or #response
    sock:send(response:sub(1, at))
    if at < #response then
      world.pause(2)
      sock:send(response:sub(at + 1))
    end
    if closes or (has_body and responds_first and not take_body(sock, head, path, bytes)) then return end
  end
end

for port = 9001, 9002 do
  local down_until = 0
  ls.tcp({ host = "127.0.0.1", port = port, read_timeout = 20, send_timeout = 60 }, function(sock)
    if mishap(60) then down_until = sim.now() + sim.random(3) end
    if sim.now() < down_until and not is_calm then return end
    upstream(sock)
  end)
end

local function request(id, bytes_max)
  local kind = ({ "post", "get", "kept" })[sim.random(3)]
  local bytes, n = sim.random(sim.random(bytes_max)), sim.random(12)
  if kind == "kept" then id, bytes = n, n * n * (bytes_max // 400 + 10) end
  local path = ("/%s/%s/%d"):format(kind, id, bytes)
  local text = world.text(path, bytes)
  local begun = sim.now()
  local o = { method = kind == "post" and "POST" or "GET", body = kind == "post" and text or nil }
  local body, answer = world.fetch(path, o, true, "502 504")
  if not body then return false, path .. ": " .. answer end
  if answer.headers["x-path"] ~= path then sim.fail("the response to " .. path .. " is that of " .. answer.headers["x-path"]) end
  if body ~= text then sim.fail(("the response to %s has %d of %d bytes, or others"):format(path, #body, #text)) end
  local age = begun - tonumber(answer.headers["x-made"]) -- the server may pause after it has written that
  if age > LIFETIME + 4 then sim.fail(("the response to %s is %.1f s old"):format(path, age)) end
  return true
end

world.run(6, function(client, number)
  request(client .. "-" .. number, 20000)
  if world.chance(4) then world.pause(1) end
end, function()
  is_calm = true
  ls.sleep(8) -- the servers' own pauses end, and none is avoided any more
  for i = 1, 10 do
    local path, why = request("end-" .. i, 1000) -- short: kept connections may be slow ones
    world.fail_if(not path, "a request failed without faults: %s", why)
  end
  for path, body in pairs { ["/steady/end/9"] = false, ["/late/end/250000"] = world.text("/late/end/250000", 250000) } do
    local answer, message = ls.fetch("http://127.0.0.1:8080" .. path, { method = body and "POST" or "GET", body = body or nil, timeout = 120 })
    if not answer or answer:body() ~= (body or world.text(path, 9)) then sim.fail(path .. " has another response: " .. (answer and answer.status or message)) end
  end
  local begun = sim.now()
  local answer = assert(ls.fetch "http://127.0.0.1:8080/silent/end/1")
  local is_right = answer.status == 504 and math.abs(sim.now() - begun - TIMEOUT) <= 0.5
  world.fail_if(not is_right, "a silent server: %d after %.3f s", answer.status, sim.now() - begun)
end, { reloads = 15, seconds = 90 })
