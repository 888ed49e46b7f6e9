-- Each test writes a site file to be loaded, because the functions of a site are known by their source.
local check = require "check"
local core = require "luaserve.core"
local app = require "luaserve.app"
local state = require "luaserve.dev_state"

local tests = {}

-- run(source, states) -> the warnings, sorted. The source gets `app` and returns a function, which is called between two
-- checks.
local function run(source, states)
  local path = os.tmpname()
  local file = assert(io.open(path, "wb"))
  file:write(source)
  file:close()
  local seen, open = {}, io.open
  core.dev = {
    site = path, states = function() return states or 4 end, hooks = function() return {} end, task = function() end,
    once = function(text)
      local first = not seen[text]
      seen[text] = true
      return first
    end,
  }
  core.take_calls()
  state.begin()
  local own = app.new()
  local env_before = {}
  for name in pairs(_G) do env_before[name] = true end
  local act = assert(loadfile(path))(own)
  state.observe(own)
  state.arm()
  local ok, message = pcall(function()
    state.check()
    act()
    state.check()
    act()
    state.check()
  end)
  setmetatable(_G, nil)
  io.open = open -- luacheck: ignore 122
  for _, name in ipairs { "string", "table", "math", "os", "io", "utf8", "coroutine", "debug" } do
    setmetatable(package.loaded[name], nil)
  end
  for name in pairs(_G) do
    if not env_before[name] then _G[name] = nil end
  end
  os.remove(path)
  core.dev = nil
  assert(ok, message)
  local warnings = {}
  for _, call in ipairs(core.take_calls()) do
    if call[1] == "log" then warnings[#warnings + 1] = call[3]:gsub("^.-([^/\\]*:%d+: )", function(place)
      return place:match(":(%d+): ") .. ": "
    end):gsub(", of which.*", ""):gsub(" while the site serves.*", "") end
  end
  table.sort(warnings)
  return warnings
end

local head = "local app = ...\nlocal handler\n" -- the sources below begin at line 3

local function site(text) return head .. text .. "\napp:get('/', handler)\nreturn handler" end

function tests.a_global_is_reported_once()
  check.equal(run(site "function handler()\n total = (total or 0) + 1\nend"), { "4: sets the global total" })
  check.equal(run(site "function handler()\n local total = 1\n return total\nend"), {})
end

function tests.a_global_is_reported_with_one_state_too()
  check.equal(run(site "function handler() total = 1 end", 1), { "3: sets the global total" })
end

function tests.what_middleware_sets_with_one_state()
  local text = "local user, n = nil, 0\nfunction handler()\n %s\nend\napp:use(handler)"
  check.equal(run(site(text:format "user = tostring({})"), 1),
    { "5: changes user in a middleware, and all requests share it: while one waits, another one changes it. Use req.user = ..." })
  check.equal(run(site(text:format "n = n + 1"), 1), {})
end

function tests.replies_of_redis()
  for text, warning in pairs {
    ["if r:del(1) then end"] = "returns a number", ["if not r:del((1)) then end"] = "returns a number",
    ["local n = r:del(1)"] = false, ["if r:del(1) == 0 then end"] = false, ["if r:setnx(1) == 1 then end"] = "never a number",
    ["return r:setnx(1) ~= 0"] = "never a number", ["if r:setnx(1) then end"] = false,
  } do
    local got = run(site("local s = require 'luaserve.dev_state' function handler() local r = { del = function() "
      .. "s.watch_reply('r:del', 0) end, setnx = function() s.watch_reply('r:setnx', false) end } " .. text .. " end"))
    check.equal({ text, #got, warning and got[1]:find(warning, 1, true) ~= nil }, { text, warning and 1 or 0, warning and true })
  end
end

function tests.a_local_of_the_file()
  check.equal(run(site "local visits = 0\nfunction handler()\n visits = visits + 1\nend"), { "5: changes visits" })
  check.equal(run(site "local visits = 0\nfunction handler()\n return visits\nend"), {})
  check.equal(run(site "local visits = 0\nfunction handler()\n visits = visits + 1\nend", 1), {})
end

function tests.tables()
  check.equal(run(site "local items = {}\nfunction handler()\n items[#items + 1] = 1\nend"), { "5: changes items" })
  check.equal(run(site "local items = {}\nfunction handler()\n items.a = (items.a or 0) + 1\nend"), { "5: changes items" })
  check.equal(run(site "local items = {}\nfunction handler()\n\n table.insert(items, 1)\nend"), { "6: changes items" })
  check.equal(run(site "local items = { 1 }\nfunction handler() items[1] = nil end"), { "4: changes items" })
  check.equal(run(site "local items = { list = {} }\nfunction handler()\n items.list[1] = 1\nend"),
    { "5: changes items.list" })
end

function tests.a_table_in_a_module()
  check.equal(run(site [[
local store = {}
do
  local items = {}
  function store.add()
    items[#items + 1] = 1
  end
end
function handler() store.add() end]]), { "7: changes items" })
end

function tests.a_global_of_the_load()
  check.equal(run(site "counter = 0\nfunction handler()\n counter = counter + 1\nend"), { "5: changes the global counter" })
end

function tests.a_large_table_is_compared_by_its_length()
  local fill = "local items = {}\nfor i = 1, 5000 do items[i] = i end\n"
  check.equal(run(site(fill .. "function handler()\n items[#items + 1] = 1\nend")), { "6: changes items" })
  check.equal(run(site(fill .. "function handler()\n return items[5]\nend")), {})
end

function tests.caches_say_so_in_a_comment()
  check.equal(run(site "local kept = {} -- a cache of each state\nfunction handler() kept.a = os.clock end"), {})
  check.equal(run(site "local session_cache = {}\nfunction handler() session_cache.a = os.clock end"),
    { "4: changes session_cache" })
end

function tests.what_is_made_at_its_first_use_is_left_out()
  check.equal(run(site "local db\nlocal function get()\n db = db or {}\n return db\nend\nfunction handler() get() end"), {})
  check.equal(run(site "local db\nfunction handler()\n if not db then\n  db = {}\n end\nend"), {})
  check.equal(run(site "local db\nfunction handler()\n if db == nil then db = {} end\nend"), {})
  check.equal(run(site "local last\nfunction handler()\n last = {}\nend"), { "5: changes last" })
end

function tests.a_comment_leaves_a_variable_out()
  check.equal(run(site "local turn = 0 -- each state counts separately\nfunction handler() turn = turn + 1 end"), {})
  check.equal(run(site "local a, turn = 1, 0 -- of this state\nfunction handler() turn = turn + a end"), {})
  check.equal(run(site "local turn = 0 -- the state of a game\nfunction handler() turn = turn + 1 end"),
    { "4: changes turn" })
  check.equal(run(site "local turns = 0 -- of this state\nlocal turn = 0\nfunction handler() turn = turns + 1 end"),
    { "5: changes turn" })
end

function tests.a_comparison_is_no_write()
  check.equal(run(site
    "local n = 0\nfunction handler()\n if n == 1 or n ~= 2 then end\n -- n = 3\n n = n + 1\nend"), { "7: changes n" })
end

function tests.a_field_of_a_library_is_reported()
  check.equal(run(site "local s = string\nfunction handler()\n s.extra = 1\nend"), { "5: sets string.extra" })
  string.extra = nil -- luacheck: ignore 142 143
  check.equal(run(site "string.extra = 1\nfunction handler() return ('x'):rep(2) end"), {}) -- while the site loads
  string.extra = nil -- luacheck: ignore 142 143
end

return tests
