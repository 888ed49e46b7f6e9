-- fetch.lua - ls.fetch: requests to other servers. Here is what is decided once per request: options, connections, the
-- head of the request, redirects, retries. fetch_rules.lua has the rules of HTTP; script/bind/client/client_call.c reads
-- the response.

local core = require "luaserve.core"
local json = require "luaserve.json"
local usage = require "luaserve.usage"
local once = require "luaserve.once"
local options = require "luaserve.options"
local reply = require "luaserve.reply"
local proxies = require "luaserve.fetch_proxy"
local rules = require "luaserve.fetch_rules"
local tcp = require "luaserve.tcp"
local trim = require("luaserve.text").trim

local concat, format, next, rawget, setmetatable = table.concat, string.format, next, rawget, setmetatable
local tostring, type = tostring, type
local now = core.now

local fetch = {}

local uint32_max = 2 ^ 32 - 1
local LINE_BYTES_MAX = 1024 * 1024   -- of answer:lines
local REDIRECT_BODY_MAX = 64 * 1024  -- of a redirect; a connection with a longer one is closed
local PAUSE_S = 0.1                  -- before the first retry; doubled before each further one

local request_options = {
  method = true, -- string - default GET, or POST with a body
  headers = true, -- Headers - header fields
  query = true, -- table<string, any> - appended to the URL, as ls.url.query makes it
  body = true, -- string|Buffer|fun(): Data? - the body; a function is called until it returns nil
  json = true, -- any - a value that is sent as JSON
  form = true, -- table<string, any> - sent as a form, as ls.url.query makes it
  parts = true, -- FetchPart[] - sent as a form with files
  timeout = { "total_ms_max", "seconds", 1, uint32_max, 30, none = 0 }, -- seconds for everything
  connect_timeout = { "connect_ms_max", "seconds", 1, uint32_max, 10, none = 0 }, -- seconds for lookup, addresses and TLS
  redirects = { "redirects_max", "count", 0, 100, 5, none = 0 }, -- that are followed
  max_body = { "body_bytes_max", "size", 0, math.maxinteger, "8m", none = math.maxinteger }, -- longest body in memory
  stream = { "stream", "flag" }, -- return when the head has arrived
  retry = { "retries_max", "count", 0, 100, 0, none = 0 }, -- further attempts after a failure without an answer
  tls = true, -- TlsClientOptions - of https://
  proxy = true, -- string|false - URL of an HTTP proxy, `"http://host:port"`; default: that of the environment
  jar = true, -- CookieJar - sends its cookies, and keeps those that servers set
  unix = { "unix", "text", "the path of a Unix socket" }, -- connect to it and not to the host
  public = { "public_only", "flag" }, -- refuse addresses of this machine and of private networks
}

fetch.calls = { ["ls.fetch"] = { request_options } } -- FetchOptions

-- ---- URLs ----------------------------------------------------------------------------------------------------------

local URLS_MAX, URL_BYTES_MAX = 256, 256 -- that are remembered
local parsed, parsed_count = {}, 0 -- those of the last requests

-- As rules.parse. The result is shared, and keeps the head of a plain GET; nothing else of it changes.
local function parse(url)
  if parsed[url] then return parsed[url] end
  local at, why = rules.parse(url)
  if not at then return nil, why end
  if #url > URL_BYTES_MAX then return at end
  if parsed_count == URLS_MAX then parsed, parsed_count = {}, 0 end
  parsed[url], parsed_count = at, parsed_count + 1
  return at
end

-- ---- the request ---------------------------------------------------------------------------------------------------

local own_header = "ls.fetch: the header %q is written by ls.fetch"

local function check_header(name)
  if not options.is_token(name) then usage.error("ls.fetch: invalid header name %s", usage.quote(name)) end
  if rules.is_own(name) then usage.error(own_header, name) end
end

local function read_headers(headers)
  usage.check(headers, "table", 'ls.fetch: headers must be a table such as { Authorization = "Bearer 1" }')
  local fields = options.fields(headers, check_header)
  for _, field in ipairs(fields) do
    local value = field[2]
    if math.type(value) == "integer" or math.type(value) == "float" then
      field[2] = tostring(value)
    elseif type(value) ~= "string" then
      usage.error("ls.fetch: the value of the header %q must be a string, a number or a list of them; got %s", field[1],
        usage.quote(value))
    elseif value:find("[\0-\8\10-\31\127]") then -- which may be a secret
      usage.error("ls.fetch: the value of the header %q contains a control character, such as a line feed at its end",
        field[1])
    end
  end
  return fields
