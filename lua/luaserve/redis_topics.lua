-- redis_topics.lua - the option redis of ls.config: topics that reach the servers of other machines, and the Redis that
-- dicts are in.
--
-- One state of the server, the first one of the site, has both tasks.
-- Out: ls.publish of every state puts a message into a channel; a task sends them with numbers. A message may be sent twice
-- after a loss: the receivers drop the second one, and count the numbers that are missing.
-- In: a task receives all messages, and publishes those of other servers in this one.
-- A new site subscribes before it serves, and keeps what comes until its turn: when the tasks of the old one have ended and
-- have left the numbers that they know. The old one receives until Redis answers a PING that it sends when it is replaced:
-- what was published later has reached the new one. A site that is replaced before its turn still takes it.

local core = require "luaserve.core"
local json = require "luaserve.json"
local usage = require "luaserve.usage"

-- A site may replace the globals.
local ipairs, pairs, pcall, tostring, type = ipairs, pairs, pcall, tostring, type
local max, min, pack, sub, unpack, move = math.max, math.min, string.pack, string.sub, string.unpack, table.move
local unpack_list = table.unpack
local now = core.now

local topics = {}

local node_of = require("luaserve.redis_node").of

local PREFIX <const> = "luaserve:topic:"
local RETAINED <const> = "luaserve:retained" -- a hash: the last retained message of each topic
local HEAD <const> = "<c8 c8 I8" -- server, sender, number; the rest follows
local HEAD_BYTES <const> = 24
local REST <const> = "<B s2 s2" -- flags, event, id; the data follow
local TEXT <const>, RETAIN <const> = 1, 2 -- flags
local QUEUED <const> = "<d s2" -- when, topic; the flags, event and id as in HEAD, and the data follow
local BATCH <const> = 64 -- messages that leave together
local QUEUE_MAX <const>, QUEUE_BYTES_MAX <const> = 100000, 64 << 20 -- messages that wait for Redis
local QUEUE_SECONDS_MAX <const>, ENDING_SECONDS_MAX <const> = 10, 1 -- the latter when the site has ended
local HELD_MAX <const> = 100000 -- messages that a new site keeps until it serves
local SENDERS_MAX <const>, SENDER_SECONDS <const> = 4096, 600 -- older ones are dropped above this number
local SAY_S <const> = 10
local PAUSE_S <const>, PAUSE_S_MAX <const>, SEND_PAUSE_S_MAX <const> = 0.05, 2, 0.5
local PONG_S <const> = 2 -- the previous site waits so long for the answer
local HANDOVER_S <const> = 5 -- the new one so long for its turn

local client -- of the site
local server, sender -- their ids
-- A dict: "server", "sites" (senders in the order of their sites; the first has its turn), "known", "dropped", "bytes".
local shared
local queue -- a channel of strings
local STOP <const> = "" -- in the queue: wakes the task that sends
local ending = false -- this site has ended

-- Counts, and says it in the log at most every ten seconds; the rest at the end of these or of the site.
local said = {}
local function say(what, one)
  if one.count > 0 then core.log("warn", ("topics: %d messages %s"):format(one.count, what)) end
  one.count, one.at, one.waits = 0, now(), false
end

local function say_later(what, one)
  local gate = core.redis_connection()
  gate:wait(max(one.at + SAY_S - now(), 0), "idle")
  say(what, one)
end

local function lost(count, what)
  core.redis_count("lost", count)
  local one = said[what] or { count = 0, at = -SAY_S, waits = false }
  said[what], one.count = one, one.count + count
  if now() - one.at >= SAY_S then
    say(what, one)
  elseif not one.waits then
    one.waits = pcall(core.spawn, say_later, what, one)
  end
end

-- ---- out -----------------------------------------------------------------------------------------------------------

local function field(options, name) return type(options) == "table" and options[name] or "" end

