-- http.lua - requests with bodies, slow handlers, clients that leave, reloads in between. Checks: a handler runs at most
-- once for each request of POST; a response with its length is whole, and that of this request.
local ls, sim = require "luaserve", sim
local at = "127.0.0.1:8080"

local function text_of(id, bytes) -- the body of this request
  local part = "<" .. id .. ">"
  return (part:rep(bytes // #part + 1)):sub(1, bytes)
end

if sim.side == "server" then
  local app = ls.app()
  app:post("/echo/:id", function(req)
    local body, id = req:body(), req.params.id
    if sim.count("run " .. id) > 1 then sim.fail("the handler of request " .. id .. " ran twice") end
    if body ~= text_of(id, #body) then sim.fail("request " .. id .. " has the body of another one") end
    return body
  end)
  app:get("/wait/:id", function(req)
    ls.sleep(sim.random(1000) / 1000)
    return text_of(req.params.id, 1000)
  end)
  app:get("/compute/:id", function(req)
    sim.compute(sim.random(30) / 1000)
    return text_of(req.params.id, 2000)
  end)
  ls.listen(at, app)
  return
end

local clients, requests = 8, 12
local left = clients

local function request(id)
  local kind = sim.random(4)
  local bytes = kind <= 2 and sim.random(sim.random(60000)) or nil
  local wanted = text_of(id, bytes or (kind == 3 and 1000 or 2000))
  local res
  if bytes then
    res = ls.fetch("http://" .. at .. "/echo/" .. id, { method = "POST", body = wanted, timeout = 20 })
  else
    res = ls.fetch("http://" .. at .. (kind == 3 and "/wait/" or "/compute/") .. id, { timeout = 20 })
  end
  if not res then
    sim.count "no response"
  elseif res.status == 200 then
    local body = res:body()
    if body and body ~= wanted then sim.fail("the response to " .. id .. " is another one, or not whole: " .. #body .. " of " .. #wanted) end
    sim.count "responses"
  elseif res.status ~= 503 then
    sim.fail("status " .. res.status)
  end
end

ls.init(function()
  for c = 1, clients do
    ls.spawn(function()
      for r = 1, requests do
        if sim.random(10) == 1 then ls.sleep(sim.random(3000) / 1000) end
        if sim.random(20) == 1 then sim.reload() end
        request(c .. "." .. r)
      end
      left = left - 1
      if left == 0 then sim.done() end
    end)
  end
end)
