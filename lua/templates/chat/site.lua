-- site.lua - a chat: luaserve site.lua [PORT OF THE PAGE [PORT OF THE LINES]]
--
-- People take part with a line-based client (nc 127.0.0.1 7000) or on the page http://127.0.0.1:8080/.

local ls = require "luaserve"
local chat = require "chat"

-- Each Lua state runs this file and has its own variables. The room, with its connections, is such a variable, so one
-- state runs.
ls.config { states = 1 }

local http_port, tcp_port = ...
local room = chat.new()

ls.listen(http_port or 8080, room:app())
ls.tcp({ port = tonumber(tcp_port) or 7000, read_timeout = false, max_line = chat.TEXT_BYTES_MAX },
  function(sock) room:talk(sock) end)
