-- test/server.lua - test.serve: a site in a process of its own. All of its listeners are moved to free ports of 127.0.0.1.
--
-- The process is this program with --server-process (cli/test.c). It reports one line per listener, then "ready", or
-- "error MESSAGE". It drains when its standard input ends, so it does not outlive the process of the test file.

local child = require "luaserve.test.child"
local check_names = require("luaserve.options").check_names
local client = require "luaserve.test.client"
local system = require "luaserve.test.system"
local tcp = require "luaserve.tcp"
local usage = require "luaserve.usage"

local server = {}

local START_SECONDS_MAX = 30
local STOP_SECONDS_MAX = 25 -- more than the default of drain_timeout, 15 s
local REQUEST_SECONDS_MAX = 60
local ENDING_SECONDS = 0.2

server.log_level = nil -- of all servers, from the command line
server.root = "."      -- the folder that relative names begin at

local running = {} -- the servers that have not been stopped, in the order of their start

-- server is a TestServer: a site that test.serve has started.
-- server.url: string - of the first ls.listen, else of the first listener
-- server.port: integer - of the same
-- server.urls: string[] - of all listeners
local methods = {}
local meta = {
  __name = "server",
  __index = function(_, name)
    if methods[name] then return methods[name] end
    usage.error("a server has no %s%s", usage.quote(name), usage.suggest(tostring(name), methods))
  end,
}

local serve_options = { args = true, threads = true, env = true }

