-- presence.lua - who is subscribed to a topic: ws:subscribe(topic, { presence = name }), sock:subscribe likewise, ls.presence,
-- ls.on_presence.
--
-- A member is a second subscription of its connection, to a topic of its own: HIDDEN, the topic, a zero byte, the name. So it
-- ends exactly when the connection does, in whichever way, and the numbers of subscribers of all states are those of the
-- members. With the Redis of ls.config, a timer of the first state publishes the members of this server when they have changed, and
-- each SYNC_S; the others keep them for LOST_S.

local core = require "luaserve.core"
local json = require "luaserve.json"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

local ipairs, next, pairs, pcall, setmetatable, tostring, type =
  ipairs, next, pairs, pcall, setmetatable, tostring, type
local now, own_topic = core.now, core.own_topic

local presence = {}

local HIDDEN <const> = "luaserve:presence\0"
local CHANGED <const>, SYNC <const> = "luaserve:presence:changed", "luaserve:presence:sync"
local TICK_S <const>, SYNC_S <const>, LOST_S <const> = 0.5, 5, 15
local PAUSE_S <const> = 0.05 -- of many that join at once, only some cause a look; the timer sees the others
local NAME_BYTES_MAX <const>, TOPIC_BYTES_MAX <const> = 200, 800

local subscribe_options = {
  presence = true, -- string - the name of a member, for ls.presence; the same one may be there several times
}
presence.calls = { ["ws:subscribe"] = { subscribe_options } } -- PresenceOptions
presence.calls["sock:subscribe"] = presence.calls["ws:subscribe"]

local names = setmetatable({}, { __mode = "k" }) -- by connection, by topic
local watched = {} -- by topic: { fn =, known = a set }
local is_set_up, servers, id, sent, sent_at

local function check_topic(call, topic)
  usage.refuse(type(topic) ~= "string" or topic == "" or #topic > TOPIC_BYTES_MAX or topic:find("%z"), topic,
    "%s: a topic with members must be a string of 1 to %d bytes without a zero byte", call, TOPIC_BYTES_MAX)
end

-- leave(call, ws, topic): the member of this subscription leaves.
function presence.leave(_, ws, topic)
  local of = names[ws]
  if not of or not of[topic] then return end
  ws:unsubscribe(own_topic(HIDDEN .. topic .. "\0" .. of[topic]))
  of[topic] = nil
  core.publish_here(own_topic(CHANGED), topic)
end

-- subscribe(call, ws, topic, options) -> true | nil, message, code: ws:subscribe with options
function presence.subscribe(call, ws, topic, given, ...)
  check_topic(call, topic)
  usage.no_more(call .. "(topic, options)", given, ...)
  usage.check(given, "table", '%s: options must be a table such as { presence = "ada" }', call)
  options.check_names(call, given, subscribe_options)
  local name = given.presence
  usage.refuse(type(name) ~= "string" or name == "" or #name > NAME_BYTES_MAX or name:find("%z") or not utf8.len(name), name,
    "%s: presence must be the name of a member, a string of 1 to %d bytes of UTF-8; without options the connection is no member", call, NAME_BYTES_MAX)
  local of = names[ws] or {}
  if of[topic] ~= name then presence.leave(call, ws, topic) end
  local done, message, code = ws:subscribe(topic)
  if done then done, message, code = ws:subscribe(own_topic(HIDDEN .. topic .. "\0" .. name)) end
  if not done then return nil, message, code end
  names[ws], of[topic] = of, name
  core.publish_here(own_topic(CHANGED), topic)
  return true
end

