-- websocket.lua - clients of WebSocket that publish to topics and receive them; some do not read for a time, and the site
-- is reloaded meanwhile. Judges: of two messages that follow one another for one subscriber no other one is between them
-- for another subscriber, so none is missing, doubled or in another order; those of one publisher rise by one; each is
-- whole; a connection ends only as a fault, its own silence or the number of old sites explains; at the end without
-- faults all subscribers get all messages, and each connection that was opened on the server was closed.
local ls, sim = require "luaserve", sim
local world = require "lib.world"
local at = "ws://127.0.0.1:8080/"

if sim.side == "server" then
  local app = ls.app()
  app:ws("/:topic", { max_queue = "8k", ping = 2, ping_timeout = 5,
    open = function(ws, req)
      sim.count "handlers"
      ws.id, ws.n, ws.topic = sim.count "connections", 0, req.params.topic
      ws:subscribe(ws.topic)
      ws:send("id " .. ws.id)
    end,
    message = function(ws, text)
      ws.n = ws.n + 1
      if not ls.publish(ws.topic, ws.id .. " " .. ws.n .. " " .. text) then sim.fail "a message was not published" end
    end,
    close = function() sim.count("handlers", -1) end,
  })
  ls.listen(8080, app)
  return
end

local follower = {} -- by topic and message: the one after it

-- What a connection has received. false: the text is no message of the topic.
local function check(seen, data)
  local id = data:match "^id (%d+)$"
  if id then
    if seen.id then sim.fail "the id of a connection came twice" end
    seen.id = id
    return
  end
  local publisher, n, message = data:match "^(%d+) (%d+) (.*)$"
  world.key_of(message or data)
  local before = seen[publisher] or (publisher == seen.id and 0) or n - 1
  if n - 1 ~= before then sim.fail(("message %s of %s came after %d"):format(n, publisher, before)) end
  seen[publisher] = n - 0
  local name = publisher .. " " .. n
  if seen.last then
    local last = seen.topic .. " " .. seen.last
    follower[last] = follower[last] or name
    if follower[last] ~= name then sim.fail(("after %s came %s to one, and %s to another"):format(last, follower[last], name)) end
  end
  seen.last = name
  seen.count = seen.count + 1
end

-- Receives until nothing comes for so long; false: the connection has ended.
local function receive(ws, seen, seconds)
  while true do
    local data, _, code = ws:receive(seconds)
    if data then
      check(seen, data)
    elseif code == "ETIMEDOUT" then
      return true
    else
      local explained = sim.faulty or seen.is_silent or ws.code == 1012 or ws.code == 1013
      if not explained then sim.fail("a connection has ended with " .. tostring(ws.code)) end
      sim.count("ended " .. tostring(ws.code))
      return false
    end
  end
end

local function open(topic)
  local ws, message = ls.websocket(at .. topic, { timeout = 5, ping = 3, ping_timeout = 5, send_timeout = 5 })
  if not ws and not sim.faulty then sim.fail("no connection: " .. message) end
  return ws, { topic = topic, count = 0 }
end

world.run(6, function(client, number)
  local ws <close>, seen = open("topic" .. sim.random(2))
  if not ws then return ls.sleep(0.5) end
  for i = 1, sim.random(8) do
    for k = 1, sim.random(3) do
      if not ws:send(world.message(("%d.%d.%d.%d"):format(client, number, i, k), 1500)) then break end
    end
    if world.chance(8) then
      seen.is_silent = true
      world.pause(5)
    end
    if not receive(ws, seen, sim.random(300) / 1000) then return end
    if world.chance(10) then ws:ping("ping") end
  end
end, function()
  local connections, messages = {}, 20
  for i = 1, 5 do
    local ws, seen = open "end"
    if not ws then sim.fail "no connection without faults" end
    connections[i] = { ws = ws, seen = seen }
  end
  local job = ls.spawn(world.all, #connections, function(i)
    local c = connections[i]
    local is_right = receive(c.ws, c.seen, 3) and c.seen.count == messages
    world.fail_if(not is_right, "subscriber %d got %d of %d messages, and %s", i, c.seen.count, messages, c.ws.code)
    c.ws:close()
  end)
  for i = 1, messages do
    connections[1].ws:send(world.message("end." .. i, 1500))
    ls.sleep(0.5)
  end
  job:wait()
end, { reloads = 8 })
