-- hello.lua - 64 clients, each with a request a second: how many simulated seconds a second of the processor is. Judge:
-- each answer is the right one; without faults of the network there are no others.
local ls, sim = require "luaserve", sim
local at = "127.0.0.1:8080"

if sim.side == "server" then
  local app = ls.app()
  app:get("/", function() return "hello\n" end)
  ls.listen(at, app)
  return
end

local clients, left = 64, 64
ls.init(function()
  for _ = 1, clients do
    ls.spawn(function()
      for _ = 1, 20 do
        local res, message = ls.fetch("http://" .. at .. "/", { timeout = 30 })
        if res and (res.status ~= 200 or res:body() ~= "hello\n") then sim.fail("status " .. res.status) end
        if not res and not sim.faulty then sim.fail("no response: " .. message) end
        ls.sleep(sim.random(2000) / 1000)
      end
      left = left - 1
      if left == 0 then sim.done() end
    end)
  end
end)
