-- The command line of luaserve stress: units, defaults, invalid options, the table of a native script, and the plan.

local check = require "check"
local command = require "luaserve.command"
local options = require "luaserve.stress.options"
local plan = require "luaserve.stress.plan"

local tests = {}

local env = {
  processors = 8,
  backend = "epoll",
  compresses = true,
  http2 = true,
  frame = function(binary, compressed, text)
    return string.format("<%s%s %s>", binary and "binary" or "text", compressed and " packed" or "", text)
  end,
  deflate = function(text) return #text >= 256 and "small" or nil end,
}

-- Arguments are separated by '|'. The plan, or nil and the message.
local function parse(line)
  local words = {}
  for word in (line .. "|"):gmatch("([^|]*)|") do words[#words + 1] = word end
  local given, why = options.parse(words)
  if not given then return nil, why end
  return plan.make(given, env)
end

local function good(line)
  local p, why = parse(line)
  if not p then error(line .. ": " .. why, 2) end
  return p
end

local function refused(cases)
  for _, case in ipairs(cases) do
    local p, why = parse(case[1])
    if p or not why:find(case[2], 1, true) then error(case[1] .. ": " .. tostring(why), 2) end
  end
end

function tests.counts_and_times()
  for text, value in pairs { ["20k"] = 20000, ["1.5M"] = 1500000, ["2G"] = 2e9, ["2K"] = 2000, ["1e3"] = 1000 } do
    check.equal(command.count(text) == value, true)
  end
  for _, text in ipairs { "", "k", "-1", "+1", "1kk", "1x", "0x10", "1e999", "nan", "inf", " 1", "1 ", "." } do
    if command.count(text) then error(text) end
  end
  for text, ns in pairs { ["10s"] = 10000000000, ["3"] = 3000000000, ["500ms"] = 500000000, ["20us"] = 20000,
    ["2m"] = 120000000000, ["1.5h"] = 5400000000000, ["0"] = 0 } do
    check.equal(command.time_ns(text), ns)
  end
  for _, text in ipairs { "", "s", "10 s", "10sec", "-1s", "1ns", "1e30h" } do
    if command.time_ns(text) then error(text) end
  end
end

function tests.omitted_options_have_defaults()
  local p = good "http://h/"
  check.equal({ p.connections, p.threads, p.duration_ns, p.keepalive, p.open_loop, p.mode, p.timeout_ns, p.pipeline },
    { 10, 2, 10000000000, true, false, "static", 10000000000, 1 })
  p = good "-n|100|http://h/" -- no duration: until the requests are done
  check.equal({ p.duration_ns, p.requests }, { 0, 100 })
  check.equal(good("-c|1|http://h/").threads, 1)
  check.equal({ p.http2, p.streams }, { false, 1 })
  p = good "--http2|--streams|32|https://h/"
  check.equal({ p.http2, p.streams, p.connections }, { true, 32, 10 })
  check.equal(good("-n|1000000G|http://h/").requests, 1000000000000000)
  check.equal(good("-c|1048576|--sends|1G|tcp://h:1").requests, 1048576000000000)
  p = good "-t|48|--sends|60k|--message|m|tcp://h:1" -- one connection per thread
  check.equal({ p.connections, p.sends, p.numbered, p.requests, p.mode }, { 48, 60000, true, 48 * 60000, "echo" })
end

function tests.an_option_can_be_written_in_four_ways()
  local p = good "-c64|-t2|--duration=3s|http://h/x|-R20k|--|a|b"
  check.equal({ p.connections, p.threads, p.duration_ns, p.open_loop, p.rate, p.arguments },
    { 64, 2, 3000000000, true, 20000.0, { "a", "b" } })
end

function tests.the_bytes_of_a_request()
  local p = good "--pipeline|2|-H|X-A: b|http://h:81/p?q"
  local once = "GET /p?q HTTP/1.1\r\nHost: h:81\r\nX-A: b\r\n\r\n"
  check.equal({ p.request, p.request_len }, { once .. once, #once })
  p = good "--no-keepalive|--body|a=b|-H|host: other|http://h/"
  check.equal(p.request, "POST / HTTP/1.1\r\nhost: other\r\nConnection: close\r\nContent-Length: 3\r\n\r\na=b")
  p = good "--method|HEAD|-H|Content-Length: 0|-H|Connection: x|--no-keepalive|http://h/"
  check.equal({ p.request, p.is_head },
    { "HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nConnection: x\r\n\r\n", true })
end

function tests.expectations()
  local p = good "--expect-status|2xx|--expect-length|13|--expect-crc32|3610A686|http://h/"
  check.equal({ p.status_from, p.status_to, p.has_length, p.length, p.has_crc, p.crc },
    { 200, 299, true, 13, true, 0x3610a686 })
  p = good "--expect-status=404|http://h/"
  check.equal({ p.status_from, p.status_to, p.has_length, p.has_crc, p.expected_body }, { 404, 404, false, false, nil })
end

function tests.stages()
  local p = good "--stages|10s:1000,1m:5k|http://h/"
  check.equal({ p.open_loop, #p.stages, p.duration_ns, p.stages[2].rate, p.first_connections },
    { true, 2, 70000000000, 5000.0, 10 })
  p = good "--stages|1s:100c,1s:40c|-t|1|http://h/"
  check.equal({ p.open_loop, p.connections, p.first_connections, p.stages[2].connections }, { false, 100, 1, 40 })
  p = good "--stages|1s:10c,|-c|40|-t|1|http://h/"
  check.equal({ p.connections, p.first_connections, #p.stages }, { 40, 40, 1 })
  refused {
    { "--stages|1s:10,1s:10c|http://h/", "not both" }, { "--stages|1s:10|-d|3s|http://h/", "remove --duration" },
    { "--stages|1s:10c|-R|3|http://h/", "remove --rate" }, { "--stages|1s|http://h/", "TIME:RATE" },
    { "--stages|1s:10,x,1s:10|http://h/", "TIME:RATE" }, { "--stages|1s:10,,1s:10|http://h/", "TIME:RATE" },
    { "--stages|0s:10|http://h/", "the total time is 0" }, { "--stages|1s:0|http://h/", "no request is due" },
    { "--stages||-R|5|http://h/", "TIME:RATE" }, { "--stages|1s:10|--sends|3|tcp://h:1", "must use connections" },
  }
end

-- 64 of each are valid; the 65th is refused because of the number.
function tests.lists_are_limited_to_64_entries()
  for _, word in ipairs { "-H|a: b|", "--threshold|errors == 0|" } do
    good(word:rep(64) .. "http://h/")
    refused { { word:rep(65) .. "http://h/", "more than 64 " } }
  end
  good("--stages|" .. ("1s:10,"):rep(64) .. "|http://h/")
  refused { { "--stages|" .. ("1s:10,"):rep(65) .. "|http://h/", "more than 64 stages" },
    { ("--protocol|x|"):rep(17) .. "ws://h/", "more than 16 subprotocols" } }
end

function tests.invalid_options_are_refused()
  refused {
    { "-q", "missing URL" },
    { "http://h/|http://i/", 'unexpected argument "http://i/": the URL is http://h/ already' },
    { "ftp://h/", "invalid URL" }, { "-c|0|http://h/", "a number from 1" },
    { "-c|1.5|http://h/", '-c: invalid value "1.5": must be a number from 1 to 1048576' },
    { "-c2000000|http://h/", "a number from 1" },
    { "-t|5|-c|4|http://h/", "5 threads need at least as many connections (-c), not 4" },
    { "-d|0|http://h/", "a time above 0" }, { "-R|0|http://h/", "requests per second" },
    { "-R|2G|http://h/", "requests per second" }, { "-H|no colon|http://h/", "Name: value" },
    { "-H|a b: c|http://h/", "Name: value" }, { "-H|a: b\n|http://h/", "Name: value" },
    { "--method|G T|http://h/", "a method" }, { "--expect-status|2x|http://h/", "a status" },
    { "--expect-crc32|12|http://h/", "hexadecimal" }, { "--expect-body|/does/not/exist|http://h/", "/does/not/exist" },
    { "--body|@/does/not/exist|http://h/", "/does/not/exist" },
    { "--max-body|2G|http://h/", "a number of bytes from 1 to 1G" }, { "--ca=|https://h/", "a file name" },
    { "--threshold|p99 <|http://h/", "METRIC" }, { "--quiet=yes|http://h/", "--quiet takes no value" },
    { "http://h/|--rate", "missing value of --rate: requests per second" },
    { "--ratte|5|http://h/", "unknown option --ratte; did you mean --rate?" },
    { "--no-such=5|http://h/", "unknown option --no-such\nluaserve stress --help" },
    { "-Z|http://h/", "unknown option -Z\n" }, { "--message|x|http://h/", "use --body" },
    { "--body|x|tcp://h:1", "use --message" }, { "--expect-status|200|tcp://h:1", "echoes are always compared" },
    { "--pipeline|2|udp://h:1", "remove --pipeline" },
    { "--pipeline|2|--no-keepalive|http://h/", "remove --pipeline" },
    { "--size|65508|udp://h:1", "the size of a datagram" }, { "--sends|5|-R|5|tcp://h:1", "closed loop" },
    { "--sends|5|-n|5|tcp://h:1", "exclude each other" },
    { "--sends|1000000001|tcp://h:1", "a whole number from 1 to 1G" },
    { "--cycles|1000000001|ws://h/", "a whole number from 1 to 1G" },
    { "-n|1000001G|http://h/", "a whole number from 1 to 1000000G" },
    { "-s|a.lua|b.lua|http://h/", "more than one script: a.lua and b.lua" },
    { "-s|a.lua|-s|b.lua|http://h/", "more than one script: a.lua and b.lua" },
    { "--size|0|ws://h/", "a number of bytes from 1 to 67108864" },
    { "--size|67108865|ws://h/", "a number of bytes from 1 to 67108864" },
    { "--size|5|--message|x|ws://h/", "--message and --size exclude each other" },
    { "--text|--binary|ws://h/", "--text and --binary exclude each other" },
    { "--binary|tcp://h:1", "are for ws and wss targets" },
    { "--protocol|chat|http://h/", "are for ws and wss targets" },
    { "--compress|http://h/", "are for ws and wss targets" },
    { "--protocol|a b|ws://h/", "the name of a subprotocol" }, { "--body|x|ws://h/", "use --message" },
    { "-H|Upgrade: x|ws://h/", "the handshake of WebSocket sets this field" },
    { "-H|sec-websocket-protocol: x|ws://h/", "use --protocol" },
    { "-H|A: b|tcp://h:1", "--header is for http and ws targets" },
    { "--size|5|http://h/", "are for ws, tcp, udp and unix targets" },
    { "--insecure|http://h/", "are for https and wss targets" },
    { "--ca|f|tcp://h:1", "are for https and wss targets" },
    { "--tls-resume|on|ws://h/", "are for https and wss targets" }, { "--tls-resume|x|https://h/", "on or off" },
    { "--insecure|--ca|f|https://h/", "remove it or --ca" }, { "--key|f|https://h/", "--key without --cert" },
    { "--insecure=yes|https://h/", "takes no value" },
    { "--streams|2|http://h/", "--streams is for --http2" }, { "--streams|0|--http2|http://h/", "from 1 to 1024" },
    { "--http2|ws://h/", "for requests to http and https" }, { "--http2|--hold|http://h/", "for requests to http and https" },
    { "--http2|--pipeline|2|http://h/", "use --streams" }, { "--http2|--no-keepalive|http://h/", "keeps its connections" },
  }
end

function tests.tls()
  local p = good "--cert|c|--key|k|--tls-resume=off|https://h/"
  check.equal({ p.tls, p.cert, p.key, p.insecure, p.tls_resume }, { true, "c", "k", false, false })
  check.equal({ good("https://h/").tls_resume, good("http://h/").tls_resume }, { true, false })
end

function tests.messages_become_frames()
  local p = good "--message|hi|--pipeline|3|--binary|ws://h:81/a?b"
  check.equal({ p.mode, p.message_len, p.request_len, p.request, p.packed },
    { "echo", 2, 11, ("<binary hi>"):rep(3), nil })
  check.equal({ p.ws_request.target, p.ws_request.host, p.compress }, { "/a?b", "h:81", false })
  p = good "--size|300|--compress|ws://h/"
  check.equal({ p.packed, p.request_len, p.compress }, { "<text packed small>", 307, true })
  check.equal(good("--size|200|--compress|ws://h/").packed, nil)
  p = good "-H|Host: other|-H|A: b|-H|C: d|--protocol|x|--protocol|y|ws://h/"
  check.equal({ p.ws_request.host, p.ws_request.fields, p.protocols, p.message },
    { "other", "A: b\r\nC: d\r\n", { "x", "y" }, "hello" })
end

function tests.words_are_the_same_in_each_run()
  check.equal({ plan.words(0), plan.words(20), #plan.words(2100000) }, { "", "green light about un", 2100000 })
end

function tests.fanout_has_defaults()
  local p = good "--fanout|ws://h/sub"
  check.equal({ p.mode, p.publishers, p.topics, p.message_bytes, p.message_len, p.publish_path, p.open_loop },
    { "fanout", 1, 1, 64, 64 - 48, "/sub", false })
  p = good "--fanout|--sse|--topics|3|-R|10|--message|hi|--publish-path|/pub/{topic}|http://h/sub"
  check.equal({ p.publishers, p.message_bytes, p.publish_path, p.open_loop, p.sse, p.base, p.post },
    { 3, 50, "/pub/{topic}", true, true, " HTTP/1.1\r\nHost: h\r\n",
      " HTTP/1.1\r\nHost: h\r\nContent-Length: 50\r\n\r\n" })
  p = good "--fanout|--size|48|-c|5|--stalled|4|ws://h/"
  check.equal({ p.message_len, p.stalled }, { 0, 4 })
  check.equal(good("--hold|tcp://h:1").mode, "hold")
  p = good "--cycles|3|-c|2|--subscribe|join|ws://h/"
  check.equal({ p.mode, p.sends, p.requests, p.duration_ns, p.subscribe }, { "cycles", 3, 6, 0, "join" })
end

function tests.fanout_options_that_do_not_fit_are_refused()
  refused {
    { "--fanout|http://h/", "--fanout with an http or https target needs --sse" },
    { "--fanout|tcp://h:1", "--fanout needs a ws or wss target" },
    { "--fanout|--sse|wss://h/", "--sse needs an http or https target" },
    { "--fanout|--size|47|ws://h/", "at least 48 bytes" },
    { "--fanout|--publishers|0|ws://h/", "a number from 1 to 65535" },
    { "--fanout|--publishers|65536|ws://h/", "a number from 1 to 65535" },
    { "--fanout|-c|5|--stalled|5|ws://h/", "each topic needs a subscriber that reads" },
    { "--fanout|-c|2|--topics|3|ws://h/", "3 topics need at least as many publishers and connections" },
    { "--fanout|--topics|3|--publishers|2|ws://h/", "3 topics need" },
    { "--fanout|--no-keepalive|ws://h/", "remove --no-keepalive" },
    { "--fanout|--sends|3|ws://h/", "excludes --sends" },
    { "--fanout|--stages|1s:3c|ws://h/", "use rates, not connections" },
    { "--fanout|-s|x.lua|--sse|http://h/", "does not run a script" },
    { "--fanout|--sse|--subscribe|x|http://h/", "use the path of the URL" },
    { "--fanout|--sse|--body|x|http://h/", "remove --method and --body" },
    { "--fanout|--sse|--expect-status|200|http://h/", "remove --expect-" },
    { "--fanout|--publish-path|x|ws://h/", "a path that begins with /" },
    { "--fanout|--subscribe||ws://h/", "a text in UTF-8" }, { "--fanout|--subscribe|\xff|ws://h/", "a text in UTF-8" },
    { "--fanout|--cycles|3|ws://h/", "excludes --hold and --cycles" }, { "--topics|3|ws://h/", "are for --fanout" },
    { "--subscribe|x|ws://h/", "is for --fanout, --hold and --cycles" },
    { "--hold|--rate|5|ws://h/", "--hold sends no messages" }, { "--hold|--cycles|5|ws://h/", "exclude each other" },
    { "--hold|udp://h:1", "udp has none" }, { "--hold|-H|a: b|tcp://h:1", "remove --header" },
    { "--cycles|5|--size|5|ws://h/", "--cycles sends no messages" },
    { "--cycles|5|tcp://h:1", "--cycles is for ws and wss targets" },
  }
end

-- ---- scripts -------------------------------------------------------------------------------------------------------

function tests.a_script_for_wrk_gets_the_options()
  local p = good "-s|x.lua|--method|PUT|--body|b|-H|A: \t c|--no-keepalive|https://[::1]:8443/p|--|one"
  check.equal({ p.mode, p.native, p.script, p.arguments }, { "script", false, "x.lua", { "one" } })
  check.equal(p.wrk, { scheme = "https", host = "::1", port = "8443", method = "PUT", path = "/p", body = "b",
    headers = { A = "c", Connection = "close" } })
  refused { { "-s|x.lua|tcp://h:1", "use scenario for ws, tcp, udp and unix" } }
end

local function with_table(line, script)
  local words = { "own.lua" }
  for word in line:gmatch("[^|]+") do words[#words + 1] = word end
  local given = assert(options.parse(words))
  local good_one, why = options.read_table(given, script)
  if not good_one then return nil, why end
  return plan.make(given, env)
end

function tests.options_in_the_table_of_a_script()
  local p = assert(with_table("", {
    target = "http://h/", connections = 3, threads = 1, requests = "1k", pipeline = 2, timeout = 2.5,
    thresholds = { "checks == 0" }, headers = { ["X-A"] = "b", B = 5 }, expect = { status = 200, length = 18 },
    keepalive = true, response = print,
  }))
  check.equal({ p.connections, p.threads, p.requests, p.pipeline, p.timeout_ns, #p.thresholds, p.status_from, p.length },
    { 3, 1, 1000, 2, 2500000000, 1, 200, 18 })
  local once = "GET / HTTP/1.1\r\nHost: h\r\nB: 5\r\nX-A: b\r\n\r\n"
  check.equal({ p.mode, p.request }, { "script", once .. once })
  p = assert(with_table("", { target = "http://h/", request = print, stages = { { "10s", rate = 1000 },
    { duration = 60, rate = 5.5 } } }))
  check.equal({ p.request, p.base, p.stages[2] },
    { nil, " HTTP/1.1\r\nHost: h\r\n", { duration_ns = 60000000000, rate = 5.5, connections = 0 } })
  p = assert(with_table("", { target = "http://h/", keepalive = false, stages = { { "1s", connections = 7 } } }))
  check.equal({ p.keepalive, p.stages[1].connections, p.mode }, { false, 7, "static" })
  check.equal(assert(with_table("", { target = "ws://h/", scenario = print, binary = true })).mode, "scenario")
end

function tests.the_command_line_overrides_the_table()
  local p = assert(with_table("-c|2|-n|10|-H|C: d|--stages|1s:3|http://i/", { target = "http://h/", connections = 3,
    headers = { A = "b" }, stages = { { "1s", rate = 9 } }, thresholds = { "p50 < 1s" } }))
  check.equal({ p.connections, p.target, #p.stages, p.stages[1].rate, p.base, #p.thresholds },
    { 2, "http://i/", 1, 3, " HTTP/1.1\r\nHost: i\r\nC: d\r\nA: b\r\n", 1 })
  check.equal(assert(with_table("--text|ws://h/", { binary = true })).binary, false)
  check.equal(assert(with_table("--insecure|https://h/", { insecure = false })).insecure, true)
end

function tests.an_invalid_table_is_refused()
  for _, case in ipairs {
    { { requst = 3 }, 'own.lua: unknown option "requst"; did you mean "request"?' },
    { { nonsense = 3 }, 'own.lua: unknown option "nonsense"' }, { { cycles = 3 }, 'unknown option "cycles"' },
    { { 3 }, "own.lua must be a script whose table has only string keys" },
    { { rate = "fast" }, 'rate: invalid value "fast": must be requests per second' },
    { { connections = 1.5 }, 'connections: invalid value "1.5"' },
    { { duration = print }, "own.lua: duration is a function; it must be a time above 0" },
    { { body = "a\0b" }, "own.lua: body is a string" }, { { insecure = "x" }, "must be true or false" },
    { { headers = { 3 } }, "headers must be a table of names and strings" },
    { { headers = { A = {} } }, "headers must be a table of names and strings" },
    { { headers = { ["a b"] = "c" } }, "headers: invalid value" }, { { headers = "x" }, "own.lua: headers must be a table; got a string" },
    { { thresholds = "p99 < 5ms" }, "own.lua: thresholds must be a table; got a string" },
    { { expect = 200 }, "own.lua: expect must be a table; got a number" },
    { { thresholds = { http_req_failed = "5xx == 0" } }, 'thresholds must be a list of strings, such as { "p99 < 50ms", "errors < 1%" }' },
    { { thresholds = { "5xx == 0", x = "4xx == 0" } }, "thresholds must be a list of strings" },
    { { thresholds = { nil, "5xx == 0" } }, "thresholds must be a list of strings" },
    { { stages = { { "1s", rate = 1 }, x = { "1s", rate = 1 } } }, "stages must be a list such as" },
    { { stages = { { "1s", rate = 1, connections = 2 } } }, "stages must be a list such as" },
    { { method = "post" }, 'method: invalid value "post": must be a method in capital letters, such as GET or POST' },
    { { thresholds = { {} } }, "thresholds must be a list of strings" },
    { { thresholds = { "p99 <" } }, "missing number" },
    { { expect = { color = 3 } }, "expect must be a table of status, length, crc32 and body" },
    { { expect = { status = 3 } }, "expect_status: invalid value" },
    { { stages = { 3 } }, "stages must be a list such as" },
    { { stages = { { "1s" } } }, "stages must be a list such as" },
    { { target = "http://h/", scenario = print, pipeline = 2 }, "a scenario cannot use --pipeline" },
    { {}, "no target: give a URL" },
  } do
    local p, why = with_table("", case[1])
    if p or not why:find(case[2], 1, true) then error(tostring(why)) end
  end
  local many = {}
  for i = 1, 65 do many["H" .. i] = "x" end
  check.equal((select(2, with_table("", { headers = many }))), "more than 64 headers")
end

return tests
