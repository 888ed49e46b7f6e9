-- notify.lua - ls.notify and ls.socket: checks the arguments and translates names of events for the core.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
usage.mark_internal()

local notify = {}

local bits = { ["in"] = 1, out = 2, hangup = 4, err = 0 } -- errors are always reported
local known = { trigger = true, oneshot = true }

notify.known = { ["ls.notify"] = known } -- for the tests

-- filter_of(fname, "in|hangup" | { "in", "hangup" }) -> the bits of the core. Raises on an unknown name.
local function filter_of(fname, events)
  local names = {}
  if type(events) == "string" then
    for name in events:gmatch("[^|,%s]+") do names[#names + 1] = name end
  elseif type(events) == "table" then
    for i, name in ipairs(events) do names[i] = name end
  else
    usage.error('%s: events must be a string such as "in|hangup" or a list of names; got %s', fname,
      usage.quote(events))
  end
  if #names == 0 then
    usage.error('%s: name at least one event: "in", "out", "hangup" or "err"; got %s', fname, usage.quote(events))
  end
  local filter = 0
  for _, name in ipairs(names) do
    if not bits[name] then
      usage.error("%s: unknown event %s%s", fname, usage.quote(name), usage.suggest(name, bits))
    end
    filter = filter | bits[name]
  end
  return filter
end

-- ls.notify(fd, events [, { trigger = "level" | "edge", oneshot = bool }]) -> n | nil, message, code. fd: a number, a
-- file of io.popen or io.open, or a socket of ls.socket. n:wait([timeout]) -> { ["in"] = true, ... } | nil, message,
-- code; n:rearm([events]); n:remove(). Raises on unknown names, on wrong types and while the site loads.
function notify.notify(fd, events, given)
  local filter = filter_of("ls.notify", events)
  local edge, oneshot = false, false
  if given ~= nil then
    if type(given) ~= "table" then
      usage.error("ls.notify: options must be a table; got %s", usage.quote(given))
    end
    options.check_names("ls.notify", given, known)
    if given.trigger ~= nil and given.trigger ~= "level" and given.trigger ~= "edge" then
      usage.error('ls.notify: trigger must be "level" or "edge"; got %s', usage.quote(given.trigger))
    elseif given.oneshot ~= nil and type(given.oneshot) ~= "boolean" then
      usage.error("ls.notify: oneshot must be true or false; got %s", usage.quote(given.oneshot))
    end
    edge, oneshot = given.trigger == "edge", given.oneshot or false
  end
  local ok, n, message, code = pcall(core.notify, fd, filter, edge, oneshot)
  if not ok then
    usage.error("ls.notify: %s", (tostring(n):gsub("^bad argument #%d+ to '[^']*' %((.*)%)$", "%1")))
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
    if not ok then usage.error("%s", tostring(done)) end
    return done, message, code
  end
end

-- ls.socket("udp" | "tcp" [, "ip4" | "ip6"]) -> socket | nil, message, code. A non-blocking socket, for use with
-- ls.notify: a call that would block returns nil, message, "EAGAIN". Raises on another kind or family.
function notify.socket(kind, family)
  if kind ~= "udp" and kind ~= "tcp" then
    usage.error('ls.socket: the kind must be "udp" or "tcp"; got %s', usage.quote(kind))
  elseif family ~= nil and family ~= "ip4" and family ~= "ip6" then
    usage.error('ls.socket: the family must be "ip4" or "ip6"; got %s', usage.quote(family))
  end
  return core.socket(kind, family)
end

return notify
