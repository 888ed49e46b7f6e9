-- pipeline.lua - requests that clients write themselves, several on their way at once and in pieces of any size; clients
-- that end their sending side, or the connection, at any byte, and clients that read slowly. Judges: the responses come
-- in the order of the requests, each that of its request and whole, or the connection ends; only a request that was not
-- sent to its end is refused; a handler runs at most once for a request; without faults each is answered; a handler that
-- waits after part of a response ends when its client has left.
local ls, sim = require "luaserve", sim
local world = require "lib.world"
local PORT = 8080

if sim.side == "server" then
  local app = ls.app()
  local function add(method, kind, fn)
    world.route(app, method, "/" .. kind .. "/:id/:bytes", function(text, req, res, id)
      res:header("X-Id", id)
      return fn(text, req, res, id)
    end)
  end
  add("get", "text", function(text) return text end)
  add("get", "same", function(_, _, _, id) return 304, nil, { ETag = '"' .. id .. '"' } end)
  add("post", "echo", function(text, req, _, id)
    world.fail_if(req:body() ~= text, "request %s has another body", id)
    return text
  end)
  add("get", "stream", function(text, _, res) world.write(res, text, 9000) end)
  add("get", "wait", function(text, _, res, id)
    if not res:write(text) or not res:write(world.text(id, 3900)) then return end
    sim.count("waits " .. id)
    local _ <close> = setmetatable({}, { __close = function() sim.count("waits " .. id, -1) end })
    ls.channel("never"):receive(100)
  end)
  ls.listen(PORT, app, { send_timeout = 4, write_ahead = "4k" })
  return
end

