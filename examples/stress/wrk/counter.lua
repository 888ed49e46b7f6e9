-- counter.lua - a different path and header for each request.
--   luaserve stress -s counter.lua http://127.0.0.1:8080      (or wrk -s ...)
-- luacheck: std luajit, no unused args, globals wrk request
local counter = 0

function request()
  counter = counter + 1
  wrk.headers["X-Counter"] = counter
  return wrk.format(nil, "/hello/" .. counter)
end
