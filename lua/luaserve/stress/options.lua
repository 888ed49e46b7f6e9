-- stress/options.lua - the options of `luaserve stress`: the table of the command line (command.lua), which the table of a
-- native script uses as well, so the same function reads `--rate 20k` and `rate = "20k"`.

local command = require "luaserve.command"
local texts = require "luaserve.stress.text"
local threshold = require "luaserve.stress.threshold"
local usage = require "luaserve.usage"

local options = {}

options.CONNECTIONS_MAX = 1 << 20
local PUBLISHERS_MAX = 65535   -- LS_DELIVERY_PUBLISHERS_MAX
local SENDS_MAX = 1000000000   -- of each connection: the number of all messages fits in 64 bits
local BODY_BYTES_MAX = 1000000000
local MESSAGE_BYTES_MAX = 64 << 20
local STAGES_MAX = 64          -- LS_STRESS_STAGES_MAX

-- ---- kinds ---------------------------------------------------------------------------------------------------------

local whole, matching = command.whole, command.matching

local function above_0(read)
  return function(text)
    local value = read(text)
    return value and value > 0 and value or nil
  end
end

local connections = whole(1, options.CONNECTIONS_MAX)
local duration = { expected = "a time above 0, such as 10s, 500ms, 2m", read = above_0(command.time_ns) }
local timeout = { expected = "a time, such as 10s or 500ms; 0: no limit", read = command.time_ns }

local rate = {
  expected = "requests per second, above 0, such as 1000 or 20k",
  read = above_0(function(text)
    local value = command.count(text)
    return value and value <= 1e9 and value or nil
  end),
}

-- "10s:1000" or "10s:100c" -> { duration_ns =, rate = | connections = }
local function stage(text)
  local time, value, unit = text:match("^([^:]*):(.-)(c?)$")
  local duration_ns = time and command.time_ns(time)
  if not duration_ns then return nil end
  if unit == "c" then
    local number = connections.read(value)
    return number and { duration_ns = duration_ns, rate = 0, connections = number }
  end
  local number = command.count(value)
  return number and number <= 1e9 and { duration_ns = duration_ns, rate = number, connections = 0 } or nil
end

