-- result.lua - what is wrong with the results of a handler or middleware, for the message. http_result.c finds them wrong.

local usage = require "luaserve.usage"

local getmetatable, concat = debug.getmetatable, table.concat -- a site may replace the globals

local result = {}

local shown_max = 4 -- results in a message
local forms = "a %s returns body; body, headers; status; or status, body, headers"

local bodies = { string = true, table = true, userdata = true }

local function is_status(value) return math.type(value) == "integer" and value >= 200 and value <= 999 end

local function name_of(value)
  local meta = type(value) == "userdata" and getmetatable(value)
  if meta and meta.__name == "buffer" then return "a buffer" end
  return type(value) == "number" and tostring(value) or value == nil and "nil" or "a " .. type(value)
end

-- message("handler"|"middleware", ...) -> "the handler returned a table, 404; what is right"; nil for the two results of
-- a handler that ends with `return require "page"`: the page and the data of the loader.
function result.message(returner, ...)
  local first, second = ...
  local count, names, right = select("#", ...), {}, forms:format(returner)
  if count == 2 and bodies[type(first)] and usage.is_loader_data(first, second) then return nil end
  if first == nil and is_status(second) then
    right = "for a status alone: return status"
  elseif type(first) ~= "number" and is_status(second) then
    right = "the status comes first: return status, body"
  elseif is_status(first) and second == nil then
    right = 'the body is nil, which a call that failed, or found nothing, may have returned: return ... or 404; an empty body is ""'
  elseif is_status(first) and count == 2 then
    right = ("a redirect has the field Location: return res:redirect(url, %d), or return %d, body, { Location = url }"):format(first, first)
  elseif type(first) == "string" and type(second) == "number" then
    right = "put a call that returns several values, such as string.gsub, in parentheses"
  end
  for i = 1, math.min(count, shown_max) do names[i] = name_of((select(i, ...))) end
  while #names > 1 and names[#names] == "nil" do names[#names] = nil end
  return "the " .. returner .. " returned " .. concat(names, ", ") .. "; " .. right
end

return result
