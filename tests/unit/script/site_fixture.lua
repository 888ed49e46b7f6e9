-- site_fixture.lua - what the sites of the tests use: site_fixture.h, and the files of Lua beside the tests.
local core = setmetatable({}, { __index = require "luaserve.core" })
local t = { core = core }

-- As the core's function, but with headers in a list: { { name, value }, ... }, and with Host and Content-Length.
function core.inject(handler, failed, method, target, headers, body)
  local sent, has_host = body and { "Content-Length", tostring(#body) } or {}, false
  for _, field in ipairs(headers) do
    sent[#sent + 1], sent[#sent + 2] = field[1], tostring(field[2])
    has_host = has_host or field[1] == "Host"
  end
  if not has_host then sent[#sent + 1], sent[#sent + 2] = "Host", "localhost" end
  local status, fields, content = getmetatable(core).__index.inject(handler, failed, method, target, sent, body)
  if not status then return status, fields, content end
  local list = {}
  for n = 1, #fields, 2 do list[#list + 1] = { fields[n], fields[n + 1] } end
  return status, list, content
end

-- The handler of errors.
function t.failed(_, _, err) return 500, "failed: " .. tostring(err) end

-- get(handler [, path [, body [, headers]]]) -> status, headers, body of an injected request
function t.get(handler, path, body, headers)
  return core.inject(handler, t.failed, body and "POST" or "GET", path or "/", headers or {}, body)
end

-- header(list, name) -> the value of the first field with this name in lower case
function t.header(list, name)
  for _, field in ipairs(list) do
    if field[1]:lower() == name then return field[2] end
  end
end

function t.is(got, expected)
  if got ~= expected then error("expected " .. tostring(expected) .. ", got " .. tostring(got), 2) end
end

-- show(...) -> the values, joined with "|"
function t.show(...)
  local texts = table.pack(...)
  for i = 1, texts.n do texts[i] = tostring(texts[i]) end
  return table.concat(texts, "|", 1, texts.n)
end

-- The test has ended.
function t.done() core.log("info", "DONE") end

-- body(fn): a task calls fn; an error is logged as FAILED. Then the test has ended.
function t.body(fn)
  core.after(0, function()
    local ok, err = xpcall(fn, debug.traceback)
    if not ok then core.log("error", "FAILED " .. tostring(err)) end
    t.done()
  end)
end

return t
