-- hello.lua - 2,000 requests per second at a fixed rate, with thresholds.
--   luaserve examples/site.lua &   luaserve stress examples/stress/hello.lua
return {
  target = "http://127.0.0.1:8080", connections = 64,
  rate = 2000, duration = "10s",
  thresholds = { "p99 < 500ms", "errors < 0.1%", "checks == 0" },

  request = function(vu)
    return "GET", "/hello/user" .. vu.id .. "?turn=" .. vu.iteration
  end,
  response = function(vu, status, headers, body)
    vu:check(status == 200, "status")
    vu:check(headers["Content-Type"]:find("text/plain", 1, true), "type")
    vu:check(body:find("user" .. vu.id, 1, true) ~= nil, "own name")
  end,
}
