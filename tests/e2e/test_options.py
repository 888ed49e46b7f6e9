"""The core accepts the least and the greatest value of every option of lua/luaserve's tables, and no option that it does
not know: the modules read every option that they describe.

tests/unit/lua/test_option_tables.lua tries what the tables refuse, test_option_pages.lua compares them with the pages."""
import json

from harness import E2E, not_on_windows

# Calls each function once with every option at its least value, and once at its greatest. What a call refuses is the
# answer.
SITE = """
local ls = require "luaserve"
local options = require "luaserve.options"
local app, tried, refused = ls.app(), 0, {}

local function tables(module, call)
  return options.merged(require("luaserve." .. module).calls[call])
end

-- The options of a call with a range, as a site writes them.
local function values(module, call, at, without)
  local given = {}
  for name, spec in pairs(tables(module, call)) do
    if type(spec) == "table" and spec[2] ~= "is" and not (without or {})[name] then
      local value = spec[at]
      if spec[2] == "flag" then value = at == 4 elseif spec[2] == "seconds" then value = value / 1000 end
      if spec[2] == "size" and value == math.maxinteger then value = (1 << 61) end
      if spec[2] ~= "text" then given[name] = value end
      tried = tried + 1
    end
  end
  return given
end

local function try(call, module, fn, without)
  for _, at in ipairs { 3, 4 } do
    local ok, message, why, code = pcall(fn, values(module, call, at, without))
    if not ok then refused[#refused + 1] = ("%s, value %d: %s"):format(call, at, message) end
  end
end

local function with(given, more)
  for name, value in pairs(more) do given[name] = value end
  return given
end

for name, spec in pairs(tables("options", "ls.config")) do
  local smallest = name ~= "max_memory" and name ~= "threads_max" and type(spec) == "table" and spec[3]
  for _, value in ipairs { smallest, type(spec) == "table" and spec[4] } do
    if value then
      if spec[2] == "seconds" then value = value / 1000 elseif value == math.maxinteger then value = 1 << 61 end
      local ok, message = pcall(ls.config, { [name] = value })
      if not ok then refused[#refused + 1] = message end
    end
  end
end
local defaults = {}
for name, spec in pairs(tables("options", "ls.config")) do defaults[name] = type(spec) == "table" and spec[5] or nil end
ls.config(with(defaults, { threads = 2, threads_max = 4, states = 4 }))

app:get("/sse/:at", function(req, res)
  local sse = assert(res:sse(values("sse", "res:sse", tonumber(req.params.at))))
  sse:close()
end)
app:get("/", function(req)
  local port = tonumber(req.local_addr:match("%d+$"))
  try("ls.connect", "tcp", function(given) ls.connect("127.0.0.1", port, given) end)
  try("ls.websocket", "ws_client", function(given)
    ls.websocket("ws://127.0.0.1:" .. port .. "/none", with(given, { compress = values("ws", "app:ws: compress", 4) }))
  end)
  try("ls.udp_connect", "udp", function(given) ls.udp_connect("127.0.0.1", 9, given) end)
  return { refused = ls.json.array(refused), tried = tried }
end)
ls.listen("127.0.0.1:0", app)

local plain = { proxy_protocol = true }
try("ls.listen", "options", function(given) ls.listen(with(given, { port = 0, handler = app })) end, plain)
try("ls.tcp", "tcp", function(given) ls.tcp(with(given, { port = 0, handler = function() end })) end, plain)
try("ls.udp", "udp", function(given) ls.udp(with(given, { port = 0, handler = function() end })) end)
try("ls.udp: multicast", "udp", function(given)
  ls.udp({ port = 0, multicast = with(given, { group = "239.1.2.3" }) }, function() end)
end)
try("app:ws", "ws", function(given) ls.app():ws("/a", given, function() end) end)
try("app:ws: compress", "ws", function(given) ls.app():ws("/a", { compress = given }, function() end) end)
ls.file.mkdir("served")
try("app:static", "static", function(given) ls.app():static("/a", "served", given) end)
try("app:get", "app", function(given) ls.app():get("/a", given, function() end) end, { null = true })
for _, at in ipairs { 3, 4 } do
  local ok, message = pcall(ls.channel, "c" .. at, values("channel", "ls.channel", at))
  if not ok then refused[#refused + 1] = message end
end
local ok, message = pcall(ls.dict, "d", values("dict", "ls.dict", 3))
if not ok then refused[#refused + 1] = message end

"""


@not_on_windows("one system suffices: the tables are the same")
class Options(E2E):
    def test_the_core_accepts_what_the_tables_allow(self):
        server = self.serve(SITE)
        found = json.loads(server.get("/").text)
        self.assertEqual(found["refused"], [])
        self.assertGreater(found["tried"], 120)
        for at in "34":
            self.assertEqual(server.get("/sse/" + at).status, 200)
