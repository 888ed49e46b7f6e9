-- session.lua - ls.session: data of a visitor, in a sealed cookie or in a dict.
--
-- The session of a request is a table that is made when req.session is first read. Its metatable is also its record:
--
--     entry        what was read, or stored last: see below
--     due          what is to be done at the end though no field has changed: "renewal" extends the session, "beginning"
--                  gives it a new id
--
--     sealed cookie:  seal(5 bytes created, 5 bytes saved, JSON of the data)
--     dict:           the cookie is a random id; "session:" .. id --> { created =, saved =, data = }
--
-- created: when the session began, which `lifetime` counts from. saved: when it was last extended, for `max_age`.
--
-- An entry is never changed: { data =, created =, saved =, id = of a dict }. Those of the last cookies are remembered,
-- because a visitor sends the same cookie again and again: they have also `value`, the cookie; `stale`, sealed with a
-- previous secret; and `text`, the JSON of data that have tables.

local core = require "luaserve.core"
local json = require "luaserve.json"
local options = require "luaserve.options"
local seal = require "luaserve.seal"
local usage = require "luaserve.usage"
local dicts = require "luaserve.dict"
local place = require("luaserve.router").place

-- A site may replace the globals.
local find, format, pack, sub, unpack = string.find, string.format, string.pack, string.sub, string.unpack
local be_private, cookie_of, maker_of, own = core.be_private, core.cookie, core.maker, core.own
local copy, same = core.plain_copy, core.same
local getmetatable, ipairs, math_min, next, pcall = getmetatable, ipairs, math.min, next, pcall
local error, rawequal, rawget, rawset, setmetatable = error, rawequal, rawget, rawset, setmetatable
local time, tostring, type = os.time, tostring, type

local session = {}

local cookie_bytes_max = 4096 -- of name, value and attributes: RFC 6265 section 6.1
local opened_max = 128 -- cookies whose content a state remembers, below 1 MiB
local mark_chars = 22 -- at the end of a sealed text: of the 16 bytes that authenticate it
local random_bytes, base64url = 32, 3
local day_ms = 86400 * 1000

local function is_text(value) return type(value) == "string" and value ~= "" and not find(value, "[;%c]") end

local function is_store(value)
  local fine, method = pcall(function() return value.replace end)
  return fine and type(method) == "function"
end

local session_options = {
  secret = true, -- string|string[] - seals the cookie, at least 32 bytes; the first of several seals
  -- Dict - keeps the data in place of the cookie, which then holds a random id
  store = { "store", "is", is_store, 'a dict: store = ls.dict("sessions")' },
  max_age = { "max_age_ms", "seconds", 1000, 400 * day_ms, 86400 }, -- seconds until an unused session ends
  sliding = { "sliding", "flag", nil, nil, true }, -- each use begins max_age again; false: it counts from the beginning
  lifetime = { "lifetime_ms", "seconds", 1000, 4000 * day_ms, 2592000, none = 4000 * day_ms }, -- seconds until its end
  login = true, -- string|string[] - the fields whose change gives the session a new id; default "user", "user_id", "uid"
  persistent = { "persistent", "flag", nil, nil, true }, -- the browser keeps the cookie; false: until it is closed
  cookie = { "cookie", "is", is_text, "a string without ';'", "session" }, -- string - name of the cookie; default "session"
  -- string - domain of the cookie, with all its subdomains; default: the host alone
  domain = { "domain", "is", is_text, "a string without ';'" },
  path = { "path", "is", is_text, "a string without ';'", "/" }, -- string - paths of the cookie; default "/"
  -- "lax"|"strict"|"none" - as for res:cookie; default "lax"
  same_site = { "same_site", "is", is_text, "a string without ';'", "lax" },
  secure = { "secure", "flag" }, -- only over HTTPS; default: when the request came over HTTPS
}
session.calls = { ["ls.session"] = { session_options, listed = true } } -- SessionOptions

local function log(record, text)
  if record then core.log("debug", format("session: the cookie of %s %s", record.req.ip, text)) end
end

local nothing = {}
local no_entry = { data = nothing }
local of_cookie = {} -- lists of settings, by the name of the cookie

