-- stop.lua - each thread stops after a hundred responses.
-- luacheck: std luajit, no unused args, globals wrk response
local left = 100

function response()
  left = left - 1
  if left == 0 then wrk.thread:stop() end
end
