-- hello.lua - many clients, whose one state has much to do at a time: how many simulated seconds a second of the
-- processor is. Judges: each answer is the right one, and there is one without faults; what is due for one state
-- runs when the state is free.
local ls, sim = require "luaserve", sim
local world = require "lib.world"

if sim.side == "server" then
  local app = ls.app()
  app:get("/", world.handler(function() return "hello\n" end))
  ls.listen(8080, app)
  return
end

local function request()
  local body = world.fetch("/", {})
  world.fail_if(body and body ~= "hello\n", "another response: %s", body)
  return body
end

world.run(80, function()
  world.pause(2)
  request()
end, function()
  world.fail_if(not request(), "no response without faults")
  local free_s
  ls.spawn(function()
    ls.sleep(0.01)
    sim.compute(1) -- all jobs are due meanwhile, in one state
    free_s = sim.now()
  end)
  world.all(100, function() ls.sleep(0.5) end)
  world.fail_if(sim.now() > free_s + 0.5, "jobs that are due have waited for %.1f s", sim.now() - free_s)
end, { rounds = 20 })
