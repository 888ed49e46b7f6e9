-- site.lua - a tour of what a site can do: parameters, JSON, forms, streaming in both directions, timers, error pages.
--
--   luaserve examples/site.lua [address]               default: port 8080 on the loopback addresses
--
-- http://127.0.0.1:8080/ lists everything here with commands to try.
--
-- This file runs once in every Lua state (one per thread, standby threads included), so a variable at the top level
-- exists once per state: suitable for constants and caches, unsuitable for counting visitors.

local ls = require "luaserve"
local at = ... or 8080

local app = ls.app()

-- ---- around every request ------------------------------------------------------------------------------------------

-- Middleware: runs for every request, including those without a matching route. next() runs the rest.
app:use(function(req, res, next)
  res:header("X-Request-Id", req.id)
  next()
end)

-- ---- the index -----------------------------------------------------------------------------------------------------

local tour = {
  { "A text", "curl http://HOST/hello" },
  { "A parameter in the path", "curl http://HOST/hello/world" },
  { "A parameter in the query, a table as JSON", "curl 'http://HOST/search?q=lua&limit=3'" },
  { "The rest of a path", "curl http://HOST/files/a/b/c.txt" },
  { "JSON in and out", [[curl -d '{"name":"tea","tags":[]}' http://HOST/items]] },
  { "A form", "curl -d 'name=Ada&city=London' http://HOST/form" },
  { "The body back, without a copy", "curl --data-binary @README.md http://HOST/echo" },
  { "A streamed response of any length", "curl 'http://HOST/csv?rows=5'" },
  { "A streamed request body, never held in memory as a whole", "curl -T README.md http://HOST/upload/readme" },
  { "A line every half second, without delaying other requests", "curl -N http://HOST/clock" },
  { "Two tasks at the same time", "curl http://HOST/together" },
  { "A cookie and a redirect", "curl -i http://HOST/login/ada" },
  { "A part of the site with its own rules", "curl http://HOST/api/status; curl http://HOST/api/none" },
  { "A handler that fails: the error page", "curl -i http://HOST/fail" },
  { "An unknown path: the other error page", "curl -i http://HOST/nowhere" },
  { "The counters of the server", "curl http://HOST/stats" },
}

local html = ls.html.escape

app:get("/", function(req, res)
  local host = req.authority or "127.0.0.1:8080"
  local out = { "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>luaserve</title>\n",
    "<h1>luaserve ", html(ls.version), "</h1>\n<p>What this site does, and how to try it:</p>\n<dl>\n" }
  for _, stop in ipairs(tour) do
    local line = stop[2]:gsub("HOST", function() return host end)
    out[#out + 1] = "<dt>" .. html(stop[1]) .. "</dt><dd><pre>" .. html(line) .. "</pre></dd>\n"
  end
  out[#out + 1] = "</dl></html>\n"
  res:header("Content-Type", "text/html; charset=utf-8")
  return table.concat(out)
end)

-- ---- responses -----------------------------------------------------------------------------------------------------

-- A string is sent as text/plain.
app:get("/hello", function() return "hello\n" end)

app:get("/hello/:name", function(req) return "hello, " .. req.params.name .. "\n" end)

-- A table is sent as JSON. Query parameters are strings.
app:get("/search", function(req)
  local limit = math.tointeger((req.query.limit or "10"):match "^%d+$")
  if not limit or limit < 1 or limit > 100 then
    return 400, { error = "limit is a whole number from 1 to 100" }
  end
  return { query = req.query.q or "", limit = limit, found = ls.json.empty_array }
end)

app:get("/files/*path", function(req) return "you asked for " .. req.params.path .. "\n" end)

-- status, body. A body that is no JSON object is an error of the client: req:json raises, which is answered with 400.
app:post("/items", function(req, res)
  local item = req:json { object = true }
  res:header("Location", "/items/1")
  return 201, item
end)

app:post("/form", function(req)
  local form = req:form()
  return "name: " .. tostring(form.name) .. "\ncity: " .. tostring(form.city) .. "\n"
end)

-- ---- bodies of any size --------------------------------------------------------------------------------------------

-- The received buffer is sent back without a copy.
app:post("/echo", function(req) return req:buffer() end)

-- res:write waits for a slow client, so a response of any length needs little memory.
app:get("/csv", function(req, res)
  local rows = math.tointeger((req.query.rows or "1000"):match "^%d+$") or 1000
  res:header("Content-Type", "text/csv; charset=utf-8")
  res:write("n,square\n")
  for i = 1, rows do res:write(i, ",", i * i, "\n") end
end)

-- This route raises the 8 MiB limit of bodies; only one chunk is in memory at a time.
app:put("/upload/:name", { max_body = "10g" }, function(req)
  local bytes, chunks = 0, 0
  for chunk in req:chunks() do
    bytes, chunks = bytes + #chunk, chunks + 1
  end
  return 201, { name = req.params.name, bytes = bytes, chunks = chunks }
end)

-- ---- time ----------------------------------------------------------------------------------------------------------

-- ls.sleep suspends only this handler: its thread serves other requests meanwhile.
app:get("/clock", function(_, res)
  local begun = ls.now()
  for i = 1, 5 do
    res:write(string.format("%d: %.1f s\n", i, ls.now() - begun))
    res:flush() -- send it now
    ls.sleep(0.5)
  end
end)

app:get("/together", function()
  local begun = ls.now()
  local function work(name)
    ls.sleep(0.2)
    return name .. " done"
  end
  local first, second = ls.spawn(work, "first"), ls.spawn(work, "second")
  return string.format("%s, %s, after %.1f s\n", first:wait(), second:wait(), ls.now() - begun)
end)

-- A timer at the top of the file runs once for the whole server.
ls.every(60, function() ls.log.info("still here,", ls.stats().requests, "requests so far") end)

-- ---- cookies, redirects --------------------------------------------------------------------------------------------

app:get("/login/:name", function(req, res)
  res:cookie("name", req.params.name:gsub("[^%w]", ""), { max_age = 3600 })
  return res:redirect("/whoami")
end)

app:get("/whoami", function(req) return (req.cookies.name or "unknown") .. "\n" end)

-- ---- a part with its own rules -------------------------------------------------------------------------------------

local api = ls.app()

api:use(function(_, res, next)
  res:header("Cache-Control", "no-store")
  next()
end)
api:get("/status", function() return { up = true, version = ls.version } end)
api:not_found(function(req) return { error = "the API has no " .. req.path } end)

app:mount("/api", api)

-- ---- errors --------------------------------------------------------------------------------------------------------

app:get("/fail", function() error("this handler always fails") end)

-- The log has the error with its traceback; the client gets the request id to refer to.
app:error(function(req) return 500, "internal error, logged with request id " .. req.id .. "\n" end)

app:not_found(function(req) return "there is no " .. req.path .. " here; see / for a list\n" end)

app:get("/stats", function() return ls.stats() end)

ls.listen(at, app)
