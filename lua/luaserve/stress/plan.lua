-- stress/plan.lua - everything about a run that is known before it: completes the options with defaults, checks their
-- combination, and makes the bytes of the requests.

local target = require "luaserve.stress.target"

local plan = {}

-- The defaults.
local CONNECTIONS, THREADS, DURATION_NS, TIMEOUT_NS = 10, 2, 10000000000, 10000000000
local BODY_BYTES, FANOUT_BYTES = 1 << 20, 64

local HEAD_BYTES = 48          -- of a message of a fan-out run: LS_DELIVERY_HEAD_BYTES
local NUMBER_BYTES = 48        -- before a numbered message, at most: LS_STRESS_ECHO_NUMBER_BYTES_MAX
local UDP_PAYLOAD_MAX = 65507
local REQUEST_BYTES_MAX, DURATION_NS_MAX = 1 << 30, 1 << 62
local WORDS_BYTES = 1 << 20    -- a longer text repeats them

-- An invalid combination: plan.make returns the message.
local function invalid(format, ...) error({ message = string.format(format, ...) }, 0) end

local function invalid_if(wrong, format, ...)
  if wrong then invalid(format, ...) end
end

local function has_expectation(given)
  return given.expect_status or given.expect_length or given.expect_crc32 or given.expect_body
end

-- ---- the load ------------------------------------------------------------------------------------------------------

local function due_requests(p)
  local rate, count = p.rate, 0
  for _, stage in ipairs(p.stages) do
    count = count + (rate + stage.rate) / 2 * stage.duration_ns / 1e9
    rate = stage.rate
  end
  return count
end

local function finish_stages(given, p)
  local most, rates = 0, false
  for _, stage in ipairs(given.stages) do
    if stage.connections == 0 then rates = true end
    most = math.max(most, stage.connections)
    p.duration_ns = math.min((p.duration_ns or 0) + stage.duration_ns, DURATION_NS_MAX)
  end
  invalid_if(rates and most > 0, "--stages: use rates or connections, not both")
  invalid_if(most > 0 and given.rate, "--stages with connections is a closed loop; remove --rate")
  invalid_if(given.duration, "--stages defines the duration; remove --duration")
  invalid_if(rates and p.sends > 0, "--sends is a closed loop; --stages must use connections, not rates")
  p.stages, p.open_loop = given.stages, rates
  p.first_connections = given.connections or most > 0 and 1 or CONNECTIONS
  p.connections = math.max(most, given.connections or most == 0 and CONNECTIONS or 1)
  invalid_if(p.duration_ns == 0, "--stages: the total time is 0")
  invalid_if(rates and due_requests(p) <= 0, "--stages: no request is due, because all rates are 0")
end

local function finish_load(given, p, env)
  p.rate = given.rate or 0
  p.sends, p.numbered = given.cycles or given.sends or 0, given.sends ~= nil
  if p.numbered and not given.connections and given.threads then given.connections = given.threads end
  p.stages, p.requests = {}, given.requests or 0
  if given.stages then
    finish_stages(given, p)
  else
    p.open_loop, p.connections = given.rate ~= nil, given.connections or CONNECTIONS
    p.first_connections = p.connections
    p.duration_ns = given.duration or p.requests == 0 and p.sends == 0 and DURATION_NS or 0
    invalid_if(p.open_loop and p.sends > 0, "--sends is a closed loop and --rate an open one; remove one of them")
  end
  p.threads = given.threads or math.min(env.processors, THREADS, p.connections)
  p.pipeline, p.timeout_ns = given.pipeline or 1, given.timeout or TIMEOUT_NS
  p.keepalive = not given.no_keepalive and given.keepalive ~= false
  invalid_if(not p.keepalive and p.pipeline > 1, "--no-keepalive sends one request per connection; remove --pipeline")
  invalid_if(p.sends > 0 and p.requests > 0, "--requests and --sends exclude each other; remove one of them")
  if p.sends > 0 then p.requests = p.sends * p.connections end -- the number in the reports
  p.http2, p.streams = given.http2 or false, given.streams or 1
  invalid_if(given.streams and not p.http2, "--streams is for --http2")
  invalid_if(p.http2 and (p.kind ~= "http" or p.mode ~= "static" and p.mode ~= "script"),
    "--http2 is for requests to http and https targets, not for --fanout, --hold and scenarios")
  invalid_if(p.http2 and not env.http2, "--http2 needs nghttp2, and this luaserve was built without it")
  invalid_if(p.http2 and p.pipeline > 1, "--http2 has streams instead of a pipeline; use --streams, not --pipeline")
  invalid_if(p.http2 and not p.keepalive, "--http2 keeps its connections; remove --no-keepalive")
  invalid_if(p.threads > p.connections, "%d threads need at least as many connections (-c), not %d", p.threads,
    p.connections)
