-- http2.lua - many streams of HTTP/2 on a connection, bodies both ways, resets at any moment of a stream, windows that open late,
-- clients that vanish; reloads, half of which drain the connections. Judges, beside those of lib/h2.lua: a request runs once,
-- and not at all if it was refused or is above the last GOAWAY; the others of a connection that ends in order have ended;
-- without faults no stream stands still, PING is answered, credit comes back, and a fast stream is fast beside slow ones.
local ls, sim = require "luaserve", sim
local world = require "lib.world"
local h2 = require "lib.h2"
local PORT, FAST_S, CONN_WINDOW, STREAMS = 8080, 1, 1 << 20, 24

if sim.side == "server" then
  ls.config { drain_timeout = 60, states = 3 }
  sim.expect "on purpose"
  local app = ls.app()
  local function add(kind, fn) world.route(app, "any", "/" .. kind .. "/:id/:bytes", fn) end
  local function write(text, _, res) return world.write(res, text, 20000) end
  local function read(text, req, res)
    local at = 1
    for piece in req:chunks() do
      piece = tostring(piece)
      if text:sub(at, at + #piece - 1) ~= piece then sim.fail(req.params.id .. ": another body") end
      at = at + #piece
      if res and not res:write(piece) then return end
      if world.chance(8) then world.pause(0.1) end
      if not res and world.chance(3) then return text end -- it leaves the rest
    end
    if at <= #text then sim.fail(("%s: the body has %d of %d bytes"):format(req.params.id, at - 1, #text)) end
    if not res then return text end
  end
  add("text", function(text) return text end)
  add("wait", function(text) world.pause(1) return text end)
  add("compute", function(text) sim.compute(sim.random(30) / 1000) return text end)
  add("parts", function(...) write(...) end)
  add("trailer", function(text, req, res) res:trailer("X-End", "1") write(text, req, res) end)
  add("fail", function(...) if write(...) then world.pause(0.3) error "on purpose" end end)
  add("echo", function(text, req)
    if req:body() ~= text then sim.fail(req.params.id .. ": another body") end
    return text
  end)
  add("events", function(text, req, res) -- together they are more than the queue takes
    res:sse({ max_queue = "4k", keepalive = false }):subscribe(req.params.id)
    for _ = 1, 20 do ls.publish(req.params.id, text) ls.sleep(0.05) end
  end)
  add("pieces", read)
  add("some", function(text, req) return read(text, req) end)
  -- A reload whose limits differ drains the connections.
  local ok, message = pcall(ls.listen, { host = "127.0.0.1", port = PORT, handler = app, http2 = { streams = STREAMS },
    idle_timeout = 70 + sim.count("limits", 0) % 2 })
  if not ok and not message:find "nghttp2" then error(message) end
  if not ok then ls.listen(PORT, app) sim.count "absent" end
  return
end

if sim.count("absent", 0) > 0 then return ls.init(function() sim.done() end) end -- a build without nghttp2

local kinds = { "GET text", "GET wait", "GET compute", "GET parts", "GET trailer", "GET fail", "POST text", "POST wait", "POST echo",
  "POST pieces", "POST some", "POST parts" }
local never, reloaded = {}, 0

local function reload()
  if sim.now() < reloaded + 3 then return end -- one after the other
  reloaded = sim.now()
  if world.chance(2) then sim.count "limits" end
  sim.reload()
end

local function is_done(s) return s.how and (s.is_sent or s.reset or s.how == "canceled") end

local function connection(name, strict)
  local windows, begun = { 0, sim.random(5000), 65535, 300000 }, sim.now()
  local c = h2.connect(PORT, { window = windows[sim.random(4)], most = 65535 * sim.random(4), pause = sim.random(10) / 10, eager = world.chance(2) })
  if not c then return strict and sim.fail "no connection" end
  c.is_slow, c.is_stalled = world.chance(4), not strict and world.chance(6)
  for i = 1, sim.random(strict and 12 or 20) do
    if c.over or (c.last and c.last < 0x7fffffff) then break end
    local method, kind = kinds[sim.random(#kinds)]:match "(%a+) (%a+)"
    local bytes = sim.random(sim.random(world.chance(4) and (strict and 60000 or 200000) or 20000)) - (method == "POST" and kind ~= "parts" and 1 or 0)
    local s, moment = c:open(name .. "." .. i, method, kind, bytes), sim.random(12)
    if moment == 1 then
      c:cancel(s)
    elseif moment == 2 then
      s.cancel_at = sim.random(bytes + 1)
    elseif moment <= 4 then
      ls.spawn(function() world.pause(1.5) c:cancel(s) end)
    end
    if world.chance(3) then world.pause(0.3) end
    if world.chance(5) then c:ping() end
    if not strict and world.chance(20) then reload() end
  end
  if not strict and world.chance(5) then -- it vanishes: in silence, or with the end of the connection
    c.silent = true
    world.pause(2)
  end
  local function all() for _, s in ipairs(c.streams) do if not is_done(s) then return false end end return true end
  c.heard = sim.now()
  while not c:await(1, all) and not c.over and sim.now() < c.heard + 6 and (strict or sim.now() < begun + 15) do end
  for _, s in ipairs(strict and c.streams or {}) do
    if not is_done(s) then
      sim.fail(("%s, %s: stands still at %d of %d bytes, window %d and %d; all is sent: %s; may send %d and %d"):format(s.name, s.kind,
        s.bytes, #s.text, s.granted, c.granted, s.is_sent, s.room, c.room))
    end
    local early = s.how == "reset" and (s.kind ~= "fail" or s.reset ~= 2 or s.bytes ~= #s.text)
    if early or (s.how == "whole" and not s.status and s.took > 9) then sim.fail(("%s: %s, %s"):format(s.name, s.how, s.reset)) end -- 408
  end
  if strict and not c:await(3, function() return c.pongs == (c.pings or 0) and c.room >= CONN_WINDOW // 2 end) then
    sim.fail(("PING: %d of %s answered; window %d"):format(c.pongs, c.pings, c.room))
  end
  c:finish(never)
end

local function beside(name)
  local c = h2.connect(PORT, { window = 65535, most = 131072, pause = 0.1, eager = true })
  if not c then return sim.fail "no connection" end
  local stalled = c:open(name .. ".1", "GET", "text", 300000)
  stalled.is_stalled = true
  if not c:await(30, function() return stalled.granted == 0 end) then sim.fail "a window is not used" end
  c:open(name .. ".2", "POST", "wait", 1000)
  c:open(name .. ".3", "GET", "compute", 100)
  local fast = c:open(name .. ".4", "GET", "text", 2000)
  if not c:await(5, function() return fast.how end) or fast.took > FAST_S then sim.fail("a fast stream took " .. tostring(fast.took)) end
  local function all_sent() for i = 5, #c.streams do if not c.streams[i].is_sent then return false end end return true end
  for i = 5, fast.took < 0.1 and 14 or 0 do c:open(name .. "." .. i, "POST", "wait", 65535) end
  if c:await(5, all_sent) then -- then the credit for what nobody has read comes back
    for _, s in ipairs(c.streams) do c:cancel(s) end
    c:ping()
    local arrived = c:await(8, function() return c.pongs == 1 end)
    if arrived and not c:await(1, function() return c.room >= CONN_WINDOW // 2 end) then sim.fail("the window stays at " .. c.room) end
  end
  c:finish(never)
end

-- More requests than may run at a time, one after the other, the last one for events.
local function many(name)
  local c = h2.connect(PORT, { window = 65535, most = 131072, pause = 0.1, eager = true })
  for i = 1, 2 * STREAMS do
    local is_last = i == 2 * STREAMS
    local s = c:open(name .. "." .. i, "GET", is_last and "events" or "text", 500)
    if is_last then s.text = ("data: " .. s.text .. "\n\n"):rep(20) end
    if not c:await(5, function() return s.how end) or s.how ~= "whole" then sim.fail(("request %d of a connection: %s"):format(i, s.how)) end
  end
  c:finish(never)
end

world.run(5, function(client, number)
  connection(client .. "." .. number, false)
  if world.chance(10) then world.pause(2) end
end, function()
  for i = 1, 2 do connection("end." .. i, true) end
  beside "beside"
  many "many"
  for _, name in ipairs(never) do
    if sim.count("the handler of request " .. name, 0) > 0 then sim.fail(name .. " has run, though it was refused") end
  end
end, { rounds = 8 })
