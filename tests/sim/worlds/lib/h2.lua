-- h2.lua - a client of HTTP/2 over ls.connect that writes its frames, and judges those that it gets: windows are kept, a stream
-- ends once, its bytes are those of its request, GOAWAY names no error and no later stream than before.
local ls, sim = require "luaserve", sim
local world = require "lib.world"
local H2 = {}
H2.__index = H2

local DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
local WINDOW_AT_FIRST, PATIENCE = 65535, 0.02
local REFUSED, CANCEL = 7, 8

local function frame(kind, flags, id, payload) return string.pack(">I3BBI4", #payload, kind, flags, id) .. payload end

-- Options: `window`, of a stream at first; `most`, up to which windows are opened; `pause`, between two openings at most; `eager`, they
-- are opened with each DATA as well.
function H2.connect(port, o)
  local sock = ls.connect("127.0.0.1", port, { connect_timeout = 5, read_timeout = false, send_timeout = 20, write_ahead = "8m" })
  if not sock then return nil end
  local c = setmetatable({ sock = sock, o = o, streams = {}, next = 1, room = WINDOW_AT_FIRST, granted = WINDOW_AT_FIRST, pongs = 0, heard = sim.now() }, H2)
  c:send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" .. frame(SETTINGS, 0, 0, string.pack(">I2I4", 4, o.window)))
  c.jobs = { ls.spawn(function() c:read() end), ls.spawn(function()
    while not c.over do
      world.pause(o.pause)
      for _, s in ipairs(c.streams) do if not s.how then c:fill(s) end end
      c:fill(c)
    end
  end) }
  return c
end

function H2:send(bytes) if not self.over and not self.silent then self.sock:send(bytes) end end
function H2:frame(...) self:send(frame(...)) end

-- Waits until is_so(), or for so many seconds; false: it has not come.
function H2:await(seconds, is_so)
  local until_s = sim.now() + seconds
  while not is_so() and not self.over and sim.now() < until_s do ls.sleep(PATIENCE) end
  return is_so()
end

-- Opens a window, of a stream or of the connection, now and then only in part.
function H2:fill(of)
  local n = self.o.most - of.granted
  if of.is_stalled or n < self.o.most / 2 then return end
  if world.chance(5) then n = sim.random(n) end
  of.granted = of.granted + n
  self:frame(WINDOW, 0, of.id or 0, string.pack(">I4", n))
end

-- A request for /KIND/NAME/BYTES, with a body if it is a POST; only one task may call it. `s.text` is the response.
function H2:open(name, method, kind, bytes)
  local s = { id = self.next, name = name, kind = kind, text = world.text(name, bytes), bytes = 0, room = WINDOW_AT_FIRST,
    granted = self.o.window, is_sent = method == "GET", has_body = method ~= "GET", begun = sim.now() }
  local head = (s.is_sent and "\x82" or "\x83") .. "\x86\x01\x01h" .. string.pack(">Bs1", 4, ("/%s/%s/%d"):format(kind, name, bytes))
  if not s.is_sent and world.chance(2) then head = head .. string.pack(">I2s1", 0x0f0d, tostring(bytes)) end
  self.next = self.next + 2
  self.streams[#self.streams + 1], self.streams[-s.id] = s, s
  self:frame(HEADERS, s.is_sent and 5 or 4, s.id, head)
  if not s.is_sent then self.jobs[#self.jobs + 1] = ls.spawn(function() self:upload(s) end) end
  return s
end

function H2:upload(s)
  local at, piece, rests = 1, sim.random(sim.random(16384)), world.chance(3)
  local function is_over() return s.reset or s.how == "canceled" end
  piece = math.max(piece, #s.text // 100)
  while self:await(60, function() return is_over() or at > #s.text or (s.room > 0 and self.room > 0) end) and not is_over() do
    local size = math.min(sim.random(piece), 16384, #s.text - at + 1, math.max(s.room, 0), math.max(self.room, 0))
    s.room, self.room, at = s.room - size, self.room - size, at + size
    self.heard = sim.now() -- it is the client that is slow
    s.is_sent = at > #s.text and (size == 0 or world.chance(2)) -- or an empty frame is the last one
    self:frame(DATA, s.is_sent and 1 or 0, s.id, s.text:sub(at - size, at - 1))
    if s.is_sent then return end
    if rests and world.chance(4) then world.pause(0.2) end
  end
end

function H2:cancel(s)
  if s.how then return end
  s.how = "canceled"
  self:frame(RESET, 0, s.id, string.pack(">I4", CANCEL))
end

function H2:ping() self.pings = (self.pings or 0) + 1 self:frame(PING, 0, 0, string.pack(">I8", self.pings)) end

local on = {}

on[SETTINGS] = function(c, _, flags) if flags & 1 == 0 then c:frame(SETTINGS, 1, 0, "") end end

on[PING] = function(c, _, flags, payload)
  if flags & 1 == 0 then return c:frame(PING, 1, 0, payload) end
  c.pongs = c.pongs + 1
  if string.unpack(">I8", payload) ~= c.pongs then sim.fail "PING was answered out of order" end
end

on[GOAWAY] = function(c, _, _, payload)
  local last, code = string.unpack(">I4I4", payload)
  if code ~= 0 and not (code == 1 and sim.faulty) then sim.fail("GOAWAY " .. code .. " " .. payload:sub(9)) end -- 1: a slow head
  if last > (c.last or last) then sim.fail "GOAWAY names a later stream than before" end
  c.last = last
end

on[WINDOW] = function(c, s, _, payload)
  s = s or c
  s.room = s.room + string.unpack(">I4", payload)
end

on[RESET] = function(c, s, _, payload)
  local code = string.unpack(">I4", payload)
  if s.reset or (s.how == "whole" and (code ~= 0 or not s.has_body)) then sim.fail("a reset behind the end of " .. s.name .. ": " .. code) end
  if code == 0 and not s.how then sim.fail(s.name .. " is reset with NO_ERROR before its end") end
  s.reset, s.how = code, s.how or "reset"
end

local function ended(s)
  if s.status and (s.bytes ~= #s.text or s.kind == "fail") then sim.fail(("%s has ended with %d of %d bytes"):format(s.name, s.bytes, #s.text)) end
  s.how, s.took = "whole", sim.now() - s.begun
end

on[HEADERS] = function(_, s, flags, payload)
  if s.how == "canceled" then return end
  if s.how then sim.fail("a head behind the end of " .. s.name) end
  if not s.head then s.head, s.status = payload, payload:find "^[\x88\x89]" ~= nil end -- 200 or 204; else 500, 503 and the like
  if flags & 1 == 1 then ended(s) end
end

on[DATA] = function(c, s, flags, payload)
  c.granted, s.granted = c.granted - #payload, s.granted - #payload
  if c.granted < 0 or s.granted < 0 then sim.fail("more bytes than the window of " .. s.name) end
  if s.how ~= "canceled" then
    if s.how or not s.head then sim.fail("bytes before or behind the response to " .. s.name) end
    if s.status and s.text:sub(s.bytes + 1, s.bytes + #payload) ~= payload then sim.fail("other bytes for " .. s.name) end
    s.bytes = s.bytes + #payload
    if flags & 1 == 1 then ended(s) elseif s.bytes >= (s.cancel_at or math.huge) then c:cancel(s) elseif c.o.eager then c:fill(s) end
  end
  if c.o.eager then c:fill(c) end
end

function H2:read()
  local head, payload, code, _
  repeat
    head, _, code = self.sock:receive(9)
    self.heard = sim.now()
    local bytes, kind, flags, id = 0, nil, nil, nil
    if head then bytes, kind, flags, id = string.unpack(">I3BBI4", head) end
    payload = ""
    if bytes > 0 then payload, _, code = self.sock:receive(bytes) end
    if head and payload then
      local s = self.streams[-id]
      if id > 0 and not s then sim.fail("a frame of no stream: " .. id) end
      if on[kind] then on[kind](self, s, flags, payload) end
      if self.is_slow and world.chance(4) then world.pause(0.1) end
    end
  until not head or not payload or self.silent
  local _, _, lost = self.sock:flush() -- a reset that a send has seen is the end of the stream for a receive
  self.how, self.over = self.how or lost or code, true
end

-- The end of the connection, and what its streams have come to. `never`: the list of requests that must not run.
function H2:finish(never)
  self.how, self.over = self.how or "left", true
  self.sock:abort()
  for _, job in ipairs(self.jobs) do job:wait() end
  for _, s in ipairs(self.streams) do
    local runs, above = sim.count("the handler of request " .. s.name, 0), self.last and s.id > self.last
    if s.how == "whole" and s.status and runs ~= 1 then sim.fail(s.name .. " was answered, and ran " .. runs .. " times") end
    if s.reset == REFUSED or above then never[#never + 1] = s.name end
    if not s.how and not above and self.last and self.how == "ECLOSED" then
      sim.fail(("%s (stream %d, last %d, %s): neither whole nor reset: %s, %d bytes"):format(s.name, s.id, self.last, s.kind, s.head ~= nil, s.bytes)) end
  end
end

return H2
