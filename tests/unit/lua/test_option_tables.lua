-- Tries every option of every function that takes a table of options: a misspelt name, a value of the wrong type, and
-- values below and above the range raise at the line of the caller. The options are those of the modules' own tables.
local check = require "check"
local ls = require "luaserve"
local options = require "luaserve.options"
local cookie = require "luaserve.cookie"
local sse = require "luaserve.sse"
local tls = require "luaserve.tls"

local function handler() end

local modules = { "options", "app", "inject", "static", "tcp", "tls", "acme", "udp", "ws", "ws_client", "sse", "cookie", "dict",
  "channel", "file", "notify", "postgres", "session", "redis", "sqlite", "database_rows", "queue", "cron", "csrf", "signature", "basic_auth",
  "bearer_auth", "oidc", "rate_limit", "cors", "secure_headers", "fetch", "check",
  "process", "compress", "request_id", "proxy", "proxy_cache", "access_log" }

-- How to call each function with a table of options: the line of the call is the second one of the function.
local line
local calls = {
  ["ls.listen"] = function(given)
    given.port, given.handler, line = given.port or 1, given.handler or ls.app(), check.line(1)
    ls.listen(given)
  end,
  ["ls.config"] = function(given)
    line = check.line(1)
    ls.config(given)
  end,
  ["ls.tcp"] = function(given)
    given.port, given.handler, line = given.port or not given.path and 1 or nil, given.handler or handler, check.line(1)
    ls.tcp(given)
  end,
  ["ls.connect"] = function(given)
    given.host, given.port, line = given.host or not given.path and "a" or nil, given.port or 1, check.line(1)
    ls.connect(given)
  end,
  ["ls.listen: tls"] = function(given)
    line = check.line(1)
    ls.listen{ port = 1, handler = ls.app(), tls = given }
  end,
  ["ls.listen: tls.acme"] = function(given)
    given.names, given.store, line = given.names or { "a.example" }, given.store or "certs", check.line(1)
    ls.listen{ port = 1, handler = ls.app(), tls = { acme = given } }
  end,
  ["ls.listen: http2"] = function(given)
    line = check.line(1)
    ls.listen{ port = 1, handler = ls.app(), http2 = given }
  end,
  ["ls.tcp: tls"] = function(given)
    line = check.line(1)
    ls.tcp({ port = 1, tls = given }, handler)
  end,
  ["ls.connect: tls"] = function(given)
    line = check.line(1)
    ls.connect("a", 1, { tls = given })
  end,
  ["res:sse"] = function(given) -- the core calls this function of the module
    line = check.line(1)
    sse.options(given)
  end,
  ["res:cookie"] = function(given) -- the core calls this function of the module
    line = check.line(1)
    cookie.line("a", "b", given)
  end,
  ["sock:starttls"] = function(given) -- the core calls this function of the module
    for name in pairs(given) do
      if name == "client_ca" or name == "verify" or name == "tickets" then given.server = true end
    end
    line = check.line(1)
    tls.starttls(given)
  end,
  ["ls.udp"] = function(given)
    given.port, given.handler, line = given.port or 1, given.handler or handler, check.line(1)
    ls.udp(given)
  end,
  ["ls.udp: multicast"] = function(given)
    line = check.line(1)
    ls.udp({ port = 1, multicast = given }, handler)
  end,
  ["ls.udp_connect"] = function(given)
    line = check.line(1)
    ls.udp_connect("::1", 1, given)
  end,
  ["ls.websocket"] = function(given)
    line = check.line(1)
    ls.websocket("wss://a/", given)
  end,
  ["ls.process"] = function(given)
    line = check.line(1)
    ls.process({ "true" }, given)
  end,
  ["ls.check"] = function(given)
    line = check.line(1)
    ls.check("string", given)
  end,
  ["req:json"] = function(given) -- the core calls this function of the module
    line = check.line(1)
    require("luaserve.check").read_body("json", { json = function() return {} end }, { a = "any?" }, given)
  end,
  ["ls.fetch"] = function(given)
    line = check.line(1)
    ls.fetch("https://a/", given)
  end,
  ["ls.notify"] = function(given)
    line = check.line(1)
    ls.notify(0, "in", given)
  end,
  ["ls.channel"] = function(given)
    line = check.line(1)
    ls.channel("c", given)
  end,
  ["ls.semaphore"] = function(given)
    line = check.line(1)
    ls.semaphore("s", 1, given)
  end,
  ["ls.dict"] = function(given)
    line = check.line(1)
    ls.dict("d", given)
  end,
  ["ls.postgres"] = function(given)
    line = check.line(1)
    ls.postgres("postgres:///a", given)
  end,
  ["ls.sqlite"] = function(given)
    line = check.line(1)
    ls.sqlite("a.db", given)
  end,
  ["db:insert"] = function(given)
    line = check.line(1)
    require("luaserve.database_rows").call({ handle = {} }, "insert", {}, "db", "t", { a = 1 }, given)
  end,
  ["ls.queue"] = function(given)
    line = check.line(1)
    ls.queue("a", given)
  end,
  ["ls.cron"] = function(given)
    line = check.line(1)
    ls.cron("@daily", handler, given)
  end,
  ["queue:run"] = function(given)
    line = check.line(1)
    require("luaserve.queue").read_run(given)
  end,
  ["queue:push"] = function(given)
    line = check.line(1)
    require("luaserve.queue").read_push(given)
  end,
  ["ls.redis"] = function(given)
    local of_sentinels = given.database ~= nil or given.name ~= nil
    if of_sentinels then given.sentinels = { "h:1" } end
    if of_sentinels and given.name == nil then given.name = "m" end
    if given.cluster then given.database = nil end
    line = check.line(1)
    ls.redis(table.unpack(of_sentinels and { given } or { "redis://h", given }))
  end,
  ["ls.file.write"] = function(given)
    line = check.line(1)
    ls.file.write("a", "b", given)
  end,
  ["ls.file.list"] = function(given)
    line = check.line(1)
    ls.file.list("a", given)
  end,
  ["ls.file.mkdir"] = function(given)
    line = check.line(1)
    ls.file.mkdir("a", given)
  end,
  ["ls.file.remove"] = function(given)
    line = check.line(1)
    ls.file.remove("a", given)
  end,
  ["ls.session"] = function(given)
    given.secret, line = given.secret or not given.store and ("secret"):rep(6) or nil, check.line(1)
    ls.session(given)
  end,
  ["csrf"] = function(given)
    line = check.line(1)
    require "luaserve.csrf"(given)
  end,
  ["ls.crypto.jwt.sign"] = function(given)
    line = check.line(1)
    ls.crypto.jwt.sign({}, ("secret"):rep(6), given)
  end,
  ["ls.crypto.jwt.verify"] = function(given)
    line = check.line(1)
    ls.crypto.jwt.verify("", ("secret"):rep(6), given)
  end,
  ["basic_auth"] = function(given)
    given.users, line = given.users or not given.check and { ada = "secret" } or nil, check.line(1)
    require "luaserve.basic_auth"(given)
  end,
  ["bearer_auth"] = function(given)
    local key = not given.check and not given.tokens and not given.provider and ("secret"):rep(6) or nil
    given.jwt, line = given.jwt or key, check.line(1)
    require "luaserve.bearer_auth"(given)
  end,
  ["oidc"] = function(given)
    given.issuer, given.client_id, line = given.issuer or "https://a.example", given.client_id or "a", check.line(1)
    require "luaserve.oidc"(given)
  end,
  ["oidc.required"] = function(given)
    line = check.line(1)
    require "luaserve.oidc".required(given)
  end,
  ["rate_limit"] = function(given)
    given.limit, line = given.limit == nil and 1 or given.limit, check.line(1)
    require "luaserve.rate_limit"(given)
  end,
  ["compress"] = function(given)
    line = check.line(1)
    require "luaserve.compress"(given)
  end,
  ["access_log"] = function(given)
    given.file, line = given.file == nil and "stdout" or given.file, check.line(1)
    require("luaserve.access_log").read("ls.listen", given, {})
  end,
  ["request_id"] = function(given)
    line = check.line(1)
    require "luaserve.request_id"(given)
  end,
  ["cors"] = function(given)
    given.origins, line = given.origins or { "https://a.example" }, check.line(1)
    require "luaserve.cors"(given)
  end,
  ["secure_headers"] = function(given)
    line = check.line(1)
    require "luaserve.secure_headers"(given)
  end,
  ["app:get"] = function(given)
    line = check.line(1)
    ls.app():get("/", given, handler)
  end,
  ["app:static"] = function(given)
    line = check.line(1)
    ls.app():static("/", "public", given)
  end,
  ["app:proxy"] = function(given)
    line = check.line(1)
    ls.app():proxy("/", "https://a", given)
  end,
  ["app:proxy: health"] = function(given)
    line = check.line(1)
    ls.app():proxy("/", "http://a", { health = given })
  end,
  ["app:proxy: cache"] = function(given)
    line = check.line(1)
    ls.app():proxy("/", "http://a", { cache = given })
  end,
  ["app:proxy: server"] = function(given)
    given.url, line = given.url or "http://a", check.line(1)
    ls.app():proxy("/", given)
  end,
  ["app:ws"] = function(given)
    line = check.line(1)
    ls.app():ws("/", given, handler)
  end,
  ["app:ws: events"] = function(given)
    given.message, line = given.message or handler, check.line(1)
    ls.app():ws("/", given)
  end,
  ["app:ws: compress"] = function(given)
    line = check.line(1)
    ls.app():ws("/", { compress = given }, handler)
  end,
  ["app:inject"] = function(given)
    line = check.line(1)
    ls.app():inject(given)
  end,
}

