-- pages.lua - the HTML of the pages. Every value that comes from a person goes through `escape`.

local ls = require "luaserve"
local escape = ls.html.escape

local pages = {}

local function layout(title, body)
  return [[<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>]] .. escape(title) .. [[</title>
<link rel="stylesheet" href="/public/style.css">
</head>
<body>
<h1>]] .. escape(title) .. "</h1>\n" .. body .. "</body>\n</html>\n"
end

-- guest_book(messages, form) -> the page. form: the fields that were sent, and `wrong`, what is wrong with them.
function pages.guest_book(messages, form)
  local parts = {}
  if form.wrong then parts[1] = '<p class="wrong">' .. escape(form.wrong) .. "</p>\n" end
  parts[#parts + 1] = '<form method="post" action="/messages">\n'
    .. '<label>Name <input name="name" maxlength="60" required value="' .. escape(form.name or "") .. '"></label>\n'
    .. '<label>Message <textarea name="text" maxlength="1000" required>' .. escape(form.text or "")
    .. "</textarea></label>\n<button>Send</button>\n</form>\n"
  for _, message in ipairs(messages) do
    parts[#parts + 1] = "<article><h2>" .. escape(message.name) .. "</h2><time>" .. escape(message.time) .. "</time><p>"
      .. escape(message.text) .. "</p></article>\n"
  end
  if #messages == 0 then parts[#parts + 1] = "<p>No messages yet.</p>\n" end
  return layout("Guest book", table.concat(parts))
end

return pages
