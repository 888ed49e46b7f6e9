-- responder.lua - a high-throughput responder: every GET gets the same 512 bytes, any other request is aborted.
--
--   luaserve examples/responder.lua [--http.sys] http://127.0.0.1:8080/ [http://[::1]:8081/ ...]
--   curl http://127.0.0.1:8080/
--
-- With --http.sys the HTTP server of Windows listens and passes the requests on; a host of + then means every name.
--
-- The body is prepared once, in a buffer of the server; each response is sent from there without a copy. Up to 64
-- threads work, each listener keeps 4 accepts posted (with http.sys: 4 receives per thread), and a thread takes at
-- most 4 completions at a time. The counters are printed every 3 seconds. SIGINT (Ctrl-C), SIGTERM or any key (Enter,
-- if the terminal is in line mode) stops it: it accepts nothing new, finishes current requests, and exits within 15
-- seconds.

local ls = require "luaserve"

local urls = { ... }
local http_sys = urls[1] == "--http.sys"
if http_sys then table.remove(urls, 1) end

-- "http://host:port/" -> "host:port"; + and * mean every address of this machine.
local function address_of(url)
  local host, port = url:match("^http://(%[[%x:.]+%]):?(%d*)/?$")
  if not host then host, port = url:match("^http://([^/:%[%]]+):?(%d*)/?$") end
  if not host then return nil end
  if host == "+" then host = "*" end
  return host .. ":" .. (port ~= "" and port or "80")
end

local addresses = {}
for i, url in ipairs(urls) do
  addresses[i] = address_of(url)
  if not addresses[i] then
    io.stderr:write("responder: not a URL of the form http://host:port/: ", url, "\n")
    os.exit(1)
  end
end
if #addresses == 0 then
  io.stderr:write("usage: luaserve ", arg[0], " [--http.sys] http://host:port/ [http://host:port/ ...]\n")
  os.exit(1)
end

ls.config { threads_max = 64, accepts_posted = 4, drain_timeout = 15 }

local body = ls.buffer((("0123456789"):rep(52):sub(1, 512)))

local function respond() return body end

-- Closes the connection without a response: it counts as a request, not as a response.
local function refuse(_, res) res:abort() end

local app = ls.app()
app:get("/", respond)
app:get("/*rest", respond)
for _, path in ipairs { "/", "/*rest" } do
  app:head(path, refuse) -- else HEAD would get the response of GET
  app:any(path, refuse)
end
app:options("*", refuse)

local shown = { "requests", "responses", "packets", "recv_inline", "recv_queued", "send_inline",
  "send_queued", "threads" }

local function show()
  local stats, parts = ls.stats(), {}
  for i, name in ipairs(shown) do parts[i] = string.format("%s %.0f", name, stats[name]) end
  parts[#parts + 1] = string.format("unanswered %.0f", stats.requests - stats.responses) -- aborted, or still in progress
  print(table.concat(parts, "  "))
  io.stdout:flush()
end

-- Only one state prints: the counters are those of the whole server.
local prints, keys = false, nil
ls.init(function()
  prints = true
  ls.every(3, show)
  keys = ls.notify(0, "in") -- nil if standard input is a file or closed
  ls.spawn(function() -- it continues: connections are accepted when ls.init ends
    if keys and keys:wait() and io.stdin:read(1) then ls.stop() end
  end)
end)
ls.on("drain", function()
  if prints then show() end
  if keys then keys:remove() end -- else the drain would wait for the key
end)

if http_sys then
  for i, url in ipairs(urls) do urls[i] = url:match("[^/]$") and url .. "/" or url end
  ls.listen { engine = "http.sys", url = urls, handler = app }
else
  for _, address in ipairs(addresses) do ls.listen(address, app) end
end