-- open_cookie(settings, value, mark) -> entry | nil
local function open_cookie(settings, value, mark)
  if #value > cookie_bytes_max then return nil end
  local sealed, number = seal.open(settings.keys, value, settings.context)
  if not sealed or #sealed < 10 then return nil end
  local created, saved, at = unpack(">I5I5", sealed)
  local text = sub(sealed, at)
  local data = json.decode(text)
  if not data then return nil end
  local entry = { value = value, data = data, created = created, saved = saved, stale = number > 1 }
  for _, one in next, data do if type(one) == "table" then entry.text = text end end
  if settings.opened_count == opened_max then settings.opened, settings.opened_count = {}, 0 end
  settings.opened[mark], settings.opened_count = entry, settings.opened_count + 1
  return entry
end

-- read_cookie(record, settings, value, mark) -> entry, data for the session | nil
local function read_cookie(record, settings, value, mark)
  local entry = settings.opened[mark]
  if not entry or entry.value ~= value then entry = open_cookie(settings, value, mark) end
  if not entry then return log(record, "was changed, or sealed with another secret") end
  return entry, entry.text and json.decode(entry.text) or copy(entry.data)
end

-- A cookie chooses the key: only the form of an id is looked up, below a prefix.
local function key_of(id) return "session:" .. id end

local function read_store(record, settings, value)
  local entry = #value == 43 and not find(value, "[^%w_-]") and settings.read_entry(settings.store, key_of(value))
  if type(entry) ~= "table" then return log(record, "names no session") end
  entry.id = value
  local data = entry.data
  entry.data = copy(data)
  return entry, data
end

-- read(record, settings) -> the data of the session; sets record.entry. The response is for its visitor alone: no cache may
-- give it to others.
local function read(record, settings)
  be_private(record.res)
  local value, mark = cookie_of(record.req, settings.cookie, mark_chars)
  if not value then return {} end
  local entry, data = settings.read(record, settings, value, mark)
  for _, other in next, not entry and of_cookie[settings.cookie] or nothing do
    if other ~= settings and not other.told and other.read(nil, other, value, mark) then
      other.told = true
      core.log("warn", format("ls.session: the middleware of two stores or secrets has the cookie %q, and each ends the session "
        .. "of the other: give one of them another name, cookie = %q", settings.cookie, settings.cookie .. "2"))
    end
  end
  if not entry then return {} end
  local now, saved = time(), entry.saved
  if now >= saved + settings.max_age or now >= entry.created + settings.lifetime then
    log(record, "has expired")
    return {}
  end
  record.entry = entry
  if entry.stale or settings.sliding and now - saved >= settings.max_age // 10 then record.due = "renewal" end
  return data
end

-- session is a Session: data of a visitor; a table that is saved at the end of the request if it has changed.
-- session[string]: any - what the site stores
local methods = {}

local function record_of(self, name)
  local record = type(self) == "table" and getmetatable(self)
  if type(record) ~= "table" or not record.settings then
    usage.error("'%s' is a method of a session: call it with a colon: req.session:%s()", name, name)
  end
  return record
end

-- session:regenerate()
-- Gives the session a new id, or seals it again, and lets its lifetime begin; its data stay. For a login.
function methods.regenerate(self, ...)
  local record = record_of(self, "regenerate")
  usage.no_more("session:regenerate()", nil, ...)
  record.due = "beginning"
  rawset(self, "csrf_token", nil)
end

-- session:clear()
-- Removes all data, and the session with them unless something is stored afterwards. For a logout.
function methods.clear(self, ...)
  usage.no_more("session:clear()", nil, ...)
  record_of(self, "clear").due = "beginning"
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
  if secure == nil then secure = record.req.secure or settings.same_site:lower() == "none" end
  record.res:cookie(settings.cookie, value, { path = settings.path, domain = settings.domain,
    max_age = settings.persistent and max_age or nil, secure = secure, same_site = settings.same_site })
end

local function store_failed(message) usage.error("ls.session: the session cannot be stored: %s", message) end

-- merge(stored, entry, before) -> stored, with the fields that this request has changed, and those of others; the name of a field
-- that both have changed, or true.
local function merge(stored, entry, before)
  local data, result = stored.data, true
  local function change(key)
    local value, old = entry.data[key], before.data[key]
    if same(value, old) then return end
    if not same(data[key], old) and not same(data[key], value) and key ~= "csrf_token" then result = key end
    data[key] = value
  end
  for key in next, entry.data do change(key) end
  for key in next, before.data do change(key) end
  stored.created, stored.saved = entry.created, entry.saved
  return stored, result
end

