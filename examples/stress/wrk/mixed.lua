-- mixed.lua - nine reads per write; the bodies use functions of LuaJIT scripts: math.pow, loadstring, unpack.
-- luacheck: std luajit, no unused args, globals wrk request response done loadstring unpack bad
local body_of = loadstring("return function(n) return '{\"value\":' .. n .. '}' end")()
local limit = math.pow(10, 6)
local json = { ["Content-Type"] = "application/json" }
bad = 0

function request()
  local n = math.random(limit)
  if n % 10 == 0 then return wrk.format("POST", "/echo", json, body_of(n)) end
  return wrk.format(unpack { "GET", string.format("/hello/%d", n / 2) })
end

function response(status, headers, body)
  if status ~= 200 or #body == 0 then bad = bad + 1 end
end

function done(summary)
  if summary.errors.status > 0 then io.stderr:write("some responses failed\n") end
end
