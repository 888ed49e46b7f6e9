-- multipart.lua - the parts of an HTML form as multipart/form-data (RFC 7578, RFC 2046 section 5.1), as they arrive.
--
--     preamble CRLF "--" boundary CRLF head CRLF CRLF data CRLF "--" boundary CRLF ... CRLF "--" boundary "--" epilogue
--
-- A reader takes strings from a function and holds back only what may be the beginning of a delimiter, or a head.

local core = require "luaserve.core"
local usage = require "luaserve.usage"
local once = require "luaserve.once"
local options = require "luaserve.options"
local reply = require "luaserve.reply"
local trim = require("luaserve.text").trim

-- A site may replace the globals.
local concat, find, format, match, sub = table.concat, string.find, string.format, string.match, string.sub
local error, getmetatable, ipairs, pcall, setmetatable, type = error, getmetatable, ipairs, pcall, setmetatable, type
local insert, random, rawget = table.insert, math.random, rawget
local utf8_len = utf8.len

-- `files`: the names of the files of forms, by the table that multipart.fields has made.
local multipart = { files = setmetatable({}, { __mode = "k" }) }

local parts_max, head_bytes_max = 1000, 8192
local body_bytes_default = 8 * 1024 * 1024 -- of part:body

-- The parameters of a field value such as `form-data; name="a b"`, by lower-case name, from the position `at`. nil: the
-- value, which is trimmed, is malformed, or a name is repeated.
local function parameters(value, at)
  local found = {}
  while true do
    local name, from = value:match("^[ \t]*;[ \t]*([%w!#$%%&'*+.^_`|~-]+)=()", at)
    if not name then break end
    local text, after = value:match("^([%w!#$%%&'*+.^_`|~-]+)()", from)
    if not text and value:sub(from, from) == '"' then
      local to = from + 1
      while value:find('^\\.', to) or value:find('^[^"\\]', to) do to = to + (value:byte(to) == 92 and 2 or 1) end
      if value:sub(to, to) ~= '"' then return nil end
      text, after = value:sub(from + 1, to - 1), to + 1
    end
    name = name:lower()
    if not text or found[name] then return nil end
    found[name], at = text, after
  end
  return value:find("^[ \t]*;?$", at) and found or nil
end

-- The name of a field as browsers and curl write it: the characters '"', CR and LF are %22, %0D and %0A, or have a '\'
-- in front.
local unescaped = { ["%22"] = '"', ["%0D"] = "\r", ["%0A"] = "\n", ["%0d"] = "\r", ["%0a"] = "\n" }
local function name_of(text)
  return (text:gsub('\\(["\\])', "%1"):gsub("%%[02][2ADad]", unescaped))
end

-- The text of a parameter such as filename* (RFC 8187), or nil.
local function extended(text)
  local charset, encoded = match(text, "^([%w-]+)'[%w-]*'(.*)$")
  return charset and charset:lower() == "utf-8" and core.percent_decode(encoded) or nil
end

-- The fields of the head of a part, by lower-case name, and the parameters of Content-Disposition. nil: malformed, or
-- without that field. A line that begins with a blank continues the one before (RFC 5322 section 2.2.3).
local function fields_of(head)
  local headers, found = reply.headers(), nil
  for line in (head:gsub("\r\n([ \t])", "%1") .. "\r\n"):gmatch("(.-)\r\n") do
    local name, value = line:match("^([^%s:]+):(.*)$")
    if not name then return nil end
    value = trim(value)
    reply.add(headers, name, value)
    if name:lower() == "content-disposition" then
      local at = value:match("^[Ff][Oo][Rr][Mm]%-[Dd][Aa][Tt][Aa]()")
      if found or not at then return nil end
      found = parameters(value, at)
      if not found then return nil end
    end
  end
  return headers, found
end

