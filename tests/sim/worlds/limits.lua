-- limits.lua - clients at the limits of time, bytes and numbers: silent and slow ones, ones that do not read, more than are accepted at a
-- time, and some behind a proxy that announces their addresses; over reloads. Judges: what exceeds a limit ends at its time, not
-- later, and without faults not earlier; what stays below it is served; what follows an unread body that is too long is not run;
-- the memory of what is sent has a bound.
local ls, sim = require "luaserve", sim
local world = require "lib.world"
local IDLE, HEAD, GRACE, SEND, TIMEOUT, HANDSHAKE, UNREAD = 3, 1.5, 1, 2, 3, 1.5, 8192
local MEMORY, LUA_MEMORY = 1 << 20, 6 << 20

if sim.side == "server" then
  ls.config { max_connections = 6, old_sites = 30 }
  sim.expect "waited for longer than timeout"
  local app = ls.app()
  local function add(method, path, fn)
    world.route(app, method, path, function(text, req, res, id, bytes)
      local _ <close> = setmetatable({}, { __close = function() sim.count("ended " .. id) end })
      return fn(text, req, res, id, bytes)
    end)
  end
  local function text_of(text) return text end
  add("get", "/text/:id/:bytes", text_of)
  add("post", "/text/:id/:bytes", text_of) -- it does not read the body
  add("post", "/echo/:id/:bytes", function(_, req) return req:body() end)
  app:post("/wait/:id/:ms", function(req) -- none of its code runs behind its time
    local id, ms = req.params.id, math.tointeger(req.params.ms)
    if #req:body() ~= 10 then sim.fail("another body of " .. id) end
    ls.sleep(ms / 1000)
    return world.text(id, ms)
  end)
  add("get", "/flood/:id/:bytes", function(_, _, res, id, bytes)
    for _ = 1, bytes, 10000 do if not res:write(world.text(id, 10000)) then return end end
  end)
  local options = { idle_timeout = IDLE, head_timeout = HEAD, body_grace = GRACE, min_body_rate = 1000, send_timeout = SEND,
    max_unread = UNREAD, write_ahead = "16k", timeout = TIMEOUT, linger = 0.5 }
  ls.listen("127.0.0.1:8080", app, options)
  ls.listen("127.0.0.1:8082", app, { max_connections_per_ip = 1 })
  options.proxy_protocol, options.trusted, options.handshake_timeout = true, { "127.0.0.1" }, HANDSHAKE
  options.max_handshakes, options.max_connections_per_ip = 2, 2
  ls.listen("127.0.0.1:8081", app, options)
  return
end

local strict = false -- there are no faults any more
local function is_exact() return strict or not sim.faulty end

local function connect(port, may_fail)
  local sock = ls.connect("127.0.0.1", port or 8080, { connect_timeout = 5, read_timeout = 20, send_timeout = 20 })
  if not sock and is_exact() and not may_fail then sim.fail "no connection" end
  return sock
end

local function head(id, how, bytes, more)
  return ("%s/%s/%d HTTP/1.1\r\nHost: h\r\n%s\r\n"):format(how, id, bytes, more or "")
end

