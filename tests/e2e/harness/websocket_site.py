"""Hostile: a site with WebSockets in both forms, and tests that end with the proof that the server serves."""
from harness.case import E2E
from harness.websocket import WebSocket

MIB = 1 << 20

SITE = r"""
local ls = require "luaserve"
ls.config { threads = 4, drain_timeout = 10, head_timeout = 2 }
local app = ls.app()
local ends = ls.channel("ends", { capacity = 10000 })
app:get("/", function() return "served\n" end)
app:get("/end", function() return ends:receive(20) or 504 end)
app:get("/forget", function()
  while ends:receive(0) do end
  return 204
end)

local function told(ws) ends:send(("%s %s"):format(ws.code, ws.reason), 0) end
local function echo(ws)
  for data, kind in ws:messages() do
    if not ws:send(data, kind) then break end
  end
end

-- Both forms of each route: /NAME has a coroutine, /NAME/event has functions.
local function route(name, options)
  app:ws("/" .. name, options, function(ws)
    echo(ws)
    told(ws)
  end)
  local event = { message = function(ws, data, kind) ws:send(data, kind) end, close = told }
  for key, value in pairs(options) do event[key] = value end
  app:ws("/" .. name .. "/event", event)
end

route("echo", {})
route("deflate", { max_message = 1000, compress = true })
route("bomb", { compress = true })
route("quick", { message_timeout = 1, close_timeout = 1, ping = 60 })
route("any", { origins = "*" })

-- The number of messages and their bytes, at the message "count".
app:ws("/count", function(ws)
  local messages, bytes = 0, 0
  for data in ws:messages() do
    if data == "count" then
      ws:send(messages .. " " .. bytes)
    else
      messages, bytes = messages + 1, bytes + #data
    end
  end
end)
-- Sends until it cannot.
app:ws("/flood", { close_timeout = 1 }, function(ws)
  local block = ("x"):rep(65536)
  while ws:send(block) do end
  told(ws)
end)
-- Never receives: what the peer sends waits.
app:ws("/deaf", { close_timeout = 1 }, function(ws)
  while not ws.closed do ls.sleep(0.05) end
end)
app:ws("/closes", { close_timeout = 1, open = function(ws) ws:close(4000, "bye") end, close = told })

-- Topics: what a message says is done, and its results are sent.
app:ws("/topics", { max_queue = "256k", close_timeout = 1, close = told, message = function(ws, data)
  local topic = ("t"):rep(tonumber(data) or 0)
  if data == "nobody" then
    ws:send(tostring(ls.publish("nobody", "x")))
  elseif data == "closed" then
    ws:close()
    local ok, _, code = ws:subscribe("after")
    ends:send(("%s %s %s"):format(ok, code, ls.topics().after))
  else
    local ok, why = pcall(ws.subscribe, ws, topic)
    ws:send(tostring(ok and ls.publish(topic, "x" .. #topic) or why))
  end
end })
app:ws("/news", { max_queue = "256k", close_timeout = 1, open = function(ws)
  ws:subscribe("news")
  ws:send("subscribed")
end, close = told })
app:ws("/news/skip", { max_queue = "256k", overflow = "skip", compress = true, open = function(ws)
  ws:subscribe("news")
  ws:send("subscribed")
end, close = told })
app:get("/stats", function()
  local stats = ls.stats()
  return ("%d %d"):format(stats.topic_closed, stats.topic_dropped)
end)
app:post("/news", function(req) return tostring(ls.publish("news", req:body(), "binary")) .. "\n" end)

ls.listen { host = "127.0.0.1", port = 0, handler = app }
"""


class Hostile(E2E):
    SITE = SITE

    def setUp(self):
        super().setUp()
        self.mark = self.server.mark()
        self.get("/forget")  # what a failed test has left

    def tearDown(self):
        self.assertEqual(self.get("/").text, "served\n")
        with WebSocket(self.server.at(), "/echo") as ws:
            self.assertEqual(ws.send("served too").receive(), "served too")
            self.assertEqual(ws.close(), (1000, ""))
        self.assertIn(self.end(), "1000 ")
        self.assertEqual(self.server.logged(" error ", self.mark), [])
        super().tearDown()

    def open(self, path="/echo", **options):
        ws = WebSocket(self.server.at(), path, **options)
        self.owns(ws.conn)
        return ws

    def end(self):
        """What a handler has learned about the end of its connection: "code reason"."""
        return self.get("/end").text

    def both(self, name="echo"):
        """A connection of each form."""
        for path in ("/" + name, "/" + name + "/event"):
            with WebSocket(self.server.at(), path) as ws:
                yield ws

    def is_closed(self, ws, code, why=None):
        """The server sends a Close frame with this code and ends the connection; the handler learns the same."""
        got, reason = ws.closes()
        self.assertEqual(got, code, reason)
        if why is not None:
            self.assertIn(why, reason)
        self.assertEqual(self.end(), "%d %s" % (code, reason))
        return reason
