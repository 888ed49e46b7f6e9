-- The assertions of the Lua unit tests.

local check = {}

local function show(value)
  if type(value) == "string" then return string.format("%q", value) end
  if type(value) ~= "table" then return tostring(value) end
  local keys = {}
  for key in pairs(value) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  local parts = {}
  for i, key in ipairs(keys) do parts[i] = "[" .. show(key) .. "]=" .. show(value[key]) end
  return "{" .. table.concat(parts, ", ") .. "}"
end

local function same(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b and math.type(a) == math.type(b) end
  for key, value in pairs(a) do if not same(value, b[key]) then return false end end
  for key in pairs(b) do if a[key] == nil then return false end end
  return true
end

-- Checks that both are equal: numbers in value and subtype, tables by their contents.
function check.equal(got, expected)
  if not same(got, expected) then error("got " .. show(got) .. ", expected " .. show(expected), 2) end
end

-- Checks that fn(...) raises a string that contains every one of `parts` (a string or a list).
function check.raises(parts, fn, ...)
  local ok, message = pcall(fn, ...)
  if ok then error("did not raise; expected " .. show(parts), 2) end
  for _, part in ipairs(type(parts) == "table" and parts or { parts }) do
    if type(message) ~= "string" or not message:find(part, 1, true) then
      error("raised " .. show(message) .. ", without " .. show(part), 2)
    end
  end
end

-- check.fails(fields, fn, ...): fn(...) raises a table, such as the failure of a database, with these fields.
function check.fails(fields, fn, ...)
  local ok, e = pcall(fn, ...)
  if ok or type(e) ~= "table" then error("no failure: " .. show(e), 2) end
  check.fields(e, fields)
end

-- The line of the caller plus `offset`, in the form of messages: "test_app.lua:12".
function check.line(offset)
  local info = debug.getinfo(2, "Sl")
  return info.short_src:match("[^/]*$") .. ":" .. info.currentline + (offset or 0)
end

-- check.fields(got, expected): got is a table whose fields named in `expected` equal those.
function check.fields(got, expected)
  local named = {}
  for name in pairs(expected) do named[name] = got[name] end
  check.equal(named, expected)
end

return check
