-- health.lua - app:health: what a balancer asks before it sends requests.

local core = require "luaserve.core"
local options = require "luaserve.options"

local pcall, tostring = pcall, tostring -- a site may replace the globals

local health = {}

local health_options = {
  -- fun(): boolean, string? - whether the site can serve, such as that its database answers; and why not
  ready = { "ready", "is", "function", "a function" },
}
health.calls = { ["app:health"] = { health_options, optional = true, listed = true } } -- HealthOptions

-- handlers(given, ...) -> the handlers for the state of the server and for "live". Raises for the options of app:health.
function health.handlers(given, ...)
  local _, own = options.only("app:health", health.calls["app:health"], '("/health", { ready = fn })', given, ...)
  local ready = own.ready
  local said -- what the log has

  -- state() -> nil: ready; or the word, and the reason
  local function state()
    local server = core.readiness()
    if server ~= "ready" then return server end
    if not ready then return nil end
    local ok, is_ready, why = pcall(ready)
    local reason = not (ok and is_ready) and tostring(ok and (why or "ready returned " .. tostring(is_ready)) or is_ready) or nil
    if reason and reason ~= said then core.log("warn", "app:health: not ready: " .. reason) end
    said = reason
    return reason and "not ready"
  end

  local function respond(word, usual)
    return word and 503 or 200, (word or usual) .. "\n", { ["Cache-Control"] = "no-store" }
  end
  return function() return respond(state(), "ready") end, function() return respond(nil, "live") end
end

return health
