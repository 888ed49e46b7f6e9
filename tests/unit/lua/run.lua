-- Runs the unit tests of the Lua modules in plain Lua: lua5.4 tests/unit/lua/run.lua [part of a test's name]
-- Exit status 0 when all pass. Three need C: ../script/bind/value/test_json.c runs test_json.lua, ../stress/test_report.c
-- runs test_stress_sampler.lua and test_stress_report.lua.

local here = arg[0]:match("^(.*)/[^/]*$") or "."
local modules = here .. "/../../../lua/"
package.path = here .. "/?.lua;" .. modules .. "?.lua;" .. modules .. "?/init.lua;" .. package.path
setmetatable(package.preload, { __index = function(preload, name) -- as the program names its modules; messages ask for them again
  local path = name:find("^luaserve%f[.\0]") and package.searchpath(name, package.path)
  local file <close> = path and io.open(path)
  preload[name] = file and load(file:read("a"), "@luaserve/" .. (name:match("^luaserve%.(.*)") or "init"):gsub("%.", "/") .. ".lua")
  return rawget(preload, name)
end })
package.loaded["luaserve.core"] = require "fake_core"
package.loaded["luaserve.json"] = {
  encode = function(value) if type(value) == "function" then error("value is a function", 0) end end,
  decode = function() end,
  array = function(list) return list end,
  null = {},
}

local wanted = arg[1]
local passed, failed = 0, {}
for _, module in ipairs {
  "test_usage", "test_cache_rules", "test_check", "test_openapi", "test_date", "test_options", "test_router", "test_app",
  "test_static", "test_init", "test_tcp", "test_tls", "test_acme", "test_udp", "test_ws_client", "test_dict", "test_notify",
  "test_option_tables", "test_option_pages", "test_cookie", "test_disposition", "test_cookie_jar", "test_forwarded", "test_multipart",
  "test_session", "test_csrf", "test_rate_limit", "test_template", "test_proxy", "test_url", "test_fetch_rules",
  "test_dev_page", "test_dev_state", "test_globals", "test_command", "test_stress_options", "test_postgres", "test_redis",
  "test_sqlite", "test_cron", "test_database_rows", "test_stress_threshold", "test_stress_figures", "test_stress_target", "test_stress_view", "test_diff",
  "test_report", "test_test", "test_test_run", "test_inspect", "test_process", "test_repl", "test_metrics", "test_definitions",
  "test_calls",
} do
  local tests = require(module)
  local names = {}
  for name in pairs(tests) do names[#names + 1] = name end
  table.sort(names)
  for _, name in ipairs(names) do
    local full = module .. ": " .. name
    if not wanted or full:find(wanted, 1, true) then
      local ok, message = xpcall(tests[name], debug.traceback)
      if ok then
        passed = passed + 1
      else
        failed[#failed + 1] = full
        print("FAILED " .. full .. "\n  " .. tostring(message):gsub("\n", "\n  "))
      end
    end
  end
end
print(string.format("%d passed, %d failed", passed, #failed))
os.exit(#failed == 0 and passed > 0)
