-- acme.lua - the option acme of tls: certificates of an authority (RFC 8555), got and renewed while the server runs.
--
-- Each table acme is a certificate. A timer of the first state looks at the store: a certificate that is new there, from
-- this server or another one, goes to the listeners. One that is missing, or due, is ordered by a task of its own, which
-- has the lease of the certificate: one server of several orders. What an order needs is in the store before it is used,
-- so that another server, or the next start, continues it.
--
-- An authority asks any server for the proof, by HTTP (RFC 8555 section 8.3) or by TLS (RFC 8737). The listeners without
-- TLS answer in front of the app, in each state, from a dict of the server; a proof that another server has published is
-- in the store.

local core = require "luaserve.core"
local json = require "luaserve.json"
local dicts = require "luaserve.dict"
local options = require "luaserve.options"
local rules = require "luaserve.fetch_rules"
local usage = require "luaserve.usage"
local stores = require "luaserve.acme_store"
local clients = require "luaserve.acme_client"

-- A site may replace the globals.
local byte, concat, find, format, gsub, match, sub = string.byte, table.concat, string.find, string.format, string.gsub, string.match, string.sub
local error, ipairs, max, min, next, pairs, pcall, random = error, ipairs, math.max, math.min, next, pairs, pcall, math.random
local time, tostring, type = os.time, tostring, type -- time: that of test.clock in tests

local acme = {}

local PREFIX <const> = "/.well-known/acme-challenge/"
local BACK_OFF_S <const> = { 60, 300, 900, 3600, 21600 }
local LOOK_S <const>, LOOK_SOON_S <const> = 10, 1 -- how often to look at the store
local SPREAD_S <const> = 3 -- until each server gives a proof by TLS
local PROOF_S <const> = 3600 -- that a proof is kept
local WINDOW_S <const>, WINDOW_AGAIN_S <const> = 6 * 3600, 600 -- how often to ask the authority when to renew
local NAMES_MAX <const> = 100
local CA_BYTES_MAX <const> = 4 << 20

local directories <const> = {
  production = "https://acme-v02.api.letsencrypt.org/directory",
  staging = "https://acme-staging-v02.api.letsencrypt.org/directory",
}

local acme_options = {
  names = true, -- string|string[] - the names of the certificate; required
  store = true, -- string|Redis - a folder, or a Redis or its URL, for the account, the keys and the certificates; required
  email = { "email", "text", "an address of mail" }, -- where the authority writes to
  directory = { "directory", "text", 'a URL, or "staging"' }, -- of the authority; default: that of Let's Encrypt
  profile = { "profile", "text", "the name of a profile of the authority" }, -- such as "shortlived"; default: its own choice
  ca = { "ca", "text", "the file name of trusted certificates (PEM)" }, -- of an authority that the system does not trust
  eab = true, -- table<string, string> - kid and key, of an authority that wants to know the account already
  http_port = { "http_port", "count", 1, 65535, 80 }, -- port of the listener that requests to port 80 reach
}
acme.calls = { ["ls.listen: tls.acme"] = { acme_options, listed = true } } -- AcmeOptions

local sets = {} -- of this site, by the first name
local list = {} -- the same in the order of the file
local shared -- of all states: "token TOKEN", "set NAME"

-- ---- the options -------------------------------------------------------------------------------------------------------

local function check_name(call, name)
  usage.refuse(type(name) ~= "string", name, '%s.names must be a list of names such as { "example.org", "www.example.org" }', call)
  local lower = gsub(name:lower(), "%.$", "")
  if find(lower, "^%*%.") then
    usage.error("%s.names: %s needs a proof in the DNS (dns-01), which luaserve cannot give: list the names themselves, or "
      .. "have a program such as certbot get the certificate, and give its files: cert, key", call, usage.quote(name))
  end
  local wrong = find(lower, "^[%d.]*$") or #lower > 253
  for label in (lower .. "."):gmatch("([^.]*)%.") do wrong = wrong or not find(label, "^[%w_][%w_-]*$") or #label > 63 end
  if wrong then
    usage.error("%s.names: %s is no name%s", call, usage.quote(name), find(lower, "[\x80-\xff]")
      and "; write it in the form that requests have it (xn--...)"
      or ": write names such as example.org, each by itself, without a scheme, a port or a path")
  end
  return lower
end

