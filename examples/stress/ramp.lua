-- ramp.lua - up to 1,000 requests per second within 5 s, 5 s at that rate, then down to 0.
return {
  target = "http://127.0.0.1:8080/", connections = 50,
  stages = { { duration = "5s", rate = 1000 }, { duration = "5s", rate = 1000 }, { duration = "2s", rate = 0 } },
  expect = { status = "2xx" },
}
