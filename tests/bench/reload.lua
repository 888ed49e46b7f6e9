-- reload.lua: the site that scripts/bench reloads under load.   luaserve reload.lua PORT
local ls = require "luaserve"

local port = assert(tonumber((...)), "usage: luaserve reload.lua PORT")
local app = ls.app()

app:get("/", function() return "hello, world\n" end)

-- Two requests that take about two seconds each: a long poll and a stream.
app:get("/wait", function()
  ls.sleep(2)
  return "waited\n"
end)
app:get("/stream", function(_, res)
  for _ = 1, 20 do
    res:write("part\n")
    ls.sleep(0.1)
  end
end)

app:get("/stats", function() return ls.stats() end)

-- Each thread keeps buffers from its first request on: few threads, so that the warm-up reaches all of them.
ls.config { drain_timeout = 60, threads_max = 4 }
ls.listen { host = "127.0.0.1", port = port, handler = app }
