-- session.lua - ls.session: data of a visitor, in a sealed cookie or in a dict.
--
-- The session of a request is a table that is filled when it is first used: until then the request pays for a table. Its
-- metatable is also its record: what was read, and what is to be done at the end.
--
--     sealed cookie:  seal(5 bytes created, 5 bytes saved, JSON of the data)
--     dict:           the cookie is a random id; "session:" .. id --> { created =, saved =, data = }
--
-- created: when the session began, which `lifetime` counts from. saved: when it was last extended, for `max_age`.

local core = require "luaserve.core"
local json = require "luaserve.json"
local options = require "luaserve.options"
local seal = require "luaserve.seal"
local usage = require "luaserve.usage"
local dicts = require "luaserve.dict"
usage.mark_internal()

-- A site may replace the globals.
local find, format, pack, sub, unpack = string.find, string.format, string.pack, string.sub, string.unpack
local getmetatable, ipairs, math_min, math_type, next, pcall = getmetatable, ipairs, math.min, math.type, next, pcall
local rawget, rawset, setmetatable, time, tostring, type = rawget, rawset, setmetatable, os.time, tostring, type

local session = {}

local cookie_bytes_max = 4096 -- of name, value and attributes: RFC 6265 section 6.1
local opened_max = 128 -- cookies whose content a state remembers, below 1 MiB
local random_bytes, base64url = 32, 3
local day_ms = 86400 * 1000

local session_options = {
  secret = true, -- string|string[] - seals the cookie, at least 32 bytes; the first of several seals
  store = true, -- Dict - keeps the data in place of the cookie, which then holds a random id
  max_age = { "max_age_ms", "seconds", 1000, 400 * day_ms, 86400 }, -- seconds until an unused session ends
  sliding = { "sliding", "flag", nil, nil, true }, -- each use begins max_age anew; false: it counts from the beginning
  lifetime = { "lifetime_ms", "seconds", 1000, 4000 * day_ms, 2592000, none = 4000 * day_ms }, -- seconds until its end
  login = true, -- string|string[] - the fields whose change gives the session a new id; default "user", "user_id", "uid"
  persistent = { "persistent", "flag", nil, nil, true }, -- the browser keeps the cookie; false: until it is closed
  cookie = true, -- string - name of the cookie; default "session"
  domain = true, -- string - domain of the cookie, with all its subdomains; default: the host alone
  path = true, -- string - paths of the cookie; default "/"
  same_site = true, -- "lax"|"strict"|"none" - as for res:cookie; default "lax"
  secure = { "secure", "flag" }, -- only over HTTPS; default: when the request came over HTTPS
}
session.calls = {
  ["ls.session"] = { session_options, listed = true }, -- SessionOptions
}

-- A handler may store tables that it has from a dict, whose content is behind them.
local content = core.dict_content

local function copy(value)
  if type(value) ~= "table" then return value end
  local t = {}
  for key, one in next, content(value) do t[key] = copy(one) end
  return t
end

local function same(a, b)
  a = content(a)
  for key, value in next, a do
    local other = rawget(b, key)
    if value ~= other and not (type(value) == "table" and type(other) == "table" and same(value, other)) then
      return false
    end
  end
  for key in next, b do if rawget(a, key) == nil then return false end end
  return true
end

local function log(record, text) core.log("debug", format("session: the cookie of %s %s", record.req.ip, text)) end

-- Whether a session that began and was extended at these times goes on.
local function is_alive(settings, created, saved, now)
  return now < saved + settings.max_age and now < created + settings.lifetime
end

-- open_cookie(settings, value) -> { text =, created =, saved =, renew = } | nil. A visitor sends the same cookie again and
-- again: the last ones are remembered.
local function open_cookie(settings, value)
  if #value > cookie_bytes_max then return nil end
  local sealed, number = seal.open(settings.keys, value, settings.context)
  if not sealed or #sealed < 10 then return nil end
  local created, saved, at = unpack(">I5I5", sealed)
  if settings.opened_count == opened_max then settings.opened, settings.opened_count = {}, 0 end
  local opened = { text = sub(sealed, at), created = created, saved = saved, renew = number > 1 }
  settings.opened[value], settings.opened_count = opened, settings.opened_count + 1
  return opened
end

