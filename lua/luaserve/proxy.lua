-- proxy.lua - app:proxy: which upstream server gets a request, what changes in it, and what answers when none does.
-- http/proxy.h moves the bytes; http/proxy/peer.h has what all Lua states know about a server.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"
local rules = require "luaserve.fetch_rules"
local fetch = require "luaserve.fetch"
local proxy_cache = require "luaserve.proxy_cache"

local send, concat, type, log = core.proxy_send, table.concat, type, math.log

local fname, uint32_max = "app:proxy", 2 ^ 32 - 1
-- The budget of retries in each Lua state: so many, and for each request of the last so many seconds.
local RETRIES_KEPT, RETRY_SHARE, RETRY_WINDOW_S = 10, 0.2, 10
local ORIGIN_BYTES_MAX = 100
local PAUSE_S = 0.1 -- before a retry at the same server

local proxy, none = {}, {}

local proxy_options = {
  cache = true, -- ProxyCache - store responses, and answer with them
  balance = true, -- "round_robin"|"least"|fun(req: Request): string? - chooses the server; default "round_robin"
  health = true, -- ProxyHealth|false - when a server gets no requests; default: {} with several servers
  host = true, -- string - the Host that the server gets: "keep", that of the client, or a name; default: that of the URL
  max_body = { "body_bytes_max", "size", 0, math.maxinteger, false, none = math.maxinteger }, -- largest body; then 413
  request = true, -- fun(req: Request, upstream: ProxyUpstream): ... - changes the request, or answers it
  response = true, -- fun(res: Response, upstream: ProxyUpstream): ... - changes the head of the response, or replaces it
  retry = { "retries_max", "count", 0, 100, 1, none = 0 }, -- further attempts
  strip = { "strip", "flag" }, -- the server gets the path without the prefix
  timeout = { "timeout_ms", "seconds", 1, uint32_max, 60, none = 0 }, -- seconds without a byte of the server; then 504
  connect_timeout = { "connect_ms_max", "seconds", 1, uint32_max, 5 }, -- seconds for lookup, addresses and TLS
  tls = true, -- TlsClientOptions - of https://
}
local health_options = {
  path = true, -- string - the target of the checks; without it only requests tell
  interval = { "interval_ms", "seconds", 1, uint32_max, 5 }, -- seconds between two checks
  timeout = { "check_ms_max", "seconds", 1, uint32_max, 2 }, -- seconds for a check
  fails = { "fails_max", "count", 1, 1000, 3 }, -- failed requests or checks in a row, after which the server is down
  passes = { "passes", "count", 1, 1000, 1 }, -- passed checks in a row, after which it is up again
  down = { "down_ms", "seconds", 1, uint32_max, 10 }, -- seconds without requests after failed ones, unless all are out
  slow_start = { "slow_ms", "seconds", 1, uint32_max, false, none = 0 }, -- seconds from a tenth of its weight to all
}
local server_options = {
  url = true, -- string - "http://host:port/prefix", "https://..." or "unix:/path"
  weight = { "weight", "count", 1, 1000, 1 }, -- its part of the requests
}

proxy.calls = {
  ["app:proxy"] = { proxy_options }, -- ProxyOptions
  ["app:proxy: health"] = { health_options }, -- ProxyHealth
  ["app:proxy: server"] = { server_options }, -- ProxyServer
}

-- upstream is a ProxyUpstream: what a hook of app:proxy reads and changes.
-- upstream.url: string - of the server
-- upstream.headers: table<string, string|number|(string|number)[]|false> - fields for the server; false and nil remove one of the client
-- upstream.path: string - path and query for the server; one that is assigned without "?" keeps the query of the request

-- ---- servers -------------------------------------------------------------------------------------------------------

