-- text_code.lua - ls.crypto.hex, base64 and base64url: bytes as text (crypto_object.c).

local core = require "luaserve.core"
local usage = require "luaserve.usage"

local pairs = pairs -- a site may replace the globals
local check, no_more = usage.check, usage.no_more
local encodings = { hex = 1, base64 = 2, base64url = 3 }

local text_code = {}

-- ls.crypto.hex is a TextCode: bytes as text.
-- ls.crypto.hex: TextCode - two digits for each byte
-- ls.crypto.base64: TextCode - base64 with padding (RFC 4648, section 4)
-- ls.crypto.base64url: TextCode - base64 without padding for URLs (section 5)
-- ls.crypto.hex.encode(bytes: string) -> text
-- Writes bytes as text.
-- ls.crypto.hex.decode(text) -> bytes: string | nil, message, code
-- Reads it. EINVAL: `encode` does not write such a text; the padding of base64 may be missing or added.
for name, encoding in pairs(encodings) do
  text_code[name] = usage.strict("ls.crypto." .. name, {
    encode = function(bytes, ...)
      no_more("ls.crypto." .. name .. ".encode(bytes)", bytes, ...)
      check(bytes, "string", "ls.crypto.%s.encode: bytes must be a string", name)
      return core.crypto_encode(encoding, bytes)
    end,
    decode = function(text, ...)
      no_more("ls.crypto." .. name .. ".decode(text)", text, ...)
      check(text, "string", "ls.crypto.%s.decode: text must be a string", name)
      local bytes = core.crypto_decode(encoding, text)
      if not bytes then return nil, "the text is not " .. name, "EINVAL" end
      return bytes
    end,
  })
end

return text_code