-- boundary(content_type) -> the boundary | nil. It has 1 to 70 characters (RFC 2046 section 5.1.1).
local function boundary_of(content_type)
  local found = parameters(content_type, (content_type:find("[; \t]") or #content_type + 1))
  local text = found and found.boundary
  if text and #text <= 70 and text:find("^[%w'()+_,./:=? -]*[%w'()+_,./:=?-]$") then return text end
end

-- What follows a boundary that ends in front of `at`: the position after the delimiter, and whether it is the last one;
-- nil: it is no delimiter; false: more bytes must be read.
local function after(text, at, ended)
  local to = match(text, "^[ \t]*()", at)
  if sub(text, to, to + 1) == "\r\n" then return to + 2, false end
  local last = match(text, "^%-%-[ \t]*()", at)
  if last and (sub(text, last, last + 1) == "\r\n" or ended and last > #text) then return last, true end
  if ended or #text - at > head_bytes_max then return nil end
  for _, beginning in ipairs { "^[ \t]*\r?$", "^%-$", "^%-%-[ \t]*\r?$" } do
    if find(text, beginning, at) then return false end
  end
  return nil
end

-- ---- the reader ------------------------------------------------------------------------------------------------------

-- next_chunk: fun(): string?. text: the bytes that are kept; from: the first of them that is not returned; search: where
-- the next delimiter is looked for; in_data: the delimiter that ends the part has not been found.
local reader = {}
reader.__index = reader

-- new(next_chunk, content_type, fail) -> a reader in front of the first part. fail(message) raises.
local function new(next_chunk, content_type, fail)
  local boundary = boundary_of(content_type)
  local self = setmetatable({ next_chunk = next_chunk, fail = fail, count = 0 }, reader)
  self.text, self.from, self.search, self.in_data = "\r\n", 3, 1, true -- the preamble is read as data
  if not boundary then self:malformed("the Content-Type has no valid boundary") end
  self.delimiter = "\r\n--" .. boundary
  return self
end

function reader:malformed(...) self.fail("the multipart body is malformed: " .. format(...)) end

-- Read one more chunk. false: the body has ended.
function reader:more()
  if self.ended then return false end
  local chunk = self.next_chunk()
  if not chunk then
    self.ended = true
    return false
  end
  local kept = self.search < self.from and self.search or self.from
  self.text = kept > #self.text and chunk or sub(self.text, kept) .. chunk
  self.from, self.search = self.from - kept + 1, self.search - kept + 1
  return true
end

-- take(to) -> the bytes of the part up to `to`, or nil: there are none.
function reader:take(to)
  local from = self.from
  if to < from then return nil end
  self.from = to + 1
  return from == 1 and to == #self.text and self.text or sub(self.text, from, to)
end

-- data() -> the next bytes of the part, or nil at its end.
function reader:data()
  while self.in_data do
    local text, delimiter = self.text, self.delimiter
    local start, stop = find(text, delimiter, self.search, true)
    if start then
      local at, last = after(text, stop + 1, self.ended)
      if at then
        local piece = self:take(start - 1)
        self.in_data, self.last, self.from, self.search = false, last, at, at
        return piece
      elseif at == nil then
        self.search = stop + 1
      else
        self.search = start
        local piece = self:take(start - 1)
        if piece then return piece end
        self:more()
      end
    else
      local tail = #text - #delimiter + 2
      local kept = find(text, "\r", tail > self.search and tail or self.search, true) or #text + 1
      self.search = kept
      local piece = self:take(kept - 1)
      if piece then return piece end
      if not self:more() then
        self:malformed(self.count == 0 and "there is no boundary" or "part %d does not end", self.count)
      end
    end
  end
end

-- part() -> the next part: its header fields and the parameters of its Content-Disposition; nil: it was the last one.
function reader:part()
  repeat until not self:data()
  if self.last then return nil end
  self.count = self.count + 1
  if self.count > parts_max then self:malformed("it has more than %d parts", parts_max) end
  local stop, data
  repeat
    stop, data = find(self.text, "\r\n\r\n", self.from, true)
  until stop or #self.text - self.from > head_bytes_max + 3 or not self:more()
  if not stop or stop - self.from > head_bytes_max then
    self:malformed("the head of part %d does not end within %d bytes", self.count, head_bytes_max)
  end
  local headers, given = fields_of(sub(self.text, self.from, stop - 1))
  if not given or not given.name then
    self:malformed('part %d has no valid Content-Disposition, such as form-data; name="a"', self.count)
  end
  -- The line break in front of a delimiter belongs to it; that of the head may be the one.
  self.from, self.search, self.in_data = data + 1, data - 1, true
  return headers, given
end

-- fields(body, content_type, lists) -> a table from name to value, of several with one name the first; with the
-- metatable `lists`, to the list of all values | nil, message. Parts with a file name are left out; multipart.files has them.
function multipart.fields(body, content_type, lists)
  local refused = {}
  local ok, fields = pcall(function()
    local whole, found, files = body, setmetatable({}, lists), nil
    local r = new(function()
      local chunk = whole
      whole = nil
      return chunk
    end, content_type, function(message)
      refused.message = message
      error(refused, 0)
    end)
    for _, given in r.part, r do
      if not given.filename and not given["filename*"] then
        local name, pieces = name_of(given.name), {}
        for piece in r.data, r do pieces[#pieces + 1] = piece end
        local value = concat(pieces)
        if not lists then
          found[name] = found[name] or value
        elseif rawget(found, name) then
          insert(found[name], value)
        else
          found[name] = { value }
        end
      else
        files = files or {}
        files[name_of(given.name) or ""] = true
      end
    end
    if not files then return found end
    multipart.files[found] = files
    if core.dev then require("luaserve.dev_state").watch_form(next(files)) end
    return lists and found or setmetatable(found, { __index = function(_, name)
      if files[name] then usage.error("req:form: the field %s is a file: read the form with req:parts()", usage.quote(name)) end
    end })
  end)
  if ok then return fields end
  if fields ~= refused then error(fields, 0) end
  return nil, refused.message
end

-- ---- req:parts -------------------------------------------------------------------------------------------------------

-- part is a Part: a part of a form that arrives.
-- part.name: string - the name of the field
-- part.filename: string? - the last component of the name of the file, "" when none was chosen; nil: no file
-- part.type: string - the Content-Type, `text/plain` unless given
-- part.headers: table<string, string> - header fields; names are found in any case
local methods = {}
local part_meta = { __index = methods }

local function reader_of(part, call)
  local own = type(part) == "table" and getmetatable(part) == part_meta and part[part_meta]
  if not own then usage.error("part:%s: call it with a colon: part:%s()", call, call) end
  if own.reader.part_now ~= part then usage.error("part:%s: the loop is at another part", call) end
  if own.read then usage.error("part:%s: the part was read already", call) end
  own.read = true
  return own.reader, own.req
end

-- limit(part, req, call, max, default) -> a function that adds a number of bytes and refuses the request when there are too
-- many; it returns the sum, and how many may follow, nil: any number
local function limit(part, req, call, max, default)
  local most = options.max("part:" .. call, max, default)
  local count = 0
  return function(bytes)
    count = count + bytes
    if most and count > most then core.too_large(req, format("the part %q has more than %d bytes", part.name, most)) end
    return count, most and most - count
  end
end

-- part:body([max: Size]) -> data: string
-- The bytes of the part. More than `max` bytes, 8m unless given, raise, and give a 413 if the site does not catch that.
function methods:body(max, ...)
  usage.no_more("part:body(max)", max, ...)
  local r, req = reader_of(self, "body")
  local count, pieces = limit(self, req, "body", max, body_bytes_default), {}
  for piece in r.data, r do
    count(#piece)
    pieces[#pieces + 1] = piece
  end
  return concat(pieces)
end

-- part:chunks() -> iterator: fun(): string?
-- Iterates over the bytes of the part as they arrive.
function methods:chunks(...)
  usage.no_more("part:chunks()", nil, ...)
  local r = reader_of(self, "chunks")
  return once.iterator(function()
    if r.part_now ~= self then usage.error("part:chunks: the loop is at another part") end
    return r:data()
  end, "part:chunks()", "part:body()")
end

-- part:save(path [, max: Size]) -> true, bytes: integer | nil, message, code
-- Writes the part to a file, which is there when all of it has arrived. More than `max` bytes raise, as in part:body.
function methods:save(path, max, ...)
  usage.no_more("part:save(path, max)", max, ...)
  usage.refuse(type(path) ~= "string" or path == "" or find(path, "[/\\]$") or find(path, "\0", 1, true), path,
    'part:save: path must be the name of a file, such as "uploads/1.png"')
  local r, req = reader_of(self, "save")
  local count = limit(self, req, "save", max)
  local beside = format("%s.luaserve-%s-%016x", match(path, "^.*[/\\]") or "", req.id, random(0))
  local written <close> = core.file_temporary(beside)
  local made = false

  local function write(data)
    local ok, message, code = core.file_write(beside, data, true, true, false, made)
    made = true
    if ok then return true end
    return nil, sub(message, 1, #beside) == beside and path .. sub(message, #beside + 1) or message, code
  end

  local function save()
    local ok, message, code = write("")
    local kept, bytes, left, rest = ""
    while ok do
      local piece = r:data() or ""
      kept, bytes, left = kept .. piece, count(#piece)
      if not r.in_data then break end
      rest, ok, message, code = core.body_save(req, beside, path, r.delimiter, kept, sub(r.text, r.from), left)
      r.text, r.from, r.search, r.ended = rest or "", 1, 1, not rest
      if ok then kept, bytes = message, count(ok) end
    end
    if ok and kept ~= "" then ok, message, code = write(kept) end
    if ok then ok, message, code = core.file_rename(beside, path) end
    if not ok then return nil, message, code end
    made = false
    core.file_keep(written)
    return true, bytes
  end

  local fine, ok, result, code = pcall(save)
  if made then core.file_remove(beside) end -- `written` would remove it as well, but block
  if not fine then error(ok, 0) end
  return ok, result, code
end

-- The last component of a file name that a client sent, which may be a path; nil: it has control characters.
local function base_name(name)
  if find(name, "%c") then return nil end
  local base = match(name, "^.*[/\\](.*)$") or name
  return (base == "." or base == "..") and "" or base
end

-- parts(req, content_type) -> an iterator over the parts: req:parts.
function multipart.parts(req, content_type)
  local function fail(message) core.refuse(req, 400, message) end
  local next_chunk = core.request_chunks(req)
  local r = new(next_chunk, content_type, fail)
  return function()
    local headers, given = r:part()
    r.part_now = nil
    if not headers then return nil end
    local name, filename = name_of(given.name), given["filename*"] and extended(given["filename*"])
    if not filename and given.filename then filename = name_of(given.filename) end
    if not utf8_len(name) or filename and not utf8_len(filename) then
      fail(format("the multipart body is malformed: the name of part %d is not UTF-8", r.count))
    end
    if filename then filename = base_name(filename) end
    if find(name, "\0", 1, true) or (given.filename or given["filename*"]) and not filename then
      fail(format("the multipart body is malformed: the name of part %d has a control character", r.count))
    end
    local part = {
      name = name, filename = filename, type = headers["content-type"] or "text/plain", headers = headers,
      [part_meta] = { reader = r, req = req },
    }
    r.part_now = setmetatable(part, part_meta)
    return part
  end
end

return multipart
