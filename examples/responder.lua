-- responder.lua - a high-throughput responder: every GET gets the same 512 bytes, anything else is cut off.
--
--   luaserve examples/responder.lua [--http.sys] http://127.0.0.1:8080/ [http://[::1]:8081/ ...]
--   curl http://127.0.0.1:8080/
--
-- With --http.sys it is Windows' own HTTP server that listens, and hands over the requests: then a host of + is every name.
--
-- The body is prepared once, in a buffer of the server's own memory; it is sent from there each time, and never copied.
-- Up to 64 threads work, each listener keeps 4 accepts posted (with http.sys: 4 receives for each thread), and a thread
-- takes at most 4 completions at a time. Every 3 seconds the counters are printed. SIGINT (Ctrl-C), SIGTERM or any key
-- (Enter, where the terminal hands over whole lines) stops it: nothing new is accepted, what is under way is finished, and
-- the program ends within 15 seconds.

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

local function answer() return body end

-- The connection is closed without an answer: a request more than responses.
local function refuse(_, res) res:abort() end

local app = ls.app()
app:get("/", answer)
app:get("/*rest", answer)
for _, path in ipairs { "/", "/*rest" } do
  app:head(path, refuse) -- HEAD would be answered as GET otherwise
  app:any(path, refuse)
end
app:options("*", refuse)

local shown = { "requests", "responses", "unanswered", "packets", "recv_inline", "recv_queued", "send_inline",
  "send_queued", "threads" }

local function show()
  local stats, parts = ls.stats(), {}
  stats.unanswered = stats.requests - stats.responses -- cut off, and those that are under way
  for i, name in ipairs(shown) do parts[i] = string.format("%s %.0f", name, stats[name]) end
  print(table.concat(parts, "  "))
  io.stdout:flush()
end

-- One state prints for all: the counters are those of the whole server.
local prints, keys = false, nil
ls.once(function()
  prints = true
  ls.every(3, show)
  keys = ls.notify(0, "in") -- nil where standard input is a file, or closed
  if keys and keys:wait() and io.stdin:read(1) then ls.stop() end
end)
ls.on("drain", function()
  if prints then show() end
  if keys then keys:remove() end -- or the key would be waited for
end)

if http_sys then
  for i, url in ipairs(urls) do urls[i] = url:match("[^/]$") and url .. "/" or url end
  ls.listen { engine = "http.sys", url = urls, app = app }
else
  for _, address in ipairs(addresses) do ls.listen(address, app) end
end
