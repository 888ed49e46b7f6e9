-- protocol.lua - a line protocol: values by name. One line is a command, one line its answer.
--
--   SET name value    OK                   the value is the rest of the line
--   GET name          VALUE value          or NONE
--   DEL name          OK                   or NONE
--   COUNT             VALUE number
--   QUIT              BYE                  and the connection closes
--   anything else     ERROR reason

local protocol = {
  LINE_BYTES_MAX = 4096,
  NAMES_MAX = 10000,
}

-- new_store() -> the values of a server
function protocol.new_store() return { values = {}, count = 0 } end

local commands = {}

function commands.SET(store, rest)
  local name, value = rest:match("^(%S+) (.+)$")
  if not name then return "ERROR usage: SET name value" end
  if store.values[name] == nil then
    if store.count == protocol.NAMES_MAX then return "ERROR the store is full" end
    store.count = store.count + 1
  end
  store.values[name] = value
  return "OK"
end

function commands.GET(store, rest)
  local value = store.values[rest]
  return value and "VALUE " .. value or "NONE"
end

function commands.DEL(store, rest)
  if store.values[rest] == nil then return "NONE" end
  store.values[rest] = nil
  store.count = store.count - 1
  return "OK"
end

function commands.COUNT(store) return "VALUE " .. store.count end

function commands.QUIT() return "BYE", true end

-- answer(store, line) -> the line of the answer, and whether the connection closes
function protocol.answer(store, line)
  local name, rest = line:match("^(%a+) ?(.*)$")
  local command = name and commands[name:upper()]
  if not command then return "ERROR unknown command" end
  return command(store, rest)
end

return protocol