-- The members of this server: by topic, sets of names. Of one topic, or of all.
local function members(topic)
  local found = {}
  for hidden, count in pairs(core.topics(HIDDEN .. (topic and topic .. "\0" or ""))) do
    local of, name = hidden:match("^([^\0]*)\0(.*)$", #HIDDEN + 1)
    if count > 0 then
      found[of] = found[of] or {}
      found[of][name] = true
    end
  end
  return found
end

local function list_of(set) return json.array(options.sorted(set)) end

-- ls.presence(topic) -> names: string[]
-- The members of a topic, sorted: in all Lua states, and on all servers with the Redis of ls.config.
function presence.of(topic, ...)
  check_topic("ls.presence", topic)
  usage.no_more("ls.presence(topic)", topic, ...)
  local set = members(topic)[topic] or {}
  for _, server in ipairs(servers and servers:keys() or {}) do
    local others = servers:get(server)
    for _, name in ipairs(others and others[topic] or {}) do set[name] = true end
  end
  return list_of(set)
end

-- ---- changes -----------------------------------------------------------------------------------------------------------

local function tell(topic, entry, name, here)
  local ok, message = pcall(entry.fn, name, here, topic)
  if not ok then core.log("error", ("ls.on_presence %q: %s"):format(topic, tostring(message))) end
end

-- Calls the functions for what has changed. A change while one waits is for the next call.
local looked_at = 0
local function look()
  looked_at = now()
  for topic, entry in pairs(watched) do
    if not entry.busy then
      entry.busy = true
      local before, list, set = entry.known, presence.of(topic), {}
      for _, name in ipairs(list) do set[name] = true end
      entry.known = set
      for _, name in ipairs(list_of(before)) do
        if not set[name] then tell(topic, entry, name, false) end
      end
      for _, name in ipairs(list) do
        if not before[name] then tell(topic, entry, name, true) end
      end
      entry.busy = false
    end
  end
end

-- Tells the other servers who is here, if that has changed or they would drop it.
local function sync(again)
  if not servers then return end
  local all = {}
  for topic, set in pairs(members()) do all[topic] = list_of(set) end
  local text = next(all) == nil and "{}" or json.encode(all)
  if not again and text == sent and (text == "{}" or now() - sent_at < SYNC_S) then return end
  sent, sent_at = text, now()
  core.publish(own_topic(SYNC), { server = id, topics = text, asks = again == "asks" or nil })
end

local function received(data)
  local message = json.decode(data)
  if message.server == id then return end
  if message.topics == "{}" then servers:delete(message.server) else servers:set(message.server, json.decode(message.topics), LOST_S) end
  if message.asks then sync("again") end
  look()
end

-- set_up(redis): the timer and the subscriptions of the server, at the top of the file. redis: there are other servers.
function presence.set_up(redis)
  if redis and not servers then
    servers = require("luaserve.dict").open("luaserve.presence")
    local own = require("luaserve.dict").open("luaserve.presence.server")
    own:add("id", core.crypto_encode(1, core.crypto_random(12)))
    id = own:get("id")
    core.subscribe(own_topic(SYNC), received)
    local is_first = false
    core.init(function() is_first = true end)
    core.on("start", function() if is_first then sync "asks" end end)
    core.on("drain", function() -- at a reload they stay
      for _ = 1, is_first and 20 or 0 do
        if next(members()) == nil then return sync() end
        core.sleep(0.05)
      end
    end)
  end
  if is_set_up then return end
  is_set_up = true
  core.subscribe(own_topic(CHANGED), function()
    if now() - looked_at >= PAUSE_S then look() end
  end)
  core.every(TICK_S, function()
    sync()
    look()
  end)
end

-- ls.on_presence(topic, fn: fun(name: string, here: boolean, topic: string))
-- Calls a function when a member of the topic has joined or left: once for the server. Only while the site loads.
function presence.on(topic, fn, ...)
  local call <const> = "ls.on_presence"
  check_topic(call, topic)
  usage.check(fn, "function", "%s: the second argument must be a function(name, here)", call)
  usage.no_more("ls.on_presence(topic, fn)", fn, ...)
  if watched[topic] then usage.error("%s: the topic %s has a function already", call, usage.quote(topic)) end
  if core.thread() ~= 0 then usage.error("%s: call it while the site loads, at the top of the file", call) end
  if core.dev then require("luaserve.dev_state").watch_pattern(topic) end
  presence.set_up(false)
  local entry = { fn = fn, known = {} }
  watched[topic] = entry
  core.init(function(reload) -- those who are here at a reload have been told
    for _, name in ipairs(reload and presence.of(topic) or {}) do entry.known[name] = true end
  end)
end

return presence