local stages = {
  expected = "TIME:RATE or TIME:CONNECTIONSc, separated by commas: 10s:1000,1m:5000",
  read = function(text)
    local list = {}
    for part in (text:gsub(",$", "") .. ","):gmatch("([^,]*),") do
      list[#list + 1] = stage(part)
      if not list[1] or #list > STAGES_MAX then break end
    end
    local _, commas = text:gsub(",$", ""):gsub(",", "")
    if #list > STAGES_MAX then return nil, string.format("more than %d stages", STAGES_MAX) end
    return #list == commas + 1 and list or nil
  end,
}

local header = {
  expected = '"Name: value"',
  read = function(line)
    local name, value = line:match("^([^:]*):(.*)$")
    return texts.is_field(name, value) and line or nil
  end,
}

-- The bytes of a file; nil and a message.
local function contents(path)
  local file, why = io.open(path, "rb")
  if not file then return nil, why end
  local bytes
  bytes, why = file:read("a")
  file:close()
  return bytes, not bytes and path .. ": " .. why or nil
end

local body = {
  expected = "a text, or @FILE",
  read = function(text)
    if text:sub(1, 1) == "@" then return contents(text:sub(2)) end
    return text
  end,
}

local expected_body = { expected = "a file name", read = contents }

-- "200" -> { 200, 200 }; "2xx" -> { 200, 299 }
local status = {
  expected = "a status such as 200, or a class such as 2xx",
  read = function(text)
    local class = tonumber(text:match("^([1-9])xx$"))
    if class then return { class * 100, class * 100 + 99 } end
    local number = math.tointeger(tonumber(text:match("^[1-9]%d%d$")))
    return number and { number, number }
  end,
}

local crc32 = {
  expected = "eight hexadecimal digits",
  read = function(text) return #text == 8 and text:find("^%x+$") and tonumber(text, 16) or nil end,
}

local on_off = {
  expected = "on or off",
  read = function(text) return ({ on = true, ["true"] = true, off = false, ["false"] = false })[text] end,
}

local method = {
  expected = "a method in capital letters, such as GET or POST",
  read = function(text) return text:find(texts.TOKEN) and not text:find("%l") and text or nil end,
}

local path = matching("^/[^\0-\32\127#]*$", "a path that begins with /")
local utf8_text = {
  expected = "a text in UTF-8 of at least one byte",
  read = function(text) return text ~= "" and utf8.len(text) and text or nil end,
}

local condition = {
  expected = '"METRIC OPERATOR NUMBER", such as "p99 < 5ms"',
  read = function(text)
    local parsed, why = threshold.parse(text)
    return parsed, why and why .. "\n" .. threshold.grammar
  end,
}

-- ---- the command line ----------------------------------------------------------------------------------------------

-- `line`: only on the command line, not in the table of a script. Switches without `line` are booleans there.
options.line = {
  name = "stress",
  title = "the load tool: put a server under load and report how fast it responds",
  usage = {
    "[options] URL",
    "[options] script.lua [-- arguments...]",
    "[options] -s wrk-script.lua URL [-- arguments...]",
  },
  about = [[
URL: http://host[:port][/path], https://host[:port][/path], ws://host[:port][/path], wss://host[:port][/path],
tcp://host:port, udp://host:port, unix:/path, http+unix:/path]],
  options = {
    "Load",
    { "-c, --connections N", connections, [[number of connections (default 10). When a connection fails, a new one
      replaces it]] },
    { "-t, --threads N", whole(1, 1024), [[number of threads (default 2, at most one per processor and per
      connection)]] },
    { "-d, --duration T", duration, [[length of the run (default 10s; with --requests or --sends: until they are
      done)]] },
    { "-n, --requests N", whole(1, 10 ^ 15, "a whole number from 1 to 1000000G"), [[number of requests. With
      --duration, the run ends when it reaches the first of these limits]] },
    { "-R, --rate N", rate, [[open loop: N requests per second are due whatever the server does, and latency counts
      from the due time. Default: closed loop, each connection sends its next request after the response to the last
      one]] },
    { "--stages LIST", stages, [[load that changes over time, in at most 64 stages. "10s:1000,1m:5000": within 10 s to
      1,000 requests per second, within the next minute to 5,000 (open loop); "10s:100c,1m:100c": the same with
      connections (closed loop). Not with --duration]] },
    { "--pipeline N", whole(1, 1024), "outstanding requests per connection (default 1)" },
    { "--http2", nil, [[HTTP/2: with https by ALPN, with http without an upgrade (prior knowledge)]] },
    { "--streams N", whole(1, 1024), [[outstanding requests per connection of --http2, each on a stream of its own
      (default 1)]] },
    { "--no-keepalive", nil, "use a new connection for each request", line = true },
    { "--timeout T", timeout, [[limit for a connect with its handshakes and for a request (default 10s); 0: no
      limit]] },
    "HTTP",
    { "-H, --header LINE", header, 'add the header "Name: value"; may be given up to 64 times', many = "headers",
      line = true },
    { "--method NAME", method, [[request method (default GET; POST
      with --body)]] },
    { "--body TEXT", body, "request body; @FILE reads it from a file" },
    { "--expect-status S", status, "expected status of each response: 200, or a class: 2xx" },
    { "--expect-length N", whole(0, 10 ^ 15, "a number of bytes"), "expected length of each body, in bytes" },
    { "--expect-crc32 H", crc32, "expected CRC-32 of each body, eight hexadecimal digits" },
    { "--expect-body FILE", expected_body, [[each body must be equal to this file. A response that fails an
      expectation is an error; unless a threshold limits the errors, the exit status is then 99]] },
    { "--max-body N", whole(1, BODY_BYTES_MAX, "a number of bytes from 1 to 1G"), [[limit of a body that a script looks
      at, in bytes (default 1048576); a longer one is an error]] },
    { "-s, --script FILE", command.file, "script for wrk: setup, init, delay, request, response, done",
      many = "scripts", line = true },
    "https, wss",
    { "--insecure", nil, "accept any certificate" },
    { "--ca FILE", command.file, [[trusted certificates, in PEM (default: the trust store of the system). Not with
      --insecure]] },
    { "--cert FILE", command.file, "client certificate and its chain, in PEM" },
    { "--key FILE", command.file, "its private key (default: in the file of --cert)" },
    { "--tls-resume on|off", on_off, [[on: a new connection resumes the session of an earlier one (default); off: full
      handshakes only]] },
    "ws, wss, tcp, udp, unix: send a message and compare its echo byte for byte",
    { "--message TEXT", matching(".", "a text of at least one byte"), "the message (default hello)" },
    { "--size N", whole(1, MESSAGE_BYTES_MAX, "a number of bytes from 1 to 67108864"), [[a message of N bytes, which
      are words]] },
    { "--sends N", whole(1, SENDS_MAX, "a whole number from 1 to 1G"), [[number of messages per connection; messages
      are numbered: "<i>. Thread <t> - <message>". Without -c there is one connection per thread given with -t]] },
    { "--show", nil, "print each echo", line = true },
    "ws, wss",
    { "--text", nil, "send text messages (the default)", line = true },
    { "--binary", nil, "send binary messages" },
    { "--compress", nil, "offer permessage-deflate, and compress messages of 256 bytes or more" },
    { "--protocol NAME", matching(texts.TOKEN, "the name of a subprotocol, such as chat.v1"), [[offer a subprotocol;
      may be given up to 16 times]], many = "subprotocols", most = 16 },
    { "--cycles N", whole(1, SENDS_MAX, "a whole number from 1 to 1G"), [[no messages: connect, send --subscribe,
      close, N times on each connection]], line = true },
    { "--subscribe TEXT", utf8_text, [[first message of a subscriber, or of a connection of --hold or --cycles]],
      line = true },
    { "--hold", nil, "no messages: the connections stay idle (also http, https, tcp, unix)", line = true },
    "Fan-out: publishers send messages, which the server must deliver to all connections",
    { "--fanout", nil, [[subscribers are the connections to URL; latency counts from the publication. --rate and
      --requests count publications; without --rate a publisher sends its next message when all subscribers have the
      last one]], line = true },
    { "--sse", nil, [[server-sent events: subscribers are GET requests, publications POST requests (http, https)]],
      line = true },
    { "--publishers N", whole(1, PUBLISHERS_MAX), "additional connections that publish (default 1)", line = true },
    { "--publish-path P", path, "their path (default: that of the URL)", line = true },
    { "--topics N", whole(1, PUBLISHERS_MAX), [[subscriber s and publisher p have the topics s and p modulo N, which
      replace {topic} in --subscribe, --publish-path and the path of the URL (default 1)]], line = true },
    { "--stalled N", whole(1, options.CONNECTIONS_MAX, "a number from 1, below that of the connections"),
      "N subscribers never read", line = true },
    "Report",
    { "--latency", nil, "print the latency distribution", line = true },
    { "--threshold TEXT", condition, [[a condition on the result: "p99 < 5ms", "errors < 0.1%", "lost == 0"; may be
      given up to 64 times]], many = "thresholds", line = true },
    { "--json FILE", command.file, "write the report to a file, as JSON" },
    { "--csv FILE", command.file, "as tables for spreadsheets" },
    { "--html FILE", command.file, "as a page with diagrams" },
    { "-q, --quiet", nil, "show no progress", line = true },
    { "-h, --help", nil, "print the options", line = true },
  },
  notes = [[
Counts and rates may end in k, M or G (thousands, millions, billions), times in us, ms, s, m or h (default s). SIGINT
ends the run early, with a report; a second SIGINT ends the program at once.

script.lua returns a table. Its options are those above without the dashes and with "_" for "-", and these:

  target = "http://127.0.0.1:8080"                 the URL
  headers = { Accept = "*/*" }, keepalive = false, expect = { status = "2xx", length = 13, crc32 = "...", body = "FILE" }
  thresholds = { "p99 < 5ms", "errors < 1%" }      stages = { { duration = "10s", rate = 1000 }, ... }
  setup = function() return data end               once; each thread has a copy as vu.data
  request = function(vu) return "POST", "/items", { Accept = "*/*" }, "the body" end
  response = function(vu, status, headers, body) vu:check(status == 201, "a name") end
  scenario = function(vu, sock) ... end            in place of request and response
  done = function(summary, latency, rates) ... end

Exit status: 0: success; 99: a threshold was missed, or an expectation failed without a threshold on errors or checks; 1:
the run or its rate failed; 2: invalid command line.]],
}

local function is_native_script(word) return word:find(".%.lua$") ~= nil and not word:find("://", 1, true) end

-- parse(arguments) -> the values of the options by their keys, with url, script, native and arguments; nil and a message.
function options.parse(arguments)
  local given, words, at = command.parse(options.line, arguments)
  if not given then return nil, words end
  if given.help then return given end
  given.scripts, given.script = given.script or {}, nil
  for _, word in ipairs(words) do
    if is_native_script(word) then
      given.scripts[#given.scripts + 1], given.native = word, true
    elseif given.url then
      return nil, string.format('unexpected argument "%s": the URL is %s already', word, given.url)
    else
      given.url = word
    end
  end
  if #given.scripts > 1 then return nil, "more than one script: " .. table.concat(given.scripts, " and ") end
  given.script = given.scripts[1]
  given.arguments = table.move(arguments, at, #arguments, 1, {})
  if not given.url and not given.native then
    return nil, "missing URL or script; usage: luaserve stress [options] URL (see luaserve stress --help)"
  end
  return given
end

-- ---- the table of a native script ----------------------------------------------------------------------------------

local hooks = { request = true, response = true, scenario = true, setup = true, done = true }
local boolean = {
  expected = "true or false",
  read = function(text) return ({ ["true"] = true, ["false"] = false })[text] end,
}
local by_key = {
  keepalive = { "--keepalive X", boolean },
  target = { "--target URL", matching(".", "a URL"), key = "url" },
}
local by_name = {}
for option in command.each(options.line) do
  local key = command.key(option)
  by_name[key] = option
  if not option.line then
    by_key[key] = command.value_name(option) and option or { option[1] .. " X", boolean, key = key }
  end
end

local function must_be(name, expected) return nil, string.format("%s must be %s", name, expected) end

-- A boolean, number or string without zero bytes as the text of a command-line option.
local function text_of(value)
  local kind = type(value)
  if kind == "boolean" or kind == "number" then return tostring(value) end
  return kind == "string" and not value:find("\0", 1, true) and value or nil
end

local lists = {}

local STAGES = 'a list such as { { duration = "10s", rate = 1000 }, ... }, or with connections in place of rate'
local THRESHOLDS = 'a list of strings, such as { "p99 < 50ms", "errors < 1%" }'

function lists.headers(given, headers)
  local names = {}
  for name in pairs(headers) do names[#names + 1] = name end
  table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
  for _, name in ipairs(names) do
    local value = text_of(headers[name])
    if type(name) ~= "string" or not value then return must_be("headers", "a table of names and strings") end
    local good, why = command.read(by_name.header, "headers", name .. ": " .. value, given)
    if not good then return nil, why end
  end
  return true
end

-- { status = "2xx", length = 13, crc32 = "...", body = "file" }
function lists.expect(given, expect)
  for name, value in pairs(expect) do
    local key = "expect_" .. tostring(name)
    local text = text_of(value)
    if not by_key[key] or not text then return must_be("expect", "a table of status, length, crc32 and body") end
    local good, why = command.read(by_key[key], key, text, given)
    if not good then return nil, why end
  end
  return true
end

-- { { "10s", rate = 1000 }, { duration = 60, connections = 100 } }
function lists.stages(given, list)
  local all = {}
  if not usage.is_list(list) then return must_be("stages", STAGES) end
  for i, one in ipairs(list) do
    local time = type(one) == "table" and text_of(one.duration or one[1])
    local value = time and text_of(one.rate or one.connections)
    if not value or one.rate and one.connections then return must_be("stages", STAGES) end
    all[i] = time .. ":" .. value .. (one.rate and "" or "c")
  end
  return command.read(by_name.stages, "stages", table.concat(all, ","), given)
end

function lists.thresholds(given, list)
  if not usage.is_list(list) then return must_be("thresholds", THRESHOLDS) end
  for _, one in ipairs(list) do
    local text = text_of(one)
    if not text then return must_be("thresholds", THRESHOLDS) end
    local good, why = command.read(by_name.threshold, "thresholds", text, given)
    if not good then return nil, why end
  end
  return true
end

local function unknown(path_of_script, key)
  local known = {}
  for _, names in ipairs { hooks, lists, by_key } do for name in pairs(names) do known[name] = true end end
  local near = command.suggest(key, known)
  return nil, string.format('%s: unknown option "%s"%s', path_of_script, key,
    near and '; did you mean "' .. near .. '"?' or "")
end

-- Read one pair of the table into `own`; `given` has the options of the command line, which override it.
local function read_pair(given, own, key, value)
  if type(key) ~= "string" then return must_be(given.script, "a script whose table has only string keys") end
  if hooks[key] then return true end
  -- Stages of the command line replace those of the script; its headers and thresholds are added to them.
  if key == "stages" and given.stages then return true end
  if lists[key] and type(value) == "table" then return lists[key](own, value) end
  local option = by_key[key]
  if not option and lists[key] then return must_be(given.script .. ": " .. key, "a table; got a " .. type(value)) end
  if not option then return unknown(given.script, key) end
  local text = text_of(value)
  if not text then
    return nil, string.format("%s: %s is a %s; it must be %s", given.script, key, type(value), option[2].expected)
  end
  return command.read(option, key, text, own)
end

-- read_table(given, script) -> true, or nil and a message. Adds the options of a script's table to those of the command
-- line, which override them.
function options.read_table(given, script)
  local own = { header = given.header, threshold = given.threshold } -- these are added
  for key, value in pairs(script) do
    local good, why = read_pair(given, own, key, value)
    if not good then return nil, why end
  end
  if given.text then own.binary = nil end
  for key, value in pairs(own) do
    if given[key] == nil then given[key] = value end
  end
  given.scenario = script.scenario ~= nil
  given.request_hook = script.request ~= nil
  given.hooks = given.request_hook or script.response ~= nil
  return true
end

return options