-- read_cookie(record, value) -> data, created, saved | nil
local function read_cookie(record, value)
  local settings = record.settings
  local opened = settings.opened[value] or open_cookie(settings, value)
  if not opened then return log(record, "was changed, or sealed with another secret") end
  record.renew = opened.renew
  return json.decode(opened.text), opened.created, opened.saved
end

-- A cookie chooses the key: only the form of an id is looked up, below a prefix.
local function key_of(id) return "session:" .. id end

local function read_store(record, value)
  local settings = record.settings
  local entry = #value == 43 and not find(value, "[^%w_-]") and settings.read_entry(settings.store, key_of(value))
  if type(entry) ~= "table" then return log(record, "names no session") end
  record.id = value
  return entry.data, entry.created, entry.saved
end

-- A response that uses the session is for its visitor alone: no cache may give it to others.
local function be_private(res)
  if not res.sent and res:header("Cache-Control") == nil then res:header("Cache-Control", "private") end
end

-- Fill the session from the cookie.
local function load(self, record)
  local settings, now = record.settings, time()
  record.loaded, record.snapshot = true, {}
  be_private(record.res)
  local value = record.req.cookies[settings.cookie]
  if not value then return end
  local data, created, saved = settings.read(record, value)
  if data and not is_alive(settings, created, saved, now) then
    record.id = nil
    data = log(record, "has expired")
  end
  if not data then return end
  for key, one in next, data do
    rawset(self, key, one)
    if type(one) == "table" then data[key] = copy(one) end
  end
  record.known, record.created, record.saved, record.snapshot = true, created, saved, data
  record.renew = record.renew or settings.sliding and now - saved >= settings.max_age // 10
end

-- session is a Session: data of a visitor; a table that is saved at the end of the request if it has changed.
-- session[string]: any - what the site stores
local methods = {}

local function record_of(self, name)
  local record = type(self) == "table" and getmetatable(self)
  if type(record) ~= "table" or not record.settings then
    usage.error("'%s' is a method of a session: call it with a colon: req.session:%s()", name, name)
  end
  if not record.loaded then load(self, record) end
  return record
end

-- session:regenerate()
-- Gives the session a new id, or seals it anew, and lets its lifetime begin; its data stay. For a login.
function methods.regenerate(self, ...)
  local record = record_of(self, "regenerate")
  usage.no_more("session:regenerate()", nil, ...)
  record.regenerated = true
  rawset(self, "csrf_token", nil)
end

-- session:clear()
-- Removes all data, and the session with them unless something is stored afterwards. For a logout.
function methods.clear(self, ...)
  usage.no_more("session:clear()", nil, ...)
  record_of(self, "clear").regenerated = true
  for key in next, self do rawset(self, key, nil) end
end

-- session:flash(name [, value]) -> value | nil
-- With a value, keeps it until it is read; without one, returns it and removes it: messages for the next page.
function methods.flash(self, name, value, ...)
  record_of(self, "flash")
  if type(name) ~= "string" then usage.error("session:flash: name must be a string; got %s", usage.quote(name)) end
  usage.no_more("session:flash(name, value)", value, ...)
  local kept = rawget(self, "_flash")
  if value == nil then
    value = kept and kept[name]
    if value ~= nil then kept[name] = nil end
    if kept and next(kept) == nil then rawset(self, "_flash", nil) end
    return value
  end
  if not kept then
    kept = {}
    rawset(self, "_flash", kept)
  end
  kept[name] = value
end

local function set_cookie(record, value, max_age)
  local settings = record.settings
  local secure = settings.secure
  if secure == nil then secure = record.req.secure end
  record.res:cookie(settings.cookie, value, { path = settings.path, domain = settings.domain,
    max_age = settings.persistent and max_age or nil, secure = secure, same_site = settings.same_site })
end

local function store_failed(message) usage.error("ls.session: the session cannot be stored: %s", message) end

local function write_store(record, data, created, saved, left)
  local store, id = record.settings.store, record.id
  local entry = { created = created, saved = saved, data = data }
  if id and not record.regenerated then
    local ok, message, code = store:replace(key_of(id), entry, left)
    if ok then return id end
    if code == "ENOENT" then return nil end -- another request has ended the session meanwhile
    store_failed(message)
  end
  if id then store:delete(key_of(id)) end
  id = core.crypto_encode(base64url, core.crypto_random(random_bytes))
  local ok, message = store:add(key_of(id), entry, left)
  if not ok then store_failed(message) end
  record.id = id
  return id
end

