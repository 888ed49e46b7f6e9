-- udp.lua - datagrams to a server that answers at once, later or not at all, over reloads; the network loses, doubles and
-- reorders them. Judges: an answer belongs to a question of this client and is whole; no question is handled more often
-- than the network has delivered it, which is twice at most; without faults each has its answers, once.
local ls, sim = require "luaserve", sim
local world = require "lib.world"

if sim.side == "server" then
  ls.udp("127.0.0.1:7000", world.handler(function(data, peer, info)
    local id = world.key_of(data)
    local how = id:match "%a+$"
    world.fail_if(info, "a datagram is cut off: %s", id)
    if sim.count("handled " .. id) > 2 then sim.fail("the datagram " .. id .. " was handled three times") end
    if how == "nothing" then return end
    if how == "later" then
      ls.spawn(function() world.pause(0.5) peer:send(data) end)
      return
    end
    if how == "compute" then sim.compute(0.01) end
    return data
  end))
  return
end

local hows = { "now", "later", "nothing", "compute" }

-- Sends some questions and takes their answers: how many were asked that must be answered, and how many were.
local function talk(name, count)
  local c <close>, message, code = ls.udp_connect("127.0.0.1", 7000)
  if not c and code ~= "EMFILE" then sim.fail("no socket: " .. message) end
  if not c then return 0, 0, {} end
  local asked, answers, wanted, got = {}, {}, 0, 0
  for i = 1, count do
    local how = hows[sim.random(#hows)]
    local id = name .. "." .. i .. how
    asked[id] = world.message(id, 1800)
    if how ~= "nothing" then wanted = wanted + 1 end
    local ok, why, refused = c:send(asked[id])
    if not ok and refused ~= "EREFUSED" then sim.fail("send: " .. why) end
  end
  while got < wanted do
    local data, why, failure = c:receive(1.2)
    if data then
      local id = data:match "^%S+"
      if data ~= asked[id] then sim.fail("an answer to another question: " .. data:sub(1, 80)) end
      answers[id] = (answers[id] or 0) + 1
      if answers[id] > 4 then sim.fail("question " .. id .. " has " .. answers[id] .. " answers") end -- both were doubled
      if answers[id] == 1 then got = got + 1 end
    elseif failure == "ETIMEDOUT" then
      break
    elseif failure ~= "EREFUSED" then
      sim.fail("receive: " .. why)
    end
  end
  return wanted, got, answers
end

world.run(5, function(client, number)
  local wanted, got = talk(client .. "." .. number, sim.random(12))
  if not sim.faulty and got < wanted then sim.fail(("%d of %d questions were answered"):format(got, wanted)) end
  if world.chance(3) then world.pause(1) end
end, function()
  local wanted, got, answers = talk("end", 20)
  if wanted == 0 or got < wanted then sim.fail(("%d of %d questions were answered without faults"):format(got, wanted)) end
  for id, n in pairs(answers) do
    world.fail_if(n > 1 or sim.count("handled " .. id, 0) > 1, "question %s has two answers without faults", id)
  end
end, { reloads = 20 })
