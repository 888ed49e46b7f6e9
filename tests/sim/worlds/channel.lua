-- channel.lua - values through channels and permits of a semaphore between the Lua states, over reloads; clients that leave
-- while they wait. Judges: each value that was sent is taken once, and in the order of its producer by one consumer, but
-- for the moment of a reload; at most so many tasks hold a permit at a time, and all permits come back; nothing that
-- waits is forgotten: at the end every value has been taken.
local ls, sim = require "luaserve", sim
local world = require "lib.world"
local PERMITS = 2

if sim.side == "server" then
  ls.config { drain_timeout = 40 } -- a client waits for 20 s; what a drain ends runs no code, and counts as a handler
  local app = ls.app()
  local jobs, polls = ls.channel("jobs", { capacity = 5 }), ls.channel("polls", { capacity = 1000 })
  sim.count("loaded", math.floor(sim.now() * 1000) - sim.count("loaded", 0)) -- a reload may put a value back, to the front
  local gate, turns = ls.semaphore("gate", PERMITS), ls.dict "turns"

  local function take(what, value)
    world.once(what .. " " .. value)
    if sim.count("sent " .. value, 0) == 0 then sim.fail("a value that was not sent: " .. value) end
    sim.count("taken " .. what)
  end

  ls.on("start", function() -- a consumer in each state
    local last = {} -- by producer
    for job in jobs:values() do
      take("job", job.id)
      local is_late = job.n <= (last[job.producer] or 0) and sim.now() > sim.count("loaded", 0) / 1000 + 0.5
      if is_late then sim.fail(("job %d of %s came late"):format(job.n, job.producer)) end
      last[job.producer] = job.n
      if world.chance(4) then ls.sleep(sim.random(100) / 1000) end
    end
  end)
  app:post("/send/:producer/:count", world.handler(function(req)
    local first = sim.count("jobs of " .. req.params.producer, 0)
    return ls.spawn(function() -- also when the client leaves
      for n = first + 1, first + req.params.count do
        local job = { id = req.params.producer .. "." .. n, producer = req.params.producer, n = n }
        sim.count("sent " .. job.id)
        sim.count("jobs of " .. req.params.producer)
        local ok, message = jobs:send(job)
        if not ok then sim.fail("a job was not sent: " .. message) end
        sim.count "sent job"
      end
      return "sent"
    end):wait()
  end))
  app:post("/put/:id", world.handler(function(req)
    sim.count("sent " .. req.params.id)
    if not polls:send(req.params.id, 0) then sim.fail "a channel with room is full" end
    sim.count "sent poll"
    if world.chance(3) then sim.compute(sim.random(200) / 1000) end -- meanwhile the client of who takes it leaves
    return "put"
  end))
  app:post("/poll/:seconds", world.handler(function(req)
    local value, message, code = polls:receive(tonumber(req.params.seconds))
    if not value and code ~= "ETIMEDOUT" then sim.fail("receive: " .. message) end
    if not value then return "none" end
    take("poll", value)
    return value
  end))
  app:post("/gate", world.handler(function()
    return gate:with(function()
      if sim.count "inside" > PERMITS then sim.fail "more tasks than permits" end
      local _ <close> = setmetatable({}, { __close = function() sim.count("inside", -1) end })
      local turn = turns:incr "n"
      ls.sleep(sim.random(100) / 1000)
      if world.chance(10) then error { status = 418 } end
      return tostring(turn)
    end)
  end))
  app:get("/left", function() return jobs:len() .. " " .. polls:len() .. " " .. gate.held end)
  ls.listen(8080, app)
  return
end

sim.expect "POST /gate" -- its error

local function post(path, timeout) return world.fetch(path, { method = "POST", timeout = timeout }, true, "500") end

world.run(8, function(client, number)
  local kind = sim.random(4)
  local timeout = world.chance(4) and sim.random(1000) / 1000 or 20 -- some leave
  if kind == 1 then
    post(("/send/%d-%d/%d"):format(client, number, sim.random(8)), timeout)
  elseif kind == 2 then
    post("/put/" .. client .. "-" .. number, timeout)
  elseif kind == 3 then
    post("/poll/" .. (world.chance(3) and 500 or sim.random(2000) / 1000), timeout) -- no old site waits for the end of 500 s
  else
    local turn = post("/gate", timeout)
    if turn then world.once("turn " .. turn) end
  end
  if world.chance(3) then world.pause(0.5) end
end, function()
  local value
  repeat
    value = post("/poll/2", 10)
    world.fail_if(not value, "a poll failed without faults")
  until value == "none"
  local left = ls.fetch("http://127.0.0.1:8080/left"):body()
  if left ~= "0 0 0" then sim.fail("left in the channels, and permits that are held: " .. left) end
  for _, what in ipairs { "job", "poll" } do
    local sent, taken = sim.count("sent " .. what, 0), sim.count("taken " .. what, 0)
    world.fail_if(sent ~= taken, "%d values were sent to %s, and %d taken", sent, what, taken)
  end
end, { reloads = 60, gauges = { ["running.site"] = 100 } }) -- a consumer for each state