-- For each kind of option: values of the wrong type, the value in Lua of a number of the core's unit, and the format and
-- unit of a bound in messages.
local kinds = {
  size = { wrong = { true, {}, handler, "much", "1 apple" }, of = function(n) return n end, text = "%.0f",
    unit = " bytes" },
  rate = { wrong = { true, {}, handler, "fast" }, of = function(n) return n end, text = "%.0f",
    unit = " bytes per second" },
  count = { wrong = { true, {}, handler, "1", 1.5 }, of = function(n) return n end, text = "%.0f", unit = "" },
  seconds = { wrong = { true, {}, handler, "1s", 0 / 0 }, of = function(ms) return ms / 1000 end, text = "%.10g",
    unit = " s" },
  flag = { wrong = { 1, "yes", {}, handler } },
  text = { wrong = { 1, true, "", "a\0b", {}, handler } },
  choice = { wrong = { 1, true, "other", {}, handler } },
}

local function expected(spec)
  if spec[2] == "flag" then return "true or false" end
  if spec[2] == "text" then return spec[3] end
  return spec[2] == "choice" and ('"%s" or "%s"; got '):format(spec[3], spec[4]) or "a "
end

-- Options without a kind: what a function in place of the value is called. The default is the name of the option.
-- `true`: a table and a function are allowed.
local other_wrong = { handler = {}, headers = true, open = true, message = true, close = true, body = true,
  check = true, key = true, output = true, origins = 5, backoff = {}, balance = 5, request = 5, response = 5, when = 5, error = 5 }
