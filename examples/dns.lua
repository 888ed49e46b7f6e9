-- dns.lua - a UDP responder that speaks enough DNS to answer A queries from a table.
--
--   luaserve examples/dns.lua 5300
--   dig -p 5300 @127.0.0.1 one.example.test
--
-- Names that are not in the table do not exist (NXDOMAIN), known names of another type have no records, and what is no
-- query at all is not answered.

local ls = require "luaserve"
local at = ... or 5300 -- the first argument after the name of this file

local ttl = 60
local addresses = {
  ["one.example.test"] = { "192.0.2.1" },
  ["many.example.test"] = { "192.0.2.1", "192.0.2.2", "192.0.2.3" },
}

local A, IN, ANY = 1, 1, 255
local NXDOMAIN, NOTIMP = 3, 4
local QR, AA, RD = 0x8000, 0x0400, 0x0100 -- bits of the flags: a response, with authority, recursion desired

-- The question's name, type and class, and where it ends; nil when it is malformed.
local function question(message)
  local labels, from = {}, 13
  while true do
    local len = message:byte(from)
    if not len or len > 63 then return nil end -- cut off, or a pointer, which a question has no use for
    from = from + 1
    if len == 0 then break end
    if #message < from + len - 1 or from + len - 13 > 255 then return nil end
    labels[#labels + 1] = message:sub(from, from + len - 1):lower()
    from = from + len
  end
  if #message < from + 3 then return nil end
  local qtype, class = string.unpack(">I2I2", message, from)
  return table.concat(labels, "."), qtype, class, from + 3
end

local records = {} -- by name: how many, and their bytes, made once
for name, list in pairs(addresses) do
  local parts = {}
  for i, address in ipairs(list) do
    local a, b, c, d = address:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$")
    -- the owner is a pointer to the question's name, which begins at byte 12
    parts[i] = string.pack(">I2I2I2I4I2BBBB", 0xc00c, A, IN, ttl, 4, a, b, c, d)
  end
  records[name] = { count = #list, bytes = table.concat(parts) }
end

local function answer(query)
  if #query < 12 then return nil end
  local id, flags, questions = string.unpack(">I2I2I2", query)
  if flags & QR ~= 0 then return nil end -- a response: answering those is how two servers talk for ever
  local flags_out = QR | AA | flags & RD | flags & 0x7800
  if flags & 0x7800 ~= 0 then return string.pack(">I2I2I2I2I2I2", id, flags_out | NOTIMP, 0, 0, 0, 0) end
  if questions ~= 1 then return nil end
  local name, qtype, class, ends = question(query)
  if not name then return nil end

  local found, rcode = records[name], 0
  if not found then rcode = NXDOMAIN end
  local wanted = found and class == IN and (qtype == A or qtype == ANY)
  return string.pack(">I2I2I2I2I2I2", id, flags_out | rcode, 1, wanted and found.count or 0, 0, 0)
    .. query:sub(13, ends) .. (wanted and found.bytes or "")
end

ls.udp(at, function(query, _, info)
  if info then return nil end -- cut: longer than any query
  return answer(query)
end)
