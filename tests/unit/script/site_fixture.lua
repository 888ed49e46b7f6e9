-- site_fixture.lua - what the sites of the tests use: site_fixture.h, and the files of Lua beside the tests.
local core = setmetatable({}, { __index = require "luaserve.core" })
local t = { core = core }

-- As the core's function, but with a method, a target and headers in place of the text of the head, and with headers in a
-- list: { { name, value }, ... }.
function core.inject(handler, failed, method, target, headers, body)
  local head = { method .. " " .. target .. " HTTP/1.1" }
  if body then head[#head + 1] = "Content-Length: " .. #body end
  for _, field in ipairs(headers) do head[#head + 1] = field[1] .. ": " .. field[2] end
  local text = table.concat(head, "\r\n") .. "\r\n"
  if not text:find("\nHost:") then text = text .. "Host: localhost\r\n" end
  local status, fields, content = getmetatable(core).__index.inject(handler, failed, text .. "\r\n", body)
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
