-- fetch_parts.lua - what becomes the body of ls.fetch and app:inject: JSON, a form, and the option parts, a form with files as
-- multipart/form-data (RFC 7578), as browsers send it.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local options = require "luaserve.options"

local ipairs, pairs, tostring, type = ipairs, pairs, tostring, type

local parts = {}

local function is_body(value)
  local kind = type(value)
  return kind == "string" or kind == "number" or kind == "function" or core.is_buffer(value)
end

local part_options = {
  name = { "name", "is", "string", "a string" }, -- string - the name of the field
  -- string|number|Buffer|fun(): Data? - its value; a function is called until it returns nil
  body = { "body", "is", is_body, "a string, a number, a buffer or a function", required = true },
  filename = { "filename", "is", "string", "a string" }, -- string - makes the part a file
  type = { "type", "is", "string", "a string" }, -- string - of the content; default of a file: application/octet-stream
}
parts.calls = { ["ls.fetch: parts"] = { part_options, listed = true } } -- FetchPart

local form = 'parts must be a list such as { { name = "photo", filename = "a.png", type = "image/png", body = data } }'

local call -- whose option they are, in messages

-- What may not stand between the quotes, as browsers write it (HTML, "multipart/form-data encoding algorithm").
local escapes = { ['"'] = "%22", ["\r"] = "%0D", ["\n"] = "%0A" }
local function quoted(text) return '"' .. text:gsub('["\r\n]', escapes) .. '"' end

local function head_of(part, place)
  local name, filename, kind = part.name, part.filename, part.type
  if not name then usage.error("%s: %s.name is missing", call, place) end
  usage.refuse(kind and kind:find("[\0-\8\10-\31\127]"), kind, "%s: %s.type contains a control character", call, place)
  if filename and not kind then kind = "application/octet-stream" end
  return "Content-Disposition: form-data; name=" .. quoted(name) .. (filename and "; filename=" .. quoted(filename) or "")
    .. (kind and "\r\nContent-Type: " .. kind or "") .. "\r\n\r\n"
end

-- A function that returns the pieces one by one, and calls those that are functions until they return nil.
local function in_turn(pieces)
  local at, iterate, state, control = 1, nil, nil, nil
  return function()
    while true do
      local piece = pieces[at]
      if type(piece) ~= "function" then
        at = at + 1
        return piece
      end
      local data
      if not iterate then
        data, state, control = piece()
        if type(data) == "function" then iterate = data end
      end
      if iterate then
        data = iterate(state, control)
        control = data
      end
      if data ~= nil then return data end
      at, iterate = at + 1, nil
    end
  end
end

-- The body of the parts, and its type. The body is a buffer; a function if a part has one. Raises.
local function encode(list)
  if type(list) ~= "table" or #list == 0 then usage.error("%s: %s; got %s", call, form, usage.quote(list)) end
  for key in pairs(list) do
    if math.type(key) ~= "integer" then usage.error("%s: %s; got the key %s", call, form, usage.quote(key)) end
  end
  local boundary = core.crypto_encode(1, core.crypto_random(16)) -- a part cannot contain it, by chance or intent
  local pieces, streams = {}, false
  for n, part in ipairs(list) do
    local place = "parts[" .. n .. "]"
    if type(part) ~= "table" then usage.error("%s: %s must be a table; got %s", call, place, usage.quote(part)) end
    part = options.take(call, part, parts.calls["ls.fetch: parts"], {}, place .. ".")
    local body = type(part.body) == "number" and tostring(part.body) or part.body
    streams = streams or type(body) == "function"
    pieces[#pieces + 1] = (n > 1 and "\r\n--" or "--") .. boundary .. "\r\n" .. head_of(part, place)
    pieces[#pieces + 1] = body
  end
  pieces[#pieces + 1] = "\r\n--" .. boundary .. "--\r\n"
  local content_type = "multipart/form-data; boundary=" .. boundary
  if streams then return in_turn(pieces), content_type end
  local buffer = core.buffer()
  for _, piece in ipairs(pieces) do buffer:append(piece) end
  return buffer, content_type
end

-- text(of, name, value) -> the text of an option of the call `of`: JSON for "json", else a query. Raises.
function parts.text(of, name, value)
  local ok, text = pcall(name == "json" and require("luaserve.json").encode or require("luaserve.url").query, value)
  if not ok then usage.error("%s: %s: %s", of, name, text:match("ls%.[%a.]+:? (.*)") or text) end
  return text
end

-- body(of, name, value) -> the body of the option `name`, and its type: json, form or parts. Raises.
function parts.body(of, name, value)
  call = of
  if name == "parts" then return encode(value) end
  return parts.text(of, name, value), name == "json" and "application/json" or "application/x-www-form-urlencoded"
end

return parts