-- write_store(record, entry, left) -> the value of the cookie | nil: another request has ended the session meanwhile
local function write_store(record, entry, left)
  local settings, before = record.settings, record.entry
  local store, id = settings.store, before.id
  if id and record.due ~= "beginning" then
    local new, result = store:update(key_of(id), function(stored)
      if type(stored) ~= "table" then return stored, false end
      return merge(stored, entry, before)
    end)
    if result == false then return nil end
    if new == nil then store_failed(result) end
    if entry.saved ~= before.saved then store:expire(key_of(id), left) end
    if result ~= true and not settings.lost[result] then
      settings.lost[result] = true
      core.log("warn", format("ls.session: two requests have changed session.%s at a time, and the change of the first is lost: keep what "
        .. "requests add to in a database, or in a dict by incr or update", result))
    end
    entry.id = id
    return id
  end
  local stored = { created = entry.created, saved = entry.saved, data = entry.data }
  if id then store:delete(key_of(id)) end
  id = core.crypto_encode(base64url, core.crypto_random(random_bytes))
  local ok, message = store:add(key_of(id), stored, left)
  if not ok then store_failed(message) end
  entry.id = id
  return id
end

local function write_cookie(record, entry)
  local data = entry.data
  local fine, text = pcall(json.encode, data)
  if not fine then usage.error("ls.session: the session cannot be stored: %s", text) end
  local at, key = require("luaserve.json_fault").changed(data, "session")
  if at then
    usage.error("ls.session: %s cannot be stored in a cookie: it has the key %s, and JSON has only lists with the "
      .. "keys 1 to n and tables with strings as keys; table.remove removes from a list", at, key)
  end
  local value = core.crypto_seal(record.settings.keys[1], pack(">I5I5", entry.created, entry.saved) .. text,
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
  local login, entry = record.settings.login, record.entry
  for i = 1, entry ~= no_entry and #login or 0 do
    local field = login[i]
    if not same(rawget(self, field), entry.data[field]) then
      record.due = "beginning"
      if rawget(self, "csrf_token") == entry.data.csrf_token then rawset(self, "csrf_token", nil) end
    end
  end
end

-- check_login(session): for csrf.token, which would return the token of the previous user otherwise.
function session.check_login(self)
  local record = getmetatable(self)
  if type(record) == "table" and record.settings then check_login(self, record) end
end

-- Store the session if that is necessary.
local function save(self, record)
  local settings, before = record.settings, record.entry
  if not same(self, before.data) then
    check_login(self, record)
  elseif not record.due or before == no_entry then
    return
  end
  if core.dev then require("luaserve.dev_state").watch_session(self, nil, record.due == "beginning") end
  local sent = not record.res or record.res.sent -- then no cookie can be set: only an entry of a store can change or end
  if sent and (not before.id or record.due == "beginning" and next(self) ~= nil) then
    usage.error("session:save: the response has begun, and its head would set the cookie of the session: call it before")
  end
  if next(self) == nil then
    if before == no_entry then return end
    if before.id then settings.store:delete(key_of(before.id)) end
    if not sent then set_cookie(record, nil) end
    record.entry = no_entry
  else
    local now = time()
    local begins = before == no_entry or record.due == "beginning"
    local created = begins and now or before.created
    local saved = (begins or settings.sliding) and now or before.saved
    local left = math_min(saved + settings.max_age, created + settings.lifetime) - now
    local data = {}
    for key, value in next, self do data[key] = value end
    local entry = { data = data, created = created, saved = saved }
    local fine, value = pcall(settings.write, record, entry, left)
    if not fine then
      local what = type(value) == "string" and value:gsub("value%.data", "value"):match("value(%.[^%s]+ is an? %a+, which .-)%)?$")
      if what then store_failed("session" .. what) end
      error(value, 0)
    end
    if not value then return end
    if not sent and record.cookie ~= value then set_cookie(record, value, left) end
    record.cookie = value
    entry.data = copy(self)
    record.entry = entry
  end
  record.due = false
end

-- store(req): store the session of a request before its response begins without the handler, such as in app:proxy.
function session.store(req)
  local self, record = own(req, "session")
  local res = record and rawequal(record.__index, methods) and record.res
  if res and not res.sent then save(self, record) end
end

-- warn_unsaved(self, where): for a function of a WebSocket, which runs after the middleware has stored the session.
function session.warn_unsaved(self, where)
  local record = type(self) == "table" and getmetatable(self)
  if type(record) ~= "table" or not record.settings or same(self, record.entry.data) then return end
  core.log("warn", where .. ": the session was changed in a function of the WebSocket and is not stored; call "
    .. "req.session:save() after the change")
end

-- session:save()
-- Stores the session now, which otherwise happens when the handler has ended; for responses that begin before.
function methods.save(self, ...)
  usage.no_more("session:save()", nil, ...)
  save(self, record_of(self, "save"))
end

local function new_index(self, key, value)
  local record = getmetatable(self)
  if type(key) ~= "string" then
    usage.error("the names of a session's fields are strings; got %s", usage.quote(key))
  elseif methods[key] then
    usage.error("session.%s is a method: choose another name for the field", key)
  end
  usage.refuse(type(value) == "function" or type(value) == "thread", value, "session.%s cannot be stored: it must be data", key)
  if record.settings.is_login[key] and value ~= nil and rawget(self, key) == nil then methods.regenerate(self) end
  if core.dev then require("luaserve.dev_state").watch_session(self, key, value) end
  rawset(self, key, value)
end

local no_assignment <const> = 'req.session cannot be assigned: for a login write req.session.user = "ada", for a logout '
  .. "req.session:clear()"

-- login_fields(option) -> the list of the fields, the set of them. Raises.
local function login_fields(value)
  local list, set = value, {}
  if value == nil then list = { "user", "user_id", "uid" } elseif type(value) == "string" then list = { value } end
  if type(list) ~= "table" or #list == 0 then list = { false } end
  for _, field in ipairs(list) do
    usage.refuse(type(field) ~= "string" or field == "" or methods[field], value,
      'ls.session: login must be a field, such as "user", or a list of fields')
    set[field] = true
  end
  return list, set
end

-- For `luaserve dev`: two sites of one process, as with `hosts`, whose users are the same by mistake.
local function warn_of_twins(settings)
  settings.where = usage.caller() or "?"
  for _, list in next, of_cookie do
    for _, other in ipairs(list) do
      local twin = settings.store and other.store and tostring(settings.store) == tostring(other.store)
        or settings.keys and other.keys and settings.keys[1] == other.keys[1] and settings.cookie == other.cookie
      if twin then
        core.log("warn", format("%s: ls.session has the %s of that at %s: each accepts the sessions of the other, with their users. For one "
          .. "login use one middleware in both apps; else give each its own %s", settings.where, settings.store and "store"
          or "secret and cookie", other.where, settings.store and "dict" or "secret"))
      end
    end
  end
end

-- ls.session(options: SessionOptions) -> middleware: Middleware
-- Makes middleware that gives each request the session of its visitor, `req.session`. Raises for a short secret.
function session.new(...)
  local settings, given = options.only("ls.session", session.calls["ls.session"],
    '{ secret = os.getenv "SESSION_SECRET" }', ...)
  settings.max_age, settings.lifetime = settings.max_age_ms // 1000, settings.lifetime_ms // 1000
  usage.refuse(not options.is_token(settings.cookie), settings.cookie,
    "ls.session: cookie must be the name of a cookie")
  settings.login, settings.is_login = login_fields(given.login)
  require("luaserve.cookie").line("a", "b", { path = settings.path, domain = settings.domain, same_site = settings.same_site,
    secure = settings.secure ~= false }) -- raises for other values
  settings.context = "session " .. settings.cookie
  settings.attribute_bytes = 100 + #settings.path + #(settings.domain or "")
  if given.store ~= nil then
    if given.secret ~= nil then
      usage.error("ls.session: secret seals a cookie; with store the cookie holds a random id: leave secret out")
    end
    settings.read, settings.write = read_store, write_store
    settings.lost = {}
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
  if core.dev then warn_of_twins(settings) end
  of_cookie[settings.cookie] = of_cookie[settings.cookie] or {}
  table.insert(of_cookie[settings.cookie], settings)
  local maker, warned = maker_of(function(req, res)
    local record = { __index = methods, __newindex = new_index, __assign = no_assignment, settings = settings, req = req,
      res = res } -- entry, due
    local self = setmetatable(read(record, settings), record)
    record.entry = record.entry or no_entry
    if record.due and res and not res.sent then save(self, record) end -- now: a response that is written in parts may begin
    return self
  end, no_assignment), false
  return place(function(req, res, next_fn)
    local before = own(req, "session", maker)
    next_fn()
    local self, record = own(req, "session")
    if before ~= nil then own(req, "session", before) end -- of a middleware outside
    if not record or record.settings ~= settings then return end
    if be_private(res) then
      save(self, record)
    elseif not warned and not same(self, record.entry.data) then
      warned = true
      core.log("warn", format("%s: the session was changed and is not stored, because the response had begun when the "
        .. "handler returned; call req.session:save() before it begins", req.path))
    end
  end, { session = settings })
end

return session