-- server(value, self) -> { at =, unix =, tls =, weight =, url =, object = } of a URL or a table with one.
local function server(value, self)
  local given = type(value) == "table" and value or { url = value }
  local out = options.take(fname, given, proxy.calls["app:proxy: server"], {}, "server.")
  local url = given.url
  usage.check(url, "string", '%s: server.url must be a URL such as "http://127.0.0.1:9000"', fname)
  local path = url:match("^unix:(/.+)$")
  local at, why = rules.parse(path and "http://localhost/" or url)
  if not at then usage.error("%s: invalid URL %s: %s", fname, usage.quote(rules.shown(url)), why) end
  if at.target:find("?", 1, true) then usage.error("%s: the URL of a server has no query: %s", fname, usage.quote(url)) end
  if self.tls and not at.secure then usage.error("%s: the option tls is for https://; got %s", fname, usage.quote(url)) end
  out.at, out.unix, out.url, out.tls = at, path, url, at.secure and self.tls or nil
  out.origin, out.connect_ms_max = path and url or at.origin, self.connect_ms_max
  if #out.origin > ORIGIN_BYTES_MAX then
    usage.error("%s: the URL of a server has at most %d bytes: %s", fname, ORIGIN_BYTES_MAX, usage.quote(url))
  end
  local host = self.host or at.authority
  local peer = self.path and out.origin .. " " .. self.path or out.origin -- other checks may have another result
  local prefix = at.target:gsub("/$", "")
  out.prefix = prefix
  out.object = core.proxy_upstream { origin = peer, key = fetch.key_of(out), host = host ~= "keep" and host or nil,
    prefix = prefix, place = (at.secure and "https://" or "http://") .. (host == "keep" and at.authority or host) .. prefix,
    timeout_ms = self.timeout_ms, slow_ms = self.slow_ms or 0,
    pauses = self.response ~= nil, checked = self.path ~= nil, body_bytes_max = self.body_bytes_max or math.maxinteger }
  out.current = 0
  return out
end

-- ---- balance -------------------------------------------------------------------------------------------------------

-- Each choice gets the servers to choose from, a list of { server, share of its weight }, and the request.
local choices = {}

-- Smooth weighted round robin: the one that lags furthest its weight.
function choices.round_robin(list)
  local total, best = 0, nil
  for _, one in ipairs(list) do
    local weight = one[1].weight * one[2]
    one[1].current, total = one[1].current + weight, total + weight
    if not best or one[1].current > best.current then best = one[1] end
  end
  best.current = best.current - total
  return best
end