-- check_keys(value, field): raises for a table that has other keys after JSON: its keys are neither all strings nor 1 to n.
local function check_keys(value, field)
  if type(value) ~= "table" then return end
  local strings, others, wrong = 0, 0, nil
  value = content(value)
  for key in next, value do
    if type(key) == "string" then strings = strings + 1 else others = others + 1 end
  end
  for key, one in next, value do
    local is_index = strings == 0 and math_type(key) == "integer" and key >= 1 and key <= others
    if type(key) ~= "string" and not is_index then wrong = tostring(key) end
    check_keys(one, field .. (type(key) == "string" and "." .. key or "[" .. tostring(key) .. "]"))
  end
  if wrong then
    usage.error("ls.session: %s cannot be stored in a cookie: it has the key %s, and JSON has only lists with the "
      .. "keys 1 to n and tables with strings as keys; table.remove removes from a list", field, wrong)
  end
end

local function write_cookie(record, data, created, saved)
  local fine, text = pcall(json.encode, data)
  if not fine then usage.error("ls.session: the session cannot be stored: %s", text) end
  check_keys(data, "session")
  local value = core.crypto_seal(record.settings.keys[1], pack(">I5I5", created, saved) .. text,
    record.settings.context)
  local bytes = #value + #record.settings.cookie + record.settings.attribute_bytes
  if bytes > cookie_bytes_max then
    usage.error("ls.session: the cookie of the session would have %d bytes, at most %d are kept by browsers; keep the data "
      .. 'elsewhere: ls.session{ store = ls.dict("sessions") }', bytes, cookie_bytes_max)
  end
  return value
end

-- A session that was read and has another user gets a new id; the token of the previous one is removed.
local function check_login(self, record)
  local login = record.settings.login
  for i = 1, record.known and #login or 0 do
    local field = login[i]
    if not same({ record.snapshot[field] }, { rawget(self, field) }) then
      record.regenerated = true
      if rawget(self, "csrf_token") == record.snapshot.csrf_token then rawset(self, "csrf_token", nil) end
    end
  end
end

-- check_login(session): for csrf.token, which would return the token of the previous user otherwise.
function session.check_login(self)
  local record = getmetatable(self)
  if type(record) == "table" and record.settings and record.loaded then check_login(self, record) end
end

-- Store the session if that is necessary.
local function save(self, record)
  local settings = record.settings
  if not same(self, record.snapshot) then
    check_login(self, record)
  elseif not (record.renew or record.regenerated and record.known) then
    return
  end
  local sent = record.res.sent -- then no cookie can be set: only an entry of a store can change or end
  if sent and (not record.id or record.regenerated and next(self) ~= nil) then
    usage.error("session:save: the response has begun, and its head would set the cookie of the session: call it before")
  end
  if next(self) == nil then
    if not record.known then return end
    if record.id then settings.store:delete(key_of(record.id)) end
    if not sent then set_cookie(record, nil) end
    record.id, record.known = nil, false
  else
    local now = time()
    local begins = not record.known or record.regenerated
    local created = begins and now or record.created
    local saved = (begins or settings.sliding) and now or record.saved
    local left = math_min(saved + settings.max_age, created + settings.lifetime) - now
    local data = {}
    for key, value in next, self do data[key] = value end
    local value = settings.write(record, data, created, saved, left)
    if not value then return end
    if not sent then set_cookie(record, value, left) end
    record.known, record.created, record.saved = true, created, saved
  end
  record.renew, record.regenerated, record.snapshot = false, false, copy(self)
end

-- warn_unsaved(self, where): for a function of a WebSocket, which runs after the middleware has stored the session.
function session.warn_unsaved(self, where)
  local record = type(self) == "table" and getmetatable(self)
  if type(record) ~= "table" or not record.settings or not record.loaded or same(self, record.snapshot) then return end
  core.log("warn", where .. ": the session was changed in a function of the WebSocket and is not stored; call "
    .. "req.session:save() after the change")
end

-- session:save()
-- Stores the session now, which otherwise happens when the handler has ended; for responses that begin before.
function methods.save(self, ...)
  usage.no_more("session:save()", nil, ...)
  save(self, record_of(self, "save"))
end

local function index(self, key)
  local method = methods[key]
  if method then return method end
  local record = getmetatable(self)
  if record.loaded then return nil end
  load(self, record)
  return rawget(self, key)
end

