-- world.lua - what several worlds share: clients in rounds, limits of time, texts that name their request, and the counts
-- of handlers that began and ended. A world that uses M.run is judged further by this:
--
--   - no call of M.within lasts longer than its limit
--   - every client comes to its end, and so does `after`, which runs without faults
--   - each handler of M.handler that began has ended by then
local ls, sim = require "luaserve", sim
local M = {}

local SLACK = 3            -- seconds: stalls, and threads that compute
local ROUNDS_UNTIL = sim.random(sim.random(20)) -- the simulated second at which the last round begins
local pending = {}         -- the calls of M.within that have not returned
local ended = false

-- A message that says what it is: key, number of bytes, text.
function M.message(key, most)
  local bytes = sim.random(sim.random(most))
  return ("%s %d %s"):format(key, bytes, M.text(key, bytes))
end

-- The key of a message, which must be whole.
function M.key_of(message)
  local key, bytes, text = message:match "^(%S+) (%d+) (.*)$"
  M.fail_if(not key or text ~= M.text(key, math.tointeger(bytes)), "a message is not whole: %s", message:sub(1, 80))
  return key
end

-- The world fails if this is so; the format has the arguments.
function M.fail_if(is_so, format, ...)
  if is_so then sim.fail(format:format(...)) end
end

function M.once(what) M.fail_if(sim.count(what) > 1, "%s happened twice", what) end

function M.chance(one_of) return sim.random(one_of) == 1 end
function M.pause(seconds) ls.sleep(sim.random(math.ceil(seconds * 1000)) / 1000) end

-- `bytes` bytes of text that no other id has.
function M.text(id, bytes)
  local part = "<" .. id .. ">"
  return (part:rep(bytes // #part + 1)):sub(1, bytes)
end

local function check(call) M.fail_if(sim.now() > call.until_s, "%s lasts longer than its limit", call.what) end

-- The results of fn(...), which must end within these seconds.
function M.within(seconds, what, fn, ...)
  local call = { what = what, until_s = sim.now() + seconds + SLACK }
  pending[call] = true
  return (function(...)
    check(call)
    pending[call] = nil
    return ...
  end)(fn(...))
end

-- The body of what the server answers to a request (`o` is of ls.fetch), with the answer. nil: there is no answer, which without
-- faults is a failure unless it `may_fail`, or its status is 503 or in the text `also` (the status and the body).
function M.fetch(path, o, may_fail, also)
  o.timeout = o.timeout or 20
  local answer, message = M.within(o.timeout, path, ls.fetch, "http://127.0.0.1:8080" .. path, o)
  M.fail_if(not answer and not sim.faulty and not may_fail, "%s has no answer: %s", path, message)
  if not answer then return nil, message end
  if answer.status == 200 then return answer:body(), answer end
  M.fail_if(not ("503 " .. (also or "")):find(answer.status), "%s has the status %d", path, answer.status)
  return nil, answer.status, answer:body()
end

-- Calls fn(1) to fn(count), at a time, and waits until all have ended.
function M.all(count, fn)
  local jobs = {}
  for n = 1, count do jobs[n] = ls.spawn(fn, n) end
  for _, job in ipairs(jobs) do job:wait() end
end

-- Writes the text in parts of any size up to this, with pauses; nil: the client has left.
function M.write(res, text, most)
  local at = 1
  while at <= #text do
    local size = sim.random(most)
    if not res:write(text:sub(at, at + size - 1)) then return end
    at = at + size
    if M.chance(3) then res:flush() end
    if M.chance(4) then M.pause(0.25) end
  end
  return true
end

-- A handler for /.../:id/:bytes that is counted, and runs once for an id: fn(its text, req, res, id, bytes).
function M.route(app, method, path, fn)
  app[method](app, path, M.handler(function(req, res)
    local id, bytes = req.params.id, math.tointeger(req.params.bytes)
    M.once("the handler of request " .. id)
    return fn(M.text(id, bytes), req, res, id, bytes)
  end))
end

-- A handler that is counted.
function M.handler(fn)
  return function(...)
    sim.count "handlers"
    local _ <close> = setmetatable({}, { __close = function() sim.count("handlers", -1) end })
    return fn(...)
  end
end

-- What ls.stats counts of the server now, when nobody uses it, is as it was before anybody did. Previous sites end soon, idle
-- connections at their time.
local GAUGES = { "tasks", "running.requests", "running.connections", "running.websockets", "running.site", "running.timers",
  "running.jobs", "websockets", "topic_subscriptions", "redis_waiting", "sqlite_waiting", "threads_stalled", "old_sites", "timers",
  "connections_open", "http2_connections_open", "bytes_live" }
local SECONDS = { connections_open = 80, http2_connections_open = 80, bytes_live = 80 } -- others: SLACK

local function settle(before)
  for _, name in ipairs(GAUGES) do
    local until_s, pause = sim.now() + (SECONDS[name] or SLACK), 0.25
    while (sim.stats()[name] or 0) > (before[name] or 0) do
      M.fail_if(sim.now() > until_s, "nobody uses the server, and %s is %d, not %d", name, sim.stats()[name], before[name] or 0)
      pause = 2 * pause -- nothing happens meanwhile, also in the watchdog
      ls.sleep(math.min(pause, until_s - sim.now() + 0.01))
    end
  end
end

local function watch()
  while not ended do
    ls.sleep(5) -- seldom: a call that ends is judged by itself
    for call in pairs(pending) do check(call) end
  end
end

-- Runs `count` clients, each in a job that calls round(client, number) again and again. Then, without faults,
-- after(): there everything must succeed. Options: `reloads`, one of so many rounds begins with a reload; `rounds`, of a
-- client, at most (40): without latency they are short; `gauges`, of ls.stats, that are not those of the start in the end. One run in four ends in the middle, if there are faults.
function M.run(count, round, after, options)
  ls.config { drain_timeout = 60, states = 1 }  -- 60: of a run that ends early, as a shorter one of --shrink
  ls.on("drain", function() ended = true end)
  ls.init(function()
    local before = sim.stats()
    for name, value in pairs(options and options.gauges or {}) do before[name] = value end
    ls.spawn(watch)
    local jobs, rounds, seconds = {}, sim.random(options and options.rounds or 40), options and options.seconds or 30
    for client = 1, count do
      jobs[client] = ls.spawn(function()
        for number = 1, rounds do
          M.within(seconds, "round " .. number .. " of client " .. client, round, client, number)
          if sim.now() > ROUNDS_UNTIL or ended then break end
          if options and options.reloads and M.chance(options.reloads) then sim.reload() end
        end
      end)
    end
    if sim.faulty and M.chance(4) then
      sim.expect "ended early" -- a slow client may take longer than drain_timeout
      ls.sleep(sim.random(ROUNDS_UNTIL * 1000) / 1000)
      sim.count "stops"
      return sim.done()
    end
    ls.spawn(function()
      for _, job in ipairs(jobs) do job:wait() end
      sim.calm()
      ls.sleep(3) -- longer than the pause after "no descriptors", and than handlers that are under way
      if after then M.within(2 * seconds, "the end without faults", after) end
      for _ = 1, 20 do
        if sim.count("handlers", 0) == 0 then break end
        ls.sleep(1)
      end
      local left = sim.count("handlers", 0)
      if left ~= 0 then sim.fail(left .. " handlers have not ended") end
      settle(before)
      ended = true
      sim.done(true)
    end)
  end)
end

return M
