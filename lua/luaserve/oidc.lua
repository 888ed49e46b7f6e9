-- oidc.lua - a login with an OpenID provider (OpenID Connect Core 1.0): the authorization code flow with PKCE (RFC 7636),
-- state, nonce and the parameter iss (RFC 9207), with the advice of RFC 9700. oidc_provider.lua has what is known of the
-- provider.
--
--     GET  /login      to the provider, with a cookie of this attempt
--     GET  /callback   from the provider: the code becomes tokens, the claims of the ID token become session.user
--     POST /logout     ends the session, and that of the provider (OpenID Connect RP-Initiated Logout 1.0)
--
-- The server keeps nothing of an attempt: its cookie is random bytes, the time, and the page to return to. State, nonce and
-- code verifier are codes of that (HMAC) with a key that is made from the client secret, so they bind the attempt to this
-- browser, this provider and this time, and a tab does not end the attempt of another one.
--
-- With the option `tokens`, a dict has { access_token =, expires =, refresh_token =, id_token =, sub =, client = } by a
-- random id; in the session is session._oidc = { client =, id = }. They are not in the session itself: two requests that
-- change it at a time would store an older refresh token again, which the provider takes for a stolen one.

local core = require "luaserve.core"
local dicts = require "luaserve.dict"
local options = require "luaserve.options"
local rules = require "luaserve.fetch_rules"
local providers = require "luaserve.oidc_provider"
local usage = require "luaserve.usage"
local router = require "luaserve.router"
local guard, try = router.guard, require("luaserve.failure").try
local query_of = require("luaserve.url").query

local concat, find, format, match, sub = table.concat, string.find, string.format, string.match, string.sub
local error, getmetatable, ipairs, math_min, next, pairs, pcall = error, getmetatable, ipairs, math.min, next, pairs, pcall
local rawget, sort, time, tonumber, tostring, type = rawget, table.sort, os.time, tonumber, tostring, type

-- oidc is an Oidc: a login with an OpenID provider, `require "luaserve.oidc"`.
local oidc = {}

local PATH_BYTES_MAX <const> = 1024

-- is_page(path) -> whether it is a path of this site, which no browser reads as another site.
local function is_page(path)
  return type(path) == "string" and #path <= PATH_BYTES_MAX and find(path, "^/") ~= nil and not find(path, "^//")
    and not find(path, "[^!-~]") and not find(path, "\\", 1, true)
end

local function is_text(value) return type(value) == "string" and find(value, "^[ -~]+$") ~= nil end

local function is_prefix(value)
  return value == "" or is_page(value) and not find(value, "/$") and not find(value, "[?#%%]")
end

local function is_page_or_false(value) return value == false or is_page(value) end

local function is_dict(value)
  return dicts.in_redis(value) or type(value) ~= "function" and pcall(core.dict_read, value, "")
end

local oidc_options = {
  issuer = true, -- string - URL of the provider, as its discovery document names it; required
  -- string - the name of the site at the provider; required
  client_id = { "client_id", "is", is_text, "the name of the site at the provider", required = true },
  -- string - its secret; without one it is a public client
  client_secret = { "client_secret", "is", is_text, "its secret at the provider" },
  scopes = true, -- string[] - what the site asks for besides "openid", such as "email" and "profile"
  -- string - before /login, /callback and /logout, such as "/staff"; default ""
  path = { "path", "is", is_prefix, 'a path such as "/staff"', "" },
  url = true, -- string - the site as browsers see it, "https://app.example"; default: as the request names it
  -- fun(claims: Claims, req: Request): any, string? - what becomes session.user; nil, message refuse it
  check = { "check", "is", "function", "a function" },
  -- fun(req: Request, res: Response, problem: OidcProblem): ... - answers a login that has failed
  error = { "error", "is", "function", "a function" },
  -- Dict - keeps the tokens of a login, for oidc.token and the logout
  tokens = { "tokens", "is", is_dict, 'a dict: ls.dict("tokens")' },
  params = true, -- table<string, string|number> - more parameters for the provider, such as { prompt = "login" }
  userinfo = { "userinfo", "flag", nil, nil, true }, -- the claims of the userinfo endpoint as well, where there is one
  -- string - the page after a login that names none; default "/"
  after_login = { "after_login", "is", is_page, 'a path such as "/account"', "/" },
  -- string|false - the page after the logout; default "/", false: a page of the provider
  after_logout = { "after_logout", "is", is_page_or_false, 'a path such as "/bye", or false', "/" },
  leeway = { "leeway_ms", "seconds", 0, 600000, 60 }, -- seconds by which the clocks may differ
  timeout = { "timeout_ms", "seconds", 100, 60000, 10 }, -- seconds for each answer of the provider
  tls = true, -- TlsClientOptions - of the connections to the provider
}
local required_options = {
  login = true, -- string - the path that visitors are sent to; default: a route /login, or that of the one oidc of the app
}
oidc.calls = {
  ["oidc"] = { oidc_options, listed = true }, -- OidcOptions
  ["oidc.required"] = { required_options, listed = true, optional = true }, -- OidcRequiredOptions
}

