-- The files are those that a site has loaded: written, compiled and scanned.
local check = require "check"
local core = require "luaserve.core"
local globals = require "luaserve.globals"

local tests = {}

-- warnings(...) -> the lines of the log for files with these texts, without their paths.
local function warnings(...)
  local paths, found, kept = {}, {}, core.kept
  for _, text in ipairs { ... } do
    local path = os.tmpname()
    local file = assert(io.open(path, "wb"))
    file:write(text)
    file:close()
    paths[path] = true
  end
  paths.module = "path"
  core.kept = function() return paths end
  core.take_calls()
  globals.warn()
  for _, call in ipairs(core.take_calls()) do
    if call[1] == "log" then found[#found + 1] = call[2] .. " " .. call[3]:gsub("^.-:(%d+: )", "%1") end
  end
  core.kept, paths.module = kept, nil
  for path in pairs(paths) do os.remove(path) end
  table.sort(found)
  return found
end

function tests.a_misspelt_local_and_one_of_another_function()
  local long = {}
  for n = 1, 300 do long[n] = ("  f(%d)"):format(n) end -- the lines of an instruction are relative, and absolute now and then
  check.equal(warnings([[
local users = {}
local function f() local id = 5 return id end
return function()
  if userz then return users end
  return { id, nothing = function() return none_such end }, f
end]], "\xef\xbb\xbf#!/usr/bin/env luaserve\nlocal f = print\nreturn function()\n" .. table.concat(long, "\n") .. "\n\n\n\n  f(faraway)\nend"), {
    "warn 307: reads the global faraway, which nothing sets, so it is nil",
    "warn 4: reads the global userz, which nothing sets, so it is nil; did you mean 'users'?",
    "warn 5: reads the global id, which nothing sets, so it is nil: the local of this name is not visible here",
    "warn 5: reads the global none_such, which nothing sets, so it is nil",
  })
end

function tests.what_is_in_order()
  check.equal(warnings([[
local absent = absent_library or jit
local _ENV_text = "_ENV"
settings = { a = 1 }
function helper() later = 1 return _VERSION, print, string.format, settings.a end
_G.named = true
return function()
  local unpack = unpack or table.unpack
  local env = setmetatable({}, { __index = _G })
  local function inner() local _ENV <const> = env return anything end
  return later, other_file, named, unpack, inner, absent, _ENV_text, self_made
end]], "function other_file() end\nreturn function(x) _G.self_made = x end", "this is no Lua", ""), {})
end

function tests.a_site_with_a_rule_of_its_own()
  setmetatable(_G, { __index = function(_, name) error(name) end })
  local found = warnings("return function() return none_such end")
  setmetatable(_G, nil)
  check.equal(found, {})
end

return tests