local other_message = { handler = "is missing" }

-- "multicast." of "ls.udp: multicast": a table within the options. "app:ws: events" is the table of app:ws.
local function prefix_of(fname)
  local inner = fname:gsub(": events$", ""):match(": ([%w.]+)$")
  return inner and inner .. "." or ""
end

-- fails(fname, name, value, ...): the call with this option raises at its line a message with all further texts.
local function fails(fname, name, value, ...)
  local parts = { "", fname:gsub(": events$", "") .. (prefix_of(fname) ~= "" and "" or ": "), ... }
  local ok, message = pcall(calls[fname], { [name] = value })
  if ok then error(("%s{ %s = %s } did not raise"):format(fname, name, value), 2) end
  parts[1] = line .. ": "
  for _, part in ipairs(parts) do
    if not tostring(message):find(part, 1, true) then
      error(("%s{ %s = %s } raised %q, without %q"):format(fname, name, value, message, part), 2)
    end
  end
end

-- each(visit): visit(fname, names, specs) for every table of options.
local function each(visit)
  local count = 0
  for _, module in ipairs(modules) do
    for fname, tables in pairs(require("luaserve." .. module).calls) do
      local known, specs = options.merged(tables), {}
      for name, spec in pairs(known) do specs[name] = spec ~= true and spec or nil end
      visit(fname, known, specs)
      count = count + 1
    end
  end
  return count
end

local tests = {}

function tests.every_table_is_called()
  local count = 0
  for _ in pairs(calls) do count = count + 1 end
  check.equal(each(function(fname, known, specs)
    check.equal(type(calls[fname]), "function")
    for name in pairs(specs) do check.equal(known[name] ~= nil, true) end
  end), count)
end

function tests.a_misspelt_name_raises_with_the_right_one()
  each(function(fname, known)
    for name in pairs(known) do
      local misspelt = name:sub(1, 1) .. name:sub(3, 3) .. name:sub(2, 2) .. name:sub(4)
      if misspelt == name then misspelt = name .. "x" end
      fails(fname, misspelt, 1, ('unknown option "%s"'):format(misspelt), ("did you mean '%s'?"):format(name))
    end
  end)
end

function tests.a_value_of_the_wrong_type_raises_with_the_expected_type()
  each(function(fname, known, specs)
    local prefix = prefix_of(fname)
    for name in pairs(known) do
      local kind = specs[name] and kinds[specs[name][2]]
      if kind then
        for _, value in ipairs(kind.wrong) do
          fails(fname, name, value, prefix .. name .. " must be " .. expected(specs[name]))
        end
        if specs[name].none then
          fails(fname, name, true, "or false for no limit")
        elseif specs[name][2] ~= "flag" then
          fails(fname, name, false, name .. " must be")
        end
      else
        fails(fname, name, other_wrong[name] or handler, other_message[name] or name)
      end
    end
  end)
end

function tests.a_value_out_of_range_raises_with_the_bound()
  local tried = 0
  each(function(fname, _, specs)
    local prefix = prefix_of(fname)
    for name, spec in pairs(specs) do
      local kind, least, most = kinds[spec[2]], spec[3], spec[4]
      if kind and kind.of then
        local from, to = kind.text:format(kind.of(least)), kind.text:format(kind.of(most))
        local range = most == math.maxinteger and "at least " .. from or "from " .. from .. " to " .. to
        local bound = prefix .. name .. " must be " .. range .. kind.unit .. "; got "
        if least > 0 or kind == kinds.count then
          fails(fname, name, kind.of(least - 1), bound)
        else -- a negative number has the wrong type
          fails(fname, name, -1, prefix .. name .. " must be a ")
        end
        if most < math.maxinteger then
          fails(fname, name, kind.of(most + 1), bound)
        else -- 2^62 and more has the wrong type
          fails(fname, name, 2 ^ 62, prefix .. name .. " must be a ")
        end
        tried = tried + 1
      end
    end
  end)
  check.equal(tried > 30, true)
end

return tests
