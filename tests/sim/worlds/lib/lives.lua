-- lives.lua - what the worlds with crashes have in common: writers that ask the server one thing after the other, in up to
-- four lives, of which all but the last end with a crash: at a change of the disk, or at a time. Between the lives, and at
-- the end, the world judges.
local ls, sim = require "luaserve", sim
local lives, timeout, at = {}, 5, "127.0.0.1:8080"
local count = tonumber((sim.noted "lives")) or 1 + sim.random(3)
sim.note("lives", tostring(count))

-- The text that is stored under an id, which ends with a number: up to 50 KB, so that the log of SQLite becomes full.
function lives.text_of(id) return (id .. ","):rep(1 + #id * tonumber((id:match "%d+$")) * 37 % 8000) end

-- Also while the server starts after a crash, it crashes.
function lives.load(changes)
  if sim.life > 1 and sim.life < count and sim.count "load" == 1 and sim.random(3) == 1 then sim.crash(sim.random(changes)) end
end

-- A route of POST: fn(the parameters of the path) returns what is written, or nil and a reason; then the answer is 503, or "no".
function lives.post(app, path, fn)
  app:post(path, function(req)
    local body, failure = ls.try(fn, req.params)
    if body ~= nil then return tostring(body) end
    if failure and failure.code == "EINVAL" then return "no" end
    return 503, tostring(failure and failure.message or failure)
  end)
end

function lives.listen(app) ls.listen(at, app) end

-- The body of an answer 200; nil: refused, or nobody knows what happened.
function lives.ask(method, path, patience)
  local url = "http://" .. at .. path
  local res = ls.fetch(url, { method = method, timeout = patience or timeout })
  local body = res and res:body()
  if not res or res.status == 503 then return nil end
  if res.status ~= 200 then sim.fail(url .. ": " .. res.status .. " " .. tostring(body)) end
  return body
end

-- The JSON of an answer, which comes at last. One that is given up is still sent, and the end of the server waits for it.
function lives.look(path)
  local body
  repeat ls.sleep(0.1) body = lives.ask("GET", path, 100) until body
  return ls.json.decode(body)
end

-- A request that answers a number: it is given once, and the next one is larger. The note "sum NAME" is the largest one.
function lives.rise(name, path)
  local before = tonumber(sim.noted("sum " .. name) or 0)
  local n = math.tointeger(tonumber(lives.ask("POST", path)))
  if not n then return end
  if sim.noted("given " .. name .. "=" .. n) then sim.fail(name .. ": the number " .. n .. " was given twice") end
  if n <= before then sim.fail(name .. ": the number " .. n .. " after " .. before) end
  sim.note("given " .. name .. "=" .. n, "")
  if n > tonumber(sim.noted("sum " .. name) or 0) then sim.note("sum " .. name, tostring(n)) end
end

-- kinds: functions of the writer and an id
function lives.run(writers, requests, kinds, judge)
  ls.init(function()
    local left, requests = writers, sim.random(requests)
    judge()
    if sim.life < count and sim.random(2) == 1 then
      sim.crash(sim.random(sim.random(2000)))
    elseif sim.life < count then
      local seconds = sim.random(sim.random(4000)) / 1000
      ls.spawn(function() ls.sleep(seconds) sim.crash() end)
    end
    for w = 1, writers do
      ls.spawn(function()
        for r = 1, requests do
          if sim.random(5) == 1 then ls.sleep(sim.random(300) / 1000) end
          if sim.random(60) == 1 then sim.reload() end
          kinds[sim.random(#kinds)](w, sim.life .. ":" .. w .. "." .. r)
        end
        left = left - 1
        if left > 0 then return end
        if sim.life < count then sim.crash() end
        sim.calm()
        ls.sleep(timeout) -- no request runs any more
        judge()
        sim.done()
      end)
    end
  end)
end

return lives
