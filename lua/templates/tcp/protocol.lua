-- protocol.lua - a line protocol: values by name. One line is a command, one line its answer.
--
--   SET name value    OK                   the value is the rest of the line
--   GET name          VALUE value          or NONE
--   DEL name          OK                   or NONE
--   COUNT             VALUE number
--   QUIT              BYE                  and the connection closes
--   anything else     ERROR reason

local ls = require "luaserve"

local protocol = { LINE_BYTES_MAX = 4096 }

-- store() -> the dict with the values, which all Lua states share
function protocol.store() return ls.dict("values", { size = "16m", evict = false }) end

local commands = {}

function commands.SET(store, rest)
  local name, value = rest:match("^(%S+) (.+)$")
  if not name then return "ERROR usage: SET name value" end
  return store:set(name, value) and "OK" or "ERROR the store is full"
end

function commands.GET(store, rest)
  local value = store:get(rest)
  return value and "VALUE " .. value or "NONE"
end

function commands.DEL(store, rest)
  return store:delete(rest) and "OK" or "NONE"
end

function commands.COUNT(store) return "VALUE " .. #store end

function commands.QUIT() return "BYE", true end

-- answer(store, line) -> the line of the answer, and whether the connection closes
function protocol.answer(store, line)
  local name, rest = line:match("^(%a+) ?(.*)$")
  local command = name and commands[name:upper()]
  if not command then return "ERROR unknown command" end
  return command(store, rest)
end

return protocol