local function chunked(text)
  local parts, at = {}, 1
  while at <= #text do
    local size = math.min(sim.random(5000), #text - at + 1)
    parts[#parts + 1] = ("%x\r\n%s\r\n"):format(size, text:sub(at, at + size - 1))
    at = at + size
  end
  return table.concat(parts) .. "0\r\n\r\n"
end

local kinds = { "GET text", "HEAD text", "GET same", "GET stream", "POST echo", "POST chunked" }

local function request(id, stream_bytes, is_last)
  local method, path = kinds[sim.random(#kinds)]:match "(%a+) (%a+)"
  local bytes = sim.random(sim.random(path == "stream" and stream_bytes or 20000))
  local r = { id = id, method = method, text = world.text(id, bytes), status = path == "same" and 304 or 200 }
  local head = ("%s /%s/%s/%d HTTP/1.1\r\nHost: h\r\n"):format(method, path == "chunked" and "echo" or path, id, bytes)
  if is_last then head = head .. "Connection: close\r\n" end
  if method == "POST" and world.chance(4) then head = head .. "Expect: 100-continue\r\n" end
  if path == "chunked" then
    r.bytes = head .. "Transfer-Encoding: chunked\r\n\r\n" .. chunked(r.text)
  else
    r.bytes = head .. (method == "POST" and "Content-Length: " .. bytes .. "\r\n\r\n" .. r.text or "\r\n")
  end
  return r
end

local function body_of(sock, head, until_s)
  local function receive(what)
    local data, _, code, part = sock:receive(what)
    if code == "ETIMEDOUT" then sim.fail "a response stands still" end
    return data, part
  end
  local length = head:match "\r\nContent%-Length: (%d+)"
  if length then
    local body, part = receive(math.tointeger(length))
    return body, part or ""
  end
  local parts = {}
  while true do
    local size = receive "*l"
    size = size and tonumber(size, 16)
    if not size or sim.now() > until_s then return nil, table.concat(parts) end
    local part, rest = receive(size)
    parts[#parts + 1] = part or rest
    local text = table.concat(parts)
    if not part or receive "*l" ~= "" then return nil, text end
    if size == 0 then return text end
  end
end

-- Reads the response to r; false: the connection has ended.
local function response(sock, r, sent, until_s)
  local head
  repeat
    head = sock:receiveuntil "\r\n\r\n"
    if not head then return false end
  until not head:find "^HTTP/1.1 100 "
  local status = math.tointeger(head:match "^HTTP/1.1 (%d+) ")
  local id = head:match "\r\nX%-Id: ([^\r]+)"
  if status == 503 then return false end
  if status == 408 or (not id and status == 400 and sent() < r.last) then return false end -- 408: its body came too slowly
  if id ~= r.id or status ~= r.status then sim.fail(("request %s got status %s of request %s"):format(r.id, status, id)) end
  if r.method == "HEAD" then
    local length = math.tointeger(head:match "\r\nContent%-Length: (%d+)")
    if length ~= #r.text then sim.fail("HEAD of request " .. id .. " has the length " .. tostring(length)) end
    return true
  end
  if status == 304 then return true end
  local body, part = body_of(sock, head, until_s)
  if body and body ~= r.text then sim.fail(("the response to %s has %d of %d bytes, or others"):format(id, #body, #r.text)) end
  if not body and r.text:sub(1, #part) ~= part then sim.fail("the response to " .. id .. " begins with other bytes") end
  return body ~= nil
end

local function connection(name, faulty)
  local sock <close> = ls.connect("127.0.0.1", PORT, { connect_timeout = 5, read_timeout = 5, send_timeout = 5 })
  if not sock then return 0, 0 end
  local requests, parts, sum, sent = {}, {}, 0, 0
  local count, closes = sim.random(6), world.chance(3)
  for i = 1, count do
    requests[i] = request(name .. "." .. i, faulty and 60000 or 20000, closes and i == count)
    parts[i] = requests[i].bytes
    sum = sum + #parts[i]
    requests[i].last = sum
  end
  local bytes = table.concat(parts)
  local until_byte = faulty and world.chance(3) and sim.random(sum) or sum
  local how = faulty and sim.random(3) or 3
  local piece = (world.chance(2) or not faulty) and sum or sim.random(3000)
  local begun = sim.now()
  local writer = ls.spawn(function()
    while sent < until_byte do
      local size = math.min(sim.random(piece), until_byte - sent)
      sent = sent + size
      if not sock:send(bytes:sub(sent - size + 1, sent)) or not sock:flush() then return end
      if sim.now() > begun + 8 then return sock:abort() end
      if world.chance(3) then world.pause(0.2) end
    end
    if how == 1 then sock:shutdown() elseif how == 2 and until_byte < sum then sock:abort() end
  end)
  local answered = 0
  local slow = world.chance(3)
  for i, r in ipairs(requests) do
    if slow then world.pause(0.5) end
    if sim.now() > begun + 10 or not response(sock, r, function() return sent end, begun + 10) then break end
    answered = i
  end
  if answered < #requests then sock:abort() end
  writer:wait()
  return answered, #requests
end

-- A client that leaves, before a response that it does not read, some with a further request; or it does not leave,
-- and the server has more to send than the system takes, longer than its send_timeout.
local function leave(name)
  local stays = world.chance(2)
  local sock <close> = ls.connect("127.0.0.1", PORT, { connect_timeout = 5, send_timeout = 5 })
  local wait = ("GET /wait/%s/%d HTTP/1.1\r\nHost: h\r\n\r\n"):format(name, stays and 260000 or sim.random(200000))
  if not sock or not sock:send(wait, world.chance(2) and request(name .. ".2", 1).bytes or "") or not sock:flush() then return end
  if stays then ls.sleep(10) else world.pause(1) end
  if stays and sim.count("waits " .. name, 0) > 0 then sim.fail("the handler of " .. name .. " waits, though nothing can be sent") end
  sock:abort()
end

world.run(6, function(client, number)
  if world.chance(6) then return leave(client .. "." .. number .. ".leave") end
  connection(client .. "." .. number, true)
  if world.chance(10) then world.pause(2) end
end, function()
  for i = 1, 3 do
    local answered, asked = connection("end." .. i, false)
    world.fail_if(answered ~= asked or asked == 0, "without faults %d of %d requests were answered", answered, asked)
  end
end, { reloads = 20 })