function choices.least(list)
  local least, equal = math.huge, {}
  for _, one in ipairs(list) do
    local load = (core.proxy_load(one[1].object) + 1) / (one[1].weight * one[2])
    if load < least then least, equal = load, {} end
    if load == least then equal[#equal + 1] = one end
  end
  return choices.round_robin(equal)
end

-- Rendezvous hashing: without a server only its own keys move.
local function by_key(fn)
  return function(list, req)
    local key = fn(req)
    if key == nil then return choices.round_robin(list) end
    if type(key) ~= "string" then usage.error("%s: the function balance must return a string or nil; got %s", fname,
      usage.quote(key)) end
    local most, best = 0, nil
    for _, one in ipairs(list) do
      local score = -one[1].weight / log(core.proxy_hash(one[1].origin .. "\0" .. key))
      if score > most then most, best = score, one[1] end
    end
    return best
  end
end

-- The server for the next attempt; `tried` is a set of those that have failed. When requests have taken all out, it is
-- the one that is out for longest. nil: the checks of all fail.
local function pick(self, req, tried)
  local list, others, longest, least = {}, {}, nil, math.huge
  for _, one in ipairs(self.servers) do
    local share, until_ms, _ = 1, nil, nil
    if self.fails_max then _, share, until_ms = core.proxy_load(one.object) end
    if share > 0 then
      list[#list + 1] = { one, share }
      if tried and not tried[one] then others[#others + 1] = list[#list] end
    elseif until_ms then
      if tried and tried[one] then until_ms = until_ms + 2 ^ 53 end -- after the others
      if until_ms < least then longest, least = one, until_ms end
    end
  end
  if others[1] then list = others end
  if not list[1] then return longest end
  local one = self.choose(list, req)
  if self.fails_max and core.proxy_back(one.object) then
    core.log("info", ("app:proxy: %s is used again"):format(rules.shown(one.url)))
  end
  return one
end

-- ---- health --------------------------------------------------------------------------------------------------------

-- `count` more requests are answered with 503. At most one line a second has those of which the log does not know yet; a check
-- writes the last ones.
local function log_refused(self, count)
  count = core.proxy_refused(self.servers[1].object, count)
  if count > 0 then
    core.log("warn", ("app:proxy: no server is usable: the checks of %s%s fail; requests answered with 503: %d"):format(
      rules.shown(self.servers[1].url), #self.servers > 1 and " and the others" or "", count))
  end
end

-- Check the server; `count` is the number of equal results in a row, negative for failures.
local function check(self, one, count)
  local answer = fetch.fetch(one.at.origin .. self.path, { timeout = self.check_ms_max / 1000, stream = true,
    redirects = false, unix = one.unix, tls = one.tls, proxy = false })
  local passed = answer ~= nil and answer.status < 400
  if answer then answer:close() end
  log_refused(self, 0)
  count = passed == (count > 0) and count + (passed and 1 or -1) or passed and 1 or -1
  if count == self.passes or count == -self.fails_max then
    core.proxy_mark(one.object, passed)
    if one.healthy ~= passed then
      core.log(passed and "info" or "warn",
        ("app:proxy: the server %s is %s"):format(rules.shown(one.url), passed and "up" or "down"))
    end
    one.healthy = passed
  end
  return count
end

local function begin_checks(self)
  for _, one in ipairs(self.servers) do
    local count, checking = 0, false
    one.healthy = true
    core.every(self.interval_ms / 1000, function()
      if checking then return end
      checking = true
      count = check(self, one, count)
      checking = false
    end)
  end
end

-- ---- hooks ---------------------------------------------------------------------------------------------------------

local function invalid_field(name, what)
  usage.error("%s: upstream.headers: %s %s", fname, what, usage.quote(name))
end

-- The fields of a hook -> lines to add, names to leave out: see proxy_head.h.
local function changes(headers)
  if next(headers) == nil then return nil end
  local lines, names = {}, {}
  for name, value in pairs(headers) do
    if not options.is_token(name) then invalid_field(name, "invalid header name") end
    if rules.is_own(name) or name:lower() == "host" then
      invalid_field(name, "the proxy writes the field itself:")
    end
    names[#names + 1] = name .. ","
    if type(value) == "table" then usage.check_list(fname .. ": upstream.headers", name, value) end
    for _, one in ipairs(type(value) == "table" and value or { value }) do
      if type(one) ~= "string" and type(one) ~= "number" and one ~= false or tostring(one):find("[\0-\8\10-\31\127]") then
        invalid_field(name, "invalid value of the field")
      end
      if one then lines[#lines + 1] = name .. ": " .. one .. "\r\n" end
    end
  end
  return concat(lines), concat(names)
end

local function check_path(path)
  if path ~= nil and (type(path) ~= "string" or not path:find("^/[!-~\128-\255]*$") or path:find("#", 1, true)) then
    usage.error("%s: upstream.path must be a path such as /a?b=1; got %s", fname, usage.quote(path))
  end
  return path
end

local STATE = {} -- the name in `upstream` and in its headers of { one =, req =, strip =, path =, headers =, fields =, names =, sent = }
local readable = { url = true, path = true, headers = true }

local function check_unsent(state)
  if state.sent then usage.error("%s: the request was sent: the hook `request` changes it, not `response`", fname) end
end

-- Whether the proxy writes or leaves out a field of this name itself, whatever the client has sent.
local function is_of_proxy(name)
  return rules.is_own(name) or name == "host" or name == "via" or name == "forwarded" or name == "x-real-ip"
    or name:find("^x%-forwarded%-") or name:find("^proxy%-auth")
end

-- What the server gets: what the hook has set, else the field of the client. A field that the hook has named is not that of the
-- client, also without a value. state.names: by the name in small letters, that of the hook.
local headers_meta = {
  __index = function(self, name)
    local state, lower = self[STATE], tostring(name):lower()
    local value = state.fields[state.names[lower]]
    if value == nil and not is_of_proxy(lower) then value = state.req.headers[lower] end
    return value or nil
  end,
  __newindex = function(self, name, value)
    local state = self[STATE]
    check_unsent(state)
    if value == nil then value = false end
    local lower = tostring(name):lower()
    if state.names[lower] then state.fields[state.names[lower]] = nil end
    state.names[lower], state.fields[name] = name, value
  end,
  __pairs = function(self)
    local all, state = {}, self[STATE]
    for name, value in pairs(state.req.headers) do
      if not state.names[name] and not is_of_proxy(name) then all[name] = value end
    end
    for name, value in pairs(state.fields) do all[name] = value or nil end
    return next, all
  end,
}

-- path and query of the request, without the prefix of the route with `strip` and with that of the URL of the server
local function path_of(state)
  local path, query = state.req.target:gsub("^%a[%w+.-]*://[^/?]*", ""):match("^([^?]*)(.*)$")
  for _ = 1, state.strip do path = path:gsub("^/[^/]*", "") end
  path = state.one.prefix .. path
  return path == "" and "/" or path, query
end

local upstream_meta = {
  __index = function(self, name)
    if not readable[name] then usage.error("upstream has no field %s%s", usage.quote(name), usage.suggest(name, readable)) end
    local state = self[STATE]
    if name == "url" then return state.one.url end
    if name == "path" and not state.path then return concat { path_of(state) } end
    return state[name]
  end,
  __newindex = function(self, name, value)
    local state = self[STATE]
    if name == "headers" then
      usage.error("upstream.headers cannot be replaced: write upstream.headers[name] = value for each field")
    elseif name == "url" then
      usage.error("upstream.url is to read only: the option balance chooses the server, upstream.path is the path for it")
    elseif name ~= "path" then
      usage.error("upstream has no field %s%s", usage.quote(name), usage.suggest(name, readable))
    end
    check_unsent(state)
    state.path = check_path(value)
    if value and value:find("?", 1, true) then
      state.path = value:gsub("%?$", "")
    elseif value then
      state.path = value .. select(2, path_of(state))
    end
  end,
}

local function new_upstream(req, one, strip)
  local state = { req = req, one = one, strip = strip, fields = {}, names = {}, sent = false }
  state.headers = setmetatable({ [STATE] = state }, headers_meta)
  return setmetatable({ [STATE] = state }, upstream_meta), state
end

-- Whether a hook has returned something: an answer, or nil and a message, for which the client gets a 500.
local function is_answer(results) return results[1] ~= nil or results[2] ~= nil end

-- Run the request hook for an attempt at the server. -> { one =, upstream =, lines =, drops =, path = } |
-- nil, the results that answer the request.
local function prepare(self, strip, req, one)
  local upstream, state = new_upstream(req, one, strip)
  local ready = { one = one, upstream = upstream }
  local results = self.request and table.pack(self.request(req, upstream)) or none
  if is_answer(results) then return nil, results end
  state.sent = true
  ready.lines, ready.drops = changes(state.fields)
  ready.path = state.path
  return ready
end

-- ---- a request -----------------------------------------------------------------------------------------------------

-- Whether the budget has one more retry: failures do not multiply the load, but when a server dies, those that wait for it
-- find another one. Of an older window half of its average counts.
local function may_retry(self)
  local elapsed_s = core.now() - self.window_at
  if elapsed_s >= RETRY_WINDOW_S then
    local part = RETRY_WINDOW_S / elapsed_s / 2
    self.requests, self.retries, self.window_at = self.requests * part, self.retries * part, self.window_at + elapsed_s
  end
  if self.retries + 1 > RETRIES_KEPT + RETRY_SHARE * self.requests then return false end
  self.retries = self.retries + 1
  return true
end

-- One attempt. -> true | call | nil, message, code, whether it may be made again, on a used connection
local function attempt(one, res, strip, fresh, lines, drops, path, pauses)
  if not fresh then
    local call, message, code, again, reused = send(res, one.object, nil, strip, lines, drops, path, pauses)
    if call ~= false then return call, message, code, again, reused end
  end
  local sock, message, code = fetch.dial(one)
  if not sock then return nil, message, code, "unsent", false end
  return send(res, one.object, sock, strip, lines, drops, path, pauses)
end

local function log_failure(req, one, message, what)
  core.log("warn", ("app:proxy: %s %s: %s: %s%s"):format(req.method, req.path, rules.shown(one.url), message, what))
end

local function fail(req, res, one, message, code, begun, plan)
  log_failure(req, one, message, "")
  if plan and plan:failed(res, begun) or begun then return nil end
  return code == "ETIMEDOUT" and 504 or code == "EINVAL" and 400 or 502
end

-- A request has failed at the server.
local function count_failure(self, one)
  if core.proxy_failed(one.object, self.fails_max, self.down_ms) then
    core.log("warn", ("app:proxy: %s is avoided for %g s: %d failure%s in a row"):format(rules.shown(one.url),
      self.down_ms / 1000, self.fails_max, self.fails_max > 1 and "s" or ""))
  end
end

-- -> 503: the checks of all servers fail.
local function refuse(self, res)
  log_refused(self, 1)
  res:header("Retry-After", 1)
  return 503
end

local function first_server(self, req)
  return #self.servers == 1 and not self.fails_max and self.servers[1] or pick(self, req)
end

local loaded = package.loaded

-- Store the session of the request, whose cookie is in the head of the response. The request is sent now.
local function store_session(req)
  if core.dev then require("luaserve.dev_state").watch_proxy(req) end
  local session = loaded["luaserve.session"]
  if session then session.store(req) end
end

-- hops_of(req) -> the number of Max-Forwards, for the methods that have it (RFC 9110 7.6.2); else nil or false
local function hops_of(req)
  local method = req.method
  return (method == "OPTIONS" or method == "TRACE") and tonumber((req.headers["max-forwards"] or ""):match("^%d+$"))
end

-- plan: that of the cache, or nil. ready: for the first attempt, as of prepare(), or nil. failed: the results of the first attempt, if
-- it was made already.
local function answer(self, strip, req, res, plan, ready, failed)
  local tries, fresh, tried, hops = 0, false, nil, hops_of(req)
  if hops == 0 then return req.method == "OPTIONS" and 204 or 501 end -- this server is the last recipient
  local one
  if ready then one = ready.one else one = first_server(self, req) end
  self.requests = self.requests + 1
  while true do
    if not one then
      if plan and plan:failed(res, false) then return nil end
      return refuse(self, res)
    end
    if self.hooks and not ready then
      local results
      ready, results = prepare(self, strip, req, one)
      if results then
        if plan then plan:replaced() end
        return table.unpack(results, 1, results.n)
      end
    end
    local given = ready or none
    local lines, drops = given.lines, given.drops
    ready = nil
    store_session(req)
    if plan then lines, drops = (lines or "") .. (plan.lines or ""), (drops or "") .. (plan.drops or "") end
    if hops then lines, drops = ("%sMax-Forwards: %d\r\n"):format(lines or "", hops - 1), (drops or "") .. "max-forwards," end
    local call, message, code, again, reused
    if failed then
      call, message, code, again, reused = table.unpack(failed, 1, 5)
      failed = nil
    else
      call, message, code, again, reused = attempt(one, res, strip, fresh, lines, drops, given.path, plan ~= nil)
    end
    if call == true then return end
    if call then
      local results = self.response and table.pack(self.response(res, given.upstream)) or none
      if self.response and core.proxy_refuse(res, call, not is_answer(results)) then
        if plan then plan:replaced() end
        return table.unpack(results, 1, results.n)
      end
      if plan and plan:head(res, call) then return end
      call, message, code, again, reused = core.proxy_resume(res, call)
      if call and plan then plan:complete(res) end
      if call then return end
    end
    local safe = again == "unsent" or again and rules.idempotent[req.method]
    if safe and reused and not fresh and code ~= "ETIMEDOUT" then
      fresh = true -- the server has closed an idle connection at this moment
    else
      if self.fails_max and code ~= "EINVAL" then count_failure(self, one) end
      if not safe or code == "EINVAL" or code == "ETIMEDOUT" and again ~= "unsent" or tries >= self.retries_max
        or not may_retry(self) then
        return fail(req, res, one, message, code, again == nil, plan)
      end
      log_failure(req, one, message, "; it is sent again")
      tries, tried, fresh = tries + 1, tried or {}, false
      tried[one] = true
      one = pick(self, req, tried)
      if one and tried[one] then core.sleep(PAUSE_S) end
    end
  end
end

local proxy_meta = {}
proxy_meta.__index = proxy_meta

-- proxy:runner(skip) -> the function of a route. `skip`: the segments of its prefix.
function proxy_meta:runner(skip)
  local strip, cache = self.strip and skip or 0, self.cache
  if not cache and (self.hooks or self.fails_max or #self.servers > 1) then
    return function(req, res) return answer(self, strip, req, res) end
  elseif not cache then -- the usual proxy: the request is the whole of what it decides
    local object = self.servers[1].object
    local function ended(req, res, call, ...)
      if call == true then
        self.requests = self.requests + 1
      else
        return answer(self, strip, req, res, nil, nil, call == nil and { call, ... } or nil)
      end
    end
    return function(req, res)
      if hops_of(req) then return answer(self, strip, req, res) end
      store_session(req)
      return ended(req, res, send(res, object, nil, strip))
    end
  end
  local function run(req, res, plan, ready) return answer(self, strip, req, res, plan, ready) end
  if not self.request then
    return function(req, res)
      store_session(req)
      return cache:answer(req, res, run)
    end
  end
  return function(req, res) -- the hook may refuse what is stored
    local one = first_server(self, req)
    local ready, results = prepare(self, strip, req, one or self.servers[1])
    if results then return table.unpack(results, 1, results.n) end
    ready.one = one
    store_session(req)
    return cache:answer(req, res, run, ready)
  end
end

local function check_option(given, name, expected, ok)
  if given ~= nil and not ok then usage.error("%s: %s must be %s; got %s", fname, name, expected, usage.quote(given)) end
end

-- proxy.new(servers, options, prefix) -> the proxy of an app:proxy. Raises at the line of the caller.
function proxy.new(servers, opts, prefix)
  opts = opts or {}
  usage.check(opts, "table", "%s: options must be a table such as { strip = true }", fname)
  local self = options.take(fname, opts, proxy.calls[fname],
    { requests = 0, retries = 0, window_at = core.now() })
  local balance, health, host = opts.balance, opts.health, opts.host
  check_option(balance, "balance", '"round_robin", "least" or a function', type(balance) == "function" or choices[balance])
  check_option(opts.request, "request", "a function(req, upstream)", type(opts.request) == "function")
  check_option(opts.response, "response", "a function(res, upstream)", type(opts.response) == "function")
  check_option(host, "host", '"keep" or a host such as "example.org:8080"',
    type(host) == "string" and host:find("^[%w._:%[%]-]+$"))
  check_option(health, "health", 'false or a table such as { path = "/up" }', health == false or type(health) == "table")
  self.choose = type(balance) == "function" and by_key(balance) or choices[balance or "round_robin"]
  self.request, self.response, self.host = opts.request, opts.response, host
  self.hooks = opts.request ~= nil or opts.response ~= nil
  if opts.tls ~= nil and require("luaserve.tls").client(fname, opts.tls) then
    self.tls = opts.tls == true and {} or opts.tls
  end
  if type(servers) ~= "table" or servers.url ~= nil then servers = { servers } end
  usage.check_list(fname, "servers", servers, ": options of a server stand in its table, { url = ..., weight = 2 }, the others after the list")
  if #servers == 0 then usage.error('%s needs a server, such as "http://127.0.0.1:9000"', fname) end
  if health == nil and #servers > 1 then health = {} end
  if health then
    options.take(fname, health, proxy.calls["app:proxy: health"], self, "health.")
    self.path = health.path
    check_option(self.path, "health.path", 'a path such as "/up"',
      type(self.path) == "string" and self.path:find("^/[!-~]*$"))
  end
  self.servers = {}
  for n, value in ipairs(servers) do self.servers[n] = server(value, self) end
  if opts.cache ~= nil then self.cache = proxy_cache.new(opts.cache, prefix .. " " .. self.servers[1].origin) end
  if self.path then begin_checks(self) end
  return setmetatable(self, proxy_meta)
end

return proxy
