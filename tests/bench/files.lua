-- files.lua: files and a hello, plain or over TLS, that scripts/bench measures.
--   luaserve files.lua PORT FOLDER [CERTIFICATE KEY]
local ls = require "luaserve"

local port, folder, cert, key = ...
assert(tonumber(port) and folder, "usage: luaserve files.lua PORT FOLDER [CERTIFICATE KEY]")
local app = ls.app()

app:get("/", function() return "hello, world\n" end)
app:static("/files", folder)

ls.listen { host = "127.0.0.1", port = tonumber(port), app = app, tls = cert and { cert = cert, key = key } }