end

local form_of_table <const> = "ls.fetch: %s must be a table such as { page = 2 }"
local of_no_body = { POST = true, PUT = true, PATCH = true }
local bodies <const> = { "body", "json", "form", "parts" }

-- The body and its type.
local function read_body(given)
  local name, body = options.one_of("ls.fetch", given, bodies), given.body
  if name == "form" then usage.check(given.form, "table", form_of_table, "form") end
  if name ~= "body" then return require("luaserve.fetch_parts").body("ls.fetch", name, given[name]) end
  usage.refuse(type(body) ~= "string" and type(body) ~= "function" and not core.is_buffer(body), body,
    "ls.fetch: body must be a string, a buffer or a function")
  return body
end

local function read_proxy(given)
  if given.proxy == false then return false end
  if given.unix or given.public then
    usage.error("ls.fetch: with a proxy this server does not connect to the host; give one of proxy, unix and public")
  end
  local found, why
  if type(given.proxy) == "string" then found, why = proxies.read(given.proxy) end
  if not found then
    usage.error('ls.fetch: proxy must be the URL of an HTTP proxy, such as "http://127.0.0.1:3128", or false; got %s%s',
      type(given.proxy) == "string" and usage.quote(rules.shown(given.proxy)) or usage.quote(given.proxy),
      why and ": " .. why or "")
  end
  return found
end

local function read_jar(given, fields)
  usage.refuse(not require("luaserve.cookie_jar").is(given.jar), given.jar,
    "ls.fetch: jar must be what ls.cookie_jar returns")
  if options.field(fields, "cookie") then usage.error("ls.fetch: give one of jar and the header Cookie") end
  return given.jar
end

local no_fields = {}
local of_defaults = { -- of a request without options; plain: it has none
  __index = options.take("ls.fetch", {}, { request_options },
    { method = "GET", fields = no_fields, plain = true, redirected = 0 }),
}

