-- protocol.lua - a line protocol: values by name. One line is a command, one line its answer.
--
--   SET name value    OK                   the value is the rest of the line
--   GET name          VALUE value          or NONE
--   DEL name          OK                   or NONE
--   COUNT             VALUE number
--   QUIT              BYE                  and the connection closes
--   anything else     ERROR reason

local ls = require "luaserve"

local protocol = { LINE_BYTES_MAX = 4096, STORE_BYTES_MAX = 4 * 1024 * 1024 }

-- The values. A dict is shared by all Lua states, and survives a reload; it ends with the server.
local store = ls.dict("values", { size = protocol.STORE_BYTES_MAX })

local commands = {}

function commands.SET(rest)
  local name, value = rest:match("^(%S+) (.+)$")
  if not name then return "ERROR usage: SET name value" end
  if not ls.try(store.set, store, name, value) then return "ERROR the store is full" end
  return "OK"
end

function commands.GET(rest)
  local value = store:get(rest)
  return value and "VALUE " .. value or "NONE"
end

function commands.DEL(rest) return store:delete(rest) and "OK" or "NONE" end

function commands.COUNT() return "VALUE " .. #store end

function commands.QUIT() return "BYE", true end

-- answer(line) -> the line of the answer, and whether the connection closes
function protocol.answer(line)
  local name, rest = line:match("^(%a+) ?(.*)$")
  local command = name and commands[name:upper()]
  if not command then return "ERROR unknown command" end
  return command(rest)
end

return protocol
