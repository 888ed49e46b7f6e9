-- delay.lua - every connection thinks for 10 to 50 ms before it asks.
-- luacheck: std luajit, no unused args, globals delay
math.randomseed(os.time())

function delay()
  return math.random(10, 50)
end
