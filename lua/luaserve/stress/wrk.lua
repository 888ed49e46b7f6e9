-- stress_wrk.lua - the part of wrk's scripting interface that is written in Lua: the default hooks, and the functions
-- of Lua 5.1 and LuaJIT that wrk scripts use. The module returns a function, which luaserve calls once per state with
-- the table `wrk`, before it loads the script.
--
-- One difference remains: a division without remainder gives a float ("2.0", not "2"); math.floor makes it an integer.
-- luacheck: ignore 122 142 (the module changes the standard library for the script)
-- luacheck: globals bit unpack loadstring setfenv getfenv setup init

local unpack_values = table.unpack

local function whole(x)
  local n = math.floor(x)
  return math.tointeger(n) or n
end

-- The index of the upvalue _ENV of a function; nil if the function uses no global.
local function env_index(fn)
  for i = 1, 255 do
    local name = debug.getupvalue(fn, i)
    if name == "_ENV" or name == nil then return name and i end
  end
end

local function function_at(what)
  if type(what) == "function" then return what end
  local info = debug.getinfo((what or 1) + 2, "f")
  return info and info.func or error("no function at this level", 3)
end

local function define_51()
  unpack = table.unpack
  loadstring = load
  table.getn = function(t) return #t end
  table.maxn = function(t)
    local most = 0
    for k in pairs(t) do if type(k) == "number" and k > most then most = k end end
    return most
  end
  string.gfind = string.gmatch
  math.pow = function(x, y)
    local z = x ^ y
    return math.tointeger(z) or z
  end
  math.mod = math.fmod
  math.log10 = function(x) return math.log(x, 10) end
  math.ldexp = function(m, e) return m * 2.0 ^ e end
  math.cosh = function(x) return (math.exp(x) + math.exp(-x)) / 2 end
  math.sinh = function(x) return (math.exp(x) - math.exp(-x)) / 2 end
  math.tanh = function(x) return 1 - 2 / (math.exp(2 * x) + 1) end

  -- Lua 5.1 truncates fractions where Lua 5.4 raises an error.
  local random, randomseed, format = math.random, math.randomseed, string.format
  math.random = function(m, n)
    if n then return random(whole(m), whole(n)) end
    if m then return random(whole(m)) end
    return random()
  end
  math.randomseed = function(seed) randomseed(whole(seed or 0)) end
  string.format = function(text, ...)
    local good, result = pcall(format, text, ...)
    if good then return result end
    local args = table.pack(...)
    for i = 1, args.n do
      if math.type(args[i]) == "float" and args[i] == args[i] and math.abs(args[i]) < 2 ^ 63 then
        args[i] = math.tointeger(args[i] < 0 and math.ceil(args[i]) or math.floor(args[i])) or args[i]
      end
    end
    return format(text, unpack_values(args, 1, args.n))
  end

  setfenv = function(what, env)
    local fn = function_at(what)
    local i = env_index(fn)
    if i then debug.upvaluejoin(fn, i, function() return env end, 1) end
    return fn
  end
  getfenv = function(what)
    if what == 0 then return _G end
    local fn = function_at(what)
    local i = env_index(fn)
    if not i then return _G end
    local _, env = debug.getupvalue(fn, i)
    return env
  end

  -- LuaJIT's bit operations use signed 32-bit numbers.
  local function signed(x)
    x = x & 0xffffffff
    return x >= 0x80000000 and x - 0x100000000 or x
  end
  local function fold(op)
    return function(first, ...)
      local result = whole(first)
      for i = 1, select("#", ...) do result = op(result, whole((select(i, ...)))) end
      return signed(result)
    end
  end
  bit = {
    tobit = function(x) return signed(whole(x)) end,
    bnot = function(x) return signed(~whole(x)) end,
    band = fold(function(a, b) return a & b end),
    bor = fold(function(a, b) return a | b end),
    bxor = fold(function(a, b) return a ~ b end),
    lshift = function(x, n) return signed(whole(x) << (n & 31)) end,
    rshift = function(x, n) return signed((whole(x) & 0xffffffff) >> (n & 31)) end,
    arshift = function(x, n) return signed(signed(whole(x)) // (1 << (n & 31))) end,
    rol = function(x, n)
      local u = whole(x) & 0xffffffff
      return signed(u << (n & 31) | u >> (32 - (n & 31)))
    end,
    ror = function(x, n)
      local u = whole(x) & 0xffffffff
      return signed(u >> (n & 31) | u << (32 - (n & 31)))
    end,
    tohex = function(x, n)
      local digits = ("%08x"):format(whole(x) & 0xffffffff)
      return digits:sub(-math.min(math.abs(n or 8), 8))
    end,
  }
  package.loaded.bit = bit
  package.loaders = package.searchers
end

local SERVICES = { http = 80, https = 443 }

-- The port of a service: a number, or a name of /etc/services.
local function port_of(service)
  local port = math.tointeger(tonumber(service or 0)) or SERVICES[service]
  local windows = os.getenv("SystemRoot")
  local file = not port and io.open(windows and windows .. "/System32/drivers/etc/services" or "/etc/services")
  if file then
    for line in file:lines() do
      local name, number, aliases = line:match("^([^%s#]+)%s+(%d+)/tcp([^#]*)")
      for word in (name and name .. " " .. aliases or ""):gmatch("%S+") do
        if word == service then port = port or tonumber(number) end
      end
    end
    file:close()
  end
  if not port or port < 0 or port > 65535 then error("wrk.lookup: unknown service " .. tostring(service), 3) end
  return port
end

return function(wrk)
  define_51()

  local lookup = wrk.lookup
  -- The addresses of a host.
  function wrk.lookup(host, service)
    local addrs, why = lookup(host, port_of(service))
    return addrs or error("wrk.lookup: " .. host .. ": " .. why, 2)
  end

  -- Sets wrk.addrs to the addresses of a host that accept connections.
  function wrk.resolve(host, service)
    local good = {}
    for _, addr in ipairs(wrk.lookup(host, service)) do
      if wrk.connect(addr) then good[#good + 1] = addr end
    end
    wrk.addrs = good
  end

  -- Called before the run, in the main state, for each thread.
  function wrk.setup(thread)
    if type(setup) == "function" then setup(thread) end
  end

  -- Called before the run, in the state of each thread. A script may replace it and call the original.
  function wrk.init(args)
    if not wrk.headers["Host"] then
      local host = wrk.host:find(":", 1, true) and "[" .. wrk.host .. "]" or wrk.host
      if wrk.host:sub(1, 5) == "unix:" then host = "localhost" end
      wrk.headers["Host"] = wrk.port and host .. ":" .. wrk.port or host
    end
    if type(init) == "function" then init(args) end
    local text = wrk.format()
    wrk.request = function() return text end
  end
end
