-- app.lua - a guest book: a page with a form, and the files in public/.

local ls = require "luaserve"

local NAME_BYTES_MAX, TEXT_BYTES_MAX, MESSAGES_MAX = 60, 1000, 100

local app = ls.app()
ls.templates("views") -- {{value}} in them escapes a value, so that it cannot become HTML

-- A dict is shared by all Lua states, and survives a reload; it ends with the server.
local book = ls.dict("guest book") -- "messages": a list, the newest first

-- The field without the spaces around it; "" for one that is missing.
local function field(form, name) return (form[name] or ""):match("^%s*(.-)%s*$") end

-- check(name, text) -> nil, or the message for the person who filled in the form
local function check(name, text)
  if name == "" then return "Please give your name." end
  if #name > NAME_BYTES_MAX then return "The name is too long." end
  if text == "" then return "Please write a message." end
  if #text > TEXT_BYTES_MAX then return "The message is too long." end
end

-- The page with the fields of the form, and what is wrong with them.
local function guest_book(res, form, wrong)
  local values = { title = "Guest book", messages = book:range("messages"), form = form, wrong = wrong }
  return res:render("guest_book.html", values)
end

app:get("/", function(_, res) return guest_book(res, {}) end)

app:post("/messages", function(req, res)
  local form = req:form() -- another body is answered with 415
  local name, text = field(form, "name"), field(form, "text")
  local wrong = check(name, text)
  if wrong then return guest_book(res:status(422), { name = name, text = text }, wrong) end
  local count = book:lpush("messages", { name = name, text = text, time = os.date("!%Y-%m-%d %H:%M") })
  if count > MESSAGES_MAX then book:rpop("messages") end
  return res:redirect("/", 303) -- so that reloading the page does not send the form again
end)

app:static("/public", "public", { max_age = 60 })

return app