end

local function finish_tls(given, p)
  p.tls = p.at.tls
  if not p.tls then
    invalid_if(given.insecure or given.ca or given.cert or given.key or given.tls_resume ~= nil,
      "--insecure, --ca, --cert, --key and --tls-resume are for https and wss targets")
    p.tls_resume = false
    return
  end
  invalid_if(given.insecure and given.ca, "--insecure accepts any certificate; remove it or --ca")
  invalid_if(given.key and not given.cert, "--key without --cert: give the certificate as well")
  p.insecure, p.ca, p.cert, p.key = given.insecure or false, given.ca, given.cert, given.key
  p.tls_resume = given.tls_resume ~= false
end

-- ---- requests ------------------------------------------------------------------------------------------------------

-- The line of the header with that name, which is in lower case, or nil.
local function header_named(given, name)
  for _, line in ipairs(given.header or {}) do
    if line:match("^[^:]*"):lower() == name then return line end
  end
end

-- The part of every request between its path and the length of its body.
local function base_of(given, p)
  local lines = { " HTTP/1.1" }
  if not header_named(given, "host") then lines[#lines + 1] = "Host: " .. target.authority(p.at) end
  for _, line in ipairs(given.header or {}) do lines[#lines + 1] = line end
  if not p.keepalive and not header_named(given, "connection") then lines[#lines + 1] = "Connection: close" end
  return table.concat(lines, "\r\n") .. "\r\n"
end

-- The end of a head, and the body.
local function end_of(given, body)
  local has_length = body == nil or header_named(given, "content-length")
  return (has_length and "" or "Content-Length: " .. #body .. "\r\n") .. "\r\n" .. (body or "")
end

-- p.request: p.pipeline copies of the text; p.request_len: the length of one.
local function set_request(p, name, text)
  if #text * p.pipeline > REQUEST_BYTES_MAX then
    error({ message = "not enough memory for the requests", status = 1 }, 0)
  end
  p[name], p[name .. "_len"] = text:rep(p.pipeline), #text
end

local function finish_http(given, p)
  invalid_if(given.message or given.size or p.sends > 0 or p.show,
    "--message, --size, --sends and --show are for ws, tcp, udp and unix targets; use --body for http")
  p.method = given.method or given.body and "POST" or "GET"
  p.is_head = p.method == "HEAD"
  p.base = base_of(given, p)
  if p.mode == "static" or p.native and not given.request_hook then
    set_request(p, "request", p.method .. " " .. p.at.path .. p.base .. end_of(given, given.body))
  end
end

-- ---- messages ------------------------------------------------------------------------------------------------------

local vocabulary = { "river", "paper", "seven", "green", "never", "light", "house", "water", "about", "small", "table",
  "under", "story", "every", "music", "north" }

-- words(bytes) -> words in an irregular order, as a compressor finds in messages of people; the same in each run.
function plan.words(bytes)
  local list, random, done = {}, 1, 0
  while done < math.min(bytes, WORDS_BYTES) do
    random = (random * 1664525 + 1013904223) & 0xffffffff -- Knuth, The Art of Computer Programming, 3.3.4
    list[#list + 1] = vocabulary[(random >> 28) + 1]
    done = done + #list[#list] + 1
  end
  local text = table.concat(list, " ") .. " "
  return text:rep(bytes // #text + 1):sub(1, bytes)
end

-- p.message, after `head_bytes` that come with it: --message, or words up to --size or `default` bytes in all.
local function finish_message(given, p, head_bytes, default)
  invalid_if(given.message and given.size, "--message and --size exclude each other; remove one of them")
  local size = given.size or default
  invalid_if(not given.message and size < head_bytes,
    "--size %d: a message of --fanout has at least %d bytes: its number and its times", size, head_bytes)
  p.message = given.message or plan.words(size - head_bytes)
  p.message_len = #p.message
  p.message_bytes = head_bytes + p.message_len
end

-- The messages of an echo; for a WebSocket as frames, with --compress also compressed.
local function finish_echo(given, p, env)
  invalid_if(given.method or given.body, "--method and --body are for http targets; use --message")
  invalid_if(given.header and p.kind ~= "ws" and p.kind ~= "http", "--header is for http and ws targets; use --message")
  invalid_if(has_expectation(given), "--expect-... is for http targets; echoes are always compared")
  if p.mode == "scenario" then return end
  if not given.size then given.message = given.message or "hello" end
  finish_message(given, p, 0, 0)
  if p.kind == "udp" then
    invalid_if(p.pipeline > 1, "datagrams have no order; remove --pipeline")
    invalid_if(p.message_len + (p.numbered and NUMBER_BYTES or 0) > UDP_PAYLOAD_MAX,
      "the message exceeds the size of a datagram (65507 bytes)")
  end
  if p.kind ~= "ws" then return set_request(p, "request", p.message) end
  set_request(p, "request", env.frame(p.binary, false, p.message))
  local packed = p.compress and env.deflate(p.message)
  if packed then set_request(p, "packed", env.frame(p.binary, true, packed)) end
end

-- ---- WebSocket -----------------------------------------------------------------------------------------------------

local own_fields = { connection = true, upgrade = true, ["sec-websocket-key"] = true, ["sec-websocket-version"] = true,
  ["sec-websocket-extensions"] = true, ["sec-websocket-protocol"] = true, ["content-length"] = true }

local function finish_ws(given, p, env)
  local by_script = p.mode == "scenario" and p.kind == "http" -- vu:ws
  if p.kind ~= "ws" and not by_script then
    invalid_if(given.binary or given.compress or given.text or given.protocol,
      "--text, --binary, --compress and --protocol are for ws and wss targets")
    return
  end
  invalid_if(given.binary and given.text, "--text and --binary exclude each other; remove one of them")
  invalid_if(given.compress and not env.compresses,
    "--compress needs zlib, and this luaserve was built without it")
  p.websocket, p.protocols = true, given.protocol or {}
  p.binary, p.compress = given.binary or false, given.compress or false
  local lines, host = {}, target.authority(p.at)
  for _, line in ipairs(given.header or {}) do
    local name = line:match("^[^:]*"):lower()
    invalid_if(own_fields[name], '--header "%s": the handshake of WebSocket sets this field%s', line,
      name == "sec-websocket-protocol" and "; use --protocol" or "")
    if name == "host" then host = line:match(":[ \t]*(.*)$") else lines[#lines + 1] = line .. "\r\n" end
  end
  p.ws_request = { host = host, target = p.path, fields = table.concat(lines) }
end

-- ---- kinds of runs -------------------------------------------------------------------------------------------------

local function finish_fanout(given, p)
  invalid_if(given.script, "--fanout does not run a script; remove one of them")
  invalid_if(p.kind ~= "ws" and p.kind ~= "http",
    "--fanout needs a ws or wss target, or an http or https target with --sse")
  invalid_if(p.kind == "http" and not p.sse,
    "--fanout with an http or https target needs --sse; or use a ws or wss target")
  invalid_if(p.kind == "ws" and p.sse, "--sse needs an http or https target, not ws or wss")
  invalid_if(p.sse and given.subscribe, "--subscribe sends a message on a WebSocket; with --sse use the path of the URL")
  invalid_if(given.method or given.body, "--fanout makes its requests itself; remove --method and --body")
  invalid_if(p.sends > 0 or p.show, "--fanout excludes --sends and --show")
  invalid_if(not p.keepalive, "--fanout keeps its connections; remove --no-keepalive")
  invalid_if(has_expectation(given), "--fanout compares its deliveries itself; remove --expect-...")
  for _, stage in ipairs(p.stages) do
    invalid_if(stage.connections > 0, "--fanout with --stages: use rates, not connections")
  end
  p.topics = given.topics or 1
  p.publishers = given.publishers or p.topics
  p.stalled = given.stalled or 0
  invalid_if(p.topics > p.publishers or p.topics > p.connections,
    "%d topics need at least as many publishers and connections, not %d and %d", p.topics, p.publishers, p.connections)
  invalid_if(p.stalled > p.connections - p.topics,
    "%d stalled connections of %d: each topic needs a subscriber that reads", p.stalled, p.connections)
  p.publish_path = given.publish_path or p.at.path
  p.mode = "fanout"
  finish_message(given, p, HEAD_BYTES, FANOUT_BYTES)
  if p.sse then
    p.base = base_of(given, p)
    p.post = p.base .. end_of(given, ""):gsub("%d+", p.message_bytes) -- the head of a publication
  end
end

local function finish_idle(given, p)
  invalid_if(given.hold and given.cycles, "--hold and --cycles exclude each other; remove one of them")
  invalid_if(given.hold and p.kind == "udp", "--hold needs connections; udp has none")
  invalid_if(given.cycles and p.kind ~= "ws", "--cycles is for ws and wss targets")
  invalid_if(given.subscribe and p.kind ~= "ws", "--subscribe is for ws and wss targets")
  local no_keepalive = given.no_keepalive or given.keepalive == false
  invalid_if(given.script or given.message or given.size or given.body or given.sends or given.show
    or (given.pipeline or 1) > 1 or no_keepalive or given.rate or given.stages or given.requests or given.method
    or has_expectation(given),
    "%s sends no messages: remove --message, --size, --body, --sends, --show, --pipeline, --no-keepalive, --rate, "
    .. "--stages, --requests, --method, --expect-... and scripts", given.hold and "--hold" or "--cycles")
  invalid_if(given.header and p.kind ~= "ws",
    "--hold sends nothing on a connection that is not a WebSocket; remove --header")
  p.mode = given.hold and "hold" or "cycles"
end

local function finish_mode(given, p)
  p.fanout, p.sse, p.hold = given.fanout or false, given.sse or false, given.hold or false
  local idle = given.hold or given.cycles
  invalid_if(p.fanout and idle, "--fanout excludes --hold and --cycles; remove them")
  invalid_if(not p.fanout and (given.publishers or given.topics or given.stalled or given.sse or given.publish_path),
    "--publishers, --publish-path, --topics, --stalled and --sse are for --fanout")
  if idle then return finish_idle(given, p) end
  invalid_if(not p.fanout and given.subscribe, "--subscribe is for --fanout, --hold and --cycles")
end

local function set_expectations(given, p)
  local status = given.expect_status or { 0, 0 }
  p.status_from, p.status_to = status[1], status[2]
  p.has_length, p.length = given.expect_length ~= nil, given.expect_length or 0
  p.has_crc, p.crc = given.expect_crc32 ~= nil, given.expect_crc32 or 0
  p.expected_body, p.expected_body_len = given.expect_body, #(given.expect_body or "")
end

-- The fields of the table `wrk` in the states of a wrk script.
local function wrk_of(given, p)
  local headers = {}
  for _, line in ipairs(given.header or {}) do
    local name, value = line:match("^([^:]*):[ \t]*(.*)$")
    headers[name] = value
  end
  if not p.keepalive then headers.Connection = "close" end
  return { scheme = p.tls and "https" or "http", host = p.at.host, port = p.at.has_port and tostring(p.at.port) or nil,
    method = given.method or "GET", path = p.at.path, body = given.body, headers = headers }
end

local function make(given, env)
  invalid_if(not given.url, 'no target: give a URL, or target = "http://..." in the script\'s table')
  local at, why = target.parse(given.url)
  invalid_if(not at, "%s", why)
  local p = { at = at, kind = at.kind, host = at.host, port = at.port, path = at.path, target = given.url,
    script = given.script, native = given.native or false, arguments = given.arguments, backend = env.backend,
    show = given.show or false, subscribe = given.subscribe, quiet = given.quiet or false,
    latency = given.latency or false, thresholds = given.threshold or {}, json = given.json, csv = given.csv,
    html = given.html, body_bytes_max = given.max_body or BODY_BYTES, binary = false, compress = false,
    websocket = false, tls_resume = false, is_head = false, message_bytes = 0, publishers = 0, topics = 0, stalled = 0 }
  p.mode = given.scenario and "scenario" or (given.hooks or given.script and not given.native) and "script" or "static"
  invalid_if(p.mode == "script" and p.kind ~= "http",
    "the hooks request and response are for http targets; use scenario for ws, tcp, udp and unix")
  if p.mode == "static" and p.kind ~= "http" then p.mode = "echo" end
  set_expectations(given, p)
  finish_mode(given, p)
  invalid_if(p.mode == "scenario" and (given.pipeline or 1) > 1, "a scenario cannot use --pipeline")
  finish_load(given, p, env)
  finish_tls(given, p)
  finish_ws(given, p, env)
  if p.fanout then
    finish_fanout(given, p)
  elseif p.mode == "static" or p.mode == "script" then
    finish_http(given, p)
  elseif p.mode == "echo" or p.mode == "scenario" then
    finish_echo(given, p, env)
  end
  if given.script and not given.native then p.wrk = wrk_of(given, p) end
  return p
end

-- make(given, env) -> the plan | nil, message, exit status. given: of options.parse and options.read_table. env:
-- processors, backend, compresses (built with zlib), http2 (with nghttp2), frame(binary, compressed, text), deflate(text).
-- The names of the plan are those of ls_stress_plan.
function plan.make(given, env)
  local good, result = pcall(make, given, env)
  if good then return result end
  if type(result) ~= "table" then error(result, 0) end
  return nil, result.message, result.status or 2
end

return plan
