-- session.lua - logins, counters and tokens in sessions, in the cookie and in a dict, over reloads; several requests of a
-- session at a time. Judges: a session is that of its visitor; a counter goes on from what was acknowledged; an id from
-- before a login is not logged in; a request without the token of its own session changes nothing.
local ls, sim = require "luaserve", sim
local world = require "lib.world"
local csrf = require "luaserve.csrf"
local kinds = { "cookie", "dict" }

if sim.side == "server" then
  local app = ls.app()
  local days = 400 * 86400 -- the clock may jump by a day
  app:use("/cookie", ls.session { secret = ("a secret of the test "):rep(3), cookie = "cookie", max_age = days, lifetime = false })
  app:use("/dict", ls.session { store = ls.dict "sessions", cookie = "dict", max_age = days, lifetime = false })
  app:use(csrf())
  app:get("/:kind/token", world.handler(function(req) return csrf.token(req) end))
  app:get("/:kind/user", world.handler(function(req) return tostring(req.session.user) end))
  app:post("/:kind/login/:user", world.handler(function(req)
    req.session.user, req.session.n = req.params.user, 0
    return csrf.token(req)
  end))
  app:post("/:kind/count", world.handler(function(req)
    if not req.session.user then return 401 end
    local n = req.session.n + 1
    if world.chance(5) then ls.sleep(sim.random(200) / 1000) end
    req.session.n = n
    return req.session.user .. " " .. n
  end))
  app:post("/:kind/logout", world.handler(function(req)
    req.session:clear()
    return "none"
  end))
  ls.listen(8080, app)
  return
end

-- The body and the answer; nil: there is no answer, or it is 503.
local function request(v, method, path, token, cookie)
  local body, answer = world.fetch("/" .. v.kind .. path, { method = method, jar = not cookie and v.jar or nil,
    headers = { ["X-CSRF-Token"] = token, Cookie = cookie } }, false, "403")
  if answer == 403 then return 403 end
  if not body then v.unknown = v.unknown + 1 end
  return body, answer
end

local function must_be(v, what, is, wanted)
  if is and is ~= wanted then sim.fail(("%s, %s: %s; not %s"):format(v.kind, what, is, wanted)) end
end

local foreign -- the token of another session

-- v.n is the last counter that was acknowledged, v.ahead how many requests at a time may have counted since. Requests
-- without an answer may have counted as well: in the dict, also later, and in a cookie whose response was cut off.
local function count(v)
  local result = request(v, "POST", "/count", v.token)
  if not result then return end
  local user, n = tostring(result):match "^(%S+) (%d+)$"
  must_be(v, "the user of a session", user or result, v.user)
  n = math.tointeger(n)
  local unknown = v.unknown
  local is_wrong = n < v.n + 1 - (v.kind == "dict" and unknown or 0) or n > v.n + 1 + v.ahead + unknown
  world.fail_if(is_wrong, "%s: the counter of %s is %d after %d + %d, %d unknown", v.kind, user, n, v.n, v.ahead, unknown)
  return n
end

local function count_alone(v)
  local n = count(v)
  if n then v.n, v.ahead = n, 0 end
end

-- false: a request was lost.
local function visit(user)
  local v = { kind = kinds[sim.random(2)], jar = ls.cookie_jar(), user = user, n = 0, ahead = 0, unknown = 0 }
  local token, answer = request(v, "GET", "/token")
  if not token then return false end
  local before = answer.headers["set-cookie"]:match "^[^;]*"
  must_be(v, "a login with a false token", request(v, "POST", "/login/" .. user, foreign or "guess"), 403)
  v.token = request(v, "POST", "/login/" .. user, token)
  if not v.token then return false end
  must_be(v, "the session before the login", request(v, "GET", "/user", nil, before), "nil")
  must_be(v, "the session after the login", request(v, "GET", "/user"), user)
  for _ = 1, sim.random(6) do
    local kind = sim.random(5)
    if kind == 1 then
      must_be(v, "a request without a token", request(v, "POST", "/count"), 403)
      if foreign then must_be(v, "a request with another token", request(v, "POST", "/count", foreign), 403) end
    elseif kind == 2 then
      v.ahead = v.ahead + 3
      world.all(3, function() count(v) end)
      count_alone(v) -- the last one wins, and any of them may be it
    else
      count_alone(v)
    end
  end
  foreign = v.token
  if world.chance(2) then
    must_be(v, "a logout", request(v, "POST", "/logout", v.token), "none")
    if v.unknown == 0 then must_be(v, "the session after the logout", request(v, "GET", "/user"), "nil") end
  end
  return v.unknown == 0
end

world.run(5, function(client, number)
  visit(client .. "." .. number)
  if world.chance(4) then world.pause(1) end
end, function()
  for i = 1, 4 do world.fail_if(not visit("end." .. i), "a visit without faults failed") end
end, { reloads = 10, rounds = 12 })
