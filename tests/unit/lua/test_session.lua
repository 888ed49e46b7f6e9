-- ls.session with a clock of the test, sealed texts that can be read (fake_core.lua) and a dict in plain Lua.
local check = require "check"
local core = require "luaserve.core"

local tests = {}
local secret, other = ("a secret of the test "):rep(2), ("another secret "):rep(3)
local now = 1700000000

-- A JSON of flat and nested tables, in the order of sorted keys.
local json = {}
function json.encode(value)
  if type(value) == "function" then error("value is a function", 0) end
  if type(value) ~= "table" then return string.format("%q", value) end
  local keys, parts = {}, {}
  for key in pairs(value) do keys[#keys + 1] = key end
  table.sort(keys)
  for i, key in ipairs(keys) do parts[i] = string.format("[%q]=%s", key, json.encode(value[key])) end
  return "{" .. table.concat(parts, ",") .. "}"
end
function json.decode(text) return load("return " .. text)() end

function core.cookie(req, name, tail)
  local value = req.cookies[name]
  return value, value and value:sub(-tail)
end
function core.maker(fn) return { maker = fn } end
function core.own(req, name, ...)
  local own = getmetatable(req)
  local before = own[name]
  if select("#", ...) > 0 then own[name] = ... end
  return before, getmetatable(before)
end

-- new_req(fields, res) -> a request whose fields may be makers.
local function new_req(fields, res)
  local own = {}
  for name, value in pairs(fields) do own[name] = value end
  function own.__index(req, name)
    local value = own[name]
    if type(value) == "table" and value.maker then
      value = value.maker(req, res)
      own[name] = value
    end
    return value
  end
  function own.__newindex(_, name, value) own[name] = value end
  return setmetatable({}, own)
end

local function copied(value)
  if type(value) ~= "table" then return value end
  local t = {}
  for key, one in next, value do t[key] = copied(one) end
  return t
end
core.plain_copy = copied

function core.same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for key, value in next, a do if not core.same(value, rawget(b, key)) then return false end end
  for key in next, b do if rawget(a, key) == nil then return false end end
  return true
end

function core.be_private(res)
  if not res.sent and res:header("Cache-Control") == nil then res:header("Cache-Control", "private") end
  return not res.sent
end

-- luaserve.session with this JSON and clock.
local function load_session()
  local real_json, real_time = package.loaded["luaserve.json"], os.time
  package.loaded["luaserve.json"], package.loaded["luaserve.session"] = json, nil
  os.time = function() return now end -- luacheck: ignore 122
  local session = require "luaserve.session"
  os.time = real_time -- luacheck: ignore 122
  package.loaded["luaserve.json"], package.loaded["luaserve.session"] = real_json, nil
  return session.new
end
local new = load_session()

-- A browser: run(handler) runs a request with its cookie, visit(fn) one whose handler begins with req.session: fn(session,
-- req, res). Both return the response.
local function browser(options, req_fields)
  local middleware, jar = new(options), {}
  local self = { jar = jar }
  function self.run(handler)
    local res = { headers = {}, sent = false }
    function res.header(_, name, value)
      if value == nil then return res.headers[name] end
      res.headers[name] = value
    end
    function res.cookie(_, name, value, given)
      res.set = { name = name, value = value, options = given }
      jar[name] = value
    end
    local fields = { cookies = setmetatable({}, { __index = jar }), ip = "192.0.2.1", secure = false, path = "/" }
    for name, value in pairs(req_fields or {}) do fields[name] = value end
    local req, result = new_req(fields, res), nil
    middleware(req, res, function() result = handler(req, res) end)
    res.result = result
    return res
  end
  function self.visit(fn)
    return self.run(function(req, res) return fn and fn(req.session, req, res) end)
  end
  return self
end

local function user(session) return session.user end
local function set_user(name) return function(session) session.user = name end end

function core.dict_read(dict, key) return dict:get(key) end

local function fake_dict()
  local dict = { entries = {} }
  function dict:get(key) return copied(self.entries[key]) end
  function dict:add(key, value, ttl)
    if self.full then return nil, "the dict is full", "ENOSPC" end
    check.equal(self.entries[key], nil)
    self.entries[key], self.ttl = copied(value), ttl
    return true
  end
  function dict:replace() error("its other fields would be lost") end
  function dict:update(key, fn)
    local new, result = fn(copied(self.entries[key]))
    self.entries[key] = copied(new)
    return new, result
  end
  function dict:expire(_, ttl) self.ttl = ttl end
  function dict:delete(key)
    local there = self.entries[key] ~= nil
    self.entries[key] = nil
    return there
  end
  return dict
end

local function count(t)
  local n = 0
  for _ in pairs(t) do n = n + 1 end
  return n
end

-- each(test): with a sealed cookie, and with a dict.
local function each(test)
  test { secret = secret }
  test { store = fake_dict() }
end

local function with(options, more)
  local all = {}
  for name, value in pairs(options) do all[name] = value end
  for name, value in pairs(more) do all[name] = value end
  return all
end

function tests.what_is_stored_comes_back()
  each(function(options)
    local visitor = browser(options)
    check.equal(visitor.visit(user).result, nil)
    local res = visitor.visit(function(session) session.user, session.cart = "ada", { "tea", { n = 2 } } end)
    check.equal(res.set.name, "session")
    check.equal(res.set.options, { path = "/", max_age = 86400, secure = false, same_site = "lax" })
    check.equal(visitor.visit(user).result, "ada")
    check.equal(visitor.visit(function(session) return session.cart[2].n end).result, 2)
    check.equal(visitor.visit(function(session)
      local keys = {}
      for key in pairs(session) do keys[#keys + 1] = key end
      table.sort(keys)
      return table.concat(keys, " ")
    end).result, "cart user")
  end)
end

function tests.only_a_change_is_stored()
  each(function(options)
    local visitor = browser(options)
    visitor.visit(function(session) session.user, session.cart = "ada", { n = 1 } end)
    check.equal(visitor.visit().set, nil)
    check.equal(visitor.visit(user).set, nil)
    check.equal(visitor.visit(set_user "ada").set, nil)
    check.equal(visitor.visit(function(session) session.cart.n = 1 end).set, nil)
    check.equal(visitor.visit(function(session) session.cart.n = 2 end).set ~= nil, true)
    check.equal(visitor.visit(function(session) session.cart.m = 2 end).set ~= nil, true)
    check.equal(visitor.visit(function(session) session.cart.m = nil end).set ~= nil, true)
    check.equal(visitor.visit(function(session) session.cart = nil end).set ~= nil, true)
    check.equal(visitor.visit(user).result, "ada")
  end)
end

function tests.a_response_that_has_used_the_session_is_private()
  each(function(options)
    local visitor = browser(options)
    check.equal(visitor.visit().headers["Cache-Control"], nil)
    check.equal(visitor.visit(user).headers["Cache-Control"], "private")
    check.equal(visitor.visit(function(session, _, res) res:header("Cache-Control", "no-store") return session.x end)
      .headers["Cache-Control"], "no-store")
  end)
end

function tests.a_response_that_streams_is_private_too()
  each(function(options)
    local visitor = browser(options)
    local used = visitor.visit(function(session, _, res) res.sent = session.user == nil end)
    check.equal(used.headers["Cache-Control"], "private")
    local before = visitor.run(function(req, res) res.sent = true return req.session.user end)
    check.equal(before.headers["Cache-Control"], nil)
  end)
end

-- A session of ada, visited after these seconds: { seconds, user of the session or false, max_age of a new cookie or false }.
local function visited(more, steps)
  each(function(options)
    local visitor = browser(with(options, more))
    visitor.visit(set_user "ada")
    for n, step in ipairs(steps) do
      now = now + step[1]
      local got = visitor.visit(step.change or user)
      if step[2] ~= nil then check.equal({ n, got.result or false }, { n, step[2] }) end
      if step[3] ~= nil then check.equal({ n, got.set and got.set.options.max_age or false }, { n, step[3] }) end
    end
  end)
end

function tests.an_unused_session_ends_after_max_age()
  visited({ max_age = 100 }, { { 99, "ada" }, { 99, "ada" }, { 100, false } }) -- each use begins the 100 s anew
end

function tests.a_use_extends_the_session_once_a_tenth_of_max_age_is_over()
  visited({ max_age = 100 }, { { 9, "ada", false }, { 1, "ada", 100 }, { 0, "ada", false } })
end

function tests.a_fixed_end()
  visited({ max_age = 100, sliding = false },
    { { 60, nil, 40, change = function(session) session.x = 1 end }, { 39, "ada" }, { 1, false } })
end

function tests.a_lifetime_ends_a_session_that_is_used()
  visited({ max_age = 100, lifetime = 150 }, { { 90, "ada", 60 }, { 59, "ada" }, { 1, false } })
end

function tests.a_login_begins_a_new_session_of_the_same_data()
  each(function(options)
    local visitor = browser(with(options, { max_age = 100, lifetime = 150 }))
    visitor.visit(function(session) session.cart, session.csrf_token = "tea", "t" end)
    local before = visitor.jar.session
    now = now + 95
    visitor.visit(set_user "ada")
    check.equal(visitor.jar.session ~= before, true)
    if options.store then check.equal(count(options.store.entries), 1) end
    now = now + 95 -- the lifetime has begun anew
    check.equal(visitor.visit(function(session) return session.cart end).result, "tea")
    check.equal(visitor.visit(function(session) return session.csrf_token end).result, nil)
    local stolen = browser(options)
    stolen.jar.session = before
    if options.store then check.equal(stolen.visit(function(session) return session.cart end).result, nil) end
  end)
end

function tests.another_user_gets_another_id()
  local visitor = browser { store = fake_dict(), login = "id" }
  visitor.visit(function(session) session.id = 1 end)
  local first = visitor.jar.session
  visitor.visit(function(session) session.user = "no login here" end)
  check.equal(visitor.jar.session, first)
  visitor.visit(function(session) session.id = 2 end)
  check.equal(visitor.jar.session ~= first, true)
  local second = visitor.jar.session
  visitor.visit(function(session) session:regenerate() end)
  check.equal(visitor.jar.session ~= second, true)
  check.equal(visitor.visit(function(session) return session.id end).result, 2)
end

function tests.a_login_by_another_field()
  each(function(options)
    for _, field in ipairs { "user", "user_id", "uid", "member" } do
      local visitor = browser(with(options, { login = field == "member" and { "member", "role" } or nil }))
      visitor.visit(function(session) session.cart = "tea" end)
      local planted = visitor.jar.session
      visitor.visit(function(session) session[field] = 1 end)
      check.equal({ field, visitor.jar.session ~= planted }, { field, true })
      if options.store then
        local stranger = browser(options)
        stranger.jar.session = planted
        check.equal(stranger.visit(function(session) return session.cart end).result, nil)
      end
    end
  end)
end

function tests.another_user_gets_another_csrf_token()
  local function token(session) return session.csrf_token end
  each(function(options)
    for _, change in ipairs { set_user "eve", set_user(nil) } do
      local visitor = browser(options)
      visitor.visit(set_user "ada")
      visitor.visit(function(session) session.csrf_token, session.x = "of ada", 1 end)
      visitor.visit(function(session) session.x = 2 end)
      check.equal(visitor.visit(token).result, "of ada")
      visitor.visit(change)
      check.equal(visitor.visit(token).result, nil)
    end
  end)
end

function tests.a_logout()
  each(function(options)
    local visitor = browser(with(options, { path = "/a", domain = "a.example" }))
    visitor.visit(set_user "ada")
    local replayed = visitor.jar.session
    local res = visitor.visit(function(session) session:clear() return session.user end)
    check.equal({ res.set.name, res.set.value, res.result }, { "session" })
    check.fields(res.set.options, { path = "/a", domain = "a.example" })
    check.equal(visitor.visit(user).result, nil)
    check.equal(visitor.visit(function(session) session:clear() end).set, nil)
    if options.store then
      check.equal(count(options.store.entries), 0)
      visitor.jar.session = replayed
      check.equal(visitor.visit(user).result, nil)
    end
  end)
end

function tests.a_logout_with_a_message()
  each(function(options)
    local visitor = browser(options)
    visitor.visit(set_user "ada")
    local before = visitor.jar.session
    visitor.visit(function(session) session:clear() session:flash("note", "bye") end)
    check.equal(visitor.jar.session ~= before and visitor.jar.session ~= nil, true)
    check.equal(visitor.visit(function(session) return session:flash "note" end).result, "bye")
    check.equal(visitor.jar.session, nil)
  end)
end

-- Two requests at a time: one logs out while the other is being answered.
function tests.a_request_does_not_bring_an_ended_session_back()
  local store = fake_dict()
  local visitor = browser { store = store }
  visitor.visit(set_user "ada")
  local res = visitor.visit(function(session)
    session.page = 2
    visitor.visit(function(other_session) other_session:clear() end)
  end)
  check.equal({ res.set, count(store.entries) }, { nil, 0 })
end

function tests.two_requests_at_a_time()
  local store = fake_dict()
  local visitor = browser { store = store }
  visitor.visit(function(session) session.a, session.b, session.gone, session.cart = 1, 1, 1, { "tea" } end)
  core.take_calls()
  visitor.visit(function(session)
    session.a, session.new = 2, { 1 }
    visitor.visit(function(another) another.b, another.gone, another.more = 3, nil, 4 end)
    session:save()
    session.last = 5
  end)
  local _, entry = next(store.entries)
  check.equal(entry.data, { a = 2, b = 3, new = { 1 }, more = 4, last = 5, cart = { "tea" } })
  check.equal(core.take_calls(), {})
  for n = 1, 2 do
    visitor.visit(function(session)
      session.cart = { "tea", n }
      visitor.visit(function(another) another.cart = { "tea", "pot" } end)
    end)
  end
  check.equal(select(2, next(store.entries)).data.cart, { "tea", 2 })
  local calls = core.take_calls()
  check.equal({ #calls, calls[1][1], calls[1][3]:match("changed session.cart at a time") }, { 1, "log", "changed session.cart at a time" })
end

function tests.flash()
  each(function(options)
    local visitor = browser(options)
    visitor.visit(function(session) session:flash("note", "saved") session:flash("errors", { name = "missing" }) end)
    check.equal(visitor.visit(function(session) return session:flash "errors" end).result, { name = "missing" })
    check.equal(visitor.visit(function(session) return session:flash "errors" end).result, nil)
    check.equal(visitor.visit(function(session) return session:flash "note" end).result, "saved")
    check.equal(visitor.visit(function(session) return session:flash "note" end).result, nil)
    check.equal(visitor.visit(function(session) return next(session) == nil end).result, true)
  end)
end

function tests.a_cookie_that_is_forged_is_no_session()
  core.take_calls()
  for _, value in ipairs { "", "x", other .. "|session session|0000000000{}", secret .. "|session other|0000000000{}",
    secret .. "|session session|short", ("x"):rep(5000), "session:x" } do
    each(function(options)
      local visitor = browser(options)
      visitor.jar.session = value
      local res = visitor.visit(user)
      check.equal({ res.result, res.set }, {})
      local calls = core.take_calls()
      check.equal({ #calls, calls[1][1], calls[1][2] }, { 1, "log", "debug" })
    end)
  end
end

function tests.two_stores_with_one_cookie_are_reported_once()
  local one, two = browser { store = fake_dict(), cookie = "both" }, browser { store = fake_dict(), cookie = "both" }
  one.visit(set_user "ada")
  core.take_calls()
  for _ = 1, 2 do
    two.jar.both = one.jar.both
    two.visit(user)
  end
  local calls = core.take_calls()
  check.equal({ #calls, calls[1][2], calls[2][2], calls[3][2] }, { 3, "debug", "warn", "debug" })
  check.equal(calls[2][3]:find('the cookie "both", and each ends the session of the other', 1, true) ~= nil, true)
end

function tests.a_key_of_the_dict_is_no_session()
  local store = fake_dict()
  store.entries.admin = { created = now, saved = now, data = { user = "root" } }
  store.entries[("a"):rep(43)] = store.entries.admin
  local visitor = browser { store = store }
  for _, value in ipairs { "admin", ("a"):rep(43), "session:" .. ("a"):rep(43) } do
    visitor.jar.session = value
    check.equal(visitor.visit(user).result, nil)
  end
end

-- A cookie is opened once, as long as 128 are remembered; what a handler does with its tables stays in its request.
function tests.cookies_that_come_again_are_not_opened_again()
  local unseal, opened = core.crypto_unseal, 0
  core.crypto_unseal = function(...)
    opened = opened + 1
    return unseal(...)
  end
  local ada, jars = browser { secret = secret, sliding = false }, {}
  for n = 1, 128 do
    ada.jar.session = nil
    ada.visit(function(session) session.cart = { n } end)
    jars[n] = ada.jar.session
  end
  local function first_of(n)
    ada.jar.session = jars[n]
    return ada.visit(function(session)
      local first = session.cart[1]
      session.cart[1] = "changed"
      return first
    end).result
  end
  for n = 1, 128 do check.equal(first_of(n), n) end
  check.equal(opened, 128)
  for n = 1, 128 do check.equal(first_of(n), n) end
  check.equal(opened, 128)
  ada.jar.session = nil
  ada.visit(set_user "eve")
  check.equal(ada.visit(user).result, "eve") -- one more: the others are forgotten
  check.equal(opened, 129)
  check.equal(first_of(7), 7)
  check.equal(opened, 130)
  now = now + 86400
  ada.jar.session = jars[7]
  check.equal(ada.visit(function(session) return session.cart end).result, nil) -- it has expired meanwhile
  check.equal(opened, 130)
  now = now - 86400
  core.crypto_unseal = unseal
end

function tests.secrets_rotate()
  local old = browser { secret = secret }
  old.visit(set_user "ada")
  local visitor = browser { secret = { other, secret } }
  visitor.jar.session = old.jar.session
  local res = visitor.visit(user)
  check.equal({ res.result, res.set.value:sub(1, #other) }, { "ada", other })
  check.equal(visitor.visit(user).set, nil)
  local later = browser { secret = other }
  later.jar.session = visitor.jar.session
  check.equal(later.visit(user).result, "ada")
  later.jar.session = old.jar.session
  check.equal(later.visit(user).result, nil)
end

function tests.a_cookie_of_another_name_is_no_session()
  local one, two = browser { secret = secret, cookie = "one" }, browser { secret = secret, cookie = "two" }
  one.visit(set_user "ada")
  two.jar.two = one.jar.one
  check.equal(two.visit(user).result, nil)
end

function tests.a_cookie_until_the_browser_is_closed()
  for _, options in ipairs { { secret = secret }, { store = fake_dict() } } do
    local visitor = browser(with(options, { max_age = 100, persistent = false }))
    check.equal(visitor.visit(set_user("ada")).set.options.max_age, nil)
    now = now + 99
    check.equal(visitor.visit(user).result, "ada") -- and extended
    now = now + 100
    check.equal(visitor.visit(user).result, nil)
  end
end

function tests.the_cookie_is_secure_over_https()
  each(function(options)
    check.equal(browser(options, { secure = true }).visit(set_user "ada").set.options.secure, true)
    check.equal(browser(with(options, { secure = true })).visit(set_user "ada").set.options.secure, true)
    local never = browser(with(options, { secure = false }), { secure = true })
    check.equal(never.visit(set_user "ada").set.options.secure, false)
  end)
end

function tests.a_cookie_that_is_too_large()
  local visitor = browser { secret = secret }
  local room = 4096 - #"session" - 101 - #(secret .. "|session session|0000000000" .. json.encode { x = "" })
  local function store(bytes) return function(session) session.x = ("x"):rep(bytes) end end
  check.equal(visitor.visit(store(room)).set ~= nil, true)
  check.raises({ "4097 bytes", "at most 4096", "store" }, visitor.visit, store(room + 1))
end

function tests.what_cannot_be_stored()
  each(function(options)
    check.raises("session.x cannot be stored: it must be data; got a function", browser(options).visit,
      function(session) session.x = print end)
  end)
  local deep = fake_dict()
  function deep:add() error("bad argument #2 to 'add' (value.data.f.a is a function, which cannot be shared)", 0) end
  check.raises("ls.session: the session cannot be stored: session.f.a is a function, which cannot be shared",
    browser{ store = deep }.visit, set_user { a = "stands for a function" })
  local store = fake_dict()
  store.full = true
  check.raises("cannot be stored: the dict is full", browser{ store = store }.visit, set_user "ada")
end

function tests.tables_that_json_would_change()
  local function store(value) return function(session) session.cart = value end end
  for _, case in ipairs {
    { { [3] = "tea" }, "session.cart cannot be stored in a cookie: it has the key 3" },
    { { 1, 2, nil, 4 }, "has the key 4" }, { { [0] = 1 }, "has the key 0" },
    { { [1.5] = 1 }, "has the key 1.5" }, { { lists = { { [7] = 1 } } }, "session.cart.lists[1] cannot" },
  } do
    check.raises(case[2], browser{ secret = secret }.visit, store(case[1]))
    check.equal(browser{ store = fake_dict() }.visit(store(case[1])).set ~= nil, true)
  end
  for _, fine in ipairs { {}, { 1, 2, 3 }, { a = 1, b = { {}, { c = 2 } } } } do
    check.equal(browser{ secret = secret }.visit(store(fine)).set ~= nil, true)
  end
end

function tests.names_of_methods_and_of_no_string()
  each(function(options)
    local visit = browser(options).visit
    for _, name in ipairs { "clear", "flash", "regenerate", "save" } do
      check.raises("session." .. name .. " is a method", visit, function(session) session[name] = 1 end)
    end
    check.raises("are strings; got 1", visit, function(session) session[1] = "x" end)
    check.raises("name must be a string", visit, function(session) session:flash() end)
    check.raises("call it with a colon", visit, function(session) session.clear() end)
    check.raises("too many arguments", visit, function(session) session:clear(1) end)
  end)
end

function tests.save_stores_before_a_response_begins()
  each(function(options)
    local visitor = browser(options)
    local set
    visitor.visit(function(session, _, res)
      session.user = "ada"
      session:save()
      set, res.sent = res.set, true
    end)
    check.equal(set.name, "session")
    check.equal(visitor.visit(user).result, "ada")
    core.take_calls()
    for _ = 1, 2 do
      check.equal(visitor.visit(function(session, _, res) session.user, res.sent = "eve", true end).set, nil)
    end
    local calls = core.take_calls() -- one line, not one for each request
    check.equal({ #calls, calls[1][2], calls[1][3]:find("req.session:save()", 1, true) ~= nil }, { 1, "warn", true })
    check.equal(visitor.visit(user).result, "ada")
  end)
end

function tests.wrong_options()
  for _, case in ipairs {
    { {}, "secret must be a string" }, { { secret = "short" }, "the secret has 5 bytes; at least 32" },
    { { secret = ("x"):rep(31) }, "has 31 bytes" }, { { secret = { secret, "short" } }, "has 5 bytes" },
    { { secret = {} }, "secret must be" }, { { secret = ("x"):rep(32) }, "the same character" },
    { { secret = secret, store = fake_dict() }, "leave secret out" }, { { store = "sessions" }, "store must be a dict" },
    { { store = {} }, "store must be a dict" }, { { secret = secret, cookie = "a b" }, "cookie must be" },
    { { secret = secret, same_site = "loose" }, "same_site must be" }, { { secret = secret, path = ";" }, "path must be" },
    { { secret = secret, login = {} }, "login must be" }, { { secret = secret, login = 1 }, "login must be" },
    { { secret = secret, login = { "user", "" } }, "login must be" },
    { { secret = secret, login = "clear" }, "login must be" },
  } do
    check.raises({ check.line(), case[2] }, function() new(case[1]) end)
  end
  check.raises({ check.line(), "takes a table" }, function() new(secret) end)
  check.raises({ check.line(), "too many arguments" }, function() new({ secret = secret }, 1) end)
end

return tests
