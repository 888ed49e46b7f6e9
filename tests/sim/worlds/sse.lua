-- sse.lua - streams of events over reloads: clients that post messages, and clients that read them, slowly at times, and
-- connect again with Last-Event-ID. The site keeps what was published, as in lua/docs/reference/sse.md. Judges: each
-- client gets the events one after the other, without a gap, also over its connections, and all clients the same ones;
-- a message that was acknowledged is the event of that number, and no message is an event twice.
local ls, sim = require "luaserve", sim
local world = require "lib.world"

if sim.side == "server" then
  ls.config { drain_timeout = 40 } -- a slow link takes 33 s for what the system has taken of a stream
  local app = ls.app()
  local kept, ids, order = ls.dict("kept"), ls.dict("ids"), ls.semaphore("order", 1)
  local function last() return ids.last or 0 end

  app:post("/say", world.handler(function(req)
    local text = req:body()
    return 200, order:with(function()
      local id = last() + 1
      kept[id] = text
      ids:incr "last"
      ls.publish("said", text, { id = tostring(id) })
      return tostring(id)
    end)
  end))
  app:get("/said", world.handler(function(req, res)
    local sse = res:sse { max_queue = "8k", keepalive = 2 }
    local seen = math.tointeger(tonumber(sse.last_id)) or last()
    repeat
      local newest = last()
      for id = seen + 1, newest do
        if not sse:send { id = id, data = kept[id] } then return end
      end
      seen = newest
    until order:with(function()
      if seen < last() then return false end
      sse:subscribe "said"
      return true
    end)
    sse:wait()
  end))
  ls.listen(8080, app)
  return
end

local said, posted = {}, {} -- by id: the text that a client has got; that was acknowledged
local id_of = {}            -- by text

local function event(id, text)
  said[id] = said[id] or text
  if said[id] ~= text then sim.fail("event " .. id .. " is another one than before") end
  if posted[id] and posted[id] ~= text then sim.fail("event " .. id .. " is not the message that was acknowledged") end
  if id_of[text] and id_of[text] ~= id then sim.fail(("a message is event %d and event %d"):format(id_of[text], id)) end
  world.key_of(text)
  id_of[text] = id
end

-- Reads events for some seconds. c.seen: the id of the last one.
local function read(c, seconds, slow, until_id)
  local seen = c.seen
  local answer, message = ls.fetch("http://127.0.0.1:8080/said", { stream = true, timeout = 6, headers = seen and { ["Last-Event-ID"] = seen } })
  if not answer then
    if not sim.faulty then sim.fail("no stream: " .. message) end
    return ls.sleep(0.3)
  end
  if answer.status ~= 200 then
    if answer.status ~= 503 then sim.fail("a stream has the status " .. answer.status) end
    return
  end
  local until_s, id, text = sim.now() + seconds, nil, nil
  for line in answer:lines() do
    if line:find "^id: " then
      id = math.tointeger(tonumber(line:sub(5)))
    elseif line:find "^data: " then
      text = line:sub(7)
    elseif line == "" and text then -- the end of the event
      if seen and id ~= seen + 1 then sim.fail(("event %d came after %d"):format(id, seen)) end
      event(id, text)
      c.seen, seen, text = id, id, nil
    end
    if sim.now() > until_s or (until_id and seen == until_id) then break end
    if slow and world.chance(10) then world.pause(2) end
  end
end

-- A stream ends with the task that reads it; one that is cut off raises.
local function follow(...)
  local job = ls.spawn(read, ...)
  local ok, message = pcall(job.wait, job)
  if not ok and not message:find "cannot fetch" then error(message, 0) end
end

local function say(key)
  local text = world.message(key, 3000)
  local answer = world.fetch("/say", { method = "POST", body = text, timeout = 8 })
  if not answer then return end
  local id = math.tointeger(tonumber(answer))
  if posted[id] then sim.fail("two messages have the number " .. id) end
  posted[id] = text
  if said[id] then event(id, said[id]) end
  return id
end

local readers = { [4] = {}, [5] = {}, [6] = {}, [7] = {} }

world.run(7, function(client, number)
  if client <= 3 then
    for i = 1, sim.random(5) do say(("%d.%d.%d"):format(client, number, i)) end
    return world.pause(0.5)
  end
  follow(readers[client], sim.random(4), world.chance(3))
end, function()
  local last = say "end"
  if not last then sim.fail "a message was not taken without faults" end
  for client, reader in pairs(readers) do
    for _ = 1, 8 do -- a stream may have more than its queue takes
      if (reader.seen or last) < last then follow(reader, 3, false, last) end
    end
    world.fail_if((reader.seen or last) ~= last, "client %d got events to %s of %d", client, reader.seen, last)
  end
end, { reloads = 10 })