local function new_index(self, key, value)
  local record = getmetatable(self)
  if type(key) ~= "string" then
    usage.error("the names of a session's fields are strings; got %s", usage.quote(key))
  elseif methods[key] then
    usage.error("session.%s is a method: choose another name for the field", key)
  end
  if not record.loaded then load(self, record) end
  if record.settings.is_login[key] and value ~= nil and rawget(self, key) == nil then methods.regenerate(self) end
  rawset(self, key, value)
end

local function pairs_of(self)
  local record = getmetatable(self)
  if not record.loaded then load(self, record) end
  return next, self, nil
end

local function text_option(given, name, default)
  local value = given[name]
  if value == nil then return default end
  if type(value) ~= "string" or value == "" or find(value, "[;%c]") then
    usage.error("ls.session: %s must be a string without ';'; got %s", name, usage.quote(value))
  end
  return value
end

-- login_fields(option) -> the list of the fields, the set of them. Raises.
local function login_fields(value)
  local list, set = value, {}
  if value == nil then list = { "user", "user_id", "uid" } elseif type(value) == "string" then list = { value } end
  if type(list) ~= "table" or #list == 0 then list = { false } end
  for _, field in ipairs(list) do
    if type(field) ~= "string" or field == "" or methods[field] then
      usage.error('ls.session: login must be a field, such as "user", or a list of fields; got %s', usage.quote(value))
    end
    set[field] = true
  end
  return list, set
end

local function is_store(value)
  local fine, method = pcall(function() return value.replace end)
  return fine and type(method) == "function"
end

-- ls.session(options: SessionOptions) -> middleware: Middleware
-- Makes middleware that gives each request the session of its visitor, `req.session`. Raises for a short secret.
function session.new(given, ...)
  if type(given) ~= "table" then
    usage.error('ls.session takes a table of options: ls.session{ secret = os.getenv "SESSION_SECRET" }; got %s',
      usage.quote(given))
  end
  usage.no_more("ls.session(options)", given, ...)
  local settings = options.take("ls.session", given, session.calls["ls.session"], {})
  settings.max_age, settings.lifetime = settings.max_age_ms // 1000, settings.lifetime_ms // 1000
  settings.cookie = text_option(given, "cookie", "session")
  if not options.is_token(settings.cookie) then
    usage.error("ls.session: cookie must be the name of a cookie; got %s", usage.quote(settings.cookie))
  end
  settings.login, settings.is_login = login_fields(given.login)
  settings.domain = text_option(given, "domain")
  settings.path, settings.same_site = text_option(given, "path", "/"), text_option(given, "same_site", "lax")
  require("luaserve.cookie").line("a", "b", { same_site = settings.same_site }) -- raises for another value
  settings.context = "session " .. settings.cookie
  settings.attribute_bytes = 100 + #settings.path + #(settings.domain or "")
  if given.store ~= nil then
    if given.secret ~= nil then
      usage.error("ls.session: secret seals a cookie; with store the cookie holds a random id: leave secret out")
    elseif not is_store(given.store) then
      usage.error('ls.session: store must be a dict: store = ls.dict("sessions"); got %s', usage.quote(given.store))
    end
    settings.store, settings.read, settings.write = given.store, read_store, write_store
    settings.read_entry = dicts.in_redis(given.store) or core.dict_read
  else
    if not core.crypto_built() then usage.error("ls.session: a sealed cookie needs OpenSSL; use store = ls.dict(name)") end
    settings.keys, settings.read, settings.write = seal.keys("ls.session", given.secret), read_cookie, write_cookie
    settings.opened, settings.opened_count = {}, 0
    if not core.crypto_same(settings.keys[1]) then -- a cookie would be valid in one state only
      usage.error("ls.session: the secret differs between the Lua states, which all run this file: take one from the "
        .. "environment or from a file; one that is made here is another one in each state")
    end
  end
  local warned = false
  return function(req, res, next_fn)
    local record = {
      __index = index, __newindex = new_index, __pairs = pairs_of, settings = settings, req = req, res = res,
    }
    local self = setmetatable({}, record)
    req.session = self
    next_fn()
    if not record.loaded then return end
    if not res.sent then
      save(self, record)
      be_private(res)
    elseif not warned and not same(self, record.snapshot) then
      warned = true
      core.log("warn", format("%s: the session was changed after the response had begun and is not stored; call "
        .. "req.session:save() before", req.path))
    end
  end
end

return session
