-- auth.lua - the first response contains a token that all later requests send.
-- luacheck: std luajit, no unused args, globals wrk request response
local token
local path = "/login"

function request()
  return wrk.format("GET", path)
end

function response(status, headers, body)
  if not token and status == 200 then
    token = headers["X-Token"]
    path = "/private"
    wrk.headers["X-Token"] = token
  end
end
