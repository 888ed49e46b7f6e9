-- accounts.lua - registering, login, logout and new passwords by mail. A session has the name of the account as `user`, and the
-- hash of its password: a new password ends the sessions and the links that are older.

local ls = require "luaserve"
local rate_limit = require "luaserve.rate_limit"
local mail, store = require "mail", require "store"

local accounts = {}

local URL = ls.env("SITE_URL", "http://127.0.0.1:8080") -- of the links in mails: the Host of a request may be anything
local TOKEN_SECONDS = 3600

local password = { is = "string", min = 8, max = 200, message = "A password has 8 to 200 characters." }
local account = ls.check {
  name = { is = "string", max = 30, pattern = "^%w+$", message = "A name has 1 to 30 letters and digits." },
  password = password,
  mail = { is = "string?", max = 200, pattern = "^[%w.+_-]+@[%w.-]+%.%w+$", message = "This is not an e-mail address." },
}
local reset = ls.check { token = "string", password = password }

local function show(res, form, errors)
  return res:render("login.html", { title = "Log in", form = form, errors = errors })
end

-- The page of a new password: with a token the form of the password, else that of the name.
local function show_password(res, token, wrong)
  return res:render("password.html", { title = "New password", token = token, wrong = wrong })
end

local function key_of(token) return ls.crypto.sha256(token, "hex") end -- who reads the store cannot use it

-- Middleware for routes that need a login: sets req.user, the account.
function accounts.login(req, res, next)
  local name = req.session.user
  req.user = name and store.user(name)
  if not req.user or req.user.hash ~= req.session.hash then return res:redirect("/login", 303) end
  next()
end

-- Add the routes to an app.
function accounts.add_routes(app)
  local limited = rate_limit { limit = 20, per = 60 } -- attempts of an address, at both forms together

  app:get("/login", function(_, res) return show(res, {}, {}) end)

  app:post("/register", limited, function(req, res)
    local given, errors = req:form(account, { refuse = false })
    if errors then return show(res:status(422), given, errors) end
    local hash = assert(ls.crypto.password.hash(given.password))
    if not store.add_user(given.name, hash, given.mail) then
      return show(res:status(409), given, { name = "This name is taken." })
    end
    req.session.user, req.session.hash = given.name, hash -- gives the session a new id
    return res:redirect("/", 303)
  end)

  app:post("/login", limited, function(req, res)
    local given, errors = req:form(account, { refuse = false })
    local user = not errors and store.user(given.name) or nil
    if not ls.crypto.password.verify(given.password, user and user.hash) then -- as slow for a name that does not exist
      return show(res:status(403), given, { name = "The name or the password is wrong." })
    end
    req.session.user, req.session.hash = user.name, user.hash
    return res:redirect("/", 303)
  end)

  app:get("/password", function(req, res) return show_password(res, req.query.token) end)

  -- The answer is the same for each name: it does not tell who has an account.
  app:post("/password", limited, function(req, res)
    local user = store.user(req:form().name or "")
    if user and user.mail then
      local token = ls.crypto.token()
      store.tokens:set(key_of(token), { name = user.name, hash = user.hash }, TOKEN_SECONDS)
      mail.send { to = user.mail, subject = "Your new password",
        text = "Choose a new password within an hour: " .. URL .. "/password?token=" .. token .. "\n" }
    end
    return res:render("message.html", { title = "New password", text = "If the account has an e-mail address, a mail is on its way." })
  end)

  app:post("/password/new", limited, function(req, res)
    local given, errors = req:form(reset, { refuse = false })
    if errors then return show_password(res:status(422), given.token, errors.password or errors.token) end
    local link = store.tokens:get(key_of(given.token))
    local user = link and store.user(link.name)
    if not user or user.hash ~= link.hash or not store.tokens:delete(key_of(given.token)) then -- true for one request only
      return show_password(res:status(403), nil, "This link is no longer valid.")
    end
    store.set_hash(user.name, assert(ls.crypto.password.hash(given.password)))
    return res:redirect("/login", 303)
  end)

  app:post("/logout", function(req, res)
    req.session:clear()
    return res:redirect("/login", 303)
  end)
end

return accounts
