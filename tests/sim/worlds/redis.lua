-- redis.lua - a client of Redis that all requests share, with a small Redis that the clients' side plays: it answers late,
-- closes or resets a connection at any byte, and publishes. Judges: a command has its own reply, or an error; none is
-- executed twice; the values of a counter are given out once; a subscription gets whole messages, in order; without
-- faults every command succeeds.
local ls, sim = require "luaserve", sim
local world = require "lib.world"

if sim.side == "server" then
  local app = ls.app()
  local r = ls.redis("redis://127.0.0.1:6379", { timeout = 3, connect_timeout = 3 })
  local last = 0 -- of this state
  r:subscribe("news", function(message)
    local n = math.tointeger(world.key_of(message))
    if n <= last then sim.fail(("message %d came after %d"):format(n, last)) end
    last = n
    sim.count "messages"
  end)
  local function command(fn)
    return world.handler(function(req)
      local ok, result = pcall(fn, req)
      if ok then return tostring(result) end
      if type(result) == "table" and result.code == "EINVAL" then sim.fail("an error of Redis: " .. result.message) end
      return 502, tostring(result)
    end)
  end
  app:post("/echo/:id/:bytes", command(function(req)
    local text = world.text(req.params.id, math.tointeger(req.params.bytes))
    if r:echo(text) ~= text then sim.fail("ECHO of " .. req.params.id .. " has the reply of another command") end
    return #text
  end))
  app:post("/once/:id", command(function(req) return r:call("ONCE", req.params.id) end))
  app:post("/incr/:id", command(function() return r:incr "n" end))
  app:post("/pipeline/:id", command(function(req)
    local id = req.params.id
    local replies = r:pipeline(function(p)
      p:set(id, id .. "'s")
      p:get(id)
      p:echo(id)
      p:incr("count " .. id)
    end)
    local is_right = replies[1] == "OK" and replies[2] == id .. "'s" and replies[3] == id and replies[4] == 1
    world.fail_if(not is_right, "the pipeline of %s has other replies: %s", id, ls.inspect(replies))
    return id
  end))
  ls.listen(8080, app)
  return
end

-- ---- Redis

local is_calm, values, subscribers, published = false, {}, {}, 0

local function bulk(text) return text and ("$%d\r\n%s\r\n"):format(#text, text) or "$-1\r\n" end

local function execute(sock, words)
  local name, key, value = words[1]:upper(), words[2], words[3]
  if name == "ECHO" then return bulk(key) end
  if name == "GET" then return bulk(values[key]) end
  if name == "SET" then values[key] = value end
  if name == "INCR" then
    values[key] = tostring(math.tointeger(tonumber(values[key] or 0)) + 1)
    return ":" .. values[key] .. "\r\n"
  end
  if name == "ONCE" then
    world.once("the command " .. key)
    return bulk(key)
  end
  if name == "SUBSCRIBE" then
    subscribers[sock] = true
    return ("*3\r\n$9\r\nsubscribe\r\n%s:1\r\n"):format(bulk(key))
  end
  return "+OK\r\n"
end

local function words_of(sock)
  local count = sock:receive "*l"
  if not count then return nil end
  local words = {}
  for i = 1, math.tointeger(tonumber(count:match "^%*(%d+)$")) do
    local bytes = sock:receive "*l"
    words[i] = bytes and sock:receive(math.tointeger(tonumber(bytes:sub(2))))
    if not words[i] or not sock:receive "*l" then return nil end
  end
  return words
end

-- false: the connection is closed, after part of the text.
local function send(sock, text)
  if is_calm or not world.chance(40) then return sock:send(text) end
  sock:send(text:sub(1, sim.random(#text) - 1))
  if world.chance(2) then sock:abort() else sock:close() end
  return false
end

ls.tcp({ host = "127.0.0.1", port = 6379, read_timeout = false }, function(sock)
  while true do
    local words = words_of(sock)
    if not words then break end
    if not is_calm and world.chance(30) then world.pause(5) end
    if not send(sock, execute(sock, words)) then break end
  end
  subscribers[sock] = nil
end)

local publisher = ls.every(0.1, function()
  published = published + 1
  local text = world.message(published, 700)
  for sock in pairs(subscribers) do
    if sock.queued < 50000 and not send(sock, "*3\r\n$7\r\nmessage\r\n" .. bulk "news" .. bulk(text)) then subscribers[sock] = nil end
  end
end)

-- ---- the clients

local function request(id, bytes_max)
  local kind = ({ "echo", "once", "incr", "pipeline" })[sim.random(4)]
  local bytes = sim.random(sim.random(bytes_max))
  local path = ("/%s/%s%s"):format(kind, id, kind == "echo" and "/" .. bytes or "")
  local result, status, why = world.fetch(path, { method = "POST" }, true, "502")
  if not result then return false, why or status end
  if kind == "incr" then
    world.once("the value " .. result .. " of the counter")
  else
    world.fail_if(result ~= (kind == "echo" and tostring(bytes) or id), "%s has the result %s", path, result)
  end
  return true
end

world.run(7, function(client, number)
  request(client .. "." .. number, 5000)
  if world.chance(4) then world.pause(0.5) end
end, function()
  is_calm = true
  ls.sleep(6) -- pauses end, and the client has connected again
  local messages = sim.count("messages", 0)
  for i = 1, 10 do
    local ok, why = request("end." .. i, 500) -- short: a kept connection may be a slow one
    world.fail_if(not ok, "a command failed without faults: %s", why)
    ls.sleep(0.2)
  end
  if sim.count("messages", 0) < messages + 10 then sim.fail "the subscription gets no messages" end
  publisher:cancel() -- until the end there is nothing to do
end, { reloads = 30, gauges = { redis_waiting = 1, ["running.timers"] = 1 } }) -- the subscription
