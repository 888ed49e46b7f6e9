-- session.lua - each virtual user logs in once, then reads its own page. setup() runs once; all users get its result.
return {
  target = "http://127.0.0.1:8080", connections = 8, requests = 400,
  headers = { ["User-Agent"] = "session.lua" },

  setup = function() return { pause = 0, names = { "ada", "grace", "edith" } } end,
  request = function(vu)
    if not vu.token then return "POST", "/login", nil, vu.data.names[vu.id % #vu.data.names + 1] end
    return "GET", "/private", { ["X-Token"] = vu.token }
  end,
  response = function(vu, status, headers)
    if not vu.token then vu.token = headers["X-Token"] end
    vu:check(status == 200, "status")
  end,
  done = function(summary, latency)
    print(("%d requests, median %.2f ms"):format(summary.requests, latency:percentile(50) / 1000))
  end,
}
