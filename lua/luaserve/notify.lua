-- notify.lua - ls.notify: the names of events; the rest is the core's.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
usage.ours()

local notify = {}

local bits = { ["in"] = 1, out = 2, hangup = 4, err = 0 } -- an error is told whether it was asked for or not
local known = { trigger = true, oneshot = true }

-- "in|hangup" or { "in", "hangup" } -> the core's number. Raises on an unknown name.
local function filter_of(who, events)
  local names = {}
  if type(events) == "string" then
    for name in events:gmatch("[^|,%s]+") do names[#names + 1] = name end
  elseif type(events) == "table" then
    for i, name in ipairs(events) do names[i] = name end
  else
    usage.raise('%s: events are a text such as "in|hangup", or a list of names; got %s', who, usage.show(events))
  end
  if #names == 0 then
    usage.raise('%s: name at least one event: "in", "out", "hangup" or "err"; got %s', who, usage.show(events))
  end
  local filter = 0
  for _, name in ipairs(names) do
    if not bits[name] then
      usage.raise("%s: there is no event %s%s", who, usage.show(name), usage.hint(name, bits))
    end
    filter = filter | bits[name]
  end
  return filter
end

-- ls.notify(fd, events [, { trigger = "level" | "edge", oneshot = bool }]) -> n | nil, message, code. fd: a number, a file
-- of io.popen or io.open, or a socket of ls.socket. n:wait([timeout]) -> { ["in"] = true, ... } | nil, message, code;
-- n:rearm([events]); n:remove(). Raises on unknown names and wrong types, and while the site loads.
function notify.notify(fd, events, given)
  local filter = filter_of("ls.notify", events)
  local edge, oneshot = false, false
  if given ~= nil then
    if type(given) ~= "table" then
      usage.raise("ls.notify: options are a table; got %s", usage.show(given))
    end
    options.check_names("ls.notify", given, known)
    if given.trigger ~= nil and given.trigger ~= "level" and given.trigger ~= "edge" then
      usage.raise('ls.notify: trigger is "level" or "edge"; got %s', usage.show(given.trigger))
    elseif given.oneshot ~= nil and type(given.oneshot) ~= "boolean" then
      usage.raise("ls.notify: oneshot is true or false; got %s", usage.show(given.oneshot))
    end
    edge, oneshot = given.trigger == "edge", given.oneshot or false
  end
  local ok, n, message, code = pcall(core.notify, fd, filter, edge, oneshot)
  if not ok then
    usage.raise("ls.notify: %s", (tostring(n):gsub("^bad argument #%d+ to '[^']*' %((.*)%)$", "%1")))
  end
  return n, message, code
end

-- n:rearm([events]) -> true | nil, message, code
local methods = core.notify_methods and core.notify_methods()
if methods then
  local rearm = methods.rearm_core
  methods.rearm_core = nil
  function methods.rearm(n, events)
    local ok, done, message, code = pcall(rearm, n, events ~= nil and filter_of("n:rearm", events) or nil)
    if not ok then usage.raise("%s", tostring(done)) end
    return done, message, code
  end
end

-- ls.socket("udp" | "tcp" [, "ip4" | "ip6"]) -> socket | nil, message, code: one that is waited for with ls.notify. Its
-- calls never wait: nil, message, "EAGAIN". Raises on another kind.
function notify.socket(kind, family)
  if kind ~= "udp" and kind ~= "tcp" then
    usage.raise('ls.socket: the kind is "udp" or "tcp"; got %s', usage.show(kind))
  elseif family ~= nil and family ~= "ip4" and family ~= "ip6" then
    usage.raise('ls.socket: the family is "ip4" or "ip6"; got %s', usage.show(family))
  end
  return core.socket(kind, family)
end

return notify
