-- hosts.lua - the option `hosts` of ls.listen: several sites at one address, chosen by the name in the request.

local app = require "luaserve.app"
local router = require "luaserve.router"
local usage = require "luaserve.usage"

local find, sub, lower, match = string.find, string.sub, string.lower, string.match -- a site may replace the globals

local hosts = { several = false } -- whether a listener chooses between names

local forms = 'hosts = { ["a.example"] = app_a, ["*.b.example"] = app_b, default = app }'

-- check_name(name) -> the name in lower case. Raises.
local function check_name(name)
  usage.refuse(type(name) ~= "string" or name == "", name, "ls.listen: hosts needs names as keys: %s", forms)
  if lower(name) == "default" then usage.error('ls.listen: hosts: write default in small letters; got %q', name) end
  local plain = name:gsub("^%*%.", "")
  if plain:find(":%d*$") and not plain:find("^%[") then
    usage.error("ls.listen: hosts: a name has no port: write %q; got %q", (name:gsub(":%d*$", "")), name)
  elseif plain:find("*", 1, true) then
    usage.error('ls.listen: hosts: * stands only at the beginning, as in "*.b.example"; got %q', name)
  elseif plain:find("[^%w.:%[%]_-]") or plain:find("..", 1, true) or plain:find("^%.") then
    usage.error("ls.listen: hosts: invalid name %q; write names in the form that requests have them (xn--...)", name)
  end
  return (lower(name):gsub("%.$", ""))
end

-- respond_421(req, res): the name is not served here (RFC 9110 section 15.5.20).
local function respond_421() return 421 end

-- dispatcher(given, serve) -> a dispatcher as of router.compile, which chooses one by the name in the request: the name
-- itself, else the longest "*.rest" that it ends in, else `default`, else 421. serve(app, name) -> the dispatcher of an app.
function hosts.dispatcher(given, serve)
  usage.refuse(type(given) ~= "table" or next(given) == nil, given,
    "ls.listen: hosts must be a table of apps by name: %s", forms)
  local by_name, below, default, all, tunnels = {}, {}, nil, {}, false
  for name, one in pairs(given) do
    usage.refuse(not app.is(one), one, "ls.listen: hosts: %s needs an app: %s", usage.quote(name), forms)
    local dispatcher = serve(one, tostring(name))
    if name == "default" then
      default = dispatcher
    else
      local key = check_name(name)
      local list = find(key, "*.", 1, true) == 1 and below or by_name
      key = list == below and sub(key, 3) or key
      if list[key] then usage.error("ls.listen: hosts: %q is there twice", name) end
      list[key] = dispatcher
    end
    tunnels = tunnels or dispatcher.tunnels
    all[#all + 1] = { name = name, routes = dispatcher.routes }
  end
  table.sort(all, function(a, b) return a.name < b.name end)
  hosts.several = hosts.several or #all > 1
  local unserved = {
    dispatch = respond_421, failed = function(_, res) return res:status() end, name_route = function() end,
  }

  -- choose(host) -> the dispatcher for the field Host, which may have a port; nil: the request has none.
  local function choose(host)
    if not host then return default or unserved end
    local name = lower(match(host, "^%[[^%]]*%]") or match(host, "^[^:]*"))
    if sub(name, -1) == "." then name = sub(name, 1, -2) end
    local found = by_name[name]
    local from = 1
    while not found do
      local dot = find(name, ".", from, true)
      if not dot then return default or unserved end
      from = dot + 1
      found = below[sub(name, from)]
    end
    return found
  end

  local function dispatch(req, res, method, path, too_big)
    return choose(req.host).dispatch(req, res, method, path, too_big)
  end

  local function name_route(method, path, failing, host) return choose(host).name_route(method, path, failing) end

  router.names[dispatch] = name_route
  return {
    dispatch = dispatch, name_route = name_route, tunnels = tunnels,
    failed = function(req, res, err, traceback) return choose(req.host).failed(req, res, err, traceback) end,
    names = function() -- those that browsers ask a certificate for, one per line
      local names = {}
      for _, one in ipairs(all) do
        if one.name ~= "default" and not one.name:find("^[%d.]+$") and not one.name:find("^%[") then
          names[#names + 1] = one.name:gsub("%.$", ""):lower()
        end
      end
      return table.concat(names, "\n")
    end,
    routes = function()
      local rows = {}
      for _, one in ipairs(all) do
        for _, row in ipairs(one.routes()) do
          row.host = one.name
          rows[#rows + 1] = row
        end
      end
      return rows
    end,
  }
end

return hosts