-- test.serve(site: string [, options: TestServeOptions]) -> server
-- Starts a site in a process of its own, with all listeners on free ports of 127.0.0.1. `site` is the name of the file,
-- from the folder of the project, which is the one above tests/. Raises if the site fails to load.
-- options is a TestServeOptions: options of test.serve.
-- options.args: (string|number)[] - arguments of the site
-- options.env: table<string, string|number|false> - variables beside those of the test file; false removes one
-- options.threads: integer - as `--threads` of the command line
function server.start(site, given, ...)
  given = given or {}
  usage.no_more('test.serve("site.lua", { args = { ... } })', given, ...)
  usage.refuse(type(site) ~= "string" or site == "", site, 'test.serve: the file is missing: test.serve("site.lua")')
  usage.check(given, "table", "test.serve: the options must be a table such as { args = { ... } }")
  check_names("test.serve", given, serve_options)
  usage.check(given.args, "table?", "test.serve: args must be a list of strings")
  usage.refuse(given.threads ~= nil and (math.type(given.threads) ~= "integer" or given.threads < 1), given.threads,
    "test.serve: threads must be a number from 1")
  local file = site
  if server.root ~= "." and not system.is_absolute(site) and system.kind(server.root .. "/" .. site) then
    file = server.root .. "/" .. site
  end
  local command = { "test", "--server-process" }
  local function option(name, value)
    if value then
      command[#command + 1] = name
      command[#command + 1] = tostring(value)
    end
  end
  option("--log-level", server.log_level)
  option("--threads", given.threads)
  command[#command + 1], command[#command + 2] = "--", file
  for _, one in ipairs(given.args or {}) do command[#command + 1] = tostring(one) end

  local process, why = child.start(command, require("luaserve.process").environment("test.serve", given.env))
  if not process then usage.error("test.serve: cannot start a process: %s", why) end
  local self = setmetatable({ site = site, process = process, urls = {}, stopped = false,
    socks = setmetatable({}, { __mode = "k" }) }, meta)
  while true do
    local line, reason = process:receive(START_SECONDS_MAX)
    local word, rest = (line or ""):match("^(%a+) ?(.*)$")
    if word == "ready" then break end
    if word == "error" then
      process:kill()
      usage.error("test.serve: %s", rest)
    elseif word == "listening" then
      table.insert(self.urls, rest)
    elseif not line then
      if reason == "timeout" then
        process:kill()
        usage.error("test.serve: %s did not load within %d s", site, START_SECONDS_MAX)
      end
      usage.error("test.serve: %s: its process %s while it loaded", site, select(2, process:ending()))
    end
  end
  local url = self.urls[1] or ""
  for n = #self.urls, 1, -1 do
    if self.urls[n]:find("^https?://") then url = self.urls[n] end -- the first listener of ls.listen
  end
  self.url, self.port = url, tonumber(url:match(":(%d+)$")) or 0
  running[#running + 1] = self
  return self
end

-- connect(url, timeout) -> sock, "host:port" | nil, message
local function connect(url, timeout)
  local scheme, host, port = url:match("^(%w+)://%[?([^%]]-)%]?:(%d+)$")
  if not scheme or scheme == "udp" then usage.error("%s accepts no connections", url) end
  local options = { read_timeout = timeout or REQUEST_SECONDS_MAX }
  for name, value in pairs(client.sock_options) do options[name] = value end
  if scheme == "https" or scheme == "tls" then options.tls = { insecure = true } end
  local sock, message = tcp.connect(host, tonumber(port), options)
  if not sock then return nil, message end
  return sock, host .. ":" .. port
end

-- The end of the message about a connection that failed: how the process has ended, or "" if it runs. The connections of a
-- process close before its pipe does. The pipe may have lines: an exit() while the main thread is in fflush() writes once
-- more what that thread has just written.
local function why_ended(self)
  local line, reason
  repeat line, reason = self.process:receive(ENDING_SECONDS) until not line
  if reason == "timeout" then return "" end
  return "; the process of " .. self.site .. " " .. select(2, self.process:ending())
end

-- server:connect([index: integer]) -> sock
-- Connects to a listener, 1 unless given, in the order of the site's calls. A certificate is not checked.
function methods:connect(index, ...)
  usage.no_more("server:connect(index)", index, ...)
  local url = self.urls[index or 1]
  if not url then usage.error("server:connect: the site has %d listeners; got %s", #self.urls, usage.quote(index)) end
  local sock, message = connect(url)
  if not sock then usage.error("server:connect: %s: %s%s", url, message, why_ended(self)) end
  self.socks[sock] = true
  return sock
end

-- server:request(method: string, path [, options: TestRequest]) -> response
-- Sends a request. Raises when there is no response.
-- options is a TestRequest: options of a request to a server. Give one of `json`, `form` and `body`.
-- options.headers: Headers - header fields
-- options.json: any - sent as JSON
-- options.form: table<string, any> - sent as a form
-- options.body: string - the body
-- options.timeout: number - seconds without received data; default 60
function methods:request(method, path, options, ...)
  local call = "server:" .. tostring(method):lower()
  usage.no_more(call .. "(path, options)", options, ...)
  options = options or {}
  client.check(call, path, options)
  if not self.url:find("^https?:") then
    usage.error("%s: the site has no listener for HTTP", call)
  end
  local sock, host = connect(self.url, options.timeout)
  if not sock then usage.error("%s: %s: %s%s", call, self.url, host, why_ended(self)) end
  local response, message = client.exchange(sock, method, path, host, options)
  sock:close()
  if not response then
    usage.error("%s: no response to %s %s: %s%s", call, method, path, tostring(message), why_ended(self))
  end
  return response
end

-- server:get|head|post|put|patch|delete|options(path [, options: TestRequest]) -> response
-- Sends a request of this method, as server:request.
for _, method in ipairs { "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS" } do
  methods[method:lower()] = function(self, path, ...) return self:request(method, path, ...) end
end

-- server:stop() -> true | nil, message
-- Lets the server drain, and waits until its process has ended; nil when it did not end with status 0. The servers of a
-- file are stopped after its last test.
function methods:stop(...)
  usage.no_more("server:stop()", nil, ...)
  if self.stopped then return table.unpack(self.stopped, 1, 2) end
  for sock in pairs(self.socks) do sock:abort() end -- the drain would wait for them
  self.process:stop()
  local deadline, line, reason = child.now() + STOP_SECONDS_MAX, nil, nil
  repeat line, reason = self.process:receive(deadline - child.now()) until not line
  if reason == "timeout" then self.process:kill() end
  local well, ending = self.process:ending()
  if reason == "timeout" then ending = "did not end within " .. STOP_SECONDS_MAX .. " s" end
  self.stopped = { well or nil, not well and "the process of " .. self.site .. " " .. ending or nil }
  return table.unpack(self.stopped, 1, 2)
end

-- stop_all() -> a list of messages of servers that did not end well. For test/file.lua.
function server.stop_all()
  local messages = {}
  for n = #running, 1, -1 do
    if not running[n].stopped then
      local ok, message = running[n]:stop()
      if not ok then messages[#messages + 1] = message end
    end
  end
  running = {}
  return messages
end

return server
