-- hello.lua - many clients, whose one state has much to do at a time: how many simulated seconds a second of the
-- processor is. Judges: each answer is the right one, and there is one without faults; what is due for one state
-- runs when the state is free.
local ls, sim = require "luaserve", sim
local world = require "lib.world"
local at = "127.0.0.1:8080"

if sim.side == "server" then
  local app = ls.app()
  app:get("/", world.handler(function() return "hello\n" end))
  ls.listen(at, app)
  return
end

local function request()
  local res, message = world.within(20, "a request", ls.fetch, "http://" .. at .. "/", { timeout = 20 })
  if res and (res.status ~= 200 or res:body() ~= "hello\n") then sim.fail("status " .. res.status) end
  if not res and not sim.faulty then sim.fail("no response: " .. message) end
  return res
end

world.run(80, function()
  world.pause(2)
  request()
end, function()
  if not request() then sim.fail "no response without faults" end
  local jobs = {}
  for n = 1, 100 do jobs[n] = ls.spawn(function() ls.sleep(0.5) end) end
  ls.sleep(0.01)
  sim.compute(1) -- all of them are due meanwhile, in one state
  local free_s = sim.now()
  for _, job in ipairs(jobs) do job:wait() end
  if sim.now() > free_s + 0.5 then sim.fail(("jobs that are due have waited for %.1f s"):format(sim.now() - free_s)) end
end, { rounds = 20 })
