-- requests.lua - dev mode warns of what a request sends and its handler does not see: repeated fields, files of a form, changed
-- headers before app:proxy; of a key of rate_limit that the client chooses, and of a login that keeps the id of its session.

local core = require "luaserve.core"
local site = require "luaserve.dev.site"

local getinfo, next, rawget = debug.getinfo, next, rawget
local caller_line, here, lines_of, site_info, warn = site.caller_line, site.here, site.lines_of, site.site_info, site.warn

local requests = {}

-- requests.watch_values(name): a schema takes the first of several values that were sent.
function requests.watch_values(name)
  here("several values of %q were sent, and the schema takes the first: { \"string\" } is the list of all", name)
end

-- requests.watch_fields(req, form): req:form() has the first value of each field. Warns of a field with several of which the first is read, or
-- which is passed on with the form, in a function that does not call form_all.
function requests.watch_fields(req, form)
  local info = type(select(2, next(form))) == "string" and site_info()
  local lines = info and lines_of(info, info.linedefined, info.lastlinedefined) or {}
  local name = caller_line():match("([%a_][%w_]*)%s*=%s*[%w_.]+:form%(")
  local text, base = table.concat(lines, "\n"), name and "%f[%w_.]" .. name or ":form%(%s*%)"
  local passed = not text:find(":form_all", 1, true) and (name and text:find("[(,{=n]%s*%f[%w_]" .. name .. "%s*[,)\n}]")
    or not name and caller_line():find("[(,{=n]%s*[%w_.]+:form%(%s*%)%s*[^%s.%[]") or text:find("return%s+[%w_.]+:form%(%s*%)"))
  for field, values in pairs(lines[1] and req:form_all() or {}) do
    local escaped = field:gsub("%W", "%%%0")
    if values[2] and (passed or text:find(base .. "%." .. escaped .. "%f[^%w_]") or text:find(base .. "%[[\"']" .. escaped .. "[\"']%]")) then
      here("the form has several values of %q: req:form() has the first, req:form_all() the list of all", field)
    end
  end
end

-- requests.watch_form(name): req:form() has left a file out.
function requests.watch_form(name)
  here("req:form() leaves out the file %q: read the form with req:parts(), part:save and part:body", name)
end

local instead_of = { headers = "upstream.headers[name]", cookies = 'upstream.headers["Cookie"]', query = "upstream.path" }

-- requests.watch_proxy(req): app:proxy sends the request.
function requests.watch_proxy(req)
  local sent = {}
  sent.headers, sent.cookies, sent.query = core.sent(req)
  for name, fields in pairs(sent) do
    for _, list in ipairs { fields, req[name] } do
      for key in next, list do
        if rawget(req[name], key) ~= rawget(fields, key) then
          here("req.%s[%q] has changed, and the server of app:proxy gets what the client has sent: set %s in the hook "
            .. "request of app:proxy", name, key, instead_of[name])
        end
      end
    end
  end
end

-- requests.watch_key(fn, req, key): fn has given a key of rate_limit to a request without a user.
function requests.watch_key(fn, req, key)
  local info = getinfo(fn, "S")
  for _, values in ipairs { req.headers, req.query } do
    for _, value in pairs(values) do
      if value == key then
        warn(info.short_src .. ":" .. info.linedefined, "the key of rate_limit is what the client sends: with another one for "
          .. "each request it has no limit. Return what was checked, such as req.user, or let a rate_limit without key go first")
      end
    end
  end
end

local logins = " account accountid username userid login loggedin isloggedin member memberid email mail admin isadmin auth "
  .. "authenticated authorized customer customerid principal identity person personid "
local login_places = setmetatable({}, { __mode = "k" }) -- by session: the field that looks like a login, and where it was set

-- requests.watch_session(session, key, value): the field is set for the first time. Without a key: the session is stored;
-- `value`: with a new id.
function requests.watch_session(session, key, value)
  local seen = login_places[session]
  if key and value and logins:find(" " .. key:lower():gsub("_", "") .. " ", 1, true) then
    login_places[session] = { key = key, place = site.place() }
  elseif not key and seen and not value then
    warn(seen.place, "sets session.%s, which looks like a login, and the session keeps its id: a stranger who has given the visitor this id is "
      .. 'logged in as well. Write ls.session{ login = "%s" }, or call req.session:regenerate() here', seen.key, seen.key)
  end
end

return requests
