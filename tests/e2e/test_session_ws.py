"""Sessions in the functions of WebSockets, which run when the response has been sent."""
from harness import E2E
from harness.websocket import WebSocket

SITE = """local ls = require "luaserve"
local app = ls.app()
app:use(ls.session { store = ls.dict("sessions") })
app:get("/login", function(req) req.session.name = "ada" return "ok" end)
app:get("/room", function(req) return tostring(req.session.room) end)
app:ws("/open", { open = function(ws, req) req.session.room = "open" ws:send(req.session.name) end })
app:ws("/loop", function(ws, req) req.session.room = "loop" ws:send(req.session.name) end)
app:ws("/read", { open = function(ws, req) ws:send(tostring(req.session.name)) end })
app:ws("/save", { open = function(ws, req)
  req.session.room = "save"
  req.session:save()
  ws:send("saved")
end })
app:ws("/new", { open = function(ws, req)
  req.session.room = "new"
  ws:send(select(2, pcall(req.session.save, req.session)))
end })
ls.listen("127.0.0.1:0", app)
"""


class Sessions(E2E):
    SITE = SITE

    def ask(self, target, headers):
        with WebSocket(self.server.at(0), target, headers=headers) as page:
            return page.receive()

    def test_changes_are_saved_or_reported(self):
        cookie = {"Cookie": self.get("/login").header("Set-Cookie").split(";")[0]}
        self.assertEqual(self.ask("/read", cookie), "ada")
        for target in ("/open", "/loop"):
            self.assertEqual(self.ask(target, cookie), "ada")
            self.server.wait_log("warn %s .*the session was changed in a function of the WebSocket and is not stored; call "
                                 r"req.session:save\(\)" % target)
            self.assertEqual(self.get("/room", cookie).text, "nil")
        self.assertEqual(self.ask("/save", cookie), "saved")
        self.assertEqual(self.get("/room", cookie).text, "save")
        self.assertIn("session:save: the response has begun, and its head would set the cookie", self.ask("/new", {}))
        self.assertNotRegex(self.server.log(), " error |warn /save|warn /read")
