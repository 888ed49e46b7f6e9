-- notify.lua - ls.notify and ls.socket: checks the arguments and translates names of events for the core.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

local notify = {}

local bits = { ["in"] = 1, out = 2, hangup = 4, err = 0 } -- errors are always reported

local notify_options = {
  trigger = { "trigger", "choice", "level", "edge", "level" }, -- whether events are reported while they last, or once
  oneshot = { "oneshot", "flag", nil, nil, false }, -- after one report nothing is reported until n:rearm
}
notify.calls = { ["ls.notify"] = { notify_options } } -- NotifyOptions

-- filter_of(fname, "in|hangup" | { "in", "hangup" }) -> the bits of the core. Raises on an unknown name.
function notify.filter_of(fname, events)
  local names = {}
  if type(events) == "string" then
    for name in events:gmatch("[^|,%s]+") do names[#names + 1] = name end
  elseif type(events) == "table" then
    for i, name in ipairs(events) do names[i] = name end
  else
    usage.error('%s: events must be a string such as "in|hangup" or a list of names; got %s', fname,
      usage.quote(events))
  end
  usage.refuse(#names == 0, events, '%s: name at least one event: "in", "out", "hangup" or "err"', fname)
  local filter = 0
  for _, name in ipairs(names) do
    if not bits[name] then
      usage.error("%s: unknown event %s%s", fname, usage.quote(name), usage.suggest(name, bits))
    end
    filter = filter | bits[name]
  end
  return filter
end

-- ls.notify(fd: integer|Socket|file*, events: string|string[] [, options: NotifyOptions]) -> n | nil, message, code
-- Registers a descriptor, or an object that has one, to wait for its events: names in a list, or separated by spaces,
-- commas or `|`: `"in"`, `"out"`, `"hangup"`, `"err"`. Not while the site loads.
function notify.notify(fd, events, given, ...)
  usage.no_more("ls.notify(fd, events, options)", given, ...)
  local filter = notify.filter_of("ls.notify", events)
  usage.check(given, "table?", "ls.notify: options must be a table")
  local out = options.take("ls.notify", given or {}, notify.calls["ls.notify"], {})
  local ok, n, message, code = pcall(core.notify, fd, filter, out.trigger == "edge", out.oneshot)
  if not ok then
    usage.error("ls.notify: %s", (tostring(n):gsub("^bad argument #%d+ to '[^']*' %((.*)%)$", "%1")))
  end
  return n, message, code
end

-- ls.socket(kind: "tcp"|"udp" [, family: "ip4"|"ip6"]) -> socket | nil, message, code
-- Makes a non-blocking socket, for use with ls.notify.
function notify.socket(kind, family, ...)
  usage.no_more("ls.socket(kind, family)", family, ...)
  if kind ~= "udp" and kind ~= "tcp" then
    usage.error('ls.socket: the kind must be "udp" or "tcp"; got %s', usage.quote(kind))
  elseif family ~= nil and family ~= "ip4" and family ~= "ip6" then
    usage.error('ls.socket: the family must be "ip4" or "ip6"; got %s', usage.quote(family))
  end
  return core.socket(kind, family)
end

return notify
