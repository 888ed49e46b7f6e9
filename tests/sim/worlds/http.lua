-- http.lua - requests with bodies, slow handlers, clients that leave, reloads in between, which cut off what lasts long. Checks: a
-- handler runs at most once for each request of POST; a response with its length is whole, and that of this request.
local ls, sim = require "luaserve", sim
local world = require "lib.world"
local at = "127.0.0.1:8080"

if sim.side == "server" then
  ls.config { drain_timeout = 0.3 } -- cuts requests off
  sim.expect "ended early"
  local app = ls.app()
  app:post("/echo/:id", function(req)
    local body, id = req:body(), req.params.id
    if sim.count("run " .. id) > 1 then sim.fail("the handler of request " .. id .. " ran twice") end
    if body ~= world.text(id, #body) then sim.fail("request " .. id .. " has the body of another one") end
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
  ls.listen(at, app)
  return
end

local function request(id)
  local kind = sim.random(4)
  local bytes = kind <= 2 and sim.random(sim.random(60000)) or nil
  local wanted = world.text(id, bytes or (kind == 3 and 1000 or 2000))
  local path = (bytes and "/echo/" or kind == 3 and "/wait/" or "/compute/") .. id
  local res = ls.fetch("http://" .. at .. path, { method = bytes and "POST", body = bytes and wanted, timeout = 20 })
  if not res then return end
  if res.status == 200 then
    local body = res:body()
    if body and body ~= wanted then sim.fail("the response to " .. id .. " is another one, or not whole: " .. #body .. " of " .. #wanted) end
    return body
  elseif res.status ~= 503 then
    sim.fail("status " .. res.status)
  end
end

world.run(8, function(client, number)
  if world.chance(10) then world.pause(3) end
  request(client .. "." .. number)
end, function()
  for i = 1, 4 do
    if not request("end." .. i) then sim.fail "a request failed without faults" end
  end
end, { reloads = 20 })
