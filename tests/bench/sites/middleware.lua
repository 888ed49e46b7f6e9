-- middleware.lua ADDRESS KIND: `fields`: hello behind three middlewares that add a field; `page`: a page; `passed`: the same behind
-- one middleware. `fields-results` and `passed-results`: for programs whose next() returns the results of the handler.
local ls = require "luaserve"

local address, kind = ...
local app = ls.app()

if kind == "fields" then
  for n = 1, 3 do
    app:use(function(req, res, next)
      next()
      res:header("X-Field-" .. n, "value")
    end)
  end
elseif kind == "fields-results" then
  for n = 1, 3 do
    app:use(function(req, res, next)
      local a, b, c = next()
      res:header("X-Field-" .. n, "value")
      return a, b, c
    end)
  end
elseif kind == "passed" then
  app:use(function(req, res, next) next() end)
elseif kind == "passed-results" then
  app:use(function(req, res, next) return next() end)
end

app:get("/", function() return "hello, world\n" end)
app:get("/page", function(req, res) return res:html("<!doctype html><title>t</title><p>" .. ("hello "):rep(20)) end)

ls.listen(tonumber(address) or address, app)