-- Let's Encrypt gives no certificates for names that only one network knows.
local function check_public(call, url, names)
  for _, name in ipairs(match(url, "^https://[%w-]+%.api%.letsencrypt%.org/") and names or {}) do
    if not find(name, ".", 1, true) or find(name, "%.localhost$") then
      usage.error("%s.names: Let's Encrypt has no certificates for %s, which is no name on the internet: write names such as "
        .. "example.org, or give the directory of another authority", call, usage.quote(name))
    end
  end
end

-- The text of the certificates that the https of the authority is checked with.
local function ca_of(call, name)
  local text, message = core.file_read(name, CA_BYTES_MAX)
  if not text then usage.error("%s.ca: %s", call, message) end
  local _, wrong = core.acme_read(text)
  if wrong == "there is no certificate" then usage.error("%s.ca: %s has no certificate in PEM format", call, usage.quote(name)) end
  return text
end

local function directory_of(call, given)
  local url = directories[given or "production"] or given
  if rules.is_safe(rules.parse(url)) then return url end
  usage.error('%s.directory must be "production" or "staging" of Let\'s Encrypt, or the https:// URL of the directory of another '
    .. "authority; got %s", call, usage.quote(given))
end

local function eab_of(call, given)
  if given == nil then return nil end
  local form = '%s.eab must be { kid = "...", key = "..." } as the authority gives them, the key in base64url'
  usage.check(given, "table", form, call)
  options.check_names(call .. ".eab", given, { kid = true, key = true }, true)
  local kid, key = given.kid, given.key
  usage.refuse(type(kid) ~= "string" or type(key) ~= "string" or not core.crypto_decode(3, (gsub(key, "=*$", ""))), given, form, call)
  return { kid = kid, key = (gsub(key, "=*$", "")) }
end

