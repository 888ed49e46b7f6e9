-- tcp.lua - a protocol of lines over TCP: clients that write in pieces, shut down their sending side, fall silent, send a
-- line that is too long or has no end, or leave; over reloads. Judges: the answers are those of the lines, in their
-- order, whole and each once; the server says how the stream has ended, and how many lines it had: after a shutdown
-- all of them; without faults each stream ends as its client has ended it; after sock:abort nothing is sent any more.
local ls, sim = require "luaserve", sim
local world = require "lib.world"

if sim.side == "server" then
  ls.config { drain_timeout = 40 } -- a slow talk takes 20 s
  ls.tcp({ host = "127.0.0.1", port = 7001, read_timeout = 2, send_timeout = 5, max_line = "4k" }, world.handler(function(sock)
    local n = 0
    for line in sock:lines() do
      n = n + 1
      if world.chance(6) then world.pause(0.3) end
      sock:send(n, " ", line, "\n")
    end
    sock:send("end ", n, " ", sock.ended, "\n")
  end))
  ls.tcp({ host = "127.0.0.1", port = 7002, send_timeout = 10, write_ahead = "1m" }, world.handler(function(sock)
    local id = sock:receive "*l"
    sock:send(("x"):rep(400000))
    sock:send "y" -- is sent when the first send has ended, and the state is free
    world.pause(1)
    sim.compute(sim.random(20) / 1000)
    if id and sock.queued > 1 then sim.count("aborted " .. id) end
    sock:abort()
  end))
  return
end

-- Reads what the server aborts.
local function flood(id)
  local sock <close> = ls.connect("127.0.0.1", 7002, { connect_timeout = 5, read_timeout = 5, send_timeout = 5 })
  if not sock or not sock:send(id, "\n") or not sock:flush() then return end
  world.pause(1)
  for data in sock:chunks() do
    if data:find "y" and sim.count("aborted " .. id, 0) > 0 then sim.fail("the stream of " .. id .. " goes on after its abort") end
  end
end

local ends = { "ECLOSED", "ECLOSED", "ETRUNCATED", "ETIMEDOUT", "EMSGSIZE", "abort" }

local function talk(name, how)
  local sock <close> = ls.connect("127.0.0.1", 7001, { connect_timeout = 5, read_timeout = 10, send_timeout = 5 })
  if not sock then return nil end
  local lines = {}
  for i = 1, sim.random(8) do lines[i] = world.text(name .. "." .. i, sim.random(sim.random(3000))) end
  local bytes = table.concat(lines, "\n") .. "\n"
  if how == "ETRUNCATED" then bytes = bytes .. "no end" end
  if how == "EMSGSIZE" then bytes = bytes .. ("x"):rep(5000) end
  local piece, last = world.chance(2) and #bytes or 300 + sim.random(2000), how == "abort" and sim.random(#bytes) or #bytes
  local writer = ls.spawn(function()
    local sent = 0
    while sent < last do
      local size = math.min(100 + sim.random(piece), last - sent)
      if not sock:send(bytes:sub(sent + 1, sent + size)) or not sock:flush() then return end
      sent = sent + size
      if world.chance(8) then world.pause(0.3) end
    end
    if how == "ECLOSED" or how == "ETRUNCATED" then sock:shutdown() end
    if how == "abort" then sock:abort() end
  end)
  local n, count, code = 0, nil, nil
  for line in sock:lines() do
    world.fail_if(count, "a line came after the end")
    count, code = line:match "^end (%d+) (%u+)$"
    if not count then
      n = n + 1
      world.fail_if(not lines[n] or line ~= n .. " " .. lines[n], "answer %d of %s is another one", n, name)
    else
      local is_early = (code == "ECLOSED" or code == "ETRUNCATED") and n ~= #lines
      local is_wrong = code ~= how and code ~= "ETIMEDOUT" and code ~= "ERESET"
      world.fail_if(math.tointeger(count) ~= n, "%s got %d answers of %s", name, n, count)
      world.fail_if(is_early and sim.count("stops", 0) == 0, "%s: the server saw the end after %d of %d lines", name, n, #lines)
      world.fail_if(is_wrong and sim.count("stops", 0) == 0, "the stream of %s ended with %s, not %s", name, code, how)
    end
  end
  if code == nil then sock:abort() end
  writer:wait()
  return code, n, #lines
end

world.run(6, function(client, number)
  if world.chance(6) then return flood(client .. "." .. number) end
  local how = ends[sim.random(#ends)]
  local code, n, count = world.within(25, "a talk", talk, client .. "." .. number, how)
  local is_wrong = not sim.faulty and how ~= "abort" and (code ~= how or n ~= count)
  world.fail_if(is_wrong, "%s of %s lines were answered, then %s, not %s", n, count, code, how)
  if world.chance(5) then world.pause(1) end
end, function()
  for i = 1, 5 do
    local code, n, count = talk("end." .. i, ends[i])
    local is_wrong = code ~= ends[i] or n ~= count
    world.fail_if(is_wrong, "without faults %s of %s lines were answered, then %s, not %s", n, count, code, ends[i])
  end
end, { reloads = 15 })
