-- delay.lua - every connection waits for 10 to 50 ms before each request.
-- luacheck: std luajit, no unused args, globals delay
math.randomseed(os.time())

function delay()
  return math.random(10, 50)
end
