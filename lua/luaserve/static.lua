-- static.lua - app:static: the options, the redirect, the listing of a folder. static.c finds the files and sends
-- them.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

local html_escape, url_encode, percent_decode = core.html_escape, core.url_encode, core.percent_decode
local get, list_folder, concat, format, date = core.static_get, core.file_list, table.concat, string.format, os.date

local fname = "app:static"
local name_bytes_max = 255
local max_age_most = 2 ^ 31
local listed_max = 10000

local static = {}

-- Whether it is the path of a file in the folder, or false.
local function is_name(value)
  return not value or type(value) == "string" and value ~= "" and not (value:find("^/") or value:find("/$") or value:find("[\\%z]")
    or ("/" .. value .. "/"):find("/%.?%.?/")) and #value <= name_bytes_max
end

local function is_prefix(value) return not value or type(value) == "string" and value:find("^/") and #value <= name_bytes_max end

local function is_age(value) return math.type(value) and math.tointeger(value) and value >= 0 and value <= max_age_most end

local name_form <const> = 'the name of a file in the folder, such as "index.html", or false'
local age_form <const> = ("a whole number of seconds from 0 to %.0f"):format(max_age_most)
local prefix_form <const> = 'the beginning of the paths of such files, such as "/assets/hashed/"'

local folder_options = {
  -- string|false - file for a path that ends in a slash; default "index.html"
  index = { "index", "is", is_name, name_form, "index.html" },
  -- integer - seconds for which caches may use a file; 0: they ask each time
  max_age = { "max_age", "is", is_age, age_form },
  immutable = { "immutable", "is", is_prefix, prefix_form }, -- string - beginning of the paths of files that never change
  precompressed = { "precompressed", "flag" }, -- send app.js.br or app.js.gz in place of app.js
  list = { "list", "flag" }, -- a page with the files of a folder without an index
  fallback = { "fallback", "is", is_name, name_form }, -- string - the file for paths without a file
  dotfiles = { "dotfiles", "flag" }, -- serve names that begin with a dot
  -- fun(path: string): Headers? - header fields for a file
  headers = { "headers", "is", "function", "a function(path) that returns a table of header lines" },
}
static.calls = { ["app:static"] = { folder_options } } -- StaticOptions

-- changed_at(seconds) -> the date and time in UTC; "" when the C library cannot tell it (os.date raises).
local function changed_at(seconds)
  local ok, text = pcall(date, "!%Y-%m-%d %H:%M:%S", math.floor(seconds))
  return ok and text or ""
end

-- One row of a listing.
local function row(name, size, modified)
  return format('<tr><td><a href="%s">%s</a></td><td>%s</td><td>%s</td></tr>\n',
    url_encode(name):gsub("%%2F", "/"), html_escape(name), size, modified)
end

-- page(path, names, more, dotfiles) -> the listing of a folder as HTML. `path`: that of the request, decoded. `names`:
-- sorted; `more`: there are more of them. `dotfiles`: those that begin with a dot as well.
local function page(path, names, more, dotfiles)
  local title = "Index of " .. html_escape(path)
  local out = {
    "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\"><title>", title, "</title>\n",
    "<style>td { padding-right: 2em } td:nth-child(2) { text-align: right }</style></head>\n<body><h1>", title,
    "</h1>\n<table>\n<tr><th align=\"left\">Name</th><th>Bytes</th><th>Changed (UTC)</th></tr>\n",
  }
  if path ~= "/" then out[#out + 1] = '<tr><td><a href="../">../</a></td><td></td><td></td></tr>\n' end
  for _, kind in ipairs { "directory", "file" } do
    for _, entry in ipairs(names) do
      if entry.type == kind and (dotfiles or entry.name:sub(1, 1) ~= ".") then
        local changed = changed_at(entry.mtime)
        out[#out + 1] = kind == "directory" and row(entry.name .. "/", "", changed)
          or row(entry.name, entry.size, changed)
      end
    end
  end
  out[#out + 1] = more and "</table>\n<p>There are more files.</p></body></html>\n" or "</table></body></html>\n"
  return concat(out)
end

local files_meta = {}
files_meta.__index = files_meta

-- files:runner(skip, not_found) -> the function of a route. `skip`: the segments of its prefix. not_found(req, res)
-- responds when there is no file.
function files_meta:runner(skip, not_found)
  local object, folder, dotfiles = self.object, self.folder, self.dotfiles
  return function(req, res)
    local what, detail = get(object, res, skip)
    if what == nil then return end
    if what == 308 then return 308, "", { Location = detail } end
    if what == "list" then
      local names, more, code = list_folder(folder .. detail, true, folder, listed_max)
      if names then
        res:type("html")
        return page(percent_decode(req.path), names, more, dotfiles)
      elseif code ~= "ENOENT" and code ~= "ENOTDIR" and code ~= "EACCES" then -- a slash may follow the name of a file
        error("app:static: cannot list " .. more)
      end
    end
    return not_found(req, res)
  end
end

-- static.new(prefix, folder, options) -> the files of an app:static. Raises at the line of the caller.
function static.new(prefix, folder, opts)
  if type(prefix) ~= "string" or type(folder) ~= "string" or folder == "" then
    usage.error('%s takes the prefix of the paths and a folder: app:static("/assets", "public"); got %s and %s', fname,
      usage.quote(prefix), usage.quote(folder))
  end
  usage.check(opts, "table?", "%s: options must be a table such as { max_age = 3600 }", fname)
  opts = opts or {}
  local out = options.take(fname, opts, static.calls[fname], {})
  out.index, out.fallback, out.immutable = out.index or "", out.fallback or "", out.immutable or nil
  local age = out.max_age
  out.lines = age and "Cache-Control: " .. (age == 0 and "no-cache" or "public, max-age=" .. math.tointeger(age)) .. "\r\n"
  local object, message, code = core.static(folder, out)
  if not object and code == "ENOENT" then
    usage.error("%s: there is no folder %s (a relative path starts at the directory of the site)", fname,
      usage.quote(folder))
  elseif object and message == false then
    usage.error("%s: fallback: there is no file %s in the folder %s", fname, usage.quote(out.fallback), usage.quote(folder))
  elseif not object then
    usage.error("%s: cannot open the folder %s: %s", fname, usage.quote(folder), message)
  end
  require("luaserve.private").folder(folder)
  folder = folder:gsub("(.)/+$", "%1")
  return setmetatable({ object = object, folder = folder, dotfiles = out.dotfiles }, files_meta)
end

return static