local ATTEMPT_S <const>, ATTEMPTS_MAX <const>, EARLY_S <const> = 600, 8, 30
local STRICT <const> = 'oidc: leave out same_site = "strict" of ls.session: browsers would not send its cookie after the login'
local sha256, sha512, base64, base64url = 2, 4, 2, 3
local clients = {} -- of this state, by name; of two apps with the same one, a request has its own in `field`

-- client_of(req, name) -> the client of a login | nil
local function client_of(req, name)
  return name and (core.own(req, "oidc " .. name) or clients[name])
end

local function random() return core.crypto_encode(base64url, core.crypto_random(32)) end

local function origin_of(self, req)
  return self.url or req.scheme .. "://" .. (req.authority or error("oidc: the request has no Host; set the option url", 0))
end

local function session_of(req)
  local session = req.session
  local record = type(session) == "table" and getmetatable(session)
  local settings = type(record) == "table" and record.settings
  if not settings then usage.error("oidc: the request has no session: put app:use(ls.session{ ... }) before") end
  if settings.same_site:lower() == "strict" then usage.error("%s", STRICT) end
  return session, settings
end

local function with_query(url, params) return url .. (find(url, "?", 1, true) and "&" or "?") .. query_of(params) end

-- ---- failures ----------------------------------------------------------------------------------------------------------

local statuses = { attempt = 400, refused = 403, unreachable = 503, provider = 502, tokens = 503 }
local texts = {
  attempt = "this login has ended, or was begun in another browser: begin again at ",
  refused = "the login was refused",
  unreachable = "the login is not possible now, because its provider cannot be reached: try again later at ",
  provider = "the login has failed, because of an answer of its provider: try again at ",
  tokens = "the login is not possible now: try again later at ",
}

-- kind_of(code) -> the code of a problem, for one of oidc_provider.
local function kind_of(code) return code == "EPROTO" and "provider" or "unreachable" end

-- said(code, description) -> what a provider says of a failure, for messages.
local function said(code, description)
  if code == nil then return "without a code of the failure" end
  return usage.quote(code) .. (description and ": " .. usage.quote(description) or "")
end

-- fail(self, req, res, code, reason [, more]) -> the response. `reason` is for the log; `more`: fields of the problem.
-- problem is an OidcProblem: why a login has failed.
-- problem.code: string - "attempt": unknown or too old; "refused"; "unreachable" or a wrong answer: "provider"; "tokens": not kept
-- problem.status: integer - the status of the response
-- problem.message: string - for the visitor, in English
-- problem.login: string - the path at which the login begins
-- problem.error: string? - the code of the provider, such as "access_denied"
-- problem.description: string? - a text of the provider, not escaped
local function fail(self, req, res, code, reason, more)
  local problem = { code = code, status = statuses[code], login = self.login,
    message = texts[code] .. (code == "refused" and "" or self.login) }
  for name, value in next, more or {} do problem[name] = value end
  core.log((code == "attempt" or code == "refused") and "debug" or "warn",
    format("oidc: a login of %s with %s has failed: %s", req.ip, self.provider.issuer, reason))
  if not self.error then return problem.status, problem.message .. "\n" end
  res:status(problem.status)
  return self.error(req, res, problem)
