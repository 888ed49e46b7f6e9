-- http.lua - requests with bodies, slow handlers, clients that leave, reloads in between, which cut off what lasts long. Checks: a
-- handler runs at most once for each request of POST; a response with its length is whole, and that of this request.
local ls, sim = require "luaserve", sim
local world = require "lib.world"

if sim.side == "server" then
  ls.config { drain_timeout = 0.3 } -- cuts requests off
  sim.expect "ended early"
  local app = ls.app()
  app:post("/echo/:id", function(req)
    local body, id = req:body(), req.params.id
    world.once("the handler of request " .. id)
    world.fail_if(body ~= world.text(id, #body), "request %s has the body of another one", id)
    return body
  end)
  app:get("/wait/:id", function(req)
    ls.sleep(sim.random(1000) / 1000)
    return world.text(req.params.id, 1000)
  end)
  app:get("/compute/:id", function(req)
    sim.compute(sim.random(30) / 1000)
    return world.text(req.params.id, 2000)
  end)
  ls.listen(8080, app)
  return
end

local function request(id)
  local kind = sim.random(4)
  local bytes = kind <= 2 and sim.random(sim.random(60000)) or nil
  local wanted = world.text(id, bytes or (kind == 3 and 1000 or 2000))
  local path = (bytes and "/echo/" or kind == 3 and "/wait/" or "/compute/") .. id
  local body = world.fetch(path, { method = bytes and "POST", body = bytes and wanted }, true)
  world.fail_if(body and body ~= wanted, "the response to %s is another one, or not whole: %d of %d", id, #(body or ""), #wanted)
  return body
end

world.run(8, function(client, number)
  if world.chance(10) then world.pause(3) end
  request(client .. "." .. number)
end, function()
  for i = 1, 4 do world.fail_if(not request("end." .. i), "a request failed without faults") end
end, { reloads = 20 })
