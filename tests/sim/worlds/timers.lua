-- timers.lua - timers, jobs, ls.init and the events start and drain over reloads, with threads that stall and compute.
-- Judges: ls.init runs once for a site, start and drain once for each of its states; a timer of the site ticks once for
-- the server, not faster than its period, and not any more when the next site has begun; one of a request fires once,
-- not too early, or is dropped with its site; each job that began ends.
local ls, sim = require "luaserve", sim
local world = require "lib.world"

if sim.side == "server" then
  local app = ls.app()
  local info = ls.dict "info"
  local PERIOD = 0.2
  local state, site = sim.count "states", nil -- site: its number, in its first state

  ls.init(function(reload)
    site = info:incr "site"
    if reload ~= (site > 1) then sim.fail "ls.init is wrong about a reload" end
    world.once("init of the site of state " .. state)
    if world.chance(3) then ls.sleep(0.1) end
    if info:get "site" ~= site then sim.fail "two sites are in ls.init at a time" end
  end)
  ls.on("start", function() world.once("start of state " .. state) end)
  ls.on("drain", function()
    world.once("drain of state " .. state)
    if sim.count("start of state " .. state, 0) == 0 and sim.count("stops", 0) == 0 then sim.fail "a state drains that has not started" end
  end)

  local last_tick
  local timer
  timer = ls.every(PERIOD, function()
    if sim.noted "over" then return timer:cancel() end
    local newest, now = sim.count("ticking", 0), sim.now()
    if not site then sim.fail "a timer of the site ticks in another state than the first" end
    if site < newest then sim.fail(("site %d ticks after site %d"):format(site, newest)) end
    if site > newest then sim.count("ticking", site - newest) end
    if last_tick and now - last_tick[1] < PERIOD * (#last_tick - 1) - 0.15 then sim.fail "a timer ticks too fast" end
    last_tick = last_tick or { now }
    last_tick[#last_tick + 1] = now
    sim.count "ticks"
  end)
  ls.after(0.1, function() world.once("timer of the top of site " .. site) end)

  app:post("/after/:id", world.handler(function(req)
    local id, begun, wait = req.params.id, sim.now(), sim.random(3000) / 1000
    local timer = ls.after(wait, function()
      world.once("timer " .. id)
      if sim.now() < begun + wait - 0.002 then sim.fail("timer " .. id .. " is early") end
      if sim.count("cancelled " .. id, 0) > 0 then sim.fail("timer " .. id .. " was cancelled") end
      sim.count("fired " .. (id:match "^end" or ""))
    end)
    if world.chance(4) then
      timer:cancel()
      sim.count("cancelled " .. id)
      sim.count("fired " .. (id:match "^end" or ""))
    end
    return id
  end))
  app:post("/job/:id", world.handler(function(req)
    local id = req.params.id
    local job = ls.spawn(world.handler(function()
      if world.chance(3) then sim.compute(sim.random(50) / 1000) end
      ls.sleep(sim.random(1500) / 1000)
      world.once("job " .. id)
      return id
    end))
    if world.chance(2) and job:wait() ~= id then sim.fail("job " .. id .. " has another result") end
    return id
  end))
  ls.listen(8080, app)
  return
end

local function post(path) return world.fetch(path, { method = "POST" }) end -- a GET may be sent again, a POST not

world.run(4, function(client, number)
  local id = client .. "." .. number
  local answer = post((world.chance(2) and "/after/" or "/job/") .. id)
  world.fail_if(answer and answer ~= id, "the answer of another request")
  world.pause(0.3)
end, function()
  for i = 1, 10 do world.fail_if(post("/after/end." .. i) ~= "end." .. i, "a request failed without faults") end
  local ticks = sim.count("ticks", 0)
  ls.sleep(3.5)
  ticks = sim.count("ticks", 0) - ticks
  if ticks < 14 or ticks > 20 then sim.fail(ticks .. " ticks in 3.5 s") end
  local fired = sim.count("fired end", 0)
  if fired ~= 10 then sim.fail(fired .. " of 10 timers have fired") end
  sim.note("over", "") -- the rest of the run is short
end, { reloads = 6 })