-- Read the options into a request: { at =, method =, fields =, body =, and the options }.
local function read_request(at, given)
  if given == nil then -- with room for what is set later
    local request = { at = at, method = "GET", plain = true, begun = nil, deadline = nil, head_s = nil, total_s = nil }
    return setmetatable(request, of_defaults)
  end
  local request = { at = at, method = "GET", fields = no_fields, redirected = 0 }
  usage.check(given, "table", "ls.fetch: options must be a table such as { timeout = 5 }")
  options.take("ls.fetch", given, fetch.calls["ls.fetch"], request)
  if given.headers ~= nil then request.fields = read_headers(given.headers) end
  if given.body ~= nil or given.json ~= nil or given.form ~= nil or given.parts ~= nil then
    local content_type
    request.method = "POST"
    request.body, content_type = read_body(given)
    if content_type and not options.field(request.fields, "content-type") then
      request.fields = table.move(request.fields, 1, #request.fields, 1, {}) -- not the shared empty list
      request.fields[#request.fields + 1] = { "Content-Type", content_type }
    end
  end
  if given.query ~= nil then
    usage.check(given.query, "table", form_of_table, "query")
    local text = require("luaserve.fetch_parts").text("ls.fetch", "query", given.query)
    if text ~= "" then
      local own = { target = at.target .. (at.target:find("?", 1, true) and "&" or "?") .. text }
      request.at = setmetatable(own, { __index = at }) -- `at` is that of other requests, too
    end
  end
  if given.method ~= nil then
    if not options.is_token(given.method) then usage.error("ls.fetch: invalid method %s", usage.quote(given.method)) end
    local upper = given.method:upper()
    if upper == "CONNECT" then usage.error("ls.fetch: the method CONNECT makes a tunnel, not a request") end
    request.method = (rules.idempotent[upper] or of_no_body[upper]) and upper or given.method -- other names differ in case
  end
  if given.tls ~= nil and require("luaserve.tls").client("ls.fetch", given.tls) and given.tls ~= true then
    request.tls = given.tls
  end
  if at.secure and given.tls == false then usage.error("ls.fetch: https:// needs TLS; got tls = false") end
  if request.unix and request.public_only then
    usage.error("ls.fetch: a Unix socket is not public; give one of unix and public")
  end
  if given.proxy ~= nil then request.proxy = read_proxy(given) end
  if given.jar ~= nil then request.jar = read_jar(given, request.fields) end
  return request
end

-- ---- connections ---------------------------------------------------------------------------------------------------

-- fetch.key_of(request) -> the key of the origin in the pool: see net/stream/stream_pool.h. { at =, unix =, tls = } suffices.
local function key_of(request)
  local key = request.at.origin
  if request.plain and not request.via then return key end
  if request.public_only then key = key .. " public" end
  if request.unix then key = key .. " unix:" .. request.unix end
  if request.via then key = key .. " via " .. request.via.shown .. " " .. request.via.authorization end
  if request.at.secure and request.tls then key = key .. " " .. options.key(request.tls) end
  return key
end
fetch.key_of = key_of

local function timed_out(request)
  return nil, format("timeout after %g s", request.total_ms_max / 1000), "ETIMEDOUT"
end

-- The seconds that are left until the deadline of the request, 0 after it; nil: no limit.
local function left(request) return request.deadline and math.max(request.deadline - now(), 0) end

local function begin_deadline(request, at)
  if request.total_ms_max > 0 then request.deadline = at + request.total_ms_max / 1000 end
end

-- The seconds that are left to connect, more than 0; nil: no limit.
local function left_to_connect(request)
  local ends, deadline = request.connect_deadline, request.deadline
  if deadline and (not ends or deadline < ends) then ends = deadline end
  return ends and math.max(ends - now(), 0.001)
end

-- The options of TLS with the name that the certificate must have, unless they name one.
local function named(tls, host) return setmetatable(tls.server_name and {} or { server_name = host }, { __index = tls }) end

-- Change the connection to the proxy to one with the origin server. -> sock | nil, message, code
local function tunnel(request, sock)
  local done, message, code = proxies.tunnel(request.via, sock, request.at, left_to_connect(request))
  if not done then return nil, message, code end
  local tls = { timeout = left_to_connect(request) }
  for name, value in next, request.tls or {} do tls[name] = value end
  tls.server_name = tls.server_name or request.at.host
  done, message, code = sock:starttls(tls)
  if not done then return nil, message, code end
  return sock
end

-- Of core.connect, which has read them when it waits.
local limits = options.merged { tcp.defaults(), { write_bytes_high = uint32_max } }

-- fetch.dial(request) -> sock | nil, message, code. Connects. { at =, unix =, tls =, connect_ms_max = } suffices.
local function dial(request)
  local at, via = request.at, request.via
  request.connect_deadline = request.connect_ms_max > 0 and now() + request.connect_ms_max / 1000 or nil
  local seconds = left_to_connect(request)
  limits.connect_ms_max, limits.public_only = seconds and math.ceil(seconds * 1000) or 0, request.public_only
  limits.tls = at.secure and not via and require("luaserve.tls").client("ls.fetch", request.tls or true) or nil
  if limits.tls and request.unix then limits.tls = named(limits.tls, at.host) end
  local host, port = at.host, at.port
  if request.unix then host, port = "unix:" .. request.unix, 0 end
  if via then host, port = via.host, via.port end
  local sock, message, code = core.connect(host, port, limits)
  if sock and via and at.secure then return tunnel(request, sock) end
  if sock then return sock end
  if via then return proxies.failure(via, message, code) end
  if code == "EACCES" and request.public_only then message = "the address is not public" end
  return nil, message, code
end
fetch.dial = dial

-- ---- sending -------------------------------------------------------------------------------------------------------

local agent = format("User-Agent: luaserve/%s\r\n", core.version)
local accept = "Accept: */*\r\n"
local accept_codings -- a line with the codings of this build; "": none

local function codings_line()
  local names = {}
  for n, coding in ipairs(core.codings()) do names[n] = coding.name end
  return #names > 0 and "Accept-Encoding: " .. concat(names, ", ") .. "\r\n" or ""
end

-- The head of the request as text. Sets request.encoded: the site has asked for the coding of the answer, or for a part.
local function head_of(request)
  local at = request.at
  if request.plain and not request.via and at.get then return at.get end
  local body = request.body
  local framing = type(body) == "function" and "Transfer-Encoding: chunked\r\n"
    or body and "Content-Length: " .. #body .. "\r\n" or of_no_body[request.method] and "Content-Length: 0\r\n" or ""
  accept_codings = accept_codings or codings_line()
  local target, own = at.target, framing
  if request.via and not at.secure then target, own = at.origin .. target, framing .. request.via.authorization end
  if request.fields[1] == nil then
    local head = concat { request.method, " ", target, " HTTP/1.1\r\nHost: ", at.authority, "\r\n", agent, accept,
      accept_codings, own, "\r\n" }
    if request.plain and not request.via then at.get = head end
    return head
  end
  local lines, given = {}, {}
  for n, field in ipairs(request.fields) do
    lines[n] = field[1] .. ": " .. field[2] .. "\r\n"
    given[field[1]:lower()] = true
  end
  request.encoded = given["accept-encoding"] or given.range -- a part cannot be inflated
  return concat { request.method, " ", target, " HTTP/1.1\r\n", given.host and "" or "Host: " .. at.authority .. "\r\n",
    given["user-agent"] and "" or agent, given.accept and "" or accept, request.encoded and "" or accept_codings,
    concat(lines), own, "\r\n" }
end

-- Replace the cookies that the jar has given to an earlier request of the same fetch.
local function put_cookies(request)
  local fields = {}
  for _, field in ipairs(request.fields) do
    if field[1] ~= "Cookie" then fields[#fields + 1] = field end
  end
  local text = request.jar:field(request.at)
  if text then fields[#fields + 1] = { "Cookie", text } end
  request.fields = fields
end

local WRITE_AHEAD = 256 * 1024 -- a function of a body waits while more bytes are queued

-- Send a piece of a body in chunks. -> whether to continue
local function send_piece(sock, piece)
  if type(piece) == "number" then piece = tostring(piece) end
  if type(piece) ~= "string" and not core.is_buffer(piece) then
    error("ls.fetch: the function of body must return strings and buffers, and nil at the end; got " .. usage.quote(piece),
      0)
  end
  if #piece == 0 then return true end
  if not sock:send(format("%x\r\n", #piece), piece, "\r\n") then return false end
  return sock.queued <= WRITE_AHEAD or sock:flush()
end

-- Send what the function returns, or the iterator that it returns. -> whether the server has taken all
local function send_function(body, sock)
  local first, state, control = body()
  if type(first) == "function" then
    for piece in first, state, control do
      if not send_piece(sock, piece) then return false end
    end
  else
    while first ~= nil do
      if not send_piece(sock, first) then return false end
      first = body()
    end
  end
  return sock:send("0\r\n\r\n")
end

-- Send the request. The result is that of the response: a server may answer before it has read all of the request, and
-- close the connection. It may also answer while it reads, and wait until the answer is read: so a job sends what a
-- function returns. request.sending: it has not sent all; request.raised: the error of the function.
local function send_request(request, sock, call)
  local head, body = head_of(request), request.body
  if type(body) ~= "function" then
    sock:send(head, body or "") -- does not wait: the response is awaited while the body is sent
    return
  end
  sock:send(head)
  request.sending = true
  core.spawn(function()
    local ok, result = once.send(request, send_function, body, sock)
    if ok then
      request.sending = not result
    else
      request.raised = result
      call:close()
    end
  end)
end

-- Raise the error of the function that sends the request's body, if it has raised one. That of once.lua may have no line.
local function raise_of_body(request)
  if request.raised == nil then return end
  if request.raised == request.refused then usage.error("%s", request.raised) end
  error(request.raised, 0)
end

-- The response is complete: keep the connection for the next request, unless this one is not.
local function keep(request, call)
  if request.sending then call:close() else call:keep(key_of(request)) end
end

-- One attempt. -> call, status, head, coding | nil, message, code, whether it may be made again, on a used connection
local function attempt(request, key, fresh)
  local repeats = rules.idempotent[request.method] and type(request.body) ~= "function"
  local sock = not fresh and core.client_take(key, repeats) or nil
  local reused = sock ~= nil
  if not sock then
    local begun = now()
    local message, code
    sock, message, code = dial(request)
    if not sock then return nil, message, code, true, false end
    request.connect_s = now() - begun
  end
  local call = core.client_call(sock, request.method == "HEAD" and "head" or "body", left(request))
  send_request(request, sock, call)
  local status, head, coding, silent = call:head()
  raise_of_body(request)
  if status then return call, status, head, coding end
  return nil, head, coding, silent and coding ~= "ETIMEDOUT" and repeats, reused
end

local lasting = { EINVAL = true, EACCES = true, ECERT = true, ENOENT = true, ENOTSUP = true, EPROTO = true,
  ECANCELED = true }

-- exchange(request) -> call, status, head, coding | nil, message, code. A connection that was idle may have been closed by
-- its server at the moment of the request, which then is sent once more on a new one.
local function exchange(request)
  local via, wrong = proxies.of(request)
  if wrong then return nil, wrong, "EINVAL" end
  if via ~= request.via then request.via = via end
  local key, retries, fresh = key_of(request), 0, false
  while true do
    local call, status, head, coding, reused = attempt(request, key, fresh)
    if call then return call, status, head, coding end
    local message, code, may_repeat = status, head, coding
    local seconds = left(request)
    if seconds and seconds <= 0 then return timed_out(request) end
    if reused and may_repeat then
      fresh = true
    else
      if not may_repeat or retries >= request.retries_max or lasting[code] then return nil, message, code end
      local pause = PAUSE_S * 2 ^ retries
      if seconds and pause >= seconds then return nil, message, code end
      retries, request.connect_s = retries + 1, nil
      core.sleep(pause)
    end
  end
end
fetch.exchange = exchange -- tests replace it (test.fetch)

-- ---- the answer ----------------------------------------------------------------------------------------------------

-- answer is an Answer: the response to ls.fetch.
-- answer.status: integer - the status
-- answer.ok: boolean - whether the status is from 200 to 299
-- answer.headers: table<string, string> - header fields; names are found in any case
-- answer.url: string - of the last request, after redirects
-- answer.timing: AnswerTiming - where the time went
-- timing is an AnswerTiming: seconds, and whether the connection was used before.
-- timing.connect: number - for name, connection and TLS; 0 on a used connection
-- timing.head: number - from the call to the head of the response
-- timing.total: number? - from the call to the end of the body; nil until then
-- timing.reused: boolean - whether the connection was idle before
local methods = {}

local function read_fields(answer)
  local headers = reply.headers()
  for name, value in answer.head:gmatch("\n([^:\r\n]+):([^\r\n]*)") do
    reply.add(headers, name, trim(value))
  end
  if answer.decoded then headers["content-encoding"], headers["content-length"] = nil, nil end
  return headers
end

local made = { headers = read_fields } -- fields that are made when they are first read

function made.ok(answer) return answer.status >= 200 and answer.status < 300 end

function made.url(answer) return answer.request.at.origin .. answer.request.at.target end

function made.timing(answer)
  local request = answer.request
  local connect = request.connect_s
  return { connect = connect or 0, head = request.head_s, total = request.total_s, reused = connect == nil }
end

local meta = {
  __name = "answer",
  __json = "an answer of ls.fetch: write answer:json() or answer:body()", -- see json_fault.lua
  __metatable = false, -- it has the request, with its secrets
  __index = function(answer, name)
    local make = made[name]
    if not make then return methods[name] end
    local value = make(answer)
    answer[name] = value
    return value
  end,
}

local function failure(request, message, code)
  local at = request.at
  return core.failed(nil, format("cannot fetch %s%s: %s", at.origin, at.target:match("^[^?]*"), message), code)
end

-- The message and code of a body that has failed; raises the error of the function that sends the request's body.
local function body_failure(answer, message, code)
  local request = answer.request
  answer.call = nil
  raise_of_body(request)
  if code == "ETIMEDOUT" then message, code = select(2, timed_out(request)) end
  if code == "EMSGSIZE" and message == "the body is too large" then
    message = format("the body is longer than max_body, %d bytes", request.body_bytes_max)
  end
  return failure(request, message, code)
end

-- The whole body was read: keep the connection.
local function body_ended(answer)
  local request, call = answer.request, answer.call
  answer.call = nil
  keep(request, call)
  request.total_s = now() - request.begun
  local timing = rawget(answer, "timing")
  if timing then timing.total = request.total_s end
end

-- The body as a string. -> body | nil, message, code
local function read_whole(answer)
  local request, call = answer.request, answer.call
  if request.stream then
    begin_deadline(request, now())
    call:within(left(request))
  end
  local body, message, code = call:all(request.body_bytes_max)
  if not body then return body_failure(answer, message, code) end
  body_ended(answer)
  return body
end

-- Raise if something reads the stream piece by piece: the field begun names it.
local function refuse_begun(answer, name)
  local begun = answer.begun
  if not begun then return end
  usage.error("answer:%s: the body was already begun by answer:%s, and its pieces arrive once; %s", name, begun,
    begun == "read" and "continue with answer:read()" or "to continue a loop that has ended early, keep its iterator: "
    .. "local next_piece = answer:" .. begun .. "()")
end

-- answer:body() -> body: string | nil, message, code
-- The whole body. Of a streamed answer it is read now, at most max_body; raises after a part of it was read.
function methods:body(...)
  usage.no_more("answer:body()", nil, ...)
  if self.text then return self.text end
  refuse_begun(self, "body")
  if not self.call then return nil, "the body was read already", "ECLOSED" end
  local message, code
  self.text, message, code = read_whole(self)
  return self.text, message, code
end

-- answer:json() -> value | nil, message, code
-- Decodes the body. EPROTO: it is not JSON.
function methods:json(...)
  usage.no_more("answer:json()", nil, ...)
  local text, message, code = self:body()
  if not text then return nil, message, code end
  local value
  local marked = text:sub(1, 3) == "\xEF\xBB\xBF" -- a byte order mark: RFC 8259 section 8.1
  value, message = json.decode(marked and text:sub(4) or text)
  if value ~= nil then return value end
  return failure(self.request, format("the body (status %d) is not JSON: %s", self.status, message), "EPROTO")
end

-- The next piece of a stream. -> piece | nil at the end | nil, message, code
local function next_piece(answer)
  local call, request = answer.call, answer.request
  if not call then return nil end
  begin_deadline(request, now())
  call:within(left(request))
  local piece, message, code = call:read()
  if piece then return piece end
  if code then return body_failure(answer, message, code) end
  body_ended(answer)
  return nil
end

-- Begin to read the pieces by the method `name`. -> fun() -> piece | nil | nil, message, code
local function pieces_of(answer, name)
  local text = answer.text
  if text then
    return function()
      local piece = text
      text = nil
      return piece ~= "" and piece or nil
    end
  end
  refuse_begun(answer, name)
  answer.begun = name
  return function() return next_piece(answer) end
end

-- answer:read() -> piece: string|Buffer | nil | nil, message, code
-- The next piece of the body; nil alone at its end. For a site that continues after a failure; the loops raise.
function methods:read(...)
  usage.no_more("answer:read()", nil, ...)
  local read = self.reads
  if not read then
    read = pieces_of(self, "read")
    self.reads = read
  end
  return read()
end

-- answer:chunks() -> iterator: fun(): (string|Buffer)?
-- Iterates over the pieces of the body as they arrive; a piece of 4 KiB and more is a buffer. Raises when the body does not
-- arrive whole.
function methods:chunks(...)
  usage.no_more("answer:chunks()", nil, ...)
  local read = pieces_of(self, "chunks")
  return once.iterator(function()
    local piece, message = read()
    if message then usage.error("%s", message) end
    return piece
  end, "answer:chunks()", "answer:body()")
end

-- answer:lines() -> iterator: fun(): string?
-- Iterates over the lines of the body, without their ends. Raises when the body does not arrive whole, and for a line
-- longer than 1 MiB.
function methods:lines(...)
  usage.no_more("answer:lines()", nil, ...)
  local read = pieces_of(self, "lines")
  local text, at = "", 1         -- a piece with a line end, and the start of its line
  local parts, bytes = {}, 0     -- of a line without an end so far
  local function whole()
    local line = concat(parts)
    parts, bytes = {}, 0
    return line
  end
  local function add(part)
    parts[#parts + 1] = part
    bytes = bytes + #part
  end
  return function()
    while true do
      local to = text:find("\n", at, true)
      if to and to - at <= LINE_BYTES_MAX then
        local line = text:sub(at, to > at and text:byte(to - 1) == 13 and to - 2 or to - 1)
        at = to + 1
        return line
      end
      if at <= #text then add(text:sub(at)) end
      text, at = "", 1
      if bytes > LINE_BYTES_MAX then
        self:close()
        usage.error("%s", select(2, failure(self.request, "a line of the body is longer than 1 MiB")))
      end
      local piece, message = read()
      if message then usage.error("%s", message) end
      if not piece then return bytes > 0 and whole() or nil end
      if type(piece) ~= "string" then piece = piece:tostring() end
      if piece:find("\n", 1, true) then text = whole() .. piece else add(piece) end
    end
  end
end

-- answer:close()
-- Closes the connection of a streamed answer whose body is not read to its end. A second call has no effect.
function methods:close(...)
  usage.no_more("answer:close()", nil, ...)
  if self.call then self.call:close() end
  self.call = nil
end
function meta:__close() self:close() end

-- ---- ls.fetch ------------------------------------------------------------------------------------------------------

-- Follow a redirect. -> the next request | nil, message, code; false: this is the answer.
local function redirected(request, call, status, head)
  if request.redirects_max == 0 or not rules.is_redirect(status) then return false end
  local location = head:match("\n[Ll][Oo][Cc][Aa][Tt][Ii][Oo][Nn]:([^\r\n]*)\r")
  if not location then return false end
  if call:all(REDIRECT_BODY_MAX) then keep(request, call) end
  if request.redirected == request.redirects_max then
    return nil, format("more than %d redirects", request.redirects_max), "ELIMIT"
  end
  local next_request, message, code = rules.redirect(request, status, trim(location))
  if next_request then
    next_request.redirected = request.redirected + 1
    next_request.connect_s, next_request.sending, next_request.raised = nil, nil, nil
  end
  return next_request, message, code
end

-- ls.fetch(url: string [, options: FetchOptions]) -> answer | nil, message, code
-- Sends a request to a server, `"http://host:port/path"` or `"https://..."`, and waits for the answer. Not while the site
-- loads.
function fetch.fetch(url, given, ...)
  usage.no_more("ls.fetch(url, options)", given, ...)
  usage.check(url, "string", 'ls.fetch: the first argument must be a URL such as "https://example.org/"')
  usage.check_waits("ls.fetch")
  local at, why = parse(url)
  local request = read_request(at or { target = "" }, given)
  if not at then return nil, format("cannot fetch %s: invalid URL: %s", usage.quote(rules.shown(url)), why),
    "EINVAL" end
  if core.dev and not rules.idempotent[request.method] then require("luaserve.dev_state").watch_effect("ls.fetch") end
  local begun = now()
  request.begun = begun
  begin_deadline(request, begun)
  while true do
    if request.jar then put_cookies(request) end
    local call, status, head, coding = fetch.exchange(request)
    if not call then
      if head == "ETIMEDOUT" and left(request) == 0 then return failure(request, select(2, timed_out(request))) end
      return failure(request, status, head)
    end
    if request.jar then
      request.jar:keep(request.at, head:gmatch("\n[Ss][Ee][Tt]%-[Cc][Oo][Oo][Kk][Ii][Ee]:[ \t]*([^\r\n]*)"))
    end
    local next_request, message, code = redirected(request, call, status, head)
    if next_request == nil then return failure(request, message, code) end
    if next_request then
      request = next_request
    else
      local decoded = coding and not request.encoded
      if decoded then
        local decodes
        decodes, message, code = call:decode(coding)
        if not decodes then
          call:close()
          return failure(request, message, code)
        end
      end
      request.head_s = now() - begun
      local answer = setmetatable({ status = status, head = head, decoded = decoded, request = request, call = call }, meta)
      if core.dev then require("luaserve.dev_state").watch_answer(status) end
      if request.stream then return answer end
      local text
      text, message, code = read_whole(answer)
      if not text then return core.failed(nil, message, code) end
      answer.text = text
      return answer
    end
  end
end

return fetch