-- read(call, given, taken) -> the certificate for the core: { supplied = its name }. call: "ls.listen: tls.acme". taken: a
-- table of the names that other certificates of the listener have; those of this one are added. Raises.
function acme.read(call, given, taken)
  local fname = match(call, "^(.-):")
  usage.check(given, "table", '%s must be a table such as { names = { "example.org" }, store = "certs" }', call)
  local out = options.take(fname, given, acme.calls["ls.listen: tls.acme"], {}, "tls.acme.")
  local names, seen = {}, {}
  local given_names = type(given.names) == "string" and { given.names } or given.names
  usage.refuse(type(given_names) ~= "table" or #given_names == 0 or #given_names > NAMES_MAX, given.names,
    '%s.names must be a list of 1 to %d names such as { "example.org", "www.example.org" }', call, NAMES_MAX)
  for _, name in ipairs(usage.check_list(call, "names", given_names)) do
    local one = check_name(call, name)
    if taken[one] and not seen[one] then usage.error("%s.names: another certificate of this listener has %s", call, one) end
    if not seen[one] then names[#names + 1], seen[one], taken[one] = one, true, true end
  end
  usage.refuse(not stores.is(given.store), given.store, '%s.store is missing: where the account, the keys and the certificates are '
    .. 'kept: a folder such as "certs", or for several servers the URL of a Redis, "redis://host:6379/0"', call)
  local url = directory_of(call, out.directory)
  check_public(call, url, names)
  if out.email and not find(out.email, "^[^%s@:]+@[^%s@]+$") then
    usage.error('%s.email must be an address of mail such as "admin@example.org"; got %s', call, usage.quote(out.email))
  end
  local eab, known = eab_of(call, given.eab), sets[names[1]]
  if known and not (concat(known.names, "\n") == concat(names, "\n") and known.given_store == given.store and known.directory == url) then
    usage.error("%s.names begins with %s, as those at %s do, with other names, another store or directory; give the same there, "
      .. "or put another name first", call, names[1], known.where)
  end
  if not known then
    if #list == 0 then core.on_loaded(acme.loaded) end
    shared = shared or dicts.open("luaserve.acme")
    local authority = gsub(gsub(url, "^%a+://", ""), "[^%w.-]", "_")
    known = { id = names[1], names = names, seen = seen, given_store = given.store, directory = url, email = out.email,
      ca = out.ca and core.site_path(out.ca), ca_text = out.ca and ca_of(call, out.ca), profile = out.profile, eab = eab, port = out.http_port,
      where = usage.where(), fname = fname, store = stores.open(given.store, authority), proofs = {}, look_at = 0, state = {} }
    local why = known.store:unusable()
    if why then usage.error("%s.store: %s", call, why) end
    sets[known.id], list[#list + 1] = known, known
  end
  return { supplied = known.id }
end

-- lacking(names) -> those of the lines of `names` that no certificate of this site will have.
function acme.lacking(names)
  return (gsub(names, "[^\n]+\n?", function(line)
    local name = gsub(line, "\n$", "")
    for _, set in ipairs(list) do
      if set.seen[name] then return "" end
    end
  end))
end

-- ---- proofs by HTTP ----------------------------------------------------------------------------------------------------

local function proofs_of(set)
  local text = set.store:read(set.id .. ".proofs")
  local fine, value = pcall(json.decode, text or "[]")
  return fine and type(value) == "table" and value or {}
end

-- The answer for a token, of this server or of another one with the same store | nil
local function find_proof(token)
  if not find(token, "^[%w_-]+$") or #token > 200 then return nil end
  local auth = shared:get("token " .. token)
  for _, set in ipairs(auth and {} or list) do
    local fine, proofs = pcall(proofs_of, set)
    for _, one in ipairs(fine and proofs or {}) do
      if one.token == token then auth = one.auth end
    end
  end
  return auth
end

-- answering(dispatch) -> a function in its place (router.lua) that answers authorities, before all of the app.
local function answering(dispatch)
  local function answer(req, res, method, path, too_big)
    if byte(path, 2) == 46 and sub(path, 1, #PREFIX) == PREFIX then
      local auth = find_proof(sub(path, #PREFIX + 1))
      if auth then
        res:header("Content-Type", "application/octet-stream")
        return auth
      end
    end
    return dispatch(req, res, method, path, too_big)
  end
  local names = require("luaserve.router").names
  names[answer] = names[dispatch]
  return answer
end

-- The site has loaded: the listeners without TLS answer, and there is one that authorities reach.
function acme.loaded()
  local listeners = require("luaserve.records").listeners
  for _, set in ipairs(list) do
    local eab, found = set.eab or {}
    set.options = core.crypto_encode(3, core.crypto_hash(2, json.encode { set.names, set.directory, set.email or "", set.profile or "",
      set.ca_text or "", eab.kid or "", eab.key or "" }))
    for _, one in ipairs(listeners) do
      local at = one.settings
      found = found or not at.tls and at.port == set.port and (set.port ~= 80 or not (at.host == "" or find(at.host, "^127%.") or at.host == "::1"))
    end
    if not found then
      error(format('%s: %s: tls.acme needs a listener without TLS at port %d%s: add ls.listen("*:%d", app)%s', set.where, set.fname,
        set.port, set.port == 80 and " of all interfaces, where the authority asks for the proof of a name" or ", which http_port names",
        set.port, set.port == 80 and ", or http_port = 8080 in acme if requests to port 80 are forwarded to port 8080" or ""), 0)
    end
  end
  for _, one in ipairs(listeners) do
    if not one.settings.tls and one.settings.dispatch then
      core.listen_again(one.index, answering(one.dispatcher.dispatch), one.dispatcher.failed)
    end
  end
  core.init(acme.begin)
  core.every(LOOK_SOON_S, acme.tick)
end

-- Give these proofs, and no others of this certificate.
local function give(set, proofs)
  local before, now = set.proofs, {}
  for _, one in ipairs(proofs) do
    now[one.token] = one
    if not before[one.token] then
      shared:set("token " .. one.token, one.auth, PROOF_S)
      if one.kind == "tls-alpn-01" then core.acme_prove(one.name, core.crypto_hash(2, one.auth)) end
    end
  end
  for token, one in pairs(before) do
    if not now[token] then
      shared:delete("token " .. token)
      if one.kind == "tls-alpn-01" then core.acme_prove(one.name, nil) end
    end
  end
  set.proofs = now
end

-- ---- what is in the store ----------------------------------------------------------------------------------------------

local function log(set, level, text, ...) core.log(level, format("tls.acme: %s: ", set.id) .. format(text, ...)) end
local function day(at) return os.date("!%Y-%m-%d %H:%M UTC", at // 1) end

-- Whether the certificate has all names that the site wants.
local function covers(set, certificate)
  local has = {}
  for name in certificate.names:lower():gmatch("[^\n]+") do has[name] = true end
  for _, name in ipairs(set.names) do
    if not has[name] then return false, name end
  end
  return true
end

-- When to renew: at two thirds of the lifetime, or when the authority wants it, but not at the last moment.
function acme.renews_at(certificate, wanted)
  local life = certificate.not_after - certificate.not_before
  if wanted then return min(wanted, certificate.not_after - life // 10) end
  return certificate.not_before + life * 2 // 3
end

-- failed(state, now, retry_after): an attempt has failed: when the next one may begin.
function acme.failed(state, now, retry_after)
  state.failures = (state.failures or 0) + 1
  state.next = now + max(BACK_OFF_S[min(state.failures, #BACK_OFF_S)], min(retry_after or 0, 7 * 86400))
end

local function due(set, now)
  if now < (set.state.next or 0) then return false end
  return not set.certificate or not covers(set, set.certificate) or now >= acme.renews_at(set.certificate, set.renew_at)
end

-- What ls.stats and the metrics show of it, in all states.
local function show(set)
  local certificate, state = set.certificate, set.state
  shared:set("set " .. set.id, { expires = certificate and certificate.not_after, failures = state.failures or set.fault and 1 or 0,
    error = set.fault or state.error, renews = certificate and acme.renews_at(certificate, set.renew_at),
    next = state.failures and state.next or nil })
end

-- Read the certificate and the state of a set, and use what is new.
local function look(set)
  local text = set.store:read(set.id .. ".pem")
  if text and text ~= set.text then
    local certificate, wrong = core.acme_read(text)
    local used = certificate and core.acme_use(set.id, text)
    if used then
      set.certificate, set.renew_at, set.window_at, set.window = certificate, nil, 0, nil
      set.state, set.unsaved = {}, nil
    else
      log(set, "error", "the certificate in the store cannot be used: %s", wrong or "it is damaged")
    end
    set.text = text
  end
  local fine, state = pcall(json.decode, set.store:read(set.id .. ".json") or "{}")
  state = fine and type(state) == "table" and state or {}
  if not set.unsaved and (next(state) == nil or state.options == set.options) then set.state = state end -- with others it may succeed
  if not set.busy then give(set, proofs_of(set)) end
  show(set)
end

local function save(set)
  set.state.options = set.options
  set.store:write(set.id .. ".json", json.encode(set.state))
  show(set)
end

-- ---- attempts ----------------------------------------------------------------------------------------------------------

local stopped <const> = {} -- raised when the site is replaced or the server stops

-- Wait, as the holder of the lease.
local function pause(set, seconds)
  local stop = core.now() + seconds
  repeat
    if core.retired() then error(stopped, 0) end
    if core.now() >= (set.extend_at or 0) then
      set.store:extend(set.id)
      set.extend_at = core.now() + 15
    end
    core.sleep(max(min(stop - core.now(), 0.5), 0))
  until core.now() >= stop
end

local function publish(set, proofs)
  local by_tls = false
  for _, one in ipairs(proofs) do by_tls = by_tls or one.kind == "tls-alpn-01" end
  if proofs[1] then set.store:write(set.id .. ".proofs", json.encode(proofs)) else set.store:remove(set.id .. ".proofs") end
  give(set, proofs)
  if by_tls then pause(set, SPREAD_S) end
end

local function renew(set)
  look(set) -- another server may have done it
  if not due(set, time()) then return end
  local client = clients.new(set, set.store, function(seconds) pause(set, seconds) end)
  local replaces = set.certificate and covers(set, set.certificate) and clients.id(set.certificate) or nil
  local text = client:obtain(set.names, set.state, function() save(set) end, function(proofs) publish(set, proofs) end, replaces)
  local certificate, wrong = core.acme_read(text)
  if not certificate then error({ text = "the authority has sent a certificate that cannot be used: " .. wrong }, 0) end
  local all, missing = covers(set, certificate)
  if not all then error({ text = "the authority has sent a certificate without the name " .. missing }, 0) end
  if certificate.not_after <= time() then error({ text = "the authority has sent a certificate that has expired" }, 0) end
  set.store:write(set.id .. ".pem", text)
  set.state = { kind = set.state.kind }
  save(set)
  look(set)
  log(set, "info", "the certificate for %s is valid until %s; its renewal is due at %s", concat(set.names, ", "),
    day(certificate.not_after), day(acme.renews_at(certificate)))
end

local function log_failure(set, level, more)
  local at = set.certificate and set.certificate.not_after
  local use = at and (at > time() and "the certificate in use is valid until " or "the certificate in use has expired on ") .. day(at)
    or "there is no certificate yet"
  log(set, level, "%s; %s; attempt %d has failed, the next one is at %s%s", set.state.error or "the reason is not known", use,
    set.state.failures, day(set.state.next), more)
end

local function count_failure(set, failure)
  local state, now = set.state, time()
  state.error = type(failure) == "table" and failure.text or tostring(failure)
  acme.failed(state, now, type(failure) == "table" and failure.retry_after)
  shared:incr("failed")
  local stored, message = pcall(save, set)
  local why = "the store fails: " .. tostring(message)
  if not stored and why ~= state.error then state.error = state.error .. "; " .. why end
  set.unsaved = not stored -- then what is known here is newer than the store
  show(set)
  log_failure(set, "error", "")
end

local function attempt(set)
  if set.busy then return end
  set.busy, set.extend_at = true, 0
  core.detach() -- a reload does not end it in a request; it ends where it pauses, and the next site continues
  local held, failure = pcall(set.store.take, set.store, set.id)
  if held and failure then
    local ok
    ok, failure = pcall(renew, set)
    if not ok and failure ~= stopped then count_failure(set, failure) end
    pcall(publish, set, {})
    pcall(set.store.give, set.store, set.id)
  elseif not held then
    count_failure(set, "the store fails: " .. tostring(failure))
  end
  set.busy = false
end

-- Ask the authority when it wants the certificate to be renewed; it may revoke it before its time.
local function ask_window(set)
  local client = clients.new(set, set.store)
  local ok, window, again = pcall(client.window, client, set.certificate)
  set.window_at = time() + (not ok and WINDOW_AGAIN_S or max(60, min(again or WINDOW_S, 86400)))
  local message = not ok and (type(window) == "table" and window.text or tostring(window)) or nil
  if message and message ~= set.window_said then log(set, "warn", "%s", message) end
  set.window_said = message
  if message then return end
  local key = window and window.start .. " " .. window.stop
  if key and key ~= set.window then
    set.renew_at, set.window = window.start + random() * (window.stop - window.start) // 1, key
    log(set, "info", "the authority wants a renewal at %s%s", day(set.renew_at), window.url and "; see " .. tostring(window.url) or "")
  end
  show(set)
end

-- ---- the timer ---------------------------------------------------------------------------------------------------------

local orders -- whether this server orders certificates

local function step(set, looks)
  local now = time()
  if not set.busy and (looks or core.now() >= set.look_at) then -- an attempt changes the state, and looks itself
    local before = set.fault
    set.fault = nil
    local ok, message = pcall(look, set)
    local fault = not ok and "the store fails: " .. tostring(message)
    if fault then
      if fault ~= before then log(set, "error", "%s", fault) end
      set.fault = fault
      show(set)
    end
    set.look_at = core.now() + (set.certificate and not set.state.failures and not set.fault and LOOK_S or LOOK_SOON_S)
  end
  if not orders or set.busy or core.retired() then return end
  if due(set, now) then
    core.spawn(attempt, set)
  elseif set.certificate and now >= (set.window_at or 0) then
    set.window_at = now + WINDOW_AGAIN_S
    core.spawn(ask_window, set)
  end
end

local ticking = false
function acme.tick(looks)
  if ticking then return end
  ticking = true
  for _, set in ipairs(list) do
    local ok, message = pcall(step, set, looks == true)
    if not ok then log(set, "error", "%s", tostring(message)) end
  end
  ticking = false
end

-- Before the server serves: use the certificates of the store, and begin to order those that are due.
function acme.begin()
  local why = core.dev and "luaserve dev" or os.getenv "LUASERVE_ENV" == "test" and "luaserve test"
  orders = not why
  if why then core.log("info", "tls.acme: " .. why .. " orders no certificates, and uses those of the store") end
  for _, set in ipairs(orders and list or {}) do
    local ok, message = pcall(set.store.prepare, set.store)
    if not ok then error(format("%s: %s: tls.acme.store: %s", set.where, set.fname, tostring(message)), 0) end
  end
  acme.tick(true)
  for _, set in ipairs(orders and list or {}) do
    if set.state.failures and time() < (set.state.next or 0) then
      log_failure(set, "warn", "; to try at once, remove " .. set.store:place(set.id .. ".json"))
    end
  end
end

-- ---- what is shown -----------------------------------------------------------------------------------------------------

-- certificates() -> { [name] = { expires =, renews =, failures =, next =, error = } }, failed attempts since the start
function acme.certificates()
  local found = {}
  for _, set in ipairs(list) do found[set.id] = shared:get("set " .. set.id) or { failures = 0 } end
  return found, shared:get("failed") or 0
end

return acme
