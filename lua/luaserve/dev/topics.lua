-- topics.lua - dev mode warns of messages of topics and channels that come too late, out of order or to one client of several.

local dicts = require "luaserve.dev.dicts"
local site = require "luaserve.dev.site"
local tasks = require "luaserve.dev.tasks"
local usage = require "luaserve.usage"

local getmetatable_of, getupvalue, next, running = debug.getmetatable, debug.getupvalue, next, coroutine.running
local here, lines_of, site_info, warn = site.here, site.lines_of, site.site_info, site.warn

local topics = {}

local watched_methods -- of channels

-- carries(data, options, number) -> whether the message of ls.publish has the number, which is text.
local function carries(data, options, number)
  if type(options) == "table" and options.id == number then return true end
  if type(data) ~= "table" then data = { data } end
  for _, value in pairs(data) do
    local text = (type(value) == "string" or type(value) == "number") and tostring(value)
    if text and text:find("%f[%w_.-]" .. number:gsub("%p", "%%%0") .. "%f[^%w_.-]") then return true end
  end
  return false
end

-- topics.watch_publish(topic, data, options): a task publishes a message.
function topics.watch_publish(topic, data, options)
  local entries = site.loaded and tasks.entries()
  if not entries or type(topic) ~= "string" then return end
  tasks.watch_effect("ls.publish", tasks.after_it)
  for name in pairs(entries.written or {}) do site.notes():set(topic .. "\0" .. name, true) end
  if entries.reread and not entries.origin and not tasks.is_locked() and not (type(data) == "table" and data.version) then
    here("changes the dict %q and publishes what it then has: another request may publish its newer "
      .. "state first, and the older one stays. Do all of it in one step under a semaphore, as in order:with(fn)", entries.reread)
  end
  for number in pairs(not entries.origin and not tasks.is_locked() and entries.counted or {}) do
    if carries(data, options, number) then
      here("publishes a number that incr has given: another request may publish its later number first, and the older one stays. Do both in one "
        .. "step under a semaphore, as in order:with(fn), or leave the number to the topic: { retain = 100, id = true }")
    end
  end
end

-- topics.watch_pattern(topic): ls.subscribe is called.
function topics.watch_pattern(topic)
  local before = type(topic) == "string" and topic:match("^(.-)%W*%*")
  if before then
    here("subscribes to %q, and a topic is no pattern: subscribe to each topic, or publish to %q as well", topic, before)
  end
end

-- topics.watch_topic(topic): a connection subscribes.
function topics.watch_topic(topic)
  topics.watch_pattern(topic)
  local entries = site.loaded and not tasks.is_locked() and tasks.entries()
  for of, keys in next, entries or {} do
    for key, read in next, type(of) ~= "string" and type(keys) == "table" and keys or {} do
      local all = dicts.of_all[key] or type(read) == "table" and read.call == "pairs"
      if type(read) == "table" and site.notes():get(topic .. "\0" .. (all and tasks.named(of) or tasks.named(of, key))) then
        here("subscribes to %q after it has read %s: a message of the time in between is missing. Let the topic keep the last messages, which a "
          .. "new subscriber gets first: ls.publish(topic, data, { retain = 50 }); or read and subscribe in one step, under the semaphore of "
          .. "the publisher", topic, tasks.names_of[of] and ("the dict %q"):format(tasks.names_of[of]) or "the table " .. tostring(key))
      end
    end
  end
end

-- watch_receiver(channel): a task takes a value. Warns of a loop that sends the values to its client, when another client
-- runs it as well.
local function watch_receiver(channel)
  local entries = site.loaded and tasks.entries()
  local info = entries and not entries.origin and site_info()
  if not info or not table.concat(lines_of(info, info.currentline, info.lastlinedefined), "\n"):find(":send%s*[({\"']") then
    return
  end
  local place, me = info.short_src .. ":" .. info.currentline, tostring(running())
  local key = place .. "\0" .. channel.name
  if not site.notes():add(key, me) and site.notes():get(key) ~= me then
    warn(place, "several clients take values from the channel %q, and each value goes to one of them. What all are to get "
      .. "is a message of a topic: ls.publish(topic, value), and sse:subscribe(topic) or ws:subscribe(topic)", channel.name)
  end
end

-- The results of a method of a channel; an error in its arguments is one of the line of the site.
local function at_caller(name, fine, first, ...)
  if fine then return first, ... end
  local number, text = tostring(first):match("^bad argument #(%d) to '%?' (.*)")
  if number then usage.error("bad argument #%d to '%s' %s", number - 1, name, text) end
  if tostring(first):find("^channel:") then usage.error("%s", first) end
  error(first, 0)
end

-- topics.watch_channel(channel): the site has opened it. All channels of a state have the same methods.
function topics.watch_channel(channel)
  local _, methods = getupvalue(getmetatable_of(channel).__index, 1)
  if methods == watched_methods then return end
  watched_methods = methods
  for name, watch in pairs { receive = watch_receiver, values = watch_receiver, send = tasks.effect_of "channel:send" } do
    local inner = methods[name]
    methods[name] = function(self, ...)
      if getmetatable_of(self) == getmetatable_of(channel) then watch(self) end
      return at_caller(name, pcall(inner, self, ...))
    end
  end
end

return topics
