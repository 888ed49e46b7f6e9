-- files.lua - files and a hello, plain or over TLS: the site that scripts/bench measures, and the profile of
-- scripts/build is made with.
--
--   luaserve files.lua ADDRESS FOLDER [CERTIFICATE KEY | self-signed]      a port alone is one of 127.0.0.1
local ls = require "luaserve"

local address, folder, cert, key = ...
assert(folder, "usage: luaserve files.lua ADDRESS FOLDER [CERTIFICATE KEY | self-signed]")
if tonumber(address) then address = "127.0.0.1:" .. address end
local app = ls.app()

app:get("/", function() return "hello, world\n" end)
app:static("/files", folder)

ls.listen(address, app, { tls = key and { cert = cert, key = key } or cert })
