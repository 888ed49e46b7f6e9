-- test/fetch.lua - test.fetch: answers ls.fetch of this process from a table, without a network. It takes the place of
-- fetch.exchange, so that options, redirects, limits and the answer are those of ls.fetch.

local fetch = require "luaserve.fetch"
local json = require "luaserve.json"
local options = require "luaserve.options"
local usage = require "luaserve.usage"

local fake = {}

local exchange = fetch.exchange -- over the network

local answer_fields = { status = true, headers = true, body = true, json = true, error = true }
local codes -- a table of those of luaserve

local function check_answer(key, answer)
  if type(answer) == "string" then return { body = answer } end
  usage.check(answer, "table", "test.fetch: the answer for %s must be a table such as { status = 200, json = {} }, a "
    .. "string or a function", usage.quote(key))
  options.check_names("test.fetch", answer, answer_fields)
  local status, code = answer.status, answer.error
  usage.refuse(status ~= nil and not (math.type(status) == "integer" and status >= 200 and status <= 599), status,
    "test.fetch: status must be a number from 200 to 599")
  usage.check(answer.headers, "table?", 'test.fetch: headers must be a table such as { ["Content-Type"] = "text/plain" }')
  usage.check(answer.body, "string?", "test.fetch: body must be a string; for other values write json = value")
  if answer.body and answer.json ~= nil then usage.error("test.fetch: write body or json, not both") end
  if code ~= nil and next(answer, next(answer)) then
    usage.error("test.fetch: error is in place of an answer: it has no status, headers, body or json beside it")
  end
  codes = codes or require("luaserve.test.system").codes()
  usage.refuse(code ~= nil and not codes[code], code, 'test.fetch: error must be a code such as "ETIMEDOUT" or "EREFUSED"')
  return answer
end

-- The call object of ls.fetch (script/bind/client/client_call.c) with a body that is here already.
local methods = {}
local call_meta = { __index = methods }
for _, name in ipairs { "within", "decode", "keep", "close" } do methods[name] = function() end end
function methods:all(max)
  if #self.rest > max then return nil, "the body is too large", "EMSGSIZE" end
  return self.rest
end
function methods:read()
  local piece = self.rest
  self.rest = ""
  return piece ~= "" and piece or nil
end

-- The body of a request as a string.
local function text_of(body)
  if type(body) == "string" or body == nil then return body end
  if type(body) ~= "function" then return body:tostring() end
  local parts = {}
  local first, state, control = body()
  if type(first) == "function" then
    for piece in first, state, control do parts[#parts + 1] = tostring(piece) end
  else
    while first ~= nil do
      parts[#parts + 1] = tostring(first)
      first = body()
    end
  end
  return table.concat(parts)
end

local function head_of(answer, body)
  local lines = { "HTTP/1.1 " .. (answer.status or 200) }
  if answer.json ~= nil then lines[2] = "Content-Type: application/json" end
  for _, field in ipairs(options.fields(answer.headers or {})) do lines[#lines + 1] = field[1] .. ": " .. field[2] end
  lines[#lines + 1] = "Content-Length: " .. #body
  return table.concat(lines, "\r\n") .. "\r\n\r\n"
end

local function find(answers, request, url)
  local key = request.method .. " " .. url
  local answer = answers[key]
  if answer == nil then
    key = url
    answer = answers[url]
  end
  if type(answer) == "function" then
    local headers = require("luaserve.reply").headers()
    for _, field in ipairs(request.fields) do require("luaserve.reply").add(headers, field[1], field[2]) end
    answer = answer { method = request.method, url = url, headers = headers, body = text_of(request.body) }
  end
  if answer ~= nil then return check_answer(key, answer) end
  local known = {}
  for name in pairs(answers) do known[name:match("^%u+ (.*)$") or name] = true end
  error(string.format("ls.fetch: test.fetch has no answer for %s %s%s", request.method, url, usage.suggest(url, known)), 0)
end

-- test.fetch(answers: table<string, FetchFake|string|fun(asked: FetchAsked): FetchFake|string>)
-- Answers the calls of ls.fetch in this process from a table until the end of the test: by the URL with its query, or by
-- "POST URL". A fetch of any other URL fails the test. Again: replaces the table.
-- fake is a FetchFake: an answer of test.fetch.
-- fake.status: integer? - default 200
-- fake.headers: Headers? - header fields
-- fake.body: string? - the body
-- fake.json: any - in place of body: a value that is sent as JSON
-- fake.error: Code? - in place of an answer: ls.fetch fails with this code
-- asked is a FetchAsked: a request as the function of test.fetch gets it.
-- asked.method: string - the method
-- asked.url: string - the URL with its query
-- asked.headers: table<string, string> - the fields that the site has set; names are found in any case
-- asked.body: string? - the body
function fake.answers(answers, ...)
  usage.no_more('test.fetch{ ["https://example.org/"] = { status = 200 } }', answers, ...)
  usage.check(answers, "table", 'test.fetch takes a table: test.fetch{ ["https://example.org/"] = { status = 200 } }')
  for key, answer in pairs(answers) do
    local url = type(key) == "string" and key:match("^%u+ (.*)$") or key
    usage.refuse(type(url) ~= "string" or not url:find("^https?://[^/]+/"), key,
      'test.fetch: each key must be a URL with its path, such as "https://example.org/", perhaps after a '
        .. 'method as in "POST https://example.org/"')
    if type(answer) ~= "function" then check_answer(key, answer) end
  end
  function fetch.exchange(request)
    local url = request.at.origin .. request.at.target
    local found, answer = xpcall(find, require("luaserve.test").record, answers, request, url)
    if not found then error(answer, 0) end
    request.connect_s = 0
    if answer.error then return nil, "as test.fetch says", answer.error end
    local body = answer.json ~= nil and json.encode(answer.json) or answer.body or ""
    return setmetatable({ rest = request.method == "HEAD" and "" or body }, call_meta), answer.status or 200,
      head_of(answer, body), false
  end
end

-- finish(): the network answers again.
function fake.finish() fetch.exchange = exchange end

return fake