local function enqueue(topic, data, options)
  if type(data) == "table" then data = json.encode(data) else data = tostring(data) end
  local binary = options == "binary" or field(options, "kind") == "binary"
  local flags = (binary and 0 or TEXT) | (field(options, "retain") == true and RETAIN or 0)
  local text = pack(QUEUED, now(), topic) .. pack(REST, flags, field(options, "event"), field(options, "id")) .. data
  if shared:incr("bytes", #text) > QUEUE_BYTES_MAX or not queue:send(text, 0) then
    shared:incr("bytes", -#text)
    shared:incr("dropped")
    lost(1, "were not sent to Redis: too many wait for it")
  end
end

-- In place of ls.publish, which calls it (core.publish_through).
local function publish(topic, data, options, ...)
  if field(options, "id") == true or math.type(field(options, "retain")) == "integer" then
    usage.error("ls.publish: id = true and a number as retain are of one server, and not with redis of ls.config")
  end
  local ok, count, message, code = pcall(core.publish_here, topic, data, options, ...)
  if not ok then usage.error("%s", (tostring(count):gsub("publish_here", "publish"))) end
  if not count then return nil, message, code end
  enqueue(tostring(topic), data, options)
  return count
end

-- The messages that wait, at most BATCH; waits for one, unless the site has ended -> batch, whether no more wait
local function take_batch()
  local batch, text = {}, queue:receive(ending and 0 or nil)
  while text and text ~= STOP do
    shared:incr("bytes", -#text)
    batch[#batch + 1] = text
    if #batch == BATCH then return batch, false end
    text = queue:receive(0)
  end
  return batch, true
end

-- The commands of a batch, with the next numbers.
local number, skipped = 0, 0
local function commands_of(batch)
  local dropped = shared:get("dropped") or 0
  number, skipped = number + dropped - skipped, dropped
  for i, text in ipairs(batch) do
    local at, topic, rest = unpack(QUEUED, text)
    number = number + 1
    local message = pack(HEAD, server, sender, number) .. sub(text, rest)
    batch[i] = { "PUBLISH", PREFIX .. topic, message, n = 3, at = at, topic = topic, retain = false }
    local flags, _, _, data = unpack(REST, text, rest)
    if flags & RETAIN ~= 0 then
      batch.retain = true
      batch[i].retain = data <= #text and "set" or "remove"
    end
  end
  return batch
end

-- Store the retained messages of a batch -> true | nil, message
local function store(batch)
  if not batch.retain then return true end
  local replies, message = require("luaserve.redis").pipeline(client, function(p)
    for _, one in ipairs(batch) do
      if one.retain == "set" then p:hset(RETAINED, one.topic, one[3]) end
      if one.retain == "remove" then p:hdel(RETAINED, one.topic) end
    end
  end)
  return replies and true, message
end

-- Ends with the site. What Redis does not take then stays in the queue, for the next site.
local function send_all()
  skipped = shared:get("dropped") or 0
  local refused = false
  repeat
    local batch, empty = take_batch()
    local pause = PAUSE_S
    commands_of(batch)
    while batch[1] do
      local node = node_of(client)
      local conn, replies
      local stored, message = store(batch)
      if stored then conn, message = node:shared() end
      if conn then replies, message = conn:many(node.settings.reply_ms, batch) end
      for i = 1, replies and #replies or 0 do
        local reply = replies[i]
        if type(reply) == "table" and reply.err then lost(1, "were refused by Redis: " .. reply.err) end
      end
      if replies then break end
      local kept, limit = { retain = batch.retain }, ending and ENDING_SECONDS_MAX or QUEUE_SECONDS_MAX
      refused = ending
      for _, command in ipairs(batch) do
        if now() - command.at <= limit then kept[#kept + 1] = command end
      end
      if #kept < #batch then lost(#batch - #kept, "did not reach Redis: " .. message) end
      batch = kept
      if batch[1] then core.sleep(pause) end
      pause = min(pause * 2, SEND_PAUSE_S_MAX)
    end
  until ending and (empty or refused) -- the STOP of one site may wake that of another, when the handover took too long
end

-- ---- in ------------------------------------------------------------------------------------------------------------

local known, known_count = {}, 0 -- sender -> { number, when }

local function drop_old()
  for id, one in pairs(known) do
    if now() - one[2] > SENDER_SECONDS then known[id], known_count = nil, known_count - 1 end
  end
end

local restored = {} -- the heads of retained messages that were read, and may arrive as well

-- A message of a channel; `retained`: that Redis has kept of this topic.
local function take_in(channel, text, retained)
  local ok, from, id, at, rest = pcall(unpack, HEAD, text)
  local fine, flags, event, event_id, data = pcall(unpack, REST, text, rest)
  if not ok or not fine then return lost(1, "of Redis are none of luaserve: " .. usage.quote(channel)) end
  if from == server then return end
  local one, head = known[id], sub(text, 1, HEAD_BYTES)
  if retained then
    if one and at <= one[1] then return end
    restored[head] = true
  elseif not one then
    if known_count >= SENDERS_MAX then drop_old() end
    one, known_count = { at - 1 }, known_count + 1
    known[id] = one
  end
  if not retained then
    if at <= one[1] then return end -- sent again after a loss, or known by the previous site
    if at > one[1] + 1 then lost(at - one[1] - 1, "of other servers were lost") end
    one[1], one[2] = at, now()
    if restored[head] then
      restored[head] = nil
      return
    end
  end
  local count, message
  local topic = sub(channel, #PREFIX + 1)
  if sub(topic, 1, 9) == "luaserve:" then topic = core.own_topic(topic) end
  ok, count, message = pcall(core.publish_here, topic, sub(text, data), {
    kind = flags & TEXT ~= 0 and "text" or "binary", retain = flags & RETAIN ~= 0,
    event = event ~= "" and event or nil, id = event_id ~= "" and event_id or nil,
  })
  if not ok or not count then lost(1, "of other servers could not be published: " .. tostring(message or count)) end
end

local held = {} -- until this site serves
local function hold(...)
  if #held < HELD_MAX then held[#held + 1] = { ... } else lost(1, "came before the site served") end
end
local take = hold

local receiving -- the connection
-- Wait for messages until the connection is lost, or the answer to the last PING -> message, code
local function receive(conn, subscribed)
  conn:send("PSUBSCRIBE", PREFIX .. "*")
  while true do
    local messages, message, code = conn:read(0)
    if not messages then return message, code end
    for _, one in ipairs(messages) do
      if type(one) ~= "table" then
        return "unexpected reply: " .. usage.quote(one), "EPROTO"
      elseif one[1] == "pmessage" then
        take(tostring(one[3]), tostring(one[4]))
      elseif one[1] == "pong" then
        return "the site has ended", "ECANCELED"
      elseif one.err then
        return one.err, "EINVAL"
      else
        subscribed()
      end
    end
  end
end

-- What other servers have retained before this one has subscribed.
local function restore()
  local list, message = require("luaserve.redis").ask(client, "table", "HGETALL", RETAINED)
  if not list then return core.log("warn", "topics: retained messages are missing: " .. message) end
  restored = {}
  for at = 1, #list, 2 do take(PREFIX .. tostring(list[at]), tostring(list[at + 1]), true) end
end

local function listen_all(gate)
  local node, pause, was_connected = nil, PAUSE_S, false
  local function subscribed()
    if was_connected then
      core.redis_count("reconnects", 1)
      core.log("info", "topics: connected to " .. node.target .. " again")
    end
    was_connected, pause = true, PAUSE_S
    restore()
    gate:wake()
  end
  while not core.retired() do
    node = node_of(client)
    local conn, message = node:open(false)
    if conn and core.retired() then -- while it was opened: hand_over has found none to end
      conn:close()
      return
    elseif conn then
      local code
      conn:outlast()
      receiving = conn
      message, code = receive(conn, subscribed)
      receiving = nil
      conn:close()
      if code == "ECANCELED" or core.retired() then return end
      message = node.target .. ": " .. message
    end
    if pause == PAUSE_S then
      core.log("warn", message .. "; the messages of other servers are lost until it is connected again")
    end
    gate:wake()
    core.sleep(pause)
    pause = min(pause * 2, PAUSE_S_MAX)
  end
end

local function guard(fn, ...)
  local ok, err = pcall(fn, ...)
  if not ok then core.log("error", "topics: " .. tostring(err)) end
end

local function listen(gate)
  core.detach()
  guard(listen_all, gate)
end

local input, turn, output -- jobs: the one that receives, take_over, the one that sends

-- The senders from this one on, or after it.
local function from(after)
  return function(sites)
    for at = 1, #(sites or {}) do
      if sites[at] == sender then return move(sites, at + after, #sites, 1, {}) end
    end
    return sites
  end
end

local function take_over()
  local limit = now() + HANDOVER_S
  while shared:get("sites")[1] ~= sender and now() < limit do core.sleep(0.01) end
  shared:update("sites", from(0))
  for id, at in pairs(shared:get("known") or {}) do
    if not known[id] then known[id], known_count = { at, now() }, known_count + 1 end
  end
  output = core.spawn(guard, send_all)
  local at = 1
  while held[at] do
    take_in(unpack_list(held[at]))
    at = at + 1
  end
  held, take = {}, take_in
end

-- This site serves.
local function start()
  core.detach()
  shared:update("sites", function(sites)
    sites = sites or {}
    sites[#sites + 1] = sender
    return sites
  end)
  turn = core.spawn(guard, take_over)
end

-- This site is replaced, or the server stops.
local function hand_over()
  if not turn then return end -- it has never served
  turn:wait()
  local limit = now() + PONG_S
  if receiving then receiving:send("PING") end
  while receiving and now() < limit do core.sleep(0.005) end
  if receiving then receiving:close() end
  input:wait()
  ending = true
  queue:send(STOP, 0) -- a queue without room wakes the task, too
  output:wait()
  if queue:len() > 0 then core.log("warn", ("topics: %d messages wait for Redis"):format(queue:len())) end
  local numbers = {}
  for id, one in pairs(known) do numbers[id] = one[1] end
  shared:set("known", numbers)
  shared:update("sites", from(1))
end

-- ---- configure ---------------------------------------------------------------------------------------------------

-- configure(value): of ls.config. Raises.
function topics.configure(value)
  local redis = require "luaserve.redis"
  local given = redis.is(value) and value or nil
  usage.refuse(not given and type(value) ~= "string", value,
    'ls.config: redis must be a URL, such as "redis://127.0.0.1:6379/0", or a client of ls.redis')
  if client then
    if client == (given or redis.open(value)) then return end
    usage.error("ls.config: redis is set already")
  end
  client = given or redis.open(value)
  shared = require("luaserve.dict").open("luaserve.redis_topics")
  shared:add("server", core.crypto_random(8))
  server, sender = shared:get("server"), core.crypto_random(8)
  queue = require("luaserve.channel").channel("luaserve.redis_topics", { capacity = QUEUE_MAX })
  core.publish_through(publish)
  require("luaserve.presence").set_up(true)
  local first_state = false
  core.init(function()
    first_state = true
    core.detach() -- it subscribes before the previous site ends
    local gate = core.redis_connection()
    input = core.spawn(listen, gate)
    gate:wait(client.node.settings.limits.connect_ms_max / 1000)
  end)
  core.on("start", function() if first_state then start() end end)
  core.on("drain", function()
    guard(hand_over)
    for what, one in pairs(said) do say(what, one) end
  end)
end

-- client_of(call, redis) -> the client that the option redis gives: for true that of ls.config{ redis = ... }. Raises
-- without one.
function topics.client_of(call, redis)
  if redis == true and not client then
    usage.error('%s: redis = true needs ls.config{ redis = "redis://host:6379/0" } before it, or give a client: redis = '
      .. 'ls.redis("redis://host:6379/0")', call)
  end
  if redis == true then return client end
  if require("luaserve.redis").is(redis) then return redis end
  usage.error("%s: redis must be true or a client of ls.redis; got %s", call, usage.quote(redis))
end

return topics
