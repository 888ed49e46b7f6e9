-- accounts.lua - registering, login and logout. A session has the name of the account as `user`.

local ls = require "luaserve"
local rate_limit = require "luaserve.rate_limit"
local store = require "store"

local accounts = {}

local account = ls.check {
  name = { is = "string", max = 30, pattern = "^%w+$", message = "A name has 1 to 30 letters and digits." },
  password = { is = "string", min = 8, max = 200, message = "A password has 8 to 200 characters." },
}

local function show(res, form, errors)
  return res:render("login.html", { title = "Log in", form = form, errors = errors })
end

-- Middleware for routes that need a login: sets req.user, the account.
function accounts.login(req, res, next)
  local name = req.session.user
  req.user = name and store.user(name)
  if not req.user then return res:redirect("/login", 303) end
  next()
end

-- Add the routes to an app.
function accounts.add_routes(app)
  local limited = rate_limit { limit = 20, per = 60 } -- attempts of an address, at both forms together

  app:get("/login", function(_, res) return show(res, {}, {}) end)

  app:post("/register", limited, function(req, res)
    local given, errors = req:form(account, { refuse = false })
    if errors then return show(res:status(422), given, errors) end
    if not store.add_user(given.name, assert(ls.crypto.password.hash(given.password))) then
      return show(res:status(409), given, { name = "This name is taken." })
    end
    req.session.user = given.name -- gives the session a new id
    return res:redirect("/", 303)
  end)

  app:post("/login", limited, function(req, res)
    local given, errors = req:form(account, { refuse = false })
    local user = not errors and store.user(given.name) or nil
    if not ls.crypto.password.verify(given.password, user and user.hash) then -- as slow for a name that does not exist
      return show(res:status(403), given, { name = "The name or the password is wrong." })
    end
    req.session.user = user.name
    return res:redirect("/", 303)
  end)

  app:post("/logout", function(req, res)
    req.session:clear()
    return res:redirect("/login", 303)
  end)
end

return accounts