-- Sends the text in pieces, with a pause behind each; false: nobody takes it.
local function send(sock, text, piece, pause)
  for at = 1, #text, piece or #text do
    if not sock:send(text:sub(at, at + (piece or #text) - 1)) or not sock:flush() then return false end
    if pause then ls.sleep(pause) end
  end
  return true
end

-- The status and the body of the next response; nil: the connection has ended. `slowly`: the pause behind each 3,000 bytes.
local function response(sock, slowly)
  local lines = sock:receiveuntil "\r\n\r\n"
  if not lines then return nil end
  local left, parts = math.tointeger(lines:match "\r\nContent%-Length: (%d+)"), {}
  while left > 0 do
    local part = sock:receive(math.min(left, slowly and 3000 or left))
    if not part then return nil end
    parts[#parts + 1], left = part, left - #part
    if slowly then ls.sleep(slowly) end
  end
  return math.tointeger(lines:match " (%d+)"), table.concat(parts)
end

-- The next response must be that of the request.
local function answered(sock, id, bytes, slowly)
  local status, body = response(sock, slowly)
  if status == 200 and body ~= world.text(id, bytes) then sim.fail(("another response to %s: %d of %d bytes: %s"):format(id, #body, bytes, body:sub(-20))) end
  if status ~= 200 and is_exact() then sim.fail(("%s has the status %s"):format(id, status)) end
  return status == 200
end

-- The connection ends, with this status, `seconds` from `begun`.
local function ends(sock, id, begun, seconds, wanted)
  local status = response(sock)
  if status == wanted and wanted then sock:receive(1) end
  local took = sim.now() - begun
  if took > seconds + (strict and 1 or 3) then sim.fail(("%s has ended after %.2f s"):format(id, took)) end
  local is_wrong = is_exact() and (took < seconds - 0.3 or status ~= wanted)
  world.fail_if(is_wrong, "%s has ended after %.2f s with the status %s", id, took, status)
end

local kinds = {}

function kinds.idle(sock, id)
  for n = 1, sim.random(3) do
    if not send(sock, head(id .. n, "GET /text", 100)) or not answered(sock, id .. n, 100) then return end
    if n < 3 then ls.sleep(sim.random(15) / 10) end
  end
  if is_exact() and not send(sock, head(id, "GET /text", 100)) then sim.fail(id .. ": the connection is closed too early") end
  if answered(sock, id, 100) then ends(sock, id, sim.now(), IDLE) end
end

function kinds.slow_head(sock, id)
  if not send(sock, head(id .. ".1", "GET /text", 100)) or not answered(sock, id .. ".1", 100) then return end
  local begun = sim.now()
  local writer = ls.spawn(send, sock, head(id, "GET /text", 100):sub(1, sim.random(30)), 1, world.chance(2) and 0.3 or nil)
  ends(sock, id, begun, HEAD, 408)
  writer:wait()
end

function kinds.slow_body(sock, id)
  local begun = sim.now()
  local writer = ls.spawn(send, sock, head(id, "POST /echo", 0, "Content-Length: 5000\r\n") .. ("x"):rep(4000), 100, 0.3)
  local status = response(sock)
  local took = sim.now() - begun
  sock:abort()
  writer:wait()
  if took > 6 or (is_exact() and (took < GRACE or status ~= 408)) then sim.fail(("a slow body took %.2f s: %s"):format(took, status)) end
end

function kinds.steady_body(sock, id)
  local text = world.text(id, 5000)
  if send(sock, head(id, "POST /echo", 0, "Content-Length: 5000\r\n") .. text, 150, 0.06) then answered(sock, id, 5000) end
end

function kinds.wait(sock, id)
  local ms, begun = sim.random(2) == 1 and 2500 or 3500 + sim.random(3000), sim.now()
  if not send(sock, head(id, "POST /wait", ms, "Content-Length: 10\r\n") .. ("x"):rep(10)) then return end
  if ms < TIMEOUT * 1000 then return answered(sock, id, ms) end
  local status = response(sock)
  local took = sim.now() - begun
  local is_wrong = status == 200 or took > TIMEOUT + 6 or (is_exact() and (status ~= 503 or took < TIMEOUT))
  world.fail_if(is_wrong, "a handler has waited for %.2f s: %s", took, status)
end

function kinds.flood(sock, id)
  if not send(sock, head(id, "GET /flood", 1000000)) then return end
  ls.sleep(SEND + TIMEOUT + 4)
  if sim.count("the handler of request " .. id, 0) ~= sim.count("ended " .. id, 0) then sim.fail("the handler of " .. id .. " waits, though nothing can be sent") end
  sock:abort()
end

function kinds.slow_reader(sock, id)
  if send(sock, head(id, "GET /text", 40000)) then answered(sock, id, 40000, 0.2) end
end

function kinds.unread(sock, id)
  local long, text = world.chance(2), nil
  local bytes = long and UNREAD * 4 or 4000
  if world.chance(2) then
    text = head(id .. ".1", "POST /text", 100, "Transfer-Encoding: chunked\r\n") .. ("1f4\r\n" .. ("x"):rep(500) .. "\r\n"):rep(bytes // 500) .. "0\r\n\r\n"
  else
    text = head(id .. ".1", "POST /text", 100, ("Content-Length: %d\r\n"):format(bytes)) .. ("x"):rep(bytes)
  end
  if not send(sock, text .. head(id, "GET /text", 100), world.chance(2) and 3000 or nil) and is_exact() and not long then sim.fail "not sent" end
  local first = answered(sock, id .. ".1", 100)
  if first and not long then answered(sock, id, 100) end
  if first and long and response(sock) then sim.fail("a request is read behind a long body that was not: " .. id) end
end

function kinds.pipelined(sock, id)
  local parts, bytes, before = {}, 200000, sim.stats().lua_bytes
  for n = 1, 60 do parts[n] = head(id .. "." .. n, "GET /text", bytes) end
  if not send(sock, table.concat(parts)) then return end
  ls.sleep(SEND / 2)
  local more = sim.stats().lua_bytes - before
  if more > LUA_MEMORY then sim.fail(("pipelined responses take %d bytes"):format(more)) end
  local until_s, guard = sim.now() + 8, ls.after(25, function() sock:abort() end) -- one response takes 100 s on a slow link
  for n = 1, 60 do if sim.now() > until_s or not answered(sock, id .. "." .. n, bytes) then break end end
  guard:cancel()
end

local function announced(sock, address)
  return send(sock, ("PROXY TCP4 10.0.0.%d 127.0.0.1 1234 8081\r\n"):format(address), world.chance(2) and 7 or nil, 0.02)
end

local function proxied(id, slow)
  local sock <close> = connect(8081)
  if not sock then return end
  local begun = sim.now()
  if slow then
    send(sock, ("PROXY TCP4 10."):sub(1, sim.random(14)))
    local _ = strict and ends(sock, id, begun, HANDSHAKE) or sock:receive(1) -- else others may take its place
    return
  end
  if not announced(sock, sim.random(3)) then return end
  for n = 1, 2 do -- the limit of the handshake is over
    if not send(sock, head(id .. "." .. n, "GET /text", 100)) then return end
    local status = response(sock)
    if status and status ~= 200 and is_exact() then sim.fail(("%s has the status %d"):format(id, status)) end
    if not status then return end
    ls.sleep(HANDSHAKE + 0.2)
  end
end

local names = {}
for name in pairs(kinds) do names[#names + 1] = name end
table.sort(names)

local function meet(kind, id)
  local sock <close> = connect()
  -- Until the server has accepted the connection, which may wait for the end of others.
  if sock and send(sock, head(id .. ".0", "GET /text", 10)) and answered(sock, id .. ".0", 10) then kinds[kind](sock, id) end
end

world.run(8, function(client, number)
  local id = ("%d.%d"):format(client, number)
  if world.chance(4) then return proxied(id, world.chance(3)) end
  meet(names[sim.random(#names)], id)
end, function()
  strict = true
  proxied("end", true)
  for n, kind in ipairs(names) do meet(kind, "end." .. n) end
  world.all(12, function(n)
    local sock <close> = connect()
    send(sock, head("end.many." .. n, "GET /text", 10))
    answered(sock, "end.many." .. n, 10)
    ls.sleep(0.5)
  end)
  for round = 1, 3 do -- the numbers of an address come back
    local socks = {}
    for n = 1, 3 do
      socks[n] = connect(8081)
      if not announced(socks[n], 9) or not send(socks[n], head(("end.address.%d.%d"):format(round, n), "GET /text", 10)) then sim.fail "not sent" end
      local status = response(socks[n])
      if (status == 200) ~= (n <= 2) then sim.fail(("connection %d of an address: %s"):format(n, status)) end
    end
    for n = 4, 5 do -- the second one is refused when it is accepted
      socks[n] = connect(8082, n == 5)
      local status = socks[n] and send(socks[n], head(("end.address.%d.%d"):format(round, n), "GET /text", 10)) and response(socks[n])
      if (status == 200) ~= (n == 4) then sim.fail(("connection %d of an address: %s"):format(n - 3, status)) end
    end
    for _, sock in pairs(socks) do sock:close() end
    ls.sleep(1)
  end
  local peak = sim.stats().bytes_peak
  if peak > MEMORY then sim.fail(("the buffers had %d bytes"):format(peak)) end
end, { reloads = 20, rounds = 6, seconds = 60 })
