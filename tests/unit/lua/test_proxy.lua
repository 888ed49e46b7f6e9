-- luaserve.proxy with a fake of the core: which server gets a request, what is sent again, and what answers at the end.
local check = require "check"
local core = require "luaserve.core"
local proxy = require "luaserve.proxy"

local tests = {}

-- A proxy of these servers, and run(method) -> what its function returns, the ports of the attempts. `outcome(upstream,
-- n)`: the results of core.proxy_send for the attempt number n, or nil for a success.
local function proxy_of(servers, options, outcome)
  local one = proxy.new(servers, options)
  local run = one:runner(1)
  local attempts
  local function with_fake(fn, ...)
    local send = core.results.proxy_send
    core.results.proxy_send = function(_, upstream, sock)
      if not sock and one.idle ~= true then return false end
      attempts[#attempts + 1] = upstream.origin:match("%d+$")
      local results = outcome and outcome(upstream, #attempts)
      if results then return table.unpack(results, 1, 5) end
      return true
    end
    core.results.connect = { {} }
    local results = table.pack(fn(...))
    core.results.proxy_send, core.results.connect = send, nil
    return table.unpack(results, 1, results.n)
  end
  local res = { header = function() end, status = function() return 200 end }
  return function(method, query)
    attempts = {}
    local status = with_fake(run, { method = method or "GET", path = "/", query = query or {} }, res)
    return status, table.concat(attempts, " ")
  end, one
end

local function failure(code, again, reused) return { nil, "it fails", code, again, reused or false } end

local three = { "http://h:1", { url = "http://h:2", weight = 2 }, { url = "http://h:3", weight = 3 } }

local function counts_of(run, times)
  local counts = { ["1"] = 0, ["2"] = 0, ["3"] = 0 }
  for _ = 1, times do
    local _, at = run()
    counts[at] = counts[at] + 1
  end
  return { counts["1"], counts["2"], counts["3"] }
end

function tests.servers_in_turn_get_their_weight()
  local run, one = proxy_of(three)
  check.equal(counts_of(run, 60), { 10, 20, 30 })
  one.servers[3].object.share = 0 -- it is down
  check.equal(counts_of(run, 30)[3], 0)
  one.servers[3].object.share = 0.5
  counts_of(run, 9)
  check.equal(counts_of(run, 90), { 20, 40, 30 })
end

function tests.the_server_with_the_fewest_requests_for_its_weight()
  local run, one = proxy_of(three, { balance = "least" })
  one.servers[1].object.active, one.servers[2].object.active, one.servers[3].object.active = 0, 2, 9
  check.equal(select(2, run()), "1") -- (0 + 1) / 1, (2 + 1) / 2, (9 + 1) / 3
  one.servers[1].object.active = 1
  check.equal(select(2, run()), "2")
  one.servers[3].object.active = 3
  check.equal(select(2, run()), "3")
end

function tests.a_key_moves_only_when_its_server_is_down()
  local run, one = proxy_of(three, { balance = function(req) return req.query.k end })
  local before, moved = {}, 0
  for n = 1, 300 do before[n] = select(2, run("GET", { k = "key" .. n })) end
  one.servers[1].object.share = 0
  for n = 1, 300 do
    local now = select(2, run("GET", { k = "key" .. n }))
    if before[n] == "1" then moved = moved + 1 else check.equal(now, before[n]) end
    check.equal(now ~= "1", true)
  end
  check.equal({ moved > 20 and moved < 90, moved }, { true, moved }) -- a sixth
end

function tests.what_is_sent_again()
  local function attempts(method, results, options)
    local run = proxy_of({ "http://h:1" }, options, function() return results end)
    return { run(method) }
  end
  check.equal(attempts("GET", failure("ERESET", true)), { 502, "1 1" })
  check.equal(attempts("GET", failure("ERESET", true), { retry = 3 }), { 502, "1 1 1 1" })
  check.equal(attempts("GET", failure("ERESET", true), { retry = false }), { 502, "1" })
  check.equal(attempts("GET", failure("ERESET", false)), { 502, "1" })
  check.equal(attempts("POST", failure("ERESET", true)), { 502, "1" })
  check.equal(attempts("GET", failure("ETIMEDOUT", true)), { 504, "1" })
  check.equal(attempts("GET", failure("EINVAL", false)), { 400, "1" })
  check.equal(attempts("GET", failure("ETRUNCATED", nil)), { nil, "1" }) -- the response has begun
end

function tests.a_stale_connection_costs_no_attempt()
  local run, one = proxy_of({ "http://h:1" }, { retry = false }, function(_, n)
    if n == 1 then return failure("ECLOSED", true, true) end
  end)
  one.idle = true
  check.equal({ run() }, { nil, "1 1" })
  check.equal({ run("POST") }, { 502, "1" })
end

function tests.another_server_gets_the_second_attempt()
  local run = proxy_of({ "http://h:1", "http://h:2" }, nil, function(upstream)
    if upstream.origin == "http://h:1" then return failure("ERESET", true) end
  end)
  for _ = 1, 10 do
    local status, attempts = run()
    check.equal({ status, attempts:sub(-1) }, { nil, "2" })
  end
end

function tests.retries_have_a_budget()
  local fails = true
  local run = proxy_of({ "http://h:1" }, nil, function() if fails then return failure("ERESET", true) end end)
  local function after(seconds, successes)
    fails = false
    for _ = 1, successes do run() end
    core.results.now[1] = core.results.now[1] + seconds
    fails = true
  end
  local function sent_again(count)
    local sum = 0
    for _ = 1, count do
      local _, attempts = run()
      if attempts == "1 1" then sum = sum + 1 end
    end
    return sum
  end
  check.equal(sent_again(12), 12) -- 10, and a fifth of 12
  check.equal(sent_again(88), 18) -- of 100
  after(9, 200)
  check.equal(sent_again(100), 60) -- when a server dies, those that wait for it find another one
  after(1, 0) -- half of 400 requests and 90 retries of 10 seconds
  check.equal(sent_again(1), 1)
  check.equal(sent_again(10), 6)
  after(3600, 100000) -- those of 10 seconds are 278 requests, of which half count
  check.equal(sent_again(100), 57) -- 10, and a fifth of 139 and of 100
  core.results.now[1] = 0
end

-- The lines of the log that a call of fn writes, "level message".
local function lines_of(fn)
  local from, lines = #core.calls, {}
  fn()
  for n = from + 1, #core.calls do
    local name, level, message = table.unpack(core.calls[n])
    if name == "log" then lines[#lines + 1] = level .. " " .. message end
  end
  return lines
end

function tests.the_checks_of_all_servers_fail()
  local run, one = proxy_of({ "http://h:1", "http://h:2" })
  one.servers[1].object.share, one.servers[2].object.share = 0, 0
  local count = 7
  core.results.proxy_refused = function(upstream, more) return upstream == one.servers[1].object and more * count end
  check.equal(lines_of(function() check.equal({ run() }, { 503, "" }) end), { "warn app:proxy: no server is usable: "
    .. "the checks of http://h:1 and the others fail; requests answered with 503: 7" })
  count = 0 -- there was a line within this second
  check.equal(lines_of(function() check.equal({ run() }, { 503, "" }) end), {})
  core.results.proxy_refused = nil
end

function tests.when_requests_have_taken_all_servers_out_the_longest_out_is_tried()
  local failing
  local run, one = proxy_of({ "http://h:1", "http://h:2", "http://h:3" }, { retry = 3 },
    function() if failing then return failure("ERESET", true) end end)
  for n, until_ms in ipairs { 300, 100, 200 } do
    one.servers[n].object.share, one.servers[n].object.until_ms = 0, until_ms
  end
  check.equal({ run() }, { nil, "2" })
  one.servers[2].object.until_ms = nil -- its checks fail
  check.equal({ run() }, { nil, "3" })
  failing = true
  check.equal({ run() }, { 502, "3 1 3 3" }) -- as with a single server, when all were tried
  one.servers[1].object.share = 0.1
  check.equal({ run("POST") }, { 502, "1" })
end

function tests.the_log_has_the_servers_that_are_out_and_back()
  local run = proxy_of({ "http://h:1" }, { retry = false, health = { fails = 2, down = 0.5 } },
    function() return failure("ERESET", true) end)
  core.results.proxy_failed, core.results.proxy_back = { true }, { true }
  local lines = lines_of(run)
  check.equal({ lines[1], lines[2] }, { "info app:proxy: http://h:1 is used again",
    "warn app:proxy: http://h:1 is avoided for 0.5 s: 2 failures in a row" })
  core.results.proxy_failed, core.results.proxy_back = { false }, { false } -- another state has the lines
  check.equal(#lines_of(run), 1)
  core.results.proxy_failed, core.results.proxy_back = nil, nil
end

return tests
