-- kv.lua - a key-value server with a line-based protocol like memcached's:
--
--   luaserve examples/kv.lua 7002              then, in another terminal:  nc 127.0.0.1 7002
--
--   set <key> <bytes>                  and that number of bytes and a line end on the next line(s)     STORED
--                                      or SERVER_ERROR and the reason
--   get <key>                          VALUE <key> <bytes>, the value, END; or END alone
--   delete <key>                       DELETED or NOT_FOUND
--   count                              the number of keys
--   quit
--
-- Requests may be pipelined; the responses are sent together when no further request has arrived. All Lua states share the
-- values, in a dict. When it is full, the values that were not used for longest go.

local ls = require "luaserve"

local VALUE_MAX, KEY_MAX = 1024 * 1024, 250
local values = ls.dict("values", { size = "64m", evict = true })

local commands = {}

function commands.set(sock, key, bytes)
  bytes = math.tointeger(bytes)
  if not bytes or bytes < 0 or bytes > VALUE_MAX then
    sock:send("CLIENT_ERROR bad length\n") -- the end of the value is unknown
    return false
  end
  local value = sock:receive(bytes)
  local rest = value and sock:receive("*l")
  if not rest then return false end
  if rest ~= "" then
    sock:send("CLIENT_ERROR bad data chunk\n")
    return false
  end
  local stored, e = ls.try(values.set, values, key, value)
  sock:send(stored and "STORED\n" or "SERVER_ERROR " .. e.message .. "\n")
end

function commands.get(sock, key)
  local value = values:get(key)
  if value then sock:send("VALUE ", key, " ", #value, "\n", value, "\n") end
  sock:send("END\n")
end

function commands.delete(sock, key)
  sock:send(values:delete(key) and "DELETED\n" or "NOT_FOUND\n")
end

local function serve(sock)
  for line in sock:lines() do
    local name, key, more = line:match("^(%l+) ?(%S*) ?(%S*)$")
    if name == "quit" then return end
    if name == "count" then
      sock:send(#values, "\n")
    elseif not commands[name] then
      sock:send("ERROR unknown command\n")
    elseif key == "" or #key > KEY_MAX then
      sock:send("CLIENT_ERROR bad key\n")
    elseif commands[name](sock, key, more) == false then
      return
    end
  end
end

ls.tcp({ port = (...) or 7002, read_timeout = 600, max_line = 512 }, serve)
