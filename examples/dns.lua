-- dns.lua - a UDP responder with enough DNS to answer A queries from a table.
--
--   luaserve examples/dns.lua 5300
--   dig -p 5300 @127.0.0.1 one.example.test
--
-- A name outside the table gets NXDOMAIN, a query for another type of a known name gets no records, and a malformed
-- query gets no response.

local ls = require "luaserve"
local at = ... or 5300 -- the first argument after the name of this file

local ttl = 60
local addresses = {
  ["one.example.test"] = { "192.0.2.1" },
  ["many.example.test"] = { "192.0.2.1", "192.0.2.2", "192.0.2.3" },
}

local A, IN, ANY = 1, 1, 255
local NXDOMAIN, NOTIMP = 3, 4
local QR, AA, RD = 0x8000, 0x0400, 0x0100 -- flag bits: response, authoritative, recursion desired

-- The question's name, type and class, and the position of its end; nil if it is malformed.
local function question(message)
  local labels, from = {}, 13
  while true do
    local len = message:byte(from)
    if not len or len > 63 then return nil end -- truncated, or a compression pointer, which a question does not need
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

local records = {} -- by name: the number of records and their bytes, encoded once
for name, list in pairs(addresses) do
  local parts = {}
  for i, address in ipairs(list) do
    local a, b, c, d = address:match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$")
    -- the owner is a pointer to the name in the question, at offset 12
    parts[i] = string.pack(">I2I2I2I4I2BBBB", 0xc00c, A, IN, ttl, 4, a, b, c, d)
  end
  records[name] = { count = #list, bytes = table.concat(parts) }
end

local function respond(query)
  if #query < 12 then return nil end
  local id, flags, questions = string.unpack(">I2I2I2", query)
  if flags & QR ~= 0 then return nil end -- a response: replying to it could loop between two servers
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
  if info then return nil end -- truncated: longer than any query
  return respond(query)
end)
