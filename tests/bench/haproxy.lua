-- haproxy.lua: the 13-byte hello as a service of HAProxy, with the fields that other servers send by themselves.
-- luacheck: globals core
local body = "hello, world\n"
local date, date_made = nil, 0

core.register_service("hello", "http", function(applet)
  local now = core.now().sec
  if now ~= date_made then date, date_made = os.date("!%a, %d %b %Y %H:%M:%S GMT", now), now end
  applet:set_status(200)
  applet:add_header("Server", "haproxy")
  applet:add_header("Date", date)
  applet:add_header("Content-Type", "text/plain; charset=utf-8")
  applet:add_header("Content-Length", tostring(#body))
  applet:start_response()
  applet:send(body)
end)
