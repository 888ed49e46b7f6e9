-- dev_page.lua - the pages of dev mode: an error with its source, and the source of a file. Pure: text in, HTML out. All
-- text of the site and of the request is escaped, and a page needs no other file than /__dev/reload.js, which dev.lua
-- adds to every page of the site.

local core = require "luaserve.core"

local page = {}

local escape = core.html_escape
local around = 6 -- lines before and after the marked one

-- Bytes that are no text are shown as \xNN: HTML has no character for them.
local function shown(text)
  text = tostring(text)
  if not utf8.len(text) then
    text = text:gsub("[\128-\255]", function(byte) return string.format("\\x%02X", byte:byte()) end)
  end
  return escape((text:gsub("[%z\1-\8\11\12\14-\31\127]", function(byte) return string.format("\\x%02X", byte:byte()) end)))
end

-- lines(text) -> array of the lines of a text.
local function lines(text)
  local list = {}
  for line in (text:gsub("\r\n", "\n"):gsub("\n$", "") .. "\n"):gmatch("(.-)\n") do list[#list + 1] = line end
  return list
end

-- page.excerpt(text, line [, around]) -> array of { number =, text =, marked = } with the lines around `line`; empty
-- when the text has no such line.
function page.excerpt(text, line, count)
  local all, list = lines(text), {}
  if not all[line] then return list end
  count = count or around
  for number = math.max(1, line - count), math.min(#all, line + count) do
    list[#list + 1] = { number = number, text = all[number], marked = number == line }
  end
  return list
end

-- page.place(text) -> name, line of the first place such as "site.lua:12:" at the beginning of a line, or nil.
function page.place(text)
  for line in (text .. "\n"):gmatch("%s*(.-)\n") do
    local name, number = line:match("^(.-):(%d+):")
    if name and name ~= "" and name:sub(1, 9) ~= "luaserve/" and not name:find("[%c\"<>]") then
      return name, math.tointeger(tonumber(number))
    end
  end
end

-- page.text_of(err, traceback) -> the text of an error: of a value that is no string, the traceback begins with it.
function page.text_of(err, traceback)
  if type(err) == "string" then return err end
  return (tostring(traceback):match("^(.-)\nstack traceback:") or tostring(traceback))
end

local style = [[
body{font:15px/1.5 system-ui,sans-serif;margin:0;color:#222;background:#fafafa}
main{max-width:60rem;margin:0 auto;padding:1.5rem}
h1{font-size:1.1rem;color:#a00;margin:0}
h2{font-size:1rem;margin:2rem 0 .5rem}
pre,td,th{font:13px/1.6 ui-monospace,monospace;text-align:left;vertical-align:top}
pre{background:#fff;border:1px solid #ddd;border-radius:4px;padding:.75rem;overflow:auto;white-space:pre-wrap}
pre,td,th,h1,h2{overflow-wrap:anywhere}
th{min-width:6rem}
.message{font-size:1rem;border-left:4px solid #a00;white-space:pre-wrap}
.code{padding:.5rem 0;white-space:pre}
.code span{display:block;padding:0 .75rem}
.code b{display:inline-block;width:3.5em;color:#999;font-weight:400;user-select:none}
.code .marked{background:#fdd}
.code span:target{background:#ffd}
.own{color:#999}
th{padding-right:1.5rem;font-weight:600}
a{color:#06c}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}pre{background:#222;border-color:#444}
.code .marked{background:#522}.code span:target{background:#442}h1{color:#f77}a{color:#6af}.message{border-color:#f77}}
]]

local function html(title, body)
  return table.concat {
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n',
    '<meta name="viewport" content="width=device-width">\n<title>', shown(title), "</title>\n<style>\n", style,
    "</style></head>\n<body><main>\n", body, "</main>\n</body></html>\n",
  }
end

local function code(list)
  local parts = { '<pre class="code">' }
  for _, line in ipairs(list) do
    parts[#parts + 1] = string.format('<span id="L%d"%s><b>%d</b>%s</span>', line.number,
      line.marked and ' class="marked"' or "", line.number, line.text == "" and " " or shown(line.text))
  end
  parts[#parts + 1] = "</pre>\n"
  return table.concat(parts)
end

local function linked(path, line, text, places)
  return string.format('<a href="%s">%s</a>', escape(places.link(path, line)), shown(text))
end

-- trace(text, places) -> the traceback as HTML: places in files that were loaded are links.
local function trace(text, places)
  local parts = {}
  for line in (text:gsub("\n+$", "") .. "\n"):gmatch("%s*(.-)\n") do
    local name, number, rest = line:match("^(.-):(%d+):(.*)$")
    local path = name and name:sub(1, 9) ~= "luaserve/" and places.path_of(name)
    if path then
      local link = linked(path, math.tointeger(tonumber(number)), name .. ":" .. number, places)
      parts[#parts + 1] = link .. ":" .. shown(rest)
    elseif line:find("^luaserve/") or line:find("^%[C%]") or line:find("^%(%.%.%.") then
      parts[#parts + 1] = '<span class="own">' .. shown(line) .. "</span>"
    else
      parts[#parts + 1] = shown(line)
    end
  end
  return "<pre>" .. table.concat(parts, "\n") .. "</pre>\n"
end

local function rows(title, list)
  if #list == 0 then return "" end
  local parts = { "<h2>", title, "</h2>\n<table>\n" }
  for _, row in ipairs(list) do
    parts[#parts + 1] = "<tr><th>" .. shown(row[1]) .. "</th><td>" .. shown(row[2]) .. "</td></tr>\n"
  end
  parts[#parts + 1] = "</table>\n"
  return table.concat(parts)
end

-- page.script_place(text, document) -> the position of the byte before which the script goes into a page, or nil: that of
-- the last </body>, else of the last </html> (case is ignored), else the end if it is a `document` or begins as one.
function page.script_place(text, document)
  local lower = text:lower()
  for _, tag in ipairs { "</body", "</html" } do
    local at, next_at = nil, lower:find(tag, 1, true)
    while next_at do at, next_at = next_at, lower:find(tag, next_at + 1, true) end
    if at then return at end
  end
  if document or lower:find("^%s*<!doctype html") or lower:find("^%s*<html") then return #text + 1 end
end

-- page.nonce(policy) -> the nonce of a Content-Security-Policy, or nil.
function page.nonce(policy)
  local at = policy:lower():find("'nonce-", 1, true)
  return at and policy:match("^([^'\"<>&]+)'", at + 7) -- else no base64: it would end the attribute
end

-- page.failure(what, places) -> the error page. what: { title =, message =, traceback =, note =, request = { method =,
-- path =, headers = { { name, value } }, query = the same, body =, body_bytes = } }; all but title and message are
-- optional. places: { path_of(name) -> the path of a loaded file or nil, read(path) -> text or nil, link(path, line) ->
-- URL }.
function page.failure(what, places)
  local parts = { "<h1>", shown(what.title), "</h1>\n" }
  local function add(...)
    for _, text in ipairs { ... } do parts[#parts + 1] = text end
  end
  add('<pre class="message">', shown(what.message), "</pre>\n")
  local stack = what.traceback and what.traceback:match("stack traceback:\n(.*)$")
  local name, line = page.place(what.message)
  local path = name and places.path_of(name)
  if not path and stack then
    for at in (stack .. "\n"):gmatch("(.-)\n") do
      name, line = page.place(at)
      path = name and places.path_of(name)
      if path then break end
    end
  end
  local text = path and places.read(path)
  local list = text and page.excerpt(text, line) or {}
  if #list > 0 then add("<h2>", linked(path, line, path .. ":" .. line, places), "</h2>\n", code(list)) end
  if what.note then add("<p>", shown(what.note), "</p>\n") end
  if stack then add("<h2>Traceback</h2>\n", trace(stack, places)) end
  local request = what.request
  if request then
    add("<h2>Request</h2>\n<pre>", shown(request.method .. " " .. request.path), "</pre>\n")
    add(rows("Query", request.query), rows("Headers", request.headers))
    if request.body then
      add("<h2>Body</h2>\n<pre>", shown(request.body), "</pre>\n")
      if request.body_bytes > #request.body then
        add(string.format("<p>The first %d of %d bytes.</p>\n", #request.body, request.body_bytes))
      end
    end
  end
  return html(what.title, table.concat(parts))
end

-- page.source(path, text, line) -> the page of a file. `line` is marked; it may be nil.
function page.source(path, text, line)
  local list = {}
  for number, content in ipairs(lines(text)) do
    list[number] = { number = number, text = content, marked = number == line }
  end
  return html(path, "<h1>" .. shown(path) .. "</h1>\n" .. code(list))
end

return page