end

-- ---- attempts ----------------------------------------------------------------------------------------------------------

local function secret_of(self, kind, attempt)
  return core.crypto_encode(base64url, core.crypto_hash(sha256, kind .. attempt, self.key))
end

-- cookie_at(self, req) -> the beginning of the names of its cookies, their options
local function cookie_at(self, req)
  local secure = req.secure or find(origin_of(self, req), "^https:") ~= nil
  return secure and "__Host-oidc-" or "oidc-", { secure = secure, max_age = ATTEMPT_S }
end

-- The attempts of a browser that leaves many of them are removed, the oldest first.
local function remove_attempts(req, res, prefix, given)
  local list = {}
  for name, value in pairs(req.cookies) do
    local at = sub(name, 1, #prefix) == prefix and (tonumber(match(value, "^[^.]*%.(%d+)")) or 0)
    if at then list[#list + 1] = { name = name, at = at } end
  end
  sort(list, function(a, b) return a.at < b.at end)
  for i = 1, #list - ATTEMPTS_MAX + 1 do res:cookie(list[i].name, nil, { secure = given.secure }) end
end

local function login(self, req, res)
  local back = req.query.return_to or self.after_login
  if not is_page(back) then return 400, "return_to must be a path of this site, such as /account\n" end
  session_of(req)
  local metadata, message, code = self.provider:metadata()
  if not metadata then return fail(self, req, res, kind_of(code), message) end
  local attempt = concat({ random(), format("%.0f", 1000 * core.wall_time()), core.crypto_encode(base64url, back) }, ".")
  local state = secret_of(self, "state", attempt)
  local prefix, given = cookie_at(self, req)
  remove_attempts(req, res, prefix, given)
  res:cookie(prefix .. sub(state, 1, 16), attempt, given)
  local params = { response_type = "code", client_id = self.client_id, redirect_uri = origin_of(self, req) .. self.callback,
    scope = self.scope, state = state, nonce = secret_of(self, "nonce", attempt), code_challenge_method = "S256",
    code_challenge = core.crypto_encode(base64url, core.crypto_hash(sha256, secret_of(self, "verifier", attempt))) }
  for name, value in next, self.params do params[name] = value end
  return res:redirect(with_query(metadata.authorization_endpoint, params), 303)
end

-- take_attempt(self, req, res) -> attempt, path | nil: none of this browser. Its cookie ends.
local function take_attempt(self, req, res)
  local state = req.query.state or ""
  for _, name in ipairs { "state", "code", "iss", "error" } do
    if #req.query_all[name] > 1 then return nil end -- RFC 6749 section 3.1
  end
  local prefix, given = cookie_at(self, req)
  local name = prefix .. sub(state, 1, 16)
  local attempt = req.cookies[name]
  if not attempt or not core.crypto_equal(secret_of(self, "state", attempt), state) then return nil end
  res:cookie(name, nil, { secure = given.secure })
  local at, back = match(attempt, "^[^.]+%.(%d+)%.([%w_-]+)$")
  back = back and core.crypto_decode(base64url, back)
  local age = at and core.wall_time() - tonumber(at) / 1000
  if not age or age > ATTEMPT_S or age < -self.leeway or not is_page(back) then return nil end
  return attempt, back
end

-- ---- tokens ------------------------------------------------------------------------------------------------------------

-- post(self, metadata, url, params) -> answer | nil, message. A request in the name of the client (RFC 6749 section 2.3.1).
local function post(self, metadata, url, params)
  local headers, ways = { Accept = "application/json" }, metadata.token_endpoint_auth_methods_supported
  local basic = type(ways) ~= "table"
  for _, way in ipairs(basic and {} or ways) do basic = basic or way == "client_secret_basic" end
  if self.client_secret and basic then
    local pair = core.url_encode(self.client_id) .. ":" .. core.url_encode(self.client_secret)
    headers.Authorization = "Basic " .. core.crypto_encode(base64, pair)
  else
    params.client_id, params.client_secret = self.client_id, self.client_secret
  end
  return self.provider:ask(url, { form = params, headers = headers })
end

-- ask_tokens(self, params) -> tokens | nil, message, code, more: as of fail
local function ask_tokens(self, params)
  local metadata, message, code = self.provider:metadata()
  if not metadata then return nil, message, kind_of(code) end
  local answer
  answer, message = post(self, metadata, metadata.token_endpoint, params)
  if not answer then return nil, message, "unreachable" end
  local tokens = answer:json()
  local is_json = type(tokens) == "table"
  tokens = is_json and tokens or {}
  if not answer.ok or tokens.error ~= nil then
    code = type(tokens.error) == "string" and tokens.error or nil
    return nil, format("%s: status %d, %s%s", metadata.token_endpoint, answer.status, said(code, tokens.error_description),
      code == "invalid_client" and "; client_id or client_secret is another one at the provider" or ""),
      answer.status >= 500 and "unreachable" or "provider", { error = code }
  elseif not is_json then
    return nil, metadata.token_endpoint .. ": its answer is not a JSON object", "provider"
  elseif type(tokens.access_token) ~= "string" or not find(tostring(tokens.token_type), "^[Bb][Ee][Aa][Rr][Ee][Rr]$") then
    return nil, metadata.token_endpoint .. ": its answer has no access token of the type Bearer", "provider"
  end
  return tokens
end

-- The claims of an ID token that are missing or wrong, or nil (OpenID Connect Core sections 3.1.3.7 and 3.1.3.8).
local function fault_of(self, claims, nonce, tokens)
  if type(claims.sub) ~= "string" or claims.sub == "" or #claims.sub > 255 then return "sub is not a name" end
  if not claims.iat then return "iat is missing" end
  if nonce and claims.nonce ~= nonce then return "the nonce is another one" end
  local several = type(claims.aud) == "table" and #claims.aud > 1
  if (claims.azp ~= nil or several) and claims.azp ~= self.client_id then return "it is for another client (azp)" end
  if claims.at_hash ~= nil then -- base64url of half a digest, whose length says which one
    local digest = core.crypto_hash(#tostring(claims.at_hash) > 22 and sha512 or sha256, tokens.access_token)
    if claims.at_hash ~= core.crypto_encode(base64url, sub(digest, 1, #digest // 2)) then
      return "at_hash is of another access token"
    end
  end
  local age = self.params.max_age
  if age and (type(claims.auth_time) ~= "number" or claims.auth_time + tonumber(age) + self.leeway < time()) then
    return "auth_time is missing or older than max_age"
  end
end

-- read_id_token(self, tokens, nonce) -> claims | nil, message, code
local function read_id_token(self, tokens, nonce)
  if type(tokens.id_token) ~= "string" then return nil, "there is no ID token in the answer", "provider" end
  local claims, message, code = self.verify(tokens.id_token)
  local fault = claims and fault_of(self, claims, nonce, tokens)
  if claims and not fault then return claims end
  local is_fault = fault or code == "EINVAL" or code == "ELIMIT" or code == "EPROTO"
  return nil, "the ID token is refused: " .. (fault or message), is_fault and "provider" or "unreachable"
end

-- add_userinfo(self, claims, tokens) -> claims with those of the userinfo endpoint | nil, message, code
local function add_userinfo(self, claims, tokens)
  local url = self.userinfo and self.provider:metadata().userinfo_endpoint
  if not url then return claims end
  local answer, message = self.provider:ask(url, { headers = { Authorization = "Bearer " .. tokens.access_token } })
  if not answer then return nil, message, "unreachable" end
  local all = answer.ok and answer:json()
  if type(all) ~= "table" or all.sub ~= claims.sub then
    local why = all and (type(all) ~= "table" and "its answer is not a JSON object" or "its sub is of another user")
    return nil, format("%s: %s; without it: oidc{ userinfo = false }", url, why or "its status is " .. answer.status), "provider"
  end
  for name, value in next, claims do all[name] = value end -- what is signed counts
  return all
end

-- The tokens as the dict has them; `before`: those that they replace.
local function entry_of(self, tokens, sub_claim, before)
  local seconds = tonumber(tokens.expires_in)
  return { client = self.name, sub = sub_claim, access_token = tokens.access_token,
    expires = seconds and time() + seconds - math_min(EARLY_S, seconds // 10),
    refresh_token = type(tokens.refresh_token) == "string" and tokens.refresh_token or before and before.refresh_token,
    id_token = tokens.id_token or before and before.id_token }
end

-- ---- the callback ------------------------------------------------------------------------------------------------------

local codes_of_errors = { access_denied = "refused", temporarily_unavailable = "unreachable" }
local user_claims = { "iss", "sub", "name", "preferred_username", "email", "email_verified" }

-- What becomes session.user without a function: short claims, for a session in a cookie.
local function usual_user(claims)
  local user = {}
  for _, name in ipairs(user_claims) do
    local value = claims[name]
    if type(value) == "boolean" or type(value) == "string" and #value <= 255 then user[name] = value end
  end
  return user
end

-- store(self, req, user, entry) -> true | nil, message: the tokens cannot be kept
-- Stores the login in the session, which gets a new id; another user's data are removed.
local function store(self, req, user, entry)
  local session, settings = session_of(req)
  local id = self.tokens and random() or nil
  if id then
    local ok, e = try(self.tokens.set, self.tokens, id, entry, settings.lifetime)
    if not ok then return nil, "the dict of the option tokens: " .. e.message end
  end
  local before = rawget(session, "_oidc")
  local client = before and before.id and client_of(req, before.client)
  if client and client.tokens then client.tokens:delete(before.id) end
  if rawget(session, "user") ~= nil and not core.same(rawget(session, "user"), user) then session:clear() end
  session:regenerate()
  session.user = user
  session._oidc = { client = self.name, id = id }
  return true
end

local function callback(self, req, res)
  local attempt, back = take_attempt(self, req, res)
  if not attempt then return fail(self, req, res, "attempt", "the state is not one of this browser, or too old") end
  local metadata, message, failure = self.provider:metadata()
  if not metadata then return fail(self, req, res, kind_of(failure), message) end
  local iss, code, err = req.query.iss, req.query.code, req.query.error
  if iss ~= self.provider.issuer and (iss or metadata.authorization_response_iss_parameter_supported == true) then
    return fail(self, req, res, "provider", iss and "the parameter iss is " .. usage.quote(iss) or "the parameter iss is missing")
  elseif err or not code or code == "" then
    local text = req.query.error_description
    return fail(self, req, res, codes_of_errors[err] or "provider", err and said(err, text) or "its callback has no code", {
      error = err, description = text })
  end
  local tokens, why, more
  tokens, message, why, more = ask_tokens(self, { grant_type = "authorization_code", code = code,
    redirect_uri = origin_of(self, req) .. self.callback, code_verifier = secret_of(self, "verifier", attempt) })
  local claims
  if tokens then claims, message, why = read_id_token(self, tokens, secret_of(self, "nonce", attempt)) end
  if claims then claims, message, why = add_userinfo(self, claims, tokens) end
  if not claims then return fail(self, req, res, why, message, more) end
  local user, reason = self.check(claims, req)
  if not user then
    reason = type(reason) == "string" and reason or nil
    return fail(self, req, res, "refused", reason or "by the function check", { message = reason })
  end
  local stored
  stored, message = store(self, req, user, entry_of(self, tokens, claims.sub))
  if not stored then return fail(self, req, res, "tokens", message) end
  return res:redirect(back, 303)
end

-- ---- the logout --------------------------------------------------------------------------------------------------------

local function logout(self, req, res)
  local session = session_of(req)
  local kept = rawget(session, "_oidc")
  self = kept and client_of(req, kept.client) or self
  local entry = kept and kept.id and self.tokens and self.tokens:get(kept.id)
  if entry then self.tokens:delete(kept.id) end
  session:clear()
  local metadata = kept and self.provider:metadata()
  if entry and entry.refresh_token and metadata and metadata.revocation_endpoint then -- RFC 7009; nothing waits for it
    core.spawn(post, self, metadata, metadata.revocation_endpoint, { token = entry.refresh_token })
  end
  local back = self.after_logout or nil
  if not metadata or not metadata.end_session_endpoint then return res:redirect(back or "/", 303) end
  return res:redirect(with_query(metadata.end_session_endpoint, { client_id = self.client_id,
    id_token_hint = entry and entry.id_token, post_logout_redirect_uri = back and origin_of(self, req) .. back }), 303)
end

-- ---- oidc.token --------------------------------------------------------------------------------------------------------

local function is_valid(entry) return not entry.expires or time() < entry.expires end

-- Codes of the provider after which only a new login gives tokens.
local ends = { invalid_grant = true, access_denied = true, login_required = true, interaction_required = true,
  consent_required = true }

-- refresh(self, id, entry) -> entry | nil, message, code. Stores the new tokens.
local function refresh(self, id, entry)
  local tokens, message, why, more = ask_tokens(self, { grant_type = "refresh_token", refresh_token = entry.refresh_token })
  if tokens and tokens.id_token ~= nil then -- OpenID Connect Core section 12.2
    local claims
    claims, message, why = read_id_token(self, tokens)
    if claims and claims.sub ~= entry.sub then message = "the new ID token is of another user" end
    tokens = claims and claims.sub == entry.sub and tokens
  end
  if not tokens then
    local code = more and ends[more.error] and "EACCES" or why == "unreachable" and "EAGAIN" or "EPROTO"
    if code == "EPROTO" then core.log("warn", "oidc: the tokens of a login are not refreshed: " .. message) end
    return nil, message, code
  end
  local fresh = entry_of(self, tokens, entry.sub, entry)
  local _, e = try(self.tokens.update, self.tokens, id, function(old) return old and fresh end) -- not after a logout
  if e then core.log("warn", "oidc: new tokens are not kept: the dict of the option tokens: " .. e.message) end
  return fresh
end

-- claim(self, id) -> entry, whether this task refreshes it; by a lease in the entry, which other servers see in Redis.
local function claim(self, id)
  return self.tokens:update(id, function(entry)
    local is_own = entry and entry.refresh_token and not is_valid(entry) and (entry.lease or 0) <= core.wall_time()
    if is_own then entry.lease = core.wall_time() + 2 * self.provider.timeout end
    return entry, is_own or false
  end)
end

-- oidc.token(req: Request) -> token: string | nil, message, code
-- The access token of the visitor, for requests to other servers; refreshed when it is about to expire. Needs the option
-- tokens. ENOENT: no login has one; EACCES: it has expired and the provider gives no other one: the visitor must log in
-- again; EAGAIN: the provider cannot be reached; EPROTO: the provider refuses the client, or its answer is
-- wrong. Waits.
function oidc.token(req, ...)
  usage.no_more("oidc.token(req)", req, ...)
  if type(req) ~= "userdata" then usage.error("oidc.token takes the request; got %s", usage.quote(req)) end
  local session = session_of(req)
  local kept = session.user ~= nil and rawget(session, "_oidc")
  local self = kept and client_of(req, kept.client)
  if not self then return nil, "the visitor has not logged in with a provider", "ENOENT" end
  if not self.tokens then usage.error('oidc.token: the login keeps no tokens: oidc{ tokens = ls.dict("tokens") }') end
  local begun = core.wall_time()
  while true do
    local entry = self.tokens:get(kept.id)
    if not entry then return nil, "the tokens of this login are not there any more", "ENOENT" end
    if is_valid(entry) then return entry.access_token end
    local failed = entry.failed -- of another request, for which this one has waited, or for ever
    if failed and (failed.code == "EACCES" or failed.at >= begun) then return nil, failed.message, failed.code end
    if not entry.refresh_token then return nil, "the access token has expired, and there is no refresh token", "EACCES" end
    local claimed, is_own = claim(self, kept.id)
    if claimed and is_own then
      local message, code
      entry = nil
      core.spawn(function() entry, message, code = refresh(self, kept.id, claimed) end):wait() -- the request may end before
      if entry then return entry.access_token end
      try(self.tokens.update, self.tokens, kept.id, function(old)
        if old then old.lease, old.failed = nil, { at = core.wall_time(), message = message, code = code } end
        return old
      end)
      return nil, message, code
    end
    core.sleep(0.05)
  end
end

-- ---- oidc --------------------------------------------------------------------------------------------------------------

local own_params = { response_type = true, client_id = true, redirect_uri = true, scope = true, state = true, nonce = true,
  code_challenge = true, code_challenge_method = true, response_mode = true, request = true, request_uri = true }

local function read_params(params)
  usage.check(params, "table", 'oidc: params must be a table such as { prompt = "login" }')
  for name, value in pairs(params) do
    if own_params[name] then usage.error("oidc: params: %s is set by luaserve", usage.quote(name)) end
    usage.refuse(type(name) ~= "string" or not tonumber(value) and (type(value) ~= "string" or name == "max_age"), value,
      "oidc: params: %s must be %s", usage.quote(name), name == "max_age" and "a number" or "a string or a number")
  end
  return params
end

local function read_scopes(scopes)
  local list = { "openid" }
  usage.check(scopes, "table", 'oidc: scopes must be a list such as { "email", "profile" }')
  for _, scope in ipairs(scopes) do
    usage.refuse(not is_text(scope) or find(scope, '[ "\\]'), scope, "oidc: scopes must be names without spaces")
    if scope ~= "openid" then list[#list + 1] = scope end
  end
  return concat(list, " ")
end

local function refuse_place(place, ...) error(place.where .. ": " .. format(...), 0) end

-- What is wrong with the place of a login raises when the app is compiled: it would answer nothing, or never end.
local function check_login_place(self, place, paths)
  local prefix = place.prefix
  if prefix ~= "" and (find(prefix, "[:*]") or sub(self.login, 1, #prefix + 1) ~= prefix .. "/") then
    refuse_place(place, "oidc: its app is mounted at %s, so it never sees %s: %s", prefix, self.login, find(prefix, "[:*]")
      and "put it into the app of ls.listen" or format("write oidc{ path = %q }, the whole path", prefix .. self.path))
  end
  local session
  for i, use in ipairs(place.uses) do
    local of = router.rules(use) or {}
    local runs = router.covers(use, self.login) ~= false
    if i > place.n then
      if of.session and runs and not session then
        refuse_place(place, "oidc: it needs the session: put app:use(ls.session{ ... }) of %s before it", use.where)
      end
    elseif i < place.n and of.login == self.login then
      refuse_place(place, "oidc: that of %s has the same paths: give one of them another, such as path = \"/staff\"", use.where)
    elseif of.required and (runs or router.covers(use, self.callback) ~= false) then
      refuse_place(place, "oidc: oidc.required() of %s comes before it, so a login could not begin: put app:use(oidc{ ... }) before",
        use.where)
    elseif of.session and runs then
      session = of.session
    end
  end
  if session and session.same_site:lower() == "strict" then refuse_place(place, "%s", STRICT) end
  for path in pairs(paths) do
    local route = place.named(path)
    if route then
      refuse_place(place, "oidc: it answers %s, so the route %s of %s never runs: give it another path, or oidc one: oidc{ path = "
        .. "\"/staff\" }", path, path, route.where)
    end
  end
end

-- oidc(options: OidcOptions) -> middleware: Middleware
-- Makes middleware that answers /login, /callback and /logout. A visitor who has logged in has `req.session.user`. For each
-- provider one, with a path of its own; around it, ls.session.
local function new(...)
  local self, given = options.only("oidc", oidc.calls.oidc,
    '{ issuer = "https://id.example", client_id = "site", client_secret = ls.env "SECRET" }', ...)
  if not core.crypto_built() then usage.error("oidc: it needs OpenSSL, without which this luaserve was built") end
  local at = given.url and type(given.url) == "string" and rules.parse(given.url)
  usage.refuse(given.url ~= nil and not (at and at.target == "/"), given.url,
    'oidc: url must be the site as browsers see it, such as "https://app.example", without a path')
  self.url, self.leeway = at and at.origin, self.leeway_ms // 1000
  self.login, self.callback = self.path .. "/login", self.path .. "/callback"
  self.scope, self.params = read_scopes(given.scopes or {}), read_params(given.params or {})
  self.provider = providers.new("oidc: issuer", given.issuer, self.timeout_ms / 1000, given.tls)
  self.verify = self.provider:verifier("oidc", self.client_id, self.leeway)
  self.check = usage.decider("oidc: check", self.check) or usual_user
  local text = concat({ "luaserve oidc 1", self.provider.issuer, self.client_id, self.path }, "\0")
  self.key = core.crypto_hash(sha256, text, self.client_secret or self.client_id)
  self.name = sub(core.crypto_encode(base64url, core.crypto_hash(sha256, text)), 1, 16)
  self.field, self.twin = "oidc " .. self.name, clients[self.name] ~= nil
  if self.twin then clients[self.name].twin = true end
  clients[self.name] = self
  local routes = { [self.login] = { "GET", login }, [self.callback] = { "GET", callback },
    [self.path .. "/logout"] = { "POST", logout } }
  return router.place(guard(function(req, res, next_fn)
    if self.twin then core.own(req, self.field, self) end
    local route = routes[req.path]
    if not route then return next_fn() end
    res:header("Cache-Control", "no-store"):header("Referrer-Policy", "no-referrer")
    if req.method ~= route[1] then return 405, format("%s takes %s\n", req.path, route[1]), { Allow = route[1] } end
    return route[2](self, req, res)
  end), {
    login = self.login,
    defined = function(call, has_path)
      if not has_path then return end
      usage.error("%s: oidc{ ... } only answers %s, %s and %s/logout, and protects nothing: write app:use(oidc{ ... }) without a "
        .. "path, and oidc.required() here", call, self.login, self.callback, self.path)
    end,
    compiled = function(place) check_login_place(self, place, routes) end,
  })
end

-- required_login(place, given) -> the path of the login of the app. Raises when it has no login, or several.
local function required_login(place, given)
  local logins = {}
  for _, other in ipairs(place.all) do logins[#logins + 1] = other.rules.login end
  local function has(path)
    for _, login_path in ipairs(logins) do if login_path == path then return true end end
    return place.named(path) ~= nil
  end
  if given then
    local path = match(given, "^[^?#]*")
    if has(path) or place.matching(path) then return given end
    refuse_place(place, "oidc.required: login must be a path of this app%s; got %q",
      logins[1] and ", such as " .. format("%q", logins[1]) or ", which has no oidc{ ... }", given)
  end
  if has("/login") then return "/login" end
  if #logins == 1 then return logins[1] end
  if #logins > 1 then
    refuse_place(place, "oidc.required: the app has the logins %s: write which, oidc.required{ login = %q }, or make a page /login",
      concat(logins, ", "), logins[1])
  elseif not place.matching("/login") then
    refuse_place(place, "oidc.required: the app has no login: put app:use(oidc{ ... }) into it, or name its page of a login: "
      .. 'oidc.required{ login = "/enter" }')
  end
  return "/login"
end

-- oidc.required([options: OidcRequiredOptions]) -> middleware: Middleware
-- Makes middleware for pages of those who are logged in: others are sent to the login, and return to the page afterwards.
-- What a script of a page or a program asks for, or sends, is answered with 401.
function oidc.required(...)
  local _, given = options.only("oidc.required", oidc.calls["oidc.required"], '{ login = "/login" }', ...)
  local path = given.login == nil and "/login" or given.login
  usage.refuse(not is_page(path), path, 'oidc.required: login must be a path such as "/login"')
  local resolved = false
  return router.place(guard(function(req, res, next_fn)
    if req.path == path or session_of(req).user ~= nil then return next_fn() end
    local mode = req.headers["sec-fetch-mode"]
    if req.method ~= "GET" and req.method ~= "HEAD" or mode and mode ~= "navigate" then return 401, "log in first\n" end
    local page = req.path .. (match(req.target, "%?.*") or "")
    return res:redirect(with_query(path, { return_to = is_page(page) and page or nil }), 303)
  end), {
    required = true,
    compiled = function(place)
      local found = required_login(place, given.login)
      if resolved and resolved ~= found then
        refuse_place(place, "oidc.required: it is of two apps, with the logins %s and %s: make one for each", resolved, found)
      end
      resolved, path = found, found
    end,
  })
end
router.place(oidc.required, { defined = function(call)
  usage.error("%s: oidc.required is called to make the middleware: write oidc.required()", call)
end })

return setmetatable(oidc, { __call = function(_, ...) return new(...) end })
